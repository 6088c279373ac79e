"""Training sets and starts that the tests of solvers share, and with them programs."""

import functools
import math

import jax
import numpy as np
import pytest
import scipy.sparse
from compiling import AS_USERS_COMPILE
from reference import linear as reference

import budgetjax as bj
from budgetjax import registry

# Solvers by name.
CLASSES = {registry.name_of(kind): kind for kind in registry.SOLVERS}
# Those with a kernel, and what each needs for a small problem of two classes.
KERNEL_SOLVERS = {
    "smo": {},
    "sdca": {},
    "kernel_pegasos": {},
    "sbp": {"slack": 0.1},
    "budget_svm": {"norm": bj.norms.OneInfinity(20)},
    "ball_sgd": {"radius": 3.0},
}

# Examples and features.
N, D = 60, 6
GAMMA = 0.1
SPARSE = scipy.sparse.csr_matrix
KERNEL = {"kernel": bj.RBF(GAMMA)}
# Every solver, and what it needs, or what makes its steps small.
SOLVERS = {
    "sbp": KERNEL | {"slack": 0.05, "batch_size": 4},
    "kernel_pegasos": KERNEL | {"batch_size": 4},
    "ball_sgd": KERNEL | {"radius": 3.0, "batch_size": 4},
    "sdca": KERNEL | {"batch_size": 4},
    "smo": KERNEL | {"batch_size": 4},
    "budget_svm": KERNEL | {"norm": bj.norms.OneInfinity(9.0)},
    "mpu": {},
    "dcd": {},
    "linear_pegasos": {},
}
LINEAR = ("mpu", "dcd", "linear_pegasos")
# How the patterns of linear solvers are given: the argument X, and the kernel.
FORMS = {
    "dense": (np.asarray, {}),
    "sparse": (lambda X: bj.sparse_rows(SPARSE(X)), {}),
    "linear": (np.asarray, {"kernel": bj.Linear()}),
    "rbf": (np.asarray, KERNEL),
}


@functools.cache
def noisy():
    """No hyperplane separates them; zero rows, and rows that come twice."""
    random = np.random.default_rng(1)
    X = random.normal(size=(N, D))
    y = np.where(X[:, 0] - X[:, 1] + 0.7 * random.normal(size=N) > 0, 1.0, -1.0)
    y = np.where(random.random(N) < 0.1, -y, y)
    X[5], y[5] = X[7], -y[7]
    X[20], y[20] = X[21], y[21]
    X[30] = X[31] = 0
    return X, y


@functools.cache
def separable():
    """Two clouds with room in between, of which some is not needed."""
    random = np.random.default_rng(2)
    X = random.normal(size=(N, D))
    direction = random.normal(size=D) / math.sqrt(D)
    y = np.where(X @ direction > 0, 1.0, -1.0)
    return X + 0.3 * y[:, None] * direction, y


@functools.cache
def whole():
    """Whole numbers, so that sums are exact; zero rows, and rows that come twice."""
    random = np.random.default_rng(0)
    X = random.integers(-3, 4, (N, D)).astype(np.float64)
    y = np.where(X[:, 0] + X[:, 1] + random.normal(size=N) > 0, 1.0, -1.0)
    X[5], y[5] = X[7], -y[7]
    X[20], y[20] = X[21], y[21]
    X[30] = X[31] = X[32] = 0
    return X, y


@functools.cache
def whole_and_separable():
    X = whole()[0].copy()
    X[30], X[31], X[32] = np.eye(D)[:3]
    return X, np.where(X @ [3, 2, 1, 1, 1, 1] > 0, 1.0, -1.0)


DATA = {
    "noisy": noisy,
    "separable": separable,
    "whole": whole,
    "whole-separable": whole_and_separable,
}


def solver_of(name, **given):
    """The solver of this name, with fields as in `SOLVERS` unless they are given."""
    return CLASSES[name](**SOLVERS[name] | given)


def linear(name, form="dense", *, augment=0.0, **given):
    """A linear solver, with rho as the reference has it: 0 for no bias."""
    given |= FORMS[form][1] | {"fit_bias": augment > 0, "bias_scale": augment or 1.0}
    return solver_of(name, **given)


def started(name, form, X, y, weight=None, **given):
    """The state of the zero model of a linear solver, and what it has read."""
    solver = linear(name, form, **given)
    data = solver.read(FORMS[form][0](X), y, weight)
    return solver.init(data), data


def run(name, X, y, form="dense", *, max_steps=None, start=None, **given):
    """The solution of a linear solver."""
    solver = linear(name, form, **{"tolerance": 1e-4} | given)
    return bj.solve(solver, X, y, max_steps=max_steps, start=start)


@functools.cache
def solved(name, data, **given):
    return run(name, *DATA[data](), **given)


@jax.jit
def one_step(state, data):
    return state.solver.step(state, data)


@jax.jit
def objective(state, data):
    return state.solver.objective(state, data)


@functools.cache
def optimum(data, penalty, loss="hinge", augment=0.0):
    return reference.optimum(*DATA[data](), penalty, loss, augment)


def of_state(weights):
    """The weights of a state as those of the reference, which always end with rho's."""
    return np.append(np.asarray(weights), np.zeros(4))[: D + 1]


def of_model(model, augment):
    """The weights that the objective is of."""
    parts = model.weights, model.bias
    weights, bias = (np.asarray(part, np.float64) for part in parts)
    return np.append(weights, bias / augment if augment else 0)


def check_optimum(found, data, penalty, loss="hinge", augment=0.0):
    """The bounds of a history are those of the optimum, its value that of the model."""
    history, best = found.history, optimum(data, penalty, loss, augment).value
    assert np.all(history.gap >= history.primal / best - 1 - 1e-9)
    assert np.all(history.primal >= best * (1 - 1e-9))
    np.testing.assert_allclose(history.primal[0], N * penalty, rtol=1e-12)
    assert history.gap[0] == np.inf
    w = of_model(found.model, augment)
    value = reference.primal(*DATA[data](), w, penalty, loss, augment)
    np.testing.assert_allclose(history.primal[-1], value, rtol=1e-5)
    assert augment or found.model.bias == 0


def close(actual, expected, rtol=1e-10):
    """Equality relative to the largest number."""
    expected = np.asarray(expected)
    scale = max(1.0, float(np.max(np.abs(expected))))
    np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * scale)


def hoisted(program, *given):
    """Loops of a compiled program that are not calls of one kernel, and all loops."""
    if jax.default_backend() != "cpu":
        pytest.skip("of CPUs")
    text = jax.jit(program).lower(*given).compile(AS_USERS_COMPILE).as_text()
    loops = text.count(" while(")
    return loops - text.count('xla_cpu_small_call="true"'), loops


def wide(form, dtype=np.float64):
    """Rows that are long enough for a loop of their own."""
    X = np.random.default_rng(0).normal(size=(300, 41)).astype(dtype)
    return FORMS[form][0](X), X, np.where(X[:, 0] > 0, 1, -1)
