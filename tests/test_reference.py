"""The compiled learners against plain float64 NumPy, over hundreds of rounds."""

import functools
import importlib
import os
import pathlib
import pkgutil
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import reference
import registry
from compare import mistakes
from reference import (
    fourier,
    gradients,
    kernels,
    maintenance,
    nystrom,
    passive_aggressive,
    support,
)
from sklearn.datasets import load_digits, make_moons

import budgetjax as bj
from budgetjax import losses
from budgetjax.registry import learner_classes, name_of

# Data of one length, and models of one capacity: a learner's cases with data of one
# kind share a program.
ROUNDS = 250
RIDGED = {"ridge": 1e-3}
CAPACITY = 50


def digits():
    """Ten classes of 8 x 8 images, in [0, 1]."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:ROUNDS]
    return X[rows] / 16, y[rows]


def parity():
    """Even against odd digits."""
    X, y = digits()
    return X, np.where(y % 2 == 0, 1, -1)


def banana():
    """Two crescents: the banana set where it is at hand, else generated."""
    folder = os.environ.get("BUDGETJAX_DATA")
    file = pathlib.Path(folder or ".") / "banana.npz"
    if folder and file.exists():
        with np.load(file) as data:
            X, y = data["X"][:ROUNDS], data["y"][:ROUNDS]
        X = X.astype(np.float64)
        return X, np.where(y == y.max(), 1, -1)
    X, y = make_moons(ROUNDS, noise=0.3, random_state=0)
    return X, 2 * y - 1


@functools.cache
def draw(seed):
    """The draws of `RemoveRandom`: from the seed, the round and the number active."""
    rounds = jnp.arange(ROUNDS + 1, dtype=jnp.int32)

    def one(t, n):
        key = jax.random.fold_in(jax.random.key(seed), t)
        return jax.random.randint(key, (), 0, n, jnp.int32)

    # Of all rounds at once: a call a round would take longer than the learner.
    of_all = jax.jit(jax.vmap(one, in_axes=(0, None)))
    drawn = functools.cache(lambda n: np.asarray(of_all(rounds, jnp.int32(n))))
    return lambda t, n: int(drawn(n)[t])


def curve():
    """Regression: a noisy function of two variables."""
    random = np.random.default_rng(3)
    X = random.normal(size=(ROUNDS, 2))
    noise = 0.1 * random.normal(size=ROUNDS)
    return X, np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] ** 2 + noise


def weights():
    """Weights of the rounds, some of them 0, some heavy, and the first a small one.

    Under ALMA the first two coefficients are otherwise equal but for rounding, which
    would decide which of them leaves: it divides the first by the root of 2, and begins
    the second with it.
    """
    found = np.random.default_rng(4).choice([0, 0.3, 1, 1.7, 40], ROUNDS)
    return np.append(0.3, found[1:])


# Ours, and how to make the reference's.
partial, ref = functools.partial, maintenance
ABOVE, FEW = {"above": 1.2}, 30
STRATEGIES = {
    "oldest": (bj.RemoveOldest(), lambda: ref.remove_oldest),
    "random": (bj.RemoveRandom(), lambda: ref.remove_random(draw(7))),
    "smallest": (bj.RemoveSmallest(), lambda: ref.remove_smallest),
    "largest-margin": (bj.RemoveLargestMargin(), ref.remove_largest_margin),
    "margins-above": (
        bj.RemoveLargestMargin(**ABOVE),
        partial(ref.remove_largest_margin, **ABOVE),
    ),
    "fewest-errors": (
        bj.RemoveFewestErrors(FEW),
        partial(ref.remove_fewest_errors, FEW),
    ),
    "merge": (bj.Merge(), ref.merge),
    "merge-any": (bj.Merge(same_sign=False), partial(ref.merge, False)),
    "multi-merge": (bj.MultiMerge(), ref.multi_merge),
    "multi-merge-any": (
        bj.MultiMerge(5, same_sign=False),
        partial(ref.multi_merge, 5, False),
    ),
    "best-pair": (bj.MergeBestPair(), ref.merge_best_pair),
    "delayed-project": (
        bj.DelayedProject(),
        partial(ref.delayed_project, **RIDGED),
    ),
    "project": (bj.Project(), partial(ref.project, **RIDGED)),
    "project-best": (bj.Project(best=True), partial(ref.project, True, **RIDGED)),
    "onto-candidate": (bj.ProjectOntoCandidate(), ref.project_onto_candidate),
    "onto-nearest": (
        bj.ProjectOntoNearest(),
        partial(ref.project_onto_nearest, **RIDGED),
    ),
}
# The references of the learners, by name.
LEARNERS = {
    name: importlib.import_module(f"reference.{name}")
    for _, name, _ in pkgutil.iter_modules(reference.__path__)
    if name in learner_classes()
}


class Case(NamedTuple):
    """A learner and its reference."""

    name: str
    data: Any
    learner: bj.Learner
    arguments: dict
    reference: Any
    kernel: Any
    reference_kernel: Any
    budget: int
    weighted: bool = False


SETS = {
    "digits": (digits, 10, 0.05, CAPACITY),
    "parity": (parity, 2, 0.05, CAPACITY),
    "banana": (banana, 2, 1.0, 10),
    "curve": (curve, 0, 1.0, 10),
}


def case(
    name,
    kind,
    data,
    strategy=None,
    kernel=None,
    ours=None,
    theirs=None,
    budget=None,
    weighted=False,
    **more,
):
    """A case with arguments that both take, only ours, or only the reference."""
    source, classes, gamma, usual = SETS[data]
    kernel, plain = kernel or (bj.RBF(gamma), kernels.rbf(gamma))
    given, wanted = {"seed": 7} | more | (ours or {}), more | (theirs or {})
    module = LEARNERS["sgd" if kind is bj.NORMA else name_of(kind)]
    if "num_classes" in kind.takes:
        given["num_classes"] = wanted["num_classes"] = classes or None
    elif not classes:
        given["num_classes"] = None
    make = None
    if kind is bj.NORMA:
        make = STRATEGIES["oldest"][1]
    elif "maintenance" in kind.takes:
        none = None, lambda: ref.refuse
        given["maintenance"], make = STRATEGIES.get(strategy, none)
    learner, given = registry.split(kind(), given)

    def run(*args, **kwargs):
        extra = {"maintenance": make()} if make else {}
        return module.run(*args, **extra, **kwargs)

    return Case(
        f"{name_of(kind)}-{name}-{data}",
        source,
        learner,
        given,
        functools.partial(run, **wanted),
        kernel,
        plain,
        budget or usual,
        weighted,
    )


def _cases():
    polynomial = (
        bj.Polynomial(degree=3, gamma=0.1),
        kernels.polynomial(degree=3, gamma=0.1, coef0=1.0),
    )

    def with_pegasos(name, data, strategy, kernel=None, **more):
        more = {"regularization": 1e-3} | more
        return case(name, bj.Pegasos, data, strategy, kernel, **more)

    # Every strategy; learners of several classes with two of them and with ten.
    yield case("oldest", bj.Perceptron, "digits", "oldest")
    yield case("random", bj.Perceptron, "banana", "random")
    yield case("largest-margin", bj.Perceptron, "banana", "largest-margin")
    yield case("above", bj.Perceptron, "digits", "margins-above", margin=0.5)
    yield case("errors", bj.Perceptron, "banana", "fewest-errors")
    yield case("errors", bj.Perceptron, "digits", "fewest-errors")
    yield with_pegasos("merge", "banana", "merge")
    yield with_pegasos("random", "digits", "random")
    yield with_pegasos("smallest", "banana", "smallest")
    # Kernels with other norms than 1, where the smallest is not the oldest.
    yield case("polynomial", bj.Perceptron, "parity", "smallest", polynomial)
    yield with_pegasos("polynomial", "digits", "smallest", polynomial)
    normalized = (
        bj.Normalized(bj.Polynomial(degree=5)),
        kernels.normalized(kernels.polynomial(degree=5, gamma=1.0, coef0=1.0)),
    )
    yield case("rbf", bj.Forgetron, "banana")
    yield case("polynomial", bj.Forgetron, "parity", kernel=normalized)
    basic = {"rule": "basic", "weighted": True}
    yield case("basic", bj.Forgetron, "parity", kernel=polynomial, **basic)
    yield case("radius", bj.Forgetron, "parity", kernel=polynomial, radius=5.0, **basic)
    yield case("fixed", bj.Forgetron, "banana", rule="fixed", phi=0.95, weighted=True)
    yield with_pegasos("delayed", "digits", "delayed-project")
    margin = {"kernel": polynomial, "margin": 0.3}
    yield case("delayed", bj.Perceptron, "parity", "delayed-project", **margin)
    # Over the first 1 / sqrt(lambda) rounds the ball shrinks the model by exp of that.
    # With 1e-4 lengths differ by 1e43, and what a merge does with the least of them,
    # which changes no score, is left to rounding.
    ball = {"project_to_ball": True, "regularization": 1e-2}
    yield with_pegasos("merge-ball", "banana", "merge", **ball)
    ball["regularization"] = 1e-4
    yield with_pegasos("largest-margin-ball", "digits", "largest-margin", **ball)
    # The references of these look at all pairs, or solve a system, in every round.
    slow = {"budget": 10}
    yield with_pegasos("project", "digits", "project", **slow)
    yield with_pegasos("multi", "digits", "multi-merge", **slow | {"budget": 25})
    yield with_pegasos("multi-any", "parity", "multi-merge-any", **slow)
    yield with_pegasos("any-signs", "parity", "merge-any")
    yield with_pegasos("best", "parity", "project-best", **slow)
    yield with_pegasos("best-pair", "digits", "best-pair", **slow)
    average = {"ours": {"average": 120}, "theirs": {"average_from": 120}}
    yield with_pegasos("average", "digits", "merge", **average)
    yield with_pegasos("weights", "banana", "merge", weighted=True, budget=50)
    yield case("weights", bj.Forgetron, "banana", weighted=True, budget=50)
    yield case("weights", bj.Perceptron, "digits", "oldest", weighted=True, budget=10)

    # Any loss, schedule and strategy.

    def schedule(count):
        # Powers of two: other schedules are rounded otherwise by another program.
        return jnp.where(count < 90, 0.5, jnp.where(count < 180, 0.25, 0.125))

    def descent(name, data, strategy, loss, gradient, rate=0.3, **more):
        theirs = {"gradient": gradient, "learning_rate": lambda t: rate}
        if callable(rate):
            rates = np.asarray(rate(jnp.arange(ROUNDS)))
            theirs["learning_rate"] = lambda t: float(rates[t - 1])
        ours = {"loss": loss, "learning_rate": rate}
        if more.pop("averaged", False):
            ours, theirs = ours | average["ours"], theirs | average["theirs"]
        return case(name, bj.SGD, data, strategy, ours=ours, theirs=theirs, **more)

    of_optax = optax.losses
    tube, third = losses.epsilon_insensitive(0.1), losses.quantile(0.3)
    more = {"averaged": True, "rate": schedule}
    for name, data, strategy, loss, gradient, given in (
        (
            *("logistic", "digits", "merge", losses.logistic, gradients.logistic),
            more | {"weighted": True, "regularization": 1e-3},
        ),
        (
            *("squared-average", "curve", "project", of_optax.l2_loss),
            *(gradients.squared, more | {"budget": 50}),
        ),
        (
            *("huber", "curve", "multi-merge", of_optax.huber_loss),
            *(gradients.huber(), slow | {"averaged": True}),
        ),
        (
            *("tube", "curve", "largest-margin", tube),
            *(gradients.epsilon_insensitive(0.1), {}),
        ),
        ("quantile", "curve", "oldest", third, gradients.quantile(0.3), {}),
        ("absolute", "curve", "onto-nearest", losses.absolute, gradients.absolute, {}),
    ):
        yield descent(name, data, strategy, loss, gradient, **given)
    theirs = {"learning_rate": lambda t: 0.3, "gradient": gradients.hinge}
    yield case(
        *("hinge", bj.NORMA, "banana"),
        ours={"learning_rate": 0.3},
        theirs=theirs,
        regularization=0.05,
    )

    for data in ("banana", "digits"):
        given = {"alpha": 0.8, "weighted": True}
        yield case("smallest", bj.ALMA, data, "smallest", **given)

    PA = functools.partial(case, kind=bj.PassiveAggressive)
    yield PA("PA", data="banana", strategy="merge", variant="PA")
    second = {"variant": "PA-II", "penalty": 0.7}
    yield PA("PA-II", data="digits", strategy="onto-nearest", **second)
    yield PA("PA-I", data="digits", strategy="onto-candidate", penalty=0.3)
    odd = {"kernel": polynomial, "weighted": True}
    yield PA("polynomial", data="parity", strategy="onto-candidate", **odd)
    ridge = {"theirs": RIDGED}
    for name, data, more in (
        ("plain", "banana", {"margin_updates": False}),
        ("margin-updates", "digits", {"margin_updates": True, "weighted": True}),
    ):
        yield case(name, bj.Projectron, data, threshold=0.3, **ridge, **more)
    more = {"margin_updates": True, "same_class": True, "weighted": True}
    yield case("same-class", bj.Projectron, "digits", threshold=0.5, **ridge, **more)

    yield case("binary", bj.Ahpatron, "banana", epsilon=0.3, weighted=True, **ridge)
    yield case("classes", bj.Ahpatron, "digits", radius=4.0, budget=20, **ridge)

    # A Gaussian process, in the span of support vectors that move.
    fine = {"theirs": {"ridge": 1e-6}, "novelty": 1e-3}
    track = functools.partial(case, kind=bj.KRLST, data="curve", **fine)
    yield track("still", noise=0.1, weighted=True)
    yield track("forgetting", noise=0.03, forgetting=0.01, budget=20)
    yield track("rough", noise=0.03, kernel=polynomial, weighted=True)

    # The second order, in the span of support vectors that move.
    second = ridge | {"confidence": 0.01}
    some = {"moves": 1.0, "budget": 20, "weighted": True}
    yield case("merge", bj.AROW, "banana", "merge", **some, **second)
    oldest = {"moves": 0.5, "drift": 0.03, "weighted": True, "budget": 15}
    yield case("oldest", bj.AROW, "digits", "oldest", **oldest, **second)
    fixed = {"vectors": parity()[0][:20], "moves": 2.0, "weighted": True}
    fixed |= ridge | {"confidence": 0.1, "budget": 25}
    yield case("vectors", bj.AROW, "parity", **fixed)


def _cases_of_rows(listed):
    """The rows of learners without another case, with two classes and with ten."""
    names = {ours: name for name, (ours, _) in STRATEGIES.items()}
    for row in registry.ROWS:
        kind = type(row.learner)
        if name_of(kind) in LEARNERS and kind not in listed:
            given = row.learner.get_params(deep=False) | row.shared
            strategy = names.get(given.pop("maintenance", None))
            for data in ("banana", "digits"):
                yield case(row.name, kind, data, strategy, **given)


LISTED = tuple(_cases())
# These two have tests of their own, below.
ALONE = {bj.Fourier, bj.Nystrom}
CASES = (
    *LISTED,
    *_cases_of_rows({type(one.learner) for one in LISTED} | ALONE),
    case("merge", bj.ALMA, "banana", "merge", alpha=0.5, weighted=True),
)


@pytest.mark.parametrize("case", [pytest.param(one, id=one.name) for one in CASES])
def test_equals_numpy(case, double):
    X, y = case.data()
    weight = weights() if case.weighted else None
    extra = {} if weight is None else {"weights": weight}
    state = case.learner.init(
        case.kernel,
        num_features=X.shape[1],
        budget=case.budget,
        capacity=CAPACITY,
        dtype=jnp.float64,
        **case.arguments,
    )
    # The plain scan compiles in half the time; `test_blocks` holds blocks to it.
    size = 1 if weight is None else None
    state, scores = bj.run(state, X, y, weight=weight, block_size=size)
    expected = case.reference(case.reference_kernel, X, y, budget=case.budget, **extra)

    scores = np.asarray(scores)
    scale = np.abs(expected.scores).max()
    np.testing.assert_allclose(scores, expected.scores, rtol=0, atol=1e-9 * scale)
    if not isinstance(case.learner, (bj.SGD, bj.NORMA)):
        rows = np.arange(len(y)) if weight is None else np.flatnonzero(weight)
        rounds = 1 + np.flatnonzero(mistakes(scores[rows], y[rows]))
        assert rounds.tolist() == expected.mistakes
        assert int(state.num_mistakes) == len(expected.mistakes)
    assert int(state.num_updates) == len(expected.updates)

    model, expansion = jax.device_get((bj.support(state), state.expansion))
    slots = np.flatnonzero(model.mask)
    if expected.slots:
        assert list(slots) == expected.slots
    np.testing.assert_array_equal(expansion.ages[slots], expected.ages)
    assert_close(model.vectors[slots], expected.vectors)
    assert_close(model.coefficients[slots], expected.coefficients)
    if expansion.average is not None:
        means = jax.device_get(bj.support(bj.average_iterates(state)).coefficients)
        assert_close(means[slots], expected.averaged)
    if isinstance(case.learner, bj.Forgetron):
        np.testing.assert_allclose(state.memory.slack, expected.slack[-1], atol=1e-9)
    if isinstance(case.learner, bj.AROW):
        assert int(state.memory.num_moves) == expected.moves
        memory = jax.device_get(state.memory)
        root, certainty = memory.span.root, memory.certainty
        left = np.eye(len(root)) - certainty
        covariance = root.T @ left @ root
        assert_close(covariance[np.ix_(slots, slots)], expected.covariance)
    if isinstance(case.learner, bj.KRLST):
        memory = jax.device_get(state.memory)
        K = np.linalg.pinv(memory.span.root)
        covariance = K @ (np.eye(len(K)) - memory.certainty) @ K.T
        assert_close(covariance[np.ix_(slots, slots)], expected.covariance)


def assert_close(actual, expected):
    """Equal to a part of the largest entry."""
    largest = max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9 * largest)


@pytest.mark.parametrize("classes", [2, 10])
def test_fourier_equals_numpy(classes, double):
    X, y = digits() if classes > 2 else parity()
    rate, weight = 0.2, weights()
    state = bj.Fourier(loss=losses.logistic, optimizer=optax.sgd(rate)).init(
        bj.RBF(0.05),
        num_features=64,
        budget=100,
        num_classes=classes,
        dtype=jnp.float64,
    )
    frequencies = np.asarray(state.expansion.vectors)[:-1]
    np.testing.assert_array_equal(frequencies[::2], frequencies[1::2])
    expected = fourier.run(
        X,
        y,
        frequencies=frequencies[::2],
        gradient=gradients.logistic,
        learning_rate=lambda t: rate,
        weights=weight,
        num_classes=classes,
    )
    state, scores = bj.run(state, X, y, weight=weight)
    assert_close(scores, expected.scores)
    coefficients = np.asarray(state.expansion.coefficients)[:-1]
    assert_close(np.concatenate([coefficients[::2], coefficients[1::2]]), expected.W)


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("block_size", [1, None])
def test_nystrom_equals_numpy(classes, block_size, double):
    X, y = digits() if classes > 2 else banana()
    gamma, rate, weight = (0.05 if classes > 2 else 1.0), 0.2, weights()
    state = bj.Nystrom(novelty=0.01, optimizer=optax.sgd(rate)).init(
        bj.RBF(gamma),
        num_features=X.shape[1],
        budget=50,
        num_classes=classes,
        dtype=jnp.float64,
    )
    expected = nystrom.run(
        kernels.rbf(gamma),
        X,
        y,
        budget=50,
        novelty=0.01,
        gradient=gradients.hinge,
        learning_rate=lambda t: rate,
        weights=weight,
        num_classes=classes,
    )
    state, scores = bj.run(state, X, y, weight=weight, block_size=block_size)
    assert_close(scores, expected.scores)
    model = bj.support(state)
    active = int(state.expansion.num_active)
    assert active == len(expected.landmarks) > 10
    np.testing.assert_array_equal(model.vectors[:active], X[expected.landmarks])
    assert_close(model.coefficients[:active], expected.coefficients)


@pytest.mark.parametrize("nearest", [False, True])
def test_joint_updates_are_projections(nearest):
    """BPA-S and BPA-NN, minimised jointly, leave what PA-I and a projection leave."""
    random = np.random.default_rng(5)
    kernel = kernels.rbf(0.5)
    project = (
        maintenance.project_onto_nearest
        if nearest
        else maintenance.project_onto_candidate
    )()
    for _ in range(40):
        C, label = random.choice([0.1, 10.0]), random.choice([-1, 1])
        active = [
            support.SupportVector(random.normal(size=3), random.normal(size=1), age)
            for age in range(6)
        ]
        x = random.normal(size=3)
        score = support.unscaled_scores(kernel, active, x, 1)[0]
        loss = 1 - label * score
        if loss <= 0:
            continue
        removed, _, beta, _ = passive_aggressive.joint_update(
            kernel, active, x, label, penalty=C, nearest=nearest
        )
        candidate = support.SupportVector(x, np.array([label * min(C, loss)]), 6)
        after = project(kernel, active, candidate)
        assert after[removed].age == 6
        np.testing.assert_allclose(after[removed].coefficients[0], beta[0], atol=1e-12)


def test_unbudgeted_perceptron_equals_numpy(double):
    X, y = digits()
    state = bj.Perceptron().init(
        bj.RBF(0.05),
        num_features=64,
        budget=1000,
        num_classes=10,
        maintenance=bj.Unbudgeted(),
        dtype=jnp.float64,
    )
    state, scores = bj.run(state, X, y)
    expected = LEARNERS["perceptron"].run(
        kernels.rbf(0.05),
        X,
        y,
        budget=1000,
        maintenance=maintenance.refuse,
        num_classes=10,
    )
    rounds = 1 + np.flatnonzero(mistakes(scores, y))
    assert rounds.tolist() == expected.mistakes
    active = int(state.expansion.num_active)
    assert active == len(expected.mistakes) < 1000
    np.testing.assert_array_equal(
        bj.support(state).coefficients[:active], expected.coefficients
    )
