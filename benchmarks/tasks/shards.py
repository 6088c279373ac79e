"""Models of parts of the data, merged and refitted.

The training rows of a data set are divided among machines, in random order or sorted by
label; the rows of a machine are in random order. Each machine streams its rows through
Pegasos with 100 vectors, `bj.merge_models` makes one model of theirs, and a refit adds
sums over the rows of all machines. Beside them stand one stream of all rows, and its
refit. Test accuracy in percent; processor seconds with compilation, of the stream the
largest of a machine; and the numbers that a machine sends, for its model and for its
sums, beside those of its rows.
"""

import functools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import jax
import numpy as np
import timing
from models import accuracy_of, empty, learned
from runner import Case, Row

import budgetjax as bj
from budgetjax import datasets
from budgetjax._sharding import Shards

BUDGET, MACHINES = 100, (2, 4, 16)


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


def refit(name: str, model: Any) -> tuple[Any, int]:
    """A refit of all rows, and how many numbers each machine would send for it."""
    data, _ = problem(name)
    known, sent = Shards.sum, 0

    def count(shards: Shards, parts: Any) -> Any:
        nonlocal sent
        sent += sum(np.size(leaf) for leaf in jax.tree.leaves(parts))
        return known(shards, parts)

    with mock.patch.object(Shards, "sum", count):
        return bj.refit(model, data.X_train, data.y_train), sent


def figures(name: str, order: str, machines: int) -> Row:
    """One row of the table."""
    data, _ = problem(name)
    test = data.X_test, data.y_test
    parts = [
        timing.spent(lambda rows=rows: learn(name, rows))
        for rows in order_rows(name, order, machines)
    ]
    models, seconds = zip(*parts, strict=True)
    model, merging = models[0], 0.0
    if machines > 1:
        model, merging = timing.spent(lambda: bj.merge_models(models, BUDGET))
    (refitted, sums), refitting = timing.spent(lambda: refit(name, model))
    features = data.X_train.shape[1]
    columns = bj.support(model).coefficients.shape[1]
    return {
        "vectors in all": sum(int(one.expansion.num_active) for one in models),
        "streamed %": float(np.mean([accuracy_of(one, *test) for one in models])),
        "merged %": accuracy_of(model, *test),
        "refitted %": accuracy_of(refitted, *test),
        "stream s": max(seconds),
        "merge s": merging,
        "refit s": refitting,
        "numbers of a model": BUDGET * (features + columns),
        "numbers of sums": sums,
        "numbers of rows": len(data.y_train) * (features + 1) // machines,
    }


def cases() -> Iterator[Case]:
    """All sets, orders and numbers of machines."""
    for name in ("letter", "covtype"):
        for machines in (1, *MACHINES):
            for order in ("shuffled", "by label")[: 1 if machines == 1 else 2]:
                key = {"data": name, "order": order, "machines": machines}
                yield Case(key, functools.partial(figures, name, order, machines))
