"""Runs of the registry's rows, in shapes that all tests share: few programs compile."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from compare import kept
from registry import FIXED_FEATURES, N, named

import budgetjax as bj
from budgetjax.online import driver, examples

# Examples to a block in float64: of nine blocks, the last begins in the one before.
BLOCK = 7


def exact(row):
    """An empty model in float64, with no room beyond its budget."""
    return row.init(dtype=jnp.float64)


def roomy(row):
    """The same model with room for more support vectors, and for more features."""
    num_features = wider(row, row.stream(1)[0]).shape[1]
    return row.roomy(dtype=jnp.float64, num_features=num_features)


def wider(row, X):
    """Examples with columns of zeros; random features of more columns are others."""
    more = 0 if row.unlike == FIXED_FEATURES else 2
    return np.pad(X, ((0, 0), (0, more)))


def blocks(row, state, X, y, weight=None):
    """A run of a roomy model in blocks, of at most `N` examples."""
    return bj.run(state, wider(row, X), y, weight=weight, block_size=BLOCK)


def steps(row, state, X, y, weight=None):
    """The definition of a run: one step after the other, for any length.

    Returns:
      The states after every step, stacked, and the scores of the models before them.
    """
    weight = np.ones(len(X)) if weight is None else weight
    parts = []
    for start in range(0, len(X), N):
        arrays = (array[start : start + N] for array in (X, y, weight))
        given = state, *repeated(*arrays)
        parts.append(jax.device_get(compiled_steps(*given)))
        # In NumPy, where an index compiles nothing.
        state = jax.tree.map(lambda leaf: leaf[-1], parts[-1][0])
    return jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(X)], *parts)


@jax.jit
def compiled_steps(state, *given):
    """One object, so that tests share what it compiles for the states of a learner."""

    def body(state, example):
        score = bj.decision_function(state, example[0][None])[0]
        state = bj.step(state, *example)
        return state, (state, score)

    return jax.lax.scan(body, state, given)[1]


def repeated(*arrays):
    """A stream of `N` examples: the given ones, and those again."""
    return tuple(np.resize(array, (N, *np.shape(array)[1:])) for array in arrays)


def loop(row, state, X, y, weight=None):
    """The state after the steps, and all scores."""
    states, scores = steps(row, state, X, y, weight)
    return jax.tree.map(lambda leaf: leaf[-1], states), scores


@functools.cache
def compiled_text(name, block_size=None):
    """Of the program that other tests of a row run; it is not compiled again."""
    (row,) = named(name)
    state = row.roomy()
    given = examples.check_stream(state, *row.stream(), None)
    size = driver.block_length(block_size)
    program = driver.run_checked.lower(state, *given, size, True)
    return program.compile().as_text()


def without_room(state, like):
    """A state cut to the shapes of another with less room, which nothing may need."""
    expansion = kept(state).expansion
    room = like.expansion.ages.shape[0] - 1
    mask = np.asarray(state.expansion.mask)
    assert not np.any(mask[room:]), "slots beyond the budget stay free"
    for array in (expansion.vectors, expansion.squares, expansion.coefficients):
        assert not np.any(array[room:]), "free slots are zero"
    features = like.expansion.vectors.shape[1]
    assert not np.any(expansion.vectors[:, features:]), "columns of zeros stay zero"

    def cut(leaf, other):
        return leaf[tuple(slice(n) for n in other.shape)]

    return jax.tree.map(cut, kept(state), kept(like))


def check_dtypes(state, dtype):
    """All leaves are integers of 32 bits or floats of this type, and none is weak."""
    leaves = jax.tree.leaves(state)
    assert {leaf.dtype.name for leaf in leaves} <= {"int32", np.dtype(dtype).name}
    assert not any(leaf.aval.weak_type for leaf in leaves)
