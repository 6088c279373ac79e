"""The weights of a refit: the solution for support vectors, and the model of it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from budgetjax import losses
from budgetjax._errors import ArgumentError, names_errors, warn
from budgetjax.online import driver
from budgetjax.online.changes import restart_average
from budgetjax.refitting import moving_vectors, newton, training_data
from budgetjax.refitting.newton import Basis
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.training_data import Block
from budgetjax.tables import scaling
from budgetjax.tables.table_model import TableModel

# Kinks of a loss are smoothed over these fractions of the deviation of the residuals,
# one after the other, starting from those of least squares. Starting with the last
# takes 50 percent more passes. A fifth of it does not improve quantiles.
WIDTHS = (0.4, 0.1, 0.05)
# The first Newton steps use every SAMPLE-th example, up to a larger tolerance, if that
# leaves at least ENOUGH examples per feature: fewer give a worse start.
SAMPLE, SAMPLE_TOLERANCE, ENOUGH = 8, 1e-3, 10

# A state, its features, and their weights, one row per column of coefficients.
Solution = tuple[Any, Basis, Float[np.ndarray, "columns features"]]


def solve_state(
    problem: Problem, penalty: float, state: Any, blocks: Callable[[], Iterator[Block]]
) -> Solution:
    """The solution for a state, with moved vectors if the problem moves them."""
    basis = problem.basis(state)
    if not problem.again:
        each = _per_column(basis, [penalty])
        weights = newton.one_pass(problem.loss, basis, blocks(), each, problem.report)
        return state, basis, weights
    weights = solve_weights(problem, basis, blocks, [penalty])
    if not problem.moves:
        return state, basis, weights
    vectors = moving_vectors.move_vectors(problem, basis, blocks, weights, penalty)
    state = problem.with_vectors(state, vectors)
    basis = problem.basis(state)
    return state, basis, solve_weights(problem, basis, blocks, [penalty])


def solve_weights(
    problem: Problem,
    basis: Basis,
    blocks: Callable[[], Iterator[Block]],
    penalties: list[float],
) -> Float[np.ndarray, "problems features"]:
    """The weights that minimise the objective."""
    minimise = functools.partial(
        newton.minimise,
        basis=basis,
        negligible=problem.negligible,
        report=problem.report,
    )
    each, kinks = _per_column(basis, penalties), losses.has_kinks(problem.loss)
    start, rows = newton.least_squares(basis, map(problem.near, blocks()), each)

    def rounded(weights: Any, width: float) -> Callable[..., Array]:
        if not kinks:
            return problem.loss
        deviation = _residual_deviation(basis, blocks(), weights)
        return losses.smooth(problem.loss, width * deviation)

    *first, last = WIDTHS
    if rows >= SAMPLE * ENOUGH * basis.num_features:
        start, _, _ = minimise(
            rounded(start, first[0]),
            blocks=lambda: training_data.sample_blocks(blocks(), SAMPLE),
            weights=start,
            penalties=each * SAMPLE,
            tolerance=SAMPLE_TOLERANCE,
        )
    minimise = functools.partial(minimise, blocks=blocks, penalties=each)
    for width in first if kinks else ():
        loss = rounded(start, width)
        start, _, _ = minimise(loss, weights=start, tolerance=SAMPLE_TOLERANCE)
    weights, value, converged = minimise(
        rounded(start, last), weights=start, tolerance=problem.tolerance
    )
    _check_solution(basis, blocks, value, converged)
    return weights


def _per_column(basis: Basis, penalties: list[float]) -> Float[np.ndarray, " problems"]:
    """The penalty of every problem: each penalty is repeated for all columns."""
    each = np.repeat(penalties, basis.expansion.num_columns)
    return each.astype(basis.root.dtype)


def _check_solution(
    basis: Basis,
    blocks: Callable[[], Iterator[Block]],
    value: Float[np.ndarray, " problems"],
    converged: Bool[np.ndarray, " problems"],
) -> None:
    """Raises if an objective is not finite; warns of problems that are not solved."""
    if not np.all(np.isfinite(value)):
        rows = basis.rows(next(blocks()).X) + basis.expansion.origin[None]
        reason = driver.explain_overflow(basis, rows)
        raise ArgumentError("the objective", "be finite", f"NaN or infinity: {reason}")
    if not np.all(converged):
        warn(
            f"refit: {np.sum(~converged)} of {len(converged)} columns have not "
            f"converged in {newton.MAX_PASSES} passes"
        )


def _residual_deviation(
    basis: Basis,
    blocks: Iterator[Block],
    weights: Float[np.ndarray, "problems features"],
) -> Float[np.ndarray, " problems"]:
    """The robust deviation of the residuals of the first rows."""

    def away(block: Block) -> np.ndarray:
        scores = newton.scores(basis, weights, block.X)
        return np.tile(block.targets, len(weights) // block.targets.shape[1]) - scores

    left = training_data.first_values(blocks, away)
    _, deviation = scaling.centre_and_deviation(left, robust=True)
    # The deviation of the targets is 1; a perfect fit has no residuals to measure.
    return np.maximum(deviation, 1e-3)


@names_errors("refit")
def build_model(problem: Problem, solution: Solution) -> Any:
    """The model with the state of the solution inside, and its weights and bias."""
    model, (state, basis, weights) = problem.model, solution
    weights = (weights * problem.units.unit[:, None]).astype(weights.dtype)
    shift = np.zeros(0)
    if problem.constant is not None:
        shift = weights[:, -1] + problem.units.origin
        shift = shift if len(weights) > 1 else shift[0]
        weights = weights[:, :-1]
    state = put_weights(state, basis, weights)
    if not problem.streams:
        bias = jnp.asarray(shift, weights.dtype)
        state = state.to_kernel_model()._replace(bias=bias)
    elif problem.constant is not None:
        model = TableModel.of(model).add_intercept(shift).put_in(model)
    if (codes := problem.encoding) is not None:
        codes = codes._replace(map=np.asarray(problem.map)[: codes.num_codes])
        model = TableModel.of(model)._replace(scaling=codes).put_in(model)
    return model.with_inner(state)


def put_weights(
    state: Any,
    basis: Basis,
    weights: Float[np.ndarray, "problems features"],
) -> Any:
    """The state with these weights, ready to continue learning."""
    state, finite = _put_weights(state, basis.root, weights)
    if not bool(finite):
        vectors = basis.expansion.examples[basis.expansion.mask]
        raise ArgumentError(
            "every coefficient",
            "be finite",
            f"NaN or infinity: {driver.explain_overflow(basis, vectors)}",
        )
    return restart_average(state)


@jax.jit
def _put_weights(
    state: Any, root: Array, weights: Array
) -> tuple[Any, Bool[Array, ""]]:
    """The state with these weights and its old average; and whether all are finite."""
    learner = state.learner
    state = learner.refresh(learner.with_weights(state, root, weights))
    return state, jnp.all(jnp.isfinite(state.expansion.coefficients_and_sums))
