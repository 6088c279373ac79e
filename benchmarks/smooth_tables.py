"""Smooth tables drawn at random, whose best form is often the rows as they are."""

import zlib
from typing import Any

import numpy as np
import pandas
from drawn_tables import Drawn
from sklearn import datasets

TESTED = 3000
NAMES = [
    *(
        f"{name}:{rows}"
        for name in ("checkerboard", "network")
        for rows in (2000, 5000)
    ),
    *("network:500", "values:500", "values:2000", "gaussians:500", "gaussians:2000"),
    *("waves:500", "waves:2000", "friedman:500", "friedman:2000", "digits:1200"),
    *("moons:500", "moons:2000", "values:5000", "gaussians:5000"),
]


def draw(given: str) -> Drawn:
    """The table of this name, whose number is that of the rows for training."""
    X: Any
    y: Any
    name, rows = given.split(":")
    n = int(rows)
    random = np.random.default_rng(zlib.crc32(given.encode()))
    total, numbers = n + TESTED, name in ("values", "friedman")
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
