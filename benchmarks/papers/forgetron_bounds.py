"""Mistakes and bounds of the Forgetron paper: Theorems 1 and 2, the counterexample.

Dekel, Shalev-Shwartz and Singer (2005) bound the mistakes of the Perceptron without a
budget by `||g||^2 + 2 L` and those of the Forgetron by `2 ||g||^2 + 4 L`, where L is
the hinge loss of any function g, for the Forgetron with norm at most U. They also show
a stream on which every learner with B vectors errs in every round. Left: unit vectors
in four dimensions, a linear kernel, labels by a known direction with the given margins,
some of them flipped; the bounds are those of the best multiple of that direction in
hindsight, at every length of the stream. Right: always the unit vector that is missing
from the support set; the separator has norm sqrt(B + 1). It takes a minute.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib import pyplot
from runner import Case, Row

import budgetjax as bj

ROWS, BUDGET = 10_000, 100
# The least margin of the labels' direction, and the fraction of flipped labels.
STREAMS = {
    "margin 0.9": (0.9, 0.0),
    "margin 0.5": (0.5, 0.0),
    "5 % turned": (0.9, 0.05),
}
LENGTHS = tuple(int(n) for n in np.unique(np.geomspace(1, ROWS, 60).astype(int)))


def points(margin: float, turned: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points of length 1, their labels, and the margins of the direction."""
    random = np.random.default_rng(0)
    side = random.choice([-1, 1], ROWS)
    along = side * random.uniform(margin, 1, ROWS)
    across = random.normal(size=(ROWS, 3))
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    X = np.column_stack([along, across * np.sqrt(1 - along**2)[:, None]])
    y = np.where(random.random(ROWS) < turned, -side, side)
    return X, y, y * along


def mistakes(
    learner: bj.Learner, X: np.ndarray, y: np.ndarray, **shared: Any
) -> np.ndarray:
    """The mistakes after every round."""
    state = learner.init(bj.Linear(), num_features=X.shape[1], **shared)
    _, scores = bj.run(state, X, y)
    return np.cumsum(y * np.asarray(scores) <= 0)


def best(bound: Any, largest: float, margins: np.ndarray) -> list[float]:
    """The least bound of a multiple of the direction, after every number of rounds."""
    norms = np.linspace(0, largest, 200)[1:]
    losses = np.maximum(0, 1 - norms[:, None] * margins).cumsum(axis=1)
    return [
        min(
            bound(norm, loss)
            for norm, loss in zip(norms, losses[:, n - 1], strict=True)
        )
        for n in LENGTHS
    ]


def stream(margin: float, turned: float) -> dict[str, Any]:
    """Mistakes and bounds along a stream."""
    X, y, margins = points(margin, turned)
    unbudgeted = {"budget": ROWS // 4, "maintenance": bj.Unbudgeted()}
    perceptron = mistakes(bj.Perceptron(), X, y, **unbudgeted)
    forgetron = mistakes(bj.Forgetron(), X, y, budget=BUDGET)
    largest = bj.bounds.forgetron_norm(BUDGET)
    bound = functools.partial(bj.bounds.forgetron, budget=BUDGET)
    at = np.array(LENGTHS) - 1
    return {
        "Perceptron": perceptron[at].tolist(),
        "Perceptron, bound": best(bj.bounds.perceptron, 10.0, margins),
        "Forgetron": forgetron[at].tolist(),
        "Forgetron, bound": best(bound, largest, margins),
    }


def counterexample() -> dict[str, Any]:
    """The mistakes of a Forgetron that always sees the vector it lacks."""
    units = jnp.eye(BUDGET + 1)

    def one(state, _):
        expansion = state.expansion
        held = jnp.max(jnp.where(expansion.mask[:, None], expansion.vectors, 0), axis=0)
        absent = units[jnp.argmin(held)]
        state = bj.step(state, absent, 1)
        return state, state.num_mistakes

    state = bj.Forgetron().init(bj.Linear(), num_features=BUDGET + 1, budget=BUDGET)
    _, found = jax.lax.scan(one, state, length=ROWS)
    return {"Forgetron": np.asarray(found)[np.array(LENGTHS) - 1].tolist()}


def draw(rows: list[Row], path: Path) -> None:
    """The figure."""
    with matplotlib.rc_context(bj.plots.STYLE):
        figure, panels = pyplot.subplots(
            1, 4, figsize=(11, 3), sharex=True, sharey=True, layout="constrained"
        )
        for panel, row in zip(panels, rows, strict=True):
            for learner, color in zip(
                ("Perceptron", "Forgetron"), bj.plots.COLORS, strict=False
            ):
                for what, line in ((learner, "-"), (f"{learner}, bound", "--")):
                    if what in row:
                        # Adds a fraction of a mistake for the logarithm of zero.
                        panel.plot(
                            LENGTHS,
                            np.array(row[what]) + 0.5,
                            line,
                            color=color,
                            label=what,
                        )
            panel.set(xscale="log", yscale="log", title=row["stream"], xlabel="rounds")
        panels[0].set_ylabel("mistakes")
        panels[0].legend()
        figure.savefig(path)
        pyplot.close(figure)


def cases() -> Iterator[Case]:
    """All streams, and the counterexample."""
    for name, given in STREAMS.items():
        yield Case({"stream": name}, functools.partial(stream, *given))
    yield Case({"stream": "counterexample"}, counterexample)
