"""`budgetjax plot`: draws a model."""

import io
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import click
import numpy as np

from budgetjax import _checks, plots
from budgetjax._errors import names_errors
from budgetjax.cli import options, reading, reports, targets
from budgetjax.refitting import calibration
from budgetjax.saving import model_files
from budgetjax.stream.model import StreamModel
from budgetjax.tables.encoding import Encoding

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RESOLUTION = 160
# The number of points of a reliability curve.
BINS = 10


def plot(
    model: tuple[str, ...],
    output: str,
    images: tuple[int, int] | None,
    test: str | None,
) -> None:
    """Draws a picture of one model or several."""
    if images and len(model) > 1:
        raise click.UsageError("--images is for one MODEL.")
    if images and test:
        raise click.UsageError("--images and --test are different pictures.")
    reports.check_outputs({"--output": output}, *model)
    draw(output, lambda: _reliability(model, test) if test else _figure(model, images))
    click.echo(f"picture: {output}")


def draw(output: str, figure: Callable[[], "Figure"]) -> None:
    """Writes a figure of matplotlib in the format of the extension."""
    with names_errors("plot"):
        matplotlib = _checks.import_optional("matplotlib")
    picture = io.BytesIO()
    with matplotlib.rc_context(plots.STYLE):
        kind = os.path.splitext(output)[1].lower()[1:]
        figure().savefig(picture, format=kind, dpi=RESOLUTION)
    model_files.replace(output, [picture.getvalue()])


def _figure(paths: tuple[str, ...], images: tuple[int, int] | None) -> "Figure":
    """Images of support vectors; or learning curves and decision regions."""
    from matplotlib.figure import Figure

    opened = {os.path.basename(path): reading.open_model(path) for path in paths}
    first = next(iter(opened.values())).table
    curves = {
        name: (value.rows, value.errors)
        for name, (value, *_) in opened.items()
        if isinstance(value, StreamModel) and len(value.rows)
    }
    planar = len(paths) == 1 and first.num_features == 2
    panels = 1 if images else bool(curves) + planar
    if not panels or len(paths) > max(len(curves), 1):
        features = reports.with_count(first.num_features, "feature")
        raise ValueError(
            f"{paths[0]}: must have a learning curve, as of budgetjax train, or two "
            f"features, got {features} and no curve"
        )
    figure = Figure(figsize=(0.6 + 3.9 * panels, 3.7), layout="constrained")
    figure.suptitle(", ".join(map(os.path.basename, paths)), x=0.01, ha="left")
    axes = list(figure.subplots(1, panels, squeeze=False).flat)
    if images:
        plots.support_images(first, images, axes=axes[0])
        return figure
    if curves:
        panel = axes.pop(0)
        regression = first.class_labels is None
        plots.learning_curves(curves, regression=regression, axes=panel)
        panel.set_title("Error of rows before they were learned")
    if planar:
        plots.decision_regions(first, axes=axes[0])
        # Images of vectors under a map of codes are no points of the plane.
        is_encoded = isinstance(first.scaling, Encoding)
        axes[0].set_title("Prediction" + ", and support vectors" * (not is_encoded))
    return figure


def _reliability(paths: tuple[str, ...], file: str) -> "Figure":
    """The reliability of probabilities of models on the rows of a file."""
    from matplotlib.figure import Figure

    curves = {}
    for path in paths:
        model = reading.open_model(path)
        table, classes = model.table, model.table.class_labels
        reading.check_probabilities("--test", path, table)
        assert classes is not None
        source = reading.open_rows(model, [file], options.Columns())
        chances, labels = [], []
        for X, *rest in source:
            if not rest:
                raise ValueError(f"{file}: must have the target {model.targets[0]}")
            scores = table.decision_function(X)
            chances.append(calibration.of_scores(table, scores))
            labels.append(rest[0])
        targets.check_rows(source, len(labels))
        y = np.concatenate(labels)
        with names_errors(source.name):
            targets.check_targets(y, classes, 0)
        curves[os.path.basename(path)] = plots.reliability_curve(
            np.concatenate(chances), y, classes, min(BINS, len(y))
        )
    figure = Figure(figsize=(4.5, 4.2), layout="constrained")
    plots.reliability(curves, axes=figure.subplots())
    title = f"{', '.join(curves)} on {os.path.basename(file)}"
    figure.suptitle(title, x=0.01, ha="left")
    return figure
