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

import functools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import numpy as np
import threadpoolctl
from data import shuffled
from models import accuracy, nystroem
from runner import Case, Row, given, mean, product
from sklearn.calibration import CalibratedClassifierCV
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax import plots
from budgetjax.estimators import BudgetedKernelClassifier

DATA = ("usps", "letter", "ijcnn1", "a9a")
BUDGET, BINS, PENALTY = 100, 15, 10.0
OURS, SVC, LOGISTIC = "budgetjax", "calibrated LinearSVC", "LogisticRegression"


def models(X, budget: int, seed: int) -> dict[str, Any]:
    """The classifiers to compare."""
    gamma = bj.default_gamma(X)
    svc = LinearSVC(C=PENALTY, fit_intercept=False, dual="auto")
    return {
        OURS: BudgetedKernelClassifier(budget, random_state=seed),
        SVC: nystroem(gamma, budget, CalibratedClassifierCV(svc), seed),
        LOGISTIC: nystroem(gamma, budget, LogisticRegression(C=PENALTY), seed),
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
        "accuracy %": accuracy(chances.argmax(axis=1), codes),
    }


def measured(name: str, budget: int, seeds: int) -> list[Row]:
    """One row per classifier: means over the seeds."""
    data = shuffled(name)
    codes = np.searchsorted(np.unique(data.y_train), data.y_test)
    # This compiles before the clock starts.
    models(data.X_train, budget, 0)[OURS].fit(data.X_train, data.y_train)
    found: dict[str, list[Row]] = {}
    for seed in range(seeds):
        for kind, model in models(data.X_train, budget, seed).items():
            start = time.perf_counter()
            model.fit(data.X_train, data.y_train)
            row: Row = {"model": kind, "seconds": time.perf_counter() - start}
            chances = model.predict_proba(data.X_test)
            row |= scores(chances, codes)
            row["curve"] = [part.tolist() for part in curve(chances, codes)]
            found.setdefault(kind, []).append(row)
    # The curve is that of the first seed.
    return [mean(rows) for rows in found.values()]


def draw(rows: list[Row], path: Path) -> None:
    """Reliability: the fraction of correct predictions against the probability."""
    path = path.with_stem("reliability")
    with drawing.panels(path, len(DATA), size=(3.2, 3.7)) as (figure, panels):
        title = f"{BUDGET} vectors or components, {BINS} bins of equally many rows"
        figure.suptitle(title, x=0.01, ha="left")
        for panel, name in zip(panels, DATA, strict=True):
            own = [row for row in rows if row["data"] == name]
            plots.reliability({row["model"]: row["curve"] for row in own}, axes=panel)
            panel.set_title(name)


def prepare() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    # Threads that wait for each other slow down small factorisations.
    threadpoolctl.threadpool_limits(1, user_api="blas")


def cases() -> Iterator[Case]:
    """All sets."""
    run = functools.partial(measured, seeds=given("seeds", 3)[0])
    return product(run, data=DATA, B=(BUDGET,))
