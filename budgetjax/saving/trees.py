"""Trees as JSON and tensors: what a model file holds, and no code.

A tree is a JSON value for its structure, and named NumPy arrays for its leaves. The
JSON names types and functions. They are looked up by these names in `budgetjax.saving.
names`, and nowhere else: nothing that a file names is imported, and nothing of it is
run.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial

from budgetjax.checks import Name, Static
from budgetjax.parameters import Parameters
from budgetjax.saving import names
from budgetjax.saving.names import FUNCTIONS, fields_of, is_record, own_name

# Of tensors; all of them are known to JAX.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
# In the place of a tree to compare with, where there is none.
NOTHING: Any = object()


def encode(where: str, tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree as JSON and tensors, which are named as their places in the tree.

    Raises:
      ValueError: if something in the tree is none of what `budgetjax.save` takes.
    """
    encoder = _Encoder(where, {})
    return encoder.encode("", tree), encoder.tensors


class _Encoder(NamedTuple):
    where: str
    tensors: dict[str, np.ndarray]

    def encode(self, at: str, value: Any) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, jax.Array | np.ndarray | np.generic):
            return self.array(at, value)
        if kind is list:
            return self.items(at, value)
        if kind is tuple:
            return {"tuple": self.items(at, value)}
        if kind is dict and all(type(key) in (bool, int, str) for key in value):
            parts = [[key, self.encode(f"{at}[{key!r}]", value[key])] for key in value]
            return {"dict": parts}
        if kind is Partial:
            args = self.encode(f"{at}.args", value.args)
            keywords = self.encode(f"{at}.keywords", value.keywords)
            return {**_function_node(value.func), "args": args, "keywords": keywords}
        if is_record(kind):
            known = names.name_of(value)
            node = {"own type": own_name(kind)} if known is None else {"type": known}
            fields = fields_of(kind)
            # Of a tuple not by attribute: a field may have the name of a method.
            named = isinstance(value, tuple)
            parts = value if named else (getattr(value, name) for name in fields)
            parts = zip(fields, parts, strict=True)
            return {**node, "fields": self.fields(at, parts)}
        if names.is_estimator(kind):
            learned = {key: part for key, part in vars(value).items() if _learned(key)}
            return {
                "estimator": kind.__name__,
                "parameters": self.fields(at, value.get_params(deep=False).items()),
                "learned": self.fields(at, learned.items()),
            }
        if callable(value) and not isinstance(value, type):
            return _function_node(value)
        raise ValueError(
            f"{self.where}: {shown(at)} must be made of arrays, numbers, text, tuples, "
            "lists, dicts with simple keys, named tuples and dataclasses, got "
            f"{own_name(kind)}"
        )

    def items(self, at: str, parts: Any) -> list[Any]:
        return [self.encode(f"{at}[{i}]", part) for i, part in enumerate(parts)]

    def fields(self, at: str, parts: Any) -> dict[str, Any]:
        return {name: self.encode(f"{at}.{name}", part) for name, part in parts}

    def array(self, at: str, value: Any) -> dict[str, Any]:
        """An array, a NumPy number, random keys, or an array of text or objects."""
        node: dict[str, Any] = {}
        donated = isinstance(value, jax.Array) and not isinstance(value, Tracer)
        if isinstance(value, Tracer) or (donated and value.is_deleted()):
            got = "an array that was donated" if donated else "a traced one"
            raise ValueError(
                f"{self.where}: {shown(at)} must have a value, got {got}; not to be "
                "called inside jit, vmap or grad"
            )
        if isinstance(value, jax.Array):
            kind = "jax"
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                kind, node["keys"] = "keys", str(jax.random.key_impl(value))
                value = jax.random.key_data(value)
            elif value.weak_type:
                node["weak"] = True
        else:
            kind = "number" if isinstance(value, np.generic) else "numpy"
        # An array of another class would lose what it has more, as a mask.
        plain = kind != "numpy" or type(value) is np.ndarray
        value = np.array(value, order="C")
        if plain and value.dtype.kind in "UO" and kind == "numpy":
            texts = self.items(at, value.reshape(-1).tolist())
            return {
                "objects": texts,
                "shape": list(value.shape),
                "dtype": "object" if value.dtype.kind == "O" else value.dtype.str[1:],
            }
        if not plain or value.dtype.name not in DTYPES:
            got = f"dtype {value.dtype}" if plain else own_name(type(value))
            raise ValueError(
                f"{self.where}: {shown(at)} must be an array of numbers, bools or "
                f"text, got {got}"
            )
        name = shown(at)
        self.tensors[name] = value.astype(value.dtype.newbyteorder("="), copy=False)
        return node | {"array": name, "dtype": value.dtype.name, "kind": kind}


def _function_node(function: Callable[..., Any]) -> dict[str, str]:
    for name, known in FUNCTIONS.items():
        if function is known:
            return {"function": name}
    return {"own function": own_name(function)}


def _learned(name: str) -> bool:
    """Whether this is the name of an attribute that an estimator has learned."""
    return not name.startswith("__") and (name.startswith("_") or name.endswith("_"))


def shown(at: str) -> str:
    """A place in a tree as a name."""
    return at.lstrip(".") or "model"


class Tensor(NamedTuple):
    """The bytes of an array, in C order, and its shape."""

    data: bytes | bytearray
    shape: tuple[int, ...]


class Within(NamedTuple):
    """What a model is compared with, of which only the state in it is known."""

    model: Any


class Decoder(NamedTuple):
    """What a tree is read from.

    Attributes:
      where: the caller's name and the file's, for messages.
      tensors: by name.
      written_by: the version of budgetjax that wrote it.
      functions: of the caller, by name, for places that `like` does not have.
    """

    where: str
    tensors: Mapping[str, Tensor]
    written_by: str
    functions: Mapping[str, Callable[..., Any]] = {}

    def decode(self, node: Any, like: Any = NOTHING, at: str = "") -> Any:
        """The tree of `encode`, with NumPy arrays and arrays of JAX where they were.

        Args:
          node: the JSON.
          like: a tree of the same structure, types and shapes, which gives the
            functions and types that are not known; or the state in a model that has
            one.
          at: the place of the node in the tree.

        Raises:
          ValueError: if the tree cannot be made, or is not as `like`.
        """
        match node:
            case {"type": _, "fields": {"model": _}} if not hasattr(like, "model"):
                like = like if like is NOTHING else Within(like)
        value = self.value(node, like, at)
        if like is not NOTHING:
            self.check_like(at, value, like)
        return value

    def value(self, node: Any, like: Any, at: str) -> Any:
        match node:
            case None | bool() | int() | float() | str():
                return node
            case list():
                return self.items(node, like, at)
            case {"tuple": list(parts)}:
                return tuple(self.items(parts, like, at))
            case {"dict": list(parts)}:
                return {
                    key: self.decode(part, _item(like, key), f"{at}[{key!r}]")
                    for key, part in parts
                }
            case {"array": str(), "dtype": str(), "kind": str(kind)}:
                return self.placed(self.array(node, at), kind, node, at)
            case {"objects": list(texts), "shape": list(shape), "dtype": str(dtype)}:
                if dtype != "object" and not dtype.startswith("U"):
                    raise self.error(at, "be text", f"dtype {dtype!r}")
                array = np.empty(len(texts), dtype)
                for i, text in enumerate(texts):
                    array[i] = self.decode(text, NOTHING, f"{at}[{i}]")
                return array.reshape(shape)
            case {"type": str(), "fields": dict(parts)} | {
                "own type": str(),
                "fields": dict(parts),
            }:
                kind = self.record_type(node, like, at)
                values = [self.part(at, name, parts[name], like) for name in parts]
                if issubclass(kind, Parameters):
                    return kind.unchecked(zip(parts, values, strict=True))
                return kind(*values)
            case {"estimator": str(), "parameters": dict(), "learned": dict()}:
                return self.estimator(node, like, at)
            case {"args": args, "keywords": keywords}:
                self.check_type(at, Partial, like)
                function = self.function(node, getattr(like, "func", NOTHING), at)
                args = self.part(at, "args", args, like)
                return Partial(
                    function, *args, **self.part(at, "keywords", keywords, like)
                )
            case {"function": _} | {"own function": _}:
                return self.function(node, like, at)
        got = f"{str(node)[:80]}: {self.age}"
        raise self.error(at, "be of a kind that this budgetjax knows", got)

    def part(self, at: str, name: str, node: Any, like: Any) -> Any:
        return self.decode(node, getattr(like, name, NOTHING), f"{at}.{name}")

    def items(self, parts: list[Any], like: Any, at: str) -> list[Any]:
        return [
            self.decode(part, _item(like, i), f"{at}[{i}]")
            for i, part in enumerate(parts)
        ]

    @property
    def age(self) -> str:
        return f"the file was written by budgetjax {self.written_by}"

    def error(self, at: str, wanted: str, got: str) -> ValueError:
        return ValueError(f"{self.where}: {shown(at)} must {wanted}, got {got}")

    def array(self, node: dict[str, Any], at: str) -> np.ndarray:
        """A tensor, as an array of its own."""
        name, dtype = node["array"], node["dtype"]
        if dtype not in DTYPES or name not in self.tensors:
            got = f"{name!r} with dtype {dtype!r}"
            raise self.error(at, "be a tensor of the file", got)
        data, shape = self.tensors[name]
        return np.frombuffer(data, jnp.dtype(dtype)).reshape(shape).copy()

    def placed(
        self, array: np.ndarray, kind: str, node: dict[str, Any], at: str
    ) -> jax.Array | np.ndarray | np.generic:
        """An array as what it was."""
        if kind in ("numpy", "number"):
            return array if kind == "numpy" else array[()]
        if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
            needs = "jax.config.update('jax_enable_x64', True)"
            raise self.error(
                at,
                f"be loaded as {array.dtype}, which needs {needs}",
                "x64 switched off",
            )
        if kind == "keys":
            return jax.random.wrap_key_data(jnp.array(array), impl=node.get("keys"))
        if node.get("weak") and array.ndim == 0:
            # A type that yields to others, as that of a Python number in a program.
            weak = jnp.asarray(array.item())
            if weak.dtype == array.dtype:
                return weak
        return jnp.array(array)

    def record_type(self, node: dict[str, Any], like: Any, at: str) -> Any:
        """The class of a record."""
        fields, kind = tuple(node["fields"]), None
        name = node["type"] if "type" in node else node["own type"]
        if "type" in node:
            kind = names.type_of(name)
        elif is_record(type(like)) and own_name(type(like)) == name:
            kind = type(like)
        if kind is None:
            raise self.error(
                at,
                "be of a type of budgetjax or optax",
                f"{name!r}; for one of your own give like=, a model made by the same "
                "init",
            )
        self.check_type(at, kind, like, name)
        if fields != fields_of(kind):
            raise self.error(
                f"{shown(at)}, a {name},",
                f"have the fields {', '.join(fields_of(kind))}",
                f"{', '.join(fields)}: {self.age}",
            )
        return kind

    def function(self, node: Any, like: Any, at: str) -> Callable[..., Any]:
        """A known function, or the one that `like` has there."""
        name = node.get("function")
        if isinstance(name, str) and name in FUNCTIONS:
            if like is not NOTHING and like is not FUNCTIONS[name]:
                wanted = f"be as in like, the function {own_name(like)}"
                raise self.error(at, wanted, name)
            return FUNCTIONS[name]
        named = node.get("own function", name)
        like = self.functions.get(named, NOTHING) if like is NOTHING else like
        if like is NOTHING:
            raise self.error(
                at,
                "be a function of budgetjax.losses or optax.losses, or the default "
                "optimiser",
                f"{named!r}; for one of your own give like=, a model made by the same "
                "init",
            )
        if not callable(like) or own_name(like) != named:
            wanted = f"be as in like, the function {own_name(like)}"
            raise self.error(at, wanted, repr(named))
        return like

    def estimator(self, node: dict[str, Any], like: Any, at: str) -> Any:
        """An estimator, made of its parameters, with what it has learned."""
        kind = names.estimator(node["estimator"])
        if kind is None:
            wanted = f"be an estimator of {names.ESTIMATORS}"
            raise self.error(at, wanted, repr(node["estimator"]))
        self.check_type(at, kind, like)
        given = {} if like is NOTHING else like.get_params(deep=False)
        learned = {} if like is NOTHING else vars(like)
        parameters = {
            key: self.decode(part, given.get(key, NOTHING), f"{at}.{key}")
            for key, part in node["parameters"].items()
        }
        estimator = kind(**parameters)
        # What is like it and not fitted has its functions among the parameters only.
        own = jax.tree.leaves(list(given.values()), is_leaf=callable)
        named = {own_name(each): each for each in own if callable(each)}
        decoder = self._replace(functions=named)
        for key, part in node["learned"].items():
            if _learned(key):
                value = decoder.decode(part, learned.get(key, NOTHING), f"{at}.{key}")
                vars(estimator)[key] = value
        return estimator

    def check_type(self, at: str, kind: type, like: Any, name: str = "") -> None:
        """That a part is of the type that `like` has there."""
        if like is not NOTHING and type(like) not in (kind, Within):
            wanted = names.name_of(like) or own_name(type(like))
            raise self.error(at, f"be as in like, {wanted}", name or own_name(kind))

    def check_like(self, at: str, value: Any, like: Any) -> None:
        """That type, size, shape and dtype of a part are those of `like`.

        NumPy arrays may be of any shape: they are records, whose length is free.
        """
        self.check_type(at, type(value), like)
        compared: list[tuple[str, Any, Any]] = []
        if isinstance(value, jax.Array):
            compared = [
                ("shape", like.shape, value.shape),
                ("dtype", like.dtype, value.dtype),
            ]
        elif isinstance(value, np.ndarray):
            compared = [("kind of dtype", like.dtype.kind, value.dtype.kind)]
        elif isinstance(value, dict):
            compared = [("keys", list(like), list(value))]
        elif type(value) in (list, tuple):
            compared = [("length", len(like), len(value))]
        elif isinstance(value, bool | int | Name | Static):
            compared = [("value", like, value)]
        for what, wanted, got in compared:
            if wanted != got:
                raise self.error(at, f"be as in like, {what} {wanted}", str(got))


def _item(like: Any, key: Any) -> Any:
    """This part of a list, a tuple or a dict, if it has it."""
    try:
        return like[key]
    except (TypeError, IndexError, KeyError):
        return NOTHING
