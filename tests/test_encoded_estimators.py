"""Estimators that write the columns of a table as codes; see tests/test_encoding.py."""

import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnxruntime
import pytest
import scipy.sparse
from safetensors.numpy import load_file
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import budgetjax as bj
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    online,
    supervised,
)
from budgetjax.estimators.forms import Form
from budgetjax.refitting import metric
from budgetjax.refitting.held_out import Fold
from budgetjax.tables.encoding import Encoding

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
        lambda: BudgetedKernelClassifier(gamma=1.0).fit(MISSING, LABELS),
        lambda: BudgetedKernelClassifier(gamma=1.0).partial_fit(
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
        *({"move_vectors": True}, {"learner": bj.Fourier()}),
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
    assert steps == [512] * 3 + [np.count_nonzero(weights)] * plain
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

    for rows in (1, 10, 100, 999):
        assert scaling_of(X[:rows]).num_codes == 4
    # A column with one value so far may change.
    constant = np.concatenate([X[:100], np.ones((100, 1))], axis=1)
    assert scaling_of(constant).num_codes == 5
    alike = np.random.default_rng(0).normal(size=(100, 4))
    for rows, more in (
        *((alike, {}), (X, {"gamma": 0.1})),
        *((X, {"learner": bj.Fourier()}), (X, {"encode": False})),
    ):
        assert scaling_of(rows, **more) is None
    assert scaling_of(X, refit=False).num_codes > 4


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


@pytest.mark.parametrize("refit", [True, False])
@pytest.mark.parametrize("kind", [BudgetedKernelClassifier, BudgetedKernelRegressor])
def test_first_rows_of_unlike_columns_are_learned_in_any_parts(kind, refit):
    rows, labels, numbers = unlike()
    targets = labels if kind is BudgetedKernelClassifier else numbers
    more = {"penalty": 1.0} if refit else {}
    model = kind(BUDGET, random_state=0, refit=refit, **more)
    expected = fed(clone(model), rows, targets, len(rows)).predict(rows)
    for size in (1, 10, 32, 49):
        parts = fed(clone(model), rows, targets, size)
        np.testing.assert_allclose(parts.predict(rows), expected)
    # Half of the labels, and the mean of the numbers, are right by chance.
    assert parts.score(rows, targets) > (0.75 if targets is labels else 0.5)


def test_a_stream_goes_on_from_its_first_rows(monkeypatch, tmp_path):
    monkeypatch.setattr(online, "FEWEST_TO_START", 100)
    rows, labels, _ = unlike()
    model = BudgetedKernelClassifier(BUDGET, random_state=0, penalty=1.0)
    whole = fed(clone(model), rows, labels, 80)
    # Of 80 and of 160 rows at first; a prediction in between changes nothing.
    parts = clone(model).partial_fit(rows[:80], labels[:80], [False, True])
    assert parts.score(rows, labels) > 0.7
    bj.save(tmp_path / "model", parts)
    parts = bj.load(tmp_path / "model").partial_fit(rows[80:], labels[80:])
    np.testing.assert_array_equal(parts.predict(rows), whole.predict(rows))
    assert parts._waiting is None
    assert int(parts.state_.num_seen) >= 160


def test_sparse_first_rows_wait_too(tmp_path):
    rows, labels, _ = unlike(60)
    dense = np.where(np.abs(rows[:, [0, 2]]) > 0.5, rows[:, [0, 2]], 0)
    model = BudgetedKernelClassifier(BUDGET, encode=False, penalty=1.0, random_state=0)
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
    model = BudgetedKernelRegressor(BUDGET, loss="poisson", random_state=0)
    model.partial_fit(rows[:20], np.exp(numbers[:20]))
    before = model.predict(rows)
    with pytest.raises(ValueError, match="y must be"):
        model.partial_fit(rows[20:], -np.exp(numbers[20:]))
    np.testing.assert_array_equal(model.predict(rows), before)


def test_threads_that_predict_refit_a_stream_once(monkeypatch):
    rows, labels, _ = unlike(60)
    model = BudgetedKernelClassifier(BUDGET, random_state=0, penalty=1.0)
    model.partial_fit(rows, labels, [False, True])
    refits, replay = [], type(model)._replay

    def noted(self, *given):
        refits.append(None)
        return replay(self, *given)

    monkeypatch.setattr(type(model), "_replay", noted)
    with ThreadPoolExecutor(4) as pool:
        first, *others = pool.map(model.predict, [rows] * 4)
    assert len(refits) == 1
    for other in others:
        np.testing.assert_array_equal(other, first)


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
    # Quantiles of columns say nothing, before a prediction and after.
    stream = BudgetedKernelClassifier(BUDGET, random_state=0, penalty=1.0)
    stream.partial_fit(X[:300], LABELS[:300], np.unique(LABELS))
    for _ in range(2):
        with pytest.raises(AttributeError, match="the last fit has learned no metric"):
            stream.feature_importances_  # noqa: B018
        stream.predict(X[:5])
    # A stream that learns one has them, whether it has predicted or not.
    asked, other = (clone(stream).set_params(learn_metric=True) for _ in range(2))
    for one in (asked, other):
        one.partial_fit(X[:300], LABELS[:300], np.unique(LABELS))
    other.predict(X[:5])
    np.testing.assert_array_equal(
        asked.feature_importances_, other.feature_importances_
    )


def test_a_choice_of_an_encoding_leaves_what_was_learned(monkeypatch):
    monkeypatch.setattr(supervised, "find_best", lambda *given: 0)
    model = BudgetedKernelClassifier(BUDGET, random_state=0, penalty=1.0)
    model.fit(X[:150], LABELS[:150])
    before = model.predict(X)
    encoding, _ = model.choose_encoding(X[:150, :3], LABELS[:150])
    assert encoding.num_columns == 3
    assert model.n_features_in_ == 4
    np.testing.assert_array_equal(model.predict(X), before)
    new = clone(model)
    new.choose_encoding(X[:150], LABELS[:150])
    assert not hasattr(new, "n_features_in_")


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


@pytest.mark.parametrize("parameters", PARAMETERS, ids=str)
@pytest.mark.parametrize("encode", [{}, {"encode": 0}], ids=["", "encode=0"])
@pytest.mark.parametrize("kind", [BudgetedKernelClassifier, BudgetedKernelRegressor])
def test_the_tag_of_missing_values_is_true(kind, encode, parameters):
    model = kind(BUDGET, random_state=0, **encode | parameters)
    targets = LABELS if kind is BudgetedKernelClassifier else X[:, 3]
    for rows in (60, 300):
        accepts = True
        try:
            prepared, *_ = model._prepare(MISSING[:rows], targets[:rows], None)
            # Those of `fit` with a refit, and of all else.
            model._forms(prepared)
            model._form_of_stream(prepared)
        except ValueError as error:
            assert "NaN" in str(error)  # noqa: PT017
            accepts = False
        assert model.__sklearn_tags__().input_tags.allow_nan == accepts


def test_numbers_of_a_table():
    target = np.log(X[:, 0]) + np.abs(X[:, 1] - 180) / 90
    model = BudgetedKernelRegressor(BUDGET, random_state=0).fit(X, target)
    unseen = np.log(TEST[:, 0]) + np.abs(TEST[:, 1] - 180) / 90
    assert model.score(TEST, unseen) > 0.98


def test_not_fitted():
    with pytest.raises(NotFittedError):
        BudgetedKernelClassifier().predict(MISSING)
