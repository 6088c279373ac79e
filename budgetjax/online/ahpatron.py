"""Ahpatron, an aggressive Perceptron that halves a full budget; see `init`."""

import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, losses
from budgetjax._errors import names_errors
from budgetjax._pytree import Counter, Name
from budgetjax._shapes import Flag, Label, Scalar, Score
from budgetjax.kernels import Kernel
from budgetjax.online import importance
from budgetjax.online.algorithm import Algorithm, init_fields
from budgetjax.online.ball import (
    project_onto_ball,
    refresh_squared_norm,
    squared_norm_of,
)
from budgetjax.online.maintenance import Maintenance, init_maintenance
from budgetjax.online.maintenance.projection import DelayedProject
from budgetjax.online.state import record_state
from budgetjax.online.support_set import Candidate, Edits, Expansion


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


@record_state
class State(NamedTuple):
    """The state of an Ahpatron.

    Attributes:
      expansion: the support set; the model is in the ball `||f|| <= radius`.
      maintenance: half of the vectors leave when the budget is full.
      squared_norm: `||f||^2` for the unscaled coefficients.
      margin: 1 - epsilon.
      radius: U, the norm that the model may have.
      num_updates: rounds whose margin was below 1 - epsilon.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    maintenance: Maintenance
    squared_norm: Scalar
    margin: Scalar
    radius: Scalar
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter


@names_errors("ahpatron.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    epsilon: ArrayLike = 0.5,
    radius: ArrayLike | None = None,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
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
      >>> state = bj.ahpatron.init(bj.RBF(gamma=1.0), num_features=2, budget=16)
      >>> state = bj.ahpatron.step(state, jnp.array([1.0, 2.0]), -1)
      >>> round(float(bj.support(state).coefficients[0, 0]), 4)
      -0.25

    References:
      Liao, Li, Liao, Hu and Dang (2024), "Ahpatron: a new budgeted online kernel
      learning machine with tighter mistake bound". https://arxiv.org/abs/2312.07032
      The steps are those of the authors' code, https://github.com/alg4ml/Ahpatron.

    Differences from the code: the ridge of the projection is 0.001, not 0.0005; of
    equal coefficients the oldest leave, not the youngest; and more than two classes.
    """
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields("ahpatron", kernel, *sizes)
    _checks.check_invertible_dtype(dtype)
    margin = 1 - _checks.as_leaf("epsilon", epsilon, dtype, _checks.unit_interval)
    if radius is None:
        norm = jnp.sqrt(shared["expansion"].budget.astype(dtype)) / 2
    else:
        norm = _checks.as_leaf("radius", radius, dtype, _checks.positive)
    return State(
        **shared,
        maintenance=init_maintenance(ProjectAndRescale(share=0.5), shared, 0),
        squared_norm=jnp.zeros((), dtype),
        margin=margin,
        radius=norm,
    )


def violates(state: State, score: Score, y: Label) -> Flag:
    """True if the margin is below 1 - epsilon."""
    return losses.margin(score, y) < state.margin


def update(
    state: State, score: Score, y: Label, candidate: Candidate
) -> tuple[State, Edits]:
    """Steps 2 and 3; the strategy has taken step 1."""
    expansion = state.expansion
    step = state.radius / jnp.sqrt(4 * expansion.budget.astype(score.dtype))
    direction = losses.margin_subgradient(score, y)
    gain = jnp.sum(direction**2) * step * candidate.kernel_self
    missing = state.margin - losses.margin(score, y)
    steps = importance.repeats(candidate.weight, missing, gain)
    coefficients = steps * step * direction / expansion.scale
    candidate = candidate._replace(coefficients=coefficients)
    _, edits = state.maintenance.insert(state.kernel, expansion, candidate)
    edits, squared_norm, *_ = project_onto_ball(
        state.kernel, expansion, state.squared_norm, edits, state.radius
    )
    return state._replace(squared_norm=squared_norm), edits


ahpatron = Algorithm(
    "ahpatron",
    init,
    violates,
    update,
    refresh_caches=refresh_squared_norm,
    no_update_above=lambda state: math.nextafter(float(state.margin), math.inf),
)
