"""What is exported predicts the same, where budgetjax cannot be imported."""

import functools
import json
import os
import subprocess
import sys
import zipfile

import jax.export
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import registry
from marks import pairs
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_models import X, learned

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelRegressor, SBPClassifier
from budgetjax.exporting.predictor import outputs, predictor
from budgetjax.refitting import calibration
from budgetjax.tables import scaling

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

# Raw rows: far from 0, on scales of their own; and times that float32 rounds off.
RAW = (1000 + X * np.array([4.0, 30.0])).astype(np.float32)
SCALING = scaling.Scaling.empty(X.shape[1]).updated(RAW)
TIMES = 1.8e18 + X * np.array([1e9, 1e10])
NAMES = np.array(["ant", "bee", "a longer word"])
COLUMNS = tuple(f"column {i}" for i in range(X.shape[1]))


def kernel_model(kernel, columns=3):
    """Coefficients at random of every fourth row."""
    coefficients = np.random.default_rng(0).normal(size=(len(X[::4]), columns))
    return bj.KernelModel(
        kernel,
        jnp.asarray(X[::4]),
        jnp.asarray(coefficients[:, 0] if columns == 1 else coefficients, jnp.float32),
        jnp.asarray(0.25 if columns == 1 else [0.1, -0.2, 0.3], jnp.float32),
    )


def linear_model(seed):
    weights = np.random.default_rng(seed).normal(size=X.shape[1])
    return bj.LinearModel(jnp.asarray(weights, jnp.float32), jnp.float32(0.5))


def with_terms(state):
    """The state of a learner with weights at random, in all of its columns."""
    terms = np.random.default_rng(0).normal(
        size=state.expansion.coefficients_and_sums.shape
    )
    terms[-1] = 0
    vectors = np.resize(X, state.expansion.vectors.shape)
    expansion = state.expansion._replace(
        vectors=jnp.asarray(vectors),
        squares=jnp.asarray(np.sum(vectors**2, axis=1)),
        ages=jnp.arange(len(terms), dtype=jnp.int32),
        coefficients_and_sums=jnp.asarray(terms, jnp.float32),
        scale=jnp.float32(0.5),
    )
    if state.kernel.of_examples:
        return state._replace(expansion=expansion)
    return state._replace(expansion=expansion._replace(vectors=state.expansion.vectors))


def regressor(columns):
    return with_terms(
        bj.SGD().init(
            bj.RBF(0.3),
            num_features=X.shape[1],
            budget=7,
            num_classes=None,
            num_outputs=columns,
        )
    )


def mapped():
    """A kernel model that is told the rows of `TIMES` from their first."""
    vectors = jnp.asarray((TIMES - TIMES[0])[::4], jnp.float32)
    kernel = bj.Mapped(bj.RBF(0.4), jnp.float32([[1e-9], [2e-10]]))
    return kernel_model(kernel)._replace(vectors=vectors)


def estimator():
    found = SBPClassifier()
    found._model = bj.TableModel((linear_model(3), kernel_model(bj.RBF(0.4), 1)) * 2)
    found._model = found._model._replace(classes=np.array([2, 3, 5, 8]))
    return found


def pipeline():
    """Two scalings before a third one."""
    found = estimator()
    found._model = found._model._replace(scaling=SCALING._replace(mean=np.ones(2)))
    doubled = StandardScaler(with_mean=False).fit(2 * X)
    found = make_pipeline(StandardScaler().fit(RAW), doubled, found)
    found[-1].n_features_in_ = X.shape[1]
    return found


def shared():
    """One per class, with most vectors in common."""
    found, first = estimator(), kernel_model(bj.RBF(0.4), 1)
    second = first._replace(
        vectors=first.vectors[2:], coefficients=first.coefficients[:-2]
    )
    found._model = found._model._replace(model=(first, second) * 2)
    return found


def quantiles():
    found = BudgetedKernelRegressor(quantile=[0.9, 0.1, 0.5])
    found._model = bj.TableModel(regressor(3), intercept=np.array([1.0, 2.0, 3.0]))
    found._reservoir, found.categories_ = None, {}
    found.n_features_in_ = X.shape[1]
    return found


def fourier():
    return with_terms(bj.Fourier().init(bj.RBF(0.3), num_features=X.shape[1], budget=8))


# The models, whether they take raw rows.
MODELS = {
    "a state": lambda: learned(2),
    "a state of three classes": lambda: learned(3),
    "labels": lambda: bj.TableModel(
        learned(3), SCALING, NAMES, COLUMNS, intercept=0.1, calibration=1.7
    ),
    "a stream": lambda: bj.StreamModel(
        bj.TableModel(learned(2), SCALING, NAMES[:2].astype(object), calibration=0.5)
    ),
    "a regressor": lambda: bj.TableModel(regressor(1), SCALING, intercept=10.0),
    "outputs": lambda: bj.TableModel(regressor(2), intercept=np.array([5.0, -5.0])),
    "a linear model": lambda: linear_model(0),
    "times": lambda: bj.TableModel(
        learned(3), scaling.Scaling.empty(2).updated(TIMES), NAMES
    ),
    "an origin": lambda: bj.TableModel(
        bj.compact(mapped()), scaling.Scaling.translation(TIMES[0])
    ),
    "flags": lambda: bj.TableModel(linear_model(0), SCALING, np.array([False, True])),
    "features": fourier,
    "a solution": lambda: kernel_model(bj.RBF(0.4), 1),
    "one per class": estimator,
    "shared vectors": shared,
    "quantiles": quantiles,
    "a pipeline": pipeline,
}
SCRIPT = """
import json, pathlib, sys, zipfile
sys.modules["budgetjax"] = None  # importing it raises
import jax.export
import numpy as np
import onnxruntime

folder = pathlib.Path(sys.argv[1])
for path in sorted(folder.glob("*.stablehlo")):
    X = np.load(path.with_suffix(".npy"))
    with zipfile.ZipFile(path) as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        about = json.loads(file.read("about.json"))
    assert about["dtype"] == X.dtype, path
    with jax.enable_x64(X.dtype == np.float64):
        found = {name: np.asarray(value) for name, value in program.call(X).items()}
        assert list(program.call(X[:1])) == list(found)  # any number of rows
    if "label" in found:
        found["label"] = np.array([about["classes"][i] for i in found["label"]])
    assert program.platforms == ("cpu", "cuda", "tpu")
    np.savez(path.with_suffix(".stablehlo.npz"), **found)
    session = onnxruntime.InferenceSession(path.with_suffix(".onnx"))
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(names, {"X": X})))
    for output in session.get_outputs():
        assert session.run([output.name], {"X": X[:1]})[0].shape[0] == 1
        assert output.shape[1:] == list(found[output.name].shape[1:])
    if "label" in found and found["label"].dtype == object:
        found["label"] = found["label"].astype(str)
    np.savez(path.with_suffix(".onnx.npz"), **found)
assert not [name for name in sys.modules if name.startswith("budgetjax.")]
"""


def rows_of(model):
    if hasattr(model, "steps"):
        return RAW
    found = bj.TableModel.of(model).scaling
    return X if found is None else TIMES if found.mean[0] > 1e18 else RAW


@pytest.fixture(scope="module")
def exported(tmp_path_factory, quick_process):
    """A folder of all models, with what they predict in another process."""
    folder = tmp_path_factory.mktemp("exported")
    for name, make in MODELS.items():
        model = make()
        bj.export(folder / f"{name}.onnx", model)
        bj.export(folder / f"{name}.stablehlo", model)
        np.save(folder / f"{name}.npy", rows_of(getattr(model, "model_", model)))
    command = [sys.executable, "-c", SCRIPT, str(folder)]
    environment = os.environ | quick_process
    subprocess.run(command, check=True, timeout=300, env=environment)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_it_predicts_the_same_without_this_package(exported, name):
    model = MODELS[name]()
    rows = np.load(exported / f"{name}.npy")
    if name == "a pipeline":
        rows, model = model[:-1].transform(rows.astype(np.float64)), model[-1]
    predicts = getattr(model, "model_", model)
    expected = {}
    if predicts.is_regressor:
        expected["variable"] = model.predict(rows)
    else:
        expected["scores"] = bj.decision_function(predicts, rows)
        if calibration.factor_of(predicts) is not None:
            expected["probabilities"] = bj.probabilities(predicts, rows)
        near = np.abs(np.sort(np.atleast_2d(expected["scores"].T).T, axis=1))
        sure = np.abs(near[:, -1]) > 1e-4
        labels = np.asarray(bj.predict(predicts, rows))
    for suffix in (".onnx", ".stablehlo"):
        found = dict(np.load(exported / f"{name}{suffix}.npz"))
        if "variable" not in expected:
            given = found.pop("label")
            np.testing.assert_array_equal(given[sure], labels[sure])
            assert given.dtype.kind == labels.dtype.kind.replace("O", "U")
        assert set(found) == set(expected)
        for part, values in expected.items():
            assert found[part].shape == values.shape
            size = np.max(np.abs(values))
            np.testing.assert_allclose(found[part], values, atol=1e-5 * size, rtol=0)


def sine(columns=1):
    """Rows and targets in units of their own, and as many rows far from them."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(300, 2)).astype(np.float32)
    noise = random.normal(size=(300, 2)) * (0.1 + 0.2 * (rows[:, :1] > 0))
    y = np.array([50.0, -1.0]) + [9.0, 0.1] * (np.sin(2 * rows) + noise)
    return rows, y[:, 0] if columns == 1 else y, np.concatenate([rows, 20 + 10 * rows])


def fitted(columns=1, **more):
    rows, y, _ = sine(columns)
    return BudgetedKernelRegressor(20, random_state=0, **more).fit(rows, y)


def calibrated(state, run=True):
    rows, y, _ = sine()
    y = (y - 50) / 9
    state = bj.run(state, rows, y)[0] if run else state
    return bj.calibrate(
        bj.TableModel(state, unit=9.0, intercept=50.0), rows, 9 * y + 50
    )


def of_values(learner, **more):
    return learner.init(
        bj.RBF(0.5), num_features=2, budget=20, num_classes=None, **more
    )


def half_of_a_solution():
    """Its other support vectors have no coefficient, and say where rows are known."""
    model = kernel_model(bj.RBF(0.5), 1)._replace(link=bj.losses.IDENTITY)
    coefficients = np.array(model.coefficients)
    coefficients[: len(coefficients) // 2] = 0
    return calibrated(model._replace(coefficients=coefficients), run=False)


class Halves(bj.Model):
    """A model with a share of its own."""

    num_features, num_columns, dtype = 2, 1, np.dtype(np.float32)
    link = bj.losses.IDENTITY

    def scores(self, X):
        return jnp.sum(X, axis=1, keepdims=True)

    def beyond(self, X, root=None):
        return jnp.where(jnp.sum(X, axis=1) > 10, 0.5, jnp.zeros(X.shape[0]))


# What knows how far targets lie from its predictions.
SURE = {
    "the default": fitted,
    "outputs": lambda: fitted(2, encode=False, learn_metric=False),
    "a tracker": lambda: fitted(learner=bj.KRLST(), refit=False),
    "a tracker of outputs": lambda: fitted(2, learner=bj.KRLST(), refit=False),
    "a stream": lambda: calibrated(of_values(bj.SGD())),
    "an empty stream": lambda: calibrated(of_values(bj.SGD()), run=False),
    "features": lambda: calibrated(of_values(bj.Fourier())),
    "a solution": lambda: calibrated(
        kernel_model(bj.Polynomial(2), 1)._replace(link=bj.losses.IDENTITY), run=False
    ),
    "half of a solution": half_of_a_solution,
    "one's own": lambda: calibrated(Halves(), run=False),
}


def results(path, rows):
    """The results of a file of either kind by name."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        names = [output.name for output in session.get_outputs()]
        return dict(zip(names, session.run(names, {"X": rows}), strict=True))
    with zipfile.ZipFile(path) as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
    return program.call(rows)


def check_deviations(folder, model, variances, suffix):
    *_, rows = sine()
    bj.export(path := folder / f"model{suffix}", model)
    plain = results(path, rows)
    assert list(plain) == ["variable"]
    bj.export(path, model, deviation=True)
    found = results(path, rows)
    assert set(found) == {"variable", "deviation"}
    assert found["deviation"].shape == found["variable"].shape
    np.testing.assert_allclose(found["deviation"], np.sqrt(variances), rtol=1e-3)
    size = np.max(np.abs(plain["variable"]), axis=0)
    away = np.abs(found["variable"] - plain["variable"])
    assert np.all(away <= 1e-4 * size)
    return found["deviation"]


@functools.cache
def sure(name):
    return SURE[name]()


@pytest.mark.parametrize(("name", "suffix"), pairs(SURE, [".onnx", ".stablehlo"]))
def test_a_regressor_says_how_sure_it_is(tmp_path, name, suffix):
    model = sure(name)
    found = check_deviations(tmp_path, model, bj.variance(model, sine()[2]), suffix)
    if name in ("the default", "outputs", "a tracker", "a stream"):
        near, far = np.split(found, 2)
        assert np.all(np.mean(far, axis=0) > 1.2 * np.mean(near, axis=0))


def test_deviations_after_a_scaler_and_of_a_mixture(tmp_path):
    rows, y, far = sine()
    given = {"encode": 0, "learn_metric": False, "random_state": 0}
    estimator = BudgetedKernelRegressor(20, **given)
    model = make_pipeline(StandardScaler(), estimator).fit(rows, y)
    variances = bj.variance(model[-1], model[:-1].transform(far))
    check_deviations(tmp_path, model, variances, ".onnx")
    # ONNX has no loop over experts.
    mixture = bj.Mixture().init(num_features=2, budget=5)
    mixture, _ = bj.run(mixture, rows, y)
    variances = bj.variance(mixture, far)
    check_deviations(tmp_path, mixture, variances, ".stablehlo")


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (learned(2), "be of values, for their deviations, got .* of labels"),
        (
            bj.AROW().init(bj.RBF(1.0), num_features=2, budget=5),
            "be of values, for their deviations, got AROW of labels",
        ),
        (regressor(1), "know the variance of its targets: .*, got SGD"),
        (quantiles(), r"be of values, .*, got one with quantile=\[0.9, 0.1, 0.5\]"),
        (
            of_values(bj.SGD(loss=bj.losses.poisson)),
            "be of values, .*, got SGD of logarithms",
        ),
    ],
)
def test_what_has_no_deviation(tmp_path, model, message):
    with pytest.raises(ValueError, match=f"^export: model must {message}"):
        bj.export(tmp_path / "model.onnx", model, deviation=True)


METRIC = np.array([[0.7], [-1.2]], np.float32)
KERNELS = {
    "linear": bj.Linear(),
    "polynomial": bj.Polynomial(3, 0.2, 0.5),
    "sigmoid": bj.Sigmoid(0.1, 0.2),
    "exact": bj.RBF(0.4, exact=True),
    "laplacian": bj.Laplacian(0.3),
    "matern 1/2": bj.Matern(1.5, 0.5),
    "matern 3/2": bj.Matern(1.5),
    "matern 5/2": bj.Matern(1.5, 2.5, exact=True),
    "rational quadratic": bj.RationalQuadratic(1.5, 0.7),
    "sum and product": bj.Normalized(
        bj.Linear() * bj.RBF(0.3)
        + bj.Mapped(bj.Polynomial(2), METRIC) * bj.Normalized(bj.Linear())
    ),
    "factors": bj.Mapped(bj.Normalized(bj.RBF(0.5)), METRIC[:, 0]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_onnx_has_every_kernel(tmp_path, name):
    model = kernel_model(KERNELS[name])
    bj.export(tmp_path / "model.onnx", model)
    # The rows of vectors too, where distances are 0.
    gram = KERNELS[name].gram(X.astype(np.float64), X[::4].astype(np.float64))
    expected = np.asarray(gram) @ np.asarray(model.coefficients)
    expected = expected + np.asarray(model.bias)
    actual = scores(tmp_path / "model.onnx", X)
    size = np.max(np.abs(expected))
    np.testing.assert_allclose(actual, expected, atol=1e-5 * size, rtol=0)


def scores(path, rows):
    """The scores of a file of either kind."""
    return results(path, rows)["scores"]


@pytest.mark.parametrize("suffix", [".onnx", ".stablehlo"])
def test_distances_keep_their_digits_far_from_0(tmp_path, suffix):
    """At a mean of 1000 the kernel as it is expanded is off by 0.3."""
    vectors = np.round(8 * X) / 8
    model = kernel_model(bj.RBF(0.4))._replace(vectors=vectors[::4])
    bj.export(path := tmp_path / f"near{suffix}", model)
    near = scores(path, vectors)
    bj.export(path, model._replace(vectors=vectors[::4] + 1024))
    np.testing.assert_allclose(scores(path, vectors + 1024), near, atol=1e-5)
    np.testing.assert_allclose(near, bj.decision_function(model, vectors), atol=1e-5)


@pytest.mark.parametrize("suffix", [".onnx", ".stablehlo"])
def test_a_compact_model_and_an_empty_one(tmp_path, suffix):
    model = kernel_model(bj.Mapped(bj.RBF(0.4), METRIC))
    bj.export(path := tmp_path / f"model{suffix}", bj.compact(model))
    expected = bj.decision_function(model, X)
    np.testing.assert_allclose(scores(path, X), expected, atol=1e-5)
    empty = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=5)
    for model in (empty, bj.prune(empty, 2), bj.compact(empty)):
        bj.export(path, model)
        assert not np.any(scores(path, X))


def test_classes_share_their_vectors():
    (part,) = predictor(shared()).parts
    assert part.coefficients.shape == (len(X[::4]), 4)
    assert len(predictor(estimator()).parts) == 4


class Own(bj.Kernel):
    """A kernel of the user's own."""

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return jnp.tanh(X @ Z.T)

    def diag(self, X, squares=None):
        return jnp.ones(X.shape[0])


class Summed(Own):
    """A kernel by an operation that ONNX lacks."""

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return jnp.cumsum(X, axis=1) @ jnp.cumsum(Z, axis=1).T


@pytest.mark.parametrize("suffix", [".onnx", ".stablehlo"])
@pytest.mark.parametrize("kernel", [Own(), bj.Normalized(bj.RBF(1.0) + Own())])
def test_a_kernel_of_ones_own(tmp_path, kernel, suffix):
    model = kernel_model(kernel)
    bj.export(path := tmp_path / f"model{suffix}", model)
    expected = bj.decision_function(model, X)
    np.testing.assert_allclose(scores(path, X), expected, atol=1e-5)


class Looped(Own):
    """A kernel of one row after another."""

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return jax.lax.map(lambda x: Z @ x, X)


def test_what_onnx_lacks_is_stablehlo(tmp_path):
    for kernel, lacks in (
        (Summed(), "cumsum"),
        (bj.Normalized(bj.RBF(1.0) + Summed()), "cumsum"),
        (Looped(), "scan"),
    ):
        with pytest.raises(
            ValueError,
            match=rf"^export: kernel must be made of .*got {lacks}; .*stablehlo",
        ):
            bj.export(tmp_path / "model.onnx", kernel_model(kernel))
    bj.export(tmp_path / "model.stablehlo", kernel_model(Summed()))
    assert [path.name for path in tmp_path.iterdir()] == ["model.stablehlo"]


UNFITTED = make_pipeline(StandardScaler(), SBPClassifier())
FAR = SCALING._replace(mean=np.full(X.shape[1], 1e100))
ANY_LABELS = bj.TableModel(linear_model(0), classes=np.array(["a", 1], object))
REFUSED = (
    ("pt", 0, r"path must end in \.onnx or \.stablehlo, got .*model\.pt'"),
    ("onnx", SBPClassifier(), "model must be a model or a fitted .* got SBPClassifier"),
    ("onnx", bj.Pegasos(), "model must be a model or a fitted .* got Pegasos, which"),
    (
        *("onnx", make_pipeline(PCA(), SBPClassifier())),
        "model must have nothing but StandardScaler .* got PCA",
    ),
    ("onnx", UNFITTED, "model must be fitted, got a new pipeline"),
    ("onnx", {}, "model must be the state of an online .* got"),
    ("onnx", ANY_LABELS, "labels must be numbers or text, got 'a', 1"),
    (
        *("stablehlo", bj.TableModel(linear_model(0), FAR)),
        "model must have a scaling in the range of float32, got means up to 1e",
    ),
)


@pytest.mark.parametrize(("suffix", "model", "message"), REFUSED)
def test_what_cannot_be_exported(tmp_path, suffix, model, message):
    with pytest.raises(ValueError, match=f"^export: {message}"):
        bj.export(tmp_path / f"model.{suffix}", model)
    assert not list(tmp_path.iterdir())


def test_a_missing_extra_is_named(tmp_path, monkeypatch):
    for module, suffix in (("onnx", "onnx"), ("flatbuffers", "stablehlo")):
        monkeypatch.setitem(sys.modules, module, None)
        needs = rf"^export needs {module}: pip install {module}, or .* \[export\]$"
        with pytest.raises(ImportError, match=needs):
            bj.export(tmp_path / f"model.{suffix}", linear_model(0))


def test_onnx_has_the_names_of_columns(tmp_path):
    path = tmp_path / "model.onnx"
    bj.export(path, MODELS["labels"]())
    about = onnxruntime.InferenceSession(path).get_modelmeta()
    assert json.loads(about.custom_metadata_map["feature_names"]) == list(COLUMNS)
    assert about.producer_name == "budgetjax"


@registry.each
def test_jax_exports_functions_of_states(row):
    """A program that takes a state and returns one, as bytes and back."""
    state = jax.eval_shape(row.init)
    exported = jax.export.export(jax.jit(lambda state: state))(state)
    if row.name in ("sgd-huber-regression", "nystrom-momentum-multiclass"):
        # A schedule, and an optimiser of one's own, are functions without a name.
        with pytest.raises(ValueError, match="must be of budgetjax"):
            exported.serialize()
        return
    program = jax.export.deserialize(exported.serialize())
    assert program.in_tree == jax.tree.structure(((state,), {}))


@pytest.mark.parametrize("function", [bj.predict, bj.decision_function])
def test_jax_exports_predictions_of_any_number_of_rows(function, as_installed):
    model = learned()
    (rows,) = jax.export.symbolic_shape("rows")
    many = jax.ShapeDtypeStruct((rows, X.shape[1]), jnp.float32)
    program = jax.export.deserialize(
        jax.export.export(jax.jit(function))(model, many).serialize()
    )
    for batch in (X[:1], X):
        np.testing.assert_allclose(
            program.call(model, batch), function(model, batch), rtol=1e-4, atol=1e-5
        )


def test_what_is_exported_is_scaled_shifted_and_ranked():
    """Of quantiles in an order of the user's own, after a scaler, far from 0."""
    random = np.random.default_rng(0)
    X = 5 + 100 * random.normal(size=(60, 2))
    y = 3e4 + 1e3 * (np.sin(X[:, 0] / 50) + 0.1 * random.normal(size=60))
    given = {"quantile": [0.9, 0.1, 0.5], "refit": False, "random_state": 0}
    estimator = BudgetedKernelRegressor(10, gamma=0.5, **given)
    fitted = make_pipeline(StandardScaler(), estimator).fit(X, y)
    rows = X.astype(np.float32)
    found = outputs(predictor(fitted), jnp.asarray(rows))["variable"]
    np.testing.assert_allclose(found, fitted.predict(rows), rtol=1e-5)


def test_scalers_before_a_scaling_become_one():
    model = pipeline()
    found = outputs(predictor(model), jnp.asarray(RAW))["scores"]
    np.testing.assert_allclose(found, model.decision_function(RAW), 1e-4, 1e-4)


def test_what_is_exported_has_the_link_of_its_model():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 2)).astype(np.float32)
    y = random.poisson(np.exp(rows[:, 0]))
    given = {"loss": "poisson", "gamma": 0.5, "encode": False, "penalty": 1.0}
    given |= {"learn_metric": False, "maintenance": "remove_oldest"}
    fitted = BudgetedKernelRegressor(10, random_state=0, **given).fit(rows, y)
    found = outputs(predictor(fitted), jnp.asarray(rows))["variable"]
    assert np.all(found > 0)
    np.testing.assert_allclose(found, fitted.predict(rows), rtol=1e-4)
