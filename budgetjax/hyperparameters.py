"""What a user passes to a constructor: checked numbers and static flags.

Only Python and NumPy numbers can be checked. A traced value (inside `jit` or `vmap`)
has no value yet, so these functions let it through.
"""

import dataclasses
import numbers
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Flag:
    """A yes or no that belongs to the structure of a pytree.

    It is no leaf, so `jit` takes it as static and `vmap` leaves it alone.
    """

    on: bool

    def __bool__(self) -> bool:
        return self.on


def concrete(value: Any) -> np.ndarray | None:
    """`value` as a NumPy array, or None where it has no value yet."""
    if isinstance(value, Tracer):
        return None
    return np.asarray(value)


def finite(where: str, name: str, value: ArrayLike) -> ArrayLike:
    """`value` if it is a finite real number, else a `ValueError`."""
    return _checked(where, name, value, "a finite number", lambda number: True)


def positive(where: str, name: str, value: ArrayLike) -> ArrayLike:
    """`value` if it is a positive number, else a `ValueError`."""
    return _checked(where, name, value, "positive", lambda number: number > 0)


def non_negative(where: str, name: str, value: ArrayLike) -> ArrayLike:
    """`value` if it is a number of at least 0, else a `ValueError`."""
    return _checked(where, name, value, "at least 0", lambda number: number >= 0)


def _checked(
    where: str,
    name: str,
    value: ArrayLike,
    expected: str,
    test: Callable[[np.ndarray], Any],
) -> ArrayLike:
    array = concrete(value)
    if array is None:
        return value
    real = jnp.issubdtype(array.dtype, jnp.floating) or jnp.issubdtype(
        array.dtype, jnp.integer
    )
    if not real or not np.all(np.isfinite(array) & test(array)):
        raise ValueError(f"{where}: {name} must be {expected}, got {value!r}")
    return value


def size(where: str, name: str, value: Any, *, at_least: int = 1) -> int:
    """`value` as a Python integer of at least `at_least`, else a `ValueError`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise ValueError(f"{where}: {name} must be an integer, got {value!r}")
    if value < at_least:
        raise ValueError(f"{where}: {name} must be at least {at_least}, got {value}")
    return int(value)


def float_dtype(where: str, dtype: DTypeLike) -> np.dtype:
    """`dtype` if this JAX configuration has it and it is a float."""
    wanted = np.dtype(dtype)
    if not jnp.issubdtype(wanted, jnp.floating):
        raise ValueError(f"{where}: dtype must be a float type, got {wanted}")
    if wanted == np.float64 and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            f"{where}: dtype float64 needs jax.config.update('jax_enable_x64', True), "
            "got x64 switched off"
        )
    return wanted


def as_leaf(value: ArrayLike, dtype: DTypeLike) -> jax.Array:
    """`value` as a strongly typed scalar leaf, so that new values never retrace."""
    return jnp.asarray(value, dtype)
