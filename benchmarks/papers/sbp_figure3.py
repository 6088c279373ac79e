"""Test error of SBP and of random Fourier features against d-dimensional products.

Figure 3 of Cotter, Shalev-Shwartz and Srebro (2012): k pairs of random Fourier features
(`cos` and `sin` of the same frequency) cost k products of d numbers per training
example, as k kernel values do. So k pairs compare to SBP after k changes. The error of
the features is that of the optimal linear SVM on them, whose own cost is not counted:
`budgetjax.DCD` to a relative gap of 1 percent, C = 1, no bias. SBP's curve is that of
`sbp_figure2`, which must run first. Both are means over all runs in the results; the
paper has ten. It takes six minutes.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from data import two_classes
from matplotlib import pyplot
from runner import RESULTS, Case, Row, read

import budgetjax as bj
from papers import sbp_figure2

KEEPS_PROGRAMS = True
# Data: the class against the rest, or None; sigma^2 from Table 2.
SETTINGS = {"reuters_moneyfx": (None, 0.5), "a9a": (None, 10.0), "mnist": (8, 25.0)}
TITLES = {"reuters_moneyfx": "Reuters", "a9a": "Adult", "mnist": "MNIST, 8 vs. rest"}
LIMITS = {"reuters_moneyfx": (2, 8), "a9a": (14, 26), "mnist": (0, 11)}
PENALTY, TOLERANCE, PASSES = 1.0, 1e-2, 300
PAIRS = tuple(2**i for i in range(11))
# Of training.
ROWS = {"reuters_moneyfx": 7770, "a9a": 32_561, "mnist": 60_000}


def measured(name: str, pairs: int, run: int) -> dict[str, Any]:
    """The test error of the linear SVM on the first `pairs` pairs of features."""
    X, y, X_test, y_test = two_classes(name, SETTINGS[name][0])
    random = np.random.default_rng(run)
    width = np.sqrt(SETTINGS[name][1])
    frequencies = random.normal(0, 1 / width, (X.shape[1], pairs)).astype(np.float32)

    def features(X):
        angles = X @ frequencies
        return np.concatenate([np.cos(angles), np.sin(angles)], 1) / np.sqrt(
            np.float32(pairs)
        )

    solver = bj.DCD(penalty=PENALTY, fit_bias=False, tolerance=TOLERANCE, seed=run)
    found = bj.solve(solver, features(X), y, max_steps=PASSES)
    weights = np.asarray(found.model.weights)
    predicted = np.where(features(X_test) @ weights > 0, 1, -1)
    return {
        "error": float(np.mean(predicted != y_test)),
        "gap": float(found.history.gap[-1]),
    }


def mean_errors(rows: list[dict[str, Any]], name: str) -> dict[int, tuple[float, int]]:
    """The mean error and the number of runs, by pairs."""
    found = {}
    for pairs in PAIRS:
        errors = [
            row["error"] for row in rows if (row["data"], row["pairs"]) == (name, pairs)
        ]
        if errors:
            found[pairs] = float(np.mean(errors)), len(errors)
    return found


def of_sbp(name: str, method: str, changes: Any) -> np.ndarray:
    """SBP's error after each number of changes, from the results of `sbp_figure2`."""
    rows = read(RESULTS / "papers/sbp_figure2.csv")
    own = sbp_figure2.together(rows, name, method)
    return np.interp(np.log(changes), np.log(own["changes"]), own["error"])


def draw(rows: list[Row], path: Path) -> None:
    """A panel per data set."""
    names = [name for name in SETTINGS if mean_errors(rows, name)]
    with matplotlib.rc_context(bj.plots.STYLE):
        figure, panels = pyplot.subplots(
            1, len(names), figsize=(3.6 * len(names), 3.2), squeeze=False,
            layout="constrained",
        )  # fmt: skip
        for panel, name in zip(panels[0], names, strict=True):
            n = ROWS[name]
            changes = np.geomspace(4, 2 * n, 60)
            for method, style in (("SBP", "-"), ("SBP as written", "--")):
                error = 100 * of_sbp(name, method, changes)
                panel.plot(changes * n, error, style, label=method)
            found = mean_errors(rows, name)
            panel.plot(
                [pairs * n for pairs in found],
                [100 * error for error, _ in found.values()],
                "o--",
                label="Fourier features, linear SVM",
            )
            panel.set(
                xscale="log", title=TITLES[name], ylim=LIMITS[name],
                xlabel="products of d numbers",
            )  # fmt: skip
        panels[0, 0].set_ylabel("test error, %")
        panels[0, -1].legend()
        figure.savefig(path)
        pyplot.close(figure)


def cases() -> Iterator[Case]:
    """All sets, numbers of pairs and runs."""
    for name in SETTINGS:
        for pairs in PAIRS:
            for run in range(10):
                key = {"data": name, "pairs": pairs, "run": run}
                yield Case(key, functools.partial(measured, name, pairs, run))
