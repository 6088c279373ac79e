"""A trained SVM compressed to few support vectors.

The table has scikit-learn's `SVC` with the default width and C = 10, `bj.compress` of
it to B vectors, chosen among its own (0 steps) or moved, and its B largest coefficients
alone (`bj.prune`). Pegasos with merging and `bj.refit`, which moves its vectors too,
learn from the examples. Letters and digits are odd against even. Accuracy on the test
part, the root mean squared difference of the scores from those of the `SVC`, and
processor seconds, with compilation. A few minutes.
"""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from runner import Case, Row
from sklearn.svm import SVC

import budgetjax as bj
from budgetjax import datasets

# Training rows of the SVC.
ROWS = {"letter": 15_000, "usps": 7291, "ijcnn1": 20_000}
BUDGETS = (20, 50, 100, 200)


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
    start = time.process_time()
    settings: Any = {"C": 10.0, "gamma": gamma}
    svc = SVC(**settings).fit(X, y)
    return svc, time.process_time() - start


def refitted(name: str, budget: int, move: bool) -> Any:
    """A model on a budget, learned from the examples."""
    X, y, *_, gamma = problem(name)
    state = bj.Pegasos().init(bj.RBF(gamma), num_features=X.shape[1], budget=budget)
    state, _ = bj.run(state, X, y)
    return bj.refit(state, X, y, move_vectors=move)


def ways(name: str, budget: int) -> dict[str, Callable[[], Any]]:
    """Models with `budget` vectors, by name."""
    svc = machine(name)[0]
    every = len(svc.support_)
    return {
        "pruned": lambda: bj.prune(bj.compress(svc, every, steps=0), budget),
        "compressed, chosen": lambda: bj.compress(svc, budget, steps=0),
        "compressed, moved": lambda: bj.compress(svc, budget),
        "refit of examples": lambda: refitted(name, budget, False),
        "refit, vectors moved": lambda: refitted(name, budget, True),
    }


def figures(name: str, budget: int, way: str) -> dict[str, Any]:
    """One row of the table."""
    _, _, X, y, _ = problem(name)
    svc, seconds = machine(name)
    theirs = svc.decision_function(X[:2000])
    start = time.process_time()
    model: Any = ways(name, budget)[way]() if way != "SVC" else svc
    spent = seconds if way == "SVC" else time.process_time() - start
    predicted = bj.predict(model, X) if way != "SVC" else svc.predict(X)
    ours = theirs if way == "SVC" else np.asarray(bj.decision_function(model, X[:2000]))
    return {
        "vectors": len(svc.support_) if way == "SVC" else budget,
        "accuracy %": 100 * float(np.mean(np.asarray(predicted) == y)),
        "difference": float(np.sqrt(np.mean((ours - theirs) ** 2))),
        "s": spent,
    }


def cases() -> Iterator[Case]:
    """All sets, budgets and methods."""
    for name in ROWS:
        key: Row = {"data": name, "way": "SVC"}
        yield Case(key, functools.partial(figures, name, 0, "SVC"))
        for budget in BUDGETS:
            for way in WAYS:
                key = {"data": name, "B": budget, "way": way}
                yield Case(key, functools.partial(figures, name, budget, way))


WAYS = (
    *("pruned", "compressed, chosen", "compressed, moved"),
    *("refit of examples", "refit, vectors moved"),
)
