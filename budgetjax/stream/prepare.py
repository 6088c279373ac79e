"""Batches as a learner takes them: of one length, checked, scaled and labelled."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from budgetjax.models import coded, padded
from budgetjax.scaling import Scaling, unscaled
from budgetjax.stream import batches as source
from budgetjax.stream import checkpoints
from budgetjax.stream.batches import Batches
from budgetjax.stream.checkpoints import Position
from budgetjax.stream.model import StreamModel


class Batch(NamedTuple):
    """Examples as the learner takes them.

    Attributes:
      X: shape `(batch_rows, num_features)`.
      y: in the labels of the learner, shape `(batch_rows,)`.
      weight: shape `(batch_rows,)`; 0 from `rows` on.
      rows: how many there are.
      first: the number of the first in the source.
      scaling: of all rows up to the last.
      given: the examples before scaling, without what fills them up.
      doubt: what there is to warn of.
    """

    X: np.ndarray
    y: np.ndarray
    weight: np.ndarray
    rows: int
    first: int
    scaling: Scaling | None
    given: tuple[np.ndarray, ...]
    doubt: str | None


def prepared(batches: Iterable[Any], start: Position, rows: int) -> Iterator[Batch]:
    """The batches after a position, ready to be learned; this runs ahead of it."""
    name, model = source.name_of(batches), start.model
    dtype, scaling = model.state.expansion.vectors.dtype, model.scaling
    names = batches.feature_names if isinstance(batches, Batches) else None
    read = 0
    # Before they are scaled, features may need more digits than after.
    wide = dtype if scaling is None else np.float64
    for index, (X, y, weight) in enumerate(source.in_rows(batches, rows, wide)):
        first, read = index * rows, index + 1
        if read < start.batches:
            continue
        _check_features(name, model.state.expansion.vectors.shape[1], X, first, names)
        y = _encoded(name, model, y, first)
        given = (X, y, weight)
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
        _check_squares(name, X, first)
        if scaling is None and index == 0 and not model.num_rows:
            doubt = unscaled(name, X)
        yield Batch(
            padded(X, rows),
            padded(y, rows, 1),
            padded(weight, rows),
            rows=len(y),
            first=first,
            scaling=scaling,
            given=given,
            doubt=doubt,
        )
    if read < start.batches:
        raise ValueError(
            f"{name}: batches must have the {start.rows} rows that the checkpoint has "
            f"learned, got {read * rows} at most; {checkpoints.AGAIN}"
        )
    if not read:
        raise ValueError(f"{name}: batches must have rows, got none")


def _check_features(
    name: str, features: int, X: np.ndarray, first: int, names: tuple[str, ...] | None
) -> None:
    """Raises unless rows are of the right width, and finite."""
    if X.shape[1] != features:
        raise ValueError(
            f"{name}: X must have {features} columns, the model's num_features, got "
            f"{X.shape[1]} in row {first}"
        )
    check_finite(name, X, first, names)


def check_finite(
    name: str, X: np.ndarray, first: int, names: tuple[str, ...] | None
) -> None:
    """Raises at the first number that is none, with its place in the source.

    Args:
      name: of the source.
      X: some of its rows.
      first: the number of the first of them.
      names: of the columns, or None if they have numbers.
    """
    finite = np.isfinite(X)
    if not np.all(finite):
        row, column = np.unravel_index(int(np.argmin(finite)), X.shape)
        shown = column if names is None else repr(names[column])
        raise ValueError(
            f"{name}: X must be finite, got {X[row, column]} in row "
            f"{first + int(row)}, column {shown}"
        )


def _check_squares(name: str, X: np.ndarray, first: int) -> None:
    """Raises unless squared norms of rows, which all kernels start from, are finite.

    A model would take up such a row without a sign of harm, and fail at the next.
    """
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.sum(np.square(X), axis=1))
    if not np.all(finite):
        row = int(np.argmin(finite))
        raise ValueError(
            f"{name}: X must have squares that {X.dtype} can hold, got "
            f"{largest(X[row], first + row)}; scale X down"
        )


def largest(x: np.ndarray, row: int) -> str:
    """The value furthest from 0 of a row with this number, for messages."""
    column = int(np.argmax(np.abs(x)))
    return f"{float(x[column]):g} in row {row}, column {column}"


def _encoded(name: str, model: StreamModel, y: np.ndarray, first: int) -> np.ndarray:
    """The targets as the learner has them; it checks labels that are its own."""
    columns = model.state.expansion.num_columns
    text = y.dtype.kind in "UO"
    if model.classes is None:
        if text:
            raise ValueError(
                f"{name}: y must be numbers, or classes= be given, got "
                f"{y.tolist()[0]!r} in row {first}"
            )
        if y.dtype == bool:
            return y.astype(np.int64)
        if columns > 1 and y.dtype.kind == "f":
            whole = (y == np.floor(y)) & (np.abs(y) < 2**31)
            if not np.all(whole):
                row = int(np.argmin(whole))
                raise ValueError(
                    f"{name}: y must be in 0 .. {columns - 1}, got {y[row]} in row "
                    f"{first + row}"
                )
            y = y.astype(np.int64)
        return y
    labels = coded(name, model.model, y, first)
    dtype = model.state.expansion.vectors.dtype if columns == 1 else labels.dtype
    return labels.astype(dtype)
