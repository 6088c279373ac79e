"""What the readers of files share."""

import os
import stat
from collections.abc import Iterable
from typing import Any

import numpy as np
from jax.typing import DTypeLike

COMPRESSED = {".gz": "gzip", ".bz2": "bz2"}

Path = str | os.PathLike[str]


def float_type(
    where: str, dtype: DTypeLike | None, of_file: DTypeLike = np.float64
) -> np.dtype:
    """`dtype` if it is float32 or float64; the file's own for None."""
    try:
        given = np.dtype(of_file if dtype is None else dtype)
    except TypeError:
        given = None
    if given not in (np.float32, np.float64):
        raise ValueError(
            f"{where}: dtype must be float32, float64 or None, got {dtype!r}"
        )
    return given


def exact_type(dtypes: Iterable[Any]) -> np.dtype:
    """float32 if it holds all numbers of these types, else float64."""
    fits = all(np.can_cast(dtype, np.float32) for dtype in dtypes)
    return np.dtype(np.float32 if fits else np.float64)


def check_opens(path: Path) -> None:
    """Raises what `open` raises if the file is not there or must not be read.

    A pipe would be used up by the first look at it.
    """
    mode = os.stat(path).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise ValueError(
            f"{path}: the source must be a file, which can be read more than once, got "
            "a pipe or a device; write it to a file first"
        )
    with open(path, "rb"):
        pass


def compression(path: Path) -> str | None:
    """gzip or bz2, by the end of the name."""
    return COMPRESSED.get(os.path.splitext(path)[1].lower())
