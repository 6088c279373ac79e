"""Columns of data frames by their names, and sparse rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from budgetjax import _rows
from budgetjax._errors import ArgumentError
from budgetjax._rows import RawRows, SparseMatrix


def column_names(X: RawRows) -> tuple[str, ...] | None:
    """The names of the columns of a data frame or an Arrow table, if it has any."""
    for attribute in ("columns", "column_names"):
        names: tuple[Any, ...] = tuple(getattr(X, attribute, ()))
        if names and all(isinstance(name, str) for name in names):
            return names
    return None


def check_columns(known: Sequence[str], names: Sequence[str] | None) -> None:
    """Raises if a known column is missing among these names."""
    lacks = [] if names is None else [name for name in known if name not in names]
    if lacks:
        got = f"one without {', '.join(map(repr, lacks[:10]))}"
        raise ArgumentError("X", "have the columns that the model was trained on", got)
    # Places of a list are columns, `e[0]` and so on; a longer list is something else.
    for name, length in Counter(one.rpartition("[")[0] for one in known).items():
        ends = {f"{name}[0]", f"{name}[{length - 1}]"}
        if names and length > 1 and ends <= set(known) and f"{name}[{length}]" in names:
            wanted = f"have lists of {length} in {name!r}, as the model was trained on"
            raise ArgumentError("X", wanted, "longer ones")


def order_columns(known: Sequence[str] | None, X: Any) -> Any:
    """The known columns of a data frame or an Arrow table, in the known order."""
    names = None if known is None else column_names(X)
    if known is None or names is None:
        return X
    check_columns(known, names)
    # Arrow and polars have `select`; pandas does not.
    return X.select(list(known)) if hasattr(type(X), "select") else X[list(known)]


def as_matrix(X: Any, num_features: int, names: Sequence[str] | None = None) -> Any:
    """Rows as an array or a CSR matrix, with the named columns, of a checked shape."""
    return _rows.as_matrix(order_columns(names, X), num_features)


def find_column(
    argument: str, column: int | str, names: Sequence[str] | None, num_columns: int
) -> int:
    """The number of a column, given by its number or name in an argument."""
    if names is not None and column in names:
        return list(names).index(str(column))
    if isinstance(column, int | np.integer) and 0 <= column < num_columns:
        return int(column)
    named = ", as columns have no names"
    if names is not None:
        named = f" or one of {', '.join(names[:10])}"
    expected = f"be a number below {num_columns}{named}"
    raise ArgumentError(argument, expected, repr(column))


def to_dense(X: Any, dtype: np.dtype) -> np.ndarray:
    """An array, or a few rows of a sparse matrix, as an array of this dtype."""
    if not isinstance(X, SparseMatrix):
        return np.asarray(X, dtype)
    # Cast while it is small.
    return X.tocsr().astype(dtype).toarray()


def pack(X: Any) -> Any:
    """Rows as arrays alone, which model files hold; a matrix as the parts of a CSR."""
    if isinstance(X, np.ndarray):
        return X
    return X.data, np.asarray(X.indices), np.asarray(X.indptr), X.shape[1]


def unpack(packed: Any) -> Any:
    """The rows that `pack` was given."""
    if not isinstance(packed, tuple):
        return packed
    import scipy.sparse  # takes a tenth of a second

    *parts, columns = packed
    return scipy.sparse.csr_array(tuple(parts), shape=(len(parts[2]) - 1, columns))
