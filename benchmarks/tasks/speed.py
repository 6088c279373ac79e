"""Microseconds per example: the plain scan, the block engine, and predicting.

Every learner sees each stream once, in one order. The times are medians over runs of
the whole stream from an empty model, taken in turn in one process, compilation
excluded. "predict" scores the same examples with the final model: learning cannot be
faster. The peers are the tools that a user would pick instead (see `peers.py`).
"""

import functools
from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np
import peers
import timing
from models import accuracy_of
from runner import Case, given

import budgetjax as bj
from budgetjax import datasets

# Learners and strategies by name; Pegasos has the regularization of the data.
LEARNERS = {
    "oldest": (bj.Perceptron(), bj.RemoveOldest()),
    "smallest": (bj.Pegasos(), bj.RemoveSmallest()),
    "merge": (bj.Pegasos(), bj.Merge()),
    "forgetron": (bj.Forgetron(), None),
    "projectron": (bj.Projectron(), None),
    "arow": (bj.AROW(), None),
}
# Data: rows, gamma, regularization. ijcnn1 comes scaled; mnist is digits below 5
# against the others, covtype the most frequent type against the others.
DATA = {
    "checkerboard": (20_000, 8.0, 1e-4),
    "ijcnn1": (None, 2.0, 1e-5),
    "covtype": (100_000, 0.06, 1e-5),
    "mnist": (20_000, 0.004, 1e-4),
}
# What learns the first rows of a stream.
FIRST = {
    "ijcnn1": (
        *((100, "arow"), (500, "arow"), (500, "projectron")),
        *((500, "merge"), (500, "oldest")),
    ),
    "covtype": ((500, "merge"),),
}


def load(name, most=None):
    """The stream and a test set, with two classes."""
    rows, gamma, regularization = DATA[name]
    rows = most if rows is None else min(rows, most or rows)
    data = datasets.load(name, standardise=name != "ijcnn1")
    parts = []
    for X, y in ((data.X_train, data.y_train), (data.X_test, data.y_test)):
        if name == "covtype":
            y = np.where(y == 1, 1, -1)
        elif name == "mnist":
            y = np.where(y < 5, 1, -1)
        parts += [X[:rows], y[:rows].astype(np.int32)]
    return (*parts, gamma, regularization)


def empty(name, gamma, regularization, num_features, budget):
    """An empty model."""
    learner, strategy = LEARNERS[name]
    if isinstance(learner, bj.Pegasos):
        learner = bj.Pegasos(regularization=regularization)
    given = {} if strategy is None else {"maintenance": strategy}
    shape = {"num_features": num_features, "budget": budget}
    return learner.init(bj.RBF(gamma), **shape, **given)


@functools.lru_cache(1)
def stream(name, most):
    """The stream, also on the device."""
    X, y, *rest = load(name, most)
    return X, jnp.asarray(X), y, *rest


def learned(name, most, budget, which, repeats):
    """The times of a learner, and its accuracy."""
    X, X_device, y, X_test, y_test, gamma, regularization = stream(name, most)
    n, num_features = X.shape
    state = empty(which, gamma, regularization, num_features, budget)
    scan = timing.learning(state, X_device, y, block_size=1)
    blocks = timing.learning(state, X_device, y)
    final, _ = blocks()
    calls = {
        "scan us": scan,
        "blocks us": blocks,
        "predict us": functools.partial(bj.decision_function, final, X_device),
    }
    seconds = timing.medians(calls, repeats)
    row = {"violations": int(final.num_updates) / n}
    row |= {key: value / n * 1e6 for key, value in seconds.items()}
    row["blocks/predict"] = row["blocks us"] / row["predict us"]
    return row | {"accuracy %": accuracy_of(final, X_test, y_test)}


def peer(name, budget, which):
    """What a rival reaches; no row where it is not installed."""
    X, _, y, X_test, y_test, gamma, regularization = stream(name, None)
    data = peers.Data(X, y, X_test, y_test)
    found = peers.PEERS[which](data, budget, gamma, regularization, 0)
    return [] if found is None else found


def cases() -> Iterator[Case]:
    """Whole streams beside rivals, and the first rows of streams."""
    (repeats,), (most,) = given("repeats", 7), given("rows", 20_000)
    for name in ("checkerboard", "ijcnn1"):
        for budget in (100, 500):
            for which in ("forgetron", "merge", *peers.PEERS):
                key = {"part": "peers", "data": name, "B": budget, "learner": which}
                run = functools.partial(peer, name, budget, which)
                if which in LEARNERS:
                    run = functools.partial(learned, name, None, budget, which, repeats)
                yield Case(key, run, which in LEARNERS)
    for name, learners in FIRST.items():
        for budget, which in learners:
            key = {"part": "first rows", "data": name, "B": budget, "learner": which}
            yield Case(
                key, functools.partial(learned, name, most, budget, which, repeats)
            )
