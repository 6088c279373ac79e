"""Labels of the data and their indices, in the order of a model's scores."""

import numpy as np
from jaxtyping import Int32, Shaped

from budgetjax._errors import ArgumentError
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
