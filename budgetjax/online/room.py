"""Delayed maintenance, which makes room for several vectors at once.

The loop over violations stops when the support set is full. An outer loop makes room
and starts it again.
"""

import jax.numpy as jnp

from budgetjax import _sharding
from budgetjax._shapes import Flag
from budgetjax.online import support_set
from budgetjax.online.edits import no_edits, write
from budgetjax.online.lockstep import any_model
from budgetjax.online.loop import Block, Loop, with_example
from budgetjax.online.slots import NOWHERE, select
from budgetjax.online.state import State


def waits(state: State) -> bool:
    """Whether maintenance waits for a full budget, outside the loop."""
    strategy = state.maintenance
    return strategy is not None and strategy.makes_room_ahead


def is_full(loop: Loop) -> Flag:
    """Whether the pending candidate, if there is one, takes the last free slot."""
    entering = loop.edits.rows[-1].slot != NOWHERE
    expansion = loop.state.expansion
    return expansion.num_active + entering.astype(jnp.int32) >= expansion.budget


def make_room_if_full(block: Block, loop: Loop) -> Loop:
    """The loop with room for a candidate, if delayed maintenance has to make it."""
    if not waits(loop.state):
        return loop
    wanted = (loop.next < block.X.shape[0]) & is_full(loop)
    return _sharding.cond(
        any_model(block, wanted), lambda: _make_room(block, loop, wanted), lambda: loop
    )


def _make_room(block: Block, loop: Loop, wanted: Flag) -> Loop:
    """The loop with nothing pending, and with free slots where `wanted`.

    The kernel rows are recomputed, which costs as much as starting a block.
    """
    state = loop.state
    edits, _ = with_example(block, loop.state, loop.edits, loop.columns, loop.last)
    before = write(state.expansion, edits)
    after = state.maintenance.make_room(state.kernel, before)
    expansion = select(wanted, after, before)
    state = state.learner.refresh(state._replace(expansion=expansion))
    kernel_rows = support_set.kernel_rows(
        state.kernel, expansion, block.X, block.squares
    )
    unscaled = jnp.matmul(kernel_rows, expansion.coefficients, precision="highest")
    return loop._replace(
        state=state,
        kernel_rows=kernel_rows,
        unscaled=unscaled,
        edits=no_edits(loop.edits),
    )
