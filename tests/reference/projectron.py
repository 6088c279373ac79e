"""Projectron and Projectron++: Orabona, Keshet, Caputo, JMLR 2009.

The kernel matrix K of the active ones has a ridge wherever it is solved with:
d = (K + ridge diag(K))^-1 k_t. delta is the true distance of phi(x_t) to
sum_j d_j phi(x_j), whatever the ridge.
"""

import numpy as np

from . import support

TINY = np.finfo(np.float64).tiny


def run(
    kernel,
    X,
    y,
    *,
    budget,
    threshold,
    margin_updates=False,
    num_classes=2,
    ridge,
    weights=None,
):
    """One pass; `threshold` is eta, `margin_updates` make it Projectron++.

    The updates of the record are the mistakes, with `margin_updates` all rounds of a
    margin below 1, whether or not they changed anything.
    """
    X = np.asarray(X, dtype=np.float64)
    C = support.columns(num_classes)
    weights = support.weight_array(weights, len(X))
    gram = support.Gram()
    active = []
    t = 0
    scores, mistakes, updates = [], [], []

    for i in range(len(X)):
        x, label = X[i], int(y[i])

        f = support.unscaled_scores(kernel, active, x, C)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1
        margin, rival = support.margin_and_rival(f, label)
        direction = support.candidate_row(label, rival, C)
        candidate = support.SupportVector(x, weights[i] * direction, t)

        if margin <= 0:
            mistakes.append(t)
        if margin <= 0 or (margin_updates and margin < 1):
            updates.append(t)

        if margin <= 0 and not active:
            active = [candidate]
        elif margin <= 0:
            d, delta, _ = projection(gram, kernel, active, x, ridge)
            if delta <= threshold or len(active) == budget:
                add(active, d, weights[i] * direction)
            else:
                active = active + [candidate]
        elif margin_updates and margin < 1 and threshold > 0:
            d, delta, inner = projection(gram, kernel, active, x, ridge)
            loss = 1 - margin
            gain = loss - delta / threshold
            if gain > 0:
                nu = max((direction**2).sum() * inner, TINY)
                tau = min(loss / nu, 2 * gain / nu, 1)
                add(active, d, weights[i] * tau * direction)

        assert len(active) <= budget

    vectors, coefficients, ages = support.final_arrays(active, X.shape[1], C)
    return support.Record(
        scores=support.score_array(scores),
        mistakes=mistakes,
        updates=updates,
        vectors=vectors,
        coefficients=coefficients,
        ages=ages,
        slots=support.occupied_slots(active),
    )


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
