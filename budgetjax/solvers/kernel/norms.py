r"""Norms of slacks, mainly those between a p-norm and the largest entry.

Peetre's K-functional of the p-norm and the largest entry, for vectors of nonnegative
entries, is `||v|| = min_{phi >= 0} ||max(0, v - phi)||_p + t phi`: entries up to `phi`
count only once. With `t = budget^(1/p)` it is about the p-norm of the `budget` largest
entries. Dekel and Singer (2006), "Support vector machines on a budget", Section 3,
measure the slacks of a support vector machine with it. The coefficients then lie in the
ball of the dual norm, `||alpha||_q <= C` and `sum_i alpha_i <= t C`, and are balanced,
`sum_i y_i alpha_i = 0`.
https://papers.nips.cc/paper/3125-support-vector-machines-on-a-budget

A budget of n gives the p-norms, and a budget of 1 the largest entry. `OneTwo` is the
K-functional of the sum and the Euclidean norm (Section 6). `Euclidean` has weights,
which make it the Mahalanobis norm of a diagonal matrix. Other matrices M are left out.
A larger slack may reduce their norm, so the paper's dual (4) has a gap: its ball must
hold every alpha with an `e >= alpha` such that `e^T M^-1 e <= C^2`. Each projection is
then a quadratic program: hundreds of matrix products, where a step otherwise needs one.

A balanced vector has the same sum in both classes, so the projection and the best bias
each reduce to searches for one number: a threshold of one class, or of both. Most
searches make passes over the entries, which are far faster than sorting, and handle
many problems at once under `jax.vmap`.
"""

from collections.abc import Callable
from typing import ClassVar, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._record import Record, leaf
from budgetjax.solvers.kernel import hinge_dual, water_level
from budgetjax.solvers.training_set import Scalar, Vector

Numbers = Float[Array, "*some"]
Extra = TypeVar("Extra")
# Maps numbers, and the extra of the call before, to values, their slopes, and an extra.
Excess = Callable[[Numbers, Extra], tuple[Numbers, Numbers, Extra]]

# The maximum number of passes of a search that rounding keeps from converging.
MAX_PASSES = 100
# The passes between bisections of a search's interval, whatever Newton's method does.
BISECT_EVERY = 3
# The factor for the next depth of a class to try, while the depth is too small.
DEEPER = 4

at_least_one = _checks.number(
    "a finite number of at least 1", lambda number: number >= 1
)
_above_one = _checks.number("a finite number above 1", lambda number: number > 1)


class Norm(Record, abstract=True):
    """A norm of slacks, as far as `budgetjax.BudgetSVM` needs it.

    A norm of your own is a subclass with these methods. It must not decrease when a
    slack grows.
    """

    # Whether steps move pairs of coefficients, as for `OneInfinity` alone; examples may
    # then have weights, and nothing is projected.
    moves_pairs: ClassVar[bool] = False

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        """The least norm of `max(0, heights - y bias)`, and the bias."""
        raise NotImplementedError

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The coefficients that are closest to these values.

        They are at least 0, balanced, `sum_i y_i alpha_i = 0`, and have a dual norm of
        at most the penalty.
        """
        raise NotImplementedError


def check_norm(name: str, value: object) -> None:
    """Raises if this is no norm."""
    if not isinstance(value, Norm):
        wanted = "be a norm, such as budgetjax.norms.OneInfinity(budget)"
        raise ArgumentError(name, wanted, f"{value!r}")


class OneInfinity(Norm):
    """Between the sum and the maximum: the sum of the `budget` largest entries.

    Attributes:
      budget: at least 1. A fractional part counts a fraction of the next largest entry.
    """

    budget: ArrayLike = leaf(at_least_one)

    moves_pairs = True

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


class TwoInfinity(Norm):
    """Between the Euclidean norm and the largest entry, `t = sqrt(budget)`.

    It is at least the Euclidean norm of the `budget` largest entries, and exceeds it by
    at most `sqrt(budget)` times the smallest of them (Theorem 1).

    Attributes:
      budget: a number of at least 1.
    """

    budget: ArrayLike = leaf(at_least_one)

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
        with_sum = jnp.maximum(values - _by_class(floors, y), 0) * (half / depth)
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


class PInfinity(Norm):
    """Between the p-norm and the largest entry, `t = budget^(1/p)`.

    It is at least the p-norm of the `budget` largest entries, and exceeds it by at most
    `t` times the smallest of them (Theorem 1). `OneInfinity` and `TwoInfinity` are the
    cases without an equation per entry, with faster steps.

    Attributes:
      budget: a number of at least 1. A budget of n makes it the p-norm.
      p: above 1.

    Example:
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> norm = bj.norms.PInfinity(budget=2.0, p=1.5)
      >>> found = bj.solve(bj.BudgetSVM(bj.Linear(), norm), X, y)
      >>> found.model.predict(X).tolist()
      [-1, 1, 1]
    """

    budget: ArrayLike = leaf(at_least_one)
    p: ArrayLike = leaf(_above_one)

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The nearest coefficients: balanced, `||alpha||_q <= C`, sum <= t C.

        In units of C they solve `a_i + mu a_i^(q - 1) = max(0, v_i - floor_i)`. One
        search finds the least sufficient mu. For each mu it tries, another search finds
        the floors of both classes: opposite numbers, or, if the bound on the sum is
        active, those with half of the sum in each class.
        """
        q, most = self.p / (self.p - 1), self.budget ** (1 / self.p)
        v = values / penalty
        largest = jnp.maximum(jnp.max(jnp.abs(v)), jnp.finfo(v.dtype).tiny)
        ends = jnp.full(2, largest)
        # mu is at most the p-norm of what is above the floors.
        upper = jnp.log(2 * largest * v.shape[0] ** (1 / self.p))
        lower = upper + 2 * jnp.log(jnp.finfo(v.dtype).eps)

        def nearest(bounded):
            signs = jnp.where(bounded, 1, jnp.array([1, -1], v.dtype))

            def joined(pair):
                return jnp.where(bounded, pair, jnp.sum(pair))

            def at(log_mu, extra):
                def excess(floors, _):
                    above = jnp.maximum(v - _by_class(signs * floors, y), 0)
                    a, _, slopes = shrunk = _shrink(above, log_mu, q - 1)
                    total = joined(signs * _class_sums(a, y))
                    target = jnp.where(bounded, most / 2, 0)
                    return total - target, -joined(_class_sums(slopes, y)), shrunk

                floors, shrunk = _root(excess, extra[0], -ends, ends, extra[1])
                a, lost, slopes = shrunk
                # The floors' change with log(mu), and that of the logarithmic norm.
                change = joined(signs * _class_sums(slopes * lost, y))
                change = signs * change / joined(_class_sums(slopes, y))
                change = jnp.sum(slopes * lost * (lost - _by_class(change, y)))
                slope = -change / jnp.sum(lost * a)
                return jnp.log(_p_norm(a, q)), slope, (floors, shrunk)

            extra = jnp.zeros_like(ends), (v, v, v)
            return _root(at, lower, lower, upper, extra)[1][1][0]

        # Without the bound on the sum first, then with it, if necessary.
        _, found = jax.lax.while_loop(
            lambda carry: (carry[0] < 2) & (jnp.sum(carry[1]) > most),
            lambda carry: (carry[0] + 1, nearest(carry[0] > 0)),
            (jnp.int32(0), jnp.full_like(v, jnp.inf)),
        )
        found = _rebalance(found, y, most)
        return penalty * found / jnp.maximum(_p_norm(found, q), 1)

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        """The least norm of `max(0, heights - y bias)`, and the bias; by bisections.

        At the best phi above 0, the excess e above the floors of the classes,
        `phi + bias` and `phi - bias`, has `sum_i (e_i / ||e||)^(p - 1) = t / 2` in each
        class. One search finds the norm of e; for each it tries, another finds the
        floors. Two more cases are the largest entries as floors, and a phi of 0.
        (Newton's method could stop early: slopes are infinite for p below 2.)
        """
        p, t = self.p, self.budget ** (1 / self.p)
        tiny = jnp.finfo(heights.dtype).tiny
        ends = jnp.full(2, jnp.maximum(jnp.max(jnp.abs(heights)), tiny))
        upper = jnp.log(2 * ends[0] * heights.shape[0] ** (1 / p))
        # Smaller ones, up to 0, are lost in the rounding of the floors.
        lower = upper + jnp.log(64 * jnp.finfo(heights.dtype).eps)
        flat = jnp.zeros_like(ends)

        def excess_of_norm(log_norm, _):
            def excess(floors, _):
                above = jnp.maximum(heights - _by_class(floors, y), 0)
                shares = _power(above / jnp.exp(log_norm), p - 1)
                return _class_sums(shares, y) - t / 2, flat, above

            floors, above = _root(excess, flat, -ends, ends, heights)
            norm = _p_norm(above, p)
            # Rounded to 0 if the norm tried is too small.
            value = jnp.where(norm > 0, jnp.log(norm) - log_norm, 1)
            return value, flat[0], floors

        def excess_of_class(bias, _):
            above = jnp.maximum(heights - y * bias, 0)
            return jnp.sum(y * _power(above, p - 1)), flat[0], None

        floors = _root(excess_of_norm, upper, lower, upper, flat)[1]
        bias = _root(excess_of_class, flat[0], -ends[0], ends[0], None)[0]
        tops = jnp.max(jnp.where(_class_masks(y), heights, -ends[0]), axis=1)

        def value(floors):
            phi = jnp.maximum(jnp.sum(floors) / 2, 0)
            bias = (floors[0] - floors[1]) / 2
            rest = jnp.maximum(heights - y * bias - phi, 0)
            return _p_norm(rest, p) + t * phi, bias

        cases = jnp.stack([floors, tops, jnp.stack([bias, -bias])])
        values, biases = jax.vmap(value)(cases)
        best = jax.lax.argmin(values, 0, jnp.int32)
        return values[best], biases[best]


class OneTwo(Norm):
    """Between the Euclidean norm and the sum of all entries, `t = sqrt(budget)`.

    The K-functional of these two is `||v|| = min_{phi >= 0} sum_i max(0, v_i - phi) +
    t ||min(v, phi)||_2`: about `budget` entries count as in a sum, and the others as in
    a Euclidean norm. It is at most the sum of the `budget` largest entries plus t times
    the Euclidean norm of the others. (Section 6 of the paper has these two the other
    way round.) The coefficients then satisfy `alpha_i <= C` and `||alpha||_2 <= t C`.

    Attributes:
      budget: a number of at least 1. A budget of 1 makes it the Euclidean norm, and one
        of n the sum, as in an ordinary support vector machine.

    Example:
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> norm = bj.norms.OneTwo(budget=2.0)
      >>> found = bj.solve(bj.BudgetSVM(bj.Linear(), norm), X, y)
      >>> found.model.predict(X).tolist()
      [-1, 1, 1]
    """

    budget: ArrayLike = leaf(at_least_one)

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The nearest coefficients: balanced, at most C, `||alpha|| <= sqrt(B) C`.

        In units of C they are the shares of the least ceiling of at least C.
        """
        ceiling, bias = _find_ceiling(values, y, self.budget, penalty)
        shares = jnp.clip((values - y * bias) / ceiling, 0, 1)
        found = _rebalance(shares, y, jnp.array(jnp.inf, values.dtype))
        norm = jnp.sqrt(jnp.sum(found**2) / self.budget)
        return penalty * found / jnp.maximum(norm, 1)

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        """The least norm of `max(0, heights - y bias)`, and the bias.

        At the best phi above 0, the shares `min(slack / phi, 1)` are balanced, and the
        sum of their squares is the budget: phi is a ceiling. The other case is 0.
        """
        # Smaller ones, up to 0, are lost in the rounding of the heights.
        rounding = 64 * jnp.finfo(heights.dtype).eps * jnp.max(jnp.abs(heights))
        phi, bias = _find_ceiling(heights, y, self.budget, rounding)
        zero = jnp.zeros_like(phi)

        def value(phi, bias):
            rest = jnp.maximum(heights - y * bias, 0)
            low = jnp.minimum(rest, phi)
            return jnp.sum(rest - low) + jnp.sqrt(self.budget * jnp.sum(low**2))

        biases = jnp.stack([bias, hinge_dual.least_bias(heights, y, None)])
        values = jax.vmap(value)(jnp.stack([phi, zero]), biases)
        best = jax.lax.argmin(values, 0, jnp.int32)
        return values[best], biases[best]


class Euclidean(Norm):
    """The Euclidean norm with a weight per entry, `sqrt(sum_i m_i v_i^2)`.

    Attributes:
      weight: m, above 0, shape `(n,)` or `()`.

    Example:
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> norm = bj.norms.Euclidean(np.array([1.0, 1.0, 0.1]))
      >>> found = bj.solve(bj.BudgetSVM(bj.Linear(), norm), X, y)
      >>> found.model.predict(X).tolist()
      [-1, 1, 1]
    """

    weight: ArrayLike = leaf(_checks.positive)

    def project(self, values: Vector, y: Vector, penalty: Scalar) -> Vector:
        """The nearest coefficients: balanced, `sum_i alpha_i^2 / m_i <= C^2`.

        They are `max(0, v_i - y_i tau) / (1 + shift / m_i)`, with the least sufficient
        shift, whose logarithm is found by bisection.
        """
        weight = jnp.broadcast_to(self.weight, values.shape)

        def shrunk(shift):
            shares = weight / (weight + shift)
            tau = threshold(values, y, shares)
            return shares * jnp.maximum(values - y * tau, 0)

        def excess(log_shift, _):
            norm = jnp.sum(shrunk(jnp.exp(log_shift)) ** 2 / weight)
            return norm - penalty**2, jnp.zeros_like(norm), None

        free = shrunk(jnp.zeros((), values.dtype))
        # Sufficient for any threshold, since none exceeds the largest value.
        most = 2 * jnp.sqrt(jnp.sum(weight)) * jnp.max(jnp.abs(values)) / penalty
        upper = jnp.log(jnp.maximum(most, jnp.finfo(values.dtype).tiny))
        lower = upper + jnp.log(jnp.finfo(values.dtype).eps)
        log_shift = _root(excess, upper, lower, upper, None)[0]
        outside = jnp.sum(free**2 / weight) > penalty**2
        found = jnp.where(outside, shrunk(jnp.exp(log_shift)), free)
        return _rebalance(found, y, jnp.array(jnp.inf, values.dtype))

    def least(self, heights: Vector, y: Vector) -> tuple[Scalar, Scalar]:
        weight = jnp.broadcast_to(self.weight, heights.shape)
        bias = threshold(heights, y, weight)
        rest = jnp.maximum(heights - y * bias, 0)
        return jnp.sqrt(jnp.sum(weight * rest**2)), bias


def threshold(
    values: Vector,
    y: Vector,
    weight: Vector | None = None,
    ceiling: Scalar | None = None,
) -> Scalar:
    """`tau` such that `sum_i y_i w_i max(0, v_i - y_i tau) = 0`, for both classes.

    With a ceiling, no term exceeds it. The sum falls with `tau` and is piecewise
    linear. Newton's method finds the piece in a few passes, and bisections between its
    steps guarantee convergence.
    """
    weights = jnp.ones_like(values) if weight is None else weight
    ends = y * values
    lower, upper = jnp.min(ends), jnp.max(ends)

    def excess(tau, _):
        inner = jnp.maximum(values - y * tau, 0)
        free = inner > 0
        if ceiling is not None:
            free &= inner < ceiling
            inner = jnp.minimum(inner, ceiling)
        slope = -jnp.sum(jnp.where(free, weights, 0))
        return jnp.sum(y * weights * inner), slope, None

    start = jnp.clip(jnp.zeros_like(lower), lower, upper)
    return _root(excess, start, lower, upper, None)[0]


def _find_ceiling(
    values: Vector, y: Vector, budget: ArrayLike, least: Scalar
) -> tuple[Scalar, Scalar]:
    """The least sufficient ceiling of at least `least`, and the bias.

    The shares `clip((values - y bias) / ceiling, 0, 1)` are balanced, and the sum of
    their squares is at most the budget.
    """
    tiny = jnp.finfo(values.dtype).tiny

    def excess(log_ceiling, _):
        ceiling = jnp.exp(log_ceiling)
        bias = threshold(values, y, ceiling=ceiling)
        shares = jnp.clip((values - y * bias) / ceiling, 0, 1)
        free, capped = (shares > 0) & (shares < 1), jnp.where(shares < 1, 0, y)
        squares = jnp.sum(shares**2)
        # The free shares fall, by as much more in one class as the other has capped.
        slope = jnp.sum(capped) ** 2 / jnp.maximum(jnp.sum(free, dtype=y.dtype), 1)
        slope = 2 * (slope - jnp.sum(jnp.where(free, shares, 0) ** 2))
        squares = jnp.maximum(squares, tiny)
        return jnp.log(squares / budget), slope / squares, None

    lower = jnp.log(jnp.maximum(least, tiny))
    # Sufficient for any bias, since none exceeds the largest value.
    most = 2 * jnp.max(jnp.abs(values)) * values.shape[0] ** 0.5
    upper = jnp.maximum(jnp.log(jnp.maximum(most, tiny)), lower)
    ceiling = jnp.exp(_root(excess, lower, lower, upper, None)[0])
    return ceiling, threshold(values, y, ceiling=ceiling)


def _root(
    excess: Excess, start: Numbers, lower: Numbers, upper: Numbers, extra: Extra
) -> tuple[Numbers, Extra]:
    """Where functions of one number each fall to 0, and the extra of the last call.

    Newton's method, with bisections between its steps, and wherever a slope is 0. An
    extra, which each call passes on to the next, saves the caller another evaluation,
    and gives an inner search its start.
    """
    largest = jnp.maximum(jnp.abs(lower), jnp.abs(upper))
    rounding = 4 * jnp.finfo(start.dtype).eps * largest

    def body(carry):
        at, lower, upper, _, extra, passes = carry
        value, slope, extra = excess(at, extra)
        lower = jnp.where(value >= 0, at, lower)
        upper = jnp.where(value <= 0, at, upper)
        following = at - value / jnp.where(slope < 0, slope, -1)
        inside = (following >= lower) & (following <= upper)
        inside &= (slope < 0) | (value == 0)
        found = inside & (jnp.abs(following - at) <= rounding)
        bisects = ~inside | (~found & (passes % BISECT_EVERY == BISECT_EVERY - 1))
        following = jnp.where(bisects, (lower + upper) / 2, following)
        found |= upper - lower <= rounding
        return following, lower, upper, found, extra, passes + 1

    def unfinished(carry):
        return ~jnp.all(carry[3]) & (carry[5] < MAX_PASSES)

    found = jnp.zeros(start.shape, bool)
    carry = (start, lower, upper, found, extra, jnp.int32(0))
    carry = jax.lax.while_loop(unfinished, body, carry)
    return carry[0], carry[4]


def _class_masks(y: Vector) -> Bool[Array, "2 n"]:
    return jnp.stack([y > 0, y < 0])


def _class_sums(vector: Vector, y: Vector) -> Float[Array, "2"]:
    return jnp.sum(jnp.where(_class_masks(y), vector, 0), axis=1)


def _by_class(pair: Float[Array, "2"], y: Vector) -> Vector:
    return jnp.where(y > 0, pair[0], pair[1])


def _find_floors(
    values: Vector,
    y: Vector,
    budget: ArrayLike,
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


def _shrink(above: Vector, log_mu: Scalar, power: ArrayLike) -> tuple[Vector, ...]:
    """`a` with `a + mu a^power = above`, then `above - a` and the slopes of `a`.

    With `a = above e^(-w)`, the logarithm of `e^(-w) + e^(c - power w)` is 0, where
    `c = log(mu) + (power - 1) log(above)`. It is convex in w. Halley's method converges
    from below, for powers from 0.01 to 1000 in four steps.
    """
    positive = above > 0
    c = log_mu + (power - 1) * jnp.log(jnp.where(positive, above, 1))
    w = jnp.maximum(c / power, 0)
    for _ in range(4):
        z = c - (power - 1) * w
        small = jnp.exp(-jnp.abs(z))
        value = jnp.maximum(z, 0) + jnp.log1p(small) - w
        part = jnp.where(z > 0, 1, small) / (1 + small)
        slope = 1 + (power - 1) * part
        bend = (power - 1) ** 2 * part * (1 - part)
        w += 2 * value * slope / (2 * slope**2 - value * bend)
    share, lost = jnp.exp(-w), -jnp.expm1(-w)
    found = above * share, above * lost, share / (share + power * lost)
    return tuple(jnp.where(positive, each, 0) for each in found)


def _power(vector: Vector, power: ArrayLike) -> Vector:
    """Powers of numbers of at least 0; those of 0 are 0."""
    return jnp.where(vector > 0, jnp.where(vector > 0, vector, 1) ** power, 0)


def _p_norm(vector: Vector, p: ArrayLike) -> Scalar:
    largest = jnp.max(vector)
    scaled = vector / jnp.where(largest > 0, largest, 1)
    return largest * jnp.sum(_power(scaled, p)) ** (1 / p)


def _rebalance(coefficients: Vector, y: Vector, most: ArrayLike) -> Vector:
    """Removes rounding errors: scales both classes down to the same sum."""
    sums = _class_sums(coefficients, y)
    total = jnp.minimum(jnp.min(sums), most / 2)
    return coefficients * _by_class(total / jnp.where(sums > 0, sums, 1), y)


# The norms of the paper's figures, by the names that it gives their parts.
BY_NAME = {"l1": OneInfinity, "l2": TwoInfinity}


def named(name: str, budget: ArrayLike) -> Norm:
    """The norm of this name: "l1" is `OneInfinity`, and "l2" is `TwoInfinity`."""
    return _checks.look_up("norm", BY_NAME, name)(budget)
