"""The record of an online algorithm: pure functions over its state."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer, Shaped

from budgetjax import _checks, _pytree, _sharding, examples, kernels
from budgetjax._pytree import UNIT, Counter
from budgetjax._shapes import Basis, Flag, Weights
from budgetjax.kernels import Kernel
from budgetjax.online import conservative, support_set
from budgetjax.online.maintenance.strategy import restart
from budgetjax.online.support_set import Average, Edits, Newcomer

# Let an editor know the arguments of an `init` and the fields of its state.
Arguments = ParamSpec("Arguments")
State = TypeVar("State")


def no_decay(state: Any, ahead: Integer[Array, " n"]) -> Float[Array, " n"]:
    """The `decay` of an algorithm whose model idle rounds do not shrink."""
    return jnp.zeros(ahead.shape, state.expansion.scale.dtype)


def basis(state: Any) -> Basis:
    """An orthonormal basis of the span of the support vectors."""
    return support_set.whitening(state.kernel, state.expansion)


def with_weights(state: Any, root: Basis, weights: Weights) -> Any:
    """Replaces the coefficients, and nothing that depends on them."""
    coefficients = jnp.matmul(root, weights.T, precision="highest")
    expansion = support_set.with_coefficients(state.expansion, coefficients)
    return state._replace(expansion=expansion)


def with_vectors(state: Any, vectors: Float[Array, "rows d"]) -> Any:
    """Replaces the vectors, and nothing that depends on them."""
    expansion = support_set.with_vectors(state.expansion, vectors)
    return state._replace(expansion=expansion)


def refresh_caches(state: Any) -> Any:
    """Restarts the maintenance strategy from the current support set."""
    strategy = getattr(state, "maintenance", None)
    if strategy is None:
        return state
    return state._replace(maintenance=restart(strategy, state.kernel, state.expansion))


@functools.partial(jax.jit, static_argnums=0)
def clear(algorithm: "Algorithm", state: Any) -> Any:
    """The state before its first example, with the arguments of its `init`."""
    counters = ("num_seen", "num_mistakes", "num_updates")
    names = ("expansion", *counters, *(algorithm.memory or ()))
    zeros = {name: jax.tree.map(jnp.zeros_like, getattr(state, name)) for name in names}
    expansion = state.expansion
    zeros["expansion"] = zeros["expansion"]._replace(
        ages=jnp.full_like(expansion.ages, support_set.FREE),
        scale=jnp.ones_like(expansion.scale),
        budget=expansion.budget,
    )
    return algorithm.refresh_caches(state._replace(**zeros))


@jax.jit
def resume(state: Any, other: Any) -> Any:
    """Another state of the algorithm, with the counters and the clock of this one."""
    passed = state.num_seen.low - other.num_seen.low
    expansion = other.expansion
    ages = jnp.where(expansion.mask, expansion.ages + passed, support_set.FREE)
    return other._replace(
        expansion=expansion._replace(ages=ages, average=state.expansion.average),
        num_seen=state.num_seen,
        num_mistakes=state.num_mistakes,
        num_updates=state.num_updates,
    )


@_pytree.doc_from_init
@dataclasses.dataclass(frozen=True, repr=False)
class Algorithm(Generic[Arguments, State]):
    """An online algorithm: its name, and pure functions over its state.

    A state is a `NamedTuple` with the fields `algorithm`, its name; `kernel`, with
    parameters of the state's dtype; `expansion`, the support set; three counters (see
    `Counter`): `num_seen`, rounds so far; `num_mistakes`, rounds with a
    margin of at most 0, or, for a real target, a score of the wrong sign;
    `num_updates`, rounds that changed the model; and fields of its own, which the
    docstring of its class explains. Two of these have a fixed meaning: a `loss` that
    does not take labels makes the targets real numbers; a `maintenance` is restarted
    when a refit replaces the coefficients.

    A conservative algorithm defines `violates` and `update`; an algorithm that changes
    its model in every round defines its own `block`.

    Every `init` raises a `ValueError` that names the invalid argument. It takes the
    kernel and those of the following arguments that apply:

    * `num_features`: d, the length of an example.
    * `budget`: B, the maximum number of support vectors; may be traced if `capacity` is
      given.
    * `num_classes`: 2 for labels -1 and +1, with one column of coefficients; C for
      labels `0 .. C-1`, with one column per class; None for real targets.
    * `num_outputs`: real targets per example, with one column each; all columns share
      the support vectors, and the loss is summed over the columns.
    * `maintenance`: the strategy that makes room in a full budget, such as
      `budgetjax.RemoveOldest()`. None merges with a Gaussian kernel and projects with
      any other.
    * `average`: True to keep the average of all iterates as well as the last one, or
      the round at which averaging starts; see `budgetjax.averaged`.
    * `seed`: an integer, or a key of `jax.random`, for random draws.
    * `capacity`: slots to allocate, at least the budget; None for the budget. Budgets
      that share a capacity can be swept by `jax.vmap`.
    * `dtype`: the float type of vectors, coefficients and kernel parameters.

    Attributes:
      name: the registered name, which every state carries.
      init: `init(kernel, *, num_features, budget, num_classes, ...) -> state`, an empty
        model, which scores 0 everywhere.
      violates: `violates(state, score, y) -> bool`, whether this round must change the
        model, from the score of the example alone, shape `(columns,)`. It must be
        cheap.
      update: `update(state, score, y, newcomer) -> (state, edits)`, the change.
        `newcomer` holds the kernel row of the example. `update` reads the support set,
        which has this round's decay already, but does not write it: it returns its
        changes in `edits`.
      decay: `decay(state, ahead) -> logarithms` of the factors by which idle rounds
        shrink all coefficients; `ahead` counts these rounds, shape `(n,)`, ascending.
      block: `block(algorithm, state, X, y, weights, axis) -> (state, scores)`, examples
        in order; see `budgetjax.online.conservative`.
      basis: `basis(state) -> root`, the features `root^T k(x)` on which a refit solves
        for weights.
      with_weights: `with_weights(state, root, weights) -> state`, the state with the
        coefficients `root weights^T`.
      with_vectors: `with_vectors(state, vectors) -> state`, the state with new support
        vectors, slot by slot, and a recomputed span. None if they cannot move.
      refresh_caches: `refresh_caches(state) -> state`, called after either: recomputes
        all other fields that depend on coefficients and kernel values.
      memory: its own fields that are zero in an empty state and change with the
        examples; `refresh_caches` computes the rest. None if the support vectors do not
        depend on labels, so that they may be chosen from all examples, held-out ones
        too.
      no_update_above: `no_update_above(state) -> margin`, a number for a state that is
        not traced: an example with at least this margin does not violate, so a caller
        needs no compiled program to tell. None if more than the margin decides.
    """

    name: str
    init: Callable[Arguments, State]
    violates: Callable[[Any, Array, Array], Flag] | None = None
    update: Callable[[Any, Array, Array, Newcomer], tuple[Any, Edits]] | None = None
    decay: Callable[[Any, Integer[Array, " n"]], Float[Array, " n"]] = no_decay
    block: Callable[..., tuple[Any, Array]] = conservative.block
    basis: Callable[[Any], Array] = basis
    with_weights: Callable[[Any, Array, Array], Any] = with_weights
    with_vectors: Callable[[Any, Array], Any] | None = with_vectors
    refresh_caches: Callable[[Any], Any] = refresh_caches
    memory: tuple[str, ...] | None = ()
    no_update_above: Callable[[Any], float] | None = None

    def __repr__(self) -> str:
        return f"Algorithm({self.name!r})"

    def step(
        self, state: State, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None
    ) -> State:
        """The state after one example, a block of length one.

        The function is pure, and made for `jax.jit`, `jax.vmap` and `jax.lax.scan`,
        where values are traced and not checked. Elsewhere a call runs one compiled
        program.

        Args:
          state: a state of this algorithm.
          x: the example, shape `(num_features,)`.
          y: the label, -1 or +1, or an integer in `0 .. num_classes-1`; for a regressor
            a real number, or an array of shape `(num_outputs,)`.
          weight: a factor of the update, at least 0. An example of weight 0 changes
            nothing, not even the clock. None is 1.

        Returns:
          The new state.

        Raises:
          ValueError: if the state belongs to another algorithm, or a shape, a label or
            the weight is invalid.
        """
        _checks.check_algorithm("step", self, state)
        x, y, weight = examples.check_example("step", state, x, y, weight)
        return _stepped(self, state, x, y, weight)

    def learn(
        self,
        state: Any,
        X: Float[Array, "size features"],
        y: Shaped[Array, "size ..."],
        weights: Float[Array, " size"],
        axis: str | None = None,
    ) -> tuple[Any, Float[Array, "size columns"]]:
        """The state after a block of examples in order, and the score of each by then.

        Args:
          state: a state of this algorithm.
          X: examples, shape `(size, num_features)`.
          y: labels, shape `(size,)`, or targets, `(size, num_outputs)`.
          weights: factors of the updates, 0 where an example is to be skipped.
          axis: the name of a `jax.vmap` over models, or None.
        """
        return self.block(
            self, *_sharding.vary(rebase_clock(state), X, y, weights), axis
        )


@functools.partial(jax.jit, static_argnums=0, inline=True)
@_sharding.automatic
def _stepped(algorithm: Algorithm, state: Any, x: Array, y: Array, weight: Array):
    return algorithm.learn(state, x[None], y[None], weight[None])[0]


def rebase_clock(state: Any) -> Any:
    """The state with room for 2^30 more rounds in its counters and ages.

    Ages count from the higher word of `num_seen`. Two units later they reach their
    minimum, and the order of such old support vectors is forgotten.
    """
    expansion, seen = state.expansion, state.num_seen
    passed = seen.low - seen.normalized().low
    older = jnp.maximum(expansion.ages, -UNIT) - passed
    ages = jnp.where(expansion.mask, older, support_set.FREE)
    return state._replace(
        expansion=expansion._replace(ages=ages),
        num_seen=seen.normalized(),
        num_mistakes=state.num_mistakes.normalized(),
        num_updates=state.num_updates.normalized(),
    )


def start(
    where: str,
    kernel: Kernel,
    num_features: int,
    budget: ArrayLike,
    num_classes: int | None,
    capacity: int | None,
    dtype: DTypeLike,
    *,
    num_outputs: int | None = None,
    average: bool | int = False,
) -> dict[str, Any]:
    """The fields that all states share, for an empty model; errors name `where`.

    `num_outputs` is None if an algorithm takes labels only.
    """
    kind = _checks.float_dtype(where, dtype)
    expansion = support_set.empty(
        where,
        num_features=num_features,
        num_columns=num_columns(where, num_classes, num_outputs),
        budget=budget,
        capacity=capacity,
        dtype=kind,
        average=_averaging(where, average, kind),
    )
    return {
        "algorithm": _checks.algorithm_of(where),
        "kernel": kernels.as_leaves(where, kernel, expansion.vectors.shape[1], kind),
        "expansion": expansion,
        "num_seen": Counter.of(0),
        "num_mistakes": Counter.of(0),
        "num_updates": Counter.of(0),
    }


def num_columns(where: str, num_classes: int | None, num_outputs: int | None) -> int:
    """Columns of coefficients: one for two classes, and one per real output."""
    if num_outputs is not None:
        outputs = _checks.size(where, "num_outputs", num_outputs)
        if num_classes is None:
            return outputs
        if outputs > 1:
            raise ValueError(
                f"{where}: num_outputs must be 1 unless num_classes is None, for real "
                f"targets, got {outputs} with num_classes={num_classes!r}"
            )
    classes = _checks.size(where, "num_classes", num_classes, at_least=2)
    return 1 if classes == 2 else classes


def _averaging(where: str, average: bool | int, dtype: np.dtype) -> Average | None:
    """Parses `average=` of an `init`: False, True, or the first averaged round."""
    if isinstance(average, bool) and not average:
        return None
    first = 1 if isinstance(average, bool) else average
    _checks.positive_integer(where, "average", first)
    _checks.scalar_integer(where, "average", first)
    return Average(Counter.of(int(first)), jnp.zeros((), dtype), jnp.zeros((), dtype))
