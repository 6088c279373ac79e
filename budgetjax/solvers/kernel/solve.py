"""Driving a batch learner: steps in a compiled loop, and what they have reached."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import checks, progress_bar
from budgetjax.models import KernelModel
from budgetjax.solvers.kernel import row_cache
from budgetjax.solvers.kernel.training import same


class Objective(NamedTuple):
    """What a state has reached.

    Attributes:
      primal: the value of the problem that the learner solves, at its model.
      dual: a bound that no model passes: below `primal` where the problem is to
        minimise, above where it is to maximise.
    """

    primal: Float[Array, ""]
    dual: Float[Array, ""]


class BatchAlgorithm(NamedTuple):
    """A batch learner: a namespace of pure functions over its state.

    A state is a `NamedTuple` with the fields `algorithm`, its name, `kernel`, `rows`, a
    `KernelRows`, and whatever else the learner needs. It is complete: all functions
    take the training set with it, and nothing else.

    Attributes:
      init: `init(kernel, X, y, ...) -> state`. It checks the training set.
      step: `step(state, X, y) -> state`, pure, for `jax.jit`, `jax.vmap` and loops. The
        training set is that of `init`, as floats; its values are not checked.
      objective: `objective(state, X, y) -> Objective`, pure as well.
      model: `model(state, X, y) -> KernelModel`, of as many vectors as it needs, so it
        cannot be traced.
      name: what its states are called.
    """

    init: Callable[..., Any]
    step: Callable[[Any, Array, Array], Any]
    objective: Callable[[Any, Array, Array], Objective]
    model: Callable[[Any, ArrayLike, ArrayLike], KernelModel]
    name: str


class Record(NamedTuple):
    """Where a run is, as its callback is told.

    Attributes:
      step: steps made in this run.
      primal: see `Objective`.
      dual: see `Objective`.
      gap: their distance.
      kernel_evaluations: kernel values computed since `init`.
    """

    step: int
    primal: float
    dual: float
    gap: float
    kernel_evaluations: int


class History(NamedTuple):
    """The records of a run, one array for each of their fields, shape `(records,)`."""

    step: Shaped[np.ndarray, " records"]
    primal: Float[np.ndarray, " records"]
    dual: Float[np.ndarray, " records"]
    gap: Float[np.ndarray, " records"]
    kernel_evaluations: Shaped[np.ndarray, " records"]


def solve(
    algorithm: BatchAlgorithm,
    state: Any,
    X: ArrayLike,
    y: ArrayLike,
    *,
    max_steps: int,
    tolerance: float | None = None,
    callback_every: int = 100,
    callback: Callable[[Any, Record], Any] | None = None,
    progress: bool = False,
) -> tuple[Any, History]:
    """Makes steps of a batch learner, until its duality gap is small or time is up.

    The steps between two records are one compiled loop. Nothing the caller holds is
    donated: the old state stays valid, and `solve` goes on from any state.

    Args:
      algorithm: for example `budgetjax.sbp`.
      state: of that algorithm, from its `init` with the same training set.
      X: the training set, shape `(n, d)`. Sharded over devices by rows, it makes
        `init` and all steps run on all of them.
      y: its labels, -1 and +1, shape `(n,)`.
      max_steps: steps to make at most; see the algorithm for what a step is.
      tolerance: stop when the gap is at most this times the primal value's size, at
        least 0. None makes all steps.
      callback_every: steps from one record to the next.
      callback: called with the state and the newest `Record` after each; the run ends
        when it returns True. It must not keep the state, whose memory the next steps
        use, but may make a model of it.
      progress: show a bar, with the gap.

    Returns:
      The state, and the `History` of the run. Its first record is of the state given.

    Raises:
      ValueError: if the state is of another algorithm, the training set is not the
        one that it began with, a number is out of its range, or the objective is not
        finite: kernel values overflow.
      ImportError: if `progress` needs tqdm.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("checkerboard")
      >>> X, y = data.X_train[:500], data.y_train[:500]
      >>> state = bj.smo.init(bj.RBF(4.0), X, y, regularization=1e-3)
      >>> state, history = bj.solve(
      ...     bj.smo, state, X, y, max_steps=10_000, tolerance=1e-3
      ... )
      >>> bool(history.gap[-1] <= 1e-3 * history.primal[-1])
      True
      >>> model = bj.smo.model(state, X, y)
    """
    where = "solve"
    checks.check_algorithm(where, algorithm, state)
    X, y = same(where, state, X, y)
    max_steps = checks.size(where, "max_steps", max_steps, at_least=0)
    every = checks.size(where, "callback_every", callback_every)
    if tolerance is not None:
        checks.non_negative(where, "tolerance", tolerance)

    if not np.all(np.isfinite(state.rows.diagonal)):
        raise ValueError(f"{where}: kernel values overflow {X.dtype}; scale X down")
    # The memory of the caller's state must survive the first donation.
    state = _copied(state)
    record = _record(algorithm, state, X, y, 0)
    records = [record]
    with progress_bar.reporting(where, progress, "steps", max_steps) as report:
        while not (
            (callback is not None and callback(state, record))
            or (tolerance is not None and record.gap <= tolerance * abs(record.primal))
            or record.step >= max_steps
        ):
            count = min(every, max_steps - record.step)
            state = _advance(algorithm, state, X, y, jnp.int32(count))
            record = _record(algorithm, state, X, y, record.step + count)
            records.append(record)
            report(f"gap {record.gap:.2g}", count)
    columns = zip(*records, strict=True)
    return state, History(*(np.asarray(column) for column in columns))


@jax.jit
def _copied(state: Any) -> Any:
    return jax.tree.map(jnp.copy, state)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _advance(
    algorithm: BatchAlgorithm, state: Any, X: Array, y: Array, count: Array
) -> Any:
    return jax.lax.fori_loop(
        jnp.zeros_like(count),
        count,
        lambda _, state: algorithm.step(state, X, y),
        state,
    )


@functools.partial(jax.jit, static_argnums=0)
def _objective(algorithm: BatchAlgorithm, state: Any, X: Array, y: Array) -> Objective:
    return algorithm.objective(state, X, y)


def _record(
    algorithm: BatchAlgorithm, state: Any, X: Array, y: Array, step: int
) -> Record:
    primal, dual = (float(value) for value in _objective(algorithm, state, X, y))
    if not np.isfinite(primal):
        raise ValueError(
            f"solve: the objective must be finite, got {primal} after {step} steps: "
            f"kernel values overflow {X.dtype}; scale X down"
        )
    evaluations = row_cache.evaluations(state.rows)
    return Record(step, primal, dual, abs(primal - dual), evaluations)
