"""Random Fourier features (Rahimi, Recht 2007) and online gradient descent on them."""

from dataclasses import dataclass

import numpy as np

from . import support


@dataclass
class Record:
    scores: np.ndarray  # (n,) or (n, C): f_t(x_t), before the update, every example
    W: np.ndarray  # (D, C)


def features(frequencies, x):
    """sqrt(2/D) (cos(w_1.x), ..., sin(w_1.x), ...), for D/2 frequencies."""
    angles = (frequencies * x).sum(axis=1)
    return np.append(np.cos(angles), np.sin(angles)) / np.sqrt(len(frequencies))


def run(X, y, *, frequencies, gradient, learning_rate, weights=None, num_classes=2):
    """One pass; `gradient(scores, y)` and `learning_rate(t)` as in sgd.py."""
    X = np.asarray(X, dtype=np.float64)
    weights = support.weight_array(weights, len(X))
    C = num_classes if num_classes > 2 else 1
    W = np.zeros((2 * len(frequencies), C))
    t = 0
    scores = []

    for i in range(len(X)):
        p = features(frequencies, X[i])
        f = support.weighted_sum(p, W)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1
        W = W - learning_rate(t) * weights[i] * np.outer(p, gradient(f, y[i]))

    return Record(scores=support.score_array(scores), W=W)
