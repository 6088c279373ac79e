"""The default classifier compared to scikit-learn's Nystroem with LinearSVC.

Only the budget is chosen: `BudgetedKernelClassifier(budget)` stands against a pipeline
of `Nystroem` with `budget` components and the same gamma, and `LinearSVC` with the same
penalty. Features are standardised. Seconds are processor seconds of all threads in a
second `fit`, which compiles nothing, with one thread for BLAS: the median of several
fits, taken in turn, or those of one that takes a minute. `table=order` has the training
rows in sorted orders, which `partial_fit` gets in parts.
"""

import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import numpy as np
import threadpoolctl
import timing
from data import shuffled
from models import accuracy, fit_in_parts, nystroem
from runner import Case, Row, product
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier

DATA = (
    *("pendigits", "satimage", "usps", "letter", "shuttle", "ijcnn1"),
    *("checkerboard", "a9a", "covtype-100k"),
)
SORTED = ("letter", "ijcnn1")
# What the picture shows.
SHOWN = {
    "default": "default classifier",
    "coefficients alone": "without a metric",
    "Nystroem, LinearSVC": "Nystroem, LinearSVC",
}
TICKS = (0.3, 1, 3, 10, 30, 100, 300)
PENALTY = 10.0
# Rows per call of a stream; fits that take turns, and the seconds after which there are
# no more.
PART, FITS, LONG = 500, 3, 60.0


def budgets(name: str, budget: int) -> Row:
    """Accuracy and seconds of a warm fit, also with new coefficients alone."""
    data = shuffled(name)
    X, y = data.X_train, data.y_train
    svm = LinearSVC(C=PENALTY, fit_intercept=False, dual="auto")

    def default(**given: Any):
        return BudgetedKernelClassifier(budget, random_state=0, **given).fit(X, y)

    def peer() -> Any:
        return nystroem(bj.default_gamma(X), budget, svm).fit(X, y)

    default()
    calls = {
        "default": default,
        "coefficients alone": lambda: default(learn_metric=False),
        "Nystroem, LinearSVC": peer,
    }
    found, spent = {}, {model: [] for model in calls}
    for _ in range(FITS):
        for model, call in calls.items():
            if sum(spent[model]) > LONG:
                continue
            found[model], seconds = timing.spent(call)
            spent[model].append(seconds)
    row: Row = {}
    for model, fitted in found.items():
        row[f"{model} %"] = accuracy(fitted.predict(data.X_test), data.y_test)
        row[f"{model} seconds"] = statistics.median(spent[model])
    return row


def orders(X: Any, y: Any) -> dict[str, Any]:
    """The rows in their order."""
    codes = np.unique(y, return_inverse=True)[1]
    related = [abs(np.corrcoef(x, codes)[0, 1]) if np.ptp(x) else 0 for x in X.T]
    clusters = MiniBatchKMeans(20, random_state=0).fit_predict(X)
    return {
        "shuffled": np.arange(len(X)),
        "by label": np.argsort(codes, kind="stable"),
        "by a feature": np.argsort(X[:, np.argmax(related)], kind="stable"),
        "by cluster": np.argsort(clusters, kind="stable"),
    }


def order(name: str, budget: int) -> list[Row]:
    """The accuracy of `partial_fit` on sorted streams."""
    data, table = shuffled(name), []
    kinds: Any = {"default": {}, "one pass, refit=False": {"refit": False}}
    X, y = data.X_train, data.y_train
    classes = np.unique(y)
    for shown, rows in orders(X, y).items():
        row: Row = {"order": shown}
        part = X[rows], y[rows]
        for kind, more in kinds.items():
            model = BudgetedKernelClassifier(budget, random_state=0, **more)
            fit_in_parts(model, *part, PART, classes=classes)
            row[f"{kind} %"] = accuracy(model.predict(data.X_test), data.y_test)
        table.append(row)
    return table


def draw(rows: list[Row], path: Path) -> None:
    """Accuracy against seconds: a panel for each set, from 100 to 500 vectors."""
    known = [row for row in rows if row["table"] == "budgets"]
    names = [name for name in DATA if sum(row["data"] == name for row in known) > 1]
    path, width = path.with_stem("seconds"), -(-len(names) // 2)
    with drawing.panels(path, width, 2, (9 / width, 2.3)) as (figure, panels):
        for panel, name in zip(panels, names, strict=False):
            own = [row for row in known if row["data"] == name]
            for color, (model, label) in zip(
                bj.plots.COLORS, SHOWN.items(), strict=False
            ):
                points = [(row[f"{model} seconds"], row[f"{model} %"]) for row in own]
                panel.plot(*zip(*points, strict=True), "-", color=color, label=label)
                for point, size in zip(points, (3, 7), strict=True):
                    panel.plot(*point, "o", color=color, markersize=size)
            panel.set(title=name, xscale="log")
            low, high = panel.get_xlim()
            panel.set_xticks([tick for tick in TICKS if low <= tick <= high])
            panel.xaxis.set_major_formatter("{x:g}")
            panel.minorticks_off()
        drawing.legend(figure, panels, "outside upper center")
        figure.supxlabel(
            "processor seconds of a fit with 100 (small) and 500 vectors (large)"
        )
        figure.supylabel("test accuracy, %")


def prepare() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Threads that wait for each other also use processor time.
    threadpoolctl.threadpool_limits(1, user_api="blas")


def cases() -> Iterator[Case]:
    """Budgets, and sorted rows of two sets."""

    def measured(table: str, name: str, budget: int) -> Row | list[Row]:
        return {"budgets": budgets, "order": order}[table](name, budget)

    yield from product(measured, table=("budgets",), data=DATA, B=(100, 500))
    yield from product(measured, table=("order",), data=SORTED, B=(100,))
