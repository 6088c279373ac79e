"""What the losses of classification share: margins and directions.

One function serves both cases. A binary model has one column of scores and labels -1
and +1; a multi-class model has a column a class and labels `0 .. C-1`.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, Shaped


def margin(score: Float[Array, " columns"], y: Shaped[Array, ""]) -> Float[Array, ""]:
    """How far the label's score is ahead: `y f`, or `f^(y) - f^(r)`.

    `r` is the best of the other classes. A margin of at most 0 is a mistake, so a zero
    score is one.

    Args:
      score: `f(x)`, shape `(1,)` or `(C,)`.
      y: the label, -1 or +1, or an integer in `0 .. C-1`.

    Returns:
      A scalar.
    """
    if score.shape[0] == 1:
        return y * score[0]
    return score[y] - jnp.max(_others(score, y))


def mistaken(score: Float[Array, " columns"], y: Shaped[Array, ""]) -> Bool[Array, ""]:
    """Whether the label's score is not ahead; true of a score that is not a number."""
    return ~(margin(score, y) > 0)


def direction(
    score: Float[Array, " columns"], y: Shaped[Array, ""]
) -> Float[Array, " columns"]:
    """The coefficients that raise the margin: the gradient of `margin` in `score`.

    `+y` for a binary label; `+1` in column `y` and `-1` in column `r` for a class. On
    ties `r` is the lowest index.
    """
    if score.shape[0] == 1:
        return jnp.reshape(y, (1,)).astype(score.dtype)
    classes = jnp.arange(score.shape[0], dtype=jnp.int32)
    rival = jnp.argmax(_others(score, y)).astype(jnp.int32)
    return (classes == y).astype(score.dtype) - (classes == rival).astype(score.dtype)


def _others(
    score: Float[Array, " columns"], y: Integer[Array, ""]
) -> Float[Array, " columns"]:
    classes = jnp.arange(score.shape[0], dtype=y.dtype)
    return jnp.where(classes == y, -jnp.inf, score)
