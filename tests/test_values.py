"""Learners as values: one of your own, exchanges, and a model made of two."""

import copy
import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refused

import budgetjax as bj
from budgetjax import registry
from budgetjax.online.state import Counts

KERNEL = bj.RBF(4.0)
X, Y = bj.datasets.checkerboard(300, seed=0)


class Fading(bj.Learner):
    """A learner as in the guide: ten lines."""

    rate: float = 0.5

    def violates(self, state, score, y):
        return bj.losses.margin(score, y) < 1

    def update(self, state, score, y, candidate):
        step = self.rate * bj.losses.margin_subgradient(score, y)
        return self.insert(state, step, candidate)


class Vote(bj.Online):
    """Two learners with other kernels, weighted by their mistakes so far."""

    parts: tuple
    weights: jax.Array

    @classmethod
    def of(cls, *parts):
        return cls(Counts.of(0, 0, 0), parts, jnp.ones(len(parts)))

    @property
    def num_features(self):
        return self.parts[0].num_features

    @property
    def num_columns(self):
        return self.parts[0].num_columns

    @property
    def dtype(self):
        return self.parts[0].dtype

    @property
    def loss(self):
        return self.parts[0].loss

    def learn(self, X, y, weights, *, axis=None, variance=False):
        def body(model, row):
            x, label, weight = (one[None] for one in row)
            present = weight[0] > 0
            learned = [one.learn(x, label, weight, axis=axis) for one in model.parts]
            parts, told = zip(*learned, strict=True)
            each = jnp.stack([one.score[0] for one in told])
            score = model.weights @ each / jnp.sum(model.weights)
            wrong = (each[:, 0] * label <= 0) & present
            mistake = (score[0] * label[0] <= 0) & present
            new = model._replace(
                parts=parts,
                weights=jnp.where(wrong, 0.9, 1.0) * model.weights,
                counts=model.counts.after(present, mistake),
            )
            return new, score

        model, scores = jax.lax.scan(body, self, (X, y, weights))
        return model, bj.Round(scores)

    def scores(self, X):
        each = jnp.stack([one.scores(X) for one in self.parts])
        return jnp.tensordot(self.weights, each, 1) / jnp.sum(self.weights)

    def choose_origin(self, X, weights):
        parts = tuple(one.choose_origin(X, weights) for one in self.parts)
        return self._replace(parts=parts)

    def restart(self):
        return self._replace(
            counts=Counts.of(0, 0, 0),
            parts=tuple(one.restart() for one in self.parts),
            weights=jnp.ones_like(self.weights),
        )

    def check_value(self):
        return sum(one.check_value() for one in self.parts) + jnp.sum(self.weights) * 0


def mixture(gamma=4.0):
    sizes = {"num_features": 2, "budget": 20}
    return Vote.of(
        bj.Pegasos().init(bj.RBF(gamma), **sizes),
        bj.PassiveAggressive().init(bj.RBF(1.0), **sizes),
    )


def test_a_learner_of_ones_own_works_with_every_verb(tmp_path):
    state = Fading(rate=0.3).init(KERNEL, num_features=2, budget=40)
    ran, scores = bj.run(state, X, Y)
    assert scores.shape == (300,)
    stepped = jax.jit(bj.step)(state, X[0], Y[0])
    assert bj.support(stepped).coefficients[0, 0] == np.float32(0.3) * Y[0]
    assert int(ran.num_mistakes) < 120
    assert np.mean(bj.predict(bj.refit(ran, X, Y), X) == Y) > 0.9
    states = jax.vmap(
        lambda rate: Fading(rate).init(KERNEL, num_features=2, budget=40)
    )(jnp.array([0.1, 0.3]))
    assert bj.sweep(states, X, Y).errors.shape[0] == 2
    model = bj.fit_stream(state, [(X[:150], Y[:150]), (X[150:], Y[150:])])
    np.testing.assert_allclose(model.predict(X), bj.predict(ran, X))
    bj.save(tmp_path / "model", ran)
    again = bj.load(tmp_path / "model", like=state)
    assert bj.equal(again, ran)
    assert bj.equal(pickle.loads(pickle.dumps(ran)), ran)
    assert bj.equal(copy.deepcopy(ran), ran)


def test_a_mixture_of_learners_works_with_every_verb(tmp_path):
    model = mixture()
    ran, scores = bj.run(model, X, Y)
    assert scores.shape == (300,)
    assert int(ran.num_seen) == 300
    step, stepped = jax.jit(bj.step), model
    for x, y in zip(X[:3], Y[:3], strict=True):
        stepped = step(stepped, x, y)
    short, _ = bj.run(model, X, Y, weight=np.arange(300) < 3)
    for one, other in zip(
        jax.tree.leaves(stepped), jax.tree.leaves(short), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    errors = int(ran.num_mistakes)
    assert errors < max(int(one.num_mistakes) for one in ran.parts)
    X_new, _ = bj.datasets.checkerboard(50, seed=1)
    assert bj.decision_function(ran, X_new).shape == (50,)
    assert set(np.unique(bj.predict(ran, X_new))) == {-1, 1}
    both = jax.vmap(mixture)(jnp.array([4.0, 8.0]))
    swept = bj.sweep(both, X, Y)
    assert int(swept.states.num_mistakes[0]) == errors
    streamed = bj.fit_stream(model, [(X[:150], Y[:150]), (X[150:], Y[150:])])
    assert streamed.error == pytest.approx(errors / 300)
    bj.save(tmp_path / "mixture", ran)
    assert bj.equal(bj.load(tmp_path / "mixture", like=model), ran)
    fresh = jax.tree.leaves(ran.restart())
    for one, other in zip(fresh, jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(one, other)
    refused(lambda: bj.refit(ran, X, Y), "state", function="refit")
    refused(lambda: bj.support(ran), "model", "have support vectors", "Vote")
    refused(lambda: bj.variance(ran, X), "model", "know the variance")


def test_binding_a_bound_learner_changes_nothing():
    for kind in registry.LEARNERS:
        classes = 2 if kind.learns(2) else None
        state = kind().init(KERNEL, num_features=2, budget=6, num_classes=classes)
        again = state.learner.bind(state.expansion, classes)
        assert bj.equal(again, state.learner), kind


@pytest.mark.usefixtures("as_installed")
def test_a_state_takes_another_learner_of_the_same_memory():
    state = bj.Perceptron().init(KERNEL, num_features=2, budget=20)
    state, _ = bj.run(state, X[:50], Y[:50])
    other = bj.with_learner(state, bj.PassiveAggressive(variant="PA-II"))
    assert type(other.learner) is bj.PassiveAggressive
    assert bj.equal(other.expansion, state.expansion)
    bj.run(other, X[50:], Y[50:])
    slow = bj.AROW().init(KERNEL, num_features=2, budget=20)
    assert float(bj.with_learner(slow, bj.AROW(drift=0.1)).learner.drift) > 0
    many = bj.Perceptron().init(KERNEL, num_features=2, budget=20, num_classes=3)
    for call, expected, got in (
        (
            lambda: bj.with_learner(state, bj.AROW()),
            *("remember what Perceptron", "AROW"),
        ),
        (lambda: bj.with_learner(state, 3), "be one", "3"),
        (
            lambda: state._replace(learner=bj.Perceptron(margin=1.0)),
            *("budgetjax.with_learner(", ""),
        ),
        (lambda: bj.with_learner(many, bj.Forgetron()), "take num_classes", ""),
    ):
        refused(call, "learner", expected, got)


def test_values_of_hyperparameters_compile_nothing_new():
    traces = []

    class Counted(bj.Perceptron):
        def violates(self, state, score, y):
            traces.append(None)
            return super().violates(state, score, y)

    for margin in (0.0, 1, np.float32(0.5), jnp.float16(0.25)):
        state = Counted(margin=margin).init(KERNEL, num_features=2, budget=5)
        bj.run(state, X, Y)
        if margin == 0:
            first = len(traces)
    assert len(traces) == first


@pytest.mark.parametrize("kind", registry.LEARNERS)
def test_a_learner_refuses_what_it_does_not_take(kind):
    learner, sizes = kind(), {"num_features": 2, "budget": 6}
    for name, value in (
        ("maintenance", bj.RemoveOldest()),
        ("vectors", X[:3]),
        ("average", True),
        ("num_classes", 3),
        ("num_classes", None),
    ):
        takes = name if value is not None else "num_outputs"
        if takes in learner.takes:
            learner.init(KERNEL, **sizes, **{name: value})
            continue
        init = functools.partial(learner.init, KERNEL, **sizes, **{name: value})
        refused(init, name, function=f"{kind.__name__}.init")


def test_variance_is_small_near_the_rows_and_1_far_from_them():
    state = bj.AROW().init(bj.RBF(1.0), num_features=1, budget=30)
    rows = np.linspace(-2, 2, 200)[:, None]
    labels = np.where(rows[:, 0] > 0, 1, -1)
    state, scores, told = bj.run(state, rows, labels, variance=True)
    assert scores.shape == told.shape == (200,)
    near, far = bj.variance(state, np.array([[0.1], [50.0]]))
    assert near < 0.1 < far == 1
    # It is that of the model before it has learned the row.
    assert told[0] == 1
    assert told[-1] < told[0]
    dense = _variance_by_hand(state, np.array([[0.1], [0.7]]))
    np.testing.assert_allclose(
        bj.variance(state, np.array([[0.1], [0.7]])), dense, atol=2e-4
    )
    stepped = bj.step(state, rows[0], labels[0])
    assert int(stepped.num_seen) == 201


def _variance_by_hand(state, X):
    """`k(x, x) - k(x)^T R^T (I - S) R k(x)` in float64."""
    mask = np.asarray(state.expansion.mask)
    vectors = np.asarray(state.expansion.examples, np.float64)[mask][:, 0]
    rows = np.exp(-((X - vectors[None]) ** 2))
    root = np.asarray(state.memory.span.root, np.float64)[np.ix_(mask, mask)]
    certainty = np.asarray(state.memory.certainty, np.float64)[np.ix_(mask, mask)]
    p = rows @ root.T
    return 1 - np.sum(p * (p @ certainty), axis=1)


@pytest.mark.usefixtures("as_installed")
def test_checks_of_every_class_run_and_fields_must_be_numbers():
    class Checked(bj.Learner):
        rate: float = 0.5

        def check(self):
            if np.ndim(self.rate):
                raise ValueError("one rate")

    class Twice(Checked):
        other: float = 1.0

        def check(self):
            if self.other == 2:
                raise ValueError("not 2")

    with pytest.raises(ValueError, match="one rate"):
        Twice(rate=[1, 2])
    with pytest.raises(ValueError, match="not 2"):
        Twice(other=2)
    sizes = {"num_features": 2, "budget": 5}
    for bad, got in (("a", "'a'"), (True, "True"), (np.nan, "nan")):
        refused(
            lambda bad=bad: Twice(other=bad).init(KERNEL, **sizes),
            *("other", "number", got, "Twice.init"),
        )
    with pytest.raises(TypeError, match="annotate rate, as in `rate: float`"):
        type("Plain", (bj.Learner,), {"rate": 0.5, "__module__": "mine"})
    with pytest.raises(TypeError, match="define `check` instead of __post_init__"):
        type("Odd", (bj.Learner,), {"__post_init__": print, "__module__": "mine"})
    with pytest.raises(TypeError, match="declare fields, as in"):
        type("Odd", (bj.Learner,), {"__init__": print, "__module__": "mine"})
    parts = {"takes": ("seed",), "__module__": "mine"}
    kind = functools.partial(type, "Odd", (bj.Learner,), parts)
    refused(kind, "what Odd takes", got="seed", function="")
    with pytest.raises(NotImplementedError, match="must define `update`"):
        Checked().init(KERNEL, **sizes).learner.update(None, None, None, None)


def test_a_restart_has_what_init_had():
    class Remembers(Fading):
        def start(self, state, seed, vectors):
            return state._replace(memory=jnp.zeros((), state.dtype))

        def update(self, state, score, y, candidate):
            state = state._replace(memory=state.memory + 1)
            return super().update(state, score, y, candidate)

    empty = Remembers(0.3).init(KERNEL, num_features=2, budget=10)
    state, _ = bj.run(empty, X, Y)
    assert float(state.memory) == int(state.num_updates) > 10
    assert bj.equal(state.restart(), empty)


def test_equal_compares_random_keys():
    solver = bj.SDCA(bj.RBF(1.0))
    ours, again, other = (
        bj.solve(solver._replace(seed=seed), X, Y, max_steps=0).state._replace(
            solver=solver
        )
        for seed in (1, 1, 2)
    )
    assert bj.equal(ours, again)
    assert not bj.equal(ours, other)
