"""One round of a conservative learner: score, test, and change only where needed.

This file is what an algorithm is: an `Algorithm` of pure functions over a state, whose
rounds are composed here.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import checks, counter, kernels, losses, support_set
from budgetjax.counter import Counter
from budgetjax.kernels import Kernel
from budgetjax.support_set import NOWHERE, Average, Edits, Newcomer


def no_decay(state: Any, ahead: Integer[Array, " n"]) -> Float[Array, " n"]:
    """Rounds alone never shrink a model."""
    return jnp.zeros(ahead.shape, state.expansion.scale.dtype)


class Algorithm(NamedTuple):
    """An online algorithm: a namespace of pure functions over its state.

    A state is a `NamedTuple` with the fields `kernel`, `expansion`, `num_seen`,
    `num_mistakes`, `num_updates` (see `budgetjax.counter`) and whatever else the
    algorithm needs. With a field `loss` that is not one of labels, one column takes any
    real target, and not only -1 and +1. A field `algorithm` holds the name.

    Attributes:
      init: `init(kernel, *, num_features, budget, ...) -> state`, an empty model.
      violates: `violates(state, score, y) -> bool`, whether this round must change the
        model. It sees the score of the example, shape `(columns,)`, and is cheap.
      update: `update(state, score, y, newcomer) -> (state, edits)`, what changes then.
        The kernel row of the example comes with `newcomer`. `update` reads the support
        set, which has this round's decay already, and leaves it alone: what it would
        write there is in `edits`.
      decay: `decay(state, ahead) -> logarithms` of what multiplies all coefficients as
        each of some numbers of rounds passes, shape `(n,)`, ascending.
      name: what its states are called; "" takes states of any algorithm.
    """

    init: Callable[..., Any]
    violates: Callable[[Any, Array, Array], Bool[Array, ""]]
    update: Callable[[Any, Array, Array, Newcomer], tuple[Any, Edits]]
    decay: Callable[[Any, Integer[Array, " n"]], Float[Array, " n"]] = no_decay
    name: str = ""

    def step(
        self, state: Any, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None
    ) -> Any:
        """One example: the state after it.

        Pure, and made for `jax.jit`, `jax.vmap` and `jax.lax.scan`, where values are
        traced and not checked; elsewhere a call is one compiled program.

        Args:
          state: of this algorithm.
          x: shape `(num_features,)`.
          y: the label, -1 or +1, or an integer in `0 .. num_classes-1`; for a regressor
            a real number.
          weight: what scales the update, at least 0. An example of weight 0 changes
            nothing, the clock included. None is 1.

        Returns:
          The new state.

        Raises:
          ValueError: if the state is of another algorithm, or a shape, a label or the
            weight is not what it needs.
        """
        checks.check_algorithm("step", self, state)
        return _stepped(self, state, *checked_example(state, x, y, weight))


def start(
    where: str,
    kernel: Kernel,
    *,
    num_features: int,
    num_columns: int,
    budget: ArrayLike,
    capacity: int | None,
    dtype: np.dtype,
    average: bool | int = False,
) -> dict[str, Any]:
    """The fields that all states share, of an empty model; errors name `where`."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{where}: kernel must be a budgetjax kernel, got {kernel!r}")
    expansion = support_set.empty(
        where,
        num_features=num_features,
        num_columns=num_columns,
        budget=budget,
        capacity=capacity,
        dtype=dtype,
        average=averaging(where, average, dtype),
    )
    return {
        "algorithm": checks.algorithm_of(where),
        "kernel": jax.tree_util.tree_map_with_path(
            lambda path, leaf: checks.as_leaf(
                where, "kernel" + jax.tree_util.keystr(path), leaf, dtype
            ),
            kernel,
        ),
        "expansion": expansion,
        "num_seen": Counter.of(0),
        "num_mistakes": Counter.of(0),
        "num_updates": Counter.of(0),
    }


def columns_of(where: str, num_classes: int) -> int:
    """Columns of coefficients for so many classes: one for two."""
    classes = checks.size(where, "num_classes", num_classes, at_least=2)
    return 1 if classes == 2 else classes


def averaging(where: str, average: bool | int, dtype: np.dtype) -> Average | None:
    """What `average=` of an `init` asks for: False, True, or the first round of it."""
    if isinstance(average, bool) and not average:
        return None
    first = 1 if isinstance(average, bool) else average
    checks.positive_integer(where, "average", first)
    checks.scalar_integer(where, "average", first)
    return Average(Counter.of(int(first)), jnp.zeros((), dtype), jnp.zeros((), dtype))


@functools.partial(jax.jit, static_argnums=0, inline=True)
def _stepped(algorithm: Algorithm, state: Any, x: Array, y: Array, weight: Array):
    return score_and_step(algorithm, state, x, y, weight)[0]


def score_and_step(
    algorithm: Algorithm,
    state: Any,
    x: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None = None,
) -> tuple[Any, Float[Array, " columns"]]:
    """One example: the state after it, and its score before.

    Args:
      algorithm: the algorithm.
      state: of that algorithm.
      x: shape `(num_features,)`.
      y: a scalar label.
      weight: a scalar, or None for 1. With 0 the example is scored, and changes
        nothing.

    Returns:
      The new state and `f(x)` of the old one, shape `(columns,)`.

    Raises:
      ValueError: if a shape, or the type of the label, is not what the state needs.
    """
    x, y, weight = example(state, x, y, weight)
    state = settled(state)
    before = support_set.faded(state.expansion)
    state = state._replace(expansion=before)
    newcomer = _newcomer(state, x, weight)
    score = support_set.scores(before, newcomer.kernel_row[None])[0]
    mistaken = losses.mistaken(score, y)
    present = weight > 0
    violated = algorithm.violates(state, score, y) & present
    mistaken = mistaken & present

    passed = present.astype(jnp.int32)
    num_seen = state.num_seen.after(passed)
    decayed = decayed_scale(before.scale, algorithm.decay(state, passed[None]))[0]
    now = state._replace(expansion=before._replace(scale=decayed))

    def changed():
        new, edits = algorithm.update(now, score, y, newcomer)
        # The support set stays outside the branch: a branch copies what it returns.
        return new._replace(expansion=None), complete(before, edits)

    unchanged = no_edits(jax.eval_shape(changed)[1])
    new, edits = jax.lax.cond(
        violated, changed, lambda: (state._replace(expansion=None), unchanged)
    )
    expansion = support_set.write(before, edits)
    scale = shrunk(decayed, edits)
    average = before.average
    if average is not None:
        # An unchanged model is not brought up to date: its edits have accrued nothing.
        held = jnp.where(violated, 0, average.since)
        counts = present & num_seen.reaches(average.start)
        average = average._replace(
            since=held + jnp.where(counts, scale, 0),
            total=average.total + counts.astype(average.total.dtype),
        )
    return new._replace(
        expansion=expansion._replace(scale=scale, average=average),
        num_seen=num_seen,
        num_mistakes=state.num_mistakes.after(mistaken.astype(jnp.int32)),
        num_updates=state.num_updates.after(violated.astype(jnp.int32)),
    ), score


def settled(state: Any) -> Any:
    """The state with room for 2^30 rounds more in its counters and ages.

    Ages count from the higher word of `num_seen`: when that grows, those of the support
    vectors become negative, in their order. In a loop that runs once or not at all,
    since a branch under `vmap` runs always.
    """
    counts = (state.num_seen, state.num_mistakes, state.num_updates)

    def crowded(carry):
        (seen, *_), _ = carry
        return seen.low >= counter.UNIT

    def settle(carry):
        counts, ages = carry
        return tuple(count.settled() for count in counts), support_set.past(ages)

    expansion = state.expansion
    counts, ages = jax.lax.while_loop(crowded, settle, (counts, expansion.ages))
    return state._replace(
        expansion=expansion._replace(ages=ages),
        **dict(zip(("num_seen", "num_mistakes", "num_updates"), counts, strict=True)),
    )


def complete(expansion: support_set.Expansion, edits: Edits) -> Edits:
    """The edits of an update, which bring the sums of an average up to date too."""
    average = expansion.average
    return edits if average is None else edits._replace(accrued=average.since)


def decayed_scale(
    scale: Float[Array, ""], decay: Float[Array, "*n"]
) -> Float[Array, "*n"]:
    """The scale after a decay, given by its logarithm.

    Never so small that what an update divides by it overflows.
    """
    limits = jnp.finfo(scale.dtype)
    least = max(float(limits.tiny), min(2.0**-40, limits.tiny / limits.eps**2))
    return jnp.maximum(scale * jnp.exp(decay), least)


def shrunk(scale: Float[Array, ""], edits: Edits) -> Float[Array, ""]:
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


def _newcomer(
    state: Any, x: Float[Array, " features"], weight: Float[Array, ""]
) -> Newcomer:
    square = kernels.squared_norms(x[None])
    expansion = state.expansion
    return Newcomer(
        vector=x,
        square=square[0],
        coefficients=jnp.zeros_like(expansion.coefficients[0]),
        age=state.num_seen.low + 1,
        weight=weight,
        kernel_row=support_set.kernel_rows(state.kernel, expansion, x[None], square)[0],
        kernel_self=state.kernel.diag(x[None], square)[0],
    )


def example(
    state: Any, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None
) -> tuple[Float[Array, " features"], Shaped[Array, ""], Float[Array, ""]]:
    """The example in the types of the state, if its shapes are right."""
    features = num_features("step", state)
    x = checks.array("step", "x", x)
    if x.shape != (features,):
        raise ValueError(
            f"step: x must have shape ({features},) (num_features), got {x.shape}"
        )
    y = checks.array("step", "y", y)
    if y.shape != ():
        raise ValueError(f"step: y must be a scalar label, got shape {y.shape}")
    weight = checks.array("step", "weight", 1 if weight is None else weight)
    if weight.shape != ():
        raise ValueError(f"step: weight must be a scalar, got shape {weight.shape}")
    dtype = state.expansion.vectors.dtype
    return jnp.asarray(x, dtype), labels("step", state, y), jnp.asarray(weight, dtype)


def checked_example(
    state: Any, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None
) -> tuple[Float[Array, " features"], Shaped[Array, ""], Float[Array, ""]]:
    """The example in the types of the state, if its values are right where known."""
    label = checks.concrete(y)
    count = None if weight is None else checks.concrete(weight)
    x, y, weight = example(state, x, y, weight)
    if label is not None:
        check_labels("step", state, label[None])
    if count is not None:
        check_weights("step", count[None], weight.dtype)
    return x, y, weight


def is_regressor(state: Any) -> bool:
    """Whether the targets of a learner are any numbers."""
    loss = getattr(state, "loss", losses.hinge)
    return state.expansion.num_columns == 1 and not losses.takes_labels(loss)


def check_weights(
    where: str, weight: np.ndarray, dtype: np.dtype, first_row: int | None = None
) -> None:
    """Raises unless all weights are at least 0, and finite in the model's type."""
    good = (weight >= 0) & (weight <= jnp.finfo(dtype).max)
    # XLA may take a subnormal number for 0.
    good &= (weight == 0) | (weight >= jnp.finfo(dtype).tiny)
    if not np.all(good):
        row = int(np.argmin(good))
        raise ValueError(
            f"{where}: weight must be finite and at least 0, in the range of "
            f"{np.dtype(dtype)}, got {weight[row]}{_in_row(first_row, row)}"
        )


def check_labels(
    where: str, state: Any, y: np.ndarray, first_row: int | None = None
) -> None:
    """Raises unless all labels are the model's."""
    columns, dtype = state.expansion.num_columns, state.expansion.vectors.dtype
    if columns > 1:
        known, expected = (y >= 0) & (y < columns), f"in 0 .. {columns - 1}"
    elif is_regressor(state):
        known, expected = np.abs(y) <= jnp.finfo(dtype).max, f"finite in {dtype}"
    else:
        known, expected = np.isin(y, (-1, 1)), "-1 or +1"
    if not np.all(known):
        row = int(np.argmin(known))
        raise ValueError(
            f"{where}: y must be {expected}, got {y[row]}{_in_row(first_row, row)}"
        )


def _in_row(first_row: int | None, row: int) -> str:
    return "" if first_row is None else f" in row {first_row + row}"


def num_features(where: str, state: Any) -> int:
    """What a single model expects of an example."""
    if not hasattr(state, "expansion"):
        raise ValueError(
            f"{where}: state must be one of an online algorithm, got "
            f"{checks.named(state)}"
        )
    shape = state.expansion.vectors.shape
    if len(shape) != 2:
        raise ValueError(
            f"{where}: state must hold one model, got a stack of shape {shape[:-2]}; "
            "use jax.vmap"
        )
    return shape[1]


def labels(where: str, state: Any, y: ArrayLike) -> Shaped[Array, "..."]:
    """Labels in the type of the state: floats for one column, else integers."""
    columns = state.expansion.num_columns
    y = checks.array(where, "y", y)
    if columns == 1:
        if y.dtype == bool:
            raise ValueError(f"{where}: y must be -1 or +1, got {y.dtype}")
        return checks.on_device(y, state.expansion.vectors.dtype)
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise ValueError(
            f"{where}: y must hold integer labels 0 .. {columns - 1}, got {y.dtype}"
        )
    return checks.on_device(y, jnp.int32)


# Stored coefficients are multiplied only when the scale leaves this range downwards.
SMALLEST_SCALE = 2.0**-20


def fold(scale: Float[Array, ""]) -> Float[Array, ""]:
    """What to multiply the stored coefficients by before a small scale underflows.

    1 while the scale is in a safe range, else the power of two next below it, so that
    equal coefficients stay equal. The scale is to be divided by it.
    """
    exponent = jnp.frexp(scale)[1]
    power = jnp.ldexp(jnp.ones_like(scale), jnp.maximum(exponent - 1, -126))
    return jnp.where(scale < SMALLEST_SCALE, power, 1).astype(scale.dtype)


def folded(
    expansion: support_set.Expansion, edits: Edits
) -> tuple[Edits, Float[Array, ""]]:
    """Edits that keep the scale of a model that shrinks in a safe range; and the fold.

    Their rows and spreads are given for the scale of `expansion`.
    """
    factor = fold(shrunk(expansion.scale, edits))
    rows, spreads = (
        tuple(
            part._replace(term=support_set.fold_term(expansion, part.term, factor))
            for part in parts
        )
        for parts in (edits.rows, edits.spreads)
    )
    return edits._replace(rows=rows, spreads=spreads, fold=factor), factor
