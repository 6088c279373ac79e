"""`budgetjax info`: describes a model file."""

import json
from collections.abc import Iterator
from typing import Any

import click
import jax
import numpy as np

# All records that a file may hold are known then.
import budgetjax.public  # noqa: F401
from budgetjax._record import value_repr
from budgetjax.cli import reports, targets
from budgetjax.model import KernelModel, Model
from budgetjax.online.mixture import MixtureState
from budgetjax.online.state import Online, State
from budgetjax.saving import model_files, trees
from budgetjax.saving.names import has_fields, is_estimator, parts_of
from budgetjax.stream.model import StreamModel
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel
from budgetjax.training.recipe import Recipe

# A name, its text, and, if different, its value for programs.
Line = tuple[str, str] | tuple[str, str, object]
# The columns whose importance is shown.
MOST_SHOWN = 10
# The counters of a state, which also counts rows that it learns again.
COUNTS = {
    "num_seen": "rows learned",
    "num_mistakes": "num mistakes",
    "num_updates": "num updates",
}


def info(model: str, as_json: bool) -> None:
    """Prints the description of a model file."""
    header = model_files.header(model)
    lines: dict[str, Line] = {}
    for line in (
        *_describe_header(header),
        *_describe_contents(model, header["about"]),
    ):
        # What an estimator has made of its parameters comes before them.
        lines.setdefault(line[0], line)
    if as_json:
        values = {name.replace(" ", "_"): line[-1] for name, line in lines.items()}
        click.echo(json.dumps(values, indent=2, default=str))
    else:
        for name, text, *_ in lines.values():
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
    for name in ("file", "target", "solver"):
        if notes.get(name) is not None:
            known = notes[name]
            text = known if isinstance(known, str) else reports.join_values(known)
            yield f"{name} of training", text, known


def _describe_contents(path: str, about: dict[str, Any]) -> Iterator[Line]:
    """The lines from the model itself; `about` is that of the header."""
    try:
        value, notes = model_files.read(path)
    except trees.OwnPartError as error:
        # With a function of the user, only Python can load this model.
        if "learner" in about:
            yield "learner", about["learner"]
        yield "not shown", str(error)
        return
    model, made = getattr(value, "model_", value), None
    streamed = value if isinstance(value, StreamModel) else None
    if streamed:
        made = streamed.recipe
        yield from _describe_stream(streamed, notes)
    elif is_estimator(type(value)):
        made = value
    whole = TableModel.find(model) if isinstance(model, Model) else None
    if whole and isinstance(value, StreamModel | TableModel):
        yield "scaling", _describe_scaling(whole.scaling)
    if "batch_rows" in notes:
        yield "checkpoint", f"after {notes['rows']:,} rows of a stream", notes["rows"]
    if whole and (columns := whole.feature_names):
        yield "columns", reports.join_values(columns), columns
    if whole and whole.is_several:
        number = len(whole.parts)
        yield "models", f"{number}, one per class; the first:", number
    yield from _describe_model(model.inner if isinstance(model, Model) else model)
    if streamed and streamed.importances is not None:
        yield _describe_importances(streamed)
    # How it was made: the recipe, or the parameters of an estimator.
    choices = {} if made is None else made.get_params(deep=False)
    for name, choice in choices.items():
        yield name.replace("_", " "), str(choice), choice


def _describe_stream(value: StreamModel, notes: dict[str, Any]) -> Iterator[Line]:
    """The lines about the rows of a training, and its errors."""
    again = int(value.state.num_seen) > value.num_rows
    read = f"{value.num_rows:,}" + ", and a sample of them again" * again
    yield "rows read", read, value.num_rows
    error, recipe = targets.format_error(value.error, value.is_regressor), value.recipe
    if isinstance(recipe, Recipe) and recipe.refit:
        error += ", by the stream, without the refit"
    yield "progressive error", error, value.error if value.num_rows else None
    if (learned := notes.get("training_error")) is not None:
        error = targets.format_error(learned, value.is_regressor)
        yield "training error", f"{error}, of rows that it has learned", learned


def _describe_scaling(scaling: Any) -> str:
    """What a model does with raw columns."""
    if not isinstance(scaling, Encoding):
        return "none" if scaling is None else "every feature to deviation 1"
    text = f"{scaling.num_columns:,} columns as {scaling.num_codes:,} codes"
    mapped = f", mapped to {scaling.num_features:,} features"
    return text if scaling.map is None else text + mapped


def _describe_importances(model: StreamModel) -> Line:
    """The most important columns in a learned metric."""
    shares = np.asarray(model.importances)
    names = model.model.feature_names or [f"column {i}" for i in range(len(shares))]
    order = np.argsort(-shares, kind="stable")
    values = {names[i]: float(shares[i]) for i in order}
    most = [f"{name} ({share:.3f})" for name, share in values.items()]
    return "importances", ", ".join(most[:MOST_SHOWN]), values


def _describe_model(model: Any) -> Iterator[Line]:
    """The sizes and numbers of a state, or of the model of a solver."""
    if isinstance(model, Model):
        width = model.num_features
        yield "features", f"{width:,}", width
    if isinstance(model, State):
        expansion: Any = model.expansion
        if np.ndim(expansion.num_active):
            number = np.size(expansion.num_active)
            yield "models", f"{number:,}, stacked", number
        else:
            active, budget = int(expansion.num_active), int(expansion.budget)
            text = f"{active:,} of at most {budget:,}"
            yield "support vectors", text, {"active": active, "budget": budget}
    elif isinstance(model, MixtureState) and not np.ndim(model.num_seen):
        number, largest = len(model.weights), float(np.max(model.weights))
        yield "experts", f"{number:,}, the largest weight {largest:.2f}", number
        active = int(model.num_active)
        yield "support vectors", f"{active:,} of all experts", {"active": active}
    elif isinstance(model, KernelModel):
        number = len(model.vectors)
        yield "support vectors", f"{number:,}", {"active": number}
    fields = _fields(model)
    if "learner" in fields:
        learner = fields["learner"]
        values = {name: _value(part) for name, part in _fields(learner).items()}
        yield "learner", repr(learner), {"name": type(learner).__name__, **values}
    if "kernel" in fields:
        yield "kernel", repr(fields["kernel"])
    if isinstance(model, Online) and not np.ndim(model.num_seen):
        for name, text in COUNTS.items():
            number = int(getattr(model, name))
            yield text, f"{number:,}", number
    for name, part in (fields | _fields(fields.get("memory"))).items():
        if name != "key" and _is_number(part):
            number = _value(part)
            shown = f"{number:,.6g}" if isinstance(number, float) else f"{number:,}"
            yield COUNTS.get(name, name.replace("_", " ")), shown, number


def _fields(record: Any) -> dict[str, Any]:
    """The fields of a record by name; none of anything else."""
    return parts_of(record) if has_fields(type(record)) else {}


def _is_number(part: Any) -> bool:
    return isinstance(part, jax.Array | np.generic) and not np.ndim(part)


def _value(part: Any) -> Any:
    """A field for programs: a number, a flag or text."""
    if not _is_number(part):
        plain = part is None or isinstance(part, bool | str)
        return part if plain else value_repr(part)
    number = np.asarray(part)[()]
    # The shortest decimals that identify the number in its dtype.
    return int(number) if number.dtype.kind in "biu" else float(str(number))
