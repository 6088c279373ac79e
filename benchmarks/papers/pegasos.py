"""Pegasos on a budget: Table 1, and Figures 1 to 3.

Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget": one pass, lambda
1e-4, features scaled to mean 0 and deviation 1, a Gaussian kernel whose gamma is chosen
for every cell and curve from 1, 4, 16 and 64 over d. The paper does not state on which
rows; here the last of the first 100,000 rows, for curves 20,000, are predicted.

`pegasos_table1` has maintenance by removal at random and of the smallest, by projection
and by merging, Projectron++, shared by all classes or per class as in the paper, and
Pegasos without a budget, where that is feasible. Figures are means over orders of the
rows or, for generated sets, over streams. The threshold of Projectron++ is the least
that a bisection finds with at most B vectors after the full set or after 200,000 rows,
beyond which B is a limit. A fifth of covertype is for testing. Rows per second include
compilation. USPS and letter take a minute or two per order, the others up to half an
hour.

`pegasos_figures` has accuracy and time along streams of the checkerboard and waveform,
also of AROW, which is not in the paper. Each curve is one stream. Without a budget,
gamma is that of merging, the support set doubles where the next piece might not fit,
and the stream ends after the paper's number of rows, or `unbudgeted=ROWS`. Seconds are
without compilation. It takes some ten minutes on a busy core.
"""

import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import drawing
import jax
import jax.numpy as jnp
import numpy as np
from models import accuracy_of, empty, learned
from runner import Case, Row, Task, given
from timing import spent

import budgetjax as bj
from budgetjax import datasets

DATA = ("usps", "letter", "checkerboard", "waveform", "covtype")
ROWS = {"checkerboard": 10_000_000, "waveform": 2_000_000}
WIDTHS = (1.0, 4.0, 16.0, 64.0)
PEGASOS = bj.Pegasos(regularization=1e-4)
MAINTENANCE: dict[str, bj.Maintenance] = {
    "merge": bj.Merge(),
    "project": bj.Project(),
    "smallest": bj.RemoveSmallest(),
    "random": bj.RemoveRandom(),
    "unbudgeted": bj.Unbudgeted(),
}


def choose_width(
    learn: Callable[..., Any], X: Any, y: Any, held: int, widths: Any = WIDTHS
) -> float:
    """The width with the best accuracy on the last rows after a pass over the others.

    `learn(width, X, y)` returns a model.
    """
    cut = len(y) - held

    def right(width: float) -> float:
        return accuracy_of(learn(width, X[:cut], y[:cut]), X[cut:], y[cut:])

    return max(widths, key=right) if len(widths) > 1 else widths[0]


# Table 1.

TEST_ROWS = 50_000
# Rows on which the width is chosen, and the maximum number of them that are predicted.
CHOICE, HELD_OUT = 100_000, 5000
UNBUDGETED = ("usps", "letter")
PER_CLASS = "Projectron++ per class"
METHODS = ("merge", "project", "smallest", "random", "Projectron++", PER_CLASS)
# Logarithms of the thresholds of Projectron++, and the numbers of bisections: per class
# thresholds are near 1. No vector is farther than 1 from any span, and the first of a
# class is that far.
THRESHOLDS, HALVINGS, THRESHOLD_ROWS = (-2.0, 0.2), {False: 7, True: 12}, 200_000
FARTHEST = 1 - 1e-6
# Rows between looks at the number of vectors.
PIECE = 2500
# The paper's accuracies: unbudgeted; then by budget, in the order of METHODS.
PAPER = {
    "usps": (94.2, (92.0, 90.5, 78.6, 78.3, 81.1), (93.9, 92.4, 89.4, 88.5, 92.0)),
    "letter": (95.7, (72.0, 76.3, 41.7, 39.9, 46.3), (89.5, 87.3, 68.5, 68.1, 76.6)),
    "covtype": (81.1, (72.0, 70.1, 57.5, 58.1, 62.5), (76.8, 74.9, 62.3, 61.6, 67.3)),
    "waveform": (86.1, (85.9, 85.0, 79.1, 79.1, 80.7), (86.9, 86.1, 82.9, 82.7, 83.5)),
    "checkerboard": (
        99.2, (99.5, 98.2, 83.9, 83.6, 96.9), (99.8, 99.0, 90.9, 90.3, 98.2)
    ),
}  # fmt: skip


@functools.lru_cache(3)
def parts(name: str, seed: int) -> tuple[Any, Any, Any, Any, int]:
    """Training rows and labels in a seed's order, test rows, and the classes."""
    if name not in ROWS:
        data = datasets.load(name)
        order = np.random.default_rng(seed).permutation(len(data.y_train))
        train = data.X_train[order], data.y_train[order]
        return *train, data.X_test, data.y_test, data.num_classes
    generate = getattr(datasets, name)
    X, y = generate(ROWS[name], seed=seed)
    X_test, y_test = generate(TEST_ROWS, seed=1000 + seed)
    mean, deviation = X[:CHOICE].mean(axis=0), X[:CHOICE].std(axis=0)
    X -= mean
    X /= deviation
    return X, y, (X_test - mean) / deviation, y_test, len(np.unique(y[:CHOICE]))


def projectron(width: float, X: Any, y: Any, same_class: bool, **shape: int) -> Any:
    """Projectron++ with the least threshold that keeps at most `budget` vectors."""
    budget = shape.pop("budget")

    def run(power: float, rows: int, more: int) -> Any:
        threshold = min(10**power, FARTHEST)
        learner = bj.Projectron(
            threshold=threshold, margin_updates=True, same_class=same_class
        )
        state = empty(learner, X, budget + more, width / X.shape[1], **shape)
        step = PIECE if more else rows
        for at in range(0, rows, step):
            piece = slice(at, min(at + step, rows))
            state = learned(state, X[piece], y[piece])
            if int(state.expansion.num_active) > budget:
                break  # The threshold is too small.
        return state

    low, high = THRESHOLDS
    for _ in range(HALVINGS[same_class]):
        middle = (low + high) / 2
        found = run(middle, min(THRESHOLD_ROWS, len(y)), 1).expansion.num_active
        low, high = (middle, high) if int(found) > budget else (low, middle)
    return run(high, len(y), 0)


def cell(
    name: str, budget: int, method: str, orders: int | None, widths: list[float]
) -> Row:
    """One cell of the table."""
    orders = orders or (3 if name in UNBUDGETED else 1)
    X, y, *_, classes = parts(name, 0)
    rows = min(CHOICE, len(y))
    size = budget or len(y)

    def learn(width: float, X: Any, y: Any, seed: int = 0, budget: int = size) -> Any:
        shape: dict[str, Any] = {"num_classes": classes, "budget": budget}
        if method not in MAINTENANCE:
            return projectron(width, X, y, method == PER_CLASS, **shape)
        shape |= {"maintenance": MAINTENANCE[method], "seed": seed}
        return learned(empty(PEGASOS, X, gamma=width / X.shape[1], **shape), X, y)

    few = functools.partial(learn, budget=min(size, rows))
    held = min(HELD_OUT, rows // 5)
    width = choose_width(few, X[:rows], y[:rows], held, widths)
    found, seconds, vectors = [], 0.0, 0
    for seed in range(orders):
        X, y, X_test, y_test, _ = parts(name, seed)
        X, y = jnp.asarray(X), jnp.asarray(y)
        run = functools.partial(learn, width, X, y, seed)
        model, more = spent(run, time.perf_counter)
        seconds += more
        found.append(accuracy_of(model, X_test, y_test))
        vectors = int(model.expansion.num_active)
    return {
        "accuracy %": float(np.mean(found)),
        "deviation": float(np.std(found)),
        "paper": theirs(name, budget, method),
        "gamma d": width,
        "vectors": vectors,
        "orders": orders,
        "rows": len(y),
        "rows/s": orders * len(y) / seconds,
    }


def theirs(name: str, budget: int, method: str) -> float:
    """The paper's accuracy; its Projectron++ is per class."""
    unbudgeted, small, large = PAPER[name]
    if method == "unbudgeted":
        return unbudgeted
    place = min(METHODS.index(method), len(small) - 1)
    return {100: small, 500: large}[budget][place]


def cells() -> Iterator[Case]:
    """All cells; two classes share all vectors, and long streams need a budget."""
    (orders,), widths = given("orders", None), given("widths", *WIDTHS)
    for name in DATA:
        every = [(budget, method) for budget in (100, 500) for method in METHODS]
        if name == "checkerboard":
            every = [one for one in every if one[1] != PER_CLASS]
        every += [(0, "unbudgeted")] if name in UNBUDGETED else []
        for budget, method in every:
            key = {"data": name, "B": budget, "method": method}
            yield Case(key, functools.partial(cell, *key.values(), orders, widths))


# Figures 1 to 3.

CURVES = ("merge", "random", "smallest", "AROW", "unbudgeted", "project")
CLASSES = {"checkerboard": 2, "waveform": 3}
# Rows that are tested, those that choose the width, and the latter's last ones.
TESTED, CHOOSING, LAST = 20_000, 20_000, 5000
# Rows of the paper's runs without a budget, which ended after 3,000 seconds.
ENDS = {"checkerboard": 540_000, "waveform": 140_000}
# Numbers of rows at which accuracy is measured; between two, all calls have equally
# many rows.
FIRST, STOPS = 1000, (1, 2, 5)


@functools.cache
def stream(name: str, rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of mean 0 and deviation 1, and labels."""
    generate = getattr(datasets, name)
    X, y = generate(rows, seed=seed)
    first, _ = generate(CHOOSING, seed=0)
    return (X - first.mean(axis=0)) / first.std(axis=0), y


def start(name: str, method: str, budget: int, width: float, X: Any) -> Any:
    """The first state."""
    more: dict[str, Any] = {"num_classes": CLASSES[name]}
    if method != "AROW":
        more["maintenance"] = MAINTENANCE[method]
    learner = bj.AROW() if method == "AROW" else PEGASOS
    return empty(learner, X, budget, width / X.shape[1], **more)


@functools.cache
def width_of(name: str, method: str, budget: int, rows: int) -> float:
    """The best width on the first rows of the stream."""
    X, y = (part[:CHOOSING] for part in stream(name, rows, 0))

    def learn(width: float, X: Any, y: Any) -> Any:
        return learned(start(name, method, budget, width, X), X, y)

    return choose_width(learn, X, y, min(LAST, len(y) // 4))


def grown(state: Any, larger: Any) -> Any:
    """The state in the shapes of an empty one with more slots."""

    def fit(old: jax.Array, new: jax.Array) -> jax.Array:
        # The last row is spare.
        return old if old.shape == new.shape else new.at[: len(old) - 1].set(old[:-1])

    expansion = jax.tree.map(fit, state.expansion, larger.expansion)
    expansion = expansion._replace(budget=larger.expansion.budget)
    return state._replace(expansion=expansion)


def curve(
    name: str, method: str, budget: int, rows: int, unbudgeted: int | None
) -> Row:
    """Accuracies and seconds after each number of rows."""
    X, y = stream(name, rows, 0)
    test, whole = stream(name, TESTED, 1), method == "unbudgeted"
    width = width_of(name, *(("merge", 100) if whole else (method, budget)), rows)
    if whole:
        rows, budget = min(rows, unbudgeted or ENDS[name]), 2 * FIRST
    state = start(name, method, budget, width, X)
    points: list[tuple[Any, ...]] = []
    wall, processor, compiled = 0.0, 0.0, None
    at, piece = 0, FIRST
    while at + piece <= rows:
        while whole and budget < int(state.expansion.num_active) + piece:
            budget *= 2
            state = grown(state, start(name, method, budget, width, X))
        part = jnp.asarray(X[at : at + piece]), jnp.asarray(y[at : at + piece])
        if compiled != (piece, budget):
            jax.block_until_ready(learned(state, *part))
            compiled = piece, budget
        begin = time.perf_counter(), time.process_time()
        state = learned(state, *part)
        jax.block_until_ready(state.expansion)
        wall += time.perf_counter() - begin[0]
        processor += time.process_time() - begin[1]
        at += piece
        if at / 10 ** (len(str(at)) - 1) in STOPS or at + piece > rows:
            points.append((at, accuracy_of(state, *test), wall, processor))
        # Without a budget, slots for a longer piece would wait in vain.
        if at == 10 * piece and (not whole or piece == FIRST):
            piece *= 10
    lengths, accuracies, seconds, of_processor = zip(*points, strict=True)
    return {
        "gamma d": width,
        "vectors": int(state.expansion.num_active),
        "lengths": lengths,
        "accuracies, %": accuracies,
        "seconds": seconds,
        "processor seconds": of_processor,
        "rows/s": at / wall,
    }


def draw(rows: list[Row], path: Path) -> None:
    """Accuracies of both streams, and the time on waveform."""
    names = dict(zip(CURVES, CURVES, strict=True))
    with drawing.panels(path, 3) as (_, panels):
        for panel, name in zip(panels, ROWS, strict=False):
            own = [row for row in rows if (row["data"], row["B"]) == (name, 100)]
            drawing.plot(
                *(panel, own, "method", "lengths", "accuracies, %"), names=names
            )
            panel.set(title=f"{name}, B = 100", ylabel="test accuracy, %")
        for budget, dashes in {100: "-", 500: "--"}.items():
            own = [r for r in rows if (r["data"], r["B"]) == ("waveform", budget)]
            drawing.plot(
                *(panels[2], own, "method", "lengths", "seconds"),
                names=names,
                linestyle=dashes,
            )
        title = "waveform, B = 100 and 500 (dashed)"
        panels[2].set(title=title, ylabel="seconds", yscale="log")
        for panel in panels:
            panel.set(xscale="log", xlabel="rows")
            panel.grid()
        panels[0].legend(loc="center right", bbox_to_anchor=(1, 0.55), ncols=2)


def curves() -> Iterator[Case]:
    """All streams and strategies; Figure 3 has two of them with both budgets."""
    (most,), (unbudgeted,) = given("stream", 10_000_000), given("unbudgeted", None)
    for name in ROWS:
        for method in CURVES:
            large = name == "waveform" and method in ("merge", "project")
            for budget in (100, 500) if large else (100,):
                rows = min(most, ROWS[name])
                key = {"data": name, "method": method, "B": budget, "stream": rows}
                yield Case(key, functools.partial(curve, *key.values(), unbudgeted))


TASKS = {"table1": Task(cells), "figures": Task(curves, draw)}
