"""A training set of two classes, which a solver reads once."""

import zlib
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer, Key

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._record import Record
from budgetjax._rows import RawRows

# A number; one number per example, shape `(n,)`; the examples, shape `(n, d)`.
Scalar = Float[Array, ""]
Vector = Float[Array, " n"]
Matrix = Float[Array, "n d"]
Own = TypeVar("Own", bound="TrainingSet")


class TrainingSet(Record):
    """Examples of two classes: checked, of one dtype, and on the device.

    `budgetjax.Solver.read` makes it, so that `budgetjax.solve` need not read the same
    arrays again for another penalty, or for other labels.

    Attributes:
      X: the examples, shape `(n, d)`, in the form that the solver visits them.
      y: labels, -1 and +1, shape `(n,)`.
      weight: the weight of each example, above 0, shape `(n,)`; None for ones.
      digest_of_rows: a checksum of the rows; 0 if they were traced.
    """

    X: Any
    y: Vector
    weight: Vector | None
    digest_of_rows: Integer[Array, ""]

    @property
    def dtype(self) -> np.dtype:
        """The float type in which solvers compute."""
        return self.y.dtype

    @property
    def digest(self) -> Integer[Array, ""]:
        """A checksum of examples, labels and weights; 0 if any was traced."""
        return digest(self.digest_of_rows, self.y, self.weight)

    def with_labels(self: Own, y: ArrayLike) -> Own:
        """The training set with other labels of the same rows, which are not copied."""
        return self._replace(y=read_labels(y, len(self.y), self.dtype))


def read_features(X: RawRows) -> Matrix:
    """Dense, finite rows; float32 and float64 are kept.

    Shorter floats become float32, as their products would lose digits and overflow, and
    other numbers get JAX's default.
    """
    X = _checks.array("X", X)
    check_shape(X.shape)
    kind: DTypeLike = float
    if jnp.issubdtype(X.dtype, jnp.floating):
        kind = X.dtype if jnp.finfo(X.dtype).bits >= 32 else jnp.float32
    X = _checks.to_device(X, kind)
    _checks.check_finite(X)
    return X


def check_shape(shape: tuple[int, ...]) -> None:
    """Raises if this is not the shape of a nonempty matrix."""
    if len(shape) != 2 or 0 in shape:
        raise ArgumentError("X", "have shape (n, d), n and d above 0", shape)


def read_labels(y: ArrayLike, number: int, dtype: DTypeLike) -> Vector:
    """The labels, after a check that they are -1 and +1, one per row, both present."""
    y = _read_column("y", y, number, "label")
    labels = _checks.concrete(y)
    if labels is not None:
        if not np.all(np.abs(labels) == 1):
            row = int(np.argmin(np.abs(labels) == 1))
            raise ArgumentError("y", "be -1 or +1", f"{labels[row]:g} in row {row}")
        if np.all(labels == labels[0]):
            got = f"{labels[0]:+g} in all {len(labels)} rows"
            raise ArgumentError("y", "have both classes", got)
    return _checks.to_device(y, dtype)


def read_weight(weight: ArrayLike | None, y: Vector) -> Vector | None:
    """The weights of the examples, after a check that they are above 0."""
    if weight is None:
        return None
    weight = _read_column("weight", weight, len(y), "number")
    known = _checks.concrete(weight)
    if known is not None:
        cast = known.astype(y.dtype)
        good = np.isfinite(cast) & (cast >= np.finfo(y.dtype).tiny)
        if not np.all(good):
            row = int(np.argmin(good))
            got = f"{known[row]:g} in row {row}; leave out rows that do not count"
            raise ArgumentError("weight", "be finite and above 0", got)
    return _checks.to_device(weight, y.dtype)


def _read_column(
    name: str, value: ArrayLike, rows: int, what: str
) -> Array | np.ndarray:
    value = _checks.array(name, value)
    if value.shape != (rows,):
        wanted = f"have shape ({rows},), one {what} per row of X"
        raise ArgumentError(name, wanted, value.shape)
    return value


def total_weight(y: Vector, weight: Vector | None) -> Array:
    """The number of examples, or the sum of their weights."""
    return jnp.asarray(y.shape[0], y.dtype) if weight is None else jnp.sum(weight)


def draw_examples(
    key: Key[Array, ""], shape: tuple[int, ...], n: int, weight: Array | None
) -> Integer[Array, "..."]:
    """Random examples, with replacement, in proportion to their weights."""
    if weight is None:
        return jax.random.randint(key, shape, 0, n, jnp.int32)
    ends = jnp.cumsum(weight)
    chances = jax.random.uniform(key, shape, weight.dtype) * ends[-1]
    found = jnp.searchsorted(ends, chances, side="right").astype(jnp.int32)
    return jnp.minimum(found, n - 1)


def digest(*parts: Any) -> Integer[Array, ""]:
    """A checksum of arrays, in order; 0 if any of them is traced."""
    if _checks.is_traced(parts):
        return jnp.uint32(0)
    value = 0
    for known in jax.tree.leaves(parts):
        # Of the numbers where they are, since a copy would take longer.
        value = zlib.crc32(np.ascontiguousarray(known).view(np.uint8).data, value)
    return jax.device_put(np.uint32(value))
