"""What every learner learns, and how large its programs are, as `golden.json` has it.

Whether a learner is right is said by `test_reference.py`; this file says that it is
what it was. Where that is to change, or a row of the registry is new,

    python tests/test_golden.py

writes the file anew, in some four minutes, and `git diff` shows what has changed.
"""

import functools
import json
import platform
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import registry
import runs
from marks import first_quick
from registry import N

import budgetjax as bj

FILE = Path(__file__).with_name("golden.json")
# Absent, light and heavy rows. The first is light, or the first two steps of ALMA would
# be a tie.
WEIGHT = np.resize([0.5, 1, 0, 2.5, 1, 1], N)
# Scores of so few rows are enough: an update moves all that follow.
EVERY = 4
# Of the largest score: the six digits of the file. Two compiled programs differ by 1e-9
# in float64, as `test_blocks.py` shows, and no decision in these streams is nearly a
# tie: products that are wrong by 1e-9 (`tests/rounding.py --ulps 5000000`) change none.
# In float32 they would be 1e-3 apart; see `compare.FLOAT32`.
TOLERANCE = 1e-5
# Programs grow if the code does more. A few instructions come and go with the compiler.
GROWTH = 1.02


def learned(row):
    """What a row learns in float64, in few numbers."""
    state, scores = runs.blocks(row, runs.roomy(row), *row.stream(), WEIGHT)
    return {
        "mistakes": int(state.num_mistakes),
        "updates": int(state.num_updates),
        "vectors": int(state.expansion.num_active),
        "scores": np.asarray(scores)[::EVERY].tolist(),
    }


def instructions(text):
    """How many a compiled program has."""
    return len(re.findall(r"^ +(?:ROOT )?%?[\w.-]+ = ", text, re.MULTILINE))


def sizes(row):
    """Instructions in the programs of a run, a step, and a sweep of two models."""
    X, y = row.stream()
    step = jax.jit(bj.step).lower(row.roomy(), X[0], y[0], np.float32(1))
    states = jax.vmap(lambda gamma: row.roomy(kernel=row.kernel_of(gamma)))
    sweep = functools.partial(bj.sweep, devices=jax.devices()[:1])
    swept = jax.jit(sweep).lower(jax.eval_shape(states, np.ones(2, np.float32)), X, y)
    return {
        "run": instructions(runs.compiled_text(row.name)),
        "step": instructions(step.compile().as_text()),
        "sweep": instructions(swept.compile().as_text()),
    }


def compiler():
    """What decides how many instructions there are, beside the code."""
    kind = f"{jax.default_backend()}, {platform.system()}, {platform.machine()}"
    return f"jax {jax.__version__}, {kind}"


@functools.cache
def recorded():
    return json.loads(FILE.read_text())


def test_every_row_is_recorded():
    names = [row.name for row in registry.ROWS]
    assert list(recorded()["learned"]) == names, "python tests/test_golden.py"


@registry.each
def test_a_learner_learns_what_it_did(row, double):
    expected, found = dict(recorded()["learned"][row.name]), learned(row)
    scores, again = expected.pop("scores"), found.pop("scores")
    assert found == expected
    most = np.abs(scores).max()
    np.testing.assert_allclose(again, scores, rtol=0, atol=TOLERANCE * most)


@pytest.mark.parametrize(
    "name", first_quick([row.name for row in registry.ROWS]), ids="@{}".format
)
def test_no_program_grows(name):
    if compiler() != recorded()["compiler"]:
        pytest.skip(f"{compiler()} has other programs than {recorded()['compiler']}")
    (row,) = registry.named(name)
    most = recorded()["instructions"][name]
    grown = {
        program: f"{most[program]} -> {found}"
        for program, found in sizes(row).items()
        if found > GROWTH * most[program]
    }
    assert not grown


def write():
    """Writes the file, a line for each row."""
    found = {"learned": {}, "instructions": {}}
    for row in registry.ROWS:
        found["instructions"][row.name] = sizes(row)
        jax.config.update("jax_enable_x64", True)
        row_learned = learned(row)
        jax.config.update("jax_enable_x64", False)
        digits = np.vectorize(lambda score: float(f"{score:.6g}"))
        row_learned["scores"] = digits(row_learned["scores"]).tolist()
        found["learned"][row.name] = row_learned
    parts = [f' "compiler": {json.dumps(compiler())}']
    for part, rows in found.items():
        lines = (f'  "{name}": {json.dumps(row)}' for name, row in rows.items())
        parts.append(f' "{part}": {{\n' + ",\n".join(lines) + "\n }")
    FILE.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    # Programs of the tests, which are compiled by its rules.
    import conftest  # noqa: F401

    sys.exit(write())
