"""The solvers that the Margin Perceptron is compared with: dual coordinate descent,
and Pegasos; and what all linear solvers share in `solve`.
"""

import contextlib
import functools
import math
import re
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from compare import same
from compiling import quick_to_compile
from reference import linear as reference
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax.datasets import load
from budgetjax.solvers.linear import dcd, linear_pegasos, patterns, solving, visits

# Most tests have this many examples and features, so that they share programs.
N, D = 60, 6
LOSSES = ("hinge", "squared_hinge")
PENALTIES = (0.01, 1.0, 30.0)
LEARNERS = ("dcd", "linear_pegasos")


# Data.


@functools.cache
def noisy():
    """No hyperplane separates them; zero rows, and rows that come twice."""
    random = np.random.default_rng(1)
    X = random.normal(size=(N, D))
    y = np.where(X[:, 0] - X[:, 1] + 0.7 * random.normal(size=N) > 0, 1.0, -1.0)
    y = np.where(random.random(N) < 0.1, -y, y)
    X[5], y[5] = X[7], -y[7]
    X[20], y[20] = X[21], y[21]
    X[30] = X[31] = 0
    return X, y


@functools.cache
def separable():
    random = np.random.default_rng(2)
    X = random.normal(size=(N, D))
    y = np.where(X[:, 0] + X[:, 2] > 0, 1.0, -1.0)
    X[:, 0] += 0.5 * y
    return X, y


DATA = {"noisy": noisy, "separable": separable}
SPARSE = scipy.sparse.csr_matrix
FORMS = {"dense": np.asarray, "sparse": lambda X: bj.sparse_rows(SPARSE(X))}


def shown(form, X, y, state):
    """All patterns, as the rounds of `solve` see them."""
    X, y = patterns.examples("test", FORMS[form](X), y)
    return patterns.patterns(X, y, state.constant)


def of_state(weights):
    """The weights of a state as those of the reference, which always end with rho's."""
    return np.append(np.asarray(weights), np.zeros(4))[: D + 1]


@functools.cache
def optimum(data, penalty, loss="hinge", augment=0.0):
    return reference.optimum(*DATA[data](), penalty, loss, augment)


@functools.cache
def solved(name, data, **given):
    return getattr(bj, name).solve(*DATA[data](), **given)


def of_model(model, augment):
    """The weights that the objective is of."""
    weights, bias = (np.asarray(part, np.float64) for part in model)
    return np.append(weights, bias / augment if augment else 0)


def close(actual, expected, rtol=1e-10):
    """To a part of the largest."""
    expected = np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * scale)


# Dual coordinate descent, update by update.

one_pass = jax.jit(dcd._pass)
dcd_round = jax.jit(dcd._round)
dcd_objective = jax.jit(bj.dcd.objective)
pegasos_round = jax.jit(linear_pegasos._round)
pegasos_objective = jax.jit(bj.linear_pegasos.objective)


@functools.partial(jax.jit, static_argnums=3)
def dcd_steps(state, X, y, steps):
    """The last state, and of each step whom it visits and what it leads to."""

    def body(state, _):
        i = state.order.indices[state.position]
        state = bj.dcd.step(state, X, y)
        return state, (i, state.coefficients, state.weights, state.num_passes)

    return jax.lax.scan(body, state, length=steps)


CASES = [
    f"{form}{bias}@dcd-{form}{bias}"
    for form in ("dense", "sparse")
    for bias in ("", "-augmented")
]
SOME_CASES = [CASES[0], CASES[3]]


def case(name):
    """The form, and rho."""
    form, *bias = name.partition("@")[0].split("-")
    return form, 1.5 if bias else 0.0


@pytest.mark.telling
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [0.3, 10.0])
def test_passes_are_those_of_the_reference(penalty, loss, name, double):
    """In the same orders: who is dropped, within which bounds, and when all return."""
    form, augment = case(name)
    X, y = noisy()
    state = dcd.init(FORMS[form](X), y, penalty=penalty, loss=loss, augment=augment)
    everyone = shown(form, X, y, state)
    upper, diagonal = reference.dcd_constants(penalty, loss)
    assert float(state.upper) == upper
    assert float(state.ridge) == diagonal
    alpha, w = np.zeros(N), np.zeros(D + 1)
    left, bounds, tolerance = range(N), (math.inf, -math.inf), 0.1
    visited = returns = dropped = 0
    for turn in range(1, 41):
        _, now = jax.random.split(state.key)
        order = visits.shuffled(now, state.order)
        order = np.asarray(order.indices)[: int(order.number)].tolist()
        assert sorted(order) == sorted(left)
        state = one_pass(state, everyone)
        kept, most, least = reference.dcd_pass(
            X,
            y,
            alpha,
            w,
            order,
            upper=upper,
            diagonal=diagonal,
            shrink=bounds,
            augment=augment,
        )
        visited += len(order)
        dropped += len(order) - len(kept)
        bounds = reference.dcd_bounds(most, least)
        if most - least <= tolerance:
            tolerance *= 0.1 if len(order) == N else 1.0
            kept, bounds = list(range(N)), (math.inf, -math.inf)
            returns += 1
        close(state.coefficients, alpha)
        close(of_state(state.weights), w)
        number = int(state.order.number)
        assert np.asarray(state.order.indices)[:number].tolist() == kept
        np.testing.assert_allclose(state.bounds, bounds[::-1], rtol=1e-6, atol=1e-12)
        np.testing.assert_allclose(state.tolerance, tolerance, rtol=1e-12)
        assert float(state.num_visits) == visited
        assert float(state.num_passes) == turn
        assert not state.settled
        left = kept
    assert dropped > (N / 4 if penalty < 1 else 0)
    assert visited < 40 * N
    assert returns >= (2 if penalty < 1 else 0)


def test_projected_gradients_at_an_end_count_as_zero(double):
    """What would not move is no reason to think that the others agree with it."""
    X = np.array([[3.0, 0.0], [0.0, 0.1], [0.0, 1.0]])
    y = np.array([1, 1, -1])
    state = dcd.init(X, y, penalty=10.0)
    everyone = patterns.patterns(*patterns.examples("test", X, y), None)
    # Gradients of 0.5, at the lower end, and of 0.45, which is to be changed.
    coefficients, weights = np.array([0.0, 4.0, 0.0]), np.zeros(4)
    weights[:2] = 0.5, 14.5
    state = state._replace(
        coefficients=jnp.asarray(coefficients),
        weights=jnp.asarray(weights),
        order=visits.Order(jnp.array([0, 1, 0], jnp.int32), jnp.int32(2)),
    )
    kept, most, least = reference.dcd_pass(
        X,
        y,
        coefficients,
        weights[:3].copy(),
        [0, 1],
        upper=10.0,
        diagonal=0.0,
    )
    assert least == 0
    np.testing.assert_allclose(most, 0.45)
    state = one_pass(state, everyone)
    assert sorted(np.asarray(state.order.indices)[: int(state.order.number)]) == kept
    np.testing.assert_allclose(state.bounds, [-np.inf, most])


@pytest.mark.parametrize("name", SOME_CASES)
@pytest.mark.parametrize("loss", LOSSES)
def test_steps_are_those_of_the_reference(loss, name, double):
    form, augment = case(name)
    X, y = noisy()
    penalty, steps = 2.0, 3 * N
    state = dcd.init(FORMS[form](X), y, penalty=penalty, loss=loss, augment=augment)
    last, path = dcd_steps(state, FORMS[form](X), y, steps)
    order, coefficients, weights, passes = (np.asarray(part) for part in path)
    upper, diagonal = reference.dcd_constants(penalty, loss)
    alpha, w = np.zeros(N), np.zeros(D + 1)
    for t, i in enumerate(order):
        reference.dcd_pass(
            X, y, alpha, w, [i], upper=upper, diagonal=diagonal, augment=augment
        )
        close(coefficients[t], alpha)
        close(of_state(weights[t]), w)
    if loss == "hinge":
        # Of a zero row the coefficient does not matter, but to the dual.
        zeros = alpha[30:32] if not augment else upper
        assert np.all(zeros == upper)
        assert np.any(alpha == upper)
    assert np.any(alpha == 0)
    assert int(last.num_visits) == steps
    np.testing.assert_array_equal(passes, (1 + np.arange(steps)) // N)
    orders = order.reshape(3, N)
    np.testing.assert_array_equal(np.sort(orders, axis=1), [np.arange(N)] * 3)
    assert not np.array_equal(orders[0], orders[1])
    assert not np.array_equal(orders[1], orders[2])


@pytest.mark.parametrize("name", SOME_CASES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_invariants(penalty, loss, name, double):
    """After every round; and what it says of its gap is what the reference says."""
    form, augment = case(name)
    X, y = noisy()
    given = FORMS[form](X)
    state = dcd.init(given, y, penalty=penalty, loss=loss, augment=augment)
    everyone, Z = shown(form, X, y, state), reference.patterns(X, y, augment)
    best = optimum("noisy", penalty, loss, augment).value
    np.testing.assert_allclose(state.squares, np.sum(Z**2, axis=1), rtol=1e-12)
    before = 0.0
    for _ in range(4):
        state = dcd_round(state, everyone)
        alpha = np.asarray(state.coefficients)
        assert np.all(alpha >= 0)
        assert np.all(alpha <= float(state.upper))
        close(of_state(state.weights), alpha @ Z, 1e-11)
        assert not np.any(np.asarray(state.weights)[D + bool(augment) :])
        found = dcd_objective(state, given, y)
        w = of_state(state.weights)
        value = reference.primal(X, y, w, penalty, loss, augment)
        np.testing.assert_allclose(found.primal, value, rtol=1e-10)
        value = reference.dual(X, y, alpha, penalty, loss, augment)
        np.testing.assert_allclose(found.dual, value, rtol=1e-10)
        assert found.dual <= best * (1 + 1e-9)
        assert best * (1 - 1e-9) <= found.primal
        # A visit maximises the dual.
        assert found.dual >= before * (1 - 1e-12)
        before = float(found.dual)
        number = int(state.order.number)
        chosen = np.asarray(state.order.indices)[:number]
        assert len(set(chosen.tolist())) == number > 0
    model = bj.dcd.model(state, given, y)
    np.testing.assert_allclose(model.weights, w[:D], rtol=1e-12)
    np.testing.assert_allclose(model.bias, augment * w[D], rtol=1e-12)


# Its optimum.


@pytest.mark.parametrize("augment", [0.0, 1.0], ids=["@dcd", "bias@dcd-bias"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_optimum(penalty, data, loss, augment):
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    found = solved("dcd", data, **given, stop=1e-8)
    best = optimum(data, penalty, loss, augment)
    assert found.converged
    assert found.dtype == "float64"
    assert found.delta_aft <= 1e-8
    np.testing.assert_allclose(found.objective, best.value, rtol=1e-6)
    history = found.history
    assert np.all(history.delta_aft >= history.objective / best.value - 1 - 1e-9)
    assert np.all(history.objective >= best.value * (1 - 1e-9))
    np.testing.assert_allclose(history.objective[0], N * penalty, rtol=1e-12)
    assert history.delta_aft[0] == np.inf
    assert np.all(np.diff(history.num_passes) >= 1)
    assert np.all(np.diff(history.num_passes) <= 10)
    assert np.all(np.diff(history.num_visits) <= N * np.diff(history.num_passes))
    # What it says is what its model does.
    w = of_model(found.model, augment)
    value = reference.primal(*DATA[data](), w, penalty, loss, augment)
    np.testing.assert_allclose(found.objective, value, rtol=1e-5)
    # |w - w*|^2 / 2 is at most the gap.
    far = np.sum((w - best.w) ** 2) / 2
    assert far <= 1.1e-8 * best.value + 1e-10 * (w @ w)
    assert augment or found.model.bias == 0


@pytest.mark.parametrize("augment", [0.0, 1.0], ids=["@dcd", "bias@dcd-bias"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_weights_of_liblinear(penalty, loss, augment):
    """Its intercept is a constant feature of 1, whose weight is in the norm."""
    X, y = noisy()
    theirs = LinearSVC(
        loss=loss,
        fit_intercept=bool(augment),
        intercept_scaling=1.0,
        C=penalty,
        tol=1e-8,
        max_iter=10**6,
        dual=True,
        random_state=0,
    ).fit(X, y)
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    ours = solved("dcd", "noisy", **given, stop=1e-8).model
    np.testing.assert_allclose(ours.weights, theirs.coef_[0], atol=1e-3)
    np.testing.assert_allclose(
        ours.bias, theirs.intercept_ if augment else 0, atol=1e-3
    )
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=3e-3
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["a9a", "w8a", "ijcnn1"])
def test_the_objective_of_liblinear(name, loss):
    """On the first rows, with C = 1."""
    try:
        data = load(name, standardise=False)
    except ValueError:
        pytest.skip(f"{name} is in the folder that BUDGETJAX_DATA names")
    X, y = data.X_train[:5000], data.y_train[:5000]
    given = X if name == "ijcnn1" else SPARSE(X)
    theirs = LinearSVC(
        loss=loss, fit_intercept=False, tol=1e-6, max_iter=10**6, dual=True
    )
    # LIBLINEAR computes in double precision.
    best = theirs.fit(given.astype(np.float64), y).coef_[0]

    def objective(w):
        slacks = np.maximum(0, 1 - y * (X.astype(np.float64) @ w))
        return w @ w / 2 + np.sum(slacks if loss == "hinge" else slacks**2)

    found = bj.dcd.solve(given, y, loss=loss)
    np.testing.assert_allclose(found.objective, objective(best), rtol=1e-4)
    assert found.converged
    assert found.delta_aft >= found.objective / objective(best) - 1 - 1e-9
    weights = np.asarray(found.model.weights, np.float64)
    np.testing.assert_allclose(found.objective, objective(weights), rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [1e-100, 1e-200])
def test_tiny_penalties(penalty, loss):
    """No figure underflows unnoticed: the bound is below the objective."""
    found = solved("dcd", "separable", penalty=penalty, loss=loss, stop=1e-6)
    assert found.converged
    assert -1e-12 <= found.delta_aft <= 1e-6
    np.testing.assert_allclose(found.objective, N * penalty, rtol=1e-12)


def test_dcd_settles(double):
    """A pass that changes nothing ends it: here every coefficient is at its end."""
    X, y = separable()
    state = dcd.init(X, y, penalty=1e-6)
    everyone = shown("dense", X, y, state)
    first = one_pass(state, everyone)
    np.testing.assert_array_equal(first.coefficients, np.full(N, 1e-6))
    assert not first.settled
    second = one_pass(first, everyone)
    assert second.settled
    np.testing.assert_array_equal(second.weights, first.weights)
    found = solved("dcd", "separable", penalty=1e-6, stop=1e-300)
    assert found.converged
    assert found.num_passes <= 2
    assert abs(found.delta_aft) < 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_dcd_of_nothing(form):
    """Rows of zeros only: the zero model is the best."""
    for loss in LOSSES:
        X = FORMS[form](np.zeros((N, D)))
        found = bj.dcd.solve(X, noisy()[1], loss=loss)
        assert found.converged
        assert found.objective == N
        assert abs(found.delta_aft) < 1e-12
        assert not np.any(found.model.weights)


# Pegasos, update by update.

PEGASOS = {
    # the form, the size of blocks, whether to project, rho, the penalty
    "1": ("dense", 1, False, 0.0, 1.0),
    "7-projected-augmented": ("dense", 7, True, 1.5, 1.0),
    "sparse-3-projected": ("sparse", 3, True, 0.0, 0.2),
    "sparse-30-augmented": ("sparse", 30, False, 1.5, 1.0),
}


def pegasos_case(name):
    form, k, projection, augment, penalty = PEGASOS[name]
    X, y = noisy()
    given = FORMS[form](X)
    state = bj.linear_pegasos.init(
        given,
        y,
        penalty=penalty,
        block_size=k,
        projection=projection,
        augment=augment,
    )
    return form, given, state


def weights_now(state):
    return of_state(state.weights / linear_pegasos._unit(state))


def check_pegasos(name, state, draws):
    """A state after all these draws, against the reference."""
    _, k, projection, augment, penalty = PEGASOS[name]
    X, y = noisy()
    w = reference.pegasos(X, y, 1 / (N * penalty), draws, projection, augment)
    found = weights_now(state)
    close(found, w)
    np.testing.assert_allclose(state.num_steps, len(draws))
    np.testing.assert_allclose(state.num_visits, k * len(draws))
    np.testing.assert_allclose(state.num_passes, k * len(draws) / N, rtol=1e-12)
    # The coefficients are those of the weights.
    Z = reference.patterns(X, y, augment)
    alpha = np.asarray(state.coefficients)
    assert np.all(alpha >= 0)
    close(of_state(state.weights), alpha @ Z, 1e-11)
    if projection:
        assert math.sqrt(w @ w) <= math.sqrt(N * penalty) * (1 + 1e-12)
        assert math.sqrt(found @ found) <= math.sqrt(N * penalty) * (1 + 1e-12)
        square = float(state.weights @ state.weights)
        np.testing.assert_allclose(state.squared_norm, square, rtol=1e-10)


@pytest.mark.parametrize("name", PEGASOS)
def test_rounds_of_pegasos_are_those_of_the_reference(name, double):
    form, given, state = pegasos_case(name)
    _, k, projection, augment, penalty = PEGASOS[name]
    X, y = noisy()
    everyone = shown(form, X, y, state)
    best = optimum("noisy", penalty, augment=augment).value
    steps, draws = -(-N // k), np.zeros((0, k), int)
    for _ in range(3):
        key, drawn = linear_pegasos._draw(state, steps)
        draws = np.vstack([draws, np.asarray(drawn).reshape(steps, k)])
        state = pegasos_round(state, everyone)
        same(state.key, key)
        check_pegasos(name, state, draws)
        found = pegasos_objective(state, given, y)
        value = reference.primal(X, y, weights_now(state), penalty, augment=augment)
        np.testing.assert_allclose(found.primal, value, rtol=1e-10)
        assert 0 < found.dual <= best * (1 + 1e-9)
        assert found.primal >= best * (1 - 1e-9)
        # Some multiple of the coefficients has this value.
        alpha = np.asarray(state.coefficients)
        most = penalty / np.max(alpha)
        values = [
            reference.dual(X, y, part * most * alpha, penalty, augment=augment)
            for part in np.linspace(0, 1, 1001)
        ]
        np.testing.assert_allclose(found.dual, max(values), rtol=1e-3)
        assert found.dual >= max(values) * (1 - 1e-12)
    assert np.min(draws) == 0
    assert np.max(draws) == N - 1
    if projection:
        assert state.scale < 1, "nothing was projected"
    model = bj.linear_pegasos.model(state, given, y)
    w = weights_now(state)
    np.testing.assert_allclose(model.weights, w[:D], rtol=1e-12)
    np.testing.assert_allclose(model.bias, augment * w[D], rtol=1e-12)


@functools.partial(jax.jit, static_argnums=3)
def pegasos_steps(state, X, y, steps):
    """The states after all steps and after each, and what they draw."""

    def body(state, _):
        _, drawn = linear_pegasos._draw(state, 1)
        state = bj.linear_pegasos.step(state, X, y)
        return state, (drawn, state._replace(key=None))

    return jax.lax.scan(body, state, length=steps)


@pytest.mark.parametrize("name", ["7-projected-augmented", "sparse-30-augmented"])
def test_steps_of_pegasos_are_those_of_the_reference(name, double):
    _, given, state = pegasos_case(name)
    _, (draws, path) = pegasos_steps(state, given, noisy()[1], 30)
    draws = np.asarray(draws)
    path = jax.tree.map(np.asarray, path)
    for t in (0, 1, 2, 3, 10, 29):
        now = jax.tree.map(lambda leaf, t=t: leaf[t], path)
        check_pegasos(name, now, draws[: t + 1])
    assert len(set(map(tuple, draws.tolist()))) > 25


def test_pegasos_approaches_the_optimum():
    """On data that are easy; and its bound on the gap is one."""
    for projection in (False, True):
        given = {"penalty": 0.1, "projection": projection, "stop": 1e-6}
        found = solved("linear_pegasos", "separable", max_passes=100, **given)
        best = optimum("separable", 0.1).value
        history = found.history
        assert best * (1 - 1e-9) <= found.objective < 1.05 * best
        assert np.all(history.delta_aft >= history.objective / best - 1 - 1e-9)
        assert history.objective[0] == 0.1 * N
        assert history.delta_aft[0] == np.inf
        assert found.delta_aft < 0.3
        assert not found.converged
        np.testing.assert_array_equal(history.num_passes, np.arange(101))
        np.testing.assert_array_equal(history.num_visits, N * np.arange(101))
        w = of_model(found.model, 0)
        value = reference.primal(*separable(), w, 0.1)
        np.testing.assert_allclose(found.objective, value, rtol=1e-5)


def test_pegasos_stops_at_its_gap():
    """The first time that it is small enough."""
    found = solved("linear_pegasos", "separable", stop=0.3, max_passes=300)
    assert found.converged
    small = found.history.delta_aft <= 0.3
    assert small[-1]
    assert not np.any(small[:-1])


def test_many_projections():
    """The scale, a product of all of them, does not underflow."""
    random = np.random.default_rng(0)
    X = random.normal(size=(N, D)).astype(np.float32)
    y = np.where(random.random(N) < 0.5, 1, -1)
    for penalty in (1e3, 1e5):
        given = {"penalty": penalty, "block_size": 1, "projection": True}
        state = bj.linear_pegasos.init(X, y, **given)
        for _ in range(6):
            state, _ = pegasos_steps(state, X, y, 500)
            w = np.asarray(weights_now(state), np.float64)
            assert np.all(np.isfinite(w))
            assert 0 < math.sqrt(w @ w) <= math.sqrt(N * penalty) * (1 + 1e-3)
            assert np.isfinite(pegasos_objective(state, X, y).primal)


def test_many_projections_in_double_precision():
    X = np.random.default_rng(0).normal(size=(N, D))
    y = np.where(np.random.default_rng(1).random(N) < 0.5, 1, -1)
    found = bj.linear_pegasos.solve(
        X, y, penalty=1e8, block_size=1, projection=True, max_passes=100
    )
    assert np.all(np.isfinite(found.history.objective))
    w = np.asarray(found.model.weights, np.float64)
    assert math.sqrt(w @ w) <= math.sqrt(N * 1e8) * (1 + 1e-6)


# What both share.

PLAIN = {"dcd": {"loss": "hinge"}, "linear_pegasos": {"max_passes": 4}}
FIGURES = ("objective", "delta_aft", "num_passes", "num_visits", "converged")


@pytest.mark.parametrize(
    ("name", "form", "augment"),
    [
        ("dcd", "dense", 0.0),
        ("dcd", "sparse", 1.0),
        ("linear_pegasos", "dense", 1.0),
    ],
)
def test_several_penalties_are_as_many_models(name, form, augment):
    X, y = noisy()
    X, penalties = FORMS[form](X), np.array([0.1, 1.0, 3.0])
    solve = getattr(bj, name).solve
    given = PLAIN[name] | {"augment": augment}
    many = solve(X, y, penalty=penalties, **given)
    assert many.model.weights.shape == (3, D)
    assert many.model.bias.shape == (3,)
    assert many.dtype == "float64"
    assert many.num_learned is many.num_unlearned is None
    lengths = []
    for i, penalty in enumerate(penalties):
        one = solve(X, y, penalty=float(penalty), **given)
        for figure in FIGURES:
            single, several = getattr(one, figure), getattr(many, figure)
            assert several.shape == (3,)
            assert several.dtype == single.dtype
            assert several[i] == single
        for part, parts in zip(one.model, many.model, strict=True):
            np.testing.assert_array_equal(parts[i], part)
        length = len(one.history.objective)
        lengths.append(length)
        for single, several in zip(one.history, many.history, strict=True):
            assert single.shape == (length,)
            np.testing.assert_array_equal(several[:length, i], single)
            # Whoever is done waits.
            assert np.all(several[length:, i] == single[-1])
    assert {column.shape for column in many.history} == {(max(lengths), 3)}
    if name == "dcd":
        assert min(lengths) < max(lengths)


@pytest.mark.parametrize("form", FORMS)
def test_scores_of_several_models(form):
    """As many as features: no matrix is taken for its transpose."""
    X = noisy()[0]
    random = np.random.default_rng(0)
    weights, bias = random.normal(size=(D, D)), random.normal(size=D)
    model = bj.LinearModel(jnp.asarray(weights), jnp.asarray(bias))
    expected = X @ weights.T + bias
    np.testing.assert_allclose(
        model.decision_function(FORMS[form](X)), expected, rtol=1e-4, atol=1e-4
    )
    labels = model.predict(FORMS[form](X))
    np.testing.assert_array_equal(labels, np.where(expected > 0, 1, -1))
    with pytest.raises(ValueError, match=r"X must have shape \(n, 6\), .* \(60, 5\)"):
        model.predict(X[:, 1:])


@pytest.mark.parametrize("name", [*LEARNERS, "mpu"])
def test_the_objective_of_other_rows(name):
    X, y = noisy()
    state = getattr(bj, name).init(X, y)
    for rows in ((X[1:], y[1:]), (X, y[1:])):
        with pytest.raises(ValueError, match=r"^objective: .* 60 rows, got (59|60)"):
            getattr(bj, name).objective(state, *rows)


def test_numbers_that_overflow_are_named():
    X, y = noisy()
    with pytest.raises(ValueError, match=r"^mpu.init: counts must .* lower penalty"):
        bj.mpu.solve(X, y, penalty=1e308)


def test_passes_that_are_told_are_whole(monkeypatch):
    """Of two rounds of 61.5 patterns of 60, two passes."""
    told = []

    @contextlib.contextmanager
    def reporting(where, progress, unit, total):
        yield lambda text, count: told.append(count)

    monkeypatch.setattr(solving.progress_bar, "reporting", reporting)
    X, y = noisy()
    found = bj.linear_pegasos.solve(X, y, block_size=41, stop=1e-9, max_passes=8)
    assert found.num_passes != int(found.num_passes)
    assert sum(told) == int(found.num_passes)


@pytest.mark.parametrize("name", LEARNERS)
def test_solutions(name, x64):
    """In double precision, whatever the caller's is, which stays; the model is not."""
    X, y = noisy()
    found = getattr(bj, name).solve(X, y, augment=1.0, **PLAIN[name])
    assert jax.config.read("jax_enable_x64") is x64
    assert found.dtype == "float64"
    assert found.num_learned is found.num_unlearned is None
    assert found.history._fields == FIGURES[:4]
    for figure in FIGURES:
        value = getattr(found, figure)
        assert isinstance(value, np.ndarray | np.generic)
        assert value.shape == ()
        assert value.dtype == (bool if figure == "converged" else np.float64)
    for figure, column in found.history._asdict().items():
        assert isinstance(column, np.ndarray)
        assert column.shape == found.history.objective.shape
        assert column.dtype == np.float64
        assert column[-1] == getattr(found, figure)
    assert found.history.num_passes[0] == found.history.num_visits[0] == 0
    for leaf in found.model:
        assert leaf.dtype == (jnp.float64 if x64 else jnp.float32)
        assert not leaf.weak_type
    # The digits do not depend on the default either.
    other = solved(name, "noisy", augment=1.0, **PLAIN[name])
    same(found.history, other.history)


@pytest.mark.parametrize("name", LEARNERS)
def test_an_error_leaves_the_precision_alone(name, x64, as_installed):
    for given in ({"augment": -1.0}, {"max_passes": 0}, {"stop": 0}):
        with pytest.raises(ValueError, match=r"augment|max_passes|stop"):
            getattr(bj, name).solve(*noisy(), **given)
        assert jax.config.read("jax_enable_x64") is x64


@pytest.mark.parametrize("name", LEARNERS)
def test_forms_of_the_same_patterns(name):
    X, y = noisy()
    solve = getattr(bj, name).solve
    expected = solved(name, "noisy", augment=1.0, **PLAIN[name])
    for form in (X.tolist(), SPARSE(X), scipy.sparse.coo_array(X)):
        found = solve(form, y.astype(int), augment=1.0, **PLAIN[name])
        np.testing.assert_allclose(found.objective, expected.objective, rtol=1e-9)
        np.testing.assert_allclose(found.num_visits, expected.num_visits)
        close(found.model.weights, expected.model.weights, 1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_seeds_are_orders(name):
    given = PLAIN[name] | {"augment": 1.0}
    first, again = (getattr(bj, name).solve(*noisy(), seed=3, **given) for _ in "12")
    other = solved(name, "noisy", **given)
    same(first.history, again.history)
    same(first.model, again.model)
    assert first.objective != other.objective


def test_passes_of_dcd_are_bounded():
    """The gap is looked at every ten: so many may come on top, less one."""
    ends = []
    for max_passes in (1, 3, 11):
        found = solved(
            "dcd", "noisy", penalty=30.0, augment=1.0, max_passes=max_passes, stop=1e-9
        )
        assert not found.converged
        assert max_passes <= found.num_passes < max_passes + dcd.PASSES
        assert np.all(np.isfinite(found.model.weights))
        assert np.isfinite(found.objective)
        assert found.delta_aft > 1e-9
        ends.append(found.num_passes)
    assert ends[0] == ends[1] < ends[2]


@pytest.mark.parametrize("block_size", [7, 30])
def test_passes_of_pegasos_are_bounded(block_size):
    """A round draws as many as there are, and what completes a block."""
    for max_passes in (1, 3):
        found = solved(
            "linear_pegasos", "noisy", block_size=block_size, max_passes=max_passes
        )
        assert not found.converged
        round_ = block_size * -(-N // block_size)
        np.testing.assert_allclose(found.history.num_visits[1], round_)
        np.testing.assert_allclose(found.num_passes, found.num_visits / N)
        assert max_passes <= found.num_passes + 1e-9 < max_passes + round_ / N
        assert np.all(np.isfinite(found.model.weights))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_bar_shows_the_progress(name, capfd):
    pytest.importorskip("tqdm")
    solve = getattr(bj, name).solve
    given = PLAIN[name] | {"augment": 1.0}
    quiet = solve(*noisy(), **given)
    assert capfd.readouterr() == ("", "")
    loud = solve(*noisy(), **given, progress=True)
    out, err = capfd.readouterr()
    assert not out
    assert f"{name}.solve" in err
    assert "gap" in err
    assert "passes" in err
    assert f"{int(loud.num_passes)}/" in err
    same(loud.history, quiet.history)


def test_a_bar_needs_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"^dcd.solve: .*pip install tqdm"):
        bj.dcd.solve(*noisy(), augment=1.0, progress=True)


# Steps, compiled and many at once.

STARTS = {
    "dcd": {"penalty": 2.0, "augment": 1.0},
    "linear_pegasos": {"penalty": 2.0, "augment": 1.0, "projection": True},
}

OBJECTIVES = {"dcd": dcd_objective, "linear_pegasos": pegasos_objective}


def stepped(name, state, X, y, steps):
    of = {"dcd": dcd_steps, "linear_pegasos": pegasos_steps}[name]
    return of(state, X, y, steps)[0]


@pytest.mark.parametrize(
    ("name", "form"),
    [("dcd", "dense"), ("dcd", "sparse"), ("linear_pegasos", "sparse")],
)
def test_functions_compiled_or_not(name, form, double):
    X, y = noisy()
    X = FORMS[form](X)
    algorithm = getattr(bj, name)
    start = algorithm.init(X, y, **STARTS[name])
    plain = algorithm.step(start, X, y)
    compiled = jax.jit(algorithm.step)(start, X, y)
    same(plain.key, compiled.key)
    keyless = (each._replace(key=None) for each in (plain, compiled))
    jax.tree.map(lambda *of: np.testing.assert_allclose(*of, rtol=1e-13), *keyless)
    for leaf in jax.tree.leaves(plain):
        assert not getattr(leaf, "weak_type", False)
    # Nothing was taken from the first state.
    same(start, algorithm.init(X, y, **STARTS[name]))
    found = algorithm.objective(plain, X, y)
    np.testing.assert_allclose(found, OBJECTIVES[name](compiled, X, y), rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "given", "steps"),
    [
        ("dcd", {"loss": "squared_hinge"}, 3 * N),
        (
            "linear_pegasos",
            {"block_size": 7, "projection": True, "augment": 1.5},
            30,
        ),
    ],
)
def test_many_penalties_by_vmap(name, given, steps, double):
    X, y = noisy()
    algorithm = getattr(bj, name)
    penalties = [0.25, 1.0, 4.0]

    def init(penalty):
        return algorithm.init(X, y, penalty=penalty, **given)

    def end(state):
        state = stepped(name, state, X, y, steps)
        kept = state.weights, state.coefficients, state.num_visits
        return kept, OBJECTIVES[name](state, X, y)

    many = jax.vmap(end)(jax.vmap(init)(jnp.asarray(penalties)))
    for i, penalty in enumerate(penalties):
        alone = end(init(penalty))
        ours = jax.tree.map(lambda leaf, i=i: leaf[i], many)
        jax.tree.map(lambda a, b: close(a, b, 1e-11), ours, alone)


@pytest.mark.parametrize("name", LEARNERS)
def test_new_values_compile_nothing(name, double):
    X, y = noisy()
    algorithm, traces = getattr(bj, name), []

    @jax.jit
    def step(state, X, y):
        traces.append(None)
        return algorithm.step(state, X, y)

    table = [
        {},
        {"penalty": 7},
        {"penalty": np.float32(0.1), "augment": 0.5},
        {"seed": 3, "augment": 2.0},
    ]
    table += [{"loss": "squared_hinge"}] if name == "dcd" else []
    for given in table:
        state = algorithm.init(X, y, **STARTS[name] | given)
        step(step(state, X, y), X, y)
    assert len(traces) == 1

    programs = solving._round, solving._objectives
    algorithm.solve(X, y, augment=1.0, max_passes=2)
    compiled = [each._cache_size() for each in programs]
    for given in table[1:]:
        algorithm.solve(X + 1, y, **{"augment": 2.0, "max_passes": 4} | given)
    assert [each._cache_size() for each in programs] == compiled


@pytest.mark.parametrize("name", LEARNERS)
def test_steps_in_float32(name):
    X, y = (part.astype(np.float32) for part in noisy())
    algorithm = getattr(bj, name)
    state = algorithm.init(X, y, **STARTS[name])
    last = stepped(name, state, X, y, 600)
    assert all(leaf.dtype != np.float64 for leaf in jax.tree.leaves(last))
    primal, dual = OBJECTIVES[name](last, X, y)
    best = optimum("noisy", 2.0, augment=1.0).value
    assert dual <= best * (1 + 1e-5)
    assert best * (1 - 1e-5) <= primal < 1.3 * best
    Z = reference.patterns(X, y, 1.0)
    alpha = np.asarray(last.coefficients, np.float64)
    close(of_state(last.weights), alpha @ Z, 1e-4)
    model = algorithm.model(last, X, y)
    value = reference.primal(X, y, of_model(model, 1.0), 2.0, augment=1.0)
    np.testing.assert_allclose(primal, value, rtol=1e-4)


# What is compiled.


def hoisted(program, *given):
    """Loops of a compiled program that are not calls of one kernel, and all loops."""
    if jax.default_backend() != "cpu":
        pytest.skip("of CPUs")
    text = jax.jit(program).lower(*given).compile().as_text()
    loops = text.count(" while(")
    return loops - text.count('xla_cpu_small_call="true"'), loops


def wide(form, dtype):
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 41)).astype(dtype)
    return X, np.where(X[:, 0] > 0, 1, -1)


WIDE = [("dense", np.float32), ("dense", np.float64), ("sparse", np.float64)]


@pytest.mark.parametrize(("form", "dtype"), WIDE)
def test_a_pass_of_dcd_is_one_kernel(form, dtype, double):
    """Operation by operation it would take ten times as long; both losses share it."""
    X, y = wide(form, dtype)
    states = [dcd.init(FORMS[form](X), y, loss=loss) for loss in LOSSES]
    first, second = (
        jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), state)
        for state in states
    )
    assert first == second
    found, loops = hoisted(dcd._pass, states[0], shown(form, X, y, states[0]))
    assert found == 0
    assert loops > 3


@pytest.mark.parametrize(
    ("form", "dtype", "projection"),
    [
        (*WIDE[0], False),
        (*WIDE[1], True),
        (*WIDE[2], False),
    ],
)
@quick_to_compile(False)
def test_a_round_of_pegasos_is_a_kernel_a_loop(form, dtype, projection, double):
    """But for the draws, which are made beforehand, and for the loop over blocks."""
    X, y = wide(form, dtype)
    state = linear_pegasos.init(FORMS[form](X), y, projection=projection)
    draws, _ = hoisted(lambda state: linear_pegasos._draw(state, 10), state)
    found, loops = hoisted(linear_pegasos._round, state, shown(form, X, y, state))
    assert loops > draws + 4
    assert found <= draws + 1


# Bad input.

NAN, INF = math.nan, math.inf
X_, Y_ = separable()[0][:12], np.array([1, -1] * 6)


def changed(array, row, value):
    array = np.array(array, np.float64)
    array.reshape(len(array), -1)[row, -1] = value
    return array


BAD_DATA = {
    "a-label-of-0": ((X_, changed(Y_, 3, 0)), "y must be -1 or +1, got 0 in row 3"),
    "a-label-of-nan": (
        (X_, changed(Y_, 3, NAN)),
        "y must be -1 or +1, got nan in row 3",
    ),
    "one-class": ((X_, np.ones(12)), "y must have both classes, got +1 in all 12 rows"),
    "one-class-sparse": (
        (SPARSE(X_), -np.ones(12)),
        "y must have both classes, got -1 in all 12 rows",
    ),
    "labels": (
        (X_, Y_[1:]),
        "y must have shape (12,), one label a row of X, got (11,)",
    ),
    "columns-of-labels": (
        (SPARSE(X_), Y_[:, None]),
        "y must have shape (12,), one label a row of X, got (12, 1)",
    ),
    "text-for-labels": (
        (X_, np.array(["a"] * 12)),
        "y must hold real numbers, got dtype <U1",
    ),
    "a-row": ((X_[0], Y_), "X must have shape (n, d), got (6,)"),
    "no-rows": ((X_[:0], Y_[:0]), "X must have rows and columns, got shape (0, 6)"),
    "no-columns-sparse": (
        (SPARSE((12, 0)), Y_),
        "X must have rows and columns, got shape (12, 0)",
    ),
    "nan": ((changed(X_, 5, NAN), Y_), "X must be finite, got nan in row 5, column 5"),
    "inf-sparse": (
        (SPARSE(changed(X_, 7, -INF)), Y_),
        "X must be finite, got -inf in row 7, column 5",
    ),
    "ragged": (([[1.0], [2.0, 3.0]], [1, -1]), "X must be an array, got a ragged list"),
    "text": ((np.array([["a"]] * 12), Y_), "X must hold real numbers, got dtype <U1"),
    "huge": (
        (1e200 * X_, Y_),
        "squared norms must be finite in float64, got inf in row 0; scale X down",
    ),
    "huge-sparse": (
        (SPARSE(changed(X_, 4, 1e200)), Y_),
        "squared norms must be finite in float64, got inf in row 4; scale X down",
    ),
}


@pytest.mark.parametrize("bad", BAD_DATA)
@pytest.mark.parametrize("name", LEARNERS)
def test_bad_data(name, bad, as_installed):
    data, says = BAD_DATA[bad]
    algorithm = getattr(bj, name)
    table = {"init": algorithm.init, "(init|solve)": algorithm.solve}
    for where, function in table.items():
        says_all = f"^{name}.{where}: {re.escape(says)}$"
        with (
            jax.enable_x64(True),
            pytest.raises(ValueError, match=says_all) as raised,
        ):
            function(*data)
        assert raised.type is ValueError


@pytest.mark.parametrize("name", LEARNERS)
def test_squared_norms_that_overflow_single_precision(name, as_installed):
    says = re.escape(
        f"{name}.init: squared norms must be finite in float32, got inf in row 0; "
        "scale X down"
    )
    with pytest.raises(ValueError, match=f"^{says}$"):
        getattr(bj, name).init((1e20 * X_).astype(np.float32), Y_)


POSITIVE = "must be a finite number above 0"
BAD_ARGUMENTS = [
    # learners, where, the arguments, the message
    *(
        (LEARNERS, "solve", {"penalty": value}, f"penalty {POSITIVE}, got {value!r}")
        for value in (0, 0.0, -1.0, NAN, INF, "1", None, True, [1.0, -2.0])
    ),
    (
        LEARNERS,
        "solve",
        {"penalty": [[1.0], [1.0, 2.0]]},
        f"penalty {POSITIVE}, got [[1.0], [1.0, 2.0]]",
    ),
    (
        LEARNERS,
        "solve",
        {"penalty": []},
        "penalty must be a number or some of them, got shape (0,)",
    ),
    (
        LEARNERS,
        "solve",
        {"penalty": np.ones((1, 2))},
        "penalty must be a number or some of them, got shape (1, 2)",
    ),
    *(
        (
            LEARNERS,
            "init",
            {"penalty": value},
            "penalty must be in the range of float64, got ",
        )
        for value in (1e-310, [1.0, 1e-310])
    ),
    *(
        (
            ("dcd",),
            "init",
            {"loss": value},
            f"loss must be one of ('hinge', 'squared_hinge'), got {value!r}",
        )
        for value in ("logistic", "Hinge", "", None, 1, ["hinge"])
    ),
    (
        ("linear_pegasos",),
        "init",
        {"block_size": 0},
        "block_size must be at least 1, got 0",
    ),
    *(
        (
            ("linear_pegasos",),
            "init",
            {"block_size": value},
            f"block_size must be an integer, got {value!r}",
        )
        for value in (1.5, True, "3", None)
    ),
    *(
        (
            ("linear_pegasos",),
            "init",
            {"projection": value},
            f"projection must be True or False, got {value!r}",
        )
        for value in (1, None, "yes")
    ),
    *(
        (
            LEARNERS,
            "init",
            {"augment": value},
            f"augment must be a finite number of at least 0, got {value!r}",
        )
        for value in (-1.0, NAN, INF, "x", None)
    ),
    (
        LEARNERS,
        "init",
        {"augment": np.array([1.0, 2.0])},
        "augment must be a scalar, got shape (2,); sweep values by jax.vmap over init",
    ),
    (
        LEARNERS,
        "init",
        {"augment": 1e200},
        "squared norms must be finite in float64, got inf in row 0; scale X down",
    ),
    (LEARNERS, "init", {"seed": 1.5}, "seed must be an integer scalar, got 1.5"),
    (LEARNERS, "init", {"seed": 2**40}, "seed must fit 32 bits, got 1099511627776"),
    *(
        (LEARNERS, "solve", {"stop": value}, f"stop {POSITIVE}, got {value!r}")
        for value in (0, -1.0, NAN, INF, None, "a")
    ),
    (LEARNERS, "solve", {"stop": [0.1, 0.2]}, "stop must be a number, got shape (2,)"),
    (LEARNERS, "solve", {"max_passes": 0}, "max_passes must be at least 1, got 0"),
    *(
        (
            LEARNERS,
            "solve",
            {"max_passes": value},
            f"max_passes must be an integer, got {value!r}",
        )
        for value in (1.5, True, None)
    ),
    *(
        (
            LEARNERS,
            "solve",
            {"progress": value},
            f"progress must be True or False, got {value!r}",
        )
        for value in (1, "yes")
    ),
]


@pytest.mark.parametrize(("names", "where", "given", "says"), BAD_ARGUMENTS)
def test_bad_arguments(names, where, given, says, as_installed):
    """A message that ends in a blank is one whose numbers do not matter."""
    for name in names:
        end = "" if says.endswith(" ") else "$"
        pattern = f"^{name}.{where}: {re.escape(says)}{end}"
        with pytest.raises(ValueError, match=pattern) as raised:
            getattr(bj, name).solve(X_, Y_, **given)
        assert raised.type is ValueError


@pytest.mark.parametrize("name", LEARNERS)
def test_init_takes_one_penalty(name, as_installed):
    says = re.escape(
        f"{name}.init: penalty must be a scalar, got shape (2,); sweep values by "
        "jax.vmap over init"
    )
    with pytest.raises(ValueError, match=f"^{says}$"):
        getattr(bj, name).init(X_, Y_, penalty=np.array([1.0, 2.0]))
