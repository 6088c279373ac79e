r"""The span of the support vectors: projections onto it, kept up to date.

With the kernel matrix `K` of the support vectors, including a ridge, the projection of
`phi(x)` onto their span has the coefficients `K^-1 k(x)`. A square root of that inverse
is kept across rounds: any matrix `R` with `R K R^T = I`: then `K^-1 = R^T R`, and
`R k(x)` are the coordinates of the projection in an orthonormal basis.

Replacing one vector by another is a rank-one change, `R + u z^T`: the unit vector `u`
along column `p` of `R` is the direction of the span that only the leaving vector `p`
reaches, and it takes up the new vector. The change costs O(B^2), and since no factor is
triangular, none must be rotated back.

The eigenvalues of a kernel matrix fall below the precision of float32. Three things
keep `R` accurate, however long the stream:

- The ridge bounds the condition number of `K` by `B / ridge`, also with duplicates. The
  condition number of `R` is only the square root of that, and `R^T R` is positive
  semidefinite despite rounding.
- `K` is kept too. Every change makes the new direction of `R`, and one more row in
  turn, orthonormal to the others under `K` again, so an error disappears after B
  changes.
- One step of iterative refinement improves a solution that becomes coefficients.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import _checks, _platform, _record, _sharding, kernels
from budgetjax._errors import ArgumentError
from budgetjax._shapes import Flag, Index, Mask, PerPair, PerRow, Scalar
from budgetjax.kernels import Kernel
from budgetjax.online import support_set
from budgetjax.online.slots import FREE, NOWHERE, set_row_and_column
from budgetjax.online.state import State
from budgetjax.online.support_set import SMALLEST_EIGENVALUE, Expansion

# Vectors as of `_platform.together`: on a GPU they are the rows of one array.
Vectors: TypeAlias = Sequence[PerRow] | Float[Array, "vectors rows"]
# Relative to the diagonal of the kernel matrix. A learner may have a smaller one where
# its dtype allows.
RIDGE = 1e-3
# The error of a new direction from which on it is corrected twice. Always would cost a
# fifth of the speed of `Project`; never loses the root of a smooth kernel.
LARGE = 0.1
# The factor by which the ridge grows while it is too small.
LARGER = 10.0


@_record.record
class Span(NamedTuple):
    """The kernel matrix of the support vectors and a root of its inverse.

    Attributes:
      gram: `K + ridge diag(K)`, shape `(rows, rows)`, arbitrary for free slots.
      selves: the diagonal of `gram` for active slots, shape `(rows,)`. It is stored
        apart because reading it from the matrix before a write makes the compiler copy
        the matrix.
      root: `R`, shape `(rows, rows)`, zero in the rows and columns of free slots.
      refresh_index: the number of changes, which picks the row to be orthonormalised
        next.
    """

    gram: PerPair
    selves: PerRow
    root: PerPair
    refresh_index: Index


def empty(rows: int, dtype, *, per_slot: int = 1) -> Span:
    """The span of no vectors, with one or more rows per slot of a support set."""
    size = per_slot * rows
    gram, root = (jnp.zeros((size, size), dtype) for _ in range(2))
    return Span(gram, jnp.zeros((size,), dtype), root, jnp.zeros((), jnp.int32))


def from_vectors(kernel: Kernel, expansion: Expansion) -> Span:
    """The span of these support vectors; O(B^2 (d + B)).

    The root is the inverse of a Cholesky factor, and not finite if there is none.
    """
    mask = expansion.mask
    gram, factor = factorise(support_set.gram(kernel, expansion), mask)
    unit = jnp.eye(mask.shape[0], dtype=gram.dtype)
    root = jax.scipy.linalg.solve_triangular(factor, unit, lower=True)
    root = jnp.where(mask[:, None] & mask[None], root, 0)
    return Span(gram, jnp.diagonal(gram), root, jnp.zeros((), jnp.int32))


def with_landmarks(
    kernel: Kernel, expansion: Expansion, landmarks: ArrayLike
) -> tuple[Expansion, Span]:
    """An empty expansion with these landmarks and coefficients 0, and their span."""
    rows, width = expansion.vectors.shape
    Z = _checks.array("vectors", landmarks)
    budget = _checks.concrete(expansion.budget)
    most = rows - 1 if budget is None else int(budget)
    if Z.ndim != 2 or Z.shape[1] != width or not 1 <= Z.shape[0] <= most:
        raise ArgumentError(
            "vectors",
            f"have shape (m, {width}) with m from 1 to the budget {most}",
            Z.shape,
        )
    with np.errstate(over="ignore"):
        Z = jnp.asarray(Z, expansion.vectors.dtype)
    if not _known_finite(Z):
        raise ArgumentError("vectors", "be finite", "NaN or infinity")
    m = Z.shape[0]
    origin = kernels.origin_of(kernel, Z)
    vectors = jnp.zeros_like(expansion.vectors).at[:m].set(Z - origin[None])
    slots = jnp.arange(rows, dtype=jnp.int32)
    expansion = expansion._replace(
        vectors=vectors,
        squares=kernels.squared_norms(vectors),
        ages=jnp.where(slots < m, slots + 1 - m, FREE),
        num_active=jnp.asarray(m, jnp.int32),
        origin=origin,
    )
    basis = from_vectors(kernel, expansion)
    if not _known_finite(basis.root):
        raise ArgumentError(
            "vectors",
            "have a positive definite kernel matrix",
            f"one of {type(kernel).__name__} that is not",
        )
    return expansion, basis


def _known_finite(array: Array) -> bool:
    """Whether an array is finite, or traced."""
    known = _checks.concrete(array)
    return known is None or bool(np.all(np.isfinite(known)))


@functools.partial(jax.jit, static_argnums=2)
def factorise(
    gram: PerPair, mask: Mask, least: float = RIDGE
) -> tuple[PerPair, PerPair]:
    """The kernel matrix with its ridge, and its lower Cholesky factor; O(B^3).

    For data far from 0, rounded squared norms may give the kernel matrix negative
    eigenvalues in float32, so the ridge grows until a factor exists. If none is found
    (the kernel is 0 at all vectors, or not positive definite), the factor is not
    finite. Rows outside the mask are those of the unit matrix.
    """
    return _factorise(least, gram, mask)[1:]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _factorise(
    least: float, gram: PerPair, mask: Mask
) -> tuple[Scalar, PerPair, PerPair]:
    """The ridge, and the result of `factorise`."""

    def enlarge_ridge(carry):
        ridge, *_ = carry
        ridge = jnp.where(ridge == 0, least, ridge * LARGER)
        return ridge, *_factorise_with(least, ridge, gram, mask)

    def fails(carry):
        ridge, _, factor = carry
        return (ridge < 1) & ~jnp.all(jnp.isfinite(factor))

    start = jnp.zeros((), gram.dtype), gram, jnp.full_like(gram, jnp.nan)
    return jax.lax.while_loop(fails, enlarge_ridge, start)


def _factorise_with(
    least: float, ridge: Scalar, gram: PerPair, mask: Mask
) -> tuple[PerPair, PerPair]:
    """`factorise` with this ridge."""
    diagonal = jnp.diagonal(gram)
    unit = jnp.eye(mask.shape[0], dtype=gram.dtype)
    # A larger ridge has to exceed the rounding error, not a vector's own norm.
    extra = jnp.where(ridge <= least, diagonal, jnp.max(diagonal))
    ridged = gram + ridge * jnp.diag(extra)
    both = mask[:, None] & mask[None]
    return ridged, jnp.linalg.cholesky(jnp.where(both, ridged, unit))


@_factorise.defjvp
def _derive_factor(least, primals, tangents):
    """The ridge is a constant, and the loop that finds it has no derivative."""
    gram, mask = primals
    ridge, *_ = _factorise(least, gram, mask)
    known, change = jax.jvp(
        lambda gram: _factorise_with(least, ridge, gram, mask), (gram,), tangents[:1]
    )
    return (ridge, *known), (jnp.zeros_like(ridge), *change)


def reorthonormalise(
    root: PerPair, gram: PerPair, mask: Mask, ridge: float = RIDGE
) -> Span:
    """The span of moved vectors, in a basis close to the old one; O(B^3).

    The root is `(R K R^T)^(-1/2) R` with the old root R, so values in terms of the
    basis, such as weights or a covariance, need not change.
    """
    gram, _ = factorise(gram, mask, ridge)
    free = jnp.diag(jnp.where(mask, 0, 1).astype(gram.dtype))
    inverse_root = _inverse_root(_times(_times(root, gram), root.T) + free)
    kept = mask[:, None] & mask[None]
    root = jnp.where(kept, _times(inverse_root, root), 0)
    return Span(gram, jnp.diagonal(gram), root, jnp.zeros((), jnp.int32))


@jax.custom_jvp
def _inverse_root(matrix: PerPair) -> PerPair:
    """The power -1/2 of a symmetric matrix; O(B^3)."""
    roots, V = _roots(matrix)
    return _times(V / roots[None], V.T)


def _roots(matrix: PerPair) -> tuple[PerRow, PerPair]:
    """The square roots of eigenvalues, and eigenvectors."""
    w, V = jnp.linalg.eigh(matrix)
    # The kernel, or its rounded matrix, may not be positive definite.
    return jnp.sqrt(jnp.maximum(w, SMALLEST_EIGENVALUE * w[-1])), V


@_inverse_root.defjvp
def _derive_inverse_root(primals, tangents):
    """Unlike its eigenvectors, it has a derivative where eigenvalues are equal."""
    roots, V = _roots(*primals)
    products = roots[:, None] * roots[None] * (roots[:, None] + roots[None])
    change = _times(_times(V.T, tangents[0]), V) / products
    return _times(V / roots[None], V.T), -_times(_times(V, change), V.T)


def with_vectors(
    state: State, vectors: Float[Array, "rows d"], ridge: float = RIDGE
) -> State:
    """The state of a learner that remembers a span, with these vectors and theirs.

    The new basis is close to the old one, so a covariance in terms of it is kept.
    """
    expansion = support_set.with_vectors(state.expansion, vectors)
    gram = support_set.gram(state.kernel, expansion)
    root = state.memory.span.root
    basis = reorthonormalise(root, gram, expansion.mask, ridge)
    memory = state.memory._replace(span=basis)
    return state._replace(expansion=expansion, memory=memory)


def _times(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision="highest")


def solve(span: Span, kernel_row: PerRow) -> PerRow:
    """The coefficients of the projection of `phi(x)`, 0 for free slots; O(B^2)."""
    return _times(_times(span.root, kernel_row), span.root)


def refine(span: Span, kernel_row: PerRow, solution: PerRow, mask: Mask) -> PerRow:
    """The solution after one step of iterative refinement; O(B^2)."""
    residual = kernel_row - _times(span.gram, solution)
    return solution + solve(span, jnp.where(mask, residual, 0))


def squared_residual(
    kernel_self: Float[Array, "*n"], inside: Float[Array, "*n"], ridge: float = RIDGE
) -> Float[Array, "*n"]:
    """The squared distance of `phi(x)` from the span, with the ridge.

    `inside` is the product of the kernel row and the solution. The distance is at least
    the part due to the ridge, and not 0 even if the kernel is 0 at `x`.
    """
    floor = jnp.maximum(ridge * kernel_self, jnp.finfo(inside.dtype).tiny)
    return jnp.maximum((1 + ridge) * kernel_self - inside, floor)


class Swap(NamedTuple):
    """A candidate that takes a slot, and the vector that leaves it.

    Attributes:
      slot: the slot, which may be free; `NOWHERE` changes nothing.
      kernel_row, kernel_self: of the candidate; the row is 0 for free slots and for
        this one.
      solution: the candidate's projection onto the old span.
      beyond: its squared distance from the old span.
      residual: its squared distance from the span of all other vectors.
      column: the column of `R` of the slot, 0 for a free one.
      inverse: the row of `R^T R` of the slot, likewise.
      pivot: the length of the column, 1 if it is 0.
      vectors: `direction`, `reach`, the coefficients of the candidate less all others,
        and `selves`.
      row: the coefficients of the unit vector from there to the candidate.
    """

    slot: Index
    kernel_row: PerRow
    kernel_self: Scalar
    solution: PerRow
    beyond: Scalar
    residual: Scalar
    column: PerRow
    inverse: PerRow
    pivot: Scalar
    vectors: Vectors
    row: PerRow

    # A branch takes one array of several vectors, and each of its rows apart only if it
    # is given so.

    @property
    def direction(self) -> PerRow:
        """`u`, the unit vector along the column; that of the slot if it is free."""
        return self.vectors[0]

    @property
    def reach(self) -> PerRow:
        """`u^T R`."""
        return self.vectors[1]

    @property
    def selves(self) -> PerRow:
        """The new diagonal of the kernel matrix, with the ridge."""
        return self.vectors[3]


def plan_swap(
    span: Span,
    slot: Index,
    taken: Flag,
    solution: PerRow,
    kernel_row: PerRow,
    kernel_self: Scalar,
    ridge: float = RIDGE,
) -> Swap:
    """A candidate takes a slot, in which there is a vector if it is `taken`; O(B^2).

    `solution` is the candidate's projection onto the span; its `kernel_row` is 0 for
    free slots.
    """
    slots = jnp.arange(solution.shape[0], dtype=jnp.int32)
    place, at_slot = jnp.where(slot == NOWHERE, slots[-1], slot), slots == slot
    column = span.root[:, place]
    inverse = _times(column, span.root)
    # 1 for a free slot, where a tiny number would make derivatives infinite.
    square = jnp.where(inverse[place] > 0, inverse[place], 1)
    pivot = jnp.sqrt(square)
    unit = (slots == place).astype(column.dtype)
    vectors = _platform.together(
        jnp.where(taken, column / pivot, unit),
        inverse / pivot,
        jnp.where(at_slot, 1, inverse * (solution[place] / square) - solution),
        jnp.where(at_slot, (1 + ridge) * kernel_self, span.selves),
    )
    known, others, selves = jnp.where(at_slot, 0, kernel_row), vectors[2], vectors[3]
    inside, left, square = _platform.dots(
        (kernel_row, solution), (known, others), (others * others, selves)
    )
    residual = squared_residual(kernel_self, -left, ridge)
    row = bound(others / jnp.sqrt(residual), square / residual, ridge)
    return Swap(
        slot=slot,
        kernel_row=known,
        kernel_self=kernel_self,
        solution=solution,
        beyond=squared_residual(kernel_self, inside, ridge),
        residual=residual,
        column=column,
        inverse=inverse,
        pivot=pivot,
        vectors=vectors,
        row=row,
    )


def swap(span: Span, new: Swap, num_active: Index, ridge: float = RIDGE) -> Span:
    """The span with a candidate in a slot; O(B^2).

    Two directions of `R` are made orthonormal under `K` again. One is the candidate's,
    since the division by its small distance from the span has magnified all errors. The
    other is one row, in turn. With `S`, the old root without column `slot`, and the
    rows `r = (e_slot - others) / sqrt(residual)` and `l = u^T S`, in this order:

    1. `z = r - l`, and the root is `R = S + u z^T`: `u` reaches the candidate alone.
    2. `D` has the rows `u` and `v`, where `v` is the unit vector along the part of
       `e_i` that is orthogonal to `u`, for row `i`.
    3. `D E = D R K R^T - D` are the errors of both, with `E = R K R^T - I`.
    4. `P = D E - (D E D^T) D / 2`: a direction loses its components along the others,
       and its own length is corrected to first order. As `u` and `v` are orthonormal,
       `P u` is half of `D E u`.
    5. `R - D^T P R` is the new root.

    The errors of `u` are those of the root times up to `1 / sqrt(RIDGE)`. Where they
    are large, as with a smooth kernel, a first correction leaves errors that the next
    changes magnify, so steps 3 to 5 are taken for `u` once more.
    """
    slots = jnp.arange(new.row.shape[0], dtype=jnp.int32)
    at_slot, entered = slots == new.slot, new.slot != NOWHERE
    gram = set_row_and_column(
        span.gram, new.slot, new.kernel_row, (1 + ridge) * new.kernel_self
    )

    # Step 1. The matrix itself is read and written once, at the end.
    u = new.direction
    leaving_row = jnp.where(entered & ~at_slot, new.reach, 0)
    z = jnp.where(entered, new.row, 0) - leaving_row

    # Step 2. Without the subtraction, what both reach would be removed twice.
    refresh_index = span.refresh_index + entered.astype(jnp.int32)
    i = refresh_index % jnp.maximum(num_active, 1)
    square = 1 - u[i] * u[i]
    apart = square > 0.01
    length = jnp.where(apart, jnp.sqrt(jnp.where(apart, square, 1)), jnp.inf)
    v = ((slots == i).astype(u.dtype) - u * u[i]) / length
    # `D R`, from row i of R and from `u^T R`.
    u_row = leaving_row + z
    row = jnp.where(at_slot, 0, span.root[i]) + u[i] * z
    v_row = (row - u[i] * u_row) / length
    made = _platform.together(z, v, u_row, v_row)
    z, v, rows = made[0], made[1], jnp.stack(made[2:])
    directions = u, v

    # Step 3, first without `u z^T`, whose share is along `u`.
    image = _times(rows, gram)
    stored = jnp.where(at_slot[None], 0, image)
    images = _platform.products(span.root, stored)
    errors = [one - along for one, along in zip(images, directions, strict=True)]
    # Step 4.
    pairs = [
        pair
        for error, one in zip(errors, image, strict=True)
        for pair in ((error, u), (error, v), (one, z))
    ]
    *along, square = _platform.dots(*pairs, (errors[0], errors[0]))
    along = jnp.stack(along).reshape(2, 3)
    # Step 5, where the corrected rows are bounded again. As `D S` is known, `rows`
    # without z in that of u, the product need not wait for step 4.
    by_u, by_v, by_z = along.T[:, :, None]
    own = jnp.array([[1], [0]], u.dtype)
    shift = jnp.where(at_slot[None], 0, _times(jnp.stack(images), span.root)) - rows
    shift -= ((by_u - by_z) * (made[2] - z)[None] + by_v * made[3][None]) / 2
    shift += (own + (by_u + by_z) / 2) * z[None]
    corrected = rows - shift
    lengths = _times(corrected * corrected, new.selves)

    # Errors of the others, magnified, may be beyond first order.
    by_u, _, by_z = along[0]
    u_row, u_length = _sharding.cond(
        square - by_u**2 + (by_u + by_z) ** 2 > LARGE**2,
        lambda: _correct_again(span, new, gram, made, corrected),
        lambda: (corrected[0], lengths[0]),
    )
    u_change = bound(u_row, u_length, ridge) - made[2]
    v_change = bound(corrected[1], lengths[1], ridge) - made[3]
    root = jnp.where(at_slot[None], 0, span.root)
    root = add_products(root, (u, z + u_change), (v, v_change))
    return Span(gram, new.selves, root, refresh_index)


def _correct_again(
    span: Span,
    new: Swap,
    gram: PerPair,
    made: Vectors,
    corrected: Float[Array, "2 rows"],
) -> tuple[PerRow, Scalar]:
    """Steps 3 to 5 of `swap` for `u` alone, in the root of the corrected rows.

    `made` is `z`, `v` and the rows `D R`. The result is the row `u^T R` and its length,
    as `bound` takes both; no matrix is written.
    """
    z, v, *rows = made
    u, row = new.direction, corrected[0]
    u_change, v_change = z + row - rows[0], corrected[1] - rows[1]
    at_slot = jnp.arange(u.shape[0], dtype=jnp.int32) == new.slot
    image = _times(row, gram)
    # The rows of `S`, the old root, are those of `R` without `u z^T`.
    pairs = ((one, image) for one in (u_change, v_change, rows[0] - z, rows[1]))
    by_u, by_v, stored_u, stored_v = _platform.dots(*pairs)
    error = _times(span.root, jnp.where(at_slot, 0, image)) + (by_u - 1) * u + by_v * v
    by_u, by_v = stored_u + by_u - 1, stored_v + by_v
    step = jnp.where(at_slot, 0, _times(error, span.root) - by_u / 2 * new.reach)
    row = row - (step + by_u / 2 * u_change + by_v * v_change)
    return row, _times(row * row, new.selves)


def add_products(matrix: PerPair, *pairs: tuple[PerRow, PerRow]) -> PerPair:
    """`matrix + u v^T + ...` for pairs u, v; O(B^2).

    The barrier computes the vectors first; a compiler that fuses everything might
    recompute them for every element. All products are added to the matrix at once,
    which on a CPU takes a third of the time of adding one after the other.
    """
    pairs = _platform.separate(pairs)
    return matrix + sum(u[:, None] * v[None] for u, v in pairs)


def bound(
    z: Float[Array, "*n rows"], squares: Float[Array, "*n"], ridge: float = RIDGE
) -> Float[Array, "*n rows"]:
    """Coefficients of a vector of length 1, within the bound that the ridge implies.

    With `z K z^T = 1`, the ridge of K, a fraction of its diagonal, bounds `squares`,
    the sums of `z * z` times that diagonal. If rounding made the kernel matrix
    indefinite, the coefficients would otherwise grow without bound.
    """
    return z / jnp.sqrt(jnp.maximum(squares * (ridge / 2), 1))[..., None]


def cosine(new: Swap) -> Scalar:
    """The cosine of the angle between `u` before and after the candidate enters.

    The projection from the old span onto the new one shortens `u` by this factor, and
    does not change directions orthogonal to `u`. It is 0 if the slot was free.
    """
    component = new.solution[new.slot] / new.pivot
    return jnp.clip(component / jnp.sqrt(new.residual), -1, 1)


def projection_of_removed(new: Swap) -> PerRow:
    """The projection of the vector that leaves a slot onto all others; O(B).

    The candidate is one of them, and its share is in the slot. The projection is the
    column of the leaving vector in the inverse of the bordered kernel matrix of all
    vectors, divided by the diagonal entry. It is arbitrary for a free slot.
    """
    at_slot = jnp.arange(new.solution.shape[0], dtype=jnp.int32) == new.slot
    share = new.solution[new.slot] / new.beyond
    column = new.inverse + new.solution * share
    diagonal = jnp.where(column[new.slot] > 0, column[new.slot], 1)
    return jnp.where(at_slot, share, -column) / diagonal
