"""A learner that the package does not know: ten lines, and every door is open."""

import copy
import functools
import pickle
import sys
import types
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compare import same
from refusals import refused

import budgetjax as bj
from budgetjax import _record, online
from budgetjax.estimators import BudgetedKernelClassifier

pytestmark = pytest.mark.usefixtures("plain_loops")

X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1).astype(np.int32)
SIZES = {"num_features": 2, "budget": 10}


def positive(name, value):
    """A check of one's own."""
    if not isinstance(value, jax.core.Tracer) and not np.all(np.asarray(value) > 0):
        raise ValueError(f"{name} must be above 0")


class Fading(bj.Learner):
    """Its step shrinks with its updates, and never below a part of the first one."""

    rate: float = bj.leaf(positive, default=0.5)
    least: float | None = bj.leaf(positive, default=None)
    on_mistakes: bool = bj.static(default=True)

    def check(self):
        if self.least is not None and self.least > self.rate:
            raise ValueError("least must be at most rate")

    def bind(self, expansion, num_classes):
        least = self.rate / 100 if self.least is None else self.least
        return super(Fading, self._replace(least=least)).bind(expansion, num_classes)

    def start(self, state, seed, vectors):
        return state._replace(memory=self.rate + 0)

    def violates(self, state, score, y):
        margin = bj.losses.margin(score, y)
        return margin <= 0 if self.on_mistakes else margin < 1

    def update(self, state, score, y, candidate):
        rate = state.memory
        step = rate * candidate.weight * bj.losses.margin_subgradient(score, y)
        state, edits = self.insert(state, step, candidate)
        return state._replace(memory=jnp.maximum(0.99 * rate, self.least)), edits


@pytest.fixture(scope="module")
def registered():
    yield bj.register(Fading)
    del online.registered["fading"], _record.records["Fading"]


def empty(rate=0.5, kernel=None, **more):
    more = {"maintenance": bj.RemoveOldest()} | more
    return Fading(rate=rate).init(kernel or bj.RBF(1.0), **SIZES, **more)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_run_is_its_steps(classes):
    labels = y if classes == 2 else (y + 1) // 2 + (X[:, 0] > 1)
    state, scores = bj.run(empty(num_classes=classes), X, labels)
    by_step = empty(num_classes=classes)
    for x, label in zip(X, labels, strict=True):
        by_step = bj.step(by_step, x, label)
    assert int(by_step.num_updates) == int(state.num_updates) > 10
    np.testing.assert_allclose(state.memory, 0.5 * 0.99**state.num_updates, rtol=1e-5)
    np.testing.assert_allclose(by_step.memory, state.memory)
    np.testing.assert_allclose(
        bj.support(by_step).coefficients, bj.support(state).coefficients, rtol=1e-5
    )
    assert scores.shape == ((60,) if classes == 2 else (60, 3))


def test_fields_are_checked_and_bound():
    with pytest.raises(ValueError, match="rate must be above 0"):
        Fading(rate=-1)
    with pytest.raises(ValueError, match="least must be at most rate"):
        Fading(rate=0.1, least=0.2)
    with pytest.raises(TypeError, match="rates"):
        Fading(rates=0.1)
    learner = Fading(rate=0.2)
    assert learner.get_params() == {"rate": 0.2, "least": None, "on_mistakes": True}
    bound = empty(0.2).learner
    assert bound.least.dtype == bound.rate.dtype == jnp.float32
    np.testing.assert_allclose(bound.least, 0.002)
    # Binding what is bound changes nothing.
    same(bound.bind(empty(0.2).expansion, 2), bound)
    assert not Fading(on_mistakes=False).init(bj.RBF(1.0), **SIZES).learner.on_mistakes


def test_what_it_does_not_take_is_refused():
    for name, value, expected, got in (
        ("num_outputs", 2, "1", "2"),
        ("num_classes", None, "a number", "None"),
        ("vectors", X[:3], "None", ""),
    ):
        call = functools.partial(empty, **{name: value})
        refused(call, name, expected, got, "Fading.init")


def test_new_numbers_compile_nothing():
    traces = []

    class Counted(Fading):
        def update(self, *given):
            traces.append(None)
            return super().update(*given)

    bj.run(Counted().init(bj.RBF(1.0), **SIZES), X, y)
    known = len(traces)
    assert known > 0
    for rate in (0.1, np.float64(0.3)):
        bj.run(Counted(rate=rate, least=0.01).init(bj.RBF(1.0), **SIZES), X, y)
    assert len(traces) == known


def test_what_it_remembers_starts_again():
    state, _ = bj.run(empty(), X, y)
    assert float(state.memory) < 0.5
    again = state.restart()
    same(again, empty())
    same(bj.run(again, X, y)[0], state)


class Drawn(bj.Perceptron):
    """It remembers a draw, which its seed decides."""

    def start(self, state, seed, vectors):
        key = jax.random.key(jnp.asarray(seed, jnp.int32))
        return state._replace(memory=jax.random.uniform(key, (), state.dtype))

    def restart(self, state):
        return state.empty()._replace(memory=state.memory)


def test_what_is_drawn_stays_where_a_learner_says_so():
    state = Drawn().init(bj.RBF(1.0), seed=7, **SIZES)
    other = Drawn().init(bj.RBF(1.0), seed=8, **SIZES)
    assert float(state.memory) != float(other.memory)
    learned, _ = bj.run(state, X, y)
    same(learned.restart(), state)


def test_sweeps_streams_and_refits():
    state, _ = bj.run(empty(), X, y)
    swept = bj.sweep(jax.vmap(empty)(jnp.array([0.5, 0.1])), X, y)
    np.testing.assert_allclose(swept.states.memory[0], state.memory)
    np.testing.assert_allclose(swept.states.learner.rate, [0.5, 0.1])

    stream = bj.fit_stream(empty(), [(X[:40], y[:40]), (X[40:], y[40:])])
    np.testing.assert_array_equal(bj.predict(stream.state, X), bj.predict(state, X))

    better = bj.refit(state, X, y)
    assert np.mean(bj.predict(better, X) == y) > np.mean(bj.predict(state, X) == y)
    np.testing.assert_array_equal(better.memory, state.memory)


def test_files_and_the_names_in_them(tmp_path, registered):
    state, _ = bj.run(empty(), X, y)
    bj.save(tmp_path / "model", state)
    for like in (None, empty()):
        same(bj.load(tmp_path / "model", like=like), state)
    # One of this name is known; the same class may be registered again.
    assert bj.register(Fading) is Fading
    other = type("Pegasos", (bj.Learner,), {})
    refused(lambda: bj.register(other), "the name 'pegasos'", "be free")
    refused(lambda: bj.register(Fading()), "own")


def test_a_file_of_a_class_that_is_not_registered_needs_like(tmp_path):
    state = Drawn().init(bj.RBF(1.0), **SIZES)
    bj.save(tmp_path / "model", state)
    with pytest.raises(ValueError, match="Drawn"):
        bj.load(tmp_path / "model")
    same(bj.load(tmp_path / "model", like=state), state)


def test_estimators_take_it_as_a_value():
    given = {"budget": 10, "gamma": 1.0, "encode": False, "penalty": 10.0}
    model = BudgetedKernelClassifier(learner=Fading(rate=0.4), **given)
    assert model.fit(X, y).score(X, y) > 0.8
    assert isinstance(model.state_.learner, Fading)
    assert float(model.state_.learner.rate) == np.float32(0.4)
    model.set_params(learner__rate=0.3)
    assert model.learner.rate == 0.3


# One that changes its model in every round has a loop of its own.


class Shifting(bj.Learner):
    """It scores all examples by the mean of the labels so far."""

    takes = ()

    def default_maintenance(self, kernel):
        return None

    def start(self, state, seed, vectors):
        return state._replace(memory=jnp.zeros((), state.dtype))

    def block(self, state, X, y, weights, axis=None):
        def body(state, example):
            label, weight = example
            score = state.memory / jnp.maximum(state.rounds(state.dtype), 1)
            memory = state.memory + weight * label
            present = (weight > 0).astype(jnp.int32)
            return state.after(seen=present)._replace(memory=memory), score[None]

        return jax.lax.scan(body, state, (y.astype(X.dtype), weights))


def test_one_with_a_loop_of_its_own():
    state, scores = bj.run(Shifting().init(bj.RBF(1.0), **SIZES), X, y)
    means = np.cumsum(y) / np.arange(1, 61)
    np.testing.assert_allclose(scores, [0, *means[:-1]], rtol=1e-5)
    assert int(state.num_seen) == 60
    same(bj.run(state.restart(), X, y)[0], state)
    weight = (np.arange(60) < 30).astype(np.float32)
    half, _ = bj.run(state.restart(), X, y, weight=weight)
    assert int(half.num_seen) == 30


# Another learner for a state.


def test_another_learner_goes_on_with_what_is_remembered():
    state, _ = bj.run(empty(), X, y)
    eager = bj.with_learner(state, Fading(rate=0.7, on_mistakes=False))
    np.testing.assert_allclose(eager.learner.rate, 0.7)
    np.testing.assert_allclose(eager.learner.least, 0.007)
    same(eager.expansion, state.expansion)
    same(eager.memory, state.memory)
    more, _ = bj.run(eager, X, y)
    assert int(more.num_updates) > int(state.num_updates)
    # The state that was given stays.
    np.testing.assert_allclose(state.learner.rate, 0.5)


@pytest.mark.parametrize(
    ("learner", "expected", "got"),
    [
        (bj.Perceptron(), "remember what Fading", "Perceptron"),
        (Shifting(), "remember what Fading", "Shifting"),
        (Fading, "be one", "Fading"),
        ("fading", "be one", "fading"),
        (None, "be one", "None"),
    ],
    ids=str,
)
@pytest.mark.usefixtures("as_installed")
def test_a_learner_that_does_not_fit_a_state_is_refused(learner, expected, got):
    refused(
        lambda: bj.with_learner(empty(), learner),
        *("learner", expected, got, "with_learner"),
    )


def test_what_is_remembered_under_another_name_is_something_else():
    class Summing(bj.Learner):
        def start(self, state, seed, vectors):
            return state._replace(memory={"sum": jnp.zeros((), state.dtype)})

    state = Summing().init(bj.RBF(1.0), **SIZES)
    refused(lambda: bj.with_learner(state, Fading()), "learner", "remember what")
    # A Perceptron remembers nothing.
    plain = bj.Perceptron().init(bj.RBF(1.0), **SIZES)
    for learner in (Fading(), Summing()):
        refused(
            functools.partial(bj.with_learner, plain, learner),
            *("learner", "remember what Perceptron", type(learner).__name__),
        )


def test_a_learner_must_take_the_classes_and_averages_of_a_state():
    several = bj.Perceptron().init(bj.RBF(1.0), num_classes=3, average=True, **SIZES)
    real = bj.SGD().init(bj.RBF(1.0), num_classes=None, **SIZES)
    for state, learner, name in (
        (several, bj.Forgetron(), "num_classes"),
        (several, bj.ALMA(), "average"),
        (real, bj.Perceptron(), "num_outputs"),
    ):
        call = functools.partial(bj.with_learner, state, learner)
        refused(call, "learner", f"take {name}")
    assert isinstance(bj.with_learner(several, bj.PassiveAggressive()), bj.State)


def test_fields_of_a_state_change_by_functions_that_renew_what_depends_on_them():
    state = empty()
    replace = state._replace
    refused(lambda: replace(learner=Fading()), "learner", "budgetjax.with_learner(")
    refused(lambda: replace(kernel=bj.RBF(2.0)), "kernel", "budgetjax.with_kernel(")
    refused(lambda: replace(rate=1.0), "the fields of State", got="rate", function="")
    with pytest.raises(AttributeError):
        state.learner.rate = 0.3


# A class that is defined again, as in a notebook.

CELL = """
from typing import Any

import jax
import jax.numpy as jnp

import budgetjax as bj

class Memory(bj.Record, name="SteppingMemory"):
    total: Any

class Stepping(bj.Learner):
    rate: float = 0.5

    def start(self, state, seed, vectors):
        return state._replace(memory=Memory(jnp.zeros((), state.dtype)))

    def update(self, state, score, y, candidate):
        step = {factor} * self.rate * bj.losses.margin_subgradient(score, y)
        state, edits = self.insert(state, step, candidate)
        memory = jax.tree.map(lambda total: total + jnp.sum(step), state.memory)
        return state._replace(memory=memory), edits
"""


@pytest.fixture
def notebook():
    """A module whose cell is executed with a factor of the step."""
    module = types.ModuleType("notebook_of_mine")
    sys.modules[module.__name__] = module
    yield lambda factor: exec(CELL.format(factor=factor), vars(module)) or module
    del sys.modules[module.__name__]
    for name in ("Stepping", "SteppingMemory"):
        del _record.records[name]
    del online.registered["stepping"]


def first_coefficient(state):
    return float(np.asarray(bj.support(bj.step(state, X[0], 1)).coefficients)[0, 0])


def test_a_class_that_is_defined_again(notebook):
    old = bj.register(notebook(1.0).Stepping)
    state = old().init(bj.RBF(1.0), **SIZES)
    roomy = old().init(bj.RBF(1.0), **SIZES, capacity=SIZES["budget"] + 1)
    assert first_coefficient(state) == 0.5
    pickled = pickle.dumps(state)
    new = bj.register(notebook(3.0).Stepping)
    assert new is not old
    # A state keeps the code that it was made with, also where that compiles anew.
    assert first_coefficient(state) == 0.5
    assert first_coefficient(roomy) == 0.5
    assert first_coefficient(new().init(bj.RBF(1.0), **SIZES)) == 1.5
    moved = bj.with_learner(bj.step(state, X[1], 1), new(rate=0.25))
    assert type(moved.learner) is new
    assert float(moved.memory.total) == 0.5
    assert float(bj.step(moved, X[0], -1).memory.total) == 0.5 - 0.75
    # A pickle has names, which are those of the new class.
    assert type(pickle.loads(pickled).learner) is new
    assert first_coefficient(pickle.loads(pickled)) == 1.5
    with pytest.raises(pickle.PicklingError, match="not the same object"):
        pickle.dumps(state)


def test_files_of_a_class_that_is_defined_again(notebook, tmp_path):
    state = bj.register(notebook(1.0).Stepping)(rate=0.3).init(bj.RBF(1.0), **SIZES)
    bj.save(tmp_path / "model", state)
    new = bj.register(notebook(3.0).Stepping)
    loaded = bj.load(tmp_path / "model")
    assert type(loaded.learner) is new
    np.testing.assert_allclose(loaded.learner.rate, 0.3)
    assert first_coefficient(loaded) == pytest.approx(0.9)


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy], ids=lambda f: f.__name__)
def test_copies_and_pickles_are_the_same(make):
    state, _ = bj.run(empty(), X, y)
    for value in (state, state.learner, Fading(rate=0.2)):
        for again in (make(value), pickle.loads(pickle.dumps(value))):
            assert type(again) is type(value)
            assert repr(again) == repr(value)
            assert bj.equal(again, value)
    same(bj.run(pickle.loads(pickle.dumps(state)), X, y)[0], bj.run(state, X, y)[0])


def test_records_are_equal_as_objects_and_by_values():
    one, other = Fading(rate=0.2), Fading(rate=0.2)
    assert one != other
    assert bj.equal(one, other)
    assert not bj.equal(one, Fading(rate=0.3))
    assert not bj.equal(one, Fading(rate=0.2, on_mistakes=False))
    assert len({one, other, one}) == 2


# A strategy of one's own.


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


# A kernel of one's own.


class Cauchy(bj.Kernel):
    gamma: float = 1.0

    def evaluate(self, x, z):
        return 1 / (1 + self.gamma * jnp.sum((x - z) ** 2))


def test_a_kernel_and_a_learner_of_ones_own():
    state, _ = bj.run(empty(kernel=Cauchy(2.0)), X, y)
    support = jax.tree.map(np.asarray, bj.support(state))
    gaps = np.sum((X[:, None] - support.vectors[None]) ** 2, axis=2)
    coefficients = np.where(support.mask, support.coefficients[:, 0], 0)
    np.testing.assert_allclose(
        bj.decision_function(state, X), 1 / (1 + 2 * gaps) @ coefficients, rtol=1e-4
    )
    changed = bj.with_kernel(state, Cauchy(1.0))
    np.testing.assert_allclose(
        bj.decision_function(changed, X), 1 / (1 + gaps) @ coefficients, rtol=1e-4
    )
