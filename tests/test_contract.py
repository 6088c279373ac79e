"""What every learner must do, over one registry of all of them."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from compare import FLOAT32, assert_same, kept

import budgetjax as bj


def loop(row, state, X, y):
    """The definition of a run: one compiled step after the other."""
    step = jax.jit(row.algorithm.step)
    scores = []
    for x, label in zip(X, y, strict=True):
        scores.append(bj.decision_function(state, x[None])[0])
        state = step(state, x, label)
    return state, jnp.stack(scores)


@registry.some
def test_run_equals_loop_of_steps(row, double):
    X, y = row.stream()
    state = row.init(dtype=jnp.float64)
    assert_same(bj.run(row.algorithm, state, X, y), loop(row, state, X, y), 1e-12)


@registry.some
def test_jit_equals_eager(row):
    X, y = row.stream()
    state, _ = bj.run(row.algorithm, row.init(), X, y)
    if row.name == "perceptron-unbudgeted":
        state = row.init()
    compiled = jax.jit(row.algorithm.step)(state, X[0], y[0])
    assert_same(compiled, row.algorithm.step(state, X[0], y[0]), FLOAT32)


@registry.some
def test_chunks_equal_one_run(row):
    X, y = row.stream()
    whole, scores = bj.run(row.algorithm, row.init(), X, y)
    half, first = bj.run(row.algorithm, row.init(), X[:30], y[:30])
    state, second = bj.run(row.algorithm, half, X[30:], y[30:])
    assert_same((state, jnp.concatenate([first, second])), (whole, scores), FLOAT32)


@registry.some
def test_resuming_from_stored_leaves_is_exact(row):
    X, y = row.stream()
    state, _ = bj.run(row.algorithm, row.init(), X[:30], y[:30])
    leaves, structure = jax.tree.flatten(jax.device_get(state))
    stored = [leaf.tobytes() for leaf in leaves]
    restored = structure.unflatten(
        jnp.asarray(np.frombuffer(data, leaf.dtype).reshape(leaf.shape))
        for data, leaf in zip(stored, leaves, strict=True)
    )
    actual = bj.run(row.algorithm, restored, X[30:], y[30:])
    expected = bj.run(row.algorithm, state, X[30:], y[30:])
    chex.assert_trees_all_equal(actual, expected)


@registry.some
def test_sweep_equals_single_runs_and_new_values_do_not_retrace(row):
    X, y = row.stream()
    budgets = np.array([4, 10, 26]) if row.budget < 60 else np.array([60, 70, 80])
    gammas = np.array([0.4, 1.0, 3.0], np.float32)
    capacity = int(budgets.max())
    algorithm, traces = row.counted()

    def init(budget, gamma):
        return row.init(row.kernel_of(gamma), budget=budget, capacity=capacity)

    @jax.jit
    def sweep(budgets, gammas):
        states = jax.vmap(init)(budgets, gammas)
        return jax.vmap(lambda state: bj.run(algorithm, state, X, y))(states)

    stacked = sweep(budgets, gammas)
    traced_once = len(traces)
    for index, (budget, gamma) in enumerate(zip(budgets, gammas, strict=True)):
        single = bj.run(algorithm, init(int(budget), gamma), X, y)
        one = jax.tree.map(lambda leaf, index=index: leaf[index], stacked)
        assert_same(one, single, FLOAT32)
        assert int(one[0].expansion.num_active) <= budget
    sweep(budgets[::-1], 2 * gammas)
    # The single runs have the shapes of the sweep's models, so they share its trace.
    assert len(traces) == traced_once

    # And the model built with no slot beyond its budget.
    exact = bj.run(
        row.algorithm, row.init(row.kernel_of(gammas[1]), budget=int(budgets[1])), X, y
    )
    one = jax.tree.map(lambda leaf: leaf[1], stacked)
    for actual, wanted in zip(bj.support(one[0]), bj.support(exact[0]), strict=True):
        tolerance = FLOAT32 * max(1.0, np.abs(wanted).max())
        np.testing.assert_allclose(actual[: budgets[1]], wanted, FLOAT32, tolerance)
        assert not np.any(actual[budgets[1] :]), "slots beyond the budget are empty"


@registry.each
def test_dtypes_and_shapes_never_change(row, x64):
    X, y = row.stream()
    for dtype in (jnp.float32, jnp.float64) if x64 else (jnp.float32,):
        state = row.init(dtype=dtype)
        new, scores = jax.eval_shape(
            lambda state: bj.run(row.algorithm, state, X, y), state
        )
        chex.assert_trees_all_equal_shapes_and_dtypes(new, state)
        assert scores.dtype == dtype
        leaves = jax.tree.leaves(state)
        assert {leaf.dtype.name for leaf in leaves} <= {"int32", np.dtype(dtype).name}
        assert not any(leaf.aval.weak_type for leaf in leaves)


@registry.each
def test_support_set_stays_in_order(row):
    X, y = row.stream()
    budget = row.budget
    state = row.init(capacity=budget + 3)
    step = jax.jit(row.algorithm.step)
    for x, label in zip(X, y, strict=True):
        state = step(state, x, label)
        mask = np.asarray(state.expansion.mask)
        expansion = jax.device_get(state.expansion)
        active = int(expansion.num_active)
        assert active <= budget
        assert active == mask.sum()
        if row.unlike != registry.LEAVES_HOLES:
            np.testing.assert_array_equal(
                mask, np.arange(budget + 4) < active, "active slots come first"
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
            expansion.squares, np.sum(expansion.vectors**2, axis=1), rtol=1e-4
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
            bj.run(row.algorithm, row.init(), make(X), y)
        return
    state, scores = bj.run(row.algorithm, row.init(), make(X), y)
    assert np.all(np.isfinite(scores))
    for leaf in jax.tree.leaves(state):
        assert np.all(np.isfinite(leaf))


@registry.some
def test_budget_beyond_the_stream_is_no_budget(row):
    X, y = row.stream(30)
    state, scores = bj.run(row.algorithm, row.init(budget=30, capacity=35), X, y)
    wider, wider_scores = bj.run(row.algorithm, row.init(budget=34, capacity=35), X, y)
    if row.unlike == registry.FIXED_FEATURES:
        return
    np.testing.assert_allclose(scores, wider_scores, rtol=1e-4, atol=1e-4)
    if row.unlike == registry.FEW_ENTER:
        assert int(state.expansion.num_active) == int(wider.expansion.num_active)
        return
    assert int(state.expansion.num_active) == int(state.num_updates)
    assert int(wider.expansion.num_active) == int(state.num_updates)


@registry.some
def test_padding_columns_changes_nothing(row):
    X, y = row.stream()
    state, scores = bj.run(row.algorithm, row.init(), X, y)
    if row.unlike == registry.FIXED_FEATURES:
        return
    padded = np.concatenate([X, np.zeros((60, 2), np.float32)], axis=1)
    new, new_scores = bj.run(row.algorithm, row.init(num_features=5), padded, y)
    scale = np.abs(scores).max()
    np.testing.assert_allclose(new_scores, scores, rtol=FLOAT32, atol=FLOAT32 * scale)
    assert int(new.num_mistakes) == int(state.num_mistakes)
    np.testing.assert_array_equal(kept(new).expansion.ages, kept(state).expansion.ages)


@registry.some
def test_scores_are_those_of_the_model_before(row):
    X, y = row.stream()
    _, scores = bj.run(row.algorithm, row.init(), X, y)
    before, _ = bj.run(row.algorithm, row.init(), X[:30], y[:30])
    expected = bj.decision_function(before, X)[30]
    scale = np.abs(scores).max()
    np.testing.assert_allclose(scores[30], expected, rtol=FLOAT32, atol=FLOAT32 * scale)
    assert not np.any(scores[0]), "an empty model scores 0"
    shape = (60,) if row.num_classes <= 2 else (60, row.num_classes)
    assert scores.shape == shape


@registry.some
def test_run_leaves_the_old_state_alone(row):
    X, y = row.stream()
    state = row.init()
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
