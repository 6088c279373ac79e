"""The Forgetron paper: Theorems 1 and 2, the counterexample, and Figure 2.

Dekel, Shalev-Shwartz and Singer (2005) bound the mistakes of the Perceptron without a
budget by `||g||^2 + 2 L` and those of the Forgetron by `2 ||g||^2 + 4 L`, where L is
the hinge loss of any function g, for the Forgetron with norm at most U.

`forgetron_bounds` has mistakes and bounds on unit vectors in four dimensions, with a
linear kernel and labels by a known direction with the given margins, some of them
flipped; the bounds are those of the best multiple of that direction in hindsight, at
every length of the stream. In the counterexample, always the unit vector that is
missing from the support set, every learner with B vectors errs in every round; the
separator has norm sqrt(B + 1).

`forgetron_figure2` has the error against the budget: the Forgetron and CKS (the
Perceptron of Crammer, Kandola and Singer, `RemoveLargestMargin`) once over
census-income, in several orders, and over the training images of MNIST, with the ten
digits split into halves. The kernel is the polynomial of degree five, here `((0.1 +
x.z) / 1.1)^5` on rows of length 1, so that `k(x, x) = 1`, as the theory requires. The
paper states neither its constant nor the scaling of rows; with 0.1 the Perceptron has
about as many vectors as in the paper. Numbers of census-income are standardised first,
and codes become flags. The remove-oldest Perceptron, which the paper does not have,
shows the cost of shrinking; the tighter budget Perceptron, which it names, shows how
CKS fares with noisy labels. For all budgets, a split of MNIST takes 75 seconds of
processor time, an order of census-income ten minutes; `splits` and `orders` are fields.
"""

import functools
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import jax
import jax.numpy as jnp
import numpy as np
from models import learned
from runner import Case, Row, Task, given, mean

import budgetjax as bj
from budgetjax import datasets

# Bounds.

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


def best(bound: Any, largest: float, margins: np.ndarray) -> list[float]:
    """The least bound of a multiple of the direction, after every number of rounds."""
    norms = np.linspace(0, largest, 200)[1:]
    losses = np.maximum(0, 1 - norms[:, None] * margins).cumsum(axis=1)
    return [min(map(bound, norms, losses[:, n - 1])) for n in LENGTHS]


def bounded(margin: float, turned: float) -> Row:
    """Mistakes and bounds along a stream."""
    X, y, margins = points(margin, turned)

    def mistakes(learner: bj.Learner, **shared: Any) -> list[int]:
        state = learner.init(bj.Linear(), num_features=X.shape[1], **shared)
        _, scores = bj.run(state, X, y)
        return np.cumsum(y * np.asarray(scores) <= 0)[np.array(LENGTHS) - 1].tolist()

    unbudgeted = {"budget": ROWS // 4, "maintenance": bj.Unbudgeted()}
    largest = bj.bounds.forgetron_norm(BUDGET)
    bound = functools.partial(bj.bounds.forgetron, budget=BUDGET)
    return {
        "Perceptron": mistakes(bj.Perceptron(), **unbudgeted),
        "Perceptron, bound": best(bj.bounds.perceptron, 10.0, margins),
        "Forgetron": mistakes(bj.Forgetron(), budget=BUDGET),
        "Forgetron, bound": best(bound, largest, margins),
    }


def counterexample() -> Row:
    """The mistakes of a Forgetron that always sees the vector it lacks."""
    units = jnp.eye(BUDGET + 1)

    def one(state, _):
        expansion = state.expansion
        held = jnp.max(jnp.where(expansion.mask[:, None], expansion.vectors, 0), axis=0)
        state = bj.step(state, units[jnp.argmin(held)], 1)
        return state, state.num_mistakes

    state = bj.Forgetron().init(bj.Linear(), num_features=BUDGET + 1, budget=BUDGET)
    _, found = jax.lax.scan(one, state, length=ROWS)
    return {"Forgetron": np.asarray(found)[np.array(LENGTHS) - 1].tolist()}


def draw_bounds(rows: list[Row], path: Path) -> None:
    """Mistakes, and their bounds dashed, against the rounds."""
    with drawing.panels(path, 4, size=(2.75, 3)) as (_, panels):
        for panel, row in zip(panels, rows, strict=True):
            for what, color in (("Perceptron", "#0072B2"), ("Forgetron", "#E69F00")):
                for name, dashes in ((what, "-"), (f"{what}, bound", "--")):
                    if name in row:
                        # Adds a fraction of a mistake for the logarithm of zero.
                        mistakes = np.array(row[name]) + 0.5
                        panel.plot(LENGTHS, mistakes, dashes, color=color, label=name)
            panel.sharey(panels[0])
            panel.set(xscale="log", yscale="log", title=row["stream"], xlabel="rounds")
        panels[0].set_ylabel("mistakes")
        panels[0].legend()


def streams() -> Iterator[Case]:
    """All streams, and the counterexample."""
    for name, shape in STREAMS.items():
        yield Case({"stream": name}, functools.partial(bounded, *shape))
    yield Case({"stream": "counterexample"}, counterexample)


# Figure 2.

BUDGETS = {
    "census_income_kdd": (500, 1000, 2000, 3000, 4000, 6000),
    "mnist": (100, 200, 400, 600, 1000, 1800),
}
TITLES = {"census_income_kdd": "census-income", "mnist": "MNIST, halves of the digits"}
# More than the Perceptron's mistakes on either stream.
UNBUDGETED = {"census_income_kdd": 20_000, "mnist": 8_000}
LEARNERS: dict[str, tuple[bj.Learner, dict[str, Any]]] = {
    "Forgetron": (bj.Forgetron(), {}),
    "CKS": (bj.Perceptron(), {"maintenance": bj.RemoveLargestMargin()}),
    "tighter": (bj.Perceptron(), {"maintenance": bj.RemoveFewestErrors()}),
    "remove oldest": (bj.Perceptron(), {"maintenance": bj.RemoveOldest()}),
    "Perceptron": (bj.Perceptron(), {"maintenance": bj.Unbudgeted()}),
}
# The column of census-income with the number of people that a row represents.
PEOPLE = 24


@functools.cache
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Training rows of length 1 and their labels."""
    data = datasets.load(name, standardise=False)
    X = data.X_train
    if name == "census_income_kdd":
        X = with_flags(data)
        # All columns except the flags of codes.
        numbers = np.any((X != 0) & (X != 1), axis=0)
        X[:, numbers] -= X[:, numbers].mean(axis=0)
        X[:, numbers] /= X[:, numbers].std(axis=0)
    return X / np.linalg.norm(X, axis=1, keepdims=True), data.y_train


def with_flags(data: datasets.Dataset) -> np.ndarray:
    """The training rows; every code of a nominal column becomes a column of 0 and 1."""
    path = Path(os.environ[datasets.FOLDER_VARIABLE]) / f"{data.name}.npz"
    with np.load(path) as file:
        nominal = file["is_nominal"]
    plain = ~nominal
    plain[PEOPLE] = False
    flags = [
        data.X_train[:, i, None] == np.unique([*data.X_train[:, i], *data.X_test[:, i]])
        for i in np.flatnonzero(nominal)
    ]
    return np.hstack([data.X_train[:, plain], *flags]).astype(np.float32)


# All ways to split ten digits into halves, by the half of the digit 0.
HALVES = [(0, *rest) for rest in itertools.combinations(range(1, 10), 4)]


@functools.cache
def splits(rows: int) -> list[int]:
    """The split of each run, drawn without replacement: all 126 in 126 runs."""
    chosen: list[int] = []
    for run in range(len(HALVES)):
        random = np.random.default_rng(run)
        random.permutation(rows)
        drawn = int(random.choice(len(HALVES)))
        left = [i for i in range(len(HALVES)) if i not in chosen]
        chosen.append(drawn if drawn in left else left[drawn % len(left)])
    return chosen


def mistakes(name: str, learner: str, budget: int, run: int) -> Row:
    """The mistakes of one pass, in the order of a run, of MNIST for its split."""
    X, y = rows_of(name)
    order = np.random.default_rng(run).permutation(len(y))
    if name == "mnist":
        y = np.where(np.isin(y, HALVES[splits(len(y))[run]]), 1, -1)
    X, y = jnp.asarray(X[order]), jnp.asarray(y[order])
    chosen, shared = LEARNERS[learner]
    kernel = bj.Polynomial(degree=5, gamma=1 / 1.1, coef0=0.1 / 1.1)
    state = chosen.init(kernel, num_features=X.shape[1], budget=budget, **shared)
    made = int(learned(state, X, y).num_mistakes)
    return {
        "error %": 100 * made / len(y),
        "mistakes": made,
        "majority's error %": 100 * float(np.mean(np.asarray(y) != np.median(y))),
    }


def draw_figure_2(rows: list[Row], path: Path) -> None:
    """Means of all runs against the budget."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["learner"], row["B"]), []).append(row)
    means = list(map(mean, groups.values()))
    names = {learner: learner for learner in LEARNERS if learner != "Perceptron"}
    with drawing.panels(path, 2, size=(4, 3.4)) as (_, panels):
        for panel, name in zip(panels, BUDGETS, strict=True):
            own = [row for row in means if row["data"] == name]
            drawing.plot(panel, own, "learner", "B", "error %", names=names)
            for row in own:
                if row["learner"] == "Perceptron":
                    panel.axhline(row["error %"], ls="--", color="0.3", lw=1)
                    panel.text(
                        *(0.98, 0.98 * row["error %"]),
                        f"Perceptron, {row['mistakes']:,.0f} vectors",
                        transform=panel.get_yaxis_transform(),
                        **{"ha": "right", "va": "top", "fontsize": 8},
                    )
            panel.set(title=TITLES[name], xlabel="budget B", ylim=(0, None))
        panels[0].set_ylabel("mistakes, %")
        panels[1].legend()


def runs() -> Iterator[Case]:
    """Runs of all sets, budgets and learners, the quickest first."""
    (splits,), (orders,) = given("splits", 26), given("orders", 4)
    counts = {"mnist": splits, "census_income_kdd": orders}
    for run in range(max(counts.values())):
        for name in counts:
            for learner in LEARNERS if run < counts[name] else ():
                whole = learner == "Perceptron"
                for budget in (UNBUDGETED[name],) if whole else BUDGETS[name]:
                    key = {"data": name, "learner": learner, "B": budget, "run": run}
                    yield Case(key, functools.partial(mistakes, *key.values()))


TASKS = {"bounds": Task(streams, draw_bounds), "figure2": Task(runs, draw_figure_2)}
