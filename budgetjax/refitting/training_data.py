"""Examples in blocks of one size, for algorithms that read them more than once."""

import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from budgetjax import _rows
from budgetjax._errors import ArgumentError, places_errors
from budgetjax._rows import pad_rows, regroup, rows_at_once
from budgetjax._sharding import Shards
from budgetjax.model import model_of, open_estimator
from budgetjax.online import examples
from budgetjax.stream.batches import Batches, order_columns
from budgetjax.tables import scaling
from budgetjax.tables.encoding import Coder
from budgetjax.tables.start_map import COLUMNS
from budgetjax.tables.table_model import TableModel

# Examples per block: enough for matrix products, few compared to the data.
BLOCK = 4096
# Blocks of fewer examples are not divided, and fewer rows are padded to as many.
FEWEST = 256
# Batches of up to this many bytes in all are kept; more are read again in every pass.
HELD = 256 * 2**20
# Targets of robust losses are clipped at this distance from their median, in
# deviations: beyond the resolution of float32, only the side counts.
FARTHEST = 1e4
# The same for least squares, from which robust losses start, and for means of a stream.
NEAR = 5.0
# Up to this many rows of an array are kept as codes, if these take up to so many bytes.
# Programs that need not write them serve other rows, too.
FEW_TO_WRITE, BYTES_TO_WRITE = 10_000, 64 * 2**20
# Codes under a map have a multiple of this number, so that one program serves others.
CODES = 64
# XLA reads host memory where it is, if its address is a multiple of this.
ALIGNMENT = 64

# Rows, targets and weights, and the devices that share them.
Arrays = tuple[Any, ...]


class Block(NamedTuple):
    """Examples in host memory; one block at a time goes to the device, or devices.

    Attributes:
      X: shape `(size, num_features)`, or what a `coder` makes these features of.
      targets: one per column of the model, shape `(size, columns)`: y, or, with more
        than two classes, +1 in the column of the label and -1 elsewhere.
      weights: shape `(size,)`, at least 0.
      shards: the devices that share blocks, if the examples are divided among some;
        in this case the rows above are those of this process.
    """

    X: Float[np.ndarray, "size num_features"]
    targets: Float[np.ndarray, "size columns"]
    weights: Float[np.ndarray, " size"]
    shards: Shards = Shards()


def read_examples(
    model: Any,
    X: Any,
    y: Any,
    weight: Any,
    *,
    of_labels: bool,
    learns_map: bool = False,
) -> tuple[Callable[[], Iterator[Block]], bool, Coder | None]:
    """A function that reads the examples in blocks, and whether it can be called again.

    The third result makes codes of its rows; None if they are codes or features.

    Args:
      model: a state, or a model or estimator that has one and takes raw rows.
      X, y, weight: as for `refit`.
      of_labels: whether targets with a single column must be -1 or +1.
      learns_map: whether rows are codes where an encoding has a map, as that may
        change; else they are its features.

    Raises:
      ValueError: if the data do not fit the model. Batches are checked when they are
        read.
    """
    again, most, batches = True, sys.maxsize, []
    coder = find_coder(model, learns_map)
    of_codes = coder is not None
    if y is not None:
        batch = _check_batch(model, (X, y, weight), of_labels, of_codes)
        batch, coder = _write_few(batch, coder)
        batches, most = [batch], len(batch[0])
    elif weight is not None:
        raise ArgumentError(
            "weight", "be in the batches, (X, y, weight)", "one beside them"
        )
    elif hasattr(X, "ndim") or not isinstance(X, Iterable):
        raise ArgumentError(
            "y",
            "be given with X, or X must be batches (X, y) or (X, y, weight)",
            f"y=None and X of type {type(X).__name__}",
        )
    else:
        if isinstance(X, Batches) and (table := TableModel.find(model)):
            X = order_columns(X, table.feature_names)

        def read() -> Iterator[Arrays]:
            for i, batch in enumerate(X):
                if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
                    raise ArgumentError(
                        f"batch {i}", "be (X, y) or (X, y, weight)", _describe(batch)
                    )
                with places_errors(f"batch {i}"):
                    arrays = _check_batch(model, batch, of_labels, of_codes)
                yield arrays

        again = iter(X) is not X
        batches = _Kept(read) if again else read()
    columns = model_of(model).num_columns

    def blocks() -> Iterator[Block]:
        some = False
        for X, y, weights, shards in _equal_sizes(batches, most):
            # A process may have weights of 0 only.
            some = some or bool(np.any(weights > 0)) or shards.spans_processes
            targets = y if y.ndim > 1 else y[:, None]
            if targets.shape[1] < columns:
                targets = np.where(targets == np.arange(columns), 1, -1)
            yield Block(X, targets.astype(X.dtype), weights, shards)
        if not some:
            raise ArgumentError("X", "have rows with a weight above 0", "none")

    return blocks, again, coder


def find_coder(model: Any, learns_map: bool) -> Coder | None:
    """The coder of the rows of a model, if they are kept without their codes."""
    codes = TableModel.of(model).encoding
    if codes is None or (codes.map is not None and not learns_map):
        return None
    vectors = model_of(model).inner.expansion.vectors
    width = vectors.shape[1] if codes.map is None else pad_codes(codes.num_codes)
    return Coder.of(codes, vectors.dtype, width)


def pad_codes(number: int) -> int:
    """A number of codes, of few numbers for few programs."""
    return max(1, -(-number // CODES)) * CODES


def _write_few(batch: Arrays, coder: Coder | None) -> tuple[Arrays, Coder | None]:
    """The examples with codes, if they are few, and what makes codes of others."""
    X, *rest, shards = batch
    if coder is None:
        return batch, None
    # Columns of names may have thousands of codes.
    most = min(FEW_TO_WRITE, BYTES_TO_WRITE // max(1, coder.start.nbytes))
    if shards.total(len(X)) > most:
        return batch, coder
    return (align(coder.write(X)), *rest, shards), None


def align(array: np.ndarray) -> np.ndarray:
    """The array, or a copy, where programs on a CPU need not copy it in every call."""
    if not array.ctypes.data % ALIGNMENT:
        return array
    memory = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


class Units(NamedTuple):
    """The units in which targets are learned: `(t - origin) / unit`.

    Attributes:
      origin: one number per column.
      unit: one number per column.
      centre: the centre of the targets in these units, 0 unless the origin must be 0.
      most: the maximum distance from the centre.
    """

    origin: Float[np.ndarray, " columns"]
    unit: Float[np.ndarray, " columns"]
    centre: Float[np.ndarray, " columns"]
    most: float

    @classmethod
    def of_ones(cls, columns: int) -> "Units":
        """The units of targets that are not transformed."""
        return cls(np.zeros(columns), np.ones(columns), np.zeros(columns), np.inf)

    @classmethod
    def of(cls, blocks: Iterable[Block], robust: bool, shifts: bool) -> "Units":
        """Units from the deviations of the first targets and, with `shifts`, centres.

        Constant targets have the unit 1.
        """
        found = first_values(blocks, lambda block: block.targets)
        centre, deviation = scaling.centre_and_deviation(found, robust=robust)
        # The deviation of equal targets may be a rounding error.
        unit = np.where(deviation > 1e-12 * np.abs(centre), deviation, 1.0)
        nothing, most = np.zeros_like(unit), FARTHEST if robust else np.inf
        if shifts:
            return cls(centre, unit, nothing, most)
        return cls(nothing, unit, centre / unit, most)

    def apply(self, block: Block) -> Block:
        """The examples with targets in these units."""
        targets = (block.targets - self.origin) / self.unit
        return self._within(self.most, block, targets)

    def near(self, block: Block) -> Block:
        """The examples, in these units, with the outliers of a robust loss clipped."""
        return self._within(min(self.most, NEAR), block, block.targets)

    def _within(self, most: float, block: Block, targets: np.ndarray) -> Block:
        if self.most < np.inf:
            targets = np.clip(targets, self.centre - most, self.centre + most)
        return block._replace(targets=targets.astype(block.targets.dtype))


def first_values(
    blocks: Iterable[Block], numbers: Callable[[Block], np.ndarray]
) -> np.ndarray:
    """Values of the first examples with a weight, enough to determine a deviation.

    They are those of all processes.
    """
    found, count, shards = [], 0, Shards()
    for block in blocks:
        rows, shards = np.flatnonzero(block.weights > 0), block.shards
        found.append(numbers(block)[rows])
        count += len(rows)
        if count >= _rows.MAX_ROWS:
            break
    return shards.gather(np.concatenate(found))


def total(blocks: Iterable[Block], number: Callable[[Block], Any]) -> Any:
    """The sum of a number, or of an array, per block of all processes."""
    found, shards = 0, Shards()
    for block in blocks:
        found, shards = found + number(block), block.shards
    return shards.total(found)


def count_rows(blocks: Iterable[Block]) -> int:
    """The number of rows of all processes that have a weight."""
    return int(total(blocks, lambda block: np.count_nonzero(block.weights)))


class _Kept:
    """Batches that are read again each time, unless they fit into memory."""

    def __init__(self, read: Callable[[], Iterator[Arrays]]):
        self.read = read
        self.batches: list[Arrays] | None = None

    def __iter__(self) -> Iterator[Arrays]:
        if self.batches is not None:
            yield from self.batches
            return
        held, size = [], 0
        for batch in self.read():
            size += sum(array.nbytes for array in batch[:3])
            if size <= HELD:
                held.append((*map(align, batch[:3]), *batch[3:]))
            else:
                held.clear()
            yield batch
        if size <= HELD:
            self.batches = held


def sample_blocks(blocks: Iterable[Block], every: int) -> Iterator[Block]:
    """Every `every`-th example, in blocks of the same size, for the same programs."""
    blocks = iter(blocks)
    first = next(blocks)
    thinned = (
        (*(array[::every].copy() for array in block[:3]), block.shards)
        for block in itertools.chain([first], blocks)
    )
    return (Block(*arrays) for arrays in _equal_sizes(thinned, len(first.weights)))


def keep_weighted(
    blocks: Callable[[], Iterator[Block]], share: int = 1
) -> Callable[[], Iterator[Block]]:
    """Reads only the examples with a weight, in blocks of one size.

    It is that of the given blocks, or a `share`-th if that many rows are worth a
    program of their own. They are kept if they fit into memory. Without any, all are
    read.
    """

    def read() -> Iterator[Arrays]:
        given = blocks()
        first = next(given)
        if first.shards.spans_processes:
            # All processes read the same number of blocks.
            yield from itertools.chain([first], given)
            return
        some = (
            (*(array[block.weights > 0] for array in block[:3]), block.shards)
            for block in itertools.chain([first], given)
        )
        size = len(first.weights)
        found = _equal_sizes(some, min(size, max(FEWEST, -(-size // share))))
        yield next(found, first)
        yield from found

    kept = _Kept(read)
    return lambda: (Block(*arrays) for arrays in kept)


def _describe(batch: Any) -> str:
    kind = type(batch).__name__
    return f"a {kind} of {len(batch)}" if isinstance(batch, tuple | list) else kind


def _check_batch(model: Any, batch: Any, of_labels: bool, of_codes: bool) -> Arrays:
    """Examples, targets and weights in the form that the state in a model takes.

    They are those of this process, followed by the devices that share them.
    """
    shards = Shards.of_rows(batch[0])
    if shards.mesh is None:
        return *_check_rows(model, batch, of_labels, of_codes), shards
    X, first = batch[0], shards.first_row(batch[0])
    local = [None if part is None else shards.local_rows(part, X) for part in batch]
    check = functools.partial(_check_rows, model, local, of_labels, of_codes, first)
    return *shards.check(check), shards


def _check_rows(
    model: Any, batch: Any, of_labels: bool, of_codes: bool, first_row: int = 0
) -> tuple[np.ndarray, ...]:
    """Examples of this process after checks; messages count from `first_row`."""
    X, y, *weight = batch
    model, X = open_estimator(model, X)
    state, num_features = model.inner, None
    if model is not state:
        model = TableModel.of(model)
        columns = -(-model.num_features // COLUMNS) * COLUMNS if of_codes else 0
        X, y = (
            model.training_rows(X, columns),
            model.encode_targets(y, first_row),
        )
        num_features = columns or None
    counts = weight[0] if weight else None
    given = examples.check_stream(state, X, y, counts, first_row, num_features)
    X, y, weights = (np.asarray(array) for array in given)
    if np.any(absent := weights <= 0):
        # They may be padding of any kind.
        X = np.where(absent[:, None] & ~np.isfinite(X), 0, X)
        y = np.where(absent.reshape(-1, *(1,) * (y.ndim - 1)), 1, y).astype(y.dtype)
    if of_labels and state.num_columns == 1:
        known = np.abs(y) == 1
        if not np.all(known):
            row = int(np.argmin(known))
            raise ArgumentError(
                "y",
                "be -1 or +1 for a loss of labels",
                f"{y[row]} in row {first_row + row}; "
                "loss='squared' and 'huber' take any",
            )
    return X, y, weights


def _equal_sizes(batches: Iterable[Arrays], most: int) -> Iterator[Arrays]:
    """Batches of one size; the last is padded with its own rows, with weight 0.

    Every device gets the same number of rows, at most `BLOCK` and fewer of wide ones,
    and all at most `most` rows, or one each.
    """
    batches = iter(batches)
    first = next(batches, None)
    if first is None:
        return
    shards: Shards = first[-1]
    devices = shards.local_number
    block = rows_at_once(BLOCK, first[0].shape[1])
    size = devices * max(1, min(block, -(-most // devices)))
    rows = (batch[:3] for batch in itertools.chain([first], batches))
    for *arrays, weights in regroup(rows, size):
        if len(weights) < size:
            at = np.arange(size) % len(weights)
            arrays = [array[at] for array in arrays]
        yield (*arrays, pad_rows(weights, size), shards)
