"""Gradient steps on support vectors and their coefficients together.

They minimise the objective of `budgetjax.refit`, as a function of the support vectors
too:

    1/2 ||w||^2 + C sum_i loss(f(x_i), t_i),  ||w||^2 = sum over columns of a^T K a,

with the coefficients `a = root w` for the root of the initial vectors, which makes the
problem well conditioned.
"""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Integer, PyTree

from budgetjax import kernels
from budgetjax.online import support_set
from budgetjax.refitting.adam import EPOCHS, Steps, count_examples, run_adam
from budgetjax.refitting.newton import Basis, of_problems
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.training_data import Block

# Examples per step.
BATCH = 128
# The number of vectors whose kernel rows estimate the norm: more cost as much as the
# batch, and gain nothing.
NORM_OF = 64
# The first rate of Adam, for vectors in units of the deviation of their features. A
# third of it, or three times it, gains less, but always more than half as much.
RATE = 0.03


def move_vectors(
    problem: Problem,
    basis: Basis,
    blocks: Callable[[], Iterable[Block]],
    weights: Float[np.ndarray, "columns features"],
    penalty: float,
) -> Float[Array, "rows d"]:
    """Support vectors with a smaller objective; O(n B (d + C)) per epoch.

    The weights are the solution for those of the basis, with which the steps start.
    """
    rows = count_examples(blocks())
    mask = np.asarray(basis.expansion.mask)
    original = np.asarray(basis.expansion.vectors)
    vectors = np.where(mask[:, None], original, 0)
    unit = unit_of(vectors[mask])
    strength = np.asarray(penalty * rows, vectors.dtype)
    (vectors, _), _ = run_adam(
        _objective,
        (jnp.asarray(vectors / unit), jnp.asarray(weights)),
        (of_problems(problem.loss, len(weights), weights.dtype), basis, unit, strength),
        blocks,
        kind=Steps(BATCH, RATE),
        epochs=problem.epochs or EPOCHS,
        seed=problem.seed,
        report=lambda mean: problem.report(
            f"moving, objective {mean * penalty * rows:.6g}"
        ),
    )
    return jnp.asarray(np.where(mask[:, None], np.asarray(vectors) * unit, original))


def unit_of(vectors: Float[np.ndarray, "active d"]) -> np.floating:
    """The root mean variance of the features that vary."""
    variances = np.var(vectors.astype(np.float64), axis=0)
    # A feature that varies only by rounding is constant.
    rounding = np.finfo(vectors.dtype).eps * np.abs(vectors).max(axis=0)
    varying = variances > rounding**2
    mean = np.mean(variances[varying]) if np.any(varying) else np.ones(())
    return vectors.dtype.type(np.sqrt(mean))


def _objective(
    parameters: PyTree,
    fixed: PyTree,
    first: Array,
    X: Array,
    targets: Array,
    weights: Array,
) -> Float[Array, ""]:
    """The objective of a batch, divided by rows and penalty."""
    vectors, feature_weights = parameters
    loss, basis, unit, strength = fixed
    X = basis.rows(X)
    norm, scores = norm_and_scores(basis, vectors * unit, feature_weights, X, first)
    losses = jnp.sum(weights[:, None] * values(loss, scores, targets), axis=1)
    return norm / (2 * strength) + jnp.mean(losses)


def values(
    loss: Partial, scores: Float[Array, "n columns"], targets: Float[Array, "n columns"]
) -> Float[Array, "n columns"]:
    """The losses, with parameters per column; see `newton.of_problems`."""
    each = jax.vmap(lambda loss, score, target: loss(score, target))
    return jax.vmap(each, (None, 0, 0))(loss, scores, targets)


def norm_and_scores(
    basis: Basis,
    vectors: Float[Array, "rows d"],
    weights: Float[Array, "columns features"],
    X: Float[Array, "n d"],
    first: Integer[Array, ""],
) -> tuple[Float[Array, ""], Float[Array, "n columns"]]:
    """`||w||^2` and the scores with moved vectors and coefficients `root w`.

    The products of a cyclic window of at most `NORM_OF` vectors, from `first` on, with
    all vectors estimate the norm; the mean over `first` is exact.
    """
    moving = support_set.with_vectors(basis.expansion, vectors)
    weights, bias = jnp.split(weights, [basis.root.shape[1]], axis=1)
    coefficients = jnp.matmul(basis.root, weights.T, precision="highest")

    def responses(X, squares):
        rows = support_set.kernel_rows(basis.kernel, moving, X, squares)
        rows = jnp.where(moving.mask[None], rows, 0)
        return jnp.matmul(rows, coefficients, precision="highest")

    scores = responses(X, kernels.squared_norms(X))
    count = len(vectors)
    some = (first + jnp.arange(min(count, len(X), NORM_OF), dtype=first.dtype)) % count
    own = jnp.where(moving.mask[some, None], coefficients[some], 0)
    parts = own * responses(moving.vectors[some], moving.squares[some])
    norm = count / len(some) * jnp.sum(parts)
    if basis.constant is None:
        return norm, scores
    return norm + jnp.sum(bias**2), scores + basis.constant * bias.T
