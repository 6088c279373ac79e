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

Many models under `jax.vmap` share one loop, which runs while any of them has a
violation left; a model that has none writes to its spare slot meanwhile. With one loop
condition per model, `vmap` would copy every model's arrays in every turn.

On a CPU all but the products is one kernel (`_platform.join_kernels`), so that a block
takes some 30 calls instead of 60.

A step is a block of length one. Its loop has at most one turn, and is a branch instead.

With delayed maintenance, the loop over violations stops when the support set is full.
An outer loop makes room for several vectors and starts it again.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import _counters, _platform, _sharding, kernels, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._shapes import Examples, Flag, Index, PerExample, Scalar, Scores, Targets
from budgetjax.online import averages, support_set
from budgetjax.online.averages import Average
from budgetjax.online.edits import (
    Edits,
    Row,
    check_edits,
    no_edits,
    scale_after,
    write,
)
from budgetjax.online.slots import NOWHERE, least, put_rows, select
from budgetjax.online.state import SEEN, State
from budgetjax.online.support_set import Candidate


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
            loop = _run_single(block, _make_room_if_full(block, loop))
        elif _makes_room_ahead(state):
            loop = jax.lax.while_loop(
                lambda loop: _any_model(block, loop.next < X.shape[0]),
                lambda loop: _make_room_if_full(block, _run_violations(block, loop)),
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
    joined = X.shape[0] > 1 and axis is None and not _makes_room_ahead(state)
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
    expansion = averages.fade(state.expansion)
    scale = decayed_scale(expansion.scale, jnp.where(rounds_ahead[-1] > 0, decay[0], 0))
    state = state._replace(expansion=expansion._replace(scale=scale))
    in_average = present
    if expansion.average is not None:
        seen = jax.vmap(lambda ahead: state.after(ahead).counts[SEEN])(rounds_ahead[1:])
        in_average = present & _counters.reaches(seen, expansion.average.start)
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
        in_average=in_average,
        axis=axis,
    )


def _makes_room_ahead(state: State) -> bool:
    """Whether maintenance waits for a full budget, outside the loop."""
    strategy = state.maintenance
    return strategy is not None and strategy.makes_room_ahead


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
    like = jax.eval_shape(lambda *arrays: _update(block, *arrays)[1], *arrays)
    edits = _without_example(no_edits(like))
    # Zeros, but not those that other arrays share, which would be copied.
    columns = tuple(jnp.minimum(block.weights, 0) for _ in edits.rows[:-1])
    (loop,) = _sharding.vary(
        Loop(state, kernel_rows, unscaled, scores, first, none, edits, columns)
    )
    return loop


def _run_violations(block: Block, loop: Loop) -> Loop:
    """The loop after the last violation, or the one that fills a delayed budget."""
    return _platform.while_loop(
        lambda loop: _any_model(block, _is_ready(block, loop)),
        lambda loop: _next_turn(block, loop),
        loop,
    )


def _is_ready(block: Block, loop: Loop) -> Flag:
    """Whether a violation is left, and the model has room for it."""
    left = loop.next < block.X.shape[0]
    return left & ~_is_full(loop) if _makes_room_ahead(loop.state) else left


def _any_model(block: Block, condition: Flag) -> Flag:
    """Whether it holds for any model of the `vmap`."""
    return condition if block.axis is None else jax.lax.pmax(condition, block.axis)


def _is_full(loop: Loop) -> Flag:
    """Whether the pending candidate, if there is one, takes the last free slot."""
    entering = loop.edits.rows[-1].slot != NOWHERE
    expansion = loop.state.expansion
    return expansion.num_active + entering.astype(jnp.int32) >= expansion.budget


def _make_room_if_full(block: Block, loop: Loop) -> Loop:
    """The loop with room for a candidate, if delayed maintenance has to make it."""
    if not _makes_room_ahead(loop.state):
        return loop
    wanted = (loop.next < block.X.shape[0]) & _is_full(loop)
    return _sharding.cond(
        _any_model(block, wanted), lambda: _make_room(block, loop, wanted), lambda: loop
    )


def _make_room(block: Block, loop: Loop, wanted: Flag) -> Loop:
    """The loop with nothing pending, and with free slots where `wanted`.

    The kernel rows are recomputed, which costs as much as starting a block.
    """
    state = loop.state
    edits, _ = _with_example(block, loop.state, loop.edits, loop.columns, loop.last)
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


def _run_single(block: Block, loop: Loop) -> Loop:
    """The loop after a block of one example, which has at most one violation.

    A branch is used, which returns no array of the support set. A loop would carry the
    other arrays of the state, and the compiler would copy them.
    """

    def changed():
        state, edits, _ = _update(
            block, loop.state, loop.kernel_rows, loop.scores, loop.next, loop.last
        )
        return *_without_arrays(state), _without_example(edits)

    violated = loop.next == 0
    state, scales, edits = _sharding.cond(
        violated, changed, lambda: (*_without_arrays(loop.state), loop.edits)
    )
    state = _with_arrays(state, loop.state, scales)
    last = jnp.where(violated, 0, loop.last)
    return loop._replace(state=state, edits=edits, last=last)


def _finish_block(block: Block, state: State, loop: Loop) -> State:
    """The state after the rounds that follow the last violation."""
    size = block.X.shape[0]
    edits, _ = _with_example(block, loop.state, loop.edits, loop.columns, loop.last)
    new, expansion = loop.state, write(loop.state.expansion, edits)
    average = expansion.average
    if average is not None:
        count = jnp.sum(block.in_average, dtype=average.total.dtype)
        scale_sum = _scale_sum_before(block, new, loop.last, size)
        average = average._replace(scale_sum=scale_sum, total=average.total + count)
    mistaken = jax.vmap(losses.is_mistake)(loop.scores, block.y) & block.present
    return new._replace(
        expansion=expansion._replace(
            scale=_scale_before(block, new, loop.last, size), average=average
        ),
    ).after(block.rounds_ahead[-1], jnp.sum(mistaken, dtype=jnp.int32))


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


def _scale_before(block: Block, state: State, last: Index, i: Index | int) -> Scalar:
    """The scale before round `i`, if the model has not changed since round `last`."""
    decay = block.decay[i] - block.decay[last + 1]
    return decayed_scale(state.expansion.scale, decay)


def _scale_sum_before(
    block: Block, state: State, last: Index, i: Index | int
) -> Scalar:
    """The sum of the scales before round `i`, for the average of iterates."""
    average = state.expansion.average
    assert average is not None, "called where iterates are averaged"
    index = jnp.arange(block.in_average.shape[0], dtype=jnp.int32)
    idle = block.in_average & (index > last) & (index < i)
    decay = block.decay[1:] - block.decay[last + 1]
    scales = decayed_scale(state.expansion.scale, jnp.where(idle, decay, 0))
    return average.scale_sum + jnp.sum(jnp.where(idle, scales, 0))


def _next_turn(block: Block, loop: Loop) -> Loop:
    """The loop after the next violation, in lockstep with the other models."""
    new = _change_model(block, loop)
    if block.axis is not None:
        new = _select_loop(_is_ready(block, loop), new, loop)
    return _sharding.vary(new)[0]


def _change_model(block: Block, loop: Loop) -> Loop:
    """Writes the pending edits, makes the next change, and finds the next violation."""
    edits, columns = _with_example(
        block, loop.state, loop.edits, loop.columns, loop.last
    )
    slots = [row.slot for row in edits.rows]
    kernel_rows = put_rows(loop.kernel_rows, slots, columns, axis=1)
    expansion = write(loop.state.expansion, edits)
    state = loop.state._replace(expansion=expansion)

    i = loop.next
    state, edits, columns = _update(
        block, state, kernel_rows, loop.scores, i, loop.last
    )
    whole_edits, all_columns = _with_example(block, state, edits, columns, i)
    unscaled = _apply_to_scores(
        state, kernel_rows, loop.unscaled, whole_edits, all_columns
    )
    scores, following = _next_violation(block, state, unscaled, loop.scores, i + 1)
    edits = _without_example(edits)
    return Loop(state, kernel_rows, unscaled, scores, following, i, edits, columns)


def _select_loop(ready: Flag, new: Loop, old: Loop) -> Loop:
    """The loop after a violation, or, if there was none, with nothing pending.

    The large arrays are those of `new` in both cases: they hold the edits of the last
    violation.
    """
    state, scales = _without_arrays(old.state)
    nothing = no_edits(new.edits)
    rows = tuple(
        row._replace(slot=blank.slot)
        for row, blank in zip(new.edits.rows, nothing.rows, strict=True)
    )
    old = old._replace(
        state=_with_arrays(state, new.state, scales),
        kernel_rows=new.kernel_rows,
        edits=nothing._replace(rows=rows),
    )
    return select(ready, new, old)


def _without_arrays(state: State) -> tuple[State, tuple[Scalar, Average | None]]:
    """The state without its support set, and the scale and the average of that."""
    expansion = state.expansion
    return state._replace(expansion=None), (expansion.scale, expansion.average)


def _with_arrays(
    state: State, like: State, scales: tuple[Scalar, Average | None]
) -> State:
    """The state with the support set of another, and this scale and average."""
    expansion = like.expansion._replace(scale=scales[0], average=scales[1])
    return state._replace(expansion=expansion)


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
    average = expansion.average
    if average is not None:
        scale_sum = _scale_sum_before(block, state, last, i)
        average = average._replace(scale_sum=scale_sum)
    scale = _scale_before(block, state, last, i + 1)
    given = now._replace(expansion=expansion._replace(scale=scale, average=average))
    learner = state.learner
    returned = learner.update(given, scores[i], block.y[i], candidate)
    with names_errors(type(learner).__name__):
        new, edits = check_edits("update", State, returned, given, given.expansion)
        _check_unchanged(new, given)
    scale = scale_after(scale, edits)
    if average is not None:
        # They bring the sums of the average up to date, too.
        edits = edits._replace(scale_sum=average.scale_sum)
        average = average._replace(scale_sum=jnp.where(block.in_average[i], scale, 0))
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


def _without_example(edits: Edits) -> Edits:
    """The edits without the values that `_with_example` looks up."""
    example = edits.rows[-1]._replace(vector=None, square=None, age=None)
    return edits._replace(rows=(*edits.rows[:-1], example))


def _with_example(
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
    for update in edits.rank_one_updates:
        received = jnp.matmul(kernel_rows, update.weights, precision="highest")
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
