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
        name nothing else has. It is returned, so that this is a decorator too.

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
    table: dict[str, Any] = online.registered
    if isinstance(own, Solver):
        table = solvers.registered
    taken = own.name in by_name() | solvers.by_name()
    if taken and table.get(own.name) != own:
        raise ArgumentError(f"the name {own.name!r}", "be free", "one that is taken")
    table[own.name] = own
    return own


def by_name() -> dict[str, Algorithm[Any, Any]]:
    """All algorithms: the public ones, and those of `register`."""
    public = _pytree.public_names().values()
    known = {one.name: one for one in public if isinstance(one, Algorithm)}
    return known | online.registered


def look_up(name: object) -> Algorithm[Any, Any]:
    """The algorithm of this name."""
    more = "; budgetjax.register adds one of your own"
    return _checks.look_up("algorithm", by_name(), name, more)


def of_state(state: object) -> Algorithm[Any, Any]:
    """The algorithm whose state this is."""
    name = getattr(state, "algorithm", None)
    if not isinstance(name, Name) or not hasattr(state, "expansion"):
        raise ArgumentError(
            "state", "be one of an online algorithm", _checks.kind_name(state)
        )
    return look_up(name.value)
