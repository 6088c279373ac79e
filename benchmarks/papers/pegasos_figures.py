"""Test accuracy and time along a stream: Figures 1 to 3 of Pegasos on a budget.

Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget": Pegasos, lambda
1e-4, by its maintenance, and without a budget, on streams of the checkerboard (10
million rows) and waveform (2 million), and AROW, which is not in the paper. Each curve
is one stream. Gamma is the one of 1, 4, 16 and 64 over d with the least error on the
last 5,000 of the first 20,000 rows after one pass over the others; without a budget it
is that of merging, the support set doubles where the next piece might not fit, and the
stream ends after the paper's number of rows, or `unbudgeted=ROWS`. Seconds are those
of `bj.run` without its compilation, and grow with other load on the processor. It takes
some ten minutes on a busy core, and more without a budget.
"""

import functools
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib import pyplot
from runner import Case, Row, given

import budgetjax as bj
from budgetjax import datasets

ROWS = {"checkerboard": 10_000_000, "waveform": 2_000_000}
CLASSES = {"checkerboard": 2, "waveform": 3}
TEST_ROWS = 20_000
CHOICE, HELD_OUT = 20_000, 5000
# Rows of the paper's runs without a budget, which ended after 3,000 seconds.
UNBUDGETED = {"checkerboard": 540_000, "waveform": 140_000}
WIDTHS = (1.0, 4.0, 16.0, 64.0)
# Numbers of rows at which accuracy is measured; between two, all calls have equally
# many rows.
FIRST, STOPS = 1000, (1, 2, 5)
STRATEGIES: dict[str, Any] = {
    "merge": bj.Merge(),
    "random": bj.RemoveRandom(),
    "smallest": bj.RemoveSmallest(),
    "AROW": None,
    "unbudgeted": bj.Unbudgeted(),
    "project": bj.Project(),
}
# Figure 3 has both budgets.
LARGE = ("merge", "project")


@functools.cache
def stream(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mean 0 and deviation 1, and labels."""
    generate = getattr(datasets, name)
    X, y = generate(rows, seed=seed)
    first, _ = generate(CHOICE, seed=0)
    return (X - first.mean(axis=0)) / first.std(axis=0), y


def empty(name: str, method: str, budget: int, width: float, d: int) -> Any:
    """The first state."""
    shape: dict[str, Any] = {
        "num_features": d,
        "num_classes": CLASSES[name],
        "budget": budget,
    }
    kernel = bj.RBF(width / d)
    if method == "AROW":
        return bj.AROW().init(kernel, **shape)
    strategy = STRATEGIES[method]
    return bj.Pegasos(regularization=1e-4).init(kernel, maintenance=strategy, **shape)


def accuracy(state: Any, X: np.ndarray, y: np.ndarray) -> float:
    """The accuracy in percent."""
    return 100 * float(np.mean(np.asarray(bj.predict(state, X)) == y))


@functools.cache
def width_of(name: str, method: str, budget: int, rows: int) -> float:
    """The width with the least error on the rows that follow."""
    X, y = stream(name, rows, 0)
    X, y = X[:CHOICE], y[:CHOICE]
    cut = len(y) - min(HELD_OUT, len(y) // 4)

    def held_out(width: float) -> float:
        state = empty(name, method, budget, width, X.shape[1])
        state, _ = bj.run(state, X[:cut], y[:cut], keep_scores=False)
        return accuracy(state, X[cut:], y[cut:])

    return max(WIDTHS, key=held_out)


def grown(state: Any, larger: Any) -> Any:
    """The state in the shapes of an empty one with more slots."""

    def fit(old: jax.Array, new: jax.Array) -> jax.Array:
        if old.shape == new.shape:
            return old
        # The last row is spare.
        return new.at[: len(old) - 1].set(old[:-1])

    expansion = jax.tree.map(fit, state.expansion, larger.expansion)
    expansion = expansion._replace(budget=larger.expansion.budget)
    return state._replace(expansion=expansion)


def curve(
    name: str, method: str, budget: int, rows: int, unbudgeted: int | None
) -> dict[str, Any]:
    """Accuracies and seconds after each number of rows."""
    X, y = stream(name, rows, 0)
    X_test, y_test = stream(name, TEST_ROWS, 1)
    chooser = ("merge", 100) if method == "unbudgeted" else (method, budget)
    width = width_of(name, *chooser, rows)
    if method == "unbudgeted":
        rows, budget = min(rows, unbudgeted or UNBUDGETED[name]), 2 * FIRST
    state = empty(name, method, budget, width, X.shape[1])
    lengths, accuracies, times, processor = [], [], [], []
    seconds, processor_seconds, compiled = 0.0, 0.0, None
    at, piece = 0, FIRST
    while at + piece <= rows:
        if method == "unbudgeted":
            wanted = int(state.expansion.num_active) + piece
            while budget < wanted:
                budget *= 2
                state = grown(state, empty(name, method, budget, width, X.shape[1]))
        given = jnp.asarray(X[at : at + piece]), jnp.asarray(y[at : at + piece])
        if compiled != (piece, budget):
            jax.block_until_ready(bj.run(state, *given, keep_scores=False))
            compiled = piece, budget
        start = time.perf_counter(), time.process_time()
        state, _ = bj.run(state, *given, keep_scores=False)
        jax.block_until_ready(state.expansion)
        seconds += time.perf_counter() - start[0]
        processor_seconds += time.process_time() - start[1]
        at += piece
        if at / 10 ** (len(str(at)) - 1) in STOPS or at + piece > rows:
            lengths.append(at)
            times.append(seconds)
            processor.append(processor_seconds)
            accuracies.append(accuracy(state, X_test, y_test))
        # Without a budget, slots for a longer piece would wait in vain.
        if at == 10 * piece and (method != "unbudgeted" or piece == FIRST):
            piece *= 10
    return {
        "gamma d": width,
        "vectors": int(state.expansion.num_active),
        "lengths": lengths,
        "accuracies, %": accuracies,
        "seconds": times,
        "processor seconds": processor,
        "rows/s": at / seconds,
    }


def draw(rows: list[Row], path: Path) -> None:
    """Accuracies of both streams, and the time on waveform."""
    colors = dict(zip(STRATEGIES, bj.plots.COLORS, strict=False))
    with matplotlib.rc_context(bj.plots.STYLE):
        figure, panels = pyplot.subplots(
            1, 3, figsize=(10.5, 3.4), layout="constrained"
        )
        for row in rows:
            kind = {
                "color": colors[row["method"]],
                "marker": ".",
                "label": row["method"],
            }
            if row["B"] != 500:
                panel = panels[list(ROWS).index(row["data"])]
                panel.plot(row["lengths"], row["accuracies, %"], **kind)
            if row["data"] == "waveform":
                dashes = "--" if row["B"] == 500 else "-"
                panels[2].plot(row["lengths"], row["seconds"], dashes, **kind)
        for panel, name in zip(panels, ROWS, strict=False):
            panel.set_title(f"{name}, B = 100")
            panel.set_ylabel("test accuracy, %")
        panels[2].set_title("waveform, B = 100 and 500 (dashed)")
        panels[2].set_ylabel("seconds")
        panels[2].set_yscale("log")
        for panel in panels:
            panel.set_xscale("log")
            panel.set_xlabel("rows")
            panel.grid()
        panels[0].legend(loc="center right", bbox_to_anchor=(1, 0.55), ncols=2)
        figure.savefig(path, dpi=130)


def cases() -> Iterator[Case]:
    """All streams, strategies and budgets."""
    (most,), (unbudgeted,) = given("stream", 10_000_000), given("unbudgeted", None)
    for name, method in itertools.product(ROWS, STRATEGIES):
        large = name == "waveform" and method in LARGE
        for budget in (100, 500) if large else (100,):
            rows = min(most, ROWS[name])
            key = {"data": name, "method": method, "B": budget, "stream": rows}
            yield Case(key, functools.partial(curve, *key.values(), unbudgeted))
