"""Piecewise-linear codes of quantile bins (Gorishniy et al. 2022, section 3.2.1).

Written one number at a time. Numbers and edges are clipped smoothly before (RealMLP,
Holzmueller et al. 2024), and edges that float32 could not tell apart are dropped.
"""

import math
from dataclasses import dataclass

import numpy as np

NEAREST = 1e-4
BEYOND = 3


@dataclass
class Column:
    nominal: bool
    has_missing: bool  # some values were missing, some were not
    centre: float
    unit: float
    places: list  # edges of bins in ascending order, or the values of a nominal column


def clip(x, column):
    v = (x - column.centre) / column.unit
    # Beyond this, 3 is the nearest float64.
    v = min(max(v, -1e9), 1e9)
    return v / math.sqrt(1 + (v / 3) ** 2)


def fit(X, num_bins, nominal=(), max_values=0):
    """The parts of an encoding, a `Column` per column of X."""
    columns = []
    for j in range(np.shape(X)[1]):
        x = [float(row[j]) for row in X]
        known = sorted(value for value in x if not math.isnan(value))
        has_missing = 0 < len(known) < len(x)
        column = Column(j in nominal, has_missing, 0.0, 1.0, [])
        columns.append(column)
        values = sorted(set(known))
        if column.nominal and len(values) > 1:
            column.places = values
        if column.nominal or not values:
            continue
        lower, column.centre, upper = np.quantile(known, [0.25, 0.5, 0.75])
        if len(values) == 1:
            continue
        column.unit = upper - lower
        if column.unit == 0:
            column.unit = np.std(known)
        if num_bins == 0:
            column.places = [0.0, 1.0]
            continue
        if len(values) > max(num_bins + 1, min(max_values, len(known) // 8)):
            # The paper's b_t = Q_{t/T}({x_i}_{i in train}).
            values = [np.quantile(known, t / num_bins) for t in range(num_bins + 1)]
        edges = [clip(value, column) for value in values]
        column.places = edges[:1]
        for edge in edges[1:]:
            if edge - column.places[-1] >= NEAREST:
                column.places.append(edge)
    return columns


def codes(columns, x):
    """The codes of one row."""
    found = []
    for column, value in zip(columns, x, strict=True):
        value, places = float(value), column.places
        missing = math.isnan(value)
        if column.nominal:
            found += [float(value == place) for place in places]
        else:
            T = len(places) - 1
            v = 0.0 if missing else clip(value, column)
            for t in range(1, T + 1):
                low, high = places[t - 1], places[t]
                if missing and column.has_missing:
                    found.append(0.0)
                    continue
                # Equation (1).
                if v < low and t > 1:
                    found.append(0.0)
                elif v >= high and t < T:
                    found.append(1.0)
                else:
                    # The paper has no end; streams drift beyond their first rows.
                    code = (v - low) / (high - low)
                    found.append(min(max(code, -BEYOND), 1 + BEYOND))
        if column.has_missing:
            found.append(float(missing))
    return found
