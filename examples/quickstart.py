"""Compares four budgeted learners on one stream, in a table and a figure.

    python examples/quickstart.py
    python examples/quickstart.py --data checkerboard --budget 20 100

Every learner sees the same examples in the same order, through the same kernel. The
stream is fed in equal chunks, each in one compiled call of `budgetjax.run`, so that a
bar can show the progress. A multi-class Forgetron has one binary model per class, and
`jax.vmap` runs them all at once.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import budgetjax as bj
from budgetjax import datasets, plots

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from tqdm import tqdm
except ImportError as error:
    raise SystemExit(f'quickstart: {error}; pip install ".[examples]"') from error

# Data set: (gamma of the Gaussian kernel, regularization of Pegasos), for standardised
# features, after a few trials at B = 100. Other sets use 1 / num_features and 1e-4.
DEFAULTS = {
    "a9a": (0.016, 1e-3),
    "banana": (1.0, 1e-3),
    "checkerboard": (8.0, 1e-4),
    "covtype": (0.016, 1e-3),
    "digits": (0.05, 1e-3),
    "electricity": (0.1, 1e-4),
    "ijcnn1": (0.06, 1e-4),
    "letter": (0.06, 1e-4),
    "mnist": (0.004, 1e-4),
    "phishing": (0.016, 1e-4),
    "usps": (0.004, 1e-3),
    "waveform": (0.06, 1e-3),
}
NUM_CHUNKS = 20


class Learner(NamedTuple):
    """A learner in this comparison.

    Attributes:
      name: the name in the table and the figure.
      init: `init(budget)`, an empty model.
      run: `run(state, X, y)`, the state after the examples and their scores.
      predict: `predict(state, X)`, labels.
      num_models: the number of models with that budget in the learner.
    """

    name: str
    init: Callable[[int], Any]
    run: Callable[[Any, jax.Array, jax.Array], tuple[Any, jax.Array]]
    predict: Callable[[Any, jax.Array], jax.Array]
    num_models: int


class Result(NamedTuple):
    """The result of a learner with a budget."""

    learner: Learner
    budget: int
    state: Any
    curve: Any  # of `budgetjax.plots.progressive_error`
    accuracy: float
    speed: float  # examples per second


def forgetron(kernel: bj.Kernel, num_features: int, num_classes: int) -> Learner:
    """The Forgetron; for more than two classes one model per class, by `vmap`."""

    def init(budget):
        return bj.Forgetron().init(kernel, num_features=num_features, budget=budget)

    if num_classes == 2:
        return Learner("Forgetron", init, bj.run, bj.predict, 1)

    classes = jnp.arange(num_classes)
    run_all = jax.jit(jax.vmap(bj.run, in_axes=(0, None, 0)))
    score_all = jax.jit(jax.vmap(bj.decision_function, in_axes=(0, None)))

    def run(states, X, y):
        own_class = jnp.where(classes[:, None] == y[None], 1, -1)
        states, scores = run_all(states, X, own_class)
        return states, scores.T

    return Learner(
        "Forgetron, one-vs-rest",
        lambda budget: jax.vmap(lambda _: init(budget))(classes),
        run,
        lambda states, X: jnp.argmax(score_all(states, X), axis=0),
        num_classes,
    )


def pegasos(
    kernel: bj.Kernel, num_features: int, num_classes: int, lam: float, seed: int
) -> list[Learner]:
    """Pegasos with three maintenance strategies."""

    def learner(name, maintenance):
        def init(budget):
            return bj.Pegasos(regularization=lam).init(
                kernel,
                num_features=num_features,
                num_classes=num_classes,
                budget=budget,
                maintenance=maintenance,
                seed=seed,
            )

        return Learner(name, init, bj.run, bj.predict, 1)

    return [
        learner("Pegasos, remove smallest", bj.RemoveSmallest()),
        learner("Pegasos, remove random", bj.RemoveRandom()),
        learner("Pegasos, merge", bj.Merge()),
    ]


def num_vectors(state: Any) -> int:
    """The number of active support vectors of a state or of stacked states."""
    return int(state.expansion.num_active.sum())


def chunks(num_rows: int) -> list[slice]:
    """The stream in about 20 equal parts; the rest forms a shorter last one."""
    parts = range(NUM_CHUNKS, 2 * NUM_CHUNKS)
    even = next((k for k in parts if num_rows % k == 0), NUM_CHUNKS)
    size = max(num_rows // even, 1)
    return [slice(i, min(i + size, num_rows)) for i in range(0, num_rows, size)]


def train(
    learner: Learner, budget: int, X: jax.Array, y: jax.Array, data: datasets.Dataset
) -> Result:
    """Feeds the stream to one learner, with a progress bar, and tests it."""
    state = learner.init(budget)
    parts = chunks(len(y))
    # Compiles every length of chunk once, before the clock starts.
    for part in {part.stop - part.start: part for part in parts}.values():
        jax.block_until_ready(learner.run(state, X[part], y[part]))

    found, curve, seconds = [], None, 0.0
    with tqdm(total=len(y), desc=f"{learner.name:24} B={budget:<4}", unit="ex") as bar:
        for part in parts:
            start = time.perf_counter()
            state, scores = jax.block_until_ready(learner.run(state, X[part], y[part]))
            seconds += time.perf_counter() - start
            found.append(np.asarray(scores))
            seen = np.concatenate(found)
            curve = plots.progressive_error(seen, y[: len(seen)])
            bar.set_postfix(
                error=f"{curve[1][-1]:.1%}",
                vectors=num_vectors(state),
                refresh=False,
            )
            bar.update(part.stop - part.start)
    predicted = np.asarray(learner.predict(state, jnp.asarray(data.X_test)))
    return Result(
        learner,
        budget,
        state,
        curve,
        float(np.mean(predicted == data.y_test)),
        len(y) / seconds,
    )


def table(results: Sequence[Result]) -> str:
    """The table of results: one row per learner and budget."""
    header = ("learner", "budget", "vectors", "mistakes", "test accuracy", "examples/s")
    rows: list[tuple[str, ...]] = [header]
    for result in results:
        models = result.learner.num_models
        seen, error = (of[-1] for of in result.curve)
        rows.append(
            (
                result.learner.name,
                f"{result.budget}" if models == 1 else f"{models} x {result.budget}",
                f"{num_vectors(result.state):,}",
                f"{round(error * seen):,} ({error:.1%})",
                f"{result.accuracy:.1%}",
                f"{float(f'{result.speed:.2g}'):,.0f}",
            )
        )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        f"{row[0]:<{widths[0]}}  "
        + "  ".join(
            f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)
        )
        for row in rows
    ]
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def figure(results: Sequence[Result], data: datasets.Dataset, path: str) -> None:
    """Progressive error, one panel per budget; for binary 2-d data two models below."""
    budgets = sorted({result.budget for result in results})
    planar = data.X_train.shape[1] == 2 and data.num_classes == 2
    with rc_context(plots.STYLE):
        fig = Figure(figsize=(7.4, 6.6 if planar else 3.1), layout="constrained")
        # The number of columns aligns the panels of both rows.
        heights = (1, 1.85) if planar else (1,)
        grid = fig.add_gridspec(len(heights), 2 * len(budgets), height_ratios=heights)
        panels: list[Any] = []
        for i, budget in enumerate(budgets):
            share = panels[0] if panels else None
            panel = fig.add_subplot(grid[0, 2 * i : 2 * i + 2], sharey=share)
            curves = {r.learner.name: r.curve for r in results if r.budget == budget}
            plots.learning_curves(curves, axes=panel)
            panel.set_title(f"Budget of {budget} support vectors")
            panels.append(panel)
        for panel in panels[1:]:
            # Not `label_outer`: the rows have different horizontal axes.
            panel.set_ylabel("")
            panel.tick_params(labelleft=False)
        for panel in panels:
            panel.get_legend().remove()
        handles, labels = panels[0].get_legend_handles_labels()
        fig.legend(handles, labels, loc="outside upper center", ncols=len(labels))
        if planar:
            half = len(budgets)
            few = [result for result in results if result.budget == budgets[0]]
            ends = "smallest", "merge"
            parts = grid[1, :half], grid[1, half:]
            for end, part in zip(ends, parts, strict=True):
                one = next(r for r in few if r.learner.name.endswith(end))
                panel: Any = fig.add_subplot(part)
                plots.decision_regions(one.state, axes=panel)
                panel.set_title(f"{one.learner.name}, budget {one.budget}")
                panel.set_xlabel(f"test accuracy {one.accuracy:.1%}")
                panel.set(xticks=[], yticks=[], ylabel="")
                panel.get_legend().remove()
        fig.savefig(path, dpi=200)


def positive(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """A type of command-line numbers."""

    def parse(text):
        number = convert(text)
        if not 0 < number < float("inf"):
            raise argparse.ArgumentTypeError(f"must be positive, got {text}")
        return number

    parse.__name__ = convert.__name__
    return parse


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default="digits",
        help="digits, checkerboard, waveform, or another name that "
        "budgetjax.datasets.load knows",
    )
    parser.add_argument(
        "--budget",
        type=positive(int),
        nargs="+",
        default=[50, 100],
        help="budgets to compare",
    )
    parser.add_argument(
        "--rows", type=positive(int), help="first rows of the training part to use"
    )
    parser.add_argument(
        "--epochs",
        type=positive(int),
        default=1,
        help="passes, shuffled except the first",
    )
    parser.add_argument("--gamma", type=positive(float), help="kernel parameter")
    parser.add_argument(
        "--regularization", type=positive(float), help="lambda of Pegasos"
    )
    parser.add_argument(
        "--figure", default="quickstart.png", help="file for the figure"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of removals and shuffles"
    )
    options = parser.parse_args(arguments)
    if not Path(options.figure).absolute().parent.is_dir():
        parser.error(f"--figure: there is no folder {Path(options.figure).parent}")
    try:
        data = datasets.load(options.data)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    if data.num_classes == 0:
        parser.error(f"--data: {data.name} is for regression, these learners classify")

    num_features = data.X_train.shape[1]
    default_gamma, default_lam = DEFAULTS.get(data.name, (1 / num_features, 1e-4))
    gamma = default_gamma if options.gamma is None else options.gamma
    lam = default_lam if options.regularization is None else options.regularization
    kernel = bj.RBF(gamma=gamma)
    learners = [
        forgetron(kernel, num_features, data.num_classes),
        *pegasos(kernel, num_features, data.num_classes, lam, options.seed),
    ]

    generator = np.random.default_rng(options.seed)
    rows = np.arange(len(data.y_train))[: options.rows]
    passes = [rows] + [generator.permutation(rows) for _ in range(options.epochs - 1)]
    order = np.concatenate(passes)
    X, y = jnp.asarray(data.X_train[order]), jnp.asarray(data.y_train[order])
    results = [
        train(learner, budget, X, y, data)
        for budget in sorted(set(options.budget))
        for learner in learners
    ]
    print(
        f"\n{data.name}: {len(y):,} examples of {data.num_classes} classes in the "
        f"stream, {len(data.y_test):,} for testing;\nGaussian kernel, gamma {gamma:g}, "
        f"regularization {lam:g}\n\n{table(results)}\n\n"
        "examples/s is without compilation: each learner first ran on one chunk."
    )
    figure(results, data, options.figure)
    print(f"Figure: {options.figure}")


if __name__ == "__main__":
    main()
