"""River's streams: rows per second and progressive accuracy, with river's learners.

`evaluate.progressive_val_score` predicts every row and then learns it, in time order.
All learners have their default parameters, budgetjax's with 100 support vectors, and a
`StandardScaler` precedes all except the trees. The rows "gamma chosen" try 1/4, 1, 4
and 16 times the default gamma on the first fifth of the rows. Accuracies are measured
on all rows and on the last four fifths. Times are processor seconds without
compilation, and include river's own scaling and counting. BUDGETJAX_DATA names a folder
with electricity.
"""

import functools
import runpy
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from river import (
    datasets,
    evaluate,
    forest,
    linear_model,
    metrics,
    neighbors,
    preprocessing,
)
from river.datasets import synth
from runner import Case, Row, product

import budgetjax as bj
from budgetjax.datasets import load
from budgetjax.river import BudgetedClassifier

BUDGET = 100
FACTORS = (0.25, 1, 4, 16)
Rows = list[tuple[dict[Any, Any], Any]]


def listed(X: np.ndarray, y: np.ndarray) -> Rows:
    """Rows with labels -1 and +1; river's linear models do not take -1."""
    rows, y = X.astype(float).tolist(), y > 0
    return [
        (dict(enumerate(x)), label) for x, label in zip(rows, y.tolist(), strict=True)
    ]


def electricity() -> Rows:
    data = load("electricity")
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    return listed(X[:10_000], y[:10_000])


def turning() -> Rows:
    example = Path(__file__).parents[2] / "examples" / "drift.py"
    stream = runpy.run_path(str(example))["rotating"](9_000, seed=0)
    return listed(stream.X, stream.y)


def jump(before: Any, after: Any) -> Rows:
    """A stream that changes into another within about 500 rows in the middle."""
    stream = synth.ConceptDriftStream(before, after, seed=0, position=2_500, width=500)
    return list(stream.take(5_000))


def centres() -> Rows:
    """Four classes of 50 centres that move."""
    moving = {"n_classes": 4, "change_speed": 0.002, "n_drift_centroids": 50}
    return list(synth.RandomRBFDrift(0, 0, **moving).take(5_000))


# What makes the rows, and their known drift.
STREAMS: dict[str, tuple[Callable[[], Rows], str]] = {
    "Phishing": (lambda: list(datasets.Phishing()), ""),
    "Bananas": (lambda: list(datasets.Bananas()), ""),
    "ImageSegments": (lambda: list(datasets.ImageSegments()), ""),
    "electricity": (electricity, "real"),
    "SEA": (
        lambda: jump(synth.SEA(0, 0.1, seed=0), synth.SEA(2, 0.1, seed=1)),
        "one change",
    ),
    "Agrawal": (lambda: jump(synth.Agrawal(0, 0), synth.Agrawal(5, 1)), "one change"),
    "RandomRBFDrift": (centres, "all the time"),
    "turning checkerboard": (turning, "in the middle third"),
}


def scaled(model: Any) -> Any:
    return preprocessing.StandardScaler() | model


def ours(learner: bj.Learner, gamma: float | None = None) -> Callable[[bool], Any]:
    given = {"budget": BUDGET, "gamma": gamma}
    return lambda several: scaled(BudgetedClassifier(learner, **given))


def logistic(several: bool) -> Any:
    kinds = linear_model.LogisticRegression, linear_model.SoftmaxRegression
    return scaled(kinds[several]())


LEARNERS: dict[str, Callable[[bool], Any]] = {
    "AROW": ours(bj.AROW()),
    "logistic regression": logistic,
    "nearest neighbours": lambda several: scaled(neighbors.KNNClassifier()),
    "adaptive random forest": lambda several: forest.ARFClassifier(seed=0),
}


def scored(model: Any, rows: Rows) -> dict[str, float]:
    """The accuracies and rows per processor second."""
    fifth, validate = len(rows) // 5, evaluate.progressive_val_score
    start = time.process_time()
    parts = rows[:fifth], rows[fifth:]
    found = [validate(part, model, metrics.Accuracy()) for part in parts]
    seconds = time.process_time() - start
    first, rest = (100 * accuracy.get() for accuracy in found)
    return {
        "accuracy %": first / 5 + 4 * rest / 5,
        "after a fifth %": rest,
        "rows/s": len(rows) / seconds,
    }


def chosen(rows: Rows, learner: bj.Learner) -> dict[str, float]:
    """The learner with the gamma that predicts the first fifth of the rows best."""
    usual, fifth = 1 / len(rows[0][0]), rows[: len(rows) // 5]
    models = [ours(learner, gamma=f * usual)(False) for f in FACTORS]
    found = [scored(model, fifth)["accuracy %"] for model in models]
    best = FACTORS[int(np.argmax(found))]
    model = ours(learner, gamma=best * usual)(False)
    return scored(model, rows) | {"gamma": best * usual}


CHOSEN = {
    "AROW, gamma chosen": bj.AROW(),
    "AROW, drift=0.01, gamma chosen": bj.AROW(drift=0.01),
}


@functools.lru_cache(1)
def rows_of(name: str) -> Rows:
    return STREAMS[name][0]()


def measured(name: str, learner: str) -> Row:
    """The accuracy of a learner along a stream."""
    rows = rows_of(name)
    facts = {"rows": len(rows), "drift": STREAMS[name][1]}
    if learner in CHOSEN:
        return facts | chosen(rows, CHOSEN[learner])
    several = len({y for _, y in rows}) > 2
    # These rows have every label, so all programs are compiled.
    scored(LEARNERS[learner](several), rows[:500])
    return facts | scored(LEARNERS[learner](several), rows)


def cases() -> Iterator[Case]:
    """All streams and learners."""
    return product(measured, stream=STREAMS, learner=(*LEARNERS, *CHOSEN))
