r"""Norms of slacks, mainly those between a p-norm and the largest entry.

Peetre's K-functional of the p-norm and the largest entry, for vectors of nonnegative
entries, is `||v|| = min_{phi >= 0} ||max(0, v - phi)||_p + t phi`: entries up to `phi`
count only once. With `t = budget^(1/p)` it is about the p-norm of the `budget` largest
entries. Dekel and Singer (2006), "Support vector machines on a budget", Section 3,
measure the slacks of a support vector machine with it. The coefficients then lie in the
ball of the dual norm, `||alpha||_q <= C` and `sum_i alpha_i <= t C`, and are balanced,
`sum_i y_i alpha_i = 0`.
https://papers.nips.cc/paper/3125-support-vector-machines-on-a-budget

The plain p-norms here are the sum (`OneInfinity` with a budget of n), the largest entry
(a budget of 1 with either of the two) and the Euclidean norm (`Euclidean`), whose
weights make it the Mahalanobis norm of a diagonal matrix. For other p the projection
needs an equation per entry, and for other matrices, under which a larger slack may
reduce the norm, a quadratic program.

A balanced vector has the same sum in both classes, so the projection and the best bias
each reduce to searches for one number: a threshold of one class, or of both. Most
searches make passes over the entries, which are far faster than sorting, and handle
many problems at once under `jax.vmap`.
"""

from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from budgetjax import _pytree
from budgetjax.solvers.kernel import hinge_dual, water_level
from budgetjax.solvers.training_set import Scalar, Vector

# The maximum number of passes of a search that rounding keeps from converging.
MAX_PASSES = 100
# The passes between bisections of a search's interval, whatever Newton's method does.
BISECT_EVERY = 3
# The factor for the next depth of a class to try, while the depth is too small.
DEEPER = 4


@runtime_checkable
class Norm(Protocol):
    """The methods that `budget_svm` needs of a norm of slacks, a pytree of arrays.

    The norm must not decrease when a slack grows. `OneInfinity` has no projection,
    since its steps move pairs.
    """

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        """The least norm of `max(0, heights - y bias)`, and the bias."""
        ...

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The coefficients that are closest to these values.

        They are at least 0, balanced, `sum_i y_i alpha_i = 0`, and have a dual norm of
        at most the penalty.
        """
        ...


@_pytree.record
class OneInfinity(NamedTuple):
    """Between the sum and the maximum: the sum of the `budget` largest entries.

    Attributes:
      budget: at least 1. A fractional part counts a fraction of the next largest entry.
    """

    budget: Scalar

    def least(
        self, heights: Vector, y: Vector, weight: Vector | None = None
    ) -> tuple[Scalar, Scalar]:
        """The least norm of `max(0, heights - y bias)`, and the bias; O(n log n).

        With `u = phi + bias` and `w = phi - bias` the classes separate: the norm is the
        minimum of `sum_+ max(0, h - u) + sum_- max(0, h - w) + B (u + w) / 2` over
        `u + w >= 0`. Half of the budget lies above each threshold, unless their sum
        would be below 0; then `phi` is 0.
        """
        weight = jnp.ones_like(heights) if weight is None else weight
        u, w = (
            -hinge_dual.weighted_quantile(
                jnp.where(these, -heights, jnp.inf),
                jnp.where(these, weight, 0),
                self.budget / 2,
            )
            for these in _class_masks(y)
        )
        dense = u + w > 0
        bias = jnp.where(dense, (u - w) / 2, hinge_dual.least_bias(heights, y, weight))
        phi = jnp.where(dense, (u + w) / 2, 0)
        rest = jnp.maximum(heights - y * bias - phi, 0)
        return jnp.sum(weight * rest) + self.budget * phi, bias


@_pytree.record
class TwoInfinity(NamedTuple):
    """Between the Euclidean norm and the largest entry, `t = sqrt(budget)`.

    It is at least the Euclidean norm of the `budget` largest entries, and exceeds it by
    at most `sqrt(budget)` times the smallest of them (Theorem 1).

    Attributes:
      budget: a number of at least 1.
    """

    budget: Scalar

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The nearest coefficients: balanced, `||alpha|| <= C`, sum <= sqrt(B) C.

        If the bound on the sum is not active, the nearest balanced vector is scaled
        into the ball. If it is, half of the sum is in each class. Both bounds may be
        active.
        """
        most = jnp.sqrt(self.budget) * penalty

        def into_ball(vector):
            norm = jnp.sqrt(jnp.sum(vector**2))
            return vector * (penalty / jnp.maximum(norm, penalty))

        bias = threshold(values, y)
        balanced = into_ball(jnp.maximum(values - y * bias, 0))
        over = jnp.sum(balanced) > most
        half = most / 2
        floors, depth = _find_floors(values, y, self.budget, half, half, over)
        floor = jnp.where(y > 0, floors[0], floors[1])
        with_sum = jnp.maximum(values - floor, 0) * (half / depth)
        result = _rebalance(jnp.where(over, with_sum, balanced), y, most)
        return into_ball(result)

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        zero = jnp.zeros_like(self.budget)
        bias = threshold(heights, y)
        rest = jnp.maximum(heights - y * bias, 0)
        total = jnp.sum(rest)
        # True if a phi above 0 is better.
        dense = total**2 > self.budget * jnp.sum(rest**2)
        floors, _ = _find_floors(heights, y, self.budget, total / 2, zero, dense)
        bias = jnp.where(dense, (floors[0] - floors[1]) / 2, bias)
        phi = jnp.where(dense, jnp.maximum((floors[0] + floors[1]) / 2, 0), 0)
        rest = jnp.maximum(heights - y * bias - phi, 0)
        return jnp.sqrt(jnp.sum(rest**2)) + jnp.sqrt(self.budget) * phi, bias


@_pytree.record
class Euclidean(NamedTuple):
    """The Euclidean norm with a weight per entry, `sqrt(sum_i m_i v_i^2)`.

    Attributes:
      weight: m, above 0, shape `(n,)` or `()`.

    Example:
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> norm = bj.norms.Euclidean(np.array([1.0, 1.0, 0.1]))
      >>> found = bj.solve(bj.budget_svm, X, y, kernel=bj.Linear(), norm=norm)
      >>> found.model.predict(X).tolist()
      [-1, 1, 1]
    """

    weight: Float[Array, "..."]

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The nearest coefficients: balanced, `sum_i alpha_i^2 / m_i <= C^2`.

        They are `max(0, v_i - y_i tau) / (1 + shift / m_i)`, with the least sufficient
        shift, found by bisection of its logarithm.
        """
        weight = jnp.broadcast_to(self.weight, values.shape)

        def shrunk(shift):
            shares = weight / (weight + shift)
            tau = threshold(values, y, shares)
            return shares * jnp.maximum(values - y * tau, 0)

        def outside(vector):
            return jnp.sum(vector**2 / weight) > penalty**2

        def body(_, ends):
            middle = jnp.sqrt(ends[0] * ends[1])
            out = outside(shrunk(middle))
            return jnp.where(out, middle, ends[0]), jnp.where(out, ends[1], middle)

        free = shrunk(jnp.zeros((), values.dtype))
        # Sufficient for any threshold, since none exceeds the largest value.
        most = 2 * jnp.sqrt(jnp.sum(weight)) * jnp.max(jnp.abs(values)) / penalty
        most = jnp.maximum(most, jnp.finfo(values.dtype).tiny)
        least = most * jnp.finfo(values.dtype).eps
        # Bisect a range of `nmant` powers of two, then the bits of the number.
        halvings = jnp.int32(jnp.finfo(values.dtype).nmant + 6)
        _, shift = jax.lax.fori_loop(jnp.int32(0), halvings, body, (least, most))
        found = jnp.where(outside(free), shrunk(shift), free)
        return _rebalance(found, y, jnp.array(jnp.inf, values.dtype))

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        weight = jnp.broadcast_to(self.weight, heights.shape)
        bias = threshold(heights, y, weight)
        rest = jnp.maximum(heights - y * bias, 0)
        return jnp.sqrt(jnp.sum(weight * rest**2)), bias


def threshold(values: Vector, y: Vector, weight: Vector | None = None) -> Scalar:
    """`tau` such that `sum_i y_i w_i max(0, v_i - y_i tau) = 0`, for both classes.

    The sum falls with `tau` and is piecewise linear. Newton's method finds the piece in
    a few passes, and bisections between its steps guarantee convergence.
    """
    weights = jnp.ones_like(values) if weight is None else weight
    ends = y * values
    lower, upper = jnp.min(ends), jnp.max(ends)
    rounding = jnp.finfo(values.dtype).eps * jnp.maximum(jnp.abs(lower), jnp.abs(upper))

    def body(carry):
        tau, lower, upper, _, passes = carry
        inner = jnp.maximum(values - y * tau, 0)
        excess = jnp.sum(y * weights * inner)
        slope = jnp.sum(jnp.where(inner > 0, weights, 0))
        lower = jnp.where(excess >= 0, tau, lower)
        upper = jnp.where(excess <= 0, tau, upper)
        following = tau + excess / jnp.where(slope > 0, slope, 1)
        inside = (following >= lower) & (following <= upper)
        inside &= (slope > 0) | (excess == 0)
        found = inside & (jnp.abs(following - tau) <= rounding)
        bisects = ~inside | (~found & (passes % BISECT_EVERY == BISECT_EVERY - 1))
        following = jnp.where(bisects, (lower + upper) / 2, following)
        return following, lower, upper, found | (upper - lower <= rounding), passes + 1

    start = jnp.clip(jnp.zeros_like(lower), lower, upper)
    carry = (start, lower, upper, jnp.bool_(False), jnp.int32(0))
    return jax.lax.while_loop(
        lambda carry: ~carry[3] & (carry[4] < MAX_PASSES), body, carry
    )[0]


def _class_masks(y: Vector) -> Bool[Array, "2 n"]:
    return jnp.stack([y > 0, y < 0])


def _find_floors(
    values: Vector,
    y: Vector,
    budget: Scalar,
    depth: Scalar,
    least: Scalar,
    needed: Bool[Array, ""],
) -> tuple[Float[Array, "2"], Scalar]:
    """Floors of both classes above which the norm equals the sum over `sqrt(budget)`.

    The depth is the sum of the excess above the floor, the same in both classes. While
    the same m entries of a class lie above, the squared norm is
    `V + depth^2 sum 1 / m`, where `V` sums the squared deviations from the class means.
    The squared norm over the squared sum is therefore concave and piecewise linear in
    `1 / depth^2`, and Newton's method converges exactly.

    The search starts at `depth`, and stops at `least` even if the norm is smaller; if
    it is not `needed`, its results are arbitrary. It also returns the depth, which is 0
    if more entries than the budget tie for the largest.
    """
    classes = _class_masks(y)
    heights = jnp.where(classes, -values[None], jnp.inf)

    def body(carry):
        _, depth, floors, passes = carry
        floors = -jax.vmap(water_level.level, (0, None, 0))(heights, depth, -floors)
        above = classes & (values[None] > floors[:, None])
        counts = jnp.maximum(jnp.sum(above, axis=1, dtype=values.dtype), 1)
        means = floors + depth / counts
        deviations = jnp.where(above, values[None] - means[:, None], 0)
        left = 4 / budget - jnp.sum(1 / counts)
        root = jnp.sqrt(jnp.sum(deviations**2) / jnp.where(left > 0, left, 1))
        # Too few entries are above, unless all are and none is left.
        deeper = jnp.where(jnp.all(above == classes), depth, DEEPER * depth)
        following = jnp.maximum(jnp.where(left > 0, root, deeper), least)
        return depth, following, floors, passes + 1

    def unfinished(carry):
        before, depth, _, passes = carry
        rounding = 4 * jnp.finfo(values.dtype).eps * depth
        moved = jnp.abs(depth - before) > rounding
        return needed & moved & (passes < MAX_PASSES)

    floors = jnp.full(2, jnp.max(values))
    carry = (jnp.full_like(depth, jnp.inf), depth, floors, jnp.int32(0))
    depth, _, floors, _ = jax.lax.while_loop(unfinished, body, carry)
    return floors, depth


def _rebalance(coefficients: Vector, y: Vector, most: Scalar) -> Vector:
    """Removes rounding errors: scales both classes down to the same sum."""
    sums = [jnp.sum(jnp.where(y == sign, coefficients, 0)) for sign in (1, -1)]
    total = jnp.minimum(jnp.minimum(*sums), most / 2)
    scales = [total / jnp.where(each > 0, each, 1) for each in sums]
    return coefficients * jnp.where(y > 0, scales[0], scales[1])
