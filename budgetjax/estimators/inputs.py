"""Converts rows, labels and kernels from scikit-learn's conventions to the core's."""

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Float, Int, Shaped
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import csc_median_axis_0

from budgetjax import models, scaling
from budgetjax.inputs import block_size, pad_rows
from budgetjax.kernels import Kernel
from budgetjax.labels import format_labels, label_indices
from budgetjax.models import Labelled
from budgetjax.online import choices
from budgetjax.scaling import Scaling

# The dtypes that `validate_data` keeps; other numbers become the first of them.
FLOATS = (np.float64, np.float32)
# The maximum number of rows that a warning examines.
SAMPLED_ROWS = 65_536
# Rows are shifted if their distance from 0, in the exponent of the default kernel, is
# larger: float32 rounds an exponent by a ten-millionth of that distance.
FAR = 10.0


def dtype_of(X: Any) -> np.dtype:
    """The dtype to compute in: float64 if X is and JAX enables it, else float32."""
    wide = X.dtype == np.float64 and jax.config.read("jax_enable_x64")
    return np.dtype(np.float64 if wide else np.float32)


def check_range(where: str, X: Any, dtype: np.dtype) -> None:
    """Raises if a number of X is out of the range of the dtype for computing."""
    values = X.data if scipy.sparse.issparse(X) else X
    largest = np.finfo(dtype).max
    if not values.size or max(np.max(values), -np.min(values)) <= largest:
        return
    X = scipy.sparse.coo_array(X)
    at = int(np.argmax(np.abs(X.data)))
    raise ValueError(
        f"{where}: X must be in the range of {dtype}, got {X.data[at]:g} in row "
        f"{X.row[at]}, column {X.col[at]}"
    )


def dense(
    rows: Any, dtype: np.dtype, origin: Float[np.ndarray, " features"]
) -> Float[np.ndarray, "n features"]:
    """Rows of an array or a sparse matrix, minus the origin, in this dtype."""
    rows = rows.toarray() if scipy.sparse.issparse(rows) else rows
    # Subtracted in float64, before digits are lost.
    rows = rows - origin[None] if np.any(origin) else rows
    return np.ascontiguousarray(rows, dtype)


def blocks(
    X: Any,
    dtype: np.dtype,
    origin: Float[np.ndarray, " features"],
    order: Int[np.ndarray, " n"],
    size: int | None = None,
) -> Iterator[tuple[Int[np.ndarray, " rows"], Float[np.ndarray, "size features"]]]:
    """The rows of X minus the origin, in this order, as dense blocks of one size.

    Yields:
      The numbers of the rows of a block, and the rows, padded to `size`; None chooses
      it.
    """
    size = size or block_size(*X.shape)
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        yield numbers, pad_rows(dense(X[numbers], dtype, origin), size)


def kernel_of(
    where: str, kernel: Any, gamma: Any, X: Any, *, more_to_come: bool = False
) -> Kernel:
    """The kernel of some examples; see `parameters.kernel_of`.

    Raises:
      ValueError: if an argument is invalid, or gamma is "scale", all rows are equal and
        `more_to_come`.
    """

    def default():
        found = scale(X)
        if not found and more_to_come:
            raise ValueError(
                f"{where}: X must have rows that differ in the first call, for "
                f"gamma='scale', got {X.shape[0]} alike; give more rows, or gamma as a "
                "number"
            )
        # If all rows are equal, the kernel is 1 for any gamma.
        return found or 1.0

    known = ("scale", "auto") if kernel == "linear" else ("scale",)
    if isinstance(kernel, str) and isinstance(gamma, str) and gamma not in known:
        raise ValueError(
            f"{where}: gamma must be 'scale' or a number (or 'auto', in fit of an "
            f"online estimator), got {gamma!r}"
        )
    return choices.kernel_of(where, kernel, gamma, "scale", default)


def scale(X: Any) -> float:
    """The default gamma; 0 if all rows are equal."""
    rows = _sample(X)
    if scipy.sparse.issparse(rows):
        rows = rows.astype(np.float64)
        distances = scaling.squared_distances_of((rows @ rows.T).toarray())
    else:
        distances = scaling.distances_within(rows)
    return scaling.gamma_of_distances(distances)


def variances(X: Any) -> Float[np.ndarray, " features"]:
    """The variance of each feature in the sample for the default gamma."""
    rows = _sample(X)
    rows = rows.toarray() if scipy.sparse.issparse(rows) else rows
    return np.var(rows, axis=0, dtype=np.float64)


def _sample(X: Any) -> Any:
    """The sample of rows for the default gamma."""
    return X[scaling.sampled(X.shape[0])]


def origin_of(kernel: Kernel | None, X: Any) -> Float[np.ndarray, " features"]:
    """The origin to subtract from rows before rounding.

    It is the median of every feature if the kernel is stationary and the median is far
    from 0, otherwise zeros: a shift would change the model under any other kernel.
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


def translation(origin: Float[np.ndarray, " features"]) -> Scaling | None:
    """A scaling that subtracts the origin; None if it is 0."""
    return Scaling.translation(origin) if np.any(origin) else None


def origin(model: Labelled) -> Float[np.ndarray, " features"]:
    """The origin of a model, which it subtracts from rows."""
    if model.scaling is None:
        return np.zeros(models.num_features("estimators", model))
    return model.scaling.mean


def names_of(estimator: Any) -> tuple[str, ...] | None:
    """The columns of the data frame that an estimator was fitted on, if any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names.tolist())


def classes_of(
    where: str, y: Shaped[np.ndarray, " n"]
) -> Shaped[np.ndarray, " classes"]:
    """The classes, in order."""
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(
            f"{where}: y must have at least 2 classes, got one class, "
            f"{format_labels(classes)}"
        )
    return classes


def class_weights(
    class_weight: Any,
    classes: Shaped[np.ndarray, " classes"],
    counted: Shaped[np.ndarray, " counted"],
    y: Shaped[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """The weight of each label's class; "balanced" refers to the labels `counted`."""
    by_class = compute_class_weight(class_weight, classes=classes, y=counted)
    return by_class[label_indices(classes, y)]


def warn_unscaled(
    where: str, X: Any, origin: Float[np.ndarray, " features"], stacklevel: int
) -> None:
    """Warns if dense features look unscaled."""
    if not scipy.sparse.issparse(X):
        rows = X[:: -(-X.shape[0] // SAMPLED_ROWS)]
        scaling.warn_unscaled(where, rows - origin[None], stacklevel=stacklevel)
