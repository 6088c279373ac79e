"""Trainings: recipes, and models of rows and of batches by them."""

import contextlib
import dataclasses
import inspect

import jax
import numpy as np
import pandas
import pyarrow as pa
import pytest
import scipy.sparse
from marks import slow
from refusals import refused

import budgetjax as bj
from budgetjax._record import fields_of
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor
from budgetjax.training import fit, sample

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

# Of an estimator alone: it weighs classes, has several quantiles, shows progress, and
# draws a seed.
OWN = {"class_weight", "quantile", "progress", "random_state"}
QUICK = {"budget": 10, "maintenance": "remove_smallest"}
# For what would be learned alike with a metric.
PLAIN = QUICK | {"learn_metric": False}


@pytest.fixture
def small(monkeypatch):
    """Sources of more than 200 rows are long."""
    monkeypatch.setattr(sample, "default_size", lambda width: 200)


def rows(n=300, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3)).astype(np.float32)
    return X, np.where(X[:, 0] * X[:, 1] > 0, "yes", "no")


def batches(*arrays, size=70):
    """The arrays in batches, in a list."""
    n = len(arrays[1])
    parts = (slice(start, start + size) for start in range(0, n, size))
    return [tuple(one[part] for one in arrays) for part in parts]


def check_same(one, other):
    """Models that are equal to the last bit; codes of names have no bounds."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(a, b)


class Counted(list):
    """Batches that count how often they are read."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


@pytest.mark.parametrize("kind", [BudgetedKernelClassifier, BudgetedKernelRegressor])
def test_defaults_are_those_of_the_estimators(kind):
    known = {one.name: one.default for one in fields_of(bj.Recipe)}
    given = inspect.signature(kind).parameters
    assert known.keys() - given.keys() == {"regression", "seed"}
    assert given.keys() - known.keys() <= OWN
    for name in known.keys() & given.keys():
        assert known[name] == given[name].default, name


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"encode": False, "gamma": 0.5},
        {"refit": False, "learner": bj.Perceptron()},
        {"learn_metric": False, "epochs": 2, "loss": "logistic"},
        {
            **{"penalty": 3.0, "kernel": "laplacian", "shuffle": False},
            "learn_metric": False,
        },
    ],
    ids=str,
)
def test_few_rows_give_the_model_of_the_estimator(given):
    X, y = rows()
    model = bj.train(bj.Recipe(**QUICK | given, seed=5), batches(X, y))
    other = BudgetedKernelClassifier(**QUICK | given, random_state=5).fit(X, y)
    check_same(model.model, other.model_)
    assert model.num_rows == len(y) * given.get("epochs", 1)
    assert 0 < model.error < 0.6


def test_weights_and_numbers_are_those_of_the_estimator():
    X, _ = rows()
    y = 1e5 + 10 * X[:, 0]
    weight = np.arange(len(y)) % 4 * 2.5
    recipe = bj.Recipe(**PLAIN, regression=True, loss="huber", seed=2)
    model = bj.train(recipe, batches(X, y, weight))
    other = BudgetedKernelRegressor(**PLAIN, loss="huber", random_state=2)
    check_same(model.model, other.fit(X, y, weight).model_)
    # In squares of the targets' unit.
    assert model.error == pytest.approx(np.var(y), rel=1)


@pytest.mark.parametrize("outputs", [1, 2])
def test_several_targets_are_those_of_the_estimator(outputs):
    X, _ = rows()
    y = np.stack([1e3 + X[:, 0], 5 * X[:, 1] ** 2], axis=1)[:, :outputs]
    recipe = bj.Recipe(**PLAIN, regression=True)
    model = bj.train(recipe, batches(X, y))
    other = BudgetedKernelRegressor(**PLAIN, random_state=0).fit(X, y)
    check_same(model.model, other.model_)
    assert model.predict(X).shape == (300, 2)[:outputs]


def test_a_long_source_has_several_targets(small):
    X, _ = rows(600)
    y = np.stack([X[:, 0], np.sin(2 * X[:, 1]) + 50], axis=1)
    weight = np.where(np.arange(600) % 3 > 0, 4.0, 0.0)
    given = bj.Recipe(budget=30, regression=True, learn_metric=False)
    for recipe, least in ((given, 0.9), (given._replace(refit=False), 0.5)):
        model = bj.train(recipe, batches(X, y, weight))
        errors = np.mean(np.square(model.predict(X) - y), axis=0)
        assert np.all(1 - errors / np.var(y, axis=0) > least)
        assert model.num_rows == 400


def test_a_given_penalty_is_for_weights_as_they_are():
    X, y = rows()
    weight = np.random.default_rng(1).uniform(1, 2, len(y))
    found = []
    for penalty, times in ((8.0, 1), (1.0, 8), (1.0, 1)):
        recipe = bj.Recipe(**PLAIN, penalty=penalty)
        model = bj.train(recipe, batches(X, y, times * weight))
        found.append(bj.decision_function(model, X))
    size = np.max(np.abs(found[0]))
    np.testing.assert_allclose(found[1], found[0], atol=1e-2 * size)
    assert np.max(np.abs(found[2] - found[0])) > 0.1 * size


def test_names_and_gaps_are_those_of_the_estimator():
    X, y = rows()
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = np.where(X[:, 2] > 0, "high", "low")
    frame.loc[::7, "a"] = np.nan
    recipe, table = bj.Recipe(**PLAIN, seed=1), pa.Table.from_pandas(frame)
    other = BudgetedKernelClassifier(**PLAIN, random_state=1).fit(frame, y)
    for source in (
        [(frame, y)],
        [(table, y)],
        [(frame[:90], y[:90]), (frame[90:], y[90:])],
    ):
        model = bj.train(recipe, source)
        check_same(model.model, other.model_)
    assert model.predict(frame).tolist() == other.predict(frame).tolist()


def test_sparse_rows_are_those_of_the_estimator():
    X, y = rows()
    X = scipy.sparse.csr_array(np.where(np.abs(X) > 1, X, 0))
    model = bj.train(bj.Recipe(**QUICK), [(X[:100], y[:100]), (X[100:], y[100:])])
    other = BudgetedKernelClassifier(**QUICK, random_state=0).fit(X, y)
    check_same(model.model, other.model_)


def test_a_source_is_read_once_or_twice(small):
    X, y = rows()
    recipe = bj.Recipe(**PLAIN)
    few, many = Counted(batches(X[:200], y[:200])), Counted(batches(X, y))
    bj.train(recipe, few)
    bj.train(recipe._replace(refit=False), many)
    assert (few.times, many.times) == (1, 2)


def test_epochs_of_a_long_source_are_passes_over_it(small):
    X, y = rows()
    source = Counted(batches(X, y))
    recipe = bj.Recipe(**QUICK, refit=False, epochs=3)
    model = bj.train(recipe, source)
    assert model.num_rows == 3 * len(y)
    # And once for the sample.
    assert source.times == 4


@pytest.mark.parametrize(
    ("encode", "regression"),
    [("auto", False), (False, True), *slow(("auto", True), (False, False))],
)
def test_a_long_source_is_learned_as_well(small, encode, regression):
    X, y = rows(600)
    y = np.sin(2 * X[:, 0]) + 50 if regression else y
    given = {"budget": 30, "encode": encode}
    model = bj.train(bj.Recipe(**given, regression=regression), batches(X, y))
    kind = BudgetedKernelRegressor if regression else BudgetedKernelClassifier
    other = kind(**given, random_state=0).fit(X, y)
    test, targets = rows(600, seed=1)
    if regression:
        wanted = np.sin(2 * test[:, 0]) + 50
        errors = [np.var(one.predict(test) - wanted) for one in (model, other)]
        # The variance of targets is 0.5, and 200 rows choose the encoding.
        assert errors[0] < 3 * errors[1] + 1e-3
    else:
        errors = [np.mean(one.predict(test) != targets) for one in (model, other)]
        assert errors[0] < errors[1] + 0.03
    assert model.num_rows == 600
    assert model.model.class_labels is None or model.classes.tolist() == ["no", "yes"]


def test_a_long_source_has_names_and_weights(small):
    X, y = rows(600)
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    frame["kind"] = y
    weight = np.where(np.arange(600) % 3 > 0, 4.0, 0.0)
    parts = [
        (frame[at : at + 50], y[at : at + 50], weight[at : at + 50])
        for at in range(0, 600, 50)
    ]
    model = bj.train(bj.Recipe(**QUICK), parts)
    assert model.num_rows == 400
    assert np.mean(model.predict(frame) == y) > 0.98
    # Only the name tells: the other columns count for little.
    assert model.importances is None or np.argmax(model.importances) == 3


def test_an_interrupted_training_goes_on(small, tmp_path, monkeypatch):
    X, y = rows(600)
    recipe, path = bj.Recipe(**PLAIN), tmp_path / "checkpoint"
    whole = bj.train(recipe, batches(X, y))
    calls = []

    class Failing(list):
        def __iter__(self):
            calls.append(len(calls))
            for i, batch in enumerate(super().__iter__()):
                if len(calls) == 2 and i == 5:
                    raise KeyboardInterrupt
                yield batch

    failing = Failing(batches(X, y))
    with pytest.raises(KeyboardInterrupt):
        bj.train(recipe, failing, checkpoint=path)
    check_same(bj.train(recipe, failing, checkpoint=path).model, whole.model)


def test_rows_sorted_by_class_are_told_where_order_counts(small):
    X, y = rows()
    order = np.argsort(y)
    recipe = bj.Recipe(**QUICK, refit=False)
    with pytest.warns(
        UserWarning, match="batches: the rows look sorted by class: 1 of"
    ):
        bj.train(recipe, batches(X[order], y[order]))
    bj.train(recipe, batches(X[order][::2], y[order][::2]))


def test_a_recipe_is_in_the_file(tmp_path):
    X, y = rows()
    learner = bj.Pegasos(regularization=1e-3)
    recipe = bj.Recipe(**QUICK, learner=learner, penalty=[0.1, 1.0], loss="logistic")
    model = bj.train(recipe, [(X, y)])
    bj.save(tmp_path / "model", model)
    found = bj.load(tmp_path / "model")
    assert found.recipe.get_params() == {
        **recipe.get_params(),
        "learner": found.recipe.learner,
    }
    assert bj.equal(found.recipe.learner, learner)
    check_same(found.model, model.model)


def test_given_classes_are_columns(small):
    X, y = rows(150)
    for n in (150, 300):
        X, y = rows(n)
        recipe = bj.Recipe(**PLAIN)
        model = bj.train(recipe, batches(X, y), classes=["yes", "no", "maybe"])
        assert model.classes.tolist() == ["yes", "no", "maybe"]
        assert np.mean(model.predict(X) == y) > 0.6
        with pytest.raises(ValueError, match=r"y must be one of 'maybe', 'yes', got"):
            bj.train(recipe, batches(X, y), classes=["maybe", "yes"])


X, Y = rows(60)
# More targets than there are labels, which are told before the rest is read.
LONG, NAMES = np.zeros((20_000, 1)), np.arange(20_000).astype(str)
GAPS = np.where(np.arange(3) > 1, np.nan, X)


@pytest.mark.parametrize(
    ("source", "given", "says"),
    [
        ([], {}, "batches must have rows, got none"),
        ([(X, Y)], {"regression": True}, "y must be finite numbers, got 'no' in row 0"),
        (
            [(X, X[:, i]) for i in range(3)],
            {},
            "y must be classes, got .* numbers .*; regression=True",
        ),
        ([(X, np.ones(60))], {}, "y must have at least 2 classes, got 1.0 in all 60"),
        ([(X, np.full(60, np.nan))], {}, "y must be a label, got nan in row 0"),
        ([(X, Y), (X, np.ones(60))], {}, "y must be strings, as in the rows before"),
        ([(LONG, np.arange(2e4))] * 2, {}, "y must be classes, got 20,000 numbers"),
        ([(LONG, NAMES)], {}, "y must hold at most 10,000 labels, got more"),
        ([(X, X)], {}, r"y must have shape \(n,\), one label .*; regression=True"),
        (
            [(X, X), (X, X[:, 0])],
            {"regression": True},
            r"y must have shape \(n, 3\), as in the rows before, got \(60,\)",
        ),
        ([(X, Y[:5])], {}, r"batch 0, from row 0 on: X must have shape \(5, d\)"),
        ([(X, Y), (X[:, :2], Y)], {}, "batch 1, .*: X must have 3 columns"),
        (
            [(np.where(X > 0, X, np.nan), Y)],
            {"encode": False},
            "X must be finite, got nan in row ",
        ),
        ([(np.full((60, 3), np.inf), Y)], {}, "X must be finite, got inf in row 0"),
        ([(np.full((60, 3), 1e60), Y)], {}, "X must be in the range of float32"),
        ([(X, Y, -np.ones(60))], {}, "weight must be finite and at least 0"),
        ([(X,)], {}, r"batches must be \(X, y\) or \(X, y, weight\)"),
        (iter([(X, Y)]), {}, "batches must be a source that can be read again"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_sources_that_cannot_be_learned(source, given, says):
    with pytest.raises(ValueError, match=f"^train: .*{says}|{says}"):
        bj.train(bj.Recipe(**QUICK | given), source)


@pytest.mark.parametrize(
    ("given", "argument", "expected"),
    [
        ({"epochs": 0}, "epochs", "be"),
        ({"refit": "no"}, "refit", "be"),
        ({"penalty": -1.0}, "penalty", "be"),
        ({"penalty": 1.0, "refit": False}, "penalty", "be its default"),
        ({"learn_metric": True, "refit": False}, "learn_metric", "be its default"),
        ({"encode": "yes"}, "encode", "be False, 'auto' or a number of bins"),
        ({"encode": -1}, "encode", "be"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("as_installed")
def test_choices_that_exclude_each_other(given, argument, expected):
    refused(lambda: bj.Recipe(**given), argument, expected, function="Recipe")
    estimator = BudgetedKernelClassifier(**given)
    name = "BudgetedKernelClassifier"
    refused(lambda: estimator.fit(X, Y), argument, expected, function=name)


@pytest.mark.usefixtures("as_installed")
def test_a_recipe_is_asked_for():
    with pytest.raises(ValueError, match=r"^train: recipe must be a budgetjax.Recipe"):
        bj.train({"budget": 5}, [(X, Y)])


def test_records_of_a_recipe_do_not_change():
    recipe = bj.Recipe()
    with pytest.raises(dataclasses.FrozenInstanceError):
        recipe.budget = 3


def test_one_bar_shows_the_comparison_and_the_refit(monkeypatch):
    opened, passes = [], []

    @contextlib.contextmanager
    def note(name, progress, unit, total=None):
        opened.append(name)
        is_open = True

        def report(text, count=1):
            assert is_open, "a bar that is closed shows nothing"
            passes.append(name)

        yield report
        is_open = False

    monkeypatch.setattr(fit._progress, "progress_bar", note)
    X, y = rows(120)
    bj.train(bj.Recipe(**QUICK), batches(X, y), progress=True)
    assert opened == ["batches", "batches", "refit"]
    # Twenty passes of two comparisons, and those of the better one.
    assert passes.count("refit") > 20
    opened.clear()
    monkeypatch.setattr(fit, "MOST_TO_COMPARE", 100)
    bj.train(bj.Recipe(**QUICK), batches(X, y), progress=True)
    assert opened == ["batches", "batches", "encoding", "batches", "refit"]
