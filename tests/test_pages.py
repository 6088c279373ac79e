"""Tables, figures and commands of README and of the benchmarks' pages, and results."""

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

from page_tables import pages, results  # noqa: E402
from page_tables.__main__ import register  # noqa: E402

register()

# What measures, and has no results to show.
WITHOUT_RESULTS = {"python benchmarks/gpu.py", "python benchmarks/page_tables"}
# Of all figures, the version that a page need not repeat.
USUAL = "0.12"


def test_pages_say_what_the_results_say():
    """Cell by cell; `python benchmarks/page_tables` writes the tables."""
    wrong = [
        line
        for page in (*pages.PAGES, *pages.GUIDES)
        for line in pages.differences(page, pages.read(page))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_no_figure_stands_without_a_row():
    found = {page: pages.without_rows(page, pages.read(page)) for page in pages.PAGES}
    assert not any(found.values()), found


def words(command):
    """The words of a command, whatever its quotes and its cores."""
    return re.sub(r"^taskset -c \S+ ", "", shlex.join(shlex.split(command)))


def made():
    """The commands that made all results."""
    names = (
        path.relative_to(results.RESULTS) for path in results.RESULTS.rglob("*.json")
    )
    found = (name.with_suffix("").as_posix() for name in names)
    return {words(one) for name in found for one in results.commands(name)}


def not_made(text):
    """The commands of a page that made no results as they are cited."""
    known = made() | WITHOUT_RESULTS
    return [
        command
        for command in pages.cited(text)
        if words(command) not in known and not command.endswith(" NAME")
    ]


def test_commands_have_the_flags_that_made_the_results():
    for page in pages.PAGES:
        text = pages.read(page)
        assert not_made(text) == [], page
        cited = {words(command) for command in pages.cited(text)}
        _, files = pages.expected(page)
        for name, sources in files.items():
            # The README links to the pages that cite them.
            for source in sources.keys() - {"published"} if page != "README.md" else ():
                own = {words(command) for command in results.commands(source)}
                assert own & cited, f"{page}, {name}: no command of {source}.json"


def test_pages_say_which_jax():
    """The usual one above all sections, any other in the section of its table."""
    wrong = []
    for page in pages.PAGES[1:]:
        sections = re.split(r"(?m)^(?=##+ )", pages.read(page))
        if f"JAX {USUAL}" not in pages.plain(sections[0]):
            wrong.append(f"{page} does not say JAX {USUAL}")
        _, files = pages.expected(page)
        for section in sections:
            for name in pages.marked(section):
                for source, versions in files[name].items():
                    for version in versions - {USUAL, ""}:
                        if f"JAX {version}" not in pages.plain(section):
                            wrong.append(f"{page}, {name}: {source}, JAX {version}")
    assert not wrong, wrong


def test_a_cell_that_was_changed_is_found():
    page = "benchmarks/README.md"
    text = pages.read(page)
    right = "| letter | 97.2 |" if "| letter | 97.2 |" in text else "| 95.4 |"
    changed = text.replace(right, right.replace("9", "8", 1), 1)
    assert changed != text
    assert len(pages.differences(page, changed)) == 1


def test_a_sentence_that_was_changed_is_found():
    page = "benchmarks/speed.md"
    text = pages.read(page)
    changed = text.replace("In 10 of the 48 runs", "In 9 of the 48 runs")
    assert changed != text
    assert len(pages.differences(page, changed)) == 1


def test_a_command_without_its_flags_is_found():
    text = pages.read("benchmarks/papers.md")
    changed = text.replace(" --minutes 40`", "`")
    assert changed != text
    assert not_made(changed) == ["python benchmarks/papers sbp_forest"]


def test_a_table_that_nothing_writes_is_found():
    text = "| | accuracy, % |\n| --- | --- |\n| letter | 99.9 |\n"
    assert pages.without_rows("benchmarks/README.md", text) == ["letter: 99.9"]


def test_a_cell_needs_its_row():
    with pytest.raises(LookupError, match="has 0 rows"):
        results.value("accuracy", "accuracy %", data="letter", B=7)


def test_files_keep_the_commands_of_the_rows_they_keep(tmp_path, monkeypatch):
    """And the version of JAX where it was another."""
    import measure

    output = tmp_path / "made.json"
    old = {"data": "letter", "accuracy %": 90.0}
    monkeypatch.setattr(sys, "argv", ["benchmarks/made.py", "--data", "letter"])
    measure.save([old], output)
    written = json.loads(output.read_text())
    written["machine"]["versions"]["jax"] = "0.8.0"
    output.write_text(json.dumps(written))
    monkeypatch.setattr(sys, "argv", ["benchmarks/made.py", "--orders", "1"])
    measure.save([old, {"data": "usps"}], output)
    written = json.loads(output.read_text())
    first, second = written["machine"]["commands"]
    assert first.endswith("made.py --data letter")
    assert second.endswith("made.py --orders 1")
    assert written["rows"] == [{"jax": "0.8.0"} | old, {"data": "usps"}]
    # Nothing is kept of what was measured again.
    measure.save([{"data": "usps", "accuracy %": 1.0}], output)
    assert len(json.loads(output.read_text())["machine"]["commands"]) == 1
