"""Learners and solvers by name: those of this package, in two lists, and of users."""

import re
from typing import Any, TypeVar

from budgetjax import _record, online, solvers
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.kernels import Kernel
from budgetjax.model import Model
from budgetjax.online.learner import Learner, OnlineLearner
from budgetjax.online.learners.ahpatron import Ahpatron
from budgetjax.online.learners.alma import ALMA
from budgetjax.online.learners.arow import AROW
from budgetjax.online.learners.forgetron import Forgetron
from budgetjax.online.learners.fourier import Fourier
from budgetjax.online.learners.krlst import KRLST
from budgetjax.online.learners.norma import NORMA
from budgetjax.online.learners.nystrom import Nystrom
from budgetjax.online.learners.passive_aggressive import PassiveAggressive
from budgetjax.online.learners.pegasos import Pegasos
from budgetjax.online.learners.perceptron import Perceptron
from budgetjax.online.learners.projectron import Projectron
from budgetjax.online.learners.sgd import SGD
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.mixture import Mixture
from budgetjax.solvers.kernel.ball_sgd import BallSGD
from budgetjax.solvers.kernel.budget_svm import BudgetSVM
from budgetjax.solvers.kernel.kernel_pegasos import KernelPegasos
from budgetjax.solvers.kernel.norms import Norm
from budgetjax.solvers.kernel.sbp import SBP
from budgetjax.solvers.kernel.sdca import SDCA
from budgetjax.solvers.kernel.smo import SMO
from budgetjax.solvers.linear.dcd import DCD
from budgetjax.solvers.linear.linear_pegasos import LinearPegasos
from budgetjax.solvers.linear.mpu import MPU
from budgetjax.solvers.solver import Solver, SolverState

Own = TypeVar("Own")

# The learners of this package.
LEARNERS: tuple[type[Learner], ...] = (
    *(Ahpatron, ALMA, AROW, Forgetron, Fourier, KRLST, NORMA, Nystrom),
    *(PassiveAggressive, Pegasos, Perceptron, Projectron, SGD),
)
# Those that are made of learners.
MIXTURES: tuple[type[OnlineLearner], ...] = (Mixture,)

# The solvers of this package.
SOLVERS: tuple[type[Solver], ...] = (
    *(BallSGD, BudgetSVM, KernelPegasos, SBP, SDCA, SMO),
    *(DCD, LinearPegasos, MPU),
)
# What users may define, and what only files need to know.
KINDS = (Learner, Solver, SolverState, Model, Kernel, Maintenance, Norm)


@names_errors("register")
def register(own: Own) -> Own:
    """Registers your own learner, solver, model, kernel, norm or strategy.

    Model files can then be loaded without `like=`. The command line finds a learner and
    a solver by name (`MyPegasos` as "my-pegasos"), and estimators a strategy
    (`RemoveFarthest` as "remove_farthest").

    Args:
      own: a subclass of `Learner`, `Solver`, the state of one, `Model`, `Kernel`,
        `norms.Norm` or `Maintenance`, whose name nothing else has. It is returned, so
        that this is a decorator too.

    Example:
      >>> @bj.register
      ... class Eager(bj.Perceptron):
      ...     def violates(self, state, score, y):
      ...         return bj.losses.margin(score, y) < 1
    """
    kind: Any = own
    if not (isinstance(own, type) and issubclass(kind, KINDS)):
        wanted = (
            "be a class of learners, solvers, their states, models, kernels, norms or "
            "maintenance strategies"
        )
        raise ArgumentError("own", wanted, f"{own!r}")
    table: dict[str, Any] = {}
    if issubclass(kind, Learner):
        table = online.registered
    elif issubclass(kind, Solver):
        table = solvers.registered
    _check_free(name_of(own), own, table)
    _record.record(own)
    table[name_of(own)] = own
    return own


def _check_free(name: str, own: type, table: dict[str, type]) -> None:
    """Raises if something else has this name."""
    known = table.get(name)
    # A module that is executed again defines its classes again.
    again = known is not None and _place(known) == _place(own)
    if name in learner_classes() | solver_classes() and not again:
        raise ArgumentError(f"the name {name!r}", "be free", "one that is taken")


def _place(own: type) -> tuple[str, str]:
    return own.__module__, own.__qualname__


def name_of(kind: type) -> str:
    """The name of a class on the command line, such as `passive_aggressive`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", kind.__name__).lower()


def learner_classes() -> dict[str, type[OnlineLearner]]:
    """All learners by name: those of this package, and those of `register`."""
    return {name_of(one): one for one in (*LEARNERS, *MIXTURES)} | online.registered


def solver_classes() -> dict[str, type[Solver]]:
    """All solvers by name: those of this package, and those of `register`."""
    return {name_of(one): one for one in SOLVERS} | solvers.registered
