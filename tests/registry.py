"""Every learner with every strategy it takes: a new one is a row here."""

import dataclasses
import functools
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


def split(learner, given):
    """The learner with the hyperparameters among these arguments, and the others."""
    own = learner.get_params(deep=False).keys() & given.keys()
    learner = dataclasses.replace(learner, **{name: given[name] for name in own})
    return learner, {name: given[name] for name in given.keys() - own}


class Row(NamedTuple):
    """One learner under test, with arguments of its `init`; 0 classes is regression."""

    name: str
    learner: bj.Learner
    shared: dict
    num_classes: int = 2
    kernel: Any = bj.RBF(0.5)
    budget: int = 10
    unlike: str = ""

    def init(self, kernel=None, budget=None, num_features=NUM_FEATURES, **more):
        """An empty model; `more` are hyperparameters or arguments of `init`."""
        kernel = self.kernel if kernel is None else kernel
        budget = self.budget if budget is None else budget
        learner, shared = split(self.learner, self.shared | more)
        shared = {"num_classes": self.num_classes or None} | shared
        return learner.init(kernel, num_features=num_features, budget=budget, **shared)

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
        """A row with the same learner, and a list that grows when it is traced."""
        traces = []
        kind = type(self.learner)
        # Feature maps have no `update`: they change in every round.
        name = "block" if kind.update is bj.Learner.update else "update"
        traced = getattr(kind, name)

        def counting(*given, **more):
            traces.append(None)
            return traced(*given, **more)

        # Another class, so that nothing compiled before is taken for it.
        counted = type(kind.__name__, (kind,), {name: counting})
        same = self.learner.get_params(deep=False)
        return self._replace(learner=counted(**same)), traces


def _rows():
    polynomial = bj.Normalized(bj.Polynomial(degree=3))
    yield Row("forgetron", bj.Forgetron(), {}, kernel=polynomial)
    yield Row("forgetron-basic", bj.Forgetron(rule="basic"), {})
    yield Row(
        "perceptron-unbudgeted",
        bj.Perceptron(),
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
            bj.Perceptron(),
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
            bj.Pegasos(regularization=1e-2),
            {"maintenance": strategy},
            classes,
        )
    yield Row(
        "perceptron-margin-multiclass",
        bj.Perceptron(margin=0.5),
        {"maintenance": bj.RemoveSmallest()},
        NUM_CLASSES,
        kernel=bj.Normalized(bj.Polynomial(degree=2, gamma=0.3)) * bj.Laplacian(0.1),
    )
    yield Row(
        "pegasos-ball",
        bj.Pegasos(regularization=1e-3, project_to_ball=True),
        {"maintenance": bj.RemoveLargestMargin()},
    )
    yield Row(
        "pegasos-any-signs-ball",
        bj.Pegasos(regularization=1e-2, project_to_ball=True),
        {"maintenance": bj.Merge(same_sign=False)},
    )
    yield Row(
        "pegasos-ball-delayed-project-average-multiclass",
        bj.Pegasos(regularization=1e-2, project_to_ball=True),
        {"maintenance": bj.DelayedProject(share=0.3), "average": 20},
        NUM_CLASSES,
        unlike=LEAVES_HOLES,
    )
    yield Row(
        "pegasos-ball-project-best-average",
        bj.Pegasos(regularization=1e-2, project_to_ball=True),
        {"maintenance": bj.Project(best=True), "average": 20},
    )
    yield Row(
        "pegasos-merge-average-multiclass",
        bj.Pegasos(regularization=1e-2),
        {"average": True},
        NUM_CLASSES,
    )
    yield Row(
        "sgd-logistic-average-multiclass",
        bj.SGD(loss=losses.logistic, learning_rate=0.5, regularization=0.1),
        {"maintenance": bj.MultiMerge(4), "average": 20},
        NUM_CLASSES,
        unlike=LEAVES_HOLES,
    )
    yield Row(
        "sgd-huber-regression",
        bj.SGD(loss=optax.losses.huber_loss, learning_rate=SCHEDULE),
        {},
        0,
    )
    yield Row(
        "perceptron-fewest-errors",
        bj.Perceptron(),
        {"maintenance": bj.RemoveFewestErrors(20)},
    )
    yield Row("norma", bj.NORMA(learning_rate=0.3, regularization=0.1), {})
    yield Row(
        "ahpatron-multiclass", bj.Ahpatron(), {}, NUM_CLASSES, unlike=LEAVES_HOLES
    )
    yield Row("alma", bj.ALMA(alpha=0.8), {"maintenance": bj.RemoveSmallest()})
    yield Row(
        "passive-aggressive-onto-candidate",
        bj.PassiveAggressive(variant="PA-II"),
        {"maintenance": bj.ProjectOntoCandidate()},
        kernel=polynomial,
    )
    yield Row(
        "passive-aggressive-onto-nearest-multiclass",
        bj.PassiveAggressive(penalty=0.3),
        {"maintenance": bj.ProjectOntoNearest()},
        NUM_CLASSES,
    )
    yield Row("projectron", bj.Projectron(threshold=0.3), {}, unlike=FEW_ENTER)
    yield Row(
        "projectron-margin-updates-multiclass",
        bj.Projectron(threshold=0.3, margin_updates=True),
        {},
        NUM_CLASSES,
        unlike=FEW_ENTER,
    )
    yield Row(
        "projectron-same-class",
        bj.Projectron(threshold=0.3, margin_updates=True, same_class=True),
        {},
        NUM_CLASSES,
        unlike=FEW_ENTER,
    )
    yield Row("arow-multiclass", bj.AROW(drift=0.01), {}, NUM_CLASSES, unlike=FEW_ENTER)
    yield Row(
        "krlst-regression",
        bj.KRLST(noise=0.1, forgetting=0.01),
        {},
        0,
        unlike=FEW_ENTER,
    )
    yield Row("fourier-average", bj.Fourier(), {"average": True}, unlike=FIXED_FEATURES)
    yield Row(
        "nystrom-momentum-multiclass",
        bj.Nystrom(optimizer=optax.sgd(0.1, momentum=0.5)),
        {},
        NUM_CLASSES,
        unlike=FEW_ENTER,
    )
    yield Row(
        "nystrom-regression",
        bj.Nystrom(loss=optax.losses.squared_error),
        {"average": 20},
        0,
        unlike=FEW_ENTER,
    )


# One object: a schedule is a part of the program.
SCHEDULE = optax.exponential_decay(0.5, 20, 0.7)
ROWS = tuple(_rows())


def subjects(row):
    """What a row is one of few to test."""
    return {type(row.learner), type(row.shared.get("maintenance"))}


def firsts(rows=ROWS):
    """Rows with every learner and every strategy among them, and no needless one."""
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


# One a family of maintenance, the second order, and features: quick in all tests that
# have rows of these, which are slow for the others.
FAMILIES = named(
    "forgetron",
    "pegasos-merge",
    "pegasos-project-multiclass",
    "projectron",
    "arow-multiclass",
    "fourier-average",
)


def each(test, rows=ROWS, quick=FAMILIES):
    """Runs a test once for every row; one process takes all tests of a row.

    Compiled loops are then shared between the tests. It is slow for all rows but quick
    ones.
    """
    names = {row.name for row in quick}
    named = [
        pytest.param(
            row, id=f"@{row.name}", marks=() if row.name in names else pytest.mark.slow
        )
        for row in rows
    ]
    return pytest.mark.parametrize("row", named)(test)


def only(*names):
    """As `each`, for the rows of these names, all of them quick."""
    rows = named(*names)
    return functools.partial(each, rows=rows, quick=rows)


def some(test):
    """As `each`, for enough rows that no learner and no strategy is left out."""
    return each(test, firsts())
