"""Pegasos on a budget, binary and multi-class."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from budgetjax import _checks, _record, losses
from budgetjax._record import leaf, static
from budgetjax._shapes import Number, Scalar
from budgetjax.online import importance
from budgetjax.online.ball import project_onto_ball, refresh_norm
from budgetjax.online.edits import rescale_factor
from budgetjax.online.learner import Learner


@_record.record
class Ball(NamedTuple):
    """The memory of the projection onto the ball `||w|| <= 1 / sqrt(lambda)`.

    Attributes:
      unit: a new coefficient, unscaled: `1 / (lambda t)` divided by the scale. Only a
        projection changes it, so equal coefficients are equal to the last bit.
      squared_norm: `||sum_j u_j phi(x_j)||^2` of the stored coefficients.
    """

    unit: Scalar
    squared_norm: Scalar


class Pegasos(Learner):
    r"""Pegasos on a budget: a support vector machine by stochastic subgradient steps.

    Minimises :math:`\frac{\lambda}{2} \|w\|^2 + \frac1n \sum_t \max(0, 1 - m_t)` over a
    stream, where the margin :math:`m_t` is :math:`y_t f(x_t)`, or
    :math:`f^{(y_t)} - f^{(r_t)}` with the best other class :math:`r_t`. Round t, with
    :math:`\eta_t = 1 / (\lambda t)` (``regularization`` is :math:`\lambda`):

    1. All coefficients shrink by :math:`1 - \eta_t \lambda`.
    2. If the margin of the old model was below 1, :math:`x_t` enters with
       :math:`\eta_t y_t`, or :math:`+\eta_t` in column :math:`y_t` and
       :math:`-\eta_t` in column :math:`r_t`.
    3. If there are now B + 1 vectors, ``maintenance`` reduces them to B.
    4. With ``project_to_ball``, :math:`w` is scaled into
       :math:`\|w\| \le 1 / \sqrt\lambda`.

    Cost: O(B (d + C)) per example; a margin below 1 adds the cost of the maintenance,
    and the ball adds two to four kernel rows.

    Args:
      regularization: lambda, positive.
      project_to_ball: the optional last step of Pegasos.

    Example:
      >>> state = bj.Pegasos(regularization=0.1).init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10, num_classes=3)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), 2)
      >>> bj.support(state).coefficients[0].tolist()
      [-10.0, 0.0, 10.0]

    References:
      Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget", Algorithm 1;
      see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf
      Shalev-Shwartz, Singer and Srebro (2007), "Pegasos: primal estimated sub-gradient
      solver for SVM", for the binary case. https://doi.org/10.1145/1273496.1273598

    Differences from the papers: decay is kept in one scalar and coefficients are never
    multiplied, so equal coefficients stay equal and ties go to the oldest. The
    projection onto the ball is off by default.
    """

    regularization: Number = leaf(_checks.positive, default=1e-4)
    project_to_ball: bool = static(default=False, check=_checks.flag)

    def start(self, state, seed, vectors):
        # The scale of the model is the step size; see `decay`.
        scale = 1 / self.regularization
        memory = None
        if self.project_to_ball:
            one, zero = jnp.ones((), state.dtype), jnp.zeros((), state.dtype)
            memory = Ball(one, zero)
        expansion = state.expansion._replace(scale=scale)
        return state._replace(expansion=expansion, memory=memory)

    def update(self, state, score, y, candidate):
        """Steps 2 to 4; step 1 is `decay`."""
        expansion, ball = state.expansion, state.memory
        # A new coefficient, without rounding if there is no ball.
        unit = jnp.ones_like(expansion.scale) if ball is None else ball.unit
        seen = state.rounds(np.promote_types(state.dtype, jnp.float32))
        now = (seen / (seen + 1)).astype(score.dtype) * score
        direction = losses.margin_subgradient(score, y)
        gain = unit * expansion.scale * candidate.kernel_self
        gain = jnp.sum(direction**2) * gain
        missing = 1 - losses.margin(now, y)
        steps = importance.repeats(candidate.weight, missing, gain)
        candidate = candidate._replace(step=unit)
        state, edits = self.insert(state, unit * (steps * direction), candidate)
        if ball is None:
            # The scale is the step size, 1 / (lambda t), and never small.
            return state, edits
        # Only an update can take ||w|| beyond the limit; other rounds shrink it.
        limit = 1 / jnp.sqrt(self.regularization)
        edits, squared_norm, shrink, factor = project_onto_ball(
            state.kernel, expansion, ball.squared_norm, edits, limit
        )
        memory = Ball(ball.unit / shrink * factor, squared_norm)
        maintenance = state.maintenance.rescale(factor)
        return state._replace(maintenance=maintenance, memory=memory), edits

    def decay(self, state, rounds_ahead):
        """The logarithm of the product of `1 - 1/t` over the rounds ahead.

        The product of all is `1/t`: the scale, which starts at `1 / lambda`, is then
        the step size itself. It is computed from t, since the product would lose a
        block of rounds after the first 10^9.
        """
        seen = state.rounds(np.promote_types(state.dtype, jnp.float32))
        t = jnp.maximum(seen + rounds_ahead.astype(seen.dtype), 1)
        unit = 1 if state.memory is None else state.memory.unit
        steps = 1 / (self.regularization.astype(t.dtype) * t)
        return jnp.log(steps.astype(state.dtype) / (unit * state.expansion.scale))

    def with_weights(self, state, root, weights):
        """The coefficients, with a scale that is not small.

        Without a ball the scale is the step size and does not change.
        """
        ball, expansion = state.memory, state.expansion
        if ball is not None:
            factor = rescale_factor(expansion.scale)
            expansion = expansion._replace(scale=expansion.scale / factor)
            ball = ball._replace(unit=ball.unit * factor)
        state = state._replace(expansion=expansion, memory=ball)
        return super().with_weights(state, root, weights)

    def refresh(self, state):
        state = super().refresh(state)
        return state if state.memory is None else refresh_norm(state)

    def no_update_above(self, state):
        return 1.0
