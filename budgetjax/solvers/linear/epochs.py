"""Passes over patterns, and the order of the visits."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int32, Key, PyTree, UInt32

from budgetjax import _record
from budgetjax.solvers.linear.rows import Rows, get, read_in_loop, set_at
from budgetjax.solvers.training_set import Scalar, Vector

# From MANY patterns on, runs of 2^RUN_BITS neighbours are visited together.
MANY, RUN_BITS = 4096, 4


@_record.record
class Order(NamedTuple):
    """The order of visits to some patterns, the first `number` of `indices`."""

    indices: Int32[Array, " n"]
    number: Int32[Array, ""]


# Maps the coefficient of a pattern, its margin, its squared norm, further arguments and
# the tally to its new coefficient, whether the next pass keeps it, and the new tally.
Visit = Callable[..., tuple[Scalar, Bool[Array, ""], Float[Array, " tallied"]]]


def visit_all(
    patterns: Rows,
    squares: Vector,
    order: Order,
    weights: Float[Array, " size"],
    coefficients: Vector,
    visit: Visit,
    tally: Float[Array, " tallied"],
    further: PyTree[Float[Array, " n"]] = None,
) -> tuple[Float[Array, " size"], Vector, Order, Float[Array, " tallied"]]:
    """Visits every pattern of an order; O(n) plus O(nonzeros of a row) per visit.

    Each visit adds the pattern, times the change of its coefficient, to the weights.
    No pattern comes twice. The kept patterns are returned in the order of their visits.
    """

    def body(t, state):
        weights, new, kept, count, tally = state
        i = get(order.indices, t)
        # No pattern comes twice, so its old coefficient is still its newest.
        old = get(coefficients, i)
        margin = patterns.inner(i, weights)
        more = jax.tree.map(lambda values: get(values, i), further)
        now, keep, tally = visit(old, margin, get(squares, i), more, tally)
        weights = patterns.add(i, now - old, weights)
        # The next pattern overwrites one that is not kept.
        kept, count = set_at(kept, count, i), count + keep.astype(count.dtype)
        return weights, set_at(new, i, now), kept, count, tally

    spare = jnp.zeros_like(order.indices)
    start = (weights, coefficients, spare, jnp.int32(0), tally)
    weights, coefficients, kept, count, tally = jax.lax.fori_loop(
        jnp.int32(0), order.number, body, start
    )
    return weights, coefficients, Order(kept, count), tally


def natural_order(number: int) -> Order:
    """All patterns in their own order."""
    return Order(jnp.arange(number, dtype=jnp.int32), jnp.int32(number))


@jax.jit
def shuffle(key: Key[Array, ""], order: Order) -> Order:
    """A random order of the same patterns; O(number).

    From 4,096 patterns on it shuffles runs of 16 neighbours, not single patterns: a
    visit then finds its row in the cache, and takes a third less time. Exclusive or
    with 4 random bits reorders each run. The number of visits stays the same, or grows
    by up to 15 percent. The shuffle is that of Fisher and Yates; sorting random numbers
    would take longer than the visits.
    """
    seed = jax.random.bits(key, (), jnp.uint32)
    bits = jnp.where(order.number < MANY, jnp.int32(0), jnp.int32(RUN_BITS))
    runs = order.number >> bits

    def place(t, places):
        # One of the t + 1 places so far. The bias towards small numbers, one in 2^32 /
        # n draws, does not matter here.
        random = _random_bits(seed, t)
        j = (random % (t + 1).astype(jnp.uint32)).astype(jnp.int32)
        places = set_at(places, t, read_in_loop(places, j))
        first_bits = (random >> jnp.uint32(32 - RUN_BITS)).astype(jnp.int32)
        return set_at(places, j, (t << bits) + jnp.where(bits > 0, first_bits, 0))

    # An incomplete last run stays last.
    n = order.indices.shape[0]
    size = max(min(n, MANY), n >> RUN_BITS) + 1
    start = jnp.zeros(size, jnp.int32)
    places = jax.lax.fori_loop(jnp.int32(0), runs, place, start)
    places = set_at(places, runs, runs << bits)

    def visit(t, indices):
        run = t >> bits
        place = get(places, run) ^ (t - (run << bits))
        return set_at(indices, t, get(order.indices, place))

    start = jnp.zeros_like(order.indices)
    return order._replace(
        indices=jax.lax.fori_loop(jnp.int32(0), order.number, visit, start)
    )


def _random_bits(seed: UInt32[Array, ""], t: Int32[Array, ""]) -> UInt32[Array, ""]:
    """The t-th 32 random bits of a seed, for loops that `jax.random` would slow down.

    They are the finalizer of MurmurHash3 on a Weyl sequence, as in SplitMix.
    """
    x = seed + t.astype(jnp.uint32) * jnp.uint32(0x9E3779B9)
    x = (x ^ (x >> 16)) * jnp.uint32(0x85EBCA6B)
    x = (x ^ (x >> 13)) * jnp.uint32(0xC2B2AE35)
    return x ^ (x >> 16)
