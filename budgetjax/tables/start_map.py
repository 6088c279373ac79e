"""The map of codes from which learning starts: close to the line through each column.

Up to a constant, a column's clipped number is the sum of its codes times the widths of
their bins. So a map of codes is that of the numbers, and one of the codes beside it,

    M = W L + A R,

where W has the widths, one column per column of the table, L maps the numbers, and R
maps the codes, each times its share in the diagonal A. With small shares, kernels see
little but the numbers at first, and learning adds functions of single columns as data
ask for them; with codes alone, equal steps in rank are equal distances. The embedding
"B" of TabM starts in the same way (Gorishniy, Kotelnikov and Babenko 2024, "TabM:
advancing tabular deep learning with parameter-efficient ensembling", appendix D.3,
https://arxiv.org/abs/2410.24210).
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float, Integer

# The share of a code of a single bin, which falls with the root of the bins of its
# column, whose squares add up. The codes of categories and of missing values, beside
# which there is no line, have the share 1; a single code, which is the line, has none.
SHARE = 3.0
# The maximum number of features of a map: more are slower and no more accurate.
WIDEST = 64
# The number of examples for the principal directions from which a map starts.
DIRECTIONS_OF = 4096
# Directions whose variance is a smaller fraction of the largest are those of rounding.
NEGLIGIBLE = 1e-9
# Programs of codes take a multiple of this many columns, so that one serves tables of
# other widths.
COLUMNS = 32


class Lines(NamedTuple):
    """How a map of codes is made of a map of the numbers and one of the codes.

    Attributes:
      column: the column of each code.
      width: its entry of W.
      share: its entry of A.
    """

    column: Integer[np.ndarray, " codes"]
    width: Float[np.ndarray, " codes"]
    share: Float[np.ndarray, " codes"]

    @classmethod
    def of(cls, column: Any, low: Any, high: Any) -> "Lines":
        """Those of the codes of an `Encoding`."""
        column, is_bin = np.asarray(column), low < high
        width = np.where(is_bin, high - low, 0.0)
        # A missing value counts as the centre, which is 0.
        first = np.searchsorted(column, column)
        is_missing = np.isnan(low) & (low[first] < high[first])
        width = np.where(is_missing, -low[first], width)
        bins = np.bincount(column, is_bin)[column]
        share = np.where(bins > 1, SHARE / np.sqrt(np.maximum(bins, 1)), 0.0)
        return cls(column, width, np.where(is_bin, share, 1.0))

    @property
    def num_columns(self) -> int:
        """The number of rows of L, at least that of the columns with codes."""
        last = int(np.max(self.column, initial=0))
        return -(-(last + 1) // COLUMNS) * COLUMNS

    def padded(self, codes: int, dtype: Any) -> "Lines":
        """The same with codes that are 0 in every row, up to this number of codes."""
        more = 0, codes - len(self.column)
        column = np.pad(self.column, more)
        return Lines(column, *(np.pad(a.astype(dtype), more) for a in self[1:]))

    def matrix(self) -> np.ndarray:
        """`[W, A]`, shape `(codes, columns + codes)`."""
        at = np.arange(len(self.column))
        lines = np.zeros((len(at), self.num_columns))
        lines[at, self.column] = self.width
        return np.hstack([lines, np.diag(self.share)])

    def join(self, entries: Any) -> Array:
        """The map of entries, all transposed: those of L, then those of R."""
        columns = entries.shape[1] - len(self.column)
        slopes, own = entries[:, :columns], entries[:, columns:]
        slopes = jnp.take(slopes, self.column, axis=1, mode="clip")
        return self.width[None] * slopes + self.share[None] * own

    def split(self, matrix: np.ndarray) -> np.ndarray:
        """The entries of a map: of all that give it, those of the least squares.

        Codes without a share have the slope of their line.
        """
        columns, rank = self.num_columns, matrix.shape[1]
        shares = np.where(self.share > 0, self.share, 1)
        is_line = (self.share == 0) & (self.width != 0)
        alone = np.bincount(self.column, is_line, columns) > 0
        counts = is_line | ~alone[self.column]
        weights = counts * self.width / shares**2
        slopes, squares = np.zeros((columns, rank)), 1.0 - alone
        np.add.at(slopes, self.column, weights[:, None] * matrix)
        np.add.at(squares, self.column, weights * self.width)
        slopes /= np.where(squares > 0, squares, 1)[:, None]
        own = matrix - self.width[:, None] * slopes[self.column]
        return np.concatenate([slopes, own / shares[:, None]])


def start_map(
    lines: Lines, codes: Float[np.ndarray, "n codes"], rank: int
) -> Float[np.ndarray, "codes rank"]:
    """A map to this number of features: principal directions of rows with these codes.

    They are those of `[W, A]`, scaled so that the mean squared distance stays. With
    fewer directions, the last features are 0. Cost: O(n m^2 + m^3) for m columns and
    codes together, or O(n^2 m + n^3) for fewer rows.
    """
    lift = lines.matrix()
    some = codes.astype(np.float64) @ lift
    some -= some.mean(axis=0)
    found = np.zeros((len(lift), rank))
    is_wide = len(some) < some.shape[1]
    products = some @ some.T if is_wide else some.T @ some
    lengths, directions = principal_directions(products, rank)
    kept = lengths > NEGLIGIBLE * max(lengths.max(initial=0.0), 1e-300)
    lengths, directions = lengths[kept], directions[:, kept]
    if not len(lengths):
        return found
    if is_wide:
        directions = some.T @ (directions / np.sqrt(lengths))
    scale = np.sqrt(np.trace(products) / np.sum(lengths))
    found[:, : len(lengths)] = scale * (lift @ directions)
    return found


def principal_directions(
    products: Float[np.ndarray, "d d"], rank: int
) -> tuple[Float[np.ndarray, " r"], Float[np.ndarray, "d r"]]:
    """The largest eigenvalues, at most `rank`, in falling order, and eigenvectors."""
    width = len(products)
    most = min(rank, width)
    try:
        values, directions = scipy.linalg.eigh(
            products, subset_by_index=(width - most, width - 1)
        )
    except scipy.linalg.LinAlgError:
        # LAPACK's fastest method may fail on equal values, as those of the codes of
        # names that occur once. This one finds all directions.
        values, directions = scipy.linalg.eigh(products, driver="evd")
        values, directions = values[-most:], directions[:, -most:]
    return values[::-1], directions[:, ::-1]
