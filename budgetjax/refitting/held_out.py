"""Held-out examples of a refit, which choose the penalty and metric and calibrate."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Shaped

from budgetjax import losses
from budgetjax._rows import pad_rows, rows_at_once
from budgetjax._sharding import Shards
from budgetjax.online import driver, importance
from budgetjax.refitting import calibration, moving_vectors, newton, training_data
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.spread import fit_spread
from budgetjax.refitting.training_data import Block
from budgetjax.stream.reservoir import Reservoir, Rows, default_size, is_sparse
from budgetjax.tables.columns import to_dense, unpack
from budgetjax.tables.spread import Spread

# A function from rows to the scores of one or more models.
Scores = Callable[[np.ndarray], Any]
# The number of folds.
FOLDS = 5
# Up to this many examples, a fifth judges the passes of a metric; beyond, 1,000 to
# 2,000 do. With a third more passes, ten tables of 36,000 to 100,000 rows had 3 percent
# fewer errors, electricity 7, and thirteen of up to 20,000 rows 1 to 2.
MANY = 10_000
# Up to this many examples, all folds judge; beyond, one fold suffices.
FEW = 2000
# The penalty of a refit, where one is not chosen.
PENALTY = 10.0
# Up to this many examples, which may be noisy, estimators choose among these penalties.
FEW_TO_PENALISE, PENALTIES = 5000, (0.01, 0.1, 1.0, PENALTY)


def default_penalties(rows: int) -> tuple[float, ...]:
    """The penalties to choose from for this number of examples."""
    return PENALTIES if rows <= FEW_TO_PENALISE else (PENALTY,)


class Fold(NamedTuple):
    """Held-out examples, and a state whose vectors were chosen without them.

    Attributes:
      problem: the problem of the refit.
      learn: reads all blocks, with weights for the training examples only.
      held: reads all blocks, with weights for the held-out examples only.
      state: a state with support vectors.
      basis: their features.
    """

    problem: Problem
    learn: Callable[[], Iterator[Block]]
    held: Callable[[], Iterator[Block]]
    state: Any
    basis: Basis

    def with_fewer(self, number: int) -> "Fold":
        """The same fold with some of its held-out examples, if all are many.

        The state has not learned them either. `number` is that of all examples.
        """
        if number <= MANY:
            return self
        # Multiples, whose folds are parts of the first fold.
        learn, held = deal(self.problem, 0, FOLDS * -(-number // MANY))
        return self._replace(learn=learn, held=held)

    def errors(self, scores_of: Scores) -> Float[np.ndarray, " models"]:
        """The mistakes, or for regression the losses, of one or more models."""

        def sums(block: Block) -> Float[np.ndarray, " models"]:
            return block.weights.astype(np.float64) @ self._mistakes(block, scores_of)

        return training_data.total(self.held(), sums)

    def each_error(self, scores_of: Scores) -> Float[np.ndarray, " held"]:
        """The weighted mistake or loss of one model on every example."""
        return np.concatenate(
            [
                block.weights * self._mistakes(block, scores_of)[:, 0]
                for block in self.held()
            ]
        )

    def prefers(self, old: Scores, new: Scores) -> bool:
        """Whether the new model has a smaller error than the old one."""
        before, after = (self.errors(one)[0] for one in (old, new))
        return bool(after < before)

    def _mistakes(
        self, block: Block, scores_of: Scores
    ) -> Shaped[np.ndarray, "size models"]:
        """Mistakes or losses per example; the argmax decides among several scores."""
        loss = self.problem.loss
        scores, (_, columns) = np.asarray(scores_of(block.X)), block.targets.shape
        scores = scores.reshape(len(scores), -1, columns)
        targets = block.targets[:, None]
        if columns > 1 and not self.state.is_regressor:
            return np.argmax(scores, 2) != np.argmax(targets, 2)
        if losses.takes_labels(loss):
            return (scores * targets <= 0)[..., 0]
        numbers = newton.of_problems(loss, columns, block.X.dtype)
        return np.asarray(_sum_losses(numbers, scores, block.targets))


@jax.jit
def _sum_losses(
    loss: Partial,
    scores: Float[Array, "size models columns"],
    targets: Float[Array, "size columns"],
) -> Float[Array, "size models"]:
    """The losses of every example, summed over the columns."""
    each: Any = jax.vmap(moving_vectors.values, (None, 1, None), 1)
    return jnp.sum(each(loss, scores, targets), axis=2)


class Judged(NamedTuple):
    """A model that did not learn the held-out examples of a fold.

    Attributes:
      fold: the fold.
      scores: the scores of the model.
      beyond: what `budgetjax.Model.beyond` says of rows.
    """

    fold: Fold
    scores: Scores
    beyond: Scores


def deal(
    problem: Problem, fold: int, share: int = FOLDS
) -> tuple[Callable[[], Iterator[Block]], Callable[[], Iterator[Block]]]:
    """Reads the examples to learn, and those held out, one in so many of all."""
    mask = functools.partial(mask_fold, problem.blocks, problem.seed, fold, share=share)
    learn, held = (functools.partial(mask, keep) for keep in (False, True))
    # A fold is a fifth of the examples at most.
    return (
        training_data.keep_weighted(learn),
        training_data.keep_weighted(held, FOLDS - 1),
    )


def mask_fold(
    blocks: Callable[[], Iterator[Block]],
    seed: int,
    fold: int,
    keep: bool,
    share: int = FOLDS,
) -> Iterator[Block]:
    """The blocks, with weights for only the examples of a fold, or only the others.

    Folds are stratified within each block by class, or by target.
    """
    random = np.random.default_rng(seed)
    for block in blocks():
        targets = block.targets
        keys = np.argmax(targets, 1) if targets.shape[1] > 1 else targets[:, 0]
        order = random.permutation(len(keys))
        order = order[np.lexsort((keys[order], block.weights[order] == 0))]
        held = np.zeros(len(keys), bool)
        held[order[fold::share]] = True
        yield block._replace(weights=block.weights * (held == keep))


def stream_fold(
    problem: Problem, state: Any, blocks: Callable[[], Iterator[Block]]
) -> Any:
    """The state after a stream of only these examples.

    At most a reservoir of rows is used, in random order, so sorted examples do no harm.
    """
    if not state.learner.chooses_vectors:
        return state
    state = clear(state)
    shape = state.target_shape
    kept, shards = None, Shards()
    has_labels = state.num_columns > 1 and not shape
    for block in blocks():
        shards = block.shards
        kept = kept or Reservoir.empty(
            *(block.X.shape[1], state.dtype, state.target_dtype, shape),
            size=default_size(state.num_features),
            seed=problem.seed,
            sparse=not shards.spans_processes
            and problem.encoding is None
            and problem.coder is None
            and is_sparse(block.X),
        )
        y = block.targets
        y = np.argmax(y, 1) if has_labels else y.reshape(-1, *shape)
        kept = kept.updated(block.X, y, block.weights)
    assert kept is not None, "there are examples"
    # A sample of all processes: the only rows that one of them sends to others.
    rows = kept.rows()
    if shards.spans_processes:
        rows = Rows(*map(shards.gather, rows)).least(kept.size)
    packed, y, weights, _ = rows
    X = unpack(packed)
    given = problem.features(X) if isinstance(X, np.ndarray) else X
    return replay(state, given, y, weights)


@jax.jit
def clear(state: Any) -> Any:
    """The state with nothing learned."""
    return state.restart()


def replay(
    state: Any,
    X: Any,
    y: Shaped[np.ndarray, "n ..."],
    weights: Float[np.ndarray, " n"],
) -> Any:
    """The state after these rows, learned in blocks of one size.

    `X` is an array or a CSR matrix.
    """
    weights, _ = importance.SeenWeights().relative(weights)
    size, dtype = rows_at_once(driver.FEW_ROWS, X.shape[1]), state.dtype
    for first in range(0, len(y), size):
        part = slice(first, first + size)
        rows = pad_rows(to_dense(X[part], dtype), size)
        given = rows, pad_rows(y[part], size, 1)
        counts = pad_rows(weights[part], size)
        state, _ = driver.run(
            state, *given, weight=counts, block_size=driver.PLAIN_SCAN
        )
    return state


def fit_calibration(judged: Iterable[Judged]) -> float:
    """The calibration from scores of held-out examples, with one model per fold."""
    scores, codes, weights, shards = [], [], [], Shards()
    for fold, scores_of, _ in judged:
        for block in fold.held():
            shards, rows = block.shards, np.flatnonzero(block.weights)
            targets = block.targets[rows]
            several = targets.shape[1] > 1
            found = np.asarray(scores_of(block.X))[rows]
            scores.append(found if several else found[:, 0])
            codes.append(np.argmax(targets, 1) if several else targets[:, 0] > 0)
            weights.append(block.weights[rows])
    return calibration.fit_factor(
        shards.gather(np.concatenate(scores)),
        shards.gather(np.concatenate(codes).astype(np.int32)),
        shards.gather(np.concatenate(weights)),
    )


def measure_spread(problem: Problem, judged: Sequence[Judged]) -> Spread | None:
    """The spread around scores of held-out examples, in the units of the targets."""
    units, found, shards = problem.units, [], Shards()
    for fold, scores_of, beyond in judged:
        rows = training_data.count_rows(fold.held())
        every = max(1, -(-rows // MANY))
        for block in fold.held():
            shards, rows = block.shards, np.flatnonzero(block.weights)[::every]
            if not len(rows) and not shards.spans_processes:
                continue
            scores = np.asarray(scores_of(block.X))
            scores = scores.reshape(len(scores), -1)[rows]
            pair = (
                one * units.unit + units.origin
                for one in (scores, block.targets[rows].astype(np.float64))
            )
            share = np.asarray(beyond(block.X))[rows]
            found.append((*pair, share, block.weights[rows]))
    if not found:
        return None
    parts = zip(*found, strict=True)
    return fit_spread(*(shards.gather(np.concatenate(part)) for part in parts))
