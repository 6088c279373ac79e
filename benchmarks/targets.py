"""One class, quantiles and several outputs, compared to what a user would pick instead.

    BUDGETJAX_DATA=... python benchmarks/targets.py

`--part one-class`: rows of one class of a data set are learned, and the test part has
the other classes too. `BudgetedOneClass` is compared to `SGDOneClassSVM` on `budget`
`Nystroem` features, with `nu` the same rate. Both have the same kernel, with
`default_gamma` of the training rows, or the factor times it. Figures are the area under
the ROC curve and the fraction of new rows of the same class below the threshold, whose
target is 5 percent.

`--part quantiles`: levels 0.1, 0.5 and 0.9, the mean pinball loss on the test part in
units of the targets' deviation, and the fraction of the targets below each.
`BudgetedKernelRegressor` is compared to `QuantileRegressor` on `Nystroem` features and
to `HistGradientBoostingRegressor`, which has one model per level and no budget.

`--part outputs`: one model for all outputs, and one model per output.

All data are standardised by their training part. Seconds are those of a fit, for
budgetjax the second of two in the same process, without compilation.
"""

import argparse
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import accuracy
import measure
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import QuantileRegressor, SGDOneClassSVM
from sklearn.metrics import mean_pinball_loss, r2_score, roc_auc_score
from sklearn.pipeline import make_pipeline

import budgetjax as bj
from budgetjax import datasets
from budgetjax.estimators import BudgetedKernelRegressor, BudgetedOneClass

RATE, LEVELS = 0.05, [0.1, 0.5, 0.9]
# The numbers of classes, in order.
CLASSES = {
    "letter": (1, 8, 20),
    "usps": (0, 3, 8),
    "satimage": (0, 2, 5),
    "shuttle": (0,),
    "pendigits": (1, 5),
}
FACTORS = (0.5, 1.0, 2.0, 4.0)
# A linear program with 3,000 rows and 100 features took over a minute per level.
MOST_FOR_QUANTILES = 1000


def fitted(make: Callable[[], Any], *data: Any) -> tuple[Any, float]:
    """A fit and its seconds; for budgetjax the second fit, which compiles nothing."""
    model = make()
    if type(model).__module__.startswith("budgetjax"):
        model.fit(*data)
        model = make()
    start = time.perf_counter()
    model.fit(*data)
    return model, time.perf_counter() - start


def nystroem(gamma: float, budget: int, last: Any) -> Any:
    features = Nystroem(gamma=gamma, n_components=budget, random_state=0)
    return make_pipeline(features, last)


def one_class(budget: int) -> Iterator[dict[str, Any]]:
    """One row per method, factor and data set: means over its classes."""
    for name, numbers in CLASSES.items():
        data = datasets.load(name)
        labels = np.unique(data.y_train)
        found: dict[Any, list[Any]] = {}
        for number in numbers:
            label = labels[number]
            X = data.X_train[data.y_train == label]
            X = X[np.random.default_rng(0).permutation(len(X))]
            outside = data.y_test != label
            for factor in FACTORS:
                gamma = factor * bj.default_gamma(X)
                svm = SGDOneClassSVM(nu=RATE, random_state=0)
                makers = {
                    "BudgetedOneClass": lambda gamma=gamma: BudgetedOneClass(
                        budget, rate=RATE, gamma=gamma, random_state=0
                    ),
                    "Nystroem, SGDOneClassSVM": lambda gamma=gamma, svm=svm: nystroem(
                        gamma, budget, svm
                    ),
                }
                for method, make in makers.items():
                    model, seconds = fitted(make, X)
                    scores = model.decision_function(data.X_test)
                    area = roc_auc_score(outside, -scores)
                    alarms = np.mean(scores[~outside] < 0)
                    given = (100 * area, 100 * alarms, seconds)
                    found.setdefault((method, factor), []).append(given)
        for (method, factor), given in found.items():
            area, alarms, seconds = np.mean(given, axis=0)
            furthest = max(abs(alarm - 100 * RATE) for _, alarm, _ in given)
            yield {
                "part": "one-class",
                "data": name,
                "method": method,
                "B": budget,
                "gamma, factor": factor,
                "area, %": area,
                "false alarms, %": alarms,
                "furthest from 5": furthest,
                "seconds": seconds,
            }


class Levels:
    """One model per level."""

    def __init__(self, make: Callable[[float], Any], most: int | None = None):
        self.models = [make(level) for level in LEVELS]
        self.most = most

    def fit(self, X: Any, y: Any) -> None:
        for model in self.models:
            model.fit(X[: self.most], y[: self.most])

    def predict(self, X: Any) -> np.ndarray:
        found = np.stack([model.predict(X) for model in self.models], axis=1)
        return np.sort(found, axis=1)


def linear_programs(gamma: float, budget: int) -> Levels:
    def one(level: float) -> Any:
        last = QuantileRegressor(quantile=level, alpha=1e-5)
        return nystroem(gamma, budget, last)

    return Levels(one, MOST_FOR_QUANTILES)


def boosted() -> Levels:
    return Levels(
        lambda level: HistGradientBoostingRegressor(
            loss="quantile", quantile=level, random_state=0
        )
    )


def regressions() -> Iterator[tuple[str, tuple[np.ndarray, ...]]]:
    """Real data, and a function whose noise depends on the input."""
    data = datasets.load("cpusmall")
    yield "cpusmall", (data.X_train, data.y_train, data.X_test, data.y_test)
    random = np.random.default_rng(0)
    X = random.uniform(-3, 3, (20_000, 2)).astype(np.float32)
    noise = 0.1 + 0.3 * np.abs(X[:, 0])
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + noise * random.gumbel(size=len(X))
    yield "waves", (X[:10_000], y[:10_000], X[10_000:], y[10_000:])


def quantiles(budget: int) -> Iterator[dict[str, Any]]:
    """One row per method and data set."""
    for name, (X, y, X_test, y_test) in regressions():
        gamma, unit = bj.default_gamma(X), y.std()
        order = np.random.default_rng(1).permutation(len(y))
        X, y = X[order], y[order]
        makers = {
            "BudgetedKernelRegressor": lambda: BudgetedKernelRegressor(
                budget, quantile=LEVELS, random_state=0
            ),
            "BudgetedKernelRegressor, no metric": lambda: BudgetedKernelRegressor(
                budget, quantile=LEVELS, learn_metric=False, random_state=0
            ),
            "BudgetedKernelRegressor, vectors move": lambda: BudgetedKernelRegressor(
                budget,
                quantile=LEVELS,
                learn_metric=False,
                move_vectors=True,
                random_state=0,
            ),
            f"Nystroem, QuantileRegressor, {MOST_FOR_QUANTILES} rows": (
                functools.partial(linear_programs, gamma, budget)
            ),
            "HistGradientBoostingRegressor": boosted,
        }
        for method, make in makers.items():
            model, seconds = fitted(make, X, y)
            found = model.predict(X_test)
            losses = [
                mean_pinball_loss(y_test, found[:, i], alpha=level)
                for i, level in enumerate(LEVELS)
            ]
            below = np.mean(y_test[:, None] < found, axis=0)
            yield {
                "part": "quantiles",
                "data": name,
                "method": method,
                "B": budget,
                "pinball, % of deviation": 100 * np.mean(losses) / unit,
                "below, %": ", ".join(f"{100 * part:.1f}" for part in below),
                "seconds": seconds,
            }


def outputs(budget: int) -> Iterator[dict[str, Any]]:
    """One model for all outputs, and one model per output."""
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, (12_000, 4)).astype(np.float32)
    waves = random.normal(size=(4, 8))
    Y = np.sin(X @ waves) + 0.1 * random.normal(size=(len(X), 8))
    X, Y, X_test, Y_test = X[:10_000], Y[:10_000], X[10_000:], Y[10_000:]

    class Each:
        def fit(self, X: Any, Y: Any) -> None:
            self.models = [one().fit(X, y) for y in Y.T]

        def predict(self, X: Any) -> np.ndarray:
            return np.stack([model.predict(X) for model in self.models], axis=1)

    def one() -> Any:
        return BudgetedKernelRegressor(budget, random_state=0)

    for method, make in {"one model of 8 outputs": one, "8 models": Each}.items():
        model, seconds = fitted(make, X, Y)
        yield {
            "part": "outputs",
            "data": "8 waves",
            "method": method,
            "B": budget,
            "R^2": r2_score(Y_test, model.predict(X_test)),
            "seconds": seconds,
        }


PARTS = {"one-class": one_class, "quantiles": quantiles, "outputs": outputs}


def place(row: dict[str, Any]) -> tuple[Any, ...]:
    """The position of a row in the table."""
    return list(PARTS).index(row["part"]), row["B"], row["data"]


def main():
    parser = argparse.ArgumentParser(description="Targets of other kinds")
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--budget", type=int, default=100)
    results = Path(__file__).parent / "results"
    parser.add_argument("--output", type=Path, default=results / "targets.json")
    arguments = parser.parse_args()
    for part in arguments.part:
        new = []
        for row in PARTS[part](arguments.budget):
            print(row, flush=True)
            new.append(row)
        measure.show(new)
        kept = [
            row
            for row in accuracy.saved(arguments.output)
            if (row["part"], row["B"]) != (part, arguments.budget)
        ]
        measure.save(sorted([*kept, *new], key=place), arguments.output)


if __name__ == "__main__":
    main()
