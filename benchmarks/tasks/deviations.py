"""How sure regressors are: coverage of intervals and density, beside scikit-learn's.

`BudgetedKernelRegressor` with its defaults is compared to `GaussianProcessRegressor` on
2,000 of the rows, with a Gaussian kernel of one width and white noise, whose parameters
maximise the likelihood; its columns are standardised and missing values are means.

Coverage is the share of test targets within an interval for 50, 80, 90 or 95 percent.
The log density of the targets is that of a Gaussian with the mean and deviation of each
row; widths of intervals for 90 percent, and errors, are divided by the deviation of the
targets.
"""

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from data import TEST_SHARE, Table, split
from models import rms
from runner import Case, Row, given, mean
from scipy import stats
from sklearn.datasets import make_friedman1
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from budgetjax.estimators import BudgetedKernelRegressor

# The last has known noise, the same everywhere.
DATA = ("diabetes", "cpusmall", "ames", "loans-6k", "wages-20k", "diamonds-10k")
DATA += ("flights-10k", "births-20k", "friedman")
LEVELS, ROWS, BUDGET = (50, 80, 90, 95), 2000, 100
OURS, PROCESS = "budgetjax", "GaussianProcessRegressor"


def table(name: str, seed: int) -> Table:
    """One split of a table."""
    if name != "friedman":
        return split(name, seed)
    X, y = make_friedman1(4000, noise=1.0, random_state=seed)
    first = round((1 - TEST_SHARE) * len(y))
    return Table(X[:first], y[:first], X[first:], y[first:], True)


def figures(y, mean, deviation, ends, unit: float) -> Row:
    """What is measured of the predictions of targets; `ends` has a pair per level."""
    density = stats.norm.logpdf((y - mean) / unit, scale=deviation / unit)
    covered = {
        f"{level} %": 100 * float(np.mean((low <= y) & (y <= high)))
        for level, (low, high) in ends.items()
    }
    low, high = ends[90]
    return {
        "RMSE": rms(y - mean) / unit,
        "log density": float(np.mean(density)),
        **covered,
        "width": float(np.mean(high - low)) / unit,
    }


def gaussian(mean, deviation) -> dict[int, Any]:
    """The ends of the intervals of Gaussians."""
    widths = {level: stats.norm.ppf((1 + level / 100) / 2) for level in LEVELS}
    return {
        level: (mean - width * deviation, mean + width * deviation)
        for level, width in widths.items()
    }


def ours(data: Table, seed: int) -> Row:
    """The row of the estimator."""
    model = BudgetedKernelRegressor(BUDGET, random_state=seed)
    model.fit(data.X_train, data.y_train)
    y, unit = data.y_test, float(np.std(data.y_test))
    mean, deviation = model.predict(data.X_test, return_std=True)
    ends = {
        level: model.predict_interval(data.X_test, level / 100).T for level in LEVELS
    }
    return {"model": OURS, **figures(y, mean, deviation, ends, unit)}


def process(data: Table, seed: int) -> Row:
    """The row of the Gaussian process."""
    prepare = make_pipeline(SimpleImputer(), StandardScaler()).fit(data.X_train)
    rows = np.random.default_rng(seed).permutation(len(data.y_train))[:ROWS]
    kernel = ConstantKernel() * RBF(data.X_train.shape[1] ** 0.5) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True)
    model.fit(prepare.transform(data.X_train[rows]), data.y_train[rows])
    mean, deviation = model.predict(prepare.transform(data.X_test), return_std=True)
    y, unit = data.y_test, float(np.std(data.y_test))
    found = figures(y, mean, deviation, gaussian(mean, deviation), unit)
    return {"model": PROCESS, **found}


def measured(name: str, seeds: int) -> list[Row]:
    """One row per model: means over the splits."""
    found: dict[str, list[Row]] = {}
    for seed in range(seeds):
        data = table(name, seed)
        sizes = {"rows": len(data.y_train), "test rows": len(data.y_test)}
        data = data._replace(
            y_train=np.asarray(data.y_train, float),
            y_test=np.asarray(data.y_test, float),
        )
        for row in (ours(data, seed), process(data, seed)):
            found.setdefault(row["model"], []).append(row | sizes)
    return [mean(rows) for rows in found.values()]


def prepare() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)


def cases() -> Iterator[Case]:
    """All tables."""
    (seeds,) = given("seeds", 1)
    for name in DATA:
        key = {"data": name, "B": BUDGET}
        yield Case(key, functools.partial(measured, name, seeds))
