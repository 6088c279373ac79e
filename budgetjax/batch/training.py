"""A training set, checked: what every batch learner begins with."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import engine, hyperparameters
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
    engine.check_finite(where, X)
    labels = hyperparameters.concrete(y)
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
    return X, y


def examples(
    where: str, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n d"], Float[Array, " n"]]:
    """A training set as arrays of one float type, of shapes that fit each other."""
    X = jnp.asarray(hyperparameters.array(where, "X", X))
    y = jnp.asarray(hyperparameters.array(where, "y", y))
    if X.ndim != 2 or not X.shape[0]:
        raise ValueError(f"{where}: X must have shape (n, d), n > 0, got {X.shape}")
    if y.shape != X.shape[:1]:
        raise ValueError(
            f"{where}: y must have shape {X.shape[:1]}, one label a row of X, "
            f"got {y.shape}"
        )
    X = X if jnp.issubdtype(X.dtype, jnp.floating) else X.astype(float)
    return X, y.astype(X.dtype)
