"""A uniform sample of a stream, in constant memory."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Shaped

from budgetjax import _record, _rows
from budgetjax._record import Record
from budgetjax.tables.columns import pack, unpack

# The default size: at most MAX_ROWS rows, at least MIN_ROWS, with as many values
# as go to the device at once.
MAX_ROWS, MIN_ROWS = 8192, 1024


def default_size(num_features: int) -> int:
    """The default number of rows to keep."""
    return max(MIN_ROWS, min(MAX_ROWS, _rows.MAX_NUMBERS // num_features))


def is_sparse(X: np.ndarray) -> bool:
    """Whether these rows are so wide and sparse that a sample should hold them so."""
    is_wide = X.shape[1] > _rows.MAX_NUMBERS // MIN_ROWS
    return bool(is_wide and np.count_nonzero(X) < X.size // 4)


def _join_sparse(*parts: Any) -> Any:
    """The packed rows of parts, each packed, an array or a matrix."""
    import scipy.sparse  # takes a tenth of a second

    rows = [scipy.sparse.csr_array(unpack(part)) for part in parts]
    return pack(scipy.sparse.csr_array(scipy.sparse.vstack(rows)))


@_record.record
class Rows(NamedTuple):
    """Rows of a stream with weights above 0, each with a number, uniform in `[0, 1)`.

    Targets are labels of the algorithm, or have shape `(n,)` or `(n, num_outputs)`. The
    rows are an array, or the parts of a CSR; see `columns.pack`.
    """

    X: Any
    y: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]
    numbers: Float[np.ndarray, " n"]

    def joined(self, other: "Rows") -> "Rows":
        """These rows and others, in the dtypes of these."""
        (X, *rest), (more, *others) = self, other
        pairs = zip(rest, others, strict=True)
        return Rows(
            np.concatenate([X, more.astype(X.dtype)])
            if isinstance(X, np.ndarray)
            else _join_sparse(X, more),
            *(np.concatenate([a, b.astype(a.dtype)]) for a, b in pairs),
        )

    def least(self, size: int) -> "Rows":
        """At most `size` rows with the smallest numbers, in ascending order."""
        order = np.argsort(self.numbers, kind="stable")[:size]
        X, *rest = self
        return Rows(pack(unpack(X)[order]), *(each[order] for each in rest))


class Reservoir(Record):
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
        sparse: bool = False,
    ) -> "Reservoir":
        """A reservoir without rows; `outputs` is the shape of one target.

        With `sparse`, it holds its rows as a CSR array, whatever they are given as.
        """
        X: Any
        X, y = np.zeros((0, num_features), dtype), np.zeros((0, *outputs), y_dtype)
        X = _join_sparse(X) if sparse else X
        none = Rows(X, y, np.zeros(0), np.zeros(0))
        return cls(none, none, size, 0, seed)

    def rows(self) -> Rows:
        """The sample, in random order."""
        return self.kept.joined(self.recent).least(self.size)

    def updated(
        self,
        X: Any,
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
