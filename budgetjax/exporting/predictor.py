"""The numbers and the program by which a model predicts, for an exported file."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from budgetjax import losses
from budgetjax._errors import ArgumentError
from budgetjax.kernels import Kernel, Linear, Mapped
from budgetjax.model import KernelModel, LinearModel, Model
from budgetjax.online.state import State
from budgetjax.refitting import calibration
from budgetjax.scoring import format_labels
from budgetjax.tables import encoding
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

Result = TypeVar("Result")
# Rows are float64 if rounding would change them by more than this fraction of their
# distance from the mean.
ROUNDING = 1e-4


class Units(NamedTuple):
    """The scaling of rows, `((x - mean) - rest) * factor`.

    `rest` holds the digits of the mean beyond the dtype of the rows; the factor has the
    dtype of the model. For an encoding these are its centre and unit.
    """

    mean: np.ndarray
    rest: np.ndarray
    factor: np.ndarray


class Predictor(NamedTuple):
    """A model of raw rows, with everything that its predictions need.

    Attributes:
      parts: models of scaled or encoded rows, whose scores are concatenated: kernel
        models, whose coefficients have the unit of the scores, or others.
      unit: the factor of the scores of others, shape `(columns,)`.
      intercept: the term added to the scores, shape `(columns,)`.
      labels: the labels in the order of the scores; None for a regressor.
      exponentiates: whether values are the exponentials of the scores.
      factor: the factor of the scores for probabilities, or None.
      ranks: the rank of each column among the sorted ones if columns are quantiles,
        which must not cross; or None.
      dtype: the dtype of all numbers except the rows and their mean.
      codes: the encoding of rows, or None.
    """

    parts: tuple[Any, ...]
    units: Units | None
    unit: np.ndarray
    intercept: np.ndarray
    labels: np.ndarray | None
    exponentiates: bool
    factor: float | None
    ranks: np.ndarray | None
    feature_names: tuple[str, ...] | None
    num_features: int
    dtype: np.dtype
    codes: Encoding | None = None

    @property
    def row_dtype(self) -> np.dtype:
        """The dtype of the rows: `dtype`, or float64 if that would round too much."""
        return self.dtype if self.units is None else self.units.mean.dtype


def predictor(model: Any) -> Predictor:
    """The predictor of a model or a fitted estimator."""
    model, before = _after_scalers(model)
    is_model = isinstance(model, Model) or hasattr(model, "model_")
    if hasattr(model, "get_params") and not is_model:
        wanted = "be a model or a fitted estimator of budgetjax"
        got = f"{type(model).__name__}, which has no model"
        raise ArgumentError("model", wanted, got)
    levels = np.asarray(getattr(model, "quantile", None))
    model = TableModel.of(model)
    for scaler in reversed(before):
        model = _compose_scalers(scaler, model)
    model.check_single()
    num_features, dtype = model.num_features, np.dtype(model.dtype)
    parts = _join_parts(tuple(_terms(part.inner) for part in model.parts))
    unit = np.asarray(model.unit, dtype)
    parts = tuple(
        part._replace(coefficients=unit * part.coefficients, bias=unit * part.bias)
        if isinstance(part, KernelModel)
        else part
        for part in parts
    )
    columns = sum(part.num_columns for part in parts)
    return Predictor(
        parts,
        _units(model.scaling, parts, dtype),
        np.broadcast_to(unit, (columns,)),
        np.broadcast_to(np.asarray(model.intercept, dtype), (columns,)),
        model.class_labels,
        model.link == losses.EXP,
        calibration.factor_of(model),
        # The estimator sorts them in the same way.
        np.argsort(np.argsort(levels)) if levels.ndim and columns > 1 else None,
        model.feature_names,
        num_features,
        dtype,
        model.scaling if isinstance(model.scaling, Encoding) else None,
    )


def _after_scalers(model: Any) -> tuple[Any, list[Any]]:
    """The last step of a scikit-learn pipeline, and the scalers before it."""
    steps = [step for _, step in getattr(model, "steps", [("", model)])]
    before = [step for step in steps[:-1] if step not in (None, "passthrough")]
    for step in before:
        if (name := type(step).__name__) != "StandardScaler":
            wanted = "have nothing but StandardScaler before it in a pipeline"
            raise ArgumentError("model", wanted, name)
        if not hasattr(step, "n_features_in_"):
            raise ArgumentError("model", "be fitted", "a new pipeline")
    return steps[-1], before


def _compose_scalers(scaler: Any, model: TableModel) -> TableModel:
    """The model for rows before a `StandardScaler`: the two scalings become one."""
    zeros = np.zeros(scaler.n_features_in_)
    mean = scaler.mean_ if scaler.with_mean else zeros
    deviation = scaler.scale_ if scaler.with_std else zeros + 1
    own, names = model.scaling, getattr(scaler, "feature_names_in_", None)
    names = model.feature_names if names is None else tuple(names.tolist())
    if isinstance(own, Encoding):
        if np.any(own.low == own.high):
            got = "one before an encoding of categories"
            raise ArgumentError("model", "have no StandardScaler before it", got)
        centre, unit = mean + deviation * own.centre, deviation * own.unit
        both = own._replace(centre=centre, unit=unit)
        return model._replace(scaling=both, feature_names=names)
    own = own or Scaling.translation(zeros)
    both = own._replace(
        # Each scaler has already decided which features are constant.
        num_rows=0,
        mean=mean + deviation * own.mean,
        variance=np.where(own.constant, 0, deviation**2 * own.variance),
    )
    return model._replace(scaling=both, feature_names=names)


def _row_dtype(
    scaling: Scaling | Encoding, parts: tuple[Any, ...], dtype: np.dtype
) -> np.dtype:
    if isinstance(scaling, Encoding):
        column, low, high = scaling.column, scaling.low, scaling.high
        widths = np.where(low < high, high - low, np.inf) * scaling.unit[column]
        lost = np.finfo(dtype).eps / 2 * np.abs(scaling.centre[column]) / widths
        values = low[low == high]
        exact = np.array_equal(values.astype(dtype), values)
        good = exact and np.all(lost <= ROUNDING)
        return dtype if good else np.dtype(np.float64)
    part = parts[0]
    # Where vectors are no rows: standardised rows have a deviation of 1.
    vectors = np.ones((1, len(scaling.mean)))
    if isinstance(part, KernelModel) and part.kernel.stationary:
        vectors = part.vectors.astype(np.float64)
        if part.is_compact:
            kernel: Any = part.kernel
            vectors = vectors @ np.linalg.pinv(np.asarray(kernel.matrix))
    lost = np.finfo(dtype).eps / 2 * np.linalg.norm(scaling.mean / scaling.divisor)
    away = np.sqrt(np.mean(np.sum(vectors**2, axis=1)))
    return np.dtype(np.float64) if lost > ROUNDING * away else dtype


def _units(
    scaling: Scaling | Encoding | None, parts: tuple[Any, ...], dtype: np.dtype
) -> Units | None:
    if scaling is None:
        return None
    if isinstance(scaling, Encoding):
        mean, divisor = scaling.centre, scaling.unit
    else:
        mean, divisor = scaling.mean, scaling.divisor
    row_dtype = _row_dtype(scaling, parts, dtype)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        first, factor = mean.astype(row_dtype), (1 / divisor).astype(dtype)
        rest = (mean - first).astype(row_dtype)
        units = Units(first, rest, factor)
    if not all(np.all(np.isfinite(part)) for part in units):
        least = np.min(divisor, initial=np.inf)
        got = f"means up to {np.max(np.abs(mean)):g} and deviations from {least:g}"
        raise ArgumentError("model", f"have a scaling in the range of {dtype}", got)
    return units


def _terms(model: Any) -> Any:
    """The nonzero terms, at least one, with one column per score.

    A linear model becomes one vector, its weights, under the linear kernel. A model of
    another kind, which has no terms, is itself.
    """
    if isinstance(model, LinearModel):
        weights, one = np.asarray(model.weights)[None], np.ones((1, 1))
        return _kernel_model(Linear(), weights, one, np.reshape(model.bias, (1,)))
    if not isinstance(model, KernelModel | State):
        return model
    kernel, bias = model.kernel, np.zeros(1)
    if isinstance(model, KernelModel):
        vectors, coefficients, bias = model.vectors, model.coefficients, model.bias
    else:
        vectors = model.expansion.examples
        scale = np.asarray(model.expansion.scale)
        coefficients = scale * np.asarray(model.expansion.coefficients)
    vectors = np.asarray(vectors)
    coefficients = np.asarray(coefficients).reshape(-1, model.num_columns)
    if kernel.of_examples:
        kept = np.any(coefficients != 0, axis=1)
        kept[:1] |= not np.any(kept)
        vectors, coefficients = vectors[kept], coefficients[kept]
    if not len(vectors):
        vectors = np.zeros((1, vectors.shape[1]), vectors.dtype)
        coefficients = np.zeros((1, coefficients.shape[1]))
    return _kernel_model(kernel, vectors, coefficients, bias)


def _join_parts(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Joins models with the same kernel, and merges equal vectors."""
    if len(parts) == 1 or not all(isinstance(part, KernelModel) for part in parts):
        return parts
    kernel, *others = (part.kernel for part in parts)
    leaves, structure = jax.tree.flatten(kernel)
    for other in others:
        more, same = jax.tree.flatten(other)
        if structure != same or not all(map(np.array_equal, leaves, more)):
            return parts
    stacked = np.concatenate([part.vectors for part in parts])
    vectors, places = np.unique(stacked, axis=0, return_inverse=True)
    coefficients = np.zeros((len(vectors), len(parts)), stacked.dtype)
    columns = np.repeat(np.arange(len(parts)), [len(part.vectors) for part in parts])
    terms = np.concatenate([part.coefficients[:, 0] for part in parts])
    np.add.at(coefficients, (places.reshape(-1), columns), terms)
    bias = np.concatenate([part.bias for part in parts])
    return (_kernel_model(kernel, vectors, coefficients, bias),)


def _kernel_model(
    kernel: Kernel, vectors: Any, coefficients: Any, bias: Any
) -> KernelModel:
    dtype, bias = vectors.dtype, np.broadcast_to(bias, coefficients.shape[1:])
    return KernelModel(kernel, vectors, coefficients.astype(dtype), bias.astype(dtype))


def build(make: Callable[..., Result], predictor: Predictor) -> Result:
    """What `make(program, X)` makes of the program for any number of rows."""
    (rows,) = jax.export.symbolic_shape("rows")
    program = jax.jit(lambda X: outputs(predictor, X))
    # Otherwise JAX would cast float64 rows to float32.
    wide = predictor.row_dtype == np.float64 or jax.config.read("jax_enable_x64")
    with jax.enable_x64(wide):
        shape = rows, predictor.num_features
        return make(program, jax.ShapeDtypeStruct(shape, predictor.row_dtype))


def outputs(predictor: Predictor, X: Float[Array, "n d"]) -> dict[str, Array]:
    """The scores and the outputs that follow from them, by name."""
    units = predictor.units
    if predictor.codes is not None:
        X = encoding.encode(predictor.codes, X).astype(predictor.dtype)
    elif units is not None:
        X = X - units.mean[None] - units.rest[None]
        X = X.astype(predictor.dtype) * units.factor[None]
    columns, start = [], 0
    for part in predictor.parts:
        stop = start + part.num_columns
        if isinstance(part, KernelModel):
            columns.append(_scores(part, X))
        else:
            columns.append(predictor.unit[None, start:stop] * part.scores(X))
        start = stop
    scores = jnp.concatenate(columns, axis=1) + predictor.intercept[None]
    if predictor.ranks is not None:
        ordered, columns = jnp.sort(scores, axis=1), predictor.ranks.tolist()
        parts = [jax.lax.slice_in_dim(ordered, i, i + 1, axis=1) for i in columns]
        scores = jnp.concatenate(parts, axis=1)
    binary = len(predictor.intercept) == 1
    flat = jnp.squeeze(scores, axis=1) if binary else scores
    if predictor.labels is None:
        return {"variable": jnp.exp(flat) if predictor.exponentiates else flat}
    best = flat > 0 if binary else jnp.argmax(scores, axis=1)
    found = {"label": best.astype(jnp.int32), "scores": flat}
    if predictor.factor is not None:
        each = jnp.concatenate([0 * scores, scores], axis=1) if binary else scores
        factor = jnp.asarray(predictor.factor, scores.dtype)
        found["probabilities"] = jax.nn.softmax(factor * each, axis=1)
    return found


def _scores(part: KernelModel, X: Float[Array, "n d"]) -> Float[Array, "n columns"]:
    """The scores of scaled rows, centred at the mean of the vectors if allowed.

    Far from 0, float32 loses the digits of distances; see `budgetjax.RBF`.
    """
    kernel, vectors = part.kernel, np.asarray(part.vectors)
    while isinstance(kernel, Mapped) and kernel.mapped_vectors:
        X = jnp.matmul(X, jnp.asarray(kernel.matrix, X.dtype), precision="highest")
        kernel = kernel.kernel
    if kernel.stationary:
        centre = np.mean(vectors, axis=0, dtype=np.float64).astype(vectors.dtype)
        X, vectors = X - centre[None], vectors - centre[None]
    gram = kernel.gram(X, jnp.asarray(vectors))
    scores = jnp.matmul(gram, jnp.asarray(part.coefficients), precision="highest")
    return scores + jnp.asarray(part.bias)[None]


def label_array(labels: np.ndarray) -> np.ndarray:
    """Labels as int64, booleans, float64, or text in an array of objects."""
    values, kind = labels.tolist(), labels.dtype.kind
    if all(isinstance(one, str) for one in values):
        return np.array(values, object)
    dtypes = {"i": np.int64, "u": np.int64, "b": np.bool, "f": np.float64}
    if kind in dtypes:
        return labels.astype(dtypes[kind])
    raise ArgumentError("labels", "be numbers or text", format_labels(labels))
