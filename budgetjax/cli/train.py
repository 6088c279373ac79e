"""`budgetjax train`: trains a model on a file of examples."""

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import numpy as np

from budgetjax._errors import names_errors
from budgetjax.cli import (
    learners,
    options,
    reading,
    reports,
    solving,
    streaming,
    targets,
)

if TYPE_CHECKING:
    from budgetjax.models import Labelled
    from budgetjax.stream.batches import Batches
    from budgetjax.stream.model import StreamModel

EXAMPLES = """\b
Examples:
  budgetjax train iris.csv --target species --model iris.safetensors
  budgetjax train a9a.libsvm --model a9a.safetensors --budget 200 --test a9a.t
  budgetjax train houses.parquet --target price --regression -m houses.safetensors
  budgetjax train large.csv --target y -m large.safetensors --checkpoint large.ckpt
  budgetjax train small.csv --target y -m small.safetensors --learner smo --penalty 10
"""


@click.command(epilog=EXAMPLES)
@options.files
@click.option(
    "--model", "-m", required=True, metavar="OUT", help="The model file to write."
)
@options.columns
@options.weights
@options.encoding
@click.option(
    "--budget",
    type=options.BUDGET,
    default=100,
    show_default=True,
    help="Maximum number of support vectors: more are slower and often better. For "
    "budget-svm, the number of examples that count.",
)
@click.option(
    "--gamma",
    type=options.Gamma(),
    default="scale",
    show_default=True,
    help="Gamma of the kernel exp(-gamma |x - z|^2); scale: 2 / mean squared distance.",
)
@options.learner(solves=True)
@options.settings("An argument of the learner, such as regularization=1e-3.")
@options.standardise
@click.option(
    "--epochs",
    type=options.AT_LEAST_1,
    default=1,
    show_default=True,
    help="Passes over the file, in its order.",
)
@click.option(
    "--refit/--no-refit",
    default=True,
    show_default=True,
    help="Recompute the coefficients of the support vectors at the end.",
)
@click.option(
    "--penalty",
    type=options.POSITIVE,
    help="Penalty of errors, in the refit or of a solver; smaller gives a smoother "
    f"model.  [default: {streaming.PENALTY:g}; {solving.PENALTY:g} for a solver]",
)
@click.option(
    "--metric",
    is_flag=True,
    help="Learn a linear map of the features too, in about 40 passes over the file; it "
    "is kept if it predicts a held-out fifth of at least 1,000 rows better.",
)
@options.regression
@click.option(
    "--classes",
    metavar="LABEL,LABEL...",
    help="All classes; without them, one pass over the file finds them.",
)
@click.option("--test", metavar="FILE", help="Another file, to test the model on.")
@click.option(
    "--checkpoint",
    metavar="FILE",
    help="Keep the progress in FILE; the same command continues from there.",
)
@options.seed
@options.quiet
@options.training
def train(
    file: tuple[str, ...],
    model: str,
    columns: reading.Columns,
    training: options.TrainOptions,
    test: str | None,
) -> None:
    """Train a model on FILE.

    One row is one example. FILE is CSV, Parquet, Arrow, .npy or LIBSVM text, by its
    extension, and is read in parts, so it may be larger than memory. Several tables, or
    a folder of them, count as one longer file. Rows should be in random order: if they
    are sorted, the last ones count most, even though a shuffled sample of up to 8,192
    rows is learned again at the end.

    The learners budget-svm, kernel-pegasos, sbp, sdca and smo (support vector machines)
    and dcd, linear-pegasos and mpu (linear ones) hold all rows in memory and find the
    best classifier, one-versus-rest for more than two classes. LIBSVM text stays sparse
    for a linear one with --no-standardise.
    """
    started = time.perf_counter()
    learner, regression = training.learner, training.regression
    solves = learner in options.solver_names()
    if learner is not None and solves:
        solving.check(learner)
    outputs = {"--model": model, "--checkpoint": training.checkpoint}
    reports.check_outputs(outputs, *file, test)
    path = reading.local_paths(file, columns)
    reading.check_target(path, columns)
    training.check(columns)

    sparse = learners.takes_sparse(learner) and not training.standardise
    source = reading.open_source(
        path, columns, sparse=sparse, text_target=False if regression else None
    )
    about = targets.summarise_targets(
        source, regression=regression, classes=training.classes
    )
    tested = None
    if test is not None:
        test_format = reading.format_of(test, columns)
        if test_format.has_target_file:
            endings = " or ".join(test_format.endings)
            raise click.UsageError(f"--test cannot be {endings}, got {test}.")
        tested = reading.open_for_model(
            *(reading.copy_pipe(test, columns), columns),
            *(source.feature_names, source.num_features),
            sparse=sparse,
            text_target=reading.is_text_target(about.labels),
        )
        row = 0
        for y in targets.read_targets(tested):
            with names_errors(tested.name):
                targets.check_targets(y, about.labels, row)
            row += len(y)
    job = learners.Job.of(source, about, columns, training)
    fitted = (solving if solves else streaming).train(job)
    from budgetjax.saving import model_files

    notes = {
        "file": reports.join_values([Path(one).name for one in file]),
        "target": columns.target,
        "solver": learner if solves else None,
        "refit": None if solves else training.refit,
    }
    model_files.write(model, fitted, notes)
    job.say("model", model)
    if tested is not None:
        error, count = _test_error(fitted, tested, regression)
        text = targets.format_error(error, regression)
        job.say("test error", f"{text}, {count:,} rows of {tested.name}")
    job.say("time", f"{time.perf_counter() - started:.1f} seconds")


def _test_error(
    model: "Labelled | StreamModel", source: "Batches", regression: bool
) -> tuple[float, int]:
    """The rate of mistakes or the mean squared error on a file, and its rows."""
    from budgetjax import models

    fills = models.imputes_missing(model)
    total, rows = 0.0, 0
    for X, y, *_ in source:
        reading.check_finite(source, X, rows, fills)
        total += targets.sum_errors(
            np.asarray(model.predict(X)), y, regression=regression
        )
        rows += len(y)
    return total / rows, rows
