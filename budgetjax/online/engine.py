"""Runs conservative learners on a block of examples, from violation to violation.

Most rounds of such a learner change only the clock, so a loop over violations is
shorter than a loop over examples, and two matrix products score all other rounds::

    before the loop    kernel_rows = k(block, support set)      T x B, one product
                       gram        = k(block, block)            T x T, one product
                       scores      = scale * kernel_rows u      T
                       the first example that violates, i

    scores   o o o o X . . . X . . X      o  final: scored by the model that saw it
             0 1 2 3 i                    X  violates    .  after i, still provisional

    each turn          write the edits of the violation before    (pending until now)
                       update(i): new state, and edits            (one slot, or a few)
                       push the edits into the scores after i     (columns of gram, and
                       find the next i                             of kernel_rows)

    after the loop     write the last edits; decay to the end of the block

The decay of idle rounds is one number per round, known before the loop. It multiplies
scores when they are read, and never the coefficients.

Edits stay pending for one turn for the sake of the compiler. An update reads the
support set (kernel rows, norms of coefficients) and then writes a row of it. If one
turn of a loop reads an array and then writes it, XLA cannot order the two and copies
the whole array: B x d numbers per violation. If the turn begins with the write, before
any read, everything happens in place; `tests/test_compilation.py` checks that the
compiled loops copy no such array. For the same reason a conditional write is neither a
branch nor a select over the array: if the condition is false, the row goes to a spare
slot.

On a CPU all but the products is one kernel (`_platform.join_kernels`), so that a block
takes some 30 calls instead of 60.

A step is a block of length one. Its loop has at most one turn, and is a branch instead.

`plain_step` says what a round means. Three things are elsewhere, each a line of the
loop here: averages of iterates (`averages`), maintenance that waits for a full budget
(`room`), and many models in lockstep (`lockstep`).
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from budgetjax import _counters, _platform, _sharding, kernels, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._shapes import Examples, Flag, Index, PerExample, Scores, Targets
from budgetjax.online import averages, support_set
from budgetjax.online.edits import (
    Edits,
    check_edits,
    fade,
    no_edits,
    scale_after,
    with_sums,
    write,
)
from budgetjax.online.lockstep import (
    any_model,
    select_loop,
    with_arrays,
    without_arrays,
)
from budgetjax.online.loop import (
    Block,
    Loop,
    average_before,
    decayed_scale,
    scale_before,
    sums_before,
    with_example,
    without_example,
)
from budgetjax.online.room import is_full, make_room_if_full, waits
from budgetjax.online.slots import NOWHERE, least, put_rows
from budgetjax.online.state import State
from budgetjax.online.support_set import Candidate


def plain_step(state: State, x: Array, y: Array) -> State:
    """What a round means, of a state with values; a block gives the same, sooner.

    It is the round of an example of weight 1, without an average of iterates and
    without delayed maintenance.
    """
    learner, expansion = state.learner, state.expansion
    before, after = learner.decay(state, jnp.arange(2, dtype=jnp.int32))
    x = x - expansion.origin
    kernel_row = state.kernel.gram(x[None], expansion.vectors)[0]
    scale = decayed_scale(expansion.scale, before)
    score = scale * jnp.matmul(kernel_row, expansion.coefficients, precision="highest")
    if learner.violates(state, score, y):
        expansion = expansion._replace(scale=decayed_scale(scale, after - before))
        candidate = Candidate(
            *(
                x,
                jnp.sum(x * x),
                jnp.zeros_like(score),
                state.age,
                jnp.ones_like(scale),
            ),
            *(kernel_row, state.kernel.diag(x[None])[0]),
        )
        given = state._replace(expansion=expansion)
        state, edits = learner.update(given, score, y, candidate)
        expansion = write(expansion, edits)
        scale = scale_after(expansion.scale, edits)
        state = state.after(updates=1)
    else:
        scale = decayed_scale(scale, after - before)
    state = state._replace(expansion=expansion._replace(scale=scale))
    return state.after(1, losses.is_mistake(score, y).astype(jnp.int32))


def block(
    state: State,
    X: Examples,
    y: Targets,
    weights: PerExample,
    axis: str | None = None,
) -> tuple[State, Scores]:
    """`Online.learn` of a conservative learner, one round per example.

    Cost: O(B d + T d) per example for blocks of T, and O(T + B) per violation, plus its
    maintenance.
    """
    run = _run_block if X.shape[0] == 1 else _run_derivable_block
    return run(axis, state, X, y, weights)


def _run_block(
    axis: str | None,
    state: State,
    X: Examples,
    y: Targets,
    weights: PerExample,
) -> tuple[State, Scores]:
    """The result of `block`."""
    squares = kernels.squared_norms(X)
    gram = state.kernel.gram(X, X, squares, squares)
    kernel_rows = support_set.kernel_rows(state.kernel, state.expansion, X, squares)

    def learn(given):
        state, kernel_rows, weights, _ = given
        state, block = _prepare_block(state, X, y, weights, squares, gram, axis)
        loop = _start_loop(block, state, kernel_rows)
        if X.shape[0] == 1:
            loop = _run_single(block, make_room_if_full(block, loop))
        elif waits(state):
            loop = jax.lax.while_loop(
                lambda loop: any_model(block, loop.next < X.shape[0]),
                lambda loop: make_room_if_full(block, _run_violations(block, loop)),
                loop,
            )
        else:
            loop = _run_violations(block, loop)
        state = _finish_block(block, state, loop)
        # Arrays that do not change would be prepared outside the kernel.
        blank = jnp.zeros_like(weights)
        return _sharding.vary((state, loop.kernel_rows, blank, loop.scores), X, y)[0]

    scores = jnp.zeros((X.shape[0], state.expansion.num_columns), X.dtype)
    given, *_ = _sharding.vary((state, kernel_rows, weights, scores), X, y)
    # Not with the products of delayed maintenance, which are calls on a CPU.
    joined = X.shape[0] > 1 and axis is None and not waits(state)
    state, *_, scores = _platform.join_kernels(learn, given) if joined else learn(given)
    return state, scores


_run_derivable_block = jax.custom_jvp(_run_block, nondiff_argnums=(0,))


@_run_derivable_block.defjvp
def _derive_block(axis: str | None, primals: Any, tangents: Any) -> Any:
    """The derivative of a block is that of its steps.

    Reverse mode cannot go through a loop whose number of turns depends on the data. A
    step has none.
    """

    def learn(state: Any, X: Examples, y: Targets, weights: PerExample) -> Any:
        def body(state, example):
            one = jax.tree.map(lambda value: value[None], example)
            state, scores = _run_block(axis, state, *one)
            return state, scores[0]

        return jax.lax.scan(body, state, (X, y, weights))

    return jax.jvp(learn, primals, tangents)


def _prepare_block(
    state: State,
    X: Examples,
    y: Targets,
    weights: PerExample,
    squares: PerExample,
    gram: Float[Array, "size size"],
    axis: str | None,
) -> tuple[State, Block]:
    """The state before the first round, and the constants of the block."""
    present = weights > 0
    rounds_ahead = sums_before(present.astype(jnp.int32))
    decay = state.learner.decay(state, rounds_ahead)
    if decay.shape != rounds_ahead.shape:
        with names_errors(type(state.learner).__name__):
            wanted = f"return one number per round, shape {rounds_ahead.shape}"
            raise ArgumentError("decay", wanted, f"shape {decay.shape}")
    # The decay before the first round is 0, up to a correction of the scale's rounding,
    # which waits for a round: examples of weight 0 change nothing.
    expansion = fade(state.expansion)
    scale = decayed_scale(expansion.scale, jnp.where(rounds_ahead[-1] > 0, decay[0], 0))
    state = state._replace(expansion=expansion._replace(scale=scale))
    seen = _counters.after(state.counts.seen, rounds_ahead[1:])
    return state, Block(
        X=X,
        y=y,
        weights=weights,
        present=present,
        squares=squares,
        selves=state.kernel.diag(X, squares),
        gram=gram,
        rounds_ahead=rounds_ahead,
        decay=decay,
        in_average=present & averages.covers(expansion.average, seen),
        axis=axis,
    )


def _start_loop(
    block: Block, state: State, kernel_rows: Float[Array, "size rows"]
) -> Loop:
    """The loop before its first turn, with nothing pending."""
    coefficients = state.expansion.coefficients
    unscaled = jnp.matmul(kernel_rows, coefficients, precision="highest")
    zero = jnp.zeros((), jnp.int32)
    blank = jnp.zeros_like(unscaled)
    scores, first = _next_violation(block, state, unscaled, blank, zero)
    none = zero - 1
    arrays = state, kernel_rows, scores, first, none
    _, like, _ = jax.eval_shape(_update, block.arrays(), *arrays)
    edits = without_example(no_edits(like))
    # Zeros, but not those that other arrays share, which would be copied.
    columns = tuple(jnp.minimum(block.weights, 0) for _ in edits.rows[:-1])
    (loop,) = _sharding.vary(
        Loop(state, kernel_rows, unscaled, scores, first, none, edits, columns)
    )
    return loop


def _run_violations(block: Block, loop: Loop) -> Loop:
    """The loop after the last violation, or the one that fills a delayed budget."""
    return _platform.while_loop(
        lambda loop: any_model(block, _is_ready(block, loop)),
        lambda loop: _next_turn(block, loop),
        loop,
    )


def _is_ready(block: Block, loop: Loop) -> Flag:
    """Whether a violation is left, and the model has room for it."""
    left = loop.next < block.X.shape[0]
    return left & ~is_full(loop) if waits(loop.state) else left


def _run_single(block: Block, loop: Loop) -> Loop:
    """The loop after a block of one example, which has at most one violation.

    A branch is used, which returns no array of the support set. A loop would carry the
    other arrays of the state, and the compiler would copy them.
    """

    def changed():
        given = loop.state, loop.kernel_rows, loop.scores, loop.next, loop.last
        state, edits, _ = _update(block.arrays(), *given)
        return *without_arrays(state), without_example(edits)

    violated = loop.next == 0
    state, scales, edits = _sharding.cond(
        violated, changed, lambda: (*without_arrays(loop.state), loop.edits)
    )
    state = with_arrays(state, loop.state, scales)
    last = jnp.where(violated, 0, loop.last)
    return loop._replace(state=state, edits=edits, last=last)


def _finish_block(block: Block, state: State, loop: Loop) -> State:
    """The state after the rounds that follow the last violation."""
    size = block.X.shape[0]
    edits, _ = with_example(block, loop.state, loop.edits, loop.columns, loop.last)
    new, expansion = loop.state, write(loop.state.expansion, edits)
    average = average_before(block, new, loop.last, size)
    mistaken = jax.vmap(losses.is_mistake)(loop.scores, block.y) & block.present
    return new._replace(
        expansion=expansion._replace(
            scale=scale_before(block, new, loop.last, size),
            average=averages.after_block(average, block.in_average),
        ),
    ).after(block.rounds_ahead[-1], jnp.sum(mistaken, dtype=jnp.int32))


def _next_turn(block: Block, loop: Loop) -> Loop:
    """The loop after the next violation, in lockstep with the other models."""
    new = _change_model(block, loop)
    if block.axis is not None:
        new = select_loop(_is_ready(block, loop), new, loop)
    return _sharding.vary(new)[0]


def _change_model(block: Block, loop: Loop) -> Loop:
    """Writes the pending edits, makes the next change, and finds the next violation."""
    edits, columns = with_example(
        block, loop.state, loop.edits, loop.columns, loop.last
    )
    slots = [row.slot for row in edits.rows]
    kernel_rows = put_rows(loop.kernel_rows, slots, columns, axis=1)
    expansion = write(loop.state.expansion, edits)
    state = loop.state._replace(expansion=expansion)

    i = loop.next
    state, edits, columns = _update(
        block.arrays(), state, kernel_rows, loop.scores, i, loop.last
    )
    whole_edits, all_columns = with_example(block, state, edits, columns, i)
    unscaled = _apply_to_scores(
        state, kernel_rows, loop.unscaled, whole_edits, all_columns
    )
    scores, following = _next_violation(block, state, unscaled, loop.scores, i + 1)
    edits = without_example(edits)
    return Loop(state, kernel_rows, unscaled, scores, following, i, edits, columns)


def _next_violation(
    block: Block, state: State, unscaled: Scores, scores: Scores, start: Index
) -> tuple[Scores, Index]:
    """The scores, recomputed from `start` on, and the first example that violates.

    The model last changed in the round before `start`. Every example is tested in its
    own round.
    """
    index = jnp.arange(unscaled.shape[0], dtype=jnp.int32)
    later = index >= start
    # Scores before `start` are stale, and are not decayed.
    decay = jnp.minimum(block.decay[:-1] - block.decay[start], 0)
    scales = decayed_scale(state.expansion.scale, decay)
    scores = jnp.where(later[:, None], scales[:, None] * unscaled, scores)

    def violates(ahead, score, label):
        flag = state.learner.violates(state.after(ahead), score, label)
        kind, shape = jnp.result_type(flag), jnp.shape(flag)
        if shape or not jnp.issubdtype(kind, jnp.bool_):
            with names_errors(type(state.learner).__name__):
                got = f"{kind} of shape {shape}"
                raise ArgumentError("violates", "return one bool", got)
        return flag

    violations = jax.vmap(violates)(block.rounds_ahead[:-1], scores, block.y)
    candidates = violations & later & (block.weights > 0)
    return scores, least(jnp.where(candidates, index, unscaled.shape[0]))


@functools.partial(jax.jit, inline=True)
def _update(
    block: Block,
    state: State,
    kernel_rows: Float[Array, "size rows"],
    scores: Scores,
    i: Index,
    last: Index,
) -> tuple[State, Edits, tuple[PerExample, ...]]:
    """The update of example `i`: the state except the support set, and the edits.

    The third result holds the kernel columns, against the block, of all edited rows
    except the last, which is the example.

    It is most of what JAX traces of a loop, and is traced once: `_start_loop` asks what
    its edits are like, and streams of other lengths have blocks of the same shape.
    """
    now, expansion = state.after(block.rounds_ahead[i]), state.expansion
    candidate = Candidate(
        vector=block.X[i],
        square=block.squares[i],
        coefficients=jnp.zeros_like(expansion.coefficients[0]),
        age=now.age,
        weight=block.weights[i],
        kernel_row=kernel_rows[i],
        kernel_self=block.selves[i],
    )
    average = average_before(block, state, last, i)
    scale = scale_before(block, state, last, i + 1)
    given = now._replace(expansion=expansion._replace(scale=scale, average=average))
    learner = state.learner
    returned = learner.update(given, scores[i], block.y[i], candidate)
    with names_errors(type(learner).__name__):
        new, edits = check_edits("update", State, returned, given, given.expansion)
        _check_unchanged(new, given)
    scale = scale_after(scale, edits)
    edits, average = with_sums(average, edits, scale, block.in_average[i])
    new = new._replace(
        expansion=expansion._replace(scale=scale, average=average),
        counts=state.after(updates=1).counts,
    )
    columns = tuple(
        state.kernel.gram(block.X, row.vector[None], block.squares, row.square[None])
        for row in edits.rows[:-1]
    )
    return new, edits, tuple(column[:, 0] for column in columns)


def _check_unchanged(after: State, before: State) -> None:
    """Raises unless `update` left alone what is not its own."""
    advice = {
        "expansion": "its changes of the support set as Edits",
        "learner": "what changes in state.memory, which its `start` makes",
        "counts": "the counters to those who call it",
    }
    for name, instead in advice.items():
        parts = (jax.tree.leaves(getattr(state, name)) for state in (after, before))
        if any(new is not old for new, old in zip(*parts, strict=True)):
            wanted = f"return {instead}, and state.{name} as it was"
            raise ArgumentError("update", wanted, f"another {name}")


def _apply_to_scores(
    state: State,
    kernel_rows: Float[Array, "size rows"],
    unscaled: Scores,
    edits: Edits,
    columns: tuple[PerExample, ...],
) -> Scores:
    """The unscaled scores of the model with the edits."""
    num_columns = unscaled.shape[1]
    coefficients = state.expansion.coefficients
    if edits.rescale_factor is not None:
        unscaled = unscaled * edits.rescale_factor
        coefficients = coefficients * edits.rescale_factor
    updates = edits.rank_one_updates
    each = _platform.products(kernel_rows, [update.weights for update in updates])
    for update, received in zip(updates, each, strict=True):
        unscaled = unscaled + received[:, None] * update.term[None, :num_columns]
    for row, column in zip(edits.rows, columns, strict=True):
        slot = jnp.maximum(row.slot, 0)
        old = jax.lax.dynamic_index_in_dim(kernel_rows, slot, 1, keepdims=False)
        removed = coefficients[slot]
        for update in edits.rank_one_updates:
            removed = removed + update.weights[slot] * update.term[:num_columns]
        change = column[:, None] * row.term[None, :num_columns]
        change -= old[:, None] * removed[None]
        unscaled = unscaled + jnp.where(row.slot != NOWHERE, change, 0)
    return unscaled
