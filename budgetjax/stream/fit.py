"""Learning from a stream of batches; see `fit_stream`."""

import contextlib
import os
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import checks, examples, kernels, models, progress_bar
from budgetjax.models import Labelled, listed, padded
from budgetjax.online import engine
from budgetjax.online.algorithm import Algorithm
from budgetjax.scaling import Scaling
from budgetjax.stream import batches as source
from budgetjax.stream import checkpoints, units
from budgetjax.stream.batches import Batches
from budgetjax.stream.checkpoints import Position
from budgetjax.stream.model import (
    CheckpointError,
    StreamError,
    StreamModel,
    extended,
)
from budgetjax.stream.prepare import Batch, largest, prepared
from budgetjax.stream.reservoir import Reservoir

WHERE = "fit_stream"


def fit_stream(
    algorithm: Algorithm,
    state: Any,
    batches: Iterable[Any],
    *,
    classes: ArrayLike | Sequence[Any] | None = None,
    standardise: bool = False,
    reservoir: int | None = None,
    batch_rows: int | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    every: int = 100,
    resume: bool = True,
) -> StreamModel:
    """Feeds batches to a learner, in constant memory: one pass over a file, say.

    The same as `budgetjax.run` on all rows, up to the rounding of sums. The batches may
    have any lengths: they are joined and split to one length, so that one program is
    compiled, and the result is the same to the last bit. A thread reads ahead, and
    scales, while the batch before is learned.

    With `checkpoint`, everything is written to a file now and then, the state of the
    learner, the scaling, the place in the stream. If the process ends, however it does,
    the same call goes on from there, and ends as if it had not been disturbed, to the
    last bit: it reads the rows that have been learned and drops them. When a run fails,
    or is interrupted by Ctrl-C, its last whole batch is written first.

    Args:
      algorithm: for example `budgetjax.arow`.
      state: of that algorithm; or a `StreamModel`, to go on with: its classes, scaling
        and curve are gone on with too.
      batches: from a reader of `budgetjax.stream`, or any iterable of `(X, y)` or
        `(X, y, weight)`: X of shape `(n, num_features)`, dense or a sparse matrix of
        SciPy, y and weight of shape `(n,)`, as for `budgetjax.run`.
      classes: all labels, in the order of the learner's columns: numbers or strings.
        The first of two is its -1. None if the labels are the learner's own, -1 and +1
        or `0 .. C-1`, and for regressors.
      standardise: subtract the mean of every feature and divide by its standard
        deviation, of all rows up to and including the batch. The support vectors are
        mapped to the new units with every batch. Rows of weight 0 do not count, other
        weights do not matter.
      reservoir: rows to keep, a uniform sample of the stream, such as 8,192. At the end
        they are learned again, in random order: without them, a stream that is sorted
        by label or by a feature leaves a model of its last rows. Checkpoints hold the
        sample, and the model as it is before the end. None keeps no rows.
      batch_rows: rows to learn at once: what lies between two checkpoints or two points
        of the curve. None is as many as take some 4 MiB, at most 65,536.
      progress: show a bar, with rows a second, the progressive error and the number of
        support vectors.
      checkpoint: path of a file. It is written at the start, after every `every`
        batches, and at the end.
      every: batches between two checkpoints.
      resume: go on from the checkpoint, if there is one; False starts anew, and writes
        over it. The source must then begin as it did. A run that had ended gives its
        result.

    Returns:
      A `StreamModel`. It predicts the labels of rows as they are read.

    Raises:
      ValueError: if an argument does not fit, or the checkpoint is of another run.
      StreamError: if the source cannot be read, or a batch not be learned: a value is
        not finite, a label not known, the width of a row another, kernel values
        overflow, a model without maintenance is full. The message has the source and
        the row, counted from 0. `error.model` is the model up to the batch before, of
        `batch_rows` rows.
      CheckpointError: if the checkpoint cannot be written or read, for want of space or
        permission. The last good one is unharmed, and `error.model` is the model.
      ImportError: if `progress` needs tqdm, or `checkpoint` safetensors.

    Warns:
      UserWarning: if `standardise` is False, and the features of the first batch look
        unscaled: the largest standard deviation is more than 100 times the lower
        quartile, or the mean is 100 total standard deviations from 0.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import checkerboard
      >>> X, y = checkerboard(2000, seed=0)
      >>> batches = [(X[i:i + 300], y[i:i + 300]) for i in range(0, 2000, 300)]
      >>> state = bj.arow.init(bj.RBF(gamma=4.0), num_features=2, budget=30)
      >>> model = bj.fit_stream(bj.arow, state, batches)
      >>> model.num_rows, model.error < 0.25, model.predict(X[:5]).shape
      (2000, True, (5,))
    """
    _check_batches(batches)
    model = _begin(state, classes, standardise, reservoir)
    checks.check_algorithm(WHERE, algorithm, model.state)
    features = examples.num_features(WHERE, model.state)
    if isinstance(batches, Batches) and batches.num_features != features:
        raise ValueError(
            f"{WHERE}: {batches.name}: X must have {features} columns, the model's "
            f"num_features, got {batches.num_features}"
        )
    if isinstance(batches, Batches) and batches.feature_names is not None:
        names = batches.feature_names
        known = model.model.feature_names
        if known not in (None, names):
            raise ValueError(
                f"{WHERE}: {batches.name}: X must have the columns of the model, "
                f"{', '.join(known[:10])}, got {', '.join(names[:10])}"
            )
        model = model._replace(model=model.model._replace(feature_names=names))
    dtype = model.state.expansion.vectors.dtype
    rows = source.rows_of_a_batch(WHERE, features, dtype, batch_rows)
    every = checks.size(WHERE, "every", every)
    resume = bool(checks.flag(WHERE, "resume", resume))
    position, file = Position(model), None
    if checkpoint is not None:
        file = checkpoints.start_of(WHERE, checkpoint, rows, model, _name(algorithm))
        found = checkpoints.read(WHERE, file, model) if resume else None
        if found is None:
            checkpoints.write(WHERE, file, position)
        else:
            position = found
    written = position.batches
    total = batches.num_rows if isinstance(batches, Batches) else None
    read = source.prefetched(prepared(batches, position, rows))
    with (
        progress_bar.reporting(WHERE, progress, "rows", total) as report,
        contextlib.closing(cast(Generator[Any, None, None], read)) as ready,
    ):
        if position.rows:
            report(_text(position.model), position.rows)
        try:
            while (batch := _next(ready, batches, position)) is not None:
                if batch.doubt is not None:
                    warnings.warn(f"{WHERE}: {batch.doubt}", stacklevel=2)
                position = _after(algorithm, position, batch, source.name_of(batches))
                report(_text(position.model), batch.rows)
                if file is not None and position.batches % every == 0:
                    checkpoints.write(WHERE, file, position)
                    written = position.batches
            if file is not None and written < position.batches:
                checkpoints.write(WHERE, file, position)
        except CheckpointError:
            raise
        except BaseException as error:
            if file is not None and written < position.batches:
                try:
                    checkpoints.write(WHERE, file, position)
                except CheckpointError as failed:
                    error.add_note(str(failed))
            raise
    return _replayed(algorithm, position.model, rows, source.name_of(batches))


def _check_batches(batches: Any) -> None:
    """Raises unless it may be an iterable of batches."""
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


def _begin(state: Any, classes: Any, standardise: Any, size: Any) -> StreamModel:
    """What a run begins with."""
    model = _model(state, classes, standardise)
    if size is None:
        return model
    size = checks.size(WHERE, "reservoir", size)
    if model.reservoir is not None:
        return model
    expansion = model.state.expansion
    dtype = np.dtype(expansion.vectors.dtype)
    empty = Reservoir.empty(
        _features(model.state),
        # As rows are before they are scaled.
        dtype if model.scaling is None else np.dtype(np.float64),
        dtype if expansion.num_columns == 1 else np.dtype(np.int32),
        size=size,
    )
    return model._replace(reservoir=empty)


def _model(state: Any, classes: Any, standardise: Any) -> StreamModel:
    """The model to go on with."""
    wanted = bool(checks.flag(WHERE, "standardise", standardise))
    if not isinstance(state, StreamModel):
        features = _features(state)
        scaling = Scaling.empty(features) if wanted else None
        known = _known(state, classes)
        return StreamModel(Labelled(state, scaling, known))
    _features(state.state)
    if wanted and state.scaling is None:
        raise ValueError(
            f"{WHERE}: standardise must be False for a model that has learned from "
            f"features as they are, got {standardise!r}"
        )
    if classes is not None:
        known, before = _known(state.state, classes), state.classes
        if known is None or before is None or not np.array_equal(known, before):
            raise ValueError(
                f"{WHERE}: classes must be those of the model, {listed(state.classes)}"
                f", got {listed(known)}"
            )
    return state


def _features(state: Any) -> int:
    """The number of features of a single model."""
    if not hasattr(state, "expansion"):
        raise ValueError(
            f"{WHERE}: state must be one of an online algorithm, or a StreamModel, got "
            f"{type(state).__name__}"
        )
    return examples.num_features(WHERE, state)


def _known(state: Any, classes: Any) -> np.ndarray | None:
    """The classes, if they are as many labels as the learner has."""
    if classes is None:
        return None
    expected = max(2, state.expansion.num_columns)
    if models.is_regressor(state):
        raise ValueError(
            f"{WHERE}: classes must be None for a regressor, got {classes!r}"
        )
    try:
        given = np.asarray(classes)
    except ValueError:
        given = np.zeros(())
    labels = given.reshape(-1).tolist()
    if given.dtype.kind in "OU" and given.ndim:
        given = np.array(labels)
        original = classes.tolist() if isinstance(classes, np.ndarray) else classes
        good = all(isinstance(label, str) for label in original)
    else:
        good = given.dtype.kind in "biuf" and not np.any(given != given)
    if not good or given.ndim != 1 or len(set(labels)) != len(given):
        raise ValueError(
            f"{WHERE}: classes must be distinct numbers, or distinct strings, got "
            f"{classes!r}"
        )
    if len(given) != expected:
        raise ValueError(
            f"{WHERE}: classes must be {expected}, as many as the learner's, got "
            f"{len(given)}: {listed(given)}"
        )
    return given


def _name(algorithm: Any) -> str:
    """What tells algorithms apart whose states are of one type."""
    return f"{algorithm.init.__module__}.{algorithm.init.__qualname__}"


def _next(
    ready: Iterator[Batch], batches: Iterable[Any], position: Position
) -> Batch | None:
    """The next batch, or None after the last."""
    try:
        return next(ready, None)
    except (ImportError, MemoryError):
        raise
    except ValueError as error:
        raise StreamError(f"{WHERE}: {error}", position.model) from error
    except Exception as error:  # whatever an iterator may raise: the model is kept
        raise StreamError(
            f"{WHERE}: {source.name_of(batches)}: batches must be readable, got "
            f"{type(error).__name__}: {error}, after row {position.rows}",
            position.model,
        ) from error


def _after(
    algorithm: Algorithm, position: Position, batch: Batch, name: str
) -> Position:
    """The position after one batch more."""
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
        away = np.asarray(scores, np.float64)[present] - batch.y[present]
        error, scored = float(away @ away), int(present.sum())
    else:
        error = float(state.num_mistakes - model.state.num_mistakes)
        scored = int(state.num_seen - model.state.num_seen)
    model = extended(model, state, batch.scaling, batch.rows, scored, error)
    if model.reservoir is not None:
        model = model._replace(reservoir=model.reservoir.updated(*batch.given))
    return Position(
        model,
        position.batches + 1,
        batch.first + batch.rows,
        batch.given,
    )


def _replayed(
    algorithm: Algorithm, model: StreamModel, size: int, name: str
) -> StreamModel:
    """The model after the rows of its reservoir, which it then no longer has.

    Errors of these rows are none of the curve: the model has met them before.
    """
    if model.reservoir is None:
        return model
    state, rows = model.state, model.reservoir.rows()
    X = rows.X
    if model.scaling is not None:
        X = model.scaling.apply(X, state.expansion.vectors.dtype)
    try:
        for start in range(0, len(X), size):
            part = slice(start, start + size)
            batch = Batch(
                padded(X[part], size),
                padded(rows.y[part], size, 1),
                padded(rows.weights[part], size),
                rows=len(X[part]),
                first=start,
                scaling=None,
                given=(),
                doubt=None,
            )
            where = f"{WHERE}: the reservoir of {name}"
            state, _ = _learned(algorithm, state, batch, where)
    except (ValueError, OverflowError) as error:
        raise StreamError(str(error), model) from error
    model = model._replace(model=model.model._replace(model=state))
    return model._replace(reservoir=None)


def _learned(
    algorithm: Algorithm, state: Any, batch: Batch, where: str
) -> tuple[Any, Array]:
    """The state after a batch, and the scores of its rows.

    Raises:
      ValueError: if the batch is not the model's, or the model would not be finite.
      OverflowError: if the model had to refuse examples.
    """
    # What is on the device in the state's types needs no program that puts it there.
    X, weights = jax.device_put((batch.X, batch.weight))
    y = jax.device_put(batch.y) if batch.y.dtype.itemsize == 4 else batch.y
    X, y, weights = examples.stream(where, state, X, y, weights, batch.first)
    size = engine.block_length(WHERE, None, state.expansion.ages.shape[0] - 1)
    new, scores = engine.run_checked(algorithm, state, X, y, weights, size)
    row, good = _harm(new, X, scores)
    row = int(row)
    if not good or row < batch.rows:
        if bool(jnp.all(jnp.isfinite(state.kernel.diag(X, kernels.squared_norms(X))))):
            raise ValueError(
                f"{where}: the model must stay finite: {engine.cause(state, X)}"
            )
        # What breaks a model may show in later rows only; it is the largest so far.
        seen = batch.X[: min(row + 1, batch.rows)].astype(np.float64)
        row = int(np.argmax(np.sum(np.square(seen), axis=1)))
        raise ValueError(
            f"{where}: X must be so small that {X.dtype} can hold kernel values, got "
            f"{largest(batch.X[row], batch.first + row)}; scale X down"
        )
    engine.check_room(where, new)
    return new, scores


@jax.jit
def _harm(
    state: Any, X: Float[Array, "n features"], scores: Float[Array, "n ..."]
) -> tuple[Integer[Array, ""], Bool[Array, ""]]:
    """The first row whose score or `k(x, x)` is not finite, or n; and if the model is.

    A row with a finite score can be a support vector that breaks what comes later.
    """
    selves = state.kernel.diag(X, kernels.squared_norms(X))
    # A sum is finite only if all its terms are.
    sums = selves * 0 + jnp.sum(scores.reshape(len(X), -1) * 0, axis=1)
    bad = ~jnp.isfinite(sums)
    row = jnp.where(jnp.any(bad), jnp.argmax(bad), len(X)).astype(jnp.int32)
    expansion = state.expansion
    model = jnp.sum(expansion.terms[:-1] * 0) + expansion.scale
    return row, jnp.isfinite(model)


def _text(model: StreamModel) -> str:
    """The text of the progress bar."""
    vectors = int(model.state.expansion.num_active)
    name = "mean squared error" if models.is_regressor(model.state) else "error"
    return f"{name} {model.error:.4g}, {vectors} support vectors"
