"""Counters beyond 32 bits: two int32 words, since JAX disables int64 by default.

The last axis of an array has the words of a counter, `high * 2^30 + low`. The lower one
is below 2^30 in a normalized counter, and below 2^31 in any.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

# The unit of the higher word. A normalized lower word has room for another unit.
BITS = 30
UNIT = 2**BITS

Words = Integer[Array, "*counters two"]


def of(value: int) -> Words:
    """The counter of a Python integer."""
    return jax.device_put(np.array(divmod(value, UNIT), np.int32))


def number(words: Any) -> Any:
    """The value: a NumPy int64, or an integer of JAX if it is traced.

    A traced one is an int32, which ends at 2^31 - 1; with x64 it is an int64.
    """
    if not isinstance(words, Tracer):
        wide = np.asarray(words, np.int64)
        return wide[..., 0] * UNIT + wide[..., 1]
    kind, mine = jnp.result_type(int), normalized(words)
    # Beyond these words, an int32 is at its limits.
    high = mine[..., 0] if kind == jnp.int64 else jnp.clip(mine[..., 0], -2, 1)
    ends = jnp.where(high > 0, UNIT - 1, 0)
    low = jnp.where(high == mine[..., 0], mine[..., 1], ends)
    return high.astype(kind) * UNIT + low.astype(kind)


def real(words: Words, dtype: DTypeLike) -> Float[Array, "*counters"]:
    """The value as a float, computed in at least 32 bits."""
    wide = words.astype(np.promote_types(dtype, jnp.float32))
    return (wide[..., 0] * UNIT + wide[..., 1]).astype(dtype)


def after(words: Words, more: Shaped[Array, "*n"] | int) -> Integer[Array, "..."]:
    """The counter plus `more`, which must fit its lower word; not normalized."""
    if np.ndim(more):
        return jax.vmap(after, in_axes=(None, 0))(words, more)
    more = jnp.asarray(more, jnp.int32)
    return words + jnp.where(np.array([False, True]), more, 0)


def since(words: Words, before: Words) -> Integer[Array, "*counters"]:
    """The difference from an earlier counter, below 2^31."""
    return (words[..., 0] - before[..., 0]) * UNIT + (words[..., 1] - before[..., 1])


def normalized(words: Words) -> Words:
    """The same numbers with lower words below 2^30."""
    high, low = words[..., 0], words[..., 1]
    return jnp.stack([high + (low >> BITS), low & (UNIT - 1)], axis=-1)


def reaches(words: Words, other: Words) -> Bool[Array, "*counters"]:
    """Whether it is at least another counter, which must be normalized."""
    mine = normalized(words)
    equal = mine[..., 0] == other[..., 0]
    return (mine[..., 0] > other[..., 0]) | (equal & (mine[..., 1] >= other[..., 1]))
