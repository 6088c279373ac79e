"""The default classifier compared to scikit-learn's Nystroem with LinearSVC.

Only the budget is chosen: `BudgetedKernelClassifier(budget)` stands against a pipeline
of `Nystroem` with `budget` components and the same gamma, and `LinearSVC` with the same
penalty. Features are standardised. Seconds are processor seconds of all threads in a
second `fit`, which compiles nothing, with one thread for BLAS: the median of several
fits, taken in turn.

Another table has one budget: "order" feeds the training rows to `partial_fit` in
sorted orders.
"""

import functools
import os
import statistics
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import threadpoolctl
from data import shuffled
from matplotlib.figure import Figure
from runner import Case, Row, given
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier

DATA = (
    *("pendigits", "satimage", "usps", "letter", "shuttle", "ijcnn1"),
    *("checkerboard", "a9a", "covtype-100k"),
)
# What the picture shows.
SHOWN = {
    "default": "default classifier",
    "coefficients alone": "without a metric",
    "Nystroem, LinearSVC": "Nystroem, LinearSVC",
}
TICKS = (0.3, 1, 3, 10, 30, 100, 300)
PENALTY = 10.0
# Rows per call of a stream, and fits that take turns.
PART, FITS = 500, 3


def peer(X, budget: int) -> Any:
    """scikit-learn's counterpart."""
    features = Nystroem(gamma=bj.default_gamma(X), n_components=budget, random_state=0)
    return make_pipeline(
        features, LinearSVC(C=PENALTY, fit_intercept=False, dual="auto")
    )


def seconds() -> float:
    """Processor seconds of this process."""
    times = os.times()
    return times.user + times.system


def timed(calls: dict[str, Callable[[], Any]], fits: int):
    """The last result of each call, and its median seconds; calls take turns."""
    found, spent = {}, {name: [] for name in calls}
    for _ in range(fits):
        for name, call in calls.items():
            start = seconds()
            found[name] = call()
            spent[name].append(seconds() - start)
    return found, {name: statistics.median(times) for name, times in spent.items()}


def accuracy(model, data) -> float:
    return 100 * float(np.mean(model.predict(data.X_test) == data.y_test))


def budgets(name: str, budget: int, fits: int) -> Iterator[dict[str, Any]]:
    """Accuracy and seconds of a warm fit, also with new coefficients alone."""
    data = shuffled(name)
    X, y = data.X_train, data.y_train

    def default(**given: Any):
        return BudgetedKernelClassifier(budget, random_state=0, **given).fit(X, y)

    default()
    calls = {
        "default": default,
        "coefficients alone": lambda: default(learn_metric=False),
        "Nystroem, LinearSVC": lambda: peer(X, budget).fit(X, y),
    }
    found, spent = timed(calls, fits)
    row: dict[str, Any] = {}
    for model, fitted in found.items():
        row |= {f"{model} %": accuracy(fitted, data), f"{model} seconds": spent[model]}
    yield row


def by_parts(budget: int, X, y, **given: Any) -> Any:
    """The classifier after a stream of several calls."""
    model = BudgetedKernelClassifier(budget, random_state=0, **given)
    for start in range(0, len(y), PART):
        part = slice(start, start + PART)
        model.partial_fit(X[part], y[part], classes=np.unique(y))
    return model


def averaged_sgd(budget: int, X, y, order) -> Any:
    """Averaged stochastic gradients on features of rows drawn from the whole stream."""
    features = Nystroem(
        gamma=bj.default_gamma(X), n_components=budget, random_state=0
    ).fit(X)
    model = SGDClassifier(average=True, random_state=0)
    for start in range(0, len(y), PART):
        part = order[start : start + PART]
        model.partial_fit(features.transform(X[part]), y[part], classes=np.unique(y))
    return make_pipeline(features, model)


def orders(data) -> dict[str, Any]:
    """The rows in their order."""
    X, codes = data.X_train, np.unique(data.y_train, return_inverse=True)[1]
    related = [abs(np.corrcoef(x, codes)[0, 1]) if np.ptp(x) else 0 for x in X.T]
    clusters = MiniBatchKMeans(20, random_state=0).fit_predict(X)
    return {
        "shuffled": np.arange(len(X)),
        "by label": np.argsort(codes, kind="stable"),
        "by a feature": np.argsort(X[:, np.argmax(related)], kind="stable"),
        "by cluster": np.argsort(clusters, kind="stable"),
    }


def order(name: str, budget: int, _: int) -> Iterator[dict[str, Any]]:
    """The accuracy of `partial_fit` on sorted streams."""
    data = shuffled(name)
    X, y = data.X_train, data.y_train
    for shown, rows in orders(data).items():
        part = X[rows], y[rows]
        yield {
            "order": shown,
            "default %": accuracy(by_parts(budget, *part), data),
            "one pass, refit=False %": accuracy(
                by_parts(budget, *part, refit=False), data
            ),
            "Nystroem, averaged SGD %": accuracy(
                averaged_sgd(budget, X, y, rows), data
            ),
        }


def draw(rows: list[Row], path: Path) -> None:
    """Accuracy against seconds: a panel for each set, from 100 to 500 vectors."""
    known = [row for row in rows if row["table"] == "budgets" and row["B"] <= 500]
    names = [name for name in DATA if sum(row["data"] == name for row in known) > 1]
    with matplotlib.rc_context(bj.plots.STYLE):
        figure = Figure(figsize=(9, 4.6), layout="constrained")
        panels = figure.subplots(2, -(-len(names) // 2), squeeze=False)
        for panel in panels.flat[len(names) :]:
            panel.remove()
        for panel, name in zip(panels.flat, names, strict=False):
            own = [row for row in known if row["data"] == name]
            for color, (model, label) in zip(
                bj.plots.COLORS, SHOWN.items(), strict=False
            ):
                line = [
                    [row[f"{model} {of}"] for row in own] for of in ("seconds", "%")
                ]
                panel.plot(*line, "-", color=color, label=label)
                for row, size in zip(own, (3, 7), strict=True):
                    at = row[f"{model} seconds"], row[f"{model} %"]
                    panel.plot(*at, "o", color=color, markersize=size)
            panel.set(title=name, xscale="log")
            low, high = panel.get_xlim()
            panel.set_xticks([tick for tick in TICKS if low <= tick <= high])
            panel.xaxis.set_major_formatter("{x:g}")
            panel.minorticks_off()
        figure.supxlabel(
            "processor seconds of a fit with 100 (small) and 500 vectors (large)"
        )
        figure.supylabel("test accuracy, %")
        handles, labels = panels[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3)
        figure.savefig(path.with_stem("seconds"), dpi=130)


def prepare() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Threads that wait for each other also use processor time.
    threadpoolctl.threadpool_limits(1, user_api="blas")


def cases() -> Iterator[Case]:
    """All budgets, and sorted rows where they are asked for."""
    for name in DATA:
        for budget in given("B", 100, 500, 1000):
            key = {"table": "budgets", "data": name, "B": budget}
            yield Case(key, functools.partial(rows_of, budgets, name, budget))
        key = {"table": "order", "data": name, "B": 100}
        yield Case(key, functools.partial(rows_of, order, name, 100), False)


def rows_of(table: Callable[..., Iterator[Row]], name: str, budget: int) -> list[Row]:
    """All rows of a table on a set."""
    return list(table(name, budget, FITS))
