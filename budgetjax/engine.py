"""Driving a learner over a stream, and using its model."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Shaped

from budgetjax import expansion as support_set
from budgetjax import hyperparameters, kernels, rounds
from budgetjax.rounds import Algorithm

# Examples predicted at once: their kernel rows fit in a CPU's cache.
PREDICTION_BLOCK = 1024


def run(
    algorithm: Algorithm, state: Any, X: ArrayLike, y: ArrayLike
) -> tuple[Any, Array]:
    """Feeds a stream to a learner, one example after the other, in one compiled loop.

    The same as calling `algorithm.step` on every row in turn. Nothing the caller holds
    is donated: the old state stays valid, so a run can be repeated from it.

    New values never recompile; a new length of the stream does. To show progress, save
    checkpoints or stop early, call it on equal chunks of the stream.

    Args:
      algorithm: for example `budgetjax.pegasos`.
      state: of that algorithm.
      X: examples, shape `(n, num_features)`.
      y: labels, shape `(n,)`: -1 and +1, or integers in `0 .. num_classes-1`.

    Returns:
      The state after the stream, and the scores `f_t(x_t)`, each of the model before it
      saw the example: shape `(n,)` for one column, else `(n, columns)`.

    Raises:
      ValueError: if a shape or type does not fit, a value of `X` is not finite, a label
        is not one of the model's, or kernel values overflow. Inside `jit` or `vmap`,
        where values are traced, only shapes and types are checked.
      OverflowError: if the model has no maintenance and was full when another example
        should have entered.
    """
    X, y = stream(state, X, y)
    new, scores = _scan(algorithm, state, X, y)
    refused = hyperparameters.concrete(
        getattr(getattr(new, "maintenance", None), "num_refused", 0)
    )
    if refused is not None and np.any(refused):
        budget = np.asarray(state.expansion.budget)
        raise OverflowError(
            f"run: a budget of {budget} support vectors was full, and {refused} "
            "examples could not enter; give init a larger budget, or maintenance="
        )
    if not isinstance(scores, Tracer):
        row = int(_first_bad_row(scores if scores.ndim == 2 else scores[:, None]))
        if row < X.shape[0]:
            raise ValueError(
                f"run: every score must be finite, got {np.asarray(scores[row])} in "
                f"row {row}: kernel values overflow {scores.dtype}; scale X down"
            )
    return new, scores


@functools.partial(jax.jit, static_argnums=0)
def _scan(algorithm: Algorithm, state: Any, X: Array, y: Array) -> tuple[Any, Array]:
    def body(state, example):
        state, score = rounds.score_and_step(algorithm, state, *example)
        return state, _flat(score)

    return jax.lax.scan(body, state, (X, y))


def decision_function(state: Any, X: ArrayLike) -> Array:
    """The scores `f(x)` of every row; O(n B d).

    The rows are taken in blocks, so a million of them never build an `(n, B)` matrix.

    Args:
      state: of any online algorithm.
      X: shape `(n, num_features)`.

    Returns:
      Shape `(n,)` for a model with one column of coefficients, else `(n, columns)`.

    Raises:
      ValueError: if the shape of `X` does not fit the model.
    """
    return _decision_function(state, _rows("decision_function", state, X))


@jax.jit
def _decision_function(state: Any, X: Float[Array, "n features"]) -> Array:
    expansion = state.expansion
    n, columns = X.shape[0], expansion.coefficients.shape[1]
    size = min(n, PREDICTION_BLOCK)

    def block(index, scores):
        # The last block starts early enough to be whole: `dynamic_slice` clamps.
        start = index * size
        rows = jax.lax.dynamic_slice_in_dim(X, start, size)
        kernel_rows = support_set.kernel_rows(
            state.kernel, expansion, rows, kernels.squared_norms(rows)
        )
        new = support_set.scores(expansion, kernel_rows)
        return jax.lax.dynamic_update_slice_in_dim(scores, new, start, 0)

    scores = jnp.zeros((n, columns), X.dtype)
    if n:
        scores = jax.lax.fori_loop(0, -(-n // size), block, scores)
    return _flat(scores)


def predict(state: Any, X: ArrayLike) -> Array:
    """The predicted label of every row; O(n B d).

    Args:
      state: of any online classifier.
      X: shape `(n, num_features)`.

    Returns:
      Integers of shape `(n,)`: -1 or +1, where a score of 0 gives -1; or the class of
      the largest score, the lowest of equal ones.

    Raises:
      ValueError: if the shape of `X` does not fit the model.
    """
    scores = _decision_function(state, _rows("predict", state, X))
    if scores.ndim == 1:
        return jnp.where(scores > 0, 1, -1).astype(jnp.int32)
    return jnp.argmax(scores, axis=1).astype(jnp.int32)


def _flat(scores: Shaped[Array, "..."]) -> Shaped[Array, "..."]:
    """Scores without the last axis, where the model has one column."""
    return scores[..., 0] if scores.shape[-1] == 1 else scores


def stream(
    state: Any, X: ArrayLike, y: ArrayLike
) -> tuple[Float[Array, "n features"], Shaped[Array, " n"]]:
    """A stream in the types of the state, checked; see `run`."""
    X = _rows("run", state, X)
    if jnp.shape(y) != X.shape[:1]:
        raise ValueError(
            f"run: y must have shape {X.shape[:1]}, one label a row of X, "
            f"got {jnp.shape(y)}"
        )
    columns = state.expansion.coefficients.shape[-1]
    given = hyperparameters.concrete(y)
    y = rounds.labels("run", state, y)
    if given is not None:
        known = (
            np.isin(given, (-1, 1))
            if columns == 1
            else (given >= 0) & (given < columns)
        )
        if not np.all(known):
            row = int(np.argmin(known))
            expected = "-1 or +1" if columns == 1 else f"in 0 .. {columns - 1}"
            raise ValueError(
                f"run: y must be {expected}, got {given[row]!r} in row {row}"
            )
    if not isinstance(X, Tracer):
        row = int(_first_bad_row(X))
        if row < X.shape[0]:
            column = int(np.argmin(np.isfinite(np.asarray(X[row]))))
            raise ValueError(
                f"run: X must be finite, got {float(X[row, column])} in row {row}, "
                f"column {column}"
            )
    return X, y


@jax.jit
def _first_bad_row(X: Float[Array, "n features"]) -> Array:
    """The first row with a value that is not finite, or n."""
    rows = jnp.arange(X.shape[0])
    # A sum is finite only if all its terms are, and it reads X once.
    bad = ~jnp.isfinite(jnp.sum(X * 0, axis=1))
    return jnp.min(jnp.where(bad, rows, X.shape[0]), initial=X.shape[0])


def _rows(where: str, state: Any, X: ArrayLike) -> Float[Array, "n features"]:
    """Rows in the dtype of the state, if their shape is right."""
    features = state.expansion.vectors.shape[-1]
    shape = jnp.shape(X)
    if len(shape) != 2 or shape[1] != features:
        raise ValueError(
            f"{where}: X must have shape (n, {features}), {features} being the model's "
            f"num_features, got {shape}"
        )
    return jnp.asarray(X, state.expansion.vectors.dtype)
