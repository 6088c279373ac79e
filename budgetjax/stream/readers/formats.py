"""The readers of files; each returns `Batches`."""

import inspect
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jax.typing import DTypeLike

from budgetjax.stream.batches import Batches, as_type, rows_of_a_batch, targets
from budgetjax.stream.readers import files
from budgetjax.stream.readers.csv_text import csv
from budgetjax.stream.readers.libsvm_text import libsvm
from budgetjax.stream.readers.tables import arrow, parquet

__all__ = ["arrow", "csv", "libsvm", "npy", "parquet", "read"]


def npy(
    path: files.Path,
    target: files.Path | None = None,
    weight: files.Path | None = None,
    *,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of NumPy's `.npy` files, which are mapped into memory.

    Args:
      path: numbers or booleans of shape `(n, d)`.
      target: numbers or strings of shape `(n,)`; with None, batches are `(X,)`.
      weight: numbers of shape `(n,)`, or None.
      batch_rows: rows per batch; None chooses about 4 MiB of them, at most 65,536.
      dtype: as for `parquet`.

    Returns:
      `Batches`.

    Raises:
      ValueError: if a file is not a `.npy` file or truncated, holds Python objects,
        which are never loaded, or anything but numbers, or shapes differ; and during
        reading, if a value is out of the range of `dtype`.

    Example:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     X, y = pathlib.Path(folder) / "X.npy", pathlib.Path(folder) / "y.npy"
      ...     np.save(X, np.eye(3))
      ...     np.save(y, np.array([1, 0, 1]))
      ...     [(X.shape, y.tolist()) for X, y in bj.stream.npy(X, y, batch_rows=2)]
      [((2, 3), [1, 0]), ((1, 3), [1])]
    """
    X = _mapped(path, "X")
    dtype = files.float_type("npy", dtype, files.exact_type([X.dtype]))
    n, d = X.shape
    if not d:
        raise ValueError(f"{path}: X must have columns, got shape {X.shape}")
    if weight is not None and target is None:
        raise ValueError("npy: weight must come with a target, got target=None")
    paths = {"X": path, "y": target, "weight": weight}
    paths = {name: one for name, one in paths.items() if one is not None}
    for name, one in paths.items():
        if name != "X" and len(found := _mapped(one, name)) != n:
            raise ValueError(
                f"{one}: {name} must have shape ({n},), one per row of X, got "
                f"{found.shape}"
            )
    rows = rows_of_a_batch("npy", d, dtype, batch_rows)

    def pieces(name: str) -> Iterator[np.ndarray]:
        array, where = _mapped(paths[name], name), str(paths[name])
        for start in range(0, n, rows):
            piece = array[start : start + rows]
            if name == "y":
                yield targets(where, piece, start)
            else:
                yield as_type(where, name, piece, dtype, start)

    return Batches(
        str(path),
        d,
        lambda: zip(*map(pieces, paths), strict=True),
        n,
        read_targets=None if target is None else lambda: pieces("y"),
    )


def _mapped(path: files.Path, name: str) -> np.ndarray:
    """The array of a file, mapped into memory."""
    files.check_opens(path)
    try:
        array = np.lib.format.open_memmap(os.fspath(path), mode="r")
    except OSError:
        raise
    except Exception as error:  # whatever NumPy's parser of the header may raise
        raise ValueError(
            f"{path}: {name} must be a whole .npy file of numbers, got an error: "
            f"{error}"
        ) from error
    ndim, shape = (2, "(n, d)") if name == "X" else (1, "(n,)")
    kinds, due = (
        ("biufUS", "numbers or strings") if name == "y" else ("biuf", "numbers")
    )
    if array.ndim != ndim or array.dtype.kind not in kinds:
        raise ValueError(
            f"{path}: {name} must be {due} of shape {shape}, got {array.dtype} of "
            f"shape {array.shape}"
        )
    return array


FORMATS: dict[str, Callable[..., Batches]] = {
    one.__name__: one for one in (csv, parquet, arrow, npy, libsvm)
}
# The names of the arguments of each reader.
TAKES = {
    name: frozenset(inspect.signature(reader).parameters)
    for name, reader in FORMATS.items()
}
# Formats with named columns, where several files, or a folder, form one table.
TABLES = ("csv", "parquet", "arrow")
ENDS = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".npy": "npy",
}
# Extensions of other formats, which are not read as LIBSVM text.
OTHERS = (
    *(".json", ".jsonl", ".xlsx", ".xls", ".ods", ".npz", ".pkl", ".pickle", ".mat"),
    *(".h5", ".hdf5", ".arff", ".orc", ".avro", ".db", ".sqlite", ".html", ".xml"),
    *(".yaml", ".safetensors", ".pt"),
)
PACKED = (".zip", ".zst", ".tar", ".tgz", ".7z", ".rar", ".lz4", ".br")


def end_of(path: Any) -> str:
    """The extension of a file, or of the first file of a list or folder."""
    if not isinstance(path, str | os.PathLike):
        return end_of(next(iter(path), ""))
    if os.path.isdir(path):
        ends = map(files.end_of, sorted(os.listdir(path)))
        return next((end for end in ends if end in ENDS), ".parquet")
    return files.end_of(path)


def format_of(path: Any, format: str | None = None) -> str:
    """The named format, or the format of a file by its extension."""
    if format is not None:
        if format not in FORMATS:
            names = ", ".join(FORMATS)
            raise ValueError(f"read: format must be one of {names}, got {format!r}")
        return format
    end = end_of(path)
    if end in PACKED + OTHERS:
        first = "; unpack it first" if end in PACKED else ""
        raise ValueError(
            f"{path}: the file must be {', '.join(ENDS)}, or LIBSVM text under "
            f"another name, got {end}{first}"
        )
    return ENDS.get(end, "libsvm")


def read(
    path: files.Path | Sequence[files.Path],
    *,
    format: str | None = None,
    target: Any = None,
    **arguments: Any,
) -> Batches:
    r"""Batches of a file in any supported format, chosen by its extension.

    The extensions are `.csv`, `.tsv` (with tabs), `.parquet`, `.arrow`, `.feather` and
    `.npy`; a file with any other is read as LIBSVM text. Text files may also end in
    `.gz`, `.bz2` or `.xz`. Several files, or a folder of them, are read one after the
    other if they have named columns.

    Args:
      path: the path of a file or a folder, or a list of files.
      format: "csv", "parquet", "arrow", "npy" or "libsvm", whatever the extension; None
        goes by the extension.
      target: the column of y in a table, or for a `.npy` file the path of another one;
        LIBSVM files contain their targets.
      **arguments: the arguments of the reader, such as `features`, `header` or
        `zero_based`; for a `.npy` file, `weight` is the path of another one. None is
        the default.

    Returns:
      `Batches`.

    Raises:
      ValueError: if the format has no such argument, and as the reader.

    Example:
      >>> import pathlib, tempfile
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     path = pathlib.Path(folder) / "train.csv"
      ...     _ = path.write_text("size,weight,kind\n1,0.5,cat\n")
      ...     bj.stream.read(path, target="kind").feature_names
      ('size', 'weight')
    """
    found = format_of(path, format)
    given = {"target": target} | arguments
    if found == "csv" and end_of(path) == ".tsv" and not given.get("delimiter"):
        given["delimiter"] = "\t"
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        if name not in TAKES[found]:
            raise ValueError(
                f"read: {name} must not be given for files of {found}, got {value!r}"
            )
    if found in TABLES:
        given.setdefault("target", None)
    elif not isinstance(path, str | os.PathLike) or os.path.isdir(path):
        raise ValueError(f"read: path must be one file of {found}, got {path!r}")
    reader: Any = FORMATS[found]
    return reader(path, **given)
