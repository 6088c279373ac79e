r"""The kernel SVM and its dual problem, which several solvers share.

The solvers minimise

.. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i v_i \max(0, 1 - y_i \langle w,
    \Phi(x_i) \rangle)

by means of the dual
:math:`D(\alpha) = \sum_i \alpha_i - \frac{1}{2} \alpha^T Q \alpha`,
:math:`0 \le \alpha_i \le C v_i`, where :math:`w = \sum_i \alpha_i y_i \Phi(x_i)` and
:math:`Q_{ij} = y_i y_j k(x_i, x_j)`. With a bias, :math:`\sum_i y_i \alpha_i = 0` as
well. The weights :math:`v_i` are 1 by default.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer, Key

from budgetjax import _checks, _record
from budgetjax._errors import names_errors
from budgetjax._record import Name, Static
from budgetjax.kernels import Kernel
from budgetjax.model import KernelModel
from budgetjax.solvers import training_set
from budgetjax.solvers.kernel import row_cache
from budgetjax.solvers.kernel.row_cache import KernelRows
from budgetjax.solvers.solver import Objective, Solver
from budgetjax.solvers.training_set import Matrix, Scalar, Vector


@_record.shown
class State(NamedTuple):
    """The state of a solver of the SVM on `n` examples; see `budgetjax.Solver`.

    Attributes:
      coefficients: alpha, or the solver's own form of it, shape `(n,)`.
      lost: the rounding error of the responses, shape `(n,)`. Without it, the responses
        and the gap would be wrong by a thousandth after a million updates in float32.
      num_visits: the number of visits to drawn examples.
    """

    algorithm: Name
    rows: KernelRows
    penalty: Scalar
    weight: Vector | None
    coefficients: Vector
    responses: Vector
    lost: Vector
    num_visits: Integer[Array, ""]
    num_updates: Integer[Array, ""]
    key: Key[Array, ""]
    digest: Integer[Array, ""]
    fit_bias: Static


def init_state(
    name: str,
    rows: KernelRows,
    y: Vector,
    weight: Vector | None,
    penalty: ArrayLike,
    seed: ArrayLike = 0,
    fit_bias: bool = False,
) -> State:
    """The state of the zero model on a checked training set."""
    zeros = jnp.zeros_like(y)
    return State(
        algorithm=Name(name),
        rows=rows,
        penalty=_checks.as_leaf("penalty", penalty, y.dtype, _checks.positive),
        weight=weight,
        coefficients=zeros,
        responses=zeros,
        lost=zeros,
        num_visits=jnp.int32(0),
        num_updates=jnp.int32(0),
        key=jax.random.key(_checks.seed(seed)),
        digest=training_set.digest(y),
        fit_bias=Static(fit_bias),
    )


def limits(state: State) -> Vector:
    """The maximum of each coefficient, `C v`."""
    ones = jnp.ones_like(state.responses) if state.weight is None else state.weight
    return state.penalty * ones


def best_change(
    coefficients: Float[Array, "*some"],
    responses: Float[Array, "*some"],
    diagonal: Float[Array, "*some"],
    limits: Float[Array, "*some"],
) -> Float[Array, "*some"]:
    """For each coefficient, the change that maximises the dual if made alone."""
    # If k(x, x) = 0 this is infinite, and the coefficient goes to its limit.
    best = coefficients + (1 - responses) / diagonal
    return jnp.clip(best, 0, limits) - coefficients


# A state of this file, or another with the fields that `draw` and `apply_steps` use.
Drawing = TypeVar("Drawing", bound=Any)
# Maps the coefficient of a visited example, its response, `k(x, x)`, its limit and the
# number of the visit, from 1, to the change of the coefficient.
Visit = Callable[..., Scalar]


class Batch(NamedTuple):
    """The examples of a step, in the order of their visits.

    Attributes:
      block: their signed kernel values, `Q` among them.
    """

    drawn: Integer[Array, " batch"]
    responses: Float[Array, " batch"]
    diagonal: Float[Array, " batch"]
    block: Float[Array, "batch batch"]


def draw(
    state: Drawing, X: Matrix, y: Vector, weight: Vector | None
) -> tuple[Drawing, Batch]:
    """A batch, drawn with replacement and in proportion to `weight`; O(batch^2 d).

    With their kernel values, each of its visits can account for those before it.
    """
    key, draw_key = jax.random.split(state.key)
    n, size = state.coefficients.shape[0], state.rows.batch.value
    drawn = training_set.draw_examples(draw_key, (size,), n, weight)
    rows, block = row_cache.signed_block(state.rows, X, y, drawn)
    batch = Batch(drawn, state.responses[drawn], rows.diagonal[drawn], block)
    visits = state.num_visits + size
    return state._replace(rows=rows, key=key, num_visits=visits), batch


def visit(
    state: State, X: Matrix, y: Vector, change: Visit, weight: Vector | None = None
) -> State:
    """The state after `batch_size` visits; O(batch^2 d), plus O(n d) per change.

    Kernel values among the drawn examples keep their responses up to date; then the
    kernel rows of the examples that changed, often few, update all other responses.
    """
    before = state.num_visits
    state, (drawn, responses, diagonal, block) = draw(state, X, y, weight)
    start, upper = state.coefficients[drawn], limits(state)[drawn]
    # An example may be drawn twice.
    same = (drawn[:, None] == drawn[None]).astype(start.dtype)

    def body(j, steps):
        step = change(
            start[j] + jnp.sum(same[j] * steps),
            responses[j] + jnp.sum(block[j] * steps),
            diagonal[j],
            upper[j],
            before + 1 + j,
        )
        return steps.at[j].set(step)

    steps = jax.lax.fori_loop(
        jnp.int32(0), jnp.int32(drawn.shape[0]), body, jnp.zeros_like(start)
    )
    updates = state.num_updates + jnp.sum(steps != 0, dtype=jnp.int32)
    return apply_steps(state._replace(num_updates=updates), X, y, drawn, steps)


def apply_steps(
    state: State,
    X: Matrix,
    y: Vector,
    drawn: Integer[Array, " batch"],
    steps: Float[Array, " batch"],
) -> State:
    """The state after some coefficients have changed by `steps`."""
    steps = merge_repeats(drawn, steps)
    rows = row_cache.fetch(state.rows, X, drawn, steps != 0)
    return add_steps(state._replace(rows=rows), y, drawn, steps)


def add_steps(
    state: Drawing,
    y: Vector,
    drawn: Integer[Array, " batch"],
    steps: Float[Array, " batch"],
) -> Drawing:
    """As `apply_steps`, of different examples whose rows are kept."""
    rows, changed = state.rows, steps != 0
    order = jnp.argsort(~changed, stable=True)

    # The responses must match the rounded changes of the coefficients.
    coefficients = state.coefficients.at[drawn].add(steps)
    steps = jnp.where(changed, coefficients[drawn] - state.coefficients[drawn], 0)

    # One kept row after another, without a copy of them.
    def add(j, change):
        place = rows.places[drawn[order[j]]]
        row = jax.lax.dynamic_index_in_dim(rows.kept, place, keepdims=False)
        return change + signed[order[j]] * row

    signed = y[drawn] * steps
    count = jnp.sum(changed, dtype=jnp.int32)
    change = y * jax.lax.fori_loop(jnp.int32(0), count, add, y * state.lost)
    responses = state.responses + change
    return state._replace(
        coefficients=coefficients,
        responses=responses,
        lost=change - (responses - state.responses),
    )


def merge_repeats(
    drawn: Integer[Array, " batch"], steps: Float[Array, " batch"]
) -> Float[Array, " batch"]:
    """The sum of an example's steps at its first draw, and 0 at its other draws."""
    same = drawn[:, None] == drawn[None]
    order = jnp.arange(drawn.shape[0], dtype=jnp.int32)
    first = jnp.argmax(same, axis=1).astype(jnp.int32) == order
    return jnp.where(first, jnp.sum(jnp.where(same, steps[None], 0), axis=1), 0)


@jax.jit
def least_bias(heights: Vector, y: Vector, weight: Vector | None) -> Scalar:
    """The bias that minimises `sum_i v_i max(0, heights_i - y_i bias)`; O(n log n).

    The sum is convex and piecewise linear in the bias. Its slope starts at minus the
    weight of all positive examples, and rises by the weight of each example at its
    kink.
    """
    weight = jnp.ones_like(y) if weight is None else weight
    return weighted_quantile(y * heights, weight, jnp.sum(jnp.where(y > 0, weight, 0)))


def weighted_quantile(points: Vector, weight: Vector, target: ArrayLike) -> Scalar:
    """The point at which the cumulative weight reaches the target, or infinity.

    It is the middle of two points if any point between them would do.
    """
    order = jnp.argsort(points)
    points = jnp.append(points[order], jnp.inf)
    ends = jnp.append(jnp.cumsum(weight[order]), jnp.inf)
    # Sums of weights in two orders differ by rounding.
    slack = 8 * jnp.finfo(points.dtype).eps * ends[-2]
    lower = jnp.argmax(ends >= target - slack)
    upper = jnp.argmax(ends > target + slack)
    return (points[lower] + points[upper]) / 2


def _bias(state: State, y: Vector) -> Scalar:
    """The bias that minimises the hinge loss."""
    if not state.fit_bias:
        return jnp.zeros((), y.dtype)
    return least_bias(1 - state.responses, y, state.weight)


def objective(state: State, X: Matrix, y: Vector) -> Objective:
    """`J` of the coefficients with the best bias, and `D`; O(n log n)."""
    squared_norm = jnp.sum(state.coefficients * state.responses)
    slacks = jnp.maximum(1 - (state.responses + y * _bias(state, y)), 0)
    slacks = slacks if state.weight is None else state.weight * slacks
    return Objective(
        squared_norm / 2 + state.penalty * jnp.sum(slacks),
        jnp.sum(state.coefficients) - squared_norm / 2,
    )


def model(state: State, X: ArrayLike, y: ArrayLike) -> KernelModel:
    """The model of the coefficients, with the bias of the least hinge loss."""
    bias = _bias(state, jnp.asarray(y, state.responses.dtype))
    return KernelModel.from_coefficients(
        state.rows.kernel, X, y, state.coefficients, bias
    )


def make_visiting_solver(
    name: str,
    doc: str | None,
    step: Callable[..., State],
    objective: Callable[..., Objective] = objective,
    model: Callable[..., KernelModel] = model,
) -> Solver:
    """A solver without a bias whose steps visit drawn examples; `doc` is of `init`."""

    @names_errors(f"{name}.init")
    def init(
        X: ArrayLike,
        y: ArrayLike,
        *,
        kernel: Kernel,
        penalty: ArrayLike = 1.0,
        weight: ArrayLike | None = None,
        batch_size: int = 64,
        cache_size: float | None = 512.0,
        rows: KernelRows | None = None,
        seed: ArrayLike = 0,
    ) -> State:
        X, y, weight = training_set.read_examples(kernel, X, y, weight)
        rows = row_cache.init_rows(kernel, X, batch_size, cache_size, rows)
        return init_state(name, rows, y, weight, penalty, seed)

    init.__doc__ = doc
    prepare, work = row_cache.prepare, row_cache.work
    return Solver(name, init, prepare, step, objective, model, work)
