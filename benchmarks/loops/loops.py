"""Loops that are timed per commit, compiled already, in processor seconds.

A commit that makes one of them slower is one to look at again; the tasks measure what
pages say.
"""

import time

import jax
import numpy as np

import budgetjax as bj
from budgetjax import datasets
from budgetjax.estimators import BudgetedKernelClassifier

ROWS, FEATURES = 20_000, 16


def table(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of normal numbers, whose label is a product of two of them, with noise."""
    random = np.random.default_rng(0)
    X = random.normal(size=(rows, FEATURES)).astype(np.float32)
    noise = random.normal(size=rows)
    return X, np.where(X[:, 0] * X[:, 1] + 0.3 * noise > 0, 1, -1)


class Streams:
    """`bj.run`, by learner."""

    timer = time.process_time
    param_names = ("learner",)
    params = ("Perceptron, remove oldest", "Pegasos, merge", "AROW")

    def setup(self, learner):
        value, given = {
            "Perceptron, remove oldest": (
                bj.Perceptron(),
                {"maintenance": bj.RemoveOldest()},
            ),
            "Pegasos, merge": (bj.Pegasos(regularization=1e-4), {}),
            "AROW": (bj.AROW(), {}),
        }[learner]
        self.state = value.init(bj.RBF(8.0), num_features=2, budget=100, **given)
        self.X, self.y = datasets.checkerboard(ROWS, seed=0)
        self.time_run(learner)

    def time_run(self, learner):
        jax.block_until_ready(bj.run(self.state, self.X, self.y))


class Models:
    """What is done with a model of 100 vectors."""

    timer = time.process_time

    def setup(self):
        self.X, self.y = table(ROWS)
        state = bj.Pegasos(regularization=1e-4).init(
            bj.RBF(0.05), num_features=FEATURES, budget=100
        )
        self.state, _ = bj.run(state, self.X, self.y)
        self.time_predict()
        self.time_refit()

    def time_predict(self):
        jax.block_until_ready(bj.predict(self.state, self.X))

    def time_refit(self):
        jax.block_until_ready(bj.refit(self.state, self.X, self.y))


class Batches:
    """A whole training set at once."""

    timer = time.process_time
    timeout = 300

    def setup(self):
        self.X, self.y = table(2000)
        self.solver = bj.SMO(bj.RBF(0.05), penalty=2.0)
        self.time_solve()
        self.time_fit()

    def time_solve(self):
        bj.solve(self.solver, self.X, self.y)

    def time_fit(self):
        BudgetedKernelClassifier(100, random_state=0).fit(self.X, self.y)


def timeraw_import():
    """The import, in a process of its own."""
    return "import budgetjax; budgetjax.Pegasos"
