"""Every example runs, small, and says what it should."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import budgetjax as bj
from budgetjax import datasets, registry

ROOT = Path(__file__).parents[1]
# Each is a program of its own, or a page of the guide.
pytestmark = pytest.mark.slow
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def example(name):
    """The names in an example."""
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def run(name, arguments, cwd, environment):
    """What an example prints, in a process of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / f"{name}.py", *arguments.split()],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": path} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    return done


def is_figure(path):
    return path.read_bytes().startswith(b"\x89PNG")


def percent(cell):
    return float(cell.removesuffix("%"))


@pytest.mark.parametrize("name", EXAMPLES)
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


NO_FOLDER = "no folder no/such/folder"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("quickstart", "--data nonsense", "no data set 'nonsense'"),
        ("quickstart", "--data cpusmall", "cpusmall is for regression"),
        ("quickstart", "--budget 0", "must be positive, got 0"),
        ("quickstart", "--figure no/such/folder/f.png", NO_FOLDER),
        ("compare", "--data nonsense", "no data set 'nonsense'"),
        ("compare", "--data cpusmall", "cpusmall is for regression"),
        ("compare", "--gamma -1", "must be positive, got -1"),
        ("compare", "--only SVM", "no learner is named like"),
        ("compare", "--output no/such/folder/f.png", NO_FOLDER),
        ("sweep", "--data nonsense", "no data set 'nonsense'"),
        ("sweep", "--data cpusmall", "cpusmall is for regression"),
        ("sweep", "--output no/such/folder/f.png", NO_FOLDER),
        ("drift", "--output no/such/folder/f.png", NO_FOLDER),
        ("drift", "--rows 90 --window 91", "must be from 1 to 90 rows"),
        ("pictures", "--folder no/such/folder", NO_FOLDER),
        ("novelty", "--output no/such/folder/f.png", NO_FOLDER),
        ("quantiles", "--output no/such/folder/f.png", NO_FOLDER),
        ("forecast", "--output no/such/folder/f.png", NO_FOLDER),
        ("forecast", "--days 7", "must be at least 30"),
        ("bandit", "--output no/such/folder/f.png", NO_FOLDER),
        ("bandit", "--seeds 0", "must be at least 1"),
        ("control", "--output no/such/folder/f.png", NO_FOLDER),
        ("control", "--seconds 5", "must be at least 6"),
    ],
)
def test_what_is_wrong(name, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    np.savez(tmp_path / "cpusmall.npz", X=np.ones((10, 2)), y=np.arange(10))
    with pytest.raises(SystemExit) as caught:
        example(name)["main"](arguments.split())
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


ROW = re.compile(
    r"^(?P<name>\S.*?) {2,}(?P<budget>[\dx ]+?) {2,}(?P<vectors>[\d,]+) {2,}"
    r"(?P<mistakes>[\d,]+) \((?P<error>[\d.]+)%\) {2,}(?P<accuracy>[\d.]+)% {2,}"
    r"(?P<speed>[\d,]+)$",
    re.MULTILINE,
)


def rows(output):
    return [row.groupdict() for row in ROW.finditer(output)]


def test_quickstart_on_the_checkerboard(tmp_path, quick_process):
    arguments = "--data checkerboard --rows 2000 --budget 40 --figure board.png"
    done = run("quickstart", arguments, tmp_path, quick_process)
    found = rows(done.stdout)
    ways = ["remove smallest", "remove random", "merge"]
    assert [row["name"] for row in found] == [
        "Forgetron",
        *(f"Pegasos, {way}" for way in ways),
    ]
    assert all(row["vectors"] == row["budget"] == "40" for row in found)
    accuracy = [float(row["accuracy"]) for row in found]
    assert accuracy[-1] == max(accuracy) > 85
    # Bars and nothing else on the other stream; a full one may be drawn twice.
    full = r"^(.*B=\d+) *: 100%.*error=[\d.]+%, vectors=\d+"
    assert len(set(re.findall(full, done.stderr, re.MULTILINE))) == 4
    assert is_figure(tmp_path / "board.png")


def test_quickstart_with_two_budgets_on_digits(tmp_path, capsys):
    quickstart = example("quickstart")
    # Fewer programs: one learner beside the Forgetron.
    pegasos, main = quickstart["pegasos"], quickstart["main"]
    main.__globals__["pegasos"] = lambda *given: pegasos(*given)[:1]
    path = tmp_path / "d.png"
    main(["--rows", "310", "--budget", "20", "10", "--figure", str(path)])
    found = rows(capsys.readouterr().out)
    assert [row["budget"] for row in found] == ["10 x 10", "10", "10 x 20", "20"]
    assert found[2]["name"] == "Forgetron, one-vs-rest"
    assert int(found[2]["vectors"]) > 20
    assert [row["vectors"] for row in found[1::2]] == ["10", "20"]
    for row in found:
        share = 100 * int(row["mistakes"]) / 310
        assert float(row["error"]) == pytest.approx(share, abs=0.051)
    assert is_figure(path)


def compared(output):
    """The rows of the table of compare.py, the header first."""
    table = output.split("\n\n")[1].splitlines()
    split = [re.split(r" {2,}", row) for row in table if not row.startswith("---")]
    return {row[0]: row[1:] for row in split}


def test_compare_on_the_checkerboard(tmp_path, capsys):
    path = tmp_path / "c.png"
    arguments = "--rows 1000 --budget 41 10 --only Forgetron Fourier --output"
    example("compare")["main"]([*arguments.split(), str(path)])
    output = capsys.readouterr()
    found = compared(output.out)
    # An odd budget does not bother the Fourier features.
    assert found.pop("test accuracy, budget") == ["10", "41"]
    assert list(found) == ["Forgetron", "Fourier features"]
    for row in found.values():
        assert all(40 < percent(cell) < 100 for cell in row)
    assert "2/2" in output.err
    assert is_figure(path)


def test_compare_draws_every_family_and_says_what_is_left_out(tmp_path):
    compare, budgets = example("compare"), [10, 20]
    entries = compare["entries"](10, 1e-4, 0)
    results = {entry.name: np.array([0.5, 0.25]) for entry in entries}
    found = compared("\n\n" + compare["table"](results, budgets, 10))
    assert found["Pegasos, merge"] == ["50.0%", "25.0%"]
    assert found["Forgetron"] == ["left out, it is for two classes"]
    path = tmp_path / "c.png"
    compare["figure"](entries, results, budgets, "all", str(path))
    assert is_figure(path)


@pytest.mark.parametrize("num_classes", [2, 5])
def test_compare_has_every_learner(num_classes):
    entries = example("compare")["entries"](num_classes, 1e-4, 0)
    missing = set(registry.LEARNERS) - {type(entry.learner) for entry in entries}
    assert missing == {one for one in registry.LEARNERS if not one.learns(num_classes)}
    for entry in entries:
        # Traced, so that nothing compiles.
        state = jax.eval_shape(
            lambda one=entry: one.learner.init(
                bj.RBF(1.0), num_features=3, budget=4, **one.shared
            )
        )
        assert state.expansion.num_columns == (1 if num_classes == 2 else num_classes)


def test_streaming_stays_within_its_limit(tmp_path, quick_process):
    done = run("streaming", "--rows 70000 --limit 1.5", tmp_path, quick_process)
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
    path = tmp_path / "s.png"
    arguments = "--rows 1000 --gamma 8 0.25 --budget 20 5 --learner projectron"
    example("sweep")["main"]([*arguments.split(), "--output", str(path)])
    output = capsys.readouterr().out
    assert "4 models of projectron, 1,000 rows each" in output
    header, *table = output.split("\n\n")[1].splitlines()
    names = ["gamma", "budget", "test_error", "progressive_error", "vectors"]
    assert header.split() == names
    found = [[float(cell) for cell in line.split()] for line in table]
    errors = [row[2] for row in found]
    assert errors == sorted(errors)
    assert found[0][1] == 20
    assert {tuple(row[:2]) for row in found} == {(8, 20), (8, 5), (0.25, 20), (0.25, 5)}
    assert all(row[4] <= row[1] for row in found)
    assert is_figure(path)


def test_pipeline_with_few_rows(as_installed, capsys):
    pipeline = example("pipeline")
    # Fewer fits.
    pipeline["main"].__globals__.update(GAMMAS=(0.01,), PENALTIES=(1.0, 10.0), FOLDS=2)
    pipeline["main"](["--rows", "360", "--budget", "30"])
    output = capsys.readouterr().out
    row = re.compile(
        r"^(\S.*?) {2,}\S+ +\S+ +(\d+) +(\S+)% +(\S+)% +\S+$", re.MULTILINE
    )
    found = {name: tuple(map(float, cells)) for name, *cells in row.findall(output)}
    names = "BudgetedKernelClassifier", "Nystroem + LinearSVC", "SVC, no budget"
    ours, nystroem, svc = (found[name] for name in names)
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
    arguments = "--rows 9000 --window 300 --budget 40 --output"
    drift["main"]([*arguments.split(), str(path)])
    output = capsys.readouterr().out
    table = [re.split(r" {2,}", line) for line in output.split("\n\n")[1].splitlines()]
    assert table[0] == ["error", "before", "turning", "after", "all rows"]
    errors = {name: list(map(percent, cells)) for name, *cells in table[2:]}
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
    for entry in drift["LEARNERS"]:
        entry.learner.init(bj.RBF(1.0), num_features=2, budget=4)


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

    names = [entry.name for entry in drift["LEARNERS"]]
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
    arguments = "--rows 1600 --budget 20 --output"
    example("quantiles")["main"]([*arguments.split(), str(path)])
    levels = re.findall(r"level (\S+): (\S+) of", capsys.readouterr().out)
    assert len(levels) == 9
    for level, part in levels:
        assert float(part) == pytest.approx(float(level), abs=0.05)
    assert is_figure(path)


def test_forecast(as_installed, tmp_path, capsys):
    path = tmp_path / "f.png"
    arguments = "--days 60 --budget 20 --output"
    example("forecast")["main"]([*arguments.split(), str(path)])
    output = capsys.readouterr().out
    errors = [float(found) for found in re.findall(r"error of .* (\S+)\n", output)]
    assert errors[0] == min(errors)
    assert len(errors) == 4
    assert percent(re.findall(r"band: (\S+);", output)[0]) == pytest.approx(90, abs=2)
    assert is_figure(path)


def test_forecast_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    X, y = np.arange(4000.0).reshape(500, 8), np.arange(500) % 2
    np.savez(tmp_path / "electricity.npz", X=X, y=y)
    forecast = example("forecast")
    demand = forecast["electricity"]()
    np.testing.assert_array_equal(demand, X[:, 4])
    rows, targets = forecast["rows"](demand)
    # What is known before: nothing of the same half hour.
    np.testing.assert_array_equal(targets, demand[336:])
    np.testing.assert_array_equal(rows[:, 0], demand[335:-1])
    np.testing.assert_array_equal(rows[:, 5], demand[:-336])


def test_bandit(as_installed, tmp_path, capsys):
    path = tmp_path / "b.png"
    arguments = "--rounds 300 --seeds 4 --budget 30 --output"
    example("bandit")["main"]([*arguments.split(), str(path)])
    table = re.findall(
        r"^(\S.*?) +(\d+) +(\d+)$", capsys.readouterr().out, re.MULTILINE
    )
    mean = {name: float(cell) for name, cell, _ in table}
    assert list(mean) == ["greedy", "Thompson", "UCB", "at random"]
    assert mean["UCB"] < mean["greedy"] < mean["at random"]
    assert mean["Thompson"] < mean["greedy"]
    assert is_figure(path)


def test_control(as_installed, tmp_path, capsys):
    path = tmp_path / "c.png"
    arguments = "--seconds 12 --budget 60 --output"
    example("control")["main"]([*arguments.split(), str(path)])
    table = re.findall(
        r"^(\S.*?)  +([\d.]+) +([\d.]+) +([\d.]+)$",
        capsys.readouterr().out,
        re.MULTILINE,
    )
    away = {name: list(map(float, cells)) for name, *cells in table}
    springs, keeps, forgets = away.values()
    assert max(keeps[0], forgets[0]) < springs[0] / 10
    assert forgets[1] < keeps[1] / 3
    assert is_figure(path)


def test_resuming_after_a_kill(tmp_path, quick_process):
    done = run("resuming", "--rows 60000 --kills 1", tmp_path, quick_process)
    killed, resumed, undisturbed, equal = done.stdout.splitlines()
    at = int(killed.removesuffix(" rows").split()[-1].replace(",", ""))
    assert 30_000 <= at < 60_000
    assert at % 10_000 == 0
    ends = [line.split(maxsplit=1) for line in (resumed, undisturbed)]
    assert [name for name, _ in ends] == ["resumed", "undisturbed"]
    assert ends[0][1] == ends[1][1]
    assert ends[0][1].startswith("60,000 rows, error ")
    assert equal.startswith("The two models are equal, bit for bit")
