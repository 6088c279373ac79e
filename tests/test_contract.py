"""What every learner must do, over one registry of all of them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from compare import FLOAT32, assert_same, compiled_step, kept, loop
from registry import N

import budgetjax as bj


@registry.some
def test_runs_on_chunks_equal_the_loop_of_steps(row, double):
    X, y = row.stream(2 * N)
    state = row.init(dtype=jnp.float64, capacity=row.budget + 2)
    half, first = bj.run(row.algorithm, state, X[:N], y[:N], block_size=7)
    whole, second = bj.run(row.algorithm, half, X[N:], y[N:], block_size=7)
    actual = whole, jnp.concatenate([first, second])
    assert_same(actual, loop(row.algorithm, state, X, y), 1e-12)


@registry.some
def test_jit_equals_eager(row, double):
    X, y = row.stream()
    state = row.init(dtype=jnp.float64, capacity=row.budget + 2)
    if row.name != "perceptron-unbudgeted":
        state, _ = bj.run(row.algorithm, state, X, y, block_size=7)
    example = X[0], y[0], np.float64(1)
    compiled = compiled_step(row.algorithm)(state, *example)
    assert_same(compiled, row.algorithm.step(state, *example), 1e-9)


@registry.some
def test_resuming_from_stored_leaves_is_exact(row):
    X, y = row.stream(2 * N)
    state, _ = bj.run(row.algorithm, row.roomy(), X[:N], y[:N])
    leaves, structure = jax.tree.flatten(jax.device_get(state))
    stored = [leaf.tobytes() for leaf in leaves]
    restored = structure.unflatten(
        jnp.asarray(np.frombuffer(data, leaf.dtype).reshape(leaf.shape))
        for data, leaf in zip(stored, leaves, strict=True)
    )
    actual = bj.run(row.algorithm, restored, X[N:], y[N:])
    expected = bj.run(row.algorithm, state, X[N:], y[N:])
    chex.assert_trees_all_equal(actual, expected)


@registry.some
def test_sweep_equals_single_runs_and_new_values_do_not_retrace(row):
    X, y = row.stream()
    budgets = np.array([4, 10, 26]) if row.budget < N else np.array([60, 62, 64])
    gammas = np.array([0.4, 1.0, 3.0], np.float32)
    algorithm, traces = row.counted()

    def init(budget, gamma):
        return row.roomy(kernel=row.kernel_of(gamma), budget=budget)

    @jax.jit
    def sweep(budgets, gammas):
        states = jax.vmap(init)(budgets, gammas)
        return jax.vmap(lambda state: bj.run(algorithm, state, X, y))(states)

    stacked = sweep(budgets, gammas)
    traced_once = len(traces)
    # Taken apart in NumPy, where an index compiles nothing.
    leaves = jax.device_get(stacked)
    for index, (budget, gamma) in enumerate(zip(budgets, gammas, strict=True)):
        state = init(int(budget), gamma)
        one = jax.tree.map(lambda leaf, index=index: jnp.asarray(leaf[index]), leaves)
        assert_same(one, bj.run(row.algorithm, state, X, y), FLOAT32)
        assert int(one[0].expansion.num_active) <= budget
        # It has the shapes of the sweep's models, so it shares their trace.
        jax.eval_shape(lambda state: bj.run(algorithm, state, X, y), state)
    sweep(budgets[::-1], 2 * gammas)
    assert len(traces) == traced_once > 0


@registry.each
def test_dtypes_and_shapes_never_change(row, x64):
    X, y = row.stream()
    for dtype in (jnp.float32, jnp.float64) if x64 else (jnp.float32,):
        state = row.roomy(dtype=dtype)
        new, scores = jax.eval_shape(
            lambda state: bj.run(row.algorithm, state, X, y), state
        )
        chex.assert_trees_all_equal_shapes_and_dtypes(new, state)
        assert scores.dtype == dtype
        leaves = jax.tree.leaves(state)
        assert {leaf.dtype.name for leaf in leaves} <= {"int32", np.dtype(dtype).name}
        assert not any(leaf.aval.weak_type for leaf in leaves)


@registry.each
def test_support_set_stays_in_order(row, double):
    X, y = row.stream()
    budget, capacity = row.budget, row.budget + 2
    state = row.init(dtype=jnp.float64, capacity=capacity)
    step = compiled_step(row.algorithm)
    for x, label in zip(X, y, strict=True):
        state = step(state, x, label, np.float64(1))
        mask = np.asarray(state.expansion.mask)
        expansion = jax.device_get(state.expansion)
        active = int(expansion.num_active)
        assert active <= budget
        assert active == mask.sum()
        if row.unlike != registry.LEAVES_HOLES:
            np.testing.assert_array_equal(
                mask, np.arange(capacity + 1) < active, "active slots come first"
            )
        free = ~mask[:-1]
        for array in (expansion.vectors, expansion.squares, expansion.coefficients):
            assert not np.any(array[:-1][free]), "free slots are zero"
        assert not np.any(expansion.coefficients[-1]), (
            "the spare row counts for nothing"
        )
        ages = expansion.ages[mask]
        assert len(set(ages)) == active
        np.testing.assert_allclose(
            expansion.squares, np.sum(expansion.vectors**2, axis=1), rtol=1e-9
        )
    assert row.unlike or active == min(budget, int(state.num_updates))


@registry.some
@pytest.mark.parametrize(
    "make",
    [
        lambda X: np.zeros_like(X),
        lambda X: np.ones_like(X),
        lambda X: np.repeat(X[:3], len(X) // 3, axis=0),
        lambda X: 1e15 * X,
        lambda X: 1e-30 * X,
    ],
    ids=["zero", "constant", "duplicate", "huge", "tiny"],
)
def test_finite_on_odd_streams(row, make):
    X, y = row.stream()
    if np.abs(make(X)).max() > 1e9 and not isinstance(row.kernel, bj.RBF):
        with pytest.raises(ValueError, match=r"score .* overflow"):
            bj.run(row.algorithm, row.roomy(), make(X), y)
        return
    state, scores = bj.run(row.algorithm, row.roomy(), make(X), y)
    assert np.all(np.isfinite(scores))
    for leaf in jax.tree.leaves(state):
        assert np.all(np.isfinite(leaf))


@registry.some
def test_budget_beyond_the_stream_is_no_budget(row):
    X, y = row.stream()
    state, scores = bj.run(row.algorithm, row.roomy(budget=N), X, y)
    wider, wider_scores = bj.run(row.algorithm, row.roomy(budget=N + 4), X, y)
    if row.unlike == registry.FIXED_FEATURES:
        return
    np.testing.assert_allclose(scores, wider_scores, rtol=1e-4, atol=1e-4)
    if row.unlike == registry.FEW_ENTER:
        assert int(state.expansion.num_active) == int(wider.expansion.num_active)
        return
    assert int(state.expansion.num_active) == int(state.num_updates)
    assert int(wider.expansion.num_active) == int(state.num_updates)


@registry.some
def test_slots_beyond_the_budget_and_columns_of_zeros_change_nothing(row):
    X, y = row.stream()
    budget = row.budget
    state, scores = bj.run(row.algorithm, row.roomy(), X, y)
    # Random features of more columns are others.
    more = 0 if row.unlike == registry.FIXED_FEATURES else 2
    padded = np.concatenate([X, np.zeros((N, more), np.float32)], axis=1)
    exact = row.init(num_features=registry.NUM_FEATURES + more)
    exact, exact_scores = bj.run(row.algorithm, exact, padded, y)
    scale = np.abs(scores).max()
    np.testing.assert_allclose(exact_scores, scores, rtol=FLOAT32, atol=FLOAT32 * scale)
    assert int(exact.num_mistakes) == int(state.num_mistakes)
    ages = kept(state).expansion.ages
    np.testing.assert_array_equal(kept(exact).expansion.ages, ages[:budget])
    vectors = np.asarray(bj.support(exact).vectors)
    assert not np.any(vectors[:, registry.NUM_FEATURES :])
    narrow = bj.support(exact)._replace(vectors=vectors[:, : registry.NUM_FEATURES])
    for actual, wanted in zip(bj.support(state), narrow, strict=True):
        tolerance = FLOAT32 * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(actual[:budget], wanted, FLOAT32, tolerance)
        assert not np.any(actual[budget:]), "slots beyond the budget are empty"


@registry.some
def test_scores_are_those_of_the_model_before(row):
    X, y = row.stream()
    _, scores = bj.run(row.algorithm, row.roomy(), X, y)
    # A row of weight 0 is as if it were not there.
    before, _ = bj.run(row.algorithm, row.roomy(), X, y, weight=np.arange(N) < 30)
    assert int(before.num_seen) == 30
    expected = bj.decision_function(before, X)[30]
    scale = np.abs(scores).max()
    np.testing.assert_allclose(scores[30], expected, rtol=FLOAT32, atol=FLOAT32 * scale)
    assert not np.any(scores[0]), "an empty model scores 0"
    shape = (N,) if row.num_classes <= 2 else (N, row.num_classes)
    assert scores.shape == shape


@registry.some
def test_run_leaves_the_old_state_alone(row):
    X, y = row.stream()
    state = row.roomy()
    copy = jax.tree.map(np.array, state)
    bj.run(row.algorithm, state, X, y)
    chex.assert_trees_all_equal(jax.device_get(state), copy)


def test_prediction_blocks_agree_with_one_matrix():
    row = registry.ROWS[0]
    X, y = row.stream(60)
    state, _ = bj.run(row.algorithm, row.init(), X, y)
    support = bj.support(state)
    for n in (0, 1, 1023, 1024, 1025, 5000):
        rows = np.random.default_rng(n).normal(size=(n, 3)).astype(np.float32)
        expected = row.kernel.gram(rows, support.vectors) @ support.coefficients[:, 0]
        np.testing.assert_allclose(
            bj.decision_function(state, rows), expected, rtol=1e-4, atol=1e-5
        )
        labels = bj.predict(state, rows)
        assert labels.shape == (n,)
        assert set(np.unique(labels)) <= {-1, 1}
