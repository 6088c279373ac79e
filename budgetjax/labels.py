"""Labels of the data and their indices, in the order of a model's scores."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int32, Shaped

from budgetjax._errors import ArgumentError, names_errors


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


def format_labels(classes: np.ndarray | None) -> str:
    """The first classes, for error messages."""
    if classes is None:
        return "none"
    shown = ", ".join(repr(label) for label in classes[:10].tolist())
    return shown + (", ..." if len(classes) > 10 else "")


@names_errors("predict")
def labels_from_scores(
    scores: Float[Array | np.ndarray, " n *classes"], classes: np.ndarray | None
) -> Shaped[Array | np.ndarray, " n"]:
    """The label of every row: of the larger score, or of the sign of a single one.

    Without `classes`, labels are -1 and +1, or the index of the class.
    """
    numpy = np if isinstance(scores, np.ndarray) else jnp
    binary = scores.ndim == 1
    best = scores > 0 if binary else numpy.argmax(scores, axis=1)
    if classes is None:
        return (numpy.where(best, 1, -1) if binary else best).astype(np.int32)
    if isinstance(scores, Tracer):
        return _as_traced(classes)[best.astype(np.int32)]
    return classes[np.asarray(best).astype(np.intp)]


def _as_traced(classes: Any) -> Array:
    """The labels as an array that JAX can index, if it holds them."""
    if isinstance(classes, Tracer):
        return classes
    if classes.dtype.kind in "biuf":
        held = classes.astype(jax.dtypes.canonicalize_dtype(classes.dtype))
        if np.array_equal(held, classes):
            return jnp.asarray(held)
    expected = "be numbers that JAX holds, where rows are traced"
    got = f"{format_labels(classes)}; take the largest of decision_function"
    raise ArgumentError("the labels of the model", expected, got)
