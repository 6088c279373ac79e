"""Examples held out of a refit: they choose penalty and metric, and calibrate."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from budgetjax import calibration, losses
from budgetjax.refitting import moving_vectors, newton
from budgetjax.refitting.passes import Block

# A function from rows to scores, of one model or more.
Scores = Callable[[np.ndarray], Any]
# Share of the examples that is held out to choose.
HELD_OUT = 0.2


def part(
    blocks: Callable[[], Iterator[Block]], seed: int, keep: bool
) -> Iterator[Block]:
    """The blocks with weights of the held-out examples only, or of the others."""
    random = np.random.default_rng(seed)
    for block in blocks():
        held = random.random(block.weights.shape[0]) < HELD_OUT
        yield block._replace(weights=block.weights * (held == keep))


def mistakes(
    loss: Callable[[Array, Array], Array],
    classifies: bool,
    block: Block,
    scores_of: Scores,
) -> Shaped[np.ndarray, "size models"]:
    """Where one model or more are mistaken, or for regression their losses.

    The largest of several scores of a classifier decides.
    """
    scores, (_, columns) = np.asarray(scores_of(block.X)), block.targets.shape
    scores = scores.reshape(len(scores), -1, columns)
    targets = block.targets[:, None]
    if classifies and columns > 1:
        return np.argmax(scores, 2) != np.argmax(targets, 2)
    if losses.takes_labels(loss):
        return (scores * targets <= 0)[..., 0]
    numbers = newton.of_problems(loss, columns, block.X.dtype)
    each: Any = jax.vmap(moving_vectors.values, (None, 1, None), 1)
    found = each(numbers, jnp.asarray(scores), jnp.asarray(block.targets))
    return np.sum(np.asarray(found), axis=2)


def errors(
    mistakes: Callable[[Block, Scores], np.ndarray],
    blocks: Callable[[], Iterator[Block]],
    scores_of: Scores,
) -> Float[np.ndarray, " models"]:
    """The mistakes of one model or more, or for regression their losses."""
    total = np.zeros(1)
    for block in blocks():
        weights = block.weights.astype(np.float64)
        total = total + weights @ mistakes(block, scores_of)
    return total


def better(
    mistakes: Callable[[Block, Scores], np.ndarray],
    blocks: Callable[[], Iterator[Block]],
    old: Scores,
    new: Scores,
) -> bool:
    """Whether a model has less error than another, and not by chance.

    By more than one and a half standard deviations of the difference; of mistakes this
    is the test of McNemar. With one, satimage is predicted worse by a learned metric.
    """
    gain = variance = 0.0
    for block in blocks():
        before, after = (mistakes(block, each) for each in (old, new))
        each = block.weights[:, None] * (before.astype(np.float64) - after)
        gain += float(np.sum(each))
        variance += float(np.sum(each**2))
    return gain > 1.5 * variance**0.5


def calibrated(scores_of: Scores, held: Callable[[], Iterator[Block]]) -> float:
    """The calibration of these scores of the held-out examples."""
    scores, codes, weights = [], [], []
    for block in held():
        rows = np.flatnonzero(block.weights)
        targets = block.targets[rows]
        several = targets.shape[1] > 1
        found = np.asarray(scores_of(block.X))[rows]
        scores.append(found if several else found[:, 0])
        codes.append(np.argmax(targets, 1) if several else targets[:, 0] > 0)
        weights.append(block.weights[rows])
    return calibration.fitted(
        np.concatenate(scores),
        np.concatenate(codes).astype(np.int32),
        np.concatenate(weights),
    )
