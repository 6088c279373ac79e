"""`budgetjax sweep`: compares hyperparameters in one pass over some rows."""

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any, cast

import jax
import numpy as np

from budgetjax import plots
from budgetjax._errors import names_errors
from budgetjax.cli import options, reading, reports, targets
from budgetjax.cli.learners import Job, name_of
from budgetjax.cli.plot import draw
from budgetjax.cli.train import measure_training_error, train_online
from budgetjax.kernels import RBF
from budgetjax.online import sweeps
from budgetjax.online.importance import SeenWeights
from budgetjax.saving import model_files
from budgetjax.stream.batches import Batches
from budgetjax.tables.columns import join_rows
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

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
    regression, quiet = training.regression, training.quiet
    shown = reports.join_values([os.path.basename(one) for one in file])
    notes = {"file": shown, "target": columns.target, "refit": True}
    reports.check_outputs({"--output": output, "--model": model}, *file)
    source = reading.open_examples(file, columns, regression=regression)
    batch, whole = _first_rows(source, rows)
    first = dataclasses.replace(source, read=lambda: iter([batch]), read_targets=None)
    about = targets.summarise_targets(first, regression=regression)
    job = Job.of(first, about, training)
    name, axes, table = _run_grid(job, gammas, budgets)
    if not quiet:
        number = f"{len(batch[1]):,} rows"
        read = number if whole else f"the first {number} (--rows)"
        what = "numbers" if about.labels is None else f"{len(about.labels)} classes"
        reports.echo(f"{source.name}: {read}, {what}, {name}\n")
        reports.echo(reports.aligned(table))
    if model is not None:
        best = {key: column[0] for key, column in table.items()}
        if not whole:
            about = targets.summarise_targets(source, regression=regression)
        # The best of each list of values; words are not in the table.
        settings = {key: best.get(key, one) for key, one in training.settings.items()}
        training = training._replace(
            learner=name, settings=settings, gamma=best["gamma"], budget=best["budget"]
        )
        if not quiet:
            reports.echo("")
        whole_job = Job.of(source, about, training)
        fitted = train_online(whole_job)
        error = measure_training_error(whole_job, fitted)
        model_files.write(model, fitted, {**notes, "training_error": error})
        job.say("model", model)
    if output is None:
        return
    if output.lower().endswith(".csv"):
        text = reports.as_csv([list(table), *zip(*table.values(), strict=True)])
        model_files.replace(output, [text.encode()])
        return
    title = f"{source.name}: {name}, {reports.with_count(len(batch[1]), 'row')}"
    draw(output, lambda: _figure(table, axes, title, regression))


def _run_grid(
    job: Job, gamma: list[float] | None, budget: list[int]
) -> tuple[str, list[str], dict[str, list[Any]]]:
    """The learner, the names of the swept hyperparameters, and the table of results."""
    about, settings = job.about, job.training.settings
    X, y, *weight = next(job.source.read())
    choice = job.choice(refits=False)
    swept = {key: given for key, given in settings.items() if isinstance(given, list)}
    names = bool(job.source.texts)
    reading.check_finite(job.source, X, 0, takes_missing=names)
    if names:
        X = job.fit_names(X).apply(X)
    if gamma is None:
        usual = job.default_gamma(X, scaled=names)
        gamma = [float(f"{multiple * usual:.4g}") for multiple in MULTIPLES]

    _use_all_cores()
    coded = TableModel(None, classes=about.labels, intercept=about.mean)
    with names_errors(job.source.name):
        if job.training.standardise and not names:
            X = Scaling.empty(X.shape[1]).updated(X).apply(X)
        y = coded.encode_targets(y)

    def init(gamma: Any, budget: Any, **more: Any) -> Any:
        return dataclasses.replace(choice.learner, **more).init(
            RBF(gamma),
            num_features=X.shape[1],
            budget=budget,
            capacity=capacity,
            **choice.arguments,
        )

    capacity = max(budget)
    grid = sweeps.grid(gamma=gamma, budget=budget, **swept)
    weights = SeenWeights().relative(weight[0])[0] if weight else None
    result = sweeps.sweep(grid.init(init), X, y, weight=weights)
    error, states = np.asarray(result.error), cast("State", result.states)
    table = grid.table(
        error=np.sqrt(error) if about.labels is None else error,
        vectors=np.asarray(states.num_active),
    )
    return name_of(type(choice.learner)), list(grid.names), table


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
