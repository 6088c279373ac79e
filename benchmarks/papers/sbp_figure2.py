"""Test error of kernel SVM solvers against kernel evaluations: Fig. 2 of the SBP paper.

    python benchmarks/papers sbp_figure2

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

import argparse
import functools
import itertools
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import measure
import numpy as np
from page_tables import curves

import budgetjax as bj
from budgetjax import datasets

RESULTS = measure.RESULTS / "papers"
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


def parts_of(name: str) -> tuple[np.ndarray, ...]:
    """Both parts with raw features, except bytes, which are scaled to 0 to 1."""
    data = datasets.load(name, standardise=False)
    scale = np.float32(255 if name == "mnist" else 1)
    positive = SETTINGS[name][0]
    labels = [data.y_train, data.y_test]
    if positive is not None:
        labels = [np.where(y == positive, 1, -1) for y in labels]
    return data.X_train / scale, labels[0], data.X_test / scale, labels[1]


@functools.lru_cache(maxsize=1)
def data_of(name: str) -> Data:
    """The parts and the kernel of a set."""
    X, y, X_test, y_test = parts_of(name)
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
    state, objective = measure.begin(solver, examples, cache), jax.jit(objective_of)
    points = np.unique(np.geomspace(4, epochs * n, POINTS).astype(int))
    rows, begin = [], time.process_time()
    # Looks are frequent at first, and rarer when the curve is long.
    for steps in itertools.chain(np.repeat([1, 4, 16, 64], 64), itertools.repeat(256)):
        state = measure.advance(state, examples, jnp.int32(steps))
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
    return curves.mean_curve(
        [row for row in rows if (row["data"], row["method"]) == (name, method)]
    )


def show(rows: list[dict[str, Any]]) -> None:
    """The ends of the curves, and the part of the range where SBP is as good."""
    lines = []
    for name, method in present(rows):
        own, sbp = (together(rows, name, each) for each in (method, "SBP"))
        n = next(row["examples"] for row in rows if row["data"] == name)
        epoch = int(np.argmin(np.abs(np.log(own["changes"] / n))))
        start, end = curves.common_range(sbp, own)
        lines.append(
            {
                "data": name,
                "method": method,
                "runs": own["runs"],
                "changes": int(own["changes"][-1]),
                "error at end": 100 * float(own["error"][-1]),
                "least error": 100 * float(own["error"].min()),
                "vectors": int(own["vectors"][-1]),
                "error nearest n changes": 100 * float(own["error"][epoch]),
                "SBP as good": curves.part_as_good(sbp, own),
                "it as good as SBP": curves.part_as_good(own, sbp),
                "from": start,
                "to": end,
            }
        )
    measure.show(lines)


def present(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Measured data and methods, for data with results of SBP."""
    known = {(row["data"], row["method"]) for row in rows}
    return [
        (name, method)
        for name in SETTINGS
        for method in METHODS
        if {(name, method), (name, "SBP")} <= known
    ]


def draw(rows: list[dict[str, Any]], output: Path) -> None:
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
        figure.savefig(output)
        plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fig. 2 of the SBP paper")
    parser.add_argument("--data", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--output", type=Path, default=RESULTS / "sbp_figure2.json")
    given = parser.parse_args()
    cases = [
        (
            {"data": name, "method": method, "run": run},
            functools.partial(run_of, name, method, run),
        )
        for name in given.data
        for run in range(given.runs)
        for method in given.methods
        if method != "SMO" or run == 0
    ]
    measure.resumed(cases, given.output, clear=False)
    rows = json.loads(given.output.read_text())["rows"]
    show(rows)
    draw(rows, given.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
