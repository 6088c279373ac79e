"""Solvers of a whole training set, kernel and linear, one file each."""

import functools
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.solvers.solver import Solver

# The solvers, each in a module of its name, by the room that it is in. They are listed,
# and not found, where the command line need not wait for JAX.
SOLVERS = {
    "kernel": ("ball_sgd", "budget_svm", "kernel_pegasos", "sbp", "sdca", "smo"),
    "linear": ("dcd", "linear_pegasos", "mpu"),
}
# Solvers of users by name; see `budgetjax.register`. They are kept here, where the
# command line finds them without waiting for JAX.
registered: "dict[str, Solver[..., Any, Any, Any]]" = {}


def by_name() -> dict[str, Any]:
    """All solvers: those of this package, and those of `budgetjax.register`."""
    return _own() | registered


@functools.cache
def _own() -> "dict[str, Solver[..., Any, Any, Any]]":
    return {
        name: getattr(importlib.import_module(f"{__name__}.{room}.{name}"), name)
        for room, names in SOLVERS.items()
        for name in names
    }
