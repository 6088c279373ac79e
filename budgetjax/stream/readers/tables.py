"""The readers of Parquet and Arrow tables."""

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from jax.typing import DTypeLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers.columns import (
    Columns,
    Selection,
    Table,
    Target,
    report_damage,
    table_batches,
)
from budgetjax.stream.readers.files import Path, check_readable, list_files
from budgetjax.stream.readers.formats import register_format

if TYPE_CHECKING:
    from pyarrow import RecordBatch, Schema

# The bytes of a column to read at once.
READ_AHEAD = 2**16
IPC_FILE = b"ARROW1"


@register_format(".parquet", has_columns=True)
@names_errors("parquet")
def parquet(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    target: Target | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of a Parquet file (`.parquet`), or of several.

    Only the used columns are read, one page at a time, so about 2 MiB per column are
    held. The footers of all files are read at the start. Lists of numbers, such as
    embeddings, are a feature per place: those of a column `e` are `e[0]`, `e[1]` and so
    on. The index of a data frame is no feature unless it is named.

    Args:
      path: a file, a list of files, or a folder, whose files `*.parquet` are read in
        the order of their names, with folders in it as for `csv`.
      target: as for `csv`, like features, weight and batch_rows.
      dtype: the dtype of X and the weights, float32 or float64. None is float32 if that
        holds all numbers of the file's types, otherwise float64.

    Returns:
      `Batches`, as of `csv`. Errors name the file, and count the rows of that file.

    Raises:
      ValueError: if the file is not Parquet or damaged, or a column is missing; and
        during reading, if a target is missing, or a number out of the range of `dtype`.

    Example:
      >>> import pathlib, pyarrow.parquet, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.parquet"
      ...     pyarrow.parquet.write_table(pyarrow.table({"size": [1.0, 2.0]}), path)
      ...     [X.tolist() for (X,) in bj.stream.parquet(path, target=None)]
      [[[1.0], [2.0]]]
    """
    _checks.import_optional("pyarrow")
    paths = list_files(path, (".parquet",))
    tables = [_read_table(one, "whole Parquet", _open_parquet) for one in paths]
    chosen = Selection(target, features, weight, batch_rows, dtype)
    return table_batches(path, tables, chosen)


@register_format(".arrow", ".feather", has_columns=True)
@names_errors("arrow")
def arrow(
    source: Any,
    *,
    target: Target | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of an Arrow file, or of a table in memory.

    A file is mapped into memory: without compression, it takes the memory of a batch.
    Lists and the index of a data frame are read as by `parquet`.

    Args:
      source: the path of an IPC file or stream (`.arrow`, `.feather`), or several as
        for `parquet`; or a `pyarrow.Table` or any other object with
        `__arrow_c_stream__`, such as the data frames of polars and pandas.
      target: as for `csv`, like features, weight and batch_rows.
      dtype: as for `parquet`.

    Example:
      >>> import pyarrow
      >>> table = pyarrow.table({"size": [1.0, 2.0], "kind": ["small", "large"]})
      >>> for X, y in bj.stream.arrow(table, target="kind"):
      ...     print(X.tolist(), y.tolist())
      [[1.0], [2.0]] ['small', 'large']
    """
    pa = _checks.import_optional("pyarrow")
    if isinstance(source, str | os.PathLike | list | tuple):
        paths = list_files(source, (".arrow", ".feather"))
        tables = [_read_table(one, "whole Arrow", _open_ipc) for one in paths]
    elif hasattr(source, "__arrow_c_stream__"):
        table = pa.table(source)
        opened = table.schema, table.num_rows, lambda *_: table.to_batches()
        name, memory = type(source).__name__, contextlib.nullcontext(opened)
        tables = [_table(name, "whole Arrow", lambda: memory)]
    else:
        raise ArgumentError(
            "source", "be a path, or a table of Arrow", type(source).__name__
        )
    chosen = Selection(target, features, weight, batch_rows, dtype)
    return table_batches(source, tables, chosen)


# An open table: its columns, its number of rows, and a function that returns batches
# with at least the named columns.
Opened = tuple[
    "Schema", int | None, Callable[[list[str], int], Iterable["RecordBatch"]]
]


def _read_table(
    path: Path, intact: str, open_file: Callable[[Path], AbstractContextManager[Opened]]
) -> Table:
    """The table of a file, after a check that it can be read."""
    with names_errors(str(path)):
        check_readable(path)
        with report_damage(intact):
            return _table(str(path), intact, lambda: open_file(path))


def _table(
    name: str, intact: str, open_table: Callable[[], AbstractContextManager[Opened]]
) -> Table:
    with open_table() as (schema, num_rows, _):
        pass

    def read(columns: Columns, rows: int) -> Iterator["RecordBatch"]:
        with open_table() as (_, _, batches):
            for batch in batches(columns.names(), rows):
                part = batch.select(columns.names())
                # Invalid offsets would crash the process.
                part.validate(full=True)
                yield part

    return Table(name, intact, schema, read, num_rows)


@contextlib.contextmanager
def _open_parquet(path: Path) -> Iterator[Opened]:
    from pyarrow import parquet as format_

    # Otherwise entire column chunks are read, which may be as large as the file.
    with format_.ParquetFile(
        path, buffer_size=READ_AHEAD, pre_buffer=False, page_checksum_verification=True
    ) as file:
        read = functools.partial(file.iter_batches, use_threads=False)
        rows = file.metadata.num_rows
        yield file.schema_arrow, rows, lambda names, rows: read(rows, columns=names)


@contextlib.contextmanager
def _open_ipc(path: Path) -> Iterator[Opened]:
    """An Arrow file, or a stream in a file."""
    import pyarrow as pa

    with pa.memory_map(str(path)) as file:
        if file.read(len(IPC_FILE)) == IPC_FILE:
            reader = pa.ipc.open_file(file)
            batches = map(reader.get_batch, range(reader.num_record_batches))
        else:
            file.seek(0)
            reader = batches = pa.ipc.open_stream(file)
        yield reader.schema, None, lambda *_: batches
