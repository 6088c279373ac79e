"""`budgetjax sweep`: compares hyperparameters in one pass over some rows."""

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any, cast

import click
import jax
import numpy as np

from budgetjax import plots
from budgetjax._errors import InputError, names_errors
from budgetjax.cli import learners, options, reading, reports, targets
from budgetjax.cli.plot import draw
from budgetjax.cli.targets import Counted
from budgetjax.cli.train import (
    describe,
    describe_source,
    measure_training_error,
    train_online,
)
from budgetjax.kernels import RBF
from budgetjax.online import sweeps
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import OnlineLearner
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.stream.model import StreamModel
from budgetjax.tables.columns import join_rows
from budgetjax.training import fit
from budgetjax.training.recipe import Recipe
from budgetjax.training.rows import Data, Sample, to_array
from budgetjax.training.train import read_data

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from budgetjax.online.state import State

# The values of gamma to try, as multiples of the default of `train`.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
ERROR, ROOT = "progressive error (%)", "root mean squared error"


def sweep(
    file: tuple[str, ...],
    columns: options.Columns,
    training: options.TrainOptions,
    gammas: list[float] | None,
    budgets: list[int],
    rows: int,
    model: str | None,
    output: str | None,
) -> None:
    """Tries all combinations of hyperparameters, and writes the table and the best."""
    training.check()
    _check_columns(columns)
    regression, quiet = training.regression, training.quiet
    reports.check_outputs({"--output": output, "--model": model}, *file)
    source = reading.open_examples(file, columns, regression=regression)
    if training.class_weight is not None:
        weighed = targets.weigh_classes(source, training.class_weight, None)
        source = reading.drop_weightless(weighed)
    batch, is_whole = _first_rows(source, rows)
    first = dataclasses.replace(source, read=lambda: iter([batch]), read_targets=None)
    # The stream is what is compared.
    plain = training._replace(refit=False, budget=max(budgets))
    recipe = _make_recipe(plain)
    data = read_data(recipe, first)
    swept = {k: v for k, v in training.settings.items() if isinstance(v, list)}
    name, axes, table = _run_grid(source.name, recipe, data, gammas, budgets, swept)
    count, classes = len(data.y), data.labels.classes
    what = "numbers" if classes is None else f"{len(classes)} classes"
    if not quiet:
        number = f"{count:,} rows"
        read = number if is_whole else f"the first {number} (--rows)"
        reports.echo(f"{source.name}: {read}, {what}, {name}\n")
        reports.echo(reports.aligned(table))
    if model is not None:
        best = {key: column[0] for key, column in table.items()}
        # The best of each list of values; words are not in the table.
        settings = {key: best.get(key, one) for key, one in training.settings.items()}
        training = training._replace(
            learner=name, settings=settings, gamma=best["gamma"], budget=best["budget"]
        )
        if not quiet:
            reports.echo("")
        fitted, error = _train_best(source, training)
        shown = reports.join_values([os.path.basename(one) for one in file])
        notes = {
            "file": shown,
            "target": targets.note_of(columns.target),
            "training_error": error,
        }
        model_files.write(model, fitted, notes)
        reports.reporter(quiet)("model", model)
    if output is None:
        return
    if output.lower().endswith(".csv"):
        text = reports.as_csv([list(table), *zip(*table.values(), strict=True)])
        model_files.replace(output, [text.encode()])
        return
    title = f"{source.name}: {name}, {reports.with_count(count, 'row')}"
    draw(output, lambda: _figure(table, axes, title, regression))


def _check_columns(columns: options.Columns) -> None:
    """Raises for several targets, whose errors have no order."""
    if len(columns.target) > 1:
        raise click.UsageError("--target: sweep takes one, and train takes several.")


def _make_recipe(training: options.TrainOptions) -> Recipe:
    """The choices of all models, each with one kernel."""
    recipe = learners.make_recipe(training)
    if isinstance(recipe.learner, OnlineLearner) and recipe.learner.chooses_kernel:
        why = "has several kernels of its own, so train needs no sweep before it"
        raise click.UsageError(f"--learner {training.learner} {why}.")
    return recipe


def _train_best(
    source: Batches, training: options.TrainOptions
) -> tuple[StreamModel, targets.Error]:
    """The model of all rows by these options, and its error on them."""
    say, recipe = reports.reporter(training.quiet), learners.make_recipe(training)
    counted = Counted(source, regression=training.regression)
    say("data", describe_source(source))
    fitted = train_online(recipe, counted, None, training)
    describe(say, fitted, recipe, counted, training)
    return fitted, measure_training_error(say, counted.source, fitted)


def _run_grid(
    source: str,
    recipe: Recipe,
    data: Data,
    gammas: list[float] | None,
    budgets: list[int],
    swept: dict[str, list[Any]],
) -> tuple[str, list[str], dict[str, list[Any]]]:
    """The learner, the names of the swept hyperparameters, and the table of results."""
    *_, codes = recipe.encodings(data.X, data.nominal)
    sample = Sample(data.X, codes)
    if gammas is None:
        usual = recipe.gamma_of(sample, codes)
        if isinstance(usual, str):
            raise InputError(f"{source}: --gamma needs rows that differ")
        gammas = [float(f"{multiple * usual:.4g}") for multiple in MULTIPLES]
    choice, labels, capacity = recipe.choose(data.labels), data.labels, max(budgets)
    _use_all_cores()
    X = data.X if codes is None else codes.apply(to_array(data.X))

    def init(gamma: Any, budget: Any, **more: Any) -> Any:
        state = dataclasses.replace(choice.learner, **more).init(
            RBF(gamma),
            num_features=X.shape[1],
            budget=budget,
            capacity=capacity,
            **choice.arguments,
        )
        return fit.set_loss(recipe, state, labels)

    grid = sweeps.grid(gamma=gammas, budget=budgets, **swept)
    weights = SeenWeights().relative(data.weights)[0]
    with names_errors(source):
        y = labels.encode_targets(data.y)
    result = sweeps.sweep(grid.init(init), to_array(X), y, weight=weights)
    error, states = np.asarray(result.error), cast("State", result.states)
    if recipe.regression:
        unit = np.asarray(labels.unit_of_targets, error.dtype)
        error = np.sqrt(error) * unit
    table = grid.table(error=error, vectors=np.asarray(states.num_active))
    name = learners.name_of(type(choice.learner))
    return name, list(grid.names), table


def _figure(
    table: dict[str, list[Any]],
    axes: list[str],
    title: str,
    regression: bool = False,
) -> "Figure":
    """The error by two of the swept hyperparameters."""
    from matplotlib.figure import Figure

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
    if not parts:
        raise ValueError(f"{source.name}: the file must have rows, got none")
    batch = map(join_rows, zip(*parts, strict=True))
    return tuple(part[:rows] for part in batch), count <= rows


def _use_all_cores() -> None:
    """Gives JAX one device per CPU core, unless it has been used already."""
    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores)
