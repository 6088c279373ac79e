"""Maintenance: who leaves, or is merged, when the budget is full.

A strategy is a `NamedTuple`; what it must remember is its leaves. It has

  `start(kernel, expansion, seed)`, the strategy as a part of a new state;
  `admit(kernel, expansion, newcomer)`, the strategy after the newcomer's entry and the
    rows of the support set to write;
  `rescale(factor)`, the strategy after all coefficients were multiplied by `factor`.

All ties go to the oldest support vector.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Integer

from budgetjax import expansion as support_set
from budgetjax import hyperparameters, losses, merging
from budgetjax.expansion import NOWHERE, Expansion, Newcomer, Row
from budgetjax.hyperparameters import Flag
from budgetjax.kernels import RBF, Kernel


@runtime_checkable
class Maintenance(Protocol):
    """What a learner asks of a strategy."""

    def start(
        self, kernel: Kernel, expansion: Expansion, seed: ArrayLike
    ) -> "Maintenance": ...

    def admit(
        self, kernel: Kernel, expansion: Expansion, newcomer: Newcomer
    ) -> tuple["Maintenance", tuple[Row, ...]]: ...

    def rescale(self, factor: Float[Array, ""]) -> "Maintenance": ...


def started(
    where: str,
    strategy: Maintenance,
    kernel: Kernel,
    expansion: Expansion,
    seed: ArrayLike,
) -> Maintenance:
    """The strategy as a part of a new state; errors name `where`."""
    if isinstance(strategy, type) or not isinstance(strategy, Maintenance):
        raise ValueError(
            f"{where}: maintenance must be a strategy such as RemoveOldest(), got "
            f"{strategy!r}"
        )
    return strategy.start(
        kernel, expansion, hyperparameters.scalar_integer(where, "seed", seed)
    )


def _take_place(
    expansion: Expansion, newcomer: Newcomer, victim: Integer[Array, ""]
) -> tuple[Row, ...]:
    """The newcomer in a free slot if there is one, else in the victim's."""
    slot = jnp.where(expansion.full, victim, expansion.num_active)
    return (support_set.row(newcomer, slot),)


class Unbudgeted(NamedTuple):
    """No maintenance: a full model refuses newcomers, and counts what it refused.

    Attributes:
      num_refused: examples that should have entered and could not.
    """

    num_refused: Integer[Array, ""] | int = 0

    def start(self, kernel, expansion, seed):
        return Unbudgeted(jnp.zeros((), jnp.int32))

    def admit(self, kernel, expansion, newcomer):
        refused = self.num_refused + expansion.full.astype(jnp.int32)
        nowhere = jnp.asarray(NOWHERE, jnp.int32)
        return Unbudgeted(refused), _take_place(expansion, newcomer, nowhere)

    def rescale(self, factor):
        return self


class RemoveOldest(NamedTuple):
    """The oldest support vector leaves. O(B)."""

    def start(self, kernel, expansion, seed):
        return self

    def admit(self, kernel, expansion, newcomer):
        victim = support_set.oldest(expansion)
        return self, _take_place(expansion, newcomer, victim)

    def rescale(self, factor):
        return self


class RemoveRandom(NamedTuple):
    """A uniformly random support vector leaves, never the newcomer. O(1).

    Cesa-Bianchi and Gentile (2006), "Tracking the best hyperplane with a simple budget
    Perceptron". The draw of round `t` depends on the seed and `t` alone.

    Attributes:
      seed: set by `init(..., seed=)`.
    """

    seed: Integer[Array, ""] | int = 0

    def start(self, kernel, expansion, seed):
        return RemoveRandom(jnp.asarray(seed, jnp.int32))

    def admit(self, kernel, expansion, newcomer):
        key = jax.random.fold_in(jax.random.key(self.seed), newcomer.age)
        victim = jax.random.randint(key, (), 0, expansion.num_active, jnp.int32)
        return self, _take_place(expansion, newcomer, victim)

    def rescale(self, factor):
        return self


class RemoveSmallest(NamedTuple):
    """The vector of smallest norm `||a_j||^2 k(x_j, x_j)` leaves. O(B C).

    The newcomer is a candidate too. Under Pegasos and a Gaussian kernel all norms are
    equal, and this is `RemoveOldest`.
    """

    def start(self, kernel, expansion, seed):
        return self

    def admit(self, kernel, expansion, newcomer):
        norms = support_set.norms(kernel, expansion)
        own = jnp.sum(newcomer.coefficients**2) * newcomer.kernel_self
        smallest = support_set.oldest_least(expansion, norms)
        victim = jnp.where(own < jnp.min(norms), NOWHERE, smallest)
        return self, _take_place(expansion, newcomer, victim)

    def rescale(self, factor):
        return self


class RemoveLargestMargin(NamedTuple):
    """The vector that would be classified best without itself leaves. O(B d + B C).

    `argmax_i y_i (f(x_i) - a_i k(x_i, x_i))` over all support vectors and the newcomer:
    Crammer, Kandola and Singer (2003), "Online classification on a budget". With more
    than two classes the margin is `f^(y) - f^(r)`, as everywhere here. The label of a
    support vector is the column of its largest coefficient, or its sign.

    `f` at every support vector is kept up to date: one kernel row an insertion, which
    is the example's own, and one a removal.

    Attributes:
      responses: `sum_i u_i k(x_i, x_j)`, unscaled, shape `(rows, columns)`.
    """

    responses: Any = ()

    def start(self, kernel, expansion, seed):
        return RemoveLargestMargin(jnp.zeros_like(expansion.coefficients))

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
        largest = support_set.oldest_least(expansion, -margins)
        victim = jnp.where(own_margin > jnp.max(margins), NOWHERE, largest)
        rows = _take_place(expansion, newcomer, victim)
        slot = rows[0].slot

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
        return RemoveLargestMargin(responses), rows

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


class Merge(NamedTuple("Merge", [("same_sign", Flag)])):
    r"""The smallest vector `m` and the best partner `n` become one. O(B d + B C).

    For a Gaussian kernel the best single replacement of `a_m phi(x_m) + a_n phi(x_n)`
    lies on the line between the two: with `kappa = k(x_m, x_n)`,

      `z = h x_m + (1 - h) x_n`, `a_z = a_m kappa^((1-h)^2) + a_n kappa^(h^2)`,

    where `h` in `[0, 1]` maximises `||a_z||^2`. What is lost is
    `||a_m||^2 + ||a_n||^2 + 2 <a_m, a_n> kappa - ||a_z||^2`, and the partner of least
    loss is taken. `m` has the smallest norm of all, the newcomer included; `z` takes
    the insertion age of its partner.

    Reference: Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget",
    section 4.3, equations (17) to (22).

    Differences from the paper: in the binary case only vectors of the same sign are
    merged, unless there is none.

    Args:
      same_sign: with one column of coefficients, merge vectors of the same sign only.
        Without effect in the multi-class case.
    """

    __slots__ = ()

    def __new__(cls, same_sign: bool | Flag = True):
        return super().__new__(
            cls, hyperparameters.flag("Merge", "same_sign", same_sign)
        )

    def start(self, kernel, expansion, seed):
        if not isinstance(kernel, RBF):
            raise ValueError(
                "Merge: kernel must be Gaussian (RBF), because only there the merged "
                f"vector lies between the two, got {type(kernel).__name__}"
            )
        return self

    def admit(self, kernel, expansion, newcomer):
        # Computed while there is room too, and not used then: a full model stays full,
        # and a branch would cost every later call more.
        full = expansion.full
        merged, entering = self._merge(kernel, expansion, newcomer)
        return self, (
            merged._replace(slot=jnp.where(full, merged.slot, NOWHERE)),
            entering._replace(
                slot=jnp.where(full, entering.slot, expansion.num_active)
            ),
        )

    def rescale(self, factor):
        return self

    def _merge(
        self, kernel: Kernel, expansion: Expansion, newcomer: Newcomer
    ) -> tuple[Row, ...]:
        lengths = jnp.sum(expansion.coefficients**2, axis=1)
        own_length = jnp.sum(newcomer.coefficients**2)
        lengths = jnp.where(expansion.mask, lengths, jnp.inf)

        # m, the smallest of all. From here on the newcomer stands in m's slot, so that
        # the partners are the slots; if the newcomer is m, they are as they were.
        slot = support_set.oldest_least(expansion, lengths)
        newcomer_stays = own_length >= jnp.min(lengths)
        m_vector = jnp.where(newcomer_stays, expansion.vectors[slot], newcomer.vector)
        m_square = jnp.where(newcomer_stays, expansion.squares[slot], newcomer.square)
        m = jnp.where(
            newcomer_stays, expansion.coefficients[slot], newcomer.coefficients
        )
        slots = jnp.arange(lengths.shape[0], dtype=jnp.int32)
        stands_in = newcomer_stays & (slots == slot)

        def partners(stored, of_newcomer):
            return jnp.where(stands_in, of_newcomer, stored)

        kernel_row = support_set.kernel_rows(
            kernel, expansion, m_vector[None], m_square[None]
        )[0]
        kappa = partners(kernel_row, newcomer.kernel_row[slot])
        products = partners(
            jnp.matmul(expansion.coefficients, m, precision="highest"),
            jnp.dot(newcomer.coefficients, m, precision="highest"),
        )
        ages = partners(expansion.ages, newcomer.age)
        lengths = partners(lengths, own_length)
        m_length = jnp.dot(m, m, precision="highest")

        lengths = jnp.where(expansion.mask, lengths, 0)
        decay = -jnp.log(jnp.maximum(kappa, jnp.finfo(kappa.dtype).tiny))
        guess = merging.guess(m_length, lengths, products, decay)
        loss = merging.loss(m_length, lengths, products, decay, guess)
        if self.same_sign and m.shape[0] == 1:
            # A loss is at most ||a_m||^2, so this puts other signs behind equal ones.
            loss = jnp.where(products > 0, loss, loss + 2 * m_length)
        n_slot = support_set.oldest_least(
            expansion._replace(ages=ages), jnp.where(expansion.mask, loss, jnp.inf)
        )

        joins = newcomer_stays & (n_slot == slot)
        n_vector = jnp.where(joins, newcomer.vector, expansion.vectors[n_slot])
        n = jnp.where(joins, newcomer.coefficients, expansion.coefficients[n_slot])
        decay = decay[n_slot]
        h = merging.position(
            m_length, lengths[n_slot], products[n_slot], decay, guess[n_slot]
        )
        z = h * m_vector + (1 - h) * n_vector
        a_z = m * jnp.exp(-decay * (1 - h) ** 2) + n * jnp.exp(-decay * h**2)
        z_square = jnp.dot(z, z, precision="highest")
        newcomer_slot = jnp.where(newcomer_stays & ~joins, slot, NOWHERE)
        return (
            Row(n_slot, z, z_square, a_z, ages[n_slot]),
            support_set.row(newcomer, newcomer_slot),
        )
