"""The programs of the page on many machines run, and print what it says."""

import importlib.util
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from test_readme import CLOSE, numbers, words

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "examples" / "machines.md").read_text("utf-8")
PROGRAM = re.compile(r"```py\n# (\S+)\n(.*?)```", re.DOTALL)
COMMAND = r"```sh\npython {}.*?\n```\n\n```text\n(.*?)```"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["train.py", "with_dask.py", "with_pool.py"])
def test_programs_run(name, tmp_path, quick_process):
    if "dask" in name and not importlib.util.find_spec("distributed"):
        pytest.skip("needs Dask: pip install --group dask")
    for file, program in PROGRAM.findall(TEXT):
        (tmp_path / file).write_text(program)
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | quick_process | {"PYTHONPATH": path}
    ranks = [()]
    if name == "train.py":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = [(f"localhost:{port}", "2", rank) for rank in "01"]
        # One device each, as the page says of machines.
        environment["XLA_FLAGS"] = ""
    children = [
        subprocess.Popen(
            [sys.executable, name, *rank],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in ranks
    ]
    try:
        printed = [child.communicate(timeout=300)[0] for child in children]
        assert [child.returncode for child in children] == [0] * len(children)
    finally:
        for child in children:
            child.kill()
    # Of two processes only the first prints results; others name their peers.
    lines = [
        line
        for line in "".join(printed).splitlines()
        if re.search("merged|refit", line)
    ]
    (expected,) = re.findall(COMMAND.format(re.escape(name)), TEXT, re.DOTALL)
    found = "\n".join(lines)
    assert words(found) == words(expected)
    assert numbers(found) == pytest.approx(numbers(expected), **CLOSE)
