"""`budgetjax train`: trains a model on a file of examples."""

import dataclasses
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np

from budgetjax import _rows
from budgetjax._errors import names_errors
from budgetjax.cli import (
    encoding_choice,
    learners,
    reading,
    reports,
    solving,
    targets,
)
from budgetjax.cli.encoding_choice import Choice
from budgetjax.cli.learners import Job
from budgetjax.cli.options import Columns, TrainOptions
from budgetjax.kernels import Mapped
from budgetjax.losses import Loss
from budgetjax.online import driver
from budgetjax.online.importance import SeenWeights
from budgetjax.online.state import State
from budgetjax.refitting import held_out, newton, refit
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches, rows_per_batch
from budgetjax.stream.fit import fit_stream
from budgetjax.stream.model import StreamModel
from budgetjax.stream.readers import formats
from budgetjax.stream.reservoir import default_size
from budgetjax.tables.table_model import TableModel

# The least points of the learning curve of a file that is long enough for so many
# batches.
POINTS = 100


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
    solver = solving.find_solver(learner)
    sparse = solver is not None and solver.linear and not training.standardise
    outputs = {"--model": model, "--checkpoint": training.checkpoint}
    reports.check_outputs(outputs, *file, test)
    training.check()
    source = reading.open_examples(file, columns, regression=regression, sparse=sparse)
    about = targets.summarise_targets(
        source, regression=regression, classes=training.classes
    )
    tested = None
    if test is not None:
        tested = _open_test(test, columns, source, about.labels, sparse)
    job = Job.of(source, about, training)
    fitted = train_online(job) if solver is None else solving.train(job, solver)
    notes: dict[str, Any] = {
        "file": reports.join_values([Path(one).name for one in file]),
        "target": columns.target,
        "solver": None if solver is None else learner,
        "refit": training.refit if solver is None else None,
    }
    if notes["refit"]:
        notes["training_error"] = measure_training_error(job, fitted)
    model_files.write(model, fitted, notes)
    job.say("model", model)
    if tested is not None:
        accuracy = targets.Accuracy(tested.name, about.labels)
        takes_missing = TableModel.of(fitted).takes_missing
        for X, y, *_ in tested:
            reading.check_finite(tested, X, accuracy.rows, takes_missing)
            accuracy.add(np.asarray(fitted.predict(X)), y)
        error = targets.format_error(accuracy.errors / accuracy.rows, regression)
        job.say("test error", f"{error}, {accuracy.rows:,} rows of {tested.name}")
    job.say("time", f"{time.perf_counter() - started:.1f} seconds")


def measure_training_error(job: Job, fitted: StreamModel | TableModel) -> float:
    """The error of the model on the rows that it has learned, for the report.

    The progressive error is that of the stream, whose model a refit replaces.
    """
    accuracy = targets.Accuracy(job.source.name, job.about.labels)
    for X, y, *weight in job.source.read():
        predicted = np.asarray(fitted.predict(X))
        present = weight[0] > 0 if weight else slice(None)
        accuracy.add(predicted[present], y[present])
    error = accuracy.errors / max(accuracy.scored, 1)
    shown = targets.format_error(error, job.about.labels is None)
    job.say("training error", f"{shown}, of rows that the model has learned")
    return error


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
        texts=training.texts,
    )
    row = 0
    for y in targets.read_targets(source):
        with names_errors(source.name):
            targets.check_targets(y, labels, row)
        row += len(y)
    return source


def train_online(job: Job) -> StreamModel:
    """Trains on a stream and refits; Ctrl-C tells how to continue."""
    source, about, training = job.source, job.about, job.training
    chosen = job.choice(refits=training.refit)
    budget = training.budget
    # How many columns and penalties a refit has is not known yet.
    matrices = newton.count_bytes(budget + 1, 1, 4) if training.refit else 0
    learners.check_memory(f"for --budget {budget}", matrices)
    columns = encoding_choice.choose(job)
    codes, gamma = columns.encoding, float(np.asarray(columns.kernel.gamma))
    width = source.num_features if codes is None else codes.num_features
    empty = functools.partial(
        chosen.learner.init,
        columns.kernel,
        num_features=width,
        budget=budget,
        **chosen.arguments,
    )
    state = learners.init_model(f"--budget {budget}", empty, matrices)
    job.say_data(columns.text)
    job.say("kernel", f"Gaussian, gamma {gamma:.4g}")
    name = learners.name_of(type(chosen.learner))
    job.say_learner(name, f", at most {budget:,} support vectors")
    if about.warning:
        reports.echo(f"budgetjax: warning: {source.name}: {about.warning}", err=True)
    try:
        fitted, typical_weight = _fit_stream(job, state, columns)
        epochs = training.epochs
        rows = fitted.num_rows // epochs
        times = f", {epochs} times" if epochs > 1 else ""
        job.say("read", reports.with_count(rows, "row") + times)
        when = "of rows before they were learned"
        if epochs > 1:
            when = "over all passes, of which only the first met new rows"
        when += ", by the stream, without the refit" if training.refit else ""
        error = targets.format_error(fitted.error, about.labels is None)
        job.say("progressive error", f"{error}, {when}")
        if training.refit:
            fitted = _refit(job, fitted, chosen.refit_loss, columns, typical_weight)
    except KeyboardInterrupt as interrupt:
        how = f"the same command goes on from {training.checkpoint}"
        if training.checkpoint is None:
            how = "nothing is written; --checkpoint FILE lets a run go on"
        raise KeyboardInterrupt(how) from interrupt
    return fitted


def _fit_stream(job: Job, state: State, columns: Choice) -> tuple[StreamModel, float]:
    """The model after the stream, and the typical weight; epochs form a longer one."""
    source, rows, training = job.source, job.about.rows, job.training
    epochs, seen = training.epochs, SeenWeights()

    def read() -> Iterator[tuple[np.ndarray, ...]]:
        nonlocal seen
        seen = SeenWeights()
        for _ in range(epochs):
            for X, y, *weight in source.read():
                if weight:
                    weight[0], seen = seen.relative(weight[0])
                yield X, y, *weight

    longer = dataclasses.replace(
        source, read=read, num_rows=None if rows is None else epochs * rows
    )
    # One batch per point of the learning curve; a large file has enough batches anyway.
    usual = rows_per_batch(source.num_features, np.float32, None)
    number = (rows or usual * POINTS) // POINTS
    # With the model, the stream is for the curve: it needs no replay of a sample, and
    # the program is there.
    has_model = columns.model is not None
    # Powers of two: files of other lengths run the same program.
    size = max(driver.FEW_ROWS, (1 << number.bit_length()) // 2)
    fitted = fit_stream(
        state,
        longer,
        classes=job.about.labels,
        intercept=job.about.mean,
        standardise=columns.standardise,
        encode=columns.encoding,
        reservoir=None if has_model else default_size(state.num_features),
        batch_rows=max(min(usual, size), _rows.MIN_ROWS),
        block_size=driver.PLAIN_SCAN if has_model else None,
        progress=job.progress,
        checkpoint=training.checkpoint,
    )
    return fitted, seen.typical


def _refit(
    job: Job,
    fitted: StreamModel,
    loss: str | Loss,
    columns: Choice,
    typical_weight: float,
) -> StreamModel:
    """The model after a refit, or the one that has learned all rows already."""
    source, penalty = job.source, job.training.penalty

    def read() -> Iterator[tuple[np.ndarray, ...]]:
        for X, y, *weight in source.read():
            yield X, y, *(each / typical_weight for each in weight)

    if columns.model is not None:
        fitted = fitted._replace(model=columns.model)
    # If no row has changed the model, the zero model stays.
    elif int(fitted.state.num_active):
        rows = fitted.num_rows // job.training.epochs
        fitted = refit.refit(
            fitted,
            dataclasses.replace(source, read=read),
            loss=loss,
            # As in estimators, the default is for typical weights of 1.
            penalty=held_out.default_penalties(rows)
            if penalty is None
            else np.asarray(penalty) * typical_weight,
            learn_metric=job.training.metric and "auto",
            calibrate=job.about.labels is not None,
            progress=job.progress,
        )
    if job.training.metric:
        job.say("metric", _about_metric(fitted, columns))
    return fitted


def _about_metric(fitted: StreamModel, columns: Choice) -> str:
    """Whether a metric was learned, and why not."""
    codes, given = fitted.model.encoding, columns.encoding
    if columns.model is not None:
        learns = columns.learns
    elif codes is not None and given is not None:
        learns = not np.array_equal(np.asarray(codes.map), np.asarray(given.map))
    else:
        learns = isinstance(fitted.state.kernel, Mapped)
    if learns:
        return "learned"
    if fitted.num_scored < refit.ENOUGH_FOR_METRIC:
        return f"none, as there are fewer than {refit.ENOUGH_FOR_METRIC:,} rows"
    return "none, as held-out rows are predicted no better"
