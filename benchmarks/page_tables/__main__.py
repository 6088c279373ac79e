"""Writes every table of the README and of the benchmarks' pages from the results.

    python benchmarks/page_tables

A table stands below `<!-- table: NAME -->`. Sentences with figures are not written but
compared; what differs is printed, as `tests/test_pages.py` would.
"""

import importlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def register() -> None:
    """Imports what registers the tables of all pages."""
    for name in ("front", "accuracy", "launches", "papers", "published", "speed"):
        importlib.import_module(f"page_tables.{name}")


def main() -> None:
    from page_tables import pages

    register()
    for page in (*pages.PAGES, *pages.GUIDES):
        text = pages.read(page)
        wanted, _ = pages.expected(page)

        def new(match, wanted=wanted):
            name = match[1]
            if name not in wanted:
                return match[0]
            # Below a new marker, a line keeps the table apart from what follows.
            after = "" if match[2] else "\n"
            return f"<!-- table: {name} -->\n\n{pages.write(wanted[name])}{after}"

        written = pages.MARKED.sub(new, text)
        (pages.ROOT / page).write_text(written)
        for line in pages.differences(page, written):
            print(line)


if __name__ == "__main__":
    main()
