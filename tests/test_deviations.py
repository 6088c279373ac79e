"""Regressors that say how sure they are: deviations and intervals of targets."""

import csv
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from marks import slow

import budgetjax as bj
from budgetjax import scoring
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor
from budgetjax.refitting import spread
from budgetjax.refitting.spread import fit_spread
from budgetjax.tables.spread import GAUSSIAN, LEVELS

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

NOISE = 0.5


def rows(n, seed=0, noise=NOISE):
    """A wave in one of two columns, with noise."""
    random = np.random.default_rng(seed)
    X = random.uniform(-2, 2, (n, 2))
    return X, np.sin(2 * X[:, 0]) + noise * random.normal(size=n)


# One form of the columns, and a strategy that compiles quickly. A wider kernel has
# large coefficients of both signs, whose sums in float32 differ between programs.
PLAIN = {
    "learn_metric": False,
    "encode": 0,
    "maintenance": "remove_oldest",
    "gamma": 3.2,
}


def regressor(**given):
    return BudgetedKernelRegressor(**{"budget": 30, "random_state": 0} | PLAIN | given)


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*rows(1500))


@pytest.mark.parametrize("metric", [False, "auto"])
def test_targets_lie_as_far_away_as_it_says(metric, fitted):
    usual = {"encode": "auto", "maintenance": None, "gamma": "auto"}
    model = (
        regressor(learn_metric=metric, **usual).fit(*rows(1500)) if metric else fitted
    )
    X, y = rows(2000, seed=1)
    mean, deviation = model.predict(X, return_std=True)
    np.testing.assert_array_equal(mean, model.predict(X))
    assert mean.shape == deviation.shape == (2000,)
    assert mean.dtype == deviation.dtype == np.float64
    np.testing.assert_allclose(np.mean(deviation), NOISE, rtol=0.12)
    np.testing.assert_allclose(np.std((y - mean) / deviation), 1, atol=0.1)
    widths = []
    for level in (0.5, 0.8, 0.9, 0.95):
        low, high = model.predict_interval(X, level).T
        # Of 300 held-out rows, and 2,000 here, six deviations of both.
        away = 6 * np.sqrt(level * (1 - level) * (1 / 300 + 1 / 2000))
        assert abs(np.mean((low < y) & (y < high)) - level) < away
        np.testing.assert_allclose((low + high) / 2, mean, atol=1e-5)
        widths.append(np.mean(high - low))
    assert widths == sorted(widths)
    far = model.predict_interval(X, 0.999)
    assert np.all(far[:, 1] - far[:, 0] > widths[-1])


def test_units_and_several_outputs(fitted):
    X, y = rows(1500)
    other = X[:, 1] + 0.1 * np.random.default_rng(1).normal(size=1500)
    moved = regressor().fit(X, 1e6 + 1000 * y)
    points = rows(50, seed=2)[0]
    alone = fitted.predict(points, return_std=True)[1]
    mean, deviation = moved.predict(points, return_std=True)
    np.testing.assert_allclose(deviation, 1000 * alone, rtol=2e-2)
    ends = moved.predict_interval(points)
    np.testing.assert_allclose(np.mean(ends, axis=1), mean, rtol=1e-6)
    both = regressor().fit(X, np.stack([y, 100 * other], axis=1))
    mean, deviation = both.predict(points, return_std=True)
    assert mean.shape == deviation.shape == (50, 2)
    away = both.predict(X) - np.stack([y, 100 * other], axis=1)
    np.testing.assert_allclose(
        np.mean(deviation, axis=0), np.std(away, axis=0), rtol=0.2
    )
    assert both.predict_interval(points, 0.8).shape == (50, 2, 2)
    assert bj.variance(both, points).shape == (50, 2)


def test_noise_that_grows_with_the_prediction():
    random = np.random.default_rng(0)
    X = random.uniform(0, 1, (3000, 1))
    noise = 0.05 + 0.95 * X[:, 0]
    model = regressor().fit(X, 5 * X[:, 0] + noise * random.normal(size=3000))
    points = np.array([[0.1], [0.5], [0.9]])
    low, middle, high = model.predict(points, return_std=True)[1]
    assert 0.08 < low < 0.3
    assert low < middle < high
    assert 0.7 < high < 1.2


def test_far_from_all_rows_it_is_as_sure_as_without_them():
    X, y = rows(1500, noise=0.01)
    model = regressor(budget=60, encode=False, kernel=bj.RBF(2.0), gamma="auto").fit(
        X, y
    )
    near, far = model.predict([[0.0, 0.0], [9.0, 9.0]], return_std=True)[1]
    assert near < 0.2
    np.testing.assert_allclose(far, np.std(y), rtol=0.1)


@pytest.mark.parametrize("kernel", [bj.RBF(0.5), bj.Polynomial(2), bj.Laplacian(0.5)])
def test_the_share_beyond_the_span(kernel):
    random = np.random.default_rng(0)
    vectors, X = (random.normal(size=(n, 3)).astype(np.float32) for n in (4, 7))
    mask = np.array([True, True, False, True])
    chosen = vectors[mask].astype(np.float64)

    def gram(A, B):
        return np.asarray(jax.jit(kernel.gram)(A, B), np.float64)

    K, k = gram(chosen, chosen), gram(X, chosen)
    selves = np.asarray(kernel.diag(jnp.asarray(X)))
    expected = 1 - np.sum(k * np.linalg.solve(K, k.T).T, axis=1) / selves

    @jax.jit
    def share(vectors, mask, X):
        root = scoring.span_root(kernel, vectors, mask)
        return scoring.share_beyond(kernel, vectors, mask, root, X)

    found = share(vectors, mask, X)
    np.testing.assert_allclose(found, np.clip(expected, 0, 1), atol=2e-3)
    own = share(vectors, mask, vectors)
    np.testing.assert_allclose(np.asarray(own)[mask], 0, atol=2e-3)
    # Equal vectors have no inverse.
    twice = np.concatenate([vectors, vectors])
    both = share(twice, np.tile(mask, 2), X)
    np.testing.assert_allclose(both, found, atol=5e-3)


def test_rows_without_weight_and_the_scale_of_weights_change_nothing():
    random = np.random.default_rng(0)
    scores, beyond = random.normal(size=(200, 2)), random.uniform(size=200)
    targets = scores + random.normal(size=(200, 2)) * [1, 5]
    weights = random.uniform(0.5, 2, 200)
    expected = fit_spread(scores, targets, beyond, weights)
    assert expected.widths.shape == (2, len(LEVELS))
    padded = [
        np.concatenate([one, np.full((9, *one.shape[1:]), 7.0)])
        for one in (scores, targets, beyond)
    ]
    more = np.concatenate([weights, np.zeros(9)])
    assert bj.equal(fit_spread(*padded, more), expected)
    for one, other in zip(
        *map(jax.tree.leaves, (fit_spread(*padded, 3 * more), expected)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    assert fit_spread(scores, targets, beyond, 0 * weights) is None


def test_intervals_are_conformal():
    errors = np.arange(1.0, 100)[::-1]
    widths = spread.conformal_widths(errors, np.ones(99))
    # Of n errors, the one of rank `level (n + 1)`.
    np.testing.assert_allclose(widths, 100 * np.array(LEVELS), rtol=1e-9)
    few = spread.conformal_widths(np.array([1.0, 2.0, 3.0]), np.ones(3))
    known = LEVELS.index(0.7)
    np.testing.assert_array_equal(few[: known + 1], [1, 1, 2, 2, 2, 3, 3])
    np.testing.assert_allclose(few[-1] / few[known], GAUSSIAN[-1] / GAUSSIAN[known])
    assert np.array_equal(
        spread.conformal_widths(np.ones(1) * 3, np.ones(1))[:4], [3] * 4
    )


def test_targets_without_noise_are_no_error():
    X = np.linspace(-1, 1, 300)[:, None]
    for y in (np.zeros(300), np.full(300, 7.0), X[:, 0]):
        mean, deviation = regressor().fit(X, y).predict(X, return_std=True)
        assert np.all(np.isfinite(deviation))
        assert np.all(deviation <= 0.05)
        assert np.all(np.isfinite(mean))
    few = regressor().fit(X[:6], X[:6, 0])
    assert np.all(np.isfinite(few.predict(X, return_std=True)[1]))


def test_every_form_of_a_model_says_the_same(fitted, tmp_path):
    X, _ = rows(40, seed=3)
    model = fitted.model_
    variances, ends = bj.variance(fitted, X), bj.predict_interval(fitted, X, 0.8)
    np.testing.assert_allclose(
        np.sqrt(variances), fitted.predict(X, return_std=True)[1], rtol=1e-6
    )
    np.testing.assert_array_equal(ends, fitted.predict_interval(X, 0.8))
    np.testing.assert_array_equal(bj.variance(model, X), variances)
    streamed = bj.StreamModel(model)
    np.testing.assert_array_equal(bj.variance(streamed, X), variances)
    for one in (fitted, model, streamed):
        bj.save(tmp_path / "model", one)
        loaded = bj.load(tmp_path / "model")
        np.testing.assert_array_equal(bj.variance(loaded, X), variances)
        np.testing.assert_array_equal(bj.predict_interval(loaded, X, 0.8), ends)
    traced = jax.jit(bj.variance)(model, X)
    np.testing.assert_allclose(traced, variances, rtol=1e-3)
    traced = jax.jit(lambda model, X: bj.predict_interval(model, X, 0.8))(model, X)
    np.testing.assert_allclose(traced, ends, atol=1e-3)
    compact = model._replace(model=model.model.to_kernel_model())
    np.testing.assert_allclose(bj.variance(compact, X), variances, rtol=1e-3)


def test_a_training_of_batches_says_the_same(fitted):
    X, y = rows(1500)
    recipe = bj.Recipe(budget=30, regression=True, **PLAIN)
    model = bj.train(recipe, [(X[:800], y[:800]), (X[800:], y[800:])])
    np.testing.assert_array_equal(bj.variance(model, X), bj.variance(fitted, X))
    refitted = bj.refit(model, X, y, loss="squared")
    with pytest.raises(ValueError, match=r"^variance: model must know the variance"):
        bj.variance(refitted, X)
    refitted = bj.refit(model, X, 50 + y, loss="squared", calibrate=True)
    found = np.sqrt(bj.variance(refitted, X))
    np.testing.assert_allclose(np.mean(found), NOISE, rtol=0.12)


def test_calibrate_measures_any_regressor():
    X, y = rows(2000)
    sizes = {"num_features": 2, "budget": 30, "num_classes": None}
    state = bj.SGD().init(bj.RBF(1.0), **sizes, maintenance=bj.RemoveOldest())
    state, _ = bj.run(state, X[:1000], y[:1000])
    with pytest.raises(ValueError, match=r"^variance: model must know the variance"):
        bj.variance(state, X)
    model = bj.calibrate(state, X[1000:], y[1000:])
    np.testing.assert_array_equal(bj.predict(model, X), bj.predict(state, X))
    error = np.sqrt(np.mean((y[1000:] - bj.predict(model, X[1000:])) ** 2))
    np.testing.assert_allclose(np.sqrt(np.mean(bj.variance(model, X))), error, rtol=0.1)
    low, high = bj.predict_interval(model, X[1000:]).T
    np.testing.assert_allclose(
        np.mean((low <= y[1000:]) & (y[1000:] <= high)), 0.9, atol=0.01
    )
    weighed = bj.calibrate(state, X[1000:], y[1000:], np.arange(1000) < 500)
    assert bj.equal(weighed, bj.calibrate(state, X[1000:1500], y[1000:1500]))
    with pytest.raises(ValueError, match=r"^calibrate: y must have shape .1000,"):
        bj.calibrate(state, X[1000:], y[:9])
    with pytest.raises(ValueError, match=r"^calibrate: y must be finite"):
        bj.calibrate(state, X[1000:], np.full(1000, np.nan))
    with pytest.raises(ValueError, match="must know the variance"):
        bj.variance(bj.prune(model, 5), X)


def test_streams_that_know_their_own_variance():
    X, y = rows(600)
    y = 100 + 10 * y
    given = {"learner": bj.KRLST(), "refit": False, "shuffle": False, "encode": False}
    given |= {"maintenance": None}
    model = regressor(**given).fit(X, y)
    expected = bj.variance(model.state_, X - model.origin_) * model.unit_**2
    np.testing.assert_allclose(bj.variance(model, X), expected, rtol=1e-3)
    mean, deviation = model.predict(X, return_std=True)
    np.testing.assert_allclose(deviation, np.sqrt(expected), rtol=1e-3)
    ends = model.predict_interval(X, 0.9)
    np.testing.assert_allclose(ends[:, 1] - mean, 1.6449 * deviation, rtol=1e-3)
    part = regressor(**given).partial_fit(X[:300], y[:300])
    assert part.partial_fit(X[300:], y[300:]).predict(X, return_std=True)[1].shape == (
        600,
    )
    streamed = bj.fit_stream(model.state_, [(X, y)])
    assert bj.variance(streamed, X).shape == (600,)


def test_what_is_refused(fitted, as_installed):
    X, y = rows(300)
    for given, says in (
        ({"quantile": 0.5}, r"be False, got quantile=0.5: quantile=\[0.05, 0.95\]"),
        ({"loss": "poisson"}, "be False, got loss='poisson'"),
        ({"refit": False}, "be False, got a model without a refit: take refit=True"),
    ):
        model = regressor(**given).fit(X, np.abs(y))
        name = "BudgetedKernelRegressor"
        with pytest.raises(ValueError, match=f"^{name}: return_std must {says}"):
            model.predict(X, return_std=True)
        with pytest.raises(ValueError, match=f"^{name}: predict_interval must be"):
            model.predict_interval(X)
        assert model.predict(X).shape == (300,)
    with pytest.raises(ValueError, match="level must be"):
        fitted.predict_interval(X, 1.5)
    with pytest.raises(ValueError, match="return_std must be"):
        fitted.predict(X, return_std="yes")
    labels = BudgetedKernelClassifier(20, **PLAIN).fit(X, y > 0)
    with pytest.raises(ValueError, match=r"^variance: model must know the variance"):
        bj.variance(labels, X)
    with pytest.raises(ValueError, match=r"^predict_interval: model must be of real"):
        bj.predict_interval(labels, X)
    state = bj.SGD(loss=bj.losses.quantile(0.9)).init(
        bj.RBF(1.0),
        num_features=2,
        budget=9,
        num_classes=None,
        maintenance=bj.RemoveOldest(),
    )
    state, _ = bj.run(state, X, y)
    with pytest.raises(ValueError, match=r"^refit: calibrate must be False for a loss"):
        bj.refit(state, X, y, loss=bj.losses.quantile(0.9), calibrate=True)


@pytest.mark.parametrize("loss", ["huber", *slow("absolute")])
def test_deviations_of_robust_losses(loss):
    X, y = rows(300)
    deviation = regressor(loss=loss).fit(X, y).predict(X, return_std=True)[1]
    np.testing.assert_allclose(np.mean(deviation), NOISE, rtol=0.3)


def test_frames_and_sparse_rows():
    pandas = pytest.importorskip("pandas")
    sparse = pytest.importorskip("scipy.sparse")
    X, y = rows(500)
    frame = pandas.DataFrame({"a": X[:, 0], "b": np.where(X[:, 1] > 0, "yes", "no")})
    frame.loc[3, "a"] = np.nan
    model = regressor(encode="auto").fit(frame, y)
    swapped = model.predict_interval(
        frame[["b", "a"]].rename(columns=str).loc[:, ["a", "b"]]
    )
    np.testing.assert_array_equal(swapped, model.predict_interval(frame))
    assert np.all(np.isfinite(model.predict(frame, return_std=True)[1]))
    model = regressor(encode="auto").fit(sparse.csr_matrix(X), y)
    found = model.predict(sparse.csr_matrix(X), return_std=True)[1]
    np.testing.assert_allclose(found, model.predict(X, return_std=True)[1], rtol=1e-6)


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "budgetjax", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_command_line(tmp_path):
    X, y = rows(400)
    for name, target in ("numbers", y), ("labels", np.where(y > 0, "a", "b")):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["p", "q", "y"])
            lines.writerows([*x, one] for x, one in zip(X, target, strict=True))
    numbers, labels = tmp_path / "numbers.csv", tmp_path / "labels.csv"
    model = tmp_path / "model"
    done = command("train", numbers, "--target", "y", "--regression", "-m", model)
    assert done.returncode == 0, done.stderr
    output = tmp_path / "out.csv"
    done = command("predict", model, numbers, "--interval", 0.8, "-o", output)
    assert done.returncode == 0, done.stderr
    with open(output, newline="") as file:
        header, *lines = csv.reader(file)
    assert header == ["prediction", "low", "high"]
    found = np.array(lines, float)
    expected = bj.predict_interval(bj.load(model), X, 0.8)
    np.testing.assert_allclose(found[:, 1:], expected, atol=1e-4)
    assert np.all((found[:, 1] < found[:, 0]) & (found[:, 0] < found[:, 2]))
    done = command("predict", model, numbers, "--interval", 1.5)
    assert done.returncode == 2
    assert "--interval" in done.stderr
    exported = tmp_path / "model.onnx"
    done = command("export", model, "--output", exported, "--deviation")
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(exported)
    (deviations,) = session.run(["deviation"], {"X": X.astype(np.float32)})
    expected = np.sqrt(bj.variance(bj.load(model), X))
    np.testing.assert_allclose(deviations, expected, rtol=1e-3)
    done = command("train", labels, "--target", "y", "-m", model, "--no-refit")
    assert done.returncode == 0, done.stderr
    done = command("predict", model, labels, "--interval", 0.9)
    assert done.returncode == 2
    assert "predicts labels" in done.stderr
    done = command("export", model, "--output", exported, "--deviation")
    assert done.returncode == 1
    assert "be of values" in done.stderr
