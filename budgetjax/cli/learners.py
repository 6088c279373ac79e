"""Empty models, from what a command line says of them."""

import importlib
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from budgetjax.solvers import SOLVERS


def chosen(
    name: str | None,
    num_classes: int | None,
    settings: dict[str, Any],
    seed: int,
    *,
    refits: bool,
) -> Any:
    """What a command line asks for, an `estimators.parameters.Choice`.

    None is the usual learner, no classes mean a regression, and lists of settings are
    swept.
    """
    from budgetjax.estimators import parameters

    if "average" in settings:
        raise click.UsageError(
            "--set average: a model file predicts by the last model."
        )
    try:
        return parameters.chosen(
            *("--learner, --set", name and name.replace("-", "_"), words(settings)),
            num_classes=num_classes,
            seed=seed,
            refits=refits,
        )
    except ValueError as error:
        text = str(error).replace("algorithm must", "the learner must")
        raise click.UsageError(text) from error


def solver(name: str) -> Any:
    """The solver of this name, as `--learner` takes it."""
    name = name.replace("-", "_")
    module = importlib.import_module(f"budgetjax.solvers.{SOLVERS[name]}.{name}")
    return getattr(module, name)


def takes_sparse(name: str | None) -> bool:
    """Whether this learner, as `--learner` takes it, can have sparse rows."""
    return name is not None and SOLVERS.get(name.replace("-", "_")) == "linear"


def words(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings whose words are spelled as in Python."""
    return {
        key: given.replace("-", "_") if isinstance(given, str) else given
        for key, given in settings.items()
    }


def default_gamma(where: str, X: np.ndarray) -> float:
    """The default gamma of these rows, of a file that is named by `where`."""
    from budgetjax import scaling

    try:
        return scaling.default_gamma(X)
    except ValueError as error:
        raise ValueError(
            f"{where}: --gamma scale needs rows that differ: {error}"
        ) from error


def made(what: str, init: Callable[[], Any], more: int = 0) -> Any:
    """An empty model, by one program, if the computer has the memory for it.

    `what` names it in the message, and `more` are the bytes that its training takes.
    """
    import jax

    leaves = jax.tree.leaves(jax.eval_shape(init))
    needed = more + sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)
    check_memory(f"for {what}", needed)
    return jax.jit(init)()


def check_memory(what: str, needed: int) -> None:
    """Raises if so many bytes are more than the computer has."""
    from budgetjax import checks

    if needed > (memory := checks.host_memory()):
        raise MemoryError(
            f"{what}, which needs {needed / 2**30:,.1f} GiB; this computer has "
            f"{memory / 2**30:,.1f} GiB"
        )
