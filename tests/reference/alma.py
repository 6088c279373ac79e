"""ALMA with the 2-norm (Gentile, JMLR 2, 2001), on a budget, with any classes."""

import math

import numpy as np

from . import support
from .maintenance import insert


def run(kernel, X, y, *, budget, maintenance, num_classes=2, alpha=0.9, weights=None):
    """One pass of ALMA_2(alpha; sqrt(8) / alpha, sqrt(2))."""
    X = np.asarray(X, dtype=np.float64)
    C = support.columns(num_classes)
    weights = support.weight_array(weights, len(X))
    # The norm of y_t phi(x_t) in the space of all classes.
    length = 1.0 if C == 1 else math.sqrt(2.0)
    active = []
    t, k = 0, 1
    scores, mistakes, updates = [], [], []

    for i in range(len(X)):
        x, label = X[i], int(y[i])
        f = support.unscaled_scores(kernel, active, x, C)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1
        margin, rival = support.margin_and_rival(f, label)
        if margin <= 0:
            mistakes.append(t)

        gamma = math.sqrt(8.0) / alpha / math.sqrt(k)
        if margin / length <= (1 - alpha) * gamma:
            updates.append(t)
            eta = math.sqrt(2.0) / math.sqrt(k)
            row = weights[i] * eta / length * support.candidate_row(label, rival, C)
            candidate = support.SupportVector(x, row, t)
            active = insert(kernel, active, candidate, budget, maintenance)
            u = support.stack_coefficients(active)
            K = support.kernel_matrix(kernel, support.stack_vectors(active))
            norm = math.sqrt(max(0.0, ((u @ u.T) * K).sum()))
            for vector in support.occupied(active):
                vector.coefficients = vector.coefficients / max(1.0, norm)
            k = k + 1

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
