"""Probabilities from scores: one factor, fitted on rows that the model did not learn.

What a regressor knows of its errors is in `budgetjax.refitting.spread`.

The probabilities are the softmax of `factor * scores`, or of `(0, factor * f)` for one
column of scores f. The factor, the inverse of the temperature, keeps the order of the
classes: the most probable class is the predicted one. On usps, letter and ijcnn1,
further parameters, such as an offset or a factor per class, increase the log loss on
test rows; on a9a an offset lowers it from 0.353 to 0.351 with 100 vectors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._rows import RawRows
from budgetjax.model import Model, Scores, open_estimator
from budgetjax.refitting.spread import fit_spread
from budgetjax.tables.labels import check_weights, encode_labels_and_weights
from budgetjax.tables.spread import Spread
from budgetjax.tables.table_model import TableModel

# The smallest factor, divided by the largest difference of scores. Even uninformative
# scores keep their order.
LEAST = 1e-6


@names_errors("probabilities")
def probabilities(model: Any, X: RawRows) -> Float[Array | np.ndarray, "n classes"]:
    """The probability of each class for every row; O(n B d).

    They are the softmax, for two classes the sigmoid, of the scores times a factor, so
    the most probable class is the predicted one. The factor comes from the calibration,
    or is 1 for the state of an algorithm with the logistic loss. A refit has its own
    loss, so its result should be calibrated.

    Args:
      model: a classifier as for `decision_function`, with a calibration or the logistic
        loss; see `calibrate`, and `calibrate` of `refit`.
      X: as for `decision_function`.

    Returns:
      float64, shape `(n, C)`, in the order of the scores, which is that of `classes` in
      a `TableModel`; for labels -1 and +1, in this order. Under `jax.jit` the dtype is
      that of the scores.

    Raises:
      ValueError: if the model has neither, or is a regressor; and as
        `decision_function`.

    Example:
      >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype(np.float32)
      >>> y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
      >>> state = bj.Perceptron().init(
      ...     bj.RBF(4.0), num_features=2, budget=20, maintenance=bj.RemoveOldest())
      >>> state, _ = bj.run(state, X[:200], y[:200])
      >>> model = bj.refit(state, X[:200], y[:200], calibrate=True)
      >>> bj.probabilities(model, X[200:]).shape
      (200, 2)
    """
    model, X = open_estimator(model, X)
    _check_factor(model)  # first of all: scores take time
    return of_scores(model, model.evaluate(X, losses.IDENTITY))


def of_scores(model: Model, scores: Scores) -> Float[Array | np.ndarray, "n classes"]:
    """The probabilities for these scores of a model."""
    if _checks.is_traced((model, scores)):
        scores = jnp.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores
        return jax.nn.softmax(_check_factor(model) * scores)
    return softmax(_check_factor(model) * class_columns(np.asarray(scores)))


def factor_of(model: Model) -> Any:
    """The factor of a classifier; 1 if its loss is the logistic one, otherwise None."""
    logistic = model.link == losses.SOFTMAX
    found = None if model.is_regressor else TableModel.of(model).calibration
    return 1.0 if found is None and logistic else found


@names_errors("calibrate")
def calibrate(
    model: Any,
    X: RawRows,
    y: ArrayLike,
    weight: ArrayLike | None = None,
) -> Any:
    """The model with a calibration, from rows that it did not learn; O(n B d).

    Of a classifier it is the factor of the scores with the least log loss, for
    `probabilities`; of a regressor the noise around its scores, for `variance` and
    `predict_interval`. Use held-out rows (a few hundred are enough): on training rows
    errors are underestimated.

    Args:
      model: a model as for `decision_function`.
      X: rows as for `decision_function`.
      y: their labels, in the form that `predict` returns, shape `(n,)`; or targets,
        shape `(n,)`, or `(n, num_outputs)` for several outputs.
      weight: factors of their log losses, at least 0, shape `(n,)`; None for 1. The
        result refers to data in which a row of weight 2 occurs twice.

    Returns:
      A `TableModel`, or the given `StreamModel`. Its predictions do not change.

    Raises:
      ValueError: if shapes differ, a label is not one of the model's, or the scores of
        a regressor are logarithms.

    Example:
      >>> X, y = np.array([[1.0], [2.0], [-1.0], [0.5]]), np.array([1, 1, -1, -1])
      >>> model = bj.calibrate(bj.LinearModel(np.array([1.0]), np.array(0.0)), X, y)
      >>> bj.probabilities(model, X).shape
      (4, 2)

    References:
      Platt (1999), "Probabilistic outputs for support vector machines and comparisons
      to regularized likelihood methods", Section 2.2, for the smoothed targets.

      Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
      networks", Section 4.2, for the single factor (the temperature is its inverse):
      https://proceedings.mlr.press/v70/guo17a.html.

    Differences from the papers: no offset, so the most probable class is the predicted
    one; the number of rows in Platt's targets is that of all classes.
    """
    _checks.check_not_traced(model, X, y, weight)
    whole, X = open_estimator(model, X)
    if whole.is_regressor:
        found = _fit_spread(whole, X, y, weight)
    else:
        scores = np.asarray(whole.evaluate(X, losses.IDENTITY))
        given = encode_labels_and_weights(whole, len(scores), y, weight)
        found = fit_factor(scores, *given)
    return TableModel.of(whole)._replace(calibration=found).put_in(whole)


def _fit_spread(
    whole: Model, X: RawRows, y: ArrayLike, weight: ArrayLike | None
) -> Spread | None:
    """The spread of a regressor, from these rows."""
    if whole.link != losses.IDENTITY:
        wanted = "be a classifier, or a regressor whose scores are values"
        raise ArgumentError("model", wanted, "one of logarithms")
    table = TableModel.of(whole)
    scores, beyond = table.scores_and_beyond(X)
    targets = table.encode_targets(np.asarray(y))
    expected = scores.shape if table.target_shape else (len(scores),)
    if targets.shape != expected:
        wanted = f"have shape {expected}, one target per row of X"
        raise ArgumentError("y", wanted, targets.shape)
    if not np.all(np.isfinite(targets)):
        raise ArgumentError("y", "be finite numbers", "NaN or infinity")
    weights = check_weights(len(scores), weight)
    return fit_spread(scores, targets.reshape(scores.shape), beyond, weights)


@names_errors("probabilities")
def _check_factor(model: Model) -> Any:
    if model.is_regressor:
        raise ArgumentError("model", "be a classifier", "a regressor")
    if (found := factor_of(model)) is not None:
        return found
    kind = _checks.kind_name(model.inner)
    raise ArgumentError(
        "model",
        "have a calibration, or a state that learns with budgetjax.losses.logistic",
        f"neither in {kind}: use budgetjax.calibrate(model, X, y) "
        "with rows that it has not learned, or budgetjax.refit(..., "
        "calibrate=True)",
    )


def fit_factor(
    scores: Float[np.ndarray, " n *classes"],
    codes: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> float:
    """The factor with the least weighted log loss; O(n C) per step.

    The targets are Platt's: with n effective rows, the label has the probability
    `(n + 1) / (n + 2)`, and the other classes share the rest, so the factor is finite
    even if the scores make no mistake. The codes are the indices of the rows' classes.
    """
    columns = class_columns(scores)
    columns = columns - np.max(columns, axis=1, initial=-np.inf, keepdims=True)
    weights = weights.astype(np.float64)
    total, square = np.sum(weights), np.sum(weights**2)
    effective = total**2 / square if square > 0 else 0.0
    weights = weights / total if total > 0 else weights
    span = np.max(-columns, initial=0.0)
    if not span:
        return LEAST
    label = np.take_along_axis(columns, codes[:, None].astype(np.intp), 1)[:, 0]
    others = (np.sum(columns, axis=1) - label) / (columns.shape[1] - 1)
    wanted = weights @ (label * (effective + 1) + others) / (effective + 2)

    def slope_and_curvature(factor: float) -> tuple[float, float]:
        shares = softmax(factor * columns)
        means = np.sum(shares * columns, axis=1)
        squares = np.sum(shares * columns**2, axis=1) - means**2
        return float(weights @ means - wanted), float(weights @ squares)

    # The slope increases with the factor.
    least = most = LEAST / span
    while slope_and_curvature(most)[0] < 0:
        least, most = most, 4 * most
    factor, width = most, most - least
    while width > 1e-10 * most:
        slope, curvature = slope_and_curvature(factor)
        least, most = (factor, most) if slope < 0 else (least, factor)
        new = factor - slope / curvature if curvature > 0 else least
        # A step of Newton's method, or of bisection where that leaves the bracket.
        new = new if least < new < most else (least + most) / 2
        factor, width = new, min(most - least, abs(new - factor))
    return float(factor)


def class_columns(
    scores: Float[np.ndarray, " n *classes"],
) -> Float[np.ndarray, "n columns"]:
    """One column per class, in float64."""
    scores = scores.astype(np.float64)
    return np.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores


def softmax(scores: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "n columns"]:
    """The softmax of each row."""
    powers = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)
