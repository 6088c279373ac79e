"""Rows to train on, in memory, and what a state takes of them."""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Array, Float, Int, Shaped

from budgetjax import _rows
from budgetjax._errors import ArgumentError
from budgetjax._rows import SparseMatrix, pad_rows, rows_at_once
from budgetjax.kernels import Kernel
from budgetjax.online import defaults, driver
from budgetjax.online.state import Online
from budgetjax.refitting import training_data
from budgetjax.stream.batches import Batches
from budgetjax.tables import scaling
from budgetjax.tables.columns import to_dense
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

# A stream has at least so many slots, up to the budget, and doubles them.
FEWEST_SLOTS = 1024
# Rows are shifted if their distance from 0, in the exponent of the default kernel, is
# larger: float32 rounds an exponent by a ten-millionth of that distance.
FAR = 10.0


@runtime_checkable
class SparseRows(SparseMatrix, Protocol):
    """A CSR matrix or array of SciPy, which has no types of its own."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    def __getitem__(self, key: Any) -> "SparseRows": ...
    def astype(self, dtype: Any) -> "SparseRows": ...


# An array of rows or a CSR matrix.
Rows: TypeAlias = Shaped[np.ndarray, "_ _"] | SparseRows


class Data(NamedTuple):
    """Rows to train on.

    Attributes:
      X: an array, with NaN for what is missing, or a CSR matrix.
      y: labels or real targets, shape `(n,)` or `(n, outputs)`.
      weights: one per row, above 0.
      labels: a model of nothing yet, with the classes, or the intercept and the unit of
        targets, and the names of the columns.
      nominal: the columns of names.
      name: the name of what trains, for messages.
    """

    X: Rows
    y: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]
    labels: TableModel
    nominal: tuple[int, ...] = ()
    name: str = "train"

    def part(self, at: Int[np.ndarray, " rows"]) -> "Data":
        """These rows of all."""
        return self._replace(X=self.X[at], y=self.y[at], weights=self.weights[at])


def dtype_of(X: Rows) -> np.dtype:
    """The dtype to compute in: float64 if X is and JAX enables it, else float32."""
    wide = X.dtype == np.float64 and jax.config.read("jax_enable_x64")
    return np.dtype(np.float64 if wide else np.float32)


def to_array(X: Rows) -> Shaped[np.ndarray, "n features"]:
    """The rows as an array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def values(X: Rows) -> np.ndarray:
    """The numbers of rows, those of a sparse matrix without its zeros."""
    return X.data if isinstance(X, SparseRows) else to_array(X)


def check_range(X: Rows, dtype: np.dtype) -> None:
    """Raises if a number of X is out of the range of the dtype for computing."""
    given, largest = values(X), np.finfo(dtype).max
    if not given.size or not max(np.max(given), -np.min(given)) > largest:
        return
    entries = scipy.sparse.coo_array(X)
    at = int(np.argmax(np.abs(entries.data)))
    place = f"in row {entries.row[at]}, column {entries.col[at]}"
    got = f"{entries.data[at]:g} {place}"
    raise ArgumentError("X", f"be in the range of {dtype}", got)


def join(X: Rows, more: Rows) -> Rows:
    """Rows followed by others, dense if one part is."""
    if isinstance(X, np.ndarray) or isinstance(more, np.ndarray):
        return np.concatenate([to_array(X), to_array(more)])
    joined: Any = scipy.sparse.vstack([X, more], format="csr")
    return joined


def dense(
    X: Rows, dtype: np.dtype, origin: Float[np.ndarray, " features"]
) -> Float[np.ndarray, "n features"]:
    """Rows of an array or a sparse matrix, minus the origin, in this dtype."""
    if not np.any(origin):
        return np.ascontiguousarray(to_dense(X, dtype), dtype)
    # Subtracted in float64, before digits are lost.
    return np.ascontiguousarray(to_array(X) - origin[None], dtype)


class Sample:
    """The rows that decide the default gamma and the origin.

    Attributes:
      num_rows: the number of rows that they were taken from.
      rows: up to 1,000 of them, as an encoding gives them, if there is one.
    """

    def __init__(self, X: Rows, codes: Encoding | None = None):
        self.num_rows = X.shape[0]
        rows = X[scaling.sample_rows(self.num_rows)]
        self.rows = rows
        if codes is not None:
            self.rows = codes.apply(to_array(rows), dtype_of(X))

    @functools.cached_property
    def gamma(self) -> float:
        """The default gamma; 0 if all rows are equal."""
        if isinstance(self.rows, np.ndarray):
            distances = scaling.squared_distances(self.rows)
        else:
            rows = scipy.sparse.csr_array(self.rows, dtype=np.float64)
            distances = scaling.distances_from_products((rows @ rows.T).toarray())
        return scaling.default_gamma_from_distances(distances)

    @property
    def median(self) -> Float[np.ndarray, " features"]:
        """The median of each feature."""
        if isinstance(self.rows, np.ndarray):
            return np.median(np.asarray(self.rows, np.float64), axis=0)
        columns: Any = scipy.sparse.csc_array(self.rows)
        median = np.zeros(columns.shape[1])
        # Of most columns, most numbers are 0.
        some = np.flatnonzero(2 * columns.count_nonzero(axis=0) >= columns.shape[0])
        median[some] = np.median(columns[:, some].toarray(), axis=0)
        return median

    @property
    def variances(self) -> Float[np.ndarray, " features"]:
        """The variance of each feature."""
        if not isinstance(self.rows, SparseRows):
            return np.var(to_array(self.rows), axis=0, dtype=np.float64)
        rows: Any = scipy.sparse.csc_array(self.rows, dtype=np.float64)
        n, columns = rows.shape
        counts = np.diff(rows.indptr)
        mean = np.asarray(rows.sum(axis=0)).ravel() / n
        at = np.repeat(np.arange(columns), counts)
        squares = np.bincount(at, (rows.data - mean[at]) ** 2, minlength=columns)
        return (squares + (n - counts) * mean**2) / n


def kernel_of(
    kernel: str | Kernel,
    gamma: float | str,
    sample: Sample,
    *,
    needs_distances: bool = False,
) -> Kernel:
    """The kernel of some examples; see `defaults.kernel_of`.

    Raises:
      ValueError: if an argument is invalid, or gamma is "scale" and all rows are equal,
        which says nothing of the other rows of a stream that `needs_distances`.
    """

    def default() -> float:
        gamma = sample.gamma
        if not gamma and needs_distances:
            wanted = "have rows that differ among the first, for gamma='scale'"
            got = f"{sample.num_rows} alike; give more rows, or gamma as a number"
            raise ArgumentError("X", wanted, got)
        # If all rows are equal, the kernel is 1 for any gamma.
        return gamma or 1.0

    known = ("scale", "auto") if kernel == "linear" else ("scale",)
    if isinstance(kernel, str) and isinstance(gamma, str) and gamma not in known:
        wanted = "be 'scale' or a number (or 'auto', in fit of an online estimator)"
        raise ArgumentError("gamma", wanted, f"{gamma!r}")
    return defaults.kernel_of(kernel, gamma, "scale", default)


def origin_of(kernel: Kernel | None, sample: Sample) -> Float[np.ndarray, " features"]:
    """The origin to subtract from rows before rounding.

    It is the median of every feature if the kernel is stationary and the median is far
    from 0, otherwise zeros: a shift would change the model under any other kernel.
    """
    zeros = np.zeros(sample.rows.shape[1])
    if kernel is None or not kernel.stationary:
        return zeros
    median = sample.median
    return median if sample.gamma * float(median @ median) > FAR else zeros


def translation(origin: Float[np.ndarray, " features"]) -> Scaling | None:
    """A scaling that subtracts the origin; None if it is 0."""
    return Scaling.translation(origin) if np.any(origin) else None


def origin(model: TableModel) -> Float[np.ndarray, " features"]:
    """The origin of a model, which it subtracts from rows or their features."""
    if isinstance(model.scaling, Scaling):
        return model.scaling.mean
    return np.zeros(model.model.num_features)


class Examples(NamedTuple):
    """Rows to learn.

    Attributes:
      X: raw rows, an array or a CSR matrix.
      codes: what encodes them; None for rows as they are.
      origin: the origin to subtract from what is learned.
      targets: targets in the form that the state takes.
      weights: one per row.
    """

    X: Rows
    codes: Encoding | None
    origin: Float[np.ndarray, " features"]
    targets: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]

    @property
    def num_features(self) -> int:
        """The number of features of a row."""
        return self.X.shape[1] if self.codes is None else self.codes.num_features

    def features(
        self, rows: Int[np.ndarray, " rows"] | slice, dtype: np.dtype
    ) -> Float[np.ndarray, "rows features"]:
        """What a state takes of these rows."""
        X = self.X[rows]
        if self.codes is not None:
            return self.codes.apply(to_array(X), dtype)
        return dense(X, dtype, self.origin)

    def data(self, dtype: np.dtype) -> dict[str, Any]:
        """Arguments of `refit`: few rows are padded, many sparse ones are batched.

        Rows to be encoded stay raw, as the refit encodes them.
        """
        X, codes, _, targets, weights = self
        n, features = X.shape
        block = rows_at_once(training_data.BLOCK, features)
        if n > block and not isinstance(X, np.ndarray):

            def read() -> Iterator[tuple[np.ndarray, ...]]:
                for start in range(0, n, block):
                    part = slice(start, start + block)
                    yield self.features(part, dtype), targets[part], weights[part]

            return {"X": Batches("X", features, read)}
        few = max(training_data.FEWEST, 1 << (n - 1).bit_length())
        size = n if n > training_data.BLOCK else few
        rows = X if codes is not None else self.features(slice(None), dtype)
        return {
            "X": pad_rows(to_array(rows), size),
            "y": pad_rows(targets, size, 1),
            "weight": pad_rows(weights, size),
        }


def learn(
    state: Online,
    examples: Examples,
    order: Int[np.ndarray, " n"],
    size: int | None = None,
    block_size: int | None = None,
) -> Iterator[tuple[Online, Array, Int[np.ndarray, " rows"]]]:
    """Learns the examples in this order, in parts of this size.

    It yields the state after each part, with the scores of its rows before they were
    learned, and their numbers; rows of weight 0 follow them.
    """
    dtype, (*_, targets, weights) = np.dtype(state.dtype), examples
    usual = _rows.block_size(examples.X.shape[0], examples.num_features)
    size = rows_at_once(size or usual, examples.num_features)
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        rows = pad_rows(examples.features(numbers, dtype), size)
        y = pad_rows(targets[numbers], size, 1)
        counts = pad_rows(weights[numbers], size)
        state, scores = driver.run(state, rows, y, weight=counts, block_size=block_size)
        yield state, scores, numbers


def room_for(rows: int) -> int:
    """The slots of a stream after `rows` rows, of few sizes for few programs."""
    return max(FEWEST_SLOTS, 1 << (rows - 1).bit_length())


def spread_rows(
    order: Int[np.ndarray, " n"], weights: Float[np.ndarray, " n"], count: int
) -> Int[np.ndarray, " count"]:
    """As many rows with a weight as `count`, spread evenly over the order."""
    rows = order[weights[order] > 0]
    return rows[np.linspace(0, len(rows) - 1, count).astype(np.intp)]


def warn_unscaled(name: str, X: Rows, origin: Float[np.ndarray, " features"]) -> None:
    """Warns the user of what has this name if dense features look unscaled."""
    if isinstance(X, np.ndarray):
        rows = X[:: -(-X.shape[0] // _rows.MAX_ROWS)] - origin[None]
        scaling.warn_unscaled(name, rows)
