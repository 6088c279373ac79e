"""Rows, labels and data frames, as river has them."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeAlias

from river.utils import dataframe

# Values by feature; values that are no numbers raise.
Row: TypeAlias = Mapping[Hashable, Any]
# Data frames and series of any library that narwhals knows.
Frame: TypeAlias = Any
Series: TypeAlias = Any
# Labels of any type; river's own are booleans, text and integers.
Label: TypeAlias = Any


def rows_of(X: Frame) -> Iterator[dict[Hashable, float]]:
    """The rows of a data frame, as dictionaries."""
    frame = dataframe.into_frame(X)
    names = frame.columns
    for row in dataframe.to_numpy(frame).tolist():
        yield dict(zip(names, row, strict=True))
