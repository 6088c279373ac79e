"""`budgetjax info`: what a model file holds."""

from typing import Any

import click
import numpy as np

from budgetjax.cli import data

# The width of the names in the report.
NAMES = 20


@click.command()
@click.argument("model")
def info(model: str) -> None:
    """Say what is in MODEL, one "name: value" a line.

    MODEL is a file of "budgetjax train", of a checkpoint, or of budgetjax.save.
    """
    from budgetjax.saving import model_files

    header = model_files.header(model)
    lines = [*_of_header(header), *_of_contents(model)]
    for name, text in lines:
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
    from budgetjax.saving import model_files

    try:
        value, notes = model_files.read(path)
    except ValueError as error:
        if "like=" not in str(error):
            raise
        # A function of the user's own: only Python can make this model.
        return [("not shown", str(error))]
    lines = _of_stream(value, notes)
    for part in (value, getattr(value, "state", None), getattr(value, "state_", None)):
        lines += _of_state(part)
    if hasattr(value, "get_params"):
        lines += [(name, str(given)) for name, given in value.get_params().items()]
    return lines


def _of_stream(value: Any, notes: dict[str, Any]) -> list[tuple[str, str]]:
    """The history of a model that a stream taught."""
    from budgetjax.models import is_regressor
    from budgetjax.stream.model import StreamModel

    lines = []
    if isinstance(value, StreamModel):
        error = f"{100 * value.error:.2f}%"
        if is_regressor(value.state):
            error = f"{np.sqrt(value.error):.4g} (root of the mean square)"
        scaled = "none" if value.scaling is None else "every feature to deviation 1"
        lines = [
            ("rows read", f"{value.num_rows:,}"),
            ("progressive error", error),
            ("scaling", scaled),
        ]
    if "batch_rows" in notes:
        lines.append(("checkpoint", f"after {notes['rows']:,} rows of a stream"))
    names = notes.get("features")
    if names:
        lines.append(("columns", data.listed(names)))
    return lines


def _of_state(state: Any) -> list[tuple[str, str]]:
    """Sizes and numbers of a state or of a model of a batch learner."""
    lines = []
    expansion = getattr(state, "expansion", None)
    vectors = getattr(expansion or state, "vectors", None)
    if vectors is not None:
        lines.append(("features", f"{vectors.shape[-1]:,}"))
    if expansion is not None:
        active, most = np.asarray(expansion.num_active), np.asarray(expansion.budget)
        if active.ndim:
            lines.append(("models", f"{active.size:,}, stacked"))
        else:
            lines.append(("support vectors", f"{active:,} of at most {most:,}"))
    elif vectors is not None:
        lines.append(("support vectors", f"{vectors.shape[-2]:,}"))
    elif getattr(state, "weights", None) is not None:
        lines.append(("features", f"{state.weights.shape[-1]:,}"))
    for name in getattr(state, "_fields", ()):
        part = getattr(state, name)
        if name == "kernel":
            lines.append((name, _kernel(part)))
        elif hasattr(part, "__array__"):
            array = np.asarray(part)
            if array.ndim == 0 and array.dtype.kind in "biuf":
                shown = f"{array.item():,.6g}"
                if array.dtype.kind in "iu":
                    shown = f"{array.item():,}"
                lines.append((name.replace("_", " "), shown))
    return lines


def _kernel(kernel: Any) -> str:
    """A kernel with its parameters, as it is written in Python."""
    parts = [
        f"{name}={_parameter(part)}"
        for name, part in zip(kernel._fields, kernel, strict=True)
    ]
    return f"{type(kernel).__name__}({', '.join(parts)})"


def _parameter(value: Any) -> str:
    if hasattr(value, "_fields"):
        return _kernel(value)
    if not hasattr(value, "dtype"):
        return str(bool(value))  # a flag
    array = np.asarray(value)
    return f"{array.item():.4g}" if array.ndim == 0 else f"{array.size} values"
