"""Scores of rows by support vectors, and by weights, in blocks, and what they mean."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Shaped

from budgetjax import _checks, _sharding, kernels, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._rows import RawRows, RowStore, as_matrix, cast_rows, check_shape
from budgetjax.kernels import Kernel

# Rows per block of scores: their kernel rows fit in a CPU's cache.
PREDICTION_BLOCK = 1024
# The smallest ridge of a kernel matrix that is factorised, as a fraction of its
# diagonal.
RIDGE = 1e-5
Scores = TypeVar("Scores", Array, np.ndarray)
# The labels of the data; traced where they are an argument of a program.
Classes = np.ndarray | Array
Values = TypeVar("Values", bound=Array | np.ndarray)


class Output(NamedTuple):
    """The number of scores per row, and what is made of them by `apply_link`."""

    columns: int
    link: str


class KernelSum(NamedTuple):
    """`scale * sum_j terms[j] k(vectors[j], x) + bias`, in the form that programs take.

    The models of all learners with this kernel and these sizes share one program.

    Attributes:
      kernel: k.
      vectors: differences from the origin, shape `(m, r)`.
      squares: their squared norms, shape `(m,)`; None if they are not known.
      terms: its first columns are the coefficients, shape `(m, both)`.
      scale: None for 1.
      bias: one number per column; None for 0.
      origin: shape `(d,)`; None finds one for vectors as they are.
    """

    kernel: Kernel
    vectors: Any
    squares: Float[Array, " m"] | None
    terms: Any
    scale: Float[Array, ""] | None = None
    bias: Float[Array | np.ndarray, "*classes"] | None = None
    origin: Float[Array, " d"] | None = None


def apply_link(link: str, scores: Values, classes: Classes | None = None) -> Values:
    """The labels, or values, of scores with this meaning; `IDENTITY` keeps scores."""
    if link == losses.IDENTITY:
        return scores
    made: Any = scores
    if link == losses.EXP:
        made = np.exp(made) if isinstance(made, np.ndarray) else jnp.exp(made)
    else:
        made = labels_from_scores(made, classes)
    return made


def score_rows(
    model: KernelSum, num_features: int, X: RawRows, output: Output, first_row: int
) -> Shaped[Array, "n ..."]:
    """What the scores of rows mean, after checks; messages count from `first_row`."""
    if model.vectors.ndim != 2:
        check_single(model.vectors)
    rows = cast_rows(X, num_features, model.vectors.dtype)
    split = _sharding.split_by_rows(rows) if isinstance(X, jax.Array) else None
    scores, finite = kernel_scores(model, rows, output, split)
    if not isinstance(finite, Tracer) and not finite:
        _checks.check_finite(rows, first_row)
    return scores


def check_single(vectors: Array | np.ndarray) -> None:
    """Raises if these are the support vectors of several models."""
    if vectors.ndim != 2:
        got = f"a stack of shape {vectors.shape[:-2]}; use jax.vmap"
        raise ArgumentError("model", "be a single one", got)


def _by_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """A program of a model, rows, an `Output` and how the rows are divided."""

    def specs(model: Any, X: Array, *_: Any) -> tuple[PartitionSpec, PartitionSpec]:
        return _sharding.row_spec(X), PartitionSpec()

    over_meshes = _sharding.with_auto_axes(function, specs)
    return jax.jit(over_meshes, static_argnames=("output", "split"))


@_by_rows
def kernel_scores(
    model: KernelSum,
    X: Float[Array, "n d"],
    output: Output,
    split: NamedSharding | None = None,
) -> tuple[Shaped[Array, "n ..."], Bool[Array, ""]]:
    """What the scores mean, and whether all norms are finite, without reading X again.

    With `split`, from `_sharding.split_by_rows`, every device scores its own rows.
    """
    if model.origin is None and model.kernel.shifts:
        present = jnp.any(model.terms[:, : output.columns] != 0, axis=1)
        origin = kernels.origin_of(model.kernel, model.vectors, present)
        model = model._replace(vectors=model.vectors - origin[None], origin=origin)
    return _on_devices(_score_by_kernel, model, X, output, split)


@_by_rows
def model_scores(
    model: Any,
    X: Float[Array, "n d"],
    output: Output,
    split: NamedSharding | None = None,
) -> tuple[Shaped[Array, "n ..."], Bool[Array, ""]]:
    """`kernel_scores` by a model's own `scores`, and whether all scores are finite."""
    return _on_devices(_score_by_method, model, X, output, split)


def _on_devices(
    function: Callable[..., Any],
    model: Any,
    X: Array,
    output: Output,
    split: NamedSharding | None,
) -> Any:
    local = functools.partial(function, output)
    if split is None:
        return local(X, model)
    return _sharding.map_rows(local, split, X, model)


def _score_by_kernel(
    output: Output, X: Float[Array, "n d"], model: KernelSum
) -> tuple[Shaped[Array, "n ..."], Bool[Array, ""]]:
    kernel, vectors, squares, terms, scale, bias, origin = model
    known = kernels.squared_norms(vectors) if squares is None else squares

    def score(rows):
        rows = rows if origin is None else rows - origin[None]
        norms = kernels.squared_norms(rows)
        gram = kernel.gram(rows, vectors, norms, known)
        new = jnp.matmul(gram, terms[:, : output.columns], precision="highest")
        return new, jnp.all(jnp.isfinite(norms))

    scores, finite = _score_in_blocks(score, output.columns, X, model)
    scores = scores if scale is None else scale * scores
    scores = scores if bias is None else scores + jnp.reshape(bias, (1, -1))
    return apply_link(output.link, squeeze_columns(scores)), finite


def _score_by_method(
    output: Output, X: Float[Array, "n d"], model: Any
) -> tuple[Shaped[Array, "n ..."], Bool[Array, ""]]:
    def score(rows):
        new = model.scores(rows).astype(X.dtype)
        return new, jnp.all(jnp.isfinite(new))

    scores, finite = _score_in_blocks(score, output.columns, X, model)
    return apply_link(output.link, squeeze_columns(scores)), finite


def _score_in_blocks(
    score: Callable[[Array], tuple[Array, Array]],
    columns: int,
    X: Float[Array, "n d"],
    model: Any,
) -> tuple[Float[Array, "n columns"], Bool[Array, ""]]:
    """The scores of all rows, and whether the flag of every block is True."""
    n = X.shape[0]

    def block(index, carry):
        scores, finite = carry
        # The last block starts early enough to be full, since `dynamic_slice` clamps.
        start = index * size
        new, good = score(jax.lax.dynamic_slice_in_dim(X, start, size))
        scores = jax.lax.dynamic_update_slice_in_dim(scores, new, start, 0)
        return scores, finite & good

    # A symbolic number of rows, from `jax.export`, cannot be divided.
    if jax.export.is_symbolic_dim(n) or n == 0:
        return score(X)
    size = min(n, PREDICTION_BLOCK)
    carry = jnp.zeros((n, columns), X.dtype), jnp.array(True)
    carry, *_ = _sharding.vary(carry, model, X)
    return jax.lax.fori_loop(0, -(-n // size), block, carry)


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
    traced = isinstance(vectors, Tracer) or isinstance(coefficients, Tracer)
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
    link: str,
) -> Shaped[Array, " n"]:
    """What the scores of a linear model mean, as in `kernel_scores`.

    Cost: O(n d) for dense rows, and O(nonzeros) for sparse ones.
    """
    if isinstance(X, RowStore):  # `SparseRows`, finite since they were made
        check_shape(X.shape, len(weights))
        return _apply_weights(weights, bias, X, link)
    rows: Any = as_matrix(X, len(weights))
    if isinstance(rows, jax.Array | np.ndarray):
        _checks.check_finite(rows, first_row)
    if isinstance(rows, jax.Array) or isinstance(weights, Tracer):
        rows = _checks.to_device(rows, weights.dtype)
        return _apply_weights(weights, bias, rows, link)
    # NumPy and SciPy need no copy of the rows and no compiled program.
    scores = rows @ np.asarray(weights) + np.asarray(bias)
    with np.errstate(over="ignore", under="ignore"):
        scores = scores.astype(jax.dtypes.canonicalize_dtype(weights.dtype))
    made = apply_link(link, scores)
    return _checks.to_device(made, made.dtype)


@functools.partial(jax.jit, static_argnames="link")
def _apply_weights(
    weights: Float[Array, " d"], bias: ArrayLike, X: Array | RowStore, link: str
) -> Shaped[Array, " n"]:
    if isinstance(X, RowStore):
        products = X.products(weights)
    else:
        products = jnp.matmul(X, weights, precision="highest")
    return apply_link(link, products + bias)


def span_root(
    kernel: Kernel, vectors: Float[Array | np.ndarray, "m d"], mask: Bool[Array, " m"]
) -> Float[Array, "m m"]:
    """The lower Cholesky factor of the kernel matrix, in a program; O(m^2 (m + d)).

    Rows outside the mask are those of the unit matrix. The ridge is as small as
    rounding allows. The factor of a kernel that is not positive definite is not finite.
    """
    vectors = _from_middle(kernel, vectors, mask, vectors)
    both = mask[:, None] & mask[None]
    unit = jnp.eye(mask.shape[0], dtype=vectors.dtype)
    gram = jnp.where(both, kernel.gram(vectors, vectors), unit)
    most = jnp.max(jnp.diagonal(gram))

    def try_larger(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        ridge = 10 * carry[0]
        return ridge, jnp.linalg.cholesky(gram + ridge * most * unit)

    def fails(carry: tuple[Array, Array]) -> Array:
        return (carry[0] < 1) & ~jnp.all(jnp.isfinite(carry[1]))

    start = jnp.asarray(RIDGE / 10, gram.dtype), jnp.nan * gram
    return jax.lax.while_loop(fails, try_larger, _sharding.vary(start, gram)[0])[1]


def share_beyond(
    kernel: Kernel,
    vectors: Float[Array | np.ndarray, "m d"],
    mask: Bool[Array, " m"],
    root: Float[Array, "m m"],
    X: Float[Array, "n d"],
) -> Float[Array, " n"]:
    """The share of k(x, x) beyond the span of the vectors in a mask, from 0 to 1.

    It is `1 - k' K^-1 k / k(x, x)`, in a program, with the root of `span_root`; O(n m
    (m + d)).
    """
    X = _from_middle(kernel, vectors, mask, X)
    squares = kernels.squared_norms(X)
    rows = kernel.gram(X, _from_middle(kernel, vectors, mask, vectors), squares)
    rows = jnp.where(mask[None], rows, 0)
    known = jax.scipy.linalg.solve_triangular(root, rows.T, lower=True)
    return share_outside(jnp.sum(known * known, axis=0), kernel.diag(X, squares))


def share_outside(
    inside: Float[Array, " n"], selves: Float[Array, " n"]
) -> Float[Array, " n"]:
    """The share of k(x, x) beyond a span, of what is inside."""
    share = 1 - inside / jnp.where(selves > 0, selves, 1)
    # A kernel that is not positive definite has no span.
    return jnp.where(jnp.isfinite(share), jnp.clip(share, 0, 1), 0)


def _from_middle(
    kernel: Kernel, vectors: Any, mask: Bool[Array, " m"], X: Any
) -> Float[Array, "n d"]:
    """Rows as differences from an origin in the middle of vectors far from 0."""
    X = jnp.asarray(X)
    if not kernel.shifts:
        return X
    return X - kernels.origin_of(kernel, jnp.asarray(vectors), mask)[None]


def squeeze_columns(scores: Scores) -> Scores:
    """Scores, without the last axis if the model has one column."""
    return scores[..., 0] if scores.shape[-1] == 1 else scores


@names_errors("predict")
def labels_from_scores(
    scores: Float[Array | np.ndarray, " n *classes"], classes: Classes | None
) -> Shaped[Array | np.ndarray, " n"]:
    """The label of every row: of the larger score, or of the sign of a single one.

    Without `classes`, labels are -1 and +1, or the index of the class.
    """
    numpy = np if isinstance(scores, np.ndarray) else jnp
    binary = scores.ndim == 1
    best = scores > 0 if binary else numpy.argmax(scores, axis=1)
    if classes is None:
        return (numpy.where(best, 1, -1) if binary else best).astype(np.int32)
    if isinstance(scores, Tracer):
        return _as_traced(classes)[best.astype(np.int32)]
    return classes[np.asarray(best).astype(np.intp)]


def format_labels(classes: np.ndarray | None) -> str:
    """The first classes, for error messages."""
    if classes is None:
        return "none"
    shown = ", ".join(repr(label) for label in classes[:10].tolist())
    return shown + (", ..." if len(classes) > 10 else "")


def _as_traced(classes: Any) -> Array:
    """The labels as an array that JAX can index, if it holds them."""
    if isinstance(classes, Tracer):
        return classes
    if classes.dtype.kind in "biuf":
        held = classes.astype(jax.dtypes.canonicalize_dtype(classes.dtype))
        if np.array_equal(held, classes):
            return jnp.asarray(held)
    expected = "be numbers that JAX holds, where rows are traced"
    got = f"{format_labels(classes)}; take the largest of decision_function"
    raise ArgumentError("the labels of the model", expected, got)
