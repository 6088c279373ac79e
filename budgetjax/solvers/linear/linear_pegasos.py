"""Pegasos for the linear SVM on a training set."""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from budgetjax import _checks
from budgetjax._record import static
from budgetjax.model import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.linear_solver import LinearSolver, LinearState
from budgetjax.solvers.linear.patterns import Patterns
from budgetjax.solvers.linear.rows import get, products, read_in_loop, set_at
from budgetjax.solvers.solver import Objective, objective_of_sum
from budgetjax.solvers.training_set import Scalar, Vector


class LinearPegasosState(LinearState):
    """The state of the solver on `n` examples.

    Attributes:
      weights: `lambda k (t - 1)` times `w_t`, a sum of patterns.
      coefficients: the multiplicity of each pattern in that sum, shape `(n,)`.
      num_blocks: blocks drawn so far, `t - 1`.
    """

    coefficients: Vector
    num_blocks: Scalar


class LinearPegasos(LinearSolver[LinearPegasosState, LinearModel]):
    r"""The linear SVM by stochastic subgradient descent.

    Block :math:`t` has :math:`k` patterns :math:`z_i = y_i (x_i, \rho)`, drawn with
    replacement into :math:`A_t`, and moves the weights towards the margin violators,

    .. math:: w_{t+1} = \Big(1 - \frac{1}{t}\Big) w_t + \frac{1}{\lambda t k} \sum_{i
        \in A_t,\; w_t \cdot z_i < 1} z_i, \qquad \lambda = \frac{1}{n C},

    which minimises :math:`\lambda J(w)`,

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i v_i \max(0, 1 - w \cdot z_i).

    With weights, patterns are drawn in proportion to them, and :math:`n` is their sum.
    A step draws n patterns, rounded up to full blocks. The objective converges slowly:
    for a relative accuracy below 0.01, use `budgetjax.MPU` or `budgetjax.DCD`. Like
    those, the solver targets CPUs.

    Cost: a block is O(k d), or O(nonzeros of the rows).

    Args:
      penalty, fit_bias, bias_scale, tolerance, seed: as of every
        `budgetjax.LinearSolver`.
      batch_size: k.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> odd, odd_test = (y % 2 * 2 - 1 for y in (data.y_train, data.y_test))
      >>> found = bj.solve(bj.LinearPegasos(tolerance=0.5), data.X_train, odd)
      >>> bool((found.model.predict(data.X_test) == odd_test).mean() > 0.85)
      True

    References:
      Shalev-Shwartz, Singer and Srebro (2007), "Pegasos: primal estimated sub-gradient
      solver for SVM", Figure 1. https://doi.org/10.1145/1273496.1273598

    Differences from the paper: blocks are drawn with replacement, and the weights are
    not projected into their ball, which the paper's later version shows to be
    unnecessary (https://doi.org/10.1007/s10107-010-0420-4, Section 2).
    """

    batch_size: int = static(default=30, check=_checks.size, kw_only=True)

    max_steps = 100

    def start(self, data: Patterns) -> LinearPegasosState:
        return LinearPegasosState(
            solver=self,
            digest=data.digest,
            weights=jnp.zeros(data.width, data.dtype),
            key=jax.random.key(self.seed),
            coefficients=jnp.zeros_like(data.squares),
            num_blocks=jnp.zeros((), data.dtype),
        )

    def step(self, state: LinearPegasosState, data: Patterns) -> LinearPegasosState:
        """Processes the blocks that draw every pattern once, on average."""
        n, k, X = len(data.y), self.batch_size, data.X
        key, draw_key = jax.random.split(state.key)
        drawn = training_set.draw_examples(draw_key, (-(-n // k) * k,), n, data.weight)
        blocks, per_block = drawn.shape[0] // k, self._unit_per_block(data)

        def block(t, carry):
            """Figure 1, an iteration; `w_t` is `weights / unit`, and 0 in the first."""
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

    def _unit_per_block(self, data: Patterns) -> Scalar:
        """`lambda k`."""
        total = training_set.total_weight(data.y, data.weight)
        return jnp.asarray(1 / (self.penalty * total) * self.batch_size)

    def _unit(self, state: LinearPegasosState, data: Patterns) -> Scalar:
        """The divisor of the sum of patterns that gives the weights."""
        return self._unit_per_block(data) * jnp.maximum(state.num_blocks, 1)

    def objective(self, state: LinearPegasosState, data: Patterns) -> Objective:
        """`J` of the model, and the dual of its best multiple; O(n d)."""
        unit = self._unit(state, data)
        margins = products(data.X, state.weights) / unit
        return objective_of_sum(
            state.coefficients / unit, margins, self.penalty, data.weight
        )

    def model(self, state: LinearPegasosState, data: Patterns) -> LinearModel:
        """The model of the last iterate."""
        return data.to_model(state.weights / self._unit(state, data))

    def num_vectors(self, state: LinearPegasosState) -> Array:
        return jnp.count_nonzero(state.coefficients)

    def work(self, state: LinearPegasosState) -> int:
        return int(state.num_blocks) * self.batch_size
