"""A model of a file or of batches, by the choices of a recipe; see `train`."""

import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from budgetjax import _checks, _compile_cache, _rows
from budgetjax._errors import ArgumentError, names_errors, warn
from budgetjax.online import driver
from budgetjax.online.importance import SeenWeights
from budgetjax.refitting import newton
from budgetjax.stream import batches as source
from budgetjax.stream.batches import Batches, rows_per_batch
from budgetjax.stream.fit import Labels, fit_stream
from budgetjax.stream.model import StreamModel
from budgetjax.stream.reservoir import default_size
from budgetjax.tables.table_model import TableModel
from budgetjax.training import fit, rows
from budgetjax.training.recipe import Recipe
from budgetjax.training.rows import Data
from budgetjax.training.sample import Sample, read_parts, read_sample
from budgetjax.training.targets import centre_targets

# The least points of the learning curve of a source that is long enough for so many
# batches.
POINTS = 100
# Rows count as sorted if their class changes less often than this fraction of the
# changes in shuffled rows.
SORTED = 0.1


@names_errors("train")
def train(
    recipe: Recipe,
    batches: Iterable[object],
    *,
    classes: Labels | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> StreamModel:
    """Trains a model on a file or on batches, by the choices of a recipe.

    A source of few rows, up to 8,192 and about 4 million numbers, is read once, and its
    model is that of the estimator with the same parameters: all rows are streamed in
    random order, and the refit, if there is one, has all of them. Of a longer source,
    the first reading keeps a uniform sample, which chooses how columns are encoded, and
    gamma; the second one streams all rows in their order, followed by a sample of them;
    and a refit reads it some 30 to 50 times if it learns a metric, unless it fits into
    its memory of 256 MiB, and otherwise a few times.

    Memory: that of the model, the sample, a few batches, and of what a refit keeps.

    Args:
      recipe: the choices.
      batches: from a reader of `budgetjax.stream`, or any iterable of `(X, y)` or
        `(X, y, weight)` that can be read repeatedly, as for `budgetjax.fit_stream`: X
        an array, a sparse matrix, a data frame or a table of Arrow, in which texts are
        names; y labels, or for a regression numbers, shape `(n,)` or `(n, outputs)`.
      classes: all labels, in the order of the scores. None finds them in the rows.
      progress: whether to show progress bars.
      checkpoint: the path of a file, as for `fit_stream`, from which an interrupted
        stream continues. The source is then taken for a long one.

    Returns:
      The model, which takes raw rows, with the recipe, the learning curve of its
      stream, and the importances of columns if it has learned a metric.

    Raises:
      ValueError: if the rows do not fit the recipe: a value is not finite, labels are
        numbers of a regression, or all equal, or the source can be read only once.
      StreamError, CheckpointError: as `fit_stream`, for a long source.

    Warns:
      UserWarning: as the estimators; and if a long source looks sorted by class.

    Example:
      >>> X, y = bj.datasets.checkerboard(2000, seed=0)
      >>> batches = [(X[i:i + 300], y[i:i + 300]) for i in range(0, 2000, 300)]
      >>> model = bj.train(bj.Recipe(budget=30), batches)
      >>> model.recipe.budget, model.num_rows, model.predict(X[:5]).shape
      (30, 2000, (5,))
    """
    if not isinstance(recipe, Recipe):
        kind = _checks.kind_name(recipe)
        raise ArgumentError("recipe", "be a budgetjax.Recipe", kind)
    if isinstance(batches, Iterator):
        got = "an iterator, which would be used up"
        raise ArgumentError("batches", "be a source that can be read again", got)
    _compile_cache.cache_by_default()
    known = None if classes is None else np.asarray(classes)
    if known is not None and recipe.regression:
        raise ArgumentError("classes", "be None for a regression", known.tolist())
    sample = _read_sample(recipe, batches, known)
    data = _describe(recipe, sample, source.source_name(batches))
    if sample.is_whole and checkpoint is None:
        model = fit.fit(recipe, data, progress=progress)
        return _with_categories(model, sample)
    return _train_long(recipe, batches, sample, data, progress, checkpoint)


def read_data(recipe: Recipe, batches: Iterable[object]) -> Data:
    """All rows of a source in memory, as rows to train on."""
    sample = _read_sample(recipe, batches, keeps_all=True)
    return _describe(recipe, sample, source.source_name(batches))


def _read_sample(
    recipe: Recipe,
    batches: Iterable[object],
    classes: np.ndarray | None = None,
    *,
    keeps_all: bool = False,
) -> Sample:
    """The rows of a source, or a sample of them, in the words of a recipe."""
    return read_sample(
        batches,
        classes=classes,
        regression=recipe.regression,
        takes_missing=recipe.encode is not False,
        seed=recipe.seed,
        keeps_all=keeps_all,
    )


def _describe(recipe: Recipe, sample: Sample, name: str) -> Data:
    """The sample as rows to train on, with the labels that they have."""
    nominal = tuple(map((sample.names or ()).index, sample.categories))
    y, labels = sample.y, TableModel(None, classes=sample.classes)
    if recipe.regression:
        y = y.astype(np.float64)
        _, labels, _ = centre_targets(y, sample.weights, None, recipe.losses.stream)
    labels = labels._replace(feature_names=sample.names)
    return Data(sample.X, y, sample.weights, labels, nominal, name)


def _with_categories(model: StreamModel, sample: Sample) -> StreamModel:
    found = model.model.with_categories(sample.categories)
    return model._replace(model=found)


def _train_long(
    recipe: Recipe,
    batches: Iterable[object],
    sample: Sample,
    data: Data,
    progress: bool,
    checkpoint: str | os.PathLike[str] | None,
) -> StreamModel:
    """A model of all rows of a source, of which a sample says what they are like."""
    recipe.check_columns(data.X.shape[1])
    _warn_if_sorted(sample, data)
    forms = recipe.encodings(data.X, data.nominal, num_rows=sample.num_rows)
    forms = forms if recipe.refit else forms[-1:]
    codes = fit.choose_encoding(recipe, data, forms, progress)
    many = sample.num_rows * recipe.epochs
    empty = fit.init_model(
        recipe, rows.Sample(data.X, codes), data.labels, codes, many
    ).with_categories(sample.categories)
    if codes is None:
        # A state keeps its distances from an origin by itself.
        empty = empty._replace(scaling=None)
    if recipe.refit:
        penalties = recipe.penalties(sample.num_rows)
        newton.check_memory(empty.model, len(penalties))
    longer, typical = _repeat(batches, data, sample, recipe.epochs)
    width = longer.num_features
    # One batch per point of the learning curve; of powers of two, since sources of
    # other lengths then run the same program.
    points = 1 << (many // POINTS).bit_length()
    usual = rows_per_batch(width, np.float32, None)
    size = max(min(usual, max(driver.FEW_ROWS, points // 2)), _rows.MIN_ROWS)
    model = fit_stream(
        StreamModel(empty),
        longer,
        reservoir=default_size(empty.model.num_features),
        batch_rows=size,
        progress=progress,
        checkpoint=checkpoint,
    )
    if recipe.refit and int(model.state.num_active):
        model = _refit(recipe, batches, model, data, sample, typical(), progress)
    elif recipe.refit:
        targets = model.model.encode_targets(data.y)
        model = fit.measure_empty(recipe, model, targets, data.weights)
    return model._replace(recipe=recipe)


def _repeat(
    batches: Iterable[object], data: Data, sample: Sample, epochs: int
) -> tuple[Batches, Callable[[], float]]:
    """The source as often as there are epochs, with weights in units of a typical one.

    The second result gives this one after a reading.
    """
    seen = SeenWeights()

    def read() -> Iterator[tuple[Any, ...]]:
        nonlocal seen
        seen = SeenWeights()
        for _ in range(epochs):
            for X, y, weight in _read(batches):
                steps, seen = seen.relative(weight)
                yield X, y, steps

    longer = _as_batches(read, data, sample, epochs)
    return longer, lambda: seen.typical


def _as_batches(
    read: Callable[[], Iterator[tuple[Any, ...]]],
    data: Data,
    sample: Sample,
    times: int = 1,
) -> Batches:
    """A source of rows such as those of the sample."""
    return Batches(
        data.name,
        data.X.shape[1],
        read,
        times * sample.num_rows,
        sample.names,
        texts=tuple(sample.categories),
    )


def _read(batches: Iterable[object]) -> Iterator[tuple[Any, np.ndarray, np.ndarray]]:
    """The rows of weight above 0, and their weights."""
    with names_errors(source.source_name(batches)):
        for X, y, weight, _ in read_parts(batches):
            yield X, y, weight


def _refit(
    recipe: Recipe,
    batches: Iterable[object],
    model: StreamModel,
    data: Data,
    sample: Sample,
    typical: float,
    progress: bool,
) -> StreamModel:
    """The model with coefficients, or a metric, of all rows."""

    def read() -> Iterator[tuple[Any, ...]]:
        for X, y, weight in _read(batches):
            yield X, y, weight / typical

    again = _as_batches(read, data, sample)
    given = model.model
    with fit.refitting(progress) as report:
        draft = fit.start_recipe_refit(
            *(recipe, given, given, {"X": again}, sample.num_rows, typical, report)
        ).learn_metric()
        learns = draft.metric is not None
        whole = TableModel.of(draft.finish())
    importances = fit.measure_importances(whole, data.X) if learns else None
    return model._replace(model=whole, importances=importances)


def _warn_if_sorted(sample: Sample, data: Data) -> None:
    """Warns of rows that look sorted by class, where order matters."""
    if sample.classes is None:
        return
    _, counts = np.unique(sample.y, return_counts=True)
    shares = counts / len(sample.y)
    by_chance = sample.num_rows * (1 - float(shares @ shares))
    if sample.changes < SORTED * by_chance:
        warn(
            f"train: {data.name}: the rows look sorted by class: {sample.changes:,} of "
            f"{sample.num_rows:,} have another one than the row before; a stream needs "
            "them in random order, so shuffle the source"
        )
