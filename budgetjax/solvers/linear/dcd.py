"""Dual coordinate descent for the linear SVM; see `init` and `solve`."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Key

from budgetjax import checks
from budgetjax.models import LinearModel
from budgetjax.solvers.kernel.solve import Objective
from budgetjax.solvers.linear import solving
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    given,
    some_patterns,
    squared_norms,
    width,
)
from budgetjax.solvers.linear.rows import DenseRows, Rows, SparseRows
from budgetjax.solvers.linear.solving import LinearAlgorithm, Solution, Solver
from budgetjax.solvers.linear.visits import (
    Order,
    everything,
    next_position,
    shuffled,
    visit_all,
)

LOSSES = ("hinge", "squared_hinge")
# Passes over what is left of the training set, before the gap is computed again.
PASSES = 10
# Projected gradients that are equal to this end a pass over what is left, first, and by
# how much less they have to be whenever a pass over everything has reached it.
TOLERANCE = 0.1
FINER = 0.1


class State(NamedTuple):
    """The state of the solver on `n` examples of `d` features.

    Attributes:
      weights: `w`: the features', the constant's if there is one, and zeros up to a
        multiple of 4.
      coefficients: `alpha`, shape `(n,)`.
      squares: `||z_i||^2`, shape `(n,)`.
      upper: a coefficient is at most this, `U`; infinite for the squared loss.
      ridge: `D_ii`, what the squared loss adds to the squared norms.
      constant: `rho`, or None for a model without a bias.
      num_visits: patterns visited.
      num_passes: passes over all patterns.
      settled: whether the last pass over all patterns has changed nothing.
      order: what is left of the patterns.
      bounds: outside of these, projected gradients shrink what is left, shape `(2,)`.
      tolerance: projected gradients that are so near each other end a search among
        what is left.
      position: of the next pattern that `step` visits.
      key: of the orders.
    """

    weights: Float[Array, "*models size"]
    coefficients: Float[Array, "*models n"]
    squares: Float[Array, "*models n"]
    upper: Float[Array, "*models"]
    ridge: Float[Array, "*models"]
    constant: Float[Array, "*models"] | None
    num_visits: Float[Array, "*models"]
    num_passes: Float[Array, "*models"]
    settled: Bool[Array, "*models"]
    order: Order
    bounds: Float[Array, "*models 2"]
    tolerance: Float[Array, "*models"]
    position: Int32[Array, "*models"]
    key: Key[Array, "*models"]


def init(
    X: Any,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    loss: str = "hinge",
    augment: ArrayLike = 0.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM, one dual coefficient after another.

    A visit to a pattern :math:`z_i = y_i (x_i, \rho)` maximises the dual in its
    coefficient,

    .. math:: G = w \cdot z_i - 1 + D_{ii} \alpha_i, \quad \alpha_i \leftarrow
        \min\Big(U, \max\Big(0, \alpha_i - \frac{G}{\|z_i\|^2 + D_{ii}}\Big)\Big),
        \quad w = \sum_i \alpha_i z_i,

    which in the end minimises

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i \max(0, 1 - w \cdot z_i)^p,

    for :math:`p = 1`, where :math:`U = C` and :math:`D_{ii} = 0`, or :math:`p = 2`,
    where :math:`U = \infty` and :math:`D_{ii} = 1 / (2 C)`. In the state,
    :math:`\alpha` is `coefficients`, :math:`w` `weights`, :math:`U` `upper`,
    :math:`D_{ii}` `ridge`, and :math:`\rho` `constant`.

    Cost: a visit is O(d), or O(numbers in the row).

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`.
      y: -1 and +1, both, shape `(n,)`.
      penalty: `C`, positive.
      loss: "hinge", `p = 1`, or "squared_hinge", `p = 2`.
      augment: rho, the value of a constant feature, of at least 0. Its weight, times
        rho, is the bias; with 0 there is none. It is part of the norm, as all weights.
      seed: of the orders of visits, an integer.

    Returns:
      A state of the zero model, in JAX's default precision.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, or a number is out of its range.

    Example:
      >>> import budgetjax as bj, numpy as np
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> state = bj.dcd.init(X, y, augment=1.0)
      >>> for _ in range(100):
      ...     state = bj.dcd.step(state, X, y)
      >>> bj.dcd.model(state, X, y).predict(X).tolist()
      [-1, 1, 1]

    References:
      Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), "A dual coordinate descent
      method for large-scale linear SVM", Algorithm 1; `solve` is Algorithm 3.

    Differences from the paper: none in `init` and `step`; see `solve`.
    """
    where = "dcd.init"
    rows, y = examples(where, X, y)
    constant = constant_feature(where, augment, y.dtype)
    squares = squared_norms(where, rows, constant, y.dtype)
    checks.positive(where, "penalty", penalty)
    penalty = checks.as_leaf(where, "penalty", penalty, y.dtype)
    if loss not in LOSSES:
        raise ValueError(f"{where}: loss must be one of {LOSSES}, got {loss!r}")
    if loss == "hinge":
        upper, ridge = penalty, jnp.zeros_like(penalty)
    else:
        upper, ridge = jnp.full_like(penalty, jnp.inf), 1 / (2 * penalty)
    seed = checks.scalar_integer(where, "seed", seed)
    key, now = jax.random.split(jax.random.key(seed))
    return State(
        weights=jnp.zeros(width(rows, constant), y.dtype),
        coefficients=jnp.zeros_like(squares),
        squares=squares,
        upper=upper,
        ridge=ridge,
        constant=constant,
        num_visits=jnp.zeros((), y.dtype),
        num_passes=jnp.zeros((), y.dtype),
        settled=jnp.bool_(False),
        order=shuffled(now, everything(rows.number)),
        bounds=jnp.array([-jnp.inf, jnp.inf], y.dtype),
        tolerance=jnp.full((), TOLERANCE, y.dtype),
        position=jnp.int32(0),
        key=key,
    )


def _gradient(
    state: State, coefficient: Float[Array, ""], margin: Float[Array, ""]
) -> Float[Array, ""]:
    """`G`."""
    return margin - 1 + state.ridge * coefficient


def _visit(
    state: State,
    coefficient: Float[Array, ""],
    margin: Float[Array, ""],
    square: Float[Array, ""],
) -> Float[Array, ""]:
    """The coefficient of a pattern after a visit."""
    # A zero pattern, whose gradient is -1, goes to the upper end at once.
    change = _gradient(state, coefficient, margin) / (square + state.ridge)
    return jnp.clip(coefficient - change, 0, state.upper)


def step(state: State, X: Any, y: ArrayLike) -> State:
    """Visits one pattern, the next of a random order; see `init`.

    Args:
      state: of this solver.
      X: the training set of `init`, numbers or `SparseRows`; values are not checked.
      y: its labels, shape `(n,)`.

    Returns:
      The new state.
    """
    return _step(state, *given(X, y))


@jax.jit
def _step(state: State, rows: DenseRows | SparseRows, y: Float[Array, " n"]) -> State:
    i = state.order.indices[state.position]
    shown, only = some_patterns(rows, y, state.constant, i[None]), jnp.int32(0)
    old = state.coefficients[i]
    now = _visit(state, old, shown.inner(only, state.weights), state.squares[i])
    order, position, key = next_position(state.order, state.position, state.key)
    return state._replace(
        weights=shown.add(only, now - old, state.weights),
        coefficients=state.coefficients.at[i].set(now),
        num_visits=state.num_visits + 1,
        num_passes=state.num_passes + (position == 0).astype(y.dtype),
        order=order,
        position=position,
        key=key,
    )


def _pass(state: State, shown: Rows) -> State:
    """Visits what is left of the patterns, in a new order, and shrinks it."""
    key, now = jax.random.split(state.key)
    lower, upper = state.bounds

    def visit(coefficient, margin, square, tally):
        # Algorithm 3.
        gradient = _gradient(state, coefficient, margin)
        low, high = coefficient <= 0, coefficient >= state.upper
        shrunk = (low & (gradient > upper)) | (high & (gradient < lower))
        now = _visit(state, coefficient, margin, square)
        # Of what remains, the least and the largest projected gradient.
        projected = jnp.where(low, jnp.minimum(gradient, 0), gradient)
        projected = jnp.where(high, jnp.maximum(projected, 0), projected)
        ends = jnp.stack([-projected, projected])
        return now, ~shrunk, jnp.where(shrunk, tally, jnp.maximum(tally, ends))

    weights, coefficients, left, ends = visit_all(
        shown,
        state.squares,
        shuffled(now, state.order),
        state.weights,
        state.coefficients,
        visit,
        jnp.full_like(state.bounds, -jnp.inf),
    )
    n = shown.number
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
        num_passes=state.num_passes + 1,
        settled=whole & jnp.all(ends <= 0),
        order=left,
        bounds=jnp.stack([lower, upper]),
        tolerance=jnp.where(whole & reached, FINER, 1) * state.tolerance,
        key=key,
    )


def _round(state: State, shown: Rows) -> State:
    """Some passes over what is left, or until a pass over everything is good enough."""

    def more(passed):
        early = passed.settled | (passed.tolerance < state.tolerance)
        return (passed.num_passes < state.num_passes + PASSES) & ~early

    return jax.lax.while_loop(more, lambda passed: _pass(passed, shown), state)


def _value(state: State, margins: Float[Array, " n"]) -> Objective:
    square = jnp.sum(state.coefficients * margins)
    hinge = jnp.maximum(1 - margins, 0)
    ridge = jnp.where(state.ridge > 0, state.ridge, 1)
    loss = jnp.where(
        jnp.isinf(state.upper),
        jnp.sum(jnp.square(hinge)) / (2 * ridge),
        jnp.where(jnp.isinf(state.upper), 0, state.upper) * jnp.sum(hinge),
    )
    # In this order: the square of a small coefficient may underflow.
    smoothed = jnp.sum(state.coefficients * (state.ridge * state.coefficients)) / 2
    return Objective(
        square / 2 + loss, jnp.sum(state.coefficients) - square / 2 - smoothed
    )


def _scale(state: State) -> Float[Array, "*models"]:
    return jnp.ones_like(state.upper)


SOLVER = Solver(_round, _value, _scale, lambda state: state.coefficients)


def objective(state: State, X: Any, y: ArrayLike) -> Objective:
    """`J` of the model, and the dual below it; O(n d).

    Args:
      state: of this solver.
      X: the training set of `init`, numbers or `SparseRows`.
      y: its labels.

    Returns:
      `primal` is to be minimised, and `dual` is below it.
    """
    return solving.objective(SOLVER, state, X, y)


def model(state: State, X: Any, y: ArrayLike) -> LinearModel:
    """The model of `w`.

    Args:
      state: of this solver.
      X: the training set of `init`.
      y: its labels; not used.

    Raises:
      ValueError: if `X` is not finite, or has another number of features.
    """
    return solving.model("dcd.model", SOLVER, state, X)


def solve(
    X: Any,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    loss: str = "hinge",
    augment: float = 0.0,
    seed: int = 0,
    stop: float = 1e-4,
    max_passes: int = 10_000,
    progress: bool = False,
) -> Solution:
    """Trains until the objective is near enough to its optimum; see `init`.

    A pass visits what is left of the training set in a new random order, and drops
    coefficients at an end of their range that a visit would not move away from it. When
    the projected gradients of what is left are nearly equal, everything comes back. The
    gap is computed after ten passes, or when a pass over everything was good enough.
    All of it is in float64, whatever JAX's default precision is, except that patterns
    stay in the type of `X`. Like `budgetjax.mpu.solve`, this is made for CPUs.

    Args:
      X: as for `init`.
      y: as for `init`.
      penalty: `C`. Several values, shape `(models,)`, give a model for each.
      loss: as for `init`.
      augment: as for `init`.
      seed: as for `init`.
      stop: the `delta_aft` that is enough, positive: the relative duality gap.
      max_passes: passes over what is left, up to nine more, as the gap is looked at
        after ten; then the solution is not converged.
      progress: whether to show a bar, with the gap.

    Returns:
      What has been reached. Its `num_passes` counts passes over what is left.

    Raises:
      ValueError: as for `init`, or if the objective overflows.
      ImportError: if `progress` needs tqdm.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("digits")
      >>> y = data.y_train % 2 * 2 - 1
      >>> solution = bj.dcd.solve(data.X_train, y, augment=1.0, loss="squared_hinge")
      >>> bool(solution.converged), bool(solution.delta_aft <= 1e-4)
      (True, True)

    References:
      Hsieh, Chang, Lin, Keerthi and Sundararajan (2008), Algorithm 3.

    Differences from the paper: it ends at a duality gap, not at a difference of
    projected gradients; that difference, where shrinking starts again from everything,
    is 0.1 at first and a tenth as much whenever it has been reached.
    """
    _, found = solving.solve_linear(
        "dcd.solve",
        X,
        y,
        functools.partial(init, loss=loss, seed=seed),
        SOLVER,
        penalty=penalty,
        augment=augment,
        stop=stop,
        max_passes=max_passes,
        progress=progress,
    )
    return found


dcd = LinearAlgorithm(init, step, objective, model, solve)
