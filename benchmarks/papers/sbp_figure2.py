"""Test error of kernel SVM solvers against kernel evaluations: Fig. 2 of the SBP paper.

    python benchmarks/papers sbp_figure2

Cotter, Shalev-Shwartz and Srebro (2012) compare the Stochastic Batch Perceptron with
Pegasos, SDCA, SMO and the Perceptron on reuters, a9a (Adult) and MNIST, 8 against the
rest, with the parameters of their Table 2 and without a bias, for ten epochs. A kernel
evaluation is counted as they do, n for each change of a coefficient, though rows that
are kept are not computed again; `computed` in the results is what was. Errors are means
over three seeds, of draws and orders; SMO has none. A method may not change anything at
some example: Pegasos, SDCA and the Perceptron stop after 10 n examples, the others
after 10 n changes. A run replaces its own rows of the results and keeps the rest.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import measure
import numpy as np
from tqdm import tqdm

import budgetjax as bj
from budgetjax import datasets
from budgetjax.solvers.kernel import hinge_dual

RESULTS = measure.RESULTS / "papers"
# Data: the class against the rest, or None; sigma^2 and nu, of Table 2.
SETTINGS = {
    "reuters_moneyfx": (None, 0.5, 6.34e-4),
    "a9a": (None, 10.0, 1.10e-2),
    "mnist": (8, 25.0, 2.21e-4),
}
TITLES = {"reuters_moneyfx": "Reuters", "a9a": "Adult", "mnist": "MNIST, 8 vs. rest"}
METHODS = ("SBP", "Pegasos", "SDCA", "SMO", "Perceptron")
EPOCHS = 10
POINTS = 40
# Mebibytes of kernel rows: all that are ever needed of MNIST.
CACHE = 3000.0
TEST_BLOCK = 1024
# Maximum number of examples whose rows are all computed at once: those of Reuters, of
# 8,315 features, cost more singly.
AFFORDABLE = 10_000


class Data(NamedTuple):
    """A problem of two classes, and the kernel values of its test part."""

    kernel: bj.Kernel
    X: np.ndarray
    y: np.ndarray
    test: np.ndarray
    y_test: np.ndarray


def data_of(name: str) -> Data:
    """Raw features, but for bytes, which become 0 to 1."""
    data = datasets.load(name, standardise=False)
    positive, variance, _ = SETTINGS[name]
    scale = np.float32(255 if name == "mnist" else 1)
    X, X_test = data.X_train / scale, data.X_test / scale
    labels = [data.y_train, data.y_test]
    if positive is not None:
        labels = [np.where(y == positive, 1, -1) for y in labels]
    kernel = bj.RBF(1 / (2 * variance))
    gram = jax.jit(kernel.gram)
    test = np.empty((len(X_test), len(X)), np.float32)
    for start in range(0, len(X_test), TEST_BLOCK):
        rows = X_test[start : start + TEST_BLOCK]
        test[start : start + TEST_BLOCK] = gram(rows, X)
    return Data(kernel, X, labels[0], test, labels[1])


def perceptron(order: np.ndarray) -> bj.Solver:
    """The Perceptron, again and again in one order."""

    def step(state, X, y):
        batch = jnp.arange(state.rows.batch.value, dtype=jnp.int32)
        drawn = jnp.asarray(order)[(state.num_visits + batch) % len(order)]

        def mistake(coefficient, response, diagonal, limit, count):
            return (response <= 0).astype(response.dtype)

        return hinge_dual.visit(state, X, y, drawn, mistake)

    none = jnp.array(-jnp.inf)

    def objective(state, X, y):
        return bj.Objective(jnp.mean(state.responses <= 0, dtype=X.dtype), none)

    return dataclasses.replace(bj.sdca, step=step, objective=objective)


def curve(name: str, method: str, seed: int, data: Data) -> list[tuple]:
    """Changes, test error, kernel values computed, and seconds, at growing numbers."""
    n = len(data.y)
    algorithm, given = {
        "SBP": (
            bj.sbp,
            {
                "slack": SETTINGS[name][2],
                "fit_bias": False,
                "batch_size": 16,
                "seed": seed,
            },
        ),
        "Pegasos": (bj.kernel_pegasos, {"seed": seed}),
        "SDCA": (bj.sdca, {"seed": seed}),
        "SMO": (bj.smo, {"fit_bias": False, "batch_size": 1}),
        "Perceptron": (None, {}),
    }[method]
    if algorithm is None:
        order = np.random.default_rng(seed).permutation(n).astype(np.int32)
        algorithm = perceptron(order)
    given["cache_size"] = None if n <= AFFORDABLE else CACHE
    state = algorithm.init(data.X, data.y, kernel=data.kernel, **given)
    points = np.unique(np.geomspace(4, EPOCHS * n, POINTS).astype(int))
    rows, clock = [], [0.0, time.perf_counter()]

    def callback(state, record):
        changes = int(state.num_updates)
        last = rows[-1][0] if rows else 0
        if changes >= min([*points[points > last], EPOCHS * n]):
            clock[0] += time.perf_counter() - clock[1]
            # Neither scale nor bias matters for the sign.
            model = getattr(state, "mean_coefficients", state.coefficients)
            scores = data.test @ (np.asarray(model) * data.y.astype(np.float32))
            error = float(np.mean(np.where(scores > 0, 1, -1) != data.y_test))
            rows.append((changes, error, record.work, clock[0]))
            clock[1] = time.perf_counter()
        return max(int(getattr(state, "num_visits", 0)), changes) >= EPOCHS * n

    # Often at first, and more rarely when the curve is long.
    for every in (1, 4, 16, 64, 256):
        state = bj.solve(
            algorithm,
            data.X,
            data.y,
            state=state,
            max_steps=64 * every if every < 256 else 10**9,
            # SMO ends by itself; the others never do.
            tolerance=1e-5,
            callback_every=every,
            callback=callback,
        ).state
    return rows


def mean_curve(curves: list[list[tuple]]) -> tuple[np.ndarray, np.ndarray]:
    """The mean error at the points that all curves have reached."""
    start = max(rows[0][0] for rows in curves)
    end = min(rows[-1][0] for rows in curves)
    points = np.unique(np.geomspace(start, end, POINTS).astype(int))
    errors = []
    for rows in curves:
        changes, error = np.array(rows)[:, :2].T
        # The last model tested at or before each point.
        errors.append(error[np.searchsorted(changes, points, side="right") - 1])
    return points, np.mean(errors, axis=0)


def ahead(rows: list[dict[str, Any]]) -> None:
    """Prints in how much of the range that all share SBP is as good as each rival."""
    for name in SETTINGS:
        curves = {row["method"]: row for row in rows if row["data"] == name}
        for method in METHODS[1:]:
            if not {"SBP", method} <= curves.keys():
                continue
            pair = curves["SBP"], curves[method]
            changes = [np.array(row["changes"]) for row in pair]
            start, end = max(c[0] for c in changes), min(c[-1] for c in changes)
            grid = np.geomspace(start, end, 200)
            ours, theirs = (
                np.interp(np.log(grid), np.log(c), row["error"])
                for c, row in zip(changes, pair, strict=True)
            )
            share = np.mean(ours <= theirs)
            print(
                f"{name}: SBP as good as {method} in {share:.0%} of the range, in "
                f"decades, from {start:,} to {end:,} changes"
            )


def draw(rows: list[dict[str, Any]], output: Path) -> None:
    """One panel per data set, error against kernel evaluations."""
    names = [name for name in SETTINGS if any(row["data"] == name for row in rows)]
    figure, axes = plt.subplots(
        1, len(names), figsize=(4.2 * len(names), 3.6), squeeze=False
    )
    limits = {"reuters_moneyfx": (2, 8), "a9a": (14, 26), "mnist": (0, 5)}
    styles = dict(zip(METHODS, ("-", "--", "-.", ":", "-"), strict=True))
    widths = dict(zip(METHODS, (2, 1.3, 1.3, 1.8, 0.8), strict=True))
    for axis, name in zip(axes[0], names, strict=True):
        for row in rows:
            if row["data"] == name:
                x = np.array(row["changes"]) * row["examples"]
                y = 100 * np.array(row["error"])
                method = row["method"]
                axis.plot(x, y, styles[method], linewidth=widths[method], label=method)
        axis.set(
            xscale="log", title=TITLES[name], ylim=limits[name],
            xlabel="kernel evaluations",
        )  # fmt: skip
    axes[0, 0].set_ylabel("test error (%)")
    axes[0, 0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(output, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--methods", nargs="*", choices=METHODS, default=METHODS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path, default=RESULTS / "sbp_figure2.json")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if arguments.output.exists():
        rows = json.loads(arguments.output.read_text())["rows"]
    todo = [(name, method) for name in arguments.data for method in arguments.methods]
    for name, method in tqdm(todo):
        data = data_of(name)
        seeds = range(1 if method == "SMO" else arguments.runs)
        curves = [curve(name, method, seed, data) for seed in seeds]
        points, errors = mean_curve(curves)
        last = curves[0][-1]
        rows = [row for row in rows if (row["data"], row["method"]) != (name, method)]
        rows.append(
            {
                "data": name,
                "method": method,
                "examples": len(data.y),
                "runs": len(curves),
                "changes": points.tolist(),
                "error": errors.round(5).tolist(),
                "computed": last[2],
                "seconds": round(last[3], 1),
            }
        )
        tqdm.write(
            f"{name} {method}: error {100 * errors[-1]:.2f} % after {points[-1]:,} "
            f"changes, {last[2]:.2g} kernel values computed, {last[3]:.1f} s"
        )
        jax.clear_caches()
        measure.save(rows, arguments.output)
    ahead(rows)
    draw(rows, arguments.output.with_suffix(".png"))


if __name__ == "__main__":
    main()
