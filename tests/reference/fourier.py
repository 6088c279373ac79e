"""Random Fourier features (Rahimi, Recht 2007) and online gradient descent on them."""

from dataclasses import dataclass

import numpy as np

from .importance import multiple
from .passes import Pass
from .support import weighted_sum


@dataclass
class Record:
    scores: np.ndarray  # (n,) or (n, C): f_t(x_t), before the update, every example
    W: np.ndarray  # (D, C)


def features(frequencies, x):
    """sqrt(2/D) (cos(w_1.x), ..., sin(w_1.x), ...), for D/2 frequencies."""
    angles = (frequencies * x).sum(axis=1)
    return np.append(np.cos(angles), np.sin(angles)) / np.sqrt(len(frequencies))


def run(X, y, *, frequencies, gradient, learning_rate, **given):
    """One pass; `gradient(scores, y)` and `learning_rate(t)` as in sgd.py."""
    learner = Pass(None, X, y, **given)
    W = np.zeros((2 * len(frequencies), learner.C))
    rounds = learner.rounds(lambda x: weighted_sum(features(frequencies, x), W))
    for x, target, weight, f in rounds:
        p, g = features(frequencies, x), gradient(f, target)
        step = learning_rate(learner.t)
        m = multiple(weight, g, gradient, f, -step * (p @ p) * g, target)
        W = W - step * m * np.outer(p, g)
    return Record(scores=learner.score_array(), W=W)
