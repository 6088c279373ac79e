"""Models of the benchmarks: how they start, and how often they are right."""

from typing import Any

import numpy as np
from sklearn.kernel_approximation import Nystroem
from sklearn.pipeline import make_pipeline

import budgetjax as bj


def empty(learner: bj.Learner, X: Any, budget: int, gamma: Any, **given: Any) -> Any:
    """An empty model of rows like these, with a Gaussian kernel."""
    kernel = bj.RBF(gamma)
    return learner.init(kernel, num_features=X.shape[1], budget=budget, **given)


def learned(state: Any, X: Any, y: Any) -> Any:
    """The model after one pass."""
    return bj.run(state, X, y, keep_scores=False)[0]


def accuracy(predicted: Any, y: Any) -> float:
    """The accuracy in percent."""
    return 100 * float(np.mean(np.asarray(predicted) == y))


def error(predicted: Any, y: Any) -> float:
    """The error rate in percent."""
    return 100 * float(np.mean(np.asarray(predicted) != y))


def accuracy_of(model: Any, X: Any, y: Any) -> float:
    """The accuracy of a model's labels in percent."""
    return accuracy(bj.predict(model, X), y)


def fit_in_parts(model: Any, X: Any, y: Any, rows: int, **given: Any) -> Any:
    """An estimator after a stream of calls of `partial_fit`."""
    for start in range(0, len(y), rows):
        part = slice(start, start + rows)
        model.partial_fit(X[part], y[part], **given)
    return model


def nystroem(gamma: Any, budget: int, last: Any, seed: int = 0) -> Any:
    """An estimator of scikit-learn behind its features, one per unit of the budget."""
    features = Nystroem(gamma=gamma, n_components=budget, random_state=seed)
    return make_pipeline(features, last)


def rms(errors: Any) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.mean(np.square(errors))))
