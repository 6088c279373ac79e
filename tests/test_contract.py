"""What every learner must do, over one registry of all of them."""

import functools
import inspect
import itertools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import registry
import runs
from compare import FLOAT32, assert_close, assert_same, kept
from marks import first_quick, slow
from registry import N

import budgetjax as bj
from budgetjax import losses
from budgetjax.registry import learner_classes

# An operation outside `jit` is a program of its own, so these stand for all: a removal
# that draws, an average of iterates on features, and a merge.
EAGER = ("perceptron-random", "fourier-average", "pegasos-merge")


@registry.only(*EAGER)
def test_jit_equals_eager(row, double):
    X, y = row.stream()
    states, _ = runs.steps(row, runs.exact(row), X, y)
    state = jax.tree.map(lambda leaf: jnp.asarray(leaf[-2]), states)
    actual = bj.step(state, X[-1], y[-1], np.float64(1))
    expected = jax.tree.map(lambda leaf: leaf[-1], states)
    assert_close(kept(actual), kept(expected), 1e-9)


def sweep_of(row, X, y):
    """Models of several budgets and kernels, and what they learn side by side."""

    def one(budget, gamma):
        state = row.roomy(kernel=row.kernel_of(gamma), budget=budget)
        return bj.run(state, X, y)

    return jax.vmap(one)


GAMMAS = np.array([0.4, 1.0, 3.0], np.float32)


# Families that `test_sweep` leaves out.
@registry.only("perceptron-largest-margin-multiclass", "projectron", "fourier-average")
def test_sweep_equals_single_runs(row):
    X, y = row.stream()
    budgets = np.array([4, 10, 26])
    # Taken apart in NumPy, where an index compiles nothing.
    leaves = jax.device_get(jax.jit(sweep_of(row, X, y))(budgets, GAMMAS))
    for index, (budget, gamma) in enumerate(zip(budgets, GAMMAS, strict=True)):
        state = row.roomy(kernel=row.kernel_of(gamma), budget=int(budget))
        one = jax.tree.map(lambda leaf, index=index: jnp.asarray(leaf[index]), leaves)
        assert_same(one, bj.run(state, X, y), FLOAT32)
        assert int(one[0].expansion.num_active) <= budget


@registry.some
def test_new_values_do_not_retrace(row):
    X, y = row.stream()
    budgets = np.array([4, 10, 26]) if row.budget < N else np.array([60, 62, 64])
    row, traces = row.counted()
    sweep = sweep_of(row, X, y)
    jax.eval_shape(sweep, budgets, GAMMAS)
    traced_once = len(traces)
    jax.eval_shape(sweep, budgets[::-1], 2 * GAMMAS)
    # A single model has the shapes of the sweep's models, so it shares their trace.
    state = row.roomy(kernel=row.kernel_of(GAMMAS[0]), budget=int(budgets[0]))
    jax.eval_shape(lambda state: bj.run(state, X, y), state)
    assert len(traces) == traced_once > 0


@registry.each
def test_dtypes_and_shapes_never_change(row, double):
    """In float32, where there are 64-bit types; `test_blocks` has float64."""
    X, y = row.stream()
    state = row.roomy(dtype=jnp.float32)
    new, scores = jax.eval_shape(lambda state: bj.run(state, X, y), state)
    chex.assert_trees_all_equal_shapes_and_dtypes(new, state)
    assert scores.dtype == jnp.float32
    assert scores.shape == ((N,) if row.num_classes <= 2 else (N, row.num_classes))
    runs.check_dtypes(state, jnp.float32)


@registry.each
def test_support_set_stays_in_order(row, double):
    states, scores = runs.steps(row, runs.exact(row), *row.stream())
    assert not np.any(scores[0]), "an empty model scores 0"
    masks = np.asarray(jax.tree.map(jnp.asarray, states.expansion).mask)
    for i, mask in enumerate(masks):
        expansion = jax.tree.map(lambda leaf, i=i: leaf[i], states.expansion)
        active = int(expansion.num_active)
        assert active <= row.budget
        assert active == mask.sum()
        if row.unlike != registry.LEAVES_HOLES:
            np.testing.assert_array_equal(
                mask, np.arange(len(mask)) < active, "active slots come first"
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
    last = jax.tree.map(lambda leaf: leaf[-1], states)
    assert row.unlike or active == min(row.budget, int(last.num_updates))


@registry.some
@pytest.mark.parametrize(
    "make",
    [
        lambda X: np.zeros_like(X),
        *slow(
            lambda X: np.ones_like(X),
            lambda X: np.repeat(X[:3], len(X) // 3, axis=0),
            lambda X: 1e15 * X,
            lambda X: 1e-30 * X,
        ),
    ],
    ids=["zero", "constant", "duplicate", "huge", "tiny"],
)
def test_finite_on_odd_streams(row, make):
    X, y = row.stream()
    if np.abs(make(X)).max() > 1e9 and not isinstance(row.kernel, bj.RBF):
        with pytest.raises(ValueError, match=r"score .* overflow"):
            bj.run(row.roomy(), make(X), y)
        return
    state, scores = bj.run(row.roomy(), make(X), y)
    assert np.all(np.isfinite(scores))
    for leaf in jax.tree.leaves(state):
        assert np.all(np.isfinite(leaf))


@registry.some
def test_budget_beyond_the_stream_is_no_budget(row):
    X, y = row.stream()
    state, scores = bj.run(row.roomy(budget=N), X, y)
    wider, wider_scores = bj.run(row.roomy(budget=N + 4), X, y)
    if row.unlike == registry.FIXED_FEATURES:
        return
    np.testing.assert_allclose(scores, wider_scores, rtol=1e-4, atol=1e-4)
    if row.unlike == registry.FEW_ENTER:
        assert int(state.expansion.num_active) == int(wider.expansion.num_active)
        return
    assert int(state.expansion.num_active) == int(state.num_updates)
    assert int(wider.expansion.num_active) == int(state.num_updates)


@registry.some
def test_run_leaves_the_old_state_alone(row):
    X, y = row.stream()
    state = row.roomy()
    copy = jax.tree.map(np.array, state)
    bj.run(state, X, y)
    chex.assert_trees_all_equal(jax.device_get(state), copy)


@registry.each
def test_a_restart_gives_the_state_of_init(row):
    """A fold of a refit then starts with nothing that held-out rows have taught."""
    X, y = row.stream()
    state, _ = bj.run(row.roomy(), X, y)
    empty = state.restart()
    chex.assert_trees_all_equal(*map(jax.device_get, (empty, row.roomy())))


def test_prediction_blocks_agree_with_one_matrix():
    row = registry.ROWS[0]
    X, y = row.stream()
    state, _ = bj.run(row.roomy(), X, y)
    support = bj.support(state)
    rows = np.random.default_rng(0).normal(size=(2500, 3)).astype(np.float32)
    expected = row.kernel.gram(rows, support.vectors) @ support.coefficients[:, 0]
    for n in (1, 1024, 1025, 2500):
        scores = bj.decision_function(state, rows[:n])
        np.testing.assert_allclose(scores, expected[:n], rtol=1e-4, atol=1e-5)
        labels = bj.predict(state, rows[:n])
        assert labels.shape == (n,)
        np.testing.assert_array_equal(labels, np.where(scores > 0, 1, -1))


# A value of every hyperparameter, and of every argument of `init` but the kernel, the
# features and the seed, which is not its default.
NOT_DEFAULT = {
    "budget": 4,
    "num_classes": 3,
    "num_outputs": 2,
    "capacity": 9,
    "dtype": jnp.bfloat16,
    "maintenance": bj.RemoveOldest(),
    "regularization": 0.02,
    "learning_rate": 0.02,
    "loss": losses.logistic,
    "average": True,
    "project_to_ball": True,
    "confidence": 0.3,
    "drift": 0.02,
    "moves": 3,
    "penalty": 0.7,
    "variant": "PA",
    "vectors": np.eye(2, 3, dtype=np.float32),
    "optimizer": optax.sgd(0.1),
    "novelty": 0.03,
    "noise": 0.3,
    "forgetting": 0.02,
    "alpha": 0.4,
    "margin": 0.5,
    "threshold": 0.3,
    "margin_updates": True,
    "same_class": True,
    "rule": "basic",
    "phi": 0.9,
    "epsilon": 0.3,
    "radius": 3.0,
    "share": 0.02,
    "level": 0.5,
    "rate": 0.1,
    "fast": True,
}
# So says the docstring.
DOCUMENTED = {("penalty", "variant")}


@pytest.mark.parametrize("name", first_quick(learner_classes()))
def test_every_pair_of_arguments_is_done_or_refused(name):
    """One that changes nothing of the state is an error."""
    kind = learner_classes()[name]
    own = kind().get_params(deep=False)
    usual = {"num_features": 3, "budget": 5}
    if "regularization" in own:
        usual["regularization"] = 0.01
    if "num_outputs" in kind.takes and "num_classes" not in kind.takes:
        usual["num_classes"] = None
    lacks = "NOT_DEFAULT lacks another value of a new argument"
    assert own.keys() <= NOT_DEFAULT.keys(), lacks
    shared = inspect.signature(kind.init).parameters.keys()
    shared -= {"self", "kernel", "num_features", "seed"}
    assert shared <= NOT_DEFAULT.keys(), lacks

    @functools.cache
    def found(*names):
        given = usual | {one: NOT_DEFAULT[one] for one in names}
        try:
            learner, given = registry.split(kind(), given)
            state = learner.init(bj.RBF(0.5), **given)
        except ValueError:
            return None
        return str(jax.tree.structure(state)), *map(repr, jax.tree.leaves(state))

    for pair in itertools.combinations(sorted(own.keys() | shared), 2):
        if found(*pair) is not None:
            for one, other in (pair, pair[::-1]):
                if (one, other) not in DOCUMENTED:
                    assert found(*pair) != found(other), f"{one} with {other}"


@pytest.mark.parametrize("learner", [bj.AROW(), bj.Nystrom()], ids=["arow", "nystrom"])
def test_given_vectors_outlive_a_restart(learner):
    X, y = registry.ROWS[0].stream()
    fresh = learner.init(bj.RBF(0.5), num_features=3, budget=10, vectors=X[:8])
    state, _ = bj.run(fresh, X, y, block_size=1)
    empty = state.restart()
    np.testing.assert_array_equal(*(bj.support(one)[0] for one in (empty, fresh)))
    # The spare row of the vectors is arbitrary.
    old = fresh.expansion
    same = empty.expansion._replace(vectors=old.vectors, squares=old.squares)
    empty = empty._replace(expansion=same)
    chex.assert_trees_all_equal(*map(jax.device_get, (empty, fresh)))
