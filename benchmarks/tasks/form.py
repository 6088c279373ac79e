"""The constants of the form of a table, tried on tables drawn at random.

    python benchmarks/runner.py form
    python benchmarks/runner.py form "variant=refitting.metric.PRIOR_OF_CODES=1e6"
    python benchmarks/runner.py form "variant=tables.form.BINS=2.0 tables.form.POWER=.4"
    python benchmarks/runner.py form rows=50,100,200 variant=tables.form.NARROWNESS=1.0

A variant has other values of constants of the package, by module; the field may be
given several times. `rows` takes the first of the rows for training, 0 all. Its errors
are divided by those of the default on the same tables: those of `drawn.py` with three
other seeds, every fourth of up to 8,000 rows for training and the others of up to
3,000; the smooth ones; and eight sets of `BUDGETJAX_DATA`. Errors are the share of
mistakes, or the root mean squared error divided by the deviation of the training
targets, plus two mistakes or 0.01. The summary has the geometric mean of the ratios and
its deviation, the tables with 5 percent fewer errors or more, the ratio of processor
times, and the worst tables.
"""

import ast
import contextlib
import functools
import importlib
import itertools
import statistics
import time
import warnings
from collections.abc import Iterator

import jax
import numpy as np
import pandas
from drawn import SMOOTH, Drawn, draw_smooth, draw_table, error, names
from methods import ours
from runner import Case, Row, asked, given, oldest

from budgetjax import datasets

KEEPS_PROGRAMS = True
DEFAULT = "default"
SEEDS, DRAWN, SIZES, FEWEST = (3, 4, 5), 30, (8000, 3000, 3000, 3000), 300
REAL = (
    *("satimage", "letter", "pendigits", "phishing"),
    *("banana", "waveform", "cpusmall", "electricity"),
)
MOST_REAL = 4000


def prepare() -> None:
    warnings.simplefilter("ignore")


@contextlib.contextmanager
def constants(variant: str) -> Iterator[None]:
    """Other values of constants, such as `tables.form.BINS=2.0`, for a while."""
    before = []
    for part in [] if variant == DEFAULT else variant.split():
        name, _, value = part.partition("=")
        place, _, attribute = name.rpartition(".")
        module = importlib.import_module(f"budgetjax.{place}")
        before.append((module, attribute, getattr(module, attribute)))
        setattr(module, attribute, ast.literal_eval(value))
    if before:
        # Programs that were traced hold the values of then.
        jax.clear_caches()
    try:
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)
        if before:
            jax.clear_caches()


@functools.lru_cache(1)
def table(group: str, name: str) -> Drawn | None:
    """A table by its group and name, or None if it is too small."""
    if group == "smooth":
        return draw_smooth(name)
    if group == "real":
        data = datasets.load(name, standardise=False)
        rows = np.random.default_rng(0).permutation(len(data.y_train))[:MOST_REAL]
        X = pandas.DataFrame(data.X_train[rows]), pandas.DataFrame(data.X_test)
        y, regresses = data.y_train[rows], data.num_classes == 0
        return Drawn("", regresses, X[0], y, X[1], data.y_test)
    seed = int(group.removeprefix("seed "))
    found = draw_table(name, seed)
    if found is None:
        return None
    most = SIZES[names(seed).index(name) % len(SIZES)]
    X, y = found.X_train.iloc[:most], found.y_train[:most]
    enough = len(y) >= FEWEST and len(np.unique(y)) > 1
    return found._replace(X_train=X, y_train=y) if enough else None


def figures(group: str, name: str, variant: str, budget: int, rows: int) -> Row:
    """The error of a variant on a table, and the processor time of its fit."""
    drawn = table(group, name)
    if drawn is None or len(set(drawn.y_train[: rows or None])) < 2:
        return {}
    X, y = (one[: rows or None] for one in (drawn.X_train, drawn.y_train))
    model = ours(budget)(drawn.is_regression, 0)
    with constants(variant):
        start = time.process_time()
        model.fit(X, y)
        seconds = time.process_time() - start
    least = 0.01 if drawn.is_regression else 2 / len(drawn.y_test)
    return {
        "of": "numbers" if drawn.is_regression else "labels",
        "learned": len(y),
        "error": error(drawn, model.predict(drawn.X_test)) + least,
        "seconds": round(seconds, 2),
    }


def cases() -> Iterator[Case]:
    """All tables with the default and the variants that are asked for."""
    every = [(f"seed {seed}", name) for seed in SEEDS for name in names(seed)[:DRAWN]]
    every += [("smooth", name) for name in SMOOTH]
    every += [("real", name) for name in REAL]
    variants = [DEFAULT, *(v for v in given("variant") if v != DEFAULT)]
    asked.pop("variant", None)
    for group, name in every:
        for budget, rows in itertools.product(given("budget", 100), given("rows", 0)):
            for variant in variants:
                key = {"group": group, "table": name, "variant": variant}
                key |= {"budget": budget, "rows": rows}
                yield Case(key, functools.partial(figures, *key.values()))


def place(row: Row) -> tuple:
    """What a row shares with that of another variant."""
    return row["budget"], row["rows"], row["group"], row["table"]


def summarise(rows: list[Row]) -> Iterator[Row]:
    """The errors and times of each variant against those of the default."""
    rows = [row for row in rows if "error" in row]
    of_default = {place(row): row for row in rows if row["variant"] == DEFAULT}
    groups: dict[tuple, list[Row]] = {}
    for row in rows:
        key = row["budget"], row["rows"], row["variant"], row["group"]
        groups.setdefault(key, []).append(row)
    for (budget, most, variant, group), own in groups.items():
        pairs = [
            (row, of_default[place(row)]) for row in own if place(row) in of_default
        ]
        if variant == DEFAULT or not pairs:
            continue
        ratios = {row["table"]: row["error"] / other["error"] for row, other in pairs}
        logs = np.log(list(ratios.values()))
        worst = sorted(ratios, key=lambda name: -ratios[name])[:3]
        yield {
            "budget": budget,
            "rows": most,
            "variant": variant,
            "group": group,
            "tables": len(pairs),
            "ratio": statistics.geometric_mean(ratios.values()),
            "deviation": float(np.std(logs) / np.sqrt(len(logs))),
            "better": sum(ratio < 0.95 for ratio in ratios.values()),
            "worse": sum(ratio > 1.05 for ratio in ratios.values()),
            "time": sum(row["seconds"] for row, _ in pairs)
            / sum(other["seconds"] for _, other in pairs),
            "worst": ", ".join(f"{name} {ratios[name]:.2f}" for name in worst),
            **oldest([row for row, _ in pairs]),
        }
