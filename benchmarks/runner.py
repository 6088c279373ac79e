"""Runs cases of the benchmarks: each gives rows of results, as CSV.

    python benchmarks/runner.py accuracy
    python benchmarks/runner.py accuracy data=letter,usps B=100 "method=Pegasos, merge"
    python benchmarks/runner.py papers/sbp_forest --minutes 40
    python benchmarks/runner.py growth --old
    python benchmarks/runner.py tables --list

A task is a module of `tasks` with a function `cases`, or an entry of `TASKS` in the
module of a paper. A run measures the cases that its file lacks, with `--old` those too
whose rows are of earlier code and no rival's, and writes each row at once, with the
commit, whether the code differed from it, the machine, the versions and the date.
`FIELD=VALUE` restricts the cases; some, such as the slowest rivals, run only where a
field names them, and some tasks take values of their own (`given`). A value that has
commas in it is given alone.

A task may also have `prepare`, which is called first, `KEEPS_PROGRAMS`, if cases of one
shape share what was compiled, and `summarise`, whose rows go to `NAME_summary.csv`.
`draw` is called by `report.py`.
"""

import argparse
import csv
import functools
import importlib
import itertools
import json
import math
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import ages
from ages import ROOT, Row

RESULTS = ROOT / "benchmarks" / "results"
# What every row says of itself, in the last columns of a file.
ABOUT = (
    *("commit", "dirty", "date", "processor", "cores", "hardware", "python"),
    *("versions", "flags", "command"),
)
PACKAGES = ("jax", "jaxlib", "numpy", "scikit-learn", "river")
PACKAGES += ("lightgbm", "xgboost", "catboost", "pytabkit", "xrfm")


class Case(NamedTuple):
    """What is measured, and how.

    Attributes:
      key: the fields that tell the case from others, such as data, method and budget.
      run: measures it, and returns the figures; several rows of them, where one run
        gives several, which differ in further fields.
      usual: whether to run it where no field asks for it.
    """

    key: Row
    run: Callable[[], Row | list[Row]]
    usual: bool = True


def product(
    measured: Callable[..., Row | list[Row]],
    usual: Callable[..., bool] = lambda *values: True,
    **fields: Iterable[Any],
) -> Iterator[Case]:
    """A case per combination of values, with which `measured` and `usual` are called.

    The last field changes first.
    """
    for values in itertools.product(*fields.values()):
        key = dict(zip(fields, values, strict=True))
        yield Case(key, functools.partial(measured, *values), usual(*values))


class Task(NamedTuple):
    """One of several tasks of a module, which it names in `TASKS`."""

    cases: Callable[[], Iterable[Case]]
    draw: Callable[[list[Row], Path], None] | None = None
    summarise: Callable[[list[Row]], Iterable[Row]] | None = None
    prepare: Callable[[], None] | None = None
    KEEPS_PROGRAMS: bool = False


def find(task: str) -> Any:
    """The module of a task, or what the module of a paper names so; None if unknown.

    Others are not imported: some settings of JAX come before its first array.
    """
    folder, _, name = (task if "/" in task else f"tasks/{task}").partition("/")
    for path in (ROOT / "benchmarks" / folder).glob("[!_]*.py"):
        if name == path.stem:
            return importlib.import_module(f"{folder}.{name}")
        if name.startswith(f"{path.stem}_"):
            module = importlib.import_module(f"{folder}.{path.stem}")
            return getattr(module, "TASKS", {}).get(name.removeprefix(f"{path.stem}_"))
    return None


def part_of(task: str, name: str) -> Any:
    """What a task has by this name, or None: `cases`, `draw`, `summarise`, ..."""
    return getattr(find(task), name, None)


def tasks() -> list[str]:
    """The names of all tasks."""
    names = [path.stem for path in (ROOT / "benchmarks/tasks").glob("[!_]*.py")]
    for path in (ROOT / "benchmarks/papers").glob("[!_]*.py"):
        module, name = find(f"papers/{path.stem}"), f"papers/{path.stem}"
        parts = getattr(module, "TASKS", None)
        names += [f"{name}_{part}" for part in parts] if parts else [name]
    return sorted(names)


def mean(rows: list[Row]) -> Row:
    """One row: the means of numbers, and of anything else the first."""
    merged: Row = {}
    for name, first in rows[0].items():
        own = [row[name] for row in rows if name in row]
        is_number = isinstance(first, int | float) and not isinstance(first, bool)
        merged[name] = statistics.mean(own) if is_number and len(own) > 1 else first
    return merged


# Files.


def read(path: Path) -> list[Row]:
    """The rows of a file, which is empty before the first."""
    if not path.exists():
        return []
    csv.field_size_limit(10**8)
    with path.open(newline="", encoding="utf-8") as file:
        return [
            {name: decode(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file)
        ]


def write(rows: Iterable[Row], path: Path) -> None:
    """Writes rows, the columns in the order in which they appear."""
    rows = list(rows)
    names = [n for n in dict.fromkeys(n for row in rows for n in row) if n not in ABOUT]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [*names, *ABOUT], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: encode(value) for name, value in row.items()})


def encode(value: Any) -> str:
    """A cell: text as it is, unless it reads as something else, and all else as JSON.

    None and the empty text are the empty cell, which is not read again.
    """
    if hasattr(value, "tolist"):
        value = value.tolist()
    if value is None or value == "":
        return ""
    if isinstance(value, str):
        return value if decode(value) == value else json.dumps(value)
    return json.dumps(value)


def decode(cell: str) -> Any:
    """The value of a cell that is not empty."""
    try:
        return json.loads(cell)
    except ValueError:
        return cell


# What a row says of itself.


def commit() -> tuple[str, bool | None]:
    """The commit that is measured, and whether what is measured differs from it.

    Results do not count, which are written meanwhile.
    """
    head = ages.git("rev-parse", "--short=7", "HEAD")
    others = ages.git("status", "--porcelain", "--", ":!benchmarks/results")
    if head is None or others is None:
        return "unknown", None
    return head, bool(others)


def processor() -> str:
    """The model of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":")[1].strip() for line in lines if line[:10] == "model name"
        )
    except (OSError, StopIteration):
        return platform.processor()


@functools.cache
def about() -> Row:
    """What every row of this process says of itself."""
    import jax

    measured, differs = commit()
    versions = []
    for name in PACKAGES:
        try:
            versions.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    program = Path(sys.argv[0]).resolve()
    own = program.relative_to(ROOT) if program.is_relative_to(ROOT) else program
    return {
        "commit": measured,
        "dirty": differs,
        "date": time.strftime("%Y-%m-%d"),
        "processor": processor(),
        "cores": os.cpu_count(),
        "hardware": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "versions": ", ".join(versions),
        "flags": os.environ.get("XLA_FLAGS", ""),
        "command": shlex.join(["python", str(own), *sys.argv[1:]]),
    }


def oldest(rows: list[Row]) -> Row:
    """What a summary of rows says of itself: that of the oldest."""
    first = min(rows, key=lambda row: row["date"])
    return {name: first[name] for name in ABOUT if name in first}


# Runs.

# The fields that this run asks for, each with its texts, and those that a task takes.
asked: dict[str, list[str]] = {}
taken: set[str] = set()


def given(name: str, *usual: Any) -> list[Any]:
    """The values of a field that a run asks for, or the usual ones."""
    taken.add(name)
    if name not in asked:
        return list(usual)
    return [decode(one) for text in asked[name] for one in text.split(",")]


def agrees(row: Row, key: Row) -> bool:
    """Whether a row is of this case; in files an empty cell is no field."""
    return all(
        row.get(n) == v or (v in ("", None) and n not in row) for n, v in key.items()
    )


def run(
    cases: Iterable[Case],
    output: Path,
    deadline: float = math.inf,
    again: Callable[[Row], bool] = lambda row: False,
    clear: bool = True,
) -> list[Row]:
    """Measures the cases that the file lacks, and writes each row at once.

    Args:
      cases: what to measure.
      output: CSV file of all rows.
      deadline: seconds of the monotonic clock after which no measurement begins.
      again: whether to measure a case anew for one of its rows, and replace them.
      clear: whether to clear compiled programs after each case.

    Returns:
      The rows of the cases, in their order.
    """
    import jax
    from tqdm import tqdm

    cases, rows = list(cases), read(output)
    for case in (progress := tqdm(cases, disable=None)):
        progress.set_description(" ".join(map(str, case.key.values())))
        places = [i for i, row in enumerate(rows) if agrees(row, case.key)]
        if places and not any(again(rows[i]) for i in places):
            continue
        if time.monotonic() > deadline:
            print(f"{output}: stopped after its minutes; the same command goes on")
            break
        found = case.run()
        found = [found] if isinstance(found, dict) else found
        others = [row for i, row in enumerate(rows) if i not in places]
        place = places[0] if places else len(rows)
        new = [case.key | one | about() for one in found]
        rows = [*others[:place], *new, *others[place:]]
        write(rows, output)
        if clear:
            jax.clear_caches()
    return [row for case in cases for row in rows if agrees(row, case.key)]


def show(rows: list[Row]) -> None:
    """Prints the figures of rows, without curves and what they say of themselves."""

    def text(value: Any) -> str:
        if not isinstance(value, float):
            return str(value)
        return f"{value:.1e}" if 0 < abs(value) < 0.005 else f"{value:.2f}"

    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if name not in ABOUT
        and not any(isinstance(row.get(name), list | dict) for row in rows)
    ]
    cells = [names, *([text(row.get(name, "")) for name in names] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for line in cells:
        padded = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        print("  ".join(padded))


def wanted(case: Case) -> bool:
    """Whether a run asks for a case; those that a task takes may be no fields of it."""
    known = [name for name in asked if name in case.key]
    if not asked.keys() <= taken | case.key.keys():
        return False
    for name in known:
        value = str(case.key[name])
        if not any(value in (text, *text.split(",")) for text in asked[name]):
            return False
    return case.usual or bool(known)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", help="a module of `tasks`, or papers/NAME")
    parser.add_argument("fields", nargs="*", metavar="FIELD=VALUE,VALUE")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--again", action="store_true", help="measure known cases too")
    parser.add_argument("--old", action="store_true", help="and what is of old code")
    parser.add_argument("--list", action="store_true", help="print the cases alone")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_intermixed_args()
    for text in arguments.fields:
        name, equals, values = text.partition("=")
        if not equals:
            parser.error(f"must be FIELD=VALUE, got {text!r}")
        asked.setdefault(name, []).append(values)
    task = arguments.task
    if not part_of(task, "cases"):
        parser.error(f"the tasks are {', '.join(tasks())}, got {task}")
    if prepare := part_of(task, "prepare"):
        prepare()
    cases = list(part_of(task, "cases")())
    known = taken.union(*(case.key for case in cases))
    if unknown := asked.keys() - known:
        parser.error(f"the fields are {', '.join(sorted(known))}, got {unknown.pop()}")
    cases = [case for case in cases if wanted(case)]
    if arguments.list:
        show([case.key for case in cases])
        return
    if not cases:
        parser.error(f"no case of {task} has these fields")
    output = arguments.output or RESULTS / f"{task}.csv"
    deadline = time.monotonic() + 60 * arguments.minutes

    def again(row: Row) -> bool:
        return arguments.again or (arguments.old and bool(ages.find_old(task, [row])))

    clear = not part_of(task, "KEEPS_PROGRAMS")
    show(run(cases, output, deadline, again, clear))
    if summarise := part_of(task, "summarise"):
        rows = list(summarise(read(output)))
        write(rows, output.with_name(f"{output.stem}_summary.csv"))
        show(rows)


if __name__ == "__main__":
    # Tasks import this module, and there is to be one of it.
    import runner

    runner.main()
