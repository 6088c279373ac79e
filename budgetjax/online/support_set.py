"""The support set of a kernel model, in arrays with fixed shapes.

In `f(x) = scale * sum_j u_j k(x_j, x)`, row `j` of the arrays is one slot, which holds
a support vector or is free and zero. A newcomer takes the first free slot, so active
slots come first, except after maintenance that frees several at once. A learner never
writes to these arrays itself. It returns the new contents of slots (`Row`), and `write`
stores them, one row at a time, so a compiled loop never copies the matrix of support
vectors. There is one spare row after the slots, for writes that must not happen, since
a conditional write would have to read the old row.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import _checks, _pytree, kernels
from budgetjax._pytree import Counter
from budgetjax._shapes import Index, PerPair, PerRow, Scalar
from budgetjax.kernels import Kernel

# The age of a free slot: younger than every support vector.
FREE = int(np.iinfo(np.int32).max)
# The slot of a row that is not kept, which is written to the spare row.
NOWHERE = -1
# Eigenvalues of the kernel matrix below this fraction of the largest are rounding
# errors.
SMALLEST_EIGENVALUE = 1e-6
# Stored coefficients are multiplied only if the scale falls below this value.
SMALLEST_SCALE = 2.0**-20


class Average(NamedTuple):
    """The memory of an average of iterates, in addition to the sums in the support set.

    Attributes:
      start: the first round whose model is in the average.
      since: the sum of the scales since the sums were last brought up to date. A round
        that changes only the scale thus costs one addition.
      total: the number of rounds in the sums. It is halved together with them when
        rounding would lose another round, so in float32 an average covers about 2^23
        rounds.
    """

    start: Counter
    since: Float[Array, "*models"]
    total: Float[Array, "*models"]

    @property
    def fading(self) -> Float[Array, "*models"]:
        """The factor of the sums before the next round: 1, or occasionally 1/2."""
        whole = self.total < 1 / jnp.finfo(self.total.dtype).eps
        return jnp.where(whole, 1.0, 0.5).astype(self.total.dtype)

    def faded(self) -> "Average":
        """The average before the next round."""
        fading = self.fading
        return self._replace(since=self.since * fading, total=self.total * fading)


class Expansion(NamedTuple):
    """The support set of one model, in `capacity + 1` rows; the last one is spare.

    Attributes:
      vectors: `x_j`, shape `(rows, num_features)`; the spare row is arbitrary.
      squares: `||x_j||^2`, shape `(rows,)`; a kernel row is then one product.
      terms: one row per vector, shape `(rows, columns)`, zero in the spare row: the
        unscaled coefficients `u_j`. They are written once and not multiplied
        afterwards, so equal coefficients stay equal to the last bit. If iterates are
        averaged, the second half of the columns holds the running sums of the scaled
        coefficients. Every maintenance is a linear map of the rows, and applies to both
        halves.
      ages: the round in which `x_j` was inserted, or `FREE` for free slots and the
        spare row, shape `(rows,)`. Rounds count from 1, and restart at 0 every 2^30
        rounds: existing ages become negative and keep their order for two such spans.
      scale: the factor of all coefficients.
      num_active: the number of active slots.
      budget: the maximum number of active slots, at most the capacity.
      average: the memory of averaged iterates, or None.
    """

    vectors: Float[Array, "rows features"]
    squares: PerRow
    terms: Float[Array, "rows both"]
    ages: Integer[Array, " rows"]
    scale: Scalar
    num_active: Index
    budget: Index
    average: Average | None = None

    __repr__ = _pytree.record_repr

    @property
    def num_columns(self) -> int:
        """Columns of coefficients: 1, or one per class."""
        both = self.terms.shape[-1]
        return both if self.average is None else both // 2

    @property
    def coefficients(self) -> Float[Any, "*models rows columns"]:
        """The unscaled `u_j`, shape `(rows, columns)`."""
        return self.terms[..., : self.num_columns]

    @property
    def mask(self) -> Bool[Array, "*models rows"]:
        """True for slots that hold a support vector."""
        return self.ages != FREE

    @property
    def free(self) -> Index:
        """The first free slot; the spare one if there is none."""
        slots = jnp.arange(self.ages.shape[0], dtype=jnp.int32)
        return jnp.min(jnp.where(self.mask, slots[-1], slots))

    @property
    def full(self) -> Bool[Array, ""]:
        """True if another vector must leave before a newcomer enters."""
        return self.num_active >= self.budget


@runtime_checkable
class State(Protocol):
    """What the states of all online algorithms have."""

    @property
    def kernel(self) -> Kernel: ...

    @property
    def expansion(self) -> Expansion: ...

    def _replace(self, **changes: Any) -> "State": ...


class Newcomer(NamedTuple):
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


class Spread(NamedTuple):
    """A term that is distributed over the support vectors, a rank-one change.

    Attributes:
      weights: the share that each slot receives, shape `(rows,)`; 0 for free slots.
      term: shape `(both,)`, as a row of `Expansion.terms`.
    """

    weights: PerRow
    term: Float[Array, " both"]


class Edits(NamedTuple):
    """The changes of the support set in a round, in this order.

    Attributes:
      fold: the factor of all stored coefficients, by which the scale is divided, or
        None. It is a power of two, so nothing is rounded.
      spreads: the terms added to many rows.
      rows: the slots to write; the last one is the example's own.
      shrink: the factor of the model afterwards, including the example's own term, or
        None.
      accrued: the sum of the scales that brings the sums up to date before all edits.
        The engine sets it if iterates are averaged.
    """

    rows: tuple[Row, ...]
    spreads: tuple[Spread, ...] = ()
    shrink: Scalar | None = None
    fold: Scalar | None = None
    accrued: Scalar | None = None


def check_edits(where: str, kind: type, returned: Any) -> tuple[Any, Edits]:
    """`returned`, after a check that it is a record of this kind and edits."""
    got = type(returned).__name__
    if type(returned) is tuple:
        match returned:
            case (record, Edits() as edits) if isinstance(record, kind):
                return record, edits
        got = f"({', '.join(type(part).__name__ for part in returned)})"
    raise ValueError(f"{where} must return ({kind.__name__}, Edits), got {got}")


def empty(
    where: str,
    *,
    num_features: int,
    num_columns: int,
    budget: ArrayLike,
    capacity: int | None,
    dtype: np.dtype,
    average: Average | None = None,
) -> Expansion:
    """A support set with all slots free.

    Args:
      where: the caller's name, for error messages.
      num_features: d.
      num_columns: the number of columns of coefficients.
      budget: a Python number, or, if `capacity` is given, a traced integer, which is
        clipped to `1 .. capacity`, because it cannot be checked.
      capacity: the number of slots; None takes the budget.
      dtype: the dtype of vectors and coefficients.
      average: the memory of averaged iterates, or None.
    """
    features = _checks.size(where, "num_features", num_features)
    known = _checks.concrete(budget)
    if known is None:
        _checks.scalar_integer(where, "budget", budget)
    if capacity is not None:
        capacity = _checks.size(where, "capacity", capacity)
    if known is not None:
        if known.ndim != 0:
            raise ValueError(
                f"{where}: budget must be a scalar, got shape {known.shape}; sweep "
                "budgets by jax.vmap over init, with capacity="
            )
        most = _checks.size(where, "budget", known.item())
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
    columns = num_columns if average is None else 2 * num_columns
    if known is None:
        budget = jnp.clip(jnp.asarray(budget, jnp.int32), 1, capacity)

    rows = jax.ShapeDtypeStruct((capacity + 1, features), dtype)
    terms = jax.ShapeDtypeStruct((capacity + 1, columns), dtype)
    _checks.check_memory(where, capacity, (rows, terms))

    def filled(*shape: int, value: int = 0, dtype: DTypeLike = dtype) -> jax.Array:
        return _checks.on_device(np.full(shape, value, dtype), dtype)

    return Expansion(
        vectors=filled(capacity + 1, features),
        squares=filled(capacity + 1),
        terms=filled(capacity + 1, columns),
        ages=filled(capacity + 1, value=FREE, dtype=jnp.int32),
        scale=filled(value=1),
        num_active=filled(dtype=jnp.int32),
        budget=_checks.on_device(budget, jnp.int32),
        average=average,
    )


def kernel_rows(
    kernel: Kernel,
    expansion: Expansion,
    X: Float[Array, "n features"],
    squares: Float[Array, " n"],
) -> Float[Array, "n rows"]:
    """`k(X[i], x_j)`; O(n B d)."""
    return kernel.gram(X, expansion.vectors, squares, expansion.squares)


def gram(kernel: Kernel, expansion: Expansion) -> PerPair:
    """`k(x_i, x_j)`, 0 for free slots; O(B^2 d)."""
    mask = expansion.mask
    rows = kernel_rows(kernel, expansion, expansion.vectors, expansion.squares)
    return jnp.where(mask[:, None] & mask[None], rows, 0)


def scores(
    expansion: Expansion, kernel_rows: Float[Array, "n rows"]
) -> Float[Array, "n columns"]:
    """`f` at the points of the kernel rows; free slots have zero coefficients."""
    products = jnp.matmul(kernel_rows, expansion.coefficients, precision="highest")
    return expansion.scale * products


def norms(kernel: Kernel, expansion: Expansion) -> PerRow:
    """`||u_j||^2 k(x_j, x_j)`, the squared norm of every term; infinite if free."""
    lengths = jnp.sum(expansion.coefficients**2, axis=1)
    selves = kernel.diag(expansion.vectors, expansion.squares)
    return jnp.where(expansion.mask, lengths * selves, jnp.inf)


def slot_of(ages: Integer[Array, " rows"], age: Index) -> Index:
    """The slot with this insertion round; ages are unique among active slots."""
    slots = jnp.arange(ages.shape[0], dtype=jnp.int32)
    return jnp.max(jnp.where(ages == age, slots, 0))


def oldest(expansion: Expansion) -> Index:
    """The slot with the smallest insertion round."""
    return slot_of(expansion.ages, jnp.min(expansion.ages))


def oldest_least(ages: Integer[Array, " rows"], values: PerRow) -> Index:
    """The slot with the least value, the oldest on ties.

    It uses a minimum and a comparison, because CPUs do not vectorise `argmin`; and a
    minimum of integers, because they do not vectorise that of floats either.
    """
    order = in_order(values)
    least = order == jnp.min(order)
    return slot_of(ages, jnp.min(jnp.where(least, ages, FREE)))


def in_order(values: Float[Array, " n"]) -> Integer[Array, " n"]:
    """Integers in the same order as the values, from sign and bits."""
    width = jnp.finfo(values.dtype).bits
    bits = jax.lax.bitcast_convert_type(values, jnp.dtype(f"int{width}"))
    return jnp.where(bits < 0, jnp.iinfo(bits.dtype).min - bits, bits)


def term(expansion: Expansion, slot: Index) -> Float[Array, " both"]:
    """The term of the vector in this slot, with its sums up to date."""
    stored = expansion.terms[slot]
    if expansion.average is None:
        return stored
    coefficients, sums = jnp.split(stored, 2)
    sums = sums + expansion.average.since * coefficients
    return jnp.concatenate([coefficients, sums])


def faded(expansion: Expansion) -> Expansion:
    """The expansion with its sums ready for another round."""
    average = expansion.average
    if average is None:
        return expansion
    coefficients, sums = jnp.split(expansion.terms, 2, axis=1)
    terms = jnp.concatenate([coefficients, average.fading * sums], axis=1)
    return expansion._replace(terms=terms, average=average.faded())


def newcomers_term(expansion: Expansion, newcomer: Newcomer) -> Float[Array, " both"]:
    """The newcomer's term; its sums are 0, since no earlier model has it."""
    if expansion.average is None:
        return newcomer.coefficients
    nothing = jnp.zeros_like(newcomer.coefficients)
    return jnp.concatenate([newcomer.coefficients, nothing])


def row(expansion: Expansion, newcomer: Newcomer, slot: Index) -> Row:
    """The edit that puts the newcomer into this slot."""
    own = newcomers_term(expansion, newcomer)
    return Row(slot, newcomer.vector, newcomer.square, own, newcomer.age)


def freed(expansion: Expansion, slot: Index) -> Row:
    """The edit that frees this slot."""
    return Row(
        slot,
        vector=jnp.zeros_like(expansion.vectors[0]),
        square=jnp.zeros_like(expansion.squares[0]),
        term=jnp.zeros_like(expansion.terms[0]),
        age=jnp.asarray(FREE, jnp.int32),
    )


def put(array: Array, slot: Index, value: Array, axis: int = 0) -> Array:
    """The array with one row (or column) written; `NOWHERE` is its last."""
    index = jnp.where(slot == NOWHERE, array.shape[axis] - 1, slot)
    return jax.lax.dynamic_update_index_in_dim(array, value, index, axis)


def fold_term(
    expansion: Expansion, terms: Float[Array, "*rows both"], fold: Scalar
) -> Float[Array, "*rows both"]:
    """The terms with multiplied coefficients; sums refer to true coefficients."""
    if expansion.average is None:
        return terms * fold
    coefficients, sums = jnp.split(terms, 2, axis=-1)
    return jnp.concatenate([coefficients * fold, sums], axis=-1)


def write(expansion: Expansion, edits: Edits) -> Expansion:
    """Writes the edits into the arrays; the scale does not change.

    Every write touches one row and reads none, since a select over the array, or a read
    next to the write, would copy it.
    """
    terms = expansion.terms
    if edits.accrued is not None:
        coefficients, sums = jnp.split(terms, 2, axis=1)
        sums = sums + edits.accrued * coefficients
        terms = jnp.concatenate([coefficients, sums], axis=1)
    if edits.fold is not None:
        terms = fold_term(expansion, terms, edits.fold)
    for spread in edits.spreads:
        terms = terms + spread.weights[:, None] * spread.term[None]
    vectors, squares, ages = expansion.vectors, expansion.squares, expansion.ages
    for row in edits.rows:
        wanted = row.slot != NOWHERE
        vectors = put(vectors, row.slot, row.vector)
        squares = put(squares, row.slot, row.square)
        terms = put(terms, row.slot, jnp.where(wanted, row.term, 0))
        ages = put(ages, row.slot, jnp.where(wanted, row.age, FREE))
    return expansion._replace(
        vectors=vectors,
        squares=squares,
        terms=terms,
        ages=ages,
        num_active=jnp.sum(ages != FREE, dtype=jnp.int32),
    )


def shrunk(scale: Scalar, edits: Edits) -> Scalar:
    """The scale after the edits."""
    if edits.shrink is not None:
        scale = scale * edits.shrink
    return scale if edits.fold is None else scale / edits.fold


def no_edits(like: Edits) -> Edits:
    """Edits of this structure that change nothing."""
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    rows = tuple(
        row._replace(slot=jnp.full_like(row.slot, NOWHERE)) for row in blank.rows
    )
    one = jax.tree.map(jnp.ones_like, blank)
    return blank._replace(rows=rows, shrink=one.shrink, fold=one.fold)


def fold(scale: Scalar) -> Scalar:
    """The factor of the stored coefficients that keeps the scale from underflow.

    It is 1 while the scale is in a safe range, otherwise the next lower power of two,
    so equal coefficients stay equal. The scale must be divided by it.
    """
    exponent = jnp.frexp(scale)[1]
    power = jnp.ldexp(jnp.ones_like(scale), jnp.maximum(exponent - 1, -126))
    return jnp.where(scale < SMALLEST_SCALE, power, 1).astype(scale.dtype)


def folded(expansion: Expansion, edits: Edits) -> tuple[Edits, Scalar]:
    """Edits that keep the scale of a shrinking model in a safe range; and the fold.

    The rows and spreads of `edits` refer to the scale of `expansion`.
    """
    factor = fold(shrunk(expansion.scale, edits))
    rows, spreads = (
        tuple(
            part._replace(term=fold_term(expansion, part.term, factor))
            for part in parts
        )
        for parts in (edits.rows, edits.spreads)
    )
    return edits._replace(rows=rows, spreads=spreads, fold=factor), factor


def with_coefficients(
    expansion: Expansion, coefficients: Float[Array, "rows columns"]
) -> Expansion:
    """The support set with these true coefficients; restarts sums of an average."""
    terms = jnp.where(expansion.mask[:, None], coefficients / expansion.scale, 0)
    if expansion.average is not None:
        terms = jnp.concatenate([terms, jnp.zeros_like(terms)], axis=1)
    return expansion._replace(terms=terms)


def with_vectors(
    expansion: Expansion, vectors: Float[Array, "rows features"]
) -> Expansion:
    """The support set with other vectors in its slots."""
    squares = kernels.squared_norms(vectors)
    return expansion._replace(vectors=vectors, squares=squares)


def whitening(kernel: Kernel, expansion: Expansion) -> PerPair:
    """`V diag(w)^(-1/2)` of `K = V diag(w) V^T`, without rounding errors in `w`."""
    w, V = jnp.linalg.eigh(gram(kernel, expansion))
    keep = w > SMALLEST_EIGENVALUE * w[-1]
    return V * jnp.where(keep, 1 / jnp.sqrt(jnp.where(keep, w, 1)), 0)[None]


def whole_squared_norm(kernel: Kernel, expansion: Expansion) -> Scalar:
    """`||sum_j u_j phi(x_j)||^2`; O(B^2 (d + C))."""
    responses = jnp.matmul(
        gram(kernel, expansion), expansion.coefficients, precision="highest"
    )
    return jnp.sum(expansion.coefficients * responses)


def squared_norm_after(
    kernel: Kernel, expansion: Expansion, squared_norm: Scalar, edits: Edits
) -> Scalar:
    """`||sum_j u_j phi(x_j)||^2` after the rows and spreads, from its value before.

    With the change `g` of the function, `||f + g||^2 = ||f||^2 + 2 <f, g> + ||g||^2`.
    The cost is one kernel row per new and per replaced vector, O(B d). A spread changes
    all terms, and needs the full kernel matrix, O(B^2 d).
    """
    rows, columns = edits.rows, expansion.num_columns
    if edits.spreads:
        return whole_squared_norm(kernel, write(expansion, edits))
    wanted = jnp.stack([row.slot != NOWHERE for row in rows])[:, None]
    slots = jnp.maximum(jnp.stack([row.slot for row in rows]), 0)
    new = jnp.where(wanted, jnp.stack([row.term[:columns] for row in rows]), 0)
    old = jnp.where(wanted, -expansion.coefficients[slots], 0)
    changes = jnp.concatenate([new, old])
    points = jnp.stack([row.vector for row in rows])
    points = jnp.concatenate([points, expansion.vectors[slots]])
    squares = jnp.stack([row.square for row in rows])
    squares = jnp.concatenate([squares, expansion.squares[slots]])
    at_points = jnp.matmul(
        kernel_rows(kernel, expansion, points, squares),
        expansion.coefficients,
        precision="highest",
    )
    among = kernel.gram(points, points, squares, squares)
    own = jnp.matmul(among, changes, precision="highest")
    return squared_norm + jnp.sum(changes * (2 * at_points + own))


def into_ball(
    kernel: Kernel,
    expansion: Expansion,
    squared_norm: Scalar,
    edits: Edits,
    radius: Scalar | float,
) -> tuple[Edits, Scalar, Scalar, Scalar]:
    """Edits that finally scale the model into a ball, `||f|| <= radius`.

    Args:
      kernel, expansion, edits: as for `folded`.
      squared_norm: `||sum_j u_j phi(x_j)||^2` before the edits.
      radius: the radius of the ball.

    Returns:
      The edits; the squared norm after them; the shrinking factor; and the fold.
    """
    squared_norm = squared_norm_after(kernel, expansion, squared_norm, edits)
    norm = jnp.sqrt(jnp.maximum(squared_norm, 0)) * expansion.scale
    shrink = jnp.minimum(1, radius / jnp.maximum(norm, radius))
    edits, fold = folded(expansion, edits._replace(shrink=shrink))
    return edits, squared_norm * fold * fold, shrink, fold


def averaged(state):
    """The state with the average of its iterates as the model, for predictions; O(B C).

    It is the average of the models after each round from `average` on (see
    `budgetjax.sgd.init`), mapped through all later maintenance: if a vector was
    removed, projected or merged, so was its part of the average. The average is
    therefore as good as the maintenance: over the second half of a stream, with 100
    vectors on letter, usps, ijcnn1 and checkerboard, it gained 0.7 to 9 points of
    accuracy with `Project`, nothing reliable with `Merge`, and lost up to 15 points
    with removal (`python benchmarks/accuracy.py`). The result cannot continue to learn
    from where `state` was: keep both.

    Args:
      state: a state made with `average=`, or stacked states.

    Returns:
      A state for `decision_function`, `predict` and `support`. Before the first round
      of the average it is the last iterate.

    Example:
      >>> state = bj.perceptron.init(bj.RBF(1.0), num_features=1, budget=2,
      ...     maintenance=bj.RemoveOldest(), average=True)
      >>> X, y = np.array([[0.0], [9.0]]), np.array([1, -1])
      >>> state, _ = bj.run(bj.perceptron, state, X, y)
      >>> bj.support(bj.averaged(state)).coefficients.tolist()
      [[1.0], [-0.5]]
    """
    expansion = state.expansion
    average = expansion.average
    if average is None:
        raise ValueError(
            "averaged: state must be of a learner made with average=True, or from a "
            "round on, got one without"
        )
    coefficients, sums = jnp.split(expansion.terms, 2, axis=-1)
    total = average.total[..., None, None]
    sums = sums + average.since[..., None, None] * coefficients
    true = expansion.scale[..., None, None] * coefficients
    means = jnp.where(total > 0, sums / jnp.maximum(total, 1), true)
    return state._replace(
        expansion=expansion._replace(
            terms=means, scale=jnp.ones_like(expansion.scale), average=None
        )
    )


def resize(state: State, like: State) -> State:
    """A copy of the state in the shapes of another, which provides new values.

    The number of features or columns may grow or shrink. The single column of two
    classes becomes two, with half of the coefficients and half of their negatives.
    """
    columns, wanted = state.expansion.num_columns, like.expansion.num_columns

    def resize_leaf(old: Array, new: Array) -> Array:
        if old.shape == new.shape:
            return jnp.array(old)
        # In NumPy, since JAX would compile a program for every shape.
        values, resized = np.asarray(old), np.array(new)
        if columns == wanted:
            part = tuple(map(slice, np.minimum(values.shape, resized.shape)))
            resized[part] = values[part]
            return jnp.array(resized)
        # The coefficients may be followed by the sums of an average.
        parts = values.reshape(*values.shape[:-1], -1, columns)
        if columns == 1:
            parts = np.concatenate([-parts / 2, parts / 2], axis=-1)
        parts = parts[..., :wanted]
        padding = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - parts.shape[-1])]
        return jnp.array(np.pad(parts, padding).reshape(resized.shape))

    new = jax.tree.map(resize_leaf, state, like)
    # Random features fill new columns with values.
    squares = np.sum(np.square(np.asarray(new.expansion.vectors)), axis=1)
    return new._replace(expansion=new.expansion._replace(squares=jnp.array(squares)))
