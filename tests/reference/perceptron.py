"""The kernel Perceptron and its budgeted relatives, binary and multi-class.

Which one it is depends on the maintenance:
`refuse` - the Perceptron; `remove_oldest` - the remove-oldest Perceptron (Dekel,
Shalev-Shwartz, Singer, NIPS 2005, section 3); `remove_random` - the Randomized
Budget Perceptron (Cesa-Bianchi, Gentile 2006); `remove_largest_margin` - CKS
(Crammer, Kandola, Singer 2003).
"""

import numpy as np

from . import support
from .maintenance import insert, refuse


def run(kernel, X, y, *, budget, maintenance, num_classes=2, margin=0.0, weights=None):
    """One pass; an update when the margin of the round is at most `margin`."""
    X = np.asarray(X, dtype=np.float64)
    C = support.columns(num_classes)
    weights = support.weight_array(weights, len(X))
    active = []
    t = 0
    scores, mistakes, updates, refused = [], [], [], []

    for i in range(len(X)):
        x, label = X[i], int(y[i])

        f = support.unscaled_scores(kernel, active, x, C)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1

        round_margin, rival = support.margin_and_rival(f, label)
        if round_margin <= 0:
            mistakes.append(t)

        if round_margin <= margin:
            updates.append(t)
            if maintenance is refuse and len(active) == budget:
                refused.append(t)
            row = weights[i] * support.candidate_row(label, rival, C)
            candidate = support.SupportVector(x, row, t)
            active = insert(kernel, active, candidate, budget, maintenance)

        assert len(active) <= budget

    vectors, coefficients, ages = support.final_arrays(active, X.shape[1], C)
    return support.Record(
        scores=support.score_array(scores),
        mistakes=mistakes,
        updates=updates,
        vectors=vectors,
        coefficients=coefficients,
        ages=ages,
        refused=refused,
        slots=support.occupied_slots(active),
    )
