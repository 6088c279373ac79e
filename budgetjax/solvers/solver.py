"""Solvers of a whole training set: their record, and `solve`, which drives them."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import checks, progress_bar, sharding, shown
from budgetjax.solvers.linear.rows import sparse_rows
from budgetjax.solvers.training_set import Scalar, Vector

# So that an editor knows the arguments of an `init`, and the fields of its state.
Arguments = ParamSpec("Arguments")
State = TypeVar("State")


class Objective(NamedTuple):
    """What a state has reached.

    Attributes:
      primal: value of the problem at the state's model.
      dual: bound on that of all models: below `primal` where the problem is to
        minimise, above it where it is to maximise.
    """

    primal: Scalar
    dual: Scalar


@shown.documented
@dataclasses.dataclass(frozen=True, repr=False)
class Solver(Generic[Arguments, State]):
    """A solver of a problem on a whole training set: pure functions over its state.

    A state is a `NamedTuple`, complete but for the training set, which all functions
    take with it. `algorithm` is the solver's name, `key` the source of what it draws,
    and arguments of `init` keep their names; sizes and flags are structure, not
    leaves. A kernel solver's state also has

    - `rows`: the kernel, and its known rows.
    - `coefficients`: alpha, shape `(n,)`.
    - `responses`: `Q alpha`, that is `y_i f(x_i)` without the bias, shape `(n,)`.
    - `num_updates`: how often a coefficient, or a pair of them, has changed.
    - `digest`: identifies `y`.

    and that of a linear solver

    - `weights`: `w`: the features', and the constant's if there is one.
    - `problem`: what it knows of the patterns, the weights of the examples for one.
    - `num_visits`, and `settled`, whether the last pass over all patterns has changed
      nothing; not with `linear_pegasos`, whose steps are no passes.

    Every `init` returns the state of the zero model, with linear solvers in JAX's
    default precision, and raises a `ValueError` if an argument does not fit. It takes
    the training set and, by name, some of these:

    - `X`: examples, shape `(n, d)`; float64 stays so. Linear solvers also take a matrix
      of `scipy.sparse` or `budgetjax.sparse_rows`, and leave numbers in their type.
    - `y`: labels, -1 and +1, both, shape `(n,)`.
    - `penalty`: C, positive.
    - `weight`: weight of each example, above 0, shape `(n,)`; 2 counts it twice.
    - `fit_bias`: whether to add a bias. In kernel solvers it is not regularised. In
      linear ones it is the weight of a constant feature of the value `bias_scale`, rho,
      and part of the norm like all weights.
    - `seed`: seed of the random draws or orders: an integer, or a key of `jax.random`.
    - `kernel`: positive definite.
    - `batch_size`: examples per step.
    - `cache_size`: mebibytes for kernel rows, which are kept for the next time they are
      needed, at least two batches of them. Up to 4,096 examples all kernel values are
      computed at the start, if they fit; None does so for any number.
    - `rows`: `rows` of another state with this kernel, `X` and `batch_size`, to share.

    Attributes:
      name: the solver's name.
      init: `init(X, y, ...) -> state`, the state of the zero model, with all arguments
        checked.
      prepare: `prepare(state, X, y) -> (X, y)`, the training set of the state as the
        other functions take it: arrays of floats, or patterns for linear solvers.
      step: `step(state, X, y) -> state`, for `jax.jit` and loops: a batch of updates,
        or, for a linear solver, a pass over the patterns.
      objective: `objective(state, X, y) -> Objective`.
      model: `model(state, X, y)`, a `KernelModel` or a `LinearModel`. The number of
        vectors of a kernel model depends on values, so this cannot be traced.
      work: `work(state) -> int`, kernel values computed since `init`, or patterns
        visited.
      vectors: `vectors(state)`, the number of examples with a coefficient.
      settled: `settled(state) -> bool`, whether nothing is left to change.
      warm: `warm(state, X, before) -> state`, a start from where a run with another
        penalty ended; None starts from zero.
      linear: whether rows may be sparse; `solve` then computes in float64, whatever
        JAX's default precision is.
      max_steps: default of `solve`.
      callback_every: default of `solve`.
    """

    name: str
    init: Callable[Arguments, State]
    prepare: Callable[[Any, Any, Any], tuple[Any, Any]]
    step: Callable[[State, Any, Any], State]
    objective: Callable[[Any, Any, Any], Objective]
    model: Callable[[Any, Any, Any], Any]
    work: Callable[[Any], int]
    vectors: Callable[[Any], Array] = lambda state: jnp.count_nonzero(
        state.coefficients
    )
    settled: Callable[[Any], Array | bool] = lambda state: False
    warm: Callable[[Any, Any, Any], Any] | None = None
    linear: bool = False
    max_steps: int = 10_000
    callback_every: int = 100

    def __repr__(self) -> str:
        return f"Solver({self.name!r})"


class Record(NamedTuple):
    """What a run has reached, as its callback sees it.

    Attributes:
      step: steps made in this run.
      primal: see `Objective`.
      dual: see `Objective`.
      gap: relative gap, `|primal - dual|` over the smaller of the two; infinite while
        that is not above 0.
      work: kernel values computed, or patterns visited, since `init`.
      vectors: examples with a coefficient, the support vectors of a kernel model.
    """

    step: int
    primal: float
    dual: float
    gap: float
    work: int
    vectors: int


class History(NamedTuple):
    """The records of a run, one array per field of `Record`, shape `(records,)`."""

    step: Shaped[np.ndarray, " records"]
    primal: Float[np.ndarray, " records"]
    dual: Float[np.ndarray, " records"]
    gap: Float[np.ndarray, " records"]
    work: Shaped[np.ndarray, " records"]
    vectors: Shaped[np.ndarray, " records"]


class Solution(NamedTuple):
    """What `solve` returns.

    Attributes:
      model: the classifier, a `KernelModel` or a `LinearModel`.
      history: the records of the run, the first of its start.
      state: the last state, from which `solve` can go on.
      converged: whether the gap is at most `tolerance`, or nothing was left to change.
    """

    model: Any
    history: History
    state: Any
    converged: bool

    __repr__ = shown.short


@sharding.automatic_on_host
def solve(
    solver: Solver,
    X: Any,
    y: ArrayLike,
    *,
    state: Any = None,
    max_steps: int | None = None,
    tolerance: float | None = 1e-3,
    callback: Callable[[Any, Record], Any] | None = None,
    callback_every: int | None = None,
    progress: bool = False,
    **arguments: Any,
) -> Any:
    """Solves a problem on a whole training set, until its relative gap is small.

    Args:
      solver: for example `budgetjax.smo` or `budgetjax.mpu`.
      X: the training set, shape `(n, d)`; see `Solver`. Kernel solvers run on all
        devices that it is sharded over by rows.
      y: labels, -1 and +1, shape `(n,)`.
      state: state of this solver on this training set to go on from. It stays valid.
      max_steps: maximum number of steps; None is the solver's default.
      tolerance: relative gap at which to stop. None makes all steps.
      callback: called as `callback(state, record)` with each `Record`; the run ends
        when it returns True. It may keep the state, so a run with a callback needs the
        memory of two.
      callback_every: steps per record; None is the solver's default.
      progress: whether to show a bar, with the gap.
      **arguments: arguments of the solver's `init`: `kernel`, `penalty` and so on. A
        sequence of penalties is solved one by one, on the same kernel rows, and by some
        solvers each from the solution of the one before: give them in order.

    Returns:
      A `Solution`; for several penalties a tuple of them.

    Raises:
      ValueError: if an argument is out of its range, the state is not of this solver
        and training set, or the objective is not finite.
      ImportError: if `progress` needs tqdm.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("checkerboard")
      >>> X, y = data.X_train[:500], data.y_train[:500]
      >>> solution = bj.solve(bj.smo, X, y, kernel=bj.RBF(4.0), penalty=2.0)
      >>> solution.converged, bool(solution.history.gap[-1] <= 1e-3)
      (True, True)
      >>> bool((solution.model.predict(data.X_test) == data.y_test).mean() > 0.8)
      True
    """
    where = "solve"
    checks.on_host(where, X, y, state, arguments)
    if not isinstance(solver, Solver):
        raise ValueError(
            f"{where}: solver must be one such as budgetjax.smo, got "
            f"{checks.named(solver)}"
        )
    steps = solver.max_steps if max_steps is None else max_steps
    every = solver.callback_every if callback_every is None else callback_every
    steps = checks.size(where, "max_steps", steps, at_least=0)
    every = checks.size(where, "callback_every", every)
    if tolerance is not None:
        checks.non_negative(where, "tolerance", tolerance)
        if np.ndim(tolerance):
            raise ValueError(f"{where}: tolerance must be a number, got {tolerance!r}")
    if state is not None:
        checks.check_algorithm(where, solver, state)
        for name in arguments:
            raise ValueError(f"{where}: a state has its {name}, got another with it")
    # Some solvers have thresholds of their own that follow from it.
    elif tolerance and "tolerance" in inspect.signature(solver.init).parameters:
        arguments["tolerance"] = tolerance
    penalty = arguments.get("penalty")
    several = penalty is not None and _is_vector(penalty)
    prepared, found = None, []
    run = functools.partial(_solve, solver, steps, tolerance, callback, every, progress)
    with jax.enable_x64(True) if solver.linear else contextlib.nullcontext():
        if solver.linear and hasattr(X, "tocsr"):
            X = sparse_rows(X)
        for each in np.asarray(penalty) if several else [penalty]:
            given = arguments | ({"penalty": each} if several else {})
            start = solver.init(X, y, **given) if state is None else state
            prepared = prepared or solver.prepare(start, X, y)
            if found and solver.warm is not None:
                start = solver.warm(start, prepared[0], found[-1].state)
            held = state is not None or "rows" in arguments
            found.append(run(_copied(start) if held else _ours(start), *prepared))
            if several and hasattr(found[-1].state, "rows"):
                arguments["rows"] = found[-1].state.rows
    if solver.linear:
        # NumPy arrays become arrays of JAX's default precision.
        found = [
            each._replace(model=jax.tree.map(jnp.asarray, jax.device_get(each.model)))
            for each in found
        ]
    return tuple(found) if several else found[0]


def dual_of_best_multiple(
    coefficients: Vector, limits: Vector, squared_norm: Scalar
) -> Scalar:
    """The largest dual value of a multiple of dual coefficients, within their limits.

    The dual of the hinge loss is their sum less half the squared norm of their model.
    """
    total = jnp.sum(coefficients)
    largest = jnp.max(coefficients / limits)
    tiny = jnp.finfo(coefficients.dtype).tiny
    best = jnp.minimum(
        total / jnp.maximum(squared_norm, tiny), 1 / jnp.maximum(largest, tiny)
    )
    return best * total - best * best * squared_norm / 2


def _is_vector(penalty: Any) -> bool:
    try:
        shape = np.shape(penalty)
    except ValueError:
        return False
    return len(shape) == 1 and shape[0] > 0


def _solve(
    solver: Solver,
    max_steps: int,
    tolerance: float | None,
    callback: Callable[[Any, Record], Any] | None,
    every: int,
    progress: bool,
    state: Any,
    X: Any,
    y: Any,
) -> Solution:
    """The solution of one problem, on a training set that is prepared.

    The state is donated.
    """
    record = _record(solver, state, X, y, 0)
    records = [record]

    def converged() -> bool:
        near = tolerance is not None and record.gap <= tolerance
        return near or bool(solver.settled(state))

    advance = _advance_in_place if callback is None else _advance
    with progress_bar.reporting("solve", progress, "steps", max_steps) as report:
        while not (
            (callback is not None and callback(state, record))
            or converged()
            or record.step >= max_steps
        ):
            count = min(every, max_steps - record.step)
            state = advance(solver, state, X, y, jnp.int32(count))
            record = _record(solver, state, X, y, record.step + count)
            records.append(record)
            report(f"gap {record.gap:.2g}", count)
    history = History(*map(np.asarray, zip(*records, strict=True)))
    return Solution(solver.model(state, X, y), history, state, converged())


@jax.jit
def _copied(state: Any) -> Any:
    return jax.tree.map(jnp.copy, state)


def _ours(state: Any) -> Any:
    """A copy of a state that nobody else holds, but for its kernel rows, which stay."""
    rows = getattr(state, "rows", None)
    if rows is None:
        return _copied(state)
    copied = _copied(state._replace(rows=rows._replace(kept=None)))
    return copied._replace(rows=copied.rows._replace(kept=rows.kept))


def _steps(solver: Solver, state: Any, X: Any, y: Any, count: Array) -> Any:
    def step(_, state):
        return solver.step(state, X, y)

    return jax.lax.fori_loop(jnp.zeros_like(count), count, step, state)


_advance = jax.jit(_steps, static_argnums=0)
_advance_in_place = jax.jit(_steps, static_argnums=0, donate_argnums=1)


@functools.partial(jax.jit, static_argnums=0)
def _reached(solver: Solver, state: Any, X: Any, y: Any) -> tuple[Objective, Array]:
    return solver.objective(state, X, y), solver.vectors(state)


def _record(solver: Solver, state: Any, X: Any, y: Any, step: int) -> Record:
    objective, vectors = _reached(solver, state, X, y)
    primal, dual = map(float, objective)
    if np.isnan(primal):
        raise ValueError(
            f"solve: the objective must be a number, got {primal} after {step} steps: "
            "numbers overflow; scale X down, or lower penalty"
        )
    lower = min(primal, dual)
    gap = abs(primal - dual) / lower if lower > 0 else np.inf
    return Record(step, primal, dual, gap, solver.work(state), int(vectors))
