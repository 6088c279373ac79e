"""Numbers of other kinds: half precision, masked ones, extreme units, long counts."""

import functools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from marks import first_quick, slow
from solving import CLASSES, KERNEL_SOLVERS, SOLVERS

import budgetjax as bj
from budgetjax import _counters, estimators
from budgetjax.model import LinearModel
from budgetjax.solvers.kernel import norms
from budgetjax.tables import scaling


def problem(n=100):
    X = np.random.default_rng(0).integers(0, 256, (n, 4))
    return X, np.where(X[:, 0] + X[:, 1] > 255, 1, -1)


@pytest.mark.parametrize("name", first_quick(KERNEL_SOLVERS))
def test_half_precision_is_computed_in_float32(name):
    X, y = problem()
    solve = functools.partial(
        bj.solve,
        CLASSES[name](bj.RBF(1e-4), **KERNEL_SOLVERS[name]),
        y=y,
        max_steps=100,
    )
    expected = solve(X.astype(np.float32)).model
    # Both hold integers of 8 bits.
    for dtype in (np.float16, ml_dtypes.bfloat16):
        found = solve(X.astype(dtype)).model
        assert found.vectors.dtype == np.float32
        np.testing.assert_array_equal(found.vectors, expected.vectors)
        np.testing.assert_array_equal(found.coefficients, expected.coefficients)


def masked(array, where=3):
    mask = np.zeros(np.shape(array), bool)
    mask[where] = True
    return np.ma.MaskedArray(array, mask)


def doors():
    """What reads rows, labels and weights, by name."""
    X, y = problem()
    X = X / 256.0
    state = bj.Pegasos(regularization=0.01).init(bj.RBF(1.0), num_features=4, budget=10)
    state, _ = bj.run(state, X, y)
    made = {
        "run": lambda X, y, w: bj.run(state, X, y, weight=w),
        "refit": lambda X, y, w: bj.refit(state, X, y, weight=w),
        "solve": lambda X, y, w: bj.solve(
            bj.SMO(bj.RBF(1.0)), X, y, weight=w, max_steps=1
        ),
        "solve, linear": lambda X, y, w: bj.solve(
            bj.DCD(), X, y, weight=w, max_steps=1
        ),
        "predict": lambda X, y, w: bj.predict(state, X),
        "calibrate": lambda X, y, w: bj.calibrate(state, X, y, weight=w),
        "prune": lambda X, y, w: bj.prune(state, 5, X, y, weight=w),
        "default_gamma": lambda X, y, w: bj.default_gamma(X),
        "fit_stream": lambda X, y, w: bj.fit_stream(state, [(X, y, w)]),
        "fit": lambda X, y, w: estimators.SMOClassifier(max_steps=1).fit(X, y, w),
    }
    return X, y, made


DOORS = doors()


@pytest.mark.parametrize("door", DOORS[-1])
def test_masked_numbers_are_refused(door):
    X, y, made = DOORS
    wrong = {"X": 0} if door in ("predict", "default_gamma") else {"X": 0, "y": 1}
    if len(wrong) == 2:
        wrong["weight"] = 2
    for name, place in wrong.items():
        given = [X, y, np.ones(len(y))]
        # An array whose mask masks nothing is an array.
        given = [np.ma.MaskedArray(array) for array in given]
        given[place] = masked(given[place])
        with pytest.raises(ValueError, match=f"{name} must have no masked numbers"):
            made[door](*given)


@pytest.mark.parametrize("unit", [1e20, 1e-20])
def test_solvers_refuse_units_that_float32_cannot_hold(unit):
    X, y = problem()
    X = (X / 256.0 - 0.5) * unit
    gamma = bj.default_gamma(X)
    with pytest.raises(ValueError, match=r"kernel.gamma must be in the .*; scale X"):
        bj.solve(bj.SMO(bj.RBF(gamma)), X, y)
    with pytest.raises(ValueError, match=r"kernel.gamma must be in the .*; scale X"):
        estimators.SMOClassifier().fit(X, y)
    # A kernel of absolute differences needs no squares.
    found = bj.solve(bj.SMO(bj.Laplacian(10 / unit), penalty=10.0), X, y)
    assert np.mean(found.model.predict(X) == y) > 0.95


@pytest.mark.parametrize("name", KERNEL_SOLVERS)
def test_squares_that_overflow_are_refused(name):
    X, y = problem()
    solver = CLASSES[name](bj.RBF(1.0), **KERNEL_SOLVERS[name])
    for size in (64.0, 0.01):
        with pytest.raises(ValueError, match="kernel values overflow float32; scale X"):
            bj.solve(solver, X * 1e20, y, cache=bj.KernelCache(size))


@pytest.mark.parametrize("unit", [1e160, *slow(1e200, 1e-200)])
def test_targets_have_any_unit(unit):
    values = np.random.default_rng(0).normal(3, 2, (100, 2))
    for robust in (False, True):
        expected = scaling.centre_and_deviation(values, robust=robust)
        found = scaling.centre_and_deviation(values * unit, robust=robust)
        np.testing.assert_allclose(np.array(found) / unit, expected, rtol=1e-12)
    X = np.linspace(-1, 1, 60)[:, None]
    model = estimators.BudgetedKernelRegressor(20, gamma=1.0, penalty=1e3, encode=False)
    predicted = model.fit(X, X[:, 0] * unit).predict(X) / unit
    np.testing.assert_allclose(predicted, X[:, 0], atol=0.1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (
            lambda: norms.OneInfinity(0.5),
            "OneInfinity: budget must be a finite number",
        ),
        (
            lambda: norms.TwoInfinity(0.2),
            "TwoInfinity: budget must be a finite number",
        ),
        (lambda: norms.PInfinity(0.5, 1.5), "PInfinity: budget must be a finite"),
        (
            lambda: norms.PInfinity(2.0, 1.0),
            "PInfinity: p must be a finite number abo",
        ),
        (
            lambda: norms.OneTwo(0.5),
            "OneTwo: budget must be a finite number of at le",
        ),
        (
            lambda: norms.Euclidean(np.array([1.0, -1.0])),
            "Euclidean: weight must be a",
        ),
    ],
)
def test_norms_are_checked_where_they_are_made(make, says):
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize("name", ["dcd", "mpu"])
def test_visits_are_counted_exactly(name):
    X, y = problem()
    solver, start = CLASSES[name](**SOLVERS[name]), 2**29 + 1
    with jax.enable_x64(True):
        data = solver.read(X.astype(np.float32) / 256, y)
        state = solver.init(data)
        later = state._replace(visits=_counters.of(start))
        found, first = (
            int(solver.step(one, data).num_visits) for one in (later, state)
        )
    assert found - start == first > 0


def test_a_linear_model_of_float64_takes_rows_of_jax():
    model = LinearModel(np.ones(3), np.zeros(()))
    scores = bj.decision_function(model, jnp.ones((2, 3)))
    np.testing.assert_array_equal(scores, [3.0, 3.0])


def test_rows_are_scaled_in_a_program_as_outside():
    X = 3e4 + np.random.default_rng(0).normal(size=(20, 3)) * [1, 1e-2, 10]
    known = scaling.Scaling.empty(3).updated(X)
    found = jax.jit(known.transform)(X.astype(np.float32))
    np.testing.assert_allclose(found, known.apply(X.astype(np.float32)), atol=1e-3)
    with pytest.raises(ValueError, match="scaling must have values"):
        jax.jit(lambda known: known.transform(X))(known)


def test_rows_that_have_no_scale():
    with pytest.raises(ValueError, match=r"^X must have squares that float64"):
        scaling.Scaling.empty(1).updated(np.array([[1e200], [-1e200]]))
    with pytest.raises(ValueError, match=r"X must have shape .n, num_features"):
        bj.default_gamma(np.ones(3))
    for rows in (np.ones((3, 2)), np.full((3, 2), np.nan)):
        with pytest.raises(ValueError, match="X must"):
            bj.default_gamma(rows)
    for robust in (False, True):
        found = scaling.centre_and_deviation(np.ones((0, 2)), robust=robust)
        np.testing.assert_array_equal(found, np.zeros((2, 2)))
