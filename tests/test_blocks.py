"""The block engine gives what the plain scan of `step` gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from compare import FLOAT32, assert_same, loop
from hypothesis import given, settings
from hypothesis import strategies as st
from registry import N

import budgetjax as bj


@registry.each
@settings(max_examples=6, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 10**6),
    block_size=st.sampled_from([7, 64]),
    skipped=st.sampled_from([0.0, 0.3]),
)
def test_blocks_equal_the_loop_of_steps(row, seed, block_size, skipped):
    jax.config.update("jax_enable_x64", True)
    try:
        X, y = row.stream(N, seed=seed)
        random = np.random.default_rng(seed)
        weight = (random.random(N) >= skipped) * random.choice([0.5, 1, 2], N)
        state = row.init(dtype=jnp.float64, capacity=row.budget + 2)
        actual = bj.run(
            row.algorithm, state, X, y, weight=weight, block_size=block_size
        )
        assert_same(actual, loop(row.algorithm, state, X, y, weight), 1e-9)
    finally:
        jax.config.update("jax_enable_x64", False)


@registry.some
def test_blocks_equal_the_plain_scan_in_float32(row):
    X, y = row.stream()
    expected = bj.run(row.algorithm, row.roomy(), X, y, block_size=1)
    assert_same(bj.run(row.algorithm, row.roomy(), X, y), expected, FLOAT32)


@registry.some
def test_skipped_rows_are_as_if_they_were_not_there(row, double):
    X, y = row.stream()
    weight = np.random.default_rng(5).random(N) < 0.5
    state = row.init(dtype=jnp.float64, capacity=row.budget + 2)
    actual, scores = bj.run(row.algorithm, state, X, y, weight=weight, block_size=7)
    expected = loop(row.algorithm, state, X[weight], y[weight])
    assert_same((actual, scores[weight]), expected, 1e-9)
    assert int(actual.num_seen) == weight.sum()


@pytest.mark.parametrize("rate", [0.5, 0.9, 2.0])
def test_a_model_that_forgets_at_once(rate):
    """A block's decay underflows: 0.1 to the 60th, and to the 720th."""
    row = next(row for row in registry.ROWS if row.name == "norma")
    X, y = row.stream()
    state = row.roomy(learning_rate=rate, regularization=1.0, average=True)
    actual = bj.run(row.algorithm, state, X, y, block_size=N)
    expected = bj.run(row.algorithm, state, X, y, block_size=1)
    assert_same(actual, expected, FLOAT32)
    assert np.abs(actual[1]).max() > 0.1


@pytest.mark.parametrize(
    ("n", "block_size"),
    [(1, 64), (63, 64), (64, 64), (65, 64), (200, 64), (60, 1), (60, 2), (60, 256)],
)
def test_any_length_of_stream_and_block(n, block_size):
    row = next(row for row in registry.ROWS if row.name == "pegasos-merge")
    X, y = row.stream(n)
    actual = bj.run(row.algorithm, row.roomy(), X, y, block_size=block_size)
    assert_same(actual, loop(row.algorithm, row.roomy(), X, y), FLOAT32)


def test_a_partial_last_block_is_the_same_program():
    row = registry.ROWS[0]
    algorithm, traces = row.counted()
    X, y = row.stream(200)
    bj.run(algorithm, row.init(), X[:192], y[:192], block_size=64)
    whole = len(traces)
    traces.clear()
    bj.run(algorithm, row.init(), X, y, block_size=64)
    assert len(traces) == whole
