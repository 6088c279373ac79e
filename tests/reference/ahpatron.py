"""Ahpatron: Liao, Li, Liao, Hu, Dang, AAAI 2024, by the steps of the authors' code."""

import math

import numpy as np

from . import support
from .importance import repeats
from .maintenance import norms, redistribute, replace
from .passes import Pass


def run(kernel, X, y, *, budget, ridge, epsilon=0.5, radius=None, **given):
    """One pass; lambda = U / sqrt(4 B), and U = sqrt(B) / 2 unless it is given."""
    learner = Pass(kernel, X, y, budget=budget, **given)
    U = math.sqrt(budget) / 2 if radius is None else radius
    step = U / math.sqrt(4 * budget)
    for x, label, weight, f in learner.rounds():
        margin, rival = learner.margin_and_rival(f, label)
        if margin >= 1 - epsilon:
            continue
        learner.updates.append(learner.t)
        if len(support.occupied(learner.active)) == budget:
            before = norm(learner, kernel)
            learner.active = project_half(kernel, learner.active, ridge)
            scale(learner, before / norm(learner, kernel))
        direction = support.candidate_row(label, rival, learner.C)
        gain = (direction**2).sum() * step * kernel(x, x)
        steps = repeats(weight, 1 - epsilon - margin, gain)
        learner.insert(x, steps * step * direction)
        scale(learner, min(1.0, U / norm(learner, kernel)))
    return learner.record()


def project_half(kernel, active, ridge):
    """The half with the smallest norms leaves, the oldest of equals, projected."""
    sizes = norms(kernel, active)
    order = sorted(range(len(active)), key=lambda i: (sizes[i], active[i].age))
    leave, stay = order[: len(active) // 2], sorted(order[len(active) // 2 :])
    K = support.kernel_matrix(kernel, [s.vector for s in active])
    ridged = support.with_ridge(K, ridge)
    shares = np.linalg.solve(ridged[np.ix_(stay, stay)], K[np.ix_(stay, leave)])
    new = active
    for i, share in zip(leave, shares.T, strict=True):
        new = redistribute(new, i, stay, share)
    for i in leave:
        new = replace(new, i, None)
    return new


def norm(learner, kernel):
    """||f||."""
    vectors = support.stack_vectors(learner.active)
    return learner.norm(support.kernel_matrix(kernel, vectors))


def scale(learner, factor):
    """f <- factor f."""
    for s in support.occupied(learner.active):
        s.coefficients = s.coefficients * factor
