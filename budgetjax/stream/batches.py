"""Batches of examples from a source, with a common size and read-ahead."""

import contextlib
import dataclasses
import functools
import queue
import threading
import types
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from budgetjax import _checks, _rows
from budgetjax._errors import ArgumentError, names_errors, places_errors
from budgetjax._rows import SparseMatrix
from budgetjax.tables import columns as table_columns
from budgetjax.tables.categories import read_rows

# Bytes per batch: small compared to the data, large enough to hide the overhead.
BATCH_BYTES = 4 * 2**20
# Targets with more distinct values are not labels.
MAX_CLASSES = 10_000
# Seconds to wait for the reader thread to exit.
JOIN_SECONDS = 1.0
Item = TypeVar("Item")


@dataclasses.dataclass(frozen=True)
class Batches:
    """Examples in batches, from a source that can be read repeatedly.

    The readers of `budgetjax.stream` return it. Iterating reads the source from its
    start. A batch is a tuple of NumPy arrays: `(X, y)`, `(X, y, weight)`, or, if the
    source has no targets, `(X,)`. X, of shape `(n, num_features)`, is float32 or
    float64, or a `pyarrow.Table` where a column has texts; y, of shape `(n,)`, holds
    int64, float64, booleans, or Python strings in an object array, or has shape
    `(n, num_outputs)` with several columns of numbers; weight has shape `(n,)`. Each
    batch has its own arrays.

    Attributes:
      name: the name of the source, for messages.
      num_features: the number of columns of X.
      read: a function that starts to read and returns an iterator over the batches.
      num_rows: the number of rows, if known without reading them.
      feature_names: the names of the columns of X, if they have any.
      index_names: columns that are the index of a data frame, and so no features unless
        they are named.
      read_targets: a function that reads only y, if that is faster than `read`.
      texts: the columns of X that hold names.

    Example:
      >>> X, y = np.zeros((3, 2), np.float32), np.array([0, 1, 1])
      >>> batches = bj.stream.Batches("zeros", 2, lambda: iter([(X, y)]))
      >>> [batch[0].shape for batch in batches]
      [(3, 2)]
    """

    name: str
    num_features: int
    read: Callable[[], Iterator[tuple[np.ndarray, ...]]]
    num_rows: int | None = None
    feature_names: tuple[str, ...] | None = None
    read_targets: Callable[[], Iterator[np.ndarray]] | None = None
    index_names: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        return self.read()


def rows_per_batch(num_features: int, dtype: DTypeLike, batch_rows: int | None) -> int:
    """`batch_rows`, or the rows that fit in about 4 MiB, at most 65,536."""
    if batch_rows is not None:
        return _checks.size("batch_rows", batch_rows)
    bytes_per_row = max(1, num_features) * np.dtype(dtype).itemsize
    return min(_rows.MAX_ROWS, max(1, BATCH_BYTES // bytes_per_row))


def labels(batches: Iterable[object]) -> np.ndarray:
    """Finds the classes in a source, in one pass over it.

    Only the target column of a file is read.

    Args:
      batches: `Batches`, or any iterable of `(X, y)` or `(X, y, weight)` that can be
        read repeatedly.

    Returns:
      The sorted distinct targets, shape `(C,)`: int64, float64, booleans or strings.

    Raises:
      ValueError: if there are no rows or no targets, the source can be read only once,
        a target is NaN, some are numbers and others strings, or there are more than
        10,000 of them, too many for labels.

    Example:
      >>> bj.stream.labels([(np.zeros((3, 2)), ["no", "yes", "no"])])
      array(['no', 'yes'], dtype='<U3')
    """
    classes: set[Any] = set()
    row, text = 0, None
    with names_errors(source_name(batches)):
        if iter(batches) is batches:
            got = "an iterator, which would be used up"
            raise ArgumentError("batches", "be a source that can be read again", got)
        for y in iterate_targets(batches):
            text = check_kind(y, row, text)
            if y.dtype.kind == "f" and np.any(np.isnan(y)):
                bad = row + int(np.argmax(np.isnan(y)))
                raise ArgumentError("y", "be a label", f"nan in row {bad}")
            classes.update(y.tolist() if text else np.unique(y).tolist())
            if len(classes) > MAX_CLASSES:
                got = "more: targets of a regression have no classes"
                raise ArgumentError("y", f"hold at most {MAX_CLASSES:,} labels", got)
            row += len(y)
        if not row:
            raise ArgumentError("batches", "have rows", "none")
    return np.array(sorted(classes))


def iterate_targets(batches: Iterable[object]) -> Iterator[np.ndarray]:
    """The y of all batches, read the fastest way, in the types of `coerce_targets`."""
    row = 0
    if isinstance(batches, Batches) and batches.read_targets is not None:
        parts: Iterator[object] = batches.read_targets()
    else:
        parts = (_split_batch(i, one)[1] for i, one in enumerate(batches))
    with names_errors(source_name(batches)):
        for part in parts:
            y = coerce_targets(part, row)
            row += len(y)
            yield y


def regroup(
    batches: Iterable[object],
    rows: int,
    width: int,
    dtype: DTypeLike = np.float32,
    outputs: tuple[int, ...] = (),
    names: tuple[str, ...] | None = None,
    categories: Mapping[str, Sequence[str]] = types.MappingProxyType({}),
) -> Iterator[tuple[np.ndarray, ...]]:
    """Regroups batches of any lengths to one length; the last may be shorter.

    It yields `(X, y, weight)` of shapes `(n, width)`, `(n, *outputs)` and `(n,)`, with
    targets as of `coerce_targets`, dense, and copied, so a source may reuse its arrays.
    `names` is the order of the columns of data frames and Arrow tables, and
    `categories` are those of their columns of names.
    """

    def pieces() -> Iterator[tuple[np.ndarray, ...]]:
        row, text = 0, None
        for i, batch in enumerate(batches):
            read = functools.partial(
                read_rows, names=names, categories=categories, warns=not i
            )
            X, y, weight = check_batch(i, batch, row, width, outputs, read)
            text = check_kind(y, row, text)
            for start in range(0, len(y), rows):
                part, first = slice(start, start + rows), row + start
                piece = X[part]
                piece = piece.toarray() if isinstance(piece, SparseMatrix) else piece
                yield (
                    cast_numbers("X", piece, dtype, first, names),
                    y[part],
                    cast_numbers("weight", weight[part], dtype, first),
                )
            row += len(y)

    with names_errors(source_name(batches)):
        yield from _rows.regroup(pieces(), rows)


def source_name(batches: object) -> str:
    """The name of a source in messages."""
    return batches.name if isinstance(batches, Batches) else "batches"


def order_columns(batches: Batches, known: tuple[str, ...] | None) -> Batches:
    """The source with the known columns in their order, if its columns have names."""
    names = batches.feature_names
    if known is None or names in (None, known):
        return batches
    with names_errors(batches.name):
        table_columns.check_columns(known, names)
    if batches.texts:
        # Columns of a table are found by their names.
        return batches
    at = [names.index(one) for one in known]
    return dataclasses.replace(
        batches,
        num_features=len(at),
        read=lambda: ((X[:, at], *more) for X, *more in batches.read()),
        feature_names=known,
    )


def _split_batch(i: int, batch: object) -> tuple[Any, object, object]:
    """X, y and the weight, or None, of a batch."""
    listed = isinstance(batch, tuple | list)
    if listed and len(batch) in (2, 3):
        X, y, *weight = batch
        return X, y, weight[0] if weight else None
    got = type(batch).__name__ + (f" of {len(batch)}" if listed else "")
    raise ArgumentError(
        "batches", "be (X, y) or (X, y, weight)", f"{got} as batch {i}"
    ).advised("give the reader a target" if listed and len(batch) == 1 else "")


def check_batch(
    i: int,
    batch: object,
    row: int,
    width: int | None,
    outputs: tuple[int, ...] | None = (),
    read: Callable[[Any], Any] = table_columns.to_table,
) -> tuple[Any, np.ndarray, np.ndarray]:
    """The parts of a batch, after checks of their shapes, and weights if it has none.

    X is an array, a CSR matrix, or a table of Arrow if `read` leaves one. `row` is the
    number of the first row, and `width` that of the columns; None takes any, also of
    `outputs`, the shape of one target.
    """
    X, y, weight = _split_batch(i, batch)
    y = coerce_targets(y, row, outputs)
    with places_errors(f"batch {i}, from row {row} on"):
        X = read(X)
        if isinstance(X, SparseMatrix):
            X = X.tocsr()
        elif table_columns.column_names(X) is None:
            X = np.asarray(_checks.array("X", X))
        if len(X.shape) != 2 or X.shape[0] != len(y):
            expected = f"have shape ({len(y)}, d), one row per target"
            raise ArgumentError("X", expected, X.shape)
        if width is not None and X.shape[1] != width:
            expected = f"have {width} columns, as the model or the rows before"
            raise ArgumentError("X", expected, X.shape[1])
        weight = np.ones(len(y)) if weight is None else _checks.array("weight", weight)
        if weight.shape != (len(y),):
            expected = f"have shape {(len(y),)}, one per row of X"
            raise ArgumentError("weight", expected, weight.shape)
    return X, y, np.asarray(weight)


def check_kind(y: np.ndarray, row: int, text: bool | None) -> bool | None:
    """Whether targets are text; raises on a mixture; None before the first target."""
    if not len(y):
        return text
    new = y.dtype.kind in "UO"
    if text not in (None, new):
        before, now = ("strings", "numbers") if text else ("numbers", "strings")
        got = f"{now}, such as {y.tolist()[0]!r} in row {row}"
        raise ArgumentError("y", f"be {before}, as in the rows before", got)
    return new


def cast_numbers(
    name: str,
    numbers: np.ndarray,
    dtype: DTypeLike,
    row: int,
    columns: tuple[str, ...] | None = None,
) -> np.ndarray:
    """A copy of numbers in another float dtype, after a check of their range.

    `row` is the number of the first row, and `columns` are the names for messages.
    """
    try:
        with np.errstate(over="raise", invalid="ignore"):
            return numbers.astype(dtype, order="C")
    except FloatingPointError as error:
        over = np.isfinite(numbers) & (np.abs(numbers) > float(jnp.finfo(dtype).max))
        at = [int(i) for i in np.unravel_index(np.argmax(over), over.shape)]
        column = ""
        if columns is not None or len(at) > 1:
            i = at[1] if len(at) > 1 else 0
            column = f", column {i if columns is None else repr(columns[i])}"
        expected = f"be in the range of {np.dtype(dtype)}"
        got = f"{numbers[*at]:g} in row {row + at[0]}{column}"
        raise ArgumentError(name, expected, got) from error


def coerce_targets(
    y: object, row: int, outputs: tuple[int, ...] | None = ()
) -> np.ndarray:
    """A copy of targets as int64, float64, booleans or strings.

    With `outputs`, each row has that number of targets, or one that is repeated; None
    takes any number. `row` is the number of the first row.
    """
    _checks.check_unmasked("y", y)
    y = np.asarray(y)
    if outputs is None:
        y = y[:, 0] if y.shape[1:] == (1,) else y
        outputs = y.shape[1:] if y.ndim == 2 else ()
    if outputs and y.shape[1:] == outputs:
        columns = (coerce_targets(column, row) for column in y.T)
        return np.stack(list(columns), axis=1)
    if y.ndim != 1:
        also = f" or (n, {outputs[0]})" if outputs else ""
        raise ArgumentError(
            "y", f"have shape (n,){also}, one per row", f"{y.shape} from row {row} on"
        )
    if outputs:
        return np.repeat(coerce_targets(y, row)[:, None], *outputs, axis=1)
    if y.dtype.kind in "OT":
        y = _coerce_objects(y.astype(object), row)
    kind = y.dtype.kind
    if kind == "u" and np.any(y > np.iinfo(np.int64).max):
        bad = int(np.argmax(y > np.iinfo(np.int64).max))
        raise ArgumentError(
            "y", "be in the range of int64", f"{y[bad]} in row {row + bad}"
        )
    if kind in "iu":
        return y.astype(np.int64)
    if jnp.issubdtype(y.dtype, jnp.floating):
        return y.astype(np.float64)
    if kind not in "bUO":
        raise ArgumentError(
            "y", "be numbers or strings", f"{y.dtype} from row {row} on"
        )
    return y.copy()


def _coerce_objects(y: np.ndarray, row: int) -> np.ndarray:
    """Converts Python objects: strings stay, numbers become an array of numbers."""
    kinds = set(map(type, y))
    if all(issubclass(kind, str) for kind in kinds):
        return y
    numbers = (bool, int, float, np.number, np.bool)
    if all(issubclass(kind, numbers) for kind in kinds):
        y = np.array(y.tolist())
        if y.dtype.kind in "biuf":
            return y
    kind = str if issubclass(type(y[0]), str) else numbers
    bad = next((i for i, value in enumerate(y) if not isinstance(value, kind)), 0)
    raise ArgumentError(
        "y", "be all numbers or all strings", f"{y[bad]!r} in row {row + bad}"
    )


def prefetch(
    items: Generator[Item, None, None], depth: int = 2
) -> Generator[Item, None, None]:
    """The same items, which a thread reads ahead; an error is raised in its place.

    When the consumer stops, the thread stops after its current item. At most `depth`
    items are held, besides the one in use and the one being read.
    """
    # An item, the error of the source, or None at its end.
    results: queue.Queue[tuple[Item] | BaseException | None] = queue.Queue()
    free, stopped = threading.Semaphore(depth), threading.Event()

    def read() -> None:
        failed = None
        try:
            with contextlib.closing(items):
                for item in items:
                    free.acquire()
                    if stopped.is_set():
                        return
                    results.put((item,))
        except BaseException as error:  # the consumer raises it
            failed = error
        results.put(failed)

    thread = threading.Thread(target=read, daemon=True, name="budgetjax prefetch")
    thread.start()
    try:
        while True:
            result = results.get()
            if result is None:
                return
            if isinstance(result, BaseException):
                raise result
            free.release()
            yield result[0]
            del result
    finally:
        stopped.set()
        free.release()
        thread.join(JOIN_SECONDS)
