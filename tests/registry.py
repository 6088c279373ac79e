"""Every algorithm with every strategy it takes: a new one is a row here."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import budgetjax as bj
from budgetjax import losses

NUM_FEATURES = 3
NUM_CLASSES = 4
# Room for so many support vectors, whatever the budget, and so many examples: one
# compiled program then serves many tests of a row.
CAPACITY = 64
N = 60


# What some learners do not promise, each with its reason.
LEAVES_HOLES = "slots in the middle become free"
FEW_ENTER = "an example may change the model and be no support vector"
FIXED_FEATURES = "the support vectors are random features, there from the start"


class Row(NamedTuple):
    """One learner under test; 0 classes is regression."""

    name: str
    algorithm: Any
    arguments: dict
    num_classes: int = 2
    kernel: Any = bj.RBF(0.5)
    budget: int = 10
    unlike: str = ""

    def init(self, kernel=None, budget=None, num_features=NUM_FEATURES, **more):
        """An empty model of this learner."""
        kernel = self.kernel if kernel is None else kernel
        budget = self.budget if budget is None else budget
        arguments = self.arguments | more
        arguments = {"num_classes": self.num_classes or None} | arguments
        return self.algorithm.init(
            kernel, num_features=num_features, budget=budget, **arguments
        )

    def roomy(self, **more):
        """An empty model of the shapes that tests share."""
        return self.init(**{"capacity": CAPACITY} | more)

    def kernel_of(self, gamma):
        """A kernel of the row's structure with another parameter."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf) * gamma, self.kernel)

    def stream(self, n=N, seed=0, num_features=NUM_FEATURES):
        """A noisy stream that keeps the learner busy."""
        random = np.random.default_rng(seed)
        X = random.normal(size=(n, num_features))
        columns = max(self.num_classes, 2)
        direction = random.normal(size=(num_features, columns))
        scores = np.sin(2 * X) @ direction + 0.3 * random.normal(size=(n, columns))
        if self.num_classes == 0:
            return X.astype(np.float32), scores[:, 0].astype(np.float32)
        y = np.argmax(scores, axis=1)
        y = 2 * y - 1 if self.num_classes == 2 else y
        return X.astype(np.float32), y.astype(np.int32)

    def counted(self):
        """The algorithm, and a list that grows when it is traced."""
        traces = []
        name = "update" if self.algorithm.update else "block"
        traced = getattr(self.algorithm, name)

        def counting(*given):
            traces.append(None)
            return traced(*given)

        return dataclasses.replace(self.algorithm, **{name: counting}), traces


def _rows():
    polynomial = bj.Normalized(bj.Polynomial(degree=3))
    yield Row("forgetron", bj.forgetron, {}, kernel=polynomial)
    yield Row("forgetron-basic", bj.forgetron, {"shrink": "basic"})
    yield Row(
        "perceptron-unbudgeted",
        bj.perceptron,
        {"maintenance": bj.Unbudgeted()},
        budget=60,
    )
    for name, strategy, classes in (
        ("oldest", bj.RemoveOldest(), NUM_CLASSES),
        ("random", bj.RemoveRandom(), 2),
        ("largest-margin", bj.RemoveLargestMargin(), NUM_CLASSES),
    ):
        yield Row(
            f"perceptron-{name}" + ("-multiclass" if classes > 2 else ""),
            bj.perceptron,
            {"maintenance": strategy},
            classes,
        )
    for name, strategy, classes in (
        ("oldest", bj.RemoveOldest(), 2),
        ("merge", bj.Merge(), 2),
        ("merge-best-pair", bj.MergeBestPair(), 2),
        ("project", bj.Project(), NUM_CLASSES),
    ):
        yield Row(
            f"pegasos-{name}" + ("-multiclass" if classes > 2 else ""),
            bj.pegasos,
            {"maintenance": strategy, "regularization": 1e-2},
            classes,
        )
    yield Row(
        "perceptron-margin-multiclass",
        bj.perceptron,
        {"maintenance": bj.RemoveSmallest(), "margin": 0.5},
        NUM_CLASSES,
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
    yield Row(
        "pegasos-ball-delayed-project-average-multiclass",
        bj.pegasos,
        {
            "maintenance": bj.DelayedProject(share=0.3),
            "regularization": 1e-2,
            "project_to_ball": True,
            "average": 20,
        },
        NUM_CLASSES,
        unlike=LEAVES_HOLES,
    )
    yield Row(
        "pegasos-ball-project-best-average",
        bj.pegasos,
        {
            "maintenance": bj.Project(best=True),
            "regularization": 1e-2,
            "project_to_ball": True,
            "average": 20,
        },
    )
    yield Row(
        "pegasos-merge-average-multiclass",
        bj.pegasos,
        {"regularization": 1e-2, "average": True},
        NUM_CLASSES,
    )
    yield Row(
        "sgd-logistic-average-multiclass",
        bj.sgd,
        {
            "loss": losses.logistic,
            "learning_rate": 0.5,
            "regularization": 0.1,
            "maintenance": bj.MultiMerge(4),
            "average": 20,
        },
        NUM_CLASSES,
        unlike=LEAVES_HOLES,
    )
    yield Row(
        "sgd-huber-regression",
        bj.sgd,
        {"loss": optax.losses.huber_loss, "learning_rate": SCHEDULE},
        0,
    )
    yield Row(
        "perceptron-fewest-errors",
        bj.perceptron,
        {"maintenance": bj.RemoveFewestErrors(20)},
    )
    yield Row("norma", bj.norma, {"learning_rate": 0.3, "regularization": 0.1})
    yield Row("ahpatron-multiclass", bj.ahpatron, {}, NUM_CLASSES, unlike=LEAVES_HOLES)
    yield Row("alma", bj.alma, {"maintenance": bj.RemoveSmallest(), "alpha": 0.8})
    yield Row(
        "passive-aggressive-onto-candidate",
        bj.passive_aggressive,
        {"maintenance": bj.ProjectOntoCandidate(), "variant": "PA-II"},
        kernel=polynomial,
    )
    yield Row(
        "passive-aggressive-onto-nearest-multiclass",
        bj.passive_aggressive,
        {"maintenance": bj.ProjectOntoNearest(), "penalty": 0.3},
        NUM_CLASSES,
    )
    yield Row("projectron", bj.projectron, {"threshold": 0.3}, unlike=FEW_ENTER)
    yield Row(
        "projectron-margin-updates-multiclass",
        bj.projectron,
        {"threshold": 0.3, "margin_updates": True},
        NUM_CLASSES,
        unlike=FEW_ENTER,
    )
    yield Row(
        "projectron-same-class",
        bj.projectron,
        {"threshold": 0.3, "margin_updates": True, "same_class": True},
        NUM_CLASSES,
        unlike=FEW_ENTER,
    )
    yield Row(
        "arow-multiclass", bj.arow, {"drift": 0.01}, NUM_CLASSES, unlike=FEW_ENTER
    )
    yield Row("fourier-average", bj.fourier, {"average": True}, unlike=FIXED_FEATURES)
    yield Row(
        "nystrom-momentum-multiclass",
        bj.nystrom,
        {"optimizer": optax.sgd(0.1, momentum=0.5)},
        NUM_CLASSES,
        unlike=FEW_ENTER,
    )
    yield Row(
        "nystrom-regression",
        bj.nystrom,
        {"loss": optax.losses.squared_error, "average": 20},
        0,
        unlike=FEW_ENTER,
    )


# One object: a schedule is a part of the program.
SCHEDULE = optax.exponential_decay(0.5, 20, 0.7)
ROWS = tuple(_rows())


def subjects(row):
    """What a row is one of few to test."""
    return {row.algorithm, type(row.arguments.get("maintenance"))}


def firsts(rows=ROWS):
    """Rows with every algorithm and every strategy among them, and no needless one."""
    left = list(rows)
    for row in reversed(rows):
        others = [subjects(other) for other in left if other is not row]
        if subjects(row) <= set().union(*others):
            left.remove(row)
    return tuple(left)


def named(*names):
    """The rows of these names."""
    rows = {row.name: row for row in ROWS}
    return tuple(rows[name] for name in names)


# One a family of maintenance, the second order, and features: quick in all tests.
FAMILIES = named(
    "forgetron",
    "pegasos-merge",
    "pegasos-project-multiclass",
    "projectron",
    "arow-multiclass",
    "fourier-average",
)


def each(test, rows=ROWS):
    """Runs a test once for every row; one process takes all tests of a row.

    Compiled loops are then shared between the tests.
    """
    named = [pytest.param(row, id=f"@{row.name}") for row in rows]
    return pytest.mark.parametrize("row", named)(test)


def some(test):
    """As `each`, for enough rows that no algorithm and no strategy is left out."""
    return each(test, firsts())
