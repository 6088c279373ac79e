"""Weights of any scale: a row of weight w is w rows, and one of weight 0 is none."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import pytest
from marks import first_quick, slow

import budgetjax as bj
from budgetjax import losses
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    BudgetedOneClass,
    SMOClassifier,
)
from budgetjax.online.importance import SeenWeights
from budgetjax.registry import name_of

pytestmark = pytest.mark.usefixtures("few_passes")

N, HEAVY = 300, (1.5, 3.0, 40.0, 1e3, 1e6)
KERNEL = bj.RBF(1.0)


@functools.cache
def curve(n=N):
    """A noisy function of two features, of deviation 1."""
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1] + 0.1 * random.normal(size=n)
    return X, (y / np.std(y)).astype(np.float32)


def classes(n=N, number=2):
    """Labels of the same rows, a quadrant or the largest of three waves."""
    X, _ = curve(n)
    if number == 2:
        return X, np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    waves = [X[:, 0] * X[:, 1], np.sin(2 * X[:, 0]), np.cos(2 * X[:, 1])]
    return X, np.argmax(np.stack(waves, 1), axis=1)


def r2(predicted, y):
    return 1 - np.mean((np.asarray(predicted) - y) ** 2) / np.var(y)


LEARNERS_OF_NUMBERS = [bj.SGD(), bj.NORMA(), bj.Nystrom(), bj.Fourier()]


def shown(given):
    """The name of a learner in that of a test, or what else is given."""
    return name_of(type(given)) if isinstance(given, bj.Learner) else given


of_numbers = pytest.mark.parametrize(
    "learner", first_quick(LEARNERS_OF_NUMBERS), ids=shown
)


def init(learner, **more):
    return learner.init(KERNEL, num_features=2, **{"budget": 60} | more)


LOSSES = {
    "squared": optax.losses.squared_error,
    "absolute": losses.absolute,
    "poisson": losses.poisson,
}


@pytest.mark.parametrize(
    ("learner", "name"),
    first_quick(
        [(bj.SGD(), name) for name in LOSSES]
        + [(one, "squared") for one in LEARNERS_OF_NUMBERS[1:]]
    ),
    ids=shown,
)
def test_no_weight_takes_a_step_beyond_the_minimum_of_its_loss(learner, name):
    X, y = curve()
    loss, y = LOSSES[name], np.exp(y) if name == "poisson" else y
    given = {"regularization": 0.0} if isinstance(learner, bj.NORMA) else {}
    state = init(dataclasses.replace(learner, loss=loss, **given), num_classes=None)
    state, _ = bj.run(state, X[:50], y[:50])
    # A target far away, and one nearer than the step of weight 1 goes.
    x, before = X[60], bj.decision_function(state, X[60:61])[0]
    goal = before + jnp.array([2.0, -1.5, 0.02])
    target = jnp.exp(goal) if name == "poisson" else goal

    def after(target, weight):
        new = bj.step(state, x, target, weight)
        return bj.decision_function(new, x[None])[0]

    weights = jnp.array([1.0, *HEAVY])
    scores = jax.vmap(lambda y: jax.vmap(lambda w: after(y, w))(weights))(target)
    # How far they are beyond the goal, in units of the distance.
    beyond = (scores - goal[:, None]) / (goal - before)[:, None]
    for distances in np.asarray(beyond):
        # Float32 rounds scores by some 1e-6, of distances of 0.02. The explicit step
        # of weight 1 may pass the minimum, of a loss with a kink; no other does more.
        first = max(distances[0], 1e-3)
        assert np.all(distances[1:] <= first)
        # From weight 2 on it arrives at a kink, and nears any minimum.
        assert abs(distances[-1]) < 1e-3


def test_a_squared_loss_has_the_implicit_step():
    # m = w / (1 + (w - 1) c), where a step of weight 1 removes c = 2 eta k of an error.
    state = init(bj.SGD(learning_rate=0.3), num_classes=None)
    for w in (0.0, 1e-6, 0.5, 1.0, *HEAVY):
        found = bj.step(state, np.zeros(2), 2.0, w)
        m = w if w <= 1 else w / (1 + (w - 1) * 0.6)
        score = bj.decision_function(found, np.zeros((1, 2)))[0]
        assert float(score) == pytest.approx(2.0 * 0.6 * m, rel=1e-5)


@pytest.mark.parametrize("kind", ["number", *slow("class", "outputs")])
def test_derivatives_of_heavy_steps_are_those_of_their_solution(kind, double):
    """Forward and in reverse, beside a difference quotient."""
    X, y = curve(12)
    loss = losses.logistic if kind == "class" else None
    targets, more = {
        "number": (y, {"num_classes": None}),
        "class": (classes(12, 3)[1], {"num_classes": 3}),
        "outputs": (np.stack([y, X[:, 0]], 1), {"num_classes": None, "num_outputs": 2}),
    }[kind]
    weights = np.where(np.arange(12) % 3 == 0, 50.0, 1.0)
    rows = jax.tree.map(jnp.array, (X.astype(float), targets, weights))

    @jax.jit
    def size(rate):
        learner = bj.SGD(loss=loss, learning_rate=rate)
        shared = {"maintenance": bj.RemoveOldest(), "dtype": jnp.float64} | more
        state = init(learner, budget=12, **shared)

        def step(state, row):
            return bj.step(state, *row), None

        state, _ = jax.lax.scan(step, state, rows)
        return jnp.mean(bj.decision_function(state, rows[0]) ** 2)

    # Of the quotient, rounding is 1e-16 / 1e-5, and the third derivative some 1e-10.
    expected = (size(0.2 + 1e-5) - size(0.2 - 1e-5)) / 2e-5
    found = jax.jvp(size, (0.2,), (1.0,))[1], jax.grad(size)(0.2)
    np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_each_output_has_its_own_step():
    X, y = curve()
    both = np.stack([y, np.sign(y) * 100], axis=1)
    weight = np.where(np.arange(N) % 3, 1.0, 50.0)
    learner = bj.SGD(loss=losses.absolute)
    given = {"num_classes": None, "maintenance": bj.RemoveOldest()}
    shared, _ = bj.run(init(learner, num_outputs=2, **given), X, both, weight=weight)
    for column in range(2):
        alone, _ = bj.run(init(learner, **given), X, both[:, column], weight=weight)
        expected = bj.decision_function(alone, X)
        # Sums of a column of two and of a column alone differ in their order.
        size = 1e-4 * np.max(np.abs(expected))
        np.testing.assert_allclose(
            bj.decision_function(shared, X)[:, column], expected, 1e-4, size
        )


@pytest.mark.parametrize(
    ("learner", "given"),
    [
        (bj.Perceptron(margin=0.3), {}),
        *slow(
            (bj.Perceptron(), {"num_classes": 3}),
            (bj.Projectron(threshold=0.4), {}),
            (bj.Ahpatron(radius=1e4), {}),
            (bj.Forgetron(), {}),
            (bj.PassiveAggressive(penalty=0.2), {}),
            (bj.PassiveAggressive(variant="PA"), {}),
        ),
    ],
    ids=shown,
)
def test_a_row_of_weight_w_is_w_rows(learner, given):
    X, y = classes(60, given.get("num_classes", 2))
    times = np.random.default_rng(1).choice([0, 1, 2, 7], len(X))
    state = init(learner, budget=450, **given)
    weighted, _ = bj.run(state, X, y, weight=times)
    rows = np.repeat(np.arange(len(X)), times)
    repeated, _ = bj.run(state, X[rows], y[rows])
    expected = bj.decision_function(repeated, X)
    size = float(np.max(np.abs(expected)))
    # The sums have another number of terms; a Projectron projects a duplicate with an
    # error of its ridge, 0.001.
    tolerance = 5e-3 if isinstance(learner, bj.Projectron) else 1e-5
    np.testing.assert_allclose(
        bj.decision_function(weighted, X), expected, atol=tolerance * size
    )


@of_numbers
def test_a_few_heavy_rows_do_no_harm_to_numbers(learner):
    X, y = curve(1500)
    state = init(learner, num_classes=None)
    heavy = np.where(np.random.default_rng(1).random(1500) < 0.02, 1000.0, 1.0)
    scores = []
    for weight in (None, heavy, np.full(1500, 1e6)):
        model, _ = bj.run(state, X, y, weight=weight)
        scores.append(r2(bj.predict(model, X), y))
    # Every heavy row is learned with its noise, of a variance of 0.02.
    assert scores[1] > scores[0] - 0.05
    assert scores[2] > scores[0] - 0.15


LEARNERS_OF_LABELS = {
    shown(one): one
    for one in (bj.Pegasos(), bj.PassiveAggressive(), bj.Perceptron(), bj.Projectron())
}


@pytest.mark.parametrize("name", first_quick(LEARNERS_OF_LABELS))
def test_a_few_heavy_rows_do_no_harm_to_labels(name):
    X, y = classes(1500)
    random, state = np.random.default_rng(1), init(LEARNERS_OF_LABELS[name])
    heavy = np.where(random.random(1500) < 0.02, 1000.0, 1.0)
    right = []
    for weight in (None, heavy):
        model, _ = bj.run(state, X, y, weight=weight)
        right.append(np.mean(bj.predict(model, X) == y))
    # The last rows make a difference of some hundredths to any of them.
    assert right[1] > right[0] - 0.08


# Estimators.

SMALL = {"gamma": 1.0, "maintenance": "remove_oldest", "random_state": 0}
STREAMS = {
    "regressor": BudgetedKernelRegressor(60, refit=False, **SMALL),
    "classifier": BudgetedKernelClassifier(60, refit=False, learner=bj.SGD(), **SMALL),
}


def fed(estimator, X, y, weight, chunk=100):
    """The estimator after `partial_fit` of chunks."""
    labelled = isinstance(estimator, BudgetedKernelClassifier)
    known = {"classes": np.unique(y)} if labelled else {}
    for start in range(0, len(X), chunk):
        part = slice(start, start + chunk)
        estimator.partial_fit(X[part], y[part], sample_weight=weight[part], **known)
    return estimator


def cloned(estimator, **more):
    return type(estimator)(**estimator.get_params(deep=False) | more)


@pytest.mark.parametrize("kind", first_quick(STREAMS))
@pytest.mark.parametrize("parts", [False, *slow(True)])
def test_the_scale_of_all_weights_does_not_matter_to_a_stream(kind, parts):
    X, y = curve() if kind == "regressor" else classes()
    weight = np.random.default_rng(1).uniform(0.5, 1.5, N)
    found = []
    for scale in (1.0, 1e-6, 1e6):
        one = cloned(STREAMS[kind])
        learn = fed if parts else type(one).fit
        one = learn(one, X, y, scale * weight)
        found.append(np.asarray(bj.decision_function(one.model_, X)))
    np.testing.assert_allclose(found[1:], [found[0]] * 2, 1e-4, 1e-4)
    good = r2(found[0], y) if kind == "regressor" else np.mean(found[0] * y > 0)
    assert good > 0.5


def test_any_parts_of_weights_have_the_same_typical_ones():
    weights = np.array([1.0, 0.0, 9.0, 25.0, 0.0])
    whole, seen = SeenWeights().relative(weights)
    np.testing.assert_allclose(whole, [1, 0, 9 / 4, 25 / 9, 0])
    first, middle = SeenWeights().relative(weights[:2])
    rest, last = middle.relative(weights[2:])
    np.testing.assert_allclose(np.append(first, rest), whole)
    assert last == seen == SeenWeights(3.0, 3)
    assert seen.typical == 9
    assert middle.after(9.0).after(25.0) == pytest.approx(seen)


def masked_frame(X, garbage):
    """Rows in a frame with names, and as many that are to have no weight."""
    names = np.array(["ash", "beech", "cedar"])
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": names[np.arange(N) % 3]})
    if not garbage:
        return frame
    other = frame.assign(a=50_000 + 1e4 * frame.a, b=-9999.0)
    other["kind"] = [f"name {i}" for i in range(N)]
    return pd.concat([frame, other], ignore_index=True)


GARBAGE = {
    "regressor": BudgetedKernelRegressor(
        20, penalty=1.0, learn_metric=False, random_state=0
    ),
    "regressor-as-it-is": BudgetedKernelRegressor(
        20, encode=False, refit=False, random_state=0
    ),
    "classifier": BudgetedKernelClassifier(20, penalty=1.0, random_state=0),
    "one-class": BudgetedOneClass(20, random_state=0),
    "smo": SMOClassifier(),
}


@pytest.mark.parametrize("parts", [False, *slow(True)])
@pytest.mark.parametrize("kind", first_quick(GARBAGE))
@pytest.mark.filterwarnings("ignore:.*features look unscaled:UserWarning")
def test_rows_of_weight_0_change_nothing(kind, parts):
    estimator = GARBAGE[kind]
    if parts and not hasattr(estimator, "partial_fit"):
        pytest.skip("it learns no parts")
    X, y = curve()
    y = y if "regressor" in kind else np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")
    takes_names = getattr(estimator, "encode", False) is not False
    rows = masked_frame(X, True)
    if not takes_names:
        rows = rows[["a", "b"]].to_numpy()
    # In the parts of a stream as everywhere.
    both = np.random.default_rng(0).permutation(2 * N)
    weight = np.repeat([1.0, 0.0], N)[both]
    rows = rows.iloc[both] if takes_names else rows[both]
    labels = np.append(y, np.full(N, -1e6) if "regressor" in kind else y)[both]
    there = weight > 0
    models = []
    for given in ((rows, labels, weight), (rows[there], labels[there], weight[there])):
        one = cloned(estimator)
        if not parts:
            models.append(one.fit(*given))
            continue
        # One part: others would be cut elsewhere.
        known = {"classes": ["no", "yes"]} if kind == "classifier" else {}
        models.append(one.partial_fit(*given[:2], sample_weight=given[2], **known))
    masked, alone = models
    np.testing.assert_array_equal(
        masked.predict(rows[there]), alone.predict(rows[there])
    )
    if takes_names:
        assert masked.categories_["kind"].tolist() == ["ash", "beech", "cedar"]


def test_a_class_of_weight_0_decides_on_no_units():
    X, y = classes()
    far = np.append(X, 1e4 * (1 + X), axis=0)
    labels = np.append(y, np.zeros(N, int))
    given = {"learn_metric": False, "penalty": 1.0, "random_state": 0}
    estimator = BudgetedKernelClassifier(20, class_weight={0: 0.0}, **given)
    found = estimator.fit(far, labels)
    assert found.classes_.tolist() == [-1, 0, 1]
    assert np.mean(found.predict(X) == y) > 0.8


@pytest.mark.filterwarnings("error")
def test_rows_of_weight_0_are_no_reason_for_a_warning():
    X, y = classes()
    far = np.append(1e4 * (1 + X), X, axis=0)
    batch = far, np.append(y, y), np.repeat([0.0, 1.0], N)
    model = bj.fit_stream(init(bj.Pegasos()), [batch])
    alone = bj.fit_stream(init(bj.Pegasos()), [(X, y)])
    np.testing.assert_array_equal(model.predict(X), alone.predict(X))
