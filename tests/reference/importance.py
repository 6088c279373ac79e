"""How far the weight of an example carries its step: w equal rows at once.

Karampatziakis, Langford, "Online importance weight aware updates", UAI 2011, for the
idea. A weight of at most 1 is a factor.
"""

import numpy as np


def repeats(weight, missing, gain):
    """Steps of a row until it violates no more, each of which adds `gain`.

    As long as what is missing is at least 0, up to rounding, there is another one.
    """
    if gain <= 0:
        return min(weight, 1)
    steps = 1
    while steps < weight and missing / gain - steps > -1e-3:
        steps = steps + 1
    return min(steps, weight)


def multiple(weight, g, gradient, scores, change, target):
    """m = 1 + (w - 1) <g(m), g> / <g, g>, where g(m) is the gradient after m changes.

    It is found by bisection. Several targets have losses of their own, and an m each.
    """
    if weight <= 1 or not g.any():
        return min(weight, 1)

    def product(other):
        return other * g if np.ndim(target) > 0 else np.full(g.shape, other @ g)

    square = np.where(product(g) > 0, product(g), 1)
    low, high = np.zeros(g.shape), np.full(g.shape, float(weight))
    while np.any(high - low > 1e-15 * high):
        m = (low + high) / 2
        slope = product(gradient(scores + m * change, target)) / square
        short = m - 1 < (weight - 1) * slope
        low, high = np.where(short, m, low), np.where(short, high, m)
    return (low + high) / 2
