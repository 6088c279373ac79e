"""What users of estimators have, in the terms of the core: rows, labels and kernels."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int, Shaped
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import csc_median_axis_0

from budgetjax import checks, kernels, scaling
from budgetjax.kernels import (
    RBF,
    Kernel,
    Laplacian,
    Linear,
)
from budgetjax.models import block_size, padded
from budgetjax.scaling import Scaling

# What `validate_data` keeps; other numbers become the first of them.
FLOATS = (np.float64, np.float32)
KERNELS = {"rbf": RBF, "laplacian": Laplacian}
# Rows that are looked at for a warning, at most.
SAMPLED_ROWS = 65_536
# Rows are moved if 0 is further from them, in the exponent of the default kernel:
# float32 rounds an exponent by a ten-millionth of that distance.
FAR = 10.0


def dtype_of(X: Any) -> np.dtype:
    """In which to compute: as X where JAX has doubles switched on, else float32."""
    wide = X.dtype == np.float64 and jax.config.read("jax_enable_x64")
    return np.dtype(np.float64 if wide else np.float32)


def check_range(where: str, X: Any, dtype: np.dtype) -> None:
    """Raises if a finite number of X is beyond the type that is computed in."""
    values = X.data if scipy.sparse.issparse(X) else X
    most = np.finfo(dtype).max
    if np.finfo(values.dtype).max <= most or not values.size:
        return
    if max(np.max(values), -np.min(values)) <= most:
        return
    if scipy.sparse.issparse(X):
        X = X.tocoo()
        at = int(np.argmax(np.abs(X.data)))
        row, column, value = X.row[at], X.col[at], X.data[at]
    else:
        row, column = np.unravel_index(np.argmax(np.abs(X)), X.shape)
        value = X[row, column]
    raise ValueError(
        f"{where}: X must be in the range of {dtype}, got {value:g} in row {row}, "
        f"column {column}"
    )


def dense(
    rows: Any, dtype: np.dtype, origin: Float[np.ndarray, " features"]
) -> Float[np.ndarray, "n features"]:
    """Rows of an array or of a sparse matrix, less the origin, in this type."""
    rows = rows.toarray() if scipy.sparse.issparse(rows) else rows
    # In float64, before digits are lost.
    rows = rows - origin[None] if np.any(origin) else rows
    return np.ascontiguousarray(rows, dtype)


def blocks(
    X: Any,
    dtype: np.dtype,
    origin: Float[np.ndarray, " features"],
    order: Int[np.ndarray, " n"] | None = None,
    size: int | None = None,
) -> Iterator[tuple[int, int, Float[np.ndarray, "size features"]]]:
    """The rows of X less the origin, in this order, as dense blocks of one size.

    Args:
      X: an array or a sparse matrix.
      dtype: of the blocks.
      origin: what is subtracted.
      order: None is as they stand.
      size: of the blocks; None chooses.

    Yields:
      The first position of a block, the first after it, and its rows, filled up.
    """
    n, features = X.shape
    size = block_size(n, features) if size is None else size
    for start in range(0, n, size):
        stop = min(start + size, n)
        rows = X[start:stop] if order is None else X[order[start:stop]]
        yield start, stop, padded(dense(rows, dtype, origin), size)


def kernel_of(
    where: str, kernel: Any, gamma: Any, X: Any, *, more_to_come: bool = False
) -> Kernel:
    """The kernel that a user names, or has.

    Args:
      where: the caller's name, for error messages.
      kernel: "rbf", "laplacian" or "linear", or a kernel.
      gamma: "scale" or a number, of a kernel by name that has one.
      X: examples, dense or sparse, for "scale".
      more_to_come: whether X is the first part of the examples only.

    Raises:
      ValueError: if one does not fit, or "scale" would be of rows that are all alike
        and others are to come.
    """
    named = isinstance(kernel, str) and kernel in KERNELS
    scaled = isinstance(gamma, str) and gamma == "scale"
    if not named and not scaled:
        raise ValueError(
            f"{where}: gamma must be 'scale' unless kernel is one of "
            f"{', '.join(KERNELS)}, got gamma={gamma!r} with kernel={kernel!r}"
        )
    if isinstance(kernel, Kernel):
        return kernel
    if isinstance(kernel, str) and kernel == "linear":
        return Linear()
    if not named:
        raise ValueError(
            f"{where}: kernel must be one of {', '.join(KERNELS)}, linear, or a "
            f"budgetjax kernel, got {kernel!r}"
        )
    if scaled:
        found = scale(X)
        if not found and more_to_come:
            raise ValueError(
                f"{where}: X must have rows that differ in the first call, for "
                f"gamma='scale', got {X.shape[0]} alike; give more rows, or gamma as a "
                "number"
            )
        # Where all rows are alike the kernel is 1, whatever gamma.
        return KERNELS[kernel](found or 1.0)
    if isinstance(gamma, str):
        raise ValueError(
            f"{where}: gamma must be 'scale' or a number (or 'auto', in fit of an "
            f"online estimator), got {gamma!r}"
        )
    return KERNELS[kernel](checks.positive(where, "gamma", gamma))


def scale(X: Any) -> float:
    """The default gamma; 0 where all rows are alike."""
    rows = _sample(X)
    if scipy.sparse.issparse(rows):
        rows = rows.astype(np.float64)
        distances = kernels.squared_distances_of((rows @ rows.T).toarray())
    else:
        distances = kernels.distances_within(rows)
    return kernels.gamma_of_distances(distances)


def _sample(X: Any) -> Any:
    """As many rows as the default gamma looks at."""
    return X[kernels.sampled(X.shape[0])]


def origin_of(kernel: Kernel | None, X: Any) -> Float[np.ndarray, " features"]:
    """What to subtract from rows before they are rounded.

    The median of every feature, under a stationary kernel and if it is far from 0; else
    zeros: with any other kernel it would be another model.
    """
    nowhere = np.zeros(X.shape[1])
    if kernel is None or not kernel.stationary:
        return nowhere
    rows = _sample(X)
    if scipy.sparse.issparse(rows):
        median = np.asarray(csc_median_axis_0(rows.tocsc()), np.float64)
    else:
        median = np.median(np.asarray(rows, np.float64), axis=0)
    return median if scale(X) * float(median @ median) > FAR else nowhere


def moved(origin: Float[np.ndarray, " features"]) -> Scaling | None:
    """What subtracts the origin, if it is not 0."""
    return Scaling(1, origin, np.ones(len(origin))) if np.any(origin) else None


def names_of(estimator: Any) -> tuple[str, ...] | None:
    """The columns of the data frame that an estimator was fitted on, if it was one."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names.tolist())


def classes_of(
    where: str, y: Shaped[np.ndarray, " n"]
) -> tuple[Shaped[np.ndarray, " classes"], Int[np.ndarray, " n"]]:
    """The classes, in order, and the number of each label's class."""
    check_classification_targets(y)
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{where}: y must have at least 2 classes, got one class, "
            f"{shown(classes[0])}"
        )
    return classes, codes


def codes_of(
    where: str,
    y: Shaped[np.ndarray, " n"],
    classes: Shaped[np.ndarray, " classes"],
) -> Int[np.ndarray, " n"]:
    """The number of each label's class among those that are known."""
    check_classification_targets(y)
    found, inverse = np.unique(y, return_inverse=True)
    known = np.isin(found, classes)
    if not np.all(known):
        row = int(np.argmin(known[inverse]))
        raise ValueError(
            f"{where}: y must be one of the classes {classes.tolist()}, got "
            f"{shown(y[row])} in row {row}"
        )
    return np.searchsorted(classes, found)[inverse]


def shown(label: Any) -> str:
    """A label as users write it."""
    return repr(label.item() if isinstance(label, np.generic) else label)


def warn_unscaled(
    where: str, X: Any, origin: Float[np.ndarray, " features"], stacklevel: int
) -> None:
    """Warns if the features look unscaled; sparse ones are left as they are."""
    if not scipy.sparse.issparse(X):
        rows = X[:: _sampling(X)]
        scaling.warn_unscaled(where, rows - origin[None], stacklevel=stacklevel)


def _sampling(X: Any) -> int:
    """The step that leaves few enough rows."""
    return -(-X.shape[0] // SAMPLED_ROWS)
