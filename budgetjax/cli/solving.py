"""`budgetjax train` with a solver, which holds the complete file in memory."""

import functools
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from budgetjax import registry
from budgetjax._errors import names_errors
from budgetjax._record import fields_of
from budgetjax._rows import SparseMatrix
from budgetjax.cli import learners, options, reading, reports, targets
from budgetjax.cli.learners import Job
from budgetjax.kernels import RBF
from budgetjax.solvers.kernel import norms
from budgetjax.solvers.kernel.budget_svm import BudgetSVM
from budgetjax.solvers.kernel.sbp import SBP
from budgetjax.solvers.linear.mpu import MPU
from budgetjax.solvers.one_versus_rest import (
    combine_models,
    convergence_warning,
    one_versus_rest,
)
from budgetjax.solvers.solver import Solver
from budgetjax.stream.batches import cast_numbers
from budgetjax.tables import scaling
from budgetjax.tables.columns import join_rows
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

# Fields that have no default for classifiers, or a better one.
CLASSIFIER_DEFAULTS: dict[type[Solver], dict[str, Any]] = {
    SBP: {"slack": 0.003, "tolerance": 1.0},
    MPU: {"tolerance": 1e-4},
}
# Bytes per number while a file is read and scaled: once in float64, twice in float32.
BYTES = 16


def train(job: Job, kind: type[Solver]) -> TableModel:
    """Trains with a solver: one model for two classes, otherwise one per class."""
    make, options_of_run = _read_settings(job.training, kind)
    X, y, weight, scaling = _read_all(job, kind)
    job.say_data()
    kernel = {}
    if not kind.linear:
        gamma = job.training.gamma or job.default_gamma(X, scaled=True)
        kernel = {"kernel": RBF(gamma)}
        job.say("kernel", f"Gaussian, gamma {gamma:.4g}")
    with learners.usage_errors():
        solver = make(**kernel)
    name, penalty = options.option_name(registry.name_of(kind)), _penalty(job.training)
    shown = f", budget {job.training.budget:g}" if kind is BudgetSVM else ""
    shown += f", penalty {penalty:g}" if _has(kind, "penalty") else ""
    job.say_learner(name, shown)
    job.say("read", f"{reports.with_count(len(y), 'row')}, all of them in memory")
    classes = job.about.labels
    assert classes is not None, "numbers are for online learners"
    solutions = one_versus_rest(
        *(solver, X, y, classes),
        weight=weight,
        random=np.random.RandomState(job.training.seed),
        progress=job.progress,
        **options_of_run,
    )
    advice = "raise by --set max_steps, or tolerance"
    if late := convergence_warning(solutions, classes, advice):
        reports.echo(f"budgetjax: warning: {name}: {late}", err=True)
    model = combine_models(solutions)
    if not kind.linear:
        each = [len(one.model.vectors) for one in solutions]
        job.say("support vectors", f"{max(each):,}" + " at most" * (len(each) > 1))
    return TableModel(model, scaling, classes, job.source.feature_names)


def find_solver(learner: str | None) -> type[Solver] | None:
    """The solver of this name, or None; raises for an option that it does not have."""
    if learner is None or learner not in options.solver_names():
        return None
    kind = registry.solver_classes()[options.python_name(learner)]
    refused = ["epochs", "refit", "metric", "checkpoint", "regression"]
    refused += [] if kind is BudgetSVM else ["budget"]
    refused += [] if _has(kind, "penalty") else ["penalty"]
    refused += ["gamma"] if kind.linear else []
    source_of = click.get_current_context().get_parameter_source
    for name in refused:
        if source_of(name) is not click.core.ParameterSource.DEFAULT:
            raise click.UsageError(f"--{name} is not for --learner {learner}.")
    return kind


def _has(kind: type[Solver], name: str) -> bool:
    return name in (field.name for field in fields_of(kind))


def _penalty(training: options.TrainOptions) -> float:
    return training.penalty or options.SOLVER_PENALTY


def _read_settings(
    training: options.TrainOptions, kind: type[Solver]
) -> tuple[Callable[..., Solver], dict[str, Any]]:
    """What makes the solver from a kernel, if it has one, and arguments of its run."""
    settings = training.settings
    learners.check_settings(str(training.learner), settings, learners.settings_of(kind))
    given = CLASSIFIER_DEFAULTS.get(kind, {}) | {
        name: options.python_name(value) if isinstance(value, str) else value
        for name, value in settings.items()
    }
    of_run = {name: given.pop(name) for name in learners.RUN if name in given}
    if kind is BudgetSVM:
        name = given.pop("norm", "l1")
        with learners.usage_errors():
            given["norm"] = norms.named(name, training.budget)
    if _has(kind, "penalty"):
        given["penalty"] = _penalty(training)
    return functools.partial(kind, **given), of_run


def _read_all(
    job: Job, solver: type[Solver]
) -> tuple[Any, np.ndarray, np.ndarray | None, Scaling | Encoding | None]:
    """All scaled rows, their targets and weights, and the scaling."""
    source, row, parts = job.source, 0, []
    known = None
    if job.training.standardise and not source.texts:
        known = Scaling.empty(source.num_features)
    for X, y, *weight in source:
        with names_errors(source.name):
            targets.check_targets(y, job.about.labels, row)
            if not isinstance(X, SparseMatrix):
                rows = max(row + len(y), job.about.rows or 0)
                what = f"for all rows of {source.name}"
                if solver.linear and source.feature_names is None:
                    what += " (--no-standardise keeps LIBSVM text sparse)"
                learners.check_memory(what, BYTES * rows * source.num_features)
                names = bool(source.texts)
                reading.check_finite(source, X, row, takes_missing=names)
                if known is not None:
                    known = known.updated(X, first_row=row)
                elif not names:
                    if not row:
                        scaling.warn_unscaled(source.name, X)
                    X = cast_numbers("X", X, np.float32, row, source.feature_names)
        parts.append((X, y, *weight))
        row += len(y)
    rows, y, *weight = zip(*parts, strict=True)
    y, *weight = (np.concatenate(arrays) for arrays in (y, *weight))
    if source.texts:
        X = join_rows(rows)
        known = job.fit_names(X)
        X = known.apply(X)
    elif isinstance(rows[0], SparseMatrix):
        import scipy.sparse  # takes a tenth of a second

        X = scipy.sparse.csr_array(scipy.sparse.vstack(rows))
    else:
        X = np.concatenate([X if known is None else known.apply(X) for X in rows])
    return X, y, weight[0] if weight else None, known
