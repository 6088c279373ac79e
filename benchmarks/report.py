"""Writes every table of the README and of the pages here from rows of results.

    python benchmarks/report.py
    python benchmarks/report.py --check
    python benchmarks/report.py --old

`tables.toml` says which tables there are, and explains how. A table stands between
`<!-- table: NAME -->` and `<!-- end -->`. The line below it names its results, and says
which of them are older than the code that they measure (rows of rivals never are);
between `<!-- rows -->` and `<!-- end -->` stands when and where the rows of a page were
measured. Pictures are drawn again where their rows have changed. With `--check` nothing
is written: it fails where a page says something else than the rows, where a row has no
commit, where a row is older than the code that it measures, unless the line below the
table says so, where nothing shows a row, and where a picture is missing, is too large
or shows other rows. With
`--old` it prints the commands that measure what is of earlier code, the shortest first,
and their minutes on two cores.
"""

import argparse
import functools
import itertools
import re
import statistics
import string
import sys
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import ages
import pictures
import runner
from runner import RESULTS, ROOT, Row

HERE = Path(__file__).resolve().parent
# What papers say: nothing was measured, and rows have no commit.
OF_PAPERS = ("published", "claims")
EARLIER = "earlier code"
# What a line below a table says of it.
SAID_EARLIER = re.compile(rf"; (ours of )?{EARLIER}[^*;]*")
MARKED = re.compile(r"<!-- table: ([\w-]+) -->\n(.*?)<!-- end -->\n", re.DOTALL)
ABOUT = re.compile(r"<!-- rows -->\n(.*?)<!-- end -->\n", re.DOTALL)
# What is no field of rows.
OWN = ("file", "cell", "reduce", "note", "by")


class Used(NamedTuple):
    """A row that a table shows, and in which cell."""

    file: str
    row: Row
    line: str = ""
    column: str = ""


@functools.cache
def rows_of(file: str) -> list[Row]:
    return runner.read(RESULTS / f"{file}.csv")


# Cells.


class Figures(string.Formatter):
    """`{accuracy %:.1f}`, where the field is one of a row.

    Items of lists and dictionaries go by `[1]`, `[-1]` and `[name]`. Beside Python's
    formats there are `3S`, three significant digits, and `100*.2f`, a hundred times the
    figure.
    """

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> Any:
        first, *rest = re.findall(r"^[^\[]+|\[[^\]]*\]", field_name)
        found = kwargs[first]
        for step in (one[1:-1] for one in rest):
            found = found[int(step) if isinstance(found, list) else step]
        return found, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if digits := re.fullmatch(r"(\d)S", format_spec):
            return significant(value, int(digits[1]))
        factor, star, rest = format_spec.partition("*")
        if star:
            return self.format_field(float(factor) * value, rest)
        text = format(value, format_spec)
        # What rounds to 0 has no sign.
        return text[1:] if re.fullmatch(r"-0(\.0*)?", text) else text


FIGURES = Figures()


def significant(x: float, digits: int) -> str:
    """So many significant digits, or all before the point if these are more."""
    exponent = int(f"{x:.{digits - 1}e}".partition("e")[2])
    return f"{x:,.{max(0, digits - 1 - exponent)}f}"


def text_of(row: Row, cells: str | list[str]) -> str:
    """The first of the cells whose fields the row has."""
    for cell in [cells] if isinstance(cells, str) else cells:
        try:
            return FIGURES.vformat(cell, (), row)
        except (KeyError, IndexError, TypeError):
            continue
    return ""


def reduced(rows: list[Row], given: Row) -> str:
    """One text of the rows of a cell: one, unless it says what to do with several."""
    how, _, name = given.get("reduce", "one").partition(":")
    if how == "one" and len(rows) > 1:
        raise LookupError(
            f"{given['file']}.csv has {len(rows)} rows for {given['cell']}"
        )
    cell, note = given["cell"], {"note": given.get("note", ""), "count": len(rows)}
    if how == "each":
        texts = [text_of(row | note, cell) for row in rows]
        kept = filter(None, texts) if name else (text or "-" for text in texts)
        return (name or " / ").join(kept) if any(texts) else ""
    if how == "spread":
        texts = sorted({text_of(row | note, cell) for row in rows}, key=number)
        return texts[0] if len(texts) == 1 else f"{texts[0]} to {texts[-1]}"
    if how == "sum":
        note[name] = sum(row[name] for row in rows)
    if how in ("max", "min"):
        rows = [(max if how == "max" else min)(rows, key=lambda row: row[name])]
    return text_of(runner.mean(rows) | note, cell)


def number(text: str) -> float:
    """The first number of a cell."""
    found = re.search(r"[-+]?\d[\d,]*\.?\d*", text)
    return float(found[0].replace(",", "")) if found else float("nan")


# Tables.


def axis(given: Any, table: Row) -> list[tuple[str, Any]]:
    """The names of lines or columns, and what each chooses.

    A list of axes is one after the other. Lists of values, or "*" for all there are,
    give a line for each combination. Otherwise a name has what it chooses, or its cell.
    """
    if isinstance(given, list):
        return [line for one in given for line in axis(one, table)]
    if not all(of == "*" or is_values(of) for of in given.values()):
        return [
            (name, {"cell": of} if isinstance(of, str) else of)
            for name, of in given.items()
        ]
    found = []
    names = ages.described()["names"] | table.get("names", {})
    known = [
        row for row in rows_of(table["file"]) if chosen(row, table.get("where", {}))
    ]
    every = [
        list(dict.fromkeys(row[key] for row in known if key in row))
        if of == "*"
        else of
        for key, of in given.items()
    ]
    for values in itertools.product(*every):
        shown = (
            f"{v:,}" if isinstance(v, int) else names.get(str(v), str(v))
            for v in values
        )
        found.append((", ".join(shown), dict(zip(given, values, strict=True))))
    return found


def is_values(given: Any) -> bool:
    """Whether these are values of a field, rather than choices of columns."""
    return isinstance(given, list) and not isinstance(given[0], dict)


def chosen(row: Row, where: Row) -> bool:
    """Whether a row has these values; one of them, where there is a list.

    The empty text is that of a field that it lacks.
    """
    return all(
        row.get(name, "") in (value if isinstance(value, list) else [value])
        for name, value in where.items()
    )


def matching(table: Row, line: Row, column: Row | list[Row]) -> tuple[list[Row], Row]:
    """The rows of a cell, and how it is written."""
    found: tuple[list[Row], Row] = [], {}
    for choice in column if isinstance(column, list) else [column]:
        every = (table, line, choice)
        given = {name: of for each in every for name, of in each.items() if name in OWN}
        at = table.get("where", {}), filters(line)
        if "by" in choice:
            at = tuple({n: of for n, of in w.items() if n in choice["by"]} for w in at)
        rows = [
            row
            for row in rows_of(given["file"])
            if all(chosen(row, where) for where in (*at, filters(choice)))
        ]
        if rows:
            return rows, given
        found = rows, given
    return found


def filters(choice: Row) -> Row:
    """The fields that rows must have."""
    return {name: of for name, of in choice.items() if name not in OWN}


def cells_of(table: Row) -> tuple[list[list[str]], list[Used]]:
    """The cells of a table, its head first, and the rows that they show."""
    table, used = dict(table), list[Used]()
    columns = axis(table["columns"], table)
    differences = table.get("minus", {})
    lines = [[table.get("corner", ""), *(name for name, _ in columns), *differences]]
    for name, line in axis(table["rows"], table):
        found = [matching(table, line, column) for _, column in columns]
        if key := table.get("common"):
            # Only what every method was measured on.
            shared = set.intersection(
                *({row[key] for row in rows} for rows, _ in found)
            )
            found = [([r for r in rows if r[key] in shared], of) for rows, of in found]
        texts = [reduced(rows, given) if rows else "" for rows, given in found]
        if table.get("complete") and not all(texts):
            continue
        used += [
            Used(given["file"], row, name, column)
            for (column, _), (rows, given) in zip(columns, found, strict=True)
            for row in rows
        ]
        by_name = dict(zip([name for name, _ in columns], texts, strict=True))
        texts += [minus(by_name[a], by_name[b]) for a, b in differences.values()]
        lines.append([name, *texts])
    for name, *texts in [*lines[1:], *zip(*lines, strict=True)]:
        # Of the columns, the first has names.
        if not any(texts):
            raise LookupError(f"table {table['name']}: nothing for {name!r}")
    if table.get("lower") == "*":
        table |= {"lower": [line[0] for line in lines[1:]]}
    if "ours" in table:
        lines[1:] = sorted(lines[1:], key=lambda line: -behind(line, table))
    if "lower" in table:
        told = ranks(lines, set(table["lower"]))
        lines[1:] = told if table.get("alone") else [*told, *lines[1:]]
    return lines, used


def behind(line: list[str], table: Row) -> float:
    """Our least error over that of the others, whose columns follow ours."""
    is_error = line[0] in table["lower"]
    errors = [x if is_error else 100 - x for x in map(number, line[1:])]
    ours, others = errors[: table["ours"]], errors[table["ours"] :]
    return min(ours) / max(min(others), 0.01)


def minus(ours: str, theirs: str) -> str:
    """The difference of two cells, with their digits."""
    if not ours or not theirs:
        return ""
    found = re.search(r"\d\.(\d+)", ours)
    digits = len(found[1]) if found else 0
    apart = round(number(ours) - number(theirs), digits)
    return f"{apart:+.{digits}f}" if apart else "0"


def ranks(lines: list[list[str]], lower: set[str]) -> list[list[str]]:
    """The mean rank of each column with its standard error, and where it is the best.

    Args:
      lines: the table.
      lower: the lines whose lowest figure is the best.
    """
    places = []
    for name, *texts in lines[1:]:
        figures = [number(text) * (1 if name in lower else -1) for text in texts]
        # Equal figures share the mean of their places.
        places.append(
            [sum(o < x for o in figures) + (figures.count(x) + 1) / 2 for x in figures]
        )
    columns = list(zip(*places, strict=True))
    means = [
        f"{statistics.mean(of):.1f} ± {statistics.stdev(of) / len(of) ** 0.5:.1f}"
        for of in columns
    ]
    best = [str(sum(place < 1.5 for place in of)) for of in columns]
    return [[f"mean rank of the {len(places)}", *means], ["best on", *best]]


# What is said of rows.


def days(dates: list[str]) -> str:
    """The first and the last day."""
    first, last = (date.fromisoformat(one) for one in (min(dates), max(dates)))
    until = f"{last.day} {last:%B %Y}"
    if first == last:
        return until
    if (first.year, first.month) == (last.year, last.month):
        return f"{first.day} to {until}"
    return f"{first.day} {first:%B %Y} to {until}"


def measured(used: list[Used]) -> list[Used]:
    """What was measured here."""
    return [one for one in used if one.file not in OF_PAPERS]


def caption(used: list[Used]) -> str:
    """The results of a table, and which are older than their code."""
    files = [one.file.removesuffix("_summary") for one in used]
    said = [", ".join(f"`{file}`" for file in dict.fromkeys(files))]
    return f"*Rows: {'; '.join([*said, *filter(None, [earlier(used)])])}*"


def earlier(used: list[Used]) -> str:
    """What of a table is older than its code, in as few words as possible."""
    own = [one for one in used if not ages.is_rival(one.file, one.row)]
    old = {i for i, one in enumerate(own) if ages.is_of_earlier_code(one.file, one.row)}
    if not old:
        return ""
    if len(old) == len(own):
        return EARLIER if len(own) == len(used) else f"ours of {EARLIER}"
    for place in ("column", "line"):
        names = dict.fromkeys(getattr(own[i], place) for i in sorted(old))
        among = [i for i, one in enumerate(own) if getattr(one, place) in names]
        if old == {*among} and len(names) <= 3:
            return f"{EARLIER}: {', '.join(map(str.strip, names))}"
    return f"{EARLIER} in part"


def about(used: list[Used]) -> str:
    """When and where the rows of a page were measured."""
    rows = [one.row for one in used]
    found = re.findall(r"jax (\d+\.\d+)", str(rows))
    jax = sorted({*found}, key=lambda v: int(v[2:]))
    makers = sorted({row["processor"].split("(")[0].split()[0] for row in rows})
    return (
        f"*Rows of {days([row['date'] for row in rows])}; JAX {' and '.join(jax)}; "
        f"{' and '.join(makers)}.*\n"
    )


def written(table: Row) -> str:
    """A table in Markdown, with the line below it."""
    (head, *body), used = cells_of(table)
    columns = list(zip(*body, strict=True))
    rule = ["---", *("---:" if are_numbers(of) else "---" for of in columns[1:])]
    lines = [
        f"| {' | '.join(cell.strip() for cell in line)} |"
        for line in (head, rule, *body)
    ]
    lines = [re.sub(r"\|  (?=\|)", "| ", line) for line in lines]
    if ours := measured(used):
        lines += ["", caption(ours)]
    return "\n".join(["", *lines, "", ""])


def are_numbers(cells: tuple[str, ...]) -> bool:
    """Whether these are numbers, with little beside them, which are aligned."""
    return all(re.fullmatch(r"([-+]?\d.{0,20})?", cell) for cell in cells)


def without_commit() -> list[str]:
    """Files with rows that do not say of which commit they are."""
    names = (
        path.relative_to(RESULTS).with_suffix("") for path in RESULTS.rglob("*.csv")
    )
    names = sorted({name.as_posix() for name in names}.difference(OF_PAPERS))
    return [
        f"{name}.csv: a row has no commit or no date"
        for name in names
        if not all({"commit", "date"} <= row.keys() for row in rows_of(name))
    ]


def page(name: str) -> tuple[str, str, list[str]]:
    """The text of a page, what it should be, and markers that nothing writes."""
    tables = {
        one["name"]: one for one in ages.described()["table"] if one["page"] == name
    }
    text = (ROOT / name).read_text("utf-8")
    found = [match[1] for match in MARKED.finditer(text)]
    wrong = [f"{name}: no place for table {one}" for one in tables.keys() - {*found}]
    wrong += [f"{name}: no table {one}" for one in found if one not in tables]

    def new(match: re.Match[str]) -> str:
        if match[1] not in tables:
            return match[0]
        return f"<!-- table: {match[1]} -->\n{written(tables[match[1]])}<!-- end -->\n"

    right = MARKED.sub(new, text)
    if ABOUT.search(right):
        used = [row for one in tables.values() for row in cells_of(one)[1]]
        said = about(measured(used))
        right = ABOUT.sub(lambda _: f"<!-- rows -->\n{said}<!-- end -->\n", right)
    return text, right, wrong


def same(line: str, other: str) -> bool:
    """Whether two lines agree; where git has no history, ages are not compared."""
    if not ages.knows_history():
        line, other = (SAID_EARLIER.sub("", one) for one in (line, other))
    return line == other


def differences(name: str, text: str | None = None) -> list[str]:
    """What a page, or another text of it, says otherwise than the rows."""
    known, right, wrong = page(name)
    text = known if text is None else text
    pairs = itertools.zip_longest(text.splitlines(), right.splitlines(), fillvalue="")
    apart = [(a, b) for a, b in pairs if not same(a, b)]
    return wrong + [f"{name}: {a!r}, not {b!r}" for a, b in apart[:20]]


def idle() -> list[str]:
    """Rows of tasks that nothing shows; those of papers may stand for claims alone."""
    used = {id(u.row) for one in ages.described()["table"] for u in cells_of(one)[1]}
    wrong = []
    for file in sorted(path.stem for path in RESULTS.glob("*.csv")):
        drawn = file in pictures.DRAWN or file.endswith("_summary") or file in OF_PAPERS
        number = sum(id(row) not in used for row in rows_of(file))
        if number and not drawn:
            wrong.append(f"{file}.csv: {number} rows that no page shows")
    return wrong


def unseen() -> list[str]:
    """Pictures that no page shows, and those that nothing draws."""
    texts = "".join((ROOT / name).read_text("utf-8") for name in pages())
    shown = {*re.findall(r"\]\((?:benchmarks/)?(results/[\w/]+\.png)\)", texts)}
    every = [path for task in pictures.DRAWN for path in pictures.paths(task)]
    drawn = {path.relative_to(HERE).as_posix() for path in every}
    wrong = [f"{path}: no page shows it" for path in sorted(drawn - shown)]
    return wrong + [f"{path}: nothing draws it" for path in sorted(shown - drawn)]


def pages() -> list[str]:
    return list(dict.fromkeys(one["page"] for one in ages.described()["table"]))


def commands() -> list[str]:
    """What measures the rows of earlier code, the shortest first."""
    told = ages.described()["files"]
    minutes = {file: of["minutes"] for file, of in told.items() if "minutes" in of}
    files = [file for file in minutes if ages.find_old(file, rows_of(file))]
    return [
        f"python benchmarks/runner.py {file} --old  # {minutes[file]} minutes for all"
        for file in sorted(files, key=lambda file: minutes[file])
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--old", action="store_true", help="print commands alone")
    given = parser.parse_args()
    if given.old:
        print(*commands(), sep="\n")
        return
    wrong = without_commit() + idle() + unseen()
    for task in pictures.stale():
        if given.check:
            wrong.append(f"{task}: its pictures do not show its rows")
        else:
            pictures.draw(task)
    for name in pages():
        if given.check:
            wrong += differences(name)
            continue
        _, right, missing = page(name)
        (ROOT / name).write_text(right, "utf-8")
        wrong += missing
    print(*wrong, sep="\n", end="\n" if wrong else "")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
