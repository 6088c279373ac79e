"""Algorithms by name, for estimators, refits, model files and commands."""

from typing import Any, TypeVar

from budgetjax import _checks, _pytree, online, solvers
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import Name
from budgetjax.kernels import Kernel
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.maintenance import Maintenance
from budgetjax.solvers.solver import Solver

Own = TypeVar("Own")


@names_errors("register")
def register(own: Own) -> Own:
    """Registers your own algorithm, solver, kernel or maintenance strategy by its name.

    Estimators, `refit` and the command line find an algorithm by name, estimators find
    a strategy (`RemoveFarthest` as "remove_farthest"), and the command line finds a
    solver. Model files can then be loaded without `like=`; for an algorithm or a
    solver, `init` must have its class of states as the return annotation.

    Args:
      own: an `Algorithm`, a `Solver`, or a subclass of `Kernel` or `Maintenance`, whose
        name nothing else has.

    Returns:
      The same object, so that this is a decorator too.

    Raises:
      ValueError: if it is something else, or the name is taken.

    Example:
      >>> import dataclasses
      >>> own = bj.register(dataclasses.replace(bj.perceptron, name="my_perceptron"))
    """
    if isinstance(own, type) and issubclass(own, Kernel | Maintenance):
        _pytree.record(own)
        return own  # pyright: ignore[reportReturnType]
    if not isinstance(own, Algorithm | Solver):
        raise ArgumentError(
            "own",
            "be a budgetjax.Algorithm, a budgetjax.Solver, or a class of "
            "kernels or maintenance strategies",
            f"{own!r}",
        )
    known = by_name() | solvers.by_name()
    if isinstance(own, Algorithm) and own.name in online.registered:
        free = online.registered[own.name] == own
    elif isinstance(own, Solver) and own.name in solvers.registered:
        free = solvers.registered[own.name] == own
    else:
        free = own.name not in known
    if not free:
        raise ArgumentError(
            f"the name {own.name!r}", "be free", "one that is taken", "register"
        )
    if isinstance(own, Algorithm):
        online.registered[own.name] = own
    else:
        solvers.registered[own.name] = own
    return own


def by_name() -> dict[str, Algorithm[Any, Any]]:
    """All algorithms: the public ones, and those of `register`."""
    public = _pytree.public_names().values()
    known = {one.name: one for one in public if isinstance(one, Algorithm)}
    return known | online.registered


def look_up(name: Any) -> Algorithm[Any, Any]:
    """The algorithm of this name."""
    known = by_name()
    if name not in known:
        raise ArgumentError(
            "algorithm",
            f"be one of {', '.join(known)}",
            f"{name!r}; budgetjax.register adds one of your own",
        )
    return known[name]


def of_state(state: Any) -> Algorithm[Any, Any]:
    """The algorithm whose state this is."""
    name = getattr(state, "algorithm", None)
    if not isinstance(name, Name) or not hasattr(state, "expansion"):
        raise ArgumentError(
            "state", "be one of an online algorithm", _checks.kind_name(state)
        )
    return look_up(name.value)
