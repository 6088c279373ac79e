"""Support vectors in the units of a running scaling, as it moves on.

A row that was standardised early was divided by the deviations of that time. When they
change, what is stored of it is mapped to the new ones: an affine map of B vectors, so
that every support vector stays the raw row that it was. The function then stays what it
was on raw rows as far as only means move, for a kernel of differences; where deviations
change, the kernel sees other distances, and what a learner keeps of its kernel matrix
is computed anew.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool

from budgetjax import support_set
from budgetjax.online import features
from budgetjax.online.span import RIDGE
from budgetjax.scaling import Scaling

# The least eigenvalue that is no rounding, relative to the largest.
SMALLEST = 1e-6


def mapped(state: Any, old: Scaling, new: Scaling) -> Any:
    """The state with its support vectors in the units of another scaling.

    The arithmetic is NumPy's, as the map is too small to be worth a compilation; only
    kernel matrices are computed by a compiled program, for the learners that keep one:
    O(B d), for those O(B^2 (d + B)). The orthonormal basis that the weights of
    `budgetjax.nystrom` and the covariance of `budgetjax.arow` refer to becomes one near
    to it that is orthonormal under the new kernel matrix, and they stay as they are.
    The frequencies of `budgetjax.fourier` are no rows, and are left alone.

    Args:
      state: of any online algorithm.
      old: the scaling of the rows that it has learned.
      new: the scaling of those that it will learn.
    """
    is_features = isinstance(state, features.State)
    before = state.expansion
    mask = np.asarray(before.mask)
    if (is_features and state.root is None) or not np.any(mask):
        return state
    rows = np.where(mask[:, None], new.moved(np.asarray(before.vectors), old), 0)
    vectors = rows.astype(before.vectors.dtype)
    squares = np.sum(np.square(vectors, dtype=np.float64), axis=1)
    expansion = before._replace(
        vectors=jax.device_put(vectors),
        squares=jax.device_put(squares.astype(vectors.dtype)),
    )
    state = state._replace(expansion=expansion)
    if is_features:
        gram = np.asarray(_gram(state.kernel, expansion))
        return state._replace(root=_orthonormal(state.root, gram, mask))
    strategy = getattr(state, "maintenance", None)
    keeps = [part for part in (state, strategy) if hasattr(part, "span")]
    keeps_gram = hasattr(strategy, "gram")
    ball = getattr(state, "ball", None)
    if not keeps and not keeps_gram and ball is None:
        return state
    gram = np.asarray(_gram(state.kernel, expansion))
    if strategy is not None:
        strategy = _with_span(strategy, gram, mask)
        if keeps_gram:
            strategy = strategy._replace(gram=jax.device_put(gram))
        state = state._replace(maintenance=strategy)
    if ball is not None:
        # ||sum_j u_j phi(x_j)||^2
        u = np.asarray(expansion.coefficients, np.float64)
        norm = np.sum(u * (gram @ u))
        norm = jax.device_put(norm.astype(ball.squared_norm.dtype))
        state = state._replace(ball=ball._replace(squared_norm=norm))
    return _with_span(state, gram, mask)


_gram = jax.jit(support_set.gram)


def _with_span(part: Any, gram: np.ndarray, mask: Bool[np.ndarray, " rows"]) -> Any:
    """A state or a strategy with the span of its vectors, if it keeps that."""
    if not hasattr(part, "span"):
        return part
    root = _orthonormal(part.span.root, gram, mask)
    ridged = jax.device_put((gram + _ridge(gram)).astype(gram.dtype))
    return part._replace(span=part.span._replace(gram=ridged, root=root))


def _ridge(gram: np.ndarray) -> np.ndarray:
    return RIDGE * np.diag(np.diagonal(gram))


def _orthonormal(root: Any, gram: np.ndarray, mask: Bool[np.ndarray, " rows"]) -> Any:
    """A root of the inverse of a new kernel matrix `K` that is near to the old one `R`.

    `L^-1 R` with `L L^T = R K R^T`, a matrix near to 1, where `K` has the ridge of
    `budgetjax.online.span`.
    """
    R = np.asarray(root, np.float64)[mask][:, mask]
    K = gram.astype(np.float64)[mask][:, mask]
    changed = R @ (K + _ridge(K)) @ R.T
    try:
        L = np.linalg.cholesky(changed)
    except np.linalg.LinAlgError:
        # A kernel that is not positive definite, or what rounding has left of one.
        w, V = np.linalg.eigh(changed)
        L = V * np.sqrt(np.maximum(w, SMALLEST * w[-1]))[None]
    new = np.zeros(gram.shape, root.dtype)
    new[np.ix_(mask, mask)] = np.linalg.solve(L, R)
    return jax.device_put(new)
