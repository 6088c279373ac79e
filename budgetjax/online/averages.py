"""The memory of averages of iterates, beside the coefficients of a support set."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from budgetjax import _counters, _record
from budgetjax._counters import Words
from budgetjax._shapes import Scalar


@_record.record
class Average(NamedTuple):
    """The memory of an average of iterates, in addition to the sums in the support set.

    Attributes:
      start: the first round whose model is in the average.
      scale_sum: the sum of the scales since the sums were last brought up to date. A
        round that changes only the scale thus costs one addition.
      total: the number of rounds in the sums. It is halved together with them when
        rounding would lose another round, so in float32 an average covers about 2^23
        rounds.
    """

    start: Words
    scale_sum: Float[Array, "*models"]
    total: Float[Array, "*models"]

    @property
    def fade_factor(self) -> Float[Array, "*models"]:
        """The factor of the sums before the next round: 1, or occasionally 1/2."""
        whole = self.total < 1 / jnp.finfo(self.total.dtype).eps
        return jnp.where(whole, 1.0, 0.5).astype(self.total.dtype)

    def fade(self) -> "Average":
        """The average before the next round."""
        factor = self.fade_factor
        return self._replace(
            scale_sum=self.scale_sum * factor, total=self.total * factor
        )


def add_to_sums(
    terms: Float[Array, "*rows both"], scale_sum: Scalar
) -> Float[Array, "*rows both"]:
    """The terms with sums that have the coefficients in this sum of scales, too."""
    coefficients, sums = jnp.split(terms, 2, axis=-1)
    return jnp.concatenate([coefficients, sums + scale_sum * coefficients], axis=-1)


def covers(average: Average | None, seen: Words) -> Bool[Array, " size"]:
    """Which rounds are in the average, by the counters after each; all without one."""
    if average is None:
        return jnp.ones(seen.low.shape, bool)
    return _counters.reaches(seen, average.start)


def after_idle(
    average: Average, counted: Bool[Array, " size"], scales: Float[Array, " size"]
) -> Average:
    """The average after idle rounds of these scales, of which some are counted."""
    return average._replace(
        scale_sum=average.scale_sum + jnp.sum(jnp.where(counted, scales, 0))
    )


def after_block(
    average: Average | None, counted: Bool[Array, " size"]
) -> Average | None:
    """The average after a block, with its rounds in the total."""
    if average is None:
        return None
    count = jnp.sum(counted, dtype=average.total.dtype)
    return average._replace(total=average.total + count)
