"""Solving a linear problem: rounds of a solver until its gap is small, and a record."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from budgetjax import checks, progress_bar
from budgetjax.models import KernelModel, LinearModel
from budgetjax.solvers.kernel.solve import Objective
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    given,
    patterns,
    width,
)
from budgetjax.solvers.linear.rows import DenseRows, Rows, SparseRows, as_rows, products


class LinearAlgorithm(NamedTuple):
    """A solver of a linear problem: a namespace of functions over its state.

    Attributes:
      init: `init(X, y, ...) -> state`. It checks the training set.
      step: `step(state, X, y) -> state` presents one example, or draws one block. It is
        pure, for `jax.jit` and loops of one's own.
      objective: `objective(state, X, y) -> Objective`, pure as well.
      model: `model(state, X, y) -> LinearModel`.
      solve: `solve(X, y, ...) -> Solution` does it all, much faster than steps do.
    """

    init: Callable[..., Any]
    step: Callable[[Any, Any, Any], Any]
    objective: Callable[[Any, Any, Any], Objective]
    model: Callable[[Any, Any, Any], LinearModel | KernelModel]
    solve: Callable[..., "Solution"]


class Solver(NamedTuple):
    """What a linear algorithm is made of.

    A state has the fields `weights` and `constant`, see `patterns`; `num_passes`,
    `num_visits`; and `settled`, whether a pass over everything has found nothing to
    change.

    Attributes:
      round: `round(state, patterns) -> state`, with at least one pass over everything
        that may still change.
      value: `value(state, margins) -> Objective`, of the margins of all patterns with
        `state.weights`.
      scale: `scale(state)` is what these weights are divided by to give the model.
      kept: `kept(state)` is what is kept of each pattern.
    """

    round: Callable[[Any, Rows], Any]
    value: Callable[[Any, Float[Array, " n"]], Objective]
    scale: Callable[[Any], Float[Array, "*models"]]
    kept: Callable[[Any], Float[Array, "*models n"]]


class Solution(NamedTuple):
    """What a linear solver has reached; with several penalties, one of each a penalty.

    Attributes:
      model: the classifier, in JAX's default precision.
      objective: `J(w)`, in double precision as all other figures.
      delta_aft: `(J(w) - J_opt) / J_opt` is at most this, infinite where nothing is
        known yet: `J` over the value of the dual, less 1.
      num_passes: passes over the whole training set.
      num_visits: visits to a pattern, in these passes and between them.
      converged: whether `delta_aft` is at most what was asked for, or a pass over the
        whole training set has changed nothing.
      history: how `objective`, `delta_aft`, `num_passes` and `num_visits` went.
      dtype: in which the solver computed.
      num_learned: times a pattern was added to the weights, `t+`, for the Margin
        Perceptron; else None.
      num_unlearned: times one was taken away, `t-`, for the Margin Perceptron.
    """

    model: LinearModel | KernelModel
    objective: Float[np.ndarray, "*models"]
    delta_aft: Float[np.ndarray, "*models"]
    num_passes: Float[np.ndarray, "*models"]
    num_visits: Float[np.ndarray, "*models"]
    converged: Bool[np.ndarray, "*models"]
    history: "History"
    dtype: str
    num_learned: Float[np.ndarray, "*models"] | None = None
    num_unlearned: Float[np.ndarray, "*models"] | None = None


class History(NamedTuple):
    """The way of a `Solution`, one entry a round, first of all of the empty model.

    Attributes:
      objective: shape `(rounds,)`, or `(rounds, models)`.
      delta_aft: of the same shape.
      num_passes: of the same shape.
      num_visits: of the same shape.
    """

    objective: Float[np.ndarray, "rounds ..."]
    delta_aft: Float[np.ndarray, "rounds ..."]
    num_passes: Float[np.ndarray, "rounds ..."]
    num_visits: Float[np.ndarray, "rounds ..."]


def solved(
    where: str,
    solver: Solver,
    state: Any,
    patterns: Rows,
    *,
    stop: float,
    max_passes: int,
    progress: bool,
) -> tuple[Any, dict[str, Any]]:
    """Runs rounds until the gap is small, nothing changes, or the passes are used up.

    Args:
      where: the caller's name, for messages and the bar.
      solver: what it is made of.
      state: of it, or states, stacked.
      patterns: of the training set.
      stop: the `delta_aft` that is enough.
      max_passes: passes over the whole training set, at most.
      progress: whether to show a bar.

    Returns:
      The last state, and all fields of a `Solution` but the model.
    """
    checks.positive(where, "stop", stop)
    if np.shape(stop):
        raise ValueError(f"{where}: stop must be a number, got shape {np.shape(stop)}")
    checks.size(where, "max_passes", max_passes)
    several = state.num_passes.ndim == 1
    entries = []

    def enter():
        primal, dual = _objectives(solver, several, state, patterns)
        entry = (primal, delta(primal, dual), state.num_passes, state.num_visits)
        entries.append([np.asarray(value) for value in entry])

    enter()
    with progress_bar.reporting(where, progress, "passes", max_passes) as report:
        while True:
            objective, reached, passes, _ = entries[-1]
            if np.any(np.isnan(objective)):
                raise ValueError(
                    f"{where}: the objective must be a number, got {objective}; "
                    "lower penalty, or scale X down"
                )
            done = (reached <= stop) | np.asarray(state.settled)
            done |= passes >= max_passes
            if np.all(done):
                break
            state = _round(solver, several, state, patterns, jnp.asarray(done))
            enter()
            told = float(np.max(entries[-1][1]))
            # Whole passes: those of a round may be fractions.
            now, before = int(np.max(entries[-1][2])), int(np.max(passes))
            report(f"gap {told:.2g}", now - before)
    history = History(*(np.stack(column) for column in zip(*entries, strict=True)))
    figures = {name: column[-1] for name, column in history._asdict().items()}
    reached = (figures["delta_aft"] <= stop) | np.asarray(state.settled)
    figures |= {
        "converged": reached,
        "history": history,
        "dtype": str(history.objective.dtype),
    }
    return state, figures


def solve_linear(
    where: str,
    X: Any,
    y: ArrayLike,
    init: Callable[..., Any],
    solver: Solver,
    *,
    penalty: ArrayLike,
    augment: float,
    stop: float,
    max_passes: int,
    progress: bool,
) -> tuple[Any, Solution]:
    """Solves a problem without a kernel, for one penalty or several, in float64.

    Args:
      where: the caller's name, for messages and the bar.
      X: as for the solvers' `init`.
      y: as for the solvers' `init`.
      init: `init(X, y, penalty=, augment=) -> state`.
      solver: what it is made of.
      penalty: one, or several.
      augment: as for the solvers' `init`.
      stop: the `delta_aft` that is enough.
      max_passes: passes, at most.
      progress: whether to show a bar.

    Returns:
      The last state, or states, and the solution.
    """
    checks.positive(where, "penalty", penalty)
    shape = np.shape(penalty)
    if len(shape) > 1 or shape == (0,):
        raise ValueError(
            f"{where}: penalty must be a number or some of them, got shape {shape}"
        )
    with jax.enable_x64(True):
        state, shown, d = _start(where, X, y, init, penalty, augment)
        state, figures = solved(
            where,
            solver,
            state,
            shown,
            stop=stop,
            max_passes=max_passes,
            progress=progress,
        )
        found = linear_model(solver, state, d)
    return state, solution(found, figures)


def linear_model(solver: Solver, state: Any, d: int) -> LinearModel:
    """The model, or models, of a state, or states, for `d` features."""
    return weighed(state.weights, state.constant, d, solver.scale(state))


def model(where: str, solver: Solver, state: Any, X: Any) -> LinearModel:
    """The model of a state, for the features of its training set.

    Raises:
      ValueError: if the set has another number of features than the state.
    """
    rows = as_rows(where, X)
    size = state.weights.shape[-1]
    if width(rows, state.constant) != size:
        raise ValueError(
            f"{where}: X must be the training set of the state, whose patterns have "
            f"{size} numbers, got {width(rows, state.constant)}"
        )
    return linear_model(solver, state, rows.size)


def objective(solver: Solver, state: Any, X: Any, y: ArrayLike) -> Objective:
    """What a state has reached on the training set as the user has it."""
    X, y = given(X, y)
    n = solver.kept(state).shape[-1]
    if (X.number, *y.shape) != (n, n):
        raise ValueError(
            f"objective: X and y must be the training set of the state, {n} rows, got "
            f"{X.number} and labels of shape {y.shape}"
        )
    return _objective(solver, state, X, y)


@functools.partial(jax.jit, static_argnums=0)
def _objective(
    solver: Solver,
    state: Any,
    rows: DenseRows | SparseRows,
    y: Float[Array, " n"],
) -> Objective:
    unscaled = weighed(state.weights, state.constant, rows.size)
    return solver.value(state, y * scores(rows, *unscaled))


def _start(
    where: str,
    X: Any,
    y: ArrayLike,
    init: Callable[..., Any],
    penalty: ArrayLike,
    augment: float,
) -> tuple[Any, Rows, int]:
    """The state, or states, the patterns, and the number of features."""
    rows, y = examples(where, X, y)
    if np.shape(penalty):
        # One by one: within `vmap`, numbers have no values to check.
        states = [
            init(rows, y, penalty=each, augment=augment) for each in np.asarray(penalty)
        ]
        state = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
    else:
        state = init(rows, y, penalty=penalty, augment=augment)
    constant = constant_feature(where, augment, y.dtype)
    return state, patterns(rows, y, constant), rows.size


def scores(
    rows: DenseRows | SparseRows, weights: Float[Array, " d"], bias: Float[Array, ""]
) -> Float[Array, " n"]:
    """`weights . x + bias` of all rows."""
    if isinstance(rows, SparseRows):
        return products(rows, weights) + bias
    values = rows.values.astype(weights.dtype)
    return jnp.matmul(values, weights, precision="highest") + bias


def weighed(
    weights: Float[Array, "*models size"],
    constant: Float[Array, "*models"] | None,
    d: int,
    scale: Float[Array, "*models"] | None = None,
) -> LinearModel:
    """The model, or models, of weights of patterns, over this scale if there is one."""
    features = weights[..., :d]
    bias = jnp.zeros_like(features[..., 0])
    if constant is not None:
        bias = constant * weights[..., d]
    if scale is not None:
        features, bias = features / scale[..., None], bias / scale
    return LinearModel(features, bias)


def solution(model: LinearModel | KernelModel, figures: dict[str, Any]) -> Solution:
    """What to give back, of a model with arrays of any precision."""
    # NumPy arrays become arrays of JAX's default precision.
    model = jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)), model)
    return Solution(model=model, **figures)


def delta(
    primal: Float[Array, "*models"], dual: Float[Array, "*models"]
) -> Float[Array, "*models"]:
    """By how much a primal value may exceed the optimum, as a share of that."""
    # Before there is a dual value above 0, nothing is known.
    return jnp.where(dual > 0, primal / jnp.where(dual > 0, dual, 1) - 1, jnp.inf)


@functools.partial(jax.jit, static_argnums=(0, 1), donate_argnums=2)
def _round(
    solver: Solver, several: bool, state: Any, patterns: Rows, done: Bool[Array, "..."]
) -> Any:
    def one(given):
        state, done = given
        return jax.lax.cond(
            done,
            lambda state: state,
            lambda state: solver.round(state, patterns),
            state,
        )

    # One model after the other: side by side, each would wait for all others at every
    # visit, and copy what it must not change.
    return jax.lax.map(one, (state, done)) if several else one((state, done))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _objectives(solver: Solver, several: bool, state: Any, patterns: Rows) -> Objective:
    def one(state):
        return solver.value(state, products(patterns, state.weights))

    return jax.lax.map(one, state) if several else one(state)
