"""Pegasos on a budget, binary and multi-class; see `init`."""

from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import expansion as support_set
from budgetjax import hyperparameters, losses, rounds
from budgetjax.expansion import Expansion, Newcomer
from budgetjax.kernels import Kernel
from budgetjax.maintenance import Maintenance, Merge, started
from budgetjax.rounds import Algorithm, Edits


class Ball(NamedTuple):
    """What the projection onto the ball remembers.

    Attributes:
      shrinking: the product of all projections so far, up to the folds.
      squared_norm: `||sum_j u_j phi(x_j)||^2` of the stored coefficients.
    """

    shrinking: Float[Array, ""]
    squared_norm: Float[Array, ""]


class State(NamedTuple):
    """The state of a Pegasos learner.

    Attributes:
      kernel: with parameters of the state's dtype.
      expansion: the support set. Stored coefficients are -1, 0 and +1 until vectors are
        merged: their common size `1 / (lambda t)` is the scale.
      maintenance: the strategy, with what it remembers.
      regularization: lambda.
      ball: of `project_to_ball`, or None.
      num_seen: rounds so far, t.
      num_mistakes: rounds whose margin was at most 0.
      num_updates: rounds whose margin was below 1.
    """

    kernel: Kernel
    expansion: Expansion
    maintenance: Maintenance
    regularization: Float[Array, ""]
    ball: Ball | None
    num_seen: Integer[Array, ""]
    num_mistakes: Integer[Array, ""]
    num_updates: Integer[Array, ""]


def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    regularization: ArrayLike,
    num_classes: int = 2,
    maintenance: Maintenance | None = None,
    project_to_ball: bool = False,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
    r"""A support vector machine on a budget, trained by stochastic subgradient steps.

    Minimises :math:`\frac{\lambda}{2} \|w\|^2 + \frac1n \sum_t \max(0, 1 - m_t)` over a
    stream, where the margin :math:`m_t` is :math:`y_t f(x_t)`, or
    :math:`f^{(y_t)} - f^{(r_t)}` with the best other class :math:`r_t`. Round t, with
    :math:`\eta_t = 1 / (\lambda t)` (``regularization`` is :math:`\lambda`):

    1. All coefficients shrink by :math:`1 - \eta_t \lambda`.
    2. If the margin of the old model was below 1, :math:`x_t` enters with
       :math:`\eta_t y_t`, or :math:`+\eta_t` in column :math:`y_t` and
       :math:`-\eta_t` in column :math:`r_t`.
    3. If that makes B + 1 vectors, ``maintenance`` makes them B.
    4. With ``project_to_ball``, :math:`w` is scaled into
       :math:`\|w\| \le 1 / \sqrt\lambda`.

    Cost: O(B (d + C)) a round; merging adds one kernel row to a violation, the ball two
    to four.

    Args:
      kernel: any kernel; merging needs an `RBF`.
      num_features: d.
      budget: B, the most support vectors; may be traced where `capacity` is given.
      regularization: lambda, positive.
      num_classes: 2 takes labels -1 and +1 and keeps one column of coefficients; more
        takes labels ``0 .. num_classes-1`` and keeps a column a class.
      maintenance: a strategy; None merges.
      project_to_ball: the optional last step of Pegasos.
      seed: for strategies that draw.
      capacity: slots to allocate, None for the budget. One capacity for several budgets
        lets `jax.vmap` sweep them.
      dtype: of vectors, coefficients and kernel parameters.

    Returns:
      An empty model, which scores 0 everywhere.

    Raises:
      ValueError: if a size, a number or the kernel does not fit.

    Example:
      >>> import budgetjax as bj, jax.numpy as jnp
      >>> state = bj.pegasos.init(
      ...     bj.RBF(gamma=1.0), num_features=2, budget=10, num_classes=3,
      ...     regularization=0.1)
      >>> state = bj.pegasos.step(state, jnp.array([1.0, 2.0]), 2)
      >>> bj.support(state).coefficients[0].tolist()
      [-10.0, 0.0, 10.0]

    References:
      Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget", Algorithm 1.
      Shalev-Shwartz, Singer and Srebro (2007) for the binary case.

    Differences from the papers: decay is kept in one scalar and a coefficient is never
    multiplied, so that equal coefficients stay equal and ties go to the oldest. The
    projection onto the ball is off unless asked for.
    """
    where = "pegasos.init"
    dtype = hyperparameters.float_dtype(where, dtype)
    shared = rounds.start(
        where,
        kernel,
        num_features=num_features,
        num_classes=num_classes,
        budget=budget,
        capacity=capacity,
        dtype=dtype,
    )
    strategy = Merge() if maintenance is None else maintenance
    project = hyperparameters.flag(where, "project_to_ball", project_to_ball)
    ball = Ball(jnp.ones((), dtype), jnp.zeros((), dtype)) if project else None
    return State(
        **shared,
        maintenance=started(
            where, strategy, shared["kernel"], shared["expansion"], seed
        ),
        regularization=hyperparameters.as_leaf(
            where,
            "regularization",
            hyperparameters.positive(where, "regularization", regularization),
            dtype,
        ),
        ball=ball,
    )


def violates(
    state: State, score: Float[Array, " columns"], y: Shaped[Array, ""]
) -> Bool[Array, ""]:
    """True where the hinge loss is positive."""
    return losses.margin(score, y) < 1


def update(
    state: State,
    score: Float[Array, " columns"],
    y: Shaped[Array, ""],
    newcomer: Newcomer,
) -> tuple[State, Edits]:
    """Steps 2 to 4; step 1 is `scale`."""
    # The true coefficient is eta_t = 1 / (lambda t): just the scale, but for the ball.
    direction = losses.direction(score, y)
    if state.ball is None:
        newcomer = newcomer._replace(coefficients=direction)
        maintenance, rows = state.maintenance.admit(
            state.kernel, state.expansion, newcomer
        )
        return state._replace(maintenance=maintenance), Edits(rows)

    newcomer = newcomer._replace(coefficients=direction / state.ball.shrinking)
    maintenance, rows = state.maintenance.admit(state.kernel, state.expansion, newcomer)
    squared_norm = support_set.squared_norm_after(
        state.kernel, state.expansion, state.ball.squared_norm, rows
    )
    # ||w|| can pass the limit in rounds with an update only: the others shrink it.
    norm = jnp.sqrt(jnp.maximum(squared_norm, 0)) * scale(state, newcomer.age)
    limit = 1 / jnp.sqrt(state.regularization)
    shrinking = state.ball.shrinking * jnp.minimum(1, limit / jnp.maximum(norm, limit))
    fold = rounds.fold(shrinking)
    rows = tuple(row._replace(coefficients=fold * row.coefficients) for row in rows)
    ball = Ball(shrinking / fold, squared_norm * fold * fold)
    state = state._replace(maintenance=maintenance.rescale(fold), ball=ball)
    return state, Edits(rows, fold)


def scale(state: State, num_seen: Integer[Array, ""]) -> Float[Array, ""]:
    """`1 / (lambda t)`, since the product of all `1 - 1/t` is `1/t`."""
    shrinking = 1 if state.ball is None else state.ball.shrinking
    rounds_seen = jnp.maximum(num_seen, 1).astype(state.regularization.dtype)
    return shrinking / (state.regularization * rounds_seen)


pegasos = Algorithm(init, violates, update, scale)
