"""Losses by their gradients: gradient(scores (C,), y) -> (C,), d loss / d scores.

At a kink the gradient is 0 where 0 is a subgradient, and for the hinge at margin 1.
Labels of classes are -1 and +1 with one score, and 0, ..., C-1 with C of them;
other targets are one number, or one a score.
"""

import numpy as np

from .support import candidate_row, margin_and_rival


def hinge(scores, y):
    """max(0, 1 - margin); the rival of margin_and_rival."""
    label = int(y)
    margin, rival = margin_and_rival(scores, label)
    if margin >= 1:
        return np.zeros(len(scores))
    return -candidate_row(label, rival, len(scores))


def logistic(scores, y):
    """log(1 + exp(-y f)), or the cross-entropy of the softmax."""
    if len(scores) == 1:
        return -y * np.exp(-np.logaddexp(0, y * scores))
    e = np.exp(scores - scores.max())
    gradient = e / e.sum()
    gradient[int(y)] -= 1
    return gradient


def squared(scores, y):
    """(f - y)^2 / 2."""
    return scores - y


def huber(delta=1.0):
    """(f - y)^2 / 2 where |f - y| <= delta, else delta (|f - y| - delta / 2)."""

    def gradient(scores, y):
        return np.clip(scores - y, -delta, delta)

    return gradient


def absolute(scores, y):
    """|f - y|."""
    return np.sign(scores - y)


def quantile(q):
    """q (y - f) where f < y, (1 - q) (f - y) where f > y."""

    def gradient(scores, y):
        below, above = scores < y, scores > y
        return np.where(below, -q, 0.0) + np.where(above, 1 - q, 0.0)

    return gradient


def epsilon_insensitive(eps):
    """max(0, |f - y| - eps)."""

    def gradient(scores, y):
        return np.where(np.abs(scores - y) > eps, np.sign(scores - y), 0.0)

    return gradient
