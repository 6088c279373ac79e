r"""Patterns: examples times their labels, with a constant as one feature more.

The pattern of an example is :math:`z_i = y_i (x_i, \rho)`, so that a margin is its
inner product with the weights, the last of which gives the bias.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int32

from budgetjax import checks
from budgetjax.checks import Count
from budgetjax.solvers.kernel.training import signs
from budgetjax.solvers.linear.rows import (
    LANES,
    DenseRows,
    KernelMatrix,
    SparseRows,
    as_rows,
    filled_up,
    sparse_rows,
)


def examples(
    where: str, X: Any, y: Any
) -> tuple[DenseRows | SparseRows, Float[Array, " n"]]:
    """A training set of two classes as rows and labels, checked.

    Raises:
      ValueError: if it is not that.
    """
    rows = as_rows(where, X)
    return rows, signs(where, y, rows.number, float)


def given(X: Any, y: ArrayLike) -> tuple[DenseRows | SparseRows, Float[Array, " n"]]:
    """A training set that has been checked before, perhaps traced now."""
    y = jnp.asarray(y).astype(float)
    if hasattr(X, "tocsr"):
        X = sparse_rows(X)
    if isinstance(X, SparseRows):
        return jax.tree.map(jnp.asarray, X), y
    X = jnp.asarray(X)
    return DenseRows(X if jnp.issubdtype(X.dtype, jnp.floating) else X.astype(float)), y


def constant_feature(
    where: str, augment: ArrayLike, dtype: np.dtype
) -> Float[Array, ""] | None:
    """`rho`, or None if it is 0 and known."""
    checks.non_negative(where, "augment", augment)
    known = checks.concrete(augment)
    if known is not None and np.all(known == 0):
        return None
    return checks.as_leaf(where, "augment", augment, dtype)


def squared_norms(
    where: str,
    rows: DenseRows | SparseRows,
    constant: Float[Array, ""] | None,
    dtype: np.dtype,
) -> Float[Array, " n"]:
    """Of all patterns.

    Raises:
      ValueError: if one overflows.
    """
    squares = rows.squares(dtype)
    if constant is not None:
        squares += jnp.square(constant)
    return finite_squares(where, squares)


def finite_squares(where: str, squares: Float[Array, " n"]) -> Float[Array, " n"]:
    """Squared norms, if none of them overflows."""
    known = checks.concrete(squares)
    if known is not None and not np.all(np.isfinite(known)):
        row = int(np.argmin(np.isfinite(known)))
        raise ValueError(
            f"{where}: squared norms must be finite in {squares.dtype}, got "
            f"{known[row]} in row {row}; scale X down"
        )
    return squares


def width(rows: DenseRows | SparseRows, constant: Float[Array, ""] | None) -> int:
    """The number of weights: of the features, of the constant, and what fills up."""
    size = rows.size + (constant is not None)
    return size if isinstance(rows, SparseRows) else -(-size // LANES) * LANES


def patterns(
    rows: DenseRows | SparseRows,
    y: Float[Array, " n"],
    constant: Float[Array, ""] | None,
) -> DenseRows | SparseRows:
    """All patterns, as rows of `width` numbers; not to be traced for sparse rows."""
    if isinstance(rows, DenseRows):
        return DenseRows(_signed(rows.values, y, constant, width(rows, constant)))
    starts, indices = np.asarray(rows.starts), np.asarray(rows.indices)
    signs = np.repeat(np.asarray(y), np.diff(starts)).astype(rows.values.dtype)
    # Where all numbers are 0, some are kept that belong to no row.
    values, indices = (
        np.asarray(rows.values)[: len(signs)] * signs,
        indices[: len(signs)],
    )
    if constant is not None:
        last = (np.asarray(y) * float(constant)).astype(values.dtype)
        values = np.insert(values, starts[1:], last)
        indices = np.insert(indices, starts[1:], rows.size)
        starts = starts + np.arange(len(starts))
    filled = filled_up(values, indices, starts, width(rows, constant))
    return jax.tree.map(jnp.asarray, filled)


@functools.partial(jax.jit, static_argnums=3)
def _signed(X, y, constant, width):
    parts = [X * y[:, None].astype(X.dtype)]
    if constant is not None:
        parts.append((y * constant).astype(X.dtype)[:, None])
    filled = X.shape[1] + len(parts) - 1
    parts.append(jnp.zeros((X.shape[0], width - filled), X.dtype))
    return jnp.concatenate(parts, axis=1)


def some_patterns(
    rows: DenseRows | SparseRows,
    y: Float[Array, " n"],
    constant: Float[Array, ""] | None,
    chosen: Int32[Array, " k"],
) -> DenseRows | SparseRows:
    """The patterns of these examples, as `k` rows; O(k d), or O(k longest)."""
    signs = y[chosen]
    if isinstance(rows, DenseRows):
        size = width(rows, constant)
        return DenseRows(_signed(rows.values[chosen], signs, constant, size))
    place = jnp.arange(rows.longest.value, dtype=jnp.int32)[None]
    starts, ends = rows.starts[chosen][:, None], rows.starts[chosen + 1][:, None]
    there = starts + place < ends
    signs = signs.astype(rows.values.dtype)[:, None]
    # The places of a short row that are left over add nothing to column 0.
    values = jnp.where(there, signs * rows.values[starts + place], 0)
    indices = jnp.where(there, rows.indices[starts + place], 0)
    if constant is not None:
        last = signs * constant.astype(values.dtype)
        values = jnp.hstack([values, last, jnp.zeros_like(last)])
        last = jnp.full_like(indices[:, :1], rows.size)
        indices = jnp.hstack([indices, last, last])
    number, longest = values.shape
    return SparseRows(
        values=values.ravel(),
        indices=indices.ravel(),
        starts=longest * jnp.arange(number + 1, dtype=jnp.int32),
        columns=Count(width(rows, constant)),
        longest=Count(longest),
    )


def kernel_patterns(
    gram: Float[Array, "n n"],
    y: Float[Array, " n"],
    constant: Float[Array, ""] | None,
) -> KernelMatrix:
    """All patterns in the feature space of a kernel; see `KernelMatrix`."""
    square = 0 if constant is None else jnp.square(constant).astype(gram.dtype)
    signs = y.astype(gram.dtype)
    return KernelMatrix((gram + square) * signs[:, None] * signs[None])
