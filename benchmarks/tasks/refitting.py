"""Refit compared to scikit-learn's `LinearSVC` on the same features, and its memory.

A stream of Pegasos with merging chooses the support vectors; both then minimise the
squared hinge loss with the same penalty on the same orthonormal features, without an
intercept. Seconds are those of one fit: `bj.refit` starts from the examples, with and
without compilation, `LinearSVC` from the features. Objectives are computed in double
precision. "one pass" is a refit from an iterator, which can be read only once.

Memory is the peak of the process after a refit from 200,000 rows of a checkerboard,
generated batch by batch, and after one from 2,000,000, whose batches are kept for the
next pass.
"""

import resource
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from data import load
from runner import Case
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax import datasets
from budgetjax.refitting import newton

# Data, budget, gamma in units of one over the total variance, penalty.
CASES = (
    ("letter", 100, 1.0, 10.0),
    ("letter", 500, 1.0, 10.0),
    ("ijcnn1", 500, 2.0, 10.0),
    ("covtype-100k", 500, 4.0, 1.0),
)
BATCH = 10_000


def seconds(call):
    """The result of a call and its seconds."""
    start = time.perf_counter()
    given = call()
    jax.block_until_ready(jax.tree.leaves(given))
    return given, time.perf_counter() - start


def chosen(data, budget, unit):
    """The state after one pass of Pegasos with merging."""
    state = bj.Pegasos(regularization=1e-4).init(
        bj.RBF(unit * bj.default_gamma(data.X_train)),
        num_features=data.X_train.shape[1],
        num_classes=data.num_classes,
        budget=budget,
    )
    return bj.run(state, data.X_train, data.y_train)[0]


def features(state, X):
    """The orthonormal features in which `bj.refit` solves."""
    basis = newton.Basis(state.kernel, state.expansion, state.learner.basis(state))
    blocks = np.array_split(X, max(1, len(X) // BATCH))
    made = [newton.features(basis, jnp.asarray(block)) for block in blocks]
    made = np.concatenate([np.asarray(block, np.float64) for block in made])
    return made[:, np.any(made != 0, axis=0)]


def objective(P, y, weights, penalty):
    """`1/2 ||w||^2 + C sum max(0, 1 - t w.p)^2`, summed over all problems."""
    labels = np.unique(y)[1:] if len(weights) == 1 else np.unique(y)
    targets = np.where(y[:, None] == labels, 1, -1)
    losses = np.maximum(1 - targets * (P @ weights.T), 0) ** 2
    return np.sum(weights**2) / 2 + penalty * np.sum(losses)


def weights_of(state, refitted, P, X):
    """The weights on the features that give a state's scores."""
    rows = slice(0, 5 * P.shape[1])
    scores = np.asarray(bj.decision_function(refitted, X[rows]), np.float64)
    scores = scores.reshape(len(P[rows]), -1)
    return np.linalg.lstsq(P[rows], scores, rcond=None)[0].T


def against_linear_svc(name, budget, unit, penalty):
    """One row of the table."""
    data = load(name, True)
    state = chosen(data, budget, unit)
    X, y = data.X_train, data.y_train
    _, first = seconds(lambda: bj.refit(state, X, y, penalty=penalty))
    ours, again = seconds(lambda: bj.refit(state, X, y, penalty=penalty))
    parts = [(X[i : i + BATCH], y[i : i + BATCH]) for i in range(0, len(X), BATCH)]
    once = bj.refit(state, iter(parts), penalty=penalty)
    P = features(state, X)
    svm = LinearSVC(C=penalty, fit_intercept=False, dual="auto", random_state=0)
    _, theirs = seconds(lambda: bool(svm.fit(P, y)))
    least = objective(P, y, svm.coef_, penalty)
    model, iterator = (
        objective(P, y, weights_of(state, refitted, P, X), penalty)
        for refitted in (ours, once)
    )

    def accuracy(state):
        predicted = np.asarray(bj.predict(state, data.X_test))
        return 100 * float(np.mean(predicted == data.y_test))

    return {
        "stream %": accuracy(state),
        "refit %": accuracy(ours),
        "one pass %": accuracy(once),
        "refit s, first": first,
        "refit s": again,
        "LinearSVC s": theirs,
        "objective / LinearSVC": model / least,
        "one pass / LinearSVC": iterator / least,
    }


class Batches:
    """Batches of a checkerboard, generated again in every pass."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        for seed in range(self.rows // BATCH):
            yield datasets.checkerboard(BATCH, seed)


def memory():
    """The peak of the process, in megabytes, by the number of rows."""
    X, y = datasets.checkerboard(20_000, 0)
    state = bj.Pegasos(regularization=1e-4).init(
        bj.RBF(4.0), num_features=2, budget=100
    )
    state, _ = bj.run(state, X, y)
    peaks = []
    for rows in (200_000, 2_000_000):
        bj.refit(state, Batches(rows))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return {"MiB, 200,000 rows": peaks[0], "MiB, 2,000,000 rows": peaks[1]}


def cases() -> Iterator[Case]:
    """The memory, and all sets."""
    yield Case({"data": "generated", "B": 100}, memory)
    for name, budget, unit, penalty in CASES:
        given = name, budget, unit, penalty
        key = {"data": name, "B": budget}
        yield Case(key, lambda g=given: against_linear_svc(*g))
