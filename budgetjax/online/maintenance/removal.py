"""Maintenance by removal: one support vector leaves when another enters."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from budgetjax import losses, support_set
from budgetjax.online.maintenance.strategy import Maintenance
from budgetjax.support_set import NOWHERE


class Unbudgeted(Maintenance):
    """No maintenance: a full model refuses newcomers, and counts what it refused.

    With a budget as long as the stream it is the learner without a budget, whose time
    grows with the square of the rows: every example is scored by the whole capacity.
    `bj.run` raises an `OverflowError` if examples were refused; `step` only counts.

    Example:
      >>> import budgetjax as bj
      >>> X, y = bj.datasets.checkerboard(500, seed=0)
      >>> state = bj.pegasos.init(
      ...     bj.RBF(8.0), num_features=2, budget=500, maintenance=bj.Unbudgeted())
      >>> state, _ = bj.run(bj.pegasos, state, X, y)
      >>> int(state.expansion.num_active) == int(state.num_updates)
      True

    Attributes:
      num_refused: examples that should have entered and could not.
    """

    num_refused: Integer[Array, ""] | int = 0

    def start(self, kernel, expansion, seed):
        return Unbudgeted(jnp.zeros((), jnp.int32))

    def admit(self, kernel, expansion, newcomer):
        refused = self.num_refused + expansion.full.astype(jnp.int32)
        nowhere = jnp.asarray(NOWHERE, jnp.int32)
        return Unbudgeted(refused), self.exchange(expansion, newcomer, nowhere)


class RemoveOldest(Maintenance):
    """The oldest support vector leaves. O(B)."""

    def admit(self, kernel, expansion, newcomer):
        victim = support_set.oldest(expansion)
        return self, self.exchange(expansion, newcomer, victim)


class RemoveRandom(Maintenance):
    """A uniformly random support vector leaves, never the newcomer. O(1).

    The draw of round `t` depends on the seed and `t` alone.

    Reference: Cesa-Bianchi and Gentile (2006), "Tracking the best hyperplane with a
    simple budget Perceptron". https://doi.org/10.1007/s10994-007-5003-0

    Attributes:
      seed: set by `init(..., seed=)`.
    """

    seed: Integer[Array, ""] | int = 0

    def start(self, kernel, expansion, seed):
        return RemoveRandom(jnp.array(seed, jnp.int32))

    def admit(self, kernel, expansion, newcomer):
        key = jax.random.fold_in(jax.random.key(self.seed), newcomer.age)
        victim = jax.random.randint(key, (), 0, expansion.num_active, jnp.int32)
        return self, self.exchange(expansion, newcomer, victim)


class RemoveSmallest(Maintenance):
    """The vector of smallest norm `||a_j||^2 k(x_j, x_j)` leaves. O(B C).

    The newcomer is a candidate too. Under Pegasos and a Gaussian kernel all norms are
    equal, and this is `RemoveOldest`.
    """

    def admit(self, kernel, expansion, newcomer):
        norms = support_set.norms(kernel, expansion)
        own = jnp.sum(newcomer.coefficients**2) * newcomer.kernel_self
        smallest = support_set.oldest_least(expansion.ages, norms)
        victim = jnp.where(own < jnp.min(norms), NOWHERE, smallest)
        return self, self.exchange(expansion, newcomer, victim)


class RemoveLargestMargin(Maintenance):
    """The vector that would be classified best without itself leaves. O(B d + B C).

    `argmax_i y_i (f(x_i) - a_i k(x_i, x_i))` over all support vectors and the newcomer
    leaves. With more than two classes the margin is `f^(y) - f^(r)`, as everywhere
    here. The label of a support vector is the column of its largest coefficient, or its
    sign.

    `f` at every support vector is kept up to date: one kernel row an insertion, which
    is the example's own, and one a removal.

    Reference: Crammer, Kandola and Singer (2003), "Online classification on a budget",
    in https://papers.nips.cc/paper_files/paper/2003

    Attributes:
      responses: `sum_i u_i k(x_i, x_j)`, unscaled, shape `(rows, columns)`.
    """

    responses: Any = ()

    def start(self, kernel, expansion, seed):
        gram = support_set.gram(kernel, expansion)
        return RemoveLargestMargin(
            jnp.matmul(gram, expansion.coefficients, precision="highest")
        )

    def admit(self, kernel, expansion, newcomer):
        entering = newcomer.kernel_row[:, None] * newcomer.coefficients[None]
        responses = self.responses + entering
        own_response = (
            jnp.matmul(newcomer.kernel_row, expansion.coefficients, precision="highest")
            + newcomer.kernel_self * newcomer.coefficients
        )

        selves = kernel.diag(expansion.vectors, expansion.squares)
        margins = jax.vmap(_margin_without)(responses, expansion.coefficients, selves)
        margins = jnp.where(expansion.mask, margins, -jnp.inf)
        own_margin = _margin_without(
            own_response, newcomer.coefficients, newcomer.kernel_self
        )
        largest = support_set.oldest_least(expansion.ages, -margins)
        victim = jnp.where(own_margin > jnp.max(margins), NOWHERE, largest)
        edits = self.exchange(expansion, newcomer, victim)
        slot = edits.rows[0].slot

        leaving = jnp.maximum(slot, 0)
        kernel_row = support_set.kernel_rows(
            kernel,
            expansion,
            expansion.vectors[leaving][None],
            expansion.squares[leaving][None],
        )[0]
        gone = expansion.coefficients[leaving]  # zero, if the slot was free
        remaining = responses - kernel_row[:, None] * gone[None]
        own = own_response - newcomer.kernel_row[leaving] * gone
        remaining = jax.lax.dynamic_update_index_in_dim(remaining, own, leaving, 0)
        responses = jnp.where(slot == NOWHERE, self.responses, remaining)
        return RemoveLargestMargin(responses), edits

    def rescale(self, factor):
        return RemoveLargestMargin(self.responses * factor)


def _margin_without(
    response: Float[Array, " columns"],
    coefficients: Float[Array, " columns"],
    kernel_self: Float[Array, ""],
) -> Float[Array, ""]:
    """The margin of a support vector once its own term is gone."""
    if coefficients.shape[0] == 1:
        label = jnp.sign(coefficients[0])
    else:
        label = jnp.argmax(coefficients).astype(jnp.int32)
    return losses.margin(response - coefficients * kernel_self, label)
