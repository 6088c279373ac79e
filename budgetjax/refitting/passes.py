"""Examples in blocks of one size, for algorithms that read them more than once."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from budgetjax import examples, models
from budgetjax.models import Labelled

# Examples to a block: large enough for matrix products, small beside the data.
BLOCK = 4096
# Batches of so many bytes are kept for the next pass; of more, every pass reads them.
HELD = 256 * 2**20


class Block(NamedTuple):
    """Some examples, in memory of the host: a block at a time goes to the device.

    Attributes:
      X: shape `(size, num_features)`.
      targets: one a column of the model, shape `(size, columns)`: y, or, with more than
        two classes, +1 in the column of the label and -1 elsewhere.
      weights: shape `(size,)`, at least 0.
    """

    X: Float[np.ndarray, "size num_features"]
    targets: Float[np.ndarray, "size columns"]
    weights: Float[np.ndarray, " size"]


class Data(NamedTuple):
    """Examples, in blocks of one size.

    Attributes:
      blocks: reads them, in order.
      again: whether they can be read again.
    """

    blocks: Callable[[], Iterator[Block]]
    again: bool


def data(
    where: str,
    state: Any,
    X: Any,
    y: Any,
    weight: Any,
    *,
    of_labels: bool,
) -> Data:
    """Examples as blocks, from arrays or from batches.

    Args:
      where: the caller's name, for error messages.
      state: the model, whose number of features and columns they must fit.
      X: shape `(n, num_features)`, or an iterable of `(X, y)` or `(X, y, weight)`.
      y: shape `(n,)`, or None.
      weight: shape `(n,)`, or None.
      of_labels: whether targets of a single column must be -1 or +1.

    Raises:
      ValueError: if they do not fit; what comes in batches is checked as it is read.
    """
    columns = state.expansion.num_columns
    if y is not None:
        whole = _checked(where, state, X, y, weight, of_labels)
        if not np.any(whole[2] > 0):
            raise ValueError(f"{where}: X must have rows, and one of weight, got none")
        return Data(lambda: _sliced(*whole, columns), True)
    if weight is not None:
        raise ValueError(f"{where}: weight must be in the batches, (X, y, weight)")
    if hasattr(X, "ndim") or not isinstance(X, Iterable):
        raise ValueError(
            f"{where}: y must be given beside X, or X be batches (X, y) or "
            f"(X, y, weight), got y=None and X of type {type(X).__name__}"
        )

    def blocks() -> Iterator[Block]:
        some = False
        for block in _joined(_batches(where, state, X, of_labels), BLOCK):
            some = some or bool(np.any(block.weights > 0))
            yield block
        if not some:
            raise ValueError(
                f"{where}: batches must have rows, and one of weight, got none"
            )

    return Data(blocks, iter(X) is not X)


def of_raw_rows(
    where: str, model: Labelled, X: Any, y: Any
) -> tuple[Any, np.ndarray | None]:
    """Examples as they were read in the terms of the state in a model.

    Batches are kept in memory if they are few, so that a file is parsed once.
    """
    if y is not None:
        return models.scaled(where, model, X), models.coded(where, model, y)
    if hasattr(X, "ndim") or not isinstance(X, Iterable):
        return X, y

    def read() -> Iterator[Any]:
        for i, batch in enumerate(X):
            at = f"{where}: batch {i}"
            _check_batch(where, i, batch)
            rows, labels, *weight = batch
            rows = models.scaled(at, model, rows)
            yield rows, models.coded(at, model, labels), *weight

    return (read() if iter(X) is X else _Kept(read)), None


class _Kept:
    """Batches that are read anew each time, unless they fit in memory."""

    def __init__(self, read: Callable[[], Iterator[Any]]):
        self.read = read
        self.batches: list[Any] | None = None
        self.fits = True

    def __iter__(self) -> Iterator[Any]:
        if self.batches is not None:
            yield from self.batches
            return
        held, size = [], 0
        for batch in self.read():
            if self.fits:
                held.append(batch)
                size += sum(part.nbytes for part in batch)
                self.fits = size <= HELD
            if not self.fits:
                held = []
            yield batch
        if self.fits:
            self.batches = held


def sampled(blocks: Iterable[Block], every: int) -> Iterator[Block]:
    """Every so many-th example of blocks, in blocks of their size.

    What is compiled for the blocks serves for these too.
    """
    blocks = iter(blocks)
    first = next(blocks)
    thinned = (
        Block(*(array[::every] for array in block))
        for block in itertools.chain([first], blocks)
    )
    return _joined(thinned, len(first.weights))


def _checked(
    where: str,
    state: Any,
    X: Any,
    y: Any,
    weight: Any,
    of_labels: bool,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Examples, labels and weights that fit the model and the loss."""
    X, y, weights = (
        np.asarray(array) for array in examples.stream(where, state, X, y, weight)
    )
    if of_labels and state.expansion.num_columns == 1:
        known = np.abs(y) == 1
        if not np.all(known):
            row = int(np.argmin(known))
            raise ValueError(
                f"{where}: y must be -1 or +1 for a loss of labels, got {y[row]} in "
                f"row {row}; loss='squared' and 'huber' take any"
            )
    return X, y, weights


def _block(X: np.ndarray, y: np.ndarray, weights: np.ndarray, columns: int) -> Block:
    """Examples with one target per column: the label, -1 or +1 for each class."""
    if columns == 1:
        return Block(X, y[:, None], weights)
    of_class = y[:, None] == np.arange(columns)
    return Block(X, np.where(of_class, 1, -1).astype(X.dtype), weights)


def _sliced(
    X: np.ndarray, y: np.ndarray, weights: np.ndarray, columns: int
) -> Iterator[Block]:
    """An array's blocks. The last starts early enough to be whole."""
    n = len(weights)
    size = min(BLOCK, n)
    for start in range(0, n, size):
        at = min(start, n - size)
        part = slice(at, at + size)
        fresh = np.where(np.arange(at, at + size) >= start, weights[part], 0)
        yield _block(X[part], y[part], fresh.astype(weights.dtype), columns)


def _batches(
    where: str, state: Any, batches: Iterable, of_labels: bool
) -> Iterator[Block]:
    """Batches, checked as they come."""
    for i, batch in enumerate(batches):
        _check_batch(where, i, batch)
        X, y, *weight = batch
        checked = _checked(
            f"{where}: batch {i}", state, X, y, weight[0] if weight else None, of_labels
        )
        yield _block(*checked, state.expansion.num_columns)


def _joined(batches: Iterable[Block], size: int) -> Iterator[Block]:
    """Batches of any size as blocks of one; the last is filled up with weight 0."""
    held: list[Block] = []
    rows = 0
    for batch in batches:
        held.append(batch)
        rows += len(batch.weights)
        if rows >= size:
            joined = [np.concatenate(arrays) for arrays in zip(*held, strict=True)]
            whole = rows - rows % size
            for start in range(0, whole, size):
                yield Block(*(array[start : start + size] for array in joined))
            held = [Block(*(array[whole:].copy() for array in joined))]
            rows -= whole
    if rows:
        joined = [np.concatenate(arrays) for arrays in zip(*held, strict=True)]
        yield Block(
            *(
                np.concatenate([array, np.zeros_like(array, shape=shape)])
                for array in joined
                for shape in [(size - rows, *array.shape[1:])]
            )
        )


def _check_batch(where: str, i: int, batch: Any) -> None:
    if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
        kind = type(batch).__name__
        got = f"a {kind} of {len(batch)}" if isinstance(batch, tuple | list) else kind
        raise ValueError(
            f"{where}: batch {i} must be (X, y) or (X, y, weight), got {got}"
        )
