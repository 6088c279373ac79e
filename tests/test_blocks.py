"""The block engine gives what the plain scan of `step` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from compare import FLOAT32, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st

import budgetjax as bj

N = 60


def assert_same_run(row, state, X, y, block_size, weight=None, rtol=1e-9):
    """Same mistakes, slots and ages; floats to the order in which sums are rounded."""
    expected = bj.run(row.algorithm, state, X, y, weight=weight, block_size=1)
    actual = bj.run(row.algorithm, state, X, y, weight=weight, block_size=block_size)
    assert_same(actual, expected, rtol)


@registry.each
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    block_size=st.sampled_from([7, 64]),
    skipped=st.sampled_from([0.0, 0.3]),
)
def test_blocks_equal_the_plain_scan(row, seed, block_size, skipped):
    jax.config.update("jax_enable_x64", True)
    try:
        X, y = row.stream(N, seed=seed)
        random = np.random.default_rng(seed)
        weight = (random.random(N) >= skipped) * random.choice([0.5, 1, 2], N)
        state = row.init(dtype=jnp.float64, capacity=row.budget + 2)
        assert_same_run(row, state, X, y, block_size, weight)
    finally:
        jax.config.update("jax_enable_x64", False)


@registry.some
@pytest.mark.parametrize("block_size", [2, 256])
def test_blocks_equal_the_plain_scan_in_float32(row, block_size):
    X, y = row.stream(N)
    assert_same_run(row, row.init(), X, y, block_size, rtol=FLOAT32)


@registry.some
def test_skipped_rows_are_as_if_they_were_not_there(row):
    X, y = row.stream(N)
    weight = np.random.default_rng(5).random(N) < 0.5
    state, scores = bj.run(row.algorithm, row.init(), X, y, weight=weight)
    expected, kept = bj.run(row.algorithm, row.init(), X[weight], y[weight])
    scale = max(1.0, np.abs(kept).max())
    np.testing.assert_allclose(scores[weight], kept, FLOAT32, FLOAT32 * scale)
    assert int(state.num_seen) == weight.sum()
    assert int(state.num_mistakes) == int(expected.num_mistakes)
    np.testing.assert_array_equal(state.expansion.ages, expected.expansion.ages)


@pytest.mark.parametrize("n", [1, 63, 64, 65, 200])
def test_any_length_of_stream(n):
    row = next(row for row in registry.ROWS if row.name == "pegasos-merge")
    X, y = row.stream(n)
    assert_same_run(row, row.init(), X, y, 64, rtol=FLOAT32)


def test_a_partial_last_block_is_the_same_program():
    row = registry.ROWS[0]
    algorithm, traces = row.counted()
    X, y = row.stream(200)
    bj.run(algorithm, row.init(), X[:192], y[:192], block_size=64)
    whole = len(traces)
    traces.clear()
    bj.run(algorithm, row.init(), X, y, block_size=64)
    assert len(traces) == whole
