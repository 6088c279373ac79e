"""Mistakes of Ahpatron and of other learners on the same budget.

Liao, Li, Liao, Hu and Dang (2024), "Ahpatron: a new budgeted online kernel learning
machine with tighter mistake bound", on four of the paper's six sets, of which we have
the training rows only: one pass in each of two orders with 200 vectors, features scaled
to mean 0 and deviation 1, a Gaussian kernel whose gamma is the one of 1/4, 1, 4 and 16
over d with the fewest mistakes on 3,000 rows. Projectron++ has the threshold 0.1; where
the budget is full it projects. The errors are mistakes along the stream, in percent.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from models import empty, learned
from runner import Case, Row, product

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


def measured(name: str, learner: str, budget: int) -> Row:
    """The mean error, with the best width."""
    data = datasets.load(name)
    n, d = data.X_train.shape
    chosen, shared = LEARNERS[learner]

    def mistakes(width: float, seed: int, most: int = n) -> int:
        order = np.random.default_rng(seed).permutation(n)[:most]
        X, y = data.X_train[order], data.y_train[order]
        state = learned(empty(chosen, X, budget, width / d, **shared), X, y)
        return int(state.num_mistakes)

    width = min(WIDTHS, key=lambda width: mistakes(width, 0, CHOICE))
    found = [100 * mistakes(width, seed) / n for seed in range(ORDERS)]
    return {
        "error %": float(np.mean(found)),
        "deviation": float(np.std(found)),
        "gamma d": width,
        "rows": n,
    }


def cases() -> Iterator[Case]:
    """All learners on all sets."""
    return product(measured, data=DATA, learner=LEARNERS, B=[BUDGET])
