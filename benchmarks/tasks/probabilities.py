"""Probabilities: log loss, Brier score and calibration, compared to scikit-learn's.

The table compares `predict_proba` of `BudgetedKernelClassifier(budget)` to two
classifiers on `budget` Nystroem features with the same gamma: `CalibratedClassifierCV`
around `LinearSVC` with the same penalty, and `LogisticRegression`. Features are
standardised.

The Brier score is the mean squared distance of the probabilities from the row of 0 and
1 of the label, summed over the classes. The expected calibration error puts the largest
probability of each row into 15 bins of equally many rows, and is the mean distance of a
bin's mean from its fraction of correct predictions. Figures are means over the
classifiers' seeds; seconds are wall time of a second `fit`.
"""

import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl
from data import shuffled
from matplotlib import rc_context
from matplotlib.figure import Figure
from runner import Case, Row, given
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
BINS, PENALTY = 15, 10.0
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
    data = shuffled(name)
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
        {"model": kind}
        | {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
        | {"curve": curves[kind]}
        for kind, rows in found.items()
    ]


def draw(rows: list[Row], path: Path) -> None:
    """Reliability: the fraction of correct predictions against the probability."""
    budget = min(row["B"] for row in rows)
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
        figure.savefig(path.with_name("reliability.png"), dpi=110)


def prepare() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Threads that wait for each other slow down small factorisations.
    threadpoolctl.threadpool_limits(1, user_api="blas")


def cases() -> Iterator[Case]:
    """All sets, with 100 vectors and with 500."""
    for budget in (100, 500):
        for name in DATA:
            (seeds,) = given("seeds", 3 if budget == 100 else 1)
            key = {"data": name, "B": budget}
            yield Case(key, lambda n=name, b=budget, s=seeds: measured(n, b, s))
