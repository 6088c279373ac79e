"""The reader of NumPy's arrays."""

import os
from collections.abc import Iterator

import numpy as np
from jax.typing import DTypeLike

from budgetjax._errors import ArgumentError, names_errors
from budgetjax.stream.batches import (
    Batches,
    cast_numbers,
    coerce_targets,
    rows_per_batch,
)
from budgetjax.stream.readers import files
from budgetjax.stream.readers.formats import register_format


@register_format(".npy")
@names_errors("npy")
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
      target: numbers or strings of shape `(n,)`, or numbers of shape `(n, outputs)`;
        with None, batches are `(X,)`.
      weight: numbers of shape `(n,)`, or None.
      batch_rows: rows per batch; None chooses about 4 MiB of them, at most 65,536.
      dtype: as for `parquet`.

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
    with names_errors(str(path)):
        X = _open_array(path, "X")
        n, d = X.shape
        if not d:
            raise ArgumentError("X", "have columns", f"shape {X.shape}")
    dtype = files.float_type(dtype, [X.dtype])
    if weight is not None and target is None:
        raise ArgumentError("weight", "come with a target", "target=None")
    paths = {"X": path, "y": target, "weight": weight}
    paths = {name: one for name, one in paths.items() if one is not None}
    for name, one in paths.items():
        with names_errors(str(one)):
            shape = _open_array(one, name).shape
            if shape[0] != n:
                expected = f"have shape ({n},), one per row of X"
                raise ArgumentError(name, expected, shape)
    rows = rows_per_batch(d, dtype, batch_rows)

    def piece(name: str, array: np.ndarray, start: int) -> np.ndarray:
        part = array[start : start + rows]
        if name == "y":
            return coerce_targets(part, start, None)
        return cast_numbers(name, part, dtype, start)

    def pieces(name: str) -> Iterator[np.ndarray]:
        with names_errors(str(paths[name])):
            array = _open_array(paths[name], name)
            yield from (piece(name, array, start) for start in range(0, n, rows))

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
        raise ArgumentError(
            name, "be a whole .npy file of numbers", f"an error: {error}"
        ) from error
    expected, kinds = {
        "X": ("be numbers of shape (n, d)", {2: "biuf"}),
        "y": (
            "be numbers or strings of shape (n,), or numbers of shape (n, outputs)",
            {1: "biufUS", 2: "biuf"},
        ),
        "weight": ("be numbers of shape (n,)", {1: "biuf"}),
    }[name]
    if array.dtype.kind not in kinds.get(array.ndim, ""):
        got = f"{array.dtype} of shape {array.shape}"
        raise ArgumentError(name, expected, got)
    return array
