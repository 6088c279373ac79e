"""The command line: every command on every kind of file, and what it says of errors."""

import csv
import dataclasses
import gc
import gzip
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import types
import warnings
import zipfile
from pathlib import Path

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import onnxruntime
import optax
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from click.testing import CliRunner
from compare import same

import budgetjax as bj
from budgetjax import checks, cli, progress_bar
from budgetjax import models as scorer
from budgetjax.cli import learners, main, options, reading, solving, targets, weights
from budgetjax.cli.commands import budgetjax as group
from budgetjax.cli.plot import draw
from budgetjax.cli.sweep import _figure
from budgetjax.refitting import passes
from budgetjax.saving import model_files
from budgetjax.scaling import Scaling
from budgetjax.solvers import one_versus_rest
from budgetjax.stream import batches
from budgetjax.stream.fit import fit_stream
from budgetjax.stream.readers import formats

N, TESTED = 300, 60
# Small models that share compiled programs; and a learner that is quick to compile.
SMALL = ("--budget", "10")
REMOVES = ("--set", "maintenance=remove-smallest")
QUICK = ("--learner", "perceptron", *REMOVES)


def data(n=N, seed=0):
    """Two classes by the signs of two features, with some noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2)).round(3)
    noise = 0.05 * random.normal(size=n)
    return X, np.where(X[:, 0] * X[:, 1] + noise > 0, "yes", "no")


def usual_gamma():
    """What train takes for this data."""
    return gamma_of(data()[0])


def gamma_of(X):
    return bj.default_gamma(Scaling.empty(2).updated(X).apply(X))


def table(X, y, names=("a", "b"), **more):
    """A table of Arrow, with the features, the target `kind`, and more columns."""
    columns = {name: X[:, i] for i, name in enumerate(names)}
    return pa.table({**columns, **({} if y is None else {"kind": y}), **more})


def write_libsvm(path, X, codes):
    lines = (
        f"{code} " + " ".join(f"{i + 1}:{value}" for i, value in enumerate(x) if value)
        for x, code in zip(X, codes, strict=True)
    )
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files of the same rows in all formats: never written to by tests."""
    folder = tmp_path_factory.mktemp("cli")
    for name, n, seed in (("train", N, 0), ("test", TESTED, 1)):
        X, y = data(n, seed)
        whole = table(X, y)
        pa.csv.write_csv(whole, folder / f"{name}.csv")
        with pa.CompressedOutputStream(folder / f"{name}.csv.gz", "gzip") as file:
            pa.csv.write_csv(whole, file)
        pa.parquet.write_table(whole, folder / f"{name}.parquet")
        pa.feather.write_feather(whole, folder / f"{name}.feather")
        write_libsvm(folder / f"{name}.libsvm", X, np.where(y == "yes", 1, -1))
        write_libsvm(folder / f"{name}.three", X, np.digitize(X[:, 0], [-0.4, 0.4]))
        heights = (10 + X[:, 0] - X[:, 1]).round(4)
        plane = table(X, None, ("east", "north"), height=heights)
        pa.csv.write_csv(plane, folder / f"{name}-height.csv")
    return folder


@pytest.fixture
def at(folder, tmp_path, monkeypatch):
    """An empty folder to work in, with links to the files."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_lines(monkeypatch):
    """However slow this computer is, nothing takes so long that it is worth a line."""
    monkeypatch.setattr(options, "SECONDS", 1e9)


def run(*arguments):
    """A command in this process; nothing but an exit code may come out of it."""
    result = CliRunner().invoke(group, [str(one) for one in arguments])
    expected = result.exception is None or isinstance(result.exception, SystemExit)
    if not expected:
        raise result.exception
    return result


def good(*arguments):
    """The standard output of a command that succeeds and has no complaint."""
    result = run(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def report(text):
    """Lines `name: value` of a report."""
    return dict(re.split(r": +", line, maxsplit=1) for line in text.splitlines())


def train(file, *more):
    """A small model of a file, in `model.st`; the report."""
    named = () if "--target" in more or "." not in file else ("--target", "kind")
    named = named if Path(file).suffix not in (".libsvm", ".three") else ()
    small = () if set(more) & set(options.SOLVERS) else SMALL
    return report(good("train", file, "-m", "model.st", *small, *named, *more))


def values(path):
    return Path(path).read_text().split()


TABLES = ("train.csv", "train.csv.gz", "train.parquet", "train.feather")


def test_a_model_of_every_table_is_the_same_and_predicts_as_in_python(at):
    X, y = data(TESTED, seed=1)
    models = []
    for file in TABLES:
        said = train(file)
        assert said["classes"] == "no (158), yes (142)"
        models.append(bj.load("model.st"))
        # Of another format.
        test = TABLES[len(models) - 2].replace("train", "test")
        output = good("predict", "model.st", test, "-o", "out.txt")
        predicted = models[-1].predict(X)
        assert values("out.txt") == predicted.tolist()
        right = int(np.sum(predicted == y))
        assert output == (
            f"accuracy: {100 * right / TESTED:.2f}% ({right} of {TESTED} rows)\n"
        )
        assert right > 45
    for model in models[1:]:
        np.testing.assert_array_equal(model.classes, models[0].classes)
        jax.tree.map(np.testing.assert_array_equal, model.state, models[0].state)


@pytest.mark.telling
def test_the_report_of_train(at):
    output = good(
        *("train", "train.csv", "--target", "kind", "--model", "model.st"),
        *("--test", "test.csv", *SMALL),
    )
    fitted = bj.load("model.st")
    X, y = data(TESTED, seed=1)
    error = 100 * np.mean(fitted.predict(X) != y)
    expected = textwrap.dedent(f"""\
        data:               train.csv, 2 features
        classes:            no (158), yes (142)
        scaling:            every feature to mean 0 and deviation 1
        kernel:             Gaussian, gamma {usual_gamma():.4g}
        learner:            pegasos, at most 10 support vectors
        read:               300 rows
        progressive error:  {100 * fitted.error:.2f}%, of rows before they were learned
        model:              model.st
        test error:         {error:.2f}%, 60 rows of test.csv
        time:               0.0 seconds
        """)
    assert re.sub(r"[\d.]+ seconds", "0.0 seconds", output) == expected
    assert model_files.read("model.st")[1] == {
        "file": "train.csv",
        "target": "kind",
        "solver": None,
        "refit": True,
    }


def test_quiet_says_nothing(at):
    train_it = ("train", "train.csv", "--target", "kind", "-m", "model.st", *SMALL)
    assert good(*train_it, "--quiet") == ""
    assert good("predict", "model.st", "test.csv", "-o", "out.txt", "--quiet") == ""
    assert len(values("out.txt")) == TESTED


def test_libsvm_as_its_own_programs_do(at):
    said = train("train.libsvm", "--test", "test.libsvm")
    assert said["classes"] == "-1 (158), 1 (142)"
    output = good("predict", "model.st", "test.libsvm", "--output", "out.txt")
    lines = Path("out.txt").read_text().splitlines()
    assert set(lines) == {"-1", "1"}
    expected = np.where(data(TESTED, seed=1)[1] == "yes", "1", "-1")
    right = int(np.sum(expected == lines))
    assert output.endswith(f"({right} of {TESTED} rows)\n")
    assert right > 45
    # Rows without a known label: predictions all the same, and no accuracy.
    write_libsvm(at / "new.libsvm", data(TESTED, seed=1)[0], np.zeros(TESTED, int))
    output = good("predict", "model.st", "new.libsvm", "--output", "new.txt")
    assert output == "no accuracy: new.libsvm: y must be one of -1, 1, got 0 in row 0\n"
    assert values("new.txt") == lines


def test_predictions_on_standard_output_leave_the_accuracy_to_the_other(at):
    train("train.csv")
    good("predict", "model.st", "test.csv", "-o", "out.txt")
    result = run("predict", "model.st", "test.csv")
    assert result.stdout == Path("out.txt").read_text()
    assert re.fullmatch(r"accuracy: [\d.]+% \(\d+ of 60 rows\)\n", result.stderr)


def test_scores_of_two_classes(at, monkeypatch):
    train("train.csv")
    scored, scores_of = [], scorer.scores_of

    def counted(where, model, *given):
        if isinstance(model, scorer.Labelled):
            scored.append(where)
        return scores_of(where, model, *given)

    monkeypatch.setattr(scorer, "scores_of", counted)
    good("predict", "model.st", "test.csv", "--scores", "-o", "out.csv")
    assert scored == ["decision_function"]
    with open("out.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["prediction", "score"]
    model, X = bj.load("model.st"), data(TESTED, seed=1)[0]
    assert [row[0] for row in rows] == model.predict(X).tolist()
    scores = [np.float32(row[1]) for row in rows]
    np.testing.assert_array_equal(scores, model.decision_function(X))
    good("predict", "model.st", "test.csv", "--probabilities", "-o", "out.csv")
    with open("out.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["prediction", "probability_no", "probability_yes"]
    assert [row[0] for row in rows] == model.predict(X).tolist()
    chances = np.array([row[1:] for row in rows]).astype(np.float64)
    np.testing.assert_allclose(chances, bj.probabilities(model, X), rtol=1e-4)


def test_scores_of_three_classes(at):
    train("train.three", "--no-refit", "--epochs", "2", *QUICK)
    good("predict", "model.st", "test.three", "--scores", "-o", "out.csv")
    with open("out.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["prediction", "score_0", "score_1", "score_2"]
    model, X = bj.load("model.st"), data(TESTED, seed=1)[0]
    assert [int(row[0]) for row in rows] == model.predict(X).tolist()
    scores = np.array([row[1:] for row in rows]).astype(np.float32)
    np.testing.assert_array_equal(scores, model.decision_function(X))
    # The Perceptron with removal compiles quickly and is far from the best: it swings
    # between 57 and 73 % with the rows that come last. To guess the largest class is
    # right on 42 %.
    assert np.mean(model.predict(X) == np.digitize(X[:, 0], [-0.4, 0.4])) > 0.6


def test_labels_with_commas_and_quotes_are_cells_of_csv(at):
    X, y = data()
    odd = np.where(y == "yes", 'a "b", c', "d")
    pa.csv.write_csv(table(X, odd), at / "odd.csv")
    train("odd.csv")
    good("predict", "model.st", "odd.csv", "-o", "out.csv")
    with open("out.csv", newline="") as file:
        cells = [row for row in csv.reader(file)]
    assert [cell for (cell,) in cells] == bj.load("model.st").predict(X).tolist()
    assert len(cells) == N


def test_regression(at):
    said = train("train-height.csv", "--target", "height", "--regression")
    X = data(TESTED, seed=1)[0]
    heights = (10 + X[:, 0] - X[:, 1]).round(4)
    output = good("predict", "model.st", "test-height.csv", "-o", "out.txt")
    predicted = bj.load("model.st").predict(X)
    np.testing.assert_array_equal(np.array(values("out.txt"), float), predicted)
    root = np.sqrt(np.mean((predicted - heights) ** 2))
    assert output == f"root mean squared error: {root:.4g}, 60 rows\n"
    # The offset of 10 is learned: the deviation of the heights is 1.4.
    assert root < 0.5
    assert re.fullmatch(r"mean (9.[89]|10.0)\d*, deviation 1.\d+", said["target"])
    assert said["learner"] == "sgd, at most 10 support vectors"
    assert said["progressive error"].endswith(
        " (root of the mean square), of rows before they were learned"
    )


@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_a_regressor_is_that_of_the_estimator(at, mean):
    from budgetjax.estimators import BudgetedKernelRegressor

    X, _ = data(TESTED, seed=1)
    y = mean + (X[:, 0] - X[:, 1]).round(4)
    pa.csv.write_csv(table(X, None, height=y), at / "far.csv")
    # With room for all rows, which the stream meets twice, the refit has one solution.
    room = 2 * TESTED
    train("far.csv", "--target", "height", "--regression", "--budget", room)
    model = bj.load("model.st")
    scaled = model.scaling.apply(X)
    # The command line chooses neither width nor penalty.
    given = {"gamma": "scale", "penalty": 10.0, "random_state": 0}
    estimator = BudgetedKernelRegressor(room, **given).fit(scaled, y)
    np.testing.assert_allclose(model.predict(X), estimator.predict(scaled), atol=1e-2)
    assert np.sqrt(np.mean((model.predict(X) - y) ** 2)) < 0.1
    for name in ("kernel", "maintenance"):
        one, other = (getattr(each, name) for each in (model.state, estimator.state_))
        assert jax.tree.structure(one) == jax.tree.structure(other)


def test_columns_are_taken_by_their_names(at):
    train("train.csv")
    good("predict", "model.st", "test.csv", "-o", "out.txt")
    X, _ = data(TESTED, seed=1)
    number = [f"row {i}" for i in range(TESTED)]
    moved = table(X[:, ::-1], None, ("b", "a"), number=number)
    pa.csv.write_csv(moved, at / "moved.csv")
    assert good("predict", "model.st", "moved.csv", "-o", "moved.txt") == (
        "predicted: 60 rows\n"
    )
    assert values("moved.txt") == values("out.txt")


def test_columns_left_out_and_columns_without_names(at):
    train("train.csv")
    expected = bj.load("model.st")
    X, y = data()
    more = table(X, y, number=[f"row {i}" for i in range(N)], other=np.zeros(N))
    pa.csv.write_csv(more, at / "more.csv")
    train("more.csv", "--ignore", "number", "--ignore", "other")
    jax.tree.map(
        np.testing.assert_array_equal, bj.load("model.st").state, expected.state
    )
    bare = pa.csv.WriteOptions(include_header=False)
    pa.csv.write_csv(more, at / "bare.csv", bare)
    unnamed = ("--ignore", "3", "--ignore", "4", "--target", "2", "--no-header")
    train("bare.csv", *unnamed)
    jax.tree.map(
        np.testing.assert_array_equal, bj.load("model.st").state, expected.state
    )
    pa.csv.write_csv(table(X, y), at / "last.csv", bare)
    train("last.csv", "--target", "-1", "--no-header")
    output = good(
        *("predict", "model.st", "last.csv", "--target", "2", "--no-header"),
        *("-o", "out.txt"),
    )
    assert values("out.txt") == expected.predict(X).tolist()
    assert output.startswith("accuracy: ")


def test_arrays_of_numpy(at):
    X, y = data()
    np.save("X.npy", X)
    np.save("y.npy", y)
    good("train", "X.npy", "--target", "y.npy", "-m", "model.st", *SMALL)
    output = good("predict", "model.st", "X.npy", "--target", "y.npy", "-o", "out.txt")
    assert output.startswith("accuracy: ")
    model = bj.load("model.st")
    assert values("out.txt") == model.predict(X).tolist()


def python_stream(epochs=1, source=None, **more):
    """What `train` does with the small file before the refit."""
    source = source or formats.read("train.csv", target="kind")
    gamma = more.pop("gamma", 0.5)
    state = bj.arow.init(bj.RBF(gamma), num_features=2, budget=10, **more)
    repeated = batches.Batches(
        "train.csv", 2, lambda: (one for _ in range(epochs) for one in source)
    )
    return fit_stream(
        bj.arow,
        state,
        repeated,
        classes=["no", "yes"],
        reservoir=8192,
        standardise=True,
        batch_rows=256,
    )


def test_the_stream_is_that_of_python(at):
    train("train.csv", "--no-refit", "--gamma", "0.4")
    expected = python_stream(gamma=0.4)
    actual = bj.load("model.st")
    same(actual.state, expected.state)
    np.testing.assert_array_equal(actual.rows, expected.rows)
    np.testing.assert_array_equal(actual.errors, expected.errors)


def test_the_refit_is_that_of_python(at):
    train("train.csv", "--learner", "arow", "--gamma", "0.4", "--penalty", "3")
    streamed = python_stream(gamma=0.4)
    X, y = data()
    scaled = streamed.scaling.apply(X)
    codes = np.where(y == "yes", 1, -1)
    batch = [(scaled, codes)]
    expected = bj.refit(streamed.state, batch, penalty=3.0, calibrate=True).model
    same(bj.load("model.st").state, expected)


def test_a_metric_is_that_of_python(at, monkeypatch):
    monkeypatch.setattr("budgetjax.refitting.refit.ENOUGH_FOR_METRIC", 200)
    out = train("train.csv", "--learner", "arow", "--gamma", "0.4", "--metric")
    streamed = python_stream(gamma=0.4)
    X, y = data()
    batch = [(streamed.scaling.apply(X), np.where(y == "yes", 1, -1))]
    expected = bj.refit(streamed.state, batch, learn_metric="auto")
    same(bj.load("model.st").state, expected)
    kept = isinstance(expected.kernel, bj.Mapped)
    assert out["metric"] == ("learned" if kept else "left out, as it is not better")


def test_a_file_too_large_to_hold_is_read_by_every_pass(at, monkeypatch):
    train("train.csv")
    held = bj.load("model.st")
    monkeypatch.setattr(passes, "HELD", 0)
    train("train.csv")
    same(bj.load("model.st").state, held.state)


@pytest.mark.parametrize("fits", [True, False])
def test_epochs_do_not_count_for_what_the_refit_holds(at, monkeypatch, fits):
    """The 300 rows of one epoch, labels and weights: parsed once if they fit."""
    monkeypatch.setattr(passes, "HELD", 300 * 4 * (2 + 1 + 1) - (not fits))
    reads, opened_as = [], reading.opened

    def opened(*given, **more):
        source = opened_as(*given, **more)

        def read():
            reads.append(1)
            return source.read()

        return dataclasses.replace(source, read=read)

    monkeypatch.setattr(reading, "opened", opened)
    train("train.csv", "--epochs", "2")
    # Before the refit, whose passes are many, and once for it.
    assert (len(reads) <= 6) == fits


def test_features_far_from_0_are_learned_as_well(at):
    X, y = data()
    pa.csv.write_csv(table(X + 1e6, y), at / "far.csv")
    near, far = (train(name)["progressive error"] for name in ("train.csv", "far.csv"))
    assert abs(float(near.split("%")[0]) - float(far.split("%")[0])) < 1
    good("predict", "model.st", "far.csv", "-o", "far.txt")
    assert np.mean(np.array(values("far.txt")) == y) > 0.85
    support = bj.support(bj.load("model.st"))
    assert np.all(np.abs(support.vectors[np.asarray(support.mask)] - 1e6) < 5)


def test_epochs_settings_and_classes(at):
    said = train(
        *("train.parquet", "--no-refit", "--epochs", "2", "--classes", "yes,no"),
        *("--set", "confidence=0.5", "--gamma", "0.4", "--set", "maintenance=merge"),
    )
    assert said["classes"] == "yes, no"
    assert said["read"] == "300 rows, 2 times"
    assert said["learner"] == (
        "arow, at most 10 support vectors, confidence 0.5, maintenance merge"
    )
    actual = bj.load("model.st")
    assert actual.num_rows == 600
    expected = python_stream(epochs=2, gamma=0.4, confidence=0.5)
    # The other order of the classes is the other sign.
    one, other = (bj.support(model.state).coefficients for model in (actual, expected))
    np.testing.assert_allclose(one, -other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "more"),
    [
        ("perceptron", ("--set", "maintenance=remove-oldest", "--no-standardise")),
        ("nystrom", ("--set", "loss=logistic")),
    ],
)
def test_other_algorithms(at, algorithm, more):
    said = train("train.csv", "--learner", algorithm, "--no-refit", *more)
    assert said["learner"].startswith(f"{algorithm}, at most 10 support vectors")
    name = model_files.header("model.st")["about"]["algorithm"]
    assert name == algorithm.replace("-", "_")
    scaling = bj.load("model.st").scaling
    assert (scaling is None) == ("--no-standardise" in more)


def test_every_learner_can_be_named():
    from budgetjax import online, solvers
    from budgetjax.online import registry

    text = "".join(good("train", "--help").split())
    for name in online.ALGORITHMS:
        assert registry.named("test", name) is getattr(bj, name)
        assert name.replace("_", "-") in text
    for name in solvers.SOLVERS:
        option = name.replace("_", "-")
        assert learners.solver(option) is getattr(bj, name)
        assert option in text


# Weights, separators, pipes.


def test_weights_of_rows_and_of_classes(at, monkeypatch):
    X, y = data()
    w = np.where(np.arange(N) % 3, 1.0, 2.0)
    pa.csv.write_csv(table(X, y, w=w), at / "weighted.csv")
    slow = ("--no-refit", "--learner", "arow", "--gamma", "0.4")
    weighted = ("--weight", "w", "--class-weight", "no=0.5")
    train("weighted.csv", *weighted, *slow)
    model = bj.load("model.st")
    assert model.model.feature_names == ("a", "b")
    batch = (X, y, np.where(y == "no", 0.5, 1.0) * w)
    expected = python_stream(gamma=0.4, source=[batch])
    same(model.state, expected.state)
    # The column of weights of the training is none of the features.
    good("predict", "model.st", "weighted.csv", "-o", "out.txt")
    about = targets.Look(np.array(["no", "yes"]), N, "", counts={"no": 1, "yes": 3})
    np.testing.assert_allclose(weights._by_class(about, "balanced"), [2, 2 / 3])
    # Rows of weight 0 are not there for a solver.
    given = []

    def solve(solver, X, y, weight, **arguments):
        given.append((X, weight))
        linear = bj.LinearModel(jnp.ones(2), jnp.zeros(()))
        return bj.Solution(linear, None, None, True)

    monkeypatch.setattr(one_versus_rest, "solve", solve)
    pa.csv.write_csv(table(X, y, w=w - 1), at / "some.csv")
    train("some.csv", "--weight", "w", "--class-weight", "no=2", "--learner", "dcd")
    ((rows, counts),) = given
    kept = w > 1
    scaled = Scaling.empty(2).updated(X).apply(X)
    np.testing.assert_array_equal(rows, scaled[kept])
    np.testing.assert_array_equal(counts, np.where(y == "no", 2.0, 1.0)[kept])
    sweep = ("sweep", "weighted.csv", "--target", "kind", *QUICK, "--budget", "5,10")
    assert good(*sweep, "--weight", "w") != good(*sweep, "--ignore", "w")


def test_separators_and_formats(at):
    text = Path("train.csv").read_text()
    train("train.csv", *QUICK, "--no-refit")
    expected = bj.load("model.st")
    Path("a.data").write_text(text.replace(",", ";"))
    Path("b.csv").write_text(text.replace(",", "\t"))
    Path("c.tsv").write_text(text.replace(",", "\t"))
    kind = ("--target", "kind")
    for file, *more in (
        ("a.data", "--format", "csv", "--delimiter", ";"),
        ("b.csv", "--delimiter", "tab"),
        ("b.csv", "--delimiter", "\\t"),
        ("c.tsv",),
    ):
        train(file, *kind, *QUICK, "--no-refit", *more)
        same(bj.load("model.st").state, expected.state)
        good("predict", "model.st", file, "-o", "out.txt", *more)
        assert values("out.txt") == expected.predict(data()[0]).tolist()
    Path("libsvm.csv").write_text(Path("train.libsvm").read_text())
    good("predict", "model.st", "libsvm.csv", "--format", "libsvm", "-o", "out.txt")
    assert values("out.txt") == expected.predict(data()[0]).tolist()


def test_standard_input_and_pipes(at):
    train("train.csv", *QUICK, "--no-refit")
    expected = bj.load("model.st")
    given = Path("train.csv").read_bytes()
    command = ("train", "-", *TRAIN, *QUICK, "--no-refit", "--format", "csv")
    result = CliRunner().invoke(group, command, input=given)
    assert (result.exit_code, result.stderr) == (0, "")
    assert report(result.stdout)["data"] == "standard input, 2 features"
    same(bj.load("new.st").state, expected.state)
    edited("missing.csv", 18, ",1,yes")
    command = ("predict", "new.st", "-", "--format", "csv")
    result = CliRunner().invoke(group, command, input=Path("missing.csv").read_bytes())
    assert result.stderr == (
        "budgetjax: error: standard input: X must not have missing values, got one in "
        "row 17, column 'a'; training with --missing mean fills it in\n"
    )
    os.mkfifo("pipe.csv")
    writer = threading.Thread(target=Path("pipe.csv").write_bytes, args=(given,))
    writer.start()
    good("predict", "new.st", "pipe.csv", "-o", "out.txt")
    writer.join()
    assert values("out.txt") == expected.predict(data()[0]).tolist()


# Texts and gaps.


def test_texts_are_features_and_gaps_are_means(at):
    X, y = data()
    random = np.random.default_rng(3)
    colour = random.choice(["red", "green", "blue"], N)
    gaps = random.random(N) < 0.2
    a = pa.array(X[:, 0], mask=gaps)
    pa.csv.write_csv(pa.table({"colour": colour, "a": a, "kind": y}), at / "odd.csv")
    given = ("--one-hot", "colour", "--missing", "mean")
    said = train("odd.csv", *given, *QUICK, "--no-refit", "--test", "odd.csv")
    assert said["data"] == "odd.csv, 4 features"
    assert said["scaling"].endswith(" and deviation 1, what is missing to the mean")
    told = report(good("info", "model.st"))["scaling"]
    assert told == "every feature to deviation 1, what is missing to the mean"
    model = bj.load("model.st")
    names = ("colour=blue", "colour=green", "colour=red", "a")
    assert model.model.feature_names == names
    flags = [colour == one for one in ("blue", "green", "red")]
    rows = np.stack([*flags, np.where(gaps, np.nan, X[:, 0])], axis=1).astype(float)
    # As an imputer and a scaler before it would, but for the mean of 256 rows so far.
    full = np.where(np.isnan(rows), np.nanmean(rows[:256, 3]), rows)
    np.testing.assert_allclose(model.scaling.mean, full.mean(axis=0), rtol=1e-6)
    np.testing.assert_allclose(model.scaling.deviation, full.std(axis=0), rtol=1e-6)
    good("predict", "model.st", "odd.csv", "-o", "out.txt")
    mean = np.where(np.isnan(rows), model.scaling.mean[None], rows)
    assert values("out.txt") == model.predict(rows).tolist()
    np.testing.assert_allclose(
        model.decision_function(rows), model.decision_function(mean), atol=1e-6
    )
    # Columns in another order, of another format, with a text that is new.
    new = pa.table({"a": a, "b": a, "colour": np.where(colour == "red", "pink", "red")})
    pa.parquet.write_table(new, at / "new.parquet")
    good("predict", "model.st", "new.parquet", "-o", "new.txt")
    changed = np.where(colour == "red", 0, 1)
    rows[:, :3] = np.stack([0 * changed, 0 * changed, changed], axis=1)
    assert values("new.txt") == model.predict(rows).tolist()
    good("export", "model.st", "-o", "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    (scores,) = session.run(["scores"], {"X": rows.astype(np.float32)})
    np.testing.assert_allclose(scores, model.decision_function(rows), atol=1e-4)
    # A solver has all rows before it fills the gaps of the first.
    train("odd.csv", *given, "--learner", "dcd")
    assert np.all(np.isfinite(bj.load("model.st").decision_function(rows)))
    result = run("predict", "model.st", "train.csv", "-o", "none.txt")
    assert result.stderr == (
        "budgetjax: error: train.csv: X must have the columns that the model was "
        "trained on, and lacks 'colour=blue', 'colour=green', 'colour=red'\n"
    )


# Solvers.


def test_every_solver_is_given_its_arguments():
    for name in options.SOLVERS:
        solver = learners.solver(name)
        asked = options.TrainOptions(learner=name, budget=70)
        arguments = solving._arguments(asked, solver)
        takes = inspect.signature(solver.init).parameters
        assert ("penalty" in arguments) == (name != "sbp")
        assert arguments.get("budget") == (70 if name == "budget-svm" else None)
        lacks = [
            key
            for key, one in takes.items()
            if one.default is one.empty and key not in arguments
        ]
        assert lacks == ["X", "y", *([] if solver.linear else ["kernel"])]
    asked = options.TrainOptions("dcd", {"loss": "squared-hinge"}, penalty=3.0)
    arguments = solving._arguments(asked, bj.dcd)
    assert arguments == {"loss": "squared_hinge", "penalty": 3.0}


def test_solvers_have_the_defaults_of_their_estimators():
    from budgetjax import estimators
    from budgetjax.solvers.one_versus_rest import USUAL

    of = {"sbp": estimators.SBPClassifier, "mpu": estimators.MPUClassifier}
    assert set(of) == set(USUAL)
    for name, usual in USUAL.items():
        defaults = of[name]().get_params()
        assert usual == {key: defaults[key] for key in usual}
    for one in (estimators.BudgetSVC(), estimators.MPUClassifier()):
        assert one.penalty == solving.PENALTY


def test_classes_share_kernel_rows_and_no_state_is_kept(monkeypatch):
    given = []

    def solve(solver, X, y, **arguments):
        given.append((y.tolist(), dict(arguments)))
        state = types.SimpleNamespace(rows=len(given))
        return bj.Solution(None, None, state, True)

    monkeypatch.setattr(one_versus_rest, "solve", solve)
    y, random = np.array(["a", "b", "c", "b"]), np.random.RandomState(0)
    classes = np.array(["a", "b", "c"])
    found = one_versus_rest.one_versus_rest(bj.sdca, None, y, classes, random=random)
    # A state is as large as the cache: with 26 classes, 13 GiB.
    assert [one.state for one in found] == [None, None, None]
    assert [signs for signs, _ in given] == [
        *([1, -1, -1, -1], [-1, 1, -1, 1], [-1, -1, 1, -1])
    ]
    assert [more.get("rows") for _, more in given] == [None, 1, 2]
    assert len({more["seed"] for _, more in given}) == 3


def test_a_solver_of_a_file_is_that_of_python(at):
    said = train("train.three", "--learner", "smo", "--penalty", "3", "--gamma", "0.4")
    assert list(said) == (
        ["data", "classes", "scaling", "kernel", "learner", "read"]
        + ["support vectors", "model", "time"]
    )
    assert said["learner"] == "smo, penalty 3"
    assert said["read"] == "300 rows, all of them in memory"
    model = bj.load("model.st")
    X, _ = data()
    y = np.digitize(X[:, 0], [-0.4, 0.4])
    scaled = Scaling.empty(2).updated(X).apply(X)
    for label, one in enumerate(model.model):
        signs = np.where(y == label, 1, -1)
        expected = bj.solve(bj.smo, scaled, signs, kernel=bj.RBF(0.4), penalty=3.0)
        same(one, expected.model)
    output = good("predict", "model.st", "test.three", "-o", "out.txt")
    X, _ = data(TESTED, seed=1)
    assert [int(one) for one in values("out.txt")] == model.predict(X).tolist()
    assert float(re.findall(r"[\d.]+", output)[0]) > 90
    said = report(good("info", "model.st"))
    assert said["solver of training"] == "smo"
    assert said["models"] == "3, one per class; the first:"
    assert said["scaling"] == "every feature to deviation 1"
    # Models that each have vectors of their own are drawn as far as the scaling goes.
    good("plot", "model.st", "-o", "m.png")
    good("export", "model.st", "-o", "model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    (labels,) = session.run(["label"], {"X": X.astype(np.float32)})
    assert labels.tolist() == model.predict(X).tolist()


def test_a_linear_solver_leaves_libsvm_text_sparse(at):
    from scipy.sparse import csr_array

    from budgetjax.estimators import MPUClassifier

    train("train.three", "--learner", "mpu", "--no-standardise", "--seed", "5")
    model = bj.load("model.st")
    X, _ = data()
    y = np.digitize(X[:, 0], [-0.4, 0.4])
    expected = MPUClassifier(random_state=5).fit(csr_array(X), y).model_
    same(model.model, expected.model)
    good("predict", "model.st", "test.three", "--scores", "-o", "out.csv")
    X, _ = data(TESTED, seed=1)
    _, *rows = Path("out.csv").read_text().splitlines()
    assert [int(row.split(",")[0]) for row in rows] == model.predict(X).tolist()


def test_a_file_too_large_for_a_solver_is_refused(at, monkeypatch):
    monkeypatch.setattr(checks, "host_memory", lambda: 300 * 2 * solving.BYTES - 1)
    result = run("train", "train.libsvm", "-m", "new.st", "--learner", "mpu")
    assert result.exit_code == 1
    assert result.stderr == (
        "budgetjax: error: out of memory for all rows of train.libsvm "
        "(--no-standardise keeps LIBSVM text sparse), which needs 0.0 GiB; this "
        "computer has 0.0 GiB\n"
    )


def test_an_interrupted_run_goes_on_from_its_checkpoint(at, monkeypatch):
    from budgetjax.stream import fit

    command = ("train", "train.csv", "--target", "kind", *SMALL, "--quiet")
    command = (*command, "--epochs", "4", "-m")
    good(*command, "undisturbed.st")
    kept = ("--checkpoint", "run.ckpt")
    after, seen = fit._after, []

    def interrupted(*given):
        seen.append(None)
        if len(seen) == 3:
            raise KeyboardInterrupt
        return after(*given)

    with monkeypatch.context() as patch:
        patch.setattr(fit, "_after", interrupted)
        result = run(*command, "model.st", *kept)
    assert result.exit_code == 130
    assert result.stderr == (
        "\nbudgetjax: interrupted: the same command goes on from run.ckpt\n"
    )
    assert not Path("model.st").exists()
    said = report(good("info", "run.ckpt"))
    assert said["checkpoint"] == "after 512 rows of a stream"
    good(*command, "model.st", *kept)
    same(bj.load("model.st").state, bj.load("undisturbed.st").state)
    # Of another run it is refused, and kept.
    before = Path("run.ckpt").read_bytes()
    result = run(*command, "other.st", *kept, "--gamma", "2")
    assert result.exit_code == 1
    assert result.stderr == (
        "budgetjax: error: checkpoint run.ckpt must be of the same "
        "learner, hyperparameters, classes, intercept, standardise and reservoir, got "
        "one of others; delete it to start anew\n"
    )
    assert Path("run.ckpt").read_bytes() == before
    assert not Path("other.st").exists()


def test_a_run_without_checkpoint_says_what_is_lost(at, monkeypatch):
    from budgetjax.stream import fit

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(fit, "_after", interrupted)
    result = run("train", "train.csv", "--target", "kind", *SMALL, "-m", "model.st")
    assert result.exit_code == 130
    assert result.stderr == (
        "\nbudgetjax: interrupted: nothing is written; --checkpoint FILE lets a run go "
        "on\n"
    )
    assert not Path("model.st").exists()


def test_progress_is_on_standard_error(at, monkeypatch):
    monkeypatch.setattr("budgetjax.cli.options.shows_progress", lambda quiet: not quiet)
    result = run("train", "train.csv", "--target", "kind", *SMALL, "-m", "model.st")
    assert result.exit_code == 0
    assert re.search(r"fit_stream: 100%.*300/300", result.stderr)
    assert "refit: " in result.stderr
    assert "%|" not in result.stdout
    result = run("predict", "model.st", "test.csv", "-o", "out.txt")
    assert "predict: " in result.stderr


def test_progress_without_a_terminal_is_in_lines(at, monkeypatch):
    monkeypatch.setattr(options, "SECONDS", 0.0)
    command = ("train", "train.csv", "--target", "kind", *SMALL, "-m", "model.st")
    result = run(*command, "--no-refit", *QUICK)
    assert result.exit_code == 0
    # The first report only starts the clock.
    assert re.fullmatch(
        r"fit_stream: 300 of 300 rows, [\d,.e+]+ rows/s, error 0\.\d+, "
        r"10 support vectors\n",
        result.stderr,
    )
    assert run(*command, "--no-refit", *QUICK, "--quiet").stderr == ""


def test_the_rate_of_progress_leaves_out_the_first_report(monkeypatch, capsys):
    now = iter([100.0, 101.0, 130.0, 140.0, 161.0])
    monkeypatch.setattr(progress_bar.time, "monotonic", lambda: next(now))
    with (
        progress_bar.as_lines(30.0),
        progress_bar.reporting("here", True, "rows") as report,
    ):
        for count in (1000, 30, 30, 20, 11):
            report("gap 1", count)
    assert capsys.readouterr().err == (
        "here: 1,060 rows, 2 rows/s, gap 1\nhere: 1,091 rows, 1 rows/s, gap 1\n"
    )


def test_warnings_are_one_line(at):
    X, y = data()
    pa.csv.write_csv(
        table(np.stack([X[:, 0], 1e4 * X[:, 1]], axis=1), y), at / "uneven.csv"
    )
    order = np.argsort(y, kind="stable")
    pa.csv.write_csv(table(X[order], y[order]), at / "sorted.csv")
    uneven = ("train", "uneven.csv", "--target", "kind", "-m", "model.st", *SMALL)
    result = run(*uneven, "--no-standardise")
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "budgetjax: warning: uneven.csv: features look unscaled: column 1 "
    )
    assert result.stderr.count("\n") == 1
    assert run(*uneven).stderr == ""
    result = run("train", "sorted.csv", "--target", "kind", "-m", "model.st", *SMALL)
    assert result.exit_code == 0
    assert result.stderr == (
        "budgetjax: warning: sorted.csv: the rows look sorted by class: 1 of 300 have "
        "another one than the row before; what learns row after row needs them in "
        "random order, so shuffle the file\n"
    )


# Models made in Python.


def python_models():
    """Of kinds that the command line does not make."""
    weights = np.array([1.0, -2.0], np.float32)
    linear = bj.LinearModel(jnp.asarray(weights), jnp.float32(0.5))
    history = bj.History(np.zeros(1, int), *3 * [np.zeros(1)], *2 * [np.zeros(1, int)])
    solution = bj.Solution(linear, history, None, True)
    X, y = data(20)
    signs = np.where(y == "yes", 1, -1).astype(np.float32)
    vectors = jnp.asarray(X.astype(np.float32))
    kernel = bj.KernelModel(bj.RBF(0.5), vectors, jnp.asarray(signs), jnp.float32(0.25))
    state = bj.load("model.st").state
    return {"state": state, "kernel": kernel, "solution": solution, "linear": linear}


def test_models_of_python_predict(at, models):
    X = data(TESTED, seed=1)[0]
    Path("model.st").write_bytes((models / "model.st").read_bytes())
    for name, model in python_models().items():
        bj.save("python.st", model)
        output = good("predict", "python.st", "test.libsvm", "-o", "out.txt")
        if name == "state":
            predicted, scores = bj.predict(model, X), bj.decision_function(model, X)
        else:
            model = model.model if name == "solution" else model
            predicted, scores = model.predict(X), model.decision_function(X)
        assert values("out.txt") == [str(one) for one in np.asarray(predicted)], name
        assert output.startswith("accuracy: ")
        good("predict", "python.st", "test.libsvm", "--scores", "-o", "out.csv")
        header, *rows = Path("out.csv").read_text().splitlines()
        assert header == "prediction,score"
        written = [np.float32(row.split(",")[1]) for row in rows]
        # In blocks of another length, sums come in another order.
        np.testing.assert_allclose(written, scores, rtol=1e-4, atol=1e-5)


def test_estimators_of_python_predict(at):
    from budgetjax.estimators import BudgetedKernelClassifier

    X, y = data()
    estimator = BudgetedKernelClassifier(
        budget=10, algorithm="perceptron", refit=False, random_state=0
    )
    bj.save("empty.st", estimator)
    result = run("predict", "empty.st", "test.csv")
    assert (result.exit_code, result.stderr) == (
        1,
        "budgetjax: error: empty.st: model must be the state of an online algorithm, "
        "or a model of a solver, got BudgetedKernelClassifier\n",
    )
    bj.save("model.st", estimator.fit(X, y))
    output = good(
        *("predict", "model.st", "test.csv", "--target", "kind", "-o", "out.txt")
    )
    X, y = data(TESTED, seed=1)
    expected = estimator.predict(X)
    assert values("out.txt") == expected.tolist()
    right = int(np.sum(expected == y))
    assert output == (
        f"accuracy: {100 * right / TESTED:.2f}% ({right} of {TESTED} rows)\n"
    )
    said = report(good("info", "model.st"))
    assert said["type"].endswith("BudgetedKernelClassifier")
    assert said["budget"] == "10"
    assert said["classes"] == "2: no, yes"


def test_files_of_libsvm_that_start_at_0_and_have_new_indices(at):
    X, y = data()
    codes = np.where(y == "yes", 1, -1)
    rows = zip(X.tolist(), codes.tolist(), strict=True)
    lines = [f"{code} 0:{a} 1:{b}" for (a, b), code in rows]
    (at / "zero.libsvm").write_text("\n".join(lines))
    train("train.libsvm")
    expected = bj.load("model.st")
    train("zero.libsvm", "--zero-based")
    same(bj.load("model.st").state, expected.state)
    (at / "new.libsvm").write_text("\n".join(f"{line} 7:1" for line in lines))
    result = run("predict", "model.st", "new.libsvm", "--zero-based", "-o", "new.txt")
    assert result.exit_code == 0
    assert result.stderr == (
        "budgetjax: warning: new.libsvm: indices beyond 1, which the model has not "
        "seen, are left out\n"
    )
    assert values("new.txt") == [str(one) for one in expected.predict(X)]


def test_predictions_and_models_can_go_to_a_device(at):
    train("train.csv", *QUICK, "--no-refit")
    good("train", "train.csv", *TRAIN, *QUICK, "--no-refit", "--model", "/dev/null")
    output = good("predict", "model.st", "test.csv", "-o", "/dev/null")
    assert output.startswith("accuracy: ")


def test_classes_that_are_true_or_false(at):
    X, y = data()
    content = table(X, y == "yes")
    content.to_pandas().to_csv(at / "true.csv")
    pa.parquet.write_table(content, at / "true.parquet")
    assert train("true.csv")["classes"] == "False (158), True (142)"
    good("predict", "model.st", "true.parquet", "-o", "out.txt")
    assert set(values("out.txt")) == {"False", "True"}
    assert train("true.csv", "--classes", "true,false")["classes"] == "True, False"


# What goes wrong.


def edited(name, line, text):
    """The file of training with another line."""
    lines = Path("train.csv").read_text().splitlines(keepends=True)
    lines[line] = text + "\n"
    Path(name).write_text("".join(lines))


def make_bad_files():
    """Files with one fault each."""
    X, y = data()
    edited("missing.csv", 18, ",1,yes")
    edited("infinite.csv", 18, "inf,1,yes")
    edited("text.csv", 18, "red,1,yes")
    edited("ragged.csv", 18, "1,yes")
    edited("range.csv", 18, "1e200,1,yes")
    edited("label.csv", 18, "1,1,maybe")
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("a,b,kind\n")
    Path("unnamed.csv").write_text("0.5,1,yes\n0.25,2,no\n")
    Path("damaged.csv.gz").write_bytes(Path("train.csv.gz").read_bytes()[:900])
    pa.csv.write_csv(table(X, ["yes"] * N), "one.csv")
    pa.csv.write_csv(table(X, X[:, 0]), "numbers.csv")
    pa.csv.write_csv(table(X[:, :1], y, ("a",)), "narrow.csv")
    pa.parquet.write_table(table(X[:, :1], y, ("a",)), "narrow.parquet")
    Path("bare.csv").write_text("1,2,3\n4,5,6\n")
    Path("index.libsvm").write_text("1 1:1 4:2\n")
    Path("order.libsvm").write_text("1 2:1 1:2\n-1 2:1\n")
    Path("zero.libsvm").write_text("1 0:1 1:2\n-1 0:2 1:1\n")
    Path("semicolons.csv").write_text("a;b;kind\n1;2;no\n")
    Path("sweep.json").write_text('{"kind": "another"}')
    model = Path("model.st").read_bytes()
    Path("truncated.st").write_bytes(model[:-50])
    Path("altered.st").write_bytes(model[:-9] + b"\x7f" + model[-8:])
    Path("nothing.st").write_bytes(b"")


TRAIN = ("--target", "kind", "-m", "new.st", *SMALL)
LEARN = ("train", "train.csv", *TRAIN)
ALTERED = "the file must be as it was written, with the digest "
# Name: arguments, exit code, the last line of standard error without its beginning.
BAD = {
    "no file": (
        ("train", "none.csv", *TRAIN),
        1,
        "none.csv: No such file or directory",
    ),
    "numbers for names": (
        ("train", "unnamed.csv", *TRAIN),
        1,
        "unnamed.csv: the first line must hold the names of columns, got '0.5'; "
        "--no-header reads files without names, and a target that is one of them says "
        "that these are names",
    ),
    "no folder of the model": (
        ("train", "train.csv", "--target", "kind", "-m", "none/new.st"),
        1,
        "--model none/new.st: there is no folder {at}/none",
    ),
    "model is a folder": (
        ("train", "train.csv", "--target", "kind", "-m", "."),
        1,
        "--model .: must be a file, got a folder",
    ),
    "model is the data": (
        ("train", "train.csv", "--target", "kind", "-m", "train.csv"),
        2,
        "--model: train.csv is also another file of the run.",
    ),
    "checkpoint is the model": (
        (*LEARN, "--checkpoint", "new.st"),
        2,
        "--checkpoint: new.st is also another file of the run.",
    ),
    "no target named": (
        ("train", "train.csv", "-m", "new.st"),
        2,
        "Missing option '--target': which of the columns a, b, kind is to be "
        "predicted.",
    ),
    "no such column": (
        ("train", "train.csv", "--target", "sort", "-m", "new.st"),
        1,
        "train.csv: target must be of the columns 'a', 'b', 'kind', got 'sort'",
    ),
    "no such column to ignore": (
        (*LEARN, "--ignore", "number"),
        1,
        "train.csv: --ignore must be among the columns a, b, got number",
    ),
    "target of LIBSVM text": (
        ("train", "train.libsvm", *TRAIN),
        2,
        "--target is for csv, parquet, arrow, npy, and train.libsvm is taken for "
        "libsvm; --format names another.",
    ),
    "a missing value": (
        ("train", "missing.csv", *TRAIN),
        1,
        "missing.csv: X must not have missing values, got one in row 17, column 'a'; "
        "training with --missing mean fills it in",
    ),
    "an infinite value": (
        ("train", "infinite.csv", *TRAIN),
        1,
        "infinite.csv: X must be finite, got inf in row 17, column 'a'",
    ),
    "an infinite value to predict": (
        ("predict", "model.st", "infinite.csv", "-o", "new.txt"),
        1,
        "infinite.csv: X must be finite, got inf in row 17, column 'a'",
    ),
    "text in a feature": (
        ("train", "text.csv", *TRAIN),
        1,
        "text.csv: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 0 rows: In column 'a': row 17: CSV conversion error to double: "
        "invalid value 'red'; --one-hot COLUMN makes a feature of each text of a "
        "column, and --ignore COLUMN leaves it out",
    ),
    "a short row": (
        ("train", "ragged.csv", *TRAIN),
        1,
        "ragged.csv: the file must be CSV in UTF-8, with numbers as features, got an "
        "error after 0 rows: CSV parse error: row 17: Expected 3 columns, got 2: 1,yes",
    ),
    "squares beyond float64": (
        ("train", "range.csv", *TRAIN),
        1,
        "range.csv: X must have squares that float64 can hold, to be standardised, got "
        "1e+200 in row 17, column 0",
    ),
    "beyond float32": (
        ("train", "range.csv", *TRAIN, "--no-standardise", "--gamma", "1"),
        1,
        "range.csv: X must be in the range of float32, got 1e+200 in row "
        "17, column 'a'",
    ),
    "an empty file": (("train", "empty.csv", *TRAIN), 1, None),
    "a header alone": (("train", "header.csv", *TRAIN), 1, None),
    "damaged gzip": (("train", "damaged.csv.gz", *TRAIN), 1, None),
    "no names of columns": (
        ("predict", "python.st", "bare.csv", "-o", "new.txt"),
        1,
        None,
    ),
    "indices that do not ascend": (
        ("train", "order.libsvm", "-m", "new.st", *SMALL),
        1,
        "order.libsvm: rows must be 'label index:value ...' with ascending indices, "
        "got '1 2:1 1:2' in row 0: Feature indices in SVMlight/LibSVM data file should "
        "be sorted and unique",
    ),
    "a class that is not among those given": (
        ("train", "label.csv", *TRAIN, "--classes", "no,yes"),
        1,
        "label.csv: y must be one of 'no', 'yes', got 'maybe' in row 17",
    ),
    "a class of the test file that was not learned": (
        (*LEARN, "--test", "label.csv"),
        1,
        "label.csv: y must be one of no, yes, got maybe in row 17",
    ),
    "a class to compare with that was not learned": (
        ("predict", "model.st", "label.csv", "--target", "kind", "-o", "new.txt"),
        1,
        "label.csv: y must be one of no, yes, got maybe in row 17",
    ),
    "one class": (
        ("train", "one.csv", *TRAIN),
        1,
        "one.csv: y must have at least 2 classes, got yes in all 300 rows",
    ),
    "numbers for classes": (("train", "numbers.csv", *TRAIN), 1, None),
    "classes for numbers": (
        (*LEARN, "--regression"),
        1,
        "train.csv: y must be finite numbers, got no in row 0",
    ),
    "one class given": (
        (*LEARN, "--classes", "yes"),
        2,
        "--classes must be at least 2 different labels, got yes.",
    ),
    "classes and regression": (
        (*LEARN, "--classes", "a,b", "--regression"),
        2,
        "--classes and --regression exclude each other.",
    ),
    "a metric without a refit": (
        (*LEARN, "--metric", "--no-refit"),
        2,
        "--metric and --no-refit exclude each other.",
    ),
    "a test file of another kind": (
        (*LEARN, "--test", "test.libsvm"),
        2,
        "--target is for csv, parquet, arrow, npy, and test.libsvm is taken for "
        "libsvm; --format names another.",
    ),
    "a test file of another width": (
        (*LEARN, "--test", "narrow.csv"),
        1,
        "narrow.csv: X must have the columns that the model was trained on, and lacks "
        "'b'",
    ),
    "a budget of nothing": (
        (*LEARN, "--budget", "0"),
        2,
        "Invalid value for '--budget': 0 is not in the range 1<=x<=2147483646.",
    ),
    "a negative gamma": (
        (*LEARN, "--gamma", "-1"),
        2,
        "Invalid value for '--gamma': -1.0 is not in the range x>0.",
    ),
    "an infinite gamma": (
        (*LEARN, "--gamma", "inf"),
        2,
        "Invalid value for '--gamma': 'inf' is not a finite number.",
    ),
    "no such algorithm": ((*LEARN, "--learner", "svm"), 2, None),
    "an algorithm for classes": (
        ("train", "train-height.csv", "--target", "height", "--regression", "-m")
        + ("new.st", "--learner", "pegasos"),
        2,
        "--learner, --set: the learner must be one of fourier, norma, nystrom, sgd, "
        "got 'pegasos'",
    ),
    "an algorithm for two classes": (
        ("train", "train.three", "-m", "new.st", "--learner", "forgetron"),
        1,
        None,
    ),
    "no such setting": (
        (*LEARN, "--learner", "arow", "--set", "rate=3"),
        2,
        "--learner, --set: settings of arow must be among confidence, drift, moves, "
        "maintenance, landmarks, got rate=3",
    ),
    "no such argument of a solver": (
        (*LEARN[:-2], "--learner", "smo", "--set", "slack=1"),
        2,
        "--set: arguments of smo must be among fit_bias, batch_size, cache_size, "
        "tolerance, max_steps, got slack=1",
    ),
    "a budget of a solver without one": (
        (*LEARN, "--learner", "smo"),
        2,
        "--budget is not for --learner smo.",
    ),
    "epochs of a solver": (
        (*LEARN, "--learner", "budget-svm", "--epochs", "2"),
        2,
        "--epochs is not for --learner budget-svm.",
    ),
    "no refit of a solver": (
        (*LEARN, "--learner", "budget-svm", "--no-refit"),
        2,
        "--refit is not for --learner budget-svm.",
    ),
    "a penalty of a solver without one": (
        (*LEARN[:-2], "--learner", "sbp", "--penalty", "2"),
        2,
        "--penalty is not for --learner sbp.",
    ),
    "a kernel of a linear solver": (
        (*LEARN[:-2], "--learner", "dcd", "--gamma", "2"),
        2,
        "--gamma is not for --learner dcd.",
    ),
    "a solver in a sweep": (
        ("sweep", "train.csv", "--target", "kind", "--learner", "smo"),
        2,
        None,
    ),
    "a setting without a value": (
        (*LEARN, "--set", "confidence"),
        2,
        "Invalid value for '--set': 'confidence' is not NAME=VALUE.",
    ),
    "a setting twice": (
        (*LEARN, "--set", "drift=0", "--set", "drift=0.1"),
        2,
        "--set drift is given twice.",
    ),
    "a setting of no use": (
        (*LEARN, "--no-refit", "--set", "confidence=-1"),
        1,
        "arow.init: confidence must be a finite number above 0, got -1",
    ),
    "no such strategy": ((*LEARN, "--set", "maintenance=none"), 2, None),
    "no model": (
        ("predict", "none.st", "test.csv"),
        1,
        "none.st: No such file or directory",
    ),
    "no model file": (
        ("predict", "train.csv", "test.csv", "-o", "new.txt"),
        1,
        "train.csv: must be a file of budgetjax.save, got another file, or a "
        "damaged one",
    ),
    "an empty model": (
        ("info", "nothing.st"),
        1,
        "nothing.st: must be a file of budgetjax.save, got an empty file",
    ),
    "a truncated model": (
        ("predict", "truncated.st", "test.csv", "-o", "new.txt"),
        1,
        f"truncated.st: {ALTERED}",
    ),
    "an altered model": (("info", "altered.st"), 1, f"altered.st: {ALTERED}"),
    "rows of another width": (
        ("predict", "python.st", "narrow.csv", "--target", "kind", "-o", "new.txt"),
        1,
        "narrow.csv: must have 3 features, as the model, got 1; --target and --ignore "
        "name those that are none",
    ),
    "columns of another name": (
        ("predict", "model.st", "narrow.parquet", "-o", "new.txt"),
        1,
        "narrow.parquet: X must have the columns that the model was trained on, and "
        "lacks 'b'",
    ),
    "indices that start at 0": (
        ("train", "zero.libsvm", "-m", "new.st", *SMALL),
        1,
        "zero.libsvm: rows must be 'label index:value ...' with ascending indices, "
        "got '1 0:1 1:2' in row 0: Invalid index 0 in SVMlight/LibSVM data file; "
        "--zero-based reads files that start at 0",
    ),
    "standard input": (
        ("train", "-", "-m", "new.st"),
        2,
        "--format must say what standard input is.",
    ),
    "a pipe that is empty": (
        ("train", "/dev/null", "-m", "new.st"),
        1,
        "/dev/null: the file must have rows, got none",
    ),
    "a separator of LIBSVM text": (
        ("train", "train.libsvm", "-m", "new.st", "--delimiter", ";"),
        2,
        "--delimiter is for csv, and train.libsvm is taken for libsvm; --format names "
        "another.",
    ),
    "a separator of two": (
        (*LEARN, "--delimiter", ";;"),
        2,
        "Invalid value for '--delimiter': ';;' is not one character, or tab.",
    ),
    "commas where tabs are to be": (
        (*LEARN, "--delimiter", "tab"),
        1,
        'train.csv: cells must be separated by \'\\t\', got \'"a","b","kind"\' as '
        "the first line; --delimiter ',' reads it",
    ),
    "a weight of LIBSVM text": (
        ("train", "train.libsvm", "-m", "new.st", "--weight", "w"),
        2,
        "--weight is for csv, parquet, arrow, npy, and train.libsvm is taken for "
        "libsvm; --format names another.",
    ),
    "gaps without means": (
        (*LEARN, "--missing", "mean", "--no-standardise"),
        2,
        "--missing and --no-standardise exclude each other: the scaling has the means.",
    ),
    "no such column of text": (
        (*LEARN, "--one-hot", "colour"),
        1,
        "train.csv: --one-hot must be among the columns a, b, got colour",
    ),
    "a weight of no class": (
        (*LEARN, "--class-weight", "yes=2,maybe=1"),
        2,
        "--class-weight must be balanced, or LABEL=WEIGHT of the classes no, yes, at "
        "least 0, got maybe=1.",
    ),
    "a negative weight of a class": (
        (*LEARN, "--class-weight", "yes=-2"),
        2,
        "--class-weight must be balanced, or LABEL=WEIGHT of the classes no, yes, at "
        "least 0, got yes=-2.",
    ),
    "weights of the classes of a regression": (
        (*LEARN, "--regression", "--class-weight", "balanced"),
        2,
        "--class-weight and --regression exclude each other.",
    ),
    "a file of no format": (
        ("train", "sweep.json", *TRAIN),
        1,
        "sweep.json: the file must be .csv, .tsv, .parquet, .arrow, .feather, .npy, or "
        "LIBSVM text under another name, got .json",
    ),
    "another separator": (
        ("train", "semicolons.csv", *TRAIN),
        1,
        "semicolons.csv: cells must be separated by ',', got 'a;b;kind' as the first "
        "line; --delimiter ';' reads it",
    ),
    "a checkpoint that is data": (
        (*LEARN, "--checkpoint", "test.libsvm"),
        1,
        "checkpoint: test.libsvm: must be a file of budgetjax.save, got another file, "
        "or a damaged one; give another path",
    ),
    "many models": (
        ("predict", "stacked.st", "test.csv", "-o", "new.txt"),
        1,
        "stacked.st: model must be a single one, got a stack of shape (2,); use "
        "jax.vmap",
    ),
    "a state that needs its training set": (
        ("predict", "batch.st", "test.csv", "-o", "new.txt"),
        1,
        None,
    ),
    "scores of a regressor": (
        ("predict", "height.st", "test-height.csv", "--scores"),
        2,
        "--scores: height.st predicts numbers, without scores.",
    ),
    "probabilities of a regressor": (
        ("predict", "height.st", "test-height.csv", "--probabilities"),
        2,
        "--probabilities: height.st predicts numbers.",
    ),
    "probabilities without a calibration": (
        ("predict", "python.st", "test.csv", "--probabilities"),
        2,
        "--probabilities: python.st is not calibrated, as models of --refit are.",
    ),
    "scores and probabilities": (
        ("predict", "model.st", "test.csv", "--scores", "--probabilities"),
        2,
        "--scores and --probabilities exclude each other.",
    ),
    "the output is the data": (
        ("predict", "model.st", "test.csv", "-o", "test.csv"),
        2,
        "--output: test.csv is also another file of the run.",
    ),
    "no folder of the output": (
        ("predict", "model.st", "test.csv", "-o", "none/new.txt"),
        1,
        "--output none/new.txt: there is no folder {at}/none",
    ),
    "no name for a picture": (
        ("plot", "model.st", "-o", "new.gif"),
        2,
        "--output must end in .png, .svg, .pdf, got new.gif.",
    ),
    "nothing to draw": (
        ("plot", "python.st", "-o", "new.png"),
        1,
        "python.st: must have a learning curve, as of budgetjax train, or two "
        "features, got 3 features and no curve",
    ),
    "no name for a table": (
        ("sweep", "train.csv", "--target", "kind", "-o", "new.json"),
        2,
        "--output must end in .csv, .png, .svg, .pdf, got new.json.",
    ),
    "an average that nothing would predict by": (
        (*LEARN, "--set", "average=yes"),
        2,
        "--set average: a model file predicts by the last model.",
    ),
    "words for numbers": (
        ("sweep", "train.csv", "--target", "kind", "--gamma", "a,b"),
        2,
        "Invalid value for '--gamma': 'a' is not a valid float range.",
    ),
    "a number twice": (
        ("sweep", "train.csv", "--target", "kind", "--budget", "10,20,10"),
        2,
        "Invalid value for '--budget': '10,20,10' has a number twice.",
    ),
    "no format of an export": (
        ("export", "model.st", "-o", "model.pt"),
        2,
        "--output must end in .onnx, .stablehlo, got model.pt.",
    ),
    "an export of many models": (
        ("export", "stacked.st", "-o", "model.onnx"),
        1,
        "stacked.st: model must be a single one, got a stack of shape (2,); use "
        "jax.vmap",
    ),
    "no such command": (("learn", "train.csv"), 2, "No such command 'learn'."),
}


@pytest.fixture(scope="module")
def models(folder, tmp_path_factory):
    """Model files, which tests of bad input copy."""
    from contextlib import chdir

    where = tmp_path_factory.mktemp("models")
    with chdir(folder):
        good("train", "train.csv", "--target", "kind", "-m", where / "model.st", *SMALL)
        heights = ("train", "train-height.csv", "--target", "height", "--regression")
        good(*heights, "-m", where / "height.st", *SMALL)
    state = bj.arow.init(bj.RBF(1.0), num_features=3, budget=10)
    bj.save(where / "python.st", state)
    rows, errors = np.array([100, 200]), np.array([0.3, 0.25])
    bj.save(where / "curve.st", bj.StreamModel(bj.Labelled(state), rows, errors))
    states = bj.grid(gamma=[0.1, 1.0]).init(
        lambda gamma: bj.arow.init(bj.RBF(gamma), num_features=2, budget=10)
    )
    bj.save(where / "stacked.st", states)
    X, y = data(20)
    codes = np.where(y == "yes", 1, -1)
    bj.save(where / "batch.st", bj.sdca.init(X, codes, kernel=bj.RBF(1.0)))
    return where


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize("name", BAD)
def test_bad_input(at, models, name):
    for path in models.iterdir():
        (at / path.name).write_bytes(path.read_bytes())
    make_bad_files()
    arguments, code, message = BAD[name]
    before = {path.name: path.read_bytes() for path in at.iterdir()}
    result = run(*arguments)
    assert result.exit_code == code
    *first, last = result.stderr.splitlines()
    start = "Error: " if code == 2 else "budgetjax: error: "
    assert last.startswith(start), result.stderr
    assert len(first) == (3 if code == 2 else 0)
    if message is not None and message.endswith(ALTERED):
        assert last.startswith(f"{start}{message}")
    elif message is not None:
        assert last == start + message.format(at=os.path.realpath(at))
    # Nothing was written, and nothing written over.
    assert {path.name: path.read_bytes() for path in at.iterdir()} == before


def test_a_bad_row_after_many_good_ones_leaves_no_predictions(at, models):
    X, y = data()
    many = table(np.tile(X, (300, 1)), np.tile(y, 300))
    bad = many.slice(0, 89_999).to_pydict()
    bad = pa.table(bad | {"a": [*bad["a"][:-1], float("inf")]})
    pa.csv.write_csv(bad, at / "bad.csv")
    (at / "out.txt").write_text("before")
    result = run("predict", models / "model.st", "bad.csv", "-o", "out.txt")
    assert result.exit_code == 1
    assert "got inf in row 89998, column 'a'" in result.stderr
    assert Path("out.txt").read_text() == "before"
    assert not [path for path in at.iterdir() if path.name.startswith(".")]


def test_a_missing_extra_is_named(at, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("train", "train.csv", *TRAIN)
    assert (result.exit_code, result.stderr) == (
        1,
        "budgetjax: error: csv needs pyarrow: pip install pyarrow, or budgetjax with "
        "the extra [stream]\n",
    )


def test_click_missing_is_one_line(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "budgetjax.cli.commands")
    monkeypatch.setitem(sys.modules, "click", None)
    says = r"^budgetjax: error: the command line needs click: .* the extra \[cli\]$"
    with pytest.raises(SystemExit, match=says):
        main()


def test_memory_that_there_is_not_is_one_line(at, monkeypatch):
    result = run("train", "train.csv", *TRAIN, "--budget", "1000000")
    assert result.exit_code == 1
    assert re.fullmatch(
        r"budgetjax: error: out of memory for --budget 1000000, which needs "
        r"11,175.[0-9] GiB; this computer has [\d,.]+ GiB\n",
        result.stderr,
    )

    def exhausted(*given, **more):
        raise jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 9 bytes.")

    monkeypatch.setattr("budgetjax.cli.learners.made", exhausted)
    result = run("train", "train.csv", *TRAIN)
    assert result.stderr.endswith(
        "budgetjax: error: out of memory INTERNAL: Out of memory allocating 9 bytes.\n"
    )
    assert not Path("new.st").exists()


# Sweeps.


def test_sweep(at):
    output = good(
        *("sweep", "train.csv", "--target", "kind", "--budget", "5,10"),
        *("--output", "sweep.csv", *QUICK),
    )
    first, _, header, *rows = output.splitlines()
    assert first == "train.csv: 300 rows, 2 classes, perceptron"
    assert header.split() == ["gamma", "budget", "error", "vectors"]
    X, y = data()
    scaled = Scaling.empty(2).updated(X).apply(X)
    gammas = [float(f"{times * usual_gamma():.4g}") for times in (0.25, 0.5, 1, 2, 4)]
    grid = bj.grid(gamma=gammas, budget=[5, 10])
    states = grid.init(
        lambda gamma, budget: bj.perceptron.init(
            bj.RBF(gamma),
            num_features=2,
            budget=budget,
            capacity=10,
            maintenance=bj.RemoveSmallest(),
        )
    )
    found = bj.sweep(bj.perceptron, states, scaled, np.where(y == "yes", 1, -1))
    expected = dict(zip(zip(*grid.columns, strict=True), found.error, strict=True))
    cells = [[float(cell) for cell in row.split()] for row in rows]
    for gamma, budget, error, vectors in cells:
        # The table has four digits.
        assert error == pytest.approx(float(expected.pop((gamma, budget))), abs=5e-5)
        assert vectors == budget
    assert not expected
    assert [row[2] for row in cells] == sorted(row[2] for row in cells)
    with open("sweep.csv", newline="") as file:
        names, *saved = csv.reader(file)
    assert names == ["gamma", "budget", "error", "vectors"]
    assert [f"{float(row[2]):.4g}" for row in saved] == [row.split()[2] for row in rows]


def test_sweep_of_settings_and_of_the_first_rows(at):
    output = good(
        *("sweep", "train.libsvm", "--learner", "pegasos", "--rows", "100"),
        *("--gamma", "0.5", "--set", "regularization=0.1,0.01", *SMALL),
        *("--set", "maintenance=remove-smallest"),
    )
    first, _, header, *rows = output.splitlines()
    assert first == ("train.libsvm: the first 100 rows (--rows), 2 classes, pegasos")
    assert header.split() == ["gamma", "budget", "regularization", "error", "vectors"]
    assert sorted(float(row.split()[2]) for row in rows) == [0.01, 0.1]


def test_sweep_of_a_regression_trains_its_best(at):
    heights = ("train-height.csv", "--target", "height", "--regression")
    given = ("--set", "learning_rate=0.1,0.02", *REMOVES)
    output = good(
        *("sweep", *heights, *given, "--gamma", "0.0325,0.2", "--budget", "10"),
        *("--model", "model.st", "--output", "sweep.csv"),
    )
    first, _, header, *lines = output.splitlines()
    assert first == "train-height.csv: 300 rows, numbers, sgd"
    assert header.split() == ["gamma", "budget", "learning_rate", "error", "vectors"]
    with open("sweep.csv", newline="") as file:
        _, *rows = csv.reader(file)
    best, *_ = rows
    # As they were typed, and with the digits that float32 has.
    assert {row[0] for row in rows} == {"0.0325", "0.2"}
    assert all(len(row[3]) <= 10 for row in rows)
    X, _ = data()
    y = (10 + X[:, 0] - X[:, 1]).round(4)
    state = bj.sgd.init(
        bj.RBF(float(best[0])),
        num_features=2,
        budget=10,
        num_classes=None,
        loss=optax.losses.squared_error,
        learning_rate=float(best[2]),
        maintenance=bj.RemoveSmallest(),
    )
    scaled = Scaling.empty(2).updated(X).apply(X)
    _, scores = bj.run(bj.sgd, state, scaled, y - y.mean())
    root = np.sqrt(np.mean((scores - (y - y.mean())) ** 2))
    assert float(best[3]) == pytest.approx(root, rel=1e-4)
    # And then as `train` does.
    said = report("\n".join(lines[5:]))
    assert said["kernel"] == f"Gaussian, gamma {float(best[0]):.4g}"
    swept = bj.load("model.st")
    rate = f"learning_rate={best[2]}"
    train(*heights, "--gamma", best[0], "--set", rate, *REMOVES)
    same(bj.load("model.st").state, swept.state)


def test_sweep_takes_all_cores_also_where_no_process_is_bound_to_some(monkeypatch):
    from budgetjax.cli.sweep import _use_all_cores

    told = []
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(jax.config, "update", lambda *given: told.append(given))
    _use_all_cores()
    assert told == [("jax_num_cpu_devices", 3)]


# Pictures.


def figures(monkeypatch):
    """The figures that `plot` saves."""
    from matplotlib.figure import Figure

    saved, save = [], Figure.savefig

    def savefig(figure, *given, **more):
        saved.append(figure)
        return save(figure, *given, **more)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return saved


def test_pictures_of_models(at, models, monkeypatch):
    saved = figures(monkeypatch)
    assert good("plot", models / "curve.st", "-o", "m.png") == "picture: m.png\n"
    assert Path("m.png").read_bytes().startswith(b"\x89PNG")
    (curve,) = saved[-1].axes
    (line,) = curve.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [100, 200])
    np.testing.assert_allclose(line.get_ydata(), [30, 25])
    assert curve.get_xlabel() == "rows read"
    assert curve.get_ylabel() == "mistakes so far (%)"

    good("plot", models / "height.st", "-o", "m.pdf")
    assert Path("m.pdf").read_bytes().startswith(b"%PDF")
    curve, plane, bar = saved[-1].axes
    assert curve.get_ylabel() == "root mean squared error so far"
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("east", "north")
    assert bar.get_ylabel() == "predicted"


def test_picture_of_several_models(at, models, monkeypatch):
    saved = figures(monkeypatch)
    curve = models / "curve.st"
    good("plot", curve, models / "model.st", "-o", "m.png")
    (axes,) = saved[-1].axes
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["curve.st", "model.st"]


def test_picture_of_images(at, models, monkeypatch):
    saved = figures(monkeypatch)
    good("plot", models / "model.st", "--images", "1x2", "-o", "m.png")
    (axes,) = saved[-1].axes
    assert [text.get_text() for text in axes.get_yticklabels()] == ["no", "yes"]


def test_picture_of_reliability(at, models, monkeypatch):
    saved = figures(monkeypatch)
    X, y = data()
    given = models / "model.st"
    good("plot", given, "--test", "train.csv", "-o", "m.png")
    (axes,) = saved[-1].axes
    model = bj.load(given)
    chances = bj.probabilities(model, X)
    expected = bj.plots.reliability_curve(chances, y, model.model.classes)
    np.testing.assert_allclose(axes.get_lines()[-1].get_xydata().T, expected, atol=1e-6)
    for name, file, code, says in (
        (models / "python.st", "train.csv", 2, "python.st is not calibrated"),
        (given, "new.csv", 1, "new.csv: must have the target kind"),
    ):
        np.savetxt("new.csv", X[:5], "%g", ",", header="a,b", comments="")
        result = run("plot", name, "--test", file, "-o", "m.png")
        assert result.exit_code == code
        assert says in result.stderr


def test_picture_of_regions(at, monkeypatch):
    saved = figures(monkeypatch)
    train("train.three", "--no-refit", *QUICK)
    good("plot", "model.st", "-o", "m.svg")
    assert "<svg" in Path("m.svg").read_text()[:2000]
    _, plane = saved[-1].axes
    words = [text.get_text() for text in plane.get_legend().get_texts()]
    assert words == ["0", "1", "2"]
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("feature 1", "feature 2")
    dots = plane.collections[-1].get_offsets()
    model = bj.load("model.st")
    scaled = model.scaling.apply(np.asarray(dots, np.float32))
    support = bj.support(model.state)
    np.testing.assert_allclose(scaled, support.vectors[support.mask], atol=1e-4)


def test_pictures_of_sweeps(monkeypatch, tmp_path):
    saved = figures(monkeypatch)
    names = ("gamma", "budget", "regularization", "error", "vectors")
    rows = tuple(
        (gamma, budget, weight, 0.1 * gamma + budget / 1000 + weight, budget)
        for gamma in (1.0, 2.0)
        for budget in (10, 20, 30)
        for weight in (0.5, 0.0)
    )
    draw(
        str(tmp_path / "s.png"),
        lambda: _figure(bj.Table(names, rows), list(names[:3]), "a.csv"),
    )
    heat, bar = saved[-1].axes
    expected = [[11, 12, 13], [21, 22, 23]]
    np.testing.assert_allclose(heat.images[0].get_array(), expected)
    assert [text.get_text() for text in heat.texts][:3] == ["11", "12", "13"]
    assert (heat.get_ylabel(), heat.get_xlabel()) == ("gamma", "budget")
    assert bar.get_ylabel() == "progressive error (%), best over regularization"
    assert heat.patches[0].get_xy() == (-0.5, -0.5)
    one = tuple(row for row in rows if row[1] == 10 and row[2] == 0)
    (axes,) = _figure(bj.Table(names, one), list(names[:3]), "a.csv").axes
    line, best = axes.get_lines()
    np.testing.assert_allclose(line.get_ydata(), [11, 21])
    assert (axes.get_xlabel(), best.get_xydata().tolist()) == ("gamma", [[1, 11]])


LABELS = {
    "codes": ["007", "7", "0"],
    "beyond float64": ["1000000000000000000", "1000000000000000001", "5"],
    "beyond 64 bits": ["36893488147419103232", "36893488147419103233", "5"],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_csv_stay_what_they_are(at, kind):
    """In training, with --classes and --test, and in what predict writes and counts."""
    X = np.random.default_rng(0).normal(size=(N, 2)).round(3)
    y = np.array(LABELS[kind])[np.digitize(X[:, 0], [-0.4, 0.4])]
    rows = [f"{a},{b},{one}\n" for (a, b), one in zip(X, y, strict=True)]
    Path("a.csv").write_text("a,b,kind\n" + "".join(rows))
    # Nothing in this one says that they are codes.
    plain = [row for row, one in zip(rows, y, strict=True) if not one.startswith("0")]
    Path("plain.csv").write_text("a,b,kind\n" + "".join(plain))
    given = ("--test", "plain.csv", "--classes", ",".join(LABELS[kind]), *QUICK)
    said = train("a.csv", *given, "--no-refit")
    assert said["classes"] == ", ".join(LABELS[kind])
    assert float(said["test error"].split("%")[0]) < 50
    assert good("predict", "model.st", "a.csv", "-o", "out.txt").startswith("accuracy")
    assert set(Path("out.txt").read_text().split()) == set(LABELS[kind])
    assert good("predict", "model.st", "plain.csv", "-o", "p").startswith("accuracy")
    counts = {one: np.sum(y == one) for one in LABELS[kind]}
    listed = train("a.csv", *QUICK, "--no-refit")["classes"]
    ordered = sorted(counts, key=str if kind != "beyond float64" else int)
    assert listed == ", ".join(f"{one} ({counts[one]})" for one in ordered)


def test_several_files_are_one(at):
    lines = Path("train.csv").read_text().splitlines(keepends=True)
    Path("parts").mkdir()
    Path("parts/0.csv").write_text("".join(lines[:100]))
    with gzip.open("parts/1.csv.gz", "wt") as file:
        file.write("".join([lines[0], *lines[100:]]))
    train("train.csv", *QUICK)
    whole = bj.load("model.st")
    good("predict", "model.st", "train.csv", "-o", "whole.txt")
    for files in (["parts"], ["parts/0.csv", "parts/1.csv.gz"]):
        train(*files, "--target", "kind", *QUICK)
        same(bj.load("model.st").state, whole.state)
        good("predict", "model.st", *files, "-o", "out.txt")
        assert Path("out.txt").read_bytes() == Path("whole.txt").read_bytes()
    assert report(good("info", "model.st"))["file of training"] == "0.csv, 1.csv.gz"
    result = run("train", "train.libsvm", "test.libsvm", "-m", "new.st")
    assert (result.exit_code, result.stderr) == (
        1,
        "budgetjax: error: path must be one file of libsvm, got ['train.libsvm', "
        "'test.libsvm']\n",
    )


def test_a_file_without_rows_has_no_predictions(at, models):
    Path("none.csv").write_text("b,a\n")
    given = ("predict", models / "model.st", "none.csv")
    assert good(*given, "-o", "none.txt") == "predicted: 0 rows\n"
    assert Path("none.txt").read_bytes() == b""
    assert good(*given, "--scores", "--quiet") == "prediction,score\n"
    Path("none.csv").write_text("a,b,kind\n")
    result = run("train", "none.csv", "--target", "kind", "-m", "new.st")
    assert (result.exit_code, result.stderr) == (
        1,
        "budgetjax: error: none.csv: the file must have rows, got none\n",
    )


def test_decimal_commas(at):
    text = Path("train.csv").read_text().replace(",", ";").replace(".", ",")
    Path("europe.csv").write_text(text)
    train("train.csv", *QUICK)
    expected = bj.load("model.st").state
    train("europe.csv", *QUICK, "--delimiter", ";", "--decimal", ",")
    same(bj.load("model.st").state, expected)
    result = run("train", "europe.csv", *TRAIN, "--delimiter", ";")
    assert result.stderr.endswith("'; --decimal , reads decimal commas\n")


def test_the_model_is_written_though_nobody_reads_the_report(at):
    command = [sys.executable, "-m", "budgetjax", "train", "train.csv", *TRAIN, *QUICK]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=writer, timeout=300)
    os.close(writer)
    assert done.returncode == 0
    assert bj.load("new.st").num_rows == N


def test_bytes_that_are_no_text_are_not_sent_to_the_terminal(at):
    Path("a.txt").write_bytes(b"\x1b[31m\x07 1:1\n")
    result = run("train", "a.txt", "-m", "new.st")
    assert "got '\\x1b[31m\\x07' in row 0" in result.stderr
    Path("a.csv").write_bytes(gzip.compress(b"a,kind\n1,x\n"))
    result = run("train", "a.csv", *TRAIN)
    assert result.stderr == (
        "budgetjax: error: a.csv: the file must be CSV in UTF-8, with numbers as "
        "features, got a file of gzip: its name must end in .gz\n"
    )


def test_info(at, models):
    # The learner has seen each row in the stream, and once more from the reservoir.
    model = bj.load(models / "model.st")
    assert good("info", models / "model.st") == textwrap.dedent(f"""\
        type:               StreamModel
        written by:         budgetjax {bj.__version__}, JAX {jax.__version__}
        algorithm:          pegasos
        maintenance:        Merge
        classes:            2: no, yes
        file of training:   train.csv
        target of training: kind
        refit of training:  True
        rows read:          300, and a sample of them again
        progressive error:  {100 * model.error:.2f}%
        scaling:            every feature to deviation 1
        columns:            a, b
        features:           2
        support vectors:    10 of at most 10
        kernel:             RBF(gamma={usual_gamma():.6g}, exact=False)
        regularization:     0.0001
        rows learned:       600
        num mistakes:       {int(model.state.num_mistakes)}
        num updates:        {int(model.state.num_updates)}
        """)
    found = json.loads(good("info", models / "model.st", "--json"))
    state = model.state
    assert found == {
        "type": "StreamModel",
        "written_by": f"budgetjax {bj.__version__}, JAX {jax.__version__}",
        "algorithm": "pegasos",
        "maintenance": "Merge",
        "classes": ["no", "yes"],
        "file_of_training": "train.csv",
        "target_of_training": "kind",
        "refit_of_training": True,
        "rows_read": 300,
        "progressive_error": model.error,
        "scaling": "every feature to deviation 1",
        "columns": ["a", "b"],
        "features": 2,
        "support_vectors": {"active": 10, "budget": 10},
        "kernel": f"RBF(gamma={usual_gamma():.6g}, exact=False)",
        "regularization": 1e-4,
        "rows_learned": 600,
        "num_mistakes": int(state.num_mistakes),
        "num_updates": int(state.num_updates),
    }
    for name in ("stacked.st", "height.st", "curve.st", "batch.st"):
        assert json.loads(good("info", models / name, "--json"))
    said = report(good("info", models / "stacked.st"))
    assert said["models"] == "2, stacked"
    said = report(good("info", models / "height.st"))
    assert said["kernel"].startswith("RBF(")
    assert said["progressive error"].endswith("(root of the mean square)")


def test_export(at, models):
    said = good("export", models / "model.st", "-o", at / "model.onnx")
    assert said == f"exported: {at / 'model.onnx'}, of rows in float32\n"
    session = onnxruntime.InferenceSession(at / "model.onnx")
    X = data(TESTED, seed=1)[0].astype(np.float32)
    labels, chances = session.run(["label", "probabilities"], {"X": X})
    model = bj.load(models / "model.st")
    assert labels.tolist() == model.predict(X).tolist()
    np.testing.assert_allclose(chances, bj.probabilities(model, X), atol=1e-5)


@pytest.mark.parametrize(("now", "unit"), [(1.7e12, 1e3), (1.8e18, 1e9)])
def test_export_of_times_in_milliseconds_and_nanoseconds(tmp_path, now, unit):
    a, b = np.random.default_rng(0).normal(size=(2, 1000))
    X = np.column_stack([np.round(now + unit * a), b])
    lines = [f"{t:.0f},{v},{'y' if t * v > now * v else 'n'}" for t, v in X.tolist()]
    (tmp_path / "times.csv").write_text("\n".join(["time,b,t", *lines]))
    path = tmp_path / "model.st"
    good("train", tmp_path / "times.csv", "--target", "t", "-m", path, *QUICK)
    expected = bj.load(path).predict(X)
    assert np.mean(expected == [line[-1] for line in lines]) > 0.9
    for suffix in ("onnx", "stablehlo"):
        said = good("export", path, "-o", tmp_path / f"model.{suffix}")
        assert said.endswith(", of rows in float64\n")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (labels,) = session.run(["label"], {"X": X})
    assert np.mean(labels == expected) > 0.999
    with zipfile.ZipFile(tmp_path / "model.stablehlo") as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        about = json.loads(file.read("about.json"))
    with pytest.raises(ValueError, match="expected float64 and called with float32"):
        program.call(X)
    with jax.enable_x64(about["dtype"] == "float64"):
        found = program.call(X.astype(about["dtype"]))
    labels = np.array(about["classes"])[np.asarray(found["label"])]
    assert np.mean(labels == expected) > 0.999


def own_loss(score, y):
    return (score - y) ** 2


def test_info_of_a_model_that_only_python_can_make(at):
    state = bj.sgd.init(
        bj.RBF(1.0), num_features=2, budget=10, num_classes=None, loss=own_loss
    )
    bj.save("model.st", state)
    said = report(good("info", "model.st"))
    assert said["algorithm"] == "sgd"
    assert "own_loss" in said["not shown"]
    result = run("predict", "model.st", "test.csv")
    assert result.exit_code == 1
    assert "own_loss" in result.stderr


# Processes.


def started(*arguments, **more):
    """The command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "budgetjax", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_a_process_has_the_exit_code_and_no_traceback(at):
    process = started("train", "none.csv", "--target", "kind", "-m", "model.st")
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (1, "")
    assert stderr == "budgetjax: error: none.csv: No such file or directory\n"


INTERRUPTED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from budgetjax.cli import reading, main

def interrupted(*given):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

reading.check_target = interrupted
sys.argv = ["budgetjax", "train", "train.csv", "-m", "model.st"]
main()
"""


def test_control_c_ends_a_process_without_a_traceback(at):
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "\nbudgetjax: interrupted\n"


def test_control_c_while_modules_are_imported(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_run", interrupted)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with pytest.raises(SystemExit) as raised:
        main()
    assert raised.value.code == 130
    assert capsys.readouterr().err == "\nbudgetjax: interrupted\n"


def test_control_c_is_not_lost_in_a_callback_of_the_garbage_collector(monkeypatch):
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(sys, "unraisablehook", cli._unraisable)

    def interrupted(phase, info):
        gc.callbacks.remove(interrupted)
        raise KeyboardInterrupt

    gc.callbacks.append(interrupted)
    try:
        gc.collect()
        with pytest.raises(KeyboardInterrupt):
            time.sleep(60)
    finally:
        signal.signal(signal.SIGINT, before)


HEAVY = """
import sys
from budgetjax.cli.commands import budgetjax
try:
    budgetjax(["--help"])
except SystemExit:
    pass
names = "jax optax pyarrow scipy sklearn pandas matplotlib tqdm safetensors".split()
print([name for name in names if name in sys.modules])
# The names of the package are there when they are asked for, and modules hide none.
from budgetjax.refitting.refit import refit
from budgetjax.online.sweep import sweep
import budgetjax as bj
print(bj.refit is refit, bj.sweep is sweep, bj.arow.init is not None, hasattr(bj, "x"))
from budgetjax.cli import learners, options, targets
job = learners.Job(None, targets.Look([0, 1], None, ""), options.TrainOptions())
chosen = [job.choice(refits=on) for on in (True, False)]
print([one.algorithm.name for one in chosen])
print([name for name in ("sklearn", "pandas") if name in sys.modules])
"""


def test_help_loads_nothing_heavy():
    done = subprocess.run(
        [sys.executable, "-c", HEAVY], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-4:] == [
        "[]",
        "True True True False",
        "['pegasos', 'arow']",
        "[]",
    ]


@pytest.mark.parametrize(
    "command", ["train", "predict", "sweep", "info", "plot", "export"]
)
def test_help_is_for_newcomers(command):
    text = good(command, "--help")
    assert text.startswith(f"Usage: budgetjax {command} [OPTIONS] ")
    if command != "info":
        assert f"  budgetjax {command} " in text
    assert command in good("--help")
    assert good("-h") == good("--help")


def test_version():
    assert good("--version") == f"budgetjax {bj.__version__}\n"


def test_warnings_of_the_caller_are_left_as_they_were(at):
    before = warnings.showwarning
    run("train", "none.csv", *TRAIN)
    assert warnings.showwarning is before
