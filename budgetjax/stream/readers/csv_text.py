"""Reader of text in columns, CSV."""

import contextlib
import csv as standard_csv
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.typing import DTypeLike

from budgetjax import checks
from budgetjax.stream.batches import Batches, rows_of_a_batch
from budgetjax.stream.readers import columns as table_columns
from budgetjax.stream.readers import files
from budgetjax.stream.readers.columns import Columns, Part

# Bytes that are parsed at once, of which pyarrow reads up to 32 ahead, and what a cell
# is taken to need.
BLOCK = 2**18
CELL = 64
# What Arrow, pandas and R write.
TRUE = ("true", "True", "TRUE")
BOOLEANS = (*TRUE, "false", "False", "FALSE")
# What other programs put between cells.
OTHERS = (";", "\t", "|")


class Layout(NamedTuple):
    """How a file is laid out.

    Attributes:
      path: of the file.
      names: of the columns.
      skipped: lines before the first row.
      delimiter: between cells.
      booleans: names of the columns whose first cell is true or false.
    """

    path: files.Path
    names: tuple[str, ...]
    skipped: int
    delimiter: str
    booleans: frozenset[str]


def csv(
    path: files.Path,
    *,
    target: str | int | None,
    features: Sequence[str | int] | None = None,
    weight: str | int | None = None,
    header: bool = True,
    delimiter: str = ",",
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    r"""Batches of a CSV file.

    It is parsed by pyarrow, in blocks of 256 KiB, of which some 10 MiB are held; files
    `.gz` and `.bz2` are decompressed as they are read. The text is UTF-8, cells may be
    quoted, and empty lines are skipped. Columns that are not used may hold anything.

    Args:
      path: of the file.
      target: the column of y, by its name or number, negative ones counting from the
        end; None if there is none, and batches are then `(X,)`.
      features: the columns of X, which must hold numbers; None is all but the target
        and the weight.
      weight: the column of weights, or None.
      header: whether the first line holds the names of the columns. Without it they are
        called "0", "1" and so on.
      delimiter: between cells.
      batch_rows: rows of a batch; None is as many as make some 4 MiB, at most 65,536.
      dtype: of X and the weights: float32 or float64; None is float64.

    Returns:
      `Batches`. Targets are int64, float64 or booleans where those of the first block
      all are, and else strings.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it has no rows, a column is missing, two have the same name, or a
        header holds numbers; and as it is read, if a row has too few or too many cells,
        a cell is empty or (`NA`, `null`, `nan`) says that it is missing, text is where
        numbers are due, a value is beyond the range of `dtype`, or the compressed file
        is damaged.
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
    pa = files.needs("csv", "pyarrow")
    dtype = files.float_type("csv", dtype)
    checks.flag("csv", "header", header)
    if not isinstance(delimiter, str) or len(delimiter) != 1:
        raise ValueError(f"csv: delimiter must be one character, got {delimiter!r}")
    files.check_opens(path)
    where = str(path)
    names, skipped, booleans = _names(path, bool(header), delimiter)
    if header and features is None and not isinstance(target, str):
        _check_names(where, names)
    chosen = table_columns.chosen(where, names, target, features, weight)
    rows = rows_of_a_batch("csv", len(chosen.features), dtype, batch_rows)

    layout = Layout(path, tuple(names), skipped, delimiter, booleans)
    return table_columns.batches(
        where,
        chosen,
        lambda wanted: _parts(pa, layout, wanted),
        rows,
        dtype,
        reader_of_targets=lambda: _reader_of_targets(pa),
    )


def _cells(path: files.Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """The number of lines so far and the cells of every record, errors and all.

    By Python's reader: slow, but it says where it is.
    """
    where = str(path)
    files.check_opens(path)
    with files.opened(path) as file:
        text = (
            line.decode("utf-8" if i else "utf-8-sig", "surrogateescape")
            for i, line in enumerate(files.lines(file, where))
        )
        reader = standard_csv.reader(text, delimiter=delimiter)
        for cells in reader:
            yield reader.line_num, cells


def _names(
    path: files.Path, header: bool, delimiter: str
) -> tuple[list[str], int, frozenset[str]]:
    """The names of the columns, the lines before the first row, and the booleans."""
    where = str(path)
    try:
        found = (record for record in _cells(path, delimiter) if record[1])
        line, names = next(found, (0, None))
        first = next(found, (0, None))[1] if header else names
    except files.DAMAGE as error:
        raise files.damaged(path, 0, error) from error
    except standard_csv.Error as error:
        raise ValueError(
            f"{where}: the file must be CSV, got an error in its first rows: {error}"
        ) from error
    if names is None:
        raise ValueError(f"{where}: the file must have rows, got an empty one")
    for name in names:
        _check_text(where, "the file", name, "its first line")
    other = next((one for one in OTHERS if one in names[0]), None)
    if len(names) == 1 and delimiter == "," and other is not None:
        raise ValueError(
            f"{where}: cells must be separated by ',', got {names[0][:80]!r} as the "
            f"first line; delimiter={other!r} reads it"
        )
    if first is None:
        raise ValueError(f"{where}: the file must have rows, got a header only")
    if not header:
        names, line = [str(i) for i in range(len(names))], 0
    are_true_or_false = zip(names, (cell in BOOLEANS for cell in first), strict=False)
    return names, line, frozenset(name for name, is_one in are_true_or_false if is_one)


def _check_text(where: str, use: str, cell: str, place: str) -> None:
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        raw = cell.encode(errors="surrogateescape")[:40]
        raise ValueError(
            f"{where}: {use} must be text in UTF-8, got {raw!r} in {place}"
        ) from error


def _check_names(where: str, names: list[str]) -> None:
    """Raises if a row was taken for the header: it holds other numbers than its own."""
    for i, name in enumerate(names):
        if _is_number(name) and name.strip() != str(i):
            raise ValueError(
                f"{where}: the first line must hold the names of columns, got "
                f"{name!r}; header=False reads files without names, and a target given "
                "by its name says that these are names"
            )


def _parts(pa: Any, layout: Layout, chosen: Columns) -> Iterator[Part]:
    """Parsed blocks: numbers as float64, targets as strings."""
    path, names, skipped, delimiter, booleans = layout
    from pyarrow import csv as format_

    types = {
        name: pa.bool_() if name in booleans else pa.float64()
        for name in chosen.names()
    }
    if chosen.target is not None:
        types[chosen.target] = pa.string()
    options = {
        "read_options": format_.ReadOptions(
            use_threads=False,
            block_size=max(BLOCK, CELL * len(names)),
            skip_rows=skipped,
            column_names=list(names),
        ),
        "parse_options": format_.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=True,
            # An empty line is an empty cell where there is one column.
            ignore_empty_lines=len(names) > 1,
        ),
        "convert_options": format_.ConvertOptions(
            column_types=types,
            include_columns=chosen.names(),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    }
    where, row = str(path), 0
    files.check_opens(path)
    with contextlib.ExitStack() as stack:
        source = stack.enter_context(pa.OSFile(where))
        kind = files.compression(path)
        if kind is not None:
            source = stack.enter_context(pa.CompressedInputStream(source, kind))
        reader = None
        while True:
            try:
                if reader is None:
                    reader = stack.enter_context(format_.open_csv(source, **options))
                table = reader.read_next_batch()
            except StopIteration:
                return
            except OSError as error:
                raise files.damaged(path, row, error) from error
            except MemoryError:
                raise
            except (pa.ArrowException, UnicodeDecodeError) as error:
                _raise_what_is_wrong(layout, chosen, row)
                raise ValueError(
                    f"{where}: the file must be CSV, got an error after {row} rows: "
                    f"{error}"
                ) from error
            yield Part(where, row, table)
            row += table.num_rows


def _raise_what_is_wrong(layout: Layout, chosen: Columns, done: int) -> None:
    """Raises what is wrong with a row after those done, if anything is found."""
    path, names, skipped, delimiter, booleans = layout
    where, row = str(path), -1
    numbers = [(name, "X") for name in chosen.features]
    numbers += [] if chosen.weight is None else [(chosen.weight, "weight")]
    places = [(names.index(name), name, use) for name, use in numbers]
    try:
        for line, cells in _cells(path, delimiter):
            if line <= skipped or (not cells and len(names) > 1):
                continue
            row += 1
            if row < done:
                continue
            if len(cells) != len(names):
                raise ValueError(
                    f"{where}: every row must have {len(names)} cells, got "
                    f"{len(cells)} in row {row}, which begins {cells[:3]}"
                )
            for i, name, use in places:
                truth = name in booleans
                if not (cells[i] in BOOLEANS if truth else _is_number(cells[i])):
                    got = repr(cells[i]) if cells[i] else "an empty cell"
                    due = "true or false, as in the first row" if truth else "numbers"
                    raise ValueError(
                        f"{where}: {use} must be {due}, got {got} in row {row}, "
                        f"column {name!r}; {table_columns.HOW_TO_ENCODE}"
                    )
            if chosen.target is not None:
                place = f"row {row}, column {chosen.target!r}"
                _check_text(where, "y", cells[names.index(chosen.target)], place)
    except files.DAMAGE as error:
        raise files.damaged(path, max(row, 0), error) from error
    except standard_csv.Error:
        return


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _reader_of_targets(pa: Any) -> table_columns.ReadTargets:
    """What reads targets of parts in their order, from columns of strings.

    If those of the first part are all numbers, or all true or false, so must be the
    others.
    """
    kind = ""
    integers = True

    def read(part: Part, name: str) -> np.ndarray:
        nonlocal kind, integers
        column = part.table.column(name)
        table_columns.check_nulls(part, "y", name, column)
        values = _as_numbers(pa, column) if kind in ("", "numbers") else None
        if values is None and kind in ("", "true or false"):
            values = _as_booleans(column)
        if values is None and kind not in ("", "text"):
            fits = _is_number if kind == "numbers" else BOOLEANS.__contains__
            cells = column.to_pylist()
            bad = next((i for i, cell in enumerate(cells) if not fits(cell)), 0)
            raise ValueError(
                f"{part.where}: y must be {kind}, as in the rows before, got "
                f"{cells[bad]!r} in row {part.row + bad}, column {name!r}"
            )
        if values is None:
            kind = "text"
            return table_columns.targets(part, name)
        if values.dtype == bool:
            kind = "true or false"
            return values
        kind = "numbers"
        integers = integers and values.dtype == np.int64
        return values if integers else values.astype(np.float64)

    return read


def _as_booleans(column: Any) -> np.ndarray | None:
    """Strings as booleans, or None if some are neither true nor false."""
    coded = column.dictionary_encode()
    words = coded.dictionary.to_pylist()
    if not words or any(word not in BOOLEANS for word in words):
        return None
    values = np.array([word in TRUE for word in words])
    return values[table_columns.as_numpy(coded.indices)]


def _as_numbers(pa: Any, column: Any) -> np.ndarray | None:
    """Strings as int64 or else float64, or None if they are no numbers."""
    try:
        return table_columns.as_numpy(column.cast(pa.int64()))
    except pa.ArrowInvalid:
        pass
    # Arrow's numbers have neither a space nor a plus before them.
    compute = files.needs("csv", "pyarrow.compute")
    trimmed = compute.utf8_trim_whitespace(column)
    trimmed = compute.replace_substring_regex(trimmed, r"^\+", "")
    for kind in (pa.int64(), pa.float64()):
        try:
            return table_columns.as_numpy(trimmed.cast(kind))
        except pa.ArrowInvalid:
            continue
    return None
