"""Models: what scores and predicts rows, whoever has learned it.

A model is the state of an online algorithm, or anything else with a `kernel` and an
`expansion`; a `KernelModel`, which kernel solvers end with; a `LinearModel`; one of
these in a `Labelled`, with what it takes to predict raw rows; or what has one of them
as its `model`, such as the solution of a solver. Scoring, predicting and reading the
support vectors is the same for all of them.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Integer, Shaped

from budgetjax import checks, kernels, losses
from budgetjax.kernels import Kernel
from budgetjax.scaling import Scaling

# Rows scored at once: their kernel rows fit in a CPU's cache.
PREDICTION_BLOCK = 1024
# Rows that go to the device at once: at least so many, and at most what makes so many
# numbers.
FEWEST_ROWS, MOST_ROWS, MOST_NUMBERS = 64, 65_536, 2**22


class KernelModel(NamedTuple):
    """A trained model, `f(x) = sum_j coefficients[j] k(vectors[j], x) + bias`.

    Attributes:
      kernel: the kernel of the training.
      vectors: the support vectors, shape `(m, d)`.
      coefficients: shape `(m,)`, or `(m, C)` for C classes.
      bias: a scalar, or shape `(C,)`; 0 for a model without one.
    """

    kernel: Kernel
    vectors: Float[Array, "m d"]
    coefficients: Float[Array, " m *classes"]
    bias: Float[Array, "*classes"]

    def decision_function(self, X: Any) -> Float[Array, " n *classes"]:
        """`budgetjax.decision_function` of this model."""
        return decision_function(self, X)

    def predict(self, X: Any) -> Shaped[Array, " n"]:
        """`budgetjax.predict` of this model."""
        return predict(self, X)


class LinearModel(NamedTuple):
    """A linear classifier, `f(x) = weights . x + bias`, or one per penalty.

    Attributes:
      weights: shape `(d,)`, or of several models `(p, d)`.
      bias: a scalar, or of several models shape `(p,)`; 0 for a model without one.
    """

    weights: Float[Array, "*models d"]
    bias: Float[Array, "*models"]

    def decision_function(self, X: Any) -> Float[Array, " n *models"]:
        """`budgetjax.decision_function` of this model."""
        return decision_function(self, X)

    def predict(self, X: Any) -> Shaped[Array, " n *models"]:
        """`budgetjax.predict` of this model."""
        return predict(self, X)


class Labelled(NamedTuple):
    """A model of raw rows: it scales them, and gives the labels of the data.

    Attributes:
      model: a model of scaled rows; or a tuple of binary ones, one per class.
      scaling: the mean and variance of the features, or None if they are taken as they
        are.
      classes: the labels, in the order of the scores, shape `(C,)`; None for those of
        the learner, and for regressors.
      feature_names: the columns of the rows, where they have names.
      intercept: what is added to all scores.
    """

    model: Any
    scaling: Scaling | None = None
    classes: Shaped[np.ndarray, " classes"] | None = None
    feature_names: tuple[str, ...] | None = None
    intercept: float = 0.0

    def decision_function(self, X: Any) -> Float[np.ndarray, " n *classes"]:
        """`budgetjax.decision_function` of this model."""
        return decision_function(self, X)

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """`budgetjax.predict` of this model."""
        return predict(self, X)


class Support(NamedTuple):
    """The support set as a user reads it.

    Attributes:
      vectors: shape `(capacity, num_features)`; of a `Labelled` raw rows.
      coefficients: the true ones, scale included, shape `(capacity, columns)`.
      mask: True where a slot is active, shape `(capacity,)`.
    """

    vectors: Float[Array | np.ndarray, "*models capacity features"]
    coefficients: Float[Array | np.ndarray, "*models capacity columns"]
    mask: Bool[Array | np.ndarray, "*models capacity"]


def decision_function(model: Any, X: Any) -> Any:
    """The scores `f(x)` of every row; O(n B d).

    The rows are taken in blocks, so a million of them never build an `(n, B)` matrix.

    Args:
      model: the state of an online algorithm, a `KernelModel`, a `LinearModel`, the
        solution of a solver, or what `fit_stream` gives.
      X: shape `(n, num_features)`; for a `LinearModel` also a matrix of `scipy.sparse`
        or `SparseRows`. A model of a stream takes raw rows, also sparse ones. Of a data
        frame it takes the columns by their names, if it has learned from named ones.

    Returns:
      Shape `(n,)` for a model with one column of coefficients, else `(n, columns)`;
      of a model of a stream a NumPy array.

    Raises:
      ValueError: if the shape of `X` does not fit the model, or `X` is not finite;
        inside `jit` or `vmap` only shapes are checked.
    """
    return _scores("decision_function", model, X)


def predict(model: Any, X: Any) -> Any:
    """The predicted label, or value, of every row; O(n B d).

    Args:
      model: as for `decision_function`.
      X: as for `decision_function`.

    Returns:
      Shape `(n,)`: the scores of a regressor; else integers, -1 or +1, where a score of
      0 gives -1, or the class of the largest score, the lowest of equal ones. A model
      of a stream gives the labels as they were read. A `LinearModel` of several
      penalties gives a column of -1 and +1 for each.

    Raises:
      ValueError: as `decision_function`.
    """
    return decided(model, _scores("predict", model, X))


def decided(model: Any, scores: Any) -> Any:
    """The labels, or values, that these scores of a model stand for."""
    if is_regressor(model):
        return scores
    numpy: Any = np if isinstance(scores, np.ndarray) else jnp
    binary = scores.ndim == 1 or isinstance(_inner(model), LinearModel)
    best = scores > 0 if binary else numpy.argmax(scores, axis=1)
    known = getattr(_inner(model), "classes", None)
    if known is not None:
        return known[np.asarray(best).astype(np.intp)]
    labels = numpy.where(best, 1, -1) if binary else best
    return labels.astype(np.int32)


def labels_of(model: Any) -> np.ndarray | None:
    """The labels in the order of the scores; None for a regressor."""
    known, state = getattr(_inner(model), "classes", None), innermost(model)
    if is_regressor(model) or known is not None:
        return known
    expansion = getattr(state, "expansion", None)
    if expansion is not None:
        columns = expansion.num_columns
    else:
        columns = (*getattr(state, "bias", np.zeros(1)).shape, 1)[0]
    return np.array([-1, 1]) if columns == 1 else np.arange(columns)


def is_regressor(model: Any) -> bool:
    """Whether the targets of a model are any numbers."""
    model = innermost(model)
    if not hasattr(model, "expansion"):
        return False
    loss = getattr(model, "loss", losses.hinge)
    return model.expansion.num_columns == 1 and not losses.takes_labels(loss)


def support(model: Any) -> Support:
    """The support vectors, true coefficients and mask of a model.

    Works on a single state and on states stacked by `jax.vmap`.

    Args:
      model: the state of any online algorithm, a `KernelModel`, or the solution of a
        kernel solver.

    Returns:
      A `Support`. Free slots are zero.

    Raises:
      ValueError: if the model has no support vectors: it is linear, or its features are
        random (`budgetjax.fourier`).
    """
    model = _inner(model)
    if isinstance(model, Labelled):
        found = support(model.model)
        if model.scaling is None:
            return found
        return found._replace(vectors=model.scaling.undone(np.asarray(found.vectors)))
    if isinstance(model, KernelModel):
        coefficients = model.coefficients.reshape(len(model.vectors), -1)
        return Support(model.vectors, coefficients, jnp.ones(len(coefficients), bool))
    if not _is_state(model) or not model.kernel.of_examples:
        raise ValueError(
            f"support: model must have support vectors, got {checks.named(model)}"
        )
    expansion = model.expansion
    coefficients = expansion.scale[..., None, None] * expansion.coefficients
    return Support(
        expansion.vectors[..., :-1, :],
        coefficients[..., :-1, :],
        expansion.mask[..., :-1],
    )


def prune(model: Any, size: int) -> Any:
    """The model with its `size` largest coefficients only; O(m log m).

    The budget of an SVM on a budget bounds the coefficients that matter, and not their
    number: what it leaves beyond is small, and pruned at little cost.

    Args:
      model: a `KernelModel`, the solution of a kernel solver, or the state of an online
        algorithm.
      size: support vectors to keep, at least 1; of a model with no more all are kept.

    Returns:
      A `KernelModel`, whose vectors are in their former order; in a `Labelled` if that
      was given. Of equal coefficients the first are kept; with several classes, of the
      sums of their squares.

    Raises:
      ValueError: if `size` is not an integer of at least 1, or the model has no support
        vectors, or is a regressor.

    Example:
      >>> import budgetjax as bj, numpy as np
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> bj.prune(bj.solve(bj.sdca, X, y, kernel=bj.RBF(1.0)), 2).vectors.shape
      (2, 1)

    References:
      Dekel and Singer (2006), "Support vector machines on a budget", Section 5.
    """
    size = checks.size("prune", "size", size)
    model = _inner(model)
    if is_regressor(model):
        raise ValueError("prune: model must be a classifier, got a regressor")
    if isinstance(model, Labelled):
        return model._replace(model=prune(model.model, size))
    vectors, coefficients, mask = map(np.asarray, support(model))
    active = np.flatnonzero(mask)
    lengths = np.linalg.norm(coefficients[active].astype(np.float64), axis=1)
    kept = active[np.sort(np.argsort(-lengths, kind="stable")[:size])]
    return KernelModel(
        kernel=model.kernel,
        vectors=jax.device_put(vectors[kept]),
        coefficients=jax.device_put(flat(coefficients[kept])),
        bias=getattr(model, "bias", jnp.zeros((), vectors.dtype)),
    )


def of_coefficients(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    coefficients: Float[Array, " n"],
    bias: Float[Array, ""],
) -> KernelModel:
    """The model of the examples whose coefficient is not 0. Not to be traced."""
    dtype = coefficients.dtype
    signed = np.asarray(y, dtype) * np.asarray(coefficients)
    active = np.flatnonzero(signed)
    return KernelModel(
        kernel=kernel,
        vectors=jax.device_put(np.asarray(X, dtype)[active]),
        coefficients=jax.device_put(signed[active]),
        bias=bias,
    )


def num_features(where: str, model: Any) -> int:
    """What a single model expects of a row."""
    model = innermost(model)
    if isinstance(model, LinearModel):
        return model.weights.shape[-1]
    if not isinstance(model, KernelModel) and not _is_state(model):
        raise ValueError(
            f"{where}: model must be the state of an online algorithm, or a model of a "
            f"solver, got {checks.named(model)}"
        )
    vectors = getattr(model, "expansion", model).vectors
    if vectors.ndim != 2:
        raise ValueError(
            f"{where}: model must be a single one, got a stack of shape "
            f"{vectors.shape[:-2]}; use jax.vmap"
        )
    return vectors.shape[1]


def rows(
    where: str,
    X: Any,
    num_features: int,
    dtype: np.dtype,
    first_row: int = 0,
) -> Float[Array, "n features"]:
    """Rows in the type of a model, if they fit it and are finite.

    `first_row` is the number of the first, in errors.
    """
    X = checks.array(where, "X", X)
    _check_shape(where, X.shape, num_features)
    X = checks.on_device(X, dtype)
    checks.check_finite(where, X, first_row)
    return X


def in_blocks(
    function: Callable[[Float[Array, "size features"]], Float[Array, "size ..."]],
    X: Float[Array, "n features"],
    shape: tuple[int, ...],
) -> Float[Array, "n ..."]:
    """What a function of rows, of this shape each, gives for all rows."""
    n = X.shape[0]
    size = min(n, PREDICTION_BLOCK)

    def block(index, results):
        # The last block starts early enough to be whole: `dynamic_slice` clamps.
        start = index * size
        new = function(jax.lax.dynamic_slice_in_dim(X, start, size))
        return jax.lax.dynamic_update_slice_in_dim(results, new, start, 0)

    results = jnp.zeros((n, *shape), X.dtype)
    return jax.lax.fori_loop(0, -(-n // size), block, results) if n else results


def flat(scores: Array | np.ndarray) -> Any:
    """Scores without the last axis, where the model has one column."""
    return scores[..., 0] if scores.shape[-1] == 1 else scores


def innermost(model: Any) -> Any:
    """The model of scaled rows, or the first of several."""
    while hasattr(model, "model"):
        model = model.model
    return model[0] if type(model) is tuple else model


def with_innermost(model: Any, new: Any) -> Any:
    """The same around another model of scaled rows."""
    if not hasattr(model, "model"):
        return new
    return model._replace(model=with_innermost(model.model, new))


def labelled(model: Any) -> Labelled:
    """What takes raw rows in a model, or the model as it is."""
    model = _inner(model)
    return model if isinstance(model, Labelled) else Labelled(model)


def scaled(where: str, model: Labelled, X: Any) -> np.ndarray:
    """Raw rows as the model in it takes them."""
    return _dense(model, _taken(where, model, X))


def coded(where: str, model: Labelled, y: Any, first_row: int = 0) -> np.ndarray:
    """Targets as the model in it takes them.

    Raises:
      ValueError: if one is no label of the model; `first_row` is the number of the
        first target.
    """
    y = np.asarray(y)
    if model.classes is None:
        return y - model.intercept if model.intercept else y
    codes = codes_of(model.classes, y)
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        raise ValueError(
            f"{where}: y must be one of {listed(model.classes)}, got "
            f"{y.tolist()[row]!r} in row {first_row + row}"
        )
    return learner_labels(codes, len(model.classes))


def listed(classes: np.ndarray | None) -> str:
    """Some classes, for messages."""
    if classes is None:
        return "none"
    shown = ", ".join(repr(label) for label in classes[:10].tolist())
    return shown + (", ..." if len(classes) > 10 else "")


def codes_of(
    classes: Shaped[np.ndarray, " classes"], y: Shaped[np.ndarray, " n"]
) -> Int32[np.ndarray, " n"]:
    """The number of each label's class, -1 where it is none of them."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([known.get(label, -1) for label in y.tolist()], np.int32)


def learner_labels(
    codes: Integer[np.ndarray, " n"], num_classes: int
) -> Int32[np.ndarray, " n"]:
    """Numbers of classes as learners have them: -1 and +1 where there are two."""
    codes = codes.astype(np.int32)
    return 2 * codes - 1 if num_classes == 2 else codes


def padded(
    array: Shaped[np.ndarray, "n ..."], length: int, value: int = 0
) -> Shaped[np.ndarray, "length ..."]:
    """The array with more rows of one value."""
    more = length - len(array)
    if not more:
        return array
    return np.concatenate(
        [array, np.full((more, *array.shape[1:]), value, array.dtype)]
    )


def block_size(num_rows: int, num_features: int) -> int:
    """Rows to a block, a power of two.

    All blocks of some rows are of one size, the last one filled up, and few sizes are
    ever met, so that few programs are compiled. At most a quarter of what is computed
    is filling, but of less than 256 rows.
    """
    quarter = _power_of_two(num_rows // 4)
    most = _power_of_two(MOST_NUMBERS // max(1, num_features))
    return max(FEWEST_ROWS, min(quarter, most, MOST_ROWS))


def _power_of_two(number: int) -> int:
    """The largest that is not above the number; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number else 0


def _inner(model: Any) -> Any:
    """The model itself, of what has one."""
    while not isinstance(model, Labelled) and hasattr(model, "model"):
        model = model.model
    return model


def dtype_of(model: Any) -> np.dtype:
    """The type of the rows of a model."""
    model = innermost(model)
    if isinstance(model, LinearModel):
        return model.weights.dtype
    return getattr(model, "expansion", model).vectors.dtype


def _taken(where: str, model: Labelled, X: Any) -> Any:
    """Raw rows that fit the model, as an array or a CSR matrix."""
    X = _columns(where, model, X)
    sparse = hasattr(X, "tocsr")
    X = checks.sparse(where, "X", X) if sparse else checks.array(where, "X", X)
    _check_shape(where, X.shape, num_features(where, model))
    return X if sparse else np.asarray(X)


def _dense(model: Labelled, X: Any) -> np.ndarray:
    """Rows that are scaled, and dense."""
    X = X.toarray() if hasattr(X, "tocsr") else X
    if model.scaling is None:
        return X
    return model.scaling.apply(X, dtype_of(model))


def _columns(where: str, model: Labelled, X: Any) -> Any:
    """The columns of a data frame that the model knows, in its order."""
    found = getattr(X, "columns", None)
    names = [] if found is None else list(found)
    known = model.feature_names
    if known is None or not names or not all(isinstance(n, str) for n in names):
        return X
    lacks = [repr(name) for name in known if name not in names]
    if lacks:
        raise ValueError(
            f"{where}: X must have the columns that the model was trained on, and "
            f"lacks {', '.join(lacks[:10])}"
        )
    return X[list(known)]


def _is_state(model: Any) -> bool:
    return hasattr(model, "expansion") and hasattr(model, "kernel")


def _check_shape(where: str, shape: tuple[int, ...], num_features: int) -> None:
    if len(shape) != 2 or shape[1] != num_features:
        raise ValueError(
            f"{where}: X must have shape (n, {num_features}), {num_features} being the "
            f"model's num_features, got {shape}"
        )


def _scores(where: str, model: Any, X: Any, first_row: int = 0) -> Any:
    """The scores of rows by a model of any kind."""
    model, features = _inner(model), num_features(where, model)
    if isinstance(model, Labelled):
        return _labelled_scores(where, model, X)
    if isinstance(model, LinearModel):
        return _linear_scores(where, model, X, features, first_row)
    if isinstance(model, KernelModel):
        model = _padded(model)
        X = rows(where, X, features, model.vectors.dtype, first_row)
        kernel, vectors, coefficients, bias = model
        columns = coefficients.shape[1]
        return _kernel_scores(
            kernel, vectors, None, coefficients, None, bias, X, columns
        )
    expansion = model.expansion
    X = rows(where, X, features, expansion.vectors.dtype, first_row)
    return _kernel_scores(
        model.kernel,
        expansion.vectors,
        expansion.squares,
        expansion.terms,
        expansion.scale,
        None,
        X,
        expansion.num_columns,
    )


def _labelled_scores(where: str, model: Labelled, X: Any) -> np.ndarray:
    """The scores of raw rows, which are scaled, and made dense, by blocks."""
    X = _taken(where, model, X)
    several = type(model.model) is tuple
    parts = model.model if several else (model.model,)
    n, features = X.shape
    size = block_size(n, features)
    linear = isinstance(parts[0], LinearModel) and model.scaling is None
    found = []
    for start in range(0, max(1, n), size):
        rows = X[start : start + size]
        length = rows.shape[0]
        if not linear:
            # On the device once, however many models score it.
            rows = checks.on_device(padded(_dense(model, rows), size), dtype_of(model))
        scores = [
            np.asarray(_scores(where, part, rows, start))[:length] for part in parts
        ]
        found.append(np.stack(scores, axis=1) if several else scores[0])
    scores = np.concatenate(found)
    return scores.astype(np.float64) + model.intercept if model.intercept else scores


@functools.partial(jax.jit, static_argnames="columns")
def _kernel_scores(
    kernel: Kernel,
    vectors: Float[Array, "m d"],
    squares: Float[Array, " m"] | None,
    terms: Float[Array, "m both"],
    scale: Float[Array, ""] | None,
    bias: Float[Array, "*classes"] | None,
    X: Float[Array, "n d"],
    columns: int,
) -> Float[Array, "n ..."]:
    """One program for the models of all learners with this kernel and these sizes."""
    known = kernels.squared_norms(vectors) if squares is None else squares

    def block(rows):
        gram = kernel.gram(rows, vectors, kernels.squared_norms(rows), known)
        products = jnp.matmul(gram, terms[:, :columns], precision="highest")
        return products if scale is None else scale * products

    scores = in_blocks(block, X, (columns,))
    return flat(scores if bias is None else scores + jnp.reshape(bias, (1, -1)))


def _padded(model: KernelModel) -> KernelModel:
    """The model with some vectors of coefficient 0, so that few sizes are compiled.

    Its coefficients have a column each.
    """
    number = model.coefficients.shape[0]
    # To a multiple of a power of two: four sizes an octave, from 64 on.
    unit = 2 ** max(6, number.bit_length() - 3)
    more = -number % unit if number else unit
    # By NumPy where it can be: compiled for every number, it takes longer.
    numpy: Any = jnp if isinstance(model.vectors, Tracer) else np
    columns = model.coefficients.shape[1:] or (1,)
    coefficients = numpy.reshape(model.coefficients, (number, *columns))
    return model._replace(
        vectors=numpy.pad(model.vectors, ((0, more), (0, 0))),
        coefficients=numpy.pad(coefficients, ((0, more), (0, 0))),
    )


def _linear_scores(
    where: str, model: LinearModel, X: Any, features: int, first_row: int
) -> Array:
    """The scores by weights, of dense or sparse rows; O(n d), or O(numbers)."""
    host = hasattr(X, "tocsr") or isinstance(X, np.ndarray)
    if host and not isinstance(model.weights, Tracer):
        # NumPy and SciPy need neither a copy of the rows nor a compiled program.
        sparse = hasattr(X, "tocsr")
        X = checks.sparse(where, "X", X) if sparse else checks.array(where, "X", X)
        _check_shape(where, X.shape, features)
        if not sparse:
            checks.check_finite(where, X, first_row)
        scores = X @ np.asarray(model.weights).T + np.asarray(model.bias)
        return checks.on_device(scores, model.weights.dtype)
    if hasattr(X, "products"):  # `SparseRows`, finite since they were made
        _check_shape(where, X.shape, features)
    else:
        X = rows(where, X, features, model.weights.dtype, first_row)
    return _weighed(model, X)


@jax.jit
def _weighed(model: LinearModel, X: Any) -> Float[Array, " n *models"]:
    weights, bias = model
    if isinstance(X, jax.Array):
        products = jnp.matmul(X, weights.T, precision="highest")
    elif weights.ndim == 1:
        products = X.products(weights)
    else:
        products = jax.lax.map(X.products, weights).T
    return products + (bias[None] if bias.ndim else bias)
