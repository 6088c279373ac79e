"""Scores, predictions and support vectors of every kind of model.

A model is the state of an online algorithm, or anything else with a `kernel` and an
`expansion`; a `KernelModel`, from a kernel solver; a `LinearModel`; one of these in a
`Labelled`, which takes raw rows; or an object that has one of them as its `model`, such
as the solution of a solver.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.sharding import PartitionSpec
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Shaped

from budgetjax import _checks, _pytree, _sharding, kernels, losses
from budgetjax._pytree import Name
from budgetjax.kernels import Kernel, Mapped
from budgetjax.scaling import Scaling

# Rows per block of scores: their kernel rows fit in a CPU's cache.
PREDICTION_BLOCK = 1024
# Limits for the rows that go to the device at once, and for their values.
FEWEST_ROWS, MOST_ROWS, MOST_NUMBERS = 64, 65_536, 2**22


def decision_function(model: Any, X: Any) -> Any:
    """The scores `f(x)` of every row; O(n B d).

    Rows are scored in blocks, so that no `(n, B)` matrix is built.

    Args:
      model: the state of an online algorithm, a `KernelModel`, a `LinearModel`, a
        `Labelled`, or the result of `solve` or `fit_stream`.
      X: shape `(n, num_features)`; for a `LinearModel` also a matrix of `scipy.sparse`
        or `SparseRows`. A `Labelled` takes raw rows, also sparse ones, and finds the
        columns of a data frame by name if it was trained on named columns.

    Returns:
      Shape `(n,)` for a model with one column of coefficients, else `(n, columns)`; a
      NumPy array for a `Labelled`.

    Raises:
      ValueError: if the shape of `X` does not fit the model, or `X` is not finite;
        inside `jit` or `vmap` only shapes are checked.

    Example:
      >>> model = bj.LinearModel(np.array([1.0, -1.0]), np.array(0.5))
      >>> bj.decision_function(model, np.array([[2.0, 1.0]])).tolist()
      [1.5]
    """
    return score_rows("decision_function", model, X)


def predict(model: Any, X: Any) -> Any:
    """The predicted label, or value, of every row; O(n B d).

    Args:
      model: as for `decision_function`.
      X: as for `decision_function`.

    Returns:
      For a regressor the scores, or their exponentials if the scores of its loss are
      logarithms, shape `(n,)`, or `(n, num_outputs)` for several outputs. For a
      classifier integers, shape `(n,)`: -1 or +1 (-1 for a score of 0), or the class
      with the largest score, the lowest on ties. A `Labelled` returns the labels of the
      data.

    Example:
      >>> X = jnp.array([[0.0], [3.0]])
      >>> model = bj.KernelModel(bj.RBF(1.0), X, jnp.array([1.0, -1.0]), jnp.array(0.0))
      >>> bj.predict(model, X).tolist()
      [1, -1]
    """
    return predict_from_scores(model, score_rows("predict", model, X))


class KernelModel(NamedTuple):
    """A kernel model, `f(x) = sum_j coefficients[j] k(vectors[j], x) + bias`.

    Attributes:
      kernel: k.
      vectors: the support vectors, shape `(m, d)`.
      coefficients: shape `(m,)`, or `(m, C)` for C classes or outputs.
      bias: a scalar, or shape `(C,)`; 0 for a model without one.
      inverse_link: the meaning of the scores: `budgetjax.losses.LABELS`; `SOFTMAX`,
        labels with probabilities; `IDENTITY`, values; or `EXP`, logarithms of values.
    """

    kernel: Kernel
    vectors: Float[Array, "m d"]
    coefficients: Float[Array, " m *classes"]
    bias: Float[Array, "*classes"]
    inverse_link: Name = losses.LABELS

    __repr__ = _pytree.record_repr
    decision_function, predict = decision_function, predict


class LinearModel(NamedTuple):
    """A linear classifier, `f(x) = weights . x + bias`.

    Attributes:
      weights: shape `(d,)`.
      bias: a scalar; 0 for a model without one.
    """

    weights: Float[Array, " d"]
    bias: Float[Array, ""]

    inverse_link = losses.LABELS
    __repr__ = _pytree.record_repr
    decision_function, predict = decision_function, predict


class Labelled(NamedTuple):
    """A model that takes raw rows, scales them, and returns the labels of the data.

    Attributes:
      model: a model of scaled rows, or a tuple of binary models, one per class.
      scaling: the mean and variance of the features; None if they are not scaled.
      classes: the labels, in the order of the scores, shape `(C,)`; None for the labels
        of the learner, and for regressors.
      feature_names: names of the columns, if known.
      intercept: a number added to all scores, or shape `(num_outputs,)`.
      unit: a factor of all scores, applied before, or shape `(num_outputs,)`.
      calibration: the factor of the scores in the sigmoid or softmax that gives
        probabilities; None before `calibrated`, or `refit` with `calibrate=True`.
    """

    model: Any
    scaling: Scaling | None = None
    classes: Shaped[np.ndarray, " classes"] | None = None
    feature_names: tuple[str, ...] | None = None
    intercept: float | Float[np.ndarray, " outputs"] = 0.0
    calibration: float | None = None
    unit: float | Float[np.ndarray, " outputs"] = 1.0

    __repr__ = _pytree.record_repr
    decision_function, predict = decision_function, predict


class Support(NamedTuple):
    """The support set of a model.

    Attributes:
      vectors: shape `(capacity, num_features)`; raw rows for a `Labelled`.
      coefficients: with the scale multiplied in, shape `(capacity, columns)`.
      mask: True where a slot is active, shape `(capacity,)`.
    """

    vectors: Float[Array | np.ndarray, "*models capacity features"]
    coefficients: Float[Array | np.ndarray, "*models capacity columns"]
    mask: Bool[Array | np.ndarray, "*models capacity"]

    __repr__ = _pytree.record_repr


def predict_from_scores(model: Any, scores: Any) -> Any:
    """The labels, or values, for these scores of a model."""
    numpy: Any = np if isinstance(scores, np.ndarray) else jnp
    if is_regressor(model):
        return numpy.exp(scores) if inverse_link(model) == losses.EXP else scores
    binary = scores.ndim == 1
    best = scores > 0 if binary else numpy.argmax(scores, axis=1)
    known = as_labelled(model).classes
    if known is not None and isinstance(scores, Tracer):
        raise ValueError(
            "predict: rows must have values where the labels are those of data, got "
            "traced ones; take the largest of decision_function or probabilities"
        )
    if known is not None:
        return known[np.asarray(best).astype(np.intp)]
    labels = numpy.where(best, 1, -1) if binary else best
    return labels.astype(np.int32)


def class_labels(model: Any) -> np.ndarray | None:
    """The labels in the order of the scores; None for a regressor."""
    known = as_labelled(model).classes
    if is_regressor(model) or known is not None:
        return known
    columns = num_columns(model)
    return np.array([-1, 1]) if columns == 1 else np.arange(columns)


def imputes_missing(model: Any) -> bool:
    """Whether a NaN in a row is replaced by the mean of its feature."""
    scaling = as_labelled(model).scaling
    return scaling is not None and scaling.fills


def inverse_link(model: Any) -> Name:
    """The meaning of the scores of a model, which a learner takes from its loss."""
    model = unwrap(model)
    loss = getattr(model, "loss", losses.hinge)
    return getattr(model, "inverse_link", losses.inverse_link(loss))


def approximate_link(model: Any) -> Name:
    """The meaning of approximate scores of a model, which give no probabilities."""
    link = inverse_link(model)
    return losses.LABELS if link == losses.SOFTMAX else link


def is_regressor(model: Any) -> bool:
    """Whether the targets of a model are real numbers."""
    return inverse_link(model) in (losses.IDENTITY, losses.EXP)


def num_columns(model: Any) -> int:
    """The number of columns of the scores of a single model."""
    model = unwrap(model)
    if _is_state(model):
        return model.expansion.num_columns
    return (*getattr(model, "coefficients", np.zeros(1)).shape, 1)[1]


def target_shape(model: Any) -> tuple[int, ...]:
    """The shape of one target: `()`, or `(num_outputs,)` for several."""
    if not is_regressor(model):
        return ()
    columns = num_columns(model)
    return (columns,) if columns > 1 else ()


def target_dtype(state: Any) -> np.dtype:
    """The dtype of a state's targets: integers for several classes."""
    integers = state.expansion.num_columns > 1 and not is_regressor(state)
    return np.dtype(np.int32 if integers else state.expansion.vectors.dtype)


def support(model: Any) -> Support:
    """The support vectors, true coefficients and mask of a model; O(B (d + C)).

    It works on a single state and on states stacked by `jax.vmap`.

    Args:
      model: a model as for `decision_function`.

    Returns:
      A `Support`. Free slots are zero.

    Raises:
      ValueError: if the model has no support vectors because it is linear or its
        features are random (`budgetjax.fourier`).

    Example:
      >>> state = bj.perceptron.init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.perceptron.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.support(state).vectors[0].tolist()
      [1.0, 2.0]
    """
    model = unwrap_labelled(model)
    if isinstance(model, Labelled):
        found = support(model.model)
        if np.any(model.unit != 1):
            raw = np.asarray(found.coefficients) * model.unit
            found = found._replace(coefficients=raw)
        if model.scaling is None:
            return found
        return found._replace(vectors=model.scaling.undone(np.asarray(found.vectors)))
    if is_compact(model):
        raise ValueError(
            "support: model must have support vectors in the space of the examples, "
            "got a compact one, which has them mapped"
        )
    if isinstance(model, KernelModel):
        coefficients = model.coefficients.reshape(-1, num_columns(model))
        return Support(model.vectors, coefficients, jnp.ones(len(coefficients), bool))
    if not _is_state(model) or not model.kernel.of_examples:
        raise ValueError(
            f"support: model must have support vectors, got {_checks.named(model)}"
        )
    expansion = model.expansion
    coefficients = expansion.scale[..., None, None] * expansion.coefficients
    return Support(
        expansion.vectors[..., :-1, :],
        coefficients[..., :-1, :],
        expansion.mask[..., :-1],
    )


def prune(
    model: Any,
    size: int,
    X: Any = None,
    y: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
) -> Any:
    """The model reduced to its `size` largest coefficients; O(m log m).

    At the optimum of an SVM, many small coefficients matter, and removing them shifts
    the scores. Pass the training set too to choose the bias with the fewest errors on
    it, midway between two scores. `budgetjax.refit` of the result recomputes the
    coefficients, which helps far more: an SVM with 1,000 MNIST digits, pruned to 100
    vectors, makes 41 percent errors with the old coefficients and 10 after a refit.

    Cost: a training set adds O(n size d).

    Args:
      model: a model with support vectors.
      size: the number of support vectors to keep, at least 1; all if the model has
        fewer.
      X: examples for choosing the bias, shape `(n, num_features)`; None keeps it.
      y: their labels, two classes, shape `(n,)`.
      weight: their weights, at least 0, shape `(n,)`.

    Returns:
      A `KernelModel` with the vectors in their old order; in a `Labelled` if `model` is
      one. With several columns, the norms of the coefficients are compared; on ties the
      first vectors are kept.

    Raises:
      ValueError: if `size` is not an integer of at least 1, the model has no support
        vectors, or a training set is invalid or the model has more than two classes.

    Example:
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> svm = bj.solve(bj.sdca, X, y, kernel=bj.RBF(1.0))
      >>> small = bj.prune(svm, 2, X, y)
      >>> small.vectors.shape, small.predict(X).tolist()
      ((2, 1), [-1, 1, 1])

    References:
      Dekel and Singer (2006), "Support vector machines on a budget", Section 5,
      https://papers.nips.cc/paper/3125-support-vector-machines-on-a-budget.
    """
    where = "prune"
    _checks.on_host(where, model, X, y, weight)
    size = _checks.size(where, "size", size)
    model = unwrap_labelled(model)
    if isinstance(model, Labelled):
        parts = map_parts(lambda part: prune(part, size), model)
        small = model._replace(model=parts, calibration=None)
    else:
        small = to_kernel_model(model)
        coefficients = np.asarray(support(small).coefficients, np.float64)
        lengths = np.linalg.norm(coefficients, axis=1)
        kept = np.sort(np.argsort(-lengths, kind="stable")[:size])
        small = small._replace(
            vectors=jax.device_put(np.asarray(small.vectors)[kept]),
            coefficients=jax.device_put(np.asarray(small.coefficients)[kept]),
            inverse_link=approximate_link(model),
        )
    if X is None:
        return small
    scores = np.asarray(score_rows(where, small, X), np.float64)
    if scores.ndim != 1 or y is None:
        got = "no y" if y is None else f"{scores.shape[1]} columns"
        raise ValueError(
            f"{where}: X needs y, and a model of two classes, to find the bias; got "
            f"{got}"
        )
    codes, masses = encode_labels_and_weights(where, small, len(scores), y, weight)
    known = unwrap(small)
    shift = jnp.asarray(best_shift(scores, codes, masses), known.bias.dtype)
    return rewrap(small, known._replace(bias=known.bias + shift))


def best_shift(
    scores: Float[np.ndarray, " n"],
    codes: Int32[np.ndarray, " n"],
    masses: Float[np.ndarray, " n"],
) -> float:
    """The shift of all scores that minimises the weight of errors.

    It is midway between two scores, the lowest pair on ties; O(n log n). The codes are
    0 and 1, and the masses are the weights of the examples.
    """
    order = np.argsort(scores, kind="stable")
    scores, codes, masses = scores[order], codes[order], masses[order]
    # Errors if all examples up to each score, or none, are classified as negative.
    errors = np.cumsum(np.append(masses @ (1 - codes), masses * (2 * codes - 1)))
    # No threshold separates equal scores.
    errors[1:-1][scores[1:] == scores[:-1]] = np.inf
    beyond = np.concatenate([[scores[0] - 1], scores, [scores[-1] + 1]])
    best = int(np.argmin(errors))
    return -float(beyond[best] + beyond[best + 1]) / 2


def weight_norm(where: str, model: Any) -> float:
    """The norm of the weight vector of a binary model, without the bias; O(m^2 d)."""
    model = unwrap(model)
    if isinstance(model, LinearModel):
        return float(np.linalg.norm(np.asarray(model.weights, np.float64)))
    small = to_kernel_model(model)
    coefficients = np.asarray(small.coefficients, np.float64)
    images = np.asarray(values_at_vectors(where, small), np.float64)
    return float(np.sqrt(max(coefficients @ images, 0)))


def values_at_vectors(where: str, model: KernelModel) -> Float[Array, " m *classes"]:
    """The values of f, without the bias, at the model's support vectors; O(m^2 d)."""
    unbiased = model._replace(bias=jnp.zeros_like(model.bias))
    return score_rows(where, unbiased, model.vectors)


def compact(model: Any) -> Any:
    """A smaller model with the same predictions; O(m d r).

    Only the support vectors and their coefficients are kept. Under a `budgetjax.Mapped`
    kernel to r < d features, the vectors are stored as mapped points: m r + d r numbers
    in place of m d + d r. The model can predict and be saved, but not learn.

    Args:
      model: a model with support vectors.

    Returns:
      A `KernelModel`; in a `Labelled` if `model` is one.

    Raises:
      ValueError: if the model has no support vectors.

    Example:
      >>> kernel = bj.Mapped(bj.RBF(1.0), np.ones((20, 2), np.float32))
      >>> state = bj.perceptron.init(kernel, num_features=20, budget=5)
      >>> state = bj.perceptron.step(state, np.ones(20, np.float32), 1)
      >>> bj.compact(state).vectors.shape
      (1, 2)
    """
    _checks.on_host("compact", model)
    model = unwrap_labelled(model)
    if isinstance(model, Labelled):
        return model._replace(model=map_parts(compact, model))
    if is_compact(model):
        return model
    small = to_kernel_model(model)
    kernel = small.kernel
    if not isinstance(kernel, Mapped) or np.ndim(kernel.matrix) != 2:
        return small
    features, rank = kernel.matrix.shape
    if rank >= features:
        return small
    return small._replace(
        kernel=dataclasses.replace(kernel, mapped_vectors=True),
        vectors=jnp.matmul(small.vectors, kernel.matrix, precision="highest"),
    )


def to_kernel_model(model: Any) -> KernelModel:
    """A state or kernel model as a `KernelModel`, without free slots."""
    vectors, coefficients, mask = map(np.asarray, support(model))
    vectors, coefficients = vectors[mask], squeeze_columns(coefficients[mask])
    zeros = np.zeros(coefficients.shape[1:], vectors.dtype)
    vectors, coefficients, zeros = jax.device_put((vectors, coefficients, zeros))
    bias = getattr(model, "bias", zeros)
    return KernelModel(model.kernel, vectors, coefficients, bias, inverse_link(model))


def map_parts(function: Callable[[Any], Any], model: Labelled) -> Any:
    """Applies a function to the model inside, or to each of several."""
    parts = model.model
    return tuple(map(function, parts)) if type(parts) is tuple else function(parts)


def is_compact(model: Any) -> bool:
    """Whether the support vectors are mapped points."""
    return getattr(getattr(model, "kernel", None), "mapped_vectors", False)


def from_coefficients(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    coefficients: Float[Array, " n"],
    bias: Float[Array, ""],
) -> KernelModel:
    """The model of the examples with nonzero coefficients; it cannot be traced."""
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
    """The number of features of a single model."""
    model = unwrap(model)
    if isinstance(model, LinearModel):
        return len(model.weights)
    if not isinstance(model, KernelModel) and not _is_state(model):
        raise ValueError(
            f"{where}: model must be the state of an online algorithm, or a model of a "
            f"solver, got {_checks.named(model)}"
        )
    kernel = getattr(model, "kernel", None)
    if isinstance(kernel, Mapped) and kernel.mapped_vectors:
        return kernel.matrix.shape[0]
    vectors = getattr(model, "expansion", model).vectors
    if vectors.ndim != 2:
        raise ValueError(
            f"{where}: model must be a single one, got a stack of shape "
            f"{vectors.shape[:-2]}; use jax.vmap"
        )
    return vectors.shape[1]


def cast_rows(
    where: str, X: Any, num_features: int, dtype: np.dtype
) -> Float[Array, "n features"]:
    """Rows in the dtype of a model; checks their shape, not that they are finite."""
    X = _checks.array(where, "X", X)
    _check_shape(where, X.shape, num_features)
    return _checks.on_device(X, dtype)


def squeeze_columns(scores: Array | np.ndarray) -> Any:
    """Scores, without the last axis if the model has one column."""
    return scores[..., 0] if scores.shape[-1] == 1 else scores


def unwrap(model: Any) -> Any:
    """The state, kernel model or linear model inside, or the first of several."""
    while hasattr(model, "model"):
        model = model.model
    return model[0] if type(model) is tuple else model


def rewrap(model: Any, new: Any) -> Any:
    """The model with another state or model inside."""
    if not hasattr(model, "model"):
        return new
    return model._replace(model=rewrap(model.model, new))


def add_intercept(model: Any, more: float | np.ndarray) -> Any:
    """The model with `more` added to the scores of the model in the `Labelled`."""
    known = as_labelled(model)
    return _with_labels(model, intercept=known.intercept + known.unit * more)


def with_calibration(model: Any, factor: float | None) -> Any:
    """The model, in a `Labelled`, with this calibration; None removes it."""
    return _with_labels(model, calibration=factor)


def _with_labels(model: Any, **changes: Any) -> Any:
    """The model with these fields in its `Labelled`, or in a new one around it."""
    if isinstance(getattr(model, "model", None), Labelled):
        return model._replace(model=model.model._replace(**changes))
    whole = model if isinstance(model, Labelled) else Labelled(model)
    return whole._replace(**changes)


def as_labelled(model: Any) -> Labelled:
    """The `Labelled` in a model, or a new one around it."""
    model = unwrap_labelled(model)
    return model if isinstance(model, Labelled) else Labelled(model)


def scale_rows(where: str, model: Labelled, X: Any) -> np.ndarray:
    """Raw rows in the form that the model inside takes."""
    return _dense(model, _taken(where, model, X))


def encode_targets(
    where: str, model: Labelled, y: Any, first_row: int = 0
) -> np.ndarray:
    """Targets in the form that the model inside takes.

    `first_row` is the number of the first row, for error messages.

    Raises:
      ValueError: if a target is not a label of the model.
    """
    y = np.asarray(y)
    if model.classes is None:
        if not np.any(model.intercept) and np.all(model.unit == 1):
            return y
        y = y[:, None] if np.ndim(model.intercept) > 0 and y.ndim == 1 else y
        logarithms = inverse_link(model) == losses.EXP
        away = y if logarithms else y - np.asarray(model.intercept)
        return away / unit_of_targets(model)
    codes = encode_labels(where, model.classes, y, first_row)
    return 2 * codes - 1 if len(model.classes) == 2 else codes


def encode_labels(
    where: str, classes: np.ndarray, y: np.ndarray, first_row: int = 0
) -> Int32[np.ndarray, " n"]:
    """The index of each label among the classes; raises if one is unknown."""
    codes = label_indices(classes, y)
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        raise ValueError(
            f"{where}: y must be one of {format_labels(classes)}, got "
            f"{y.tolist()[row]!r} in row {first_row + row}"
        )
    return codes


def encode_labels_and_weights(
    where: str, model: Any, num_rows: int, y: Any, weight: Any
) -> tuple[Int32[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The index of each row's label, and the weights, after checks."""
    known, y, expected = class_labels(model), np.asarray(y), (num_rows,)
    if known is None:
        raise ValueError(f"{where}: model must be a classifier, got a regressor")
    if y.shape != expected:
        raise ValueError(
            f"{where}: y must have shape {expected}, one label per row of X, got "
            f"{y.shape}"
        )
    weights = np.ones(num_rows) if weight is None else np.asarray(weight, np.float64)
    if weights.shape != expected or not np.all((weights >= 0) & np.isfinite(weights)):
        raise ValueError(
            f"{where}: weight must be finite and at least 0, of shape {expected}, one "
            f"per row of X, got {weights.tolist()[:3]} of shape {weights.shape}"
        )
    return encode_labels(where, known, y), weights


def unit_of_targets(model: Any) -> Any:
    """The unit of the targets that the model inside sees."""
    model = as_labelled(model)
    exponentiates = inverse_link(model) == losses.EXP
    return np.exp(model.intercept) if exponentiates else model.unit


def format_labels(classes: np.ndarray | None) -> str:
    """The first classes, for error messages."""
    if classes is None:
        return "none"
    shown = ", ".join(repr(label) for label in classes[:10].tolist())
    return shown + (", ..." if len(classes) > 10 else "")


def label_indices(
    classes: Shaped[np.ndarray, " classes"], y: Shaped[np.ndarray, " n"]
) -> Int32[np.ndarray, " n"]:
    """The index of each label among the classes, or -1."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([known.get(label, -1) for label in y.tolist()], np.int32)


def pad_rows(
    array: Shaped[np.ndarray, "n ..."], length: int, value: int = 0
) -> Shaped[np.ndarray, "length ..."]:
    """The array padded to this length with rows of one value."""
    more = np.full((length - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, more]) if len(more) else array


def block_size(num_rows: int, num_features: int) -> int:
    """The number of rows per block, a power of two.

    All blocks of a call have the same size (the last one is padded), and few sizes
    occur at all, so few programs are compiled. From 256 rows on, at most a quarter of
    the work is padding.
    """
    quarter = _power_of_two(num_rows // 4)
    most = _power_of_two(MOST_NUMBERS // max(1, num_features))
    return max(FEWEST_ROWS, min(quarter, most, MOST_ROWS))


def _power_of_two(number: int) -> int:
    """The largest power of two up to a number; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number else 0


def unwrap_labelled(model: Any) -> Any:
    """The `Labelled` inside, or the innermost model."""
    while not isinstance(model, Labelled) and hasattr(model, "model"):
        model = model.model
    return model


def dtype_of(model: Any) -> np.dtype:
    """The dtype of a model's rows."""
    model = unwrap(model)
    if isinstance(model, LinearModel):
        return model.weights.dtype
    return getattr(model, "expansion", model).vectors.dtype


def _taken(where: str, model: Labelled, X: Any) -> Any:
    """Raw rows as an array or a CSR matrix, after a check of their shape."""
    X = order_columns(where, model.feature_names, X)
    sparse = hasattr(X, "tocsr")
    X = _checks.sparse(where, "X", X) if sparse else _checks.array(where, "X", X)
    _check_shape(where, X.shape, num_features(where, model))
    return X if sparse else np.asarray(X)


def _dense(model: Labelled, X: Any) -> np.ndarray:
    """Scaled dense rows."""
    X = X.toarray() if hasattr(X, "tocsr") else X
    if model.scaling is None:
        return X
    return model.scaling.apply(X, dtype_of(model))


def column_names(X: Any) -> tuple[str, ...] | None:
    """The names of the columns of a data frame or an Arrow table, if it has any."""
    for attribute in ("columns", "column_names"):
        names: tuple[Any, ...] = tuple(getattr(X, attribute, ()))
        if names and all(isinstance(name, str) for name in names):
            return names
    return None


def check_columns(
    where: str, known: Sequence[str], names: Sequence[str] | None
) -> None:
    """Raises if a known column is missing among these names."""
    lacks = [] if names is None else [one for one in known if one not in names]
    if lacks:
        raise ValueError(
            f"{where}: X must have the columns that the model was trained on, and "
            f"lacks {', '.join(map(repr, lacks[:10]))}"
        )


def order_columns(where: str, known: Sequence[str] | None, X: Any) -> Any:
    """The known columns of a data frame or an Arrow table, in the known order."""
    names = column_names(X)
    if known is None or names is None:
        return X
    check_columns(where, known, names)
    # Arrow and polars have `select`; pandas does not.
    return X.select(list(known)) if hasattr(type(X), "select") else X[list(known)]


def _is_state(model: Any) -> bool:
    return hasattr(model, "expansion") and hasattr(model, "kernel")


def _check_shape(where: str, shape: tuple[int, ...], num_features: int) -> None:
    if len(shape) != 2 or shape[1] != num_features:
        raise ValueError(
            f"{where}: X must have shape (n, {num_features}), {num_features} being the "
            f"model's num_features, got {shape}"
        )


def score_rows(where: str, model: Any, X: Any, first_row: int = 0) -> Any:
    """The scores of rows by a model of any kind."""
    model, features = unwrap_labelled(model), num_features(where, model)
    if isinstance(model, Labelled):
        return _labelled_scores(where, model, X)
    if isinstance(model, LinearModel):
        return _linear_scores(where, model, X, features, first_row)
    X = cast_rows(where, X, features, dtype_of(model))
    if isinstance(model, KernelModel):
        kernel, vectors, terms, bias, _ = _padded(model)
        squares, scale, columns = None, None, terms.shape[1]
    else:
        kernel, expansion, bias = model.kernel, model.expansion, None
        vectors, squares = expansion.vectors, expansion.squares
        terms, scale = expansion.terms, expansion.scale
        columns = expansion.num_columns
    scores, finite = _kernel_scores(
        kernel, vectors, squares, terms, scale, bias, X, columns
    )
    if not isinstance(finite, Tracer) and not finite:
        _checks.check_finite(where, X, first_row)
    return scores


def _labelled_scores(where: str, model: Labelled, X: Any) -> Any:
    """The scores of raw rows, which are scaled and made dense in blocks."""
    if _checks.is_traced((model.model, X)):
        if model.scaling is not None or type(model.model) is tuple:
            raise ValueError(
                f"{where}: rows must have values where a model scales them, or is of "
                "several solvers, got traced ones; budgetjax.export makes a program"
            )
        scores = score_rows(where, model.model, X)
        shift = jnp.asarray(model.intercept, scores.dtype)
        return scores + jnp.broadcast_to(shift, scores.shape[1:])[None]
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
            # The block goes to the device once, for all models.
            rows = _checks.on_device(
                pad_rows(_dense(model, rows), size), dtype_of(model)
            )
        scores = [
            np.asarray(score_rows(where, part, rows, start))[:length] for part in parts
        ]
        found.append(np.stack(scores, axis=1) if several else scores[0])
    scores = np.concatenate(found)
    if not np.any(model.intercept) and np.all(model.unit == 1):
        return scores
    return model.unit * scores.astype(np.float64) + np.asarray(model.intercept)[None]


@functools.partial(jax.jit, static_argnums=7)
@functools.partial(
    _sharding.automatic,
    specs=lambda *given: (_sharding.of_rows(given[6]), PartitionSpec()),
)
def _kernel_scores(
    kernel: Kernel,
    vectors: Float[Array, "m r"],
    squares: Float[Array, " m"] | None,
    terms: Float[Array, "m both"],
    scale: Float[Array, ""] | None,
    bias: Float[Array, "*classes"] | None,
    X: Float[Array, "n d"],
    columns: int,
) -> tuple[Float[Array, "n ..."], Bool[Array, ""]]:
    """The scores, and whether all squared norms are finite, without reading X again.

    The models of all learners with this kernel and these sizes share one program.
    """
    known = kernels.squared_norms(vectors) if squares is None else squares
    n = X.shape[0]

    def scored(rows):
        norms = kernels.squared_norms(rows)
        gram = kernel.gram(rows, vectors, norms, known)
        new = jnp.matmul(gram, terms[:, :columns], precision="highest")
        return new, jnp.all(jnp.isfinite(norms))

    def block(index, carry):
        scores, finite = carry
        # The last block starts early enough to be full, since `dynamic_slice` clamps.
        start = index * size
        new, good = scored(jax.lax.dynamic_slice_in_dim(X, start, size))
        scores = jax.lax.dynamic_update_slice_in_dim(scores, new, start, 0)
        return scores, finite & good

    # A symbolic number of rows, from `jax.export`, cannot be divided.
    if jax.export.is_symbolic_dim(n) or n == 0:
        scores, finite = scored(X)
    else:
        size = min(n, PREDICTION_BLOCK)
        carry = jnp.zeros((n, columns), X.dtype), jnp.array(True)
        carry, *_ = _sharding.vary(carry, kernel, vectors, terms, X)
        scores, finite = jax.lax.fori_loop(0, -(-n // size), block, carry)
    scores = scores if scale is None else scale * scores
    return squeeze_columns(
        scores if bias is None else scores + jnp.reshape(bias, (1, -1))
    ), finite


def _padded(model: KernelModel) -> KernelModel:
    """The model padded with vectors of coefficient 0, so that few sizes are compiled.

    Its coefficients have one column per class.
    """
    number = model.coefficients.shape[0]
    # To a multiple of a power of two: four sizes per doubling, from 64 on.
    unit = 2 ** max(6, number.bit_length() - 3)
    more = -number % unit if number else unit
    # NumPy if possible: compiling this for every number of vectors takes longer.
    numpy: Any = jnp if isinstance(model.vectors, Tracer) else np
    coefficients = numpy.reshape(model.coefficients, (number, num_columns(model)))
    return model._replace(
        vectors=numpy.pad(model.vectors, ((0, more), (0, 0))),
        coefficients=numpy.pad(coefficients, ((0, more), (0, 0))),
    )


def _linear_scores(
    where: str, model: LinearModel, X: Any, features: int, first_row: int
) -> Array:
    """The scores of a linear model for dense or sparse rows; O(n d), or O(nonzeros)."""
    if hasattr(X, "products"):  # `SparseRows`, finite since they were made
        _check_shape(where, X.shape, features)
        return _weighed(model, X)
    sparse = hasattr(X, "tocsr")
    X = _checks.sparse(where, "X", X) if sparse else _checks.array(where, "X", X)
    _check_shape(where, X.shape, features)
    if not sparse:
        _checks.check_finite(where, X, first_row)
    dtype = model.weights.dtype
    if isinstance(X, jax.Array) or isinstance(model.weights, Tracer):
        return _weighed(model, _checks.on_device(X, dtype))
    # NumPy and SciPy need no copy of the rows and no compiled program.
    scores = X @ np.asarray(model.weights) + np.asarray(model.bias)
    return _checks.on_device(scores, dtype)


@jax.jit
def _weighed(model: LinearModel, X: Any) -> Float[Array, " n"]:
    weights, bias = model
    if isinstance(X, jax.Array):
        return jnp.matmul(X, weights, precision="highest") + bias
    return X.products(weights) + bias
