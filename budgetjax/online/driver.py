"""Drives a learner over a stream."""

import functools
from typing import Any, Literal, overload

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Shaped

from budgetjax import _checks, _counters, _forks, _platform, _sharding, kernels, scoring
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._shapes import Examples, Index, PerExample, Targets
from budgetjax.kernels import Kernel
from budgetjax.online import examples
from budgetjax.online.state import Kind, Online, Round, State
from budgetjax.scoring import squeeze_columns

# Rows of a short stream to learn at once, one program for any number of rows, and the
# examples per block there: the plain scan of `step` compiles in 0.8 seconds, and longer
# blocks in 1.4, but they save 0.02 seconds over 8,192 rows at most.
FEW_ROWS, PLAIN_SCAN = 256, 1


@overload
def run(
    state: Kind,
    X: ArrayLike,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    block_size: int | None = None,
    keep_scores: bool = True,
    variance: Literal[False] = False,
) -> tuple[Kind, Any]: ...
@overload
def run(
    state: Kind,
    X: ArrayLike,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    block_size: int | None = None,
    keep_scores: bool = True,
    variance: Literal[True],
) -> tuple[Kind, Any, Float[Array, "*n_columns"]]: ...
@names_errors("run")
def run(
    state: Online,
    X: ArrayLike,
    y: ArrayLike,
    *,
    weight: ArrayLike | None = None,
    block_size: int | None = None,
    keep_scores: bool = True,
    variance: bool = False,
) -> Any:
    """Feeds a stream to a learner, one example after the other, in one compiled loop.

    The result is that of calling `budgetjax.step` on every row in turn, up to the
    rounding of sums. No argument is donated, so a run can be repeated.

    A block of examples is scored by two matrix products, and the loop goes from one
    example that changes the model to the next (see `budgetjax.online.engine`).

    New values never recompile; a new length of the stream does. To show progress, save
    checkpoints or stop early, call it on equal chunks of the stream.

    Cost: O(B (d + C)) per example, plus the updates of the learner; see its class.
    Memory: X, the scores, O(n C), and a second state.

    Args:
      state: from `init` of a learner, such as `budgetjax.Pegasos`; it stays valid.
      X: examples, shape `(n, num_features)`.
      y: labels, shape `(n,)`: -1 and +1, or integers in `0 .. num_classes-1`; for a
        regressor real numbers, shape `(n, num_outputs)` for several outputs, or `(n,)`
        if all share one target.
      weight: how many equal rows each one stands for, shape `(n,)`, at least 0;
        booleans are allowed. Up to 1 it is a factor of the update; a heavier row moves
        the model no farther than to the minimum of its own loss, or until it violates
        no more. A row of weight 0 is scored and otherwise ignored; it may be padding,
        such as NaN, whose score is then NaN, and its label is not read. None is 1 for
        all.
      block_size: examples per block; 1 is the plain scan of `step`. None chooses.
      keep_scores: whether to return the scores. With many classes they take more memory
        than the rows.
      variance: whether to return what `budgetjax.variance` says too, of a learner that
        knows it. It costs `budgetjax.KRLST` nothing. The loop of `budgetjax.AROW` then
        is the plain scan of steps, and each costs a variance.

    Returns:
      The state after the stream, and the scores `f_t(x_t)`, each from the model before
      it saw the example: shape `(n,)` for one column, else `(n, columns)`; None with
      `keep_scores=False`. With `variance=True` the variances by then, too.

    Raises:
      ValueError: if a shape or type does not fit, a weight is negative, kernel values
        overflow, or a row with a weight has a value that is not finite or a label that
        is not one of the model's.
        Inside `jit` or `vmap`, where values are traced, only shapes and types are
        checked.
      OverflowError: if the model is unbudgeted and had no slot left for another
        example.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=1, budget=2,
      ...     maintenance=bj.RemoveOldest())
      >>> X, y = np.array([[0.0], [3.0], [6.0]]), np.array([1, -1, 1])
      >>> state, scores = bj.run(state, X, y)
      >>> int(state.num_mistakes), scores.shape
      (3, (3,))
    """
    check_online(state)
    X, y, weights = examples.check_stream(state, X, y, weight)
    size = block_length(block_size)
    keeps = _checks.flag("keep_scores", keep_scores)
    if _checks.flag("variance", variance):
        new, scores, variances = run_with_variances(state, X, y, weights, size)
        check_result(new, scores, X, weights)
        return new, scores if keeps else None, variances
    new, scores = run_checked(state, X, y, weights, size, keeps)
    check_result(new, scores, X, weights)
    return new, scores if keeps else None


@names_errors("step")
def step(
    state: Kind, x: ArrayLike, y: ArrayLike, weight: ArrayLike | None = None
) -> Kind:
    """The state after one example.

    The function is pure, and made for `jax.jit`, `jax.vmap` and `jax.lax.scan`, where
    values are traced and not checked. Elsewhere a call runs one compiled program.

    Cost: as for `budgetjax.run`, which is quicker on many examples.

    Args:
      state: from `init` of a learner.
      x: the example, shape `(num_features,)`.
      y: the label, -1 or +1, or an integer in `0 .. num_classes-1`; for a regressor a
        real number, or an array of shape `(num_outputs,)`.
      weight: how many equal examples this one stands for, at least 0. Up to 1 it is a
        factor of the update; a heavier example moves the model no farther than to the
        minimum of its own loss, or until it violates no more. An example of weight 0
        changes nothing, not even the clock. None is 1.

    Raises:
      ValueError: if a shape, a label or the weight is invalid.

    Example:
      >>> state = bj.Pegasos().init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> int(state.num_seen)
      1
    """
    check_online(state)
    return _step(state, *examples.check_example(state, x, y, weight))


@functools.partial(jax.jit, inline=True)
@_sharding.with_auto_axes
def _step(state: Kind, x: Array, y: Array, weight: Array) -> Kind:
    X, weights = x[None], weight[None]
    return state.choose_origin(X, weights).learn(X, y[None], weights)[0]


def check_online(state: object) -> None:
    """Raises unless this is the state of a learner."""
    _forks.check()
    if not isinstance(state, Online):
        wanted = "be of a learner, such as budgetjax.Pegasos().init(...)"
        raise ArgumentError("state", wanted, _checks.kind_name(state))


def block_length(block_size: int | None) -> int:
    """Examples per block, the best for this backend if None.

    Long blocks make few large matrix products, but every violation touches the rest of
    its block. On a CPU, 48 took at most 5 percent more time than the best of 8 to 96,
    for Pegasos with merging and removal and for Projectron with budgets of 50 to 500 on
    ijcnn1, checkerboard and covtype; for AROW 16 is the best, by 10 percent. On an
    accelerator each operation of the loop is one launch, whatever its length, so blocks
    are longer there. By count, not by time: a block of T rows takes some 20 launches,
    and a thousand models write and read 8 T kilobytes per row for its kernel matrix. On
    an H100 the two balance at T = 150, and up to 300 they cost little more.
    """
    if block_size is not None:
        return _checks.size("block_size", block_size)
    return 48 if _platform.on_cpu() else 256


def check_result(state: Online, scores: Array, X: Array, weights: Array) -> None:
    """Raises if the model had to refuse examples, or a score is not finite.

    A scalar stands for scores that were not kept; see `run_checked`. Scores of weight 0
    may be of padding.
    """
    state.check_room()
    if isinstance(scores, Tracer):
        return
    if scores.ndim == 0:
        if jnp.isfinite(scores):
            return
        what, got = "the model", "one that is not"
    else:
        known = _checks.concrete(weights)
        row = _checks.first_bad_row(scores, None if known is None else known > 0)
        if row == scores.shape[0]:
            return
        what, got = "every score", f"{np.asarray(scores[row])} in row {row}"
    raise ArgumentError(what, "be finite", f"{got}: {explain_overflow(state, X)}")


def explain_overflow(model: Any, X: Any, first_row: int = 0) -> str:
    """Why a model of these examples is not finite, and what to do."""
    expansion = getattr(model, "expansion", None)
    if expansion is None:
        return f"numbers of its parts overflow {X.dtype}; scale rows and targets down"
    origin = np.asarray(expansion.origin)
    rows = np.asarray(X, np.float64) - origin[None]
    spread = np.sqrt(np.sum(np.var(rows, axis=0)))
    away = np.linalg.norm(np.mean(rows, axis=0))
    if away > 10 * spread > 0:
        return (
            f"{X.dtype} cannot hold the kernel of data so far from 0, with the mean at "
            f"{away:.3g} and a deviation of {spread:.3g}; centre X"
        )
    X = X - origin[None]
    squares = kernels.squared_norms(X)
    known = jnp.isfinite(expansion.squares)
    part = slice(scoring.PREDICTION_BLOCK)
    some = model.kernel.gram(
        X[part], expansion.vectors, squares[part], expansion.squares
    )
    good = jnp.all(jnp.isfinite(some) | ~known[None])
    if not bool(good & jnp.all(jnp.isfinite(diagonal(model.kernel, X)))):
        row, column = np.unravel_index(np.argmax(np.abs(rows)), rows.shape)
        return (
            f"kernel values overflow {X.dtype}; scale X down, whose largest number is "
            f"{rows[row, column]:g} in row {first_row + row}, column {column}"
        )
    return (
        f"coefficients overflow {X.dtype}; a learning rate, a penalty or a weight is "
        "too large"
    )


@jax.jit
def diagonal(kernel: Kernel, X: Float[Array, "n features"]) -> Float[Array, " n"]:
    """`k(x, x)` of rows; not finite if a squared norm is not."""
    norms = kernels.squared_norms(X)
    return kernel.diag(X, norms) + norms * 0


def check_rows(state: Online, X: Float[Array, "n features"]) -> Float[Array, " n"]:
    """A number per row; not finite if the kernel of the model overflows there."""
    if not isinstance(state, State):
        return jnp.zeros(len(X), X.dtype)
    return diagonal(state.kernel, X)


@functools.partial(jax.jit, static_argnums=4)
@_sharding.with_auto_axes
def run_with_variances(
    state: Kind, X: Array, y: Array, weights: Array, size: int
) -> tuple[Kind, Array, Array]:
    """`run_checked` with variances."""
    like = jax.eval_shape(lambda: state.variance(X))
    blank = _blank_scores(state, X), jnp.zeros(like.shape, like.dtype)
    state, told = _run_blocks(state, X, y, weights, size, Round(*blank))
    return state, squeeze_columns(told.score), told.variance


@functools.partial(jax.jit, static_argnums=(4, 5))
@_sharding.with_auto_axes
def run_checked(
    state: Kind,
    X: Array,
    y: Array,
    weights: Array,
    size: int,
    keeps: bool = True,
) -> tuple[Kind, Array]:
    """`run` on the output of `examples.check_stream`, in blocks of `size` examples.

    If scores are not kept, the second result is 0, or NaN for a non-finite model.
    """
    blank = Round(_blank_scores(state, X)) if keeps else None
    state, told = _run_blocks(state, X, y, weights, size, blank)
    return state, state.check_value() if told is None else squeeze_columns(told.score)


def _blank_scores(state: Online, X: Array) -> Array:
    return jnp.zeros((X.shape[0], state.num_columns), X.dtype)


def _run_blocks(
    state: Kind, X: Array, y: Array, weights: Array, size: int, blank: Any
) -> tuple[Kind, Any]:
    """The state after all blocks, and what it said; `blank` has room for that."""
    asks = blank is not None and blank.variance is not None

    def body(carry, start):
        state, said = carry
        rows, labels, counts, at, fresh = take_block(X, y, weights, start, size)
        state, told = state.learn(rows, labels, counts, variance=asks)
        if said is None:
            return (state, said), None

        def put(whole: Array, new: Array) -> Array:
            known = jax.lax.dynamic_slice_in_dim(whole, at, new.shape[0])
            is_new = fresh.reshape(-1, *(1,) * (new.ndim - 1))
            new = jnp.where(is_new, new, known)
            return jax.lax.dynamic_update_slice_in_dim(whole, new, at, 0)

        return (state, jax.tree.map(put, said, told)), None

    if X.shape[0] == 0:
        return state, blank
    state = state.choose_origin(X, weights)
    starts = jnp.arange(0, X.shape[0], size, dtype=jnp.int32)
    carry, *_ = _sharding.vary((state, blank), X, y, weights)
    return _platform.scan(body, carry, starts)[0]


def take_block(
    X: Array, y: Array, weights: Array, start: Index, size: int
) -> tuple[Examples, Targets, PerExample, Index, Bool[Array, " size"]]:
    """The `size` examples from `start` on, where they start, and which are new.

    The last block starts early enough to be full, so that all blocks share one program;
    its head has been seen already and has weight 0.
    """
    size = min(size, X.shape[0])
    at = jnp.minimum(start, X.shape[0] - size)
    fresh = at + jnp.arange(size, dtype=jnp.int32) >= start
    rows, labels, counts = (
        jax.lax.dynamic_slice_in_dim(array, at, size) for array in (X, y, weights)
    )
    return rows, labels, jnp.where(fresh, counts, 0), at, fresh


def run_with_errors(
    state: Kind,
    X: Float[Array, "n features"],
    y: Shaped[Array, "n ..."],
    weights: Float[Array, " n"],
    size: int,
    axis: str | None,
) -> tuple[Kind, Shaped[Array, " blocks"]]:
    """`run` without its scores: the state, and the mistakes so far after every block.

    For a regressor they are the squared errors, averaged over the outputs.
    """
    regression = state.is_regressor
    state = state.choose_origin(X, weights)

    def body(carry, start):
        new, errors = carry
        rows, labels, counts, *_ = take_block(X, y, weights, start, size)
        new, told = new.learn(rows, labels, counts, axis=axis)
        if regression:
            predicted = state.predict_from_scores(told.score)
            away = predicted - labels.reshape(told.score.shape)
            lost = jnp.where((counts > 0)[:, None], away**2, 0)
            errors += jnp.sum(lost) / told.score.shape[1]
        else:
            errors = _counters.since(new.counts.mistakes, state.counts.mistakes)
        return (new, errors), errors

    starts = jnp.arange(0, X.shape[0], size, dtype=jnp.int32)
    none = jnp.zeros((), X.dtype if regression else jnp.int32)
    (new, _), errors = _platform.scan(body, (state, none), starts)
    return new, errors
