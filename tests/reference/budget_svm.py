"""Support vector machines on a budget, by an interior-point method.

Dekel, Singer, NIPS 2006: the dual problem (4) with the ball of the dual of an
interpolation norm. Newton's method on a logarithmic barrier, for problems of some
hundred examples.
"""

import numpy as np

# The barrier weakens by this factor from one centre to the next.
WEAKER = 0.2
NEWTON_STEPS = 50
# Norms whose dual norm bounds every entry.
BOXED = ("l1", "one-two")


def l1_value(v, budget):
    """The 1-infinity interpolation norm of v >= 0: its largest entries (Theorem 1)."""
    v = np.sort(v)[::-1]
    whole = int(np.floor(budget))
    last = v[whole] * (budget - whole) if whole < len(v) else 0.0
    return v[:whole].sum() + last


def p_value(v, budget, p):
    """The p-infinity interpolation norm of v >= 0, from the definition (5).

    The best cut z = min(v, phi) has a phi in [0, max v]; the value is convex in it.
    """

    def at(phi):
        return (np.maximum(v - phi, 0) ** p).sum() ** (1 / p) + budget ** (1 / p) * phi

    low, high = 0.0, v.max()
    for _ in range(90):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        low, high = (low, right) if at(left) < at(right) else (left, high)
    return min(at(0.0), at((low + high) / 2), at(v.max()))


def one_two_value(v, budget):
    """The 1-2 interpolation norm of v >= 0, from the definition.

    The best part with the Euclidean norm is min(v, phi). While it cuts the k largest
    entries, the value is convex in phi, with its least at a root.
    """
    v = np.sort(v)[::-1]
    found = []
    for k in range(len(v) + 1):
        rest = (v[k:] ** 2).sum()
        high = v[k - 1] if k else v[0]
        low = v[k] if k < len(v) else 0.0
        best = np.sqrt(rest / (budget - k)) if budget > k else high
        phi = min(max(best, low), high)
        found.append((v[:k] - phi).sum() + np.sqrt(budget * (k * phi**2 + rest)))
    return min(found)


def euclidean_value(v, weight):
    """The Euclidean norm with weights, the Mahalanobis norm of a diagonal matrix."""
    return np.sqrt((weight * v**2).sum())


def power(norm):
    """p of a norm between a p-norm and the largest entry; "l2" is 2."""
    return {"l2": 2, "euclidean": 2, "one-two": 2}.get(norm, norm)


def value(v, budget, norm):
    """The norm of v >= 0: "l1", "l2", another p, "one-two" or "euclidean"."""
    if norm == "l1":
        return l1_value(v, budget)
    if norm == "one-two":
        return one_two_value(v, budget)
    if norm == "euclidean":
        return euclidean_value(v, budget)
    return p_value(v, budget, power(norm))


def most(budget, penalty, norm, entries=1):
    """What the coefficients may sum up to.

    With "euclidean", in place of the budget are weights; the bound is that of the
    inequality of Cauchy and Schwarz, doubled, so that it never binds. Nor does that of
    "one-two", for that number of entries.
    """
    if norm == "euclidean":
        return 2 * penalty * np.sqrt(np.sum(budget))
    if norm == "one-two":
        return 2 * penalty * np.sqrt(budget * entries)
    return penalty * (budget if norm == "l1" else budget ** (1 / power(norm)))


def maximise(Q, linear, y, *, budget, penalty, norm, accuracy=1e-13):
    """max linear.a - a.Q.a / 2 over a >= 0, y.a = 0 and the ball of the dual norm.

    Minimises the negative value less mu times the logarithms of what every constraint
    leaves. At a centre the value is within mu times the number of constraints.
    """
    n = len(y)
    limit = most(budget, penalty, norm, n)
    m = budget if norm == "euclidean" else np.ones(n)
    q = 1 if norm == "l1" else power(norm) / (power(norm) - 1)
    ball = penalty**q * (budget if norm == "one-two" else 1)
    # A point strictly within all constraints.
    small = min(limit, penalty * np.sqrt(np.min(m))) / (4 * n)
    a = np.where(y > 0, small / (y > 0).sum(), small / (y < 0).sum())
    scale = (np.abs(linear).max() or 1.0) * penalty

    def negative(a, mu):
        if a.min() <= 0:
            return np.inf
        room = [a, [limit - a.sum()]]
        if norm in BOXED:
            room.append(penalty - a)
        if norm != "l1":
            room.append([ball - (a**q / m).sum()])
        room = np.concatenate(room)
        if room.min() <= 0:
            return np.inf
        return a @ Q @ a / 2 - linear @ a - mu * np.log(room).sum()

    mu = scale
    while mu * (2 * n + 1) > accuracy * scale:
        mu *= WEAKER
        for _ in range(NEWTON_STEPS):
            gradient = Q @ a - linear - mu / a
            hessian = Q + np.diag(mu / a**2)
            # Terms of one direction stand in borders: the sum of their squares over
            # small numbers would drown all else.
            left = limit - a.sum()
            gradient = gradient + mu / left
            borders, corners = [y, np.ones(n)], [0.0, -(left**2) / mu]
            if norm in BOXED:
                gradient = gradient + mu / (penalty - a)
                hessian = hessian + np.diag(mu / (penalty - a) ** 2)
            if norm != "l1":
                left = ball - (a**q / m).sum()
                slope = q * a ** (q - 1) / m
                gradient = gradient + mu * slope / left
                hessian = hessian + mu / left * np.diag((q - 1) * slope / a)
                borders, corners = [*borders, slope], [*corners, -(left**2) / mu]
            borders = np.array(borders)
            system = np.block([[hessian, borders.T], [borders, np.diag(corners)]])
            right = np.concatenate([-gradient, [-y @ a], np.zeros(len(corners) - 1)])
            # Scaled by the diagonal, which spans many magnitudes near the end.
            root = 1 / np.sqrt(np.diag(hessian))
            lengths = np.linalg.norm(borders * root, axis=1)
            root = np.append(root, 1 / np.maximum(lengths, 1e-90))
            move = np.linalg.solve(system * root[:, None] * root[None], root * right)
            move = (root * move)[:n]
            length, here = 1.0, negative(a, mu)
            while length > 1e-12 and not (
                negative(a + length * move, mu)
                <= here + 1e-4 * length * gradient @ move
            ):
                length /= 2
            if length <= 1e-12:
                break
            a = a + length * move
            if -gradient @ move <= 1e-3 * mu:
                break
    return a


def solve(K, y, *, budget, penalty, norm):
    """The coefficients of the optimum and the dual value there."""
    Q = K * np.outer(y, y)
    a = maximise(Q, np.ones(len(y)), y, budget=budget, penalty=penalty, norm=norm)
    return a, a.sum() - a @ Q @ a / 2


def project(v, y, *, budget, penalty, norm):
    """The point within the constraints that is nearest to v."""
    return maximise(np.eye(len(y)), v, y, budget=budget, penalty=penalty, norm=norm)


def primal(K, y, a, bias, *, penalty, budget, norm):
    """The value of problem (2)."""
    f = K @ (y * a)
    slacks = np.maximum(1 - y * (f + bias), 0)
    return (y * a) @ f / 2 + penalty * value(slacks, budget, norm)
