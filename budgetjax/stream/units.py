"""Support vectors in the units of a running scaling, as it moves on.

A row that was standardised early was divided by the deviations of that time. When they
change, what is stored of it is mapped to the new ones: an affine map of B vectors, so
that every support vector stays the raw row that it was. The function then stays what it
was on raw rows as far as only means move, for a kernel of differences; where deviations
change, the kernel sees other distances, and what a learner keeps of its kernel matrix
is computed anew.
"""

import functools
from typing import Any

import jax
import numpy as np
from jaxtyping import Array

from budgetjax.online.algorithm import Algorithm
from budgetjax.scaling import Scaling


def mapped(algorithm: Algorithm, state: Any, old: Scaling, new: Scaling) -> Any:
    """The state with its support vectors in the units of another scaling.

    O(B d), and O(B^2 (d + B)) for learners that keep a kernel matrix or a span, whose
    basis becomes one near to it that is orthonormal under the new kernel matrix. The
    frequencies of `budgetjax.fourier` are no rows, and are left alone.

    Args:
      algorithm: the algorithm.
      state: of that algorithm.
      old: the scaling of the rows that it has learned.
      new: the scaling of those that it will learn.
    """
    mask = np.asarray(state.expansion.mask)
    if algorithm.with_vectors is None or not np.any(mask):
        return state
    vectors = np.asarray(state.expansion.vectors)
    rows = np.where(mask[:, None], new.moved(vectors, old), 0)
    return _moved(algorithm, state, jax.device_put(rows.astype(vectors.dtype)))


@functools.partial(jax.jit, static_argnums=0)
def _moved(algorithm: Algorithm, state: Any, vectors: Array) -> Any:
    assert algorithm.with_vectors is not None, "left alone before"
    return algorithm.restarted(algorithm.with_vectors(state, vectors))
