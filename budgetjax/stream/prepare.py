"""Batches as a learner takes them: of one length, checked, scaled and labelled."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from budgetjax import checks, examples
from budgetjax.models import coded, padded, target_dtype, target_shape
from budgetjax.scaling import Scaling, unscaled
from budgetjax.stream import batches as source
from budgetjax.stream import checkpoints
from budgetjax.stream.checkpoints import Position
from budgetjax.stream.model import StreamModel


class Batch(NamedTuple):
    """Examples in the types of the learner.

    Attributes:
      X: shape `(batch_rows, num_features)`.
      y: labels of the learner, shape `(batch_rows,)`, or its targets, shape
        `(batch_rows, num_outputs)`.
      weight: shape `(batch_rows,)`; 0 from `rows` on.
      rows: number of rows.
      first: number of the first row in the source.
      scaling: scaling by all rows up to the last.
      given: the examples before scaling and filling up.
      doubt: message of a warning, or None.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    rows: int
    first: int
    scaling: Scaling | None = None
    given: tuple[np.ndarray, ...] = ()
    doubt: str | None = None


def filled(
    X: np.ndarray, y: np.ndarray, weight: np.ndarray, size: int, first: int, **more: Any
) -> Batch:
    """Examples, filled up to `size` rows with rows of weight 0."""
    weight = padded(weight.astype(X.dtype), size)
    return Batch(padded(X, size), padded(y, size, 1), weight, len(y), first, **more)


def prepared(batches: Iterable[Any], start: Position, rows: int) -> Iterator[Batch]:
    """The batches after a position, ready to be learned; this runs ahead of learning.

    Raises:
      ValueError: if a row does not fit the model, or the source lacks the rows of the
        checkpoint; with the source and the row.
    """
    name, model = source.name_of(batches), start.model
    dtype, scaling = model.state.expansion.vectors.dtype, model.scaling
    width = model.state.expansion.vectors.shape[1]
    names = model.model.feature_names
    read = 0
    # Before they are scaled, features may need more digits than after.
    wide = dtype if scaling is None else np.float64
    outputs = target_shape(model.state)
    ready = source.in_rows(batches, rows, wide, width, outputs, names)
    for index, (X, y, weight) in enumerate(ready):
        first, read = index * rows, index + 1
        if read < start.batches:
            continue
        # What is kept has gaps still: at the end other means will fill them.
        raw = X
        X = X if scaling is None else scaling.filled(X)
        checks.check_finite(name, X, first, names)
        examples.check_weights(name, weight, dtype, first)
        y = _encoded(name, model, y, first)
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
        yield filled(
            *(X, y, weight, rows, first), scaling=scaling, given=given, doubt=doubt
        )
    if read < start.batches:
        raise ValueError(
            f"{name}: batches must have the {start.rows} rows that the checkpoint has "
            f"learned, got {read * rows} at most; {checkpoints.AGAIN}"
        )
    if not read:
        raise ValueError(f"{name}: batches must have rows, got none")


def _encoded(name: str, model: StreamModel, y: np.ndarray, first: int) -> np.ndarray:
    """The targets in the labels and type of the learner."""
    if model.classes is not None:
        y = coded(name, model.model, y, first)
    elif y.dtype.kind in "UO":
        raise ValueError(
            f"{name}: y must be numbers, or classes= be given, got {y.tolist()[0]!r} "
            f"in row {first}"
        )
    else:
        y = coded(name, model.model, y, first)
        examples.check_labels(name, model.state, y, first)
    return y.astype(target_dtype(model.state))
