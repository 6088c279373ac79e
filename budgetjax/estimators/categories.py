"""Columns of names in data frames, as the numbers of their categories."""

from collections.abc import Mapping
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Bool, Shaped

from budgetjax import raw_rows
from budgetjax._errors import ArgumentError

# The names of the categories of every such column, in alphabetical order.
Categories: TypeAlias = Mapping[str, Shaped[np.ndarray, " categories"]]
# Rarer categories than these of a column are as unseen ones.
MOST_CATEGORIES = 128


def find(X: Any) -> Categories:
    """The categories of columns of texts, and of those that pandas calls categories.

    Raises:
      ValueError: if a column has dates or durations, which have no unit.
    """
    # Tables of Arrow have none.
    names = (hasattr(X, "dtypes") and raw_rows.column_names(X)) or ()
    found = {}
    for name in names:
        kind = str(X[name].dtype)
        if kind.startswith(("datetime", "timedelta")):
            wanted = "have columns of numbers, booleans, texts or categories"
            got = f"{kind} in column {name!r}; turn it into numbers, such as days"
            raise ArgumentError("X", wanted, got)
        column = np.asarray(X[name])
        has_text = column.dtype.kind not in "biuf" and any(
            isinstance(value, str) for value in column
        )
        if not has_text and kind != "category":
            continue
        texts, is_known = _read_column(X[name])
        values, counts = np.unique(texts[is_known], return_counts=True)
        kept = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
        found[name] = values[np.sort(kept)]
    return found


def to_numbers(X: Any, categories: Categories) -> Any:
    """The data frame with numbers for names.

    A missing name is NaN, and one that is no category has the number behind the last.
    """
    names = raw_rows.column_names(X) or ()
    if not any(name in categories for name in names):
        return X
    columns = {name: X[name] for name in names}
    for name in categories.keys() & set(names):
        values, (texts, is_known) = categories[name], _read_column(X[name])
        numbers = np.full(len(is_known), np.nan)
        if len(values):
            at = np.minimum(np.searchsorted(values, texts), len(values) - 1)
            numbers = np.where(values[at] == texts, at, len(values))
        columns[name] = np.where(is_known, numbers, np.nan)
    return type(X)(columns)


def _read_column(
    column: Any,
) -> tuple[Shaped[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The names in a column, and which are known."""
    values = np.asarray(column, object)
    is_text = np.fromiter((isinstance(value, str) for value in values), bool)
    # Categories may be numbers, which missing ones turn into floats.
    is_number = np.fromiter((isinstance(v, Real) and v == v for v in values), bool)
    is_known = is_text | is_number
    texts = [
        str(float(value) if number else value)
        for value, number in zip(values, is_number, strict=True)
    ]
    return np.array(texts), is_known
