"""Support vectors that move: gradient steps on them and their coefficients together.

The objective of `budgetjax.refit`, as a function of the support vectors too:

    1/2 ||w||^2 + C sum_i loss(f(x_i), t_i),  ||w||^2 = sum over columns of a^T K a,

with the coefficients `a = root w` for the root of the first vectors, in which the
problem is well conditioned.
"""

import functools
import operator
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float

from budgetjax import kernels, support_set
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.passes import Block

# Examples per step.
BATCH = 128
# The first rate of Adam, for vectors in units of the deviation of their features; it
# falls to 0 along a cosine. On letter, ijcnn1, usps and a checkerboard a third of it or
# three times as much gained less, but always more than half.
RATE = 0.03

Parameters = tuple[Float[Array, "rows d"], Float[Array, "columns features"]]


def moved(
    loss: Callable[[Array, Array], Array],
    basis: Basis,
    blocks: Callable[[], Iterable[Block]],
    weights: Float[np.ndarray, "columns features"],
    penalty: float,
    *,
    epochs: int,
    seed: int,
    report: Callable[[str], object],
) -> Float[Array, "rows d"]:
    """Support vectors of a smaller objective; O(n B (d + C)) per epoch.

    Args:
      loss: a function of a score and a target, both scalars.
      basis: the features, with the support vectors to begin with.
      blocks: reads the same blocks every time.
      weights: the solution for these support vectors.
      penalty: C.
      epochs: passes over the blocks.
      seed: seed of the order of examples in a block.
      report: called with a message after every epoch.
    """
    counts = [block.weights.shape[0] for block in blocks()]
    rows = sum(counts)
    steps = epochs * sum(-(-count // BATCH) for count in counts)
    optimizer = _adam(steps)
    step = functools.partial(_steps, loss, optimizer.update)
    mask = np.asarray(basis.expansion.mask)
    original = np.asarray(basis.expansion.vectors)
    vectors = np.where(mask[:, None], original, 0)
    unit = _unit(vectors[mask])
    parameters = jnp.asarray(vectors / unit), jnp.asarray(weights)
    memory = optimizer.init(parameters)
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        total = 0.0
        for block in blocks():
            # The last batch of a block is filled up with other rows of it.
            size = block.weights.shape[0]
            order = np.resize(random.permutation(size), -(-size // BATCH) * BATCH)
            parameters, memory, value = step(
                parameters,
                memory,
                basis,
                unit,
                np.asarray(penalty * rows, vectors.dtype),
                block,
                order.reshape(-1, BATCH).astype(np.int32),
            )
            total += float(value) * size / rows
        report(f"moving, objective {total * penalty * rows:.6g}")
    moved = np.asarray(parameters[0]) * unit
    return jnp.asarray(np.where(mask[:, None], moved, original))


@functools.cache
def _adam(steps: int) -> optax.GradientTransformation:
    """Adam, the same object for as many steps: `_steps` is compiled once."""
    return optax.adam(optax.cosine_decay_schedule(RATE, steps))


def _unit(vectors: Float[np.ndarray, "active d"]) -> np.floating:
    """The root mean variance of the features that vary."""
    variances = np.var(vectors.astype(np.float64), axis=0)
    # What varies by no more than it is rounded is constant.
    rounding = np.finfo(vectors.dtype).eps * np.abs(vectors).max(axis=0)
    varying = variances > rounding**2
    mean = np.mean(variances[varying]) if np.any(varying) else np.ones(())
    return vectors.dtype.type(np.sqrt(mean))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _steps(
    loss: Callable[[Array, Array], Array],
    update: Callable,
    parameters: Parameters,
    memory: optax.OptState,
    basis: Basis,
    unit: Float[Array, ""],
    strength: Float[Array, ""],
    block: Block,
    order: Array,
) -> tuple[Parameters, optax.OptState, Float[Array, ""]]:
    """One step per row of `order`; and the mean objective per row and penalty."""

    def objective(parameters, X, targets, weights):
        vectors, expansion = parameters[0] * unit, basis.expansion
        moving = expansion._replace(
            vectors=vectors, squares=kernels.squared_norms(vectors)
        )
        coefficients = jnp.matmul(basis.root, parameters[1].T, precision="highest")
        rows = support_set.kernel_rows(
            basis.kernel, moving, X, kernels.squared_norms(X)
        )
        rows = jnp.where(moving.mask[None], rows, 0)
        scores = jnp.matmul(rows, coefficients, precision="highest")
        gram = support_set.gram(basis.kernel, moving)
        responses = jnp.matmul(gram, coefficients, precision="highest")
        norm = jnp.sum(coefficients * responses)
        losses = jax.vmap(jax.vmap(loss))(scores, targets)
        losses = jnp.sum(weights[:, None] * losses, axis=1)
        return norm / (2 * strength) + jnp.mean(losses)

    def body(carry, rows):
        parameters, memory = carry
        batch = (array[rows] for array in block)
        value, slopes = jax.value_and_grad(objective)(parameters, *batch)
        # Optimisers of optax mix types of numbers.
        with jax.numpy_dtype_promotion("standard"):
            changes, new = update(slopes, memory, parameters)
            moved = jax.tree.map(operator.add, parameters, changes)
        new = jax.tree.map(lambda leaf, old: leaf.astype(old.dtype), new, memory)
        return (moved, new), value

    (parameters, memory), values = jax.lax.scan(body, (parameters, memory), order)
    return parameters, memory, jnp.mean(values)
