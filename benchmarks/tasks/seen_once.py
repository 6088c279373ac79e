"""Streams that are seen once: AROW, and a refit that follows the stream.

"refit, once" reads each row once: Pegasos with merging chooses support vectors from the
first 8,192 rows, or the first half of a shorter stream, and `bj.refit` then takes these
rows, which are kept, and the rest of the stream as batches of an iterator. "refit,
again" is Pegasos on all rows and a refit that may read them repeatedly. Figures are
means over the orders, with default kernel widths and all other defaults. Times are
processor seconds; a first run compiles.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import timing
from data import load
from models import accuracy_of, empty, learned
from runner import Case, Row, given

import budgetjax as bj

DATA = ("letter", "ijcnn1")
KEPT, BATCH = 8192, 4096
PEGASOS = bj.Pegasos(regularization=1e-4)


def ways(**shape: Any) -> dict[str, Callable[..., Any]]:
    """Three methods for a stream, by name."""

    def streamed(learner: bj.Learner, X: Any, y: Any) -> Any:
        return learned(empty(learner, X, **shape), X, y)

    def once(X: Any, y: Any) -> Any:
        kept = min(KEPT, len(X) // 2)
        state = streamed(PEGASOS, X[:kept], y[:kept])
        starts = range(kept, len(X), BATCH)
        rest = ((X[i : i + BATCH], y[i : i + BATCH]) for i in starts)
        return bj.refit(state, itertools.chain([(X[:kept], y[:kept])], rest))

    return {
        "AROW": lambda X, y: streamed(bj.AROW(), X, y),
        "refit, once": once,
        "refit, again": lambda X, y: bj.refit(streamed(PEGASOS, X, y), X, y),
    }


def measured(name: str, budget: int, orders: int) -> Row:
    """One row of the table."""
    data = load(name)
    shape = {"gamma": bj.default_gamma(data.X_train), "num_classes": data.num_classes}
    row: Row = {}
    for way, learn in ways(budget=budget, **shape).items():
        learn(data.X_train, data.y_train)  # compiles
        found = []
        for seed in range(orders):
            order = np.random.default_rng(seed).permutation(len(data.y_train))
            X, y = data.X_train[order], data.y_train[order]
            model, seconds = timing.spent(lambda f=learn, X=X, y=y: f(X, y))
            found.append((accuracy_of(model, data.X_test, data.y_test), seconds))
        row[f"{way} %"], row[f"{way} s"] = np.mean(found, axis=0).tolist()
    return row


def cases() -> Iterator[Case]:
    """All sets and budgets."""
    (orders,) = given("orders", 3)
    for budget in given("B", 100, 500):
        for name in DATA:
            key = {"data": name, "B": budget}
            yield Case(key, lambda n=name, b=budget: measured(n, b, orders))
