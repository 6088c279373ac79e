"""Every algorithm with every strategy it takes: a new one is a row here."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import budgetjax as bj

NUM_FEATURES = 3
NUM_CLASSES = 4


class Row(NamedTuple):
    """One learner under test."""

    name: str
    algorithm: Any
    arguments: dict
    num_classes: int = 2
    kernel: Any = bj.RBF(0.5)
    budget: int = 10

    def init(self, kernel=None, budget=None, num_features=NUM_FEATURES, **more):
        """An empty model of this learner."""
        kernel = self.kernel if kernel is None else kernel
        budget = self.budget if budget is None else budget
        arguments = self.arguments | more
        if self.algorithm is not bj.forgetron:
            arguments = {"num_classes": self.num_classes} | arguments
        return self.algorithm.init(
            kernel, num_features=num_features, budget=budget, **arguments
        )

    def kernel_of(self, gamma):
        """A kernel of the row's structure with another parameter."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf) * gamma, self.kernel)

    def stream(self, n=60, seed=0, num_features=NUM_FEATURES):
        """A noisy stream that keeps the learner busy."""
        random = np.random.default_rng(seed)
        X = random.normal(size=(n, num_features))
        direction = random.normal(size=(num_features, self.num_classes))
        scores = np.sin(2 * X) @ direction + 0.3 * random.normal(
            size=(n, self.num_classes)
        )
        y = np.argmax(scores, axis=1)
        y = 2 * y - 1 if self.num_classes == 2 else y
        return X.astype(np.float32), y.astype(np.int32)


REMOVALS = {
    "oldest": bj.RemoveOldest(),
    "random": bj.RemoveRandom(),
    "smallest": bj.RemoveSmallest(),
    "largest-margin": bj.RemoveLargestMargin(),
}


def _rows():
    polynomial = bj.Normalized(bj.Polynomial(degree=3))
    yield Row("forgetron", bj.forgetron, {}, kernel=polynomial)
    yield Row("perceptron-unbudgeted", bj.perceptron, {}, budget=60)
    for name, strategy in REMOVALS.items():
        given = {"maintenance": strategy}
        yield Row(f"perceptron-{name}", bj.perceptron, given)
        yield Row(f"perceptron-{name}-multiclass", bj.perceptron, given, NUM_CLASSES)
    for name, strategy in (REMOVALS | {"merge": bj.Merge()}).items():
        given = {"maintenance": strategy, "regularization": 1e-2}
        yield Row(f"pegasos-{name}", bj.pegasos, given)
        yield Row(f"pegasos-{name}-multiclass", bj.pegasos, given, NUM_CLASSES)
    yield Row(
        "perceptron-margin",
        bj.perceptron,
        {"maintenance": bj.RemoveSmallest(), "margin": 0.5},
        kernel=bj.Normalized(bj.Polynomial(degree=2, gamma=0.3)) * bj.Laplacian(0.1),
    )
    yield Row(
        "pegasos-ball",
        bj.pegasos,
        {
            "maintenance": bj.RemoveLargestMargin(),
            "regularization": 1e-3,
            "project_to_ball": True,
        },
    )
    yield Row(
        "pegasos-any-signs-ball",
        bj.pegasos,
        {
            "maintenance": bj.Merge(same_sign=False),
            "regularization": 1e-2,
            "project_to_ball": True,
        },
    )


ROWS = tuple(_rows())


def each(test):
    """Runs a test once for every row; one process takes all tests of a row.

    Compiled loops are then shared between the tests.
    """
    rows = [
        pytest.param(row, id=row.name, marks=pytest.mark.xdist_group(row.name))
        for row in ROWS
    ]
    return pytest.mark.parametrize("row", rows)(test)
