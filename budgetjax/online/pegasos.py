"""Pegasos on a budget, binary and multi-class; see `init`."""

import dataclasses

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, losses
from budgetjax._errors import names_errors
from budgetjax._shapes import Label, Score
from budgetjax.kernels import Kernel
from budgetjax.online import gradient_descent, importance
from budgetjax.online.algorithm import violates_hinge
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.support_set import Candidate, Edits


@names_errors("pegasos.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    regularization: ArrayLike = 1e-4,
    maintenance: Maintenance | None = None,
    project_to_ball: bool = False,
    average: bool | int = False,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> gradient_descent.State:
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
      >>> state = bj.pegasos.init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10, num_classes=3,
      ...     regularization=0.1)
      >>> state = bj.pegasos.step(state, jnp.array([1.0, 2.0]), 2)
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
    return gradient_descent.init_state(
        "pegasos",
        kernel,
        *(num_features, budget, num_classes, capacity, dtype),
        loss=losses.hinge,
        learning_rate=None,
        regularization=_checks.positive("regularization", regularization),
        average=average,
        maintenance=maintenance,
        seed=seed,
        project_to_ball=project_to_ball,
    )


def update(
    state: gradient_descent.State, score: Score, y: Label, candidate: Candidate
) -> tuple[gradient_descent.State, Edits]:
    """Steps 2 to 4."""
    direction = losses.margin_subgradient(score, y)
    gain = jnp.sum(direction**2) * gradient_descent.step_gain(state, candidate)
    missing = 1 - losses.margin(gradient_descent.after_decay(state, score), y)
    steps = importance.repeats(candidate.weight, missing, gain)
    return gradient_descent.insert(state, -steps * direction, candidate)


pegasos = dataclasses.replace(
    gradient_descent.learner("pegasos", init),
    violates=violates_hinge,
    update=update,
    no_update_above=lambda state: 1.0,
)
