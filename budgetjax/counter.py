"""Counts beyond 32 bits, in two words, since JAX disables int64 by default."""

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import _pytree

# The unit of the higher word. A settled lower word has room for another unit.
BITS = 30
UNIT = 2**BITS


def _number(value: Any) -> Any:
    return value.number if isinstance(value, Counter) else value


def _operator(function: Callable[[Any, Any], Any]) -> Any:
    def apply(self: "Counter", other: Any) -> Any:
        return function(self.number, _number(other))

    return apply


class Counter(NamedTuple):
    """An integer of at least 0, `high * 2^30 + low`, that acts as a number.

    `int`, `float`, NumPy, arithmetic and comparisons see its value: a NumPy int64, or a
    float32 if it is traced.

    Attributes:
      high: the higher word.
      low: the lower word, below 2^30 in a settled counter and below 2^31 in any.
    """

    high: Integer[Array, "*models"]
    low: Integer[Array, "*models"]

    @classmethod
    def of(cls, value: int) -> "Counter":
        """The counter of a Python integer."""
        return cls(*(jax.device_put(np.int32(word)) for word in divmod(value, UNIT)))

    @property
    def number(self) -> Any:
        """The value: a NumPy int64, or a float32 if it is traced."""
        if any(isinstance(word, Tracer) for word in self):
            return self.real(jnp.float32)
        high, low = (np.asarray(word, np.int64) for word in (self.high, self.low))
        return high * UNIT + low

    def real(self, dtype) -> Float[Array, "*models"]:
        """The value as a float, computed in at least 32 bits."""
        wide = np.promote_types(dtype, jnp.float32)
        high, low = self.high.astype(wide), self.low.astype(wide)
        return (high * UNIT + low).astype(dtype)

    def after(self, more: Integer[Array, "*n"] | int) -> "Counter":
        """The counter plus `more`, which must fit its lower word; not settled."""
        return self._replace(low=self.low + more)

    def since(self, before: "Counter") -> Integer[Array, "*models"]:
        """The difference from an earlier counter, below 2^31."""
        return (self.high - before.high) * UNIT + (self.low - before.low)

    def settled(self) -> "Counter":
        """The same number with a lower word below 2^30."""
        return Counter(self.high + (self.low >> BITS), self.low & (UNIT - 1))

    def reaches(self, other: "Counter") -> Bool[Array, "*models"]:
        """Whether it is at least another counter, which must be settled."""
        mine = self.settled()
        equal = mine.high == other.high
        return (mine.high > other.high) | (equal & (mine.low >= other.low))

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.asarray(self.number, dtype)

    def __int__(self) -> int:
        return int(np.asarray(self))

    def __float__(self) -> float:
        return float(np.asarray(self))

    def __repr__(self) -> str:
        return _pytree.text(self)

    def __str__(self) -> str:
        return _pytree.text(self)

    def __format__(self, spec: str) -> str:
        return format(self.number, spec)

    __eq__ = _operator(operator.eq)
    __ne__ = _operator(operator.ne)
    __lt__ = _operator(operator.lt)
    __le__ = _operator(operator.le)
    __gt__ = _operator(operator.gt)
    __ge__ = _operator(operator.ge)
    __add__ = _operator(operator.add)
    __sub__ = _operator(operator.sub)
    __mul__ = _operator(operator.mul)
    __truediv__ = _operator(operator.truediv)
