"""An algorithm that the package does not know: twenty lines, and every door is open."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import budgetjax as bj
from budgetjax.estimators import BudgetedKernelClassifier

X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1).astype(np.int32)


class State(NamedTuple):
    algorithm: Any
    kernel: Any
    expansion: Any
    maintenance: Any
    rate: Any
    first_rate: Any
    num_seen: Any
    num_mistakes: Any
    num_updates: Any


def init(
    kernel,
    *,
    num_features,
    budget,
    num_classes=2,
    rate=0.5,
    dtype=jnp.float32,
    capacity=None,
) -> State:
    sizes = num_features, budget, num_classes, capacity, dtype
    shared = bj.init_fields("fading", kernel, *sizes)
    rate = jnp.asarray(rate, dtype)
    return State(
        **shared, maintenance=bj.RemoveOldest(), rate=rate, first_rate=rate + 0
    )


def violates(state, score, y):
    return bj.losses.margin(score, y) <= 0


def update(state, score, y, candidate):
    step = state.rate * candidate.weight * bj.losses.margin_subgradient(score, y)
    candidate = candidate._replace(coefficients=step)
    _, edits = state.maintenance.insert(state.kernel, state.expansion, candidate)
    return state._replace(rate=0.99 * state.rate), edits


def restart(state):
    return bj.Perceptron.restart(state)._replace(rate=state.first_rate)


fading = bj.Algorithm("fading", init, violates, update, restart=restart)


@pytest.fixture(scope="module", autouse=True)
def registered():
    bj.register(fading)


def empty(rate=0.5):
    return init(bj.RBF(1.0), num_features=2, budget=10, rate=rate)


def test_a_run_is_its_steps():
    state, scores = bj.run(empty(), X, y)
    by_step = empty()
    for x, label in zip(X, y, strict=True):
        by_step = bj.step(by_step, x, label)
    assert int(by_step.num_updates) == int(state.num_updates) > 10
    np.testing.assert_allclose(by_step.rate, state.rate)
    np.testing.assert_allclose(
        bj.support(by_step).coefficients, bj.support(state).coefficients, rtol=1e-5
    )
    assert scores.shape == (60,)
    with pytest.raises(ValueError, match="state must be of fading, got one of pegasos"):
        bj.run(bj.Pegasos().init(bj.RBF(1.0), num_features=2, budget=10), X, y)


def test_sweeps_streams_refits_files_and_estimators(tmp_path):
    state, _ = bj.run(empty(), X, y)
    swept = bj.sweep(jax.vmap(empty)(jnp.array([0.5, 0.1])), X, y)
    np.testing.assert_allclose(swept.states.rate[0], state.rate)

    stream = bj.fit_stream(empty(), [(X[:40], y[:40]), (X[40:], y[40:])])
    np.testing.assert_array_equal(bj.predict(stream.state, X), bj.predict(state, X))

    better = bj.refit(state, X, y)
    assert np.mean(bj.predict(better, X) == y) > np.mean(bj.predict(state, X) == y)
    np.testing.assert_array_equal(better.rate, state.rate)

    bj.save(tmp_path / "model", better)
    # A type that `init` says it returns is known by the name of the algorithm.
    for like in (None, empty()):
        loaded = bj.load(tmp_path / "model", like=like)
        np.testing.assert_array_equal(bj.predict(loaded, X), bj.predict(better, X))

    estimator = BudgetedKernelClassifier(budget=10, algorithm="fading", gamma=1.0)
    assert estimator.fit(X, y).score(X, y) > 0.8
    with pytest.raises(ValueError, match="the name 'pegasos' must be free"):
        bj.register(dataclasses.replace(fading, name="pegasos"))


def test_a_memory_that_no_restart_forgets_is_refused_and_not_kept_in_folds():
    state, _ = bj.run(empty(), X, y)
    forgetful = dataclasses.replace(fading, restart=bj.Perceptron.restart)
    says = "restart of fading must be given, as rounds change .*, got rate"
    with pytest.raises(ValueError, match=says):
        state.restart()
    own_block = dataclasses.replace(forgetful, update=None, block=bj.Fourier.block)
    with pytest.raises(ValueError, match=r"restart of .*, got what its `block` change"):
        state.restart()
    # What is computed from the support set is no memory.
    for learner in (bj.Ahpatron(), bj.ALMA()):
        learned = learner.init(bj.RBF(1.0), num_features=2, budget=10)
        learned, _ = bj.run(learned, X, y)
        assert float(learned.restart().squared_norm) == 0


class RemoveYoungest(bj.Maintenance):
    seed: Any = 0
    ages: Any = ()

    def start(self, kernel, expansion, seed):
        return RemoveYoungest(jnp.array(seed, jnp.int32), expansion.ages)

    def insert(self, kernel, expansion, candidate):
        youngest = jnp.argmax(jnp.where(expansion.mask, expansion.ages, 0))
        edits = self.replace(expansion, candidate, youngest.astype(jnp.int32))
        ages = self.ages.at[edits.rows[0].slot].set(candidate.age)
        return RemoveYoungest(self.seed, ages), edits


def test_a_strategy_of_ones_own_starts_again_from_its_seed_and_the_support_set():
    state = bj.Perceptron().init(
        bj.RBF(1.0), num_features=2, budget=5, maintenance=RemoveYoungest(), seed=7
    )
    state, _ = bj.run(state, X, y)
    kept = np.asarray(state.expansion.ages)
    assert kept[0] == 1 and int(state.num_updates) > 5  # noqa: PT018
    np.testing.assert_array_equal(state.maintenance.ages[:-1], kept[:-1])
    moved = state.learner.with_vectors(state, jnp.asarray(X[:6]))
    better = moved.learner.refresh(moved)
    np.testing.assert_array_equal(better.maintenance.ages, kept)
    assert int(better.maintenance.seed) == 7
