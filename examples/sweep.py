"""Sweeps kernels and budgets at once: a table and its picture.

    python examples/sweep.py
    python examples/sweep.py --data digits --gamma 0.01 0.03 0.1 0.3 --budget 20 50 100

One call of `budgetjax.sweep` trains one model per gamma and budget on one stream. The
progressive error, on rows predicted before they are learned, needs no test set; the
test error is printed next to it.
"""

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import budgetjax as bj
from budgetjax import datasets, plots

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
except ImportError as error:
    raise SystemExit(f'sweep: {error}; pip install ".[examples]"') from error

LEARNERS = {
    "arow": bj.AROW(),
    "passive_aggressive": bj.PassiveAggressive(),
    "pegasos": bj.Pegasos(regularization=1e-4),
    "projectron": bj.Projectron(),
}
ROWS_SHOWN = 10  # shown of the table


def trained(
    options: argparse.Namespace, data: datasets.Dataset
) -> tuple[bj.Grid, bj.Sweep]:
    """The grid and its models after the stream."""
    learner = LEARNERS[options.learner]
    grid = bj.grid(gamma=options.gamma, budget=options.budget)
    states = grid.init(
        lambda gamma, budget: learner.init(
            bj.RBF(gamma),
            num_features=data.X_train.shape[1],
            num_classes=data.num_classes,
            budget=budget,
            capacity=max(options.budget),
        )
    )
    X, y = data.X_train[: options.rows], data.y_train[: options.rows]
    return grid, jax.block_until_ready(bj.sweep(states, X, y))


def test_errors(models: Any, data: datasets.Dataset) -> np.ndarray:
    """The error rate on the test part, shape `(models,)`."""
    predict = jax.jit(jax.vmap(bj.predict, in_axes=(0, None)))
    predicted = np.asarray(predict(models, data.X_test))
    return (predicted != data.y_test).mean(axis=1)


def figure(
    grid: bj.Grid, result: bj.Sweep, errors: np.ndarray, title: str, path: str
) -> None:
    """Errors over gamma and budget, and learning curves of the best gammas."""
    with rc_context(plots.STYLE):
        fig = Figure(figsize=(7.4, 3.6), layout="constrained")
        fig.suptitle(title, x=0.01, ha="left")
        heat, curves = fig.subplots(1, 2, width_ratios=(1.25, 1))
        table = grid.table(**{"test error (%)": 100 * errors})
        plots.sweep(table, "gamma", "budget", value="test error (%)", axes=heat)
        gammas, budgets = grid.columns
        best = {}
        for budget in np.unique(budgets):
            models = np.flatnonzero(budgets == budget)
            model = models[np.argmin(np.asarray(result.error)[models])]
            name = f"{budget:g} ({gammas[model]:g})"
            best[name] = result.rounds, result.errors[model]
        plots.learning_curves(best, axes=curves)
        key = {"loc": "upper center", "ncols": 3, "bbox_to_anchor": (0.5, -0.2)}
        curves.legend(title="budget (gamma)", **key)
        curves.set_title("Progressive error, best gamma")
        fig.savefig(path, dpi=150)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default="checkerboard",
        help="a name that budgetjax.datasets.load knows",
    )
    parser.add_argument(
        "--gamma",
        type=float,
        nargs="+",
        default=[0.5, 1, 2, 4, 8, 16, 32],
        help="values of the kernel parameter",
    )
    parser.add_argument(
        "--budget",
        type=int,
        nargs="+",
        default=[10, 20, 30, 50, 100],
        help="budgets to try",
    )
    parser.add_argument(
        "--learner", choices=LEARNERS, default="arow", help="the learner"
    )
    parser.add_argument(
        "--rows", type=int, help="first rows of the training part to use"
    )
    parser.add_argument("--output", default="sweep.png", help="file for the figure")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    try:
        data = datasets.load(options.data)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    if data.num_classes == 0:
        parser.error(f"--data: {data.name} is for regression, these learners classify")

    start = time.perf_counter()
    grid, result = trained(options, data)
    seconds = time.perf_counter() - start
    errors = test_errors(result.states, data)
    ranking = grid.table(
        test_error=errors,
        progressive_error=result.error,
        vectors=result.states.expansion.num_active,
    )
    models, rows = result.errors.shape[0], int(result.rounds[-1])
    print(
        f"{data.name}: {models} models of {options.learner}, {rows:,} rows each, in "
        f"{seconds:.1f} s with compilation;\nthe {min(models, ROWS_SHOWN)} that err "
        f"least:\n"
    )
    widths = [max(len(name), 8) for name in ranking]
    print("  ".join(map(str.rjust, ranking, widths)))
    for row in list(zip(*ranking.values(), strict=True))[:ROWS_SHOWN]:
        print(
            "  ".join(
                f"{value:{width}.4g}" for value, width in zip(row, widths, strict=True)
            )
        )
    print()
    title = f"{options.learner} on {data.name}, one pass over {rows:,} rows"
    figure(grid, result, errors, title, options.output)
    print(f"Figure: {options.output}")


if __name__ == "__main__":
    # One device per core, set before the first use of JAX.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    main()
