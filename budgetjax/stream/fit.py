"""Learns from a stream of batches; see `fit_stream`."""

import contextlib
import itertools
import os
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from budgetjax import _checks, _progress
from budgetjax._errors import (
    ArgumentError,
    InputError,
    names_errors,
    places_errors,
    warn,
)
from budgetjax._rows import pad_rows
from budgetjax.online import driver, examples
from budgetjax.online.state import Online, State
from budgetjax.scoring import format_labels
from budgetjax.stream import batches as source
from budgetjax.stream import checkpoints
from budgetjax.stream.batches import Batches
from budgetjax.stream.checkpoints import Checkpoint, Position
from budgetjax.stream.model import (
    CheckpointError,
    StreamError,
    StreamModel,
    extend_curve,
    sum_errors,
)
from budgetjax.stream.reservoir import Reservoir
from budgetjax.tables.columns import check_finite, column_names
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling, scale_warning
from budgetjax.tables.table_model import TableModel

Item = TypeVar("Item")
# All labels, numbers or strings.
Labels = ArrayLike | Sequence[Any]


@names_errors("fit_stream")
def fit_stream(
    state: Online | StreamModel,
    batches: Iterable[object],
    *,
    classes: Labels | None = None,
    intercept: ArrayLike = 0.0,
    encode: Encoding | None = None,
    reservoir: int | None = None,
    batch_rows: int | None = None,
    block_size: int | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 100,
    resume: bool = True,
) -> StreamModel:
    """Makes one pass over batches, such as those of a file, in constant memory.

    The result is that of `budgetjax.run` on all rows, up to the rounding of sums. The
    batches may have any lengths: they are regrouped to one length, on which the result
    does not depend. A thread reads and scales the next batches while one is learned.

    With `checkpoint`, the model and the position in the stream are written to a file at
    intervals, and when a run fails or Ctrl-C interrupts it. The same call continues
    from there to the same result, bit by bit: it reads the rows already learned and
    drops them.

    Cost: that of `run`. Memory: the model, a few batches and the reservoir.

    Args:
      state: from `init` of a learner, such as `budgetjax.AROW`; or a `StreamModel` to
        continue, with its classes, scaling and curve.
      batches: from a reader of `budgetjax.stream`, or any iterable of `(X, y)` or
        `(X, y, weight)`: X of shape `(n, num_features)`, dense, a sparse matrix of
        SciPy, or a data frame or Arrow table, whose columns are matched by name to
        those of the model or of the first batch; y and weight of shape `(n,)`, as for
        `budgetjax.run`; y of shape `(n, num_outputs)` for several real outputs.
      classes: all labels, in the order of the learner's columns: numbers or strings.
        The first of two becomes -1. None if the labels are -1 and +1 or `0 .. C-1`, and
        for regressors.
      intercept: a number subtracted from real targets before they are learned, and
        added to predictions. Use the mean of targets that are far from 0. Shape
        `(num_outputs,)` for several outputs.
      encode: how columns are written, from `budgetjax.fit_encoding` on first rows or on
        a sample, such as 8,192 rows; with `budgetjax.encoding.fit(X, 0)` as numbers in
        units of their quartiles alone. The state has as many features as it. It stays
        as it is, and rows may have NaN. Where values drift beyond those it was fitted
        on, numbers are clipped.
      reservoir: the size of a uniform sample of the stream, such as 8,192. Its rows are
        learned again at the end, in random order: without it, a sorted stream yields a
        model of its last rows. Checkpoints hold the sample and the model before this
        replay. None keeps no rows.
      batch_rows: rows to learn at once, between two points of the curve. None chooses
        about 4 MiB of them, at most 65,536.
      block_size: as for `budgetjax.run`.
      progress: whether to show a progress bar with the progressive error.
      checkpoint: the path of a file, which is written at the start, after every `every`
        batches, and at the end.
      every: the number of batches between two checkpoints.
      resume: whether to continue from the checkpoint, if there is one. The source must
        then start with the same rows; a completed run returns its result. False starts
        over and overwrites the checkpoint.

    Returns:
      A `StreamModel`, which predicts the labels of raw rows.

    Raises:
      ValueError: if an argument is invalid, or the checkpoint belongs to another run.
      StreamError: if the source cannot be read, or a batch cannot be learned: a value
        is not finite, a label is unknown, the width of a row differs, kernel values
        overflow, or a model without maintenance is full. The message names the source
        and the row, counted from 0. `error.model` is the model before that batch.
      CheckpointError: if the checkpoint cannot be written or read. The last good one
        is intact, and `error.model` is the model.
      ImportError: if `progress` needs tqdm, or `checkpoint` safetensors.

    Warns:
      UserWarning: if `encode` is None, and the features of the first batch look
        unscaled: the largest standard deviation is more than 100 times the lower
        quartile, or the mean is 100 total standard deviations from 0.

    Example:
      >>> X, y = bj.datasets.checkerboard(2000, seed=0)
      >>> batches = [(X[i:i + 300], y[i:i + 300]) for i in range(0, 2000, 300)]
      >>> state = bj.AROW().init(bj.RBF(gamma=4.0), num_features=2, budget=30)
      >>> model = bj.fit_stream(state, batches)
      >>> model.num_rows, model.error < 0.25, model.predict(X[:5]).shape
      (2000, True, (5,))
    """
    _check_batches(batches)
    _checks.check_not_traced(state, batches)
    inner = state.state if isinstance(state, StreamModel) else state
    driver.check_online(inner)
    model = _initial_model(state, classes, intercept, encode, reservoir)
    name = source.source_name(batches)
    total = batches.num_rows if isinstance(batches, Batches) else None
    model, batches = _match_columns(model, batches)
    learner = model.state
    rows = source.rows_per_batch(learner.num_features, learner.dtype, batch_rows)
    resume, every = _checks.flag("resume", resume), _checks.size("every", every)
    writer = Checkpoint(checkpoint, every, rows, model)
    block_size = driver.block_length(block_size)
    position = (writer.read(model) if resume else None) or Position(model)
    writer.save(position)
    with _progress.progress_bar("fit_stream", progress, "rows", total) as report:
        model = _learn(block_size, batches, name, position, rows, writer, report)
    return _replay_reservoir(block_size, model, rows, name)


def _learn(
    block_size: int,
    batches: Iterable[object],
    name: str,
    position: Position,
    rows: int,
    writer: Checkpoint,
    report: Callable[..., object],
) -> StreamModel:
    """The model after all batches, whose position is saved at intervals."""
    if position.rows:
        report(_progress_text(position.model), position.rows)
    read = source.prefetch(_prepare_batches(batches, position, rows))
    with contextlib.closing(read) as ready:
        try:
            while (batch := _read_next(ready, name, position)) is not None:
                if batch.warning is not None:
                    warn(f"fit_stream: {name}: {batch.warning}")
                position = _learn_batch(block_size, position, batch, name)
                report(_progress_text(position.model), batch.rows)
                writer.save_if_due(position)
            writer.save(position)
        except CheckpointError:
            raise
        except BaseException as error:
            try:
                writer.save(position)
            except CheckpointError as failed:
                error.add_note(f"fit_stream: {failed}")
            raise
    return position.model


def _check_batches(batches: object) -> None:
    first = batches[0] if isinstance(batches, tuple) and batches else None
    is_single = any(hasattr(one, "dtype") for one in (batches, first))
    is_other = isinstance(batches, str | bytes | os.PathLike | Mapping)
    if is_single or is_other or not isinstance(batches, Iterable):
        raise ArgumentError(
            "batches",
            "be an iterable of (X, y) or (X, y, weight)",
            f"{type(batches).__name__}: put arrays in a list, [(X, y)], "
            "and open files with budgetjax.stream",
        )


def _match_columns(
    model: StreamModel, batches: Iterable[object]
) -> tuple[StreamModel, Iterable[object]]:
    """The model with the names of the columns, and the batches in that order."""
    features = model.num_features
    known, found = model.model.feature_names, None
    if isinstance(batches, Batches):
        batches = source.order_columns(batches, known)
        if batches.num_features != features:
            expected = f"have {features} columns, the model's num_features"
            with places_errors(batches.name):
                raise ArgumentError("X", expected, batches.num_features)
        found = batches.feature_names
    else:
        rest = iter(batches)
        first = _read_next(rest, source.source_name(batches), Position(model))
        batches = () if first is None else itertools.chain([first], rest)
        if isinstance(first, tuple | list) and first:
            found = column_names(first[0])
    if known is None and found is not None and len(found) == features:
        model = model._replace(model=model.model._replace(feature_names=found))
    return model, batches


def _initial_model(
    state: Online | StreamModel,
    classes: Labels | None,
    intercept: ArrayLike,
    encode: Encoding | None,
    size: int | None,
) -> StreamModel:
    _checks.finite("intercept", intercept)
    intercept = np.asarray(intercept, np.float64)
    if isinstance(state, StreamModel):
        model = state
        _check_continued(model, classes, intercept, encode)
    else:
        state.check_single()
        features, known = state.num_features, _check_classes(state, classes)
        if encode is not None and encode.num_features != features:
            expected = f"have the {features} features of the state"
            raise ArgumentError("encode", expected, encode.num_features)
        if np.any(intercept) and not state.is_regressor:
            raise ArgumentError("intercept", "be 0 for a classifier", intercept)
        outputs = state.target_shape
        if intercept.shape not in ((), outputs):
            expected = f"have shape {outputs}, one number per output"
            raise ArgumentError("intercept", expected, intercept.shape)
        intercept = intercept if intercept.ndim else float(intercept)
        model = StreamModel(TableModel(state, encode, known, intercept=intercept))
    if size is None or model.reservoir is not None:
        return model
    size, features = _checks.size("reservoir", size), model.num_features
    dtype = _dtype_of_rows(model)
    _checks.check_memory(
        {"reservoir": size, "num_features": features},
        # A copy is made where rows are replaced.
        2 * size * features * dtype.itemsize,
        "of rows",
        _checks.MEMORY_ADVICE["num_features"],
    )
    empty = Reservoir.empty(
        features,
        dtype,
        model.state.target_dtype,
        model.state.target_shape,
        size=size,
    )
    return model._replace(reservoir=empty)


def _dtype_of_rows(model: StreamModel) -> np.dtype:
    """The dtype before scaling, when features may need more digits than after."""
    scaled = model.scaling is not None
    return np.dtype(np.float64 if scaled else model.state.dtype)


def _check_continued(
    model: StreamModel,
    classes: Labels | None,
    intercept: np.ndarray,
    encode: Encoding | None,
) -> None:
    if encode is not None:
        expected = "be None for a model to continue, which keeps its own"
        raise ArgumentError("encode", expected, _checks.kind_name(encode))
    before = model.model.intercept
    if np.any(intercept) and not np.array_equal(intercept, before):
        raise ArgumentError("intercept", f"be the model's, {before}", intercept)
    if classes is not None:
        known, before = _check_classes(model.state, classes), model.classes
        if known is None or before is None or not np.array_equal(known, before):
            expected = f"be those of the model, {format_labels(before)}"
            raise ArgumentError("classes", expected, format_labels(known))


def _check_classes(state: Online, classes: Labels | None) -> np.ndarray | None:
    """The classes, after a check that the learner has one label per class."""
    if classes is None:
        return None
    expected = max(2, state.num_columns)
    if state.is_regressor:
        raise ArgumentError("classes", "be None for a regressor", f"{classes!r}")
    try:
        known = np.array(source.coerce_targets(np.asarray(classes, object), 0).tolist())
    except ValueError:
        known = None
    # NaN is not equal to itself.
    if known is None or len(set(known[known == known].tolist())) < len(known):
        distinct = "be distinct numbers, or distinct strings"
        raise ArgumentError("classes", distinct, f"{classes!r}")
    if len(known) != expected:
        got = f"{len(known)}: {format_labels(known)}"
        raise ArgumentError("classes", f"be {expected}, the learner's number", got)
    return known


class Batch(NamedTuple):
    """Examples in the dtypes of the learner.

    X has the shape `(batch_rows, num_features)`, and the weights are 0 from `rows` on.
    `first` is the number of the first row in the source, `raw` holds the examples
    before they are encoded and padded, and `warning` is the message of one.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    rows: int
    first: int
    raw: tuple[np.ndarray, ...] = ()
    warning: str | None = None


def _pad(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, size: int, first: int
) -> Batch:
    """Examples, padded to `size` rows with rows of weight 0."""
    weight = pad_rows(weight.astype(X.dtype), size)
    return Batch(pad_rows(X, size), pad_rows(y, size, 1), weight, len(y), first)


def _prepare_batches(
    batches: Iterable[object], start: Position, rows: int
) -> Generator[Batch, None, None]:
    """The batches after a position, ready to be learned; it runs ahead of learning."""
    model, read = start.model, 0
    learned, scaling = model.state.dtype, model.scaling
    names, outputs = model.model.feature_names, model.state.target_shape
    width, dtype = model.num_features, _dtype_of_rows(model)
    known = model.model.categories
    ready = source.regroup(batches, rows, width, dtype, outputs, names, known)
    for index, (X, y, weight) in enumerate(ready):
        first, read = index * rows, index + 1
        if read < start.batches:
            continue
        raw = X
        if isinstance(scaling, Encoding):
            X = scaling.apply(X, learned, first_row=first)
        else:
            check_finite(X, first, names)
        examples.check_weights(weight, learned, first)
        y = _encode(model, y, first)
        if read == start.batches:
            if checkpoints.digest((raw, y, weight)) != start.last:
                raise ArgumentError(
                    f"rows {first} to {start.rows - 1}",
                    "be those that the checkpoint has learned",
                    "others",
                ).advised(checkpoints.START_OVER)
            continue
        warning = None
        if isinstance(scaling, Scaling):
            X = scaling.apply(X, learned)
        elif scaling is None and index == 0 and not model.num_rows:
            warning = scale_warning(X[weight > 0], centred=model.state.shifts)
        batch = _pad(X, y, weight, rows, first)
        yield batch._replace(raw=(raw, y, weight), warning=warning)
    if read < start.batches:
        expected = f"have the {start.rows} rows that the checkpoint has learned"
        got = f"{read * rows} at most"
        raise ArgumentError("batches", expected, got).advised(checkpoints.START_OVER)
    if not read:
        raise ArgumentError("batches", "have rows", "none")


def _encode(model: StreamModel, y: np.ndarray, first: int) -> np.ndarray:
    """The targets in the labels and dtype of the learner."""
    if model.classes is None and y.dtype.kind in "UO":
        got = f"{y.tolist()[0]!r} in row {first}"
        raise ArgumentError("y", "be numbers, or classes= be given", got)
    y = model.model.encode_targets(y, first)
    if model.classes is None:
        examples.check_labels(model.state, y, first)
    return y.astype(model.state.target_dtype)


def _read_next(ready: Iterator[Item], name: str, position: Position) -> Item | None:
    """The next batch, or None after the last."""
    try:
        with _with_model(position.model, name):
            return next(ready, None)
    except (ImportError, MemoryError, StreamError):
        raise
    except Exception as error:  # whatever an iterator may raise: the model is kept
        raise StreamError(
            f"{name}: batches must be readable, got {type(error).__name__}: {error}, "
            f"after row {position.rows}",
            position.model,
        ) from error


@contextlib.contextmanager
def _with_model(model: StreamModel, name: str) -> Iterator[None]:
    """Turns errors about this source into a `StreamError` with the model."""
    try:
        with names_errors(name):
            yield
    except (ValueError, OverflowError) as error:
        raise StreamError(str(error), model) from error


def _learn_batch(
    block_size: int, position: Position, batch: Batch, name: str
) -> Position:
    """The position after another batch."""
    model, state = position.model, position.model.state
    with _with_model(model, name):
        state, scores = _learn_rows(block_size, state, batch)
    scored, error = sum_errors(model, state, batch.y, batch.weight, scores)
    model = extend_curve(model, state, model.scaling, batch.rows, scored, error)
    if model.reservoir is not None:
        model = model._replace(reservoir=model.reservoir.updated(*batch.raw))
    return Position(model, position.batches + 1, batch.first + batch.rows, batch.raw)


def _replay_reservoir(
    block_size: int, model: StreamModel, size: int, name: str
) -> StreamModel:
    """The model after a replay of its reservoir, which the curve does not count."""
    if model.reservoir is None:
        return model
    state, kept = model.state, model.reservoir.rows()
    X = kept.X
    if model.scaling is not None:
        X = model.scaling.apply(X, state.dtype)
    with _with_model(model, f"the reservoir of {name}"):
        for start in range(0, len(X), size):
            part = slice(start, start + size)
            batch = _pad(X[part], kept.y[part], kept.weights[part], size, start)
            state, _ = _learn_rows(block_size, state, batch)
    return model._replace(model=model.model._replace(model=state), reservoir=None)


def _learn_rows(block_size: int, state: Online, batch: Batch) -> tuple[Online, Array]:
    """The state after a batch, and the scores of its rows."""
    # Arrays in the state's dtypes need no compiled program to go to the device.
    X, y, weights = jax.device_put((batch.X, batch.y, batch.weight))
    # The same arguments as those of `run`, whose program a refit needs too.
    new, scores = driver.run_checked(state, X, y, weights, block_size, True)
    values = np.asarray(scores).reshape(len(X), -1).sum(axis=1)
    good = np.isfinite(values + np.asarray(driver.check_rows(state, X)))
    if not np.all(good) or not np.isfinite(new.check_value()):
        # A support vector with a finite score may make scores of later rows infinite.
        stop = min(int(np.argmin(np.append(good, False))) + 1, batch.rows)
        why = driver.explain_overflow(state, X[:stop], batch.first)
        raise InputError(f"the model must stay finite: {why}")
    new.check_room()
    return new, scores


def _progress_text(model: StreamModel) -> str:
    name = "mean squared error" if model.state.is_regressor else "error"
    text = f"{name} {model.error:.4g}"
    if not isinstance(model.state, State):
        return text
    return f"{text}, {int(model.state.num_active)} support vectors"
