"""Steps of Adam on minibatches, which move support vectors and learn a metric."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, Generic, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from budgetjax.refitting.training_data import Block

# `objective(parameters, fixed, first, X, targets, weights)`, the mean over a batch.
# `first` is the index of its first example in its block, a random number.
Objective = Callable[[Any, Any, Array, Array, Array, Array], Array]
# A tree of arrays.
Parameters = TypeVar("Parameters")
# The rate follows: as an argument, it may fall in any number of steps in one program.
ADAM = optax.scale_by_adam()


class Moving(NamedTuple, Generic[Parameters]):
    """Parameters, and what Adam remembers of the slopes so far."""

    parameters: Parameters
    memory: Any

    @classmethod
    def first(cls, parameters: Parameters) -> "Moving[Parameters]":
        """Parameters before the first step."""
        shapes = jax.eval_shape(ADAM.init, cast(Any, parameters))
        # Zeros of NumPy: those of JAX are one more program per shape.
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        return cls(parameters, zeros)


def run_adam(
    objective: Objective,
    start: Moving[Parameters],
    fixed: Any,
    blocks: Callable[[], Iterable[Block]],
    *,
    batch: int,
    rate: float,
    epochs: int,
    seed: int,
    report: Callable[[float], object],
    judge: Callable[[Parameters], float] | None = None,
) -> tuple[Moving[Parameters], int]:
    """The parameters after the last pass, or after the best one.

    Args:
      objective: a function; a new function object is compiled anew.
      start: a tree of arrays in units in which steps of `rate` are small.
      fixed: a tree of arrays for `objective`.
      blocks: reads the same blocks every time.
      batch: examples per step.
      rate: the first rate of Adam; it falls to 0 along a cosine.
      epochs: passes over the blocks.
      seed: the seed of the order of examples in a block.
      report: called with the mean objective of every pass.
      judge: the error of parameters, for keeping the best; None keeps the last.

    Returns:
      The parameters, and the number of passes to reach them.
    """
    counts = [block.weights.shape[0] for block in blocks()]
    steps = epochs * sum(-(-count // batch) for count in counts)
    schedule = (rate, steps, start.memory.count)
    random = np.random.default_rng(seed)
    now, best, least, passes = start, start, np.inf, 0
    for epoch in range(epochs):
        total = 0.0
        for block in blocks():
            # Other rows of the block fill its last batch.
            size = block.weights.shape[0]
            order = np.resize(random.permutation(size), -(-size // batch) * batch)
            order = order.reshape(-1, batch).astype(np.int32)
            now, value = _run_steps(objective, now, fixed, block, order, schedule)
            total += float(value) * size / sum(counts)
        report(total)
        error = -np.inf if judge is None else judge(now.parameters)
        if error <= least:
            best, least, passes = now, error, epoch + 1
    return best, passes


@functools.partial(jax.jit, static_argnums=0)
def _run_steps(
    objective: Objective,
    start: Moving[Parameters],
    fixed: Any,
    block: Block,
    order: Array,
    schedule: tuple[Any, Any, Any],
) -> tuple[Moving[Parameters], Float[Array, ""]]:
    """One step per row of `order`; and the mean objective.

    The schedule is the first rate, the number of steps in which it falls to 0, and the
    number of steps before it.
    """
    first, steps, before = schedule

    def update(slopes, memory, parameters):
        del parameters
        done = (memory.count - before) / steps
        rate = first * (1 + jnp.cos(jnp.pi * done)) / 2
        changes, memory = ADAM.update(slopes, memory)
        return jax.tree.map(lambda change: -rate * change, changes), memory

    def body(carry, rows):
        parameters, memory = carry
        batch = rows[0], *(array[rows] for array in block)
        value, slopes = jax.value_and_grad(objective)(parameters, fixed, *batch)
        return Moving(*apply_slopes(update, parameters, memory, slopes)), value

    now, values = jax.lax.scan(body, start, order)
    return now, values.mean()


def apply_slopes(
    update: Callable, parameters: Parameters, memory: optax.OptState, slopes: Parameters
) -> tuple[Parameters, optax.OptState]:
    """The parameters and the memory after one step of an optimiser, in their dtypes."""
    # Optimisers of optax mix dtypes.
    with jax.numpy_dtype_promotion("standard"):
        changes, new = update(slopes, memory, parameters)

    def cast(leaf: Array, old: Array) -> Array:
        return leaf.astype(old.dtype)

    changes = jax.tree.map(cast, changes, parameters)
    moved = jax.tree.map(lambda leaf, change: leaf + change, parameters, changes)
    return moved, jax.tree.map(cast, new, memory)
