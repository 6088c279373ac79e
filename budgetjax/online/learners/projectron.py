"""The Projectron and Projectron++."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Integer

from budgetjax import _checks, _record, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import leaf, static
from budgetjax._shapes import Number, PerRow, Scalar, Score
from budgetjax.online import importance, span, support_set
from budgetjax.online.edits import Edits, RankOneUpdate, entering_row
from budgetjax.online.learner import Learner
from budgetjax.online.slots import NOWHERE, put
from budgetjax.online.span import Span
from budgetjax.online.state import State
from budgetjax.online.support_set import Candidate


@_record.record
class ProjectronMemory(NamedTuple):
    """What a Projectron remembers.

    Attributes:
      span: the span of the support vectors; with `same_class` of the pairs of a vector
        and a class of it, with rows `2 j` and `2 j + 1` for vector j.
      classes: with `same_class` the two classes of each vector, shape `(rows, 2)`: its
        own, and the one it was mistaken for. Otherwise None.
    """

    span: Span
    classes: Integer[Array, "rows two"] | None


class Projectron(Learner):
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
    all classes share the support vectors and the projection. With ``same_class`` they
    do not: a vector that enters belongs to classes y and r, column y receives the
    projection onto the vectors of y alone, column r that onto those of r;
    :math:`\delta` is the larger of the two distances, and :math:`\nu` the sum of both
    products. This is what the papers compare with; sharing is more accurate where the
    budget is small (`python benchmarks/runner.py papers/pegasos_table1`).

    The kernel may be any positive definite one. Support vectors never leave.

    Cost: O(B (d + C)) per example; a violation adds O(B^2 + B C). ``same_class`` takes
    four times the memory of a pair of vectors, and the time.

    Args:
      threshold: eta, at least 0, in units of :math:`\sqrt{k(x, x)}`. With 0 the model
        is the Perceptron until the budget is full, and makes no margin updates.
      margin_updates: also learn from correct predictions whose margin is below 1.
      same_class: project onto vectors of the same class only. Two classes share all
        vectors, so there must be more.

    Example:
      >>> state = bj.Projectron().init(bj.RBF(gamma=1.0), num_features=1, budget=10)
      >>> state = bj.step(state, jnp.array([0.0]), 1)
      >>> state = bj.step(state, jnp.array([0.01]), -1)
      >>> int(bj.support(state).mask.sum())  # the second is near the first
      1

    References:
      Orabona, Keshet and Caputo (2009), "Bounded kernel-based online learning",
      Algorithms 1 and 2. https://jmlr.org/papers/volume10/orabona09a/orabona09a.pdf
      Orabona (2009), "DOGMA: a MATLAB toolbox for online learning", for ``same_class``.
      https://dogma.sourceforge.net

    Differences from the paper: the budget; and K has a ridge of 0.001 of its diagonal
    (see `budgetjax/online/span.py`), so :math:`\delta` is the distance to the
    regularized projection. It is larger than the exact distance, by about 0.001 for a
    duplicate. DOGMA compares the threshold with squared distances, and with their mean
    in step 2.
    """

    takes = ("num_classes",)
    threshold: Number = leaf(_checks.non_negative, default=0.1)
    margin_updates: bool = static(default=False, check=_checks.flag)
    same_class: bool = static(default=False, check=_checks.flag)

    def bind(self, expansion, num_classes):
        _checks.check_invertible_dtype(expansion.vectors.dtype)
        if self.same_class and expansion.num_columns == 1:
            wanted = "be False for two classes, which share all vectors"
            raise ArgumentError("same_class", wanted, True)
        return super().bind(expansion, num_classes)

    def default_maintenance(self, kernel):
        return None

    def start(self, state, seed, vectors):
        rows = len(state.expansion.ages)
        basis = span.empty(rows, state.dtype, per_slot=2 if self.same_class else 1)
        classes = jnp.zeros((rows, 2), jnp.int32) if self.same_class else None
        return state._replace(memory=ProjectronMemory(basis, classes))

    def violates(self, state, score, y):
        """True on a mistake, or, with margin updates, where the loss is positive."""
        margin = losses.margin(score, y)
        return margin < 1 if self.margin_updates else margin <= 0

    def update(self, state, score, y, candidate):
        """Steps 1 and 2."""
        expansion, memory = state.expansion, state.memory
        direction = losses.margin_subgradient(score, y)
        margin = losses.margin(score, y)
        tiny = jnp.finfo(margin.dtype).tiny
        projections = _project(state, direction, candidate)
        squared_distance = functools.reduce(
            jnp.maximum, [each.squared_distance for each in projections]
        )
        distance = jnp.sqrt(jnp.maximum(squared_distance, tiny))
        mistake = margin <= 0
        enters = mistake & (distance > self.threshold) & ~expansion.full

        # Each of two columns counts, also if they share a projection.
        all_columns = 2 if score.shape[0] > 1 else 1
        columns = all_columns // len(projections)
        inside = sum(each.inside for each in projections)
        gain = jnp.where(enters, all_columns * candidate.kernel_self, columns * inside)
        steps = importance.repeats(candidate.weight, -margin, gain)
        if self.margin_updates:
            eta = jnp.where(self.threshold > 0, self.threshold, 1)
            beyond = (1 - margin) - distance / eta
            beyond = jnp.where(self.threshold > 0, beyond, -1)
            length = columns * jnp.maximum(inside, tiny)
            small = jnp.minimum((1 - margin) / length, 2 * beyond / length)
            small = jnp.where(beyond > 0, jnp.minimum(small, candidate.weight), 0)
            steps = jnp.where(mistake, steps, small)

        slot = jnp.where(enters, expansion.num_active, NOWHERE)
        own = candidate._replace(coefficients=steps * direction)
        row = entering_row(expansion, own, slot)
        per_slot = len(projections)
        spread = tuple(
            RankOneUpdate(
                jnp.where(enters, 0, each.d).reshape(-1, per_slot).sum(axis=1),
                steps * each.columns,
            )
            for each in projections
        )

        def entered():
            basis = memory.span
            for i, each in enumerate(projections):
                place = jnp.where(enters, per_slot * slot + i, NOWHERE)
                new = span.plan_swap(
                    basis,
                    place,
                    jnp.zeros((), bool),
                    each.d,
                    each.kernel_row,
                    candidate.kernel_self,
                )
                basis = span.swap(basis, new, per_slot * expansion.num_active)
            return basis

        changed = jax.lax.cond(enters, entered, lambda: memory.span)
        classes = memory.classes
        if classes is not None:
            two = jnp.stack([jnp.argmax(direction), jnp.argmin(direction)])
            two = jnp.where(enters, two.astype(classes.dtype), 0)
            classes = put(classes, slot, two)
        memory = ProjectronMemory(changed, classes)
        return state._replace(memory=memory), Edits((row,), spread)

    def with_vectors(self, state, vectors):
        """The vectors and their span."""
        memory = state.memory
        if memory.classes is None:
            return span.with_vectors(state, vectors)
        expansion = support_set.with_vectors(state.expansion, vectors)
        gram = support_set.gram(state.kernel, expansion)
        classes = jnp.ravel(memory.classes)
        same = classes[:, None] == classes[None]
        gram = jnp.where(same, jnp.repeat(jnp.repeat(gram, 2, axis=0), 2, axis=1), 0)
        mask = jnp.repeat(expansion.mask, 2)
        basis = span.reorthonormalise(memory.span.root, gram, mask)
        memory = memory._replace(span=basis)
        return state._replace(expansion=expansion, memory=memory)

    def no_update_above(self, state):
        return 1.0 if self.margin_updates else math.nextafter(0, 1)


class Projection(NamedTuple):
    """The projection that some columns of coefficients share.

    Attributes:
      columns: the margin's gradient in these columns, 0 in the others.
      kernel_row: `k(x_j, x)` for the vectors that it is onto, per row of the span.
      d: its coefficients, per row of the span.
      squared_distance: the squared distance of `phi(x)` from it.
      inside: its product with `phi(x)`, its squared length without a ridge.
    """

    columns: Score
    kernel_row: PerRow
    d: PerRow
    squared_distance: Scalar
    inside: Scalar


def _project(
    state: State, direction: Score, candidate: Candidate
) -> tuple[Projection, ...]:
    """The projection of the candidate, or with `same_class` one for each column."""
    expansion, memory = state.expansion, state.memory
    mask = expansion.mask
    kernel_row = jnp.where(mask, candidate.kernel_row, 0)
    selves = state.kernel.diag(expansion.vectors, expansion.squares)
    selves = jnp.where(mask, selves, 0)
    groups = [(mask, direction)]
    if memory.classes is not None:
        mask, kernel_row, selves = (
            jnp.repeat(each, 2) for each in (mask, kernel_row, selves)
        )
        signs = direction[jnp.ravel(memory.classes)]
        groups = [
            (mask & (signs == sign), jnp.where(direction == sign, direction, 0))
            for sign in (1, -1)
        ]
        # The kernel matrix is 0 between classes, so one solution serves both.
        mask = groups[0][0] | groups[1][0]
        kernel_row = jnp.where(mask, kernel_row, 0)
    d = span.solve(memory.span, kernel_row)
    d = span.refine(memory.span, kernel_row, d, mask)
    projections = []
    for group, columns in groups:
        own_row, own_d = jnp.where(group, kernel_row, 0), jnp.where(group, d, 0)
        # || phi(x) - sum_j d_j phi(x_j) ||^2, where K itself has no ridge.
        inside = jnp.dot(own_row, own_d, precision="highest")
        ridge = span.RIDGE * jnp.sum(own_d * own_d * selves)
        squared_distance = candidate.kernel_self - inside - ridge
        projections.append(
            Projection(columns, own_row, own_d, squared_distance, inside)
        )
    return tuple(projections)
