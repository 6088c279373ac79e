"""`budgetjax plot`: a picture of a model."""

import os
from collections.abc import Callable
from typing import Any

import click
import numpy as np

from budgetjax.cli import data

FORMATS = (".png", ".svg", ".pdf")
RESOLUTION = 160
EXAMPLES = """\b
Examples:
  budgetjax plot iris.safetensors --output iris.png
"""


@click.command(epilog=EXAMPLES)
@click.argument("model")
@click.option(
    "--output", "-o", required=True, metavar="OUT", help="The .png, .svg or .pdf file."
)
def plot(model: str, output: str) -> None:
    """Draw what MODEL has learned.

    For a model of "budgetjax train": how the error went as rows were learned. For any
    model with two features: what is predicted where.
    """
    if not output.lower().endswith(FORMATS):
        raise click.UsageError(
            f"--output must end in {', '.join(FORMATS)}, got {output}."
        )
    data.check_outputs({"--output": output}, model)
    draw(output, lambda: _figure(model))
    click.echo(f"picture: {output}")


def draw(output: str, figure: Callable[[], Any]) -> None:
    """Writes a figure of matplotlib in the format that the name ends in."""
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError(
            "plot needs matplotlib: pip install 'budgetjax[cli]'"
        ) from error
    import io

    from budgetjax import plots

    picture = io.BytesIO()
    with rc_context(plots.STYLE):
        kind = os.path.splitext(output)[1].lower()[1:]
        figure().savefig(picture, format=kind, dpi=RESOLUTION)
    data.write(output, [picture.getvalue()])


def _figure(path: str) -> Any:
    """The learning curve, and the plane if there are two features."""
    from matplotlib.figure import Figure

    from budgetjax import models, plots
    from budgetjax.cli.models import opened
    from budgetjax.stream.model import StreamModel

    model = opened(path)
    vectors = np.zeros((0, 2))
    if model.num_features == 2 and hasattr(models.innermost(model.model), "kernel"):
        support = models.support(model.model)
        vectors = np.asarray(support.vectors)[np.asarray(support.mask)]
    has_curve = isinstance(model.value, StreamModel) and len(model.value.rows)
    panels = bool(has_curve) + bool(len(vectors))
    if not panels:
        features = data.counted(model.num_features, "feature")
        raise ValueError(
            f"{path}: must have a learning curve, as of budgetjax train, or two "
            f"features and support vectors, got {features} and no curve"
        )
    figure = Figure(figsize=(0.6 + 3.9 * panels, 3.7), layout="constrained")
    figure.suptitle(os.path.basename(path), x=0.01, ha="left", fontsize=10)
    axes = list(figure.subplots(1, panels, squeeze=False).flat)
    classes = model.classes
    if has_curve:
        value = model.value
        regression = classes is None
        plots.learning_curve(
            axes.pop(0), value.rows, value.errors, regression=regression
        )
    if len(vectors):
        names = model.model.feature_names or ("feature 1", "feature 2")
        if classes is None:
            target = model.target or "target"
            plots.surface(axes[0], model.model.predict, vectors, names, target)
        else:
            words = [data.label(one) for one in classes.tolist()]
            plots.regions(axes[0], model.model.decision_function, vectors, words, names)
    return figure
