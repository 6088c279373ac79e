"""Mistakes of Ahpatron and of other learners on the same budget.

Liao, Li, Liao, Hu and Dang (2024), "Ahpatron: a new budgeted online kernel learning
machine with tighter mistake bound", on four of the paper's six sets, of which we have
the training rows only: one pass in each of two orders with 200 vectors, features scaled
to mean 0 and deviation 1, a Gaussian kernel whose gamma is the one of 1/4, 1, 4 and 16
over d with the fewest mistakes on 3,000 rows. Projectron++ has the threshold 0.1; where
the budget is full it projects. The errors are mistakes along the stream, in percent.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from runner import Case, Row

import budgetjax as bj
from budgetjax import datasets

DATA = ("a9a", "w8a", "ijcnn1", "phishing")
BUDGET, ORDERS, CHOICE = 200, 2, 3000
WIDTHS = (0.25, 1.0, 4.0, 16.0)
LEARNERS: dict[str, tuple[bj.Learner, dict[str, Any]]] = {
    "Ahpatron": (bj.Ahpatron(), {}),
    "Forgetron": (bj.Forgetron(), {}),
    "Forgetron, basic": (bj.Forgetron(rule="basic"), {}),
    "remove oldest": (bj.Perceptron(), {"maintenance": bj.RemoveOldest()}),
    "Projectron++": (bj.Projectron(threshold=0.1, margin_updates=True), {}),
}


def mistakes(learner: str, width: float, X: Any, y: Any) -> int:
    """The mistakes of one pass."""
    chosen, shared = LEARNERS[learner]
    d = X.shape[1]
    state = chosen.init(bj.RBF(width / d), num_features=d, budget=BUDGET, **shared)
    return int(bj.run(state, X, y, keep_scores=False)[0].num_mistakes)


def measured(name: str, learner: str) -> dict[str, Any]:
    """The mean error, with the best width."""
    data = datasets.load(name)
    X, y = data.X_train, data.y_train
    order = np.random.default_rng(0).permutation(len(y))[:CHOICE]
    width = min(WIDTHS, key=lambda width: mistakes(learner, width, X[order], y[order]))
    found = []
    for seed in range(ORDERS):
        order = np.random.default_rng(seed).permutation(len(y))
        made = mistakes(learner, width, X[order], y[order])
        found.append(100 * made / len(y))
    return {
        "error %": float(np.mean(found)),
        "deviation": float(np.std(found)),
        "gamma d": width,
        "rows": len(y),
    }


def cases() -> Iterator[Case]:
    """All learners on all sets."""
    for name in DATA:
        for learner in LEARNERS:
            key: Row = {"data": name, "learner": learner, "B": BUDGET}
            yield Case(key, functools.partial(measured, name, learner))
