"""Launches in programs for a GPU, which are compiled where there is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))

import launches  # noqa: E402
import runner  # noqa: E402

# Per block, without the turns of the loop over violations or rows, and per such turn.
MOST = {
    ("run", "Perceptron, remove the oldest"): (16, 9),
    ("run", "Pegasos, merge"): (20, 19),
    ("run", "AROW"): (22, 60),
    ("run", "KRLST"): (28, 47),
    ("sweep", "Perceptron, remove the oldest"): (18, 11),
    ("sweep", "Pegasos, merge"): (21, 19),
    ("sweep", "AROW"): (23, 92),
    ("sweep", "KRLST"): (32, 54),
}
absent = launches.missing(["H100"])


@pytest.mark.skipif(bool(absent), reason=f"not installed: {absent}")
def test_no_loop_launches_more_than_it_did(tmp_path):
    output = tmp_path / "launches.csv"
    command = [sys.executable, launches.__file__, "--output", str(output)]
    command += ["--devices", "H100"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    rows = runner.read(output)
    found = {(row["part"], row["what"]): row["loops"] for row in rows}
    assert found.keys() == MOST.keys()
    for key, (block, turn) in found.items():
        assert block["alone"] <= MOST[key][0], key
        assert turn["launches"] <= MOST[key][1], key
        # The scores of a scan are copied while it goes on, which no buffer captures.
        assert (block["captured"] and turn["captured"]) == (key != ("run", "KRLST"))
        # Numbers, and arrays of a number per slot; never a matrix of a model.
        assert turn["copied"] < 2, key
