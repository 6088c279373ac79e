"""Kernel gradient descent on a budget, shared by `sgd`, `pegasos` and `norma`."""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer

from budgetjax import _checks, _pytree, losses
from budgetjax._errors import ArgumentError
from budgetjax._pytree import Counter, Function, Name
from budgetjax._shapes import Basis, Flag, Scalar, Score, Target, Weights
from budgetjax.kernels import Kernel
from budgetjax.online import algorithm, importance, support_set
from budgetjax.online.algorithm import Algorithm, Arguments, init_fields
from budgetjax.online.ball import project_onto_ball, squared_norm_of
from budgetjax.online.conservative import sums_before
from budgetjax.online.maintenance import Maintenance, init_maintenance
from budgetjax.online.state import record_state
from budgetjax.online.support_set import Candidate, Edits, Expansion

# The logarithm of the shrinking factor of a round that forgets the model. The factor
# must not be 0, since later updates are divided by it.
FORGOTTEN = -40 * math.log(2)


@_pytree.record
class Ball(NamedTuple):
    """The memory of the projection onto the ball `||w|| <= 1 / sqrt(lambda)`.

    Attributes:
      unit: a new coefficient, unscaled: `1 / (lambda t)` divided by the scale. Only a
        projection changes it, so equal coefficients are equal to the last bit.
      squared_norm: `||sum_j u_j phi(x_j)||^2` of the stored coefficients.
    """

    unit: Scalar
    squared_norm: Scalar


@record_state
class State(NamedTuple):
    """The state of a gradient descent learner.

    Attributes:
      expansion: the support set, with running sums if iterates are averaged.
      loss: a function of scores and target, with its arguments as leaves.
      learning_rate: a number, a schedule, or None for `1 / (regularization * t)`.
      regularization: lambda.
      ball: the memory of `project_to_ball`, or None.
      num_updates: rounds with a nonzero gradient.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    maintenance: Maintenance
    loss: Callable[..., Array]
    learning_rate: Scalar | Partial | None
    regularization: Scalar
    ball: Ball | None
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter


def init_state(
    name: str,
    kernel: Kernel,
    num_features: int,
    budget: ArrayLike,
    num_classes: int | None,
    capacity: int | None,
    dtype: DTypeLike,
    *,
    num_outputs: int | None = None,
    average: bool | int,
    loss: Callable[..., Array] | None,
    learning_rate: ArrayLike | Callable[[Array], Array] | None,
    regularization: ArrayLike,
    maintenance: Maintenance | None = None,
    seed: ArrayLike = 0,
    project_to_ball: bool = False,
) -> State:
    """An empty model of any of these learners."""
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields(name, kernel, *sizes, num_outputs=num_outputs, average=average)
    expansion = shared["expansion"]
    kind = expansion.vectors.dtype
    strength = _checks.as_leaf(
        "regularization", regularization, kind, _checks.non_negative
    )
    if learning_rate is None:
        # The scale of the model is then the step size; see `decay`.
        shared["expansion"] = expansion._replace(scale=1 / strength)
    project = _checks.flag("project_to_ball", project_to_ball)
    return State(
        **shared,
        maintenance=init_maintenance(maintenance, shared, seed),
        loss=losses.as_leaves(loss, num_classes, kind, num_outputs or 1),
        learning_rate=_learning_rate(learning_rate, kind),
        regularization=strength,
        ball=Ball(jnp.ones((), kind), jnp.zeros((), kind)) if project else None,
    )


def default_rate(num_classes: int | None) -> float:
    """The default learning rate, for targets of standard deviation 1."""
    return 0.3 if num_classes is None else 1.0


def _learning_rate(
    given: ArrayLike | Callable[[Array], Array] | None, dtype: np.dtype
) -> Scalar | Partial | None:
    """A learning rate as part of a state."""
    if given is None:
        return given
    if callable(given):
        schedule = Function.of(given)
        try:
            value = jax.eval_shape(
                lambda t: jnp.asarray(schedule(t), dtype),
                jax.ShapeDtypeStruct((), np.promote_types(dtype, jnp.float32)),
            )
        except Exception as error:
            raise ArgumentError(
                "learning_rate",
                "be a number or a function of the number of rounds",
                error,
            ) from error
        if value.shape != ():
            raise ArgumentError(
                "learning_rate", "give one number per round", f"shape {value.shape}"
            )
        return schedule
    return _checks.as_leaf("learning_rate", given, dtype, _checks.positive)


def violates(state: State, score: Score, y: Target) -> Flag:
    """True where the loss has a gradient."""
    return jnp.any(losses.gradient(state.loss, score, y) != 0)


def update(
    state: State, score: Score, y: Target, candidate: Candidate
) -> tuple[State, Edits]:
    """Steps 2 and 3, and the projection onto the ball; step 1 is `decay`."""
    gradient = losses.gradient(state.loss, score, y)
    score, gain = after_decay(state, score), step_gain(state, candidate)
    multiple = importance.step_multiple(
        candidate.weight,
        y,
        gradient,
        lambda m: losses.gradient(state.loss, score - m * gain * gradient, y),
    )
    return insert(state, multiple * gradient, candidate)


def after_decay(state: State, score: Score) -> Score:
    """The score of the example after step 1."""
    seen = state.num_seen.real(_wide(state))
    if state.learning_rate is None:
        kept = seen / (seen + 1)
    else:
        kept = 1 - jnp.minimum(_rate(state, seen) * state.regularization, 1)
    return kept.astype(score.dtype) * score


def step_gain(state: State, candidate: Candidate) -> Scalar:
    """What a step of gradient 1 takes from the score of its example."""
    return _unit(state) * state.expansion.scale * candidate.kernel_self


def insert(state: State, gradient: Score, candidate: Candidate) -> tuple[State, Edits]:
    """A step of this gradient; see `update`."""
    expansion = state.expansion
    unit = _unit(state)
    candidate = candidate._replace(coefficients=-unit * gradient, step=unit)
    maintenance, edits = state.maintenance.insert(state.kernel, expansion, candidate)
    if state.learning_rate is None and state.ball is None:
        # The scale is the step size, 1 / (lambda t), and never small.
        return state._replace(maintenance=maintenance), edits

    ball = state.ball
    if ball is None:
        edits = edits._replace(shrink=jnp.ones_like(expansion.scale))
        edits, factor = support_set.with_rescale(expansion, edits)
    else:
        # Only an update can take ||w|| beyond the limit; other rounds shrink it.
        limit = 1 / jnp.sqrt(state.regularization)
        edits, squared_norm, shrink, factor = project_onto_ball(
            state.kernel, expansion, ball.squared_norm, edits, limit
        )
        ball = Ball(ball.unit / shrink * factor, squared_norm)
    return state._replace(maintenance=maintenance.rescale(factor), ball=ball), edits


def _unit(state: State) -> Scalar:
    """The learning rate divided by the scale, without rounding if that is 1."""
    if state.learning_rate is not None:
        seen = state.num_seen.real(_wide(state))
        return _rate(state, seen) / state.expansion.scale
    one = jnp.ones_like(state.expansion.scale)
    return one if state.ball is None else state.ball.unit


def _wide(state: State) -> np.dtype:
    """The dtype for numbers of rounds: float16 cannot hold 100,000."""
    return np.promote_types(state.regularization.dtype, jnp.float32)


def _rate(state: State, seen: Scalar) -> Scalar:
    """The learning rate, a number or a schedule, after `seen` rounds."""
    given = state.learning_rate
    if isinstance(given, Partial):
        return jnp.asarray(given(seen), state.regularization.dtype)
    assert given is not None, "without a learning rate the scale is the step size"
    return given


def decay(state: State, rounds_ahead: Integer[Array, " n"]) -> Float[Array, " n"]:
    """The logarithm of the product of `1 - eta_t lambda` over the rounds ahead.

    With `eta_t = 1 / (lambda t)` the product of all `1 - 1/t` is `1/t`: the scale,
    which starts at `1 / lambda`, is then the step size itself. It is computed from t,
    since the product would lose a block of rounds after the first 10^9.
    """
    seen = state.num_seen.real(_wide(state))
    if state.learning_rate is None:
        t = jnp.maximum(seen + rounds_ahead.astype(seen.dtype), 1)
        unit = 1 if state.ball is None else state.ball.unit
        dtype = state.regularization.dtype
        steps = 1 / (state.regularization.astype(t.dtype) * t)
        return jnp.log(steps.astype(dtype) / (unit * state.expansion.scale))
    before, after = rounds_ahead[:-1], rounds_ahead[1:]
    rates = jax.vmap(lambda t: _rate(state, t))(seen + before.astype(seen.dtype))
    lost = jnp.minimum(rates * state.regularization, 1)
    decay = jnp.maximum(jnp.log1p(-lost), FORGOTTEN)
    return sums_before(jnp.where(after > before, decay, 0))


def with_weights(state: State, root: Basis, weights: Weights) -> State:
    """Replaces the coefficients, with a scale that is not small.

    Without a ball and a learning rate, the scale is the step size and does not change.
    Otherwise it may have decayed far since the last update.
    """
    ball, expansion = state.ball, state.expansion
    if ball is not None or state.learning_rate is not None:
        factor = support_set.rescale_factor(expansion.scale)
        expansion = expansion._replace(scale=expansion.scale / factor)
        if ball is not None:
            ball = ball._replace(unit=ball.unit * factor)
    state = state._replace(expansion=expansion, ball=ball)
    return algorithm.with_weights(state, root, weights)


def restart(state: State) -> State:
    """Forgets the unit of the ball too; the scale is the first step size again."""
    state, ball = algorithm.restart(state), state.ball
    if state.learning_rate is None:
        first = state.expansion._replace(scale=1 / state.regularization)
        state = state._replace(expansion=first)
    return state._replace(ball=ball and ball._replace(unit=jnp.ones_like(ball.unit)))


def refresh_caches(state: State) -> State:
    """Restarts the strategy and recomputes the squared norm of the ball."""
    state = algorithm.refresh_caches(state)
    if state.ball is None:
        return state
    norm = squared_norm_of(state.kernel, state.expansion)
    return state._replace(ball=state.ball._replace(squared_norm=norm))


def learner(name: str, init: Callable[Arguments, State]) -> Algorithm[Arguments, State]:
    """A gradient descent algorithm with this name and `init`."""
    return Algorithm(
        name,
        init,
        violates,
        update,
        decay,
        with_weights=with_weights,
        refresh_caches=refresh_caches,
        restart=restart,
    )
