"""Trees of JSON and tensors, as `budgetjax.saving.encoding` makes them, read again.

A file names types and functions. They are looked up among the named tuples of budgetjax
and optax that are loaded, and in a table of functions, and nowhere else: nothing that a
file names is imported, and nothing of it is run.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from budgetjax.checks import Count, Flag, Name
from budgetjax.saving.encoding import (
    DTYPES,
    ESTIMATORS,
    FUNCTIONS,
    is_learned,
    is_named_tuple,
    name_of,
    qualified,
    shown,
)

PACKAGES = ("budgetjax", "optax")
# Parts of this package that `import budgetjax` may leave out.
ON_DEMAND = ("budgetjax.stream", ESTIMATORS)
# In the place of a tree to compare with, where there is none.
NOTHING: Any = object()


class Tensor(NamedTuple):
    """The bytes of an array, in C order, and its shape."""

    data: bytes | bytearray
    shape: tuple[int, ...]


class Source(NamedTuple):
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


class Within(NamedTuple):
    """What a model is compared with, of which only the state in it is known."""

    model: Any


def decode(source: Source, node: Any, like: Any = NOTHING) -> Any:
    """The tree of `encode`, with NumPy arrays and arrays of JAX where they were.

    Args:
      source: with the tensors.
      node: the JSON.
      like: a tree of the same structure, types and shapes, which gives the functions
        and types that are not known; or the state in a model that has one.

    Raises:
      ValueError: if the tree cannot be made, or is not as `like`.
    """
    return _decode(source, "", node, like)


def _decode(source: Source, at: str, node: Any, like: Any) -> Any:
    match node:
        case {"type": str(name), "fields": {"model": _}} if like is not NOTHING:
            like = like if name_of(type(like)) == name else Within(like)
    value = _value(source, at, node, like)
    if like is not NOTHING:
        _check_like(source, at, value, like)
    return value


def _value(source: Source, at: str, node: Any, like: Any) -> Any:
    # Not by `def`: under the checker of types it would be made ready at every call.
    inner = functools.partial(_decode_part, source, at)
    match node:
        case None | bool() | int() | float() | str():
            return node
        case list():
            return [
                inner(f"[{i}]", part, _item(like, i)) for i, part in enumerate(node)
            ]
        case {"tuple": list(parts)}:
            return tuple(
                inner(f"[{i}]", part, _item(like, i)) for i, part in enumerate(parts)
            )
        case {"dict": list(parts)}:
            return {
                key: inner(f"[{key!r}]", part, _item(like, key)) for key, part in parts
            }
        case {"float": str(text)}:
            return float(text)
        case {"flag": bool(on)}:
            return Flag(on)
        case {"count": int(number)}:
            return Count(number)
        case {"name": str(name)}:
            return Name(name)
        case {"array": str(name), "dtype": str(dtype), "kind": str(kind)}:
            array = _array(source, at, name, dtype)
            return _placed(source, at, array, kind, node)
        case {"objects": list(texts), "shape": list(shape), "kind": str(kind)}:
            width = node.get("width")
            array = np.empty(len(texts), object if width is None else f"<U{width:d}")
            for i, text in enumerate(texts):
                array[i] = inner(f"[{i}]", text, NOTHING)
            return array.reshape(shape)[() if kind == "number" else ...]
        case {"type": str(name), "fields": dict(parts)}:
            kind = _type(source, at, name, like)
            _check_type(source, at, kind, like)
            if tuple(parts) != kind._fields:
                raise ValueError(
                    f"{source.where}: {shown(at)}, a {name}, must have the fields "
                    f"{', '.join(kind._fields)}, got {', '.join(parts)}: the file was "
                    f"written by budgetjax {source.written_by}"
                )
            return kind._make(
                inner(f".{name}", part, getattr(like, name, NOTHING))
                for name, part in parts.items()
            )
        case {"estimator": str(name), "parameters": dict(), "learned": dict()}:
            return _estimator(source, at, name, node, like)
        case {"args": args, "keywords": keywords}:
            _check_type(source, at, Partial, like)
            function = _function(source, at, node, getattr(like, "func", NOTHING))
            args = inner(".args", args, getattr(like, "args", NOTHING))
            keywords = inner(".keywords", keywords, getattr(like, "keywords", NOTHING))
            return Partial(function, *args, **keywords)
        case {"function": _} | {"own function": _}:
            return _function(source, at, node, like)
    raise ValueError(
        f"{source.where}: {shown(at)} must be of a kind that this budgetjax knows, "
        f"got {str(node)[:80]}: the file was written by budgetjax {source.written_by}"
    )


def _decode_part(source: Source, at: str, part: str, node: Any, like: Any) -> Any:
    return _decode(source, at + part, node, like)


def _item(like: Any, key: Any) -> Any:
    """This part of a list, a tuple or a dict, if it has it."""
    try:
        return like[key]
    except (TypeError, IndexError, KeyError):
        return NOTHING


def _array(source: Source, at: str, name: str, dtype: str) -> np.ndarray:
    """A tensor, as an array of its own."""
    if dtype not in DTYPES or name not in source.tensors:
        raise ValueError(
            f"{source.where}: {shown(at)} must be a tensor of the file, got {name!r} "
            f"with dtype {dtype!r}"
        )
    data, shape = source.tensors[name]
    return np.frombuffer(data, jnp.dtype(dtype)).reshape(shape).copy()


def _placed(
    source: Source, at: str, array: np.ndarray, kind: str, node: dict[str, Any]
) -> jax.Array | np.ndarray | np.generic:
    """An array as what it was."""
    if kind == "numpy":
        return array
    if kind == "number":
        return array[()]
    if jax.dtypes.canonicalize_dtype(array.dtype) != array.dtype:
        raise ValueError(
            f"{source.where}: {shown(at)} must be loaded as {array.dtype}, which "
            "needs jax.config.update('jax_enable_x64', True), got x64 switched off"
        )
    if kind == "keys":
        return jax.random.wrap_key_data(jnp.array(array), impl=node.get("keys"))
    if node.get("weak") and array.ndim == 0:
        # A type that yields to others, as that of a Python number in a program.
        weak = jnp.asarray(array.item())
        if weak.dtype == array.dtype:
            return weak
    return jnp.array(array)


def _type(source: Source, at: str, name: str, like: Any) -> Any:
    """The named tuple of this name."""
    if is_named_tuple(type(like)) and name_of(type(like)) == name:
        return type(like)
    module, _, short = name.rpartition(".")
    for part in ON_DEMAND:
        if f"{module}.".startswith(f"{part}."):
            importlib.import_module(part)
    kind: Any = None
    if module.partition(".")[0] in PACKAGES and module in sys.modules:
        kind = vars(sys.modules[module]).get(short)
    # A name of a class elsewhere, that its module has imported, is none.
    if not is_named_tuple(kind) or name_of(kind) != name:
        raise ValueError(
            f"{source.where}: {shown(at)} must be a named tuple of budgetjax or "
            f"optax, got {name!r}; for one of your own give like=, a model made by the "
            "same init"
        )
    return kind


def _function(source: Source, at: str, node: Any, like: Any) -> Callable[..., Any]:
    """A known function, or the one that `like` has there."""
    name = node.get("function")
    if isinstance(name, str) and name in FUNCTIONS:
        if like is not NOTHING and like is not FUNCTIONS[name]:
            raise ValueError(
                f"{source.where}: {shown(at)} must be as in like, the function "
                f"{qualified(like)}, got {name}"
            )
        return FUNCTIONS[name]
    named = node.get("own function", name)
    like = source.functions.get(named, NOTHING) if like is NOTHING else like
    if like is NOTHING:
        raise ValueError(
            f"{source.where}: {shown(at)} must be a function of budgetjax.losses or "
            f"optax.losses, or the default optimiser, got {named!r}; for one of your "
            "own give like=, a model made by the same init"
        )
    if not callable(like) or qualified(like) != named:
        raise ValueError(
            f"{source.where}: {shown(at)} must be as in like, the function "
            f"{qualified(like)}, got {named!r}"
        )
    return like


def _estimator(
    source: Source, at: str, name: str, node: dict[str, Any], like: Any
) -> Any:
    """An estimator, made of its parameters, with what it has learned."""
    module = importlib.import_module(ESTIMATORS)
    if name not in module.__all__:
        raise ValueError(
            f"{source.where}: {shown(at)} must be an estimator of {ESTIMATORS}, got "
            f"{name!r}"
        )
    kind = getattr(module, name)
    _check_type(source, at, kind, like)
    parameters = {} if like is NOTHING else like.get_params(deep=False)
    learned = {} if like is NOTHING else vars(like)
    estimator = kind(
        **{
            key: _decode(source, f"{at}.{key}", part, parameters.get(key, NOTHING))
            for key, part in node["parameters"].items()
        }
    )
    # What is like it and not fitted has its functions among the parameters only.
    own = jax.tree.leaves(list(parameters.values()), is_leaf=callable)
    named = {qualified(each): each for each in own if callable(each)}
    source = source._replace(functions=named)
    for key, part in node["learned"].items():
        if is_learned(key):
            value = _decode(source, f"{at}.{key}", part, learned.get(key, NOTHING))
            vars(estimator)[key] = value
    return estimator


def _check_type(source: Source, at: str, kind: type, like: Any) -> None:
    """That a part is of the type that `like` has there."""
    if like is not NOTHING and type(like) not in (kind, Within):
        raise ValueError(
            f"{source.where}: {shown(at)} must be as in like, {name_of(type(like))}, "
            f"got {name_of(kind)}"
        )


def _check_like(source: Source, at: str, value: Any, like: Any) -> None:
    """That type, size, shape and dtype of a part are those of `like`.

    NumPy arrays may be of any shape: they are records, whose length is free.
    """
    _check_type(source, at, type(value), like)
    require = functools.partial(_require, source, at)
    if isinstance(value, jax.Array):
        require("shape", like.shape, value.shape)
        require("dtype", like.dtype, value.dtype)
    elif isinstance(value, np.ndarray):
        require("kind of dtype", like.dtype.kind, value.dtype.kind)
    elif isinstance(value, dict):
        require("keys", list(like), list(value))
    elif type(value) in (list, tuple):
        require("length", len(like), len(value))
    elif isinstance(value, Flag | Count | Name):
        require("value", like, value)


def _require(source: Source, at: str, what: str, wanted: Any, got: Any) -> None:
    if wanted != got:
        raise ValueError(
            f"{source.where}: {shown(at)} must be as in like, {what} {wanted}, got "
            f"{got}"
        )
