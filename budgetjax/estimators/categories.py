"""Columns of names in data frames, as the numbers of their categories."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Float, Integer, Shaped

from budgetjax import _names
from budgetjax._errors import ArgumentError, warn
from budgetjax.tables.columns import column_names

# The names of the categories of every such column, in alphabetical order.
Categories: TypeAlias = Mapping[str, Shaped[np.ndarray, " categories"]]
# Rarer categories than these of a column are as unseen ones, unless they have enough
# rows each: 300 shops of 24 rows were .66 right with 128 of them, and .96 with all. A
# column of 500 names of 6 rows that said nothing took .03 of R2.
MOST_CATEGORIES, MORE_CATEGORIES, ENOUGH_EACH = 128, 1024, 8
# How the names of types begin that pandas, polars and Arrow have for dates.
TIMES = "date", "time", "duration", "period"
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


def find(X: Any) -> Categories:
    """The categories of columns of texts, and of those that pandas calls categories.

    Texts that are numbers except for a few, or for signs of a gap such as "?", are
    numbers, and so are those among which some have decimals.

    Raises:
      ValueError: if a column has dates or durations, which have no unit, or other
        things; if names of columns occur twice; or if they are no texts.

    Warns:
      UserWarning: if a column has more names than are kept.
    """
    names = _column_names(X)
    if names is None and hasattr(X, "set_axis"):
        # scikit-learn remembers columns only by texts.
        named = find(X.set_axis(list(map(str, range(X.shape[1]))), axis=1))
        if named:
            wanted = "have texts as names of its columns, as it has columns of names"
            got = f"{list(X.columns)[:10]}; see X.columns.astype(str)"
            raise ArgumentError("X", wanted, got)
    found = {}
    for name in names or ():
        kind = _kind(X[name])
        if kind.lower().startswith(TIMES):
            _refuse(name, kind, ", such as days")
        is_category, column = kind.lower().startswith(NAMES), np.asarray(X[name])
        if not is_category and column.dtype.kind in "biuf":
            continue
        if not is_category and not _has_texts(column):
            known = filter(_is_known, column)
            others = [value for value in known if not hasattr(value, "__float__")]
            if others:
                _refuse(name, type(others[0]).__name__)
            continue
        texts = _read_column(X[name])
        if is_category or not _are_numbers(texts.names):
            found[name] = _most_frequent(name, texts)
    return found


def to_numbers(X: Any, categories: Categories) -> Any:
    """The data frame with numbers for names, and for texts that are numbers.

    A missing name is NaN, and one that is no category has the number behind the last.
    Names are compared as texts first. One that is no category is the one category that
    is the same number, whole or true or false, or the same text but for spaces.

    Raises:
      ValueError: if X has no names of columns, where some hold names, or a column of
        numbers has only texts.

    Warns:
      UserWarning: if no value of a column is a category, or texts in a column of
        numbers are none, and so missing.
    """
    names = _column_names(X)
    if names is None:
        if categories:
            wanted = f"be a data frame, as there are names in {_list_names(categories)}"
            raise ArgumentError("X", wanted, type(X).__name__).advised(
                "pandas.DataFrame(X, columns=model.feature_names_in_) makes one of an "
                "array of these values"
            )
        return X
    columns = {name: X[name] for name in names}
    changed = {}
    for name, column in columns.items():
        if name in categories:
            changed[name] = _to_positions(name, _read_column(column), categories[name])
        elif np.asarray(column).dtype.kind not in "biuf" and _has_texts(column):
            changed[name] = _parse_numbers(name, _read_column(column))
    if not changed:
        return X
    return _make_frame(X, columns | changed)


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
            _refuse(name, kind)
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
    name: str, texts: Texts, values: Shaped[np.ndarray, " categories"]
) -> Float[np.ndarray, " n"]:
    """The positions of names among the categories of a column; NaN for missing ones."""
    positions = _names.find(texts.names, values.tolist())
    if positions and min(positions) == len(values) and len(values):
        rows = int(np.count_nonzero(texts.numbers >= 0))
        # One new name in a few rows is no surprise.
        if len(positions) > 1 or rows >= _names.ENOUGH_ROWS:
            warn(
                f"column {name!r} has none of the names that the model knows, such as "
                f"{values[0].item()!r}: all of its {rows:,} values count as unseen, "
                f"such as {texts.names[0]!r}"
            )
    return np.array([*positions, np.nan])[texts.numbers]


def _parse_numbers(name: str, texts: Texts) -> Float[np.ndarray, " n"]:
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
            raise ArgumentError("X", f"have numbers in column {name!r}", got)
        count = texts.counts[odd].sum()
        warn(
            f"column {name!r} has numbers, and {count:,} of its {len(texts.numbers):,} "
            f"values count as missing, such as {got}; of the type 'category' texts "
            "are names"
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


def _refuse(name: str, kind: str, example: str = "") -> None:
    raise ArgumentError(
        "X",
        "have columns of numbers, booleans, texts or categories",
        f"{kind} in column {name!r}; turn it into numbers{example}",
    )


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
        listed = [names[code] for code in column.cat.codes]
    else:
        listed = [
            _names.write(v) if _is_known(v) else None for v in _list_values(column)
        ]
    found: dict[str | None, int] = {None: -1}
    rows: list[int] = []
    for row, name in enumerate(listed):
        if name not in found:
            found[name] = len(rows)
            rows.append(row)
    numbers = np.array([found[name] for name in listed], int)
    return Texts([name for name in found if name is not None], numbers, rows)


def _list_values(column: Any) -> Iterable[Any]:
    """The values of a column, whose whole numbers may have more digits than a float."""
    values, kind = np.asarray(column), _kind(column).lower()
    if kind.startswith(FLOATS) or (values.dtype.kind != "f" and DICTIONARY not in kind):
        return values
    # NumPy makes floats of integers where some are missing.
    return column.to_list() if hasattr(column, "to_list") else column.to_pylist()


def _has_texts(column: Iterable[Any]) -> bool:
    """Whether a column has a text, also in bytes."""
    return any(isinstance(value, str | bytes) for value in np.asarray(column))


def _is_known(value: Any) -> bool:
    """Whether this is neither None nor a missing value, which equals nothing."""
    equal = value == value
    return value is not None and isinstance(equal, bool | np.bool_) and bool(equal)
