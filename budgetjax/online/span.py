r"""The span of the support vectors: projections onto it, kept up to date.

With the kernel matrix `K` of the support vectors, which has a ridge, the projection of
`phi(x)` onto their span has the coefficients `K^-1 k(x)`. What is kept across rounds is
a square root of that inverse, any matrix `R` with `R K R^T = I`: then `K^-1 = R^T R`,
and `R k(x)` are the coordinates of the projection in an orthonormal basis.

One vector replaced by another is one change of rank one, `R + u z^T`: the unit vector
`u` along column `p` of `R` is the direction of the span that only the leaving vector
`p` reaches, and takes up the new one. O(B^2), and no factor is triangular, so none is
rotated back.

The eigenvalues of a kernel matrix fall below the precision of float32. Three things
keep `R` accurate, however long the stream:

- The ridge bounds the condition number of `K` by `B / ridge`, also with duplicates.
  That of `R` is its square root only, and `R^T R` is positive whatever was rounded.
- `K` is kept too, and with every change the new direction of `R` is made orthonormal to
  the others under `K` again, and one more row in turn: an error is forgotten after B
  changes.
- A solution that becomes coefficients is refined once by its residual.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from budgetjax import checks, support_set
from budgetjax.kernels import Kernel
from budgetjax.shapes import Index, Mask, PerPair, PerRow, Scalar
from budgetjax.support_set import NOWHERE, Expansion

# Relative to the diagonal of the kernel matrix.
RIDGE = 1e-3
# The least eigenvalue that is no rounding, relative to the largest.
SMALLEST = 1e-6
# By how much the ridge grows where it is too small.
LARGER = 10.0


class Span(NamedTuple):
    """The kernel matrix of the support vectors and a root of its inverse.

    Attributes:
      gram: `K + RIDGE diag(K)`, shape `(rows, rows)`, arbitrary where a slot is free.
      selves: the diagonal of `gram` where a slot is active, shape `(rows,)`: a compiler
        that reads it there, and then writes to the matrix, copies the matrix.
      root: `R`, shape `(rows, rows)`, zero in the rows and columns of free slots.
      turn: how many changes there were: which row is made orthonormal next.
    """

    gram: PerPair
    selves: PerRow
    root: PerPair
    turn: Index


def empty(where: str, rows: int, dtype) -> Span:
    """The span of no vectors; `where` names the caller if it is too large."""
    matrix = jax.ShapeDtypeStruct((rows, rows), dtype)
    checks.check_memory(where, rows - 1, (matrix, matrix))
    gram, root = (jnp.zeros((rows, rows), dtype) for _ in range(2))
    return Span(gram, jnp.zeros((rows,), dtype), root, jnp.zeros((), jnp.int32))


def of(kernel: Kernel, expansion: Expansion) -> Span:
    """The span of these support vectors; O(B^2 (d + B)).

    The root is the inverse of a Cholesky factor, and not finite where there is none.
    """
    mask = expansion.mask
    gram, factor = factored(support_set.gram(kernel, expansion), mask)
    unit = jnp.eye(mask.shape[0], dtype=gram.dtype)
    root = jax.scipy.linalg.solve_triangular(factor, unit, lower=True)
    root = jnp.where(mask[:, None] & mask[None], root, 0)
    return Span(gram, jnp.diagonal(gram), root, jnp.zeros((), jnp.int32))


def factored(gram: PerPair, mask: Mask) -> tuple[PerPair, PerPair]:
    """The kernel matrix with its ridge, and its lower Cholesky factor; O(B^3).

    The squares of data far from 0 are rounded, and their kernel matrix may have
    negative eigenvalues in float32: the ridge grows until there is a factor. It is not
    finite where none is found: where a kernel is 0 at all vectors, or not positive
    definite. The factor is that of the rows in the mask, and of the unit matrix.
    """
    diagonal = jnp.diagonal(gram)
    unit = jnp.eye(mask.shape[0], dtype=gram.dtype)

    def larger(carry):
        ridge, *_ = carry
        first = ridge == 0
        ridge = jnp.where(first, RIDGE, ridge * LARGER)
        # What is needed then is of the size of a rounding, not of a vector's own.
        extra = jnp.where(first, diagonal, jnp.max(diagonal))
        ridged = gram + ridge * jnp.diag(extra)
        both = mask[:, None] & mask[None]
        factor = jnp.linalg.cholesky(jnp.where(both, ridged, unit))
        return ridge, ridged, factor

    def fails(carry):
        ridge, _, factor = carry
        return (ridge < 1) & ~jnp.all(jnp.isfinite(factor))

    start = jnp.zeros((), gram.dtype), gram, jnp.full_like(gram, jnp.nan)
    _, gram, factor = jax.lax.while_loop(fails, larger, start)
    return gram, factor


def moved(root: PerPair, kernel: Kernel, expansion: Expansion) -> Span:
    """The span of moved vectors, in a basis near to the old; O(B^2 (d + B)).

    The root is `(R K R^T)^(-1/2) R` with the old root R, so what refers to the basis,
    as weights and a covariance, may stay as it is.
    """
    gram = of(kernel, expansion).gram
    mask = expansion.mask
    free = jnp.diag(jnp.where(mask, 0, 1).astype(gram.dtype))
    w, V = jnp.linalg.eigh(_times(_times(root, gram), root.T) + free)
    # A kernel that is not positive definite, or what rounding has left of one.
    w = jnp.maximum(w, SMALLEST * w[-1])
    turn = _times(V / jnp.sqrt(w)[None], V.T)
    kept = mask[:, None] & mask[None]
    root = jnp.where(kept, _times(turn, root), 0)
    return Span(gram, jnp.diagonal(gram), root, jnp.zeros((), jnp.int32))


def with_vectors(state: Any, vectors: Float[Array, "rows d"]) -> Any:
    """The state of a learner with these vectors and their span.

    What refers to the basis, as a covariance, refers to one near to the old.
    """
    expansion = support_set.with_vectors(state.expansion, vectors)
    basis = moved(state.span.root, state.kernel, expansion)
    return state._replace(expansion=expansion, span=basis)


def _times(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision="highest")


def solve(span: Span, kernel_row: PerRow) -> PerRow:
    """The coefficients of the projection of `phi(x)`, 0 where free; O(B^2)."""
    return _times(_times(span.root, kernel_row), span.root)


def refined(span: Span, kernel_row: PerRow, solution: PerRow, mask: Mask) -> PerRow:
    """The solution, closer by its residual; O(B^2)."""
    residual = kernel_row - _times(span.gram, solution)
    return solution + solve(span, jnp.where(mask, residual, 0))


def beyond(kernel_row: PerRow, kernel_self: Scalar, solution: PerRow) -> Scalar:
    """The squared distance of `phi(x)` from the span, with the ridge.

    At least what the ridge alone leaves, and not 0 where a kernel is 0 at `x`.
    """
    inside = jnp.dot(kernel_row, solution, precision="highest")
    floor = jnp.maximum(RIDGE * kernel_self, jnp.finfo(inside.dtype).tiny)
    return jnp.maximum((1 + RIDGE) * kernel_self - inside, floor)


class Leaving(NamedTuple):
    """A vector that leaves.

    Attributes:
      direction: `u`, shape `(rows,)`: of a free slot, the slot's own.
      reach: `u^T R`, shape `(rows,)`, 0 for a free slot.
      pivot: the square root of the inverse's diagonal entry, 0 for a free slot.
    """

    direction: PerRow
    reach: PerRow
    pivot: Scalar


def leaving(span: Span, slot: Index) -> Leaving:
    """The vector in a slot, about to leave; O(B^2)."""
    column = span.root[:, slot]
    pivot = jnp.sqrt(jnp.sum(column * column))
    free = (jnp.arange(column.shape[0], dtype=jnp.int32) == slot).astype(column.dtype)
    direction = jnp.where(pivot > 0, column / jnp.where(pivot > 0, pivot, 1), free)
    return Leaving(direction, _times(direction, span.root), pivot)


def replaced(
    span: Span,
    slot: Index,
    gone: Leaving,
    solution: PerRow,
    kernel_row: PerRow,
    kernel_self: Scalar,
    num_active: Index,
) -> Span:
    """The span with a newcomer in a slot, free or not; O(B^2).

    Two directions of `R` are made orthonormal under `K` again. One is the newcomer's:
    dividing what is beyond the span by its small length has magnified the errors of
    all. The other is a row, in turn. With `E = R K R^T - I`, a direction `u`, of length
    1, loses its parts along the others, `E u`, and its own is scaled away to first
    order.

    Args:
      span: the span before.
      slot: where the newcomer goes. `NOWHERE` leaves the vectors as they are.
      gone: what is in the slot, of `leaving`.
      solution: the newcomer's projection onto the span before.
      kernel_row: `k(x_j, x)` of the newcomer, 0 where free.
      kernel_self: `k(x, x)`.
      num_active: how many vectors there are.
    """
    here, _, others = _apart(slot, gone, solution)
    kernel_row = jnp.where(here, 0, kernel_row)
    left = 1 / jnp.sqrt(beyond(kernel_row, kernel_self, others))
    selves = jnp.where(here, (1 + RIDGE) * kernel_self, span.selves)
    gram = crossed(span.gram, slot, kernel_row, (1 + RIDGE) * kernel_self)

    # The root with the newcomer is S + u z^T, S that without column `slot`. The matrix
    # itself is read and written once, at the end.
    entered = slot != NOWHERE
    u, stays = gone.direction, jnp.where(here, 0, gone.reach)
    own = bounded(selves, left * jnp.where(here, 1, -others))
    z = jnp.where(entered, own - stays, 0)
    turn = span.turn + entered.astype(jnp.int32)
    i = turn % jnp.maximum(num_active, 1)
    row = jnp.where(here, 0, span.root[i]) + u[i] * z
    first = stays + jnp.sum(u * u) * z
    # Orthogonal to the first, or what both reach would be taken out twice.
    other = (jnp.arange(len(u), dtype=jnp.int32) == i).astype(u.dtype) - u * u[i]
    length = jnp.sqrt(jnp.sum(other * other))
    length = jnp.where(length > 0.1, length, jnp.inf)
    both = jnp.stack([u, other / length])
    reach = jnp.stack([first, (row - u[i] * first) / length])

    # Pairs of rows, never of columns, which a CPU multiplies eight times slower.
    image = _times(reach, gram)
    away = jnp.where(here[None], 0, image)
    errors = jnp.stack([_times(span.root, away[0]), _times(span.root, away[1])])
    errors = errors + _times(image, z)[:, None] * u[None] - both
    parts = errors - _times(_times(errors, both.T), both) / 2
    along = jnp.where(here[None], 0, _times(parts, span.root))
    along = along + _times(parts, u)[:, None] * z[None]
    lost = reach - bounded(selves, reach - along)
    root = jnp.where(here[None], 0, span.root)
    root = with_products(root, (u, z), (-both[0], lost[0]), (-both[1], lost[1]))
    return Span(gram, selves, root, turn)


def with_products(matrix: PerPair, *pairs: tuple[PerRow, PerRow]) -> PerPair:
    """`matrix + u v^T + ...` for pairs u, v; O(B^2).

    The vectors are computed before, and not anew for every element, as a compiler might
    that fuses all; and the products are added to the matrix at once, which takes a
    third of the time that one after the other takes on a CPU.
    """
    pairs = jax.lax.optimization_barrier(pairs)
    return matrix + sum(u[:, None] * v[None] for u, v in pairs)


def bounded(selves: PerRow, z: Float[Array, "*n rows"]) -> Float[Array, "*n rows"]:
    """Coefficients of a vector of length 1, no larger than the ridge lets them be.

    With `z K z^T = 1` the ridge of K, a part of the diagonal `selves`, alone gives them
    a largest size. A kernel matrix that rounding has made not positive would let them
    grow for ever.
    """
    squares = _times(z * z, selves)[..., None]
    return z / jnp.sqrt(jnp.maximum(squares * (RIDGE / 2), 1))


def _apart(slot: Index, gone: Leaving, solution: PerRow) -> tuple[Mask, Scalar, PerRow]:
    """Where the slot is, what is along `u`, and the projection onto all others."""
    here = jnp.arange(solution.shape[0], dtype=jnp.int32) == slot
    pivot = jnp.where(gone.pivot > 0, gone.pivot, 1)
    own = jnp.where(slot == NOWHERE, 0, solution[slot]) / pivot
    return here, own, jnp.where(here, 0, solution - gone.reach * own)


def cosine(
    slot: Index,
    gone: Leaving,
    solution: PerRow,
    kernel_row: PerRow,
    kernel_self: Scalar,
) -> Scalar:
    """The cosine of the angle between `u` before and after the newcomer enters; O(B).

    The projection from the old span onto the new one shortens `u` by it, and leaves
    all directions orthogonal to `u` alone. 0 if the slot was free.
    """
    here, own, others = _apart(slot, gone, solution)
    kernel_row = jnp.where(here, 0, kernel_row)
    return jnp.clip(own / jnp.sqrt(beyond(kernel_row, kernel_self, others)), -1, 1)


def shares(slot: Index, gone: Leaving, solution: PerRow, beyond: Scalar) -> PerRow:
    """The projection of the vector that leaves a slot onto all others; O(B).

    The newcomer is one of them: its share stands in the slot. In the inverse of the
    kernel matrix of all, a bordered matrix, it is the column of the one that leaves, by
    its diagonal entry.

    Args:
      slot: of the one that leaves; what is given for a free slot is arbitrary.
      gone: what is in the slot, of `leaving`.
      solution: the newcomer's projection onto the span before.
      beyond: what that projection leaves, of `beyond`.
    """
    here = jnp.arange(solution.shape[0], dtype=jnp.int32) == slot
    column = gone.reach * gone.pivot + solution * (solution[slot] / beyond)
    diagonal = jnp.where(column[slot] > 0, column[slot], 1)
    return -jnp.where(here, -solution[slot] / beyond, column) / diagonal


def crossed(
    matrix: PerPair, slot: Index | int, row: PerRow, diagonal: Scalar
) -> PerPair:
    """A symmetric matrix with one row and column set; `NOWHERE` is the spare one."""
    index = jnp.where(slot == NOWHERE, matrix.shape[0] - 1, slot)
    row = row.at[index].set(diagonal)
    matrix = jax.lax.dynamic_update_index_in_dim(matrix, row, index, 0)
    return jax.lax.dynamic_update_index_in_dim(matrix, row, index, 1)
