"""Quantile regression: the range of a target, not only its mean.

    python examples/quantiles.py

The noise of a target grows along x, and is not symmetric. One model with 40 support
vectors has nine quantiles as its columns. The left panel shows five of them, with the
true ones dashed; the right panel shows the fraction of new targets below each.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy import stats

from budgetjax.plots import COLORS, STYLE

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from budgetjax.estimators import BudgetedKernelRegressor
except ImportError as error:
    raise SystemExit(f"quantiles: {error}; pip install '.[examples]'") from error

LEVELS = np.array([0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95])
SHOWN = (0, 2, 4, 6, 8)


def mean_and_noise(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The function, and the scale of a Gumbel distribution around it."""
    return np.sin(2 * x), 0.05 + 0.15 * (x + 3)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--rows", type=int, default=8000, help="rows; half are for training"
    )
    parser.add_argument("--budget", type=int, default=40, help="support vectors")
    parser.add_argument("--output", default="quantiles.png", help="file for the figure")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")

    random = np.random.default_rng(0)
    x = random.uniform(-3, 3, options.rows)
    mean, noise = mean_and_noise(x)
    y = mean + noise * random.gumbel(size=options.rows)
    half = options.rows // 2
    model = BudgetedKernelRegressor(
        options.budget, quantile=LEVELS.tolist(), random_state=0
    )
    model.fit(x[:half, None], y[:half])
    below = np.mean(y[half:, None] < model.predict(x[half:, None]), axis=0)
    for level, part in zip(LEVELS, below, strict=True):
        print(f"level {level:.2f}: {part:.3f} of new targets are below")
    print(f"D^2 on them: {model.score(x[half:, None], y[half:]):.3f}")

    with rc_context(STYLE):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
        line = np.linspace(-3, 3, 300)
        found, (mean, noise) = model.predict(line[:, None]), mean_and_noise(line)
        left.plot(x[:half:4], y[:half:4], ".", color="0.75", markersize=2)
        for i in SHOWN:
            color = COLORS[5] if LEVELS[i] == 0.5 else COLORS[0]
            left.plot(line, found[:, i], color=color, linewidth=1.3)
            true = mean + noise * stats.gumbel_r.ppf(LEVELS[i])
            left.plot(line, true, "--", color="0.2", linewidth=0.8)
        names = ", ".join(f"{LEVELS[i]:g}" for i in SHOWN)
        left.set_title(
            f"Quantiles {names}, {model.n_support_} vectors; true ones dashed"
        )
        left.set(xlabel="x", ylabel="y", ylim=np.quantile(y, (0.0005, 0.9995)))
        right.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        right.plot(LEVELS, below, "o", color=COLORS[0], markersize=4)
        right.set_title("Part of new targets below")
        right.set(xlabel="level", aspect="equal", xlim=(0, 1), ylim=(0, 1))
        figure.savefig(options.output, dpi=150)
    print(f"Figure: {options.output}")


if __name__ == "__main__":
    main()
