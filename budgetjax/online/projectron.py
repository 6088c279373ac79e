"""The Projectron and Projectron++; see `init`."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _checks, _pytree, losses
from budgetjax._errors import names_errors
from budgetjax._pytree import Counter, Name, Static
from budgetjax._shapes import Flag, Label, Scalar, Score
from budgetjax.kernels import Kernel
from budgetjax.online import span, support_set
from budgetjax.online.algorithm import Algorithm, init_fields
from budgetjax.online.span import Span
from budgetjax.online.support_set import NOWHERE, Candidate, Edits, RankOneUpdate


class State(NamedTuple):
    """The state of a Projectron.

    Attributes:
      span: the span of the support vectors.
      threshold: eta, the distance up to which an example is projected.
      margin_updates: whether it is a Projectron++.
      num_updates: mistakes, or rounds whose margin was below 1 with margin updates.
    """

    algorithm: Name
    kernel: Kernel
    expansion: support_set.Expansion
    span: Span
    threshold: Scalar
    margin_updates: Static
    num_seen: Counter
    num_mistakes: Counter
    num_updates: Counter

    __repr__ = _pytree.record_repr


@names_errors("projectron.init")
def init(
    kernel: Kernel,
    *,
    num_features: int,
    budget: ArrayLike,
    num_classes: int = 2,
    threshold: ArrayLike = 0.1,
    margin_updates: bool = False,
    capacity: int | None = None,
    dtype: DTypeLike = jnp.float32,
) -> State:
    r"""Projectron and Projectron++, which project mistakes onto the support vectors.

    Round t, with the kernel matrix K of the support vectors, :math:`k_t` the kernel row
    of :math:`x_t`, and the projection :math:`d = K^{-1} k_t` of :math:`\phi(x_t)` onto
    their span, and its distance :math:`\delta`:

    1. On a mistake, :math:`y_t f_t(x_t) \le 0`: if :math:`\delta \le \eta`
       (``threshold``), or the budget is full, the coefficients change by
       :math:`y_t d`; else :math:`x_t` enters with :math:`y_t`.
    2. With ``margin_updates`` (Projectron++), on :math:`0 < y_t f_t(x_t) < 1` with the
       loss :math:`\ell = 1 - y_t f_t(x_t)`: if :math:`\ell > \delta / \eta`, the
       coefficients change by :math:`y_t \tau d`, where :math:`\tau = \min(1,
       \ell / \nu, 2 (\ell - \delta / \eta) / \nu)` and :math:`\nu = k_t^T d`.

    With more classes the margin is :math:`f^{(y)} - f^{(r)}` with the best other class
    r, :math:`+d` and :math:`-d` go to columns y and r, and :math:`\nu` counts twice:
    all classes share the support vectors and the projection.

    Cost: O(B (d + C)) per example; a violation adds O(B^2 + B C).

    Args:
      kernel: any positive definite kernel.
      budget: B, the maximum number of support vectors; they never leave.
      threshold: eta, at least 0, in units of :math:`\sqrt{k(x, x)}`. With 0 the model
        is the Perceptron until the budget is full, and makes no margin updates.
      margin_updates: also learn from correct predictions whose margin is below 1.

    Example:
      >>> state = bj.projectron.init(bj.RBF(gamma=1.0), num_features=1, budget=10)
      >>> state = bj.projectron.step(state, jnp.array([0.0]), 1)
      >>> state = bj.projectron.step(state, jnp.array([0.01]), -1)
      >>> int(bj.support(state).mask.sum())  # the second is near the first
      1

    References:
      Orabona, Keshet and Caputo (2009), "Bounded kernel-based online learning",
      Algorithms 1 and 2. https://jmlr.org/papers/volume10/orabona09a/orabona09a.pdf

    Differences from the paper: the budget; and K has a ridge of 0.001 of its diagonal
    (see `budgetjax/online/span.py`), so :math:`\delta` is the distance to the
    regularized projection. It is larger than the exact distance, by about 0.001 for a
    duplicate.
    """
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = init_fields("projectron", kernel, *sizes)
    _checks.check_invertible_dtype(dtype)
    return State(
        **shared,
        span=span.empty(shared["expansion"].ages.shape[0], dtype),
        threshold=_checks.as_leaf("threshold", threshold, dtype, _checks.non_negative),
        margin_updates=Static(_checks.flag("margin_updates", margin_updates)),
    )


def violates(state: State, score: Score, y: Label) -> Flag:
    """True on a mistake, or, with margin updates, where the hinge loss is positive."""
    margin = losses.margin(score, y)
    return margin < 1 if state.margin_updates else margin <= 0


def update(
    state: State, score: Score, y: Label, candidate: Candidate
) -> tuple[State, Edits]:
    """Steps 1 and 2."""
    expansion, mask = state.expansion, state.expansion.mask
    kernel_row = jnp.where(mask, candidate.kernel_row, 0)
    d = span.solve(state.span, kernel_row)
    d = span.refine(state.span, kernel_row, d, mask)
    # || phi(x) - sum_j d_j phi(x_j) ||^2, where K itself has no ridge.
    inside = jnp.dot(kernel_row, d, precision="highest")
    selves = state.kernel.diag(expansion.vectors, expansion.squares)
    ridge = span.RIDGE * jnp.sum(jnp.where(mask, d * d * selves, 0))
    distance = jnp.sqrt(
        jnp.maximum(
            candidate.kernel_self - inside - ridge, jnp.finfo(inside.dtype).tiny
        )
    )
    direction = losses.margin_subgradient(score, y)
    margin = losses.margin(score, y)
    mistake = margin <= 0
    enters = mistake & (distance > state.threshold) & ~expansion.full

    tau = jnp.ones_like(margin)
    if state.margin_updates:
        columns = 1 if score.shape[0] == 1 else 2
        eta = jnp.where(state.threshold > 0, state.threshold, 1)
        beyond = (1 - margin) - distance / eta
        beyond = jnp.where(state.threshold > 0, beyond, -1)
        length = columns * jnp.maximum(inside, jnp.finfo(inside.dtype).tiny)
        small = jnp.minimum((1 - margin) / length, 2 * beyond / length)
        small = jnp.where(beyond > 0, jnp.minimum(small, 1), 0)
        tau = jnp.where(mistake, 1, small)

    slot = jnp.where(enters, expansion.num_active, NOWHERE)
    own = candidate.weight * direction
    row = support_set.row(expansion, candidate._replace(coefficients=own), slot)
    spread = RankOneUpdate(jnp.where(enters, 0, tau * d), own)

    def entered():
        removed = span.removed_direction(state.span, slot)
        kernel_self, count = candidate.kernel_self, expansion.num_active
        return span.replace(
            state.span, slot, removed, d, kernel_row, kernel_self, count
        )

    changed = jax.lax.cond(enters, entered, lambda: state.span)
    return state._replace(span=changed), Edits((row,), (spread,))


projectron = Algorithm(
    "projectron",
    init,
    violates,
    update,
    with_vectors=span.with_vectors,
    memory=("span",),
    no_update_above=lambda state: 1.0 if state.margin_updates else math.nextafter(0, 1),
)
