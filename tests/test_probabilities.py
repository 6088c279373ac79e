"""Probabilities: the calibration of scores, where it comes from, and who gives them."""

import jax
import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from small_models import CLASSES, X, learned, regressor, streamed, y

import budgetjax as bj
from budgetjax.refitting import calibration, held_out, training_data
from budgetjax.refitting.problem import Problem
from budgetjax.tables.scaling import Scaling

pytestmark = pytest.mark.usefixtures("plain_loops")

N = len(X)


def reference(scores, codes, weights):
    """The factor of least log loss, found by SciPy from the definition."""
    columns = np.stack([0 * scores, scores], 1) if scores.ndim == 1 else scores
    n, classes = columns.shape
    rows = weights.sum() ** 2 / np.sum(weights**2)
    targets = np.full((n, classes), 1 / (rows + 2) / (classes - 1))
    targets[np.arange(n), codes] = (rows + 1) / (rows + 2)

    def loss(logarithm):
        return -weights @ np.sum(
            targets * log_softmax(np.exp(logarithm) * columns, axis=1), axis=1
        )

    found = minimize_scalar(loss, bounds=(-12, 12), options={"xatol": 1e-10})
    return np.exp(found.x)


def some_scores(classes, noise, n=200, seed=0):
    """Scores, labels that they mistake the more the more noise there is, weights."""
    random = np.random.default_rng(seed)
    shape = (n,) if classes == 2 else (n, classes)
    scores = random.normal(size=shape)
    noisy = scores + noise * random.normal(size=shape)
    codes = (noisy > 0) if classes == 2 else np.argmax(noisy, axis=1)
    return scores, codes.astype(np.int32), random.choice([0.0, 0.5, 2.0], n)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("noise", [0.0, 0.3, 3.0], ids=["separable", "some", "much"])
def test_the_factor_is_that_of_the_least_log_loss(classes, noise):
    scores, codes, weights = some_scores(classes, noise)
    expected = reference(scores, codes, weights)
    for unit in (1.0, 1e-3, 1e6):
        actual = calibration.fit_factor(scores / unit, codes, weights)
        np.testing.assert_allclose(actual / unit, expected, rtol=1e-6)
    # A weight is that many rows, up to the smoothing of the targets.
    twice = [np.repeat(part, 2, axis=0) for part in (scores, codes, weights)]
    if noise > 1:
        assert calibration.fit_factor(*twice) == pytest.approx(actual / unit, rel=0.05)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (6,), (6, 3)])
def test_scores_that_say_nothing(shape):
    n = shape[0]
    factor = calibration.fit_factor(np.ones(shape), np.zeros(n, np.int32), np.ones(n))
    assert 0 < factor < 1e-3
    factor = calibration.fit_factor(np.ones(shape), np.zeros(n, np.int32), np.zeros(n))
    assert 0 < factor < 1e-3


def test_wrong_scores_and_a_class_that_is_missing():
    scores, codes, weights = some_scores(2, 0.0)
    assert 0 < calibration.fit_factor(-scores, codes, weights) < 1e-3
    one = np.zeros_like(codes)
    assert np.isfinite(calibration.fit_factor(np.full(len(one), -2.0), one, weights))


@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_of_a_calibrated_model(classes):
    state, labels = learned(classes), y if classes == 2 else CLASSES
    names = np.array(["a", "b", "c"])[:classes]
    codes = (labels + 1) // 2 if classes == 2 else labels
    model = bj.calibrate(state, X, labels)
    scores = np.asarray(bj.decision_function(state, X), np.float64)
    factor = reference(scores, codes, np.ones(N))
    np.testing.assert_allclose(model.calibration, factor, rtol=1e-6)
    columns = np.stack([0 * scores, scores], 1) if classes == 2 else scores
    expected = np.exp(log_softmax(factor * columns, axis=1))
    actual = bj.probabilities(model, X)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    np.testing.assert_allclose(actual.sum(axis=1), 1, rtol=1e-12)
    known = np.array([-1, 1]) if classes == 2 else np.arange(3)
    np.testing.assert_array_equal(known[actual.argmax(1)], bj.predict(model, X))
    named = bj.calibrate(bj.TableModel(state, classes=names), X, names[codes])
    np.testing.assert_array_equal(bj.probabilities(named, X), actual)
    # Rows of weight 0 might as well not be there.
    weight = np.where(np.arange(N) < 20, 3.0, 0.0)
    part = bj.calibrate(state, X[:20], labels[:20]).calibration
    found = bj.calibrate(state, X, labels, weight).calibration
    np.testing.assert_allclose(found, part, rtol=1e-9)


def test_states_with_the_logistic_loss_need_no_calibration():
    given = {"num_features": 2, "budget": 5}
    state = bj.SGD(loss=bj.losses.logistic, learning_rate=0.1).init(
        bj.RBF(0.5), **given
    )
    state = bj.step(state, X[0], y[0])
    score = np.asarray(bj.decision_function(state, X[:4]), np.float64)
    actual = bj.probabilities(state, X[:4])
    np.testing.assert_allclose(actual[:, 1], 1 / (1 + np.exp(-score)), rtol=1e-12)
    factor = bj.calibrate(state, X, y).calibration
    assert factor != 1
    again = bj.probabilities(bj.TableModel(state), X[:4])
    np.testing.assert_allclose(again, actual, rtol=1e-5)


def test_errors():
    state = learned()
    unfit = "model must have a calibration, or a state that learns with"
    with pytest.raises(ValueError, match=f"^probabilities: {unfit}.*calibrate=True"):
        bj.probabilities(state, X)
    model = bj.calibrate(state, X, y)
    with pytest.raises(ValueError, match=f"^probabilities: {unfit}"):
        bj.probabilities(bj.prune(model, 2), X)
    with pytest.raises(ValueError, match=r"^probabilities: X must have shape"):
        bj.probabilities(model, X[:, :1])
    with pytest.raises(ValueError, match="model must be a classifier, got a regre"):
        bj.probabilities(regressor(), X)
    for labels, weight, says in (
        (y[:3], None, "y must have shape .30,., one label per row"),
        (2 * y, None, "y must be one of -1, 1, got 2 in row"),
        (y, y, "weight must be finite and at least 0, of shape .30,.*got .*-1"),
        (y, [1.0], "weight must .* of shape .30,., one per row of X, got .* .1,."),
    ):
        with pytest.raises(ValueError, match=f"^calibrate: {says}"):
            bj.calibrate(state, X, labels, weight)
    with pytest.raises(ValueError, match=r"a calibration or a loss.*got an iterator"):
        bj.refit(state, iter([(X, y)]), calibrate=True)


def test_a_refit_calibrates_on_rows_that_it_has_not_learned():
    """Each fifth's scores are of vectors and weights that the other four have given."""
    state = learned()
    model = bj.refit(state, X, y, calibrate=True)
    plain = bj.refit(state, X, y, tolerance=1e-8)
    np.testing.assert_allclose(
        bj.decision_function(model, X), bj.decision_function(plain, X), atol=1e-2
    )
    scores, codes = [], []
    nothing = Problem(*[None] * len(Problem._fields))
    problem = nothing._replace(seed=0)
    for fold in range(held_out.FOLDS):
        block = training_data.Block(
            X, y[:, None].astype(np.float32), np.ones(N, np.float32)
        )
        (part,) = held_out.mask_fold(lambda block=block: iter([block]), 0, fold, True)
        held = part.weights > 0
        assert 5 <= np.sum(held) <= 7
        others = block._replace(weights=np.where(held, 0, 1).astype(np.float32))
        own = held_out.stream_fold(problem, state, lambda others=others: iter([others]))
        own = bj.refit(own, X, y, weight=others.weights)
        scores.append(np.asarray(bj.decision_function(own, X[held])))
        codes.append((y[held] > 0).astype(np.int32))
    codes = np.concatenate(codes)
    assert len(codes) == N
    expected = calibration.fit_factor(np.concatenate(scores), codes, np.ones(N))
    np.testing.assert_allclose(model.calibration, expected, rtol=1e-3)
    assert type(model) is bj.TableModel
    batches = [(X[:12], y[:12]), (X[12:], y[12:])]
    other = bj.refit(state, batches, calibrate=True)
    assert 0 < other.calibration < np.inf
    # New coefficients without one have none.
    assert bj.refit(model, X, y).calibration is None


def test_a_model_of_a_stream_keeps_its_labels_and_file(tmp_path):
    model, raw, words = streamed()
    model = bj.refit(model, raw, words, calibrate=True)
    assert type(model) is bj.StreamModel
    chances = bj.probabilities(model, raw)
    np.testing.assert_array_equal(
        np.array(["no", "yes"])[chances.argmax(1)], bj.predict(model, raw)
    )
    bj.save(tmp_path / "model.safetensors", model)
    read = bj.load(tmp_path / "model.safetensors")
    assert read.model.calibration == model.model.calibration
    np.testing.assert_array_equal(bj.probabilities(read, raw), chances)
    # It goes on learning, and its scores are then others.
    more = bj.fit_stream(model, [(raw, words)], batch_rows=30)
    assert more.model.calibration is None


def test_probabilities_are_traced():
    """What is deployed: in `jit`, where the model is an argument or is not."""
    for model in (
        bj.calibrate(learned(), X, y),
        bj.calibrate(learned(3), X, CLASSES),
    ):
        expected = bj.probabilities(model, X)
        for found in (
            jax.jit(bj.probabilities)(model, X),
            jax.jit(lambda rows, model=model: bj.probabilities(model, rows))(X),
        ):
            np.testing.assert_allclose(found, expected, atol=1e-6)
    scaled = bj.TableModel(model, scaling=Scaling.empty(X.shape[1]).updated(X))
    with pytest.raises(ValueError, match="must have values where a model scales"):
        jax.eval_shape(bj.decision_function, scaled, X)


def test_folds_of_a_refit_keep_landmarks():
    """Without any, scores of held-out rows were 0, and all probabilities 1/2."""
    rows = np.random.default_rng(0).uniform(-1, 1, (150, 2)).astype(np.float32)
    labels = np.where(rows[:, 0] * rows[:, 1] > 0, 1, -1)
    state = bj.AROW().init(bj.RBF(2.0), num_features=2, budget=20, vectors=rows[:20])
    state, _ = bj.run(state, rows, labels)
    model = bj.refit(state, rows, labels, penalty=[1e-6, 10.0], calibrate=True)
    assert bj.support(model).mask.sum() == 20
    assert np.mean(bj.predict(model, rows) == labels) > 0.8
    chances = bj.probabilities(model, rows)[np.arange(150), (labels > 0) * 1]
    # Those of a constant are log(2) = 0.69.
    assert -np.mean(np.log(chances)) < 0.5
