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

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.tree_util import Partial
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Function
from budgetjax._shapes import Flag, Label, Scalar, Score, Target

__all__ = ["absolute", "classification_loss", "epsilon_insensitive", "gamma", "hinge"]
__all__ += ["huber", "log_link_loss", "logistic", "margin", "poisson", "quantile"]
__all__ += ["smooth"]

Loss = Callable[..., Array]
Marked = TypeVar("Marked", bound=Loss)
PerOutput = Float[Array, "*outputs"]

# The meaning of scores, set by a loss or a model: labels by sign or argmax; labels with
# probabilities by sigmoid or softmax; values; logarithms of values.
LABELS, SOFTMAX, IDENTITY, EXP = LINKS = ("labels", "softmax", "identity", "exp")


class Traits(NamedTuple):
    """What a loss declares about itself; the defaults are those of an unmarked loss.

    Attributes:
      link: the meaning of the scores.
      shift_invariant: whether it is known to depend only on score minus target.
      robust: whether it is known to grow linearly, so that outliers matter little.
      smooth: for a loss with kinks, its smooth form, which also takes a `width`.
      unit_powers: the powers p for which `loss(u f, u y) / u^p` needs no u.
      is_valid: which targets are valid.
      expected: the condition of `is_valid` in words.
    """

    link: str = IDENTITY
    shift_invariant: bool = False
    robust: bool = False
    smooth: Loss | None = None
    unit_powers: tuple[int, ...] = ()
    is_valid: Callable[[np.ndarray], np.ndarray] = np.isfinite
    expected: str = "finite"


UNMARKED = Traits()
# The attribute of a loss that holds its traits.
TRAITS = "__budgetjax_traits__"


def _mark(traits: Traits) -> Callable[[Marked], Marked]:
    def mark(loss: Marked) -> Marked:
        setattr(loss, TRAITS, traits)
        return loss

    return mark


def classification_loss(loss: Marked) -> Marked:
    """Marks a loss whose targets are class labels.

    A model with such a loss is a classifier; with any other loss it is a regressor.

    Example:
      >>> @bj.losses.classification_loss
      ... def squared_hinge(score, y):
      ...     return jnp.maximum(0, 1 - y * score) ** 2
    """
    return _mark(Traits(link=LABELS))(loss)


def log_link_loss(loss: Marked) -> Marked:
    """Marks a loss whose scores are logarithms of the predicted values.

    A model with such a loss is a regressor, and predicts `exp(f(x))`.

    Example:
      >>> @bj.losses.log_link_loss
      ... def poisson(score, y):
      ...     return jnp.exp(score) - y * score
    """
    return _mark(Traits(link=EXP))(loss)


def margin(score: Score, y: Target) -> Scalar:
    """The margin of the label: `y f`, or `f^(y) - f^(r)`.

    `r` is the best other class. A margin of at most 0 is a mistake, so a zero score is
    one.

    Args:
      score: `f(x)`, shape `(1,)` or `(C,)`.
      y: the label, -1 or +1, or an integer in `0 .. C-1`; or several real targets,
        whose margin is the minimum of `y f`.

    Example:
      >>> float(bj.losses.margin(jnp.array([0.5, 2.0, 1.0]), jnp.array(1)))
      1.0
    """
    if y.ndim:
        return jnp.min(y * score)
    if score.shape[0] == 1:
        return y * score[0]
    return score[y] - jnp.max(_scores_of_others(score, y))


def is_mistake(score: Score, y: Target) -> Flag:
    """Whether the margin is not positive; True for a score that is NaN."""
    return ~(margin(score, y) > 0)


def margin_subgradient(score: Score, y: Label) -> Score:
    """The gradient of `margin` with respect to `score`.

    It is `y` for a binary label, and `+1` in column `y` and `-1` in column `r` for a
    class. On ties, `r` is the lowest index.
    """
    if score.shape[0] == 1:
        return jnp.reshape(y, (1,)).astype(score.dtype)
    classes = jnp.arange(score.shape[0], dtype=jnp.int32)
    rival = jnp.argmax(_scores_of_others(score, y)).astype(jnp.int32)
    return (classes == y).astype(score.dtype) - (classes == rival).astype(score.dtype)


def _scores_of_others(score: Score, y: Integer[Array, ""]) -> Score:
    classes = jnp.arange(score.shape[0], dtype=y.dtype)
    return jnp.where(classes == y, -jnp.inf, score)


@_mark(Traits(link=LABELS))
def hinge(score: Float[Array, "*columns"], y: Label) -> Scalar:
    """`max(0, 1 - margin)`, the loss of support vector machines.

    Its gradient is `-margin_subgradient` if the margin is below 1, so on ties only the
    lowest of the best rivals changes.

    Example:
      >>> float(bj.losses.hinge(jnp.array(0.25), jnp.array(1)))
      0.75
    """
    score = jnp.atleast_1d(score)
    subgradient = jax.lax.stop_gradient(margin_subgradient(score, y))
    of_label = jnp.dot(subgradient, score)
    return jnp.where(of_label < 1, 1 - of_label, 0)


@_mark(Traits(link=SOFTMAX))
def logistic(score: Float[Array, "*columns"], y: Label) -> Scalar:
    """`log(1 + exp(-y f))`, or the cross entropy of the softmax of the scores.

    Example:
      >>> float(bj.losses.logistic(jnp.array(0.0), jnp.array(1)))
      0.6931...
    """
    if jnp.ndim(score) == 0:
        return jax.nn.softplus(-y * score)
    return jax.nn.logsumexp(score) - score[y]


def _softplus(error: Array, width: ArrayLike) -> Array:
    """`width log(1 + exp(error / width))`, a smooth form of `max(0, error)`."""
    return jax.nn.softplus(error / width) * width


def _smooth_absolute(score, y, width):
    return _softplus(score - y, width) + _softplus(y - score, width)


@_mark(Traits(shift_invariant=True, robust=True, smooth=_smooth_absolute))
def absolute(score: PerOutput, y: PerOutput) -> PerOutput:
    """`|f - y|`, whose minimum is the median.

    Example:
      >>> float(bj.losses.absolute(jnp.array(1.5), jnp.array(2.0)))
      0.5
    """
    return jnp.abs(score - y)


def _huber_of_errors(score, y, width):
    # A refit ends with a width of 0.05 deviations of the errors, so with a bound of
    # 1.35.
    return optax.losses.huber_loss(score, y, delta=27 * width)


# Its unit is the deviation of the targets, whatever theirs is.
HUBER = Traits(
    shift_invariant=True, robust=True, smooth=_huber_of_errors, unit_powers=(1, 2)
)


@_mark(HUBER)
def huber(score: PerOutput, y: PerOutput) -> PerOutput:
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


@names_errors("losses.quantile")
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
    _checks.open_unit_interval("level", level)
    several = isinstance(level, list | tuple)
    return Partial(_pinball, level=np.asarray(level) if several else level)


def _smooth_pinball(score, y, level, width):
    return level * (y - score) + _softplus(score - y, width)


@_mark(Traits(shift_invariant=True, robust=True, smooth=_smooth_pinball))
def _pinball(score, y, level):
    error = y - score
    return jnp.where(error > 0, level, level - 1) * error


@names_errors("losses.epsilon_insensitive")
def epsilon_insensitive(epsilon: ArrayLike) -> Partial:
    """`max(0, |f - y| - epsilon)`, the loss of support vector regression.

    Args:
      epsilon: half the width of the tube in which errors cost nothing, at least 0. It
        is a leaf, which can be swept.

    Example:
      >>> float(bj.losses.epsilon_insensitive(0.5)(jnp.array(1.0), jnp.array(2.0)))
      0.5
    """
    _checks.non_negative("epsilon", epsilon)
    return Partial(_outside_tube, epsilon=epsilon)


def _smooth_tube(score, y, epsilon, width):
    above, below = score - y - epsilon, y - score - epsilon
    return _softplus(above, width) + _softplus(below, width)


@_mark(Traits(shift_invariant=True, robust=True, smooth=_smooth_tube))
def _outside_tube(score, y, epsilon):
    distance = jnp.abs(score - y)
    return jnp.where(distance > epsilon, distance - epsilon, 0)


@_mark(Traits(EXP, is_valid=lambda y: y >= 0, expected="at least 0 for a poisson loss"))
def poisson(score: PerOutput, y: PerOutput) -> PerOutput:
    """`exp(f) - y f`, for counts, whose variance grows with their mean `exp(f)`.

    Its gradient grows exponentially with f: learn targets in units of their mean, with
    small steps.

    Example:
      >>> float(bj.losses.poisson(jnp.array(0.0), jnp.array(2.0)))
      1.0
    """
    return jnp.exp(score) - y * score


@_mark(Traits(EXP, is_valid=lambda y: y > 0, expected="above 0 for a gamma loss"))
def gamma(score: PerOutput, y: PerOutput) -> PerOutput:
    """`f + y exp(-f)`, for positive targets whose deviation grows with their mean.

    Example:
      >>> float(bj.losses.gamma(jnp.array(0.0), jnp.array(2.0)))
      2.0
    """
    return score + y * jnp.exp(-score)


SQUARED = Traits(shift_invariant=True, unit_powers=(2,))
# Losses of optax, which cannot declare their traits; labels have the form of ours.
OF_OPTAX: dict[Loss, Traits] = {
    optax.losses.softmax_cross_entropy_with_integer_labels: Traits(link=SOFTMAX),
    optax.losses.hinge_loss: Traits(link=LABELS),
    optax.losses.multiclass_hinge_loss: Traits(link=LABELS),
    optax.losses.multiclass_perceptron_loss: Traits(link=LABELS),
    optax.losses.squared_error: SQUARED,
    optax.losses.l2_loss: SQUARED,
    optax.losses.huber_loss: Traits(shift_invariant=True, robust=True),
}


def unwrap(loss: Loss) -> Loss:
    """The function inside a loss, without its parameters, units and limits."""
    while True:
        if isinstance(loss, functools.partial):
            loss = loss.keywords["loss"] if loss.func in WRAPPERS else loss.func
        # JAX wraps a partial function of Python.
        elif inner := getattr(loss, "fun", None):
            loss = inner
        else:
            return loss


def traits(loss: Loss) -> Traits:
    """The traits of a loss, or of the one that it wraps."""
    marked = getattr(loss, TRAITS, None)
    if marked is None:
        loss = unwrap(loss)
        marked = getattr(loss, TRAITS, None) or OF_OPTAX.get(loss, UNMARKED)
    return marked


def _name(loss: Loss) -> str:
    return getattr(unwrap(loss), "__name__", repr(loss))


def takes_labels(loss: Loss) -> bool:
    """Whether the targets of a loss are labels, not numbers."""
    return traits(loss).link in (LABELS, SOFTMAX)


def has_kinks(loss: Loss) -> bool:
    """Whether a refit smooths this loss, by a width that depends on the errors."""
    return traits(loss).smooth is not None


def is_centred(loss: Loss) -> bool:
    """Whether scores are values in the middle of the targets, not one of quantiles."""
    return traits(loss).link == IDENTITY and unwrap(loss) is not _pinball


def is_shift_invariant(loss: Loss, shape: tuple[int, ...] = ()) -> bool:
    """Whether a loss depends only on score minus target, both of this shape."""
    if traits(loss).shift_invariant:
        return True
    pairs = np.array([[0.3, 1.7], [-1.2, 0.4], [0.9, -0.6]], np.float32)
    with jax.numpy_dtype_promotion("standard"):
        first, second = (
            [loss(*(jnp.full(shape, number) for number in pair)) for pair in moved]
            for moved in (pairs, pairs + np.float32(2.5))
        )
    return bool(np.allclose(first, second, rtol=1e-3))


def with_unit(loss: Loss, unit: ArrayLike, power: int = 2) -> Loss:
    """`loss(u f, u y) / u^power`, for scores and targets in units of u.

    The loss is one of differences. Divided by `u^2`, the problem with the squared norm
    of `f` stays the same. Divided by `u`, a loss with kinks keeps its slopes.
    """
    if power in traits(loss).unit_powers:
        return loss
    return Partial(_in_unit, loss=_partial(loss), unit=unit, factor=unit**-power)


def _in_unit(score, y, loss, unit, factor):
    return factor * loss(unit * score, unit * y)


def limit_slope(loss: Loss, max_slope: float) -> Partial:
    """A loss with the clipped slopes of this one, but not its values, for streams."""
    return Partial(_with_limited_slope, loss=_partial(loss), max_slope=max_slope)


def _with_limited_slope(score, y, loss, max_slope):
    slope = jax.grad(lambda score: jnp.sum(loss(score, y)))(score)
    return jax.lax.stop_gradient(jnp.clip(slope, -max_slope, max_slope)) * score


# Losses of another loss.
WRAPPERS = (_in_unit, _with_limited_slope)
# The functions that model files name.
LOSSES = (hinge, logistic, poisson, gamma, absolute, huber, _pinball, _outside_tube)
FUNCTIONS = (
    *LOSSES,
    *filter(None, (traits(loss).smooth for loss in LOSSES)),
    *WRAPPERS,
)


def _partial(loss: Loss) -> Partial:
    return Function.of(loss)


@names_errors("losses.smooth")
def smooth(loss: Loss, width: ArrayLike) -> Partial:
    """A smooth form of a loss that `has_kinks`; convex too.

    It differs by at most `2 log(2) width`, and converges to the loss as `width` goes to
    0.

    Args:
      loss: one that `has_kinks`.
      width: the width over which a kink is smoothed, above 0, or shape
        `(num_outputs,)`.

    Example:
      >>> float(bj.losses.smooth(bj.losses.absolute, 0.1)(*jnp.zeros(2)))
      0.1386...

    References:
      Zheng (2011), "Gradient descent algorithms for quantile regression with smooth
      approximation", for the pinball loss.
      https://doi.org/10.1007/s13042-011-0031-2
    """
    loss = _partial(loss)
    numbers = loss.keywords
    if loss.func is _in_unit:
        unit = np.resize(numbers["unit"], np.shape(width))
        inner = smooth(numbers["loss"], width * unit)
        return Partial(_in_unit, **{**numbers, "loss": inner})
    form = traits(loss).smooth
    if form is None:
        raise ArgumentError("loss", "have kinks", _name(loss))
    return Partial(form, **numbers, width=width)


def gradient(loss: Loss, score: Score, y: Target) -> Score:
    """The gradient of a loss with respect to the scores, shape `(columns,)`."""
    if score.shape[0] == 1:
        return jax.grad(loss)(score[0], y)[None]
    return jax.grad(lambda score: jnp.sum(loss(score, y)))(score)


def check_loss(name: str, loss: object) -> None:
    """Raises unless this may be a loss."""
    if not callable(loss):
        raise ArgumentError(name, "be a function of (scores, y)", f"{loss!r}")


def as_leaves(
    loss: Loss | None,
    num_classes: int | None,
    dtype: DTypeLike,
    num_outputs: int = 1,
) -> Loss:
    """A loss as part of a state, after a check that it suits the targets.

    Its parameters become leaves, of shape `()` or `(num_outputs,)`. None is the hinge
    loss, or the squared error for real targets.
    """
    if loss is None:
        loss = optax.losses.squared_error if num_classes is None else hinge
    check_loss("loss", loss)
    outputs = (num_outputs,) if num_classes is None and num_outputs > 1 else ()

    def as_leaf(leaf: ArrayLike) -> Array:
        shape = _checks.array("loss", leaf).shape
        if shape and shape != outputs:
            shapes = f", or shape {outputs}, one number per output" if outputs else ""
            raise ArgumentError(
                "loss",
                f"have scalars{shapes}",
                f"shape {shape}; num_outputs= is the number of outputs, and jax.vmap "
                "over init sweeps values",
            )
        return _checks.as_leaves("loss", leaf, dtype)

    function: Loss = jax.tree.map(as_leaf, _partial(loss))
    _check_values(function, num_classes, outputs, dtype)
    _check_targets(function, num_classes)
    return function


def _check_values(
    function: Loss,
    num_classes: int | None,
    outputs: tuple[int, ...],
    dtype: DTypeLike,
) -> None:
    """Raises unless a loss gives one float, or one per output."""
    labels = num_classes is not None and num_classes > 2
    score = jax.ShapeDtypeStruct((num_classes,) if labels else outputs, dtype)
    y = jax.ShapeDtypeStruct(outputs, jnp.int32 if labels else dtype)
    try:
        value = jax.eval_shape(function, score, y)
    except Exception as error:
        raise ArgumentError(
            "loss",
            f"be a function of scores of shape {score.shape} and one target",
            error,
        ) from error
    fits = isinstance(value, jax.ShapeDtypeStruct) and value.shape in ((), outputs)
    if not fits or not jnp.issubdtype(value.dtype, jnp.floating):
        raise ArgumentError(
            "loss",
            f"give one float for scores of shape {score.shape}"
            f"{', or one per output' if outputs else ''}",
            value,
        )


def _check_targets(function: Loss, num_classes: int | None) -> None:
    """Raises unless a loss of labels has classes, and another none."""
    if takes_labels(function) and num_classes is None:
        raise ArgumentError(
            "loss",
            "be one of numbers for real targets, such as optax.losses.squared_error",
            f"{_name(function)}; or give num_classes=",
        )
    if not takes_labels(function) and num_classes is not None:
        raise ArgumentError(
            "loss",
            f"be one of labels for {num_classes} classes, such as "
            "budgetjax.losses.hinge",
            f"{_name(function)}; one of your own says so by "
            "budgetjax.losses.classification_loss; real targets need "
            "num_classes=None",
        )
