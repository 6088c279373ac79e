"""Water levels, with which the Stochastic Batch Perceptron distributes its slack.

The responses `c_i = y_i f(x_i)` are the heights of columns of ground. A volume of water
collects over the lowest of them, up to a level `gamma`:
`sum_i max(0, gamma - c_i) = volume`. Cotter, Shalev-Shwartz and Srebro (2012), Section
3.2 and Appendix B, sort or select; a sort would cost more than a kernel row. The volume
under a level is convex and piecewise linear, so Newton's method converges exactly: two
or three passes over the responses from the previous level.
https://arxiv.org/abs/1204.0566
"""

import functools

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from budgetjax.solvers.training_set import Scalar, Vector

# The maximum number of Newton passes, if rounding prevents convergence.
MAX_PASSES = 100
# A tangent: its slope, and its value at 0.
Line = tuple[Scalar, Scalar]


def level(
    heights: Vector, volume: Scalar, guess: Scalar, weight: Vector | None = None
) -> Scalar:
    """`gamma` such that `sum_i max(0, gamma - heights_i) = volume`; O(n) per pass.

    Infinite heights are never covered; the volume 0 gives the lowest height. The guess
    affects only the speed. `weight` has weights of the terms of the sum, above 0.
    """

    def newton(gamma):
        depth = gamma - heights
        if weight is None:
            wet = jnp.sum(depth > 0, dtype=jnp.int32)
            left = volume - jnp.sum(jnp.maximum(depth, 0))
        else:
            wet = jnp.sum(jnp.where(depth > 0, weight, 0))
            left = volume - jnp.sum(weight * jnp.maximum(depth, 0))
        return jax.lax.cond(
            wet > 0,
            lambda: gamma + left / wet.astype(heights.dtype),
            lambda: lowest + volume_above,
        )

    # The first step ends at or above the level, and all others descend to it. A guess
    # out of bounds would cost digits.
    lowest, volume_above = jnp.min(heights), volume
    if weight is not None:
        volume_above = volume / weight[jnp.argmin(heights)]
    above = newton(jnp.clip(guess, lowest, lowest + volume_above))

    def body(carry):
        _, lower, passes = carry
        return lower, newton(lower), passes + 1

    return jax.lax.while_loop(
        lambda carry: (carry[1] < carry[0]) & (carry[2] < MAX_PASSES),
        body,
        (above, newton(above), jnp.int32(0)),
    )[0]


def balanced_level(
    heights: Vector,
    y: Vector,
    volume: Scalar,
    guess: tuple[Scalar, Scalar],
    reach: ArrayLike,
    tolerance: ArrayLike = 0.0,
    weight: Vector | None = None,
) -> tuple[Scalar, Scalar]:
    """The highest level of `heights + y bias` over all biases, and that bias.

    The level is concave and piecewise linear in the bias; its slope is the number of
    positive examples under water minus that of negative ones, divided by their sum. A
    rising and a falling tangent meet at or above the highest level. The next tangent is
    taken where they meet, until the level there is as high as the tangents. (The paper
    sorts both classes instead; Appendix B.)

    Both classes must be present. The bias need not be unique. `guess` is the level and
    the bias to start from, `reach` the distance from that bias to search first, and
    `tolerance` how far the level may be below the highest; 0 means up to rounding.
    """
    dtype = heights.dtype
    epsilon = 4 * jnp.finfo(dtype).eps
    lowest = [jnp.min(jnp.where(y == sign, heights, jnp.inf)) for sign in (1, -1)]
    weights = jnp.ones_like(y) if weight is None else weight
    # An upper bound of the depth of water over any example.
    deepest = volume / jnp.min(weights)
    # Tangents as pairs of slope and value at 0. The first two are for biases so far
    # away that only one class is under water.
    rising = (jnp.ones((), dtype), lowest[0] + deepest)
    falling = (-jnp.ones((), dtype), lowest[1] + deepest)

    def with_tangent(bias, guess, rising, falling):
        gamma = level(heights + y * bias, volume, guess, weight)
        wet = gamma > heights + y * bias
        count = jnp.sum(jnp.where(wet, weights, 0))
        signs = jnp.sum(jnp.where(wet, weights * y, 0))
        slope = signs / jnp.where(count > 0, count, 1)
        # Without water, or with less than rounding resolves, the lowest class decides.
        dry = jnp.sign(lowest[1] - bias - (lowest[0] + bias))
        slope = jnp.where(count > 0, slope, dry)
        line = (slope, gamma - slope * bias)
        choose = functools.partial(jnp.where, slope > 0)
        rising = jax.tree.map(choose, line, rising)
        return (gamma, bias, slope), rising, jax.tree.map(choose, falling, line)

    def unfinished(carry):
        (gamma, _, slope), rising, falling, _, passes = carry
        highest = _meeting(rising, falling)[1]
        slack = jnp.maximum(tolerance, epsilon * jnp.maximum(1, jnp.abs(highest)))
        return (slope != 0) & (highest - gamma > slack) & (passes < MAX_PASSES)

    def body(carry):
        (gamma, bias, _), rising, falling, reach, passes = carry
        next_bias = jnp.clip(_meeting(rising, falling)[0], bias - reach, bias + reach)
        lines = with_tangent(next_bias, gamma, rising, falling)
        return *lines, 2 * reach, passes + 1

    gamma, bias = guess
    lines = with_tangent(bias, gamma, rising, falling)
    carry = (*lines, jnp.asarray(reach, dtype), jnp.int32(0))
    gamma, bias, _ = jax.lax.while_loop(unfinished, body, carry)[0]
    return gamma, bias


def _meeting(rising: Line, falling: Line) -> tuple[Scalar, Scalar]:
    """The bias where two tangents meet, and the level there."""
    bias = (falling[1] - rising[1]) / (rising[0] - falling[0])
    return bias, rising[1] + rising[0] * bias
