"""Regression error after one pass over cpusmall, compared to scikit-learn.

The figure is the root mean squared error on the test part, in units of the target (0 to
99, percent of time): its mean and deviation over orders of the training data.
Hyperparameters are chosen on a held-out part of `TUNING_ROWS` rows, as in
`tasks/accuracy.py`. Targets are standardised for learning. The comparisons are
scikit-learn's `SGDRegressor` on `Nystroem` features, one pass with averaging;
`KernelRidge` on all training data, which shows what the kernel can reach;
`HistGradientBoostingRegressor`; and `BudgetedKernelRegressor` with its defaults, which
sees the data more than once, with and without a learned metric.
"""

import functools
import itertools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import optax
from data import gammas_of, parts_of
from jax.tree_util import Partial
from methods import Task, linear, sgd, tested, tuned
from models import rms
from runner import Case, Row, given
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.kernel_approximation import Nystroem
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import SGDRegressor

import budgetjax as bj
from budgetjax import datasets, losses
from budgetjax.estimators import BudgetedKernelRegressor

TUNING_ROWS = 4000
GAMMAS = (0.06, 0.15, 0.4)
PEER_RATES = (0.1, 0.3, 1.0, 2.0, 4.0)
RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
LOSSES = {
    "squared": optax.losses.squared_error,
    "Huber, 0.2": Partial(optax.losses.huber_loss, delta=0.2),
    "absolute": losses.absolute,
    "epsilon-insensitive, 0.05": losses.epsilon_insensitive(0.05),
}
METHODS = {
    f"SGD {loss}, {name}": sgd(LOSSES[loss], maintenance)
    for loss in LOSSES
    for name, maintenance in (("merge", bj.Merge()), ("project", bj.Project()))
} | {
    "Fourier, B features": linear(bj.Fourier, LOSSES["squared"]),
    "Fourier, 4B features": linear(bj.Fourier, LOSSES["squared"], factor=4),
    "Nystrom": linear(bj.Nystrom, LOSSES["squared"]),
}

NYSTROEM, RIDGE = "scikit-learn Nystroem, SGDRegressor", "scikit-learn KernelRidge"
# Estimators by budget and seed; no hyperparameter is tuned.
ESTIMATORS = {
    "BudgetedKernelRegressor": BudgetedKernelRegressor,
    "BudgetedKernelRegressor, no metric": functools.partial(
        BudgetedKernelRegressor, learn_metric=False
    ),
    "scikit-learn HistGradientBoosting": lambda _, random_state: (
        HistGradientBoostingRegressor(random_state=random_state)
    ),
}
# Methods without a budget, and the training rows, which stand for it.
ROWS = 6554
WHOLE = (RIDGE, "scikit-learn HistGradientBoosting")
ALL = [*METHODS, *ESTIMATORS, NYSTROEM, RIDGE]


@jax.jit
def error(state, X, y):
    """The root mean squared error."""
    return jnp.sqrt(jnp.mean((bj.decision_function(state, X) - y) ** 2))


def nystroem(data, parts, gammas, budget: int, orders: int):
    """scikit-learn's features and averaged gradient descent."""

    def fitted(stream, gamma, rate, seed):
        X, y, X_test, y_test = stream
        features = Nystroem(gamma=gamma, n_components=budget, random_state=seed)
        model = SGDRegressor(alpha=1e-7, eta0=rate, shuffle=False, average=True)
        model.partial_fit(features.fit_transform(X), y)
        return rms(model.predict(features.transform(X_test)) - y_test)

    grid = itertools.product(gammas, PEER_RATES)
    held, gamma, rate = min((fitted(parts, *point, seed=0), *point) for point in grid)
    errors = []
    for seed in range(1, orders + 1):
        order = np.random.default_rng(seed).permutation(len(data.y_train))
        stream = data.X_train[order], data.y_train[order], data.X_test, data.y_test
        errors.append(fitted(stream, gamma, rate, seed))
    return errors, held, {"gamma": gamma, "rate": rate}


def ridge(data, parts, gammas):
    """scikit-learn's kernel ridge regression, with one vector per row."""

    def fitted(stream, gamma, alpha):
        X, y, X_test, y_test = (part.astype(np.float64) for part in stream)
        model = KernelRidge(kernel="rbf", gamma=gamma, alpha=alpha).fit(X, y)
        return rms(model.predict(X_test) - y_test)

    grid = itertools.product(gammas, RIDGES)
    held, gamma, alpha = min((fitted(parts, *point), *point) for point in grid)
    stream = data.X_train, data.y_train, data.X_test, data.y_test
    chosen = {"gamma": gamma, "alpha": alpha}
    return [fitted(stream, gamma, alpha)], held, chosen


def estimated(make, data, budget: int, orders: int) -> list[float]:
    """Errors of an estimator in several orders."""
    errors = []
    for seed in range(1, orders + 1):
        model = make(budget, random_state=seed).fit(data.X_train, data.y_train)
        errors.append(rms(model.predict(data.X_test) - data.y_test))
    return errors


@functools.cache
def problem() -> tuple[datasets.Dataset, float]:
    """The data, targets of mean 0 and deviation 1, and that deviation before."""
    data = datasets.load("cpusmall")
    mean, unit = float(data.y_train.mean()), float(data.y_train.std())
    train, test = ((y - mean) / unit for y in (data.y_train, data.y_test))
    return data._replace(y_train=train, y_test=test), unit


def measured(label: str, budget: int, orders: int) -> list[Row]:
    """A row for each model of a method."""
    data, unit = problem()
    parts, gammas = parts_of(data, TUNING_ROWS), gammas_of(data, GAMMAS)
    n, d = data.X_train.shape

    def row(model: str, errors: list[float], held: float | None, chosen: Row) -> Row:
        several = {"deviation": unit * float(np.std(errors))} if errors[1:] else {}
        return {
            "model": model,
            "RMSE": unit * float(np.mean(errors)),
            **several,
            "held out": held and unit * held,
            "chosen": chosen,
        }

    if label == RIDGE:
        return [row("exact", *ridge(data, parts, gammas))]
    if label in ESTIMATORS:
        errors = estimated(ESTIMATORS[label], data, budget, orders)
        return [row("last", errors, None, {})]
    if label == NYSTROEM:
        return [row("average", *nystroem(data, parts, gammas, budget, orders))]
    task = Task(d, None, budget, n)
    found = tuned(METHODS[label], task, gammas, parts, error)
    errors = tested(METHODS[label], task, found, data, error, orders)
    return [
        row(kind, errors[kind], result["held out"], result["chosen"])
        for kind, result in found.items()
    ]


def cases() -> Iterator[Case]:
    """All methods and budgets."""
    (orders,) = given("orders", 3)
    for label in ALL:
        for budget in (ROWS,) if label in WHOLE else given("B", 100, 500):
            key = {"method": label, "B": budget}
            yield Case(key, functools.partial(measured, label, budget, orders))
