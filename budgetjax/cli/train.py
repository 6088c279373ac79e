"""`budgetjax train`: trains a model on a file of examples."""

import time
from pathlib import Path

import click
import numpy as np

from budgetjax import models
from budgetjax._errors import names_errors
from budgetjax.cli import learners, reading, reports, solving, streaming, targets
from budgetjax.cli.options import Columns, TrainOptions, solver_names
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.stream.readers import formats


def train(
    file: tuple[str, ...],
    model: str,
    columns: Columns,
    training: TrainOptions,
    test: str | None,
) -> None:
    """Trains a model, writes it, and tests it on the rows of another file."""
    started = time.perf_counter()
    learner, regression = training.learner, training.regression
    solves = learner in solver_names()
    if learner is not None and solves:
        solving.check(learner)
    outputs = {"--model": model, "--checkpoint": training.checkpoint}
    reports.check_outputs(outputs, *file, test)
    training.check(columns)
    sparse = learners.takes_sparse(learner) and not training.standardise
    source = reading.open_examples(file, columns, regression=regression, sparse=sparse)
    about = targets.summarise_targets(
        source, regression=regression, classes=training.classes
    )
    tested = None
    if test is not None:
        tested = _open_test(test, columns, source, about.labels, sparse)
    job = learners.Job.of(source, about, columns, training)
    fitted = (solving if solves else streaming).train(job)
    notes = {
        "file": reports.join_values([Path(one).name for one in file]),
        "target": columns.target,
        "solver": learner if solves else None,
        "refit": None if solves else training.refit,
    }
    model_files.write(model, fitted, notes)
    job.say("model", model)
    if tested is not None:
        accuracy = targets.Accuracy(tested.name, about.labels)
        fills = models.imputes_missing(fitted)
        for X, y, *_ in tested:
            reading.check_finite(tested, X, accuracy.rows, fills)
            accuracy.add(np.asarray(fitted.predict(X)), y)
        error = targets.format_error(accuracy.errors / accuracy.rows, regression)
        job.say("test error", f"{error}, {accuracy.rows:,} rows of {tested.name}")
    job.say("time", f"{time.perf_counter() - started:.1f} seconds")


def _open_test(
    path: str,
    columns: Columns,
    training: Batches,
    labels: np.ndarray | None,
    sparse: bool,
) -> Batches:
    """The file to test on, after a check of its targets."""
    test_format = formats.format_of(path, columns.format)
    if "target" in test_format.arguments and not test_format.has_columns:
        endings = " or ".join(test_format.endings)
        raise click.UsageError(f"--test cannot be {endings}, got {path}.")
    source = reading.open_for_model(
        *(reading.copy_pipe(path, columns), columns),
        *(training.feature_names, training.num_features),
        sparse=sparse,
        text_target=reading.is_text_target(labels),
    )
    row = 0
    for y in targets.read_targets(source):
        with names_errors(source.name):
            targets.check_targets(y, labels, row)
        row += len(y)
    return source
