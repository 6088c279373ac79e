"""Drift of float32 projections from a dense solve in float64.

    python benchmarks/projecting.py

Every round is an update: a vector enters and another leaves by projection, 1,000,000
times (20 passes over ijcnn1 from `BUDGETJAX_DATA`). After 10,000, 100,000 and all
rounds the table has the largest error of the coefficients of 200 projections, relative
to the largest coefficient, and the basis's distance from orthonormality. The table goes
to the terminal and to `benchmarks/results/projecting.json`.

    python benchmarks/projecting.py --delayed

This compares projecting one vector at a time to projecting many at once: microseconds
per update of Pegasos without predicting, and the test accuracy of the last model and of
the average over the second half of the stream. It writes to
`benchmarks/results/delayed.json`.
"""

import argparse
import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import measure
import numpy as np
import speed
from tqdm import tqdm

import budgetjax as bj
from budgetjax.datasets import load
from budgetjax.online import span

BUDGET, GAMMA = 100, 0.05
POINTS = (10_000, 100_000, 1_000_000)


def drift(state, X):
    """Errors of projections onto the support vectors, and of their basis."""
    kept, budget = state.maintenance.span, int(state.expansion.num_active)
    Z = np.asarray(bj.support(state).vectors, np.float64)

    def kernel(A, B):
        return np.exp(-GAMMA * ((A[:, None] - B[None]) ** 2).sum(axis=2))

    gram = kernel(Z, Z) + span.RIDGE * np.eye(budget)
    root = np.asarray(kept.root, np.float64)[:budget, :budget]
    errors = []
    for row in kernel(X.astype(np.float64), Z):
        padded = jnp.append(jnp.asarray(row, jnp.float32), jnp.zeros(1))
        given = span.refine(
            kept, padded, span.solve(kept, padded), state.expansion.mask
        )
        wanted = np.linalg.solve(gram, row)
        error = np.abs(np.asarray(given)[:budget] - wanted).max()
        errors.append(error / np.abs(wanted).max())
    return {
        "condition of K": np.linalg.cond(gram),
        "error of coefficients": max(errors),
        "error of the basis": np.abs(root @ gram @ root.T - np.eye(budget)).max(),
    }


STRATEGIES = {
    "Merge": bj.Merge(),
    "Project": bj.Project(),
    **{
        f"DelayedProject(1 / {part})": bj.DelayedProject(share=1 / part)
        for part in (16, 8, 4, 2)
    },
}


def delayed(data, budget, name, repeats):
    """Time and accuracy of one strategy."""
    X, y, X_test, y_test, gamma, regularization = data
    empty = functools.partial(
        bj.Pegasos(regularization=regularization).init,
        bj.RBF(gamma),
        num_features=X.shape[1],
        budget=budget,
        maintenance=STRATEGIES[name],
    )
    learn = measure.learning(empty(), jnp.asarray(X), y)
    last, _ = learn()
    predict = functools.partial(bj.decision_function, last, jnp.asarray(X))
    seconds = measure.medians({"learn": learn, "predict": predict}, repeats)
    spent = seconds["learn"] - seconds["predict"]
    average, _ = bj.run(empty(average=len(X) // 2), X, y)

    def accuracy(model):
        return 100 * float(np.mean(np.asarray(bj.predict(model, X_test)) == y_test))

    return {
        "us an update": spent / int(last.num_updates) * 1e6,
        "accuracy %": accuracy(last),
        "average %": accuracy(bj.average_iterates(average)),
    }


def main():
    parser = argparse.ArgumentParser(description="Projections in float32")
    parser.add_argument("--delayed", action="store_true", help="many at once")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if arguments.delayed:
        rows = []
        for name, most in (
            ("ijcnn1", 50_000),
            ("checkerboard", 20_000),
            ("covtype", 20_000),
        ):
            data = speed.load(name, most)
            for budget in (100, 500):
                for strategy in STRATEGIES:
                    row = {"data": name, "B": budget, "maintenance": strategy}
                    row |= delayed(data, budget, strategy, arguments.repeats)
                    rows.append(row)
                    jax.clear_caches()
        measure.report(rows, arguments.output or measure.RESULTS / "delayed.json")
        return
    data = load("ijcnn1")
    X, y = data.X_train[:40_000], data.y_train[:40_000]
    table = []
    for best in (False, True):
        state = bj.Perceptron(margin=1e9).init(
            bj.RBF(GAMMA),
            num_features=X.shape[1],
            budget=BUDGET,
            maintenance=bj.Project(best=best),
        )
        chunks = range(0, POINTS[-1], 10_000)
        for start in tqdm(chunks, desc=f"best={best}"):
            at = start % len(X)
            rows = slice(at, at + 10_000)
            state, _ = bj.run(state, X[rows], y[rows])
            if int(state.num_updates) in POINTS:
                updates = {"best": best, "updates": int(state.num_updates)}
                table.append(updates | drift(state, data.X_test[:200]))
    measure.report(table, arguments.output or measure.RESULTS / "projecting.json")


if __name__ == "__main__":
    main()
