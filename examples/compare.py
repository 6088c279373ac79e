"""Compares all learners on one stream: test accuracy by budget, table and figure.

    python examples/compare.py
    python examples/compare.py --data digits --gamma 0.05 --regularization 1e-3

All learners see the same examples once, in the same order, through the same kernel.
For each of them `budgetjax.sweep` trains the models of all budgets in one call. The
kernel and the regularization can be chosen; the other settings are constants below.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import optax

import budgetjax as bj
from budgetjax import datasets, plots

try:
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from tqdm import tqdm
except ImportError as error:
    raise SystemExit(f'compare: {error}; pip install ".[examples]"') from error

RATE = 0.5  # the learning rate of gradient descent on support vectors
OPTIMIZER = optax.sgd(0.2)  # the optimiser of feature maps
PERCEPTRONS = "Perceptrons, passive-aggressive"
KEEPING = "Pegasos, removing or projecting"
MERGING = "Pegasos, merging"
DESCENT = "Other losses, features, second order"
HEADER = "test accuracy, budget"
REFERENCE = "Pegasos, merge"  # drawn in every panel


class Entry(NamedTuple):
    """A learner in this comparison.

    Attributes:
      family: its panel of the figure.
      name: the name in the table and the figure.
      learner: the learner with its hyperparameters.
      shared: arguments of its `init`, besides kernel, number of features and budget.
    """

    family: str
    name: str
    learner: bj.Learner
    shared: dict[str, Any]


def entries(num_classes: int, lam: float, seed: int) -> list[Entry]:
    """All learners for this number of classes; the Forgetron learns two."""
    classes = {"num_classes": num_classes}
    pegasos = bj.Pegasos(regularization=lam)
    found = []
    for family, name, learner, maintenance in (
        (PERCEPTRONS, "Perceptron, remove oldest", bj.Perceptron(), bj.RemoveOldest()),
        (PERCEPTRONS, "Perceptron, remove random", bj.Perceptron(), bj.RemoveRandom()),
        (PERCEPTRONS, "Passive-aggressive, merge", bj.PassiveAggressive(), bj.Merge()),
        (
            PERCEPTRONS,
            "Passive-aggressive, BPA-NN",
            bj.PassiveAggressive(),
            bj.ProjectOntoNearest(),
        ),
        (PERCEPTRONS, "ALMA, merge", bj.ALMA(), bj.Merge()),
        (KEEPING, "Pegasos, remove smallest", pegasos, bj.RemoveSmallest()),
        (KEEPING, "Pegasos, remove random", pegasos, bj.RemoveRandom()),
        (KEEPING, "Pegasos, project smallest", pegasos, bj.Project()),
        (KEEPING, "Pegasos, project best", pegasos, bj.Project(best=True)),
        (MERGING, "Pegasos, merge", pegasos, bj.Merge()),
        (MERGING, "Pegasos, merge three", pegasos, bj.MultiMerge(3)),
        (MERGING, "Pegasos, merge best pair", pegasos, bj.MergeBestPair()),
    ):
        shared = classes | {"maintenance": maintenance, "seed": seed}
        found.append(Entry(family, name, learner, shared))
    if num_classes == 2:
        found.append(Entry(PERCEPTRONS, "Forgetron", bj.Forgetron(), {}))
    found.append(Entry(PERCEPTRONS, "Ahpatron", bj.Ahpatron(), classes))
    projectron = bj.Projectron(margin_updates=True)
    found.append(Entry(PERCEPTRONS, "Projectron++", projectron, classes))
    norma = bj.NORMA(learning_rate=RATE, regularization=lam)
    found.append(Entry(DESCENT, "NORMA", norma, classes))
    sgd = bj.SGD(learning_rate=RATE, regularization=lam, loss=bj.losses.logistic)
    found.append(Entry(DESCENT, "SGD, logistic loss, merge", sgd, classes))
    average = classes | {"average": True}
    fourier, nystrom = bj.Fourier(optimizer=OPTIMIZER), bj.Nystrom(optimizer=OPTIMIZER)
    found.append(Entry(DESCENT, "Fourier features", fourier, average))
    found.append(Entry(DESCENT, "Nystrom features", nystrom, average))
    found.append(Entry(DESCENT, "AROW", bj.AROW(), classes))
    # Sorted by panel.
    families = [PERCEPTRONS, KEEPING, MERGING, DESCENT]
    return sorted(found, key=lambda entry: families.index(entry.family))


def accuracies(
    entry: Entry,
    kernel: bj.Kernel,
    budgets: Sequence[int],
    data: datasets.Dataset,
    rows: int | None,
) -> np.ndarray:
    """Trains one model per budget, all at once, and tests them."""
    if isinstance(entry.learner, bj.Fourier):  # features come in pairs
        budgets = [budget + budget % 2 for budget in budgets]
    X, y = data.X_train[:rows], data.y_train[:rows]
    states = bj.grid(budget=budgets).init(
        lambda budget: entry.learner.init(
            kernel,
            num_features=X.shape[1],
            budget=budget,
            capacity=max(budgets),
            **entry.shared,
        )
    )
    models = bj.sweep(states, X, y).states
    if entry.shared.get("average"):
        models = bj.average_iterates(models)
    predict = jax.jit(jax.vmap(bj.predict, in_axes=(0, None)))
    predicted = np.asarray(predict(models, data.X_test))
    return (predicted == data.y_test).mean(axis=1)


def table(
    results: dict[str, np.ndarray], budgets: Sequence[int], num_classes: int
) -> str:
    """The table: one row per learner, one column per budget."""
    rows = [(name, *(f"{v:.1%}" for v in row)) for name, row in results.items()]
    width = max(len(name) for name in (HEADER, *results))
    cells = [(HEADER, *map(str, budgets)), *rows]
    lines = [
        f"{row[0]:<{width}}" + "".join(f"{cell:>8}" for cell in row[1:])
        for row in cells
    ]
    if num_classes > 2:
        lines.append(f"{'Forgetron':<{width}}  left out, it is for two classes")
    return "\n".join([lines[0], "-" * len(lines[0]), *lines[1:]])


def figure(
    compared: Sequence[Entry],
    results: dict[str, np.ndarray],
    budgets: Sequence[int],
    title: str,
    path: str,
) -> None:
    """Accuracy against the budget, one panel per family."""
    with rc_context(plots.STYLE):
        families = list(dict.fromkeys(one.family for one in compared))
        rows, columns = -(-len(families) // 2), min(2, len(families))
        fig = Figure(figsize=(3.7 * columns, 3.5 * rows), layout="constrained")
        fig.suptitle(title, x=0.01, ha="left")
        panels = fig.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
        for panel in panels.flat[len(families) :]:
            panel.set_visible(False)
        for panel, family in zip(panels.flat, families, strict=False):
            members = [one.name for one in compared if one.family == family]
            curves = {
                name.removeprefix("Pegasos, "): (budgets, results[name])
                for name in members
            }
            if REFERENCE in results and REFERENCE not in members:
                curves |= {REFERENCE: (budgets, results[REFERENCE])}
            plots.accuracy_by_budget(curves, axes=panel)
            panel.set_title(family)
            panel.set_xlabel("budget, or number of features")
            panel.label_outer()
        fig.savefig(path, dpi=150)


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
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "--data",
        default="checkerboard",
        help="a name that budgetjax.datasets.load knows (default: checkerboard)",
    )
    parser.add_argument(
        "--budget",
        type=positive(int),
        nargs="+",
        default=[20, 50, 100, 200],
        help="budgets to compare (default: 20 50 100 200)",
    )
    parser.add_argument(
        "--rows", type=positive(int), help="first rows of the training part to use"
    )
    parser.add_argument(
        "--gamma",
        type=positive(float),
        help="kernel parameter (default: 8 for checkerboard, else 1 / features)",
    )
    parser.add_argument(
        "--regularization",
        type=positive(float),
        default=1e-4,
        help="lambda of Pegasos, NORMA and SGD (default: 1e-4)",
    )
    parser.add_argument(
        "--only", nargs="+", help="learners with one of these in their names"
    )
    parser.add_argument("--output", default="compare.png", help="file for the figure")
    parser.add_argument("--seed", type=int, default=0, help="seed of random removals")
    options = parser.parse_args(arguments)
    if not Path(options.output).absolute().parent.is_dir():
        parser.error(f"--output: there is no folder {Path(options.output).parent}")
    try:
        data = datasets.load(options.data)
    except (ValueError, ImportError) as error:
        parser.error(str(error))
    if data.num_classes == 0:
        parser.error(f"--data: {data.name} is for regression, these learners classify")

    num_features = data.X_train.shape[1]
    default = 8.0 if data.name == "checkerboard" else 1 / num_features
    gamma = default if options.gamma is None else options.gamma
    lam, budgets = options.regularization, sorted(set(options.budget))
    compared = [
        entry
        for entry in entries(data.num_classes, lam, options.seed)
        if not options.only or any(part in entry.name for part in options.only)
    ]
    if not compared:
        parser.error(f"--only: no learner is named like {options.only}")
    results = {}
    with tqdm(compared, unit="learner") as bar:
        for entry in bar:
            bar.set_description(f"{entry.name:26}")
            results[entry.name] = accuracies(
                entry, bj.RBF(gamma), budgets, data, options.rows
            )
    title = (
        f"{data.name}: {len(data.y_train[: options.rows]):,} examples of "
        f"{data.num_classes} classes, gamma {gamma:g}, regularization {lam:g}"
    )
    print(f"\n{title}\n\n{table(results, budgets, data.num_classes)}\n")
    figure(compared, results, budgets, title, options.output)
    print(f"Figure: {options.output}")


if __name__ == "__main__":
    main()
