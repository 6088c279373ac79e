"""A model of rows in memory: a stream of them, and the refit; see `fit`."""

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped

from budgetjax import _checks, _counters, _progress, _threads, losses
from budgetjax._record import fields_of
from budgetjax.kernels import Mapped
from budgetjax.online import driver
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import OnlineLearner
from budgetjax.refitting import held_out, newton
from budgetjax.refitting.adam import EPOCHS
from budgetjax.refitting.draft import Draft
from budgetjax.refitting.refit import LOSSES, start_refit
from budgetjax.refitting.spread import fit_spread
from budgetjax.stream.model import StreamModel, extend_curve, sum_errors
from budgetjax.tables import encoding, scaling
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel
from budgetjax.training import rows as training_rows
from budgetjax.training.recipe import Recipe, is_auto
from budgetjax.training.rows import Data, Examples, Rows, Sample, SparseRows

# A refit stops when a step would gain less than this fraction of the objective. Smaller
# values took twice as long, and changed no accuracy by more than 0.1 points.
TOLERANCE = 1e-3
# The maximum number of rows to stream before it is known that there is no metric, which
# comes with the vectors of a fold.
FIRST_ROWS = held_out.FEW
# Of sparse rows with more columns, those that no row uses are left out.
MANY_COLUMNS = 1024
# Up to this many rows are streamed as a refit does its folds, by a program that is
# compiled more quickly. Longer blocks save at most 5 microseconds per row.
FEW_TO_STREAM = 50_000
# Encodings are compared on at most this number of rows, by metrics of so many passes,
# which are thrown away; the best one learns all rows. Half of the rows chose the worse
# one on parts of ijcnn1 and shuttle. After ten passes, numbers alone were chosen on one
# of three parts of covtype, which took four points; eighty choose no better than
# twenty.
MOST_TO_COMPARE, PASSES_TO_COMPARE = held_out.MANY, EPOCHS
# By so many standard deviations of the difference numbers alone must be better on such
# a sample. Among models of all rows, held-out errors decide as they are: on 71 tables a
# margin only ever took the worse one.
DOUBT = 0.5
# In a stream, the maximum slope of a loss that does not depend on the error alone.
STEEPEST = 5.0


class Candidate(NamedTuple):
    """A model of rows, before a refit.

    Attributes:
      model: the model.
      examples: the rows.
      stream_all: gives the model of all rows, if it has learned only a part so far.
    """

    model: StreamModel
    examples: Examples
    stream_all: Callable[[], StreamModel] | None = None


def draw_orders(recipe: Recipe, n: int) -> list[Int[np.ndarray, " n"]]:
    """The order of rows in each pass."""
    random, number = np.random.RandomState(recipe.seed), range(recipe.epochs)
    return [random.permutation(n) if recipe.shuffle else np.arange(n) for _ in number]


def fit(
    recipe: Recipe,
    data: Data,
    orders: Sequence[Int[np.ndarray, " n"]] | None = None,
    *,
    progress: bool = False,
    solve: Callable[[Candidate], StreamModel] | None = None,
) -> StreamModel:
    """The model of rows in memory, in these orders; by default those of the recipe.

    In place of a refit, `solve` may make a model of what was streamed.
    """
    recipe.check_columns(data.X.shape[1])
    columns, used = data.X.shape[1], _find_columns(recipe, data.X)
    if used is not None:
        data = data._replace(X=data.X[:, used])
    orders = draw_orders(recipe, len(data.weights)) if orders is None else orders
    forms = recipe.encodings(data.X, data.nominal)
    if solve is not None or not recipe.refit:
        codes = forms[-1]
        candidate = stream(recipe, data, codes, orders, progress, solves=bool(solve))
        model = candidate.model if solve is None else solve(candidate)
    else:
        model = _refit(recipe, data, forms, orders, progress)
    if used is not None:
        model = _spread_columns(model, used, columns)
    return model._replace(recipe=recipe)


def choose_encoding(
    recipe: Recipe, data: Data, forms: Sequence[Encoding | None], progress: bool
) -> Encoding | None:
    """The encoding for all rows, of which these are a sample.

    Bins gain more from more rows than numbers alone, which are taken only if they are
    better by more than chance, as `DOUBT` says: shuttle had half of the errors.
    """
    if len(forms) == 1:
        return forms[0]
    orders = [np.arange(len(data.weights))]
    candidates = [
        stream(recipe, data, one, orders, progress) for one in reversed(forms)
    ]
    with refitting(progress, "encoding") as report:
        best, _ = compare(recipe, candidates, report, DOUBT)
    return best.examples.codes


def compare(
    recipe: Recipe,
    candidates: Sequence[Candidate],
    report: Callable[[str], object],
    deviations: float = 0.0,
) -> tuple[Candidate, Draft | None]:
    """The model in the form in which these rows, held out, are predicted best.

    Metrics are learned in a few passes for this; the draft has none. `deviations` is
    how much better a later form must be, as for `find_best`.
    """
    drafts = [_start_refit(recipe, one, report) for one in candidates]
    if len(drafts) == 1:
        return candidates[0], drafts[0]
    learned = [_learn_metric(one, PASSES_TO_COMPARE) for one in drafts]
    best = find_best(learned, deviations)
    return candidates[best], drafts[best]


def stream(
    recipe: Recipe,
    data: Data,
    codes: Encoding | None,
    orders: Sequence[Int[np.ndarray, " n"]],
    progress: bool = False,
    *,
    solves: bool = False,
) -> Candidate:
    """A model of rows in one form, after all of them, or the first.

    `solves` is whether its coefficients are solved for afterwards, by something else
    than a refit.
    """
    X, y, weights, _ = data[:4]
    sample = Sample(X, codes)
    empty = init_model(recipe, sample, data.labels, codes, X.shape[0] * len(orders))
    if recipe.refit or solves:
        # Before a long stream, not after it.
        penalties = recipe.penalties(int(np.count_nonzero(weights)))
        newton.check_memory(empty.model, len(penalties) if recipe.refit else 1)
    origin, targets = training_rows.origin(empty), empty.encode_targets(y)
    examples = Examples(X, codes, origin, targets, weights)
    if codes is None:
        training_rows.warn_unscaled(data.name, X, origin)
    learn = functools.partial(_learn, data.name, progress, empty, examples)
    many = np.count_nonzero(weights) > FIRST_ROWS
    if recipe.may_learn_metric and many:
        first = [training_rows.spread_rows(orders[0], weights, FIRST_ROWS)]
        return Candidate(learn(first), examples, lambda: learn(orders))
    return Candidate(learn(orders), examples)


def _learn(
    name: str,
    progress: bool,
    empty: TableModel,
    examples: Examples,
    orders: Sequence[Int[np.ndarray, " n"]],
) -> StreamModel:
    """The model after the examples in these orders, with its learning curve."""
    total, seen, model = sum(map(len, orders)), SeenWeights(), StreamModel(empty)
    sizes = driver.FEW_ROWS, driver.PLAIN_SCAN if total <= FEW_TO_STREAM else None
    weights = examples.weights
    with _progress.progress_bar(name, progress, "rows", total) as report:
        for order in orders:
            steps = np.zeros_like(weights)
            steps[order], seen = seen.relative(weights[order])
            part = examples._replace(weights=steps)
            learned = training_rows.learn(model.state, part, order, *sizes)
            for state, scores, at in learned:
                given = examples.targets[at], steps[at], scores[: len(at)]
                scored, error = sum_errors(model, state, *given)
                model = extend_curve(
                    model, state, empty.scaling, len(at), scored, error
                )
                report(f"{int(state.num_active)} vectors", len(at))
    return model._replace(model=empty._replace(model=model.state))


def init_model(
    recipe: Recipe,
    sample: Sample,
    labels: TableModel,
    codes: Encoding | None,
    most_rows: int,
    *,
    needs_distances: bool = False,
) -> TableModel:
    """A model with an empty state, for at most `most_rows` rows.

    More support vectors than rows need no memory.
    """
    learner, arguments, _ = recipe.choose(labels)
    kernel = training_rows.kernel_of(
        *(recipe.kernel, recipe.gamma_of(sample, codes), sample),
        needs_distances=needs_distances,
    )
    origin = training_rows.origin_of(None if codes else kernel, sample)
    vectors = arguments["vectors"]
    if vectors is not None and codes is not None:
        arguments["vectors"] = codes.apply(_checks.array("vectors", vectors))
    elif vectors is not None and np.shape(vectors)[1:] == origin.shape:
        # What has another shape is an error of `init`.
        arguments["vectors"] = _checks.array("vectors", vectors) - origin[None]
    state = learner.init(
        kernel,
        num_features=sample.rows.shape[1],
        budget=limit_budget(recipe, learner, arguments, most_rows),
        capacity=recipe.capacity,
        dtype=training_rows.dtype_of(sample.rows),
        **arguments,
    )
    return labels._replace(
        model=set_loss(recipe, state, labels),
        # All classes are equally probable until a refit calibrates the scores.
        calibration=0.0 if recipe.refit and labels.classes is not None else None,
        scaling=codes or training_rows.translation(origin),
    )


def set_loss(recipe: Recipe, state: Any, labels: TableModel) -> Any:
    """The state with the loss for targets in the units of these labels."""
    fields = [field.name for field in fields_of(type(state.learner))]
    if not recipe.regression or "loss" not in fields:
        return state
    before = state.learner.loss
    loss, shape = recipe.scale_loss(before, labels), np.shape(labels.unit)
    if loss is before and not losses.is_shift_invariant(loss, shape):
        loss = losses.limit_slope(loss, STEEPEST)
    loss = losses.as_leaves(loss, None, state.dtype, np.size(labels.unit))
    return state._exchange(learner=state.learner._replace(loss=loss))


def limit_budget(
    recipe: Recipe, learner: OnlineLearner, arguments: dict[str, Any], most_rows: int
) -> int:
    """The budget, or the number of support vectors that `most_rows` may become.

    Random features are no rows, and slots that a user asks for stay.
    """
    budget = recipe.budget
    counts = isinstance(budget, int | np.integer) and recipe.capacity is None
    if not counts or not learner.has_vectors:
        return budget
    vectors = arguments["vectors"]
    given = 0 if vectors is None else len(np.atleast_1d(vectors))
    return min(budget, max(most_rows, given))


def _refit(
    recipe: Recipe,
    data: Data,
    forms: Sequence[Encoding | None],
    orders: Sequence[Int[np.ndarray, " n"]],
    progress: bool,
) -> StreamModel:
    """The model of the best form, with new coefficients or a metric."""
    if np.count_nonzero(data.weights) > MOST_TO_COMPARE:
        at = training_rows.spread_rows(orders[0], data.weights, MOST_TO_COMPARE)
        forms = (choose_encoding(recipe, data.part(at), forms, progress),)
    candidates = [stream(recipe, data, codes, orders, progress) for codes in forms]
    with refitting(progress) as report:
        (model, examples, stream_all), draft = compare(recipe, candidates, report)
        draft = _learn_metric(draft)
        if stream_all is not None:
            # All rows count, unless there is a metric, which comes with the vectors of
            # a fold.
            if draft is None or draft.metric is None:
                model = stream_all()
            if draft is None:
                draft = _start_refit(recipe, Candidate(model, examples), report)
                draft = _learn_metric(draft)
            elif draft.metric is None:
                draft = draft._replace(state=model.state)
            else:
                seen = int(np.count_nonzero(examples.weights)) * recipe.epochs
                counts = draft.state.counts._replace(seen=_counters.of(seen))
                draft = draft._replace(state=draft.state._replace(counts=counts))
        if draft is None:
            return measure_empty(recipe, model, examples.targets, examples.weights)
        refitted, learns = draft.finish(), draft.metric is not None
    whole = model.model.add_intercept(refitted.intercept)._replace(
        model=refitted.model,
        calibration=refitted.calibration,
        scaling=refitted.scaling if examples.codes is not None else model.scaling,
    )
    found = measure_importances(whole, examples.X) if learns else None
    return model._replace(model=whole, importances=found)


def measure_empty(
    recipe: Recipe,
    model: StreamModel,
    targets: Shaped[np.ndarray, "n ..."],
    weights: Float[np.ndarray, " n"],
) -> StreamModel:
    """A zero model that no row has changed, with the spread of the targets around 0."""
    whole = model.model
    if not recipe.regression or not _has_spread(recipe, whole):
        return model
    columns = targets.reshape(len(targets), -1)
    spread = fit_spread(0 * columns, columns, np.zeros(len(columns)), weights)
    return model._replace(model=whole._replace(calibration=spread))


def _has_spread(recipe: Recipe, labels: TableModel) -> bool:
    """Whether a regressor says how far targets lie from its scores.

    Quantiles, and logarithms of values, have no deviation around them.
    """
    loss = recipe.choose(labels).refit_loss
    return losses.is_centred(LOSSES[loss] if isinstance(loss, str) else loss)


def _start_refit(
    recipe: Recipe,
    candidate: Candidate,
    report: Callable[[str], object],
) -> Draft | None:
    """A refit of these examples; None if no example has changed the model."""
    model, examples, _ = candidate
    whole, state = model.model, model.state
    if not int(state.num_active):
        return None
    weights = examples.weights
    typical = SeenWeights().relative(weights)[1].typical
    examples = examples._replace(weights=weights / typical)
    return start_recipe_refit(
        recipe,
        # Rows are shifted and targets centred already, so the model must not do it
        # again.
        TableModel(state, examples.codes),
        whole,
        examples.data(whole.dtype),
        int(np.count_nonzero(weights)),
        typical,
        report,
    )


def _learn_metric(draft: Draft | None, passes: int | None = None) -> Draft | None:
    return None if draft is None else draft.learn_metric(passes)


def start_recipe_refit(
    recipe: Recipe,
    model: TableModel,
    labels: TableModel,
    data: dict[str, Any],
    rows: int,
    typical: float,
    report: Callable[[str], object],
) -> Draft:
    """A refit of a model by the choices of a recipe.

    `data` has X, y and the weights in units of a typical one, for which penalties to
    choose from, and the prior of a metric, are meant; a given one is C for the weights
    as they are.
    """
    penalties = recipe.penalties(rows)
    penalties = penalties if is_auto(recipe.penalty) else penalties * typical
    loss, learn_metric = recipe.choose(labels).refit_loss, recipe.learn_metric
    if callable(loss):
        loss = recipe.scale_loss(loss, labels)
    codes = model.encoding
    if codes is not None and codes.map is not None:
        # The encoding has the rank of the metric.
        is_rank = not isinstance(learn_metric, bool | str)
        learn_metric = True if is_rank else learn_metric
    return start_refit(
        model,
        **data,
        loss=loss,
        penalty=penalties,
        move_vectors=recipe.move_vectors,
        learn_metric=learn_metric,
        tolerance=TOLERANCE,
        calibrate=not recipe.regression or _has_spread(recipe, labels),
        seed=recipe.seed,
        report=report,
    )


@contextlib.contextmanager
def refitting(progress: bool, name: str = "refit") -> Iterator[Callable[[str], object]]:
    """A progress bar of a refit, or of a comparison before one."""
    with (
        _threads.one_thread(),
        _progress.progress_bar(name, progress, "passes") as report,
    ):
        yield report


def find_best(drafts: Sequence[Draft | None], deviations: float = 0.0) -> int:
    """The number of the draft that predicts held-out rows best.

    A later one must be better by more than so many standard deviations of the
    difference.
    """
    errors = [[] if draft is None else draft.errors() for draft in drafts]
    folds = min(map(len, errors))
    each = [np.concatenate([np.zeros(1), *parts[:folds]]) for parts in errors]
    best = 0
    for i, one in enumerate(each):
        gain = each[best] - one
        if np.sum(gain) > deviations * np.sqrt(np.sum(gain**2)):
            best = i
    return best


def measure_importances(
    model: TableModel, X: Rows
) -> Float[np.ndarray, " features"] | None:
    """The importance of each feature in a metric."""
    kernel, codes = model.model.kernel, model.encoding
    if codes is not None:
        return encoding.importances(
            codes, training_rows.to_array(X[scaling.sample_rows(X.shape[0])])
        )
    matrix = np.asarray(kernel.matrix, np.float64)
    lengths = np.sum(matrix.reshape(len(matrix), -1) ** 2, axis=1)
    parts = Sample(X).variances * lengths
    return parts / max(np.sum(parts), np.finfo(np.float64).tiny)


def _find_columns(recipe: Recipe, X: Rows) -> Int[np.ndarray, " used"] | None:
    """The columns that some rows use, if they are few of many.

    Where all of them are 0, kernel values do not depend on a column, so a model can be
    fitted without it. None if a choice refers to all columns.
    """
    learner, features = recipe.learner, X.shape[1]
    fixed = recipe.kernel_has_parts or recipe.vectors is not None
    fixed = fixed or (isinstance(learner, OnlineLearner) and not learner.has_vectors)
    fixed = fixed or recipe.learn_metric not in ("auto", True, False)
    if fixed or not isinstance(X, SparseRows) or features <= MANY_COLUMNS:
        return None
    is_used = np.zeros(features, bool)
    is_used[X.indices[X.data != 0]] = True
    used = np.flatnonzero(is_used)
    if not 0 < 2 * len(used) < features:
        return None
    if isinstance(recipe.budget, int | np.integer):
        vectors = min(recipe.budget, recipe.capacity or X.shape[0] * recipe.epochs)
        _checks.check_memory(
            {"num_features": features, "budget": vectors},
            2 * training_rows.dtype_of(X).itemsize * vectors * features,
            "of support vectors",
            _checks.MEMORY_ADVICE["num_features"],
        )
    return used


def _spread_columns(
    streamed: StreamModel, used: Int[np.ndarray, " used"], features: int
) -> StreamModel:
    """A model of some columns as that of all; the others are 0."""

    def spread(array: Any, axis: int) -> np.ndarray:
        given = np.asarray(array)
        shape = list(given.shape)
        shape[axis] = features
        wide = np.zeros(shape, given.dtype)
        wide[(slice(None),) * axis + (used,)] = given
        return wide

    model, importances = streamed.model, streamed.importances
    state = model.model
    kernel, expansion = state.kernel, state.expansion
    if isinstance(kernel, Mapped):
        matrix = jax.device_put(spread(kernel.matrix, 0))
        kernel = Mapped(kernel.kernel, matrix)
    if importances is not None:
        importances = spread(importances, 0)
    given = spread(expansion.vectors, 1), spread(expansion.origin, 0)
    vectors, origin = jax.device_put(given)
    expansion = expansion._replace(vectors=vectors, origin=origin)
    state = state._exchange(kernel=kernel)._replace(expansion=expansion)
    origin = spread(training_rows.origin(model), 0)
    model = model._replace(model=state, scaling=training_rows.translation(origin))
    return streamed._replace(model=model, importances=importances)
