"""Maintenance by projection: the other vectors take up the term of the leaving one."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._record import static
from budgetjax.online import span, support_set
from budgetjax.online.edits import (
    Edits,
    RankOneUpdate,
    candidate_term,
    entering_row,
    stored_term,
)
from budgetjax.online.maintenance.strategy import Maintenance
from budgetjax.online.slots import FREE, NOWHERE, oldest_argmin, set_row_and_column
from budgetjax.online.span import RIDGE

__all__ = ["DelayedProject", "Project", "ProjectOntoCandidate", "ProjectOntoNearest"]


class Project(Maintenance):
    r"""One vector leaves, projected onto the span of all others. O(B^2 + B C).

    With the leaving vector `p` and the kernel matrix `K` of the others, their
    coefficients change by `K^-1 k_p a_p`, which stays closest to the old model. `p` has
    the smallest norm `||a_p||^2 k(x_p, x_p)` of all vectors, including the candidate.
    With `best`, it has the smallest projection loss,
    `||a_p||^2 (k_pp - k_p^T K^-1 k_p)`, at the same cost.

    `K` has a ridge of 0.001 of its diagonal. See `budgetjax/online/span.py` for how its
    inverse is kept across rounds and stays accurate in float32.

    Reference: Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget",
    section 4.2, equations (15) to (17); see
    https://jmlr.org/papers/volume13/wang12b/wang12b.pdf With `best` and the learner
    `PassiveAggressive`, it is BPA-P of Wang and Vucetic (2010), "Online
    passive-aggressive algorithms on a budget".
    https://proceedings.mlr.press/v9/wang10b/wang10b.pdf

    Differences from the paper: the ridge.

    Args:
      best: remove the vector with the smallest projection loss, not the smallest norm.
      span: the span of the support vectors; set by `init`.

    Example:
      >>> state = bj.Pegasos().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.Project(best=True))
    """

    inverts: ClassVar[bool] = True
    best: bool = static(default=False, check=_checks.flag)
    span: Any = ()

    def start(self, kernel, expansion, seed):
        super().start(kernel, expansion, seed)
        return Project(self.best, span.from_vectors(kernel, expansion))

    def insert(self, kernel, expansion, candidate):
        full, mask = expansion.full, expansion.mask
        own_term = candidate_term(expansion, candidate)
        kernel_row = jnp.where(mask, candidate.kernel_row, 0)
        solution = span.solve(self.span, kernel_row)
        inside = jnp.dot(kernel_row, solution, precision="highest")
        beyond = span.squared_residual(candidate.kernel_self, inside)
        # The diagonal of the inverse of the bordered matrix, which has the candidate.
        if self.best:
            lengths = jnp.sum(expansion.coefficients**2, axis=1)
            pivots = jnp.sum(self.span.root**2, axis=0) + solution**2 / beyond
            costs = jnp.where(mask, lengths / jnp.where(mask, pivots, 1), jnp.inf)
            own_cost = jnp.sum(candidate.coefficients**2) * beyond
        else:
            costs = support_set.norms(kernel, expansion)
            own_cost = jnp.sum(candidate.coefficients**2) * candidate.kernel_self
        smallest = oldest_argmin(expansion.ages, costs)
        stays = own_cost >= costs[smallest]
        place = jnp.where(full, smallest, expansion.free)
        slot = jnp.where(stays | ~full, place, NOWHERE)
        taken = mask[place] & (slot != NOWHERE)
        # Read before the matrix is written, or the compiler copies it.
        known, basis = jax.lax.optimization_barrier((self.span.gram[place], self.span))
        new = span.plan_swap(
            basis, slot, taken, solution, kernel_row, candidate.kernel_self
        )
        here = jnp.arange(mask.shape[0], dtype=jnp.int32) == slot
        target = jnp.where(here, candidate.kernel_row[place], known)
        shares = span.projection_of_removed(new)
        shares = jnp.where(stays, shares, solution)
        target = jnp.where(stays, target, kernel_row)

        after = mask | here
        changed = span.swap(basis, new, expansion.num_active)
        shares = jnp.where(after, shares, 0)
        shares = span.refine(changed, jnp.where(after, target, 0), shares, after)
        shares = jnp.where(after & full, shares, 0)
        left = jnp.where(stays, stored_term(expansion, place), own_term)
        share = jnp.sum(jnp.where(here, shares, 0))
        row = entering_row(expansion, candidate, slot)
        row = row._replace(term=own_term + share * left)
        spread = RankOneUpdate(jnp.where(here, 0, shares), left)
        return Project(self.best, changed), Edits((row,), (spread,))


def _check_share(name: str, value: float) -> None:
    _checks.open_unit_interval(name, value)
    if not np.isscalar(value):
        raise ArgumentError(
            name, "be a Python number, because it is static", f"{value!r}"
        )


class DelayedProject(Maintenance):
    r"""Several vectors leave at once, projected onto all others. O(B^2 + B C).

    The smallest vectors `S` leave, and all others, `R`, take up their terms: the
    coefficients of `R` change by `K_RR^-1 K_RS a_S`, which stays closest to the old
    model. `K_RR` has a ridge of 0.001 of its diagonal. The next candidates find a free
    slot. One factorisation of the kernel matrix, O(B^3 + B^2 d), serves all of them,
    and nothing is updated in between: a candidate costs a quarter of the time of
    `Project` with 500 vectors, and the same time with 100.

    References: Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget",
    section 4.2; see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf For
    projections that wait for several candidates: Abedsoltan, Ma, Pandit and Belkin
    (2024), "Fast training of large kernel models with delayed projections".
    https://arxiv.org/abs/2411.16658

    Differences from the papers: the first paper projects one vector per round, possibly
    the candidate; in the second the candidates leave, since its centres are fixed.

    Args:
      share: the fraction of the budget that leaves at once, above 0 and below 1. At
        least one vector leaves, and at least one of two or more stays.

    Example:
      >>> state = bj.Pegasos().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.DelayedProject(share=0.25))
    """

    inverts: ClassVar[bool] = True
    share: float = static(default=1 / 8, check=_check_share)

    def insert(self, kernel, expansion, candidate):
        return self, Edits((entering_row(expansion, candidate, expansion.free),))

    def make_room(self, kernel, expansion):
        spare = expansion.ages.shape[0] - 1
        # `top_k` takes the first of equal values, here the oldest.
        by_age = jax.lax.top_k(-expansion.ages, spare)[1]
        norms = support_set.norms(kernel, expansion)[by_age]
        most = max(1, min(round(self.share * spare), spare - 1))
        smallest = by_age[jax.lax.top_k(-norms, most)[1]]
        part = jnp.round(self.share * expansion.budget.astype(jnp.float32))
        count = jnp.maximum(
            jnp.minimum(part.astype(jnp.int32), expansion.budget - 1), 1
        )
        leave = jnp.arange(most, dtype=jnp.int32) < count
        stay = expansion.mask.at[jnp.where(leave, smallest, spare)].set(False)

        gram = support_set.gram(kernel, expansion)
        _, factor = span.factorise(gram, stay)
        responses = jnp.where(stay[:, None], gram[:, smallest], 0)
        shares = jax.scipy.linalg.cho_solve((factor, True), responses)
        terms = jnp.where(leave[:, None], expansion.coefficients_and_sums[smallest], 0)
        received = jnp.matmul(shares, terms, precision="highest")
        terms = expansion.coefficients_and_sums + received
        return expansion._replace(
            vectors=jnp.where(stay[:, None], expansion.vectors, 0),
            squares=jnp.where(stay, expansion.squares, 0),
            coefficients_and_sums=jnp.where(stay[:, None], terms, 0),
            ages=jnp.where(stay, expansion.ages, FREE),
            num_active=jnp.sum(stay, dtype=jnp.int32),
        )


class ProjectOntoCandidate(Maintenance):
    r"""One vector leaves, projected onto the candidate alone. O(B + B C).

    The vector with the smallest projection loss, `||a_r||^2 (k_rr - k_rt^2 / k_tt)`,
    leaves; `a_r k_rt / k_tt` is added to the candidate's coefficients. The candidate
    always enters.

    With the learner `PassiveAggressive` this is BPA-S: it minimises
    `1/2 ||w - w_t||^2 + C loss` over all models that lack one vector `r` and differ
    from the old one only in the candidate's coefficients. The residual of a projection
    onto a span that contains `x_t` is orthogonal to `phi(x_t)`, so the loss, and with
    it the step of the learner, is the same for every `r`, and joint and separate
    optimisation agree.

    Reference: Wang and Vucetic (2010), "Online passive-aggressive algorithms on a
    budget", section 4.1. https://proceedings.mlr.press/v9/wang10b/wang10b.pdf

    Example:
      >>> state = bj.PassiveAggressive().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.ProjectOntoCandidate())
    """

    def insert(self, kernel, expansion, candidate):
        full = expansion.full
        own_self = jnp.where(candidate.kernel_self > 0, candidate.kernel_self, 1)
        shares = candidate.kernel_row / own_self
        selves = kernel.diag(expansion.vectors, expansion.squares)
        lengths = jnp.sum(expansion.coefficients**2, axis=1)
        costs = lengths * jnp.maximum(selves - shares * candidate.kernel_row, 0)
        costs = jnp.where(expansion.mask, costs, jnp.inf)
        victim = oldest_argmin(expansion.ages, costs)
        share = jnp.where(full, shares[victim], 0)
        slot = jnp.where(full, victim, expansion.free)
        row = entering_row(expansion, candidate, slot)
        term = row.term + share * stored_term(expansion, victim)
        return self, Edits((row._replace(term=term),))


class ProjectOntoNearest(Maintenance):
    r"""One vector leaves, projected onto the candidate and its nearest vector. O(B^2).

    As in `ProjectOntoCandidate`, but two vectors take up the term of `r`: the candidate
    and the support vector nearest to `r` in feature space. With the learner
    `PassiveAggressive` this is BPA-NN.

    The kernel matrix of the support vectors is kept up to date. The 2 x 2 systems have
    a ridge of 0.001 of their diagonal.

    Reference: Wang and Vucetic (2010), "Online passive-aggressive algorithms on a
    budget", section 4.3. https://proceedings.mlr.press/v9/wang10b/wang10b.pdf

    Attributes:
      gram: `k(x_i, x_j)`, shape `(rows, rows)`; set by `init`.

    Example:
      >>> state = bj.PassiveAggressive().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.ProjectOntoNearest())
    """

    gram: Any = ()

    def start(self, kernel, expansion, seed):
        return ProjectOntoNearest(support_set.gram(kernel, expansion))

    def insert(self, kernel, expansion, candidate):
        full, mask = expansion.full, expansion.mask
        selves = jnp.diagonal(self.gram)
        # ||phi_r - phi_n||^2 without k_rr.
        slots = jnp.arange(mask.shape[0], dtype=jnp.int32)
        others = (slots[:, None] != slots[None]) & mask[None]
        distances = jnp.where(others, selves[None] - 2 * self.gram, jnp.inf)
        n = jax.vmap(oldest_argmin, (None, 0))(expansion.ages, distances)
        alone = expansion.num_active < 2

        # The kernel matrix [a, b; b, c] of candidate and neighbour, with its ridge.
        k_rt, k_nt = candidate.kernel_row, candidate.kernel_row[n]
        k_rn = jnp.take_along_axis(self.gram, n[:, None], axis=1)[:, 0]
        k_rn, k_nt = (jnp.where(alone, 0, row) for row in (k_rn, k_nt))
        tiny = jnp.finfo(selves.dtype).tiny
        a = jnp.maximum((1 + RIDGE) * candidate.kernel_self, tiny)
        c = jnp.maximum((1 + RIDGE) * selves[n], tiny)
        c = jnp.where(alone, 1, c)
        determinant = a * c - k_nt * k_nt
        determinant = jnp.where(determinant > 0, determinant, jnp.inf)
        to_candidate = (c * k_rt - k_nt * k_rn) / determinant
        to_nearest = (a * k_rn - k_nt * k_rt) / determinant
        distances = selves - to_candidate * k_rt - to_nearest * k_rn
        lengths = jnp.sum(expansion.coefficients**2, axis=1)
        costs = jnp.where(mask, lengths * jnp.maximum(distances, 0), jnp.inf)
        victim = oldest_argmin(expansion.ages, costs)

        slot = jnp.where(full, victim, expansion.free)
        leaving = stored_term(expansion, victim)
        row = entering_row(expansion, candidate, slot)
        share = jnp.where(full, to_candidate[victim], 0)
        row = row._replace(term=row.term + share * leaving)
        share = jnp.where(full, to_nearest[victim], 0)
        spread = RankOneUpdate(jnp.where(slots == n[victim], share, 0), leaving)
        gram = set_row_and_column(
            self.gram, slot, candidate.kernel_row, candidate.kernel_self
        )
        return ProjectOntoNearest(gram), Edits((row,), (spread,))
