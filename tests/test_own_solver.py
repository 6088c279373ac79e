"""Solvers that the package does not know: one with a kernel, and a linear one."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from click.testing import CliRunner
from compare import same
from marks import slow
from sklearn.model_selection import GridSearchCV

import budgetjax as bj
from budgetjax import _checks, _record, solvers
from budgetjax.cli.commands import budgetjax as group
from budgetjax.estimators import SolverClassifier
from budgetjax.solvers import row_cache
from budgetjax.solvers.linear.rows import products

N = 60
X = np.random.default_rng(0).normal(size=(N, 2)).astype(np.float32)
y = np.where(X[:, 0] + 0.5 * X[:, 1] ** 2 > 0.3, 1, -1)
classes = np.digitize(X[:, 0], [-0.4, 0.4])


class ProjectedGradient(bj.HingeSolver):
    """The kernel SVM without a bias, by projected gradients of the dual.

    Attributes:
      kernel: positive definite, with values of at least 0.
      penalty: C, positive.
      speed: the length of a step, of those that are certain to climb.
    """

    speed: float = bj.leaf(_checks.up_to_1, default=1.0, kw_only=True)

    def step(self, state, data):
        given = self.kernel, state.rows, data.X, data.y
        rows, sums = row_cache.product(*given, data.y)
        rate = self.speed / jnp.max(jnp.abs(sums))
        moved = state.coefficients + rate * (1 - state.responses)
        coefficients = jnp.clip(moved, 0, self.limits(data))
        new = {"rows": rows, "coefficients": coefficients}
        rows, new["responses"] = row_cache.product(*given, coefficients)
        return state._replace(**new, num_updates=state.num_updates + 1)


class SubgradientState(bj.LinearState):
    """The means of all subgradients so far."""

    coefficients: Any
    num_steps: Any


class Subgradient(bj.LinearSolver):
    """The linear SVM, by subgradients of all patterns."""

    max_steps = 300

    def start(self, data):
        return SubgradientState(
            solver=self,
            digest=data.digest,
            weights=jnp.zeros(data.width, data.dtype),
            key=jax.random.key(self.seed),
            coefficients=jnp.zeros_like(data.squares),
            num_steps=jnp.int32(0),
        )

    def step(self, state, data):
        share = 1 / (state.num_steps + 1).astype(data.dtype)
        violates = products(data.X, state.weights) < 1
        change = share * jnp.where(violates, self._limits(data), 0)
        return state._replace(
            weights=jax.lax.fori_loop(
                *(jnp.int32(0), jnp.int32(len(data.y))),
                lambda i, weights: data.X.add(i, change[i], weights),
                (1 - share) * state.weights,
            ),
            coefficients=(1 - share) * state.coefficients + change,
            num_steps=state.num_steps + 1,
        )

    def _limits(self, data):
        ones = jnp.ones_like(data.y) if data.weight is None else data.weight
        return self.penalty * ones

    def objective(self, state, data):
        slacks = jnp.maximum(1 - products(data.X, state.weights), 0)
        half = jnp.sum(state.weights**2) / 2
        loss = jnp.sum(self._limits(data) * slacks)
        return bj.Objective(half + loss, jnp.sum(state.coefficients) - half)

    def model(self, state, data):
        return data.to_model(state.weights)

    def num_vectors(self, state):
        return jnp.count_nonzero(state.coefficients)

    def work(self, state):
        return int(state.num_steps) * len(state.coefficients)


@pytest.fixture(scope="module")
def registered():
    own = ProjectedGradient, Subgradient, SubgradientState
    for kind in own:
        assert bj.register(kind) is kind
    yield
    for name in ("projected_gradient", "subgradient"):
        del solvers.registered[name]
    for kind in own:
        del _record.records[kind.__name__]


# Each, one of the package with the same optimum, and a tolerance that it reaches.
OWN = {
    "kernel": (
        ProjectedGradient(bj.RBF(1.0), penalty=0.5, tolerance=1e-3),
        bj.SDCA(bj.RBF(1.0), penalty=0.5, tolerance=1e-4),
    ),
    "linear": (Subgradient(0.1, tolerance=0.02), bj.DCD(0.1, tolerance=1e-6)),
}
each = pytest.mark.parametrize("name", OWN)


@each
@pytest.mark.parametrize("weight", [None, *slow(1 + (np.arange(N) % 3))])
def test_it_reaches_the_optimum(name, weight):
    """And goes on, starts again, shares rows, and reads other forms."""
    solver, known = OWN[name]
    found = bj.solve(solver, X, y, weight=weight)
    best = bj.solve(known, X, y, weight=weight).history
    assert found.converged
    assert best.dual[-1] * (1 - 1e-5) <= found.history.primal[-1]
    assert found.history.primal[-1] <= 1.02 * best.primal[-1]
    assert np.mean(found.model.predict(X) == y) > 0.85
    once, first = (
        bj.solve(solver._replace(tolerance=None), X, y, weight=weight, max_steps=steps)
        for steps in (6, 2)
    )
    data = solver.read(X, y, weight)
    twice = bj.solve(first.state.solver, data, start=first.state, max_steps=4)
    same(twice.state, once.state)
    others = bj.solve(solver, data.with_labels(-y))
    assert others.history.primal[-1] == pytest.approx(found.history.primal[-1], 1e-3)


def test_it_shares_kernel_rows():
    solver, cache = OWN["kernel"][0], bj.KernelCache()
    work = [
        bj.solve(solver._replace(penalty=penalty), X, y, cache=cache).history.work[-1]
        for penalty in (0.1, 1.0)
    ]
    assert work == [N * N, 0]


def test_it_reads_sparse_rows_in_double_precision():
    dense, sparse = (
        bj.solve(OWN["linear"][0], rows, y) for rows in (X, scipy.sparse.csr_array(X))
    )
    np.testing.assert_allclose(dense.history.primal, sparse.history.primal, 1e-9)
    assert dense.state.weights.dtype == np.float64
    solver = OWN["linear"][0]
    data = solver.read(X, y)
    with pytest.raises(ValueError, match=r"^Subgradient: .* double precision"):
        solver.init(data)


def test_what_it_is_not_given_is_refused():
    with pytest.raises(ValueError, match=r"^ProjectedGradient: speed must be .* got 2"):
        ProjectedGradient(bj.RBF(1.0), speed=2)
    with pytest.raises(ValueError, match=r"^Subgradient: penalty must be .* got -1"):
        Subgradient(-1)
    for solver, known in OWN.values():
        start = bj.solve(known, X, y, max_steps=1).state
        kind = type(solver).__name__
        with pytest.raises(ValueError, match=f"start must be a state of {kind}, got"):
            bj.solve(solver, X, y, start=start)
        start = bj.solve(solver._replace(penalty=7.0), X, y, max_steps=1).state
        with pytest.raises(ValueError, match=f"as {kind} has no start from others"):
            bj.solve(solver, X, y, start=start)
        with pytest.raises(ValueError, match=f"{kind}: X must be finite"):
            bj.solve(solver, X * np.nan, y)


@each
def test_its_penalty_is_searched(name):
    """By the estimator, of three classes."""
    solver = OWN[name][0]._replace(tolerance=None)
    model = SolverClassifier(solver, max_steps=50)
    table = {"solver__penalty": [1e-6, 0.5, 5.0]}
    search = GridSearchCV(model, table, cv=3, error_score="raise").fit(X, classes)
    assert search.best_params_["solver__penalty"] > 1e-6
    scores = search.cv_results_["mean_test_score"]
    assert len(set(scores)) > 1
    best = search.best_estimator_
    assert best.solver.penalty == search.best_params_["solver__penalty"]
    assert best.score(X, classes) > 0.8
    assert len(best.models_) == 3


@each
def test_files_of_its_solutions_and_states(name, registered, tmp_path):
    solver = OWN[name][0]
    found = bj.solve(solver, X, y, max_steps=3)

    def loaded_from(path, **given):
        # States of linear solvers are in float64.
        with jax.enable_x64(name == "linear"):
            return bj.load(path, **given)

    for part in (found, found.state, solver):
        bj.save(tmp_path / "part", part)
        loaded = loaded_from(tmp_path / "part")
        assert type(loaded) is type(part)
        assert bj.equal(loaded, part)
        assert jax.tree.structure(loaded) == jax.tree.structure(part)
    bj.save(tmp_path / "state", found.state)
    for before in (found.state, loaded_from(tmp_path / "state")):
        after = bj.solve(solver, X, y, start=before, max_steps=3)
        same(after.state, bj.solve(solver, X, y, max_steps=6).state)


@each
def test_the_command_line_knows_its_name(name, registered, tmp_path):
    learner = {"kernel": "projected-gradient", "linear": "subgradient"}[name]
    data, model = tmp_path / "data.csv", tmp_path / "model"
    rows = [f"{a},{b},{label}" for (a, b), label in zip(X, classes, strict=True)]
    data.write_text("\n".join(["a,b,y", *rows]))

    def said(command):
        done = CliRunner().invoke(group, command.split())
        assert done.exit_code == 0, done.output
        return done.output

    command = f"train {data} --target y --model {model} --learner {learner}"
    more = " --set speed=0.5 --gamma 1" if name == "kernel" else ""
    text = said(f"{command} --penalty 0.5 --set max_steps=100{more}")
    assert re.search(rf"learner: +{learner}, penalty 0.5", text)
    loaded = bj.load(model)
    assert np.mean(bj.predict(loaded, X).astype(int) == classes) > 0.7
    assert len(loaded.model) == 3
    assert f"\n{learner}: " in said("learners")
    assert "\n  max_steps " in said(f"learners {learner}")
    wrong = CliRunner().invoke(group, f"{command} --set power=3".split())
    assert wrong.exit_code == 2
    assert f"settings of {learner} must be among " in wrong.output
    unknown = CliRunner().invoke(group, command.replace(learner, "no").split())
    assert unknown.exit_code == 2
    assert f"'{learner}'" in unknown.output
