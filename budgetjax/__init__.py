"""Kernel learning on a fixed budget of support vectors, in JAX."""

from budgetjax import losses
from budgetjax.engine import decision_function, predict, run
from budgetjax.expansion import Edits, Support, averaged, support
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
    default_gamma,
)
from budgetjax.landmarks import kmeans_landmarks
from budgetjax.maintenance import (
    Merge,
    MergeBestPair,
    MultiMerge,
    Project,
    ProjectOntoNearest,
    ProjectOntoNewcomer,
    RemoveLargestMargin,
    RemoveOldest,
    RemoveRandom,
    RemoveSmallest,
)
from budgetjax.online.arow import arow
from budgetjax.online.forgetron import forgetron
from budgetjax.online.fourier import fourier
from budgetjax.online.norma import norma
from budgetjax.online.nystrom import nystrom
from budgetjax.online.passive_aggressive import passive_aggressive
from budgetjax.online.pegasos import pegasos
from budgetjax.online.perceptron import perceptron
from budgetjax.online.projectron import projectron
from budgetjax.online.sgd import sgd
from budgetjax.refit import refit
from budgetjax.rounds import Algorithm
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
    "MergeBestPair",
    "MultiMerge",
    "Normalized",
    "Polynomial",
    "Product",
    "Project",
    "ProjectOntoNearest",
    "ProjectOntoNewcomer",
    "RemoveLargestMargin",
    "RemoveOldest",
    "RemoveRandom",
    "RemoveSmallest",
    "Sigmoid",
    "Sum",
    "Support",
    "Sweep",
    "Table",
    "arow",
    "averaged",
    "decision_function",
    "default_gamma",
    "forgetron",
    "fourier",
    "grid",
    "kmeans_landmarks",
    "losses",
    "norma",
    "nystrom",
    "passive_aggressive",
    "pegasos",
    "perceptron",
    "predict",
    "projectron",
    "refit",
    "run",
    "sgd",
    "support",
    "sweep",
]
