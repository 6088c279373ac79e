"""Pegasos on a budget, binary and multi-class.

Wang, Crammer, Vucetic, ICML 2010, Algorithm 1, with eta_t = 1 / (lambda t).

The true coefficients are shrink / (lambda t) * u. As the shrinking of line 1 by
1 - eta_t lambda = (t-1)/t is in the scalar, a newcomer's true coefficient,
1 / (lambda t), is u = 1 / shrink, and u is not rounded again after that. Without
the ball shrink stays 1 and every u that is no merge is exactly +1 or -1, so that
equal norms are exactly equal.
"""

import math

import numpy as np

from . import support
from .maintenance import insert, refuse


def run(
    kernel,
    X,
    y,
    *,
    budget,
    regularization,
    maintenance,
    num_classes=2,
    project_to_ball=False,
):
    """One pass; an update when the margin of the round is below 1."""
    X = np.asarray(X, dtype=np.float64)
    C = support.columns(num_classes)
    radius = 1 / math.sqrt(regularization)
    gram = support.Gram()
    active = []
    shrink = 1.0
    scores, mistakes, updates, refused = [], [], [], []

    for t in range(1, len(X) + 1):
        x, label = X[t - 1], int(y[t - 1])

        # f_t(x_t) with the old model, that is with the scale of round t-1.
        f = np.zeros(C)
        if active:
            scale = shrink / (regularization * (t - 1))
            f = scale * support.unscaled_scores(kernel, active, x, C)
        scores.append(f)
        margin, rival = support.margin_and_rival(f, label)
        if margin <= 0:
            mistakes.append(t)

        # Line 1: from here on the scale is that of round t.
        scale = shrink / (regularization * t)

        # Line 2: the hinge loss is positive.
        if margin < 1:
            updates.append(t)
            if maintenance is refuse and len(active) == budget:
                refused.append(t)
            # Lines 3 to 7.
            row = support.newcomer_row(label, rival, C) / shrink
            newcomer = support.SupportVector(x, row, t)
            active = insert(kernel, active, newcomer, budget, maintenance)

            # Line 8. It belongs to every round, but in a round without an update
            # the norm only shrinks, and it was inside the ball before.
            if project_to_ball:
                u = support.stack_coefficients(active)
                K = gram(kernel, [s.vector for s in active])
                # ||w||^2 = sum_ij <a_i, a_j> k(x_i, x_j); rounding may leave a
                # zero slightly negative
                norm = scale * math.sqrt(max(0.0, ((u @ u.T) * K).sum()))
                if norm > radius:
                    shrink = shrink * (radius / norm)
                # Over the first 1/sqrt(lambda) rounds shrink may fall to about
                # exp(-1/sqrt(lambda)). Before it underflows a power of two moves
                # from it into the u, which rounds nothing.
                if shrink < 1e-100:
                    shrink, power = math.frexp(shrink)
                    for s in active:
                        s.coefficients = np.ldexp(s.coefficients, power)

        assert len(active) <= budget

    vectors, coefficients, ages = support.final_arrays(active, X.shape[1], C)
    return support.Record(
        scores=support.score_array(scores),
        mistakes=mistakes,
        updates=updates,
        vectors=vectors,
        coefficients=shrink / (regularization * len(X)) * coefficients,
        ages=ages,
        refused=refused,
    )
