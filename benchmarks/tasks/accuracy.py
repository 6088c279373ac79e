"""Test accuracy of every learner, of refits and of scikit-learn on a budget.

Online learners make one pass over the training data. A sweep chooses the
hyperparameters of each method, data set and budget on a held-out part, the last fifth
of a fixed shuffle of the training data (of at most 20,000 rows). Whether to standardise
the features is chosen there too, once per data set, with Pegasos and `Merge`. Then the
method learns the whole training part in three orders, in one if it has more than
200,000 rows. A learner that averages is judged twice, by its last iterate and by the
average over the second half of the stream, each with its own hyperparameters. The test
part is used for the table only. Gamma is in units of one over the total variance.
Some methods also have a larger budget, and some of these more data sets.

Fields of its own: `orders`, `most` (rows to tune on).
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import numpy as np
from data import BINARY, GAMMAS, gammas_of, load, parts_of
from methods import FITS, ONLINE, Task, tested, tested_fit, tuned, tuned_fit
from runner import Case, Row, given, product

TUNING_ROWS, MANY_ROWS, ORDERS = 20_000, 200_000, 3
DATA = ("letter", "usps", "ijcnn1", "checkerboard", "covtype-100k", "a9a")
# More sets, and what learns them.
PUBLISHED = ("banana", "pendigits", "satimage", "shuttle", "covtype")
BEST = ("AROW", "Pegasos, merge, metric")
# What the picture shows.
SHOWN = {
    "Pegasos, remove random": "removal at random",
    "Pegasos, merge": "merging",
    "AROW": "AROW",
    "Pegasos, merge, refit": "refit",
    "Pegasos, merge, refit, vectors moved": "refit that moves the vectors",
    "Pegasos, merge, metric": "refit with a metric",
    "scikit-learn Nystroem, LinearSVC": "Nystroem, LinearSVC",
}
# Methods without a budget, and their lines.
FULL = {
    "scikit-learn SVC": ("SVC on all rows", ":"),
    "scikit-learn HistGradientBoosting": ("HistGradientBoosting", "--"),
}
TICKS = (0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 50)
# Panels side by side.
PANELS = 3


@functools.lru_cache(1)
def scaled(name: str) -> tuple[Any, bool]:
    """The data, standardised if that is better on held-out rows."""
    found = {}
    for standardise in (True, False):
        data = load(name, standardise)
        task = Task(data.X_train.shape[1], data.num_classes, 100, len(data.y_train))
        gammas = gammas_of(data, GAMMAS[name])
        parts = parts_of(data, TUNING_ROWS)
        best = tuned(ONLINE["Pegasos, merge"], task, gammas, parts)
        found[standardise] = best["last"]["held out"], data
    standardise = found[True][0] <= found[False][0]
    return found[standardise][1], standardise


def measured(
    name: str,
    budget: int,
    label: str,
    orders: int | None = None,
    most: int = TUNING_ROWS,
) -> list[Row]:
    """A row, or for a learner that averages one for each model."""
    data, standardise = scaled(name)
    n, d = data.X_train.shape
    orders = orders or (1 if n > MANY_ROWS else ORDERS)
    parts, gammas = parts_of(data, most), gammas_of(data, GAMMAS[name])
    task = Task(d, data.num_classes, budget, n)
    if label in FITS:
        found = {"last": tuned_fit(FITS[label], task, gammas, parts)}
        errors, notes = tested_fit(FITS[label], task, found["last"], data, orders)
        every = {"last": errors}
    else:
        found = tuned(ONLINE[label], task, gammas, parts)
        every = tested(ONLINE[label], task, found, data, orders)
        notes = {}
    several = len(every["last"]) > 1
    return [
        {
            "standardised": standardise,
            "model": kind,
            "accuracy %": 100 - float(np.mean(errors)),
            **({"deviation": float(np.std(errors))} if several else {}),
            "held out %": 100 - found[kind]["held out"],
            "chosen": found[kind]["chosen"],
            **notes,
        }
        for kind, errors in every.items()
    ]


def cases() -> Iterator[Case]:
    """Every method with 100 vectors, and some with 500 and on more sets."""
    own = *given("orders", None), *given("most", TUNING_ROWS)
    run = functools.partial(measured, orders=own[0], most=own[1])
    whole = [label for label, fit in FITS.items() if not fit.budgeted]
    every = [label for label in (*ONLINE, *FITS) if label not in whole]
    for name in DATA:
        takes = [m for m in every if m != "Forgetron" or name in BINARY]
        yield from product(run, data=(name,), B=(100,), method=takes)
    yield from product(run, data=DATA, B=(0,), method=whole)
    yield from product(run, data=DATA, B=(500,), method=SHOWN)
    yield from product(run, data=PUBLISHED, B=(100, 500), method=BEST)


def draw(rows: list[Row], path: Path) -> None:
    """Errors of last iterates against the budget; the whole SVM and trees are lines."""
    last = [row for row in rows if row["model"] == "last"]
    full = {(row["data"], row["method"]): 100 - row["accuracy %"] for row in last}
    height = -(-len(DATA) // PANELS)
    with drawing.panels(path, PANELS, height, (3.6, 3.3)) as (figure, panels):
        for panel, name in zip(panels, DATA, strict=False):
            own = [row for row in last if row["data"] == name]
            lines = [[row for row in own if row["method"] == label] for label in SHOWN]
            for line in filter(None, lines):
                panel.errorbar(
                    [row["B"] for row in line],
                    [100 - row["accuracy %"] for row in line],
                    [row.get("deviation", 0) for row in line],
                    color=f"C{list(SHOWN).index(line[0]['method'])}",
                    label=SHOWN[line[0]["method"]],
                    **{"marker": ".", "capsize": 2},
                )
            for method, (label, dashes) in FULL.items():
                if (name, method) in full:
                    error = full[name, method]
                    panel.axhline(error, color="black", linestyle=dashes, label=label)
            budgets = sorted({row["B"] for line in lines for row in line})
            panel.set(title=name, xlabel="budget", xscale="log", yscale="log")
            panel.set_xticks(budgets, budgets)
            panel.minorticks_off()
            low, high = panel.get_ylim()
            panel.set_yticks([tick for tick in TICKS if low <= tick <= high])
            panel.yaxis.set_major_formatter("{x:g}")
        for panel in panels[::PANELS]:
            panel.set_ylabel("test error, %")
        drawing.legend(figure, panels)
