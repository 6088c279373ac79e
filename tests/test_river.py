"""River estimators: river's own checks, and the model of `run`, however rows come."""

import copy
import functools
import pickle
import threading

import chex
import jax
import numpy as np
import optax
import pandas as pd
import pytest
import registry
from compare import FLOAT32, assert_same
from marks import slow
from refusals import refused
from river import checks, compose, datasets, evaluate, metrics, preprocessing, utils

import budgetjax as bj
from budgetjax import losses
from budgetjax.online.importance import SeenWeights
from budgetjax.river import BudgetedClassifier, BudgetedOneClass, BudgetedRegressor

pytestmark = pytest.mark.usefixtures("plain_loops")

# Programs of few kinds: a Perceptron compiles fastest.
PERCEPTRON = {
    "learner": bj.Perceptron(),
    "budget": 10,
    "maintenance": "remove_oldest",
}
SGD = PERCEPTRON | {"learner": bj.SGD()}


class Novelty:
    """Rows of one kind and a few others, as river's download of credit cards."""

    def take(self, number):
        random = np.random.default_rng(0)
        for i in range(min(number, 300)):
            novel = i % 50 == 49
            row = random.normal(size=6) + 6 * novel
            yield dict(zip("abcdef", row.tolist(), strict=True)), novel


LONG_CHECKS = {"check_bounded_memory_growth"}


def checked():
    """Every check of river, for every estimator."""
    swapped, datasets.CreditCard = datasets.CreditCard, Novelty
    known = set()
    try:
        for model, which in (
            (BudgetedClassifier(**PERCEPTRON), "check"),
            # A learner of two classes only has a check of its own.
            (BudgetedClassifier(bj.Forgetron(), classes=(False, True)), "binary"),
            (BudgetedRegressor(**SGD), "check"),
            (BudgetedOneClass(**SGD), "check"),
        ):
            seen = {}
            for check in checks.yield_checks(model):
                if which not in check.__name__:
                    continue
                number = seen[check.__name__] = seen.get(check.__name__, 0) + 1
                name = f"{type(model).__name__}-{check.__name__}-{number}"
                learner = type(model.learner).__name__.lower()
                # It measures for a second what all of them share.
                again = check.__name__ in known and check.__name__ in LONG_CHECKS
                known.add(check.__name__)
                marks = [pytest.mark.slow] if again else []
                yield pytest.param(model, check, id=f"{name}@{learner}", marks=marks)
    finally:
        datasets.CreditCard = swapped


# Its data are not standardised.
@pytest.mark.filterwarnings("ignore:.*features look un:UserWarning")
@pytest.mark.parametrize(("model", "check"), list(checked()))
def test_river_checks(model, check):
    assert check.__name__ not in model._unit_test_skips()
    check(model.clone())


def rows_of(n=150, seed=0):
    """Rows as river has them, as a matrix, and labels."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 3)).astype(np.float32)
    y = np.where(np.sin(2 * X[:, 0]) + X[:, 1] > 0, 1, -1)
    names = ("a", "b", "c")
    return [dict(zip(names, map(float, row), strict=True)) for row in X], X, y


def a_run(learner, X, y, gamma, weight=None, **more):
    """The model that the estimators are compared with, and the scores before it."""
    given = {"num_features": 3, "budget": 10, "maintenance": bj.RemoveOldest()} | more
    empty = learner.init(bj.RBF(gamma), **given)
    return bj.run(empty, X, y, weight=weight)


@pytest.mark.parametrize(
    ("learner", "maintenance"),
    [
        (bj.Perceptron(), bj.RemoveOldest()),
        # Its scores decay between the rows that change it.
        *slow(
            (bj.Pegasos(regularization=0.01), bj.RemoveOldest()),
            (bj.Projectron(threshold=0.1), None),
        ),
    ],
    ids=["perceptron", "pegasos", "projectron"],
)
def test_one_by_one_in_frames_and_in_a_run_are_the_same(learner, maintenance):
    rows, X, y = rows_of()
    expected, scores = a_run(learner, X, y, 0.5, maintenance=maintenance)

    def model():
        settings = {"gamma": 0.5, "budget": 10, "classes": (-1, 1)}
        return BudgetedClassifier(learner, maintenance=maintenance, **settings)

    one, alone, many = model(), model(), model()
    found, shares = [], []
    for x, label in zip(rows, y.tolist(), strict=True):
        alone.learn_one(x, label)
        shares.append(one.predict_proba_one(x)[1])
        found.append(one.predict_one(x))
        one.learn_one(x, label)
    frame = pd.DataFrame(rows)
    for part in (slice(0, 1), slice(1, 70), slice(70, None)):
        many.learn_many(frame[part], pd.Series(y[part]))
    for each in (one, alone, many):
        assert_same((each.state,), (expected,), FLOAT32)
    assert int(one.state.num_updates) < 140, "some rows change nothing"
    # To the last bit, where nobody asks in between.
    chex.assert_trees_all_equal(alone.state, many.state)
    np.testing.assert_allclose(shares, 1 / (1 + np.exp(-scores)), atol=1e-4)
    sure = np.abs(scores) > 1e-4
    np.testing.assert_array_equal(
        np.where(scores > 0, 1, -1)[sure], np.array(found)[sure]
    )


def test_several_classes_are_a_run_and_may_come_late():
    rows, X, _ = rows_of()
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    expected, scores = a_run(bj.Perceptron(), X, y, 1 / 3, num_classes=3)
    known = BudgetedClassifier(**PERCEPTRON, classes=("none", "one", "two"))
    asked, found = BudgetedClassifier(**PERCEPTRON, classes=(0, 1, 2)), []
    late = BudgetedClassifier(**PERCEPTRON)
    for x, label in zip(rows, y.tolist(), strict=True):
        known.learn_one(x, known.classes[label])
        found.append(asked.predict_one(x))
        asked.learn_one(x, label)
        late.predict_one(x)
        late.learn_one(x, label)
    assert_same((known.state, asked.state), (expected, expected), FLOAT32)
    # Before a prediction everything is learned but rows that change nothing.
    first, second = -np.sort(-np.asarray(scores), axis=1)[:, :2].T
    sure = first - second > 1e-4
    assert np.mean(sure) > 0.9
    np.testing.assert_array_equal(
        np.array(found)[sure], np.argmax(scores, axis=1)[sure]
    )
    assert known.predict_proba_one(rows[0]).keys() == {"none", "one", "two"}
    assert late.labels == tuple(dict.fromkeys(y.tolist()))
    assert late.state.expansion.num_columns == 3
    shares = late.predict_proba_many(pd.DataFrame(rows))
    assert shares.shape == (150, 3)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert np.mean(late.predict_many(pd.DataFrame(rows)) == y) > 0.6


def test_a_third_label_leaves_the_scores_of_two_as_they_are():
    rows, _, y = rows_of(40)
    model = BudgetedClassifier(**PERCEPTRON)
    for x, label in zip(rows, y.tolist(), strict=True):
        model.learn_one(x, label)
    before = [model.predict_proba_one(x) for x in rows]
    model.learn_one(rows[0], "third", w=0)
    assert model.state.expansion.num_columns == 1
    model._encode("third")
    assert model.state.expansion.num_columns == 3
    for x, old in zip(rows, before, strict=True):
        new = model.predict_proba_one(x)
        assert new[1] / (new[1] + new[-1]) == pytest.approx(old[1], rel=1e-5)
    model = BudgetedClassifier(bj.Forgetron(), classes=(False, True))
    model.learn_one({"a": 1.0}, True)
    refused(lambda: model.learn_one({"a": 1.0}, "third"), "num_classes", "be 2")
    assert model.labels == (False, True)


@pytest.mark.parametrize(
    "learner",
    [bj.Ahpatron(), *slow(bj.ALMA(), bj.Pegasos(0.01, project_to_ball=True))],
    ids=lambda learner: type(learner).__name__,
)
def test_a_model_in_a_ball_knows_its_norm_after_a_third_label(learner):
    rows, _, y = rows_of(30)
    strategy = None
    if "maintenance" in learner.takes:
        strategy = bj.Measured(bj.RemoveOldest())
    model = BudgetedClassifier(learner, budget=10, gamma=0.5, maintenance=strategy)
    for x, label in zip(rows, y.tolist(), strict=True):
        model.learn_one(x, label)
    before = model.state
    model._encode("third")
    after = model.state
    # Two columns with half of the coefficients each.
    halves = before.memory.squared_norm / 2
    np.testing.assert_allclose(after.memory.squared_norm, halves, rtol=1e-4)
    model.learn_one(rows[0], "third")
    assert int(model.state.num_seen) == 31


def test_features_that_come_and_go_are_zeros_of_a_run():
    rows, X, y = rows_of()
    random = np.random.default_rng(0)
    there = random.random(X.shape) < 0.7
    # The third feature comes with the fifth row, the second with the third.
    there[:4, 2] = there[:2, 1] = False
    there[0, 0] = there[2, 1] = there[4, 2] = True
    model = BudgetedClassifier(**PERCEPTRON, gamma=0.5, classes=(-1, 1))
    for x, kept, label in zip(rows, there, y.tolist(), strict=True):
        names = [name for name, keep in zip("abc", kept, strict=True) if keep]
        model.predict_one({name: x[name] for name in names} | {"unknown": 9.0})
        model.learn_one({name: x[name] for name in reversed(names)}, label)
    assert model.features == ("a", "b", "c")
    expected, _ = a_run(bj.Perceptron(), np.where(there, X, 0), y, 0.5)
    assert_same((model.state,), (expected,), FLOAT32)
    frame = pd.DataFrame(rows).where(there)
    again = model.clone()
    learn = functools.partial(again.learn_many, frame, pd.Series(y))
    refused(learn, "every feature", "be a finite number", "nan for 'b'; leave out")
    again.learn_many(frame.fillna(0), pd.Series(y))
    assert again.features == ("a", "b", "c")
    predict = functools.partial(again.predict_many, frame)
    refused(predict, "every feature", "be a finite number", "nan for 'b'; leave out")
    assert_same((again.state,), (expected,), FLOAT32)
    # Three features and fourteen are more than the sixteen columns that there were.
    again.learn_one({f"new {i}": 1.0 for i in range(14)}, 1)
    assert len(again.features) == again.state.expansion.vectors.shape[1] == 17


def test_a_regressor_is_a_run_and_weights_count():
    rows, X, y = rows_of()
    target = np.sin(X[:, 0]) + 0.5 * y
    weight = np.random.default_rng(0).integers(0, 3, len(X))
    # Three times the weights are the same ones.
    counts, _ = SeenWeights().relative(weight)
    expected, scores = a_run(
        bj.SGD(), X, target, 1 / 3, weight=counts, num_classes=None
    )
    one, many = BudgetedRegressor(**SGD | {"learner": "auto"}), BudgetedRegressor(**SGD)
    found = []
    for x, number, w in zip(rows, target.tolist(), weight.tolist(), strict=True):
        found.append(one.predict_one(x))
        one.learn_one(x, number, w)
    many.learn_many(pd.DataFrame(rows), pd.Series(target), pd.Series(3 * weight))
    assert_same((one.state,), (expected,), FLOAT32)
    assert_same((many.state,), (expected,), FLOAT32)
    np.testing.assert_allclose(found, scores, atol=1e-4)
    assert np.all(
        many.predict_many(pd.DataFrame(rows)) == [*map(many.predict_one, rows)]
    )


@pytest.mark.parametrize(
    ("kernel", "average"),
    [(bj.Laplacian(0.5), False), ("rbf", True)],
    ids=["Laplacian", "average"],
)
def test_what_numpy_does_not_score_is_scored_by_a_program(kernel, average):
    rows, X, y = rows_of(30)
    model = BudgetedRegressor(**SGD, kernel=kernel, average=average)
    model.learn_many(pd.DataFrame(rows), pd.Series(y))
    state = bj.average_iterates(model.state) if average else model.state
    expected = bj.decision_function(state, X)
    found = [model.predict_one(x) for x in rows]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_pipelines_and_scores_of_river():
    def model():
        return compose.Pipeline(
            preprocessing.StandardScaler(), BudgetedClassifier(**PERCEPTRON)
        )

    rows = list(datasets.Phishing().take(400))
    scored = evaluate.progressive_val_score(rows, model(), metrics.Accuracy())
    by_hand, pipeline = metrics.Accuracy(), model()
    for x, y in rows:
        if (guess := pipeline.predict_one(x)) is not None:
            by_hand.update(y, guess)
        pipeline.learn_one(x, y)
    assert scored.get() == by_hand.get() > 0.7
    frame = pd.DataFrame([x for x, _ in rows])
    pipeline.learn_many(frame, pd.Series([y for _, y in rows]))
    assert set(pipeline.predict_many(frame)) == {False, True}


def test_copies_go_on_as_the_model_does():
    rows, _, y = rows_of(80)
    model = BudgetedClassifier(**PERCEPTRON)
    for x, label in zip(rows[:40], y[:40].tolist(), strict=True):
        model.predict_one(x)
        model.learn_one(x, label)
    # A row waits.
    copies = (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        model.clone(include_attributes=True),
    )
    state = model.state
    for x, label in zip(rows[40:], y[40:].tolist(), strict=True):
        for each in (model, *copies):
            each.learn_one(x, label)
    assert int(state.num_seen) == 40, "what was given stays as it is"
    for each in copies:
        chex.assert_trees_all_equal(each.state, model.state)
    assert model.clone().state is None
    assert model._raw_memory_usage > model.clone()._raw_memory_usage


def test_a_detector_and_a_threshold_of_river():
    detector = BudgetedOneClass(**SGD)
    assert detector.score_one({"a": 1.0}) == 1
    found = metrics.ROCAUC()
    for x, novel in Novelty().take(300):
        found.update(novel, detector.score_one(x))
        detector.learn_one(x)
    assert found.get() > 0.9
    many = detector.clone()
    many.learn_many(pd.DataFrame([x for x, _ in Novelty().take(300)]))
    assert_same((many.state,), (detector.state,), FLOAT32)


def test_errors_leave_the_model_as_it_was():
    model = BudgetedClassifier(**PERCEPTRON)
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    model.learn_one({"a": 1.0}, True)
    model.learn_one({"a": -1.0}, False)
    for value in (np.nan, "text", None, 1e30):
        learn = functools.partial(model.learn_one, {"a": 1.0, "b": value}, False)
        refused(learn, "every feature", "be a finite number", "for 'b'")
        predict = functools.partial(model.predict_one, {"a": value})
        refused(predict, "every feature", "be a finite number", "for 'a'")
    learn = functools.partial(model.learn_one, {"a": 1.0}, True, w=-1)
    refused(learn, "w", "be finite and at least 0", "-1")
    for wrong in (None, np.nan, "text"):
        regressor = BudgetedRegressor(**SGD)
        learn = functools.partial(regressor.learn_one, {"a": 1.0}, wrong)
        refused(learn, "y", "be a finite number", repr(wrong))
    frame = pd.DataFrame({"a": [1.0]})
    for wrong in (None, np.nan):
        labels, got = pd.Series([wrong]).astype(object), f"{wrong}; leave out"
        learn = functools.partial(model.learn_one, {"a": 1.0}, wrong)
        refused(learn, "y", "be a label", got)
        refused(
            functools.partial(model.learn_many, frame, labels), "y", "be a label", got
        )
    assert model.labels == (True, False)
    wild, (rows, _, _) = bj.SGD(learning_rate=1e30), rows_of(9)
    regressor = BudgetedRegressor(**SGD | {"learner": wild})
    for x in rows[:8]:
        regressor.learn_one(x, 1.0)
    predict = functools.partial(regressor.predict_one, rows[8])
    refused(predict, "every score", "be finite", "coefficients overflow")
    assert int(model.state.num_seen) == 2
    assert model.features == ("a",)
    for settings, argument, expected in (
        ({"kernel": "cubic"}, "kernel", "be one of rbf, laplacian, poly, sigmoid"),
        ({"kernel": bj.Linear(), "gamma": 1.0}, "gamma", "be None with a kernel"),
        ({"kernel": "linear", "gamma": -1.0}, "gamma", "be a finite number above 0"),
        ({"gamma": -1.0}, "gamma", "be a finite number above 0"),
        ({"maintenance": "trees"}, "maintenance", "or a strategy"),
        ({"average": True}, "average", "be False, as AROW takes none"),
    ):
        model = BudgetedClassifier(**settings)
        refused(lambda m=model: m.learn_one({"a": 1.0}, True), argument, expected)


@pytest.mark.parametrize("row", list(registry.firsts()), ids=lambda row: row.name)
def test_a_safe_margin_never_violates(row):
    """What lets a row wait: a learner without this promise learns every row at once."""
    state = row.roomy()
    safe = state.learner.no_update_above(state)
    if safe is None:
        free = bj.SGD, bj.NORMA, bj.Fourier, bj.Nystrom, bj.KRLST
        assert type(row.learner) in free, "its margin alone decides, or it joins these"
        return

    @jax.jit
    def margins_and_violations(state, scores, y):
        violates = jax.vmap(lambda *one: state.learner.violates(state, *one))
        return jax.vmap(losses.margin)(scores, y), violates(scores, y)

    columns, random = state.expansion.num_columns, np.random.default_rng(0)
    scores = random.normal(size=(200, columns)).astype(np.float32)
    y = random.integers(0, columns, 200) if columns > 1 else random.choice([-1, 1], 200)
    # At the safe margin itself too.
    scores[0], y[0] = (2 * np.eye(columns)[0] if columns > 1 else safe), columns == 1
    given = scores, y.astype(np.int32 if columns > 1 else np.float32)
    margins, violates = map(np.asarray, margins_and_violations(state, *given))
    assert not np.any(violates[margins.astype(np.float64) >= safe])
    assert np.any(margins >= safe)
    assert np.any(violates)


def test_random_features_have_frequencies_for_new_columns():
    model = BudgetedClassifier(bj.Fourier(), budget=4, gamma=1.0)
    model._add_features(["a"])
    before = model.state.expansion.vectors
    # More than there is room for at first.
    model._add_features([f"b{i}" for i in range(20)])
    expansion = model.state.expansion
    np.testing.assert_array_equal(expansion.vectors[:, :1], before)
    assert np.all(expansion.vectors[:4, 1] != 0)
    np.testing.assert_allclose(
        expansion.squares, np.sum(expansion.vectors**2, axis=1), rtol=1e-6
    )


@pytest.mark.parametrize(
    "learner",
    [bj.Fourier(), *slow(bj.Nystrom(), bj.SGD(), bj.AROW(), bj.KRLST(), bj.Mixture())],
    ids=lambda learner: type(learner).__name__,
)
def test_scores_are_those_of_the_state(learner):
    rows, X, y = rows_of(30)
    kind = BudgetedRegressor if isinstance(learner, bj.KRLST) else BudgetedClassifier
    model = kind(learner, budget=10)
    for x, label in zip(rows, y.tolist(), strict=True):
        model.predict_one(x)
        model.learn_one(x, label)
    found, _ = model._score_rows(rows)
    X = np.pad(X, ((0, 0), (0, model.state.num_features - 3)))
    expected = bj.decision_function(model.state, X)
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-4, atol=1e-5)


def test_a_learner_is_a_parameter_of_river():
    given = bj.SGD(loss=losses.logistic, learning_rate=optax.constant_schedule(0.5))
    model = BudgetedClassifier(**SGD | {"learner": given}, gamma=0.5)
    rows, _, y = rows_of(20)
    alike = model, model.clone(), copy.deepcopy(model)
    for each in alike:
        assert bj.equal(each._get_params()["learner"], given)
        assert "learner=SGD(loss=logistic, learning_rate=" in repr(each)
        each.learn_many(pd.DataFrame(rows), pd.Series(y))
        chex.assert_trees_all_equal(each.state, model.state)
    other = model.clone({"learner": bj.Perceptron(margin=0.5)})
    assert (other.learner.margin, other.budget, other.gamma) == (0.5, 10, 0.5)
    with pytest.raises(ValueError, match="'learner' is not a mutable attribute"):
        model.mutate({"learner": bj.Perceptron()})


def test_grids_of_river_have_learners():
    grid = {"learner": ["auto", (bj.AROW, {"drift": [0.0, 0.1], "confidence": [1.0]})]}
    pipeline = preprocessing.StandardScaler() | BudgetedClassifier(budget=10)
    for model, its in (
        (BudgetedClassifier(budget=10), grid),
        (pipeline, {"BudgetedClassifier": grid}),
    ):
        found = utils.expand_param_grid(model, its)
        found = [getattr(each, "steps", {"": each}).popitem()[1] for each in found]
        assert {each.budget for each in found} == {10}
        learners = [each.learner for each in found]
        assert learners[0] == "auto"
        assert [each.drift for each in learners[1:]] == [0.0, 0.1]
    rows, _, y = rows_of(20)
    found[1].learn_many(pd.DataFrame(rows), pd.Series(y))
    assert float(found[1].state.learner.confidence) == 1


@pytest.mark.usefixtures("as_installed")
def test_a_learner_must_be_one_of_such_targets():
    for kind, wrong, expected, got in (
        (BudgetedClassifier, "pegasos", "be 'auto', or one such as", "'pegasos'"),
        (BudgetedClassifier, bj.Pegasos, "be 'auto', or one such as", "Pegasos"),
        (BudgetedRegressor, bj.AROW(), "be one of real targets, such as", "AROW"),
        (BudgetedOneClass, bj.AROW(), "be one of real targets, such as", "AROW"),
    ):
        for make in (kind, lambda one, kind=kind: kind().clone({"learner": one})):
            making = functools.partial(make, wrong)
            refused(making, "learner", expected, got, kind.__name__)
    model = BudgetedClassifier(bj.SGD(loss=losses.absolute))
    error = refused(
        lambda: model.learn_one({"a": 1.0}, True), "loss", "be one of hinge"
    )
    assert "of labels" in error.expected


def test_a_few_labels_and_features_more_are_no_new_program(caplog):
    """A program takes seconds: it has columns for more than have come."""
    model, found = BudgetedClassifier(**PERCEPTRON | {"budget": 11}), []
    random = np.random.default_rng(0)
    for labels, features in ((2, 3), (3, 3), (8, 16)):
        caplog.clear()
        with jax.log_compiles():
            for i, row in enumerate(random.normal(size=(3 * labels, features))):
                x = {str(name): value for name, value in enumerate(row.tolist())}
                model.predict_one(x)
                model.learn_one(x, i % labels)
        found.append(caplog.text.count("Finished XLA compilation of jit(learn_rows)"))
    # One for two labels, and one for more.
    assert found == [1, 1, 0]
    assert model.state.expansion.vectors.shape == (12, 16)
    assert model.state.expansion.num_columns == 8


def test_unscaled_rows_are_told_of_once():
    rows, _, y = rows_of()
    for scale in (1e3, 1e-3):
        model = BudgetedClassifier(**PERCEPTRON)
        says = "BudgetedClassifier: features look un"
        with pytest.warns(UserWarning, match=says) as told:
            model.learn_many(pd.DataFrame(rows) * scale, pd.Series(y))
        assert len(told) == 1


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_many_threads_may_predict_beside_one_that_learns(kernel):
    rows, _, y = rows_of(150)
    model = BudgetedClassifier(**PERCEPTRON, kernel=kernel)
    model.learn_many(pd.DataFrame(rows[:20]), pd.Series(y[:20]))
    failed, done = [], threading.Event()

    def ask():
        try:
            while not done.is_set():
                for x in rows[:10]:
                    shares = model.predict_proba_one(x)
                    assert sum(shares.values()) == pytest.approx(1)
                    assert model.predict_one(x) in (-1, 1, "third")
                copy.deepcopy(model)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    expected = BudgetedClassifier(**PERCEPTRON, kernel=kernel)
    expected.learn_many(pd.DataFrame(rows[:20]), pd.Series(y[:20]))
    for i, (x, label) in enumerate(zip(rows, y.tolist(), strict=True)):
        more = {f"new {i}": 1.0} if i % 40 == 39 else {}
        for each in (model, expected):
            each.learn_one(x | more, "third" if i == 75 else label)
    done.set()
    for one in threads:
        one.join()
    assert not failed
    assert_same((model.state,), (expected.state,), FLOAT32)
