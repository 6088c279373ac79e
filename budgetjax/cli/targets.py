"""Targets: the classes or numbers of a file, and errors of their predictions."""

import collections
import contextlib
import dataclasses
import types
from collections.abc import Generator, Iterator, Mapping
from typing import Any, NamedTuple

import click
import numpy as np

from budgetjax.cli import reports

# More distinct numbers are probably targets of a regression.
MANY_CLASSES = 100
# Rows count as sorted if their class changes less often than this fraction of the
# changes in shuffled rows.
SORTED = 0.1
ENOUGH_ROWS = 50


class Look(NamedTuple):
    """The result of a pass over the targets: the classes, or None for a regression.

    It also has the line of the report, a warning or an empty text, the mean of numbers,
    which is the model's intercept, and the number of rows per class, if counted.
    """

    labels: np.ndarray | None
    rows: int | None
    text: str
    doubt: str = ""
    mean: float = 0.0
    counts: Mapping[Any, int] = types.MappingProxyType({})


def read(source: Any) -> Generator[np.ndarray, None, None]:
    """The y of all batches; raises if there is none."""
    from budgetjax.stream import batches

    rows = 0
    for y in batches.iterate_targets(source):
        rows += len(y)
        yield y
    if not rows:
        raise ValueError(f"{source.name}: the file must have rows, got none")


def look(source: Any, *, regression: bool = False, classes: str | None = None) -> Look:
    """Makes one pass over the targets, unless the classes are given."""
    if regression:
        return _numbers(source)
    if classes is not None:
        labels = _given(source, classes)
        return Look(labels, source.num_rows, reports.listed(labels.tolist()))
    return _classes(source)


def _numbers(source: Any) -> Look:
    """The summary of the targets of a regression."""
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
    return Look(None, rows, f"mean {mean:.4g}, deviation {deviation:.4g}", mean=mean)


def _classes(source: Any) -> Look:
    """The classes, and the number of rows of each."""
    from budgetjax import stream

    counts: collections.Counter = collections.Counter()
    changes = 0

    def read_targets() -> Iterator[np.ndarray]:
        nonlocal changes
        for y in read(source):
            labels, numbers = np.unique(y, return_counts=True)
            counts.update(dict(zip(labels.tolist(), numbers.tolist(), strict=True)))
            changes += int(np.count_nonzero(y[1:] != y[:-1]))
            yield y

    found = stream.labels(dataclasses.replace(source, read_targets=read_targets))
    rows = counts.total()
    if len(found) < 2:
        raise ValueError(
            f"{source.name}: y must have at least 2 classes, got "
            f"{reports.label(found[0])} in all {rows:,} rows"
        )
    if found.dtype.kind in "if" and len(found) > MANY_CLASSES:
        raise ValueError(
            f"{source.name}: y must be classes, got {len(found):,} numbers from "
            f"{found[0]:g} to {found[-1]:g}: --regression predicts numbers (or "
            "--classes names this many classes)"
        )
    doubt = ""
    by_chance = rows - sum(number**2 for number in counts.values()) / rows
    if rows >= ENOUGH_ROWS and changes < SORTED * by_chance:
        doubt = (
            f"the rows look sorted by class: {changes:,} of {rows:,} have another one "
            "than the row before; what learns row after row needs them in random "
            "order, so shuffle the file"
        )
    words = [f"{reports.label(one)} ({counts[one]:,})" for one in found.tolist()]
    return Look(found, rows, reports.listed(words), doubt, counts=counts)


def _given(source: Any, text: str) -> np.ndarray:
    """The labels of a comma-separated list, in the type of the file's labels."""
    words: list[Any] = [word.strip() for word in text.split(",")]
    with contextlib.closing(read(source)) as found:
        kind = next(found).dtype.kind
    try:
        if kind == "b":
            words = [{"true": True, "false": False}[word.lower()] for word in words]
        elif kind not in "UO":
            number = int if kind == "i" else float
            words = [number(word) for word in words]
    except (KeyError, ValueError, OverflowError) as error:
        what = "true and false" if kind == "b" else "numbers"
        what = "whole numbers" if kind == "i" else what
        raise ValueError(
            f"{source.name}: --classes must be {what}, as the target is, got {text}"
        ) from error
    if len(set(words)) < len(words) or len(words) < 2:
        raise click.UsageError(
            f"--classes must be at least 2 different labels, got {text}."
        )
    return np.array(words)


def check(where: str, y: np.ndarray, classes: np.ndarray | None, row: int) -> None:
    """Raises if targets are not among the classes, or not finite if there are none."""
    if classes is not None:
        good, expected = (
            np.isin(y, classes),
            f"one of {reports.listed(classes.tolist())}",
        )
    else:
        is_text = y.dtype.kind in "UO"
        good = np.zeros(len(y), bool) if is_text else np.isfinite(y)
        expected = "finite numbers"
    if not np.all(good):
        bad = int(np.argmin(good))
        raise ValueError(
            f"{where}: y must be {expected}, got {reports.label(y[bad])} in row "
            f"{row + bad}"
        )


def shown_error(error: float, regression: bool) -> str:
    """The rate of mistakes in percent, or the root mean squared error, as text."""
    if regression:
        return f"{np.sqrt(error):.4g} (root of the mean square)"
    return f"{100 * error:.2f}%"


def errors(predicted: np.ndarray, y: np.ndarray, *, regression: bool) -> float:
    """The number of mistakes, or the sum of squared errors."""
    if regression:
        away = np.asarray(predicted, np.float64) - y
        return float(away @ away)
    return float(np.count_nonzero(np.asarray(predicted) != y))
