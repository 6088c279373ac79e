"""Stochastic gradient descent in the space of the kernel, with any loss, on a budget.

With the hinge loss and eta_t = 1 / (lambda t) it is Pegasos; with a constant eta and
`remove_oldest` it is NORMA (Kivinen, Smola, Williamson 2004).

All coefficients here are the true ones: there is no scalar that shrinks them.
"""

from . import support
from .importance import multiple
from .passes import Pass


def run(kernel, X, y, *, gradient, learning_rate, regularization=0.0, **given):
    """One pass; an update when the gradient of the round has a nonzero entry.

    `gradient(scores, y)` is one of those in gradients.py, `learning_rate(t)` is
    eta_t for t = 1, 2, ... The record has no mistakes, as targets may be numbers.
    """
    learner = Pass(kernel, X, y, **given)
    for x, target, weight, f in learner.rounds():
        eta = learning_rate(learner.t)

        # w <- (1 - eta lambda) w
        factor = max(0.0, 1 - eta * regularization)
        for s in support.occupied(learner.active):
            s.coefficients = factor * s.coefficients

        # w <- w - eta d loss(f(x), y) / df phi(x)
        g = gradient(f, target)
        if (g != 0).any():
            learner.updates.append(learner.t)
            change = -eta * kernel(x, x) * g
            m = multiple(weight, g, gradient, factor * f, change, target)
            learner.insert(x, -eta * m * g)
        learner.add_to_average()
    return learner.record()
