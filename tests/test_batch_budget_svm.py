"""`BudgetSVM`: norms, projections, both kinds of steps against a float64 optimum."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import first_quick
from reference import budget_svm as reference
from sklearn.svm import SVC

import budgetjax as bj
from budgetjax.refitting.reduce import prune
from budgetjax.solvers.kernel.budget_svm import POWER_ITERATIONS
from budgetjax.solvers.kernel.norms import (
    Euclidean,
    OneInfinity,
    OneTwo,
    PInfinity,
    TwoInfinity,
)

N, D, GAMMA = 60, 3, 0.5
NORMS = {"l1": OneInfinity, "l2": TwoInfinity}
OBJECTS = {"one-two": OneTwo}
# Budget and penalty such that, in this order: the sum binds alone, the sum and the
# other bound do, the other does alone, none does.
SETTINGS = {
    "l1": [(1.0, 1.0), (5.0, 0.5), (60.0, 0.3), (60.0, 1e3)],
    "l2": [(1.5, 0.3), (20.0, 1.0), (60.0, 2.0), (60.0, 1e3)],
}


def training(dtype=np.float64, n=N):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, D))
    y = np.where(X[:, 0] + 0.7 * random.normal(size=n) > 0, 1, -1)
    return X.astype(dtype), y.astype(dtype)


def gram(X):
    return np.exp(-GAMMA * ((X[:, None] - X[None]) ** 2).sum(axis=2))


@functools.cache
def optimum(norm, budget, penalty):
    X, y = training()
    return reference.solve(gram(X), y, budget=budget, penalty=penalty, norm=norm)


def solved(norm, penalty, *, tolerance=1e-9, max_steps=3000, cache=None, **given):
    """The solution, of float64 unless a `dtype` is given."""
    solver = bj.BudgetSVM(bj.RBF(GAMMA), norm, penalty, tolerance=tolerance)
    return bj.solve(
        solver,
        *training(**given),
        cache=cache,
        max_steps=max_steps,
        callback_every=250,
    )


def assert_within(a, y, budget, penalty, norm, tolerance=1e-6):
    """Every constraint of the dual problem, relative to its bound."""
    a, y = np.asarray(a, np.float64), np.asarray(y, np.float64)
    most = reference.most(budget, penalty, norm, len(a))
    assert a.min() >= 0
    assert abs(y @ a) <= tolerance * most
    assert a.sum() <= most * (1 + tolerance)
    if norm == "one-two":
        assert a.max() <= penalty * (1 + tolerance)
        penalty = np.sqrt(budget) * penalty
    p = 1 if norm == "l1" else reference.power(norm)
    largest = a.max() if p == 1 else np.linalg.norm(a, p / (p - 1))
    assert largest <= penalty * (1 + tolerance)


# p of `PInfinity`, whose functions are compiled once for all.
POWERS = (1.1, 1.5, 3.0)


def norm_of(name, budget, dtype=np.float64):
    """The norm of a name, or that between a p-norm and the largest entry."""
    if isinstance(name, float):
        return PInfinity(jnp.asarray(budget, dtype), jnp.asarray(name, dtype))
    return (NORMS | OBJECTS)[name](jnp.asarray(budget, dtype))


projected = jax.jit(lambda norm, v, y, penalty: norm.project(v, y, penalty))
least = jax.jit(lambda norm, v, y: norm.least(v, y))


def vectors(n=N):
    random = np.random.default_rng(1)
    normal = random.normal(size=n)
    return {
        "normal": normal,
        "ties": np.round(normal),
        "ones": np.ones(n),
        "zero": np.zeros(n),
        "below": -np.ones(n),
        "small": 1e-3 * normal,
        "huge": 1e3 * normal,
    }


def test_projections_find_the_nearest_point(double):
    _, y = training()
    for budget, penalty in [(7.5, 1.0), (60.0, 0.2)]:
        for name, v in vectors().items():
            for norm in ("l2", *OBJECTS, *POWERS):
                a = projected(norm_of(norm, budget), v, y, penalty)
                assert_within(a, y, budget, penalty, norm, 1e-12)
                given = {"budget": budget, "penalty": penalty, "norm": norm}
                nearest = reference.project(v, y, **given)
                text = f"{name}, budget {budget}, {norm}"
                np.testing.assert_allclose(a, nearest, 0, 1e-6 * penalty, err_msg=text)
            same = projected(norm_of(2.0, budget), v, y, penalty)
            exact = projected(norm_of("l2", budget), v, y, penalty)
            np.testing.assert_allclose(same, exact, 0, 1e-12 * penalty)


def test_projections_are_within_in_float32():
    # As many of each class: with a budget of all, sum and ball touch at one point.
    y = np.where(np.arange(N) % 2, 1, -1).astype(np.float32)
    values = {**vectors(), "beyond": 1e8 * vectors()["normal"]}
    for budget in (1.0, 9.0, 60.0, 200.0):
        for penalty in (1e-4, 1.0, 1e4):
            for v in values.values():
                for norm in ("l2", *OBJECTS, *POWERS):
                    between = norm_of(norm, budget, np.float32)
                    a = projected(between, np.float32(v), y, np.float32(penalty))
                    assert_within(a, y, budget, penalty, norm)


@pytest.mark.parametrize("norm", first_quick([*NORMS, *OBJECTS, *POWERS]))
def test_the_least_norm_over_biases(norm, double):
    _, y = training()
    biases = np.linspace(-4, 4, 41)
    for budget in (1.0, 2.5, 4.0, 60.0):
        for name, v in vectors().items():
            value, bias = least(norm_of(norm, budget), v, y)

            def worst(b, v=v, budget=budget):
                return reference.value(np.maximum(v - y * b, 0), budget, norm)

            near = 1e-8 * np.abs(v).max()
            assert abs(float(value) - worst(float(bias))) <= near, (name, budget)
            for other in np.concatenate([biases, y * v])[::5]:
                assert value <= worst(other) + near, (name, budget)


def weights():
    """For the norm with a weight per entry."""
    return np.random.default_rng(2).uniform(0.2, 3.0, N)


def test_the_norm_with_weights(double):
    """Its projection against the reference, its least value against other biases."""
    _, y = training()
    norm = Euclidean(jnp.asarray(weights()))

    @jax.jit
    def both(v, penalty):
        return norm.project(v, jnp.asarray(y), penalty), norm.least(v, jnp.asarray(y))

    for name, v in vectors().items():
        for penalty in (0.2, 1e3):
            a, (value, bias) = both(jnp.asarray(v), jnp.asarray(penalty))
            a = np.asarray(a)
            assert a.min() >= 0
            assert abs(y @ a) <= 1e-12 * max(1, np.abs(a).sum()), name
            assert np.sqrt(np.sum(a**2 / weights())) <= penalty * (1 + 1e-12), name
            if np.abs(v).max() * N < penalty or penalty < 1:
                given = {"budget": weights(), "penalty": penalty, "norm": "euclidean"}
                nearest = reference.project(v, y, **given)
                np.testing.assert_allclose(a, nearest, 0, 1e-6 * penalty, err_msg=name)

        def worst(b, v=v):
            return reference.euclidean_value(np.maximum(v - y * b, 0), weights())

        near = 1e-8 * np.abs(v).max()
        assert abs(float(value) - worst(float(bias))) <= near, name
        for other in (y * v)[::5]:
            assert value <= worst(other) + near, name


def test_a_norm_that_is_an_object(double):
    X, y = training()
    given = {"budget": weights(), "penalty": 0.8, "norm": "euclidean"}
    _, dual = reference.solve(gram(X), y, **given)
    found = solved(Euclidean(weights()), 0.8)
    history, model = found.history, found.model
    assert history.dual[-1] == pytest.approx(dual, rel=1e-7)
    assert history.gap[-1] <= 1e-6
    a = np.asarray(found.state.coefficients)
    value = reference.primal(gram(X), y, a, float(model.bias), **given)
    assert value == pytest.approx(history.primal[-1], rel=1e-12)
    # Without weights it is the other one, of a budget of all.
    reached = solved(Euclidean(1.0), 2.0).history.dual[-1]
    assert reached == pytest.approx(optimum("l2", 60.0, 2.0)[1], rel=1e-7)


def test_norms_between_a_p_norm_and_the_largest_entry(double):
    X, y = training()
    # The sum binds alone, the sum and the ball, the ball alone.
    settings = [(1.5, 0.3), (20.0, 1.0), (60.0, 0.3)]
    for p, (budget, penalty) in zip(POWERS, settings, strict=True):
        found = solved(PInfinity(budget, p), penalty)
        history, a = found.history, np.asarray(found.state.coefficients)
        assert_within(a, y, budget, penalty, p, 1e-12)
        dual = optimum(p, budget, penalty)[1]
        assert history.dual[-1] == pytest.approx(dual, rel=1e-7)
        assert history.gap[-1] <= 1e-6
        given = {"budget": budget, "penalty": penalty, "norm": p}
        value = reference.primal(gram(X), y, a, float(found.model.bias), **given)
        assert value == pytest.approx(history.primal[-1], rel=1e-9)


def test_the_norm_between_the_euclidean_one_and_the_sum(double):
    X, y = training()
    # The ball binds alone, the ball and the largest entry, the largest entry alone.
    for budget, penalty, binds in [(1.0, 0.5, 0), (20.0, 0.2, 1), (60.0, 0.3, 2)]:
        found = solved(OneTwo(budget), penalty)
        history, a = found.history, np.asarray(found.state.coefficients)
        assert_within(a, y, budget, penalty, "one-two", 1e-12)
        assert (np.linalg.norm(a) > 0.999 * np.sqrt(budget) * penalty) == (binds < 2)
        assert (a.max() > 0.999 * penalty) == (binds > 0)
        dual = optimum("one-two", budget, penalty)[1]
        assert history.dual[-1] == pytest.approx(dual, rel=1e-7)
        assert history.gap[-1] <= 1e-6
        given = {"budget": budget, "penalty": penalty, "norm": "one-two"}
        value = reference.primal(gram(X), y, a, float(found.model.bias), **given)
        assert value == pytest.approx(history.primal[-1], rel=1e-9)
    # With a budget of all, it is the ordinary machine.
    assert dual == pytest.approx(optimum("l1", 60.0, 0.3)[1], rel=1e-7)


def test_the_1_2_norm_is_about_the_largest_entries_and_the_length_of_the_rest():
    """Section 6; of what it says, the norm is the smaller side."""
    v = np.sort(np.abs(vectors()["normal"]))[::-1]
    for budget in (1, 4, 17, N):
        parts = v[:budget].sum() + np.sqrt(budget) * np.linalg.norm(v[budget:])
        found = reference.one_two_value(v, budget)
        assert 0.5 * parts < found <= parts * (1 + 1e-12)
    assert reference.one_two_value(v, 1) == pytest.approx(np.linalg.norm(v))
    assert reference.one_two_value(v, N) == pytest.approx(v.sum())


@pytest.mark.parametrize("norm", NORMS)
def test_steps_reach_the_optimum(norm, double):
    _, y = training()
    for budget, penalty in SETTINGS[norm]:
        found = solved(NORMS[norm](budget), penalty)
        history, (_, dual) = found.history, optimum(norm, budget, penalty)
        assert_within(found.state.coefficients, y, budget, penalty, norm, 1e-12)
        assert np.all(history.primal >= history.dual * (1 - 1e-12))
        assert np.all(np.diff(history.dual) >= -1e-12 * dual)
        assert dual >= history.dual[-1] * (1 - 1e-9)
        assert history.dual[-1] == pytest.approx(dual, rel=1e-7)
        assert history.gap[-1] <= 1e-6
        check_model(found, budget, penalty, norm)


def check_model(found, budget, penalty, norm):
    """It has the primal value of the history, and the margins of the optimum."""
    X, y = training()
    shape = {"budget": budget, "penalty": penalty, "norm": norm}
    model, a = found.model, np.asarray(found.state.coefficients)
    assert len(model.vectors) == np.sum(a > 0)
    value = reference.primal(gram(X), y, a, float(model.bias), **shape)
    assert value == pytest.approx(found.history.primal[-1], rel=1e-12)
    assert prune(model, 3).vectors.shape == (3, D)
    # Where the sum binds alone.
    if (budget, penalty) != SETTINGS[norm][0]:
        return
    margins = y * np.asarray(model.decision_function(X))
    if norm == "l1":
        # Theorem 2: coefficients only where the margin is among the worst.
        free = margins[(a > 1e-6) & (a < penalty - 1e-6)]
        np.testing.assert_allclose(free, free[0], 0, 1e-4)
        assert np.all(a[margins > np.sort(margins)[int(budget) - 1] + 1e-4] < 1e-6)
    else:
        # Where the ball does not bind, all margins with a coefficient are the same.
        supporting = margins[a > 1e-6]
        np.testing.assert_allclose(supporting, supporting[0], 0, 1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_float32_closes_the_gap(norm):
    _, y = training(np.float32)
    budget, penalty = SETTINGS[norm][0]
    found = solved(NORMS[norm](budget), penalty, tolerance=1e-4, dtype=np.float32)
    state = found.state
    assert state.coefficients.dtype == np.float32
    assert_within(state.coefficients, y, budget, penalty, norm)
    assert found.history.gap[-1] <= 1e-4
    if norm == "l1":
        # Moves are whole multiples of a quantum.
        a = np.asarray(state.coefficients, np.float64)
        assert a @ y == 0


def test_all_examples_in_the_budget_make_an_ordinary_machine(double):
    X, y = training()
    penalty = 0.3
    peer = SVC(C=penalty, kernel="rbf", gamma=GAMMA, tol=1e-8).fit(X, y)
    a = peer.dual_coef_[0]
    a_all = np.zeros(N)
    a_all[peer.support_] = a
    dual = np.abs(a).sum() - a_all @ gram(X) @ a_all / 2
    found = solved(OneInfinity(N), penalty)
    assert found.history.dual[-1] == pytest.approx(dual, rel=1e-7)
    np.testing.assert_allclose(
        found.model.decision_function(X), peer.decision_function(X), 0, 1e-4
    )


@pytest.mark.parametrize("norm", NORMS)
def test_many_budgets_at_once(norm, double):
    data = bj.BudgetSVM(bj.RBF(GAMMA), NORMS[norm](2.0)).read(*training())

    @jax.jit
    def trained(budgets, data):
        def one(budget):
            solver = bj.BudgetSVM(bj.RBF(GAMMA), NORMS[norm](budget), 3 / budget)
            state = solver.init(data)
            return jax.lax.fori_loop(
                0, 30, lambda _, state: state.solver.step(state, data), state
            ).coefficients

        return jax.vmap(one)(budgets)

    budgets = [2.0, 11.0, 40.0]
    together = trained(jnp.asarray(budgets), data)
    for budget, row in zip(budgets, together, strict=True):
        alone = solved(NORMS[norm](budget), 3 / budget, tolerance=None, max_steps=30)
        np.testing.assert_allclose(row, alone.state.coefficients, 0, 1e-9)
    assert not np.allclose(together[0], together[2])


def test_rows_on_demand_change_nothing(double):
    caches = bj.KernelCache(None), bj.KernelCache(0.005)
    known, unknown = (
        solved(OneInfinity(5.0), 0.5, cache=cache, max_steps=20) for cache in caches
    )
    np.testing.assert_allclose(
        known.state.coefficients, unknown.state.coefficients, 0, 1e-10
    )
    assert known.history.work[-1] == N * N
    assert N < unknown.history.work[-1] <= 20 * 5 * N


def test_products_on_demand_are_counted(double):
    solver = bj.BudgetSVM(bj.RBF(GAMMA), TwoInfinity(5.0), 0.5)
    data = solver.read(*training())
    known, unknown = (solver.init(data, bj.KernelCache(size)) for size in (None, 0.005))
    found, expected = unknown.momentum.curvature, known.momentum.curvature
    assert float(found) == pytest.approx(float(expected), rel=1e-10)
    assert solver.work(known) == N * N
    assert solver.work(unknown) == POWER_ITERATIONS * N * N
    assert unknown.rows.kept.shape[0] < N == known.rows.kept.shape[0]


def test_the_norms_bound_the_largest_entries(double):
    """Theorem 1, of the norms and of those that they are compared to."""
    v = np.sort(np.abs(vectors()["normal"]))[::-1]
    # Both classes have the same slacks, so no bias is better than 0.
    both, y = np.repeat(v, 2), np.tile([1.0, -1.0], N)
    budgets = [1.0, 4.0, 17.0, N, 2.0 * N]

    def norms(name):
        given = jnp.asarray(both), jnp.asarray(y)
        least = jax.vmap(lambda budget: norm_of(name, budget).least(*given)[0])
        return np.asarray(jax.jit(least)(jnp.asarray(budgets)))

    for budget, value in zip(budgets, norms("l1"), strict=True):
        count = int(budget)
        for one in (value, reference.l1_value(both, count)):
            assert one == pytest.approx(both[:count].sum())
    for norm in ("l2", 1.5):
        p = reference.power(norm)
        for budget, value in zip(budgets, norms(norm), strict=True):
            count = int(budget)
            largest = np.linalg.norm(both[:count], p)
            for one in (value, reference.p_value(both, count, p)):
                assert one >= largest * (1 - 1e-9)
                assert one <= largest + budget ** (1 / p) * both[count - 1]
