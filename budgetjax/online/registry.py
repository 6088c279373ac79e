"""Learners by name: those of this package, in one list, and those of users."""

import re
from typing import TypeVar

from budgetjax import _record, online, solvers
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.kernels import Kernel
from budgetjax.model import Model
from budgetjax.online.learner import Learner
from budgetjax.online.learners.ahpatron import Ahpatron
from budgetjax.online.learners.alma import ALMA
from budgetjax.online.learners.arow import AROW
from budgetjax.online.learners.forgetron import Forgetron
from budgetjax.online.learners.fourier import Fourier
from budgetjax.online.learners.norma import NORMA
from budgetjax.online.learners.nystrom import Nystrom
from budgetjax.online.learners.passive_aggressive import PassiveAggressive
from budgetjax.online.learners.pegasos import Pegasos
from budgetjax.online.learners.perceptron import Perceptron
from budgetjax.online.learners.projectron import Projectron
from budgetjax.online.learners.sgd import SGD
from budgetjax.online.maintenance import Maintenance
from budgetjax.solvers.registry import by_name as solvers_by_name
from budgetjax.solvers.solver import Solver

Own = TypeVar("Own")

# The learners of this package.
LEARNERS: tuple[type[Learner], ...] = (
    *(Ahpatron, ALMA, AROW, Forgetron, Fourier, NORMA, Nystrom, PassiveAggressive),
    *(Pegasos, Perceptron, Projectron, SGD),
)


@names_errors("register")
def register(own: Own) -> Own:
    """Registers your own learner, kernel, maintenance strategy, model or solver.

    Model files can then be loaded without `like=`. The command line finds a learner and
    a solver by name (`MyPegasos` as "my-pegasos"), and estimators a strategy
    (`RemoveFarthest` as "remove_farthest").

    Args:
      own: a subclass of `Learner`, `Kernel`, `Maintenance` or `Model`, or a `Solver`,
        whose name nothing else has. It is returned, so that this is a decorator too.

    Example:
      >>> @bj.register
      ... class Eager(bj.Perceptron):
      ...     def violates(self, state, score, y):
      ...         return bj.losses.margin(score, y) < 1
    """
    if isinstance(own, type) and issubclass(
        own, Learner | Kernel | Maintenance | Model
    ):
        if issubclass(own, Learner):
            _check_free(name_of(own), own, online.registered)
        _record.record(own)
        if issubclass(own, Learner):
            online.registered[name_of(own)] = own
        return own  # pyright: ignore[reportReturnType]
    if not isinstance(own, Solver):
        wanted = (
            "be a budgetjax.Solver, or a class of learners, kernels, maintenance "
            "strategies or models"
        )
        raise ArgumentError("own", wanted, f"{own!r}")
    _check_free(own.name, own, solvers.registered)
    solvers.registered[own.name] = own
    return own


def _check_free(name: str, own: object, table: dict) -> None:
    """Raises if something else has this name."""
    known = table.get(name)
    again = type(known) is type(own) and _place(known) == _place(own)
    if name in by_name() | solvers_by_name() and not again:
        raise ArgumentError(f"the name {name!r}", "be free", "one that is taken")


def _place(own: object) -> object:
    """Where a class was defined, which stays if that is executed again."""
    return (own.__module__, own.__qualname__) if isinstance(own, type) else own


def name_of(learner: type[Learner]) -> str:
    """The name of a learner on the command line, such as `passive_aggressive`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", learner.__name__).lower()


def by_name() -> dict[str, type[Learner]]:
    """All learners: those of this package, and those of `register`."""
    return {name_of(one): one for one in LEARNERS} | online.registered
