"""Solvers of a whole training set, kernel and linear, one file each."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from budgetjax.solvers.solver import Solver

# The names of the solvers of `budgetjax.registry`, by the room that each is in,
# listed where the command line need not wait for JAX.
SOLVERS = {
    "kernel": ("ball_sgd", "budget_svm", "kernel_pegasos", "sbp", "sdca", "smo"),
    "linear": ("dcd", "linear_pegasos", "mpu"),
}
# Solvers of users by name; see `budgetjax.register`. They are kept here, where the
# command line finds them without waiting for JAX.
registered: "dict[str, type[Solver]]" = {}
