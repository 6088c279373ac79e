"""Models of every kind: their parts, scores, predictions and support vectors.

A model is the state of an online algorithm, or anything else with a `kernel` and an
`expansion`; a `KernelModel`, from a kernel solver; a `LinearModel`; one of these in a
`Labelled`, which takes raw rows; or an object that has one of them as its `model`, such
as the solution of a solver.
"""

from collections.abc import Callable
from typing import (
    Any,
    NamedTuple,
    Protocol,
    TypeGuard,
    TypeVar,
    cast,
    overload,
    runtime_checkable,
)

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Shaped

from budgetjax import (
    _checks,
    _forks,
    _half_precision,
    _record,
    _rows,
    _sharding,
    losses,
    scoring,
)
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Name, Record
from budgetjax._rows import RawRows, SparseMatrix
from budgetjax.kernels import Kernel, Mapped
from budgetjax.scoring import squeeze_columns
from budgetjax.tables import encoding, labels, scaling
from budgetjax.tables.columns import as_matrix, column_names, to_dense
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling


@runtime_checkable
class SupportSet(Protocol):
    """The support vectors and coefficients of a state; see `budgetjax.Expansion`."""

    @property
    def vectors(self) -> Array: ...
    @property
    def squares(self) -> Array: ...
    @property
    def coefficients_and_sums(self) -> Array: ...
    @property
    def scale(self) -> Array: ...
    @property
    def origin(self) -> Array: ...
    @property
    def examples(self) -> Array: ...
    @property
    def num_columns(self) -> int: ...
    @property
    def coefficients(self) -> Array: ...
    @property
    def mask(self) -> Array: ...


@runtime_checkable
class State(Protocol):
    """The state of an online algorithm, as far as its scores depend on it."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def expansion(self) -> SupportSet: ...


@runtime_checkable
class Holder(Protocol):
    """A result that has a model, such as a `Solution` or a `StreamModel`."""

    @property
    def model(self) -> Any: ...


@runtime_checkable
class Fitted(Protocol):
    """A fitted estimator."""

    @property
    def model_(self) -> Any: ...


class ModelBase(Record, abstract=True):
    """The base of models that are records: what predictions ask of them."""

    @property
    def num_features(self) -> int:
        """The length of an example."""
        raise NotImplementedError

    @property
    def num_columns(self) -> int:
        """The number of scores of an example: 1, or one per class or output."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype:
        """The float type of examples and scores."""
        raise NotImplementedError

    @property
    def loss(self) -> Callable[..., Array]:
        """The loss, which says whether scores mean labels or numbers."""
        raise NotImplementedError

    def scores(self, X: Float[Array, "n features"]) -> Float[Array, "n columns"]:
        """The scores of examples."""
        raise NotImplementedError

    def support(self) -> "Support":
        """The support vectors, as of `budgetjax.support`."""
        raise ArgumentError("model", "have support vectors", _checks.kind_name(self))


Part = TypeVar("Part")
# The model that comes in comes out.
Given = TypeVar("Given")
# A JAX array, or a NumPy array of a `Labelled`, which scores on the host.
Scores = Array | np.ndarray


@overload
def decision_function(
    model: "State | KernelModel | LinearModel", X: RawRows
) -> Array: ...
@overload
def decision_function(model: "Labelled", X: RawRows) -> np.ndarray: ...
@overload
def decision_function(model: "Model", X: RawRows) -> Scores: ...
@names_errors("decision_function")
def decision_function(model: "Model", X: RawRows) -> Scores:
    """The scores `f(x)` of every row; O(n B d).

    Rows are scored in blocks, so that no `(n, B)` matrix is built. Each device scores
    its own rows if they are divided among several; inside `jax.jit` this needs a mesh
    with explicit axes.

    Args:
      model: the state of an online algorithm, a `KernelModel`, a `LinearModel`, a
        `Labelled`, or the result of `solve` or `fit_stream`.
      X: shape `(n, num_features)`; for a `LinearModel` also a matrix of `scipy.sparse`
        or `SparseRows`. A `Labelled` takes raw rows, also sparse ones, and finds the
        columns of a data frame by name if it was trained on named columns.

    Returns:
      Shape `(n,)` for a model with one column of coefficients, else `(n, columns)`,
      divided among devices like the rows; a NumPy array for a `Labelled`, of the rows
      of this process if they are divided among several.

    Raises:
      ValueError: if the shape of `X` does not fit the model, or `X` is not finite;
        inside `jit` or `vmap` only shapes are checked.

    Example:
      >>> model = bj.LinearModel(np.array([1.0, -1.0]), np.array(0.5))
      >>> bj.decision_function(model, np.array([[2.0, 1.0]])).tolist()
      [1.5]
    """
    return score_rows(model, X)


@overload
def predict(model: "State | KernelModel | LinearModel", X: RawRows) -> Array: ...
@overload
def predict(model: "Labelled", X: RawRows) -> np.ndarray: ...
@overload
def predict(model: "Model", X: RawRows) -> Scores: ...
@names_errors("predict")
def predict(model: "Model", X: RawRows) -> Scores:
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
    if isinstance(unwrap_labelled(model), Labelled):
        return predict_from_scores(model, score_rows(model, X))
    return score_rows(model, X, link=approximate_link(model))


@_record.record
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

    decision_function, predict = decision_function, predict


@_record.record
class LinearModel(NamedTuple):
    """A linear classifier, `f(x) = weights . x + bias`.

    Attributes:
      weights: shape `(d,)`.
      bias: a scalar; 0 for a model without one.
    """

    weights: Float[Array, " d"]
    bias: Float[Array, ""]

    inverse_link = losses.LABELS
    decision_function, predict = decision_function, predict


@_record.record
class Labelled(NamedTuple):
    """A model that takes raw rows, scales them, and returns the labels of the data.

    Attributes:
      model: a model of scaled rows, or a tuple of binary models, one per class.
      scaling: the mean and variance of the features, or an `encoding.Encoding` of
        columns as features; None if rows are taken as they are.
      classes: the labels, in the order of the scores, shape `(C,)`; None for the labels
        of the learner, and for regressors.
      feature_names: names of the columns, if known.
      intercept: a number added to all scores, or shape `(num_outputs,)`.
      unit: a factor of all scores, applied before, or shape `(num_outputs,)`.
      calibration: the factor of the scores in the sigmoid or softmax that gives
        probabilities; None before `calibrate`, or `refit` with `calibrate=True`.
    """

    model: Any
    scaling: Scaling | Encoding | None = None
    classes: Shaped[np.ndarray, " classes"] | None = None
    feature_names: tuple[str, ...] | None = None
    intercept: float | Float[np.ndarray, " outputs"] = 0.0
    calibration: float | None = None
    unit: float | Float[np.ndarray, " outputs"] = 1.0

    decision_function, predict = decision_function, predict


class Support(NamedTuple):
    """The support set of a model.

    Attributes:
      vectors: shape `(capacity, num_features)`; raw rows for a `Labelled`, unless it
        encodes rows, since not every point of the features has a raw row.
      coefficients: with the scale multiplied in, shape `(capacity, columns)`.
      mask: True where a slot is active, shape `(capacity,)`.
    """

    vectors: Float[Array | np.ndarray, "*models capacity features"]
    coefficients: Float[Array | np.ndarray, "*models capacity columns"]
    mask: Bool[Array | np.ndarray, "*models capacity"]

    __repr__ = _record.record_repr


Model = State | ModelBase | KernelModel | LinearModel | Labelled | Holder | Fitted
# The kinds that are models themselves, the quick checks first.
KINDS = (Labelled, KernelModel, LinearModel, ModelBase, State)


def unwrap_labelled(model: Any) -> Any:
    """The `Labelled` inside, or the innermost model."""
    # An estimator holds its fitted model.
    model = getattr(model, "model_", model)
    while not isinstance(model, KINDS) and isinstance(model, Holder):
        model = model.model
    return model


def unwrap(model: Any) -> Any:
    """The state, kernel model or linear model inside, or the first of several."""
    model = unwrap_labelled(model)
    if not isinstance(model, Labelled):
        return model
    inside = model.model
    return inside[0] if type(inside) is tuple else unwrap(inside)


def rewrap(model: Given, new: Any) -> Given:
    """The model with another state or model inside."""
    holder: Any = model
    if not isinstance(model, Holder):
        return new
    return holder._replace(model=rewrap(model.model, new))


def as_labelled(model: Any) -> Labelled:
    """The `Labelled` in a model, or a new one around it."""
    model = unwrap_labelled(model)
    return model if isinstance(model, Labelled) else Labelled(model)


def without_names(model: Any, X: Any) -> Any:
    """Rows as the `Labelled` in a model takes them: an estimator may know names."""
    convert = getattr(model, "_without_names", None)
    return X if convert is None else convert(X)


def add_intercept(model: Given, more: float | np.ndarray) -> Given | Labelled:
    """The model with `more` added to the scores of the model in the `Labelled`."""
    known = as_labelled(model)
    intercept = known.intercept + known.unit * more
    return _rewrap_labelled(model, known._replace(intercept=intercept))


def with_calibration(model: Given, factor: float | None) -> Given | Labelled:
    """The model, in a `Labelled`, with this calibration; None removes it."""
    return _rewrap_labelled(model, as_labelled(model)._replace(calibration=factor))


def _rewrap_labelled(model: Given, new: Labelled) -> Given | Labelled:
    """A `Labelled` in what holds the model's one."""
    holder: Any = model
    if isinstance(model, Labelled) or not isinstance(model, Holder):
        return new
    return holder._replace(model=new) if isinstance(model.model, Labelled) else new


def map_parts(
    function: Callable[[Any], Part], model: Labelled
) -> Part | tuple[Part, ...]:
    """Applies a function to the model inside, or to each of several."""
    parts = model.model
    return tuple(map(function, parts)) if type(parts) is tuple else function(parts)


def inverse_link(model: Model) -> Name:
    """The meaning of the scores of a model, which a learner takes from its loss."""
    single = unwrap(model)
    if isinstance(single, KernelModel | LinearModel):
        return single.inverse_link
    if not isinstance(single, ModelBase):
        return losses.LABELS
    return losses.traits(single.loss).link


def approximate_link(model: Model) -> Name:
    """The meaning of approximate scores of a model, which give no probabilities."""
    link = inverse_link(model)
    return losses.LABELS if link == losses.SOFTMAX else link


def is_regressor(model: Model) -> bool:
    """Whether the targets of a model are real numbers."""
    return inverse_link(model) in (losses.IDENTITY, losses.EXP)


def num_columns(model: Model) -> int:
    """The number of columns of the scores of a single model."""
    single = unwrap(model)
    if isinstance(single, KernelModel):
        return (*single.coefficients.shape, 1)[1]
    return single.num_columns if isinstance(single, ModelBase) else 1


def num_features(model: Model) -> int:
    """The number of features of a single model, or of raw columns of a `Labelled`."""
    whole, single = unwrap_labelled(model), unwrap(model)
    if isinstance(whole, Labelled) and isinstance(whole.scaling, Encoding):
        return whole.scaling.num_columns
    if isinstance(single, ModelBase) and not isinstance(single, State):
        return single.num_features
    if not isinstance(single, KernelModel | LinearModel | State):
        wanted = "be the state of an online algorithm, or a model of a solver"
        raise ArgumentError("model", wanted, _checks.kind_name(single))
    if isinstance(single, LinearModel):
        return len(single.weights)
    if isinstance(single.kernel, Mapped) and single.kernel.mapped_vectors:
        return single.kernel.matrix.shape[0]
    shape = own_rows(single).shape
    if len(shape) != 2:
        got = f"a stack of shape {shape[:-2]}; use jax.vmap"
        raise ArgumentError("model", "be a single one", got)
    return shape[1]


def dtype_of(model: Model) -> np.dtype:
    """The dtype of a model's rows."""
    single = unwrap(model)
    return single.dtype if isinstance(single, ModelBase) else own_rows(single).dtype


def own_rows(single: Any) -> Array | np.ndarray:
    """The support vectors of a single model, or the weights of a linear one."""
    if isinstance(single, KernelModel):
        return single.vectors
    return (
        single.weights if isinstance(single, LinearModel) else single.expansion.vectors
    )


def target_shape(model: Model) -> tuple[int, ...]:
    """The shape of one target: `()`, or `(num_outputs,)` for several."""
    if not is_regressor(model):
        return ()
    columns = num_columns(model)
    return (columns,) if columns > 1 else ()


def target_dtype(state: State | ModelBase) -> np.dtype:
    """The dtype of a state's targets: integers for several classes."""
    integers = num_columns(state) > 1 and not is_regressor(state)
    return np.dtype(np.int32 if integers else dtype_of(state))


def imputes_missing(model: Model) -> bool:
    """Whether a NaN in a row is replaced by the mean of its feature."""
    scaling = as_labelled(model).scaling
    return scaling is not None and scaling.fills


def is_compact(model: Model) -> TypeGuard[KernelModel]:
    """Whether the support vectors are mapped points."""
    kernel = model.kernel if isinstance(model, KernelModel | State) else None
    return isinstance(kernel, Mapped) and kernel.mapped_vectors


@names_errors("support")
def support(model: Model) -> Support:
    """The support vectors, true coefficients and mask of a model; O(B (d + C)).

    It works on a single state and on states stacked by `jax.vmap`.

    Args:
      model: a model as for `decision_function`.

    Returns:
      A `Support`. Free slots are zero.

    Raises:
      ValueError: if the model has no support vectors because it is linear or its
        features are random (`budgetjax.Fourier`).

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.support(state).vectors[0].tolist()
      [1.0, 2.0]
    """
    _forks.check()
    model = unwrap_labelled(model)
    if isinstance(model, Labelled):
        inside = support(model.model)
        if np.any(model.unit != 1):
            raw = np.asarray(inside.coefficients) * model.unit
            inside = inside._replace(coefficients=raw)
        if model.scaling is None or isinstance(model.scaling, Encoding):
            return inside
        return inside._replace(vectors=model.scaling.undone(np.asarray(inside.vectors)))
    if isinstance(model, ModelBase) and not isinstance(model, State):
        return model.support()
    if is_compact(model):
        wanted = "have support vectors in the space of the examples"
        raise ArgumentError("model", wanted, "a compact one, which has them mapped")
    if isinstance(model, KernelModel):
        coefficients = model.coefficients.reshape(-1, num_columns(model))
        return Support(model.vectors, coefficients, jnp.ones(len(coefficients), bool))
    if not isinstance(model, State) or not model.kernel.of_examples:
        raise ArgumentError("model", "have support vectors", _checks.kind_name(model))
    expansion = model.expansion
    coefficients = expansion.scale[..., None, None] * expansion.coefficients
    return Support(
        expansion.examples[..., :-1, :],
        coefficients[..., :-1, :],
        expansion.mask[..., :-1],
    )


def to_kernel_model(model: Model) -> KernelModel:
    """A state or kernel model as a `KernelModel`, without free slots."""
    vectors, coefficients, mask = map(np.asarray, support(model))
    vectors, coefficients = vectors[mask], squeeze_columns(coefficients[mask])
    zeros = np.zeros(coefficients.shape[1:], vectors.dtype)
    vectors, coefficients, zeros = jax.device_put((vectors, coefficients, zeros))
    single = unwrap(model)
    bias = single.bias if isinstance(single, KernelModel) else zeros
    return KernelModel(single.kernel, vectors, coefficients, bias, inverse_link(single))


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


def weight_norm(model: Model) -> float:
    """The norm of the weight vector of a binary model, without the bias; O(m^2 d)."""
    single = unwrap(model)
    if isinstance(single, LinearModel):
        return float(np.linalg.norm(np.asarray(single.weights, np.float64)))
    small = to_kernel_model(single)
    coefficients = np.asarray(small.coefficients, np.float64)
    images = np.asarray(values_at_vectors(small), np.float64)
    return float(np.sqrt(max(coefficients @ images, 0)))


def values_at_vectors(model: KernelModel) -> Float[Array, " m *classes"]:
    """The values of f, without the bias, at the model's support vectors; O(m^2 d)."""
    unbiased = model._replace(bias=jnp.zeros_like(model.bias))
    return jnp.asarray(score_rows(unbiased, model.vectors))


def predict_from_scores(model: Model, scores: Scores) -> Scores:
    """The labels, or values, for these scores of a model."""
    return scoring.apply_link(inverse_link(model), scores, as_labelled(model).classes)


def class_labels(model: Model) -> np.ndarray | None:
    """The labels in the order of the scores; None for a regressor."""
    known = as_labelled(model).classes
    if is_regressor(model) or known is not None:
        return known
    columns = num_columns(model)
    return np.array([-1, 1]) if columns == 1 else np.arange(columns)


@names_errors("fold_map")
def fold_map(model: Given, *, rounds: bool = False) -> Given:
    """The model with the map of its kernel as that of its encoding; O(B d r + d r^2).

    After a metric M was learned on codes, the kernel is `k(x M, z M)`. The folded model
    has the kernel `k`, `z M` as its vectors and `M` in its encoding: it predicts the
    same, holds r numbers per support vector and not one per code, and can be pruned,
    compressed and trained further as a model of r features.

    Args:
      model: a `Labelled` with an `encoding.Encoding`, or what holds one. Any other, and
        one whose kernel has no matrix, comes back as it is.
      rounds: whether the new vectors are rounded to the 11 bits of float16, as those of
        a metric are, so that files hold them in half of the bytes.

    Example:
      >>> X = np.arange(8.0)[:, None]
      >>> codes = bj.encoding.fit(X, num_bins=4)
      >>> kernel = bj.Mapped(bj.RBF(1.0), np.ones((4, 1), np.float32))
      >>> state = bj.Perceptron().init(kernel, num_features=4, budget=3)
      >>> state = bj.step(state, codes.apply(X)[3], 1)
      >>> model = bj.Labelled(state, codes)
      >>> folded = fold_map(model)
      >>> bj.support(folded).vectors.shape, folded.scaling.num_features
      ((3, 1), 1)
      >>> bool(np.allclose(folded.decision_function(X), model.decision_function(X)))
      True
    """
    whole = as_labelled(model)
    codes, single = whole.scaling, cast(Any, unwrap(whole))
    kernel = getattr(single, "kernel", None)
    if not isinstance(codes, Encoding) or type(whole.model) is tuple:
        return model
    if not isinstance(kernel, Mapped) or np.ndim(kernel.matrix) != 2:
        return model
    matrix = np.asarray(kernel.matrix, np.float64)
    folds = matrix if codes.map is None else np.asarray(codes.map) @ matrix

    def mapped(vectors: Array) -> Array:
        rows = np.asarray(vectors, np.float64)
        rows = rows if kernel.mapped_vectors else rows @ matrix
        rows = _half_precision.round_array(rows) if rounds else rows
        return _checks.to_device(rows, vectors.dtype)

    if isinstance(single, KernelModel):
        single = single._replace(vectors=mapped(single.vectors), kernel=kernel.kernel)
    else:
        # Kernel values stay the same, and so does what a learner has computed of them.
        expansion = single.expansion
        vectors = mapped(expansion.vectors)
        expansion = expansion._replace(
            vectors=vectors,
            squares=jnp.sum(vectors * vectors, axis=1),
            origin=mapped(expansion.origin),
        )
        single = set_kernel(single, kernel.kernel)._replace(expansion=expansion)
    folds = folds.astype(np.asarray(kernel.matrix).dtype)
    whole = rewrap(whole, single)._replace(scaling=codes._replace(map=folds))
    return cast(Given, _rewrap_labelled(model, whole))


def set_kernel(state: Any, kernel: Kernel) -> Any:
    """Replaces the kernel of a state, and nothing that depends on it."""
    return Record._replace(state, kernel=kernel)


def encode_targets(model: Labelled, y: ArrayLike, first_row: int = 0) -> np.ndarray:
    """Targets in the form of the model inside; messages count from `first_row`."""
    _checks.check_unmasked("y", y)
    y = np.asarray(y)
    if model.classes is None:
        if not np.any(model.intercept) and np.all(model.unit == 1):
            return y
        y = y[:, None] if np.ndim(model.intercept) > 0 and y.ndim == 1 else y
        logarithms = inverse_link(model) == losses.EXP
        away = y if logarithms else y - np.asarray(model.intercept)
        return away / unit_of_targets(model)
    codes = labels.encode_labels(model.classes, y, first_row)
    return 2 * codes - 1 if len(model.classes) == 2 else codes


def encode_labels_and_weights(
    model: Model, num_rows: int, y: npt.ArrayLike, weight: npt.ArrayLike | None
) -> tuple[Int32[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The index of each row's label, and the weights, after checks."""
    for name, given in ("y", y), ("weight", weight):
        _checks.check_unmasked(name, given)
    known, y, expected = class_labels(model), np.asarray(y), (num_rows,)
    if known is None:
        raise ArgumentError("model", "be a classifier", "a regressor")
    if y.shape != expected:
        wanted = f"have shape {expected}, one label per row of X"
        raise ArgumentError("y", wanted, y.shape)
    weights = np.ones(num_rows) if weight is None else np.asarray(weight, np.float64)
    if weights.shape != expected or not np.all((weights >= 0) & np.isfinite(weights)):
        wanted = f"be finite and at least 0, of shape {expected}, one per row of X"
        got = f"{weights.tolist()[:3]} of shape {weights.shape}"
        raise ArgumentError("weight", wanted, got)
    return labels.encode_labels(known, y), weights


def unit_of_targets(model: Model) -> float | np.ndarray:
    """The unit of the targets that the model inside sees."""
    model = as_labelled(model)
    exponentiates = inverse_link(model) == losses.EXP
    return np.exp(model.intercept) if exponentiates else model.unit


def unmapped_encoding(model: Labelled) -> Encoding | None:
    """The encoding whose codes the model inside takes, unless it has a map."""
    codes = model.scaling
    return codes if isinstance(codes, Encoding) and codes.map is None else None


def training_rows(model: Labelled, X: RawRows, width: int = 0) -> np.ndarray:
    """Raw rows in the form that the model inside takes.

    They are the numbers of the columns, and zeros up to `width`, if it makes codes of
    them; see `encoding.write_codes`.
    """
    rows, codes = _as_matrix(model, X), unmapped_encoding(model)
    if codes is not None:
        rows = rows.toarray() if isinstance(rows, SparseMatrix) else rows
        return codes.numbers(rows, dtype_of(model), width)
    return _densify(model, rows)


def _as_matrix(model: Labelled, X: Any) -> Any:
    if isinstance(model.scaling, Encoding) and encoding.has_names(model.scaling):
        for name in column_names(X) or ():
            if str(getattr(X[name], "dtype", "")) == "category":
                wanted = f"have positions of names as numbers in column {name!r}"
                raise ArgumentError("X", wanted, "categories").advised(
                    "the estimator itself takes names"
                )
    X = as_matrix(X, num_features(model), model.feature_names)
    return X if isinstance(X, SparseMatrix) else np.asarray(X)


def _densify(
    model: Labelled, X: np.ndarray | SparseMatrix, first_row: int = 0
) -> np.ndarray:
    """Scaled or encoded dense rows."""
    scaling = model.scaling
    if isinstance(X, SparseMatrix):
        X = to_dense(X, X.dtype if scaling else dtype_of(model))
    if isinstance(scaling, Encoding):
        return scaling.apply(X, dtype_of(model), first_row=first_row)
    return X if scaling is None else scaling.apply(X, dtype_of(model))


def score_rows(
    model: Model, X: RawRows, first_row: int = 0, link: Name = losses.IDENTITY
) -> Scores:
    """The scores of rows by a model of any kind; messages count from `first_row`.

    With a `link`, a model that is not a `Labelled` gives what its scores mean.
    """
    X = without_names(model, X)
    model, features = unwrap_labelled(model), num_features(model)
    if isinstance(model, Labelled):
        # Inside `jax.jit`, a model and rows that are closed over have values.
        return (_score_traced if _checks.is_traced((model, X)) else _score_known)(
            model, X
        )
    if isinstance(model, LinearModel):
        return scoring.linear_scores(model.weights, model.bias, X, first_row, link)
    rows = _rows.cast_rows(X, features, dtype_of(model))
    if isinstance(model, ModelBase) and not isinstance(model, State):
        scores = _score_each(model, rows)
        if not isinstance(scores, Tracer) and not np.all(np.isfinite(scores)):
            _checks.check_finite(rows, first_row)
        return scoring.apply_link(link, scores)
    if isinstance(model, KernelModel):
        vectors, terms = scoring.pad_vectors(model.vectors, model.coefficients)
        parts, origin = (vectors, None, terms, None, model.bias), None
    else:
        assert isinstance(model, State), "refused by num_features"
        own = model.expansion
        parts = own.vectors, own.squares, own.coefficients_and_sums, own.scale, None
        origin = own.origin
    output = scoring.Output(num_columns(model), link)
    split = _sharding.split_by_rows(rows)
    scores, finite = scoring.kernel_scores(
        model.kernel, *parts, rows, output, split, origin
    )
    if not isinstance(finite, Tracer) and not finite:
        _checks.check_finite(rows, first_row)
    return scores


@jax.jit
def _score_each(
    model: ModelBase, X: Float[Array, "n features"]
) -> Float[Array, " n *columns"]:
    """The scores of rows, in blocks, by a model that says them itself."""
    scores = jax.lax.map(
        lambda x: model.scores(x[None])[0], X, batch_size=scoring.PREDICTION_BLOCK
    )
    return squeeze_columns(scores)


def _score_known(model: Labelled, X: RawRows) -> np.ndarray:
    """The scores of raw rows on the host, also where a program is traced."""
    with jax.ensure_compile_time_eval():
        return _score_in_blocks(model, X)


@_sharding.without_context_mesh
def _score_in_blocks(model: Labelled, X: RawRows) -> np.ndarray:
    """The scores of raw rows, which are scaled and made dense in blocks."""
    shards = _sharding.Shards.of_rows(X)
    if shards.mesh is not None:
        X = shards.local_rows(X, cast(jax.Array, X))
    matrix = _as_matrix(model, X)
    several = type(model.model) is tuple
    parts = model.model if several else (model.model,)
    n, features = matrix.shape
    # Every device gets a block.
    devices, widest = shards.local_number, max(features, num_features(parts[0]))
    size = devices * _rows.block_size(n // devices, widest)
    linear = isinstance(parts[0], LinearModel) and model.scaling is None
    blocks = []
    for start in range(0, max(1, n), size):
        rows = matrix[start : start + size]
        length = rows.shape[0]
        if not linear:
            # The block goes to the device once, for all models.
            dense = _rows.pad_rows(_densify(model, rows, start), size)
            rows = shards.place(dense.astype(dtype_of(model)))
            rows = _checks.to_device(rows, dtype_of(model))
        scores = [
            shards.local(score_rows(part, rows, start))[:length] for part in parts
        ]
        blocks.append(np.stack(scores, axis=1) if several else scores[0])
    scores = np.concatenate(blocks)
    if not np.any(model.intercept) and np.all(model.unit == 1):
        return scores
    return model.unit * scores.astype(np.float64) + np.asarray(model.intercept)[None]


def _score_traced(model: Labelled, X: RawRows) -> Scores:
    """The scores inside `jax.jit`, where values of the rows or the model are traced."""
    rows, scale = _checks.array("X", X), model.scaling
    if isinstance(scale, Encoding):
        rows = encoding.encode(scale, rows)
    elif scale is not None:
        rows = scaling.scale(scale, rows)
    several = type(model.model) is tuple
    parts = model.model if several else (model.model,)
    scores = [score_rows(part, rows) for part in parts]
    joined = jnp.stack(scores, axis=1) if several else jnp.asarray(scores[0])
    unit, shift = (
        jnp.broadcast_to(jnp.asarray(one, joined.dtype), joined.shape[1:])[None]
        for one in (model.unit, model.intercept)
    )
    return unit * joined + shift
