"""Where a CPU prefers one program, and a GPU or a TPU another.

A CPU runs a small loop as one kernel, which does little work at a time and rolls its
inner loops. On a GPU the host launches every operation of a loop, for 2 to 5
microseconds each, whatever its size: it is better to do more work in fewer operations.
A TPU runs loops by itself, but writes to rows of many models one model after the other.

The choice is made by the default backend when a program is traced. `python
benchmarks/launches.py` counts what follows from it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, PyTree

Carry = TypeVar("Carry")
# On a GPU, arrays with at most so many numbers per row are written as a whole: then one
# operation writes several of them.
NARROW = 8


def on_cpu() -> bool:
    """Whether programs run on a CPU."""
    return jax.default_backend() == "cpu"


def on_gpu() -> bool:
    """Whether programs run on a GPU, which the host tells every operation."""
    return jax.default_backend() not in ("cpu", "tpu")


def writes_whole(numbers: int) -> bool:
    """Whether a select over an array writes a row of so many numbers."""
    return not on_cpu() and (not on_gpu() or numbers <= NARROW)


def iterate(
    count: int, step: Callable[[Carry], tuple[Carry, Bool[Array, ""]]], carry: Carry
) -> Carry:
    """Applies a function `count` times, on a CPU only until it reports convergence.

    Elsewhere the steps are unrolled: a condition would be one launch more per step.
    """
    if on_cpu():

        def turn(given: Any) -> Any:
            done, _, carry = given
            carry, converged = step(carry)
            return done + 1, converged, carry

        # The first step gives the flag its type inside a `jax.shard_map`.
        carry, converged = step(carry)
        start = jnp.int32(1), converged, carry
        return jax.lax.while_loop(
            lambda given: (given[0] < count) & ~given[1], turn, start
        )[2]
    for _ in range(count):
        carry, _ = step(carry)
    return carry


def separate(arrays: Carry) -> Carry:
    """Makes a CPU compute the arrays before it uses them, each in a loop of its own."""
    return jax.lax.optimization_barrier(arrays) if on_cpu() else arrays


def together(*arrays: Array) -> Any:
    """The arrays, of one shape, on a GPU the rows of one that is computed at once.

    A branch should take its rows itself: each that is taken outside is a copy.
    """
    if not on_gpu():
        return arrays
    return jax.lax.optimization_barrier(jnp.stack(arrays))


def dots(*pairs: tuple[Array, Array]) -> Array:
    """The inner products of pairs of vectors, on a GPU in one operation."""
    if not on_gpu():
        each = [jnp.dot(left, right, precision="highest") for left, right in pairs]
        return jnp.stack(each)
    return jnp.sum(jnp.stack([left * right for left, right in pairs]), axis=1)


def products(matrix: Array, vectors: Array | Sequence[Array]) -> Any:
    """The products of a matrix with a few vectors, on a GPU in one operation.

    A CPU multiplies with two columns at once eight times slower than one by one. On a
    GPU the vectors of a list are joined on the way, which a product of matrices cannot.
    """
    if not on_gpu() or not len(vectors):
        return [jnp.matmul(matrix, vector, precision="highest") for vector in vectors]
    if isinstance(vectors, jax.Array):
        return jnp.matmul(vectors, matrix.T, precision="highest")
    return jnp.sum(jnp.stack(vectors)[:, None] * matrix[None], axis=2)


def fold(
    pair: Callable[[Array, Array], Array],
    whole: Callable[[Array], Array],
    values: Array,
) -> Array:
    """Reduces one axis of integers, on a CPU first eight parts of it to one.

    A CPU vectorises what it does to whole parts, but no reduction: with 500 numbers
    that takes a third of the time. `pair` and `whole` are, for example, `jnp.minimum`
    and `jnp.min`.
    """
    while on_cpu() and values.shape[0] >= 64:
        size = values.shape[0] // 8
        parts = [values[i * size : (i + 1) * size] for i in range(8)]
        first = functools.reduce(pair, parts)
        values = jnp.concatenate([first, values[8 * size :]])
    return whole(values)


def join_kernels(function: Callable[[Carry], Carry], carry: Carry) -> Carry:
    """Applies a function, which a CPU runs as one kernel if its arrays are small.

    A loop of one turn, whose number the compiler does not know, is such a kernel;
    otherwise each operation is a call, for 0.1 microseconds or more.
    """
    if not on_cpu():
        return function(carry)
    once = jax.lax.optimization_barrier(jnp.int32(1))
    return jax.lax.fori_loop(
        jnp.int32(0), once, lambda _, carry: function(carry), carry
    )


def while_loop(
    condition: Callable[[Carry], Bool[Array, ""]],
    body: Callable[[Carry], Carry],
    carry: Carry,
) -> Carry:
    """`jax.lax.while_loop`, whose numbers share one array except on a CPU.

    A loop computes and then copies each number that a turn reads and replaces: two
    launches for one number, or for all.
    """
    if on_cpu():
        return jax.lax.while_loop(condition, body, carry)
    packed = Packed(carry)
    final = jax.lax.while_loop(
        lambda given: condition(packed.unpack(given)),
        lambda given: packed.pack(body(packed.unpack(given))),
        packed.pack(carry),
    )
    return packed.unpack(final)


def scan(
    body: Callable[[Carry, Array], tuple[Carry, Any]], carry: Carry, xs: Array
) -> tuple[Carry, Any]:
    """`jax.lax.scan`, whose numbers share one array as those of `while_loop`."""
    if on_cpu():
        return jax.lax.scan(body, carry, xs)
    packed = Packed(carry)

    def turn(given: Any, x: Array) -> tuple[Any, Any]:
        new, y = body(packed.unpack(given), x)
        return packed.pack(new), y

    final, ys = jax.lax.scan(turn, packed.pack(carry), xs)
    return packed.unpack(final), ys


def pack(tree: Carry, also: Sequence[Array] = ()) -> Callable[[], Carry]:
    """A function for a branch that returns the tree, which is known outside.

    On a GPU its numbers share one array, as a branch copies each that it is given; so
    do these small arrays in it.
    """
    if not on_gpu():
        return lambda: tree
    packing = Packed(tree, also)
    words, others = packing.pack(tree)
    # Or the compiler would take the numbers from the array outside.
    words = jax.lax.optimization_barrier(words)
    return lambda: packing.unpack((words, others))


class Packed:
    """Trees like one, whose 32-bit numbers are the words of one array."""

    def __init__(self, like: Any, also: Sequence[Array] = ()) -> None:
        self.leaves, self.structure = jax.tree.flatten(like)
        kinds = (jnp.int32, jnp.uint32, jnp.float32)
        self.words = [
            isinstance(leaf, jax.Array)
            and leaf.dtype in kinds
            and ((leaf.size == 1 and leaf.ndim <= 1) or any(leaf is x for x in also))
            for leaf in self.leaves
        ]

    def pack(self, tree: PyTree) -> tuple[Array, list[Any]]:
        """The words, and all other leaves."""
        both = list(zip(jax.tree.leaves(tree), self.words, strict=True))
        words = [_cast(leaf.ravel(), jnp.int32) for leaf, packed in both if packed]
        others = [leaf for leaf, packed in both if not packed]
        return jnp.concatenate(words or [jnp.zeros((0,), jnp.int32)]), others

    def unpack(self, given: tuple[Array, list[Any]]) -> Any:
        """The tree."""
        words, others = given[0], iter(given[1])
        leaves, at = [], 0
        for like, packed in zip(self.leaves, self.words, strict=True):
            if packed:
                own = _cast(words[at : at + like.size], like.dtype)
                leaves.append(own.reshape(like.shape))
                at += like.size
            else:
                leaves.append(next(others))
        return jax.tree.unflatten(self.structure, leaves)


def _cast(number: Array, dtype: Any) -> Array:
    return jax.lax.bitcast_convert_type(number, dtype)
