"""Columns as codes, before a learner; see `Encoder`."""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
from jaxtyping import Float32
from river import base
from river.utils import dataframe

from budgetjax._errors import names_class
from budgetjax.river.frames import Frame, Row, rows_of
from budgetjax.tables.categories import read_records
from budgetjax.tables.encoding import Encoding


class Encoder(base.MiniBatchTransformer):
    """Columns as codes, before a learner in a pipeline; see `budgetjax.encoding`.

    The encoding is fitted beforehand, on a sample of rows: it does not learn. A feature
    that a row lacks, or that is None, is a missing value, and texts are categories.
    Cost: some 0.1 ms per row, and that of `budgetjax.encoding.Encoding.apply`.

    Args:
      encoding: from `budgetjax.encoding.fit`.
      features: the names of its columns, in their order.

    Example:
      >>> from budgetjax.river import BudgetedClassifier, Encoder
      >>> X = np.array([[0.0, 3.0], [1.0, 5.0], [2.0, 9.0]])
      >>> encoder = Encoder(bj.encoding.fit(X, num_bins=2), ["price", "age"])
      >>> encoder.transform_one({"price": 1.0, "age": 9.0, "other": 7.0})
      {'code 0': 1.0, 'code 1': 0.0, 'code 2': 1.0, 'code 3': 1.0}
      >>> model = encoder | BudgetedClassifier(budget=20)
    """

    def __init__(self, encoding: Encoding, features: Iterable[Hashable]):
        self.encoding, self.features = encoding, list(features)

    @property
    def names(self) -> list[str]:
        """The names of the codes."""
        return [f"code {i}" for i in range(self.encoding.num_features)]

    @names_class
    def transform_one(self, x: Row) -> dict[Any, float]:
        """The codes of a row by name."""
        return dict(zip(self.names, self._codes([x])[0].tolist(), strict=True))

    @names_class
    def transform_many(self, X: Frame) -> Frame:
        """The codes of the rows of a data frame, one column each."""
        frame = dataframe.into_frame(X)
        codes = self._codes([*rows_of(frame)])
        columns = dict(zip(self.names, codes.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _codes(self, rows: list[Row]) -> Float32[np.ndarray, "n codes"]:
        known = dict(self.encoding.categories)
        return self.encoding.apply(read_records(rows, self.features, known))
