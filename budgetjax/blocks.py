"""A block of examples at once, from violation to violation.

Most rounds of a conservative learner change nothing but the clock, so a loop over
violations is shorter than one over examples, and what is left for the others is two
matrix products.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import expansion as support_set
from budgetjax import kernels, losses, rounds
from budgetjax.expansion import NOWHERE, Newcomer, Row
from budgetjax.rounds import Algorithm, Edits


class Block(NamedTuple):
    """What is known of a block before its first round.

    Attributes:
      X: the examples, shape `(size, num_features)`.
      y: their labels, shape `(size,)`.
      mask: False where an example is to be skipped, shape `(size,)`.
      squares: `||x||^2`, shape `(size,)`.
      selves: `k(x, x)`, shape `(size,)`.
      gram: `k(x_i, x_j)`, shape `(size, size)`.
      clocks: rounds seen before each example, shape `(size,)`.
    """

    X: Float[Array, "size features"]
    y: Shaped[Array, " size"]
    mask: Bool[Array, " size"]
    squares: Float[Array, " size"]
    selves: Float[Array, " size"]
    gram: Float[Array, "size size"]
    clocks: Integer[Array, " size"]


class Loop(NamedTuple):
    """What the loop over violations carries.

    Attributes:
      state: of the learner, without the pending edits.
      kernel_rows: `k(x_j, x_i)` for every example and row of the support set, shape
        `(size, rows)`, without the pending edits.
      raw: unscaled scores of the model with the pending edits, shape `(size, columns)`;
        those of the examples that are past are stale.
      scores: scores, each of the model that saw the example, shape `(size, columns)`.
      next: the example that violates next, or the size of the block.
      last: the example whose edits are pending.
      edits: the pending edits. What they say of example `last` itself is looked up.
      columns: kernel columns of the pending rows, but for the last of them.
    """

    state: Any
    kernel_rows: Float[Array, "size rows"]
    raw: Float[Array, "size columns"]
    scores: Float[Array, "size columns"]
    next: Integer[Array, ""]
    last: Integer[Array, ""]
    edits: Edits
    columns: tuple[Float[Array, " size"], ...]


def run(
    algorithm: Algorithm,
    state: Any,
    X: Float[Array, "size features"],
    y: Shaped[Array, " size"],
    mask: Bool[Array, " size"],
    axis: str | None = None,
) -> tuple[Any, Float[Array, "size columns"]]:
    """The examples of a block in order: the same as one `step` after the other.

    The scores of the whole block are two matrix products. They are right up to the
    first example that must change the model. That example makes its update, the change
    is pushed into the scores after it with rows of the kernel matrices, and the next
    violation is looked for: one iteration of the loop is one change of the model.

    Cost: O(B d + T d) an example for blocks of T, and O(T + B) a violation beside its
    maintenance.

    Args:
      algorithm: the algorithm.
      state: of that algorithm.
      X: examples, shape `(size, num_features)`.
      y: labels, shape `(size,)`.
      mask: False where an example is to be skipped, shape `(size,)`.
      axis: the name of a `jax.vmap` over models, or None. They then go through one loop
        in lockstep, until the last has no violation left; a finished model writes
        nowhere. With a loop condition a model, `vmap` would copy every model's arrays
        in every iteration.

    Returns:
      The state after the block, and the score of each example by the model before it.
    """
    squares = kernels.squared_norms(X)
    present = mask.astype(jnp.int32)
    block = Block(
        X=X,
        y=y,
        mask=mask,
        squares=squares,
        selves=state.kernel.diag(X, squares),
        gram=state.kernel.gram(X, X, squares, squares),
        clocks=state.num_seen + jnp.cumsum(present, dtype=jnp.int32) - present,
    )
    kernel_rows = support_set.kernel_rows(state.kernel, state.expansion, X, squares)
    raw = jnp.matmul(kernel_rows, state.expansion.coefficients, precision="highest")
    zero = jnp.zeros((), jnp.int32)
    scores, first = _look(algorithm, block, state, raw, jnp.zeros_like(raw), zero)
    like = jax.eval_shape(
        lambda *given: _update(algorithm, block, *given)[1],
        state,
        kernel_rows,
        scores,
        first,
    )
    edits = _without_example(rounds.no_edits(like))
    columns = tuple(jnp.zeros_like(squares) for _ in edits.rows[:-1])
    loop = Loop(state, kernel_rows, raw, scores, first, zero, edits, columns)

    def unfinished(loop):
        alive = loop.next < X.shape[0]
        return alive if axis is None else jax.lax.pmax(alive, axis)

    def violation(loop):
        new = _violation(algorithm, block, loop)
        if axis is None:
            return new
        return _only_if(loop.next < X.shape[0], new, loop)

    loop = jax.lax.while_loop(unfinished, violation, loop)
    edits, _ = _complete(block, loop.edits, loop.columns, loop.last)
    mistaken = jax.vmap(losses.mistaken)(loop.scores, y) & mask
    new = loop.state._replace(
        expansion=rounds.apply(loop.state.expansion, edits),
        num_seen=state.num_seen + jnp.sum(present, dtype=jnp.int32),
        num_mistakes=state.num_mistakes + jnp.sum(mistaken, dtype=jnp.int32),
    )
    scale = algorithm.scale(new, new.num_seen)
    return new._replace(expansion=new.expansion._replace(scale=scale)), loop.scores


def _violation(algorithm: Algorithm, block: Block, loop: Loop) -> Loop:
    """One change of the model, and the next example that asks for one.

    The edits of the last violation are written here, before anything is read. If they
    were written where they are made, they would meet reads of the same arrays, and the
    compiler would copy the arrays to keep the two apart.
    """
    edits, columns = _complete(block, loop.edits, loop.columns, loop.last)
    kernel_rows = loop.kernel_rows
    for row, column in zip(edits.rows, columns, strict=True):
        kernel_rows = support_set.put(kernel_rows, row.slot, column, axis=1)
    expansion = rounds.apply(loop.state.expansion, edits)
    state = loop.state._replace(expansion=expansion)

    i = loop.next
    state, edits, columns = _update(
        algorithm, block, state, kernel_rows, loop.scores, i
    )
    raw = _push(state, kernel_rows, loop.raw, *_complete(block, edits, columns, i))
    scores, following = _look(algorithm, block, state, raw, loop.scores, i + 1)
    edits = _without_example(edits)
    return Loop(state, kernel_rows, raw, scores, following, i, edits, columns)


def _only_if(alive: Bool[Array, ""], new: Loop, old: Loop) -> Loop:
    """The loop after a violation, or, if there was none, with nothing pending.

    The large arrays are those of `new` in both cases: they have taken the edits of the
    last violation.
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
    rows = tuple(
        row._replace(slot=jnp.where(alive, row.slot, NOWHERE)) for row in new.edits.rows
    )
    fold = new.edits.fold
    return chosen._replace(
        state=chosen.state._replace(expansion=new.state.expansion),
        kernel_rows=new.kernel_rows,
        edits=Edits(rows, None if fold is None else jnp.where(alive, fold, 1)),
    )


def _look(
    algorithm: Algorithm,
    block: Block,
    state: Any,
    raw: Float[Array, "size columns"],
    scores: Float[Array, "size columns"],
    start: Integer[Array, ""],
) -> tuple[Float[Array, "size columns"], Integer[Array, ""]]:
    """The scores with those from `start` on renewed, and the first that violates.

    Every example is tested by its own clock.
    """
    index = jnp.arange(raw.shape[0], dtype=jnp.int32)
    later = index >= start
    scales = jax.vmap(algorithm.scale, in_axes=(None, 0))(state, block.clocks)
    scores = jnp.where(later[:, None], scales[:, None] * raw, scores)
    violations = jax.vmap(
        lambda clock, score, label: algorithm.violates(
            state._replace(num_seen=clock), score, label
        )
    )(block.clocks, scores, block.y)
    found = jnp.where(violations & later & block.mask, index, raw.shape[0])
    return scores, jnp.min(found)


def _update(
    algorithm: Algorithm,
    block: Block,
    state: Any,
    kernel_rows: Float[Array, "size rows"],
    scores: Float[Array, "size columns"],
    i: Integer[Array, ""],
) -> tuple[Any, Edits, tuple[Float[Array, " size"], ...]]:
    """The update of example `i`: the state but for the support set, and the edits.

    With the kernel columns, against the block, of all their rows but the last, which is
    the example.
    """
    clock, expansion = block.clocks[i], state.expansion
    newcomer = Newcomer(
        vector=block.X[i],
        square=block.squares[i],
        coefficients=jnp.zeros_like(expansion.coefficients[0]),
        age=clock + 1,
        kernel_row=kernel_rows[i],
        kernel_self=block.selves[i],
    )
    now = state._replace(
        num_seen=clock,
        expansion=expansion._replace(scale=algorithm.scale(state, clock)),
    )
    new, edits = algorithm.update(now, scores[i], block.y[i], newcomer)
    mistaken = losses.mistaken(scores[i], block.y[i])
    new = new._replace(
        expansion=expansion,
        num_mistakes=state.num_mistakes + mistaken.astype(jnp.int32),
        num_updates=state.num_updates + 1,
    )
    columns = tuple(
        state.kernel.gram(block.X, row.vector[None], block.squares, row.square[None])
        for row in edits.rows[:-1]
    )
    return new, edits, tuple(column[:, 0] for column in columns)


def _without_example(edits: Edits) -> Edits:
    """The edits without what `_complete` looks up."""
    own = edits.rows[-1]._replace(vector=None, square=None, age=None)
    return edits._replace(rows=(*edits.rows[:-1], own))


def _complete(
    block: Block,
    edits: Edits,
    columns: tuple[Float[Array, " size"], ...],
    i: Integer[Array, ""],
) -> tuple[Edits, tuple[Float[Array, " size"], ...]]:
    """The edits and kernel columns with those of example `i` itself."""
    own = edits.rows[-1]
    own = Row(
        own.slot, block.X[i], block.squares[i], own.coefficients, block.clocks[i] + 1
    )
    return edits._replace(rows=(*edits.rows[:-1], own)), (*columns, block.gram[i])


def _push(
    state: Any,
    kernel_rows: Float[Array, "size rows"],
    raw: Float[Array, "size columns"],
    edits: Edits,
    columns: tuple[Float[Array, " size"], ...],
) -> Float[Array, "size columns"]:
    """The unscaled scores of the model with the edits."""
    coefficients = state.expansion.coefficients
    if edits.fold is not None:
        raw, coefficients = raw * edits.fold, coefficients * edits.fold
    for row, column in zip(edits.rows, columns, strict=True):
        slot = jnp.maximum(row.slot, 0)
        old = jax.lax.dynamic_index_in_dim(kernel_rows, slot, 1, keepdims=False)
        change = column[:, None] * row.coefficients[None]
        change -= old[:, None] * coefficients[slot][None]
        raw = raw + jnp.where(row.slot != NOWHERE, change, 0)
    return raw
