r"""Patterns: examples times their labels, with a constant as an additional feature.

The pattern of an example is :math:`z_i = y_i (x_i, \rho)`, so its margin is its inner
product with the weights. The last weight gives the bias.
"""

import functools
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer

from budgetjax import _checks, _record
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Static
from budgetjax._rows import RawRows
from budgetjax.kernels import Kernel, check_kernel
from budgetjax.model import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.rows import (
    DenseRows,
    KernelMatrix,
    Rows,
    ShortRows,
    SparseRows,
    pad_rows,
    read_rows,
    to_short_rows,
)
from budgetjax.solvers.training_set import Matrix, Scalar, Vector

LOSSES = ("hinge", "squared_hinge")


@_record.record
class Problem(NamedTuple):
    """The properties of the patterns that a state holds.

    `squares` are `||z_i||^2`, `weight` is `v`, and `constant` is `rho`, or None for a
    model without a bias; `kernel` takes the place of inner products, and `digest` is
    that of `y`.
    """

    squares: Vector
    weight: Vector | None
    constant: Scalar | None
    kernel: Kernel | None
    digest: Integer[Array, ""]
    num_features: Static

    @property
    def width(self) -> int:
        """The number of weights."""
        if self.kernel is not None:
            return self.squares.shape[0]
        return self.num_features.value + (self.constant is not None)


@runtime_checkable
class LinearState(Protocol):
    """The field that all states of linear solvers have; see `budgetjax.Solver`."""

    @property
    def problem(self) -> Problem: ...


def is_squared(loss: object) -> bool:
    """Whether this is the squared hinge, not the hinge; raises for any other loss."""
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ArgumentError("loss", f"be one of {LOSSES}", f"{loss!r}")
    return loss == "squared_hinge"


def read_problem(
    X: RawRows,
    y: ArrayLike,
    weight: ArrayLike | None,
    fit_bias: bool,
    bias_scale: ArrayLike,
    kernel: Kernel | None = None,
) -> Problem:
    """Checks a training set of two classes; see `budgetjax.Solver`."""
    if kernel is None:
        rows = read_rows(X)
        (n, d), squares = rows.shape, _squared_norms(rows)
    else:
        check_kernel("kernel", kernel)
        X = training_set.read_features(X)
        (n, d), squares = X.shape, kernel.diag(X)
    y = training_set.read_labels(y, n, float)
    squares, constant = squares.astype(y.dtype), None
    scale = _checks.as_leaf("bias_scale", bias_scale, y.dtype, _checks.positive)
    if _checks.flag("fit_bias", fit_bias):
        constant = scale
        squares += jnp.square(constant)
    known = _checks.concrete(squares)
    if known is not None and (row := _checks.first_bad_row(known)) < n:
        got = f"{known[row]} in row {row}; scale X down"
        raise ArgumentError("squared norms", f"be finite in {squares.dtype}", got)
    return Problem(
        squares=squares,
        weight=training_set.read_weight(weight, y),
        constant=constant,
        kernel=kernel,
        digest=training_set.digest(y),
        num_features=Static(d),
    )


def _squared_norms(rows: DenseRows | SparseRows) -> Vector:
    """The squared norm of each row, in JAX's default precision."""
    dtype = jax.dtypes.canonicalize_dtype(float)
    if isinstance(rows, DenseRows):
        return _dense_squared_norms(rows.values, dtype)
    starts = np.asarray(rows.starts)
    values = np.asarray(rows.values, np.float64)[: starts[-1]]
    owners = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    with np.errstate(over="ignore"):
        squares = np.bincount(owners, np.square(values), rows.shape[0])
    return _checks.to_device(squares, dtype)


@functools.partial(jax.jit, static_argnums=1)
def _dense_squared_norms(X: Matrix, dtype: np.dtype) -> Vector:
    # The compiled form needs no second matrix.
    return jnp.sum(jnp.square(X.astype(dtype)), axis=1)


@names_errors("solve")
def prepare(state: LinearState, X: RawRows, y: ArrayLike) -> tuple[Rows, Vector]:
    """The patterns of a linear state, and the labels; sparse rows cannot be traced."""
    problem = state.problem
    dense = problem.kernel is not None
    rows = DenseRows(training_set.read_features(X)) if dense else read_rows(X)
    shape = problem.squares.shape[0], problem.num_features.value
    if rows.shape != shape:
        wanted = f"be the training set of the state, of shape {shape}"
        raise ArgumentError("X", wanted, rows.shape)
    y = training_set.read_labels(y, shape[0], float)
    training_set.check_same("y", problem.digest, y)
    if isinstance(rows, SparseRows):
        return _sparse_patterns(rows, y, problem), y
    if problem.kernel is None:
        return DenseRows(_dense_patterns(rows.values, y, problem.constant)), y
    n, itemsize = rows.shape[0], rows.values.dtype.itemsize
    _checks.check_memory(
        {"the number of rows": n},
        # The matrix and its product with the signs.
        2 * n * n * itemsize,
        "of kernel values of all pairs",
        "learn from fewer rows, or by budgetjax.smo or an online learner",
    )
    gram = problem.kernel.gram(rows.values, rows.values)
    if problem.constant is not None:
        gram += jnp.square(problem.constant).astype(gram.dtype)
    signs = y.astype(gram.dtype)
    return KernelMatrix(gram * signs[:, None] * signs[None], rows.values), y


def _sparse_patterns(
    rows: SparseRows, y: Vector, problem: Problem
) -> SparseRows | ShortRows:
    starts, indices = np.asarray(rows.starts), np.asarray(rows.indices)
    signs = np.repeat(np.asarray(y), np.diff(starts)).astype(rows.values.dtype)
    # If all numbers are 0, some are kept that belong to no row.
    values = np.array(rows.values)
    values[: len(signs)] *= signs
    signed = rows._replace(values=values)
    if problem.constant is not None:
        last = (np.asarray(y) * float(problem.constant)).astype(values.dtype)
        values = np.insert(values[: len(signs)], starts[1:], last)
        indices = np.insert(indices[: len(signs)], starts[1:], rows.shape[1])
        starts = starts + np.arange(len(starts))
        signed = pad_rows(values, indices, starts, problem.width)
    return jax.tree.map(jnp.asarray, to_short_rows(signed))


@jax.jit
def _dense_patterns(
    X: Matrix, y: Vector, constant: Scalar | None
) -> Float[Array, "n width"]:
    patterns = X * y[:, None].astype(X.dtype)
    if constant is None:
        return patterns
    last = (y * constant).astype(X.dtype)
    return jnp.concatenate([patterns, last[:, None]], axis=1)


@jax.jit
def to_model(problem: Problem, weights: Float[Array, " size"]) -> LinearModel:
    """The linear model of these weights."""
    d, constant = problem.num_features.value, problem.constant
    bias = jnp.zeros((), weights.dtype) if constant is None else constant * weights[d]
    return LinearModel(weights[:d], bias)
