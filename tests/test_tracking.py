"""The tracker KRLST: a Gaussian process that learns, forgets and prunes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow
from reference import kernels
from reference import krlst as reference

import budgetjax as bj

GAMMA = 0.3


def stream(n, seed=0, num_features=3):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, num_features))
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] * X[:, 2]
    return X, y + 0.1 * random.normal(size=n)


def lorenz(n, lags=5):
    """A chaotic series without noise: the last values, and the next."""
    state, series = np.array([1.0, 1.0, 1.0]), []
    for _ in range(n + lags + 300):
        x, y, z = state
        slope = np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
        state = state + 0.005 * slope
        series.append(state[0])
    series = np.array(series[300:]) / 8
    X = np.stack([series[i : i + n] for i in range(lags)], axis=1)
    return X, series[lags : lags + n]


def empty(budget=50, num_features=3, kernel=None, more=None, **given):
    sizes = {"num_features": num_features, "budget": budget, "num_classes": None}
    return bj.KRLST(**given).init(kernel or bj.RBF(GAMMA), **sizes, **more or {})


def certainty_of(state):
    return np.asarray(state.memory.certainty, np.float64)


# The reference itself.


@pytest.mark.parametrize("order", [0, 1, 2])
def test_the_reference_is_a_gaussian_process(order):
    """Without a budget, whatever the order of the rows."""
    X, y = stream(30)
    rows = np.random.default_rng(order).permutation(30) if order else np.arange(30)
    process = reference.Process(kernels.rbf(GAMMA), 99, 0.1, 0.0, 0.0, 1e-3, 0.99, 1)
    for age, i in enumerate(rows):
        process.learn(X[i], y[i : i + 1], 1.0, age)
    points = stream(20, seed=5)[0]
    mean, variance = reference.exact(kernels.rbf(GAMMA), X, y, points, 0.101)
    at = [process.at(x) for x in points]
    np.testing.assert_allclose([one[2][0] for one in at], mean, atol=1e-11)
    np.testing.assert_allclose([one[3] - 1e-3 for one in at], variance, atol=1e-11)


# Without a budget.


@pytest.mark.parametrize(
    ("kind", "ridge", "most"), [("float32", 1e-3, 5e-5), ("float64", 1e-6, 1e-10)]
)
def test_without_a_budget_it_is_a_gaussian_process(kind, ridge, most, double):
    X, y = stream(120)
    points = stream(50, seed=5)[0]
    noise = 0.05
    mean, variance = reference.exact(kernels.rbf(GAMMA), X, y, points, noise + ridge)
    for order in (0, 1):
        rows = (
            np.random.default_rng(order).permutation(120) if order else np.arange(120)
        )
        state = empty(120, noise=noise, novelty=0, more={"dtype": kind})
        state, _ = bj.run(state, X[rows], y[rows], block_size=1)
        assert int(state.num_active) == 120
        np.testing.assert_allclose(bj.decision_function(state, points), mean, atol=most)
        power = float(state.memory.squares[0] / state.memory.number)
        told = np.asarray(bj.variance(state, points)) / power
        np.testing.assert_allclose(told - noise - ridge, variance, atol=most)


# On a budget, against the reference.


@pytest.mark.parametrize(
    ("outputs", "forgetting"), [(1, 0.0), (2, 0.001), *slow((1, 0.001), (2, 0.0))]
)
def test_variances_are_those_of_numpy(forgetting, outputs, double):
    X, y = stream(200)
    targets = y if outputs == 1 else np.stack([y, np.cos(X[:, 1])], axis=1)
    weight = np.random.default_rng(1).choice([0, 0.3, 1, 4.0], len(X))
    expected = reference.run(
        *(kernels.rbf(GAMMA), X, targets),
        budget=20,
        noise=0.03,
        forgetting=forgetting,
        novelty=1e-3,
        ridge=1e-6,
        weights=weight,
    )
    more = {"dtype": "float64", "num_outputs": outputs}
    state = empty(20, noise=0.03, forgetting=forgetting, more=more)
    later, scores, variances = bj.run(state, X, targets, weight=weight, variance=True)
    np.testing.assert_allclose(scores, expected.scores, atol=1e-10)
    assert variances.shape == targets.shape
    np.testing.assert_allclose(variances, expected.variances, rtol=1e-9)
    # The variance of the state is what the next round would say.
    first = np.where(np.arange(len(X)) < 100, weight, 0)
    half, *_ = bj.run(state, X, targets, weight=first, variance=True)
    np.testing.assert_allclose(bj.variance(half, X[100:101])[0], variances[100])
    without, _ = bj.run(state, X, targets, weight=weight)
    np.testing.assert_allclose(
        bj.decision_function(without, X), bj.decision_function(later, X), atol=1e-12
    )


def test_float32_follows_float64():
    X, y = stream(800)
    _, expected = _run_in(X, y, "float64", novelty=2e-3)
    state, scores = _run_in(X, y, "float32")
    error = np.std(y[300:] - expected[300:])
    assert np.std(y[300:] - scores[300:]) < 1.05 * error
    check_certainty(state)


def _run_in(X, y, kind, **given):
    with jax.enable_x64(kind == "float64"):
        state = empty(30, noise=0.03, more={"dtype": kind}, **given)
        state, scores = bj.run(state, X, y, block_size=1)
        return jax.device_get(state), np.asarray(scores, np.float64)


def check_certainty(state):
    """C is symmetric, and its eigenvalues are those of knowledge."""
    certainty = certainty_of(state)
    assert np.abs(certainty - certainty.T).max() < 1e-6
    eigenvalues = np.linalg.eigvalsh(certainty)
    assert eigenvalues.min() > -1e-5
    assert eigenvalues.max() < 1


# Streams that are hard for float32.


@pytest.mark.parametrize("forgetting", [0.0, 1e-4])
def test_a_smooth_series_without_noise(forgetting):
    """Its kernel matrix has eigenvalues down to the ridge."""
    X, y = lorenz(4000)
    state = empty(50, 5, bj.RBF(0.2), noise=1e-3, forgetting=forgetting)
    state, scores = bj.run(state, X.astype(np.float32), y, block_size=1)
    errors = np.sqrt(np.mean((np.asarray(scores) - y)[1000:].reshape(6, -1) ** 2, 1))
    assert np.all(errors < 0.02 * np.std(y))
    check_certainty(state)
    root = np.asarray(state.memory.span.root, np.float64)[:-1, :-1]
    gram = np.asarray(state.memory.span.gram, np.float64)[:-1, :-1]
    np.testing.assert_allclose(root @ gram @ root.T, np.eye(50), atol=1e-3)


def test_rows_far_from_0_are_centred():
    X, y = stream(800)
    _, near = bj.run(empty(30, noise=0.03), X, y, block_size=1)
    state, far = bj.run(empty(30, noise=0.03), X + 300, y, block_size=1)
    errors = [np.std(y[200:] - np.asarray(scores)[200:]) for scores in (near, far)]
    assert errors[1] < 1.05 * errors[0]
    check_certainty(state)


def test_a_duplicate_never_enters():
    X, y = stream(30)
    rows = np.random.default_rng(0).integers(30, size=3000)
    state, _ = bj.run(empty(50, novelty=None), X[rows], y[rows], block_size=1)
    assert int(state.num_active) == len(np.unique(rows)) == 30


@pytest.mark.slow
def test_long_streams_stay_steady():
    X, y = stream(100_000)
    state, scores = bj.run(empty(50, noise=0.03), X, y)
    errors = np.sqrt(np.mean((np.asarray(scores) - y).reshape(5, -1) ** 2, axis=1))
    assert np.all(np.isfinite(scores))
    assert errors[1:].max() < 1.3 * errors[1:].min()
    check_certainty(state)


# Forgetting and weights.


def test_all_is_forgotten_in_the_end():
    X, y = stream(200)
    noise, ridge = 0.1, 1e-3
    state, _ = bj.run(empty(noise=noise, forgetting=0.01), X, y, block_size=1)
    forgetful = bj.with_learner(state, bj.KRLST(noise=noise, forgetting=1 - 1e-6))
    power = float(state.memory.squares[0] / state.memory.number)
    # A far row changes nothing near the others but by forgetting.
    far = bj.step(forgetful, np.full(3, 50.0), 0.0)
    assert np.abs(bj.decision_function(far, X)).max() < 2e-3 * np.abs(y).max()
    told = bj.variance(
        far._replace(
            memory=far.memory._replace(
                squares=state.memory.squares, number=state.memory.number
            )
        ),
        X[:20],
    )
    np.testing.assert_allclose(told, power * (1 + ridge + noise), rtol=1e-2)


def test_forgetting_follows_a_world_that_changes():
    X, y = stream(3000)
    y = np.where(np.arange(3000) < 1500, y, -y)
    errors = []
    for forgetting in (0.0, 0.003):
        state = empty(noise=0.03, forgetting=forgetting)
        _, scores = bj.run(state, X, y, block_size=1)
        errors.append(np.std((np.asarray(scores) - y)[2000:]))
    assert errors[1] < 0.6 * errors[0]


def test_a_weight_is_a_number_of_rows(double):
    """In a world that stays, where all vectors have room."""
    X, y = stream(40)
    weight = np.random.default_rng(2).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), weight)
    one, _ = bj.run(empty(more={"dtype": "float64"}), X, y, weight=weight)
    many, _ = bj.run(empty(more={"dtype": "float64"}), X[rows], y[rows], block_size=1)
    assert int(one.num_active) == int(many.num_active)
    points = stream(20, seed=3)[0]
    # The ridge of a vector is its own, and the second of two equal rows has another.
    np.testing.assert_allclose(
        *(bj.decision_function(state, points) for state in (one, many)), atol=1e-3
    )


# What verbs make of it.


def test_half_of_the_targets_lie_within_their_quartiles():
    X, y = stream(4000, seed=4)
    _, scores, variances = bj.run(empty(noise=0.03), X, y, variance=True)
    within = np.abs(y - scores)[500:] < 0.6745 * np.sqrt(variances)[500:]
    assert np.mean(within) == pytest.approx(0.5, abs=0.06)


def test_a_refit_keeps_it_learning():
    X, y = stream(800)
    state, _ = bj.run(empty(30, noise=0.03), X, y, block_size=1)
    better = bj.refit(state, X, y, loss="squared")
    error = [np.std(y - bj.decision_function(one, X)) for one in (state, better)]
    assert error[1] <= error[0] * 1.001
    # Its weights are those of the new coefficients.
    again, scores = bj.run(better, X, y, block_size=1)
    np.testing.assert_allclose(
        scores[0], bj.decision_function(better, X[:1])[0], atol=1e-3
    )
    assert np.std(y - bj.decision_function(again, X)) < 1.1 * error[0]


def test_another_kernel_keeps_the_coefficients():
    X, y = stream(200)
    state, _ = bj.run(empty(20), X, y)
    other = bj.with_kernel(state, bj.RBF(1.1 * GAMMA))
    told = bj.decision_function(other, X)
    # What it says before it learns, it says in the round too.
    _, scores = bj.run(other, X, y)
    np.testing.assert_allclose(scores[0], told[0], rtol=1e-3, atol=2e-3)


def test_a_sweep_of_noise_and_forgetting():
    X, y = stream(200)

    def make(noise, forgetting):
        return empty(20, noise=noise, forgetting=forgetting)

    noises, forgettings = jnp.array([0.01, 0.1]), jnp.array([0.0, 0.01])
    swept = bj.sweep(jax.vmap(make)(noises, forgettings), X, y)
    for i in range(2):
        alone, _ = bj.run(make(noises[i], forgettings[i]), X, y)
        one = jax.tree.map(lambda leaf, i=i: leaf[i], swept.states)
        np.testing.assert_allclose(
            *(bj.decision_function(state, X) for state in (alone, one)), atol=2e-3
        )


def test_files_and_streams(tmp_path):
    X, y = stream(200)
    state, _ = bj.run(empty(20), X, y)
    bj.save(tmp_path / "model", state)
    loaded = bj.load(tmp_path / "model")
    assert bj.equal(loaded, state)
    np.testing.assert_array_equal(bj.variance(loaded, X), bj.variance(state, X))
    streamed = bj.fit_stream(empty(20), [(X[:90], y[:90]), (X[90:], y[90:])])
    np.testing.assert_allclose(
        bj.decision_function(streamed.state, X),
        bj.decision_function(state, X),
        atol=2e-3,
    )


@pytest.mark.usefixtures("as_installed")
def test_what_does_not_know_its_variance_says_so():
    state = bj.Pegasos().init(bj.RBF(1.0), num_features=2, budget=5)
    for ask in (
        lambda: bj.variance(state, np.ones((1, 2))),
        lambda: bj.run(state, np.ones((1, 2)), [1], variance=True),
    ):
        with pytest.raises(ValueError, match=r"must .*know\w* the variance"):
            ask()


def test_estimators_take_it():
    from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

    X, y = stream(500)
    given = {"budget": 40, "encode": False, "random_state": 0}
    make = functools.partial(BudgetedKernelRegressor, **given)
    model = make(learner=bj.KRLST(noise=0.03), refit=False).fit(X, y)
    assert model.score(X, y) > 0.9
    assert isinstance(model.state_.learner, bj.KRLST)
    same = make(learner=bj.KRLST(noise=0.03), refit=False, loss="squared").fit(X, y)
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    with pytest.raises(ValueError, match="loss must be 'squared' where there is no re"):
        make(learner=bj.KRLST(), refit=False, loss="huber").fit(X, y)
    with pytest.raises(ValueError, match=r"learner must be one of labels.*got KRLST"):
        BudgetedKernelClassifier(learner=bj.KRLST()).fit(X, y > 0)


def test_river_takes_it():
    river = pytest.importorskip("budgetjax.river")
    X, y = stream(300)
    model = river.BudgetedRegressor(bj.KRLST(noise=0.03), budget=30, gamma=GAMMA)
    errors = []
    for row, target in zip(X, y, strict=True):
        x = dict(enumerate(row))
        errors.append(model.predict_one(x) - target)
        model.learn_one(x, target)
    assert np.std(errors[100:]) < 0.5 * np.std(y)
