"""One round of a conservative learner: score, test, and change only where needed.

This file is what an algorithm is: an `Algorithm` of pure functions over a state, whose
rounds are composed here.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import expansion as support_set
from budgetjax import hyperparameters, kernels, losses
from budgetjax.expansion import NOWHERE, Expansion, Newcomer, Row
from budgetjax.kernels import Kernel


class Edits(NamedTuple):
    """What a round changes in the support set.

    Attributes:
      rows: the slots to write; the last one is the example's own.
      fold: what to multiply all stored coefficients by first, or None. A power of two,
        so that nothing is rounded.
    """

    rows: tuple[Row, ...]
    fold: Float[Array, ""] | None = None


class Algorithm(NamedTuple):
    """An online algorithm: a namespace of pure functions over its state.

    A state is a `NamedTuple` with the fields `kernel`, `expansion`, `num_seen`,
    `num_mistakes`, `num_updates` and whatever else the algorithm needs.

    Attributes:
      init: `init(kernel, *, num_features, budget, ...) -> state`, an empty model.
      violates: `violates(state, score, y) -> bool`, whether this round must change the
        model. It sees the score of the example, shape `(columns,)`, and is cheap. A
        mistake must violate.
      update: `update(state, score, y, newcomer) -> (state, edits)`, what changes then.
        The kernel row of the example comes with `newcomer`. `update` reads the support
        set and leaves it alone: what it would write there is in `edits`.
      scale: `scale(state, num_seen) -> scalar`, what multiplies the stored coefficients
        after `num_seen` rounds: decay is a function of the clock.
    """

    init: Callable[..., Any]
    violates: Callable[[Any, Array, Array], Bool[Array, ""]]
    update: Callable[[Any, Array, Array, Newcomer], tuple[Any, Edits]]
    scale: Callable[[Any, Integer[Array, ""]], Float[Array, ""]]

    def step(self, state: Any, x: ArrayLike, y: ArrayLike) -> Any:
        """One example: the state after it.

        Pure, and made for `jax.jit`, `jax.vmap` and `jax.lax.scan`. The values of `x`
        and `y` are not checked, as they may be traced; `budgetjax.run` checks them.

        Args:
          state: of this algorithm.
          x: shape `(num_features,)`.
          y: the label, -1 or +1, or an integer in `0 .. num_classes-1`.

        Returns:
          The new state.

        Raises:
          ValueError: if a shape, or the type of the label, is not what the state needs.
        """
        return score_and_step(self, state, x, y)[0]


def start(
    where: str,
    kernel: Kernel,
    *,
    num_features: int,
    num_classes: int,
    budget: ArrayLike,
    capacity: int | None,
    dtype: np.dtype,
) -> dict[str, Any]:
    """The fields that all states share, of an empty model; errors name `where`."""
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{where}: kernel must be a budgetjax kernel, got {kernel!r}")
    classes = hyperparameters.size(where, "num_classes", num_classes, at_least=2)
    expansion = support_set.empty(
        where,
        num_features=num_features,
        num_columns=1 if classes == 2 else classes,
        budget=budget,
        capacity=capacity,
        dtype=dtype,
    )
    zero = jnp.zeros((), jnp.int32)
    return {
        "kernel": jax.tree_util.tree_map_with_path(
            lambda path, leaf: hyperparameters.as_leaf(
                where, "kernel" + jax.tree_util.keystr(path), leaf, dtype
            ),
            kernel,
        ),
        "expansion": expansion,
        "num_seen": zero,
        "num_mistakes": zero,
        "num_updates": zero,
    }


def score_and_step(
    algorithm: Algorithm,
    state: Any,
    x: ArrayLike,
    y: ArrayLike,
    present: Bool[Array, ""] | None = None,
) -> tuple[Any, Float[Array, " columns"]]:
    """One example: the state after it, and its score before.

    Args:
      algorithm: the algorithm.
      state: of that algorithm.
      x: shape `(num_features,)`.
      y: a scalar label.
      present: False to skip the example: it is scored, and changes nothing.

    Returns:
      The new state and `f(x)` of the old one, shape `(columns,)`.

    Raises:
      ValueError: if a shape, or the type of the label, is not what the state needs.
    """
    x, y = _example(state, x, y)
    newcomer = _newcomer(state, x)
    score = support_set.scores(state.expansion, newcomer.kernel_row[None])[0]
    violated = algorithm.violates(state, score, y)
    mistaken = losses.mistaken(score, y)
    present = jnp.ones((), bool) if present is None else present
    violated, mistaken = violated & present, mistaken & present

    def changed():
        new, edits = algorithm.update(state, score, y, newcomer)
        # The support set stays outside the branch: a branch copies what it returns.
        return new._replace(expansion=None), edits

    unchanged = no_edits(jax.eval_shape(changed)[1])
    new, edits = jax.lax.cond(
        violated, changed, lambda: (state._replace(expansion=None), unchanged)
    )
    expansion = apply(state.expansion, edits)
    new = new._replace(
        expansion=expansion,
        num_seen=state.num_seen + present.astype(jnp.int32),
        num_mistakes=state.num_mistakes + mistaken.astype(jnp.int32),
        num_updates=state.num_updates + violated.astype(jnp.int32),
    )
    scale = algorithm.scale(new, new.num_seen)
    return new._replace(expansion=expansion._replace(scale=scale)), score


def apply(expansion: Expansion, edits: Edits) -> Expansion:
    """The support set after the edits."""
    if edits.fold is not None:
        expansion = expansion._replace(coefficients=expansion.coefficients * edits.fold)
    return support_set.write(expansion, edits.rows)


def no_edits(like: Edits) -> Edits:
    """Edits of this structure that change nothing."""
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
    rows = tuple(
        row._replace(slot=jnp.full_like(row.slot, NOWHERE)) for row in blank.rows
    )
    return Edits(rows, None if blank.fold is None else jnp.ones_like(blank.fold))


def _newcomer(state: Any, x: Float[Array, " features"]) -> Newcomer:
    square = kernels.squared_norms(x[None])
    expansion = state.expansion
    return Newcomer(
        vector=x,
        square=square[0],
        coefficients=jnp.zeros_like(expansion.coefficients[0]),
        age=state.num_seen + 1,
        kernel_row=support_set.kernel_rows(state.kernel, expansion, x[None], square)[0],
        kernel_self=state.kernel.diag(x[None], square)[0],
    )


def _example(
    state: Any, x: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, " features"], Shaped[Array, ""]]:
    """The example in the types of the state, if its shapes are right."""
    features = num_features("step", state)
    x = hyperparameters.array("step", "x", x)
    if x.shape != (features,):
        raise ValueError(
            f"step: x must have shape ({features},) (num_features), got {x.shape}"
        )
    y = hyperparameters.array("step", "y", y)
    if y.shape != ():
        raise ValueError(f"step: y must be a scalar label, got shape {y.shape}")
    x = jnp.asarray(x, state.expansion.vectors.dtype)
    return x, labels("step", state, y)


def num_features(where: str, state: Any) -> int:
    """What a single model expects of an example."""
    shape = state.expansion.vectors.shape
    if len(shape) != 2:
        raise ValueError(
            f"{where}: state must hold one model, got a stack of shape {shape[:-2]}; "
            "use jax.vmap"
        )
    return shape[1]


def labels(where: str, state: Any, y: ArrayLike) -> Shaped[Array, "..."]:
    """Labels in the type of the state: floats for one column, else integers."""
    columns = state.expansion.coefficients.shape[-1]
    y = jnp.asarray(hyperparameters.array(where, "y", y))
    if columns == 1:
        if y.dtype == bool:
            raise ValueError(f"{where}: y must be -1 or +1, got {y.dtype}")
        return y.astype(state.expansion.vectors.dtype)
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise ValueError(
            f"{where}: y must hold integer labels 0 .. {columns - 1}, got {y.dtype}"
        )
    return y.astype(jnp.int32)


# Stored coefficients are multiplied only when the scale leaves this range downwards.
SMALLEST_SCALE = 2.0**-20


def fold(scale: Float[Array, ""]) -> Float[Array, ""]:
    """What to multiply the stored coefficients by before a small scale underflows.

    1 while the scale is in a safe range, else a power of two, so that equal
    coefficients stay equal. The scale is to be divided by it.
    """
    return jnp.where(scale < SMALLEST_SCALE, SMALLEST_SCALE, 1).astype(scale.dtype)
