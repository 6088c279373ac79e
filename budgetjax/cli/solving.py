"""`budgetjax train` with a solver, which holds the complete file in memory."""

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any

import click
import numpy as np

from budgetjax import _checks, registry
from budgetjax._errors import ArgumentError, InputError, names_errors
from budgetjax._record import fields_of
from budgetjax._rows import SparseMatrix
from budgetjax.cli import descriptions, learners, options, reading, reports, targets
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
from budgetjax.tables.table_model import TableModel
from budgetjax.training.recipe import Recipe
from budgetjax.training.sample import find_classes

# Fields that have no default for classifiers, or a better one.
CLASSIFIER_DEFAULTS: dict[type[Solver], dict[str, Any]] = {
    SBP: {"slack": 0.003, "tolerance": 1.0},
    MPU: {"tolerance": 1e-4},
}
# Bytes per number while a file is read and scaled: once in float64, twice in float32.
BYTES = 16


def train(
    source: Batches,
    classes: np.ndarray | None,
    recipe: Recipe,
    settings: Mapping[str, Any],
    kind: type[Solver],
    *,
    quiet: bool,
) -> TableModel:
    """Trains with a solver: one model for two classes, otherwise one per class.

    It writes the report.
    """
    say, name = reports.reporter(quiet), learners.name_of(kind)
    say("data", descriptions.describe_source(source))
    make, options_of_run = _read_settings(kind, recipe, settings)
    encodes, codes = recipe.encode is not False, None
    X, y, weight = _read_all(source, classes, kind, encodes=encodes)
    if encodes and not isinstance(X, SparseMatrix):
        with names_errors(source.name):
            bins = 0 if isinstance(recipe.encode, str) else int(recipe.encode)
            codes = encoding.fit(X, bins)
            X = codes.apply(X)
    if classes is None:
        with names_errors(source.name):
            classes = find_classes(np.unique(y).tolist(), len(y))
    counts = collections.Counter(y.tolist())
    say("classes", targets.describe_classes(classes, counts))
    say("columns", descriptions.describe_columns(codes))
    kernel = {}
    if not kind.linear:
        kernel = {"kernel": RBF(_find_gamma(source, X, recipe.gamma))}
        say("kernel", descriptions.describe_kernel(kernel["kernel"]))
    with learners.usage_errors():
        solver = make(**kernel)
    shown = f", budget {recipe.budget:g}" if kind is BudgetSVM else ""
    shown += f", penalty {_penalty(recipe):g}" if _has(kind, "penalty") else ""
    say("learner", name + shown + descriptions.describe_settings(settings))
    say("read", f"{reports.with_count(len(y), 'row')}, all of them in memory")
    solutions = one_versus_rest(
        *(solver, X, y, classes),
        weight=weight,
        random=np.random.RandomState(recipe.seed),
        progress=options.shows_progress(quiet),
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


def find_solver(learner: str | None) -> type[Solver] | None:
    """The solver of this name, or None; raises for an option that it does not have."""
    kind = registry.solver_classes().get(options.python_name(learner or ""))
    if kind is None:
        return None
    refused = ["epochs", "refit", "learn_metric", "checkpoint", "regression"]
    refused += ["kernel", "maintenance", "loss", "move_vectors"]
    refused += [] if kind is BudgetSVM else ["budget"]
    refused += [] if _has(kind, "penalty") else ["penalty"]
    refused += ["gamma"] if kind.linear else []
    source_of = click.get_current_context().get_parameter_source
    for name in refused:
        if source_of(name) is not click.core.ParameterSource.DEFAULT:
            option = f"--{options.option_name(name)}"
            raise click.UsageError(f"{option} is not for --learner {learner}.")
    return kind


def _has(kind: type[Solver], name: str) -> bool:
    return name in (field.name for field in fields_of(kind))


def _penalty(recipe: Recipe) -> Any:
    return options.SOLVER_PENALTY if recipe.penalty == "auto" else recipe.penalty


def _find_gamma(source: Batches, X: Any, gamma: float | str) -> float:
    """The value of gamma, by default that of these rows."""
    if not isinstance(gamma, str):
        return gamma
    try:
        return scaling.default_gamma(X)
    except ValueError as error:
        wanted = "--gamma scale needs rows that differ"
        raise InputError(f"{source.name}: {wanted}: {error}") from error


def _read_settings(
    kind: type[Solver], recipe: Recipe, settings: Mapping[str, Any]
) -> tuple[Callable[..., Solver], dict[str, Any]]:
    """What makes the solver from a kernel, if it has one, and arguments of its run."""
    learners.check_settings(kind, settings)
    given = CLASSIFIER_DEFAULTS.get(kind, {}) | {
        name: options.python_name(value) if isinstance(value, str) else value
        for name, value in settings.items()
    }
    of_run = {name: given.pop(name) for name in learners.RUN if name in given}
    if kind is BudgetSVM:
        with learners.usage_errors():
            given["norm"] = norms.named(given.get("norm", "l1"), recipe.budget)
    if _has(kind, "penalty"):
        given["penalty"] = _penalty(recipe)
    return functools.partial(kind, **given), of_run


def _read_all(
    source: Batches, classes: np.ndarray | None, kind: type[Solver], *, encodes: bool
) -> tuple[Any, np.ndarray, np.ndarray | None]:
    """All rows, their targets, and their weights."""
    if source.texts and not encodes:
        wanted = "have numbers alone where columns are not encoded"
        got = f"texts in {source.texts[0]!r}"
        error = ArgumentError("X", wanted, got, source.name)
        raise error.advised("encode='auto' reads texts")
    row, parts = 0, []
    for X, y, *weight in source:
        with names_errors(source.name):
            if classes is not None:
                targets.check_targets(y, classes, row)
            if not isinstance(X, SparseMatrix):
                _check_memory(source, row + len(y), kind)
                reading.check_finite(source, X, row, takes_missing=encodes)
                if not (encodes or row):
                    scaling.warn_unscaled(source.name, X)
                if not encodes:
                    X = cast_numbers("X", X, np.float32, row, source.feature_names)
        parts.append((X, y, *weight))
        row += len(y)
    targets.check_rows(source, row)
    rows, *others = zip(*parts, strict=True)
    y, *weight = map(np.concatenate, others)
    if isinstance(rows[0], SparseMatrix):
        import scipy.sparse  # takes a tenth of a second

        joined = scipy.sparse.csr_array(scipy.sparse.vstack(rows))
    else:
        joined = join_rows(rows)
    return joined, y, weight[0] if weight else None


def _check_memory(source: Batches, rows: int, kind: type[Solver]) -> None:
    """Raises if less memory is free than all rows, at least this number, need."""
    needed = BYTES * max(rows, source.num_rows or 0) * source.num_features
    if needed <= (free := _checks.host_memory()):
        return
    what = f"for all rows of {source.name}"
    if kind.linear and source.feature_names is None:
        what += " (--encode no keeps LIBSVM text sparse)"
    raise MemoryError(
        f"{what}, which needs {needed / 2**30:,.1f} GiB; {free / 2**30:,.1f} GiB are "
        "free"
    )
