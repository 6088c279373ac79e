"""Rows divided among devices and processes: the results of one device."""

import os
import re
import socket
import subprocess
import sys

import jax
import numpy as np
import processes
import pytest
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from marks import first_quick, slow

import budgetjax as bj
from budgetjax import _sharding, scoring
from budgetjax.refitting import adam, newton
from budgetjax.tables.scaling import Scaling

N = 256
X, Y = bj.datasets.checkerboard(N, seed=0)
CLASSES = (X[:, 0] > 0).astype(np.int32) + 2 * (X[:, 1] > 0)
VALUES = np.sin(X[:, 0]) * X[:, 1] + 100


def learned(y=Y, **more):
    """A model of 20 support vectors."""
    learner, given = bj.Perceptron(), {"maintenance": bj.RemoveOldest()} | more
    if more.get("num_classes", 2) is None:
        learner, given = bj.SGD(), more
    state = learner.init(bj.RBF(1.0), num_features=2, budget=20, **given)
    return bj.run(state, X, y)[0]


def mesh(axis_type=AxisType.Auto, columns=1):
    shape = (2 // columns, columns)
    return jax.make_mesh(shape, ("examples", "more"), axis_types=(axis_type,) * 2)


def divided(*arrays, axis_type=AxisType.Auto):
    """The arrays, a half of the rows on each of two devices."""
    split = NamedSharding(mesh(axis_type), PartitionSpec("examples"))
    return tuple(jax.device_put(array, split) for array in arrays)


def close(found, expected, most=1e-4):
    scores = [np.asarray(bj.decision_function(model, X)) for model in (found, expected)]
    np.testing.assert_allclose(*scores, rtol=most, atol=most)


# Models are learned by the test, not when a process collects it. In single precision,
# sums of halves would differ by what a processor's order of additions makes of it, and
# Adam, which divides by the size of slopes, magnifies that.
REFITS = {
    "labels": (Y, {}, {}),
    "classes": (CLASSES, {"num_classes": 4}, {"loss": "logistic"}),
    "values": (VALUES, {"num_classes": None}, {"loss": "huber"}),
    "penalties": (Y, {}, {"penalty": [0.1, 10.0], "calibrate": True}),
    # One batch per pass, so the order of rows does not matter.
    "moved": (Y, {}, {"move_vectors": True, "epochs": 3}),
}


@pytest.mark.parametrize("name", first_quick(REFITS))
def test_refit_of_divided_rows(name):
    y, given, more = REFITS[name]
    part = slice(128 if name == "moved" else N)
    with jax.enable_x64(True):
        rows = X[part].astype(np.float64)
        if name == "values":
            model = learned(y - 100, dtype=np.float64, **given)
            model = bj.TableModel(model, intercept=100.0)
        else:
            model = learned(y, dtype=np.float64, **given)
        expected = bj.refit(model, rows, y[part], **more)
        close(bj.refit(model, *divided(rows, y[part]), **more), expected, 1e-9)
        # Targets may lie on the host.
        if name == "values":
            close(bj.refit(model, divided(rows)[0], y, **more), expected, 1e-9)


@pytest.mark.parametrize("form", [True, *slow(3)])
def test_metric_of_divided_rows(form, monkeypatch):
    # Each batch has all rows, as it has on several devices, so their order and number
    # do not matter.
    def find_examples(block):
        return np.arange(len(block.weights) // block.shards.local_number)

    monkeypatch.setattr(adam, "find_examples", find_examples)
    X = np.random.default_rng(0).normal(size=(N, 10))
    y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1)
    with jax.enable_x64(True):
        state = bj.Perceptron().init(
            bj.RBF(0.1),
            num_features=10,
            budget=50,
            maintenance=bj.RemoveOldest(),
            dtype=np.float64,
        )
        state, _ = bj.run(state, X, y)
        scores = [
            bj.decision_function(bj.refit(state, *rows, learn_metric=form, epochs=3), X)
            for rows in ((X, y), divided(X, y))
        ]
    np.testing.assert_allclose(*scores, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("axis_type", [AxisType.Auto, *slow(AxisType.Explicit)])
@pytest.mark.parametrize("in_context", [False, *slow(True)])
def test_meshes_of_the_caller(axis_type, in_context):
    """Whatever the axes, inside `jax.set_mesh` or not."""
    state, rows = learned(), divided(X, Y, axis_type=axis_type)
    expected = bj.refit(state, X, Y)

    def results():
        scores = bj.decision_function(expected, rows[0])
        return bj.refit(state, *rows), scores, bj.predict(expected, rows[0])

    if in_context:
        with jax.set_mesh(mesh(axis_type)):
            found, scores, predicted = results()
    else:
        found, scores, predicted = results()
    close(found, expected)
    for array in (scores, predicted):
        assert array.sharding.spec == PartitionSpec("examples")
    close_to = np.asarray(bj.decision_function(expected, X))
    np.testing.assert_allclose(scores, close_to, rtol=1e-5, atol=1e-5)


def test_traced_rows_raise():
    """Inside `jax.set_mesh` too."""
    with jax.set_mesh(mesh()), pytest.raises(ValueError, match="refit: arguments must"):
        jax.jit(lambda X: bj.refit(learned(), X, Y))(X)


def test_batches_of_divided_rows():
    """Batches of each process are read again, or once from a generator."""
    state = learned(VALUES, num_classes=None)
    batches = [divided(X[i : i + 64], VALUES[i : i + 64]) for i in range(0, N, 64)]
    alone = [(X[i : i + 64], VALUES[i : i + 64]) for i in range(0, N, 64)]
    for read in (list, iter):
        found, expected = (
            bj.refit(state, read(each), loss="squared") for each in (batches, alone)
        )
        close(found, expected)


def test_one_class_of_divided_rows():
    state = learned(np.ones(N), num_classes=None)
    found, expected = bj.one_class(state, divided(X)[0]), bj.one_class(state, X)
    close(found, expected)
    np.testing.assert_allclose(found.intercept, expected.intercept, rtol=1e-4)


def test_labelled_models_score_divided_rows():
    """On the host, as for other rows."""
    labels = np.array(["a", "b"])
    model = bj.TableModel(learned(), Scaling.translation(np.ones(2)), labels)
    rows = divided(X)[0]
    np.testing.assert_array_equal(bj.predict(model, rows), bj.predict(model, X))
    # A larger penalty lets coefficients grow to 900, whose products round to 1e-4.
    close(
        bj.refit(model, rows, labels[(Y + 1) // 2], penalty=0.1),
        bj.refit(model, X, labels[(Y + 1) // 2], penalty=0.1),
    )


def test_columns_over_devices():
    """Rows that are not divided are those of one device."""
    whole = NamedSharding(mesh(columns=2), PartitionSpec(None, "more"))
    state = learned()
    close(bj.refit(state, jax.device_put(X, whole), Y), bj.refit(state, X, Y), 1e-5)


def test_uneven_rows():
    """Where rows are missing, others are repeated with weight 0."""
    rows, labels, weight = bj.shard_rows(X[:101], Y[:101], np.full(101, 2))
    assert rows.shape == (102, 2)
    assert np.asarray(weight).tolist() == [2] * 101 + [0]
    state = learned()
    found = bj.refit(state, rows, labels, weight=weight)
    close(found, bj.refit(state, X[:101], Y[:101], weight=np.full(101, 2)))
    names = np.array(["no", "yes"])[(Y + 1) // 2]
    assert bj.shard_rows(X, names)[1].tolist() == names.tolist()


def texts(monkeypatch, model, *arguments, **more):
    """The compiled programs of a refit, by name."""
    found = {}

    def kept(module, name):
        program = getattr(module, name)

        def call(*arguments):
            compiled = program.lower(*arguments).compile().as_text()
            found.setdefault(name, compiled)
            return program(*arguments)

        monkeypatch.setattr(module, name, call)

    for name in ("features", "_derivatives", "_add_outer", "_moments"):
        kept(newton, name)
    kept(_sharding, "_sum_parts")
    kept(adam, "_run_steps")
    kept(scoring, "kernel_scores")
    bj.decision_function(bj.refit(model, *arguments, **more), arguments[0])
    return found


def test_only_sums_are_sent(monkeypatch):
    """One reduction per pass, one per step of Adam, and no rows."""
    rows = divided(X[:128], Y[:128])
    found = texts(monkeypatch, learned(), *rows, move_vectors=True, epochs=1)
    sent = {
        name: re.findall(r" (all-\w+|collective-\w+|reduce-scatter)(?:-start)?\(", text)
        for name, text in found.items()
    }
    # The flag that rows are finite is that of every device.
    assert sent.pop("kernel_scores") == ["all-reduce"]
    assert set(sent.pop("_sum_parts")) == set(sent.pop("_run_steps")) == {"all-reduce"}
    assert sent == {
        name: [] for name in ("features", "_derivatives", "_add_outer", "_moments")
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: (X.at[200, 1].set(np.nan), y), "row 200, column 1"),
        (lambda X, y: (X, y.at[130].set(3)), r"3\.?0? in row 130"),
        (lambda X, y: (X, y[:100]), "one label per row"),
        (lambda X, y: (X[:, :1], y), r"shape \(n, 2\)"),
    ],
    ids=["nan", "label", "too few labels", "too few columns"],
)
def test_divided_rows_raise(change, message):
    with pytest.raises(ValueError, match=f"refit: .*{message}"):
        bj.refit(learned(), *change(*divided(X, Y)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((X[:0], Y[:0]), "X must have shape"),
        ((X, Y[:3]), "y must have 256 rows"),
        ((X, Y, Y[:3]), "weight must have 256 rows"),
    ],
)
def test_shard_rows_raises(given, message):
    with pytest.raises(ValueError, match=f"shard_rows: {message}"):
        bj.shard_rows(*given)


@pytest.mark.slow
def test_two_processes_share_rows(tmp_path, quick_process):
    """Each has the results of one process with all rows."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start(rank, count):
        path = tmp_path / f"{rank}-{count}.npz"
        command = [sys.executable, processes.__file__, "rows", rank, count, port, path]
        return subprocess.Popen(map(str, command), env=os.environ | quick_process)

    children = [start(0, 1), start(0, 2), start(1, 2)]
    try:
        assert [child.wait(timeout=300) for child in children] == [0, 0, 0]
    finally:
        for child in children:
            child.kill()
    alone, *shared = (
        np.load(tmp_path / name) for name in ("0-1.npz", "0-2.npz", "1-2.npz")
    )
    for name in alone:
        np.testing.assert_array_equal(shared[0][name], shared[1][name])
        found, expected = shared[0][name], alone[name]
        if name == "arr_4":  # a metric, by other batches
            assert np.mean(np.sign(found) == np.sign(expected)) > 0.8
            continue
        most = 1e-4 * np.max(np.abs(expected))
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=most)
