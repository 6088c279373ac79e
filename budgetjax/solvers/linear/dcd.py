"""Dual coordinate descent for the linear SVM."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from budgetjax import _checks, _counters
from budgetjax._counters import Words
from budgetjax._record import static
from budgetjax.model import LinearModel
from budgetjax.solvers.linear.epochs import Order, natural_order, shuffle, visit_all
from budgetjax.solvers.linear.linear_solver import LinearSolver, LinearState
from budgetjax.solvers.linear.patterns import Patterns
from budgetjax.solvers.linear.rows import products
from budgetjax.solvers.solver import Objective
from budgetjax.solvers.training_set import Scalar, Vector

# The initial range of the projected gradients at which all patterns are visited again,
# and the factor applied to it whenever a pass over all patterns reaches it.
RANGE = 0.03
RANGE_DECAY = 0.1


class DCDState(LinearState):
    """The state of the solver on `n` examples.

    Attributes:
      coefficients: `alpha`, shape `(n,)`.
      upper: the maximum of a coefficient, `U`; infinite for the squared loss.
      ridge: `D`, which the squared loss adds to the squared norms.
      visits: see `num_visits`.
      is_stationary: whether the last pass over all patterns changed nothing.
      order: the patterns that are not shrunk.
      bounds: a coefficient at an end of its range is shrunk if its gradient is outside
        these bounds, shape `(2,)`.
      range: that of projected gradients at which all patterns are visited again.
    """

    coefficients: Vector
    upper: Scalar
    ridge: Scalar
    visits: Words
    is_stationary: Bool[Array, ""]
    order: Order
    bounds: Float[Array, " 2"]
    range: Scalar

    @property
    def num_visits(self) -> Any:
        """Visits so far: a NumPy int64, or a traced integer."""
        return _counters.number(self.visits)


class DCD(LinearSolver[DCDState, LinearModel]):
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
    passes for n visits. Like `budgetjax.MPU`, the solver targets CPUs.

    Cost: a visit is O(d), or O(nonzeros of the row).

    Args:
      penalty, fit_bias, bias_scale, tolerance, seed: as of every
        `budgetjax.LinearSolver`.
      loss: "hinge", `p = 1`, or "squared_hinge", `p = 2`.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> odd = data.y_train % 2 * 2 - 1
      >>> found = bj.solve(bj.DCD(loss="squared_hinge"), data.X_train, odd)
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

    loss: str = static(default="hinge", check=_checks.one_of("hinge", "squared_hinge"))

    callback_every = 5

    def start(self, data: Patterns) -> DCDState:
        penalty = jnp.asarray(self.penalty)
        upper, ridge = penalty, jnp.zeros_like(penalty)
        if self.loss == "squared_hinge":
            upper, ridge = jnp.full_like(ridge, jnp.inf), 1 / (2 * penalty)
        dtype = data.dtype
        return DCDState(
            solver=self,
            digest=data.digest,
            weights=jnp.zeros(data.width, dtype),
            key=jax.random.key(self.seed),
            coefficients=jnp.zeros_like(data.squares),
            upper=upper,
            ridge=ridge,
            visits=_counters.of(0),
            is_stationary=jnp.bool_(False),
            order=natural_order(len(data.y)),
            bounds=jnp.array([-jnp.inf, jnp.inf], dtype),
            range=jnp.full((), RANGE, dtype),
        )

    def step(self, state: DCDState, data: Patterns) -> DCDState:
        """Makes passes over the patterns that are not shrunk, n visits in all.

        One pass may visit few patterns, while the gap needs a product with all of them.
        """
        before, n = state.visits, len(data.y)
        return jax.lax.while_loop(
            lambda now: (_counters.since(now.visits, before) < n) & ~now.is_stationary,
            lambda now: one_pass(now, data),
            state,
        )

    def objective(self, state: DCDState, data: Patterns) -> Objective:
        """`J` of the model, and the dual; O(n d)."""
        margins = products(data.X, state.weights)
        square = jnp.sum(state.coefficients * margins)
        weight = data.weight
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

    def model(self, state: DCDState, data: Patterns) -> LinearModel:
        return data.to_model(state.weights)

    def warm_start(self, data: Patterns, before: DCDState) -> DCDState:
        """The best multiple of another penalty's solution."""
        return _warm_start(self.start(data), data, before)

    def num_vectors(self, state: DCDState) -> Array:
        return jnp.count_nonzero(state.coefficients)

    def work(self, state: DCDState) -> int:
        return int(state.num_visits)

    def is_stationary(self, state: DCDState) -> Bool[Array, ""]:
        return state.is_stationary


def one_pass(state: DCDState, data: Patterns) -> DCDState:
    """A pass over the patterns that are not shrunk, in a new order."""
    n = len(data.y)
    key, order_key = jax.random.split(state.key)
    lower, upper = state.bounds
    weight, further = data.weight, None
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
        data.X, data.squares, order, *start, visit, tally, further
    )
    whole = state.order.number == n
    smallest, largest = -ends[0], ends[1]
    reached = largest - smallest <= state.range
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
        range=jnp.where(whole & reached, RANGE_DECAY, 1) * state.range,
        key=key,
    )


@jax.jit
def _warm_start(state: DCDState, data: Patterns, before: DCDState) -> DCDState:
    """The best multiple of another penalty's solution, up to the ratio of penalties."""
    coefficients = before.coefficients
    hinge = jnp.isfinite(state.upper)
    ratio = jnp.where(hinge, state.upper / before.upper, before.ridge / state.ridge)
    square = jnp.sum(coefficients * products(data.X, before.weights))
    weight = data.weight
    ridge = state.ridge if weight is None else state.ridge / weight
    square += jnp.sum(ridge * coefficients**2)
    best = jnp.sum(coefficients) / jnp.where(square > 0, square, 1)
    times = jnp.minimum(ratio, best)
    return state._replace(
        weights=times * before.weights, coefficients=times * coefficients
    )
