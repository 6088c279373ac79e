"""`refit`: the best coefficients of the support vectors that a stream chose."""

import functools
import importlib
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from compare import kept
from compiling import programs
from marks import first_quick, slow
from reference import kernels
from reference import refit as reference
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax import _counters, losses
from budgetjax._errors import InputError
from budgetjax.online import support_set
from budgetjax.online.slots import FREE
from budgetjax.online.span import RIDGE, from_vectors
from budgetjax.refitting import (
    held_out,
    moving_vectors,
    newton,
    solution,
    training_data,
)

pytestmark = pytest.mark.usefixtures("plain_loops")

# The module: the package has the function of the same name.
module = importlib.import_module("budgetjax.refitting.refit")

D, N, BUDGET, CLASSES = 3, 300, 20, 3
GAMMA = 0.5
KERNEL = kernels.rbf(GAMMA)


def points(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


def scores_of(X, seed=1, columns=CLASSES, noise=0.5):
    random = np.random.default_rng(seed)
    return np.sin(2 * X) @ random.normal(size=(D, columns)) + noise * random.normal(
        size=(len(X), columns)
    )


def answers(X, num_classes, **more):
    """Targets of a noisy problem; 0 classes is regression."""
    scores = scores_of(X, **more)
    if num_classes == 0:
        return 3 * scores[:, 0].astype(np.float32)
    if num_classes == 2:
        return np.where(scores[:, 0] > 0, 1, -1).astype(np.int32)
    return np.argmax(scores, axis=1).astype(np.int32)


def weights_of(n=N):
    """Some are 0."""
    return np.random.default_rng(2).integers(0, 4, n).astype(np.float32) / 2


def vectors(budget=BUDGET):
    return points(budget, seed=3)


def holding(state, Z):
    """The state with these support vectors, and no coefficients."""
    old = state.expansion
    rows = np.zeros_like(old.vectors)
    rows[: len(Z)] = Z
    slots = np.arange(len(rows), dtype=np.int32)
    new = {
        "vectors": rows,
        "squares": np.sum(rows**2, axis=1),
        "ages": np.where(slots < len(Z), slots + 1, np.int32(FREE)),
        "num_active": np.asarray(len(Z), np.int32),
    }
    return state._replace(
        expansion=old._replace(**{name: jnp.asarray(new[name]) for name in new})
    )


def model(num_classes=2, Z=None, kernel=None, dtype=jnp.float32):
    """A model with support vectors, of a learner that has nothing else."""
    Z = vectors() if Z is None else Z
    arguments = {
        "num_features": Z.shape[1],
        "budget": len(Z) + 2,  # two slots stay free
        "maintenance": bj.RemoveOldest(),
        "num_classes": num_classes or None,
        "dtype": dtype,
    }
    kernel = bj.RBF(GAMMA) if kernel is None else kernel
    loss = losses.hinge if num_classes else optax.losses.squared_error
    learner = bj.SGD(loss=loss, learning_rate=0.5)
    return holding(learner.init(kernel, **arguments), Z.astype(dtype))


def coefficients(state):
    """Of the support vectors, in float64."""
    support = bj.support(state)
    mask = np.asarray(support.mask)
    return np.asarray(support.coefficients, np.float64)[mask]


def objective(state, X, y, num_classes=2, kernel=KERNEL, **problem):
    support = bj.support(state)
    mask = np.asarray(support.mask)
    return reference.objective(
        kernel,
        np.asarray(support.vectors)[mask],
        np.asarray(support.coefficients)[mask],
        X,
        reference.targets(y, num_classes),
        **({"loss": "squared_hinge", "penalty": 10.0} | problem),
    )


@pytest.fixture
def exact(double, monkeypatch):
    """float64, and solutions to its precision."""
    monkeypatch.setattr(bj, "refit", functools.partial(bj.refit, tolerance=1e-20))


# The solution is right.

PROBLEMS = [
    ("squared_hinge", 2),
    ("squared_hinge", CLASSES),
    ("logistic", 2),
    ("logistic", CLASSES),
    ("squared", 0),
    ("squared", CLASSES),
    ("huber", 0),
    ("huber", CLASSES),
]


# Of float32 those that other tests compile too.
@pytest.mark.parametrize(
    ("loss", "num_classes", "x64"),
    [
        *slow(*((*problem, True) for problem in PROBLEMS)),
        *(("squared_hinge", CLASSES, False), ("logistic", 2, False)),
        ("huber", 0, False),
    ],
    indirect=["x64"],
)
def test_it_is_the_reference(loss, num_classes, x64):
    X = points()
    y, weight = answers(X, num_classes), weights_of()
    problem = {"loss": loss, "penalty": 3.0}
    t = reference.targets(y, num_classes)
    expected = reference.coefficients(
        KERNEL, vectors(), X, t, weights=weight, **problem
    )
    state = model(num_classes, dtype=jnp.float64 if x64 else jnp.float32)
    tolerance = 1e-20 if x64 else module.TOLERANCE
    state = bj.refit(state, X, y, weight=weight, tolerance=tolerance, **problem)
    least = objective(
        model(num_classes), X, y, num_classes, weights=weight, **problem
    )  # of no model
    best = reference.objective(
        KERNEL, vectors(), expected, X, t, weights=weight, **problem
    )
    assert best < 0.95 * least
    given = objective(state, X, y, num_classes, weights=weight, **problem)
    np.testing.assert_allclose(given, best, rtol=1e-12 if x64 else 1e-4)
    if x64:
        rows = reference.rows(KERNEL, X, vectors())
        scores = np.asarray(bj.decision_function(state, X)).reshape(N, -1)
        np.testing.assert_allclose(scores, rows @ expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("loss", ["squared_hinge", "logistic", "squared"])
def test_it_is_scikit_learns(loss):
    """Linear models on the same features, of float64."""
    X = points()
    y = answers(X, 0 if loss == "squared" else 2)
    root = reference.whitening(reference.rows(KERNEL, vectors(), vectors()))
    features = reference.rows(KERNEL, X, vectors()) @ root
    penalty = 2.0
    rival = {
        "squared_hinge": LinearSVC(
            C=penalty, fit_intercept=False, tol=1e-8, max_iter=10_000
        ),
        "logistic": LogisticRegression(
            C=penalty, fit_intercept=False, tol=1e-8, max_iter=10_000
        ),
        "squared": Ridge(alpha=1 / penalty, fit_intercept=False),
    }[loss].fit(features, y)
    expected = reference.objective(
        KERNEL,
        vectors(),
        root @ np.reshape(rival.coef_, (-1, 1)),
        X,
        reference.targets(y, 2),
        loss=loss,
        penalty=penalty,
    )
    state = bj.refit(model(0 if loss == "squared" else 2), X, y, loss=loss, penalty=2.0)
    given = objective(state, X, y, loss=loss, penalty=penalty)
    np.testing.assert_allclose(given, expected, rtol=1e-4)


def test_a_loss_of_ones_own():
    def own(score, target):
        return (score - target) ** 2 / 2

    X = points()
    y = answers(X, 0)
    # In units of the targets it is another number by a rounding.
    np.testing.assert_allclose(
        coefficients(bj.refit(model(0), X, y, loss=own)),
        coefficients(bj.refit(model(0), X, y, loss="squared")),
        rtol=1e-4,
    )


def test_losses_may_be_negative():
    """Poisson regression, whose least objective is far below 0: no warning."""

    def poisson(score, target):
        return jnp.exp(score) - target * score

    X = points()
    rates = np.exp(1.3 + np.sin(X[:, 0]) / 2)
    y = np.random.default_rng(4).poisson(rates).astype(np.float32)
    state = bj.refit(model(0), X, y, loss=poisson)
    # The gradient by the coefficients is 0.
    a = coefficients(state)[:, 0]
    K, rows = (reference.rows(KERNEL, one, vectors()) for one in (vectors(), X))
    errors = np.exp(rows @ a) - y
    left = K @ a + 10 * rows.T @ errors
    assert np.all(np.abs(left) < 1e-2 * 10 * rows.T @ np.abs(errors))
    assert np.sum(poisson(rows @ a, y)) < -100


def test_few_programs_once():
    """Samples, classes and penalties need none of their own."""
    X = points(2 * N)[:, :2]
    y = answers(points(2 * N), CLASSES)
    state = model(CLASSES, vectors()[:5, :2])
    with programs() as first:
        bj.refit(state, X, y)
    assert len(first) <= 12
    with programs() as more:
        bj.refit(state, X, y, penalty=2.0)
        bj.refit(state, X, y, loss="squared_hinge", tolerance=1e-4)
    assert not more


# Arrays, batches and what else gives examples.


class Again:
    """Batches that are made anew in every pass."""

    def __init__(self, make):
        self.make = make

    def __iter__(self) -> Iterator[tuple[np.ndarray, ...]]:
        return self.make()


SIZES = (1, 37, 0, 100, 5, 157)


def batches(*arrays, sizes=SIZES):
    ends = np.cumsum(sizes)
    assert ends[-1] == len(arrays[0])
    for end, size in zip(ends, sizes, strict=True):
        yield tuple(array[end - size : end] for array in arrays)


def test_batches_are_arrays(exact, monkeypatch):
    X = points()
    y, weight = answers(X, CLASSES), weights_of()
    state = model(CLASSES, dtype=jnp.float64)
    passed = []
    minimise = newton.minimise

    def spied(loss, basis, blocks, *given, **more):
        passed.append(sum(block.weights.shape[0] for block in blocks()))
        return minimise(loss, basis, blocks, *given, **more)

    monkeypatch.setattr(newton, "minimise", spied)
    one = coefficients(bj.refit(state, X, y, weight=weight))
    assert passed == [N]
    monkeypatch.setattr(training_data, "BLOCK", 64)
    monkeypatch.setattr(solution, "ENOUGH", 1)
    monkeypatch.setattr(solution, "SAMPLE", 2)
    for given, more in (
        (X, {"y": y, "weight": weight}),
        (list(batches(X, y, weight)), {}),
        (Again(lambda: batches(X, y, weight)), {}),
    ):
        del passed[:]
        other = coefficients(bj.refit(state, given, **more))
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8)
        # The first steps saw every second row.
        assert passed == [3 * 64, 5 * 64]
    plain = coefficients(bj.refit(state, list(batches(X, y))))
    expected = coefficients(bj.refit(state, X, y))
    np.testing.assert_allclose(plain, expected, rtol=1e-8, atol=1e-8)
    assert np.any(np.abs(plain - one) > 1e-3)


@pytest.mark.parametrize(
    ("loss", "most"), [("squared_hinge", 0.005), ("squared", 1e-4)]
)
def test_a_generator_gets_near(loss, most, monkeypatch):
    """1,500 rows once, in blocks of 256: measured 0.04 percent, and 1e-6."""
    monkeypatch.setattr(training_data, "BLOCK", 256)
    X = points(1500)
    y = answers(X, CLASSES)
    sizes = (700, 1, 299, 500)
    best = objective(
        bj.refit(model(CLASSES), X, y, loss=loss), X, y, CLASSES, loss=loss
    )
    once = bj.refit(model(CLASSES), batches(X, y, sizes=sizes), loss=loss)
    near = objective(once, X, y, CLASSES, loss=loss)
    assert best * (1 - 1e-4) <= near <= best * (1 + most)


def test_few_blocks_are_held(monkeypatch):
    """Of forty: what is joined, the block made of it, and what still works on it."""
    monkeypatch.setattr(training_data, "BLOCK", 50)
    monkeypatch.setattr(training_data, "HELD", 0)
    most, blocks = [], []

    class Batch(np.ndarray):
        """An array that can be referred to weakly."""

    def made():
        held = []
        for i in range(40):
            X = points(50, seed=10 + i)
            y = answers(X, 2)
            X = X.view(Batch)
            held.append(weakref.ref(X))
            most.append(sum(one() is not None for one in held))
            blocks.append(sum(array.shape == (50, D) for array in jax.live_arrays()))
            yield X, y
            del X

    bj.refit(model(), Again(made))
    assert len(most) >= 2 * 40
    assert max(most) <= 4
    assert max(blocks) <= 4


# Which penalty.


@pytest.mark.parametrize(
    ("loss", "num_classes"),
    [("squared_hinge", CLASSES), *slow(("squared_hinge", 2), ("squared", 0))],
)
def test_the_penalty_of_the_best_held_out(loss, num_classes, exact):
    """Sixty noisy examples for twenty vectors: large penalties learn the noise."""
    penalties = (1e3, 1e-3, 1.0, 10.0)
    X = points()
    y = answers(X, num_classes)
    weight = weights_of() * (np.arange(N) % 5 == 0)
    t = reference.targets(y, num_classes).reshape(N, -1)
    block = training_data.Block(X, t, weight)
    costs = 0
    for fold in range(held_out.FOLDS):
        (part,) = held_out.mask_fold(lambda: iter([block]), 5, fold, True)
        _, each = reference.best_penalty(
            *(KERNEL, vectors(), X, reference.targets(y, num_classes)),
            loss=loss,
            penalties=penalties,
            held=part.weights > 0,
            weights=weight,
        )
        costs += np.array(each)
    assert np.sum(costs == min(costs)) == 1
    best = penalties[int(np.argmin(costs))]
    assert best != penalties[0]
    # Landmarks are the same for all examples: no stream chooses others.
    own = optax.losses.squared_error if num_classes == 0 else None
    state = bj.Nystrom(loss=own).init(
        bj.RBF(GAMMA),
        num_features=D,
        budget=BUDGET,
        num_classes=num_classes or None,
        vectors=vectors(),
        dtype=jnp.float64,
    )
    problem = {"weight": weight, "loss": loss, "seed": 5}
    chosen = bj.refit(state, X, y, penalty=penalties, **problem)
    alone = bj.refit(state, X, y, penalty=best, **problem)
    scores = [np.asarray(bj.decision_function(one, X)) for one in (chosen, alone)]
    np.testing.assert_allclose(scores[0], scores[1], rtol=1e-7, atol=1e-7)


def test_no_held_out_label_moves_a_vector_that_chooses():
    """A fifth of the variance is no noise; merging learns the noise of all rows."""
    penalties = (1e-3, 1e-2, 0.1, 1.0, 10.0)
    for seed in range(2):
        random = np.random.default_rng(seed)
        X = random.normal(size=(8000, 10)).astype(np.float32)
        y = (X[:, 0] + 2 * random.normal(size=8000)).astype(np.float32)
        state = bj.SGD().init(
            bj.RBF(0.1), num_features=10, budget=100, num_classes=None
        )
        given = X[:3000], y[:3000]
        state, _ = bj.run(state, *given)

        def error(penalty, state=state, given=given, X=X, y=y):
            model = bj.refit(state, *given, loss="squared", penalty=penalty)
            return np.mean((np.asarray(bj.predict(model, X[3000:])) - y[3000:]) ** 2)

        errors = [error(penalty) for penalty in penalties]
        # The next penalties are ten times as large, or as small.
        assert error(penalties) < min(errors) * 1.003 < sorted(errors)[1]


# float32 does not fall over.


# What is made of vectors, and the parameter of a Gaussian, or None for a linear kernel,
# which sees but three of them in three dimensions.
DEGENERATE = {
    "in lines": (lambda Z: Z, None),
    "twice": (lambda Z: np.concatenate([Z[:10], Z[:10]]), GAMMA),
    "all one": (np.ones_like, GAMMA),
    "near rank one": (lambda Z: Z, 1e-5),
    "some zero": (lambda Z: np.where(np.arange(len(Z))[:, None] < 10, 0, Z), None),
    "all zero": (np.zeros_like, None),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_degenerate_support_vectors(name):
    change, gamma = DEGENERATE[name]
    kernel = bj.RBF(gamma) if gamma else bj.Linear()
    plain = kernels.rbf(gamma) if gamma else kernels.linear()
    X, Z = points(), change(vectors())
    y = answers(X, CLASSES)
    t = reference.targets(y, CLASSES)
    for penalty in (1e-6, 1e6):
        state = bj.refit(model(CLASSES, Z, kernel), X, y, penalty=penalty)
        for leaf in jax.tree.leaves(state):
            assert np.all(np.isfinite(leaf))
        problem = {"loss": "squared_hinge", "penalty": penalty}
        best = penalty * t.size
        if name != "all zero":
            a = reference.coefficients(plain, Z, X, t, **problem)
            best = reference.objective(plain, Z, a, X, t, **problem)
        given = objective(state, X, y, CLASSES, kernel=plain, **problem)
        np.testing.assert_allclose(given, best, rtol=1e-4)


def test_a_model_that_has_shrunk_for_long():
    """Its scale is at the end of float32's range."""
    state = model(0)
    state = state._replace(
        expansion=state.expansion._replace(scale=jnp.asarray(1e-37, jnp.float32))
    )
    X = points()
    y = 1e3 * answers(X, 0)
    state = bj.refit(state, X, y, loss="squared")
    expected = bj.refit(model(0), X, y, loss="squared")
    given, expected = (
        np.asarray(bj.decision_function(s, X)) for s in (state, expected)
    )
    np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1)


# Labels that are missing.


@pytest.mark.parametrize(("num_classes", "label"), [(2, -1), (2, 1), (CLASSES, 1)])
def test_one_class_alone(num_classes, label):
    X = points()
    state = bj.refit(model(num_classes), X, np.full(N, label))
    near = np.asarray(reference.rows(KERNEL, X, vectors())).max(axis=1) > 0.5
    assert np.mean(near) > 0.5
    np.testing.assert_array_equal(np.asarray(bj.predict(state, X))[near], label)


def test_a_class_that_is_never_seen(exact):
    X = points()
    y = answers(X, CLASSES)
    three = bj.refit(model(CLASSES, dtype=jnp.float64), X, y)
    # Class 1 is missing.
    four = bj.refit(model(4, dtype=jnp.float64), X, np.where(y > 0, y + 1, y))
    given = coefficients(four)
    assert np.all(np.isfinite(given))
    assert not np.any(np.asarray(bj.predict(four, X)) == 1)
    np.testing.assert_allclose(
        given[:, [0, 2, 3]], coefficients(three), rtol=1e-7, atol=1e-7
    )


# The result is an ordinary state.


MOMENTUM = optax.sgd(0.1, momentum=0.5)
PEGASOS = bj.Pegasos(regularization=1e-2)
LEARNERS = {
    "pegasos-merge": (PEGASOS, {"maintenance": bj.Merge()}),
    "pegasos-best-pair": (PEGASOS, {"maintenance": bj.MergeBestPair()}),
    "pegasos-project-average": (
        PEGASOS,
        {"maintenance": bj.Project(), "average": True},
    ),
    "pegasos-ball": (
        bj.Pegasos(regularization=0.1, project_to_ball=True),
        {"maintenance": bj.RemoveLargestMargin()},
    ),
    "passive-aggressive-nearest": (
        bj.PassiveAggressive(),
        {"maintenance": bj.ProjectOntoNearest()},
    ),
    "forgetron": (bj.Forgetron(), {}),
    "projectron": (bj.Projectron(threshold=0.3), {}),
    "norma-average": (
        bj.NORMA(learning_rate=0.3, regularization=0.1),
        {"average": 1000},
    ),
    "nystrom-average": (bj.Nystrom(optimizer=MOMENTUM), {"average": 20}),
    "fourier": (bj.Fourier(), {}),
    "arow": (bj.AROW(), {}),
    "arow-largest-margin": (bj.AROW(), {"maintenance": bj.RemoveLargestMargin()}),
}


def learn(state, X, y, **more):
    """A run by the loop that compiles soonest."""
    return bj.run(state, X, y, block_size=1, **more)


def started(name, n=100, budget=10):
    learner, arguments = LEARNERS[name]
    state = learner.init(bj.RBF(GAMMA), num_features=D, budget=budget, **arguments)
    X = points(n, seed=7)
    y = answers(X, 2)
    state, _ = learn(state, X, y)
    return state, X, y


def check_ordinary(new, old):
    chex.assert_trees_all_equal_structs(new, old)
    chex.assert_trees_all_equal_shapes_and_dtypes(new, old)
    for leaf in jax.tree.leaves(new):
        assert np.all(np.isfinite(leaf))
        assert not getattr(leaf, "weak_type", False)
    for name in ("ages", "num_active", "budget"):
        np.testing.assert_array_equal(
            getattr(new.expansion, name), getattr(old.expansion, name), err_msg=name
        )
    # A run corrects what rounding has made of the scale of a model in a ball.
    np.testing.assert_allclose(new.expansion.scale, old.expansion.scale, rtol=3e-7)


def unscaled(state):
    """The model that its strategy goes by."""
    counts = getattr(state.memory, "counts", None)
    if counts is None:
        return state.expansion
    return state.expansion._replace(
        coefficients_and_sums=counts, scale=jnp.ones_like(state.expansion.scale)
    )


def check_caches(state, atol):
    """What strategy and span keep is what the support vectors say."""
    strategy = state.maintenance
    mask = np.asarray(state.expansion.mask)
    both = mask[:, None] & mask[None]
    if isinstance(strategy, bj.MergeBestPair | bj.ProjectOntoNearest):
        fresh = strategy.start(state.kernel, state.expansion, 0)
        np.testing.assert_allclose(
            np.where(both, strategy.gram, 0), fresh.gram, atol=atol
        )
    if isinstance(strategy, bj.RemoveLargestMargin):
        fresh = strategy.start(state.kernel, unscaled(state), 0)
        scale = np.abs(fresh.responses).max()
        np.testing.assert_allclose(
            strategy.responses[mask], fresh.responses[mask], atol=atol * scale
        )
    for owner in (strategy, state.memory):
        span = getattr(owner, "span", None)
        if span is not None:
            Z = np.asarray(state.expansion.vectors)[mask]
            K = reference.rows(KERNEL, Z, Z)
            K += RIDGE * np.eye(len(K))
            R = np.asarray(span.root, np.float64)[:, mask][mask]
            np.testing.assert_allclose(R @ K @ R.T, np.eye(len(K)), atol=10 * atol)
            np.testing.assert_allclose(
                np.asarray(span.gram)[:, mask][mask], K, atol=atol
            )


# The @ is of `conftest.group`: the tests of a learner share its compiled loop.
@pytest.mark.parametrize("name", first_quick(LEARNERS), ids="@{}".format)
def test_it_goes_on_learning(name):
    state, X, y = started(name)
    before = jax.tree.map(np.array, state)
    check_caches(state, 1e-4)
    new = bj.refit(state, X, y)
    jax.tree.map(np.testing.assert_array_equal, state, before)
    check_ordinary(new, state)
    check_caches(new, 1e-4)
    np.testing.assert_array_equal(
        new.expansion.vectors[:10], state.expansion.vectors[:10]
    )
    hinge = [
        np.sum(np.maximum(1 - y * np.asarray(bj.decision_function(one, X)), 0) ** 2)
        for one in (state, new)
    ]
    assert hinge[1] < hinge[0]
    # Rows without a weight change nothing.
    same, _ = learn(new, X, y, weight=np.zeros(len(X)))
    scores = np.asarray(bj.decision_function(new, X))
    np.testing.assert_allclose(bj.decision_function(same, X), scores, atol=1e-5)
    other, first = learn(new, X, y)
    np.testing.assert_allclose(first[0], scores[0], atol=1e-5)
    check_ordinary(same, state)
    chex.assert_trees_all_equal_structs(other, state)
    for leaf in jax.tree.leaves(kept(other)):
        assert np.all(np.isfinite(leaf))
    check_caches(other, 1e-3)
    assert int(other.num_seen) == 2 * len(X)
    assert int(other.num_updates) > int(new.num_updates)
    assert np.any(np.asarray(bj.decision_function(other, X)) != scores)
    if new.expansion.average is not None:
        average = bj.decision_function(bj.average_iterates(new), X)
        np.testing.assert_allclose(average, scores, atol=1e-5)
        start = int(_counters.number(new.expansion.average.start))
        assert start == (1000 if name == "norma-average" else len(X) + 1)
        # Of the rounds since alone: of the first, where vectors leave.
        one, iterates = new, []
        for i in range(10 if isinstance(state.learner, bj.Nystrom) else 1):
            one, _ = learn(one, X, y, weight=np.arange(len(X)) == i)
            iterates.append(bj.decision_function(one, X))
        expected = np.mean(iterates, axis=0)
        average = bj.decision_function(bj.average_iterates(one), X)
        np.testing.assert_allclose(
            average, expected, atol=1e-4 * np.abs(expected).max()
        )


# Support vectors that move.


@pytest.mark.parametrize(
    "name",
    ["pegasos-project-average", *slow("projectron", "nystrom-average", "arow")],
    ids="@{}".format,
)
def test_moving_vectors_lower_the_objective(name):
    state, X, y = started(name)
    problem: dict[str, Any] = {"penalty": 5.0}
    fixed = bj.refit(state, X, y, **problem)
    moves = {"move_vectors": True, "epochs": 10, "seed": 3}
    moved = bj.refit(state, X, y, **problem, **moves)
    assert objective(moved, X, y, **problem) < 0.97 * objective(fixed, X, y, **problem)
    check_ordinary(moved, state)
    check_caches(moved, 1e-4)
    mask = np.asarray(state.expansion.mask)
    old, new = (np.asarray(one.expansion.vectors) for one in (state, moved))
    assert np.all(np.any(old != new, axis=1) == mask)
    np.testing.assert_allclose(
        moved.expansion.squares[mask], np.sum(new[mask] ** 2, axis=1), rtol=1e-5
    )
    with programs() as more:
        again = bj.refit(state, X, y, **problem, **moves)
    assert not more
    jax.tree.map(np.testing.assert_array_equal, again, moved)
    if name == "arow":
        S = np.eye(len(mask)) - np.asarray(moved.memory.certainty)
        np.testing.assert_allclose(S, S.T, atol=1e-5)
        values = np.linalg.eigvalsh(S.astype(np.float64))
        assert np.all((values > -1e-4) & (values < 1 + 1e-4))
        assert values.min() < 0.5  # it still knows what it has learned
    other, first = learn(moved, X, y)
    scores = np.asarray(bj.decision_function(moved, X[:1]))
    np.testing.assert_allclose(first[:1], scores, atol=1e-4)
    for leaf in jax.tree.leaves(kept(other)):
        assert np.all(np.isfinite(leaf))
    check_caches(other, 1e-3)
    check_ordinary(other, other)
    assert int(other.expansion.num_active) <= int(other.expansion.budget)


def test_steps_are_in_units_of_what_varies():
    """Columns that are constant, near 0 or far from it, change nothing."""
    Z = vectors()
    still = np.concatenate([Z, np.zeros_like(Z), np.full_like(Z, 1000.1)], axis=1)
    assert moving_vectors.unit_of(still) == moving_vectors.unit_of(Z)
    np.testing.assert_allclose(
        moving_vectors.unit_of(Z), np.sqrt(np.mean(Z.std(axis=0) ** 2)), rtol=1e-6
    )
    assert moving_vectors.unit_of(np.full_like(Z, 3)) == 1


def test_the_span_of_vectors_far_from_zero():
    """Their kernel matrix in float32 has eigenvalues below 0: a larger ridge."""
    Z = 300 + np.random.default_rng(0).normal(size=(30, D)).astype(np.float32)
    expansion = model(Z=Z, kernel=bj.RBF(0.1)).expansion
    K = np.asarray(support_set.gram(bj.RBF(0.1), expansion), np.float64)
    small = np.linalg.eigvalsh(K).min() / K.max()
    assert small < -2 * RIDGE
    found = from_vectors(bj.RBF(0.1), expansion)
    root = np.asarray(found.root, np.float64)
    assert np.all(np.isfinite(root))
    mask = np.asarray(expansion.mask)
    np.testing.assert_allclose(
        root @ found.gram @ root.T, np.diag(mask.astype(float)), atol=1e-3
    )
    # And no larger one where it is positive.
    near = expansion._replace(vectors=expansion.vectors - 300)
    near = near._replace(squares=jnp.sum(near.vectors**2, axis=1))
    gram = from_vectors(bj.RBF(0.1), near).gram
    np.testing.assert_allclose(
        np.diagonal(gram), np.where(mask, 1 + RIDGE, 0), rtol=1e-6
    )


def test_moving_vectors_of_batches_and_penalties(monkeypatch):
    """Free slots stay free; several classes."""
    monkeypatch.setattr(training_data, "BLOCK", N)
    X = points()
    y = answers(X, CLASSES)
    state = model(CLASSES)
    given = {
        "move_vectors": True,
        "epochs": 4,
        "penalty": (1e-3, 10.0),
        "loss": "logistic",
    }
    moved = bj.refit(state, Again(lambda: batches(X, y)), **given)
    fixed = bj.refit(state, X, y, loss="logistic")
    check_ordinary(moved, state)
    support = bj.support(moved)
    assert not np.any(support.mask[BUDGET:])
    assert not np.any(support.vectors[BUDGET:])
    assert not np.any(support.coefficients[BUDGET:])
    values = [objective(one, X, y, CLASSES, loss="logistic") for one in (moved, fixed)]
    assert values[0] < values[1]


# Progress, warnings and errors.


def test_a_bar_shows_the_progress(capfd, monkeypatch):
    pytest.importorskip("tqdm")
    X = points()
    quiet = bj.refit(model(), X, answers(X, 2))
    assert capfd.readouterr() == ("", "")
    shown = bj.refit(model(), X, answers(X, 2), progress=True)
    out, err = capfd.readouterr()
    assert not out
    assert "refit" in err
    assert "objective" in err
    jax.tree.map(np.testing.assert_array_equal, shown, quiet)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"^refit needs tqdm: pip install tqdm"):
        bj.refit(model(), X, answers(X, 2), progress=True)
    bj.refit(model(), X, answers(X, 2))


def test_too_few_passes_are_a_warning(monkeypatch):
    monkeypatch.setattr(newton, "MAX_PASSES", 1)
    X = points()
    with pytest.warns(UserWarning, match=r"refit: 1 of 1 columns have not converged"):
        state = bj.refit(model(), X, answers(X, 2))
    assert np.all(np.isfinite(coefficients(state)))


X_, Y_ = points(), answers(points(), 2)


def changed(array, row, value, dtype=None):
    """The array with another value in one row."""
    array = np.array(array, dtype)
    array.flat[row * (array.size // len(array))] = value
    return array


def once():
    return iter([(X_, Y_)])


def stacked():
    return jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), model())


def bad(says, *given, state=model, **more):
    """A row of the table: what the message says, and what is given."""
    return pytest.param(says, state, given, more, id=says)


REAL, MANY = functools.partial(model, 0), functools.partial(model, CLASSES)
NAN, LABEL = changed(X_, 5, np.nan), changed(Y_, 7, 3)
NEGATIVE = changed(np.ones(N), 4, -1)
NO_ROWS = "X must have rows with a weight above 0, got none"
AGAIN = "batches that can be read again"
BAD = [
    bad(NO_ROWS, X_[:0], Y_[:0]),
    bad(NO_ROWS, X_, Y_, weight=np.zeros(N)),
    bad(NO_ROWS, []),
    bad(NO_ROWS, [(X_[:0], Y_[:0])]),
    bad(NO_ROWS, [(X_, Y_, np.zeros(N))]),
    bad(NO_ROWS, iter(())),
    bad("must have support vectors", X_, Y_, state=lambda: model(Z=vectors()[:0])),
    bad("model must be a single one", X_, Y_, state=stacked),
    bad("got 3 in row 7", X_, LABEL),
    bad("0 .. 2, got 3 in row 7", X_, changed(Y_ * 0, 7, CLASSES), state=MANY),
    bad(
        "y must be .1 or .1 .* got 0.5 in row 7",
        *(X_, changed(Y_, 7, 0.5, float)),
        state=REAL,
    ),
    bad(
        "y must be finite .* got nan in row 7",
        *(X_, changed(Y_, 7, np.nan, float)),
        state=REAL,
        loss="squared",
    ),
    bad("X must be finite, got nan in row 5", NAN, Y_),
    bad("batch 1: X must be finite, got nan in row 5", [(X_, Y_), (NAN, Y_)]),
    bad("batch 2: y must be .* in row 7", [(X_, Y_), (X_, Y_), (X_, LABEL)]),
    bad("batch 0: X must have shape", [(X_[:, :1], Y_)]),
    bad("batch 0: y must have shape", [(X_, Y_[1:])]),
    bad("batch 0: weight must be .* got -1.0 in row 4", [(X_, Y_, NEGATIVE)]),
    bad(r"batch 1 must be \(X, y\)", [(X_, Y_), X_]),
    bad(r"batch 0 must be \(X, y\)", [(X_,)]),
    bad("y must be given", X_),
    bad("y must be given .* int", 3),
    bad("weight must be in the batches", [(X_, Y_)], weight=np.ones(N)),
    bad("weight must be .* got -1.0 in row 4", X_, Y_, weight=NEGATIVE),
    bad("move_vectors must be", X_, Y_, move_vectors=1),
    bad(
        "move_vectors must be False for Fourier",
        *(X_, Y_),
        state=lambda: bj.Fourier().init(bj.RBF(1.0), num_features=2, budget=4),
        move_vectors=True,
    ),
    bad("progress must be", X_, Y_, progress="yes"),
    bad("float32", X_, Y_, penalty=1e60),
    bad(AGAIN, once(), penalty=(1, 10)),
    bad(f".*{AGAIN}", once(), move_vectors=True),
]
# Several values of one argument.
BAD_VALUES = {
    "loss": (
        *("hinge", None, 3, jnp.abs, lambda score, target: (score, target)),
        lambda score, target: jnp.stack([score, target]),
        lambda score, target: score > target,
    ),
    "penalty": (0, -1.0, np.nan, np.inf, "10", (), [1.0, 0.0], [[1.0], [2.0]]),
    "epochs": (0, -1, 2.5, "20"),
    "seed": (-1, 1.5, "a", None),
}


@pytest.mark.parametrize(("says", "state", "given", "more"), BAD)
def test_errors(says, state, given, more, as_installed):
    with pytest.raises(ValueError, match=rf"^refit: .*{says}") as raised:
        bj.refit(state(), *given, **more)
    assert isinstance(raised.value, InputError)


@pytest.mark.parametrize("name", BAD_VALUES)
def test_errors_of_values(name, as_installed):
    for value in BAD_VALUES[name]:
        more = {"penalty": [1.0, 2.0]} if name == "seed" else {}
        with pytest.raises(ValueError, match=rf"^refit: .*{name} must be"):
            bj.refit(model(), X_, Y_, **more | {name: value})


def test_an_overflow_of_kernel_values_is_an_error():
    """Of their sums, and of the values themselves; at once, and without a warning."""
    for scale in (1e2, 1e6):
        with pytest.raises(ValueError, match=r"^refit: .* overflow"):
            bj.refit(model(kernel=bj.Polynomial(10)), scale * X_, Y_)
    far = model(Z=vectors() + 1e6, kernel=bj.Polynomial(10))
    with pytest.raises(ValueError, match=r"^refit: .* so far from 0, .*; centre X$"):
        bj.refit(far, X_ + 1e6, Y_)


def test_what_predicts_raw_targets_learns_its_intercept():
    """Against ridge regression on the features and a constant, in closed form.

    It is from the mean of the targets that the penalty holds the intercept.
    """
    X = points()
    targets = answers(X, 0) + 5
    state = bj.SGD().init(
        bj.RBF(GAMMA), num_features=D, budget=BUDGET, num_classes=None
    )
    state, _ = bj.run(state, X, targets - 5)
    model = bj.TableModel(state, intercept=4.0)
    found = bj.refit(model, X, targets, loss="squared", penalty=10.0)
    root = np.asarray(state.learner.basis(state), float)
    rows = np.asarray(state.kernel.gram(X, state.expansion.vectors), float)
    F = np.hstack([rows @ root, np.ones((N, 1))])
    mean = targets.mean()
    weights = np.linalg.solve(F.T @ F + np.eye(F.shape[1]) / 10, F.T @ (targets - mean))
    assert found.intercept == pytest.approx(mean + weights[-1], rel=1e-3)
    # In float32, solved to a relative gain of 1e-5.
    np.testing.assert_allclose(bj.predict(found, X), F @ weights + mean, rtol=2e-3)
    # A state has no place for one.
    assert not hasattr(bj.refit(state, X, targets - 5, loss="squared"), "intercept")


# Models of solvers.


def of_solver(num_classes=2, classes=None):
    """A model with a bias, and its examples."""
    X, Z = points(), vectors(8)
    columns = () if num_classes == 2 else (num_classes,)
    model = bj.KernelModel(
        bj.RBF(GAMMA), jnp.asarray(Z), jnp.ones((8, *columns)), jnp.ones(columns)
    )
    y = answers(X, num_classes)
    if classes is None:
        return model, X, y
    return bj.TableModel(model, classes=classes), X, classes[(y + 1) // 2]


def test_the_model_of_a_solver_gets_coefficients_and_a_bias():
    """Where the gradient of the objective is 0, that of the bias too."""
    model, X, y = of_solver()
    found = bj.refit(model, X, y, tolerance=1e-9)
    assert isinstance(found, bj.KernelModel)
    np.testing.assert_array_equal(found.vectors, model.vectors)
    Z = np.asarray(model.vectors, np.float64)
    a, bias = (np.asarray(one, np.float64) for one in (found.coefficients, found.bias))
    rows = KERNEL(X.astype(np.float64)[:, None], Z[None])
    hinge = np.maximum(0, 1 - y * (rows @ a + bias))
    pull = 2 * 10.0 * hinge * y
    assert bias == pytest.approx(pull.sum(), abs=0.02 * np.abs(pull).sum())
    np.testing.assert_allclose(
        KERNEL(Z[:, None], Z[None]) @ a, rows.T @ pull, atol=0.02 * np.abs(pull).sum()
    )
    scores = np.asarray(bj.decision_function(found, X))
    np.testing.assert_allclose(scores, rows @ a + bias, atol=1e-3)


def test_a_labelled_model_of_a_solver_stays_one():
    labels = np.array(["no", "yes"])
    model, X, y = of_solver(classes=labels)
    found = bj.refit(model, X, y)
    assert isinstance(found.model, bj.KernelModel)
    plain = bj.refit(model.model, X, np.where(y == "yes", 1, -1))
    np.testing.assert_allclose(
        bj.decision_function(found, X), bj.decision_function(plain, X), atol=1e-5
    )
    assert set(found.predict(X)) == set(labels)


def test_models_of_solvers_that_are_refused(as_installed):
    model, X, y = of_solver()
    empty = model._replace(vectors=model.vectors[:0], coefficients=jnp.ones(0))
    for given, more, says in (
        (model, {"learn_metric": True}, "learn_metric must be False for the model of"),
        (empty, {}, "state must have support vectors, got none"),
        (
            bj.TableModel((model, model)),
            {},
            "state must be a single model, got 2 in one",
        ),
    ):
        with pytest.raises(ValueError, match=f"^refit: {says}"):
            bj.refit(given, X, y, **more)
