"""Several real outputs as columns that share their support vectors; quantiles."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from marks import slow
from reference import fourier, gradients, kernels, maintenance, nystrom, sgd
from reference import refit as reference
from scipy.optimize import minimize

import budgetjax as bj
from budgetjax import losses

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

D, N, K, BUDGET, GAMMA = 2, 240, 3, 20, 0.5
LEVELS = (0.1, 0.5, 0.9)
KERNEL = kernels.rbf(GAMMA)
SGD = bj.SGD()


def points(n=N, seed=0):
    return np.random.default_rng(seed).normal(size=(n, D)).astype(np.float32)


def outputs(X, noise=0.3, seed=1):
    """Three noisy functions of the points."""
    found = np.stack([np.sin(2 * X[:, 0]), X[:, 0] * X[:, 1], np.cos(X[:, 1])], axis=1)
    random = np.random.default_rng(seed)
    return (found + noise * random.normal(size=found.shape)).astype(np.float32)


def weights_of(n=N):
    return np.random.default_rng(2).choice([0, 0.3, 1, 1.7], n)


def made(learner=SGD, num_outputs=K, **more):
    given = {"num_features": D, "budget": BUDGET, "num_classes": None}
    if isinstance(learner, bj.SGD):
        given |= {"maintenance": bj.RemoveOldest()}
    return learner.init(bj.RBF(GAMMA), num_outputs=num_outputs, **given | more)


@functools.cache
def learned(num_outputs=K, dtype=jnp.float32):
    """A model of the outputs, or of the first of them."""
    X, Y = points(), outputs(points())
    targets = Y if num_outputs > 1 else Y[:, 0]
    return bj.run(made(num_outputs=num_outputs, dtype=dtype), X, targets)[0]


def close(found, expected):
    largest = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * largest)


# Steps against NumPy.


@pytest.mark.parametrize("kind", ["squared-and-merge", "quantiles"])
def test_steps_of_several_outputs_are_the_reference(kind, double):
    X, rate, strength = points().astype(float), 0.1, 0.01
    given = outputs(X).astype(float)
    loss, theirs = optax.losses.l2_loss, gradients.squared
    strategy, removes = bj.Merge(same_sign=False), maintenance.merge(False)
    if kind == "quantiles":
        # One target for all.
        given = given[:, 0]
        loss, theirs = losses.quantile(LEVELS), gradients.quantile(np.array(LEVELS))
        strategy, removes = bj.RemoveOldest(), maintenance.remove_oldest
    expected = sgd.run(
        KERNEL,
        X,
        # Every level has a loss of its own, and so its own step for a weight above 1.
        np.broadcast_to(np.reshape(given, (N, -1)), (N, K)),
        budget=BUDGET,
        maintenance=removes,
        gradient=theirs,
        learning_rate=lambda t: rate,
        regularization=strength,
        num_classes=K,
        weights=weights_of(),
    )
    learner = bj.SGD(loss=loss, learning_rate=rate, regularization=strength)
    state = made(learner, maintenance=strategy, dtype=jnp.float64)
    new, scores = bj.run(state, X, given, weight=weights_of())
    assert scores.shape == (N, K)
    close(scores, expected.scores)
    assert int(new.num_updates) == len(expected.updates)
    mask = np.asarray(new.expansion.mask)[:-1]
    close(np.asarray(bj.support(new).coefficients)[mask], expected.coefficients)
    # The score of every output must have the sign of its target.
    seen = weights_of() > 0
    right = np.all(np.asarray(scores) * np.reshape(given, (N, -1)) > 0, axis=1)
    assert int(new.num_mistakes) == np.sum(~right & seen)
    # A step is a run of one.
    one = bj.step(state, X[1], given[1], weights_of()[1])
    two, _ = bj.run(state, X[1:2], given[1:2], weight=weights_of()[1:2])
    close(bj.predict(one, X[:5]), np.asarray(bj.predict(two, X[:5])))


def test_features_of_several_outputs_are_the_reference(double):
    X = points().astype(float)
    Y, rate = outputs(X).astype(float), 0.2
    rest = {
        "gradient": gradients.squared,
        "learning_rate": lambda t: rate,
        "weights": weights_of(),
        "num_classes": K,
    }
    learns = {"optimizer": optax.sgd(rate), "loss": optax.losses.l2_loss}
    state = made(bj.Nystrom(novelty=0.01, **learns), dtype=jnp.float64)
    expected = nystrom.run(KERNEL, X, Y, budget=BUDGET, novelty=0.01, **rest)
    _, scores = bj.run(state, X, Y, weight=weights_of())
    close(scores, expected.scores)
    state = made(bj.Fourier(**learns), dtype=jnp.float64)
    frequencies = np.asarray(state.expansion.vectors)[:-1:2]
    expected = fourier.run(X, Y, frequencies=frequencies, **rest)
    _, scores = bj.run(state, X, Y, weight=weights_of())
    close(scores, expected.scores)


def test_columns_are_models_of_their_own():
    """Every example enters under a squared loss: the vectors are the same."""
    X, Y = points(), outputs(points())
    together, scores = bj.run(made(), X, Y)
    for k in range(K):
        alone, expected = bj.run(made(num_outputs=1), X, Y[:, k])
        np.testing.assert_allclose(scores[:, k], expected, atol=1e-5)
    assert bj.predict(together, X).shape == (N, K)
    np.testing.assert_array_equal(
        bj.support(together).vectors, bj.support(alone).vectors
    )


def test_levels_are_leaves_and_sweep():
    """New levels compile nothing; a grid of them is a sweep."""
    X, y = points(), outputs(points())[:, 0]

    @jax.jit
    def start(middle):
        levels = jnp.stack([middle / 2, middle, (1 + middle) / 2])
        return made(bj.SGD(loss=losses.quantile(levels), learning_rate=0.1))

    middles = np.array([0.3, 0.5], np.float32)
    result = bj.sweep(jax.jit(jax.vmap(start))(middles), X, y)
    for i, middle in enumerate(middles):
        alone, _ = bj.run(start(middle), X, y)
        found = jax.tree.map(lambda leaf, i=i: leaf[i], result.states)
        np.testing.assert_allclose(
            bj.predict(found, X), bj.predict(alone, X), atol=1e-5
        )


# The refit.


def refitted(targets, dtype=jnp.float64, **more):
    state = learned(dtype=dtype)
    support = bj.support(state)
    vectors = np.asarray(support.vectors)[np.asarray(support.mask)]
    given = {"penalty": 3.0, "tolerance": 1e-20} | more
    return points(), vectors, bj.refit(state, points(), targets, **given)


def test_a_refit_of_several_outputs_is_the_reference(double):
    Y = outputs(points())
    X, vectors, state = refitted(Y, loss="squared", weight=weights_of())
    expected = reference.coefficients(
        KERNEL,
        vectors,
        X,
        Y.astype(float),
        loss="squared",
        penalty=3.0,
        weights=weights_of(),
    )
    scores = reference.rows(KERNEL, X, vectors) @ expected
    np.testing.assert_allclose(bj.predict(state, X), scores, rtol=1e-7, atol=1e-7)


def test_a_loss_without_kinks_has_no_smooth_form():
    with pytest.raises(ValueError, match=r"smooth: loss must have kinks, got hinge"):
        losses.smooth(losses.hinge, 0.1)


def test_a_refit_of_rounded_quantiles_is_the_reference(double):
    y, width = outputs(points())[:, 0], 0.05
    loss = losses.smooth(losses.quantile(LEVELS), width)
    X, vectors, state = refitted(y, loss=loss)
    for k, level in enumerate(LEVELS):
        expected = reference.coefficients(
            KERNEL,
            vectors,
            X,
            y.astype(float)[:, None],
            loss=reference.rounded_pinball(level, width),
            penalty=3.0,
        )
        scores = reference.rows(KERNEL, X, vectors) @ expected[:, 0]
        found = bj.predict(state, X)[:, k]
        np.testing.assert_allclose(found, scores, rtol=1e-6, atol=1e-6)


KINKS = {
    "quantiles": (losses.quantile(LEVELS), [(level, 1 - level, 0) for level in LEVELS]),
    "absolute": (losses.absolute, [(1, 1, 0)]),
    "insensitive": (losses.epsilon_insensitive(0.1), [(1, 1, 0.1)]),
}


@pytest.mark.parametrize("name", KINKS)
def test_a_refit_of_kinks_is_near_the_least_loss(name, double):
    """Of the loss that is not rounded: what its dual problem says is the least."""
    loss, slopes = KINKS[name]
    y = outputs(points())[:, 0].astype(float)
    X, vectors, state = refitted(y, loss=loss, tolerance=1e-5)
    root = reference.whitening(reference.rows(KERNEL, vectors, vectors))
    F = reference.rows(KERNEL, X, vectors) @ root
    found = np.asarray(bj.predict(state, X)).T
    for (up, down, width), scores in zip(slopes, found, strict=False):

        def negative_dual(multipliers, width=width):
            above, below = np.split(multipliers, 2)
            w = F.T @ (above - below)
            away = F @ w - y
            value = w @ w / 2 - (above - below) @ y + width * np.sum(multipliers)
            return value, np.concatenate([away, -away]) + width

        bounds = [(0, 3.0 * up)] * N + [(0, 3.0 * down)] * N
        least = -minimize(negative_dual, np.zeros(2 * N), jac=True, bounds=bounds).fun
        w = np.linalg.lstsq(F, scores, rcond=None)[0]
        sides = np.maximum(y - scores - width, 0), np.maximum(scores - y - width, 0)
        ours = w @ w / 2 + 3.0 * np.sum(up * sides[0] + down * sides[1])
        assert 0.9999 < ours / least < (1.01 if name == "quantiles" else 1.005)


def test_intercepts_and_quantiles_of_raw_targets():
    """Targets far from 0, in units of their own, of a model that predicts them."""
    X = points(2000)
    for unit in (1.0, 1e4):
        y = unit * (outputs(X)[:, 0] + 50)
        standard = (y - y.mean()) / y.std()
        start = made(bj.SGD(loss=losses.quantile(LEVELS)))
        state, _ = bj.run(start, X[:N], standard[:N])
        model = bj.TableModel(state, intercept=y.mean())
        found = bj.refit(model, X, y, loss=losses.quantile(LEVELS), penalty=10 * unit)
        assert found.intercept.shape == (K,)
        below = np.mean(y[:, None] < bj.predict(found, X), axis=0)
        np.testing.assert_allclose(below, LEVELS, atol=0.02)


def test_penalties_and_moves_go_by_the_losses_of_all_outputs():
    X, Y = points(), outputs(points())
    best, chosen, moved = (
        np.asarray(bj.predict(refitted(Y, jnp.float32, **given | more)[2], X))
        for given in [{"loss": "squared", "tolerance": 1e-5}]
        for more in ({}, {"penalty": [1e-4, 3.0]}, {"move_vectors": True})
    )
    np.testing.assert_allclose(chosen, best, atol=1e-3)
    assert np.mean((moved - Y) ** 2) < np.mean((best - Y) ** 2)


def squares(found, targets):
    return np.mean((found - targets) ** 2)


def pinballs(found, targets):
    errors, levels = targets[:, None] - np.asarray(found), np.array(LEVELS)
    return np.mean(np.maximum(levels * errors, (levels - 1) * errors))


@pytest.mark.parametrize("cost", [squares, *slow(pinballs)])
def test_a_metric_goes_by_the_losses_of_all_outputs(cost, monkeypatch):
    monkeypatch.setattr("budgetjax.refitting.metric.FEWEST_STEPS", 5)
    X, Y = points(), outputs(points())
    targets = Y if cost is squares else Y[:, 0]
    loss = "squared" if cost is squares else losses.quantile(LEVELS)
    given = {"dtype": jnp.float32, "loss": loss, "tolerance": 1e-5}
    plain, mapped = (
        bj.predict(refitted(targets, learn_metric=metric, **given)[2], X)
        for metric in (False, True)
    )
    assert cost(mapped, targets) < cost(plain, targets)


def test_targets_without_any_noise():
    """There is no deviation for kinks to be rounded over."""
    X = points()
    state, _ = bj.run(made(num_outputs=1), X, np.ones(N))
    found = bj.refit(state, X, np.zeros(N), loss=losses.quantile(0.3))
    np.testing.assert_allclose(bj.predict(found, X), 0, atol=1e-3)


# Streams and files.


def parts(X, Y):
    return [(X[i : i + 70], Y[i : i + 70]) for i in range(0, len(X), 70)]


def test_a_stream_of_several_outputs(tmp_path):
    X = points()
    Y = outputs(X) + np.array([5.0, 0.0, -3.0], np.float32)
    means = Y.mean(axis=0)
    given = {"intercept": means, "batch_rows": 64}
    expected, scores = bj.run(made(), X, Y - means)
    model = bj.fit_stream(made(), parts(X, Y), **given)
    predicted = bj.predict(model, X)
    raw = np.asarray(bj.predict(expected, X)) + means
    np.testing.assert_allclose(predicted, raw, atol=1e-4)
    away = np.asarray(scores) + means - Y
    assert model.error == pytest.approx(np.mean(away**2), rel=1e-4)
    # One more time, through a file, with a sample of the rows to be learned again.
    path = tmp_path / "checkpoint"
    more = given | {"reservoir": 50, "checkpoint": path, "every": 1}
    whole = bj.fit_stream(made(), parts(X, Y), **more)
    again = bj.fit_stream(made(), parts(X, Y), **more)
    np.testing.assert_array_equal(bj.predict(whole, X), bj.predict(again, X))
    bj.save(tmp_path / "model", whole)
    loaded = bj.load(tmp_path / "model")
    np.testing.assert_array_equal(bj.predict(loaded, X), bj.predict(whole, X))
    solved = bj.refit(loaded, parts(X, Y), loss="squared")
    assert np.mean((bj.predict(solved, X) - Y) ** 2) < model.error
    assert solved.model.intercept.shape == (K,)


def test_a_stream_of_one_target_for_all_quantiles(tmp_path):
    X, y = points(), outputs(points())[:, 0]
    start = made(bj.SGD(loss=losses.quantile(LEVELS), learning_rate=0.1))
    expected, _ = bj.run(start, X, y)
    model = bj.fit_stream(start, parts(X, y), batch_rows=64)
    np.testing.assert_allclose(bj.predict(model, X), bj.predict(expected, X), atol=1e-4)
    bj.save(tmp_path / "model", model)
    loaded = bj.load(tmp_path / "model")
    levels = np.asarray(LEVELS, np.float32)
    np.testing.assert_array_equal(loaded.state.learner.loss.keywords["level"], levels)


# What is refused.

X_, Y_ = points(8), outputs(points(8))
NAN = np.where(Y_[5, 1] == Y_, np.nan, Y_)
WRONG = {
    "outputs of classes": (
        lambda: made(num_classes=2),
        "num_outputs must be 1 unless num_classes is None.*got 3",
    ),
    "no output": (lambda: made(num_outputs=0), "num_outputs must be at least 1"),
    "half an output": (lambda: made(num_outputs=1.5), "num_outputs must be an integer"),
    "too few levels": (
        lambda: made(bj.SGD(loss=losses.quantile([0.1, 0.9]))),
        r"SGD.init: loss must have scalars, or shape \(3,\).*got shape \(2,\)",
    ),
    "levels of one output": (
        lambda: made(bj.SGD(loss=losses.quantile([0.1, 0.9])), num_outputs=1),
        r"loss must have scalars, got shape \(2,\); num_outputs=",
    ),
    "a level of 1": (lambda: losses.quantile([0.5, 1.0]), "level must be a number abo"),
    "too few targets": (
        lambda: bj.run(made(), X_, Y_[:, :2]),
        r"y must have shape \(8,\), one label.*, or \(8, 3\), one target.*\(8, 2\)",
    ),
    "targets of one output": (
        lambda: bj.run(made(num_outputs=1), X_, Y_),
        r"y must have shape \(8,\), one label per row of X, got \(8, 3\)",
    ),
    "a target of a step": (
        lambda: bj.step(made(), X_[0], Y_[0, :2]),
        r"y must be a scalar label, or targets of shape \(3,\), got shape \(2,\)",
    ),
    "NaN": (
        lambda: bj.run(made(), X_, NAN),
        "y must be finite in float32, got .*nan.* in row 5",
    ),
    "targets of a stream": (
        lambda: bj.fit_stream(made(), [(X_, Y_[:, :2])]),
        r"y must have shape \(n,\) or \(n, 3\).*got \(8, 2\)",
    ),
    "NaN in a stream": (
        lambda: bj.fit_stream(made(), [(X_, NAN)]),
        "y must be finite.*in row 5",
    ),
    "an intercept of a stream": (
        lambda: bj.fit_stream(made(), [(X_, Y_)], intercept=[1.0, 2.0]),
        r"intercept must have shape \(3,\).*got \(2,\)",
    ),
    "kinks of what is read once": (
        lambda: bj.refit(learned(1), iter([(X_, Y_[:, 0])]), loss=losses.absolute),
        "batches that can be read again.*a loss with kinks",
    ),
    "levels of a refit": (
        lambda: bj.refit(learned(), X_, Y_, loss=losses.quantile([0.1, 0.9])),
        r"loss must be one of .* with numbers of shape \(\) or \(3,\)",
    ),
    "labels of outputs": (
        lambda: bj.refit(learned(), X_, Y_),
        "loss must be 'squared', 'huber' or another.*got 'squared_hinge'",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_refused(name, as_installed):
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message):
        make()
