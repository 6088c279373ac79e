"""Projectron and Projectron++: Orabona, Keshet, Caputo, JMLR 2009.

The kernel matrix K of the active ones has a ridge wherever it is solved with:
d = (K + ridge diag(K))^-1 k_t. delta is the true distance of phi(x_t) to
sum_j d_j phi(x_j), whatever the ridge.
"""

import numpy as np

from . import support
from .passes import Pass

TINY = np.finfo(np.float64).tiny


def run(kernel, X, y, *, budget, threshold, ridge, margin_updates=False, **given):
    """One pass; `threshold` is eta, `margin_updates` make it Projectron++.

    The updates of the record are the mistakes, with `margin_updates` all rounds of a
    margin below 1, whether or not they changed anything.
    """
    learner = Pass(kernel, X, y, budget=budget, **given)
    gram = support.Gram()
    for x, label, weight, f in learner.rounds():
        active = learner.active
        margin, rival = learner.margin_and_rival(f, label)
        direction = support.candidate_row(label, rival, learner.C)
        candidate = support.SupportVector(x, weight * direction, learner.t)
        if margin <= 0 or (margin_updates and margin < 1):
            learner.updates.append(learner.t)

        if margin <= 0 and not active:
            learner.active = [candidate]
        elif margin <= 0:
            d, delta, _ = projection(gram, kernel, active, x, ridge)
            if delta <= threshold or len(active) == budget:
                add(active, d, weight * direction)
            else:
                learner.active = active + [candidate]
        elif margin_updates and margin < 1 and threshold > 0:
            d, delta, inner = projection(gram, kernel, active, x, ridge)
            loss = 1 - margin
            gain = loss - delta / threshold
            if gain > 0:
                nu = max((direction**2).sum() * inner, TINY)
                tau = min(loss / nu, 2 * gain / nu, 1)
                add(active, d, weight * tau * direction)
    return learner.record()


def projection(gram, kernel, active, x, ridge):
    """d, delta and k_t . d, which without a ridge is the projection's squared norm."""
    K = gram(kernel, [s.vector for s in active])
    k = kernel(x, support.stack_vectors(active))
    d = np.linalg.solve(support.with_ridge(K, ridge), k)
    squared = kernel(x, x) - 2 * (k @ d) + d @ K @ d
    return d, np.sqrt(max(squared, TINY)), k @ d


def add(active, d, row):
    """a_j += d_j row, for every active j."""
    for s, d_j in zip(active, d, strict=True):
        s.coefficients = s.coefficients + d_j * row
