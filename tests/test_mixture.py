"""A mixture of learners: its weights, its variance and its intervals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import same
from reference import mixture as reference
from test_tracking import stream

import budgetjax as bj
from budgetjax.online import sweeps

GAMMAS = np.array([0.03, 0.3, 1.0])
START = 1.6448536269514722


def experts(kind=None, gammas=GAMMAS, budget=15, num_features=3, **more):
    """Of KRLST, unless another learner is given."""
    learner = bj.KRLST(noise=0.03) if kind is None else kind
    given = {"num_classes": None, "budget": budget, "num_features": num_features}
    return bj.grid(gamma=gammas).init(
        lambda gamma: learner.init(bj.RBF(gamma), **given | more)
    )


def empty(*given, mixture=None, **more):
    return (mixture or bj.Mixture()).of(experts(*given, **more))


# Runs of one length share a program; what is shorter ends with rows of weight 0.
ROWS = 150


def run(state, X, y, weight=None, block_size=None):
    weight = np.ones(ROWS) if weight is None else weight
    return bj.run(state, X, y, weight=weight, variance=True, block_size=block_size)


def one_of(states, i):
    # Taken apart in NumPy, where an index compiles nothing.
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[i]), states)


@pytest.mark.parametrize("knows", [True, False], ids=["krlst", "sgd"])
def test_it_is_that_of_numpy(knows, double):
    """Some rows are absent, some light and some heavy."""
    X, y = stream(ROWS)
    weight = np.random.default_rng(1).choice([0, 0.5, 1.0, 3.0], len(X))
    kind = None if knows else bj.SGD()
    given = {"forgetting": 0.02, "share": 0.01, "level": 0.8, "rate": 0.05}
    state = empty(kind, dtype="float64", mixture=bj.Mixture(**given))
    told = []
    for i in range(len(GAMMAS)):
        expert = one_of(state.experts, i)
        if knows:
            told.append(run(expert, X, y, weight)[1:])
        else:
            _, scores = bj.run(expert, X, y, weight=weight)
            told.append((scores, np.ones(len(X))))
    means, variances = np.swapaxes(np.array(told, np.float64), 0, 1)
    start = 1.2815515655446004
    mean, variance, weights, widths, _ = reference.run(
        means, variances, y, weight, start=start, **given
    )
    new, scores, found = run(state, X, y, weight)
    np.testing.assert_allclose(scores, mean, atol=1e-9)
    np.testing.assert_allclose(found, variance, rtol=1e-7)
    # What is said of the next row is said by the state.
    half, *_ = run(state, X, y, np.where(np.arange(ROWS) < 100, weight, 0))
    np.testing.assert_allclose(half.weights, weights[100], atol=1e-8)
    np.testing.assert_allclose(bj.variance(half, X[100:101]), variance[100], rtol=1e-6)
    ends = np.asarray(bj.predict_interval(half, X[100:101], 0.8))[0]
    reach = widths[100] * np.sqrt(variance[100])
    np.testing.assert_allclose(ends, mean[100] + reach * np.array([-1, 1]), rtol=1e-6)
    assert int(new.num_seen) == np.sum(weight > 0) == int(new.num_updates)
    assert int(new.num_mistakes) == np.sum((y * mean <= 0) & (weight > 0))


@pytest.mark.parametrize("block_size", [1, 7])
def test_blocks_of_any_size_agree(block_size, double):
    X, y = stream(ROWS)
    state = empty(dtype="float64")
    new, scores, _ = run(state, X, y, block_size=block_size)
    expected, wanted, _ = run(state, X, y)
    np.testing.assert_allclose(scores, wanted, atol=1e-10)
    np.testing.assert_allclose(new.weights, expected.weights, atol=1e-9)


def test_a_step_is_a_run_of_one_row(double):
    X, y = stream(ROWS)
    step = jax.jit(bj.step)
    start = state = empty(dtype="float64")
    for x, target in zip(X[:5], y[:5], strict=True):
        state = step(state, x, target)
    expected, *_ = run(start, X, y, np.arange(ROWS) < 5, block_size=1)
    np.testing.assert_allclose(state.weights, expected.weights, rtol=1e-4)
    np.testing.assert_allclose(
        bj.predict(state, X), bj.predict(expected, X), rtol=1e-4, atol=1e-5
    )


def test_absent_rows_change_nothing(double):
    X, y = stream(ROWS)
    state, *_ = run(empty(dtype="float64"), X, y)
    padding = np.full((ROWS, 3), np.nan)
    after, scores, _ = run(state, padding, np.zeros(ROWS), np.zeros(ROWS))
    assert np.all(np.isnan(scores))
    same(after.memory, state.memory)
    same(after.counts, state.counts)
    np.testing.assert_array_equal(bj.predict(after, X), bj.predict(state, X))


def test_a_mixture_of_one_is_the_expert(double):
    X, y = stream(ROWS)
    state = empty(gammas=GAMMAS[:1], dtype="float64")
    _, scores, _ = run(state, X, y)
    _, expected, _ = run(one_of(state.experts, 0), X, y)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_equal_experts_keep_equal_weights():
    X, y = stream(80)
    state, _ = bj.run(empty(gammas=np.full(3, 0.3)), X, y)
    np.testing.assert_allclose(state.weights, 1 / 3, rtol=1e-5)


def test_no_expert_is_much_better_than_bayes(double):
    """Without forgetting the log loss is at most log E above that of each expert."""
    X, y = stream(ROWS)
    mixture = bj.Mixture(forgetting=0, share=0)
    state = empty(dtype="float64", mixture=mixture)
    told = []
    for i in range(len(GAMMAS)):
        told.append(run(one_of(state.experts, i), X, y)[1:])
    means, variances = np.swapaxes(np.array(told), 0, 1)
    given = {"forgetting": 0, "share": 0, "start": START}
    *_, weights, _, density = reference.run(means, variances, y, np.ones(ROWS), **given)
    loss = -np.log(np.sum(weights * np.exp(density), axis=1)).sum()
    assert loss <= -density.sum(axis=0).max() + np.log(len(GAMMAS)) + 1e-9
    new, *_ = run(state, X, y)
    final = density.sum(axis=0)
    final = np.exp(final - final.max())
    np.testing.assert_allclose(new.weights, final / final.sum(), atol=1e-8)


def test_intervals_cover_their_level():
    """Also where the noise has heavy tails and grows."""
    X, y = stream(6000)
    random = np.random.default_rng(3)
    y = y + 0.1 * np.linspace(0.5, 3, 6000) * random.standard_t(3, 6000)
    state = empty(gammas=GAMMAS[:2], mixture=bj.Mixture(level=0.8))
    inside = []
    for part in np.split(np.arange(6000), 60):
        low, high = np.asarray(bj.predict_interval(state, X[part], 0.8)).T
        inside.append((low <= y[part]) & (y[part] <= high))
        state, _ = bj.run(state, X[part], y[part], block_size=50)
    assert np.mean(inside[10:]) == pytest.approx(0.8, abs=0.02)
    wide = np.asarray(bj.predict_interval(state, X[:1], 0.95))[0]
    narrow = np.asarray(bj.predict_interval(state, X[:1], 0.8))[0]
    assert wide[0] < narrow[0] < narrow[1] < wide[1]


def test_a_gaussian_of_one_learner_has_intervals_too():
    X, y = stream(80)
    state = one_of(bj.run(empty(), X, y)[0].experts, 1)
    low, high = np.asarray(bj.predict_interval(state, X)).T
    deviation = np.sqrt(bj.variance(state, X))
    np.testing.assert_allclose(high - low, 2 * START * deviation, rtol=1e-4)


def test_it_finds_the_expert_that_follows_the_stream():
    X, y = stream(1500)
    _, scores = bj.run(empty(budget=40), X, y)
    errors = [
        np.std((np.asarray(bj.run(one_of(experts(budget=40), i), X, y)[1]) - y)[300:])
        for i in range(3)
    ]
    assert np.std((np.asarray(scores) - y)[300:]) < 1.03 * min(errors)


@pytest.mark.parametrize("kind", [bj.KRLST(), bj.SGD()], ids=["krlst", "sgd"])
def test_experts_side_by_side_say_the_same(kind, monkeypatch, double):
    """As on an accelerator."""
    X, y = stream(ROWS)
    state, expected, _ = run(empty(kind, dtype="float64"), X, y)
    told = np.asarray(bj.decision_function(state, X))
    # Of shapes that no other test has, whose programs are made here.
    monkeypatch.setattr(sweeps, "side_by_side", lambda: True)
    _, scores, _ = run(empty(kind, dtype="float64"), X, y, block_size=11)
    np.testing.assert_allclose(scores, expected, atol=1e-10)
    told_again = bj.decision_function(state, X[:44])
    np.testing.assert_allclose(told_again, told[:44], atol=1e-10)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_mixture_of_classifiers(classes):
    random = np.random.default_rng(0)
    X = random.normal(size=(400, 2)).astype(np.float32)
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int32)
    y = 2 * y - 1 if classes == 2 else y + (X[:, 0] > 1)
    state = empty(bj.AROW(), num_features=2, num_classes=classes, budget=20)
    new, scores = bj.run(state, X, y)
    found = np.asarray(bj.predict(new, X))
    assert np.mean(found == y) > 0.85
    assert int(new.num_mistakes) < 120
    assert scores.shape == ((400,) if classes == 2 else (400, 3))
    assert float(jnp.sum(new.weights)) == pytest.approx(1, rel=1e-5)
    for ask in (bj.variance, bj.predict_interval):
        with pytest.raises(ValueError, match=r"must know the variance|of real targets"):
            ask(new, X)


@pytest.mark.slow
def test_labels_choose_among_widths():
    """The default experts for labels, of widths that are far apart."""
    data = bj.datasets.load("digits")
    X, y = data.X_train[:600], data.y_train[:600]
    state = bj.Mixture().init(num_features=64, budget=30, num_classes=10)
    assert state.weights.shape == (8,)
    assert type(state.experts.learner) is bj.AROW
    state, _ = bj.run(state, X, y)
    mistakes = [int(one) for one in np.asarray(state.experts.num_mistakes)]
    assert int(state.num_mistakes) < 1.1 * min(mistakes) + 6 < max(mistakes)


def test_several_outputs():
    X, y = stream(80)
    targets = np.stack([y, np.cos(X[:, 1])], axis=1)
    state, scores, variances = bj.run(empty(num_outputs=2), X, targets, variance=True)
    assert scores.shape == variances.shape == (80, 2)
    assert bj.predict_interval(state, X).shape == (80, 2, 2)
    assert bj.variance(state, X).shape == (80, 2)


def test_the_default_experts():
    X, y = stream(250)
    state = bj.Mixture().init(num_features=3, budget=15)
    assert state.weights.shape == (16,)
    assert bj.Mixture().init(num_features=3, budget=15, fast=True).weights.shape == (8,)
    state, scores = bj.run(state, X, y)
    assert np.std((np.asarray(scores) - y)[150:]) < 0.7 * np.std(y)


def test_verbs(tmp_path):
    X, y = stream(80)
    start = empty()
    state, _ = bj.run(start, X, y)
    bj.save(tmp_path / "mixture", state)
    loaded = bj.load(tmp_path / "mixture")
    assert bj.equal(loaded, state)
    again = state.restart()
    np.testing.assert_array_equal(again.weights, start.weights)
    same(bj.run(again, X, y)[0].memory, state.memory)
    streamed = bj.fit_stream(start, [(X[:30], y[:30]), (X[30:], y[30:])])
    np.testing.assert_allclose(
        bj.predict(streamed.state, X), bj.predict(state, X), rtol=1e-3, atol=1e-3
    )

    def mixed(share):
        return bj.Mixture(share=share).of(experts())

    swept = bj.sweep(jax.vmap(mixed)(jnp.array([1e-3, 0.1])), X, y)
    one = one_of(swept.states, 0)
    np.testing.assert_allclose(one.weights, state.weights, rtol=1e-3, atol=1e-5)


@pytest.mark.usefixtures("as_installed")
def test_what_it_refuses():
    single = one_of(experts(), 0)
    for call, says in (
        (lambda: bj.Mixture(share=1), "Mixture: share must be a number of at least 0"),
        (lambda: bj.Mixture(level=1.0), "Mixture: level must be a number above 0"),
        (lambda: bj.Mixture().of(single), "Mixture.of: experts must be .* stacked"),
        (lambda: bj.Mixture().of(3), "Mixture.of: experts must be .* stacked"),
        (
            lambda: empty(bj.SGD(loss=bj.losses.poisson)),
            "Mixture.of: experts must be of labels or real targets",
        ),
        (lambda: bj.Mixture().init(num_features=0, budget=3), "Mixture.init: num_feat"),
        (
            lambda: bj.predict_interval(single, np.ones((1, 3)), 2),
            "predict_interval: lev",
        ),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            call()
    with pytest.raises(ValueError, match="state must be of a learner"):
        bj.refit(empty(), *stream(20))
