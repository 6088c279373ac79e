"""Pegasos for the linear SVM on a training set; see `init`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int32, Key

from budgetjax import _checks, _record
from budgetjax._errors import names_errors
from budgetjax._record import Name, Static
from budgetjax._rows import RawRows
from budgetjax.model import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear import patterns, rows
from budgetjax.solvers.linear.patterns import Problem
from budgetjax.solvers.linear.rows import Rows, get, products, read_in_loop, set_at
from budgetjax.solvers.solver import Objective, Solver, objective_of_sum
from budgetjax.solvers.training_set import Scalar, Vector


@_record.shown
class State(NamedTuple):
    """The state of the learner on `n` examples; see `budgetjax.Solver`.

    Attributes:
      weights: `lambda k (t - 1)` times `w_t`, a sum of patterns.
      coefficients: the multiplicity of each pattern in that sum, shape `(n,)`.
      num_blocks: blocks drawn so far, `t - 1`.
    """

    algorithm: Name
    weights: Float[Array, " size"]
    coefficients: Vector
    penalty: Scalar
    num_blocks: Scalar
    key: Key[Array, ""]
    problem: Problem
    batch_size: Static


@names_errors("linear_pegasos.init")
def init(
    X: RawRows,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    batch_size: int = 30,
    fit_bias: bool = True,
    bias_scale: ArrayLike = 1.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by stochastic subgradient descent.

    Block :math:`t` has :math:`k` patterns :math:`z_i = y_i (x_i, \rho)`, drawn with
    replacement into :math:`A_t`, and moves the weights towards the margin violators,

    .. math:: w_{t+1} = \Big(1 - \frac{1}{t}\Big) w_t + \frac{1}{\lambda t k} \sum_{i
        \in A_t,\; w_t \cdot z_i < 1} z_i, \qquad \lambda = \frac{1}{n C},

    which minimises :math:`\lambda J(w)`,

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i v_i \max(0, 1 - w \cdot z_i).

    With weights, patterns are drawn in proportion to them, and :math:`n` is their sum.
    A step draws n patterns, rounded up to full blocks. The objective converges slowly:
    for a relative accuracy below 0.01, use `budgetjax.mpu` or `budgetjax.dcd`. Like
    those, the solver targets CPUs.

    Cost: a block is O(k d), or O(nonzeros of the rows).

    Args:
      X, y, penalty, weight, fit_bias, bias_scale, seed: as in every linear `init`; see
        `budgetjax.Solver`.
      batch_size: k.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> odd, odd_test = (y % 2 * 2 - 1 for y in (data.y_train, data.y_test))
      >>> found = bj.solve(bj.linear_pegasos, data.X_train, odd, tolerance=0.5)
      >>> bool((found.model.predict(data.X_test) == odd_test).mean() > 0.85)
      True

    References:
      Shalev-Shwartz, Singer and Srebro (2007), "Pegasos: primal estimated sub-gradient
      solver for SVM", Figure 1. https://doi.org/10.1145/1273496.1273598

    Differences from the paper: blocks are drawn with replacement, and the weights are
    not projected into their ball, which the paper's later version shows to be
    unnecessary (https://doi.org/10.1007/s10107-010-0420-4, Section 2).
    """
    problem = patterns.read_problem(X, y, weight, fit_bias, bias_scale)
    dtype = problem.squares.dtype
    return State(
        algorithm=Name("linear_pegasos"),
        weights=jnp.zeros(problem.width, dtype),
        coefficients=jnp.zeros_like(problem.squares),
        penalty=_checks.as_leaf("penalty", penalty, dtype, _checks.positive),
        num_blocks=jnp.zeros((), dtype),
        key=jax.random.key(_checks.seed(seed)),
        problem=problem,
        batch_size=Static(_checks.size("batch_size", batch_size)),
    )


def _draw(state: State) -> tuple[Key[Array, ""], Int32[Array, " drawn"]]:
    """The next key, and the patterns of the blocks of a step."""
    key, draw_key = jax.random.split(state.key)
    n, k = state.coefficients.shape[0], state.batch_size.value
    return key, training_set.draw_examples(
        draw_key, (-(-n // k) * k,), n, state.problem.weight
    )


def step(state: State, X: Rows, y: Vector | None) -> State:
    """Processes the blocks that draw every pattern once, on average."""
    k = state.batch_size.value
    key, drawn = _draw(state)
    blocks, per_block = drawn.shape[0] // k, _unit_per_block(state)

    def block(t, carry):
        """Figure 1, one iteration; `w_t` is `weights / unit`, and 0 in the first."""
        weights, coefficients = carry
        unit = per_block * (state.num_blocks + t.astype(per_block.dtype))
        first = (t * k).astype(jnp.int32)
        # The number is not known at compile time; see `rows`.
        end = first + jnp.where(first >= 0, jnp.int32(k), jnp.int32(0))

        # Margins are taken before any pattern of the block is added.
        def mark(j, violators):
            margin = X.inner(get(drawn, j), weights)
            violates = (margin < unit) | (unit == 0)
            return set_at(violators, j - first, violates.astype(margin.dtype))

        violators = jax.lax.fori_loop(first, end, mark, jnp.zeros(k, weights.dtype))

        def add(j, sums):
            weights, coefficients = sums
            i, multiple = get(drawn, j), get(violators, j - first)
            count = read_in_loop(coefficients, i) + multiple
            return X.add(i, multiple, weights), set_at(coefficients, i, count)

        return jax.lax.fori_loop(first, end, add, (weights, coefficients))

    weights, coefficients = jax.lax.fori_loop(
        jnp.int32(0), jnp.int32(blocks), block, (state.weights, state.coefficients)
    )
    num_blocks = state.num_blocks + blocks
    return state._replace(
        weights=weights, coefficients=coefficients, num_blocks=num_blocks, key=key
    )


def _unit_per_block(state: State) -> Scalar:
    """`lambda k`."""
    total = training_set.total_weight(state.coefficients, state.problem.weight)
    return 1 / (state.penalty * total) * state.batch_size.value


def _unit(state: State) -> Scalar:
    """The divisor of the sum of patterns that gives the weights."""
    return _unit_per_block(state) * jnp.maximum(state.num_blocks, 1)


def objective(state: State, X: Rows, y: Vector | None) -> Objective:
    """`J` of the model, and the dual of its best multiple; O(n d)."""
    unit = _unit(state)
    coefficients, margins = state.coefficients / unit, products(X, state.weights) / unit
    return objective_of_sum(coefficients, margins, state.penalty, state.problem.weight)


def model(state: State, X: Rows, y: Vector | None) -> LinearModel:
    """The model of the last iterate."""
    return patterns.to_model(state.problem, state.weights / _unit(state))


linear_pegasos = Solver(
    "linear_pegasos",
    init,
    patterns.prepare,
    step,
    objective,
    model,
    lambda state: int(state.num_blocks) * state.batch_size.value,
    read=rows.read,
    linear=True,
    max_steps=100,
    callback_every=1,
)
