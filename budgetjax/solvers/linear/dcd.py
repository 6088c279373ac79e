"""Dual coordinate descent for the linear SVM; see `init`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Key

from budgetjax import checks
from budgetjax.checks import Name, Static
from budgetjax.models import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.passes import Order, everything, shuffled, visit_all
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    model_of,
    prepare,
    squared_norms,
    width,
)
from budgetjax.solvers.linear.rows import Rows, products
from budgetjax.solvers.solver import Objective, Solver

LOSSES = ("hinge", "squared_hinge")
# Projected gradients that are equal to this end a pass over what is left, first, and by
# how much less they have to be whenever a pass over everything has reached it.
TOLERANCE = 0.1
FINER = 0.1


class State(NamedTuple):
    """The state of the solver on `n` examples of `d` features.

    Attributes:
      algorithm: name of the solver.
      weights: `w`: the features', the constant's if there is one, and zeros up to a
        multiple of 4.
      coefficients: `alpha`, shape `(n,)`.
      squares: `||z_i||^2`, shape `(n,)`.
      upper: maximum of a coefficient, `U`; infinite for the squared loss.
      ridge: `D_ii`, what the squared loss adds to the squared norms.
      weight: `v`, shape `(n,)`, or None.
      constant: `rho`, or None for a model without a bias.
      num_visits: patterns visited.
      settled: whether the last pass over all patterns has changed nothing.
      order: what is left of the patterns.
      bounds: outside of these, projected gradients shrink what is left, shape `(2,)`.
      tolerance: projected gradients that are so near each other end a search among
        what is left.
      key: PRNG key of the orders.
      digest: identifies `y`.
      num_features: `d`; not a leaf.
    """

    algorithm: Name
    weights: Float[Array, " size"]
    coefficients: Float[Array, " n"]
    squares: Float[Array, " n"]
    upper: Float[Array, ""]
    ridge: Float[Array, ""]
    weight: Float[Array, " n"] | None
    constant: Float[Array, ""] | None
    num_visits: Float[Array, ""]
    settled: Bool[Array, ""]
    order: Order
    bounds: Float[Array, " 2"]
    tolerance: Float[Array, ""]
    key: Key[Array, ""]
    digest: Integer[Array, ""]
    num_features: Static


def init(
    X: Any,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    loss: str = "hinge",
    fit_bias: bool = True,
    bias_scale: ArrayLike = 1.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM, one dual coefficient after another.

    A visit to a pattern :math:`z_i = y_i (x_i, \rho)` maximises the dual in its
    coefficient,

    .. math:: G = w \cdot z_i - 1 + \frac{D}{v_i} \alpha_i, \quad \alpha_i \leftarrow
        \min\Big(U v_i, \max\Big(0, \alpha_i - \frac{G}{\|z_i\|^2 + D / v_i}\Big)
        \Big), \quad w = \sum_i \alpha_i z_i,

    which in the end minimises

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i v_i \max(0, 1 - w \cdot z_i)^p,

    for :math:`p = 1`, where :math:`U = C` and :math:`D = 0`, or :math:`p = 2`, where
    :math:`U = \infty` and :math:`D = 1 / (2 C)`. In the state, :math:`\alpha` is
    `coefficients`, :math:`w` `weights`, :math:`U` `upper`, :math:`D` `ridge`,
    :math:`v` `weight` and :math:`\rho` `constant`.

    A step visits what is left of the training set in a new random order, and drops
    coefficients at an end of their range that a visit would not move away from it. When
    the projected gradients of what is left are nearly equal, everything comes back.
    Like `budgetjax.mpu`, this is made for CPUs.

    Cost: a visit is O(d), or O(numbers in the row).

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`. Patterns stay in its type.
      y: labels, -1 and +1, both, shape `(n,)`.
      penalty: C, positive.
      weight: weight of each example, above 0, shape `(n,)`; 2 counts it twice.
      loss: "hinge", `p = 1`, or "squared_hinge", `p = 2`.
      fit_bias: whether to append the constant feature rho, whose weight, times rho, is
        the bias. It is part of the norm, as all weights.
      bias_scale: rho, positive.
      seed: integer seed of the orders of visits.

    Returns:
      A state of the zero model, in JAX's default precision; `solve` has float64.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, or a number is out of its range.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("digits")
      >>> odd = data.y_train % 2 * 2 - 1
      >>> found = bj.solve(bj.dcd, data.X_train, odd, loss="squared_hinge")
      >>> found.converged, bool(found.history.gap[-1] <= 1e-3)
      (True, True)

    References:
      Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), "A dual coordinate descent
      method for large-scale linear SVM", Algorithm 3.
      https://doi.org/10.1145/1390156.1390208

    Differences from the paper: it ends at a duality gap, not at a difference of
    projected gradients; that difference, where shrinking starts again from everything,
    is 0.1 at first and a tenth as much whenever it has been reached.
    """
    where = "dcd.init"
    rows, y = examples(where, X, y)
    constant = constant_feature(where, fit_bias, bias_scale, y.dtype)
    squares = squared_norms(where, rows, constant, y.dtype)
    checks.positive(where, "penalty", penalty)
    penalty = checks.as_leaf(where, "penalty", penalty, y.dtype)
    if loss not in LOSSES:
        raise ValueError(f"{where}: loss must be one of {LOSSES}, got {loss!r}")
    if loss == "hinge":
        upper, ridge = penalty, jnp.zeros_like(penalty)
    else:
        upper, ridge = jnp.full_like(penalty, jnp.inf), 1 / (2 * penalty)
    return State(
        algorithm=checks.algorithm_of(where),
        weights=jnp.zeros(width(rows, constant), y.dtype),
        coefficients=jnp.zeros_like(squares),
        squares=squares,
        upper=upper,
        ridge=ridge,
        weight=training_set.weights(where, weight, y),
        constant=constant,
        num_visits=jnp.zeros((), y.dtype),
        settled=jnp.bool_(False),
        order=everything(rows.number),
        bounds=jnp.array([-jnp.inf, jnp.inf], y.dtype),
        tolerance=jnp.full((), TOLERANCE, y.dtype),
        key=jax.random.key(checks.scalar_integer(where, "seed", seed)),
        digest=training_set.digest(y),
        num_features=Static(rows.size),
    )


def step(state: State, X: Rows, y: Float[Array, " n"] | None) -> State:
    """Visits what is left of the patterns, in a new order, and shrinks it.

    Args:
      state: of this solver.
      X: patterns; see `prepare` of `Solver`.
      y: labels, which are in the patterns; not used.
    """
    key, now = jax.random.split(state.key)
    lower, upper = state.bounds
    own = None
    if state.weight is not None:
        own = state.upper * state.weight, state.ridge / state.weight

    def visit(coefficient, margin, square, own, tally):
        # Algorithm 3.
        most, ridge = (state.upper, state.ridge) if own is None else own
        gradient = margin - 1 + ridge * coefficient
        low, high = coefficient <= 0, coefficient >= most
        shrunk = (low & (gradient > upper)) | (high & (gradient < lower))
        # A zero pattern, whose gradient is -1, goes to the upper end at once.
        now = jnp.clip(coefficient - gradient / (square + ridge), 0, most)
        # Of what remains, the least and the largest projected gradient.
        projected = jnp.where(low, jnp.minimum(gradient, 0), gradient)
        projected = jnp.where(high, jnp.maximum(projected, 0), projected)
        ends = jnp.stack([-projected, projected])
        return now, ~shrunk, jnp.where(shrunk, tally, jnp.maximum(tally, ends))

    weights, coefficients, left, ends = visit_all(
        X,
        state.squares,
        shuffled(now, state.order),
        state.weights,
        state.coefficients,
        visit,
        jnp.full_like(state.bounds, -jnp.inf),
        own,
    )
    n = X.number
    whole = state.order.number == n
    least, most = -ends[0], ends[1]
    reached = most - least <= state.tolerance
    # What is left is near enough: back to everything.
    left = jax.tree.map(lambda *of: jnp.where(reached, *of), everything(n), left)
    lower = jnp.where((least < 0) & ~reached, least, -jnp.inf)
    upper = jnp.where((most > 0) & ~reached, most, jnp.inf)
    return state._replace(
        weights=weights,
        coefficients=coefficients,
        num_visits=state.num_visits + state.order.number.astype(ends.dtype),
        settled=whole & jnp.all(ends <= 0),
        order=left,
        bounds=jnp.stack([lower, upper]),
        tolerance=jnp.where(whole & reached, FINER, 1) * state.tolerance,
        key=key,
    )


def objective(state: State, X: Rows, y: Float[Array, " n"] | None) -> Objective:
    """`J` of the model, and the dual below it; O(n d)."""
    margins = products(X, state.weights)
    square = jnp.sum(state.coefficients * margins)
    share = 1 if state.weight is None else state.weight
    hinge = jnp.maximum(1 - margins, 0)
    squared = jnp.isinf(state.upper)
    ridge = jnp.where(state.ridge > 0, state.ridge, 1)
    loss = jnp.where(
        squared,
        jnp.sum(share * jnp.square(hinge)) / (2 * ridge),
        jnp.where(squared, 0, state.upper) * jnp.sum(share * hinge),
    )
    # In this order: the square of a small coefficient may underflow.
    smoothing = state.coefficients * (state.ridge / share * state.coefficients)
    return Objective(
        square / 2 + loss,
        jnp.sum(state.coefficients) - square / 2 - jnp.sum(smoothing) / 2,
    )


def model(state: State, X: Rows, y: Float[Array, " n"] | None) -> LinearModel:
    """The model of `w`."""
    return model_of(state)


dcd = Solver(
    "dcd",
    init,
    prepare,
    step,
    objective,
    model,
    lambda state: int(state.num_visits),
    lambda state: state.settled,
    linear=True,
    callback_every=5,
)
