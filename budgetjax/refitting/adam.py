"""Steps of Adam on minibatches, which move support vectors and learn a metric."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Integer

from budgetjax._sharding import Shards
from budgetjax.refitting.training_data import Block

# `objective(parameters, fixed, first, X, targets, weights)`, the mean over a batch.
# `first` is the index of its first example in its block, a random number.
Objective = Callable[[Any, Any, Array, Array, Array, Array], Array]
# A tree of arrays.
Parameters = TypeVar("Parameters")
# The rate follows: as an argument, it may fall in any number of steps in one program.
ADAM = optax.scale_by_adam()


class AdamState(NamedTuple):
    """Parameters, and what Adam remembers of the slopes so far."""

    parameters: Any
    memory: Any

    @classmethod
    def first(cls, parameters: Any) -> "AdamState":
        """Parameters before the first step."""
        shapes = jax.eval_shape(ADAM.init, parameters)
        # Zeros of NumPy: those of JAX are one more program per shape.
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        return cls(parameters, zeros)


def run_adam(
    objective: Objective,
    start: AdamState,
    fixed: Any,
    blocks: Callable[[], Iterable[Block]],
    *,
    batch: int,
    rate: float,
    epochs: int,
    seed: int,
    report: Callable[[float], object],
    judge: Callable[[Any], float] | None = None,
) -> tuple[AdamState, int]:
    """The parameters after the last pass, or after the best one.

    Args:
      objective: a function; a new function object is compiled anew.
      start: a tree of arrays in units in which steps of `rate` are small.
      fixed: a tree of arrays for `objective`.
      blocks: reads the same blocks every time.
      batch: examples per step, on all devices together.
      rate: the first rate of Adam; it falls to 0 along a cosine.
      epochs: passes over the blocks.
      seed: the seed of the order of examples in a block.
      report: called with the mean objective of every pass.
      judge: the error of parameters, for keeping the best; None keeps the last.

    Returns:
      The parameters, and the number of passes to reach them.
    """
    counts, shards = [], Shards()
    for block in blocks():
        shards = block.shards
        counts.append(block.weights.shape[0])
    devices = shards.local_number
    # The rows of a step on this process, of which each device has as many.
    batch = devices * max(1, batch // shards.number)
    steps = epochs * sum(-(-count // batch) for count in counts)
    schedule = (rate, steps, np.asarray(start.memory.count))
    now, fixed = shards.replicate((start, fixed))
    random = np.random.default_rng(seed)
    best, least, passes = now, np.inf, 0
    for epoch in range(epochs):
        total = 0.0
        for block in blocks():
            # Other rows of the block fill its last batch.
            size = block.weights.shape[0]
            own, share = size // devices, batch // devices
            length = -(-own // share) * share
            orders = [
                np.resize(random.permutation(own), length) for _ in range(devices)
            ]
            order = np.reshape(orders, (-1, share)).astype(np.int32)
            rows = shards.place((*block[:3], order))
            now, value = _run_steps(objective, now, fixed, rows, schedule, shards)
            total += float(value) * size / sum(counts)
        report(total)
        error = -np.inf if judge is None else judge(shards.one(now.parameters))
        if error <= least:
            best, least, passes = now, error, epoch + 1
    return shards.one(best), passes


@functools.partial(jax.jit, static_argnums=0)
def _run_steps(
    objective: Objective,
    start: AdamState,
    fixed: Any,
    rows: tuple[Array, Array, Array, Integer[Array, "steps batch"]],
    schedule: tuple[Any, Any, Any],
    shards: Shards,
) -> tuple[AdamState, Float[Array, ""]]:
    """One step per row of a device's order; and the mean objective.

    The rows are the arrays of a block and the order, both divided among the devices.
    The slopes of a step are the means of those of all devices. The schedule is the
    first rate, the number of steps in which it falls to 0, and the number of steps
    before it.
    """

    def take_steps(rows: Any, rest: Any) -> tuple[AdamState, Array]:
        (*block, order), (start, fixed, schedule) = rows, rest
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
            value, slopes = shards.mean(
                jax.value_and_grad(objective)(parameters, fixed, *batch)
            )
            return AdamState(*apply_slopes(update, parameters, memory, slopes)), value

        now, values = jax.lax.scan(body, start, order)
        return now, values.mean()

    return shards.map_equal(take_steps, rows, (start, fixed, schedule))


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
