"""Compares how well learners follow drifting streams: errors over time.

    python examples/drift.py
    python examples/drift.py --data rotating electricity --output examples/drift.png

Every row is predicted before it is learned. `rotating` is generated: a checkerboard
that stands still, rotates by 90 degrees, which swaps its two classes, and stands still
again. `electricity` has prices in time order, up or down, from OpenML or from the
folder that the environment variable BUDGETJAX_DATA names.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import budgetjax as bj
from budgetjax import datasets

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from tqdm import tqdm
except ImportError as error:
    raise SystemExit(f'drift: {error}; pip install ".[examples]"') from error


class Stream(NamedTuple):
    """Rows in time order.

    Attributes:
      title: the name in the table and the figure.
      X: shape `(n, d)`.
      y: -1 or +1, shape `(n,)`.
      changing: the first row of the drift and the first row after it, if known.
    """

    title: str
    X: np.ndarray
    y: np.ndarray
    changing: tuple[int, int] | None = None


class Entry(NamedTuple):
    """A learner in this comparison.

    Attributes:
      name: the name in the table and the figure.
      learner: the learner with its hyperparameters.
      color: the colour in the figure.
      dashes: the dashes of its line.
    """

    name: str
    learner: bj.Learner
    color: str
    dashes: Any


DASHED, DOTTED, MIXED = (0, (4, 1.5)), (0, (1, 1)), (0, (4, 1.2, 1, 1.2))
LEARNERS = (
    Entry("Pegasos, merge", bj.Pegasos(regularization=1e-5), "#E69F00", DOTTED),
    Entry("Passive-aggressive, merge", bj.PassiveAggressive(), "#009E73", MIXED),
    Entry("AROW", bj.AROW(), "#D55E00", DASHED),
    Entry("AROW, drift=0.01", bj.AROW(drift=0.01), "#0072B2", "-"),
)
# The gamma of each learner's kernel, with the fewest mistakes in the first fifth of
# electricity.
GAMMAS = {
    "rotating": (8.0, 8.0, 8.0, 8.0),
    "electricity": (0.125, 0.03, 0.5, 0.03),
}
BASELINE = "always the label before"


def rotating(num_rows: int, seed: int) -> Stream:
    """A checkerboard that rotates by 90 degrees in the middle third of the stream."""
    first, after = num_rows // 3, 2 * num_rows // 3
    turned = np.clip((np.arange(num_rows) - first) / (after - first), 0, 1) * np.pi / 2
    X = np.random.default_rng(seed).uniform(-2, 2, (num_rows, 2))
    board = np.stack(
        [
            np.cos(turned) * X[:, 0] + np.sin(turned) * X[:, 1],
            np.cos(turned) * X[:, 1] - np.sin(turned) * X[:, 0],
        ],
        axis=1,
    )
    y = datasets.checkerboard_labels(board)
    X = (X / X.std(axis=0)).astype(np.float32)
    return Stream("A checkerboard that turns", X, y, (first, after))


def electricity() -> Stream:
    data = datasets.load("electricity")
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    return Stream("Electricity prices", X, y)


def mistakes(entry: Entry, gamma: float, stream: Stream, budget: int) -> np.ndarray:
    """Whether each row was misclassified."""
    num_features = stream.X.shape[1]
    state = entry.learner.init(bj.RBF(gamma), num_features=num_features, budget=budget)
    _, scores = bj.run(state, stream.X, stream.y)
    return stream.y * np.asarray(scores) <= 0


def window_errors(wrong: np.ndarray, window: int) -> tuple[np.ndarray, np.ndarray]:
    """The ends of all windows of `window` rows, and the errors in them."""
    total = np.concatenate([[0], np.cumsum(wrong)])
    return np.arange(window, len(total)), (total[window:] - total[:-window]) / window


def table(stream: Stream, wrong: dict[str, np.ndarray]) -> str:
    """The errors of all learners, in parts of the stream and overall."""
    n = len(stream.y)
    if stream.changing is None:
        edges, names = (
            [0, n // 3, 2 * n // 3, n],
            ["1st third", "2nd third", "3rd third"],
        )
    else:
        edges, names = [0, *stream.changing, n], ["before", "turning", "after"]
    names = [*names, "all rows"]
    parts = [*map(slice, edges, edges[1:]), slice(None)]
    lines = [f"{'error':<26}" + "".join(f"{name:>11}" for name in names)]
    lines.append("-" * len(lines[0]))
    for name, each in wrong.items():
        cells = (f"{each[part].mean():>11.1%}" for part in parts)
        lines.append(f"{name:<26}" + "".join(cells))
    return "\n".join(lines)


STYLE: Any = {
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
    "axes.linewidth": 0.7,
    "lines.linewidth": 1.4,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
}
# Points of a curve in the figure, and the first rows, whose errors are too noisy.
POINTS, FIRST_SHOWN = 250, 200


def figure(
    results: Sequence[tuple[Stream, dict[str, np.ndarray]]], window: int, path: str
) -> None:
    """Errors in a moving window above, errors so far below; one column per stream."""
    with rc_context(STYLE):
        columns = len(results)
        fig = Figure(figsize=(7.2 if columns > 1 else 5, 4.8), layout="constrained")
        panels = fig.subplots(2, columns, sharex="col", squeeze=False)
        for i, (stream, wrong) in enumerate(results):
            curves(panels[0, i], panels[1, i], stream, wrong, window)
        panels[0, 0].set_ylabel(f"mistakes in the last\n{window:,} rows (%)")
        panels[1, 0].set_ylabel("mistakes so far (%)")
        # The legend of the last column, which has the lines of all others.
        handles, labels = panels[0, -1].get_legend_handles_labels()
        fig.legend(
            handles,
            labels,
            loc="outside upper center",
            ncols=3 if columns > 1 else 2,
            frameon=False,
            fontsize=8,
            handlelength=2.6,
        )
        fig.savefig(path, dpi=150)


def curves(
    recent: Any, so_far: Any, stream: Stream, wrong: dict[str, np.ndarray], window: int
) -> None:
    """One stream, in two panels."""
    n = len(stream.y)
    lines = [(one.name, one.color, one.dashes) for one in LEARNERS]
    if stream.changing is None:  # its labels last
        lines.append((BASELINE, "#999999", "-"))
    for name, color, dashes in lines:
        style = {"label": name, "color": color, "linestyle": dashes}
        style["zorder"] = 1.9 if name == BASELINE else 2
        ends, errors = window_errors(wrong[name], window)
        shown = np.linspace(0, len(ends) - 1, POINTS).astype(int)
        recent.plot(ends[shown] / 1000, 100 * errors[shown], **style)
        seen = np.linspace(min(FIRST_SHOWN, n), n, POINTS).astype(int)
        total = np.cumsum(wrong[name])
        so_far.plot(seen / 1000, 100 * total[seen - 1] / seen, **style)
    for panel in (recent, so_far):
        panel.set_ylim(bottom=0)
        panel.set_xlim(0, n / 1000)
        panel.grid(True)
        panel.spines[["top", "right"]].set_visible(False)
        if stream.changing is not None:
            start, stop = (row / 1000 for row in stream.changing)
            panel.axvspan(start, stop, color="#eeeeee", zorder=0, lw=0)
    if stream.changing is not None:
        across = recent.get_xaxis_transform()
        place = sum(stream.changing) / 2000, 0.97
        text = {"ha": "center", "va": "top", "color": "#555555"}
        recent.text(*place, "turning", transform=across, **text)
    recent.set_title(f"{stream.title}, {n:,} rows")
    so_far.set_xlabel("rows seen (thousands)")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        nargs="+",
        choices=list(GAMMAS),
        default=["rotating"],
        help="streams to draw side by side",
    )
    parser.add_argument("--rows", type=int, default=60_000, help="rows of rotating")
    parser.add_argument("--budget", type=int, default=100, help="support vectors")
    parser.add_argument("--window", type=int, default=1000, help="rows per window")
    parser.add_argument("--output", default="drift.png", help="file for the figure")
    parser.add_argument("--seed", type=int, default=0, help="seed of rotating")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    results = []
    for name in options.data:
        try:
            stream = (
                electricity()
                if name == "electricity"
                else rotating(options.rows, options.seed)
            )
        except (ValueError, ImportError, OSError) as error:
            parser.error(f"--data: {error}")
        if not 0 < options.window <= len(stream.y):
            parser.error(f"--window: must be from 1 to {len(stream.y)} rows")
        wrong = {}
        with tqdm(zip(LEARNERS, GAMMAS[name], strict=True), total=len(LEARNERS)) as bar:
            for entry, gamma in bar:
                bar.set_description(f"{name}: {entry.name:26}")
                wrong[entry.name] = mistakes(entry, gamma, stream, options.budget)
        wrong[BASELINE] = stream.y != np.roll(stream.y, 1)
        results.append((stream, wrong))
    for stream, wrong in results:
        print(
            f"\n{stream.title}: {len(stream.y):,} rows in time order, budget "
            f"{options.budget}\n\n{table(stream, wrong)}"
        )
    figure(results, options.window, options.output)
    print(f"\nFigure: {options.output}")


if __name__ == "__main__":
    main()
