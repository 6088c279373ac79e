"""Dense or sparse rows, for solvers that visit one pattern after another.

A visit computes the inner product of a row and the weights, and adds a multiple of the
row to them. A CPU runs a loop of visits ten times faster if XLA compiles it to one
kernel, which it does if an iteration is small and contains no sort, scatter or call.
JAX 0.12 considers an iteration over a dense row of up to a few thousand numbers small;
JAX 0.10 does for any row, with the flag for loops that `benchmarks/speed.md` names.
Three rules follow: the length of an inner loop is not known at compile time (otherwise
the size of its body is multiplied by it); labels and the constant feature are part of
the rows; an array that a loop both reads and writes is read by `read_in_loop`.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int32, Integer, Shaped

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Record, static
from budgetjax._rows import RawRows, SparseMatrix
from budgetjax.kernels import Kernel
from budgetjax.solvers import training_set
from budgetjax.solvers.training_set import Matrix, Scalar, Vector

# The number of values of a sparse row per iteration.
PAIR = 2
# The largest length of a row that is visited without an inner loop.
SHORT = 16


def get(
    values: Shaped[Array | np.ndarray, "size ..."], i: Integer[Array, ""]
) -> Shaped[Array, "..."]:
    """`values[i]` for an index that is known to be in range."""
    return jax.lax.dynamic_index_in_dim(
        values, i, keepdims=False, allow_negative_indices=False
    )


def set_at(
    values: Shaped[Array, " size"], i: Integer[Array, ""], value: Array
) -> Shaped[Array, " size"]:
    """`values` with `values[i] = value` for an index that is known to be in range."""
    return jax.lax.dynamic_update_slice(
        values, value[None], (i,), allow_negative_indices=False
    )


def read_in_loop(values: Shaped[Array, " size"], i: Integer[Array, ""]) -> Array:
    """`values[i]` in a loop that also writes `values`.

    After a direct read, XLA would copy the array in every iteration. After a read in an
    inner loop, here of one turn, it does not.
    """
    once = jnp.where(i >= 0, jnp.int32(1), jnp.int32(0))
    nothing = jnp.zeros((), values.dtype)
    return jax.lax.fori_loop(
        jnp.int32(0), once, lambda _, value: get(values, i), nothing
    )


class DenseRows(Record):
    """Rows of an array."""

    values: Float[Array, "n size"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def inner(self, i: Int32[Array, ""], w: Float[Array, " size"]) -> Scalar:
        """The inner product of row `i` and `w`; O(size)."""
        return jnp.dot(self._row(i, w), w, precision="highest")

    def add(
        self, i: Int32[Array, ""], multiple: Scalar, w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """`w` plus a multiple of row `i`; O(size), or O(1) for the multiple 0."""
        return jax.lax.cond(
            multiple != 0, lambda: w + multiple * self._row(i, w), lambda: w
        )

    def times(self, signs: Vector) -> "DenseRows":
        """The rows times these signs, row by row."""
        return DenseRows(self.values * signs[:, None].astype(self.values.dtype))

    def _row(
        self, i: Int32[Array, ""], w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """Row `i`, which is known to be in range, in the dtype of `w`."""
        return get(self.values, i).astype(w.dtype)


class SparseRows(Record):
    """Rows whose zeros are not stored; see `sparse_rows`.

    It is a pytree of fixed shapes that takes the place of `X`, shape `(n, d)`, in
    linear solvers and models.

    Attributes:
      values: the values of one row after another, each row padded with a 0 to an even
        length, shape `(m,)`.
      indices: their columns, shape `(m,)`; a row has each column at most once, apart
        from padding.
      starts: row `i` extends from `starts[i]` to `starts[i + 1]`, shape `(n + 1,)`.
      columns: d; not a leaf.
    """

    values: Float[Array | np.ndarray, " m"]
    indices: Int32[Array | np.ndarray, " m"]
    starts: Int32[Array | np.ndarray, " ends"]
    columns: int = static()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.starts.shape[0] - 1, self.columns

    def products(self, w: Float[Array, " size"]) -> Vector:
        """The inner products of all rows and `w`."""
        return products(self, w)

    def inner(self, i: Int32[Array, ""], w: Float[Array, " size"]) -> Scalar:
        """The inner product of row `i` and `w`; O(nonzeros of the row)."""

        def term(j):
            value = get(self.values, j).astype(w.dtype)
            return value * get(w, get(self.indices, j))

        def add(pair, total):
            j = pair * PAIR
            return total + (term(j) + term(j + 1))

        return self._over(i, i >= 0, add, jnp.zeros((), w.dtype))

    def add(
        self, i: Int32[Array, ""], multiple: Scalar, w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """`w` plus a multiple of row `i`; O(nonzeros), or O(1) for the multiple 0."""

        def term(j, w):
            column = get(self.indices, j)
            change = multiple * get(self.values, j).astype(w.dtype)
            return set_at(w, column, get(w, column) + change)

        def add(pair, w):
            j = pair * PAIR
            return term(j + 1, term(j, w))

        return self._over(i, multiple != 0, add, w)

    def times(self, signs: Vector) -> "SparseRows":
        """The rows times these signs, row by row."""
        lengths = np.diff(np.asarray(self.starts))
        of_values = np.repeat(np.asarray(signs), lengths)
        # If all numbers are 0, some are kept that belong to no row.
        values = np.array(self.values)
        values[: len(of_values)] *= of_values.astype(values.dtype)
        return self._replace(values=jnp.asarray(values))

    def _over(
        self,
        i: Int32[Array, ""],
        wanted: Bool[Array, ""],
        body: Callable[[Array, Array], Array],
        start: Array,
    ) -> Array:
        """Loops over the pairs of a row."""
        first = get(self.starts, i) // PAIR
        end = get(self.starts, i + 1) // PAIR
        return jax.lax.fori_loop(first, jnp.where(wanted, end, first), body, start)


class ShortRows(Record):
    """Sparse rows of one length, at most `SHORT`, padded with zeros.

    A visit then needs no inner loop. Columns have the smallest unsigned type, since
    reading rows from memory takes most of a visit.
    """

    values: Float[Array | np.ndarray, "n length"]
    indices: Integer[Array | np.ndarray, "n length"]

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def inner(self, i: Int32[Array, ""], w: Float[Array, " size"]) -> Scalar:
        """The inner product of row `i` and `w`; O(length)."""
        values, columns = self._row(i)
        # A gather: XLA would copy the weights if `add` followed reads one by one.
        return jnp.sum(values.astype(w.dtype) * w.at[columns].get(mode="clip"))

    def add(
        self, i: Int32[Array, ""], multiple: Scalar, w: Float[Array, " size"]
    ) -> Float[Array, " size"]:
        """`w` plus a multiple of row `i`; O(length)."""
        values, columns = self._row(i)
        changes = multiple * values.astype(w.dtype)
        for k in range(self.values.shape[1]):
            w = set_at(w, columns[k], get(w, columns[k]) + changes[k])
        return w

    def times(self, signs: Vector) -> "ShortRows":
        """The rows times these signs, row by row."""
        signs = signs[:, None].astype(self.values.dtype)
        return self._replace(values=self.values * signs)

    def _row(self, i: Int32[Array, ""]) -> tuple[Array, Array]:
        """The values and columns of row `i`, which is known to be in range."""
        return get(self.values, i), get(self.indices, i)


class KernelMatrix(Record):
    """Patterns in the feature space of a kernel, stored as their inner products.

    The weights are represented by their inner products with all patterns; `vectors` are
    the examples.
    """

    values: Float[Array, "n n"]
    vectors: Matrix
    kernel: Kernel

    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    def inner(self, i: Int32[Array, ""], w: Vector) -> Scalar:
        """The inner product of pattern `i` and the weights; O(1)."""
        return read_in_loop(w, i)

    def add(self, i: Int32[Array, ""], multiple: Scalar, w: Vector) -> Vector:
        """The products of the weights plus a multiple of pattern `i`; O(n)."""
        return DenseRows(self.values).add(i, multiple, w)

    def times(self, signs: Vector) -> "KernelMatrix":
        """The products of the patterns times these signs."""
        signs = signs.astype(self.values.dtype)
        return self._replace(values=self.values * signs[:, None] * signs[None])


Rows = DenseRows | SparseRows | ShortRows | KernelMatrix


@jax.jit
def products(rows: Rows, w: Float[Array, " size"]) -> Vector:
    """The inner products of all rows and `w`, in one compiled loop."""
    return jax.lax.fori_loop(
        jnp.int32(0),
        jnp.int32(rows.shape[0]),
        lambda i, found: set_at(found, i, rows.inner(i, w)),
        jnp.zeros(rows.shape[0], w.dtype),
    )


@names_errors("sparse_rows")
def sparse_rows(X: SparseMatrix) -> SparseRows:
    """A sparse matrix as an argument for the linear solvers, `jit` and `vmap`.

    Args:
      X: a matrix of `scipy.sparse`, shape `(n, d)`, with fewer than 2^31 values. Floats
        keep their dtype, other numbers become float64. Read LIBSVM text with
        `sklearn.datasets.load_svmlight_file`.

    Returns:
      The rows as NumPy arrays, which take as much memory as the matrix.

    Example:
      >>> import scipy.sparse
      >>> rows = bj.sparse_rows(scipy.sparse.eye_array(3, format="csr"))
      >>> rows.values.tolist(), rows.starts.tolist()
      ([1.0, 0.0, 1.0, 0.0, 1.0, 0.0], [0, 2, 4, 6])
    """
    csr = _checks.csr_matrix("X", X)
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    if max(csr.nnz + csr.shape[0], csr.shape[1]) > np.iinfo(np.int32).max:
        wanted = "have fewer than 2^31 numbers and columns"
        raise ArgumentError("X", wanted, f"{csr.nnz} and {csr.shape[1]}")
    values = np.asarray(_checks.array("X", csr.data))
    if not jnp.issubdtype(values.dtype, jnp.floating):
        values = values.astype(np.float64)
    return pad_rows(values, csr.indices, csr.indptr, csr.shape[1])


def pad_rows(
    values: np.ndarray, indices: np.ndarray, starts: np.ndarray, columns: int
) -> SparseRows:
    """The rows of a CSR matrix, each padded to an even length."""
    lengths = np.diff(starts)
    filled = -(-lengths // PAIR) * PAIR
    new_starts = np.concatenate([[0], np.cumsum(filled)]).astype(np.int32)
    places = np.arange(len(indices)) + np.repeat(new_starts[:-1] - starts[:-1], lengths)
    # At least one pair, so that a read is valid even if all values are 0.
    size = max(int(new_starts[-1]), PAIR)
    new_values, new_indices = np.zeros(size, values.dtype), np.zeros(size, np.int32)
    new_values[places], new_indices[places] = values, indices
    return SparseRows(new_values, new_indices, new_starts, columns)


def to_short_rows(rows: SparseRows) -> SparseRows | ShortRows:
    """`ShortRows`, unless a row is longer or padding would double the memory."""
    lengths = np.diff(rows.starts)
    length = int(lengths.max(initial=PAIR))
    if length > SHORT or len(lengths) * length > 2 * len(rows.values):
        return rows
    stored = np.arange(length) < lengths[:, None]
    values = np.zeros(stored.shape, rows.values.dtype)
    indices = np.zeros(stored.shape, np.min_scalar_type(rows.shape[1]))
    values[stored] = rows.values[: rows.starts[-1]]
    indices[stored] = rows.indices[: rows.starts[-1]]
    return ShortRows(values, indices)


def read_rows(X: RawRows) -> DenseRows | SparseRows:
    """The rows of an array, of a SciPy matrix, or of `SparseRows`, after checks."""
    X = sparse_rows(X) if isinstance(X, SparseMatrix) else X
    if not isinstance(X, SparseRows):
        return DenseRows(training_set.read_features(X))
    training_set.check_shape(X.shape)
    return X
