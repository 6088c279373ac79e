"""A progress bar on long work, by tqdm."""

import contextlib
from collections.abc import Callable, Iterator

from budgetjax import checks


@contextlib.contextmanager
def reporting(
    where: str, progress: bool, unit: str, total: int | None = None
) -> Iterator[Callable[..., object]]:
    """A function `report(text, count=1)`, which moves a progress bar if there is one.

    Args:
      where: the caller's name, on the bar and in error messages.
      progress: whether to show a bar.
      unit: the plural of what is counted.
      total: the final count, where known.

    Raises:
      ValueError: if `progress` is not True or False.
      ImportError: if tqdm is needed and not there.
    """
    if not checks.flag(where, "progress", progress):
        yield lambda text, count=1: None
        return
    try:
        from tqdm import tqdm
    except ImportError as error:
        raise ImportError(f"{where}: progress needs tqdm: pip install tqdm") from error
    with tqdm(desc=where, unit=f" {unit}", total=total) as bar:

        def report(text: str, count: int = 1) -> None:
            bar.set_postfix_str(text, refresh=False)
            bar.update(count)

        yield report
