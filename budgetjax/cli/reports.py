"""Writes the files and reports of commands."""

import csv
import io
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

import click
import numpy as np

# The names of copies of standard input and pipes in messages, by path.
COPIES: dict[str, str] = {}


def check_outputs(outputs: dict[str, str | None], *inputs: str | None) -> None:
    """Raises before the work starts if these files cannot be written.

    `outputs` maps options to paths, and `inputs` must not be overwritten.
    """
    taken = {os.path.realpath(path): path for path in inputs if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        if real in taken:
            raise click.UsageError(f"{option}: {path} is also another file of the run.")
        taken[real] = path
        if is_special(real):
            continue
        folder = os.path.dirname(real)
        if not os.path.isdir(folder):
            raise ValueError(f"{option} {path}: there is no folder {folder}")
        if os.path.isdir(real):
            raise ValueError(f"{option} {path}: must be a file, got a folder")
        if not os.access(folder, os.W_OK):
            raise ValueError(f"{option} {path}: the folder {folder} is not writable")


def echo(text: str, *, err: bool = False) -> None:
    """Prints a line of a report; work continues if its reader has closed the pipe."""
    try:
        click.echo(text, err=err)
    except BrokenPipeError:
        stream = sys.stderr if err else sys.stdout
        # The rest of its buffer would raise an error at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def reporter(quiet: bool) -> Callable[[str, str], None]:
    """What prints a line of a report, or nothing."""
    if quiet:
        return lambda name, text: None
    return lambda name, text: echo(format_line(name, text))


def is_special(path: str) -> bool:
    """Whether the path is a device, such as /dev/null, or a pipe."""
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


def restore_names(text: str) -> str:
    """A message with the names of standard input and pipes instead of their copies."""
    for copy, name in COPIES.items():
        text = text.replace(copy, name)
    return text


def format_line(name: str, text: str) -> str:
    """A line of a report."""
    return f"{name + ':':<20}{text}"


def as_csv(rows: Iterable[Iterable[object]]) -> str:
    """Rows of CSV; cells are quoted only if necessary."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def format_label(value: object) -> str:
    """A label or a number as text; integers have no decimals."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value)) if abs(value) < 2**53 else repr(float(value))
    return str(value)


def join_values(values: Sequence[object]) -> str:
    """Words, labels or numbers, separated by commas; at most the first 20."""
    words = [format_label(value) for value in values[:20]]
    more = f", ... ({len(values):,} in all)" if len(values) > 20 else ""
    return ", ".join(words) + more


def with_count(number: int, what: str) -> str:
    """`1 row`, `2,000 rows`."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")


def aligned(table: Mapping[str, Sequence[object]]) -> str:
    """A table of columns by name as text, aligned to the right."""
    columns = [[name, *map(_cell, column)] for name, column in table.items()]
    widths = [max(map(len, column)) for column in columns]
    lines = zip(*columns, strict=True)
    return "\n".join("  ".join(map(str.rjust, line, widths)) for line in lines)


def _cell(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
