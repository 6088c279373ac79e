"""Many models on one stream, and grids of hyperparameters."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import _checks, _platform, _record
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.online import driver, examples
from budgetjax.online.state import Online, State

MODELS = "models"
States = TypeVar("States")


@_record.record
class Sweep(NamedTuple):
    """The result of a sweep.

    Attributes:
      states: the final states, stacked along their first axis.
      rounds: examples seen at each point of the curves, shape `(points,)`.
      errors: the progressive error of every model, shape `(models, points)`: the rate
        of mistakes so far, or for regressors the mean squared error so far.
    """

    states: Any
    rounds: Integer[Array, " points"]
    errors: Float[Array, "models points"]

    @property
    def error(self) -> Float[Array, " models"]:
        """The progressive error over the whole stream, shape `(models,)`."""
        return self.errors[:, -1]


@names_errors("sweep")
def sweep(
    states: Online,
    X: ArrayLike,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    devices: Sequence[Any] | None = None,
    block_size: int | None = None,
) -> Sweep:
    """Feeds one stream to many models, which learn independently.

    Cost: that of `budgetjax.run` times the number of models. Memory: X, and the models
    and their blocks; scores are not kept.

    On a GPU or a TPU, the models of a device run side by side, in lockstep from
    violation to violation. On a CPU they run one after the other, each in its own
    loop, which is less work: 64 models with budgets of 100 on 5,000 rows of ijcnn1 took
    0.35 (removal) and 0.53 (merging) microseconds of CPU time per model and example in
    turn, 0.94 and 1.48 side by side, and 1.83 and 1.98 in a `jax.vmap` of `run`
    (`python benchmarks/runner.py speed part=sweep rows=5000`). Where a loop of your own
    has many models, `jax.lax.map` is to a CPU what `jax.vmap` is to an accelerator.

    To use all cores of a CPU, give JAX one device per core before its first use:
    `jax.config.update("jax_num_cpu_devices", cores)`.

    Args:
      states: stacked states, from `jax.vmap` over `init` or `Grid.init`.
      X: examples, shape `(n, num_features)`, n at least 1.
      y: labels, shape `(n,)`.
      weight: shape `(n,)`, as for `budgetjax.run`.
      devices: the devices that share the models; None takes all devices of the backend,
        including those of other processes. Every process must then pass the same states
        and rows, and gets the results of all models.
      block_size: as for `budgetjax.run`; a point of the curve is the end of a block.

    Raises:
      ValueError, OverflowError: as `budgetjax.run`, or if `states` are not stacked.

    Example:
      >>> X, y = bj.datasets.checkerboard(2000, seed=0)
      >>> grid = bj.grid(gamma=[1.0, 8.0], budget=[20, 50])
      >>> states = grid.init(lambda gamma, budget: bj.Pegasos().init(
      ...     bj.RBF(gamma), num_features=2, budget=budget, capacity=50))
      >>> result = bj.sweep(states, X, y)
      >>> table = grid.table(error=result.error)
      >>> result.errors.shape, table["gamma"][0], table["budget"][0]
      ((4, 42), 8.0, 50)
    """
    driver.check_online(states)
    shape = states.counts.seen.low.shape
    if len(shape) != 1:
        raise ArgumentError(
            "states",
            "be stacked along one axis",
            f"{shape or 'a single one'}; use jax.vmap over init",
        )
    models = shape[0]
    one = _take(states, np.int32(0))
    X, y, weights = examples.check_stream(one, X, y, weight)
    if X.shape[0] == 0:
        raise ArgumentError("X", "have at least 1 row", "0")
    size = driver.block_length(block_size)
    chosen = tuple(jax.devices() if devices is None else devices)[:models]
    if not chosen:
        raise ArgumentError("devices", "not be empty", "()")
    # Every device takes the same number of models; copies of the last one fill the
    # rest.
    spare = -models % len(chosen)
    index = np.minimum(np.arange(models + spare), models - 1)
    padded = _take(states, index) if spare else states
    together = side_by_side()
    results = _run_anywhere(chosen, together, size, padded, X, y, weights)
    result, is_finite = _summarise(models, size, *results, weights)
    new = result.states
    new.check_room()
    known = _checks.concrete(is_finite)
    if known is not None and not np.all(known):
        i = np.argmin(known).astype(np.int32)
        one = _take(new, i)
        why = driver.explain_overflow(one, X)
        raise ArgumentError("every model", "be finite", f"model {i} that is not: {why}")
    return result


# One program, where slices of leaves would be one each.
@jax.jit
def _take(states: Online, index: ArrayLike) -> Online:
    """One or several of the models."""
    return jax.tree.map(lambda leaf: leaf[index], states)


@functools.partial(jax.jit, static_argnums=(0, 1))
def _summarise(
    models: int, size: int, states: Online, mistakes: Array, weights: Array
) -> tuple[Sweep, Bool[Array, " models"]]:
    """The result for these first models, and which of them are finite."""
    states, mistakes = jax.tree.map(lambda leaf: leaf[:models], (states, mistakes))
    dtype = states.dtype
    present = jnp.pad(weights > 0, (0, -weights.shape[0] % size)).reshape(-1, size)
    rounds = jnp.cumsum(jnp.sum(present, axis=1, dtype=jnp.int32), dtype=jnp.int32)
    seen = jnp.maximum(rounds, 1).astype(dtype)
    errors = mistakes.astype(dtype) / seen[None]
    is_finite = jnp.isfinite(jax.vmap(lambda one: one.check_value())(states))
    return Sweep(states, rounds, errors), is_finite


def side_by_side() -> bool:
    """Whether the models of a device run in lockstep; on a CPU they run in turn."""
    return not _platform.on_cpu()


def _run_anywhere(devices, together, size, *arrays):
    """`_run_sharded` on devices of this process, or of several."""
    if all(device.process_index == jax.process_index() for device in devices):
        return _run_sharded(devices, together, size, *arrays)
    from jax.experimental import multihost_utils

    # Host values, which all processes have, not arrays of one process.
    arrays = jax.device_get(arrays)
    results = _run_sharded(devices, together, size, *arrays)
    results = multihost_utils.process_allgather(results, tiled=True)
    return jax.tree.map(jnp.asarray, results)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _run_sharded(devices, together, size, states, X, y, weights):
    """The final states, and the mistakes of every model at every point."""

    def local(states, X, y, weights):
        def learn(state):
            # Without an axis to agree over, every model has its own loop.
            axis = MODELS if together else None
            return driver.run_with_errors(state, X, y, weights, size, axis)

        if together:
            return jax.vmap(learn, axis_name=MODELS)(states)
        return jax.lax.map(learn, states)

    mesh = Mesh(np.array(devices), ("devices",))
    return jax.shard_map(
        local,
        mesh=mesh,
        in_specs=(P("devices"), P(), P(), P()),
        out_specs=P("devices"),
        check_vma=False,
    )(states, X, y, weights)


@_record.record
class Grid(NamedTuple):
    """Every combination of hyperparameter values, one per model.

    Attributes:
      names: the names of the hyperparameters.
      columns: their values, one array of shape `(models,)` per name.
    """

    names: tuple[str, ...]
    columns: tuple[np.ndarray, ...]

    @names_errors("Grid.init")
    def init(self, init: Callable[..., States]) -> States:
        """Stacked states: `jax.vmap` of `init`, which takes the names as keywords.

        Raises:
          ValueError: if `init` raises it for a value, which `jax.vmap` alone would
            hide, or if the models do not fit into memory.
        """
        one: Any = ()

        def with_values(*values):
            return init(**dict(zip(self.names, values, strict=True)))

        # `init` checks ranges, so the ends of each axis suffice; a NaN counts as an
        # end.
        ends = [(np.argmin(column), np.argmax(column)) for column in self.columns]
        for i in np.unique(ends):
            values = [column[i] for column in self.columns]
            one = jax.eval_shape(functools.partial(with_values, *values))
        if isinstance(one, State):
            rows, features = one.expansion.vectors.shape
            sizes = {"budget": rows - 1, "num_features": features}
            _checks.check_arrays(sizes, one, len(self.columns[0]))
        return jax.vmap(with_values)(*self.columns)

    @names_errors("Grid.table")
    def table(self, **results: Any) -> dict[str, list[Any]]:
        """The grid with results of its models, in ascending order of the first result.

        Args:
          **results: arrays of shape `(models,)`, for example `error=result.error`.

        Returns:
          Python numbers, a list per column, as `pandas.DataFrame` takes them.
        """
        shape, columns = self.columns[0].shape, dict(zip(*self, strict=True))
        for name, values in results.items():
            columns[name] = np.asarray(values)
            if columns[name].shape != shape:
                wanted = f"have shape {shape}, one value per model"
                raise ArgumentError(name, wanted, columns[name].shape)
        first = columns[next(iter(results))] if results else np.zeros(shape)
        order = np.argsort(first, kind="stable")
        return {name: _to_numbers(each[order]) for name, each in columns.items()}


def _to_numbers(column: Shaped[np.ndarray, " models"]) -> list[Any]:
    """Python numbers; a float32 keeps the digits that it prints."""
    if column.dtype == np.float32:
        return [float(str(value)) for value in column]
    return column.tolist()


@names_errors("grid")
def grid(**axes: Any) -> Grid:
    """Every combination of the values of the given hyperparameters.

    Args:
      **axes: for example `gamma=[0.1, 1.0], budget=[50, 100]`; the last varies fastest.

    Example:
      >>> bj.grid(gamma=[0.1, 1.0], budget=[50, 100]).columns[1].tolist()
      [50, 100, 50, 100]
    """
    if not axes:
        raise ArgumentError("grid", "have at least one axis", "none")
    arrays = []
    for name, values in axes.items():
        array = np.asarray(_checks.array(name, values))
        if array.ndim != 1 or array.size == 0:
            raise ArgumentError(name, "be a list of numbers", f"shape {array.shape}")
        arrays.append(array)
    columns = (column.ravel() for column in np.meshgrid(*arrays, indexing="ij"))
    return Grid(tuple(axes), tuple(columns))
