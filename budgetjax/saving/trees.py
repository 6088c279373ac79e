"""Trees as JSON and tensors, the content of a model file, without code.

The structure of a tree is JSON, and its arrays are tensors named by their places. The
JSON names types and functions, which are looked up only in `budgetjax.saving.names`:
nothing that a file names is imported, and nothing in it is executed.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial

from budgetjax import _half_precision
from budgetjax._errors import ArgumentError
from budgetjax._record import Function
from budgetjax.online.changes import bind_fields
from budgetjax.online.state import State
from budgetjax.saving import names
from budgetjax.saving.names import FUNCTIONS, fields_of, has_fields, own_name

# The dtypes that both JAX and safetensors have.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
# Types and functions that are not registered, by their places in a tree.
Own = dict[str, Callable[..., Any]]
# What JSON can hold.
Json = list | dict | str | float | int | bool | None
SCALARS = (type(None), bool, int, float, str)


class PartError(ArgumentError):
    """A part of a tree that a file cannot hold, or that is not known here."""


class OwnPartError(PartError):
    """A part of the caller's own, which only `like` can give."""


def encode(tree: Any, own: Own | None = None) -> tuple[Json, dict[str, np.ndarray]]:
    """A tree as JSON and tensors; `own` collects unregistered objects by place."""
    encoder = _Encoder({}, {} if own is None else own)
    return encoder.encode("", tree), encoder.tensors


class _Encoder(NamedTuple):
    tensors: dict[str, np.ndarray]
    own: Own

    def encode(self, at: str, value: Any) -> Json:
        kind = type(value)
        if kind in SCALARS:
            return value
        if kind is np.ndarray or isinstance(value, jax.Array | np.generic):
            return self.array(at, value)
        if kind is list:
            return self.items(at, value)
        if kind is tuple:
            return {"tuple": self.items(at, value)}
        if kind is dict and all(type(key) is str for key in value):
            return {"dict": {k: self.encode(f"{at}[{k!r}]", value[k]) for k in value}}
        if issubclass(kind, Partial):
            return {
                "partial": self.function(at, value.func),
                "args": self.items(f"{at}.args", value.args),
                "keywords": self.fields(f"{at}.keywords", value.keywords),
                # The functions of states are of a class of this package.
                **({} if kind is Function else {"kind": "Partial"}),
            }
        if has_fields(kind):
            fields = self.fields(at, names.parts_of(value))
            if (name := names.name_of(value)) is not None:
                return {"type": name, "fields": fields}
            self.own[at] = kind
            return {"own type": own_name(kind), "fields": fields}
        if names.is_estimator(kind):
            learned = {k: part for k, part in vars(value).items() if _is_learned(k)}
            return {
                "estimator": kind.__name__,
                "parameters": self.fields(at, value.get_params(deep=False)),
                "learned": self.fields(at, learned),
            }
        if callable(value) and not isinstance(value, type):
            return self.function(at, value)
        error = PartError(
            format_path(at),
            "be made of arrays, numbers, text, tuples, lists, dicts with text as keys, "
            "named tuples and dataclasses",
            own_name(kind),
        )
        if kind.__module__.startswith("sklearn."):
            error.advised(
                "save the estimator of budgetjax in it, or all by joblib.dump"
            )
        raise error

    def items(self, at: str, parts: Iterable[object]) -> list[Json]:
        return [self.encode(f"{at}[{i}]", part) for i, part in enumerate(parts)]

    def fields(self, at: str, parts: dict[str, Any]) -> dict[str, Json]:
        return {name: self.encode(f"{at}.{name}", part) for name, part in parts.items()}

    def function(self, at: str, function: Callable[..., Any]) -> dict[str, Json]:
        for name, known in FUNCTIONS.items():
            if function is known:
                return {"function": name}
        self.own[at] = function
        return {"own function": own_name(function)}

    def array(self, at: str, value: Any) -> Json:
        """An array, a NumPy number, random keys, or an array of text or objects."""
        kind, more = "NumPy array", {}
        if isinstance(value, np.generic):
            kind = "NumPy number"
        elif isinstance(value, jax.Array):
            kind = "JAX array"
            if isinstance(value, Tracer) or value.is_deleted():
                got = "an array that is traced by JAX, or was donated"
                raise PartError(format_path(at), "have a value", got)
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                kind, more = "random keys", {"impl": str(jax.random.key_impl(value))}
                value = jax.random.key_data(value)
        array = np.asarray(value, order="C")
        array = array.astype(array.dtype.newbyteorder("="), copy=False)
        shape = list(array.shape)
        if array.dtype.kind in "UO":
            texts = [
                one.item() if isinstance(one, np.generic) else one
                for one in array.reshape(-1).tolist()
            ]
            if kind == "NumPy number":
                return texts[0]
            if all(type(text) in SCALARS for text in texts):
                dtype = array.dtype.str.lstrip("<>|")
                return {"text": texts, "dtype": dtype, "shape": shape}
        if array.dtype.name not in DTYPES:
            wanted = "be an array of numbers, bools or text"
            raise PartError(format_path(at), wanted, f"dtype {array.dtype}")
        node = {"array": kind, "dtype": array.dtype.name, "shape": shape, **more}
        if _half_precision.holds(array):
            array, node["exponent"] = _half_precision.split(array)
        self.tensors[format_path(at)] = array
        return node


def _is_learned(name: str) -> bool:
    """Whether this is the name of a fitted attribute of an estimator."""
    return not name.startswith("__") and (name.startswith("_") or name.endswith("_"))


def format_path(at: str) -> str:
    """The name of a place in a tree, and of the tensor there."""
    return at.lstrip(".") or "model"


class Decoder(NamedTuple):
    """Decodes a tree, from the bytes of tensors by name.

    `written_by` is the version of budgetjax that wrote them, and `own` has the
    unregistered functions and types by place.
    """

    tensors: Mapping[str, bytes | bytearray]
    written_by: str
    own: Own

    def decode(self, node: Json, at: str = "") -> Any:
        """The tree of `encode`; for another node, any exception may be raised."""
        match node:
            case None | bool() | int() | float() | str():
                return node
            case list():
                return self.items(node, at)
            case {"tuple": list(parts)}:
                return tuple(self.items(parts, at))
            case {"dict": dict(parts)}:
                return {k: self.decode(v, f"{at}[{k!r}]") for k, v in parts.items()}
            case {"array": str(), "dtype": str(), "shape": list()}:
                return self.array(node, at)
            case {"text": list(texts), "dtype": str(dtype), "shape": list(shape)}:
                return np.array(texts, dtype).reshape(shape)
            case {"fields": dict(parts)}:
                return self.record(self.type(node, at), parts, at)
            case {"estimator": str(name), "parameters": dict(), "learned": dict()}:
                kind = names.estimator_of(name)
                if kind is None:
                    wanted = f"be an estimator of {names.ESTIMATORS}"
                    raise PartError(format_path(at), wanted, repr(name))
                parameters = self.fields(node["parameters"], at)
                estimator = kind(**parameters)
                learned = self.fields(node["learned"], at).items()
                vars(estimator).update({k: v for k, v in learned if _is_learned(k)})
                return estimator
            case {"partial": dict(function), "args": list(args), "keywords": dict()}:
                kind = Partial if node.get("kind") == "Partial" else Function
                return kind(
                    self.decode(function, at),
                    *self.items(args, f"{at}.args"),
                    **self.fields(node["keywords"], f"{at}.keywords"),
                )
            case {"function": str(name)} | {"own function": str(name)}:
                if "function" in node and name in FUNCTIONS:
                    return FUNCTIONS[name]
                known = "budgetjax.losses or optax.losses, or the default optimiser"
                return self.given(at, name, f"be a function of {known}")
        wanted = "be of a kind that this budgetjax knows"
        raise PartError(format_path(at), wanted, f"{str(node)[:80]}: {self.age}")

    def items(self, parts: list[Json], at: str) -> list[Any]:
        return [self.decode(part, f"{at}[{i}]") for i, part in enumerate(parts)]

    def fields(self, parts: dict[str, Json], at: str) -> dict[str, Any]:
        return {name: self.decode(part, f"{at}.{name}") for name, part in parts.items()}

    @property
    def age(self) -> str:
        return f"the file was written by budgetjax {self.written_by}"

    def array(self, node: dict[str, Any], at: str) -> Any:
        """A tensor, as its original kind of array."""
        kind, dtype = node["array"], jnp.dtype(node["dtype"])
        # A copy, which is writable and does not hold the whole file.
        data, exponent = self.tensors[format_path(at)], node.get("exponent")
        if exponent is None:
            array = np.frombuffer(data, dtype).copy()
        else:
            half = np.frombuffer(data, np.float16)
            array = _half_precision.join(half, exponent, dtype)
        array = array.reshape(node["shape"])
        if kind.startswith("NumPy"):
            return array if kind == "NumPy array" else array[()]
        if jax.dtypes.canonicalize_dtype(dtype) != dtype:
            needs = "jax.config.update('jax_enable_x64', True)"
            wanted = f"be loaded as {dtype}, which needs {needs}"
            raise PartError(format_path(at), wanted, "x64 switched off")
        if kind == "random keys":
            return jax.random.wrap_key_data(jnp.array(array), impl=node["impl"])
        return jnp.array(array)

    def record(self, kind: Any, parts: dict[str, Json], at: str) -> Any:
        """A record of this class, with defaults of the fields that the file lacks."""
        record = names.build_record(kind, self.fields(parts, at))
        if not isinstance(record, State):
            return record
        match parts["learner"]:
            case {"fields": dict(found)}:
                every = fields_of(type(record.learner))
                if lacking := [name for name in every if name not in found]:
                    return bind_fields(record, lacking)
        return record

    def type(self, node: dict[str, Any], at: str) -> Any:
        """The class of a record."""
        name = node["type"] if "type" in node else node["own type"]
        kind = names.type_of(name) if "type" in node else None
        if kind is None:
            kind = self.given(at, name, "be of a type of budgetjax or optax")
        found, wanted = node["fields"].keys(), fields_of(kind)
        if not set(wanted) - names.defaults_of(kind).keys() <= found <= set(wanted):
            part, fields = f"{format_path(at)}, a {name},", ", ".join(wanted)
            got = f"{', '.join(found)}: {self.age}"
            raise PartError(part, f"have the fields {fields}", got)
        return kind

    def given(self, at: str, name: str, wanted: str) -> Any:
        """The caller's function or type of this name, if possible at this place."""
        places = [place for place, one in self.own.items() if own_name(one) == name]
        if not places:
            advice = (
                "for one of your own give like=, a model made by the same init, or "
            )
            advice += "apply budgetjax.register before it is saved"
            raise OwnPartError(format_path(at), wanted, repr(name)).advised(advice)
        return self.own[max(places, key=lambda place: (at.endswith(place), len(place)))]
