"""A state holds its learner, can be donated, and what it takes is checked at once."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import registry

import budgetjax as bj
from budgetjax import losses
from budgetjax.cli.reports import aligned
from budgetjax.online import driver
from budgetjax.online.edits import write
from budgetjax.online.slots import FREE
from budgetjax.online.support_set import Candidate

pytestmark = pytest.mark.usefixtures("plain_loops")

X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
y = np.where(X[:, 0] > 0, 1, -1).astype(np.int32)
SHAPE = {"num_features": 2, "budget": 3}


def made(learner, **more):
    return learner.init(bj.RBF(1.0), **SHAPE | more)


@pytest.mark.parametrize("kind", [bj.Pegasos, bj.NORMA, bj.Fourier, bj.AROW])
def test_a_learner_is_no_state(kind, as_installed):
    wanted = r"state must be of a learner, such as budgetjax\.Pegasos\(\)\.init\(...\)"
    for where, call in {
        "run": lambda: bj.run(kind(), X, y),
        "step": lambda: bj.step(kind(), X[0], y[0]),
        "sweep": lambda: bj.sweep(kind(), X, y),
        "fit_stream": lambda: bj.fit_stream(kind(), [(X, y)]),
    }.items():
        with pytest.raises(ValueError, match=f"{where}: {wanted}, got {kind.__name__}"):
            call()


def test_what_is_no_state_is_refused(as_installed):
    model = bj.StreamModel(bj.TableModel(made(bj.Pegasos())))
    for message, call in {
        "run: state must be of a learner, .* got StreamModel": (
            lambda: bj.run(model, X, y)
        ),
        "predict: model must be the state .*, or a model of a solver, got int": (
            lambda: bj.predict(3, X)
        ),
        "refit: state must be of a learner, .* got int": lambda: bj.refit(3, X, y),
    }.items():
        with pytest.raises(ValueError, match=message):
            call()


def test_the_learner_stays(tmp_path):
    state = made(bj.NORMA())
    bj.save(tmp_path / "norma", state)
    kept = bj.load(tmp_path / "norma")
    stacked = jax.vmap(lambda rate: made(bj.NORMA(learning_rate=rate)))(jnp.ones(2))
    for each in (kept, stacked, jax.tree.map(jnp.copy, state)):
        assert type(each.learner) is bj.NORMA


def test_a_new_state_can_be_donated():
    for row in registry.firsts():
        leaves = [
            jax.random.key_data(leaf)
            if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
            else leaf
            for leaf in jax.tree.leaves(row.init())
        ]
        pointers = {leaf.unsafe_buffer_pointer() for leaf in leaves}
        assert len(pointers) == len(leaves), row.name
    gamma = jnp.float32(1.0)
    kernel = bj.Perceptron().init(bj.RBF(gamma) + bj.RBF(gamma), **SHAPE).kernel
    pointers = {leaf.unsafe_buffer_pointer() for leaf in jax.tree.leaves(kernel)}
    assert len(pointers | {gamma.unsafe_buffer_pointer()}) == 3


def test_a_step_is_one_program():
    (row,) = registry.named("perceptron-margin-multiclass")
    row, traces = row.counted()
    rows, labels = row.stream()
    state = bj.step(row.init(), rows[0], labels[0])
    once = len(traces)
    for x, label in zip(rows, labels.tolist(), strict=True):
        state = bj.step(state, x.astype(float), label, 1)
    assert len(traces) == once > 0
    expected, _ = bj.run(row.init(), rows, labels)
    assert state.num_seen == expected.num_seen + 1


def test_a_grid_checks_the_values_it_holds():
    def init(gamma, budget):
        return bj.Perceptron().init(
            bj.RBF(gamma), num_features=2, budget=budget, capacity=10
        )

    for axes, message in (
        ({"gamma": [-1.0, 1.0], "budget": [5]}, "gamma must be .* got .*-1"),
        ({"gamma": [1.0], "budget": [5, 500]}, "budget must be at most .* 10, got 500"),
    ):
        with pytest.raises(ValueError, match=message):
            bj.grid(**axes).init(init)
    assert bj.grid(gamma=[1.0], budget=[5, 7]).init(init).num_seen.shape == (2,)


def test_a_table_shows_whole_numbers_whole():
    table = bj.grid(budget=[12000, 500]).table(error=np.array([0.25, 1 / 3]))
    numbers = ["12000", "0.25", "500", "0.3333"]
    assert aligned(table).split() == ["budget", "error", *numbers]


@losses.classification_loss
def smooth_hinge(score, label):
    return jnp.maximum(0, 1 - label * score) ** 2


def test_a_loss_says_what_it_takes():
    partial = functools.partial(losses.hinge)
    for loss in (losses.hinge, losses.logistic, smooth_hinge, partial):
        state = made(bj.SGD(loss=loss))
        assert losses.takes_labels(state.learner.loss)
        with pytest.raises(ValueError, match="y must be -1 or"):
            bj.run(state, X, X[:, 0])
    for loss in (optax.losses.huber_loss, losses.quantile(0.5), losses.absolute):
        state = made(bj.SGD(loss=loss), num_classes=None)
        assert not losses.takes_labels(state.learner.loss)
        with pytest.raises(ValueError, match=r"labels for 2 classes.*got \w+; .*None"):
            made(bj.SGD(loss=loss))
    with pytest.raises(ValueError, match=r"one of numbers for real .*got hinge"):
        made(bj.SGD(loss=losses.hinge), num_classes=None)


def test_a_regressor_predicts_values():
    state = made(bj.SGD(learning_rate=0.5), num_classes=None)
    state = bj.step(state, X[0], 10.0)
    np.testing.assert_allclose(bj.predict(state, X[:1]), [10.0])
    assert bj.predict(made(bj.Pegasos()), X[:1]).tolist() == [-1]


@pytest.mark.parametrize(
    "strategy",
    [
        bj.RemoveOldest(),
        bj.RemoveLargestMargin(),
        bj.Merge(),
        bj.ProjectOntoCandidate(),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_every_strategy_fills_the_slot_that_a_merge_of_three_has_freed(strategy):
    kernel = bj.RBF(jnp.float32(1.0))
    state = bj.Perceptron().init(kernel, num_features=2, budget=4)
    hole = state.expansion._replace(
        ages=jnp.array([3, FREE, 2, FREE, FREE], jnp.int32), num_active=jnp.int32(2)
    )

    @jax.jit
    def admitted():
        zeros = jnp.zeros(5)
        zero, one = zeros[0], jnp.ones(1)
        candidate = Candidate(
            jnp.ones(2), zero + 2, one, jnp.int32(4), one[0], zeros, zero
        )
        started = strategy.start(kernel, hole, 0)
        _, edits = started.insert(kernel, hole, candidate)
        return edits.rows[-1].slot, write(hole, edits).mask

    slot, mask = admitted()
    assert slot == 1
    assert np.flatnonzero(mask).tolist() == [0, 1, 2]


def test_half_precision_is_refused_where_a_kernel_matrix_is_inverted():
    for kind in (bj.AROW, bj.Projectron, bj.Nystrom):
        message = f"{kind.__name__}.init: dtype must be float32 or"
        with pytest.raises(ValueError, match=message):
            made(kind(), dtype=jnp.bfloat16)
    with pytest.raises(ValueError, match="Project: dtype must be float32 or"):
        made(bj.Pegasos(), maintenance=bj.Project(), dtype=jnp.bfloat16)
    state = made(bj.Pegasos(), dtype=jnp.bfloat16)
    expansion = state.expansion
    ages = expansion.ages.at[0].set(1)
    state = state._replace(
        expansion=expansion._replace(ages=ages, num_active=1 + 0 * ages[0])
    )
    for where, call in {
        "refit": lambda: bj.refit(state, X, y),
        "one_class": lambda: bj.one_class(state, X),
        "compress": lambda: bj.compress(state, 3),
    }.items():
        with pytest.raises(ValueError, match=f"{where}: dtype must be float32 or"):
            call()


@pytest.mark.parametrize(
    "strategy", [bj.Merge(), bj.MultiMerge(), bj.MergeBestPair()], ids=repr
)
def test_merging_keeps_bfloat16(strategy):
    state = made(bj.Pegasos(), maintenance=strategy, dtype=jnp.bfloat16)
    new, scores = jax.eval_shape(lambda state: bj.run(state, X, y), state)
    assert scores.dtype == jnp.bfloat16
    chex.assert_trees_all_equal_dtypes(new, state)


def test_what_is_not_finite_says_why():
    state = made(bj.AROW())
    for rows, why in (
        (X * np.float32(1e20), "kernel values overflow float32; scale X down"),
        (X + 1000, r"so far from 0, with the mean at 1.41e\+03 .* centre X"),
        (X, "coefficients overflow float32; a learning rate"),
    ):
        kernel = bj.Linear() if "overflow float32; s" in why else state.kernel
        wrong = state._exchange(kernel=kernel)
        scores, weights = jnp.full(len(X), jnp.nan), jnp.ones(len(X))
        with pytest.raises(ValueError, match=why):
            driver.check_result(wrong, scores, jnp.array(rows), weights)


def test_second_order_learners_survive_a_kernel_matrix_that_is_not_positive():
    """At a mean of 100 and more float32 has no digits for the kernel."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(600, 3)).astype(np.float32)
    labels = np.where(rows[:, 0] * rows[:, 1] > 0, 1, -1)
    for learner, more in (
        (bj.AROW(), {}),
        (bj.PassiveAggressive(), {"maintenance": bj.Project(best=True)}),
    ):
        state = learner.init(bj.RBF(0.3), num_features=3, budget=20, **more)
        for far in (100, 1000):
            new, scores = bj.run(state, rows + np.float32(far), labels)
            assert np.all(np.isfinite(scores))
            if far == 100:
                assert new.num_mistakes < 200


@pytest.mark.parametrize(
    "kind", [bj.Perceptron, bj.Pegasos, bj.SGD, bj.PassiveAggressive, bj.AROW]
)
def test_what_cannot_be_merged_is_projected(kind):
    gaussian = kind().init(bj.RBF(1.0), **SHAPE).maintenance
    linear = kind().init(bj.Linear(), **SHAPE).maintenance
    assert isinstance(gaussian, bj.Merge)
    assert isinstance(linear, bj.Project)


def test_states_of_anything_print():
    """Shapes, placements, axes, nothing and traced numbers stand where arrays do."""
    state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=3)
    assert "learner=Perceptron(margin=0)" in repr(state)
    shapes = repr(jax.eval_shape(lambda: state))
    assert "vectors=float32[4, 2]" in shapes
    assert "counts=Counts(seen=Words(high=int32[], low=int32[]), " in shapes
    assert "budget=None" in repr(jax.tree.map(lambda leaf: None, state))
    assert "budget=0" in repr(jax.tree.map(lambda leaf: 0, state))
    assert "Sharding" in repr(jax.tree.map(lambda leaf: leaf.sharding, state))
    traced = []
    jax.eval_shape(lambda state: traced.append(repr(state)), state)
    assert traced == [shapes]


@pytest.mark.parametrize("kind", [bj.Pegasos, bj.Fourier, bj.Nystrom, bj.AROW])
def test_a_checkpointer_may_map_a_state_to_objects_of_its_own(kind):
    """As orbax does: an empty tuple is a leaf for it; it keeps paths and values."""
    state = made(kind(), budget=4)

    def is_empty(node):
        return isinstance(node, tuple | dict) and not node

    paths, structure = jax.tree_util.tree_flatten_with_path(state, is_leaf=is_empty)
    objects = jax.tree.unflatten(structure, [object() for _ in paths])
    kept = jax.tree_util.tree_flatten_with_path(objects)[0]
    assert [path for path, _ in kept] == [path for path, _ in paths]
    values = jax.tree.map(lambda _, value: value, objects, state)
    assert jax.tree.structure(values) == jax.tree.structure(state)
    chex.assert_trees_all_equal(values, state)
