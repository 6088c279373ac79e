"""The compiled learners against plain float64 NumPy, 2,000 rounds of real data."""

import functools
import os
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from reference import forgetron, kernels, maintenance, pegasos, perceptron
from sklearn.datasets import load_digits, make_moons

import budgetjax as bj

ROUNDS = 2000
BUDGETS = (10, 50, 200)


def digits():
    """Ten classes of 8 x 8 images, in [0, 1].

    The stream starts over at its end, with noise: of two equal examples in a model,
    which leaves first would be decided by the rounding of sums.
    """
    X, y = load_digits(return_X_y=True)
    random = np.random.default_rng(0)
    rows = np.resize(random.permutation(len(y)), ROUNDS)
    X = X[rows] / 16
    X[len(y) :] += 0.01 * random.normal(size=X[len(y) :].shape)
    return X, y[rows]


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


def draw(seed):
    """The draws of `RemoveRandom`: from the seed, the round and the number active."""
    pick = jax.jit(
        lambda t, n: jax.random.randint(
            jax.random.fold_in(jax.random.key(seed), t), (), 0, n, jnp.int32
        )
    )
    return lambda t, n: int(pick(jnp.int32(t), jnp.int32(n)))


class Case(NamedTuple):
    """A learner and its reference."""

    name: str
    data: Any
    algorithm: Any
    arguments: dict
    reference: Any
    kernel: Any
    reference_kernel: Any


def _cases():
    strategies = {
        "oldest": (bj.RemoveOldest(), lambda: maintenance.remove_oldest),
        "random": (bj.RemoveRandom(), lambda: maintenance.remove_random(draw(7))),
        "smallest": (bj.RemoveSmallest(), lambda: maintenance.remove_smallest),
        "largest-margin": (
            bj.RemoveLargestMargin(),
            lambda: maintenance.remove_largest_margin(),
        ),
        "merge": (bj.Merge(), lambda: maintenance.merge(same_sign=True)),
        "merge-any": (bj.Merge(same_sign=False), lambda: maintenance.merge(False)),
    }
    sets = {
        "digits": (digits, 10, 0.05),
        "parity": (parity, 2, 0.05),
        "banana": (banana, 2, 1.0),
    }
    polynomial = (
        bj.Polynomial(degree=3, gamma=0.1),
        kernels.polynomial(degree=3, gamma=0.1, coef0=1.0),
    )

    def case(name, algorithm, data, strategy=None, kernel=None, **more):
        source, classes, gamma = sets[data]
        ours, theirs = kernel or (bj.RBF(gamma), kernels.rbf(gamma))
        given, wanted = dict(more), dict(more)
        module = {"perceptron": perceptron, "pegasos": pegasos}.get(algorithm)
        if algorithm == "forgetron":
            run = forgetron.run
        else:
            given |= {"num_classes": classes, "seed": 7}
            given["maintenance"] = strategies[strategy][0] if strategy else None
            make = strategies[strategy][1] if strategy else lambda: maintenance.refuse
            wanted["num_classes"] = classes

            def run(*args, **kwargs):
                return module.run(*args, maintenance=make(), **kwargs)

        return Case(
            f"{algorithm}-{name}-{data}",
            source,
            getattr(bj, algorithm),
            given,
            functools.partial(run, **wanted),
            ours,
            theirs,
        )

    for data in ("digits", "banana"):
        for strategy in ("oldest", "random", "smallest", "largest-margin"):
            yield case(strategy, "perceptron", data, strategy)
        for strategy in ("oldest", "random", "smallest", "largest-margin", "merge"):
            yield case(strategy, "pegasos", data, strategy, regularization=1e-3)
    for data in ("parity", "banana"):
        yield case("rbf", "forgetron", data)
        normalized = (
            bj.Normalized(bj.Polynomial(degree=5)),
            kernels.normalized(kernels.polynomial(degree=5, gamma=1.0, coef0=1.0)),
        )
        yield case("polynomial", "forgetron", data, kernel=normalized)
    yield case("margin", "perceptron", "banana", "oldest", margin=0.5)
    # Kernels with other norms than 1, where the smallest is not the oldest.
    yield case("polynomial", "perceptron", "parity", "smallest", polynomial)
    yield case("polynomial", "perceptron", "digits", "smallest", polynomial)
    yield case(
        "polynomial", "pegasos", "digits", "smallest", polynomial, regularization=1e-3
    )
    yield case("any-signs", "pegasos", "parity", "merge-any", regularization=1e-3)
    # Over the first 1 / sqrt(lambda) rounds the ball shrinks the model by exp of that.
    # With 1e-4 lengths differ by 1e43, and what a merge does with the least of them,
    # which changes no score, is left to rounding.
    for strategy, regularization in (("merge", 1e-2), ("largest-margin", 1e-4)):
        for data in ("digits", "banana"):
            yield case(
                f"{strategy}-ball",
                "pegasos",
                data,
                strategy,
                regularization=regularization,
                project_to_ball=True,
            )


CASES = tuple(_cases())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_numpy(case, double):
    X, y = case.data()
    for budget in BUDGETS:
        state = case.algorithm.init(
            case.kernel,
            num_features=X.shape[1],
            budget=budget,
            capacity=max(BUDGETS),
            dtype=jnp.float64,
            **case.arguments,
        )
        state, scores = bj.run(case.algorithm, state, X, y)
        expected = case.reference(case.reference_kernel, X, y, budget=budget)

        scores = np.asarray(scores)
        scale = np.abs(expected.scores).max()
        np.testing.assert_allclose(scores, expected.scores, rtol=0, atol=1e-9 * scale)
        assert mistakes(scores, y) == list(expected.mistakes)
        assert int(state.num_mistakes) == len(expected.mistakes)
        assert int(state.num_updates) == len(expected.updates)

        support = bj.support(state)
        active = int(state.expansion.num_active)
        np.testing.assert_array_equal(state.expansion.ages[:active], expected.ages)
        np.testing.assert_allclose(
            support.vectors[:active], expected.vectors, rtol=1e-9, atol=1e-9
        )
        np.testing.assert_allclose(
            support.coefficients[:active],
            expected.coefficients,
            rtol=1e-9,
            atol=1e-9 * np.abs(expected.coefficients).max(),
        )
        if case.algorithm is bj.forgetron:
            np.testing.assert_allclose(state.Q, expected.Q[-1], rtol=1e-9)


def mistakes(scores, y):
    """The rounds, from 1, in which the label's score was not ahead."""
    if scores.ndim == 1:
        wrong = scores * y <= 0
    else:
        label = np.take_along_axis(scores, y[:, None], axis=1)[:, 0]
        others = np.where(np.arange(scores.shape[1]) == y[:, None], -np.inf, scores)
        wrong = label <= others.max(axis=1)
    return [int(t) + 1 for t in np.flatnonzero(wrong)]


def test_unbudgeted_perceptron_equals_numpy(double):
    X, y = digits()
    state = bj.perceptron.init(
        bj.RBF(0.05), num_features=64, budget=1000, num_classes=10, dtype=jnp.float64
    )
    state, scores = bj.run(bj.perceptron, state, X, y)
    expected = perceptron.run(
        kernels.rbf(0.05),
        X,
        y,
        budget=1000,
        maintenance=maintenance.refuse,
        num_classes=10,
    )
    assert mistakes(np.asarray(scores), y) == list(expected.mistakes)
    active = int(state.expansion.num_active)
    assert active == len(expected.mistakes) < 1000
    np.testing.assert_array_equal(
        bj.support(state).coefficients[:active], expected.coefficients
    )
