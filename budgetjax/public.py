"""The public names, imported together; see `budgetjax`."""

from budgetjax import bounds, losses, stream
from budgetjax.calibration import calibrated, probabilities
from budgetjax.kernels import (
    RBF,
    Kernel,
    Laplacian,
    Linear,
    Mapped,
    Matern,
    Normalized,
    Polynomial,
    Product,
    RationalQuadratic,
    Sigmoid,
    Sum,
)
from budgetjax.models import (
    KernelModel,
    Labelled,
    LinearModel,
    Support,
    compact,
    decision_function,
    predict,
    prune,
    support,
)
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.alma import alma
from budgetjax.online.arow import arow
from budgetjax.online.engine import run
from budgetjax.online.forgetron import forgetron
from budgetjax.online.fourier import fourier
from budgetjax.online.landmarks import kmeans_landmarks
from budgetjax.online.maintenance import (
    DelayedProject,
    Maintenance,
    Merge,
    MergeBestPair,
    MultiMerge,
    Project,
    ProjectOntoNearest,
    ProjectOntoNewcomer,
    RemoveFewestErrors,
    RemoveLargestMargin,
    RemoveOldest,
    RemoveRandom,
    RemoveSmallest,
    Unbudgeted,
)
from budgetjax.online.maintenance.measured import Measured
from budgetjax.online.norma import norma
from budgetjax.online.nystrom import nystrom
from budgetjax.online.passive_aggressive import passive_aggressive
from budgetjax.online.pegasos import pegasos
from budgetjax.online.perceptron import perceptron
from budgetjax.online.projectron import projectron
from budgetjax.online.registry import register
from budgetjax.online.sgd import sgd
from budgetjax.online.sweep import Grid, Sweep, Table, grid, sweep
from budgetjax.program_cache import cache_compiled_programs
from budgetjax.refitting.compress import compress
from budgetjax.refitting.one_class import one_class
from budgetjax.refitting.refit import refit
from budgetjax.saving.export import export
from budgetjax.saving.model_files import load, save
from budgetjax.scaling import default_gamma
from budgetjax.solvers.held_out import held_out_stop
from budgetjax.solvers.kernel import norms
from budgetjax.solvers.kernel.budget_svm import budget_svm
from budgetjax.solvers.kernel.kernel_pegasos import kernel_pegasos
from budgetjax.solvers.kernel.sbp import sbp, slack_of
from budgetjax.solvers.kernel.sdca import sdca
from budgetjax.solvers.kernel.smo import smo
from budgetjax.solvers.linear.dcd import dcd
from budgetjax.solvers.linear.linear_pegasos import linear_pegasos
from budgetjax.solvers.linear.mpu import mpu
from budgetjax.solvers.linear.rows import SparseRows, sparse_rows
from budgetjax.solvers.solver import (
    History,
    Objective,
    Record,
    Solution,
    Solver,
    solve,
)
from budgetjax.stream.fit import fit_stream
from budgetjax.stream.model import CheckpointError, StreamError, StreamModel
from budgetjax.support_set import Edits, Expansion, Newcomer, averaged

__all__ = [
    "RBF",
    "Algorithm",
    "CheckpointError",
    "DelayedProject",
    "Edits",
    "Expansion",
    "Grid",
    "History",
    "Kernel",
    "KernelModel",
    "Labelled",
    "Laplacian",
    "Linear",
    "LinearModel",
    "Maintenance",
    "Mapped",
    "Matern",
    "Measured",
    "Merge",
    "MergeBestPair",
    "MultiMerge",
    "Newcomer",
    "Normalized",
    "Objective",
    "Polynomial",
    "Product",
    "Project",
    "ProjectOntoNearest",
    "ProjectOntoNewcomer",
    "RationalQuadratic",
    "Record",
    "RemoveFewestErrors",
    "RemoveLargestMargin",
    "RemoveOldest",
    "RemoveRandom",
    "RemoveSmallest",
    "Sigmoid",
    "Solution",
    "Solver",
    "SparseRows",
    "StreamError",
    "StreamModel",
    "Sum",
    "Support",
    "Sweep",
    "Table",
    "Unbudgeted",
    "alma",
    "arow",
    "averaged",
    "bounds",
    "budget_svm",
    "cache_compiled_programs",
    "calibrated",
    "compact",
    "compress",
    "dcd",
    "decision_function",
    "default_gamma",
    "export",
    "fit_stream",
    "forgetron",
    "fourier",
    "grid",
    "held_out_stop",
    "kernel_pegasos",
    "kmeans_landmarks",
    "linear_pegasos",
    "load",
    "losses",
    "mpu",
    "norma",
    "norms",
    "nystrom",
    "one_class",
    "passive_aggressive",
    "pegasos",
    "perceptron",
    "predict",
    "probabilities",
    "projectron",
    "prune",
    "refit",
    "register",
    "run",
    "save",
    "sbp",
    "sdca",
    "sgd",
    "slack_of",
    "smo",
    "solve",
    "sparse_rows",
    "stream",
    "support",
    "sweep",
]
