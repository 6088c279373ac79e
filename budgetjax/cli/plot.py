"""`budgetjax plot`: draws a model."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from budgetjax._errors import names_errors
from budgetjax.cli import options, reading, reports, targets

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".png", ".svg", ".pdf")
RESOLUTION = 160
# The number of points of a reliability curve.
BINS = 10
EXAMPLES = """\b
Examples:
  budgetjax plot iris.safetensors --output iris.png
  budgetjax plot small.safetensors large.safetensors --output curves.pdf
  budgetjax plot digits.safetensors --images 28x28 --output vectors.png
  budgetjax plot digits.safetensors --test new.csv --output reliability.png
"""


class Shape(click.ParamType):
    """The height and width of an image, as "28x28"."""

    name = "HEIGHTxWIDTH"

    def convert(
        self, value: Any, param: options.Parameter, ctx: options.Context
    ) -> tuple[int, int]:
        parts = value.lower().split("x") if isinstance(value, str) else value
        if len(parts) != 2 or not all(str(part).isdigit() for part in parts):
            self.fail(f"must be like 28x28, got {value}.", param, ctx)
        return int(parts[0]), int(parts[1])


@click.command(epilog=EXAMPLES)
@click.argument("model", nargs=-1, required=True, metavar="MODEL...")
@options.output(*FORMATS, text="The .png, .svg or .pdf file.")
@click.option(
    "--images",
    type=Shape(),
    help="Draw the support vectors as images of this shape.",
)
@click.option(
    "--test",
    metavar="FILE",
    help="Draw the reliability of predicted probabilities on FILE.",
)
def plot(
    model: tuple[str, ...],
    output: str,
    images: tuple[int, int] | None,
    test: str | None,
) -> None:
    """Draw a picture of MODEL.

    For a model of "budgetjax train": its learning curve. For any model with two
    features: its decision regions. For several models: their learning curves, in one
    picture. FILE has the target of the training, and is as for "budgetjax predict".
    """
    if images and len(model) > 1:
        raise click.UsageError("--images is for one MODEL.")
    if images and test:
        raise click.UsageError("--images and --test are different pictures.")
    reports.check_outputs({"--output": output}, *model)
    draw(output, lambda: _reliability(model, test) if test else _figure(model, images))
    click.echo(f"picture: {output}")


def draw(output: str, figure: Callable[[], "Figure"]) -> None:
    """Writes a figure of matplotlib in the format of the extension."""
    import io

    from budgetjax import _checks, plots

    with names_errors("plot"):
        matplotlib = _checks.import_optional("matplotlib")
    picture = io.BytesIO()
    with matplotlib.rc_context(plots.STYLE):
        kind = os.path.splitext(output)[1].lower()[1:]
        figure().savefig(picture, format=kind, dpi=RESOLUTION)
    reports.write(output, [picture.getvalue()])


def _figure(paths: tuple[str, ...], images: tuple[int, int] | None) -> "Figure":
    """Images of support vectors; or learning curves and decision regions."""
    from matplotlib.figure import Figure

    from budgetjax import plots
    from budgetjax.stream.model import StreamModel

    opened_models = [reading.open_model(path) for path in paths]
    first = opened_models[0]
    curves = {
        os.path.basename(path): (model.value.rows, model.value.errors)
        for path, model in zip(paths, opened_models, strict=True)
        if isinstance(model.value, StreamModel) and len(model.value.rows)
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
        plots.support_images(first.model, images, axes=axes[0])
        return figure
    if curves:
        panel = axes.pop(0)
        regression = first.classes is None
        plots.learning_curves(curves, regression=regression, axes=panel)
        panel.set_title("Error of rows before they were learned")
    if planar:
        plots.decision_regions(first.model, axes=axes[0])
        axes[0].set_title("Prediction, and support vectors")
    return figure


def _reliability(paths: tuple[str, ...], file: str) -> "Figure":
    """The reliability of probabilities of models on the rows of a file."""
    from matplotlib.figure import Figure

    from budgetjax import plots
    from budgetjax.refitting import calibration

    curves = {}
    for path in paths:
        model = reading.open_model(path)
        reading.check_probabilities("--test", path, model)
        source = reading.open_rows(model, [file], reading.Columns())
        chances, labels = [], []
        for X, *rest in source:
            if not rest:
                raise ValueError(f"{file}: must have the target {model.target}")
            scores = model.model.decision_function(X)
            chances.append(calibration.of_scores(model.model, scores))
            labels.append(rest[0])
        if not labels:
            raise ValueError(f"{source.name}: the file must have rows, got none")
        y = np.concatenate(labels)
        with names_errors(source.name):
            targets.check_targets(y, model.classes, 0)
        name = os.path.basename(path)
        bins = min(BINS, len(y))
        curves[name] = plots.reliability_curve(
            np.concatenate(chances), y, model.classes, bins
        )
    figure = Figure(figsize=(4.5, 4.2), layout="constrained")
    plots.reliability(curves, axes=figure.subplots())
    title = f"{', '.join(curves)} on {os.path.basename(file)}"
    figure.suptitle(title, x=0.01, ha="left")
    return figure
