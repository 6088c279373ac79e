"""Comparing states."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

# For float32 in two compiled programs. Sums come in another order, and a merged vector
# lies where a flat function is largest: an error of 1e-7 there moves it by 3e-4, its
# square root. That the programs do the same is shown in float64, to 1e-9.
FLOAT32 = 1e-3


def mistakes(scores, y):
    """Where the score of the label, of two classes or more, was not ahead."""
    scores = np.asarray(scores)
    if scores.ndim == 1:
        return scores * y <= 0
    label = np.take_along_axis(scores, y[:, None], axis=1)[:, 0]
    others = np.where(np.arange(scores.shape[1]) == y[:, None], -np.inf, scores)
    return label <= others.max(axis=1)


def same(actual, expected):
    """Two trees, of which keys are compared by their data."""

    def compare(one, other):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jax.random.key_data(one), jax.random.key_data(other)
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)

    jax.tree.map(compare, actual, expected)


def kept(state):
    """The state as NumPy arrays, without the spare row, which is arbitrary."""

    def keep(path, leaf):
        name = jax.tree_util.keystr(path)
        leaf = np.asarray(leaf)
        if name.endswith((".gram", ".root", ".certainty")):
            return leaf[:-1, :-1]
        rows = ".expansion" in name or ".responses" in name
        return leaf[:-1] if rows and leaf.ndim else leaf

    return jax.tree_util.tree_map_with_path(keep, state)


def assert_same(actual, expected, rtol):
    """Structure, types, integers and flags are identical, floats to a tolerance.

    The tolerance is for the other order of sums in another compiled program: relative
    to an array's largest entry.
    """
    chex.assert_trees_all_equal_shapes_and_dtypes(actual, expected)
    assert_close(kept(actual), kept(expected), rtol)


def assert_close(actual, expected, rtol):
    """Two trees of arrays: floats to a tolerance, of any type, the rest exactly."""
    chex.assert_trees_all_equal_structs(actual, expected)

    def compare(path, left, right):
        name = jax.tree_util.keystr(path)
        if jnp.issubdtype(left.dtype, jnp.floating):
            scale = max(1.0, float(np.max(np.abs(right), initial=0.0)))
            np.testing.assert_allclose(left, right, rtol, rtol * scale, err_msg=name)
        else:
            np.testing.assert_array_equal(left, right, err_msg=name)

    jax.tree_util.tree_map_with_path(compare, actual, expected)
