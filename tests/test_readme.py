"""The README's code runs as it stands."""

import doctest
import importlib
import pathlib
import pkgutil
import re

import pytest

import budgetjax
from budgetjax.online import ALGORITHMS
from budgetjax.solvers import SOLVERS

ROOT = pathlib.Path(__file__).parents[1]
PAGES = (
    "README.md",
    *(f"examples/{name}.md" for name in ("README", "research", "sweeps")),
)
GUIDES = (*PAGES, "benchmarks/README.md")


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.telling
@pytest.mark.parametrize("name", PAGES)
def test_python_blocks_run(name):
    assert blocks(name)
    names = {}
    for block in blocks(name):
        exec(compile(block, name, "exec"), names)


def test_the_first_example_is_short():
    assert len(blocks("README.md")[0].strip().splitlines()) <= 12


@pytest.mark.parametrize("name", GUIDES)
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text())
    for link in links:
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            target = (ROOT / name).parent / path
            assert target.exists(), link
            if anchor:
                headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)
                assert anchor in [one.lower().replace(" ", "-") for one in headings]


def test_every_algorithm_has_a_row():
    text = (ROOT / "README.md").read_text()
    for name in (*ALGORITHMS, *SOLVERS):
        assert text.count(f"| `bj.{name}` |") == 1, name


def modules():
    for module in pkgutil.walk_packages(budgetjax.__path__, "budgetjax."):
        yield module.name


@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings_run(name):
    module = importlib.import_module(name)
    assert doctest.testmod(module, optionflags=doctest.ELLIPSIS).failed == 0
