"""Functions that the readers of files share."""

import importlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax._errors import ArgumentError, names_errors

# The module of the standard library for each file extension.
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}

Path = str | os.PathLike[str]


def float_type(
    dtype: DTypeLike | None, of_file: Iterable[DTypeLike] = (np.float64,)
) -> np.dtype:
    """`dtype`, or for None float32 if it holds all numbers of the file, else float64.

    It raises unless `dtype` is one of these.
    """
    if dtype is None:
        fits = all(np.can_cast(one, np.float32) for one in of_file)
        return np.dtype(np.float32 if fits else np.float64)
    try:
        given = np.dtype(dtype)
    except TypeError:
        given = None
    if given not in (np.float32, np.float64):
        raise ArgumentError("dtype", "be float32, float64 or None", f"{dtype!r}")
    return given


def list_files(path: Path | Sequence[Path], ends: Sequence[str]) -> Sequence[Path]:
    """The files of a path, a folder or a list of paths.

    From a folder, the files with these extensions are taken, sorted by name.
    """
    if not isinstance(path, str | os.PathLike):
        if not (paths := list(path)):
            raise ArgumentError("path", "be files", "an empty list")
        return paths
    if not os.path.isdir(path):
        return [path]
    paths = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    paths = [one for one in paths if ending(one) in ends and os.path.isfile(one)]
    if not paths:
        with names_errors(str(path)):
            raise ArgumentError("the folder", f"have files *{', *'.join(ends)}", "none")
    return paths


def check_readable(path: Path) -> None:
    """Raises the error of `open` if the file does not exist or is not readable.

    It also rejects a pipe, which the first look would consume.
    """
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise ArgumentError(
            "the source",
            "be a file, which can be read more than once",
            "a pipe or a device",
        ).advised("write it to a file first")
    with open(path, "rb"):
        pass


def compression(path: Path) -> str | None:
    """gzip, bz2 or lzma, by the file extension."""
    return COMPRESSED.get(os.path.splitext(path)[1].lower())


def ending(path: Path) -> str:
    """The extension of a file without its compression: `.csv` for `a.csv.gz`."""
    stem, end = os.path.splitext(os.fspath(path))
    return (os.path.splitext(stem)[1] if compression(path) else end).lower()


def open_decompressed(path: Path) -> Any:
    """The open file, which decompresses its bytes during reading."""
    module = importlib.import_module(compression(path) or "io")
    return module.open(path, "rb")
