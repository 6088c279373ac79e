"""New coefficients for the support vectors that a stream chose; see `refit`."""

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from budgetjax import _checks, _progress, losses, models, scaling
from budgetjax._pytree import Counter
from budgetjax.models import KernelModel
from budgetjax.online import driver, landmarks, registry
from budgetjax.online.algorithm import Algorithm, resume
from budgetjax.online.maintenance import Unbudgeted
from budgetjax.online.sgd import sgd
from budgetjax.refitting import held_out, metric, moving_vectors, newton, training_data
from budgetjax.refitting.held_out import Fold, Judged
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.training_data import Block, Units

# The default relative gain at which a problem counts as solved.
TOLERANCE = 1e-5
# The maximum number of passes of Newton's method.
MAX_PASSES = 100
# Kinks of a loss are smoothed over these fractions of the deviation of the residuals,
# one after the other, starting from those of least squares. Starting with the last
# takes 50 percent more passes. A fifth of it does not improve quantiles.
WIDTHS = (0.4, 0.1, 0.05)
# The smallest target for a logarithm, if all targets are 0.
LEAST = 1e-30
# Fewer examples hardly distinguish a metric from noise.
ENOUGH_FOR_METRIC = 1000
# The first Newton steps use every SAMPLE-th example, up to a larger tolerance, if that
# leaves at least ENOUGH examples per feature: fewer give a worse start.
SAMPLE, SAMPLE_TOLERANCE, ENOUGH = 8, 1e-3, 10


@losses.of_labels
def squared_hinge(score: Array, target: Array) -> Array:
    """`max(0, 1 - score target)^2`, the loss of scikit-learn's `LinearSVC`."""
    return jnp.maximum(1 - score * target, 0) ** 2


LOSSES: dict[str, Callable[..., Array]] = {
    "squared_hinge": squared_hinge,
    "logistic": losses.logistic,
    "squared": optax.losses.l2_loss,
    "huber": optax.losses.huber_loss,
    "poisson": losses.poisson,
    "gamma": losses.gamma,
}


def refit(
    state: Any,
    X: ArrayLike | Iterable[tuple[Any, ...]],
    y: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    loss: str | Callable[[Array, Array], Array] = "squared_hinge",
    penalty: ArrayLike | Sequence[ArrayLike] = 10.0,
    move_vectors: bool = False,
    learn_metric: bool | str | int = False,
    epochs: int = 20,
    tolerance: float = TOLERANCE,
    calibrate: bool = False,
    rivals: Sequence[Any] = (),
    seed: int | Array = 0,
    progress: bool = False,
) -> Any:
    r"""Recomputes the coefficients of a model: the best ones for its support vectors.

    A stream chooses good support vectors, but leaves poor coefficients. A refit keeps
    the vectors :math:`z_1 \dots z_B` and minimises, for every column of coefficients,

    .. math:: \tfrac12 \|f\|^2 + C \sum_i \ell(f(x_i), t_i), \qquad
       f = \sum_j a_j k(z_j, \cdot),

    over the given examples: those of the stream, a part of them, or new ones. A
    classifier with more than two classes has one problem per class, with targets +1 for
    the class and -1 for the others (one-versus-rest); otherwise the target is y.
    Newton's method solves the problems in orthonormal coordinates of the span of the
    :math:`z_j`. Eigenvalues of the kernel matrix that are rounding errors are left out,
    so duplicate vectors do no harm.

    The result is a state of the same algorithm, which can continue to learn from the
    new coefficients. An average of iterates restarts.

    Cost: 10 to 30 passes, each O(n B (d + B + C)) plus O(B^2) per class and example
    within the margin, and O(C B^3); the same, and a stream of at most 8,192 examples,
    for each fold that chooses or calibrates. Memory: C B^2 numbers per penalty, and
    blocks of 4096 examples; arrays are held completely, batches up to 256 MiB.

    Args:
      state: the state of any online algorithm with support vectors, a single model; or
        the result of `fit_stream`, for raw rows and their labels, where the intercept
        of a regressor is recomputed too, from the mean of the targets; or the
        `KernelModel` of a solver, also after `budgetjax.prune`, where the bias is
        recomputed too and the result is a `KernelModel`.
      X: examples, shape `(n, num_features)`; or batches, an iterable of `(X, y)` or
        `(X, y, weight)`, which are read in every pass if they do not fit into memory: a
        list, or an object whose `__iter__` reads a file again. A generator, which can
        be read only once, gives an approximate solution: the objective is a few percent
        too large.
      y: labels or targets, shape `(n,)`, or `(n, num_outputs)` for a model with several
        real outputs; None if X is batches.
      weight: shape `(n,)`, a factor of the loss of each example, at least 0.
      loss: "squared_hinge" or "logistic", for labels; "squared", which is kernel ridge
        regression with penalty :math:`1 / \alpha`, or "huber" (with delta 1), for any
        target that the model takes; "poisson" or "gamma", for a model whose scores are
        logarithms; or a convex function of a score and a target, both scalars, with a
        continuous derivative (mark it with `losses.of_labels` if targets are labels). A
        new function object is compiled anew; the parameters of a
        `jax.tree_util.Partial` can change, and have shape `()` or `(num_outputs,)`.
        `losses.smoothed` smooths kinks, such as those of quantiles, over 5 percent of
        the deviation of the errors. Losses that depend only on `score - target` are
        solved in units of the deviation of the targets, so units do not matter.
      penalty: C, or several to choose from. All are solved on four fifths of the
        examples. The penalty with the fewest mistakes on the others, or for regression
        the least loss, is solved again on all examples; among penalties that chance may
        separate, the largest is chosen. With up to 2,000 examples, each is held out
        once, in five folds. The models that choose have their own support vectors, from
        a stream of at most 8,192 of the four fifths. 10 is close to the best for clean
        labels; noise needs less.
      move_vectors: move the support vectors too, by steps of Adam on the same
        objective, which helps most for small budgets. Learning a metric moves them in
        any case.
      learn_metric: learn a linear map M of the features together with the vectors and
        coefficients: the kernel becomes `Mapped(kernel, M)`. True for a matrix, to at
        most 64 features; an integer for a matrix to that number of features; "diagonal"
        for one factor per feature. With at least 1,000 examples, "auto" keeps a learned
        matrix if it makes fewer mistakes on a fifth of them than new coefficients
        alone. With a metric, a classifier has the logistic loss over all classes.
      epochs: passes of Adam, for vectors or for the metric.
      tolerance: a problem is solved when a step would gain less than this fraction of
        its objective.
      calibrate: whether to fit the calibration for `budgetjax.probabilities`, on scores
        of examples that are held out as for several penalties. With `weight`, the
        probabilities refer to the weighted examples.
      rivals: other states that learned the same stream, for example with other kernel
        widths: the state with the least error on held-out examples is refitted. A
        learned metric, or vectors from `budgetjax.compress`, depend on all examples, so
        they make too few mistakes there.
      seed: the seed of the choice of held-out examples and of the order of steps, or a
        key of `jax.random`.
      progress: show a progress bar with the objective.

    Returns:
      The state, or model, with new coefficients, and new vectors if they move; with
      `calibrate`, in a `Labelled`.

    Raises:
      ValueError: if the examples or numbers do not fit the model, it has no support
        vectors, there are no examples, or batches that can be read only once come with
        several penalties, moving vectors, a metric, a calibration or a loss with kinks;
        or a regressor comes with `calibrate`.

    Warns:
      UserWarning: if 100 passes were not enough.

    Example:
      >>> random = np.random.default_rng(0)
      >>> X = random.uniform(-1, 1, (2000, 2)).astype(np.float32)
      >>> y = np.where(np.sin(5 * X[:, 0]) * X[:, 1] > 0, 1, -1)
      >>> state = bj.pegasos.init(
      ...     bj.RBF(gamma=5.0), num_features=2, budget=20, regularization=1e-3)
      >>> state, _ = bj.run(bj.pegasos, state, X, y)
      >>> better = bj.refit(state, X, y)
      >>> accuracy = lambda state: np.mean(np.asarray(bj.predict(state, X)) == y)
      >>> bool(accuracy(better) > accuracy(state))
      True

    References:
      Keerthi and DeCoste (2005), "A modified finite Newton method for fast solution of
      large scale linear SVMs", https://jmlr.org/papers/v6/keerthi05a.html.

      Williams and Seeger (2001), "Using the Nyström method to speed up kernel
      machines", for the coordinates:
      https://papers.nips.cc/paper/1866-using-the-nystrom-method-to-speed-up-kernel-machines.

      Zheng (2011), "Gradient descent algorithms for quantile regression with smooth
      approximation", for kinks: https://doi.org/10.1007/s13042-011-0031-2.

    Differences from the papers: many problems share each pass; the first steps use
    every eighth example; steps that fail are halved.
    """
    where = "refit"
    _checks.on_host(where, state, X, y, weight, penalty)
    model, state = state, models.unwrap(state)
    function, link = _loss(where, loss, state), models.inverse_link(state)
    of_solver = isinstance(state, KernelModel)
    if of_solver:
        model, state = _with_state(where, model, state, learn_metric, function)
    algorithm = algorithm_of(where, state, learn_metric)
    moves = _moves(where, algorithm, move_vectors, learn_metric)
    is_regressor = models.is_regressor(state)
    if _checks.flag(where, "calibrate", calibrate) and is_regressor:
        raise ValueError(f"{where}: calibrate must be False for a regressor, got True")
    _checks.positive(where, "tolerance", tolerance)
    rivals = [models.unwrap(one) for one in rivals]
    for one in rivals:
        if jax.tree.structure(one) != jax.tree.structure(state):
            raise ValueError(
                f"{where}: rivals must be states that differ from state in numbers "
                f"only, got {one!r}"
            )
    dtype, of_labels = state.expansion.vectors.dtype, losses.takes_labels(function)
    blocks, again = training_data.data(where, model, X, y, weight, of_labels=of_labels)
    # A model that predicts raw targets has an intercept, which is learned too.
    shifts = of_solver or (is_regressor and model is not state)
    problem = Problem(
        algorithm=algorithm,
        loss=function,
        link=link,
        blocks=blocks,
        again=again,
        units=Units.of_ones(models.num_columns(state)),
        # For an unknown loss, 0 is the start.
        near=functools.partial(_times, int(of_labels or not is_regressor)),
        negligible=newton.NEGLIGIBLE if of_labels else 0.0,
        constant=jnp.ones((), dtype) if shifts else None,
        # A solver's vectors are rows of the data, which no label has changed.
        streams=not of_solver,
        penalties=_penalties(where, penalty, dtype),
        moves=moves,
        form=learn_metric,
        calibrates=bool(calibrate),
        tolerance=float(tolerance),
        epochs=_checks.size(where, "epochs", epochs),
        seed=_checks.numpy_seed(where, seed),
        report=lambda text: None,
    )
    judges = moves or calibrate or bool(learn_metric) or bool(rivals)
    judges = judges or len(problem.penalties) > 1
    if not again and (judges or losses.has_kinks(function) or link == losses.EXP):
        raise ValueError(
            f"{where}: X must be batches that can be read again, such as a list, for "
            "several penalties, moving vectors, a metric, a calibration or a loss with "
            "kinks or of logarithms, got an iterator"
        )
    if again and is_regressor and not of_labels:
        problem = _in_units(problem)
    with _progress.reporting(where, progress, "passes") as report:
        problem = problem._replace(report=report)
        found, judged = _solution(problem, state, rivals, judges)
    factor = held_out.calibration_of(judged) if calibrate else None
    is_bare, model = model is state, _with_solution(problem, model, found)
    # The calibration of the old coefficients does not apply.
    return models.with_calibration(model, factor) if calibrate or not is_bare else model


def algorithm_of(where: str, state: Any, learn_metric: Any = False) -> Algorithm:
    """The algorithm of a state, after a check that the state can be refitted."""
    algorithm = registry.of_state(where, state)
    _checks.matrix_dtype(where, state.expansion.vectors.dtype)
    checked_metric(where, learn_metric, models.num_features(where, state))
    if int(state.expansion.num_active) == 0:
        raise ValueError(f"{where}: state must have support vectors, got none")
    return algorithm


def _moves(
    where: str, algorithm: Algorithm, move_vectors: Any, learn_metric: Any
) -> bool:
    """Whether vectors move without a metric, after checks of both arguments."""
    moves = bool(_checks.flag(where, "move_vectors", move_vectors))
    learns = learn_metric not in (False, "auto")
    if (moves or learns) and algorithm.with_vectors is None:
        name = "move_vectors" if moves else "learn_metric"
        raise ValueError(
            f"{where}: {name} must be False for {algorithm.name}, whose features are "
            "no support vectors"
        )
    if moves and learns:
        raise ValueError(
            f"{where}: move_vectors must be False with learn_metric={learn_metric!r}, "
            "which moves the vectors, got True"
        )
    return moves


def _with_state(
    where: str, model: Any, known: KernelModel, learn_metric: Any, loss: Any
) -> tuple[Any, Any]:
    """The model of a solver with an online state of its vectors inside; the state."""
    if learn_metric is not False:
        raise ValueError(
            f"{where}: learn_metric must be False for the model of a solver, got "
            f"{learn_metric!r}"
        )
    whole = models.unwrap_labelled(model)
    if isinstance(whole, models.Labelled) and type(whole.model) is tuple:
        raise ValueError(
            f"{where}: state must be a single model, got {len(whole.model)} in one"
        )
    vectors = models.support(known).vectors
    number, width = vectors.shape
    if not number:
        raise ValueError(f"{where}: state must have support vectors, got none")
    columns, values = models.num_columns(known), models.is_regressor(known)
    state = sgd.init(
        known.kernel,
        num_features=width,
        budget=number,
        num_classes=None if values else max(2, columns),
        num_outputs=columns if values else 1,
        loss=None if losses.takes_labels(loss) or not values else loss,
        maintenance=Unbudgeted(),
        dtype=vectors.dtype,
    )
    expansion, _ = landmarks.given(where, state.kernel, state.expansion, vectors)
    state = state._replace(expansion=expansion)
    return models.rewrap(whole, state), state


# A state, its features, and their weights, one row per column of coefficients.
Solution = tuple[Any, Basis, Float[np.ndarray, "columns features"]]


def _in_units(problem: Problem) -> Problem:
    """The problem in units in which rates, tolerances and outputs are comparable."""
    loss, read = problem.loss, problem.blocks
    if problem.link == losses.EXP:
        mean = np.mean(training_data.first(read(), lambda block: block.targets), axis=0)
        return problem._replace(near=functools.partial(_logarithms, mean))
    if not losses.of_differences(loss):
        return problem
    shifts = problem.constant is not None
    units = Units.of(read(), losses.is_robust(loss), shifts)
    return problem._replace(
        loss=losses.in_units(loss, units.unit),
        blocks=lambda: map(units.apply, read()),
        units=units,
        near=units.near,
        negligible=newton.NEGLIGIBLE,
    )


def _solution(
    problem: Problem, state: Any, rivals: Sequence[Any], judges: bool
) -> tuple[Solution, list[Judged]]:
    """The best of the states, refitted, and the models for the calibration."""
    rows = sum(np.sum(block.weights > 0) for block in problem.blocks()) if judges else 0
    deal = functools.partial(
        _folds, problem, held_out.FOLDS if rows <= held_out.FEW else 1
    )
    penalty, folds, judged, found = problem.penalties[0], [], [], None
    learns = problem.form not in (False, "auto")
    chooses = (
        problem.form == "auto"
        and problem.algorithm.with_vectors is not None
        and state.kernel.stationary
        and rows >= ENOUGH_FOR_METRIC
    )
    once = problem.calibrates and not (learns or problem.moves)
    if rivals or len(problem.penalties) > 1 or chooses or once:
        tried = [(one, *_chosen(problem, deal(one))) for one in (state, *rivals)]
        state, penalty, judged, _ = min(tried, key=lambda each: each[-1])
        folds = [fold for fold, _ in judged]
    elif learns or problem.calibrates:
        folds = deal(state)
    if learns or chooses:
        rival = judged[0].scores if chooses else None
        found = metric.learn(problem, folds[0], penalty, rival)
    if found is not None:
        learned, weights, scores = found
        state, judged = resume(state, learned), [Judged(folds[0], scores)]
        if losses.takes_labels(problem.loss):
            # The weights of the logistic loss refer to the root of the initial vectors.
            return (state, folds[0].basis, weights), judged
    if problem.moves and problem.calibrates:
        own = [_fit(problem, penalty, fold.state, fold.learn) for fold in folds]
        judged = [
            Judged(fold, functools.partial(newton.scores, *each[1:]))
            for fold, each in zip(folds, own, strict=True)
        ]
    return _fit(problem, penalty, state, problem.blocks), judged


def _with_solution(problem: Problem, model: Any, solution: Solution) -> Any:
    """The model with the state of the solution inside, and its weights and bias."""
    state, basis, weights = solution
    weights = (weights * problem.units.unit[:, None]).astype(weights.dtype)
    shift = np.zeros(0)
    if problem.constant is not None:
        shift = weights[:, -1] + problem.units.origin
        shift = shift if len(weights) > 1 else shift[0]
        weights = weights[:, :-1]
    state = with_weights("refit", problem.algorithm, state, basis, weights)
    if not problem.streams:
        bias = jnp.asarray(shift, weights.dtype)
        state = models.to_kernel_model(state)._replace(
            bias=bias, inverse_link=problem.link
        )
    elif problem.constant is not None:
        model = models.add_intercept(model, shift)
    return models.rewrap(model, state)


def _per_column(basis: Basis, penalties: list[float]) -> Float[np.ndarray, " problems"]:
    """The penalty of every problem: each penalty is repeated for all columns."""
    each = np.repeat(penalties, basis.expansion.num_columns)
    return each.astype(basis.root.dtype)


def _folds(problem: Problem, number: int, state: Any) -> list[Fold]:
    """Folds, each with the vectors that a stream of its training examples chooses."""
    found = []
    for i in range(number):
        deal = functools.partial(held_out.part, problem.blocks, problem.seed, i)
        learn, held = (functools.partial(deal, keep) for keep in (False, True))
        own = state
        if problem.streams:
            own = held_out.stream(problem.algorithm, state, learn, problem.seed)
        found.append(Fold(problem, learn, held, own, problem.basis(own)))
    return found


def _chosen(problem: Problem, folds: list[Fold]) -> tuple[float, list[Judged], float]:
    """The penalty with the least held-out error, its models, and the error.

    Among penalties that chance may separate, the largest is chosen.
    """
    penalties, size = problem.penalties, len(problem.penalties)
    errors, products, found = np.zeros(size), np.zeros((size, size)), []
    for fold in folds:
        weights = _solved(problem, fold.basis, fold.learn, penalties)
        more = fold.errors(functools.partial(newton.scores, fold.basis, weights))
        errors, products = errors + more[0], products + more[1]
        found.append(np.split(weights, size))
    least = int(np.argmin(errors))
    allowed = errors[least] + held_out.LEEWAY * held_out.chance(products, least)
    best = int(np.argmax(np.where(errors <= allowed, penalties, 0)))
    judged = [
        Judged(fold, functools.partial(newton.scores, fold.basis, each[best]))
        for fold, each in zip(folds, found, strict=True)
    ]
    return penalties[best], judged, float(errors[least])


def _fit(
    problem: Problem, penalty: float, state: Any, blocks: Callable[[], Iterator[Block]]
) -> Solution:
    """The solution for a state, with moved vectors if the problem moves them."""
    basis = problem.basis(state)
    if not problem.again:
        each = _per_column(basis, [penalty])
        weights = newton.one_pass(problem.loss, basis, blocks(), each, problem.report)
        return state, basis, weights
    weights = _solved(problem, basis, blocks, [penalty])
    if not problem.moves:
        return state, basis, weights
    vectors = moving_vectors.move(problem, basis, blocks, weights, penalty)
    state = problem.with_vectors(state, vectors)
    basis = problem.basis(state)
    return state, basis, _solved(problem, basis, blocks, [penalty])


def _solved(
    problem: Problem,
    basis: Basis,
    blocks: Callable[[], Iterator[Block]],
    penalties: list[float],
) -> Float[np.ndarray, "problems features"]:
    """The weights that minimise the objective."""
    minimise = functools.partial(
        newton.minimise,
        basis=basis,
        max_passes=MAX_PASSES,
        negligible=problem.negligible,
        report=problem.report,
    )
    each, kinks = _per_column(basis, penalties), losses.has_kinks(problem.loss)
    start, rows = newton.least_squares(
        basis, map(problem.near, blocks()), each, basis.expansion.num_columns
    )

    def rounded(weights: Any, width: float) -> Callable[..., Array]:
        if not kinks:
            return problem.loss
        deviation = _unexplained(basis, blocks(), weights)
        return losses.smoothed(problem.loss, width * deviation)

    *first, last = WIDTHS
    if rows >= SAMPLE * ENOUGH * basis.num_features:
        start, _, _ = minimise(
            rounded(start, first[0]),
            blocks=lambda: training_data.sampled(blocks(), SAMPLE),
            weights=start,
            penalties=each * SAMPLE,
            tolerance=SAMPLE_TOLERANCE,
        )
    minimise = functools.partial(minimise, blocks=blocks, penalties=each)
    for width in first if kinks else ():
        loss = rounded(start, width)
        start, _, _ = minimise(loss, weights=start, tolerance=SAMPLE_TOLERANCE)
    weights, value, converged = minimise(
        rounded(start, last), weights=start, tolerance=problem.tolerance
    )
    if not np.all(np.isfinite(value)):
        raise ValueError(
            "refit: the objective must be finite, got NaN or infinity: "
            + driver.explain_overflow(basis, jnp.asarray(next(blocks()).X))
        )
    if not np.all(converged):
        warnings.warn(
            f"refit: {np.sum(~converged)} of {len(converged)} columns have not "
            f"converged in {MAX_PASSES} passes",
            stacklevel=5,
        )
    return weights


def _times(factor: int, block: Block) -> Block:
    return block._replace(targets=factor * block.targets)


def _logarithms(mean: Float[np.ndarray, " columns"], block: Block) -> Block:
    """The examples with logarithms of the targets, each averaged with their mean."""
    targets = np.log(np.maximum((block.targets + mean) / 2, LEAST))
    return block._replace(targets=targets)


def _unexplained(
    basis: Basis,
    blocks: Iterator[Block],
    weights: Float[np.ndarray, "problems features"],
) -> Float[np.ndarray, " problems"]:
    """The robust deviation of the residuals of the first rows."""

    def away(block: Block) -> np.ndarray:
        scores = newton.scores(basis, weights, block.X)
        return np.tile(block.targets, len(weights) // block.targets.shape[1]) - scores

    left = training_data.first(blocks, away)
    _, deviation = scaling.centre_and_deviation(left, robust=True)
    # The deviation of the targets is 1; a perfect fit has no residuals to measure.
    return np.maximum(deviation, 1e-3)


def with_weights(
    where: str,
    algorithm: Algorithm,
    state: Any,
    basis: Basis,
    weights: Float[np.ndarray, "problems features"],
) -> Any:
    """The state with these weights, ready to continue learning."""
    state, finite = _weighed(algorithm, state, basis.root, weights)
    if not bool(finite):
        raise ValueError(
            f"{where}: every coefficient must be finite, got NaN or infinity: "
            + driver.explain_overflow(
                basis, basis.expansion.vectors[basis.expansion.mask]
            )
        )
    average = state.expansion.average
    if average is not None:
        average = average._replace(
            start=Counter.of(max(int(average.start), int(state.num_seen) + 1)),
            since=jnp.zeros_like(average.since),
            total=jnp.zeros_like(average.total),
        )
    return state._replace(expansion=state.expansion._replace(average=average))


@functools.partial(jax.jit, static_argnums=0)
def _weighed(
    algorithm: Algorithm, state: Any, root: Array, weights: Array
) -> tuple[Any, Bool[Array, ""]]:
    """The state with these weights and its old average; and whether all are finite."""
    state = algorithm.refresh_caches(algorithm.with_weights(state, root, weights))
    return state, jnp.all(jnp.isfinite(state.expansion.terms))


def checked_metric(where: str, given: Any, width: int) -> None:
    """Raises if this is not a form of a metric for `width` features."""
    if isinstance(given, bool | np.bool_) or given in ("auto", "diagonal"):
        return
    if not isinstance(given, int | np.integer) or not 1 <= given <= width:
        raise ValueError(
            f"{where}: learn_metric must be True, False, 'auto', 'diagonal', or a rank "
            f"of 1 to {width}, the number of features, got {given!r}"
        )


def _loss(where: str, loss: str | Callable[..., Any], state: Any) -> Callable[..., Any]:
    """The loss of this name, or the function itself, if valid for the state."""
    given = LOSSES.get(loss) if isinstance(loss, str) else loss
    columns, link = models.num_columns(state), models.inverse_link(state)
    row = jax.ShapeDtypeStruct((1, columns), jnp.float32)
    numbers = jax.tree.leaves(given) if isinstance(given, Partial) else []
    good = callable(given)
    good = good and all(np.shape(leaf) in ((), (columns,)) for leaf in numbers)
    if callable(given):
        try:
            each = newton.of_problems(given, columns, row.dtype)
            value = jax.eval_shape(moving_vectors.values, each, row, row)
            good = good and value.shape == row.shape
            good = good and jnp.issubdtype(value.dtype, jnp.floating)
        except Exception:  # whatever such a function may raise
            good = False
    if given is None or not good:
        raise ValueError(
            f"{where}: loss must be one of {', '.join(LOSSES)}, or a function of a "
            f"score and a target, scalars, with numbers of shape () or ({columns},), "
            f"one per column, got {loss!r}"
        )
    if (link == losses.EXP) != (losses.inverse_link(given) == losses.EXP):
        mean = "logarithms of values" if link == losses.EXP else "labels or values"
        raise ValueError(
            f"{where}: loss must be one whose scores mean {mean}, as those of the "
            f"state, got {loss!r}"
        )
    if losses.takes_labels(given) and models.target_shape(state):
        raise ValueError(
            f"{where}: loss must be 'squared', 'huber' or another one of numbers for "
            f"several real outputs, got {loss!r}"
        )
    return given


def _penalties(where: str, penalty: Any, dtype) -> list[float]:
    """The list of penalties, of one or more."""
    given = np.atleast_1d(np.asarray(penalty, object))
    if given.ndim != 1 or not given.size:
        raise ValueError(
            f"{where}: penalty must be a number, or several to choose from, got "
            f"{penalty!r}"
        )
    checked = [_checks.positive(where, "penalty", one) for one in given]
    return [float(_checks.as_leaf(where, "penalty", one, dtype)) for one in checked]
