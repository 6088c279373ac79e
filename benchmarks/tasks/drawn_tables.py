"""Tables and targets drawn at random: our estimator beside boosted trees.

The tables are those of `drawn.py`. Data frames go in as they are, texts as categories
for the trees. Errors are the share of mistakes, or the root mean squared error divided
by the deviation of the training targets; `ratio` is ours over theirs, after adding two
mistakes or 0.01. The fields `seed` and `number` take other tables.
"""

import statistics
from collections.abc import Iterator
from pathlib import Path

import drawing
import numpy as np
from drawn import categorical, draw_table, error, names
from methods import ESTIMATORS
from runner import Case, Row, given, oldest, product

KEEPS_PROGRAMS = True
# Seed 1, with other targets of many of the same tables, has chosen defaults.
SEED, NUMBER = 2, 100
# Ratios of errors that are no difference.
EQUAL = 0.02


def figures(name: str, seed: int) -> Row:
    """The errors on a table; nothing where the trees do not take it."""
    drawn = draw_table(name, seed)
    if drawn is None:
        return {}
    model, trees = (
        ESTIMATORS[name](drawn.is_regression, 0)
        for name in ("budgetjax, 100", "HistGradientBoosting")
    )
    try:
        train, test = categorical(drawn.X_train, drawn.X_test)
        boosted = trees.fit(train, drawn.y_train).predict(test)
    except ValueError:
        return {}
    model.fit(drawn.X_train, drawn.y_train)
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


def cases() -> Iterator[Case]:
    """The first tables in the order of a seed."""
    (seed,), (number,) = given("seed", SEED), given("number", NUMBER)
    return product(figures, data=names(seed)[:number], seed=[seed])


def summarise(rows: list[Row]) -> Iterator[Row]:
    """How many tables have fewer errors and more, and the ratio, by kind of target."""
    for of in ("labels", "numbers"):
        own = [row for row in rows if row.get("of") == of and row["seed"] == SEED]
        if own:
            ratios = [row["ratio"] for row in own]
            yield {
                "of": of,
                "tables": len(ratios),
                "fewer": sum(ratio < 1 - EQUAL for ratio in ratios),
                "more": sum(ratio > 1 + EQUAL for ratio in ratios),
                "ratio": statistics.geometric_mean(ratios),
                **oldest(own),
            }


def draw(rows: list[Row], path: Path) -> None:
    """The ratio of errors on every table, from the least to the largest."""
    with drawing.panels(path, 1, size=(6, 3.2)) as (_, [panel]):
        for of in ("labels", "numbers"):
            own = [row for row in rows if row.get("of") == of and row["seed"] == SEED]
            ratios = np.sort([row["ratio"] for row in own])
            places = np.linspace(0, 100, len(ratios))
            panel.plot(places, ratios, "o-", markersize=3, label=of)
        panel.axhline(1, color="0.3", linestyle="--", linewidth=1)
        panel.set(xlabel="tables, %", ylabel="errors / those of trees", yscale="log")
        panel.set_yticks([0.25, 0.5, 1, 2], ["1/4", "1/2", "1", "2"])
        panel.minorticks_off()
        panel.legend()
