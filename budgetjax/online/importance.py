"""How far the weight of an example carries its step.

A row of weight w counts as w equal rows. If its step were multiplied by w, it would
pass the minimum of the row's own loss: a squared loss would diverge. So a weight up to
1 multiplies the step, and at weight 1 it is that of the paper, but beyond 1 the loss
has the last word. Karampatziakis and Langford (2011), "Online importance weight aware
updates", https://arxiv.org/abs/1011.1576, compare such rules.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from budgetjax import _record
from budgetjax._shapes import Scalar, Score, Target

# A row whose margin misses the next step by so little takes it, since rounding must
# not decide ties, where the margin of a Perceptron is a whole number.
TIE = 1e-3
# `step_multiple` finds its solution digit by digit, of so many bits.
BITS = 4


@_record.record
class SeenWeights(NamedTuple):
    """The mean root of the weights of a stream so far, and their number, without zeros.

    To who counts exposures or grams only the ratios of weights mean something. So
    estimators divide the weights of a stream by a typical one, and a learner makes
    steps of its usual size. It is the square of the mean root: the step of a heavy row
    ends where its loss does, so that after a division by the mean few heavy rows would
    leave the others next to nothing. With one row in fifty of weight 1,000, NORMA then
    had an R2 of 0.29, where it has 0.74 now, and 0.76 on as many equal rows.

    It is the weight so far, so that `partial_fit` is part of `fit`.
    """

    root: float = 1.0
    number: int = 0

    @property
    def typical(self) -> float:
        """The typical weight."""
        return self.root**2

    def after(self, weight: float | int) -> "SeenWeights":
        """With one more weight, above 0."""
        number = self.number + 1
        return SeenWeights(self.root + (math.sqrt(weight) - self.root) / number, number)

    def relative(
        self, weights: Shaped[np.ndarray, " n"]
    ) -> tuple[Float[np.ndarray, " n"], "SeenWeights"]:
        """More weights, divided by the typical one up to each, and all seen then."""
        if not len(weights):
            return weights, self
        counts = self.number + np.cumsum(weights > 0)
        totals = self.root * self.number + np.cumsum(np.sqrt(weights), dtype=np.float64)
        roots = np.where(counts > 0, totals / np.maximum(counts, 1), 1.0)
        return weights / roots**2, SeenWeights(float(roots[-1]), int(counts[-1]))


def repeats(weight: Scalar, missing: Scalar, gain: Scalar) -> Scalar:
    """How many steps a row takes, at most its weight, until it violates no more.

    `gain` is what one step adds to the margin, and `missing` what the row lacks. If
    nothing can be gained, or the margin is not a number, it is one step.
    """
    useful = gain > 0
    needed = jnp.floor(missing / jnp.where(useful, gain, 1) + TIE) + 1
    return jnp.minimum(weight, jnp.where(useful & (needed >= 1), needed, 1))


def step_multiple(
    weight: Scalar,
    y: Target,
    gradient: Score,
    gradient_after: Callable[[Scalar], Score],
) -> Float[Array, "*columns"]:
    """The multiple of its step of weight 1 that a row takes, for any loss.

    Up to weight 1 it is the weight. Beyond, m is the solution of

        m = 1 + (w - 1) <g(m), g> / <g, g>,

    where g is the gradient of the loss before the step, and g(m) that after m steps:
    one explicit step, and an implicit one for the rest of the weight, which minimises
    the loss plus a squared distance. It never passes the minimum, where g(m) is 0,
    unless the first step does, and is the whole weight where the gradient does not
    change. Several real outputs, whose losses are summed, have one m each.

    Args:
      weight, y: those of the example.
      gradient: g, shape `(columns,)`.
      gradient_after: g(m), for m of shape `(columns,)`.
    """
    largest = jnp.max(jnp.abs(gradient))
    unit = jnp.where(largest > 0, largest, 1)
    heavy = weight > 1
    more = jnp.where(heavy, weight - 1, 0)

    def product(other: Score) -> Array:
        each = (other / unit) * (gradient / unit)
        return each if y.ndim else jnp.sum(each)

    square = product(gradient)
    first = jnp.ones_like(square)

    def excess(m: Array) -> Array:
        """What the equation has on its right and not on its left, decreasing in m."""
        after = gradient_after(jnp.broadcast_to(m, gradient.shape))
        return more * product(after) / jnp.where(square > 0, square, 1) - (m - first)

    def search(excess: Callable[[Array], Array], start: Array) -> Array:
        wide = np.promote_types(gradient.dtype, np.float32)
        logarithm = jnp.log1p(jnp.where(heavy, weight, 0).astype(wide))

        def multiple(share: Array) -> Array:
            return jnp.expm1(share * logarithm).astype(gradient.dtype)

        def refine(i: Array, share: Array) -> Array:
            width = jnp.exp2(-BITS * (i + 1).astype(wide))
            digits = jnp.arange(1, 2**BITS, dtype=wide)
            # False for NaN, where the loss has overflowed.
            short = jax.vmap(lambda digit: excess(multiple(share + width * digit)) > 0)(
                digits
            )
            return share + width * jnp.sum(short, axis=0, dtype=wide)

        # Light rows make no turn. The share is 0, and varies as the gradient does.
        share = jnp.where(square == square, 0, square).astype(wide)
        turns = jnp.where(heavy, jnp.int32(-(-jnp.finfo(wide).nmant // BITS)), 0)
        share = jax.lax.fori_loop(jnp.int32(0), turns, refine, share)
        return jnp.where(heavy, multiple(share), start)

    # Its derivatives are those of the solution, and not of a search.
    found = jax.lax.custom_root(
        excess, first, search, lambda slope, value: value / slope(jnp.ones_like(value))
    )
    return jnp.broadcast_to(jnp.where(heavy, found, weight), gradient.shape)
