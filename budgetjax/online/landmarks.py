"""Support vectors that are fixed before the stream."""

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from budgetjax import _checks, kernels
from budgetjax.kernels import Kernel
from budgetjax.online import span, support_set
from budgetjax.online.span import Span
from budgetjax.online.support_set import Expansion


def given(
    where: str, kernel: Kernel, expansion: Expansion, landmarks: ArrayLike
) -> tuple[Expansion, Span]:
    """The expansion with these landmarks and coefficients 0, and their span.

    Args:
      where: the caller's name, for error messages.
      kernel: positive definite.
      expansion: empty.
      landmarks: shape `(m, num_features)`, m from 1 to the budget.
    """
    rows, width = expansion.vectors.shape
    Z = _checks.array(where, "landmarks", landmarks)
    budget = _checks.concrete(expansion.budget)
    most = rows - 1 if budget is None else int(budget)
    if Z.ndim != 2 or Z.shape[1] != width or not 1 <= Z.shape[0] <= most:
        raise ValueError(
            f"{where}: landmarks must have shape (m, {width}) with m from 1 to the "
            f"budget {most}, got {Z.shape}"
        )
    with np.errstate(over="ignore"):
        Z = jnp.asarray(Z, expansion.vectors.dtype)
    known = _checks.concrete(Z)
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(f"{where}: landmarks must be finite, got NaN or infinity")
    m = Z.shape[0]
    vectors = jnp.zeros_like(expansion.vectors).at[:m].set(Z)
    slots = jnp.arange(rows, dtype=jnp.int32)
    expansion = expansion._replace(
        vectors=vectors,
        squares=kernels.squared_norms(vectors),
        ages=jnp.where(slots < m, slots + 1 - m, support_set.FREE),
        num_active=jnp.asarray(m, jnp.int32),
    )
    basis = span.of(kernel, expansion)
    known = _checks.concrete(basis.root)
    if known is not None and not np.all(np.isfinite(known)):
        raise ValueError(
            f"{where}: landmarks must have a positive definite kernel matrix, got one "
            f"of {type(kernel).__name__} that is not"
        )
    return expansion, basis
