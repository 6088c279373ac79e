r"""The kernel SVM as a regularised loss: what its solvers share.

All of them work on

.. math:: P(w) = \frac{\lambda}{2} \|w\|^2 + \frac{1}{n} \sum_i \max(0, 1 - y_i
    \langle w, \Phi(x_i) \rangle)

and its dual :math:`D(\alpha) = \lambda (\sum_i \alpha_i - \frac{1}{2} \alpha^T Q
\alpha)` with :math:`0 \le \alpha_i \le 1/(\lambda n)`, where :math:`w = \sum_i \alpha_i
y_i \Phi(x_i)` and :math:`Q_{ij} = y_i y_j k(x_i, x_j)`. With a bias, :math:`\sum_i y_i
\alpha_i = 0` as well. The penalty of other libraries is :math:`C = 1/(\lambda n)`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Key

from budgetjax import checks, models
from budgetjax.checks import Flag, Name
from budgetjax.kernels import Kernel
from budgetjax.models import KernelModel
from budgetjax.solvers.kernel import row_cache
from budgetjax.solvers.kernel.row_cache import KernelRows
from budgetjax.solvers.kernel.solve import Objective
from budgetjax.solvers.kernel.training import of_state, same, training_set


class State(NamedTuple):
    """The state of a solver of the regularised SVM on `n` examples.

    Attributes:
      algorithm: whose state it is.
      kernel: of the model.
      rows: kernel rows.
      regularization: lambda.
      coefficients: alpha, shape `(n,)`, or what the solver keeps in its place.
      responses: `Q coefficients`, shape `(n,)`.
      lost: what rounding has taken from the responses, shape `(n,)`. Without it a
        million updates in float32 leave them, and the gap, wrong by a thousandth.
      num_visits: to drawn examples, so far.
      num_updates: changes of a coefficient, or of a pair, so far.
      key: of the draws.
      fit_bias: whether the model has a bias.
    """

    algorithm: Name
    kernel: Kernel
    rows: KernelRows
    regularization: Float[Array, ""]
    coefficients: Float[Array, " n"]
    responses: Float[Array, " n"]
    lost: Float[Array, " n"]
    num_visits: Integer[Array, ""]
    num_updates: Integer[Array, ""]
    key: Key[Array, ""]
    fit_bias: Flag


def start(
    where: str,
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    *,
    regularization: ArrayLike,
    batch_size: int,
    precompute: bool | str,
    cache_size: float,
    seed: ArrayLike = 0,
    fit_bias: bool = False,
) -> State:
    """The state of the zero model; the arguments are those of the solvers' `init`."""
    X, y = training_set(where, kernel, X, y)
    checks.positive(where, "regularization", regularization)
    batch = checks.size(where, "batch_size", batch_size)
    rows = row_cache.start(
        where,
        kernel,
        X,
        y,
        batch_size=min(batch, X.shape[0]),
        precompute=precompute,
        cache_size=cache_size,
    )
    zeros = jnp.zeros_like(rows.squares)
    return State(
        algorithm=checks.algorithm_of(where),
        kernel=kernel,
        rows=rows,
        regularization=checks.as_leaf(where, "regularization", regularization, X.dtype),
        coefficients=zeros,
        responses=zeros,
        lost=zeros,
        num_visits=jnp.int32(0),
        num_updates=jnp.int32(0),
        key=jax.random.key(checks.scalar_integer(where, "seed", seed)),
        fit_bias=checks.flag(where, "fit_bias", fit_bias),
    )


def penalty(
    regularization: Float[Array, ""], y: Float[Array, " n"]
) -> Float[Array, ""]:
    """C, the largest coefficient."""
    return 1 / (regularization * y.shape[0])


def best_change(
    coefficients: Float[Array, "*some"],
    responses: Float[Array, "*some"],
    diagonal: Float[Array, "*some"],
    most: Float[Array, ""],
) -> Float[Array, "*some"]:
    """What each coefficient, changed alone, changes by to maximise the dual."""
    # Where k(x, x) = 0 this is infinite, and the coefficient as large as may be.
    best = coefficients + (1 - responses) / diagonal
    return jnp.clip(best, 0, most) - coefficients


def primal(
    squared_norm: Float[Array, ""],
    responses: Float[Array, " n"],
    regularization: Float[Array, ""],
) -> Float[Array, ""]:
    """`P` of a model of these margins."""
    return regularization / 2 * squared_norm + jnp.mean(jnp.maximum(1 - responses, 0))


def dual(
    total: Float[Array, ""],
    squared_norm: Float[Array, ""],
    regularization: Float[Array, ""],
) -> Float[Array, ""]:
    """`D` of coefficients of this sum."""
    return regularization * (total - squared_norm / 2)


# What a visit to an example does: its coefficient, its response, `k(x, x)` and the
# number of the visit, from 1, to what is added to its coefficient.
Visit = Callable[
    [Float[Array, ""], Float[Array, ""], Float[Array, ""], Integer[Array, ""]],
    Float[Array, ""],
]


def draw(state: State, y: Float[Array, " n"]) -> tuple[State, Integer[Array, " batch"]]:
    """A batch of examples, with replacement, and the state with the next key."""
    key, now = jax.random.split(state.key)
    batch = (state.rows.batch.value,)
    drawn = jax.random.randint(now, batch, 0, y.shape[0], jnp.int32)
    return state._replace(key=key), drawn


def visit(
    state: State,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    drawn: Integer[Array, " batch"],
    change: Visit,
) -> State:
    """Visits drawn examples one after another; O(batch^2 d), and O(n d) a change.

    The responses of the drawn examples are kept right by the kernel values among them.
    The kernel rows of those that have changed, often few, then bring all others up to
    date.
    """
    batch = drawn.shape[0]
    rows, block = row_cache.signed_block(state.kernel, state.rows, X, y, drawn)
    start, responses = state.coefficients[drawn], state.responses[drawn]
    diagonal = rows.diagonal[drawn]
    # An example may be drawn twice.
    same = (drawn[:, None] == drawn[None]).astype(start.dtype)

    def body(j, steps):
        step = change(
            start[j] + jnp.sum(same[j] * steps),
            responses[j] + jnp.sum(block[j] * steps),
            diagonal[j],
            state.num_visits + 1 + j,
        )
        return steps.at[j].set(step)

    steps = jax.lax.fori_loop(
        jnp.int32(0), jnp.int32(batch), body, jnp.zeros_like(start)
    )
    state = state._replace(
        rows=rows,
        num_visits=state.num_visits + batch,
        num_updates=state.num_updates + jnp.sum(steps != 0, dtype=jnp.int32),
    )
    return moved(state, X, y, drawn, steps)


def moved(
    state: State,
    X: Float[Array, "n d"],
    y: Float[Array, " n"],
    drawn: Integer[Array, " batch"],
    steps: Float[Array, " batch"],
) -> State:
    """The state after some coefficients have changed by `steps`."""
    changed, steps = _merged(drawn, steps)
    rows = row_cache.fetch(state.kernel, state.rows, X, y, drawn, changed)
    order = jnp.argsort(~changed, stable=True)

    # What the coefficients change by after rounding is what the responses must show.
    coefficients = state.coefficients.at[drawn].add(steps)
    steps = jnp.where(changed, coefficients[drawn] - state.coefficients[drawn], 0)

    # One kept row after another, and no copy of them.
    def add(j, change):
        place = rows.places[drawn[order[j]]]
        row = jax.lax.dynamic_index_in_dim(rows.kept, place, keepdims=False)
        return change + steps[order[j]] * row

    count = jnp.sum(changed, dtype=jnp.int32)
    change = jax.lax.fori_loop(jnp.int32(0), count, add, state.lost)
    responses = state.responses + change
    return state._replace(
        rows=rows,
        coefficients=coefficients,
        responses=responses,
        lost=change - (responses - state.responses),
    )


def _merged(
    drawn: Integer[Array, " batch"], steps: Float[Array, " batch"]
) -> tuple[Bool[Array, " batch"], Float[Array, " batch"]]:
    """All steps of an example at its first draw, and which draws then change it."""
    same = drawn[:, None] == drawn[None]
    order = jnp.arange(drawn.shape[0], dtype=jnp.int32)
    first = jnp.argmax(same, axis=1).astype(jnp.int32) == order
    steps = jnp.where(first, jnp.sum(jnp.where(same, steps[None], 0), axis=1), 0)
    return steps != 0, steps


def _bias(state: State, y: Float[Array, " n"]) -> Float[Array, ""]:
    """The bias of least hinge loss, in the middle of those that are; O(n log n).

    The loss is convex and piecewise linear in the bias, with a kink wherever an example
    reaches its margin; its slope rises by one at each, from as much below 0 as there
    are positive examples.
    """
    if not state.fit_bias:
        return jnp.zeros((), y.dtype)
    kinks = jnp.sort(y * (1 - state.responses))
    positive = jnp.sum(y > 0, dtype=jnp.int32)
    return (kinks[positive - 1] + kinks[positive]) / 2


def objective(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> Objective:
    """`P` of the coefficients with the best bias, and `D`; O(n log n).

    Args:
      state: of a solver whose coefficients are alpha.
      X: the training set of `init`, as floats.
      y: its labels.

    Returns:
      `primal` is to be minimised, and `dual` is below it.

    Raises:
      ValueError: if the training set has not the shape of the state's.
    """
    X, y = of_state("objective", state, X, y)
    squared_norm = jnp.sum(state.coefficients * state.responses)
    margins = state.responses + y * _bias(state, y)
    return Objective(
        primal(squared_norm, margins, state.regularization),
        dual(jnp.sum(state.coefficients), squared_norm, state.regularization),
    )


def model(state: State, X: ArrayLike, y: ArrayLike) -> KernelModel:
    """The model of the coefficients, with the bias of least hinge loss, if any.

    Args:
      state: of a solver whose coefficients are alpha.
      X: the training set of `init`, shape `(n, d)`.
      y: its labels, shape `(n,)`.

    Raises:
      ValueError: if the training set is not the state's.
    """
    X, y = same("model", state, X, y)
    return models.of_coefficients(
        state.kernel, X, y, state.coefficients, _bias(state, y)
    )
