"""Checks of training examples and labels, for a step, a run or a refit."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError
from budgetjax._rows import cast_rows


def check_stream(
    state: Any,
    X: ArrayLike,
    y: ArrayLike,
    weight: ArrayLike | None,
    first_row: int = 0,
    num_features: int | None = None,
) -> tuple[Float[Array, "n features"], Shaped[Array, "n ..."], Float[Array, " n"]]:
    """Checks a stream and its weights, and casts them to the state's dtypes.

    Rows have the features of the state, or `num_features`. Values of rows of weight 0,
    which may be padding, are not checked.
    """
    state.check_single()
    size = state.num_features if num_features is None else num_features
    X = cast_rows(X, size, state.dtype)
    y = _checks.array("y", y)
    n, more = X.shape[:1], state.target_shape
    if y.shape not in (n, n + more):
        also = f", or {n + more}, one target per row and output" if more else ""
        raise ArgumentError(
            "y", f"have shape {n}, one label per row of X{also}", y.shape
        )
    weight = _checks.array("weight", np.ones(n) if weight is None else weight)
    if weight.shape != n:
        raise ArgumentError("weight", f"have shape {n}, one per row of X", weight.shape)
    present = _present(weight)
    if present is not None:
        _checks.check_finite(X, first_row, present=present)
    return X, *_targets(state, y, weight, n, first_row)


def _present(weight: Array | np.ndarray) -> np.ndarray | None:
    """Which rows have a weight; None if it is traced."""
    known = _checks.concrete(weight)
    return None if known is None else np.asarray(known != 0)


def check_example(
    state: Any, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None
) -> tuple[Float[Array, " features"], Shaped[Array, "*outputs"], Float[Array, ""]]:
    """One example in the dtypes of the state; known values are checked."""
    state.check_single()
    size = state.num_features
    x = _checks.array("x", x)
    if x.shape != (size,):
        raise ArgumentError("x", f"have shape ({size},) (num_features)", x.shape)
    y = _checks.array("y", y)
    more = state.target_shape
    if y.shape not in ((), more):
        also = f", or targets of shape {more}" if more else ""
        raise ArgumentError("y", f"be a scalar label{also}", f"shape {y.shape}")
    weight = _checks.array("weight", 1 if weight is None else weight)
    if weight.shape != ():
        raise ArgumentError("weight", "be a scalar", f"shape {weight.shape}")
    label, weight = _targets(state, y, weight, ())
    return jnp.asarray(x, weight.dtype), label, weight


def _targets(
    state: Any,
    y: Array | np.ndarray,
    weight: Array | np.ndarray,
    rows: tuple[int, ...],
    first_row: int | None = None,
) -> tuple[Shaped[Array, "..."], Float[Array, "..."]]:
    """Labels and weights of rows, after checks of their values."""
    given, counts = _checks.concrete(y), _checks.concrete(weight)
    dtype = state.dtype
    if counts is not None:
        check_weights(np.atleast_1d(counts), dtype, first_row)
    y = _cast_labels(state, y, rows)
    present = _present(weight)
    if given is not None and present is not None:
        present = present.reshape(present.shape + (1,) * (given.ndim - present.ndim))
        # A target that all losses take.
        given = np.where(present, given, 1)
        check_labels(state, given if rows else given[None], first_row)
    return y, _checks.to_device(weight, dtype)


def _cast_labels(
    state: Any, y: Array | np.ndarray, rows: tuple[int, ...]
) -> Shaped[Array, "..."]:
    """Labels of rows in the dtype of the state: integers for several classes.

    A single target per row is repeated for every output.
    """
    columns, more = state.num_columns, state.target_shape
    if columns == 1 or more:
        if y.dtype == bool:
            raise ArgumentError("y", "be -1 or +1", y.dtype)
        y = _checks.to_device(y, state.dtype)
        if more and y.ndim == len(rows):
            y = jnp.broadcast_to(y[..., None], rows + more)
        return y
    if not jnp.issubdtype(y.dtype, jnp.integer):
        raise ArgumentError("y", f"hold integer labels 0 .. {columns - 1}", y.dtype)
    return _checks.to_device(y, jnp.int32)


def check_weights(
    weight: np.ndarray, dtype: np.dtype, first_row: int | None = None
) -> None:
    """Raises if a weight is negative, or not finite in the model's dtype."""
    good = (weight >= 0) & (weight <= jnp.finfo(dtype).max)
    # XLA may treat a subnormal number as 0.
    good &= (weight == 0) | (weight >= jnp.finfo(dtype).tiny)
    if not np.all(good):
        row = int(np.argmin(good))
        raise ArgumentError(
            "weight",
            f"be finite and at least 0, in the range of {np.dtype(dtype)}",
            f"{weight[row]}{_in_row(first_row, row)}",
        )


def check_labels(state: Any, y: np.ndarray, first_row: int | None = None) -> None:
    """Raises if a label is not one of the model's."""
    columns, dtype = state.num_columns, state.dtype
    if state.is_regressor:
        known, expected = np.abs(y) <= jnp.finfo(dtype).max, f"finite in {dtype}"
        if np.all(known):
            traits = losses.traits(state.loss)
            known, expected = traits.is_valid(y), traits.expected
        known = known.all(axis=1) if known.ndim > 1 else known
    elif columns > 1:
        known = (y >= 0) & (y < columns) & (y == np.floor(y))
        expected = f"in 0 .. {columns - 1}"
    else:
        known, expected = np.isin(y, (-1, 1)), "-1 or +1"
    if not np.all(known):
        row = int(np.argmin(known))
        raise ArgumentError("y", f"be {expected}", f"{y[row]}{_in_row(first_row, row)}")


def _in_row(first_row: int | None, row: int) -> str:
    return "" if first_row is None else f" in row {first_row + row}"
