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
from jaxtyping import Array, Float

from budgetjax import checks
from budgetjax.kernels import Kernel
from budgetjax.models import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.rows import (
    LANES,
    DenseRows,
    KernelMatrix,
    Rows,
    SparseRows,
    as_rows,
    filled_up,
)


def examples(
    where: str, X: Any, y: Any
) -> tuple[DenseRows | SparseRows, Float[Array, " n"]]:
    """A training set of two classes as rows and labels, checked.

    Raises:
      ValueError: if it is not that.
    """
    rows = as_rows(where, X)
    return rows, training_set.signs(where, y, rows.number, float)


def constant_feature(
    where: str, fit_bias: bool, bias_scale: ArrayLike, dtype: np.dtype
) -> Float[Array, ""] | None:
    """`rho`, or None without a bias."""
    checks.positive(where, "bias_scale", bias_scale)
    if not checks.flag(where, "fit_bias", fit_bias):
        return None
    return checks.as_leaf(where, "bias_scale", bias_scale, dtype)


def squared_norms(
    where: str,
    rows: DenseRows | SparseRows,
    constant: Float[Array, ""] | None,
    dtype: np.dtype,
) -> Float[Array, " n"]:
    """The squared norms of all patterns.

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


def kernel_patterns(
    kernel: Kernel,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    constant: Float[Array, ""] | None,
) -> KernelMatrix:
    """All patterns in the feature space of a kernel; see `KernelMatrix`."""
    gram = kernel.gram(X, X)
    square = 0 if constant is None else jnp.square(constant).astype(gram.dtype)
    signs = y.astype(gram.dtype)
    values = (gram + square) * signs[:, None] * signs[None]
    # Loops over a row take several numbers at a time.
    return KernelMatrix(jnp.pad(values, ((0, 0), (0, -y.shape[0] % LANES))), X)


def prepare(state: Any, X: Any, y: ArrayLike) -> tuple[Rows, Float[Array, " n"]]:
    """The patterns of a state, of a linear problem, and the labels.

    Raises:
      ValueError: if it is another training set.
    """
    where = "solve"
    kernel = getattr(state, "kernel", None)
    rows, y = examples(where, X, y)
    n, d = state.squares.shape[0], state.num_features.value
    if (rows.number, rows.size) != (n, d):
        raise ValueError(
            f"{where}: X must be the training set of the state, of shape ({n}, {d}), "
            f"got ({rows.number}, {rows.size})"
        )
    training_set.check_same(where, "y", state.digest, y)
    if kernel is None:
        return patterns(rows, y, state.constant), y
    assert isinstance(rows, DenseRows)
    return kernel_patterns(kernel, rows.values, y, state.constant), y


def model_of(state: Any, scale: Float[Array, ""] | float = 1.0) -> LinearModel:
    """The model of the weights of a state, over a scale."""
    d = state.num_features.value
    weights = state.weights / scale
    bias = jnp.zeros_like(weights[0])
    if state.constant is not None:
        bias = state.constant * weights[d]
    return LinearModel(weights[:d], bias)
