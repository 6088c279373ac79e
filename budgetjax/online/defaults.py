"""A learner and the arguments of its `init`, from the choices of a user.

It is the one table of defaults, which estimators, river and the command line read.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import optax
from jax.typing import ArrayLike
from jaxtyping import Array

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import fields_of
from budgetjax.kernels import GAMMA_KERNELS, Kernel, Linear
from budgetjax.online import BUDGET as BUDGET
from budgetjax.online.learner import Learner, OnlineLearner
from budgetjax.online.learners.arow import AROW
from budgetjax.online.learners.pegasos import Pegasos
from budgetjax.online.learners.sgd import SGD
from budgetjax.online.maintenance import strategies


class Loss(NamedTuple):
    """A loss, in the form for the stream and in the form for the refit."""

    stream: Callable[..., Array]
    refit: str | Callable[..., Array]


class Family(NamedTuple):
    """The choices of classifiers or of regressors, with defaults for both cases.

    Attributes:
      losses: losses by name; the first is the loss of learners with a fixed one.
      real_targets: whether targets are real numbers, and a loss can be any function.
      before_refit, without_refit: the default learners.
    """

    losses: dict[str, Loss]
    real_targets: bool
    before_refit: Learner
    without_refit: Learner

    def takes(self, learner: type[OnlineLearner]) -> bool:
        """Whether it learns such targets."""
        return learner.learns(None if self.real_targets else 2)

    def loss(self, chosen: str | Callable[..., Array] | None) -> Loss:
        """The loss of this name, or this function; None is the first."""
        for name, loss in self.losses.items():
            if chosen is None or chosen is loss.stream or chosen == name:
                return loss
        if callable(chosen) and losses.takes_labels(chosen) != self.real_targets:
            return Loss(chosen, chosen)
        raise ArgumentError(
            "loss",
            f"be one of {', '.join(self.losses)}, or a function of "
            f"{'numbers' if self.real_targets else 'labels'}",
            f"{chosen!r}",
        )


CLASSIFIER = Family(
    losses={
        "hinge": Loss(losses.hinge, "squared_hinge"),
        "logistic": Loss(losses.logistic, "logistic"),
    },
    real_targets=False,
    # With a refit, Pegasos is as good as AROW, whose rounds are O(B^2). Without one,
    # AROW is better by 2 to 10 points.
    before_refit=Pegasos(),
    without_refit=AROW(),
)
REGRESSOR = Family(
    losses={
        "squared": Loss(optax.losses.squared_error, optax.losses.l2_loss),
        "huber": Loss(losses.huber, losses.huber),
        "absolute": Loss(losses.absolute, losses.absolute),
        "poisson": Loss(losses.poisson, losses.poisson),
        "gamma": Loss(losses.gamma, losses.gamma),
    },
    real_targets=True,
    before_refit=SGD(),
    without_refit=SGD(),
)


class Choice(NamedTuple):
    """A learner, and the loss of a refit.

    The arguments are those of its `init` except kernel, number of features, budget and
    dtype.
    """

    learner: OnlineLearner
    arguments: dict[str, Any]
    refit_loss: str | Callable[..., Array]


def learner_of(given: Any, num_classes: int | None, *, refits: bool) -> OnlineLearner:
    """The learner that a user gives; "auto" and None are the default one."""
    family = REGRESSOR if num_classes is None else CLASSIFIER
    if given is None or (isinstance(given, str) and given == "auto"):
        return family.before_refit if refits else family.without_refit
    if not isinstance(given, OnlineLearner):
        wanted = "be 'auto', or one such as budgetjax.Pegasos(regularization=1e-4)"
        raise ArgumentError("learner", wanted, f"{given!r}")
    if not family.takes(type(given)):
        such = "real targets, such as budgetjax.SGD()"
        if not family.real_targets:
            such = "labels, such as budgetjax.AROW()"
        raise ArgumentError("learner", f"be one of {such}", f"{given!r}")
    return given


def choose(
    learner: Any,
    *,
    num_classes: int | None,
    num_outputs: int = 1,
    seed: int,
    refits: bool,
    loss: str | Callable[..., Array] | None = None,
    maintenance: Any = None,
    average: Any = False,
    vectors: Any = None,
) -> Choice:
    """The learner with these arguments of its `init`.

    A strategy and a loss may be given by name. The loss is that of the refit, and of a
    learner that takes one and was given none; a refit without a loss has that of the
    learner. `num_classes` is None for real targets.
    """
    family = REGRESSOR if num_classes is None else CLASSIFIER
    learner = learner_of(learner, num_classes, refits=refits)
    has_loss = any(field.name == "loss" for field in fields_of(type(learner)))
    own = learner.loss if has_loss else None
    fixed = own if has_loss else family.loss(None).stream
    chosen = family.loss(own if loss is None else loss)
    if has_loss and own is None:
        learner = learner._replace(loss=chosen.stream)
    elif loss is not None and not refits and chosen.stream != fixed:
        usual = "None" if has_loss else repr(next(iter(family.losses)))
        kind = type(learner).__name__
        wanted = f"be {usual} where there is no refit, as {kind} has its own"
        raise ArgumentError("loss", wanted, f"{loss!r}")
    if refits and average is not False:
        wanted = "be False before a refit, which replaces the coefficients"
        raise ArgumentError("average", wanted, f"{average!r}")
    if isinstance(maintenance, str):
        known = strategies()
        look_up = _checks.look_up("maintenance", known, maintenance, ", or a strategy")
        maintenance = look_up()
    arguments = {
        "num_classes": num_classes,
        "num_outputs": num_outputs,
        "maintenance": maintenance,
        "average": average,
        "vectors": None if vectors is None else np.asarray(vectors),
        "seed": seed,
    }
    return Choice(learner, arguments, chosen.refit)


def check_alone(learner: Any, choices: dict[str, tuple[Any, Any]]) -> None:
    """Raises if a learner with kernels of its own is given other choices, too.

    `choices` has a value and its default by the name of each.
    """
    if not isinstance(learner, OnlineLearner) or not learner.chooses_kernel:
        return
    own = type(learner).__name__
    for name, (value, usual) in choices.items():
        if type(value) is not type(usual) or value != usual:
            wanted = f"be {usual!r} with {own}, which has several kernels of its own"
            raise ArgumentError(name, wanted, f"{value!r}")


def kernel_of(
    kernel: str | Kernel,
    gamma: ArrayLike | str | None,
    unset: str | None,
    default: Callable[[], float],
) -> Kernel:
    """A kernel by its name, or the kernel itself.

    Its gamma is a number, or `unset` for the default. It is checked for "linear" too,
    which has none, so that one search can try several kernels, as in scikit-learn.
    """
    names = (*GAMMA_KERNELS, "linear")
    by_name = isinstance(kernel, str)
    if not (kernel in names if by_name else isinstance(kernel, Kernel)):
        raise ArgumentError(
            "kernel",
            f"be one of {', '.join(names)}, or a budgetjax kernel",
            f"{kernel!r}",
        )
    usual = gamma is None if unset is None else isinstance(gamma, str)
    if not by_name:
        if not usual or gamma != unset:
            raise ArgumentError(
                "gamma",
                f"be {unset!r} with a kernel, which has its own parameters",
                f"gamma={gamma!r} with kernel={kernel!r}",
            )
        return kernel
    if not usual:
        _checks.positive("gamma", gamma)
    if kernel == "linear":
        return Linear()
    return GAMMA_KERNELS[kernel](default() if usual else gamma)
