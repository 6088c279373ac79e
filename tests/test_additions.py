"""An addition of each kind, by public names only, goes through every door."""

import importlib.util
import sys

import jax
import jax.numpy as jnp
import numpy as np
import onnxruntime
import pytest
from click.testing import CliRunner

import budgetjax as bj
from budgetjax import _record, online, river, solvers
from budgetjax.cli.commands import budgetjax as group
from budgetjax.estimators import BudgetedKernelClassifier, SolverClassifier

ADDITIONS = """
import jax
import jax.numpy as jnp

import budgetjax as bj


@bj.register
class Cauchy(bj.Kernel):
    gamma: float = 1.0

    def evaluate(self, x, z):
        return 1 / (1 + self.gamma * jnp.sum((x - z) ** 2))


@bj.register
class RemoveNearest(bj.Maintenance):
    def insert(self, kernel, expansion, candidate):
        similar = jnp.where(expansion.mask, candidate.kernel_row, -jnp.inf)
        return self, self.replace(expansion, candidate, jnp.argmax(similar))


@bj.register
class Waning(bj.Learner):
    rate: float = 0.5

    def start(self, state, seed, vectors):
        return state._replace(memory=self.rate + 0)

    def violates(self, state, score, y):
        return bj.losses.margin(score, y) <= 0

    def update(self, state, score, y, candidate):
        rate = state.memory
        step = rate * candidate.weight * bj.losses.margin_subgradient(score, y)
        state, edits = self.insert(state, step, candidate)
        return state._replace(memory=0.99 * rate), edits


@bj.register
class RidgeState(bj.KernelState):
    num_rounds: jax.Array


@bj.register
class Ridge(bj.KernelSolver):
    penalty: float = 1.0

    def batch(self, n):
        return n

    def start(self, data, rows):
        zeros, none = jnp.zeros_like(data.y), jnp.int32(0)
        key = jax.random.key(self.seed)
        return RidgeState(self, data.digest, rows, zeros, zeros, none, key, none)

    def step(self, state, data):
        # All kernel rows of so few examples are kept.
        Q = data.y[:, None] * data.y[None] * state.rows.kept
        ridge = jnp.eye(len(Q), dtype=Q.dtype) / self.penalty
        alpha = jnp.linalg.solve(Q + ridge, jnp.ones_like(data.y))
        return state._replace(
            coefficients=alpha, responses=Q @ alpha, num_rounds=state.num_rounds + 1
        )

    def objective(self, state, data):
        alpha, margins = state.coefficients, state.responses
        norm = alpha @ margins / 2
        return bj.Objective(
            norm + self.penalty * jnp.sum((1 - margins) ** 2) / 2,
            jnp.sum(alpha) - norm - jnp.sum(alpha**2) / self.penalty / 2,
        )
"""
X = np.random.default_rng(0).normal(size=(60, 2)).astype(np.float32)
Y = np.where(X[:, 0] * X[:, 1] > 0, 1, -1).astype(np.int32)
SIZES = {"num_features": 2, "budget": 10}


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    """The module, and the package as it was afterwards."""
    path = tmp_path_factory.mktemp("additions") / "additions_of_mine.py"
    path.write_text(ADDITIONS)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]
    for table, names in (
        (online.registered, ("waning",)),
        (solvers.registered, ("ridge",)),
        (
            _record.records,
            ("Cauchy", "RemoveNearest", "Waning", "Ridge", "RidgeState"),
        ),
    ):
        for name in names:
            del table[name]


def empty(mine, rate=0.5, kernel=None):
    kernel = mine.Cauchy(1.0) if kernel is None else kernel
    strategy = mine.RemoveNearest()
    return mine.Waning(rate=rate).init(kernel, **SIZES, maintenance=strategy)


def test_runs_sweeps_streams_refits_and_files(mine, tmp_path):
    state, _ = bj.run(empty(mine), X, Y)
    assert int(state.num_updates) > 10
    rates = jax.vmap(lambda rate: empty(mine, rate))(jnp.array([0.5, 0.1]))
    swept = bj.sweep(rates, X, Y)
    np.testing.assert_allclose(swept.states.memory[0], state.memory, rtol=1e-6)
    batches = [(X[:40], Y[:40]), (X[40:], Y[40:])]
    streamed = bj.fit_stream(empty(mine), batches)
    np.testing.assert_array_equal(bj.predict(streamed, X), bj.predict(state, X))
    better = bj.refit(state, X, Y)
    assert np.mean(bj.predict(better, X) == Y) > np.mean(bj.predict(state, X) == Y)
    # Registered names need no `like=`.
    for model in (better, streamed):
        bj.save(tmp_path / "model", model)
        loaded = bj.load(tmp_path / "model")
        assert jax.tree.structure(loaded) == jax.tree.structure(model)
        np.testing.assert_array_equal(bj.predict(loaded, X), bj.predict(model, X))


def test_estimators_and_river_take_values_and_names(mine):
    given = {"learner": mine.Waning(), "kernel": mine.Cauchy(1.0), "budget": 10}
    given["maintenance"] = "remove_nearest"
    estimator = BudgetedKernelClassifier(**given)
    assert estimator.fit(X, Y).score(X, Y) > 0.8
    assert type(estimator.state_.learner) is mine.Waning
    assert type(estimator.state_.maintenance) is mine.RemoveNearest
    one = river.BudgetedClassifier(**given)
    for row, label in zip(X[:20].tolist(), Y[:20].tolist(), strict=True):
        one.learn_one(dict(enumerate(row)), label)
    assert one.predict_one(dict(enumerate(X[0].tolist()))) in (-1, 1)
    with pytest.raises(ValueError, match=r"learner must be 'auto', or .* got 'no'"):
        BudgetedKernelClassifier(learner="no").fit(X, Y)
    with pytest.raises(ValueError, match=r"must be one of .*, remove_nearest, .* 'no'"):
        BudgetedKernelClassifier(maintenance="no").fit(X, Y)


def test_solutions_and_their_files(mine, tmp_path):
    solver = mine.Ridge(mine.Cauchy(1.0))
    solution = bj.solve(solver, X, Y, callback_every=1)
    assert solution.converged
    assert int(solution.state.num_rounds) == 1
    labels = solution.model.predict(X)
    assert np.mean(labels == Y) > 0.8
    bj.save(tmp_path / "solution", solution)
    loaded = bj.load(tmp_path / "solution")
    assert type(loaded.state) is mine.RidgeState
    assert type(loaded.state.solver) is mine.Ridge
    np.testing.assert_array_equal(loaded.model.predict(X), labels)
    again = bj.solve(solver, X, Y, start=loaded.state)
    assert int(again.state.num_rounds) == 1
    estimator = SolverClassifier(solver).fit(X, Y)
    np.testing.assert_array_equal(estimator.predict(X), labels)
    estimator.set_params(solver__penalty=1e-3)
    assert type(estimator.solver) is mine.Ridge
    assert estimator.fit(X, Y).score(X, Y) < np.mean(labels == Y)


@pytest.mark.parametrize(
    "learner", ["waning --maintenance remove-nearest --no-refit", "ridge"]
)
def test_the_command_line_knows_names(mine, learner, tmp_path):
    data, model = tmp_path / "data.csv", tmp_path / "model"
    rows = [f"{a},{b},{y}" for (a, b), y in zip(X, Y, strict=True)]
    data.write_text("\n".join(["a,b,y", *rows]))
    command = f"train {data} --target y --model {model} --learner {learner}"
    done = CliRunner().invoke(group, f"{command} --gamma 1".split())
    assert done.exit_code == 0, done.output
    loaded = bj.load(model)
    assert np.mean(bj.predict(loaded, X).astype(int) == Y) > 0.6
    wrong = CliRunner().invoke(group, command.replace(learner, "no").split())
    assert wrong.exit_code == 2
    assert all(name in wrong.output for name in ("'waning'", "'ridge'", "'arow'"))


def test_exports(mine, tmp_path):
    state, _ = bj.run(empty(mine, kernel=bj.RBF(1.0)), X, Y)
    bj.export(tmp_path / "model.onnx", state)
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    np.testing.assert_array_equal(
        session.run(["label"], {"X": X})[0], bj.predict(state, X)
    )
    model = bj.KernelModel(mine.Cauchy(1.0), X, X[:, 0], np.float32(0))
    bj.export(tmp_path / "model.stablehlo", model)
    bj.export(tmp_path / "kernel.onnx", model)
    session = onnxruntime.InferenceSession(tmp_path / "kernel.onnx")
    np.testing.assert_allclose(
        session.run(["scores"], {"X": X})[0], bj.decision_function(model, X), 1e-5, 1e-5
    )
