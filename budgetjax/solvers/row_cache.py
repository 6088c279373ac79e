"""Kernel rows of a training set, computed on demand and cached.

Every kernel solver works on the matrix `Q[i, j] = y_i y_j k(x_i, x_j)`, which is too
large to store: 1.6 GB for 20,000 examples, a terabyte for 500,000. But it needs the
rows of few examples, repeatedly. They are computed in batches, as a matrix product, and
kept in a ring of fixed size. The ring holds rows of the kernel matrix
`K[i, j] = k(x_i, x_j)`, without signs, so problems with other labels, such as the
classes of a one-against-rest classifier, can share it, and so can penalties.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import _checks, _record, kernels
from budgetjax._errors import InputError, names_errors
from budgetjax.kernels import Kernel
from budgetjax.solvers import training_set
from budgetjax.solvers.training_set import Matrix, TrainingSet, Vector

# The maximum number of examples for which the full matrix is computed at the start: 64
# MiB in float32.
AFFORDABLE_EXAMPLES = 4096
# Batches of at least this many rows are computed in parts, so that one missing row
# costs less than all: a product of 16 rows takes half the time of one of 64.
DIVISIBLE_BATCH = 32
MEBIBYTE = 2**20
# Rows of `K` per block of a product with the full matrix.
PRODUCT_BLOCK = 256


@_record.record
class KernelRows(NamedTuple):
    """The known rows of the kernel matrix `K` of `n` examples.

    Attributes:
      origin: what is subtracted from every row, shape `(d,)`; see `kernels.origin_of`.
      squares: `||x_i||^2` of these differences.
      diagonal: `k(x_i, x_i)`.
      kept: the cached rows of `K`.
      places: the place in `kept` of each example's row, or -1.
      owners: the example whose row is at each place, or -1; None if all rows are kept,
        each at its example's index.
      next: the place of the next row to compute, where the oldest row is.
      num_computed: the rows computed so far, each with `n` kernel values.
      num_blocks: the other blocks of `K` so far, each with `batch^2` kernel values.
    """

    origin: Vector
    squares: Vector
    diagonal: Vector
    kept: Float[Array, "places n"]
    places: Integer[Array, " n"]
    owners: Integer[Array, " places"] | None
    next: Integer[Array, ""]
    num_computed: Integer[Array, ""]
    num_blocks: Integer[Array, ""]

    @property
    def complete(self) -> bool:
        """Whether all rows are kept."""
        return self.owners is None

    def num_values(self, batch: int) -> int:
        """Kernel values computed so far; not to be traced."""
        values = int(self.num_computed) * self.squares.shape[0]
        return values + int(self.num_blocks) * batch**2


class KernelCache:
    """Kernel rows of a training set that runs of `budgetjax.solve` share.

    No state holds it: a run takes the rows, changes them in place, and gives them
    back. So runs with other penalties or other labels need no second copy, and
    their solutions stay as they are. Rows of another kernel, training set or batch size
    make way. A run that ends with an error leaves the cache empty.

    Args:
      size: mebibytes for kernel rows, at least two batches of them. Up to 4,096
        examples, all kernel values are computed at the start if they fit; None does so
        for any number of examples.

    Example:
      >>> X, y = bj.datasets.checkerboard(500, seed=0)
      >>> cache = bj.KernelCache(64)
      >>> work = [
      ...     bj.solve(bj.SMO(bj.RBF(4.0), C), X, y, cache=cache).history.work[-1]
      ...     for C in (1.0, 2.0)]
      >>> [int(one) for one in work]
      [250000, 0]
    """

    @names_errors("KernelCache")
    def __init__(self, size: float | int | None = 512.0):
        if size is not None:
            _checks.positive("size", size)
        self.size = None if size is None else float(size)
        self._key: object = None
        self._rows: KernelRows | None = None

    def __repr__(self) -> str:
        held = 0 if self._rows is None else self._rows.kept.nbytes / MEBIBYTE
        return f"KernelCache(size={self.size}) with {held:.0f} MiB of rows"

    def take(self, kernel: Kernel, data: TrainingSet, batch: int) -> KernelRows:
        """The rows known so far, or new ones, for the use of one run.

        Args:
          kernel: with its parameters as arrays.
          data: dense examples.
          batch: the maximum number of rows per request.
        """
        rows, self._rows = self._rows, None
        key = _key(kernel, data, batch)
        if rows is not None and key is not None and key == self._key:
            return rows._replace(num_computed=jnp.int32(0), num_blocks=jnp.int32(0))
        # The old rows go before the new ones come.
        self._key, rows = key, None
        return compute_rows(kernel, data, batch, self.size)

    def give(self, rows: KernelRows | None) -> None:
        """Keeps the rows of a run that has ended."""
        self._rows = rows


def _key(kernel: Kernel, data: TrainingSet, batch: int) -> object:
    """What rows are of; None if that is traced."""
    if _checks.is_traced((kernel, data)) or not int(data.digest_of_rows):
        return None
    leaves, structure = jax.tree.flatten(kernel)
    digest = int(training_set.digest(data.digest_of_rows, leaves))
    return structure, digest, len(data.y), data.dtype, batch


def compute_rows(
    kernel: Kernel, data: TrainingSet, batch: int, cache_size: float | None
) -> KernelRows:
    """All rows if they are few, or an empty ring; see `KernelCache` for the size."""
    X, n = data.X, len(data.y)
    size = n
    if cache_size is not None:
        size = int(cache_size * MEBIBYTE / (X.dtype.itemsize * n))
    complete = size >= n and (cache_size is None or n <= AFFORDABLE_EXAMPLES)
    size = min(n, max(size, 2 * batch))
    _checks.check_memory(
        {"the size of the cache": cache_size, "rows": n, "batch_size": batch},
        (n if complete else size) * n * X.dtype.itemsize,
        "of kernel rows",
        "lower that size, or learn from fewer rows or by an online learner",
    )
    made = _allocate(kernel, X, None if complete else size)
    known = not isinstance(made.diagonal, Tracer)
    if known and not bool(_is_finite(kernel, made, X)):
        raise InputError(f"kernel values overflow {X.dtype}; scale X down")
    return made


@jax.jit
def _is_finite(kernel: Kernel, rows: KernelRows, X: Matrix) -> Bool[Array, ""]:
    """Whether the kernel is, also where it is computed from the largest squares.

    The diagonal of a stationary kernel is 1 whatever the rows.
    """
    largest = jnp.argmax(rows.squares)[None]
    values = _kernel_rows(kernel, rows, X, largest)
    return jnp.all(jnp.isfinite(rows.diagonal)) & jnp.all(jnp.isfinite(values))


@functools.partial(jax.jit, static_argnums=2)
def _allocate(kernel: Kernel, X: Matrix, size: int | None) -> KernelRows:
    """All rows, or a ring of this size."""
    origin = kernels.origin_of(kernel, X)
    X = X - origin[None]
    squares = kernels.squared_norms(X)
    n = X.shape[0]
    if size is None:
        kept, owners = kernel.gram(X, X, squares, squares), None
        places = jnp.arange(n, dtype=jnp.int32)
    else:
        # Made from the squares, so that it is sharded like the data.
        kept = jnp.zeros((size, 1), X.dtype) * squares[None]
        owners = jnp.full(size, -1, jnp.int32)
        places = jnp.full(n, -1, jnp.int32)
    return KernelRows(
        origin=origin,
        squares=squares,
        diagonal=kernel.diag(X, squares),
        kept=kept,
        places=places,
        owners=owners,
        next=jnp.int32(0),
        num_computed=jnp.int32(n if size is None else 0),
        num_blocks=jnp.int32(0),
    )


def fetch(
    kernel: Kernel,
    rows: KernelRows,
    X: Matrix,
    examples: Integer[Array, " batch"],
    wanted: Bool[Array, " batch"],
    spare: Bool[Array, " batch"] | None = None,
) -> KernelRows:
    """Computes the kernel rows of wanted examples that are not cached.

    They are at `rows.places[examples]` until the next call. Wanted examples must differ
    from each other and from spare ones, which fill a part of the batch at no cost.
    """
    if rows.owners is None:
        return rows
    batch, size = examples.shape[0], rows.owners.shape[0]
    places = rows.places[examples]
    known = places >= 0
    if size < X.shape[0]:
        # Rows that the new ones may overwrite are recomputed.
        known &= (places - rows.next) % size >= batch
    missing = wanted & ~known
    count = jnp.sum(missing, dtype=jnp.int32)
    # Missing rows come first; they go to consecutive places, from `next` on.
    last = jnp.where(missing, 0, 2)
    if spare is not None:
        more = spare & ~wanted & ~known
        last = jnp.where(more, 1, last)
        room = jnp.where(count > 0, -count % _part_sizes(batch)[-1], 0)
        count += jnp.minimum(jnp.sum(more, dtype=jnp.int32), room)
    order = jnp.argsort(last, stable=True)
    examples = examples[order]
    new = (rows.next + jnp.arange(batch, dtype=jnp.int32)) % size
    is_new = jnp.arange(batch, dtype=jnp.int32) < count
    kept = _compute_missing(kernel, rows, X, examples, count)

    # An example loses its overwritten row, unless it has a newer one.
    n = X.shape[0]
    owner = rows.owners[new]
    left = is_new & (owner >= 0) & (rows.places[owner] == new)
    all_places = rows.places.at[jnp.where(left, owner, n)].set(-1, mode="drop")
    all_places = all_places.at[jnp.where(is_new, examples, n)].set(new, mode="drop")
    owners = rows.owners.at[jnp.where(is_new, new, size)].set(examples, mode="drop")
    return rows._replace(
        kept=kept,
        places=all_places,
        owners=owners,
        next=(rows.next + count) % size,
        num_computed=rows.num_computed + count,
    )


def _compute_missing(
    kernel: Kernel,
    rows: KernelRows,
    X: Matrix,
    examples: Integer[Array, " batch"],
    count: Integer[Array, ""],
) -> Float[Array, "places n"]:
    """`kept` with the rows of the first `count` examples, from `next` on."""
    batch, size = examples.shape[0], rows.kept.shape[0]
    kept, done = rows.kept, jnp.int32(0)
    # Repeated, so that a part as long as the batch depends on its start: otherwise the
    # compiler moves its rows out of the loop and always computes them.
    examples = jnp.concatenate([examples, examples])
    parts = _part_sizes(batch)
    for part in parts:
        # A large part is used only if most of it is needed; the last handles the rest.
        enough = part // 2 if part != parts[-1] else 0

        def compute(carry, part=part):
            kept, done = carry
            some = jax.lax.dynamic_slice_in_dim(examples, done, part)
            new = _kernel_rows(kernel, rows, X, some)

            def write(i, kept):
                row = jax.lax.dynamic_slice_in_dim(new, i, 1)
                place = (rows.next + done + i) % size
                return jax.lax.dynamic_update_slice_in_dim(kept, row, place, 0)

            kept = jax.lax.fori_loop(0, jnp.minimum(part, count - done), write, kept)
            return kept, jnp.minimum(done + part, count)

        kept, done = jax.lax.while_loop(
            lambda carry, enough=enough: count - carry[1] > enough,
            compute,
            (kept, done),
        )
    return kept


def _part_sizes(batch: int) -> tuple[int, ...]:
    """Numbers of rows to compute at once, in descending order."""
    return (batch, batch // 4) if batch >= DIVISIBLE_BATCH else (batch,)


def _kernel_rows(
    kernel: Kernel, rows: KernelRows, X: Matrix, examples: Integer[Array, " some"]
) -> Float[Array, "some n"]:
    """`K[examples]`; O(some n d)."""
    some, X = X[examples] - rows.origin[None], X - rows.origin[None]
    return kernel.gram(some, X, rows.squares[examples], rows.squares)


def signed_block(
    kernel: Kernel,
    rows: KernelRows,
    X: Matrix,
    y: Vector,
    examples: Integer[Array, " some"],
) -> tuple[KernelRows, Float[Array, "some some"]]:
    """`Q[examples][:, examples]`; O(some^2 d), or looked up if all rows are kept."""
    signs = y[examples][:, None] * y[examples][None]
    if rows.complete:
        return rows, signs * rows.kept[examples[:, None], examples[None]]
    some, squares = X[examples] - rows.origin[None], rows.squares[examples]
    block = kernel.gram(some, some, squares, squares)
    return rows._replace(num_blocks=rows.num_blocks + 1), signs * block


def product(
    kernel: Kernel, rows: KernelRows, X: Matrix, y: Vector, coefficients: Vector
) -> tuple[KernelRows, Vector]:
    """The rows, with updated counts, and `Q coefficients`.

    Cost: O(n^2) if all rows are kept, otherwise O(n^2 d), in blocks.
    """
    signed = y * coefficients
    if rows.complete:
        return rows, y * jnp.matmul(rows.kept, signed, precision="highest")
    n = X.shape[0]
    size = min(n, PRODUCT_BLOCK)

    def block(index, result):
        # The last block starts early enough to be full.
        start = jnp.minimum(index * size, n - size)
        some = start + jnp.arange(size, dtype=jnp.int32)
        new = jnp.matmul(
            _kernel_rows(kernel, rows, X, some), signed, precision="highest"
        )
        return jax.lax.dynamic_update_slice_in_dim(result, new, start, 0)

    blocks = -(-n // size)
    result = jax.lax.fori_loop(0, blocks, block, jnp.zeros_like(coefficients))
    return rows._replace(num_computed=rows.num_computed + n), y * result
