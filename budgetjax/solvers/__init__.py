"""Solvers of a whole training set, kernel and linear, one file each."""

import importlib
from typing import Any

# The registry, by the floor of each.
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
    """The solver of this name, whose module is imported then."""
    return getattr(importlib.import_module(f"{__name__}.{SOLVERS[name]}.{name}"), name)
