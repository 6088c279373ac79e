"""Draws the pictures of the pages from rows of results.

A task draws its own: its function `draw` gets the rows, and the path of a picture,
beside which it may write others. A picture has few colors, which makes it small, and
says which rows it shows.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from runner import RESULTS, Row, part_of, read

from budgetjax import plots

# The pictures of each task, in the folder of its results.
DRAWN = {
    "accuracy": ("accuracy",),
    "default_classifier": ("seconds",),
    "drawn_tables": ("drawn_tables",),
    "growth": ("growth",),
    "model_size": ("model_size",),
    "probabilities": ("reliability",),
    "tables": ("ranks", "lengths"),
    "papers/budget_svm_figure1": ("budget_svm_figure1",),
    "papers/forgetron_bounds": ("forgetron_bounds",),
    "papers/forgetron_figure2": ("forgetron_figure2",),
    "papers/pegasos_figures": ("pegasos_figures",),
    "papers/sbp_figure2": ("sbp_figure2",),
    "papers/sbp_figure3": ("sbp_figure3",),
    "papers/sbp_forest": ("sbp_forest",),
}
STYLE = plots.STYLE | {"axes.prop_cycle": cycler(color=plots.COLORS)}
# More would be felt on a phone.
LARGEST = 150_000


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


def paths(task: str) -> list[Path]:
    return [(RESULTS / f"{task}.png").with_stem(name) for name in DRAWN[task]]


def digest(task: str) -> str:
    """What changes with the rows of a task."""
    return hashlib.sha256((RESULTS / f"{task}.csv").read_bytes()).hexdigest()[:16]


def shows(path: Path, rows: str) -> bool:
    """Whether a picture is there, is small, and shows these rows."""
    if not path.exists() or path.stat().st_size > LARGEST:
        return False
    with Image.open(path) as image:
        return image.info.get("rows") == rows


def stale() -> list[str]:
    """Tasks of which a picture is missing, is too large or shows other rows."""
    return [
        task
        for task in DRAWN
        if not all(shows(path, digest(task)) for path in paths(task))
    ]


def draw(task: str) -> None:
    """Draws the pictures of a task."""
    said = PngInfo()
    said.add_text("rows", digest(task))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder, f"{Path(task).name}.png")
        part_of(task, "draw")(read(RESULTS / f"{task}.csv"), made)
        for path in paths(task):
            with Image.open(Path(folder, path.name)) as image:
                few = image.convert("RGB").quantize(256)
            few.save(path, optimize=True, pnginfo=said)
