"""The package without source files: in a zip, and as compiled modules alone."""

import compileall
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import budgetjax as bj
from budgetjax import online, registry, solvers

PACKAGE = Path(bj.__file__).parent
CODE = """
import sys
import numpy as np
from budgetjax.cli import options
assert options.online_names()[:2] == ("ahpatron", "alma")
assert "jax" not in sys.modules
import budgetjax as bj
X, y = np.eye(4, dtype=np.float32), np.array([1, -1, 1, -1])
state = bj.Perceptron().init(bj.RBF(1.0), num_features=4, budget=2)
state, _ = bj.run(state, X, y, block_size=1)
assert bj.predict(state, X).shape == (4,)
assert "solve" in dir(bj) and "refit" in bj.__all__
print(bj.__file__)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zip", "compiled"])
def test_it_needs_no_source_files(kind, tmp_path, quick_process):
    whole = tmp_path / "whole" / "budgetjax"
    skipped = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, whole, ignore=skipped)
    place = whole.parent
    if kind == "zip":
        place = Path(shutil.make_archive(str(tmp_path / "packed"), "zip", place))
    else:
        assert compileall.compile_dir(whole, quiet=1, legacy=True)
        for source in whole.rglob("*.py"):
            source.unlink()
    done = subprocess.run(
        [sys.executable, "-c", CODE],
        env=os.environ | quick_process | {"PYTHONPATH": str(place)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    assert done.stdout.startswith(str(place))


def test_every_learner_and_solver_is_in_the_lists():
    public = [getattr(bj, name) for name in bj.__all__]
    classes = {one for one in public if isinstance(one, type)}
    known = {one for one in classes if issubclass(one, bj.Learner)} - {bj.Learner}
    assert known == set(registry.LEARNERS)
    listed = *registry.LEARNERS, *registry.MIXTURES
    assert tuple(map(registry.name_of, listed)) == online.LEARNERS
    known = {one for one in classes if issubclass(one, bj.Solver)}
    bases = {bj.Solver, bj.KernelSolver, bj.HingeSolver, bj.LinearSolver}
    assert known - bases == set(registry.SOLVERS)
    for room, names in solvers.SOLVERS.items():
        kinds = [one for one in registry.SOLVERS if one.linear == (room == "linear")]
        assert tuple(map(registry.name_of, kinds)) == names
