"""Targets: the classes of a file, or its numbers, and how well they are predicted."""

import collections
import contextlib
import dataclasses
from collections.abc import Generator, Iterator
from typing import Any, NamedTuple

import click
import numpy as np

from budgetjax.cli import data

# More numbers than these are rather the targets of a regression than classes.
MANY_CLASSES = 100
# Rows whose class changes so much less often than that of shuffled rows are sorted.
SORTED = 0.1
ENOUGH_ROWS = 50
# A mean so many deviations from 0 costs a regressor its accuracy.
FAR = 30


class Look(NamedTuple):
    """What a pass over the targets tells.

    Attributes:
      labels: the classes; None for regression.
      rows: how many there are, if that is known.
      text: for a report.
      doubt: what there is to warn of, or nothing.
    """

    labels: np.ndarray | None
    rows: int | None
    text: str
    doubt: str = ""


def read(source: Any) -> Generator[np.ndarray, None, None]:
    """The y of all batches, by the shortest way."""
    if source.read_targets is not None:
        yield from source.read_targets()
    else:
        yield from (batch[1] for batch in source)


def look(source: Any, *, regression: bool = False, classes: str | None = None) -> Look:
    """One pass over the targets, unless the classes are given.

    Raises:
      ValueError: if they are not what was said they are.
    """
    if regression:
        return _numbers(source)
    if classes is not None:
        labels = _given(source, classes)
        return Look(labels, source.num_rows, shown(labels))
    return _classes(source)


def _numbers(source: Any) -> Look:
    """The targets of a regression."""
    from budgetjax.scaling import Scaling

    scaling, rows = Scaling.empty(1), 0
    for y in read(source):
        check(source.name, y, None, rows)
        scaling, rows = scaling.updated(y[:, None]), rows + len(y)
    mean, deviation = float(scaling.mean[0]), float(scaling.deviation[0])
    if scaling.constant[0]:
        raise ValueError(
            f"{source.name}: y must have more than one value, got {mean:g} in all rows"
        )
    doubt = ""
    if abs(mean) > FAR * deviation:
        doubt = (
            f"the mean of the target is {mean:.4g}, its deviation only {deviation:.4g}:"
            " subtract the mean first, or the model learns little else"
        )
    text = f"mean {mean:.4g}, deviation {deviation:.4g}"
    return Look(None, rows, text, doubt)


@dataclasses.dataclass
class _Tally:
    """Counts labels as they pass: how often each comes, and another after it."""

    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    rows: int = 0
    changes: int = 0
    last: Any = None

    def add(self, y: np.ndarray) -> None:
        if not len(y):
            return
        labels, counts = np.unique(y, return_counts=True)
        self.counts.update(dict(zip(labels.tolist(), counts.tolist(), strict=True)))
        first = self.rows > 0 and y[0] != self.last
        self.changes += int(np.count_nonzero(y[1:] != y[:-1])) + int(first)
        self.rows, self.last = self.rows + len(y), y[-1]

    @property
    def is_sorted(self) -> bool:
        """Whether classes stay much longer than chance would let them."""
        shares = np.array(list(self.counts.values())) / self.rows
        expected = self.rows * (1 - np.sum(shares**2))
        return self.rows >= ENOUGH_ROWS and bool(self.changes < SORTED * expected)


def _classes(source: Any) -> Look:
    """The classes, and how many rows each has."""
    from budgetjax import stream

    tally = _Tally()

    def read_targets() -> Iterator[np.ndarray]:
        for y in read(source):
            tally.add(y)
            yield y

    found = stream.labels(dataclasses.replace(source, read_targets=read_targets))
    if len(found) < 2:
        raise ValueError(
            f"{source.name}: y must have at least 2 classes, got "
            f"{data.label(found[0])} in all {tally.rows:,} rows"
        )
    if found.dtype.kind in "if" and len(found) > MANY_CLASSES:
        raise ValueError(
            f"{source.name}: y must be classes, got {len(found):,} numbers from "
            f"{found[0]:g} to {found[-1]:g}: --regression predicts numbers (or "
            "--classes names so many classes)"
        )
    words = [f"{data.label(one)} ({tally.counts[one]:,})" for one in found.tolist()]
    doubt = ""
    if tally.is_sorted:
        doubt = (
            f"the rows look sorted by class: {tally.changes:,} of {tally.rows:,} have "
            "another one than the row before; what learns row after row needs them in "
            "random order, so shuffle the file"
        )
    return Look(found, tally.rows, data.listed(words), doubt)


def _given(source: Any, text: str) -> np.ndarray:
    """The labels between commas, in the type of the file's."""
    words: list[Any] = [word.strip() for word in text.split(",")]
    with contextlib.closing(read(source)) as found:
        y = next(found)
    if y.dtype == bool:
        known = {"true": True, "false": False}
        words = [known.get(word.lower(), word) for word in words]
    elif y.dtype.kind not in "UO":
        try:
            words = [_number(word) for word in words]
        except ValueError as error:
            raise ValueError(
                f"{source.name}: --classes must be numbers, as the target is, got "
                f"{text}"
            ) from error
    if len(set(words)) < len(words) or len(words) < 2:
        raise click.UsageError(
            f"--classes must be at least 2 different labels, got {text}."
        )
    return np.array(words)


def _number(word: str) -> int | float:
    try:
        return int(word)
    except ValueError:
        return float(word)


def shown(classes: np.ndarray) -> str:
    """Labels as text."""
    return data.listed([data.label(value) for value in classes.tolist()])


def check(where: str, y: np.ndarray, classes: np.ndarray | None, row: int) -> None:
    """Raises unless targets are of these classes, or finite numbers if None.

    Args:
      where: the source, for messages.
      y: some targets.
      classes: labels, or None for regression.
      row: number of the first.

    Raises:
      ValueError: with the row and the target that is not.
    """
    if classes is not None:
        good, expected = np.isin(y, classes), f"one of {shown(classes)}"
    else:
        is_text = y.dtype.kind in "UO"
        good = np.zeros(len(y), bool) if is_text else np.isfinite(y)
        expected = "finite numbers"
    if not np.all(good):
        bad = int(np.argmin(good))
        raise ValueError(
            f"{where}: y must be {expected}, got {data.label(y[bad])} in row "
            f"{row + bad}"
        )


def check_all(source: Any, classes: np.ndarray | None) -> None:
    """`check` of a whole file, by one pass over its targets."""
    row = 0
    for y in read(source):
        check(source.name, y, classes, row)
        row += len(y)


def coded(classes: np.ndarray | None, y: np.ndarray) -> np.ndarray:
    """Targets as learners have them: -1 and +1, or 0 to C-1; numbers as they are."""
    from budgetjax.models import codes_of, learner_labels

    if classes is None:
        return y
    return learner_labels(codes_of(classes, y), len(classes))


def errors(predicted: np.ndarray, y: np.ndarray, *, regression: bool) -> float:
    """The number of mistakes, or the sum of squared errors."""
    if regression:
        away = np.asarray(predicted, np.float64) - y
        return float(away @ away)
    return float(np.count_nonzero(np.asarray(predicted) != y))
