"""Columns of data frames by their names, and sparse rows."""

import dataclasses
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._rows import RawRows, SparseMatrix

# What helps where a value is missing, or is text.
HOW_TO_ENCODE = "encode=budgetjax.encoding.fit(X) reads texts and missing values"


def check_finite(X: Any, first_row: int, names: tuple[str, ...] | None) -> None:
    """Raises if a number is missing or infinite in rows that have no codes."""
    try:
        _checks.check_finite(X, first_row, names)
    except ArgumentError as error:
        raise error.advised(HOW_TO_ENCODE * error.got.startswith("nan")) from None


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


@dataclasses.dataclass(frozen=True)
class TableRows:
    """A table of Arrow, of which single rows are arrays of objects."""

    table: Any

    def __getitem__(self, at: np.ndarray) -> np.ndarray:
        columns = [one.to_pylist() for one in self.table.take(at).columns]
        return np.array(columns, object).T

    def with_rows(self, rows: np.ndarray) -> Any:
        """A table with the names and types of this one, of rows of objects."""
        import pyarrow as pa

        columns = zip(rows.T.tolist(), self.table.schema.types, strict=True)
        arrays = [pa.array(values, kind) for values, kind in columns]
        return pa.table(arrays, self.table.schema.names)


def to_table(X: Any) -> Any:
    """A data frame as a table of Arrow; anything else as it is."""
    if column_names(X) is None or (hasattr(X, "schema") and hasattr(X, "take")):
        return X
    import pyarrow as pa

    if hasattr(X, "to_arrow"):
        return X.to_arrow()
    return pa.Table.from_pandas(X, preserve_index=False)


def take_rows(X: Any, at: np.ndarray) -> Any:
    """These rows of an array, a sparse matrix or a table of Arrow."""
    return X[at] if column_names(X) is None else X.take(at)


def join_rows(parts: Sequence[Any]) -> Any:
    """Rows of arrays, or of tables of Arrow, one after the other."""
    if column_names(parts[0]) is None:
        return np.concatenate(parts)
    import pyarrow as pa

    return pa.concat_tables(parts)


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
