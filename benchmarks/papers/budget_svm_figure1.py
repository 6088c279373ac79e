"""Test error of SVMs on a budget, against the budget and the vectors kept.

    python benchmarks/papers budget_svm_figure1

Figure 1 of Dekel and Singer (2006): MNIST, its ten digits parted into two random
classes of five, 1,000 random training examples and 4,000 test examples, scaled to unit
norm on average; a Gaussian kernel of sigma 1; C = 10/B for "l1" and 10/sqrt(B) for
"l2". A classifier is trained for every budget B, all of them at once by `jax.vmap`, and
pruned to its s largest coefficients. The mean over problems of the test error is drawn
for all (B, s). The paper has 50 problems.
"""

import argparse
import functools
import json
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import measure
import numpy as np
from matplotlib.colors import LogNorm
from tqdm import tqdm

import budgetjax as bj
from budgetjax import datasets
from budgetjax.solvers.kernel.budget_svm import budget_svm

NORMS = ("l1", "l2")
TITLES = {"l1": "budget-L1-SVM", "l2": "budget-L2-SVM"}
TRAIN, TEST = 1000, 4000
KERNEL = bj.RBF(gamma=0.5)
RESULTS = measure.RESULTS / "papers"


# Steps of pairs, for each along a gradient.
PAIRS = 20


class Trained(NamedTuple):
    """Classifiers of all budgets."""

    coefficients: jax.Array
    bias: jax.Array
    primal: jax.Array
    dual: jax.Array


def problem(data: datasets.Dataset, seed: int):
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


@functools.partial(jax.jit, static_argnums=(4, 5))
def train(X, y, budgets, factor, norm: str, steps: int) -> Trained:
    """All budgets at once."""

    def one(budget):
        penalty = factor / (budget if norm == "l1" else jnp.sqrt(budget))
        state = budget_svm.init(
            X, y, kernel=KERNEL, budget=budget, penalty=penalty, norm=norm
        )
        state = jax.lax.fori_loop(
            jnp.int32(0),
            jnp.int32(steps * (PAIRS if norm == "l1" else 1)),
            lambda _, state: budget_svm.step(state, X, y),
            state,
        )
        # That of `budget_svm.model`, which cannot be traced.
        _, bias = state.norm.least(1 - state.responses, y)
        objective = budget_svm.objective(state, X, y)
        return Trained(y * state.coefficients, bias, *objective)

    return jax.vmap(one)(budgets)


@jax.jit
def errors(trained: Trained, gram, y_test, sizes):
    """Test errors of pruned models, one row per budget and one column per size."""
    order = jnp.argsort(-jnp.abs(trained.coefficients), axis=1, stable=True)
    ranks = jnp.argsort(order, axis=1, stable=True)

    def of_budget(given):
        coefficients, bias, ranks = given
        kept = jnp.where(ranks[:, None] < sizes, coefficients[:, None], 0)
        scores = jnp.matmul(gram, kept, precision="highest") + bias
        return jnp.mean((scores > 0) != (y_test[:, None] > 0), axis=0)

    return jax.lax.map(of_budget, (trained.coefficients, trained.bias, ranks))


def run(budgets, sizes, factor: float, problems: int, steps: int):
    """The mean error of each norm, and how it was reached.

    Vectors are counted whose coefficient is above a thousandth of the largest.
    """
    data = datasets.load("mnist")
    grid, factor_leaf = jnp.asarray(budgets, jnp.float32), jnp.float32(factor)
    found = {norm: [] for norm in NORMS}
    vectors = {norm: [] for norm in NORMS}
    gaps = {norm: [] for norm in NORMS}
    seconds = {norm: [] for norm in NORMS}
    compiled = {}
    jobs = [(seed, norm) for seed in range(problems) for norm in NORMS]
    for seed, norm in (progress := tqdm(jobs)):
        progress.set_description(f"problem {seed}, {norm}")
        X, y, X_test, y_test = (jnp.asarray(part) for part in problem(data, seed))
        if norm not in compiled:
            lowered = train.lower(X, y, grid, factor_leaf, norm, steps)
            compiled[norm] = lowered.compile()
        start = time.perf_counter()
        trained = jax.block_until_ready(compiled[norm](X, y, grid, factor_leaf))
        seconds[norm].append(time.perf_counter() - start)
        gram = KERNEL.gram(X_test, X)
        found[norm].append(errors(trained, gram, y_test, jnp.asarray(sizes)))
        gaps[norm].append((trained.primal - trained.dual) / trained.primal)
        alpha = np.abs(trained.coefficients)
        vectors[norm].append(np.sum(alpha > 1e-3 * alpha.max(1, keepdims=True), 1))
    return {
        norm: {
            "error": np.mean(found[norm], axis=0).round(6).tolist(),
            "vectors": np.mean(vectors[norm], axis=0).tolist(),
            "largest relative gap": float(np.max(gaps[norm])),
            "training seconds a problem": float(np.mean(seconds[norm])),
        }
        for norm in NORMS
    }


def draw(result, path: Path) -> None:
    """The error over (B, s), light where it is small."""
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    errors = [np.asarray(result["norms"][norm]["error"]) for norm in NORMS]
    low, high = 100 * min(map(np.min, errors)), 100 * max(map(np.max, errors))
    image = None
    for panel, norm, error in zip(panels, NORMS, errors, strict=True):
        image = panel.pcolormesh(
            result["budgets"],
            result["sizes"],
            100 * error.T,
            cmap="gray_r",
            norm=LogNorm(low, high),
        )
        panel.plot(
            result["budgets"], result["norms"][norm]["vectors"], ":", color="tab:red"
        )
        panel.set(title=TITLES[norm], xlabel="B", ylabel="s")
    assert image is not None
    ticks = [tick for tick in (5, 10, 20, 30, 50) if low <= tick <= high]
    bar = figure.colorbar(image, ax=panels, label="test error, %", ticks=ticks)
    bar.ax.set_yticklabels([str(tick) for tick in ticks])
    bar.ax.minorticks_off()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def show(result) -> None:
    """A few cells of the figure."""
    budgets, sizes = result["budgets"], result["sizes"]
    for norm in NORMS:
        own = result["norms"][norm]
        error = np.asarray(own["error"])
        gap, seconds = own["largest relative gap"], own["training seconds a problem"]
        print(f"{TITLES[norm]}: gap {gap:.1e}, {seconds:.1f} s a problem; error %")
        shown = [size for size in (20, 100, 200, 400, 600, 1000) if size in sizes]
        print("     B  vectors", *(f"s={size:<5d}" for size in shown))
        for row, budget in enumerate(budgets):
            if budget in (20, 100, 200, 400, 600, 800, 1000):
                cells = [100 * error[row, sizes.index(size)] for size in shown]
                line = " ".join(f"{cell:7.2f}" for cell in cells)
                print(f"{budget:6d} {own['vectors'][row]:8.0f} {line}")


def main():
    parser = argparse.ArgumentParser(description="Figure 1 of Dekel and Singer")
    parser.add_argument("--problems", type=int, default=10)
    parser.add_argument("--factor", type=float, default=10.0, help="C at B = 1")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--spacing", type=int, default=20)
    parser.add_argument(
        "--output", type=Path, default=RESULTS / "budget_svm_figure1.json"
    )
    arguments = parser.parse_args()
    budgets = list(range(arguments.spacing, TRAIN + 1, arguments.spacing))
    start = time.perf_counter()
    norms = run(budgets, budgets, arguments.factor, arguments.problems, arguments.steps)
    result = {
        "machine": measure.machine(),
        "problems": arguments.problems,
        "factor": arguments.factor,
        "steps": arguments.steps,
        "seconds": time.perf_counter() - start,
        "budgets": budgets,
        "sizes": budgets,
        "norms": norms,
    }
    show(result)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(result) + "\n")
    draw(result, arguments.output.with_suffix(".png"))
    print(arguments.output)


if __name__ == "__main__":
    main()
