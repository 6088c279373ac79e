"""Runs conservative learners on a block of examples, from violation to violation.

Most rounds of such a learner change only the clock, so a loop over violations is
shorter than a loop over examples, and two matrix products score all other rounds::

    before the loop    kernel_rows = k(block, support set)      T x B, one product
                       gram        = k(block, block)            T x T, one product
                       scores      = scale * kernel_rows u      T
                       the first example that violates, i

    scores   o o o o X . . . X . . X      o  settled: scored by the model that saw it
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
violation left; a model that has none writes to its spare slot meanwhile.

A step is a block of length one. Its loop has at most one turn, and is a branch instead.

With delayed maintenance, the loop over violations stops when the support set is full.
An outer loop makes room for several vectors and starts it again.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import _sharding, kernels, losses
from budgetjax._shapes import Examples, Flag, Index, PerExample, Scalar, Scores, Targets
from budgetjax.online import support_set
from budgetjax.online.support_set import NOWHERE, Edits, Expansion, Newcomer, Row


class Block(NamedTuple):
    """A block of examples, and everything known before its first round.

    Attributes:
      X: the examples, shape `(size, num_features)`.
      y: their labels, shape `(size,)`, or targets, `(size, num_outputs)`.
      weights: 0 where an example is to be skipped, shape `(size,)`.
      squares: `||x||^2`, shape `(size,)`.
      selves: `k(x, x)`, shape `(size,)`.
      gram: `k(x_i, x_j)`, shape `(size, size)`.
      clocks: rounds seen before each example and after the last, as the lower word of
        `num_seen`; shape `(ticks,)`, `ticks = size + 1`.
      decay: the logarithm of the factor by which idle rounds shrink the model since the
        start of the block, shape `(ticks,)`.
      averaged: which rounds are in an average of iterates, shape `(size,)`, or None.
    """

    X: Examples
    y: Targets
    weights: PerExample
    squares: PerExample
    selves: PerExample
    gram: Float[Array, "size size"]
    clocks: Integer[Array, " ticks"]
    decay: Float[Array, " ticks"]
    averaged: Bool[Array, " size"] | None


class Loop(NamedTuple):
    """The carry of the loop over violations.

    Attributes:
      state: the state without the pending edits. Its scale is the one after round
        `last`; later decay is in `Block`.
      kernel_rows: `k(x_j, x_i)` for every example and row of the support set, shape
        `(size, rows)`, without the pending edits.
      raw: unscaled scores of the model with the pending edits, shape `(size, columns)`;
        those of past examples are stale.
      scores: scores, each from the model that saw the example, shape `(size, columns)`.
      next: the next example that violates, or the size of the block.
      last: the example whose edits are pending; -1 before the first violation.
      edits: the pending edits, without the values of example `last`, which are looked
        up.
      columns: kernel columns of the pending rows except the last.
    """

    state: Any
    kernel_rows: Float[Array, "size rows"]
    raw: Scores
    scores: Scores
    next: Index
    last: Index
    edits: Edits
    columns: tuple[PerExample, ...]


def block(
    algorithm: Any,
    state: Any,
    X: Examples,
    y: Targets,
    weights: PerExample,
    axis: str | None = None,
) -> tuple[Any, Scores]:
    """Feeds the examples of a block to a conservative learner in order, one round each.

    Two matrix products score the whole block. The scores are right up to the first
    example that must change the model. One iteration of the loop makes this update,
    adds its effect to the later scores by means of rows of the kernel matrices, and
    finds the next violation.

    Cost: O(B d + T d) per example for blocks of T, and O(T + B) per violation, plus its
    maintenance.

    Args:
      algorithm: the algorithm.
      state: a state of that algorithm.
      X: examples, shape `(size, num_features)`.
      y: labels, shape `(size,)`.
      weights: factors of the updates, 0 where an example is to be skipped, shape
        `(size,)`.
      axis: the name of a `jax.vmap` over models, or None. The models go through one
        loop in lockstep until none has a violation left; a finished model writes
        nothing. With one loop condition per model, `vmap` would copy every model's
        arrays in every iteration.

    Returns:
      The state after the block, and the score of each example by the model before it.
    """
    squares = kernels.squared_norms(X)
    present = weights > 0
    seen = running_sums(present.astype(jnp.int32))
    ahead = jnp.concatenate([jnp.zeros((1,), jnp.int32), seen])
    clocks = state.num_seen.low + ahead
    decay = algorithm.decay(state, ahead)
    # The decay before the first round is 0, up to a correction of the scale's rounding.
    expansion = support_set.faded(state.expansion)
    scale = decayed_scale(expansion.scale, decay[0])
    state = state._replace(expansion=expansion._replace(scale=scale))
    block = Block(
        X=X,
        y=y,
        weights=weights,
        squares=squares,
        selves=state.kernel.diag(X, squares),
        gram=state.kernel.gram(X, X, squares, squares),
        clocks=clocks,
        decay=decay,
        averaged=_averaged(state, clocks, present),
    )
    kernel_rows = support_set.kernel_rows(state.kernel, state.expansion, X, squares)
    raw = jnp.matmul(kernel_rows, state.expansion.coefficients, precision="highest")
    zero = jnp.zeros((), jnp.int32)
    scores, first = _look(algorithm, block, state, raw, jnp.zeros_like(raw), zero)
    none = zero - 1
    like = jax.eval_shape(
        lambda *given: _update(algorithm, block, *given)[1],
        state,
        kernel_rows,
        scores,
        first,
        none,
    )
    edits = _without_example(support_set.no_edits(like))
    columns = tuple(jnp.zeros_like(squares) for _ in edits.rows[:-1])
    (loop,) = _sharding.vary(
        Loop(state, kernel_rows, raw, scores, first, none, edits, columns)
    )

    delayed = hasattr(getattr(state, "maintenance", None), "make_room")

    def alive(loop):
        return loop.next < X.shape[0]

    def ready(loop):
        return alive(loop) & ~_full(loop) if delayed else alive(loop)

    def any_model(condition):
        return condition if axis is None else jax.lax.pmax(condition, axis)

    def violation(loop):
        new = _violation(algorithm, block, loop)
        new = new if axis is None else _only_if(ready(loop), new, loop)
        return _sharding.vary(new)[0]

    def violations(loop):
        return jax.lax.while_loop(lambda loop: any_model(ready(loop)), violation, loop)

    def with_room(loop):
        """The loop with room for a newcomer, if one is waiting."""
        wanted = alive(loop) & _full(loop)
        return _sharding.cond(
            any_model(wanted),
            lambda: _with_room(algorithm, block, loop, wanted),
            lambda: loop,
        )

    if X.shape[0] == 1:
        loop = _once(algorithm, block, with_room(loop) if delayed else loop)
    elif delayed:
        loop = jax.lax.while_loop(
            lambda loop: any_model(alive(loop)),
            lambda loop: with_room(violations(loop)),
            loop,
        )
    else:
        loop = violations(loop)
    return _finished(block, state, loop, y, present)


def _full(loop: Loop) -> Flag:
    """Whether the pending newcomer, if there is one, takes the last free slot."""
    entering = loop.edits.rows[-1].slot != NOWHERE
    expansion = loop.state.expansion
    return expansion.num_active + entering.astype(jnp.int32) >= expansion.budget


def _with_room(algorithm: Any, block: Block, loop: Loop, wanted: Flag) -> Loop:
    """The loop with nothing pending, and with free slots where `wanted`.

    The kernel rows are recomputed, which costs as much as starting a block.
    """
    state = loop.state
    edits, _ = _complete(block, loop.edits, loop.columns, loop.last)
    before = support_set.write(state.expansion, edits)
    after = state.maintenance.make_room(state.kernel, before)
    expansion = jax.tree.map(
        lambda new, old: jnp.where(wanted, new, old), after, before
    )
    state = algorithm.refresh_caches(state._replace(expansion=expansion))
    kernel_rows = support_set.kernel_rows(
        state.kernel, expansion, block.X, block.squares
    )
    raw = jnp.matmul(kernel_rows, expansion.coefficients, precision="highest")
    return loop._replace(
        state=state,
        kernel_rows=kernel_rows,
        raw=raw,
        edits=support_set.no_edits(loop.edits),
    )


def _once(algorithm: Any, block: Block, loop: Loop) -> Loop:
    """The loop after a block of one example, which has at most one violation.

    A branch is used, which returns no array of the support set. A loop would carry the
    other arrays of the state, and the compiler would copy them.
    """

    def changed():
        state, edits, _ = _update(
            algorithm,
            block,
            loop.state,
            loop.kernel_rows,
            loop.scores,
            loop.next,
            loop.last,
        )
        expansion = state.expansion
        state = state._replace(expansion=None)
        return state, expansion.scale, expansion.average, _without_example(edits)

    def unchanged():
        expansion = loop.state.expansion
        state = loop.state._replace(expansion=None)
        return state, expansion.scale, expansion.average, loop.edits

    violated = loop.next == 0
    state, scale, average, edits = _sharding.cond(violated, changed, unchanged)
    expansion = loop.state.expansion._replace(scale=scale, average=average)
    last = jnp.where(violated, 0, loop.last)
    return loop._replace(
        state=state._replace(expansion=expansion), edits=edits, last=last
    )


def _finished(
    block: Block, state: Any, loop: Loop, y: Targets, present: Bool[Array, " size"]
) -> tuple[Any, Scores]:
    """The state after the rounds that follow the last violation, and the scores."""
    size = y.shape[0]
    edits, _ = _complete(block, loop.edits, loop.columns, loop.last)
    new, expansion = loop.state, support_set.write(loop.state.expansion, edits)
    average = expansion.average
    if average is not None and block.averaged is not None:
        count = jnp.sum(block.averaged, dtype=average.total.dtype)
        since = _since(block, new, loop.last, size)
        average = average._replace(since=since, total=average.total + count)
    mistaken = jax.vmap(losses.is_mistake)(loop.scores, y) & present
    return new._replace(
        expansion=expansion._replace(
            scale=_scale(block, new, loop.last, size), average=average
        ),
        num_seen=state.num_seen._replace(low=block.clocks[-1]),
        num_mistakes=state.num_mistakes.after(jnp.sum(mistaken, dtype=jnp.int32)),
    ), loop.scores


def running_sums(values: Shaped[Array, " n"]) -> Shaped[Array, " n"]:
    """Inclusive prefix sums of a block: O(n^2), but one kernel to compile, not ten."""
    index = jnp.arange(values.shape[0], dtype=jnp.int32)
    before = index[:, None] >= index[None]
    return jnp.sum(jnp.where(before, values[None], 0), axis=1, dtype=values.dtype)


def decayed_scale(scale: Scalar, decay: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The scale after a decay by `exp(decay)`.

    It is never so small that an update that is divided by it overflows.
    """
    limits = jnp.finfo(scale.dtype)
    least = max(float(limits.tiny), min(2.0**-40, limits.tiny / limits.eps**2))
    return jnp.maximum(scale * jnp.exp(decay), least)


def complete(expansion: Expansion, edits: Edits) -> Edits:
    """The edits of an update, which also bring the sums of an average up to date."""
    average = expansion.average
    return edits if average is None else edits._replace(accrued=average.since)


def _averaged(
    state: Any, clocks: Integer[Array, " ticks"], present: Bool[Array, " size"]
) -> Bool[Array, " size"] | None:
    """Which rounds of a block are in the average of iterates."""
    average = state.expansion.average
    if average is None:
        return None
    seen = state.num_seen._replace(low=clocks[1:])
    return present & seen.reaches(average.start)


def _scale(block: Block, state: Any, last: Index, i: Index | int) -> Scalar:
    """The scale before round `i`, if the model has not changed since round `last`."""
    decay = block.decay[i] - block.decay[last + 1]
    return decayed_scale(state.expansion.scale, decay)


def _since(block: Block, state: Any, last: Index, i: Index | int) -> Scalar:
    """The sum of the scales before round `i`, for the average of iterates."""
    expansion, averaged = state.expansion, block.averaged
    assert averaged is not None, "a block counts rounds where iterates are averaged"
    index = jnp.arange(averaged.shape[0], dtype=jnp.int32)
    quiet = averaged & (index > last) & (index < i)
    decay = block.decay[1:] - block.decay[last + 1]
    scales = decayed_scale(expansion.scale, jnp.where(quiet, decay, 0))
    return expansion.average.since + jnp.sum(jnp.where(quiet, scales, 0))


def _violation(algorithm: Any, block: Block, loop: Loop) -> Loop:
    """Makes one change of the model, and finds the next violation.

    The edits of the last violation are written here, before any read. If the turn that
    computes them wrote them too, it would also read the same arrays, and the compiler
    would copy these to keep the two apart.
    """
    edits, columns = _complete(block, loop.edits, loop.columns, loop.last)
    kernel_rows = loop.kernel_rows
    for row, column in zip(edits.rows, columns, strict=True):
        kernel_rows = support_set.put(kernel_rows, row.slot, column, axis=1)
    expansion = support_set.write(loop.state.expansion, edits)
    state = loop.state._replace(expansion=expansion)

    i = loop.next
    state, edits, columns = _update(
        algorithm, block, state, kernel_rows, loop.scores, i, loop.last
    )
    raw = _push(state, kernel_rows, loop.raw, *_complete(block, edits, columns, i))
    scores, following = _look(algorithm, block, state, raw, loop.scores, i + 1)
    edits = _without_example(edits)
    return Loop(state, kernel_rows, raw, scores, following, i, edits, columns)


def _only_if(alive: Flag, new: Loop, old: Loop) -> Loop:
    """The loop after a violation, or, if there was none, with nothing pending.

    The large arrays are those of `new` in both cases: they hold the edits of the last
    violation.
    """
    chosen = jax.tree.map(
        lambda after, before: jnp.where(alive, after, before),
        new._replace(
            state=new.state._replace(expansion=None), kernel_rows=None, edits=None
        ),
        old._replace(
            state=old.state._replace(expansion=None), kernel_rows=None, edits=None
        ),
    )
    kept = jax.tree.map(
        lambda after, before: jnp.where(alive, after, before),
        (new.state.expansion.scale, new.state.expansion.average),
        (old.state.expansion.scale, old.state.expansion.average),
    )
    nothing = support_set.no_edits(new.edits)
    rows = tuple(
        row._replace(slot=jnp.where(alive, row.slot, NOWHERE)) for row in new.edits.rows
    )
    others = jax.tree.map(
        lambda after, blank: jnp.where(alive, after, blank),
        new.edits._replace(rows=None),
        nothing._replace(rows=None),
    )
    expansion = new.state.expansion._replace(scale=kept[0], average=kept[1])
    return chosen._replace(
        state=chosen.state._replace(expansion=expansion),
        kernel_rows=new.kernel_rows,
        edits=others._replace(rows=rows),
    )


def _look(
    algorithm: Any, block: Block, state: Any, raw: Scores, scores: Scores, start: Index
) -> tuple[Scores, Index]:
    """The scores, recomputed from `start` on, and the first example that violates.

    The model last changed in the round before `start`. Every example is tested at its
    own clock.
    """
    index = jnp.arange(raw.shape[0], dtype=jnp.int32)
    later = index >= start
    # Scores before `start` are stale, and are not decayed.
    decay = jnp.minimum(block.decay[:-1] - block.decay[start], 0)
    scales = decayed_scale(state.expansion.scale, decay)
    scores = jnp.where(later[:, None], scales[:, None] * raw, scores)
    violations = jax.vmap(
        lambda clock, score, label: algorithm.violates(
            state._replace(num_seen=state.num_seen._replace(low=clock)), score, label
        )
    )(block.clocks[:-1], scores, block.y)
    found = jnp.where(violations & later & (block.weights > 0), index, raw.shape[0])
    return scores, jnp.min(found)


def _update(
    algorithm: Any,
    block: Block,
    state: Any,
    kernel_rows: Float[Array, "size rows"],
    scores: Scores,
    i: Index,
    last: Index,
) -> tuple[Any, Edits, tuple[PerExample, ...]]:
    """The update of example `i`: the state except the support set, and the edits.

    The third result holds the kernel columns, against the block, of all edited rows
    except the last, which is the example.
    """
    clock, expansion = block.clocks[i], state.expansion
    newcomer = Newcomer(
        vector=block.X[i],
        square=block.squares[i],
        coefficients=jnp.zeros_like(expansion.coefficients[0]),
        age=clock + 1,
        weight=block.weights[i],
        kernel_row=kernel_rows[i],
        kernel_self=block.selves[i],
    )
    average = expansion.average
    if average is not None:
        average = average._replace(since=_since(block, state, last, i))
    now = expansion._replace(scale=_scale(block, state, last, i + 1), average=average)
    returned = algorithm.update(
        state._replace(num_seen=state.num_seen._replace(low=clock), expansion=now),
        scores[i],
        block.y[i],
        newcomer,
    )
    where = f"{algorithm.name}: update"
    new, edits = support_set.check_edits(where, type(state), returned)
    edits = complete(now, edits)
    scale = support_set.shrunk(now.scale, edits)
    if average is not None and block.averaged is not None:
        average = average._replace(since=jnp.where(block.averaged[i], scale, 0))
    new = new._replace(
        expansion=expansion._replace(scale=scale, average=average),
        num_seen=state.num_seen,
        num_updates=state.num_updates.after(1),
    )
    columns = tuple(
        state.kernel.gram(block.X, row.vector[None], block.squares, row.square[None])
        for row in edits.rows[:-1]
    )
    return new, edits, tuple(column[:, 0] for column in columns)


def _without_example(edits: Edits) -> Edits:
    """The edits without the values that `_complete` looks up."""
    own = edits.rows[-1]._replace(vector=None, square=None, age=None)
    return edits._replace(rows=(*edits.rows[:-1], own))


def _complete(
    block: Block, edits: Edits, columns: tuple[PerExample, ...], i: Index
) -> tuple[Edits, tuple[PerExample, ...]]:
    """Adds the values and the kernel column of example `i` itself."""
    own = edits.rows[-1]
    own = Row(own.slot, block.X[i], block.squares[i], own.term, block.clocks[i] + 1)
    return edits._replace(rows=(*edits.rows[:-1], own)), (*columns, block.gram[i])


def _push(
    state: Any,
    kernel_rows: Float[Array, "size rows"],
    raw: Scores,
    edits: Edits,
    columns: tuple[PerExample, ...],
) -> Scores:
    """The unscaled scores of the model with the edits."""
    num_columns = raw.shape[1]
    coefficients = state.expansion.coefficients
    if edits.fold is not None:
        raw, coefficients = raw * edits.fold, coefficients * edits.fold
    for spread in edits.spreads:
        received = jnp.matmul(kernel_rows, spread.weights, precision="highest")
        raw = raw + received[:, None] * spread.term[None, :num_columns]
    for row, column in zip(edits.rows, columns, strict=True):
        slot = jnp.maximum(row.slot, 0)
        old = jax.lax.dynamic_index_in_dim(kernel_rows, slot, 1, keepdims=False)
        gone = coefficients[slot]
        for spread in edits.spreads:
            gone = gone + spread.weights[slot] * spread.term[:num_columns]
        change = column[:, None] * row.term[None, :num_columns]
        change -= old[:, None] * gone[None]
        raw = raw + jnp.where(row.slot != NOWHERE, change, 0)
    return raw
