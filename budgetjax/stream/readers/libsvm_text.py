"""Reader of text in the format of LIBSVM."""

import io
import itertools
from collections.abc import Iterator

import numpy as np
from jax.typing import DTypeLike

from budgetjax import checks
from budgetjax.stream.batches import Batches, rows_of_a_batch
from budgetjax.stream.readers import files

# Rows of which a look at their targets alone takes as many at once.
TARGETS = 65_536
# Features of a row that is made dense: it takes a GiB.
WIDEST = 2**27
# Integers that float64 holds.
EXACT = 2**53


def libsvm(
    path: files.Path,
    *,
    num_features: int | None = None,
    zero_based: bool = False,
    ignore_beyond: bool = False,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    r"""Batches of a file in the format of LIBSVM and SVMlight.

    A line is `label index:value index:value ...`, with ascending indices; what it lacks
    is 0. Comments after `#` and `qid:` are skipped. Lines are parsed by scikit-learn,
    as many at once as a batch has; files `.gz` and `.bz2` are decompressed as they are
    read.

    Args:
      path: of the file.
      num_features: columns of X. None is the largest index, found by one more pass over
        the file, now.
      zero_based: whether indices start at 0 in place of 1.
      ignore_beyond: leave out indices beyond `num_features`, which a model has not
        seen, in place of an error.
      batch_rows: rows of a batch; None is as many as make some 4 MiB, at most 65,536.
      dtype: of X: float32 or float64; None is float64.

    Returns:
      `Batches` of `(X, y)`. Labels are int64 as long as all of them are integers, else
      float64.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if it has no rows or no features; and as it is read, if a line has
        another form, an index beyond `num_features` or a value beyond the range of
        `dtype`, or the compressed file is damaged.
      ImportError: if scikit-learn is not installed.

    Example:
      >>> import pathlib, tempfile
      >>> from budgetjax import stream
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.libsvm"
      ...     _ = path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
      ...     for X, y in stream.libsvm(path):
      ...         print(X.tolist(), y.tolist())
      [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]] [1, -1]
    """
    datasets = files.needs("libsvm", "sklearn.datasets")
    dtype = files.float_type("libsvm", dtype)
    checks.flag("libsvm", "zero_based", zero_based)
    checks.flag("libsvm", "ignore_beyond", ignore_beyond)
    files.check_opens(path)
    where, num_rows = str(path), None
    first = 0 if zero_based else 1
    if num_features is None:
        largest, row, num_rows = _extent(path)
        num_features = largest + 1 - first
        if num_features > WIDEST:
            raise ValueError(
                f"{where}: indices must be at most {WIDEST:,}, as rows are dense in "
                f"memory, got {largest:,} in row {row}"
            )
        if num_features < 1:
            raise ValueError(f"{where}: the file must have features, got none")
    num_features = checks.size("libsvm", "num_features", num_features)
    rows = rows_of_a_batch("libsvm", num_features, dtype, batch_rows)
    last = num_features - 1 + first

    def read() -> Iterator[tuple[np.ndarray, np.ndarray]]:
        row, integers = 0, True
        for block in _blocks(path, rows):
            try:
                X, y = datasets.load_svmlight_file(
                    io.BytesIO(b"\n".join(block)),
                    n_features=None if ignore_beyond else num_features,
                    dtype=np.float64,
                    zero_based=bool(zero_based),
                )
                if ignore_beyond:
                    X = X[:, :num_features]
                    X.resize(len(y), num_features)
                with np.errstate(over="raise"):
                    X = X.astype(dtype)
            except (ValueError, OverflowError, FloatingPointError) as error:
                end = None if ignore_beyond else last
                for i, line in enumerate(block):
                    _check_line(where, row + i, line, first, end, dtype)
                raise ValueError(
                    f"{where}: rows must be 'label index:value ...', got an error in "
                    f"rows {row} to {row + len(block) - 1}: {error}"
                ) from error
            y, integers = _integers(y, integers)
            yield X.toarray(), y
            row += len(block)

    def read_targets() -> Iterator[np.ndarray]:
        row, integers = 0, True
        for block in _blocks(path, TARGETS):
            found = [
                _label(where, row + i, line.split(None, 1)[0])
                for i, line in enumerate(block)
            ]
            y, integers = _integers(np.array(found), integers)
            yield y
            row += len(block)

    return Batches(where, num_features, read, num_rows, None, read_targets)


def _extent(path: files.Path) -> tuple[int, int, int]:
    """The largest index, each line's last, its row, and the number of rows."""
    largest, place, rows = -1, 0, 0
    for line in _rows(path):
        head, colon, _ = line.rpartition(b":")
        if colon:
            index = head.rsplit(None, 1)[-1:]
            # What is no index is told of when the line is read.
            if index and index[0].isdigit() and int(index[0]) > largest:
                largest, place = int(index[0]), rows
        rows += 1
    return largest, place, rows


def _rows(path: files.Path) -> Iterator[bytes]:
    """The lines that hold an example, without their comments."""
    where, row = str(path), 0
    files.check_opens(path)
    try:
        with files.opened(path) as file:
            for line in files.lines(file, where):
                line = line.partition(b"#")[0].strip()
                if line:
                    yield line
                    row += 1
    except files.DAMAGE as error:
        raise files.damaged(path, row, error) from error
    if not row:
        raise ValueError(f"{where}: the file must have rows, got none")


def _blocks(path: files.Path, rows: int) -> Iterator[list[bytes]]:
    lines = _rows(path)
    while block := list(itertools.islice(lines, rows)):
        yield block


def _integers(y: np.ndarray, integers: bool) -> tuple[np.ndarray, bool]:
    """Labels as integers, as long as all of them are."""
    integers = integers and bool(np.all((y == np.rint(y)) & (np.abs(y) <= EXACT)))
    return (y.astype(np.int64) if integers else y), integers


def _label(where: str, row: int, text: bytes) -> float:
    try:
        return float(text)
    except ValueError as error:
        raise ValueError(
            f"{where}: y must be a number, got {_shown(text)} in row {row}"
        ) from error


def _check_line(
    where: str, row: int, line: bytes, first: int, last: int | None, dtype: np.dtype
) -> None:
    """Raises what is wrong with a line, if anything is; no `last` is any index."""
    label, *pairs = line.split()
    _label(where, row, label)
    if pairs and pairs[0].startswith(b"qid"):
        pairs = pairs[1:]
    before = None
    beyond = None
    for pair in pairs:
        index, _, value = pair.partition(b":")
        try:
            number, column = float(value), int(index)
        except ValueError as error:
            raise ValueError(
                f"{where}: X must be pairs index:value of numbers, got {_shown(pair)} "
                f"in row {row}"
            ) from error
        if column < first:
            hint = "" if column else "; zero_based=True reads files that start at 0"
            raise ValueError(
                f"{where}: indices must be at least {first}, got {column} in row "
                f"{row}{hint}"
            )
        if before is not None and column <= before:
            raise ValueError(
                f"{where}: indices must ascend, got {column} after {before} in row "
                f"{row}"
            )
        if last is not None and column > last and beyond is None:
            beyond = column
        if np.isfinite(number) and abs(number) > float(np.finfo(dtype).max):
            raise ValueError(
                f"{where}: X must be in the range of {dtype}, got {number:g} in row "
                f"{row}, index {column}"
            )
        before = column
    # After all others: the last index of a line that does not ascend is no largest.
    if last is not None and beyond is not None:
        raise ValueError(
            f"{where}: indices must be at most {last}, for num_features "
            f"{last + 1 - first}, got {beyond} in row {row}"
        )


def _shown(text: bytes) -> str:
    return repr(text.decode("utf-8", "backslashreplace"))
