"""Empty models, from what a command line says of them."""

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click
import numpy as np

# What commands give to `init` themselves, and what no command line can name.
OWN = (
    *("kernel", "num_features", "num_classes", "budget", "capacity"),
    *("seed", "dtype", "landmarks", "optimizer", "average"),
)


# Of the kernel of a regressor, beside the Gaussian one: a constant, so that the model
# can learn how far from 0 its targets are. A kernel's gamma is never 0.
CONSTANT, NOT_LINEAR = 1.0, 1e-6


class Learner(NamedTuple):
    """An algorithm, and what its `init` is told beside kernel, features and budget.

    Attributes:
      name: as the user knows it.
      algorithm: for example `budgetjax.arow`.
      arguments: for `init`.
      refit_loss: for `budgetjax.refit`; None if it has no such loss.
    """

    name: str
    algorithm: Any
    arguments: dict[str, Any]
    refit_loss: str | None


def learner(
    name: str | None,
    num_classes: int,
    settings: dict[str, Any],
    seed: int,
    *,
    refits: bool,
) -> Learner:
    """What a command line asks for.

    Args:
      name: of `options.ALGORITHMS`; None for the estimators' usual one.
      num_classes: 0 for regression.
      settings: arguments of the algorithm by name; what is swept is a list of numbers.
      seed: for algorithms that draw.
      refits: whether a refit follows.

    Raises:
      click.UsageError: if the algorithm is not for so many classes, or has no such
        argument, or no such strategy or loss is known.
    """
    from budgetjax.estimators.parameters import CLASSIFIER, REGRESSOR
    from budgetjax.online import registry
    from budgetjax.online.maintenance import STRATEGIES

    family = CLASSIFIER if num_classes else REGRESSOR
    name = name or family.usual[0 if refits else 1]
    key = name.replace("-", "_")
    if key not in family.algorithms:
        known = ", ".join(family.algorithms)
        raise click.UsageError(
            f"--algorithm {name} learns classes; for --regression there are {known}."
        )
    algorithm = registry.named("--algorithm", key)
    takes = inspect.signature(algorithm.init).parameters
    free = [argument for argument in takes if argument not in OWN]
    for argument in settings:
        if argument not in free:
            raise click.UsageError(
                f"--set {argument}: {name} has {', '.join(free) or 'nothing to set'}."
            )
    told = dict(settings)
    loss = _named("loss", told.pop("loss", next(iter(family.losses))), family.losses)
    if "loss" in takes:
        told["loss"] = loss.stream
    if "maintenance" in told:
        told["maintenance"] = _named("maintenance", told["maintenance"], STRATEGIES)()
    if num_classes > 2 and algorithm.name == "forgetron":
        raise click.UsageError(
            f"--algorithm {name} learns two classes, and there are {num_classes}."
        )
    told["num_classes"] = num_classes or None
    if "seed" in takes:
        told["seed"] = seed
    return Learner(name, algorithm, told, loss.refit)


def _named(name: str, value: Any, known: Mapping[str, Any]) -> Any:
    key = str(value).replace("-", "_")
    if key not in known:
        raise click.UsageError(f"--set {name}={value}: there are {', '.join(known)}.")
    return known[key]


def kernel(learner: Learner, gamma: Any, *, regression: bool) -> Any:
    """The Gaussian kernel; for regression with a constant, where that is possible."""
    from budgetjax.kernels import RBF, Polynomial

    if not regression or learner.name == "fourier":
        return RBF(gamma)
    return RBF(gamma) + Polynomial(1, gamma=NOT_LINEAR, coef0=CONSTANT)


def default_gamma(where: str, X: np.ndarray, standardise: bool) -> float:
    """The default gamma of these rows, of a file that is named by `where`."""
    from budgetjax import kernels
    from budgetjax.scaling import Scaling

    # A number that is not finite is told of, with its place, when it is learned.
    X = X[np.all(np.isfinite(X), axis=1)]
    if standardise:
        X = Scaling.empty(X.shape[1]).updated(X, where=where).apply(X)
    try:
        return kernels.default_gamma(X)
    except ValueError as error:
        raise ValueError(
            f"{where}: --gamma scale needs rows that differ: {error}"
        ) from error


def made(what: str, init: Callable[[], Any], more: int = 0) -> Any:
    """An empty model, by one program, if the computer has the memory for it.

    Args:
      what: the model, for the message.
      init: makes it.
      more: bytes that its training takes besides.

    Raises:
      MemoryError: if it is larger than the memory.
    """
    import jax

    leaves = jax.tree.leaves(jax.eval_shape(init))
    needed = more + sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    if needed > _memory():
        raise MemoryError(
            f"for {what}, which needs {needed / 2**30:,.1f} GiB; this computer has "
            f"{_memory() / 2**30:,.1f} GiB"
        )
    return jax.jit(init)()


def _memory() -> float:
    """The bytes of this computer's memory, where the system tells."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):
        return np.inf
