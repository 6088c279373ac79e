"""Models that take raw columns through an encoding."""

import functools
import json
import zipfile

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import rounding
from click.testing import CliRunner
from marks import slow
from sklearn.preprocessing import StandardScaler

import budgetjax as bj
from budgetjax import _rows
from budgetjax.cli import commands
from budgetjax.exporting import predictor
from budgetjax.refitting import training_data
from budgetjax.refitting.reduce import compact
from budgetjax.tables.table_model import fold_map

pytestmark = pytest.mark.usefixtures("plain_loops")

random = np.random.default_rng(0)
X = np.stack(
    [
        random.lognormal(size=400),
        1e5 + 10 * random.normal(size=400),
        random.integers(0, 4, 400),
        np.where(random.random(400) < 0.2, np.nan, random.normal(size=400)),
    ],
    axis=1,
)
Y = np.where((np.log(X[:, 0]) > 0) ^ (X[:, 2] == 1), 1, -1)
CODES = bj.encoding.fit(X, 6, nominal=[2])
NAMES = ("price", "time", "colour", "gaps")
PEGASOS = bj.Pegasos()


@functools.cache
def encoded(mapped=True, learner=PEGASOS, num_classes=2, rank=3, **more):
    """A model of codes that has learned a few rows, under a mapped kernel."""
    matrix = np.random.default_rng(1).normal(size=(CODES.num_codes, rank)) / 2
    kernel = (
        bj.Mapped(bj.RBF(0.3), matrix.astype(np.float32)) if mapped else bj.RBF(0.3)
    )
    y = Y if num_classes == 2 else X[:, 2].astype(int)
    state = learner.init(
        kernel,
        num_features=CODES.num_features,
        budget=20,
        **({} if num_classes == 2 else {"num_classes": num_classes}),
        **more,
    )
    state, _ = bj.run(state, CODES.apply(X), y)
    return bj.TableModel(state, CODES, feature_names=NAMES)


def test_rows_are_encoded_before_they_are_scored():
    model = encoded()
    codes, state = CODES.apply(X, np.float64), model.model
    expected = bj.decision_function(state, codes)
    vectors, coefficients, _ = (np.asarray(part, float) for part in bj.support(state))
    matrix = np.asarray(state.kernel.matrix, float)
    bounds = rounding.mapped_rbf(0.3, codes, vectors, matrix)
    # Both sides are rounded.
    bound = 2 * bounds @ np.abs(coefficients[:, 0])
    assert np.all(np.abs(model.decision_function(X) - expected) <= bound)
    assert model.num_features == 4
    assert model.predict(X[:0]).shape == (0,)


def test_blocks_of_rows_are_encoded(monkeypatch):
    model, expected = encoded(), encoded().decision_function(X)
    monkeypatch.setattr(_rows, "block_size", lambda rows, features: 64)
    np.testing.assert_allclose(model.decision_function(X), expected, atol=1e-6)
    wrong = X.copy()
    wrong[300, 1] = np.inf
    with pytest.raises(
        ValueError, match=r"decision_function: .* inf in row 300, column 1"
    ):
        model.decision_function(wrong)


def test_columns_are_found_by_name():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X[:, ::-1], columns=NAMES[::-1])
    np.testing.assert_array_equal(encoded().predict(frame), encoded().predict(X))


def test_scores_of_encoded_rows_are_traced():
    folded = fold_map(encoded())
    rows = X.astype(np.float32)
    scores = jax.jit(lambda rows: bj.decision_function(folded, rows))(rows)
    np.testing.assert_allclose(scores, folded.decision_function(rows), atol=1e-3)
    gradient = jax.grad(lambda row: bj.decision_function(folded, row[None])[0])(rows[0])
    assert gradient.shape == (4,)
    assert float(jnp.abs(gradient[0])) > 0


@pytest.mark.parametrize(
    ("learner", "more"),
    [
        (bj.Pegasos(), {}),
        *slow(
            (bj.Pegasos(), {"num_classes": 4}),
            (bj.Projectron(), {}),
            (bj.AROW(), {}),
            (bj.Nystrom(), {}),
        ),
    ],
)
def test_a_folded_map_predicts_the_same(learner, more):
    model = encoded(learner=learner, **more)
    folded = fold_map(model)
    check_scores(folded, model)
    assert folded.scaling.num_features == 3
    assert folded.model.expansion.vectors.shape[1] == 3
    assert bj.equal(folded.model.kernel, bj.RBF(jnp.asarray(0.3, jnp.float32)))
    if isinstance(learner, (bj.AROW, bj.Nystrom)):
        return
    # It goes on learning as it would have.
    y = X[:, 2].astype(int) if "num_classes" in more else Y
    later = [
        part._replace(model=bj.run(part.model, part.scaling.apply(X), y)[0])
        for part in (folded, model)
    ]
    check_scores(*later, 1e-5)


def check_scores(found, expected, rounding=1e-6):
    """The scores are equal, up to rounding of their terms."""
    terms = np.abs(np.asarray(bj.support(expected).coefficients)).sum()
    away = found.decision_function(X) - expected.decision_function(X)
    assert np.max(np.abs(away)) < rounding * terms


def test_maps_multiply_and_kernel_models_fold():
    model = encoded()
    twice = fold_map(model)
    kernel = bj.Mapped(bj.RBF(1.0), random.normal(size=(3, 2)).astype(np.float32))
    twice = twice._replace(model=twice.model._exchange(kernel=kernel))
    folded = fold_map(twice)
    assert folded.scaling.map.shape == (CODES.num_codes, 2)
    check_scores(folded, twice)
    small = compact(model)
    folded = fold_map(bj.StreamModel(small))
    assert folded.model.model.vectors.shape[1] == 3
    check_scores(folded.model, model)


def test_other_models_are_not_folded():
    plain = encoded(mapped=False)
    diagonal = bj.Mapped(bj.RBF(1.0), np.ones(CODES.num_codes, np.float32))
    several = plain._replace(model=(plain.model, plain.model))
    for model in (
        plain,
        plain.model,
        several,
        plain._replace(model=plain.model._exchange(kernel=diagonal)),
        encoded()._replace(scaling=None),
    ):
        assert fold_map(model) is model


def test_support_vectors_of_encoded_rows_are_features():
    """Codes of learned rows, and after folding their products with the matrix."""
    model = encoded(maintenance=bj.RemoveOldest())
    vectors, _, held = map(np.asarray, bj.support(model))
    assert vectors.shape == (20, CODES.num_codes)
    distances = np.abs(vectors[held][:, None] - CODES.apply(X)[None]).sum(axis=2)
    np.testing.assert_array_equal(distances.min(axis=1), 0)
    folded = np.asarray(bj.support(fold_map(model)).vectors)
    assert folded.shape == (20, 3)
    products = vectors[held] @ np.asarray(model.model.kernel.matrix, np.float64)
    np.testing.assert_allclose(folded[held], products, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["codes", "mapped", "folded"])
def test_a_file_keeps_the_encoding(name, tmp_path):
    model = encoded(mapped=name != "codes")
    model = fold_map(model) if name == "folded" else model
    bj.save(tmp_path / "model", model)
    loaded = bj.load(tmp_path / "model")
    np.testing.assert_array_equal(
        loaded.decision_function(X), model.decision_function(X)
    )
    assert type(loaded.scaling) is bj.encoding.Encoding
    assert jax.tree.structure(loaded) == jax.tree.structure(model)


@pytest.mark.parametrize("metric", [False, *slow(True, "diagonal")])
def test_refits_encode_rows(metric):
    model = encoded(mapped=False)
    better = bj.refit(model, X, Y, learn_metric=metric, epochs=1)
    assert np.mean(better.predict(X) == Y) > np.mean(model.predict(X) == Y)
    # A learned matrix is folded.
    folds = metric is True
    assert (better.scaling.map is not None) == folds
    assert isinstance(better.model.kernel, bj.Mapped) == (metric == "diagonal")
    again = bj.refit(better, X, Y, calibrate=True)
    assert np.all(np.isfinite(bj.probabilities(again, X)))


def test_rows_that_are_read_again_are_not_copied_by_programs(monkeypatch):
    memory = np.empty(4 * X.size + 64, np.uint8)
    start = (4 - memory.ctypes.data) % 64
    odd = memory[start : start + 4 * X.size].view(np.float32).reshape(X.shape)
    odd[:] = X
    even = training_data.align(odd)
    assert (odd.ctypes.data % 64, even.ctypes.data % 64) == (4, 0)
    np.testing.assert_array_equal(even, odd)
    assert training_data.align(even) is even
    # What is kept of batches, and codes that are written once.
    monkeypatch.setattr(training_data, "align", lambda array: array + 1)
    read = functools.partial(training_data.read_examples, of_labels=True)
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=5)
    again, *_ = read(state, [(X[:, 1:3], Y)], None, None)
    first, second = (next(again()).X for _ in range(2))
    np.testing.assert_allclose(second, first + 1)
    model = encoded(mapped=False)
    written, _, coder = read(model, X, Y, None)
    assert coder is None
    codes = model.encoding.apply(X, np.float32)
    some = next(written()).X[:, : codes.shape[1]]
    np.testing.assert_allclose(some, codes + 1, rtol=1e-6)


@pytest.mark.parametrize("limit", ["FEW_TO_WRITE", "BYTES_TO_WRITE"])
def test_a_refit_is_the_same_whether_programs_or_the_host_write_codes(
    monkeypatch, limit
):
    model = encoded(mapped=False)
    few = bj.refit(model, X, Y)
    monkeypatch.setattr(training_data, limit, 0)
    many = bj.refit(model, X, Y)
    assert training_data.read_examples(model, X, Y, None, of_labels=True)[2] is not None
    np.testing.assert_allclose(
        many.decision_function(X), few.decision_function(X), atol=1e-3
    )


def test_encoded_models_become_smaller():
    folded = fold_map(encoded())
    small = bj.prune(folded, 5)
    assert small.predict(X).shape == (400,)
    assert small.model.vectors.shape == (5, 3)


def run_exported(path, rows):
    """The scores of an exported file."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        kind = session.get_inputs()[0].type.removeprefix("tensor(")[:-1]
        dtype = {"float": np.float32, "double": np.float64}[kind]
        return session.run(["scores"], {"X": rows.astype(dtype)})[0]
    with zipfile.ZipFile(path) as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        about = json.loads(file.read("about.json"))
    with jax.enable_x64(about["dtype"] == "float64"):
        return np.asarray(program.call(rows.astype(about["dtype"]))["scores"])


@pytest.mark.parametrize("suffix", ["onnx", *slow("stablehlo")])
@pytest.mark.parametrize(
    "name", ["numbers", *slow("codes", "mapped", "folded", "linear")]
)
def test_exported_files_encode_rows(name, suffix, tmp_path):
    model, rows = encoded(mapped=name != "codes"), X
    if name == "folded":
        model = fold_map(model)
    if name == "linear":
        weights = random.normal(size=CODES.num_codes).astype(np.float32)
        model = model._replace(model=bj.LinearModel(weights, jnp.float32(0.5)))
    if name == "numbers":
        rows = X[:, :1].astype(np.float32)
        codes = bj.encoding.fit(rows, 6)
        state = bj.Perceptron().init(bj.RBF(1.0), num_features=6, budget=30)
        state, _ = bj.run(state, codes.apply(rows), Y)
        model = bj.TableModel(state, codes)
    path = tmp_path / f"model.{suffix}"
    bj.export(path, model)
    more = np.array([[np.nan] * 4, [-1e30, 0, 9, 1e30], [1e30, 2e5, -1, 0]])
    rows = np.concatenate([rows, more[:, : rows.shape[1]].astype(rows.dtype)])
    scores = run_exported(path, rows)
    expected = model.decision_function(rows)
    terms = 1.0
    if name != "linear":
        terms = np.abs(np.asarray(bj.support(model).coefficients)).sum()
    np.testing.assert_allclose(scores, expected, rtol=1e-5, atol=1e-6 * terms)


def test_a_scaler_before_an_encoded_model_is_exported_with_it(tmp_path):
    rows = X[:, :2]
    scaler = StandardScaler().fit(rows)
    codes = bj.encoding.fit(scaler.transform(rows), 6)
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=codes.num_codes, budget=30)
    state, _ = bj.run(state, codes.apply(scaler.transform(rows)), Y)
    model = bj.TableModel(state, codes)
    behind = predictor._compose_scalers(scaler, model)
    np.testing.assert_allclose(
        behind.decision_function(rows),
        model.decision_function(scaler.transform(rows)),
        atol=1e-5,
    )
    with pytest.raises(ValueError, match="model must have no StandardScaler before it"):
        predictor._compose_scalers(StandardScaler().fit(np.nan_to_num(X)), encoded())


def test_river_encodes_rows_before_a_learner():
    pandas = pytest.importorskip("pandas")
    river = pytest.importorskip("budgetjax.river")
    encoder = river.Encoder(CODES, NAMES)
    frame = pandas.DataFrame(X, columns=NAMES)
    found = encoder.transform_many(frame)
    np.testing.assert_array_equal(found.to_numpy(), CODES.apply(X))
    row = dict(zip(NAMES, X[7].tolist(), strict=True))
    assert [*encoder.transform_one(row).values()] == found.iloc[7].tolist()
    row.pop("gaps")
    missing = CODES.apply(np.append(X[7, :3], np.nan)[None])[0]
    assert [*encoder.transform_one(row | {"more": 1}).values()] == missing.tolist()
    assert [*encoder.transform_one(row | {"gaps": None}).values()] == missing.tolist()
    model = encoder | river.BudgetedClassifier(
        bj.Perceptron(), kernel=bj.RBF(0.3), budget=20
    )
    model.learn_many(frame, pandas.Series(Y))
    state = bj.Perceptron().init(bj.RBF(0.3), num_features=CODES.num_codes, budget=20)
    state, _ = bj.run(state, CODES.apply(X), Y)
    expected = bj.predict(state, CODES.apply(X))
    assert np.mean(model.predict_many(frame).to_numpy() == expected) > 0.99
    with pytest.raises(ValueError, match="Encoder: X must be finite, or NaN"):
        encoder.transform_one(row | {"gaps": np.inf})


def test_the_command_line_predicts_by_an_encoded_model(tmp_path):
    pandas = pytest.importorskip("pandas")
    folded = fold_map(encoded())._replace(classes=np.array(["no", "yes"]))
    bj.save(tmp_path / "model.st", folded)
    frame = pandas.DataFrame(X[:, ::-1], columns=NAMES[::-1])
    frame.to_csv(tmp_path / "rows.csv", index=False)
    paths = [str(tmp_path / name) for name in ("model.st", "rows.csv")]
    done = CliRunner().invoke(commands.budgetjax, ["predict", *paths, "--quiet"])
    assert done.exit_code == 0, done.output
    assert done.output.split() == folded.predict(X).tolist()
    # A text among numbers is missing, as in a data frame.
    frame.astype({"time": str}).replace({"time": {str(X[0, 1]): "noon"}}).to_csv(
        paths[1], index=False
    )
    done = CliRunner().invoke(commands.budgetjax, ["predict", *paths, "--quiet"])
    assert done.exit_code == 0
    assert done.stderr.count("column 'time' has numbers, and 1 of its") == 1
    told = CliRunner().invoke(commands.budgetjax, ["info", paths[0]]).output
    assert "scaling: 4 columns as 23 codes, mapped to 3 features" in " ".join(
        told.split()
    )


def batches_of(rows=X, size=90):
    return [(rows[i : i + size], Y[i : i + size]) for i in range(0, len(rows), size)]


def new_state():
    return bj.Perceptron().init(bj.RBF(0.3), num_features=CODES.num_codes, budget=20)


def test_a_stream_is_encoded(tmp_path):
    codes = CODES.apply(X)
    state, scores = bj.run(new_state(), codes, Y)
    found = bj.fit_stream(new_state(), batches_of(), encode=CODES, batch_rows=64)
    np.testing.assert_allclose(
        found.decision_function(X), bj.decision_function(state, codes), atol=1e-4
    )
    assert found.error == pytest.approx(np.mean(np.asarray(scores) * Y <= 0))
    assert found.scaling is CODES
    # A file keeps it, and the model goes on.
    bj.save(tmp_path / "model", found)
    more = bj.fit_stream(bj.load(tmp_path / "model"), batches_of(), batch_rows=64)
    state, _ = bj.run(state, codes, Y)
    np.testing.assert_allclose(
        more.decision_function(X), bj.decision_function(state, codes), atol=1e-3
    )


def test_a_killed_encoded_stream_goes_on(tmp_path):
    given = {
        "encode": CODES,
        "batch_rows": 64,
        "checkpoint": tmp_path / "checkpoint",
        "every": 1,
        "reservoir": 50,
    }
    expected = bj.fit_stream(new_state(), batches_of(), **given)
    (tmp_path / "checkpoint").unlink()

    def broken():
        yield from batches_of()[:3]
        raise OSError("gone")

    with pytest.raises(bj.StreamError):
        bj.fit_stream(new_state(), broken(), **given)
    found = bj.fit_stream(new_state(), batches_of(), **given)
    np.testing.assert_array_equal(
        found.decision_function(X), expected.decision_function(X)
    )


def test_what_a_stream_cannot_encode():
    fit = functools.partial(bj.fit_stream, new_state(), encode=CODES)
    wrong = X.copy()
    wrong[200, 1] = np.inf
    with pytest.raises(bj.StreamError, match="inf in row 200, column 1"):
        fit(batches_of(wrong), batch_rows=64)
    with pytest.raises(bj.StreamError, match=r"X must have 4 columns, .* got 3"):
        fit(batches_of(X[:, :3]))
    narrow = bj.encoding.fit(X[:, :2], 4)
    with pytest.raises(ValueError, match=r"encode must .* 23 features .* got 8"):
        fit(batches_of(), encode=narrow)
    with pytest.raises(
        ValueError, match=r"encode must be None for a model to continue"
    ):
        bj.fit_stream(fit(batches_of()), batches_of(), encode=CODES)


def test_rows_of_a_map_that_stays_are_its_features():
    codes = bj.fit_encoding(X, rank=8)
    features = codes.apply(X)
    state = bj.SGD().init(bj.RBF(0.5), num_features=8, budget=20, num_classes=None)
    state, _ = bj.run(state, features, np.ones(len(X), np.float32))
    model = bj.TableModel(state, codes)
    for solve in (bj.one_class, lambda *given: bj.refit(*given, Y, loss="squared")):
        found, expected = solve(model, X), solve(bj.TableModel(state), features)
        scores = bj.decision_function(found, X)
        wanted = bj.decision_function(expected, features)
        np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-4)
        np.testing.assert_array_equal(found.scaling.map, codes.map)
