"""Tables, figures and commands of README and of the benchmarks' pages, and results."""

import json
import re
import shlex
import subprocess
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
                for source, runs in files[name].items():
                    versions = {results.jax_of(source, run) for run in runs}
                    for version in versions - {USUAL}:
                        if f"JAX {version}" not in pages.plain(section):
                            wrong.append(f"{page}, {name}: {source}, JAX {version}")
    assert not wrong, wrong


def test_sections_that_name_a_processor_name_all_that_measured_their_tables():
    wrong = []
    for page in pages.PAGES:
        _, files = pages.expected(page)
        for section in re.split(r"(?m)^(?=##+ )", pages.read(page)):
            text = pages.plain(section)
            makers = [name for name in ("AMD", "Intel") if name in text]
            for name in pages.marked(section) if makers else ():
                for source, runs in files[name].items():
                    used = {results.runs(source)[run]["processor"] for run in runs}
                    for maker in {one.split("(")[0].split()[0] for one in used}:
                        if maker not in makers:
                            wrong.append(f"{page}, {name}: {source}, {maker}")
    assert not wrong, wrong


def test_every_row_has_a_run():
    """With the commit, whether the code differed, the machine and the date."""
    known = {"commit", "dirty", "date", "processor", "cores", "versions", "commands"}
    for path in results.RESULTS.rglob("*.json"):
        name = path.relative_to(results.RESULTS).with_suffix("").as_posix()
        if name == "published":
            continue
        runs = results.runs(name)
        assert {row["made"] for row in results.load(name)["rows"]} == set(runs), name
        assert all(run.keys() >= known and run["commit"] for run in runs.values()), name


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


def test_rows_keep_the_run_that_measured_them(tmp_path, monkeypatch):
    """Whatever machine, commit, day or command measures others of the file."""
    import measure

    def saved(rows, **more):
        # Another process, as far as a run is concerned.
        measure.this_run.cache_clear()
        own = measure.this_run() | more
        monkeypatch.setattr(measure, "this_run", lambda: own)
        measure.save(rows, tmp_path / "made.json")
        monkeypatch.undo()
        return json.loads((tmp_path / "made.json").read_text()), own

    commits = {"commit": "1234567", "dirty": True}
    other = {"processor": "another", "date": "2020-02-02"} | commits
    first, old = saved([{"data": "letter", "accuracy %": 90.0}], **other)
    assert first["runs"] == {"1234567-1": old}
    assert first["rows"] == [
        {"made": "1234567-1", "data": "letter", "accuracy %": 90.0}
    ]
    assert old.keys() >= {"date", "cores", "versions", "commands"}
    # One row is kept, one is new, and the process saves twice.
    rows = [*first["rows"], {"data": "usps"}]
    for _ in range(2):
        second, new = saved(rows, commit="1234567", dirty=False)
        assert second["runs"] == {"1234567-1": old, "1234567-2": new}
        assert [row["made"] for row in second["rows"]] == ["1234567-1", "1234567-2"]
    # A row that was measured again is of its last run, though it says what it did.
    third, _ = saved(
        [{"data": "letter", "accuracy %": 90.0}, second["rows"][1] | {"accuracy %": 1}],
        commit="1234567",
        dirty=False,
    )
    assert third["runs"] == {"1234567-2": new}


def test_what_is_measured_is_a_commit_or_differs_from_one(tmp_path, monkeypatch):
    import measure

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(tmp_path), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True)

    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    monkeypatch.setattr(measure, "__file__", str(tmp_path / "benchmarks" / "it.py"))
    assert measure.commit() == (None, None)
    git("init", "-q")
    (tmp_path / "code.py").write_text("")
    git("add", ".")
    git("commit", "-qm", "first")
    (tmp_path / "benchmarks" / "results" / "made.json").write_text("{}")
    name = git("rev-parse", "--short=7", "HEAD").stdout.strip()
    assert measure.commit() == (name, False)
    (tmp_path / "code.py").write_text("other")
    assert measure.commit() == (name, True)
