"""The budget-sized support set: what a kernel model is made of.

`f(x) = scale * sum_j u_j k(x_j, x)`, where row `j` of the arrays is one slot. Active
slots come first: slots `0 .. num_active-1` hold support vectors, the rest are free and
zero.
A learner never writes to these arrays itself. It says which slots become what (`Row`),
and `write` puts that in place, one row at a time, so that a compiled loop never copies
the matrix of support vectors. There is one row more than slots: what is to be written
nowhere goes there, since a write that may not happen would have to read the old row.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import hyperparameters
from budgetjax.kernels import Kernel

# The age of a free slot: younger than every support vector.
FREE = int(np.iinfo(np.int32).max)
# The slot of what is not to be kept: it is written to the spare row.
NOWHERE = -1


class Expansion(NamedTuple):
    """The support set of one model, in `capacity + 1` rows; the last one is spare.

    Attributes:
      vectors: `x_j`, shape `(rows, num_features)`; the spare row is arbitrary.
      squares: `||x_j||^2`, shape `(rows,)`; a kernel row is then one product.
      coefficients: `u_j`, unscaled, shape `(rows, columns)`, zero in the spare row.
        They are written once and not multiplied afterwards, so equal coefficients stay
        equal to the last bit.
      ages: the round in which `x_j` was inserted, `FREE` where the slot is free and in
        the spare row, shape `(rows,)`. Rounds count from 1.
      scale: what multiplies all coefficients.
      num_active: the number of active slots.
      budget: the most slots that may be active, at most the capacity.
    """

    vectors: Float[Array, "rows features"]
    squares: Float[Array, " rows"]
    coefficients: Float[Array, "rows columns"]
    ages: Integer[Array, " rows"]
    scale: Float[Array, ""]
    num_active: Integer[Array, ""]
    budget: Integer[Array, ""]

    @property
    def mask(self) -> Bool[Array, "*models rows"]:
        """True where a slot holds a support vector."""
        return self.ages != FREE

    @property
    def full(self) -> Bool[Array, ""]:
        """True where a newcomer needs another to leave."""
        return self.num_active >= self.budget


class Newcomer(NamedTuple):
    """An example on its way into the support set.

    Attributes:
      vector: `x`, shape `(num_features,)`.
      square: `||x||^2`.
      coefficients: `u`, unscaled, shape `(columns,)`.
      age: the round.
      kernel_row: `k(x_j, x)` for every row, shape `(rows,)`; arbitrary where free.
      kernel_self: `k(x, x)`.
    """

    vector: Float[Array, " features"]
    square: Float[Array, ""]
    coefficients: Float[Array, " columns"]
    age: Integer[Array, ""]
    kernel_row: Float[Array, " rows"]
    kernel_self: Float[Array, ""]


class Row(NamedTuple):
    """What one slot becomes; nothing where `slot` is `NOWHERE`."""

    slot: Integer[Array, ""]
    vector: Float[Array, " features"]
    square: Float[Array, ""]
    coefficients: Float[Array, " columns"]
    age: Integer[Array, ""]


class Support(NamedTuple):
    """The support set as a user reads it.

    Attributes:
      vectors: shape `(capacity, num_features)`.
      coefficients: the true ones, scale included, shape `(capacity, columns)`.
      mask: True where a slot is active, shape `(capacity,)`.
    """

    vectors: Float[Array, "*models capacity features"]
    coefficients: Float[Array, "*models capacity columns"]
    mask: Bool[Array, "*models capacity"]


def support(state) -> Support:
    """The support vectors, true coefficients and mask of a learner's state.

    Works on a single state and on states stacked by `jax.vmap`.

    Args:
      state: the state of any online algorithm.

    Returns:
      A `Support`. Free slots are zero.
    """
    expansion = state.expansion
    coefficients = expansion.scale[..., None, None] * expansion.coefficients
    return Support(
        expansion.vectors[..., :-1, :],
        coefficients[..., :-1, :],
        expansion.mask[..., :-1],
    )


def empty(
    where: str,
    *,
    num_features: int,
    num_columns: int,
    budget: ArrayLike,
    capacity: int | None,
    dtype: np.dtype,
) -> Expansion:
    """A support set with every slot free.

    Args:
      where: the caller's name, for error messages.
      num_features: d.
      num_columns: columns of coefficients.
      budget: a Python number, or a traced integer where `capacity` is given; a traced
        budget is clipped to `1 .. capacity`, because it cannot be checked.
      capacity: the number of slots; None takes the budget.
      dtype: of the vectors and coefficients.

    Raises:
      ValueError: if a size is not an integer of at least 1, the budget is above the
        capacity, or the budget is traced and there is no capacity.
    """
    features = hyperparameters.size(where, "num_features", num_features)
    known = hyperparameters.concrete(budget)
    if known is None:
        hyperparameters.scalar_integer(where, "budget", budget)
    if capacity is not None:
        capacity = hyperparameters.size(where, "capacity", capacity)
    if known is not None:
        if known.ndim != 0:
            raise ValueError(
                f"{where}: budget must be a scalar, got shape {known.shape}; sweep "
                "budgets by jax.vmap over init, with capacity="
            )
        most = hyperparameters.size(where, "budget", known.item())
        capacity = most if capacity is None else capacity
        if most > capacity:
            raise ValueError(
                f"{where}: budget must be at most the capacity {capacity}, got {most}"
            )
    if capacity is None:
        raise ValueError(
            f"{where}: capacity must be given as a Python integer when budget is "
            "traced, got capacity=None"
        )
    return Expansion(
        vectors=jnp.zeros((capacity + 1, features), dtype),
        squares=jnp.zeros((capacity + 1,), dtype),
        coefficients=jnp.zeros((capacity + 1, num_columns), dtype),
        ages=jnp.full((capacity + 1,), FREE, jnp.int32),
        scale=jnp.ones((), dtype),
        num_active=jnp.zeros((), jnp.int32),
        budget=jnp.clip(jnp.asarray(budget, jnp.int32), 1, capacity),
    )


def kernel_rows(
    kernel: Kernel,
    expansion: Expansion,
    X: Float[Array, "n features"],
    squares: Float[Array, " n"],
) -> Float[Array, "n rows"]:
    """`k(X[i], x_j)`; O(n B d)."""
    return kernel.gram(X, expansion.vectors, squares, expansion.squares)


def scores(
    expansion: Expansion, kernel_rows: Float[Array, "n rows"]
) -> Float[Array, "n columns"]:
    """`f` at the points of the kernel rows; free slots have zero coefficients."""
    products = jnp.matmul(kernel_rows, expansion.coefficients, precision="highest")
    return expansion.scale * products


def norms(kernel: Kernel, expansion: Expansion) -> Float[Array, " rows"]:
    """`||u_j||^2 k(x_j, x_j)`, the squared norm of every term; infinite where free."""
    lengths = jnp.sum(expansion.coefficients**2, axis=1)
    selves = kernel.diag(expansion.vectors, expansion.squares)
    return jnp.where(expansion.mask, lengths * selves, jnp.inf)


def slot_of(expansion: Expansion, age: Integer[Array, ""]) -> Integer[Array, ""]:
    """The slot with this insertion round; ages are unique among active slots."""
    slots = jnp.arange(expansion.ages.shape[0], dtype=jnp.int32)
    return jnp.max(jnp.where(expansion.ages == age, slots, 0))


def oldest(expansion: Expansion) -> Integer[Array, ""]:
    """The slot of the smallest insertion round."""
    return slot_of(expansion, jnp.min(expansion.ages))


def oldest_least(
    expansion: Expansion, values: Float[Array, " rows"]
) -> Integer[Array, ""]:
    """The slot of the least value, the oldest of equal ones.

    A minimum and a comparison, because an `argmin` is not vectorised on CPUs.
    """
    least = values == jnp.min(values)
    return slot_of(expansion, jnp.min(jnp.where(least, expansion.ages, FREE)))


def row(newcomer: Newcomer, slot: Integer[Array, ""]) -> Row:
    """The newcomer, in this slot."""
    return Row(
        slot, newcomer.vector, newcomer.square, newcomer.coefficients, newcomer.age
    )


def put(array: Array, slot: Integer[Array, ""], value: Array, axis: int = 0) -> Array:
    """The array with one row (or column) written; `NOWHERE` is its last."""
    index = jnp.where(slot == NOWHERE, array.shape[axis] - 1, slot)
    return jax.lax.dynamic_update_index_in_dim(array, value, index, axis)


def write(expansion: Expansion, rows: tuple[Row, ...]) -> Expansion:
    """Puts the rows into their slots; a slot just past the active ones becomes active.

    Every write touches one row and reads none: a select over the whole array, or a read
    beside the write, would copy it.
    """
    for row in rows:
        wanted = row.slot != NOWHERE
        expansion = expansion._replace(
            vectors=put(expansion.vectors, row.slot, row.vector),
            squares=put(expansion.squares, row.slot, row.square),
            coefficients=put(
                expansion.coefficients,
                row.slot,
                jnp.where(wanted, row.coefficients, 0),
            ),
            ages=put(expansion.ages, row.slot, jnp.where(wanted, row.age, FREE)),
            num_active=jnp.maximum(expansion.num_active, row.slot + 1),
        )
    return expansion


def squared_norm_after(
    kernel: Kernel,
    expansion: Expansion,
    squared_norm: Float[Array, ""],
    rows: tuple[Row, ...],
) -> Float[Array, ""]:
    """`||sum_j u_j phi(x_j)||^2` once the rows are written, from its value before.

    With the change `g` of the function, `||f + g||^2 = ||f||^2 + 2 <f, g> + ||g||^2`.
    One kernel row a new and one a replaced vector, O(B d).
    """
    wanted = jnp.stack([row.slot != NOWHERE for row in rows])[:, None]
    slots = jnp.maximum(jnp.stack([row.slot for row in rows]), 0)
    new = jnp.stack([row.coefficients for row in rows])
    changes = jnp.concatenate(
        [
            jnp.where(wanted, new, 0),
            jnp.where(wanted, -expansion.coefficients[slots], 0),
        ]
    )
    points = jnp.concatenate(
        [jnp.stack([row.vector for row in rows]), expansion.vectors[slots]]
    )
    squares = jnp.concatenate(
        [jnp.stack([row.square for row in rows]), expansion.squares[slots]]
    )
    at_points = jnp.matmul(
        kernel_rows(kernel, expansion, points, squares),
        expansion.coefficients,
        precision="highest",
    )
    among = kernel.gram(points, points, squares, squares)
    own = jnp.matmul(among, changes, precision="highest")
    return squared_norm + jnp.sum(changes * (2 * at_points + own))
