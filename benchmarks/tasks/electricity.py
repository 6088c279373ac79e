"""Progressive accuracy on electricity prices in time order, with drift.

Every example is predicted before it is learned. Hyperparameters are those with the
fewest mistakes in the first fifth of the stream; the accuracy is measured on the other
four fifths, in percent. "codes" are those of 16 bins of each column, whose edges are
quantiles of the first fifth.
"""

import functools
from collections.abc import Iterator

import jax
import numpy as np
from data import GAMMAS, gammas_of
from methods import ONLINE, Task
from runner import Case, Row, given

import budgetjax as bj
from budgetjax import datasets

BUDGETS = (100, 500)
NAMES = (
    "Perceptron, remove random",
    "Forgetron",
    "Pegasos, remove random",
    "Pegasos, merge",
    "PA-I, merge",
    "NORMA",
    "Projectron++",
    "Nystrom",
    "AROW",
    "AROW, drift",
)
CODED = ("Pegasos, merge", "PA-I, merge", "AROW", "AROW, drift")


@functools.cache
def stream(coded: bool) -> tuple[np.ndarray, np.ndarray, int | None, list[float]]:
    """Rows in time order, their labels, the classes, and the gammas to try."""
    data = datasets.load("electricity")
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    units, first = GAMMAS["electricity"], len(X) // 5
    if not coded:
        return X, y, data.num_classes, gammas_of(data, units)
    X = bj.encoding.fit(X[:first], 16, more_to_come=True).apply(X)
    usual = float(bj.default_gamma(X[:first]))
    return X, y, data.num_classes, [unit * usual for unit in units]


def figures(name: str, coded: bool, budget: int) -> Row:
    """The accuracy after the first fifth."""
    X, y, classes, gammas = stream(coded)
    method, first = ONLINE[name], len(X) // 5
    task = Task(X.shape[1], classes, budget, len(X))
    grid = bj.grid(gamma=gammas, **method.grid)
    states = grid.init(lambda gamma, **rest: method.init(bj.RBF(gamma), task, **rest))
    swept = bj.sweep(states, X[:first], y[:first])
    best = int(np.nanargmin(np.asarray(swept.error)))
    chosen = [float(column[best]) for column in grid.columns]
    state = jax.tree.map(lambda leaf: leaf[best], swept.states)
    mistakes = int(state.num_mistakes)
    state, _ = bj.run(state, X[first:], y[first:])
    wrong = int(state.num_mistakes) - mistakes
    return {
        "accuracy %": 100 * (1 - wrong / (len(X) - first)),
        "chosen": dict(zip(grid.names, chosen, strict=True)),
    }


def cases() -> Iterator[Case]:
    """All learners, with columns as they are, and some with codes."""
    for budget in given("B", *BUDGETS):
        for name, coded in [*((n, False) for n in NAMES), *((n, True) for n in CODED)]:
            key = {"learner": f"{name}, codes" if coded else name, "B": budget}
            yield Case(key, functools.partial(figures, name, coded, budget))
