"""Many models under `jax.vmap`, which share one loop over their violations.

It runs while any of them has a violation left; a model that has none writes to its
spare slot meanwhile. With one loop condition per model, `vmap` would copy every model's
arrays in every turn.
"""

import jax

from budgetjax._shapes import Flag, Scalar
from budgetjax.online.averages import Average
from budgetjax.online.edits import no_edits
from budgetjax.online.loop import Block, Loop
from budgetjax.online.slots import select
from budgetjax.online.state import State


def any_model(block: Block, condition: Flag) -> Flag:
    """Whether it holds for any model of the `vmap`."""
    return condition if block.axis is None else jax.lax.pmax(condition, block.axis)


def select_loop(ready: Flag, new: Loop, old: Loop) -> Loop:
    """The loop after a violation, or, if there was none, with nothing pending.

    The large arrays are those of `new` in both cases: they hold the edits of the last
    violation.
    """
    state, scales = without_arrays(old.state)
    nothing = no_edits(new.edits)
    rows = tuple(
        row._replace(slot=blank.slot)
        for row, blank in zip(new.edits.rows, nothing.rows, strict=True)
    )
    old = old._replace(
        state=with_arrays(state, new.state, scales),
        kernel_rows=new.kernel_rows,
        edits=nothing._replace(rows=rows),
    )
    return select(ready, new, old)


def without_arrays(state: State) -> tuple[State, tuple[Scalar, Average | None]]:
    """The state without its support set, and the scale and the average of that."""
    expansion = state.expansion
    return state._replace(expansion=None), (expansion.scale, expansion.average)


def with_arrays(
    state: State, like: State, scales: tuple[Scalar, Average | None]
) -> State:
    """The state with the support set of another, and this scale and average."""
    expansion = like.expansion._replace(scale=scales[0], average=scales[1])
    return state._replace(expansion=expansion)
