"""The README's code runs as it stands."""

import doctest
import importlib
import pathlib
import pkgutil
import re

import pytest

import budgetjax

README = pathlib.Path(__file__).parents[1] / "README.md"


@pytest.mark.telling
def test_python_blocks_run(monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    assert len(blocks[0].strip().splitlines()) <= 12
    names = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)


def modules():
    for module in pkgutil.walk_packages(budgetjax.__path__, "budgetjax."):
        yield module.name


@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
