"""`budgetjax train`: trains a model on a file of examples."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from budgetjax.cli import descriptions, learners, options, reading, reports, solving
from budgetjax.cli.options import Columns
from budgetjax.cli.targets import Accuracy, Counted, Error, format_error
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.stream.model import StreamModel
from budgetjax.tables.table_model import TableModel
from budgetjax.training.recipe import Recipe
from budgetjax.training.train import train as train_model


def train(
    file: tuple[str, ...],
    model: str,
    columns: Columns,
    test: str | None,
    classes: str | None,
    class_weight: str | None,
    checkpoint: str | None,
    quiet: bool,
    **choices: Any,
) -> None:
    """Trains a model, writes it, and tests it on the rows of another file.

    `choices` are those of `learners.make_recipe`.
    """
    started, say = time.perf_counter(), reports.reporter(quiet)
    learner, settings = choices["learner"], choices["settings"]
    solver = solving.find_solver(learner)
    outputs = {"--model": model, "--checkpoint": checkpoint}
    reports.check_outputs(outputs, *file, test)
    reads = {
        "regression": choices["regression"],
        "sparse": bool(solver and solver.linear and choices["encode"] is False),
    }
    source, labels = reading.open_examples(
        file, columns, classes=classes, class_weight=class_weight, **reads
    )
    tested = None if test is None else reading.open_test(test, columns, source, **reads)
    recipe, error = learners.make_recipe(**choices), None
    if solver is None:
        fitted, error = train_online(
            source, labels, recipe, settings, quiet=quiet, checkpoint=checkpoint
        )
    else:
        fitted = solving.train(source, labels, recipe, settings, solver, quiet=quiet)
    notes = {"solver": learner if solver else None, "training_error": error}
    write_model(model, fitted, file, columns, **notes)
    say("model", model)
    if tested is not None:
        accuracy = measure(fitted, tested)
        say("test error", f"{accuracy.rate}, {accuracy.rows:,} rows of {tested.name}")
    say("time", f"{time.perf_counter() - started:.1f} seconds")


def train_online(
    source: Batches,
    classes: np.ndarray | None,
    recipe: Recipe,
    settings: Mapping[str, Any],
    *,
    quiet: bool,
    checkpoint: str | None = None,
) -> tuple[StreamModel, Error | None]:
    """A model by the choices of a recipe, and its error if a refit has made it.

    It writes the report. Ctrl-C tells how to continue.
    """
    say, counted = reports.reporter(quiet), Counted(source, recipe.regression)
    say("data", descriptions.describe_source(source))
    try:
        fitted = train_model(
            recipe,
            counted.source,
            classes=classes,
            progress=options.shows_progress(quiet),
            checkpoint=checkpoint,
        )
    except KeyboardInterrupt as interrupt:
        how = f"the same command goes on from {checkpoint}"
        if checkpoint is None:
            how = "nothing is written; --checkpoint FILE lets a run go on"
        raise KeyboardInterrupt(how) from interrupt
    say("target" if recipe.regression else "classes", counted.text(fitted.classes))
    _report(say, fitted, recipe, settings)
    if not recipe.refit:
        return fitted, None
    # The progressive error is that of the stream, whose model the refit replaces.
    accuracy = measure(fitted, counted.source)
    say("training error", f"{accuracy.rate}, of rows that the model has learned")
    return fitted, accuracy.error


def _report(
    say: Callable[[str, str], None],
    fitted: StreamModel,
    recipe: Recipe,
    settings: Mapping[str, Any],
) -> None:
    """Says what a model was made of."""
    state, epochs = fitted.state, recipe.epochs
    say("columns", descriptions.describe_columns(fitted.model.encoding))
    if type(state.learner).chooses_kernel:
        say("kernel", f"{len(state.weights)} of its own")
    else:
        say("kernel", descriptions.describe_kernel(state.kernel))
    size = f"at most {recipe.budget:,} support vectors"
    more = descriptions.describe_settings(settings)
    say("learner", f"{learners.name_of(type(state.learner))}, {size}{more}")
    read = reports.with_count(fitted.num_rows // epochs, "row")
    say("read", read + (f", {epochs} times" if epochs > 1 else ""))
    when = "of rows before they were learned"
    if epochs > 1:
        when = "over all passes, of which only the first met new rows"
    when += ", by the stream, without the refit" * recipe.refit
    error = format_error(fitted.error, recipe.regression)
    say("progressive error", f"{error}, {when}")
    if not recipe.refit or recipe.learn_metric is False:
        return
    learned = fitted.importances is not None
    none = "none, as held-out rows are too few or predicted no better"
    say("metric", "learned" if learned else none)


def measure(model: Any, source: Batches) -> Accuracy:
    """The errors of a model on the rows of a source."""
    table = TableModel.of(model)
    accuracy = Accuracy(source.name, table.class_labels)
    for X, y, *_ in source:
        reading.check_finite(source, X, accuracy.rows, table.takes_missing)
        accuracy.add(np.asarray(model.predict(X)), y)
    return accuracy


def write_model(
    path: str, model: Any, files: Sequence[str], columns: Columns, **notes: Any
) -> None:
    """Writes a model with notes, among them those of what it was learned from."""
    names = reports.join_values([Path(one).name for one in files])
    target = columns.target if len(columns.target) > 1 else (*columns.target, None)[0]
    model_files.write(path, model, {"file": names, "target": target, **notes})
