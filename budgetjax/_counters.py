"""Counters beyond 32 bits, in two int32 words, since JAX disables int64 by default."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import _record

# The unit of the higher word. A normalized lower word has room for another unit.
BITS = 30
UNIT = 2**BITS


@_record.record
class Words(NamedTuple):
    """The integer `high * 2^30 + low`, or an array of some.

    They are two arrays, which join other scalars in the programs of accelerators.

    Attributes:
      high: the higher word.
      low: the lower word, below 2^30 in normalized words and below 2^31 in any.
    """

    high: Integer[Array, "..."]
    low: Integer[Array, "..."]


def of(value: int) -> Words:
    """The words of a Python integer."""
    return Words(*(jax.device_put(np.int32(word)) for word in divmod(value, UNIT)))


def number(words: Words) -> Any:
    """The value: a NumPy int64, or an integer of JAX if it is traced.

    A traced one is an int32, which ends at 2^31 - 1; with x64 it is an int64.
    """
    if not any(isinstance(word, Tracer) for word in words):
        high, low = (np.asarray(word, np.int64) for word in words)
        return high * UNIT + low
    kind, mine = jnp.result_type(int), normalized(words)
    # Beyond these words, an int32 is at its limits.
    high = mine.high if kind == jnp.int64 else jnp.clip(mine.high, -2, 1)
    low = jnp.where(high == mine.high, mine.low, jnp.where(high > 0, UNIT - 1, 0))
    return high.astype(kind) * UNIT + low.astype(kind)


def real(words: Words, dtype: DTypeLike) -> Float[Array, "..."]:
    """The value as a float, computed in at least 32 bits."""
    wide = np.promote_types(dtype, jnp.float32)
    return (words.high.astype(wide) * UNIT + words.low.astype(wide)).astype(dtype)


def after(words: Words, more: Shaped[Array, "*n"] | int) -> Words:
    """The counter plus `more`, which must fit its lower word; not normalized."""
    return Words(words.high, words.low + jnp.asarray(more, jnp.int32))


def since(words: Words, before: Words) -> Integer[Array, "..."]:
    """The difference from an earlier counter, below 2^31."""
    return (words.high - before.high) * UNIT + (words.low - before.low)


def normalized(words: Words) -> Words:
    """The same number with a lower word below 2^30."""
    return Words(words.high + (words.low >> BITS), words.low & (UNIT - 1))


def reaches(words: Words, other: Words) -> Bool[Array, "..."]:
    """Whether it is at least another counter, which must be normalized."""
    mine = normalized(words)
    equal = mine.high == other.high
    return (mine.high > other.high) | (equal & (mine.low >= other.low))
