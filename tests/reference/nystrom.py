"""Nystrom features on the first support vectors of the stream, and gradient descent.

After Lu, Hoi, Wang, Zhao, Liu, "Large scale online kernel learning", JMLR 2016, but
with Cholesky features, p(x) = L^-1 k(Z, x) with K_ZZ = L L^T: a new landmark adds a
coordinate and leaves the others as they are, and <p(x), p(z)> is the inner product of
the projections of phi(x) and phi(z) on the span of the landmarks.
"""

from dataclasses import dataclass

import numpy as np

from . import support
from .importance import multiple
from .passes import Pass


@dataclass
class Record:
    scores: np.ndarray  # (n,) or (n, C): f_t(x_t), before the update, every example
    landmarks: list  # rows of X, counted from 0, in the order of their entry
    coefficients: np.ndarray  # (m, C): of the k(z_j, .), L^-T W


def run(kernel, X, y, *, budget, novelty, gradient, learning_rate, **given):
    """One pass; `gradient(scores, y)` and `learning_rate(t)` as in sgd.py.

    x_t becomes a landmark if the gradient of its round has a nonzero entry, fewer than
    `budget` are landmarks, and its squared distance to their span is more than
    `novelty` times k(x_t, x_t). Its own coordinate is in the step of its round.
    """
    learner = Pass(kernel, X, y, **given)
    landmarks = []
    L = np.zeros((0, 0))
    W = np.zeros((0, learner.C))

    def features(x):
        """p(x), one coordinate a landmark."""
        if not landmarks:
            return np.zeros(0)
        return np.linalg.solve(L, kernel(x, learner.X[landmarks]))

    def score(x):
        return support.weighted_sum(features(x), W)

    for x, target, weight, f in learner.rounds(score):
        p, g = features(x), gradient(f, target)
        if (g != 0).any():
            k_tt = kernel(x, x)
            if len(landmarks) < budget and k_tt - (p**2).sum() > novelty * k_tt:
                landmarks.append(len(learner.scores) - 1)
                L = np.linalg.cholesky(
                    support.kernel_matrix(kernel, learner.X[landmarks])
                )
                W = np.append(W, np.zeros((1, learner.C)), axis=0)
                p = features(x)
            step = learning_rate(learner.t)
            m = multiple(weight, g, gradient, f, -step * (p @ p) * g, target)
            W = W - step * m * np.outer(p, g)
    return Record(
        scores=learner.score_array(),
        landmarks=landmarks,
        coefficients=np.linalg.solve(L.T, W),
    )
