"""The numbers by which a model predicts, for an exported file."""

from typing import Any, NamedTuple

import jax
import numpy as np

from budgetjax import losses, models
from budgetjax._errors import ArgumentError
from budgetjax.encoding import Encoding
from budgetjax.kernels import Linear, Mapped
from budgetjax.labels import format_labels
from budgetjax.models import KernelModel, LinearModel
from budgetjax.refitting import calibration
from budgetjax.scaling import Scaling

# Rows are float64 if rounding would change them by more than this fraction of their
# distance from the mean.
ROUNDING = 1e-4


class Units(NamedTuple):
    """The scaling of rows, `((x - mean) - rest) * factor`, each shape `(features,)`.

    The mean is the sum of two numbers in the dtype of the rows, where the second holds
    the digits beyond that dtype; the factor has the dtype of the model. With `fills`,
    the mean replaces a NaN in X. For an encoding these are its centre and unit.
    """

    mean: np.ndarray
    rest: np.ndarray
    factor: np.ndarray
    fills: bool


class Predictor(NamedTuple):
    """A model of raw rows, with everything that its predictions need.

    Attributes:
      parts: models of scaled or encoded rows, whose scores are concatenated.
      intercept: the term added to the scores, shape `(columns,)`.
      labels: the labels in the order of the scores; None for a regressor.
      exponentiates: whether values are the exponentials of the scores.
      factor: the factor of the scores for probabilities, or None.
      ranks: the rank of each column among the sorted ones if columns are quantiles,
        which must not cross; or None.
      dtype: the dtype of all numbers except the rows and their mean.
      encoding: the codes of rows, or None.
    """

    parts: tuple[KernelModel, ...]
    units: Units | None
    intercept: np.ndarray
    labels: np.ndarray | None
    exponentiates: bool
    factor: float | None
    ranks: np.ndarray | None
    feature_names: tuple[str, ...] | None
    num_features: int
    dtype: np.dtype
    encoding: Encoding | None = None

    @property
    def row_dtype(self) -> np.dtype:
        """The dtype of the rows: `dtype`, or float64 if that would round too much."""
        return self.dtype if self.units is None else self.units.mean.dtype

    @property
    def num_columns(self) -> int:
        """Columns of the scores."""
        return len(self.intercept)


def predictor(model: Any) -> Predictor:
    """The predictor of a model or a fitted estimator.

    Raises:
      ValueError: if it is an estimator that is not fitted, not a model, or several
        models.
    """
    model, before = _after_scalers(model)
    if hasattr(model, "get_params") and not hasattr(model, "model_"):
        raise ArgumentError(
            "model",
            "be a model or a fitted estimator of budgetjax",
            f"{type(model).__name__}, which has no model",
        )
    levels = np.asarray(getattr(model, "quantile", None))
    model = models.as_labelled(getattr(model, "model_", model))
    for scaler in reversed(before):
        model = _behind(scaler, model)
    num_features, dtype = models.num_features(model), models.dtype_of(model)
    parts = model.model if type(model.model) is tuple else (model.model,)
    parts = _together(tuple(_terms(models.unwrap(part)) for part in parts))
    unit = np.asarray(model.unit, dtype)
    parts = tuple(
        part._replace(coefficients=unit * part.coefficients, bias=unit * part.bias)
        for part in parts
    )
    columns = sum(part.coefficients.shape[1] for part in parts)
    return Predictor(
        parts,
        _units(model.scaling, parts, dtype),
        np.broadcast_to(np.asarray(model.intercept, dtype), (columns,)),
        models.class_labels(model),
        models.inverse_link(model) == losses.EXP,
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
        if type(step).__name__ != "StandardScaler":
            raise ArgumentError(
                "model",
                "have nothing but StandardScaler before it in a pipeline",
                type(step).__name__,
            )
        if not hasattr(step, "n_features_in_"):
            raise ArgumentError("model", "be fitted", "a new pipeline")
    return steps[-1], before


def _behind(scaler: Any, model: models.Labelled) -> models.Labelled:
    """The model for rows before a `StandardScaler`: the two scalings become one."""
    zeros, ones = np.zeros(scaler.n_features_in_), np.ones(scaler.n_features_in_)
    mean = scaler.mean_ if scaler.with_mean else zeros
    deviation = scaler.scale_ if scaler.with_std else ones
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
    scaling: Scaling | Encoding, parts: tuple[KernelModel, ...], dtype: np.dtype
) -> np.dtype:
    """The dtype of rows: that of the model, or float64 if that would round too much."""
    if isinstance(scaling, Encoding):
        _, _, _, column, low, high, _ = scaling
        widths = np.where(low < high, high - low, np.inf) * scaling.unit[column]
        lost = np.finfo(dtype).eps / 2 * np.abs(scaling.centre[column]) / widths
        values = low[low == high]
        exact = np.array_equal(values.astype(dtype), values)
        good = exact and np.all(lost <= ROUNDING)
        return dtype if good else np.dtype(np.float64)
    kernel, vectors = parts[0].kernel, parts[0].vectors.astype(np.float64)
    if not kernel.stationary:
        # Vectors are not rows here; standardised rows have a deviation of 1.
        vectors = np.ones((1, len(scaling.mean)))
    elif isinstance(kernel, Mapped) and kernel.mapped_vectors:
        vectors = vectors @ np.linalg.pinv(np.asarray(kernel.matrix))
    lost = np.finfo(dtype).eps / 2 * np.linalg.norm(scaling.mean / scaling.divisor)
    away = np.sqrt(np.mean(np.sum(vectors**2, axis=1)))
    return np.dtype(np.float64) if lost > ROUNDING * away else dtype


def _units(
    scaling: Scaling | Encoding | None, parts: tuple[KernelModel, ...], dtype: np.dtype
) -> Units | None:
    if scaling is None:
        return None
    if isinstance(scaling, Encoding):
        mean, divisor, fills = scaling.centre, scaling.unit, False
        deviations = divisor
    else:
        mean, divisor, fills = scaling.mean, scaling.divisor, scaling.fills
        deviations = scaling.deviation[~scaling.constant]
    row_dtype = _row_dtype(scaling, parts, dtype)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        first, factor = mean.astype(row_dtype), (1 / divisor).astype(dtype)
        rest = (mean - first).astype(row_dtype)
        units = Units(first, rest, factor, fills)
    if not all(np.all(np.isfinite(part)) for part in units[:3]):
        raise ArgumentError(
            "model",
            f"have a scaling in the range of {dtype}",
            f"means up to {np.max(np.abs(mean)):g} and deviations from "
            f"{np.min(deviations, initial=np.inf):g}",
        )
    return units


def _terms(model: Any) -> KernelModel:
    """The nonzero terms, at least one, with one column per score.

    A linear model becomes one vector, its weights, under the linear kernel.
    """
    if isinstance(model, LinearModel):
        weights, one = np.asarray(model.weights)[None], np.ones((1, 1))
        return _of(Linear(), weights, one, np.reshape(model.bias, (1,)))
    kernel = model.kernel
    vectors = np.asarray(getattr(model, "expansion", model).vectors)
    if isinstance(model, KernelModel):
        columns = models.num_columns(model)
        coefficients = np.asarray(model.coefficients).reshape(-1, columns)
        bias = np.reshape(model.bias, (-1,))
    else:
        scale = np.asarray(model.expansion.scale)
        coefficients = scale * np.asarray(model.expansion.coefficients)
        bias = np.zeros(1)
    if kernel.of_examples:
        kept = np.any(coefficients != 0, axis=1)
        kept[:1] |= not np.any(kept)
        vectors, coefficients = vectors[kept], coefficients[kept]
    if not len(vectors):
        vectors = np.zeros((1, vectors.shape[1]), vectors.dtype)
        coefficients = np.zeros((1, coefficients.shape[1]))
    return _of(kernel, vectors, coefficients, bias)


def _together(parts: tuple[KernelModel, ...]) -> tuple[KernelModel, ...]:
    """Joins models with the same kernel, and merges equal vectors."""
    kernel, *others = (part.kernel for part in parts)
    if not others or not all(_same(kernel, other) for other in others):
        return parts
    stacked = np.concatenate([part.vectors for part in parts])
    vectors, places = np.unique(stacked, axis=0, return_inverse=True)
    coefficients = np.zeros((len(vectors), len(parts)), stacked.dtype)
    columns = np.repeat(np.arange(len(parts)), [len(part.vectors) for part in parts])
    terms = np.concatenate([part.coefficients[:, 0] for part in parts])
    np.add.at(coefficients, (places.reshape(-1), columns), terms)
    bias = np.concatenate([part.bias for part in parts])
    return (_of(kernel, vectors, coefficients, bias),)


def _same(kernel: Any, other: Any) -> bool:
    leaves, structure = jax.tree.flatten(kernel)
    more, same = jax.tree.flatten(other)
    return structure == same and all(map(np.array_equal, leaves, more))


def _of(kernel: Any, vectors: Any, coefficients: Any, bias: Any) -> KernelModel:
    dtype = vectors.dtype
    bias = np.broadcast_to(bias, coefficients.shape[1:])
    return KernelModel(kernel, vectors, coefficients.astype(dtype), bias.astype(dtype))


def label_array(labels: np.ndarray) -> np.ndarray:
    """Labels as int64, booleans, float64, or text in an array of objects."""
    values = labels.tolist()
    if all(isinstance(one, str) for one in values):
        return np.array(values, object)
    if labels.dtype.kind in "iu":
        return labels.astype(np.int64)
    if labels.dtype.kind in "bf":
        return labels.astype(bool if labels.dtype.kind == "b" else np.float64)
    raise ArgumentError("labels", "be numbers or text", format_labels(labels))
