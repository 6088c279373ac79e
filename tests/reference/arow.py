"""AROW in the span of support vectors that move: the mathematics, densely.

After Crammer, Kulesza, Dredze, "Adaptive regularization of weight vectors", NIPS 2009,
with the support vectors of Pegasos on a budget (Wang, Crammer, Vucetic, ICML 2010).

No orthonormal basis is kept. Everything is in coordinates of the support vectors: the
weights are w = sum_j a_j phi(z_j), with the mean of a and the covariance A of a, which
is K^-1 where that of w is I. What R k(Z, x) is in an orthonormal basis is K^-1 k(Z, x)
here, and what S p is, is A k(Z, x).

Inner products have a ridge: every support vector has a coordinate of its own, of
squared length ridge k(z, z). So <phi(z), phi(z)> has the ridge, but <phi(z), phi(z')>
has none, however near z' is to z: not between two support vectors, nor between one
that leaves and one that enters. An example has no such coordinate, also where it is
itself a support vector: in its own position k(Z, x) is k(x, x).
"""

import numpy as np

from . import support
from .importance import repeats
from .passes import Pass

REGULARIZATION = 1e-4  # lambda of Pegasos


def run(
    kernel,
    X,
    y,
    *,
    budget,
    confidence,
    moves,
    ridge,
    drift=0.0,
    vectors=None,
    **given,
):
    """One pass; `confidence` is r, `drift` delta. `vectors` are those that stay.

    The updates are the rounds of a margin below 1, before the support vectors move. The
    loss of step 2 is that of the mean after the move, and so is the rival class; if the
    move alone has made the margin 1, nothing is learned.
    """
    # Of Pegasos: the coefficients of its support vectors are its counts.
    learner = Pass(kernel, X, y, budget=budget, **given)
    C, num_moves = learner.C, 0
    if vectors is not None:
        ages = range(1 - len(vectors), 1)
        learner.active = [
            support.SupportVector(z, np.zeros(C), age)
            for z, age in zip(np.array(vectors, np.float64), ages, strict=True)
        ]
    mean = np.zeros((len(learner.active), C))  # of a
    # Of a, too.
    covariance = np.linalg.inv(products(kernel, ridge, vectors_of(learner.active)))

    def score(x):
        return support.weighted_sum(kernel_row(kernel, learner.active, x), mean)

    for x, label, weight, f in learner.rounds(score):
        margin, _ = learner.margin_and_rival(f, label)
        if margin >= 1:
            continue

        # Step 1. After n updates the coefficients of Pegasos are counts / (lambda n).
        counts = learner.unscaled_scores(x)
        margin, rival = support.margin_and_rival(counts, label)
        wanted = margin <= REGULARIZATION * len(learner.updates)
        room = budget * (1 + moves * np.log2(1 + learner.t / budget))
        if vectors is None and wanted and num_moves + 1 <= room:
            num_moves = num_moves + 1
            before = vectors_of(learner.active)
            direction = support.candidate_row(label, rival, C)
            missing = REGULARIZATION * len(learner.updates) - margin
            gain = (direction**2).sum() * kernel(x, x)
            learner.insert(x, repeats(weight, missing, gain) * direction)
            mean, covariance = follow(
                kernel, ridge, before, vectors_of(learner.active), x, mean, covariance
            )
        learner.updates.append(learner.t)

        if drift > 0:
            prior = np.linalg.inv(products(kernel, ridge, vectors_of(learner.active)))
            covariance = (1 - drift) * covariance + drift * prior

        # Step 2.
        margin, rival = support.margin_and_rival(score(x), label)
        if margin < 1:
            c = 1 if C == 1 else 2
            k = kernel_row(kernel, learner.active, x)
            s = covariance @ k
            beta = 1 / (c * (k @ s) + confidence / weight)
            direction = support.candidate_row(label, rival, C)
            mean = mean + (1 - margin) * beta * np.outer(s, direction)
            covariance = covariance - beta * np.outer(s, s)
    return learner.record(coefficients=mean, moves=num_moves, covariance=covariance)


def vectors_of(active):
    return [s.vector for s in active]


def kernel_row(kernel, active, x):
    """k(z_j, x), without a ridge."""
    return np.array([kernel(x, s.vector) for s in active])


def products(kernel, ridge, rows, columns=None):
    """<phi(u), phi(v)> of support vectors; the same one is the same object."""
    columns = rows if columns is None else columns
    result = np.zeros((len(rows), len(columns)))
    for i, u in enumerate(rows):
        for j, v in enumerate(columns):
            result[i, j] = kernel(u, v) * (1 + ridge if u is v else 1)
    return result


def follow(kernel, ridge, before, after, x, mean, covariance):
    """The mean and covariance on other support vectors, one exchanged after another.

    A vector of a merge comes before the example, whatever their positions.
    """
    changed = [p for p, z in enumerate(after) if p >= len(before) or z is not before[p]]
    changed.sort(key=lambda p: after[p] is x)
    now = before
    for p in changed:
        new = now[:p] + [after[p]] + now[p + 1 :]
        mean, covariance = project(kernel, ridge, now, new, mean, covariance)
        now = new
    return mean, covariance


def project(kernel, ridge, old, new, mean, covariance):
    """w -> P w; S -> P S P^T + I - P P^T, on the span of the new ones.

    In coordinates P is T = K_new^-1 K_new,old, and I is the inverse kernel matrix.
    """
    K_old, K_new = products(kernel, ridge, old), products(kernel, ridge, new)
    T = np.linalg.solve(K_new, products(kernel, ridge, new, old))
    covariance = T @ (covariance - np.linalg.inv(K_old)) @ T.T + np.linalg.inv(K_new)
    return T @ mean, covariance
