"""The command line: every command on every kind of file, and what it says of errors."""

import contextlib
import csv
import dataclasses
import gc
import gzip
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
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
from scipy.sparse import csr_array

import budgetjax as bj
from budgetjax import _checks, _progress, _record, cli, estimators, online, registry
from budgetjax.cli import learners, main, options, reading, solving, targets
from budgetjax.cli.commands import budgetjax as group
from budgetjax.cli.plot import draw
from budgetjax.cli.sweep_command import _figure, _use_all_cores
from budgetjax.refitting import held_out, training_data
from budgetjax.saving import model_files
from budgetjax.solvers import one_versus_rest
from budgetjax.stream import batches, fit
from budgetjax.tables.scaling import Scaling

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

N, TESTED = 300, 60
# Of a learner that is quick to compile; all models here share compiled programs.
QUICK = "--budget 10 --learner perceptron --maintenance remove-smallest"
# For `train`, whose refit tries a metric otherwise.
PLAIN = f"{QUICK} --learn-metric no"
OF_HEIGHTS = "--target height --regression --budget 10 --maintenance remove-smallest"
REMOVES = {"maintenance": bj.RemoveSmallest()}


def data(n=N, seed=0):
    """Two classes by the signs of two features, with some noise."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, 2)).round(3)
    noise = 0.05 * random.normal(size=n)
    return X, np.where(X[:, 0] * X[:, 1] + noise > 0, "yes", "no")


def new_data():
    return data(TESTED, seed=1)


def heights(X):
    return (10 + X[:, 0] - X[:, 1]).round(4)


def three(X):
    return np.digitize(X[:, 0], [-0.4, 0.4])


def scaled(X):
    return Scaling.empty(2).updated(X).apply(X)


def usual_gamma(file="train.csv"):
    """What train takes for this data, as it writes the columns."""
    X, _ = data()
    numbers = bj.fit_encoding(X, 10).apply(X)
    return 2 * bj.default_gamma(numbers)


def table(X, y, names=("a", "b"), **more):
    """A table of Arrow, with the features, the target `kind`, and more columns."""
    columns = {name: X[:, i] for i, name in enumerate(names)}
    return pa.table({**columns, **({} if y is None else {"kind": y}), **more})


def write_csv(path, *columns, **more):
    pa.csv.write_csv(table(*columns, **more), path)


def write_libsvm(path, X, codes):
    lines = (
        f"{code} " + " ".join(f"{i + 1}:{value}" for i, value in enumerate(x) if value)
        for x, code in zip(X, codes, strict=True)
    )
    path.write_text("".join(f"{line}\n" for line in lines))


def write_files(folder):
    """Files of the same rows in all formats."""
    for name, (X, y) in (("train", data()), ("test", new_data())):
        whole, codes = table(X, y), np.where(y == "yes", 1, -1)
        write_csv(folder / f"{name}.csv", X, y)
        text = (folder / f"{name}.csv").read_bytes()
        (folder / f"{name}.csv.gz").write_bytes(gzip.compress(text))
        pa.parquet.write_table(whole, folder / f"{name}.parquet")
        pa.feather.write_feather(whole, folder / f"{name}.feather")
        np.save(folder / f"{name}.npy", X)
        np.save(folder / f"{name}-kind.npy", y)
        write_libsvm(folder / f"{name}.libsvm", X, codes)
        write_libsvm(folder / f"{name}.three", X, three(X))
        plane = table(X, None, ("east", "north"), height=heights(X))
        pa.csv.write_csv(plane, folder / f"{name}-height.csv")


def write_models(folder):
    """Models of the command line and of Python."""
    good("train train.csv --target kind --budget 10 --learn-metric no -m model.st")
    good(f"train train-height.csv {OF_HEIGHTS} --learn-metric no -m height.st")
    state = bj.AROW().init(bj.RBF(1.0), num_features=3, budget=10)
    bj.save("python.st", state)
    rows, errors = np.array([100, 200]), np.array([0.3, 0.25])
    bj.save("curve.st", bj.StreamModel(bj.TableModel(state), rows, errors))
    states = bj.grid(gamma=[0.1, 1.0]).init(
        lambda gamma: bj.AROW().init(bj.RBF(gamma), num_features=2, budget=10)
    )
    bj.save("stacked.st", states)
    X, y = data(20)
    codes, solver = np.where(y == "yes", 1, -1), bj.SDCA(bj.RBF(1.0))
    bj.save("batch.st", solver.init(solver.read(X, codes)))


def write_bad_files(folder):
    """Files with one fault each."""
    X, y = data()
    lines = Path("train.csv").read_text().splitlines(keepends=True)
    for name, line in (
        ("missing", ",1,yes"),
        ("infinite", "inf,1,yes"),
        ("range", "1e200,1,yes"),
        ("label", "1,1,maybe"),
    ):
        edited = [*lines[:18], f"{line}\n", *lines[19:]]
        Path(f"{name}.csv").write_text("".join(edited))
    write_csv("one.csv", X, ["yes"] * N)
    write_csv("numbers.csv", X, X[:, 0])
    write_csv("narrow.csv", X, y, ("a",))
    Path("bare.csv").write_text("1,2,3\n4,5,6\n")
    model = Path("model.st").read_bytes()
    Path("truncated.st").write_bytes(model[:-50])
    Path("altered.st").write_bytes(model[:-9] + bytes([model[-9] ^ 1]) + model[-8:])
    Path("nothing.st").write_bytes(b"")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files and models, never written to by tests."""
    folder = tmp_path_factory.mktemp("cli")
    with contextlib.chdir(folder):
        for write in (write_files, write_models, write_bad_files):
            write(folder)
    return folder


@pytest.fixture
def at(folder, tmp_path, monkeypatch):
    """A folder to work in, with links to these files."""
    for path in folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def no_lines(monkeypatch):
    """However slow this computer is, nothing takes so long that it is worth a line."""
    monkeypatch.setattr(options, "SECONDS", 1e9)


def run(line, *more, input=None):
    """A command in this process; nothing but an exit code may come out of it."""
    result = CliRunner().invoke(group, [*line.split(), *map(str, more)], input=input)
    expected = result.exception is None or isinstance(result.exception, SystemExit)
    if not expected:
        raise result.exception
    return result


def good(line, *more):
    """The standard output of a command that succeeds and has no complaint."""
    result = run(line, *more)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def fails(line, *more, **given):
    """What a command says that fails on bad data or a bad model."""
    result = run(line, *more, **given)
    assert result.exit_code == 1
    return result.stderr


def report(text):
    """Lines `name: value` of a report."""
    return dict(re.split(r": +", line, maxsplit=1) for line in text.splitlines())


def train(files, more=""):
    """The report of a training into `new.st`, and the model."""
    named = "--target" in more or Path(files).suffix in (".libsvm", ".three")
    target = "" if named else "--target kind"
    said = report(good(f"train {files} {target} -m new.st {more}"))
    return said, bj.load("new.st")


def train_quickly(files, more=""):
    return train(files, f"{PLAIN} --no-refit {more}")


def predicted(file, more="", model="new.st"):
    """What is said of the predictions of a file, and the predictions."""
    said = good(f"predict {model} {file} -o out.txt {more}")
    return said, Path("out.txt").read_text().splitlines()


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def accuracy(right):
    return f"accuracy: {100 * right / TESTED:.2f}% ({right} of {TESTED} rows)\n"


FORMATS = ["csv", "csv.gz", "parquet", "feather", "npy", "libsvm"]


# In one process, which compiles their learner once.
@pytest.mark.parametrize(
    "end", [pytest.param(end, id=f"{end}@formats") for end in FORMATS]
)
def test_a_model_of_every_format_is_the_same_and_predicts_as_in_python(at, end):
    X, y = new_data()
    target = "--target {}-kind.npy" if end == "npy" else ""
    said, model = train_quickly(f"train.{end}", target.format("train"))
    of_libsvm = end == "libsvm"
    classes = "-1 (158), 1 (142)" if of_libsvm else "no (158), yes (142)"
    assert said["classes"] == classes
    same(model.state, python_model().state)
    output, labels = predicted(f"test.{end}", target.format("test"))
    assert labels == list(map(str, model.predict(X)))
    if of_libsvm:
        y = np.where(y == "yes", "1", "-1")
    assert output == accuracy(np.sum(y == labels))


def test_the_report_of_train(at, monkeypatch):
    monkeypatch.setattr(held_out.Fold, "prefers", lambda *scores: False)
    output = good(
        "train train.csv --target kind --model new.st --test test.csv --budget 10"
        " --encode 0"
    )
    fitted = bj.load("new.st")
    X, y = new_data()
    error = 100 * np.mean(fitted.predict(X) != y)
    rows, labels = data()
    learned = np.mean(fitted.predict(rows) != labels)
    when = "of rows before they were learned, by the stream, without the refit"
    expected = textwrap.dedent(f"""\
        data:               train.csv, 2 features
        classes:            no (158), yes (142)
        columns:            in units of their quartiles, outliers clipped
        kernel:             Gaussian, gamma {fitted.state.kernel.gamma:.4g}
        learner:            pegasos, at most 10 support vectors
        read:               300 rows
        progressive error:  {100 * fitted.error:.2f}%, {when}
        metric:             none, as held-out rows are too few or predicted no better
        training error:     {100 * learned:.2f}%, of rows that the model has learned
        model:              new.st
        test error:         {error:.2f}%, 60 rows of test.csv
        time:               0.0 seconds
        """)
    assert re.sub(r"[\d.]+ seconds", "0.0 seconds", output) == expected
    assert error < 25
    assert model_files.read("new.st")[1] == {
        "file": "train.csv",
        "target": "kind",
        "solver": None,
        "training_error": learned,
    }
    said = report(good("info new.st"))
    assert (
        said["training error"] == f"{100 * learned:.2f}%, of rows that it has learned"
    )


def test_few_rows_are_learned_as_by_the_estimator(at):
    settings = "--set regularization=1e-3 --maintenance remove-smallest --seed 3"
    _, model = train("train.csv", f"--target kind --budget 10 {settings}")
    learner = bj.Pegasos(regularization=1e-3)
    estimator = estimators.BudgetedKernelClassifier(
        10, learner=learner, maintenance="remove_smallest", random_state=3
    )
    X, y = data()
    same(model.state, estimator.fit(X, y).state_)
    X, _ = new_data()
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    chances = estimator.predict_proba(X)
    np.testing.assert_array_equal(bj.probabilities(model, X), chances)
    assert (model.num_rows, model.model.feature_names) == (N, ("a", "b"))
    assert model.recipe.seed == 3


def test_quiet_says_nothing(at):
    learned = f"train train.csv --target kind -m new.st --no-refit {PLAIN} --quiet"
    assert good(learned) == ""
    said, labels = predicted("test.csv", "--quiet")
    assert (said, len(labels)) == ("", TESTED)


def test_a_model_is_there_though_its_test_fails(at):
    says = "label.csv: y must be one of 'no', 'yes', got 'maybe' in row 17"
    command = f"train train.csv --target kind -m new.st {PLAIN} --test label.csv"
    assert says in fails(command)
    assert predicted("test.csv")[0].startswith("accuracy")


def test_labels_that_are_not_known_are_predicted_all_the_same(at):
    train_quickly("train.libsvm")
    _, labels = predicted("test.libsvm")
    write_libsvm(at / "new.libsvm", new_data()[0], np.zeros(TESTED, int))
    says = "no accuracy: new.libsvm: y must be one of -1, 1, got 0 in row 0\n"
    assert predicted("new.libsvm") == (says, labels)


def test_predictions_on_standard_output_leave_the_accuracy_to_the_other(at):
    said, _ = predicted("test.csv", model="model.st")
    result = run("predict model.st test.csv")
    assert result.stdout == Path("out.txt").read_text()
    assert result.stderr == said


def test_scores_and_probabilities_of_two_classes(at, monkeypatch):
    scored, evaluate = [], bj.TableModel.evaluate

    def counted(model, *given):
        scored.append(model)
        return evaluate(model, *given)

    monkeypatch.setattr(bj.TableModel, "evaluate", counted)
    predicted("test.csv", "--scores", "model.st")
    assert len(scored) == 1
    header, *rows = rows_of("out.txt")
    assert header == ["prediction", "score"]
    model, X = bj.load("model.st"), new_data()[0]
    assert [row[0] for row in rows] == model.predict(X).tolist()
    scores = [np.float32(row[1]) for row in rows]
    np.testing.assert_array_equal(scores, model.decision_function(X))
    predicted("test.csv", "--probabilities", "model.st")
    header, *rows = rows_of("out.txt")
    assert header == ["prediction", "probability_no", "probability_yes"]
    assert [row[0] for row in rows] == model.predict(X).tolist()
    chances = np.array([row[1:] for row in rows]).astype(np.float64)
    np.testing.assert_allclose(chances, bj.probabilities(model, X), rtol=1e-4)


def test_scores_of_three_classes(at):
    _, model = train_quickly("train.three", "--epochs 2")
    predicted("test.three", "--scores")
    header, *rows = rows_of("out.txt")
    assert header == ["prediction", "score_0", "score_1", "score_2"]
    X = new_data()[0]
    assert [int(row[0]) for row in rows] == model.predict(X).tolist()
    scores = np.array([row[1:] for row in rows]).astype(np.float32)
    np.testing.assert_array_equal(scores, model.decision_function(X))
    # The Perceptron with removal compiles quickly and is far from the best: it swings
    # between 57 and 73 % with the rows that come last. To guess the largest class is
    # right on 42 %.
    assert np.mean(model.predict(X) == three(X)) > 0.5


def test_labels_with_commas_and_quotes_are_cells_of_csv(at):
    X, y = data()
    write_csv("odd.csv", X, np.where(y == "yes", 'a "b", c', "d"))
    _, model = train_quickly("odd.csv")
    predicted("odd.csv")
    assert [cell for (cell,) in rows_of("out.txt")] == model.predict(X).tolist()


def test_regression(at):
    said, model = train("train-height.csv", OF_HEIGHTS)
    X = new_data()[0]
    output, values = predicted("test-height.csv")
    np.testing.assert_array_equal(np.array(values, float), model.predict(X))
    root = np.sqrt(np.mean((model.predict(X) - heights(X)) ** 2))
    assert output == f"root mean squared error: {root:.4g}, 60 rows\n"
    # The offset of 10 is learned: the deviation of the heights is 1.4.
    assert root < 0.5
    assert re.fullmatch(r"mean (9.[89]|10.0)\d*, deviation 1.\d+", said["target"])
    assert said["learner"] == "sgd, at most 10 support vectors"
    when = "of rows before they were learned, by the stream, without the refit"
    assert said["progressive error"].endswith(f" (root of the mean square), {when}")


def test_a_regressor_is_that_of_the_estimator(at):
    X, _ = new_data()
    y = 1000 + (X[:, 0] - X[:, 1]).round(4)
    write_csv("far.csv", X, None, height=y)
    given = "--target height --regression --learn-metric no --penalty 10 --loss huber"
    _, model = train("far.csv", given)
    given = {"penalty": 10.0, "random_state": 0, "learn_metric": False, "loss": "huber"}
    estimator = estimators.BudgetedKernelRegressor(**given).fit(X, y)
    found = model.predict(new_data()[0])
    np.testing.assert_array_equal(found, estimator.predict(X))
    # The deviation is 1.4; with so narrow a kernel 60 rows are few.
    assert np.sqrt(np.mean((found - y) ** 2)) < 0.8


@pytest.mark.parametrize("end", ["csv", "npy"])
def test_several_targets_are_those_of_the_estimator(end, at):
    X, _ = data()
    Y = np.stack([1000 + X[:, 0], (X[:, 0] * X[:, 1]).round(4)], axis=1)
    given = "--regression --learn-metric no --penalty 10 --budget 10"
    given += " --maintenance remove-smallest"
    more = {"north": Y[:, 0], "east": Y[:, 1]}
    write_csv("two.csv", X, None, **more)
    np.save("two.npy", X)
    np.save("two-y.npy", Y)
    both = "--target north --target east" if end == "csv" else "--target two-y.npy"
    said, model = train(f"two.{end}", f"{given} {both}")
    choice = {"penalty": 10.0, "random_state": 0, "learn_metric": False, "budget": 10}
    choice |= {"maintenance": "remove_smallest"}
    estimator = estimators.BudgetedKernelRegressor(**choice).fit(X, Y)
    found = model.predict(X)
    np.testing.assert_array_equal(found, estimator.predict(X))
    roots = np.sqrt(np.mean((found - Y) ** 2, axis=0))
    text = ", ".join(f"{one:.4g}" for one in roots)
    assert said["training error"].startswith(f"{text} (root of the mean square), of")
    assert re.match(r"mean \d+\.\d, deviation .*; mean", said["target"])
    names = ["north", "east"] if end == "csv" else ["prediction_0", "prediction_1"]
    again = "" if end == "csv" else both
    output, (header, *lines) = predicted(f"two.{end}", again)
    assert output == f"root mean squared error: {text}, 300 rows\n"
    assert header.split(",") == names
    written = [list(map(float, line.split(","))) for line in lines]
    np.testing.assert_array_equal(written, found)
    if end == "csv":
        assert "target of training: north, east\n" in good("info new.st")
        assert json.loads(good("info new.st --json"))["target_of_training"] == names
        tested = report(good(f"train two.csv {given} {both} -m o.st --test two.csv"))
        assert tested["test error"].startswith(f"{text} (root of the mean square), 300")


def test_intervals_of_several_targets_are_named(at):
    X, _ = data()
    write_csv("two.csv", X, None, north=X[:, 0], east=X[:, 1] ** 2)
    both = "--target north --target east"
    plain = "--learn-metric no --budget 10 --maintenance remove-smallest"
    _, model = train("two.csv", f"--regression {plain} {both}")
    _, (header, *lines) = predicted("two.csv", "--interval 0.9")
    assert header == "north,north_low,north_high,east,east_low,east_high"
    table = np.array([line.split(",") for line in lines], float).reshape(-1, 2, 3)
    np.testing.assert_array_equal(table[..., 0], model.predict(X))
    ends = bj.predict_interval(model, X, 0.9)
    np.testing.assert_allclose(table[..., 1:], ends, rtol=1e-6)
    # One of them alone is no target, so it may be a column of no use.
    write_csv("north.csv", X, None, north=X[:, 0])
    assert predicted("north.csv")[0] == "predicted: 300 rows\n"
    says = "north.csv: must have 2 targets, as the model, got 1"
    assert says in fails("predict new.st north.csv --target north -o out.txt")


def test_columns_are_taken_by_their_names(at):
    _, labels = predicted("test.csv", model="model.st")
    X, _ = new_data()
    number = [f"row {i}" for i in range(TESTED)]
    write_csv("moved.csv", X[:, ::-1], None, ("b", "a"), number=number)
    found = predicted("moved.csv", model="model.st")
    assert found == ("predicted: 60 rows\n", labels)


def test_columns_left_out_and_columns_without_names(at):
    X, y = data()
    expected = python_model()
    more = table(X, y, number=[f"row {i}" for i in range(N)], other=np.zeros(N))
    pa.csv.write_csv(more, at / "more.csv")
    _, model = train_quickly("more.csv", "--ignore number --ignore other")
    same(model.state, expected.state)
    bare = pa.csv.WriteOptions(include_header=False)
    pa.csv.write_csv(more, at / "bare-more.csv", bare)
    unnamed = "--ignore 3 --ignore 4 --target 2 --no-header"
    _, model = train_quickly("bare-more.csv", unnamed)
    same(model.state, expected.state)
    pa.csv.write_csv(table(X, y), at / "last.csv", bare)
    train_quickly("last.csv", "--target -1 --no-header")
    output, labels = predicted("last.csv", "--target 2 --no-header")
    assert labels == expected.predict(X).tolist()
    assert output.startswith("accuracy: ")


def python_model(source=None, **more):
    """What `train` makes of the small file, as `train_quickly` calls it."""
    source = source or bj.stream.read("train.csv", target="kind")
    given = {"refit": False, "learn_metric": False} | more
    given = {"learner": bj.Perceptron(), "maintenance": "remove_smallest"} | given
    recipe = bj.Recipe(budget=10, **given)
    return bj.train(recipe, source)


def codes(y):
    return np.where(y == "yes", 1, -1)


def test_the_stream_and_the_refit_are_those_of_python(at):
    _, streamed = train_quickly("train.csv", "--gamma 0.4")
    expected = python_model(gamma=0.4)
    same(streamed.state, expected.state)
    np.testing.assert_array_equal(streamed.rows, expected.rows)
    np.testing.assert_array_equal(streamed.errors, expected.errors)
    _, model = train("train.csv", f"{PLAIN} --gamma 0.4 --penalty 3")
    same(model.state, python_model(gamma=0.4, penalty=3.0, refit=True).state)


def test_a_metric_is_that_of_python(at):
    """Where one helps, since one of the features says nothing."""
    X, _ = data()
    stripes = np.where(np.sin(3 * X[:, 0]) > 0, "yes", "no")
    write_csv("striped.csv", X, stripes)
    said, model = train("striped.csv", f"{PLAIN} --learn-metric yes")
    source = bj.stream.read("striped.csv", target="kind")
    expected = python_model(source, refit=True, learn_metric=True)
    same(model.state, expected.state)
    assert said["metric"] == "learned"
    assert model.importances[0] > model.importances[1]
    assert report(good("info new.st"))["importances"].startswith("a (")
    said, _ = train("striped.csv", PLAIN)
    assert "metric" not in said


def test_a_long_table_is_encoded_and_a_metric_learned(at, monkeypatch):
    # As if 1,200 rows were more than a sample has.
    monkeypatch.setattr("budgetjax.training.sample.default_size", lambda width: 800)
    random = np.random.default_rng(0)
    X = np.stack([np.exp(2 * random.normal(size=1500)), random.uniform(0, 9, 1500)], 1)
    y = np.where((np.log(X[:, 0]) > 0) ^ (X[:, 1] // 2 % 2 > 0), "yes", "no")
    write_csv("unlike.csv", X[:1200], y[:1200])
    said, model = train("unlike.csv", "--budget 20")
    codes = re.fullmatch(r"2, as (\d+) codes", said["columns"])
    assert codes is not None
    assert model.scaling.map.shape[0] == int(codes[1])
    assert said["metric"] == "learned"
    assert np.mean(model.predict(X[1200:]) == y[1200:]) > 0.9


def counted(monkeypatch):
    """How often a file is read from now on, in a list."""
    reads, opened_as = [], reading.open_source

    def opened(*given, **more):
        source = opened_as(*given, **more)

        def read():
            reads.append(1)
            return source.read()

        return dataclasses.replace(source, read=read)

    monkeypatch.setattr(reading, "open_source", opened)
    return reads


def test_a_small_file_is_read_once(at, monkeypatch):
    reads = counted(monkeypatch)
    train("train.csv", f"{PLAIN} --epochs 2")
    assert len(reads) == 1


@pytest.mark.parametrize("fits", [True, False])
def test_epochs_do_not_count_for_what_the_refit_holds(at, monkeypatch, fits):
    """The 300 rows of one epoch, labels and weights: parsed once if they fit.

    Else every pass reads the file, and the model is the same.
    """
    monkeypatch.setattr("budgetjax.training.sample.default_size", lambda width: 200)
    monkeypatch.setattr("budgetjax.cli.targets.default_size", lambda width: 200)
    expected = train("train.csv", f"{PLAIN} --epochs 2")[1]
    monkeypatch.setattr(training_data, "HELD", 300 * 4 * (32 + 1 + 1) - (not fits))
    reads = counted(monkeypatch)
    _, model = train("train.csv", f"{PLAIN} --epochs 2")
    # For the sample, twice for the stream, once for the refit, whose passes are many,
    # and once for the error.
    assert (len(reads) <= 5) == fits
    same(model.state, expected.state)


def test_features_far_from_0_are_learned_as_well(at):
    X, y = data()
    write_csv("far.csv", X + 1e6, y)
    near = report(good("info model.st"))["progressive error"]
    said, _ = train("far.csv", "--budget 10 --learn-metric no")
    near, far = (float(one.split("%")[0]) for one in (near, said["progressive error"]))
    assert abs(near - far) < 1
    assert np.mean(np.array(predicted("far.csv")[1]) == y) > 0.85


def test_epochs_settings_and_classes(at):
    said, model = train(
        "train.parquet",
        "--budget 10 --no-refit --epochs 2 --classes yes,no --set confidence=0.5 "
        "--gamma 0.4 --maintenance merge",
    )
    assert said["classes"] == "yes (142), no (158)"
    assert said["read"] == "300 rows, 2 times"
    assert said["learner"] == "arow, at most 10 support vectors, confidence 0.5"
    assert model.num_rows == 600
    learner = bj.AROW(confidence=0.5)
    expected = python_model(
        learner=learner, maintenance="merge", gamma=0.4, epochs=2, learn_metric="auto"
    )
    # The other order of the classes is the other sign.
    one, other = (bj.support(each.state).coefficients for each in (model, expected))
    np.testing.assert_allclose(one, -other, rtol=1e-5, atol=1e-6)


def test_another_learner_without_scaling(at):
    learner = "--learner nystrom --loss logistic --budget 10"
    said, model = train("train.csv", f"{learner} --no-refit --encode no")
    assert said["learner"] == "nystrom, at most 10 support vectors"
    assert model.state.learner.loss.func is bj.losses.logistic
    assert said["columns"] == "as they are"
    assert model_files.header("new.st")["about"]["learner"] == "Nystrom"
    assert model.scaling is None


def test_options_are_the_fields_of_a_recipe():
    recipe = {one.name: one.default for one in dataclasses.fields(bj.Recipe)}
    found = group.commands["train"].make_context("train", ["a.csv", "-m", "b"]).params
    of_rows = options.Columns._fields
    own = {"file", "model", "test", "settings", "classes", "class_weight"}
    assert found.keys() - recipe.keys() - {*of_rows} == own | {"checkpoint", "quiet"}
    # Arrays and averages are for Python.
    only_python = {"average", "vectors", "capacity", "shuffle"}
    assert recipe.keys() - found.keys() == only_python
    shared = found.keys() & recipe.keys() - {"learner"}
    assert {key: found[key] for key in shared} == {key: recipe[key] for key in shared}


def test_every_learner_can_be_named():
    text = " ".join(good("train --help").split()).replace("- ", "-")
    assert options.online_names() == tuple(map(option_of, registry.learner_classes()))
    assert options.solver_names() == tuple(map(option_of, registry.solver_classes()))
    for name in (*options.online_names(), *options.solver_names()):
        # In the list of names, and a solver in the text above it too.
        times = 1 if name in options.online_names() else 2
        assert len(re.findall(rf"(?<![\w-]){name}(?![\w-])", text)) >= times


def option_of(name):
    return name.replace("_", "-")


def test_settings_are_the_fields_of_a_learner(at):
    given = "--set variant=PA-II --set penalty=2 --maintenance remove-smallest"
    _, model = train(
        "train.csv", f"--learner passive-aggressive --budget 10 --no-refit {given}"
    )
    state = model.state
    expected = bj.PassiveAggressive(variant="PA-II", penalty=2.0)
    assert type(state.learner) is type(expected)
    assert state.learner.variant == expected.variant
    assert float(state.learner.penalty) == expected.penalty
    assert isinstance(state.maintenance, bj.RemoveSmallest)


def test_learners_are_listed_with_their_settings():
    text, _, strategies = good("learners").partition("\n\n")
    listed = report(text)
    assert tuple(listed) == options.all_names()
    assert "--maintenance: " in strategies
    assert "remove-oldest" in strategies
    assert listed["pegasos"].startswith("Pegasos on a budget: ")
    said = " ".join(good("learners forgetron").split())
    assert "It learns two classes. Settings," in said
    assert "phi of the fixed rule, above 0 and at most 1; otherwise None. [" in said
    assert "rule " in said
    assert "[default: 'self-tuned']" in said
    assert "maintenance" not in said
    said = " ".join(good("learners ahpatron").split())
    # Without the markup of docstrings.
    assert "None for sqrt{B} / 2. [default: None]" in said
    for name, kind in registry.learner_classes().items():
        said = good(f"learners {option_of(name)}")
        about = dict(re.findall(r"^  (\w+) +(.*)", said, re.MULTILINE))
        fields = {field.name for field in dataclasses.fields(kind)}
        fields -= {"optimizer", "loss"}
        assert fields <= set(about)
        # All are described.
        assert not [name for name, text in about.items() if text.startswith("[")]
        targets = said[said.index("It learns ") :].split(".")[0]
        assert ("numbers" in targets) == kind.learns(None)
        assert ("classes" in targets) == kind.learns(2)


def test_a_registered_learner_is_known_by_its_name(at, monkeypatch):
    monkeypatch.setattr(online, "registered", {})
    monkeypatch.setattr(_record, "records", dict(_record.records))

    @bj.register
    class SlowLearner(bj.Learner):
        """A Perceptron with a rate.

        Args:
          rate: above 0.
        """

        rate: float = bj.leaf(_checks.positive)
        order: int = bj.static(default=2)

        def update(self, state, score, y, candidate):
            step = self.rate * bj.losses.margin_subgradient(score, y)
            return self.insert(state, step, candidate)

    @bj.register
    class Undescribed(bj.Perceptron):
        pass

    listed = report(good("learners").partition("\n\n")[0])
    assert listed["slow-learner"] == "A Perceptron with a rate."
    # That of its base.
    assert listed["undescribed"] == listed["perceptron"]
    said = good("learners slow-learner")
    assert re.search(r"\n  rate +above 0\.  \[required\]\n", said)
    assert re.search(r"\n  order +\[default: 2\]\n", said)
    given = f"{LEARN} --no-refit --learner slow-learner --maintenance remove-smallest"
    result = run(given)
    assert result.exit_code == 2
    assert (
        "--set: rate must be given, as it has no default, got nothing" in result.stderr
    )
    good(f"{given} --set rate=0.25 --set order=3")
    learner = bj.load("new.st").state.learner
    assert (float(learner.rate), learner.order) == (0.25, 3)


# Weights, separators, pipes.


def test_weights_of_rows_and_of_classes(at):
    X, y = data()
    w = np.where(np.arange(N) % 3, 1.0, 2.0)
    write_csv("weighted.csv", X, y, w=w)
    _, model = train_quickly("weighted.csv", "--weight w --class-weight no=0.5")
    assert model.model.feature_names == ("a", "b")
    source = [(X, y, np.where(y == "no", 0.5, 1.0) * w)]
    same(model.state, python_model(source).state)
    # The column of weights of the training is none of the features.
    predicted("weighted.csv")
    four = batches.Batches("four", 1, lambda: iter([(X[:4], y)]))
    y = np.array(["no", "yes", "yes", "yes"])
    _, factors = targets._class_weights(four, "balanced", None)
    np.testing.assert_allclose(factors, [2, 2 / 3])
    sweep = f"sweep weighted.csv --target kind {QUICK} --budget 5,10"
    assert good(sweep, "--weight", "w") != good(sweep, "--ignore", "w")


def test_rows_of_weight_0_are_not_there_for_a_solver(at, monkeypatch):
    given = []

    def solve(solver, data, **arguments):
        given.append(data)
        return known(solver, data)

    known = one_versus_rest.solve
    monkeypatch.setattr(one_versus_rest, "solve", solve)
    X, y = data()
    w = np.where(np.arange(N) % 3, 0.0, 1.0)
    write_csv("some.csv", X, y, w=w)
    train("some.csv", "--weight w --class-weight no=2 --learner dcd")
    (read,) = given
    # Patterns: the rows and a constant, times the label.
    rows = np.asarray(read.X.values)[:, :2] * np.asarray(read.y)[:, None]
    there = X[w > 0]
    expected = bj.encoding.fit(there, 0).apply(there)
    np.testing.assert_allclose(rows, expected, rtol=1e-6)
    np.testing.assert_array_equal(read.weight, np.where(y == "no", 2.0, 1.0)[w > 0])


def test_rows_of_weight_0_are_not_there_for_a_stream(at):
    X, y = data()
    there = np.arange(2 * N) % 2 == 1
    both, labels = 1e4 * (1 + np.repeat(X, 2, axis=0)), np.repeat(y, 2)
    both[there] = X
    write_csv("masked.csv", both, labels, w=np.where(there, 1.0, 0.0))
    _, masked = train_quickly("masked.csv", "--weight w")
    _, alone = train_quickly("train.csv")
    same(masked.state, alone.state)


def test_separators_and_formats(at):
    text = Path("train.csv").read_text()
    expected = python_model()
    semicolons, tabs = text.replace(",", ";"), text.replace(",", "\t")
    for file, content, more in (
        ("a.data", semicolons, "--format csv --delimiter ;"),
        ("b.csv", tabs, "--delimiter tab"),
        ("b.csv", tabs, "--delimiter \\t"),
        ("c.tsv", tabs, ""),
        ("d.csv", semicolons.replace(".", ","), "--delimiter ; --decimal ,"),
    ):
        Path(file).write_text(content)
        _, model = train_quickly(file, f"--target kind {more}")
        same(model.state, expected.state)
        assert predicted(file, more)[1] == expected.predict(data()[0]).tolist()
    Path("libsvm.csv").write_text(Path("train.libsvm").read_text())
    _, labels = predicted("libsvm.csv", "--format libsvm")
    assert labels == expected.predict(data()[0]).tolist()


def test_standard_input_and_pipes(at):
    given, expected = Path("train.csv").read_bytes(), python_model()
    command = f"train - --target kind -m new.st --no-refit {PLAIN} --format csv"
    result = run(command, input=given)
    assert (result.exit_code, result.stderr) == (0, "")
    assert report(result.stdout)["data"] == "standard input, 2 features"
    same(bj.load("new.st").state, expected.state)
    good(
        f"{command.replace('-', 'train.csv', 1)} --encode no".replace(
            "new.st", "raw.st"
        )
    )
    said = fails(
        "predict raw.st - --format csv", input=Path("missing.csv").read_bytes()
    )
    assert said == (
        "budgetjax: error: standard input: X must be finite, got nan in row 17, column "
        "'a'\n"
    )
    os.mkfifo("pipe.csv")
    writer = threading.Thread(target=Path("pipe.csv").write_bytes, args=(given,))
    writer.start()
    _, labels = predicted("pipe.csv")
    writer.join()
    assert labels == expected.predict(data()[0]).tolist()


def test_a_model_that_takes_gaps_reads_libsvm_text(at):
    # As one whose columns are codes does, which is what `train` mostly makes of it.
    X, y = data()
    codes = bj.encoding.fit(X, 2)
    state = bj.AROW().init(bj.RBF(0.5), num_features=4, budget=10)
    model = bj.fit_stream(state, [(X, y)], encode=codes, classes=["no", "yes"])
    bj.save("new.st", model)
    labels = predicted("train.libsvm")[1]
    assert labels == model.predict(data()[0]).tolist()


# Texts and gaps.


def test_texts_are_categories_and_gaps_have_a_code(at):
    X, y = data()
    random = np.random.default_rng(3)
    colour = random.choice(["red", "green", "blue"], N)
    a = pa.array(X[:, 0], mask=random.random(N) < 0.2)
    rows = pa.table({"colour": colour, "a": a})
    pa.csv.write_csv(rows.append_column("kind", pa.array(y)), at / "odd.csv")
    plain = "--budget 10 --maintenance remove-smallest --learn-metric no"
    said, model = train("odd.csv", f"{plain} --test odd.csv")
    assert said["data"] == "odd.csv, 2 features"
    assert model.model.categories == {"colour": ("blue", "green", "red")}
    scores, labels = model.decision_function(rows), model.predict(rows).tolist()
    assert predicted("odd.csv")[1] == labels
    wrong = 100 * np.mean(np.array(labels) != y)
    assert said["test error"].startswith(f"{wrong:.2f}%")
    # Columns in another order, of another format, with a text that is new.
    new = pa.table({"a": a, "b": a, "colour": np.where(colour == "red", "pink", "red")})
    pa.parquet.write_table(new, at / "new.parquet")
    assert predicted("new.parquet")[1] == model.predict(new).tolist()
    good("export new.st -o model.onnx")
    session = onnxruntime.InferenceSession("model.onnx")
    places = np.searchsorted(["blue", "green", "red"], colour)
    numbers = np.stack([places, rows["a"].to_numpy()], axis=1).astype(np.float32)
    (found,) = session.run(["scores"], {"X": numbers})
    np.testing.assert_allclose(found, scores, atol=1e-4)
    assert fails("predict new.st train.csv -o none.txt") == (
        "budgetjax: error: train.csv: X must have the columns that the model was "
        "trained on, got one without 'colour'\n"
    )
    # Without the estimator's choice, by a stream and by a solver.
    for more in (f"{plain} --no-refit", "--learner dcd"):
        said, model = train("odd.csv", more)
        assert said["columns"]
        assert bj.TableModel.of(model).scaling.num_codes >= 5
        assert predicted("odd.csv")[1] == model.predict(rows).tolist()


def test_lists_folders_and_an_index_are_columns(at):
    X, y = data()
    lists = pa.array(X.tolist(), pa.list_(pa.float32()))
    whole = pa.table({"e": lists, "kind": y, "id": np.arange(N)[::-1]})
    about = {b"pandas": json.dumps({"index_columns": ["id"]}).encode()}
    pa.parquet.write_table(whole.replace_schema_metadata(about), at / "lists.parquet")
    said, model = train_quickly("lists.parquet")
    assert said["data"] == "lists.parquet, 2 features"
    assert model.model.feature_names == ("e[0]", "e[1]")
    labels = model.predict(X).tolist()
    assert predicted("lists.parquet")[1] == labels
    # An index is named to be a target, a feature or left out.
    good(f"train lists.parquet --target kind -m o.st {PLAIN} --no-refit --ignore id")
    assert bj.load("o.st").model.feature_names == ("e[0]", "e[1]")
    kinds = dict.fromkeys(y.tolist())
    for kind in kinds:
        (at / "parts" / f"kind={kind}").mkdir(parents=True)
        own = whole.filter(np.array(y) == kind).select(["e"])
        pa.parquet.write_table(own, at / "parts" / f"kind={kind}" / "0.parquet")
    found = predicted("parts")[1]
    order = np.argsort(y, kind="stable")
    assert found == np.array(labels)[order].tolist()
    longer = pa.array(np.c_[X, X].tolist(), pa.list_(pa.float32()))
    pa.parquet.write_table(pa.table({"e": longer}), at / "longer.parquet")
    assert "X must have lists of 2 in 'e'" in fails("predict new.st longer.parquet")


# Solvers.


def test_every_solver_is_given_its_arguments():
    kernel = bj.RBF(0.5)
    for kind in registry.SOLVERS:
        name = option_of(registry.name_of(kind))
        choices = {"maintenance": None, "budget": 70, "penalty": 3.0}
        asked = learners.make_recipe(learner=name, settings={}, **choices)
        assert asked.learner == "auto"
        make, of_run = solving._read_settings(kind, asked, {})
        solver = make() if kind.linear else make(kernel)
        assert of_run == {}
        assert getattr(solver, "penalty", 3.0) == 3.0
        if kind is bj.BudgetSVM:
            assert solver.norm.budget == 70
    settings = {"loss": "squared-hinge", "max_steps": 7, "tolerance": 0.1}
    make, of_run = solving._read_settings(bj.DCD, bj.Recipe(penalty=3.0), settings)
    assert bj.equal(make(), bj.DCD(3.0, loss="squared_hinge", tolerance=0.1))
    assert of_run == {"max_steps": 7}
    settings = {"norm": "l2", "cache_size": 9}
    make, of_run = solving._read_settings(bj.BudgetSVM, bj.Recipe(budget=70), settings)
    expected = bj.BudgetSVM(kernel, bj.norms.TwoInfinity(70), options.SOLVER_PENALTY)
    assert bj.equal(make(kernel), expected)
    assert of_run == {"cache_size": 9}


def test_solvers_have_the_defaults_of_their_estimators():
    of = {bj.SBP: estimators.SBPClassifier, bj.MPU: estimators.MPUClassifier}
    assert set(of) == set(solving.CLASSIFIER_DEFAULTS)
    for kind, usual in solving.CLASSIFIER_DEFAULTS.items():
        defaults = of[kind]().get_params()
        assert usual == {key: defaults[key] for key in usual}
    for one in (estimators.BudgetSVC(), estimators.MPUClassifier()):
        assert one.penalty == options.SOLVER_PENALTY


def test_classes_share_kernel_rows_and_no_rows_are_kept(monkeypatch):
    given = []

    def solve(solver, data, **arguments):
        given.append((solver, data, arguments["cache"]))
        return bj.solve(solver, data, **arguments)

    monkeypatch.setattr(one_versus_rest, "solve", solve)
    y, random = np.array(["a", "b", "c", "b"]), np.random.RandomState(0)
    classes = np.array(["a", "b", "c"])
    X, solver = np.arange(4.0)[:, None], bj.SDCA(bj.RBF(1.0), batch_size=2)
    found = one_versus_rest.one_versus_rest(
        solver, X, y, classes, random=random, max_steps=1
    )
    # Kernel rows are as large as the cache: with 26 classes, 13 GiB.
    assert [one.state.rows for one in found] == [None, None, None]
    assert [data.y.tolist() for _, data, _ in given] == [
        *([1, -1, -1, -1], [-1, 1, -1, 1], [-1, -1, 1, -1])
    ]
    assert len({id(data.X) for _, data, _ in given}) == 1
    assert len({id(cache) for *_, cache in given}) == 1
    assert [int(one.history.work[0]) for one in found] == [16, 0, 0]
    assert len({one.seed for one, *_ in given}) == 3


def test_a_solver_of_a_file_is_that_of_python(at):
    said, model = train("train.three", "--learner smo --penalty 3 --gamma 0.4")
    names = "data classes columns kernel learner read support_vectors model time"
    assert list(said) == [name.replace("_", " ") for name in names.split()]
    assert said["learner"] == "smo, penalty 3"
    assert said["read"] == "300 rows, all of them in memory"
    X, _ = data()
    for label, one in enumerate(model.model):
        signs = np.where(three(X) == label, 1, -1)
        rows = bj.encoding.fit(X, 0).apply(X)
        expected = bj.solve(bj.SMO(bj.RBF(0.4), penalty=3.0), rows, signs)
        same(one, expected.model)
    output, labels = predicted("test.three")
    X, _ = new_data()
    assert list(map(int, labels)) == model.predict(X).tolist()
    assert float(re.findall(r"[\d.]+", output)[0]) > 90
    said = report(good("info new.st"))
    assert said["solver of training"] == "smo"
    assert said["models"] == "3, one per class; the first:"
    assert said["scaling"] == "2 columns as 2 codes"
    # Models that each have vectors of their own are drawn as far as the scaling goes.
    good("plot new.st -o m.png")
    said = good("export new.st -o model.onnx")
    assert said == "exported: model.onnx, of rows in float32\n"
    session = onnxruntime.InferenceSession("model.onnx")
    (labels,) = session.run(["label"], {"X": X.astype(np.float32)})
    assert labels.tolist() == model.predict(X).tolist()


def test_a_solver_says_how_columns_are_written(at):
    said, model = train("train.three", "--learner dcd --encode 3")
    assert said["columns"] == "2, as 6 codes"
    assert model.encoding.num_codes == 6
    said, _ = train("train.three", "--learner dcd")
    assert said["columns"] == "in units of their quartiles, outliers clipped"


def test_a_linear_solver_leaves_libsvm_text_sparse(at):
    _, model = train("train.three", "--learner mpu --encode no --seed 5")
    X, _ = data()
    estimator = estimators.MPUClassifier(random_state=5)
    same(model.model, estimator.fit(csr_array(X), three(X)).model_.model)
    predicted("test.three", "--scores")
    _, *rows = rows_of("out.txt")
    assert [int(row[0]) for row in rows] == model.predict(new_data()[0]).tolist()


def test_memory_that_there_is_not_is_one_line(at, monkeypatch):
    # No model has more vectors than rows.
    good(f"{LEARN} {PLAIN} --no-refit --budget 1000000")
    Path("new.st").unlink()
    said = fails(f"{LEARN} --learner fourier --budget 1000000000")
    assert "budget must be" in said
    assert "GiB" in said
    with monkeypatch.context() as patch:
        patch.setattr(_checks, "host_memory", lambda: 300 * 2 * solving.BYTES - 1)
        assert fails("train train.libsvm -m new.st --learner mpu") == (
            "budgetjax: error: out of memory for all rows of train.libsvm "
            "(--encode no keeps LIBSVM text sparse), which needs 0.0 GiB; 0.0 GiB "
            "are free\n"
        )

    def exhausted(*given, **more):
        raise jax.errors.JaxRuntimeError("INTERNAL: Out of memory allocating 9 bytes.")

    monkeypatch.setattr("budgetjax.training.fit.init_model", exhausted)
    assert fails(f"{LEARN} --learn-metric no").endswith(
        "budgetjax: error: out of memory INTERNAL: Out of memory allocating 9 bytes.\n"
    )
    assert not Path("new.st").exists()


# Interruptions, progress and warnings.


def interrupt(monkeypatch, after=0):
    """Ctrl-C is pressed when some batches are learned."""
    learned, seen = fit._learn_batch, []

    def interrupted(*given):
        seen.append(None)
        if len(seen) > after:
            raise KeyboardInterrupt
        return learned(*given)

    monkeypatch.setattr(fit, "_learn_batch", interrupted)


def test_an_interrupted_run_goes_on_from_its_checkpoint(at, monkeypatch):
    command = f"train train.csv --target kind --quiet --epochs 4 {PLAIN} --no-refit -m"
    good(f"{command} undisturbed.st --checkpoint other.ckpt")
    kept = "--checkpoint run.ckpt"
    with monkeypatch.context() as patch:
        interrupt(patch, after=2)
        result = run(f"{command} new.st {kept}")
    assert result.exit_code == 130
    assert result.stderr == (
        "\nbudgetjax: interrupted: the same command goes on from run.ckpt\n"
    )
    assert not Path("new.st").exists()
    said = report(good("info run.ckpt"))
    assert said["checkpoint"] == "after 512 rows of a stream"
    good(f"{command} new.st {kept}")
    same(bj.load("new.st").state, bj.load("undisturbed.st").state)
    # Of another run it is refused, and kept.
    before = Path("run.ckpt").read_bytes()
    assert fails(f"{command} other.st {kept} --gamma 2") == (
        "budgetjax: error: checkpoint run.ckpt must be of the same "
        "learner, hyperparameters, classes, intercept, encoding and reservoir, got "
        "one of others; delete it to start anew\n"
    )
    assert Path("run.ckpt").read_bytes() == before
    assert not Path("other.st").exists()


def test_a_run_without_checkpoint_says_what_is_lost(at, monkeypatch):
    def interrupted(*given, **more):
        raise KeyboardInterrupt

    monkeypatch.setattr("budgetjax.training.fit.stream", interrupted)
    result = run(f"{LEARN} {PLAIN}")
    assert result.exit_code == 130
    assert result.stderr == (
        "\nbudgetjax: interrupted: nothing is written; --checkpoint FILE lets a run go "
        "on\n"
    )
    assert not Path("new.st").exists()


def test_progress_is_on_standard_error(at, monkeypatch):
    monkeypatch.setattr("budgetjax.cli.options.shows_progress", lambda quiet: not quiet)
    result = run(f"{LEARN} {PLAIN}")
    assert result.exit_code == 0
    assert re.search(r"train.csv: 100%.*300/300", result.stderr)
    assert "refit: " in result.stderr
    assert "%|" not in result.stdout
    assert "predict: " in run("predict new.st test.csv -o out.txt").stderr


def test_progress_without_a_terminal_is_in_lines(at, monkeypatch):
    monkeypatch.setattr(options, "SECONDS", 0.0)
    result = run(f"{LEARN} {PLAIN} --no-refit")
    assert result.exit_code == 0
    # The first report only starts the clock.
    assert re.fullmatch(
        r"train.csv: 300 of 300 rows, [\d,.e+]+ rows/s, 10 vectors\n",
        result.stderr,
    )
    assert run(f"{LEARN} {PLAIN} --no-refit --quiet").stderr == ""


def test_the_rate_of_progress_leaves_out_the_first_report(monkeypatch, capsys):
    now = iter([100.0, 101.0, 130.0, 140.0, 161.0])
    monkeypatch.setattr(_progress.time, "monotonic", lambda: next(now))
    with (
        _progress.print_lines(30.0),
        _progress.progress_bar("here", True, "rows") as report,
    ):
        for count in (1000, 30, 30, 20, 11):
            report("gap 1", count)
    assert capsys.readouterr().err == (
        "here: 1,060 rows, 2 rows/s, gap 1\nhere: 1,091 rows, 1 rows/s, gap 1\n"
    )


def test_warnings_are_one_line(at, monkeypatch):
    X, y = data()
    write_csv("uneven.csv", np.stack([X[:, 0], 1e4 * X[:, 1]], axis=1), y)
    order = np.argsort(y, kind="stable")
    write_csv("sorted.csv", X[order], y[order])
    given = f"--target kind -m new.st {PLAIN} --no-refit"
    before = warnings.showwarning
    result = run(f"train uneven.csv {given} --encode no")
    assert result.exit_code == 0
    assert result.stderr.startswith(
        "budgetjax: warning: uneven.csv: features look unscaled: column 1 "
    )
    assert result.stderr.count("\n") == 1
    assert warnings.showwarning is before
    good(f"train uneven.csv {given}")
    # In random order they are learned if they fit into a sample.
    good(f"train sorted.csv {given}")
    monkeypatch.setattr("budgetjax.training.sample.default_size", lambda width: 200)
    result = run(f"train sorted.csv {given}")
    assert result.exit_code == 0
    assert result.stderr == (
        "budgetjax: warning: sorted.csv: the rows look sorted by class: 1 of 300 have "
        "another one than the row before; a stream needs them in random order, so "
        "shuffle the source\n"
    )


# Models made in Python.


def python_models():
    """Of kinds that the command line does not make."""
    weights = np.array([1.0, -2.0], np.float32)
    linear = bj.LinearModel(jnp.asarray(weights), jnp.float32(0.5))
    X, y = data(20)
    solver = bj.SMO(bj.RBF(0.5))
    solution = bj.solve(solver, X.astype(np.float32), codes(y), max_steps=0)
    solution = solution._replace(model=linear)
    vectors = jnp.asarray(X.astype(np.float32))
    signs = jnp.asarray(codes(y).astype(np.float32))
    kernel = bj.KernelModel(bj.RBF(0.5), vectors, signs, jnp.float32(0.25))
    state = bj.Perceptron().init(bj.RBF(0.5), num_features=2, budget=10)
    state, _ = bj.run(state, X, codes(y))
    return {"state": state, "kernel": kernel, "solution": solution, "linear": linear}


def test_models_of_python_predict(at):
    X = new_data()[0]
    for name, model in python_models().items():
        bj.save("own.st", model)
        said, lines = predicted("test.libsvm", "--scores", "own.st")
        model = model.model if name == "solution" else model
        labels, scores = bj.predict(model, X), bj.decision_function(model, X)
        assert lines[0] == "prediction,score"
        cells = [line.split(",") for line in lines[1:]]
        assert [cell for cell, _ in cells] == list(map(str, np.asarray(labels))), name
        # In blocks of another length, sums come in another order.
        written = [np.float32(score) for _, score in cells]
        np.testing.assert_allclose(written, scores, rtol=1e-4, atol=1e-5)
        assert said.startswith("accuracy: ")


def test_estimators_of_python_predict(at):
    X, y = data()
    estimator = estimators.BudgetedKernelClassifier(
        budget=10, learner=bj.Perceptron(), refit=False, random_state=0
    )
    bj.save("own.st", estimator)
    assert fails("predict own.st test.csv") == (
        "budgetjax: error: own.st: model must be the state of an online algorithm, "
        "or a model of a solver, got BudgetedKernelClassifier\n"
    )
    bj.save("own.st", estimator.fit(X, y))
    output, labels = predicted("test.csv", "--target kind", "own.st")
    X, y = new_data()
    assert labels == estimator.predict(X).tolist()
    assert output == accuracy(np.sum(y == labels))
    said = report(good("info own.st"))
    assert said["type"].endswith("BudgetedKernelClassifier")
    assert said["budget"] == "10"
    # What is fitted, and not the parameters of these names.
    assert said["learner"] == "Perceptron(margin=0)"
    assert said["kernel"].startswith("RBF(gamma=")
    assert said["classes"] == "2: no, yes"


def own_loss(score, y):
    return (score - y) ** 2


def test_info_of_a_model_that_only_python_can_make(at):
    state = bj.SGD(loss=own_loss).init(
        bj.RBF(1.0), num_features=2, budget=10, num_classes=None
    )
    bj.save("own.st", state)
    said = report(good("info own.st"))
    assert said["learner"] == "SGD"
    assert "own_loss" in said["not shown"]
    assert "own_loss" in fails("predict own.st test.csv")


# Files of other kinds.


def test_files_of_libsvm_that_start_at_0_and_have_new_indices(at):
    X, y = data()
    rows = zip(X.tolist(), codes(y).tolist(), strict=True)
    lines = [f"{code} 0:{a} 1:{b}" for (a, b), code in rows]
    (at / "zero.libsvm").write_text("\n".join(lines))
    _, model = train_quickly("zero.libsvm", "--zero-based")
    same(model.state, python_model().state)
    (at / "new.libsvm").write_text("\n".join(f"{line} 7:1" for line in lines))
    result = run("predict new.st new.libsvm --zero-based -o out.txt")
    assert result.exit_code == 0
    assert result.stderr == (
        "budgetjax: warning: new.libsvm: indices beyond 1, which the model has not "
        "seen, are left out\n"
    )
    assert Path("out.txt").read_text().split() == list(map(str, model.predict(X)))


def test_predictions_and_models_can_go_to_a_device(at):
    good(f"train train.csv --target kind {PLAIN} --no-refit --model /dev/null")
    output = good("predict model.st test.csv -o /dev/null")
    assert output.startswith("accuracy: ")


def test_classes_that_are_true_or_false(at):
    X, y = data()
    content = table(X, y == "yes")
    content.to_pandas().to_csv(at / "true.csv")
    pa.parquet.write_table(content, at / "true.parquet")
    said, _ = train_quickly("true.csv")
    assert said["classes"] == "False (158), True (142)"
    assert set(predicted("true.parquet")[1]) == {"False", "True"}
    said, _ = train_quickly("true.csv", "--classes true,false")
    assert said["classes"] == "True (142), False (158)"


LABELS = {
    "codes": ["007", "7", "0"],
    "beyond float64": ["1000000000000000000", "1000000000000000001", "5"],
    "beyond 64 bits": ["36893488147419103232", "36893488147419103233", "5"],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_csv_stay_what_they_are(at, kind):
    """In training, with --classes and --test, and in what predict writes and counts."""
    X = data()[0]
    y = np.array(LABELS[kind])[three(X)]
    rows = [f"{a},{b},{one}\n" for (a, b), one in zip(X, y, strict=True)]
    Path("a.csv").write_text("a,b,kind\n" + "".join(rows))
    # Nothing in this one says that they are codes.
    plain = [row for row, one in zip(rows, y, strict=True) if not one.startswith("0")]
    Path("plain.csv").write_text("a,b,kind\n" + "".join(plain))
    given = f"--test plain.csv --classes {','.join(LABELS[kind])}"
    said, _ = train_quickly("a.csv", given)
    assert re.findall(r"(\d+) \(", said["classes"]) == LABELS[kind]
    # All of its rows have one label, of which a weak learner knows some.
    assert float(said["test error"].split("%")[0]) < 90
    said, labels = predicted("a.csv")
    assert said.startswith("accuracy")
    assert set(labels) == set(LABELS[kind])
    assert predicted("plain.csv")[0].startswith("accuracy")
    counts = {one: np.sum(y == one) for one in LABELS[kind]}
    ordered = sorted(counts, key=str if kind != "beyond float64" else int)
    listed = ", ".join(f"{one} ({counts[one]})" for one in ordered)
    assert train_quickly("a.csv")[0]["classes"] == listed


def test_several_files_are_one(at):
    lines = Path("train.csv").read_text().splitlines(keepends=True)
    Path("parts").mkdir()
    Path("parts/0.csv").write_text("".join(lines[:100]))
    with gzip.open("parts/1.csv.gz", "wt") as file:
        file.write("".join([lines[0], *lines[100:]]))
    whole = python_model()
    for files in ("parts", "parts/0.csv parts/1.csv.gz"):
        _, model = train_quickly(files, "--target kind")
        same(model.state, whole.state)
        assert predicted(files)[1] == whole.predict(data()[0]).tolist()
    assert report(good("info new.st"))["file of training"] == "0.csv, 1.csv.gz"


def test_a_file_without_rows_has_no_predictions(at):
    Path("none.csv").write_text("b,a\n")
    assert predicted("none.csv", model="model.st") == ("predicted: 0 rows\n", [])
    given = "predict model.st none.csv --scores --quiet"
    assert good(given) == "prediction,score\n"
    Path("none.csv").write_text("a,b,kind\n")
    assert fails("train none.csv --target kind -m new.st") == (
        "budgetjax: error: none.csv: batches must have rows, got none\n"
    )


# What goes wrong.


LEARN = "train train.csv --target kind -m new.st"
SWEEP = "sweep train.csv --target kind"
# Wrong command lines, and the last line that they write, after "Error: "; "..." at its
# end stands for what click says.
USAGE = """
$ fit train.csv
No such command 'fit'.
$ train train.csv --target kind -m train.csv
--model: train.csv is also another file of the run.
$ train train.csv --target kind -m new.st --checkpoint new.st
--checkpoint: new.st is also another file of the run.
$ predict model.st test.csv -o test.csv
--output: test.csv is also another file of the run.
$ train train.csv -m new.st
Missing option '--target': which of the columns a, b, kind is to be predicted.
$ train train.npy -m new.st
Missing option '--target': in which .npy file what is to be predicted.
$ train train.csv -m new.st --no-header --target kind
--target must be the number of a column with --no-header, from 0 on or from -1
backwards, got 'kind'.
$ train train.csv --target kind --target a -m new.st
--target is given twice, which is for --regression.
$ sweep train.csv --target a --target b --regression
--target: sweep takes one, and train takes several.
$ train train.npy --target a.npy --target b.npy --regression -m new.st
--target is one file, which may have several columns.
$ train train.libsvm --target kind -m new.st
--target is for csv, parquet, arrow, npy, and train.libsvm is taken for libsvm;
--format names another.
$ train train.csv --target kind -m new.st --test test.libsvm
--target is for csv, parquet, arrow, npy, and test.libsvm is taken for libsvm;
--format names another.
$ train train.csv --target kind -m new.st --test test.npy
--test cannot be .npy, got test.npy.
$ train train.libsvm -m new.st --weight w
--weight is for csv, parquet, arrow, npy, and train.libsvm is taken for libsvm;
--format names another.
$ train train.libsvm -m new.st --delimiter ;
--delimiter is for csv, and train.libsvm is taken for libsvm; --format names another.
$ train train.csv --target kind -m new.st --delimiter ;;
Invalid value for '--delimiter': ';;' is not one character, or tab.
$ train - -m new.st
--format must say what standard input is.
$ train train.csv --target kind -m new.st --classes yes
--classes must be at least 2 different labels, got yes.
$ train train.csv --target kind -m new.st --classes a,b --regression
--classes and --regression exclude each other.
$ train train.csv --target kind -m new.st --class-weight balanced --regression
--class-weight and --regression exclude each other.
$ train train.csv --target kind -m new.st --class-weight balanced --classes no,yes
--class-weight balanced and --classes exclude each other: the pass that counts the
classes finds them.
$ train train.csv --target kind -m new.st --class-weight yes=2,maybe=1
--class-weight must be balanced, or LABEL=WEIGHT of the classes no, yes, at least 0,
got maybe=1.
$ train train.csv --target kind -m new.st --class-weight yes=-2
--class-weight must be balanced, or LABEL=WEIGHT of the classes no, yes, at least 0,
got yes=-2.
$ train train.csv --target kind -m new.st --class-weight yes=much
--class-weight must be balanced, or LABEL=WEIGHT of the classes no, yes, at least 0,
got yes=much.
$ train train.csv --target kind -m new.st --budget 0
Invalid value for '--budget': 0 is not in the range 1<=x<=2147483646.
$ train train.csv --target kind -m new.st --gamma -1
Invalid value for '--gamma': -1.0 is not in the range x>0.
$ train train.csv --target kind -m new.st --gamma inf
Invalid value for '--gamma': 'inf' is not a finite number.
$ sweep train.csv --target kind --gamma a,b
Invalid value for '--gamma': 'a' is not a valid float range.
$ sweep train.csv --target kind --budget 10,20,10
Invalid value for '--budget': '10,20,10' has a number twice.
$ sweep train.csv --target kind --set confidence=some,much
Invalid value for '--set': 'some,much' is not a list of numbers.
$ sweep train.csv --target kind --learner smo
Invalid value for '--learner': 'smo' is not one of ...
$ train train.csv --target kind -m new.st --learner svm
Invalid value for '--learner': 'svm' is not one of ...
$ train train-height.csv --target height --regression -m new.st --learner pegasos
--learner must be one of fourier, krlst, norma, nystrom, sgd, mixture for numbers, got
pegasos
$ train train.csv --target kind -m new.st --learner krlst
--learner must be one of ahpatron, alma, arow, forgetron, fourier, norma, nystrom,
passive-aggressive, pegasos, perceptron, projectron, sgd, mixture for classes, got krlst
$ train train.csv --target kind -m new.st --learner arow --set rate=3
--set: settings of arow must be among confidence, drift, moves, got rate=3
$ train train.csv --target kind -m new.st --set maintenance=merge
--set maintenance: it is the option --maintenance.
$ train train.csv --target kind -m new.st --learner smo --set slack=1
--set: settings of smo must be among tolerance, batch_size, fit_bias, max_steps,
cache_size, got slack=1
$ train train.csv --target kind -m new.st --no-refit --set confidence=-1
--set: confidence must be a finite number above 0, got -1
$ train train.csv --target kind -m new.st --set regularization=much
--set: regularization must be a finite number above 0, got 'much'
$ train train.csv --target kind -m new.st --learner forgetron --set rule=own
--set: rule must be one of self-tuned, basic, fixed, got 'own'
$ train train.csv --target kind -m new.st --loss squared
train: loss must be one of hinge, logistic, or a function of labels, got 'squared'
$ train train.csv --target kind -m new.st --maintenance none
--maintenance must be ...
$ train train.csv --target kind -m new.st --encode some
Invalid value for '--encode': 'some' is not a valid integer range.
$ train train.csv --target kind -m new.st --no-refit --penalty 3
train: penalty must be its default where there is no refit, got 3.0
$ train train.csv --target kind -m new.st --learner nystrom --set vectors=3
--set vectors: only Python has arrays.
$ train train.csv --target kind -m new.st --learner fourier --set optimizer=adam
--set optimizer: only Python has objects of optax.
$ train train.csv --target kind -m new.st --set budget=20
--set budget: it is the option --budget.
$ sweep train.csv --target kind --set drift=0,0.1,-1
--set: drift must be a number of at least 0 and below 1, got -1
$ sweep train.csv --target kind --maintenance 1,2
--maintenance must be ...
$ sweep train.csv --target kind --learner pegasos --set project_to_ball=0,1
--set: project_to_ball must be one value, as a part of the compiled program, got 0, 1
$ learners svc
Invalid value for '[NAME]': 'svc' is not one of ...
$ train train.csv --target kind -m new.st --set confidence
Invalid value for '--set': 'confidence' is not NAME=VALUE.
$ train train.csv --target kind -m new.st --set drift=0 --set drift=0.1
--set drift is given twice.
$ train train.csv --target kind -m new.st --set average=yes
--set average: a model file predicts by the last model.
$ train train.csv --target kind -m new.st --learner smo --budget 10
--budget is not for --learner smo.
$ train train.csv --target kind -m new.st --learner smo --regression
--regression is not for --learner smo.
$ train train.csv --target kind -m new.st --learner smo --checkpoint a
--checkpoint is not for --learner smo.
$ train train.csv --target kind -m new.st --learner smo --learn-metric yes
--learn-metric is not for --learner smo.
$ train train.csv --target kind -m new.st --learner budget-svm --epochs 2
--epochs is not for --learner budget-svm.
$ train train.csv --target kind -m new.st --learner budget-svm --no-refit
--refit is not for --learner budget-svm.
$ train train.csv --target kind -m new.st --learner sbp --penalty 2
--penalty is not for --learner sbp.
$ train train.csv --target kind -m new.st --learner dcd --gamma 2
--gamma is not for --learner dcd.
$ predict height.st test-height.csv --scores
--scores: height.st predicts numbers, without scores.
$ predict height.st test-height.csv --probabilities
--probabilities: height.st predicts numbers.
$ predict python.st test.csv --probabilities
--probabilities: python.st is not calibrated, as models of --refit are.
$ predict model.st test.csv --scores --probabilities
--scores and --probabilities exclude each other.
$ plot python.st --test train.csv -o new.png
--test: python.st is not calibrated, as models of --refit are.
$ plot model.st -o new.gif
--output must end in .png, .svg, .pdf, got new.gif.
$ plot model.st height.st --images 1x2 -o new.png
--images is for one MODEL.
$ plot model.st --images 1x2 --test train.csv -o new.png
--images and --test are different pictures.
$ plot model.st --images 12 -o new.png
Invalid value for '--images': must be like 28x28, got 12.
$ sweep train.csv --target kind -o new.json
--output must end in .csv, .png, .svg, .pdf, got new.json.
$ export model.st -o model.pt
--output must end in .onnx, .stablehlo, got model.pt.
"""
# Bad data and models, and the line that they write, after "budgetjax: error: ".
BAD = """
$ train none.csv --target kind -m new.st
none.csv: No such file or directory
$ train train.csv --target kind -m none/new.st
--model none/new.st: there is no folder FOLDER/none
$ predict model.st test.csv -o none/new.txt
--output none/new.txt: there is no folder FOLDER/none
$ train train.csv --target kind -m .
--model .: must be a file, got a folder
$ train train.csv --target kind -m new.st --ignore number
train.csv: --ignore must be among the columns a, b, got number
$ train test.csv --target a --regression -m new.st --encode no
test.csv: X must have numbers alone where columns are not encoded, got texts in 'kind';
--encode auto reads texts, and --ignore COLUMN leaves it out
$ train train.csv --target kind -m new.st --delimiter tab
train.csv: cells must be separated by '\\t', got '"a","b","kind"' as the first line;
--delimiter ',' reads it
$ train /dev/null -m new.st
/dev/null: the file must have rows, got none
$ train train.libsvm test.libsvm -m new.st
path must be one file of libsvm, got ['train.libsvm', 'test.libsvm']
$ train missing.csv --target kind -m new.st --encode no
missing.csv: X must be finite, got nan in row 17, column 'a'; --encode auto reads
missing values
$ train train.three -m new.st --learner forgetron
Forgetron.init: num_classes must be ...
$ train train.csv --target kind -m new.st --learner forgetron --maintenance merge
Forgetron.init: maintenance must be ...
$ train train.csv --target kind -m new.st --no-refit --loss logistic
loss must be 'hinge' where there is no refit, as AROW has its own, got 'logistic'
$ train infinite.csv --target kind -m new.st
infinite.csv: X must be finite, got inf in row 17, column 'a'
$ train infinite.csv --target kind -m new.st --learner dcd
infinite.csv: X must be finite, got inf in row 17, column 'a'
$ predict model.st infinite.csv -o new.txt
infinite.csv: X must be finite, got inf in row 17, column 'a'
$ train range.csv --target kind -m new.st
range.csv: X must be in the range of float32, got 1e+200 in row 17, column 'a'
$ train range.csv --target kind -m new.st --learn-metric no
range.csv: X must be in the range of float32, got 1e+200 in row 17, column 'a'
$ train range.csv --target kind -m new.st --encode no --gamma 1
range.csv: X must be in the range of float32, got 1e+200 in row 17, column 'a'
$ train label.csv --target kind -m new.st --classes no,yes
label.csv: y must be one of 'no', 'yes', got 'maybe' in row 17
$ predict model.st label.csv --target kind -o new.txt
label.csv: y must be one of 'no', 'yes', got 'maybe' in row 17
$ train one.csv --target kind -m new.st
one.csv: y must have at least 2 classes, got 'yes' in all 300 rows
$ train numbers.csv --target kind -m new.st
numbers.csv: y must be classes, ...
$ train numbers.csv --target kind -m new.st --classes a,b
numbers.csv: --classes must be numbers, as the target is, got a,b
$ train train.csv --target kind -m new.st --regression
train.csv: y must be finite numbers, got 'no' in row 0
$ train train.csv --target kind -m new.st --test narrow.csv
narrow.csv: X must have the columns that the model was trained on, got one without 'b'
$ predict model.st narrow.csv -o new.txt
narrow.csv: X must have the columns that the model was trained on, got one without 'b'
$ predict python.st narrow.csv --target kind -o new.txt
narrow.csv: must have 3 features, as the model, got 1; --target and --ignore name
those that are none
$ predict python.st bare.csv -o new.txt
bare.csv: the first line must hold the names of columns, got '1'; --no-header reads
files without names, and a target that is one of them says that these are names
$ train train.csv --target kind -m new.st --checkpoint test.libsvm --no-refit
checkpoint: test.libsvm: must be a file of budgetjax.save, got another file, or a
damaged one; give another path
$ predict none.st test.csv
none.st: No such file or directory
$ predict train.csv test.csv -o new.txt
train.csv: must be a file of budgetjax.save, got another file, or a damaged one
$ info nothing.st
nothing.st: must be a file of budgetjax.save, got an empty file
$ predict truncated.st test.csv -o new.txt
truncated.st: the file must be as it was written, with the digest ...
$ info altered.st
altered.st: the file must be as it was written, with the digest ...
$ predict stacked.st test.csv -o new.txt
stacked.st: model must be a single one, got a stack of shape (2,); use jax.vmap
$ export stacked.st -o model.onnx
stacked.st: model must be a single one, got a stack of shape (2,); use jax.vmap
$ predict batch.st test.csv -o new.txt
batch.st: ...
$ plot python.st -o new.png
python.st: must have a learning curve, as of budgetjax train, or two features, got 3
features and no curve
$ plot model.st --test test-height.csv -o new.png
test-height.csv: X must have the columns that the model was trained on, got one
without 'a', 'b'
"""


def transcript(text, code, start):
    """Each command of a text, with the exit code and the message that follow it."""
    for part in text.split("\n$ ")[1:]:
        line, _, says = part.partition("\n")
        yield pytest.param(line, code, start + " ".join(says.split()), id=line)


@pytest.mark.usefixtures("as_installed")
@pytest.mark.parametrize(
    ("line", "code", "says"),
    [*transcript(USAGE, 2, "Error: "), *transcript(BAD, 1, "budgetjax: error: ")],
)
def test_bad_input(at, line, code, says):
    before = {path.name: path.read_bytes() for path in at.iterdir()}
    result = run(line)
    *first, last = result.stderr.splitlines()
    assert result.exit_code == code
    # The usage stands before what is wrong with it.
    assert len(first) == (3 if code == 2 else 0)
    last = last.replace(os.path.realpath(at), "FOLDER")
    if says.endswith("..."):
        assert last.startswith(says.removesuffix("..."))
    else:
        assert last == says
    # Nothing was written, and nothing written over.
    assert {path.name: path.read_bytes() for path in at.iterdir()} == before


def test_a_bad_row_after_many_good_ones_leaves_no_predictions(at):
    X, y = data()
    X, y = np.tile(X, (300, 1)), np.tile(y, 300)
    X[-1, 0] = np.inf
    write_csv("bad.csv", X, y)
    Path("out.txt").write_text("before")
    said = fails("predict model.st bad.csv -o out.txt")
    assert "got inf in row 89999, column 'a'" in said
    assert Path("out.txt").read_text() == "before"
    assert not [path for path in at.iterdir() if path.name.startswith(".")]


def test_control_characters_are_not_sent_to_the_terminal(at):
    says = "budgetjax: error: \\x1b[31m.csv: No such file or directory\n"
    assert fails("train \x1b[31m.csv --target kind -m new.st") == says


def test_a_missing_extra_is_named(at, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert fails(LEARN) == (
        "budgetjax: error: csv needs pyarrow: pip install pyarrow, or budgetjax with "
        "the extra [stream]\n"
    )


def test_click_missing_is_one_line(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "budgetjax.cli.commands")
    monkeypatch.setitem(sys.modules, "click", None)
    says = r"^budgetjax: error: the command line needs click: .* the extra \[cli\]$"
    with pytest.raises(SystemExit, match=says):
        main()


# Sweeps.


def test_sweep(at):
    output = good(f"{SWEEP} {QUICK} --budget 5,10 --output sweep.csv")
    first, _, header, *rows = output.splitlines()
    assert first == "train.csv: 300 rows, 2 classes, perceptron"
    assert header.split() == ["gamma", "budget", "error", "vectors"]
    X, y = data()
    encoded = bj.fit_encoding(X, 10).apply(X)
    usual = bj.default_gamma(encoded)
    gammas = [float(f"{times * usual:.4g}") for times in (0.25, 0.5, 1, 2, 4)]
    grid = bj.grid(gamma=gammas, budget=[5, 10])
    given = {"num_features": encoded.shape[1], "capacity": 10} | REMOVES
    states = grid.init(
        lambda gamma, budget: bj.Perceptron().init(
            bj.RBF(gamma), budget=budget, **given
        )
    )
    found = bj.sweep(states, encoded, codes(y))
    expected = dict(zip(zip(*grid.columns, strict=True), found.error, strict=True))
    cells = [[float(cell) for cell in row.split()] for row in rows]
    for gamma, budget, error, vectors in cells:
        # The table has four digits.
        assert error == pytest.approx(float(expected.pop((gamma, budget))), abs=5e-5)
        assert vectors == budget
    assert not expected
    assert [row[2] for row in cells] == sorted(row[2] for row in cells)
    names, *saved = rows_of("sweep.csv")
    assert names == ["gamma", "budget", "error", "vectors"]
    assert [f"{float(row[2]):.4g}" for row in saved] == [row.split()[2] for row in rows]


def test_sweep_of_settings_and_of_the_first_rows(at):
    output = good(
        f"sweep train.libsvm {QUICK} --rows 100 --gamma 0.5 --set margin=0.1,0.01"
    )
    first, _, header, *rows = output.splitlines()
    assert first == "train.libsvm: the first 100 rows (--rows), 2 classes, perceptron"
    assert header.split() == ["gamma", "budget", "margin", "error", "vectors"]
    assert sorted(float(row.split()[2]) for row in rows) == [0.01, 0.1]


def test_a_sweep_of_a_field_that_others_depend_on(at):
    """With one value of another, which is no column."""
    output = good(
        f"{SWEEP} --gamma 1 --learner forgetron --set rule=fixed --set phi=0.5,0.9"
    )
    _, _, header, *rows = output.splitlines()
    assert header.split() == ["gamma", "budget", "phi", "error", "vectors"]
    assert sorted(float(row.split()[2]) for row in rows) == [0.5, 0.9]


def test_sweep_of_a_regression_trains_its_best(at):
    given = f"train-height.csv {OF_HEIGHTS}"
    output = good(
        f"sweep {given} --set learning_rate=0.1,0.02 --gamma 0.0325,0.2 "
        "--model swept.st --output sweep.csv"
    )
    first, _, header, *lines = output.splitlines()
    assert first == "train-height.csv: 300 rows, numbers, sgd"
    assert header.split() == ["gamma", "budget", "learning_rate", "error", "vectors"]
    _, *rows = rows_of("sweep.csv")
    best, *_ = rows
    # As they were typed, and with the digits that float32 has.
    assert {row[0] for row in rows} == {"0.0325", "0.2"}
    assert all(len(row[3]) <= 10 for row in rows)
    X, _ = data()
    encoded = bj.fit_encoding(X, 10).apply(X)
    sizes = {"num_features": encoded.shape[1], "budget": 10, "num_classes": None}
    state = bj.SGD(loss=optax.losses.squared_error, learning_rate=float(best[2])).init(
        bj.RBF(float(best[0])), **sizes, **REMOVES
    )
    y = (heights(X) - heights(X).mean()) / heights(X).std()
    _, scores = bj.run(state, encoded, y)
    root = np.sqrt(np.mean((scores - y) ** 2)) * heights(X).std()
    assert float(best[3]) == pytest.approx(root, rel=1e-4)
    # And then as `train` does.
    said = report("\n".join(lines[5:]))
    assert said["kernel"] == f"Gaussian, gamma {float(best[0]):.4g}"
    good(f"train {given} --gamma {best[0]} --set learning_rate={best[2]} -m new.st")
    same(bj.load("new.st").state, bj.load("swept.st").state)


def test_sweep_takes_all_cores_also_where_no_process_is_bound_to_some(monkeypatch):
    told = []
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    monkeypatch.setattr(jax.config, "update", lambda *given: told.append(given))
    _use_all_cores()
    assert told == [("jax_num_cpu_devices", 3)]


# Pictures.


@pytest.fixture
def saved(monkeypatch):
    """The figures that `plot` saves."""
    from matplotlib.figure import Figure

    figures, save = [], Figure.savefig

    def savefig(figure, *given, **more):
        figures.append(figure)
        return save(figure, *given, **more)

    monkeypatch.setattr(Figure, "savefig", savefig)
    return figures


def words(texts):
    return [text.get_text() for text in texts]


def test_pictures_of_models(at, saved):
    assert good("plot curve.st -o m.png") == "picture: m.png\n"
    assert Path("m.png").read_bytes().startswith(b"\x89PNG")
    (curve,) = saved[-1].axes
    (line,) = curve.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), [100, 200])
    np.testing.assert_allclose(line.get_ydata(), [30, 25])
    assert curve.get_xlabel() == "rows read"
    assert curve.get_ylabel() == "mistakes so far (%)"

    good("plot height.st -o m.pdf")
    assert Path("m.pdf").read_bytes().startswith(b"%PDF")
    curve, plane, bar = saved[-1].axes
    assert curve.get_ylabel() == "root mean squared error so far"
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("east", "north")
    assert bar.get_ylabel() == "predicted"

    good("plot curve.st model.st -o m.png")
    (axes,) = saved[-1].axes
    assert words(axes.get_legend().get_texts()) == ["curve.st", "model.st"]

    good(f"train train.csv --target kind -m raw.st {PLAIN} --encode no")
    good("plot raw.st --images 1x2 -o m.png")
    (axes,) = saved[-1].axes
    assert words(axes.get_yticklabels()) == ["no", "yes"]


def test_picture_of_reliability(at, saved):
    X, y = data()
    good("plot model.st --test train.csv -o m.png")
    (axes,) = saved[-1].axes
    model = bj.load("model.st")
    chances = bj.probabilities(model, X)
    expected = bj.plots.reliability_curve(chances, y, model.model.classes)
    np.testing.assert_allclose(axes.get_lines()[-1].get_xydata().T, expected, atol=1e-6)
    np.savetxt("new.csv", X[:5], "%g", ",", header="a,b", comments="")
    said = fails("plot model.st --test new.csv -o m.png")
    assert "new.csv: must have the target kind" in said


def test_picture_of_regions(at, saved):
    _, model = train_quickly("train.three", "--encode no")
    good("plot new.st -o m.svg")
    assert "<svg" in Path("m.svg").read_text()[:2000]
    _, plane = saved[-1].axes
    assert words(plane.get_legend().get_texts()) == ["0", "1", "2"]
    assert (plane.get_xlabel(), plane.get_ylabel()) == ("feature 1", "feature 2")
    dots = plane.collections[-1].get_offsets()
    support = bj.support(model.state)
    np.testing.assert_allclose(dots, support.vectors[support.mask], atol=1e-4)


def test_pictures_of_sweeps(saved, tmp_path):
    names = ("gamma", "budget", "regularization", "error", "vectors")
    rows = [
        (gamma, budget, weight, 0.1 * gamma + budget / 1000 + weight, budget)
        for gamma in (1.0, 2.0)
        for budget in (10, 20, 30)
        for weight in (0.5, 0.0)
    ]

    def table(rows):
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))

    draw(str(tmp_path / "s.png"), lambda: _figure(table(rows), "a.csv"))
    heat, bar = saved[-1].axes
    expected = [[11, 12, 13], [21, 22, 23]]
    np.testing.assert_allclose(heat.images[0].get_array(), expected)
    assert words(heat.texts)[:3] == ["11", "12", "13"]
    assert (heat.get_ylabel(), heat.get_xlabel()) == ("gamma", "budget")
    assert bar.get_ylabel() == "progressive error (%), best over regularization"
    assert heat.patches[0].get_xy() == (-0.5, -0.5)
    one = [row for row in rows if row[1] == 10 and row[2] == 0]
    (axes,) = _figure(table(one), "a.csv").axes
    line, best = axes.get_lines()
    np.testing.assert_allclose(line.get_ydata(), [11, 21])
    assert (axes.get_xlabel(), best.get_xydata().tolist()) == ("gamma", [[1, 11]])


# Information and exports.


def test_info(at):
    model = bj.load("model.st")
    state, (rows, labels) = model.state, data()
    learned, codes = np.mean(model.predict(rows) != labels), model.scaling.num_codes
    assert good("info model.st") == textwrap.dedent(f"""\
        type:               StreamModel
        written by:         budgetjax {bj.__version__}, JAX {jax.__version__}
        maintenance:        Merge
        classes:            2: no, yes
        file of training:   train.csv
        target of training: kind
        rows read:          300
        progressive error:  {100 * model.error:.2f}%, by the stream, without the refit
        training error:     {100 * learned:.2f}%, of rows that it has learned
        scaling:            2 columns as {codes} codes, mapped to 32 features
        columns:            a, b
        features:           32
        support vectors:    10 of at most 10
        learner:            Pegasos(regularization=0.0001, project_to_ball=False)
        kernel:             RBF(gamma={float(state.kernel.gamma):.6g}, exact=False)
        rows learned:       300
        num mistakes:       {int(state.num_mistakes)}
        num updates:        {int(state.num_updates)}
        budget:             10
        gamma:              auto
        average:            False
        vectors:            None
        loss:               None
        refit:              True
        penalty:            auto
        move vectors:       False
        learn metric:       False
        encode:             auto
        epochs:             1
        shuffle:            True
        capacity:           None
        regression:         False
        seed:               0
        """)
    found = json.loads(good("info model.st --json"))
    assert (
        found.items()
        >= {
            "type": "StreamModel",
            "classes": ["no", "yes"],
            "refit": True,
            "rows_read": 300,
            "progressive_error": model.error,
            "columns": ["a", "b"],
            "support_vectors": {"active": 10, "budget": 10},
            "learner": {
                "name": "Pegasos",
                "regularization": 1e-4,
                "project_to_ball": False,
            },
            "rows_learned": 300,
            "num_mistakes": int(state.num_mistakes),
        }.items()
    )
    names = report(good("info model.st"))
    assert list(found) == [name.replace(" ", "_") for name in names]
    for name in ("curve.st", "batch.st"):
        assert json.loads(good(f"info {name} --json"))
    stacked = report(good("info stacked.st"))
    assert stacked["models"] == "2, stacked"
    assert stacked["learner"] == (
        "AROW(confidence=float32[2], drift=float32[2], moves=float32[2])"
    )
    said = report(good("info height.st"))
    assert said["kernel"].startswith("RBF(")
    assert "(root of the mean square), by the stream" in said["progressive error"]
    assert "(root of the mean square), of rows" in said["training error"]


@pytest.mark.parametrize(("now", "unit"), [(1.7e12, 1e3), (1.8e18, 1e9)])
def test_export_of_times_in_milliseconds_and_nanoseconds(at, now, unit):
    a, b = np.random.default_rng(0).normal(size=(2, 1000))
    X = np.column_stack([np.round(now + unit * a), b])
    lines = [f"{t:.0f},{v},{'y' if t * v > now * v else 'n'}" for t, v in X.tolist()]
    Path("times.csv").write_text("\n".join(["time,b,t", *lines]))
    _, model = train("times.csv", f"--target t {PLAIN}")
    expected = model.predict(X)
    assert np.mean(expected == [line[-1] for line in lines]) > 0.9
    for end in ("onnx", "stablehlo"):
        said = good(f"export new.st -o model.{end}")
        assert said.endswith(", of rows in float64\n")
    session = onnxruntime.InferenceSession("model.onnx")
    (labels,) = session.run(["label"], {"X": X})
    assert np.mean(labels == expected) > 0.999
    with zipfile.ZipFile("model.stablehlo") as file:
        program = jax.export.deserialize(bytearray(file.read("program")))
        about = json.loads(file.read("about.json"))
    with pytest.raises(ValueError, match="expected float64 and called with float32"):
        program.call(X)
    with jax.enable_x64(about["dtype"] == "float64"):
        found = program.call(X.astype(about["dtype"]))
    labels = np.array(about["classes"])[np.asarray(found["label"])]
    assert np.mean(labels == expected) > 0.999


# Help.


@pytest.mark.parametrize(
    "command", ["train", "predict", "sweep", "learners", "info", "plot", "export"]
)
def test_help_is_for_newcomers(command):
    text = good(f"{command} --help")
    assert text.startswith(f"Usage: budgetjax {command} [OPTIONS] ")
    if command != "info":
        assert f"  budgetjax {command} " in text
    assert command in good("--help")
    assert good("-h") == good("--help")


def test_version():
    assert good("--version") == f"budgetjax {bj.__version__}\n"


# Processes.


def process(quick_process, *arguments, **more):
    """A Python that has ended, with its exit code and what it wrote."""
    command = [sys.executable, *arguments]
    environment = os.environ | quick_process
    return subprocess.run(command, env=environment, text=True, timeout=300, **more)


def command(line):
    return ("-m", "budgetjax", *line.split())


@pytest.mark.slow
def test_a_process_has_the_exit_code_and_no_traceback(at, quick_process):
    done = process(
        quick_process, *command("predict none.st none.csv"), capture_output=True
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "budgetjax: error: none.st: No such file or directory\n"


@pytest.mark.slow
def test_the_model_is_written_though_nobody_reads_the_report(at, quick_process):
    reader, writer = os.pipe()
    os.close(reader)
    line = command(f"{LEARN} {PLAIN} --no-refit")
    done = process(quick_process, *line, stdout=writer, stderr=writer)
    os.close(writer)
    assert done.returncode == 0
    assert bj.load("new.st").num_rows == N


INTERRUPTED = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from budgetjax.cli import reading, main

def interrupted(*given):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)

reading.check_target = interrupted
sys.argv = ["budgetjax", "train", "train.csv", "-m", "new.st"]
main()
"""


@pytest.mark.slow
def test_control_c_ends_a_process_without_a_traceback(at, quick_process):
    done = process(quick_process, "-c", INTERRUPTED, capture_output=True)
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
from budgetjax.online.sweeps import sweep
import budgetjax as bj
print(bj.refit is refit, bj.sweep is sweep, bj.AROW is not None, hasattr(bj, "x"))
from budgetjax.cli import learners
from budgetjax.training.train import train
given = {"learner": None, "settings": {}, "maintenance": None}
recipes = [learners.make_recipe(**given, refit=refit) for refit in (True, False)]
labels = bj.TableModel(None, classes=[0, 1])
print([type(one.choose(labels).learner).__name__ for one in recipes])
print([name for name in ("sklearn", "pandas") if name in sys.modules])
"""


@pytest.mark.slow
def test_help_loads_nothing_heavy(quick_process):
    done = process(quick_process, "-c", HEAVY, capture_output=True, check=True)
    assert done.stdout.splitlines()[-4:] == [
        "[]",
        "True True True False",
        "['Pegasos', 'AROW']",
        "[]",
    ]
