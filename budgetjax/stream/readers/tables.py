"""The readers of Parquet and Arrow tables."""

import contextlib
import functools
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers import columns as table_columns
from budgetjax.stream.readers.columns import Columns, Table, report_damage
from budgetjax.stream.readers.files import Path, check_readable, list_files
from budgetjax.stream.readers.formats import register_format

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema
    from pyarrow.parquet import ParquetFile

# The bytes of a column to read at once.
READ_AHEAD = 2**16
IPC_FILE = b"ARROW1"
PARQUET, ARROW = "whole Parquet", "whole Arrow"


@register_format(".parquet", has_columns=True)
@names_errors("parquet")
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

    Only the used columns are read, one page at a time, so about 2 MiB per column are
    held. The footers of all files are read at the start.

    Args:
      path: a file, a list of files, or a folder, whose files `*.parquet` are read in
        the order of their names.
      target: as for `csv`, like features, weight, allow_missing and batch_rows.
      dtype: the dtype of X and the weights, float32 or float64. None is float32 if that
        holds all numbers of the file's types, otherwise float64.

    Returns:
      `Batches`. Errors name the file, and count the rows of that file.

    Raises:
      ValueError: if the file is not Parquet or damaged, or a column is missing; and
        during reading, if there are no rows, a value is missing, text is found instead
        of a number, or a value is out of the range of `dtype`.

    Example:
      >>> import pathlib, pyarrow.parquet, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.parquet"
      ...     pyarrow.parquet.write_table(pyarrow.table({"size": [1.0, 2.0]}), path)
      ...     [X.tolist() for (X,) in bj.stream.parquet(path, target=None)]
      [[[1.0], [2.0]]]
    """
    _checks.import_optional("pyarrow")

    def table(one: Path) -> Table:
        def read(wanted: Columns, rows: int) -> Iterator["RecordBatch"]:
            with _open_parquet(one) as file:
                names = wanted.names()
                yield from _validate(
                    file.iter_batches(rows, columns=names, use_threads=False)
                )

        with names_errors(str(one)), _open_parquet(one) as file:
            schema, num_rows = file.schema_arrow, file.metadata.num_rows
        types = functools.partial(_column_types, schema)
        return Table(str(one), schema.names, types, read, num_rows)

    tables = [table(one) for one in list_files(path, (".parquet",))]
    return table_columns.table_batches(
        *(PARQUET, path, tables),
        *(target, features, weight, allow_missing, batch_rows, dtype),
    )


@register_format(".arrow", ".feather", has_columns=True)
@names_errors("arrow")
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

    A file is mapped into memory: without compression, it takes the memory of a batch.

    Args:
      source: the path of an IPC file or stream (`.arrow`, `.feather`), or several as
        for `parquet`; or a `pyarrow.Table` or any other object with
        `__arrow_c_stream__`, such as the data frames of polars and pandas.
      target: as for `csv`, like features, weight, allow_missing and batch_rows.
      dtype: as for `parquet`.

    Returns:
      `Batches`.

    Example:
      >>> import pyarrow
      >>> table = pyarrow.table({"size": [1.0, 2.0], "kind": ["small", "large"]})
      >>> for X, y in bj.stream.arrow(table, target="kind"):
      ...     print(X.tolist(), y.tolist())
      [[1.0], [2.0]] ['small', 'large']
    """
    pa = _checks.import_optional("pyarrow")

    def file(path: Path) -> Table:
        name = str(path)
        with names_errors(name):
            check_readable(path)
            with report_damage(ARROW), _open_ipc(pa, name) as (schema, _):
                pass

        def read(wanted: Columns, rows: int) -> Iterator["RecordBatch"]:
            with _open_ipc(pa, name) as (_, found):
                yield from _validate(one.select(wanted.names()) for one in found)

        return Table(name, schema.names, functools.partial(_column_types, schema), read)

    if isinstance(source, str | os.PathLike | list | tuple):
        tables = [file(one) for one in list_files(source, (".arrow", ".feather"))]
    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)

        def read(wanted: Columns, rows: int) -> Iterator["RecordBatch"]:
            return _validate(one.select(wanted.names()) for one in table.to_batches())

        types = functools.partial(_column_types, table.schema)
        name = type(source).__name__
        tables = [Table(name, table.column_names, types, read, table.num_rows)]
    else:
        raise ArgumentError(
            "source", "be a path, or a table of Arrow", type(source).__name__
        )
    return table_columns.table_batches(
        *(ARROW, source, tables),
        *(target, features, weight, allow_missing, batch_rows, dtype),
    )


def _validate(tables: Iterator["RecordBatch"]) -> Iterator["RecordBatch"]:
    """Validates tables, since invalid offsets would crash the process."""
    for table in tables:
        table.validate(full=True)
        yield table


def _column_types(schema: "Schema", chosen: Columns) -> set[np.dtype]:
    """The NumPy dtypes of the columns of X and the weights."""
    from pyarrow import types

    found = set()
    for name in chosen._replace(target=None).names():
        if name in chosen.text_columns():
            continue
        kind = schema.field(name).type
        kind = kind.value_type if types.is_dictionary(kind) else kind
        exact = types.is_boolean(kind) or types.is_integer(kind)
        exact = exact or types.is_floating(kind)
        # Decimals are read as float64; anything but numbers raises an error there.
        found.add(np.dtype(kind.to_pandas_dtype() if exact else np.float64))
    return found


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator["ParquetFile"]:
    check_readable(path)
    from pyarrow import parquet as format_

    with report_damage(PARQUET):
        # Otherwise entire column chunks are read, which may be as large as the file.
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
def _open_ipc(pa: Any, path: str) -> Iterator[tuple["Schema", Iterator["RecordBatch"]]]:
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
