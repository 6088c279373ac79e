"""Kernel SVMs: their objectives, and the classical solvers one update at a time.

J(w) = |w|^2 / 2 + C sum_i v_i hinge_i, whose dual is D(a) = sum a - a^T Q a / 2 over
0 <= a_i <= C v_i, with a bias also sum_i y_i a_i = 0. The matrix is
Q_ij = y_i y_j k(x_i, x_j). All take and return lists or arrays in float64.
"""

import math

import numpy as np
from sklearn.svm import SVC, LinearSVC


def signed_matrix(kernel, X, y):
    """Q, from a plain kernel k(x, Z)."""
    X, y = np.asarray(X, np.float64), np.asarray(y, np.float64)
    return np.array([y[i] * y * kernel(X[i], X) for i in range(len(X))])


def primal(Q, y, a, penalty, bias=0.0):
    """J at w = sum_i y_i a_i k(x_i, .), with that bias."""
    c = Q @ a
    return a @ c / 2 + penalty * np.sum(np.maximum(0, 1 - c - y * bias))


def best_bias(Q, y, a):
    """The bias of least hinge: the loss is convex and bends where a margin is 1."""
    bends = y * (1 - Q @ a)
    losses = [np.sum(np.maximum(0, y * (bends - bend))) for bend in bends]
    return float(bends[int(np.argmin(losses))])


def dual(Q, a):
    return np.sum(a) - a @ Q @ a / 2


def crammer_singer(K, y, classes, penalty, passes):
    """The optimum of |w|^2 / 2 + C sum_i max_c (1[c != y_i] + f_c(x_i) - f_y(x_i)).

    Row i of the dual is a point of the simplex, p_i, with the coefficients
    C (e_y - p_i). All others fixed, the best p_i is a projection onto the simplex.
    Returns the coefficients, and the values of the primal and of the dual.
    """
    own = np.eye(classes)[y]
    points = own.copy()
    scores = np.zeros((len(y), classes))
    for _ in range(passes):
        for i in range(len(y)):
            target = points[i] + (1 - own[i] + scores[i]) / (penalty * K[i, i])
            falling = np.sort(target)[::-1]
            floors = (np.cumsum(falling) - 1) / np.arange(1, classes + 1)
            floor = floors[np.flatnonzero(falling > floors)[-1]]
            moved = np.maximum(target - floor, 0)
            scores += penalty * np.outer(K[i], points[i] - moved)
            points[i] = moved
    coefficients = penalty * (own - points)
    square = np.sum(coefficients * (K @ coefficients)) / 2
    losses = np.max(1 - own + scores, axis=1) - np.sum(own * scores, axis=1)
    lost = np.sum(points * (1 - own))
    return coefficients, square + penalty * np.sum(losses), penalty * lost - square


def pegasos(Q, draws, *, penalty):
    """Counts of violations after every draw; None drew one that was none.

    At draw t the model is w = sum_i counts_i y_i k(x_i, .) / (lambda (t-1)), where
    lambda = 1 / (n C).
    """
    counts, path, margins = np.zeros(len(Q)), [], []
    for t, i in enumerate(draws, start=1):
        responses = Q @ counts
        scale = len(Q) * penalty / (t - 1) if t > 1 else 0.0
        margins.append(scale * responses)
        if i is not None and margins[-1][i] < 1:
            counts[i] = counts[i] + 1
        path.append(counts.copy())
    return path, margins


def ball_sgd(Q, draws, *, radius):
    """Coefficients after every draw, and of the average that weights iterate t by t.

    Projected subgradient steps of the mean hinge over |w| <= U; their length is
    U / (r sqrt t), where k(x, x) <= r^2.
    """
    a, path, means = np.zeros(len(Q)), [], []
    for t, i in enumerate(draws, start=1):
        if Q[i] @ a < 1:
            a = a + radius / math.sqrt(np.max(np.diag(Q)) * t) * np.eye(len(Q))[i]
        length = math.sqrt(a @ Q @ a)
        a = a * min(1.0, radius / length)
        path.append(a)
        means.append(np.average(path, axis=0, weights=1 + np.arange(t)))
    return np.array(path), np.array(means)


def sdca(Q, draws, *, penalty):
    """Coefficients after every draw: the exact step in the drawn coordinate."""
    top = penalty
    a, path = np.zeros(len(Q)), []
    for i in draws:
        if i is not None:
            a[i] = min(top, max(0.0, a[i] + (1 - Q[i] @ a) / Q[i, i]))
        path.append(a.copy())
    return path


def changed(path):
    """The coordinate in which each differs from the one before, or None."""
    found, old = [], np.zeros(len(path[0]))
    for new in path:
        where = np.flatnonzero(new != old)
        assert len(where) <= 1, "one coordinate an update"
        found.append(int(where[0]) if len(where) else None)
        old = new
    return found


def smo_single(Q, chosen, *, penalty):
    """No bias: exact, clipped steps in the coordinates chosen.

    Returns the coefficients after every update; and by how much, of the most that any
    coordinate would have gained then, the chosen one gained less. Ties are common, as
    an exact step leaves a slope of 0, so that choices are judged and not made.
    """
    n = len(Q)
    top = penalty
    a, path, missed = np.zeros(n), [], []
    for best in chosen:
        responses = Q @ a
        new, gains = [], []
        for i in range(n):
            slope = 1 - responses[i]
            new.append(min(top, max(0.0, a[i] + slope / Q[i, i])))
            step = new[i] - a[i]
            gains.append(step * slope - step**2 * Q[i, i] / 2)
        a[best] = new[best]
        path.append(a.copy())
        missed.append(1 - gains[best] / max(gains))
    return path, missed


def changed_pairs(path, y):
    """The pair (i, j) of each: y_i a_i has grown and y_j a_j shrunk."""
    found, old = [], np.zeros(len(path[0]))
    for new in path:
        where = np.flatnonzero(new != old)
        assert len(where) == 2, "two coordinates an update"
        grown = y[where] * (new - old)[where] > 0
        assert np.sum(grown) == 1, "one y_i a_i grows and the other shrinks"
        found.append((int(where[grown][0]), int(where[~grown][0])))
        old = new
    return found


def smo_pair(Q, y, chosen, *, penalty):
    """With a bias: exact, clipped steps of the pairs chosen.

    Returns the coefficients after every update; and what Fan, Chen and Lin (2005),
    Algorithm 2 (WSS 2), finds better than the chosen pair: how much more a rival of i
    violates, and of the most that any j gains with that i, what is missing.
    """
    n = len(Q)
    top = penalty
    a, path, missed = np.zeros(n), [], []
    for i, j in chosen:
        gradient = Q @ a - 1
        up = [t for t in range(n) if (a[t] < top if y[t] > 0 else a[t] > 0)]
        low = [t for t in range(n) if (a[t] < top if y[t] < 0 else a[t] > 0)]
        worst = max(-y[t] * gradient[t] for t in up)
        gains = {}
        for t in low:
            b = -y[i] * gradient[i] + y[t] * gradient[t]
            # k_ii + k_tt - 2 k_it
            curvature = Q[i, i] + Q[t, t] - 2 * y[i] * y[t] * Q[i, t]
            if b > 0:
                gains[t] = b**2 / curvature
        assert i in up
        assert j in gains
        missed.append((worst + y[i] * gradient[i], 1 - gains[j] / max(gains.values())))
        # a_i += y_i d, a_j -= y_j d, with the d that gains most, inside the box
        b = -y[i] * gradient[i] + y[j] * gradient[j]
        d = b / (Q[i, i] + Q[j, j] - 2 * y[i] * y[j] * Q[i, j])
        room_i = top - a[i] if y[i] > 0 else a[i]
        room_j = a[j] if y[j] > 0 else top - a[j]
        d = min(d, room_i, room_j)
        a[i], a[j] = a[i] + y[i] * d, a[j] - y[j] * d
        # exactly at the bound that it stopped at
        if d == room_i:
            a[i] = top if y[i] > 0 else 0.0
        if d == room_j:
            a[j] = 0.0 if y[j] > 0 else top
        path.append(a.copy())
    return path, missed


def svc(K, y, penalty):
    """scikit-learn's solution with a bias, to its tightest: coefficients and bias."""
    model = SVC(C=penalty, kernel="precomputed", tol=1e-9, cache_size=500)
    model.fit(np.ascontiguousarray(K, np.float64), y)
    a = np.zeros(len(K))
    a[model.support_] = np.abs(model.dual_coef_[0])
    return a, float(model.intercept_[0])


def linear_svc(K, y, penalty):
    """liblinear's solution without a bias, on a Cholesky factor of the kernel matrix.

    Features f_i with <f_i, f_j> = k_ij have the same optimum. Returns J, and the slack
    and the level of `slack_of`.
    """
    n = len(K)
    factor = np.linalg.cholesky(K + 1e-10 * np.eye(n))
    model = LinearSVC(
        loss="hinge",
        fit_intercept=False,
        dual=True,
        C=penalty,
        tol=1e-8,
        max_iter=1_000_000,
        random_state=0,
    )
    w = model.fit(factor, y).coef_[0]
    margins, norm = y * (factor @ w), math.sqrt(w @ w)
    hinge = np.sum(np.maximum(0, 1 - margins))
    return norm**2 / 2 + penalty * hinge, *slack_of(margins, norm)


def slack_of(margins, norm):
    """nu for which an SVM's optimum is optimal, and the level it then has.

    With w* of these margins, nu = mean hinge(w*) / |w*|, and the highest level of any
    unit vector is 1 / |w*|: a higher one, scaled by its own level, would have both a
    smaller norm than w* and a smaller hinge.
    """
    return np.mean(np.maximum(0, 1 - margins)) / norm, 1 / norm
