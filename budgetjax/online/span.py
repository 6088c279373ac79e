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

from typing import NamedTuple, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import _checks, _platform, _pytree, kernels
from budgetjax._errors import ArgumentError
from budgetjax._shapes import Index, Mask, PerPair, PerRow, Scalar
from budgetjax.kernels import Kernel
from budgetjax.online import support_set
from budgetjax.online.state import OnlineState
from budgetjax.online.support_set import NOWHERE, Expansion

# Relative to the diagonal of the kernel matrix.
RIDGE = 1e-3
# Eigenvalues below this, relative to the largest, are rounding errors.
SMALLEST = 1e-6
# The factor by which the ridge grows while it is too small.
LARGER = 10.0


@_pytree.record
class Span(NamedTuple):
    """The kernel matrix of the support vectors and a root of its inverse.

    Attributes:
      gram: `K + RIDGE diag(K)`, shape `(rows, rows)`, arbitrary for free slots.
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
    matrix = jax.ShapeDtypeStruct((size, size), dtype)
    _checks.check_memory(rows - 1, (matrix, matrix))
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
    Z = _checks.array("landmarks", landmarks)
    budget = _checks.concrete(expansion.budget)
    most = rows - 1 if budget is None else int(budget)
    if Z.ndim != 2 or Z.shape[1] != width or not 1 <= Z.shape[0] <= most:
        raise ArgumentError(
            "landmarks",
            f"have shape (m, {width}) with m from 1 to the budget {most}",
            Z.shape,
        )
    with np.errstate(over="ignore"):
        Z = jnp.asarray(Z, expansion.vectors.dtype)
    if not _known_finite(Z):
        raise ArgumentError("landmarks", "be finite", "NaN or infinity")
    m = Z.shape[0]
    vectors = jnp.zeros_like(expansion.vectors).at[:m].set(Z)
    slots = jnp.arange(rows, dtype=jnp.int32)
    expansion = expansion._replace(
        vectors=vectors,
        squares=kernels.squared_norms(vectors),
        ages=jnp.where(slots < m, slots + 1 - m, support_set.FREE),
        num_active=jnp.asarray(m, jnp.int32),
    )
    basis = from_vectors(kernel, expansion)
    if not _known_finite(basis.root):
        raise ArgumentError(
            "landmarks",
            "have a positive definite kernel matrix",
            f"one of {type(kernel).__name__} that is not",
        )
    return expansion, basis


def _known_finite(array: Array) -> bool:
    """Whether an array is finite, or traced."""
    known = _checks.concrete(array)
    return known is None or bool(np.all(np.isfinite(known)))


@jax.jit
def factorise(gram: PerPair, mask: Mask) -> tuple[PerPair, PerPair]:
    """The kernel matrix with its ridge, and its lower Cholesky factor; O(B^3).

    For data far from 0, rounded squared norms may give the kernel matrix negative
    eigenvalues in float32, so the ridge grows until a factor exists. If none is found
    (the kernel is 0 at all vectors, or not positive definite), the factor is not
    finite. Rows outside the mask are those of the unit matrix.
    """
    diagonal = jnp.diagonal(gram)
    unit = jnp.eye(mask.shape[0], dtype=gram.dtype)

    def enlarge_ridge(carry):
        ridge, *_ = carry
        first = ridge == 0
        ridge = jnp.where(first, RIDGE, ridge * LARGER)
        # A larger ridge has to exceed the rounding error, not a vector's own norm.
        extra = jnp.where(first, diagonal, jnp.max(diagonal))
        ridged = gram + ridge * jnp.diag(extra)
        both = mask[:, None] & mask[None]
        factor = jnp.linalg.cholesky(jnp.where(both, ridged, unit))
        return ridge, ridged, factor

    def fails(carry):
        ridge, _, factor = carry
        return (ridge < 1) & ~jnp.all(jnp.isfinite(factor))

    start = jnp.zeros((), gram.dtype), gram, jnp.full_like(gram, jnp.nan)
    _, gram, factor = jax.lax.while_loop(fails, enlarge_ridge, start)
    return gram, factor


def reorthonormalise(root: PerPair, gram: PerPair, mask: Mask) -> Span:
    """The span of moved vectors, in a basis close to the old one; O(B^3).

    The root is `(R K R^T)^(-1/2) R` with the old root R, so values in terms of the
    basis, such as weights or a covariance, need not change.
    """
    gram, _ = factorise(gram, mask)
    free = jnp.diag(jnp.where(mask, 0, 1).astype(gram.dtype))
    w, V = jnp.linalg.eigh(_times(_times(root, gram), root.T) + free)
    # The kernel, or its rounded matrix, may not be positive definite.
    w = jnp.maximum(w, SMALLEST * w[-1])
    inverse_root = _times(V / jnp.sqrt(w)[None], V.T)
    kept = mask[:, None] & mask[None]
    root = jnp.where(kept, _times(inverse_root, root), 0)
    return Span(gram, jnp.diagonal(gram), root, jnp.zeros((), jnp.int32))


@runtime_checkable
class SpanState(OnlineState, Protocol):
    """A state with the span of its support vectors."""

    @property
    def span(self) -> Span: ...


Spanning = TypeVar("Spanning", bound=SpanState)


def with_vectors(state: Spanning, vectors: Float[Array, "rows d"]) -> Spanning:
    """The state of a learner with these vectors and their span.

    The new basis is close to the old one, so a covariance in terms of it is kept.
    """
    expansion = support_set.with_vectors(state.expansion, vectors)
    gram = support_set.gram(state.kernel, expansion)
    basis = reorthonormalise(state.span.root, gram, expansion.mask)
    return state._replace(expansion=expansion, span=basis)


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
    kernel_row: PerRow, kernel_self: Scalar, solution: PerRow
) -> Scalar:
    """The squared distance of `phi(x)` from the span, with the ridge.

    It is at least the part due to the ridge, and not 0 even if the kernel is 0 at `x`.
    """
    inside = jnp.dot(kernel_row, solution, precision="highest")
    floor = jnp.maximum(RIDGE * kernel_self, jnp.finfo(inside.dtype).tiny)
    return jnp.maximum((1 + RIDGE) * kernel_self - inside, floor)


class RemovedDirection(NamedTuple):
    """A vector that leaves.

    Attributes:
      direction: `u`, shape `(rows,)`; the unit vector of the slot if it is free.
      reach: `u^T R`, shape `(rows,)`, 0 for a free slot.
      pivot: the square root of the inverse's diagonal entry, 0 for a free slot.
    """

    direction: PerRow
    reach: PerRow
    pivot: Scalar


def removed_direction(span: Span, slot: Index) -> RemovedDirection:
    """The vector in a slot that is about to leave; O(B^2)."""
    column = span.root[:, slot]
    pivot = jnp.sqrt(jnp.sum(column * column))
    free = (jnp.arange(column.shape[0], dtype=jnp.int32) == slot).astype(column.dtype)
    direction = jnp.where(pivot > 0, column / jnp.where(pivot > 0, pivot, 1), free)
    return RemovedDirection(direction, _times(direction, span.root), pivot)


def replace(
    span: Span,
    slot: Index,
    removed: RemovedDirection,
    solution: PerRow,
    kernel_row: PerRow,
    kernel_self: Scalar,
    num_active: Index,
) -> Span:
    """The span with a candidate in a slot, which may be free; O(B^2).

    Two directions of `R` are made orthonormal under `K` again. One is the candidate's,
    since the division by its small distance from the span has magnified all errors. The
    other is one row, in turn. With `S`, the old root without column `slot`, and the
    rows `r = (e_slot - others) / sqrt(residual)` and `l = u^T S`, in this order:

    1. `z = r - l`, and the root is `R = S + u z^T`: `u` reaches the candidate alone.
    2. `D` has the rows `u` and `v`, where `v` is the unit vector along the part of
       `e_i` that is orthogonal to `u`, for row `i`.
    3. `D E = D R K R^T - D` are the errors of both, with `E = R K R^T - I`.
    4. `P = D E - (D E D^T) D / 2`: a direction loses its components along the others,
       and its own length is corrected to first order.
    5. `R - D^T P R` is the new root.

    A slot `NOWHERE` leaves the vectors unchanged. `solution` is the candidate's
    projection onto the old span; its `kernel_row` is 0 for free slots.
    """
    at_slot, _, others = _without_removed(slot, removed, solution)
    kernel_row = jnp.where(at_slot, 0, kernel_row)
    residual = squared_residual(kernel_row, kernel_self, others)
    inverse = 1 / jnp.sqrt(residual)
    selves = jnp.where(at_slot, (1 + RIDGE) * kernel_self, span.selves)
    gram = support_set.set_row_and_column(
        span.gram, slot, kernel_row, (1 + RIDGE) * kernel_self
    )

    # Step 1. The matrix itself is read and written once, at the end.
    entered = slot != NOWHERE
    u, leaving_row = removed.direction, jnp.where(at_slot, 0, removed.reach)
    new_row = bound_coefficients(selves, inverse * jnp.where(at_slot, 1, -others))
    z = jnp.where(entered, new_row - leaving_row, 0)

    # Step 2. Without the subtraction, what both reach would be removed twice.
    refresh_index = span.refresh_index + entered.astype(jnp.int32)
    i = refresh_index % jnp.maximum(num_active, 1)
    v = (jnp.arange(len(u), dtype=jnp.int32) == i).astype(u.dtype) - u * u[i]
    length = jnp.sqrt(jnp.sum(v * v))
    length = jnp.where(length > 0.1, length, jnp.inf)
    directions = jnp.stack([u, v / length])
    # `D R`, from row i of R and from `u^T R`.
    row = jnp.where(at_slot, 0, span.root[i]) + u[i] * z
    u_row = leaving_row + jnp.sum(u * u) * z
    rows = jnp.stack([u_row, (row - u[i] * u_row) / length])

    # Step 3, by pairs of rows: a CPU multiplies pairs of columns eight times slower.
    image = _times(rows, gram)
    stored = jnp.where(at_slot[None], 0, image)
    errors = jnp.stack([_times(span.root, stored[0]), _times(span.root, stored[1])])
    errors = errors + _times(image, z)[:, None] * u[None] - directions
    # Step 4.
    products = jnp.sum(errors[:, None] * directions[None], axis=2)
    parts = errors - jnp.sum(products[:, :, None] * directions[None], axis=1) / 2
    # Step 5, where the corrected rows are bounded again.
    shift = jnp.where(at_slot[None], 0, _times(parts, span.root))
    shift = shift + _times(parts, u)[:, None] * z[None]
    shift = rows - bound_coefficients(selves, rows - shift)
    root = jnp.where(at_slot[None], 0, span.root)
    root = add_products(
        root, (u, z), (-directions[0], shift[0]), (-directions[1], shift[1])
    )
    return Span(gram, selves, root, refresh_index)


def add_products(matrix: PerPair, *pairs: tuple[PerRow, PerRow]) -> PerPair:
    """`matrix + u v^T + ...` for pairs u, v; O(B^2).

    The barrier computes the vectors first; a compiler that fuses everything might
    recompute them for every element. All products are added to the matrix at once,
    which on a CPU takes a third of the time of adding one after the other.
    """
    pairs = _platform.separate(pairs)
    return matrix + sum(u[:, None] * v[None] for u, v in pairs)


def bound_coefficients(
    selves: PerRow, z: Float[Array, "*n rows"]
) -> Float[Array, "*n rows"]:
    """Coefficients of a vector of length 1, within the bound that the ridge implies.

    With `z K z^T = 1`, the ridge of K, a fraction of the diagonal `selves`, bounds
    them. If rounding made the kernel matrix indefinite, they would otherwise grow
    without bound.
    """
    squares = _times(z * z, selves)[..., None]
    return z / jnp.sqrt(jnp.maximum(squares * (RIDGE / 2), 1))


def _without_removed(
    slot: Index, removed: RemovedDirection, solution: PerRow
) -> tuple[Mask, Scalar, PerRow]:
    """The slot's mask, the component along `u`, and the projection onto all others."""
    at_slot = jnp.arange(solution.shape[0], dtype=jnp.int32) == slot
    pivot = jnp.where(removed.pivot > 0, removed.pivot, 1)
    component = jnp.where(slot == NOWHERE, 0, solution[slot]) / pivot
    others = jnp.where(at_slot, 0, solution - removed.reach * component)
    return at_slot, component, others


def cosine(
    slot: Index,
    removed: RemovedDirection,
    solution: PerRow,
    kernel_row: PerRow,
    kernel_self: Scalar,
) -> Scalar:
    """The cosine of the angle between `u` before and after the candidate enters; O(B).

    The projection from the old span onto the new one shortens `u` by this factor, and
    does not change directions orthogonal to `u`. It is 0 if the slot was free.
    """
    at_slot, component, others = _without_removed(slot, removed, solution)
    kernel_row = jnp.where(at_slot, 0, kernel_row)
    residual = squared_residual(kernel_row, kernel_self, others)
    return jnp.clip(component / jnp.sqrt(residual), -1, 1)


def projection_of_removed(
    slot: Index, removed: RemovedDirection, solution: PerRow, residual: Scalar
) -> PerRow:
    """The projection of the vector that leaves a slot onto all others; O(B).

    The candidate is one of them, and its share is in the slot. The projection is the
    column of the leaving vector in the inverse of the bordered kernel matrix of all
    vectors, divided by the diagonal entry. It is arbitrary for a free slot.

    `solution` is the candidate's projection onto the old span, `residual` its
    `squared_residual`.
    """
    at_slot = jnp.arange(solution.shape[0], dtype=jnp.int32) == slot
    column = removed.reach * removed.pivot + solution * (solution[slot] / residual)
    diagonal = jnp.where(column[slot] > 0, column[slot], 1)
    return -jnp.where(at_slot, -solution[slot] / residual, column) / diagonal
