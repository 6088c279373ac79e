"""Checks of training examples and labels, for a step, a run or a refit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks, losses, models
from budgetjax.inputs import cast_rows


def check_stream(
    where: str,
    state: Any,
    X: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None,
    first_row: int = 0,
) -> tuple[Float[Array, "n features"], Shaped[Array, "n ..."], Float[Array, " n"]]:
    """Checks a stream and its weights, and casts them to the state's dtypes.

    `first_row` is the number of the first row, for error messages.
    """
    size = models.num_features(where, state)
    X = cast_rows(where, X, size, state.expansion.vectors.dtype)
    _checks.check_finite(where, X, first_row)
    y = _checks.array(where, "y", y)
    n, more = X.shape[:1], models.target_shape(state)
    if y.shape not in (n, n + more):
        also = f", or {n + more}, one target per row and output" if more else ""
        raise ValueError(
            f"{where}: y must have shape {n}, one label per row of X{also}, got "
            f"{y.shape}"
        )
    weight = _checks.array(where, "weight", np.ones(n) if weight is None else weight)
    if weight.shape != n:
        raise ValueError(
            f"{where}: weight must have shape {n}, one per row of X, got {weight.shape}"
        )
    return X, *_targets(where, state, y, weight, n, first_row)


def check_example(
    where: str, state: Any, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None
) -> tuple[Float[Array, " features"], Shaped[Array, "*outputs"], Float[Array, ""]]:
    """One example in the dtypes of the state; known values are checked."""
    size = models.num_features(where, state)
    x = _checks.array(where, "x", x)
    if x.shape != (size,):
        raise ValueError(
            f"{where}: x must have shape ({size},) (num_features), got {x.shape}"
        )
    y = _checks.array(where, "y", y)
    more = models.target_shape(state)
    if y.shape not in ((), more):
        also = f", or targets of shape {more}" if more else ""
        raise ValueError(
            f"{where}: y must be a scalar label{also}, got shape {y.shape}"
        )
    weight = _checks.array(where, "weight", 1 if weight is None else weight)
    if weight.shape != ():
        raise ValueError(f"{where}: weight must be a scalar, got shape {weight.shape}")
    label, weight = _targets(where, state, y, weight, ())
    return jnp.asarray(x, weight.dtype), label, weight


def _targets(
    where: str,
    state: Any,
    y: Array | np.ndarray,
    weight: Array | np.ndarray,
    rows: tuple[int, ...],
    first_row: int | None = None,
) -> tuple[Shaped[Array, "..."], Float[Array, "..."]]:
    """Labels and weights of rows, after checks of their values."""
    given, counts = _checks.concrete(y), _checks.concrete(weight)
    dtype = state.expansion.vectors.dtype
    if counts is not None:
        check_weights(where, np.atleast_1d(counts), dtype, first_row)
    y = cast_labels(where, state, y, rows)
    if given is not None:
        check_labels(where, state, given if rows else given[None], first_row)
    return y, _checks.to_device(weight, dtype)


def cast_labels(
    where: str, state: Any, y: ArrayLike, rows: tuple[int, ...]
) -> Shaped[Array, "..."]:
    """Labels of rows in the dtype of the state: integers for several classes.

    A single target per row is repeated for every output.
    """
    columns, more = state.expansion.num_columns, models.target_shape(state)
    y = _checks.array(where, "y", y)
    if columns == 1 or more:
        if y.dtype == bool:
            raise ValueError(f"{where}: y must be -1 or +1, got {y.dtype}")
        y = _checks.to_device(y, state.expansion.vectors.dtype)
        if more and y.ndim == len(rows):
            y = jnp.broadcast_to(y[..., None], rows + more)
        return y
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise ValueError(
            f"{where}: y must hold integer labels 0 .. {columns - 1}, got {y.dtype}"
        )
    return _checks.to_device(y, jnp.int32)


def check_weights(
    where: str, weight: np.ndarray, dtype: np.dtype, first_row: int | None = None
) -> None:
    """Raises if a weight is negative, or not finite in the model's dtype."""
    good = (weight >= 0) & (weight <= jnp.finfo(dtype).max)
    # XLA may treat a subnormal number as 0.
    good &= (weight == 0) | (weight >= jnp.finfo(dtype).tiny)
    if not np.all(good):
        row = int(np.argmin(good))
        raise ValueError(
            f"{where}: weight must be finite and at least 0, in the range of "
            f"{np.dtype(dtype)}, got {weight[row]}{_in_row(first_row, row)}"
        )


def check_labels(
    where: str, state: Any, y: np.ndarray, first_row: int | None = None
) -> None:
    """Raises if a label is not one of the model's."""
    columns, dtype = state.expansion.num_columns, state.expansion.vectors.dtype
    if models.is_regressor(state):
        known, expected = np.abs(y) <= jnp.finfo(dtype).max, f"finite in {dtype}"
        if np.all(known):
            known, expected = losses.valid_targets(state.loss, y)
        known = known.all(axis=1) if known.ndim > 1 else known
    elif columns > 1:
        known = (y >= 0) & (y < columns) & (y == np.floor(y))
        expected = f"in 0 .. {columns - 1}"
    else:
        known, expected = np.isin(y, (-1, 1)), "-1 or +1"
    if not np.all(known):
        row = int(np.argmin(known))
        raise ValueError(
            f"{where}: y must be {expected}, got {y[row]}{_in_row(first_row, row)}"
        )


def _in_row(first_row: int | None, row: int) -> str:
    return "" if first_row is None else f" in row {first_row + row}"
