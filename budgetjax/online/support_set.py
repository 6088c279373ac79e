"""The support set of a kernel model, in arrays with fixed shapes.

In `f(x) = scale * sum_j u_j k(x_j, x)`, row `j` of the arrays is one slot, which holds
a support vector or is free and zero. A candidate takes the first free slot, so active
slots come first, except after maintenance that frees several at once. A learner never
writes to these arrays itself; see `budgetjax.online.edits`.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import _checks, _record, kernels
from budgetjax._errors import ArgumentError
from budgetjax._shapes import Index, PerPair, PerRow, Scalar
from budgetjax.kernels import Kernel
from budgetjax.online.averages import Average
from budgetjax.online.slots import FREE, least, slot_of

# Eigenvalues of the kernel matrix below this fraction of the largest are rounding
# errors.
SMALLEST_EIGENVALUE = 1e-6
# Arrays of more numbers are filled on the device, by a program of their own.
LARGE = 2**22


@_record.record
class Expansion(NamedTuple):
    """The support set of one model, in `capacity + 1` rows; the last one is spare.

    Attributes:
      vectors: `x_j`, shape `(rows, num_features)`, as differences from the origin, 0 in
        the spare row.
      squares: `||x_j||^2` of these differences, shape `(rows,)`; a kernel row is then
        one product.
      coefficients_and_sums: one row per vector, shape `(rows, columns)`, zero in the
        spare row: the unscaled coefficients `u_j`. They are written once and not
        multiplied afterwards, so equal coefficients stay equal to the last bit. If
        iterates are averaged, the second half of the columns holds the running sums of
        the scaled coefficients. Every maintenance is a linear map of the rows, and
        applies to both halves.
      ages: the round in which `x_j` was inserted, or `FREE` for free slots and the
        spare row, shape `(rows,)`. Rounds count from 1, and restart at 0 every 2^30
        rounds: existing ages become negative and keep their order for two such spans.
      scale: the factor of all coefficients.
      num_active: the number of active slots.
      budget: the maximum number of active slots, at most the capacity.
      origin: what is subtracted from every row, shape `(num_features,)`: 0, or a point
        among the first rows if they lie far from 0 under a stationary kernel. It stays
        the same while there are support vectors; see `kernels.origin_of`.
      average: the memory of averaged iterates, or None.
    """

    vectors: Float[Array, "rows features"]
    squares: PerRow
    coefficients_and_sums: Float[Array, "rows both"]
    ages: Integer[Array, " rows"]
    scale: Scalar
    num_active: Index
    budget: Index
    origin: Float[Array, " features"]
    average: Average | None = None

    @property
    def num_columns(self) -> int:
        """Columns of coefficients: 1, or one per class."""
        both = self.coefficients_and_sums.shape[-1]
        return both if self.average is None else both // 2

    @property
    def coefficients(self) -> Float[Any, "*models rows columns"]:
        """The unscaled `u_j`, shape `(rows, columns)`."""
        return self.coefficients_and_sums[..., : self.num_columns]

    @property
    def mask(self) -> Bool[Array, "*models rows"]:
        """True for slots that hold a support vector."""
        return self.ages != FREE

    @property
    def examples(self) -> Float[Any, "*models rows features"]:
        """The vectors as the examples that they were, 0 in free slots."""
        whole = self.vectors + self.origin[..., None, :]
        return jnp.where(self.mask[..., None], whole, self.vectors)

    @property
    def free(self) -> Index:
        """The first free slot; the spare one if there is none."""
        slots = jnp.arange(self.ages.shape[0], dtype=jnp.int32)
        return least(jnp.where(self.mask, slots[-1], slots))

    @property
    def full(self) -> Bool[Array, ""]:
        """True if another vector must leave before a candidate enters."""
        return self.num_active >= self.budget


class Candidate(NamedTuple):
    """An example that may enter the support set.

    Attributes:
      vector: `x`, shape `(num_features,)`.
      square: `||x||^2`.
      coefficients: the unscaled `u`, shape `(columns,)`.
      age: the round.
      weight: the weight of the example; 1 by default.
      kernel_row: `k(x_j, x)` for every row, shape `(rows,)`; arbitrary for free slots.
      kernel_self: `k(x, x)`.
      step: the unscaled learning rate, `eta_t` divided by the scale; 1 for algorithms
        without one.
    """

    vector: Float[Array, " features"]
    square: Scalar
    coefficients: Float[Array, " columns"]
    age: Index
    weight: Scalar
    kernel_row: PerRow
    kernel_self: Scalar
    step: Float[ArrayLike, ""] = 1.0


def empty(
    *,
    num_features: int,
    num_columns: int,
    budget: ArrayLike,
    capacity: int | None,
    dtype: np.dtype,
    average: Average | None = None,
) -> Expansion:
    """A support set with all slots free; arguments as in every `init`.

    A traced budget cannot be checked, and is clipped to `1 .. capacity`.
    """
    features = _checks.size("num_features", num_features)
    budget, capacity = _budget_and_capacity(budget, capacity)
    columns = num_columns if average is None else 2 * num_columns
    rows = capacity + 1

    def filled(*shape: int, value: int = 0, dtype: DTypeLike = dtype) -> jax.Array:
        if math.prod(shape) > LARGE:
            return jnp.full(shape, value, dtype)
        return _checks.to_device(np.full(shape, value, dtype), dtype)

    return Expansion(
        vectors=filled(rows, features),
        squares=filled(rows),
        coefficients_and_sums=filled(rows, columns),
        ages=filled(rows, value=FREE, dtype=jnp.int32),
        scale=filled(value=1),
        num_active=filled(dtype=jnp.int32),
        budget=_checks.to_device(budget, jnp.int32),
        origin=filled(features),
        average=average,
    )


def _budget_and_capacity(
    budget: ArrayLike, capacity: int | None
) -> tuple[ArrayLike, int]:
    """Both, after checks; a traced budget is clipped to the capacity."""
    known = _checks.concrete(budget)
    if capacity is not None:
        capacity = _checks.size("capacity", capacity)
        _checks.scalar_integer("capacity", capacity)
    if known is None:
        _checks.scalar_integer("budget", budget)
        if capacity is None:
            raise ArgumentError(
                "capacity",
                "be given as a Python integer when budget is traced",
                "capacity=None",
            )
        return jnp.clip(jnp.asarray(budget, jnp.int32), 1, capacity), capacity
    if known.ndim != 0:
        raise ArgumentError(
            "budget",
            "be a scalar",
            f"shape {known.shape}; sweep budgets by jax.vmap over init, with capacity=",
        )
    size = _checks.size("budget", known.item())
    _checks.scalar_integer("budget", size)
    if capacity is not None and size > capacity:
        raise ArgumentError("budget", f"be at most the capacity {capacity}", size)
    return budget, capacity or size


def with_origin(
    kernel: Kernel,
    expansion: Expansion,
    X: Float[Array, "n features"],
    present: Bool[Array, " n"],
) -> Expansion:
    """The support set before these rows, with an origin among them if it is empty."""
    if not kernel.shifts:
        return expansion
    chooses = (expansion.num_active == 0) & jnp.any(present)
    origin = kernels.origin_of(kernel, X, present)
    return expansion._replace(origin=jnp.where(chooses, origin, expansion.origin))


def kernel_rows(
    kernel: Kernel,
    expansion: Expansion,
    X: Float[Array, "n features"],
    squares: Float[Array, " n"],
) -> Float[Array, "n rows"]:
    """`k(X[i], x_j)`; O(n B d)."""
    return kernel.gram(X, expansion.vectors, squares, expansion.squares)


def kernel_row(
    kernel: Kernel, expansion: Expansion, x: Float[Array, " features"], square: Scalar
) -> PerRow:
    """`k(x, x_j)`; O(B d)."""
    return kernel_rows(kernel, expansion, x[None], square[None])[0]


def gram(kernel: Kernel, expansion: Expansion) -> PerPair:
    """`k(x_i, x_j)`, 0 for free slots; O(B^2 d)."""
    mask = expansion.mask
    rows = kernel_rows(kernel, expansion, expansion.vectors, expansion.squares)
    return jnp.where(mask[:, None] & mask[None], rows, 0)


def response(expansion: Expansion, candidate: Candidate) -> Float[Array, " columns"]:
    """`sum_i u_i k(x_i, x)` at the candidate, unscaled."""
    row = candidate.kernel_row
    return jnp.matmul(row, expansion.coefficients, precision="highest")


def norms(kernel: Kernel, expansion: Expansion) -> PerRow:
    """`||u_j||^2 k(x_j, x_j)`, the squared norm of every term; infinite if free."""
    lengths = jnp.sum(expansion.coefficients**2, axis=1)
    selves = kernel.diag(expansion.vectors, expansion.squares)
    return jnp.where(expansion.mask, lengths * selves, jnp.inf)


def oldest(expansion: Expansion) -> Index:
    """The slot with the smallest insertion round."""
    return slot_of(expansion.ages, least(expansion.ages))


def with_vectors(
    expansion: Expansion, vectors: Float[Array, "rows features"]
) -> Expansion:
    """The support set with other vectors in its slots."""
    squares = kernels.squared_norms(vectors)
    return expansion._replace(vectors=vectors, squares=squares)
