"""Targets: the classes or numbers of a file, weights of classes, and errors."""

import collections
import contextlib
import dataclasses
from collections.abc import Generator, Iterator, Mapping
from typing import Any, TypeAlias

import click
import numpy as np

from budgetjax._errors import ArgumentError, names_errors
from budgetjax.cli import reports
from budgetjax.cli.options import BALANCED
from budgetjax.stream import batches
from budgetjax.stream.batches import Batches
from budgetjax.stream.reservoir import default_size
from budgetjax.tables.labels import encode_labels
from budgetjax.tables.scaling import Scaling

# The rate of mistakes, the mean squared error, or one of each of several targets.
Error: TypeAlias = float | list[float]


class Counted:
    """A source whose targets are counted at every reading, and whose rows are kept.

    Rows are kept only if they are few.

    Attributes:
      source: the source.
    """

    def __init__(self, source: Batches, regression: bool):
        self._read, self._regression = source.read, regression
        self._most = default_size(source.num_features)
        self._kept: list[tuple[Any, ...]] = []
        self._labels: collections.Counter = collections.Counter()
        self._numbers: Scaling | None = None
        self.source = dataclasses.replace(source, read=self._iterate)

    def _iterate(self) -> Iterator[tuple[Any, ...]]:
        kept, labels, numbers, rows = [], collections.Counter(), None, 0
        for batch in self._kept or self._read():
            yield batch
            # The reader has checked the targets by now.
            y, rows = batch[1], rows + len(batch[1])
            if rows <= self._most:
                kept.append(batch)
            if self._regression:
                each = y.astype(np.float64).reshape(len(y), -1)
                numbers = (numbers or Scaling.empty(each.shape[1])).updated(each)
            else:
                labels.update(y.tolist())
        self._labels, self._numbers = labels, numbers
        self._kept = kept if rows <= self._most else []

    def text(self, labels: np.ndarray | None) -> str:
        """What the targets are, for the report; `labels` are those of the model."""
        if labels is not None:
            return describe_classes(labels, self._labels)
        assert self._numbers is not None, "it has been read"
        each = zip(self._numbers.mean, self._numbers.deviation, strict=True)
        return "; ".join(f"mean {a:.4g}, deviation {b:.4g}" for a, b in each)


def describe_classes(labels: np.ndarray, counts: Mapping[Any, int]) -> str:
    """The labels, and how many rows each has."""
    words = [
        f"{reports.format_label(one)} ({counts[one]:,})" for one in labels.tolist()
    ]
    return reports.join_values(words)


def read_targets(source: Batches) -> Generator[np.ndarray, None, None]:
    """The y of all batches; raises if there is none."""
    rows = 0
    for y in batches.iterate_targets(source):
        rows += len(y)
        yield y
    check_rows(source, rows)


def check_rows(source: Batches, rows: int) -> None:
    """Raises if a source has no rows."""
    if not rows:
        raise ValueError(f"{source.name}: the file must have rows, got none")


def parse_classes(source: Batches, text: str | None) -> np.ndarray | None:
    """The labels of a comma-separated list, in the type of the file's labels."""
    if text is None:
        return None
    words: list[Any] = [word.strip() for word in text.split(",")]
    with contextlib.closing(read_targets(source)) as found:
        kind = next(found).dtype.kind
    booleans = {"true": True, "false": False}
    parse, what = {
        "b": (lambda word: booleans[word.lower()], "true and false"),
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
    good = np.zeros(y.shape, bool) if y.dtype.kind in "UO" else np.isfinite(y)
    if not np.all(good):
        bad = int(np.argmin(good.reshape(len(y), -1).all(axis=1)))
        got = f"{reports.format_label(y[bad])} in row {row + bad}"
        raise ArgumentError("y", "be finite numbers", got)


def format_error(error: Error, regression: bool) -> str:
    """The rate of mistakes in percent, or root mean squared errors, as text."""
    if regression:
        return f"{format_roots(error)} (root of the mean square)"
    return f"{100 * np.mean(error):.2f}%"


def format_roots(error: Error) -> str:
    """The root of a mean square, or those of several targets."""
    return ", ".join(f"{one:.4g}" for one in np.sqrt(np.atleast_1d(error)))


class Accuracy:
    """The errors of predictions on a file, if its targets are known.

    An unknown label ends the count, or if it is `strict` the run.
    """

    def __init__(self, file: str, classes: np.ndarray | None, *, strict: bool = True):
        self.file, self.classes, self.strict = file, classes, strict
        self.rows, self.scored = 0, 0
        self.errors: Any = 0.0
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
            self._check_shape(predicted, y)
            away = np.asarray(predicted, np.float64) - y
            self.errors = self.errors + np.sum(np.square(away), axis=0)
        else:
            self.errors += float(np.count_nonzero(predicted != y))

    def _check_shape(self, predicted: np.ndarray, y: np.ndarray) -> None:
        """Raises for another number of targets than the model has."""
        if y.shape == predicted.shape:
            return
        got, wanted = (np.size(one[:1]) for one in (y, predicted))
        what = reports.with_count(wanted, "target")
        raise ValueError(f"{self.file}: must have {what}, as the model, got {got}")

    @property
    def error(self) -> Error:
        """The rate of mistakes, or the mean squared error of each target."""
        return (np.asarray(self.errors) / max(self.scored, 1)).tolist()

    @property
    def rate(self) -> str:
        """The error as text."""
        return format_error(self.error, self.classes is None)

    def text(self) -> str:
        """One line for humans."""
        rows = reports.with_count(self.rows, "row")
        if self.why:
            return f"no accuracy: {self.why}"
        if not self.scored:
            return f"predicted: {rows}"
        if self.classes is None:
            return f"root mean squared error: {format_roots(self.error)}, {rows}"
        right = self.scored - int(self.errors)
        share = 100 * right / self.scored
        return f"accuracy: {share:.2f}% ({right:,} of {rows})"


def weigh_classes(source: Batches, text: str, classes: np.ndarray | None) -> Batches:
    """The source with weights of its classes: "balanced" or "LABEL=WEIGHT,..."."""
    labels, factors = _class_weights(source, text, classes)

    def read() -> Iterator[tuple[Any, ...]]:
        row = 0
        for X, y, *weight in source.read():
            with names_errors(source.name):
                own = factors[encode_labels(labels, y, row)]
            yield X, y, weight[0] * own if weight else own
            row += len(y)

    return dataclasses.replace(source, read=read)


def _class_weights(
    source: Batches, text: str, classes: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The classes, found in one pass if they are not known, and a weight of each."""
    labels, counts = classes, collections.Counter()
    if labels is None:
        for y in read_targets(source):
            counts.update(y.tolist())
        labels = np.array(sorted(counts))
    if text == BALANCED:
        numbers = np.array([counts[one] for one in labels.tolist()])
        return labels, numbers.sum() / (len(numbers) * numbers)
    weights = dict.fromkeys(map(reports.format_label, labels.tolist()), 1.0)
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
                f"{reports.join_values(labels.tolist())}, at least 0, got {part}."
            )
        weights[name] = weight
    return labels, np.array(list(weights.values()))
