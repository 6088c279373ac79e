"""What the pictures of the pages share: their frame, lines and legend."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from runner import Row

from budgetjax import plots

STYLE = plots.STYLE | {"axes.prop_cycle": cycler(color=plots.COLORS)}


@contextlib.contextmanager
def panels(
    path: Path, columns: int, lines: int = 1, size: tuple[float, float] = (3.5, 3.3)
) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure and its panels, line by line, each of this size; written at the end.

    Panels without a title or a label are left out.
    """
    with matplotlib.rc_context(STYLE):
        width, height = size
        figure = Figure(figsize=(width * columns, height * lines), layout="constrained")
        found = list(figure.subplots(lines, columns, squeeze=False).flat)
        yield figure, found
        for panel in found:
            if not (panel.get_title("left") or panel.get_xlabel()):
                panel.remove()
        figure.savefig(path, dpi=130)


def plot(
    panel: Axes,
    rows: list[Row],
    by: str,
    x: Callable[[Row], Any] | str,
    y: Callable[[Row], Any] | str,
    **shown: Any,
) -> None:
    """A line for each value of a field, `by`, through what its rows have as x and y.

    Args:
      panel: where to draw.
      rows: what to draw, in order.
      by: the field.
      x: a field, or a function of a row.
      y: the same.
      **shown: `names`, the values that are drawn, and their names; further arguments
        of `Axes.plot`.
    """
    names = shown.pop("names", None) or {row[by]: row[by] for row in rows}
    at = [of if callable(of) else lambda row, of=of: row[of] for of in (x, y)]
    for color, (value, label) in zip(plots.COLORS, names.items(), strict=False):
        own = [row for row in rows if row.get(by) == value]
        if own:
            # A row may be a whole line.
            line = [np.ravel([of(row) for row in own]) for of in at]
            panel.plot(*line, **{"marker": ".", "color": color, "label": label} | shown)


def legend(
    figure: Figure, panels: list[Axes], place: Any = "outside lower center"
) -> None:
    """One legend of all panels."""
    found: dict[str, Any] = {}
    for panel in panels:
        handles, labels = panel.get_legend_handles_labels()
        found |= dict(zip(labels, handles, strict=True))
    columns = min(4, len(found))
    figure.legend(list(found.values()), list(found), loc=place, ncols=columns)
