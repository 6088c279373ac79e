"""A model of one's own, here the last layer of a network, works where others do."""

import sys
import zipfile
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from marks import slow
from small_models import KERNEL, D, Network, X, learned, network, y

import budgetjax as bj
from budgetjax import _record
from budgetjax.tables.scaling import Scaling

PACKAGE = str(Path(bj.__file__).parent)
NAMES = np.array(["ant", "bee", "cow"])


def by_hand(model, X):
    hidden, shift, outer = (
        np.asarray(part, np.float64)
        for part in (model.hidden, model.shift, model.outer)
    )
    scores = np.tanh(X @ hidden + shift) @ outer
    return scores if outer.shape[1] > 1 else scores[:, 0]


@pytest.mark.parametrize("columns", [1, 3])
def test_scores_labels_and_probabilities(columns):
    model = network(columns)
    scores = by_hand(model, X)
    many = np.tile(X, (60, 1))  # more than a block
    np.testing.assert_allclose(bj.decision_function(model, X), scores, atol=1e-5)
    np.testing.assert_allclose(model.decision_function(many)[-len(X) :], scores, 1e-4)
    labels = np.where(scores > 0, 1, -1) if columns == 1 else np.argmax(scores, axis=1)
    np.testing.assert_array_equal(bj.predict(model, X), labels)
    powers = np.exp(np.stack([0 * scores, scores], 1) if columns == 1 else scores)
    shares = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(bj.probabilities(model, X), shares, atol=1e-5)
    calibrated = bj.calibrate(model, X, labels)
    assert type(calibrated) is bj.TableModel
    assert calibrated.calibration > 1
    np.testing.assert_array_equal(calibrated.predict(X), labels)


def test_values_and_their_logarithms():
    model = network(1, link=bj.losses.IDENTITY)
    assert model.is_regressor
    np.testing.assert_array_equal(model.predict(X), model.decision_function(X))
    logarithms = model._replace(link=bj.losses.EXP)
    expected = np.exp(by_hand(model, X))
    np.testing.assert_allclose(bj.predict(logarithms, X), expected, rtol=1e-4)


def test_what_is_refused(as_installed):
    model, bad = network(), X.copy()
    bad[7, 1] = np.nan
    for rows, says in (
        (bad, "predict: X must be finite, got nan in row 7, column 1"),
        (X[:, :1], "predict: X must have shape .n, 2., 2 being"),
    ):
        with pytest.raises(ValueError, match=f"^{says}"):
            bj.predict(model, rows)
    with pytest.raises(ValueError, match=r"support vectors, got Network$"):
        bj.support(model)
    with pytest.raises(ValueError, match="be the state of an online algorithm, or a"):
        bj.predict(3, X)

    class Nothing(bj.Model):
        pass

    with pytest.raises(NotImplementedError, match="Nothing has to define link"):
        bj.predict(Nothing(), X)


def test_it_is_wrapped():
    scaling = Scaling.empty(D).updated(3 * X + 5)
    model = bj.TableModel(network(), scaling, NAMES, ("first", "second"))
    rows = scaling.apply(3 * X + 5)
    assert set(model.predict(3 * X + 5)) <= set(NAMES)
    np.testing.assert_array_equal(
        model.decision_function(3 * X + 5), model.model.decision_function(rows)
    )
    one_per_class = bj.TableModel(tuple(network(1) for _ in NAMES), classes=NAMES)
    assert one_per_class.decision_function(X).shape == (len(X), 3)


def test_it_predicts_the_same_in_programs():
    for model in (network(), bj.TableModel(network(), classes=np.array([3, 5, 9]))):
        for function in (bj.predict, bj.decision_function, bj.probabilities):
            expected = np.asarray(function(model, X))
            rows = jnp.asarray(X)

            def closed(rows, function=function, model=model):
                return function(model, rows)

            (many,) = jax.export.symbolic_shape("rows")
            shape = jax.ShapeDtypeStruct((many, D), jnp.float32)
            for found in (
                jax.jit(closed)(rows),
                jax.jit(function)(model, rows),
                jax.vmap(lambda row, closed=closed: closed(row[None])[0])(rows),
                jax.export.export(jax.jit(closed))(shape).call(rows),
            ):
                np.testing.assert_allclose(found, expected, atol=1e-5)


def test_it_scores_rows_on_all_devices():
    number = len(jax.devices())
    rows = np.tile(X, (number, 1))
    for kind in (jax.sharding.AxisType.Auto, jax.sharding.AxisType.Explicit):
        mesh = jax.make_mesh((number,), ("rows",), axis_types=(kind,))
        split = NamedSharding(mesh, PartitionSpec("rows"))
        model = network()
        found = bj.decision_function(model, jax.device_put(rows, split))
        assert number == 1 or found.sharding.num_devices == number
        np.testing.assert_allclose(found, by_hand(model, rows), atol=1e-5)


def test_files_hold_it(tmp_path, monkeypatch):
    monkeypatch.setattr(_record, "records", dict(_record.records))
    path, model = tmp_path / "model", bj.TableModel(network(), classes=NAMES)
    bj.save(path, model)
    assert bj.equal(bj.load(path, like=model).model, model.model)
    with pytest.raises(ValueError, match=r"apply budgetjax\.register before"):
        bj.load(path)
    bj.register(Network)
    bj.save(path, model)
    again = bj.load(path)
    assert type(again.model) is Network
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


@pytest.mark.parametrize("suffix", [".stablehlo", ".onnx"])
def test_it_is_exported(suffix, tmp_path):
    scaling = Scaling.empty(D).updated(3 * X + 5)
    given = {"classes": NAMES, "intercept": np.array([0.0, 0.1, -0.1]), "unit": 2.0}
    model = bj.TableModel(network(), scaling, **given)
    rows, path = (3 * X + 5).astype(np.float32), tmp_path / f"model{suffix}"
    bj.export(path, model)
    if suffix == ".onnx":
        session = onnxruntime.InferenceSession(path)
        outputs = [one.name for one in session.get_outputs()]
        found = dict(zip(outputs, session.run(None, {"X": rows}), strict=True))
    else:
        with zipfile.ZipFile(path) as file:
            program = jax.export.deserialize(bytearray(file.read("program")))
        found = program.call(rows)
        found["label"] = NAMES[np.asarray(found["label"])]
    np.testing.assert_allclose(
        found["scores"], model.decision_function(rows), 1e-4, 1e-4
    )
    np.testing.assert_array_equal(found["label"], model.predict(rows))
    np.testing.assert_allclose(
        found["probabilities"], bj.probabilities(model, rows), atol=1e-5
    )


def calls_of(function):
    """The functions of the package that a call enters."""
    entered = []

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            entered.append(frame.f_code.co_qualname)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return entered


@pytest.mark.parametrize("of_jax", [False, *slow(True)])
@pytest.mark.parametrize("name", ["kernel model", *slow("state")])
def test_few_calls_lead_to_the_program(name, of_jax, as_installed):
    """Rows are checked once, on the shortest way from the door to the program."""
    kernel_model = bj.KernelModel(KERNEL, jnp.asarray(X), jnp.asarray(y, "f4"), 0.0)
    model = {"kernel model": kernel_model, "state": learned()}[name]
    rows = jnp.asarray(X) if of_jax else X.astype(np.float32)
    bj.predict(model, rows)
    entered = calls_of(lambda: bj.predict(model, rows))
    assert len(entered) <= 9, entered
