"""Dual coordinate descent for the linear SVM; see `init`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Key

from budgetjax import _checks, _counters, _record
from budgetjax._counters import Words
from budgetjax._errors import names_errors
from budgetjax._record import Name
from budgetjax._rows import RawRows
from budgetjax.model import LinearModel
from budgetjax.solvers.linear import patterns, rows
from budgetjax.solvers.linear.epochs import Order, natural_order, shuffle, visit_all
from budgetjax.solvers.linear.patterns import Problem
from budgetjax.solvers.linear.rows import Rows, products
from budgetjax.solvers.solver import Objective, Solver
from budgetjax.solvers.training_set import Scalar, Vector

# The initial range of the projected gradients at which all patterns are visited again,
# and the factor applied to it whenever a pass over all patterns reaches it.
TOLERANCE = 0.03
TOLERANCE_DECAY = 0.1


@_record.shown
class State(NamedTuple):
    """The state of the solver on `n` examples; see `budgetjax.Solver`.

    Attributes:
      coefficients: `alpha`, shape `(n,)`.
      upper: the maximum of a coefficient, `U`; infinite for the squared loss.
      ridge: `D`, which the squared loss adds to the squared norms.
      order: the patterns that are not shrunk.
      bounds: a coefficient at an end of its range is shrunk if its gradient is outside
        these bounds, shape `(2,)`.
      tolerance: the range of projected gradients at which all patterns are visited
        again.
    """

    algorithm: Name
    weights: Float[Array, " size"]
    coefficients: Vector
    upper: Scalar
    ridge: Scalar
    visits: Words
    is_stationary: Bool[Array, ""]
    order: Order
    bounds: Float[Array, " 2"]
    tolerance: Scalar
    key: Key[Array, ""]
    problem: Problem

    @property
    def num_visits(self) -> Any:
        """Visits so far: a NumPy int64, or a traced integer."""
        return _counters.number(self.visits)


@names_errors("dcd.init")
def init(
    X: RawRows,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    loss: str = "hinge",
    fit_bias: bool = True,
    bias_scale: ArrayLike = 1.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by dual coordinate descent.

    A visit to a pattern :math:`z_i = y_i (x_i, \rho)` maximises the dual in its
    coefficient,

    .. math:: G = w \cdot z_i - 1 + \frac{D}{v_i} \alpha_i, \quad \alpha_i \leftarrow
        \min\Big(U v_i, \max\Big(0, \alpha_i - \frac{G}{\|z_i\|^2 + D / v_i}\Big)
        \Big), \quad w = \sum_i \alpha_i z_i,

    which converges to the minimum of

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i v_i \max(0, 1 - w \cdot z_i)^p,

    for :math:`p = 1`, where :math:`U = C` and :math:`D = 0`, or :math:`p = 2`, where
    :math:`U = \infty` and :math:`D = 1 / (2 C)`.

    A pass visits the patterns that are not shrunk, in a new random order. It shrinks a
    pattern whose coefficient would stay at an end of its range. When the projected
    gradients of the others are nearly equal, all patterns return. A step makes enough
    passes for n visits. Like `budgetjax.mpu`, the solver targets CPUs.

    Cost: a visit is O(d), or O(nonzeros of the row).

    Args:
      X, y, penalty, weight, fit_bias, bias_scale, seed: as in every linear `init`; see
        `budgetjax.Solver`.
      loss: "hinge", `p = 1`, or "squared_hinge", `p = 2`.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> odd = data.y_train % 2 * 2 - 1
      >>> found = bj.solve(bj.dcd, data.X_train, odd, loss="squared_hinge")
      >>> found.converged, bool(found.history.gap[-1] <= 1e-3)
      (True, True)

    References:
      Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), "A dual coordinate descent
      method for large-scale linear SVM", Algorithm 3.
      https://doi.org/10.1145/1390156.1390208

    Differences from the paper: it stops at a duality gap, not at a range of projected
    gradients. The range at which all patterns return starts at 0.03, and is divided by
    10 whenever a pass over all patterns reaches it. From 4,096 patterns on, runs of 16
    neighbours are shuffled, whose visits take a third less time.
    """
    problem = patterns.read_problem(X, y, weight, fit_bias, bias_scale)
    dtype = problem.squares.dtype
    penalty = _checks.as_leaf("penalty", penalty, dtype, _checks.positive)
    if patterns.is_squared(loss):
        upper, ridge = jnp.full_like(penalty, jnp.inf), 1 / (2 * penalty)
    else:
        upper, ridge = penalty, jnp.zeros_like(penalty)
    return State(
        algorithm=Name("dcd"),
        weights=jnp.zeros(problem.width, dtype),
        coefficients=jnp.zeros_like(problem.squares),
        upper=upper,
        ridge=ridge,
        visits=_counters.of(0),
        is_stationary=jnp.bool_(False),
        order=natural_order(problem.squares.shape[0]),
        bounds=jnp.array([-jnp.inf, jnp.inf], dtype),
        tolerance=jnp.full((), TOLERANCE, dtype),
        key=jax.random.key(_checks.seed(seed)),
        problem=problem,
    )


def step(state: State, X: Rows, y: Vector | None) -> State:
    """Makes passes over the patterns that are not shrunk, n visits in all.

    One pass may visit few patterns, while the gap needs a product with all of them.
    """
    before, n = state.visits, X.shape[0]
    return jax.lax.while_loop(
        lambda now: (_counters.since(now.visits, before) < n) & ~now.is_stationary,
        lambda now: one_pass(now, X),
        state,
    )


def one_pass(state: State, X: Rows) -> State:
    """A pass over the patterns that are not shrunk, in a new order."""
    key, order_key = jax.random.split(state.key)
    lower, upper = state.bounds
    weight, further = state.problem.weight, None
    if weight is not None:
        further = state.upper * weight, state.ridge / weight

    def visit(coefficient, margin, square, further, tally):
        # Algorithm 3.
        limit, ridge = (state.upper, state.ridge) if further is None else further
        gradient = margin - 1 + ridge * coefficient
        low, high = coefficient <= 0, coefficient >= limit
        shrunk = (low & (gradient > upper)) | (high & (gradient < lower))
        # The coefficient of a zero pattern, whose gradient is -1, goes to the upper
        # end.
        inverse = 1 / (square + ridge)
        updated = coefficient - gradient * inverse
        updated = jnp.where(updated < 0, 0, jnp.where(updated > limit, limit, updated))
        # The smallest and the largest projected gradient of the patterns that stay.
        still = (low & (gradient > 0)) | (high & (gradient < 0))
        projected = jnp.where(still, 0, gradient)
        ends = jnp.stack([-projected, projected])
        return updated, ~shrunk, jnp.where(shrunk, tally, jnp.maximum(tally, ends))

    order, start = shuffle(order_key, state.order), (state.weights, state.coefficients)
    tally = jnp.full_like(state.bounds, -jnp.inf)
    weights, coefficients, kept, ends = visit_all(
        X, state.problem.squares, order, *start, visit, tally, further
    )
    n = X.shape[0]
    whole = state.order.number == n
    smallest, largest = -ends[0], ends[1]
    reached = largest - smallest <= state.tolerance
    # Close enough: all patterns return.
    kept = jax.lax.cond(reached, lambda kept: natural_order(n), lambda kept: kept, kept)
    lower = jnp.where((smallest < 0) & ~reached, smallest, -jnp.inf)
    upper = jnp.where((largest > 0) & ~reached, largest, jnp.inf)
    return state._replace(
        weights=weights,
        coefficients=coefficients,
        visits=_counters.normalized(_counters.after(state.visits, state.order.number)),
        is_stationary=whole & jnp.all(ends <= 0),
        order=kept,
        bounds=jnp.stack([lower, upper]),
        tolerance=jnp.where(whole & reached, TOLERANCE_DECAY, 1) * state.tolerance,
        key=key,
    )


@jax.jit
def warm_start(state: State, X: Rows, before: State) -> State:
    """The best multiple of another penalty's solution, up to the ratio of penalties."""
    coefficients = before.coefficients
    hinge = jnp.isfinite(state.upper)
    ratio = jnp.where(hinge, state.upper / before.upper, before.ridge / state.ridge)
    square = jnp.sum(coefficients * products(X, before.weights))
    weight = state.problem.weight
    ridge = state.ridge if weight is None else state.ridge / weight
    square += jnp.sum(ridge * coefficients**2)
    best = jnp.sum(coefficients) / jnp.where(square > 0, square, 1)
    times = jnp.minimum(ratio, best)
    return state._replace(
        weights=times * before.weights, coefficients=times * coefficients
    )


def objective(state: State, X: Rows, y: Vector | None) -> Objective:
    """`J` of the model, and the dual; O(n d)."""
    margins = products(X, state.weights)
    square = jnp.sum(state.coefficients * margins)
    weight = state.problem.weight
    share = 1 if weight is None else weight
    hinge = jnp.maximum(1 - margins, 0)
    squared = jnp.isinf(state.upper)
    penalty = jnp.where(squared, 1 / (2 * state.ridge), state.upper)
    loss = penalty * jnp.sum(share * jnp.where(squared, jnp.square(hinge), hinge))
    # In this order, since the square of a small coefficient may underflow.
    smoothing = state.coefficients * (state.ridge / share * state.coefficients)
    return Objective(
        square / 2 + loss,
        jnp.sum(state.coefficients) - square / 2 - jnp.sum(smoothing) / 2,
    )


def model(state: State, X: Rows, y: Vector | None) -> LinearModel:
    """The model of `w`."""
    return patterns.to_model(state.problem, state.weights)


dcd = Solver(
    "dcd",
    init,
    patterns.prepare,
    step,
    objective,
    model,
    lambda state: int(state.num_visits),
    is_stationary=lambda state: state.is_stationary,
    warm_start=warm_start,
    read=rows.read,
    linear=True,
    callback_every=5,
)
