"""The support set of a kernel model, in arrays with fixed shapes.

In `f(x) = scale * sum_j u_j k(x_j, x)`, row `j` of the arrays is one slot, which holds
a support vector or is free and zero. A candidate takes the first free slot, so active
slots come first, except after maintenance that frees several at once. A learner never
writes to these arrays itself. It returns the new contents of slots (`Row`), and `write`
stores them, one row at a time, so a compiled loop never copies the matrix of support
vectors. There is one spare row after the slots, for writes that must not happen, since
a conditional write would have to read the old row.
"""

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import _checks, _platform, _pytree, kernels
from budgetjax._errors import ArgumentError
from budgetjax._shapes import Flag, Index, PerPair, PerRow, Scalar
from budgetjax.kernels import Kernel

Kind = TypeVar("Kind")

# The age of a free slot: younger than every support vector.
FREE = int(np.iinfo(np.int32).max)
# The slot of a row that is not kept, which is written to the spare row.
NOWHERE = -1
# Eigenvalues of the kernel matrix below this fraction of the largest are rounding
# errors.
SMALLEST_EIGENVALUE = 1e-6
# Stored coefficients are multiplied only if the scale falls below this value.
SMALLEST_SCALE = 2.0**-20
# Arrays of more numbers are filled on the device, by a program of their own.
LARGE = 2**22


@_pytree.record
class Average(NamedTuple):
    """The memory of an average of iterates, in addition to the sums in the support set.

    Attributes:
      start: the first round whose model is in the average, in words; see
        `budgetjax._counters`.
      scale_sum: the sum of the scales since the sums were last brought up to date. A
        round that changes only the scale thus costs one addition.
      total: the number of rounds in the sums. It is halved together with them when
        rounding would lose another round, so in float32 an average covers about 2^23
        rounds.
    """

    start: Integer[Array, "*models two"]
    scale_sum: Float[Array, "*models"]
    total: Float[Array, "*models"]

    @property
    def fade_factor(self) -> Float[Array, "*models"]:
        """The factor of the sums before the next round: 1, or occasionally 1/2."""
        whole = self.total < 1 / jnp.finfo(self.total.dtype).eps
        return jnp.where(whole, 1.0, 0.5).astype(self.total.dtype)

    def fade(self) -> "Average":
        """The average before the next round."""
        factor = self.fade_factor
        return self._replace(
            scale_sum=self.scale_sum * factor, total=self.total * factor
        )


@_pytree.record
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


class Row(NamedTuple):
    """The new content of one slot; nothing changes if `slot` is `NOWHERE`.

    The age `FREE`, with zeros elsewhere, frees a slot.
    """

    slot: Index
    vector: Float[Array, " features"]
    square: Scalar
    term: Float[Array, " both"]
    age: Index


class RankOneUpdate(NamedTuple):
    """A term that is distributed over the support vectors, a rank-one change.

    The `weights` are the share that each slot receives, 0 for free slots.
    """

    weights: PerRow
    term: Float[Array, " both"]


class Edits(NamedTuple):
    """The changes of the support set in a round, in this order.

    Attributes:
      rescale_factor: the factor of all stored coefficients, by which the scale is
        divided, or None. It is a power of two, so nothing is rounded.
      rank_one_updates: the terms added to many rows.
      rows: the slots to write; the last one is the example's own.
      shrink: the factor of the model afterwards, including the example's own term, or
        None.
      scale_sum: the sum of the scales that brings the sums up to date before all edits.
        The engine sets it if iterates are averaged.
    """

    rows: tuple[Row, ...]
    rank_one_updates: tuple[RankOneUpdate, ...] = ()
    shrink: Scalar | None = None
    rescale_factor: Scalar | None = None
    scale_sum: Scalar | None = None


def check_edits(
    method: str, kind: type[Kind], returned: object, before: Any, expansion: Expansion
) -> tuple[Kind, Edits]:
    """`returned`, after a check that it is a record of this kind and edits.

    The record has the leaves of the one `before`, and the edits fit the expansion. All
    that is checked is known while tracing.
    """
    got = type(returned).__name__
    if type(returned) is tuple:
        match returned:
            case (record, Edits() as edits) if isinstance(record, kind):
                check_same_leaves(f"the {kind.__name__} of {method}", record, before)
                return record, _check_shapes(method, edits, expansion)
        got = f"({', '.join(type(part).__name__ for part in returned)})"
    raise ArgumentError(method, f"return ({kind.__name__}, Edits)", got)


def check_same_leaves(name: str, after: Any, before: Any) -> None:
    """Raises unless a record has the shapes and dtypes of the one before.

    A loop or a branch would say so far from what is wrong.
    """
    structures = jax.tree.structure(before), jax.tree.structure(after)
    if structures[0] != structures[1]:
        raise ArgumentError(name, f"keep its structure {structures[0]}", structures[1])
    leaves = zip(
        jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True
    )
    for (path, old), new in leaves:
        wanted, got = map(_describe, (old, new))
        if wanted != got:
            place = jax.tree_util.keystr(path)
            raise ArgumentError(f"{place} in {name}", f"stay {wanted}", got)


def _describe(value: Any) -> str:
    """Dtype and shape as text, such as `float32[3]`."""
    return f"{jnp.result_type(value)}[{','.join(map(str, jnp.shape(value)))}]"


def _check_shapes(method: str, edits: Edits, expansion: Expansion) -> Edits:
    """The edits with slots of int32, if all else has the shapes and dtypes of slots."""
    empty = empty_row(expansion, jnp.int32(NOWHERE))
    # Any integer is a slot: `argmax` gives an int64 with x64.
    rows = tuple(
        row._replace(slot=jnp.asarray(row.slot, jnp.int32))
        if jnp.issubdtype(jnp.result_type(row.slot), jnp.integer)
        else row
        for row in edits.rows
    )
    for i, row in enumerate(rows):
        check_same_leaves(f"rows[{i}] of the edits of {method}", row, empty)
    like = RankOneUpdate(expansion.squares, empty.term)
    for i, one in enumerate(edits.rank_one_updates):
        check_same_leaves(f"rank_one_updates[{i}] of the edits of {method}", one, like)
    return edits._replace(rows=rows)


def check_candidate(candidate: Candidate, expansion: Expansion) -> None:
    """Raises unless the coefficients of a candidate are those of a slot."""
    wanted, got = expansion.coefficients[0], candidate.coefficients
    if _describe(got) != _describe(wanted):
        name = "the candidate's coefficients"
        raise ArgumentError(name, f"be {_describe(wanted)}", _describe(got))


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


def select(condition: Flag, one: Kind, other: Kind) -> Kind:
    """One of two trees of the same structure; leaves that are in both stay as is."""
    return jax.tree.map(
        lambda new, old: new if new is old else jnp.where(condition, new, old),
        one,
        other,
    )


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


def least(values: Integer[Array, " n"]) -> Integer[Array, ""]:
    """The smallest of some integers."""
    return _platform.fold(jnp.minimum, jnp.min, values)


def slot_of(ages: Integer[Array, " rows"], age: Index) -> Index:
    """The slot with this insertion round; ages are unique among active slots."""
    slots = jnp.arange(ages.shape[0], dtype=jnp.int32)
    return _platform.fold(jnp.maximum, jnp.max, jnp.where(ages == age, slots, 0))


def oldest(expansion: Expansion) -> Index:
    """The slot with the smallest insertion round."""
    return slot_of(expansion.ages, least(expansion.ages))


def oldest_argmin(ages: Integer[Array, " rows"], values: PerRow) -> Index:
    """The slot with the least value, the oldest on ties.

    It uses a minimum and a comparison, because CPUs do not vectorise `argmin`; and a
    minimum of integers, because they do not vectorise that of floats either.
    """
    order = _platform.separate(sortable_integers(values))
    smallest = order == least(order)
    return slot_of(ages, least(jnp.where(smallest, ages, FREE)))


def sortable_integers(values: Float[Array, " n"]) -> Integer[Array, " n"]:
    """Integers in the same order as the values, from sign and bits."""
    width = jnp.finfo(values.dtype).bits
    bits = jax.lax.bitcast_convert_type(values, jnp.dtype(f"int{width}"))
    return jnp.where(bits < 0, jnp.iinfo(bits.dtype).min - bits, bits)


def stored_row(expansion: Expansion, slot: Index) -> Row:
    """The content of this slot, with its sums up to date."""
    vector, square = expansion.vectors[slot], expansion.squares[slot]
    return Row(slot, vector, square, term(expansion, slot), expansion.ages[slot])


def term(expansion: Expansion, slot: Index) -> Float[Array, " both"]:
    """The term of the vector in this slot, with its sums up to date."""
    stored, average = expansion.coefficients_and_sums[slot], expansion.average
    return stored if average is None else _add_to_sums(stored, average.scale_sum)


def _add_to_sums(
    terms: Float[Array, "*rows both"], scale_sum: Scalar
) -> Float[Array, "*rows both"]:
    """The terms with sums that have the coefficients in this sum of scales, too."""
    coefficients, sums = jnp.split(terms, 2, axis=-1)
    return jnp.concatenate([coefficients, sums + scale_sum * coefficients], axis=-1)


def fade_average(expansion: Expansion) -> Expansion:
    """The expansion with its sums ready for another round."""
    average = expansion.average
    if average is None:
        return expansion
    coefficients, sums = jnp.split(expansion.coefficients_and_sums, 2, axis=1)
    terms = jnp.concatenate([coefficients, average.fade_factor * sums], axis=1)
    return expansion._replace(coefficients_and_sums=terms, average=average.fade())


def candidate_term(expansion: Expansion, candidate: Candidate) -> Float[Array, " both"]:
    """The candidate's term; its sums are 0, since no earlier model has it."""
    if expansion.average is None:
        return candidate.coefficients
    nothing = jnp.zeros_like(candidate.coefficients)
    return jnp.concatenate([candidate.coefficients, nothing])


def stack(rows: tuple[Row, ...]) -> Row:
    """Several rows as one, whose fields have a first axis over them."""
    return jax.tree.map(lambda *parts: jnp.stack(parts), *rows)


def row(expansion: Expansion, candidate: Candidate, slot: Index) -> Row:
    """The edit that puts the candidate into this slot."""
    own = candidate_term(expansion, candidate)
    return Row(slot, candidate.vector, candidate.square, own, candidate.age)


def empty_row(expansion: Expansion, slot: Index) -> Row:
    """The edit that frees this slot."""
    arrays = expansion.vectors, expansion.squares, expansion.coefficients_and_sums
    vector, square, term = (jnp.zeros_like(array[0]) for array in arrays)
    return Row(slot, vector, square, term, jnp.asarray(FREE, jnp.int32))


def put(array: Array, slot: Index, value: Array, axis: int = 0) -> Array:
    """The array with one row (or column) written; `NOWHERE` is its last."""
    return put_rows(array, (slot,), (value,), axis)


def put_rows(
    array: Array, slots: Sequence[Index], values: Sequence[Array], axis: int = 0
) -> Array:
    """The array with some rows (or columns) written, a later one over an earlier."""
    last = array.shape[axis] - 1
    places = [jnp.where(slot == NOWHERE, last, slot) for slot in slots]
    if _platform.writes_whole(values[0].size):
        here = jnp.arange(last + 1, dtype=jnp.int32)
        here = jnp.expand_dims(here, [i for i in range(array.ndim) if i != axis])
        for place, value in zip(places, values, strict=True):
            array = jnp.where(here == place, jnp.expand_dims(value, axis), array)
        return array
    if len(places) > 1 and not _platform.on_cpu():
        # One operation for all. The order of its writes is arbitrary.
        for i, place in enumerate(places):
            again = [place == later for later in places[i + 1 :]]
            places[i] = jnp.where(
                functools.reduce(operator.or_, again, False), last, place
            )
        rows = array if axis == 0 else array.T
        rows = rows.at[jnp.stack(places)].set(
            jnp.stack(values), unique_indices=True, mode="promise_in_bounds"
        )
        return rows if axis == 0 else rows.T
    for place, value in zip(places, values, strict=True):
        array = jax.lax.dynamic_update_index_in_dim(array, value, place, axis)
    return array


def set_row_and_column(
    matrix: PerPair, slot: Index | int, row: PerRow, diagonal: Scalar
) -> PerPair:
    """A symmetric matrix with one row and column set; `NOWHERE` sets the spare one."""
    index = jnp.where(slot == NOWHERE, matrix.shape[0] - 1, slot)
    if not _platform.on_cpu():
        here = jnp.arange(matrix.shape[0], dtype=jnp.int32) == index
        row = jnp.where(here, diagonal, row)
        matrix = jnp.where(here[None], row[:, None], matrix)
        return jnp.where(here[:, None], row[None], matrix)
    row = row.at[index].set(diagonal)
    matrix = jax.lax.dynamic_update_index_in_dim(matrix, row, index, 0)
    return jax.lax.dynamic_update_index_in_dim(matrix, row, index, 1)


def rescale_terms(
    expansion: Expansion, terms: Float[Array, "*rows both"], factor: Scalar
) -> Float[Array, "*rows both"]:
    """The terms with multiplied coefficients; sums refer to true coefficients."""
    if expansion.average is None:
        return terms * factor
    coefficients, sums = jnp.split(terms, 2, axis=-1)
    return jnp.concatenate([coefficients * factor, sums], axis=-1)


def write(expansion: Expansion, edits: Edits) -> Expansion:
    """Writes the edits into the arrays; the scale does not change.

    Every write touches one row and reads none, since a select over the array, or a read
    next to the write, would copy it.
    """
    terms = expansion.coefficients_and_sums
    if edits.scale_sum is not None:
        terms = _add_to_sums(terms, edits.scale_sum)
    if edits.rescale_factor is not None:
        terms = rescale_terms(expansion, terms, edits.rescale_factor)
    for update in edits.rank_one_updates:
        terms = terms + update.weights[:, None] * update.term[None]
    slots = [row.slot for row in edits.rows]
    # The spare row stays free and 0, whatever the example is.
    rows = [
        select(row.slot == NOWHERE, empty_row(expansion, row.slot), row)
        for row in edits.rows
    ]
    ages = put_rows(expansion.ages, slots, [row.age for row in rows])
    active = (ages != FREE).astype(jnp.int32)
    count = functools.partial(jnp.sum, dtype=jnp.int32)
    return expansion._replace(
        vectors=put_rows(expansion.vectors, slots, [row.vector for row in rows]),
        squares=put_rows(expansion.squares, slots, [row.square for row in rows]),
        coefficients_and_sums=put_rows(terms, slots, [row.term for row in rows]),
        ages=ages,
        num_active=_platform.fold(jnp.add, count, active),
    )


def scale_after(scale: Scalar, edits: Edits) -> Scalar:
    """The scale after the edits."""
    if edits.shrink is not None:
        scale = scale * edits.shrink
    return scale if edits.rescale_factor is None else scale / edits.rescale_factor


def no_edits(like: Edits) -> Edits:
    """Edits of this structure that change nothing."""
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    rows = tuple(
        row._replace(slot=jnp.full_like(row.slot, NOWHERE)) for row in blank.rows
    )
    one = jax.tree.map(jnp.ones_like, blank)
    return blank._replace(
        rows=rows, shrink=one.shrink, rescale_factor=one.rescale_factor
    )


def rescale_factor(scale: Scalar) -> Scalar:
    """The factor of the stored coefficients that keeps the scale from underflow.

    It is 1 while the scale is in a safe range, otherwise the next lower power of two,
    so equal coefficients stay equal. The scale must be divided by it.
    """
    exponent = jnp.frexp(scale)[1]
    power = jnp.ldexp(jnp.ones_like(scale), jnp.maximum(exponent - 1, -126))
    return jnp.where(scale < SMALLEST_SCALE, power, 1).astype(scale.dtype)


def with_rescale(expansion: Expansion, edits: Edits) -> tuple[Edits, Scalar]:
    """Edits that keep a shrinking scale in a safe range, and their `rescale_factor`.

    The rows and rank-one updates of `edits` refer to the scale of `expansion`.
    """
    factor = rescale_factor(scale_after(expansion.scale, edits))

    def rescale(part):
        return part._replace(term=rescale_terms(expansion, part.term, factor))

    rows, updates = edits.rows, edits.rank_one_updates
    rows, updates = tuple(map(rescale, rows)), tuple(map(rescale, updates))
    edits = Edits(rows, updates, edits.shrink, factor, edits.scale_sum)
    return edits, factor


def with_vectors(
    expansion: Expansion, vectors: Float[Array, "rows features"]
) -> Expansion:
    """The support set with other vectors in its slots."""
    squares = kernels.squared_norms(vectors)
    return expansion._replace(vectors=vectors, squares=squares)
