"""Names of categories, which are the same in every type that a table has for them."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import numpy as np

# Whole numbers as text; they may end in ".0", as those of a column with gaps do.
WHOLE = re.compile(r"([+-]?\d{1,300})(\.0*)?")
# From this number of rows on, a column without any known name is no chance.
ENOUGH_ROWS = 10
TRUTH = {"true": "1", "false": "0"}


def write(value: Any) -> str:
    """The name of a category, the same one for a number of any type and as text."""
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(getattr(value, "left", None), int | np.integer):
        # Where some are missing, pandas makes intervals of integers ones of floats.
        value = type(value)(float(value.left), float(value.right), value.closed)
    if isinstance(value, Decimal):
        return str(int(value) if value == value.to_integral_value() else value)
    if not isinstance(value, float | np.floating) or not value.is_integer():
        return str(value)
    # Beyond its digits a float stands for several whole numbers, so it is none of them.
    if abs(value) >= 2.0 ** (np.finfo(type(value)).nmant + 1):
        return np.format_float_scientific(value, trim="-")
    return str(int(value))


def find(names: Iterable[str], known: Sequence[str]) -> list[int]:
    """The position of each name among the known ones; their number for others.

    Names are compared as texts first. One that is not known is the only known name that
    is the same whole number or boolean, or the same text except for spaces around it.
    """
    places = {name: i for i, name in enumerate(known)}
    alike: dict[str, list[int]] = defaultdict(list)
    for name, i in places.items():
        alike[_key(name)].append(i)
    found = []
    for name in names:
        same = alike.get(_key(name), []) if name not in places else []
        found.append(same[0] if len(same) == 1 else places.get(name, len(known)))
    return found


def _key(name: str) -> str:
    """What a name shares with the same one in other types, and with other spaces."""
    text = name.strip()
    whole = WHOLE.fullmatch(text)
    if whole and not (whole[2] and abs(int(whole[1])) >= 2**53):
        return str(int(whole[1]))
    return TRUTH.get(text.lower(), text)
