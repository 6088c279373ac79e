r"""Newton's method for linear models on the features of a kernel, in passes over data.

Many problems at once, all with the same features `p(x) = root^T k(Z, x)`: one a class
and penalty. Problem c has weights `w`, penalty `C` and targets `t`, and minimises

    1/2 ||w||^2 + C sum_i loss(w^T p(x_i), t_i).

A pass sums value, gradient and Hessian over blocks of examples, so the data may be
larger than memory. Of the squared hinge loss only examples within the margin have a
curvature, and only they cost more than a score: the finite Newton method of Keerthi and
DeCoste (2005), "A modified finite Newton method for fast solution of large scale linear
SVMs", with a halving of steps in place of its line search.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import expansion as support_set
from budgetjax import kernels
from budgetjax.expansion import Expansion
from budgetjax.kernels import Kernel
from budgetjax.passes import Block

# Examples whose outer products are summed by one matrix product.
CHUNK = 128
# Examples with less than this part of a problem's largest curvature are left out of
# the Hessian, not of the gradient: the steps differ a little, not where they lead.
NEGLIGIBLE = 1e-3
# Of a Hessian's diagonal, added to it.
RIDGE = 1e-6
# A step that must lower the value may raise it by this part of it, its rounding.
ROUNDING = 1e-7


class Basis(NamedTuple):
    """A feature map; it need not use all of its features.

    Attributes:
      kernel: of the model.
      expansion: with the support vectors Z.
      root: the features are `root^T k(Z, x)`, shape `(rows, features)`.
    """

    kernel: Kernel
    expansion: Expansion
    root: Float[Array, "rows features"]


class Sums(NamedTuple):
    """Sums over examples, of the losses at some weights.

    Attributes:
      value: shape `(problems,)`.
      gradient: shape `(problems, features)`.
      hessian: shape `(problems, features, features)`.
    """

    value: Float[Array, " problems"]
    gradient: Float[Array, "problems features"]
    hessian: Float[Array, "problems features features"]


class Solution(NamedTuple):
    """What the passes over the data have found.

    Attributes:
      weights: shape `(problems, features)`.
      value: the objective there, shape `(problems,)`.
      converged: shape `(problems,)`.
    """

    weights: Float[Array, "problems features"]
    value: np.ndarray
    converged: np.ndarray


def scores(
    basis: Basis, weights: Float[Array, "problems features"], X: Float[Array, "size d"]
) -> Float[Array, "size problems"]:
    """The scores of all problems."""
    return _times(_features(basis, X), weights.T)


def _times(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision="highest")


def _features(basis: Basis, X: Float[Array, "size d"]) -> Float[Array, "size features"]:
    rows = support_set.kernel_rows(
        basis.kernel, basis.expansion, X, kernels.squared_norms(X)
    )
    # Free slots hold arbitrary vectors, and a root has zeros there: but not times NaN.
    return _times(jnp.where(basis.expansion.mask[None], rows, 0), basis.root)


def _zero(problems: int, features: int, dtype) -> Sums:
    shapes = (problems,), (problems, features), (problems, features, features)
    return Sums(*(jnp.zeros(shape, dtype) for shape in shapes))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _add(
    loss: Callable[[Array, Array], Array],
    sums: Sums,
    basis: Basis,
    block: Block,
    weights: Float[Array, "problems features"],
    penalties: Float[Array, " problems"],
    wanted: Bool[Array, " problems"],
) -> Sums:
    """The sums with those of one more block; Hessians of the problems wanted only."""
    features = _features(basis, block.X)
    found = _times(features, weights.T)
    repeats = found.shape[1] // block.targets.shape[1]
    targets = jnp.tile(block.targets, (1, repeats))
    factors = block.weights[:, None] * penalties[None]
    slope = jax.grad(loss)
    slopes = factors * jax.vmap(jax.vmap(slope))(found, targets)
    curvatures = factors * jax.vmap(jax.vmap(jax.grad(slope)))(found, targets)
    curvatures = jnp.where(wanted[None], curvatures, 0)
    hessian = jax.lax.map(
        lambda given: _outer(features, *given), (curvatures.T, sums.hessian)
    )
    return Sums(
        sums.value + jnp.sum(factors * loss(found, targets), axis=0),
        sums.gradient + _times(slopes.T, features),
        hessian,
    )


def _outer(
    features: Float[Array, "size features"],
    curvatures: Float[Array, " size"],
    hessian: Float[Array, "features features"],
) -> Float[Array, "features features"]:
    """The Hessian and `sum_i c_i p_i p_i^T`, over those that have a curvature."""
    size = curvatures.shape[0]
    curved = curvatures > NEGLIGIBLE * jnp.max(curvatures)
    places = jnp.cumsum(curved, dtype=jnp.int32)
    index = jnp.arange(size, dtype=jnp.int32)
    # The curved ones, in order, and behind them the first example, with nothing.
    order = jnp.zeros((size + CHUNK,), jnp.int32)
    order = order.at[jnp.where(curved, places - 1, size + CHUNK)].set(
        index, mode="drop"
    )
    chunk = jnp.arange(CHUNK, dtype=jnp.int32)

    def body(carry: tuple[Integer[Array, ""], Array]):
        start, hessian = carry
        rows = jax.lax.dynamic_slice_in_dim(order, start, CHUNK)
        heights = jnp.where(start + chunk < places[-1], curvatures[rows], 0)
        scaled = features[rows] * jnp.sqrt(heights)[:, None]
        return start + CHUNK, hessian + _times(scaled.T, scaled)

    start = jnp.zeros((), jnp.int32)
    return jax.lax.while_loop(
        lambda carry: carry[0] < places[-1], body, (start, hessian)
    )[1]


@jax.jit
def _step(
    hessian: Float[Array, "problems features features"],
    gradient: Float[Array, "problems features"],
) -> Float[Array, "problems features"]:
    """`(I + H)^-1 g`, one problem after the other."""

    def solve(given):
        matrix, right = given
        matrix = matrix + jnp.diag(1 + RIDGE * jnp.diagonal(matrix))
        factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
        return jax.scipy.linalg.cho_solve(factor, right)

    return jax.lax.map(solve, (hessian, gradient))


@jax.jit
def _moments(
    basis: Basis, block: Block
) -> tuple[Float[Array, "features features"], Float[Array, "classes features"]]:
    """`sum_i p_i p_i^T` and `sum_i t_i p_i` of a block."""
    features = _features(basis, block.X)
    weighted = block.weights[:, None] * features
    return _times(weighted.T, features), _times(block.targets.T, weighted)


def least_squares(
    basis: Basis, blocks: Iterable[Block], penalties: Float[Array, " problems"]
) -> tuple[Float[Array, "problems features"], int]:
    """The weights for the loss `(score - target)^2`, a good start for others; and rows.

    One pass; all classes of a penalty share one matrix.
    """
    gram, products, rows = functools.reduce(
        lambda left, right: jax.tree.map(operator.add, left, right),
        ((*_moments(basis, block), block.weights.shape[0]) for block in blocks),
    )
    classes = products.shape[0]
    found = []
    for penalty in penalties[::classes]:
        matrix = jnp.broadcast_to(2 * penalty * gram, (classes, *gram.shape))
        found.append(_step(matrix, 2 * penalty * products))
    return jnp.concatenate(found), rows


def minimise(
    loss: Callable[[Array, Array], Array],
    basis: Basis,
    blocks: Callable[[], Iterable[Block]],
    weights: Float[Array, "problems features"],
    penalties: Float[Array, " problems"],
    *,
    max_passes: int,
    tolerance: float,
    report: Callable[[str], object] = lambda text: None,
) -> Solution:
    """The least of every problem, in passes over the blocks.

    Each problem makes a full Newton step where that does not raise its objective, and
    else comes back half of the way. It has converged when the next step would gain less
    than `tolerance` of its objective.

    Cost: a pass takes O(n B (d + B + C)) and O(B^2) an example within the margin and
    class; the steps O(problems B^3).

    Args:
      loss: of scalars, score and target: convex, with a derivative; elementwise.
      basis: the features.
      blocks: gives the same blocks, of one size, every time.
      weights: where to start.
      penalties: of each problem; problems of one penalty stand together, in the order
        of the columns of targets.
      max_passes: the most passes.
      tolerance: as above.
      report: is told after every pass how far it is.
    """
    problems, width = weights.shape
    best, value = weights, np.full(problems, np.inf)
    converged = np.zeros(problems, bool)
    for _ in range(max_passes):
        sums, total = _zero(problems, width, weights.dtype), np.zeros(problems)
        wanted = jnp.asarray(~converged)
        for block in blocks():
            sums = sums._replace(value=jnp.zeros_like(sums.value))
            sums = _add(loss, sums, basis, block, weights, penalties, wanted)
            # The few numbers that decide are summed in double precision.
            total += np.asarray(sums.value, np.float64)
        total += np.sum(np.asarray(weights, np.float64) ** 2, axis=1) / 2
        lower = total <= value * (1 + ROUNDING)
        gradient = weights + sums.gradient
        step = _step(sums.hessian, gradient)
        gain = np.asarray(jnp.sum(step * gradient, axis=1)) / 2
        best = jnp.where(lower[:, None], weights, best)
        value = np.where(lower, total, value)
        curved = jnp.diagonal(sums.hessian, axis1=1, axis2=2)
        finite = np.asarray(jnp.all(jnp.isfinite(curved + gradient), axis=1))
        value = np.where(lower & ~finite, np.nan, value)
        if not np.all(np.isfinite(value)):
            break
        converged |= lower & (gain <= tolerance * total)
        following = jnp.where(lower[:, None], weights - step, (weights + best) / 2)
        weights = jnp.where(converged[:, None], best, following)
        report(f"objective {value.sum():.6g}, {converged.sum()}/{problems} converged")
        if np.all(converged):
            break
    return Solution(best, value, converged)


def one_pass(
    loss: Callable[[Array, Array], Array],
    basis: Basis,
    blocks: Iterable[Block],
    penalties: Float[Array, " problems"],
    report: Callable[[str], object] = lambda text: None,
) -> Float[Array, "problems features"]:
    """Near the least of every problem, from data that can be read once only.

    The losses of past blocks are kept as the quadratic functions they looked like from
    the weights of their time. With these and a new block, two Newton steps are made.

    Args:
      loss, basis, penalties: as for `minimise`.
      blocks: of one size.
      report: is told after every block.
    """
    problems, width = penalties.shape[0], basis.root.shape[1]
    dtype = basis.root.dtype
    every = jnp.ones(problems, bool)
    weights = pull = jnp.zeros((problems, width), dtype)
    hessian = jnp.zeros((problems, width, width), dtype)
    for block in blocks:
        past_hessian, past_pull = hessian, pull
        for _ in range(2):
            sums = _zero(problems, width, dtype)
            sums = _add(loss, sums, basis, block, weights, penalties, every)
            # g + H (v - w) = 0 at v: the quadratic function pulls to H w - g.
            here = jnp.einsum("cij,cj->ci", sums.hessian, weights, precision="highest")
            hessian = past_hessian + sums.hessian
            pull = past_pull + here - sums.gradient
            weights = _step(hessian, pull)
        report("a block at a time")
    return weights
