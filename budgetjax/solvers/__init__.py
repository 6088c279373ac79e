"""Solvers of a whole training set, kernel and linear, one file each."""

import importlib
from typing import Any

# The registry: the folder of each solver.
SOLVERS = {
    "budget_svm": "kernel",
    "kernel_pegasos": "kernel",
    "sbp": "kernel",
    "sdca": "kernel",
    "smo": "kernel",
    "dcd": "linear",
    "linear_pegasos": "linear",
    "mpu": "linear",
}


def by_name(name: str) -> Any:
    """Imports the solver of this name."""
    return getattr(importlib.import_module(f"{__name__}.{SOLVERS[name]}.{name}"), name)
