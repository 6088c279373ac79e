"""A model of one class: coefficients, and a threshold that leaves one out."""

import jax.numpy as jnp
import numpy as np
import pytest
from reference import kernels
from reference import refit as reference

import budgetjax as bj
from budgetjax.estimators import BudgetedOneClass

pytestmark = pytest.mark.usefixtures("plain_loops")

N, BUDGET, GAMMA, PENALTY = 200, 20, 0.5, 3.0


def points(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)


def learned(num_outputs=1, dtype=jnp.float32, n=N):
    state = bj.SGD().init(
        bj.RBF(GAMMA),
        num_features=2,
        budget=BUDGET,
        num_classes=None,
        num_outputs=num_outputs,
        maintenance=bj.RemoveOldest(),
        dtype=dtype,
    )
    return bj.run(state, points()[:n], np.ones(n))[0]


def test_the_threshold_is_of_models_without_each_example(double):
    """Against as many problems as examples, each solved without one."""
    X = points()
    weight = np.random.default_rng(1).choice([0, 1, 1, 2], N).astype(float)
    state = learned(dtype=jnp.float64)
    model = bj.one_class(state, X, weight=weight, rate=0.2, penalty=PENALTY)
    support = bj.support(state)
    Z = np.asarray(support.vectors)[np.asarray(support.mask)]
    kernel = kernels.rbf(GAMMA)
    root = reference.whitening(reference.rows(kernel, Z, Z))
    P = reference.rows(kernel, X, Z) @ root

    def solved(weight):
        matrix = np.eye(P.shape[1]) / PENALTY + (P.T * weight) @ P
        return np.linalg.solve(matrix, P.T @ weight)

    scores = P @ solved(weight)
    left_out = np.array([P[i] @ solved(weight * (np.arange(N) != i)) for i in range(N)])
    order = np.argsort(left_out)
    below = np.cumsum(weight[order])
    threshold = left_out[order[np.flatnonzero(below > 0.2 * below[-1])[0]]]
    found = bj.decision_function(model, X)
    np.testing.assert_allclose(found, scores - threshold, rtol=0, atol=1e-9)
    # It moves the threshold: as it is, the model has seen all examples.
    assert np.average(found < 0, weights=weight) < 0.2


def test_batches_and_raw_rows_are_arrays():
    X = 1000 + 7 * points()
    state = learned(n=0)
    model = bj.fit_stream(state, [(X, np.ones(N))], encode=bj.encoding.fit(X, 0))
    expected = bj.one_class(model, X)
    parts = [(X[:70], np.zeros(70)), (X[70:], np.zeros(N - 70))]
    found = bj.one_class(model, parts)
    scores = bj.decision_function(expected, X)
    # In float32, whose sums are of other blocks.
    np.testing.assert_allclose(bj.decision_function(found, X), scores, atol=1e-4)
    # Its own threshold is not learned.
    again = bj.one_class(expected, X)
    np.testing.assert_allclose(bj.decision_function(again, X), scores, atol=1e-4)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_new_examples_fall_below_0_at_the_rate(rate):
    """With a tenth as many support vectors as examples: those would hide it."""
    model = bj.one_class(learned(), points(), rate=rate)
    new = bj.decision_function(model, points(5000, seed=1))
    # Three deviations of the threshold's own rate.
    error = 3 * (rate * (1 - rate) / N) ** 0.5
    assert np.mean(new < 0) == pytest.approx(rate, abs=error)
    assert np.all(bj.decision_function(model, 5 + points()) < 0)


X_ = points()
WRONG = {
    "a rate of 0": ({"rate": 0.0}, "rate must be a number above 0 and below 1, got 0"),
    "a rate of 1": ({"rate": 1.0}, "rate must be a number above 0 and below 1"),
    "a penalty of 0": ({"penalty": 0.0}, "penalty must be"),
    "several columns": (
        {"state": lambda: learned(2)},
        "state must have one column of coefficients, got 2",
    ),
    "no vectors": ({"state": lambda: learned(n=0)}, "must have support vectors"),
    "a generator": ({"X": iter([(X_, X_[:, 0])])}, "X must be batches that can be"),
    "a number": ({"X": 3}, "X must be an array or batches, got 3"),
    "NaN": ({"X": np.where(X_[5, 0] == X_, np.nan, X_)}, "X must be finite.*row 5"),
    "another width": ({"X": X_[:, :1]}, r"X must have shape \(n, 2\)"),
    "a weight": ({"weight": np.full(N, -1.0)}, "weight must be finite and at least 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name, as_installed):
    given, message = WRONG[name]
    given = {"state": learned, "X": X_} | given
    with pytest.raises(ValueError, match=rf"one_class: .*{message}"):
        bj.one_class(given.pop("state")(), given.pop("X"), **given)


def test_samples_are_scored_without_the_threshold():
    """Far from all rows the kernel is 0."""
    model = BudgetedOneClass(BUDGET, random_state=0).fit(points())
    far = np.array([[1e3, -1e3]])
    assert model.offset_ > 0
    np.testing.assert_allclose(model.score_samples(far), 0, atol=1e-6)
    np.testing.assert_allclose(model.decision_function(far), -model.offset_)


def test_an_estimator_does_not_see_rows_of_weight_0():
    X, kept = points(), np.random.default_rng(1).random(N) < 0.7
    garbage = np.where(kept[:, None], X, 1e6)
    model = BudgetedOneClass(BUDGET, random_state=0)
    expected = model.fit(X[kept]).decision_function(X)
    found = model.fit(garbage, sample_weight=kept).decision_function(X)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_weights_decide_which_share_an_estimator_leaves_out():
    X = points()
    weight = np.where(np.linalg.norm(X, axis=1) > 1.5, 20.0, 1.0)
    model = BudgetedOneClass(BUDGET, rate=0.2, random_state=0)
    found = model.fit(X, sample_weight=weight).decision_function(X)
    assert np.average(found < 0, weights=weight) < 0.2
