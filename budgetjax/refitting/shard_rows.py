"""Divides the rows of every process among its devices; see `shard_rows`."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._sharding import ROWS, Shards


@names_errors("shard_rows")
def shard_rows(
    X: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None = None,
    *,
    devices: Sequence[Any] | None = None,
) -> tuple[
    Float[Array, "n features"], Shaped[Array | np.ndarray, "n ..."], Float[Array, " n"]
]:
    """Divides rows among devices, for `refit` and `one_class`; each process its own.

    Under `jax.distributed` every process calls it with the rows that it has, and calls
    the next function with the results: the devices sum over their rows, and only the
    sums are sent. Every device gets the same number of rows: where rows are missing,
    others of the same process are repeated with weight 0.

    Cost: a copy of the rows to the devices.

    Args:
      X: rows of this process, shape `(rows, num_features)`, at least one. They become
        float32 unless JAX has 64-bit types, so centre features that are far from 0.
      y: their targets, shape `(rows,)` or `(rows, num_outputs)`, or labels of any kind.
      weight: shape `(rows,)`, at least 0; None for 1.
      devices: the devices; None takes all devices of all processes.

    Returns:
      X, y and weight as JAX arrays of all rows, divided along their first axis; labels
      that are not numbers stay a NumPy array of the rows of this process.

    Raises:
      ValueError: if shapes differ, or a process has no rows or no devices.

    Example:
      >>> X, y = bj.datasets.checkerboard(301, seed=0)
      >>> state = bj.Perceptron().init(bj.RBF(8.0), num_features=2, budget=20,
      ...                            maintenance=bj.RemoveOldest())
      >>> state, _ = bj.run(state, X, y)
      >>> rows, labels, weight = bj.shard_rows(X, y)
      >>> better = bj.refit(state, rows, labels, weight=weight)
      >>> len(rows) % len(jax.devices()), bj.predict(better, rows).shape == labels.shape
      (0, True)
    """
    for name, given in ("y", y), ("weight", weight):
        _checks.check_unmasked(name, given)
    rows, targets = np.asarray(_checks.array("X", X)), np.asarray(y)
    number = len(rows) if rows.ndim == 2 else 0
    if not number:
        got = rows.shape
        raise ArgumentError("X", "have shape (rows, num_features) and rows", got)
    weights = np.ones(number, rows.dtype) if weight is None else np.asarray(weight)
    for name, array in (("y", targets), ("weight", weights)):
        if array.shape[:1] != (number,):
            got = array.shape
            raise ArgumentError(name, f"have {number} rows, as X", got)
    every = np.array(jax.devices() if devices is None else devices)
    shards = Shards(Mesh(every, ROWS))
    local = shards.local_number
    if not local:
        raise ArgumentError("devices", "have one of this process", f"{devices}")
    # All devices of all processes get as many rows as the one with most.
    share = int(np.max(shards.gather(np.array([-(-number // local)]))))
    at = np.arange(local * share)
    present, at = at < number, at % number

    def place(array: np.ndarray) -> Any:
        if array.dtype.kind not in "biuf":
            return array
        dtype = jax.dtypes.canonicalize_dtype(array.dtype)
        return shards.place(array.astype(dtype))

    floats = weights if weights.dtype.kind == "f" else weights.astype(np.float32)
    padded = np.where(present, floats[at], 0).astype(floats.dtype)
    return place(rows[at]), place(targets[at]), place(padded)
