"""One way to score, predict and read support vectors, whoever made the model."""

import functools
import inspect
import json
import zipfile

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
import scipy.sparse
from marks import first_quick
from small_models import (
    CLASSES,
    KERNEL,
    PARTS,
    B,
    D,
    X,
    learned,
    regressor,
    streamed,
    y,
)

import budgetjax as bj
from budgetjax.tables.scaling import Scaling


@functools.cache
def models():
    """Models of every kind, and the scores of X by hand."""
    return {name: (model, expected) for name, model, expected in made()}


def made():
    for classes in (2, 3):
        state = learned(classes)
        vectors, coefficients, mask = map(np.asarray, bj.support(state))
        gram = np.asarray(KERNEL.gram(X, vectors))
        columns = coefficients[mask, 0] if classes == 2 else coefficients[mask]
        expected = gram[:, mask] @ columns
        kernel_model = bj.KernelModel(
            KERNEL,
            jnp.asarray(vectors[mask]),
            jnp.asarray(columns),
            jnp.asarray(np.full(columns.shape[1:], 0.25, np.float32)),
        )
        yield f"state of {classes} classes", state, expected
        yield f"kernel model of {classes} classes", kernel_model, expected + 0.25
    weights = np.array([1.0, -0.5], np.float32)
    linear = bj.LinearModel(jnp.asarray(weights), jnp.float32(0.5))
    yield "linear model", linear, X @ weights + 0.5
    solution = bj.solve(bj.DCD(penalty=0.1), X, y)
    expected = X @ np.asarray(solution.model.weights) + float(solution.model.bias)
    yield "solution", solution, expected


KINDS_OF_MODELS = (
    "state of 2 classes",
    "kernel model of 2 classes",
    "state of 3 classes",
    "kernel model of 3 classes",
    "linear model",
    "solution",
)


def test_no_kind_of_models_is_left_out():
    assert tuple(models()) == KINDS_OF_MODELS


@pytest.mark.parametrize("name", KINDS_OF_MODELS)
def test_scores_and_labels_of_models_of_every_kind(name):
    model, expected = models()[name]
    scores = bj.decision_function(model, X)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    labels = bj.predict(model, X)
    assert labels.dtype == jnp.int32
    if expected.ndim == 1:
        np.testing.assert_array_equal(labels, np.where(scores > 0, 1, -1))
    else:
        np.testing.assert_array_equal(labels, np.argmax(scores, axis=1))
    if hasattr(model, "predict"):
        np.testing.assert_array_equal(model.predict(X), labels)
        np.testing.assert_array_equal(model.decision_function(X), scores)


@pytest.mark.parametrize("name", KINDS_OF_MODELS)
@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_rows_that_are_not_finite_are_refused(name, value, as_installed):
    bad = X.copy()
    bad[7, 1] = value
    given = [bad, scipy.sparse.csr_matrix(bad)]
    for rows in given if name in ("linear model", "solution") else given[:1]:
        for call in (bj.predict, bj.decision_function):
            says = f"^{call.__name__}: X must be finite, got {value} in row 7, column 1"
            with pytest.raises(ValueError, match=says):
                call(models()[name][0], rows)


def test_rows_whose_squares_overflow_are_finite():
    far = X.copy()
    far[7, 1] = 1e30
    scores = bj.decision_function(learned(), far)
    assert scores[7] == 0
    assert np.all(np.isfinite(scores))


def test_a_bad_row_in_a_later_block_is_found(as_installed):
    many = np.tile(X, (70, 1))
    many[1900, 0] = np.nan
    with pytest.raises(ValueError, match="got nan in row 1900, column 0"):
        bj.predict(learned(), many)


def test_a_regressor_predicts_values():
    state = regressor()
    scores = bj.decision_function(state, X)
    assert scores[0] != 0
    np.testing.assert_array_equal(bj.predict(state, X), scores)


def test_states_of_all_learners_share_a_program():
    from budgetjax.scoring import kernel_scores

    bj.decision_function(learned(), X)
    known = kernel_scores._cache_size()
    bj.predict(regressor(), X)
    assert kernel_scores._cache_size() == known


@pytest.mark.parametrize("function", [bj.predict, bj.decision_function])
@pytest.mark.parametrize("name", KINDS_OF_MODELS)
def test_rows_are_scored_and_labelled_by_one_program(name, function, caplog):
    """Labels are made in it; what NumPy does for a linear model needs no program."""
    model = models()[name][0]
    # A number of rows that no other program has.
    unique = 31 + 2 * KINDS_OF_MODELS.index(name) + (function is bj.predict)
    rows = np.resize(X, (unique, D))
    programs = []
    for given in (rows.astype(float), jnp.asarray(rows)):
        caplog.clear()
        with jax.log_compiles():
            function(model, given)
        told = [record.getMessage() for record in caplog.records]
        programs.append(sum(text.startswith("Compiling jit(") for text in told))
    assert programs == ([0, 1] if name in ("linear model", "solution") else [1, 0])


def test_exponentials_of_scores_are_in_the_program_too():
    shape = {"num_features": D, "budget": B, "num_classes": None}
    state = bj.SGD(loss=poisson, learning_rate=0.1).init(KERNEL, **shape)
    state = bj.step(state, X[0], 2.5)
    values, scores = bj.predict(state, X), bj.decision_function(state, X)
    assert scores[0] != 0
    np.testing.assert_allclose(values, np.exp(scores), rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 3])
def test_the_largest_coefficients_of_a_state(classes):
    state = learned(classes)
    vectors, coefficients, mask = map(np.asarray, bj.support(state))
    lengths = np.where(mask, np.linalg.norm(coefficients, axis=1), -1)
    kept = np.sort(np.argsort(-lengths, kind="stable")[:2])
    small = bj.prune(state, 2)
    np.testing.assert_array_equal(small.vectors, vectors[kept])
    np.testing.assert_array_equal(bj.support(small).coefficients, coefficients[kept])
    whole = bj.prune(state, B)
    np.testing.assert_allclose(
        bj.decision_function(whole, X), bj.decision_function(state, X), atol=1e-5
    )


def test_the_best_bias_of_the_largest_coefficients():
    """That of the least weight of errors among all thresholds."""
    model = models()["kernel model of 2 classes"][0]
    # All have been of one size.
    sizes = np.arange(1, B + 1, dtype=np.float32)
    model = model._replace(coefficients=model.coefficients * sizes)
    weight = np.where(y > 0, 9, 1)
    plain, found = bj.prune(model, 2), bj.prune(model, 2, X, y, weight=weight)
    np.testing.assert_array_equal(plain.vectors, model.vectors[-2:])
    scores = np.asarray(plain.decision_function(X))
    least = min(
        weight @ ((scores > threshold) != (y > 0))
        for threshold in (scores.min() - 1, *scores)
    )
    assert weight @ np.not_equal(found.predict(X), y) == least


def test_the_default_gamma_is_that_of_the_variance():
    assert bj.default_gamma(X) == pytest.approx(1 / np.sum(X.var(axis=0)), rel=0.1)


def test_models_without_support_vectors(as_installed):
    waves = bj.Fourier().init(KERNEL, num_features=D, budget=4)
    for model, got in (
        (waves, "Fourier"),
        (models()["linear model"][0], "LinearModel"),
        (models()["solution"][0], "LinearModel"),
    ):
        for call in (bj.support, lambda model: bj.prune(model, 2)):
            says = f"^support: model must have support vectors, got {got}$"
            with pytest.raises(ValueError, match=says):
                call(model)


def test_a_stack_of_models_is_for_vmap(as_installed):
    state = learned()
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    with pytest.raises(
        ValueError, match=r"must be a single one, got a stack of shape .2,"
    ):
        bj.predict(stacked, X)
    each = jax.vmap(lambda state: bj.predict(state, X))(stacked)
    np.testing.assert_array_equal(each[1], bj.predict(state, X))


def test_a_model_of_a_stream_is_a_model_of_raw_rows():
    model, raw, words = streamed()
    for each in (model, model.model):
        predicted = bj.predict(each, raw)
        assert set(predicted) == {"no", "yes"}
        np.testing.assert_array_equal(predicted, each.predict(raw))
        sparse = scipy.sparse.csr_matrix(raw)
        np.testing.assert_array_equal(
            bj.decision_function(each, sparse), bj.decision_function(each, raw)
        )
        vectors, _, mask = map(np.asarray, bj.support(each))
        away = np.abs(vectors[mask][:, None] - raw[None]).max(axis=2).min(axis=1)
        assert away.max() < 1e-4
    small = bj.prune(model, 2)
    assert bj.support(small).vectors.shape == (2, D)
    assert set(small.predict(raw)) <= {"no", "yes"}
    better = bj.prune(model, 2, raw, words)
    right = [np.sum(each.predict(raw) == words) for each in (small, better)]
    assert right[0] <= right[1]
    assert right[1] >= np.sum(words == "no")


def test_a_tuple_of_models_has_one_per_class():
    states = (learned(), learned(), learned())
    model = bj.TableModel(states, classes=np.array(["a", "b", "c"]))
    scores = bj.decision_function(model, X)
    np.testing.assert_array_equal(scores[:, 2], bj.decision_function(states[2], X))
    assert set(bj.predict(model, X)) == {"a"}


def test_the_intercept_of_a_regressor():
    model = bj.TableModel(regressor(), intercept=1000.0)
    scores = np.asarray(bj.decision_function(model.model, X), np.float64) + 1000
    np.testing.assert_array_equal(bj.predict(model, X), scores)


@pytest.mark.parametrize("form", ["arrays", "batches", "generator"])
def test_a_model_of_a_stream_is_refitted_in_its_terms(form):
    model, raw, words = streamed()
    reads = []

    def read():
        reads.append(1)
        yield raw[:20], words[:20]
        yield raw[20:], words[20:]

    class Batches:
        def __iter__(self):
            return read()

    given = {"arrays": (raw, words), "batches": (Batches(),), "generator": (read(),)}
    scaled = model.scaling.apply(raw)
    data = {
        "arrays": (scaled, y),
        "batches": ([(scaled[:20], y[:20]), (scaled[20:], y[20:])],),
        "generator": (iter([(scaled[:20], y[:20]), (scaled[20:], y[20:])]),),
    }
    new = bj.refit(model, *given[form])
    expected = bj.refit(model.state, *data[form])
    jax.tree.map(np.testing.assert_array_equal, new.state, expected)
    assert type(new) is bj.StreamModel
    assert new.error == model.error
    assert np.mean(new.predict(raw) == words) >= np.mean(model.predict(raw) == words)
    # Few batches are kept for all passes.
    assert len(reads) == (form != "arrays")


def test_what_a_model_of_a_stream_cannot_be_refitted_with(as_installed):
    model, raw, words = streamed()
    strange = words.astype(object)
    strange[3] = "maybe"
    for data, says in (
        ((raw, strange), "refit: y must be one of 'no', 'yes', got 'maybe' in row 3"),
        (([(raw, strange)],), "refit: batch 0: y must be one of 'no', 'yes', got"),
        ((raw[:, :1], words), "refit: X must have shape .n, 2., 2 being"),
        (([raw],), "refit: batch 0 must be .X, y. or .X, y, weight., got ndarray"),
        ((raw,), "refit: y must be given with X"),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            bj.refit(model, *data)


@bj.losses.log_link_loss
def poisson(score, y):
    """As of a user; its gradient is `exp(f) - y`."""
    return jnp.exp(score) - y * score


RAW = X * np.array([3, 0.1], np.float32) + np.array([100, -5], np.float32)
WORDS = np.array(["ant", "bee", "cow"])
# What models of these kinds learn: targets, and arguments of `init`.
KINDS = {
    "binary": (y, {}),
    "classes": (CLASSES, {"num_classes": 3}),
    "odds": (y, {"loss": bj.losses.logistic}),
    "values": (10 + X[:, 0], {"num_classes": None}),
    "outputs": (X + [3, -3], {"num_classes": None, "num_outputs": 2}),
    "logarithms": (np.exp(X[:, 0]), {"num_classes": None, "loss": poisson}),
}
FORMS = ("state", "kernel model", "labelled", "one per class", "stream")


@functools.cache
def model_of(kind, form):
    """A model, rows and targets that it takes; None where there is no such model."""
    targets, given = KINDS[kind]
    given = dict(given)
    learner = bj.SGD(loss=given.pop("loss", None))
    state = learner.init(KERNEL, average=True, **PARTS, **given)
    state, _ = bj.run(state, X, targets)
    if form == "state":
        return state, X, targets
    if form == "kernel model":
        return bj.compact(state), X, targets
    scaling = Scaling.empty(D).updated(RAW)
    columns, classifies = state.expansion.num_columns, np.asarray(targets).dtype == int
    if form == "one per class":
        binary = learned()
        parts = (binary, bj.prune(binary, 3), bj.prune(binary, 2))
        model = bj.TableModel(parts, scaling, WORDS)
        return (model, RAW, WORDS[CLASSES]) if kind == "classes" else None
    if classifies:
        classes = WORDS[: max(2, columns)]
        model = bj.TableModel(state, scaling, classes)
        words = classes[(targets + 1) // 2 if columns == 1 else targets]
    else:
        intercept = np.arange(1.0, columns + 1) if columns > 1 else 0.5
        model, words = bj.TableModel(state, scaling, intercept=intercept), targets
    return model if form == "labelled" else bj.StreamModel(model), RAW, words


def exported(model, rows, folder, suffix):
    path = folder / f"model{suffix}"
    bj.export(path, model)
    rows = rows.astype(np.float32)
    if suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        names = [output.name for output in session.get_outputs()]
        found = dict(zip(names, session.run(None, {"X": rows}), strict=True))
        return found["label"] if "label" in found else found["variable"]
    with zipfile.ZipFile(path) as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        classes = json.loads(file.read("about.json"))["classes"]
    found = program.call(rows)
    if classes is None:
        return np.asarray(found["variable"])
    return np.array(classes)[np.asarray(found["label"])]


def reread(model, rows, targets, folder):
    bj.save(folder / "model", model)
    return bj.load(folder / "model", like=model)


ALL = FORMS
OF_STATES = ("state",)
# Every public function that takes a model and gives one, the forms of models that it
# takes, and whether predictions stay the same.
FUNCTIONS = {
    "average_iterates": (lambda m, *_: bj.average_iterates(m), OF_STATES, False),
    "calibrate": (lambda m, X, y, _: bj.calibrate(m, X, y), ALL, True),
    "compact": (lambda m, *_: bj.compact(m), ALL, True),
    "compress": (lambda m, *_: bj.compress(m, B), ALL, True),
    "compress to fewer": (lambda m, *_: bj.compress(m, 3, steps=0), ALL, False),
    "fit_stream": (
        lambda m, X, y, _: bj.fit_stream(m, [(X, y)], batch_rows=30),
        ("state", "stream"),
        False,
    ),
    "load": (reread, ALL, True),
    "one_class": (lambda m, X, *_: bj.one_class(m, X), ("state", "stream"), False),
    "prune": (lambda m, *_: bj.prune(m, B), ALL, True),
    "prune to fewer": (lambda m, *_: bj.prune(m, 3), ALL, False),
    "refit": (
        lambda m, X, y, _: bj.refit(m, X, y, loss=LOSSES[m.link]),
        ("state", "kernel model", "stream"),
        False,
    ),
    "run": (lambda m, X, y, _: bj.run(m, X, y)[0], OF_STATES, False),
    "step": (lambda m, X, y, _: bj.step(m, X[0], y[0]), OF_STATES, False),
    "with_learner": (lambda m, *_: bj.with_learner(m, m.learner), OF_STATES, True),
    "export": (lambda m, X, y, to: exported(m, X, to, ".onnx"), ALL, True),
    "stablehlo": (
        lambda m, X, y, to: exported(m, X, to, ".stablehlo"),
        ("labelled", "one per class"),
        True,
    ),
}
LOSSES = {
    bj.losses.LABELS: "squared_hinge",
    bj.losses.SOFTMAX: "logistic",
    bj.losses.IDENTITY: "squared",
    bj.losses.EXP: poisson,
}
# Those that give no model.
OTHERS = {"decision_function", "predict", "probabilities", "save", "slack_of"}
# The kernel that a state has keeps it as it is; others have tests of their own.
OTHERS |= {"with_kernel"}
OTHERS |= {"predict_interval", "solve", "support", "variance"}


def test_every_function_of_a_model_is_known():
    taking = {
        name
        for name, one in vars(bj).items()
        if inspect.isfunction(one)
        and {"model", "state"} & set(inspect.signature(one).parameters)
    }
    assert taking - OTHERS <= set(FUNCTIONS)


@pytest.mark.parametrize("function", first_quick(FUNCTIONS))
@pytest.mark.parametrize("kind", first_quick(KINDS))
def test_what_a_model_predicts_belongs_to_it(kind, function, tmp_path):
    call, forms, same = FUNCTIONS[function]
    regressor = kind in ("values", "outputs", "logarithms")
    if function == "calibrate" and kind == "logarithms":
        return
    if function == "one_class" and kind in ("classes", "outputs"):
        return
    for form in forms:
        if (given := model_of(kind, form)) is None:
            continue
        model, rows, targets = given
        expected = np.asarray(bj.predict(model, rows))
        new = call(model, rows, targets, tmp_path)
        found = (
            new if isinstance(new, np.ndarray) else np.asarray(bj.predict(new, rows))
        )
        assert found.shape == expected.shape
        assert found.dtype.kind == expected.dtype.kind or found.dtype == object
        if regressor:
            # Values, which are few where they are labels.
            assert len(np.unique(found)) > len(rows) // 2
            assert kind != "logarithms" or np.all(found > 0)
        else:
            assert set(found.tolist()) <= set(expected.tolist()) | set(targets.tolist())
        if same and regressor:
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
        elif same:
            np.testing.assert_array_equal(found, expected)
        if not isinstance(new, np.ndarray):
            known = model.class_labels
            np.testing.assert_array_equal(new.class_labels, known)
        if function == "compact" and kind == "odds":
            np.testing.assert_allclose(
                bj.probabilities(new, rows), bj.probabilities(model, rows), atol=1e-5
            )
