"""Pages: where their tables are, what they cite, and how both are compared."""

import functools
import re

from page_tables import results
from page_tables.results import ROOT, Cells

PAGES = (
    "README.md",
    *(
        f"benchmarks/{name}.md"
        for name in ("README", "accuracy", "speed", "papers", "published")
    ),
)
# Pages with figures in sentences only.
GUIDES = ("examples/README.md",)
MARKED = re.compile(r"<!-- table: ([\w-]+) -->\n\n((?:\|.*\n)*)")
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
# Tables without a figure that was measured, by their heads.
WORDS = {
    ("you have", "take"),
    ("learner", "name", "learns", "paper", "cost per example"),
    ("solver", "name", "paper", "a step"),
    ("`pip install`", "for"),
    ("page", "what it adds"),
}
# Numbers of equations and norms in cells of words.
WITHOUT_FIGURES = {
    "`bj.Measured` gives it: 1 or sqrt(2) for removal, less for merging and projection",
    "tested, with bound (22), (10), (16), (17) and Remark 2",
    'tested; the 2-norm by its map, `loss="squared_hinge"`',
    "Lemmas 3.1 and 3.2 and (D.7) are tested",
    'the basic rule, `rule="basic"`, satisfies the conditions of Lemma 2',
    "tested, 1 for two classes with one column",
    "within 0.2",
    "tested: L1 by pairs, L2 by projected gradients; L2 by pairs can jam below the "
    "optimum",
    "L1 yes, L2 by other steps",
}
COMMAND = re.compile(r"`((?:taskset -c [\d,]+\s+)?python\s+benchmarks/[^`]*)`")


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text()


def marked(text: str) -> dict[str, str]:
    """The tables of a page by their names."""
    return {match[1]: match[2] for match in MARKED.finditer(text)}


def unmarked(text: str) -> list[Cells]:
    """The tables that nothing writes."""
    rest = MARKED.sub("", text)
    return [cells(found) for found in TABLE.findall(rest)]


def cells(table: str) -> Cells:
    """The cells of a table, its head first."""
    lines = [
        [cell.strip() for cell in line.strip().strip("|").split("|")]
        for line in table.splitlines()
    ]
    return [line for line in lines if set("".join(line)) - set("-: ")]


def write(rows: Cells) -> str:
    """A table in Markdown."""
    head, *body = (f"| {' | '.join(row)} |" for row in rows)
    rule = f"| {' | '.join('---' for _ in rows[0])} |"
    lines = [re.sub(r"\|  (?=\|)", "| ", line) for line in (head, rule, *body)]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text on one line."""
    return " ".join(text.split())


def cited(text: str) -> set[str]:
    """The commands that a page cites."""
    return {plain(command) for command in COMMAND.findall(text)}


@functools.cache
def expected(page: str) -> tuple[dict[str, Cells], dict[str, dict[str, set[str]]]]:
    """The tables of a page, the files of each, and the runs of the rows it shows."""
    found, files = {}, {}
    for (where, name), make in results.tables.items():
        if where == page:
            results.sources.clear()
            found[name] = make()
            files[name] = dict(results.sources)
    return found, files


@functools.cache
def stated(page: str) -> list[str]:
    """The sentences and cells that a page should have."""
    return [plain(text) for make in results.statements.get(page, ()) for text in make()]


def without_rows(page: str, text: str) -> list[str]:
    """Cells with figures in tables that nothing writes, and that nothing states.

    The first column names what a line is about, and columns called "paper" or "name"
    have no figures of ours; so have code and the cells of tables in `WORDS`.
    """
    said, found = set(stated(page)), []
    for head, *lines in unmarked(text):
        if tuple(head) in WORDS:
            continue
        for line in lines:
            for column, cell in list(zip(head, line, strict=True))[1:]:
                words = re.sub(r"`[^`]*`|\[[^\]]*\]\([^)]*\)", "", cell)
                if column in ("paper", "name") or not re.search(r"\d", words):
                    continue
                if cell in said or cell in WITHOUT_FIGURES:
                    continue
                if not any(one in plain(cell) for one in said if len(one) > 12):
                    found.append(f"{line[0]}: {cell}")
    return found


def differences(page: str, text: str) -> list[str]:
    """What a page says differently from the results, cell by cell."""
    found, wrong = marked(text), []
    wanted, _ = expected(page)
    for name in wanted.keys() - found.keys():
        wrong.append(f"{page}: no table {name}")
    for name in found.keys() - wanted.keys():
        wrong.append(f"{page}, table {name}: nothing writes it")
    for name in wanted.keys() & found.keys():
        ours, theirs = wanted[name], cells(found[name])
        if [len(row) for row in ours] != [len(row) for row in theirs]:
            wrong.append(f"{page}, table {name}: has other rows or columns")
            continue
        for row, other in zip(ours, theirs, strict=True):
            for column, cell, written in zip(ours[0], row, other, strict=True):
                if cell.strip() != written:
                    at = f"{row[0]} / {column}"
                    wrong.append(
                        f"{page}, table {name}, {at}: {written!r}, not {cell!r}"
                    )
    for sentence in stated(page):
        if sentence not in plain(text):
            wrong.append(f"{page}: does not say {sentence!r}")
    return wrong
