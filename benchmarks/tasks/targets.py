"""One class and quantiles, compared to what a user would pick instead.

`part=one-class`: rows of one class of a data set are learned, and the test part has
the other classes too. Both methods have the same kernel, with `default_gamma` of the
training rows, and the same rate. Figures are the area under the ROC curve and the
fraction of new rows of the same class below the threshold, whose target is 5 percent.

`part=quantiles`: the mean pinball loss of three levels on the test part in units of the
targets' deviation, and the fraction of the targets below each. Boosted trees have one
model per level and no budget.

All data are standardised by their training part. Seconds are those of a fit, for
budgetjax the second of two in the same process, without compilation.
"""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from models import nystroem
from runner import Case, Row, given
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import QuantileRegressor, SGDOneClassSVM
from sklearn.metrics import mean_pinball_loss, roc_auc_score

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


def one_class(name: str, budget: int) -> Iterator[Row]:
    """One row per method: means over the classes."""
    data, found = datasets.load(name), {}
    for number in CLASSES[name]:
        label = np.unique(data.y_train)[number]
        X = data.X_train[data.y_train == label]
        X = X[np.random.default_rng(0).permutation(len(X))]
        outside = data.y_test != label
        gamma = bj.default_gamma(X)
        given = {"rate": RATE, "gamma": gamma, "random_state": 0}
        ours = functools.partial(BudgetedOneClass, budget, **given)
        svm = SGDOneClassSVM(nu=RATE, random_state=0)
        theirs = functools.partial(nystroem, gamma, budget, svm)
        makers = {"BudgetedOneClass": ours, "Nystroem, SGDOneClassSVM": theirs}
        for method, make in makers.items():
            model, seconds = fitted(make, X)
            scores = model.decision_function(data.X_test)
            area = 100 * roc_auc_score(outside, -scores)
            alarms = 100 * np.mean(scores[~outside] < 0)
            found.setdefault(method, []).append((area, alarms, seconds))
    for method, every in found.items():
        names = "area, %", "false alarms, %", "seconds"
        yield {
            "method": method,
            **dict(zip(names, np.mean(every, axis=0), strict=True)),
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


def regression(name: str) -> tuple[np.ndarray, ...]:
    """Real data, or a function whose noise depends on the input."""
    if name != "waves":
        data = datasets.load(name)
        return data.X_train, data.y_train, data.X_test, data.y_test
    random = np.random.default_rng(0)
    X = random.uniform(-3, 3, (20_000, 2)).astype(np.float32)
    noise = 0.1 + 0.3 * np.abs(X[:, 0])
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2 / 4 + noise * random.gumbel(size=len(X))
    return X[:10_000], y[:10_000], X[10_000:], y[10_000:]


def quantiles(name: str, budget: int) -> Iterator[Row]:
    """One row per method."""
    X, y, X_test, y_test = regression(name)
    order = np.random.default_rng(1).permutation(len(y))
    X, y, gamma, unit = X[order], y[order], bj.default_gamma(X), y.std()

    def ours() -> Any:
        return BudgetedKernelRegressor(budget, quantile=LEVELS, random_state=0)

    def linear_program(level: float) -> Any:
        last = QuantileRegressor(quantile=level, alpha=1e-5)
        return nystroem(gamma, budget, last)

    def boosted(level: float) -> Any:
        given: Any = {"loss": "quantile", "quantile": level, "random_state": 0}
        return HistGradientBoostingRegressor(**given)

    makers = {
        "BudgetedKernelRegressor": ours,
        f"Nystroem, QuantileRegressor, {MOST_FOR_QUANTILES} rows": (
            lambda: Levels(linear_program, MOST_FOR_QUANTILES)
        ),
        "HistGradientBoostingRegressor": lambda: Levels(boosted),
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
            "method": method,
            "pinball, % of deviation": 100 * np.mean(losses) / unit,
            "below, %": ", ".join(f"{100 * part:.1f}" for part in below),
            "seconds": seconds,
        }


PARTS = {
    "one-class": (one_class, tuple(CLASSES)),
    "quantiles": (quantiles, ("cpusmall", "waves")),
}


def cases() -> Iterator[Case]:
    """All parts and their data."""
    for part, (measured, names) in PARTS.items():
        for name in names:
            for budget in given("B", 100):
                key = {"part": part, "data": name, "B": budget}
                yield Case(key, lambda m=measured, n=name, b=budget: list(m(n, b)))
