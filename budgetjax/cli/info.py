"""`budgetjax info`: describes a model file."""

import json
from typing import Any

import click
import numpy as np

from budgetjax.cli import reports, targets

# A name, its text, and, if different, its value for programs.
Line = tuple[str, str] | tuple[str, str, object]
# A state also counts rows that it learns again.
LEARNED = {"num_seen": "rows learned"}


@click.command()
@click.argument("model")
@click.option(
    "--json", "as_json", is_flag=True, help="Write one JSON object, for programs."
)
def info(model: str, as_json: bool) -> None:
    """Describe MODEL, one "name: value" per line.

    MODEL is a file of "budgetjax train", a checkpoint, or a file of budgetjax.save.
    """
    from budgetjax.saving import model_files

    header = model_files.header(model)
    lines = [*_of_header(header), *_of_contents(model)]
    if as_json:
        found = {line[0].replace(" ", "_"): line[-1] for line in lines}
        click.echo(json.dumps(found, indent=2, default=str))
    else:
        for name, text, *_ in lines:
            click.echo(reports.format_line(name, text))


def _of_header(header: dict[str, Any]) -> list[Line]:
    """The lines from the header, without loading the model."""
    about, notes = header["about"], header["notes"]
    lines: list[Line] = [
        ("type", about["type"]),
        ("written by", f"budgetjax {header['budgetjax']}, JAX {header['jax']}"),
    ]
    for name in ("algorithm", "maintenance"):
        if name in about:
            lines.append((name, about[name]))
    if labels := about.get("labels"):
        lines.append(
            ("classes", f"{len(labels):,}: {reports.join_values(labels)}", labels)
        )
    for name in ("file", "target", "solver", "refit"):
        if notes.get(name) is not None:
            lines.append((f"{name} of training", str(notes[name]), notes[name]))
    return lines


def _of_contents(path: str) -> list[Line]:
    """The lines from the model itself."""
    from budgetjax import models
    from budgetjax.encoding import Encoding
    from budgetjax.saving import model_files, trees
    from budgetjax.stream.model import StreamModel

    try:
        value, notes = model_files.read(path)
    except trees.OwnPartError as error:
        # With a function of the user, only Python can load this model.
        return [("not shown", str(error))]
    lines: list[Line] = []
    model = getattr(value, "model_", value)
    whole = models.as_labelled(model)
    if isinstance(value, StreamModel):
        error = targets.format_error(value.error, models.is_regressor(value))
        again = int(value.state.num_seen) > value.num_rows
        read = f"{value.num_rows:,}" + ", and a sample of them again" * again
        lines = [
            ("rows read", read, value.num_rows),
            ("progressive error", error, value.error if value.num_rows else None),
        ]
    if isinstance(value, StreamModel | models.Labelled):
        scaled = "none" if whole.scaling is None else "every feature to deviation 1"
        if isinstance(whole.scaling, Encoding):
            columns, codes = whole.scaling.num_columns, whole.scaling.num_codes
            scaled = f"{columns:,} columns as {codes:,} codes"
            if whole.scaling.map is not None:
                scaled += f", mapped to {whole.scaling.num_features:,} features"
        elif models.imputes_missing(whole):
            scaled += ", what is missing to the mean"
        lines.append(("scaling", scaled))
    if "batch_rows" in notes:
        after = f"after {notes['rows']:,} rows of a stream"
        lines.append(("checkpoint", after, notes["rows"]))
    if columns := whole.feature_names:
        lines.append(("columns", reports.join_values(columns), columns))
    if type(whole.model) is tuple:
        number = len(whole.model)
        lines.append(("models", f"{number}, one per class; the first:", number))
    lines += _of_model(models.unwrap(model))
    parameters = getattr(value, "get_params", dict)()
    return lines + [(name, str(given), given) for name, given in parameters.items()]


def _of_model(model: Any) -> list[Line]:
    """The sizes and numbers of a state, or of the model of a solver."""
    from budgetjax.saving.names import is_record

    expansion = getattr(model, "expansion", None)
    vectors = getattr(expansion or model, "vectors", None)
    rows = getattr(model, "weights", None) if vectors is None else vectors
    lines: list[Line] = []
    if rows is not None:
        lines.append(("features", f"{rows.shape[-1]:,}", rows.shape[-1]))
    if expansion is not None and np.ndim(expansion.num_active):
        number = np.size(expansion.num_active)
        lines.append(("models", f"{number:,}, stacked", number))
    elif expansion is not None:
        active, budget = int(expansion.num_active), int(expansion.budget)
        text = f"{active:,} of at most {budget:,}"
        lines.append(("support vectors", text, {"active": active, "budget": budget}))
    elif vectors is not None:
        number = vectors.shape[-2]
        lines.append(("support vectors", f"{number:,}", {"active": number}))
    if is_record(type(model)):
        for name, part in zip(model._fields, model, strict=True):
            if name == "kernel":
                lines.append((name, repr(part)))
            elif _is_key(part):
                continue
            elif hasattr(part, "__array__") and np.ndim(part) == 0:
                number = np.asarray(part)[()]
                # The shortest decimals that identify the number in its dtype.
                real = number.dtype.kind not in "biu"
                number = float(str(number)) if real else int(number)
                shown = f"{number:,.6g}" if real else f"{number:,}"
                name = LEARNED.get(str(name), str(name).replace("_", " "))
                lines.append((name, shown, number))
    return lines


def _is_key(part: object) -> bool:
    """Whether this is a key of random draws, not a number."""
    import jax

    dtype = getattr(part, "dtype", None)
    return dtype is not None and jax.numpy.issubdtype(dtype, jax.dtypes.prng_key)
