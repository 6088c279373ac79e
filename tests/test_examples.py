import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import budgetjax as bj

ROOT = Path(__file__).parents[1]
QUICKSTART = ROOT / "examples" / "quickstart.py"
COMPARE = ROOT / "examples" / "compare.py"
ROW = re.compile(
    r"^(?P<name>\S.*?) {2,}(?P<budget>[\dx ]+?) {2,}(?P<vectors>[\d,]+) {2,}"
    r"(?P<mistakes>[\d,]+) \((?P<error>[\d.]+)%\) {2,}(?P<accuracy>[\d.]+)% {2,}"
    r"(?P<speed>[\d,]+)$",
    re.MULTILINE,
)


def rows(output):
    return [row.groupdict() for row in ROW.finditer(output)]


@pytest.fixture
def main():
    return runpy.run_path(str(QUICKSTART))["main"]


def test_quickstart_on_the_checkerboard(tmp_path, quick_process):
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, QUICKSTART, "--data", "checkerboard"]
        + ["--rows", "3000", "--budget", "40", "10", "--figure", "board.png"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path} | quick_process,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout)
    names = [
        "Forgetron",
        "Pegasos, remove smallest",
        "Pegasos, remove random",
        "Pegasos, merge",
    ]
    assert [row["name"] for row in found] == 2 * names
    assert [row["budget"] for row in found] == 4 * ["10"] + 4 * ["40"]
    assert all(row["vectors"] == row["budget"] for row in found)
    accuracy = {row["name"]: float(row["accuracy"]) for row in found[4:]}
    assert accuracy["Pegasos, merge"] == max(accuracy.values())
    assert accuracy["Pegasos, merge"] > 85
    # Bars and nothing else on the other stream; a full one may be drawn twice.
    full = r"^(.*B=\d+) *: 100%.*error=[\d.]+%, vectors=\d+"
    bars = dict.fromkeys(re.findall(full, done.stderr, re.MULTILINE))
    assert [bar.rpartition("=")[2] for bar in bars] == 4 * ["10"] + 4 * ["40"]
    assert "Warning" not in done.stderr
    assert (tmp_path / "board.png").read_bytes().startswith(b"\x89PNG")


def test_quickstart_on_digits(main, tmp_path, capsys):
    main(["--rows", "310", "--budget", "20", "--figure", str(tmp_path / "d.png")])
    found = rows(capsys.readouterr().out)
    assert [row["budget"] for row in found] == ["10 x 20", "20", "20", "20"]
    assert found[0]["name"] == "Forgetron, one-vs-rest"
    assert int(found[0]["vectors"]) > 20
    assert [row["vectors"] for row in found[1:]] == ["20", "20", "20"]
    for row in found:
        share = 100 * int(row["mistakes"]) / 310
        assert float(row["error"]) == pytest.approx(share, abs=0.051)
    assert (tmp_path / "d.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nonsense"], "no data set 'nonsense'"),
        (["--data", "cpusmall"], "cpusmall is for regression"),
        (["--budget", "0"], "must be positive, got 0"),
        (["--figure", "no/such/folder/f.png"], "no folder no/such/folder"),
    ],
)
def test_quickstart_says_what_is_wrong(
    main, arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    np.savez(tmp_path / "cpusmall.npz", X=np.ones((10, 2)), y=np.arange(10))
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def compare():
    return runpy.run_path(str(COMPARE))


def compared(output):
    """The rows of the table of compare.py, the header first."""
    rows = output.split("\n\n")[1].splitlines()
    split = [re.split(r" {2,}", row) for row in rows if not row.startswith("---")]
    return {row[0]: row[1:] for row in split}


def test_compare_on_the_checkerboard(compare, tmp_path, capsys):
    path = tmp_path / "c.png"
    compare["main"](
        ["--rows", "1500", "--budget", "41", "10", "--output", str(path)]
        + ["--only", "Forgetron", "Pegasos, merge three", "Fourier"]
    )
    output = capsys.readouterr()
    found = compared(output.out)
    # An odd budget does not bother the Fourier features.
    assert found.pop("test accuracy, budget") == ["10", "41"]
    assert list(found) == ["Forgetron", "Pegasos, merge three", "Fourier features"]
    for row in found.values():
        assert all(40 < float(cell.removesuffix("%")) < 100 for cell in row)
    assert "3/3" in output.err
    assert path.read_bytes().startswith(b"\x89PNG")


def test_compare_on_digits(compare, tmp_path, capsys):
    compare["main"](
        ["--data", "digits", "--rows", "300", "--budget", "20", "--gamma", "0.05"]
        + ["--only", "Forgetron", "remove oldest", "--output", str(tmp_path / "d.png")]
    )
    found = compared(capsys.readouterr().out)
    accuracy = float(found["Perceptron, remove oldest"][0].removesuffix("%"))
    assert accuracy > 50
    assert found["Forgetron"] == ["left out, it is for two classes"]
    assert (tmp_path / "d.png").is_file()


@pytest.mark.parametrize("num_classes", [2, 5])
def test_compare_has_every_learner(compare, num_classes):
    learners = compare["learners"](num_classes, 1e-4, 0)
    algorithms = {learner.algorithm for learner in learners}
    known = {getattr(bj, name) for name in bj.__all__}
    known = {one for one in known if isinstance(one, bj.Algorithm)}
    assert known - algorithms == ({bj.forgetron} if num_classes > 2 else set())
    for learner in learners:
        state = learner.algorithm.init(
            bj.RBF(1.0), num_features=3, budget=4, **learner.settings
        )
        assert state.expansion.num_columns == (1 if num_classes == 2 else num_classes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nonsense"], "no data set 'nonsense'"),
        (["--data", "cpusmall"], "cpusmall is for regression"),
        (["--gamma", "-1"], "must be positive, got -1"),
        (["--only", "SVM"], "no learner is named like"),
        (["--output", "no/such/folder/f.png"], "no folder no/such/folder"),
    ],
)
def test_compare_says_what_is_wrong(
    compare, arguments, message, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    np.savez(tmp_path / "cpusmall.npz", X=np.ones((10, 2)), y=np.arange(10))
    with pytest.raises(SystemExit) as caught:
        compare["main"](arguments)
    assert caught.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
