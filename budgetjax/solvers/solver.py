"""The record of a solver on a whole training set, and `solve`, which drives it."""

import contextlib
import dataclasses
import functools
import inspect
from collections.abc import Callable, Sequence
from typing import (
    Any,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    overload,
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks, _progress, _record, _sharding
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Name
from budgetjax._rows import RawRows
from budgetjax.model import Wrapper
from budgetjax.solvers.training_set import Scalar, Vector

# Let an editor know the arguments of an `init`, the fields of states and models, and
# the form of the examples in `step`: an array, or the patterns of a linear solver.
Arguments = ParamSpec("Arguments")
State = TypeVar("State")
Model = TypeVar("Model")
Data = TypeVar("Data")


@_record.record
class Objective(NamedTuple):
    """The objective values of a state.

    Attributes:
      primal: the value of the problem at the state's model.
      dual: a bound on the value of all models: below `primal` for a minimisation, above
        it for a maximisation.
    """

    primal: Scalar
    dual: Scalar


@_record.doc_from_init
@dataclasses.dataclass(frozen=True, repr=False)
class Solver(Generic[Arguments, State, Model, Data]):
    """A solver of a problem on a whole training set: pure functions over its state.

    A state is a `NamedTuple` that holds everything but the training set, which all
    functions take with it. `algorithm` is the solver's name, `key` is the source of
    random draws, and arguments of `init` keep their names; sizes and flags are
    structure, not leaves. A kernel solver's state also has

    - `rows`: the kernel, and its cached rows.
    - `coefficients`: alpha, shape `(n,)`.
    - `responses`: `Q alpha`, that is `y_i f(x_i)` without the bias, shape `(n,)`.
    - `num_updates`: the number of changes of a coefficient, or of a pair of them.
    - `digest`: a digest of `y`.

    A linear solver's state also has

    - `weights`: `w`, of the features and, with a bias, of the constant.
    - `problem`: properties of the patterns, such as the weights of the examples.
    - `num_visits`, and `is_stationary`, whether the last pass over all patterns changed
      nothing; `linear_pegasos`, which makes no passes, has neither.

    Every `init` returns the state of the zero model, for linear solvers in JAX's
    default precision, and raises a `ValueError` if an argument is invalid. It takes the
    training set and, by name, some of these arguments:

    - `X`: examples, shape `(n, d)`; float64 stays float64. Linear solvers also take a
      matrix of `scipy.sparse` or `budgetjax.sparse_rows`, and keep the dtype of
      numbers.
    - `y`: labels, -1 and +1, both present, shape `(n,)`.
    - `penalty`: C, positive.
    - `weight`: the weight of each example, above 0, shape `(n,)`; 2 counts it twice.
    - `fit_bias`: whether to add a bias. Kernel solvers do not regularise it. In linear
      solvers it is the weight of a constant feature with the value `bias_scale`, rho,
      and part of the norm like all weights.
    - `seed`: the seed of random draws or orders, an integer or a key of `jax.random`.
    - `kernel`: positive definite.
    - `batch_size`: examples per step.
    - `cache_size`: mebibytes for cached kernel rows, at least two batches of them. Up
      to 4,096 examples, all kernel values are computed at the start if they fit; None
      does so for any number of examples.
    - `rows`: `rows` of another state with the same kernel, `X` and `batch_size`, to
      share.

    Attributes:
      name: the solver's name.
      init: `init(X, y, ...) -> state`, the state of the zero model, after checks of all
        arguments.
      prepare: `prepare(state, X, y) -> (X, y)`, the training set of the state in the
        form that the other functions take: arrays of floats, or patterns for linear
        solvers.
      step: `step(state, X, y) -> state`, for `jax.jit` and loops: a batch of updates,
        or, for a linear solver, a pass over the patterns.
      objective: `objective(state, X, y) -> Objective`.
      model: `model(state, X, y)`, a `KernelModel` or a `LinearModel`. The number of
        vectors of a kernel model depends on values, so this cannot be traced.
      work: `work(state) -> int`, the kernel values computed, or the patterns visited,
        since `init`.
      vectors: `vectors(state)`, the number of examples with a coefficient.
      is_stationary: `is_stationary(state) -> bool`, whether the state can change no
        further.
      warm_start: `warm_start(state, X, before) -> state`, a start from the end of a run
        with another penalty; None starts from zero.
      read: `read(X) -> X`, the training set in a form that `init` and `prepare` need
        not convert again, such as `SparseRows` for a matrix of `scipy.sparse`.
      linear: whether rows may be sparse; `solve` then computes in float64, whatever
        JAX's default precision.
      max_steps: the default of `solve`.
      callback_every: the default of `solve`.
    """

    name: str
    init: Callable[Arguments, State]
    prepare: Callable[[State, Any, ArrayLike], tuple[Data, Vector]]
    step: Callable[[State, Data, Vector], State]
    objective: Callable[[State, Data, Vector], Objective]
    model: Callable[[State, Any, Any], Model]
    work: Callable[[State], int]
    vectors: Callable[[Any], Array] = lambda state: jnp.count_nonzero(
        state.coefficients
    )
    is_stationary: Callable[[State], Array | bool] = lambda state: False
    warm_start: Callable[[State, Data, State], State] | None = None
    read: Callable[[Any], Any] = lambda X: X
    linear: bool = False
    max_steps: int = 10_000
    callback_every: int = 100

    def __repr__(self) -> str:
        return f"Solver({self.name!r})"

    def takes(self, argument: str) -> bool:
        """Whether `init` has an argument of this name."""
        return argument in inspect.signature(self.init).parameters


@_record.record
class Progress(NamedTuple):
    """The progress of a run, as its callback sees it.

    Attributes:
      step: the number of steps in this run.
      primal: see `Objective`.
      dual: see `Objective`.
      gap: the relative gap, `|primal - dual|` divided by the smaller of the two;
        infinite unless that is positive.
      work: kernel values computed, or patterns visited, since `init`.
      vectors: the number of examples with a coefficient, the support vectors of a
        kernel model.
    """

    step: int
    primal: float
    dual: float
    gap: float
    work: int
    vectors: int


@_record.record
class History(NamedTuple):
    """The records of a run, one array per field of `Progress`, shape `(records,)`."""

    step: Shaped[np.ndarray, " records"]
    primal: Float[np.ndarray, " records"]
    dual: Float[np.ndarray, " records"]
    gap: Float[np.ndarray, " records"]
    work: Shaped[np.ndarray, " records"]
    vectors: Shaped[np.ndarray, " records"]


class Solution(Wrapper, Generic[State, Model]):
    """The result of `solve`, which predicts by its model.

    Attributes:
      model: the classifier, a `KernelModel` or a `LinearModel`.
      history: the records of the run, the first of its start.
      state: the last state, from which `solve` can continue.
      converged: whether the gap is at most `tolerance`, or the state could change no
        further.
    """

    model: Model
    history: History
    state: State
    converged: bool


@overload
def solve(
    solver: Solver[..., State, Model, Data],
    X: RawRows,
    y: ArrayLike,
    *,
    state: State | None = None,
    max_steps: int | None = None,
    tolerance: float | None = 1e-3,
    callback: Callable[[State, Progress], object] | None = None,
    callback_every: int | None = None,
    progress: bool = False,
    penalty: float | Array = ...,
    **arguments: Any,
) -> Solution[State, Model]: ...
@overload
def solve(
    solver: Solver[..., State, Model, Data],
    X: RawRows,
    y: ArrayLike,
    *,
    penalty: Sequence[float] | np.ndarray,
    **arguments: Any,
) -> tuple[Solution[State, Model], ...]: ...
@names_errors("solve")
@_sharding.with_auto_axes_on_host
def solve(
    solver: Solver[..., State, Model, Data],
    X: RawRows,
    y: ArrayLike,
    *,
    state: State | None = None,
    max_steps: int | None = None,
    tolerance: float | None = 1e-3,
    callback: Callable[[State, Progress], object] | None = None,
    callback_every: int | None = None,
    progress: bool = False,
    **arguments: Any,
) -> Solution[State, Model] | tuple[Solution[State, Model], ...]:
    """Solves a problem on a whole training set until its relative gap is small.

    Cost: the steps of the solver, see its `init`; and per record at most O(n log n), or
    O(n d) for a linear solver. Memory: X, and kernel rows up to `cache_size`.

    Args:
      solver: for example `budgetjax.smo` or `budgetjax.mpu`.
      X: the training set, shape `(n, d)`; see `Solver`. If its rows are sharded, kernel
        solvers run on all devices.
      y: labels, -1 and +1, shape `(n,)`.
      state: a state of this solver on this training set to continue from. It stays
        valid.
      max_steps: the maximum number of steps; None is the solver's default.
      tolerance: the relative gap at which to stop. None makes all steps.
      callback: called as `callback(state, record)` with each `Progress`; the run ends
        when it returns True. It may keep the state, so a run with a callback needs
        memory for two.
      callback_every: steps per record; None is the solver's default.
      progress: whether to show a progress bar with the gap.
      **arguments: arguments of the solver's `init`: `kernel`, `penalty` and so on. A
        sequence of penalties is solved one by one, with shared kernel rows; some
        solvers start from the solution for the previous penalty, so pass them in order.

    Returns:
      A `Solution`, or a tuple of them for several penalties.

    Raises:
      ValueError: if an argument is out of range, the state belongs to another solver or
        training set, or the objective is not finite.

    Example:
      >>> X, y = bj.datasets.checkerboard(500, seed=0)
      >>> solution = bj.solve(bj.smo, X, y, kernel=bj.RBF(4.0), penalty=2.0)
      >>> solution.converged, bool(solution.history.gap[-1] <= 1e-3)
      (True, True)
    """
    _checks.check_not_traced(X, y, state, arguments)
    if not isinstance(solver, Solver):
        kind = _checks.kind_name(solver)
        raise ArgumentError("solver", "be one such as budgetjax.smo", kind)
    steps = solver.max_steps if max_steps is None else max_steps
    every = solver.callback_every if callback_every is None else callback_every
    steps = _checks.size("max_steps", steps, at_least=0)
    every = _checks.size("callback_every", every)
    if tolerance is not None:
        _checks.non_negative("tolerance", tolerance)
        if np.ndim(tolerance):
            raise ArgumentError("tolerance", "be a number", f"{tolerance!r}")
    if state is not None:
        if getattr(state, "algorithm", None) != Name(solver.name):
            kind = _checks.kind_name(state)
            raise ArgumentError("state", f"be of {solver.name}", kind)
        for name in arguments:
            raise ArgumentError(name, "not come with a state", "one")
    # Some solvers derive their own thresholds from it.
    elif tolerance and solver.takes("tolerance"):
        arguments["tolerance"] = tolerance
    penalty = arguments.get("penalty")
    several = _is_vector(penalty)
    run = functools.partial(_solve, solver, steps, tolerance, callback, every, progress)
    prepared, solutions = None, []
    with jax.enable_x64(True) if solver.linear else contextlib.nullcontext():
        X = solver.read(X)
        for value in np.asarray(penalty) if several else [penalty]:
            arguments |= {"penalty": value} if several else {}
            start = solver.init(X, y, **arguments) if state is None else state
            prepared = prepared or solver.prepare(start, X, y)
            if solutions and solver.warm_start is not None:
                start = solver.warm_start(start, prepared[0], solutions[-1].state)
            is_new = state is None and "rows" not in arguments
            start = _copy_to_donate(start, holds_rows=is_new and solver.takes("rows"))
            solutions.append(run(start, *prepared))
            if several and solver.takes("rows"):
                arguments["rows"] = solutions[-1].state.rows
    if solver.linear:
        # NumPy arrays become arrays of JAX's default precision.
        on_host = jax.device_get([one.model for one in solutions])
        pairs = zip(solutions, jax.tree.map(jnp.asarray, on_host), strict=True)
        solutions = [one._replace(model=model) for one, model in pairs]
    return tuple(solutions) if several else solutions[0]


@names_errors("held_out_stop")
def held_out_stop(
    solver: Solver[..., State, Any, Any],
    X: RawRows,
    y: ArrayLike,
    X_held: Any,
    y_held: ArrayLike,
    *,
    patience: int = 5,
) -> Callable[[State, Progress], bool]:
    """A callback for `solve` that ends a run when its held-out error settles.

    Good predictions often need no small duality gap, and stochastic solvers never reach
    one. The callback predicts the held-out rows at every record, and stops after
    `patience` records without a lower error. The solution is that of the last record,
    not of the lowest error, since noise would choose that one.

    Cost: the scores of the held-out rows at every record, O(m d) per row with m support
    vectors.

    Args:
      solver: the solver of the run.
      X: its training set, as passed to `solve`.
      y: the labels of the training set.
      X_held: rows that are not in the training set, shape `(n, d)`.
      y_held: their labels, -1 and +1, shape `(n,)`.
      patience: the number of records without a lower error after which to stop, at
        least 1.

    Returns:
      A function of a state and a `Progress`. It serves one run only.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> train = data.X_train[:500], data.y_train[:500]
      >>> held = data.X_train[500:1000], data.y_train[500:1000]
      >>> found = bj.solve(
      ...     bj.sbp, *train, kernel=bj.RBF(8.0), slack=0.01, tolerance=None,
      ...     callback=bj.held_out_stop(bj.sbp, *train, *held, patience=3))
      >>> int(found.history.step[-1]) < 1000
      True

    References:
      Cotter, Shalev-Shwartz and Srebro (2012), Section 6: "the most practical approach
      seems to be to terminate when a holdout error stabilizes".
      https://arxiv.org/abs/1204.0566
    """
    patience = _checks.size("patience", patience)
    labels = np.asarray(y_held)
    if labels.shape != (len(X_held),) or not np.all(np.abs(labels) == 1):
        wanted = f"be -1 or +1 per row of X_held, of shape ({len(X_held)},)"
        got = f"{labels.tolist()[:3]} of shape {labels.shape}"
        raise ArgumentError("y_held", wanted, got)
    errors: list[float] = []

    def stop(state: State, record: Progress) -> bool:
        predicted = solver.model(state, X, y).predict(X_held)
        errors.append(float(np.mean(np.asarray(predicted) != labels)))
        return len(errors) - 1 - int(np.argmin(errors)) >= patience

    return stop


def objective_of_sum(
    coefficients: Vector, margins: Vector, penalty: Scalar, weight: Vector | None
) -> Objective:
    """The SVM's objective of a sum of patterns, and the dual of its best multiple.

    The dual is the sum of the coefficients minus half the squared norm of the model. A
    multiple keeps each coefficient at most `penalty` times the weight of its example.
    """
    weight = jnp.ones_like(coefficients) if weight is None else weight
    squared_norm = jnp.sum(coefficients * margins)
    loss = jnp.sum(weight * jnp.maximum(1 - margins, 0))
    total, tiny = jnp.sum(coefficients), jnp.finfo(coefficients.dtype).tiny
    largest = 1 / jnp.maximum(jnp.max(coefficients / (penalty * weight)), tiny)
    best = jnp.minimum(total / jnp.maximum(squared_norm, tiny), largest)
    return Objective(
        squared_norm / 2 + penalty * loss,
        best * total - best * best * squared_norm / 2,
    )


def _is_vector(penalty: Any) -> bool:
    try:
        return np.ndim(penalty) == 1 and len(penalty) > 0
    except ValueError:
        return False


def _solve(
    solver: Solver[..., State, Model, Data],
    max_steps: int,
    tolerance: float | None,
    callback: Callable[[State, Progress], object] | None,
    every: int,
    progress: bool,
    state: State,
    X: Data,
    y: Vector,
) -> Solution[State, Model]:
    """The solution of one problem, on a prepared training set; donates the state."""
    record = _make_record(solver, state, X, y, 0)
    records = [record]

    def converged() -> bool:
        near = tolerance is not None and record.gap <= tolerance
        return near or bool(solver.is_stationary(state))

    advance = _advance_in_place if callback is None else _advance
    with _progress.progress_bar("solve", progress, "steps", max_steps) as report:
        while not (
            (callback is not None and callback(state, record))
            or converged()
            or record.step >= max_steps
        ):
            count = min(every, max_steps - record.step)
            state = advance(solver, state, X, y, jnp.int32(count))
            record = _make_record(solver, state, X, y, record.step + count)
            records.append(record)
            report(f"gap {record.gap:.2g}", count)
    history = History(*map(np.asarray, zip(*records, strict=True)))
    return Solution(solver.model(state, X, y), history, state, converged())


@jax.jit
def _copy(state: State) -> State:
    return jax.tree.map(jnp.copy, state)


def _copy_to_donate(state: Any, holds_rows: bool) -> Any:
    """A copy, which shares the cached kernel rows if nothing else holds them."""
    if not holds_rows:
        return _copy(state)
    copy = _copy(state._replace(rows=state.rows._replace(kept=None)))
    return copy._replace(rows=copy.rows._replace(kept=state.rows.kept))


def _steps(
    solver: Solver[..., State, Any, Data],
    state: State,
    X: Data,
    y: Vector,
    count: Array,
) -> State:
    return jax.lax.fori_loop(
        jnp.zeros_like(count), count, lambda _, state: solver.step(state, X, y), state
    )


_advance = jax.jit(_steps, static_argnums=0)
_advance_in_place = jax.jit(_steps, static_argnums=0, donate_argnums=1)


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(
    solver: Solver[..., State, Any, Data], state: State, X: Data, y: Vector
) -> tuple[Objective, Array]:
    return solver.objective(state, X, y), solver.vectors(state)


def _make_record(
    solver: Solver[..., State, Any, Data], state: State, X: Data, y: Vector, step: int
) -> Progress:
    objective, vectors = _evaluate(solver, state, X, y)
    primal, dual = map(float, objective)
    if np.isnan(primal):
        why = "numbers overflow; scale X down, or lower penalty"
        got = f"{primal} after {step} steps: {why}"
        raise ArgumentError("the objective", "be a number", got)
    lower = min(primal, dual)
    gap = abs(primal - dual) / lower if lower > 0 else np.inf
    return Progress(step, primal, dual, gap, solver.work(state), int(vectors))
