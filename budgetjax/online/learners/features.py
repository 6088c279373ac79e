"""Linear learning on features of a kernel, shared by `Fourier` and `Nystrom`.

The model is `f(x) = W^T p(x)` with fixed or growing features `p`. An optimiser may
change all weights in every round, so no round can be skipped: one matrix product
computes the features of a block, and a loop goes over its examples.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

from budgetjax import _counters, _record, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import Function, leaf
from budgetjax._shapes import Flag, PerRow, Scalar, Score, Target
from budgetjax.online import importance
from budgetjax.online.learner import Learner
from budgetjax.online.state import State

_SGD = optax.sgd(0.2)


def default_update(
    updates: optax.Updates, state: optax.OptState, params: optax.Params | None = None
) -> tuple[optax.Updates, optax.OptState]:
    """The update of the default optimiser; named, so that states can be pickled."""
    return _SGD.update(updates, state, params)


def default_start(params: optax.Params) -> optax.OptState:
    """The start of the default optimiser."""
    return _SGD.init(params)


# Both learners share one default object, and so one compiled program.
OPTIMIZER = optax.GradientTransformation(default_start, default_update)


@_record.record
class FeatureMemory(NamedTuple):
    """What a linear learner on features of a kernel remembers.

    Its expansion is `f(x) = sum_j a_j k(x_j, x)`, for predictions, and agrees with the
    weights after every call.

    Attributes:
      root: `R`, shape `(rows, rows)`: the features are `R k(x)`; or None if they are
        `k(x)` itself.
      weights: `W`, shape `(rows, columns)`.
      sums: the sum of the weights of all rounds in the average, or None.
      optimizer_state: the state of the optimiser.
    """

    root: Float[Array, "rows rows"] | None
    weights: Float[Array, "rows columns"]
    sums: Float[Array, "rows columns"] | None
    optimizer_state: optax.OptState


def _check_optimizer(name: str, value: object) -> None:
    """Raises unless it is an optimiser."""
    if not isinstance(value, optax.GradientTransformation):
        raise ArgumentError(name, "be of optax, such as optax.sgd(0.1)", f"{value!r}")


class FeatureLearner(Learner, abstract=True):
    """The base of both learners."""

    chooses_vectors = False
    loss: Any = leaf(losses.check_loss, default=None)
    optimizer: Any = leaf(_check_optimizer, default=None)

    def bind(self, expansion, num_classes):
        dtype, optimizer = expansion.vectors.dtype, self.optimizer or OPTIMIZER
        loss = losses.as_leaves(self.loss, num_classes, dtype, expansion.num_columns)
        learner = self._replace(loss=loss, optimizer=None)
        bound = super(FeatureLearner, learner).bind(expansion, num_classes)
        # Functions are no leaves, and no text of a file.
        functions = map(Function.of, optimizer)
        return bound._replace(optimizer=optax.GradientTransformation(*functions))

    def default_maintenance(self, kernel):
        return None

    def with_weights(self, state, root, weights):
        """The weights and the expansion; the sums of an average start again."""
        state, memory = super().with_weights(state, root, weights), state.memory
        sums = None if memory.sums is None else jnp.zeros_like(memory.sums)
        memory = memory._replace(weights=weights.T, sums=sums)
        return state._replace(memory=memory)


def start_features(
    state: State, root: Float[Array, "rows rows"] | None = None
) -> State:
    """A model with zero weights."""
    expansion, optimizer = state.expansion, state.learner.optimizer
    shape = len(expansion.ages), expansion.num_columns
    weights = jnp.zeros(shape, state.dtype)
    # An optimiser may keep weakly typed numbers, but no leaf of a state may be one.
    memory = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), optimizer.init(weights)
    )
    try:
        jax.eval_shape(optimizer.update, weights, memory, weights)
    except Exception as error:
        wanted = "be one of gradients alone, such as optax.sgd(0.1)"
        raise ArgumentError("optimizer", wanted, error) from error
    sums = None if expansion.average is None else jnp.zeros_like(weights)
    return state._replace(memory=FeatureMemory(root, weights, sums, memory))


def take_step(
    state: State, features: PerRow, score: Score, y: Target, weight: Scalar
) -> State:
    """One step of the optimiser, if the example has a weight."""
    present, memory, learner = weight > 0, state.memory, state.learner
    # Without the barrier, the search for a heavy row's step copies all rows of a block.
    features = jax.lax.optimization_barrier(features)
    gradient = losses.gradient(learner.loss, score, y)

    def step(multiple: Scalar | Score) -> tuple[Any, optax.OptState]:
        slopes = features[:, None] * (multiple * gradient)[None]
        return learner.optimizer.update(slopes, memory.optimizer_state, memory.weights)

    def gradient_after(multiple: Score) -> Score:
        moved = jnp.matmul(features, step(multiple)[0], precision="highest")
        return losses.gradient(learner.loss, score + moved, y)

    multiple = importance.step_multiple(weight, y, gradient, gradient_after)
    changes, optimizer_state = step(multiple)
    weights, optimizer_state = jax.tree.map(
        lambda new, old: jnp.where(present, new, old).astype(old.dtype),
        (optax.apply_updates(memory.weights, changes), optimizer_state),
        (memory.weights, memory.optimizer_state),
    )
    mistaken = losses.is_mistake(score, y) & present
    updated = has_gradient(gradient, weight)
    state = state.after(
        *(one.astype(jnp.int32) for one in (present, mistaken, updated))
    )
    sums, expansion = memory.sums, state.expansion
    average = expansion.average
    if sums is not None and average is not None:
        counts = present & _counters.reaches(state.counts.seen, average.start)
        sums = average.fade_factor * sums + jnp.where(counts, weights, 0)
        average = average.fade()
        count = average.total + counts.astype(average.total.dtype)
        expansion = expansion._replace(average=average._replace(total=count))
    memory = FeatureMemory(memory.root, weights, sums, optimizer_state)
    return state._replace(expansion=expansion, memory=memory)


def has_gradient(gradient: Score, weight: Scalar) -> Flag:
    """Whether the gradient of a row is nonzero, and it counts."""
    return (weight > 0) & jnp.any(gradient != 0)


def expand(state: State) -> State:
    """The state with its expansion set from the weights: `W^T R k(x)`; O(B^2 C)."""
    memory = state.memory
    terms = memory.weights
    if memory.sums is not None:
        terms = jnp.concatenate([terms, memory.sums], axis=1)
    if memory.root is not None:
        # A CPU multiplies rows eight times faster than columns. Without the barrier the
        # compiler removes both transpositions.
        rows = jax.lax.optimization_barrier(terms.T)
        terms = jnp.matmul(rows, memory.root, precision="highest").T
    return state._replace(
        expansion=state.expansion._replace(coefficients_and_sums=terms)
    )
