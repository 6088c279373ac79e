"""`budgetjax info`: describes a model file."""

import json
from collections.abc import Iterator
from typing import Any

import click
import jax
import numpy as np

from budgetjax import models
from budgetjax._pytree import Counter
from budgetjax.cli import reports, targets
from budgetjax.encoding import Encoding
from budgetjax.saving import model_files, trees
from budgetjax.saving.names import has_fields, parts_of
from budgetjax.stream.model import StreamModel

# A name, its text, and, if different, its value for programs.
Line = tuple[str, str] | tuple[str, str, object]
# A state also counts rows that it learns again.
LEARNED = {"num_seen": "rows learned"}


def info(model: str, as_json: bool) -> None:
    """Prints the description of a model file."""
    lines = [*_describe_header(model_files.header(model)), *_describe_contents(model)]
    if as_json:
        values = {line[0].replace(" ", "_"): line[-1] for line in lines}
        click.echo(json.dumps(values, indent=2, default=str))
    else:
        for name, text, *_ in lines:
            click.echo(reports.format_line(name, text))


def _describe_header(header: dict[str, Any]) -> Iterator[Line]:
    """The lines from the header, without loading the model."""
    about, notes = header["about"], header["notes"]
    yield "type", about["type"]
    yield "written by", f"budgetjax {header['budgetjax']}, JAX {header['jax']}"
    for name in ("algorithm", "maintenance"):
        if name in about:
            yield name, about[name]
    if labels := about.get("labels"):
        yield "classes", f"{len(labels):,}: {reports.join_values(labels)}", labels
    for name in ("file", "target", "solver", "refit"):
        if notes.get(name) is not None:
            yield f"{name} of training", str(notes[name]), notes[name]


def _describe_contents(path: str) -> Iterator[Line]:
    """The lines from the model itself."""
    try:
        value, notes = model_files.read(path)
    except trees.OwnPartError as error:
        # With a function of the user, only Python can load this model.
        yield "not shown", str(error)
        return
    whole = models.as_labelled(value)
    if isinstance(value, StreamModel):
        again = int(value.state.num_seen) > value.num_rows
        read = f"{value.num_rows:,}" + ", and a sample of them again" * again
        yield "rows read", read, value.num_rows
        error = targets.format_error(value.error, models.is_regressor(value))
        error += ", by the stream, without the refit" * bool(notes.get("refit"))
        yield "progressive error", error, value.error if value.num_rows else None
        if (learned := notes.get("training_error")) is not None:
            error = targets.format_error(learned, models.is_regressor(value))
            yield "training error", f"{error}, of rows that it has learned", learned
    if isinstance(value, StreamModel | models.Labelled):
        scaled = "none" if whole.scaling is None else "every feature to deviation 1"
        fills = models.imputes_missing(whole)
        scaled += ", what is missing to the mean" * fills
        if isinstance(whole.scaling, Encoding):
            columns, codes = whole.scaling.num_columns, whole.scaling.num_codes
            scaled = f"{columns:,} columns as {codes:,} codes"
            if whole.scaling.map is not None:
                scaled += f", mapped to {whole.scaling.num_features:,} features"
        yield "scaling", scaled
    if "batch_rows" in notes:
        yield "checkpoint", f"after {notes['rows']:,} rows of a stream", notes["rows"]
    if columns := whole.feature_names:
        yield "columns", reports.join_values(columns), columns
    if type(whole.model) is tuple:
        number = len(whole.model)
        yield "models", f"{number}, one per class; the first:", number
    yield from _describe_model(models.unwrap(value))
    for name, parameter in getattr(value, "get_params", dict)().items():
        yield name, str(parameter), parameter


def _describe_model(model: Any) -> Iterator[Line]:
    """The sizes and numbers of a state, or of the model of a solver."""
    if isinstance(model, models.State | models.KernelModel | models.LinearModel):
        width = models.own_rows(model).shape[-1]
        yield "features", f"{width:,}", width
    if isinstance(model, models.State):
        expansion: Any = model.expansion
        if np.ndim(expansion.num_active):
            number = np.size(expansion.num_active)
            yield "models", f"{number:,}, stacked", number
        else:
            active, budget = int(expansion.num_active), int(expansion.budget)
            text = f"{active:,} of at most {budget:,}"
            yield "support vectors", text, {"active": active, "budget": budget}
    elif isinstance(model, models.KernelModel):
        number = len(model.vectors)
        yield "support vectors", f"{number:,}", {"active": number}
    fields = parts_of(model) if has_fields(type(model)) else {}
    for name, part in fields.items():
        is_number = isinstance(part, jax.Array | Counter | np.generic)
        if name == "kernel":
            yield name, repr(part)
        elif is_number and name != "key" and not np.ndim(part):
            number = np.asarray(part)[()]
            # The shortest decimals that identify the number in its dtype.
            real = number.dtype.kind not in "biu"
            number = float(str(number)) if real else int(number)
            shown = f"{number:,.6g}" if real else f"{number:,}"
            yield LEARNED.get(name, name.replace("_", " ")), shown, number
