"""The README's code runs as it stands."""

import doctest
import importlib
import pathlib
import re

import jax.numpy as jnp
import numpy as np
import pytest
from marks import slow

import budgetjax as bj
from budgetjax import _record, online, registry, solvers
from budgetjax.stream.readers import formats

ROOT = pathlib.Path(__file__).parents[1]
NAMES = ("README", "research", "sweeps", "machines", "files", "scikit_learn")
# Pages whose programs learn little.
QUICK = ("examples/research.md", "examples/files.md")
PAGES = ("README.md", *(f"examples/{name}.md" for name in NAMES))
MEASURED = tuple(
    f"benchmarks/{name}.md"
    for name in ("README", "accuracy", "speed", "papers", "published")
)


def blocks(name):
    return re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.DOTALL)


@pytest.mark.parametrize(
    "page", [*QUICK, *slow(*(page for page in PAGES if page not in QUICK))]
)
def test_python_blocks_run(page, capsys):
    """And print what stands below them, where a page says what."""
    assert blocks(page)
    names = {}
    for block, expected in shown(page):
        exec(compile(block, page, "exec"), names)
        printed = capsys.readouterr().out
        if expected:
            assert words(printed) == words(expected)
            # Sorted: rows of a table that are nearly equal may stand in either order.
            found, said = sorted(numbers(printed)), sorted(numbers(expected))
            assert found == pytest.approx(said, **CLOSE)


def shown(name):
    """Every block of code, with the text that follows it at once."""
    pattern = r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?"
    return re.findall(pattern, (ROOT / name).read_text(), re.DOTALL)


# Another version of JAX, or another processor, takes another turn now and then.
CLOSE = {"rel": 0.1, "abs": 0.02}
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


def words(text):
    return NUMBER.sub("#", text).split()


def numbers(text):
    return [float(one.replace(",", "")) for one in NUMBER.findall(text)]


def test_the_first_example_is_short():
    assert len(blocks("README.md")[0].strip().splitlines()) <= 12


@pytest.mark.parametrize("name", [*PAGES, *MEASURED, "examples/algorithms.md"])
def test_links_lead_somewhere(name):
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / name).read_text())
    for link in links:
        if not link.startswith("http"):
            path, _, anchor = link.partition("#")
            target = (ROOT / name).parent / path if path else ROOT / name
            assert target.exists(), link
            if anchor:
                headings = re.findall(r"^#+ (.*)", target.read_text(), re.MULTILINE)
                assert anchor in [one.lower().replace(" ", "-") for one in headings]


def test_tests_that_pages_name_are_there():
    text = "".join((ROOT / name).read_text() for name in MEASURED)
    named = set(re.findall(r"`((?:test|check)_\w+)`", text))
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    assert named
    assert named <= set(re.findall(r"^ *def (\w+)", tests, re.MULTILINE))


def test_every_algorithm_has_a_row():
    text = (ROOT / "examples" / "algorithms.md").read_text()
    for kind in (*registry.LEARNERS, *registry.SOLVERS):
        assert text.count(f"| `bj.{kind.__name__}` |") == 1, kind


@pytest.mark.parametrize(
    ("base", "page", "others"),
    [
        # Sums and products are written with + and *.
        (bj.Kernel, "examples/algorithms.md", {"Kernel", "Sum", "Product"}),
        (bj.Maintenance, "examples/research.md", {"Maintenance", "Measured"}),
    ],
)
def test_every_kernel_and_strategy_is_named(base, page, others):
    text = (ROOT / page).read_text()
    named = {name for name, kind in _record.records.items() if issubclass(kind, base)}
    public = named & set(bj.__all__) - others
    assert len(public) > 8
    assert [name for name in public if f"`bj.{name}" not in text] == []


def modules():
    """Those with examples."""
    (folder,) = map(pathlib.Path, bj.__path__)
    for path in sorted(folder.rglob("*.py")):
        if ">>> " in path.read_text():
            name = path.relative_to(folder.parent).with_suffix("")
            yield ".".join(name.parts).removesuffix(".__init__")


@pytest.mark.slow
@pytest.mark.parametrize("name", list(modules()))
def test_examples_in_docstrings_run(name, monkeypatch):
    """After the imports that the reference names."""
    # What an example registers is for this test alone.
    monkeypatch.setattr(formats, "FORMATS", dict(formats.FORMATS))
    for package in (online, solvers):
        monkeypatch.setattr(package, "registered", dict(package.registered))
    module, known = importlib.import_module(name), {"bj": bj, "jnp": jnp, "np": np}
    done = doctest.testmod(module, optionflags=doctest.ELLIPSIS, extraglobs=known)
    assert done.failed == 0
