"""Projectron and Projectron++: Orabona, Keshet, Caputo, JMLR 2009.

The kernel matrix K of the active ones has a ridge wherever it is solved with:
d = (K + ridge diag(K))^-1 k_t. delta is the true distance of phi(x_t) to
sum_j d_j phi(x_j), whatever the ridge.

With same_class, a vector that enters on a mistake for class r belongs to the classes y
and r, and phi(x_t) is projected twice: onto the vectors of y for column y, and onto
those of r for column r, as in DOGMA, the code of Orabona.
"""

import numpy as np

from . import support
from .importance import repeats
from .passes import Pass

TINY = np.finfo(np.float64).tiny


def run(
    kernel,
    X,
    y,
    *,
    budget,
    threshold,
    ridge,
    margin_updates=False,
    same_class=False,
    **given,
):
    """One pass; `threshold` is eta, `margin_updates` make it Projectron++.

    The updates of the record are the mistakes, with `margin_updates` all rounds of a
    margin below 1, whether or not they changed anything.
    """
    learner = Pass(kernel, X, y, budget=budget, **given)
    gram = support.Gram()
    members = {}  # by class: positions of its vectors; one class if all are shared
    for x, label, weight, f in learner.rounds():
        active = learner.active
        margin, rival = learner.margin_and_rival(f, label)
        direction = support.candidate_row(label, rival, learner.C)
        if margin <= 0 or (margin_updates and margin < 1):
            learner.updates.append(learner.t)

        # The columns that a projection is for, and whose vectors it is onto.
        columns = {"all": direction}
        if same_class:
            only = np.eye(learner.C)
            columns = {c: direction[c] * only[c] for c in (label, rival)}
        projections = {
            c: projection(gram, kernel, active, members.get(c, []), x, ridge)
            for c in columns
        }
        delta = max(delta for _, delta, _ in projections.values())
        if margin <= 0:
            if active and (delta <= threshold or len(active) == budget):
                gain = product(columns, projections)
                steps = repeats(weight, -margin, gain)
                for c, (d, _, _) in projections.items():
                    add(active, d, steps * columns[c])
            else:
                for c in columns:
                    members.setdefault(c, []).append(len(active))
                steps = repeats(weight, -margin, (direction**2).sum() * kernel(x, x))
                candidate = support.SupportVector(x, steps * direction, learner.t)
                learner.active = active + [candidate]
        elif margin_updates and margin < 1 and threshold > 0:
            loss = 1 - margin
            gain = loss - delta / threshold
            if gain > 0:
                nu = max(product(columns, projections), TINY)
                tau = min(loss / nu, 2 * gain / nu, weight)
                for c, (d, _, _) in projections.items():
                    add(active, d, tau * columns[c])
    return learner.record()


def projection(gram, kernel, active, members, x, ridge):
    """d, delta and k_t . d, which without a ridge is the projection's squared norm.

    d has 0 for the active ones that are no members.
    """
    d = np.zeros(len(active))
    if not members:
        return d, np.sqrt(kernel(x, x)), 0.0
    K = gram(kernel, [s.vector for s in active])[np.ix_(members, members)]
    k = kernel(x, support.stack_vectors(active))[members]
    d[members] = np.linalg.solve(support.with_ridge(K, ridge), k)
    squared = kernel(x, x) - 2 * (k @ d[members]) + d[members] @ K @ d[members]
    return d, np.sqrt(max(squared, TINY)), k @ d[members]


def product(columns, projections):
    """What the projections add to the margin."""
    return sum(
        (columns[c] ** 2).sum() * inner for c, (_, _, inner) in projections.items()
    )


def add(active, d, row):
    """a_j += d_j row, for every active j."""
    for s, d_j in zip(active, d, strict=True):
        s.coefficients = s.coefficients + d_j * row
