"""The approximate large margin algorithm on a budget."""

import math

import jax.numpy as jnp
import numpy as np

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import leaf
from budgetjax._shapes import Number
from budgetjax.kernels import Normalized
from budgetjax.online import importance
from budgetjax.online.ball import Norm, project_onto_ball, refresh_norm
from budgetjax.online.learner import Learner

# Theorem 3: B in units of 1 / alpha, and C.
THRESHOLD, STEP = math.sqrt(8), math.sqrt(2)


class ALMA(Learner):
    r"""The approximate large margin algorithm, ALMA with the 2-norm, on a budget.

    ALMA is a Perceptron whose required margin and step shrink with the number of
    updates, so that it approaches the hyperplane of the largest margin. After k - 1
    updates, an example with a margin of at most
    :math:`(1 - \alpha) \frac{\sqrt 8}{\alpha \sqrt k}` enters with the coefficient
    :math:`y \sqrt{2 / k}`; if there are now B + 1 vectors, ``maintenance`` reduces them
    to B; then the model is scaled into the ball :math:`\|w\| \le 1`.

    With C > 2 classes the margin is :math:`(f^{(y)} - f^{(r)}) / \sqrt 2` with the best
    other class r, and the coefficients are :math:`\pm 1 / \sqrt k` in columns y and r,
    which is the same algorithm for the vector of all classes.

    The kernel must have :math:`k(x, x) = 1`: a stationary one, such as `RBF`, or
    `Normalized` of any kernel.

    Cost: O(B (d + C)) per example; an update adds the cost of the maintenance and two
    to four kernel rows.

    Args:
      alpha: above 0, at most 1: without a budget the margin reaches :math:`\alpha`
        times the largest; 1 updates on mistakes only.

    Example:
      >>> state = bj.ALMA().init(bj.RBF(gamma=1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> round(float(bj.support(state).coefficients[0, 0]), 4)
      -1.0

    References:
      Gentile (2001), "A new approximate maximal margin classification algorithm", JMLR
      2, ALMA_p with p = 2, and Theorem 3 for B and C.
      https://www.jmlr.org/papers/volume2/gentile01a/gentile01a.pdf

    Differences from the paper: the budget, and more than two classes.
    """

    takes = ("num_classes", "maintenance")
    alpha: Number = leaf(_checks.up_to_1, default=0.9)

    def check_kernel(self, kernel):
        if not (kernel.stationary or isinstance(kernel, Normalized)):
            raise ArgumentError(
                "kernel",
                "have k(x, x) = 1, as Normalized(kernel) has",
                type(kernel).__name__,
            )

    def start(self, state, seed, vectors):
        return state._replace(memory=Norm(jnp.zeros((), state.dtype)))

    def violates(self, state, score, y):
        """True if the margin is at most `(1 - alpha) gamma_k`."""
        return losses.margin(score, y) <= self._threshold(state)

    def update(self, state, score, y, candidate):
        """The example enters, the strategy makes room, the ball bounds the model."""
        expansion = state.expansion
        eta = STEP / (self._root(state) * _length(score.shape[0]))
        direction = eta * losses.margin_subgradient(score, y)
        gain = _length(score.shape[0]) ** 2 * eta * candidate.kernel_self
        missing = self._threshold(state) - losses.margin(score, y)
        steps = importance.repeats(candidate.weight, missing, gain)
        coefficients = steps * direction / expansion.scale
        state, edits = self.insert(state, coefficients, candidate)
        edits, squared_norm, _, factor = project_onto_ball(
            state.kernel, expansion, state.memory.squared_norm, edits, 1.0
        )
        maintenance = state.maintenance.rescale(factor)
        return state._replace(maintenance=maintenance, memory=Norm(squared_norm)), edits

    def refresh(self, state):
        return refresh_norm(super().refresh(state))

    def no_update_above(self, state):
        return math.nextafter(float(self._threshold(state)), math.inf)

    def _root(self, state):
        """`sqrt(k)`, with k - 1 updates so far."""
        wide = np.promote_types(state.dtype, np.float32)
        return jnp.sqrt(state.updates(wide) + 1).astype(state.dtype)

    def _threshold(self, state):
        """The margin up to which an example changes the model."""
        gamma = THRESHOLD / (self.alpha * self._root(state))
        return (1 - self.alpha) * gamma * _length(state.num_columns)


def _length(columns: int) -> float:
    """The norm of an example for the vector of all classes."""
    return 1.0 if columns == 1 else math.sqrt(2)
