"""The reader of NumPy's arrays."""

import os
from collections.abc import Iterator

import numpy as np
from jax.typing import DTypeLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import (
    Batches,
    cast_numbers,
    coerce_targets,
    rows_per_batch,
)
from budgetjax.stream.readers import files
from budgetjax.stream.readers.columns import HOW_TO_FILL
from budgetjax.stream.readers.formats import register_format


@names_errors("npy")
@register_format(".npy")
def npy(
    path: files.Path,
    target: files.Path | None = None,
    weight: files.Path | None = None,
    *,
    allow_missing: bool = True,
    batch_rows: int | None = None,
    dtype: DTypeLike | None = None,
) -> Batches:
    """Batches of NumPy's `.npy` files, which are mapped into memory.

    Args:
      path: numbers or booleans of shape `(n, d)`.
      target: numbers or strings of shape `(n,)`; with None, batches are `(X,)`.
      weight: numbers of shape `(n,)`, or None.
      allow_missing: whether X may hold NaN.
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
    X = _open_array(path, "X")
    dtype = files.float_type(dtype, files.exact_type([X.dtype]))
    n, d = X.shape
    if not d:
        raise ValueError(f"{path}: X must have columns, got shape {X.shape}")
    if weight is not None and target is None:
        raise ArgumentError("weight", "come with a target", "target=None")
    paths = {"X": path, "y": target, "weight": weight}
    paths = {name: one for name, one in paths.items() if one is not None}
    for name, one in paths.items():
        if name != "X" and len(found := _open_array(one, name)) != n:
            raise ValueError(
                f"{one}: {name} must have shape ({n},), one per row of X, got "
                f"{found.shape}"
            )
    _checks.flag("allow_missing", allow_missing)
    rows = rows_per_batch(d, dtype, batch_rows)

    def pieces(name: str) -> Iterator[np.ndarray]:
        array, where = _open_array(paths[name], name), str(paths[name])
        for start in range(0, n, rows):
            piece = array[start : start + rows]
            if name == "y":
                yield coerce_targets(piece, start)
                continue
            if name == "X" and not allow_missing and np.any(np.isnan(piece)):
                row, column = np.argwhere(np.isnan(piece))[0]
                raise ArgumentError(
                    "X",
                    "not have missing values",
                    f"one in row {start + row}, column {column}; {HOW_TO_FILL}",
                )
            yield cast_numbers(name, piece, dtype, start)

    return Batches(
        str(path),
        d,
        lambda: zip(*map(pieces, paths), strict=True),
        n,
        read_targets=None if target is None else lambda: pieces("y"),
    )


def _open_array(path: files.Path, name: str) -> np.ndarray:
    """The array of a file, mapped into memory."""
    files.check_readable(path)
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
