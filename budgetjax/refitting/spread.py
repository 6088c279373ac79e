"""Fits how far targets lie from scores, on rows that a model did not learn.

Of the test rows of nine tables with 350 to 20,000 rows, the log density was larger by
0.2 in the mean if the noise depends on the score than if it is the same everywhere, and
by more than 0.6 on two (`benchmarks/tasks/deviations.py`). The share beyond the span,
or the posterior in it, hardly changes it within what the rows reach, as errors of a
model of few vectors are mostly noise to it. Errors have longer tails than Gaussians:
with one deviation, 45 to 92 percent of targets were within the intervals for 50.
"""

import numpy as np
from jaxtyping import Float
from scipy import optimize

from budgetjax.tables.spread import GAUSSIAN, LEVELS, Spread

# The shares of scores below the two between which the noise changes.
ENDS = (0.02, 0.98)
# The logarithms of the noise at these two are so far apart without evidence.
DEVIATION = 2.0
# The smallest variance of errors, as a fraction of the mean square of the targets.
LEAST = 1e-12
# The smallest number, where all targets are 0.
TINY = 1e-30
# Bounds of logarithms.
FARTHEST = 30.0


def fit_spread(
    scores: Float[np.ndarray, "n columns"],
    targets: Float[np.ndarray, "n columns"],
    beyond: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> Spread | None:
    """The spread of the highest likelihood, in units of the scores; O(n) per step.

    A row of weight 2 counts as two; None without any row. The widths are conformal: of
    n effective rows, a share c of targets is within the errors up to that of rank `c (n
    + 1)`. Shares that so few rows cannot tell are those of Gaussians.
    """
    rows = np.flatnonzero(weights > 0)
    if not len(rows):
        return None
    scores, targets, beyond, weights = (
        one[rows].astype(np.float64) for one in (scores, targets, beyond, weights)
    )
    weights = weights * (np.sum(weights) / np.sum(weights**2))
    pairs = zip(scores.T, targets.T, strict=True)
    parts = [_fit_column(*pair, beyond, weights) for pair in pairs]
    return Spread(*map(np.stack, zip(*parts, strict=True)))


def _fit_column(
    scores: Float[np.ndarray, " n"],
    targets: Float[np.ndarray, " n"],
    beyond: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
) -> tuple[float | np.ndarray, ...]:
    """The numbers of a `Spread` for one column."""
    low, high = weighted_quantiles(scores, weights, np.array(ENDS))
    place = np.clip((scores - low) / (high - low or 1.0), 0, 1)
    number = np.sum(weights)
    mean = weights @ targets / number
    prior = weights @ (targets - mean) ** 2 / number
    least = max(LEAST * (weights @ targets**2) / number, TINY)
    squares = (targets - scores) ** 2
    unit = max(weights @ squares / number, least)
    squares = squares / unit

    def objective(logarithms: np.ndarray) -> tuple[float, np.ndarray]:
        first, last = logarithms
        noise, away = (1 - place) * first + place * last, (last - first) / DEVIATION
        slope = weights * (1 - squares * np.exp(-noise))
        value = weights @ (noise + squares * np.exp(-noise)) + away**2
        more = 2 * away / DEVIATION
        return value, np.array([slope @ (1 - place) - more, slope @ place + more])

    bounds = [(-FARTHEST, FARTHEST)] * 2
    found = optimize.minimize(
        objective, np.zeros(2), jac=True, method="L-BFGS-B", bounds=bounds
    )
    first, last = found.x
    noise = np.exp((1 - place) * first + place * last)
    widths = conformal_widths(np.sqrt(squares / noise), weights)
    # Their logarithms are those of float32, too.
    variances = np.maximum(unit * np.exp(np.array([first, last])), TINY)
    return low, high, *variances, np.max(beyond), prior, widths


def conformal_widths(
    errors: Float[np.ndarray, " n"], weights: Float[np.ndarray, " n"]
) -> Float[np.ndarray, " levels"]:
    """Half of the intervals for `LEVELS`, of errors in deviations."""
    number = np.sum(weights)
    shares = np.array(LEVELS) * (1 + 1 / number)
    widths = weighted_quantiles(errors, weights, np.minimum(shares, 1))
    known = np.flatnonzero(shares <= 1)
    if not len(known):
        return GAUSSIAN
    last = known[-1]
    return np.where(shares <= 1, widths, widths[last] / GAUSSIAN[last] * GAUSSIAN)


def weighted_quantiles(
    values: Float[np.ndarray, " n"],
    weights: Float[np.ndarray, " n"],
    shares: Float[np.ndarray, " shares"],
) -> Float[np.ndarray, " shares"]:
    """The least value up to which there is this share of the weights."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    # Sums are rounded.
    wanted = shares * sums[-1] * (1 - 1e-12)
    at = np.minimum(np.searchsorted(sums, wanted), len(values) - 1)
    return values[order][at]
