"""The public names, imported together.

Each is listed here alone, or, of kernels and strategies, in `__all__` of its module.

`budgetjax` imports it when one of them is asked for.
"""

from functools import partial as _partial

from budgetjax import bounds as bounds
from budgetjax import estimators as _estimators
from budgetjax import losses as losses
from budgetjax import stream as stream
from budgetjax._compile_cache import cache_compiled_programs as cache_compiled_programs
from budgetjax._record import Record as Record
from budgetjax._record import equal as equal
from budgetjax._record import leaf as leaf
from budgetjax._record import static as static
from budgetjax.exporting import jax_export as _jax_export
from budgetjax.exporting.export_model import export as export
from budgetjax.kernels import *
from budgetjax.model import KernelModel as KernelModel
from budgetjax.model import LinearModel as LinearModel
from budgetjax.model import Model as Model
from budgetjax.model import Support as Support
from budgetjax.model import Wrapper as Wrapper
from budgetjax.model import decision_function as decision_function
from budgetjax.model import predict as predict
from budgetjax.model import predict_interval as predict_interval
from budgetjax.model import support as support
from budgetjax.model import variance as variance
from budgetjax.online.changes import average_iterates as average_iterates
from budgetjax.online.changes import with_kernel as with_kernel
from budgetjax.online.changes import with_learner as with_learner
from budgetjax.online.driver import run as run
from budgetjax.online.driver import step as step
from budgetjax.online.edits import Edits as Edits
from budgetjax.online.learner import Learner as Learner
from budgetjax.online.learners.ahpatron import Ahpatron as Ahpatron
from budgetjax.online.learners.alma import ALMA as ALMA
from budgetjax.online.learners.arow import AROW as AROW
from budgetjax.online.learners.forgetron import Forgetron as Forgetron
from budgetjax.online.learners.fourier import Fourier as Fourier
from budgetjax.online.learners.krlst import KRLST as KRLST
from budgetjax.online.learners.norma import NORMA as NORMA
from budgetjax.online.learners.nystrom import Nystrom as Nystrom
from budgetjax.online.learners.passive_aggressive import (
    PassiveAggressive as PassiveAggressive,
)
from budgetjax.online.learners.pegasos import Pegasos as Pegasos
from budgetjax.online.learners.perceptron import Perceptron as Perceptron
from budgetjax.online.learners.projectron import Projectron as Projectron
from budgetjax.online.learners.sgd import SGD as SGD
from budgetjax.online.maintenance.measured import *
from budgetjax.online.maintenance.merging import *
from budgetjax.online.maintenance.projection import *
from budgetjax.online.maintenance.removal import *
from budgetjax.online.maintenance.strategy import Maintenance as Maintenance
from budgetjax.online.mixture import Mixture as Mixture
from budgetjax.online.mixture import MixtureState as MixtureState
from budgetjax.online.state import Online as Online
from budgetjax.online.state import Round as Round
from budgetjax.online.state import State as State
from budgetjax.online.support_set import Candidate as Candidate
from budgetjax.online.support_set import Expansion as Expansion
from budgetjax.online.sweeps import Grid as Grid
from budgetjax.online.sweeps import Sweep as Sweep
from budgetjax.online.sweeps import grid as grid
from budgetjax.online.sweeps import sweep as sweep
from budgetjax.refitting.calibration import calibrate as calibrate
from budgetjax.refitting.calibration import probabilities as probabilities
from budgetjax.refitting.compress import compress as compress
from budgetjax.refitting.merge_models import merge_models as merge_models
from budgetjax.refitting.one_class import one_class as one_class
from budgetjax.refitting.reduce import compact as compact
from budgetjax.refitting.reduce import prune as prune
from budgetjax.refitting.refit import refit as refit
from budgetjax.refitting.shard_rows import shard_rows as shard_rows
from budgetjax.registry import register as register
from budgetjax.saving import names as _names
from budgetjax.saving.model_files import load as load
from budgetjax.saving.model_files import save as save
from budgetjax.solvers.kernel import norms as norms
from budgetjax.solvers.kernel.ball_sgd import BallSGD as BallSGD
from budgetjax.solvers.kernel.budget_svm import BudgetSVM as BudgetSVM
from budgetjax.solvers.kernel.hinge_dual import HingeSolver as HingeSolver
from budgetjax.solvers.kernel.hinge_dual import HingeState as HingeState
from budgetjax.solvers.kernel.kernel_pegasos import KernelPegasos as KernelPegasos
from budgetjax.solvers.kernel.kernel_solver import KernelSolver as KernelSolver
from budgetjax.solvers.kernel.kernel_solver import KernelState as KernelState
from budgetjax.solvers.kernel.sbp import SBP as SBP
from budgetjax.solvers.kernel.sbp import slack_of as slack_of
from budgetjax.solvers.kernel.sdca import SDCA as SDCA
from budgetjax.solvers.kernel.smo import SMO as SMO
from budgetjax.solvers.linear.dcd import DCD as DCD
from budgetjax.solvers.linear.linear_pegasos import LinearPegasos as LinearPegasos
from budgetjax.solvers.linear.linear_solver import LinearSolver as LinearSolver
from budgetjax.solvers.linear.linear_solver import LinearState as LinearState
from budgetjax.solvers.linear.mpu import MPU as MPU
from budgetjax.solvers.linear.rows import SparseRows as SparseRows
from budgetjax.solvers.linear.rows import sparse_rows as sparse_rows
from budgetjax.solvers.row_cache import KernelCache as KernelCache
from budgetjax.solvers.solver import History as History
from budgetjax.solvers.solver import Objective as Objective
from budgetjax.solvers.solver import Progress as Progress
from budgetjax.solvers.solver import Solution as Solution
from budgetjax.solvers.solver import Solver as Solver
from budgetjax.solvers.solver import SolverState as SolverState
from budgetjax.solvers.solver import held_out_stop as held_out_stop
from budgetjax.solvers.solver import solve as solve
from budgetjax.solvers.training_set import TrainingSet as TrainingSet
from budgetjax.stream.fit import fit_stream as fit_stream
from budgetjax.stream.model import CheckpointError as CheckpointError
from budgetjax.stream.model import StreamError as StreamError
from budgetjax.stream.model import StreamModel as StreamModel
from budgetjax.tables import encoding as encoding
from budgetjax.tables.form import fit_encoding as fit_encoding
from budgetjax.tables.scaling import default_gamma as default_gamma
from budgetjax.tables.table_model import TableModel as TableModel
from budgetjax.training.recipe import Recipe as Recipe
from budgetjax.training.train import train as train

_names.import_estimator.update(
    {name: _partial(getattr, _estimators, name) for name in _estimators.__all__}
)
_jax_export.register_types()
