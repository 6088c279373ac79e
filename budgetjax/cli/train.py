"""`budgetjax train`: trains a model on a file of examples."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import numpy as np

from budgetjax.cli import learners, options, reading, reports, solving, targets
from budgetjax.cli.options import Columns, TrainOptions
from budgetjax.cli.targets import Counted
from budgetjax.kernels import RBF, Mapped
from budgetjax.refitting import draft
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.stream.model import StreamModel
from budgetjax.stream.readers import formats
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel
from budgetjax.training.recipe import Recipe
from budgetjax.training.train import train as train_model


def train(
    file: tuple[str, ...],
    model: str,
    columns: Columns,
    training: TrainOptions,
    test: str | None,
) -> None:
    """Trains a model, writes it, and tests it on the rows of another file."""
    started = time.perf_counter()
    regression = training.regression
    solver = solving.find_solver(training.learner)
    sparse = solver is not None and solver.linear and training.encode is False
    outputs = {"--model": model, "--checkpoint": training.checkpoint}
    reports.check_outputs(outputs, *file, test)
    training.check()
    source = reading.open_examples(file, columns, regression=regression, sparse=sparse)
    tested = (
        None if test is None else _open_test(test, columns, source, regression, sparse)
    )
    classes = targets.parse_classes(source, training.classes)
    if training.class_weight is not None:
        weighed = targets.weigh_classes(source, training.class_weight, classes)
        source = reading.drop_weightless(weighed)
    counted = Counted(source, regression=regression)
    say = reports.reporter(training.quiet)
    if solver is None:
        recipe = learners.make_recipe(training)
        say("data", describe_source(source))
        fitted = train_online(recipe, counted, classes, training)
        describe(say, fitted, recipe, counted, training)
    else:
        say("data", describe_source(source))
        fitted = solving.train(say, counted, classes, training, solver)
    notes: dict[str, Any] = {
        "file": reports.join_values([Path(one).name for one in file]),
        "target": targets.note_of(columns.target),
        "solver": None if solver is None else training.learner,
    }
    if isinstance(fitted, StreamModel) and training.refit:
        notes["training_error"] = measure_training_error(say, counted.source, fitted)
    model_files.write(model, fitted, notes)
    say("model", model)
    if tested is not None:
        labels = TableModel.of(fitted).class_labels
        accuracy = targets.Accuracy(tested.name, labels)
        takes_missing = TableModel.of(fitted).takes_missing
        for X, y, *_ in tested:
            reading.check_finite(tested, X, accuracy.rows, takes_missing)
            accuracy.add(np.asarray(fitted.predict(X)), y)
        error = targets.format_error(accuracy.error, regression)
        say("test error", f"{error}, {accuracy.rows:,} rows of {tested.name}")
    say("time", f"{time.perf_counter() - started:.1f} seconds")


def describe_source(source: Batches) -> str:
    """The name of a file, and how many columns it has."""
    return f"{source.name}, {reports.with_count(source.num_features, 'feature')}"


def train_online(
    recipe: Recipe,
    counted: Counted,
    classes: np.ndarray | None,
    training: TrainOptions,
) -> StreamModel:
    """A model by the choices of a recipe; Ctrl-C tells how to continue."""
    try:
        return train_model(
            recipe,
            counted.source,
            classes=classes,
            progress=options.shows_progress(training.quiet),
            checkpoint=training.checkpoint,
        )
    except KeyboardInterrupt as interrupt:
        how = f"the same command goes on from {training.checkpoint}"
        if training.checkpoint is None:
            how = "nothing is written; --checkpoint FILE lets a run go on"
        raise KeyboardInterrupt(how) from interrupt


def describe(
    say: Callable[[str, str], None],
    fitted: StreamModel,
    recipe: Recipe,
    counted: Counted,
    training: TrainOptions,
) -> None:
    """The lines of the report about a model, and what it was made of."""
    regression, state = recipe.regression, fitted.state
    text = counted.text(fitted.classes)
    say("target" if regression else "classes", text)
    say("columns", describe_columns(fitted.model.encoding))
    own = type(state.learner).chooses_kernel
    say(
        "kernel",
        f"{len(state.weights)} of its own" if own else describe_kernel(state.kernel),
    )
    name = learners.name_of(type(state.learner))
    more = "".join(f", {key} {value}" for key, value in training.settings.items())
    say("learner", f"{name}, at most {recipe.budget:,} support vectors{more}")
    rows = fitted.num_rows // recipe.epochs
    times = f", {recipe.epochs} times" if recipe.epochs > 1 else ""
    say("read", reports.with_count(rows, "row") + times)
    when = "of rows before they were learned"
    if recipe.epochs > 1:
        when = "over all passes, of which only the first met new rows"
    when += ", by the stream, without the refit" if recipe.refit else ""
    say(
        "progressive error", f"{targets.format_error(fitted.error, regression)}, {when}"
    )
    if recipe.refit and recipe.learn_metric is not False:
        say("metric", _about_metric(fitted))


def describe_columns(codes: Encoding | None) -> str:
    """How columns are written."""
    if codes is None:
        return "as they are"
    if codes.num_codes == codes.num_columns:
        return "in units of their quartiles, outliers clipped"
    return f"{codes.num_columns:,}, as {codes.num_codes:,} codes"


def describe_kernel(kernel: Any) -> str:
    """The kernel, without the matrix of a metric."""
    kernel = kernel.kernel if isinstance(kernel, Mapped) else kernel
    if isinstance(kernel, RBF):
        return f"Gaussian, gamma {float(np.asarray(kernel.gamma)):.4g}"
    return repr(kernel)


def measure_training_error(
    say: Callable[[str, str], None], source: Batches, fitted: StreamModel
) -> targets.Error:
    """The error of the model on the rows that it has learned, for the report.

    The progressive error is that of the stream, whose model a refit replaces.
    """
    accuracy = targets.Accuracy(source.name, fitted.model.class_labels)
    for X, y, *weight in source.read():
        predicted = np.asarray(fitted.predict(X))
        present = weight[0] > 0 if weight else slice(None)
        accuracy.add(predicted[present], y[present])
    shown = targets.format_error(accuracy.error, fitted.is_regressor)
    say("training error", f"{shown}, of rows that the model has learned")
    return accuracy.error


def _about_metric(fitted: StreamModel) -> str:
    """Whether a metric was learned, and why not."""
    if fitted.importances is not None:
        return "learned"
    if fitted.num_scored < draft.ENOUGH_FOR_METRIC:
        return f"none, as there are fewer than {draft.ENOUGH_FOR_METRIC:,} rows"
    return "none, as held-out rows are predicted no better"


def _open_test(
    path: str, columns: Columns, training: Batches, regression: bool, sparse: bool
) -> Batches:
    """The file to test on, with the columns of the training."""
    test_format = formats.format_of(path, columns.format)
    if "target" in test_format.arguments and not test_format.has_columns:
        endings = " or ".join(test_format.endings)
        raise click.UsageError(f"--test cannot be {endings}, got {path}.")
    text = False
    if not regression:
        first = next(targets.read_targets(training))
        text = True if first.dtype.kind in "UO" else None
    return reading.open_for_model(
        *(reading.copy_pipe(path, columns), columns),
        *(training.feature_names, training.num_features),
        sparse=sparse,
        text_target=text,
        texts=training.texts,
    )
