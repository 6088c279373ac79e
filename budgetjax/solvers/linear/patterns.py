r"""Patterns: examples times their labels, with a constant as an additional feature.

The pattern of an example is :math:`z_i = y_i (x_i, \rho)`, so its margin is its inner
product with the weights. The last weight gives the bias.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import _checks, kernels
from budgetjax._errors import ArgumentError
from budgetjax._record import static
from budgetjax._rows import RawRows
from budgetjax.kernels import Kernel
from budgetjax.model import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.rows import (
    DenseRows,
    KernelMatrix,
    ShortRows,
    SparseRows,
    pad_rows,
    read_rows,
    to_short_rows,
)
from budgetjax.solvers.training_set import Matrix, Scalar, TrainingSet, Vector


class Patterns(TrainingSet):
    """A training set as linear solvers visit it: `X` are its patterns.

    Attributes:
      squares: `||z_i||^2`, shape `(n,)`.
      constant: rho, or None without a bias.
      num_features: the length of an example.
    """

    squares: Vector
    constant: Scalar | None
    num_features: int = static()

    @property
    def width(self) -> int:
        """The number of weights."""
        if isinstance(self.X, KernelMatrix):
            return self.squares.shape[0]
        return self.num_features + (self.constant is not None)

    @property
    def kernel(self) -> Kernel | None:
        """What takes the place of inner products."""
        return self.X.kernel if isinstance(self.X, KernelMatrix) else None

    def with_labels(self, y: ArrayLike) -> "Patterns":
        # Outside of this context float64 would become float32.
        with jax.enable_x64(self.dtype == np.float64):
            new = super().with_labels(y)
            return new._replace(X=self.X.times(new.y * self.y))

    def to_model(self, weights: Float[Array, " size"]) -> LinearModel:
        """The linear model of these weights."""
        return _to_model(weights, self.constant, self.num_features)


def read_patterns(
    X: RawRows,
    y: ArrayLike,
    weight: ArrayLike | None,
    constant: ArrayLike | None,
    kernel: Kernel | None = None,
) -> Patterns:
    """Checks a training set of two classes; sparse rows cannot be traced.

    A `kernel` takes the place of inner products; its rows are dense.
    """
    rows = read_rows(X) if kernel is None else DenseRows(training_set.read_features(X))
    n, d = rows.shape
    y = training_set.read_labels(y, n, float)
    if constant is not None:
        constant = _checks.as_leaf("bias_scale", constant, y.dtype)
    if kernel is not None and isinstance(rows, DenseRows):
        kernel = kernels.as_leaves(kernel, d, rows.values.dtype)
        squares = kernel.diag(rows.values).astype(y.dtype)
    else:
        squares = _squared_norms(rows)
    if constant is not None:
        squares += jnp.square(constant)
    known = _checks.concrete(squares)
    if known is not None and (row := _checks.first_bad_row(known)) < n:
        got = f"{known[row]} in row {row}; scale X down"
        raise ArgumentError("squared norms", f"be finite in {squares.dtype}", got)
    weight = training_set.read_weight(weight, y)
    if isinstance(rows, SparseRows):
        patterns = _sparse_patterns(rows, y, constant)
    elif kernel is None:
        patterns = DenseRows(_dense_patterns(rows.values, y, constant))
    else:
        patterns = _kernel_patterns(kernel, rows.values, y, constant)
    digest = training_set.digest(rows)
    return Patterns(patterns, y, weight, digest, squares, constant, d)


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


def _sparse_patterns(
    rows: SparseRows, y: Vector, constant: Scalar | None
) -> SparseRows | ShortRows:
    signed = rows.times(y)
    if constant is not None:
        starts, indices = np.asarray(rows.starts), np.asarray(rows.indices)
        values, end = np.asarray(signed.values), starts[-1]
        last = (np.asarray(y) * float(constant)).astype(values.dtype)
        values = np.insert(values[:end], starts[1:], last)
        indices = np.insert(indices[:end], starts[1:], rows.shape[1])
        starts = starts + np.arange(len(starts))
        signed = pad_rows(values, indices, starts, rows.shape[1] + 1)
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


def _kernel_patterns(
    kernel: Kernel, X: Matrix, y: Vector, constant: Scalar | None
) -> KernelMatrix:
    n, itemsize = X.shape[0], X.dtype.itemsize
    _checks.check_memory(
        {"the number of rows": n},
        # The matrix and its product with the signs.
        2 * n * n * itemsize,
        "of kernel values of all pairs",
        "learn from fewer rows, or by budgetjax.SMO or an online learner",
    )
    gram = kernel.gram(X, X)
    if constant is not None:
        gram += jnp.square(constant).astype(gram.dtype)
    signs = y.astype(gram.dtype)
    return KernelMatrix(gram * signs[:, None] * signs[None], X, kernel)


@functools.partial(jax.jit, static_argnums=2)
def _to_model(
    weights: Float[Array, " size"], constant: Scalar | None, num_features: int
) -> LinearModel:
    bias = jnp.zeros((), weights.dtype)
    bias = bias if constant is None else constant * weights[num_features]
    return LinearModel(weights[:num_features], bias)
