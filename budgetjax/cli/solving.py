"""`budgetjax train` with a solver, which holds the complete file in memory."""

import inspect
from typing import Any

import click
import numpy as np

from budgetjax._errors import names_errors
from budgetjax._rows import SparseMatrix
from budgetjax.cli import learners, options, reading, reports, targets
from budgetjax.cli.learners import Job
from budgetjax.kernels import RBF
from budgetjax.solvers.one_versus_rest import (
    CLASSIFIER_DEFAULTS,
    combine_models,
    convergence_warning,
    one_versus_rest,
)
from budgetjax.solvers.registry import by_name as solvers_by_name
from budgetjax.solvers.solver import Solver
from budgetjax.stream.batches import cast_numbers
from budgetjax.tables import scaling
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

# Arguments of solvers that are not settings.
OWN = (
    *("X", "y", "kernel", "weight", "rows"),
    *("budget", "penalty", "seed", "tolerance"),
)
# Bytes per number while a file is read and scaled: once in float64, twice in float32.
BYTES = 16


def train(job: Job, solver: Solver) -> TableModel:
    """Trains with a solver: one model for two classes, otherwise one per class."""
    arguments = _arguments(job.training, solver)
    X, y, weight, scaling = _read_all(job, solver)
    job.say_data()
    if not solver.linear:
        gamma = job.training.gamma or job.default_gamma(X, scaled=True)
        arguments["kernel"] = RBF(gamma)
        job.say("kernel", f"Gaussian, gamma {gamma:.4g}")
    shown = [name for name in ("budget", "penalty") if name in arguments]
    shown = [f", {name} {arguments[name]:g}" for name in shown]
    job.say_learner(options.option_name(solver.name), "".join(shown))
    job.say("read", f"{reports.with_count(len(y), 'row')}, all of them in memory")
    classes = job.about.labels
    assert classes is not None, "numbers are for online learners"
    solutions = one_versus_rest(
        *(solver, X, y, classes),
        random=np.random.RandomState(job.training.seed),
        progress=job.progress,
        weight=weight,
        **arguments,
    )
    advice = "raise by --set max_steps, or tolerance"
    if late := convergence_warning(solutions, classes, advice):
        reports.echo(f"budgetjax: warning: {solver.name}: {late}", err=True)
    model = combine_models(solutions)
    if not solver.linear:
        each = [len(one.model.vectors) for one in solutions]
        job.say("support vectors", f"{max(each):,}" + " at most" * (len(each) > 1))
    return TableModel(model, scaling, classes, job.source.feature_names)


def find_solver(learner: str | None) -> Solver | None:
    """The solver of this name, or None; raises for an option that it does not have."""
    if learner is None or learner not in options.solver_names():
        return None
    solver = solvers_by_name()[options.python_name(learner)]
    refused = ["epochs", "refit", "metric", "checkpoint", "regression"]
    refused += [name for name in ("budget", "penalty") if not solver.takes(name)]
    refused += ["gamma"] if solver.linear else []
    source_of = click.get_current_context().get_parameter_source
    for name in refused:
        if source_of(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} is not for --learner {learner}.")
    return solver


def _arguments(training: options.TrainOptions, solver: Solver) -> dict[str, Any]:
    """The arguments of `solve` except the training set."""
    takes = inspect.signature(solver.init).parameters
    free = [name for name in takes if name not in OWN] + ["tolerance", "max_steps"]
    settings = training.settings
    learners.check_settings(str(training.learner), settings, free)
    arguments = dict(CLASSIFIER_DEFAULTS.get(solver.name, {}))
    arguments |= {
        name: options.python_name(given) if isinstance(given, str) else given
        for name, given in settings.items()
    }
    if "budget" in takes:
        arguments["budget"] = training.budget
    if "penalty" in takes:
        arguments["penalty"] = training.penalty or options.SOLVER_PENALTY
    return arguments


def _read_all(
    job: Job, solver: Solver
) -> tuple[Any, np.ndarray, np.ndarray | None, Scaling | None]:
    """All scaled rows, their targets and weights, and the scaling."""
    source, row, parts = job.source, 0, []
    known = None
    if job.training.standardise:
        known = Scaling.empty(source.num_features, fills=job.fills)
    for X, y, *weight in source:
        with names_errors(source.name):
            targets.check_targets(y, job.about.labels, row)
            if not isinstance(X, SparseMatrix):
                rows = max(row + len(y), job.about.rows or 0)
                what = f"for all rows of {source.name}"
                if solver.linear and source.feature_names is None:
                    what += " (--no-standardise keeps LIBSVM text sparse)"
                learners.check_memory(what, BYTES * rows * source.num_features)
                reading.check_finite(source, X, row, job.fills)
                if known is not None:
                    known = known.updated(known.filled(X), first_row=row)
                else:
                    if not row:
                        scaling.warn_unscaled(source.name, X)
                    X = cast_numbers("X", X, np.float32, row, source.feature_names)
        parts.append((X, y, *weight))
        row += len(y)
    rows, y, *weight = zip(*parts, strict=True)
    y, *weight = (np.concatenate(arrays) for arrays in (y, *weight))
    if isinstance(rows[0], SparseMatrix):
        import scipy.sparse  # takes a tenth of a second

        X = scipy.sparse.csr_array(scipy.sparse.vstack(rows))
    else:
        X = np.concatenate([X if known is None else known.apply(X) for X in rows])
    return X, y, weight[0] if weight else None, known
