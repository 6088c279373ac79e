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

from budgetjax import checks, kernels, models, progress_bar
from budgetjax.models import Labelled, listed
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
from budgetjax.stream.prepare import Batch, filled, prepared
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
    """One pass over batches, such as those of a file, in constant memory.

    Equal to `budgetjax.run` on all rows, up to the rounding of sums. The batches may
    have any lengths: they are joined and split to one length, so that one program is
    compiled, and the result does not depend on them. A thread reads and scales ahead
    while the batch before is learned.

    With `checkpoint`, the state of the learner, the scaling and the place in the stream
    are written to a file at intervals. If the process ends, in whichever way, the same
    call continues from there to the same result, bit by bit: it reads the learned rows
    and drops them. When a run fails, or Ctrl-C interrupts it, its last whole batch is
    written first.

    Args:
      algorithm: online algorithm, for example `budgetjax.arow`.
      state: state of that algorithm; or a `StreamModel` to continue, with its classes,
        scaling and curve.
      batches: from a reader of `budgetjax.stream`, or any iterable of `(X, y)` or
        `(X, y, weight)`: X of shape `(n, num_features)`, dense or a sparse matrix of
        SciPy, y and weight of shape `(n,)`, as for `budgetjax.run`; y of shape
        `(n, num_outputs)` for several real outputs.
      classes: all labels, in the order of the learner's columns: numbers or strings.
        The first of two is its -1. None if the labels are the learner's own, -1 and +1
        or `0 .. C-1`, and for regressors.
      intercept: number subtracted from real targets before they are learned, and added
        to predictions: their mean, for targets far from 0. Shape `(num_outputs,)` for
        several outputs.
      standardise: whether to subtract the mean of every feature and divide by its
        standard deviation, over all rows up to and including the batch. The support
        vectors are mapped to the new units with every batch. Rows of weight 0 do not
        count, other weights do not matter.
      fill_missing: whether a NaN in X, which is an error else, stands for the mean of
        its feature over the rows before, and in predictions over all rows; only with
        `standardise`.
      reservoir: number of rows of a uniform sample of the stream, such as 8,192. They
        are learned again at the end, in random order: without them, a stream sorted by
        label or by a feature leaves a model of its last rows. Checkpoints hold the
        sample, and the model before the end. None keeps no rows.
      batch_rows: rows to learn at once, between two points of the curve. None is as
        many as take some 4 MiB, at most 65,536.
      progress: whether to show a bar, with rows per second, the progressive error and
        the number of support vectors.
      checkpoint: path of a file, which is written at the start, after every `every`
        batches, and at the end.
      every: number of batches between two checkpoints.
      resume: whether to continue from the checkpoint, if there is one; False starts
        anew, and writes over it. The source must then begin as it did. A run that had
        ended gives its result.

    Returns:
      A `StreamModel`, which predicts the labels of raw rows.

    Raises:
      ValueError: if an argument does not fit, or the checkpoint belongs to another run.
      StreamError: if the source cannot be read, or a batch not be learned: a value is
        not finite, a label unknown, the width of a row another, kernel values overflow,
        a model without maintenance is full. The message names the source and the row,
        counted from 0. `error.model` is the model before that batch.
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
    learner = state.state if isinstance(state, StreamModel) else state
    checks.check_algorithm(WHERE, algorithm, learner)
    fills = checks.flag(WHERE, "fill_missing", fill_missing)
    model = _begin(state, classes, intercept, standardise, fills, reservoir)
    name, total = source.name_of(batches), None
    if isinstance(batches, Batches):
        model, total = _with_names(model, batches), batches.num_rows
    expansion = model.state.expansion
    rows = source.rows_of_a_batch(
        WHERE, expansion.vectors.shape[1], expansion.vectors.dtype, batch_rows
    )
    every = checks.size(WHERE, "every", every)
    resume = bool(checks.flag(WHERE, "resume", resume))
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
    read = source.prefetched(prepared(batches, position, rows))
    with (
        progress_bar.reporting(WHERE, progress, "rows", total) as report,
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


def _with_names(model: StreamModel, batches: Batches) -> StreamModel:
    """The model with the names of the columns, if they fit it."""
    features = models.num_features(WHERE, model.state)
    if batches.num_features != features:
        raise ValueError(
            f"{WHERE}: {batches.name}: X must have {features} columns, the model's "
            f"num_features, got {batches.num_features}"
        )
    names, known = batches.feature_names, model.model.feature_names
    if names is None:
        return model
    if known not in (None, names):
        raise ValueError(
            f"{WHERE}: {batches.name}: X must have the columns of the model, "
            f"{', '.join(known[:10])}, got {', '.join(names[:10])}"
        )
    return model._replace(model=model.model._replace(feature_names=names))


def _begin(
    state: Any,
    classes: Any,
    intercept: Any,
    standardise: Any,
    fills: bool,
    size: Any,
) -> StreamModel:
    """The model at the start of a run."""
    wanted = bool(checks.flag(WHERE, "standardise", standardise))
    checks.finite(WHERE, "intercept", intercept)
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
        # As rows are before they are scaled.
        dtype if model.scaling is None else np.dtype(np.float64),
        models.target_dtype(model.state),
        models.target_shape(model.state),
        size=checks.size(WHERE, "reservoir", size),
    )
    return model._replace(reservoir=empty)


def _check_continued(
    model: StreamModel, classes: Any, intercept: np.ndarray, standardise: bool
) -> None:
    """Raises unless these arguments fit the model to continue."""
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
                f"{WHERE}: classes must be those of the model, {listed(before)}, got "
                f"{listed(known)}"
            )


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
            f"{WHERE}: classes must be {expected}, as many as the learner's, got "
            f"{len(known)}: {listed(known)}"
        )
    return known


def _next(ready: Iterator[Batch], name: str, position: Position) -> Batch | None:
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
        values = models.decided(state, np.asarray(scores, np.float64))
        away = (values - batch.y)[present] * models.unit_of_targets(model)
        error = float(np.vdot(away, away)) / state.expansion.num_columns
        scored = int(present.sum())
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

    Errors on these rows do not count in the curve: the model has met them before.
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
            batch = filled(X[part], kept.y[part], kept.weights[part], size, start)
            state, _ = _learned(algorithm, state, batch, where)
    except (ValueError, OverflowError) as error:
        raise StreamError(str(error), model) from error
    return model._replace(model=model.model._replace(model=state), reservoir=None)


def _learned(
    algorithm: Algorithm, state: Any, batch: Batch, where: str
) -> tuple[Any, Array]:
    """The state after a batch, and the scores of its rows.

    Raises:
      ValueError: if kernel values overflow, or the model would not be finite.
      OverflowError: if the model had to refuse examples.
    """
    # What is on the device in the state's types needs no program that puts it there.
    X, y, weights = jax.device_put((batch.X, batch.y, batch.weight))
    size = engine.block_length(WHERE, None)
    new, scores = engine.run_checked(algorithm, state, X, y, weights, size)
    row, rows_fit, model_fits = map(np.asarray, _harm(new, X, scores))
    if row < batch.rows or not model_fits:
        if rows_fit:
            raise ValueError(
                f"{where}: the model must stay finite: {engine.cause(state, X)}"
            )
        # What breaks a model may show in later rows only; it is the largest so far.
        seen = np.abs(batch.X[: min(int(row) + 1, batch.rows)].astype(np.float64))
        row = int(np.argmax(np.sum(np.square(seen), axis=1)))
        column = int(np.argmax(seen[row]))
        raise ValueError(
            f"{where}: X must be so small that {X.dtype} can hold its squares and "
            f"kernel values, got {batch.X[row, column]:g} in row {batch.first + row}, "
            f"column {column}; scale X down"
        )
    engine.check_room(where, new)
    return new, scores


@jax.jit
def _harm(
    state: Any, X: Float[Array, "n features"], scores: Float[Array, "n ..."]
) -> tuple[Integer[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
    """Where a batch overflows, if it does.

    Returns:
      The first row with a score, a squared norm or a `k(x, x)` that is not finite, or
      n; whether the norms and kernel values of all rows are finite; whether the model
      is. A support vector with a finite score can break the scores of later rows.
    """
    norms = kernels.squared_norms(X)
    # A sum is finite only if all its terms are.
    sums = norms * 0 + state.kernel.diag(X, norms) * 0
    rows_fit = jnp.isfinite(jnp.sum(sums))
    bad = ~jnp.isfinite(sums + jnp.sum(scores.reshape(len(X), -1) * 0, axis=1))
    row = jnp.where(jnp.any(bad), jnp.argmax(bad), len(X)).astype(jnp.int32)
    expansion = state.expansion
    model = jnp.sum(expansion.terms[:-1] * 0) + expansion.scale
    return row, rows_fit, jnp.isfinite(model)


def _text(model: StreamModel) -> str:
    """The text of the progress bar."""
    vectors = int(model.state.expansion.num_active)
    name = "mean squared error" if models.is_regressor(model.state) else "error"
    return f"{name} {model.error:.4g}, {vectors} support vectors"
