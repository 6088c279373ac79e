"""Slots: searches and writes in arrays of a row per slot.

The last row of such an array is spare. It takes writes that must not happen, since a
conditional write would have to read the old row.
"""

import functools
import operator
from collections.abc import Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from budgetjax import _platform
from budgetjax._shapes import Flag, Index, PerPair, PerRow, Scalar

Kind = TypeVar("Kind")

# The age of a free slot: younger than every support vector.
FREE = int(np.iinfo(np.int32).max)
# The slot of a row that is not kept, which is written to the spare row.
NOWHERE = -1


def select(condition: Flag, one: Kind, other: Kind) -> Kind:
    """One of two trees of the same structure; leaves that are in both stay as is."""
    return jax.tree.map(
        lambda new, old: new if new is old else jnp.where(condition, new, old),
        one,
        other,
    )


def least(values: Integer[Array, " n"]) -> Integer[Array, ""]:
    """The smallest of some integers."""
    return _platform.fold(jnp.minimum, jnp.min, values)


def slot_of(ages: Integer[Array, " rows"], age: Index) -> Index:
    """The slot with this insertion round; ages are unique among active slots."""
    slots = jnp.arange(ages.shape[0], dtype=jnp.int32)
    return _platform.fold(jnp.maximum, jnp.max, jnp.where(ages == age, slots, 0))


def oldest_argmin(ages: Integer[Array, " rows"], values: PerRow) -> Index:
    """The slot with the least value, the oldest on ties.

    It uses a minimum and a comparison, because CPUs do not vectorise `argmin`; and a
    minimum of integers, because they do not vectorise that of floats either.
    """
    order = _platform.separate(sortable_integers(values))
    smallest = order == least(order)
    return slot_of(ages, least(jnp.where(smallest, ages, FREE)))


def sortable_integers(values: Float[Array, " n"]) -> Integer[Array, " n"]:
    """Integers in the same order as the values, from sign and bits."""
    width = jnp.finfo(values.dtype).bits
    bits = jax.lax.bitcast_convert_type(values, jnp.dtype(f"int{width}"))
    return jnp.where(bits < 0, jnp.iinfo(bits.dtype).min - bits, bits)


def put(array: Array, slot: Index, value: Array, axis: int = 0) -> Array:
    """The array with one row (or column) written; `NOWHERE` is its last."""
    return put_rows(array, (slot,), (value,), axis)


def put_rows(
    array: Array, slots: Sequence[Index], values: Sequence[Array], axis: int = 0
) -> Array:
    """The array with some rows (or columns) written, a later one over an earlier."""
    last = array.shape[axis] - 1
    places = [jnp.where(slot == NOWHERE, last, slot) for slot in slots]
    if _platform.writes_whole(values[0].size):
        here = jnp.arange(last + 1, dtype=jnp.int32)
        here = jnp.expand_dims(here, [i for i in range(array.ndim) if i != axis])
        for place, value in zip(places, values, strict=True):
            array = jnp.where(here == place, jnp.expand_dims(value, axis), array)
        return array
    if len(places) > 1 and not _platform.on_cpu():
        # One operation for all. The order of its writes is arbitrary.
        for i, place in enumerate(places):
            again = [place == later for later in places[i + 1 :]]
            places[i] = jnp.where(
                functools.reduce(operator.or_, again, False), last, place
            )
        rows = array if axis == 0 else array.T
        rows = rows.at[jnp.stack(places)].set(
            jnp.stack(values), unique_indices=True, mode="promise_in_bounds"
        )
        return rows if axis == 0 else rows.T
    for place, value in zip(places, values, strict=True):
        array = jax.lax.dynamic_update_index_in_dim(array, value, place, axis)
    return array


def set_row_and_column(
    matrix: PerPair, slot: Index | int, row: PerRow, diagonal: Scalar
) -> PerPair:
    """A symmetric matrix with one row and column set; `NOWHERE` sets the spare one."""
    index = jnp.where(slot == NOWHERE, matrix.shape[0] - 1, slot)
    if not _platform.on_cpu():
        here = jnp.arange(matrix.shape[0], dtype=jnp.int32) == index
        row = jnp.where(here, diagonal, row)
        matrix = jnp.where(here[None], row[:, None], matrix)
        return jnp.where(here[:, None], row[None], matrix)
    row = row.at[index].set(diagonal)
    matrix = jax.lax.dynamic_update_index_in_dim(matrix, row, index, 0)
    return jax.lax.dynamic_update_index_in_dim(matrix, row, index, 1)
