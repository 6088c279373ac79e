"""A learned metric: support vectors, coefficients and a linear map of the inputs.

The kernel becomes `k(x M, z M)`, and gradient steps minimise

    sum_i loss(f(x_i), y_i) + ||w||^2 / (2 STRENGTH C)
        + PRIOR u^2 / 2 (||N - N_0||^2 + ||s||^2)

over the vectors, the weights of the features of the initial vectors, starting from 0,
and M = diag(exp(s)) N, where N starts from the identity or the principal directions and
s from 0; u is 1 for labels and SCORES for numbers. The scales exp(s) find the features
that matter sooner than the matrix alone (Holzmueller et al. 2024, section 3): on 45
tables errors fell by 3 percent on average, on a fifth of them by 7 to 40. A diagonal M
is itself the scales.

Where an encoding has a map of codes, this map is learned in place of a kernel's. It is
made of maps of the numbers and of the codes, `W L + A R` (`tables.start_map`), and N is
both, one below the other; the codes' part has a larger prior. Further scales are those
of each column's line and of all its bins together, so that a column can lose its bins,
or its line, in a few steps.

For labels the loss is the logistic one over all classes, which depends on every
example: the one-versus-rest squared hinge was a point less accurate on letter. A part
of each label, the smoothing, goes to the other of two classes or is divided among
several. It is the error rate on held-out examples, up to a maximum, since labels
without noise need none.

Not worth it, on 18 data sets: an average of the iterates, other rates, a larger prior,
several small models instead of one.

A map to fewer features takes the vectors with it: the steps move their images `z M`,
which is as accurate as moving z and a third faster, and z is a preimage of the result,
or for codes the image itself.

The passes over most of the examples stop at the best predictions of the others. Half
that number of passes over all examples follow, starting again at the first rate, with
the memory of the steps before. Without this second part, the same number of passes gave
5 to 10 percent more errors on electricity and covtype.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from budgetjax import _checks, _half_precision, losses
from budgetjax._sharding import Shards
from budgetjax.kernels import Kernel, Mapped
from budgetjax.refitting import training_data
from budgetjax.refitting.adam import Steps, count_examples, run_adam
from budgetjax.refitting.held_out import Fold, Scores
from budgetjax.refitting.moving_vectors import norm_and_scores, unit_of, values
from budgetjax.refitting.newton import of_problems
from budgetjax.refitting.problem import Problem
from budgetjax.tables.start_map import (
    DIRECTIONS_OF,
    WIDEST,
    Lines,
    principal_directions,
)

# Examples per step: twice the number for moving vectors, in half of the time.
BATCH = 256
# The first rate of Adam, and factors of it: for vectors, in units of the deviation of
# their features, and for the entries of the map, divided by the root of the number of
# features, since all of them move a point together.
# Scales of features are powers of e.
RATE, VECTOR_RATE, MAP_RATE, SCALE_RATE = 0.1, 0.3, 1.2, 0.6
# With this many orthonormal features times steps, weights move by the rate; with more
# or fewer, by the rate divided by the root of the ratio.
MOVES = 100_000
# The unit of scores of numbers, whose deviation is 1. It gives them the magnitude of
# scores of classes.
SCORES = 0.1
# The logistic loss needs larger weights than the squared hinge: a point on letter.
STRENGTH = 10.0
# The most smoothing. A fixed one of 0.05 doubled the errors on the checkerboard, and
# made a third more on ijcnn1; none made 1 percent more on 41 tables.
MOST_SMOOTHING = 0.05
# The weight of the map's distance from its start, in examples. Without it, the map
# overfits the 256 features of usps. In maps of codes, entries of lines have less, and
# those of codes so much divided by the examples, 30 in 4,000 of them, so that functions
# of columns bend only as far as data ask. With 30 in 29,000, electricity had a fifth
# more errors.
PRIOR, PRIOR_OF_LINES, PRIOR_OF_CODES = 10.0, 3.0, 120_000.0
# The fewest passes and the most, and the steps in all, if these are between. With 80
# in place of 40, electricity, phishing and letter had a tenth fewer errors.
PASSES, MOST_STEPS = (27, 80), 8000
# Fewer steps per epoch that was asked for hardly change the metric, so small data take
# more epochs. Each has at least FEWEST_AT_ONCE steps before it is judged: fewer take
# longer, and with 30 there were 4 percent more errors.
FEWEST_STEPS, FEWEST_AT_ONCE = 20, 8


def count_passes(rows: int) -> int:
    """The default number of passes over this number of examples."""
    return int(np.clip(MOST_STEPS * BATCH // max(rows, 1), *PASSES))


class Start(NamedTuple):
    """The map from which steps start, as entries that they change.

    Maps are transposed, shape `(r, d)`: their slopes, of few features and many codes,
    are then products of matrices that XLA computes 3 to 7 times as fast on a CPU.

    Attributes:
      entries: the map of a kernel, or its factors of features; or the entries that
        `lines` join to a map of codes.
      rates: the units of changes of the columns of entries, with as many axes.
      priors: the weights of the squares of these changes.
      lines: how a map of codes is made of the entries; None for a map of a kernel.
    """

    entries: Any
    rates: Any
    priors: Any
    lines: Lines | None = None

    @property
    def is_diagonal(self) -> bool:
        """Whether each feature has a factor, and no more."""
        return self.entries.ndim == 1

    def no_change(self) -> "Change":
        """A change of nothing."""
        entries = self.entries
        if self.is_diagonal:
            return Change(0 * entries, None, None)
        parts = None
        if self.lines is not None:
            columns = entries.shape[1] - len(self.lines.column)
            parts = np.zeros((2, columns), entries.dtype)
        return Change(0 * entries, 0 * entries[0], parts)

    def map(self, change: "Change") -> Array:
        """The map after a change."""
        entries = self.entries + self.rates * change.entries
        scales = change.scales
        if change.parts is not None:
            assert self.lines is not None, "the map is one of codes"
            slopes, own = change.parts
            own = jnp.take(own, self.lines.column, mode="clip")
            scales = scales + jnp.concatenate([slopes, own])
        if scales is not None:
            entries = jnp.exp(SCALE_RATE * scales)[None] * entries
        return entries if self.lines is None else self.lines.join(entries)

    def distance(self, change: "Change") -> Array:
        """The weighted square of a change."""
        found = jnp.sum(self.priors * (self.rates * change.entries) ** 2)
        logs = jax.tree.leaves((change.scales, change.parts))
        return found + sum(jnp.sum((SCALE_RATE * one) ** 2) for one in logs)


class Change(NamedTuple):
    """What steps change of a map.

    Attributes:
      entries: those of the entries, in units of their rates.
      scales: logarithms of factors of the columns of entries; None for a diagonal map.
      parts: logarithms of factors that the codes of a column have in common, for its
        line and for its bins, shape `(2, columns)`; None for a map of a kernel.
    """

    entries: Any
    scales: Any
    parts: Any


def start_from(
    problem: Problem, kernel: Kernel, vectors: np.ndarray, rows: int
) -> Start:
    """The start of a metric of these rows: the map of codes, or of a kernel."""
    dtype = vectors.dtype
    codes, matrix = problem.encoding, problem.map
    if codes is None or matrix is None:
        entries = init_map(problem, kernel, vectors).T
        ones = np.ones_like(entries if entries.ndim == 1 else entries[:1])
        return Start(entries, MAP_RATE / ones.size**0.5 * ones, PRIOR * ones)
    lines = Lines.of(codes.column, codes.low, codes.high)
    # All codes of a table move a point together, and so do its columns. Steps of Adam
    # have the signs of slopes, which columns that are alike share: d equal ones move a
    # point by d rates, d independent ones by the root of d.
    alike = max(1.0, codes.num_columns / _count_directions(vectors))
    counts = np.multiply((codes.num_columns, codes.num_codes), alike)
    lines = lines.padded(len(matrix), dtype)
    entries = lines.split(matrix).astype(dtype).T
    sizes = entries.shape[1] - len(matrix), len(matrix)
    rates = np.repeat(MAP_RATE / np.sqrt(counts), sizes).astype(dtype)
    own = PRIOR_OF_CODES / max(1, rows)
    priors = np.repeat([PRIOR_OF_LINES, own], sizes).astype(dtype)
    return Start(entries, rates[None], priors[None], lines)


def _count_directions(features: np.ndarray) -> float:
    """The variance of all features divided by that of the first principal direction.

    It is 1 if all columns of a table are equal, and the number of them if they are
    independent and of one deviation. The features are along such directions.
    """
    variances = np.var(features, axis=0, dtype=np.float64)
    largest = np.max(variances)
    return float(np.sum(variances) / largest) if largest else np.inf


def init_map(
    problem: Problem, kernel: Kernel, vectors: Float[Array | np.ndarray, "rows d"]
) -> np.ndarray:
    """The first map of a kernel: its own, the identity, or principal directions.

    Directions are scaled so that the mean squared distance of examples stays the same.
    The average outer product of the gradients of a refit is not a better start.
    """
    if isinstance(kernel, Mapped):
        return np.asarray(kernel.matrix)
    form, (width, dtype) = problem.form, (vectors.shape[1], vectors.dtype)
    if form == "diagonal":
        return np.ones(width, dtype)
    rank = min(width, WIDEST) if isinstance(form, bool | str) else form
    is_full = width <= rank
    _checks.check_memory(
        {"num_features": width, "budget": len(vectors), "rank": rank},
        # The map and the vectors, with slopes and the memory of Adam; the covariance.
        8 * dtype.itemsize * rank * (width + len(vectors))
        + (not is_full) * 24 * width**2,
        "for a metric",
        "select or hash them to fewer, or take learn_metric=False",
    )
    if is_full:
        return np.eye(width, rank, dtype=dtype)
    every = -(-training_data.count_rows(problem.blocks()) // DIRECTIONS_OF)
    given, shards = [], Shards()
    for block in problem.blocks():
        shards = block.shards
        given.append(block.X[block.weights > 0][::every])
    some = problem.features(np.concatenate(given)).astype(np.float64)
    # The examples of other processes stay there.
    mean = shards.total(np.sum(some, axis=0)) / (number := shards.total(len(some)))
    covariance = shards.total((some - mean).T @ (some - mean)) / max(1, number - 1)
    variances, directions = principal_directions(covariance, rank)
    kept = variances.sum()
    scale = np.sqrt(np.trace(covariance) / kept) if kept > 0 else 1.0
    return (scale * directions).astype(dtype)


class Trial(NamedTuple):
    """A metric learned on a fold, which can be learned on all examples.

    Attributes:
      scores: the scores of the model that did not learn the held-out examples.
      beyond: what its `budgetjax.Model.beyond` says of rows.
      finish: learns all examples: the state of the fold with its new vectors; the
        weights, which refer to the root of the fold's basis; and the map of codes, if
        it is that.
    """

    scores: Scores
    beyond: Scores
    finish: Callable[
        [], tuple[Any, Float[np.ndarray, "columns features"], np.ndarray | None]
    ]


def try_metric(problem: Problem, fold: Fold, penalty: float, passes: int) -> Trial:
    """Learns a metric on the examples of a fold in this number of passes, or more.

    Cost per epoch: O(n (d r + B (r + C))) for a map to r features, and O(B d^2) more
    per step if r = d. One factor per feature counts as r = d without the terms of maps.
    """
    loss, blocks, kernel = problem.loss, problem.blocks, fold.state.kernel
    expansion = fold.state.expansion
    mask = np.asarray(expansion.mask)
    vectors = np.where(mask[:, None], expansion.vectors, 0)
    rows, count = (count_examples(read()) for read in (blocks, fold.learn))
    first = start_from(problem, kernel, vectors[mask], count)
    inner = kernel.kernel if isinstance(kernel, Mapped) else kernel
    basis = fold.basis._replace(kernel=inner)
    columns = expansion.num_columns
    if _has_images(first, vectors):
        vectors = vectors @ first.entries.T
    unit = VECTOR_RATE * unit_of(vectors[mask])
    kind = unit.dtype.type
    once = max(FEWEST_AT_ONCE, -(-count // BATCH))
    epochs = max(passes, -(-FEWEST_STEPS * passes // once))
    more = len(mask) * epochs * once / MOVES
    # The units of the weights, and of the scores.
    of_labels = losses.takes_labels(loss)
    scale = kind(1 if of_labels else SCORES)
    units = unit, scale * kind(more**-0.5), scale
    strength = kind(STRENGTH * penalty)
    held = training_data.total(fold.held(), lambda block: float(block.weights.sum()))
    numbers = None if of_labels else of_problems(loss, columns, kind)
    fixed = basis, units, first, kind(count), strength, numbers, kind(MOST_SMOOTHING)
    weights = np.zeros((columns, basis.num_features), unit.dtype)
    steps = functools.partial(
        run_adam,
        _objective,
        kind=Steps(BATCH, RATE, FEWEST_AT_ONCE),
        seed=problem.seed,
        report=lambda mean: problem.report(f"metric, objective {mean:.6g} per example"),
    )
    start = jax.device_put((vectors / unit, weights, first.no_change()))

    def judge(parameters: PyTree) -> tuple[float, PyTree]:
        """The error on the held-out examples, and the smoothing that it asks for."""
        (errors,) = fold.errors(functools.partial(_scores, parameters, fixed))
        smoothing = kind(min(MOST_SMOOTHING, errors / held))
        return float(errors), (*fixed[:-1], smoothing)

    learned, best = steps(start, fixed, blocks=fold.learn, epochs=epochs, judge=judge)

    def finish() -> tuple[Any, ...]:
        error, (*rest, smoothing) = judge(learned)
        whole = *rest[:3], kind(rows), *rest[4:], smoothing
        last, _ = steps(learned, whole, blocks=blocks, epochs=-(-best // 2))
        # More mistakes on examples that were learned meanwhile: the steps have failed.
        last = learned if judge(last)[0] > error else last
        return _state_after(problem, fold, last, whole)

    scores = functools.partial(_scores, learned, fixed)
    return Trial(scores, _beyond_after(problem, fold, learned, fixed), finish)


def _has_images(start: Start, vectors: Any) -> bool:
    """Whether a map takes features to fewer, and the vectors with them."""
    if start.lines is not None or start.is_diagonal:
        return False
    rank, width = start.entries.shape
    return rank < width == vectors.shape[1]


def _state_after(
    problem: Problem, fold: Fold, parameters: PyTree, fixed: PyTree
) -> tuple[Any, Float[np.ndarray, "columns features"], np.ndarray | None]:
    """The state of the fold with its new vectors, the weights, and the map of codes."""
    vectors, weights, change = jax.tree.map(np.asarray, parameters)
    basis, (unit, pace, _), start, *_ = fixed
    vectors, after = vectors * unit, np.asarray(_map_after(start, change)).T
    of_codes = start.lines is not None
    if of_codes:
        # Models hold these two alone, in half of the bytes. The features of other
        # examples may lie far from 0.
        vectors, after = map(_half_precision.round_array, (vectors, after))
    elif vectors.shape[1] < len(after):
        vectors = vectors @ np.linalg.pinv(after.astype(np.float64))
    expansion = fold.state.expansion
    original = np.asarray(expansion.vectors)
    vectors = np.where(np.asarray(expansion.mask)[:, None], vectors, original)
    vectors = jax.device_put(vectors.astype(original.dtype))
    state = fold.state
    if not of_codes:
        state = state._exchange(kernel=Mapped(basis.kernel, jax.device_put(after)))
    state = problem.with_vectors(state, vectors)
    return state, weights * pace, after if of_codes else None


def _beyond_after(
    problem: Problem, fold: Fold, parameters: PyTree, fixed: PyTree
) -> Scores:
    """What `budgetjax.Model.beyond` of the state after steps says of rows."""

    @functools.cache
    def after() -> tuple[Problem, Any]:
        state, _, matrix = _state_after(problem, fold, parameters, fixed)
        return problem if matrix is None else problem._replace(map=matrix), state

    def beyond(X: np.ndarray) -> Array:
        own, state = after()
        return own.beyond(state, X)

    return beyond


@jax.jit
def _map_after(start: Start, change: Change) -> Array:
    return start.map(change)


def map_rows(X: Float[Array, "n d"], matrix: Float[Array, "r d"]) -> Array:
    """The images of rows under a map that is transposed."""
    return jnp.einsum("nd,rd->nr", X, matrix, precision="highest")


def _norm_and_scores(
    parameters: PyTree, fixed: PyTree, X: Array, first: Array
) -> tuple[Array, Array]:
    """`||w||^2` and the scores; vectors of fewer features than the map's are images."""
    vectors, weights, change = parameters
    basis, (unit, pace, _), start, *_ = fixed
    matrix = start.map(change)
    X = basis.rows(X) if start.lines is None else basis.codes(X)
    if start.lines is not None or vectors.shape[1] < matrix.shape[-1]:
        X = map_rows(X, matrix)
    else:
        basis = basis._replace(kernel=Mapped(basis.kernel, matrix.T))
    return norm_and_scores(basis, vectors * unit, weights * pace, X, first)


@jax.jit
def _scores(parameters: PyTree, fixed: PyTree, X: Array) -> Float[Array, "n columns"]:
    return _norm_and_scores(parameters, fixed, X, jnp.int32(0))[1]


def _objective(
    parameters: PyTree,
    fixed: PyTree,
    first: Array,
    X: Array,
    targets: Array,
    weights: Array,
) -> Float[Array, ""]:
    """The objective of a batch, per row."""
    _, (*_, scale), start, rows, strength, numbers, smoothing = fixed
    norm, scores = _norm_and_scores(parameters, fixed, X, first)
    if numbers is not None:
        each = jnp.sum(values(numbers, scores, targets), axis=1)
    elif scores.shape[1] == 1:
        margins = targets[:, 0] * scores[:, 0]
        # The loss of the other label is larger by the margin.
        each = jax.nn.softplus(-margins) + smoothing * margins
    else:
        right = (1 - smoothing) * (targets + 1) / 2 + smoothing / targets.shape[1]
        each = -jnp.sum(right * jax.nn.log_softmax(scores, axis=1), axis=1)
    prior = scale**2 * start.distance(parameters[2])
    return jnp.mean(weights * each) + (norm / strength + prior) / (2 * rows)
