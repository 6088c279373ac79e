"""Test error of kernel SVM solvers against kernel evaluations: Fig. 2 of the SBP paper.

Cotter, Shalev-Shwartz and Srebro (2012) compare the Stochastic Batch Perceptron with
Pegasos, SDCA, SMO and the Perceptron on reuters, a9a (Adult) and MNIST, 8 against the
rest, with the parameters of their Table 2 and without a bias, for ten epochs, and 100
of the Perceptron on Adult. Kernel evaluations are counted as in the paper, n for each
change of a coefficient, although kept rows are not computed again; `computed` in the
results counts computed values. Errors are means over ten runs with different draws and
orders; SMO has neither. Some examples change nothing: Pegasos, SDCA and the Perceptron
stop after 10 n examples, the others after 10 n changes. `vectors` counts those of the
model at each point.

A run of SBP as written takes six processor seconds on Reuters, three minutes on Adult,
nine on MNIST, and 9 GB of memory.
"""

import functools
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import timing
from data import two_classes
from runner import Case, Row, oldest

import budgetjax as bj

KEEPS_PROGRAMS = True
# Data: the class against the rest, or None; sigma^2 and nu from Table 2.
SETTINGS = {
    "reuters_moneyfx": (None, 0.5, 6.34e-4),
    "a9a": (None, 10.0, 1.10e-2),
    "mnist": (8, 25.0, 2.21e-4),
}
TITLES = {"reuters_moneyfx": "Reuters", "a9a": "Adult", "mnist": "MNIST, 8 vs. rest"}
# As written: with the paper's uniform average, and one example per step.
METHODS = ("SBP", "Pegasos", "SDCA", "SMO", "Perceptron", "SBP as written")
# Passes, if not ten.
EPOCHS = {("a9a", "Perceptron"): 100}
POINTS = 40
# Pairs of Fourier features that cost as much as changes, in Figure 3.
PAIRS = (16, 32, 64, 128, 256, 512, 1024)
# Examples searched at once for the Perceptron's next mistake.
LOOK = 512
# Mebibytes of kernel rows: enough for all that MNIST needs.
CACHE = 3000.0
TEST_BLOCK = 1024
# Maximum number of examples whose rows are all computed at once: rows of Reuters, with
# 8,315 features, cost more one by one.
AFFORDABLE = 10_000
# All kernel rows of small data, by data and method.
WHOLE: dict[tuple[str, str], bj.KernelCache] = {}


class Data(NamedTuple):
    """A problem of two classes and the kernel values of its test part."""

    kernel: bj.RBF
    X: np.ndarray
    y: np.ndarray
    test: np.ndarray
    y_test: np.ndarray


@functools.lru_cache(maxsize=1)
def data_of(name: str) -> Data:
    """The parts and the kernel of a set."""
    X, y, X_test, y_test = two_classes(name, SETTINGS[name][0])
    kernel = bj.RBF(1 / (2 * SETTINGS[name][1]))
    gram = jax.jit(kernel.gram)
    test = np.empty((len(X_test), len(X)), np.float32)
    for start in range(0, len(X_test), TEST_BLOCK):
        rows = X_test[start : start + TEST_BLOCK]
        test[start : start + TEST_BLOCK] = gram(rows, X)
    return Data(kernel, X, y, test, y_test)


def perceptron(name: str, run: int, data: Data) -> dict[str, Any]:
    """The Perceptron, several passes in one order, in NumPy since mistakes are few."""
    n, begin = len(data.y), time.process_time()
    epochs = EPOCHS.get((name, "Perceptron"), 10)
    order = np.random.default_rng(run).permutation(n)
    points = np.unique(np.geomspace(4, epochs * n, POINTS).astype(int))
    y, gamma = data.y.astype(np.float32), np.asarray(data.kernel.gamma, np.float32)
    squares, rows = np.sum(data.X**2, axis=1), {}
    counts, margins = np.zeros(n, np.float32), np.zeros(n, np.float32)
    found, changes, visits = [], 0, 0
    while visits < epochs * n:
        ahead = order[visits % n : visits % n + LOOK]
        wrong = margins[ahead] <= 0
        first = int(np.argmax(wrong))
        if not wrong[first]:
            visits += len(ahead)
            continue
        i = int(ahead[first])
        if i not in rows:
            products = data.X @ data.X[i]
            rows[i] = np.exp(-gamma * (squares + squares[i] - 2 * products))
        margins += y[i] * y * rows[i]
        counts[i] += 1
        visits, changes = visits + first + 1, changes + 1
        last = found[-1][0] if found else 0
        if changes >= points[np.searchsorted(points, last, "right")]:
            found.append((changes, *tested(data, counts), visits))
    if not found or found[-1][0] < changes:
        found.append((changes, *tested(data, counts), visits))
    return reached(found, n, len(rows) * n, begin)


def tested(data: Data, coefficients: np.ndarray) -> tuple[float, int]:
    """Test error and vectors; neither scale nor bias changes the sign."""
    scores = data.test @ (coefficients * data.y.astype(np.float32))
    error = float(np.mean(np.where(scores > 0, 1, -1) != data.y_test))
    return round(error, 5), int(np.count_nonzero(coefficients))


def reached(found: list[tuple], n: int, computed: int, begin: float) -> dict[str, Any]:
    """A row of the results."""
    changes, error, vectors, visits = map(list, zip(*found, strict=True))
    return {
        "examples": n,
        "changes": changes,
        "error": error,
        "vectors": vectors,
        "visits": visits,
        "computed": computed,
        "processor seconds": round(time.process_time() - begin, 1),
    }


def curve(name: str, method: str, run: int, data: Data) -> dict[str, Any]:
    """The errors of one run at growing numbers of changes."""
    n = len(data.y)
    if method == "Perceptron":
        return perceptron(name, run, data)
    epochs = EPOCHS.get((name, method), 10)
    of_sbp = {"slack": SETTINGS[name][2], "fit_bias": False, "seed": run}
    kind, given = {
        "SBP": (bj.SBP, of_sbp | {"batch_size": 16}),
        "SBP as written": (bj.SBP, of_sbp | {"batch_size": 1, "average_power": 0.0}),
        "Pegasos": (bj.KernelPegasos, {"seed": run}),
        "SDCA": (bj.SDCA, {"seed": run}),
        "SMO": (bj.SMO, {"fit_bias": False, "batch_size": 1}),
    }[method]
    solver, cache = kind(data.kernel, **given), bj.KernelCache(CACHE)
    if n <= AFFORDABLE:
        # The first run of a method computes all rows.
        cache = WHOLE.setdefault((name, method), bj.KernelCache(None))
    examples = solver.read(data.X, data.y)
    state, objective = timing.begin(solver, examples, cache), jax.jit(objective_of)
    points = np.unique(np.geomspace(4, epochs * n, POINTS).astype(int))
    rows, begin = [], time.process_time()
    # Looks are frequent at first, and rarer when the curve is long.
    for steps in itertools.chain(np.repeat([1, 4, 16, 64], 64), itertools.repeat(256)):
        state = timing.advance(state, examples, jnp.int32(steps))
        changes, visits = int(state.num_updates), int(getattr(state, "num_visits", 0))
        primal, dual = map(float, objective(state, examples))
        last = rows[-1][0] if rows else 0
        if changes >= min([*points[points > last], epochs * n]):
            model = getattr(state, "mean_coefficients", state.coefficients)
            rows.append((changes, *tested(data, np.asarray(model)), visits))
        # Only SMO comes so near to its optimum.
        if max(visits, changes) >= epochs * n or abs(primal - dual) <= 1e-5 * dual:
            break
    computed = n * n if n <= AFFORDABLE else solver.work(state)
    cache.give(state.rows)
    return reached(rows, n, computed, begin)


def objective_of(state: Any, examples: bj.TrainingSet) -> bj.Objective:
    return state.solver.objective(state, examples)


def run_of(name: str, method: str, run: int) -> dict[str, Any]:
    """The curve of one run; the data are kept for the next."""
    return curve(name, method, run, data_of(name))


def together(rows: list[dict[str, Any]], name: str, method: str) -> dict[str, Any]:
    """The means of all runs at points that all have reached."""
    return mean_curve(
        [row for row in rows if (row["data"], row["method"]) == (name, method)]
    )


def present(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Measured data and methods, for data with results of SBP."""
    known = {(row["data"], row["method"]) for row in rows}
    return [
        (name, method)
        for name in SETTINGS
        for method in METHODS
        if {(name, method), (name, "SBP")} <= known
    ]


def draw(rows: list[Row], path: Path) -> None:
    """One panel per data set, error against kernel evaluations."""
    names = list(dict.fromkeys(name for name, _ in present(rows)))
    limits = {"reuters_moneyfx": (2, 8), "a9a": (14, 26), "mnist": (0, 5)}
    styles: dict[str, str] = dict(
        zip(METHODS, ("-", "--", "-.", ":", "-", "--"), strict=True)
    )
    widths: dict[str, float] = dict(
        zip(METHODS, (2, 1.3, 1.3, 1.8, 0.8, 2), strict=True)
    )
    with plt.rc_context(bj.plots.STYLE):
        figure, axes = plt.subplots(
            1, len(names), figsize=(4.0 * len(names), 3.4), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for axis, name in zip(axes[0], names, strict=True):
            n = next(row["examples"] for row in rows if row["data"] == name)
            for _, method in (one for one in present(rows) if one[0] == name):
                own = together(rows, name, method)
                axis.plot(
                    own["changes"] * n, 100 * own["error"], styles[method],
                    linewidth=widths[method], label=method,
                )  # fmt: skip
            axis.set(
                xscale="log", title=TITLES[name], ylim=limits[name],
                xlabel="kernel evaluations",
            )  # fmt: skip
        axes[0, 0].set_ylabel("test error, %")
        axes[0, 0].legend()
        figure.savefig(path)
        plt.close(figure)


def mean_curve(own: list[Row]) -> dict[str, Any]:
    """The means of all runs of a solver at points that all have reached."""
    start = max(row["changes"][0] for row in own)
    end = min(row["changes"][-1] for row in own)
    points = np.unique(np.geomspace(start, end, POINTS).astype(int))
    found: dict[str, Any] = {"changes": points, "runs": len(own)}
    for key in ("error", "vectors"):
        # Vectors of the last model tested at or before each point.
        values = [
            np.array(row[key])[np.searchsorted(row["changes"], points, "right") - 1]
            for row in own
        ]
        found[key] = np.mean(values, axis=0)
    return found


def common_range(first: dict[str, Any], second: dict[str, Any]) -> tuple[int, int]:
    """The numbers of changes that two curves share."""
    pair = first, second
    start = max(int(each["changes"][0]) for each in pair)
    return start, min(int(each["changes"][-1]) for each in pair)


def part_as_good(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The part of the common range, in decades, where ours has no more errors."""
    grid = np.log(np.geomspace(*common_range(ours, theirs), 200))
    first, second = (
        np.interp(grid, np.log(each["changes"]), each["error"])
        for each in (ours, theirs)
    )
    return float(np.mean(first <= second))


def cases() -> Iterator[Case]:
    """All sets, methods and runs."""
    for name in SETTINGS:
        for run in range(10 if name == "reuters_moneyfx" else 3):
            for method in METHODS:
                key = {"data": name, "method": method, "run": run}
                if method != "SMO" or run == 0:
                    yield Case(key, functools.partial(run_of, name, method, run))


def summarise(rows: list[Row]) -> Iterator[Row]:
    """The mean curves: their ends, where SBP is as good, and SBP after few changes."""
    for name, method in present(rows):
        own, sbp = (together(rows, name, each) for each in (method, "SBP"))
        about = oldest([row for row in rows if row["data"] == name])
        key: Row = {"data": name, "method": method}
        found: Row = {
            "runs": own["runs"],
            "changes": int(own["changes"][-1]),
            "at the end": 100 * float(own["error"][-1]),
            "lowest": 100 * float(own["error"].min()),
            "vectors": int(own["vectors"][-1]),
        }
        if method != "SBP":
            found["SBP no higher"] = part_as_good(sbp, own)
            found["SBP no lower"] = part_as_good(own, sbp)
        yield key | found | about
        for pairs in PAIRS if method.startswith("SBP") else ():
            places = np.log(own["changes"])
            error = 100 * float(np.interp(np.log(pairs), places, own["error"]))
            yield key | {"pairs": pairs, "error": error} | about
