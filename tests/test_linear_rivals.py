"""The linear solvers that the Margin Perceptron is compared with."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import same
from compiling import need_large_loops, quick_to_compile
from marks import first_quick, slow
from reference import linear as reference
from sklearn.svm import LinearSVC
from solving import (
    FORMS,
    SPARSE,
    D,
    N,
    check_optimum,
    close,
    hoisted,
    noisy,
    objective,
    of_model,
    of_state,
    one_step,
    optimum,
    run,
    separable,
    solved,
    started,
    wide,
)

from budgetjax.datasets import load
from budgetjax.solvers import training_set
from budgetjax.solvers.linear import dcd, epochs

LOSSES = ("hinge", "squared_hinge")


# Dual coordinate descent, update by update.


one_pass = jax.jit(dcd.one_pass)


@pytest.mark.parametrize(
    ("penalty", "loss", "form", "augment"),
    [
        (0.3, "hinge", "dense", 0.0),
        (0.3, "squared_hinge", "dense", 1.5),
        (10.0, "hinge", "dense", 1.5),
        (10.0, "squared_hinge", "sparse", 0.0),
        (0.3, "hinge", "sparse", 1.5),
    ],
)
def test_passes_are_those_of_the_reference(penalty, loss, form, augment, double):
    """In the same orders: who is dropped, within which bounds, and when all return."""
    X, y = noisy()
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    state, data = started("dcd", form, X, y, **given)
    upper, diagonal = reference.dcd_constants(penalty, loss)
    assert float(state.upper) == upper
    assert float(state.ridge) == diagonal
    alpha, w = np.zeros(N), np.zeros(D + 1)
    left, bounds, tolerance = range(N), (math.inf, -math.inf), 0.1
    # So large that all return within these passes.
    assert tolerance > state.range
    state = state._replace(range=jnp.full((), tolerance))
    visited = returns = dropped = 0
    for _ in range(40):
        _, now = jax.random.split(state.key)
        order = epochs.shuffle(now, state.order)
        order = np.asarray(order.indices)[: int(order.number)].tolist()
        assert sorted(order) == sorted(left)
        state = one_pass(state, data)
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
        np.testing.assert_allclose(state.range, tolerance, rtol=1e-12)
        assert float(state.num_visits) == visited
        assert not state.is_stationary
        left = kept
    assert dropped > (N / 4 if penalty < 1 else 0)
    assert visited < 40 * N
    assert returns >= (2 if penalty < 1 else 0)


def test_projected_gradients_at_an_end_count_as_zero(double):
    """What would not move is no reason to think that the others agree with it."""
    X = np.array([[3.0, 0.0], [0.0, 0.1], [0.0, 1.0]])
    y = np.array([1, 1, -1])
    state, data = started("dcd", "dense", X, y, penalty=10.0)
    # Gradients of 0.5, at the lower end, and of 0.45, which is to be changed.
    coefficients, weights = np.array([0.0, 4.0, 0.0]), np.zeros(2)
    weights[:] = 0.5, 14.5
    state = state._replace(
        coefficients=jnp.asarray(coefficients),
        weights=jnp.asarray(weights),
        order=epochs.Order(jnp.array([0, 1, 0], jnp.int32), jnp.int32(2)),
    )
    kept, most, least = reference.dcd_pass(
        X,
        y,
        coefficients,
        np.append(weights, 0.0),
        [0, 1],
        upper=10.0,
        diagonal=0.0,
    )
    assert least == 0
    np.testing.assert_allclose(most, 0.45)
    state = one_pass(state, data)
    assert sorted(np.asarray(state.order.indices)[: int(state.order.number)]) == kept
    np.testing.assert_allclose(state.bounds, [-np.inf, most])


@pytest.mark.parametrize(
    ("penalty", "loss", "form", "augment"),
    [
        (0.01, "hinge", "sparse", 1.5),
        (1.0, "squared_hinge", "sparse", 1.5),
        (1.0, "hinge", "dense", 0.0),
        (30.0, "squared_hinge", "dense", 0.0),
    ],
)
def test_invariants(penalty, loss, form, augment, double):
    """After every round; and what it says of its gap is what the reference says."""
    X, y = noisy()
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    state, data = started("dcd", form, X, y, **given)
    Z = reference.patterns(X, y, augment)
    best = optimum("noisy", penalty, loss, augment).value
    np.testing.assert_allclose(data.squares, np.sum(Z**2, axis=1), rtol=1e-12)
    before = 0.0
    for _ in range(20):
        state = one_pass(state, data)
        alpha = np.asarray(state.coefficients)
        assert np.all(alpha >= 0)
        assert np.all(alpha <= float(state.upper))
        close(of_state(state.weights), alpha @ Z, 1e-11)
        assert not np.any(np.asarray(state.weights)[D + bool(augment) :])
        found = objective(state, data)
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
    model = state.solver.model(state, data)
    np.testing.assert_allclose(model.weights, w[:D], rtol=1e-12)
    np.testing.assert_allclose(model.bias, augment * w[D], rtol=1e-12)


# Its optimum.


# Penalties, data, losses and rho: any two of their values, once.
OPTIMA = [
    (0.01, "noisy", "hinge", 0.0),
    (0.01, "noisy", "squared_hinge", 1.0),
    (0.01, "separable", "hinge", 1.0),
    (1.0, "noisy", "hinge", 1.0),
    (1.0, "noisy", "squared_hinge", 0.0),
    (1.0, "separable", "squared_hinge", 0.0),
    (30.0, "noisy", "hinge", 0.0),
    (30.0, "noisy", "squared_hinge", 1.0),
    (30.0, "separable", "hinge", 1.0),
]


@pytest.mark.parametrize(("penalty", "data", "loss", "augment"), first_quick(OPTIMA))
def test_the_optimum(penalty, data, loss, augment):
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    found = solved("dcd", data, **given, tolerance=1e-8)
    check_optimum(found, data, **given)
    history, best = found.history, optimum(data, penalty, loss, augment)
    assert found.converged
    assert history.gap[-1] <= 1e-8
    np.testing.assert_allclose(history.primal[-1], best.value, rtol=1e-6)
    # A step ends with the pass that makes the N-th visit, or when nothing changes.
    visits, steps = np.diff(history.work), np.diff(history.step)
    assert np.all(visits < 2 * N * steps)
    assert np.all(visits[:-1] >= N * steps[:-1])
    # |w - w*|^2 / 2 is at most the gap.
    w = of_model(found.model, augment)
    far = np.sum((w - best.w) ** 2) / 2
    assert far <= 1.1e-8 * best.value + 1e-10 * (w @ w)
    if data == "noisy":
        check_liblinear(found.model, penalty, loss, augment)


def check_liblinear(ours, penalty, loss, augment):
    """Its intercept is a constant feature of 1, whose weight is in the norm."""
    given = {"C": penalty, "loss": loss, "tol": 1e-8, "max_iter": 10**6, "dual": True}
    given |= {"fit_intercept": bool(augment), "random_state": 0}
    X, y = noisy()
    theirs = LinearSVC(**given).fit(X, y)
    bias = theirs.intercept_ if augment else 0
    np.testing.assert_allclose(ours.weights, theirs.coef_[0], atol=1e-3)
    np.testing.assert_allclose(ours.bias, bias, atol=1e-3)
    np.testing.assert_allclose(
        ours.decision_function(X), theirs.decision_function(X), atol=3e-3
    )


@pytest.mark.parametrize(
    ("solver", "loss", "name"),
    [
        ("mpu", "hinge", "a9a"),
        *slow(
            ("mpu", "hinge", "ijcnn1"),
            ("dcd", "hinge", "w8a"),
            ("dcd", "squared_hinge", "ijcnn1"),
        ),
    ],
)
def test_the_objective_of_liblinear(solver, loss, name):
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

    found = run(solver, given, y, loss=loss)
    primal, gap = found.history.primal[-1], found.history.gap[-1]
    np.testing.assert_allclose(primal, objective(best), rtol=1e-4)
    assert found.converged
    assert gap >= primal / objective(best) - 1 - 1e-9
    weights = np.asarray(found.model.weights, np.float64)
    np.testing.assert_allclose(primal, objective(weights), rtol=1e-6)
    decided = found.model.predict(given) == (X @ best.astype(np.float32) > 0) * 2 - 1
    assert np.mean(decided) > 0.995


@pytest.mark.parametrize(
    ("penalty", "loss"), [(1e-100, "squared_hinge"), (1e-200, "hinge")]
)
def test_tiny_penalties(penalty, loss):
    """No figure underflows unnoticed: the bound is below the objective."""
    found = solved("dcd", "separable", penalty=penalty, loss=loss, tolerance=1e-6)
    assert found.converged
    assert found.history.gap[-1] <= 1e-6
    np.testing.assert_allclose(found.history.primal[-1], N * penalty, rtol=1e-12)


def test_dcd_settles(double):
    """A pass that changes nothing ends it: here every coefficient is at its end."""
    X, y = separable()
    state, data = started("dcd", "dense", X, y, penalty=1e-6)
    first = one_pass(state, data)
    np.testing.assert_array_equal(first.coefficients, np.full(N, 1e-6))
    assert not first.is_stationary
    second = one_pass(first, data)
    assert second.is_stationary
    np.testing.assert_array_equal(second.weights, first.weights)
    found = solved("dcd", "separable", penalty=1e-6, tolerance=1e-300)
    assert found.converged
    assert found.history.step[-1] <= 10
    assert found.history.gap[-1] < 1e-12


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_dcd_of_nothing(form):
    """Rows of zeros only: the zero model is the best."""
    for loss in LOSSES:
        X = FORMS[form][0](np.zeros((N, D)))
        found = run("dcd", X, noisy()[1], loss=loss)
        assert found.converged
        assert found.history.primal[-1] == N
        assert found.history.gap[-1] < 1e-12
        assert not np.any(found.model.weights)


# Pegasos, update by update.

PEGASOS = {
    # the form, the size of blocks, rho, the penalty
    "1": ("dense", 1, 0.0, 1.0),
    "7-augmented": ("dense", 7, 1.5, 1.0),
    "sparse-30-augmented": ("sparse", 30, 1.5, 0.2),
}


def weights_now(state, data):
    return of_state(state.weights / state.solver._unit(state, data))


@pytest.mark.parametrize("name", PEGASOS)
def test_steps_of_pegasos_are_those_of_the_reference(name, double):
    form, k, augment, penalty = PEGASOS[name]
    X, y = noisy()
    given = {"penalty": penalty, "batch_size": k, "augment": augment}
    state, data = started("linear_pegasos", form, X, y, **given)
    Z = reference.patterns(X, y, augment)
    best = optimum("noisy", penalty, augment=augment).value
    blocks, draws = -(-N // k), np.zeros((0, k), int)
    for _ in range(3):
        key, draw = jax.random.split(state.key)
        drawn = training_set.draw_examples(draw, (blocks * k,), N, None)
        draws = np.vstack([draws, np.asarray(drawn).reshape(blocks, k)])
        state = one_step(state, data)
        same(state.key, key)
        w = reference.pegasos(X, y, 1 / (N * penalty), draws, augment=augment)
        close(weights_now(state, data), w)
        np.testing.assert_allclose(state.num_blocks, len(draws))
        # The coefficients are those of the weights.
        alpha = np.asarray(state.coefficients)
        assert np.all(alpha >= 0)
        close(of_state(state.weights), alpha @ Z, 1e-11)
        found = objective(state, data)
        value = reference.primal(
            X, y, weights_now(state, data), penalty, augment=augment
        )
        np.testing.assert_allclose(found.primal, value, rtol=1e-10)
        assert 0 < found.dual <= best * (1 + 1e-9)
        assert found.primal >= best * (1 - 1e-9)
        # Some multiple of the coefficients has this value.
        most = penalty / np.max(alpha)
        values = [
            reference.dual(X, y, part * most * alpha, penalty, augment=augment)
            for part in np.linspace(0, 1, 1001)
        ]
        np.testing.assert_allclose(found.dual, max(values), rtol=1e-3)
        assert found.dual >= max(values) * (1 - 1e-12)
    assert np.min(draws) == 0
    assert np.max(draws) == N - 1
    model = state.solver.model(state, data)
    w = weights_now(state, data)
    np.testing.assert_allclose(model.weights, w[:D], rtol=1e-12)
    np.testing.assert_allclose(model.bias, augment * w[D], rtol=1e-12)


def test_pegasos_approaches_the_optimum():
    """On data that are easy; and its bound on the gap is one."""
    found = solved("linear_pegasos", "separable", penalty=0.1, tolerance=1e-6)
    check_optimum(found, "separable", 0.1)
    history = found.history
    assert history.primal[-1] < 1.05 * optimum("separable", 0.1).value
    assert history.gap[-1] < 0.3
    assert not found.converged
    np.testing.assert_array_equal(history.step, np.arange(101))
    np.testing.assert_array_equal(history.work, N * np.arange(101))


def test_steps_of_pegasos_draw_all_and_complete_a_block():
    found = solved("linear_pegasos", "noisy", batch_size=7, max_steps=3)
    assert not found.converged
    np.testing.assert_array_equal(found.history.work, 63 * np.arange(4))
    counted = np.count_nonzero(found.state.coefficients)
    assert found.history.vectors[0] == 0 < found.history.vectors[-1] == counted
    assert np.all(np.isfinite(found.model.weights))


# What is compiled.


@pytest.mark.parametrize(
    ("form", "dtype", "weight"),
    [
        ("dense", np.float32, np.full(300, 2.0)),
        ("dense", np.float64, None),
        ("sparse", np.float64, np.full(300, 2.0)),
    ],
)
@quick_to_compile(False)
def test_a_pass_of_dcd_is_one_kernel(form, dtype, weight, double):
    """Operation by operation it would take ten times as long."""
    need_large_loops(form)
    _, X, y = wide(form, dtype)
    for loss in LOSSES:
        state, data = started("dcd", form, X, y, weight, loss=loss)
        others, loops = hoisted(dcd.one_pass, state, data)
        assert others == 0
        assert loops > 3


@pytest.mark.parametrize(
    ("form", "dtype"), [("dense", np.float32), ("sparse", np.float64)]
)
@quick_to_compile(False)
def test_a_round_of_pegasos_is_a_kernel_a_loop(form, dtype, double):
    """But for the draws, which are made beforehand, and for the loop over blocks."""
    need_large_loops(form)
    _, X, y = wide(form, dtype)
    state, data = started("linear_pegasos", form, X, y)
    draws, _ = hoisted(
        lambda key: training_set.draw_examples(key, (300,), 300, None), state.key
    )
    others, loops = hoisted(one_step, state, data)
    assert loops > draws + 4
    assert others <= draws + 1


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_a_start_from_another_penalty_is_the_best_multiple(loss, double):
    X, y = noisy()
    given = {"loss": loss, "augment": 1.0}
    before = run("dcd", X, y, penalty=1.0, max_steps=30, **given).state
    for penalty in (0.5, 20.0):
        start, data = started("dcd", "dense", X, y, penalty=penalty, **given)
        warm = start.solver.resume(data, before)
        assert np.all((warm.coefficients >= 0) & (warm.coefficients <= warm.upper))

        @jax.jit
        def dual(times, warm=warm, data=data):
            weights = times * warm.weights
            scaled = warm._replace(
                weights=weights, coefficients=times * warm.coefficients
            )
            return scaled.solver.objective(scaled, data).dual

        assert dual(1.0) > dual(0.0) == 0
        assert dual(1.0) > dual(0.99)
        times = np.max(warm.coefficients) / np.max(before.coefficients)
        # Up to the ratio of penalties, beyond which the coefficients have no room.
        if penalty < 1:
            np.testing.assert_allclose(times, penalty)
        else:
            assert times < 0.9 * penalty
            assert dual(1.0) > dual(1.01)
