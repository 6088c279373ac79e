"""Learns from a stream of batches; see `fit_stream`."""

import contextlib
import itertools
import os
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array

from budgetjax import _checks, _progress, examples, models
from budgetjax.models import Labelled, format_labels
from budgetjax.online import driver
from budgetjax.online.algorithm import Algorithm
from budgetjax.scaling import Scaling, unscaled
from budgetjax.stream import batches as source
from budgetjax.stream import checkpoints, units
from budgetjax.stream.batches import Batches
from budgetjax.stream.checkpoints import Position
from budgetjax.stream.model import CheckpointError, StreamError, StreamModel, extended
from budgetjax.stream.reservoir import Reservoir

WHERE = "fit_stream"


def fit_stream(
    algorithm: Algorithm,
    state: Any,
    batches: Iterable[Any],
    *,
    classes: ArrayLike | Sequence[Any] | None = None,
    intercept: ArrayLike = 0.0,
    standardise: bool = False,
    fill_missing: bool = False,
    reservoir: int | None = None,
    batch_rows: int | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 100,
    resume: bool = True,
) -> StreamModel:
    """Makes one pass over batches, such as those of a file, in constant memory.

    The result is that of `budgetjax.run` on all rows, up to the rounding of sums. The
    batches may have any lengths: they are regrouped to one length, so one program is
    compiled and the result does not depend on their lengths. A thread reads and scales
    the next batches while one is learned.

    With `checkpoint`, the state of the learner, the scaling and the position in the
    stream are written to a file at intervals. If the process ends for any reason, the
    same call continues from there to the same result, bit by bit: it reads the rows
    already learned and drops them. When a run fails, or Ctrl-C interrupts it, the model
    after its last complete batch is written first.

    Cost: that of `run`; `standardise` adds O(B d) per batch, or O(B^2 (d + B)) if the
    learner has a kernel matrix. Memory: the model, a few batches and the reservoir.

    Args:
      algorithm: an online algorithm, for example `budgetjax.arow`.
      state: a state of that algorithm; or a `StreamModel` to continue, with its
        classes, scaling and curve.
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
      standardise: whether to subtract the mean of every feature and divide by its
        standard deviation, over all rows up to and including the batch. Every batch
        maps the support vectors to the new units. Rows of weight 0 do not count; other
        weights have no effect.
      fill_missing: whether a NaN in X is replaced by the mean of its feature over the
        earlier rows, and in predictions over all rows; only with `standardise`.
        Otherwise a NaN is an error.
      reservoir: the size of a uniform sample of the stream, such as 8,192. Its rows are
        learned again at the end, in random order: without it, a sorted stream yields a
        model of its last rows. Checkpoints hold the sample and the model before this
        replay. None keeps no rows.
      batch_rows: rows to learn at once, between two points of the curve. None chooses
        about 4 MiB of them, at most 65,536.
      progress: whether to show a progress bar with rows per second, the progressive
        error and the number of support vectors.
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
      CheckpointError: if the checkpoint cannot be written or read, for lack of space or
        permission. The last good checkpoint is intact, and `error.model` is the model.
      ImportError: if `progress` needs tqdm, or `checkpoint` safetensors.

    Warns:
      UserWarning: if `standardise` is False, and the features of the first batch look
        unscaled: the largest standard deviation is more than 100 times the lower
        quartile, or the mean is 100 total standard deviations from 0.

    Example:
      >>> X, y = bj.datasets.checkerboard(2000, seed=0)
      >>> batches = [(X[i:i + 300], y[i:i + 300]) for i in range(0, 2000, 300)]
      >>> state = bj.arow.init(bj.RBF(gamma=4.0), num_features=2, budget=30)
      >>> model = bj.fit_stream(bj.arow, state, batches)
      >>> model.num_rows, model.error < 0.25, model.predict(X[:5]).shape
      (2000, True, (5,))
    """
    _check_batches(batches)
    _checks.on_host(WHERE, state, batches)
    learner = state.state if isinstance(state, StreamModel) else state
    _checks.check_algorithm(WHERE, algorithm, learner)
    fills = _checks.flag(WHERE, "fill_missing", fill_missing)
    model = _begin(state, classes, intercept, standardise, fills, reservoir)
    name, total = source.name_of(batches), getattr(batches, "num_rows", None)
    model, batches = _with_names(model, batches)
    expansion = model.state.expansion
    rows = source.rows_of_a_batch(
        WHERE, expansion.vectors.shape[1], expansion.vectors.dtype, batch_rows
    )
    every = _checks.size(WHERE, "every", every)
    resume = bool(_checks.flag(WHERE, "resume", resume))
    position, file, written = Position(model), None, -1
    if checkpoint is not None:
        file = checkpoints.start_of(WHERE, checkpoint, rows, model, algorithm.name)
        found = checkpoints.read(WHERE, file, model) if resume else None
        if found is not None:
            position, written = found, found.batches

    def save() -> None:
        nonlocal written
        if file is not None and written < position.batches:
            checkpoints.write(WHERE, file, position)
            written = position.batches

    save()
    read = source.prefetched(_prepare(batches, position, rows))
    with (
        _progress.reporting(WHERE, progress, "rows", total) as report,
        contextlib.closing(cast(Generator[Any, None, None], read)) as ready,
    ):
        if position.rows:
            report(_text(position.model), position.rows)
        try:
            while (batch := _next(ready, name, position)) is not None:
                if batch.doubt is not None:
                    warnings.warn(f"{WHERE}: {batch.doubt}", stacklevel=2)
                position = _after(algorithm, position, batch, name)
                report(_text(position.model), batch.rows)
                if position.batches % every == 0:
                    save()
            save()
        except CheckpointError:
            raise
        except BaseException as error:
            try:
                save()
            except CheckpointError as failed:
                error.add_note(str(failed))
            raise
    return _replayed(algorithm, position.model, rows, name)


def _check_batches(batches: Any) -> None:
    """Raises if this cannot be an iterable of batches."""
    single = hasattr(batches, "dtype") or hasattr(batches, "tocsr")
    if isinstance(batches, tuple) and batches:
        single = single or hasattr(batches[0], "dtype")
    other = isinstance(batches, str | bytes | os.PathLike | Mapping)
    if single or other or not isinstance(batches, Iterable):
        raise ValueError(
            f"{WHERE}: batches must be an iterable of (X, y) or (X, y, weight), got "
            f"{type(batches).__name__}: put arrays in a list, [(X, y)], and open files "
            "with budgetjax.stream"
        )


def _with_names(
    model: StreamModel, batches: Iterable[Any]
) -> tuple[StreamModel, Iterable[Any]]:
    """The model with the names of the columns, and the batches in that order."""
    features = models.num_features(WHERE, model.state)
    known, found = model.model.feature_names, None
    if isinstance(batches, Batches):
        batches = source.in_order(batches, known)
        if batches.num_features != features:
            raise ValueError(
                f"{WHERE}: {batches.name}: X must have {features} columns, the model's "
                f"num_features, got {batches.num_features}"
            )
        found = batches.feature_names
    else:
        rest = iter(batches)
        first = _next(rest, source.name_of(batches), Position(model))
        batches = () if first is None else itertools.chain([first], rest)
        if isinstance(first, tuple | list) and first:
            found = models.column_names(first[0])
    if known is None and found is not None and len(found) == features:
        model = model._replace(model=model.model._replace(feature_names=found))
    return model, batches


def _begin(
    state: Any, classes: Any, intercept: Any, standardise: Any, fills: bool, size: Any
) -> StreamModel:
    """The model at the start of a run."""
    wanted = bool(_checks.flag(WHERE, "standardise", standardise))
    _checks.finite(WHERE, "intercept", intercept)
    intercept = np.asarray(intercept, np.float64)
    if isinstance(state, StreamModel):
        model, features = state, models.num_features(WHERE, state.state)
        _check_continued(model, classes, intercept, wanted)
    else:
        features = models.num_features(WHERE, state)
        scaling = Scaling.empty(features, fills=fills) if wanted else None
        known = _known(state, classes)
        if np.any(intercept) and not models.is_regressor(state):
            raise ValueError(
                f"{WHERE}: intercept must be 0 for a classifier, got {intercept}"
            )
        outputs = models.target_shape(state)
        if intercept.shape not in ((), outputs):
            raise ValueError(
                f"{WHERE}: intercept must have shape {outputs}, one number per output, "
                f"got {intercept.shape}"
            )
        intercept = intercept if intercept.ndim else float(intercept)
        model = StreamModel(Labelled(state, scaling, known, intercept=intercept))
    if fills and not (model.scaling and model.scaling.fills):
        raise ValueError(
            f"{WHERE}: fill_missing must come with standardise=True, from the start of "
            "a model, got it for one whose scaling does not fill"
        )
    if size is None or model.reservoir is not None:
        return model
    expansion = model.state.expansion
    dtype = np.dtype(expansion.vectors.dtype)
    empty = Reservoir.empty(
        features,
        # The dtype of rows before scaling.
        dtype if model.scaling is None else np.dtype(np.float64),
        models.target_dtype(model.state),
        models.target_shape(model.state),
        size=_checks.size(WHERE, "reservoir", size),
    )
    return model._replace(reservoir=empty)


def _check_continued(
    model: StreamModel, classes: Any, intercept: np.ndarray, standardise: bool
) -> None:
    """Raises if these arguments do not fit the model to continue."""
    before = model.model.intercept
    if np.any(intercept) and not np.array_equal(intercept, before):
        raise ValueError(
            f"{WHERE}: intercept must be the model's, {before}, got {intercept}"
        )
    if standardise and model.scaling is None:
        raise ValueError(
            f"{WHERE}: standardise must be False for a model that has learned from "
            "features as they are, got True"
        )
    if classes is not None:
        known, before = _known(model.state, classes), model.classes
        if known is None or before is None or not np.array_equal(known, before):
            raise ValueError(
                f"{WHERE}: classes must be those of the model, "
                f"{format_labels(before)}, got {format_labels(known)}"
            )


def _known(state: Any, classes: Any) -> np.ndarray | None:
    """The classes, after a check that the learner has one label per class."""
    if classes is None:
        return None
    expected = max(2, state.expansion.num_columns)
    if models.is_regressor(state):
        raise ValueError(
            f"{WHERE}: classes must be None for a regressor, got {classes!r}"
        )
    try:
        known = np.array(source.targets(WHERE, np.asarray(classes, object), 0).tolist())
    except ValueError:
        known = None
    # NaN is not equal to itself.
    if known is None or len(set(known[known == known].tolist())) < len(known):
        raise ValueError(
            f"{WHERE}: classes must be distinct numbers, or distinct strings, got "
            f"{classes!r}"
        )
    if len(known) != expected:
        raise ValueError(
            f"{WHERE}: classes must be {expected}, the learner's number, got "
            f"{len(known)}: {format_labels(known)}"
        )
    return known


class Batch(NamedTuple):
    """Examples in the dtypes of the learner.

    X has the shape `(batch_rows, num_features)`, and the weights are 0 from `rows` on.
    `first` is the number of the first row in the source, `scaling` is computed from all
    rows up to the last, `given` holds the examples before scaling and padding, and
    `doubt` is the message of a warning.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    rows: int
    first: int
    scaling: Scaling | None = None
    given: tuple[np.ndarray, ...] = ()
    doubt: str | None = None


def _fill(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, size: int, first: int, **more: Any
) -> Batch:
    """Examples, padded to `size` rows with rows of weight 0."""
    weight = models.pad_rows(weight.astype(X.dtype), size)
    return Batch(
        models.pad_rows(X, size),
        models.pad_rows(y, size, 1),
        weight,
        len(y),
        first,
        **more,
    )


def _prepare(batches: Iterable[Any], start: Position, rows: int) -> Iterator[Batch]:
    """The batches after a position, ready to be learned; it runs ahead of learning."""
    name, model = source.name_of(batches), start.model
    dtype, scaling = model.state.expansion.vectors.dtype, model.scaling
    width = model.state.expansion.vectors.shape[1]
    names = model.model.feature_names
    read = 0
    # Features may need more digits before scaling than after.
    wide = dtype if scaling is None else np.float64
    outputs = models.target_shape(model.state)
    ready = source.in_rows(batches, rows, wide, width, outputs, names)
    for index, (X, y, weight) in enumerate(ready):
        first, read = index * rows, index + 1
        if read < start.batches:
            continue
        # Rows are kept with gaps, since other means fill these at the end.
        raw = X
        X = X if scaling is None else scaling.filled(X)
        _checks.check_finite(name, X, first, names)
        examples.check_weights(name, weight, dtype, first)
        y = _encode(name, model, y, first)
        given = (raw, y, weight)
        if read == start.batches:
            if checkpoints.digest_of(given) != start.last:
                raise ValueError(
                    f"{name}: rows {first} to {start.rows - 1} must be those that the "
                    f"checkpoint has learned, got others; {checkpoints.AGAIN}"
                )
            continue
        doubt = None
        if scaling is not None:
            counted = X if np.all(weight > 0) else X[weight > 0]
            scaling = scaling.updated(counted, where=name, first_row=first)
            X = scaling.apply(X, dtype)
        elif index == 0 and not model.num_rows:
            doubt = unscaled(name, X)
        yield _fill(
            *(X, y, weight, rows, first), scaling=scaling, given=given, doubt=doubt
        )
    if read < start.batches:
        raise ValueError(
            f"{name}: batches must have the {start.rows} rows that the checkpoint has "
            f"learned, got {read * rows} at most; {checkpoints.AGAIN}"
        )
    if not read:
        raise ValueError(f"{name}: batches must have rows, got none")


def _encode(name: str, model: StreamModel, y: np.ndarray, first: int) -> np.ndarray:
    """The targets in the labels and dtype of the learner."""
    if model.classes is not None:
        y = models.encode_targets(name, model.model, y, first)
    elif y.dtype.kind in "UO":
        raise ValueError(
            f"{name}: y must be numbers, or classes= be given, got {y.tolist()[0]!r} "
            f"in row {first}"
        )
    else:
        y = models.encode_targets(name, model.model, y, first)
        examples.check_labels(name, model.state, y, first)
    return y.astype(models.target_dtype(model.state))


def _next(ready: Iterator[Any], name: str, position: Position) -> Any:
    """The next batch, or None after the last."""
    try:
        return next(ready, None)
    except (ImportError, MemoryError):
        raise
    except ValueError as error:
        raise StreamError(f"{WHERE}: {error}", position.model) from error
    except Exception as error:  # whatever an iterator may raise: the model is kept
        raise StreamError(
            f"{WHERE}: {name}: batches must be readable, got {type(error).__name__}: "
            f"{error}, after row {position.rows}",
            position.model,
        ) from error


def _after(
    algorithm: Algorithm, position: Position, batch: Batch, name: str
) -> Position:
    """The position after another batch."""
    model, where = position.model, f"{WHERE}: {name}"
    try:
        state = model.state
        if model.scaling is not None and batch.scaling is not None:
            state = units.mapped(algorithm, state, model.scaling, batch.scaling)
        state, scores = _learned(algorithm, state, batch, where)
    except (ValueError, OverflowError) as error:
        raise StreamError(str(error), model) from error
    if models.is_regressor(state):
        present = batch.weight > 0
        values = models.predict_from_scores(state, np.asarray(scores, np.float64))
        away = (values - batch.y)[present] * models.unit_of_targets(model)
        error = float(np.vdot(away, away)) / state.expansion.num_columns
        scored = int(present.sum())
    else:
        error = float(state.num_mistakes - model.state.num_mistakes)
        scored = int(state.num_seen - model.state.num_seen)
    model = extended(model, state, batch.scaling, batch.rows, scored, error)
    if model.reservoir is not None:
        model = model._replace(reservoir=model.reservoir.updated(*batch.given))
    return Position(model, position.batches + 1, batch.first + batch.rows, batch.given)


def _replayed(
    algorithm: Algorithm, model: StreamModel, size: int, name: str
) -> StreamModel:
    """The model after a replay of its reservoir, which is then dropped.

    Errors on these rows do not count in the curve, since the model saw them before.
    """
    if model.reservoir is None:
        return model
    state, kept = model.state, model.reservoir.rows()
    X = kept.X
    if model.scaling is not None:
        X = model.scaling.apply(X, state.expansion.vectors.dtype)
    where = f"{WHERE}: the reservoir of {name}"
    try:
        for start in range(0, len(X), size):
            part = slice(start, start + size)
            batch = _fill(X[part], kept.y[part], kept.weights[part], size, start)
            state, _ = _learned(algorithm, state, batch, where)
    except (ValueError, OverflowError) as error:
        raise StreamError(str(error), model) from error
    return model._replace(model=model.model._replace(model=state), reservoir=None)


def _learned(
    algorithm: Algorithm, state: Any, batch: Batch, where: str
) -> tuple[Any, Array]:
    """The state after a batch, and the scores of its rows."""
    # Arrays in the state's dtypes need no compiled program to go to the device.
    X, y, weights = jax.device_put((batch.X, batch.y, batch.weight))
    size = driver.block_length(WHERE, None)
    new, scores = driver.run_checked(algorithm, state, X, y, weights, size)
    values = np.asarray(scores).reshape(len(X), -1).sum(axis=1)
    good = np.isfinite(values + np.asarray(driver.diagonal(state.kernel, X)))
    terms = np.asarray(new.expansion.terms)[:-1]
    if not np.all(good) or not np.isfinite(np.sum(terms) + new.expansion.scale):
        # A support vector with a finite score may make scores of later rows infinite.
        stop = min(int(np.argmin(np.append(good, False))) + 1, batch.rows)
        why = driver.explain_overflow(state, X[:stop], batch.first)
        raise ValueError(f"{where}: the model must stay finite: {why}")
    driver.check_room(where, new)
    return new, scores


def _text(model: StreamModel) -> str:
    """The text of the progress bar."""
    vectors = int(model.state.expansion.num_active)
    name = "mean squared error" if models.is_regressor(model.state) else "error"
    return f"{name} {model.error:.4g}, {vectors} support vectors"
