"""Models of parts of the data, merged and refitted.

The training rows of a data set are divided among sixteen machines, in random order or
sorted by label; the rows of a machine are in random order. Each machine streams its
rows through Pegasos with 100 vectors, `bj.merge_models` makes one model of theirs, and
a refit adds sums over the rows of all machines. Figures are test accuracies in percent.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from models import accuracy_of, empty, learned
from runner import Case, Row, product

import budgetjax as bj
from budgetjax import datasets

BUDGET, MACHINES = 100, 16


@functools.cache
def problem(name: str) -> tuple[Any, float]:
    """The data and the kernel's width."""
    data = datasets.load(name)
    return data, float(bj.default_gamma(data.X_train))


def order_rows(name: str, order: str, machines: int) -> list[np.ndarray]:
    """The rows of each machine."""
    y = problem(name)[0].y_train
    random = np.random.default_rng(0)
    rows = random.permutation(len(y))
    if order == "by label":
        rows = rows[np.argsort(y[rows], kind="stable")]
    return [random.permutation(part) for part in np.array_split(rows, machines)]


def learn(name: str, rows: np.ndarray) -> Any:
    """A stream of these rows."""
    data, gamma = problem(name)
    X, y, classes = data.X_train[rows], data.y_train[rows], data.num_classes
    return learned(empty(bj.Pegasos(), X, BUDGET, gamma, num_classes=classes), X, y)


def figures(name: str, order: str, machines: int) -> Row:
    """One row of the table."""
    data, _ = problem(name)
    test = data.X_test, data.y_test
    models = [learn(name, rows) for rows in order_rows(name, order, machines)]
    model = bj.merge_models(models, BUDGET)
    refitted = bj.refit(model, data.X_train, data.y_train)
    return {
        "streamed %": float(np.mean([accuracy_of(one, *test) for one in models])),
        "merged %": accuracy_of(model, *test),
        "refitted %": accuracy_of(refitted, *test),
    }


def cases() -> Iterator[Case]:
    """Both sets and orders."""
    orders = "shuffled", "by label"
    return product(
        figures, data=("letter", "covtype"), order=orders, machines=(MACHINES,)
    )
