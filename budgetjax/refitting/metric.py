"""A learned metric: support vectors, coefficients and a linear map of the inputs.

The kernel becomes `k(x M, z M)`, and gradient steps minimise

    sum_i loss(f(x_i), y_i) + ||w||^2 / (2 C) + PRIOR / 2 ||M - M_0||^2

over the vectors, the weights of the features of the first vectors, from 0, and M, from
the identity. The loss is the logistic one, over all classes at once, which pulls on
every example: the squared hinge of one class against the rest gave a point less on
letter. Solve for the coefficients anew afterwards.
"""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from budgetjax import losses
from budgetjax.kernels import Kernel, Mapped
from budgetjax.refitting.gradient_steps import BATCH, minimised
from budgetjax.refitting.moving_vectors import norm_and_scores, unit_of
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.passes import Block

# The first rate of Adam, for vectors in units of the deviation of their features and
# weights of orthonormal features. The entries of the map move a tenth of that.
RATE, MAP_RATE = 0.1, 0.1
# The weight of the map's distance from its start, in examples: without it 256 features
# of usps are learned by heart, and with ten times as much letter loses.
PRIOR = 10.0
# Fewer steps than that leave the metric where it was: small data are passed over often.
FEWEST_STEPS = 1000


def start(kernel: Kernel, form: bool | str, width: int, dtype: Any) -> np.ndarray:
    """The first map: that of a mapped kernel, else the identity."""
    if isinstance(kernel, Mapped):
        return np.asarray(kernel.matrix)
    return np.ones(width, dtype) if form == "diagonal" else np.eye(width, dtype=dtype)


def learned(
    loss: Callable[[Array, Array], Array],
    basis: Basis,
    matrix: np.ndarray,
    blocks: Callable[[], Iterable[Block]],
    judge: Callable[[Callable[[np.ndarray], np.ndarray]], float],
    penalty: float,
    *,
    epochs: int,
    seed: int,
    report: Callable[[str], object],
) -> tuple[Float[Array, "rows d"], Float[Array, "d ..."]]:
    """Support vectors and map of a smaller objective.

    Cost per epoch: O(n (d r + B (r + C))), and O(B d r + B^2 (r + C)) per step, for a
    map to r features; a factor per feature is r = d without the products d r.

    Args:
      loss: a function of a score and a target, both scalars; with labels the logistic
        one takes its place.
      basis: the features, with the support vectors to begin with and a kernel for
        mapped points.
      matrix: the first map.
      blocks: reads the same blocks every time.
      judge: the error of a function from rows to scores, on rows that are held out; the
        map of least error is kept.
      penalty: C.
      epochs: passes over the blocks.
      seed: seed of the order of examples in a block.
      report: called with a message after every epoch.
    """
    rows = sum(block.weights.shape[0] for block in blocks())
    columns = next(iter(blocks())).targets.shape[1]
    mask = np.asarray(basis.expansion.mask)
    original = np.asarray(basis.expansion.vectors)
    vectors = np.where(mask[:, None], original, 0)
    unit = unit_of(vectors[mask])
    fixed = (
        basis,
        unit,
        matrix,
        np.asarray(rows, unit.dtype),
        unit.dtype.type(penalty),
    )
    weights = np.zeros((columns, basis.num_features), unit.dtype)
    first = tuple(jnp.asarray(part) for part in (vectors / unit, weights, 0 * matrix))
    vectors, _, change = minimised(
        _objective(loss),
        first,
        fixed,
        blocks,
        rate=RATE,
        epochs=max(epochs, -(-FEWEST_STEPS * BATCH // rows)),
        seed=seed,
        report=lambda mean: report(f"metric, objective {mean:.6g} per example"),
        judge=lambda parameters: judge(lambda X: _scores(parameters, fixed, X)),
    )
    vectors = np.where(mask[:, None], np.asarray(vectors) * unit, original)
    return jnp.asarray(vectors), jnp.asarray(matrix + MAP_RATE * np.asarray(change))


def _parts(parameters: Any, fixed: Any, X: Array) -> tuple[Array, Array]:
    """`||w||^2` and the scores."""
    vectors, weights, change = parameters
    basis, unit, matrix, *_ = fixed
    mapped = basis._replace(kernel=Mapped(basis.kernel, matrix + MAP_RATE * change))
    return norm_and_scores(mapped, vectors * unit, weights, X)


@jax.jit
def _scores(parameters: Any, fixed: Any, X: Array) -> Float[Array, "n columns"]:
    return _parts(parameters, fixed, X)[1]


@functools.cache
def _objective(loss: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """The objective of a batch, per row."""
    of_labels = losses.takes_labels(loss)

    def objective(
        parameters: Any, fixed: Any, X: Array, targets: Array, weights: Array
    ) -> Float[Array, ""]:
        *_, rows, penalty = fixed
        norm, scores = _parts(parameters, fixed, X)
        if not of_labels:
            each = jax.vmap(loss)(scores[:, 0], targets[:, 0])
        elif scores.shape[1] == 1:
            each = jax.nn.softplus(-targets[:, 0] * scores[:, 0])
        else:
            right = (targets + 1) / 2
            each = -jnp.sum(right * jax.nn.log_softmax(scores, axis=1), axis=1)
        prior = PRIOR * jnp.sum((MAP_RATE * parameters[2]) ** 2)
        return jnp.mean(weights * each) + (norm / penalty + prior) / (2 * rows)

    return objective
