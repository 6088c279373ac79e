r"""Newton's method for linear models on features of a kernel, in passes over data.

It solves many problems at once, one per class and penalty, all with the same features
`p(x) = root^T k(Z, x)`. A problem has weights `w`, a penalty `C` and targets `t`, and
minimises

    1/2 ||w||^2 + C sum_i loss(w^T p(x_i), t_i).

A pass sums value, gradient and Hessian over blocks of examples, so the data may be
larger than memory. With the squared hinge loss, only examples within the margin have a
curvature, and only they cost more than a score. If the examples are divided among
devices, each sums its own, and the sums of a pass are added once, so that examples do
not move. This is the finite Newton method of
Keerthi and DeCoste (2005), "A modified finite Newton method for fast solution of large
scale linear SVMs", https://jmlr.org/papers/v6/keerthi05a.html, with step halving in
place of its line search.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Integer, PyTree

from budgetjax import _checks, kernels
from budgetjax._sharding import Shards
from budgetjax.kernels import Kernel
from budgetjax.online import support_set
from budgetjax.online.support_set import Expansion
from budgetjax.refitting import training_data
from budgetjax.refitting.training_data import Block
from budgetjax.tables import encoding

# The number of examples whose outer products one matrix product sums.
CHUNK = 128
# The Hessian, but not the gradient, leaves out examples whose curvature is below this
# fraction of the problem's largest: the steps differ a little, the solution does not.
# Losses with curvatures of all magnitudes, such as those with exp, need all examples.
NEGLIGIBLE = 1e-3
# The ridge of a Hessian, as a fraction of its diagonal.
RIDGE = 1e-6
# For data that are read once: the maximum number of Newton steps per block, and the
# relative change of the weights at which they stop.
STEPS, SETTLED = 8, 1e-2
# The maximum number of passes over data that are read again.
MAX_PASSES = 100
# The matrices that LAPACK holds for eigenvectors or a step, beside the Hessians.
MATRICES = 6
# A step counts as a descent if the value rises by at most this fraction of its terms.
ROUNDING = 1e-7


class Basis(NamedTuple):
    """A feature map; some of its features may be 0.

    Attributes:
      kernel: k.
      expansion: the support vectors Z.
      root: the features are `root^T k(Z, x)`, shape `(rows, features)`.
      constant: the value of a constant feature, whose weight gives a bias; or None.
      coder: what makes codes of the numbers that are given; None for rows themselves.
      map: what makes rows x of codes; None for rows themselves.
    """

    kernel: Kernel
    expansion: Expansion
    root: Float[Array, "rows features"]
    constant: Float[Array, ""] | None = None
    coder: encoding.Coder | None = None
    map: Float[Array | np.ndarray, "codes d"] | None = None

    def rows(
        self, X: Float[Array | np.ndarray, "size columns"]
    ) -> Float[Array, "size d"]:
        """The rows of given examples as differences from the origin, in programs."""
        rows = self.codes(X)
        if self.map is not None:
            rows = _matmul(rows, jnp.asarray(self.map))
        return rows - self.expansion.origin[None]

    def codes(
        self, X: Float[Array | np.ndarray, "size columns"]
    ) -> Float[Array, "size codes"]:
        """The codes of given examples, or the examples where nothing encodes them."""
        if self.coder is None:
            return jnp.asarray(X)
        codes = self.coder.write(jnp.asarray(X))
        # In a product, a CPU would write every code once per column of the result.
        return jax.lax.optimization_barrier(codes)

    @property
    def num_features(self) -> int:
        """The length of a problem's weights."""
        return self.root.shape[1] + (self.constant is not None)


def scores(
    basis: Basis,
    weights: Float[np.ndarray, "problems features"],
    X: Float[np.ndarray, "size columns"],
) -> Float[np.ndarray, "size problems"]:
    """The scores of all problems."""
    return np.asarray(features(basis, X)) @ weights.T


def _matmul(left: Array, right: Array) -> Array:
    return jnp.matmul(left, right, precision="highest")


@jax.jit
def features(
    basis: Basis, X: Float[Array | np.ndarray, "size columns"]
) -> Float[Array, "size features"]:
    """`p(x)` of every row, in its own program; the others do not depend on kernels."""
    X = basis.rows(X)
    rows = support_set.kernel_rows(
        basis.kernel, basis.expansion, X, kernels.squared_norms(X)
    )
    # Free slots hold arbitrary vectors, and the root's zeros do not cancel a NaN.
    found = _matmul(jnp.where(basis.expansion.mask[None], rows, 0), basis.root)
    if basis.constant is None:
        return found
    return jnp.pad(found, ((0, 0), (0, 1)), constant_values=basis.constant)


def with_features(
    basis: Basis, blocks: Iterable[Block]
) -> Iterator[tuple[Block, Float[Array, "size features"]]]:
    """The blocks, with targets and weights on their devices, and their features."""
    known, everywhere, before = None, basis, None
    for block in blocks:
        # A slow device does not collect blocks that wait for it.
        jax.block_until_ready(before)
        shards = block.shards
        if shards != known:
            known, everywhere = shards, shards.replicate(basis)
        X, targets, weights = shards.place(block[:3])
        found = before = features(everywhere, X)
        yield Block(block.X, targets, weights, shards), found


def of_problems(loss: Callable[..., Array], problems: int, dtype: Any) -> Partial:
    """A loss whose parameters are given per problem.

    Parameters per column, shape `(columns,)`, are repeated for every penalty.
    """
    loss = loss if isinstance(loss, Partial) else Partial(loss)
    return jax.tree.map(lambda leaf: np.resize(leaf, problems).astype(dtype), loss)


@jax.jit
def _derivatives(
    loss: Partial,
    features: Float[Array, "size features"],
    block: Block,
    weights: Float[Array, "problems features"],
    penalties: Float[Array, " problems"],
) -> tuple[
    Float[Array, "*devices 3 problems"],
    Float[Array, "*devices problems features"],
    Float[Array, "*devices problems rows"],
]:
    """The first and second derivatives of the losses of a block, per device.

    Returns:
      The sums of the losses, of their absolute values, and of these clipped at 1; the
      gradient of the first sum; and the second derivative of each loss.
    """

    def slope(score, target, loss):
        value, slope = jax.value_and_grad(loss)(score, target)
        return slope, (value, slope)

    curvature = jax.vmap(jax.grad(slope, has_aux=True))

    def derive(_: Any, rows: PyTree, rest: PyTree) -> tuple[Array, Array, Array]:
        (features, targets, counts), (loss, weights, penalties) = rows, rest
        found = _matmul(features, weights.T)
        targets = jnp.tile(targets, (1, found.shape[1] // targets.shape[1]))
        factors = counts[:, None] * penalties[None]
        curvatures, (values, slopes) = jax.vmap(curvature, (0, 0, None))(
            found, targets, loss
        )
        sizes = jnp.abs(values)
        losses = jnp.stack([values, sizes, jnp.minimum(sizes, 1)])
        losses = jnp.sum(factors[None] * losses, axis=1)
        return losses, _matmul((factors * slopes).T, features), (factors * curvatures).T

    rows = features, block.targets, block.weights
    return block.shards.map(derive, (), rows, (loss, weights, penalties))


def _add_curvature(
    hessian: Float[Array | np.ndarray, "*devices features features"],
    features: Float[Array, "size features"],
    curvatures: Float[np.ndarray, "local rows"],
    shards: Shards,
    negligible: float = NEGLIGIBLE,
) -> Float[Array | np.ndarray, "*devices features features"]:
    """The Hessian plus `sum_i c_i p_i p_i^T`, over examples with a curvature."""
    # Avoids 0 times infinity after an overflow of a loss.
    least = negligible * np.max(curvatures) if negligible else 0
    # Chunks are full: the first example, with height 0, pads the last.
    devices, size = curvatures.shape
    order = np.zeros((devices, size + CHUNK), np.int32)
    heights = np.zeros(order.shape, curvatures.dtype)
    counts = np.zeros(devices, np.int32)
    for i, row in enumerate(curvatures):
        rows = np.flatnonzero(row > least)
        counts[i] = len(rows)
        order[i, : len(rows)], heights[i, : len(rows)] = rows, row[rows]
    chosen = shards.place_parts((order, heights, counts))
    return _add_outer(hessian, features, *chosen, shards)


@functools.partial(jax.jit, donate_argnums=0)
def _add_outer(
    hessian: Float[Array, "*devices features features"],
    features: Float[Array, "size features"],
    order: Integer[Array, "*devices room"],
    heights: Float[Array, "*devices room"],
    count: Integer[Array, "*devices"],
    shards: Shards,
) -> Float[Array, "*devices features features"]:
    """The matrix plus `sum_i h_i p_i p_i^T` over the first `count` rows of an order."""

    def add(parts: tuple[Array, ...], features: Array, _: Any) -> Array:
        hessian, order, heights, count = parts

        def body(carry: tuple[Integer[Array, ""], Array]):
            start, hessian = carry
            rows = jax.lax.dynamic_slice_in_dim(order, start, CHUNK)
            high = jax.lax.dynamic_slice_in_dim(heights, start, CHUNK)
            scaled = features[rows] * jnp.sqrt(high)[:, None]
            return start + CHUNK, hessian + _matmul(scaled.T, scaled)

        carry = jnp.zeros((), jnp.int32), hessian
        return jax.lax.while_loop(lambda carry: carry[0] < count, body, carry)[1]

    return shards.map(add, (hessian, order, heights, count), features, ())


@jax.jit
def _step(
    hessian: Float[Array, "features features"], gradient: Float[Array, " features"]
) -> tuple[Float[Array, " features"], Float[Array, " features"]]:
    """`(I + H)^-1 g`, and the diagonal of `H`."""
    curved = jnp.diagonal(hessian)
    matrix = hessian + jnp.diag(1 + RIDGE * curved)
    factor = jax.scipy.linalg.cho_factor(matrix, lower=True)
    return jax.scipy.linalg.cho_solve(factor, gradient), curved


def _steps(
    hessians: Iterable[Float[Array | np.ndarray, "features features"]],
    gradients: Float[np.ndarray, "problems features"],
) -> tuple[np.ndarray, np.ndarray]:
    """The steps of all problems, and the diagonals of the Hessians."""
    pairs = zip(hessians, gradients, strict=True)
    steps, curved = zip(*(_step(*pair) for pair in pairs), strict=True)
    return np.stack(steps), np.stack(curved)


Moments = tuple[
    Float[Array | np.ndarray, "*devices features features"],
    Float[Array | np.ndarray, "*devices classes features"],
]


@functools.partial(jax.jit, donate_argnums=0)
def _moments(
    moments: Moments, features: Float[Array, "size features"], block: Block
) -> Moments:
    """Adds a block to `sum_i p_i p_i^T` and `sum_i t_i p_i` of every device."""

    def add(moments: Moments, rows: PyTree, _: Any) -> Moments:
        (gram, products), (features, targets, counts) = moments, rows
        weighted = counts[:, None] * features
        return (
            gram + _matmul(weighted.T, features),
            products + _matmul(targets.T, weighted),
        )

    rows = features, block.targets, block.weights
    return block.shards.map(add, moments, rows, ())


def moments(
    basis: Basis, blocks: Iterable[Block]
) -> tuple[
    Float[np.ndarray, "features features"], Float[np.ndarray, "columns features"], int
]:
    """`sum_i p_i p_i^T` and `sum_i t_i p_i` of each column, and the number of rows."""
    width, columns = basis.num_features, basis.expansion.num_columns
    sums, rows, shards = None, 0, Shards()
    for block, found in with_features(basis, blocks):
        shards = block.shards
        if sums is None:
            shapes = (width, width), (columns, width)
            sums = tuple(shards.zeros(shape, basis.root.dtype) for shape in shapes)
        sums = _moments(sums, found, block)
        rows += block.weights.shape[0]
    gram, products = (np.asarray(one) for one in shards.sum(sums))
    return gram, products, int(shards.total(rows))


def check_memory(state: Any, penalties: int = 1) -> None:
    """Raises if the matrices of a refit of a state are larger than the memory."""
    expansion = state.expansion
    rows, columns = len(expansion.vectors), expansion.num_columns
    _checks.check_memory(
        {"budget": rows - 1, "columns": columns, "penalties": penalties},
        count_bytes(rows, columns * penalties, expansion.vectors.dtype.itemsize),
        "for the matrices of a refit, one per column and penalty",
        "lower it, or take one penalty, or no refit",
    )


def count_bytes(rows: int, problems: int, itemsize: int) -> int:
    """The bytes of the matrices of a refit.

    They are the Hessian of every problem, six for a kernel matrix and its eigenvectors,
    and the features of a block.
    """
    return itemsize * rows * ((problems + MATRICES) * rows + 2 * training_data.BLOCK)


def least_squares(
    basis: Basis,
    blocks: Iterable[Block],
    penalties: Float[np.ndarray, " problems"],
) -> tuple[Float[np.ndarray, "problems features"], int]:
    """The weights for the loss `(score - target)^2`, and the number of rows.

    They are a good start for other losses. The cost is one pass; all columns of a
    penalty share one matrix.
    """
    gram, products, rows = moments(basis, blocks)
    columns, found = len(products), []
    for twice in 2 * penalties[::columns]:
        found.append(_steps([twice * gram] * columns, twice * products)[0])
    return np.concatenate(found), rows


def minimise(
    loss: Callable[[Array, Array], Array],
    basis: Basis,
    blocks: Callable[[], Iterable[Block]],
    weights: Float[np.ndarray, "problems features"],
    penalties: Float[np.ndarray, " problems"],
    *,
    tolerance: float,
    negligible: float = NEGLIGIBLE,
    report: Callable[[str], object] = lambda text: None,
) -> tuple[Float[np.ndarray, "problems features"], np.ndarray, np.ndarray]:
    """The minimum of every problem, in passes over the blocks.

    Each problem makes a full Newton step. If a step raised the objective, or a loss
    overflowed, the step is halved; a start that overflows is replaced by 0. A problem
    has converged when the next step would gain less than `tolerance` of its objective,
    in which absolute losses are clipped at 1, so that outliers do not count.

    Cost: a pass takes O(n B (d + B + C)), and O(B^2) per class and example within the
    margin; the steps take O(problems B^3).

    Args:
      loss: a convex function of a score and a target, both scalars, with a derivative;
        a `Partial` may have parameters per column.
      basis: the features.
      blocks: reads the same blocks, of one size, every time.
      weights: the weights to start from.
      penalties: C of each problem; problems with the same penalty are adjacent, in the
        order of the columns of targets.
      tolerance: the gain at which a problem has converged.
      negligible: curvatures below this fraction of the largest are left out.
      report: called with a message after every pass.

    Returns:
      The weights, shape `(problems, features)`; the objectives, and whether each
      problem has converged, both of shape `(problems,)`.
    """
    problems, width = weights.shape
    each = of_problems(loss, problems, weights.dtype)
    best, value = np.zeros_like(weights), np.full(problems, np.inf)
    converged = np.zeros(problems, bool)
    for number in range(MAX_PASSES):
        slopes, hessians, shards = 0, [], Shards()
        # The few numbers that decide are accumulated in double precision.
        totals = np.zeros((3, problems))
        for block, found in with_features(basis, blocks()):
            shards = block.shards
            given = _derivatives(each, found, block, weights, penalties)
            losses, more, curvatures = map(shards.local_parts, given)
            totals += np.sum(losses, axis=0, dtype=np.float64)
            slopes = slopes + more
            if not hessians:
                shape = width, width
                hessians = [shards.zeros(shape, weights.dtype) for _ in range(problems)]
            for i in np.flatnonzero(~converged):
                hessians[i] = _add_curvature(
                    hessians[i], found, curvatures[:, i], shards, negligible
                )
        # Losses may be negative, so their absolute values bound the rounding errors.
        norms = np.sum(weights.astype(np.float64) ** 2, axis=1) / 2
        total, rounded, size = norms + shards.total(totals)
        slopes, hessians = shards.sum((shards.place_parts(slopes), hessians))
        gradient = weights + np.asarray(slopes)
        step, curved = _steps(hessians, gradient)
        gain = np.sum(step * gradient, axis=1) / 2
        finite = np.isfinite(curved) & np.isfinite(gradient)
        finite = np.isfinite(total) & np.all(finite, axis=1)
        lower = finite & (total <= value + ROUNDING * rounded)
        best = np.where(lower[:, None], weights, best)
        value = np.where(lower, total, value)
        unknown = np.isinf(value)
        if number and np.any(unknown):
            break
        converged |= lower & (gain <= tolerance * size)
        back = np.where(unknown[:, None], 0, (weights + best) / 2)
        following = np.where(lower[:, None], weights - step, back)
        weights = np.where(converged[:, None], best, following).astype(best.dtype)
        report(f"objective {value.sum():.6g}, {converged.sum()}/{problems} converged")
        if np.all(converged):
            break
    return best, value, converged


def one_pass(
    loss: Callable[[Array, Array], Array],
    basis: Basis,
    blocks: Iterable[Block],
    penalties: Float[np.ndarray, " problems"],
    report: Callable[[str], object] = lambda text: None,
) -> Float[np.ndarray, "problems features"]:
    """Nearly the minimum of every problem, from data that can be read only once.

    Past blocks are represented by quadratic approximations of their losses at the
    weights of that time. Newton's method adds the losses of each new block. The
    arguments are those of `minimise`.
    """
    problems, width = len(penalties), basis.num_features
    weights = pull = below = np.zeros((problems, width), basis.root.dtype)
    each = of_problems(loss, problems, weights.dtype)
    past = new = [np.zeros((width, width), weights.dtype)] * problems
    for block, found in with_features(basis, blocks):
        shards = block.shards
        for _ in range(STEPS):
            last = weights
            _, slopes, curvatures = _derivatives(each, found, block, weights, penalties)
            # At the minimum v of the approximation, g + H (v - w) = 0, so H v = H w -
            # g.
            hessians = [
                _add_curvature(
                    shards.zeros((width, width), row.dtype), found, row, shards
                )
                for row in np.moveaxis(shards.local_parts(curvatures), 1, 0)
            ]
            slopes, *hessians = map(np.asarray, shards.sum((slopes, *hessians)))
            here = np.einsum("cij,cj->ci", hessians, weights)
            below = pull + here - slopes
            new = [one + two for one, two in zip(past, hessians, strict=True)]
            weights, _ = _steps(new, below)
            change = np.linalg.norm(weights - last)
            if change <= SETTLED * np.linalg.norm(weights):
                break
        past, pull = new, below
        report("a block at a time")
    return weights
