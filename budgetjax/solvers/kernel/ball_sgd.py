"""The mean hinge loss in a ball, by stochastic subgradient descent."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array

from budgetjax import _checks
from budgetjax._record import leaf, static
from budgetjax.model import KernelModel
from budgetjax.solvers import row_cache, training_set
from budgetjax.solvers.kernel import hinge_dual
from budgetjax.solvers.kernel.hinge_dual import HingeState
from budgetjax.solvers.kernel.kernel_solver import KernelSolver
from budgetjax.solvers.row_cache import KernelRows
from budgetjax.solvers.solver import Objective
from budgetjax.solvers.training_set import TrainingSet, Vector


class BallState(HingeState):
    """The state of the solver on `n` examples.

    Attributes:
      coefficients, responses, lost: those of the last iterate.
      mean_coefficients, mean_responses, mean_lost: those of the average of all
        iterates, the model.
    """

    mean_coefficients: Vector
    mean_responses: Vector
    mean_lost: Vector


class BallSGD(KernelSolver[BallState]):
    r"""The mean hinge loss in a ball, by stochastic subgradient descent.

    Over all :math:`\|w\| \le U` it minimises the mean hinge loss :math:`\frac1n \sum_i
    \max(0, 1 - y_i \langle w, \Phi(x_i) \rangle)`. Visit :math:`t` draws an example
    :math:`i`, with replacement; if its margin is below 1,

    .. math:: w_{t+1} = \Pi_U\big(w_t + \eta_t y_i \Phi(x_i)\big), \qquad
        \eta_t = \frac{U}{r \sqrt t}, \qquad r^2 = \max_i k(x_i, x_i),

    where :math:`\Pi_U` shrinks a longer vector to the norm :math:`U`; otherwise
    :math:`w_{t+1} = w_t`. The model is the average of the iterates, with the weight t
    for :math:`w_{t+1}`. After :math:`T` visits its expected loss is at most :math:`5 r
    U / \sqrt T` above the least. Every optimum of an SVM is that for a radius of its
    norm. With weights, examples are drawn in proportion to them, and the mean is
    weighted.

    Examples never leave the model; `budgetjax.Ahpatron` is a learner in a ball on a
    budget, for streams. A step makes `batch_size` visits, as in `budgetjax.SDCA`.

    Cost: a step is O(batch_size^2 d + n), plus O(n d) per violation whose kernel row is
    not kept.

    Args:
      kernel, tolerance, seed: as of every `budgetjax.KernelSolver`.
      radius: U, the largest norm of the model, above 0.
      batch_size: visits per step.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> found = bj.solve(bj.BallSGD(bj.RBF(8.0), radius=20.0), X, y, max_steps=1000)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
      True

    References:
      Cotter, Shalev-Shwartz and Srebro (2012), "The kernelized Stochastic Batch
      Perceptron", Section 4.2, Table 1 and Appendix D.2.
      https://arxiv.org/abs/1204.0566
      Zinkevich (2003), "Online convex programming and generalized infinitesimal
      gradient ascent", for the steps and their bound; Shamir and Zhang (2013),
      "Stochastic gradient descent for non-smooth optimization", Section 4, for the
      weights of the average, as in `budgetjax.SBP`.
      https://proceedings.mlr.press/v28/shamir13.html

    Differences from the paper: none; the paper leaves the step sizes and the average
    open.
    """

    radius: ArrayLike = leaf(_checks.positive, default=10.0)
    batch_size: int = static(default=64, check=_checks.size, kw_only=True)

    def batch(self, n: int) -> int:
        return min(self.batch_size, n)

    def start(self, data: TrainingSet, rows: KernelRows) -> BallState:
        zeros = jnp.zeros_like(data.y)
        names = "lost", "mean_coefficients", "mean_responses", "mean_lost"
        more = dict.fromkeys(names, zeros) | {"num_visits": jnp.int32(0)}
        return self.zero(BallState, data, rows, **more)

    def step(self, state: BallState, data: TrainingSet) -> BallState:
        """`batch_size` visits."""
        largest = jnp.max(state.rows.diagonal)
        first_rate = self.radius * jnp.where(largest > 0, jax.lax.rsqrt(largest), 1)
        squared_norm = jnp.sum(state.coefficients * state.responses)
        before = state.num_visits
        state, batch = hinge_dual.draw(state, data, data.weight)
        zeros = jnp.zeros_like(batch.responses)
        one = jnp.ones_like(squared_norm)

        # The batch's own part of the iterate and of their average, and the shares in
        # them of the iterate and of the average that the step starts with.
        def visit(j, carry):
            steps, kept, squared_norm, means, mean_kept, average_kept = carry
            time = (before + 1 + j).astype(zeros.dtype)
            margin = kept * batch.responses[j] + jnp.sum(batch.block[j] * steps)
            rate = jnp.where(margin < 1, first_rate * jax.lax.rsqrt(time), 0)
            squared_norm += rate * (2 * margin + rate * batch.diagonal[j])
            over = squared_norm > self.radius**2
            shrink = jnp.where(over, self.radius * jax.lax.rsqrt(squared_norm), 1)
            squared_norm = jnp.where(over, self.radius**2, squared_norm)
            steps, kept = shrink * steps.at[j].add(rate), shrink * kept
            # The weight of iterate t is t.
            share = 2 / (time + 1)
            means += share * (steps - means)
            mean_kept += share * (kept - mean_kept)
            average_kept *= 1 - share
            return steps, kept, squared_norm, means, mean_kept, average_kept

        start = zeros, one, squared_norm, zeros, jnp.zeros_like(one), one
        steps, kept, _, means, mean_kept, average_kept = jax.lax.fori_loop(
            jnp.int32(0), jnp.int32(zeros.shape[0]), visit, start
        )

        def added(weights, *parts):
            """A weighted sum of coefficients, responses and lost, and of the batch."""
            coefficients, responses, lost = (
                sum(factor * part for factor, part in zip(weights, pair, strict=True))
                for pair in zip(*parts, strict=True)
            )
            sums = {"coefficients": coefficients, "responses": responses, "lost": lost}
            return state._replace(**sums)

        updates = state.num_updates + jnp.sum(means != 0, dtype=jnp.int32)
        drawn = batch.drawn
        steps, means = (
            hinge_dual.merge_repeats(drawn, part) for part in (steps, means)
        )
        state = state._replace(
            rows=row_cache.fetch(self.kernel, state.rows, data.X, drawn, means != 0)
        )
        iterate = state.coefficients, state.responses, state.lost
        mean = state.mean_coefficients, state.mean_responses, state.mean_lost
        of_mean = added((mean_kept, average_kept), iterate, mean)
        of_mean = hinge_dual.add_steps(of_mean, data.y, drawn, means)
        of_iterate = hinge_dual.add_steps(added((kept,), iterate), data.y, drawn, steps)
        return of_iterate._replace(
            mean_coefficients=of_mean.coefficients,
            mean_responses=of_mean.responses,
            mean_lost=of_mean.lost,
            num_updates=updates,
        )

    def objective(self, state: BallState, data: TrainingSet) -> Objective:
        r"""The mean hinge loss of the average, and a lower bound of all; O(n).

        For any :math:`0 \le p_i \le v_i / \sum_j v_j`, no loss in the ball is below
        :math:`\sum_i p_i - U \|\sum_i p_i y_i \Phi(x_i)\|`. Here :math:`p` is
        proportional to the average's coefficients.
        """
        alpha, margins = state.mean_coefficients, state.mean_responses
        total = training_set.total_weight(alpha, data.weight)
        shares = jnp.ones_like(alpha) if data.weight is None else data.weight
        shares /= total
        tiny = jnp.finfo(alpha.dtype).tiny
        norm = jnp.sqrt(jnp.maximum(jnp.sum(alpha * margins), 0))
        bound = (jnp.sum(alpha) - self.radius * norm) / jnp.maximum(
            jnp.max(alpha / shares), tiny
        )
        return Objective(
            jnp.sum(shares * jnp.maximum(1 - margins, 0)), jnp.maximum(bound, 0)
        )

    def model(self, state: BallState, data: TrainingSet) -> KernelModel:
        """The average of the iterates."""
        return self.model_of(data, state.mean_coefficients, self.bias(state, data))

    def num_vectors(self, state: BallState) -> Array:
        return jnp.count_nonzero(state.mean_coefficients)
