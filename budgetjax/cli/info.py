"""`budgetjax info`: what a model file holds."""

from typing import Any

import click
import numpy as np

from budgetjax.cli import data, targets

# The width of the names in the report.
NAMES = 20


@click.command()
@click.argument("model")
def info(model: str) -> None:
    """Say what is in MODEL, one "name: value" per line.

    MODEL is a file of "budgetjax train", a checkpoint, or a file of budgetjax.save.
    """
    from budgetjax.saving import model_files

    header = model_files.header(model)
    for name, text in [*_of_header(header), *_of_contents(model)]:
        click.echo(f"{name + ':':<{NAMES}}{text}")


def _of_header(header: dict[str, Any]) -> list[tuple[str, str]]:
    """What can be said without making the model."""
    about, notes = header["about"], header["notes"]
    lines = [
        ("type", about["type"]),
        ("written by", f"budgetjax {header['budgetjax']}, JAX {header['jax']}"),
    ]
    for name in ("algorithm", "maintenance"):
        if name in about:
            lines.append((name, about[name]))
    if about.get("labels"):
        words = [data.label(label) for label in about["labels"]]
        lines.append(("classes", f"{len(words):,}: {data.listed(words)}"))
    for name in ("file", "target", "refit"):
        if notes.get(name) is not None:
            lines.append((f"{name} of training", str(notes[name])))
    return lines


def _of_contents(path: str) -> list[tuple[str, str]]:
    """What the model itself tells."""
    from budgetjax import models
    from budgetjax.saving import model_files
    from budgetjax.stream.model import StreamModel

    try:
        value, notes = model_files.read(path)
    except ValueError as error:
        if "like=" not in str(error):
            raise
        # A function of the user's own: only Python can make this model.
        return [("not shown", str(error))]
    lines = []
    if isinstance(value, StreamModel):
        error = targets.shown_error(value.error, models.is_regressor(value))
        scaled = "none" if value.scaling is None else "every feature to deviation 1"
        lines = [
            ("rows read", f"{value.num_rows:,}"),
            ("progressive error", error),
            ("scaling", scaled),
        ]
    if "batch_rows" in notes:
        lines.append(("checkpoint", f"after {notes['rows']:,} rows of a stream"))
    model = getattr(value, "model_", value)
    if columns := models.labelled(model).feature_names:
        lines.append(("columns", data.listed(columns)))
    lines += _of_model(models.innermost(model))
    parameters = getattr(value, "get_params", dict)()
    return lines + [(name, str(given)) for name, given in parameters.items()]


def _of_model(model: Any) -> list[tuple[str, str]]:
    """Sizes and numbers of a state, or of the model of a solver."""
    from budgetjax.saving.names import is_record

    expansion = getattr(model, "expansion", None)
    vectors = getattr(expansion or model, "vectors", None)
    rows = getattr(model, "weights", None) if vectors is None else vectors
    lines = [] if rows is None else [("features", f"{rows.shape[-1]:,}")]
    if expansion is not None and np.ndim(expansion.num_active):
        lines.append(("models", f"{np.size(expansion.num_active):,}, stacked"))
    elif expansion is not None:
        active, budget = int(expansion.num_active), int(expansion.budget)
        lines.append(("support vectors", f"{active:,} of at most {budget:,}"))
    elif vectors is not None:
        lines.append(("support vectors", f"{vectors.shape[-2]:,}"))
    if is_record(type(model)):
        for name, part in zip(model._fields, model, strict=True):
            if name == "kernel":
                lines.append((name, repr(part)))
            elif hasattr(part, "__array__") and np.ndim(part) == 0:
                number = np.asarray(part).item()
                shown = f"{number:,.6g}" if type(number) is float else f"{number:,}"
                lines.append((name.replace("_", " "), shown))
    return lines
