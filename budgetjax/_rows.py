"""Rows as arrays: their kinds, their shape, and blocks of them.

Blocks have few sizes, and the last one is padded, so few programs are compiled.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
from jaxtyping import Array, Float, Shaped
from numpy.typing import ArrayLike

from budgetjax import _checks, _forks
from budgetjax._errors import ArgumentError

# Limits for the rows that go to the device at once, and for their values.
MIN_ROWS, MAX_ROWS, MAX_NUMBERS = 64, 65_536, 2**22
# The numbers of a block of wide rows that is made for a number of rows.
MOST_AT_ONCE = 2**25

# The dtypes of numbers that both NumPy and JAX have.
PLAIN = frozenset(map(np.dtype, ("f4", "f8", "i4", "i8")))


@runtime_checkable
class SparseMatrix(Protocol):
    """A matrix of `scipy.sparse`, which takes long to import."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> np.dtype: ...
    def tocsr(self) -> Any: ...
    def toarray(self) -> np.ndarray: ...


@runtime_checkable
class RowStore(Protocol):
    """Rows in the memory of the device that a compiled program can read sparsely."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    def products(self, w: Array, /) -> Array: ...


# An array, nested lists, a data frame or Arrow table, a sparse matrix or `SparseRows`.
RawRows: TypeAlias = jax.Array | ArrayLike | SparseMatrix | RowStore


def check_shape(shape: tuple[int, ...], num_features: int) -> None:
    """Raises unless this is the shape of rows with `num_features` columns."""
    if len(shape) != 2 or shape[1] != num_features:
        raise ArgumentError(
            "X",
            f"have shape (n, {num_features}), {num_features} being the "
            "model's num_features",
            shape,
        )


def cast_rows(
    X: RawRows, num_features: int, dtype: np.dtype
) -> Float[Array, "n features"]:
    """Rows in the dtype of a model; checks their shape, not that they are finite."""
    # Most rows need no further question.
    is_plain = type(X) is np.ndarray or isinstance(X, jax.Array)
    rows: Any = X
    if not is_plain or rows.dtype not in PLAIN:
        rows = _checks.array("X", X)
    if rows.ndim != 2 or rows.shape[1] != num_features:
        check_shape(rows.shape, num_features)
    is_ready = isinstance(rows, jax.Array) and rows.dtype == dtype
    return rows if is_ready and not _forks.is_broken else _checks.to_device(rows, dtype)


def as_matrix(X: Any, num_features: int) -> Any:
    """Rows as an array or a CSR matrix of a checked shape."""
    sparse = isinstance(X, SparseMatrix)
    X = _checks.csr_matrix("X", X) if sparse else _checks.array("X", X)
    check_shape(X.shape, num_features)
    return X


def pad_rows(
    array: Shaped[np.ndarray, "n ..."], length: int, value: int = 0
) -> Shaped[np.ndarray, "length ..."]:
    """The array padded to this length with rows of one value."""
    more = np.full((length - len(array), *array.shape[1:]), value, array.dtype)
    return np.concatenate([array, more]) if len(more) else array


def block_size(num_rows: int, num_features: int) -> int:
    """The number of rows per block, a power of two, so that few programs are compiled.

    From 256 rows on, at most a quarter of the work is padding.
    """
    quarter = _power_of_two(num_rows // 4)
    fitting = _power_of_two(MAX_NUMBERS // max(1, num_features))
    return max(MIN_ROWS, min(quarter, fitting, MAX_ROWS))


def rows_at_once(most: int, num_features: int) -> int:
    """At most `most` rows, and fewer where they would take more than about 128 MiB."""
    fitting = _power_of_two(MOST_AT_ONCE // max(1, num_features))
    return max(min(most, MIN_ROWS), min(most, fitting))


def _power_of_two(number: int) -> int:
    """The largest power of two up to a number; 0 for 0."""
    return (1 << number.bit_length()) // 2


def regroup(
    pieces: Iterable[tuple[np.ndarray, ...]], rows: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Regroups tuples of arrays to this number of rows; the last may be shorter.

    The arrays of a piece must not be changed later.
    """
    held, count = [], 0
    for piece in pieces:
        start, n = 0, len(piece[0])
        while start < n:
            stop = min(n, start + rows - count)
            held.append(tuple(array[start:stop] for array in piece))
            count, start = count + stop - start, stop
            if count == rows:
                yield _concatenate(held)
                held, count = [], 0
    if held:
        yield _concatenate(held)


def _concatenate(pieces: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, ...]:
    if len(pieces) == 1:
        return pieces[0]
    return tuple(map(np.concatenate, zip(*pieces, strict=True)))
