"""`budgetjax sweep`: compares hyperparameters in one pass over some rows."""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click
import jax
import numpy as np

from budgetjax import plots
from budgetjax._errors import InputError, names_errors
from budgetjax.cli import learners, options, reading, reports, targets
from budgetjax.cli.plot import draw
from budgetjax.cli.train import train_online, write_model
from budgetjax.kernels import RBF
from budgetjax.online import sweeps
from budgetjax.online.defaults import Choice
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import OnlineLearner
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.tables.columns import join_rows
from budgetjax.training import fit
from budgetjax.training.recipe import Recipe
from budgetjax.training.rows import Data, Sample, to_array
from budgetjax.training.train import read_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from budgetjax.online.state import State

# The values of gamma to try, as multiples of the default of `train --no-refit`.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
ERROR, ROOT = "progressive error (%)", "root mean squared error"
# The results by the names of their columns. Error and vectors come last.
Table: TypeAlias = dict[str, list[Any]]


def sweep(
    file: tuple[str, ...],
    columns: options.Columns,
    gammas: list[float] | None,
    budgets: list[int],
    rows: int,
    class_weight: str | None,
    model: str | None,
    output: str | None,
    quiet: bool,
    **choices: Any,
) -> None:
    """Tries all combinations of hyperparameters, and writes the table and the best.

    `choices` are those of `learners.make_recipe`.
    """
    if len(columns.target) > 1:
        # Their errors have no order.
        raise click.UsageError("--target: sweep takes one, and train takes several.")
    reports.check_outputs({"--output": output, "--model": model}, *file)
    regression = choices["regression"]
    source, _ = reading.open_examples(
        file, columns, regression=regression, class_weight=class_weight
    )
    batch, is_whole = _first_rows(source, rows)
    first = dataclasses.replace(source, read=lambda: iter([batch]), read_targets=None)
    # The stream is what is compared.
    recipe = learners.make_recipe(**choices, refit=False, budget=max(budgets))
    if isinstance(recipe.learner, OnlineLearner) and recipe.learner.chooses_kernel:
        why = "has several kernels of its own, so train needs no sweep before it"
        raise click.UsageError(f"--learner {choices['learner']} {why}.")
    data, settings = read_data(recipe, first), choices["settings"]
    choice = recipe.choose(data.labels)
    table = _run_grid(recipe, choice, data, gammas, budgets, settings)
    name, classes = learners.name_of(type(choice.learner)), data.labels.classes
    count = len(data.y)
    what = "numbers" if classes is None else f"{len(classes)} classes"
    if not quiet:
        number = f"{count:,} rows"
        read = number if is_whole else f"the first {number} (--rows)"
        reports.echo(f"{source.name}: {read}, {what}, {name}\n")
        reports.echo(reports.aligned(table))
    if model is not None:
        best = {key: column[0] for key, column in table.items()}
        # The best of each list of values; words are not in the table.
        settings = {key: best.get(key, one) for key, one in settings.items()}
        choices |= {"learner": name, "settings": settings}
        choices |= {"gamma": best["gamma"], "budget": best["budget"]}
        recipe = learners.make_recipe(**choices)
        if not quiet:
            reports.echo("")
        fitted, error = train_online(source, None, recipe, settings, quiet=quiet)
        write_model(model, fitted, file, columns, training_error=error)
        reports.reporter(quiet)("model", model)
    if output is None:
        return
    if output.lower().endswith(".csv"):
        text = reports.as_csv([list(table), *zip(*table.values(), strict=True)])
        model_files.replace(output, [text.encode()])
        return
    title = f"{source.name}: {name}, {reports.with_count(count, 'row')}"
    draw(output, lambda: _figure(table, title, regression))


def _run_grid(
    recipe: Recipe,
    choice: Choice,
    data: Data,
    gammas: list[float] | None,
    budgets: list[int],
    settings: Mapping[str, Any],
) -> Table:
    """The results of all combinations of hyperparameters."""
    *_, codes = recipe.encodings(data.X, data.nominal)
    sample = Sample(data.X, codes)
    if gammas is None:
        usual = recipe.gamma_of(sample, codes)
        if isinstance(usual, str):
            raise InputError(f"{data.name}: --gamma needs rows that differ")
        gammas = [float(f"{multiple * usual:.4g}") for multiple in MULTIPLES]
    _use_all_cores()
    X = data.X if codes is None else codes.apply(to_array(data.X))

    def init(gamma: Any, budget: Any, **more: Any) -> Any:
        state = dataclasses.replace(choice.learner, **more).init(
            RBF(gamma),
            num_features=X.shape[1],
            budget=budget,
            capacity=max(budgets),
            **choice.arguments,
        )
        return fit.set_loss(recipe, state, data.labels)

    swept = {name: one for name, one in settings.items() if isinstance(one, list)}
    grid = sweeps.grid(gamma=gammas, budget=budgets, **swept)
    weights = SeenWeights().relative(data.weights)[0]
    with names_errors(data.name):
        y = data.labels.encode_targets(data.y)
    result = sweeps.sweep(grid.init(init), to_array(X), y, weight=weights)
    error, states = np.asarray(result.error), cast("State", result.states)
    if recipe.regression:
        unit = np.asarray(data.labels.unit_of_targets, error.dtype)
        error = np.sqrt(error) * unit
    return grid.table(error=error, vectors=np.asarray(states.num_active))


def _figure(table: Table, title: str, regression: bool = False) -> "Figure":
    """The error by two of the swept hyperparameters."""
    from matplotlib.figure import Figure

    axes = [name for name in table if name not in ("error", "vectors")]
    swept = [name for name in axes if len(set(table[name])) > 1] or axes[:1]
    label, factor = (ROOT, 1) if regression else (ERROR, 100)
    if len(swept) > 2:
        label += f", best over {', '.join(swept[2:])}"
    table = table | {label: [factor * error for error in table["error"]]}
    figure = Figure(figsize=(5.2, 3.9), layout="constrained")
    panel = figure.subplots()
    # The second on the x axis, the first on the y axis; a single one gives a line.
    plots.sweep(table, *swept[:2][::-1], value=label, axes=panel)
    panel.set_title(f"{title}; the best is framed")
    return figure


def _first_rows(source: Batches, rows: int) -> tuple[tuple[np.ndarray, ...], bool]:
    """The first rows of a file as one batch, and whether they are all its rows."""
    parts, count = [], 0
    for part in source:
        parts.append(part)
        count += len(part[1])
        if count > rows:
            break
    targets.check_rows(source, count)
    batch = map(join_rows, zip(*parts, strict=True))
    return tuple(part[:rows] for part in batch), count <= rows


def _use_all_cores() -> None:
    """Gives JAX one device per CPU core, unless it has been used already."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores)
