"""How far targets lie from the scores of a regressor; see `Spread`."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float
from scipy import special

from budgetjax._record import Record

# The shares of targets whose intervals are measured.
LEVELS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
# The half-widths of these intervals for a Gaussian of deviation 1.
GAUSSIAN = special.ndtri((1 + np.array(LEVELS)) / 2)


class Spread(Record):
    r"""How far targets lie from the scores of a regressor, measured on held-out rows.

    A target has the variance

    .. math:: \nu(f(x)) + s_0 \, \max\left(\frac{r(x) - r_0}{1 - r_0}, 0\right).

    :math:`\nu` is the noise at this score: its logarithm is linear between two scores,
    and constant beyond. :math:`r(x)`, from 0 to 1, is the share of k(x, x) beyond the
    span of the support vectors, as `budgetjax.Model.beyond` says. Up to
    :math:`r_0`, the largest of the held-out rows, the noise has all errors in it; far
    from all rows the targets have their own variance :math:`s_0`, too.

    All numbers are those of each column, in the unit of its scores, before a
    `TableModel` multiplies them by its own.

    Attributes:
      low, high: the two scores, shape `(columns,)`.
      noise_low, noise_high: the variance of the noise there, shape `(columns,)`.
      reach: :math:`r_0`, shape `(columns,)`.
      prior: :math:`s_0`, shape `(columns,)`.
      widths: half of the intervals that cover the shares `LEVELS` of targets, in
        deviations, shape `(columns, levels)`.
    """

    low: Float[Array | np.ndarray, " columns"]
    high: Float[Array | np.ndarray, " columns"]
    noise_low: Float[Array | np.ndarray, " columns"]
    noise_high: Float[Array | np.ndarray, " columns"]
    reach: Float[Array | np.ndarray, " columns"]
    prior: Float[Array | np.ndarray, " columns"]
    widths: Float[Array | np.ndarray, "columns levels"]

    def variance(
        self, scores: Float[Array, "n columns"], beyond: Float[Array, " n"]
    ) -> Float[Array, "n columns"]:
        """The variance of targets with these scores and shares, in programs."""

        def of(numbers: Array | np.ndarray) -> Array:
            return jnp.asarray(numbers, scores.dtype)[None]

        low, high, reach = map(of, (self.low, self.high, self.reach))
        first, last = jnp.log(of(self.noise_low)), jnp.log(of(self.noise_high))
        place = jnp.clip((scores - low) / jnp.where(high > low, high - low, 1), 0, 1)
        noise = jnp.exp((1 - place) * first + place * last)
        farther = beyond[:, None] - reach
        share = jnp.maximum(farther, 0) / jnp.where(reach < 1, 1 - reach, 1)
        return noise + of(self.prior) * share

    def width(self, level: ArrayLike) -> Float[Array, " columns"]:
        """Half of the interval that covers this share of targets, in deviations.

        It is interpolated between `LEVELS`, and beyond them as wide as those of
        Gaussians differ.
        """
        usual = jax.scipy.stats.norm.ppf((1 + jnp.asarray(level)) / 2)
        knots = jnp.concatenate([jnp.zeros(1), jnp.asarray(GAUSSIAN)]).astype(
            usual.dtype
        )

        def of_column(widths: Array) -> Array:
            known = jnp.concatenate([jnp.zeros(1, usual.dtype), widths])
            return jnp.interp(usual, knots, known) * jnp.maximum(usual / knots[-1], 1)

        return jax.vmap(of_column)(jnp.asarray(self.widths, usual.dtype))
