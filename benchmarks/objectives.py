"""The objectives of SMO and SDCA relative to those of scikit-learn's solvers.

    python benchmarks/objectives.py

J is half the squared norm plus C times the hinge losses. The figure is the difference
of J from scikit-learn's, divided by the latter. With a bias the reference is SVC
(LIBSVM) on usps, each digit against the rest, on banana, and on the first 5,000 rows of
a9a; without a bias it is LinearSVC (LIBLINEAR) on a root of the kernel matrix, on 2,000
rows of each. Ours are in float32, theirs in float64.
"""

import time
from pathlib import Path
from typing import Any

import measure
import numpy as np
from sklearn.svm import SVC, LinearSVC
from tqdm import tqdm

import budgetjax as bj
from budgetjax import datasets

RESULTS = Path(__file__).parent / "results"
# Data, rows, sigma^2.
SETTINGS = (("usps", None, 64.0), ("banana", None, 0.5), ("a9a", 5000, 10.0))
PENALTIES = (1.0, 10.0)
ROWS_WITHOUT_BIAS = 2000
TOLERANCE = 2e-5


def problems() -> list[tuple[str, np.ndarray, np.ndarray, float]]:
    found = []
    for name, rows, variance in SETTINGS:
        data = datasets.load(name, standardise=name == "banana")
        X, y = data.X_train[:rows], data.y_train[:rows]
        if data.num_classes == 2:
            found.append((name, X, y, variance))
        else:
            for label in range(data.num_classes):
                one = np.where(y == label, 1, -1)
                found.append((f"{name}, {label}", X, one, variance))
    return found


def value(norm: float, margins: np.ndarray, penalty: float) -> float:
    """J."""
    return norm / 2 + penalty * float(np.sum(np.maximum(0, 1 - margins)))


def svc(X: np.ndarray, y: np.ndarray, gamma: Any, penalty: float) -> float:
    """J of SVC."""
    machine = SVC(C=penalty, gamma=gamma, tol=1e-6, cache_size=1000)
    machine.fit(X.astype(np.float64), y)
    scores = machine.decision_function(X.astype(np.float64))
    inner = scores[machine.support_] - machine.intercept_[0]
    norm = float(machine.dual_coef_[0] @ inner)
    return value(norm, y * scores, penalty)


def linear_svc(X: np.ndarray, y: np.ndarray, gamma: float, penalty: float) -> float:
    """J of LinearSVC on a root of the kernel matrix."""
    X = X.astype(np.float64)
    squares = np.sum(X**2, axis=1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * X @ X.T, 0)
    values, vectors = np.linalg.eigh(np.exp(-gamma * distances))
    root = vectors * np.sqrt(np.maximum(values, 0))[None]
    machine = LinearSVC(
        C=penalty, loss="hinge", fit_intercept=False, tol=1e-7, max_iter=1_000_000
    )
    machine.fit(root, y)
    weights = machine.coef_[0]
    return value(weights @ weights, y * (root @ weights), penalty)


def solved(solver: bj.Solver, X: Any, y: Any) -> tuple[bj.History, float]:
    start = time.perf_counter()
    history = bj.solve(
        solver, X, y, cache=bj.KernelCache(1000), max_steps=1_000_000,
        callback_every=200,
    ).history  # fmt: skip
    return history, time.perf_counter() - start


def main() -> None:
    rows = []
    todo = [(*problem, penalty) for problem in problems() for penalty in PENALTIES]
    for name, X, y, variance, penalty in tqdm(todo):
        gamma = 1 / (2 * variance)
        small = slice(ROWS_WITHOUT_BIAS)
        theirs = {
            "SVC": svc(X, y, gamma, penalty),
            "LinearSVC": linear_svc(X[small], y[small], gamma, penalty),
        }
        given: Any = {"penalty": penalty, "tolerance": TOLERANCE}
        with_bias = bj.SMO(bj.RBF(gamma), **given)
        without = bj.SMO(bj.RBF(gamma), fit_bias=False, **given)
        for method, solver, part, rival in (
            ("SMO", with_bias, slice(None), "SVC"),
            ("SMO, no bias", without, small, "LinearSVC"),
            ("SDCA", bj.SDCA(bj.RBF(gamma), **given), small, "LinearSVC"),
        ):
            history, seconds = solved(solver, X[part], y[part])
            rows.append(
                {
                    "data": name,
                    "rows": len(y[part]),
                    "C": penalty,
                    "method": method,
                    "rival": rival,
                    "difference": float(history.primal[-1] / theirs[rival] - 1),
                    "gap": float(history.gap[-1]),
                    "steps": int(history.step[-1]),
                    "seconds": seconds,
                }
            )
    measure.report(rows, RESULTS / "objectives.json")
    print("largest:", max(abs(row["difference"]) for row in rows))


if __name__ == "__main__":
    main()
