"""Probabilities from scores: one factor, fitted on rows that a model has not learned.

The probabilities are the softmax of `factor * scores`, and for one column of scores f
those of `(0, factor * f)`. The factor, one over the temperature, leaves the order of
the classes as it is: the most probable one is what the model predicts. On usps, letter
and ijcnn1 more numbers, such as an offset or a factor per class, have a larger log loss
on test rows; on a9a an offset lowers it from 0.353 to 0.351 with 100 vectors.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy import optimize, special

from budgetjax import checks, examples, losses, models

# The smallest factor, over the largest difference of scores: even scores that say
# nothing keep their order.
LEAST = 1e-6


def probabilities(model: Any, X: Any) -> Float[np.ndarray, "n classes"]:
    """The probability of each class for every row; O(n B d).

    They are the softmax of the scores times a factor, and for two classes the sigmoid,
    so that the most probable class is the predicted one. The factor is that of the
    calibration, or 1 for the state of an algorithm that has learned with the logistic
    loss. A refit has a loss of its own, so its result should be calibrated.

    Args:
      model: a classifier as for `decision_function`, with a calibration or the logistic
        loss; see `calibrated`, and `calibrate` of `refit`.
      X: as for `decision_function`.

    Returns:
      Doubles, shape `(n, C)`, in the order of the scores, which is that of `classes`
      of a `Labelled`; for -1 and +1 in this order.

    Raises:
      ValueError: if the model has neither, or is a regressor; or as
        `decision_function`.

    Example:
      >>> import budgetjax as bj, numpy as np
      >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype(np.float32)
      >>> y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
      >>> state = bj.perceptron.init(
      ...     bj.RBF(gamma=4.0), num_features=2, budget=20, maintenance=bj.Project())
      >>> state, _ = bj.run(bj.perceptron, state, X[:200], y[:200])
      >>> model = bj.refit(state, X[:200], y[:200], calibrate=True)
      >>> bj.probabilities(model, X[200:]).shape
      (200, 2)
    """
    _factor(model)  # first of all: scores take time
    return of_scores(model, models.scores_of("probabilities", model, X))


def of_scores(model: Any, scores: Any) -> Float[np.ndarray, "n classes"]:
    """The probabilities for these scores of a model."""
    columns = _factor(model) * _columns(np.asarray(scores))
    return special.softmax(columns, axis=1)


def gives_probabilities(model: Any) -> bool:
    """Whether a classifier has a calibration, or the logistic loss."""
    if models.labelled(model).calibration is not None:
        return True
    loss = getattr(models.innermost(model), "loss", losses.hinge)
    return losses.gives_log_odds(loss)


def calibrated(model: Any, X: Any, y: Any, weight: Any = None) -> Any:
    """The model with the calibration that `probabilities` needs; O(n B d).

    It is the factor of the scores of least log loss. The rows must be others than those
    that the model has learned, on which it makes too few mistakes; some hundred do.

    Args:
      model: a classifier as for `decision_function`.
      X: rows as for `decision_function`.
      y: their labels, as `predict` gives them, shape `(n,)`.
      weight: factors of their log losses, at least 0, shape `(n,)`; None for 1. The
        probabilities are those of data of which a row of weight 2 stands there twice.

    Returns:
      A `Labelled`, or the `StreamModel` that was given. It predicts as before.

    Raises:
      ValueError: if the model is a regressor, the arrays do not fit, or a label is not
        one of the model.

    References:
      Platt (1999), "Probabilistic outputs for support vector machines and comparisons
      to regularized likelihood methods", Section 2.2, for the smoothed targets.

      Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
      networks", Section 4.2, for the one factor (the temperature is one over it):
      https://proceedings.mlr.press/v70/guo17a.html.

    Differences from the papers: no offset, so that the most probable class is the
    predicted one; Platt's number of rows is that of all classes.
    """
    where = "calibrated"
    known, y = models.labels_of(model), np.asarray(y)
    if known is None or models.is_regressor(model):
        raise ValueError(f"{where}: model must be a classifier, got a regressor")
    scores = np.asarray(models.scores_of(where, model, X))
    if y.shape != scores.shape[:1]:
        raise ValueError(
            f"{where}: y must have shape {scores.shape[:1]}, one label per row of X, "
            f"got {y.shape}"
        )
    codes = models.codes_of(known, y)
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        raise ValueError(
            f"{where}: y must be one of {models.listed(known)}, got "
            f"{y.tolist()[row]!r} in row {row}"
        )
    weights = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)
    if weights.shape != y.shape:
        raise ValueError(
            f"{where}: weight must have shape {y.shape}, one per row of X, got "
            f"{weights.shape}"
        )
    examples.check_weights(where, weights, weights.dtype)
    return models.with_calibration(model, fitted(scores, codes, weights))


def _factor(model: Any) -> float:
    """The calibration of a classifier, or 1 if its loss is the logistic one."""
    where = "probabilities"
    if models.is_regressor(model):
        raise ValueError(f"{where}: model must be a classifier, got a regressor")
    if gives_probabilities(model):
        found = models.labelled(model).calibration
        return 1.0 if found is None else found
    kind = checks.named(models.innermost(model))
    raise ValueError(
        f"{where}: model must have a calibration, or a state that learns with "
        f"budgetjax.losses.logistic, got neither in {kind}: "
        "use budgetjax.calibrated(model, X, y) with rows that it has not learned, or "
        "budgetjax.refit(..., calibrate=True)"
    )


def fitted(
    scores: Float[np.ndarray, " n *classes"],
    codes: Int[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> float:
    """The factor of least weighted log loss, a zero of its derivative; O(n C) per step.

    The targets are Platt's: a class has the probability `(n + 1) / (n + 2)` where it is
    the label, with n effective rows, and the others share the rest, so that the factor
    is finite where the scores make no mistake.

    Args:
      scores: of rows that the model has not learned.
      codes: the class of each, as an index.
      weights: factors of the log losses, at least 0.

    References:
      Platt (1999), "Probabilistic outputs for support vector machines", Section 2.2.

      Guo, Pleiss, Sun and Weinberger (2017), "On calibration of modern neural
      networks", Section 4.2, for the temperature:
      https://proceedings.mlr.press/v70/guo17a.html.
    """
    columns = _columns(scores)
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

    def slope(factor: float) -> float:
        chances = special.softmax(factor * columns, axis=1)
        return float(weights @ np.sum(chances * columns, axis=1) - wanted)

    # It rises in the factor, to above 0.
    least, most = LEAST / span, 1 / span
    while slope(most) < 0:
        most *= 2
    if slope(least) >= 0:
        return float(least)
    found: Any = optimize.brentq(slope, least, most, xtol=1e-10 * least)
    return float(found)


def _columns(
    scores: Float[np.ndarray, " n *classes"],
) -> Float[np.ndarray, "n columns"]:
    """One column per class, in doubles."""
    scores = scores.astype(np.float64)
    return np.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores
