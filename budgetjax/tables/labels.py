"""Labels of the data and their indices, in the order of a model's scores."""

import numpy as np
from jaxtyping import Float, Int32, Shaped
from numpy.typing import ArrayLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax.model import Model
from budgetjax.scoring import format_labels


def label_indices(
    classes: Shaped[np.ndarray, " classes"], y: Shaped[np.ndarray, " n"]
) -> Int32[np.ndarray, " n"]:
    """The index of each label among the classes, or -1."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([known.get(label, -1) for label in y.tolist()], np.int32)


def encode_labels(
    classes: np.ndarray, y: np.ndarray, first_row: int = 0
) -> Int32[np.ndarray, " n"]:
    """The index of each label among the classes; raises if one is unknown.

    `first_row` is the number of the first row, for error messages.
    """
    codes = label_indices(classes, y)
    if np.any(codes < 0):
        row = int(np.argmin(codes))
        got = f"{y.tolist()[row]!r} in row {first_row + row}"
        raise ArgumentError("y", f"be one of {format_labels(classes)}", got)
    return codes


def encode_labels_and_weights(
    model: Model, num_rows: int, y: ArrayLike, weight: ArrayLike | None
) -> tuple[Int32[np.ndarray, " n"], Float[np.ndarray, " n"]]:
    """The index of each row's label, and the weights, after checks."""
    _checks.check_unmasked("y", y)
    known, y, expected = model.class_labels, np.asarray(y), (num_rows,)
    if known is None:
        raise ArgumentError("model", "be a classifier", "a regressor")
    if y.shape != expected:
        wanted = f"have shape {expected}, one label per row of X"
        raise ArgumentError("y", wanted, y.shape)
    weights = check_weights(num_rows, weight)
    return encode_labels(known, y), weights


def check_weights(num_rows: int, weight: ArrayLike | None) -> Float[np.ndarray, " n"]:
    """The weights of rows, by default 1, after checks."""
    _checks.check_unmasked("weight", weight)
    expected = (num_rows,)
    weights = np.ones(num_rows) if weight is None else np.asarray(weight, np.float64)
    if weights.shape != expected or not np.all((weights >= 0) & np.isfinite(weights)):
        wanted = f"be finite and at least 0, of shape {expected}, one per row of X"
        got = f"{weights.tolist()[:3]} of shape {weights.shape}"
        raise ArgumentError("weight", wanted, got)
    return weights
