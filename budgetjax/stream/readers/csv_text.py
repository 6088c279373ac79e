"""Reader of text in columns, CSV."""

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from jax.typing import DTypeLike

from budgetjax import checks
from budgetjax.stream.batches import Batches, rows_of_a_batch
from budgetjax.stream.readers import columns as table_columns
from budgetjax.stream.readers import files
from budgetjax.stream.readers.columns import (
    HOW_TO_ENCODE,
    Columns,
    intact,
    intact_parts,
)

# Bytes per block, of which pyarrow reads up to 32 ahead. A row has to fit: it is taken
# to need this many bytes per cell.
BLOCK = 2**18
CELL = 64
# What other programs put between cells.
OTHERS = (",", ";", "\t", "|")
WHAT = "CSV in UTF-8, with numbers as features"
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def csv(
    path: files.Path,
    *,
    target: str | int | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    header: bool = True,
    delimiter: str = ",",
    allow_missing: bool = False,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    r"""Batches of a CSV file.

    pyarrow parses it in blocks of 256 KiB, of which some 10 MiB are held, and
    decompresses files `.gz` and `.bz2`. The text is UTF-8, cells may be quoted, and
    empty lines are skipped. Columns that are not used may hold anything.

    Args:
      path: path of the file.
      target: column of y, by its name or number, negative ones counting from the end;
        None if there is none, and batches are then `(X,)`.
      features: columns of X, which must hold numbers, or true and false; None is all
        but the target and the weight. `"COLUMN=TEXT"` is 1 where that column has that
        text, else 0, and `"COLUMN="` stands for all texts of a column, at most 1,000,
        in their order, which one more pass over the file finds, now.
      weight: column of weights, or None.
      header: whether the first line holds the names of the columns. Without it they are
        called "0", "1" and so on.
      delimiter: character between cells.
      allow_missing: whether a number of X that is missing is NaN, not an error.
      batch_rows: rows per batch; None is as many as take some 4 MiB, at most 65,536.
      dtype: type of X and the weights: float32 or float64; None is float64.

    Returns:
      `Batches`. Targets are numbers or booleans where those of the first block all are,
      else strings. Numbers are int64 as long as all of them are whole, then float64;
      those beyond 2^53 are rounded.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it is empty, a column is missing, two have the same name, or a
        header holds numbers; and as it is read, if there are no rows, a row has too few
        or too many cells, a cell is empty or (`NA`, `null`, `nan`) says that it is
        missing, text is where numbers are due, a value is beyond the range of `dtype`,
        or the compressed file is damaged.
      ImportError: if pyarrow is not installed.

    Example:
      >>> import pathlib, tempfile
      >>> from budgetjax import stream
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.csv"
      ...     _ = path.write_text("size,weight,kind\n1,0.5,cat\n7,20,dog\n")
      ...     for X, y in stream.csv(path, target="kind"):
      ...         print(X.tolist(), y.tolist())
      [[1.0, 0.5], [7.0, 20.0]] ['cat', 'dog']
    """
    pa = checks.needs("csv", "pyarrow", "stream")
    dtype = files.float_type("csv", dtype)
    checks.flag("csv", "header", header)
    checks.flag("csv", "allow_missing", allow_missing)
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise ValueError(f"csv: delimiter must be one character, got {delimiter!r}")
    files.check_opens(path)
    where = str(path)
    with intact(where, WHAT), _told([], header):
        with pa.input_stream(where) as file:
            line = file.read(BLOCK).partition(b"\n")[0]
        block = max(BLOCK, CELL * line.count(delimiter.encode()))
        open_ = functools.partial(_opened, where, delimiter, block)
        with open_(None if header else []) as reader:
            names, kinds = reader.schema.names, reader.schema.types
    seen = (one for one in OTHERS if one != delimiter and one.encode() in line)
    other = next(seen, None)
    if len(names) == 1 and other is not None:
        raise ValueError(
            f"{where}: cells must be separated by {delimiter!r}, got "
            f"{line.decode(errors='replace').strip()[:80]!r} as the first line; "
            f"delimiter={other!r} reads it"
        )
    if not header:
        names = [str(i) for i in range(len(names))]
    elif features is None and not isinstance(target, str):
        _check_names(where, names)
    chosen = table_columns.chosen(where, names, target, features, weight)
    types = {
        name: _type(pa, kind, name == chosen.target)
        for name, kind in zip(names, kinds, strict=True)
    } | dict.fromkeys(chosen.of_text(), pa.string())

    def tables(wanted: Columns) -> Iterator[Any]:
        used = {name: types[name] for name in wanted.names()}
        found = None if header else names
        with _told(names, header), open_(found, len(names) > 1, used) as reader:
            yield from _with_integers(reader, wanted.target)

    def parts(wanted: Columns) -> Iterator[table_columns.Part]:
        return intact_parts(where, WHAT, tables(wanted))

    chosen = table_columns.expanded(where, chosen, parts)
    return table_columns.batches(
        where,
        chosen,
        parts,
        rows_of_a_batch("csv", len(chosen.features), dtype, batch_rows),
        dtype,
        allow_missing=allow_missing,
    )


def _opened(
    path: str,
    delimiter: str,
    block: int,
    names: list[str] | None,
    skip_empty_lines: bool = True,
    types: dict[str, Any] | None = None,
) -> Any:
    """A reader of blocks of some bytes, of these columns and types, or of all.

    Without `names`, the first line holds them; with an empty list of names, the columns
    are called f0, f1 and so on. `skip_empty_lines` is False where an empty line is an
    empty cell, of one column.
    """
    from pyarrow import csv

    return csv.open_csv(
        path,
        csv.ReadOptions(
            use_threads=False,
            block_size=block,
            column_names=names or None,
            autogenerate_column_names=names == [],
        ),
        csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            ignore_empty_lines=skip_empty_lines,
        ),
        csv.ConvertOptions(
            column_types=types,
            include_columns=list(types or ()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )


@contextlib.contextmanager
def _told(names: list[str], header: bool) -> Iterator[None]:
    """Counts rows from 0 on in errors of pyarrow, and names their columns."""
    from pyarrow import ArrowInvalid

    try:
        yield
    except ArrowInvalid as error:
        text = re.sub(
            r"Row #(\d+)", lambda row: f"row {int(row[1]) - 1 - header}", str(error)
        )
        text = re.sub(
            r"CSV column #(\d+)", lambda i: f"column {names[int(i[1])]!r}", text
        )
        hint = f"; {HOW_TO_ENCODE}" if "invalid value" in text else ""
        raise ArrowInvalid(text + hint) from error


def _check_names(where: str, names: list[str]) -> None:
    """Raises if a row was taken for the header: it holds other numbers than its own."""
    for i, name in enumerate(names):
        if NUMBER.fullmatch(name.strip()) and name.strip() != str(i):
            raise ValueError(
                f"{where}: the first line must hold the names of columns, got "
                f"{name!r}; header=False reads files without names, and a target given "
                "by its name says that these are names"
            )


def _type(pa: Any, kind: Any, is_target: bool) -> Any:
    """The type to read a column in, from that of its first block."""
    if pa.types.is_boolean(kind):
        return kind
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return pa.string() if is_target and not number else pa.float64()


def _with_integers(tables: Iterator[Any], target: str | None) -> Iterator[Any]:
    """Tables whose targets are integers, as long as all of them are whole numbers."""
    from pyarrow import ArrowInvalid, int64, types

    whole = target is not None
    for table in tables:
        if whole and types.is_floating(table.column(target).type):
            try:
                y = table.column(target).cast(int64())
            except ArrowInvalid:
                whole = False
            else:
                i = table.schema.get_field_index(target)
                table = table.set_column(i, target, y)
        yield table
