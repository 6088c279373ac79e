"""Learning from batches: what `run` gives, whatever their lengths."""

import functools
import os
import pathlib
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import registry
import scipy.sparse
from compare import FLOAT32, assert_same, mistakes
from marks import first_quick, slow
from refusals import refused
from streams import LEARNERS, ROWS, cut, fit, identical, without_classes

import budgetjax as bj
from budgetjax import _rows, datasets
from budgetjax.saving import model_files
from budgetjax.stream import Batches, batches
from budgetjax.stream.model import MAX_POINTS, StreamModel, extend_curve
from budgetjax.tables.scaling import Scaling, scale_warning, warn_unscaled

N = 200


def each(test):
    return pytest.mark.parametrize("row", first_quick(LEARNERS.values()), ids=LEARNERS)(
        test
    )


@each
def test_equals_run_whatever_the_lengths(row, double):
    X, y = row.stream(N)
    weight = np.random.default_rng(1).integers(0, 3, N).astype(float)
    state = row.init(dtype=jnp.float64)
    models = [
        fit(row, cut((X, y, weight), lengths), state)
        for lengths in ([N], [1], [7, 0, 50, 3], [ROWS])
    ]
    for model in models[1:]:
        identical(model, models[0])
    expected, scores = bj.run(state, X, y, weight=weight)
    assert_same(models[0].state, expected, 1e-9)
    assert models[0].num_rows == N
    np.testing.assert_array_equal(models[0].rows, [64, 128, 192, 200])
    errors = errors_of(row, np.asarray(scores), y) * (weight > 0)
    rows = models[0].rows
    np.testing.assert_allclose(
        models[0].errors, np.cumsum(errors)[rows - 1] / np.cumsum(weight > 0)[rows - 1]
    )
    assert models[0].error == models[0].errors[-1]


def errors_of(row, scores, y):
    """The error of every row, from the scores before it was learned."""
    if row.num_classes == 0:
        return (scores - y) ** 2
    return mistakes(scores, y).astype(float)


@pytest.mark.parametrize("name", ["regression", "features"])
def test_is_run_on_parts_of_one_length(name):
    """To the last bit: the program is the same. The last part is filled up."""
    row = LEARNERS[name]
    X, y = row.stream(N)
    model = fit(row, cut((X, y), [60]))
    more = -N % ROWS
    X = np.concatenate([X, np.zeros_like(X[:more])])
    y = np.concatenate([y, np.ones_like(y[:more])])
    state = row.init()
    for part in cut((X, y, np.arange(N + more) < N), [ROWS]):
        state, _ = bj.run(state, *part[:2], weight=part[2])
    identical(model.state, state)


def test_the_error_of_several_targets_is_their_mean():
    row = LEARNERS["regression"]
    X, y = row.stream(N)
    both = np.stack([y, 2 * y[::-1]], axis=1)
    state = row.init(num_outputs=2)
    _, scores = bj.run(state, X, both)
    model = bj.fit_stream(state, [(X, both)])
    expected = np.mean((np.asarray(scores, np.float64) - both) ** 2)
    np.testing.assert_allclose(model.error, expected, rtol=1e-5)


def test_one_program_for_all_lengths_and_values():
    row = LEARNERS["multiclass"]
    row, traces = row.counted()
    X, y = row.stream(N)
    fit(row, cut((X, y), [N]))
    once = len(traces)
    for lengths in ([1], [33], [5, 70]):
        state = row.init(kernel=bj.RBF(0.1 * lengths[0]))
        fit(row, cut((X[:-11], y[:-11]), lengths), state)
    fit(row, cut((X, y), [9]), encode=bj.encoding.fit(X, 0))
    assert len(traces) == once > 0


@pytest.mark.parametrize("name", ["multiclass", *slow("regression")])
@pytest.mark.parametrize("encodes", [False, *slow(True)])
def test_at_the_end_the_rows_of_the_reservoir_come_again(name, encodes):
    row = LEARNERS[name]
    X, y = row.stream(N)
    encode = bj.encoding.fit(X, 0) if encodes else None
    weight = np.arange(N) % 3.0
    plain = fit(row, [(X, y, weight)], encode=encode)
    model = fit(row, [(X, y, weight)], encode=encode, reservoir=70)
    identical(model.with_inner(plain.state), plain)
    # All of weight above 0, if there is room, and each once.
    model = fit(row, [(X, y, weight)], encode=encode, reservoir=N)
    order = np.argsort(np.random.default_rng(np.random.PCG64(0)).random(133))
    kept = np.flatnonzero(weight)[order]
    again = X if plain.scaling is None else plain.scaling.apply(X)
    by_hand = fit(row, [(again[kept], y[kept], weight[kept])], plain.state)
    identical(model.state, by_hand.state)


def test_a_sorted_stream_with_a_reservoir_is_learned():
    X = np.random.default_rng(2).normal(size=(N, registry.NUM_FEATURES))
    y = np.repeat([-1, 1], N // 2)
    X[:, 0] = X[:, 0] / 2 + y
    plain, model = (
        fit(LEARNERS["binary"], [(X, y)], reservoir=reservoir)
        for reservoir in (None, N // 2)
    )
    # One pass ends as a model of its last rows.
    assert np.mean(plain.predict(X) == y) == 0.5
    assert np.mean(model.predict(X) == y) > 0.8


@each
def test_rows_of_weight_0_are_as_if_they_were_not_there(row):
    X, y = row.stream(N)
    present = np.random.default_rng(0).random(N) < 0.7
    given = fit(row, cut((X, y, present), [41]))
    without = fit(row, cut((X[present], y[present]), [41]))
    assert_same(given.state, without.state, FLOAT32)
    assert given.num_rows == N
    assert given.num_scored == without.num_scored == present.sum()
    np.testing.assert_allclose(given.error, without.error, rtol=1e-3)


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("binary", ["no", "yes"]),
        ("binary", np.array(["yes", "no"], object)),
        ("binary", [7, 3]),
        ("binary", [False, True]),
        ("binary", [1.5, 2.5]),
        ("multiclass", ["d", "a", "ccc", "b"]),
        ("multiclass", (10, 20, 30, 2**40)),
    ],
    ids=lambda value: str(value)[:12],
)
def test_labels_are_those_given(name, classes):
    row = LEARNERS[name]
    X, y = row.stream(N)
    index = (y + 1) // 2 if row.num_classes == 2 else y
    named = np.asarray(classes)[index]
    for labels in (named, named.tolist(), named.astype(object)):
        model = fit(row, cut((X, labels), [55]), classes=classes)
        plain = fit(row, cut((X, y), [55]))
        identical(model.state, plain.state)
        assert model.errors.tolist() == plain.errors.tolist()
    predicted = plain.predict(X)
    index = (predicted + 1) // 2 if row.num_classes == 2 else predicted
    assert model.predict(X).tolist() == np.asarray(classes)[index].tolist()


def test_labels_of_the_learner_may_be_floats():
    row = LEARNERS["multiclass"]
    X, y = row.stream(N)
    identical(fit(row, cut((X, y.astype(float)), [55])), fit(row, cut((X, y), [55])))


@pytest.mark.parametrize("kind", ["csr_array", "csc_matrix", "coo_array"])
def test_sparse_batches(kind):
    row = LEARNERS["binary"]
    X, y = row.stream(N)
    X[np.random.default_rng(0).random(X.shape) < 0.6] = 0
    dense = fit(row, cut((X, y), [55]))
    sparse = [(getattr(scipy.sparse, kind)(X), y) for X, y in cut((X, y), [70])]
    model = fit(row, sparse)
    identical(model, dense)
    matrix = getattr(scipy.sparse, kind)(X)
    np.testing.assert_array_equal(
        model.decision_function(matrix), model.decision_function(X)
    )


@each
@pytest.mark.parametrize("encodes", [False, True])
def test_going_on_from_a_model(row, encodes):
    X, y = row.stream(N)
    encode = bj.encoding.fit(X, 0) if encodes else None
    whole = fit(row, cut((X, y), [55]), encode=encode)
    half = 2 * ROWS
    first = fit(row, cut((X[:half], y[:half]), [13]), encode=encode)
    assert first.num_rows == half
    identical(fit(row, cut((X[half:], y[half:]), [31]), first), whole)


def test_an_intercept_is_subtracted_and_added():
    row = LEARNERS["regression"]
    X, y = row.stream(N)
    far, encode = y.astype(float) + 2.0**20, bj.encoding.fit(X, 0)
    near, model = (
        fit(row, [(X, targets)], intercept=intercept, reservoir=50, encode=encode)
        for targets, intercept in ((y, 0.0), (far, 2.0**20))
    )
    identical(model.state, near.state)
    np.testing.assert_array_equal(model.errors, near.errors)
    expected = near.predict(X).astype(float) + 2.0**20
    np.testing.assert_array_equal(model.predict(X), expected)
    near, model = (
        bj.refit(one, X, targets, loss="squared")
        for one, targets in ((near, y), (model, far))
    )
    identical(model.state, near.state)
    # The refit adds the same to both. Going on it is the model's.
    intercept = model.model.intercept
    assert 0 != near.model.intercept == pytest.approx(intercept - 2.0**20, abs=1e-6)
    model = fit(row, [(X, far)], model)
    assert model.model.intercept == intercept
    for call, expected, got in (
        (lambda: fit(row, [(X, far)], model, intercept=3.0), "the model's", "3"),
        (lambda: fit(LEARNERS["binary"], [(X, y)], intercept=3.0), "0", "3"),
        (lambda: fit(row, [(X, y)], intercept=np.nan), "finite", "nan"),
    ):
        refused(call, "intercept", expected, got)


@each
def test_predictions_are_of_raw_rows(row, monkeypatch):
    X, y = row.stream(N)
    X = X * np.array([1.0, 100.0, 1e-3], np.float32) + np.float32(5)
    model = fit(row, cut((X, y), [55]), encode=bj.encoding.fit(X, 0))
    scores = bj.decision_function(model.state, model.scaling.apply(X))
    np.testing.assert_allclose(model.decision_function(X), scores, 1e-4, 1e-4)
    if row.num_classes == 0:
        np.testing.assert_array_equal(model.predict(X), model.decision_function(X))
    else:
        expected = bj.predict(model.state, model.scaling.apply(X))
        np.testing.assert_array_equal(model.predict(X), expected)
    # Many blocks, of which the last is padded, and none.
    monkeypatch.setattr(_rows, "MIN_ROWS", 16)
    np.testing.assert_allclose(model.decision_function(X), scores, 1e-4, 1e-4)
    np.testing.assert_allclose(model.decision_function(X[:3]), scores[:3], 1e-4, 1e-4)
    assert model.decision_function(X[:0]).shape == (0, *scores.shape[1:])
    assert model.predict(X[:0]).shape == (0,)
    for call in (model.predict, model.decision_function):
        bad = X.copy()
        bad[40, 1] = np.inf
        for given, expected, got in (
            (X[0, :2], "(n, 3)", "(2,)"),
            (bad, "finite", "inf in row 40"),
        ):
            refused(functools.partial(call, given), "X", expected, got, call.__name__)


@each
def test_saved_and_loaded_it_predicts_the_same(row, tmp_path):
    X, y = row.stream(N)
    classes = None
    if row.num_classes:
        classes = [f"class {i}" for i in range(row.num_classes)]
        y = np.array(classes)[(y + 1) // 2 if row.num_classes == 2 else y]
    model = fit(row, cut((X, y), [55]), encode=bj.encoding.fit(X, 0), classes=classes)
    model_files.save(tmp_path / "model", model)
    loaded = model_files.load(tmp_path / "model")
    assert type(loaded) is StreamModel
    identical(loaded.state, model.state)
    identical(loaded.scaling, model.scaling)
    assert loaded.rows.tolist() == model.rows.tolist()
    assert loaded.errors.tolist() == model.errors.tolist()
    np.testing.assert_array_equal(
        loaded.decision_function(X), model.decision_function(X)
    )
    assert loaded.predict(X).tolist() == model.predict(X).tolist()
    # And goes on in the same way.
    identical(
        without_classes(fit(row, cut((X, y), [7]), loaded)),
        without_classes(fit(row, cut((X, y), [7]), model)),
    )


def test_a_curve_is_thinned_evenly():
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=1, budget=1)
    model = StreamModel(bj.TableModel(state))
    for i in range(1, 7778):
        model = extend_curve(model, state, None, 10, 9, float(i % 3))
        assert len(model.rows) <= MAX_POINTS
        assert model.num_rows == 10 * i
    assert len(model.rows) >= MAX_POINTS // 2
    steps = np.diff(model.rows)
    assert set(steps[:-1]) == {model.rows[0]}
    assert steps[-1] <= model.rows[0]
    rounds = model.rows // 10
    expected = np.cumsum(np.arange(1, 7778) % 3)[rounds - 1] / (9 * rounds)
    np.testing.assert_allclose(model.errors, expected)


def test_scaling_is_that_of_numpy():
    random = np.random.default_rng(0)
    X = random.normal(size=(1000, 5)) * [1, 1e-3, 1e6, 1, 1] + [0, 7, 3e6, 1e4, 0.1]
    X = X.astype(np.float32)
    X[:, 4] = 0.1
    wide = X.astype(np.float64)
    scalings = []
    for lengths in ([1000], [1], [3, 0, 300]):
        scaling = Scaling.empty(5)
        for (part,) in cut((X,), lengths):
            scaling = scaling.updated(part)
        scalings.append(scaling)
        assert scaling.num_rows == 1000
        np.testing.assert_allclose(scaling.mean, wide.mean(axis=0), rtol=1e-12)
        np.testing.assert_allclose(
            scaling.deviation[:4], wide.std(axis=0)[:4], rtol=1e-9
        )
        assert scaling.constant.tolist() == [False] * 4 + [True]
    scaled = scalings[0].apply(X)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0, dtype=float), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.std(axis=0, dtype=float), [1, 1, 1, 1, 0], 1e-6)
    assert not np.any(Scaling.empty(5).apply(X))


def test_an_encoding_is_the_same_for_all_lengths():
    row = LEARNERS["binary"]
    X, y = row.stream(3 * ROWS)
    X = 1e4 + X * np.array([1.0, 100.0, 1e-2])
    encode = bj.encoding.fit(X, 0)
    one, other = (
        fit(row, cut((X, y), lengths), encode=encode) for lengths in ([len(X)], [3, 77])
    )
    identical(one, other)
    assert one.error < 0.4
    state, _ = bj.run(row.init(), encode.apply(X), y)
    assert_same(one.state, state, FLOAT32)


SCALED = (
    "digits",
    "a9a",
    "w8a",
    "usps",
    "reuters_moneyfx",
    "mnist",
    "letter",
    "phishing",
)


def test_columns_of_a_frame_are_taken_by_their_names(tmp_path):
    row = LEARNERS["multiclass"]
    X, y = row.stream(N)
    names = ("a", "b", "c")
    source = Batches("named", 3, lambda: cut((X, y), [N]), feature_names=names)
    model = fit(row, source)
    assert model.model.feature_names == names
    expected = model.predict(X)
    frame = pd.DataFrame(X, columns=list(names)).assign(other=0)
    moved = frame[["other", "c", "a", "b"]]
    np.testing.assert_array_equal(model.predict(moved), expected)
    bj.save(tmp_path / "model", model)
    np.testing.assert_array_equal(bj.load(tmp_path / "model").predict(moved), expected)
    refused(lambda: model.predict(frame[["a", "c"]]), "X", "columns", "without 'b'")
    table = pa.Table.from_pandas(moved)
    for one in (table, table.to_batches()[0]):
        np.testing.assert_array_equal(model.predict(one), expected)
    np.testing.assert_array_equal(model.predict(moved[:0]), expected[:0])


def test_a_stream_learns_columns_by_their_names(tmp_path):
    """Frames, tables and files, in any order, from the first batch on and later."""
    row = LEARNERS["multiclass"]
    X, y = row.stream(N)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    moved = frame[["c", "a", "b"]]
    table = pa.Table.from_pandas(moved)
    expected = fit(row, cut((X, y), [N // 2]))
    named = expected._replace(
        model=expected.model._replace(feature_names=("a", "b", "c"))
    )
    half, path = N // 2, tmp_path / "a.parquet"
    for second in (moved, table):
        parts = [(frame[:half], y[:half]), (second[half:], y[half:])]
        identical(fit(row, iter(parts)), named)
    pq.write_table(table.append_column("t", pa.array(y)), path)
    further = fit(row, [(X, y)], named)
    for source in ([(moved, y)], [(table, y)], bj.stream.parquet(path, target="t")):
        identical(fit(row, source, named), further)
    refitted = bj.refit(named, bj.stream.parquet(path, target="t"))
    identical(refitted, bj.refit(named, [(moved, y)]))
    identical(refitted, bj.refit(named, [(X, y)]))
    lacks = "must have the columns that the model was trained on, got one without 'b'"
    with pytest.raises(bj.StreamError, match=lacks):
        fit(row, [(frame[["a", "c"]], y)], named)
    with pytest.raises(ValueError, match=lacks):
        fit(row, bj.stream.parquet(path, target="b"), named)


@pytest.mark.parametrize("away", [1e2, 1e4, 1e6])
def test_features_far_from_0_are_learned_as_well_as_at_0(away):
    row = LEARNERS["multiclass"]
    X, y = row.stream(N)
    # As far as numbers at this distance can tell rows apart.
    X = np.round(X.astype(float), 6)
    near, far = (
        fit(row, cut((moved, y), [N]), encode=bj.encoding.fit(moved, 0))
        for moved in (X, X + away)
    )
    assert abs(near.error - far.error) <= 2 / N
    same = near.predict(X) == far.predict(X + away)
    assert np.mean(same) > 0.98


@pytest.mark.parametrize("name", first_quick([*SCALED, "covtype"]))
def test_only_features_that_are_unscaled_are_told_of(name):
    folder = pathlib.Path(os.environ.get(datasets.FOLDER_VARIABLE, ""))
    if name != "digits" and not (folder / f"{name}.npz").is_file():
        pytest.skip(f"no {name}.npz in {datasets.FOLDER_VARIABLE}")
    X = datasets.load(name, standardise=False).X_train
    size = batches.rows_per_batch(X.shape[1], X.dtype, None)
    for rows in (size, 1000, 50):
        if name == "covtype":
            with pytest.warns(
                UserWarning, match=r"test: features look unscaled: column 5"
            ):
                warn_unscaled("test", X[:rows])
        else:
            warn_unscaled("test", X[:rows])


def test_what_looks_unscaled():
    random = np.random.default_rng(0)
    X = random.normal(size=(100, 8))
    wide, far, constant = X.copy(), X + 1e3, X.copy()
    wide[:, 3] *= 1e3
    constant[:, 2] = 1e3
    with pytest.warns(
        UserWarning, match=r"unscaled: column 3 .* of 1.* at most [01]\."
    ):
        warn_unscaled("test", wide)
    with pytest.warns(
        UserWarning, match=r"uncentred: their mean is 28.. from 0, .* 2\."
    ):
        warn_unscaled("test", far)
    with pytest.warns(UserWarning, match="uncentred"):
        warn_unscaled("test", constant)
    # Models subtract an origin where distances are all that counts.
    assert scale_warning(far, centred=bj.RBF(1.0).shifts) is None
    assert "uncentred" in scale_warning(far, centred=bj.Linear().shifts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for quiet in (wide[:49], X, 1e6 * X, np.ones((100, 3)), np.zeros((0, 3))):
            warn_unscaled("test", quiet)


def test_a_stream_that_is_unscaled_warns_once_and_where_it_is_called(as_installed):
    row = LEARNERS["binary"]
    X, y = row.stream(N)
    X = X * np.array([1.0, 1.0, 1e4], np.float32)
    source = Batches("wide.csv", 3, lambda: cut((X, y), [50]))
    with pytest.warns(
        UserWarning, match="^fit_stream: wide.csv: features look uns"
    ) as told:
        model = fit(row, source)
    assert len(told) == 1
    assert "budgetjax" not in told[0].filename
    fit(row, source, model)
    fit(row, source, encode=bj.encoding.fit(X, 0))


@pytest.mark.parametrize("name", ["binary", "regression"])
def test_the_bar_tells_rows_error_and_support_vectors(name, capsys):
    row = LEARNERS[name]
    X, y = row.stream(N)
    source = Batches("some.csv", 3, lambda: cut((X, y), [50]), num_rows=N)
    model = fit(row, source, progress=True)
    last = capsys.readouterr().err.splitlines()[-1].rpartition("\r")[2]
    assert last.startswith("fit_stream: 100%")
    assert "200/200" in last
    assert "rows/s" in last
    word = "error" if row.num_classes else "mean squared error"
    assert f"{word} {model.error:.4g}, 10 support vectors" in last


def test_states_are_left_as_they_were():
    """Nothing that the caller holds is changed, arrays included."""
    row = LEARNERS["binary"]
    X, y = row.stream(N)
    state = row.init()
    before, arrays = jax.tree.map(np.array, state), (X.copy(), y.copy())
    first = fit(row, cut((X, y), [50]), encode=bj.encoding.fit(X, 0))
    held = first.scaling.centre.copy(), first.rows.copy()
    fit(row, cut((X, y), [50]), first)
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.array, state), before)
    np.testing.assert_array_equal(X, arrays[0])
    np.testing.assert_array_equal(first.scaling.centre, held[0])
    np.testing.assert_array_equal(first.rows, held[1])
