"""Patterns, dense or sparse, for solvers that visit one after another.

A visit to a pattern needs two things of it: its inner product with the weights, and to
add a multiple of it to them. A loop of such visits is fastest on a CPU when all of it
is compiled to one kernel, ten times as fast as operation by operation. XLA does that to
a loop whose iteration touches less than a kilobyte and sorts, scatters and calls
nothing. So patterns are walked through a few numbers at a time, by loops whose length
is not known when they are compiled (what is in a loop of known length is counted as
often as it runs); labels and the constant feature are multiplied and appended
beforehand; and where one array is read and written in a loop, the place where it is
read is `taken`.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int32, Integer, Shaped

from budgetjax import checks
from budgetjax.checks import Static

# Numbers of a dense and of a sparse pattern that one iteration takes: with more, a loop
# over patterns would not be small.
LANES = 4
PAIR = 2


def element(
    values: Shaped[Array | np.ndarray, " size"], i: Integer[Array, ""]
) -> Array:
    """`values[i]`, where `i` is known to be an index."""
    return jax.lax.dynamic_slice(values, (i,), (1,), allow_negative_indices=False)[0]


def put(
    values: Shaped[Array, " size"], i: Integer[Array, ""], value: Array
) -> Shaped[Array, " size"]:
    """`values` with `values[i] = value`, where `i` is known to be an index."""
    return jax.lax.dynamic_update_slice(
        values, value[None], (i,), allow_negative_indices=False
    )


def taken(values: Shaped[Array, " size"], i: Integer[Array, ""]) -> Array:
    """`values[i]`, in a loop that will also write `values`.

    XLA would copy the array in every iteration, unless the read stands in a loop of its
    own, here of one turn.
    """
    once = jnp.where(i >= 0, jnp.int32(1), jnp.int32(0))
    nothing = jnp.zeros((), values.dtype)
    return jax.lax.fori_loop(
        jnp.int32(0), once, lambda _, value: element(values, i), nothing
    )


class DenseRows(NamedTuple):
    """Rows of an array.

    Attributes:
      values: shape `(n, size)`.
    """

    values: Float[Array, "n size"]

    @property
    def number(self) -> int:
        return self.values.shape[0]

    @property
    def size(self) -> int:
        return self.values.shape[1]

    def inner(self, i: Int32[Array, ""], w: Float[Array, " size"]) -> Float[Array, ""]:
        """The inner product of row `i` and `w`; O(size)."""

        def add(j, total):
            return total + jnp.sum(self._lanes(i, j, w.dtype) * _lanes(w, j))

        zero = jnp.zeros((), w.dtype)
        return jax.lax.fori_loop(jnp.int32(0), self._length(i >= 0), add, zero)

    def add(
        self, i: Int32[Array, ""], multiple: Float[Array, ""], w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """`w` plus a multiple of row `i`; O(size), and O(1) for the multiple 0."""

        def add(j, w):
            lanes = _lanes(w, j) + multiple * self._lanes(i, j, w.dtype)
            return jax.lax.dynamic_update_slice(
                w, lanes, (j * LANES,), allow_negative_indices=False
            )

        return jax.lax.fori_loop(jnp.int32(0), self._length(multiple != 0), add, w)

    def squares(self, dtype: DTypeLike) -> Float[Array, " n"]:
        """The squared norm of each row; O(n size)."""
        return _dense_squares(self.values, np.dtype(dtype))

    def _length(self, wanted: Bool[Array, ""]) -> Int32[Array, ""]:
        """Iterations over a row, a number that is not known at compile time."""
        return jnp.where(wanted, jnp.int32(self.size // LANES), jnp.int32(0))

    def _lanes(
        self, i: Int32[Array, ""], j: Int32[Array, ""], dtype: DTypeLike
    ) -> Float[Array, " lanes"]:
        lanes = jax.lax.dynamic_slice(
            self.values, (i, j * LANES), (1, LANES), allow_negative_indices=False
        )
        return lanes[0].astype(dtype)


@functools.partial(jax.jit, static_argnums=1)
def _dense_squares(
    values: Float[Array, "n size"], dtype: np.dtype
) -> Float[Array, " n"]:
    # Compiled, this needs no second matrix.
    return jnp.sum(jnp.square(values.astype(dtype)), axis=1)


def _lanes(w: Float[Array, " size"], j: Int32[Array, ""]) -> Float[Array, " lanes"]:
    return jax.lax.dynamic_slice(
        w, (j * LANES,), (LANES,), allow_negative_indices=False
    )


class SparseRows(NamedTuple):
    """Rows of which only the numbers that are not 0 are kept, one row after another.

    `sparse_rows` makes one. It is a pytree of fixed shapes, and stands for `X`, shape
    `(n, d)`, in the linear solvers and models.

    Attributes:
      values: of all rows, each filled up with a 0 to an even number, shape `(m,)`.
      indices: their columns, shape `(m,)`; but for these zeros, a row has a column once
        at most.
      starts: row `i` lies from `starts[i]` to `starts[i + 1]`, shape `(n + 1,)`.
      columns: d; no leaf.
      longest: numbers in the longest row; no leaf.
    """

    values: Float[Array | np.ndarray, " m"]
    indices: Int32[Array | np.ndarray, " m"]
    starts: Int32[Array | np.ndarray, " ends"]
    columns: Static
    longest: Static

    @property
    def number(self) -> int:
        return self.starts.shape[0] - 1

    @property
    def size(self) -> int:
        return self.columns.value

    @property
    def shape(self) -> tuple[int, int]:
        return self.number, self.size

    def products(self, w: Float[Array, " size"]) -> Float[Array, " n"]:
        """The inner products of all rows and `w`."""
        return products(self, w)

    def inner(self, i: Int32[Array, ""], w: Float[Array, " size"]) -> Float[Array, ""]:
        """The inner product of row `i` and `w`; O(numbers in the row)."""

        def term(j):
            value = element(self.values, j).astype(w.dtype)
            return value * element(w, element(self.indices, j))

        def add(pair, total):
            j = pair * PAIR
            return total + (term(j) + term(j + 1))

        return self._over(i, i >= 0, add, jnp.zeros((), w.dtype))

    def add(
        self, i: Int32[Array, ""], multiple: Float[Array, ""], w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """`w` plus a multiple of row `i`; O(numbers in it), O(1) for the multiple 0."""

        def term(j, w):
            column = element(self.indices, j)
            change = multiple * element(self.values, j).astype(w.dtype)
            return put(w, column, element(w, column) + change)

        def add(pair, w):
            j = pair * PAIR
            return term(j + 1, term(j, w))

        return self._over(i, multiple != 0, add, w)

    def squares(self, dtype: DTypeLike) -> Float[Array, " n"]:
        """The squared norm of each row; O(m)."""
        return _squares(self, np.dtype(dtype))

    def _over(
        self,
        i: Int32[Array, ""],
        wanted: Bool[Array, ""],
        body: Callable[[Array, Array], Array],
        start: Array,
    ) -> Array:
        """A loop over the pairs of a row."""
        first = element(self.starts, i) // PAIR
        end = element(self.starts, i + 1) // PAIR
        return jax.lax.fori_loop(first, jnp.where(wanted, end, first), body, start)


class KernelMatrix(NamedTuple):
    """Patterns of which only the inner products with each other are known.

    What stands for the weights is then their inner products with all patterns.

    Attributes:
      values: shape `(n, size)`; beyond the n-th, columns are 0 up to a multiple of 4.
      vectors: the examples, shape `(n, d)`.
    """

    values: Float[Array, "n size"]
    vectors: Float[Array, "n d"]

    @property
    def number(self) -> int:
        return self.values.shape[0]

    @property
    def size(self) -> int:
        return self.values.shape[1]

    def inner(self, i: Int32[Array, ""], w: Float[Array, " size"]) -> Float[Array, ""]:
        """The inner product of pattern `i` and the weights; O(1)."""
        return taken(w, i)

    def add(
        self, i: Int32[Array, ""], multiple: Float[Array, ""], w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """The products after the weights have grown by a multiple of pattern `i`; O(n).

        O(1) for the multiple 0.
        """
        return DenseRows(self.values).add(i, multiple, w)

    def squares(self, dtype: DTypeLike) -> Float[Array, " n"]:
        """The squared norm of each pattern."""
        return jnp.diagonal(self.values).astype(dtype)


@functools.partial(jax.jit, static_argnums=1)
def _squares(rows: SparseRows, dtype: np.dtype) -> Float[Array, " n"]:
    def square(i):
        def add(pair, total):
            pair = [element(rows.values, pair * PAIR + j) for j in range(PAIR)]
            return total + sum(jnp.square(value.astype(dtype)) for value in pair)

        return rows._over(i, i >= 0, add, jnp.zeros((), dtype))

    return each(rows.number, square, dtype)


Rows = DenseRows | SparseRows | KernelMatrix


def each(
    number: int,
    function: Callable[[Int32[Array, ""]], Float[Array, ""]],
    dtype: DTypeLike,
) -> Float[Array, " number"]:
    """A function of a row for all of them, in one compiled loop."""
    return jax.lax.fori_loop(
        jnp.int32(0),
        jnp.int32(number),
        lambda i, results: put(results, i, function(i)),
        jnp.zeros(number, dtype),
    )


@jax.jit
def products(rows: Rows, w: Float[Array, " size"]) -> Float[Array, " n"]:
    """The inner products of all rows and `w`."""
    return each(rows.number, lambda i: rows.inner(i, w), w.dtype)


def sparse_rows(X: Any) -> SparseRows:
    """A sparse matrix as an argument for the linear solvers, `jit` and `vmap`.

    Args:
      X: of `scipy.sparse`, shape `(n, d)`, with fewer than 2^31 numbers. Floats keep
        their type, other numbers become float64. For LIBSVM text, that is what
        `sklearn.datasets.load_svmlight_file` reads.

    Returns:
      The rows, as NumPy arrays; memory is that of the matrix.

    Raises:
      ValueError: if it is no such matrix, or a number is not finite.

    Example:
      >>> import budgetjax as bj
      >>> import scipy.sparse
      >>> rows = bj.sparse_rows(scipy.sparse.eye_array(3, format="csr"))
      >>> rows.values.tolist(), rows.starts.tolist()
      ([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [0, 2, 4, 6])
    """
    return _sparse_rows("sparse_rows", X)


def _sparse_rows(where: str, X: Any) -> SparseRows:
    X = checks.sparse(where, "X", X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if max(X.nnz + X.shape[0], X.shape[1]) > np.iinfo(np.int32).max:
        raise ValueError(
            f"{where}: X must have fewer than 2^31 numbers and columns, got {X.nnz} "
            f"and {X.shape[1]}"
        )
    values = np.asarray(checks.array(where, "X", X.data))
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(np.float64)
    return filled_up(values, X.indices, X.indptr, X.shape[1])


def filled_up(
    values: np.ndarray, indices: np.ndarray, starts: np.ndarray, columns: int
) -> SparseRows:
    """The rows of a CSR matrix, each of an even length."""
    lengths = np.diff(starts)
    filled = -(-lengths // PAIR) * PAIR
    new_starts = np.concatenate([[0], np.cumsum(filled)]).astype(np.int32)
    places = np.arange(len(indices)) + np.repeat(new_starts[:-1] - starts[:-1], lengths)
    # At least one pair, so that there is a number to read where all are 0.
    size = max(int(new_starts[-1]), PAIR)
    new_values, new_indices = np.zeros(size, values.dtype), np.zeros(size, np.int32)
    new_values[places], new_indices[places] = values, indices
    longest = int(np.max(filled, initial=PAIR))
    return SparseRows(
        new_values, new_indices, new_starts, Static(columns), Static(longest)
    )


def as_rows(where: str, X: Any) -> DenseRows | SparseRows:
    """`X` as rows, whatever a user holds: an array, a SciPy matrix, or rows.

    Args:
      where: the caller's name, for error messages.
      X: shape `(n, d)`; floats keep their type, other numbers become JAX's default.

    Raises:
      ValueError: if it is none of these, or empty, or not finite.
    """
    if isinstance(X, DenseRows | SparseRows):
        rows = jax.tree.map(jnp.asarray, X)
    elif hasattr(X, "tocsr"):
        rows = jax.tree.map(jnp.asarray, _sparse_rows(where, X))
    else:
        X = jnp.asarray(checks.array(where, "X", X))
        if X.ndim != 2:
            raise ValueError(f"{where}: X must have shape (n, d), got {X.shape}")
        X = X if jnp.issubdtype(X.dtype, jnp.floating) else X.astype(float)
        checks.check_finite(where, X)
        rows = DenseRows(X)
    if not rows.number or not rows.size:
        raise ValueError(
            f"{where}: X must have rows and columns, got shape "
            f"({rows.number}, {rows.size})"
        )
    return rows
