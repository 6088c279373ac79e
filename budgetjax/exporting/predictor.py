"""The numbers and the program by which a model predicts, for an exported file."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy import linalg

from budgetjax import _checks, losses, scoring
from budgetjax._errors import ArgumentError
from budgetjax.kernels import Kernel, Linear, Mapped
from budgetjax.model import KernelModel, LinearModel, Model
from budgetjax.online.state import State
from budgetjax.refitting import calibration
from budgetjax.tables import encoding
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.spread import Spread
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


class Deviation(NamedTuple):
    """How the deviation of the only part follows from its kernel rows.

    Attributes:
      spread: of the scores before their unit; None if the part has a `variance`.
      inverse: the transposed inverse of its `span_root`, one row per vector; None if no
        row is beyond its span.
    """

    spread: Spread | None
    inverse: np.ndarray | None = None


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
      deviation: what gives the deviations of targets, or None without them.
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
    deviation: Deviation | None = None

    @property
    def row_dtype(self) -> np.dtype:
        """The dtype of the rows: `dtype`, or float64 if that would round too much."""
        return self.dtype if self.units is None else self.units.mean.dtype


def predictor(model: Any, deviation: bool = False) -> Predictor:
    """The predictor of a model or a fitted estimator, on request of deviations too."""
    model, before = _after_scalers(model)
    is_model = isinstance(model, Model) or hasattr(model, "model_")
    if hasattr(model, "get_params") and not is_model:
        wanted = "be a model or a fitted estimator of budgetjax"
        got = f"{type(model).__name__}, which has no model"
        raise ArgumentError("model", wanted, got)
    quantile = getattr(model, "quantile", None)
    levels, model = np.asarray(quantile), TableModel.of(model)
    for scaler in reversed(before):
        model = _compose_scalers(scaler, model)
    model.check_single()
    num_features, dtype = model.num_features, np.dtype(model.dtype)
    found = None
    if deviation:
        _check_deviates(model, quantile)
        found, part = _deviating(model.model.inner, model.spread)
        parts = (part,)
    else:
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
        found,
    )


def _check_deviates(model: TableModel, quantile: Any) -> None:
    """Raises where it is not known how far targets lie from predictions."""
    wanted, kind = "be of values, for their deviations", _checks.kind_name(model.inner)
    if not model.is_regressor:
        raise ArgumentError("model", wanted, f"{kind} of labels")
    if model.link == losses.EXP:
        raise ArgumentError("model", wanted, f"{kind} of logarithms")
    if quantile is not None:
        raise ArgumentError("model", wanted, f"one with quantile={quantile!r}")
    model.check_knows_variance()


def _deviating(part: Any, spread: Spread | None) -> tuple[Deviation, Any]:
    """What the deviations of a model need, and the model in its form for them."""
    if spread is None:
        # Its scores have the kernel rows of its variance.
        return Deviation(None), part
    terms, root = _terms(part, whole=True), part.span_root()
    if root is None or not isinstance(terms, KernelModel):
        return Deviation(spread), terms
    active = _active(part)
    # No vector: one with the coefficient 0 is there, and spans nothing.
    inverse = np.zeros((1, 1))
    if np.any(active):
        root = np.asarray(root, np.float64)[np.ix_(active, active)]
        unit = np.eye(len(root))
        inverse = linalg.solve_triangular(root, unit, lower=True, check_finite=False).T
    return Deviation(spread, inverse.astype(terms.dtype)), terms


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


def _active(model: KernelModel | State) -> np.ndarray:
    """Where its rows hold support vectors."""
    if isinstance(model, KernelModel):
        return np.ones(len(model.vectors), bool)
    return np.array(model.expansion.mask)


def _terms(model: Any, whole: bool = False) -> Any:
    """The nonzero terms, or all of them, at least one, with one column per score.

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
        own = model.expansion
        vectors = own.examples
        coefficients = np.asarray(own.scale) * np.asarray(own.coefficients)
    vectors = np.asarray(vectors)
    coefficients = np.asarray(coefficients).reshape(-1, model.num_columns)
    if kernel.of_examples:
        kept = _active(model) if whole else np.any(coefficients != 0, axis=1)
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
    units, deviation = predictor.units, predictor.deviation
    if predictor.codes is not None:
        X = encoding.encode(predictor.codes, X).astype(predictor.dtype)
    elif units is not None:
        X = X - units.mean[None] - units.rest[None]
        X = X.astype(predictor.dtype) * units.factor[None]
    columns, start, beyond = [], 0, None
    for part in predictor.parts:
        stop = start + part.num_columns
        if isinstance(part, KernelModel):
            found, beyond = _scores(part, X, deviation)
            columns.append(found)
        else:
            columns.append(predictor.unit[None, start:stop] * part.scores(X))
        start = stop
    scores = jnp.concatenate(columns, axis=1)
    deviations = deviation and _deviations(predictor, X, scores, beyond)
    scores = scores + predictor.intercept[None]
    if predictor.ranks is not None:
        ordered, columns = jnp.sort(scores, axis=1), predictor.ranks.tolist()
        parts = [jax.lax.slice_in_dim(ordered, i, i + 1, axis=1) for i in columns]
        scores = jnp.concatenate(parts, axis=1)
    binary = len(predictor.intercept) == 1
    flat = jnp.squeeze(scores, axis=1) if binary else scores
    if predictor.labels is None:
        found = {"variable": jnp.exp(flat) if predictor.exponentiates else flat}
        return found if deviations is None else found | {"deviation": deviations}
    best = flat > 0 if binary else jnp.argmax(scores, axis=1)
    found = {"label": best.astype(jnp.int32), "scores": flat}
    if predictor.factor is not None:
        each = jnp.concatenate([0 * scores, scores], axis=1) if binary else scores
        factor = jnp.asarray(predictor.factor, scores.dtype)
        found["probabilities"] = jax.nn.softmax(factor * each, axis=1)
    return found


def _deviations(
    predictor: Predictor,
    X: Float[Array, "n d"],
    scores: Float[Array, "n columns"],
    beyond: Float[Array, " n"] | None,
) -> Float[Array, "*n_columns"]:
    """The deviations of targets, of scaled rows and their scores without intercept."""
    (part,), unit = predictor.parts, predictor.unit
    spread = predictor.deviation and predictor.deviation.spread
    if spread is None:
        variances = part.variance(X)
    else:
        share = part.beyond(X) if beyond is None else beyond
        variances = spread.variance(scores / unit[None], share)
    deviations = jnp.asarray(unit)[None] * jnp.sqrt(
        jnp.reshape(variances, scores.shape)
    )
    return jnp.squeeze(deviations, axis=1) if len(unit) == 1 else deviations


def _scores(
    part: KernelModel, X: Float[Array, "n d"], deviation: Deviation | None
) -> tuple[Float[Array, "n columns"], Float[Array, " n"] | None]:
    """The scores of scaled rows, centred at the mean of the vectors if allowed.

    For deviations also what `beyond` says of the rows.

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
    scores = scores + jnp.asarray(part.bias)[None]
    if deviation is None:
        return scores, None
    if deviation.inverse is None:
        return scores, jnp.zeros(X.shape[0], X.dtype)
    inside = jnp.matmul(gram, jnp.asarray(deviation.inverse), precision="highest")
    inside = jnp.sum(inside * inside, axis=1)
    return scores, scoring.share_outside(inside, kernel.diag(X))


def label_array(labels: np.ndarray) -> np.ndarray:
    """Labels as int64, booleans, float64, or text in an array of objects."""
    values, kind = labels.tolist(), labels.dtype.kind
    if all(isinstance(one, str) for one in values):
        return np.array(values, object)
    dtypes = {"i": np.int64, "u": np.int64, "b": np.bool, "f": np.float64}
    if kind in dtypes:
        return labels.astype(dtypes[kind])
    raise ArgumentError("labels", "be numbers or text", scoring.format_labels(labels))
