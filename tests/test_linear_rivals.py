"""The solvers that the Margin Perceptron is compared with: dual coordinate descent,
and Pegasos; and what all linear solvers share in `solve`.
"""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from compare import same
from compiling import AS_USERS_COMPILE, need_large_loops, quick_to_compile
from reference import linear as reference
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax.datasets import load
from budgetjax.solvers import solver as driver
from budgetjax.solvers.linear import dcd, linear_pegasos, passes, patterns

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


def arguments(augment=0.0, **given):
    """Those of `init`, with rho as the reference has it: 0 for no bias."""
    return given | {"fit_bias": bool(augment > 0), "bias_scale": augment or 1.0}


def started(name, X, y, **given):
    return getattr(bj, name).init(X, y, **arguments(**given))


def run(name, X, y, **given):
    return bj.solve(getattr(bj, name), X, y, **{"tolerance": 1e-4} | arguments(**given))


def shown(form, X, y, state):
    """All patterns, as steps see them."""
    return patterns.prepare(state, FORMS[form](X), y)[0]


def of_state(weights):
    """The weights of a state as those of the reference, which always end with rho's."""
    return np.append(np.asarray(weights), np.zeros(4))[: D + 1]


@functools.cache
def optimum(data, penalty, loss="hinge", augment=0.0):
    return reference.optimum(*DATA[data](), penalty, loss, augment)


@functools.cache
def solved(name, data, **given):
    return run(name, *DATA[data](), **given)


def of_model(model, augment):
    """The weights that the objective is of."""
    weights, bias = (np.asarray(part, np.float64) for part in model)
    return np.append(weights, bias / augment if augment else 0)


def close(actual, expected, rtol=1e-10):
    """Equality relative to the largest number."""
    expected = np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * scale)


# Dual coordinate descent, update by update.


@functools.partial(jax.jit, static_argnums=0)
def one_step(name, state, everyone):
    return getattr(bj, name).step(state, everyone, None)


@functools.partial(jax.jit, static_argnums=0)
def objective(name, state, everyone):
    return getattr(bj, name).objective(state, everyone, None)


one_pass = jax.jit(dcd.one_pass)


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
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    state = started("dcd", FORMS[form](X), y, **given)
    everyone = shown(form, X, y, state)
    upper, diagonal = reference.dcd_constants(penalty, loss)
    assert float(state.upper) == upper
    assert float(state.ridge) == diagonal
    alpha, w = np.zeros(N), np.zeros(D + 1)
    left, bounds, tolerance = range(N), (math.inf, -math.inf), 0.1
    visited = returns = dropped = 0
    for _ in range(40):
        _, now = jax.random.split(state.key)
        order = passes.shuffled(now, state.order)
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
        assert not state.settled
        left = kept
    assert dropped > (N / 4 if penalty < 1 else 0)
    assert visited < 40 * N
    assert returns >= (2 if penalty < 1 else 0)


def test_projected_gradients_at_an_end_count_as_zero(double):
    """What would not move is no reason to think that the others agree with it."""
    X = np.array([[3.0, 0.0], [0.0, 0.1], [0.0, 1.0]])
    y = np.array([1, 1, -1])
    state = started("dcd", X, y, penalty=10.0)
    everyone = shown("dense", X, y, state)
    # Gradients of 0.5, at the lower end, and of 0.45, which is to be changed.
    coefficients, weights = np.array([0.0, 4.0, 0.0]), np.zeros(2)
    weights[:] = 0.5, 14.5
    state = state._replace(
        coefficients=jnp.asarray(coefficients),
        weights=jnp.asarray(weights),
        order=passes.Order(jnp.array([0, 1, 0], jnp.int32), jnp.int32(2)),
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
    state = one_pass(state, everyone)
    assert sorted(np.asarray(state.order.indices)[: int(state.order.number)]) == kept
    np.testing.assert_allclose(state.bounds, [-np.inf, most])


@pytest.mark.parametrize("name", SOME_CASES)
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_invariants(penalty, loss, name, double):
    """After every round; and what it says of its gap is what the reference says."""
    form, augment = case(name)
    X, y = noisy()
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    state = started("dcd", FORMS[form](X), y, **given)
    everyone, Z = shown(form, X, y, state), reference.patterns(X, y, augment)
    best = optimum("noisy", penalty, loss, augment).value
    np.testing.assert_allclose(state.problem.squares, np.sum(Z**2, axis=1), rtol=1e-12)
    before = 0.0
    for _ in range(20):
        state = one_pass(state, everyone)
        alpha = np.asarray(state.coefficients)
        assert np.all(alpha >= 0)
        assert np.all(alpha <= float(state.upper))
        close(of_state(state.weights), alpha @ Z, 1e-11)
        assert not np.any(np.asarray(state.weights)[D + bool(augment) :])
        found = objective("dcd", state, everyone)
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
    model = bj.dcd.model(state, everyone, None)
    np.testing.assert_allclose(model.weights, w[:D], rtol=1e-12)
    np.testing.assert_allclose(model.bias, augment * w[D], rtol=1e-12)


# Its optimum.


@pytest.mark.parametrize("augment", [0.0, 1.0], ids=["@dcd", "bias@dcd-bias"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("penalty", PENALTIES)
def test_the_optimum(penalty, data, loss, augment):
    given = {"penalty": penalty, "loss": loss, "augment": augment}
    found = solved("dcd", data, **given, tolerance=1e-8)
    best = optimum(data, penalty, loss, augment)
    assert found.converged
    history = found.history
    assert history.gap[-1] <= 1e-8
    np.testing.assert_allclose(history.primal[-1], best.value, rtol=1e-6)
    assert np.all(history.gap >= history.primal / best.value - 1 - 1e-9)
    assert np.all(history.primal >= best.value * (1 - 1e-9))
    np.testing.assert_allclose(history.primal[0], N * penalty, rtol=1e-12)
    assert history.gap[0] == np.inf
    # A step ends with the pass that makes the N-th visit, or when nothing changes.
    visits, steps = np.diff(history.work), np.diff(history.step)
    assert np.all(visits < 2 * N * steps)
    assert np.all(visits[:-1] >= N * steps[:-1])
    # What it says is what its model does.
    w = of_model(found.model, augment)
    value = reference.primal(*DATA[data](), w, penalty, loss, augment)
    np.testing.assert_allclose(history.primal[-1], value, rtol=1e-5)
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
    ours = solved("dcd", "noisy", **given, tolerance=1e-8).model
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

    found = run("dcd", given, y, loss=loss)
    primal, gap = found.history.primal[-1], found.history.gap[-1]
    np.testing.assert_allclose(primal, objective(best), rtol=1e-4)
    assert found.converged
    assert gap >= primal / objective(best) - 1 - 1e-9
    weights = np.asarray(found.model.weights, np.float64)
    np.testing.assert_allclose(primal, objective(weights), rtol=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("penalty", [1e-100, 1e-200])
def test_tiny_penalties(penalty, loss):
    """No figure underflows unnoticed: the bound is below the objective."""
    found = solved("dcd", "separable", penalty=penalty, loss=loss, tolerance=1e-6)
    assert found.converged
    assert found.history.gap[-1] <= 1e-6
    np.testing.assert_allclose(found.history.primal[-1], N * penalty, rtol=1e-12)


def test_dcd_settles(double):
    """A pass that changes nothing ends it: here every coefficient is at its end."""
    X, y = separable()
    state = started("dcd", X, y, penalty=1e-6)
    everyone = shown("dense", X, y, state)
    first = one_pass(state, everyone)
    np.testing.assert_array_equal(first.coefficients, np.full(N, 1e-6))
    assert not first.settled
    second = one_pass(first, everyone)
    assert second.settled
    np.testing.assert_array_equal(second.weights, first.weights)
    found = solved("dcd", "separable", penalty=1e-6, tolerance=1e-300)
    assert found.converged
    assert found.history.step[-1] <= 10
    assert found.history.gap[-1] < 1e-12


@pytest.mark.parametrize("form", FORMS)
def test_dcd_of_nothing(form):
    """Rows of zeros only: the zero model is the best."""
    for loss in LOSSES:
        X = FORMS[form](np.zeros((N, D)))
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
    "sparse-3": ("sparse", 3, 0.0, 0.2),
    "sparse-30-augmented": ("sparse", 30, 1.5, 1.0),
}


def weights_now(state):
    return of_state(state.weights / linear_pegasos._unit(state))


@pytest.mark.parametrize("name", PEGASOS)
def test_steps_of_pegasos_are_those_of_the_reference(name, double):
    form, k, augment, penalty = PEGASOS[name]
    X, y = noisy()
    given = {"penalty": penalty, "batch_size": k, "augment": augment}
    state = started("linear_pegasos", FORMS[form](X), y, **given)
    everyone = shown(form, X, y, state)
    Z = reference.patterns(X, y, augment)
    best = optimum("noisy", penalty, augment=augment).value
    blocks, draws = -(-N // k), np.zeros((0, k), int)
    for _ in range(3):
        key, drawn = linear_pegasos._draw(state)
        draws = np.vstack([draws, np.asarray(drawn).reshape(blocks, k)])
        state = one_step("linear_pegasos", state, everyone)
        same(state.key, key)
        w = reference.pegasos(X, y, 1 / (N * penalty), draws, augment=augment)
        close(weights_now(state), w)
        np.testing.assert_allclose(state.num_blocks, len(draws))
        # The coefficients are those of the weights.
        alpha = np.asarray(state.coefficients)
        assert np.all(alpha >= 0)
        close(of_state(state.weights), alpha @ Z, 1e-11)
        found = objective("linear_pegasos", state, everyone)
        value = reference.primal(X, y, weights_now(state), penalty, augment=augment)
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
    model = bj.linear_pegasos.model(state, everyone, None)
    w = weights_now(state)
    np.testing.assert_allclose(model.weights, w[:D], rtol=1e-12)
    np.testing.assert_allclose(model.bias, augment * w[D], rtol=1e-12)


def test_pegasos_approaches_the_optimum():
    """On data that are easy; and its bound on the gap is one."""
    found = solved("linear_pegasos", "separable", penalty=0.1, tolerance=1e-6)
    best = optimum("separable", 0.1).value
    history = found.history
    assert best * (1 - 1e-9) <= history.primal[-1] < 1.05 * best
    assert np.all(history.gap >= history.primal / best - 1 - 1e-9)
    assert history.primal[0] == 0.1 * N
    assert history.gap[0] == np.inf
    assert history.gap[-1] < 0.3
    assert not found.converged
    np.testing.assert_array_equal(history.step, np.arange(101))
    np.testing.assert_array_equal(history.work, N * np.arange(101))
    w = of_model(found.model, 0)
    value = reference.primal(*separable(), w, 0.1)
    np.testing.assert_allclose(history.primal[-1], value, rtol=1e-5)


def test_pegasos_stops_at_its_gap():
    """The first time that it is small enough."""
    found = solved("linear_pegasos", "separable", tolerance=0.3, max_steps=300)
    assert found.converged
    small = found.history.gap <= 0.3
    assert small[-1]
    assert not np.any(small[:-1])


# What both share.

PLAIN = {"dcd": {"loss": "hinge"}, "linear_pegasos": {"max_steps": 4}}


@pytest.mark.parametrize(
    ("name", "form", "augment"),
    [
        ("dcd", "dense", 0.0),
        ("dcd", "sparse", 1.0),
        ("linear_pegasos", "dense", 1.0),
    ],
)
def test_several_penalties_are_as_many_solutions(name, form, augment):
    X, y = noisy()
    X, penalties = FORMS[form](X), np.array([0.1, 1.0, 3.0])
    given = PLAIN[name] | {"augment": augment}
    many = run(name, X, y, penalty=penalties, **given)
    for i, (found, penalty) in enumerate(zip(many, penalties, strict=True)):
        one = run(name, X, y, penalty=float(penalty), **given)
        if i == 0 or name != "dcd":
            same(found.model, one.model)
            same(found.history, one.history)
        else:
            # From the solution before.
            assert found.converged
            assert found.history.dual[0] > one.history.dual[0]
            primal, optimum = found.history.primal[-1], one.history.dual[-1]
            assert optimum / 1.0001 <= primal <= 1.0002 * optimum


def test_numbers_that_overflow_are_named():
    X, y = noisy()
    with pytest.raises(ValueError, match=r"^mpu.init: counts must .* lower penalty"):
        run("mpu", X, y, penalty=1e308)


@pytest.mark.parametrize("name", LEARNERS)
def test_solutions(name, x64):
    """In double precision, whatever the caller's is, which stays; the model is not."""
    X, y = noisy()
    found = run(name, X, y, augment=1.0, **PLAIN[name])
    assert jax.config.read("jax_enable_x64") is x64
    assert found.state.weights.dtype == np.float64
    for leaf in found.model:
        assert leaf.dtype == (jnp.float64 if x64 else jnp.float32)
        assert not leaf.weak_type
    # The digits do not depend on the default either.
    other = solved(name, "noisy", augment=1.0, **PLAIN[name])
    same(found.history, other.history)


@pytest.mark.parametrize("name", LEARNERS)
def test_an_error_leaves_the_precision_alone(name, x64, as_installed):
    for given in ({"bias_scale": -1.0}, {"max_steps": -1}, {"tolerance": -1}):
        with pytest.raises(ValueError, match=r"bias_scale|max_steps|tolerance"):
            bj.solve(getattr(bj, name), *noisy(), **given)
        assert jax.config.read("jax_enable_x64") is x64


@pytest.mark.parametrize("name", LEARNERS)
def test_forms_of_the_same_patterns(name):
    X, y = noisy()
    expected = solved(name, "noisy", augment=1.0, **PLAIN[name])
    for form in (X.tolist(), SPARSE(X), scipy.sparse.coo_array(X)):
        found = run(name, form, y.astype(int), augment=1.0, **PLAIN[name])
        np.testing.assert_allclose(
            found.history.primal, expected.history.primal, rtol=1e-9
        )
        np.testing.assert_array_equal(found.history.work, expected.history.work)
        close(found.model.weights, expected.model.weights, 1e-6)


@pytest.mark.parametrize("name", LEARNERS)
def test_seeds_are_orders(name):
    given = PLAIN[name] | {"augment": 1.0}
    first, again = (run(name, *noisy(), seed=3, **given) for _ in "12")
    other = solved(name, "noisy", **given)
    same(first.history, again.history)
    same(first.model, again.model)
    assert first.history.primal[-1] != other.history.primal[-1]


@pytest.mark.parametrize("batch_size", [7, 30])
def test_steps_of_pegasos_draw_all_and_complete_a_block(batch_size):
    found = solved("linear_pegasos", "noisy", batch_size=batch_size, max_steps=3)
    assert not found.converged
    drawn = batch_size * -(-N // batch_size)
    np.testing.assert_array_equal(found.history.work, drawn * np.arange(4))
    counted = np.count_nonzero(found.state.coefficients)
    assert found.history.vectors[0] == 0 < found.history.vectors[-1] == counted
    assert np.all(np.isfinite(found.model.weights))


@pytest.mark.parametrize("name", LEARNERS)
def test_a_bar_shows_the_progress(name, capfd):
    pytest.importorskip("tqdm")
    given = PLAIN[name] | {"augment": 1.0}
    quiet = run(name, *noisy(), **given)
    assert capfd.readouterr() == ("", "")
    loud = run(name, *noisy(), **given, progress=True)
    out, err = capfd.readouterr()
    assert not out
    assert "solve" in err
    assert "gap" in err
    assert f"{loud.history.step[-1]}/" in err
    same(loud.history, quiet.history)


# Steps, compiled and many at once.

STARTS = {
    "dcd": {"penalty": 2.0, "augment": 1.0},
    "linear_pegasos": {"penalty": 2.0, "augment": 1.0},
}


@pytest.mark.parametrize(
    ("name", "form"),
    [("dcd", "dense"), ("dcd", "sparse"), ("linear_pegasos", "sparse")],
)
def test_functions_compiled_or_not(name, form, double):
    X, y = noisy()
    start = started(name, FORMS[form](X), y, **STARTS[name])
    everyone = shown(form, X, y, start)
    plain = getattr(bj, name).step(start, everyone, None)
    compiled = one_step(name, start, everyone)
    same(plain.key, compiled.key)
    keyless = (each._replace(key=None) for each in (plain, compiled))
    jax.tree.map(lambda *of: np.testing.assert_allclose(*of, rtol=1e-13), *keyless)
    for leaf in jax.tree.leaves(plain):
        assert not getattr(leaf, "weak_type", False)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("dcd", {"loss": "squared_hinge"}),
        ("linear_pegasos", {"batch_size": 7, "augment": 1.5}),
    ],
)
def test_many_penalties_by_vmap(name, given, double):
    X, y = noisy()
    penalties = [0.25, 1.0, 4.0]

    def init(penalty):
        return started(name, X, y, penalty=penalty, **given)

    everyone = shown("dense", X, y, init(1.0))

    def end(state):
        state = one_step(name, one_step(name, state, everyone), everyone)
        return state.weights, state.coefficients, objective(name, state, everyone)

    many = jax.vmap(end)(jax.vmap(init)(jnp.asarray(penalties)))
    for i, penalty in enumerate(penalties):
        alone = end(init(penalty))
        ours = jax.tree.map(lambda leaf, i=i: leaf[i], many)
        jax.tree.map(lambda a, b: close(a, b, 1e-11), ours, alone)


@pytest.mark.parametrize("name", LEARNERS)
def test_new_values_compile_nothing(name, double):
    X, y = noisy()
    programs = driver._advance_in_place, driver._reached
    run(name, X, y, augment=1.0, max_steps=2)
    compiled = [each._cache_size() for each in programs]
    table = [{"penalty": 7}, {"penalty": np.float32(0.1), "augment": 0.5}, {"seed": 3}]
    table += [{"loss": "squared_hinge"}] if name == "dcd" else []
    for given in table:
        run(name, X + 1, y, **{"augment": 2.0, "max_steps": 4} | given)
    assert [each._cache_size() for each in programs] == compiled


@pytest.mark.parametrize("name", LEARNERS)
def test_steps_in_float32(name):
    X, y = (part.astype(np.float32) for part in noisy())
    state = started(name, X, y, **STARTS[name])
    everyone = shown("dense", X, y, state)
    for _ in range(100):
        state = one_step(name, state, everyone)
    assert all(leaf.dtype != np.float64 for leaf in jax.tree.leaves(state))
    primal, dual = objective(name, state, everyone)
    best = optimum("noisy", 2.0, augment=1.0).value
    assert dual <= best * (1 + 1e-5)
    assert best * (1 - 1e-5) <= primal < 1.3 * best
    Z = reference.patterns(X, y, 1.0)
    alpha = np.asarray(state.coefficients, np.float64)
    close(of_state(state.weights), alpha @ Z, 1e-4)
    model = getattr(bj, name).model(state, everyone, None)
    value = reference.primal(X, y, of_model(model, 1.0), 2.0, augment=1.0)
    np.testing.assert_allclose(primal, value, rtol=1e-4)


# What is compiled.


def hoisted(program, *given):
    """Loops of a compiled program that are not calls of one kernel, and all loops."""
    if jax.default_backend() != "cpu":
        pytest.skip("of CPUs")
    text = jax.jit(program).lower(*given).compile(AS_USERS_COMPILE).as_text()
    loops = text.count(" while(")
    return loops - text.count('xla_cpu_small_call="true"'), loops


def wide(form, dtype):
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 41)).astype(dtype)
    return X, np.where(X[:, 0] > 0, 1, -1)


WIDE = [("dense", np.float32), ("dense", np.float64), ("sparse", np.float64)]


@pytest.mark.parametrize(
    ("form", "dtype", "weight"),
    [(*of, None) for of in WIDE] + [(*of, np.full(300, 2.0)) for of in WIDE[1:]],
)
def test_a_pass_of_dcd_is_one_kernel(form, dtype, weight, double):
    """Operation by operation it would take ten times as long; both losses share it."""
    need_large_loops(form)
    X, y = wide(form, dtype)
    given = {"weight": weight}
    states = [started("dcd", FORMS[form](X), y, loss=loss, **given) for loss in LOSSES]
    first, second = (
        jax.tree.map(lambda leaf: (leaf.shape, str(leaf.dtype)), state)
        for state in states
    )
    assert first == second
    everyone = shown(form, X, y, states[0])
    found, loops = hoisted(dcd.one_pass, states[0], everyone)
    assert found == 0
    assert loops > 3


@pytest.mark.parametrize(("form", "dtype"), WIDE)
@quick_to_compile(False)
def test_a_round_of_pegasos_is_a_kernel_a_loop(form, dtype, double):
    """But for the draws, which are made beforehand, and for the loop over blocks."""
    need_large_loops(form)
    X, y = wide(form, dtype)
    state = started("linear_pegasos", FORMS[form](X), y)
    draws, _ = hoisted(linear_pegasos._draw, state)
    everyone = shown(form, X, y, state)
    found, loops = hoisted(linear_pegasos.step, state, everyone, None)
    assert loops > draws + 4
    assert found <= draws + 1


# Bad input.

NAN, INF = math.nan, math.inf
X_, Y_ = separable()[0][:12], np.array([1, -1] * 6)


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
    # learners, the arguments, the message
    *(
        (LEARNERS, {"penalty": value}, f"penalty {POSITIVE}, got {value!r}")
        for value in (0, 0.0, -1.0, NAN, INF, "1", True)
    ),
    *(
        (LEARNERS, {"penalty": value}, "penalty must be in the range of float64, got ")
        for value in (1e-310, [1.0, 1e-310])
    ),
    *(
        (
            ("dcd",),
            {"loss": value},
            f"loss must be one of ('hinge', 'squared_hinge'), got {value!r}",
        )
        for value in ("logistic", "Hinge", "", None, 1, ["hinge"])
    ),
    (("linear_pegasos",), {"batch_size": 0}, "batch_size must be at least 1, got 0"),
    *(
        (
            ("linear_pegasos",),
            {"batch_size": value},
            f"batch_size must be an integer, got {value!r}",
        )
        for value in (1.5, True, "3", None)
    ),
    *(
        (LEARNERS, {"bias_scale": value}, f"bias_scale {POSITIVE}, got {value!r}")
        for value in (0, -1.0, NAN, INF, "x", None)
    ),
    (LEARNERS, {"fit_bias": None}, "fit_bias must be True or False, got None"),
    (
        LEARNERS,
        {"weight": np.ones(11)},
        "weight must have shape (12,), one number per row of X, got (11,)",
    ),
    (LEARNERS, {"seed": 1.5}, "seed must be an integer scalar, got 1.5"),
    (LEARNERS, {"seed": 2**40}, "seed must fit 32 bits, got 1099511627776"),
]


@pytest.mark.parametrize(("names", "given", "says"), BAD_ARGUMENTS)
def test_bad_arguments(names, given, says, as_installed):
    """A message that ends in a blank is one whose numbers do not matter."""
    for name in names:
        pattern = f"^{name}.init: {re.escape(says)}{'' if says.endswith(' ') else '$'}"
        with pytest.raises(ValueError, match=pattern) as raised:
            bj.solve(getattr(bj, name), X_, Y_, **given)
        assert raised.type is ValueError
