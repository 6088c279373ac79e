"""Passive-aggressive learners: Crammer, Dekel, Keshet, Shalev-Shwartz, Singer, 2006.

PA, PA-I and PA-II with any maintenance. With `project_onto_candidate` and
`project_onto_nearest` PA-I is BPA-S and BPA-NN (Wang, Vucetic, AISTATS 2010), whose
own definition, update and removal as one problem, is `joint_update`.
"""

import numpy as np

from . import support
from .passes import Pass


def run(kernel, X, y, *, variant="PA-I", penalty=1.0, **given):
    """One pass; an update when the hinge loss of the round is positive."""
    learner = Pass(kernel, X, y, **given)
    for x, label, weight, f in learner.rounds():
        margin, rival = learner.margin_and_rival(f, label)
        loss = max(0.0, 1 - margin)
        if loss > 0:
            learner.updates.append(learner.t)
            direction = support.candidate_row(label, rival, learner.C)
            square = (direction**2).sum() * kernel(x, x)
            tau = step(variant, loss, square, weight * penalty)
            learner.insert(x, tau * direction)
    return learner.record()


def step(variant, loss, square, penalty):
    """tau, section 3; `square` is the squared norm of direction x phi(x_t)."""
    if variant == "PA":
        return loss / square
    if variant == "PA-I":
        return min(penalty, loss / square)
    if variant == "PA-II":
        return loss / (square + 1 / (2 * penalty))
    raise ValueError(variant)


def joint_update(kernel, active, x, label, *, penalty, nearest=False):
    """BPA-S, or with `nearest` BPA-NN, from its definition; binary, x of positive loss.

    For every r of the (full) model, minimise
        1/2 ||w - w_t||^2 + C max(0, 1 - y w.phi_t)
    over w = w_t - a_r phi_r + sum_{i in V} beta_i phi_i, where V is {t} or {t, n} and
    n the one of the others nearest to r. Returns the r of least objective, n or None,
    beta (in the order of V), and the objective.

    The minimum is where the hinge is flat, where it is steep, or at its kink. Each
    of the three is an equality-constrained quadratic problem, solved as if the hinge
    were not elsewhere different; the true minimum is the best of the three points.
    """
    everyone = active + [support.SupportVector(x, np.zeros(1), None)]
    last = len(active)
    K = support.kernel_matrix(kernel, [s.vector for s in everyone])
    a = support.stack_coefficients(everyone)[:, 0]
    f = (a * K[:, last]).sum()  # f_t(x_t)
    C = penalty

    def objective(change):
        hinge = max(0.0, 1 - label * (f + (change * K[:, last]).sum()))
        return change @ K @ change / 2 + C * hinge

    best = None
    for r in range(last):
        others = [n for n in range(last) if n != r]
        V = [last]
        if nearest and others:
            distances = [K[n, n] - 2 * K[r, n] + K[r, r] for n in others]
            V = [last, others[int(np.argmin(distances))]]

        G = K[np.ix_(V, V)]
        # 1/2 ||sum beta phi - a_r phi_r||^2 alone
        flat = np.linalg.solve(G, a[r] * K[V, r])
        # the same - C y sum_i beta_i k_it
        steep = np.linalg.solve(G, a[r] * K[V, r] + C * label * K[V, last])
        # the same with y (f - a_r k_rt + sum_i beta_i k_it) = 1, by a multiplier
        A = np.block([[G, K[V, last][:, None]], [K[V, last][None], np.zeros((1, 1))]])
        b = np.append(a[r] * K[V, r], label - f + a[r] * K[r, last])
        kink = np.linalg.solve(A, b)[:-1]

        for beta in (flat, steep, kink):
            change = np.zeros(len(everyone))
            change[r] = -a[r]
            change[V] = beta
            value = objective(change)
            if best is None or value < best[-1]:
                best = r, (V[1] if len(V) == 2 else None), beta, value
    return best
