"""Readers of tables in Parquet and Arrow."""

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax.stream.batches import Batches, rows_of_a_batch
from budgetjax.stream.readers import columns as table_columns
from budgetjax.stream.readers.columns import Columns, Part
from budgetjax.stream.readers.files import check_opens, exact_type, float_type, needs

# Bytes of a column that are read at once.
READ_AHEAD = 2**16
IPC_FILE = b"ARROW1"


def parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: str | int | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of a Parquet file, or of many.

    Only the columns that are used are read, and of those a page at a time, so that some
    2 MiB a column are held. The footers of all files are read at once.

    Args:
      path: a file, a list of files, or a folder, of which every `*.parquet` is read, in
        the order of their names.
      target: the column of y, by its name or number, negative ones counting from the
        end; None if there is none, and batches are then `(X,)`.
      features: the columns of X, which must hold numbers or booleans; None is all but
        the target and the weight.
      weight: the column of weights, or None.
      batch_rows: rows of a batch; None is as many as make some 4 MiB, at most 65,536.
      dtype: of X and the weights: float32 or float64. None is float32 where that
        holds all numbers of the file's types, else float64.

    Returns:
      `Batches`. Errors name the file of many, and count the rows of that file.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is no Parquet or damaged, a column is missing, there are no
        rows; and as it is read, if a value is missing, text where numbers are due, or
        beyond the range of `dtype`.
      ImportError: if pyarrow is not installed.
    """
    pa = needs("parquet", "pyarrow")
    paths = _files(path)
    float_type("parquet", dtype)
    with _opened(pa, paths[0]) as file:
        names = file.schema_arrow.names
    chosen = table_columns.chosen(str(paths[0]), names, target, features, weight)
    num_rows, types = 0, set()
    for one in paths:
        with _opened(pa, one) as file:
            found = file.schema_arrow.names
            table_columns.check_same(str(one), found, chosen.names(), str(paths[0]))
            if features is None:
                # All columns are asked for, so none may be left out in any file.
                table_columns.check_same(str(paths[0]), names, found, str(one))
            num_rows += file.metadata.num_rows
            types |= _types(pa, file.schema_arrow, chosen)
    dtype = float_type("parquet", dtype, exact_type(types))
    where = str(path) if isinstance(path, str | os.PathLike) else str(paths[0])
    if len(paths) > 1 and not isinstance(path, str | os.PathLike):
        where = f"{where} and {len(paths) - 1} more"
    if not num_rows:
        raise ValueError(f"{where}: there must be rows, got none")
    rows = rows_of_a_batch("parquet", len(chosen.features), dtype, batch_rows)

    def parts(wanted: Columns) -> Iterator[Part]:
        for one in paths:
            with _opened(pa, one) as file:
                tables = file.iter_batches(
                    rows, columns=wanted.names(), use_threads=False
                )
                yield from _intact(pa, str(one), "Parquet", tables)

    return table_columns.batches(where, chosen, parts, rows, dtype, num_rows=num_rows)


def arrow(
    source: Any,
    *,
    target: str | int | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of an Arrow file, or of a table in memory.

    A file is mapped into memory, so that one without compression takes none but for a
    batch.

    Args:
      source: the path of an IPC file or stream (`.arrow`, `.feather`); or a
        `pyarrow.Table` or any other object with `__arrow_c_stream__`, such as the data
        frames of polars and pandas; or a `pyarrow.RecordBatchReader`, which can be read
        once only.
      target: the column of y, by its name or number, negative ones counting from the
        end; None if there is none, and batches are then `(X,)`.
      features: the columns of X, which must hold numbers or booleans; None is all but
        the target and the weight.
      weight: the column of weights, or None.
      batch_rows: rows of a batch; None is as many as make some 4 MiB, at most 65,536.
      dtype: of X and the weights: float32 or float64. None is float32 where that
        holds all numbers of the file's types, else float64.

    Returns:
      `Batches`.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is no Arrow or damaged, a column is missing, there are no rows;
        and as it is read, if a value is missing, text where numbers are due, or beyond
        the range of `dtype`, or if what can be read once is read again.
      ImportError: if pyarrow is not installed.

    Example:
      >>> import pyarrow
      >>> from budgetjax import stream
      >>> table = pyarrow.table({"size": [1.0, 2.0], "kind": ["small", "large"]})
      >>> for X, y in stream.arrow(table, target="kind"):
      ...     print(X.tolist(), y.tolist())
      [[1.0], [2.0]] ['small', 'large']
    """
    pa = needs("arrow", "pyarrow")
    float_type("arrow", dtype)
    if isinstance(source, str | os.PathLike):
        where, num_rows = str(source), None
        check_opens(source)
        with _ipc(pa, where) as (schema, _):
            pass

        def tables() -> Iterator[Any]:
            with _ipc(pa, where) as (_, found):
                yield from found

    else:
        where, num_rows = type(source).__name__, getattr(source, "num_rows", None)
        schema, tables = _in_memory(pa, where, source)
    chosen = table_columns.chosen(where, schema.names, target, features, weight)
    dtype = float_type("arrow", dtype, exact_type(_types(pa, schema, chosen)))
    rows = rows_of_a_batch("arrow", len(chosen.features), dtype, batch_rows)

    def parts(wanted: Columns) -> Iterator[Part]:
        row = 0
        found = (table.select(wanted.names()) for table in tables())
        for part in _intact(pa, where, "Arrow", found):
            yield part
            row += part.table.num_rows
        if not row:
            raise ValueError(f"{where}: the table must have rows, got none")

    return table_columns.batches(where, chosen, parts, rows, dtype, num_rows=num_rows)


def _types(pa: Any, schema: Any, chosen: Columns) -> set[np.dtype]:
    """NumPy's types for the numbers in the columns of X and the weights."""
    types = set()
    for name in (*chosen.features, *([chosen.weight] if chosen.weight else [])):
        kind = schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        numbers = pa.types.is_boolean(kind) or pa.types.is_integer(kind)
        exact = numbers or pa.types.is_floating(kind)
        # Decimals are read as float64; what is not a number is told of as it is read.
        types.add(np.dtype(kind.to_pandas_dtype() if exact else np.float64))
    return types


def _files(path: Any) -> list[Path]:
    """The Parquet files that a path, a folder, or a list of them is."""
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
def _opened(pa: Any, path: Path) -> Iterator[Any]:
    check_opens(path)
    from pyarrow import parquet as format_

    try:
        # Otherwise whole chunks of columns are read, which may be as large as the file.
        file = format_.ParquetFile(
            path,
            buffer_size=READ_AHEAD,
            pre_buffer=False,
            page_checksum_verification=True,
        )
        _ = file.schema_arrow.names
    except MemoryError:
        raise
    except _damage(pa) as error:
        raise _damaged(str(path), "Parquet", 0, error) from error
    with file:
        yield file


@contextlib.contextmanager
def _ipc(pa: Any, where: str) -> Iterator[tuple[Any, Iterator[Any]]]:
    """The schema and the record batches of a file or stream of Arrow."""
    try:
        source = pa.memory_map(where)
        if source.read(len(IPC_FILE)) == IPC_FILE:
            reader = pa.ipc.open_file(source)
            indices = range(reader.num_record_batches)
            found = (reader.get_batch(i) for i in indices)
        else:
            source.seek(0)
            reader = found = pa.ipc.open_stream(source)
        schema = reader.schema
    except MemoryError:
        raise
    except _damage(pa) as error:
        raise _damaged(where, "Arrow", 0, error) from error
    with source:
        yield schema, iter(found)


def _in_memory(
    pa: Any, where: str, source: Any
) -> tuple[Any, Callable[[], Iterator[Any]]]:
    """The schema and the record batches of a table or stream."""
    if not hasattr(source, "__arrow_c_stream__"):
        raise ValueError(
            "arrow: source must be a path, a table or a stream of Arrow, got "
            f"{source!r}"
        )
    once = isinstance(source, pa.RecordBatchReader)
    # A stream may be used up by the look at its names.
    fresh = [source if once else pa.RecordBatchReader.from_stream(source)]
    schema = fresh[0].schema

    def tables() -> Iterator[Any]:
        if fresh:
            yield from fresh.pop()
        elif once:
            raise ValueError(
                f"{where}: the stream must be read once only, got a second reading; "
                "write it to a file, or give a table"
            )
        else:
            yield from pa.RecordBatchReader.from_stream(source)

    return schema, tables


def _intact(pa: Any, where: str, format_: str, tables: Iterator[Any]) -> Iterator[Part]:
    """Record batches as parts, with errors of the file in its words."""
    row = 0
    while True:
        try:
            table = next(tables, None)
            if table is not None:
                # Arrow trusts its data: offsets beyond an end would end the process.
                table.validate(full=True)
        except MemoryError:
            raise
        except _damage(pa) as error:
            raise _damaged(where, format_, row, error) from error
        if table is None:
            return
        yield Part(where, row, table)
        row += table.num_rows


def _damage(pa: Any) -> tuple[type[Exception], ...]:
    """What reading a damaged file raises; `ArrowMemoryError`, one of these, apart."""
    return pa.ArrowException, OSError, EOFError, UnicodeDecodeError


def _damaged(where: str, format_: str, row: int, error: Exception) -> ValueError:
    return ValueError(
        f"{where}: the file must be whole {format_}, got an error after {row} rows: "
        f"{error}"
    )
