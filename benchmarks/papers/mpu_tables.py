"""The two tables of the paper on the Margin Perceptron with Unlearning.

    python benchmarks/papers mpu_tables
    python benchmarks/papers mpu_tables --path
    python benchmarks/papers mpu_tables --memory

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

`--path` trains on Adult with fifty penalties, each from the solution of the one before,
compared to fifty calls of LIBLINEAR. `--memory` generates 350,000 x 254 numbers and the
text, trains each in its own process, and reports the peak memory.
"""

import argparse
import json
import multiprocessing
import resource
import statistics
import time
from typing import Any

import measure
import numpy as np
import scipy.sparse
from sklearn.svm import LinearSVC
from tqdm import tqdm

import budgetjax as bj
from budgetjax import datasets

RESULTS = measure.RESULTS / "papers"
TABLES = RESULTS / "mpu_tables.json"
# The paper's J for the sets that are the same.
PAPER = {"Adult": 11434.4, "Web": 6605.15, "Covertype 1": 340490.0}
ACCURACIES = (1e-4, 1e-2)
TOLERANCES = (10, 5, 2, 1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 1e-3)
LIMIT = 100_000
# Patterns that Pegasos may draw.
DRAWS = 3e7
REPEATS = {"Covertype 1": 1, "Covertype 2": 1}
PENALTIES = np.logspace(-3, 1, 50)
# The solvers whose memory is measured, by their names in the results.
KINDS = {"mpu": bj.MPU, "dcd": bj.DCD, "linear_pegasos": bj.LinearPegasos}


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


def path_of(
    kind: type[bj.LinearSolver], X: Any, y: np.ndarray, tolerance: float
) -> np.ndarray:
    """J for each penalty, each from the solution of the one before."""
    rows, before, found = kind(fit_bias=False).read(X, y), None, []
    for penalty in PENALTIES:
        solver = kind(penalty, fit_bias=False, tolerance=tolerance)
        before = bj.solve(solver, rows, start=before and before.state)
        found.append(reached(before))
    return np.array(found)


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
            "data": name,
            "accuracy": accuracy,
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


def table(names: list[str]) -> list[dict[str, Any]]:
    """The rows of these sets, and the stored rows of the others."""
    rows = []
    if TABLES.exists():
        before = json.loads(TABLES.read_text())["rows"]
        rows = [row for row in before if row["data"] not in names]
    for name in tqdm(names, unit=" problems"):
        X, y = PROBLEMS[name]()
        optimum = reached(solved(bj.DCD, X, y, tolerance=1e-5))
        for accuracy in ACCURACIES:
            rows += compared(name, X, y, optimum, accuracy)
        measure.save(rows, TABLES)
    return rows


def path() -> list[dict[str, Any]]:
    """Fifty penalties on Adult."""
    X, y = PROBLEMS["Adult"]()
    optima = path_of(bj.DCD, X, y, 1e-5)
    return [row for of in ACCURACIES for row in paths(X, y, optima, of)]


def paths(
    X: Any, y: np.ndarray, optima: np.ndarray, accuracy: float
) -> list[dict[str, Any]]:
    tols = [
        tolerance(X, y, optimum * (1 + accuracy), penalty)
        for penalty, optimum in zip(PENALTIES, optima.tolist(), strict=True)
    ]
    pairs = list(zip(PENALTIES.tolist(), tols, strict=True))
    calls = {
        "MPU": lambda: path_of(bj.MPU, X, y, accuracy),
        "DCD": lambda: path_of(bj.DCD, X, y, accuracy),
        "LIBLINEAR": lambda: [liblinear(X, y, tol, C).coef_[0] for C, tol in pairs],
    }
    found = {name: call() for name, call in calls.items()}
    found["LIBLINEAR"] = np.array(
        [
            objective(w, X, y, penalty)
            for w, penalty in zip(found["LIBLINEAR"], PENALTIES, strict=True)
        ]
    )
    seconds = measure.medians(calls, 3)
    return [
        {
            "accuracy": accuracy,
            "method": method,
            "largest gap": float(np.max(values / optima - 1)),
            "seconds": seconds[method],
            "LIBLINEAR's times": seconds[method] / seconds["LIBLINEAR"],
        }
        for method, values in found.items()
    ]


def wide() -> tuple[np.ndarray, np.ndarray]:
    """Random numbers of Webspam's size: 350,000 x 254."""
    rng = np.random.default_rng(0)
    X = rng.random((350_000, 254), np.float32)
    X *= rng.random((350_000, 254), np.float32) < 0.33
    X /= np.sqrt(np.einsum("ij,ij->i", X, X))[:, None]
    scores = X @ rng.normal(size=254).astype(np.float32)
    return X, np.where(scores + 0.1 * rng.normal(size=len(X)) > 0, 1, -1)


def fitted(job: tuple[str, str]) -> dict[str, Any]:
    """Memory and time of one solver on one set, in its own process."""
    name, method = job
    X, y = {"350,000 x 254": wide, "text": text}[name]()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.perf_counter()
    found = solved(KINDS[method], X, y, tolerance=1e-2, max_steps=10)
    return {
        "data": name,
        "method": method,
        "gap": float(found.history.gap[-1]),
        "seconds": time.perf_counter() - start,
        "GiB at most": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
        "GiB with the data": before,
    }


def memory() -> list[dict[str, Any]]:
    jobs = [(name, method) for name in ("350,000 x 254", "text") for method in KINDS]
    context = multiprocessing.get_context("spawn")
    with context.Pool(1, maxtasksperchild=1) as pool:
        return [pool.apply(fitted, (job,)) for job in jobs]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--path", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--data", nargs="+", choices=PROBLEMS, help="measure anew")
    arguments = parser.parse_args()
    if arguments.path:
        measure.report(path(), RESULTS / "mpu_path.json")
    elif arguments.memory:
        measure.report(memory(), RESULTS / "mpu_memory.json")
    else:
        kept = json.loads(TABLES.read_text())["rows"] if TABLES.exists() else []
        there = {row["data"] for row in kept}
        names = arguments.data or [name for name in PROBLEMS if name not in there]
        if names:
            measure.report(table(names), TABLES)
        else:
            measure.show(kept)


if __name__ == "__main__":
    main()
