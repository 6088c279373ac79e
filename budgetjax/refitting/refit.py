"""New coefficients for the support vectors that a stream chose; see `refit`."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import _checks, _progress, _sharding, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.model import KernelModel, Model
from budgetjax.online import span
from budgetjax.online.learners.sgd import SGD
from budgetjax.online.maintenance.removal import Unbudgeted
from budgetjax.online.state import State
from budgetjax.refitting import moving_vectors, newton, training_data
from budgetjax.refitting.draft import Draft, start_draft
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.training_data import Block, Units
from budgetjax.tables.encoding import Coder
from budgetjax.tables.table_model import TableModel

# The default relative gain at which a problem counts as solved.
TOLERANCE = 1e-5
# The smallest target for a logarithm, if all targets are 0.
LEAST = 1e-30


@losses.classification_loss
def squared_hinge(score: Array, target: Array) -> Array:
    """`max(0, 1 - score target)^2`, the loss of scikit-learn's `LinearSVC`."""
    return jnp.maximum(1 - score * target, 0) ** 2


# The argument `learn_metric`: whether, "auto", "diagonal", or the rank of the map.
Metric: TypeAlias = bool | str | int

LOSSES: dict[str, Callable[..., Array]] = {
    "squared_hinge": squared_hinge,
    "logistic": losses.logistic,
    "squared": optax.losses.l2_loss,
    "huber": optax.losses.huber_loss,
    "poisson": losses.poisson,
    "gamma": losses.gamma,
}


@names_errors("refit")
@_sharding.without_context_mesh
def refit(
    state: Any,
    X: ArrayLike | Iterable[tuple[Any, ...]],
    y: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    loss: str | Callable[[Array, Array], Array] = "squared_hinge",
    penalty: ArrayLike | Sequence[ArrayLike] = 10.0,
    move_vectors: bool = False,
    learn_metric: Metric = False,
    epochs: int | None = None,
    tolerance: float = TOLERANCE,
    calibrate: bool = False,
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

    Rows that are divided among devices, or among processes by `budgetjax.shard_rows`,
    stay there: a pass adds the sums of all devices once, C B^2 numbers, and a step of
    Adam its slopes. Only held-out choices send rows, a sample of at most 8,192. Every
    process must make the same call, and gets the same result.

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
        continuous derivative (mark it with `losses.classification_loss` if targets are
        labels). A new function object is compiled anew; the parameters of a
        `jax.tree_util.Partial` can change, and have shape `()` or `(num_outputs,)`.
        `losses.smooth` smooths kinks, such as those of quantiles, over 5 percent of
        the deviation of the errors. Losses that depend only on `score - target` are
        solved in units of the deviation of the targets, so units do not matter.
      penalty: C, or several to choose from. All are solved on four fifths of the
        examples. The penalty with the fewest mistakes on the others, or for regression
        the least loss, is solved again on all examples; of equals it is the largest.
        With up to 2,000 examples, each is held out once, in five folds. The models that
        choose have their own support vectors, from a stream of at most 8,192 of the
        four fifths. 10 is close to the best for clean labels; noise needs less.
      move_vectors: move the support vectors too, by steps of Adam on the same
        objective, which helps most for small budgets. Learning a metric moves them in
        any case.
      learn_metric: learn a linear map M of the features together with the vectors and
        coefficients: the kernel becomes `Mapped(kernel, M)`. True for a matrix, to at
        most 64 features; an integer for a matrix to that number of features; "diagonal"
        for one factor per feature. Of a model whose encoding has a map, as that of
        `fit_encoding`, this map is learned, to as many features as it has; it and the
        vectors are rounded to the 11 bits of float16, which halves model files. With at
        least as many examples as features or columns, "auto" keeps a learned map if it
        makes fewer mistakes on a fifth of them than new coefficients alone. With a
        metric, a classifier has the logistic loss over all classes, with labels
        smoothed by the error rate, at most 5 percent.
      epochs: passes of Adam, for vectors or for the metric; None is 20 for vectors, and
        for a metric 80, or fewer of many examples, down to 27. For a
        metric, a fifth of up to 10,000 examples, or 1,000 to 2,000 of more, choose the
        best pass, and half as many passes over all examples follow.
      tolerance: a problem is solved when a step would gain less than this fraction of
        its objective.
      calibrate: whether to fit the calibration for `budgetjax.probabilities`, or of a
        regressor for `budgetjax.variance` and `budgetjax.predict_interval`, on scores
        of examples that are held out as for several penalties. With `weight`, it refers
        to the weighted examples.
      seed: the seed of the choice of held-out examples and of the order of steps, or a
        key of `jax.random`.
      progress: show a progress bar with the objective.

    Returns:
      The state, or model, with new coefficients, and new vectors if they move; with
      `calibrate`, in a `TableModel`.

    Raises:
      ValueError: if the examples or numbers do not fit the model, it has no support
        vectors, there are no examples, or batches that can be read only once come with
        several penalties, moving vectors, a metric, a calibration or a loss with kinks;
        or `calibrate` comes with a loss of quantiles, or of logarithms.

    Warns:
      UserWarning: if 100 passes were not enough.

    Example:
      >>> random = np.random.default_rng(0)
      >>> X = random.uniform(-1, 1, (2000, 2)).astype(np.float32)
      >>> y = np.where(np.sin(5 * X[:, 0]) * X[:, 1] > 0, 1, -1)
      >>> state = bj.Pegasos(regularization=1e-3).init(
      ...     bj.RBF(gamma=5.0), num_features=2, budget=20)
      >>> state, _ = bj.run(state, X, y)
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
    with _progress.progress_bar("refit", progress, "passes") as report:
        draft = start_refit(
            *(state, X, y),
            weight=weight,
            loss=loss,
            penalty=penalty,
            move_vectors=move_vectors,
            learn_metric=learn_metric,
            epochs=epochs,
            tolerance=tolerance,
            calibrate=calibrate,
            seed=seed,
            report=report,
        )
        return draft.learn_metric().finish()


def start_refit(
    state: Any,
    X: Any,
    y: Any = None,
    *,
    weight: Any = None,
    loss: str | Callable[[Array, Array], Array],
    penalty: Any,
    move_vectors: bool,
    learn_metric: Metric,
    epochs: int | None = None,
    tolerance: float,
    calibrate: bool,
    seed: Any,
    report: Callable[[str], object],
) -> Draft:
    """The first part of `refit`: the penalty, by held-out examples."""
    _checks.check_not_traced(state, X, y, weight, penalty)
    model = find_model(state)
    given = model.inner
    function = _check_loss(loss, given)
    of_solver = isinstance(given, KernelModel)
    # An estimator also knows the names in its columns.
    reader = state
    if of_solver:
        reader = model = _wrap_solver_model(model, given, learn_metric, function)
    inner = model.inner
    check_state(inner, learn_metric)
    _check_map(model, learn_metric)
    moves = _check_moves(inner, move_vectors, learn_metric)
    calibrates = _checks.flag("calibrate", calibrate)
    if calibrates and inner.is_regressor and not losses.is_centred(function):
        wanted = "be False for a loss of quantiles, or one whose scores are logarithms"
        raise ArgumentError("calibrate", wanted, "True")
    _checks.positive("tolerance", tolerance)
    penalties = _check_penalties(penalty, inner.dtype)
    newton.check_memory(inner, len(penalties))
    read = functools.partial(training_data.read_examples, reader, X, y, weight)
    problem = _pose_problem(
        *read(
            of_labels=losses.takes_labels(function),
            learns_map=learn_metric is not False,
        ),
        model=model,
        loss=function,
        # A solver's vectors are rows of the data, which no label has changed.
        streams=not of_solver,
        penalties=penalties,
        moves=moves,
        form=learn_metric,
        calibrates=calibrates,
        tolerance=float(tolerance),
        epochs=None if epochs is None else _checks.size("epochs", epochs),
        seed=_checks.numpy_seed(seed),
        report=report,
    )
    return start_draft(problem)


def _pose_problem(
    blocks: Callable[[], Iterator[Block]],
    again: bool,
    coder: Coder | None,
    *,
    model: Any,
    loss: Callable[..., Array],
    streams: bool,
    **choices: Any,
) -> Problem:
    """The problem on these examples, in units of its own if possible."""
    state, of_labels = model.inner, losses.takes_labels(loss)
    values = state.is_regressor and not of_labels
    codes, matrix = TableModel.of(model).encoding, None
    learns = choices["form"] is not False
    if learns and codes is not None and codes.map is not None:
        given = np.asarray(codes.map, state.dtype)
        more = training_data.pad_codes(len(given)) - len(given)
        matrix = np.pad(given, ((0, more), (0, 0)))
    # A model that predicts raw targets has an intercept, which is learned too.
    shifts = not streams or (state.is_regressor and model is not state)
    problem = Problem(
        model=model,
        loss=loss,
        blocks=blocks,
        again=again,
        units=Units.of_ones(state.num_columns),
        # For an unknown loss, 0 is the start.
        near=lambda block: block._replace(targets=int(not values) * block.targets),
        negligible=newton.NEGLIGIBLE if of_labels else 0.0,
        constant=jnp.ones((), state.dtype) if shifts else None,
        coder=coder,
        encoding=None if matrix is None else codes,
        map=matrix,
        streams=streams,
        **choices,
    )
    if not again and problem.rereads:
        raise ArgumentError(
            "X",
            "be batches that can be read again, such as a list, for "
            "several penalties, moving vectors, a metric, a calibration "
            "or a loss with kinks or of logarithms",
            "an iterator",
        )
    return _rescale(problem) if again and values else problem


def find_model(state: Any) -> Model:
    """The model to refit, that of a fitted estimator."""
    model = getattr(state, "model_", state)
    if not isinstance(model, Model):
        check_state(model)
    return model


def check_state(state: Any, learn_metric: Metric = False) -> None:
    """Raises unless this is a state that can be refitted."""
    if not isinstance(state, State):
        wanted = "be of a learner, with a kernel and support vectors"
        raise ArgumentError("state", wanted, _checks.kind_name(state))
    _checks.check_invertible_dtype(state.dtype)
    state.check_single()
    check_metric(learn_metric, state.num_features)
    if int(state.num_active) == 0:
        raise ArgumentError("state", "have support vectors", "none")


def _check_map(model: Any, learn_metric: Metric) -> None:
    """Raises for a form of a metric that the map of an encoding does not have."""
    codes = TableModel.of(model).encoding
    has_map = codes is not None and codes.map is not None
    if has_map and learn_metric not in (True, False, "auto"):
        wanted = "be True, False or 'auto' for a model whose encoding has a map"
        raise ArgumentError("learn_metric", wanted, f"{learn_metric!r}")


def _check_moves(state: State, move_vectors: bool, learn_metric: Metric) -> bool:
    """Whether vectors move without a metric, after checks of both arguments."""
    moves = _checks.flag("move_vectors", move_vectors)
    learns = learn_metric not in (False, "auto")
    if (moves or learns) and not state.learner.has_vectors:
        own = type(state.learner).__name__
        wanted = f"be False for {own}, whose features are no support vectors"
        name, got = ("move_vectors", True) if moves else ("learn_metric", learn_metric)
        raise ArgumentError(name, wanted, got)
    if moves and learns:
        raise ArgumentError(
            "move_vectors",
            f"be False with learn_metric={learn_metric!r}, which moves the vectors",
            "True",
        )
    return moves


def _wrap_solver_model(
    model: Any, known: KernelModel, learn_metric: Any, loss: Any
) -> Any:
    """The model of a solver with an online state of its vectors inside."""
    if learn_metric is not False:
        raise ArgumentError(
            "learn_metric", "be False for the model of a solver", f"{learn_metric!r}"
        )
    whole = TableModel.find(model) or known
    if isinstance(whole, TableModel) and whole.is_several:
        raise ArgumentError("state", "be a single model", f"{len(whole.model)} in one")
    vectors = known.support().vectors
    number, width = vectors.shape
    if not number:
        raise ArgumentError("state", "have support vectors", "none")
    columns, values = known.num_columns, known.is_regressor
    loss = None if losses.takes_labels(loss) or not values else loss
    state = SGD(loss=loss).init(
        known.kernel,
        num_features=width,
        budget=number,
        num_classes=None if values else max(2, columns),
        num_outputs=columns if values else 1,
        maintenance=Unbudgeted(),
        dtype=vectors.dtype,
    )
    expansion, _ = span.with_landmarks(state.kernel, state.expansion, vectors)
    state = state._replace(expansion=expansion)
    return whole.with_inner(state)


def _rescale(problem: Problem) -> Problem:
    """The problem in units in which rates, tolerances and outputs are comparable."""
    loss, read = problem.loss, problem.blocks
    if problem.of_logarithms:
        mean = np.mean(
            training_data.first_values(read(), lambda block: block.targets), axis=0
        )
        return problem._replace(near=functools.partial(_log_targets, mean))
    if not losses.is_shift_invariant(loss):
        return problem
    shifts = problem.constant is not None
    units = Units.of(read(), losses.traits(loss).robust, shifts)
    return problem._replace(
        loss=losses.with_unit(loss, units.unit),
        blocks=lambda: map(units.apply, read()),
        units=units,
        near=units.near,
        negligible=newton.NEGLIGIBLE,
    )


def _log_targets(mean: Float[np.ndarray, " columns"], block: Block) -> Block:
    """The examples with logarithms of the targets, each averaged with their mean."""
    targets = np.log(np.maximum((block.targets + mean) / 2, LEAST))
    return block._replace(targets=targets)


def check_metric(given: Any, width: int) -> None:
    """Raises if this is not a form of a metric for `width` features."""
    if isinstance(given, bool | np.bool_) or given in ("auto", "diagonal"):
        return
    if not isinstance(given, int | np.integer) or not 1 <= given <= width:
        raise ArgumentError(
            "learn_metric",
            "be True, False, 'auto', 'diagonal', or a rank of 1 to "
            f"{width}, the number of features",
            f"{given!r}",
        )


def _check_loss(loss: str | Callable[..., Any], state: Any) -> Callable[..., Any]:
    """The loss of this name, or the function itself, if valid for the state."""
    given = LOSSES.get(loss) if isinstance(loss, str) else loss
    columns, link = state.num_columns, state.link
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
        raise ArgumentError(
            "loss",
            f"be one of {', '.join(LOSSES)}, or a function of a score and "
            f"a target, scalars, with numbers of shape () or ({columns}"
            ",), one per column",
            f"{loss!r}",
        )
    if (link == losses.EXP) != (losses.traits(given).link == losses.EXP):
        mean = "logarithms of values" if link == losses.EXP else "labels or values"
        raise ArgumentError(
            "loss",
            f"be one whose scores mean {mean}, as those of the state",
            f"{loss!r}",
        )
    if losses.takes_labels(given) and state.target_shape:
        raise ArgumentError(
            "loss",
            "be 'squared', 'huber' or another one of numbers for several real outputs",
            f"{loss!r}",
        )
    return given


def _check_penalties(penalty: Any, dtype) -> list[float]:
    """The list of penalties, of one or more."""
    given = np.atleast_1d(np.asarray(penalty, object))
    if given.ndim != 1 or not given.size:
        raise ArgumentError(
            "penalty", "be a number, or several to choose from", f"{penalty!r}"
        )
    checked = [_checks.positive("penalty", one) for one in given]
    return [float(_checks.as_leaf("penalty", one, dtype)) for one in checked]
