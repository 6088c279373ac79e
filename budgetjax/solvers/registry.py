"""Solvers by name: those of this package, in one list, and those of users."""

from typing import Any

from budgetjax import solvers
from budgetjax.solvers.kernel.ball_sgd import ball_sgd
from budgetjax.solvers.kernel.budget_svm import budget_svm
from budgetjax.solvers.kernel.kernel_pegasos import kernel_pegasos
from budgetjax.solvers.kernel.sbp import sbp
from budgetjax.solvers.kernel.sdca import sdca
from budgetjax.solvers.kernel.smo import smo
from budgetjax.solvers.linear.dcd import dcd
from budgetjax.solvers.linear.linear_pegasos import linear_pegasos
from budgetjax.solvers.linear.mpu import mpu
from budgetjax.solvers.solver import Solver

# The solvers of this package.
SOLVERS: tuple[Solver[..., Any, Any, Any], ...] = (
    *(ball_sgd, budget_svm, kernel_pegasos, sbp, sdca, smo),
    *(dcd, linear_pegasos, mpu),
)


def by_name() -> dict[str, Any]:
    """All solvers: those of this package, and those of `budgetjax.register`."""
    return {one.name: one for one in SOLVERS} | solvers.registered
