"""Converts columns of Arrow to batches, for all readers of tables."""

import collections
import contextlib
import itertools
import json
import lzma
import os
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from jax.typing import DTypeLike

from budgetjax._errors import ArgumentError, names_errors
from budgetjax._rows import regroup
from budgetjax.stream import batches as source
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers import files
from budgetjax.tables import categories

if TYPE_CHECKING:
    from pyarrow import Array, DataType, RecordBatch, Schema

# How the names of types begin in Arrow whose values are names.
TEXTS = "string", "large_string", "binary", "large_binary", "fixed_size_b", "dictionary"
INDEX = "__index_level_"
PLACE = re.compile(r"(.*)\[(\d{1,9})\]", re.DOTALL)


# A column, by its name or number, or several.
Target: TypeAlias = str | int | Sequence[str | int]


class Columns(NamedTuple):
    """The columns of a table that are read.

    `features` has the column of every feature, and its place in lists or None.
    `targets` are the columns of y. `lengths` are those of the lists, and `texts` the
    columns that hold names.
    """

    features: Mapping[str, tuple[str, int | None]]
    targets: tuple[str, ...] = ()
    weight: str | None = None
    lengths: Mapping[str, int] = types.MappingProxyType({})
    texts: frozenset[str] = frozenset()

    def names(self) -> list[str]:
        """The names of all columns that are read, without repetition."""
        found = [column for column, _ in self.features.values()]
        found += [*self.targets, *([] if self.weight is None else [self.weight])]
        return list(dict.fromkeys(found))


class DamageError(Exception):
    """What a parser does not take, and advice."""


# The errors of a parser, and of Python's decompression and decoding.
DAMAGED = (DamageError, OSError, EOFError, UnicodeDecodeError, lzma.LZMAError)


class Selection(NamedTuple):
    """The arguments that all readers of tables have; see `csv`."""

    target: Target | None
    features: Sequence[str | int] | None
    weight: str | int | None
    batch_rows: int | None
    dtype: DTypeLike | None
    texts: Collection[str] = ()


def choose_columns(schema: "Schema", selection: Selection) -> Columns:
    """The selected columns, each by its name or number."""
    names, index = schema.names, index_names(schema)
    _check_distinct("column names", "be unique", names)
    known, parts = set(names), {}

    def name_of(use: str, column: object) -> str:
        if isinstance(column, str):
            if column in known:
                return column
            if use == "features" and (part := split_feature(column, known)):
                parts[column] = part
                return column
            expected = f"of the columns {_list_names(names)}"
        elif isinstance(column, bool) or not isinstance(column, int | np.integer):
            expected = "the name or the number of a column"
        elif -len(names) <= column < len(names):
            return names[int(column)]
        else:
            expected = f"a column number from {-len(names)} to {len(names) - 1}"
        alike = [name for name in names if name.strip() == str(column).strip()]
        raise ArgumentError(use, f"be {expected}", f"{column!r}").advised(
            f"spaces are part of the name {alike[0]!r}" if alike else ""
        )

    targets = tuple(name_of("target", one) for one in list_targets(selection.target))
    weight = selection.weight
    weight = None if weight is None else name_of("weight", weight)
    if weight is not None and not targets:
        expected, got = "come with a target", f"{weight!r} and target=None"
        raise ArgumentError("weight", expected, got)
    chosen = selection.features
    if chosen is None:
        features = _all_features(names, {*targets, weight, *index})
    elif isinstance(chosen, str) or not isinstance(chosen, Sequence):
        raise ArgumentError("features", "be a list of columns", f"{chosen!r}")
    else:
        features = tuple(name_of("features", one) for one in chosen)
    if not features:
        got = f"none; the columns are {_list_names(names)}"
        raise ArgumentError("features", "be at least one column", got)
    used = [*targets, *([] if weight is None else [weight])]
    used += [name for name in features if name not in parts]
    used += {column for column, _ in parts.values()}
    _check_distinct("features, target and weight", "be different columns", used)
    each = {name: parts.get(name, (name, None)) for name in features}
    return Columns(each, targets, weight)


def list_targets(target: Target | None) -> tuple[str | int, ...]:
    """The columns of y, of which there may be none, one or several."""
    if target is None:
        return ()
    if isinstance(target, Sequence) and not isinstance(target, str):
        return tuple(target)
    return (target,)


def index_names(schema: "Schema") -> tuple[str, ...]:
    """The columns that are an index of pandas, which wrote so beside the table."""
    try:
        about = json.loads((schema.metadata or {})[b"pandas"])["index_columns"]
    except (KeyError, TypeError, ValueError):
        return ()
    # An index that counts rows is no column.
    return tuple(name for name in schema.names if name in about)


def _all_features(names: Sequence[str], others: set[str | None]) -> tuple[str, ...]:
    """All columns but these and an index of pandas, which has no name in CSV."""
    features = tuple(
        name
        for i, name in enumerate(names)
        if name not in others
        and not name.startswith(INDEX)
        and (name or i or len(names) == 1)
    )
    if "" in features:
        got = f"none for column {names.index('')}"
        raise ArgumentError("every column", "have a name", got).advised(
            "choose columns with features="
        )
    return features


def split_feature(feature: str, names: Collection[str]) -> tuple[str, int] | None:
    """The parts of `COLUMN[PLACE]`, if there is such a column."""
    place = PLACE.fullmatch(feature)
    return (place[1], int(place[2])) if place and place[1] in names else None


def _check_distinct(argument: str, expected: str, names: Sequence[str]) -> None:
    for name, times in collections.Counter(names).items():
        if times > 1:
            raise ArgumentError(argument, expected, f"{name!r} {times} times")


def _list_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(repr, names[:20])) + more


class Table(NamedTuple):
    """A file of a format, or a table, with named columns.

    `read` returns record batches of some columns, with a maximum number of rows if
    possible. `intact` describes a file that can be read, for messages.
    """

    name: str
    intact: str
    schema: "Schema"
    read: Callable[[Columns, int], Iterator["RecordBatch"]]
    num_rows: int | None = None
    # What the format takes for a missing value.
    gaps: str = ""

    def parts(self, columns: Columns, rows: int) -> Iterator[tuple[int, "RecordBatch"]]:
        """At most `rows` rows at a time, with the number of the first."""
        row = 0
        with names_errors(self.name), report_damage(self.intact, lambda: row):
            for batch in self.read(columns, rows):
                for start in range(0, batch.num_rows, rows):
                    yield row + start, batch.slice(start, rows)
                row += batch.num_rows


def add_keys(
    tables: Sequence[Table], keys: Sequence[Mapping[str, str | None]]
) -> Sequence[Table]:
    """The tables with a column for each key of their folders, of one value per file."""
    import pyarrow as pa

    texts: dict[str, set[str]] = collections.defaultdict(set)
    for name, value in itertools.chain.from_iterable(one.items() for one in keys):
        texts[name] |= set() if value is None else {value}
    kinds = {name: _type_of_key(values) for name, values in texts.items()}

    def add(table: Table, values: Mapping[str, str | None]) -> Table:
        own = [name for name in table.schema.names if name not in values]
        schema = table.schema
        for name in values:
            if name in schema.names:
                schema = schema.remove(schema.get_field_index(name))
            schema = schema.append(pa.field(name, kinds[name]))

        def read(columns: Columns, rows: int) -> Iterator["RecordBatch"]:
            mine = {f: at for f, at in columns.features.items() if at[0] in own}
            targets = tuple(one for one in columns.targets if one in own)
            weight = columns.weight if columns.weight in own else None
            asked = columns._replace(features=mine, targets=targets, weight=weight)
            if not asked.names():
                # A column says how many rows there are; any can be read as text.
                first = table.schema.names[0]
                asked = Columns({first: (first, None)}, texts=frozenset({first}))
            for part in table.read(asked, rows):
                found = dict(zip(part.schema.names, part.columns, strict=True))
                for name, value in values.items():
                    cell = pa.scalar(value, pa.string()).cast(kinds[name])
                    found[name] = pa.repeat(cell, part.num_rows)
                yield pa.record_batch({one: found[one] for one in columns.names()})

        return table._replace(schema=schema, read=read)

    return [
        add(table, values) if values else table
        for table, values in zip(tables, keys, strict=True)
    ]


def _type_of_key(texts: Collection[str]) -> "DataType":
    """The type of a key with these values: of numbers or booleans if all are."""
    import pyarrow as pa

    for kind in (pa.int64(), pa.float64(), pa.bool_()):
        with contextlib.suppress(pa.ArrowException):
            return pa.array(texts, pa.string()).cast(kind).type
    return pa.string()


def table_batches(path: Any, tables: Sequence[Table], selection: Selection) -> Batches:
    """The rows of one table after the other, with the columns of the first.

    `path` is the user's argument, for messages, and for the keys of a folder in parts.
    """
    tables = add_keys(tables, [files.partition_keys(one.name, path) for one in tables])
    first = tables[0]
    name = str(path) if isinstance(path, str | os.PathLike) else first.name
    if name == first.name and len(tables) > 1:
        name += f" and {len(tables) - 1} more"
    with names_errors(first.name):
        columns = choose_columns(first.schema, selection)
    same = selection._replace(target=columns.targets, weight=columns.weight)
    if selection.features is not None:
        same = same._replace(features=tuple(columns.features))
    for table in tables[1:]:
        with names_errors(table.name):
            # All columns are wanted, so no file may lack one.
            others = choose_columns(table.schema, same).features
            if odd := others.keys() ^ columns.features.keys():
                expected = f"have the columns of {first.name}"
                got = f"{min(odd)!r} in one of them only"
                raise ArgumentError("every file", expected, got)
    texts = (_text_columns(table.schema, columns) for table in tables)
    known = {column for column, _ in columns.features.values()}
    every = known.intersection(selection.texts).union(*texts)
    columns = columns._replace(texts=frozenset(every))
    types = set().union(*(_column_types(table.schema, columns) for table in tables))
    dtype = files.float_type(selection.dtype, types)
    with names_errors(name):
        columns = _add_places(columns, tables)
    rows = source.rows_per_batch(len(columns.features), dtype, selection.batch_rows)

    def pieces(wanted: Columns) -> Iterator[tuple[Any, ...]]:
        for table in tables:
            for row, part in table.parts(wanted, rows):
                with names_errors(table.name):
                    arrays = _convert_part(wanted, row, part, dtype, table.gaps)
                yield arrays

    def read() -> Iterator[tuple[Any, ...]]:
        # Tables have the lengths that the file has, where that is less.
        found = pieces(columns)
        return found if columns.texts else regroup(found, rows)

    def read_targets() -> Iterator[np.ndarray]:
        return (y for _, y in regroup(pieces(Columns({}, columns.targets)), rows))

    counts = [table.num_rows for table in tables]
    return Batches(
        name,
        len(columns.features),
        read=read,
        num_rows=None if None in counts else sum(filter(None, counts)),
        feature_names=tuple(columns.features),
        index_names=index_names(first.schema),
        read_targets=read_targets if columns.targets else None,
        texts=tuple(one for one in columns.features if one in columns.texts),
    )


def _column_types(schema: "Schema", columns: Columns) -> set[np.dtype]:
    """The NumPy dtypes of the columns of X and the weights."""
    from pyarrow import types

    found = set()
    for name in columns._replace(targets=()).names():
        if name in columns.texts:
            continue
        kind = schema.field(name).type
        if types.is_dictionary(kind) or _is_list(kind):
            kind = kind.value_type
        tests = types.is_boolean, types.is_integer, types.is_floating
        exact = any(test(kind) for test in tests)
        # Decimals are read as float64; anything but numbers raises an error there.
        found.add(np.dtype(kind.to_pandas_dtype() if exact else np.float64))
    return found


def _text_columns(schema: "Schema", columns: Columns) -> set[str]:
    """The columns of features that hold names: texts, bytes and categories."""
    names = {column for column, _ in columns.features.values()}
    return {one for one in names if str(schema.field(one).type).startswith(TEXTS)}


def _is_list(kind: "DataType") -> bool:
    """Whether a type is of lists of numbers."""
    from pyarrow import types

    tests = types.is_list, types.is_large_list, types.is_fixed_size_list
    numbers = types.is_integer, types.is_floating, types.is_boolean, types.is_decimal
    return any(test(kind) for test in tests) and any(
        test(kind.value_type) for test in numbers
    )


def _add_places(columns: Columns, tables: Sequence[Table]) -> Columns:
    """Adds a feature for each place in the lists of columns that have lists.

    The first list of a column says how long they are.
    """
    from pyarrow import types

    lengths = {}
    for column, piece in dict(columns.features.values()).items():
        kind = tables[0].schema.field(column).type
        if not _is_list(kind):
            if piece is not None:
                got = f"{kind} in column {column!r}"
                raise ArgumentError("features", "be places in lists", got)
            continue
        if types.is_fixed_size_list(kind):
            lengths[column] = kind.list_size
            continue
        asked = Columns({column: (column, None)})
        for _, part in (pair for one in tables for pair in one.parts(asked, 1)):
            if (first := part.column(column)[0]).is_valid:
                # Empty ones are no numbers, which is said where they are read.
                lengths |= {column: len(first)} if len(first) else {}
                break
    features: list[tuple[str, tuple[str, int | None]]] = []
    for name, (column, piece) in columns.features.items():
        if piece is None and column in lengths:
            places = range(lengths[column])
            features += [(f"{column}[{i}]", (column, i)) for i in places]
        else:
            features.append((name, (column, piece)))
    _check_distinct("features", "be different", [name for name, _ in features])
    return columns._replace(features=dict(features), lengths=lengths)


def _convert_part(
    columns: Columns,
    row: int,
    part: "RecordBatch",
    dtype: DTypeLike,
    gaps: str,
) -> tuple[Any, ...]:
    """Rows, from this number on, as `(X,)`, `(X, y)` or `(X, y, weight)`.

    X is an array, or a table of Arrow where it has names.
    """
    import pyarrow as pa
    from pyarrow import compute

    found = dict(zip(part.schema.names, part.columns, strict=True))

    def numbers(use: str, name: str, column: "Array") -> np.ndarray:
        values = _convert_column(row, use, name, column)
        return source.cast_numbers(use, values, dtype, row, (name,))

    for column, length in columns.lengths.items():
        _check_lengths(row, column, found[column], length)
    X: Any = np.zeros((part.num_rows, len(columns.features)), dtype)
    for i, (name, (column, piece)) in enumerate(columns.features.items()):
        values = found[column]
        if piece is not None:
            values = compute.list_element(values, piece)  # pyright: ignore[reportAttributeAccessIssue]
        if column not in columns.texts:
            categories.check_type(name, str(values.type))
            X[:, i] = numbers("X", name, values)
        elif not str(values.type).startswith(TEXTS):
            # It is a number in this file, and a text in another.
            found[column] = values.cast(pa.string())
    if columns.texts:
        X = pa.table(
            {
                name: found[column] if column in columns.texts else values
                for (name, (column, _)), values in zip(
                    columns.features.items(), X.T, strict=True
                )
            }
        )
    if not columns.targets:
        return (X,)
    each = (
        source.coerce_targets(_convert_column(row, "y", one, found[one], gaps), row)
        for one in columns.targets
    )
    y = _join_targets(row, dict(zip(columns.targets, each, strict=True)))
    if columns.weight is None:
        return X, y
    return X, y, numbers("weight", columns.weight, found[columns.weight])


def _join_targets(row: int, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The column of targets, or several columns of numbers, shape `(n, columns)`."""
    first, *others = columns.values()
    if not others:
        return first
    for name, y in columns.items():
        if y.dtype.kind not in "biuf" and len(y):
            wanted = "be numbers where there are several columns of them"
            raise ArgumentError("y", wanted, f"{y[0]!r} in row {row}, column {name!r}")
    return np.stack(list(columns.values()), axis=1, dtype=np.float64)


def _check_lengths(row: int, name: str, column: "Array", length: int) -> None:
    """Raises if a list of a column, from this row on, has another length."""
    from pyarrow import compute

    if not _is_list(column.type):
        wanted = f"have lists in column {name!r}, as before"
        raise ArgumentError("X", wanted, f"{column.type} in row {row}")
    lengths = compute.list_value_length(column).fill_null(length)  # pyright: ignore[reportAttributeAccessIssue]
    wrong = np.flatnonzero(_as_numpy(lengths) != length)
    if len(wrong):
        got = f"one of {lengths[int(wrong[0])]} in row {row + wrong[0]}"
        wanted = f"have lists of {length} in column {name!r}, as in the first row"
        raise ArgumentError("X", wanted, got)


def _convert_column(
    row: int,
    use: str,
    name: str,
    column: "Array",
    gaps: str = "",
) -> np.ndarray:
    """A column without nulls: numbers or booleans, or for y also Python strings.

    It may share memory with Arrow, so do not write to it. Nulls of X become NaN; `gaps`
    says what a file takes for one.
    """
    import pyarrow as pa
    from pyarrow import types

    if types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if types.is_boolean(kind):
        column = column.cast(pa.uint8())
    elif types.is_decimal(kind):
        whole = use == "y" and kind.scale <= 0
        column = column.cast(pa.int64() if whole else pa.float64())
    numeric = types.is_floating(column.type) or types.is_integer(column.type)
    if use == "X" and column.null_count and (numeric or types.is_null(kind)):
        column = column.cast(pa.float64()).fill_null(float("nan"))
        numeric = True
    if column.null_count:
        row += column.is_null().index(True).as_py()
        raise ArgumentError(
            use, "not have missing values", f"one in row {row}, column {name!r}"
        ).advised(gaps)
    if numeric:
        values = _as_numpy(column)
        return values.astype(bool) if use == "y" and types.is_boolean(kind) else values
    text = kind in (pa.string(), pa.large_string(), pa.string_view())
    if use != "y" or not text:
        expected = "numbers or strings" if use == "y" else "numbers"
        got = repr(column[0].as_py()) if text else kind
        raise ArgumentError(
            use, f"be {expected}", f"{got} in row {row}, column {name!r}"
        )
    # Equal strings share one object, since most targets repeat.
    column = column.cast(pa.large_string()).dictionary_encode()
    return np.array(column.dictionary.to_pylist(), object)[_as_numpy(column.indices)]


def _as_numpy(column: "Array") -> np.ndarray:
    """Numbers without nulls, without a copy.

    Arrow's own `to_numpy` imports pandas, which takes half a second.
    """
    return np.from_dlpack(column)


@contextlib.contextmanager
def report_damage(what: str, rows: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """Turns errors from a damaged file into a `ValueError`."""
    from pyarrow import ArrowException

    try:
        yield
    except MemoryError:  # `ArrowMemoryError` is also an `ArrowException`
        raise
    except (*DAMAGED, ArrowException) as error:
        text, advice = error.args if isinstance(error, DamageError) else (error, "")
        raise ArgumentError(
            "the file", f"be {what}", f"an error after {rows()} rows: {text}"
        ).advised(advice) from error
