"""Converts rows, labels and kernels from scikit-learn's conventions to the core's."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, check_consistent_length
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._rows import SparseMatrix
from budgetjax.scoring import format_labels
from budgetjax.tables.labels import label_indices
from budgetjax.training.rows import Rows

# Rows as users have them: arrays, lists, data frames and sparse matrices.
Table: TypeAlias = ArrayLike | scipy.sparse.sparray | scipy.sparse.spmatrix
# Weights by label; "balanced" makes the classes equally heavy.
ClassWeight: TypeAlias = Mapping | str | None
# One number per row; None for ones.
Weights: TypeAlias = ArrayLike | None
# The seed of all draws; None for another one in each fit.
RandomState: TypeAlias = int | np.random.RandomState | None

# The dtypes that `validate_data` keeps; other numbers become the first of them.
FLOATS = (np.float64, np.float32)


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
