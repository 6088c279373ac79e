"""Weights of examples in all batch solvers: an example of weight 2 counts twice."""

import numpy as np
import pytest
from marks import first_quick
from solving import CLASSES

import budgetjax as bj

N, D = 40, 3
KERNEL = {"kernel": bj.RBF(0.5)}
# Solvers that end at the optimum, with a tolerance.
EXACT = {
    "smo": KERNEL | {"penalty": 2.0},
    "sdca": KERNEL | {"penalty": 2.0},
    "budget_svm": KERNEL | {"penalty": 0.7, "norm": bj.norms.OneInfinity(9.0)},
    "mpu": {"penalty": 0.5},
    "mpu-kernel": {"penalty": 0.5, "kernel": bj.RBF(0.5)},
    "dcd": {"penalty": 0.5},
    "dcd-squared": {"penalty": 0.5, "loss": "squared_hinge"},
}
# Solvers whose draws, by weight, are then the same.
DRAWN = {
    "sbp": KERNEL | {"slack": 0.1, "fit_bias": False, "batch_size": 8},
    "sbp-bias": KERNEL | {"slack": 0.1, "batch_size": 8},
    "kernel_pegasos": KERNEL | {"penalty": 2.0, "batch_size": 8},
    "ball_sgd": KERNEL | {"radius": 3.0, "batch_size": 8},
    "linear_pegasos": {"penalty": 0.5, "batch_size": 1},
}


def examples():
    """Rows, labels, whole weights, and the rows as often as they count."""
    random = np.random.default_rng(0)
    X = random.normal(size=(N, D))
    y = np.where(X[:, 0] + 0.7 * random.normal(size=N) > 0, 1.0, -1.0)
    weight = random.integers(1, 4, N)
    return (X, y), weight, (np.repeat(X, weight, axis=0), np.repeat(y, weight))


def solved(name, data, *, weight=None, max_steps=3000, **given):
    solver = CLASSES[name.partition("-")[0]](**given)
    return bj.solve(solver, *data, weight=weight, max_steps=max_steps)


@pytest.mark.parametrize("name", EXACT)
def test_a_weight_of_two_is_a_row_twice(name, double):
    """Weights multiply the penalty; those of budgets the budget as well."""
    data, weight, repeated = examples()
    given = EXACT[name] | {"tolerance": 1e-7}
    less = given | {"penalty": given["penalty"] / 0.3}
    if name == "budget_svm":
        less |= {"norm": bj.norms.OneInfinity(0.3 * given["norm"].budget)}
    weighted = solved(name, data, weight=weight, **given)
    ones = solved(name, data, weight=np.ones(N), **given)
    scaled = solved(name, data, weight=np.full(N, 0.3), **less)
    twice = solved(name, repeated, **given)
    for found in (weighted, ones, scaled, twice):
        assert found.converged
    primal, plain, same, expected = (
        found.history.primal[-1] for found in (weighted, ones, scaled, twice)
    )
    np.testing.assert_allclose(primal, expected, rtol=3e-7)
    np.testing.assert_allclose(same, plain, rtol=3e-7)
    assert plain < 0.99 * expected
    ours, theirs = (each.model.decision_function(data[0]) for each in (weighted, twice))
    np.testing.assert_allclose(ours, theirs, atol=3e-3)


@pytest.mark.parametrize("name", first_quick(DRAWN))
def test_a_weight_of_two_is_as_likely_as_two_rows(name, double):
    data, weight, repeated = examples()
    given = DRAWN[name] | {"tolerance": None, "seed": 3}
    # Linear steps are passes, whose length is the number of rows.
    steps = (repeated[1].size, N) if name == "linear_pegasos" else (100, 100)
    weighted = solved(name, data, weight=weight, max_steps=steps[0], **given)
    ones = np.ones(repeated[1].size)
    twice = solved(name, repeated, weight=ones, max_steps=steps[1], **given)
    if name == "linear_pegasos":
        # Other numbers of draws per key: the same only in the end.
        np.testing.assert_allclose(
            weighted.history.primal[-1], twice.history.primal[-1], rtol=0.03
        )
        return
    # The bounds differ: rows that come twice may be drawn more or less often.
    np.testing.assert_allclose(weighted.history.primal, twice.history.primal, rtol=1e-9)
    np.testing.assert_allclose(
        weighted.model.decision_function(data[0]),
        twice.model.decision_function(data[0]),
        atol=1e-9,
    )
