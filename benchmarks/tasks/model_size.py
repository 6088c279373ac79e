"""Test accuracy against the model file's bytes, with published small models.

Pegasos with merging chooses the support vectors, and `refit` learns coefficients and,
with a rank, a metric to that many features. `compact` keeps the arrays that predict,
and `save` writes them. No hyperparameter is tuned: gamma is `default_gamma`. The rows
come in one order, as in `tasks/accuracy.py`.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import drawing
import numpy as np
from data import load
from models import accuracy_of, empty, learned
from runner import Case, Row, product

import budgetjax as bj

BUDGETS = (10, 20, 50, 100, 200, 300, 500)
# Features to map to, from letter's 16 and usps's 256. Letter's are standardised.
RANKS: dict[str, tuple[int | bool, ...]] = {
    "letter": (False, 8, True),
    "usps": (False, 16, 32, 64),
}
NAMES: dict[int | bool, str] = {False: "none", True: "matrix"}
# Gupta et al. (2017), "ProtoNN: compressed and accurate kNN for resource-scarce
# devices", https://proceedings.mlr.press/v70/gupta17a.html.
PUBLISHED = {"letter": (63_000, 97.10), "usps": (64_000, 94.92)}


def sizes(name: str, budget: int) -> list[Row]:
    """Accuracy and bytes for every rank."""
    table = []
    data = load(name, standardise=name == "letter")
    order = np.random.default_rng(1).permutation(len(data.y_train))
    X, y = data.X_train[order], data.y_train[order]
    gamma, classes = bj.default_gamma(X), data.num_classes
    state = empty(bj.Pegasos(), X, budget, gamma, num_classes=classes)
    state = learned(state, X, y)
    for rank in RANKS[name]:
        model = bj.compact(bj.refit(state, X, y, learn_metric=rank, seed=1))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model")
            bj.save(path, model)
            size = path.stat().st_size
        table.append(
            {
                "metric": NAMES.get(rank, f"rank {rank}"),
                "bytes": size,
                "accuracy %": accuracy_of(model, data.X_test, data.y_test),
            }
        )
    return table


def draw(rows: list[Row], path: Path) -> None:
    """A panel for each data set, a line for each metric."""
    metrics = dict.fromkeys(row["metric"] for row in rows)
    names = {metric: f"metric, {metric}" for metric in metrics} | {"none": "refit"}
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2}
    with drawing.panels(path, len(RANKS), size=(4.2, 4.2)) as (_, panels):
        for panel, name in zip(panels, RANKS, strict=True):
            own = [row | {"kB": row["bytes"] / 1000} for row in rows]
            own = [row for row in own if row["data"] == name]
            drawing.plot(panel, own, "metric", "kB", "accuracy %", names=names)
            size, percent = PUBLISHED[name]
            panel.plot(size / 1000, percent, "k*", label="ProtoNN, published")
            panel.set(title=name, xlabel="kB of the model's file", xscale="log")
            panel.set_ylim(min(90, percent - 2), None)
            panel.legend(**below)
            panel.grid(alpha=0.3)
        panels[0].set_ylabel("test accuracy, %")


def cases() -> Iterator[Case]:
    """All sets and budgets."""
    return product(sizes, data=RANKS, B=BUDGETS)
