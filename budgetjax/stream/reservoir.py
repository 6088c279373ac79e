"""A uniform sample of a stream, in constant memory."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from budgetjax import _pytree

# The default size: at most MAX_ROWS rows and MAX_NUMBERS values, at least MIN_ROWS
# rows.
MAX_ROWS, MAX_NUMBERS, MIN_ROWS = 8192, 2**22, 1024


def default_size(num_features: int) -> int:
    """The default number of rows to keep."""
    return max(MIN_ROWS, min(MAX_ROWS, MAX_NUMBERS // num_features))


@_pytree.record
class Rows(NamedTuple):
    """Rows of a stream with weights above 0, each with a number, uniform in `[0, 1)`.

    Targets are labels of the algorithm, or have shape `(n,)` or `(n, num_outputs)`.
    """

    X: Float[np.ndarray, "n features"]
    y: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]
    numbers: Float[np.ndarray, " n"]

    def joined(self, other: "Rows") -> "Rows":
        """These rows and others, in the dtypes of these."""
        pairs = zip(self, other, strict=True)
        return Rows(*(np.concatenate([a, b.astype(a.dtype)]) for a, b in pairs))

    def least(self, size: int) -> "Rows":
        """At most `size` rows with the smallest numbers, in ascending order."""
        order = np.argsort(self.numbers, kind="stable")[:size]
        return Rows(*(each[order] for each in self))


@_pytree.record
class Reservoir(NamedTuple):
    """The rows of a stream with the smallest random numbers, a uniform sample.

    Any division of the stream into batches keeps the same rows. Of `num_rows` rows so
    far, at most `size` are `kept`, sorted by their numbers. Up to half as many later
    rows, which may replace some of them, are `recent`.
    """

    kept: Rows
    recent: Rows
    size: int
    num_rows: int
    seed: int

    @classmethod
    def empty(
        cls,
        num_features: int,
        dtype: np.dtype,
        y_dtype: np.dtype,
        outputs: tuple[int, ...] = (),
        *,
        size: int,
        seed: int = 0,
    ) -> "Reservoir":
        """A reservoir without rows; `outputs` is the shape of one target."""
        X, y = np.zeros((0, num_features), dtype), np.zeros((0, *outputs), y_dtype)
        none = Rows(X, y, np.zeros(0), np.zeros(0))
        return cls(none, none, size, 0, seed)

    def rows(self) -> Rows:
        """The sample, in random order."""
        return self.kept.joined(self.recent).least(self.size)

    def updated(
        self,
        X: Float[np.ndarray, "n features"],
        y: Shaped[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
    ) -> "Reservoir":
        """The reservoir after more rows; rows of weight 0 do not count."""
        present = np.flatnonzero(weights > 0)
        # One number is drawn per row; those of earlier rows are skipped.
        draws = np.random.PCG64(self.seed).advance(self.num_rows)
        numbers = np.random.Generator(draws).random(len(present))
        kept, recent = self.kept, self.recent
        is_full = len(kept.y) == self.size
        enters = numbers < (kept.numbers[-1] if is_full else 1)
        if np.any(enters):
            at = present[enters]
            recent = recent.joined(Rows(X[at], y[at], weights[at], numbers[enters]))
        if len(recent.y) > self.size // 2:
            kept = kept.joined(recent).least(self.size)
            recent = recent.least(0)
        total = self.num_rows + len(present)
        return self._replace(kept=kept, recent=recent, num_rows=total)
