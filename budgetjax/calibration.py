"""Probabilities from scores: one factor, fitted on rows that a model has not learned.

The probabilities are the softmax of `factor * scores`, and for one column of scores f
those of `(0, factor * f)`. The factor, one over the temperature, leaves the order of
the classes as it is: the most probable one is what the model predicts. On usps, letter
and ijcnn1 more numbers, such as an offset or a factor per class, have a larger log loss
on test rows; on a9a an offset lowers it from 0.353 to 0.351 with 100 vectors.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from budgetjax import checks, losses, models

# The smallest factor, over the largest difference of scores: even scores that say
# nothing keep their order.
LEAST = 1e-6


def probabilities(model: Any, X: Any) -> Float[Any, "n classes"]:
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
      of a `Labelled`; for -1 and +1 in this order. Under `jax.jit` the type of the
      scores, for a model without a scaling of its own.

    Raises:
      ValueError: if the model has neither, or is a regressor; or as
        `decision_function`.

    Example:
      >>> import budgetjax as bj, numpy as np
      >>> X = np.random.default_rng(0).uniform(-1, 1, (400, 2)).astype(np.float32)
      >>> y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
      >>> state = bj.perceptron.init(
      ...     bj.RBF(4.0), num_features=2, budget=20, maintenance=bj.RemoveOldest())
      >>> state, _ = bj.run(bj.perceptron, state, X[:200], y[:200])
      >>> model = bj.refit(state, X[:200], y[:200], calibrate=True)
      >>> bj.probabilities(model, X[200:]).shape
      (200, 2)
    """
    _checked_factor(model)  # first of all: scores take time
    return of_scores(model, models.scores_of("probabilities", model, X))


def of_scores(model: Any, scores: Any) -> Float[Any, "n classes"]:
    """The probabilities for these scores of a model."""
    if checks.is_traced((model, scores)):
        scores = jnp.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores
        return jax.nn.softmax(_checked_factor(model) * scores)
    return softmax(_checked_factor(model) * class_columns(np.asarray(scores)))


def factor_of(model: Any) -> Any:
    """The calibration of a model, or 1 if its loss is the logistic one, or None."""
    logistic = models.inverse_link(model) == losses.SOFTMAX
    found = models.labelled(model).calibration
    return 1.0 if found is None and logistic else found


def calibrated(model: Any, X: Any, y: Any, weight: Any = None) -> Any:
    """The model with the calibration that `probabilities` needs; O(n B d).

    It is the factor of the scores of least log loss. Use held-out rows (a few hundred
    are enough): on training rows errors are underestimated.

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
    checks.on_host("calibrated", model, X, y, weight)
    scores = np.asarray(models.scores_of("calibrated", model, X))
    given = models.codes_and_weights("calibrated", model, len(scores), y, weight)
    return models.with_calibration(model, fitted(scores, *given))


def _checked_factor(model: Any) -> Any:
    where = "probabilities"
    if models.is_regressor(model):
        raise ValueError(f"{where}: model must be a classifier, got a regressor")
    if (found := factor_of(model)) is not None:
        return found
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
    """The factor of least weighted log loss, see `calibrated`; O(n C) per step.

    The targets are Platt's: a class has the probability `(n + 1) / (n + 2)` where it is
    the label, with n effective rows, and the others share the rest, so that the factor
    is finite where the scores make no mistake.

    Args:
      scores: of rows that the model has not learned.
      codes: the class of each, as an index.
      weights: factors of the log losses, at least 0.
    """
    from scipy import optimize  # takes a third of a second

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

    def slope(factor):
        return weights @ np.sum(softmax(factor * columns) * columns, axis=1) - wanted

    # It rises in the factor.
    least = most = LEAST / span
    while slope(most) < 0:
        least, most = most, 4 * most
    if least == most:
        return float(least)
    bracket, exact = (least, most), {"xtol": 1e-300, "rtol": 1e-10}
    return float(optimize.root_scalar(slope, bracket=bracket, **exact).root)


def class_columns(
    scores: Float[np.ndarray, " n *classes"],
) -> Float[np.ndarray, "n columns"]:
    """One column per class, in doubles."""
    scores = scores.astype(np.float64)
    return np.stack([0 * scores, scores], axis=1) if scores.ndim == 1 else scores


def softmax(scores: Float[np.ndarray, "n columns"]) -> Float[np.ndarray, "n columns"]:
    """Positive numbers in proportion to the exponentials of scores, of sum 1 by row."""
    powers = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)
