"""Test accuracy against the budget, for every learner, refits and scikit-learn.

    python benchmarks/accuracy.py
    python benchmarks/accuracy.py --data letter usps --budgets 100 --quick

Online learners make one pass over the training data; methods that see it more often are
in `rivals.py`.

A sweep chooses the hyperparameters of each method, data set and budget on a held-out
part, the last fifth of a fixed shuffle of the training data (of at most `TUNING_ROWS`
rows). Whether to standardise the features is chosen there too, once per data set, with
Pegasos and `Merge`. Then the method learns the whole training part in other orders. A
learner that averages is judged twice, by its last iterate and by the average over the
second half of the stream, each with its own hyperparameters. The test part is used for
the table only. A run replaces its own rows of the results and keeps the rest.

Gamma is in units of one over the total variance of the features.
"""

import argparse
import functools
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import measure
import numpy as np
import optax
import rivals
from jax.tree_util import Partial
from matplotlib.figure import Figure
from rivals import RIVALS
from tqdm import tqdm

import budgetjax as bj
from budgetjax import datasets, losses

TUNING_ROWS = 20_000
HELD_OUT = 0.2
ORDERS = 3
# With more rows, one order is enough.
MANY_ROWS = 200_000
# Gammas, in units of one over the total variance.
DATA = {
    "letter": (0.5, 1, 2, 4),
    "usps": (0.25, 0.5, 1, 2),
    "ijcnn1": (1, 2, 4, 8),
    "checkerboard": (2, 4, 8, 16, 32),
    "banana": (1, 2, 4, 8),
    "waveform": (0.125, 0.25, 0.5, 1),
    "a9a": (0.125, 0.25, 0.5, 1),
    "mnist": (0.5, 1, 2, 4),
    "covtype-100k": (0.5, 1, 2, 4),
    "covtype": (0.5, 1, 2, 4),
    "electricity": (0.25, 1, 4, 16),
    "pendigits": (0.5, 1, 2, 4),
    "satimage": (0.5, 1, 2, 4),
    "shuttle": (1, 4, 16, 64),
}
LAMBDAS = (1e-3, 3e-4, 1e-4, 1e-5)
RATES = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Task(NamedTuple):
    """The shape of the data and the length of the stream."""

    num_features: int
    num_classes: int | None
    budget: int
    rows: int
    seed: int = 0

    def shape(self, **given: Any) -> dict[str, Any]:
        """The arguments that every `init` takes, and those passed."""
        return {"num_features": self.num_features, "budget": self.budget, **given}

    @property
    def average(self) -> int:
        """The round from which on iterates are averaged."""
        return self.rows // 2 + 1


class Method(NamedTuple):
    """How to make an empty model from hyperparameters, and which ones to try."""

    init: Callable[..., Any]  # of (kernel, task, **hyperparameters)
    grid: dict[str, tuple[float, ...]]
    averages: bool = False
    binary: bool = False
    largest: float = np.inf


def pegasos(maintenance, **limits) -> Method:
    def init(kernel, task, regularization):
        shape = task.shape(num_classes=task.num_classes, seed=task.seed)
        shape |= {"maintenance": maintenance, "average": task.average}
        return bj.Pegasos(regularization=regularization).init(kernel, **shape)

    return Method(init, {"regularization": LAMBDAS}, True, **limits)


def passive_aggressive(maintenance, **limits) -> Method:
    def init(kernel, task, penalty):
        shape = task.shape(num_classes=task.num_classes, maintenance=maintenance)
        return bj.PassiveAggressive(penalty=penalty).init(kernel, **shape)

    return Method(init, {"penalty": (0.03, 0.1, 0.3, 1.0)}, **limits)


def perceptron(kernel, task):
    shape = task.shape(num_classes=task.num_classes, seed=task.seed)
    return bj.Perceptron().init(kernel, **shape, maintenance=bj.RemoveRandom())


def projectron(kernel, task, threshold):
    learner = bj.Projectron(threshold=threshold, margin_updates=True)
    return learner.init(kernel, **task.shape(num_classes=task.num_classes))


def forgetron(kernel, task):
    return bj.Forgetron().init(kernel, **task.shape())


def norma(kernel, task, learning_rate, regularization):
    learner = bj.NORMA(learning_rate=learning_rate, regularization=regularization)
    shape = task.shape(num_classes=task.num_classes, average=task.average)
    return learner.init(kernel, **shape)


@functools.cache
def cosine(rows: int) -> Callable[..., Any]:
    """From 1 to 0; the factor is in the loss, where it can be swept."""
    return optax.cosine_decay_schedule(1.0, rows)


@functools.cache
def optimizer(rows: int) -> optax.GradientTransformation:
    return optax.sgd(cosine(rows))


def scaled(loss, rate, score, y):
    """A loss times a learning rate."""
    return rate * loss(score, y)


@losses.classification_loss
def scaled_of_labels(loss, rate, score, y):
    """The same for a loss of labels."""
    return scaled(loss, rate, score, y)


def at_rate(loss, rate, task) -> Partial:
    loss = loss if isinstance(loss, Partial) else Partial(loss)
    return Partial(scaled_of_labels if task.num_classes else scaled, loss, rate)


def arow(kernel, task, confidence):
    shape = task.shape(num_classes=task.num_classes)
    return bj.AROW(confidence=confidence).init(kernel, **shape)


def sgd(loss, maintenance, **limits) -> Method:
    """Gradient descent whose rate falls to 0 along a cosine."""

    def init(kernel, task, rate):
        loss_at = at_rate(loss, rate, task)
        learner = bj.SGD(loss=loss_at, learning_rate=cosine(task.rows))
        shape = task.shape(num_classes=task.num_classes, average=task.average)
        return learner.init(kernel, **shape, maintenance=maintenance)

    return Method(init, {"rate": RATES}, True, **limits)


def linear(learner, loss=losses.hinge, factor=1) -> Method:
    """Gradient descent on `factor * budget` features."""

    def init(kernel, task, rate):
        shape = task.shape(num_classes=task.num_classes, average=task.average)
        shape |= {"budget": factor * task.budget}
        if learner is bj.Fourier:
            shape["seed"] = task.seed
        return learner(
            loss=at_rate(loss, rate, task), optimizer=optimizer(task.rows)
        ).init(kernel, **shape)

    return Method(init, {"rate": RATES}, True)


METHODS = {
    "Pegasos, remove random": pegasos(bj.RemoveRandom()),
    "Pegasos, remove smallest": pegasos(bj.RemoveSmallest()),
    "Pegasos, project": pegasos(bj.Project()),
    "Pegasos, project best": pegasos(bj.Project(best=True)),
    "Pegasos, delayed project": pegasos(bj.DelayedProject()),
    "Pegasos, merge": pegasos(bj.Merge()),
    "Pegasos, merge any sign": pegasos(bj.Merge(same_sign=False), binary=True),
    "Pegasos, merge 3": pegasos(bj.MultiMerge(3)),
    "Pegasos, merge best pair": pegasos(bj.MergeBestPair(), largest=100),
    "SGD logistic, merge": sgd(losses.logistic, bj.Merge()),
    "PA-I, merge": passive_aggressive(bj.Merge()),
    "PA-I, project best": passive_aggressive(bj.Project(best=True)),
    "PA-I, project onto nearest": passive_aggressive(bj.ProjectOntoNearest()),
    "Projectron++": Method(projectron, {"threshold": (0.1, 0.3, 0.5, 0.7, 0.9)}),
    "Perceptron, remove random": Method(perceptron, {}),
    "Forgetron": Method(forgetron, {}, binary=True),
    "NORMA": Method(
        norma,
        {"learning_rate": (0.1, 0.3, 1.0), "regularization": (1e-4, 1e-3, 1e-2)},
        True,
    ),
    "Fourier, B features": linear(bj.Fourier),
    "Fourier, 4B features": linear(bj.Fourier, factor=4),
    "Nystrom": linear(bj.Nystrom),
    "AROW": Method(arow, {"confidence": (0.01, 0.1, 1.0)}),
}
LABELS = (*METHODS, *RIVALS)
SHOWN = (
    "Pegasos, remove random",
    "Pegasos, merge",
    "AROW",
    "Pegasos, merge, refit",
    "Pegasos, merge, refit, vectors moved",
    "Pegasos, merge, metric",
    "scikit-learn Nystroem, LinearSVC",
)
FULL = "scikit-learn SVC"
TICKS = (0.2, 0.5, 1, 2, 5, 10, 15, 20, 30, 50)
PANELS = 3  # side by side
ENOUGH = 4  # methods with several budgets, to draw a data set


@jax.jit
def mistakes(state, X, y):
    """The error rate in percent."""
    return 100 * (bj.predict(state, X) != y).mean()


def judged(method: Method, state, judge, X, y, *, stacked=False) -> dict[str, Any]:
    """What `judge` returns for the last iterate and for the average."""
    judge = jax.vmap(judge, in_axes=(0, None, None)) if stacked else judge
    errors = {"last": np.asarray(judge(state, X, y))}
    if method.averages:
        errors["average"] = np.asarray(judge(bj.average_iterates(state), X, y))
    return errors


def tuned(method: Method, task: Task, gammas, parts, judge) -> dict[str, Any]:
    """The hyperparameters with least error, for the last iterate and the average."""
    X, y, X_held, y_held = parts
    grid = bj.grid(gamma=gammas, **method.grid)
    task = task._replace(rows=len(X))
    states = grid.init(lambda gamma, **rest: method.init(bj.RBF(gamma), task, **rest))
    states = bj.sweep(states, X, y).states
    errors = judged(method, states, judge, X_held, y_held, stacked=True)
    found = {}
    for kind, values in errors.items():
        best = int(np.nanargmin(values))
        chosen = [float(column[best]) for column in grid.columns]
        found[kind] = {
            "held out": float(values[best]),
            "chosen": dict(zip(grid.names, chosen, strict=True)),
        }
    return found


def tested(method: Method, task: Task, found, data, judge, orders) -> dict[str, Any]:
    """The test errors after learning in several orders."""
    errors: dict[str, list[float]] = {kind: [] for kind in found}
    for seed in range(1, orders + 1):
        order = np.random.default_rng(seed).permutation(task.rows)
        X, y = data.X_train[order], data.y_train[order]
        known = {}
        for kind, result in found.items():
            key = tuple(result["chosen"].values())
            if key not in known:
                gamma, *rest = key
                rest = dict(zip(method.grid, rest, strict=True))
                state = method.init(bj.RBF(gamma), task._replace(seed=seed), **rest)
                state, _ = bj.run(state, X, y)
                known[key] = judged(method, state, judge, data.X_test, data.y_test)
            errors[kind].append(float(known[key][kind]))
    return errors


def parts_of(data, limit: int):
    """The rows to learn while tuning, and the held-out rows."""
    order = np.random.default_rng(0).permutation(len(data.y_train))[:limit]
    learn, held = np.split(order, [round(len(order) * (1 - HELD_OUT))])
    return (
        data.X_train[learn],
        data.y_train[learn],
        data.X_train[held],
        data.y_train[held],
    )


def gammas_of(data, units, quick=False):
    """Gammas for these features."""
    unit_gamma = bj.default_gamma(data.X_train)
    return [unit * unit_gamma for unit in (units[1:3] if quick else units)]


def load(name: str, standardise: bool) -> datasets.Dataset:
    """A data set, or the first rows of one, drawn once."""
    whole, _, limit = name.partition("-")
    data = datasets.load(whole, standardise=standardise)
    if not limit:
        return data
    rows = 1000 * int(limit.removesuffix("k"))
    kept = np.random.default_rng(0).permutation(len(data.y_train))[:rows]
    return data._replace(X_train=data.X_train[kept], y_train=data.y_train[kept])


def scaling(name: str, limit: int):
    """The data, standardised if that is better on held-out rows."""
    found = {}
    for standardise in (True, False):
        data = load(name, standardise)
        task = Task(data.X_train.shape[1], data.num_classes, 100, len(data.y_train))
        parts = parts_of(data, limit)
        method = METHODS["Pegasos, merge"]
        best = tuned(method, task, gammas_of(data, DATA[name]), parts, mistakes)
        found[standardise] = best["last"]["held out"], data
    standardise = found[True][0] <= found[False][0]
    return found[standardise][1], standardise


def possible(label: str, budget: int, num_classes: int) -> bool:
    """Whether the method takes this budget and number of classes."""
    if label in RIVALS:
        return True
    method = METHODS[label]
    return budget <= method.largest and (num_classes == 2 or not method.binary)


def rival_row(label: str, task: Task, gammas, parts, data, orders) -> dict[str, Any]:
    """A row of the results, for a method that sees the data more than once."""
    rival = RIVALS[label]
    found = rivals.tuned(rival, task, gammas, parts)
    errors, notes = rivals.tested(rival, task, found, data, orders)
    return {
        "B": task.budget if rival.budgeted else 0,
        "method": label,
        "model": "last",
        "accuracy %": 100 - float(np.mean(errors)),
        "deviation": float(np.std(errors)),
        "held out %": 100 - found["held out"],
        "chosen": found["chosen"],
        **notes,
    }


def compare(
    names, budgets, methods, quick, orders, units, known: set[tuple[str, int, str]]
):
    """One row per data set, budget, method and model that has no results yet."""
    limit, orders = (TUNING_ROWS // 4, 1) if quick else (TUNING_ROWS, orders)
    progress = tqdm(total=len(names) * len(budgets) * len(methods))
    for name in names:
        progress.set_description(name)
        data, standardise = scaling(name, limit)
        parts = parts_of(data, limit)
        gammas = gammas_of(data, units or DATA[name], quick and not units)
        n, d = data.X_train.shape
        for budget, label in itertools.product(budgets, methods):
            progress.set_description(f"{name} {budget} {label}")
            progress.update()
            if not possible(label, budget, data.num_classes):
                continue
            if (name, budget, label) in known or (name, 0, label) in known:
                continue
            task = Task(d, data.num_classes, budget, n)
            if label in RIVALS:
                if RIVALS[label].budgeted or budget == budgets[0]:
                    times = 1 if n > MANY_ROWS else orders
                    row = rival_row(label, task, gammas, parts, data, times)
                    yield {"data": name, "standardised": standardise, **row}
                jax.clear_caches()
                continue
            method = METHODS[label]
            if quick:
                grid = {axis: values[::2] for axis, values in method.grid.items()}
                method = method._replace(grid=grid)
            found = tuned(method, task, gammas, parts, mistakes)
            errors = tested(method, task, found, data, mistakes, orders)
            for kind, result in found.items():
                yield {
                    "data": name,
                    "standardised": standardise,
                    "B": budget,
                    "method": label,
                    "model": kind,
                    "accuracy %": 100 - float(np.mean(errors[kind])),
                    "deviation": float(np.std(errors[kind])),
                    "held out %": 100 - result["held out"],
                    "chosen": result["chosen"],
                }
            jax.clear_caches()


def saved(path: Path) -> list[dict[str, Any]]:
    """The rows of a file, if there is one."""
    return json.loads(path.read_text())["rows"] if path.exists() else []


def updated(path: Path, new: dict[str, Any], key: Callable[..., Any]) -> None:
    """Writes a row into a file and replaces the row with the same key."""
    rows = {key(row): row for row in [*saved(path), new]}
    rows = [row for _, row in sorted(rows.items(), key=lambda item: item[0])]
    measure.save(rows, path)


def place(row) -> tuple[int, ...]:
    """The position of a row in the table."""
    name, method = list(DATA).index(row["data"]), LABELS.index(row["method"])
    return name, row["B"], method, row["model"] != "last"


def table(rows) -> str:
    """One line per method and model, one column per data set and budget."""
    columns = list(dict.fromkeys((row["data"], row["B"]) for row in rows))
    lines: dict[tuple[str, str], dict[Any, str]] = {}
    for row in rows:
        cell = f"{row['accuracy %']:.1f} ± {row['deviation']:.1f}"
        line = lines.setdefault((row["method"], row["model"]), {})
        line[row["data"], row["B"]] = cell
    heads = (f"{name} {budget or 'full'}" for name, budget in columns)
    cells = [["method", "model", *heads]]
    for names in sorted(lines, key=lambda names: LABELS.index(names[0])):
        line = lines[names]
        cells.append([*names, *(line.get(column, "") for column in columns)])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in cells
    )


def draw(rows, path: Path) -> None:
    """Errors of last iterates against the budget, with the full SVM as a line.

    For data with at least a few lines; partial results may have none.
    """
    drawn: dict[str, dict[str, list]] = {}
    for row in rows:
        if row["model"] == "last" and row["method"] in SHOWN:
            lines = drawn.setdefault(row["data"], {})
            lines.setdefault(row["method"], []).append(row)
    for name, lines in list(drawn.items()):
        drawn[name] = {label: line for label, line in lines.items() if len(line) > 1}
        if len(drawn[name]) < ENOUGH:
            del drawn[name]
    if not drawn:
        return
    full = {row["data"]: row for row in rows if row["method"] == FULL}
    height = -(-len(drawn) // PANELS)
    figure = Figure(figsize=(3.6 * PANELS, 3 * height + 0.8), layout="constrained")
    panels = figure.subplots(height, PANELS, squeeze=False)
    for panel in panels.flat[len(drawn) :]:
        panel.remove()
    legend = {}
    for panel, (name, lines) in zip(panels.flat, drawn.items(), strict=False):
        for label, line in lines.items():
            budgets, means, spreads = (
                [row[key] for row in line] for key in ("B", "accuracy %", "deviation")
            )
            legend[label] = panel.errorbar(
                budgets,
                [100 - mean for mean in means],
                spreads,
                color=f"C{SHOWN.index(label)}",
                marker=".",
                capsize=2,
            )
        if name in full:
            error = 100 - full[name]["accuracy %"]
            legend[FULL] = panel.axhline(error, color="black", linestyle=":")
        budgets = sorted({row["B"] for line in lines.values() for row in line})
        panel.set(title=name, xlabel="budget", xscale="log", yscale="log")
        panel.set_xticks(budgets, budgets)
        panel.minorticks_off()
        low, high = panel.get_ylim()
        panel.set_yticks([tick for tick in TICKS if low <= tick <= high])
        panel.yaxis.set_major_formatter("{x:g}")
    for panel in panels[:, 0]:
        panel.set_ylabel("test error, %")
    order = [label for label in (*SHOWN, FULL) if label in legend]
    figure.legend(
        [legend[label] for label in order],
        order,
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description="Accuracy after one pass")
    parser.add_argument("--data", nargs="+", choices=DATA, default=list(DATA))
    parser.add_argument("--budgets", nargs="+", type=int, default=[100, 500])
    parser.add_argument("--methods", nargs="+", choices=LABELS, default=list(LABELS))
    parser.add_argument(
        "--quick", action="store_true", help="one order, coarse grids, fewer rows"
    )
    parser.add_argument(
        "--table", action="store_true", help="print and draw what the file holds"
    )
    parser.add_argument(
        "--missing", action="store_true", help="only what the file does not hold"
    )
    parser.add_argument("--orders", type=int, default=ORDERS, help="of the rows")
    parser.add_argument(
        "--units", nargs="+", type=float, help="gammas to try, in place of the data's"
    )
    parser.add_argument(
        "--few",
        type=int,
        default=rivals.FEW,
        help="rows to tune scikit-learn's exact solvers on",
    )
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    for label, rival in RIVALS.items():
        if rival.rows == rivals.FEW:
            RIVALS[label] = rival._replace(rows=arguments.few)
    jax.config.update("jax_num_cpu_devices", 2)
    name = "accuracy-quick.json" if arguments.quick else "accuracy.json"
    output = arguments.output or Path(__file__).parent / "results" / name
    if not arguments.table:
        known = {
            (row["data"], row["B"], row["method"])
            for row in (saved(output) if arguments.missing else [])
        }
        for row in compare(
            arguments.data,
            arguments.budgets,
            arguments.methods,
            arguments.quick,
            arguments.orders,
            arguments.units,
            known,
        ):
            updated(output, row, place)
    rows = saved(output)
    print(table(rows))
    draw(rows, output.with_suffix(".png"))


if __name__ == "__main__":
    main()
