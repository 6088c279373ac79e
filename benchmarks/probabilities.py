"""Probabilities: log loss, Brier score and calibration, compared to scikit-learn's.

    python benchmarks/probabilities.py
    python benchmarks/probabilities.py --data letter --budgets 100 --seeds 1

The table compares `predict_proba` of `BudgetedKernelClassifier(budget)` to two
classifiers on `budget` Nystroem features with the same gamma: `CalibratedClassifierCV`
around `LinearSVC` with the same penalty, and `LogisticRegression`. Features are
standardised.

The Brier score is the mean squared distance of the probabilities from the row of 0 and
1 of the label, summed over the classes. The expected calibration error puts the largest
probability of each row into 15 bins of equally many rows, and is the mean distance of a
bin's mean from its fraction of correct predictions. Figures are means over the
classifiers' seeds; seconds are wall time of a second `fit`.

A run keeps the figures that the results file already holds; `--again` measures them
again.
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import measure
import numpy as np
import threadpoolctl
from default_classifier import PENALTY, load
from matplotlib import rc_context
from matplotlib.figure import Figure
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax import plots
from budgetjax.estimators import BudgetedKernelClassifier

DATA = ("usps", "letter", "ijcnn1", "a9a")
RESULTS = Path(__file__).parent / "results"
BINS = 15
OURS, SVC, LOGISTIC = "budgetjax", "calibrated LinearSVC", "LogisticRegression"


def models(X, budget: int, seed: int) -> dict[str, Any]:
    """The classifiers to compare."""

    def features():
        gamma = bj.default_gamma(X)
        return Nystroem(gamma=gamma, n_components=budget, random_state=seed)

    svc = LinearSVC(C=PENALTY, fit_intercept=False, dual="auto")
    return {
        OURS: BudgetedKernelClassifier(budget, random_state=seed),
        SVC: make_pipeline(features(), CalibratedClassifierCV(svc)),
        LOGISTIC: make_pipeline(features(), LogisticRegression(C=PENALTY)),
    }


def curve(chances, codes) -> tuple[np.ndarray, np.ndarray]:
    """The mean largest probability and the fraction correct, bin by bin."""
    return plots.reliability_curve(chances, codes, np.arange(chances.shape[1]), BINS)


def scores(chances, codes) -> dict[str, Any]:
    """Scores of the probabilities."""
    label = chances[np.arange(len(codes)), codes]
    # Both rivals can give a class the probability 0.
    logarithms = np.log(np.maximum(label, 1e-15))
    away = chances - np.eye(chances.shape[1])[codes]
    confidence, share = curve(chances, codes)
    return {
        "log loss": -float(np.mean(logarithms)),
        "Brier score": float(np.mean(np.sum(away**2, axis=1))),
        "calibration error": float(np.abs(confidence - share).mean()),
        "accuracy %": 100 * float(np.mean(chances.argmax(axis=1) == codes)),
    }


def measured(name: str, budget: int, seeds: int) -> list[dict[str, Any]]:
    """One row per classifier: means over the seeds."""
    data = load(name)
    codes = np.searchsorted(np.unique(data.y_train), data.y_test)
    # This compiles before the clock starts.
    models(data.X_train, budget, 0)[OURS].fit(data.X_train, data.y_train)
    found: dict[str, list[Any]] = {}
    curves = {}
    for seed in range(seeds):
        for kind, model in models(data.X_train, budget, seed).items():
            start = time.perf_counter()
            model.fit(data.X_train, data.y_train)
            seconds = time.perf_counter() - start
            chances = model.predict_proba(data.X_test)
            row = scores(chances, codes) | {"seconds": seconds}
            found.setdefault(kind, []).append(row)
            points = [part.tolist() for part in curve(chances, codes)]
            curves.setdefault(kind, points)
    return [
        {"data": name, "B": budget, "model": kind}
        | {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        | {"curve": curves[kind]}
        for kind, rows in found.items()
    ]


def draw(rows: list[dict[str, Any]], budget: int, path: Path) -> None:
    """Reliability: the fraction of correct predictions against the probability."""
    known = {row["data"] for row in rows if row["B"] == budget}
    names = [name for name in DATA if name in known]
    with rc_context(plots.STYLE):
        figure = Figure(figsize=(3.2 * len(names), 3.7), layout="constrained")
        title = f"{budget} vectors or components, {BINS} bins of equally many rows"
        figure.suptitle(title, x=0.01, ha="left")
        panels = figure.subplots(1, len(names), squeeze=False)[0]
        for panel, name in zip(panels, names, strict=True):
            curves = {
                row["model"]: row["curve"]
                for row in rows
                if (row["data"], row["B"]) == (name, budget)
            }
            plots.reliability(curves, axes=panel)
            panel.set_title(name)
        figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description="Probabilities")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--budgets", nargs="+", type=int, default=[100, 500])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="measure all anew")
    parser.add_argument("--output", type=Path, default=RESULTS / "probabilities.json")
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Threads that wait for each other slow down small factorisations.
    threadpoolctl.threadpool_limits(1, user_api="blas")
    known = []
    if given.output.exists():
        known = json.loads(given.output.read_text())["rows"]
    for budget in given.budgets:
        for name in given.data:
            key = {"data": name, "B": budget}
            same = [row for row in known if key.items() <= row.items()]
            if same and not given.again:
                continue
            known = [row for row in known if row not in same]
            known += measured(name, budget, given.seeds)
            measure.save(known, given.output)
    shown = [{k: v for k, v in row.items() if k != "curve"} for row in known]
    measure.show(shown)
    fewest = min(row["B"] for row in known)
    draw(known, fewest, given.output.with_name("reliability.png"))


if __name__ == "__main__":
    main()
