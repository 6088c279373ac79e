"""A trained SVM compressed to few support vectors.

The table has scikit-learn's `SVC` with the default width and C = 10, `bj.compress` of
it to B vectors, and Pegasos with merging and a `bj.refit` that moves its vectors, which
learn from the examples. Letters and digits are odd against even. Accuracy on the test
part, the root mean squared difference of the scores from those of the `SVC`, and
processor seconds, with compilation. A minute.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import timing
from models import accuracy, accuracy_of, empty, learned, rms
from runner import Case, Row
from sklearn.svm import SVC

import budgetjax as bj
from budgetjax import datasets

# Training rows of the SVC.
ROWS = {"letter": 15_000, "usps": 7291, "ijcnn1": 20_000}
BUDGETS = (20, 100)


@functools.cache
def problem(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, float]:
    """Training and test rows with their labels, and the kernel's width."""
    data = datasets.load(name)
    y, y_test = data.y_train, data.y_test
    if data.num_classes > 2:
        y, y_test = (np.where(labels % 2 == 0, -1, 1) for labels in (y, y_test))
    X, y = data.X_train[: ROWS[name]], y[: ROWS[name]]
    return X, y, data.X_test, y_test, float(bj.default_gamma(X))


@functools.cache
def machine(name: str) -> tuple[SVC, float]:
    """The trained SVM and its seconds."""
    X, y, *_, gamma = problem(name)
    settings: Any = {"C": 10.0, "gamma": gamma}
    return timing.spent(lambda: SVC(**settings).fit(X, y))


def refitted(name: str, budget: int) -> Any:
    """A model on a budget, learned from the examples."""
    X, y, *_, gamma = problem(name)
    state = learned(empty(bj.Pegasos(), X, budget, gamma), X, y)
    return bj.refit(state, X, y, move_vectors=True)


# Models with `budget` vectors, of a set and its SVC.
WAYS: dict[str, Callable[[str, SVC, int], Any]] = {
    "compressed, moved": lambda name, svc, budget: bj.compress(svc, budget),
    "refit, vectors moved": lambda name, svc, budget: refitted(name, budget),
}


def exact(name: str) -> Row:
    """The SVM itself."""
    _, _, X, y, _ = problem(name)
    svc, seconds = machine(name)
    row = {"vectors": len(svc.support_), "accuracy %": accuracy(svc.predict(X), y)}
    return row | {"difference": 0.0, "s": seconds}


def figures(name: str, budget: int, way: str) -> Row:
    """One row of the table."""
    _, _, X, y, _ = problem(name)
    svc, _ = machine(name)
    model, seconds = timing.spent(lambda: WAYS[way](name, svc, budget))
    scores = np.asarray(bj.decision_function(model, X[:2000]))
    return {
        "vectors": budget,
        "accuracy %": accuracy_of(model, X, y),
        "difference": rms(scores - svc.decision_function(X[:2000])),
        "s": seconds,
    }


def cases() -> Iterator[Case]:
    """All sets, budgets and methods."""
    for name in ROWS:
        key: Row = {"data": name, "way": "SVC"}
        yield Case(key, functools.partial(exact, name))
        for budget in BUDGETS:
            for way in WAYS:
                key = {"data": name, "B": budget, "way": way}
                yield Case(key, functools.partial(figures, name, budget, way))
