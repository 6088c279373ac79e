"""Maintenance by merging: two or more vectors of a Gaussian kernel become one."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import checks, support_set
from budgetjax.kernels import Kernel
from budgetjax.online.maintenance import merge_position
from budgetjax.online.maintenance.strategy import Maintenance
from budgetjax.online.span import crossed
from budgetjax.parameters import static
from budgetjax.support_set import FREE, NOWHERE, Edits, Expansion, Newcomer, Row


def _gaussian(name: str, kernel: Kernel) -> None:
    """Raises for a kernel under which a merged vector is not between the two."""
    if not kernel.gaussian:
        raise ValueError(
            f"{name}: kernel must be Gaussian (RBF), because only there the merged "
            f"vector lies between the two, got {type(kernel).__name__}"
        )


class Merge(Maintenance):
    r"""The smallest vector `m` and the best partner `n` become one. O(B d + B C).

    For a Gaussian kernel the best single replacement of `a_m phi(x_m) + a_n phi(x_n)`
    lies on the line between the two: with `kappa = k(x_m, x_n)`,

      `z = h x_m + (1 - h) x_n`, `a_z = a_m kappa^((1-h)^2) + a_n kappa^(h^2)`,

    where `h` in `[0, 1]` maximises `||a_z||^2`. What is lost is
    `||a_m||^2 + ||a_n||^2 + 2 <a_m, a_n> kappa - ||a_z||^2`, and the partner of least
    loss is taken. `m` has the smallest norm of all, the newcomer included; `z` takes
    the insertion age of its partner.

    Reference: Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget",
    section 4.3, equations (17) to (22); see
    https://jmlr.org/papers/volume13/wang12b/wang12b.pdf

    Differences from the paper: in the binary case only vectors of the same sign are
    merged, unless there is none. With more classes h is that of the least loss;
    equations (18) to (21) weigh all classes alike, whatever their coefficients, and
    lost 47 percent more in the mean of 2,000 random pairs
    (`python benchmarks/merging.py`).

    Args:
      same_sign: with one column of coefficients, merge vectors of the same sign only.
        Without effect in the multi-class case.
    """

    same_sign: bool = static(default=True)

    def __post_init__(self):
        checks.flag("Merge", "same_sign", self.same_sign)

    def start(self, kernel, expansion, seed):
        _gaussian("Merge", kernel)
        return self

    def admit(self, kernel, expansion, newcomer):
        # Computed while there is room too, and not used then: a full model stays full,
        # and a branch would cost every later call more.
        full = expansion.full
        smallest = _smallest(kernel, expansion, newcomer, self.same_sign)
        merged, joins = _merged(expansion, newcomer, smallest)
        slot = jnp.where(
            full,
            jnp.where(smallest.newcomer_stays & ~joins, smallest.slot, NOWHERE),
            expansion.free,
        )
        merged = merged._replace(slot=jnp.where(full, merged.slot, NOWHERE))
        return self, Edits((merged, support_set.row(expansion, newcomer, slot)))


class MultiMerge(Maintenance):
    """The smallest vector and its best partners become one. O(B d + B C) a merge.

    A merge of `count` vectors makes room for `count - 1` newcomers, so that most of
    them find a free slot and cost no maintenance. The first partner is that of `Merge`;
    each further one loses least with what has been merged so far.

    Reference: Qaadan and Glasmachers (2018), "Multi-merge budget maintenance for
    stochastic gradient descent SVM training", section 3.
    https://arxiv.org/abs/1806.10179

    Differences from the paper: there all partners are those of least loss with the
    smallest vector. Such a loss is at most the square of that vector's own norm, so the
    second best partner may be anywhere, and large: merged with the first it loses a
    multiple of that. On a checkerboard with 100 vectors and `count=3` that leaves 88 %
    of accuracy, this 96 %.

    Args:
      count: how many vectors become one, at least 2.
      same_sign: as for `Merge`.
    """

    count: int = static(default=3)
    same_sign: bool = static(default=True)

    def __post_init__(self):
        checks.size("MultiMerge", "count", self.count, at_least=2)
        checks.flag("MultiMerge", "same_sign", self.same_sign)

    def start(self, kernel, expansion, seed):
        _gaussian("MultiMerge", kernel)
        return self

    def admit(self, kernel, expansion, newcomer):
        def enter():
            nowhere = jnp.asarray(NOWHERE, jnp.int32)
            blank = support_set.freed(expansion, nowhere)
            own = support_set.row(expansion, newcomer, expansion.free)
            return Edits((*(blank for _ in range(self.count - 1)), own))

        # Merges are rare here, so a branch pays.
        edits = jax.lax.cond(
            expansion.full, lambda: self._merge(kernel, expansion, newcomer), enter
        )
        return self, edits

    def _merge(self, kernel, expansion, newcomer) -> Edits:
        same_sign = self.same_sign
        smallest = _smallest(kernel, expansion, newcomer, same_sign)
        merged, joins = _merged(expansion, newcomer, smallest)
        rows, taken = [], expansion.ages == FREE
        slots = jnp.arange(taken.shape[0], dtype=jnp.int32)
        last = merged.slot
        for _ in range(self.count - 2):
            taken = taken | (slots == last)
            partners = _partners(
                kernel, expansion, newcomer, smallest, merged, taken, same_sign
            )
            merged, last, joined = _one_more(expansion, newcomer, partners, merged)
            joins = joins | joined
            rows.append(support_set.freed(expansion, last))
        slot = jnp.where(smallest.newcomer_stays & ~joins, smallest.slot, NOWHERE)
        return Edits((merged, *rows, support_set.row(expansion, newcomer, slot)))


class MergeBestPair(Maintenance):
    """The two vectors that lose least by merging, of all pairs. O(B d + B^2 C).

    Each pair is merged as by `Merge`, which looks for the best partner of the smallest
    vector only. The kernel matrix of the support vectors is kept up to date. With one
    column, pairs of the same sign go first.

    Reference: Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget",
    section 4.3, which looks for the best partner of the smallest vector to save time;
    see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf

    Attributes:
      gram: `k(x_i, x_j)`, shape `(rows, rows)`; set by `init`.
    """

    gram: Any = ()

    def start(self, kernel, expansion, seed):
        _gaussian("MergeBestPair", kernel)
        return MergeBestPair(support_set.gram(kernel, expansion))

    def admit(self, kernel, expansion, newcomer):
        full, columns = expansion.full, expansion.num_columns
        # The newcomer takes part in the place of the spare row.
        last = expansion.ages.shape[0] - 1
        gram = crossed(self.gram, NOWHERE, newcomer.kernel_row, newcomer.kernel_self)
        own = support_set.newcomers_term(expansion, newcomer)
        coefficients = expansion.coefficients.at[last].set(newcomer.coefficients)
        ages = expansion.ages.at[last].set(newcomer.age)
        lengths = jnp.sum(coefficients**2, axis=1)
        products = jnp.matmul(coefficients, coefficients.T, precision="highest")

        decay = -jnp.log(jnp.clip(gram, jnp.finfo(gram.dtype).tiny, 1))
        m_lengths = jnp.broadcast_to(lengths[:, None], gram.shape)
        n_lengths = m_lengths.T
        guess = merge_position.guess(m_lengths, n_lengths, products, decay)
        loss = merge_position.loss(m_lengths, n_lengths, products, decay, guess)
        if columns == 1:
            loss = jnp.where(products > 0, loss, loss + 2 * jnp.max(lengths))
        older = ages[:, None] < ages[None]
        smaller = (m_lengths < n_lengths) | ((m_lengths == n_lengths) & older)
        active = ages != FREE
        loss = jnp.where(smaller & active[:, None] & active[None], loss, jnp.inf)

        # Of equal losses the pair with the oldest m, then with the oldest n.
        i = support_set.oldest_least(ages, jnp.min(loss, axis=1))
        j = support_set.oldest_least(ages, loss[i])

        def member(index):
            is_newcomer = index == last
            term = jnp.where(is_newcomer, own, support_set.term(expansion, index))
            vector = expansion.vectors[index]
            return jnp.where(is_newcomer, newcomer.vector, vector), term

        merged = _place(
            *member(i),
            *member(j),
            lengths[i],
            lengths[j],
            products[i, j],
            decay[i, j],
            guess[i, j],
            slot=jnp.where(full, jnp.where(j == last, i, j), NOWHERE),
            age=ages[j],
        )
        joins = (i == last) | (j == last)
        slot = jnp.where(joins, NOWHERE, i)
        slot = jnp.where(full, slot, expansion.free)
        edits = Edits((merged, support_set.row(expansion, newcomer, slot)))

        row = support_set.kernel_rows(
            kernel, expansion, merged.vector[None], merged.square[None]
        )[0]
        gram = crossed(self.gram, merged.slot, row, newcomer.kernel_self)
        between = kernel.gram(
            newcomer.vector[None],
            merged.vector[None],
            newcomer.square[None],
            merged.square[None],
        )[0, 0]
        row = support_set.put(newcomer.kernel_row, merged.slot, between)
        return MergeBestPair(crossed(gram, slot, row, newcomer.kernel_self)), edits


class Smallest(NamedTuple):
    """The smallest vector `m`, and what is known of all that it could be merged with.

    Attributes:
      vector: `x_m`.
      term: what it carries.
      length: `||a_m||^2`.
      slot: its slot; if it is the newcomer, the slot of the smallest stored vector.
      newcomer_stays: whether the newcomer is another. It then stands in `slot` below,
        so that the partners are the slots.
      lengths: `||a_n||^2`, shape `(rows,)`.
      products: `<a_m, a_n>`.
      decay: `-log k(x_m, x_n)`.
      ages: insertion rounds.
      guess: about the best `h`.
      loss: what the merge loses there, the larger for another sign, infinite where
        there is no partner.
    """

    vector: Float[Array, " features"]
    term: Float[Array, " both"]
    length: Float[Array, ""]
    slot: Integer[Array, ""]
    newcomer_stays: Bool[Array, ""]
    lengths: Float[Array, " rows"]
    products: Float[Array, " rows"]
    decay: Float[Array, " rows"]
    ages: Integer[Array, " rows"]
    guess: Float[Array, " rows"]
    loss: Float[Array, " rows"]


def _smallest(
    kernel: Kernel, expansion: Expansion, newcomer: Newcomer, same_sign: bool
) -> Smallest:
    columns = expansion.num_columns
    lengths = jnp.sum(expansion.coefficients**2, axis=1)
    own_length = jnp.sum(newcomer.coefficients**2)
    lengths = jnp.where(expansion.mask, lengths, jnp.inf)

    slot = support_set.oldest_least(expansion.ages, lengths)
    newcomer_stays = own_length >= jnp.min(lengths)
    vector = jnp.where(newcomer_stays, expansion.vectors[slot], newcomer.vector)
    square = jnp.where(newcomer_stays, expansion.squares[slot], newcomer.square)
    term = jnp.where(
        newcomer_stays,
        support_set.term(expansion, slot),
        support_set.newcomers_term(expansion, newcomer),
    )
    m = term[:columns]
    slots = jnp.arange(lengths.shape[0], dtype=jnp.int32)
    stands_in = newcomer_stays & (slots == slot)

    def partners(stored, of_newcomer):
        return jnp.where(stands_in, of_newcomer, stored)

    kernel_row = support_set.kernel_rows(kernel, expansion, vector[None], square[None])
    kappa = partners(kernel_row[0], newcomer.kernel_row[slot])
    products = partners(
        jnp.matmul(expansion.coefficients, m, precision="highest"),
        jnp.dot(newcomer.coefficients, m, precision="highest"),
    )
    lengths = jnp.where(expansion.mask, partners(lengths, own_length), 0)
    length = jnp.dot(m, m, precision="highest")
    decay = -jnp.log(jnp.maximum(kappa, jnp.finfo(kappa.dtype).tiny))
    guess = merge_position.guess(length, lengths, products, decay)
    loss = merge_position.loss(length, lengths, products, decay, guess)
    if same_sign and columns == 1:
        # A loss is at most ||a_m||^2, so this puts other signs behind equal ones.
        loss = jnp.where(products > 0, loss, loss + 2 * length)
    return Smallest(
        vector=vector,
        term=term,
        length=length,
        slot=slot,
        newcomer_stays=newcomer_stays,
        lengths=lengths,
        products=products,
        decay=decay,
        ages=partners(expansion.ages, newcomer.age),
        guess=guess,
        loss=jnp.where(expansion.mask, loss, jnp.inf),
    )


def _merged(
    expansion: Expansion, newcomer: Newcomer, smallest: Smallest
) -> tuple[Row, Bool[Array, ""]]:
    """The smallest merged with its best partner, and whether that is the newcomer."""
    n = support_set.oldest_least(smallest.ages, smallest.loss)
    vector, term, joins = _partner(expansion, newcomer, smallest, n)
    merged = _place(
        smallest.vector,
        smallest.term,
        vector,
        term,
        smallest.length,
        smallest.lengths[n],
        smallest.products[n],
        smallest.decay[n],
        smallest.guess[n],
        slot=n,
        age=smallest.ages[n],
    )
    return merged, joins


def _partners(
    kernel: Kernel,
    expansion: Expansion,
    newcomer: Newcomer,
    smallest: Smallest,
    merged: Row,
    taken: Bool[Array, " rows"],
    same_sign: bool,
) -> Smallest:
    """The partners of a further merge; what was merged need not be the smaller."""
    columns = expansion.num_columns
    z = merged.term[:columns]
    slots = jnp.arange(taken.shape[0], dtype=jnp.int32)
    stands_in = smallest.newcomer_stays & (slots == smallest.slot)
    kernel_row = support_set.kernel_rows(
        kernel, expansion, merged.vector[None], merged.square[None]
    )[0]
    to_newcomer = kernel.gram(
        merged.vector[None],
        newcomer.vector[None],
        merged.square[None],
        newcomer.square[None],
    )[0, 0]
    kappa = jnp.where(stands_in, to_newcomer, kernel_row)
    products = jnp.where(
        stands_in,
        jnp.dot(newcomer.coefficients, z, precision="highest"),
        jnp.matmul(expansion.coefficients, z, precision="highest"),
    )
    length = jnp.dot(z, z, precision="highest")
    decay = -jnp.log(jnp.maximum(kappa, jnp.finfo(kappa.dtype).tiny))
    shorter = jnp.minimum(smallest.lengths, length)
    longer = jnp.maximum(smallest.lengths, length)
    guess = merge_position.guess(shorter, longer, products, decay)
    loss = merge_position.loss(shorter, longer, products, decay, guess)
    if same_sign and columns == 1:
        loss = jnp.where(products > 0, loss, loss + 2 * length)
    return smallest._replace(
        vector=merged.vector,
        term=merged.term,
        length=length,
        products=products,
        decay=decay,
        guess=guess,
        loss=jnp.where(taken, jnp.inf, loss),
    )


def _one_more(
    expansion: Expansion, newcomer: Newcomer, partners: Smallest, merged: Row
) -> tuple[Row, Integer[Array, ""], Bool[Array, ""]]:
    """The row with its best partner, the slot this frees, and whether that entered."""
    n = support_set.oldest_least(partners.ages, partners.loss)
    vector, term, joins = _partner(expansion, newcomer, partners, n)
    # The shorter of the two takes the part of m.
    swap = partners.lengths[n] < partners.length

    def ordered(first, second):
        return jnp.where(swap, second, first), jnp.where(swap, first, second)

    m_vector, n_vector = ordered(merged.vector, vector)
    m_term, n_term = ordered(merged.term, term)
    m_length, n_length = ordered(partners.length, partners.lengths[n])
    both = _place(
        m_vector,
        m_term,
        n_vector,
        n_term,
        m_length,
        n_length,
        partners.products[n],
        partners.decay[n],
        partners.guess[n],
        slot=merged.slot,
        age=merged.age,
    )
    # A budget may be smaller than what is to be merged.
    found = jnp.isfinite(partners.loss[n])
    both = jax.tree.map(lambda new, old: jnp.where(found, new, old), both, merged)
    return both, jnp.where(found, n, NOWHERE), joins & found


def _partner(
    expansion: Expansion,
    newcomer: Newcomer,
    smallest: Smallest,
    slot: Integer[Array, ""],
) -> tuple[Float[Array, " features"], Float[Array, " both"], Bool[Array, ""]]:
    """The vector and term of what stands in a slot, and whether it is the newcomer."""
    joins = smallest.newcomer_stays & (slot == smallest.slot)
    own = support_set.newcomers_term(expansion, newcomer)
    return (
        jnp.where(joins, newcomer.vector, expansion.vectors[slot]),
        jnp.where(joins, own, support_set.term(expansion, slot)),
        joins,
    )


def _place(
    m_vector: Float[Array, " features"],
    m_term: Float[Array, " both"],
    n_vector: Float[Array, " features"],
    n_term: Float[Array, " both"],
    m_length: Float[Array, ""],
    n_length: Float[Array, ""],
    product: Float[Array, ""],
    decay: Float[Array, ""],
    guess: Float[Array, ""],
    *,
    slot: Integer[Array, ""],
    age: Integer[Array, ""],
) -> Row:
    """Equations (17) to (22): what `m` and `n` become."""
    h = merge_position.position(m_length, n_length, product, decay, guess)
    z = h * m_vector + (1 - h) * n_vector
    term = m_term * jnp.exp(-decay * (1 - h) ** 2) + n_term * jnp.exp(-decay * h**2)
    return Row(slot, z, jnp.dot(z, z, precision="highest"), term, age)
