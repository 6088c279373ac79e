"""Functions that the readers of files share."""

import importlib
import os
import urllib.parse
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax._errors import ArgumentError, names_errors

# The module of the standard library for each file extension.
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".xz": "lzma"}

# The name of a folder, in the layout of Hive, of rows without a value.
NULLS = {"__HIVE_DEFAULT_PARTITION__": None}

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

    From a folder and its parts, the files with these extensions are taken, sorted by
    name.
    """
    if not isinstance(path, str | os.PathLike):
        if not (paths := list(path)):
            raise ArgumentError("path", "be files", "an empty list")
        return paths
    if not os.path.isdir(path):
        return [path]
    paths = [one for one in walk(path) if ending(one) in ends and os.path.isfile(one)]
    if not paths:
        with names_errors(str(path)):
            raise ArgumentError("the folder", f"have files *{', *'.join(ends)}", "none")
    return paths


def walk(folder: Path) -> Iterator[str]:
    """What is in a folder, sorted by name, and in its parts `KEY=VALUE`."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if "=" in name and os.path.isdir(path):
            yield from walk(path)
        else:
            yield path


def partition_keys(file: Path, folder: Any) -> dict[str, str | None]:
    """The columns that the names of the folders between these two hold."""
    if not isinstance(folder, str | os.PathLike) or not os.path.isdir(folder):
        return {}
    between = os.path.dirname(os.path.relpath(file, folder))
    keys = (part.partition("=") for part in between.split(os.sep) if part)
    decode = urllib.parse.unquote
    return {decode(key): NULLS.get(value, decode(value)) for key, _, value in keys}


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
