"""A training set, checked: what every batch learner begins with."""

import zlib
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer

from budgetjax import checks
from budgetjax.kernels import Kernel


def training_set(
    where: str, kernel: Kernel, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """A training set of two classes, as arrays of one float type.

    Args:
      where: the caller's name, for error messages.
      kernel: what should be a kernel.
      X: shape `(n, d)`; floats keep their type, other numbers become JAX's default.
      y: -1 and +1, both of them, shape `(n,)`.

    Raises:
      ValueError: if it is not that.
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(f"{where}: kernel must be a kernel, got {kernel!r}")
    X, y = examples(where, X, y)
    checks.check_finite(where, X)
    return X, signs(where, y, X.shape[0], X.dtype)


def signs(
    where: str, y: ArrayLike, number: int, dtype: DTypeLike
) -> Float[Array, " n"]:
    """The labels of this many examples, -1 and +1 and both of them.

    Raises:
      ValueError: if they are not that.
    """
    y = labels_of(where, y, number)
    labels = checks.concrete(y)
    if labels is not None:
        if not np.all(np.abs(labels) == 1):
            row = int(np.argmin(np.abs(labels) == 1))
            raise ValueError(
                f"{where}: y must be -1 or +1, got {labels[row]:g} in row {row}"
            )
        if np.all(labels == labels[0]):
            raise ValueError(
                f"{where}: y must have both classes, got {labels[0]:+g} in all "
                f"{len(labels)} rows"
            )
    return checks.on_device(y, dtype)


def examples(
    where: str, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """A training set as arrays of one float type, of shapes that fit each other."""
    X = checks.array(where, "X", X)
    if X.ndim != 2 or not X.shape[0]:
        raise ValueError(f"{where}: X must have shape (n, d), n > 0, got {X.shape}")
    kind = X.dtype if jnp.issubdtype(X.dtype, jnp.floating) else float
    y = labels_of(where, y, X.shape[0])
    return checks.on_device(X, kind), checks.on_device(y, kind)


def of_state(
    where: str, state: Any, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """The training set of a state, as arrays, if it has its shape and type."""
    X, y = examples(where, X, y)
    n, dtype = state.rows.squares.shape[0], state.rows.squares.dtype
    if X.shape[0] != n or X.dtype != dtype:
        raise ValueError(
            f"{where}: X must be the training set of the state, {n} rows of {dtype}, "
            f"got {X.shape[0]} of {X.dtype}, {X.shape[1]} features"
        )
    return X, y


def digest(X: Float[Array, "n d"], y: Float[Array, " n"]) -> Integer[Array, ""]:
    """A number that another training set, or another order, hardly has; 0 if traced."""
    known = [checks.concrete(array) for array in (X, y)]
    value = 0
    for array in known:
        if array is None:
            return jnp.uint32(0)
        value = zlib.crc32(np.ascontiguousarray(array).tobytes(), value)
    return jnp.uint32(value)


def same(
    where: str, state: Any, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """The training set of a state, as arrays, if it is that; not to be traced."""
    X, y = of_state(where, state, X, y)
    known, given = int(state.rows.digest), int(digest(X, y))
    if known and given and known != given:
        raise ValueError(
            f"{where}: X and y must be the training set of the state, in its order, "
            "got others of the same shape"
        )
    return X, y


def labels_of(where: str, y: ArrayLike, number: int) -> Array | np.ndarray:
    """The labels of this many examples, as an array."""
    y = checks.array(where, "y", y)
    if y.shape != (number,):
        raise ValueError(
            f"{where}: y must have shape ({number},), one label a row of X, got "
            f"{y.shape}"
        )
    return y
