"""The measured figures, read from `benchmarks/results`, and how they are written."""

import functools
import json
import math
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"

# The files that were read since the last `clear`, with the runs of the rows.
sources: dict[str, set[str]] = {}

Where = dict[str, Any]
Cells = list[list[str]]


@functools.cache
def load(name: str) -> dict[str, Any]:
    """A results file: its runs, and the rows, each `made` by one."""
    return json.loads((RESULTS / f"{name}.json").read_text())


def rows(name: str, **where: Any) -> list[dict[str, Any]]:
    """The rows of a file that have these values."""
    wanted = where.items()
    found = [row for row, plain in _with_plain(name) if wanted <= plain.items()]
    sources.setdefault(name, set()).update(
        row["made"] for row in found if "made" in row
    )
    return found


@functools.cache
def _with_plain(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The rows of a file, each with what it can be chosen by."""
    return [
        (row, {key: of for key, of in row.items() if not isinstance(of, list | dict)})
        for row in load(name)["rows"]
    ]


def one(name: str, **where: Any) -> dict[str, Any]:
    """The one row of a file that has these values."""
    found = rows(name, **where)
    if len(found) != 1:
        raise LookupError(f"{name}.json has {len(found)} rows with {where}, need 1")
    return found[0]


def value(name: str, key: str, **where: Any) -> Any:
    """A figure of one row."""
    return one(name, **where)[key]


def runs(name: str) -> dict[str, dict[str, Any]]:
    """The runs that made a file; of published figures there are none."""
    return load(name).get("runs", {})


def commands(name: str) -> list[str]:
    """The commands that made a file."""
    made = (command for run in runs(name).values() for command in run["commands"])
    return list(dict.fromkeys(made))


def jax_of(name: str, run: str) -> str:
    """The version of JAX of a run, to the minor."""
    return ".".join(runs(name)[run]["versions"]["jax"].split(".")[:2])


# Formats.


def fixed(digits: int) -> Callable[[float], str]:
    """So many digits after the point, and commas between thousands."""
    return lambda x: f"{half_up(x, digits):,.{digits}f}"


def half_up(x: float, digits: int) -> float:
    """Rounds as readers do: a half goes up, whatever its last binary digit."""
    exact = Decimal(repr(round(float(x), digits + 6)))
    return float(exact.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP))


def significant(digits: int) -> Callable[[float], str]:
    """So many significant digits, or all before the point if these are more."""

    def text(x: float) -> str:
        if x == 0:
            return "0"
        first = math.floor(math.log10(float(f"{abs(x):.{digits - 1}e}")))
        return fixed(max(0, digits - 1 - first))(x)

    return text


def microseconds(x: float) -> str:
    """Three significant digits, and no more than two after the point."""
    return fixed(2)(x) if x < 1 else significant(3)(x)


def share(x: float) -> str:
    """A share in whole percent."""
    return f"{half_up(100 * x, 0):.0f}%"


percent = fixed(1)
seconds = significant(2)
whole = fixed(0)


def thousands(x: float) -> str:
    """To the nearest thousand."""
    return fixed(0)(1000 * half_up(x / 1000, 0))


def spread(values: Iterable[float], text: Callable[[float], str] = percent) -> str:
    """The least and the largest of some figures."""
    values = list(values)
    ends = text(min(values)), text(max(values))
    return ends[0] if ends[0] == ends[1] else " to ".join(ends)


# Tables.


def figure(
    name: str, key: str, text: Callable[[Any], str] = percent, **where: Any
) -> Callable[[Where], str]:
    """The cells of a grid from one file; a cell without a row is empty."""

    def cell(chosen: Where) -> str:
        found = rows(name, **where, **chosen)
        if not found:
            return ""
        return text(value(name, key, **where, **chosen))

    return cell


def grid(
    lines: dict[str, Where],
    columns: dict[str, Where],
    cell: Callable[[Where], str],
    corner: str = "",
) -> Cells:
    """A table whose lines and columns choose rows of a file."""
    head = [corner, *columns]
    return [
        head,
        *([name, *(cell(at | of) for of in columns.values())]
          for name, at in lines.items()),
    ]  # fmt: skip


def named(key: str, names: Iterable[Any]) -> dict[str, Where]:
    """Lines or columns that are called by what they choose."""
    return {
        f"{name:,}" if isinstance(name, int) else name: {key: name} for name in names
    }


# The registry: a table is known by its page and its name.

Key = tuple[str, str]
tables: dict[Key, Callable[[], Cells]] = {}
statements: dict[str, list[Callable[[], Iterable[str]]]] = {}


def table(page: str, name: str):
    """Registers the function that makes a table."""

    def register(make: Callable[[], Cells]) -> Callable[[], Cells]:
        assert (page, name) not in tables, f"two tables {name} on {page}"
        tables[page, name] = make
        return make

    return register


def states(page: str):
    """Registers a function that makes sentences and cells with figures."""

    def register(make: Callable[[], Iterable[str]]):
        statements.setdefault(page, []).append(make)
        return make

    return register
