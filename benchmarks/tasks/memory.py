"""Peak memory: a stream, a sweep, a metric, a solver, and files that grow.

Each case runs in its own process. Its memory is what the process holds itself
(`RssAnon`, without the pages of programs and mapped files, which the system can
reclaim), sampled every 20 ms, compilation included. "before" is the memory once the
library is imported and the rows exist, "more" the increase until the peak. Rows have 20
random features, 80 bytes, and labels by a random quadratic function; every tenth label
is flipped.

It takes some minutes on one core. `most=ROWS` limits the rows.
"""

import functools
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import timing
from runner import Case, given

import budgetjax as bj
from budgetjax import stream

FEATURES = 20
# The function, the budget or None, and the rows.
CASES: tuple[tuple[str, int | None, int], ...] = (
    ("run, Pegasos with merging", 500, 100_000),
    ("sweep of 1,024 models, Pegasos", 100, 2000),
    ("refit with a metric", 500, 100_000),
    ("smo", None, 20_000),
    ("fit_stream from a file", 100, 1_000_000),
    ("fit_stream from a file", 100, 10_000_000),
    ("refit from a file", 100, 10_000_000),
)


def rows_of(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    X = random.standard_normal((n, FEATURES), np.float32)
    plane = np.random.default_rng(1).standard_normal((FEATURES, 2), np.float32)
    projected = X @ plane
    y = np.where(projected[:, 0] * projected[:, 1] > 0, 1, -1).astype(np.int32)
    return X, np.where(random.random(n) < 0.1, -y, y)


def pegasos(budget: int, gamma: Any = 0.5 / FEATURES) -> Any:
    shape: dict[str, Any] = {"num_features": FEATURES, "budget": budget}
    return bj.Pegasos(regularization=1e-4).init(bj.RBF(gamma), **shape)


def centres(X: np.ndarray, y: np.ndarray, budget: int) -> Any:
    """A model to refit, learned from the first rows."""
    return bj.run(pegasos(budget), X[:5000], y[:5000])[0]


def swept(X: np.ndarray, y: np.ndarray, budget: int) -> Any:
    gammas = jnp.geomspace(0.001, 1, 1024)
    states = jax.vmap(lambda gamma: pegasos(budget, gamma))(gammas)
    return bj.sweep(states, X, y)


KERNEL = bj.RBF(0.5 / FEATURES)
# Functions of the rows, their labels and the budget.
RUNS: dict[str, Callable[..., Any]] = {
    "run, Pegasos with merging": lambda X, y, budget: bj.run(pegasos(budget), X, y),
    "sweep of 1,024 models, Pegasos": swept,
    "refit with a metric": lambda X, y, budget: bj.refit(
        centres(X, y, budget), X, y, learn_metric=True, epochs=1
    ),
    "smo": lambda X, y, budget: bj.solve(bj.SMO(KERNEL), X, y, max_steps=20),
}


def from_file(what: str, budget: int, n: int, folder: Path) -> dict[str, float]:
    """The same for a file of `n` rows, which is written in chunks."""
    paths = folder / "X.npy", folder / "y.npy"
    files = [
        np.lib.format.open_memmap(paths[0], "w+", np.float32, (n, FEATURES)),
        np.lib.format.open_memmap(paths[1], "w+", np.int32, (n,)),
    ]
    for start in range(0, n, 100_000):
        parts = rows_of(min(100_000, n - start), seed=start)
        for file, part in zip(files, parts, strict=True):
            file[start : start + len(part)] = part
    del files
    with timing.memory() as found:
        model = bj.fit_stream(pegasos(budget), stream.npy(*paths))
        if what == "refit from a file":
            model = bj.refit(model, stream.npy(*paths))
        jax.block_until_ready(model.state)
    return found


def child(what: str, budget: int | None, n: int) -> dict[str, float]:
    """The figures of a case, measured in this process."""
    if what.endswith("a file"):
        assert budget is not None
        with tempfile.TemporaryDirectory() as folder:
            return from_file(what, budget, n, Path(folder))
    X, y = rows_of(n)
    jax.block_until_ready(jnp.zeros(1) + 1)
    with timing.memory() as found:
        result = RUNS[what](X, y, budget)
        jax.block_until_ready(jax.tree.leaves(result))
    return found


def measured(what: str, budget: int | None, rows: int) -> dict[str, float]:
    """The figures of a case, measured in its own process."""
    found = timing.apart("tasks.memory", "child", what, budget, rows)
    return found | {"MiB more": found["MiB"] - found["MiB before"]}


def cases() -> Iterator[Case]:
    """All of them, or those of few rows."""
    (most,) = given("most", 10_000_000)
    for what, budget, rows in CASES:
        key = {"what": what, "B": budget, "rows": rows}
        if rows <= most:
            yield Case(key, functools.partial(measured, *key.values()))
