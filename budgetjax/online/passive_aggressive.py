"""Passive-aggressive learning on a budget; see `init`."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import Counter, Name
from budgetjax._shapes import Label, Scalar, Score
from budgetjax.kernels import Kernel
from budgetjax.online.algorithm import Algorithm, init_fields, violates_hinge
from budgetjax.online.maintenance import Maintenance, init_maintenance
from budgetjax.online.state import record_state
from budgetjax.online.support_set import Candidate, Edits, Expansion

VARIANTS = ("PA", "PA-I", "PA-II")


@record_state
class State(NamedTuple):
    """The state of a passive-aggressive learner.

    Attributes:
      expansion: the support set; a coefficient is `tau y` until maintenance changes it.
      largest_step: the maximum of tau: C for PA-I, otherwise the largest finite number.
      damping: the term added to `k(x, x)`: 1 / (2 C) for PA-II, otherwise 0.
      num_updates: rounds whose margin was below 1.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    maintenance: Maintenance
    largest_step: Scalar
    damping: Scalar
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter


@names_errors("passive_aggressive.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    variant: str = "PA-I",
    penalty: ArrayLike = 1.0,
    maintenance: Maintenance | None = None,
    average: bool | int = False,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
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
      >>> state = bj.passive_aggressive.init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10, penalty=0.5,
      ...     maintenance=bj.ProjectOntoCandidate())
      >>> state = bj.passive_aggressive.step(state, jnp.array([1.0, 2.0]), -1)
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
    if not isinstance(variant, str) or variant not in VARIANTS:
        raise ArgumentError("variant", f"be one of {VARIANTS}", f"{variant!r}")
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields("passive_aggressive", kernel, *sizes, average=average)
    C = _checks.as_leaf("penalty", penalty, dtype, _checks.positive)
    return State(
        **shared,
        maintenance=init_maintenance(maintenance, shared, seed),
        largest_step=C if variant == "PA-I" else jnp.full_like(C, jnp.finfo(dtype).max),
        damping=1 / (2 * C) if variant == "PA-II" else jnp.zeros_like(C),
    )


def update(
    state: State, score: Score, y: Label, candidate: Candidate
) -> tuple[State, Edits]:
    """The example enters with tau; the strategy makes room for it."""
    columns = 1 if score.shape[0] == 1 else 2
    # The weight multiplies C.
    largest = candidate.weight * state.largest_step
    curvature = columns * candidate.kernel_self + state.damping / candidate.weight
    # If the kernel is 0 at x, no coefficient changes the margin.
    step = (1 - losses.margin(score, y)) / jnp.where(curvature > 0, curvature, 1)
    tau = jnp.minimum(largest, jnp.where(curvature > 0, step, 0))
    direction = tau * losses.margin_subgradient(score, y)
    candidate = candidate._replace(coefficients=direction)
    maintenance, edits = state.maintenance.insert(
        state.kernel, state.expansion, candidate
    )
    return state._replace(maintenance=maintenance), edits


passive_aggressive = Algorithm(
    "passive_aggressive",
    init,
    violates_hinge,
    update,
    no_update_above=lambda state: 1.0,
)
