"""A progress bar for long work, by tqdm, or lines for a log."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator

from budgetjax import _checks

# Seconds between two lines in place of a bar; None shows a bar.
_every: float | None = None


@contextlib.contextmanager
def print_lines(every: float) -> Iterator[None]:
    """Replaces bars by lines on standard error, one every `every` seconds."""
    global _every
    before, _every = _every, every
    try:
        yield
    finally:
        _every = before


@contextlib.contextmanager
def progress_bar(
    name: str, progress: bool, unit: str, total: int | None = None
) -> Iterator[Callable[..., object]]:
    """A function `report(text, count=1)`, which advances the progress bar, if any.

    Its rate starts at the first report, so it excludes earlier compilation. `name` is
    on the bar, `unit` is a plural, and `total` is the final count, if known.
    """
    if not _checks.flag("progress", progress):
        yield lambda text, count=1: None
        return
    if _every is not None:
        yield _lines(name, unit, total, _every)
        return
    tqdm = _checks.import_optional("tqdm").tqdm
    with tqdm(desc=name, unit=f" {unit}", total=total) as bar:

        def report(text: str, count: int = 1) -> None:
            bar.set_postfix_str(text, refresh=False)
            if bar.n:
                bar.update(count)
                return
            bar.unpause()
            bar.n = bar.initial = bar.last_print_n = count
            bar.refresh()

        yield report


def _lines(
    name: str, unit: str, total: int | None, every: float
) -> Callable[..., object]:
    """A `report` that writes a line from time to time."""
    done, last_done, last = 0, 0, 0.0
    of = "" if total is None else f" of {total:,}"

    def report(text: str, count: int = 1) -> None:
        nonlocal done, last_done, last
        done, now = done + count, time.monotonic()
        if last and now - last < every:
            return
        if last:
            rate = (done - last_done) / (now - last)
            line = f"{name}: {done:,}{of} {unit}, {rate:,.4g} {unit}/s, {text}"
            # The reader of the lines may be gone; the work continues.
            with contextlib.suppress(BrokenPipeError):
                print(line.rstrip(", "), file=sys.stderr, flush=True)
        last_done, last = done, now

    return report
