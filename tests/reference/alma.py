"""ALMA with the 2-norm (Gentile, JMLR 2, 2001), on a budget, with any classes."""

import math

from . import support
from .importance import repeats
from .passes import Pass


def run(kernel, X, y, *, alpha=0.9, **given):
    """One pass of ALMA_2(alpha; sqrt(8) / alpha, sqrt(2))."""
    learner = Pass(kernel, X, y, **given)
    # The norm of y_t phi(x_t) in the space of all classes.
    length = 1.0 if learner.C == 1 else math.sqrt(2.0)
    k = 1
    for x, label, weight, f in learner.rounds():
        margin, rival = learner.margin_and_rival(f, label)
        gamma = math.sqrt(8.0) / alpha / math.sqrt(k)
        if margin / length <= (1 - alpha) * gamma:
            learner.updates.append(learner.t)
            eta = math.sqrt(2.0) / math.sqrt(k)
            direction = support.candidate_row(label, rival, learner.C)
            gain = length * eta * kernel(x, x)
            missing = (1 - alpha) * gamma * length - margin
            steps = repeats(weight, missing, gain)
            learner.insert(x, steps * eta / length * direction)
            vectors = support.stack_vectors(learner.active)
            norm = learner.norm(support.kernel_matrix(kernel, vectors))
            for s in support.occupied(learner.active):
                s.coefficients = s.coefficients / max(1.0, norm)
            k = k + 1
    return learner.record()
