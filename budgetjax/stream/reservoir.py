"""A uniform sample of a stream, in memory that does not grow."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

# Usual size: at most so many rows and numbers, and at least so many rows.
MOST_ROWS, MOST_NUMBERS, FEWEST_ROWS = 8192, 2**22, 1024


def usual_size(num_features: int) -> int:
    """The default number of rows to keep."""
    return max(FEWEST_ROWS, min(MOST_ROWS, MOST_NUMBERS // num_features))


class Reservoir(NamedTuple):
    """The rows with the smallest random numbers among all of a stream.

    Every row of the stream is equally likely to be here, and any division of the stream
    into batches keeps the same rows.

    Attributes:
      X: rows in the order of their numbers, shape `(n, features)`, n at most `size`.
      y: labels of the algorithm, or targets, shape `(n,)`.
      weights: above 0, shape `(n,)`.
      numbers: uniform in `[0, 1)`, shape `(n,)`.
      size: number of rows to keep.
      num_rows: number of rows so far.
      seed: seed of the numbers.
    """

    X: Float[np.ndarray, "n features"]
    y: Shaped[np.ndarray, " n"]
    weights: Float[np.ndarray, " n"]
    numbers: Float[np.ndarray, " n"]
    size: int
    num_rows: int
    seed: int

    @classmethod
    def empty(
        cls,
        num_features: int,
        dtype: np.dtype,
        y_dtype: np.dtype,
        *,
        size: int,
        seed: int = 0,
    ) -> "Reservoir":
        """A reservoir without rows."""
        X, y = np.zeros((0, num_features), dtype), np.zeros(0, y_dtype)
        return cls(X, y, np.zeros(0), np.zeros(0), size, 0, seed)

    def updated(
        self,
        X: Float[np.ndarray, "n features"],
        y: Shaped[np.ndarray, " n"],
        weights: Float[np.ndarray, " n"],
    ) -> "Reservoir":
        """The reservoir after more rows; rows of weight 0 do not count.

        Costs a random number per row, and a copy of all rows kept if one enters.
        """
        present = np.flatnonzero(weights > 0)
        # One number is drawn per row: those of the rows before are skipped.
        draws = np.random.PCG64(self.seed).advance(self.num_rows)
        numbers = np.random.Generator(draws).random(len(present))
        enters = numbers < (self.numbers[-1] if len(self.y) == self.size else 1)
        after = self._replace(num_rows=self.num_rows + len(present))
        if not np.any(enters):
            return after
        at, numbers = present[enters], numbers[enters]
        order = np.argsort(np.append(self.numbers, numbers), kind="stable")[: self.size]

        def joined(old: np.ndarray, new: np.ndarray) -> np.ndarray:
            return np.concatenate([old, new.astype(old.dtype, copy=False)])[order]

        return after._replace(
            X=joined(self.X, X[at]),
            y=joined(self.y, y[at]),
            weights=joined(self.weights, weights[at]),
            numbers=joined(self.numbers, numbers),
        )
