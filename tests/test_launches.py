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

# Per block, without the turns of the loop over violations, and per such turn.
MOST = {
    ("run", "Perceptron, remove the oldest"): (17, 9),
    ("run", "Pegasos, merge"): (21, 19),
    ("run", "AROW"): (23, 82),
    ("sweep", "Perceptron, remove the oldest"): (19, 11),
    ("sweep", "Pegasos, merge"): (22, 19),
    ("sweep", "AROW"): (24, 93),
}
absent = launches.missing(["H100"])


@pytest.mark.skipif(bool(absent), reason=f"not installed: {absent}")
def test_no_loop_launches_more_than_it_did(tmp_path):
    output = tmp_path / "launches.csv"
    command = [sys.executable, launches.__file__, "--output", str(output)]
    command += ["--devices", "H100", "--parts", "run", "sweep"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    rows = runner.read(output)
    found = {(row["part"], row["what"]): row["loops"] for row in rows}
    assert found.keys() == MOST.keys()
    for key, (block, turn) in found.items():
        assert block["alone"] <= MOST[key][0], key
        assert turn["launches"] <= MOST[key][1], key
        assert block["captured"]
        assert turn["captured"]
        # Numbers, and arrays of a number per slot; never a matrix of a model.
        assert turn["copied"] < 2, key
