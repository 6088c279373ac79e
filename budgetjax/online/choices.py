"""An algorithm and the arguments of its `init`, from the choices of a user.

It is the one table of defaults, which estimators, river and the command line read.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax
from jax.typing import ArrayLike
from jaxtyping import Array

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError
from budgetjax.kernels import GAMMA_KERNELS, Kernel, Linear
from budgetjax.online import BUDGET as BUDGET
from budgetjax.online import registry
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.maintenance import strategies


class Loss(NamedTuple):
    """A loss, in the form for the stream and in the form for the refit."""

    stream: Callable[..., Array]
    refit: str | Callable[..., Array]


class Family(NamedTuple):
    """The choices of classifiers or of regressors, with defaults for both cases.

    Attributes:
      losses: losses by name; the first is the loss of algorithms with a fixed one.
      real_targets: whether targets are real numbers, and a loss can be any function.
    """

    losses: dict[str, Loss]
    real_targets: bool
    before_refit: str
    without_refit: str

    @property
    def algorithms(self) -> dict[str, Algorithm]:
        """The algorithms that learn such targets, by name."""
        return {
            name: one
            for name, one in registry.by_name().items()
            if not self.real_targets or "loss" in _parameters(one)
        }

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


def _parameters(algorithm: Algorithm) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(algorithm.init).parameters


CLASSIFIER = Family(
    losses={
        "hinge": Loss(losses.hinge, "squared_hinge"),
        "logistic": Loss(losses.logistic, "logistic"),
    },
    real_targets=False,
    # With a refit, Pegasos is as good as AROW, whose rounds are O(B^2). Without one,
    # AROW is better by 2 to 10 points.
    before_refit="pegasos",
    without_refit="arow",
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
    before_refit="sgd",
    without_refit="sgd",
)


# Arguments of `init` that follow from the data and the model, not from settings.
NO_SETTINGS = (
    *("kernel", "num_features", "num_classes", "num_outputs"),
    *("budget", "capacity", "seed", "dtype"),
)


class Choice(NamedTuple):
    """An algorithm, and the loss of a refit.

    The arguments are those of its `init` except kernel, number of features, budget and
    dtype.
    """

    algorithm: Algorithm
    arguments: dict[str, Any]
    refit_loss: str | Callable[..., Array]


def choose(
    name: str | None,
    settings: Mapping[str, Any],
    *,
    num_classes: int | None,
    num_outputs: int = 1,
    seed: int,
    refits: bool,
) -> Choice:
    """The algorithm of this name with these settings; None is the default one.

    Settings are arguments of `init` by name, of which None is the default. A
    maintenance strategy and a loss may be given by name, and the refit has the same
    loss. `num_classes` is None for real targets.
    """
    family = REGRESSOR if num_classes is None else CLASSIFIER
    if name is None:
        name = family.before_refit if refits else family.without_refit
    algorithm = _checks.look_up("algorithm", family.algorithms, name)
    parameters = _parameters(algorithm)
    arguments = {key: value for key, value in settings.items() if value is not None}
    loss_setting = arguments.pop("loss", None)
    loss = family.loss(loss_setting)
    _check_settings(algorithm, arguments)
    if "loss" in parameters:
        arguments["loss"] = loss.stream
    elif loss != family.loss(None) and not refits:
        raise ArgumentError(
            "loss",
            f"be {next(iter(family.losses))!r} with algorithm={name!r} "
            "where there is no refit",
            f"{loss_setting!r}",
        )
    if refits and arguments.get("average"):
        raise ArgumentError(
            "average",
            "be False before a refit, which replaces the coefficients",
            f"{arguments['average']!r}",
        )
    if isinstance(strategy := arguments.get("maintenance"), str):
        known = strategies()
        strategy = _checks.look_up("maintenance", known, strategy, ", or a strategy")
        arguments["maintenance"] = strategy()
    derived = {"seed": seed, "num_outputs": num_outputs}
    arguments |= {key: value for key, value in derived.items() if key in parameters}
    return Choice(algorithm, arguments | {"num_classes": num_classes}, loss.refit)


def _check_settings(algorithm: Algorithm, settings: Mapping[str, Any]) -> None:
    """Raises if `init` has no such argument, or it is no setting."""
    free = [key for key in _parameters(algorithm) if key not in NO_SETTINGS]
    for key, value in settings.items():
        if key not in free:
            raise ArgumentError(
                f"settings of {algorithm.name}",
                f"be among {', '.join(free)}",
                f"{key}={value!r}",
            )


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
