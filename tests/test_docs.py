"""The reference of the documentation has every public name."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import budgetjax as bj

ROOT = Path(__file__).parents[1]
SHOWN = {
    name
    for page in (ROOT / ".docs/pages/reference").glob("*.md")
    for name in re.findall(r"^::: bj\.(\S+)$", page.read_text("utf-8"), re.M)
}
MODULES = (
    "bounds",
    "datasets",
    "encoding",
    "estimators",
    "losses",
    "plots",
    "river",
    "stream",
)


def test_reference_has_every_public_name():
    named = {name: getattr(bj, name) for name in dir(bj) if name[0] != "_"}
    modules = {name for name, one in named.items() if isinstance(one, ModuleType)}
    ours = {name for name in modules if named[name].__name__.startswith("budgetjax")}
    assert named.keys() - modules <= SHOWN
    assert ours <= {name.split(".")[0] for name in SHOWN}


@pytest.mark.parametrize("name", MODULES)
def test_reference_has_every_name_of_a_public_module(name):
    module = getattr(bj, name)
    own = [key for key, one in vars(module).items() if is_of(one, module)]
    names = [key for key in getattr(module, "__all__", own) if not key.startswith("_")]
    assert names
    assert {f"{name}.{key}" for key in names} <= SHOWN


def is_of(one, module):
    return getattr(one, "__module__", None) == module.__name__


def test_reference_has_every_loss_of_the_guides():
    """Others in that module are parts of the package."""
    pages = [ROOT / "README.md", *(ROOT / "examples").glob("*.md")]
    text = "".join(page.read_text("utf-8") for page in pages)
    names = set(re.findall(r"bj\.(losses\.\w+)", text))
    assert names
    assert names <= SHOWN
