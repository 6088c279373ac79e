"""The readers of files, each of which gives `Batches`."""

import functools
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
    X_path: files.Path,
    y_path: files.Path | None = None,
    weight_path: files.Path | None = None,
    *,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of NumPy's `.npy` files, which are mapped into memory.

    Args:
      X_path: numbers or booleans of shape `(n, d)`.
      y_path: numbers or strings of shape `(n,)`; None if there are none, and batches
        are then `(X,)`.
      weight_path: numbers of shape `(n,)`, or None.
      batch_rows: rows per batch; None is as many as take some 4 MiB, at most 65,536.
      dtype: as for `parquet`.

    Returns:
      `Batches`.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if a file is no `.npy` or cut off, holds Python objects, which are
        never loaded, or anything but numbers, the shapes do not fit, or there are no
        rows; and as it is read, if a value is beyond the range of `dtype`.

    Example:
      >>> import pathlib, tempfile
      >>> import numpy as np
      >>> from budgetjax import stream
      >>> with tempfile.TemporaryDirectory() as folder:
      ...     X, y = pathlib.Path(folder) / "X.npy", pathlib.Path(folder) / "y.npy"
      ...     np.save(X, np.eye(3))
      ...     np.save(y, np.array([1, 0, 1]))
      ...     [(X.shape, y.tolist()) for X, y in stream.npy(X, y, batch_rows=2)]
      [((2, 3), [1, 0]), ((1, 3), [1])]
    """
    X = _mapped(X_path, "X")
    dtype = files.float_type("npy", dtype, files.exact_type([X.dtype]))
    n, d = X.shape
    if not n or not d:
        raise ValueError(f"{X_path}: X must have rows and columns, got shape {X.shape}")
    if weight_path is not None and y_path is None:
        raise ValueError("npy: weight_path must come with y_path, got y_path=None")
    for name, path in (("y", y_path), ("weight", weight_path)):
        if path is not None and len(found := _mapped(path, name)) != n:
            raise ValueError(
                f"{path}: {name} must have shape ({n},), one per row of X, got "
                f"{found.shape}"
            )
    rows = rows_of_a_batch("npy", d, dtype, batch_rows)

    def pieces(path: files.Path, name: str) -> Iterator[np.ndarray]:
        array, where = _mapped(path, name), str(path)
        for start in range(0, n, rows):
            piece = array[start : start + rows]
            if name == "y":
                yield targets(where, piece, start)
            else:
                yield as_type(where, name, piece, dtype, start)

    def read() -> Iterator[tuple[np.ndarray, ...]]:
        paths = {"X": X_path, "y": y_path, "weight": weight_path}
        given = [pieces(path, name) for name, path in paths.items() if path is not None]
        return zip(*given, strict=True)

    return Batches(
        str(X_path),
        d,
        read,
        n,
        read_targets=None if y_path is None else lambda: pieces(y_path, "y"),
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


# The name of a format, its reader, and which arguments of `read` that takes.
Format = tuple[str, Callable[..., Batches], tuple[str, ...]]
TABLE = ("target", "features", "weight")
LIBSVM: Format = ("LIBSVM", libsvm, ("num_features",))
FORMATS: dict[str, Format] = {
    ".csv": ("CSV", csv, TABLE),
    ".tsv": ("CSV", functools.partial(csv, delimiter="\t"), TABLE),
    ".parquet": ("Parquet", parquet, TABLE),
    ".arrow": ("Arrow", arrow, TABLE),
    ".feather": ("Arrow", arrow, TABLE),
    ".npy": (
        "NumPy",
        lambda path, target, weight, **more: npy(path, target, weight, **more),
        ("target", "weight"),
    ),
}


# Ends of names that are of no format here, and never of LIBSVM's text.
OTHERS = (
    *(".json", ".jsonl", ".xlsx", ".xls", ".ods", ".npz", ".pkl", ".pickle", ".mat"),
    *(".h5", ".hdf5", ".arff", ".orc", ".avro", ".db", ".sqlite", ".zip", ".xz"),
    *(".zst", ".tar", ".tgz", ".html", ".xml", ".yaml", ".safetensors", ".pt"),
)


def check_format(path: Any) -> None:
    """Raises if the end of a name says that no reader here is for it."""
    end = os.path.splitext(os.fspath(path))[1].lower()
    if end in OTHERS:
        raise ValueError(
            f"{path}: the file must be {', '.join(FORMATS)}, or LIBSVM text under "
            f"another name, got {end}"
        )


def _format(path: Any) -> Format:
    if not isinstance(path, str | os.PathLike) or os.path.isdir(path):
        return FORMATS[".parquet"]
    path = os.fspath(path)
    if files.compression(path):
        path = os.path.splitext(path)[0]
    check_format(path)
    return FORMATS.get(os.path.splitext(path)[1].lower(), LIBSVM)


def read(
    path: files.Path | Sequence[files.Path],
    *,
    target: Any = None,
    features: Sequence[str | int] | None = None,
    weight: Any = None,
    num_features: int | None = None,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of a file of any of the formats, by the end of its name.

    `.csv`, `.tsv` with tabs, `.parquet` (also a folder, or a list of files), `.arrow`
    and `.feather`, `.npy`; any other is LIBSVM's. Those of text may end in `.gz` or
    `.bz2`. See the readers of these names for their arguments and errors.

    Args:
      path: path of the file.
      target: column of y in a table; for a `.npy` the path of another; LIBSVM's files
        have theirs.
      features: columns of X in a table; None is all others.
      weight: as target.
      num_features: number of columns of X, for LIBSVM's files.
      batch_rows: rows per batch; None is as many as take some 4 MiB, at most 65,536.
      dtype: type of X and the weights: float32 or float64; None as for the reader.

    Returns:
      `Batches`.

    Raises:
      FileNotFoundError: if there is no such file.
      ValueError: if an argument is none of the format, and as the reader.
      ImportError: if the package that the reader needs is not installed.
    """
    name, reader, takes = _format(path)
    given = dict(
        target=target, features=features, weight=weight, num_features=num_features
    )
    for argument, value in given.items():
        if argument not in takes and value is not None:
            raise ValueError(
                f"read: {argument} must not be given for files of {name}, got {value!r}"
            )
    taken = {key: given[key] for key in takes}
    return reader(path, **taken, batch_rows=batch_rows, dtype=dtype)
