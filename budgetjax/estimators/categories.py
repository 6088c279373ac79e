"""Columns of names in data frames, as the numbers of their categories."""

from collections import Counter
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
# How the names of types begin that pandas, polars and Arrow have for dates.
TIMES = "date", "time", "duration", "period"


def find(X: Any) -> Categories:
    """The categories of columns of texts, and of those that pandas calls categories.

    Raises:
      ValueError: if a column has dates or durations, which have no unit, or other
        things; if names of columns occur twice; or if they are no texts.
    """
    # Tables of Arrow have none.
    if not hasattr(X, "dtypes"):
        return {}
    names = _column_names(X)
    if names is None and hasattr(X, "set_axis"):
        # scikit-learn remembers columns only by texts.
        named = find(X.set_axis(list(map(str, range(X.shape[1]))), axis=1))
        if named:
            wanted = "have texts as names of its columns, as it has columns of names"
            got = f"{list(X.columns)[:10]}; see X.columns.astype(str)"
            raise ArgumentError("X", wanted, got)
    found = {}
    for name in names or ():
        kind = str(X[name].dtype)
        if kind.lower().startswith(TIMES):
            _refuse(name, kind, ", such as days")
        is_category, column = kind == "category", np.asarray(X[name])
        if not is_category and column.dtype.kind in "biuf":
            continue
        texts, is_known = _read_column(column)
        if not is_category and not any(isinstance(value, str) for value in column):
            others = [v for v in column[is_known] if not hasattr(v, "__float__")]
            if others:
                _refuse(name, type(others[0]).__name__)
            continue
        values, counts = np.unique(texts[is_known], return_counts=True)
        kept = np.argsort(-counts, kind="stable")[:MOST_CATEGORIES]
        found[name] = values[np.sort(kept)]
    return found


def to_numbers(X: Any, categories: Categories) -> Any:
    """The data frame with numbers for names.

    A missing name is NaN, and one that is no category has the number behind the last.
    """
    names = _column_names(X) or ()
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


def _column_names(X: Any) -> tuple[str, ...] | None:
    """The names of the columns, each once; None where they have none."""
    names = raw_rows.column_names(X)
    for name, count in Counter(names or ()).items():
        if count > 1:
            raise ArgumentError(
                "X", "have one column of each name", f"{count} of {name!r}"
            )
    return names


def _refuse(name: str, kind: str, example: str = "") -> None:
    raise ArgumentError(
        "X",
        "have columns of numbers, booleans, texts or categories",
        f"{kind} in column {name!r}; turn it into numbers{example}",
    )


def _read_column(
    column: Any,
) -> tuple[Shaped[np.ndarray, " n"], Bool[np.ndarray, " n"]]:
    """The names in a column, and which are known."""
    values = np.asarray(column, object)
    is_known = np.fromiter((_is_known(value) for value in values), bool)
    # Categories may be numbers, which missing ones turn into floats.
    texts = [str(float(v) if isinstance(v, Real) else v) for v in values]
    return np.array(texts), is_known


def _is_known(value: Any) -> bool:
    """Whether this is neither None nor a missing value, which equals nothing."""
    equal = value == value
    return value is not None and isinstance(equal, bool | np.bool_) and bool(equal)
