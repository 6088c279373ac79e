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

For labels the loss is the logistic one over all classes, which depends on every
example: the one-versus-rest squared hinge was a point less accurate on letter. A part
of each label, the smoothing, goes to the other of two classes or is divided among
several. It is a share of the error rate on held-out examples, since labels without
noise need none.

Not worth it, on 18 data sets: an average of the iterates, other rates, a larger prior,
several small models instead of one.

A map to fewer features takes the vectors with it: the steps move their images `z M`,
which is as accurate as moving z and a third faster, and z is a preimage of the result.

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
import scipy.linalg
from jaxtyping import Array, Float, PyTree

from budgetjax import _checks, _half_precision, losses
from budgetjax._sharding import Shards
from budgetjax.kernels import Kernel, Mapped
from budgetjax.refitting import training_data
from budgetjax.refitting.adam import EPOCHS, Steps, run_adam
from budgetjax.refitting.held_out import MANY, Fold, Scores
from budgetjax.refitting.moving_vectors import norm_and_scores, unit_of, values
from budgetjax.refitting.newton import of_problems
from budgetjax.refitting.problem import Problem

# Examples per step: twice the number for moving vectors, in half of the time.
BATCH = 256
# The first rate of Adam, and factors of it: for vectors, in units of the deviation of
# their features, and for the entries of the map, divided by the root of the number of
# features, since all of them move a point together.
# Scales of features are powers of e.
RATE, VECTOR_RATE, MAP_RATE, SCALE_RATE = 0.1, 0.3, 1.2, 0.6
# Up to this many orthonormal features and steps, weights move by the rate; beyond, by
# the rate divided by the root of the ratio.
FEATURES, STEPS = 100, 1000
# With more classes than this, weights move faster by the root of the ratio, which is a
# point on the 26 classes of letter.
CLASSES = 3
# The unit of scores of numbers, whose deviation is 1. It gives them the magnitude of
# scores of classes.
SCORES = 0.1
# The logistic loss needs larger weights than the squared hinge: a point on letter.
STRENGTH = 10.0
# The share of the error rate that is the smoothing, and its maximum. A fixed smoothing
# of 0.05 doubled the errors on the checkerboard, and made a third more on ijcnn1.
SMOOTHING, MOST_SMOOTHING = 0.5, 0.05
# The weight of the map's distance from its start, in examples. Without it, the map
# overfits the 256 features of usps.
PRIOR = 10.0
# The fewest and the most passes over many examples; and the steps in all, if these are
# between. Of twenty tables, electricity had 9 percent fewer errors with 20 to 60 passes
# than with 20, and letter and covtype 15 percent fewer.
EPOCHS_OVER_MANY, STEPS_OVER_MANY = (27, 80), 8000
# Fewer steps per epoch that was asked for hardly change the metric, so small data take
# more epochs. Each has at least FEWEST_AT_ONCE steps before it is judged: fewer take
# longer, and with 30 there were 4 percent more errors.
FEWEST_STEPS, FEWEST_AT_ONCE = 30, 8
# More features are mapped to this number: a larger map is slower and no more accurate.
# Codes of models of up to FEW_VECTORS are mapped to half of it: with all of it, sixteen
# tables had 0.3 +- 1.2 percent fewer errors with 100 vectors, but fits took a third
# longer, and files were twice as large. With 500, letter and electricity had 2 to 9
# percent fewer errors.
WIDEST, WIDEST_OF_CODES, FEW_VECTORS = 64, 32, 256
# The number of examples for the principal directions that start a map to fewer
# features.
DIRECTIONS_OF = 4096


def count_passes(rows: int) -> int:
    """The default number of passes over this number of examples."""
    fewest, most = EPOCHS_OVER_MANY
    over_many = max(fewest, min(most, STEPS_OVER_MANY * BATCH // max(rows, 1)))
    return EPOCHS if rows <= MANY else over_many


def init_map(
    problem: Problem, kernel: Kernel, vectors: Float[Array | np.ndarray, "rows d"]
) -> np.ndarray:
    """The initial map: that of a mapped kernel, the identity, or principal directions.

    Directions are scaled so that the mean squared distance of examples stays the same.
    The average outer product of the gradients of a refit is not a better start.
    """
    if isinstance(kernel, Mapped):
        return np.asarray(kernel.matrix)
    form, (width, dtype) = problem.form, (vectors.shape[1], vectors.dtype)
    if form == "diagonal":
        return np.ones(width, dtype)
    is_small = problem.of_codes and len(vectors) <= FEW_VECTORS
    widest = WIDEST_OF_CODES if is_small else WIDEST
    rank = min(width, widest) if isinstance(form, bool | str) else form
    is_full = width - problem.padding <= rank
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
    every = -(
        -training_data.count_rows(problem.blocks(), np.count_nonzero) // DIRECTIONS_OF
    )
    given, shards = [], Shards()
    for block in problem.blocks():
        shards = block.shards
        given.append(block.X[block.weights > 0][::every])
    rows = np.concatenate(given)
    some = problem.features(rows).astype(np.float64)
    # The examples of other processes stay there.
    mean = shards.total(np.sum(some, axis=0)) / (number := shards.total(len(some)))
    covariance = shards.total((some - mean).T @ (some - mean)) / max(1, number - 1)
    most = width - rank, width - 1
    try:
        variances, directions = scipy.linalg.eigh(covariance, subset_by_index=most)
    except scipy.linalg.LinAlgError:
        # LAPACK's fastest method may fail on equal variances, as those of the codes of
        # names that occur once. This one finds all directions.
        variances, directions = scipy.linalg.eigh(covariance, driver="evd")
        variances, directions = variances[-rank:], directions[:, -rank:]
    kept = variances.sum()
    scale = np.sqrt(np.trace(covariance) / kept) if kept > 0 else 1.0
    return (scale * directions[:, ::-1]).astype(dtype)


class Trial(NamedTuple):
    """A metric learned on a fold, which can be learned on all examples.

    Attributes:
      scores: the scores of the model that did not learn the held-out examples.
      rounds: whether the map and the images of the vectors are those of float16.
      finish: learns all examples: the state of the fold with its new vectors, and the
        weights, which refer to the root of the fold's basis.
    """

    scores: Scores
    rounds: bool
    finish: Callable[[], tuple[Any, Float[np.ndarray, "columns features"]]]


def try_metric(problem: Problem, fold: Fold, penalty: float) -> Trial:
    """Learns a metric on the examples of a fold.

    Cost per epoch: O(n (d r + B (r + C))) for a map to r features, and O(B d^2) more
    per step if r = d. One factor per feature counts as r = d without the terms of maps.
    """
    loss, blocks, kernel = problem.loss, problem.blocks, fold.state.kernel
    expansion = fold.state.expansion
    mask, padding = np.asarray(expansion.mask), problem.padding
    vectors = np.where(mask[:, None], expansion.vectors, 0)
    matrix = init_map(problem, kernel, vectors[mask])
    inner = kernel.kernel if isinstance(kernel, Mapped) else kernel
    basis = fold.basis._replace(kernel=inner)
    rows, count = (training_data.count_rows(read()) for read in (blocks, fold.learn))
    columns = expansion.num_columns
    if matrix.ndim == 2 and matrix.shape[1] < len(matrix):
        vectors = vectors @ matrix
    unit = VECTOR_RATE * unit_of(vectors[mask])
    kind = unit.dtype.type
    of_labels = losses.takes_labels(loss)
    assert problem.epochs is not None, "the draft has counted them"
    once = max(FEWEST_AT_ONCE, -(-count // BATCH))
    epochs = max(problem.epochs, -(-FEWEST_STEPS * problem.epochs // once))
    more = len(mask) * epochs * once / (FEATURES * STEPS)
    faster = max(1, columns / CLASSES) if of_labels else 1
    units = unit, *_scales(of_labels, faster / more, len(matrix) - padding, kind)
    strength = kind(STRENGTH * penalty)
    held = training_data.total(fold.held(), lambda block: float(block.weights.sum()))
    numbers = None if of_labels else of_problems(loss, columns, kind)
    fixed = basis, units, matrix, kind(count), strength, numbers, kind(MOST_SMOOTHING)
    weights = np.zeros((columns, basis.num_features), unit.dtype)
    steps = functools.partial(
        run_adam,
        _objective,
        kind=Steps(BATCH, RATE, FEWEST_AT_ONCE),
        seed=problem.seed,
        report=lambda mean: problem.report(f"metric, objective {mean:.6g} per example"),
    )
    # A diagonal map is scales alone.
    scales = 0 * matrix[:, 0] if matrix.ndim == 2 else None
    start = jax.device_put((vectors / unit, weights, (0 * matrix.T, scales)))

    def judge(parameters: PyTree) -> tuple[float, PyTree]:
        """The error on the held-out examples, and the smoothing that it asks for."""
        errors, _ = fold.errors(functools.partial(_scores, parameters, fixed))
        smoothing = kind(min(MOST_SMOOTHING, SMOOTHING * errors[0] / held))
        return float(errors[0]), (*fixed[:-1], smoothing)

    learned, best = steps(start, fixed, blocks=fold.learn, epochs=epochs, judge=judge)

    def finish() -> tuple[Any, Float[np.ndarray, "columns features"]]:
        error, (*rest, smoothing) = judge(learned)
        whole = *rest[:3], kind(rows), *rest[4:], smoothing
        last, _ = steps(learned, whole, blocks=blocks, epochs=-(-best // 2))
        # More mistakes on examples that were learned meanwhile: the steps have failed.
        last = learned if judge(last)[0] > error else last
        return _state_after(problem, fold, last, whole)

    scores = functools.partial(_scores, learned, fixed)
    return Trial(scores, _rounds(problem, matrix), finish)


def _scales(of_labels: bool, factor: float, features: int, kind: type) -> tuple:
    """The units of the weights, of the scores and of the map."""
    scale = kind(1 if of_labels else SCORES)
    return scale * kind(factor**0.5), scale, kind(MAP_RATE / features**0.5)


def _state_after(
    problem: Problem, fold: Fold, parameters: PyTree, fixed: PyTree
) -> tuple[Any, Float[np.ndarray, "columns features"]]:
    """The state of the fold with its new vectors and map, and the weights."""
    vectors, weights, change = jax.tree.map(np.asarray, parameters)
    basis, (unit, pace, *_), matrix, *_ = fixed
    vectors, after = vectors * unit, np.asarray(_map_after(change, fixed))
    if _rounds(problem, matrix):
        vectors, after = map(_half_precision.round_array, (vectors, after))
    if vectors.shape[1] < len(matrix):
        vectors = vectors @ np.linalg.pinv(after.astype(np.float64))
    expansion = fold.state.expansion
    original = np.asarray(expansion.vectors)
    vectors = np.where(np.asarray(expansion.mask)[:, None], vectors, original)
    vectors, after = jax.device_put((vectors.astype(original.dtype), after))
    state = fold.state._exchange(kernel=Mapped(basis.kernel, after))
    return problem.with_vectors(state, vectors), weights * pace


def _rounds(problem: Problem, matrix: np.ndarray) -> bool:
    """Whether a map and the images of vectors are rounded to float16.

    Those of codes are, of which models hold these two alone, in half of the bytes. The
    features of other examples may lie far from 0.
    """
    return problem.of_codes and matrix.shape[-1] < len(matrix)


@jax.jit
def _map_after(change: tuple[Any, Any], fixed: PyTree) -> Array:
    """The map after a change of its matrix and of the logarithms of its scales."""
    _, (*_, map_rate), matrix, *_ = fixed
    scales = change[1]
    if scales is None:
        return matrix + map_rate * change[0]
    return (jnp.exp(SCALE_RATE * scales)[None] * (matrix.T + map_rate * change[0])).T


def _norm_and_scores(
    parameters: PyTree, fixed: PyTree, X: Array, first: Array
) -> tuple[Array, Array]:
    """`||w||^2` and the scores; vectors of fewer features than the map's are images."""
    vectors, weights, change = parameters
    basis, (unit, pace, *_), *_ = fixed
    matrix, X = _map_after(change, fixed), basis.rows(X)
    if vectors.shape[1] < len(matrix):
        X = jnp.matmul(X, matrix, precision="highest")
    else:
        basis = basis._replace(kernel=Mapped(basis.kernel, matrix))
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
    _, (*_, scale, map_rate), _, rows, strength, numbers, smoothing = fixed
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
    change, scales = parameters[2]
    prior = jnp.sum((map_rate * change) ** 2)
    if scales is not None:
        prior += jnp.sum((SCALE_RATE * scales) ** 2)
    prior = PRIOR * scale**2 * prior
    return jnp.mean(weights * each) + (norm / strength + prior) / (2 * rows)
