"""`budgetjax sweep`: which hyperparameters are best, by one pass over some rows."""

import contextlib
import csv
import dataclasses
import io
import os
from typing import Any

import click
import numpy as np

from budgetjax.cli import data, learners, options, reading, targets, weights
from budgetjax.cli.plot import FORMATS, draw

# What is tried, in multiples of the default gamma of `train`.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
ERROR = "progressive error (%)"
EXAMPLES = """\b
Examples:
  budgetjax sweep iris.csv --target species
  budgetjax sweep a9a.libsvm --gamma 0.01,0.03,0.1 --budget 50,100,200
  budgetjax sweep large.csv --target y --learner pegasos \\
    --set regularization=1e-3,1e-4,1e-5 --rows 50000 --output large.png
"""


@click.command(epilog=EXAMPLES)
@click.argument("file")
@options.columns
@options.weights
@click.option(
    "--gamma",
    type=options.Numbers(options.POSITIVE),
    help="Gamma of the kernel.  [default: 1/4, 1/2, 1, 2 and 4 times that of train]",
)
@click.option(
    "--budget",
    type=options.Numbers(options.BUDGET),
    default="100",
    show_default=True,
    help="Maximum number of support vectors.",
)
@options.learner()
@click.option(
    "--set",
    "settings",
    type=options.Setting(several=True),
    multiple=True,
    help="Values of an argument of the learner, such as regularization=1e-3,1e-4.  "
    "[repeatable]",
)
@options.standardise
@click.option(
    "--rows",
    type=options.AT_LEAST_1,
    default=100_000,
    show_default=True,
    help="Number of first rows of FILE to learn from; they must fit into memory.",
)
@click.option(
    "--output",
    "-o",
    metavar="OUT",
    help="The table as .csv, or its picture as .png, .svg or .pdf.",
)
@options.seed
@options.quiet
def sweep(
    file: str,
    columns: reading.Columns,
    class_weight: str | None,
    gamma: list[float] | None,
    budget: list[int],
    learner: str | None,
    settings: tuple[tuple[str, Any], ...],
    standardise: bool,
    rows: int,
    output: str | None,
    seed: int,
    quiet: bool,
) -> None:
    """Try all combinations of hyperparameters on FILE.

    Every combination is a model that learns the rows one by one, all models at the same
    time. The table is sorted by the progressive error, the share of rows that a model
    got wrong before it learned them; the best model is the first. For classes only, two
    or more.
    """
    asked = options.unique(settings, "--set")
    if output is not None and not output.lower().endswith((".csv", *FORMATS)):
        raise click.UsageError(
            f"--output must end in {', '.join(('.csv', *FORMATS))}, got {output}."
        )
    data.check_outputs({"--output": output}, file)
    file = reading.local(file, columns)
    reading.check_target(file, columns)
    source = reading.opened(file, columns)
    batch, whole = _first_rows(source, rows)
    first = dataclasses.replace(
        source, read=lambda: iter([batch]), read_targets=lambda: iter([batch[1]])
    )
    about = targets.look(first)
    X, y, *weight = next(weights.weighted(first, about, class_weight).read())
    labels = np.asarray(about.labels)
    choice = learners.chosen(learner, len(labels), asked, seed, refits=False)
    swept = {key: given for key, given in asked.items() if isinstance(given, list)}
    fixed = {key: g for key, g in choice.arguments.items() if key not in swept}
    name = choice.algorithm.name.replace("_", "-")
    if gamma is None:
        usual = learners.default_gamma(source.name, X, standardise)
        gamma = [float(f"{multiple * usual:.4g}") for multiple in MULTIPLES]

    _use_all_cores()
    from budgetjax import kernels, models
    from budgetjax.online.sweep import grid as grid_of
    from budgetjax.online.sweep import sweep as run
    from budgetjax.scaling import Scaling

    if standardise:
        X = Scaling.empty(X.shape[1]).updated(X).apply(X)

    def init(gamma: Any, budget: Any, **more: Any) -> Any:
        return choice.algorithm.init(
            kernels.RBF(gamma),
            num_features=X.shape[1],
            budget=budget,
            capacity=capacity,
            **fixed,
            **more,
        )

    capacity = max(budget)
    grid = grid_of(gamma=gamma, budget=budget, **swept)
    states = grid.init(init)
    y = models.coded(source.name, models.Labelled(None, classes=labels), y)
    result = run(choice.algorithm, states, X, y, weight=weight[0] if weight else None)
    vectors = np.asarray(result.states.expansion.num_active)
    table = grid.table(error=result.error, vectors=vectors)
    if not quiet:
        read = f"{len(y):,} rows" if whole else f"the first {len(y):,} rows (--rows)"
        click.echo(f"{file}: {read}, {len(labels)} classes, {name}\n")
        click.echo(str(table))
    if output is None:
        return
    if output.lower().endswith(".csv"):
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([table.names, *table.rows])
        data.write(output, [text.getvalue().encode()])
        return
    title = f"{os.path.basename(file)}: {name}, {data.counted(len(y), 'row')}"
    draw(output, lambda: _figure(table, list(grid.names), title))


def _figure(table: Any, axes: list[str], title: str) -> Any:
    """The error by two of the hyperparameters, those that were swept."""
    from matplotlib.figure import Figure

    from budgetjax import plots

    columns = dict(zip(table.names, zip(*table.rows, strict=True), strict=True))
    swept = [name for name in axes if len(set(columns[name])) > 1] or axes[:1]
    label = ERROR
    if len(swept) > 2:
        label = f"{ERROR}, best over {', '.join(swept[2:])}"
    percent = [
        [*row, 100 * error]
        for row, error in zip(table.rows, columns["error"], strict=True)
    ]
    table = table._replace(names=(*table.names, label), rows=percent)
    figure = Figure(figsize=(5.2, 3.9), layout="constrained")
    panel = figure.subplots()
    # The second across, the first upwards; one alone is a line.
    plots.sweep(table, *swept[:2][::-1], value=label, axes=panel)
    panel.set_title(f"{title}; the best is framed")
    return figure


def _first_rows(source: Any, rows: int) -> tuple[Any, bool]:
    """The first rows of a file as one batch, and whether these are all."""
    parts, held = [], 0
    for part in source:
        parts.append(part)
        held += len(part[1])
        if held > rows:
            break
    batch = tuple(np.concatenate(one)[:rows] for one in zip(*parts, strict=True))
    return batch, held <= rows


def _use_all_cores() -> None:
    """Gives JAX one device per core of a CPU, unless it has been used already."""
    import jax

    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores)
