"""Nystrom features on the first support vectors of the stream, and gradient descent.

After Lu, Hoi, Wang, Zhao, Liu, "Large scale online kernel learning", JMLR 2016, but
with Cholesky features, p(x) = L^-1 k(Z, x) with K_ZZ = L L^T: a new landmark adds a
coordinate and leaves the others as they are, and <p(x), p(z)> is the inner product of
the projections of phi(x) and phi(z) on the span of the landmarks.
"""

from dataclasses import dataclass

import numpy as np

from . import support


@dataclass
class Record:
    scores: np.ndarray  # (n,) or (n, C): f_t(x_t), before the update, every example
    landmarks: list  # rows of X, counted from 0, in the order of their entry
    W: np.ndarray  # (m, C)
    coefficients: np.ndarray  # (m, C): of the k(z_j, .), L^-T W


def run(
    kernel,
    X,
    y,
    *,
    budget,
    tolerance,
    gradient,
    learning_rate,
    weights=None,
    num_classes=2,
):
    """One pass; `gradient(scores, y)` and `learning_rate(t)` as in sgd.py.

    x_t becomes a landmark if the gradient of its round has a nonzero entry, fewer than
    `budget` are landmarks, and its squared distance to their span is more than
    `tolerance` times k(x_t, x_t). Its own coordinate is in the step of its round.
    """
    X = np.asarray(X, dtype=np.float64)
    weights = support.weight_array(weights, len(X))
    landmarks = []
    L = np.zeros((0, 0))
    C = num_classes if num_classes > 2 else 1
    W = np.zeros((0, C))
    t = 0
    scores = []

    for i in range(len(X)):
        p = features(kernel, X, landmarks, L, i)
        f = support.weighted_sum(p, W)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1

        g = gradient(f, y[i])
        if (g != 0).any():
            k_tt = kernel(X[i], X[i])
            if len(landmarks) < budget and k_tt - (p**2).sum() > tolerance * k_tt:
                landmarks.append(i)
                L = np.linalg.cholesky(support.kernel_matrix(kernel, X[landmarks]))
                W = np.append(W, np.zeros((1, C)), axis=0)
                p = features(kernel, X, landmarks, L, i)
            W = W - learning_rate(t) * weights[i] * np.outer(p, g)

    return Record(
        scores=support.score_array(scores),
        landmarks=landmarks,
        W=W,
        coefficients=np.linalg.solve(L.T, W),
    )


def features(kernel, X, landmarks, L, i):
    """p(x_i), one coordinate a landmark."""
    if not landmarks:
        return np.zeros(0)
    return np.linalg.solve(L, kernel(X[i], X[landmarks]))
