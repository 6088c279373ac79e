"""Growth of time and memory with the budget, features, classes, models and rows.

One quantity grows at a time, from 100 support vectors, 20 features and two classes. The
labels are random, so nearly every example changes the model: in this worst case an
example costs what the tables of algorithms say, maintenance included. Only the rows
axis uses a checkerboard, where few examples change the model. Models are those of one
sweep.

Times are microseconds per example and model of a run that is compiled already: the
median of three. Memory is what XLA reserves for that run: its arguments, results and
temporaries.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import jax
import jax.numpy as jnp
import numpy as np
import timing
from models import empty
from runner import Case, Row

import budgetjax as bj
from budgetjax import datasets
from budgetjax.online import driver, examples, sweeps

AXES: dict[str, tuple[int, ...]] = {
    "budget": (20, 50, 100, 200, 500, 1000, 2000),
    "features": (2, 8, 32, 128, 784),
    "classes": (2, 3, 10, 30, 100),
    "models": (1, 4, 16, 64, 256, 1024),
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
}
BASE = {"budget": 100, "features": 20, "classes": 2, "models": 1, "rows": 2000}
LEARNERS = {
    "Perceptron, remove oldest": (bj.Perceptron(), {"maintenance": bj.RemoveOldest()}),
    "Pegasos, merge": (bj.Pegasos(regularization=1e-4), {}),
    "AROW": (bj.AROW(), {}),
}
# Larger values take minutes, and the time of each is known by then.
MOST = {("AROW", "rows"): 1_000_000, ("AROW", "models"): 256}


def stream(axis: str, size: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
    if axis == "rows":
        return datasets.checkerboard(size["rows"], seed=0)
    random = np.random.default_rng(0)
    X = random.normal(size=(size["rows"], size["features"])).astype(np.float32)
    y = random.integers(size["classes"], size=size["rows"], dtype=np.int32)
    return X, y if size["classes"] > 2 else 2 * y - 1


def measured(axis: str, value: int, learner: str) -> dict[str, float]:
    """Time per example and model, and memory of the run."""
    size = BASE | {axis: value}
    chosen, shared = LEARNERS[learner]
    X, y = stream(axis, size)
    gamma = 8.0 if axis == "rows" else 0.5 / X.shape[1]

    def init(gamma):
        more = {"num_classes": size["classes"], **shared}
        return empty(chosen, X, size["budget"], gamma, **more)

    block = driver.block_length(None)
    if axis == "models":
        states = jax.vmap(init)(jnp.linspace(0.5 * gamma, 2 * gamma, value))
        one = jax.tree.map(lambda leaf: leaf[0], states)
        run = states, *examples.check_stream(one, X, y, None)
        device, together = tuple(jax.devices()[:1]), sweeps.side_by_side()
        program = sweeps._run_sharded.lower(device, together, block, *run).compile()
    else:
        run = init(gamma), *examples.check_stream(init(gamma), X, y, None)
        program = driver.run_checked.lower(*run, block).compile()
    repeats = 1 if value >= 10_000_000 else 3
    seconds = timing.median(functools.partial(program, *run), repeats)
    memory: Any = program.memory_analysis()
    total = memory.argument_size_in_bytes + memory.output_size_in_bytes
    total += memory.temp_size_in_bytes
    return {
        "us": 1e6 * seconds / (size["rows"] * size["models"]),
        "MiB": total / 2**20,
    }


def draw(rows: list[Row], path: Path) -> None:
    """Time above, memory below, with a panel for each axis."""
    labels = ("microseconds per example", "MiB of the run")
    with drawing.panels(path, len(AXES), 2, (2.9, 2.7)) as (figure, panels):
        for i, panel in enumerate(panels):
            field, axis = ("us", "MiB")[i // len(AXES)], list(AXES)[i % len(AXES)]
            own = [row for row in rows if row["axis"] == axis]
            drawing.plot(panel, own, "learner", "value", field)
            panel.set(xscale="log", yscale="log", xlabel=axis)
            panel.grid(alpha=0.3)
        for panel, label in zip(panels[:: len(AXES)], labels, strict=True):
            panel.set_ylabel(label)
        panels[list(AXES).index("models")].set_ylabel("per model too")
        drawing.legend(figure, panels)


def cases() -> Iterator[Case]:
    """All axes, learners and values."""
    for axis, values in AXES.items():
        for learner in LEARNERS:
            for value in values:
                if value <= MOST.get((learner, axis), value):
                    key = {"axis": axis, "learner": learner, "value": value}
                    yield Case(key, functools.partial(measured, axis, value, learner))
