"""The reader of LIBSVM text."""

import bisect
import contextlib
import dataclasses
import io
import itertools
import lzma
import warnings
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax import _checks, _rows
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import Batches, rows_per_batch
from budgetjax.stream.readers import files
from budgetjax.stream.readers.formats import register_format

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

# Far longer than a line with a million numbers.
LONGEST_LINE = 2**26
# The maximum number of features: a dense row of them takes 1 GiB.
WIDEST = 2**27
# The assumed number of nonzeros per sparse row.
USUAL_NUMBERS = 100
# Integers that float64 holds.
EXACT = 2**53
# The errors of lines that cannot be parsed.
MALFORMED = (ValueError, OverflowError, FloatingPointError)


@register_format()
@names_errors("libsvm")
def libsvm(
    path: files.Path,
    *,
    num_features: int | None = None,
    zero_based: bool = False,
    ignore_beyond: bool = False,
    sparse: bool = False,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    r"""Batches of a file in the format of LIBSVM and SVMlight.

    A line is `label index:value index:value ...`, with ascending indices; missing
    features are 0. Comments after `#` and `qid:` are skipped. scikit-learn parses the
    lines, one batch at a time; files `.gz`, `.bz2` and `.xz` are decompressed during
    reading.

    Args:
      path: the path of the file.
      num_features: the number of columns of X. None is the largest index, which an
        additional pass over the file finds at once.
      zero_based: whether indices start at 0 instead of 1.
      ignore_beyond: whether to leave out indices beyond `num_features`, which a model
        has not seen, with a warning instead of an error.
      sparse: whether X is a CSR matrix of SciPy, so that zeros take no memory.
      batch_rows: rows per batch; None chooses about 4 MiB of them, at most 65,536.
      dtype: the dtype of X, float32 or float64; None is float64.

    Returns:
      `Batches` of `(X, y)`. Labels are int64 as long as all of them are integers,
      otherwise float64.

    Raises:
      ValueError: if the file has no rows or no features; and during reading, if a line
        is malformed or has an index beyond `num_features` or a value out of the range
        of `dtype`, or the compressed file is damaged.

    Warns:
      UserWarning: once, if indices are left out.

    Example:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.libsvm"
      ...     _ = path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
      ...     for X, y in bj.stream.libsvm(path):
      ...         print(X.tolist(), y.tolist())
      [[0.5, 0.0, 2.0], [0.0, 1.0, 0.0]] [1, -1]
    """
    _checks.import_optional("sklearn.datasets")
    dtype = files.float_type(dtype)
    flags = {"zero_based": zero_based, "ignore_beyond": ignore_beyond, "sparse": sparse}
    for name, flag in flags.items():
        _checks.flag(name, flag)
    name, num_rows = str(path), None
    first = 0 if zero_based else 1
    with names_errors(name):
        files.check_readable(path)
        if num_features is None:
            num_features, num_rows = _shape(path, first)
    num_features = _checks.size("num_features", num_features)
    numbers = min(num_features, USUAL_NUMBERS) if sparse else num_features
    rows = rows_per_batch(numbers, dtype, batch_rows)
    parser = _Parser(path, num_features, first, ignore_beyond, dtype)

    def read() -> Iterator[tuple[Any, np.ndarray]]:
        blocks = _blocks(parser, rows)
        return blocks if sparse else ((X.toarray(), y) for X, y in blocks)

    def read_targets() -> Iterator[np.ndarray]:
        return (y for _, y in _blocks(parser, _rows.MAX_ROWS, labels_only=True))

    return Batches(name, num_features, read, num_rows, None, read_targets)


def _blocks(
    parser: "_Parser", size: int, *, labels_only: bool = False
) -> "Iterator[tuple[csr_matrix, np.ndarray]]":
    """The rows of a file, `size` at a time; with `labels_only`, without features."""
    row, whole, lines = 0, True, _read_lines(parser.path)
    with names_errors(str(parser.path)):
        while block := list(itertools.islice(lines, size)):
            if labels_only:
                block = [line.split(None, 1)[0] for line in block]
            X, y = parser.parse_rows(block, row)
            # Labels are integers as long as all of them are.
            whole = whole and bool(np.all(y == np.rint(y)))
            if whole and np.any(np.abs(y) > EXACT):
                with contextlib.suppress(ValueError, OverflowError):
                    texts = (line.split(None, 1)[0] for line in block)
                    y = np.array([int(text) for text in texts], np.int64)
                whole = y.dtype == np.int64
            yield X, (y.astype(np.int64) if whole else y)
            row += len(block)


@dataclasses.dataclass
class _Parser:
    """Parses lines of a file by scikit-learn; indices start at `first`."""

    path: files.Path
    num_features: int
    first: int
    ignore_beyond: bool
    dtype: np.dtype
    has_warned: bool = False

    def parse_rows(
        self, lines: list[bytes], row: int
    ) -> "tuple[csr_matrix, np.ndarray]":
        """A sparse matrix and the labels; `row` is the number of the first line."""

        def error_in(part: list[bytes]) -> Exception | None:
            try:
                self.parse(part)
            except MALFORMED as error:
                return error
            return None

        try:
            return self.parse(lines)
        except MALFORMED:
            # The first line with which the lines so far have an error.
            i = bisect.bisect_left(
                range(1, len(lines)),
                True,
                key=lambda n: error_in(lines[:n]) is not None,
            )
            # Not of one line, if only several together have an error.
            error = error_in(lines[i : i + 1]) or error_in(lines)
        at_0 = self.first and b" 0:" in lines[i]
        shown = lines[i][:80].decode("utf-8", "backslashreplace")
        advice = "zero_based=True reads files that start at 0" if at_0 else ""
        if b":" in lines[i].split(None, 1)[0]:
            advice = "weights are not read from LIBSVM text, and go beside the rows"
        raise ArgumentError(
            "rows",
            "be 'label index:value ...' with ascending indices",
            f"{shown!r} in row {row + i}: {str(error).rstrip('.')}",
        ).advised(advice) from error

    def parse(self, lines: list[bytes]) -> "tuple[csr_matrix, np.ndarray]":
        """A sparse matrix and the labels, with the errors of the parser."""
        from sklearn import datasets

        X, y = datasets.load_svmlight_file(
            io.BytesIO(b"\n".join(lines)),
            n_features=None if self.ignore_beyond else self.num_features,
            dtype=np.float64,
            zero_based=self.first == 0,  # pyright: ignore[reportArgumentType]
        )
        if self.ignore_beyond:
            if X.shape[1] > self.num_features and not self.has_warned:
                self.has_warned = True
                warnings.warn(
                    f"{self.path}: indices beyond {self.num_features - 1 + self.first}"
                    ", which the model has not seen, are left out",
                    stacklevel=2,
                )
            X = X[:, : self.num_features]
            X.resize(len(y), self.num_features)
        with np.errstate(over="raise"):
            return X.astype(self.dtype), y


def _shape(path: files.Path, first: int) -> tuple[int, int]:
    """The numbers of features and of rows, if indices start at `first`."""
    largest, place, num_rows = -1, 0, 0
    for line in _read_lines(path):
        head, colon, _ = line.rpartition(b":")
        last = head.rsplit(None, 1)[-1:]
        # Anything that is not an index raises an error when the line is parsed.
        if colon and last and last[0].isdigit() and int(last[0]) > largest:
            largest, place = int(last[0]), num_rows
        num_rows += 1
    num_features = largest + 1 - first
    if not num_rows:
        raise ArgumentError("the file", "have rows", "none")
    if num_features > WIDEST:
        expected = f"be at most {WIDEST:,}, so that a row and a model fit in memory"
        raise ArgumentError("indices", expected, f"{largest:,} in row {place}")
    if num_features < 1:
        raise ArgumentError("the file", "have features", "none")
    return num_features, num_rows


def _read_lines(path: files.Path) -> Iterator[bytes]:
    """The lines that hold an example, without their comments."""
    kind, row = files.compression(path), 0
    try:
        with files.open_decompressed(path) as file:
            while line := file.readline(LONGEST_LINE):
                if len(line) == LONGEST_LINE:
                    raise ArgumentError(
                        "lines",
                        f"be shorter than {LONGEST_LINE:,} bytes",
                        "a longer one: is it text?",
                    )
                line = line.partition(b"#")[0].strip()
                if line:
                    yield line
                    row += 1
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        expected = f"be {f'whole {kind}' if kind else 'readable'}"
        got = f"an error after {row} rows: {error}"
        raise ArgumentError("the file", expected, got) from error
