"""Pegasos on a budget, binary and multi-class.

Wang, Crammer, Vucetic, ICML 2010, Algorithm 1, with eta_t = 1 / (lambda t).

The true coefficients are shrink / (lambda t) * u. As the shrinking of line 1 by
1 - eta_t lambda = (t-1)/t is in the scalar, a candidate's true coefficient,
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
    weights=None,
    average_from=None,
):
    """One pass; an update when the margin of the round is below 1.

    With `average_from` the model after every round from that one on is averaged.
    """
    X = np.asarray(X, dtype=np.float64)
    C = support.columns(num_classes)
    weights = support.weight_array(weights, len(X))
    radius = 1 / math.sqrt(regularization)
    gram = support.Gram()
    active = []
    shrink = 1.0
    t = 0
    averaged_rounds = 0
    scores, mistakes, updates, refused = [], [], [], []

    for i in range(len(X)):
        x, label = X[i], int(y[i])

        # f_t(x_t) with the old model, that is with the scale of round t-1.
        f = np.zeros(C)
        if active:
            scale = shrink / (regularization * t)
            f = scale * support.unscaled_scores(kernel, active, x, C)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1

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
            row = weights[i] * support.candidate_row(label, rival, C) / shrink
            sums = None if average_from is None else np.zeros(C)
            candidate = support.SupportVector(x, row, t, sums)
            active = insert(kernel, active, candidate, budget, maintenance)

            # Line 8. It belongs to every round, but in a round without an update
            # the norm only shrinks, and it was inside the ball before.
            if project_to_ball:
                u = support.stack_coefficients(active)
                K = gram(kernel, [s.vector for s in support.occupied(active)])
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
                    for s in support.occupied(active):
                        s.coefficients = np.ldexp(s.coefficients, power)

        if average_from is not None and t >= average_from:
            averaged_rounds = averaged_rounds + 1
            scale = shrink / (regularization * t)
            for s in support.occupied(active):
                s.sums = s.sums + scale * s.coefficients

        assert len(active) <= budget

    vectors, coefficients, ages = support.final_arrays(active, X.shape[1], C)
    return support.Record(
        scores=support.score_array(scores),
        mistakes=mistakes,
        updates=updates,
        vectors=vectors,
        coefficients=shrink / (regularization * max(t, 1)) * coefficients,
        ages=ages,
        refused=refused,
        slots=support.occupied_slots(active),
        averaged=support.averaged_coefficients(active, averaged_rounds, C),
    )
