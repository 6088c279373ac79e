"""A file format that another package adds reaches every door, through public names."""

import importlib
import json
import sys
import textwrap

import click
import numpy as np
import pytest
from click.testing import CliRunner

import budgetjax as bj
from budgetjax.cli import options
from budgetjax.cli.commands import budgetjax as group
from budgetjax.stream.readers import formats

MODULE = textwrap.dedent('''
    """A reader of JSON lines: each is a list of numbers and a label."""

    import json

    import numpy as np

    import budgetjax as bj


    @bj.stream.register_format(".jsonl")
    def json_lines(path, *, batch_rows=64):
        with open(path) as file:
            rows = [json.loads(line) for line in file]
        X, y = np.array([row[:-1] for row in rows]), np.array([row[-1] for row in rows])

        def read():
            for i in range(0, len(y), batch_rows):
                yield X[i : i + batch_rows], y[i : i + batch_rows]

        return bj.stream.Batches(str(path), X.shape[1], read, len(y))
''')
NUMBERS = np.random.default_rng(0).normal(size=(100, 2)).round(3)
LABELS = np.where(NUMBERS[:, 0] > 0, "yes", "no")


@pytest.fixture
def built_in(monkeypatch):
    """Only the formats of the package, whatever other tests have registered."""
    own = {
        name: one
        for name, one in formats.FORMATS.items()
        if one.reader.__module__.startswith("budgetjax.")
    }
    monkeypatch.setattr(formats, "FORMATS", own)


@pytest.fixture
def added(built_in, tmp_path, monkeypatch):
    """A module that adds a format, and a file of it, in the working folder."""
    (tmp_path / "reads_json.py").write_text(MODULE)
    rows = zip(NUMBERS.tolist(), LABELS.tolist(), strict=True)
    lines = (json.dumps([*x, y]) for x, y in rows)
    (tmp_path / "train.jsonl").write_text("".join(f"{line}\n" for line in lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module("reads_json")
    yield module
    del sys.modules["reads_json"]


def run(line):
    return CliRunner().invoke(group, line.split())


def test_a_format_reaches_read_and_fit_stream(added):
    batches = bj.stream.read("train.jsonl", batch_rows=30)
    assert [len(y) for _, y in batches] == [30, 30, 30, 10]
    assert bj.stream.labels(batches).tolist() == ["no", "yes"]
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10)
    model = bj.fit_stream(state, batches, classes=["no", "yes"])
    assert model.num_rows == 100
    assert model.error < 0.4


def test_a_format_reaches_the_command_line(added):
    learner = "--budget 10 --learner perceptron --no-refit"
    result = run(f"train train.jsonl -m new.st {learner}")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "no (52), yes (48)" in result.stdout
    result = run("predict new.st train.jsonl --format json_lines -o out.txt")
    assert result.stdout.startswith("accuracy: ")
    result = run(f"train train.jsonl -m new.st {learner} --delimiter ;")
    said = " ".join(result.stderr.split())
    assert "--delimiter is for csv, and train.jsonl is taken for json_lines" in said


def test_a_format_is_among_those_of_messages_and_completion(added):
    known = formats.names()
    assert set(known) == {*options.FORMAT_HELP, "json_lines"}
    text = f"format must be one of {', '.join(known)}, got 'text'"
    with pytest.raises(ValueError, match=text):
        bj.stream.read("train.jsonl", format="text")
    assert {"csv", "parquet", "arrow", "npy"} <= set(formats.names("target"))
    assert not {"json_lines", "libsvm"} & set(formats.names("target"))
    found = options.Name(options.format_names).shell_complete(
        click.Context(group), click.Option(["--format"]), "js"
    )
    assert [one.value for one in found] == ["json_lines"]


def test_a_name_and_an_ending_belong_to_one_format(added):
    importlib.reload(added)
    register = bj.stream.register_format
    for name, ending in (("csv", ".new"), ("new", ".csv"), ("new", ".jsonl")):

        def reader(path):
            raise AssertionError(path)

        reader.__name__ = name
        with pytest.raises(ValueError, match="must be free, got one that is taken"):
            register(ending)(reader)


def test_help_and_docs_list_the_formats_of_the_package(built_in):
    known = formats.names()
    assert set(options.FORMAT_HELP) == set(known)
    endings = set(formats.by_ending())
    told = run("--help").output
    assert endings == {end for end in endings if end in told}
    for end, one in formats.by_ending().items():
        assert f"`{end}`" in one.reader.__doc__
    assert all(name in bj.stream.__all__ for name in known)
