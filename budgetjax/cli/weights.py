"""Weights of classes, which multiply the weights of rows."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import click
import numpy as np

from budgetjax.cli import reports, targets
from budgetjax.cli.options import BALANCED


def weighted(source: Any, about: targets.Look, text: str | None) -> Any:
    """The source with the weights of its classes.

    `text` is "balanced" or "LABEL=WEIGHT,...", where other classes have weight 1. None
    keeps the weights of the rows.
    """
    if text is None:
        return source
    assert about.labels is not None, "numbers have no classes"
    classes, by_class = about.labels, _by_class(about, text)

    def read() -> Iterator[tuple[Any, ...]]:
        from budgetjax.models import encode_labels

        row = 0
        for X, y, *weight in source.read():
            factors = by_class[encode_labels(source.name, classes, y, row)]
            yield X, y, weight[0] * factors if weight else factors
            row += len(y)

    return dataclasses.replace(source, read=read)


def _by_class(about: targets.Look, text: str) -> np.ndarray:
    """The weight of each class."""
    assert about.labels is not None, "numbers have no classes"
    labels = [reports.label(one) for one in about.labels.tolist()]
    if text == BALANCED:
        counts = np.array([about.counts[one] for one in about.labels.tolist()])
        return counts.sum() / (len(counts) * counts)
    found = dict.fromkeys(labels, 1.0)
    for part in text.split(","):
        name, _, number = part.rpartition("=")
        name = name.strip()
        try:
            weight = float(number)
        except ValueError:
            weight = -1.0
        if name not in found or not 0 <= weight < np.inf:
            raise click.UsageError(
                f"--class-weight must be {BALANCED}, or LABEL=WEIGHT of the classes "
                f"{reports.listed(labels)}, at least 0, got {part}."
            )
        found[name] = weight
    return np.array(list(found.values()))
