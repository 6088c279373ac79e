"""`budgetjax train`: from a file of examples to a model file."""

import dataclasses
import functools
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from budgetjax.cli import data, learners, options, targets

# Points of the learning curve of a small file, and the minimum number of rows of each:
# the first of them say how to scale the features.
POINTS = 100
FEWEST_ROWS = 256
# The width of the names in the report.
NAMES = 20
EXAMPLES = """\b
Examples:
  budgetjax train iris.csv --target species --model iris.safetensors
  budgetjax train a9a.libsvm --model a9a.safetensors --budget 200 --test a9a.t
  budgetjax train houses.parquet --target price --regression -m houses.safetensors
  budgetjax train large.csv --target y -m large.safetensors --checkpoint large.ckpt
"""


@click.command(epilog=EXAMPLES)
@click.argument("file")
@click.option(
    "--model", "-m", required=True, metavar="OUT", help="The model file to write."
)
@options.columns
@click.option(
    "--budget",
    type=options.BUDGET,
    default=100,
    show_default=True,
    help="Maximum number of support vectors: more are slower, and often better.",
)
@click.option(
    "--gamma",
    type=options.Gamma(),
    default="scale",
    show_default=True,
    help="Gamma of the kernel exp(-gamma |x - z|^2); scale: 2 / mean squared distance.",
)
@options.algorithm
@click.option(
    "--set",
    "settings",
    type=options.Setting(),
    multiple=True,
    help="An argument of the algorithm, such as regularization=1e-3.  [repeatable]",
)
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
    help="Solve for the best coefficients of the support vectors at the end.",
)
@click.option(
    "--penalty",
    type=options.POSITIVE,
    default=10.0,
    show_default=True,
    help="Penalty of errors in the refit; smaller gives a smoother model.",
)
@click.option(
    "--metric",
    is_flag=True,
    help="Learn a linear map of the features too, in some 40 passes over the file; it "
    "is kept if it predicts a held-out fifth of at least 1,000 rows better.",
)
@click.option("--regression", is_flag=True, help="Predict numbers, not classes.")
@click.option(
    "--classes",
    metavar="LABEL,LABEL...",
    help="All classes; without them, one pass over the file finds them.",
)
@click.option("--test", metavar="FILE", help="Another file, to test the model on.")
@click.option(
    "--checkpoint",
    metavar="FILE",
    help="Keep the progress in FILE; the same command goes on from there.",
)
@options.seed
@options.quiet
def train(
    file: str,
    model: str,
    target: str | None,
    ignore: tuple[str, ...],
    header: bool,
    zero_based: bool,
    budget: int,
    gamma: float | str,
    algorithm: str | None,
    settings: tuple[tuple[str, Any], ...],
    standardise: bool,
    epochs: int,
    refit: bool,
    penalty: float,
    metric: bool,
    regression: bool,
    classes: str | None,
    test: str | None,
    checkpoint: str | None,
    seed: int,
    quiet: bool,
) -> None:
    """Train a model from FILE.

    One row is one example. FILE is CSV, Parquet, Arrow, .npy or LIBSVM text, by its
    name, and is read a part at a time, so that it may be larger than the memory. Rows
    should be in random order: if they are sorted, the last count most, even though a
    sample of up to 8,192 rows is learned again at the end, shuffled.
    """
    started = time.perf_counter()
    asked = options.unique(settings, "--set")
    data.check_target(file, target, header)
    if metric and not refit:
        raise click.UsageError("--metric and --no-refit exclude each other.")
    if regression and classes is not None:
        raise click.UsageError("--classes and --regression exclude each other.")
    data.check_outputs({"--model": model, "--checkpoint": checkpoint}, file, test)
    shows_bar = options.shows_bar(quiet)

    def say(name: str, text: str) -> None:
        if not quiet:
            click.echo(f"{name + ':':<{NAMES}}{text}")

    source = data.opened(file, target, ignore, header=header, zero_based=zero_based)
    tested = None
    if test is not None:
        if data.extension(test) == data.ARRAYS:
            raise click.UsageError(f"--test cannot be {data.ARRAYS}, got {test}.")
        tested = data.like(
            *(test, target, source.feature_names, source.num_features),
            header=header,
            zero_based=zero_based,
        )
    about = targets.look(source, regression=regression, classes=classes)
    if tested is not None:
        row = 0
        for y in targets.read(tested):
            targets.check(tested.name, y, about.labels, row)
            row += len(y)
    number = None if about.labels is None else len(about.labels)
    learner = learners.chosen(algorithm, number, asked, seed, refits=refit)
    from budgetjax import kernels

    if not isinstance(gamma, float):
        first, *_ = next(source.read())
        gamma = learners.default_gamma(source.name, first, standardise)
    empty = functools.partial(
        learner.algorithm.init,
        kernels.RBF(gamma),
        num_features=source.num_features,
        budget=budget,
        **learner.arguments,
    )
    # A refit holds the kernel matrix, its eigenvectors, and their product.
    matrices = 3 * 4 * (budget + 1) ** 2 if refit else 0
    state = learners.made(f"--budget {budget}", empty, matrices)
    say("data", f"{file}, {data.counted(source.num_features, 'feature')}")
    say("target" if regression else "classes", about.text)
    say("scaling", "every feature to mean 0 and deviation 1" if standardise else "none")
    say("kernel", f"Gaussian, gamma {gamma:.4g}")
    extra = "".join(f", {key} {value}" for key, value in asked.items())
    name = learner.algorithm.name.replace("_", "-")
    say("learner", f"{name}, at most {budget:,} support vectors{extra}")
    if about.doubt:
        click.echo(f"budgetjax: warning: {file}: {about.doubt}", err=True)

    try:
        fitted = _streamed(
            learner.algorithm,
            state,
            source,
            about,
            standardise=standardise,
            epochs=epochs,
            checkpoint=checkpoint,
            progress=shows_bar,
        )
        rows = fitted.num_rows // epochs
        times = f", {epochs} times" if epochs > 1 else ""
        say("read", data.counted(rows, "row") + times)
        when = "of rows before they were learned"
        if epochs > 1:
            when = "over all passes, of which only the first met new rows"
        say(
            "progressive error",
            f"{targets.shown_error(fitted.error, regression)}, {when}",
        )
        if refit:
            from budgetjax.refitting.refit import refit as refit_model

            # If no row has changed the model, zeros are right.
            if int(fitted.state.expansion.num_active):
                fitted = refit_model(
                    fitted,
                    source,
                    loss=learner.refit_loss,
                    penalty=penalty,
                    learn_metric="auto" if metric else False,
                    calibrate=not regression,
                    progress=shows_bar,
                )
            if metric:
                none = "left out, as it is not better"
                matrix = getattr(fitted.state.kernel, "matrix", None)
                say("metric", none if matrix is None else "learned")
    except KeyboardInterrupt as interrupt:
        how = "nothing is written; --checkpoint FILE lets a run go on"
        if checkpoint is not None:
            how = f"the same command goes on from {checkpoint}"
        raise KeyboardInterrupt(how) from interrupt
    from budgetjax.saving import model_files

    notes = {
        "file": Path(file).name,
        "target": target,
        "refit": refit,
    }
    model_files.write(model, fitted, notes)
    say("model", model)
    if tested is not None:
        error, count = _tested(fitted, tested, regression)
        say(
            "test error",
            f"{targets.shown_error(error, regression)}, {count:,} rows of {test}",
        )
    say("time", f"{time.perf_counter() - started:.1f} seconds")


def _streamed(
    algorithm: Any,
    state: Any,
    source: Any,
    about: targets.Look,
    *,
    standardise: bool,
    epochs: int,
    checkpoint: str | None,
    progress: bool,
) -> Any:
    """The model after the stream; more epochs are one longer stream."""
    from budgetjax.stream.batches import rows_of_a_batch
    from budgetjax.stream.checkpoints import AGAIN
    from budgetjax.stream.fit import fit_stream
    from budgetjax.stream.reservoir import usual_size

    def read() -> Iterator[tuple[np.ndarray, ...]]:
        for _ in range(epochs):
            yield from source.read()

    rows = about.rows
    longer = dataclasses.replace(
        source, read=read, num_rows=None if rows is None else epochs * rows
    )
    # As many batches as a learning curve needs points; a large file has them anyway.
    usual = rows_of_a_batch("train", source.num_features, np.float32, None)
    size = max(FEWEST_ROWS, (rows or usual * POINTS) // POINTS)
    try:
        return fit_stream(
            algorithm,
            state,
            longer,
            classes=about.labels,
            intercept=about.mean,
            standardise=standardise,
            reservoir=usual_size(source.num_features),
            batch_rows=min(usual, size),
            progress=progress,
            checkpoint=checkpoint,
        )
    except ValueError as error:
        if AGAIN not in str(error):
            raise
        anew = f"delete {checkpoint} to start anew"
        text = re.sub(r": give batch_rows=\d+, or ", "; ", str(error))
        raise ValueError(text.replace(AGAIN, anew)) from error


def _tested(model: Any, source: Any, regression: bool) -> tuple[float, int]:
    """The share of mistakes or the mean squared error on a file, and its rows."""
    from budgetjax import checks

    total, rows = 0.0, 0
    for X, y, *_ in source:
        checks.check_finite(source.name, X, rows, source.feature_names)
        total += targets.errors(model.predict(X), y, regression=regression)
        rows += len(y)
    return total / rows, rows
