"""The covariance of the weights of a model, for learners of the second order.

The weights have the covariance I before any example. In the orthonormal basis of a
`span.Span` the learner keeps the certainty `C = I - S` of their covariance S, which is
0 for directions that nothing is known of: for free slots, and beyond the span. Rounding
then makes a direction uncertain, and never negative.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from budgetjax import kernels
from budgetjax._shapes import PerPair, PerRow, Scalar
from budgetjax.online import support_set
from budgetjax.online.span import Span
from budgetjax.online.state import State

# A certainty of float32 that is nearer to 1 is not known.
ROUNDING = 1e-6


class Uncertain(NamedTuple):
    """The score of an example, as far as the span of the support vectors decides it.

    Attributes:
      p: `R k(Z, x)`, the example in the basis.
      s: `S p`, its covariance with the weights.
      variance: `p^T S p`.
    """

    p: PerRow
    s: PerRow
    variance: Scalar


def uncertainty(
    basis: Span, certainty: PerPair, kernel_row: PerRow, kept: Scalar
) -> Uncertain:
    """What is uncertain of an example, after a share `1 - kept` of C is forgotten."""
    p = jnp.matmul(basis.root, kernel_row, precision="highest")
    s = p - kept * jnp.matmul(certainty, p, precision="highest")
    # Since S <= I, v >= s^T s; rounding can break this when it makes K, and so S,
    # indefinite.
    variance = jnp.maximum(jnp.dot(p, s, precision="highest"), jnp.dot(s, s))
    return Uncertain(p, s, variance)


def without_direction(u: PerRow, reach: PerRow, along: Scalar, lost: Scalar) -> PerRow:
    """The `h` of `P C P^T = C + u h^T + h u^T` with `P = I - lost u u^T`; O(B).

    P is the projection from the old span onto the new one if u is the direction that a
    vector takes with it, and `lost` is 1 - `span.cosine`. `reach` is `C u`, and `along`
    is `u^T C u`.
    """
    return lost * (lost * along * u / 2 - reach)


def in_basis(
    state: State, X: Float[Array, "n features"]
) -> tuple[Float[Array, "n rows"], Float[Array, "n rows"], Float[Array, " n"]]:
    """Examples in the basis, `p`, with `C p`, and `k(x, x)`; O(n B (B + d)).

    The state is of a learner that remembers `span` and `certainty`.
    """
    expansion, memory = state.expansion, state.memory
    squares = kernels.squared_norms(X)
    rows = support_set.kernel_rows(state.kernel, expansion, X, squares)
    rows = jnp.where(expansion.mask[None], rows, 0)
    p = jnp.matmul(rows, memory.span.root.T, precision="highest")
    known = jnp.matmul(p, memory.certainty, precision="highest")
    return p, known, state.kernel.diag(X, squares)


def precision(state: State) -> Float[np.ndarray, "vectors vectors"]:
    """`R^T ((I - C)^-1 - I) R`, what examples add to the precision; O(B^3).

    It is that of the scores at the support vectors, in the order of their slots.
    """
    memory, mask = state.memory, np.asarray(state.expansion.mask)
    root = np.asarray(memory.span.root, np.float64)[np.ix_(mask, mask)]
    certainty = np.asarray(memory.certainty, np.float64)[np.ix_(mask, mask)]
    known, directions = np.linalg.eigh(certainty)
    known = np.clip(known, 0, 1 - ROUNDING)
    half = root.T @ directions
    return half * (known / (1 - known))[None] @ half.T
