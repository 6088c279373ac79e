"""The public names, imported together; see `budgetjax`."""

from budgetjax import losses, stream
from budgetjax.batch.budget_svm import budget_svm
from budgetjax.batch.kernel_pegasos import kernel_pegasos
from budgetjax.batch.model import KernelModel, prune
from budgetjax.batch.sbp import sbp
from budgetjax.batch.sdca import sdca
from budgetjax.batch.smo import smo
from budgetjax.batch.solve import BatchAlgorithm, History, Objective, Record, solve
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
from budgetjax.linear.dcd import dcd
from budgetjax.linear.linear_pegasos import linear_pegasos
from budgetjax.linear.model import LinearModel
from budgetjax.linear.mpu import mpu
from budgetjax.linear.rows import SparseRows, sparse_rows
from budgetjax.linear.solving import LinearAlgorithm, Solution
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
from budgetjax.persist import load, save
from budgetjax.program_cache import cache_compiled_programs
from budgetjax.refit import refit
from budgetjax.rounds import Algorithm
from budgetjax.stream.fit import fit_stream
from budgetjax.stream.model import CheckpointError, StreamError, StreamModel
from budgetjax.sweep import Grid, Sweep, Table, grid, sweep

__all__ = [
    "RBF",
    "Algorithm",
    "BatchAlgorithm",
    "CheckpointError",
    "Edits",
    "Grid",
    "History",
    "Kernel",
    "KernelModel",
    "Laplacian",
    "Linear",
    "LinearAlgorithm",
    "LinearModel",
    "Merge",
    "MergeBestPair",
    "MultiMerge",
    "Normalized",
    "Objective",
    "Polynomial",
    "Product",
    "Project",
    "ProjectOntoNearest",
    "ProjectOntoNewcomer",
    "Record",
    "RemoveLargestMargin",
    "RemoveOldest",
    "RemoveRandom",
    "RemoveSmallest",
    "Sigmoid",
    "Solution",
    "SparseRows",
    "StreamError",
    "StreamModel",
    "Sum",
    "Support",
    "Sweep",
    "Table",
    "arow",
    "averaged",
    "budget_svm",
    "cache_compiled_programs",
    "dcd",
    "decision_function",
    "default_gamma",
    "fit_stream",
    "forgetron",
    "fourier",
    "grid",
    "kernel_pegasos",
    "kmeans_landmarks",
    "linear_pegasos",
    "load",
    "losses",
    "mpu",
    "norma",
    "nystrom",
    "passive_aggressive",
    "pegasos",
    "perceptron",
    "predict",
    "projectron",
    "prune",
    "refit",
    "run",
    "save",
    "sbp",
    "sdca",
    "sgd",
    "smo",
    "solve",
    "sparse_rows",
    "stream",
    "support",
    "sweep",
]
