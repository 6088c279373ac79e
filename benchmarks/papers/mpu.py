"""The Margin Perceptron with Unlearning: Tables 1 and 2.

Panagiotakopoulos and Tsampouka (2010): the objective J and the seconds of linear SVMs
without a bias, C = 1, at high accuracy (1e-4) and at 1 %. The optimum is that of dual
coordinate descent (DCD) at a gap of 1e-5; `gap` is the true `J / J_opt - 1`. The text
is generated: 20,000 documents over 100,000 words, about 75 words each.

In `mpu_tables`, MPU and DCD stop by their own bound on the relative gap. LIBLINEAR
(`sklearn.svm.LinearSVC`) has the loosest tolerance, of about three per power of ten,
whose J is as close to the optimum, and Pegasos the least number of passes, up to a
limit. Seconds are medians of calls taken in turn, without compilation, on arrays in
memory: sparse rows for Adult, Web and the text, float32 arrays for the others;
LIBLINEAR has the same values in its own types.

`mpu_rivals` has the two slower rivals in the paper beside MPU: SVMperf, the cutting
planes of Joachims (2006), which no package has, and Pegasos with the paper's number of
iterations of thirty patterns, or on Covertype until it is within 1 %. The cutting
planes are a few lines of NumPy and SciPy: each round has two compiled products with the
rows and solves the dual of all planes so far as a problem of non-negative least
squares. They stop when the objective is close enough to the optimum, which they
receive. They take seconds to minutes per set, Pegasos five to ten minutes.
"""

import functools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.linalg
import scipy.optimize
import scipy.sparse
from data import all_rows
from runner import Case, Row, Task, product
from sklearn.svm import LinearSVC
from timing import spent

import budgetjax as bj
from budgetjax import datasets

ACCURACIES = (1e-4, 1e-2)

# Problems.


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


def training_part(name: str) -> tuple[np.ndarray, np.ndarray]:
    data = datasets.load(name, standardise=False)
    return data.X_train, data.y_train


def covertype(label: int) -> tuple[np.ndarray, np.ndarray]:
    X, y = all_rows("covtype")
    return X * np.float32(0.001), np.where(y == label - 1, 1, -1)


def sparse(X: np.ndarray, y: np.ndarray) -> tuple[scipy.sparse.csr_array, np.ndarray]:
    return scipy.sparse.csr_array(X), y


PROBLEMS = {
    "Adult": lambda: sparse(*training_part("a9a")),
    "Web": lambda: sparse(*all_rows("w8a")),
    "ijcnn1": lambda: training_part("ijcnn1"),
    "Reuters": lambda: sparse(*training_part("reuters_moneyfx")),
    "text": text,
    "Covertype 1": lambda: covertype(1),
    "Covertype 2": lambda: covertype(2),
}


@functools.cache
def problem(name: str) -> tuple[Any, np.ndarray, float]:
    """Rows, labels and the least objective."""
    X, y = PROBLEMS[name]()
    return X, y, float(solved(bj.DCD, X, y, tolerance=1e-5).history.primal[-1])


def objective(w: Any, X: Any, y: np.ndarray) -> float:
    """J of weights without a bias, in double precision, for C = 1."""
    w = np.asarray(w, np.float64)
    hinge = np.maximum(1 - y * (X.astype(np.float64) @ w), 0)
    return float(w @ w / 2 + hinge.sum())


def solved(
    kind: type[bj.LinearSolver], X: Any, y: np.ndarray, tolerance: float, **given: Any
) -> bj.Solution:
    """The solution of a solver without a bias."""
    return bj.solve(kind(fit_bias=False, tolerance=tolerance), X, y, **given)


# The tables.

# The paper's J for the sets that are the same.
PAPER = {"Adult": 11434.4, "Web": 6605.15, "Covertype 1": 340490.0}
TOLERANCES = (10, 5, 2, 1, 0.7, 0.5, 0.3, 0.2, 0.1, 0.05, 0.03, 0.02, 0.01, 1e-3)
LIMIT = 100_000
# Patterns that Pegasos may draw.
DRAWS = 3e7
REPEATS = {"Covertype 1": 1, "Covertype 2": 1}


def liblinear(X: Any, y: np.ndarray, tol: float) -> np.ndarray:
    """LIBLINEAR's weights."""
    settings: Any = {"C": 1.0, "fit_intercept": False, "max_iter": LIMIT}
    machine = LinearSVC(loss="hinge", tol=tol, random_state=0, **settings)
    return machine.fit(X, y).coef_[0]


def loosest(X: Any, y: np.ndarray, enough: float) -> float:
    """LIBLINEAR's loosest tolerance whose J is small enough."""
    good = (t for t in TOLERANCES if objective(liblinear(X, y, t), X, y) <= enough)
    return next(good, TOLERANCES[-1])


def passes(X: Any, y: np.ndarray, enough: float) -> int:
    """The least passes of Pegasos whose J is small enough, or the limit."""
    limit = max(1, int(DRAWS / len(y)))
    for tried in (10, 100, limit):
        found = solved(bj.LinearPegasos, X, y, 1e-9, max_steps=min(tried, limit))
        good = np.flatnonzero(found.history.primal <= enough)
        if len(good):
            return max(1, int(good[0]))
    return limit


def compared(name: str, accuracy: float) -> list[Row]:
    """A block of the table: a row per solver."""
    X, y, optimum = problem(name)
    enough = optimum * (1 + accuracy)
    tol, rounds = loosest(X, y, enough), passes(X, y, enough)

    def ours(kind: Any, tolerance: float, **usual: Any) -> Any:
        def run(**more: Any) -> Any:
            return solved(kind, X, y, tolerance, **(usual | more)).model.weights

        return run

    solvers = {
        "MPU": ours(bj.MPU, accuracy),
        "DCD": ours(bj.DCD, accuracy),
        "LIBLINEAR": lambda: liblinear(X, y, tol),
        "Pegasos": ours(bj.LinearPegasos, 1e-9, max_steps=rounds),
    }
    for method in ("MPU", "DCD", "Pegasos"):
        # Compiles the programs of a full run.
        solvers[method](max_steps=1)
    taken: dict[str, list[float]] = {method: [] for method in solvers}
    found = {}
    for _ in range(REPEATS.get(name, 5)):
        for method, seconds in taken.items():
            if method == "Pegasos" and seconds:
                # One timing of a long run is enough.
                continue
            start = time.perf_counter()
            w = np.asarray(solvers[method]())
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


def tables() -> Iterator[Case]:
    """All sets and accuracies."""
    return product(compared, data=PROBLEMS, accuracy=ACCURACIES)


# Rivals.

CUTS = ("Adult", "Web", "ijcnn1", "text", "Covertype 1")
# The paper's iterations for the sets that are the same.
ITERATIONS = {"Adult": 3e7, "Web": 2e7}
ROUNDS, IDLE = 5000, 50
# The maximum number of passes of Pegasos on Covertype, and the passes between looks.
PASSES, BETWEEN = 500, 20


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


def beside_mpu(
    name: str, accuracy: float, gap: float, rounds: int, seconds: float
) -> Row:
    """A rival's figures, and MPU's least seconds of three runs, without compilation."""
    X, y, _ = problem(name)
    solved(bj.MPU, X, y, accuracy, max_steps=1)
    run = functools.partial(solved, bj.MPU, X, y, accuracy)
    ours = min(spent(run, time.perf_counter)[1] for _ in range(3))
    row = {"gap": gap, "rounds": rounds, "seconds": seconds}
    return row | {"MPU's seconds": ours, "MPU's times": seconds / ours}


def cut(name: str, _: str, accuracy: float) -> Row:
    """Cutting planes compared to MPU."""
    X, y, optimum = problem(name)
    run = functools.partial(cutting_planes, X, y, optimum * (1 + accuracy))
    (found, rounds), seconds = spent(run, time.perf_counter)
    return beside_mpu(name, accuracy, float(found / optimum - 1), rounds, seconds)


def long_pegasos(name: str, _: str, accuracy: float) -> Row:
    """Pegasos with the paper's iterations compared to MPU, at high accuracy."""
    X, y, optimum = problem(name)
    passes = round(30 * ITERATIONS[name] / len(y))

    def run(passes: int) -> Any:
        return solved(
            *(bj.LinearPegasos, X, y, 1e-9), max_steps=passes, callback_every=passes
        )

    run(1)
    found, seconds = spent(functools.partial(run, passes), time.perf_counter)
    gap = objective(found.model.weights, X, y) / optimum - 1
    return beside_mpu(name, accuracy, gap, passes, seconds)


def near_pegasos(name: str, _: str, accuracy: float) -> Row:
    """Pegasos until it is within 1 %, in processor seconds, compared to MPU."""
    X, y, optimum = problem(name)

    def measured(kind: Any, tolerance: float, **given: Any) -> tuple[Any, float]:
        run = functools.partial(solved, kind, X, y, tolerance, **given)
        run(max_steps=1)
        found, seconds = spent(functools.partial(run, max_steps=PASSES))
        return found.history, seconds

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


def rivals() -> Iterator[Case]:
    """Cutting planes on all sets, and Pegasos on three."""
    planes, pegasos = ["cutting planes"], ["Pegasos"]
    yield from product(cut, data=CUTS, method=planes, accuracy=ACCURACIES)
    yield from product(long_pegasos, data=ITERATIONS, method=pegasos, accuracy=[1e-4])
    near = ["Covertype 1"]
    yield from product(near_pegasos, data=near, method=pegasos, accuracy=[1e-2])


TASKS = {"tables": Task(tables), "rivals": Task(rivals)}
