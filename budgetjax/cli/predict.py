"""`budgetjax predict`: predicts labels or numbers for the rows of a file."""

import itertools
import sys
from collections.abc import Iterator, Sequence

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
    chosen = reading.open_model(model)
    if scores and chosen.classes is None:
        raise click.UsageError(f"--scores: {model} predicts numbers, without scores.")
    if scores and probabilities:
        raise click.UsageError("--scores and --probabilities exclude each other.")
    if probabilities:
        reading.check_probabilities("--probabilities", model, chosen)
    if interval is not None:
        reading.check_interval("--interval", model, chosen)
    source = reading.open_rows(chosen, file, columns)
    strict = bool(columns.target)
    accuracy = Accuracy(source.name, chosen.classes, strict=strict)
    more = "score" if scores else "probability" if probabilities else None
    shows = options.shows_progress(quiet)
    lines = _lines(chosen, source, accuracy, more, interval, shows)
    if to_file:
        model_files.replace(output, (line.encode() for line in lines))
    else:
        for line in lines:
            sys.stdout.write(line)
    if not quiet:
        click.echo(accuracy.text(), err=not to_file)


def _header(model: Model, has_interval: bool) -> list[str]:
    """The names of columns of predicted numbers; none of one without an interval."""
    number = 1 if model.classes is not None else np.size(model.model.intercept)
    if number == 1:
        return ["prediction", "low", "high"] * has_interval
    names: Sequence[str] = model.targets
    if len(names) != number:
        # They are of one file, or the model was made in Python.
        names = [f"prediction_{i}" for i in range(number)]
    ends = ("", "_low", "_high") if has_interval else ("",)
    return [f"{name}{end}" for name in names for end in ends]


def _lines(
    model: Model,
    source: Batches,
    accuracy: Accuracy,
    more: str | None,
    interval: float | None,
    shows: bool,
) -> Iterator[str]:
    """The output, in pieces; `more` names the numbers after a prediction.

    After one of numbers are the ends of an interval of this level, if any.
    """
    takes_missing = model.model.takes_missing
    if more is not None and model.classes is not None:
        names = [
            f"{more}_{reports.format_label(one)}" for one in model.classes.tolist()
        ]
        single = more == "score" and len(names) == 2
        yield reports.as_csv([["prediction", *([more] if single else names)]])
    if header := _header(model, interval is not None):
        yield reports.as_csv([header])
    bar = _progress.progress_bar("predict", shows, "rows", source.num_rows)
    with bar as report:
        for X, *rest in source:
            reading.check_finite(source, X, accuracy.rows, takes_missing)
            if more is not None:
                values = model.model.decision_function(X)
                predicted = model.model.predict_from_scores(values)
                if more == "probability":
                    values = calibration.of_scores(model.model, values)
                values = values.reshape(len(values), -1)
                columns = [map(str, column) for column in values.T]
            else:
                predicted, columns = np.asarray(model.model.predict(X)), []
            accuracy.add(predicted, rest[0] if rest else None)
            each = predicted.reshape(len(predicted), -1)
            columns = [map(reports.format_label, one) for one in each.T] + columns
            if interval is not None:
                ends = np.asarray(predict_interval(model.model, X, interval))
                # The prediction, the low end and the high one of each target in turn.
                ends = ends.reshape(*each.shape, 2).T.tolist()
                low, high = ([map(str, one) for one in end] for end in ends)
                columns = [*itertools.chain(*zip(columns, low, high, strict=True))]
            yield reports.as_csv(zip(*columns, strict=True))
            report("", len(predicted))
