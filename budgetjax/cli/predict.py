"""`budgetjax predict`: predicts labels or numbers for the rows of a file."""

import itertools
import sys
from collections.abc import Iterable, Iterator

import click
import numpy as np

from budgetjax import _progress
from budgetjax.cli import options, reading, reports
from budgetjax.cli.reading import Model
from budgetjax.cli.targets import Accuracy
from budgetjax.model import predict_interval
from budgetjax.refitting import calibration
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.tables.table_model import TableModel


def predict(
    model: str,
    file: tuple[str, ...],
    columns: options.Columns,
    output: str,
    scores: bool,
    probabilities: bool,
    interval: float | None,
    quiet: bool,
) -> None:
    """Writes the predictions of the rows of files, and prints the accuracy."""
    to_file = output != options.STANDARD
    reports.check_outputs({"--output": output if to_file else None}, model, *file)
    opened = reading.open_model(model)
    table, labels = opened.table, opened.table.class_labels
    if scores and labels is None:
        raise click.UsageError(f"--scores: {model} predicts numbers, without scores.")
    if scores and probabilities:
        raise click.UsageError("--scores and --probabilities exclude each other.")
    if probabilities:
        reading.check_probabilities("--probabilities", model, table)
    if interval is not None and labels is not None:
        raise click.UsageError(f"--interval: {model} predicts labels; --probabilities.")
    if interval is not None and not table.knows_variance:
        raise click.UsageError(
            f"--interval: {model} does not know how sure it is, as models of --refit "
            "do, except for the losses poisson and gamma, and those of --learner krlst "
            "or mixture."
        )
    source = reading.open_rows(opened, file, columns)
    accuracy = Accuracy(source.name, labels, strict=bool(columns.target))
    more = "score" if scores else "probability" if probabilities else None
    shows = options.shows_progress(quiet)
    lines = itertools.chain(
        _header(opened, more, interval is not None),
        _lines(table, source, accuracy, more, interval, shows),
    )
    if to_file:
        model_files.replace(output, (line.encode() for line in lines))
    else:
        for line in lines:
            sys.stdout.write(line)
    if not quiet:
        click.echo(accuracy.text(), err=not to_file)


def _header(model: Model, more: str | None, has_interval: bool) -> Iterator[str]:
    """The line of names of columns; none of predictions alone."""
    labels, number = model.table.class_labels, np.size(model.table.intercept)
    if labels is not None:
        names = [f"{more}_{reports.format_label(one)}" for one in labels.tolist()]
        single = more == "score" and len(names) == 2
        names = ["prediction", *(["score"] if single else names)] if more else []
    elif number == 1:
        names = ["prediction", "low", "high"] if has_interval else []
    else:
        names = list(model.targets)
        if len(names) != number:
            # They are of one file, or the model was made in Python.
            names = [f"prediction_{i}" for i in range(number)]
        ends = ("", "_low", "_high") if has_interval else ("",)
        names = [f"{name}{end}" for name in names for end in ends]
    if names:
        yield reports.as_csv([names])


def _lines(
    model: TableModel,
    source: Batches,
    accuracy: Accuracy,
    more: str | None,
    interval: float | None,
    shows: bool,
) -> Iterator[str]:
    """The rows of the output, in pieces; `more` names the numbers after a prediction.

    After one of numbers are the ends of an interval of this level, if any.
    """
    bar = _progress.progress_bar("predict", shows, "rows", source.num_rows)
    with bar as report:
        for X, *rest in source:
            reading.check_finite(source, X, accuracy.rows, model.takes_missing)
            columns: list[Iterable[str]] = []
            if more is None:
                predicted = np.asarray(model.predict(X))
            else:
                values = model.decision_function(X)
                predicted = model.predict_from_scores(values)
                if more == "probability":
                    values = calibration.of_scores(model, values)
                columns = [map(str, one) for one in values.reshape(len(values), -1).T]
            accuracy.add(predicted, rest[0] if rest else None)
            each = predicted.reshape(len(predicted), -1)
            columns = [map(reports.format_label, one) for one in each.T] + columns
            if interval is not None:
                ends = np.asarray(predict_interval(model, X, interval))
                # The prediction, the low end and the high one of each target in turn.
                ends = ends.reshape(*each.shape, 2).T.tolist()
                low, high = ([map(str, one) for one in end] for end in ends)
                columns = [*itertools.chain(*zip(columns, low, high, strict=True))]
            yield reports.as_csv(zip(*columns, strict=True))
            report("", len(predicted))
