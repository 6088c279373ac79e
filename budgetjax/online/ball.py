"""Projection of a model onto a ball, for the learners that bound its norm."""

from typing import NamedTuple

import jax.numpy as jnp

from budgetjax import _record
from budgetjax._shapes import Scalar
from budgetjax.kernels import Kernel
from budgetjax.online import support_set
from budgetjax.online.edits import Edits, stack_rows, with_rescale, write
from budgetjax.online.slots import NOWHERE
from budgetjax.online.state import State
from budgetjax.online.support_set import Expansion


@_record.record
class Norm(NamedTuple):
    """The memory of a learner that scales its model into a ball.

    Attributes:
      squared_norm: `||sum_j u_j phi(x_j)||^2` of the stored coefficients.
    """

    squared_norm: Scalar


def squared_norm_of(kernel: Kernel, expansion: Expansion) -> Scalar:
    """`||sum_j u_j phi(x_j)||^2`; O(B^2 (d + C))."""
    responses = jnp.matmul(
        support_set.gram(kernel, expansion), expansion.coefficients, precision="highest"
    )
    return jnp.sum(expansion.coefficients * responses)


def refresh_norm(state: State) -> State:
    """The state with the squared norm that it remembers computed anew."""
    norm = squared_norm_of(state.kernel, state.expansion)
    return state._replace(memory=state.memory._replace(squared_norm=norm))


def squared_norm_after(
    kernel: Kernel, expansion: Expansion, squared_norm: Scalar, edits: Edits
) -> Scalar:
    """`||sum_j u_j phi(x_j)||^2` after the edits, from its value before.

    With the change `g` of the function, `||f + g||^2 = ||f||^2 + 2 <f, g> + ||g||^2`.
    The cost is one kernel row per new and per replaced vector, O(B d). A rank-one
    update changes all terms, and needs the full kernel matrix, O(B^2 d).
    """
    if edits.rank_one_updates:
        return squared_norm_of(kernel, write(expansion, edits))
    rows = stack_rows(edits.rows)
    wanted, slots = (rows.slot != NOWHERE)[:, None], jnp.maximum(rows.slot, 0)
    new = jnp.where(wanted, rows.term[:, : expansion.num_columns], 0)
    old = jnp.where(wanted, -expansion.coefficients[slots], 0)
    changes = jnp.concatenate([new, old])
    points = jnp.concatenate([rows.vector, expansion.vectors[slots]])
    squares = jnp.concatenate([rows.square, expansion.squares[slots]])
    at_points = jnp.matmul(
        support_set.kernel_rows(kernel, expansion, points, squares),
        expansion.coefficients,
        precision="highest",
    )
    among = kernel.gram(points, points, squares, squares)
    own = jnp.matmul(among, changes, precision="highest")
    return squared_norm + jnp.sum(changes * (2 * at_points + own))


def project_onto_ball(
    kernel: Kernel,
    expansion: Expansion,
    squared_norm: Scalar,
    edits: Edits,
    radius: Scalar | float,
) -> tuple[Edits, Scalar, Scalar, Scalar]:
    """Edits that finally scale the model into a ball, `||f|| <= radius`.

    They come with the squared norm after them, whose value before is `squared_norm`,
    the shrinking factor, and the factor of the stored coefficients.
    """
    squared_norm = squared_norm_after(kernel, expansion, squared_norm, edits)
    norm = jnp.sqrt(jnp.maximum(squared_norm, 0)) * expansion.scale
    shrink = jnp.minimum(1, radius / jnp.maximum(norm, radius))
    edits, factor = with_rescale(expansion, edits._replace(shrink=shrink))
    return edits, squared_norm * factor * factor, shrink, factor
