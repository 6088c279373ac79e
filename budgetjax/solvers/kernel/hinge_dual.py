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
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer

from budgetjax import _checks
from budgetjax._record import leaf, static
from budgetjax.solvers import row_cache, training_set
from budgetjax.solvers.kernel.kernel_solver import KernelSolver, KernelState
from budgetjax.solvers.row_cache import KernelRows
from budgetjax.solvers.solver import Objective
from budgetjax.solvers.training_set import Scalar, TrainingSet, Vector


class HingeState(KernelState):
    """The state of a solver of the SVM on `n` examples.

    Attributes:
      coefficients: alpha, or the solver's own form of it, shape `(n,)`.
      lost: the rounding error of the responses, shape `(n,)`. Without it, the responses
        and the gap would be wrong by a thousandth after a million updates in float32.
      num_visits: the number of visits to drawn examples.
    """

    lost: Vector
    num_visits: Integer[Array, ""]


class HingeSolver(KernelSolver[HingeState], abstract=True):
    """A solver of the kernel SVM by its dual; see `budgetjax.KernelSolver`.

    Args:
      penalty: C, positive.
      batch_size: examples per step.
    """

    penalty: ArrayLike = leaf(_checks.positive, default=1.0)
    batch_size: int = static(default=64, check=_checks.size, kw_only=True)

    def batch(self, n: int) -> int:
        return min(self.batch_size, n)

    def start(self, data: TrainingSet, rows: KernelRows) -> HingeState:
        zeros = jnp.zeros_like(data.y)
        more = {"lost": zeros, "num_visits": jnp.int32(0)}
        return self.zero(HingeState, data, rows, **more)

    def objective(self, state: HingeState, data: TrainingSet) -> Objective:
        """`J` of the coefficients with the best bias, and `D`; O(n log n)."""
        squared_norm = jnp.sum(state.coefficients * state.responses)
        bias = self.bias(state, data)
        slacks = jnp.maximum(1 - (state.responses + data.y * bias), 0)
        slacks = slacks if data.weight is None else data.weight * slacks
        return Objective(
            squared_norm / 2 + self.penalty * jnp.sum(slacks),
            jnp.sum(state.coefficients) - squared_norm / 2,
        )

    def change(
        self,
        state: HingeState,
        data: TrainingSet,
        examples: Integer[Array, " batch"],
        steps: Float[Array, " batch"],
    ) -> HingeState:
        """The state after the coefficients of these examples have changed by `steps`.

        All responses follow; O(n d) per changed one whose kernel row is not kept. At
        most `batch` examples can change at once. It counts no updates.
        """
        steps = merge_repeats(examples, steps)
        rows = row_cache.fetch(self.kernel, state.rows, data.X, examples, steps != 0)
        return add_steps(state._replace(rows=rows), data.y, examples, steps)

    def limits(self, data: TrainingSet) -> Vector:
        """The maximum of each coefficient, `C v`."""
        ones = jnp.ones_like(data.y) if data.weight is None else data.weight
        return jnp.asarray(self.penalty * ones)


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


Drawing = TypeVar("Drawing", bound=HingeState)
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
    state: Drawing, data: TrainingSet, weight: Vector | None
) -> tuple[Drawing, Batch]:
    """A batch, drawn with replacement and in proportion to `weight`; O(batch^2 d).

    With their kernel values, each of its visits can account for those before it.
    """
    key, draw_key = jax.random.split(state.key)
    n = state.coefficients.shape[0]
    size = state.solver.batch(n)
    drawn = training_set.draw_examples(draw_key, (size,), n, weight)
    rows, block = row_cache.signed_block(
        *(state.solver.kernel, state.rows, data.X, data.y, drawn)
    )
    batch = Batch(drawn, state.responses[drawn], rows.diagonal[drawn], block)
    visits = state.num_visits + size
    return state._replace(rows=rows, key=key, num_visits=visits), batch


def visit(
    state: HingeState, data: TrainingSet, change: Visit, weight: Vector | None = None
) -> HingeState:
    """The state after `batch_size` visits; O(batch^2 d), plus O(n d) per change.

    Kernel values among the drawn examples keep their responses up to date; then the
    kernel rows of the examples that changed, often few, update all other responses.
    """
    before = state.num_visits
    state, (drawn, responses, diagonal, block) = draw(state, data, weight)
    start, upper = state.coefficients[drawn], state.solver.limits(data)[drawn]
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
    state = state._replace(num_updates=updates)
    return state.solver.change(state, data, drawn, steps)


def add_steps(
    state: Drawing,
    y: Vector,
    drawn: Integer[Array, " batch"],
    steps: Float[Array, " batch"],
) -> Drawing:
    """As `HingeSolver.change`, of different examples whose rows are kept."""
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
