"""Estimators that write the columns of a table as codes; see tests/test_encoding.py."""

import types

import numpy as np
import onnxruntime
import pytest
import scipy.sparse
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import budgetjax as bj
from budgetjax.encoding import Encoding
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    online,
    supervised,
)
from budgetjax.estimators.forms import Form
from budgetjax.refitting import metric
from budgetjax.refitting.held_out import Fold

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


@pytest.fixture(scope="module", autouse=True)
def few_steps():
    """A third of the steps is enough for steps of two columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metric, "FEWEST_STEPS", 10)
        yield


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
    plain = BudgetedKernelClassifier(BUDGET, encode=False, random_state=0)
    plain.fit(X[:50] / X[:50].std(axis=0), LABELS[:50])
    with pytest.raises(ValueError, match="NaN") as raised:
        plain.predict(MISSING[:5])
    assert raised.value.__notes__ == ["encode=0 takes missing values."]


def test_one_row_that_counts_has_no_metric():
    # It is held out, so the trial has no support vectors.
    weights = np.zeros(400)
    weights[7] = 1
    one = BudgetedKernelClassifier(BUDGET, random_state=0)
    one.fit(X[:400], LABELS[:400], weights)
    assert set(one.predict(X[:400])) == {LABELS[7]}


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
        lambda: BudgetedKernelClassifier(gamma=1.0).fit(MISSING, LABELS),
        lambda: BudgetedKernelClassifier().partial_fit(
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


def test_raw_rows_are_padded_only_while_they_are_learned(monkeypatch):
    random = np.random.default_rng(0)
    rows = 50 + random.normal(size=(ROWS, 3))
    labels = (rows[:, 0] - 50) * (rows[:, 1] - 50) > 0
    monkeypatch.setattr(supervised, "find_best", lambda *given: 0)
    model = BudgetedKernelClassifier(BUDGET, learn_metric=True, random_state=0)
    model.fit(rows, labels)
    assert forms(rows)[0].width == 16
    assert model.state_.expansion.vectors.shape[1] == 3
    assert model.state_.kernel.matrix.shape == (3, 3)
    assert model.origin_.shape == (3,)
    assert model.score(rows, labels) > 0.93
    assert np.sum(model.feature_importances_) == pytest.approx(1)
    model.partial_fit(rows[:10], labels[:10])
    assert model.support_vectors_.shape == (BUDGET, 3)


def noting(steps, learn):
    """`Streamed.learn`, which notes how many rows it is given."""

    def noted(self, orders, report):
        steps.append(len(orders[0]))
        return learn(self, orders, report)

    return noted


def forms(rows, kind=BudgetedKernelClassifier, **more):
    estimator = kind(**more)
    estimator.categories_ = {}
    return estimator._forms(rows)


def test_what_is_tried():
    bins = [form.num_bins for form in forms(X)]
    assert bins == [0, 5, 16]
    single, *codes = forms(X)
    assert single.width == 16
    assert {form.width for form in codes} == {256}
    alike = np.random.default_rng(0).normal(size=X.shape)
    assert forms(alike)[0].encoding is None
    assert [form.num_bins for form in forms(alike)[1:]] == [5, 16]
    raw, *_ = forms(alike, BudgetedKernelRegressor)
    assert raw.factor == 4
    numbers = forms(X, BudgetedKernelRegressor)
    assert [form.factor for form in numbers] == [4, 1, 1]
    numbers = forms(X[:999], BudgetedKernelRegressor)
    assert [form.factor for form in numbers] == [1, 1, 1]
    # Too few rows to choose; other choices of the user; images; a table of constants.
    assert [form.num_bins for form in forms(X[:199])] == [0]
    for more in (
        *({"gamma": 0.1}, {"kernel": "laplacian"}, {"learn_metric": False}),
        *({"move_vectors": True}, {"algorithm": "fourier"}),
    ):
        assert forms(X, **more) == [Form()]
    assert forms(np.ones((ROWS, 2))) == [Form()]
    assert forms(np.random.default_rng(0).normal(size=(ROWS, 129))) == [Form()]


@pytest.mark.parametrize(
    ("schools", "edges"), [(100, [100]), (150, [17, 150]), (600, [17])]
)
def test_many_names_that_are_numbers_have_a_form_of_their_own(schools, edges):
    rows = np.random.default_rng(0).normal(size=(ROWS, 5))
    rows[:, 0] = 1000 * (np.arange(ROWS) % schools)
    assert [len(form.encoding.edges(0)) for form in forms(rows)[2:]] == edges


@pytest.mark.parametrize(
    ("plain", "sampled"), [(False, True), (True, True), (False, False)]
)
def test_many_rows_are_streamed_only_if_that_is_needed(monkeypatch, plain, sampled):
    monkeypatch.setattr(
        "budgetjax.estimators.forms.TRIAL_ROWS", 1024 if sampled else ROWS * 2
    )
    monkeypatch.setattr(online, "FIRST_ROWS", 512)
    steps = []
    learn = noting(steps, online.Streamed.learn)
    monkeypatch.setattr(online.Streamed, "learn", learn)
    X, labels = table(rows=2 * ROWS)
    if plain:
        # Held-out rows prefer coefficients alone; codes always have a metric.
        monkeypatch.setattr(Fold, "prefers", lambda *models: False)
        monkeypatch.setattr(supervised, "find_best", lambda *given: 0)
    weights = np.ones(len(labels))
    weights[::10] = 0
    model = BudgetedKernelClassifier(BUDGET, random_state=0, epochs=2)
    model.fit(X, labels, weights)
    # Without a metric, the vectors are those of a stream of all rows.
    assert steps == [512] * 3 + [len(labels)] * plain
    assert int(model.state_.num_seen) == 2 * np.count_nonzero(weights)
    assert plain or model.score(TEST, TEST_LABELS) > 0.9


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("error", "kept"), [(0.9, 60), (1.0, 20)])
def test_more_passes_stay_if_held_out_rows_prefer_them(error, kept):
    def draft(epochs, share):
        return types.SimpleNamespace(
            compares=True,
            problem=types.SimpleNamespace(epochs=epochs),
            errors=lambda: [np.array([share])],
            learn_metric=lambda more: draft(more, error),
        )

    assert supervised.try_longer(draft(20, 1.0)).problem.epochs == kept


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(("leeway", "best"), [(0.0, 2), (1.0, 2), (4.0, 1)])
def test_a_plain_form_is_preferred_that_chance_may_separate_from_the_best(leeway, best):
    def draft(errors, metric):
        held = np.arange(100) < errors
        return types.SimpleNamespace(errors=lambda: [1.0 * held], metric=metric)

    # The best is better on 10 rows, 3.2 deviations.
    drafts = [draft(30, None), draft(20, None), draft(10, "one"), draft(15, "other")]
    assert supervised.find_best(drafts, leeway) == best


@pytest.mark.parametrize("rows", [150, 1200])
@pytest.mark.parametrize("columns", [129, 600])
def test_wide_rows_of_one_scale_stay_and_others_are_encoded(rows, columns):
    X = np.random.default_rng(0).normal(size=(rows, columns))

    def bins(X):
        return [(form.encoding is not None, form.num_bins) for form in forms(X)]

    assert bins(X) == [(False, 0)]
    # Pixels at the margin of images hardly vary.
    image = np.where(np.arange(columns) < 20, 0.01, 1) * np.clip(X, 0, 1)
    assert bins(image) == [(False, 0)]
    # Nor does what rounding leaves of a constant.
    image[:, 0] *= 1e-15
    assert bins(image) == [(False, 0)]
    X[:, ::5] *= 1e4
    several = rows >= 1000 and columns < 512
    assert bins(X) == [(True, 0)] + [(True, 5)] * several
    X[3, 5] = np.nan
    assert bins(X)[0] == (True, 0)


@pytest.mark.parametrize("unit", [1e-30, 1e30])
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


def test_a_stream_of_a_table_is_encoded_by_its_first_rows():
    model = BudgetedKernelClassifier(BUDGET, random_state=0)
    model.partial_fit(X[:1000], LABELS[:1000], np.unique(LABELS))
    codes = model.model_.scaling
    model.partial_fit(MISSING[1000:], LABELS[1000:])
    assert model.model_.scaling is codes
    assert codes.num_codes == 3 * 16 + len(np.unique(X[:1000, 2])) - 1
    standardised = clone(model).set_params(encode=0)
    standardised.partial_fit(X, LABELS, np.unique(LABELS))
    score = model.score(TEST, TEST_LABELS)
    assert score > standardised.score(TEST, TEST_LABELS) + 0.05


def test_few_first_rows_of_a_stream_give_their_scales():
    def scaling_of(rows, **more):
        model = BudgetedKernelClassifier(BUDGET, random_state=0, **more)
        model.categories_ = {}
        return model._form_of_stream(rows).encoding

    assert scaling_of(X[:100]).num_codes == 4
    # A column with one value so far may change.
    constant = np.concatenate([X[:100], np.ones((100, 1))], axis=1)
    assert scaling_of(constant).num_codes == 5
    alike = np.random.default_rng(0).normal(size=(100, 4))
    for rows, more in (
        *((alike, {}), (X[:99], {}), (X, {"gamma": 0.1})),
        *((X, {"algorithm": "fourier"}), (X, {"encode": False})),
    ):
        assert scaling_of(rows, **more) is None
    assert scaling_of(X, refit=False).num_codes > 4


def test_numbers_of_a_table():
    target = np.log(X[:, 0]) + np.abs(X[:, 1] - 180) / 90
    model = BudgetedKernelRegressor(BUDGET, random_state=0).fit(X, target)
    unseen = np.log(TEST[:, 0]) + np.abs(TEST[:, 1] - 180) / 90
    assert model.score(TEST, unseen) > 0.98


def test_not_fitted():
    with pytest.raises(NotFittedError):
        BudgetedKernelClassifier().predict(MISSING)
