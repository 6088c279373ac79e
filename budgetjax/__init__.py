"""Kernel learning on a fixed budget of support vectors, in JAX."""

from budgetjax.engine import decision_function, predict, run
from budgetjax.expansion import Support, support
from budgetjax.kernels import (
    RBF,
    Kernel,
    Laplacian,
    Linear,
    Normalized,
    Polynomial,
    Product,
    Sigmoid,
    Sum,
)
from budgetjax.maintenance import (
    Merge,
    RemoveLargestMargin,
    RemoveOldest,
    RemoveRandom,
    RemoveSmallest,
)
from budgetjax.online.forgetron import forgetron
from budgetjax.online.pegasos import pegasos
from budgetjax.online.perceptron import perceptron
from budgetjax.rounds import Algorithm, Edits
from budgetjax.sweep import Grid, Sweep, Table, grid, sweep

__version__ = "0.1.0"

__all__ = [
    "RBF",
    "Algorithm",
    "Edits",
    "Grid",
    "Kernel",
    "Laplacian",
    "Linear",
    "Merge",
    "Normalized",
    "Polynomial",
    "Product",
    "RemoveLargestMargin",
    "RemoveOldest",
    "RemoveRandom",
    "RemoveSmallest",
    "Sigmoid",
    "Sum",
    "Support",
    "Sweep",
    "Table",
    "decision_function",
    "forgetron",
    "grid",
    "pegasos",
    "perceptron",
    "predict",
    "run",
    "support",
    "sweep",
]
