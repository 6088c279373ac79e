"""Every method of the benchmarks by its name: our learners and refits, and rivals.

`ONLINE` learners make one pass. `FITS` see the training data more than once: a `Fit`
learns from all rows in the order given, and returns a function that predicts labels.
`ESTIMATORS` are made as their classes construct them. Hyperparameters of the first are
chosen by a sweep, those of the second one after the other, starting in the middle of
each list. What exists in C++ only is in `peers.py`.
"""

import functools
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.tree_util import Partial
from models import error, fit_in_parts, nystroem
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import SGDClassifier
from sklearn.svm import SVC, LinearSVC

import budgetjax as bj
from budgetjax import losses
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

LAMBDAS = (1e-3, 3e-4, 1e-4, 1e-5)
RATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Task(NamedTuple):
    """The shape of the data and the length of the stream."""

    num_features: int
    num_classes: int
    budget: int
    rows: int
    seed: int = 0

    def empty(self, learner: Any, kernel: Any, factor: int = 1, **given: Any) -> Any:
        """An empty model for `factor` times the budget."""
        shape: dict[str, Any] = {"num_features": self.num_features}
        shape["budget"] = factor * self.budget
        # The Forgetron has no other classes than two.
        if not isinstance(learner, bj.Forgetron):
            shape["num_classes"] = self.num_classes
        return learner.init(kernel, **shape, **given)

    @property
    def average(self) -> int:
        """The round from which on iterates are averaged."""
        return self.rows // 2 + 1


class Method(NamedTuple):
    """How to make an empty model from hyperparameters, and which ones to try."""

    init: Callable[..., Any]  # of (kernel, task, **hyperparameters)
    grid: dict[str, tuple[float, ...]]
    averages: bool = False


def online(
    make: Callable[..., Any],
    grid: dict[str, tuple[float, ...]] | None = None,
    averages: bool = False,
    seeded: bool = False,
    **given: Any,
) -> Method:
    """A learner, `make(**hyperparameters)`, and what its `init` takes."""

    def init(kernel, task, **chosen):
        more = {"average": task.average} if averages else {}
        more |= {"seed": task.seed} if seeded else {}
        return task.empty(make(**chosen), kernel, **given, **more)

    return Method(init, grid or {}, averages)


def pegasos(maintenance) -> Method:
    grid = {"regularization": LAMBDAS}
    return online(bj.Pegasos, grid, True, True, maintenance=maintenance)


def passive_aggressive(maintenance) -> Method:
    grid = {"penalty": (0.03, 0.1, 0.3, 1.0)}
    return online(bj.PassiveAggressive, grid, maintenance=maintenance)


@functools.cache
def cosine(rows: int) -> Callable[..., Any]:
    """From 1 to 0; the factor is in the loss, where it can be swept."""
    return optax.cosine_decay_schedule(1.0, rows)


@functools.cache
def optimizer(rows: int) -> optax.GradientTransformation:
    return optax.sgd(cosine(rows))


@losses.classification_loss
def scaled(loss, rate, score, y):
    """A loss times a learning rate."""
    return rate * loss(score, y)


def at_rate(loss, rate) -> Partial:
    return Partial(scaled, Partial(loss), rate)


def sgd(loss, maintenance) -> Method:
    """Gradient descent whose rate falls to 0 along a cosine."""

    def init(kernel, task, rate):
        loss_at = at_rate(loss, rate)
        learner = bj.SGD(loss=loss_at, learning_rate=cosine(task.rows))
        more = {"average": task.average, "maintenance": maintenance}
        return task.empty(learner, kernel, **more)

    return Method(init, {"rate": RATES}, True)


def linear(kind, factor=1) -> Method:
    """Gradient descent on `factor * budget` features."""

    def init(kernel, task, rate):
        more = {"seed": task.seed} if kind is bj.Fourier else {}
        loss = at_rate(losses.hinge, rate)
        learner = kind(loss=loss, optimizer=optimizer(task.rows))
        return task.empty(learner, kernel, factor, average=task.average, **more)

    return Method(init, {"rate": RATES}, True)


ONLINE = {
    "Pegasos, remove random": pegasos(bj.RemoveRandom()),
    "Pegasos, remove smallest": pegasos(bj.RemoveSmallest()),
    "Pegasos, project": pegasos(bj.Project()),
    "Pegasos, project best": pegasos(bj.Project(best=True)),
    "Pegasos, delayed project": pegasos(bj.DelayedProject()),
    "Pegasos, merge": pegasos(bj.Merge()),
    "Pegasos, merge 3": pegasos(bj.MultiMerge(3)),
    "Pegasos, merge best pair": pegasos(bj.MergeBestPair()),
    "SGD logistic, merge": sgd(losses.logistic, bj.Merge()),
    "PA-I, merge": passive_aggressive(bj.Merge()),
    "PA-I, project onto nearest": passive_aggressive(bj.ProjectOntoNearest()),
    "Projectron++": online(
        functools.partial(bj.Projectron, margin_updates=True),
        {"threshold": (0.1, 0.3, 0.5, 0.7, 0.9)},
    ),
    "Perceptron, remove random": online(
        bj.Perceptron, seeded=True, maintenance=bj.RemoveRandom()
    ),
    "Forgetron": online(bj.Forgetron),
    "NORMA": online(
        bj.NORMA,
        {"learning_rate": (0.1, 0.3, 1.0), "regularization": (1e-4, 1e-3, 1e-2)},
        averages=True,
    ),
    "Fourier, B features": linear(bj.Fourier),
    "Fourier, 4B features": linear(bj.Fourier, factor=4),
    "Nystrom": linear(bj.Nystrom),
    "AROW": online(bj.AROW, {"confidence": (0.01, 0.1, 1.0)}),
}


@jax.jit
def mistakes(state, X, y):
    """The error rate in percent."""
    return 100 * (bj.predict(state, X) != y).mean()


def judged(method: Method, state, X, y, *, stacked=False) -> dict[str, Any]:
    """The error rates of the last iterate and of the average."""
    judge = jax.vmap(mistakes, in_axes=(0, None, None)) if stacked else mistakes
    errors = {"last": np.asarray(judge(state, X, y))}
    if method.averages:
        errors["average"] = np.asarray(judge(bj.average_iterates(state), X, y))
    return errors


@jax.jit
def learned(states, X, y):
    """The models after the stream, in turn; unlike `bj.sweep`, some may overflow."""
    return jax.lax.map(lambda state: bj.run(state, X, y)[0], states)


def tuned(method: Method, task: Task, gammas, parts) -> dict[str, Any]:
    """The hyperparameters with least error, for the last iterate and the average."""
    X, y, X_held, y_held = parts
    grid = bj.grid(gamma=gammas, **method.grid)
    task = task._replace(rows=len(X))
    states = grid.init(lambda gamma, **rest: method.init(bj.RBF(gamma), task, **rest))
    states = learned(states, X, y)
    errors = judged(method, states, X_held, y_held, stacked=True)
    found = {}
    for kind, values in errors.items():
        best = int(np.nanargmin(values))
        chosen = [float(column[best]) for column in grid.columns]
        found[kind] = {
            "held out": float(values[best]),
            "chosen": dict(zip(grid.names, chosen, strict=True)),
        }
    return found


def tested(method: Method, task: Task, found, data, orders) -> dict[str, Any]:
    """The test errors after learning in several orders."""
    errors: dict[str, list[float]] = {kind: [] for kind in found}
    for seed in range(1, orders + 1):
        order = np.random.default_rng(seed).permutation(task.rows)
        X, y = data.X_train[order], data.y_train[order]
        known = {}
        for kind, result in found.items():
            key = tuple(result["chosen"].values())
            if key not in known:
                gamma, *rest = key
                rest = dict(zip(method.grid, rest, strict=True))
                state = method.init(bj.RBF(gamma), task._replace(seed=seed), **rest)
                state, _ = bj.run(state, X, y)
                known[key] = judged(method, state, data.X_test, data.y_test)
            errors[kind].append(float(known[key][kind]))
    return errors


# Methods that see the data more than once.

# Lambda of the stream that chooses the support vectors; accuracy hardly depends on it.
REGULARIZATION = 1e-4
# Rows on which scikit-learn's exact solvers are tuned.
FEW = 5_000


class Fit(NamedTuple):
    """How to learn, and what to try.

    Attributes:
      fit: `fit(kernel gamma, task, X, y, **chosen) -> (predict, notes)`.
      grid: of the hyperparameters other than gamma.
      rows: maximum number to tune on.
      budgeted: whether the budget matters.
      default: whether gamma is `budgetjax.default_gamma`.
    """

    fit: Callable[..., tuple[Callable, dict[str, Any]]]
    grid: dict[str, tuple[float, ...]]
    rows: int = 1_000_000
    budgeted: bool = True
    default: bool = False


def streamed(gamma, task, X, y):
    """Pegasos with merging, after one pass."""
    learner = bj.Pegasos(regularization=REGULARIZATION)
    return bj.run(task.empty(learner, bj.RBF(gamma)), X, y)[0]


def predictor(state):
    return lambda X: np.asarray(bj.predict(state, X))


def refitted(gamma, task, X, y, penalty, **options):
    state = bj.refit(streamed(gamma, task, X, y), X, y, penalty=penalty, **options)
    return predictor(state), {}


def moved(gamma, task, X, y, penalty):
    return refitted(gamma, task, X, y, penalty, move_vectors=True, seed=task.seed)


def by_default(gamma, task, X, y, **options):
    """Pegasos and a refit with its default penalty."""
    state = bj.refit(streamed(gamma, task, X, y), X, y, seed=task.seed, **options)
    return predictor(state), {}


def with_metric(gamma, task, X, y):
    return by_default(gamma, task, X, y, learn_metric=True)


def boosted(gamma, task, X, y):
    return HistGradientBoostingClassifier(random_state=0).fit(X, y).predict, {}


def nystroem_sgd(gamma, task, X, y, alpha):
    once: dict[str, Any] = {"average": True, "max_iter": 1, "tol": 0.0}
    last = SGDClassifier(alpha=alpha, random_state=task.seed, **once)
    return nystroem(gamma, task.budget, last, task.seed).fit(X, y).predict, {}


def nystroem_svm(gamma, task, X, y, penalty):
    last = LinearSVC(C=penalty, fit_intercept=False, dual="auto", tol=1e-3)
    return nystroem(gamma, task.budget, last, task.seed).fit(X, y).predict, {}


def full(gamma, task, X, y, penalty):
    machine = SVC(C=penalty, gamma=gamma, cache_size=4000).fit(X, y)
    return machine.predict, {"vectors": int(machine.n_support_.sum())}


def part(gamma, task, X, y, penalty):
    """An SVM on the first rows, few enough that it has at most B support vectors."""
    low, high = 2, len(X)
    machine = None
    while high - low > max(1, low // 50):
        middle = (low + min(high, 4 * low)) // 2
        if len(np.unique(y[:middle])) < task.num_classes:
            low = middle
            continue
        tried = SVC(C=penalty, gamma=gamma).fit(X[:middle], y[:middle])
        if tried.n_support_.sum() <= task.budget:
            low, machine = middle, tried
        else:
            high = middle
    if machine is None:
        machine = SVC(C=penalty, gamma=gamma).fit(X[:high], y[:high])
    return machine.predict, {"vectors": int(machine.n_support_.sum()), "rows": low}


PENALTIES = (1.0, 10.0, 100.0)
FITS = {
    "Pegasos, merge, refit by default": Fit(by_default, {}, default=True),
    "Pegasos, merge, metric": Fit(with_metric, {}, default=True),
    "Pegasos, merge, refit": Fit(refitted, {"penalty": PENALTIES}),
    "Pegasos, merge, refit, vectors moved": Fit(moved, {"penalty": PENALTIES}),
    "scikit-learn Nystroem, SGD": Fit(nystroem_sgd, {"alpha": (1e-4, 1e-5, 1e-6)}),
    "scikit-learn Nystroem, LinearSVC": Fit(
        nystroem_svm, {"penalty": PENALTIES}, rows=FEW
    ),
    "scikit-learn SVC, few rows": Fit(part, {"penalty": (1.0, 10.0)}, rows=FEW),
    "scikit-learn SVC": Fit(full, {"penalty": PENALTIES}, rows=FEW, budgeted=False),
    "scikit-learn HistGradientBoosting": Fit(boosted, {}, budgeted=False, default=True),
}


def tuned_fit(rival: Fit, task, gammas, parts) -> dict[str, Any]:
    """The hyperparameters with the least held-out error, one after the other."""
    X, y, X_held, y_held = parts
    X, y = X[: rival.rows], y[: rival.rows]
    grid = {"gamma": tuple(gammas), **rival.grid}
    if rival.default:
        grid = {"gamma": (bj.default_gamma(X),)}
    chosen = {name: values[len(values) // 2] for name, values in grid.items()}
    known: dict[tuple, float] = {}

    def held_out(tried):
        key = tuple(tried.values())
        if key not in known:
            predict, _ = rival.fit(task=task._replace(rows=len(X)), X=X, y=y, **tried)
            known[key] = error(predict(X_held), y_held)
        return known[key]

    for name, values in grid.items():
        errors = [held_out(chosen | {name: value}) for value in values]
        chosen[name] = values[int(np.argmin(errors))]
    return {"held out": held_out(chosen), "chosen": chosen}


def tested_fit(
    rival: Fit, task, found, data, orders
) -> tuple[list[float], dict[str, Any]]:
    """The test errors after learning in several orders, and the last notes."""
    errors, notes, seconds = [], {}, []
    for seed in range(1, (orders if rival.budgeted else 1) + 1):
        order = np.random.default_rng(seed).permutation(task.rows)
        start = time.process_time()
        predict, notes = rival.fit(
            task=task._replace(seed=seed),
            X=data.X_train[order],
            y=data.y_train[order],
            **found["chosen"],
        )
        seconds.append(time.process_time() - start)
        errors.append(error(predict(data.X_test), data.y_test))
    return errors, notes | {"seconds": statistics.median(seconds)}


# Estimators as they are constructed.

# Rows of a call of `partial_fit`.
PART = 2000


def ours(budget: int) -> Callable[[bool, int], Any]:
    def make(is_regression: bool, seed: int) -> Any:
        kind = BudgetedKernelRegressor if is_regression else BudgetedKernelClassifier
        return kind(budget, random_state=seed)

    return make


class InParts:
    """Our estimator of 100 vectors, which gets its rows once, in parts."""

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def model_(self) -> Any:
        return self.model.model_

    def fit(self, X: np.ndarray, y: np.ndarray) -> None:
        regresses = isinstance(self.model, BudgetedKernelRegressor)
        more = {} if regresses else {"classes": np.unique(y)}
        fit_in_parts(self.model, X, y, PART, **more)

    def predict(self, X: np.ndarray) -> np.ndarray:
        return self.model.predict(X)


def of_package(package: str, name: str, **given: Any) -> Callable[[bool, int], Any]:
    """Estimators of a package that is imported when they are made.

    A star in their name is `Classifier` or `Regressor`.
    """

    def make(is_regression: bool, seed: int) -> Any:
        module = importlib.import_module(package)
        own = name.replace("*", "Regressor" if is_regression else "Classifier")
        return getattr(module, own)(random_state=seed, **given)

    return make


ESTIMATORS: dict[str, Callable[[bool, int], Any]] = {
    **{f"budgetjax, {budget}": ours(budget) for budget in (20, 100, 500)},
    "in parts": lambda *given: InParts(ours(100)(*given)),
    "HistGradientBoosting": of_package("sklearn.ensemble", "HistGradientBoosting*"),
    "LightGBM": of_package("lightgbm", "LGBM*", verbose=-1),
    "XGBoost": of_package("xgboost", "XGB*"),
    "CatBoost": of_package("catboost", "CatBoost*", verbose=0),
    "random forest": of_package("sklearn.ensemble", "RandomForest*"),
    "RealMLP": of_package("pytabkit", "RealMLP_TD_*"),
    "xRFM": of_package("pytabkit", "XRFM_D_*"),
}
