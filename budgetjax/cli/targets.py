"""Targets: the classes or numbers of a file, weights of classes, and errors."""

import collections
import contextlib
import dataclasses
import types
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

import click
import numpy as np

from budgetjax._errors import ArgumentError, names_errors
from budgetjax.cli import reports
from budgetjax.cli.options import BALANCED
from budgetjax.stream import batches
from budgetjax.stream.batches import Batches
from budgetjax.tables.labels import encode_labels
from budgetjax.tables.scaling import Scaling

# More distinct numbers are probably targets of a regression.
MANY_CLASSES = 100
# Rows count as sorted if their class changes less often than this fraction of the
# changes in shuffled rows.
SORTED = 0.1
ENOUGH_ROWS = 50


class TargetSummary(NamedTuple):
    """The result of a pass over the targets: the classes, or None for a regression.

    It also has the line of the report, a warning or an empty text, the mean of numbers,
    which is the model's intercept, and the number of rows per class, if counted.
    """

    labels: np.ndarray | None
    rows: int | None
    text: str
    warning: str = ""
    mean: float = 0.0
    counts: Mapping[Any, int] = types.MappingProxyType({})


def read_targets(source: Batches) -> Generator[np.ndarray, None, None]:
    """The y of all batches; raises if there is none."""
    rows = 0
    for y in batches.iterate_targets(source):
        rows += len(y)
        yield y
    if not rows:
        raise ValueError(f"{source.name}: the file must have rows, got none")


def summarise_targets(
    source: Batches, *, regression: bool = False, classes: str | None = None
) -> TargetSummary:
    """Makes one pass over the targets, unless the classes are given."""
    if classes is not None:
        labels = _parse_classes(source, classes)
        text = reports.join_values(labels.tolist())
        return TargetSummary(labels, source.num_rows, text)
    return _summarise_numbers(source) if regression else _summarise_classes(source)


def _summarise_numbers(source: Batches) -> TargetSummary:
    """The summary of the targets of a regression."""
    scaling = Scaling.empty(1)
    with names_errors(source.name):
        for y in read_targets(source):
            check_targets(y, None, scaling.num_rows)
            scaling = scaling.updated(y[:, None])
    mean, deviation = float(scaling.mean[0]), float(scaling.deviation[0])
    if scaling.constant[0]:
        raise ValueError(
            f"{source.name}: y must have more than one value, got {mean:g} in all rows"
        )
    text = f"mean {mean:.4g}, deviation {deviation:.4g}"
    return TargetSummary(None, scaling.num_rows, text, mean=mean)


def _summarise_classes(source: Batches) -> TargetSummary:
    """The classes, and the number of rows of each."""
    counts: collections.Counter = collections.Counter()
    changes = 0

    def count_targets() -> Iterator[np.ndarray]:
        nonlocal changes
        for y in read_targets(source):
            labels, numbers = np.unique(y, return_counts=True)
            counts.update(dict(zip(labels.tolist(), numbers.tolist(), strict=True)))
            changes += int(np.count_nonzero(y[1:] != y[:-1]))
            yield y

    found = batches.labels(dataclasses.replace(source, read_targets=count_targets))
    rows = counts.total()
    if len(found) < 2:
        raise ValueError(
            f"{source.name}: y must have at least 2 classes, got "
            f"{reports.format_label(found[0])} in all {rows:,} rows"
        )
    if found.dtype.kind in "if" and len(found) > MANY_CLASSES:
        raise ValueError(
            f"{source.name}: y must be classes, got {len(found):,} numbers from "
            f"{found[0]:g} to {found[-1]:g}: --regression predicts numbers (or "
            "--classes names this many classes)"
        )
    warning = ""
    by_chance = rows - sum(number**2 for number in counts.values()) / rows
    if rows >= ENOUGH_ROWS and changes < SORTED * by_chance:
        warning = (
            f"the rows look sorted by class: {changes:,} of {rows:,} have another one "
            "than the row before; what learns row after row needs them in random "
            "order, so shuffle the file"
        )
    words = [f"{reports.format_label(one)} ({counts[one]:,})" for one in found.tolist()]
    text = reports.join_values(words)
    return TargetSummary(found, rows, text, warning, counts=counts)


def _parse_classes(source: Batches, text: str) -> np.ndarray:
    """The labels of a comma-separated list, in the type of the file's labels."""
    words: list[Any] = [word.strip() for word in text.split(",")]
    with contextlib.closing(read_targets(source)) as found:
        kind = next(found).dtype.kind
    parse, what = {
        "b": (
            lambda word: {"true": True, "false": False}[word.lower()],
            "true and false",
        ),
        "i": (int, "whole numbers"),
        "f": (float, "numbers"),
    }.get(kind, (str, "text"))
    try:
        words = [parse(word) for word in words]
    except (KeyError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{source.name}: --classes must be {what}, as the target is, got {text}"
        ) from error
    if len(set(words)) < len(words) or len(words) < 2:
        raise click.UsageError(
            f"--classes must be at least 2 different labels, got {text}."
        )
    return np.array(words)


def check_targets(y: np.ndarray, classes: np.ndarray | None, row: int) -> None:
    """Raises if targets are not among the classes, or not finite if there are none."""
    if classes is not None:
        encode_labels(classes, y, row)
        return
    good = np.zeros(len(y), bool) if y.dtype.kind in "UO" else np.isfinite(y)
    if not np.all(good):
        bad = int(np.argmin(good))
        got = f"{reports.format_label(y[bad])} in row {row + bad}"
        raise ArgumentError("y", "be finite numbers", got)


def format_error(error: float, regression: bool) -> str:
    """The rate of mistakes in percent, or the root mean squared error, as text."""
    if regression:
        return f"{np.sqrt(error):.4g} (root of the mean square)"
    return f"{100 * error:.2f}%"


class Accuracy:
    """The errors of predictions on a file, if its targets are known.

    An unknown label ends the count, or if it is `strict` the run.
    """

    def __init__(self, file: str, classes: np.ndarray | None, *, strict: bool = True):
        self.file, self.classes, self.strict = file, classes, strict
        self.rows, self.scored, self.errors = 0, 0, 0.0
        self.why = ""

    def add(self, predicted: np.ndarray, y: np.ndarray | None) -> None:
        """Counts rows, and mistakes or squared errors."""
        first = self.rows
        self.rows += len(predicted)
        if y is None or self.why:
            return
        try:
            with names_errors(self.file):
                check_targets(y, self.classes, first)
        except ValueError as error:
            if self.strict:
                raise
            self.why = str(error)
            return
        self.scored += len(y)
        if self.classes is None:
            away = np.asarray(predicted, np.float64) - y
            self.errors += float(away @ away)
        else:
            self.errors += float(np.count_nonzero(predicted != y))

    def text(self) -> str:
        """One line for humans."""
        rows = reports.with_count(self.rows, "row")
        if self.why:
            return f"no accuracy: {self.why}"
        if not self.scored:
            return f"predicted: {rows}"
        if self.classes is None:
            root = np.sqrt(self.errors / self.scored)
            return f"root mean squared error: {root:.4g}, {rows}"
        right = self.scored - int(self.errors)
        share = 100 * right / self.scored
        return f"accuracy: {share:.2f}% ({right:,} of {rows})"


def apply_class_weights(
    source: Batches, about: TargetSummary, text: str | None
) -> Batches:
    """The source with the weights of its classes; see `class_weights`."""
    if text is None or about.labels is None:
        return source
    classes, by_class = about.labels, class_weights(about, text)

    def read() -> Iterator[tuple[Any, ...]]:
        row = 0
        for X, y, *weight in source.read():
            with names_errors(source.name):
                factors = by_class[encode_labels(classes, y, row)]
            yield X, y, weight[0] * factors if weight else factors
            row += len(y)

    return dataclasses.replace(source, read=read)


def class_weights(about: TargetSummary, text: str) -> np.ndarray:
    """The weight of each class, from "balanced" or "LABEL=WEIGHT,..."; else 1."""
    assert about.labels is not None, "numbers have no classes"
    labels = about.labels.tolist()
    if text == BALANCED:
        counts = np.array([about.counts[one] for one in labels])
        return counts.sum() / (len(counts) * counts)
    weights = dict.fromkeys(map(reports.format_label, labels), 1.0)
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        name = name.strip()
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if name not in weights or not 0 <= weight < np.inf:
            raise click.UsageError(
                f"--class-weight must be {BALANCED}, or LABEL=WEIGHT of the classes "
                f"{reports.join_values(labels)}, at least 0, got {part}."
            )
        weights[name] = weight
    return np.array(list(weights.values()))
