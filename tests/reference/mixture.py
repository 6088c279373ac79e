"""A mixture of experts, from what each said of every row before it learned it."""

import numpy as np


def run(
    means,
    variances,
    y,
    weights,
    *,
    forgetting=0.01,
    share=1e-3,
    level=0.9,
    rate=0.02,
    start,
    factor=0.99,
):
    """The mean, variance, weights, half-width and log loss before every row.

    `means` and `variances` have shape (experts, n); `start` is the first half-width of
    an interval, in deviations.
    """
    E, n = means.shape
    power, log_width = np.zeros(E), np.log(start)
    squares, number = np.ones(E), 1.0
    said = []
    for t in range(n):
        pi = np.exp(power - power.max())
        pi = (1 - share) * pi / pi.sum() + share / E
        scaled = squares / number * variances[:, t]
        mean = pi @ means[:, t]
        variance = pi @ (scaled + means[:, t] ** 2) - mean**2
        error = y[t] - means[:, t]
        density = -0.5 * np.log(2 * np.pi * scaled) - 0.5 * error**2 / scaled
        said.append((mean, variance, pi, np.exp(log_width), density))
        if weights[t] == 0:
            continue
        power = (1 - forgetting) * np.log(pi) + weights[t] * np.maximum(density, -50)
        squares = factor * squares + weights[t] * error**2 / variances[:, t]
        number = factor * number + weights[t]
        outside = abs(y[t] - mean) > np.exp(log_width) * np.sqrt(variance)
        log_width += rate * (outside - (1 - level))
    return tuple(np.array(part) for part in zip(*said, strict=True))
