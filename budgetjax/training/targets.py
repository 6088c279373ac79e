"""Targets that are numbers, in units of their own: the mean so far, and a deviation."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float

from budgetjax import _record, losses
from budgetjax.refitting import training_data
from budgetjax.tables import scaling
from budgetjax.tables.table_model import TableModel

# One number, or one per column of targets.
PerColumn: TypeAlias = float | Float[np.ndarray, "..."]


@_record.record
class SeenTargets(NamedTuple):
    """Statistics of the targets so far.

    Attributes:
      mean: their mean, one number per column, or its initial value.
      total: their total weight.
      most: the distance from the mean at which they are clipped.
      unit: the deviation of the first ones, one number per column.
    """

    mean: PerColumn
    total: float
    most: PerColumn
    unit: PerColumn


def centre_targets(
    y: Float[np.ndarray, "n ..."],
    weights: Float[np.ndarray, " n"],
    before: SeenTargets | None,
    loss: Callable[..., Array],
) -> tuple[Float[np.ndarray, "n ..."], TableModel, SeenTargets]:
    """The targets of a state, the labels, and statistics for later targets.

    `before` has those of earlier targets, or is None.
    """
    if before is None:
        before = _first_seen(y[weights > 0], loss)
    targets, seen = _centre(y, weights, before)
    intercept = seen.mean
    if losses.traits(loss).link == losses.EXP:
        # In the space of scores. If all targets are 0, any value serves.
        mean = np.where(seen.mean > 0, seen.mean, 1.0)[()]
        targets, intercept = y / mean, np.log(mean)
    return targets, TableModel(None, intercept=intercept, unit=seen.unit), seen


def _first_seen(
    y: Float[np.ndarray, "n ..."], loss: Callable[..., Array]
) -> SeenTargets:
    """The statistics of targets before the first is learned, from a sample of them."""
    shape = y.shape[1:]
    if not losses.is_shift_invariant(loss, shape):
        most = np.inf if losses.traits(loss).link == losses.EXP else 0.0
        return SeenTargets(np.zeros(shape), 0.0, most, np.ones(shape)[()])
    robust = losses.traits(loss).robust
    centre, deviation = scaling.centre_and_deviation(y, robust=robust)
    most = training_data.NEAR * deviation if robust and np.all(deviation) else np.inf
    return SeenTargets(centre, 0.0, most, np.where(deviation > 0, deviation, 1.0)[()])


def _centre(
    y: Float[np.ndarray, "n ..."], weights: Float[np.ndarray, " n"], before: SeenTargets
) -> tuple[Float[np.ndarray, "n ..."], SeenTargets]:
    """Targets minus their running mean, which includes each, in their unit.

    The second result holds the statistics after them.
    """
    totals = before.total + np.cumsum(weights)
    # One weight per row, shared by its outputs.
    shape = (-1, *[1] * (y.ndim - 1))
    weights, sums = weights.reshape(shape), totals.reshape(shape)
    # The mean moves by a fraction of the distance, so a large offset costs no digits.
    distance = np.clip(y - before.mean, -before.most, before.most)
    shifts = np.cumsum(weights * distance, axis=0) / np.where(sums > 0, sums, 1)
    means = before.mean + shifts
    last = means[-1] if y.ndim > 1 else float(means[-1])
    after = before._replace(mean=last, total=float(totals[-1]))
    return (y - means) / before.unit, after
