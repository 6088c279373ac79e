"""The rows that wait to be learned, and the scores of one row without JAX."""

import dataclasses
import functools
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Shaped

from budgetjax.online.engine import decayed_scale

# Rows that are learned at once. A single row uses the same program, since most of its
# time is the call itself.
WAITING = 64

Scores: TypeAlias = Float[np.ndarray, " columns"]


@dataclasses.dataclass
class Queue:
    """The `size` rows that wait to be learned; rows after the last have weight 0.

    The first `quiet` of them do not change the model.
    """

    X: Float32[np.ndarray, "waiting features"]
    y: Float32[np.ndarray, " waiting"]
    weights: Float32[np.ndarray, " waiting"]
    size: int = 0
    quiet: int = 0

    @classmethod
    def empty(cls, num_features: int) -> "Queue":
        """A queue with new arrays; a program may still read those of the last one."""
        weights = np.zeros(WAITING, np.float32)
        return cls(np.zeros((WAITING, num_features), np.float32), weights + 1, weights)


class View(NamedTuple):
    """A model with a Gaussian kernel as NumPy arrays.

    `scales` has the factor of the coefficients after each number of quiet rows, and
    `last` the last number of quiet rows, row and scores; it is empty before.
    """

    origin: Float[np.ndarray, " features"]
    vectors: Float[np.ndarray, "rows features"]
    squares: Float[np.ndarray, " rows"]
    coefficients: Float[np.ndarray, "rows columns"]
    scales: Float[np.ndarray, " ticks"]
    gamma: float
    last: dict[tuple[int, bytes], Scores]

    def scores(self, row: Float[np.ndarray, " features"], quiet: int) -> Scores:
        """The scores of one row after so many quiet rows; O(rows features)."""
        key = quiet, row.tobytes()
        scores = self.last.get(key)
        if scores is not None:
            return scores
        # The caller raises if the model has overflowed.
        with np.errstate(over="ignore", invalid="ignore"):
            row = row - self.origin
            distances = self.squares + row.dot(row) - 2 * self.vectors.dot(row)
            kernel_row = np.exp(-self.gamma * np.maximum(distances, 0))
            scores = self.scales[quiet] * kernel_row.dot(self.coefficients)
        self.last.clear()
        self.last[key] = scores
        return scores


@functools.partial(jax.jit, donate_argnums=0, static_argnums=4)
def learn_rows(
    state: Any,
    X: Float[Array, "size features"],
    y: Shaped[Array, " size"],
    weights: Float[Array, " size"],
    in_numpy: bool,
) -> tuple[Any, Float[Array, " ticks"]]:
    """The state after some rows, and its scale after each number of quiet rows."""
    new, _ = state.choose_origin(X, weights).learn(X, y, weights)
    if not in_numpy:
        return new, jnp.ones(1, new.dtype)
    ahead = jnp.arange(WAITING + 1, dtype=jnp.int32)
    return new, decayed_scale(new.expansion.scale, new.learner.decay(new, ahead))


def margin(scores: Scores, y: np.floating) -> float:
    """The margin, as in `budgetjax.losses.margin`."""
    if len(scores) == 1:
        return float(y * scores[0])
    others = scores.tolist()
    score = others.pop(int(y))
    return score - max(others)
