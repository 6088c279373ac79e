"""Estimators that write the columns of a table as codes; see tests/test_encoding.py."""

import functools

import numpy as np
import onnxruntime
import pytest
import scipy.sparse
from marks import first_quick, slow
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import budgetjax as bj
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    online,
)
from budgetjax.refitting import metric
from budgetjax.refitting.held_out import Fold
from budgetjax.tables import form
from budgetjax.tables.encoding import Encoding
from budgetjax.training import fit
from budgetjax.training import rows as rows_of

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

ROWS, BUDGET = 1200, 20


def table(seed=0, rows=ROWS):
    """A price, an angle, a count and noise; labels are steps of the first two."""
    random = np.random.default_rng(seed)
    price, angle = np.exp(random.normal(size=rows) * 2), random.uniform(0, 360, rows)
    X = np.stack([price, angle, random.poisson(3, rows), random.normal(size=rows)], 1)
    y = (price > 1.5).astype(int) + 2 * ((angle // 30) % 2).astype(int)
    return X, np.array(["oak", "elm", "ash", "fir"])[y]


X, LABELS = table()
TEST, TEST_LABELS = table(1)
MISSING = X.copy()
MISSING[::5, 1] = np.nan


@pytest.fixture(scope="module")
def fitted():
    return BudgetedKernelClassifier(BUDGET, random_state=0).fit(X, LABELS)


def test_columns_of_a_table_are_encoded(fitted):
    plain = clone(fitted).set_params(encode=0, learn_metric=True).fit(X, LABELS)
    score = fitted.score(TEST, TEST_LABELS)
    assert score > 0.9
    assert score > plain.score(TEST, TEST_LABELS) + 0.05


def test_an_encoded_model_is_small_and_has_no_padding(fitted):
    codes = fitted.model_.scaling
    assert isinstance(codes, Encoding)
    assert codes.map.shape == (codes.num_codes, codes.num_features)
    assert fitted.support_vectors_.shape == (BUDGET, codes.num_features)
    assert fitted.n_features_in_ == X.shape[1]
    state = codes.apply(X[:5])
    np.testing.assert_allclose(
        bj.decision_function(fitted.state_, state),
        fitted.decision_function(X[:5]),
        rtol=1e-4,
        atol=1e-4,
    )


def test_rows_learned_as_they_are_tell_what_takes_missing_values():
    given = {"encode": False, "learn_metric": False, "random_state": 0}
    plain = BudgetedKernelClassifier(BUDGET, **given)
    plain.fit(X[:50] / X[:50].std(axis=0), LABELS[:50])
    with pytest.raises(ValueError, match="NaN") as raised:
        plain.predict(MISSING[:5])
    assert raised.value.__notes__ == ["encode='auto' takes missing values and texts."]


def test_rows_that_count_are_all_that_there_is():
    weights = np.zeros(400)
    weights[7] = 1
    one = BudgetedKernelClassifier(BUDGET, random_state=0)
    with pytest.raises(ValueError, match="at least 2 classes, got one class"):
        one.fit(X[:400], LABELS[:400], weights)
    other = int(np.flatnonzero(LABELS[:400] != LABELS[7])[0])
    weights[other] = 1
    one.fit(X[:400], LABELS[:400], weights)
    both = [7, other]
    assert set(one.classes_) == set(LABELS[both])
    assert set(one.predict(X[:400])) <= set(LABELS[both])


def test_importances_of_encoded_columns(fitted):
    importances = fitted.feature_importances_
    assert importances.shape == (X.shape[1],)
    assert np.sum(importances) == pytest.approx(1)
    assert np.min(importances[:2]) > np.max(importances[2:])


def test_an_encoded_estimator_in_files(fitted, tmp_path):
    bj.save(tmp_path / "model", fitted)
    found = load_file(tmp_path / "model")
    # The learned map and the images of the vectors.
    halves = {name for name, array in found.items() if array.dtype == np.float16}
    assert {name.rsplit(".", 1)[-1] for name in halves} == {"map", "vectors"}
    expected = fitted.predict(TEST)
    np.testing.assert_array_equal(bj.load(tmp_path / "model").predict(TEST), expected)
    bj.export(tmp_path / "model.onnx", fitted)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    dtype = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    rows = TEST.astype(dtype[session.get_inputs()[0].type])
    found = session.run(["label"], {"X": rows})[0]
    # Values at an edge may be rounded to its other side.
    assert np.mean(found == expected) > 0.998


def test_a_stream_follows_an_encoded_fit(fitted):
    model = clone(fitted).fit(X, LABELS)
    np.testing.assert_array_equal(model.predict(TEST), fitted.predict(TEST))
    model.partial_fit(TEST, TEST_LABELS)
    assert model.model_.scaling.num_columns == X.shape[1]
    assert model.score(TEST, TEST_LABELS) > 0.8


def test_missing_values_are_a_code(fitted):
    model = clone(fitted).fit(MISSING, LABELS)
    assert bool(model.model_.scaling.lacks[1])
    assert model.score(TEST, TEST_LABELS) > 0.85
    missing = TEST.copy()
    missing[:, 1] = np.nan
    # A step of the price is left.
    assert 0.4 < model.score(missing, TEST_LABELS) < 0.75


@pytest.mark.parametrize(
    "call",
    [
        lambda: BudgetedKernelClassifier(encode=False).fit(MISSING, LABELS),
        lambda: BudgetedKernelClassifier(encode=False).partial_fit(
            MISSING[:99], LABELS[:99], np.unique(LABELS)
        ),
    ],
)
def test_missing_values_need_an_encoding(call):
    with pytest.raises(ValueError, match="contains NaN"):
        call()


def test_rows_of_a_model_without_codes_have_no_missing_values():
    model = BudgetedKernelClassifier(BUDGET, encode=False, random_state=0)
    model.set_params(learn_metric=False, gamma=1e-4).fit(X[:100], LABELS[:100])
    with pytest.raises(ValueError, match="contains NaN"):
        model.predict(MISSING)


@pytest.mark.parametrize(
    ("encode", "rows", "message"),
    [
        (-1, X, "encode must be at least 0, got -1"),
        ("pairs", X, "encode must be False, 'auto' or a number of bins, got 'pairs'"),
        (
            5,
            scipy.sparse.csr_array(X),
            "encode must be False or 'auto' for sparse rows",
        ),
    ],
)
def test_encodings_that_do_not_fit(encode, rows, message):
    with pytest.raises(ValueError, match=message):
        BudgetedKernelClassifier(encode=encode).fit(rows, LABELS)


def test_rows_far_from_0_are_learned_as_they_are():
    random = np.random.default_rng(0)
    rows = 50 + random.normal(size=(ROWS, 3))
    labels = (rows[:, 0] - 50) * (rows[:, 1] - 50) > 0
    model = BudgetedKernelClassifier(
        BUDGET, encode=False, learn_metric=True, random_state=0
    )
    model.fit(rows, labels)
    assert model.state_.kernel.matrix.shape == (3, 3)
    assert model.origin_.shape == (3,)
    assert model.score(rows, labels) > 0.93
    assert np.sum(model.feature_importances_) == pytest.approx(1)
    model.partial_fit(rows[:10], labels[:10])
    assert model.support_vectors_.shape == (BUDGET, 3)


def encoding_of(rows, kind=BudgetedKernelClassifier, **more):
    """What encodes these rows in `fit`."""
    regression = kind is BudgetedKernelRegressor
    recipe = bj.Recipe(budget=BUDGET, regression=regression, **more)
    return recipe.encodings(rows)[-1]


@pytest.mark.parametrize("kind", [BudgetedKernelClassifier, BudgetedKernelRegressor])
def test_the_form_of_a_table_does_not_depend_on_other_choices(kind):
    usual = encoding_of(X, kind)
    for more in (
        *({"gamma": 0.1}, {"gamma": "scale"}, {"kernel": "laplacian"}),
        *({"learn_metric": False}, {"move_vectors": True}, {"refit": False}),
        *({"learner": bj.Fourier()}, {"kernel": bj.RBF(0.5)}),
    ):
        assert bj.equal(encoding_of(X, kind, **more), usual)
    assert encoding_of(X, kind, encode=3).num_codes == 12
    assert encoding_of(X, kind, learn_metric=5).num_features == 5
    # Factors of columns, and parameters of a kernel, refer to columns.
    assert encoding_of(X, kind, learn_metric="diagonal").map is None
    kernel = bj.Mapped(bj.RBF(1.0), np.ones((4, 2), np.float32))
    assert encoding_of(X, kind, kernel=kernel) is None
    assert encoding_of(X, kind, encode=False) is None
    assert encoding_of(scipy.sparse.csr_array(X), kind) is None
    assert encoding_of(np.ones((ROWS, 2)), kind) is None


@pytest.mark.parametrize("columns", [1, *slow(4, 40, 129, 3000)])
def test_bins_are_a_smooth_function_of_rows(columns):
    counts = [form.count_bins(rows, columns) for rows in range(1, 20_000)]
    assert 1 <= min(counts) <= max(counts) <= 128
    steps = np.diff(counts)
    assert np.all((steps == 0) | (steps == 1))


def test_more_rows_have_finer_bins():
    counts = [form.count_bins(rows, 4) for rows in (125, 1000, 8000)]
    assert counts[0] < counts[1] < counts[2]


def test_columns_of_few_values_leave_codes_to_others(monkeypatch):
    # The map of 1,000 codes, which does not decide on their number.
    monkeypatch.setattr(form, "start_map", lambda *given: np.zeros((1, 1)))
    random = np.random.default_rng(0)
    rows = random.normal(size=(4000, 50))
    encoding_of_many = functools.partial(bj.fit_encoding, num_rows=30_000)
    assert 900 < encoding_of_many(rows).num_codes <= 1024
    rows[:, 8:] = rows[:, 8:] > 0
    codes = encoding_of_many(rows)
    assert codes.num_codes == 8 * form.count_bins(30_000, 50) + 42
    # Names have as many as they need.
    rows[:, 8] = np.arange(4000) % 2000
    found = encoding_of_many(rows, nominal=[8])
    assert found.num_codes == codes.num_codes - 1 + 2000


@pytest.mark.parametrize("rows", [150, *slow(1200)])
@pytest.mark.parametrize("columns", [129, *slow(600)])
def test_wide_rows_of_one_scale_stay_and_others_are_encoded(rows, columns):
    X = np.random.default_rng(0).normal(size=(rows, columns))
    assert encoding_of(X) is None
    # Pixels at the margin of images hardly vary.
    image = np.where(np.arange(columns) < 20, 0.01, 1) * np.clip(X, 0, 1)
    assert encoding_of(image) is None
    # Nor does what rounding leaves of a constant.
    image[:, 0] *= 1e-15
    assert encoding_of(image) is None
    X[:, ::5] *= 1e4
    assert columns <= encoding_of(X).num_codes <= 1024
    X[3, 5] = np.nan
    assert encoding_of(X).lacks[5]


@pytest.mark.parametrize(
    ("prefers", "steps"), [(True, [512, 512]), *slow((False, [512, 512, 2160, 2160]))]
)
def test_many_rows_are_streamed_only_if_that_is_needed(monkeypatch, prefers, steps):
    monkeypatch.setattr(fit, "FIRST_ROWS", 512)
    monkeypatch.setattr(Fold, "prefers", lambda *models: prefers)
    found, learn = [], rows_of.learn

    def noted(state, examples, order, *rest, **more):
        found.append(np.count_nonzero(examples.weights[order]))
        return learn(state, examples, order, *rest, **more)

    monkeypatch.setattr(rows_of, "learn", noted)
    X, labels = table(rows=2 * ROWS)
    weights = np.ones(len(labels))
    weights[::10] = 0
    model = BudgetedKernelClassifier(BUDGET, random_state=0, epochs=2)
    model.fit(X, labels, weights)
    # Without a metric, the vectors are those of a stream of all rows.
    assert found == steps
    assert int(model.state_.num_seen) == 2 * np.count_nonzero(weights)
    assert not prefers or model.score(TEST, TEST_LABELS) > 0.9


def test_encodings_are_compared_in_fewer_passes_than_the_best_one_has(monkeypatch):
    usual, compared = 16, fit.PASSES_TO_COMPARE
    monkeypatch.setattr(metric, "PASSES", (usual, usual))
    noted, run_adam = [], metric.run_adam

    def note(*given, epochs, **more):
        noted.append(epochs)
        return run_adam(*given, epochs=1, **more)

    monkeypatch.setattr(metric, "run_adam", note)
    model = BudgetedKernelClassifier(BUDGET, random_state=0, learn_metric=True)
    model.fit(X[:300], LABELS[:300])
    # Of so few rows there are more passes; the last is over all rows.
    more = metric.FEWEST_STEPS / metric.FEWEST_AT_ONCE
    assert noted == [more * compared, more * compared, more * usual, 1]


@pytest.mark.parametrize("unit", [1e-30, *slow(1e30)])
def test_rows_in_units_beyond_float32_squares_are_standardised(unit):
    rows = unit * np.random.default_rng(0).normal(size=(150, 3))
    y = rows[:, 0] > 0
    assert BudgetedKernelClassifier(random_state=0).fit(rows, y).score(rows, y) > 0.9


def test_an_encoding_in_one_pass():
    model = BudgetedKernelClassifier(BUDGET, encode=8, refit=False, random_state=0)
    classes = np.unique(LABELS)
    for part in np.split(np.arange(ROWS), 3):
        model.partial_fit(X[part], LABELS[part], classes)
    assert model.model_.scaling.num_features == model.support_vectors_.shape[1]
    # A label drawn at random is right in a quarter of the rows.
    assert model.score(TEST, TEST_LABELS) > 0.4


def test_a_sample_of_a_stream_is_fitted_as_all_rows_are(fitted):
    """Again when there are a quarter more rows, and not in a prediction."""
    model, classes = clone(fitted), np.unique(LABELS)
    model.partial_fit(X[:800], LABELS[:800], classes)
    first = model.model_
    model.partial_fit(X[800:999], LABELS[800:999])
    assert model.model_.scaling is first.scaling
    model.partial_fit(X[999:], LABELS[999:])
    assert model.score(TEST, TEST_LABELS) > 0.9
    assert model.feature_importances_.shape == (4,)
    # The bins are those of a fit of as many rows.
    codes, usual = model.model_.scaling, fitted.model_.scaling
    assert bj.equal(codes._replace(map=None), usual._replace(map=None))


def unlike(rows=160, seed=0):
    """Columns in units of their own, and what two of the small ones decide."""
    Z = np.random.default_rng(seed).normal(size=(rows, 4))
    units = [Z[:, 0], 1000 * Z[:, 1], np.exp(2 * Z[:, 2]), 0.01 * Z[:, 3]]
    return np.stack(units, axis=1), Z[:, 0] * Z[:, 3] > 0, Z[:, 0] + Z[:, 3]


def fed(model, rows, targets, size):
    """The model after parts of so many rows."""
    more = {"classes": [False, True]} if targets.dtype == bool else {}
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        model.partial_fit(rows[part], targets[part], **more)
    return model


@functools.cache
def fed_at_once(kind):
    """A model of the stream, not fitted; and what it predicts after all rows."""
    rows, labels, numbers = unlike()
    targets = labels if kind is BudgetedKernelClassifier else numbers
    model = kind(BUDGET, random_state=0, refit=False)
    return model, fed(clone(model), rows, targets, len(rows)).predict(rows)


@pytest.mark.parametrize(
    "kind", [BudgetedKernelClassifier, *slow(BudgetedKernelRegressor)]
)
@pytest.mark.parametrize("size", [10, 32, 49, *slow(1)])
def test_first_rows_of_unlike_columns_are_learned_in_any_parts(kind, size):
    rows, labels, numbers = unlike()
    targets = labels if kind is BudgetedKernelClassifier else numbers
    model, expected = fed_at_once(kind)
    parts = fed(clone(model), rows, targets, size)
    np.testing.assert_allclose(parts.predict(rows), expected)
    # Half of the labels, and the mean of the numbers, are right by chance.
    assert parts.score(rows, targets) > (0.75 if targets is labels else 0.5)


@pytest.mark.parametrize("size", [10, *slow(32)])
@pytest.mark.parametrize(
    "kind", [BudgetedKernelClassifier, *slow(BudgetedKernelRegressor)]
)
def test_small_parts_of_unlike_columns_are_refitted(kind, size):
    rows, labels, numbers = unlike()
    targets = labels if kind is BudgetedKernelClassifier else numbers
    model = kind(BUDGET, random_state=0, penalty=1.0, learn_metric=False)
    parts = fed(model, rows, targets, size)
    assert parts.score(rows, targets) > (0.75 if targets is labels else 0.5)


@pytest.mark.parametrize("refit", [True, *slow(False)])
def test_a_stream_goes_on_from_its_first_rows(monkeypatch, tmp_path, refit):
    monkeypatch.setattr(online, "FEWEST_TO_START", 100)
    rows, labels, _ = unlike()
    given = {"learn_metric": False, "random_state": 0, "refit": refit}
    model = BudgetedKernelClassifier(BUDGET, **given)
    whole = fed(clone(model), rows, labels, 80)
    # Of 80 and of 160 rows at first; a prediction in between changes nothing.
    parts = clone(model).partial_fit(rows[:80], labels[:80], [False, True])
    assert parts.score(rows, labels) > 0.7
    bj.save(tmp_path / "model", parts)
    parts = bj.load(tmp_path / "model").partial_fit(rows[80:], labels[80:])
    np.testing.assert_array_equal(parts.predict(rows), whole.predict(rows))
    assert parts._waiting is None
    assert int(parts.state_.num_seen) == 160


def test_sparse_first_rows_wait_too(tmp_path):
    rows, labels, _ = unlike(60)
    dense = np.where(np.abs(rows[:, [0, 2]]) > 0.5, rows[:, [0, 2]], 0)
    given = {"encode": False, "learn_metric": False, "penalty": 1.0, "random_state": 0}
    model = BudgetedKernelClassifier(BUDGET, **given)
    expected = fed(clone(model), dense, labels, 20).decision_function(dense)
    for start in range(0, 60, 20):
        part = slice(start, start + 20)
        given = scipy.sparse.csr_array(dense[part])
        model.partial_fit(given, labels[part], [False, True])
    bj.save(tmp_path / "model", model)
    for one in (model, bj.load(tmp_path / "model")):
        np.testing.assert_allclose(one.decision_function(dense), expected, rtol=1e-3)


def test_what_first_rows_cannot_be_is_refused_at_once():
    rows, _, numbers = unlike(40)
    given = {"loss": "poisson", "learn_metric": False, "random_state": 0}
    model = BudgetedKernelRegressor(BUDGET, **given)
    model.partial_fit(rows[:20], np.exp(numbers[:20]))
    before = model.predict(rows)
    with pytest.raises(ValueError, match="y must be"):
        model.partial_fit(rows[20:], -np.exp(numbers[20:]))
    np.testing.assert_array_equal(model.predict(rows), before)


def test_predictions_learn_nothing(monkeypatch):
    rows, labels, numbers = unlike(60)
    for kind, targets in (
        (BudgetedKernelClassifier, labels),
        (BudgetedKernelRegressor, numbers),
    ):
        for refit in (True, False):
            given = {"learn_metric": False, "random_state": 0, "refit": refit}
            model = fed(kind(BUDGET, **given), rows, targets, 25)
            before = dict(vars(model))
            for name in ("_fit_data", "_continue_stream", "_make_recipe"):
                monkeypatch.setattr(model, name, None)
            first, again = model.predict(rows), model.predict(rows)
            np.testing.assert_array_equal(first, again)
            assert all(vars(model)[name] is before[name] for name in before)


def test_importances_are_of_the_last_fit_and_of_a_metric(fitted):
    model = clone(fitted).set_params(learn_metric=True, encode=2, penalty=1.0)
    model.fit(X[:300], LABELS[:300])
    assert len(model.feature_importances_) == 4
    # Another fit, of other columns, without a metric: with a refit, and without.
    wide = np.concatenate([X, X], axis=1)[:150]
    for more in ({"learn_metric": False}, {"refit": False, "penalty": "auto"}):
        model.set_params(**{"learn_metric": "auto"} | more).fit(wide, LABELS[:150])
        assert model.n_features_in_ == 8
        assert not hasattr(model, "feature_importances_")
    # And of the last sample of a stream.
    stream = BudgetedKernelClassifier(BUDGET, random_state=0, penalty=1.0)
    stream.partial_fit(X[:40], LABELS[:40], np.unique(LABELS))
    with pytest.raises(AttributeError, match="the last fit has learned no metric"):
        stream.feature_importances_  # noqa: B018
    stream.set_params(learn_metric=True).partial_fit(X[100:300], LABELS[100:300])
    assert np.sum(stream.feature_importances_) == pytest.approx(1)


PARAMETERS = [
    {name: value}
    for name, values in {
        "gamma": ["auto", 0.5, "scale"],
        "kernel": ["laplacian", "poly", "linear", bj.RBF(0.5)],
        "encode": [False, 0, 3],
        "learn_metric": [False, True],
        "move_vectors": [True],
        "refit": [False],
        "learner": [bj.Fourier(), bj.SGD(), bj.AROW()],
    }.items()
    for value in values
]


@pytest.mark.parametrize("parameters", first_quick(PARAMETERS), ids=str)
@pytest.mark.parametrize("encode", [{}, *slow({"encode": 0})], ids=["", "encode=0"])
@pytest.mark.parametrize(
    "kind", [BudgetedKernelClassifier, *slow(BudgetedKernelRegressor)]
)
def test_the_tag_of_missing_values_is_true(kind, encode, parameters):
    model = kind(BUDGET, random_state=0, **encode | parameters)
    targets = LABELS if kind is BudgetedKernelClassifier else X[:, 3]
    for rows in (60, 300):
        accepts = True
        try:
            prepared = model._prepare(MISSING[:rows], targets[:rows], None)
            model._make_recipe(0).encodings(prepared.X)
        except ValueError as error:
            assert "NaN" in str(error)  # noqa: PT017
            accepts = False
        assert model.__sklearn_tags__().input_tags.allow_nan == accepts


def test_a_metric_that_moves_vectors_is_not_asked_to_move_them_too():
    model = BudgetedKernelClassifier(BUDGET, move_vectors=True, learn_metric=True)
    with pytest.raises(ValueError, match="move_vectors must be False with learn_"):
        model.fit(X[:300], LABELS[:300])


def test_numbers_of_a_table():
    target = np.log(X[:, 0]) + np.abs(X[:, 1] - 180) / 90
    model = BudgetedKernelRegressor(BUDGET, random_state=0).fit(X, target)
    unseen = np.log(TEST[:, 0]) + np.abs(TEST[:, 1] - 180) / 90
    assert model.score(TEST, unseen) > 0.98


def test_not_fitted():
    with pytest.raises(NotFittedError):
        BudgetedKernelClassifier().predict(MISSING)
