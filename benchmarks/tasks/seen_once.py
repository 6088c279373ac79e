"""Streams that are seen once: AROW, and a refit that follows the stream.

"refit, once" reads each row once: Pegasos with merging chooses support vectors from the
first 8,192 rows, or the first half of a shorter stream, and `bj.refit` then takes these
rows, which are kept, and the rest of the stream as batches of an iterator. "refit,
again" is Pegasos on all rows and a refit that may read them repeatedly. The last column
is the part of the gap between AROW and "refit, again" that "refit, once" closes.
Figures are means over the orders, with default kernel widths and all other defaults.
Times are processor seconds; a first run compiles.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from data import load
from runner import Case, Row, given

import budgetjax as bj

DATA = ("letter", "usps", "ijcnn1", "covtype-100k")
KEPT, BATCH = 8192, 4096


def learners(num_features: int, num_classes: int, gamma: float, budget: int):
    """Three methods for a stream, by name."""
    shape = {"num_features": num_features, "num_classes": num_classes}

    def streamed(learner, X, y):
        state = learner.init(bj.RBF(gamma), budget=budget, **shape)
        return bj.run(state, X, y)[0]

    pegasos = bj.Pegasos(regularization=1e-4)

    def once(X, y):
        kept = min(KEPT, len(X) // 2)
        state = streamed(pegasos, X[:kept], y[:kept])
        starts = range(kept, len(X), BATCH)
        rest = ((X[i : i + BATCH], y[i : i + BATCH]) for i in starts)
        return bj.refit(state, itertools.chain([(X[:kept], y[:kept])], rest))

    def again(X, y):
        return bj.refit(streamed(pegasos, X, y), X, y)

    return {
        "AROW": lambda X, y: streamed(bj.AROW(), X, y),
        "refit, once": once,
        "refit, again": again,
    }


def measured(name: str, budget: int, orders: int) -> dict[str, Any]:
    """One row of the table."""
    data = load(name, True)
    gamma = bj.default_gamma(data.X_train)
    ways = learners(data.X_train.shape[1], data.num_classes, gamma, budget)
    row: Row = {}
    for way, learn in ways.items():
        learn(data.X_train, data.y_train)  # compiles
        found = [one(learn, data, seed) for seed in range(orders)]
        accuracy, seconds = np.mean(found, axis=0).tolist()
        row |= {f"{way} %": accuracy, f"{way} s": seconds}
    first, middle, last = (row[f"{way} %"] for way in ways)
    return row | {"part of the gap": (middle - first) / (last - first)}


def one(learn: Callable[..., Any], data: Any, seed: int) -> tuple[float, float]:
    """The accuracy after a stream in one order, in percent, and the seconds."""
    order = np.random.default_rng(seed).permutation(len(data.y_train))
    X, y = data.X_train[order], data.y_train[order]
    start = time.process_time()
    state = jax.block_until_ready(learn(X, y))
    seconds = time.process_time() - start
    right = np.asarray(bj.predict(state, data.X_test)) == data.y_test
    return 100 * float(right.mean()), seconds


def cases() -> Iterator[Case]:
    """All sets and budgets."""
    (orders,) = given("orders", 3)
    for budget in given("B", 100, 500):
        for name in DATA:
            key = {"data": name, "B": budget}
            yield Case(key, lambda n=name, b=budget: measured(n, b, orders))
