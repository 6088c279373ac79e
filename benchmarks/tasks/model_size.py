"""Test accuracy against the model file's bytes, with published small models.

Pegasos with merging chooses the support vectors, and `refit` learns coefficients and,
with a rank, a metric to that many features. `compact` keeps the arrays that predict,
and `save` writes them. No hyperparameter is tuned: gamma is `default_gamma`. The rows
come in one order, as in `tasks/accuracy.py`.
"""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from data import load
from matplotlib.figure import Figure
from runner import Case, Row

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


def sizes(name: str, budget: int) -> Iterator[Row]:
    """Accuracy and bytes for every rank."""
    data = load(name, standardise=name == "letter")
    order = np.random.default_rng(1).permutation(len(data.y_train))
    X, y = data.X_train[order], data.y_train[order]
    state = bj.Pegasos().init(
        bj.RBF(bj.default_gamma(X)),
        num_features=X.shape[1],
        num_classes=data.num_classes,
        budget=budget,
    )
    state, _ = bj.run(state, X, y)
    for rank in RANKS[name]:
        model = bj.compact(bj.refit(state, X, y, learn_metric=rank, seed=1))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "model")
            bj.save(path, model)
            size = path.stat().st_size
        right = np.asarray(bj.predict(model, data.X_test)) == data.y_test
        yield {
            "metric": NAMES.get(rank, f"rank {rank}"),
            "bytes": size,
            "accuracy %": 100 * float(np.mean(right)),
        }


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """A panel for each data set, a line for each metric."""
    names = list(dict.fromkeys(row["data"] for row in rows))
    figure = Figure(figsize=(4.2 * len(names), 4.2), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        own = [row for row in rows if row["data"] == name]
        for metric in dict.fromkeys(row["metric"] for row in own):
            line = [row for row in own if row["metric"] == metric]
            label = "refit" if metric == "none" else f"metric, {metric}"
            panel.plot(
                [row["bytes"] / 1000 for row in line],
                [row["accuracy %"] for row in line],
                marker=".",
                label=label,
            )
        size, percent = PUBLISHED[name]
        panel.plot(size / 1000, percent, "k*", label="ProtoNN, published")
        panel.set(title=name, xlabel="kB of the model's file", xscale="log")
        panel.set_ylim(min(90, percent - 2), None)
        below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.17), "ncols": 2}
        panel.legend(frameon=False, **below)
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("test accuracy, %")
    figure.savefig(path, dpi=130)


def cases() -> Iterator[Case]:
    """All sets and budgets."""
    for name in RANKS:
        for budget in BUDGETS:
            key = {"data": name, "B": budget}
            yield Case(key, lambda n=name, b=budget: list(sizes(n, b)))
