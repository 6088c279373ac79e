"""A uniform sample of a stream, in memory that does not grow."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

# Rows that are kept: at most so many, and what makes so many numbers, but some.
MOST_ROWS, MOST_NUMBERS, FEWEST_ROWS = 8192, 2**22, 1024


class Reservoir(NamedTuple):
    """The rows of the least random numbers among all that have come.

    Every row of the stream is as likely to be here, and any division of the stream
    keeps the same rows.

    Attributes:
      X: shape `(kept, features)`.
      y: labels of the algorithm, or targets, shape `(kept,)`.
      weights: above 0, shape `(kept,)`.
      numbers: drawn for each row, shape `(kept,)`.
      num_rows: rows so far.
      seed: of the numbers.
    """

    X: Float[np.ndarray, "kept features"]
    y: Shaped[np.ndarray, " kept"]
    weights: Float[np.ndarray, " kept"]
    numbers: Float[np.ndarray, " kept"]
    num_rows: int
    seed: int

    @classmethod
    def empty(
        cls, num_features: int, dtype: np.dtype, y_dtype: np.dtype, seed: int
    ) -> "Reservoir":
        """Of no rows."""
        rows, y = np.zeros((0, num_features), dtype), np.zeros(0, y_dtype)
        return cls(rows, y, np.zeros(0), np.zeros(0), 0, seed)

    def updated(
        self,
        X: Float[np.ndarray, "n features"],
        y: Shaped[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
    ) -> "Reservoir":
        """With these rows too; rows of weight 0 are as if they were not there."""
        X, y, weights = (array[weights > 0] for array in (X, y, weights))
        # One number is drawn per row: those of the rows before are skipped.
        draws = np.random.PCG64(self.seed).advance(self.num_rows)
        numbers = np.concatenate(
            [self.numbers, np.random.Generator(draws).random(len(y))]
        )
        most = max(FEWEST_ROWS, min(MOST_ROWS, MOST_NUMBERS // X.shape[1]))
        # In the order of the stream.
        kept = np.sort(np.argsort(numbers, kind="stable")[:most])
        old, new = kept[kept < len(self.y)], kept[kept >= len(self.y)] - len(self.y)

        def joined(before, after):
            return np.concatenate([before[old], after[new]]).astype(before.dtype)

        return Reservoir(
            joined(self.X, X),
            joined(self.y, y),
            joined(self.weights, weights),
            numbers[kept],
            self.num_rows + len(y),
            self.seed,
        )
