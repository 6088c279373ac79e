"""From columns of Arrow to batches: what the readers of tables share."""

import collections
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import DTypeLike

from budgetjax.stream import batches as source
from budgetjax.stream.batches import Batches

HOW_TO_ENCODE = "encode text as numbers first, or choose other columns with features="
INDEX = "__index_level_"


class Columns(NamedTuple):
    """Which columns of a table are read.

    Attributes:
      features: their names.
      target: its name, or None.
      weight: its name, or None.
    """

    features: tuple[str, ...]
    target: str | None
    weight: str | None

    def names(self) -> list[str]:
        """The names of all of them."""
        more = (self.target, self.weight)
        return [*self.features, *(name for name in more if name is not None)]


class Part(NamedTuple):
    """A piece of a source.

    Attributes:
      where: the file it is of, for messages.
      row: number of its first row in that file.
      table: a `pyarrow.RecordBatch`.
    """

    where: str
    row: int
    table: Any


ReadTargets = Callable[[Part, str], np.ndarray]


def chosen(
    where: str,
    names: Sequence[str],
    target: str | int | None,
    features: Sequence[str | int] | None,
    weight: str | int | None,
) -> Columns:
    """The columns that are asked for, each by its name or number.

    Args:
      where: the source, for messages.
      names: of all columns.
      target: the column of y, or None.
      features: the columns of X; None is all others.
      weight: the column of the weights, or None.

    Raises:
      ValueError: if there is no such column, one is asked for twice, none is left for
        X, or there are weights without a target.
    """
    positions = {name: i for i, name in enumerate(names)}
    for i, name in enumerate(names):
        if positions[name] != i:
            raise ValueError(
                f"{where}: column names must be unique, got {name!r} for columns {i} "
                f"and {positions[name]}"
            )
    y = None if target is None else _one(where, names, positions, "target", target)
    w = None if weight is None else _one(where, names, positions, "weight", weight)
    if w is not None and y is None:
        raise ValueError(
            f"{where}: weight must come with a target, got {w!r} and target=None"
        )
    if w is not None and w == y:
        raise ValueError(
            f"{where}: weight must be another column than target, got {w!r} for both"
        )
    if features is None:
        # All but an index that pandas wrote beside the data; it has no name in CSV.
        X = tuple(
            name
            for i, name in enumerate(names)
            if name not in (y, w)
            and not name.startswith(INDEX)
            and (name or i or len(names) == 1)
        )
        if "" in X:
            raise ValueError(
                f"{where}: every column must have a name, got none for column "
                f"{positions['']}; choose columns with features="
            )
    else:
        if isinstance(features, str) or not isinstance(features, Sequence):
            raise ValueError(
                f"{where}: features must be a list of columns, got {features!r}"
            )
        X = tuple(
            _one(where, names, positions, "features", feature) for feature in features
        )
        for name, times in collections.Counter(X).items():
            if name in (y, w):
                raise ValueError(
                    f"{where}: features must hold neither target nor weight, got "
                    f"{name!r}"
                )
            if times > 1:
                raise ValueError(
                    f"{where}: features must be different columns, got {name!r} "
                    f"{times} times"
                )
    if not X:
        raise ValueError(
            f"{where}: features must be at least one column, got none; the columns are "
            f"{_shown(names)}"
        )
    return Columns(X, y, w)


def _one(
    where: str,
    names: Sequence[str],
    positions: dict[str, int],
    use: str,
    column: Any,
) -> str:
    if isinstance(column, str):
        if column not in positions:
            raise ValueError(
                f"{where}: {use} must be of the columns {_shown(names)}, got {column!r}"
            )
        return column
    if isinstance(column, bool) or not isinstance(column, int | np.integer):
        raise ValueError(
            f"{where}: {use} must be the name or the number of a column, got {column!r}"
        )
    if not -len(names) <= column < len(names):
        raise ValueError(
            f"{where}: {use} must be a column number from {-len(names)} to "
            f"{len(names) - 1}, got {column}"
        )
    return names[int(column)]


def _shown(names: Sequence[str]) -> str:
    if len(names) > 20:
        return f"{', '.join(map(repr, names[:20]))} and {len(names) - 20} more"
    return ", ".join(map(repr, names))


def check_same(
    where: str, names: Sequence[str], needed: Sequence[str], other: str
) -> None:
    """Raises unless a file has the columns that are needed, as another has."""
    times = collections.Counter(names)
    for name in needed:
        if times[name] != 1:
            raise ValueError(
                f"{where}: every file must have one column {name!r}, as {other} has, "
                f"got {_shown(names)}"
            )


def batches(
    where: str,
    columns: Columns,
    parts: Callable[[Columns], Iterator[Part]],
    rows: int,
    dtype: DTypeLike,
    *,
    reader_of_targets: Callable[[], ReadTargets] | None = None,
    num_rows: int | None = None,
) -> Batches:
    """Batches of `rows` rows from parts of any lengths.

    Args:
      where: the source, for messages.
      columns: what to read.
      parts: gives the pieces, in order, with such columns.
      rows: of a batch; the last may be shorter.
      dtype: of X and the weights.
      reader_of_targets: gives what reads the targets of all parts in their order; None
        is `targets`.
      num_rows: of the source, if it is known.
    """

    def start() -> ReadTargets:
        return targets if reader_of_targets is None else reader_of_targets()

    def read_targets() -> Iterator[np.ndarray]:
        target, read_column = str(columns.target), start()
        for _, part in _cut(parts(Columns((), target, None)), rows):
            yield read_column(part, target)

    return Batches(
        where,
        len(columns.features),
        lambda: _whole(columns, parts(columns), rows, dtype, start()),
        num_rows,
        columns.features,
        None if columns.target is None else read_targets,
    )


def _cut(parts: Iterator[Part], rows: int) -> Iterator[tuple[int, Part]]:
    """Parts that do not cross the end of a batch, and where in a batch they go."""
    at = 0
    for where, row, table in parts:
        start = 0
        while start < table.num_rows:
            stop = min(table.num_rows, start + rows - at)
            yield at, Part(where, row + start, table.slice(start, stop - start))
            at, start = (at + stop - start) % rows, stop


def _whole(
    columns: Columns,
    parts: Iterator[Part],
    rows: int,
    dtype: DTypeLike,
    read_targets: ReadTargets,
) -> Iterator[tuple[np.ndarray, ...]]:
    """Parts as batches of `rows` rows; the last may be shorter."""
    import pyarrow as pa

    X, weight, ys = _empty(columns, rows, dtype)
    filled, text = 0, None
    for at, part in _cut(parts, rows):
        filled = at + part.table.num_rows
        found = dict(zip(part.table.schema.names, part.table.columns, strict=True))
        for i, name in enumerate(columns.features):
            _copy(pa, part, "X", name, found[name], X[at:filled, i])
        if columns.target is not None:
            ys.append(read_targets(part, columns.target))
            text = source.same_kind(part.where, ys[-1], part.row, text)
        if columns.weight is not None:
            name = columns.weight
            _copy(pa, part, "weight", name, found[name], weight[at:filled])
        if filled == rows:
            yield _batch(columns, X, weight, ys)
            X, weight, ys = _empty(columns, rows, dtype)
    if filled % rows:
        yield _batch(columns, X[:filled], weight[:filled], ys)


def _empty(
    columns: Columns, rows: int, dtype: DTypeLike
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    return np.empty((rows, len(columns.features)), dtype), np.empty(rows, dtype), []


def _batch(
    columns: Columns, X: np.ndarray, weight: np.ndarray, ys: list[np.ndarray]
) -> tuple[np.ndarray, ...]:
    batch = (X,) if columns.target is None else (X, np.concatenate(ys))
    return batch if columns.weight is None else (*batch, weight)


def _copy(
    pa: Any, part: Part, use: str, name: str, column: Any, into: np.ndarray
) -> None:
    values = _numbers(pa, part, use, name, column)
    source.copy_numbers(part.where, use, into, values, part.row, (name,))


def _numbers(pa: Any, part: Part, use: str, name: str, column: Any) -> np.ndarray:
    """A column of numbers, without nulls."""
    types = pa.types
    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    check_nulls(part, use, name, column)
    kind = column.type
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif not (types.is_integer(kind) or types.is_floating(kind)):
        got = repr(column[0].as_py()) if _is_text(kind) else str(kind)
        raise ValueError(
            f"{part.where}: {use} must be numbers, got {got} in row {part.row}, column "
            f"{name!r}; {HOW_TO_ENCODE}"
        )
    return as_numpy(column)


def as_numpy(column: Any) -> np.ndarray:
    """An array of numbers, without nulls, as it lies in memory, not to be written to.

    Arrow's own `to_numpy` imports pandas, which takes half a second.
    """
    return np.from_dlpack(column)


def targets(part: Part, name: str) -> np.ndarray:
    """A column of targets: int64, float64, or strings as Python objects.

    Raises:
      ValueError: if there are nulls, or it holds anything else.
    """
    from pyarrow import float64, large_string, types, uint8

    column = part.table.column(name)
    kind = column.type
    coded = types.is_dictionary(kind)
    if coded and column.dictionary.null_count:
        column, coded = column.dictionary_decode(), False
    check_nulls(part, "y", name, column)
    if not coded and _is_text(kind):
        if types.is_string_view(kind):
            column = column.cast(large_string())
        # Equal strings are one object: most targets are few.
        column, coded = column.dictionary_encode(), True
    if coded:
        if _is_text(column.type.value_type):
            values = np.array(column.dictionary.to_pylist(), object)
            return values[as_numpy(column.indices)]
        values = column.dictionary.to_numpy(zero_copy_only=False)
        values = values[as_numpy(column.indices)]
    elif types.is_boolean(kind):
        values = as_numpy(column.cast(uint8())).astype(bool)
    elif types.is_integer(kind) or types.is_floating(kind):
        values = as_numpy(column)
    elif types.is_decimal(kind):
        values = as_numpy(column.cast(float64()))
    else:
        raise ValueError(
            f"{part.where}: y must be numbers or strings, got {kind} in row "
            f"{part.row}, column {name!r}"
        )
    return source.targets(part.where, values, part.row)


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
    )


def check_nulls(part: Part, use: str, name: str, column: Any) -> None:
    """Raises if a column of a part has nulls."""
    if column.null_count:
        row = part.row + column.is_null().index(True).as_py()
        raise ValueError(
            f"{part.where}: {use} must not have missing values, got one in row {row}, "
            f"column {name!r}"
        )
