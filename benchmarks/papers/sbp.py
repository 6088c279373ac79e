"""The Stochastic Batch Perceptron: Figures 2 and 3, and the end of Section 5.

Cotter, Shalev-Shwartz and Srebro (2012) compare SBP with Pegasos, SDCA, SMO and the
Perceptron on reuters, a9a (Adult) and MNIST, 8 against the rest, with the parameters of
their Table 2. "As written" is SBP with the paper's uniform average, and one example per
step.

`sbp_figure2` has the test error against kernel evaluations, without a bias, for ten
epochs, and 100 of the Perceptron on Adult. They are counted as in the paper, n for each
change of a coefficient, although kept rows are not computed again; `computed` counts
computed values. Errors are means over runs with different draws and orders; SMO has
neither. Some examples change nothing: Pegasos, SDCA and the Perceptron stop after 10 n
examples, the others after 10 n changes. `vectors` counts those of the model at each
point. A run of SBP as written takes six processor seconds on Reuters, three minutes on
Adult, nine on MNIST, and 9 GB of memory.

`sbp_figure3` has random Fourier features: k pairs (`cos` and `sin` of the same
frequency) cost k products of d numbers per training example, as k kernel values do, so
they compare to SBP after k changes. Their error is that of the optimal linear SVM on
them, whose own cost is not counted: `budgetjax.DCD` to a relative gap of 1 percent,
C = 1, no bias. SBP's curve is that of `sbp_figure2`. It takes six minutes.

`sbp_libsvm` has the seconds to the test error of scikit-learn's SVC (LIBSVM), with a
bias: in a quarter of LIBSVM's time the paper's SBP has 15.0 percent errors on Adult,
where LIBSVM ends with 14.9, and 0.46 on MNIST, where that ends with 0.44. `a9a, C=1` is
that of their Figure 2. SVC goes first, and its optimum gives the slack,
`budgetjax.slack_of`. Our solvers are tested while they run; neither testing nor
compilation is timed. Seconds are processor seconds of all threads. `ours / SVC` is the
fraction of SVC's time after which our error is first as low as SVC's, `to 0.1 more`
within 0.1 points of it; `error at quarter` and `error at half` are our errors after
these fractions of SVC's time. It takes 16 minutes.

`sbp_forest` has 522,910 training and 58,102 test rows of covtype, sigma^2 = 5000,
lambda = 1/(10000 n), that is C = 10,000, nu = 7.62e-10, and a bias. LIBSVM ends with
1.8 percent errors after 35 hours, SBP has 1.6 after a quarter of that. The paper states
neither the class nor the scaling of features: here it is class 2 against the rest, with
raw numbers, on which this narrow kernel separates all examples. Seconds are processor
seconds of training alone; the field `length` is wall time in minutes.
"""

import functools
import itertools
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import drawing
import jax
import jax.numpy as jnp
import numpy as np
import timing
from data import all_rows, two_classes
from models import error as error_of
from runner import RESULTS, Case, Row, Task, given, oldest, product, read
from sklearn.svm import SVC

import budgetjax as bj

# Data: the class against the rest, or None; sigma^2 and nu from Table 2.
SETTINGS = {
    "reuters_moneyfx": (None, 0.5, 6.34e-4),
    "a9a": (None, 10.0, 1.10e-2),
    "mnist": (8, 25.0, 2.21e-4),
}
TITLES = {"reuters_moneyfx": "Reuters", "a9a": "Adult", "mnist": "MNIST, 8 vs. rest"}
AS_WRITTEN = {"batch_size": 1, "average_power": 0.0}

# Figure 2.

METHODS = ("SBP", "Pegasos", "SDCA", "SMO", "Perceptron", "SBP as written")
# How their lines look: dashes, and the width.
STYLES = (("-", 2), ("--", 1.3), ("-.", 1.3), (":", 1.8), ("-", 0.8), ("--", 2))
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


def curve(name: str, method: str, run: int) -> Row:
    """The errors of one run at growing numbers of changes."""
    data = data_of(name)
    n = len(data.y)
    if method == "Perceptron":
        return perceptron(name, run, data)
    epochs = EPOCHS.get((name, method), 10)
    of_sbp = {"slack": SETTINGS[name][2], "fit_bias": False, "seed": run}
    kind, given = {
        "SBP": (bj.SBP, of_sbp | {"batch_size": 16}),
        "SBP as written": (bj.SBP, of_sbp | AS_WRITTEN),
        "Pegasos": (bj.KernelPegasos, {"seed": run}),
        "SDCA": (bj.SDCA, {"seed": run}),
        "SMO": (bj.SMO, {"fit_bias": False, "batch_size": 1}),
    }[method]
    solver, cache = kind(data.kernel, **given), bj.KernelCache(CACHE)
    if n <= AFFORDABLE:
        # The first run of a method computes all rows.
        cache = WHOLE.setdefault((name, method), bj.KernelCache(None))
    examples = solver.read(data.X, data.y)
    state = timing.begin(solver, examples, cache)
    points = np.unique(np.geomspace(4, epochs * n, POINTS).astype(int))
    rows, begin = [], time.process_time()
    # Looks are frequent at first, and rarer when the curve is long.
    for steps in itertools.chain(np.repeat([1, 4, 16, 64], 64), itertools.repeat(256)):
        state = timing.advance(state, examples, int(steps))
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


@jax.jit
def objective(state: Any, examples: bj.TrainingSet) -> bj.Objective:
    return state.solver.objective(state, examples)


def mean_curve(rows: list[Row], name: str, method: str) -> dict[str, Any]:
    """The means of all runs at points that all have reached."""
    own = [row for row in rows if (row["data"], row["method"]) == (name, method)]
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


def errors_at(curve: dict[str, Any], changes: Any) -> np.ndarray:
    """The errors of a mean curve in percent, between its points too."""
    places = np.log(curve["changes"])
    return 100 * np.interp(np.log(changes), places, curve["error"])


def part_as_good(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The part of the common range, in decades, where ours has no more errors."""
    start = max(ours["changes"][0], theirs["changes"][0])
    end = min(ours["changes"][-1], theirs["changes"][-1])
    grid = np.geomspace(start, end, 200)
    return float(np.mean(errors_at(ours, grid) <= errors_at(theirs, grid)))


def present(rows: list[Row]) -> list[tuple[str, str]]:
    """Measured data and methods, for data with results of SBP."""
    known = {(row["data"], row["method"]) for row in rows}
    return [
        (name, method)
        for name, method in itertools.product(SETTINGS, METHODS)
        if {(name, method), (name, "SBP")} <= known
    ]


def draw_figure_2(rows: list[Row], path: Path) -> None:
    """One panel per data set, error against kernel evaluations."""
    limits = {"reuters_moneyfx": (2, 8), "a9a": (14, 26), "mnist": (0, 5)}
    sizes = {row["data"]: row["examples"] for row in rows}
    with drawing.panels(path, len(sizes), size=(4, 3.4)) as (_, panels):
        at = dict(zip(sizes, panels, strict=True))
        for name, method in present(rows):
            own = mean_curve(rows, name, method)
            dashes, width = STYLES[METHODS.index(method)]
            line = own["changes"] * sizes[name], 100 * own["error"], dashes
            at[name].plot(*line, linewidth=width, label=method)
        for name, panel in at.items():
            panel.set(xscale="log", title=TITLES[name], ylim=limits[name])
            panel.set_xlabel("kernel evaluations")
        panels[0].set_ylabel("test error, %")
        panels[0].legend()


def curves() -> Iterator[Case]:
    """All sets, methods and runs."""
    for name in SETTINGS:
        for run in range(10 if name == "reuters_moneyfx" else 3):
            for method in METHODS:
                key = {"data": name, "method": method, "run": run}
                if method != "SMO" or run == 0:
                    yield Case(key, functools.partial(curve, name, method, run))


def summarise(rows: list[Row]) -> Iterator[Row]:
    """The mean curves: their ends, where SBP is as good, and SBP after few changes."""
    for name, method in present(rows):
        own, sbp = (mean_curve(rows, name, each) for each in (method, "SBP"))
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
            error = float(errors_at(own, pairs))
            yield key | {"pairs": pairs, "error": error} | about


# Figure 3.


def on_features(name: str, pairs: int, run: int) -> Row:
    """The test error of the linear SVM on the first `pairs` pairs of features."""
    positive, variance, _ = SETTINGS[name]
    X, y, X_test, y_test = two_classes(name, positive)
    random, width = np.random.default_rng(run), np.sqrt(variance)
    frequencies = random.normal(0, 1 / width, (X.shape[1], pairs)).astype(np.float32)

    def features(X):
        angles = X @ frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], 1) / np.sqrt(
            np.float32(pairs)
        )

    solver = bj.DCD(penalty=1.0, fit_bias=False, tolerance=1e-2, seed=run)
    found = bj.solve(solver, features(X), y, max_steps=300)
    scores = features(X_test) @ np.asarray(found.model.weights)
    error = float(np.mean(np.where(scores > 0, 1, -1) != y_test))
    return {"error": error, "gap": float(found.history.gap[-1])}


def draw_figure_3(rows: list[Row], path: Path) -> None:
    """A panel per data set, with the curves of Figure 2."""
    curves = read(RESULTS / "papers/sbp_figure2.csv")
    sizes = {row["data"]: row["examples"] for row in curves}
    limits = {"reuters_moneyfx": (2, 8), "a9a": (14, 26), "mnist": (0, 11)}
    with drawing.panels(path, len(SETTINGS), size=(3.6, 3.2)) as (_, panels):
        for panel, name in zip(panels, SETTINGS, strict=True):
            n = sizes[name]
            changes = np.geomspace(4, 2 * n, 60)
            for method, style in (("SBP", "-"), ("SBP as written", "--")):
                errors = errors_at(mean_curve(curves, name, method), changes)
                panel.plot(changes * n, errors, style, label=method)
            found: dict[int, list[float]] = {}
            for row in rows:
                if row["data"] == name:
                    found.setdefault(row["pairs"], []).append(100 * row["error"])
            places = [n * pairs for pairs in found]
            means = [np.mean(errors) for errors in found.values()]
            panel.plot(places, means, "o--", label="Fourier features, linear SVM")
            panel.set(xscale="log", title=TITLES[name], ylim=limits[name])
            panel.set_xlabel("products of d numbers")
        panels[0].set_ylabel("test error, %")
        panels[-1].legend()


def pairs_of_features() -> Iterator[Case]:
    """All sets, numbers of pairs and runs."""
    pairs = [2**i for i in range(11)]
    return product(on_features, data=SETTINGS, pairs=pairs, run=range(10))


# LIBSVM.

# Data, the class against the rest, sigma^2 and C.
PROBLEMS = {
    "a9a, C=1": ("a9a", None, 10.0, 1.0),
    "a9a, C=100": ("a9a", None, 100.0, 100.0),
    "mnist, C=1000": ("mnist", 8, 25.0, 1000.0),
}
# Solvers, their arguments, and the steps between two tests.
SOLVERS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "SBP": (bj.SBP, {}, 10),
    "SBP as written": (bj.SBP, AS_WRITTEN, 640),
    "SMO": (bj.SMO, {}, 10),
}
# The time limit of our solvers, as a multiple of SVC's time; mebibytes of kernel rows.
PATIENCE, KEPT = 0.6, 2000


def timed(
    solver: bj.Solver, every: int, data: tuple, limit: float
) -> list[tuple[float, float, float, int]]:
    """Seconds, test error, relative gap and vectors during the run."""
    X, y, X_test, y_test = data
    curve: list[tuple[float, float, float, int]] = []
    untimed = 0.0
    begin = time.process_time()

    def tested(state, primal, dual):
        nonlocal untimed
        seconds = time.process_time() - begin - untimed
        gap = abs(primal - dual) / abs(primal)
        if not curve or seconds >= 1.1 * curve[-1][0]:
            pause = time.process_time()
            model = solver.model(state, examples)
            error = error_of(model.predict(X_test), y_test)
            curve.append((seconds, error, gap, len(model.vectors)))
            untimed += time.process_time() - pause
        return (seconds > limit and state.num_updates > 0) or gap <= 1e-4

    examples = solver.read(X, y)
    state = timing.begin(solver, examples, bj.KernelCache(KEPT))
    while not tested(state, *map(float, objective(state, examples))):
        state = timing.advance(state, examples, every)
    return curve


def compare(name: str) -> Row:
    """SVC, then ours."""
    dataset, positive, variance, penalty = PROBLEMS[name]
    data = X, y, X_test, y_test = two_classes(dataset, positive)
    kernel = bj.RBF(1 / (2 * variance))
    machine = SVC(C=penalty, gamma=1 / (2 * variance), cache_size=KEPT)
    svc, svc_seconds = timing.spent(lambda: machine.fit(X, y))
    svc_error = error_of(svc.predict(X_test), y_test)
    of_svc = svc.support_vectors_, svc.dual_coef_[0], svc.intercept_[0]
    vectors, coefficients, bias = (jnp.asarray(part, jnp.float32) for part in of_svc)
    model = bj.KernelModel(kernel, vectors, coefficients, bias)
    slack = bj.slack_of(model, X, y)
    of_svc = {"seconds": svc_seconds, "error": svc_error}
    of_svc |= {"vectors": len(svc.support_), "slack": f"{slack:.3g}"}
    found: Row = {"examples": len(y), "SVC": of_svc}
    for method, (kind, arguments, every) in SOLVERS.items():
        more: Any = {"slack": slack} if kind is bj.SBP else {"penalty": penalty}
        solver = kind(kernel, **arguments, **more)
        _, compiling = timing.spent(lambda s=solver, e=every: timed(s, e, data, 0))
        curve = timed(solver, every, data, PATIENCE * svc_seconds)
        seconds, error, gap, vectors = curve[-1]

        def first(most: float, curve: list[tuple] = curve) -> float | str:
            """The first time the error is as low, as a fraction of SVC's time."""
            reached = [seconds for seconds, now, *_ in curve if now <= most]
            return reached[0] / svc_seconds if reached else "not reached"

        def after(part: float, curve: list[tuple] = curve) -> float | str:
            """The error after this part of SVC's time."""
            until = [row[1] for row in curve if row[0] <= part * svc_seconds]
            return until[-1] if until else ""

        found[method] = {
            "seconds": seconds,
            "error": error,
            "gap": gap,
            "ours / SVC": first(svc_error),
            "to 0.1 more": first(svc_error + 0.1),
            "error at quarter": after(0.25),
            "error at half": after(0.5),
            "vectors": vectors,
            "first call": compiling,
            "curve": [[round(value, 4) for value in point] for point in curve],
        }
    return found


# Forest.

FOREST, FOREST_ROWS = "covtype, class 2", 522_910


def forest() -> tuple[np.ndarray, ...]:
    """Raw features minus their medians, which changes no distance; split at random."""
    X, y = all_rows("covtype")
    X, y = X.astype(np.float32), np.where(y == 1, 1, -1)  # the second of seven classes
    X = X - np.median(X, axis=0)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:FOREST_ROWS], order[FOREST_ROWS:]
    return X[train], y[train], X[test], y[test]


def long_curve(minutes: float) -> Row:
    """Seconds, changes, vectors and test error during the run."""
    X, y, X_test, y_test = forest()
    solver = bj.SBP(bj.RBF(1 / (2 * 5000.0)), slack=7.62e-10)
    examples, seconds, points = solver.read(X, y), 0.0, []
    begin = time.monotonic()
    state = timing.begin(solver, examples, bj.KernelCache(KEPT))

    def look() -> None:
        model = state.solver.model(state, examples)
        error = round(error_of(model.predict(X_test), y_test), 2)
        changes = int(state.num_updates)
        points.append([round(seconds, 1), changes, len(model.vectors), error])
        print(points[-1], flush=True)

    while time.monotonic() < begin + 60 * minutes:
        state, more = timing.spent(lambda s=state: timing.advance(s, examples, 10))
        seconds += more
        if not points or seconds > 1.3 * points[-1][0]:
            look()
    look()
    return {
        "examples": len(y),
        "positive": float(np.mean(np.asarray(y) > 0)),
        "curve": points,
        "peak GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def draw_forest(rows: list[Row], path: Path) -> None:
    """The error against changes, labelled with the seconds."""
    (row,) = rows
    seconds, changes, _, error = np.array(row["curve"]).T
    with drawing.panels(path, 1, size=(4.6, 3.2)) as (_, [panel]):
        panel.plot(changes, error, "o-", label="SBP")
        panel.axhline(1.8, ls="--", color="0.4")
        panel.annotate("LIBSVM in the paper, 35 hours", (changes[0], 2.8), fontsize=8)
        panel.annotate(
            *(f"{seconds[-1]:,.0f} s", (changes[-1], error[-1]), (-8, -3)),
            **{"textcoords": "offset points", "ha": "right", "fontsize": 8},
        )
        panel.set(xscale="log", ylim=(0, None), xlabel="changes")
        panel.set_ylabel("test error, %")


def forests() -> Iterator[Case]:
    """One run, of some minutes."""
    (minutes,) = given("length", 20.0)
    yield Case({"data": FOREST, "method": "SBP"}, lambda: long_curve(minutes))


TASKS = {
    "figure2": Task(curves, draw_figure_2, summarise, KEEPS_PROGRAMS=True),
    "figure3": Task(pairs_of_features, draw_figure_3, KEEPS_PROGRAMS=True),
    "libsvm": Task(lambda: product(compare, data=PROBLEMS)),
    "forest": Task(forests, draw_forest),
}
