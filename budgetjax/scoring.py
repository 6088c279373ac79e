"""Scores of rows by support vectors, and by weights, in blocks."""

import functools
from typing import Any, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from budgetjax import _checks, _sharding, kernels
from budgetjax.kernels import Kernel
from budgetjax.raw_rows import RawRows, RowStore, as_matrix, check_shape

# Rows per block of scores: their kernel rows fit in a CPU's cache.
PREDICTION_BLOCK = 1024


Scores = TypeVar("Scores", Array, np.ndarray)


@functools.partial(jax.jit, static_argnums=(7, 8))
@functools.partial(
    _sharding.with_auto_axes,
    specs=lambda *arguments: (_sharding.row_spec(arguments[6]), PartitionSpec()),
)
def kernel_scores(
    kernel: Kernel,
    vectors: Float[Array, "m r"],
    squares: Float[Array, " m"] | None,
    terms: Float[Array, "m both"],
    scale: Float[Array, ""] | None,
    bias: Float[Array, "*classes"] | None,
    X: Float[Array, "n d"],
    columns: int,
    split: NamedSharding | None = None,
    origin: Float[Array, " d"] | None = None,
) -> tuple[Float[Array, "n ..."], Bool[Array, ""]]:
    """The scores, and whether all squared norms are finite, without reading X again.

    The models of all learners with this kernel and these sizes share one program. The
    first `columns` of `terms` are the coefficients, and `scale` multiplies them. With
    `split`, from `_sharding.split_by_rows`, every device scores its own rows. The
    vectors are differences from the origin; None finds one for vectors as they are.
    """
    if origin is None and kernel.shifts:
        present = jnp.any(terms[:, :columns] != 0, axis=1)
        origin = kernels.origin_of(kernel, vectors, present)
        vectors = vectors - origin[None]
    model = kernel, vectors, squares, terms, scale, bias, origin
    local = functools.partial(_score_in_blocks, columns)
    if split is None:
        return local(X, model)
    return _sharding.map_rows(local, split, X, model)


def _score_in_blocks(
    columns: int, X: Float[Array, "n d"], model: tuple[Any, ...]
) -> tuple[Float[Array, "n ..."], Bool[Array, ""]]:
    kernel, vectors, squares, terms, scale, bias, origin = model
    known = kernels.squared_norms(vectors) if squares is None else squares
    n = X.shape[0]

    def score(rows):
        rows = rows if origin is None else rows - origin[None]
        norms = kernels.squared_norms(rows)
        gram = kernel.gram(rows, vectors, norms, known)
        new = jnp.matmul(gram, terms[:, :columns], precision="highest")
        return new, jnp.all(jnp.isfinite(norms))

    def block(index, carry):
        scores, finite = carry
        # The last block starts early enough to be full, since `dynamic_slice` clamps.
        start = index * size
        new, good = score(jax.lax.dynamic_slice_in_dim(X, start, size))
        scores = jax.lax.dynamic_update_slice_in_dim(scores, new, start, 0)
        return scores, finite & good

    # A symbolic number of rows, from `jax.export`, cannot be divided.
    if jax.export.is_symbolic_dim(n) or n == 0:
        scores, finite = score(X)
    else:
        size = min(n, PREDICTION_BLOCK)
        carry = jnp.zeros((n, columns), X.dtype), jnp.array(True)
        carry, *_ = _sharding.vary(carry, kernel, vectors, terms, X)
        scores, finite = jax.lax.fori_loop(0, -(-n // size), block, carry)
    scores = scores if scale is None else scale * scores
    scores = scores if bias is None else scores + jnp.reshape(bias, (1, -1))
    return squeeze_columns(scores), finite


def pad_vectors(
    vectors: Float[Array | np.ndarray, "m d"],
    coefficients: Float[Array | np.ndarray, " m *classes"],
) -> tuple[
    Float[Array | np.ndarray, "more d"], Float[Array | np.ndarray, "more columns"]
]:
    """More vectors of coefficient 0, so that few sizes are compiled."""
    number = len(coefficients)
    # To a multiple of a power of two: four sizes per doubling, from 64 on.
    unit = 2 ** max(6, number.bit_length() - 3)
    more = -number % unit if number else unit
    # NumPy if possible: compiling this for every number of vectors takes longer. It
    # gets arrays of its own, as the methods of JAX's would be traced inside `jit`.
    traced = _checks.is_traced((vectors, coefficients))
    numpy = jnp if traced else np
    if not traced:
        vectors, coefficients = np.asarray(vectors), np.asarray(coefficients)
    columns = (*coefficients.shape, 1)[1]
    coefficients = numpy.reshape(coefficients, (number, columns))
    return (
        numpy.pad(vectors, ((0, more), (0, 0))),
        numpy.pad(coefficients, ((0, more), (0, 0))),
    )


def linear_scores(
    weights: Float[Array | np.ndarray, " d"],
    bias: ArrayLike,
    X: RawRows,
    first_row: int,
) -> Float[Array, " n"]:
    """The scores of a linear model for dense or sparse rows; O(n d), or O(nonzeros)."""
    if isinstance(X, RowStore):  # `SparseRows`, finite since they were made
        check_shape(X.shape, len(weights))
        return _apply_weights(weights, bias, X)
    rows: Any = as_matrix(X, len(weights))
    if isinstance(rows, jax.Array | np.ndarray):
        _checks.check_finite(rows, first_row)
    if isinstance(rows, jax.Array) or isinstance(weights, Tracer):
        return _apply_weights(weights, bias, _checks.to_device(rows, weights.dtype))
    # NumPy and SciPy need no copy of the rows and no compiled program.
    scores = rows @ np.asarray(weights) + np.asarray(bias)
    return _checks.to_device(scores, weights.dtype)


@jax.jit
def _apply_weights(
    weights: Float[Array, " d"], bias: ArrayLike, X: Array | RowStore
) -> Float[Array, " n"]:
    if isinstance(X, RowStore):
        return X.products(weights) + bias
    return jnp.matmul(X, weights, precision="highest") + bias


def squeeze_columns(scores: Scores) -> Scores:
    """Scores, without the last axis if the model has one column."""
    return scores[..., 0] if scores.shape[-1] == 1 else scores
