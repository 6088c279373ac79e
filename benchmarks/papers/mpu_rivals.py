"""The two slower rivals in the paper on the Margin Perceptron with Unlearning.

Panagiotakopoulos and Tsampouka (2010), Tables 1 and 2: SVMperf, the cutting planes of
Joachims (2006), which no package has, and Pegasos with the paper's number of iterations
of thirty patterns, or on Covertype until it is within 1 %. The problems are those of
`mpu_tables`: linear, without a bias, C = 1. The cutting planes are a few lines of NumPy
and SciPy below: each round has two compiled products with the rows and solves the dual
of all planes so far as a problem of non-negative least squares. They receive the
optimum and stop when the objective is close enough to it; the optimum is that of dual
coordinate descent at a gap of 1e-5. `bj.MPU` is measured in the same run.

Per set and on one core, cutting planes take seconds to minutes, Pegasos five to ten
minutes.
"""

import functools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
from runner import Case

import budgetjax as bj
from papers import mpu_tables

CUTS = ("Adult", "Web", "ijcnn1", "text", "Covertype 1")
# The paper's iterations for the sets that are the same.
ITERATIONS = {"Adult": 3e7, "Web": 2e7}
ACCURACIES = (1e-4, 1e-2)
ROUNDS, IDLE = 5000, 50
# The maximum number of passes of Pegasos on Covertype, and the passes between looks.
PASSES, BETWEEN = 500, 20


@functools.cache
def problem(name: str) -> tuple[Any, np.ndarray, float]:
    """Rows, labels and the least objective."""
    X, y = mpu_tables.PROBLEMS[name]()
    optimum = mpu_tables.solved(bj.DCD, X, y, tolerance=1e-5)
    return X, y, mpu_tables.reached(optimum)


def simplex_dual(gram: np.ndarray, offsets: np.ndarray, total: float) -> np.ndarray:
    """The a >= 0 with sum at most `total` and largest `offsets a - a gram a / 2`.

    With `gram = R^T R`, it minimises `|R a - z|^2` for `R^T z = offsets`; a slack and a
    heavy row turn the constraint on the sum into an equation.
    """
    size = len(offsets)
    scale = np.sqrt(np.trace(gram) / size)
    R = scipy.linalg.cholesky(gram + 1e-13 * scale**2 * np.eye(size))
    z = scipy.linalg.solve_triangular(R, offsets, trans=1)
    heavy = 1e4 * scale
    rows = np.block([[R, np.zeros((size, 1))], [np.full((1, size + 1), heavy)]])
    found, _ = scipy.optimize.nnls(rows, np.append(z, heavy * total), maxiter=50 * size)
    return found[:-1]


def cutting_planes(X: Any, y: np.ndarray, enough: float) -> tuple[float, int]:
    """The objective reached and the number of planes."""
    n = len(y)
    X = X.astype(np.float64)
    planes, offsets, gram = np.empty((0, X.shape[1])), np.empty(0), np.empty((0, 0))
    idle = np.empty(0)
    w, best = np.zeros(X.shape[1]), np.inf
    for rounds in range(ROUNDS):
        margins = y * (X @ w)
        best = min(best, w @ w / 2 + np.maximum(1 - margins, 0).sum())
        if best <= enough:
            return best, rounds
        wrong = (margins < 1).astype(np.float64)
        plane = X.T @ (wrong * y) / n
        across = planes @ plane
        gram = np.block([[gram, across[:, None]], [across[None], plane @ plane]])
        planes = np.vstack([planes, plane])
        offsets = np.append(offsets, wrong.mean())
        shares = simplex_dual(gram, offsets, float(n))
        w = shares @ planes
        # As SVMperf does, drop constraints that have been inactive for long.
        idle = np.where(shares > 0, 0, np.append(idle, 0) + 1)
        kept = idle < IDLE
        planes, offsets, idle = planes[kept], offsets[kept], idle[kept]
        gram = gram[np.ix_(kept, kept)]
    return best, ROUNDS


def mpu(X: Any, y: np.ndarray, accuracy: float) -> float:
    """Seconds without compilation, the least of three runs."""
    mpu_tables.solved(bj.MPU, X, y, tolerance=accuracy, max_steps=1)
    taken = []
    for _ in range(3):
        start = time.perf_counter()
        mpu_tables.solved(bj.MPU, X, y, tolerance=accuracy)
        taken.append(time.perf_counter() - start)
    return min(taken)


def cut(name: str, accuracy: float) -> dict[str, Any]:
    """Cutting planes compared to MPU."""
    X, y, optimum = problem(name)
    start = time.perf_counter()
    found, rounds = cutting_planes(X, y, optimum * (1 + accuracy))
    seconds = time.perf_counter() - start
    ours = mpu(X, y, accuracy)
    return {
        "gap": float(found / optimum - 1),
        "rounds": rounds,
        "seconds": seconds,
        "MPU's seconds": ours,
        "MPU's times": seconds / ours,
    }


def long_pegasos(name: str) -> dict[str, Any]:
    """Pegasos with the paper's iterations compared to MPU, at high accuracy."""
    X, y, optimum = problem(name)
    patterns = 30 * ITERATIONS[name]
    passes = round(patterns / len(y))

    def run(passes: int) -> Any:
        return mpu_tables.solved(
            *(bj.LinearPegasos, X, y, 1e-9), max_steps=passes, callback_every=passes
        )

    run(1)
    start = time.perf_counter()
    found = run(passes)
    seconds = time.perf_counter() - start
    ours = mpu(X, y, ACCURACIES[0])
    return {
        "gap": mpu_tables.objective(mpu_tables.weights(found), X, y) / optimum - 1,
        "rounds": passes,
        "seconds": seconds,
        "MPU's seconds": ours,
        "MPU's times": seconds / ours,
    }


def near_pegasos(name: str) -> dict[str, Any]:
    """Pegasos until it is within 1 %, in processor seconds, compared to MPU."""
    X, y, optimum = problem(name)
    accuracy = ACCURACIES[1]

    def measured(kind: Any, tolerance: float, **given: Any) -> tuple[Any, float]:
        mpu_tables.solved(kind, X, y, tolerance, max_steps=1, **given)
        start = time.process_time()
        found = mpu_tables.solved(kind, X, y, tolerance, max_steps=PASSES, **given)
        return found.history, time.process_time() - start

    history, seconds = measured(
        bj.LinearPegasos,
        tolerance=1e-9,
        callback_every=BETWEEN,
        callback=lambda state, record: bool(record.primal <= optimum * (1 + accuracy)),
    )
    _, ours = measured(bj.MPU, tolerance=accuracy)
    return {
        "gap": float(history.primal[-1] / optimum - 1),
        "rounds": int(history.step[-1]),
        "processor seconds": seconds,
        "MPU's processor seconds": ours,
        "MPU's times": seconds / ours,
    }


def cases() -> Iterator[Case]:
    """Cutting planes on all sets, and Pegasos on three."""
    for name in CUTS:
        for accuracy in ACCURACIES:
            key = {"data": name, "method": "cutting planes", "accuracy": accuracy}
            yield Case(key, functools.partial(cut, name, accuracy))
    for name in (*ITERATIONS, "Covertype 1"):
        is_long = name in ITERATIONS
        key = {"data": name, "method": "Pegasos"}
        key |= {"accuracy": ACCURACIES[0 if is_long else 1]}
        run = long_pegasos if is_long else near_pegasos
        yield Case(key, functools.partial(run, name))
