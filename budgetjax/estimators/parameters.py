"""What the parameters of an online estimator are for the algorithm: its empty state."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import optax
from jax.tree_util import Partial
from jaxtyping import Float

from budgetjax import losses
from budgetjax.kernels import Kernel
from budgetjax.online import registry
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.maintenance import STRATEGIES


class Loss(NamedTuple):
    """What a loss by name is: in the stream, and in the refit if it can be there."""

    stream: Callable[..., Any]
    refit: Any


class Family(NamedTuple):
    """What a kind of estimator can be told.

    Attributes:
      losses: by name; the first one is that of algorithms that have one of their own.
      targets: whether targets are real numbers, and a loss can be any function.
      usual: the algorithm where the user names none and a refit follows, and where none
        does.
    """

    losses: dict[str, Loss]
    targets: bool
    usual: tuple[str, str]

    @property
    def algorithms(self) -> tuple[str, ...]:
        """The names of those that learn such targets: any loss, or labels."""
        named = {name: registry.named("", name) for name in registry.names()}
        return tuple(
            name
            for name, one in named.items()
            if not self.targets or "loss" in inspect.signature(one.init).parameters
        )


CLASSIFIER = Family(
    losses={
        "hinge": Loss(losses.hinge, "squared_hinge"),
        "logistic": Loss(losses.logistic, "logistic"),
    },
    targets=False,
    # After a refit Pegasos is as good as AROW, whose rounds are O(B^2). Without one
    # AROW is better by 2 to 10 points.
    usual=("pegasos", "arow"),
)
REGRESSOR = Family(
    losses={
        "squared": Loss(optax.losses.squared_error, "squared"),
        "huber": Loss(optax.losses.huber_loss, "huber"),
        "absolute": Loss(losses.absolute, None),
    },
    targets=True,
    usual=("sgd", "sgd"),
)
# Losses whose derivative jumps: not for Newton's method.
JUMPING = (
    losses.absolute,
    losses.quantile(0.5).func,
    losses.epsilon_insensitive(0.0).func,
)
# Parameters that not all algorithms have, and what says that they are left alone.
NOTHING = {"regularization": None, "maintenance": None, "average": False}
# What `init` is told by other parameters than `options`.
OWN = (
    *("kernel", "num_features", "num_classes", "budget", "capacity"),
    *("regularization", "maintenance", "loss", "average", "seed", "dtype"),
)


def algorithm(where: str, family: Family, name: Any) -> Algorithm:
    """The algorithm of this name, if it learns such targets."""
    if name not in family.algorithms:
        raise ValueError(
            f"{where}: algorithm must be one of {', '.join(family.algorithms)}, got "
            f"{name!r}"
        )
    return registry.named(where, name)


def loss(where: str, family: Family, given: Any) -> Loss:
    """The loss of this name, or this function."""
    if isinstance(given, str) and given in family.losses:
        return family.losses[given]
    if callable(given) and family.targets:
        function = given.func if isinstance(given, Partial) else given
        return Loss(given, None if function in JUMPING else given)
    known = ", ".join(family.losses) + (", or a function" if family.targets else "")
    raise ValueError(f"{where}: loss must be one of {known}, got {given!r}")


def start(
    where: str,
    family: Family,
    name: str,
    given: Mapping[str, Any],
    kernel: Kernel,
    origin: Float[np.ndarray, " features"],
    *,
    dtype: np.dtype,
    num_classes: int | None,
    seed: int,
    refits: bool,
) -> Any:
    """An empty state of the algorithm.

    Args:
      where: the caller's name, for error messages.
      family: of the estimator.
      name: of the algorithm.
      given: its parameters.
      kernel: of the model.
      origin: what is subtracted from rows, and from landmarks.
      dtype: in which to compute.
      num_classes: None for a regressor.
      seed: for what draws.
      refits: whether the stream only chooses the support vectors.

    Raises:
      ValueError: if a parameter is not one of this algorithm, nothing would come of it,
        or its value does not fit.
    """
    chosen = algorithm(where, family, name)
    takes = inspect.signature(chosen.init).parameters
    told = {
        key: None if given[key] is nothing else given[key]
        for key, nothing in NOTHING.items()
    }
    for key, value in told.items():
        if value is not None and key not in takes:
            raise ValueError(
                f"{where}: {key} must be {NOTHING[key]} with algorithm={name!r}, which "
                f"has none, got {value!r}"
            )
    if told["average"] is not None and refits:
        raise ValueError(
            f"{where}: average must be False with refit=True, which replaces the "
            f"coefficients, got {given['average']!r}"
        )
    if isinstance(told["maintenance"], str):
        told["maintenance"] = _strategy(where, told["maintenance"])
    arguments = {key: value for key, value in told.items() if value is not None}
    arguments |= _loss(where, family, name, takes, given["loss"], refits)
    if "seed" in takes:
        arguments["seed"] = seed
    options = _options(where, name, takes, given["options"])
    if options.get("landmarks") is not None and np.any(origin):
        options = {**options, "landmarks": options["landmarks"] - origin[None]}
    return chosen.init(
        kernel,
        num_features=len(origin),
        num_classes=num_classes,
        budget=given["budget"],
        dtype=dtype,
        **options | arguments,
    )


def _strategy(where: str, name: str) -> Any:
    """The strategy of this name."""
    if name not in STRATEGIES:
        raise ValueError(
            f"{where}: maintenance must be one of {', '.join(STRATEGIES)}, or a "
            f"strategy, got {name!r}"
        )
    return STRATEGIES[name]()


def _loss(
    where: str, family: Family, name: str, takes: Any, given: Any, refits: bool
) -> dict[str, Any]:
    """`loss=`, if the algorithm takes it."""
    found = loss(where, family, given)
    if refits and found.refit is None:
        raise ValueError(
            f"{where}: refit must be False with a loss whose derivative jumps, got "
            f"loss={given!r}"
        )
    if "loss" in takes:
        return {"loss": found.stream}
    own = next(iter(family.losses))
    if given != own and not refits:
        raise ValueError(
            f"{where}: loss must be {own!r} with algorithm={name!r} where there is no "
            f"refit, got {given!r}"
        )
    return {}


def _options(where: str, name: str, takes: Any, given: Any) -> dict[str, Any]:
    """`options`, if the algorithm takes them."""
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise ValueError(f"{where}: options must be a dict, got {given!r}")
    free = [key for key in takes if key not in OWN]
    for key in given:
        if key not in free:
            raise ValueError(
                f"{where}: options must be of {', '.join(free) or 'none'} with "
                f"algorithm={name!r}, got {key!r}"
            )
    return given
