"""Margins, and the losses that optax lacks.

The same functions serve two or more classes. A binary model has one column of scores
and labels -1 and +1; a multi-class model has one column per class and labels
`0 .. C-1`.

A loss is a function of a model's scores and one target: the score is a scalar, shape
`()`, for a model with one column, and has shape `(C,)` otherwise. Losses of
`optax.losses` are such functions too, for example `optax.losses.squared_error` and
`optax.losses.huber_loss` for regression. For a model with several real outputs, scores
and targets have shape `(num_outputs,)`, and the values of the loss are summed.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import _checks
from budgetjax._pytree import Name
from budgetjax._shapes import Flag, Label, Scalar, Score, Target

__all__ = ["absolute", "epsilon_insensitive", "gamma", "hinge", "huber", "logistic"]
__all__ += ["margin", "of_labels", "of_logarithms", "poisson", "quantile", "smoothed"]

# The meaning of scores, set by a loss or a model: labels by sign or argmax; labels with
# probabilities by sigmoid or softmax; values; logarithms of values.
LABELS, SOFTMAX, IDENTITY, EXP = map(Name, ("labels", "softmax", "identity", "exp"))
# The attribute of a loss that holds it.
INVERSE_LINK = "__budgetjax_inverse_link__"


def of_labels(loss: Callable[..., Array]) -> Callable[..., Array]:
    """Marks a loss whose targets are class labels.

    A model with such a loss is a classifier; with any other loss it is a regressor.

    Example:
      >>> @bj.losses.of_labels
      ... def squared_hinge(score, y):
      ...     return jnp.maximum(0, 1 - y * score) ** 2
    """
    setattr(loss, INVERSE_LINK, LABELS)
    return loss


def of_logarithms(loss: Callable[..., Array]) -> Callable[..., Array]:
    """Marks a loss whose scores are logarithms of the predicted values.

    A model with such a loss is a regressor, and predicts `exp(f(x))`.

    Example:
      >>> @bj.losses.of_logarithms
      ... def poisson(score, y):
      ...     return jnp.exp(score) - y * score
    """
    setattr(loss, INVERSE_LINK, EXP)
    return loss


def margin(score: Score, y: Target) -> Scalar:
    """The margin of the label: `y f`, or `f^(y) - f^(r)`.

    `r` is the best other class. A margin of at most 0 is a mistake, so a zero score is
    one.

    Args:
      score: `f(x)`, shape `(1,)` or `(C,)`.
      y: the label, -1 or +1, or an integer in `0 .. C-1`; or several real targets,
        whose margin is the minimum of `y f`.

    Returns:
      A scalar.

    Example:
      >>> float(bj.losses.margin(jnp.array([0.5, 2.0, 1.0]), jnp.array(1)))
      1.0
    """
    if y.ndim:
        return jnp.min(y * score)
    if score.shape[0] == 1:
        return y * score[0]
    return score[y] - jnp.max(_others(score, y))


def mistaken(score: Score, y: Target) -> Flag:
    """Whether the margin is not positive; True for a score that is NaN."""
    return ~(margin(score, y) > 0)


def direction(score: Score, y: Label) -> Score:
    """The gradient of `margin` with respect to `score`.

    It is `y` for a binary label, and `+1` in column `y` and `-1` in column `r` for a
    class. On ties, `r` is the lowest index.
    """
    if score.shape[0] == 1:
        return jnp.reshape(y, (1,)).astype(score.dtype)
    classes = jnp.arange(score.shape[0], dtype=jnp.int32)
    rival = jnp.argmax(_others(score, y)).astype(jnp.int32)
    return (classes == y).astype(score.dtype) - (classes == rival).astype(score.dtype)


def _others(score: Score, y: Integer[Array, ""]) -> Score:
    classes = jnp.arange(score.shape[0], dtype=y.dtype)
    return jnp.where(classes == y, -jnp.inf, score)


@of_labels
def hinge(score: Float[Array, "*columns"], y: Label) -> Scalar:
    """`max(0, 1 - margin)`, the loss of support vector machines.

    Its gradient is `-direction` if the margin is below 1, so on ties only the lowest of
    the best rivals changes.

    Example:
      >>> float(bj.losses.hinge(jnp.array(0.25), jnp.array(1)))
      0.75
    """
    score = jnp.atleast_1d(score)
    ahead = jnp.dot(jax.lax.stop_gradient(direction(score, y)), score)
    return jnp.where(ahead < 1, 1 - ahead, 0)


def logistic(score: Float[Array, "*columns"], y: Label) -> Scalar:
    """`log(1 + exp(-y f))`, or the cross entropy of the softmax of the scores.

    Example:
      >>> float(bj.losses.logistic(jnp.array(0.0), jnp.array(1)))
      0.6931...
    """
    if jnp.ndim(score) == 0:
        return jax.nn.softplus(-y * score)
    return jax.nn.logsumexp(score) - score[y]


setattr(logistic, INVERSE_LINK, SOFTMAX)

# Losses of optax that take labels in the same form.
OF_OPTAX = (
    (optax.losses.softmax_cross_entropy_with_integer_labels, SOFTMAX),
    (optax.losses.hinge_loss, LABELS),
    (optax.losses.multiclass_hinge_loss, LABELS),
    (optax.losses.multiclass_perceptron_loss, LABELS),
)


def inverse_link(loss: Callable[..., Array]) -> Name:
    """The meaning of the scores of a loss; values if it is not marked."""
    loss = unwrap(loss)
    usual = next((link for known, link in OF_OPTAX if loss is known), IDENTITY)
    return getattr(loss, INVERSE_LINK, usual)


def takes_labels(loss: Callable[..., Array]) -> bool:
    """Whether the targets of a loss are labels, not numbers."""
    return inverse_link(loss) in (LABELS, SOFTMAX)


def _named(loss: Callable[..., Array]) -> str:
    return getattr(unwrap(loss), "__name__", repr(loss))


def unwrap(loss: Any) -> Callable[..., Array]:
    """The function inside a loss, without its parameters, units and limits."""
    # JAX wraps a partial function of Python.
    while inner := getattr(loss, "func", getattr(loss, "fun", None)):
        loss = loss.keywords["loss"] if inner in AROUND else inner
    return loss


def absolute(
    score: Float[Array, "*outputs"], y: Float[Array, "*outputs"]
) -> Float[Array, "*outputs"]:
    """`|f - y|`, whose minimum is the median.

    Example:
      >>> float(bj.losses.absolute(jnp.array(1.5), jnp.array(2.0)))
      0.5
    """
    return jnp.abs(score - y)


def huber(
    score: Float[Array, "*outputs"], y: Float[Array, "*outputs"]
) -> Float[Array, "*outputs"]:
    """`(f - y)^2 / 2` up to an error of one deviation, and linear beyond it.

    In a stream the deviation is that of the targets, which must be 1; estimators scale
    targets to it. A refit uses 1.35 robust deviations of the errors, as Huber (1981)
    and scikit-learn's `HuberRegressor` do. To set a bound yourself, in the unit of the
    targets: `jax.tree_util.Partial(optax.losses.huber_loss, delta=bound)`.

    Example:
      >>> float(bj.losses.huber(jnp.array(3.0), jnp.array(0.0)))
      2.5
    """
    return optax.losses.huber_loss(score, y)


def quantile(level: ArrayLike | Sequence[float]) -> Partial:
    """The pinball loss: `level (y - f)` if `f < y`, else `(1 - level) (f - y)`.

    Args:
      level: the quantile of y to learn, between 0 and 1; or several, shape
        `(num_outputs,)`, for a model with one output per level. It is a leaf, which can
        be swept.

    Example:
      >>> float(bj.losses.quantile(0.75)(jnp.array(1.0), jnp.array(3.0)))
      1.5
    """
    if isinstance(level, list | tuple):
        given = np.asarray(level)
        numbers = given.size and np.issubdtype(given.dtype, np.number)
        if numbers and np.all((given > 0) & (given < 1)):
            return Partial(_pinball, level=given)
    _checks.fraction("losses.quantile", "level", level)
    return Partial(_pinball, level=level)


def _pinball(score, y, level):
    error = y - score
    return jnp.where(error > 0, level, level - 1) * error


def epsilon_insensitive(epsilon: ArrayLike) -> Partial:
    """`max(0, |f - y| - epsilon)`, the loss of support vector regression.

    Args:
      epsilon: half the width of the tube in which errors cost nothing, at least 0. It
        is a leaf, which can be swept.

    Example:
      >>> float(bj.losses.epsilon_insensitive(0.5)(jnp.array(1.0), jnp.array(2.0)))
      0.5
    """
    _checks.non_negative("losses.epsilon_insensitive", "epsilon", epsilon)
    return Partial(_outside_tube, epsilon=epsilon)


def _outside_tube(score, y, epsilon):
    distance = jnp.abs(score - y)
    return jnp.where(distance > epsilon, distance - epsilon, 0)


@of_logarithms
def poisson(
    score: Float[Array, "*outputs"], y: Float[Array, "*outputs"]
) -> Float[Array, "*outputs"]:
    """`exp(f) - y f`, for counts, whose variance grows with their mean `exp(f)`.

    Its gradient grows exponentially with f: learn targets in units of their mean, with
    small steps.

    Example:
      >>> float(bj.losses.poisson(jnp.array(0.0), jnp.array(2.0)))
      1.0
    """
    return jnp.exp(score) - y * score


@of_logarithms
def gamma(
    score: Float[Array, "*outputs"], y: Float[Array, "*outputs"]
) -> Float[Array, "*outputs"]:
    """`f + y exp(-f)`, for positive targets whose deviation grows with their mean.

    Example:
      >>> float(bj.losses.gamma(jnp.array(0.0), jnp.array(2.0)))
      2.0
    """
    return score + y * jnp.exp(-score)


def known_targets(
    loss: Callable[..., Array], y: Shaped[np.ndarray, "n ..."]
) -> tuple[Bool[np.ndarray, "n ..."], str]:
    """Which targets are valid for a loss, and the condition in words."""
    if unwrap(loss) is poisson:
        return y >= 0, "at least 0 for a poisson loss"
    if unwrap(loss) is gamma:
        return y > 0, "above 0 for a gamma loss"
    return np.isfinite(y), "finite"


def _rounded(error: Array, width: Any) -> Any:
    """`max(0, error)`, with its kink smoothed over about this width."""
    return width * jax.nn.softplus(error / width)


def _smooth_absolute(score, y, width):
    return _rounded(score - y, width) + _rounded(y - score, width)


def _smooth_pinball(score, y, level, width):
    return level * (y - score) + _rounded(score - y, width)


def _smooth_tube(score, y, epsilon, width):
    above, below = score - y - epsilon, y - score - epsilon
    return _rounded(above, width) + _rounded(below, width)


def _huber_of_errors(score, y, width):
    # A refit ends with a width of 0.05 deviations of the errors, so with a bound of
    # 1.35.
    return optax.losses.huber_loss(score, y, delta=27 * width)


SQUARED = (optax.losses.squared_error, optax.losses.l2_loss)
# Losses with kinks and their smooth forms, with `w log(1 + exp(u / w))` in place of
# `max(0, u)`; and a loss whose kink in the slope depends on the errors.
SMOOTH = {
    absolute: _smooth_absolute,
    _pinball: _smooth_pinball,
    _outside_tube: _smooth_tube,
    huber: _huber_of_errors,
}


def has_kinks(loss: Any) -> bool:
    """Whether a refit smooths this loss, by a width that depends on the errors."""
    return unwrap(loss) in SMOOTH


def is_robust(loss: Any) -> bool:
    """Whether a loss is known to grow linearly, so that few outliers matter little."""
    return has_kinks(loss) or unwrap(loss) is optax.losses.huber_loss


def of_differences(loss: Callable[..., Array], shape: tuple[int, ...] = ()) -> bool:
    """Whether a loss depends only on score minus target, so that both may be shifted.

    Args:
      loss: a function of a score and a target.
      shape: the shape of both.
    """
    if is_robust(loss) or unwrap(loss) in SQUARED:
        return True
    pairs = np.array([[0.3, 1.7], [-1.2, 0.4], [0.9, -0.6]], np.float32)
    with jax.numpy_dtype_promotion("standard"):
        first, second = (
            [loss(*(jnp.full(shape, one + shift) for one in pair)) for pair in pairs]
            for shift in np.array([0, 2.5], np.float32)
        )
    return bool(np.allclose(first, second, rtol=1e-3))


def in_units(
    loss: Callable[..., Array], unit: ArrayLike, power: int = 2
) -> Callable[..., Array]:
    """`loss(u f, u y) / u^power`, for scores and targets in units of u.

    Divided by `u^2`, the problem with the squared norm of `f` stays the same. Divided
    by `u`, a loss with kinks keeps its slopes.

    Args:
      loss: a function of differences.
      unit: u, above 0, or shape `(num_outputs,)`.
      power: the power of u.
    """
    if unwrap(loss) is huber or (power == 2 and unwrap(loss) in SQUARED):
        return loss
    return Partial(_of_units, loss=_partial(loss), unit=unit, factor=unit**-power)


def _of_units(score, y, loss, unit, factor):
    return factor * loss(unit * score, unit * y)


def limit_slope(loss: Callable[..., Array], most: float) -> Partial:
    """A loss with the slopes of this one, clipped, which bounds the steps of a stream.

    Its values are not those of the loss.
    """
    return Partial(_of_limited_slope, loss=_partial(loss), most=most)


def _of_limited_slope(score, y, loss, most):
    slope = jax.grad(lambda score: jnp.sum(loss(score, y)))(score)
    return jax.lax.stop_gradient(jnp.clip(slope, -most, most)) * score


# Losses around another one.
AROUND = (_of_units, _of_limited_slope)


def _partial(loss: Callable[..., Array]) -> Partial:
    return loss if isinstance(loss, Partial) else Partial(loss)


def smoothed(loss: Callable[..., Array], width: ArrayLike) -> Partial:
    """A smooth form of a loss that `has_kinks`; convex too.

    It differs by at most `2 log(2) width`, and converges to the loss as `width` goes to
    0.

    Args:
      loss: one that `has_kinks`.
      width: the width over which a kink is smoothed, above 0, or shape
        `(num_outputs,)`.

    Example:
      >>> float(bj.losses.smoothed(bj.losses.absolute, 0.1)(*jnp.zeros(2)))
      0.1386...

    References:
      Zheng (2011), "Gradient descent algorithms for quantile regression with smooth
      approximation", for the pinball loss.
      https://doi.org/10.1007/s13042-011-0031-2
    """
    function, numbers = getattr(loss, "func", loss), getattr(loss, "keywords", {})
    if function is _of_units:
        unit = np.resize(numbers["unit"], np.shape(width))
        inner = smoothed(numbers["loss"], width * unit)
        return Partial(_of_units, **{**numbers, "loss": inner})
    return Partial(SMOOTH[function], **numbers, width=width)


def gradient(loss: Callable[..., Array], score: Score, y: Target) -> Score:
    """The gradient of a loss with respect to the scores, shape `(columns,)`."""
    if score.shape[0] == 1:
        return jax.grad(loss)(score[0], y)[None]
    return jax.grad(lambda score: jnp.sum(loss(score, y)))(score)


def as_leaves(
    where: str,
    loss: Callable[..., Array] | None,
    num_classes: int | None,
    dtype: DTypeLike,
    num_outputs: int = 1,
) -> Callable[..., Array]:
    """A loss as part of a state, after a check that it suits the targets.

    Its parameters become leaves, of shape `()` or `(num_outputs,)`. None is the hinge
    loss, or the squared error for real targets.
    """
    usual = optax.losses.squared_error if num_classes is None else hinge
    given = usual if loss is None else loss
    if not callable(given):
        raise ValueError(
            f"{where}: loss must be a function of (scores, y), got {given!r}"
        )
    given = _partial(given)

    def number(leaf):
        shape = _checks.array(where, "loss", leaf).shape
        if shape and shape != outputs:
            raise ValueError(
                f"{where}: loss must have scalars"
                + (f", or shape {outputs}, one number per output" if outputs else "")
                + f", got shape {shape}; num_outputs= is the number of outputs, and "
                "jax.vmap over init sweeps values"
            )
        return _checks.as_leaves(where, "loss", leaf, dtype)

    several = num_classes is None and num_outputs > 1
    outputs = (num_outputs,) if several else ()
    given = jax.tree.map(number, given)
    labels = num_classes is not None and num_classes > 2
    score = jax.ShapeDtypeStruct((num_classes,) if labels else outputs, dtype)
    y = jax.ShapeDtypeStruct(outputs, jnp.int32 if labels else dtype)
    try:
        value = jax.eval_shape(given, score, y)
    except Exception as error:
        raise ValueError(
            f"{where}: loss must be a function of scores of shape {score.shape} and "
            f"one target, got {error}"
        ) from error
    known = isinstance(value, jax.ShapeDtypeStruct) and value.shape in ((), outputs)
    if not known or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ValueError(
            f"{where}: loss must give one float for scores of shape {score.shape}"
            f"{', or one per output' if several else ''}, got {value}"
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
