"""`budgetjax train` with a solver, which holds the complete file in memory."""

import functools
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from budgetjax import registry
from budgetjax._errors import ArgumentError, InputError, names_errors
from budgetjax._record import fields_of
from budgetjax._rows import SparseMatrix
from budgetjax.cli import learners, options, reading, reports, targets
from budgetjax.cli.targets import Counted
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
from budgetjax.stream.batches import Batches, cast_numbers
from budgetjax.tables import encoding, scaling
from budgetjax.tables.columns import join_rows
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel
from budgetjax.training.sample import find_classes

# How a solver takes columns, for the report.
QUARTILES = "in units of their quartiles, outliers clipped"
# Fields that have no default for classifiers, or a better one.
CLASSIFIER_DEFAULTS: dict[type[Solver], dict[str, Any]] = {
    SBP: {"slack": 0.003, "tolerance": 1.0},
    MPU: {"tolerance": 1e-4},
}
# Bytes per number while a file is read and scaled: once in float64, twice in float32.
BYTES = 16


def train(
    say: Callable[[str, str], None],
    counted: Counted,
    classes: np.ndarray | None,
    training: options.TrainOptions,
    kind: type[Solver],
) -> TableModel:
    """Trains with a solver: one model for two classes, otherwise one per class."""
    make, options_of_run = _read_settings(training, kind)
    source = counted.source
    X, y, weight, codes = _read_all(source, classes, training, kind)
    if classes is None:
        with names_errors(source.name):
            classes = find_classes(np.unique(y).tolist(), len(y))
    say("classes", counted.text(classes))
    say("columns", "as they are" if codes is None else QUARTILES)
    kernel = {}
    if not kind.linear:
        gamma = training.gamma
        if isinstance(gamma, str):
            gamma = default_gamma(source.name, X)
        kernel = {"kernel": RBF(gamma)}
        say("kernel", f"Gaussian, gamma {gamma:.4g}")
    with learners.usage_errors():
        solver = make(**kernel)
    name, penalty = learners.name_of(kind), _penalty(training)
    shown = f", budget {training.budget:g}" if kind is BudgetSVM else ""
    shown += f", penalty {penalty:g}" if _has(kind, "penalty") else ""
    shown += "".join(f", {key} {value}" for key, value in training.settings.items())
    say("learner", name + shown)
    say("read", f"{reports.with_count(len(y), 'row')}, all of them in memory")
    solutions = one_versus_rest(
        *(solver, X, y, classes),
        weight=weight,
        random=np.random.RandomState(training.seed),
        progress=options.shows_progress(training.quiet),
        **options_of_run,
    )
    advice = "raise by --set max_steps, or tolerance"
    if late := convergence_warning(solutions, classes, advice):
        reports.echo(f"budgetjax: warning: {name}: {late}", err=True)
    model = combine_models(solutions)
    if not kind.linear:
        each = [len(one.model.vectors) for one in solutions]
        say("support vectors", f"{max(each):,}" + " at most" * (len(each) > 1))
    return TableModel(model, codes, classes, source.feature_names)


def default_gamma(name: str, X: np.ndarray) -> float:
    """The default gamma of these rows of a source of this name."""
    try:
        return scaling.default_gamma(X)
    except ValueError as error:
        raise InputError(
            f"{name}: --gamma scale needs rows that differ: {error}"
        ) from error


def find_solver(learner: str | None) -> type[Solver] | None:
    """The solver of this name, or None; raises for an option that it does not have."""
    if learner is None or learner not in options.solver_names():
        return None
    kind = registry.solver_classes()[options.python_name(learner)]
    refused = ["epochs", "refit", "learn_metric", "checkpoint", "regression"]
    refused += ["kernel", "maintenance", "loss", "move_vectors"]
    refused += [] if kind is BudgetSVM else ["budget"]
    refused += [] if _has(kind, "penalty") else ["penalty"]
    refused += ["gamma"] if kind.linear else []
    source_of = click.get_current_context().get_parameter_source
    for name in refused:
        if source_of(name) is not click.core.ParameterSource.DEFAULT:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is not for --learner {learner}.")
    return kind


def _has(kind: type[Solver], name: str) -> bool:
    return name in (field.name for field in fields_of(kind))


def _penalty(training: options.TrainOptions) -> float:
    given = training.penalty
    return options.SOLVER_PENALTY if isinstance(given, str) else given


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
    source: Batches,
    classes: np.ndarray | None,
    training: options.TrainOptions,
    solver: type[Solver],
) -> tuple[Any, np.ndarray, np.ndarray | None, Encoding | None]:
    """All rows as the solver takes them, targets and weights, and the encoding."""
    row, parts, encodes = 0, [], training.encode is not False
    if source.texts and not encodes:
        wanted = "have numbers alone where columns are not encoded"
        error = ArgumentError("X", wanted, f"texts in {source.texts[0]!r}")
        error.function = source.name
        raise error.advised("encode='auto' reads texts")
    for X, y, *weight in source:
        with names_errors(source.name):
            if classes is not None:
                targets.check_targets(y, classes, row)
            if not isinstance(X, SparseMatrix):
                what = f"for all rows of {source.name}"
                if solver.linear and source.feature_names is None:
                    what += " (--encode no keeps LIBSVM text sparse)"
                rows = max(row + len(y), source.num_rows or 0)
                learners.check_memory(what, BYTES * rows * source.num_features)
                reading.check_finite(source, X, row, takes_missing=encodes)
                if not encodes:
                    if not row:
                        scaling.warn_unscaled(source.name, X)
                    X = cast_numbers("X", X, np.float32, row, source.feature_names)
        parts.append((X, y, *weight))
        row += len(y)
    if not row:
        raise ValueError(f"{source.name}: the file must have rows, got none")
    rows, y, *weight = zip(*parts, strict=True)
    y, *weight = (np.concatenate(arrays) for arrays in (y, *weight))
    codes = None
    if isinstance(rows[0], SparseMatrix):
        import scipy.sparse  # takes a tenth of a second

        joined = scipy.sparse.csr_array(scipy.sparse.vstack(rows))
        return joined, y, weight[0] if weight else None, None
    X: Any = join_rows(rows)
    if encodes:
        bins = 0 if isinstance(training.encode, str) else int(training.encode)
        with names_errors(source.name):
            codes = encoding.fit(X, bins)
            X = codes.apply(X)
    return X, y, weight[0] if weight else None, codes
