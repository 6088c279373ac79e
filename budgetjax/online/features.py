"""Linear learning on features of a kernel, shared by `fourier` and `nystrom`.

The model is `f(x) = W^T p(x)` with fixed or growing features `p`. An optimiser may
change all weights in every round, so no round can be skipped: one matrix product
computes the features of a block, and a loop goes over its examples.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError
from budgetjax._pytree import Counter, Function, Name
from budgetjax._shapes import Basis, Flag, PerRow, Scalar, Score, Target, Weights
from budgetjax.kernels import Kernel
from budgetjax.online import algorithm, importance
from budgetjax.online.state import record_state
from budgetjax.online.support_set import Expansion

_SGD = optax.sgd(0.2)


def default_update(
    updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
) -> tuple[optax.Updates, optax.OptState]:
    """The update of the default optimiser; named, so that states can be pickled."""
    return _SGD.update(updates, state, params)


# Both learners share one default object, and so one compiled program.
OPTIMIZER = optax.GradientTransformation(_SGD.init, default_update)


@record_state
class State(NamedTuple):
    """The state of a linear learner on features of a kernel.

    Attributes:
      kernel: the kernel of the features.
      expansion: the model as a kernel expansion, `f(x) = sum_j a_j k(x_j, x)`, for
        predictions. It agrees with `weights` after every call.
      root: `R`, shape `(rows, rows)`: the features are `R k(x)`; or None if they are
        `k(x)` itself.
      tolerance: the squared distance from the span of the landmarks, as a fraction of
        `k(x, x)`, above which an example becomes a landmark.
      loss: a function of scores and target, with its arguments as leaves.
      weights: `W`, shape `(rows, columns)`.
      sums: the sum of the weights of all rounds in the average, or None.
      optimizer: the update of an optax optimiser, with its arguments as leaves.
      optimizer_state: the state of the optimiser.
      num_updates: rounds with a nonzero gradient.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    root: Float[Array, "rows rows"] | None
    tolerance: Scalar
    loss: Callable[..., Array]
    weights: Float[Array, "rows columns"]
    sums: Float[Array, "rows columns"] | None
    optimizer: Partial
    optimizer_state: optax.OptState
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter


def init_features(
    shared: dict[str, Any],
    num_classes: int | None,
    num_outputs: int,
    loss: Callable[..., Array] | None,
    optimizer: optax.GradientTransformation | None,
    root: Float[Array, "rows rows"] | None = None,
    tolerance: ArrayLike = 0.0,
) -> State:
    """A model with zero weights, from the fields of `init_fields`."""
    optimizer = OPTIMIZER if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ArgumentError(
            "optimizer", "be of optax, such as optax.sgd(0.1)", f"{optimizer!r}"
        )
    expansion = shared["expansion"]
    dtype, columns = expansion.vectors.dtype, expansion.num_columns
    weights = jnp.zeros((expansion.ages.shape[0], columns), dtype)
    # An optimiser may keep weakly typed numbers, but no leaf of a state may be one.
    memory = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), optimizer.init(weights)
    )
    try:
        jax.eval_shape(optimizer.update, weights, memory, weights)
    except Exception as error:
        raise ArgumentError(
            "optimizer", "be one of gradients alone, such as optax.sgd(0.1)", error
        ) from error
    return State(
        **shared,
        root=root,
        tolerance=_checks.as_leaf("tolerance", tolerance, dtype),
        loss=losses.as_leaves(loss, num_classes, dtype, num_outputs),
        weights=weights,
        sums=None if expansion.average is None else jnp.zeros_like(weights),
        optimizer=Function.of(optimizer.update),
        optimizer_state=memory,
    )


def take_step(
    state: State, features: PerRow, score: Score, y: Target, weight: Scalar
) -> State:
    """One step of the optimiser, if the example has a weight."""
    present = weight > 0
    # Without the barrier, the search for a heavy row's step copies all rows of a block.
    features = jax.lax.optimization_barrier(features)
    gradient = losses.gradient(state.loss, score, y)

    def step(multiple: Scalar | Score) -> tuple[Any, optax.OptState]:
        slopes = features[:, None] * (multiple * gradient)[None]
        return state.optimizer(slopes, state.optimizer_state, state.weights)

    def gradient_after(multiple: Score) -> Score:
        moved = jnp.matmul(features, step(multiple)[0], precision="highest")
        return losses.gradient(state.loss, score + moved, y)

    multiple = importance.step_multiple(weight, y, gradient, gradient_after)
    changes, optimizer_state = step(multiple)
    weights, optimizer_state = jax.tree.map(
        lambda new, old: jnp.where(present, new, old).astype(old.dtype),
        (optax.apply_updates(state.weights, changes), optimizer_state),
        (state.weights, state.optimizer_state),
    )
    num_seen = state.num_seen.after(present.astype(jnp.int32))
    sums, expansion = state.sums, state.expansion
    average = expansion.average
    if sums is not None and average is not None:
        counts = present & num_seen.reaches(average.start)
        sums = average.fade_factor * sums + jnp.where(counts, weights, 0)
        average = average.fade()
        count = average.total + counts.astype(average.total.dtype)
        expansion = expansion._replace(average=average._replace(total=count))
    mistaken = losses.is_mistake(score, y) & present
    updated = has_gradient(gradient, weight)
    return state._replace(
        expansion=expansion,
        weights=weights,
        sums=sums,
        optimizer_state=optimizer_state,
        num_seen=num_seen,
        num_mistakes=state.num_mistakes.after(mistaken.astype(jnp.int32)),
        num_updates=state.num_updates.after(updated.astype(jnp.int32)),
    )


def has_gradient(gradient: Score, weight: Scalar) -> Flag:
    """Whether the gradient of a row is nonzero, and it counts."""
    return (weight > 0) & jnp.any(gradient != 0)


def expand(state: State) -> State:
    """The state with its expansion set from the weights: `W^T R k(x)`; O(B^2 C)."""
    terms = state.weights
    if state.sums is not None:
        terms = jnp.concatenate([terms, state.sums], axis=1)
    if state.root is not None:
        # A CPU multiplies rows eight times faster than columns. Without the barrier the
        # compiler removes both transpositions.
        rows = jax.lax.optimization_barrier(terms.T)
        terms = jnp.matmul(rows, state.root, precision="highest").T
    return state._replace(
        expansion=state.expansion._replace(coefficients_and_sums=terms)
    )


def with_weights(state: State, root: Basis, weights: Weights) -> State:
    """Replaces the weights and the expansion, and restarts the sums of an average."""
    sums = None if state.sums is None else jnp.zeros_like(state.sums)
    state = algorithm.with_weights(state, root, weights)
    return state._replace(weights=weights.T, sums=sums)
