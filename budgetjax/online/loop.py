"""A block of rounds, and the loop from one violation in it to the next."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax._shapes import Examples, Index, PerExample, Scalar, Scores, Targets
from budgetjax.online import averages
from budgetjax.online.averages import Average
from budgetjax.online.edits import Edits, Row
from budgetjax.online.state import State


class Block(NamedTuple):
    """A block of examples, and everything known before its first round.

    Attributes:
      X, y, weights, axis: as for `Online.learn`.
      present: where an example has a weight.
      squares, selves, gram: `||x||^2`, `k(x, x)`, and `k(x_i, x_j)` of all pairs.
      rounds_ahead: rounds since the start of the block, before each example and after
        the last; `ticks = size + 1`.
      decay: the logarithm of the factor by which idle rounds shrink the model since the
        start of the block.
      in_average: which rounds are in an average of iterates, if there is one.
    """

    X: Examples
    y: Targets
    weights: PerExample
    present: Bool[Array, " size"]
    squares: PerExample
    selves: PerExample
    gram: Float[Array, "size size"]
    rounds_ahead: Integer[Array, " ticks"]
    decay: Float[Array, " ticks"]
    in_average: Bool[Array, " size"]
    axis: str | None

    def arrays(self) -> "Block":
        """The block without the name of the axis, which is not an array."""
        return self._replace(axis=None)


class Loop(NamedTuple):
    """The carry of the loop over violations.

    Attributes:
      state: the state without the pending edits. Its scale is the one after round
        `last`; later decay is in `Block`.
      kernel_rows: `k(x_j, x_i)` for every example and row of the support set, without
        the pending edits.
      unscaled: unscaled scores of the model with the pending edits; those of past
        examples are stale.
      scores: scores, each from the model that saw the example.
      next: the next example that violates, or the size of the block.
      last: the example whose edits are pending; -1 before the first violation.
      edits: the pending edits, without the values of example `last`, which are looked
        up.
      columns: kernel columns of the pending rows except the last.
    """

    state: Any
    kernel_rows: Float[Array, "size rows"]
    unscaled: Scores
    scores: Scores
    next: Index
    last: Index
    edits: Edits
    columns: tuple[PerExample, ...]


def sums_before(values: Shaped[Array, " n"]) -> Shaped[Array, " ticks"]:
    """The sums of the values before each one, and of all.

    O(n^2) for a block of n, but one kernel to compile, not ten.
    """
    n = values.shape[0]
    index, tick = (jnp.arange(size, dtype=jnp.int32) for size in (n, n + 1))
    before = tick[:, None] > index[None]
    return jnp.sum(jnp.where(before, values[None], 0), axis=1, dtype=values.dtype)


def decayed_scale(scale: Scalar, decay: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The scale after a decay by `exp(decay)`.

    It is never so small that an update that is divided by it overflows.
    """
    limits = jnp.finfo(scale.dtype)
    least = max(float(limits.tiny), min(2.0**-40, limits.tiny / limits.eps**2))
    return jnp.maximum(scale * jnp.exp(decay), least)


def scale_before(block: Block, state: State, last: Index, i: Index | int) -> Scalar:
    """The scale before round `i`, if the model has not changed since round `last`."""
    decay = block.decay[i] - block.decay[last + 1]
    return decayed_scale(state.expansion.scale, decay)


def average_before(
    block: Block, state: State, last: Index, i: Index | int
) -> Average | None:
    """The average of iterates before round `i`, if there is one."""
    average = state.expansion.average
    if average is None:
        return None
    index = jnp.arange(block.in_average.shape[0], dtype=jnp.int32)
    idle = block.in_average & (index > last) & (index < i)
    decay = block.decay[1:] - block.decay[last + 1]
    scales = decayed_scale(state.expansion.scale, jnp.where(idle, decay, 0))
    return averages.after_idle(average, idle, scales)


def without_example(edits: Edits) -> Edits:
    """The edits without the values that `with_example` looks up."""
    example = edits.rows[-1]._replace(vector=None, square=None, age=None)
    return edits._replace(rows=(*edits.rows[:-1], example))


def with_example(
    block: Block,
    state: State,
    edits: Edits,
    columns: tuple[PerExample, ...],
    i: Index,
) -> tuple[Edits, tuple[PerExample, ...]]:
    """Adds the values and the kernel column of example `i` itself."""
    slot, term = edits.rows[-1].slot, edits.rows[-1].term
    age = state.after(block.rounds_ahead[i]).age
    example = Row(slot, block.X[i], block.squares[i], term, age)
    rows = (*edits.rows[:-1], example)
    return edits._replace(rows=rows), (*columns, block.gram[i])
