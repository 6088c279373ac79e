"""Models of few vectors that are near models of many."""

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.svm import SVC, SVR, OneClassSVM

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier, SMOClassifier

pytestmark = pytest.mark.usefixtures("plain_loops")


def model_of(kernel, size=40, columns=2, seed=0):
    random = np.random.default_rng(seed)
    return bj.KernelModel(
        kernel,
        jnp.asarray(random.normal(size=(size, 2)), jnp.float32),
        jnp.asarray(random.normal(size=(size, columns)), jnp.float32),
        jnp.zeros(columns, jnp.float32),
    )


def double(kernel, X, Z):
    """A kernel matrix in float64."""
    if isinstance(kernel, bj.RBF):
        squares = np.sum((X[:, None] - Z[None]) ** 2, axis=2)
        return np.exp(-kernel.gamma * squares)
    return (X @ Z.T + 1) ** 3


def reference(kernel, X, coefficients, size):
    """Greedy choice in float64: of every candidate the projection is solved anew."""
    K, chosen = double(kernel, X, X), []
    for _ in range(size):
        gains = np.full(len(X), -np.inf)
        for candidate in set(range(len(X))) - set(chosen):
            own = [*chosen, candidate]
            values = K[own] @ coefficients
            gains[candidate] = np.sum(
                values * np.linalg.solve(K[np.ix_(own, own)], values)
            )
        chosen.append(int(np.argmax(gains)))
    chosen = sorted(chosen)
    values = K[chosen] @ coefficients
    return X[chosen], np.linalg.solve(K[np.ix_(chosen, chosen)], values)


def lost(kernel, model, small):
    """`||f - g|| / ||f||` in float64."""
    X, Z = (np.asarray(one.vectors, np.float64) for one in (model, small))
    points = np.concatenate([X, Z])
    both = np.concatenate([model.coefficients, -np.asarray(small.coefficients)])
    whole = np.sum(model.coefficients * (double(kernel, X, X) @ model.coefficients))
    rest = np.sum(both * (double(kernel, points, points) @ both))
    return np.sqrt(rest / whole)


@pytest.mark.parametrize(
    "kernel", [bj.RBF(1.0), bj.Polynomial(degree=3)], ids=["g", "p"]
)
def test_the_choice_is_that_of_numpy_and_moving_loses_less(kernel):
    model = model_of(kernel)
    # All that a polynomial of degree 3 of two features can span are 10 functions.
    size = 6
    small = bj.compress(model, size, steps=0)
    parts = model.vectors, model.coefficients
    X, coefficients = (np.asarray(part, np.float64) for part in parts)
    vectors, expected = reference(kernel, X, coefficients, size)
    np.testing.assert_array_equal(small.vectors, np.float32(vectors))
    # The ridge that keeps float32 from breaking down costs 1e-5 of the largest kernel
    # value, which is hundreds of times most others of the polynomial.
    found = np.asarray(small.decision_function(model.vectors))
    values = double(kernel, X, vectors) @ expected
    np.testing.assert_allclose(found, values, atol=4e-3 * np.abs(values).max())
    moved = bj.compress(model, size, steps=60)
    assert lost(kernel, model, moved) < 0.9 * lost(kernel, model, small)


def test_a_budget_that_holds_all_changes_nothing():
    model = model_of(bj.RBF(4.0), size=12)
    same = bj.compress(model, 100)
    np.testing.assert_array_equal(same.vectors, model.vectors)
    np.testing.assert_array_equal(same.coefficients, model.coefficients)


def test_what_spans_the_rest_is_enough():
    model = model_of(bj.Linear())
    small = bj.compress(model, 10)
    assert len(small.vectors) == 2
    assert np.allclose(
        small.decision_function(model.vectors),
        model.decision_function(model.vectors),
        atol=1e-3,
    )


def test_an_svc_with_its_labels(capsys):
    X, y = bj.datasets.checkerboard(300, seed=0)
    names = np.where(y > 0, "white", "black")
    for kernel in ("rbf", "poly"):
        svc = SVC(C=1.0, gamma=1.0, kernel=kernel, degree=3, coef0=0.5).fit(X, names)
        every = bj.compress(svc, 1000)
        np.testing.assert_allclose(
            every.decision_function(X), svc.decision_function(X), atol=1e-3
        )
        small = bj.compress(svc, 40, steps=30, progress=True)
        # A polynomial of degree 3 of two features needs no more than 10.
        assert len(small.model.vectors) == 40 or kernel == "poly"
        assert np.mean(small.predict(X) == svc.predict(X)) > 0.9
    assert "of the norm" in capsys.readouterr().err


def test_machines_without_classes():
    X, _ = bj.datasets.checkerboard(100, seed=0)
    values, one_class = SVR().fit(X, 10 + X[:, 0]), OneClassSVM().fit(X)
    for budget in (1000, 40):
        small = bj.compress(values, budget, steps=0)
        np.testing.assert_allclose(small.predict(X), values.predict(X), atol=0.02)
        far = SVR().fit(X + 1e6, 10 + X[:, 0])
        found = bj.compress(far, budget, steps=0).predict(X + 1e6)
        np.testing.assert_allclose(found, far.predict(X + 1e6), atol=0.02)
    small = bj.compress(one_class, 1000)
    expected = one_class.decision_function(X)
    np.testing.assert_allclose(small.decision_function(X), expected, atol=1e-4)
    assert set(small.predict(X)) == {-1, 1}


def test_states_and_models_of_streams():
    X, y = bj.datasets.checkerboard(300, seed=0)
    state = bj.Perceptron().init(
        bj.RBF(8.0), num_features=2, budget=60, maintenance=bj.RemoveOldest()
    )
    model = bj.fit_stream(state, [(X, y)], encode=bj.encoding.fit(X, 0))
    small = bj.compress(model, 30, steps=0)
    assert small.scaling is not None
    assert len(small.model.vectors) == 30
    with pytest.raises(ValueError, match=r"compress: model must have .* got none yet"):
        bj.compress(state, 3)


def test_estimators():
    """They have coefficients of the name that those of an SVC have."""
    X, y = bj.datasets.checkerboard(300, seed=0)
    names = np.where(y > 0, "white", "black")
    for estimator in (
        BudgetedKernelClassifier(
            60, learner=bj.Perceptron(), maintenance="remove_oldest", refit=False
        ),
        SMOClassifier(),
    ):
        small = bj.compress(estimator.fit(X, names), 30, steps=0)
        assert len(small.model.vectors) == 30
        assert np.mean(small.predict(X) == estimator.predict(X)) > 0.6


def test_what_cannot_be_compressed():
    X, y = np.eye(6), np.arange(6) % 3
    for svc, text in (
        (SVC().fit(X, y), "must be an SVC of two classes, got 3"),
        (
            SVC(kernel=lambda a, b: a @ b.T).fit(X, y > 0),
            "the kernel of an SVC or SVR must be",
        ),
    ):
        with pytest.raises(ValueError, match=text):
            bj.compress(svc, 2)
    with pytest.raises(ValueError, match="budget must be at least 1, got 0"):
        bj.compress(model_of(bj.RBF(1.0)), 0)
