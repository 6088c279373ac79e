"""The best coefficients of given support vectors, by a dense Newton method.

In the coordinates p(x) = diag(w)^(-1/2) V^T k(Z, x), K_ZZ = V diag(w) V^T, the problem
of a column is min 1/2 |v|^2 + C sum_i weight_i loss(v . p(x_i), t_i), and its solution
has the coefficients a = V diag(w)^(-1/2) v. Eigenvalues of rounding size are left out.
"""

import numpy as np

# Below this part of the largest an eigenvalue is a rounding error.
SMALLEST = 1e-6


def squared_hinge(f, t):
    """Value, derivative and second derivative, here of max(0, 1 - t f)^2."""
    gap = np.maximum(1 - t * f, 0)
    return gap**2, -2 * t * gap, 2.0 * (gap > 0)


def logistic(f, t):
    """log(1 + exp(-t f))."""
    # 1 / (1 + exp(t f)), by a hyperbolic tangent, which cannot overflow
    doubt = (1 - np.tanh(t * f / 2)) / 2
    return np.logaddexp(0, -t * f), -t * doubt, doubt * (1 - doubt)


def squared(f, t):
    """(f - t)^2 / 2."""
    return (f - t) ** 2 / 2, f - t, np.ones_like(f)


def huber(f, t):
    """(f - t)^2 / 2 up to a distance of 1, and the distance less 1/2 beyond."""
    gap = f - t
    near = np.abs(gap) <= 1
    value = np.where(near, gap**2 / 2, np.abs(gap) - 0.5)
    return value, np.clip(gap, -1, 1), 1.0 * near


def rounded_pinball(level, width):
    """level (t - f) + width log(1 + exp((f - t) / width))."""

    def loss(f, t):
        value, slope, curvature = logistic((t - f) / width, 1)
        return level * (t - f) + width * value, -level - slope, curvature / width

    return loss


LOSSES = {
    "squared_hinge": squared_hinge,
    "logistic": logistic,
    "squared": squared,
    "huber": huber,
}


def targets(y, num_classes):
    """The columns of y; or, of more than two classes, one a class, -1 or +1."""
    if num_classes <= 2:
        return np.asarray(y, np.float64).reshape(len(y), -1)
    return np.where(np.asarray(y)[:, None] == np.arange(num_classes), 1.0, -1.0)


def rows(kernel, X, Z):
    """k(x_i, z_j), shape (n, B)."""
    Z = np.asarray(Z, np.float64)
    return np.array([kernel(x, Z) for x in np.asarray(X, np.float64)])


def whitening(K):
    """V diag(w)^(-1/2), without the rounding errors in w."""
    w, V = np.linalg.eigh(K)
    keep = w > SMALLEST * w[-1]
    return V[:, keep] / np.sqrt(w[keep])


def coefficients(kernel, Z, X, t, *, loss, penalty, weights=None):
    """The best a, shape (B, columns); t has shape (n, columns)."""
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    root = whitening(rows(kernel, Z, Z))
    P = rows(kernel, X, Z) @ root
    strength = penalty * weights
    return root @ np.stack([_newton(P, each, strength, loss) for each in t.T], axis=1)


def _newton(P, t, strength, loss):
    """One column, until a step gains nothing."""
    function = LOSSES.get(loss, loss)

    def objective(v):
        return (v @ v) / 2 + strength @ function(P @ v, t)[0]

    v = np.zeros(P.shape[1])
    for _ in range(200):
        _, slopes, curvatures = function(P @ v, t)
        gradient = v + P.T @ (strength * slopes)
        hessian = np.eye(len(v)) + (P.T * (strength * curvatures)) @ P
        step = np.linalg.solve(hessian, gradient)
        gain = step @ gradient
        if gain <= 1e-22 * (1 + objective(v)):
            return v
        length = 1.0
        while objective(v - length * step) > objective(v) - 1e-4 * length * gain:
            length /= 2
            if length < 1e-12:  # what is left is rounding
                return v
        v = v - length * step
    raise AssertionError("Newton's method has not converged")


def objective(kernel, Z, a, X, t, *, loss, penalty, weights=None):
    """1/2 sum over columns of a^T K a, and C times the losses."""
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    a = np.asarray(a, np.float64)
    norm = np.sum(a * (rows(kernel, Z, Z) @ a))
    values = LOSSES[loss](rows(kernel, X, Z) @ a, t)[0]
    return norm / 2 + penalty * np.sum(weights[:, None] * values)


def mistakes(kernel, Z, a, X, t, *, weights):
    """The weight of what is predicted wrongly."""
    scores = rows(kernel, X, Z) @ a
    if t.shape[1] == 1:
        wrong = scores[:, 0] * t[:, 0] <= 0
    else:
        wrong = np.argmax(scores, axis=1) != np.argmax(t, axis=1)
    return weights @ wrong


def best_penalty(kernel, Z, X, t, *, loss, penalties, held, weights):
    """The first penalty of fewest mistakes where `held`, learned from the rest.

    Of the losses of targets: the one of least loss.
    """
    costs = []
    for penalty in penalties:
        a = coefficients(
            kernel, Z, X, t, loss=loss, penalty=penalty, weights=weights * ~held
        )
        if loss in ("squared_hinge", "logistic") or t.shape[1] > 1:
            costs.append(mistakes(kernel, Z, a, X, t, weights=weights * held))
        else:
            losses = LOSSES[loss](rows(kernel, X, Z) @ a, t)[0]
            costs.append((weights * held) @ losses[:, 0])
    return penalties[int(np.argmin(costs))], costs
