"""Columns of a table as codes: piecewise linear, of categories, of missing values.

On tables of unlike columns a kernel of standardised columns is 2 to 15 points behind
boosted trees: counts, prices and angles need different functions, which it cannot
learn. Under a linear map of codes, each column has a piecewise-linear function of its
own, with one slope per bin. A learned metric on codes (`Mapped`) is such a map.

    encoding = bj.encoding.fit(X, num_bins=16)
    codes = encoding.apply(X)

How scikit-learn differs: `KBinsDiscretizer` says only in which bin a value lies, so
that a kernel sees steps; `SplineTransformer(degree=1, knots="quantile")` gives hat
functions of the same knots, which span the same functions of one column, but any two
values more than a bin apart are equally far apart, where codes grow apart with the
ranks between them; `QuantileTransformer` gives one number, the mean of the codes, in
which all bins have the same slope. None of them clips outliers.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Integer, Shaped

from budgetjax import _checks, _rows
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import Record, static
from budgetjax.tables.categories import (
    Pairs,
    as_pairs,
    find,
    read_rows,
    spread_lists,
)
from budgetjax.tables.columns import column_names, find_column
from budgetjax.tables.scaling import PerFeature

__all__ = ["Encoding", "encode", "fit", "importances"]

PerCode = Float[np.ndarray, " codes"]
Features = Float[np.ndarray, "n features"]

# Where the smooth clip ends, in units from the centre.
CLIP = 3.0
# Where codes end, in bins beyond the first one and the last. Without an end, the time
# in a stream leaves the bins of its first rows by hundreds: in one pass over
# electricity prices in time order, 57 percent were right; with it 77.
BEYOND = 3.0
# Farther values are clipped to the same float64.
FARTHEST = 1e9
# Edges are at least so far apart, after the clip: float32 resolves 2e-7 there.
NEAREST = 1e-4
# What stands for a missing value and for an unseen category among `Encoding.numbers`.
MISSING, UNSEEN = -(2.0**100), -(2.0**101)
# The edges of a single code, the clipped number itself.
LINE = np.array([0.0, 1.0])
# Rows per value of a column whose values have an edge each. With 20, tables of 150
# schools or clinics as numbers had two to twenty times the errors.
ROWS_PER_VALUE = 8
# Codes per block on the host: those of a block fit in a CPU's cache, and products with
# a map are faster on more.
BLOCK, PRODUCT = 2**17, 2**20


class Encoding(Record):
    r"""Columns of raw rows as codes; `fit` makes one.

    A number x is clipped smoothly, `v / sqrt(1 + (v / 3)^2)` of `v = (x - centre) /
    unit`, and has one code per bin of its column: 0 below the bin, 1 above it, and
    linear inside; it goes on for three bins below the first one and above the last. A
    column of categories has one code per value, 1 for that value, and all are 0 for an
    unseen one. A missing value (NaN) has the codes 0 and a code of its own, if its
    column lacked values in fitting; else it counts as the centre, or as an unseen
    category. A column with one value has no codes, except in a stream.

    Attributes:
      centre: the median of every column, shape `(num_columns,)`.
      unit: the distance of its quartiles; its standard deviation where that is 0.
      lacks: whether values were missing, shape `(num_columns,)`.
      column: the column of every code, in ascending order, shape `(num_codes,)`.
      low: the lower edge of the code's bin, after the clip; the value of a category;
        NaN for the code of missing values, the last one of its column.
      high: the upper edge; for a category its value, as `low`.
      map: a matrix by which codes are multiplied, shape `(num_codes, r)`, such as a
        learned metric; None for the codes themselves.
      categories: the columns of texts, each with its names in order. In a data frame or
        Arrow table these columns hold names, in an array their numbers.
    """

    centre: PerFeature
    unit: PerFeature
    lacks: Bool[np.ndarray, " features"]
    column: Integer[np.ndarray, " codes"]
    low: PerCode
    high: PerCode
    map: Float[np.ndarray, "codes r"] | None = None
    categories: Pairs = static(default=())

    @property
    def num_columns(self) -> int:
        """The number of raw columns."""
        return self.centre.shape[-1]

    @property
    def num_codes(self) -> int:
        """The number of codes of a row."""
        return self.column.shape[-1]

    @property
    def num_features(self) -> int:
        """The number of features of a row: of codes, or of columns of the map."""
        return self.num_codes if self.map is None else self.map.shape[-1]

    def transform(self, X: ArrayLike) -> Float[Array, "n features"]:
        """The features of `apply` under `jax.jit`; see `encode`."""
        return encode(self, X)

    def edges(self, column: int) -> np.ndarray:
        """The edges of the bins of a column in its own unit, or its categories."""
        of = (self.column == column) & ~np.isnan(self.low)
        low, high = self.low[of], self.high[of]
        if np.all(low == high):
            return low
        clipped = np.append(low, high[-1])
        # The inverse of the clip, which has lost the digits of very far edges.
        v = clipped / np.sqrt(np.maximum(1 - np.square(clipped / CLIP), 1e-18))
        return self.centre[column] + self.unit[column] * v

    def undone(self, v: Features) -> Features:
        """Raw rows, from numbers in units from the centre, before the clip."""
        return self.centre[None] + self.unit[None] * v

    def apply(
        self, X: _rows.RawRows, dtype: DTypeLike = np.float32, *, first_row: int = 0
    ) -> Features:
        """The features of raw rows; O(n (d T + num_codes r)) for T bins per column.

        It runs on the host, in float64; see `encode` for the same inside `jax.jit`.
        Adding up the two rows of the map between which each value lies would take a
        T-th of the operations of the product with the map, but was 6 to 20 times slower
        for 10 to 500 columns of 8 or 16 bins.

        Args:
          X: shape `(n, num_columns)`, finite or NaN; a data frame may hold names.
          dtype: the dtype of the result.
          first_row: the number of the first row, for error messages.

        Returns:
          Shape `(n, num_features)`.

        Raises:
          ValueError: if X has another number of columns, or infinity.
        """
        rows = self._read(X, first_row)
        self = jax.tree.map(np.asarray, self)
        _rows.check_shape(rows.shape, self.num_columns)
        found = np.empty((len(rows), self.num_features), dtype)
        width = max(1, self.num_codes)
        if self.map is not None:
            # In single precision, the features of a row would depend on how many there
            # are beside it, by whose number libraries order the sums.
            matrix, size = np.asarray(self.map, np.float64), -(-PRODUCT // width)
            unmapped = self._replace(map=None)
            for start in range(0, len(rows), size):
                codes = unmapped.apply(rows[start : start + size], np.float64)
                found[start : start + size] = codes @ matrix
            return found
        size = -(-BLOCK // width)
        coder, clip = Coder.of(self), Clip.of(self)
        for start in range(0, len(rows), size):
            block = rows[start : start + size].astype(np.float64)
            found[start : start + size] = coder.write(clip.numbers(block))
        return found

    def numbers(
        self,
        X: _rows.RawRows,
        dtype: DTypeLike = np.float32,
        width: int = 0,
        *,
        first_row: int = 0,
    ) -> Features:
        """One small number per column, of which `Coder.write` makes the codes.

        They take the room of raw rows, and programs make the codes anew in every pass,
        faster than the host would read them. They are the clipped numbers, or the rank
        of a category, or `MISSING`, or `UNSEEN`. The arguments and errors are those of
        `apply`; zeros follow the columns, up to `width`.
        """
        rows = self._read(X, first_row)
        self = jax.tree.map(np.asarray, self)
        _rows.check_shape(rows.shape, columns := self.num_columns)
        found = np.zeros((len(rows), max(width, columns)), dtype)
        clip, size = Clip.of(self), -(-BLOCK // max(1, columns))
        for start in range(0, len(rows), size):
            block = rows[start : start + size].astype(np.float64)
            numbers = clip.numbers(block)
            for column in np.flatnonzero(clip.is_nominal):
                numbers[:, column] = _ranks(self.edges(int(column)), numbers[:, column])
            found[start : start + size, :columns] = numbers
        return found

    def _read(self, X: _rows.RawRows, first_row: int) -> np.ndarray:
        """Rows as an array of numbers, finite or NaN."""
        known = dict(self.categories)
        return _check_rows(read_rows(X, None, known), first_row)


@names_errors("encode")
def encode(encoding: Encoding, X: Shaped[ArrayLike, "*n d"]) -> Float[Array, "*n r"]:
    """The features of raw rows, as `Encoding.apply`, under `jit`, `vmap` and `grad`.

    Cost: O(n (d T + num_codes r)). Numbers are rounded to the dtype of X, so that codes
    of float32 rows have an absolute error of some 1e-7 divided by the width of their
    bin. An encoding that is closed over, not an argument of the traced function, keeps
    the digits of `centre`, for rows far from 0.

    Args:
      encoding: its arrays may be traced, and stacked by `jax.vmap`.
      X: a row, shape `(num_columns,)`, or rows, shape `(n, num_columns)`.

    Returns:
      Shape `(num_features,)` or `(n, num_features)`.

    Example:
      >>> encoding = bj.encoding.fit(np.array([[0.0], [1.0], [2.0], [4.0]]), num_bins=3)
      >>> bj.encoding.encode(encoding, jnp.array([1.0])).tolist()
      [1.0, 0.0, 0.0]
    """
    rows = jnp.asarray(_checks.array("X", X))
    if rows.shape[-1:] != (encoding.num_columns,):
        expected = f"have {encoding.num_columns} columns, as in fitting"
        raise ArgumentError("X", expected, f"shape {rows.shape}")
    if not jnp.issubdtype(rows.dtype, jnp.floating):
        rows = rows.astype(float)
    matrix = rows[None] if rows.ndim == 1 else rows
    codes = Coder.of(encoding, rows.dtype).write(Clip.of(encoding).numbers(matrix))
    if encoding.map is not None:
        weights = jnp.asarray(encoding.map, codes.dtype)
        codes = jnp.matmul(codes, weights, precision="highest")
    return codes[0] if rows.ndim == 1 else codes


class Clip(NamedTuple):
    """How raw columns become small numbers, of which a `Coder` makes codes.

    Attributes:
      centre, unit, lacks: those of the encoding.
      is_nominal: whether each column has categories.
    """

    centre: Any
    unit: Any
    lacks: Any
    is_nominal: Any

    @classmethod
    def of(cls, encoding: Encoding) -> "Clip":
        """That of an encoding, whose arrays may be traced."""
        of_value = encoding.low == encoding.high
        columns = np.arange(encoding.num_columns)[:, None]
        of_column = (encoding.column[None] == columns) & of_value[None]
        is_nominal = _namespace(of_column).any(of_column, axis=1)
        return cls(encoding.centre, encoding.unit, encoding.lacks, is_nominal)

    def numbers(self, X: Any) -> Any:
        """Clipped numbers, categories, `MISSING` and `UNSEEN`, in the dtype of X."""
        numpy = _namespace(X)
        missing, lacks = numpy.isnan(X), self.lacks[None]
        centre, unit = self.centre[None], self.unit[None].astype(X.dtype)
        first_digits = centre.astype(X.dtype)
        more_digits = (centre - first_digits).astype(X.dtype)
        v = numpy.where(missing, 0, (X - first_digits - more_digits) / unit)
        category = numpy.where(missing, UNSEEN, X)
        numbers = numpy.where(self.is_nominal[None], category, _clip(v))
        return numpy.where(missing & lacks, MISSING, numbers)


class Coder(NamedTuple):
    """How codes are written: as lines, or 1 for a value; each has an entry per code.

    In a program their shapes and dtypes alone decide what runs, so one serves many
    tables.

    Attributes:
      column: the column of the number.
      start, slope, floor, ceiling: a code is `(number - start) * slope` from the floor
        to the ceiling.
      value: the number whose code is 1, for categories and missing values; else NaN.
    """

    column: Any
    start: Any
    slope: Any
    floor: Any
    ceiling: Any
    value: Any

    @classmethod
    def of(
        cls, encoding: Encoding, dtype: DTypeLike = np.float64, width: int = 0
    ) -> "Coder":
        """That of an encoding, for raw categories, or for their ranks with a width.

        Codes that are 0 follow, up to the width.
        """
        numpy = jnp if _checks.is_traced(encoding) else np
        column, low, high = encoding.column, encoding.low, encoding.high
        is_bin, codes = low < high, column.shape[-1]
        changes, end = column[1:] != column[:-1], np.ones(1, bool)
        is_first = numpy.concatenate([end, changes])[:codes]
        is_last = numpy.concatenate([changes | ~is_bin[1:], end])[:codes]
        known = low
        if width:
            known = np.arange(codes) - np.searchsorted(column, column)
        every = (
            numpy.where(is_bin, low, 0),
            1 / numpy.where(is_bin, high - low, 1),
            numpy.where(is_first, -BEYOND, 0),
            numpy.where(is_last, 1 + BEYOND, 1),
            numpy.where(is_bin, np.nan, numpy.where(low == high, known, MISSING)),
        )
        more = (0, max(0, width - codes))
        start, slope, floor, ceiling = (
            numpy.pad(leaf.astype(dtype), more) for leaf in every[:4]
        )
        value = numpy.pad(every[4].astype(dtype), more, constant_values=np.nan)
        return cls(numpy.pad(column, more), start, slope, floor, ceiling, value)

    def write(self, numbers: Any) -> Any:
        """The codes of `Encoding.numbers`, by NumPy or JAX; O(n num_codes).

        In float32, rounding moves a code by some 1e-7 divided by the width of its bin.
        """
        numpy = _namespace(numbers)
        column, start, slope, floor, ceiling, value = (leaf[None] for leaf in self)
        given = numpy.take(numbers, column[0], axis=-1, mode="clip")
        # In place for NumPy.
        codes = given - start
        codes *= slope
        codes = numpy.clip(codes, floor, ceiling)
        if _checks.is_traced(self) or not np.all(np.isnan(value)):
            flags = (given == value).astype(codes.dtype)
            codes = numpy.where(given == MISSING, 0, codes)
            codes = numpy.where(numpy.isnan(value), codes, flags)
        return codes


def _namespace(array: Any) -> Any:
    """The functions of an array: those of NumPy or of JAX."""
    return np if isinstance(array, np.ndarray | np.generic) else jnp


def _ranks(values: np.ndarray, given: np.ndarray) -> np.ndarray:
    """The index of each number among ascending values; others, as they are, are none.

    Categories of many digits stay apart in float32.
    """
    at = np.minimum(np.searchsorted(values, given), len(values) - 1)
    others = np.where(given == MISSING, MISSING, UNSEEN)
    return np.where(values[at] == given, at, others)


@names_errors("encoding.fit")
def fit(
    X: _rows.RawRows,
    num_bins: int = 16,
    nominal: Sequence[int | str] = (),
    *,
    max_values: int = 0,
    more_to_come: bool = False,
) -> Encoding:
    """Fits the codes of every column to rows: medians, quartiles and quantiles.

    The edges of bins are quantiles of the column, equally far apart in rank; equal ones
    count once. A column of at most `num_bins + 1` values has an edge at every value.

    Cost: O(n log n) per column.

    Args:
      X: rows, shape `(n, d)`, finite or NaN, which is a missing value. Columns of texts
        in a data frame or Arrow table, and those of the type `category`, are names of
        categories. The 128 most frequent are kept, or the 1,024 most frequent with 8
        rows each. For a stream, a uniform sample: with 8,192 rows, as
        in the reservoir of `fit_stream`, the share of the stream below an edge is off
        by 0.0055 (one standard deviation, at the median), and all are within 0.015 with
        a probability of 95 % (Massart 1990).
      num_bins: the maximum number of bins of a column. Few, such as 5, are safer where
        the noise is large. 0 for a single code per column, the clipped number itself.
      max_values: a column of at most this many values has an edge at every value, as
        long as there are 8 rows per value, whatever `num_bins` is: numbers of places,
        of hours or of products are names in disguise.
      nominal: other columns whose numbers are names of categories, by number, or by
        name if X is a data frame.
      more_to_come: whether the rows are the first of a stream, in which a column that
        has one value so far may change: it gets a single code, its clipped difference
        from that value.

    Raises:
      ValueError: if X has no rows, has infinity, or differences that float64 cannot
        hold; or `nominal` has an unknown column.

    Example:
      >>> X = np.array([[0.0, 7.0], [1.0, 9.0], [2.0, 7.0], [3.0, np.nan]])
      >>> encoding = bj.encoding.fit(X, num_bins=2, nominal=[1])
      >>> encoding.edges(0).round(3).tolist(), encoding.edges(1).tolist()
      ([0.0, 1.5, 3.0], [7.0, 9.0])
      >>> encoding.apply(X)[3].tolist()  # two bins; 7, 9, and missing
      [1.0, 1.0, 0.0, 0.0, 1.0]

    References:
      Gorishniy, Rubachev and Babenko (2022), "On embeddings for numerical features in
      tabular deep learning", section 3.2.1, https://arxiv.org/abs/2203.05556.

      Holzmueller, Grinsztajn and Steinwart (2024), "Better by default: strong
      pre-tuned MLPs and boosted trees on tabular data", for the smooth clip,
      https://arxiv.org/abs/2407.04491.

      Massart (1990), "The tight constant in the Dvoretzky-Kiefer-Wolfowitz
      inequality", https://doi.org/10.1214/aop/1176990746.

    Differences from the papers: numbers are clipped before their quantiles are taken, a
    column of few values has an edge per value, and codes end three bins beyond the
    first one and the last. Edges closer than 1e-4 of the unit count once, since float32
    does not resolve them.
    """
    _checks.check_not_traced(X)
    found, X = find(spread_lists(X))
    names = column_names(X)
    num_bins = _checks.size("num_bins", num_bins, at_least=0)
    max_values = _checks.size("max_values", max_values, at_least=0)
    keeps = _checks.flag("more_to_come", more_to_come)
    rows = _check_rows(read_rows(X, None, {}), 0)
    if rows.ndim != 2 or not len(rows):
        raise ArgumentError("X", "have shape (n, d), with at least one row", rows.shape)
    of_categories = {
        find_column("nominal", one, names, rows.shape[1]) for one in (*nominal, *found)
    }
    centre, unit = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    lacks, codes = np.zeros(rows.shape[1], bool), [(np.zeros(0),) * 3]
    for j, values in enumerate(rows.T):
        ordered = np.sort(values.astype(np.float64))  # NaN come last
        known = ordered[: len(ordered) - np.count_nonzero(np.isnan(ordered))]
        lacks[j] = 0 < len(known) < len(ordered)
        if not len(known):
            continue
        if j in of_categories:
            low = high = _distinct(known) if known[0] < known[-1] else known[:0]
        else:
            centre[j], unit[j] = _centre_and_unit(known, j)
            enough = min(max_values, len(known) // ROWS_PER_VALUE)
            edges = _find_edges(known, centre[j], unit[j], num_bins, enough)
            edges = LINE if keeps and len(edges) == 1 else edges
            low, high = edges[:-1], edges[1:]
        indicator = np.full(int(lacks[j]), np.nan)
        both = [np.append(edge, indicator) for edge in (low, high)]
        codes.append((np.full(len(both[0]), j), *both))
    column, low, high = map(np.concatenate, zip(*codes, strict=True))
    return Encoding(
        *(centre, unit, lacks, column.astype(np.int32), low, high),
        categories=as_pairs(found),
    )


def _check_rows(X: Any, first_row: int) -> np.ndarray:
    """Rows as an array, finite or NaN."""
    rows = np.asarray(_checks.array("X", X))
    if rows.dtype.kind == "f" and np.any(infinite := np.isinf(rows)):
        row, column = (int(at[0]) for at in np.nonzero(infinite))
        got = f"{rows[row, column]} in row {first_row + row}, column {column}"
        raise ArgumentError("X", "be finite, or NaN for a missing value", got)
    return rows


def _distinct(ordered: np.ndarray) -> np.ndarray:
    """The distinct numbers, of numbers in ascending order."""
    return ordered[np.append(True, ordered[1:] > ordered[:-1])]


def _quantiles(ordered: np.ndarray, levels: Any) -> np.ndarray:
    """Quantiles of numbers in ascending order, linear between them."""
    at = np.asarray(levels) * (len(ordered) - 1)
    below = np.floor(at).astype(int)
    above = np.minimum(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])


def _centre_and_unit(ordered: np.ndarray, column: int) -> tuple[float, float]:
    """The median, and the distance of the quartiles, or the standard deviation."""
    least, greatest = ordered[0], ordered[-1]
    with np.errstate(over="ignore"):
        spread = greatest - least
    if not np.isfinite(spread):
        got = f"{least} and {greatest} in column {column}"
        raise ArgumentError("X", "have differences that float64 can hold", got)
    lower, centre, upper = _quantiles(ordered, [0.25, 0.5, 0.75])
    if upper > lower or not spread:
        return centre, upper - lower if spread else 1.0
    # Squares of the values may overflow.
    return centre, spread * np.std((ordered - centre) / spread)


def _clip(v: Any) -> Any:
    """Numbers in units from the centre, clipped smoothly at `CLIP`."""
    numpy = _namespace(v)
    v = numpy.clip(v, -FARTHEST, FARTHEST)
    return v / numpy.sqrt(1 + numpy.square(v / CLIP))


def _find_edges(
    ordered: np.ndarray, centre: float, unit: float, num_bins: int, max_values: int
) -> np.ndarray:
    """The edges of the bins of a column, after the clip."""
    places = _distinct(ordered)
    if not num_bins and len(places) > 1:
        return LINE
    if len(places) > max(num_bins + 1, max_values):
        places = _quantiles(ordered, np.linspace(0, 1, num_bins + 1))
    first, *others = _clip((places - centre) / unit)
    kept = [first]
    for edge in others:
        if edge - kept[-1] >= NEAREST:
            kept.append(edge)
    return np.array(kept)


@names_errors("importances")
def importances(encoding: Encoding, X: _rows.RawRows) -> Float[np.ndarray, " d"]:
    """The share of every column in the features: of their variances over rows.

    For a learned map it is how much a column moves rows in the space of the kernel, so
    how much the model attends to it. Features of a column are its codes times its rows
    of the map; correlations between columns do not count. Cost: O(n num_codes r).

    Args:
      encoding: that of a model, with its learned map.
      X: raw rows, such as a sample of the training set, shape `(n, num_columns)`.

    Returns:
      Shape `(num_columns,)`, with sum 1; zeros if the features of all rows are equal.

    Example:
      >>> X = np.random.default_rng(0).normal(size=(100, 2))
      >>> encoding = bj.encoding.fit(X, num_bins=4)
      >>> only_second = (encoding.column == 1)[:, None] * np.ones((8, 3))
      >>> bj.encoding.importances(encoding._replace(map=only_second), X).tolist()
      [0.0, 1.0]
    """
    return shares(encoding, encoding._replace(map=None).apply(X, np.float64))


def shares(
    encoding: Encoding, codes: Float[np.ndarray, "n codes"]
) -> Float[np.ndarray, " d"]:
    """The importances in rows with these codes."""
    variances = np.zeros(encoding.num_columns)
    for column in range(encoding.num_columns):
        of = encoding.column == column
        part = codes[:, of]
        if encoding.map is not None:
            part = part @ np.asarray(encoding.map, np.float64)[of]
        variances[column] = np.sum(np.var(part, axis=0))
    return variances / (np.sum(variances) or 1.0)
