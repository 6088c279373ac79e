"""The approximate large margin algorithm on a budget; see `init`."""

import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import Counter, Name
from budgetjax._shapes import Flag, Label, Scalar, Score
from budgetjax.kernels import Kernel, Normalized
from budgetjax.online import importance
from budgetjax.online.algorithm import Algorithm, init_fields
from budgetjax.online.ball import project_onto_ball, refresh_squared_norm
from budgetjax.online.maintenance import Maintenance, init_maintenance
from budgetjax.online.state import record_state
from budgetjax.online.support_set import Candidate, Edits, Expansion

# Theorem 3: B in units of 1 / alpha, and C.
THRESHOLD, STEP = math.sqrt(8), math.sqrt(2)


@record_state
class State(NamedTuple):
    """The state of an approximate large margin algorithm.

    Attributes:
      squared_norm: `||sum_j u_j phi(x_j)||^2` of the stored coefficients.
      alpha: sets how close the margin comes to the largest one.
      num_updates: rounds that changed the model, k - 1.
    """

    algorithm: Name
    kernel: Kernel
    expansion: Expansion
    maintenance: Maintenance
    squared_norm: Scalar
    alpha: Scalar
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter


@names_errors("alma.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    alpha: ArrayLike = 0.9,
    maintenance: Maintenance | None = None,
    seed: ArrayLike = 0,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
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

    Cost: O(B (d + C)) per example; an update adds the cost of the maintenance and two
    to four kernel rows.

    Args:
      kernel: a kernel with :math:`k(x, x) = 1`: stationary, such as `RBF`, or
        `Normalized` of any kernel.
      alpha: above 0, at most 1: without a budget the margin reaches :math:`\alpha`
        times the largest; 1 updates on mistakes only.

    Example:
      >>> state = bj.alma.init(bj.RBF(gamma=1.0), num_features=2, budget=10)
      >>> state = bj.alma.step(state, jnp.array([1.0, 2.0]), -1)
      >>> round(float(bj.support(state).coefficients[0, 0]), 4)
      -1.0

    References:
      Gentile (2001), "A new approximate maximal margin classification algorithm", JMLR
      2, ALMA_p with p = 2, and Theorem 3 for B and C.
      https://www.jmlr.org/papers/volume2/gentile01a/gentile01a.pdf

    Differences from the paper: the budget, and more than two classes.
    """
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields("alma", kernel, *sizes)
    if not (kernel.stationary or isinstance(kernel, Normalized)):
        raise ArgumentError(
            "kernel",
            "have k(x, x) = 1, as Normalized(kernel) has",
            type(kernel).__name__,
        )
    near = _checks.as_leaf("alpha", alpha, dtype, _checks.positive)
    known = _checks.concrete(near)
    if known is not None and known > 1:
        raise ArgumentError("alpha", "be at most 1", known)
    return State(
        **shared,
        maintenance=init_maintenance(maintenance, shared, seed),
        squared_norm=jnp.zeros((), dtype),
        alpha=near,
    )


def _root(state: State) -> Scalar:
    """`sqrt(k)`, with k - 1 updates so far."""
    wide = np.promote_types(state.alpha.dtype, np.float32)
    return jnp.sqrt(state.num_updates.real(wide) + 1).astype(state.alpha.dtype)


def _length(columns: int) -> float:
    """The norm of an example for the vector of all classes."""
    return 1.0 if columns == 1 else math.sqrt(2)


def _threshold(state: State) -> Scalar:
    """The margin up to which an example changes the model."""
    gamma = THRESHOLD / (state.alpha * _root(state))
    return (1 - state.alpha) * gamma * _length(state.expansion.num_columns)


def violates(state: State, score: Score, y: Label) -> Flag:
    """True if the margin is at most `(1 - alpha) gamma_k`."""
    return losses.margin(score, y) <= _threshold(state)


def update(
    state: State, score: Score, y: Label, candidate: Candidate
) -> tuple[State, Edits]:
    """The example enters, the strategy makes room, the ball bounds the model."""
    expansion = state.expansion
    eta = STEP / (_root(state) * _length(score.shape[0]))
    direction = eta * losses.margin_subgradient(score, y)
    gain = _length(score.shape[0]) ** 2 * eta * candidate.kernel_self
    missing = _threshold(state) - losses.margin(score, y)
    steps = importance.repeats(candidate.weight, missing, gain)
    candidate = candidate._replace(coefficients=steps * direction / expansion.scale)
    maintenance, edits = state.maintenance.insert(state.kernel, expansion, candidate)
    edits, squared_norm, _, factor = project_onto_ball(
        state.kernel, expansion, state.squared_norm, edits, 1.0
    )
    maintenance = maintenance.rescale(factor)
    return state._replace(maintenance=maintenance, squared_norm=squared_norm), edits


alma = Algorithm(
    "alma",
    init,
    violates,
    update,
    refresh_caches=refresh_squared_norm,
    no_update_above=lambda state: math.nextafter(float(_threshold(state)), math.inf),
)
