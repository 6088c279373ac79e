"""Converts rows, labels and kernels from scikit-learn's conventions to the core's."""

import functools
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax
import numpy as np
import scipy.sparse
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.sparsefuncs import csc_median_axis_0, mean_variance_axis
from sklearn.utils.validation import _check_sample_weight

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._rows import SparseMatrix
from budgetjax.kernels import Kernel
from budgetjax.online import defaults
from budgetjax.scoring import format_labels
from budgetjax.tables import scaling
from budgetjax.tables.columns import to_dense
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.labels import label_indices
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel


@runtime_checkable
class SparseRows(SparseMatrix, Protocol):
    """A CSR matrix or array of SciPy, which has no types of its own."""

    data: np.ndarray
    indices: np.ndarray
    indptr: np.ndarray

    def __getitem__(self, key: Any) -> "SparseRows": ...
    def astype(self, dtype: Any) -> "SparseRows": ...


# Rows as users have them: arrays, lists, data frames and sparse matrices.
Table: TypeAlias = ArrayLike | scipy.sparse.sparray | scipy.sparse.spmatrix
# Rows after the checks of scikit-learn.
Rows: TypeAlias = Shaped[np.ndarray, "_ _"] | SparseRows
# Weights by label; "balanced" makes the classes equally heavy.
ClassWeight: TypeAlias = Mapping | str | None
# One number per row; None for ones.
Weights: TypeAlias = ArrayLike | None
# The seed of all draws; None for another one in each fit.
RandomState: TypeAlias = int | np.random.RandomState | None

# The dtypes that `validate_data` keeps; other numbers become the first of them.
FLOATS = (np.float64, np.float32)
# The maximum number of rows that a warning examines.
SAMPLED_ROWS = 65_536
# Rows are shifted if their distance from 0, in the exponent of the default kernel, is
# larger: float32 rounds an exponent by a ten-millionth of that distance.
FAR = 10.0


def dtype_of(X: Rows) -> np.dtype:
    """The dtype to compute in: float64 if X is and JAX enables it, else float32."""
    wide = X.dtype == np.float64 and jax.config.read("jax_enable_x64")
    return np.dtype(np.float64 if wide else np.float32)


def to_array(X: Rows) -> Shaped[np.ndarray, "n features"]:
    """The rows as an array."""
    return X if isinstance(X, np.ndarray) else X.toarray()


def values(X: Rows) -> np.ndarray:
    """The numbers of rows, those of a sparse matrix without its zeros."""
    return X.data if isinstance(X, SparseRows) else to_array(X)


def check_range(X: Rows, dtype: np.dtype) -> None:
    """Raises if a number of X is out of the range of the dtype for computing."""
    given, largest = values(X), np.finfo(dtype).max
    if not given.size or not max(np.max(given), -np.min(given)) > largest:
        return
    entries = scipy.sparse.coo_array(X)
    at = int(np.argmax(np.abs(entries.data)))
    place = f"in row {entries.row[at]}, column {entries.col[at]}"
    got = f"{entries.data[at]:g} {place}"
    raise ArgumentError("X", f"be in the range of {dtype}", got)


def join(X: Rows, more: Rows) -> Rows:
    """Rows followed by others, dense if one part is."""
    if isinstance(X, np.ndarray) or isinstance(more, np.ndarray):
        return np.concatenate([to_array(X), to_array(more)])
    joined: Any = scipy.sparse.vstack([X, more], format="csr")
    return joined


def dense(
    X: Rows, dtype: np.dtype, origin: Float[np.ndarray, " features"]
) -> Float[np.ndarray, "n features"]:
    """Rows of an array or a sparse matrix, minus the origin, in this dtype."""
    if not np.any(origin):
        return np.ascontiguousarray(to_dense(X, dtype), dtype)
    # Subtracted in float64, before digits are lost.
    return np.ascontiguousarray(to_array(X) - origin[None], dtype)


class Sample:
    """The rows that decide the default gamma and the origin.

    Attributes:
      num_rows: the number of rows that they were taken from.
      rows: up to 1,000 of them, as an encoding gives them, if there is one.
    """

    def __init__(self, X: Rows, codes: Encoding | None = None):
        self.num_rows = X.shape[0]
        rows = X[scaling.sample_rows(self.num_rows)]
        self.rows = rows
        if codes is not None:
            self.rows = codes.apply(to_array(rows), dtype_of(X))

    @functools.cached_property
    def gamma(self) -> float:
        """The default gamma; 0 if all rows are equal."""
        if isinstance(self.rows, np.ndarray):
            distances = scaling.squared_distances(self.rows)
        else:
            rows = scipy.sparse.csr_array(self.rows, dtype=np.float64)
            distances = scaling.distances_from_products((rows @ rows.T).toarray())
        return scaling.default_gamma_from_distances(distances)

    @property
    def median(self) -> Float[np.ndarray, " features"]:
        """The median of each feature."""
        if isinstance(self.rows, np.ndarray):
            return np.median(np.asarray(self.rows, np.float64), axis=0)
        columns: Any = scipy.sparse.csc_array(self.rows)
        median = np.zeros(columns.shape[1])
        # Of most columns, most numbers are 0.
        some = np.flatnonzero(2 * columns.count_nonzero(axis=0) >= columns.shape[0])
        median[some] = csc_median_axis_0(columns[:, some])
        return median

    @property
    def variances(self) -> Float[np.ndarray, " features"]:
        """The variance of each feature."""
        if isinstance(self.rows, SparseRows):
            both: Any = mean_variance_axis(self.rows.astype(np.float64), axis=0)
            return both[1]
        return np.var(to_array(self.rows), axis=0, dtype=np.float64)


def kernel_of(
    kernel: str | Kernel,
    gamma: float | str,
    sample: Sample,
    *,
    needs_distances: bool = False,
) -> Kernel:
    """The kernel of some examples; see `defaults.kernel_of`.

    Raises:
      ValueError: if an argument is invalid, or gamma is "scale" and all rows are equal,
        which says nothing of the other rows of a stream that `needs_distances`.
    """

    def default() -> float:
        gamma = sample.gamma
        if not gamma and needs_distances:
            wanted = "have rows that differ among the first, for gamma='scale'"
            got = f"{sample.num_rows} alike; give more rows, or gamma as a number"
            raise ArgumentError("X", wanted, got)
        # If all rows are equal, the kernel is 1 for any gamma.
        return gamma or 1.0

    known = ("scale", "auto") if kernel == "linear" else ("scale",)
    if isinstance(kernel, str) and isinstance(gamma, str) and gamma not in known:
        wanted = "be 'scale' or a number (or 'auto', in fit of an online estimator)"
        raise ArgumentError("gamma", wanted, f"{gamma!r}")
    return defaults.kernel_of(kernel, gamma, "scale", default)


def origin_of(kernel: Kernel | None, sample: Sample) -> Float[np.ndarray, " features"]:
    """The origin to subtract from rows before rounding.

    It is the median of every feature if the kernel is stationary and the median is far
    from 0, otherwise zeros: a shift would change the model under any other kernel.
    """
    zeros = np.zeros(sample.rows.shape[1])
    if kernel is None or not kernel.stationary:
        return zeros
    median = sample.median
    return median if sample.gamma * float(median @ median) > FAR else zeros


def translation(origin: Float[np.ndarray, " features"]) -> Scaling | None:
    """A scaling that subtracts the origin; None if it is 0."""
    return Scaling.translation(origin) if np.any(origin) else None


def origin(model: TableModel) -> Float[np.ndarray, " features"]:
    """The origin of a model, which it subtracts from rows or their features."""
    if isinstance(model.scaling, Scaling):
        return model.scaling.mean
    return np.zeros(model.model.num_features)


def names_of(estimator: BaseEstimator) -> tuple[str, ...] | None:
    """The columns of the data frame that an estimator was fitted on, if any."""
    names = getattr(estimator, "feature_names_in_", None)
    return None if names is None else tuple(names.tolist())


def classes_of(y: Shaped[np.ndarray, " n"]) -> Shaped[np.ndarray, " classes"]:
    """The classes, in order."""
    check_classification_targets(y)
    classes = np.unique(y)
    if len(classes) < 2:
        got = f"one class, {format_labels(classes)}"
        raise ArgumentError("y", "have at least 2 classes", got)
    return classes


def class_weights(
    class_weight: ClassWeight,
    classes: Shaped[np.ndarray, " classes"],
    counted: Shaped[np.ndarray, " counted"],
    y: Shaped[np.ndarray, " n"],
) -> Float[np.ndarray, " n"]:
    """The weight of each label's class; "balanced" refers to the labels `counted`."""
    if class_weight is None:
        # scikit-learn would import a tenth of a second of other modules first.
        return np.ones(len(y))
    by_class = compute_class_weight(class_weight, classes=classes, y=counted)
    return by_class[label_indices(classes, y)]


def check_weights(sample_weight: Weights, X: Table | Rows) -> Float[np.ndarray, " n"]:
    """The weights of rows, after checks; ones for None."""
    _checks.check_unmasked("sample_weight", sample_weight)
    weights = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True
    )
    if not np.any(weights > 0):
        raise ArgumentError("sample_weight", "not be zero for all rows", "zeros")
    return weights


def drop_weightless(sample_weight: Weights, *arrays: Any) -> tuple[Any, ...]:
    """These arrays of rows without those of weight 0, followed by the weights.

    They go first, since any row that is read may decide on categories, units or gamma.
    """
    if sample_weight is None:
        return *arrays, None
    weights = check_weights(sample_weight, arrays[0])
    present = np.flatnonzero(weights > 0)
    if len(present) == len(weights):
        return *arrays, weights
    check_consistent_length(*arrays)
    given = (one.tocsr() if isinstance(one, SparseMatrix) else one for one in arrays)
    return *(_safe_indexing(one, present) for one in given), weights[present]


def warn_unscaled(name: str, X: Rows, origin: Float[np.ndarray, " features"]) -> None:
    """Warns the user of the estimator of this name if dense features look unscaled."""
    if isinstance(X, np.ndarray):
        rows = X[:: -(-X.shape[0] // SAMPLED_ROWS)] - origin[None]
        scaling.warn_unscaled(name, rows)
