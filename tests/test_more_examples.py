import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import budgetjax as bj
from budgetjax import datasets

ROOT = Path(__file__).parents[1]


def example(name):
    """The names in an example."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def is_figure(path):
    return path.read_bytes().startswith(b"\x89PNG")


def run(name, *arguments, cwd, **environment):
    """What an example prints, in a process of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done


@pytest.mark.parametrize(
    "name", sorted(path.stem for path in (ROOT / "examples").glob("*.py"))
)
def test_a_missing_package_is_named_with_its_extra(name, monkeypatch):
    absent = "matplotlib", "sklearn", "pyarrow", "safetensors"
    # Their modules too: those that are imported would be found without the package.
    for module in (*absent, *sys.modules):
        if module.partition(".")[0] in absent:
            monkeypatch.setitem(sys.modules, module, None)
    for module in [one for one in sys.modules if "budgetjax.estimators" in one]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(SystemExit, match=rf"^{name}: .*pip install ['\"]\.\["):
        example(name)


def test_streaming_stays_within_its_limit(tmp_path, quick_process):
    arguments = ("--rows", "70000", "--limit", "1.5")
    done = run("streaming", *arguments, cwd=tmp_path, **quick_process)
    found = re.fullmatch(
        r"file +board.parquet, 70,000 rows, 0.00 GiB\n"
        r"limit +1.50 GiB of addresses\n"
        r"all rows at once +fit: 70,000 of them\n"
        r"one batch at a time +\d+ s, [\d,]+ rows/s, with reading and compiling\n"
        r"peak +(\S+) GiB of addresses, (\S+) GiB of memory in use\n"
        r"progressive error +(\S+)% of 70,000 rows\n"
        r"test error +(\S+)% of 5,000 rows\n",
        done.stdout,
    )
    assert found, done.stdout
    addresses, used, progressive, test = map(float, found.groups())
    assert used < addresses <= 1.5
    assert test < progressive < 5
    assert "70000/70000" in done.stderr


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_streaming_writes_what_it_reads(kind, tmp_path):
    streaming = example("streaming")
    path = tmp_path / f"board.{kind}"
    streaming["write"](path, 1200, seed=3)
    X, y = streaming["sensed"](1200, seed=3)
    read = list(bj.stream.read(path, target="colour"))
    np.testing.assert_allclose(np.concatenate([one[0] for one in read]), X, rtol=1e-6)
    np.testing.assert_array_equal(np.concatenate([one[1] for one in read]), y)
    # Units that differ by ten millions: without standardising there is one sensor.
    assert X.std(axis=0)[-1] > 1e6 * X.std(axis=0)[0]


def test_sweep_on_the_checkerboard(as_installed, tmp_path, capsys):
    sweep = example("sweep")
    path = tmp_path / "s.png"
    sweep["main"](
        ["--rows", "1500", "--gamma", "8", "0.25", "--budget", "20", "5"]
        + ["--algorithm", "pegasos", "--output", str(path)]
    )
    output = capsys.readouterr().out
    assert "4 models of pegasos, 1,500 rows each" in output
    table = output.split("\n\n")[1].splitlines()
    names = ["gamma", "budget", "test_error", "progressive_error", "vectors"]
    assert table[0].split() == names
    rows = [[float(cell) for cell in line.split()] for line in table[1:]]
    errors = [row[2] for row in rows]
    assert errors == sorted(errors)
    assert rows[0][1] == 20
    assert {(row[0], row[1]) for row in rows} == {
        (8, 20),
        (8, 5),
        (0.25, 20),
        (0.25, 5),
    }
    assert all(row[4] == row[1] for row in rows)
    assert is_figure(path)


def test_pipeline_with_few_rows(as_installed, capsys):
    pipeline = example("pipeline")
    # Fewer fits.
    pipeline["main"].__globals__.update(GAMMAS=(0.01,), PENALTIES=(1.0, 10.0))
    pipeline["main"](["--rows", "360", "--budget", "30"])
    output = capsys.readouterr().out
    row = re.compile(
        r"^(\S.*?) {2,}\S+ +\S+ +(\d+) +(\S+)% +(\S+)% +\S+$", re.MULTILINE
    )
    found = {
        name: (int(n), float(v), float(t)) for name, n, v, t in row.findall(output)
    }
    ours, nystroem, svc = (
        found[name]
        for name in (
            "BudgetedKernelClassifier",
            "Nystroem + LinearSVC",
            "SVC, no budget",
        )
    )
    assert ours[0] == nystroem[0] == 30 < svc[0]
    assert ours[1] > nystroem[1]
    assert 80 < ours[2] < 100
    assert "1437 test rows" in output


def test_drift_on_the_rotating_board(as_installed, tmp_path, capsys):
    path = tmp_path / "d.png"
    drift = example("drift")
    # Two that share their compiled program.
    variables = drift["main"].__globals__
    variables["LEARNERS"] = drift["LEARNERS"][2:]
    variables["GAMMAS"] = {"rotating": (8.0, 8.0)}
    drift["main"](
        ["--rows", "9000", "--window", "300", "--budget", "40", "--output", str(path)]
    )
    output = capsys.readouterr().out
    table = [re.split(r" {2,}", line) for line in output.split("\n\n")[1].splitlines()]
    assert table[0] == ["error", "before", "turning", "after", "all rows"]
    errors = {
        name: [float(cell.removesuffix("%")) for cell in cells]
        for name, *cells in table[2:]
    }
    for *thirds, whole in errors.values():
        assert whole == pytest.approx(np.mean(thirds), abs=0.11)
    assert errors.pop("always the label before")[-1] == pytest.approx(50, abs=5)
    assert list(errors) == ["AROW", "AROW, drift=0.01"]
    assert all(before < turning for before, turning, *_ in errors.values())
    assert errors["AROW, drift=0.01"][-1] < errors["AROW"][-1]
    assert is_figure(path)


@pytest.mark.parametrize("name", ["rotating", "electricity"])
def test_drift_has_a_kernel_for_every_learner(name):
    drift = example("drift")
    assert len(drift["GAMMAS"][name]) == len(drift["LEARNERS"])
    for learner in drift["LEARNERS"]:
        learner.algorithm.init(
            bj.RBF(1.0), num_features=2, budget=4, **learner.settings
        )


def test_the_board_turns_by_90_degrees():
    X = np.random.default_rng(0).uniform(-2, 2, (3000, 2))
    stream = example("drift")["rotating"](3000, seed=0)
    still = datasets.checkerboard_labels(X)
    np.testing.assert_array_equal(stream.y[:1000], still[:1000])
    np.testing.assert_array_equal(stream.y[2000:], -still[2000:])
    assert stream.changing == (1000, 2000)
    half = stream.y[1400:1600] == still[1400:1600]
    assert 0.3 < half.mean() < 0.7
    np.testing.assert_allclose(stream.X.std(axis=0), 1, rtol=1e-5)


def test_drift_has_electricity_in_time_order(tmp_path, monkeypatch):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    y = np.arange(500) % 3 % 2
    np.savez(tmp_path / "electricity.npz", X=np.arange(1000.0).reshape(500, 2), y=y)
    drift = example("drift")
    stream = drift["electricity"]()
    assert np.all(np.diff(stream.X[:, 0]) > 0)
    np.testing.assert_array_equal(stream.y, 2 * y - 1)

    names = [learner.name for learner in drift["LEARNERS"]]
    wrong = {name: np.arange(500) % 4 == 0 for name in [*names, drift["BASELINE"]]}
    assert "3rd third" in drift["table"](stream, wrong)
    ends, errors = drift["window_errors"](wrong["AROW"], 100)
    assert ends.tolist() == list(range(100, 501))
    np.testing.assert_allclose(errors, 0.25)
    turning = stream._replace(changing=(100, 200))
    drift["figure"]([(turning, wrong), (stream, wrong)], 100, str(tmp_path / "d.png"))
    assert is_figure(tmp_path / "d.png")


def test_novelty(as_installed, tmp_path, capsys):
    novelty = example("novelty")
    novelty["main"].__globals__.update(ROWS=1500)
    path = tmp_path / "n.png"
    novelty["main"](["--output", str(path)])
    output = capsys.readouterr().out
    inside, far, same, others = map(float, re.findall(r"(\S+)%", output))
    assert inside < 12
    assert same < 20
    assert far > 50
    assert others > 60
    assert is_figure(path)


def test_pictures(as_installed, tmp_path, capsys):
    pictures = example("pictures")
    pictures["main"].__globals__.update(SEEDS=(0,))
    pictures["main"](["--rows", "300", "--budget", "30", "--folder", str(tmp_path)])
    ours, svm = re.findall(r"(\d+) vectors.*: (\S+)% right", capsys.readouterr().out)
    assert ours[0] == "30"
    assert 85 < float(ours[1]) <= float(svm[1])
    for name in ("vectors", "budget", "reliability"):
        assert is_figure(tmp_path / f"{name}.png")


def test_quantiles(as_installed, tmp_path, capsys):
    path = tmp_path / "q.png"
    example("quantiles")["main"](["--rows", "2000", "--output", str(path)])
    output = capsys.readouterr().out
    levels = re.findall(r"level (\S+): (\S+) of", output)
    assert len(levels) == 9
    for level, part in levels:
        assert float(part) == pytest.approx(float(level), abs=0.05)
    assert is_figure(path)


def test_resuming_after_a_kill(tmp_path, quick_process):
    arguments = ("--rows", "200000", "--kills", "1")
    # It runs for longer than it compiles.
    environment = quick_process | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "0"}
    done = run("resuming", *arguments, cwd=tmp_path, **environment)
    killed, resumed, undisturbed, equal = done.stdout.splitlines()
    at = int(killed.removesuffix(" rows").split()[-1].replace(",", ""))
    assert 100_000 <= at < 200_000
    assert at % 10_000 == 0
    ends = [line.split(maxsplit=1) for line in (resumed, undisturbed)]
    assert [name for name, _ in ends] == ["resumed", "undisturbed"]
    assert ends[0][1] == ends[1][1]
    assert ends[0][1].startswith("200,000 rows, error ")
    assert equal.startswith("The two models are equal, bit for bit")


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("sweep", ["--data", "nonsense"], "no data set 'nonsense'"),
        ("sweep", ["--data", "cpusmall"], "cpusmall is for regression"),
        ("sweep", ["--output", "no/such/folder/f.png"], "no folder no/such/folder"),
        ("drift", ["--output", "no/such/folder/f.png"], "no folder no/such/folder"),
        ("pictures", ["--folder", "no/such/folder"], "no folder no/such/folder"),
        ("novelty", ["--output", "no/such/folder/f.png"], "no folder no/such/folder"),
        ("quantiles", ["--output", "no/such/folder/f.png"], "no folder no/such/fol"),
        ("drift", ["--rows", "90", "--window", "91"], "must be from 1 to 90 rows"),
    ],
)
def test_what_is_wrong(name, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    np.savez(tmp_path / "cpusmall.npz", X=np.ones((10, 2)), y=np.arange(10))
    with pytest.raises(SystemExit) as caught:
        example(name)["main"](arguments)
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
