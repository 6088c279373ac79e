"""Kernel stochastic gradient descent on a budget, for any loss."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import Function, leaf
from budgetjax._shapes import Number, Scalar, Score
from budgetjax.online import importance
from budgetjax.online.edits import rescale_factor, with_rescale
from budgetjax.online.learner import Learner
from budgetjax.online.loop import sums_before
from budgetjax.online.state import State

# The logarithm of the shrinking factor of a round that forgets the model. The factor
# must not be 0, since later updates are divided by it.
FORGOTTEN = -40 * math.log(2)


def _check_rate(name: str, value: Any) -> None:
    """Raises unless it is a positive number or a schedule."""
    if not callable(value):
        _checks.positive(name, value)


class SGD(Learner):
    r"""Kernel gradient descent on a budget, for any loss.

    Minimises :math:`\frac{\lambda}{2} \|w\|^2 + \frac1n \sum_t \ell(f(x_t), y_t)` over
    a stream, one example per step. Round t, with the score :math:`f_t(x_t)` of the old
    model, ``learning_rate`` :math:`\eta_t` and ``regularization`` :math:`\lambda`:

    1. All coefficients shrink by :math:`\max(0, 1 - \eta_t \lambda)`.
    2. Where the loss has a gradient, :math:`x_t` enters with the coefficients
       :math:`-\eta_t \, \partial \ell / \partial f`, one per column.
    3. If there are now B + 1 vectors, ``maintenance`` reduces them to B.

    If your own loss takes labels, mark it with `budgetjax.losses.classification_loss`.

    Cost: O(B (d + C)) per example; a nonzero gradient adds the cost of the maintenance,
    which a squared loss pays in every round.

    Args:
      loss: a function of `(scores, y)`, differentiable in the scores, which have shape
        `(C,)` for more than two classes and `()` otherwise: from `optax.losses`,
        `budgetjax.losses`, or your own. With several real outputs, scores and targets
        have shape `(num_outputs,)`, and the values of the loss are summed. The loss is
        part of the compiled program: pass the same function each time, since a new
        `lambda` compiles the loops again. Put numbers that may change into a
        `jax.tree_util.Partial`. None is the hinge loss, or the squared error for real
        targets.
      learning_rate: eta, a positive number, or an optax schedule: a function of the
        number of rounds before this one, a float. None is 1, or 0.3 for real targets.
      regularization: lambda, at least 0.

    Example:
      >>> import optax
      >>> state = bj.SGD(
      ...     loss=optax.losses.squared_error,
      ...     learning_rate=optax.exponential_decay(0.5, 100, 0.9),
      ... ).init(bj.RBF(gamma=1.0), num_features=1, budget=10, num_classes=None)
      >>> state = bj.step(state, jnp.array([0.0]), 3.0)
      >>> bj.decision_function(state, jnp.array([[0.0]])).tolist()
      [3.0]

    References:
      Kivinen, Smola and Williamson (2004), "Online learning with kernels", section III,
      for the step. https://doi.org/10.1109/TSP.2004.830991
      Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget", Algorithm 1,
      for the budget; see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf

    Differences from the papers: any loss, schedule and maintenance.
    """

    takes = ("num_classes", "num_outputs", "maintenance", "average")
    loss: Any = leaf(losses.check_loss, default=None)
    learning_rate: Any = leaf(_check_rate, default=None)
    regularization: Number = leaf(_checks.non_negative, default=0.0)

    def bind(self, expansion, num_classes):
        dtype = expansion.vectors.dtype
        rate: Any = self.learning_rate
        if rate is None:
            # For targets of standard deviation 1.
            rate = 0.3 if num_classes is None else 1.0
        if callable(rate):
            rate = _as_schedule(rate, dtype)
        loss = losses.as_leaves(self.loss, num_classes, dtype, expansion.num_columns)
        learner = self._replace(loss=loss, learning_rate=rate)
        return super(SGD, learner).bind(expansion, num_classes)

    def violates(self, state, score, y):
        """True where the loss has a gradient."""
        return jnp.any(losses.gradient(self.loss, score, y) != 0)

    def update(self, state, score, y, candidate):
        """Steps 2 and 3; step 1 is `decay`."""
        expansion = state.expansion
        seen = state.rounds(_wide(state))
        unit = self._rate(state, seen) / expansion.scale
        gradient = losses.gradient(self.loss, score, y)
        # After step 1, what a step of gradient 1 takes from the score of its example.
        kept = 1 - jnp.minimum(self._rate(state, seen) * self.regularization, 1)
        now = kept.astype(score.dtype) * score
        gain = unit * expansion.scale * candidate.kernel_self
        multiple = importance.step_multiple(
            candidate.weight,
            y,
            gradient,
            lambda m: losses.gradient(self.loss, now - m * gain * gradient, y),
        )
        return _insert(state, unit, multiple * gradient, candidate)

    def decay(self, state, rounds_ahead):
        """The logarithm of the product of `1 - eta_t lambda` over the rounds ahead."""
        seen = state.rounds(_wide(state))
        before, after = rounds_ahead[:-1], rounds_ahead[1:]
        rates = jax.vmap(lambda t: self._rate(state, t))(
            seen + before.astype(seen.dtype)
        )
        lost = jnp.minimum(rates * self.regularization, 1)
        decay = jnp.maximum(jnp.log1p(-lost), FORGOTTEN)
        return sums_before(jnp.where(after > before, decay, 0))

    def with_weights(self, state, root, weights):
        """The coefficients, with a scale that may have decayed far since an update."""
        expansion = state.expansion
        factor = rescale_factor(expansion.scale)
        expansion = expansion._replace(scale=expansion.scale / factor)
        state = state._replace(expansion=expansion)
        return super().with_weights(state, root, weights)

    def _rate(self, state: State, seen: Scalar) -> Scalar:
        """The learning rate, a number or a schedule, after `seen` rounds."""
        given = self.learning_rate
        if isinstance(given, Partial):
            return jnp.asarray(given(seen), state.dtype)
        return given  # pyright: ignore[reportReturnType]


def _insert(state: State, unit: Scalar, gradient: Score, candidate: Any) -> Any:
    """A step of this gradient; see `update`."""
    candidate = candidate._replace(step=unit)
    expansion = state.expansion
    state, edits = Learner.insert(state, -unit * gradient, candidate)
    edits = edits._replace(shrink=jnp.ones_like(expansion.scale))
    edits, factor = with_rescale(expansion, edits)
    maintenance = state.maintenance
    assert maintenance is not None, "gradient descent has a strategy"
    return state._replace(maintenance=maintenance.rescale(factor)), edits


def _wide(state: State) -> np.dtype:
    """The dtype for numbers of rounds: float16 cannot hold 100,000."""
    return np.promote_types(state.dtype, jnp.float32)


def _as_schedule(given: Callable[..., Any], dtype: np.dtype) -> Function:
    """A schedule as part of a state, after a check that it gives a number."""
    schedule = Function.of(given)
    try:
        value = jax.eval_shape(
            lambda t: jnp.asarray(schedule(t), dtype),
            jax.ShapeDtypeStruct((), np.promote_types(dtype, jnp.float32)),
        )
    except Exception as error:
        wanted = "be a number or a function of the number of rounds"
        raise ArgumentError("learning_rate", wanted, error) from error
    if value.shape != ():
        wanted = "give one number per round"
        raise ArgumentError("learning_rate", wanted, f"shape {value.shape}")
    return schedule
