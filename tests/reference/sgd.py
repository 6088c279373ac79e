"""Stochastic gradient descent in the space of the kernel, with any loss, on a budget.

With the hinge loss and eta_t = 1 / (lambda t) it is Pegasos; with a constant eta and
`remove_oldest` it is NORMA (Kivinen, Smola, Williamson 2004).

All coefficients here are the true ones: there is no scalar that shrinks them.
"""

import numpy as np

from . import support
from .maintenance import insert, refuse


def run(
    kernel,
    X,
    y,
    *,
    budget,
    maintenance,
    gradient,
    learning_rate,
    regularization=0.0,
    num_classes=2,
    weights=None,
    average_from=None,
):
    """One pass; an update when the gradient of the round has a nonzero entry.

    `gradient(scores, y)` is one of those in gradients.py, `learning_rate(t)` is
    eta_t for t = 1, 2, ... The record has no mistakes, as targets may be numbers.
    """
    X = np.asarray(X, dtype=np.float64)
    C = num_classes if (num_classes or 2) > 2 else 1
    weights = support.weight_array(weights, len(X))
    active = []
    t = 0
    averaged_rounds = 0
    scores, updates, refused = [], [], []

    for i in range(len(X)):
        x, target = X[i], y[i]

        # f_t(x_t) with the old model.
        f = support.unscaled_scores(kernel, active, x, C)
        scores.append(f)
        if weights[i] == 0:
            continue
        t = t + 1
        eta = learning_rate(t)

        # w <- (1 - eta lambda) w
        factor = max(0.0, 1 - eta * regularization)
        for s in support.occupied(active):
            s.coefficients = factor * s.coefficients

        # w <- w - eta d loss(f(x), y) / df phi(x)
        g = gradient(f, target)
        if (g != 0).any():
            updates.append(t)
            if maintenance is refuse and len(active) == budget:
                refused.append(t)
            row = -eta * weights[i] * g
            sums = None if average_from is None else np.zeros(C)
            candidate = support.SupportVector(x, row, t, sums)
            active = insert(kernel, active, candidate, budget, maintenance)

        if average_from is not None and t >= average_from:
            averaged_rounds = averaged_rounds + 1
            for s in support.occupied(active):
                s.sums = s.sums + s.coefficients

        assert len(active) <= budget

    vectors, coefficients, ages = support.final_arrays(active, X.shape[1], C)
    return support.Record(
        scores=support.score_array(scores),
        mistakes=[],
        updates=updates,
        vectors=vectors,
        coefficients=coefficients,
        ages=ages,
        refused=refused,
        slots=support.occupied_slots(active),
        averaged=support.averaged_coefficients(active, averaged_rounds, C),
    )
