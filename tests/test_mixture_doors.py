"""A mixture wherever a learner can be named: estimators, recipes, files, river."""

import math
import pickle

import numpy as np
import pytest
from click.testing import CliRunner
from marks import slow
from river.conf import Interval

import budgetjax as bj
from budgetjax import river
from budgetjax.cli.commands import budgetjax as group
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor
from budgetjax.online.mixture import MixtureState

pytestmark = pytest.mark.usefixtures("plain_loops")
MIXTURE = bj.Mixture(level=0.8)


def rows(n=300):
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 2)).astype(np.float32)
    return X, 500 + 100 * np.sin(2 * X[:, 0]) + 5 * random.normal(size=n)


def regressor(**given):
    return BudgetedKernelRegressor(
        15, learner=MIXTURE, refit=False, encode=False, random_state=0, **given
    )


@pytest.fixture(scope="module")
def fitted():
    return regressor().fit(*rows())


def test_a_regressor(fitted, tmp_path):
    X, y = rows()
    assert fitted.score(X, y) > 0.9
    assert isinstance(fitted.state_, MixtureState)
    assert float(fitted.state_.learner.level) == pytest.approx(0.8)
    # Of 16 experts, each within its budget.
    assert 15 < fitted.n_support_ <= 16 * 15
    with pytest.raises(AttributeError, match="no support vectors"):
        _ = fitted.support_vectors_
    bj.save(tmp_path / "model", fitted)
    again = bj.load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), fitted.predict(X))
    assert bj.equal(again.learner, MIXTURE)
    assert bj.equal(pickle.loads(pickle.dumps(fitted)).state_, fitted.state_)


def test_parts_of_a_stream_go_on():
    X, y = rows()
    model = regressor().partial_fit(X[:150], y[:150])
    model.partial_fit(X[150:], y[150:])
    assert model.score(X, y) > 0.85
    assert int(model.state_.num_seen) == 300


def test_experts_have_multiples_of_the_usual_gamma(fitted):
    gamma = np.asarray(fitted.state_.experts.kernel.gamma)
    usual = bj.default_gamma(rows()[0])
    np.testing.assert_allclose(np.unique(gamma / usual), [1 / 64, 1 / 8, 0.5, 2], 1e-4)


@pytest.mark.parametrize("classes", [3, *slow(2)])
def test_a_classifier(classes):
    X, y = rows(400)
    labels = np.digitize(y, [500] if classes == 2 else [460, 540]).astype(str)
    model = BudgetedKernelClassifier(
        15, learner=bj.Mixture(), refit=False, encode=False, random_state=0
    )
    model.fit(X, labels)
    assert model.score(X, labels) > 0.85
    assert isinstance(model.state_, MixtureState)
    assert type(model.state_.experts.learner) is bj.AROW
    assert model.decision_function(X).shape == ((400,) if classes == 2 else (400, 3))


def test_a_recipe_on_batches(tmp_path):
    X, y = rows()
    recipe = bj.Recipe(budget=15, learner=MIXTURE, refit=False, regression=True)
    batches = [(X[i : i + 100], y[i : i + 100]) for i in range(0, 300, 100)]
    model = bj.train(recipe, batches)
    assert model.num_rows == 300
    assert 0 < model.error < np.var(y)
    bj.save(tmp_path / "model", model)
    again = bj.load(tmp_path / "model")
    assert bj.equal(again.recipe.learner, MIXTURE)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"refit": True},
            "refit must be False with Mixture, which has several",
        ),
        ({"gamma": 0.1}, "gamma must be 'auto' with Mixture, .* got 0.1"),
        ({"gamma": "scale"}, "gamma must be 'auto' with Mixture"),
        ({"kernel": "linear"}, "kernel must be 'rbf' with Mixture, .* got 'linear'"),
        ({"kernel": bj.RBF(1.0)}, "kernel must be 'rbf' with Mixture"),
        ({"loss": "huber"}, "loss must be 'squared' .*, as Mixture has its own"),
        ({"average": True}, "average must be False, as Mixture takes none"),
        ({"maintenance": "merge"}, "maintenance must be None, as Mixture takes none"),
        ({"vectors": np.ones((2, 2))}, "vectors must be None, as Mixture takes none"),
    ],
)
def test_what_it_refuses(given, says):
    given = {"learner": bj.Mixture(), "refit": False} | given
    with pytest.raises(ValueError, match=says):
        BudgetedKernelRegressor(10, **given).fit(*rows(30))


@pytest.mark.usefixtures("as_installed")
def test_what_init_refuses():
    sizes = {"num_features": 2, "budget": 5}
    for given, says in (
        ({"kernel": bj.Linear()}, "Mixture.init: kernel must have a gamma, of which"),
        ({"average": True}, "Mixture.init: average must be False, as Mixture takes"),
        ({"num_classes": 1}, "num_classes must be"),
        ({"num_classes": 2, "num_outputs": 2}, "num_outputs must be 1"),
    ):
        with pytest.raises(ValueError, match=says):
            bj.Mixture().init(**sizes | given)
    of_labels = bj.Mixture().init(num_classes=2, fast=True, **sizes)
    assert of_labels.weights.shape == (4,)


def test_numbers_that_overflow_are_explained():
    X, y = rows(20)
    with pytest.raises(ValueError, match="numbers of its parts overflow float32"):
        bj.run(bj.Mixture().init(num_features=2, budget=5), 1e25 * X, y)


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y = rows()
    np.savetxt("a.csv", np.c_[X, y], delimiter=",", header="a,b,y", comments="")

    def call(line, code=0):
        done = CliRunner().invoke(group, line.split())
        assert done.exit_code == code, done.output
        return " ".join(done.output.split())

    shared = "a.csv --target y --regression --learner mixture"
    text = call(f"train {shared} --no-refit --budget 15 -m m --set level=0.8")
    assert "kernel: 16 of its own learner: mixture, at most 15 support vectors" in text
    text = call("info m")
    assert "experts: 16, the largest weight 0." in text
    assert "support vectors: " in text
    call("predict m a.csv --output p.csv")
    found = np.loadtxt("p.csv", ndmin=1)
    np.testing.assert_allclose(found, bj.load("m").predict(X), rtol=1e-5)
    assert "refit must be False with Mixture" in call(f"train {shared} -m n", 2)
    text = call(f"train {shared} --no-refit --gamma 3 -m n", 2)
    assert "gamma must be 'auto' with Mixture" in text
    assert "mixture has several kernels of its own" in call(f"sweep {shared}", 2)


def learn(model, X, y):
    for row, target in zip(X.tolist(), y.tolist(), strict=True):
        model.learn_one(dict(zip("ab", row, strict=False)), target)
    return model


def test_a_regressor_of_river():
    X, y = rows(150)
    y = (y - 500) / 100
    model = river.BudgetedRegressor(bj.Mixture(level=0.8), budget=10)
    row = {"a": 0.1, "b": 0.2}
    assert model.predict_one(row, with_interval=True) == Interval(-math.inf, math.inf)
    # The second column comes later.
    learn(model, X[:20, :1], y[:20])
    model.predict_one(row)
    learn(model, X[20:], y[20:])
    state = model.state
    assert (state.num_features, state.weights.shape) == (2, (16,))
    expected = bj.predict(state, X[:1])[0]
    known = dict(zip("ab", X[0].tolist(), strict=True))
    assert model.predict_one(known) == pytest.approx(float(expected), abs=1e-4)
    found = model.predict_one(known, with_interval=True, level=0.8)
    ends = bj.predict_interval(state, X[:1], 0.8)[0]
    np.testing.assert_allclose([found.lower, found.upper], ends, atol=1e-4)
    again = pickle.loads(pickle.dumps(model))
    assert again.predict_one(known) == model.predict_one(known)
    learn(again, X[:1], y[:1])
    assert again.predict_one(known) != model.predict_one(known)


def test_rows_one_by_one_are_those_of_a_run():
    X, y = rows(30)
    y = (y - 500) / 100
    model = river.BudgetedRegressor(bj.Mixture(), budget=10)
    for row, target in zip(X, y, strict=True):
        learn(model, row[None], target[None])
        model.predict_one({"a": 0.0, "b": 0.0})
    start = bj.Mixture().init(bj.RBF(0.5), num_features=2, budget=10)
    expected, _ = bj.run(start, X, y)
    np.testing.assert_allclose(model.state.weights, expected.weights, atol=1e-3)


@pytest.mark.usefixtures("as_installed")
def test_what_river_refuses():
    with pytest.raises(ValueError, match="gamma must be None with Mixture"):
        river.BudgetedRegressor(bj.Mixture(), gamma=0.1)
    with pytest.raises(ValueError, match="kernel must be 'rbf' with Mixture"):
        river.BudgetedClassifier(bj.Mixture(), kernel="linear")
    model = river.BudgetedRegressor(budget=5)
    model.learn_one({"a": 1.0}, 1.0)
    with pytest.raises(ValueError, match="must know the variance of its targets"):
        model.predict_one({"a": 1.0}, with_interval=True)


@pytest.mark.slow
def test_a_classifier_of_river_learns_of_labels_as_they_come():
    X, y = rows(500)
    labels = np.digitize(y, [460, 540])
    labels[:200] = labels[:200] > 0
    model = learn(river.BudgetedClassifier(bj.Mixture(), budget=15), X, labels)
    assert model.state.num_columns == 3
    found = [model.predict_one(dict(zip("ab", row, strict=True))) for row in X.tolist()]
    assert np.mean(np.array(found)[200:] == labels[200:]) > 0.8
