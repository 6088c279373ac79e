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
from .importance import repeats
from .passes import Pass


def run(kernel, X, y, *, regularization, project_to_ball=False, **given):
    """One pass; an update when the margin of the round is below 1."""
    learner = Pass(kernel, X, y, **given)
    radius = 1 / math.sqrt(regularization)
    gram = support.Gram()
    shrink = 1.0

    def scale():
        return shrink / (regularization * max(learner.t, 1))

    def score(x):
        """f_t(x_t) with the old model, that is with the scale of round t-1."""
        return scale() * learner.unscaled_scores(x)

    for x, label, weight, f in learner.rounds(score):
        margin, rival = learner.margin_and_rival(f, label)
        # Line 1: from here on the scale is that of round t. Line 2: the hinge loss is
        # positive.
        if margin < 1:
            learner.updates.append(learner.t)
            # Lines 3 to 7.
            direction = support.candidate_row(label, rival, learner.C)
            gain = (direction**2).sum() * kernel(x, x) / (regularization * learner.t)
            decayed = margin * (learner.t - 1) / learner.t
            steps = repeats(weight, 1 - decayed, gain)
            learner.insert(x, steps * direction / shrink)

            # Line 8. It belongs to every round, but in a round without an update
            # the norm only shrinks, and it was inside the ball before.
            if project_to_ball:
                everyone = support.occupied(learner.active)
                norm = scale() * learner.norm(
                    gram(kernel, [s.vector for s in everyone])
                )
                if norm > radius:
                    shrink = shrink * (radius / norm)
                # Over the first 1/sqrt(lambda) rounds shrink may fall to about
                # exp(-1/sqrt(lambda)). Before it underflows a power of two moves
                # from it into the u, which rounds nothing.
                if shrink < 1e-100:
                    shrink, power = math.frexp(shrink)
                    for s in everyone:
                        s.coefficients = np.ldexp(s.coefficients, power)
        learner.add_to_average(scale())
    return learner.record(scale())
