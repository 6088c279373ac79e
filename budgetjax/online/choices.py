"""An algorithm and the arguments of its `init`, from the choices of a user.

Estimators and the command line share this module, and so have the same defaults. It
does not need scikit-learn.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import optax

from budgetjax import _checks, losses
from budgetjax.kernels import NAMED, Kernel, Linear
from budgetjax.online import registry
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.maintenance import strategies


class Loss(NamedTuple):
    """A loss, in the form for the stream and in the form for the refit."""

    stream: Callable[..., Any]
    refit: Any


class Family(NamedTuple):
    """The choices of classifiers or of regressors.

    Attributes:
      losses: losses by name; the first is the loss of algorithms with a fixed one.
      targets: whether targets are real numbers, and a loss can be any function.
      usual: the default algorithms with and without a refit.
    """

    losses: dict[str, Loss]
    targets: bool
    usual: tuple[str, str]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of the algorithms that learn such targets."""
        return tuple(
            name
            for name, one in registry.by_name().items()
            if not self.targets or "loss" in inspect.signature(one.init).parameters
        )


CLASSIFIER = Family(
    losses={
        "hinge": Loss(losses.hinge, "squared_hinge"),
        "logistic": Loss(losses.logistic, "logistic"),
    },
    targets=False,
    # With a refit, Pegasos is as good as AROW, whose rounds are O(B^2). Without one,
    # AROW is better by 2 to 10 points.
    usual=("pegasos", "arow"),
)
REGRESSOR = Family(
    losses={
        "squared": Loss(optax.losses.squared_error, optax.losses.l2_loss),
        "huber": Loss(losses.huber, losses.huber),
        "absolute": Loss(losses.absolute, losses.absolute),
        "poisson": Loss(losses.poisson, losses.poisson),
        "gamma": Loss(losses.gamma, losses.gamma),
    },
    targets=True,
    usual=("sgd", "sgd"),
)


def family_of(regression: bool) -> Family:
    """The family of regressors, or of classifiers."""
    return REGRESSOR if regression else CLASSIFIER


# Arguments of `init` that follow from the data and the model, not from settings.
OWN = (
    *("kernel", "num_features", "num_classes", "num_outputs"),
    *("budget", "capacity", "seed", "dtype"),
)


class Choice(NamedTuple):
    """The choices of a user.

    Attributes:
      algorithm: for example `budgetjax.arow`.
      arguments: the arguments of its `init` except kernel, number of features, budget
        and dtype.
      refit_loss: the loss for `budgetjax.refit`.
    """

    algorithm: Algorithm
    arguments: dict[str, Any]
    refit_loss: Any


def chosen(
    where: str,
    name: str | None,
    settings: Mapping[str, Any],
    *,
    num_classes: int | None,
    num_outputs: int = 1,
    seed: int,
    refits: bool,
) -> Choice:
    """The algorithm of this name with these settings.

    Args:
      where: the name of the caller, for error messages.
      name: the name of the algorithm; None for the default one.
      settings: arguments of `init` by name; None is the default. A maintenance strategy
        and a loss may be given by name, and the refit has the same loss.
      num_classes: None for real targets.
      num_outputs: the number of real targets per example.
      seed: the seed of random draws.
      refits: whether a refit follows.

    Raises:
      ValueError: if the algorithm does not learn such targets, has no such setting, or
        a setting would have no effect.
    """
    family = family_of(num_classes is None)
    name = family.usual[not refits] if name is None else name
    if name not in family.algorithms:
        raise ValueError(
            f"{where}: algorithm must be one of {', '.join(family.algorithms)}, got "
            f"{name!r}"
        )
    algorithm = registry.named(where, name)
    takes = inspect.signature(algorithm.init).parameters
    arguments = {key: given for key, given in settings.items() if given is not None}
    given = arguments.pop("loss", None)
    loss = loss_of(where, family, given)
    free = [key for key in takes if key not in OWN]
    for key in arguments:
        if key not in free:
            raise ValueError(
                f"{where}: settings of {name} must be among {', '.join(free)}, got "
                f"{key}={arguments[key]!r}"
            )
    if "loss" in takes:
        arguments["loss"] = loss.stream
    elif loss != loss_of(where, family, None) and not refits:
        own = next(iter(family.losses))
        raise ValueError(
            f"{where}: loss must be {own!r} with algorithm={name!r} where there is no "
            f"refit, got {given!r}"
        )
    if refits and arguments.get("average"):
        raise ValueError(
            f"{where}: average must be False before a refit, which replaces the "
            f"coefficients, got {arguments['average']!r}"
        )
    if isinstance(strategy := arguments.get("maintenance"), str):
        known = strategies()
        if strategy not in known:
            raise ValueError(
                f"{where}: maintenance must be one of {', '.join(known)}, or a "
                f"strategy, got {strategy!r}"
            )
        arguments["maintenance"] = known[strategy]()
    if "seed" in takes:
        arguments["seed"] = seed
    arguments["num_classes"] = num_classes
    if "num_outputs" in takes:
        arguments["num_outputs"] = num_outputs
    return Choice(algorithm, arguments, loss.refit)


def loss_of(where: str, family: Family, given: Any) -> Loss:
    """The loss of this name, or this function; None is the family's first."""
    for name, loss in family.losses.items():
        if given is None or given is loss.stream or given == name:
            return loss
    own: Any = given
    if callable(given) and losses.takes_labels(own) != family.targets:
        return Loss(own, own)
    raise ValueError(
        f"{where}: loss must be one of {', '.join(family.losses)}, or a function of "
        f"{'numbers' if family.targets else 'labels'}, got {given!r}"
    )


def kernel_of(
    where: str,
    kernel: Any,
    gamma: Any,
    unset: str | None,
    default: Callable[[], float],
) -> Kernel:
    """A kernel by its name, or the kernel itself.

    Its gamma is a number, or `unset` for the default. It is checked for "linear" too,
    which has none, so that one search can try several kernels, as in scikit-learn.

    Raises:
      ValueError: if an argument is invalid, or a gamma comes with a kernel object.
    """
    names = (*NAMED, "linear")
    by_name = isinstance(kernel, str)
    if not (kernel in names if by_name else isinstance(kernel, Kernel)):
        raise ValueError(
            f"{where}: kernel must be one of {', '.join(names)}, or a budgetjax "
            f"kernel, got {kernel!r}"
        )
    usual = gamma is None if unset is None else isinstance(gamma, str)
    if not by_name:
        if not usual or gamma != unset:
            raise ValueError(
                f"{where}: gamma must be {unset!r} with a kernel, which has its own "
                f"parameters, got gamma={gamma!r} with kernel={kernel!r}"
            )
        return kernel
    if not usual:
        _checks.positive(where, "gamma", gamma)
    if kernel == "linear":
        return Linear()
    return NAMED[kernel](default() if usual else gamma)
