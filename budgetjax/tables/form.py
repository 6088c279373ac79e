"""The form in which models learn a table: codes of its columns, under a first map."""

import functools
from collections.abc import Sequence

import numpy as np

from budgetjax import _checks, _rows, _threads
from budgetjax._errors import names_errors
from budgetjax.tables import categories, encoding
from budgetjax.tables.columns import column_names, find_column
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.start_map import DIRECTIONS_OF, WIDEST, Lines, start_map

# `benchmarks/tasks/form.py` varies the constants below, and those of `start_map` and of
# `refitting.metric`.
# The bins per column of a table are so many times this power of its rows: 32 of 1,000.
BINS, POWER = 3.2, 1 / 3
# The most bins of a column. Columns of as few values have an edge at every value:
# numbers of states, schools, hours or airports are names in disguise.
MOST_BINS = 128
# The most codes of bins of a table.
MOST_CODES = 1024
# More vectors tell finer functions: the factor of the default gamma for up to 100
# vectors, which grows with the root of their number. Few rows tell coarser ones: it is
# at most a hundredth of their number. Without this limit, 75 tables had 5 percent more
# errors with 50 rows, and 3 with 100. This is for a metric, which leaves out what does
# not count: where none may be learned, 38 tables had 4 percent more errors with 100
# vectors, and a fifth more with 500.
NARROWNESS, NARROWNESS_OF = 2.0, 100
# The features of the map for budgets up to the first number; larger ones have as many
# as any metric has at most.
FEW_VECTORS, RANK = 256, 32


def count_bins(rows: int, columns: int) -> int:
    """The maximum number of bins per column of a table of this size."""
    usual = BINS * rows**POWER
    return int(np.clip(round(min(usual, rows / columns)), 1, MOST_BINS))


def rank_of(budget: int) -> int:
    """The number of features of the map for a model of this budget."""
    return RANK if budget <= FEW_VECTORS else WIDEST


def narrowness(budget: int, rows: int) -> float:
    """The factor of the default gamma for a model of this budget and these rows."""
    # No model has more vectors than rows.
    vectors = min(budget, rows)
    most = NARROWNESS * max(1.0, vectors / NARROWNESS_OF) ** 0.5
    return min(most, rows / NARROWNESS_OF)


@names_errors("fit_encoding")
def fit_encoding(
    X: _rows.RawRows,
    budget: int = 100,
    nominal: Sequence[int | str] = (),
    *,
    num_bins: int | None = None,
    rank: int | None = None,
    num_rows: int | None = None,
    more_to_come: bool = False,
) -> Encoding:
    """Fits the encoding of a table for a model: codes of columns, and their first map.

    The map starts close to the line through each column, the clipped number itself; a
    refit with `learn_metric` learns it. It is what the estimators use.

    Cost: O(n log n) per column, and O(m^3) for m columns and codes together.

    Args:
      X: rows, shape `(n, d)`, finite or NaN; a uniform sample of a stream. Up to 65,536
        rows decide the bins, and up to 4,096 the map.
      budget: the number of support vectors of the model, which decides on the number of
        features.
      nominal: columns of categories, as for `encoding.fit`.
      num_bins: the maximum number of bins of a column; None for a number that grows
        with the cube root of the rows, 32 for 1,000; 0 for clipped numbers alone.
      rank: the number of features; None for 32, or 64 from a budget of 257 on.
      num_rows: the number of rows of which X is a sample; None for those of X.
      more_to_come: as for `encoding.fit`.

    Returns:
      An `Encoding` with a map. Without codes, as all rows are equal, it has none.

    Raises:
      ValueError: as `encoding.fit`.

    Example:
      >>> X = np.random.default_rng(0).normal(size=(1000, 3))
      >>> encoding = bj.fit_encoding(X, budget=50)
      >>> encoding.num_codes, encoding.num_features
      (96, 32)
    """
    found, X = categories.find(categories.spread_lists(X))
    names = column_names(X)
    rows = np.asarray(_checks.array("X", categories.read_rows(X, None, {})))
    n, columns = rows.shape if rows.ndim == 2 else (1, 1)
    if num_bins is None:
        num_bins, values = count_bins(num_rows or n, max(1, columns)), MOST_BINS
    else:
        num_bins, values = _checks.size("num_bins", num_bins, at_least=0), 0
    of_names = [find_column("nominal", one, names, columns) for one in found]
    sample, nominal = rows[:: -(-n // _rows.MAX_ROWS)], [*nominal, *of_names]
    fit = functools.partial(
        encoding.fit, sample, nominal=nominal, more_to_come=more_to_come
    )
    codes = fit(num_bins, max_values=values)
    while values and (count := np.sum(codes.low < codes.high)) > MOST_CODES:
        # Columns of few values have fewer codes than others, so this is not known.
        share = min(0.9, MOST_CODES / count)
        num_bins, values = max(1, int(share * num_bins)), int(share * values)
        codes = fit(num_bins, max_values=values)
    codes = codes._replace(categories=categories.as_pairs(found))
    if not codes.num_codes:
        return codes
    lines = Lines.of(codes.column, codes.low, codes.high)
    most = min(DIRECTIONS_OF, max(1, _rows.MAX_NUMBERS // codes.num_codes))
    some = codes.apply(rows[:: -(-n // most)], np.float64)
    with _threads.one_thread():
        found = start_map(lines, some, rank or rank_of(budget))
    return codes._replace(map=found.astype(np.float32))
