"""Draws the pictures of the pages from rows of results.

A task draws its own: its function `draw` gets the rows, and the path of a picture,
beside which it may write others. A picture has few colors, which makes it small, and
says which rows it shows.
"""

import hashlib
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from runner import RESULTS, part_of, read

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
# More would be felt on a phone.
LARGEST = 150_000


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
