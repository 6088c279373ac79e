"""Passive-aggressive learning on a budget: PA, PA-I and PA-II."""

import jax.numpy as jnp

from budgetjax import _checks, losses
from budgetjax._record import leaf, static
from budgetjax._shapes import Number
from budgetjax.online.learner import Learner

VARIANTS = ("PA", "PA-I", "PA-II")


class PassiveAggressive(Learner):
    r"""Passive-aggressive learning on a budget: PA, PA-I and PA-II.

    An example with a margin of at least 1 changes nothing. With the loss
    :math:`\ell_t = \max(0, 1 - y_t f_t(x_t))`, it enters with the coefficient
    :math:`\tau_t y_t`, where :math:`\tau` is

    * PA: :math:`\ell / k(x, x)`, the smallest change of the model that brings the loss
      to 0;
    * PA-I: :math:`\min(C, \ell / k(x, x))`, the minimizer of
      :math:`\frac12 \|w - w_t\|^2 + C \ell`;
    * PA-II: :math:`\ell / (k(x, x) + \frac{1}{2C})`, the minimizer of
      :math:`\frac12 \|w - w_t\|^2 + C \ell^2`.

    A weight multiplies C, so a heavy row is learned until its loss is 0.

    With more classes the margin is :math:`f^{(y)} - f^{(r)}` with the best other class
    r, the coefficients are :math:`+\tau` and :math:`-\tau` in columns y and r, and
    :math:`k(x, x)` counts twice. If there are now B + 1 vectors, ``maintenance``
    reduces them to B. The joint updates of Wang and Vucetic are strategies here:
    `ProjectOntoCandidate` is BPA-S, `ProjectOntoNearest` BPA-NN, and
    ``Project(best=True)`` BPA-P.

    Cost: O(B (d + C)) per example; a positive loss adds the cost of the maintenance.

    Args:
      variant: "PA", "PA-I" or "PA-II".
      penalty: C, a positive number; "PA" does not use it.

    Example:
      >>> state = bj.PassiveAggressive(penalty=0.5).init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10,
      ...     maintenance=bj.ProjectOntoCandidate())
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.support(state).coefficients[0].tolist()
      [-0.5]

    References:
      Crammer, Dekel, Keshet, Shalev-Shwartz and Singer (2006), "Online
      passive-aggressive algorithms", Fig. 1. https://jmlr.org/papers/v7/crammer06a.html
      Wang and Vucetic (2010), "Online passive-aggressive algorithms on a budget", for
      the budget. https://proceedings.mlr.press/v9/wang10b/wang10b.pdf

    Differences from the papers: joint and separate optimisation agree (see
    `ProjectOntoCandidate`), so any strategy goes with any variant.
    """

    variant: str = static(default="PA-I", check=_checks.one_of(*VARIANTS))
    penalty: Number = leaf(_checks.positive, default=1.0)

    def update(self, state, score, y, candidate):
        """The example enters with tau; the strategy makes room for it."""
        columns = 1 if score.shape[0] == 1 else 2
        curvature = columns * candidate.kernel_self
        # The weight multiplies C.
        C = jnp.asarray(self.penalty)
        if self.variant == "PA-II":
            curvature = curvature + 1 / (2 * C) / candidate.weight
        # If the kernel is 0 at x, no coefficient changes the margin.
        step = (1 - losses.margin(score, y)) / jnp.where(curvature > 0, curvature, 1)
        step = jnp.where(curvature > 0, step, 0)
        tau = (
            jnp.minimum(candidate.weight * C, step) if self.variant == "PA-I" else step
        )
        return self.insert(state, tau * losses.margin_subgradient(score, y), candidate)

    def no_update_above(self, state):
        return 1.0
