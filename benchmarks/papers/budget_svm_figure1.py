"""Test error of SVMs on a budget, against the budget and the vectors kept.

Figure 1 of Dekel and Singer (2006): MNIST with its ten digits split into two random
classes of five, 1,000 random training examples and 4,000 test examples, scaled only to
unit norm on average; a Gaussian kernel with sigma 1; C = 10/B for the norm "l1" and
10/sqrt(B) for "l2"; B and s = 20, 40, ..., 1000; means over 50 problems. For every
budget B, SMO steps on pairs solve the dual problem and stop after a fixed number; the s
largest coefficients are kept, and the bias is found again. The paper does not state the
number of steps. Here it depends on the budget, B/4 to 4 B, and all are shown. The paper
does not state either how pairs and the bias are chosen: here a pair has the largest
gain among those of four first examples and any other, as in `budgetjax.BudgetSVM`, and
the bias has the fewest training errors, as in `budgetjax.prune`. Where s = B and where
nothing is pruned, the bias with the least value of the problem is shown too. `refit` is
the error of `budgetjax.refit` on the B kept vectors.

`budgetjax.BudgetSVM` makes steps on pairs for "l1" only; those for "l2", with the
interval of equation (13), are here. A problem takes some 15 seconds on one core.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawing
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.colors import LogNorm
from runner import Case, Row, given, oldest

import budgetjax as bj
from budgetjax import datasets

NORMS = {"l1": bj.norms.OneInfinity, "l2": bj.norms.TwoInfinity}
TITLES = {"l1": "budget-L1-SVM", "l2": "budget-L2-SVM"}
TRAIN, TEST = 1000, 4000
KERNEL = bj.RBF(gamma=0.5)
FACTOR = 10.0
# Steps on pairs, in multiples of the budget.
STEPS = (0.25, 0.5, 1, 2, 4)
# Numbers of steps and budgets for which a refit also runs.
REFIT_STEPS, REFIT_BUDGETS = 1, (20, 100, 200, 400)
# Problems per row of the results.
GROUP = 25
# The budgets of the figure, which are also the numbers of kept vectors.
BUDGETS = list(range(20, TRAIN + 1, 20))


def problem(data: datasets.Dataset, seed: int) -> tuple[np.ndarray, ...]:
    """Two random classes of five digits each, and random examples."""
    random = np.random.default_rng(seed)
    positive = random.permutation(10)[:5]
    train = random.choice(len(data.y_train), TRAIN, replace=False)
    test = random.choice(len(data.y_test), TEST, replace=False)
    X, X_test = data.X_train[train], data.X_test[test]
    scale = np.float32(np.mean(np.linalg.norm(X, axis=1)))
    y, y_test = (
        np.where(np.isin(labels, positive), 1, -1).astype(np.float32)
        for labels in (data.y_train[train], data.y_test[test])
    )
    return X / scale, y, X_test / scale, y_test


def pair_step(Q, y, norm: str, budget, penalty, state):
    """The pair with the largest gain, moved as far as equations (9) to (13) allow."""
    alpha, responses = state
    diagonal, slopes = jnp.diag(Q), 1 - responses
    ball = jnp.inf
    most = penalty * (budget if norm == "l1" else jnp.sqrt(budget))
    if norm == "l2":
        ball = (jnp.sum(alpha**2) - penalty**2) / 2
    room = jnp.maximum(most - jnp.sum(alpha), 0) / 2
    up = jnp.where(alpha < penalty, slopes, -jnp.inf)
    down = jnp.where(alpha > 0, -slopes, -jnp.inf)
    ways = jnp.stack(
        [jnp.where(y == sign, way, -jnp.inf) for way in (up, down) for sign in (1, -1)]
    )
    firsts, movable = jnp.argmax(ways, axis=1), jnp.max(ways, axis=1) > -jnp.inf

    def best_partner(first, movable):
        same, here = y * y[first], alpha[first]
        kin = same > 0
        least = jnp.maximum(-here, jnp.where(kin, alpha - penalty, -alpha))
        end = jnp.where(kin, alpha, jnp.minimum(penalty - alpha, room))
        end = jnp.minimum(penalty - here, end)
        if norm == "l2":
            middle = here - same * alpha
            root = jnp.sqrt(jnp.maximum(middle**2 - 4 * ball, 0))
            least = jnp.maximum(least, (-middle - root) / 2)
            end = jnp.minimum(end, (-middle + root) / 2)
        slope = slopes[first] - same * slopes
        curvature = diagonal[first] + diagonal - 2 * same * Q[first]
        curvature = jnp.maximum(curvature, 1e-7)
        change = jnp.clip(slope / curvature, least, end)
        gain = change * (slope - curvature * change / 2)
        other = jnp.arange(len(y)) != first
        gain = jnp.where(movable & other, gain, -jnp.inf)
        second = jnp.argmax(gain)
        return second, change[second], gain[second]

    seconds, changes, gains = jax.vmap(best_partner)(firsts, movable)
    best = jnp.argmax(gains)
    first, second = firsts[best], seconds[best]
    change = jnp.where(gains[best] > 0, changes[best], 0)
    reaction = -y[first] * y[second] * change
    alpha = alpha.at[first].add(change).at[second].add(reaction)
    return alpha, responses + change * Q[first] + reaction * Q[second]


@functools.partial(jax.jit, static_argnums=0)
def train(norm: str, gram, y, budgets):
    """The coefficients after each number of steps, shape (budgets, steps, n)."""
    Q = gram * y[:, None] * y

    def one(budget):
        penalty = FACTOR / (budget if norm == "l1" else jnp.sqrt(budget))
        state, done = (jnp.zeros_like(y), jnp.zeros_like(y)), jnp.int32(0)
        found = []
        for steps in STEPS:
            end = jnp.ceil(steps * budget).astype(jnp.int32)
            state = jax.lax.fori_loop(
                done,
                end,
                lambda _, state: pair_step(Q, y, norm, budget, penalty, state),
                state,
            )
            done = end
            found.append(state[0])
        return jnp.stack(found)

    return jax.lax.map(one, budgets)


def fewest(scores, y):
    """`models.best_shift` for every column."""
    order = jnp.argsort(scores, axis=0)
    scores, signs = jnp.take_along_axis(scores, order, axis=0), y[order]
    low = jnp.cumsum(signs > 0, axis=0)
    high = jnp.sum(signs < 0, axis=0) - jnp.cumsum(signs < 0, axis=0)
    best = jnp.argmin((low + high)[:-1], axis=0)[None]
    return -sum(
        jnp.take_along_axis(scores, best + i, axis=0)[0] for i in (0, 1)
    ) / 2  # fmt: skip


@functools.partial(jax.jit, static_argnums=0)
def errors(norm: str, gram, y, test, y_test, budget, alpha, sizes):
    """Test errors by size; for s = B and all vectors also with the least-value bias."""
    order = jnp.argsort(-alpha, stable=True)
    ranks = jnp.argsort(order)

    def wrong(scores):
        return jnp.mean((scores > 0) != (y_test[:, None] > 0), axis=0)

    def kept(sizes):
        coefficients = jnp.where(ranks[:, None] < sizes, (alpha * y)[:, None], 0)
        return gram @ coefficients, test @ coefficients

    scores, test_scores = kept(sizes)
    found = wrong(test_scores + fewest(scores, y))
    scores, test_scores = kept(jnp.stack([budget, jnp.float32(TRAIN)]))
    least = NORMS[norm](budget).least
    biases = [least(1 - y * column, y)[1] for column in scores.T]
    return found, wrong(test_scores + jnp.stack(biases))


def refitted(parts, y, alpha, budget: int) -> float:
    """The test error after a refit of the vectors with the largest coefficients."""
    X, _, X_test, y_test = parts
    kept = np.argsort(-alpha, kind="stable")[:budget]
    kept = kept[alpha[kept] > 0]
    bias = jnp.zeros((), jnp.float32)
    model = bj.KernelModel(KERNEL, X[kept], (alpha * y)[kept], bias)
    predicted = bj.predict(bj.refit(model, X, y.astype(int)), X_test)
    return float(np.mean(np.asarray(predicted) != y_test))


def measured(norm: str, first: int, number: int) -> Row:
    """Means over several problems; errors in units of 1/10,000."""
    data = datasets.load("mnist", standardise=False)
    grid = jnp.asarray(BUDGETS, jnp.float32)
    found: dict[str, list[Any]] = {"pruned": [], "least": [], "vectors": [], "anew": []}
    for seed in range(first, first + number):
        parts = X, y, X_test, y_test = tuple(map(jnp.asarray, problem(data, seed)))
        gram, test = KERNEL.gram(X, X), KERNEL.gram(X_test, X)
        alphas = train(norm, gram, y, grid)
        cells = [
            [errors(norm, gram, y, test, y_test, budget, alpha, grid) for alpha in each]
            for budget, each in zip(grid, alphas, strict=True)
        ]
        for i, name in enumerate(("pruned", "least")):
            found[name].append([[np.asarray(one[i]) for one in row] for row in cells])
        found["vectors"].append(np.sum(np.asarray(alphas) > 0, axis=-1))
        last, labels = np.asarray(alphas[:, STEPS.index(REFIT_STEPS)]), np.asarray(y)
        found["anew"].append(
            [refitted(parts, labels, last[BUDGETS.index(b)], b) for b in REFIT_BUDGETS]
        )

    def mean(name: str, scale: int = 10_000) -> Any:
        return np.rint(scale * np.mean(found[name], axis=0)).astype(int).tolist()

    return {
        "problems": number,
        "error": mean("pruned"),
        "error, bias of least value, s = B and all": mean("least"),
        "vectors": mean("vectors", 1),
        "refit": mean("anew"),
    }


def together(rows: list[Row], norm: str, key: str) -> np.ndarray:
    """The mean over all problems; errors are in percent."""
    own = [row for row in rows if row["norm"] == norm]
    weights = [row["problems"] for row in own]
    mean = np.average([np.array(row[key]) for row in own], axis=0, weights=weights)
    return mean if key == "vectors" else mean / 100


def draw(rows: list[Row], path: Path) -> None:
    """The error over (B, s); light cells have small errors."""
    ticks = [5, 10, 20, 30, 50]
    with drawing.panels(path, len(STEPS), len(NORMS), (2.6, 2.9)) as (figure, panels):
        image: Any = None
        for line, norm in enumerate(NORMS):
            own = panels[line * len(STEPS) :]
            error, vectors = (together(rows, norm, key) for key in ("error", "vectors"))
            for i, (panel, steps) in enumerate(zip(own, STEPS, strict=False)):
                image = panel.pcolormesh(
                    *(BUDGETS, BUDGETS, error[:, i].T),
                    **{"cmap": "gray_r", "norm": LogNorm(5, 50), "rasterized": True},
                )
                panel.plot(BUDGETS, vectors[:, i], ":", color="tab:red")
                title = f"{TITLES[norm]}, {steps} B steps"
                panel.set(ylim=(20, TRAIN), title=title, xlabel="B")
                panel.label_outer()
            own[0].set_ylabel("s, vectors kept")
        bar = figure.colorbar(image, ax=panels, label="test error, %", ticks=ticks)
        bar.ax.set_yticklabels([str(tick) for tick in ticks])
        bar.ax.minorticks_off()


def cases() -> Iterator[Case]:
    """Groups of problems, for both norms."""
    (problems,) = given("number", 50)
    for first in range(0, problems, GROUP):
        for norm in NORMS:
            key = {"norm": norm, "first problem": first}
            number = min(GROUP, problems - first)
            yield Case(key, functools.partial(measured, norm, first, number))


def summarise(rows: list[Row]) -> Iterator[Row]:
    """The cells s = B, the corners, and the refits, as they are shown."""
    names, hundred = ("B/4", "B/2", "B", "2 B", "4 B"), BUDGETS.index(100)
    about = oldest(rows)
    for norm in dict.fromkeys(row["norm"] for row in rows):
        error, vectors = (together(rows, norm, key) for key in ("error", "vectors"))
        for i, steps in enumerate(names):
            corner, least = error[-1, i, -1], error[:, i].min(axis=0)
            size = BUDGETS[np.argmax(least <= corner)]
            whole = f"{error[hundred, i, -1]:.1f} ({vectors[hundred, i]:.0f})"
            shown = {
                f"s = B = {BUDGETS[at]}": f"{error[at, i, at]:.1f}"
                for at in map(BUDGETS.index, (100, 200, 400))
            }
            shown |= {
                "B = 100, not pruned (its vectors)": whole,
                "B = 1,000, not pruned": f"{corner:.1f} ({vectors[-1, i]:.0f})",
                "s of any B that errs no more": str(size),
                "lowest over all B and s": f"{least.min():.1f}",
            }
            for what, text in shown.items():
                key = {"norm": norm, "what": what, "steps": steps}
                yield key | {"shown": text} | about
        refits = together(rows, norm, "refit")
        for budget, value in zip(REFIT_BUDGETS, refits.tolist(), strict=True):
            yield {"norm": norm, "B": budget, "refit": value} | about
