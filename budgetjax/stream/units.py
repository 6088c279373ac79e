"""Keeps support vectors in the units of a running scaling.

An early row is divided by the deviations of that time. When the scaling changes, an
affine map takes the B support vectors to the new units, so that they remain the same
raw rows. If only means change and the kernel is stationary, the function of raw rows
does not change; if deviations change, distances change, and the kernel matrices that
learners keep are recomputed.
"""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from budgetjax.online.algorithm import Algorithm
from budgetjax.scaling import Scaling


def rescale_vectors(
    algorithm: Algorithm, state: Any, old: Scaling, new: Scaling
) -> Any:
    """The state with its support vectors in the units of another scaling.

    The cost is O(B d), or O(B^2 (d + B)) for learners with a kernel matrix or a span,
    whose basis becomes a close one that is orthonormal under the new kernel matrix. The
    frequencies of `budgetjax.fourier` are not rows and do not change.
    """
    mask = np.asarray(state.expansion.mask)
    if algorithm.with_vectors is None or not np.any(mask):
        return state
    vectors = np.asarray(state.expansion.vectors)
    rows = np.where(mask[:, None], new.moved(vectors, old), 0)
    return _replace_vectors(
        algorithm, state, jax.device_put(rows.astype(vectors.dtype))
    )


@functools.partial(jax.jit, static_argnums=0)
def _replace_vectors(algorithm: Algorithm, state: Any, vectors: Array) -> Any:
    assert algorithm.with_vectors is not None, "left alone before"
    return algorithm.refresh_caches(algorithm.with_vectors(state, vectors))
