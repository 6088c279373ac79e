"""The Margin Perceptron with Unlearning, on dense rows, sparse rows and kernels."""

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
from reference import kernels
from reference import linear as reference
from sklearn.svm import LinearSVC

import budgetjax as bj
from budgetjax.datasets import load
from budgetjax.solvers import solver as driver
from budgetjax.solvers.linear import mpu, passes, patterns, rows

# Most tests have this many examples and features, so that they share programs.
N, D = 60, 6
GAMMA = 0.1


# Data.


@functools.cache
def whole():
    """Whole numbers, so that sums are exact; zero rows, and rows that come twice."""
    random = np.random.default_rng(0)
    X = random.integers(-3, 4, (N, D)).astype(np.float64)
    y = np.where(X[:, 0] + X[:, 1] + random.normal(size=N) > 0, 1.0, -1.0)
    X[5], y[5] = X[7], -y[7]
    X[20], y[20] = X[21], y[21]
    X[30] = X[31] = X[32] = 0
    return X, y


@functools.cache
def noisy():
    """No hyperplane separates them."""
    random = np.random.default_rng(1)
    X = random.normal(size=(N, D))
    X[5] = X[7]
    X[30] = 0
    y = np.where(X[:, 0] - X[:, 1] + 0.7 * random.normal(size=N) > 0, 1.0, -1.0)
    return X, np.where(random.random(N) < 0.1, -y, y)


@functools.cache
def separable():
    """Two clouds with room in between, of which some is not needed."""
    random = np.random.default_rng(2)
    X = random.normal(size=(N, D))
    direction = random.normal(size=D) / math.sqrt(D)
    y = np.where(X @ direction > 0, 1.0, -1.0)
    return X + 0.3 * y[:, None] * direction, y


@functools.cache
def whole_and_separable():
    X, y = whole()
    X = X.copy()
    X[30], X[31], X[32] = np.eye(D)[:3]
    y = np.where(X @ [3, 2, 1, 1, 1, 1] > 0, 1.0, -1.0)
    return X, y


DATA = {
    "whole": whole,
    "noisy": noisy,
    "separable": separable,
    "whole-separable": whole_and_separable,
}

# How patterns are given: the argument X, and the kernel.
FORMS = {
    "dense": (np.asarray, None),
    "sparse": (lambda X: bj.sparse_rows(scipy.sparse.csr_matrix(X)), None),
    "linear": (np.asarray, bj.Linear()),
    "rbf": (np.asarray, bj.RBF(GAMMA)),
}
REFERENCE_KERNELS = {"linear": kernels.linear(), "rbf": kernels.rbf(GAMMA)}


def arguments(augment=0.0, **given):
    """Those of `init`, with rho as the reference has it: 0 for no bias."""
    return given | {"fit_bias": bool(augment > 0), "bias_scale": augment or 1.0}


def started(form, X, y, **given):
    convert, kernel = FORMS[form]
    return bj.mpu.init(convert(X), y, kernel=kernel, **arguments(**given))


def run(X, y, augment=0.0, **given):
    return bj.solve(bj.mpu, X, y, **{"tolerance": 1e-4} | arguments(augment, **given))


def shown(form, X, y, state):
    """All patterns, as steps see them."""
    return bj.mpu.prepare(state, FORMS[form][0](X), y)[0]


class Counting(reference.MPU):
    """The reference, with a count of presentations."""

    seen = 0

    def response(self, k):
        self.seen += 1
        return super().response(k)


class CountingKernel(reference.KernelMPU):
    seen = 0

    def response(self, k):
        self.seen += 1
        return super().response(k)


def reference_of(form, X, y, state, augment):
    """With the thresholds of a state."""
    most = float(state.most)
    given = {
        "threshold": float(state.threshold),
        "gap": float(state.gap),
        "cap": int(most) if math.isfinite(most) else most,
        "augment": augment,
    }
    if form in REFERENCE_KERNELS:
        k = REFERENCE_KERNELS[form]
        return CountingKernel(np.array([k(x, X) for x in X]), y, **given)
    return Counting(X, y, **given)


def weights_of(form, learner, size):
    """What the reference's weights are in a state."""
    if form in REFERENCE_KERNELS:
        return np.array([learner.response(k) for k in range(N)])
    # A state has no weight of a constant 0.
    return learner.a[:size]


@jax.jit
def one_step(state, everyone):
    return bj.mpu.step(state, everyone, None)


@jax.jit
def objective(state, everyone):
    return bj.mpu.objective(state, everyone, None)


@functools.cache
def solved(name, **given):
    return run(*DATA[name](), **given)


# Update by update.

# How patterns are given, what of, and the arguments.
CASES = {
    "dense": ("dense", "whole", {}),
    "dense-augmented": ("dense", "whole", {"augment": 2.0}),
    "dense-small-penalty": ("dense", "whole", {"penalty": 0.25}),
    "dense-coarse": ("dense", "whole", {"penalty": 10.0, "tolerance": 9.0}),
    "dense-hard": ("dense", "whole-separable", {"hard_margin": True}),
    "dense-hard-augmented": (
        "dense",
        "whole-separable",
        {"hard_margin": True, "augment": 1.0},
    ),
    "sparse": ("sparse", "whole", {}),
    "sparse-augmented": ("sparse", "whole", {"augment": 2.0}),
    "sparse-hard": ("sparse", "whole-separable", {"hard_margin": True}),
    "linear": ("linear", "whole", {}),
    "rbf": ("rbf", "noisy", {}),
    "rbf-augmented": ("rbf", "noisy", {"augment": 1.0, "penalty": 4.0}),
}


def case(name, **more):
    form, data, given = CASES[name]
    X, y = DATA[data]()
    state = started(form, X, y, **{"tolerance": 0.3} | given | more)
    learner = reference_of(form, X, y, state, given.get("augment", 0.0))
    return form, X, y, state, learner


@pytest.mark.telling
@pytest.mark.parametrize("name", [f"{name}@mpu-rounds" for name in CASES])
def test_rounds_are_those_of_the_reference(name, double):
    """Everything, then the two active sets, in the same orders, until nothing moves."""
    form, X, y, state, learner = case(name.partition("@")[0])
    everyone, visited = shown(form, X, y, state), 0
    for turn in range(1, 200):  # noqa: B007
        _, now = jax.random.split(state.key)
        order = passes.shuffled(now, passes.everything(N)).indices
        state = one_step(state, everyone)
        before = learner.seen
        updated = learner.cycle(np.asarray(order).tolist())
        # Without a change there is no need to look at the active sets.
        visited += learner.seen - before if updated else N
        np.testing.assert_array_equal(state.counts, learner.I)
        np.testing.assert_array_equal(state.tally, [learner.t_plus, learner.t_minus])
        expected = weights_of(form, learner, state.weights.size)
        np.testing.assert_allclose(state.weights, expected, rtol=1e-12, atol=1e-9)
        assert float(state.num_visits) == visited
        assert bool(state.settled) == (not updated)
        if not updated:
            break
    assert not updated
    assert turn > 2
    assert visited > turn * N
    assert learner.t_minus > 0, "nothing was unlearned"


@pytest.mark.parametrize("augment", [0.0, 1.5])
@pytest.mark.parametrize("hard_margin", [False, True], ids=["", "hard"])
@pytest.mark.parametrize(("penalty", "tolerance"), [(1.0, 1e-4), (0.03, 3.0)])
def test_thresholds(penalty, tolerance, hard_margin, augment, double):
    """Those of the paper for an accuracy of a tenth of the tolerance."""
    X, y = separable()
    given = {"penalty": penalty, "augment": augment, "hard_margin": hard_margin}
    state = started("dense", X, y, tolerance=tolerance, **given)
    expected = reference.mpu_parameters(X, accuracy=tolerance / 10, **given)
    found = state.threshold, state.gap, state.most
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert state.problem.kernel is None


def test_forms_of_the_same_patterns(double):
    """Sparse rows, matrices of SciPy and a linear kernel: the same counts."""
    X, y = whole()
    given = {"bias_scale": 2.0, "tolerance": 1e-3}
    state = bj.mpu.init(X, y, **given)
    matrix = scipy.sparse.csr_matrix(X)
    first = bj.mpu.init(bj.sparse_rows(matrix), y, **given)
    for form in (matrix, scipy.sparse.coo_array(X), scipy.sparse.lil_matrix(X)):
        same(bj.mpu.init(form, y, **given), first)
    np.testing.assert_array_equal(first.problem.squares, state.problem.squares)
    solutions = [
        bj.solve(bj.mpu, form, y, **given)
        for form in (X, X.astype(int).tolist(), matrix, bj.sparse_rows(matrix))
    ]
    solutions.append(bj.solve(bj.mpu, X, y, kernel=bj.Linear(), **given))
    expected = solutions[0]
    for solution in solutions[1:]:
        np.testing.assert_array_equal(solution.history.work, expected.history.work)
        for column, other in zip(solution.history, expected.history, strict=True):
            np.testing.assert_allclose(column, other, rtol=1e-9)
        np.testing.assert_array_equal(solution.state.tally, expected.state.tally)
        np.testing.assert_allclose(
            solution.model.decision_function(X),
            expected.model.decision_function(X),
            rtol=1e-12,
            atol=1e-12,
        )


# What holds at all times.


def check_invariants(state, Z):
    counts = np.asarray(state.counts)
    up, down = np.asarray(state.tally)
    assert np.all(counts >= 0)
    assert np.all(counts <= float(state.most))
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


@pytest.mark.parametrize("form", ["dense@mpu-rounds", "sparse@mpu-rounds"])
@pytest.mark.parametrize("data", ["noisy", "separable"])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_invariants(penalty, data, form, double):
    """After every round; and the gap, too, is what the reference says."""
    form = form.partition("@")[0]
    X, y = DATA[data]()
    state = started(form, X, y, penalty=penalty, tolerance=1e-3)
    everyone, Z = shown(form, X, y, state), reference.patterns(X, y)
    best = optimum(data, penalty)
    for turn in range(12):
        state = one_step(state, everyone)
        check_invariants(state, Z)
        if turn % 4 == 0:
            learner = reference_of(form, X, y, state, 0.0)
            learner.I, learner.a = np.asarray(state.counts), state.counts @ Z
            expected = learner.objectives()
            found = objective(state, everyone)
            np.testing.assert_allclose(found.primal, expected.primal, rtol=1e-11)
            np.testing.assert_allclose(found.dual, expected.dual, rtol=1e-11)
            assert expected.dual <= best * (1 + 1e-9) <= expected.primal * (1 + 2e-9)


@functools.cache
def optimum(data, penalty, augment=0.0):
    return reference.optimum(*DATA[data](), penalty, augment=augment).value


@pytest.mark.parametrize("augment", [0.0, 1.0], ids=["@mpu-solve", "bias@mpu-solve"])
@pytest.mark.parametrize("data", ["noisy", "separable"])
@pytest.mark.parametrize("penalty", [0.01, 1.0, 30.0])
def test_the_gap_is_never_below_the_true_one(penalty, data, augment):
    X, y = DATA[data]()
    found = solved(data, penalty=penalty, augment=augment, tolerance=1e-6)
    best = optimum(data, penalty, augment)
    history = found.history
    assert np.all(history.gap >= history.primal / best - 1 - 1e-9)
    np.testing.assert_allclose(history.primal[0], N * penalty, rtol=1e-12)
    assert history.gap[0] == np.inf
    assert np.all(history.primal >= best * (1 - 1e-9))
    assert history.gap[-1] <= 1e-6
    assert found.converged
    np.testing.assert_allclose(history.primal[-1], best, rtol=1.1e-6)
    np.testing.assert_array_equal(history.step, np.arange(len(history[0])))
    assert np.all(np.diff(history.work) >= N)
    # What it says is what its model does.
    weights, bias = (np.asarray(part, np.float64) for part in found.model)
    w = np.append(weights, bias / augment if augment else 0)
    value = reference.primal(X, y, w, penalty, augment=augment)
    np.testing.assert_allclose(history.primal[-1], value, rtol=1e-5)
    assert augment or bias == 0


def test_a_tolerance_is_reached_without_looking_at_the_gap(double):
    """When a pass changes nothing, the objective is as near as the paper says."""
    X, y = noisy()
    for tolerance in (5, 0.5, 1e-2):
        state = started("dense", X, y, tolerance=tolerance)
        found = bj.solve(bj.mpu, X, y, state=state, tolerance=None)
        assert found.converged
        assert found.state.settled
        assert found.history.gap[-1] > 1e-12
        best = optimum("noisy", 1.0)
        assert found.history.primal[-1] < (1 + tolerance / 10) * best
        # Theorem 2, equation (22).
        b, gap, most = (float(of) for of in (state.threshold, state.gap, state.most))
        rest = gap - float(np.max(state.problem.squares))
        assert float(jnp.sum(found.state.tally)) <= (2 * b + gap) / rest * N * most


def test_the_passes_are_at_most_what_was_asked_for():
    X, y = noisy()
    for max_steps in (1, 3):
        found = run(X, y, penalty=30.0, max_steps=max_steps, tolerance=1e-9)
        assert not found.converged
        assert found.history.step.tolist() == list(range(max_steps + 1))


def test_a_tolerance_ends_it_early(double):
    X, y = noisy()
    state = started("dense", X, y, tolerance=1e-4)
    coarse, fine = (
        bj.solve(bj.mpu, X, y, state=state, tolerance=tolerance)
        for tolerance in (0.1, 1e-4)
    )
    assert coarse.converged
    assert len(coarse.history.step) < len(fine.history.step)
    reached = coarse.history.gap <= 0.1
    assert reached[-1]
    assert not np.any(reached[:-1])
    same(
        coarse.history,
        jax.tree.map(lambda column: column[: len(reached)], fine.history),
    )


def test_a_run_goes_on():
    """From the state of a solution, whose memory stays."""
    X, y = noisy()
    once = run(X, y, penalty=30.0, max_steps=6)
    first = run(X, y, penalty=30.0, max_steps=2)
    for _ in range(2):
        more = bj.solve(bj.mpu, X, y, state=first.state, max_steps=4, tolerance=1e-4)
        same(more.state, once.state)
    same(more.model, once.model)


def test_seeds_are_orders():
    first, again = (run(*noisy(), seed=3) for _ in range(2))
    other = run(*noisy(), seed=4)
    same(first.history, again.history)
    same(first.model, again.model)
    assert first.history.work[-1] != other.history.work[-1]
    np.testing.assert_allclose(
        first.history.primal[-1], other.history.primal[-1], rtol=2e-4
    )


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
        state = started("dense", X, y, hard_margin=True, tolerance=10 * accuracy)
        found = bj.solve(bj.mpu, X, y, state=state, tolerance=1e-9)
        assert found.converged
        weights = np.asarray(found.model.weights, np.float64)
        norm = math.sqrt(weights @ weights)
        fraction = np.min(y * (X @ weights)) / norm / most
        bound = 1 / math.sqrt(1 + found.history.gap[-1])
        assert 1 / (1 + accuracy) <= bound + 1e-6
        assert bound <= fraction + 1e-6 <= 1 + 2e-6
        fractions.append(fraction)
        angles.append(math.acos(min(1.0, weights @ best / norm)))
        value = 0.5 / (fraction * most) ** 2
        np.testing.assert_allclose(found.history.primal[-1], value, rtol=1e-5)
        np.testing.assert_array_equal(found.model.predict(X), y)
        check_updates_of_a_hard_margin(found.state, most)
    assert fractions == sorted(fractions)
    assert angles == sorted(angles, reverse=True)
    assert fractions[-1] > 0.997
    assert angles[-1] < angles[0] / 3


def check_updates_of_a_hard_margin(state, most):
    """Equations (10), (16) and (17), and Remark 2, of the largest margin `most`."""
    b, gap = float(state.threshold), float(state.gap)
    R2 = float(np.max(state.problem.squares))
    learned, unlearned = (float(count) for count in state.tally)
    assert learned - unlearned <= (R2 + 2 * b) / most**2
    assert unlearned <= (R2 + 2 * b) ** 2 / (8 * most**2 * (gap - R2))
    whole = (R2 + 2 * b) / most**2 * (1 + (R2 + 2 * b) / (4 * (gap - R2)))
    assert learned + unlearned <= whole
    net = (learned - unlearned) / (b / most**2)
    assert 1 / (1 + gap / b) < net < 1 + gap / b


def test_the_bound_on_a_hard_margin_is_that_of_the_paper(double):
    form, X, y, state, learner = case("dense-hard")
    everyone = shown(form, X, y, state)
    for _ in range(5):
        _, now = jax.random.split(state.key)
        order = passes.shuffled(now, passes.everything(N)).indices
        state = one_step(state, everyone)
        learner.cycle(np.asarray(order).tolist())
    found = objective(state, everyone)
    assert learner.margin() > 0
    bound = math.sqrt(found.dual / found.primal)
    np.testing.assert_allclose(bound, learner.fraction(), rtol=1e-12)
    np.testing.assert_allclose(found.primal, 0.5 / learner.margin() ** 2, rtol=1e-12)


def test_the_squared_hinge_is_a_hard_margin_with_a_feature_per_pattern(double):
    """The map of the introduction, update by update; and the optimum, by `dcd`."""
    X, y = whole()
    state = started("dense", X, y, loss="squared_hinge", penalty=0.5, tolerance=0.3)
    wide = np.hstack([X, np.eye(N)])
    learner = reference_of("dense", wide, y, state, 0.0)
    everyone = shown("dense", X, y, state)
    for _ in range(20):
        _, now = jax.random.split(state.key)
        order = passes.shuffled(now, passes.everything(N)).indices
        state = one_step(state, everyone)
        learner.cycle(np.asarray(order).tolist())
        np.testing.assert_array_equal(state.counts, learner.I)
    X, y = noisy()
    given = {"penalty": 0.5, "loss": "squared_hinge", "tolerance": 1e-4}
    ours, theirs = (bj.solve(one, X, y, **given) for one in (bj.mpu, bj.dcd))
    assert ours.converged
    assert ours.history.primal[-1] == pytest.approx(theirs.history.primal[-1], rel=2e-4)
    margins = y * np.asarray(ours.model.decision_function(X))
    weights = np.append(ours.model.weights, ours.model.bias)
    J = weights @ weights / 2 + 0.5 * np.sum(np.maximum(0, 1 - margins) ** 2)
    assert ours.history.primal[-1] == pytest.approx(J, rel=1e-5)
    for more in ({"weight": np.ones(N)}, {"hard_margin": True}):
        with pytest.raises(
            ValueError, match="hard_margin must be False and weight None with"
        ):
            bj.solve(bj.mpu, X, y, **given, **more)
    with pytest.raises(ValueError, match=r"loss must be one of .* got 'logistic'"):
        bj.solve(bj.mpu, X, y, loss="logistic")


def test_active_sets_are_as_large_and_as_often_shown_as_asked_for(double):
    """Without them a step shows every pattern once."""
    X, y = noisy()
    everyone = shown("dense", X, y, started("dense", X, y))
    visits = {}
    for name, given in {
        "none": {"first_rounds": 0},
        "one": {"first_rounds": 1, "second_rounds": 0},
        "wide": {"first_rounds": 1, "second_rounds": 0, "near": 1e6},
        "usual": {},
    }.items():
        state = one_step(started("dense", X, y, **given), everyone)
        visits[name] = float(state.num_visits)
    assert visits["none"] == N
    assert visits["none"] < visits["one"] < visits["wide"] == 2 * N
    assert visits["usual"] > visits["one"]


def test_what_nothing_separates_ends_all_the_same():
    X, y = noisy()
    found = run(X, y, hard_margin=True, augment=1.0, max_steps=20)
    assert not found.converged
    assert found.history.step[-1] == 20
    assert found.history.primal[-1] == found.history.gap[-1] == np.inf
    assert np.all(np.isfinite(found.model.weights))


# Precision.


def test_steps_in_float32():
    X, y = (part.astype(np.float32) for part in noisy())
    state = started("dense", X, y, tolerance=0.1, augment=1.0)
    everyone = shown("dense", X, y, state)
    for _ in range(5):
        state = one_step(state, everyone)
    assert all(leaf.dtype != np.float64 for leaf in jax.tree.leaves(state))
    counts = np.asarray(state.counts, np.float64)
    assert np.sum(counts) == state.tally[0] - state.tally[1]
    summed = counts @ reference.patterns(X, y, 1.0)
    scale = np.max(np.abs(summed))
    np.testing.assert_allclose(
        state.weights[: D + 1], summed, rtol=0, atol=1e-4 * scale
    )
    primal, dual = objective(state, everyone)
    best = optimum("noisy", 1.0, 1.0)
    assert dual <= best * (1 + 1e-5)
    assert best * (1 - 1e-5) <= primal < 1.05 * best
    found = bj.mpu.model(state, everyone, None)
    w = np.append(found.weights, found.bias).astype(np.float64)
    value = reference.primal(X, y, w, 1.0, augment=1.0)
    np.testing.assert_allclose(primal, value, rtol=1e-4)


def test_solve_is_in_double_precision(x64):
    """Whatever the caller's default is, which stays; the model is in that."""
    X, y = noisy()
    found = run(X, y, augment=1.0)
    assert jax.config.read("jax_enable_x64") is x64
    assert found.state.weights.dtype == np.float64
    for leaf in found.model:
        assert leaf.dtype == (jnp.float64 if x64 else jnp.float32)
        assert not leaf.weak_type
    expected = solved("noisy", augment=1.0)
    same(found.history, expected.history)


def test_an_error_leaves_the_precision_alone(x64, as_installed):
    X, y = noisy()
    with pytest.raises(ValueError, match="bias_scale"):
        bj.solve(bj.mpu, X, y, bias_scale=-1.0)
    with pytest.raises(ValueError, match="max_steps"):
        bj.solve(bj.mpu, X, y, max_steps=-1)
    assert jax.config.read("jax_enable_x64") is x64


def test_patterns_stay_in_their_type(double):
    X, y = noisy()
    for values in (X.astype(np.float32), X):
        state = started("dense", values, y, augment=1.0)
        found = shown("dense", values, y, state)
        assert found.values.dtype == values.dtype
        expected = reference.patterns(values, y, 1.0)
        np.testing.assert_array_equal(found.values, expected)


# Several penalties, many at once.


def test_several_penalties_are_as_many_solutions():
    """Each from the one before, on patterns that are made once."""
    X, y = whole()
    penalties = np.array([0.25, 1.0, 4.0])
    for more in ({}, {"loss": "squared_hinge"}):
        many = run(X, y, penalty=penalties, augment=1.0, **more)
        assert isinstance(many, tuple)
        for i, (one, penalty) in enumerate(zip(many, penalties, strict=True)):
            alone = solved("whole", penalty=float(penalty), augment=1.0, **more)
            if i == 0:
                same(one.model, alone.model)
                same(one.history, alone.history)
            assert one.converged
            optimum = alone.history.dual[-1]
            assert optimum / 1.0001 <= one.history.primal[-1] <= 1.0002 * optimum
            assert one.history.work[-1] <= alone.history.work[-1]
            counts = np.asarray(one.state.counts)
            np.testing.assert_array_equal(counts, np.round(counts))
            assert counts.max() <= np.asarray(one.state.most)
            learned, unlearned = np.asarray(one.state.tally)
            assert learned - unlearned == counts.sum()
            weights = np.asarray(one.state.weights)[: D + 1]
            sums = counts @ reference.patterns(X, y, 1.0)
            np.testing.assert_allclose(weights, sums, atol=1e-9 * counts.sum())
    (single,) = run(X, y, penalty=[1.0], augment=1.0)
    same(single.history, solved("whole", penalty=1.0, augment=1.0).history)
    X, y = DATA["whole-separable"]()
    one, two = run(X, y, penalty=[1.0, 2.0], hard_margin=True)
    assert one.converged
    assert two.history.primal[-1] == one.history.primal[-1]


def test_steps_compiled_or_not(double):
    X, y = whole()
    state = started("dense", X, y, augment=1.0)
    everyone = shown("dense", X, y, state)
    plain = bj.mpu.step(state, everyone, None)
    same(plain, one_step(state, everyone))
    for leaf in jax.tree.leaves(plain):
        assert not getattr(leaf, "weak_type", False)


def test_many_penalties_by_vmap(double):
    X, y = whole()
    penalties = jnp.array([0.25, 1.0, 4.0])

    def init(penalty):
        return started("dense", X, y, penalty=penalty, augment=1.0, tolerance=0.301)

    everyone = shown("dense", X, y, init(1.0))
    many = jax.vmap(init)(penalties)
    for _ in range(2):
        many = jax.vmap(one_step, in_axes=(0, None))(many, everyone)
    for i, penalty in enumerate(penalties):
        alone = one_step(one_step(init(float(penalty)), everyone), everyone)
        same(jax.tree.map(lambda leaf, i=i: leaf[i], many), alone)


def test_new_values_compile_nothing(double):
    X, y = whole()
    programs = driver._advance_in_place, driver._reached
    run(X, y, augment=1.0, max_steps=2)
    compiled = [each._cache_size() for each in programs]
    for given in (
        {"penalty": 7, "tolerance": 0.01},
        {"seed": 3, "augment": np.float32(0.5)},
        {"hard_margin": True},
    ):
        run(X + 1, y, max_steps=4, **{"augment": 2.0} | given)
    assert [each._cache_size() for each in programs] == compiled


# Orders and passes.


def test_shuffled_orders():
    indices = np.random.default_rng(0).permutation(N).astype(np.int32)
    found = []
    for number in (0, 1, 2, 17, N):
        order = passes.Order(jnp.asarray(indices), jnp.int32(number))
        for seed in (0, 1):
            new = passes.shuffled(jax.random.key(seed), order)
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
    order = passes.Order(jnp.arange(n, dtype=jnp.int32), jnp.int32(n - 2))
    one, other = (
        np.asarray(passes.shuffled(jax.random.key(seed), order).indices)[: n - 2]
        for seed in (0, 1)
    )
    assert not np.array_equal(one, other)
    for found in (one, other):
        np.testing.assert_array_equal(np.sort(found), np.arange(n - 2))
        runs = found[: (n - 2) // 16 * 16].reshape(-1, 16)
        np.testing.assert_array_equal(np.diff(runs, axis=1), 1)
        assert np.any(np.diff(runs[:, 0]) != 16)


def test_shuffled_orders_are_equally_likely():
    """All 6 orders of 3, of a longer array; and each place for each of 60."""
    keys = jax.random.split(jax.random.key(0), 6000)
    some = passes.Order(jnp.arange(N, dtype=jnp.int32), jnp.int32(3))
    shuffled = jax.jit(jax.vmap(passes.shuffled, in_axes=(0, None)))
    drawn = np.asarray(shuffled(keys, some).indices)[:, :3]
    _, counts = np.unique(drawn, axis=0, return_counts=True)
    assert len(counts) == 6
    # 5 degrees of freedom: above 20.5 once in a thousand times.
    assert np.sum((counts - 1000) ** 2) / 1000 < 20.5
    drawn = np.asarray(shuffled(keys, passes.everything(N)).indices)
    for pattern in (0, 1, 30, N - 1):
        places = np.bincount(np.argmax(drawn == pattern, axis=1), minlength=N)
        # 59 degrees of freedom: above 98.3 once in a thousand times.
        assert np.sum((places - 100) ** 2) / 100 < 98.3


@pytest.mark.parametrize("form", ["dense", "sparse", "rbf"])
def test_a_pass_leaves_others_alone(form, double):
    X, y = whole()
    state = started(form, X, y, tolerance=0.3)
    everyone = shown(form, X, y, state)
    random = np.random.default_rng(0)
    indices = random.permutation(N).astype(np.int32)
    coefficients = random.normal(size=N)
    Z = np.asarray(everyone.values) if form != "sparse" else reference.patterns(X, y)
    Z = Z[:, : state.weights.size]

    def visit(old, margin, square, own, tally):
        assert own is None
        return old + 1, margin > 0, tally + jnp.stack([margin, square])

    @jax.jit
    def visited(number):
        order = passes.Order(jnp.asarray(indices), number)
        start = state.weights, jnp.asarray(coefficients), visit, jnp.zeros(2)
        return passes.visit_all(everyone, state.problem.squares, order, *start)

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
        squares = np.asarray(state.problem.squares)[indices[:number]]
        np.testing.assert_allclose(tally, [sum(margins), sum(squares)], atol=1e-9)


@quick_to_compile(False)
def hoisted(program, *given):
    """Loops of a compiled program that are calls of one kernel, and all loops."""
    if jax.default_backend() != "cpu":
        pytest.skip("of CPUs")
    text = jax.jit(program).lower(*given).compile(AS_USERS_COMPILE).as_text()
    return text.count('xla_cpu_small_call="true"'), text.count(" while(")


# The type of X is that of a product only: once a form.
@pytest.mark.parametrize(
    ("augment", "dtype", "weight"),
    [
        (0.0, np.float64, None),
        (1.0, np.float64, None),
        (0.0, np.float32, None),
        (1.0, np.float64, np.full(300, 2.0)),
    ],
)
@pytest.mark.parametrize("form", ["dense", "sparse", "rbf"])
def test_a_pass_is_one_kernel(form, dtype, augment, weight, double):
    """Operation by operation it would take ten times as long."""
    need_large_loops(form)
    random = np.random.default_rng(0)
    X = random.normal(size=(300, 41)).astype(dtype)
    y = np.where(X[:, 0] > 0, 1, -1)
    state = started(form, X, y, augment=augment, weight=weight)
    everyone = shown(form, X, y, state)
    order = passes.everything(300)

    def once(state, everyone, order):
        return mpu._pass(state, everyone, order, jnp.bool_(True))

    small, loops = hoisted(once, state, everyone, order)
    assert small == loops > 0


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_products_are_one_kernel(form, double):
    need_large_loops(form)
    X = np.random.default_rng(0).normal(size=(300, 41))
    held = rows.as_rows("test", FORMS[form][0](X))
    small, loops = hoisted(rows.products, held, jnp.zeros(41))
    assert small == loops > 0


def test_orders_are_shuffled_in_one_kernel():
    order = passes.everything(300)
    small, loops = hoisted(passes.shuffled, jax.random.key(0), order)
    assert small == loops > 0


def test_what_is_not_one_kernel_is_found():
    """The check above can fail: a loop with much in it."""

    def program(matrix):
        return jax.lax.fori_loop(
            0, 9, lambda _, matrix: jnp.sin(matrix @ matrix), matrix
        )

    small, loops = hoisted(program, jnp.ones((300, 300)))
    assert small < loops


# Kernels.


def test_a_kernel_against_its_optimum():
    X, y = noisy()
    found = run(X, y, kernel=bj.RBF(GAMMA), penalty=3.0, tolerance=1e-6)
    # A factor of the kernel matrix is a training set with the same inner products.
    k = kernels.rbf(GAMMA)
    factor = np.linalg.cholesky(np.array([k(x, X) for x in X]) + 1e-12 * np.eye(len(X)))
    best = reference.optimum(factor, y, 3.0).value
    history = found.history
    np.testing.assert_allclose(history.primal[-1], best, rtol=1e-5)
    assert np.all(history.gap >= history.primal / best - 1 - 1e-8)
    assert isinstance(found.model, bj.KernelModel)
    scores = np.asarray(found.model.decision_function(X), np.float64)
    vectors, a = (np.asarray(part, np.float64) for part in found.model[1:3])
    np.testing.assert_allclose(scores, [a @ k(x, vectors) for x in X], atol=1e-4)
    norm = sum(a * found.model.decision_function(vectors))
    value = norm / 2 + 3 * np.sum(np.maximum(0, 1 - y * scores))
    np.testing.assert_allclose(history.primal[-1], value, rtol=1e-4)


def test_a_linear_kernel_with_a_bias_is_the_linear_model():
    X, y = whole()
    one = run(X, y, kernel=bj.Linear(), augment=2.0)
    other = run(X, y, augment=2.0)
    np.testing.assert_allclose(one.history.primal, other.history.primal, rtol=1e-12)
    np.testing.assert_array_equal(one.history.work, other.history.work)
    np.testing.assert_allclose(one.model.bias, other.model.bias, rtol=1e-5)
    np.testing.assert_allclose(
        one.model.decision_function(X), other.model.decision_function(X), atol=1e-4
    )


# Real data.


@pytest.mark.parametrize("name", ["a9a", "w8a", "ijcnn1"])
def test_the_objective_of_liblinear(name):
    """On the first rows, with C = 1."""
    try:
        data = load(name, standardise=False)
    except ValueError:
        pytest.skip(f"{name} is in the folder that BUDGETJAX_DATA names")
    X, y = data.X_train[:5000], data.y_train[:5000]
    given = X if name == "ijcnn1" else scipy.sparse.csr_matrix(X)
    theirs = LinearSVC(
        loss="hinge", fit_intercept=False, C=1.0, tol=1e-6, max_iter=10**6, dual=True
    )
    # LIBLINEAR computes in double precision.
    best = theirs.fit(given.astype(np.float64), y).coef_[0]

    def objective(w):
        return w @ w / 2 + np.sum(np.maximum(0, 1 - y * (X.astype(np.float64) @ w)))

    found = run(given, y)
    primal, gap = found.history.primal[-1], found.history.gap[-1]
    np.testing.assert_allclose(primal, objective(best), rtol=1e-4)
    assert found.converged
    assert gap >= primal / objective(best) - 1 - 1e-9
    weights = np.asarray(found.model.weights, np.float64)
    np.testing.assert_allclose(primal, objective(weights), rtol=1e-6)
    decided = found.model.predict(given) == (X @ best.astype(np.float32) > 0) * 2 - 1
    assert np.mean(decided) > 0.995


# Models and rows.


def matrix_of(X, form):
    return {
        "numpy": np.asarray,
        "jax": jnp.asarray,
        "list": lambda X: X.tolist(),
        "csr": scipy.sparse.csr_matrix,
        "coo": scipy.sparse.coo_array,
        "rows": lambda X: bj.sparse_rows(scipy.sparse.csc_matrix(X)),
    }[form](X)


@pytest.mark.parametrize("form", ["numpy", "jax", "list", "csr", "coo", "rows"])
def test_scores(form, x64):
    random = np.random.default_rng(0)
    weights, bias = jnp.asarray(random.normal(size=D)), jnp.asarray(0.7)
    model = bj.LinearModel(weights, bias)
    X = random.normal(size=(N, D)) * (random.random((N, D)) < 0.4)
    X[0], X[3] = 0, 1
    expected = X @ np.asarray(weights, np.float64) + float(bias)
    given = matrix_of(X, form)
    scores = model.decision_function(given)
    assert scores.dtype == weights.dtype
    np.testing.assert_allclose(scores, expected, atol=1e-13 if x64 else 1e-5)
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
    for convert in (np.asarray, scipy.sparse.csr_matrix):
        assert model.decision_function(convert(zeros)).tolist() == [0.5] * 3
        assert model.decision_function(convert(zeros[:0])).shape == (0,)
        assert model.predict(convert(zeros[:0])).shape == (0,)


def test_scores_inside_jit():
    model = bj.LinearModel(jnp.array([1.0, 2.0]), jnp.array(0.5))
    X = jnp.array([[1.0, 1.0], [0.0, -1.0]])
    sparse = bj.sparse_rows(scipy.sparse.csr_matrix(np.asarray(X)))
    score = jax.jit(lambda model, X: model.decision_function(X))
    assert score(model, X).tolist() == [3.5, -1.5]
    assert score(model, sparse).tolist() == [3.5, -1.5]


def dense(held):
    """What sparse rows stand for."""
    X = np.zeros(held.shape, held.values.dtype)
    for i in range(len(X)):
        part = slice(held.starts[i], held.starts[i + 1])
        np.add.at(X[i], held.indices[part], held.values[part])
    return X


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int8, bool])
def test_sparse_rows(dtype):
    random = np.random.default_rng(0)
    X = random.integers(-3, 4, (N, D)) * (random.random((N, D)) < 0.4)
    X[0] = X[17] = X[-1] = 0
    X[2] = 1
    X = X.astype(dtype)
    for convert in (scipy.sparse.csr_matrix, scipy.sparse.csc_array):
        held = bj.sparse_rows(convert(X))
        assert held.shape == X.shape
        floating = np.issubdtype(dtype, np.floating)
        assert held.values.dtype == (dtype if floating else np.float64)
        assert held.indices.dtype == held.starts.dtype == np.int32
        np.testing.assert_array_equal(dense(held), X.astype(np.float64))
        # Rows are read in pairs.
        assert held.values.size == held.indices.size == held.starts[-1]
        assert not np.any(held.starts % rows.PAIR)
        np.testing.assert_array_equal(
            patterns._squares(held), np.sum(X.astype(np.float32) ** 2, axis=1)
        )


def test_sparse_rows_unsorted_and_repeated():
    values = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    matrix = scipy.sparse.csr_matrix(
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


# Bad input.

NAN, INF = math.nan, math.inf
X_, Y_ = separable()[0][:12], np.array([1, -1] * 6)
SPARSE = scipy.sparse.csr_matrix


def changed(array, row, value):
    array = np.array(array, np.float64)
    array.reshape(len(array), -1)[row, -1] = value
    return array


FINITE = "must be a finite number"
BAD_DATA = {
    "a-label-of-0": ((X_, changed(Y_, 3, 0)), "y must be -1 or +1, got 0 in row 3"),
    "a-label-of-nan": (
        (X_, changed(Y_, 3, NAN)),
        "y must be -1 or +1, got nan in row 3",
    ),
    "flags": ((X_, Y_ > 0), "y must be -1 or +1, got 0 in row 1"),
    "one-class": ((X_, np.ones(12)), "y must have both classes, got +1 in all 12 rows"),
    "one-class-sparse": (
        (SPARSE(X_), -np.ones(12)),
        "y must have both classes, got -1 in all 12 rows",
    ),
    "labels": (
        (X_, Y_[1:]),
        "y must have shape (12,), one label per row of X, got (11,)",
    ),
    "columns-of-labels": (
        (SPARSE(X_), Y_[:, None]),
        "y must have shape (12,), one label per row of X, got (12, 1)",
    ),
    "text-for-labels": (
        (X_, np.array(["a"] * 12)),
        "y must hold real numbers, got dtype <U1",
    ),
    "no-labels": ((X_, None), "y must hold real numbers, got dtype object"),
    "a-row": ((X_[0], Y_), "X must have shape (n, d), n and d above 0, got (6,)"),
    "three-axes": (
        (X_[None], Y_),
        "X must have shape (n, d), n and d above 0, got (1, 12, 6)",
    ),
    "no-rows": (
        (X_[:0], Y_[:0]),
        "X must have shape (n, d), n and d above 0, got (0, 6)",
    ),
    "no-columns": (
        (X_[:, :0], Y_),
        "X must have shape (n, d), n and d above 0, got (12, 0)",
    ),
    "no-rows-sparse": (
        (SPARSE((0, 6)), Y_[:0]),
        "X must have shape (n, d), n and d above 0, got (0, 6)",
    ),
    "no-columns-sparse": (
        (SPARSE((12, 0)), Y_),
        "X must have shape (n, d), n and d above 0, got (12, 0)",
    ),
    "nan": ((changed(X_, 5, NAN), Y_), "X must be finite, got nan in row 5, column 5"),
    "inf": (
        (changed(X_, 7, -INF), Y_),
        "X must be finite, got -inf in row 7, column 5",
    ),
    "nan-sparse": (
        (SPARSE(changed(X_, 5, NAN)), Y_),
        "X must be finite, got nan in row 5, column 5",
    ),
    "inf-sparse": (
        (SPARSE(changed(X_, 7, -INF)), Y_),
        "X must be finite, got -inf in row 7, column 5",
    ),
    "ragged": (([[1.0], [2.0, 3.0]], [1, -1]), "X must be an array, got a ragged list"),
    "text": ((np.array([["a"]] * 12), Y_), "X must hold real numbers, got dtype <U1"),
    "complex": ((X_ + 1j, Y_), "X must hold real numbers, got dtype complex128"),
    "complex-sparse": (
        (SPARSE(X_ + 1j), Y_),
        "X must hold real numbers, got dtype complex128",
    ),
    "none": ((None, Y_), "X must hold real numbers, got dtype object"),
    "one-axis-sparse": (
        (scipy.sparse.coo_array(X_[0]), Y_),
        "X must be a matrix of scipy.sparse, got coo_array",
    ),
    "zeros": (
        (0 * X_, Y_),
        "squared norms must not all be 0, got 0 in all rows; scale X up",
    ),
    "zeros-sparse": (
        (SPARSE(0 * X_), Y_),
        "squared norms must not all be 0, got 0 in all rows; scale X up",
    ),
    "tiny": (
        (1e-200 * X_, Y_),
        "squared norms must not all be 0, got 0 in all rows; scale X up",
    ),
    "huge": (
        (1e200 * X_, Y_),
        "squared norms must be finite in float64, got inf in row 0; scale X down",
    ),
    "huge-sparse": (
        (SPARSE(1e200 * changed(1e-100 * X_, 4, 1)), Y_),
        "squared norms must be finite in float64, got inf in row 4; scale X down",
    ),
}


@pytest.mark.parametrize("bad", BAD_DATA)
def test_bad_data(bad, as_installed):
    # The others have no threshold that follows from the norms.
    of_mpu = bad in ("zeros", "zeros-sparse", "tiny")
    for name in ("mpu",) if of_mpu else ("mpu", "dcd", "linear_pegasos"):
        refuses_data(name, *BAD_DATA[bad])


def refuses_data(name, data, says):
    # What `solve` converts itself it reports itself.
    says = rf"^({name}\.init|sparse_rows): {re.escape(says)}$"
    with pytest.raises(ValueError, match=says) as raised:
        bj.solve(getattr(bj, name), *data, fit_bias=False)
    assert raised.type is ValueError


def test_bad_data_in_single_precision(as_installed):
    for bad in ("a-label-of-0", "nan", "nan-sparse", "ragged", "zeros", "labels"):
        data, says = BAD_DATA[bad]
        says = f"^(mpu.init|sparse_rows): {re.escape(says)}$"
        with pytest.raises(ValueError, match=says):
            bj.mpu.init(*data, fit_bias=False)
    says = "mpu.init: squared norms must be finite in float32, got inf in row 0; "
    for X in (1e20 * X_.astype(np.float32), SPARSE(1e20 * X_)):
        with pytest.raises(ValueError, match=f"^{says}scale X down$"):
            bj.mpu.init(X, Y_)


ZERO_ROWS = np.where(np.arange(12)[:, None] == 4, 0, X_)
NO_ZEROS = (
    "hard_margin needs patterns that are not zero, got zeros in row 4; fit_bias=True "
    "appends a number to every row"
)


def not_a_kernel(x, z):
    return x @ z


INIT, SOLVE = "mpu.init", "solve"
SCALAR = "must be a scalar, got shape (2,); sweep values by jax.vmap over init"
BAD_ARGUMENTS = [
    # where, the arguments, the message
    *(
        (INIT, {"penalty": value}, f"penalty {FINITE} above 0, got {value!r}")
        for value in (0, -1.0, NAN, INF, "1", [[1.0], [1.0, 2.0]])
    ),
    (INIT, {"penalty": [1.0, -2.0]}, f"penalty {FINITE} above 0, got "),
    (INIT, {"penalty": 1e-310}, "penalty must be in the range of float64, got "),
    (INIT, {"penalty": [1.0, 1e-310]}, "penalty must be in the range of float64, "),
    (
        INIT,
        {"penalty": np.ones((1, 2))},
        "penalty must be a scalar, got shape (1, 2); ",
    ),
    (
        INIT,
        {"penalty": 1e20},
        "counts must be at most 9.0072e+15 to be exact in float64, got ",
    ),
    (
        INIT,
        {"tolerance": 1e-300},
        "counts must be at most 9.0072e+15 to be exact in float64, got ",
    ),
    *(
        (
            INIT,
            {"bias_scale": value, "fit_bias": True},
            f"bias_scale {FINITE} above 0, got {value!r}",
        )
        for value in (0.0, -1.0, NAN, INF, "x", None)
    ),
    (INIT, {"fit_bias": 1}, "fit_bias must be True or False, got 1"),
    (
        INIT,
        {"bias_scale": 1e200, "fit_bias": True},
        "squared norms must be finite in float64, got inf in row 0; scale X down",
    ),
    *(
        (
            INIT,
            {"hard_margin": value},
            f"hard_margin must be True or False, got {value!r}",
        )
        for value in (None, "yes")
    ),
    (INIT, {"hard_margin": True, "X": ZERO_ROWS}, NO_ZEROS),
    (INIT, {"hard_margin": True, "X": SPARSE(ZERO_ROWS)}, NO_ZEROS),
    (INIT, {"hard_margin": True, "X": ZERO_ROWS, "kernel": bj.Linear()}, NO_ZEROS),
    (
        INIT,
        {"hard_margin": True, "weight": np.ones(12)},
        "weight must be None, as it changes no hard margin, got weights",
    ),
    (
        INIT,
        {"weight": np.ones(11)},
        "weight must have shape (12,), one number per row of X, got (11,)",
    ),
    *(
        (
            INIT,
            {"weight": changed(np.ones(12), 3, value)},
            f"weight must be finite and above 0, got {value:g} in row 3; leave out "
            "rows that do not count",
        )
        for value in (0.0, -1.0, NAN, INF)
    ),
    (INIT, {"seed": 1.5}, "seed must be an integer scalar, got 1.5"),
    (INIT, {"seed": 2**40}, "seed must fit 32 bits, got 1099511627776"),
    *(
        (INIT, {"kernel": value}, f"kernel must be a kernel, got {value!r}")
        for value in ("rbf", bj.RBF, not_a_kernel)
    ),
    (
        INIT,
        {"kernel": bj.RBF(1.0), "X": SPARSE(X_)},
        "X must be an array, got a ragged SparseRows",
    ),
    (
        INIT,
        {"kernel": bj.Linear(), "X": 1e200 * X_},
        "squared norms must be finite in float64, got inf in row 0; scale X down",
    ),
    *(
        (
            SOLVE,
            {"tolerance": value},
            f"tolerance {FINITE} of at least 0, got {value!r}",
        )
        for value in (-1.0, NAN, INF, "a")
    ),
    (SOLVE, {"tolerance": [0.1, 0.2]}, "tolerance must be a number, got [0.1, 0.2]"),
    (SOLVE, {"max_steps": -1}, "max_steps must be at least 0, got -1"),
    (SOLVE, {"max_steps": 1.5}, "max_steps must be an integer, got 1.5"),
    (SOLVE, {"max_steps": True}, "max_steps must be an integer, got True"),
    (SOLVE, {"progress": "yes"}, "progress must be True or False, got 'yes'"),
]


@pytest.mark.parametrize(
    ("where", "given", "says"), BAD_ARGUMENTS, ids=range(len(BAD_ARGUMENTS))
)
def test_bad_arguments(where, given, says, as_installed):
    """A message that ends in a blank is one whose numbers do not matter."""
    end = "" if says.endswith((" ", "=")) else "$"
    given = {"X": X_, "y": Y_, "fit_bias": False} | given
    with pytest.raises(ValueError, match=f"^{where}: {re.escape(says)}{end}") as raised:
        bj.solve(bj.mpu, **given)
    assert raised.type is ValueError


def test_tolerances_that_need_double_precision(as_installed):
    X = X_.astype(np.float32)
    # Its own default is one that float32 holds.
    default, least = (
        bj.mpu.init(X, Y_, **given) for given in ({}, {"tolerance": 1e-2})
    )
    assert default.threshold == least.threshold
    for given in ({}, {"hard_margin": True}):
        says = (
            "mpu.init: tolerance must be at least 0.01 in float32, got 0.001; "
            "use solve, which computes in float64, or jax.enable_x64"
        )
        with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
            bj.mpu.init(X, Y_, tolerance=1e-3, **given)
    assert bj.mpu.init(X, Y_, tolerance=0.1).most < 1e5
    says = "mpu.init: counts must be at most 1.67772e+07 to be exact in float32, got "
    with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
        bj.mpu.init(X, Y_, tolerance=0.1, penalty=1e6)
    with pytest.raises(ValueError, match=f"^mpu.init: penalty {re.escape(SCALAR)}$"):
        bj.mpu.init(X, Y_, penalty=np.array([1.0, 2.0]))


def test_penalties_so_small_that_thresholds_overflow(as_installed):
    says = "mpu.init: threshold must have a square within float64, got "
    with pytest.raises(ValueError, match=f"^{re.escape(says)}"):
        run(X_, Y_, penalty=1e-300)


@pytest.mark.parametrize("bad", [X_, X_.tolist(), None, "text"])
def test_what_sparse_rows_are_not_made_of(bad, as_installed):
    says = f"sparse_rows: X must be a matrix of scipy.sparse, got {type(bad).__name__}"
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        bj.sparse_rows(bad)


def test_bad_numbers_in_sparse_rows(as_installed):
    says = "sparse_rows: X must be finite, got nan in row 5, column 5"
    with pytest.raises(ValueError, match=f"^{says}$"):
        bj.sparse_rows(SPARSE(changed(X_, 5, NAN)))


@pytest.mark.parametrize("method", ["decision_function", "predict"])
def test_bad_rows_to_decide(method, as_installed):
    model = bj.LinearModel(jnp.ones(6), jnp.array(0.0))
    table = [
        (X_[:, 1:], "(12, 5)"),
        (SPARSE(X_[:, 1:]), "(12, 5)"),
        (X_[0], "(6,)"),
    ]
    for bad, says in table:
        says = re.escape(
            f"{method}: X must have shape (n, 6), 6 being the model's num_features, "
            f"got {says}"
        )
        with pytest.raises(ValueError, match=f"^{says}$"):
            getattr(model, method)(bad)
    for convert in (np.asarray, SPARSE):
        says = f"{method}: X must be finite, got nan in row 2, column 5"
        with pytest.raises(ValueError, match=f"^{says}$"):
            getattr(model, method)(convert(changed(X_, 2, NAN)))


def test_another_training_set_is_refused():
    state = bj.mpu.init(X_, Y_)
    says = "X must be the training set of the state, of shape (12, 6), got (12, 3)"
    with pytest.raises(ValueError, match=f"^solve: {re.escape(says)}$"):
        bj.solve(bj.mpu, X_[:, :3], Y_, state=state)
    says = "y must be that of the training set of the state, in its order"
    with pytest.raises(ValueError, match=f"^solve: {says}"):
        bj.solve(bj.mpu, X_, -Y_, state=state)
