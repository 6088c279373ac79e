"""A path of fifty penalties by linear solvers, on Adult.

Each penalty starts from the solution of the one before; LIBLINEAR
(`sklearn.svm.LinearSVC`) is called fifty times, each with the loosest tolerance that is
enough, as in `mpu_tables`.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import timing
from runner import Case, Row

import budgetjax as bj
from papers import mpu_tables

PENALTIES = np.logspace(-3, 1, 50)


def path_of(
    kind: type[bj.LinearSolver], X: Any, y: np.ndarray, tolerance: float
) -> np.ndarray:
    """J for each penalty, each from the solution of the one before."""
    rows, before, found = kind(fit_bias=False).read(X, y), None, []
    for penalty in PENALTIES:
        solver = kind(penalty, fit_bias=False, tolerance=tolerance)
        before = bj.solve(solver, rows, start=before and before.state)
        found.append(mpu_tables.reached(before))
    return np.array(found)


def measured(accuracy: float) -> list[Row]:
    """Seconds of fifty penalties."""
    X, y = mpu_tables.PROBLEMS["Adult"]()
    optima = path_of(bj.DCD, X, y, 1e-5)
    tols = [
        mpu_tables.tolerance(X, y, optimum * (1 + accuracy), penalty)
        for penalty, optimum in zip(PENALTIES, optima.tolist(), strict=True)
    ]
    pairs = list(zip(PENALTIES.tolist(), tols, strict=True))
    calls = {
        "MPU": lambda: path_of(bj.MPU, X, y, accuracy),
        "DCD": lambda: path_of(bj.DCD, X, y, accuracy),
        "LIBLINEAR": lambda: [
            mpu_tables.liblinear(X, y, tol, C).coef_[0] for C, tol in pairs
        ],
    }
    found = {name: call() for name, call in calls.items()}
    found["LIBLINEAR"] = np.array(
        [
            mpu_tables.objective(w, X, y, penalty)
            for w, penalty in zip(found["LIBLINEAR"], PENALTIES, strict=True)
        ]
    )
    seconds = timing.medians(calls, 3)
    return [
        {
            "method": method,
            "largest gap": float(np.max(values / optima - 1)),
            "seconds": seconds[method],
            "LIBLINEAR's times": seconds[method] / seconds["LIBLINEAR"],
        }
        for method, values in found.items()
    ]


def cases() -> Iterator[Case]:
    """Both accuracies."""
    for accuracy in mpu_tables.ACCURACIES:
        yield Case({"accuracy": accuracy}, functools.partial(measured, accuracy))
