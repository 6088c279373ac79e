"""The Margin Perceptron with Unlearning, on dense rows, sparse rows and kernels."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from compiling import need_large_loops, quick_to_compile
from marks import slow
from reference import kernels
from reference import linear as reference
from solving import (
    DATA,
    GAMMA,
    SPARSE,
    D,
    N,
    check_optimum,
    hoisted,
    noisy,
    objective,
    one_step,
    optimum,
    run,
    separable,
    solved,
    started,
    whole,
    wide,
)

import budgetjax as bj
from budgetjax.solvers.linear import epochs, mpu, patterns, rows

REFERENCE_KERNELS = {"linear": kernels.linear(), "rbf": kernels.rbf(GAMMA)}


class Counting:
    """A count of presentations, for a reference."""

    seen = 0

    def response(self, k):
        self.seen += 1
        return super().response(k)


class CountingMPU(Counting, reference.MPU):
    pass


class CountingKernelMPU(Counting, reference.KernelMPU):
    pass


def reference_of(form, X, y, state, augment):
    """With the thresholds of a state."""
    most = float(state.max_count)
    given = {
        "threshold": float(state.threshold),
        "gap": float(state.gap),
        "cap": int(most) if math.isfinite(most) else most,
        "augment": augment,
    }
    if form in REFERENCE_KERNELS:
        k = REFERENCE_KERNELS[form]
        return CountingKernelMPU(np.array([k(x, X) for x in X]), y, **given)
    return CountingMPU(X, y, **given)


def weights_of(form, learner, size):
    """What the reference's weights are in a state."""
    if form in REFERENCE_KERNELS:
        return np.array([learner.response(k) for k in range(N)])
    # A state has no weight of a constant 0.
    return learner.a[:size]


# Update by update.

# How patterns are given, what of, and the arguments.
CASES = {
    "dense": ("dense", "whole", {}),
    "dense-augmented": ("dense", "whole", {"augment": 2.0, "penalty": 0.25}),
    "dense-coarse": ("dense", "whole", {"penalty": 10.0, "tolerance": 9.0}),
    "dense-hard": ("dense", "whole-separable", {"hard_margin": True}),
    "sparse": ("sparse", "whole", {}),
    "sparse-hard-augmented": (
        "sparse",
        "whole-separable",
        {"hard_margin": True, "augment": 1.0},
    ),
    "linear": ("linear", "whole", {}),
    "rbf-augmented": ("rbf", "noisy", {"augment": 1.0, "penalty": 4.0}),
}


def case(name, **more):
    form, data, given = CASES[name]
    X, y = DATA[data]()
    state, data = started("mpu", form, X, y, **{"tolerance": 0.3} | given | more)
    learner = reference_of(form, X, y, state, given.get("augment", 0.0))
    return form, state, data, learner


def one_round(state, data, learner):
    """The next state, and whether the reference, in the same order, has updated."""
    _, now = jax.random.split(state.key)
    order = epochs.shuffle(now, epochs.natural_order(N)).indices
    updated = learner.cycle(np.asarray(order).tolist())
    return one_step(state, data), updated


def settled(state, data):
    """The state at which a pass changes nothing."""
    while not state.is_stationary:
        state = one_step(state, data)
    return state


@pytest.mark.parametrize("name", CASES)
def test_rounds_are_those_of_the_reference(name, double):
    """Everything, then the two active sets, in the same orders, until nothing moves."""
    form, state, data, learner = case(name)
    visited = 0
    for turn in range(1, 200):  # noqa: B007
        before = learner.seen
        state, updated = one_round(state, data, learner)
        # Without a change there is no need to look at the active sets.
        visited += learner.seen - before if updated else N
        np.testing.assert_array_equal(state.counts, learner.I)
        np.testing.assert_array_equal(state.tally, [learner.t_plus, learner.t_minus])
        expected = weights_of(form, learner, state.weights.size)
        np.testing.assert_allclose(state.weights, expected, rtol=1e-12, atol=1e-9)
        assert float(state.num_visits) == visited
        assert bool(state.is_stationary) == (not updated)
        if not updated:
            break
    assert not updated
    assert turn > 2
    assert visited > turn * N
    assert learner.t_minus > 0, "nothing was unlearned"


@pytest.mark.parametrize(
    ("penalty", "tolerance", "hard_margin", "augment"),
    [
        (1.0, 1e-4, False, 1.5),
        (1.0, 1e-4, True, 0.0),
        (0.03, 3.0, True, 1.5),
        (0.03, 3.0, False, 0.0),
    ],
)
def test_thresholds(penalty, tolerance, hard_margin, augment, double):
    """Those of the paper for an accuracy of a tenth of the tolerance."""
    X, y = separable()
    given = {"penalty": penalty, "augment": augment, "hard_margin": hard_margin}
    state, data = started("mpu", "dense", X, y, tolerance=tolerance, **given)
    expected = reference.mpu_parameters(X, accuracy=tolerance / 10, **given)
    found = state.threshold, state.gap, state.max_count
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert isinstance(data.X, rows.DenseRows)


# What holds at all times.


def check_invariants(state, Z):
    counts = np.asarray(state.counts)
    up, down = np.asarray(state.tally)
    assert np.all(counts >= 0)
    assert np.all(counts <= float(state.max_count))
    np.testing.assert_array_equal(counts, np.floor(counts))
    assert up - down == np.sum(counts)
    assert up > down
    summed = counts @ Z
    size = min(len(summed), state.weights.size)
    scale = np.max(np.abs(summed))
    np.testing.assert_allclose(
        state.weights[:size], summed[:size], rtol=0, atol=1e-11 * scale
    )
    assert not np.any(state.weights[size:])


@pytest.mark.parametrize(
    ("penalty", "data", "form"),
    [
        (0.01, "noisy", "sparse"),
        (1.0, "separable", "dense"),
        (30.0, "noisy", "dense"),
        (30.0, "separable", "sparse"),
    ],
)
def test_invariants(penalty, data, form, double):
    """After every round; and the gap, too, is what the reference says."""
    X, y = DATA[data]()
    state, held = started("mpu", form, X, y, penalty=penalty, tolerance=1e-3)
    Z, best = reference.patterns(X, y), optimum(data, penalty).value
    for turn in range(12):
        state = one_step(state, held)
        check_invariants(state, Z)
        if turn % 4 == 0:
            learner = reference_of(form, X, y, state, 0.0)
            learner.I, learner.a = np.asarray(state.counts), state.counts @ Z
            expected = learner.objectives()
            found = objective(state, held)
            np.testing.assert_allclose(found.primal, expected.primal, rtol=1e-11)
            np.testing.assert_allclose(found.dual, expected.dual, rtol=1e-11)
            assert expected.dual <= best * (1 + 1e-9) <= expected.primal * (1 + 2e-9)


@pytest.mark.parametrize(
    ("penalty", "data", "augment"),
    [
        (0.01, "noisy", 1.0),
        *slow(
            (0.01, "separable", 0.0),
            (1.0, "noisy", 0.0),
            (1.0, "separable", 1.0),
            (30.0, "noisy", 1.0),
            (30.0, "separable", 0.0),
        ),
    ],
)
def test_the_optimum(penalty, data, augment):
    found = solved("mpu", data, penalty=penalty, augment=augment, tolerance=1e-6)
    check_optimum(found, data, penalty, augment=augment)
    history, best = found.history, optimum(data, penalty, augment=augment).value
    assert found.converged
    assert history.gap[-1] <= 1e-6
    np.testing.assert_allclose(history.primal[-1], best, rtol=1.1e-6)
    np.testing.assert_array_equal(history.step, np.arange(len(history[0])))
    assert np.all(np.diff(history.work) >= N)


def test_a_tolerance_is_reached_without_looking_at_the_gap(double):
    """When a pass changes nothing, the objective is as near as the paper says."""
    X, y = noisy()
    for tolerance in (5, 0.5, 1e-2):
        state, data = started("mpu", "dense", X, y, tolerance=tolerance)
        state = settled(state, data)
        primal, dual = objective(state, data)
        assert primal / dual - 1 > 1e-12
        best = optimum("noisy", 1.0).value
        assert primal < (1 + tolerance / 10) * best
        # Theorem 2, equation (22).
        most = bj.bounds.mpu_soft_margin(
            N,
            max_count=float(state.max_count),
            gap=float(state.gap),
            **problem_of(state, data),
        )
        assert float(jnp.sum(state.tally)) <= most


# Hard margins.


def direction():
    """The direction of the largest margin."""
    Z = reference.patterns(*separable())
    points = list(reference.interior_points(Z @ Z.T, math.inf))
    found = [alpha @ Z for alpha in points]
    w = max(found, key=lambda w: min(Z @ w) / math.sqrt(w @ w))
    return w[:D] / math.sqrt(w @ w)


def test_hard_margins_approach_the_largest(double):
    """The higher the threshold, the nearer, in margin and direction."""
    X, y = separable()
    most = reference.maximum_margin(X, y)
    best = direction()
    angles, fractions = [], []
    for accuracy in (0.3, 0.03, 0.003):
        given = {"hard_margin": True, "tolerance": 10 * accuracy}
        state, data = started("mpu", "dense", X, y, **given)
        state = settled(state, data)
        primal, dual = objective(state, data)
        model = state.solver.model(state, data)
        weights = np.asarray(model.weights, np.float64)
        norm = math.sqrt(weights @ weights)
        fraction = np.min(y * (X @ weights)) / norm / most
        bound = math.sqrt(dual / primal)
        assert 1 / (1 + accuracy) <= bound + 1e-6
        assert bound <= fraction + 1e-6 <= 1 + 2e-6
        fractions.append(fraction)
        angles.append(math.acos(min(1.0, weights @ best / norm)))
        value = 0.5 / (fraction * most) ** 2
        np.testing.assert_allclose(primal, value, rtol=1e-5)
        np.testing.assert_array_equal(model.predict(X), y)
        check_updates_of_a_hard_margin(state, data, most)
    assert fractions == sorted(fractions)
    assert angles == sorted(angles, reverse=True)
    assert fractions[-1] > 0.997
    assert angles[-1] < angles[0] / 3


def test_without_unlearning_half_the_largest_margin_is_certain(double):
    """Remark 1: an endless gap, the Perceptron with margin, then a high threshold."""
    X, y = separable()
    most = reference.maximum_margin(X, y)
    for height in (0.5, 5.0, 500.0):
        largest = np.max(np.sum(X**2, axis=1))
        given = {"gap": np.inf, "threshold": height * largest}
        state, data = started("mpu", "dense", X, y, hard_margin=True, **given)
        state = settled(state, data)
        learned, unlearned = state.tally
        assert unlearned == 0 < learned
        # What is left of (15), and the margin that (11) then promises.
        assert learned <= (1 + 2 * height) * float(largest) / most**2
        weights = np.asarray(state.weights)
        fraction = np.min(y * (X @ weights)) / math.sqrt(weights @ weights) / most
        assert 1 / (2 + 1 / height) < fraction < 1


@pytest.mark.parametrize("more", [{}, {"hard_margin": True}])
def test_the_inputs_of_the_paper_in_place_of_a_tolerance(more, double):
    X, y = separable()
    usual, _ = started("mpu", "dense", X, y, tolerance=1e-2, **more)
    given = {"gap": usual.gap, "threshold": usual.threshold}
    state, _ = started("mpu", "dense", X, y, **given, **more)
    for name in ("gap", "threshold", "max_count"):
        np.testing.assert_allclose(getattr(state, name), getattr(usual, name))
    # I_max is an integer, and C is I_max / b.
    if not more:
        state, _ = started("mpu", "dense", X, y, penalty=2.0, threshold=100.3)
        assert (state.max_count, state.threshold) == (201, 100.5)


def problem_of(state, data):
    """What the bounds on updates need of a problem."""
    radius = float(np.sqrt(np.max(data.squares)))
    return {"radius": radius, "threshold": float(state.threshold)}


def check_updates_of_a_hard_margin(state, data, most):
    """Equations (10), (16) and (17), and Remark 2, of the largest margin `most`."""
    b, gap = float(state.threshold), float(state.gap)
    learned, unlearned = (float(count) for count in state.tally)
    net = bj.bounds.mpu_net_updates(most, **problem_of(state, data))
    whole = bj.bounds.mpu_hard_margin(most, gap=gap, **problem_of(state, data))
    assert learned - unlearned <= net
    # Equation (16) is half of what (10) has more than (17).
    assert unlearned <= (whole - net) / 2
    assert learned + unlearned <= whole
    net = (learned - unlearned) / (b / most**2)
    assert 1 / (1 + gap / b) < net < 1 + gap / b


def test_the_bound_on_a_hard_margin_is_that_of_the_paper(double):
    _, state, data, learner = case("dense-hard")
    for _ in range(5):
        state, _ = one_round(state, data, learner)
    found = objective(state, data)
    assert learner.margin() > 0
    bound = math.sqrt(found.dual / found.primal)
    np.testing.assert_allclose(bound, learner.fraction(), rtol=1e-12)
    np.testing.assert_allclose(found.primal, 0.5 / learner.margin() ** 2, rtol=1e-12)


def test_the_squared_hinge_is_a_hard_margin_with_a_feature_per_pattern(double):
    """The map of the introduction, update by update; and the optimum, by `dcd`."""
    X, y = whole()
    given = {"penalty": 0.5, "loss": "squared_hinge"}
    state, data = started("mpu", "dense", X, y, tolerance=0.3, **given)
    wide = np.hstack([X, np.eye(N)])
    learner = reference_of("dense", wide, y, state, 0.0)
    for _ in range(20):
        state, _ = one_round(state, data, learner)
        np.testing.assert_array_equal(state.counts, learner.I)
    X, y = noisy()
    ours, theirs = (run(name, X, y, augment=1.0, **given) for name in ("mpu", "dcd"))
    assert ours.converged
    assert ours.history.primal[-1] == pytest.approx(theirs.history.primal[-1], rel=2e-4)
    margins = y * np.asarray(ours.model.decision_function(X))
    weights = np.append(ours.model.weights, ours.model.bias)
    J = weights @ weights / 2 + 0.5 * np.sum(np.maximum(0, 1 - margins) ** 2)
    assert ours.history.primal[-1] == pytest.approx(J, rel=1e-5)


def test_active_sets_are_as_large_and_as_often_shown_as_asked_for(double):
    """Without them a step shows every pattern once."""
    X, y = noisy()
    visits = {}
    for name, given in {
        "none": {"first_rounds": 0},
        "one": {"first_rounds": 1, "second_rounds": 0},
        "wide": {"first_rounds": 1, "second_rounds": 0, "near": 1e6},
        "usual": {},
    }.items():
        state = one_step(*started("mpu", "dense", X, y, **given))
        visits[name] = float(state.num_visits)
    assert visits["none"] == N
    assert visits["none"] < visits["one"] < visits["wide"] == 2 * N
    assert visits["usual"] > visits["one"]


def test_what_nothing_separates_ends_all_the_same():
    X, y = noisy()
    found = run("mpu", X, y, hard_margin=True, augment=1.0, max_steps=20)
    assert not found.converged
    assert found.history.step[-1] == 20
    assert found.history.primal[-1] == found.history.gap[-1] == np.inf
    assert np.all(np.isfinite(found.model.weights))


# Patterns, and starts.


def test_patterns_stay_in_their_type(double):
    X, y = noisy()
    for values in (X.astype(np.float32), X):
        _, data = started("mpu", "dense", values, y, augment=1.0)
        assert data.X.values.dtype == values.dtype
        expected = reference.patterns(values, y, 1.0)
        np.testing.assert_array_equal(data.X.values, expected)


def test_starts_from_another_penalty_are_states(double):
    """The counts are whole, within their limit, and those of the weights."""
    X, y = whole()
    Z = reference.patterns(X, y, 1.0)
    for given in ({}, {"loss": "squared_hinge"}, {"hard_margin": True}):
        given = given | {"augment": 1.0, "tolerance": 1e-3}
        state = run("mpu", X, y, **given, max_steps=5).state
        for more in ({"penalty": 0.25}, {"penalty": 4.0}, {"tolerance": 1e-2}):
            start, data = started("mpu", "dense", X, y, **given | more)
            warm = start.solver.resume(data, state)
            assert warm.threshold == start.threshold
            check_invariants(warm, Z)
            before, now = (objective(one, data) for one in (start, warm))
            assert now.dual > before.dual
    X, y = DATA["whole-separable"]()
    one = run("mpu", X, y, hard_margin=True)
    two = run("mpu", X, y, hard_margin=True, penalty=2.0, start=one.state)
    assert one.converged
    assert two.history.primal[-1] == one.history.primal[-1]


# Orders and passes.


def test_shuffled_orders():
    indices = np.random.default_rng(0).permutation(N).astype(np.int32)
    found = []
    for number in (0, 1, 2, 17, N):
        order = epochs.Order(jnp.asarray(indices), jnp.int32(number))
        for seed in (0, 1):
            new = epochs.shuffle(jax.random.key(seed), order)
            assert int(new.number) == number
            assert new.indices.dtype == jnp.int32
            part = np.asarray(new.indices)[:number]
            np.testing.assert_array_equal(np.sort(part), np.sort(indices[:number]))
            found.append(part.tolist())
    assert found[-1] != found[-2]
    assert found[-3] != found[-4]
    assert found[-1] != indices.tolist()


def test_many_patterns_are_shuffled_in_runs():
    n = 5003
    order = epochs.Order(jnp.arange(n, dtype=jnp.int32), jnp.int32(n - 2))
    one, other = (
        np.asarray(epochs.shuffle(jax.random.key(seed), order).indices)[: n - 2]
        for seed in (0, 1)
    )
    assert not np.array_equal(one, other)
    for found in (one, other):
        np.testing.assert_array_equal(np.sort(found), np.arange(n - 2))
        runs = found[: (n - 2) // 16 * 16].reshape(-1, 16)
        firsts = np.min(runs, axis=1)
        np.testing.assert_array_equal(firsts % 16, 0)
        within = runs - firsts[:, None]
        np.testing.assert_array_equal(within ^ within[:, :1], [range(16)] * len(runs))
        assert np.any(np.diff(firsts) != 16)
        assert set(within[:, 0]) == set(range(16))


def test_shuffled_orders_are_equally_likely():
    """All 6 orders of 3, of a longer array; and each place for each of 60."""
    keys = jax.random.split(jax.random.key(0), 6000)
    some = epochs.Order(jnp.arange(N, dtype=jnp.int32), jnp.int32(3))
    shuffled = jax.jit(jax.vmap(epochs.shuffle, in_axes=(0, None)))
    drawn = np.asarray(shuffled(keys, some).indices)[:, :3]
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 6
    # 5 degrees of freedom: above 20.5 once in a thousand times.
    assert np.sum((counts - 1000) ** 2) / 1000 < 20.5
    drawn = np.asarray(shuffled(keys, epochs.natural_order(N)).indices)
    for pattern in (0, 1, 30, N - 1):
        places = np.bincount(np.argmax(drawn == pattern, axis=1), minlength=N)
        # 59 degrees of freedom: above 98.3 once in a thousand times.
        assert np.sum((places - 100) ** 2) / 100 < 98.3


@pytest.mark.parametrize("form", ["dense", "sparse", "rbf"])
def test_a_pass_leaves_others_alone(form, double):
    X, y = whole()
    state, data = started("mpu", form, X, y, tolerance=0.3)
    random = np.random.default_rng(0)
    indices = random.permutation(N).astype(np.int32)
    coefficients = random.normal(size=N)
    Z = np.asarray(data.X.values) if form != "sparse" else reference.patterns(X, y)
    Z = Z[:, : state.weights.size]

    def visit(old, margin, square, own, tally):
        assert own is None
        return old + 1, margin > 0, tally + jnp.stack([margin, square])

    @jax.jit
    def visited(number):
        order = epochs.Order(jnp.asarray(indices), number)
        start = state.weights, jnp.asarray(coefficients), visit, jnp.zeros(2)
        return epochs.visit_all(data.X, data.squares, order, *start)

    for number in (0, 1, 7, N):
        weights, new, kept, tally = visited(jnp.int32(number))
        w, margins = np.zeros(state.weights.size), []
        for k in indices[:number]:
            margins.append(w[k] if form == "rbf" else w @ Z[k])
            w = w + Z[k]
        expected = coefficients.copy()
        expected[indices[:number]] += 1
        np.testing.assert_array_equal(new, expected)
        np.testing.assert_allclose(weights, w, rtol=1e-12, atol=1e-12)
        keep = indices[:number][np.array(margins) > 0]
        assert int(kept.number) == len(keep)
        np.testing.assert_array_equal(kept.indices[: len(keep)], keep)
        squares = np.asarray(data.squares)[indices[:number]]
        np.testing.assert_allclose(tally, [sum(margins), sum(squares)], atol=1e-9)


# The type of X is that of a product only.
@pytest.mark.parametrize(
    ("form", "augment", "dtype", "weight"),
    [
        ("dense", 0.0, np.float64, None),
        ("dense", 1.0, np.float32, np.full(300, 2.0)),
        ("sparse", 1.0, np.float32, np.full(300, 2.0)),
        ("rbf", 1.0, np.float64, None),
    ],
)
@quick_to_compile(False)
def test_a_pass_is_one_kernel(form, augment, dtype, weight, double):
    """Operation by operation it would take ten times as long."""
    need_large_loops(form)
    _, X, y = wide(form, dtype)
    state, data = started("mpu", form, X, y, weight, augment=augment)

    def once(state, data, order):
        return mpu._present(state, data, order, jnp.bool_(True))

    others, loops = hoisted(once, state, data, epochs.natural_order(300))
    assert others == 0 < loops


@pytest.mark.parametrize("form", ["dense", "sparse"])
@quick_to_compile(False)
def test_products_and_orders_are_one_kernel(form, double):
    need_large_loops(form)
    held, order = rows.read_rows(wide(form)[0]), epochs.natural_order(300)
    for program, *given in (
        (rows.products, held, jnp.zeros(41)),
        (epochs.shuffle, jax.random.key(0), order),
    ):
        others, loops = hoisted(program, *given)
        assert others == 0 < loops


@quick_to_compile(False)
def test_what_is_not_one_kernel_is_found():
    """The check above can fail: a loop with much in it."""

    def program(matrix):
        return jax.lax.fori_loop(0, 9, lambda _, now: jnp.sin(now @ now), matrix)

    assert hoisted(program, jnp.ones((300, 300)))[0] > 0


# Kernels.


def test_a_kernel_against_its_optimum():
    X, y = noisy()
    found = run("mpu", X, y, "rbf", penalty=3.0, tolerance=1e-6)
    # A factor of the kernel matrix is a training set with the same inner products.
    k = kernels.rbf(GAMMA)
    factor = np.linalg.cholesky(np.array([k(x, X) for x in X]) + 1e-12 * np.eye(len(X)))
    best = reference.optimum(factor, y, 3.0).value
    history = found.history
    np.testing.assert_allclose(history.primal[-1], best, rtol=1e-5)
    assert np.all(history.gap >= history.primal / best - 1 - 1e-8)
    assert isinstance(found.model, bj.KernelModel)
    scores = np.asarray(found.model.decision_function(X), np.float64)
    parts = found.model.vectors, found.model.coefficients
    vectors, a = (np.asarray(part, np.float64) for part in parts)
    np.testing.assert_allclose(scores, [a @ k(x, vectors) for x in X], atol=1e-4)
    norm = sum(a * found.model.decision_function(vectors))
    value = norm / 2 + 3 * np.sum(np.maximum(0, 1 - y * scores))
    np.testing.assert_allclose(history.primal[-1], value, rtol=1e-4)


def test_a_linear_kernel_with_a_bias_is_the_linear_model():
    X, y = whole()
    one = run("mpu", X, y, "linear", augment=2.0)
    other = run("mpu", X, y, augment=2.0)
    np.testing.assert_allclose(one.history.primal, other.history.primal, rtol=1e-12)
    np.testing.assert_array_equal(one.history.work, other.history.work)
    np.testing.assert_allclose(one.model.bias, other.model.bias, rtol=1e-5)
    np.testing.assert_allclose(
        one.model.decision_function(X), other.model.decision_function(X), atol=1e-4
    )


# Models and rows.


MATRICES = {
    "numpy": np.asarray,
    "jax": jnp.asarray,
    "list": lambda X: X.tolist(),
    "csr": SPARSE,
    "coo": scipy.sparse.coo_array,
    "rows": lambda X: bj.sparse_rows(scipy.sparse.csc_matrix(X)),
}


def test_scores(x64):
    random = np.random.default_rng(0)
    weights, bias = jnp.asarray(random.normal(size=D)), jnp.asarray(0.7)
    model = bj.LinearModel(weights, bias)
    X = random.normal(size=(N, D)) * (random.random((N, D)) < 0.4)
    X[0], X[3] = 0, 1
    expected = X @ np.asarray(weights, np.float64) + float(bias)
    for form, convert in MATRICES.items():
        given = convert(X)
        scores = [model.decision_function(given)]
        if form in ("jax", "rows"):
            scores.append(
                jax.jit(lambda model, X: model.decision_function(X))(model, given)
            )
        for found in scores:
            assert found.dtype == weights.dtype
            np.testing.assert_allclose(found, expected, atol=1e-13 if x64 else 1e-5)
        labels = model.predict(given)
        assert labels.dtype == jnp.int32
        np.testing.assert_array_equal(labels, np.where(expected > 0, 1, -1))


def test_a_score_of_zero_is_negative():
    model = bj.LinearModel(jnp.array([1.0, 0.0]), jnp.array(0.0))
    X = [[0.0, 5.0], [1e-30, 0.0], [-1e-30, 0.0], [-0.0, 1.0]]
    assert model.predict(X).tolist() == [-1, 1, -1, -1]
    assert model.predict(scipy.sparse.csr_array(X)).tolist() == [-1, 1, -1, -1]


def test_scores_of_nothing():
    """No rows, and rows of nothing but zeros."""
    model = bj.LinearModel(jnp.array([1.0, 2.0]), jnp.array(0.5))
    zeros = np.zeros((3, 2))
    for convert in (np.asarray, SPARSE):
        assert model.decision_function(convert(zeros)).tolist() == [0.5] * 3
        assert model.decision_function(convert(zeros[:0])).shape == (0,)
        assert model.predict(convert(zeros[:0])).shape == (0,)


def dense(held):
    """What sparse rows stand for."""
    X = np.zeros(held.shape, held.values.dtype)
    for i in range(len(X)):
        part = slice(held.starts[i], held.starts[i + 1])
        np.add.at(X[i], held.indices[part], held.values[part])
    return X


def test_sparse_rows():
    random = np.random.default_rng(0)
    whole = random.integers(-3, 4, (N, D)) * (random.random((N, D)) < 0.4)
    whole[0] = whole[17] = whole[-1] = 0
    whole[2] = 1
    for dtype in (np.float32, np.float64, np.int64, np.int8, bool):
        X, floating = whole.astype(dtype), np.issubdtype(dtype, np.floating)
        for convert in (SPARSE, scipy.sparse.csc_array):
            held = bj.sparse_rows(convert(X))
            assert held.shape == X.shape
            assert held.values.dtype == (dtype if floating else np.float64)
            assert held.indices.dtype == held.starts.dtype == np.int32
            np.testing.assert_array_equal(dense(held), X.astype(np.float64))
            # Rows are read in pairs.
            assert held.values.size == held.indices.size == held.starts[-1]
            assert not np.any(held.starts % rows.PAIR)
            squares = np.sum(X.astype(np.float32) ** 2, axis=1)
            np.testing.assert_array_equal(patterns._squared_norms(held), squares)


def test_short_rows_are_the_same_rows():
    matrix = scipy.sparse.random_array((40, 9), density=0.4, rng=0, format="csr")
    w = jnp.arange(9, dtype=jnp.float32)
    sparse = bj.sparse_rows(matrix)
    short = rows.to_short_rows(sparse)
    assert isinstance(short, rows.ShortRows)
    assert short.indices.dtype == np.uint8
    for held in jax.tree.map(jnp.asarray, (sparse, short)):
        inner, add = jax.jit(held.inner), jax.jit(held.add)
        for i, row in enumerate(matrix.toarray()):
            np.testing.assert_allclose(inner(np.int32(i), w), row @ w, rtol=1e-6)
            np.testing.assert_allclose(
                add(np.int32(i), np.float32(2), w), 2 * row + w, rtol=1e-6
            )
    # One long row among short ones would fill the memory with zeros.
    matrix = scipy.sparse.csr_array(np.vstack([np.ones((1, 9)), np.eye(40, 9)]))
    assert isinstance(rows.to_short_rows(bj.sparse_rows(matrix)), rows.SparseRows)


def test_sparse_rows_unsorted_and_repeated():
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    matrix = SPARSE(
        (values, np.array([2, 0, 2, 1, 0, 1]), np.array([0, 3, 3, 6])), shape=(3, 4)
    )
    held = bj.sparse_rows(matrix)
    expected = [[2, 0, 5, 0], [0, 0, 0, 0], [16, 40, 0, 0]]
    np.testing.assert_array_equal(dense(held), expected)
    for start, end in zip(held.starts[:-1], held.starts[1:], strict=True):
        assert np.all(np.diff(held.indices[start:end]) > 0)
    # The caller's matrix is as it was.
    np.testing.assert_array_equal(matrix.data, values)
    assert matrix.indices.tolist() == [2, 0, 2, 1, 0, 1]


def test_sparse_rows_are_a_pytree():
    held = bj.sparse_rows(scipy.sparse.eye_array(3, format="csr"))
    leaves, structure = jax.tree.flatten(held)
    assert len(leaves) == 3
    again = jax.tree.unflatten(structure, leaves)
    assert again.columns == held.columns
