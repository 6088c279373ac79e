"""Methods that see the training data more than once: refits, and scikit-learn.

A `Fit` learns from all rows in the order given and returns a function that predicts
labels. Hyperparameters are tuned one after the other, starting at the middle of each
list.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.cluster import MiniBatchKMeans
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC, LinearSVC

import budgetjax as bj

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
    state = bj.Pegasos(regularization=REGULARIZATION).init(
        bj.RBF(gamma),
        num_features=task.num_features,
        num_classes=task.num_classes,
        budget=task.budget,
    )
    return bj.run(state, X, y)[0]


def predictor(state):
    return lambda X: np.asarray(bj.predict(state, X))


def refit(gamma, task, X, y, penalty, **options):
    state = bj.refit(streamed(gamma, task, X, y), X, y, penalty=penalty, **options)
    return predictor(state), {}


def moved(gamma, task, X, y, penalty):
    return refit(gamma, task, X, y, penalty, move_vectors=True, seed=task.seed)


def by_default(gamma, task, X, y, **options):
    """Pegasos and a refit with its default penalty."""
    state = bj.refit(streamed(gamma, task, X, y), X, y, seed=task.seed, **options)
    return predictor(state), {}


def metric(gamma, task, X, y):
    return by_default(gamma, task, X, y, learn_metric=True)


def boosted(gamma, task, X, y):
    return HistGradientBoostingClassifier(random_state=0).fit(X, y).predict, {}


def centres(gamma, task, X, y, penalty):
    """Centres of k-means instead of the support vectors of a stream."""
    kmeans = MiniBatchKMeans(task.budget, random_state=task.seed)
    state = bj.AROW().init(
        bj.RBF(gamma),
        num_features=task.num_features,
        num_classes=task.num_classes,
        budget=task.budget,
        vectors=np.asarray(kmeans.fit(X).cluster_centers_),
    )
    return predictor(bj.refit(state, X, y, penalty=penalty)), {}


def nystroem(gamma, task) -> Nystroem:
    return Nystroem(gamma=gamma, n_components=task.budget, random_state=task.seed)


def nystroem_sgd(gamma, task, X, y, alpha):
    classifier = SGDClassifier(
        alpha=alpha, average=True, max_iter=1, tol=0.0, random_state=task.seed
    )
    return make_pipeline(nystroem(gamma, task), classifier).fit(X, y).predict, {}


def nystroem_svm(gamma, task, X, y, penalty):
    classifier = LinearSVC(C=penalty, fit_intercept=False, dual="auto", tol=1e-3)
    return make_pipeline(nystroem(gamma, task), classifier).fit(X, y).predict, {}


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
RIVALS = {
    "Pegasos, merge, refit by default": Fit(by_default, {}, default=True),
    "Pegasos, merge, metric": Fit(metric, {}, default=True),
    "Pegasos, merge, refit": Fit(refit, {"penalty": PENALTIES}),
    "Pegasos, merge, refit, vectors moved": Fit(moved, {"penalty": PENALTIES}),
    "k-means, refit": Fit(centres, {"penalty": PENALTIES}),
    "scikit-learn Nystroem, SGD": Fit(nystroem_sgd, {"alpha": (1e-4, 1e-5, 1e-6)}),
    "scikit-learn Nystroem, LinearSVC": Fit(
        nystroem_svm, {"penalty": PENALTIES}, rows=FEW
    ),
    "scikit-learn SVC, few rows": Fit(part, {"penalty": (1.0, 10.0)}, rows=FEW),
    "scikit-learn SVC": Fit(full, {"penalty": PENALTIES}, rows=FEW, budgeted=False),
    "scikit-learn HistGradientBoosting": Fit(boosted, {}, budgeted=False, default=True),
}


def wrong(predict, X, y) -> float:
    """The error rate in percent."""
    return 100 * float(np.mean(predict(X) != y))


def tuned(rival: Fit, task, gammas, parts) -> dict[str, Any]:
    """The hyperparameters with the least held-out error, one after the other."""
    X, y, X_held, y_held = parts
    X, y = X[: rival.rows], y[: rival.rows]
    grid = {"gamma": tuple(gammas), **rival.grid}
    if rival.default:
        grid = {"gamma": (bj.default_gamma(X),)}
    chosen = {name: values[len(values) // 2] for name, values in grid.items()}
    known: dict[tuple, float] = {}

    def error(tried):
        key = tuple(tried.values())
        if key not in known:
            predict, _ = rival.fit(task=task._replace(rows=len(X)), X=X, y=y, **tried)
            known[key] = wrong(predict, X_held, y_held)
        return known[key]

    for name, values in grid.items():
        errors = [error(chosen | {name: value}) for value in values]
        chosen[name] = values[int(np.argmin(errors))]
    return {"held out": error(chosen), "chosen": chosen}


def tested(rival: Fit, task, found, data, orders) -> tuple[list[float], dict[str, Any]]:
    """The test errors after learning in several orders, and the last notes.

    Their seconds are the median processor time of all threads.
    """
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
        errors.append(wrong(predict, data.X_test, data.y_test))
    return errors, notes | {"seconds": statistics.median(seconds)}
