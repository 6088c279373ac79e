"""The base of all solvers of a whole training set, and `solve`, which drives them."""

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer, Shaped

from budgetjax import _checks, _progress, _record, _sharding
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Record, leaf
from budgetjax._rows import RawRows
from budgetjax.model import Wrapper
from budgetjax.solvers.row_cache import KernelCache
from budgetjax.solvers.training_set import Scalar, TrainingSet, Vector

Own = TypeVar("Own", bound="Solver")
# Let an editor know the fields of states and models.
State = TypeVar("State", bound="SolverState")
Model = TypeVar("Model")


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


class SolverState(Record, abstract=True):
    """What a solver knows after some steps: all but the training set.

    Attributes:
      solver: with its numbers as arrays; a step never changes it.
      digest: a checksum of the training set.
    """

    solver: Any
    digest: Integer[Array, ""]


def _check_tolerance(name: str, value: Any) -> None:
    if value is not None:
        _checks.non_negative(name, value)


class Solver(Record, Generic[State, Model], abstract=True):
    """A solver of a problem on a whole training set: a value with its parameters.

    `budgetjax.solve` drives it. A loop of your own reads the training set, and makes
    steps, which are pure; new parameters never compile another program:

        data = solver.read(X, y)
        state = solver.init(data)
        state = solver.step(state, data)
        solver.objective(state, data), solver.model(state, data)

    Solvers with a kernel derive from `budgetjax.KernelSolver`, and linear ones from
    `budgetjax.LinearSolver`. A solver of your own is a subclass of one of these, with
    its fields, `step`, and what is not as its base has it.

    Args:
      tolerance: the relative gap at which `solve` stops. None makes all steps.
      seed: of random draws or orders, an integer or a key of `jax.random`.

    Attributes:
      max_steps: the default of `solve`; of the class.
      callback_every: the default of `solve`; of the class.
      linear: whether rows may be sparse; of the class.
    """

    tolerance: ArrayLike | None = leaf(_check_tolerance, default=1e-3, kw_only=True)
    seed: ArrayLike = leaf(
        lambda name, value: _checks.seed(value), default=0, kw_only=True
    )

    max_steps: ClassVar[int] = 10_000
    callback_every: ClassVar[int] = 100
    linear: ClassVar[bool] = False

    def read(
        self, X: RawRows, y: ArrayLike, weight: ArrayLike | None = None
    ) -> TrainingSet:
        """The training set, checked, of one dtype, and on the device.

        Args:
          X: examples, shape `(n, d)`.
          y: labels, -1 and +1, both present, shape `(n,)`.
          weight: the weight of each example, above 0, shape `(n,)`; 2 counts it twice.

        Raises:
          ValueError: if an argument is invalid.
        """
        raise NotImplementedError

    def init(self, data: Any, cache: KernelCache | None = None) -> State:
        """The state of the zero model.

        Args:
          data: from `read`.
          cache: kernel rows that other runs have computed; see `budgetjax.KernelCache`.
        """
        raise NotImplementedError

    def step(self, state: State, data: Any) -> State:
        """The state after one step."""
        raise NotImplementedError

    def objective(self, state: State, data: Any) -> Objective:
        """The objective values of a state."""
        raise NotImplementedError

    def model(self, state: State, data: Any) -> Model:
        """The model of a state.

        The number of vectors of a kernel model depends on values, so it cannot be
        traced.
        """
        raise NotImplementedError

    def num_vectors(self, state: State) -> Array:
        """The number of examples with a coefficient."""
        raise NotImplementedError

    def work(self, state: State) -> int:
        """Kernel values computed, or patterns visited."""
        raise NotImplementedError

    def is_stationary(self, state: State) -> Array | bool:
        """Whether the state can change no further."""
        return False

    def warm_start(self, data: Any, before: State) -> State:
        """A start from a state of other parameters, for solvers that have one."""
        kind = type(self).__name__
        wanted = f"be of the same parameters, as {kind} has no start from others"
        raise ArgumentError("start", wanted, "others")

    def bind(self: Own, data: Any) -> Own:
        """The solver with its numbers as arrays of the dtype of a training set."""
        known = _checks.numbers_as_leaves(self, data.dtype, but=("seed",))
        seed = jnp.asarray(_checks.seed(self.seed), jnp.int32)
        return self._replace(seed=seed, **known)

    def check_data(self, data: Any) -> None:
        """Raises if a bound solver cannot run on what another one has read."""

    def is_same(self, other: Any) -> bool:
        """Whether a bound solver goes on as another does, both on one training set."""
        free = {"tolerance": None, "seed": None}
        return _record.equal(self._replace(**free), other._replace(**free))

    def resume(
        self, data: Any, before: State, cache: KernelCache | None = None
    ) -> State:
        """A state from which a run goes on; what `start` of `solve` becomes.

        It is `before` if that is of the same parameters, but for seed and tolerance,
        otherwise `warm_start`.
        """
        if type(getattr(before, "solver", None)) is not type(self):
            wanted = f"be a state of {type(self).__name__}"
            raise ArgumentError("start", wanted, _checks.kind_name(before))
        with names_errors(type(self).__name__):
            solver = self.bind(data)
            solver.check_data(data)
        if int(before.digest) != int(data.digest):
            wanted = "be of this training set, in its order"
            raise ArgumentError("start", wanted, "of another")
        if solver.is_same(before.solver):
            state = before._replace(solver=solver)
        else:
            state = solver.warm_start(data, before)
        return self.take_rows(state, data, cache)

    def take_rows(self, state: State, data: Any, cache: KernelCache | None) -> State:
        """The state with kernel rows, for a solver that needs some."""
        if cache is not None:
            kind = type(self).__name__
            wanted = f"be None, as {kind} has no kernel rows"
            raise ArgumentError("cache", wanted, "one", kind)
        return state

    def split_rows(self, state: State) -> tuple[State, Any]:
        """The state without kernel rows, and these, or None."""
        return state, None

    def join_rows(self, state: State, rows: Any) -> State:
        """The state with the kernel rows of `split_rows`."""
        return state

    def precision(self) -> contextlib.AbstractContextManager:
        """The precision in which `solve` computes."""
        return contextlib.nullcontext()


@_record.record
class Progress(NamedTuple):
    """The progress of a run, as its callback sees it.

    Attributes:
      step: the number of steps in this run.
      primal: see `Objective`.
      dual: see `Objective`.
      gap: the relative gap, `|primal - dual|` divided by the smaller of the two;
        infinite unless that is positive.
      work: kernel values computed in this run, or patterns visited since `init`.
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
      state: the last state, from which `solve` can go on; it has no kernel rows.
      converged: whether the gap is at most the tolerance, or the state could change no
        further.
    """

    model: Model
    history: History
    state: State
    converged: bool


@overload
def solve(
    solver: Solver[State, Model],
    X: RawRows,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    start: State | None = None,
    cache: KernelCache | None = None,
    max_steps: int | None = None,
    callback: Callable[[State, Progress], object] | None = None,
    callback_every: int | None = None,
    progress: bool = False,
) -> Solution[State, Model]: ...
@overload
def solve(
    solver: Solver[State, Model],
    X: TrainingSet,
    *,
    start: State | None = None,
    cache: KernelCache | None = None,
    max_steps: int | None = None,
    callback: Callable[[State, Progress], object] | None = None,
    callback_every: int | None = None,
    progress: bool = False,
) -> Solution[State, Model]: ...
@names_errors("solve")
@_sharding.with_auto_axes_on_host
def solve(
    solver: Solver[State, Model],
    X: Any,
    y: ArrayLike | None = None,
    *,
    weight: ArrayLike | None = None,
    start: State | None = None,
    cache: KernelCache | None = None,
    max_steps: int | None = None,
    callback: Callable[[State, Progress], object] | None = None,
    callback_every: int | None = None,
    progress: bool = False,
) -> Solution[State, Model]:
    """Solves a problem on a whole training set until its relative gap is small.

    Cost: the steps of the solver, see its class; and per record at most O(n log n), or
    O(n d) for a linear solver. Memory: X, and kernel rows up to the size of the cache.

    Args:
      solver: for example `budgetjax.SMO(budgetjax.RBF(0.5), penalty=2.0)`.
      X: the training set, shape `(n, d)`, or what `solver.read` made of one, which then
        is not read again. If its rows are sharded, kernel solvers run on all devices.
        Linear solvers also take a matrix of `scipy.sparse` or `budgetjax.sparse_rows`.
      y: labels, -1 and +1, both present, shape `(n,)`.
      weight: the weight of each example, above 0, shape `(n,)`; 2 counts it twice.
      start: a state of this solver on this training set from which to continue. Linear
        solvers also start from one of another penalty. It stays valid.
      cache: kernel rows to share with other runs; None keeps up to 512 MiB of them for
        this run alone.
      max_steps: the maximum number of steps; None is the solver's default.
      callback: called as `callback(state, record)` with each `Progress`; the run ends
        when it returns True. It may keep the state.
      callback_every: steps per record; None is the solver's default.
      progress: whether to show a progress bar with the gap.

    Raises:
      ValueError: if an argument is out of range, the start belongs to another solver or
        training set, or the objective is not finite.

    Example:
      >>> X, y = bj.datasets.checkerboard(500, seed=0)
      >>> solution = bj.solve(bj.SMO(bj.RBF(4.0), penalty=2.0), X, y)
      >>> solution.converged, bool(solution.history.gap[-1] <= 1e-3)
      (True, True)

      Several penalties, on a training set that is read once, with shared kernel rows:

      >>> data, cache = bj.SMO(bj.RBF(4.0)).read(X, y), bj.KernelCache()
      >>> solutions = [
      ...     bj.solve(bj.SMO(bj.RBF(4.0), penalty=penalty), data, cache=cache)
      ...     for penalty in (0.5, 1.0, 2.0)]
      >>> int(solutions[1].history.work[-1])
      0
    """
    _checks.check_not_traced(solver, X, y, weight, start)
    if not isinstance(solver, Solver):
        wanted = "be one such as budgetjax.SMO(budgetjax.RBF(1.0))"
        kind = solver.__name__ if isinstance(solver, type) else None
        raise ArgumentError("solver", wanted, kind or _checks.kind_name(solver))
    steps = solver.max_steps if max_steps is None else max_steps
    every = solver.callback_every if callback_every is None else callback_every
    steps = _checks.size("max_steps", steps, at_least=0)
    every = _checks.size("callback_every", every)
    with solver.precision():
        if not isinstance(X, TrainingSet):
            data = solver.read(X, y, weight)  # pyright: ignore[reportArgumentType]
        elif y is None and weight is None:
            data = X
        else:
            wanted = "be None, as the training set that was read has its own"
            raise ArgumentError("y and weight", wanted, "some")
        if start is None:
            state = solver.init(data, cache)
        else:
            state = solver.resume(data, start, cache)
        found, rows = _solve(state, data, steps, callback, every, progress)
    if cache is not None:
        cache.give(rows)
    if solver.linear:
        # NumPy arrays become arrays of JAX's default precision.
        on_host = jax.device_get(found.model)
        found = found._replace(model=jax.tree.map(jnp.asarray, on_host))
    return found


@names_errors("held_out_stop")
def held_out_stop(
    data: TrainingSet, X_held: Any, y_held: ArrayLike, *, patience: int = 5
) -> Callable[[Any, Progress], bool]:
    """A callback for `solve` that ends a run when its held-out error settles.

    Good predictions often need no small duality gap, and stochastic solvers never reach
    one. The callback predicts the held-out rows at every record, and stops after
    `patience` records without a lower error. The solution is that of the last record,
    not of the lowest error, since noise would choose that one.

    Cost: the scores of the held-out rows at every record, O(m d) per row with m support
    vectors.

    Args:
      data: the training set of the run, from `read` of its solver.
      X_held: rows that are not in the training set, shape `(n, d)`.
      y_held: their labels, -1 and +1, shape `(n,)`.
      patience: the number of records without a lower error after which to stop, at
        least 1.

    Returns:
      A function of a state and a `Progress`. It serves one run only.

    Example:
      >>> rows = bj.datasets.load("checkerboard")
      >>> X, y = rows.X_train[500:1000], rows.y_train[500:1000]
      >>> solver = bj.SBP(bj.RBF(8.0), slack=0.01, tolerance=None)
      >>> data = solver.read(rows.X_train[:500], rows.y_train[:500])
      >>> stop = bj.held_out_stop(data, X, y, patience=3)
      >>> found = bj.solve(solver, data, callback=stop)
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

    def stop(state: Any, record: Progress) -> bool:
        predicted = state.solver.model(state, data).predict(X_held)
        errors.append(float(np.mean(np.asarray(predicted) != labels)))
        return len(errors) - 1 - int(np.argmin(errors)) >= patience

    return stop


def objective_of_sum(
    coefficients: Vector, margins: Vector, penalty: ArrayLike, weight: Vector | None
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


def _solve(
    state: State,
    data: TrainingSet,
    max_steps: int,
    callback: Callable[[State, Progress], object] | None,
    every: int,
    progress: bool,
) -> tuple[Solution[State, Any], Any]:
    """The solution, and the kernel rows of its run, which alone are donated."""
    solver = state.solver
    tolerance = None if solver.tolerance is None else float(solver.tolerance)
    work = solver.work(state)
    state, rows = solver.split_rows(state)
    record = _make_record(state, data, 0, work)
    records = [record]

    def converged() -> bool:
        near = tolerance is not None and record.gap <= tolerance
        return near or bool(solver.is_stationary(state))

    # A copy: the start may be the caller's, and hold arrays of the training set.
    state = _copy(state)
    advance = _advance_in_place if callback is None else _advance
    with _progress.progress_bar("solve", progress, "steps", max_steps) as report:
        while not (
            (callback is not None and callback(state, record))
            or converged()
            or record.step >= max_steps
        ):
            count = min(every, max_steps - record.step)
            state, rows = advance(state, rows, data, jnp.int32(count))
            work = solver.work(solver.join_rows(state, rows))
            record = _make_record(state, data, record.step + count, work)
            records.append(record)
            report(f"gap {record.gap:.2g}", count)
    history = History(*map(np.asarray, zip(*records, strict=True)))
    model = state.solver.model(state, data)
    return Solution(model, history, state, converged()), rows


@jax.jit
def _copy(state: State) -> State:
    return jax.tree.map(jnp.copy, state)


def _steps(
    state: State, rows: Any, data: TrainingSet, count: Array
) -> tuple[State, Any]:
    state = state.solver.join_rows(state, rows)
    state = jax.lax.fori_loop(
        jnp.zeros_like(count),
        count,
        lambda _, state: state.solver.step(state, data),
        state,
    )
    return state.solver.split_rows(state)


_advance = jax.jit(_steps, donate_argnums=1)
_advance_in_place = jax.jit(_steps, donate_argnums=(0, 1))


@jax.jit
def _evaluate(state: SolverState, data: TrainingSet) -> tuple[Objective, Array]:
    solver = state.solver
    return solver.objective(state, data), solver.num_vectors(state)


def _make_record(
    state: SolverState, data: TrainingSet, step: int, work: int
) -> Progress:
    objective, vectors = _evaluate(state, data)
    primal, dual = map(float, objective)
    if np.isnan(primal):
        why = "numbers overflow; scale X down, or lower penalty"
        got = f"{primal} after {step} steps: {why}"
        raise ArgumentError("the objective", "be a number", got)
    lower = min(primal, dual)
    gap = abs(primal - dual) / lower if lower > 0 else np.inf
    return Progress(step, primal, dual, gap, work, int(vectors))
