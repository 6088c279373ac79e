"""The forms of a table in which a model may learn it."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from budgetjax.estimators import inputs
from budgetjax.estimators.inputs import EncodedRows, Features, Rows, Sample
from budgetjax.kernels import Mapped
from budgetjax.refitting import refit
from budgetjax.tables import encoding, scaling
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel

# What to try on a table: bins per column, the factor of the default gamma, and how many
# values of a column may have an edge each. No bins are standardised columns whose
# outliers are clipped. Edges at values took a twentieth or more of the errors on 13 of
# 180 tables, nine tenths on one, where numbers name states, schools, hours or airports.
# With more than 128 values, measured columns had up to 4 percent more: both are tried.
FEW_VALUES, MORE_VALUES = 128, 512
PLAIN = 0, 1.0, 0
TRIED_FOR_LABELS = (
    *(PLAIN, (5, 4.0, 0)),
    *((16, 4.0, FEW_VALUES), (16, 4.0, MORE_VALUES)),
)
TRIED_FOR_NUMBERS = (
    *((0, 4.0, 0), (5, 1.0, 0)),
    *((16, 1.0, FEW_VALUES), (16, 1.0, MORE_VALUES)),
)
# The finest bins, and the number of codes from which on fewer values have an edge, and
# bins are fewer.
FINE = 16, 512
# Those from this number of rows on: 64 bins took 2 to 13 percent of the errors on five
# large tables, but added 1 percent on small ones. Of labels, 128 bins took another 1 to
# 6 percent on three tables; for numbers they were worse by half on one, and on 500,000
# rows of labels they took twice the time for nothing.
MANY_TO_BIN, FINER, FINEST_FOR_LABELS = 30_000, (64, 512), (128, 1024)
# The form of one pass, which tries none. Of standardised columns and those of 0, 5 and
# 16 bins, the last had the fewest errors on 16 of 22 tables, up to half as many as the
# first; edges at values took another three quarters on one. With fewer first rows per
# value, diamonds had 8 percent more errors, and covtype 5.
FORM_OF_STREAM, ROWS_PER_VALUE_OF_STREAM = (FINE[0], 1.0), 20
# With more columns, rows are wide: images, or a table that has few bins per column.
MOST_COLUMNS = 128
# The most codes of a wide table, which tries the first two forms alone.
MOST_CODES_OF_WIDE = 1024
# The first rows of a stream to write as codes. Fewer, of unlike columns, are numbers in
# units of quartiles.
FEWEST_TO_BIN = 1000
# Columns whose deviations differ by up to this factor are learned as they are, too, if
# the largest is in this range: float32 does not hold all squares beyond it.
ALIKE, RAW_RANGE = 10.0, (1e-15, 1e15)
# Forms with one number of features run the same programs. Codes of bins have a multiple
# of the first number, or from few rows, whose programs take longer to compile than to
# run, of the second; columns as single numbers have a multiple of the last.
WIDTHS, FEW_WIDTHS, RAW_WIDTHS, FEW_ROWS = 64, 256, 16, 10_000
# With fewer rows, the plain form is tried as it is: learned without a metric, numbers
# had up to 1.9 times the errors under a narrower kernel.
FEW_TO_DOUBT = 1000
# The maximum number of rows that choose the form. Fewer find too few bins: with 40,960
# of 100,000 rows of covtype, the model was 1.5 points worse.
TRIAL_ROWS = 200_000


class Form(NamedTuple):
    """A form of the rows, in which a model may learn them.

    Attributes:
      encoding: what encodes them; None for the rows as they are.
      num_bins: the maximum number of bins per column; codes need a metric.
      factor: the factor of the default gamma.
      width: the number of features to which rows are padded with zeros.
      padding: how many of these are not counted in the rates of a metric.
    """

    encoding: Encoding | None = None
    num_bins: int = 0
    factor: float = 1.0
    width: int = 0
    padding: int = 0


def fit_form(
    X: Rows,
    nominal: Sequence[int],
    num_bins: int,
    factor: float = 1.0,
    max_values: int = 0,
    *,
    most_codes: int = FINE[1],
    more_to_come: bool = False,
) -> Form:
    """The form of rows with so many bins per column, fitted to a part of them."""
    rows = inputs.to_array(X[:: -(-X.shape[0] // inputs.SAMPLED_ROWS)])
    fit = functools.partial(
        encoding.fit, rows, nominal=nominal, more_to_come=more_to_come
    )
    codes = fit(num_bins, max_values=max_values)
    fewest, _ = FINE
    while max_values > fewest and codes.num_codes > most_codes:
        # Columns of many values have bins like others, before all have fewer.
        num_bins = max(fewest, num_bins // 2) if max_values <= FEW_VALUES else num_bins
        max_values //= 2
        codes = fit(num_bins, max_values=max_values)
    return Form(codes, num_bins, factor, codes.num_features)


def has_one_scale(X: Rows) -> bool:
    """Whether all columns have one scale, and no value is missing."""
    deviations = np.sqrt(Sample(X).variances)
    deviations = deviations[deviations > 0]
    if np.any(np.isnan(inputs.values(X))) or not len(deviations):
        return False
    (least, most), largest = RAW_RANGE, np.max(deviations)
    is_alike = largest <= ALIKE * np.quantile(deviations, 0.25)
    return bool(is_alike and least <= largest <= most)


def list_forms(
    X: Rows,
    nominal: Sequence[int],
    tried: Sequence[tuple[int, float, int]],
    finest: tuple[int, int],
    *,
    pads: bool,
) -> list[Form]:
    """The forms of a table to choose from.

    Args:
      X: the rows.
      nominal: the columns of names.
      tried: as `TRIED_FOR_LABELS`; few rows have one form, of no bins.
      finest: as `FINER`, for many rows.
      pads: whether forms get a common number of features, to share programs.
    """
    rows, features = X.shape
    is_alike = not nominal and has_one_scale(X)
    is_wide = features > MOST_COLUMNS
    if is_wide and is_alike:
        return [Form()]
    if is_wide:
        room = MOST_CODES_OF_WIDE // features
        tried = [
            (min(bins, room), factor, 0)
            for bins, factor, _ in tried[:2]
            if not bins or room > 1
        ]
    if features > rows:
        # Codes need a metric, which so few rows do not determine.
        tried = [form for form in tried if not form[0]]
    num_bins, most_codes = finest if rows <= TRIAL_ROWS else FINER
    if rows < MANY_TO_BIN:
        num_bins, most_codes = FINE
    few = rows < refit.ENOUGH_FOR_METRIC
    if rows < FEW_TO_DOUBT:
        tried = [PLAIN, *([] if few else tried[1:])]
    raw = []
    if is_alike and not few:
        # Beside rows as they are, standardised ones gained nothing on eleven tables.
        (_, factor, _), *tried = tried
        raw = [Form(factor=factor, width=features)]
    encoded = [
        fit_form(
            *(X, nominal, num_bins if values else bins, factor, values),
            most_codes=most_codes,
        )
        for bins, factor, values in tried
    ]
    finest_sizes = [(form.num_bins, form.width) for form in encoded[-2:]]
    if len(finest_sizes) == 2 and finest_sizes[0] == finest_sizes[1]:
        # Their codes are the same, as no column has more values.
        encoded.pop()
    width = max(form.width for form in encoded)
    if not width:
        # All rows are equal.
        return [Form()]
    if few:
        return encoded
    if not pads:
        return [*raw, *encoded]
    numbers = [form for form in encoded if not form.num_bins]
    # All codes have the rates of the most of them.
    codes = [
        form._replace(width=_round_up(width, WIDTHS))
        for form in encoded
        if form.num_bins
    ]
    step = WIDTHS if rows > FEW_ROWS else FEW_WIDTHS
    return _pad([*raw, *numbers], RAW_WIDTHS) + _pad(codes, step)


def strip_padding(model: TableModel, X: Features) -> TableModel:
    """A model of padded rows, for rows as they are."""
    codes = model.scaling
    is_encoded = isinstance(codes, Encoding)
    if is_encoded and codes.map is not None:
        matrix = codes.map[: codes.num_codes]
        return model._replace(scaling=codes._replace(map=matrix))
    if not isinstance(X, EncodedRows):
        return model
    count = codes.num_codes if is_encoded else X.X.shape[1]
    kernel, expansion = model.model.kernel, model.model.expansion
    if isinstance(kernel, Mapped):
        # Of a matrix, columns beyond the number of features are zeros, too.
        matrix = np.asarray(kernel.matrix)
        matrix = matrix[(slice(count),) * matrix.ndim]
        kernel = Mapped(kernel.kernel, jax.device_put(matrix))
    vectors = np.asarray(expansion.vectors)[:, :count]
    vectors, origin = jax.device_put((vectors, np.asarray(expansion.origin)[:count]))
    expansion = expansion._replace(vectors=vectors, origin=origin)
    if isinstance(codes, scaling.Scaling):
        codes = inputs.translation(codes.mean[:count])
    state = model.model._exchange(kernel=kernel)._replace(expansion=expansion)
    return model._replace(model=state, scaling=codes)


def _pad(forms: list[Form], step: int) -> list[Form]:
    """The forms with one number of features, a multiple of this one."""
    width = _round_up(max((form.width for form in forms), default=0), step)
    return [form._replace(width=width, padding=width - form.width) for form in forms]


def _round_up(number: int, step: int) -> int:
    """The least multiple of the step that is not below the number."""
    return -(-number // step) * step
