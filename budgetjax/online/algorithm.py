"""The record of an online algorithm: pure functions over its state."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer, Shaped

from budgetjax import _checks, _forks, _pytree, _sharding, kernels, losses, models
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import UNIT, Counter, Name
from budgetjax._shapes import Basis, Flag, Label, Score, Weights
from budgetjax.kernels import Kernel
from budgetjax.online import conservative, examples, support_set
from budgetjax.online.maintenance.strategy import maintenance_of
from budgetjax.online.state import OnlineState, State
from budgetjax.online.support_set import Average, Candidate, Edits

# Lets an editor know the arguments of an `init`.
Arguments = ParamSpec("Arguments")


def no_decay(
    state: OnlineState, rounds_ahead: Integer[Array, " n"]
) -> Float[Array, " n"]:
    """The `decay` of an algorithm whose model idle rounds do not shrink."""
    return jnp.zeros(rounds_ahead.shape, state.expansion.scale.dtype)


def violates_hinge(state: OnlineState, score: Score, y: Label) -> Flag:
    """The `violates` of algorithms with the hinge loss: whether it is positive."""
    return losses.margin(score, y) < 1


def basis(state: OnlineState) -> Basis:
    """An orthonormal basis of the span of the support vectors.

    It is `V diag(w)^(-1/2)` of `K = V diag(w) V^T`, without rounding errors in `w`.
    """
    w, V = jnp.linalg.eigh(support_set.gram(state.kernel, state.expansion))
    keep = w > support_set.SMALLEST_EIGENVALUE * w[-1]
    return V * jnp.where(keep, 1 / jnp.sqrt(jnp.where(keep, w, 1)), 0)[None]


def with_weights(state: State, root: Basis, weights: Weights) -> State:
    """Replaces the coefficients, and nothing that depends on them.

    The sums of an average start again.
    """
    expansion = state.expansion
    coefficients = jnp.matmul(root, weights.T, precision="highest")
    terms = jnp.where(expansion.mask[:, None], coefficients / expansion.scale, 0)
    if expansion.average is not None:
        terms = jnp.concatenate([terms, jnp.zeros_like(terms)], axis=1)
    return state._replace(expansion=expansion._replace(coefficients_and_sums=terms))


def with_vectors(state: State, vectors: Float[Array, "rows d"]) -> State:
    """Replaces the vectors, and nothing that depends on them."""
    expansion = support_set.with_vectors(state.expansion, vectors)
    return state._replace(expansion=expansion)


def refresh_caches(state: State) -> State:
    """Restarts the maintenance strategy from the current support set."""
    strategy = maintenance_of(state)
    if strategy is None:
        return state
    return state._replace(maintenance=strategy.restart(state.kernel, state.expansion))


def restart(state: State) -> State:
    """The state with an empty support set and counters of 0, and all else as it is."""
    old = state.expansion
    empty = jax.tree.map(jnp.zeros_like, old)
    average = old.average and empty.average._replace(start=old.average.start)
    return state._replace(
        expansion=empty._replace(
            ages=jnp.full_like(old.ages, support_set.FREE),
            scale=jnp.ones_like(old.scale),
            budget=old.budget,
            average=average,
        ),
        num_seen=jax.tree.map(jnp.zeros_like, state.num_seen),
        num_mistakes=jax.tree.map(jnp.zeros_like, state.num_mistakes),
        num_updates=jax.tree.map(jnp.zeros_like, state.num_updates),
    )


@functools.partial(jax.jit, static_argnums=0)
def clear(algorithm: "Algorithm", state: State) -> State:
    """The state before its first example, with the arguments of its `init`."""
    assert algorithm.restart is not None, "its vectors do not depend on labels"
    if kept := _memory_kept(algorithm, state):
        wanted = "be given, as rounds change what the default one keeps"
        raise ArgumentError(f"restart of {algorithm.name}", wanted, ", ".join(kept))
    return algorithm.refresh_caches(algorithm.restart(state))


def _memory_kept(algorithm: "Algorithm", state: OnlineState) -> list[str]:
    """What a learner would remember, if it leaves the restart to the default."""
    if algorithm.restart is not restart:
        return []
    update = algorithm.update
    if update is None:
        return ["what its `block` changes"]
    columns = jnp.zeros(state.expansion.num_columns, state.expansion.vectors.dtype)
    y = jnp.zeros(models.target_shape(state), models.target_dtype(state))
    kept = []

    def compare(state: OnlineState) -> None:
        slot = jax.tree.map(lambda leaf: leaf[0], state.expansion[:4])
        vector, square, _, age = slot
        row = jnp.zeros_like(state.expansion.squares)
        candidate = Candidate(vector, square, columns, age, square, row, square)
        learned, _ = update(state, columns, y, candidate)
        empty = algorithm.refresh_caches(restart(state))
        # What a function passes on is the same tracer.
        parts = zip(
            jax.tree_util.tree_leaves_with_path(state),
            *map(jax.tree.leaves, (learned, empty)),
            strict=True,
        )
        for (path, before), after, again in parts:
            if after is not before and again is before:
                kept.append(jax.tree_util.keystr(path).lstrip("."))

    jax.eval_shape(compare, state)
    return kept


@jax.jit
def resume(state: State, other: State) -> State:
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


@names_errors("average_iterates")
def average_iterates(state):
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
      >>> bj.support(bj.average_iterates(state)).coefficients.tolist()
      [[1.0], [-0.5]]
    """
    _forks.check()
    expansion = state.expansion
    average = expansion.average
    if average is None:
        raise ArgumentError(
            "state",
            "be of a learner made with average=True, or from a round on",
            "one without",
        )
    coefficients, sums = jnp.split(expansion.coefficients_and_sums, 2, axis=-1)
    total = average.total[..., None, None]
    sums = sums + average.scale_sum[..., None, None] * coefficients
    true = expansion.scale[..., None, None] * coefficients
    means = jnp.where(total > 0, sums / jnp.maximum(total, 1), true)
    return state._replace(
        expansion=expansion._replace(
            coefficients_and_sums=means,
            scale=jnp.ones_like(expansion.scale),
            average=None,
        )
    )


def restart_average(state: State) -> State:
    """The state, with an average that covers the rounds from the next one on."""
    average = state.expansion.average
    if average is None:
        return state
    average = average._replace(
        start=Counter.of(max(int(average.start), int(state.num_seen) + 1)),
        scale_sum=jnp.zeros_like(average.scale_sum),
        total=jnp.zeros_like(average.total),
    )
    return state._replace(expansion=state.expansion._replace(average=average))


@_pytree.doc_from_init
@dataclasses.dataclass(frozen=True, repr=False)
class Algorithm(Generic[Arguments, State]):
    """An online algorithm: its name, and pure functions over its state.

    A state is a `NamedTuple` with the fields `algorithm`, its name; `kernel`, with
    parameters of the state's dtype; `expansion`, the support set; three counters:
    `num_seen`, rounds so far; `num_mistakes`, rounds with a margin of at most 0, or,
    for a real target, a score of the wrong sign; `num_updates`, rounds that changed the
    model; and fields of its own, which the docstring of its class explains. Two of
    these have a fixed meaning: a `loss` that does not take labels makes the targets
    real numbers; a `maintenance` is restarted when a refit replaces the coefficients.

    A conservative algorithm defines `violates` and `update`; an algorithm that changes
    its model in every round defines its own `block`.

    Every `init` raises a `ValueError` that names the invalid argument, also where the
    arrays of a model would not fit into the memory that is free. It takes the kernel
    and those of the following arguments that apply:

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
      the round at which averaging starts; see `budgetjax.average_iterates`.
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
      update: `update(state, score, y, candidate) -> (state, edits)`, the change.
        `candidate` holds the kernel row of the example. `update` reads the support set,
        which has this round's decay already, but does not write it: it returns its
        changes in `edits`.
      decay: `decay(state, rounds_ahead) -> logarithms` of the factors by which idle
        rounds shrink all coefficients; `rounds_ahead` counts these rounds, shape
        `(n,)`, ascending.
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
      restart: `restart(state) -> state`, with nothing learned and the arguments of its
        `init`, for the folds of a refit; `refresh_caches` follows. The default empties
        the support set and the counters, and is refused if rounds change other fields:
        these need a function, such as `lambda state:
        bj.perceptron.restart(state)._replace(rate=state.first_rate)`. None if the
        support vectors do not depend on labels, so that they may be chosen from all
        examples, held-out ones too.
      no_update_above: `no_update_above(state) -> margin`, a number for a state that is
        not traced: an example with at least this margin does not violate, so a caller
        needs no compiled program to tell. None if more than the margin decides.
    """

    name: str
    init: Callable[Arguments, State]
    violates: Callable[[State, Array, Array], Flag] | None = None
    update: Callable[[State, Array, Array, Candidate], tuple[State, Edits]] | None = (
        None
    )
    decay: Callable[[State, Integer[Array, " n"]], Float[Array, " n"]] = no_decay
    block: Callable[..., tuple[State, Array]] = conservative.block
    basis: Callable[[State], Array] = basis
    with_weights: Callable[[State, Array, Array], State] = with_weights
    with_vectors: Callable[[State, Array], State] | None = with_vectors
    refresh_caches: Callable[[State], State] = refresh_caches
    restart: Callable[[State], State] | None = restart
    no_update_above: Callable[[State], float] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", _count_first(self.name, self.init))

    def __repr__(self) -> str:
        return f"Algorithm({self.name!r})"

    @names_errors("step")
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
          weight: how many equal examples this one stands for, at least 0. Up to 1 it
            is a factor of the update; a heavier example moves the model no farther
            than to the minimum of its own loss, or until it violates no more. An
            example of weight 0 changes nothing, not even the clock. None is 1.

        Raises:
          ValueError: if the state belongs to another algorithm, or a shape, a label or
            the weight is invalid.
        """
        _checks.check_algorithm(self, state)
        x, y, weight = examples.check_example(state, x, y, weight)
        return _step(self, state, x, y, weight)

    def learn(
        self,
        state: State,
        X: Float[Array, "size features"],
        y: Shaped[Array, "size ..."],
        weights: Float[Array, " size"],
        axis: str | None = None,
    ) -> tuple[State, Float[Array, "size columns"]]:
        """The state after a block of examples in order, and the score of each by then.

        Args:
          state: a state of this algorithm.
          X: examples, shape `(size, num_features)`, before the origin is subtracted.
          y: labels, shape `(size,)`, or targets, `(size, num_outputs)`.
          weights: as for `step`, 0 where an example is to be skipped.
          axis: the name of a `jax.vmap` over models, or None.
        """
        X = X - state.expansion.origin[None]
        # Rows of weight 0 may be padding of any kind. NaN times 0 would be NaN, also in
        # a derivative, so nothing sees it; its score is NaN. All losses take a target
        # of 1.
        absent = weights <= 0
        padding = (absent & ~jnp.isfinite(kernels.squared_norms(X)))[:, None]
        X = jnp.where(padding, 0, X)
        y = jnp.where(absent.reshape(-1, *(1,) * (y.ndim - 1)), 1, y)
        given = _sharding.vary(state, X, y, weights)
        state, scores = self.block(self, *given, axis)
        scores = jnp.where(padding, jnp.nan, scores)
        # Afterwards, as it then joins the writes of the last edits.
        return rebase_clock(state), scores


def _count_first(
    name: str, init: Callable[Arguments, State]
) -> Callable[Arguments, State]:
    """An `init` that counts the bytes of a large state before it allocates any."""

    @functools.wraps(init)
    def counted(*args: Arguments.args, **kwargs: Arguments.kwargs) -> State:
        names = "budget", "capacity", "num_features", "num_classes", "num_outputs"
        known = {key: kwargs[key] for key in names if key in kwargs}
        sizes = {
            key: int(one)
            for key, one in known.items()
            if isinstance(one, int | np.integer)
        }
        rows = sizes.pop("capacity", 0) or sizes.get("budget", 0)
        # A learner may hold a few numbers per pair of support vectors. Small states
        # skip the slow tracing.
        if 8 * rows * (rows + sum(sizes.values())) > _checks.CHECK_FROM_BYTES:
            # One that needs the values of its arrays cannot be counted.
            with contextlib.suppress(jax.errors.JAXTypeError):
                arrays = jax.eval_shape(functools.partial(init, *args, **kwargs))
                with names_errors(f"{name}.init"):
                    _checks.check_arrays(sizes | {"budget": rows}, arrays)
        return init(*args, **kwargs)

    return counted


@functools.partial(jax.jit, static_argnums=0, inline=True)
@_sharding.with_auto_axes
def _step(
    algorithm: Algorithm, state: State, x: Array, y: Array, weight: Array
) -> State:
    X, weights = x[None], weight[None]
    state = start_from(state, X, weights)
    return algorithm.learn(state, X, y[None], weights)[0]


def start_from(
    state: State, X: Float[Array, "n features"], weights: Float[Array, " n"]
) -> State:
    """The state with the origin from which it learns these rows."""
    expansion = support_set.with_origin(state.kernel, state.expansion, X, weights > 0)
    return state._replace(expansion=expansion)


def rebase_clock(state: State) -> State:
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


def init_fields(
    name: str,
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
    """The fields that all states share, for an empty model.

    The `init` of an algorithm adds its own to the fields `algorithm`, `kernel`,
    `expansion`, `num_seen`, `num_mistakes` and `num_updates`. Arguments are those of
    every `init`; see `budgetjax.Algorithm`. `num_outputs` is None if the algorithm
    takes labels only. Errors name `NAME.init`.

    Example:
      >>> sizes = {"num_features": 2, "budget": 10, "num_classes": 2, "capacity": None}
      >>> shared = bj.init_fields(
      ...     "fading", bj.RBF(gamma=1.0), dtype=jnp.float32, **sizes)
      >>> strategy = bj.init_maintenance(bj.RemoveOldest(), shared, seed=0)
      >>> state = {**shared, "maintenance": strategy, "rate": jnp.float32(0.5)}
    """
    with names_errors(f"{name}.init"):
        kind = _checks.float_dtype(dtype)
        expansion = support_set.empty(
            num_features=num_features,
            num_columns=num_columns(num_classes, num_outputs),
            budget=budget,
            capacity=capacity,
            dtype=kind,
            average=_averaging(average, kind),
        )
        kernel = kernels.as_leaves(kernel, expansion.vectors.shape[1], kind)
    return {
        "algorithm": Name(name),
        "kernel": kernel,
        "expansion": expansion,
        "num_seen": Counter.of(0),
        "num_mistakes": Counter.of(0),
        "num_updates": Counter.of(0),
    }


def num_columns(num_classes: int | None, num_outputs: int | None) -> int:
    """Columns of coefficients: one for two classes, and one per real output."""
    if num_outputs is not None:
        outputs = _checks.size("num_outputs", num_outputs)
        if num_classes is None:
            return outputs
        if outputs > 1:
            raise ArgumentError(
                "num_outputs",
                "be 1 unless num_classes is None, for real targets",
                f"{outputs} with num_classes={num_classes!r}",
            )
    classes = _checks.size("num_classes", num_classes, at_least=2)
    return 1 if classes == 2 else classes


def _averaging(average: bool | int, dtype: np.dtype) -> Average | None:
    """Parses `average=` of an `init`: False, True, or the first averaged round."""
    if isinstance(average, bool) and not average:
        return None
    first = 1 if isinstance(average, bool) else average
    _checks.positive_integer("average", first)
    _checks.scalar_integer("average", first)
    return Average(Counter.of(int(first)), jnp.zeros((), dtype), jnp.zeros((), dtype))
