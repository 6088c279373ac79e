"""A state with more features or classes, or with fewer."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from budgetjax.online.support_set import Expansion


def resize(state: Any, like: Any) -> Any:
    """A copy of the state in the shapes of another, which provides new values.

    The number of features or columns may grow or shrink. The single column of two
    classes becomes two, with half of the coefficients and half of their negatives.
    """
    columns, wanted = state.num_columns, like.num_columns

    def resize_leaf(old: Array, new: Array) -> Array:
        if old.shape == new.shape:
            return jnp.array(old)
        # In NumPy, since JAX would compile a program for every shape.
        values, resized = np.asarray(old), np.array(new)
        if columns == wanted:
            part = tuple(map(slice, np.minimum(values.shape, resized.shape)))
            resized[part] = values[part]
            return jnp.array(resized)
        # The coefficients may be followed by the sums of an average.
        parts = values.reshape(*values.shape[:-1], -1, columns)
        if columns == 1:
            parts = np.concatenate([-parts / 2, parts / 2], axis=-1)
        parts = parts[..., :wanted]
        padding = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - parts.shape[-1])]
        return jnp.array(np.pad(parts, padding).reshape(resized.shape))

    new = jax.tree.map(resize_leaf, state, like)
    new = jax.tree.map(_with_squares, new, is_leaf=_is_expansion)
    if columns == 1 < wanted:
        # Two columns of halves have another norm, by which a ball bounds the model.
        new = with_own_arrays(new.refreshed())
    return new


def _is_expansion(part: object) -> bool:
    return isinstance(part, Expansion)


def _with_squares(part: Any) -> Any:
    """A support set with new squares; random features fill new columns with values."""
    if not _is_expansion(part):
        return part
    squares = np.sum(np.square(np.asarray(part.vectors)), axis=-1)
    return part._replace(squares=jnp.array(squares))


def with_own_arrays(state: Any) -> Any:
    """A copy in which no two leaves share an array, which cannot be donated twice."""
    return jax.tree.map(jnp.array, state)
