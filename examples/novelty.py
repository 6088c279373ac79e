"""Novelty detection: learns rows of one kind, and finds others.

    python examples/novelty.py

On the left, two crescents form a stream, in parts of 500 rows; 5 percent of new rows of
the same kind should lie outside the line. On the right, a model with 50 support vectors
learns the images of one digit and scores all digits of the test part.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from budgetjax import datasets
from budgetjax.plots import COLORS, STYLE

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from sklearn.datasets import make_moons

    from budgetjax.estimators import BudgetedOneClass
except ImportError as error:
    raise SystemExit(f'novelty: {error}; pip install ".[examples]"') from error

ROWS, PART, RATE = 4000, 500, 0.05
AREA = (-1.8, 2.8, -1.3, 1.8)


def crescents(axes: Any) -> None:
    """A model of a stream, and the boundary of novel rows."""
    X, _ = make_moons(2 * ROWS, noise=0.1, random_state=0)
    model = BudgetedOneClass(budget=60, rate=RATE, gamma=5.0, random_state=0)
    for start in range(0, ROWS, PART):
        model.partial_fit(X[start : start + PART])
    left, right, bottom, top = AREA
    far = np.random.default_rng(1).uniform((left, bottom), (right, top), (5000, 2))
    novel = np.mean(model.predict(X[ROWS:]) < 0)
    print(
        f"crescents: {novel:.1%} of new rows are called novel, "
        f"{np.mean(model.predict(far) < 0):.1%} of points all over the figure"
    )
    grid = np.meshgrid(np.linspace(left, right, 150), np.linspace(bottom, top, 120))
    scores = model.decision_function(np.stack([one.ravel() for one in grid], axis=1))
    scores = scores.reshape(grid[0].shape)
    axes.contourf(*grid, scores, levels=[0, np.inf], colors=[COLORS[4]], alpha=0.3)
    axes.contour(*grid, scores, levels=[0], colors=[COLORS[0]])
    axes.plot(*np.transpose(X[:ROWS:8]), ".", color="0.6", markersize=2)
    axes.plot(*model.support_vectors_.T, "o", color=COLORS[5], markersize=3.5)
    axes.set_title(f"{model.n_support_} vectors of {ROWS:,} rows, and the threshold")
    axes.set(xticks=[], yticks=[])


def digits(axes: Any, digit: int) -> None:
    """The scores of one digit and of the others."""
    data = datasets.load("digits")
    model = BudgetedOneClass(budget=50, rate=RATE, random_state=0)
    model.fit(data.X_train[data.y_train == digit])
    scores, same = model.decision_function(data.X_test), data.y_test == digit
    print(
        f"digits: {np.mean(scores[same] < 0):.1%} of new images of a {digit} are "
        f"called novel, {np.mean(scores[~same] < 0):.1%} of the others"
    )
    bins = np.linspace(scores.min(), scores.max(), 40)
    for rows, name, color in (
        (~same, "others", COLORS[5]),
        (same, f"new {digit}s", COLORS[0]),
    ):
        weights = np.full(rows.sum(), 100 / rows.sum())
        axes.hist(
            scores[rows], bins, weights=weights, label=name, color=color, alpha=0.7
        )
    axes.axvline(0, color="0.2", linewidth=1)
    axes.set_title("Scores less the threshold, digits")
    axes.set(xlabel="decision_function", ylabel="% of the images")
    axes.legend(frameon=False)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--digit", type=int, default=3, choices=range(10), help="digit to learn"
    )
    parser.add_argument("--output", default="novelty.png", help="file for the figure")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    with rc_context(STYLE):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2)
        crescents(left)
        digits(right, options.digit)
        figure.savefig(options.output, dpi=150)
    print(f"Figure: {options.output}")


if __name__ == "__main__":
    main()
