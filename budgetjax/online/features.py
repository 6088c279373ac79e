"""Linear learning on features of a kernel: what `fourier` and `nystrom` are made of.

The model is `f(x) = W^T p(x)` with fixed, or growing, features `p`. An optimiser may
change all weights every round, so there is nothing to skip: a block's features are one
matrix product, and the loop goes over its examples.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import checks, losses, shown, support_set
from budgetjax.checks import Name
from budgetjax.counter import Counter
from budgetjax.kernels import Kernel
from budgetjax.shapes import Basis, Flag, PerRow, Scalar, Score, Target, Weights
from budgetjax.support_set import Expansion

_SGD = optax.sgd(0.2)


def default_update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
    """The update of the default optimiser, by a name, so that states can be pickled."""
    return _SGD.update(updates, state, params)


# The default of both learners: one object, so one program.
OPTIMIZER = optax.GradientTransformation(_SGD.init, default_update)


class State(NamedTuple):
    """The state of a linear learner on features of a kernel.

    Attributes:
      kernel: what the features are made of.
      expansion: the model as other learners have it, `f(x) = sum_j a_j k(x_j, x)`: what
        predicts. After every call it is what `weights` say.
      root: `R`, shape `(rows, rows)`: the features are `R k(x)`; or None if they are
        `k(x)` itself.
      tolerance: how far from the span of the landmarks, as a part of `k(x, x)`, an
        example must be to become one.
      loss: a function of scores and target, a `jax.tree_util.Partial`.
      weights: `W`, shape `(rows, columns)`.
      sums: the sum of the weights of all rounds in the average, or None.
      optimizer: the update of an optax optimiser, a `jax.tree_util.Partial`.
      optimizer_state: what it remembers.
      num_updates: rounds with a gradient.
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
    optimizer_state: Any
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter

    __repr__ = shown.short


def start(
    where: str,
    shared: dict[str, Any],
    num_classes: int | None,
    num_outputs: int,
    loss: Callable[..., Array] | None,
    optimizer: optax.GradientTransformation | None,
    root: Float[Array, "rows rows"] | None = None,
    tolerance: ArrayLike = 0.0,
) -> State:
    """A model of weights 0 from the fields of `algorithm.start`."""
    optimizer = OPTIMIZER if optimizer is None else optimizer
    if not isinstance(optimizer, optax.GradientTransformation):
        raise ValueError(
            f"{where}: optimizer must be of optax, such as optax.sgd(0.1), got "
            f"{optimizer!r}"
        )
    expansion = shared["expansion"]
    dtype, columns = expansion.vectors.dtype, expansion.num_columns
    weights = jnp.zeros((expansion.ages.shape[0], columns), dtype)
    # Numbers that an optimiser keeps may be weakly typed; no leaf of a state is.
    memory = jax.tree.map(
        lambda leaf: jnp.asarray(leaf, jnp.asarray(leaf).dtype), optimizer.init(weights)
    )
    try:
        jax.eval_shape(optimizer.update, weights, memory, weights)
    except Exception as error:
        raise ValueError(
            f"{where}: optimizer must be one of gradients alone, such as "
            f"optax.sgd(0.1), got {error}"
        ) from error
    return State(
        **shared,
        root=root,
        tolerance=checks.as_leaf(where, "tolerance", tolerance, dtype),
        loss=losses.as_leaves(where, loss, num_classes, dtype, num_outputs),
        weights=weights,
        sums=None if expansion.average is None else jnp.zeros_like(weights),
        optimizer=Partial(optimizer.update),
        optimizer_state=memory,
    )


def learn(
    state: State, features: PerRow, score: Score, y: Target, weight: Scalar
) -> State:
    """One step of the optimiser, if the example has a weight."""
    present = weight > 0
    gradient = weight * losses.gradient(state.loss, score, y)
    slopes = features[:, None] * gradient[None]
    changes, optimizer_state = state.optimizer(
        slopes, state.optimizer_state, state.weights
    )
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
        sums = average.fading * sums + jnp.where(counts, weights, 0)
        average = average.faded()
        count = average.total + counts.astype(average.total.dtype)
        expansion = expansion._replace(average=average._replace(total=count))
    mistaken = losses.mistaken(score, y) & present
    return state._replace(
        expansion=expansion,
        weights=weights,
        sums=sums,
        optimizer_state=optimizer_state,
        num_seen=num_seen,
        num_mistakes=state.num_mistakes.after(mistaken.astype(jnp.int32)),
        num_updates=state.num_updates.after(moved(gradient).astype(jnp.int32)),
    )


def moved(gradient: Score) -> Flag:
    """Whether the loss asks for a change."""
    return jnp.any(gradient != 0)


def expanded(state: State) -> State:
    """The state with its expansion as the weights say: `W^T R k(x)`; O(B^2 C)."""
    terms = state.weights
    if state.sums is not None:
        terms = jnp.concatenate([terms, state.sums], axis=1)
    if state.root is not None:
        # As rows, which a CPU multiplies eight times faster than columns; without the
        # barrier the compiler takes both transpositions away.
        rows = jax.lax.optimization_barrier(terms.T)
        terms = jnp.matmul(rows, state.root, precision="highest").T
    return state._replace(expansion=state.expansion._replace(terms=terms))


def with_weights(state: State, root: Basis, weights: Weights) -> State:
    """The weights, and the expansion as they say; sums of an average begin anew."""
    expansion = support_set.with_coefficients(
        state.expansion, jnp.matmul(root, weights.T, precision="highest")
    )
    sums = None if state.sums is None else jnp.zeros_like(state.sums)
    return state._replace(expansion=expansion, weights=weights.T, sums=sums)
