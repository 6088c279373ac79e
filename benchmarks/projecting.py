"""How far float32 drifts from a dense solve in float64 while projections go on.

    python benchmarks/projecting.py

Every round is an update: a vector enters, and one leaves by projection, 1,000,000 times
(`BUDGETJAX_DATA` with ijcnn1 in it, 20 times over). At 10,000, 100,000 and all of them:
the largest error of the coefficients of 200 projections, relative to the largest
coefficient, and how far the basis is from orthonormal. The table goes to the terminal
and to `benchmarks/results/projecting.json`.
"""

import argparse
from pathlib import Path

import jax.numpy as jnp
import measure
import numpy as np
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
        given = span.refined(
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


def main():
    parser = argparse.ArgumentParser(description="Projections in float32")
    results = Path(__file__).parent / "results" / "projecting.json"
    parser.add_argument("--output", type=Path, default=results)
    arguments = parser.parse_args()
    data = load("ijcnn1")
    X, y = data.X_train[:40_000], data.y_train[:40_000]
    table = []
    for best in (False, True):
        state = bj.perceptron.init(
            bj.RBF(GAMMA),
            num_features=X.shape[1],
            budget=BUDGET,
            margin=1e9,
            maintenance=bj.Project(best=best),
        )
        chunks = range(0, POINTS[-1], 10_000)
        for start in tqdm(chunks, desc=f"best={best}"):
            at = start % len(X)
            rows = slice(at, at + 10_000)
            state, _ = bj.run(bj.perceptron, state, X[rows], y[rows])
            if int(state.num_updates) in POINTS:
                updates = {"best": best, "updates": int(state.num_updates)}
                table.append(updates | drift(state, data.X_test[:200]))
    measure.report(table, arguments.output)


if __name__ == "__main__":
    main()
