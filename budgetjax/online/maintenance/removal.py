"""Maintenance by removal: one support vector leaves when another enters."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer, Shaped

from budgetjax import _checks, _record, losses
from budgetjax._errors import names_errors
from budgetjax._record import static
from budgetjax._shapes import Scalar, Score
from budgetjax.online import support_set
from budgetjax.online.edits import Edits, entering_row
from budgetjax.online.maintenance.strategy import Maintenance
from budgetjax.online.slots import NOWHERE, oldest_argmin
from budgetjax.online.support_set import Candidate, Expansion

__all__ = ["RemoveFewestErrors", "RemoveLargestMargin", "RemoveOldest", "RemoveRandom"]
__all__ += ["RemoveSmallest", "Unbudgeted"]


class Unbudgeted(Maintenance):
    """No maintenance: a full model refuses candidates, and counts them. O(B).

    With a budget as large as the stream, this is the learner without a budget. Its time
    grows with the square of the rows, since the whole capacity scores every example.
    `bj.run` raises an `OverflowError` if examples were refused; `step` only counts.

    Example:
      >>> X, y = bj.datasets.checkerboard(500, seed=0)
      >>> state = bj.Pegasos().init(
      ...     bj.RBF(8.0), num_features=2, budget=500, maintenance=bj.Unbudgeted())
      >>> state, _ = bj.run(state, X, y)
      >>> int(state.expansion.num_active) == int(state.num_updates)
      True

    Attributes:
      num_refused: the number of examples that could not enter.
    """

    num_refused: Integer[Array, ""] | int = 0

    def start(self, kernel, expansion, seed):
        return Unbudgeted(jnp.zeros((), jnp.int32))

    def count_refused(self):
        return self.num_refused

    def insert(self, kernel, expansion, candidate):
        refused = self.num_refused + expansion.full.astype(jnp.int32)
        nowhere = jnp.asarray(NOWHERE, jnp.int32)
        return Unbudgeted(refused), self.replace(expansion, candidate, nowhere)


class RemoveOldest(Maintenance):
    """The oldest support vector leaves. O(B).

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveOldest())
    """

    def insert(self, kernel, expansion, candidate):
        victim = support_set.oldest(expansion)
        return self, self.replace(expansion, candidate, victim)


class RemoveRandom(Maintenance):
    """A uniformly random support vector, never the candidate, leaves. O(1).

    The draw of round `t` depends only on the seed and `t`.

    Reference: Cesa-Bianchi and Gentile (2006), "Tracking the best hyperplane with a
    simple budget Perceptron". https://doi.org/10.1007/s10994-007-5003-0

    Attributes:
      seed: set by `init(..., seed=)`.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveRandom(), seed=1)
    """

    seed: Integer[Array, ""] | int = 0

    def start(self, kernel, expansion, seed):
        return RemoveRandom(jnp.array(seed, jnp.int32))

    def insert(self, kernel, expansion, candidate):
        key = jax.random.fold_in(jax.random.key(self.seed), candidate.age)
        victim = jax.random.randint(key, (), 0, expansion.num_active, jnp.int32)
        return self, self.replace(expansion, candidate, victim)


class RemoveSmallest(Maintenance):
    """The vector of smallest norm `||a_j||^2 k(x_j, x_j)` leaves. O(B C).

    The candidate competes too. Under Pegasos and a Gaussian kernel all norms are
    equal, and this is `RemoveOldest`.

    Example:
      >>> state = bj.PassiveAggressive().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveSmallest())
    """

    def insert(self, kernel, expansion, candidate):
        norms = support_set.norms(kernel, expansion)
        own = jnp.sum(candidate.coefficients**2) * candidate.kernel_self
        smallest = oldest_argmin(expansion.ages, norms)
        victim = jnp.where(own < norms[smallest], NOWHERE, smallest)
        return self, self.replace(expansion, candidate, victim)


class RemoveLargestMargin(Maintenance):
    """Removes the vector that the others classify best. O(B d + B C).

    `argmax_i y_i (f(x_i) - a_i k(x_i, x_i))` over all support vectors and the candidate
    leaves. With more than two classes the margin is `f^(y) - f^(r)`. The label of a
    support vector is the column of its largest coefficient, or its sign.

    `f` at every support vector is kept up to date, at the cost of one kernel row per
    removal; an insertion uses the example's own.

    With `above`, a vector also leaves before the budget is full if that margin is at
    least `above`: the stream then determines the number of vectors, up to B. At most
    one leaves per insertion. If `k(x, x) = 1` and a function of norm 1 classifies every
    example with a margin of at least delta, a `budgetjax.Perceptron` with margin beta
    below `above` never has more than `(1 + 2 beta) / delta^2` vectors.

    References:
      Crammer, Kandola and Singer (2003), "Online classification on a budget", in
      https://papers.nips.cc/paper_files/paper/2003
      Panagiotakopoulos and Tsampouka (2010), "The Margin Perceptron with Unlearning",
      Remark 3 and bounds (10) and (17), for `above`, their `b + Delta b - 1`.
      https://icml.cc/Conferences/2010/papers/339.pdf

    Args:
      above: the margin from which a vector leaves although there is room; None keeps
        all up to the budget.
      responses: `sum_i u_i k(x_i, x_j)`, unscaled, shape `(rows, columns)`; set by
        `init`.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveLargestMargin(above=2.0))
    """

    above: Any = None
    responses: Any = ()

    @names_errors("RemoveLargestMargin")
    def start(self, kernel, expansion, seed):
        gram = support_set.gram(kernel, expansion)
        responses = jnp.matmul(gram, expansion.coefficients, precision="highest")
        above = self.above
        if above is not None:
            above = _checks.as_leaf("above", above, responses.dtype, _checks.finite)
        return RemoveLargestMargin(above, responses)

    def insert(self, kernel, expansion, candidate):
        entering = candidate.kernel_row[:, None] * candidate.coefficients[None]
        responses = self.responses + entering
        own_response = support_set.response(expansion, candidate)
        own_response = own_response + candidate.kernel_self * candidate.coefficients

        selves = kernel.diag(expansion.vectors, expansion.squares)
        margins = jax.vmap(_margin_without)(responses, expansion.coefficients, selves)
        margins = jnp.where(expansion.mask, margins, -jnp.inf)
        own_margin = _margin_without(
            own_response, candidate.coefficients, candidate.kernel_self
        )
        largest = oldest_argmin(expansion.ages, -margins)
        victim = jnp.where(own_margin > jnp.max(margins), NOWHERE, largest)
        leaves = expansion.full
        if self.above is not None:
            margin = jnp.maximum(own_margin, jnp.max(margins))
            leaves |= expansion.scale * margin >= self.above
        slot = jnp.where(leaves, victim, expansion.free)
        edits = Edits((entering_row(expansion, candidate, slot),))

        leaving = jnp.maximum(slot, 0)
        vector, square = expansion.vectors[leaving], expansion.squares[leaving]
        kernel_row = support_set.kernel_row(kernel, expansion, vector, square)
        gone = expansion.coefficients[leaving]  # zero, if the slot was free
        remaining = responses - kernel_row[:, None] * gone[None]
        own = own_response - candidate.kernel_row[leaving] * gone
        remaining = jax.lax.dynamic_update_index_in_dim(remaining, own, leaving, 0)
        responses = jnp.where(slot == NOWHERE, self.responses, remaining)
        return dataclasses.replace(self, responses=responses), edits

    def rescale(self, factor):
        return dataclasses.replace(self, responses=self.responses * factor)


class RemoveFewestErrors(Maintenance):
    """Removes the vector without which there are fewest errors. O(Q (d + B C)).

    Errors are counted on the last `size` examples that entered and on the candidate,
    whether they are still support vectors or not; the candidate itself may be removed.
    With the learner `Perceptron` this is the tighter budget Perceptron. Unlike
    `RemoveLargestMargin`, it does not keep the examples that are always misclassified
    on noisy streams. The label of an example is the column of its largest coefficient,
    or its sign.

    `f` at these examples, and their kernel rows, are kept up to date.

    Reference: Weston, Bordes and Bottou (2005), "Online (and offline) on an even
    tighter budget". https://leon.bottou.org/papers/weston-bordes-bottou-2005

    Differences from the paper: errors are counted only on examples that changed the
    model, since a strategy sees no others.

    Args:
      size: Q, the number of examples on which errors are counted.
      cache: the examples; set by `init`.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10,
      ...     maintenance=bj.RemoveFewestErrors(size=50))
    """

    size: int = static(default=100, check=_checks.size)
    cache: Any = ()

    def start(self, kernel, expansion, seed):
        rows, columns = expansion.coefficients.shape
        dtype = expansion.vectors.dtype
        cache = Cache(
            vectors=jnp.zeros((self.size, expansion.vectors.shape[1]), dtype),
            squares=jnp.zeros(self.size, dtype),
            labels=jnp.zeros(self.size, dtype if columns == 1 else jnp.int32),
            responses=jnp.zeros((self.size, columns), dtype),
            gram=jnp.zeros((self.size, rows), dtype),
            num_seen=jnp.zeros((), jnp.int32),
        )
        return dataclasses.replace(self, cache=cache)

    def insert(self, kernel, expansion, candidate):
        cache = _remember(self.cache, expansion, candidate)
        column = kernel.gram(
            candidate.vector[None], cache.vectors, candidate.square[None], cache.squares
        )[0]
        entering = column[:, None] * candidate.coefficients[None]
        responses = cache.responses + entering
        there = jnp.arange(self.size, dtype=jnp.int32) < cache.num_seen

        def errors(gone: Array) -> Array:
            wrong = jax.vmap(losses.is_mistake)(responses - gone, cache.labels)
            return jnp.sum(wrong & there, dtype=responses.dtype)

        each = jax.vmap(lambda row, gone: errors(row[:, None] * gone[None]))
        without = each(cache.gram.T, expansion.coefficients)
        without = jnp.where(expansion.mask, without, jnp.inf)
        fewest = oldest_argmin(expansion.ages, without)
        victim = jnp.where(errors(entering) < without[fewest], NOWHERE, fewest)
        edits = self.replace(expansion, candidate, victim)
        slot = edits.rows[0].slot

        leaving = jnp.maximum(slot, 0)
        gone = expansion.coefficients[leaving]  # zero, if the slot was free
        remaining = responses - cache.gram[:, leaving][:, None] * gone[None]
        changed = jax.lax.dynamic_update_index_in_dim(cache.gram, column, leaving, 1)
        cache = cache._replace(
            responses=jnp.where(slot == NOWHERE, cache.responses, remaining),
            gram=jnp.where(slot == NOWHERE, cache.gram, changed),
        )
        return dataclasses.replace(self, cache=cache), edits

    def rescale(self, factor):
        responses = self.cache.responses * factor
        cache = self.cache._replace(responses=responses)
        return dataclasses.replace(self, cache=cache)


@_record.record
class Cache(NamedTuple):
    """The last examples that entered, as a ring buffer.

    Attributes:
      labels: -1 and +1, or columns.
      responses: `sum_i u_i k(x_i, x)`, unscaled.
      gram: `k(x, x_j)` for every support vector.
      num_seen: the number of examples so far; it wraps from twice the size to the size.
    """

    vectors: Float[Array, "size features"]
    squares: Float[Array, " size"]
    labels: Shaped[Array, " size"]
    responses: Float[Array, "size columns"]
    gram: Float[Array, "size rows"]
    num_seen: Integer[Array, ""]


def _remember(cache: Cache, expansion: Expansion, candidate: Candidate) -> Cache:
    """The cache with the candidate in place of the oldest example."""
    size = cache.squares.shape[0]
    place = cache.num_seen % size
    response = support_set.response(expansion, candidate)
    label = _label(candidate.coefficients).astype(cache.labels.dtype)
    values = candidate.vector, candidate.square, label, response, candidate.kernel_row
    vectors, squares, labels, responses, gram = (
        jax.lax.dynamic_update_index_in_dim(array, value, place, 0)
        for array, value in zip(cache[:-1], values, strict=True)
    )
    seen = cache.num_seen + 1
    seen = jnp.where(seen == 2 * size, size, seen)
    return Cache(vectors, squares, labels, responses, gram, seen)


def _label(coefficients: Score) -> Shaped[Array, ""]:
    """The label of a support vector."""
    if coefficients.shape[0] == 1:
        return jnp.sign(coefficients[0])
    return jnp.argmax(coefficients).astype(jnp.int32)


def _margin_without(
    response: Score, coefficients: Score, kernel_self: Scalar
) -> Scalar:
    """The margin of a support vector without its own term."""
    without = response - coefficients * kernel_self
    return losses.margin(without, _label(coefficients))
