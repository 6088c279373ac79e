"""The block engine gives what the plain scan of `step` gives."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
import runs
from compare import FLOAT32, assert_close, assert_same, kept
from compiling import AS_USERS_COMPILE, quick_to_compile
from hypothesis import given, settings
from hypothesis import strategies as st
from marks import first_quick, slow
from registry import N

import budgetjax as bj


@registry.each
@settings(max_examples=6, deadline=None, derandomize=True)
@given(seed=st.integers(0, 10**6), skipped=st.sampled_from([0.0, 0.3]))
def test_blocks_equal_the_loop_of_steps(row, seed, skipped):
    """And room for more support vectors and more features changes nothing."""
    jax.config.update("jax_enable_x64", True)
    try:
        X, y = row.stream(seed=seed)
        random = np.random.default_rng(seed)
        weight = (random.random(N) >= skipped) * random.choice([0.5, 1, 2], N)
        state = runs.exact(row)
        expected, expected_scores = runs.loop(row, state, X, y, weight)
        roomy = runs.roomy(row)
        actual, scores = runs.blocks(row, roomy, X, y, weight)
        chex.assert_trees_all_equal_shapes_and_dtypes(actual, roomy)
        runs.check_dtypes(actual, np.float64)
        assert scores.dtype == np.float64
        assert int(actual.expansion.num_active) <= row.budget
        assert_close(runs.without_room(actual, state), kept(expected), 1e-9)
        assert_close(scores, expected_scores, 1e-9)
    finally:
        jax.config.update("jax_enable_x64", False)


USERS = ("pegasos-merge", "arow-multiclass", "fourier-average")


@pytest.mark.parametrize("name", first_quick(USERS), ids="@{}".format)
def test_blocks_equal_the_plain_scan_as_users_compile_them(name):
    (row,) = registry.named(name)
    X, y = row.stream()
    run = bj.run
    with quick_to_compile(False):
        actual = jax.jit(run, compiler_options=AS_USERS_COMPILE)(row.roomy(), X, y)
    assert_same(actual, run(row.roomy(), X, y, block_size=1), FLOAT32)


@registry.some
def test_skipped_rows_are_as_if_they_were_not_there(row, double):
    X, y = row.stream()
    weight = np.random.default_rng(5).random(N) < 0.5
    actual, scores = runs.blocks(row, runs.roomy(row), X, y, weight)
    state, expected = runs.loop(row, runs.exact(row), X[weight], y[weight])
    assert_close(runs.without_room(actual, state), kept(state), 1e-9)
    assert_close(scores[weight], expected, 1e-9)
    assert int(actual.num_seen) == weight.sum()


@registry.some
def test_rows_of_weight_0_may_be_padding_of_any_kind(row, double):
    """NaN, infinite and huge rows, and labels that the model does not know."""
    X, y = row.stream()
    weight = np.random.default_rng(5).random(N) < 0.5
    padded, labels = X.astype(np.float64), y.copy()
    labels[~weight] = 77 if y.dtype == np.int32 else np.nan
    padded[~weight] = np.resize([np.nan, np.inf, 1e200], (~weight).sum())[:, None]
    expected, expected_scores = runs.blocks(row, runs.roomy(row), X, y, weight)
    actual, scores = runs.blocks(row, runs.roomy(row), padded, labels, weight)
    # The spare row of a strategy is arbitrary.
    chex.assert_trees_all_equal(kept(actual), kept(expected))
    np.testing.assert_array_equal(scores[weight], expected_scores[weight])
    assert np.all(np.isnan(scores[~weight]))
    # Step by step it is as if they were not there, to the last bit.
    expected, _ = runs.loop(row, runs.exact(row), X[weight], y[weight])
    actual, _ = runs.loop(row, runs.exact(row), padded, labels, weight)
    chex.assert_trees_all_equal(kept(actual), kept(expected))


def test_scores_that_are_not_kept():
    (row,) = registry.named("perceptron-oldest-multiclass")
    X, y = row.stream()
    expected, _ = bj.run(row.roomy(), X, y)
    actual, scores = bj.run(row.roomy(), X, y, keep_scores=False)
    assert scores is None
    assert_same(actual, expected, FLOAT32)
    _, scores = bj.run(row.roomy(), X[:0], y[:0], keep_scores=False)
    assert scores is None
    expansion = actual.expansion
    terms = jnp.where(expansion.mask[:, None], jnp.inf, expansion.coefficients_and_sums)
    broken = actual._replace(expansion=expansion._replace(coefficients_and_sums=terms))
    with pytest.raises(ValueError, match="run: the model must be finite, got one"):
        bj.run(broken, X, y, keep_scores=False)


@pytest.mark.parametrize("rate", [0.5, *slow(0.9, 2.0)])
def test_a_model_that_forgets_at_once(rate):
    """A block's decay underflows: 0.1 to the 60th, and to the 720th."""
    (row,) = registry.named("norma")
    X, y = row.stream()
    state = row.roomy(learning_rate=rate, regularization=1.0, average=True)
    actual = bj.run(state, X, y, block_size=N)
    expected = bj.run(state, X, y, block_size=1)
    assert_same(actual, expected, FLOAT32)
    assert np.abs(actual[1]).max() > 0.1


@registry.some
def test_runs_on_chunks_equal_the_loop_of_steps(row, double):
    X, y = row.stream(2 * N)
    half, first = runs.blocks(row, runs.roomy(row), X[:N], y[:N])
    whole, second = runs.blocks(row, half, X[N:], y[N:])
    state, expected = runs.loop(row, runs.exact(row), X, y)
    assert_close(runs.without_room(whole, state), kept(state), 1e-12)
    assert_close(np.concatenate([first, second]), expected, 1e-12)


@pytest.mark.parametrize(
    ("n", "block_size"),
    [(1, 64), *slow((64, 64), (65, 64), (60, 2), (60, 256))],
)
def test_any_length_of_stream_and_block(n, block_size):
    """One learner, whose model shrinks by itself: it tells rounds from examples."""
    (row,) = registry.named("pegasos-oldest")
    X, y = row.stream(n)
    actual = bj.run(row.roomy(), X, y, block_size=block_size)
    assert_same(actual, runs.loop(row, row.roomy(), X, y), FLOAT32)


def test_a_partial_last_block_is_traced_as_a_whole_one():
    row = registry.ROWS[0]
    row, traces = row.counted()
    X, y = row.stream(200)

    def run(X, y):
        return bj.run(row.init(), X, y, block_size=64)

    jax.eval_shape(run, X[:192], y[:192])
    whole = len(traces)
    jax.eval_shape(run, X, y)
    assert len(traces) == whole > 0
