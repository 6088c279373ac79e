"""The batch learners, against plain NumPy and scikit-learn."""

import functools
import math
import os
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import same
from compiling import AS_USERS_COMPILE, quick_to_compile
from marks import slow
from reference import kernel_svm, kernels
from reference import sbp as reference
from sklearn.svm import SVC
from solving import CLASSES, close

import budgetjax as bj
from budgetjax.datasets import load
from budgetjax.solvers import row_cache, solver
from budgetjax.solvers.kernel import water_level

N, D = 60, 64
GAMMA = 0.01
LEARNERS = ("sbp", "kernel_pegasos", "ball_sgd", "sdca", "smo")


@functools.cache
def digits(n=N):
    """3 against the rest, standardised."""
    data = load("digits")
    X = np.asarray(data.X_train[:n], np.float64)
    return X, np.where(data.y_train[:n] == 3, 1.0, -1.0)


@functools.cache
def noisy(n=N, flipped=0.1):
    """Two features and many that say nothing, with wrong labels; shaped as digits."""
    random = np.random.default_rng(0)
    X = np.zeros((n, D))
    X[:, :2] = 8 * random.normal(size=(n, 2))
    X[5] = X[7]  # a tie, of other labels perhaps
    y = np.where(np.sin(X[:, 0] / 4) * X[:, 1] + random.normal(size=n) > 0, 1.0, -1.0)
    return X, np.where(random.random(n) < flipped, -y, y)


DATA = {"digits": digits, "noisy": noisy}


@functools.cache
def signed(name, n=N, gamma=GAMMA):
    X, y = DATA[name](n)
    return kernel_svm.signed_matrix(kernels.rbf(gamma), X, y)


SLACK, PENALTY, RADIUS = 0.05, 50 / 3, 5.0


def solver_of(name, *, gamma=GAMMA, **given):
    needed = {"penalty": PENALTY}
    if name == "sbp":
        needed = {"slack": SLACK, "fit_bias": False}
    if name == "ball_sgd":
        needed = {"radius": RADIUS}
    return CLASSES[name](bj.RBF(gamma), **needed | given)


def started(name, X, y, cache_size=512.0, **given):
    """The state of the zero model, and the training set that was read."""
    solver = solver_of(name, **given)
    data = solver.read(X, y)
    return solver.init(data, bj.KernelCache(cache_size)), data


def run(name, X, y, *, cache=None, max_steps=None, callback_every=None, **given):
    """The solution of all steps, or as many as are needed."""
    given = {"tolerance": None} | given
    run = {"cache": cache, "max_steps": max_steps, "callback_every": callback_every}
    return bj.solve(solver_of(name, **given), X, y, **run)


# Steps that a path has room for, and examples to a step in most tests: a program that
# is compiled for one test serves others.
ROOM, BATCH = 400, 8


@jax.jit
def stepped(state, data, steps):
    """The last state, and those after each step, without their kernel rows."""

    def kept(state):
        return state._replace(solver=None, rows=None, key=None)

    def body(t, carry):
        state, path = carry
        state = state.solver.step(state, data)
        path = jax.tree.map(lambda all, one: all.at[t].set(one), path, kept(state))
        return state, path

    path = jax.tree.map(
        lambda leaf: jnp.zeros((ROOM, *leaf.shape), leaf.dtype), kept(state)
    )
    return jax.lax.fori_loop(0, steps, body, (state, path))


@jax.jit
def objective(state, data):
    return state.solver.objective(state, data)


def path_of(state, data, steps):
    """The path as NumPy arrays, one row per step, and the last state."""
    last, path = stepped(state, data, steps)
    return jax.tree.map(lambda leaf: np.asarray(leaf)[:steps], path), last


# Water levels.


def grounds(cases, n, seed, padded):
    """Heights, of which some are infinite if padded; volumes and where to begin.

    Ties, steps, all the same, far apart; no water, little, and more than enough.
    """
    random = np.random.default_rng(seed)
    kinds = random.integers(0, 5, cases)
    heights = random.normal(size=(cases, n))
    heights = np.where(kinds[:, None] == 1, np.round(heights), heights)
    heights = np.where(kinds[:, None] == 2, heights[:, :1], heights)
    heights = np.where(kinds[:, None] == 3, heights * 1e3, heights)
    heights = np.where(kinds[:, None] == 4, heights + 50, heights)
    if padded:
        lengths = random.integers(1, n + 1, cases)
        lengths[:50] = 1
        heights = np.where(np.arange(n) < lengths[:, None], heights, np.inf)
    volumes = random.choice([0, 1e-9, 0.1, 1, 10, 1e4], cases) * random.uniform(
        0.5, 1, cases
    )
    # Whole volumes over whole heights fill up to exactly the next one.
    volumes = np.where(kinds == 1, np.round(volumes), volumes)
    guesses = random.choice([-1e4, -1, 0, 1, 1e4], cases) * random.random(cases)
    return heights, volumes, guesses


def size_of(heights, volume, guess=0.0):
    """What rounding errors are relative to."""
    return 1 + np.abs(heights).max() + volume + abs(guess)


def test_levels(double):
    heights, volumes, guesses = grounds(5000, 12, seed=0, padded=True)
    many = jax.jit(jax.vmap(water_level.level))
    given = heights, volumes, guesses
    ours, single = (
        np.asarray(many(*(each.astype(dtype) for each in given)))
        for dtype in (np.float64, np.float32)
    )
    assert single.dtype == np.float32
    for case, (ground, volume) in enumerate(zip(heights, volumes, strict=True)):
        ground = ground[np.isfinite(ground)]
        size = size_of(ground, volume, guesses[case])
        expected = reference.level(ground, volume)
        assert abs(ours[case] - expected) <= 1e-14 * size
        assert abs(single[case] - expected) <= 1e-6 * size
        if case % 10 == 0:
            other = reference.level_by_bisection(ground, volume)
            assert abs(expected - other) <= 1e-13 * size


@pytest.mark.parametrize("n", [2, 12])
def test_levels_with_a_bias(n, double):
    cases = 2000
    heights, volumes, guesses = grounds(cases, n, seed=n, padded=False)
    random = np.random.default_rng(n)
    y = np.where(random.random((cases, n)) < random.random((cases, 1)), 1.0, -1.0)
    y[:, 0], y[:, 1] = 1, -1  # both classes
    biases = random.choice([-1e3, -1, 0, 1, 1e3], cases) * random.random(cases)
    reaches = random.choice([1e-3, 1, np.inf], cases)
    best = jax.jit(jax.vmap(water_level.balanced_level))
    given = heights, y, volumes, (guesses, biases), reaches
    ours, bias = (np.asarray(each) for each in best(*given))
    near, near_bias = ours, bias
    if n > 2:
        near, near_bias = (
            np.asarray(each) for each in best(*given, np.full(cases, 0.1))
        )
    for case, (ground, signs, volume) in enumerate(
        zip(heights, y, volumes, strict=True)
    ):
        size = size_of(ground, volume, guesses[case])
        expected, expected_bias = reference.balanced_level(ground, signs, volume)
        assert abs(ours[case] - expected) <= 1e-13 * size
        # A level is that of its bias, best or not.
        for level, at in ((ours, bias), (near, near_bias)):
            moved = ground + signs * at[case]
            same = reference.level(moved, volume)
            assert abs(level[case] - same) <= 1e-13 * size
        assert expected - 0.1 - 1e-13 * size <= near[case] <= expected + 1e-13 * size
        same = reference.level(ground + signs * expected_bias, volume)
        assert abs(expected - same) <= 1e-13 * size
        if case % 20 == 0:
            other = reference.balanced_level_by_search(ground, signs, volume)
            assert abs(expected - other) <= 1e-10 * size


# Kernel rows.


def rows_of(X, y, batch, cache_size=1e-9):
    data = solver_of("sdca").read(X, y)
    return row_cache.compute_rows(bj.RBF(GAMMA), data, batch, cache_size)


@pytest.fixture
def none_at_the_start(monkeypatch):
    """Rows are computed when they are needed, though all fit."""
    monkeypatch.setattr(row_cache, "AFFORDABLE_EXAMPLES", 0)


fetch, product, signed_block = (
    jax.jit(functools.partial(function, bj.RBF(GAMMA)))
    for function in (row_cache.fetch, row_cache.product, row_cache.signed_block)
)


@pytest.mark.parametrize(("batch", "places"), [(4, 2.5), (40, 2), (40, 1000)])
def test_kept_rows(batch, places, double, none_at_the_start):
    """A ring of rows: those asked for are right, however often it has been round."""
    n = 100
    X, y = noisy(n)
    Q = signed("noisy", n) * y[:, None] * y
    rows = rows_of(X, y, batch, cache_size=places * batch * n * 8 / 2**20)
    size = min(n, int(places * batch))
    assert rows.kept.shape == (size, n)
    np.testing.assert_allclose(rows.diagonal, np.ones(n))
    random = np.random.default_rng(0)
    computed, seen = 0, set()
    examples = np.arange(0)
    for call in range(100):
        # Sometimes those of before again, half of them or all, in another order.
        again = examples[: (0, batch // 2, batch)[call % 3]]
        others = random.permutation(np.setdiff1d(np.arange(n), again))
        examples = np.append(again, others[: batch - len(again)]).astype(np.int32)
        examples = random.permutation(examples)
        wanted = random.random(batch) < random.choice([0, 0.2, 1])
        rows = fetch(rows, X, examples, wanted)
        asked = examples[wanted]
        kept, owners, where = (
            np.asarray(each) for each in (rows.kept, rows.owners, rows.places)
        )
        np.testing.assert_allclose(kept[where[asked]], Q[asked], atol=1e-13)
        # Whoever has a place owns it, and its row is there.
        held = np.flatnonzero(where >= 0)
        np.testing.assert_array_equal(owners[where[held]], held)
        np.testing.assert_allclose(kept[where[held]], Q[held], atol=1e-13)
        assert computed <= int(rows.num_computed) <= computed + len(asked)
        computed = int(rows.num_computed)
        seen |= set(asked.tolist())
    assert rows.num_values(batch) == n * computed
    if size == n:
        assert computed == len(seen)
    else:
        assert computed > 4 * size, "the ring should have gone round"


@pytest.mark.parametrize("n", [60, 300])
def test_products_with_all_rows(n, double):
    """Nothing is computed where all is known, and less than all is not kept."""
    X, y = noisy(n)
    Q, alpha = signed("noisy", n), np.random.default_rng(0).random(n)
    for cache_size in (None, 1e-9):
        rows = rows_of(X, y, 4, cache_size=cache_size)
        after, found = product(rows, X, y, alpha)
        close(found, Q @ alpha, 1e-13)
        computed = int(after.num_computed) - int(rows.num_computed)
        assert computed == (0 if rows.complete else n)
        assert rows.complete == (cache_size is None)
        examples = np.array([7, 5, 7, 0], np.int32)
        blocked, block = signed_block(rows, X, y, examples)
        np.testing.assert_allclose(block, Q[examples][:, examples], atol=1e-13)
        assert blocked.num_values(4) == (n * n if rows.complete else 16)
        if rows.complete:
            kept = y[:, None] * y * np.asarray(rows.kept)
            np.testing.assert_allclose(kept, Q, atol=1e-13)
            fetched = fetch(rows, X, examples[:2], np.ones(2, bool))
            np.testing.assert_array_equal(fetched.places, np.arange(n))
            assert fetched.num_values(4) == n * n
    size = n * n * 8 / 2**20
    assert rows_of(X, y, 4, cache_size=1.01 * size).complete
    assert not rows_of(X, y, 4, cache_size=0.99 * size).complete


@pytest.mark.parametrize("name", ["sbp", "smo"])
@quick_to_compile(False)
def test_compiled_steps_neither_copy_rows_nor_compute_those_they_have(name):
    """Rows are written where they are, and computed in loops over what is missing."""
    batch = 8
    X, y = (array.astype(np.float32) for array in noisy())
    state, data = started(name, X, y, batch_size=batch, cache_size=1e-9)
    program = jax.jit(state.solver.step, donate_argnums=0)
    text = program.lower(state, data).compile(AS_USERS_COMPILE).as_text()
    assert re.search(rf"f32\[{2 * batch},{N}\]", text)
    assert not re.search(rf"= f32\[{2 * batch},{N}\]\S* copy\(", text)
    # The matrix product of new rows.
    shape = rf"= f32\[{batch},{N}\]\S* (fusion|dot|custom-call)\("
    assert re.search(shape, text)
    assert not re.search(shape, text[text.index("ENTRY") :])


def test_problems_with_other_labels_share_rows(double, none_at_the_start):
    """A second problem on the same rows computes only what the first did not need."""
    X, y = noisy()
    other = np.where(X[:, 1] > 0, 1.0, -1.0)
    steps, cache = 30, bj.KernelCache(1.0)
    given = {"batch_size": BATCH, "max_steps": steps}
    alone = run("smo", X, other, cache=bj.KernelCache(1.0), **given)
    first = run("smo", X, y, cache=cache, **given)
    sharing = run("smo", X, other, cache=cache, **given)
    before, after, anew = (
        (found.history.work[-1] - steps * BATCH**2) / N
        for found in (first, sharing, alone)
    )
    assert before + after <= N, "there is room for all rows, each computed once"
    assert after < 0.6 * anew
    same(sharing.model, alone.model)
    state = sharing.state
    Q = kernel_svm.signed_matrix(kernels.rbf(GAMMA), X, other)
    close(state.responses, Q @ np.asarray(state.coefficients), 1e-12)


# Update by update.


def check_sbp(Q, y, path, given):
    """The steps of SBP against Algorithm 1, for the draws that they tell of."""
    drawn = reference.draws(path.coefficients)
    expected = reference.run(Q, drawn)
    close(path.coefficients, expected.coefficients)
    close(path.responses, expected.responses)
    close(path.squared_norm, expected.squared_norms)
    close(path.mean_coefficients[-1], expected.mean_coefficients)
    close(path.mean_responses[-1], expected.mean_responses)
    np.testing.assert_array_equal(path.num_updates, 1 + np.arange(len(drawn)))
    # The bias is exact to a hundredth of what an update can change a response by.
    rates = 1 / np.sqrt(1 + np.arange(len(drawn)))
    slack = 0.01 * rates if given["fit_bias"] else 1e-12 * rates
    for t, c in enumerate(expected.responses):
        level, bias = float(path.level[t]), float(path.bias[t])
        same = reference.level(c + y * bias, len(Q) * given["slack"])
        assert abs(level - same) < 1e-12
        if given["fit_bias"]:
            best = reference.balanced_level(c, y, len(Q) * given["slack"])[0]
            assert best - slack[t] <= level <= best + 1e-12
        else:
            assert bias == 0
    # Whoever is drawn is under water; with a bias the classes take turns.
    for t, i in enumerate(drawn[1:]):
        height = expected.responses[t][i] + y[i] * path.bias[t]
        assert height < path.level[t] + 1e-12
    if given["fit_bias"]:
        np.testing.assert_array_equal(y[drawn], np.resize([1, -1], len(drawn)))
    return drawn


@pytest.mark.parametrize(
    ("data", "slack", "fit_bias"),
    [
        ("digits", 0.0, True),
        ("digits", 0.05, False),
        ("digits", 2.0, True),
        ("noisy", 0.0, False),
        ("noisy", 0.05, True),
        ("noisy", 2.0, False),
    ],
)
def test_sbp_against_its_reference(data, slack, fit_bias, double):
    X, y = DATA[data]()
    given = {"slack": slack, "fit_bias": fit_bias}
    path, _ = path_of(*started("sbp", X, y, batch_size=1, **given), 300)
    drawn = check_sbp(signed(data), y, path, given)
    assert len(set(drawn)) > 15


def test_the_average_of_the_paper(double):
    """Of all iterates alike, in place of the t-th with the weight t."""
    X, y = noisy()
    given = {"batch_size": 1, "slack": 0.05}
    path, _ = path_of(*started("sbp", X, y, average_power=0.0, **given), 300)
    close(path.mean_coefficients[-1], np.mean(path.coefficients, axis=0))
    close(path.mean_responses[-1], np.mean(path.responses, axis=0))
    # The draws do not depend on it.
    other, _ = path_of(*started("sbp", X, y, **given), 300)
    close(path.coefficients, other.coefficients)
    assert np.max(np.abs(path.mean_responses[-1] - other.mean_responses[-1])) > 1e-3


@pytest.mark.parametrize("fit_bias", [False, True], ids=["", "bias"])
def test_sbp_draws_each_example_under_water_as_likely(fit_bias, double):
    X, y = digits()
    given = {"batch_size": 1, "slack": 0.05, "fit_bias": fit_bias}
    state, data = started("sbp", X, y, **given)
    _, state = path_of(state, data, 300)
    draws = 1000
    new = [
        stepped(state._replace(key=key), data, 1)[0].coefficients
        for key in jax.random.split(state.key, draws)
    ]
    old = np.asarray(state.coefficients)
    drawn = [reference.draws([old, np.asarray(each)])[1] for each in new]
    counts = np.bincount(drawn, minlength=N)
    heights = np.asarray(state.responses) + y * float(state.bias)
    wet = heights < float(state.level)
    if fit_bias:
        wet &= y > 0  # of an even number of updates so far
    assert 3 < wet.sum() < N
    assert np.all(counts[~wet] == 0)
    expected = draws / wet.sum()
    assert np.all(np.abs(counts[wet] - expected) < 5 * np.sqrt(expected))


def drawn_reference(name, Q, drawn, penalty):
    """Coefficients after each visit to a drawn example; None is a visit in vain."""
    if name == "sdca":
        return kernel_svm.sdca(Q, drawn, penalty=penalty)
    if name == "ball_sgd":
        return kernel_svm.ball_sgd(Q, drawn, radius=RADIUS)[0]
    return kernel_svm.pegasos(Q, drawn, penalty=penalty)[0]


@pytest.mark.parametrize("name", ["kernel_pegasos", "sdca"])
@pytest.mark.parametrize(("data", "penalty"), [("digits", 50 / 3), ("noisy", 1 / 6)])
def test_visits_against_their_reference(data, penalty, name, double):
    (X, y), Q = DATA[data](), signed(data)
    path, _ = path_of(*started(name, X, y, batch_size=1, penalty=penalty), 300)
    # A change tells whom the draw was.
    drawn = kernel_svm.changed(path.coefficients)
    expected = drawn_reference(name, Q, drawn, penalty)
    close(path.coefficients, expected)
    close(path.responses, np.asarray(expected) @ Q)
    np.testing.assert_array_equal(path.num_visits, 1 + np.arange(len(drawn)))
    updates = np.cumsum([i is not None for i in drawn])
    np.testing.assert_array_equal(path.num_updates, updates)
    if name == "kernel_pegasos":
        # A count that stays tells that the draw was no violation.
        _, margins = kernel_svm.pegasos(Q, drawn, penalty=penalty)
        for i, each in zip(drawn, margins, strict=True):
            assert i is not None or each.max() >= 1
        assert 3 < sum(i is None for i in drawn) < 290
    else:
        for i, a in zip(drawn[1:], expected, strict=False):
            # A draw that changes nothing was of a coefficient at its best.
            slopes = 1 - Q @ a
            still = (slopes <= 0) & (a == 0) | (slopes >= 0) & (a == penalty)
            assert i is not None or still.any()


def drawn_by(state, batch, steps):
    """The examples that the steps of a solver draw from its key."""
    drawn, key = [], state.key
    for _ in range(steps):
        key, draw = jax.random.split(key)
        drawn += jax.random.randint(draw, (batch,), 0, N, jnp.int32).tolist()
    return drawn


@pytest.mark.parametrize("batch", [1, BATCH])
@pytest.mark.parametrize(("data", "radius"), [("digits", 2.0), ("noisy", RADIUS)])
def test_the_ball_against_its_reference(data, radius, batch, double):
    """The iterates and their average, inside the ball first and then on its surface."""
    Q, steps = signed(data), 300 // batch
    given = {"batch_size": batch, "radius": radius}
    state, held = started("ball_sgd", *DATA[data](), **given)
    path, _ = path_of(state, held, steps)
    drawn = drawn_by(state, batch, steps)
    iterates, means = kernel_svm.ball_sgd(Q, drawn, radius=radius)
    violates = [Q[i] @ a < 1 for i, a in zip(drawn[1:], iterates, strict=False)]
    assert 3 < np.sum(violates) < len(drawn) - 3
    ends = slice(batch - 1, None, batch)
    close(path.coefficients, iterates[ends])
    close(path.responses, iterates[ends] @ Q)
    close(path.mean_coefficients, means[ends])
    close(path.mean_responses, means[ends] @ Q)
    updates = np.cumsum([True, *violates])[ends]
    np.testing.assert_array_equal(path.num_updates, updates)
    lengths = np.sqrt(np.sum(path.coefficients * path.responses, axis=1))
    assert np.all(lengths <= radius * (1 + 1e-12))
    assert np.isclose(np.max(lengths), radius)


@pytest.mark.parametrize("name", ["kernel_pegasos", "ball_sgd", "sdca"])
def test_draws_of_a_batch_are_visited_one_after_another(name, double):
    """The examples of a step, some of them twice, against single visits."""
    X, y = noisy()
    batch, steps = BATCH, 40
    state, data = started(name, X, y, batch_size=batch)
    path, _ = path_of(state, data, steps)
    drawn = drawn_by(state, batch, steps)
    assert any(len(set(drawn[k : k + batch])) < batch for k in range(0, 320, batch))
    expected = drawn_reference(name, signed("noisy"), drawn, 50 / 3)
    close(path.coefficients, expected[batch - 1 :: batch])
    close(path.responses, np.asarray(expected[batch - 1 :: batch]) @ signed("noisy"))
    np.testing.assert_array_equal(path.num_visits, batch * (1 + np.arange(steps)))


@pytest.mark.parametrize(
    ("fit_bias", "data", "penalty"),
    [
        (False, "digits", 50 / 3),
        (False, "noisy", 1 / 6),
        (True, "digits", 5 / 6),
        (True, "noisy", 50 / 3),
    ],
)
def test_smo_against_its_reference(fit_bias, data, penalty, double):
    (X, y), Q = DATA[data](), signed(data)
    given = {"batch_size": 1 + fit_bias, "fit_bias": fit_bias, "penalty": penalty}
    path, _ = path_of(*started("smo", X, y, **given), 60)
    if fit_bias:
        pairs = kernel_svm.changed_pairs(path.coefficients, y)
        expected, missed = kernel_svm.smo_pair(Q, y, pairs, penalty=penalty)
    else:
        drawn = kernel_svm.changed(path.coefficients)
        expected, missed = kernel_svm.smo_single(Q, drawn, penalty=penalty)
    assert np.max(missed) < 1e-9
    close(path.coefficients, expected)
    close(path.responses, np.asarray(expected) @ Q)
    np.testing.assert_array_equal(path.num_updates, 1 + np.arange(60))


# Batches.


@pytest.mark.parametrize(
    ("slack", "fit_bias"), [(0.0, False), (1e-4, True), (0.05, False), (0.05, True)]
)
def test_batches_of_sbp(slack, fit_bias, double):
    X, y = noisy()
    Q = signed("noisy")
    given = {"batch_size": BATCH, "slack": slack, "fit_bias": fit_bias}
    path, _ = path_of(*started("sbp", X, y, **given), 150)
    close(path.responses, path.coefficients @ Q, 1e-12)
    close(path.mean_responses, path.mean_coefficients @ Q, 1e-12)
    norms = np.sum(path.coefficients * path.responses, axis=1)
    close(path.squared_norm, norms, 1e-12)
    assert np.all(norms < 1 + 1e-12)
    assert np.all(path.coefficients >= 0)
    made = np.diff(path.num_updates, prepend=0)
    assert made.min() >= 1
    assert made.max() <= BATCH
    assert slack < 0.01 or made.max() > 4, "no step made many updates"
    for c, level, bias in zip(path.responses, path.level, path.bias, strict=True):
        assert abs(reference.level(c + y * bias, N * slack) - level) < 1e-12


@pytest.mark.parametrize(
    ("name", "fit_bias", "penalty"),
    [
        ("sdca", False, 50 / 3),
        *slow(("sdca", False, 1 / 6)),
        ("smo", True, 50 / 3),
        *slow(("smo", True, 1 / 6), ("smo", False, 50 / 3)),
    ],
)
def test_batches_of_dual_solvers(name, fit_bias, penalty, double):
    X, y = noisy()
    Q = signed("noisy")
    given = {"fit_bias": fit_bias} if name == "smo" else {}
    given |= {"batch_size": BATCH, "penalty": penalty}
    state, data = started(name, X, y, **given)
    path, last = path_of(state, data, ROOM)
    close(path.responses, path.coefficients @ Q, 1e-12)
    assert np.all(path.coefficients >= -1e-15 * penalty)
    assert np.all(path.coefficients <= penalty * (1 + 1e-15))
    if fit_bias:
        assert np.all(np.abs(path.coefficients @ y) < 1e-13 * penalty * N)
    values = np.array([kernel_svm.dual(Q, a) for a in path.coefficients])
    assert np.all(np.diff(values) > -1e-14 * np.max(values))
    made = np.diff(path.num_updates, prepend=0)
    assert np.all(made >= (name == "smo"))
    # What is reported is what the reference says, and closes on the optimum.
    primal, dual = objective(last, data)
    a = path.coefficients[-1]
    bias = kernel_svm.best_bias(Q, y, a) if fit_bias else 0.0
    close(dual, values[-1], 1e-12)
    close(primal, kernel_svm.primal(Q, y, a, penalty, bias), 1e-12)
    gap = float(primal - dual)
    assert -1e-14 * primal < gap < (0.3 if name == "sdca" else 1e-4) * primal


@pytest.mark.parametrize("name", ["kernel_pegasos", "ball_sgd", "sdca"])
def test_no_copy_of_the_kept_rows(name):
    X, y = (part.astype(np.float32) for part in noisy())
    state, data = started(name, X, y, batch_size=4, cache_size=1e-9)
    state, rows = state.solver.split_rows(state)
    assert rows.kept.shape == (8, N)
    text = solver._advance_in_place.lower(state, rows, data, jnp.int32(9))
    text = text.compile(AS_USERS_COMPILE).as_text()
    assert re.search(rf"f32\[8,{N}\]", text)
    assert not re.search(rf"f32\[8,{N}\]\S* copy\(", text)


@pytest.mark.parametrize("name", ["sbp", "ball_sgd", "sdca", "smo"])
def test_a_small_cache_changes_nothing(name, double):
    """All rows known, kept while there is room, and a ring that goes round."""
    X, y = noisy()
    # SBP prefers examples whose rows it has: only single updates are the same.
    batch, steps = (1 if name == "sbp" else BATCH), 200
    found = []
    for given in ({"cache_size": None}, {"cache_size": 1e-9}):
        path, last = path_of(*started(name, X, y, batch_size=batch, **given), steps)
        close(path.responses, path.coefficients @ signed("noisy"), 1e-12)
        found.append((path, last.rows))
    (expected, whole), (path, ring) = found
    if name == "smo":
        # Rounding chooses among equal candidates, so only the ends are the same.
        close(path.responses[-1], expected.responses[-1], 1e-5)
    else:
        close(path.coefficients, expected.coefficients)
        close(path.responses, expected.responses)
    assert whole.num_values(batch) == N * N
    assert ring.kept.shape == (2 * batch, N)
    computed, blocks = int(ring.num_computed), int(ring.num_blocks)
    assert computed > 3 * N
    assert blocks == (0 if name == "sbp" else steps)
    assert ring.num_values(batch) == computed * N + blocks * batch**2


def test_responses_stay_exact_in_float32():
    """Over 30,000 updates; plain sums are off by 6e-5 then."""
    X, y = (part.astype(np.float32) for part in digits(500))
    given = {"penalty": 100, "max_steps": 4000, "callback_every": 4000}
    state = run("sdca", X, y, **given).state
    assert int(state.num_updates) > 20_000
    exact = signed("digits", 500) @ np.asarray(state.coefficients, np.float64)
    np.testing.assert_allclose(state.responses, exact, rtol=0, atol=1e-5)


# Optima.


@functools.cache
def optimum(name, n, penalty, fit_bias):
    """P of an independent solver, and the slack and level that belong to it."""
    y = DATA[name](n)[1]
    Q = signed(name, n)
    K = Q * y[:, None] * y
    if fit_bias:
        a, bias = kernel_svm.svc(K, y, penalty)
        value = kernel_svm.primal(Q, y, a, penalty, bias)
        c = Q @ a
        return value, *kernel_svm.slack_of(c + y * bias, math.sqrt(a @ c))
    return kernel_svm.linear_svc(K, y, penalty)


# Examples of digits, and steps on them.
MANY, STEPS = 500, {False: 180, True: 40}


def level_of(c, y, slack, fit_bias):
    volume = len(c) * slack
    if fit_bias:
        return reference.balanced_level(c, y, volume)[0]
    return reference.level(c, volume)


@pytest.mark.parametrize("fit_bias", [False, *slow(True)], ids=["", "bias"])
def test_the_average_of_sbp_climbs_to_the_optimum(fit_bias, double):
    """Within 1 % of the highest level, whatever the seed."""
    X, y = digits(MANY)
    Q = signed("digits", MANY)
    _, slack, best = optimum("digits", MANY, 0.1, fit_bias)
    for seed in range(2):
        given = {"slack": slack, "fit_bias": fit_bias, "seed": seed}
        state, data = started("sbp", X, y, **given)
        path, last = path_of(state, data, STEPS[fit_bias])
        norms = np.sum(path.coefficients * path.responses, axis=1)
        assert np.all(norms < 1 + 1e-12)
        alpha = path.mean_coefficients[-1]
        reached = level_of(path.mean_responses[-1], y, slack, fit_bias)
        if fit_bias:
            halves = [np.sum(alpha[y == sign]) for sign in y]
            bound = reference.upper_bound(Q, alpha / np.array(halves) / 2, slack, y)
        else:
            bound = reference.upper_bound(Q, alpha / alpha.sum(), slack)
        assert 0.99 * best < reached < best * (1 + 1e-6)
        assert best * (1 - 1e-6) < bound < 1.7 * best
        primal, dual = objective(last, data)
        close(primal, reached, 1e-12)
        # With a bias what makes both classes weigh the same is estimated from above.
        assert bound * (1 - 1e-9) <= dual <= bound * (1.01 if fit_bias else 1 + 1e-9)
    # A slack from a regularised optimum gives that optimum, and its decisions.
    if fit_bias:
        test = digits(1500)[0][MANY:]
        svc = SVC(C=0.1, gamma=GAMMA, tol=1e-6).fit(X, y)
        ours, theirs = (
            np.asarray(model.decision_function(test))
            for model in (last.solver.model(last, data), svc)
        )
        assert np.mean((ours > 0) == (theirs > 0)) >= 0.995
        # The values too: both have margins of 1.
        assert np.mean(np.abs(ours - theirs)) < 0.05


def test_the_rate_of_the_uniform_average_of_sbp(double):
    """Lemma 3.2: 3 / sqrt(T), by Zinkevich's bound in a ball of radius 1."""
    X, y = digits(MANY)
    _, slack, best = optimum("digits", MANY, 0.1, False)
    for seed in range(3):
        given = {"slack": slack, "average_power": 0.0, "seed": seed}
        path, _ = path_of(*started("sbp", X, y, **given), STEPS[False])
        T = path.num_updates.astype(float)
        levels = [level_of(c, y, slack, False) for c in path.mean_responses]
        levels = np.array(levels)
        scaled = (best - levels) * np.sqrt(T)
        assert T[-1] > 10_000
        assert np.all(scaled < 3)
        # Here a fifth of that, and the rate is no better.
        assert 0.2 < np.min(scaled) < np.max(scaled) < 0.6


@pytest.mark.parametrize("fit_bias", [False, True], ids=["", "bias"])
def test_sbp_with_little_slack(fit_bias, double):
    """Few examples are under water, of either class; it must not wait for others."""
    X, y = digits(MANY)
    _, slack, best = optimum("digits", MANY, 10.0, fit_bias)
    assert slack < 1e-4
    given = {"slack": slack, "fit_bias": fit_bias}
    path, _ = path_of(*started("sbp", X, y, **given), STEPS[fit_bias])
    assert np.all(np.diff(path.num_updates) >= 1)
    early, late = (
        level_of(path.mean_responses[t], y, slack, fit_bias) for t in (20, -1)
    )
    assert early < late
    assert 0.7 * best < late < best * (1 + 1e-6)


@pytest.mark.parametrize(
    ("name", "given"),
    [("sdca", {}), ("smo", {"fit_bias": False}), ("smo", {})],
    ids=["sdca", "smo-no-bias", "smo"],
)
def test_rivals_reach_the_optimum(name, given, double):
    """That of scikit-learn, to 1e-4, with a gap that is never below the true one."""
    X, y = digits(MANY)
    best = optimum("digits", MANY, 0.1, not given and name == "smo")[0]
    stop = {"max_steps": 3000, "tolerance": 5e-5, "callback_every": 50}
    history = run(name, X, y, **given, penalty=0.1, **stop).history
    assert np.all(history.gap >= 0)
    assert history.gap[-1] <= 5e-5
    assert np.all(history.dual <= best * (1 + 1e-7))
    assert np.all(history.primal >= best * (1 - 1e-7))
    assert np.all(np.diff(history.dual) > -1e-14 * best)
    np.testing.assert_allclose(history.primal[-1], best, rtol=1e-4)


def test_the_rate_of_the_average_in_a_ball(double):
    """5 r U / sqrt(T) above the least loss, by Zinkevich's bound; and bounds below."""
    X, y = digits(MANY)
    value, slack, level = optimum("digits", MANY, 0.1, False)
    # The optimum of the SVM is that of its ball, where the loss is slack times norm.
    radius = 1 / level
    best = slack * radius
    assert value == pytest.approx(radius**2 / 2 + 0.1 * MANY * best)
    for seed in range(3):
        given = {"radius": radius, "max_steps": 400, "callback_every": 20}
        history = run("ball_sgd", X, y, seed=seed, **given).history
        T = 64.0 * history.step[1:]
        scaled = (history.primal[1:] - best) * np.sqrt(T)
        close(history.primal[0], 1)
        assert np.all(history.dual <= best * (1 + 1e-9))
        assert 0.5 * best < history.dual[-1]
        assert np.all(scaled < 5 * radius)
        # Here a fiftieth of that, and the rate is no better.
        assert 0.05 * radius < np.min(scaled) < np.max(scaled) < 0.1 * radius


def test_kernel_pegasos_comes_down(double):
    """Its objective falls towards the optimum, and its bound holds."""
    X, y = digits(MANY)
    best = optimum("digits", MANY, 0.1, False)[0]
    given = {"penalty": 0.1, "max_steps": 600, "callback_every": 50}
    history = run("kernel_pegasos", X, y, **given).history
    assert history.primal[0] == 0.1 * MANY
    assert best < history.primal[-1] < 1.02 * best
    assert np.all(history.dual <= best)
    assert history.dual[-1] > 0.8 * best


@pytest.mark.parametrize(("name", "positive"), [("usps", 3), ("banana", 1)])
def test_smo_reaches_the_objective_of_scikit_learn(name, positive):
    """In float32 on the first rows; other libraries stop at a violation of 1e-3."""
    if not os.environ.get("BUDGETJAX_DATA"):
        pytest.skip(f"{name} is in the folder that BUDGETJAX_DATA names")
    data = load(name)
    X, y = data.X_train[:MANY], np.where(data.y_train[:MANY] == positive, 1, -1)
    gamma = bj.default_gamma(X)
    # Features that are 0 change no Gaussian kernel, and one program serves both.
    X = np.pad(X, ((0, 0), (0, 256 - X.shape[1])))
    svc = SVC(C=1.0, gamma=gamma, tol=1e-4).fit(X, y)

    def primal(coefficients, support, f, bias):
        norm = np.sum(coefficients * (f[support] - bias))
        return norm / 2 + np.sum(np.maximum(0, 1 - y * f))

    f = svc.decision_function(X)
    best = primal(svc.dual_coef_[0], svc.support_, f, svc.intercept_)
    stop = {"max_steps": 3000, "tolerance": 5e-5, "callback_every": 50}
    found = run("smo", X, y, gamma=gamma, penalty=1.0, **stop)
    model, history = found.model, found.history
    assert history.gap[-1] <= 5e-5
    f = np.asarray(model.decision_function(X), np.float64)
    a = y * np.asarray(found.state.coefficients, np.float64)
    for value in (
        primal(a, np.arange(MANY), f, float(model.bias)),
        history.primal[-1],
        history.dual[-1],
    ):
        np.testing.assert_allclose(value, best, rtol=1e-4)


# Models.


def trained(name, steps):
    """With a bias where there may be one, one update a step."""
    X, y = noisy()
    bias = {"fit_bias": True} if name == "sbp" else {}
    batch = 2 if name == "smo" else 1
    state, data = started(name, X, y, batch_size=batch, **bias)
    state = path_of(state, data, steps)[1]
    return X, y, state, objective(state, data), state.solver.model(state, data)


@pytest.mark.parametrize("name", LEARNERS)
def test_models(name, double):
    """What the fields say is what it decides, and it has the margins of its state."""
    X, y, state, reached, model = trained(name, 300)
    parts = model.vectors, model.coefficients
    Z, a = (np.asarray(part, np.float64) for part in parts)
    k = kernels.rbf(GAMMA)
    f = np.array([a @ k(x, Z) for x in X]) + float(model.bias)
    ours = model.decision_function(X)
    close(ours, f, 1e-5)
    np.testing.assert_array_equal(model.predict(X), np.where(f > 0, 1, -1))
    assert model.predict(X).dtype == jnp.int32
    assert np.all(a != 0)
    assert len(a) <= N
    assert (float(model.bias) != 0) == (name in ("sbp", "smo"))
    margins = y * f
    if name == "ball_sgd":
        close(np.mean(np.maximum(0, 1 - margins)), reached.primal)
    elif name == "sbp":
        # Margins over the level have the level 1, with as much less water.
        volume = N * SLACK / reached.primal
        close(reference.level(margins, volume), 1.0, 1e-4)
        close(reference.balanced_level(margins, y, volume)[0], 1.0, 1e-4)
    else:
        scale = int(state.num_visits) / 1000 if name == "kernel_pegasos" else 1.0
        alpha = np.asarray(state.coefficients, np.float64) / scale
        norm = alpha @ signed("noisy") @ alpha
        primal = norm / 2 + 50 / 3 * np.sum(np.maximum(0, 1 - margins))
        close(reached.primal, primal)


def test_pruned_models(double):
    model = trained("smo", 300)[-1]
    model = model._replace(
        coefficients=model.coefficients.at[2].set(-model.coefficients[4])
    )
    size = len(model.coefficients) // 2
    small = bj.prune(model, size)
    a = np.abs(np.asarray(model.coefficients))
    kept = np.sort(sorted(range(len(a)), key=lambda i: (-a[i], i))[:size])
    np.testing.assert_array_equal(small.coefficients, model.coefficients[kept])
    np.testing.assert_array_equal(small.vectors, model.vectors[kept])
    assert small.bias == model.bias
    assert small.kernel == model.kernel
    for size in (len(a), 1000):
        same = bj.prune(model, size)
        jax.tree.map(np.testing.assert_array_equal, same, model)


@pytest.mark.parametrize("weight", [None, np.linspace(0, 1, N)])
def test_a_pruned_model_finds_its_bias_again(weight, double):
    """Of the least weight of errors, which a search over all thresholds finds too."""
    X, y, _, _, model = trained("smo", 300)
    kept, small = bj.prune(model, 5), bj.prune(model, 5, X, y, weight=weight)
    np.testing.assert_array_equal(small.coefficients, kept.coefficients)
    masses = np.ones(N) if weight is None else weight

    def errors(scores):
        return masses[(np.asarray(scores) > 0) != (y > 0)].sum()

    scores = np.asarray(kept.decision_function(X), np.float64)
    thresholds = [scores.min() - 1, *scores]
    least = min(errors(scores - threshold) for threshold in thresholds)
    assert errors(small.decision_function(X)) == pytest.approx(least)
    assert least < errors(scores)
    # In the middle between two scores.
    between = np.abs(np.asarray(small.decision_function(X))).min()
    assert between > 1e-4


def test_the_slack_of_a_trained_svm(double):
    X, y, _, reached, model = trained("smo", 400)
    a = np.asarray(model.coefficients, np.float64)
    Z = np.asarray(model.vectors, np.float64)
    norm = math.sqrt(a @ kernels.rbf(GAMMA)(Z[:, None], Z[None]) @ a)
    hinge = np.maximum(0, 1 - y * np.asarray(model.decision_function(X), np.float64))
    for weight in (None, np.linspace(0.5, 2, N)):
        expected = np.average(hinge, weights=weight) / norm
        found = bj.slack_of(model, X, y, weight=weight)
        assert found == pytest.approx(expected, rel=1e-5)
    # By the value of the problem, without a look at the model.
    value = norm**2 / 2 + PENALTY * N * bj.slack_of(model, X, y) * norm
    assert value == pytest.approx(float(reached.primal), rel=1e-4)
    linear = bj.LinearModel(np.array([3.0, 4.0], np.float32), np.float32(0.5))
    points = np.array([[0.1, 0.0], [1.0, 1.0]], np.float32)
    assert bj.slack_of(linear, points, np.array([-1, 1])) == pytest.approx(1.8 / 2 / 5)


def test_a_model_of_many_rows():
    """More than are taken at once, and not a multiple."""
    X, y = (jnp.asarray(part, jnp.float32) for part in digits())
    model = bj.KernelModel(bj.RBF(GAMMA), X, 0.1 * y, jnp.float32(0.5))
    many = np.random.default_rng(0).normal(size=(2500, D)).astype(np.float32)
    scores = np.asarray(model.decision_function(many))
    assert scores.shape == (2500,)
    for part in (slice(0, 3), slice(2490, 2500)):
        some = np.asarray(model.decision_function(many[part]))
        np.testing.assert_allclose(scores[part], some, atol=1e-6)
    assert model.decision_function(many[:0]).shape == (0,)


def test_examples_under_water_are_a_supergradient(double):
    """Lemma 3.1: their mean bounds the level of all other models."""
    Q, random = signed("noisy"), np.random.default_rng(0)
    level = jax.jit(water_level.level)
    for volume in (0.0, 1e-3, 3.0, 200.0):
        for _ in range(10):
            c, others = (Q @ random.normal(size=N) for _ in range(2))
            here = float(level(jnp.asarray(c), jnp.array(volume), jnp.array(0.0)))
            wet = c < here + 1e-12
            assert wet.any()
            # <sum_i p_i y_i Phi(x_i), w' - w>, with p uniform on them
            bound = here + np.mean((others - c)[wet])
            highest = reference.level(others, volume)
            assert highest <= bound + 1e-12 * size_of(others, volume)
