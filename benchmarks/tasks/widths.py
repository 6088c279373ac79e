"""Streams of labels: a mixture of AROW over widths, beside each width alone.

Mistakes in percent over one pass of at most `--rows` rows in a random order; every row
is predicted and then learned. The eight experts of `bj.Mixture` have 1/64, 1/8, 1/2 and
2 divided by the number of columns as gamma, each with two drifts. "of a width" is the
mistakes of its better drift, in hindsight; "default" is AROW with `bj.default_gamma` of
the first 1,000 rows. BUDGETJAX_DATA names a folder with the sets.
"""

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from data import load
from models import empty
from runner import Case, Row, given, product

import budgetjax as bj
from budgetjax.online import mixture

KEEPS_PROGRAMS = True
DATA = (
    *("electricity", "letter", "satimage", "phishing", "pendigits"),
    *("covtype-100k", "ijcnn1", "banana", "waveform", "usps"),
)
FIRST, BUDGET = 1000, 100


def percent(state: Any, X: np.ndarray, y: np.ndarray) -> float:
    """The mistakes of a stream."""
    return 100 * int(bj.run(state, X, y)[0].num_mistakes) / len(y)


def measured(name: str, order: int, most: int) -> Row:
    """The mistakes of the mixture, of its experts and of the default."""
    data = load(name, True)
    at = np.random.default_rng(order).permutation(len(data.y_train))[:most]
    X, y = data.X_train[at], data.y_train[at]
    shape: dict[str, Any] = {"budget": BUDGET, "num_classes": data.num_classes}

    def alone(gamma: Any, drift: float = 0.0) -> float:
        return percent(empty(bj.AROW(drift=drift), X, gamma=gamma, **shape), X, y)

    unit, mixed = 1 / X.shape[1], bj.Mixture()
    widths = [
        min(alone(multiple * unit, drift) for drift in mixture.DRIFTS)
        for multiple in mixture.GAMMAS
    ]
    return {
        "rows": len(y),
        "mixture": percent(mixed.init(num_features=X.shape[1], **shape), X, y),
        "default": alone(bj.default_gamma(X[:FIRST])),
        "best width": min(widths),
        "worst width": max(widths),
    }


def cases() -> Iterator[Case]:
    """All sets in two orders."""
    (most,) = given("rows", 10_000)
    return product(functools.partial(measured, most=most), data=DATA, order=(0, 1))
