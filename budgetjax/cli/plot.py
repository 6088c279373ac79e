"""`budgetjax plot`: a picture of a model, or of a sweep."""

import io
import json
import os
from typing import Any

import click
import numpy as np

from budgetjax.cli import data
from budgetjax.cli.sweep import KIND

FORMATS = (".png", ".svg", ".pdf")
RESOLUTION = 160
ERROR = "progressive error (%)"
EXAMPLES = """\b
Examples:
  budgetjax plot iris.safetensors --output iris.png
  budgetjax sweep a9a.libsvm --budget 50,100,200 --output sweep.json
  budgetjax plot sweep.json --output sweep.png
"""


@click.command(epilog=EXAMPLES)
@click.argument("source", metavar="MODEL|SWEEP.json")
@click.option(
    "--output", "-o", required=True, metavar="OUT", help="The .png, .svg or .pdf file."
)
def plot(source: str, output: str) -> None:
    """Draw what a model has learned, or what a sweep has found.

    Of a model of "budgetjax train": how the error went as rows were learned. If it has
    two features, of any model: what is predicted where. Of a sweep: the error of every
    combination.
    """
    kind = os.path.splitext(output)[1].lower()
    if kind not in FORMATS:
        raise click.UsageError(
            f"--output must end in {', '.join(FORMATS)}, got {output}."
        )
    data.check_outputs({"--output": output}, source)
    try:
        from matplotlib import rc_context
    except ImportError as error:
        raise ImportError(
            "plot needs matplotlib: pip install 'budgetjax[cli]'"
        ) from error
    from budgetjax import plots

    draw = _of_sweep if source.lower().endswith(".json") else _of_model
    with rc_context(plots.STYLE):
        figure = draw(source)
        picture = io.BytesIO()
        figure.savefig(picture, format=kind[1:], dpi=RESOLUTION)
    data.write(output, [picture.getvalue()])
    click.echo(f"picture: {output}")


def _of_model(path: str) -> Any:
    """The learning curve, and the plane if there are two features."""
    from matplotlib.figure import Figure

    from budgetjax import plots
    from budgetjax.cli import models
    from budgetjax.stream.model import StreamModel

    model = models.opened(path)
    vectors = models.support_vectors(model) if model.num_features == 2 else None
    has_curve = isinstance(model.value, StreamModel) and len(model.value.rows)
    panels = bool(has_curve) + (vectors is not None)
    if not panels:
        features = data.counted(model.num_features, "feature")
        raise ValueError(
            f"{path}: must have a learning curve, as of budgetjax train, or two "
            f"features and support vectors, got {features} and no curve"
        )
    figure = Figure(figsize=(0.6 + 3.9 * panels, 3.7), layout="constrained")
    figure.suptitle(os.path.basename(path), x=0.01, ha="left", fontsize=10)
    axes = list(figure.subplots(1, panels, squeeze=False).flat)
    if has_curve:
        value = model.value
        regression = model.classes is None
        plots.learning_curve(
            axes.pop(0), value.rows, value.errors, regression=regression
        )
    if vectors is not None:
        names = model.features or ("feature 1", "feature 2")
        if model.classes is None:
            target = model.target or "target"
            plots.surface(axes[0], model.model.predict, vectors, names, target)
        else:
            words = [data.label(one) for one in model.classes.tolist()]
            plots.regions(axes[0], model.model.decision_function, vectors, words, names)
    return figure


def _of_sweep(path: str) -> Any:
    """The error by the hyperparameters that were swept; at most two of them."""
    from matplotlib.figure import Figure

    from budgetjax import plots

    found = _read_sweep(path)
    columns = dict(zip(found["names"], zip(*found["table"], strict=True), strict=True))
    errors = 100 * np.array(columns["error"], float)
    swept = [name for name in found["axes"] if len(set(columns[name])) > 1]
    shown = (swept or found["axes"])[:2]
    values = [sorted(set(columns[name])) for name in shown]
    # The best of all models that are alike in what is shown.
    best = np.full([len(axis) for axis in values], np.nan)
    for row, error in enumerate(errors):
        at = tuple(
            axis.index(columns[name][row])
            for name, axis in zip(shown, values, strict=True)
        )
        best[at] = np.nanmin([best[at], error])
    figure = Figure(figsize=(5.2, 3.9), layout="constrained")
    axes = figure.subplots()
    label = ERROR
    if len(swept) > 2:
        label = f"{ERROR}, best over {', '.join(swept[2:])}"
    if len(shown) == 2:
        names = (shown[0], shown[1])
        plots.heat_map(axes, values[0], values[1], best, names, label)
    else:
        plots.line(axes, values[0], best, shown[0], label)
    axes.set_title(
        f"{found['file']}: {found['algorithm']}, {data.counted(found['rows'], 'row')}; "
        "the best is framed"
    )
    return figure


def _read_sweep(path: str) -> dict[str, Any]:
    """What `budgetjax sweep` has written.

    Raises:
      ValueError: if the file is another.
    """
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        if found["kind"] != KIND or not found["table"] or "error" not in found["names"]:
            raise KeyError("kind")
        widths = {len(row) for row in found["table"]} | {len(found["names"])}
        if len(widths) > 1 or not {*found["axes"]} <= {*found["names"]}:
            raise KeyError("table")
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: must be a file of budgetjax sweep --output, got another, or a "
            "damaged one"
        ) from error
    return found
