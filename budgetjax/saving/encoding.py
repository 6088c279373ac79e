"""Trees as JSON and tensors: what a model file holds, and no code.

A tree is a JSON value for its structure, and named NumPy arrays for its leaves. Types
and functions are names in the JSON, which `budgetjax.saving.decoding` looks up.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer
from jax.tree_util import Partial

from budgetjax import losses
from budgetjax.checks import Count, Flag, Name
from budgetjax.online import features

# Of tensors; all of them are known to JAX.
DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "bfloat16", "float32", "float64"),
)
ESTIMATORS = "budgetjax.estimators"


def _functions() -> dict[str, Callable[..., Any]]:
    """The functions that a file may name; all others come from `like`."""
    own = (losses.hinge, losses.logistic, losses.absolute)
    private = (losses._pinball, losses._outside_tube)
    return {
        **{f"budgetjax.losses.{loss.__name__}": loss for loss in own + private},
        "budgetjax.online.features.OPTIMIZER.update": features.OPTIMIZER.update,
        **{
            f"optax.losses.{name}": loss
            for name, loss in vars(optax.losses).items()
            if not name.startswith("_") and hasattr(loss, "__code__")
        },
    }


FUNCTIONS = _functions()


def encode(where: str, tree: Any) -> tuple[Any, dict[str, np.ndarray]]:
    """A tree as JSON and tensors, which are named as their places in the tree.

    Raises:
      ValueError: if something in the tree is none of what `budgetjax.save` takes.
    """
    tensors: dict[str, np.ndarray] = {}
    return _encode(where, "", tree, tensors), tensors


def _encode(where: str, at: str, value: Any, tensors: dict[str, np.ndarray]) -> Any:
    # Neither is a function by `def`: under the checker of types, each would be made
    # ready for it again at every call.
    inner = functools.partial(_encode_part, where, at, tensors)
    fields = functools.partial(_encode_fields, where, at, tensors)
    kind = type(value)
    if value is None or kind in (bool, int, str):
        return value
    if kind is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, jax.Array | np.ndarray | np.generic):
        return _encode_array(where, at, value, tensors)
    if kind is list:
        return [inner(f"[{i}]", part) for i, part in enumerate(value)]
    if kind is tuple:
        return {"tuple": [inner(f"[{i}]", part) for i, part in enumerate(value)]}
    if kind is dict and all(
        key is None or type(key) in (bool, int, str) for key in value
    ):
        return {"dict": [[key, inner(f"[{key!r}]", value[key])] for key in value]}
    if kind is Flag:
        return {"flag": value.on}
    if kind is Count:
        return {"count": value.value}
    if kind is Name:
        return {"name": value.value}
    if kind is Partial:
        return {
            **_encode_function(value.func),
            "args": inner(".args", value.args),
            "keywords": inner(".keywords", value.keywords),
        }
    if is_named_tuple(kind):
        # Not by attribute: a field may have the name of a method.
        parts = dict(zip(value._fields, tuple(value), strict=True))
        return {"type": name_of(kind), "fields": fields(parts)}
    if kind.__module__.startswith(ESTIMATORS) and hasattr(value, "get_params"):
        parts = {name: part for name, part in vars(value).items() if is_learned(name)}
        return {
            "estimator": kind.__name__,
            "parameters": fields(value.get_params(deep=False)),
            "learned": fields(parts),
        }
    if callable(value) and not isinstance(value, type):
        return _encode_function(value)
    raise ValueError(
        f"{where}: {shown(at)} must be made of arrays, numbers, text, tuples, lists, "
        f"dicts with simple keys and named tuples, got {name_of(kind)}"
    )


def _encode_part(
    where: str, at: str, tensors: dict[str, np.ndarray], part: str, value: Any
) -> Any:
    return _encode(where, at + part, value, tensors)


def _encode_fields(
    where: str, at: str, tensors: dict[str, np.ndarray], parts: dict[str, Any]
) -> dict[str, Any]:
    return {
        name: _encode(where, f"{at}.{name}", part, tensors)
        for name, part in parts.items()
    }


def _encode_array(
    where: str, at: str, value: Any, tensors: dict[str, np.ndarray]
) -> dict[str, Any]:
    """An array, a NumPy number, random keys, or an array of text or objects."""
    node: dict[str, Any] = {}
    if isinstance(value, Tracer):
        raise ValueError(
            f"{where}: {shown(at)} must have a value, got a traced one; not to be "
            "called inside jit, vmap or grad"
        )
    if isinstance(value, jax.Array) and value.is_deleted():
        raise ValueError(
            f"{where}: {shown(at)} must have a value, got an array that was donated"
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
    if plain and value.dtype.kind in "UO":
        texts = [
            _encode(where, f"{at}[{i}]", text, tensors)
            for i, text in enumerate(value.reshape(-1).tolist())
        ]
        width = value.dtype.itemsize // 4 if value.dtype.kind == "U" else None
        shape = list(value.shape)
        return {"objects": texts, "shape": shape, "width": width, "kind": kind}
    if not plain or value.dtype.name not in DTYPES:
        raise ValueError(
            f"{where}: {shown(at)} must be an array of numbers, bools or text, got "
            f"{'dtype ' + str(value.dtype) if plain else name_of(type(value))}"
        )
    name = shown(at)
    tensors[name] = value.astype(value.dtype.newbyteorder("="), copy=False)
    return node | {"array": name, "dtype": value.dtype.name, "kind": kind}


def _encode_function(function: Callable[..., Any]) -> dict[str, str]:
    for name, known in FUNCTIONS.items():
        if function is known:
            return {"function": name}
    return {"own function": qualified(function)}


def qualified(function: Callable[..., Any]) -> str:
    """The name of a function, for a file and for messages."""
    return getattr(function, "__qualname__", type(function).__qualname__)


def is_learned(name: Any) -> bool:
    """Whether this is the name of an attribute that an estimator has learned."""
    text = isinstance(name, str) and not name.startswith("__")
    return text and (name.startswith("_") or name.endswith("_"))


def is_named_tuple(kind: Any) -> bool:
    """Whether this is a class of named tuples."""
    return (
        isinstance(kind, type)
        and issubclass(kind, tuple)
        and isinstance(getattr(kind, "_fields", None), tuple)
    )


def name_of(kind: type) -> str:
    """The name of a class, as a file has it."""
    return f"{kind.__module__}.{kind.__qualname__}"


def shown(at: str) -> str:
    """A place in a tree as a name."""
    return at.lstrip(".") or "model"
