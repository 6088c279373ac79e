"""`budgetjax sweep`: which hyperparameters are best, by one pass over some rows."""

import contextlib
import dataclasses
import json
import os
from typing import Any

import click
import numpy as np

from budgetjax.cli import data, learners, options, targets

# Of the gamma that `train` takes by itself.
MULTIPLES = (0.25, 0.5, 1.0, 2.0, 4.0)
# What a file says of itself.
KIND = "budgetjax sweep"
EXAMPLES = """\b
Examples:
  budgetjax sweep iris.csv --target species
  budgetjax sweep a9a.libsvm --gamma 0.01,0.03,0.1 --budget 50,100,200
  budgetjax sweep large.csv --target y --algorithm pegasos \\
    --set regularization=1e-3,1e-4,1e-5 --rows 50000 --output large.json
"""


@click.command(epilog=EXAMPLES)
@click.argument("file")
@options.columns
@click.option(
    "--gamma",
    type=options.Numbers(options.POSITIVE),
    help="Of the kernel.  [default: 1/4, 1/2, 1, 2 and 4 times that of train]",
)
@click.option(
    "--budget",
    type=options.Numbers(options.BUDGET),
    default="100",
    show_default=True,
    help="The most support vectors.",
)
@options.algorithm
@click.option(
    "--set",
    "settings",
    type=options.Setting(several=True),
    multiple=True,
    help="Values of an argument of the algorithm, such as regularization=1e-3,1e-4.  "
    "[repeatable]",
)
@options.standardise
@click.option(
    "--rows",
    type=options.AT_LEAST_1,
    default=100_000,
    show_default=True,
    help="Learn from the first rows of FILE, which must fit into memory.",
)
@click.option(
    "--output", "-o", metavar="OUT.json", help='For scripts, and "budgetjax plot".'
)
@options.seed
@options.quiet
def sweep(
    file: str,
    target: str | None,
    ignore: tuple[str, ...],
    header: bool,
    zero_based: bool,
    gamma: list[float] | None,
    budget: list[int],
    algorithm: str | None,
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
    got wrong before it learned them; the best model is the first. Two or more classes;
    a sweep does not know --regression.
    """
    asked = options.unique(settings, "--set")
    data.check_target(file, target, header)
    data.check_outputs({"--output": output}, file)
    source = data.opened(file, target, ignore, header=header, zero_based=zero_based)
    X, y, whole = _first_rows(source, rows)
    about = targets.look(dataclasses.replace(source, read_targets=lambda: iter([y])))
    labels = np.asarray(about.labels)
    learner = learners.learner(algorithm, len(labels), asked, seed, refits=False)
    swept = {key: given for key, given in asked.items() if isinstance(given, list)}
    fixed = {key: g for key, g in learner.arguments.items() if key not in swept}
    if gamma is None:
        usual = learners.default_gamma(source.name, X, standardise)
        gamma = [float(f"{multiple * usual:.4g}") for multiple in MULTIPLES]

    _use_all_cores()
    from budgetjax import kernels
    from budgetjax.online.sweep import grid as grid_of
    from budgetjax.online.sweep import sweep as run
    from budgetjax.scaling import Scaling

    if standardise:
        X = Scaling.empty(X.shape[1]).updated(X).apply(X)

    def init(gamma: Any, budget: Any, **more: Any) -> Any:
        return learner.algorithm.init(
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
    result = run(learner.algorithm, states, X, targets.coded(labels, y))
    vectors = np.asarray(result.states.expansion.num_active)
    table = grid.table(error=result.error, vectors=vectors)
    if not quiet:
        read = f"{len(y):,} rows" if whole else f"the first {len(y):,} rows (--rows)"
        click.echo(f"{file}: {read}, {len(labels)} classes, {learner.name}\n")
        click.echo(str(table))
    if output is not None:
        found = {
            "kind": KIND,
            "file": os.path.basename(file),
            "rows": len(y),
            "algorithm": learner.name,
            "axes": list(grid.names),
            "names": list(table.names),
            "table": [list(row) for row in table.rows],
        }
        data.write(output, [json.dumps(found, indent=1).encode()])


def _first_rows(source: Any, rows: int) -> tuple[np.ndarray, np.ndarray, bool]:
    """The first rows of a file, and whether these are all."""
    parts, held = [], 0
    for X, y, *_ in source:
        parts.append((X, y))
        held += len(y)
        if held > rows:
            break
    X, y = (np.concatenate(arrays)[:rows] for arrays in zip(*parts, strict=True))
    return X, y, held <= rows


def _use_all_cores() -> None:
    """Gives JAX a device a core of a CPU; too late if it has been used already."""
    import jax

    allowed = getattr(os, "sched_getaffinity", None)
    cores = (os.cpu_count() or 1) if allowed is None else len(allowed(0))
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", cores)
