"""Readers of tables in Parquet and Arrow."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax import checks
from budgetjax.stream.batches import Batches, rows_of_a_batch
from budgetjax.stream.readers import columns as table_columns
from budgetjax.stream.readers.columns import Columns, Part, intact, intact_parts
from budgetjax.stream.readers.files import check_opens, exact_type, float_type

# Bytes of a column that are read at once.
READ_AHEAD = 2**16
IPC_FILE = b"ARROW1"
PARQUET, ARROW = "whole Parquet", "whole Arrow"


def parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str | int | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    allow_missing: bool = False,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of a Parquet file, or of several.

    Only the columns that are used are read, one page at a time, so that some 2 MiB per
    column are held. The footers of all files are read at once.

    Args:
      path: a file, a list of files, or a folder, of which every `*.parquet` is read, in
        the order of their names.
      target: as for `csv`, like features, weight, allow_missing and
        batch_rows.
      dtype: type of X and the weights: float32 or float64. None is float32 where that
        holds all numbers of the file's types, else float64.

    Returns:
      `Batches`. Errors name the file of several, and count the rows of that file.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is no Parquet or damaged, or a column is missing; and as it is
        read, if there are no rows, a value is missing, text is where numbers are due,
        or a value is beyond the range of `dtype`.
      ImportError: if pyarrow is not installed.
    """
    checks.needs("parquet", "pyarrow", "stream")
    checks.flag("parquet", "allow_missing", allow_missing)
    paths = _files(path)
    where = str(path)
    if not isinstance(path, str | os.PathLike):
        where = str(paths[0])
        where += f" and {len(paths) - 1} more" if len(paths) > 1 else ""
    schemas, num_rows = [], 0
    for one in paths:
        with _opened(one) as file:
            schemas.append(file.schema_arrow)
            num_rows += file.metadata.num_rows
    chosen = table_columns.chosen(
        str(paths[0]), schemas[0].names, target, features, weight
    )
    # All columns are asked for, so none may be left out in any file.
    given = None if features is None else chosen.features
    for one, schema in zip(paths, schemas, strict=True):
        found = table_columns.chosen(
            str(one), schema.names, chosen.target, given, chosen.weight
        )
        if odd := set(found.features) ^ set(chosen.features):
            raise ValueError(
                f"{one}: every file must have the columns of {paths[0]}, got "
                f"{min(odd)!r} in one of them only"
            )
    types = set().union(*(_types(schema, chosen) for schema in schemas))
    dtype = float_type("parquet", dtype, exact_type(types))
    rows = rows_of_a_batch("parquet", len(chosen.features), dtype, batch_rows)

    def parts(wanted: Columns) -> Iterator[Part]:
        for one in paths:
            with _opened(one) as file:
                tables = file.iter_batches(
                    rows, columns=wanted.names(), use_threads=False
                )
                yield from intact_parts(str(one), PARQUET, _valid(tables))

    chosen = table_columns.expanded(where, chosen, parts)
    rows = rows_of_a_batch("parquet", len(chosen.features), dtype, batch_rows)
    return table_columns.batches(
        *(where, chosen, parts, rows, dtype, num_rows), allow_missing=allow_missing
    )


def arrow(
    source: Any,
    *,
    target: str | int | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    allow_missing: bool = False,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of an Arrow file, or of a table in memory.

    A file is mapped into memory: without compression, it takes only a batch of it.

    Args:
      source: path of an IPC file or stream (`.arrow`, `.feather`); or a `pyarrow.Table`
        or any other object with `__arrow_c_stream__`, such as the data frames of polars
        and pandas.
      target: as for `csv`, like features, weight, allow_missing and
        batch_rows.
      dtype: as for `parquet`.

    Returns:
      `Batches`.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: as `parquet`.
      ImportError: if pyarrow is not installed.

    Example:
      >>> import pyarrow
      >>> from budgetjax import stream
      >>> table = pyarrow.table({"size": [1.0, 2.0], "kind": ["small", "large"]})
      >>> for X, y in stream.arrow(table, target="kind"):
      ...     print(X.tolist(), y.tolist())
      [[1.0], [2.0]] ['small', 'large']
    """
    pa = checks.needs("arrow", "pyarrow", "stream")
    checks.flag("arrow", "allow_missing", allow_missing)
    if isinstance(source, str | os.PathLike):
        where, num_rows = str(source), None
        check_opens(source)
        with intact(where, ARROW), _ipc(pa, where) as (schema, _):
            pass

        def tables() -> Iterator[Any]:
            with _ipc(pa, where) as (_, found):
                yield from found

    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
        where, num_rows = type(source).__name__, table.num_rows
        schema, tables = table.schema, table.to_batches
    else:
        raise ValueError(
            "arrow: source must be a path, or a table of Arrow, got "
            f"{type(source).__name__}"
        )
    chosen = table_columns.chosen(where, schema.names, target, features, weight)
    dtype = float_type("arrow", dtype, exact_type(_types(schema, chosen)))

    def parts(wanted: Columns) -> Iterator[Part]:
        found = (table.select(wanted.names()) for table in tables())
        return intact_parts(where, ARROW, _valid(found))

    chosen = table_columns.expanded(where, chosen, parts)
    rows = rows_of_a_batch("arrow", len(chosen.features), dtype, batch_rows)
    return table_columns.batches(
        *(where, chosen, parts, rows, dtype, num_rows), allow_missing=allow_missing
    )


def _valid(tables: Iterator[Any]) -> Iterator[Any]:
    """Tables that are checked: offsets beyond an end would end the process."""
    for table in tables:
        table.validate(full=True)
        yield table


def _types(schema: Any, chosen: Columns) -> set[np.dtype]:
    """NumPy's types for the numbers in the columns of X and the weights."""
    from pyarrow import types

    found = set()
    for name in chosen._replace(target=None).names():
        if name in chosen.of_text():
            continue
        kind = schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        exact = types.is_boolean(kind) or types.is_integer(kind)
        exact = exact or types.is_floating(kind)
        # Decimals are read as float64; what is no number raises an error then.
        found.add(np.dtype(kind.to_pandas_dtype() if exact else np.float64))
    return found


def _files(path: Any) -> list[Path]:
    """The Parquet files that a path, a folder, or a list of paths stands for."""
    if not isinstance(path, str | os.PathLike):
        paths = [Path(one) for one in path]
        if not paths:
            raise ValueError("parquet: path must be files, got an empty list")
        return paths
    if not os.path.isdir(path):
        return [Path(path)]
    paths = sorted(one for one in Path(path).glob("*.parquet") if one.is_file())
    if not paths:
        raise ValueError(f"{path}: the folder must have files *.parquet, got none")
    return paths


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    check_opens(path)
    from pyarrow import parquet as format_

    with intact(str(path), PARQUET):
        # Otherwise whole chunks of columns are read, which may be as large as the file.
        file = format_.ParquetFile(
            path,
            buffer_size=READ_AHEAD,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        _ = file.schema_arrow.names
    with file:
        yield file


@contextlib.contextmanager
def _ipc(pa: Any, path: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema and the record batches of a file or stream of Arrow."""
    with pa.memory_map(path) as source:
        if source.read(len(IPC_FILE)) == IPC_FILE:
            reader = pa.ipc.open_file(source)
            indices = range(reader.num_record_batches)
            yield reader.schema, (reader.get_batch(i) for i in indices)
        else:
            source.seek(0)
            reader = pa.ipc.open_stream(source)
            yield reader.schema, iter(reader)
