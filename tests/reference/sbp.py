"""The Stochastic Batch Perceptron, and the water levels that it climbs.

Cotter, Shalev-Shwartz and Srebro (2012), Algorithm 1 and Appendix B. Responses are
heights of ground, `c_i = y_i f(x_i)`, and `volume` is n nu.
"""

import math
from typing import NamedTuple

import numpy as np


def level(heights, volume):
    """gamma with sum_i max(0, gamma - c_i) = volume, by a sort."""
    total, best = 0.0, -math.inf
    for k, height in enumerate(sorted(float(c) for c in heights), start=1):
        # water up to the k-th lowest needs k s_k less the sum of the first k
        if k * height - (total + height) > volume:
            break
        total = total + height
        best = (volume + total) / k
    return best


def level_by_bisection(heights, volume):
    """The same, from its definition."""
    heights = np.asarray(heights, np.float64)
    low, high = heights.min(), heights.min() + volume
    for _ in range(200):
        middle = low + (high - low) / 2
        if np.maximum(0, middle - heights).sum() < volume:
            low = middle
        else:
            high = middle
    return high


def balanced_level(heights, y, volume):
    """The highest level of c_i + y_i b, and that b, by a sort of each class."""
    positive, negative = (
        sorted(float(c) for c, sign in zip(heights, y, strict=True) if sign == each)
        for each in (1, -1)
    )
    needs, sums = [], []
    total = 0.0
    for k, (p, q) in enumerate(zip(positive, negative, strict=False), start=1):
        total = total + p + q
        sums.append(total)
        needs.append(k * p + k * q - total)
    k = max([j for j, need in enumerate(needs, start=1) if need < volume], default=1)

    p, q = positive[k - 1], negative[k - 1]
    rise = (volume + sums[k - 1]) / k - p - q
    rise_p = min(rise, positive[k] - p) if k < len(positive) else rise
    rise_q = min(rise, negative[k] - q) if k < len(negative) else rise
    g_p = p + (rise + rise_p - rise_q) / 2
    g_q = q + (rise - rise_p + rise_q) / 2
    return (g_p + g_q) / 2, (g_q - g_p) / 2


def balanced_level_by_search(heights, y, volume):
    """The same level, from its definition: a ternary search over the bias."""
    heights = np.asarray(heights, np.float64)
    # At a bias of this size and sign one class alone is under water, or all are.
    reach = heights.max() - heights.min() + volume + 1

    def at(bias):
        return level(heights + y * bias, volume)

    # The level is concave in the bias, so that it is flat only where it is highest.
    low, high = -reach, reach
    while high - low > 1e-12 * reach:
        third = (high - low) / 3
        if at(low + third) < at(high - third):
            low = low + third
        else:
            high = high - third
    return at((low + high) / 2)


class Path(NamedTuple):
    """What SBP went through; one entry for every update, made after it."""

    coefficients: list
    responses: list
    squared_norms: list
    mean_coefficients: np.ndarray
    mean_responses: np.ndarray


def run(Q, draws):
    """Algorithm 1 with these draws, from 0; the t-th iterate weighs t in the means.

    The level says who may be drawn, and nothing else.
    """
    n = len(Q)
    alpha, c, r2 = np.zeros(n), np.zeros(n), 0.0
    eta_0 = 1 / math.sqrt(max(Q[i, i] for i in range(n)))
    sums = np.zeros(n), np.zeros(n)
    path = Path([], [], [], *sums)
    for t, i in enumerate(draws, start=1):
        eta = eta_0 / math.sqrt(t)
        alpha[i] = alpha[i] + eta
        r2 = r2 + 2 * eta * c[i] + eta**2 * Q[i, i]
        c = c + eta * Q[i]
        if r2 > 1:
            alpha, c = alpha / math.sqrt(r2), c / math.sqrt(r2)
            r2 = 1.0

        sums = sums[0] + t * alpha, sums[1] + t * c
        path.coefficients.append(alpha.copy())
        path.responses.append(c)
        path.squared_norms.append(r2)
    weight = len(draws) * (len(draws) + 1) / 2
    return path._replace(
        mean_coefficients=sums[0] / weight, mean_responses=sums[1] / weight
    )


def draws(path):
    """Whom SBP drew, from its coefficients after every update.

    An update multiplies all coefficients by one number, but raises the drawn one more.
    """
    found, old = [], np.zeros(len(path[0]))
    for new in path:
        growth = np.zeros(len(old))
        for i in range(len(old)):
            if new[i] > 0:
                growth[i] = math.inf if old[i] == 0 else new[i] / old[i]
        found.append(int(np.argmax(growth)))
        old = new
    return found


def upper_bound(Q, p, slack, y=None):
    """No unit vector's level is above it, for weights p >= 0 of sum 1.

    The level is the least of sum_i p_i c_i + n nu max_i p_i over such p; with a bias
    (give y) both classes must weigh the same.
    """
    assert np.all(p >= 0)
    assert math.isclose(p.sum(), 1, rel_tol=1e-12)
    if y is not None:
        assert abs(p @ y) < 1e-12
    return math.sqrt(p @ Q @ p) + len(Q) * slack * p.max()
