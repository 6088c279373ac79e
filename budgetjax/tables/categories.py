"""Columns of names in data frames and Arrow tables, as the numbers of their categories.

scikit-learn's `OrdinalEncoder` numbers them too, but needs scikit-learn, and knows a
name in one type only, where a file, a frame and a stream have it in several.
"""

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Integer, Shaped

from budgetjax import _names
from budgetjax._errors import ArgumentError, warn
from budgetjax.tables.columns import HOW_TO_ENCODE, column_names, order_columns

# The names of the categories of every such column, in alphabetical order.
Names: TypeAlias = Sequence[str] | Shaped[np.ndarray, " categories"]
Categories: TypeAlias = Mapping[str, Names]
# The same as a value that hashes.
Pairs: TypeAlias = tuple[tuple[str, tuple[str, ...]], ...]
# Rarer categories than these of a column are as unseen ones, unless they have enough
# rows each: 300 shops of 24 rows were .66 right with 128 of them, and .96 with all. A
# column of 500 names of 6 rows that said nothing took .03 of R2.
MOST_CATEGORIES, MORE_CATEGORIES, ENOUGH_EACH = 128, 1024, 8
# How the names of types begin that pandas, polars and Arrow have for dates.
TIMES = "date", "time", "duration", "period"
# The same of values that are several.
NESTED = "struct", "map", "list", "large_list", "fixed_size_list"
# How those of floats begin, and those of texts that are names, as pandas' categories.
FLOATS = "float", "double", "half"
DICTIONARY = "dictionary"
NAMES = "category", "categorical", "enum", DICTIONARY
# Numbers as text.
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# Zeros in front make a code of a whole number.
CODE = re.compile(r"[+-]?0\d+")
# What stands for a missing number among texts, in lower case.
GAPS = frozenset(
    ("", "?", "-", "--", ".", "*", "#n/a", "n/a", "na", "<na>", "nan", "nat")
    + ("null", "none", "nil", "missing", "unknown")
)
# Texts are numbers if there are so many for each that is neither a number nor a gap.
NUMBERS_PER_ODD = 10
# A warning says how many values are beyond the names that are kept, if more than these.
NOTABLE = 0.01


class Texts(NamedTuple):
    """The values of a column: the distinct names, and the number of each value's.

    A missing value has the number -1. The rows are those where a name comes first.
    """

    names: list[str]
    numbers: Integer[np.ndarray, " n"]
    rows: list[int]

    @property
    def counts(self) -> Integer[np.ndarray, " names"]:
        """How often each name occurs."""
        return np.bincount(self.numbers + 1, minlength=len(self.names) + 1)[1:]


def find(X: Any) -> tuple[Categories, Any]:
    """The categories of columns of names, and the rows as of `to_numbers`.

    Columns of names are those of texts, and of what pandas calls categories. Texts that
    are numbers except for a few, or for signs of a gap such as "?", are numbers, and so
    are those among which some have decimals.

    Raises:
      ValueError: if a column has dates or durations, which have no unit, or other
        things; if names of columns occur twice; or if they are no texts.

    Warns:
      UserWarning: if a column has more names than are kept; and as `to_numbers`.
    """
    names = _column_names(X)
    if names is None and hasattr(X, "set_axis"):
        # scikit-learn remembers columns only by texts.
        named, _ = find(X.set_axis(list(map(str, range(X.shape[1]))), axis=1))
        if named:
            wanted = "have texts as names of its columns, as it has columns of names"
            got = f"{list(X.columns)[:10]}; see X.columns.astype(str)"
            raise ArgumentError("X", wanted, got)
    found: dict[str, Names] = {}
    read = functools.partial(_find_column, found)
    X = _replace_columns(X, names, read, found)
    return found, X


def _find_column(found: dict[str, Names], name: str, column: Any) -> np.ndarray:
    """The numbers of a column, whose categories are added to those found."""
    kind = _kind(column)
    check_type(name, kind)
    is_category = kind.lower().startswith(NAMES)
    if not is_category and not _has_texts(column):
        return _as_numbers(name, column)
    texts = _read_column(column)
    if not is_category and _are_numbers(texts.names):
        return _parse_numbers(name, texts, warns=True)
    found[name] = _most_frequent(name, texts)
    return _to_positions(name, texts, found[name], warns=False)


def check_type(name: str, kind: str) -> None:
    """Raises for a column of dates or durations, which have no unit, or of structures.

    `kind` is the name of its type in pandas, polars or Arrow.
    """
    if kind.lower().startswith(TIMES):
        raise _wrong_type(name, kind, ", such as days")
    if kind.lower().startswith(NESTED):
        raise _wrong_type(name, kind)


def _as_numbers(name: str, column: Any) -> Shaped[np.ndarray, " n"]:
    """The numbers of a column; NaN for missing ones."""
    check_type(name, _kind(column))
    values = np.asarray(column)
    if values.dtype.kind in "biuf":
        return values
    if values.dtype.kind == "c":
        # NumPy would drop the imaginary parts.
        raise _wrong_type(name, str(values.dtype))
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        # There is a value that NumPy does not know as missing, or none of a number.
        known = [value if _is_known(value) else np.nan for value in values]
    others = [value for value in known if not hasattr(value, "__float__")]
    if others:
        raise _wrong_type(name, type(others[0]).__name__)
    return np.array(list(map(float, known)))


def _wrong_type(name: str, kind: str, example: str = "") -> ArgumentError:
    wanted = "have columns of numbers, booleans, texts or categories"
    got = f"{kind} in column {name!r}"
    return ArgumentError("X", wanted, got).advised(f"turn it into numbers{example}")


def as_pairs(categories: Categories) -> Pairs:
    """The categories as a value that hashes, which `dict` turns back."""
    return tuple((name, tuple(map(str, one))) for name, one in categories.items())


def read_rows(
    X: Any,
    names: Sequence[str] | None,
    categories: Categories,
    *,
    warns: bool = True,
) -> Any:
    """The known columns of a data frame in their order as an array of numbers.

    An array, whose columns have no names, is what it is: numbers of categories too.
    """
    if column_names(X) is None:
        return X
    X = order_columns(names, spread_lists(X))
    try:
        known = _column_names(X) or ()
        columns = [_read_numbers(categories, warns, name, X[name]) for name in known]
    except ArgumentError as error:
        raise error.advised(error.advice or HOW_TO_ENCODE) from None
    return np.stack(columns, axis=1)


def check_names(X: Any, categories: Categories) -> None:
    """Raises for rows without names of columns, some of which have categories."""
    if categories and _column_names(X) is None:
        wanted = f"be a data frame, as there are names in {_list_names(categories)}"
        raise ArgumentError("X", wanted, type(X).__name__).advised(
            "pandas.DataFrame(X, columns=model.feature_names_in_) makes one of an "
            "array of these values"
        )


def read_records(
    records: Sequence[Mapping[Any, Any]], names: Sequence[Any], categories: Categories
) -> Float[np.ndarray, "n columns"]:
    """Rows by feature as an array of numbers; a feature that a row lacks is missing."""
    found = np.empty((len(records), len(names)))
    for column, name in enumerate(names):
        values = [record.get(name) for record in records]
        if name in categories:
            texts, known = _read_names(map(_write, values)), categories[name]
            values = _to_positions(name, texts, known, warns=False)
        # None becomes NaN.
        found[:, column] = values
    return found


def to_numbers(X: Any, categories: Categories, *, warns: bool = True) -> Any:
    """The data frame with numbers for names, and for texts that are numbers.

    A missing name is NaN, and one that is no category has the number behind the last.
    Names are compared as texts first. One that is no category is the one category that
    is the same number, whole or true or false, or the same text but for spaces.

    Raises:
      ValueError: if X has no names of columns, where some hold names, or a column of
        numbers has only texts, dates or other things.

    Warns:
      UserWarning: if no value of a column is a category, or texts in a column of
        numbers are none, and so missing.
    """
    check_names(X, categories)
    read = functools.partial(_read_numbers, categories, warns)
    return _replace_columns(X, _column_names(X), read, categories)


def _read_numbers(
    categories: Categories, warns: bool, name: str, column: Any
) -> Shaped[np.ndarray, " n"]:
    """The numbers of a column, or those of its names."""
    if name in categories:
        return _to_positions(name, _read_column(column), categories[name], warns)
    if _has_texts(column):
        return _parse_numbers(name, _read_column(column), warns)
    return _as_numbers(name, column)


def _replace_columns(
    X: Any,
    names: Sequence[str] | None,
    read: Callable[[str, Any], np.ndarray],
    categories: Categories,
) -> Any:
    """The data frame with the numbers that are read from its columns.

    It is the same one if its columns are numbers, or have no names.
    """
    columns = {name: X[name] for name in names or ()}
    numbers = {name: read(name, column) for name, column in columns.items()}
    changed = {
        name: numbers[name]
        for name, column in columns.items()
        if name in categories or np.asarray(column).dtype.kind not in "biuf"
    }
    return _make_frame(X, columns | changed) if changed else X


def spread_lists(X: Any) -> Any:
    """The data frame with a column for each place in the lists of a column.

    Those of `e` are `e[0]`, `e[1]` and so on, as in files.

    Raises:
      ValueError: if lists of a column differ in length, or one is missing.
    """
    names = column_names(X) or ()
    if len(set(names)) < len(names):
        # What needs names refuses these.
        return X
    columns: dict[str, Any] = {}
    for name in names:
        if (kind := _kind(X[name])).lower().startswith("struct"):
            raise _wrong_type(name, kind)
        values = np.asarray(X[name])
        is_plain = values.ndim == 1 and values.dtype.kind != "O"
        known = () if is_plain else (value for value in values if value is not None)
        first: Any = next(iter(known), None)
        if not _is_list(first):
            columns[name] = X[name]
            continue
        for row, value in enumerate(values):
            if not _is_list(value) or len(value) != len(first):
                wanted = f"have lists of {len(first)} in column {name!r}"
                length = f"one of {len(value)}" if _is_list(value) else f"{value!r}"
                raise ArgumentError("X", wanted, f"{length} in row {row}")
        for i, place in enumerate(zip(*values, strict=True)):
            columns[f"{name}[{i}]"] = np.array(place)
    return X if tuple(columns) == names else _make_frame(X, columns)


def _make_frame(X: Any, columns: Mapping[str, Any]) -> Any:
    """A frame of the type of X; Arrow's tables are made by a method."""
    return getattr(type(X), "from_pydict", type(X))(columns)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple | np.ndarray)


def _most_frequent(name: str, texts: Texts) -> Shaped[np.ndarray, " categories"]:
    """The most frequent names of a column, sorted."""
    pairs = sorted(zip(texts.names, texts.counts.tolist(), strict=True))
    most = sorted(pairs, key=lambda pair: -pair[1])[:MORE_CATEGORIES]
    enough = sum(1 for _, count in most if count >= ENOUGH_EACH)
    most = most[: max(MOST_CATEGORIES, enough)]
    share = 1 - sum(count for _, count in most) / max(1, texts.counts.sum())
    if share > NOTABLE:
        hint = f"; pandas.to_numeric(X[{name!r}], errors='coerce') makes numbers of it"
        numbers = sum(1 for one in texts.names if NUMBER.fullmatch(one.strip()))
        warn(
            f"column {name!r} has {len(pairs):,} names, of which the "
            f"{len(most):,} most frequent are kept: {share:.0%} of its values "
            f"count as unseen names{hint * (2 * numbers > len(pairs))}"
        )
    return np.array(sorted(one for one, _ in most), str)


def _to_positions(
    name: str, texts: Texts, values: Names, warns: bool
) -> Float[np.ndarray, " n"]:
    """The positions of names among the categories of a column; NaN for missing ones."""
    positions = _names.find(texts.names, list(map(str, values)))
    if warns and positions and min(positions) == len(values) and len(values):
        rows = int(np.count_nonzero(texts.numbers >= 0))
        # One new name in a few rows is no surprise.
        if len(positions) > 1 or rows >= _names.ENOUGH_ROWS:
            warn(
                f"column {name!r} has none of the names that the model knows, such as "
                f"{str(values[0])!r}: all of its {rows:,} values count as unseen, "
                f"such as {texts.names[0]!r}"
            )
    return np.array([*positions, np.nan])[texts.numbers]


def _parse_numbers(name: str, texts: Texts, warns: bool) -> Float[np.ndarray, " n"]:
    """The numbers that are written in a column; NaN for other texts, with a warning."""
    plain = [text.strip() for text in texts.names]
    keys = [_names.TRUTH.get(text.lower(), text) for text in plain]
    good = [bool(NUMBER.fullmatch(key)) for key in keys]
    numbers = [
        float(key) if is_number else np.nan
        for key, is_number in zip(keys, good, strict=True)
    ]
    if not all(good):
        odd = [i for i, key in enumerate(keys) if not good[i]]
        first = next((i for i in odd if keys[i].lower() not in GAPS), odd[0])
        got = f"{texts.names[first]!r} in row {texts.rows[first]}"
        if keys[first].lower() not in GAPS and not any(good):
            wanted = f"have numbers in column {name!r}"
            raise ArgumentError("X", wanted, got)
        count = texts.counts[odd].sum()
        if warns:
            warn(
                f"column {name!r} has numbers, and {count:,} of its "
                f"{len(texts.numbers):,} values count as missing, such as {got}; of "
                "the type 'category' texts are names"
            )
    return np.array([*numbers, np.nan])[texts.numbers]


def _are_numbers(names: Iterable[str]) -> bool:
    """Whether the texts of a column are numbers, some of which are written otherwise.

    Texts that are all whole numbers are names, such as those of zones, and so are
    those with codes such as 007.
    """
    texts = [name.strip() for name in names]
    numbers = [text for text in texts if NUMBER.fullmatch(text)]
    others = len(texts) - len(numbers)
    gaps = sum(text.lower() in GAPS for text in texts)
    is_plain = not others and all(map(_names.WHOLE.fullmatch, numbers))
    return (
        len(numbers) > 1
        and not is_plain
        and not any(map(CODE.fullmatch, numbers))
        and NUMBERS_PER_ODD * (others - gaps) <= len(numbers)
    )


def _column_names(X: Any) -> tuple[str, ...] | None:
    """The names of the columns, each once; None where they have none."""
    names = column_names(X)
    for name, count in Counter(names or ()).items():
        if count > 1:
            raise ArgumentError(
                "X", "have one column of each name", f"{count} of {name!r}"
            )
    return names


def _list_names(names: Iterable[str]) -> str:
    shown = [repr(name) for name in names]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"column{'s' * (len(shown) > 1)} {', '.join(shown[:3])}{more}"


def _kind(column: Any) -> str:
    """The name of the type of a column of pandas, polars or Arrow."""
    return str(column.dtype if hasattr(column, "dtype") else column.type)


def _read_column(column: Any) -> Texts:
    """The names in a column of a data frame."""
    if _kind(column) == "category":
        # Numbers stay what they are where some are missing.
        values = column.cat.categories
        values = np.asarray(values) if values.dtype.kind == "f" else values.tolist()
        names = [*map(_names.write, values), None]
        return _read_names(names[code] for code in column.cat.codes)
    return _read_names(map(_write, _list_values(column)))


def _read_names(listed: Iterable[str | None]) -> Texts:
    """The names in a list, in which None is a missing one."""
    found: dict[str | None, int] = {None: -1}
    rows: list[int] = []
    numbers: list[int] = []
    for row, name in enumerate(listed):
        if name not in found:
            found[name] = len(rows)
            rows.append(row)
        numbers.append(found[name])
    names = [name for name in found if name is not None]
    return Texts(names, np.array(numbers, int), rows)


def _write(value: Any) -> str | None:
    """The name of a category; None for a missing one."""
    return _names.write(value) if _is_known(value) else None


def _list_values(column: Any) -> Iterable[Any]:
    """The values of a column, whose whole numbers may have more digits than a float."""
    values, kind = np.asarray(column), _kind(column).lower()
    if kind.startswith(FLOATS) or (values.dtype.kind != "f" and DICTIONARY not in kind):
        return values
    # NumPy makes floats of integers where some are missing.
    return column.to_list() if hasattr(column, "to_list") else column.to_pylist()


def _has_texts(column: Iterable[Any]) -> bool:
    """Whether a column has a text, also in bytes."""
    values = np.asarray(column)
    is_plain = values.dtype.kind in "biuf"
    return not is_plain and any(isinstance(value, str | bytes) for value in values)


def _is_known(value: Any) -> bool:
    """Whether this is neither None nor a missing value, which equals nothing."""
    equal = value == value
    return value is not None and isinstance(equal, bool | np.bool_) and bool(equal)
