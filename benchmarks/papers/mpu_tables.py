"""The two tables of the paper on the Margin Perceptron with Unlearning.

Panagiotakopoulos and Tsampouka (2010), Tables 1 and 2: the objective J and the seconds
of linear SVMs without a bias, C = 1, at high accuracy (1e-4) and at 1 %. Here MPU and
dual coordinate descent (DCD) stop by their own bound on the relative gap. LIBLINEAR
(`sklearn.svm.LinearSVC`) has the loosest tolerance, of about three per power of ten,
whose J is as close to the optimum, and Pegasos the least number of passes, up to a
limit. The optimum is that of DCD at a gap of 1e-5. `gap` is the true `J / J_opt - 1`.
Seconds are medians of calls taken in turn, without compilation, on arrays in memory:
sparse rows for Adult, Web and the text, float32 arrays for the others; LIBLINEAR has
the same values in its own types.

The text is generated: 20,000 documents over 100,000 words, about 75 words each.
"""

import functools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
from runner import Case, Row
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax import datasets

# The paper's J for the sets that are the same.
PAPER = {"Adult": 11434.4, "Web": 6605.15, "Covertype 1": 340490.0}
ACCURACIES = (1e-4, 1e-2)
TOLERANCES = (10, 5, 2, 1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 1e-3)
LIMIT = 100_000
# Patterns that Pegasos may draw.
DRAWS = 3e7
REPEATS = {"Covertype 1": 1, "Covertype 2": 1}


def text(seed: int = 0) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    """Documents as unit vectors of words drawn by Zipf's law, and noisy labels."""
    rng = np.random.default_rng(seed)
    n, d = 20_000, 100_000
    lengths = rng.poisson(90, n) + 1
    words = np.minimum(rng.zipf(1.3, lengths.sum()) - 1, d - 1)
    # This spreads frequent words over the columns.
    words = rng.permutation(d)[words].astype(np.int32)
    rows = np.repeat(np.arange(n, dtype=np.int32), lengths)
    counts = scipy.sparse.csr_array((np.ones(len(rows)), (rows, words)), shape=(n, d))
    counts.data = 1 + np.log(counts.data)
    present = np.bincount(counts.indices, minlength=d)
    counts.data *= np.log(n / np.maximum(present, 1))[counts.indices] + 0.1
    norms = np.sqrt(np.add.reduceat(np.square(counts.data), counts.indptr[:-1]))
    counts.data /= np.repeat(norms, np.diff(counts.indptr))
    scores = counts @ rng.normal(size=d)
    labels = np.where(scores > np.median(scores), 1, -1)
    return counts, np.where(rng.random(n) < 0.05, -labels, labels)


def everything(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a set that comes without a test part."""
    data = datasets.load(name, standardise=False)
    X = np.concatenate([data.X_train, data.X_test])
    return X, np.concatenate([data.y_train, data.y_test])


def training_part(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = datasets.load(name, standardise=False)
    return data.X_train, data.y_train


def covertype(label: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = everything("covtype")
    return X * np.float32(0.001), np.where(y == label - 1, 1, -1)


def sparse(X: np.ndarray, y: np.ndarray) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    return scipy.sparse.csr_array(X), y


PROBLEMS = {
    "Adult": lambda: sparse(*training_part("a9a")),
    "Web": lambda: sparse(*everything("w8a")),
    "ijcnn1": lambda: training_part("ijcnn1"),
    "Reuters": lambda: sparse(*training_part("reuters_moneyfx")),
    "text": text,
    "Covertype 1": lambda: covertype(1),
    "Covertype 2": lambda: covertype(2),
}


def objective(w: np.ndarray, X: Any, y: np.ndarray, penalty: float = 1.0) -> float:
    """J of weights without a bias, in double precision."""
    w = np.asarray(w, np.float64)
    hinge = np.maximum(1 - y * (X.astype(np.float64) @ w), 0)
    return float(w @ w / 2 + penalty * hinge.sum())


def liblinear(X: Any, y: np.ndarray, tol: float, penalty: float = 1.0) -> LinearSVC:
    machine = LinearSVC(
        loss="hinge",
        C=penalty,
        fit_intercept=False,
        tol=tol,
        max_iter=LIMIT,
        random_state=0,
    )
    return machine.fit(X, y)


def tolerance(X: Any, y: np.ndarray, enough: float, penalty: float = 1.0) -> float:
    """LIBLINEAR's loosest tolerance whose J is small enough."""
    for tol in TOLERANCES:
        w = liblinear(X, y, tol, penalty).coef_[0]
        if objective(w, X, y, penalty) <= enough:
            return tol
    return TOLERANCES[-1]


def passes(X: Any, y: np.ndarray, enough: float) -> int:
    """The least passes of Pegasos whose J is small enough, or the limit."""
    limit = max(1, int(DRAWS / len(y)))
    for tried in (10, 100, limit):
        history = solved(
            bj.LinearPegasos, X, y, tolerance=1e-9, max_steps=min(tried, limit)
        ).history
        good = np.flatnonzero(history.primal <= enough)
        if len(good):
            return max(1, int(good[0]))
    return limit


def solved(
    kind: type[bj.LinearSolver], X: Any, y: np.ndarray, tolerance: float, **given: Any
) -> bj.Solution:
    """The solution of a solver without a bias."""
    return bj.solve(kind(fit_bias=False, tolerance=tolerance), X, y, **given)


def reached(solution: bj.Solution) -> float:
    return float(solution.history.primal[-1])


def weights(solution: bj.Solution) -> np.ndarray:
    assert isinstance(solution.model, bj.LinearModel)
    return np.asarray(solution.model.weights)


def compared(
    name: str, X: Any, y: np.ndarray, optimum: float, accuracy: float
) -> list[dict[str, Any]]:
    """A block of the table: all solvers, at one accuracy."""
    enough = optimum * (1 + accuracy)
    tol = tolerance(X, y, enough)
    rounds = passes(X, y, enough)
    solvers = {
        "MPU": (bj.MPU, {"tolerance": accuracy}),
        "DCD": (bj.DCD, {"tolerance": accuracy}),
        "LIBLINEAR": None,
        "Pegasos": (bj.LinearPegasos, {"max_steps": rounds, "tolerance": 1e-9}),
    }

    def run(method, **more):
        if solvers[method] is None:
            return liblinear(X, y, tol).coef_[0]
        kind, arguments = solvers[method]
        return weights(solved(kind, X, y, **(arguments | more)))

    for method in ("MPU", "DCD", "Pegasos"):
        # Compiles the programs of a full run.
        run(method, max_steps=1)
    taken: dict[str, list[float]] = {method: [] for method in solvers}
    found = {}
    for _ in range(REPEATS.get(name, 5)):
        for method, seconds in taken.items():
            if method == "Pegasos" and seconds:
                # One timing of a long run is enough.
                continue
            start = time.perf_counter()
            w = run(method)
            seconds.append(time.perf_counter() - start)
            found[method] = objective(w, X, y)
    seconds = {method: statistics.median(of) for method, of in taken.items()}
    return [
        {
            "method": method,
            "J": found[method],
            "gap": found[method] / optimum - 1,
            "seconds": seconds[method],
            "LIBLINEAR's times": seconds[method] / seconds["LIBLINEAR"],
            "setting": {"LIBLINEAR": tol, "Pegasos": rounds}.get(method, ""),
            "paper's J": PAPER.get(name, ""),
        }
        for method in solvers
    ]


def measured(name: str, accuracy: float) -> list[Row]:
    """A row per solver."""
    X, y = PROBLEMS[name]()
    return compared(name, X, y, optimum_of(name), accuracy)


@functools.cache
def optimum_of(name: str) -> float:
    """The least objective."""
    return reached(solved(bj.DCD, *PROBLEMS[name](), tolerance=1e-5))


def cases() -> Iterator[Case]:
    """All sets and accuracies."""
    for name in PROBLEMS:
        for accuracy in ACCURACIES:
            key = {"data": name, "accuracy": accuracy}
            yield Case(key, functools.partial(measured, name, accuracy))
