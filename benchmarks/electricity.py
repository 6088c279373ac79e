"""Progressive accuracy on electricity prices in time order, with drift.

    python benchmarks/electricity.py

Every example is predicted before it is learned. Hyperparameters are those with the
fewest mistakes in the first fifth of the stream; the accuracy is measured on the other
four fifths, in percent, with 100 and 500 support vectors. "codes" are those of 16 bins
of each column, whose edges are quantiles of the first fifth. The table goes to the
terminal and to `benchmarks/results/electricity.json`.
"""

import argparse
from pathlib import Path

import jax
import measure
import numpy as np
from accuracy import DATA, METHODS, Method, Task, gammas_of
from tqdm import tqdm

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
)


def drifting(kernel, task, drift):
    shape = task.shape(num_classes=task.num_classes)
    return bj.AROW(drift=drift).init(kernel, **shape)


CODED = ("Pegasos, merge", "PA-I, merge", "AROW", "AROW, drift")
LEARNERS = {name: METHODS[name] for name in NAMES} | {
    "AROW, drift": Method(drifting, {"drift": (0.001, 0.01, 0.1)})
}


def row(name, method, task, gammas, X, y):
    """One line of the table."""
    first = len(X) // 5
    grid = bj.grid(gamma=gammas, **method.grid)
    states = grid.init(lambda gamma, **rest: method.init(bj.RBF(gamma), task, **rest))
    swept = bj.sweep(states, X[:first], y[:first])
    best = int(np.nanargmin(np.asarray(swept.error)))
    chosen = [float(column[best]) for column in grid.columns]
    chosen = dict(zip(grid.names, chosen, strict=True))
    state = jax.tree.map(lambda leaf: leaf[best], swept.states)
    mistakes = int(state.num_mistakes)
    state, _ = bj.run(state, X[first:], y[first:])
    wrong = int(state.num_mistakes) - mistakes
    return {
        "learner": name,
        "B": task.budget,
        "accuracy %": 100 * (1 - wrong / (len(X) - first)),
        "chosen": chosen,
    }


def main():
    parser = argparse.ArgumentParser(description="Electricity in time order")
    results = Path(__file__).parent / "results" / "electricity.json"
    parser.add_argument("--output", type=Path, default=results)
    arguments = parser.parse_args()
    data = datasets.load("electricity")
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    first = X[: len(X) // 5]
    codes = bj.encoding.fit(first, 16, more_to_come=True).apply(X)
    usual = bj.default_gamma(codes[: len(first)])
    narrow = [unit * usual for unit in DATA["electricity"]]
    cases = [
        *((name, name, gammas_of(data, DATA["electricity"]), X) for name in LEARNERS),
        *((f"{name}, codes", name, narrow, codes) for name in CODED),
    ]
    table = []
    for budget in BUDGETS:
        for name, learner, gammas, rows in tqdm(cases, desc=str(budget)):
            task = Task(rows.shape[1], data.num_classes, budget, len(rows))
            table.append(row(name, LEARNERS[learner], task, gammas, rows, y))
            tqdm.write(str(table[-1]))
    measure.report(table, arguments.output)


if __name__ == "__main__":
    main()
