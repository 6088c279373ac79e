"""Sequential minimal optimisation for the kernel SVM."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import _checks
from budgetjax._record import static
from budgetjax.solvers import row_cache
from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import HingeSolver, HingeState
from budgetjax.solvers.training_set import Scalar, TrainingSet, Vector

# The maximum number of updates of a subproblem per example, and the fraction of the
# first gain that each must reach.
UPDATES = 4
ENOUGH = 1e-2
# The distance from a bound, in rounding units, at which a coefficient counts as there.
ROUNDING = 8


class Subproblem(NamedTuple):
    """The changes of some coefficients so far, after `made` updates.

    `gain` is that of the last update.
    """

    steps: Float[Array, " batch"]
    responses: Float[Array, " batch"]
    gain: Scalar
    made: Integer[Array, ""]


class SMO(HingeSolver):
    r"""The kernel SVM, by sequential minimal optimisation (SMO).

    Without a bias, an update maximises the dual in the coefficient with the largest
    gain. With a bias, it maximises the dual in two coefficients, with
    :math:`y_i \alpha_i + y_j \alpha_j` constant: for
    :math:`e = y - \sum_i \alpha_i y_i k(x_i, \cdot)`,

    .. math:: i = \arg\max_{\text{up}} e_i, \qquad j = \arg\max_{\text{low}, e_j < e_i}
        \frac{(e_i - e_j)^2}{k_{ii} + k_{jj} - 2 k_{ij}},

    where :math:`y_i \alpha_i` may still grow for examples in "up", and shrink for
    examples in "low"; the step is clipped so that :math:`0 \le \alpha_i \le C v_i`.

    A step chooses `batch_size` examples by the same measure, solves the problem in
    their coefficients by such updates, with the kernel values among them, and then
    updates all responses with the kernel rows of the changed ones.

    Cost: a step is O(batch_size^2 d + n), plus O(n d) per changed coefficient whose
    kernel row is not kept.

    Args:
      kernel, tolerance, seed: as of every `budgetjax.KernelSolver`; nothing is drawn.
      penalty: C, positive.
      fit_bias: whether to add a bias, which is not regularised.
      batch_size: the number of coefficients to choose per step; the minimum, 1, or 2
        with a bias, means one update per step.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> found = bj.solve(bj.SMO(bj.RBF(8.0), penalty=1.0), X, y)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
      True

    References:
      Platt (1998), "Fast training of Support Vector Machines using Sequential Minimal
      Optimization". Fan, Chen and Lin (2005), "Working set selection using second order
      information for training support vector machines", WSS 2.
      https://jmlr.org/papers/v6/fan05a.html
      Joachims (1998), "Making large-scale SVM learning practical", for larger working
      sets. https://www.cs.cornell.edu/people/tj/publications/joachims_99a.pdf

    Differences from the paper: working sets have any size. With a bias, half of a
    working set are the worst violators in "up", and the other half have the largest
    gain together with the first of them.
    """

    fit_bias: bool = static(default=True, check=_checks.flag, kw_only=True)

    def batch(self, n: int) -> int:
        return min(max(self.batch_size, 1 + self.fit_bias), n)

    def bias(self, state: HingeState, data: TrainingSet) -> Scalar:
        """The bias that minimises the hinge loss."""
        if not self.fit_bias:
            return super().bias(state, data)
        return hinge_dual.least_bias(1 - state.responses, data.y, data.weight)

    def step(self, state: HingeState, data: TrainingSet) -> HingeState:
        limits = self.limits(data)
        if self.fit_bias:
            state, chosen, exists = _choose_pairs(state, limits, data)
        else:
            coefficients, responses = state.coefficients, state.responses
            _, gains = _gains(coefficients, responses, state.rows.diagonal, limits)
            chosen = jax.lax.top_k(gains, self.batch(len(data.y)))[1]
            exists = jnp.ones(chosen.shape, bool)
        given = self.kernel, state.rows, data.X, data.y, chosen
        rows, block = row_cache.signed_block(*given)
        start, diagonal, signs, limits = (
            array[chosen]
            for array in (state.coefficients, rows.diagonal, data.y, limits)
        )
        batch = chosen.shape[0]

        def update(part: Subproblem) -> Subproblem:
            coefficients = start + part.steps
            if self.fit_bias:
                i, j, change, gain = _best_pair(
                    coefficients, part.responses, diagonal, signs, block, exists, limits
                )
                change_i, change_j = signs[i] * change, -signs[j] * change
                steps = part.steps.at[i].add(change_i).at[j].add(change_j)
                responses = part.responses + change_i * block[i] + change_j * block[j]
            else:
                changes, gains = _gains(coefficients, part.responses, diagonal, limits)
                i = jnp.argmax(gains)
                gain = gains[i]
                steps = part.steps.at[i].add(changes[i])
                responses = part.responses + changes[i] * block[i]
            return Subproblem(steps, responses, gain, part.made + 1)

        first = update(
            Subproblem(
                jnp.zeros_like(start), state.responses[chosen], start[0], jnp.int32(0)
            )
        )
        limit = 1 if batch == 1 + self.fit_bias else UPDATES * batch
        part = jax.lax.while_loop(
            lambda part: (part.made < limit) & (part.gain > ENOUGH * first.gain),
            update,
            first,
        )
        state = state._replace(rows=rows, num_updates=state.num_updates + part.made)
        steps = jnp.clip(start + part.steps, 0, limits) - start
        return self.change(state, data, chosen, steps)


def _gains(
    coefficients: Vector, responses: Vector, diagonal: Vector, limits: Vector
) -> tuple[Vector, Vector]:
    """The best change of each coefficient alone, and its gain in the dual."""
    changes = hinge_dual.best_change(coefficients, responses, diagonal, limits)
    return changes, changes * (1 - responses - diagonal * changes / 2)


def _bounds(
    coefficients: Vector, y: Vector, limits: Vector
) -> tuple[Bool[Array, " n"], Bool[Array, " n"]]:
    """The examples whose `y alpha` may grow, and those whose may shrink."""
    rounding = ROUNDING * jnp.finfo(coefficients.dtype).eps * limits
    below, above = coefficients < limits - rounding, coefficients > rounding
    return jnp.where(y > 0, below, above), jnp.where(y > 0, above, below)


def _curvature(diagonal_i: Scalar, diagonal: Vector, row: Vector) -> Vector:
    """`||Phi(x_i) - Phi(x_j)||^2`, above 0."""
    limits = jnp.finfo(row.dtype)
    least = jnp.maximum(limits.eps * diagonal_i, limits.tiny)
    return jnp.maximum(diagonal_i + diagonal - 2 * row, least)


def _choose_pairs(
    state: HingeState, limits: Vector, data: TrainingSet
) -> tuple[HingeState, Integer[Array, " batch"], Bool[Array, " batch"]]:
    """The worst violators in "up", their best partners in "low", and which exist."""
    solver, y = state.solver, data.y
    up, low = _bounds(state.coefficients, y, limits)
    error = y * (1 - state.responses)
    batch = solver.batch(len(y))
    worst, ups = jax.lax.top_k(jnp.where(up, error, -jnp.inf), batch // 2)
    i = ups[:1]
    rows = row_cache.fetch(solver.kernel, state.rows, data.X, i, jnp.ones(1, bool))
    row = jax.lax.dynamic_index_in_dim(rows.kept, rows.places[i[0]], keepdims=False)
    curvature = _curvature(rows.diagonal[i[0]], rows.diagonal, row)
    ahead = worst[0] - error
    free = low & (ahead > 0)
    free = free.at[ups].set(free[ups] & (worst == -jnp.inf))
    gains = jnp.where(free, ahead * ahead / curvature, -jnp.inf)
    best, lows = jax.lax.top_k(gains, batch - batch // 2)
    chosen = jnp.concatenate([ups, lows])
    exists = jnp.concatenate([worst, best]) > -jnp.inf
    return state._replace(rows=rows), chosen, exists


def _best_pair(
    coefficients: Float[Array, " batch"],
    responses: Float[Array, " batch"],
    diagonal: Float[Array, " batch"],
    signs: Float[Array, " batch"],
    block: Float[Array, "batch batch"],
    exists: Bool[Array, " batch"],
    limits: Float[Array, " batch"],
) -> tuple[Integer[Array, ""], Integer[Array, ""], Scalar, Scalar]:
    """The pair that WSS 2 chooses in a subproblem, its change, and its gain."""
    up, low = _bounds(coefficients, signs, limits)
    error = signs * (1 - responses)
    i = jnp.argmax(jnp.where(up & exists, error, -jnp.inf))
    ahead = error[i] - error
    curvature = _curvature(diagonal[i], diagonal, signs[i] * signs * block[i])
    good = up[i] & exists[i] & low & exists & (ahead > 0)
    gains = jnp.where(good, ahead * ahead / curvature, -jnp.inf)
    j = jnp.argmax(gains)
    room_i = jnp.where(signs[i] > 0, limits[i] - coefficients[i], coefficients[i])
    room_j = jnp.where(signs[j] > 0, coefficients[j], limits[j] - coefficients[j])
    change = jnp.minimum(ahead[j] / curvature[j], jnp.minimum(room_i, room_j))
    change = jnp.where(good[j], jnp.maximum(change, 0), 0)
    return i, j, change, change * (ahead[j] - curvature[j] * change / 2)
