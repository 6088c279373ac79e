"""Which rows of results are older than the code that they measure."""

import functools
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
Row = dict[str, Any]


@functools.cache
def described() -> dict[str, Any]:
    """What `tables.toml` says, with the tables of all pages in one list."""
    told = tomllib.loads((HERE / "tables.toml").read_text("utf-8"))
    told["table"] = [
        {"page": page, "name": name, **table}
        for key, page in told["pages"].items()
        for name, table in told[key].items()
    ]
    return told


def git(*arguments: str) -> str | None:
    """What git prints, or None where it fails."""
    command = ["git", "-C", str(ROOT), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@functools.cache
def knows_history() -> bool:
    """Whether git can tell what is older than what."""
    return git("rev-parse", "HEAD") is not None and (
        git("rev-parse", "--is-shallow-repository") == "false"
    )


@functools.cache
def is_old(file: str, commit: str) -> bool:
    """Whether the code that a file measures does something else since a commit."""
    later = git("rev-list", f"{commit}..HEAD", "--", *subject(file))
    same = tuple(described()["same"]["commits"])
    return later is None or not all(one.startswith(same) for one in later.split())


def subject(file: str) -> list[str]:
    """The paths of the package that decide the figures of a file."""
    known = described()["files"].get(file.removesuffix("_summary"), {})
    names, parts = known.get("of", ["budgetjax"]), described()["parts"]
    return [path for name in names for path in parts.get(name, [name])]


def is_rival(file: str, row: Row) -> bool:
    """Whether a row is of another program, which changes of ours leave as it is."""
    known = described()["rivals"].get(file.removesuffix("_summary"), {})
    return any(row.get(field) in names for field, names in known.items())


def is_of_earlier_code(file: str, row: Row) -> bool:
    """Whether a row is not of the code of today."""
    return bool(row.get("dirty")) or is_old(file, row["commit"])


def find_old(file: str, rows: Iterable[Row]) -> list[Row]:
    """The rows that are ours, and not of the code of today."""
    own = [row for row in rows if not is_rival(file, row)]
    return [row for row in own if is_of_earlier_code(file, row)]
