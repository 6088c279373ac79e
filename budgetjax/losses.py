"""Margins, and the losses that optax lacks.

One function serves two classes and more. A binary model has one column of scores and
labels -1 and +1; a multi-class model has one column per class and labels `0 .. C-1`.

A loss is a function of a model's scores and one target: the score is a scalar, shape
`()`, for a model with one column, and has shape `(C,)` otherwise. The losses of
`optax.losses` are such functions too, for example `optax.losses.squared_error` and
`optax.losses.huber_loss` for regression.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import checks

# The attribute by which a loss says that its targets are labels.
LABELS = "__budgetjax_labels__"


def of_labels(loss: Callable[..., Array]) -> Callable[..., Array]:
    """A decorator: the targets of this loss are labels, as of `hinge`.

    A model with it is a classifier. Without it, one of one column is a regressor.

    Example:
      >>> import budgetjax as bj, jax.numpy as jnp
      >>> @bj.losses.of_labels
      ... def squared_hinge(score, y):
      ...     return jnp.maximum(0, 1 - y * score) ** 2
    """
    setattr(loss, LABELS, True)
    return loss


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


@of_labels
def hinge(score: Float[Array, "*columns"], y: Shaped[Array, ""]) -> Float[Array, ""]:
    """`max(0, 1 - margin)`, the loss of support vector machines.

    Its gradient is minus `direction` where the margin is below 1, so that of several
    best rivals the lowest moves, and no other.
    """
    score = jnp.atleast_1d(score)
    ahead = jnp.dot(jax.lax.stop_gradient(direction(score, y)), score)
    return jnp.where(ahead < 1, 1 - ahead, 0)


@of_labels
def logistic(score: Float[Array, "*columns"], y: Shaped[Array, ""]) -> Float[Array, ""]:
    """`log(1 + exp(-y f))`, or the cross entropy of the softmax of the scores."""
    if jnp.ndim(score) == 0:
        return jax.nn.softplus(-y * score)
    return jax.nn.logsumexp(score) - score[y]


# Losses of optax whose targets are labels as they are here.
OF_LABELS = (
    optax.losses.hinge_loss,
    optax.losses.softmax_cross_entropy_with_integer_labels,
    optax.losses.multiclass_hinge_loss,
    optax.losses.multiclass_perceptron_loss,
)


def takes_labels(loss: Callable[..., Array]) -> bool:
    """Whether the targets of a loss are labels, as it says, or else any numbers."""
    # JAX keeps a partial function of Python in a wrapper of its own.
    while inner := getattr(loss, "func", getattr(loss, "fun", None)):
        loss = inner
    return any(loss is known for known in OF_LABELS) or hasattr(loss, LABELS)


def _named(loss: Callable[..., Array]) -> str:
    while inner := getattr(loss, "func", getattr(loss, "fun", None)):
        loss = inner
    return getattr(loss, "__name__", repr(loss))


def absolute(score: Float[Array, ""], y: Float[Array, ""]) -> Float[Array, ""]:
    """`|f - y|`, whose minimum is the median."""
    return jnp.abs(score - y)


def quantile(level: ArrayLike) -> Partial:
    """The pinball loss: `level (y - f)` if `f < y`, else `(1 - level) (f - y)`.

    Args:
      level: which quantile of y to learn, between 0 and 1; a leaf, which can be swept.
    """
    checks.fraction("losses.quantile", "level", level)
    return Partial(_pinball, level=level)


def _pinball(score, y, level):
    error = y - score
    return jnp.where(error > 0, level, level - 1) * error


def epsilon_insensitive(epsilon: ArrayLike) -> Partial:
    """`max(0, |f - y| - epsilon)`, the loss of support vector regression.

    Args:
      epsilon: half the width of the tube in which nothing is learned, at least 0; a
        leaf, which can be swept.
    """
    checks.non_negative("losses.epsilon_insensitive", "epsilon", epsilon)
    return Partial(_outside_tube, epsilon=epsilon)


def _outside_tube(score, y, epsilon):
    distance = jnp.abs(score - y)
    return jnp.where(distance > epsilon, distance - epsilon, 0)


def gradient(
    loss: Callable[..., Array], score: Float[Array, " columns"], y: Shaped[Array, ""]
) -> Float[Array, " columns"]:
    """The derivative of a loss in the scores, shape `(columns,)`."""
    if score.shape[0] == 1:
        return jax.grad(loss)(score[0], y)[None]
    return jax.grad(loss)(score, y)


def as_leaves(
    where: str, loss: Callable[..., Array] | None, num_classes: int | None, dtype
) -> Callable[..., Array]:
    """A loss as a part of a state, if it is one for these targets.

    Its numbers become leaves. None is the hinge, or of real targets the squared error.
    """
    usual = optax.losses.squared_error if num_classes is None else hinge
    given = usual if loss is None else loss
    if not callable(given):
        raise ValueError(
            f"{where}: loss must be a function of (scores, y), got {given!r}"
        )
    given = given if isinstance(given, Partial) else Partial(given)

    def number(leaf):
        checks.array(where, "loss", leaf)
        return checks.as_leaf(where, "loss", leaf, dtype)

    given = jax.tree.map(number, given)
    one = num_classes is None or num_classes == 2
    score = jax.ShapeDtypeStruct(() if one else (num_classes,), dtype)
    y = jax.ShapeDtypeStruct((), dtype if one else jnp.int32)
    try:
        value = jax.eval_shape(given, score, y)
    except Exception as error:
        raise ValueError(
            f"{where}: loss must be a function of scores of shape {score.shape} and "
            f"one target, got {error}"
        ) from error
    known = isinstance(value, jax.ShapeDtypeStruct)
    if not known or value.shape != () or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"{where}: loss must give one float for scores of shape {score.shape}, "
            f"got {value}"
        )
    if takes_labels(given) and num_classes is None:
        raise ValueError(
            f"{where}: loss must be one of numbers for real targets, such as "
            f"optax.losses.squared_error, got {_named(given)}; or give num_classes="
        )
    if not takes_labels(given) and num_classes is not None:
        raise ValueError(
            f"{where}: loss must be one of labels for {num_classes} classes, such as "
            f"budgetjax.losses.hinge, got {_named(given)}; one of your own says so by "
            "budgetjax.losses.of_labels; real targets need num_classes=None"
        )
    return given
