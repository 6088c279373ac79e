"""Many kernels and budgets at once: a table, and its picture.

    python examples/sweep.py
    python examples/sweep.py --data digits --gamma 0.01 0.03 0.1 0.3 --budget 20 50 100

One model for every gamma and every budget, all trained side by side on one stream by
one call of `budgetjax.sweep`. The progressive error, of rows predicted before they were
learned, needs no test set; the test error is printed beside it.
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
from budgetjax import datasets

try:
    from matplotlib import colormaps, rc_context
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter
except ImportError as error:
    raise SystemExit(f'sweep: {error}; pip install "budgetjax[examples]"') from error

LEARNERS = ("arow", "passive_aggressive", "pegasos", "projectron")
ROWS_SHOWN = 10  # of the table


def trained(
    options: argparse.Namespace, data: datasets.Dataset
) -> tuple[bj.Grid, bj.Sweep]:
    """The grid, and its models after the stream."""
    algorithm = getattr(bj, options.algorithm)
    settings = {"regularization": 1e-4} if algorithm is bj.pegasos else {}
    grid = bj.grid(gamma=options.gamma, budget=options.budget)
    states = grid.init(
        lambda gamma, budget: algorithm.init(
            bj.RBF(gamma),
            num_features=data.X_train.shape[1],
            num_classes=data.num_classes,
            budget=budget,
            capacity=max(options.budget),
            **settings,
        )
    )
    X, y = data.X_train[: options.rows], data.y_train[: options.rows]
    return grid, jax.block_until_ready(bj.sweep(algorithm, states, X, y))


def test_errors(models: Any, data: datasets.Dataset) -> np.ndarray:
    """The share of mistakes on the test part, shape `(models,)`."""
    predict = jax.jit(jax.vmap(bj.predict, in_axes=(0, None)))
    predicted = np.asarray(predict(models, data.X_test))
    return (predicted != data.y_test).mean(axis=1)


STYLE: Any = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
}
# Light to dark for budgets in order, so that they need no other key in grey print.
COLORS = "cividis_r"
# The first rows of a stream say little: every model starts empty.
FIRST_SHOWN = 100


def figure(
    grid: bj.Grid, result: bj.Sweep, errors: np.ndarray, title: str, path: str
) -> None:
    """Errors over gamma and budget, and learning curves of the best gammas."""
    gammas, budgets = (np.unique(column) for column in grid.columns)
    # Axes in order, however they were given.
    order = np.lexsort(grid.columns[::-1])
    percent = 100 * errors[order].reshape(len(gammas), len(budgets)).T
    with rc_context(STYLE):
        fig = Figure(figsize=(7.4, 3.2), layout="constrained")
        fig.suptitle(title, fontsize=9, x=0.01, ha="left")
        heat, curves = fig.subplots(1, 2, width_ratios=(1.25, 1))
        heat_map(heat, gammas, budgets, percent)

        curves_of_best(
            curves,
            np.asarray(result.rounds),
            100 * np.asarray(result.errors)[order],
            gammas,
            budgets,
        )
        fig.savefig(path, dpi=150)


def heat_map(
    panel: Any, gammas: np.ndarray, budgets: np.ndarray, percent: np.ndarray
) -> None:
    """A cell for each model, dark where it errs; the least error of all is framed."""
    floor = max(percent.min(), 0.01)
    norm = LogNorm(floor, max(percent.max(), 1.01 * floor))
    panel.imshow(
        np.maximum(percent, floor),
        norm=norm,
        cmap=COLORS,
        origin="lower",
        aspect="auto",
    )
    for (row, column), value in np.ndenumerate(percent):
        dark = norm(max(value, floor)) > 0.5
        panel.text(
            column,
            row,
            f"{value:.1f}",
            ha="center",
            va="center",
            fontsize=8,
            color="white" if dark else "black",
        )
    row, column = np.unravel_index(np.argmin(percent), percent.shape)
    place = float(column) - 0.5, float(row) - 0.5
    panel.add_patch(Rectangle(place, 1, 1, fill=False, lw=2, ec="#D55E00"))
    panel.set_xticks(range(len(gammas)), [f"{gamma:g}" for gamma in gammas])
    panel.set_yticks(range(len(budgets)), [f"{budget:g}" for budget in budgets])
    panel.set_xlabel("gamma of the Gaussian kernel")
    panel.set_ylabel("budget (support vectors)")
    panel.set_title("Test error (%)")


def curves_of_best(
    panel: Any,
    rounds: np.ndarray,
    percent: np.ndarray,
    gammas: np.ndarray,
    budgets: np.ndarray,
) -> None:
    """Mistakes so far, for every budget with the gamma that ends with the fewest."""
    percent = percent.reshape(len(gammas), len(budgets), -1)
    shown = rounds >= min(FIRST_SHOWN, rounds[-1])
    colors = colormaps[COLORS](np.linspace(0.25, 1, len(budgets)))
    for i, budget in enumerate(budgets):
        best = int(np.argmin(percent[:, i, -1]))
        label = f"{budget:g}, gamma {gammas[best]:g}"
        errors = percent[best, i, shown]
        panel.plot(rounds[shown], errors, color=colors[i], label=label)
    panel.set_title("Progressive error, best gamma")
    panel.set_xscale("log")
    panel.set_yscale("log")
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        axis.set_minor_formatter(NullFormatter())
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.set_xlabel("rows seen")
    panel.set_ylabel("mistakes so far (%)")
    panel.grid(True)
    panel.spines[["top", "right"]].set_visible(False)
    legend = {"fontsize": 7.5, "title_fontsize": 8, "frameon": False}
    panel.legend(title="budget", loc="lower left", **legend)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data", default="checkerboard", help="that budgetjax.datasets.load knows"
    )
    parser.add_argument(
        "--gamma",
        type=float,
        nargs="+",
        default=[0.5, 1, 2, 4, 8, 16, 32],
        help="of the Gaussian kernel",
    )
    parser.add_argument(
        "--budget", type=int, nargs="+", default=[10, 20, 30, 50, 100], help="to try"
    )
    parser.add_argument("--algorithm", choices=LEARNERS, default="arow", help="of all")
    parser.add_argument("--rows", type=int, help="of the training part")
    parser.add_argument("--output", default="sweep.png", help="where the figure goes")
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
        f"{data.name}: {models} models of {options.algorithm}, {rows:,} rows each, in "
        f"{seconds:.1f} s with compilation;\nthe {min(models, ROWS_SHOWN)} that err "
        f"least:\n\n{ranking._replace(rows=ranking.rows[:ROWS_SHOWN])}\n"
    )
    title = f"{options.algorithm} on {data.name}, one pass over {rows:,} rows"
    figure(grid, result, errors, title, options.output)
    print(f"Figure: {options.output}")


if __name__ == "__main__":
    # A device for each core; before anything else is done with JAX.
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    main()
