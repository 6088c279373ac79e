"""Examples in blocks of one size, for algorithms that read them more than once."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Integer

from budgetjax import engine

# Examples to a block: large enough for matrix products, small beside the data.
BLOCK = 4096


class Block(NamedTuple):
    """Some examples.

    Attributes:
      X: shape `(size, num_features)`.
      targets: one a column of the model, shape `(size, columns)`: y, or, with more than
        two classes, +1 in the column of the label and -1 elsewhere.
      weights: shape `(size,)`, at least 0.
    """

    X: Float[Array, "size num_features"]
    targets: Float[Array, "size columns"]
    weights: Float[Array, " size"]


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
    if y is not None:
        whole = _checked(where, state, X, y, weight, of_labels)
        if not bool(jnp.any(whole.weights > 0)):
            raise ValueError(f"{where}: X must have rows, and one of weight, got none")
        return Data(lambda: _sliced(whole), True)
    if weight is not None:
        raise ValueError(f"{where}: weight must be in the batches, (X, y, weight)")
    if hasattr(X, "ndim") or not isinstance(X, Iterable):
        raise ValueError(
            f"{where}: y must be given beside X, or X be batches (X, y) or "
            f"(X, y, weight), got y=None and X of type {type(X).__name__}"
        )

    def blocks() -> Iterator[Block]:
        return _joined(where, _batches(where, state, X, of_labels))

    return Data(blocks, iter(X) is not X)


def _checked(
    where: str,
    state: Any,
    X: Any,
    y: Any,
    weight: Any,
    of_labels: bool,
) -> Block:
    """Examples with one target a column: the label, -1 or +1 for every class."""
    X, y, weights = engine.stream(where, state, X, y, weight)
    columns = state.expansion.num_columns
    if columns > 1:
        classes = jnp.arange(columns, dtype=y.dtype)
        targets = jnp.where(y[:, None] == classes[None], 1, -1).astype(X.dtype)
        return Block(X, targets, weights)
    if of_labels and not bool(jnp.all(jnp.abs(y) == 1)):
        row = int(jnp.argmin(jnp.abs(y) == 1))
        raise ValueError(
            f"{where}: y must be -1 or +1 for a loss of labels, got {y[row]} in row "
            f"{row}; loss='squared' and 'huber' take any"
        )
    return Block(X, y[:, None], weights)


def _sliced(whole: Block) -> Iterator[Block]:
    """An array's blocks. The last starts early enough to be whole."""
    n = whole.weights.shape[0]
    size = min(BLOCK, n)
    for start in range(0, n, size):
        yield _slice(whole, start, size)


@functools.partial(jax.jit, static_argnums=2)
def _slice(whole: Block, start: Integer[Array, ""] | int, size: int) -> Block:
    at = jnp.minimum(start, whole.weights.shape[0] - size)
    X, targets, weights = (
        jax.lax.dynamic_slice_in_dim(array, at, size) for array in whole
    )
    fresh = at + jnp.arange(size, dtype=at.dtype) >= start
    return Block(X, targets, jnp.where(fresh, weights, 0))


def _batches(
    where: str, state: Any, batches: Iterable, of_labels: bool
) -> Iterator[Block]:
    """Batches, checked as they come."""
    for i, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise ValueError(
                f"{where}: batch {i} must be (X, y) or (X, y, weight), got "
                f"{_shown(batch)}"
            )
        X, y, *weight = batch
        yield _checked(
            f"{where}: batch {i}", state, X, y, weight[0] if weight else None, of_labels
        )


def _joined(where: str, batches: Iterator[Block]) -> Iterator[Block]:
    """Batches of any size as blocks of one; the last is filled up with weight 0."""
    held: list[list[np.ndarray]] = []
    rows, some = 0, False
    for batch in batches:
        held.append([np.asarray(array) for array in batch])
        rows += batch.weights.shape[0]
        some = some or bool(np.any(held[-1][2] > 0))
        if rows >= BLOCK:
            joined = [np.concatenate(arrays) for arrays in zip(*held, strict=True)]
            whole = rows - rows % BLOCK
            for start in range(0, whole, BLOCK):
                yield _block(array[start : start + BLOCK] for array in joined)
            held = [[array[whole:].copy() for array in joined]]
            rows -= whole
    if not some:
        raise ValueError(
            f"{where}: batches must have rows, and one of weight, got none"
        )
    if rows:
        joined = [np.concatenate(arrays) for arrays in zip(*held, strict=True)]
        shapes = [(BLOCK - rows, *array.shape[1:]) for array in joined]
        yield _block(
            np.concatenate([array, np.zeros(shape, array.dtype)])
            for array, shape in zip(joined, shapes, strict=True)
        )


def _block(arrays: Iterable[np.ndarray]) -> Block:
    return Block(*(jnp.asarray(array) for array in arrays))


def _shown(batch: Any) -> str:
    kind = type(batch).__name__
    return f"a {kind} of {len(batch)}" if isinstance(batch, tuple | list) else kind
