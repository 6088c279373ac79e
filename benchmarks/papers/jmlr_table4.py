"""Accuracy and mean degradation on ten million rows of the checkerboard: Table 4.

Wang, Crammer and Vucetic (2012), "Breaking the curse of kernelization", with their
lambda of 1e-4 and width of 0.0625, features of mean 0 and deviation 1, one stream. The
degradation E is the mean norm of the error of the gradient, of Theorem 1: what
`budgetjax.Measured` sums, over all rounds, also those that lose nothing. The paper has
a column for each of the two classes and budgetjax one for both, so its E is sqrt(2)
times ours. All is in float64: coefficients grow to thousands, and the degradation of a
good merge is less than what float32 rounds off.

Merging and removal take some minutes on one core. `Measured` adds O(B^2) to every
projection: with 100 vectors and a million rows that takes as long, with 500 it takes
most of an hour.
"""

import functools
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from runner import Case, given

import budgetjax as bj
from budgetjax import datasets

REGULARIZATION, WIDTH = 1e-4, 0.0625
ROWS, PROJECTED, TEST_ROWS, CHUNK = 10_000_000, 1_000_000, 50_000, 500_000
STRATEGIES: dict[str, Any] = {
    "merge": bj.Merge,
    "remove": bj.RemoveSmallest,
    "project": bj.Project,
}


def measured(method: str, budget: int, rows: int) -> dict[str, Any]:
    """Test accuracy at the end of a stream, and the mean degradation."""
    X, y = datasets.checkerboard(rows + TEST_ROWS, seed=1)
    first, _ = datasets.checkerboard(20_000, seed=0)
    X = (X - first.mean(axis=0)) / first.std(axis=0)
    state = bj.Pegasos(regularization=REGULARIZATION).init(
        bj.RBF(1 / (2 * WIDTH)),
        num_features=2,
        budget=budget,
        maintenance=bj.Measured(STRATEGIES[method]()),
        dtype=jnp.float64,
    )
    for start in range(0, rows, CHUNK):
        part = slice(start, min(start + CHUNK, rows))
        state, _ = bj.run(state, X[part], y[part], keep_scores=False)
    right = np.asarray(bj.predict(state, X[rows:])) == y[rows:]
    found = state.maintenance
    assert isinstance(found, bj.Measured)
    error = float(found.gradient_error) / rows
    return {
        "accuracy %": 100 * float(np.mean(right)),
        "losses": int(found.num_losses),
        "E": error,
        "E of two columns": math.sqrt(2) * error,
    }


def prepare() -> None:
    jax.config.update("jax_enable_x64", True)


def cases() -> Iterator[Case]:
    """All strategies and budgets; projection of fewer rows."""
    (rows,) = given("rows", ROWS)
    for method in STRATEGIES:
        for budget in (100, 500):
            count = min(rows, PROJECTED) if method == "project" else rows
            key = {"method": method, "B": budget, "rows": count}
            usual = (method, budget) != ("project", 500)
            yield Case(key, functools.partial(measured, *key.values()), usual)
