"""What users of estimators have, in the terms of the core: rows, labels and kernels."""

from collections.abc import Iterator
from typing import Any, cast

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int, Shaped
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import mean_variance_axis

from budgetjax import hyperparameters
from budgetjax.kernels import RBF, Kernel, Laplacian, Linear
from budgetjax.stream import scaling
from budgetjax.stream.model import padded

# What `validate_data` keeps; other numbers become the first of them.
FLOATS = (np.float64, np.float32)
KERNELS = {"rbf": RBF, "laplacian": Laplacian}
# Rows that the scale of features is taken from, at most.
SAMPLED_ROWS = 65_536
# Rows to a block: at least so many, and at most what makes so many numbers.
FEWEST_ROWS, MOST_ROWS, MOST_NUMBERS = 64, 65_536, 2**22


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


def dense(rows: Any, dtype: np.dtype) -> Float[np.ndarray, "n features"]:
    """Rows of an array or of a sparse matrix, as an array of this type."""
    rows = rows.toarray() if scipy.sparse.issparse(rows) else rows
    return np.ascontiguousarray(rows, dtype)


def block_size(num_rows: int, num_features: int) -> int:
    """Rows to a block, a power of two.

    All blocks of some rows are of one size, the last one filled up, and few sizes are
    ever met, so that few programs are compiled. At most a quarter of what is computed
    is filling, but of less than 256 rows.
    """
    quarter = _power_of_two(num_rows // 4)
    most = _power_of_two(MOST_NUMBERS // num_features)
    return max(FEWEST_ROWS, min(quarter, most, MOST_ROWS))


def _power_of_two(number: int) -> int:
    """The largest that is not above the number; 0 for 0."""
    return 1 << (number.bit_length() - 1) if number else 0


def blocks(
    X: Any, dtype: np.dtype, order: Int[np.ndarray, " n"] | None = None
) -> Iterator[tuple[int, int, Float[np.ndarray, "size features"]]]:
    """The rows of X in this order, as dense blocks of one size.

    Yields:
      The first position of a block, the first after it, and its rows, filled up.
    """
    n, features = X.shape
    size = block_size(n, features)
    for start in range(0, n, size):
        stop = min(start + size, n)
        rows = X[start:stop] if order is None else X[order[start:stop]]
        yield start, stop, padded(dense(rows, dtype), size)


def kernel_of(where: str, kernel: Any, gamma: Any, X: Any) -> Kernel:
    """The kernel that a user names, or has.

    Args:
      where: the caller's name, for error messages.
      kernel: "rbf", "laplacian" or "linear", or a kernel.
      gamma: "scale" or a number, of a kernel by name that has one.
      X: examples, dense or sparse, for "scale".
    """
    named = isinstance(kernel, str) and kernel in KERNELS
    scale = isinstance(gamma, str) and gamma == "scale"
    if not named and not scale:
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
    if scale:
        return KERNELS[kernel](_scale(X))
    if isinstance(gamma, str):
        raise ValueError(f"{where}: gamma must be 'scale' or a number, got {gamma!r}")
    return KERNELS[kernel](hyperparameters.positive(where, "gamma", gamma))


def _scale(X: Any) -> float:
    """One over the total variance; 1 where all rows are alike."""
    if scipy.sparse.issparse(X):
        variances = cast(Any, mean_variance_axis(X, axis=0))[1]
    else:
        variances = np.var(X[:: _sampling(X)], axis=0, dtype=np.float64)
    total = float(np.sum(variances, dtype=np.float64))
    return 1 / total if total > 0 else 1.0


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


def predicted(
    scores: Float[np.ndarray, "n ..."], classes: Shaped[np.ndarray, " classes"]
) -> Shaped[np.ndarray, " n"]:
    """The class of the largest score; of two, the second if its score is above 0."""
    binary = scores.ndim == 1
    return classes[(scores > 0).astype(int) if binary else np.argmax(scores, axis=1)]


def warn_unscaled(where: str, X: Any) -> None:
    """Warns if the features look unscaled; a sparse matrix cannot be centred."""
    if not scipy.sparse.issparse(X):
        scaling.warn_unscaled(where, X[:: _sampling(X)], stacklevel=5)


def _sampling(X: Any) -> int:
    """The step that leaves few enough rows."""
    return -(-X.shape[0] // SAMPLED_ROWS)
