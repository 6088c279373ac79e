"""The constants of the form of a table, tried on tables drawn at random.

    python benchmarks/form.py
    python benchmarks/form.py --variants "refitting.metric.PRIOR_OF_CODES=300"
    python benchmarks/form.py --variants "tables.form.BINS=20 tables.form.VALUES=0"

A variant has other values of constants of the package, by module. Its errors are
divided by those of the default on the same tables: those of `drawn_tables.py` with
three other seeds, every fourth of up to 8,000 rows for training and the others of up to
3,000; the smooth ones of `smooth_tables.py`; and eight sets of `BUDGETJAX_DATA`. Errors
are the share of mistakes, or the root mean squared error divided by the deviation of
the training targets, plus two mistakes or 0.01. The summary has the geometric mean of
the ratios and its deviation, the tables with 5 percent fewer errors or more, the ratio
of processor times, and the worst tables.

A run keeps the rows that the results file already holds.
"""

import argparse
import ast
import contextlib
import importlib
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import drawn_tables
import numpy as np
import pandas
import smooth_tables
from drawn_tables import Drawn

from budgetjax import datasets
from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

OUTPUT = Path(__file__).parent / "results" / "form.csv"
KEYS = ["group", "table", "variant", "budget"]
DEFAULT = "default"
SEEDS, DRAWN, SIZES, FEWEST = (3, 4, 5), 30, (8000, 3000, 3000, 3000), 300
REAL = (
    *("satimage", "letter", "pendigits", "phishing"),
    *("banana", "waveform", "cpusmall", "electricity"),
)
MOST_REAL = 4000


@contextlib.contextmanager
def constants(variant: str) -> Iterator[None]:
    """Other values of constants, such as `tables.form.BINS=20`, for a while."""
    before = []
    for part in [] if variant == DEFAULT else variant.split():
        name, _, value = part.partition("=")
        place, _, attribute = name.rpartition(".")
        module = importlib.import_module(f"budgetjax.{place}")
        before.append((module, attribute, getattr(module, attribute)))
        setattr(module, attribute, ast.literal_eval(value))
    try:
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)


def tables() -> Iterator[tuple[str, str, Drawn]]:
    """The group, the name and the rows of each table."""
    for seed in SEEDS:
        drawn_tables.SEED = seed
        for number, name in enumerate(drawn_tables.names()[:DRAWN]):
            if (found := drawn_tables.draw(name)) is None:
                continue
            most = SIZES[number % len(SIZES)]
            X, y = found.X_train.iloc[:most], found.y_train[:most]
            if len(y) >= FEWEST and len(np.unique(y)) > 1:
                yield f"seed {seed}", name, found._replace(X_train=X, y_train=y)
    for name in smooth_tables.NAMES:
        yield "smooth", name, smooth_tables.draw(name)
    for name in REAL:
        data = datasets.load(name, standardise=False)
        rows = np.random.default_rng(0).permutation(len(data.y_train))[:MOST_REAL]
        X = pandas.DataFrame(data.X_train[rows]), pandas.DataFrame(data.X_test)
        y, regresses = data.y_train[rows], data.num_classes == 0
        yield "real", name, Drawn("", regresses, X[0], y, X[1], data.y_test)


def measure(drawn: Drawn, variant: str, budget: int) -> dict[str, Any]:
    """The error of a variant on a table, and the processor time of its fit."""
    kind = BudgetedKernelClassifier
    if drawn.is_regression:
        kind = BudgetedKernelRegressor
    with constants(variant):
        start = time.process_time()
        model = kind(budget, random_state=0).fit(drawn.X_train, drawn.y_train)
        seconds = time.process_time() - start
    error = drawn_tables.error(drawn, model.predict(drawn.X_test))
    least = 0.01 if drawn.is_regression else 2 / len(drawn.y_test)
    return {
        "of": "numbers" if drawn.is_regression else "labels",
        "rows": len(drawn.y_train),
        "error": error + least,
        "seconds": round(seconds, 2),
    }


def summarise(found: pandas.DataFrame) -> None:
    """Prints the errors and times of each variant against those of the default."""
    wide = found.set_index(["budget", "group", "table"])
    base = wide[wide.variant == DEFAULT]
    every: Any
    key: Any
    for key, every in wide.groupby(["budget", "variant"]):
        budget, variant = key
        if variant == DEFAULT:
            continue
        for group, rows in every.groupby("group"):
            kept = rows[rows.index.isin(base.index)]
            other = base.loc[kept.index]
            ratio = (kept.error / other.error).sort_values()
            logs = np.log(ratio)
            print(
                f"{budget:4} {variant}, {group}: {np.exp(logs.mean()):.3f}"
                f" +- {np.std(logs) / np.sqrt(len(logs)):.3f} of {len(ratio)}, better"
                f" {np.sum(ratio < 0.95)}, worse {np.sum(ratio > 1.05)}, time"
                f" {kept.seconds.sum() / other.seconds.sum():.2f}; worst",
                ", ".join(f"{k[-1]} {v:.2f}" for k, v in ratio[::-1][:3].items()),
            )


def main() -> None:
    parser = argparse.ArgumentParser(description="The form of a table")
    parser.add_argument("--variants", nargs="+", default=[])
    parser.add_argument("--budgets", nargs="+", type=int, default=[100])
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    path = given.output
    found = pandas.read_csv(path) if path.exists() else pandas.DataFrame(columns=KEYS)
    known = set(found[KEYS].itertuples(index=False, name=None))
    for group, name, drawn in tables():
        for budget in given.budgets:
            for variant in (DEFAULT, *given.variants):
                if (key := (group, name, variant, budget)) in known:
                    continue
                one = dict(zip(KEYS, key, strict=True))
                one |= measure(drawn, variant, budget)
                row = pandas.DataFrame([one])
                row.to_csv(path, mode="a", header=not path.exists(), index=False)
    summarise(pandas.read_csv(path))


if __name__ == "__main__":
    main()
