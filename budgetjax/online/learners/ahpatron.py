"""Ahpatron, an aggressive Perceptron that halves a full budget."""

import math

import jax.numpy as jnp

from budgetjax import _checks, losses
from budgetjax._record import leaf
from budgetjax._shapes import Number
from budgetjax.online import importance
from budgetjax.online.ball import (
    Norm,
    project_onto_ball,
    refresh_norm,
    squared_norm_of,
)
from budgetjax.online.learner import Learner
from budgetjax.online.maintenance.projection import DelayedProject


class ProjectAndRescale(DelayedProject):
    """As `DelayedProject`; the model then is scaled to its norm before."""

    def make_room(self, kernel, expansion):
        before = squared_norm_of(kernel, expansion)
        expansion = super().make_room(kernel, expansion)
        after = squared_norm_of(kernel, expansion)
        factor = jnp.sqrt(jnp.maximum(before, 0) / jnp.where(after > 0, after, 1))
        factor = jnp.where(after > 0, factor, 1)
        terms = expansion.coefficients_and_sums * factor
        return expansion._replace(coefficients_and_sums=terms)


class Ahpatron(Learner):
    r"""Ahpatron, an aggressive Perceptron that projects half of a full budget.

    An example with a margin :math:`y_t f_t(x_t) < 1 - \varepsilon` changes the model:

    1. If there are B vectors, the half with the smallest coefficients leaves, projected
       onto the span of the other half; the model is then scaled to its norm before.
    2. :math:`x_t` enters with :math:`\lambda y_t`, where
       :math:`\lambda = U / \sqrt{4 B}`.
    3. The model is scaled into the ball :math:`\|f\| \le U`.

    With more classes the margin is :math:`f^{(y)} - f^{(r)}` with the best other class
    r, and the coefficients are :math:`\pm \lambda` in columns y and r.

    Cost: O(B (d + C)) per example; an update adds one to two kernel rows, and one in
    B / 2 updates O(B^3 + B^2 (d + C)).

    Args:
      kernel: any kernel; the bound of the paper needs :math:`k(x, x) = 1`.
      epsilon: at least 0 and below 1; 0 updates on every positive hinge loss.
      radius: U, the norm of the functions to compete with, above 0; None for
        :math:`\sqrt{B} / 2`.

    Example:
      >>> state = bj.Ahpatron().init(bj.RBF(gamma=1.0), num_features=2, budget=16)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> round(float(bj.support(state).coefficients[0, 0]), 4)
      -0.25

    References:
      Liao, Li, Liao, Hu and Dang (2024), "Ahpatron: a new budgeted online kernel
      learning machine with tighter mistake bound". https://arxiv.org/abs/2312.07032
      The steps are those of the authors' code, https://github.com/alg4ml/Ahpatron.

    Differences from the code: the ridge of the projection is 0.001, not 0.0005; of
    equal coefficients the oldest leave, not the youngest; and more than two classes.
    """

    takes = ("num_classes",)
    epsilon: Number = leaf(_checks.unit_interval, default=0.5)
    radius: Number = leaf(_checks.positive, default=None)

    def bind(self, expansion, num_classes):
        dtype = expansion.vectors.dtype
        _checks.check_invertible_dtype(dtype)
        bound = super().bind(expansion, num_classes)
        if bound.radius is None:
            radius = jnp.sqrt(expansion.budget.astype(dtype)) / 2
            bound = bound._replace(radius=radius)
        return bound

    def default_maintenance(self, kernel):
        return ProjectAndRescale(share=0.5)

    def start(self, state, seed, vectors):
        return state._replace(memory=Norm(jnp.zeros((), state.dtype)))

    def violates(self, state, score, y):
        """True if the margin is below 1 - epsilon."""
        return losses.margin(score, y) < 1 - self.epsilon

    def update(self, state, score, y, candidate):
        """Steps 2 and 3; the strategy has taken step 1."""
        expansion = state.expansion
        step = self.radius / jnp.sqrt(4 * expansion.budget.astype(score.dtype))
        direction = losses.margin_subgradient(score, y)
        gain = jnp.sum(direction**2) * step * candidate.kernel_self
        missing = (1 - self.epsilon) - losses.margin(score, y)
        steps = importance.repeats(candidate.weight, missing, gain)
        coefficients = steps * step * direction / expansion.scale
        _, edits = self.insert(state, coefficients, candidate)
        edits, squared_norm, *_ = project_onto_ball(
            state.kernel, expansion, state.memory.squared_norm, edits, self.radius
        )
        return state._replace(memory=Norm(squared_norm)), edits

    def refresh(self, state):
        return refresh_norm(super().refresh(state))

    def no_update_above(self, state):
        return math.nextafter(float(1 - self.epsilon), math.inf)
