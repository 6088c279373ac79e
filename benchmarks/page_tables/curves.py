"""Means of curves over runs, and of arrays over problems."""

from typing import Any

import numpy as np

POINTS = 40


def mean_curve(own: list[dict[str, Any]]) -> dict[str, Any]:
    """The means of all runs of a solver at points that all have reached."""
    start = max(row["changes"][0] for row in own)
    end = min(row["changes"][-1] for row in own)
    points = np.unique(np.geomspace(start, end, POINTS).astype(int))
    found: dict[str, Any] = {"changes": points, "runs": len(own)}
    for key in ("error", "vectors"):
        # Vectors of the last model tested at or before each point.
        values = [
            np.array(row[key])[np.searchsorted(row["changes"], points, "right") - 1]
            for row in own
        ]
        found[key] = np.mean(values, axis=0)
    return found


def common_range(first: dict[str, Any], second: dict[str, Any]) -> tuple[int, int]:
    """The numbers of changes that two curves share."""
    pair = first, second
    start = max(int(each["changes"][0]) for each in pair)
    return start, min(int(each["changes"][-1]) for each in pair)


def part_as_good(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """The part of the common range, in decades, where ours has no more errors."""
    grid = np.log(np.geomspace(*common_range(ours, theirs), 200))
    first, second = (
        np.interp(grid, np.log(each["changes"]), each["error"])
        for each in (ours, theirs)
    )
    return float(np.mean(first <= second))


def mean_of_problems(own: list[dict[str, Any]], key: str) -> np.ndarray:
    """The mean over all problems; errors are in percent."""
    weights = [row["problems"] for row in own]
    mean = np.average([np.array(row[key]) for row in own], axis=0, weights=weights)
    return mean if key == "vectors" else mean / 100
