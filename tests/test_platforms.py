"""What runs on a CPU lowers for GPUs and TPUs: no operation that they lack."""

import functools
import sys
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import registry
from compare import FLOAT32, assert_close, assert_same, kept
from marks import slow

import budgetjax as bj
from budgetjax import _platform, losses
from budgetjax.online import driver, examples, slots, sweeps
from budgetjax.refitting import metric

PLATFORMS = ("cuda", "tpu")
PROGRAM = type(jax.jit(lambda: None))


def lowered(program: Any, *given, **named):
    """The text of a program for these platforms."""
    traced = program.trace(*given, **named)
    return traced.lower(lowering_platforms=PLATFORMS).as_text()


@registry.some
def test_a_stream(row):
    state = row.roomy()
    given = examples.check_stream(state, *row.stream(), None)
    # Blocks as an accelerator takes them.
    assert "while" in lowered(driver.run_checked, state, *given, 256)


@registry.some
@pytest.mark.parametrize("backend", ["gpu", *slow("tpu")])
def test_blocks_equal_the_plain_scan_in_float32(row, backend, monkeypatch):
    """What the package decides by the kind of device changes rounding at most."""
    given = row.roomy(), *row.stream()
    expected = bj.run(*given, block_size=1)
    assert_same(bj.run(*given), expected, FLOAT32)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    run = functools.partial(bj.run, block_size=8)
    # Another program than the one that is compiled already.
    assert_same(jax.jit(lambda *given: run(*given))(*given), expected, FLOAT32)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_are_written_at_once_on_a_gpu(axis, monkeypatch):
    """A later one over an earlier; those of no slot to the last, which is arbitrary."""
    monkeypatch.setattr(_platform, "on_cpu", lambda: False)
    monkeypatch.setattr(_platform, "writes_whole", lambda size: False)
    random = np.random.default_rng(0)
    array, values = random.normal(size=(6, 5)), random.normal(size=(4, 5))
    places = 2, int(slots.NOWHERE), 4, 2
    expected = array.copy()
    for place, value in zip(places, values, strict=True):
        if place != slots.NOWHERE:
            expected[place] = value

    @jax.jit
    def put(array, places, values):
        array = array if axis == 0 else array.T
        return slots.put_rows(array, places, values, axis)

    found = put(
        *(array.astype(np.float32), [np.int32(place) for place in places]),
        [*values.astype(np.float32)],
    )
    found = found if axis == 0 else found.T
    np.testing.assert_array_equal(found[:-1], expected[:-1].astype(np.float32))


@pytest.mark.parametrize("backend", ["gpu", *slow("tpu")])
def test_sweeps_as_other_devices_run_them_learn_the_same(backend, monkeypatch):
    (row,) = registry.named("pegasos-merge")
    states = jax.vmap(lambda budget: row.roomy(budget=budget))(jnp.array([5, 9]))
    given = examples.check_stream(row.roomy(), *row.stream(), None)
    one = tuple(jax.devices()[:1])

    def swept(states, *given):
        program = sweeps._run_sharded.__wrapped__
        return program(one, True, 8, states, *given)

    expected = jax.jit(swept)(states, *given)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    actual = jax.jit(lambda *given: swept(*given))(states, *given)
    chex.assert_trees_all_close(actual[1:], expected[1:])
    assert_close(kept(actual[0]).expansion, kept(expected[0]).expansion, FLOAT32)


@pytest.mark.parametrize("backend", ["cpu", "gpu", "tpu"])
def test_models_run_in_turn_on_a_cpu_and_side_by_side_elsewhere(backend, monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert sweeps.side_by_side() == (backend != "cpu")


# One without a matrix over pairs of vectors, and one with it.
SWEPT = registry.named("pegasos-merge", "arow-multiclass")


@functools.partial(registry.each, rows=SWEPT)
def test_a_sweep(row):
    states = jax.vmap(lambda budget: row.roomy(budget=budget))(jnp.array([5, 9]))
    one = jax.tree.map(lambda leaf: leaf[0], states)
    given = examples.check_stream(one, *row.stream(), None)
    program = tuple(jax.devices()[:1]), True, 256, states
    assert "while" in lowered(sweeps._run_sharded, *program, *given)


@pytest.fixture
def programs(monkeypatch):
    """The programs that a test calls from Python; each is lowered as it is called."""
    found = set()

    def watched(program):
        @functools.wraps(program)
        def call(*given, **named):
            shapes = jax.tree.map(np.shape, (given, named))
            if (key := (program, str(shapes))) not in found:
                lowered(program, *given, **named)
                found.add(key)
            return program(*given, **named)

        return call

    modules = [sys.modules[name] for name in sys.modules if name.startswith("budgetj")]
    for module in modules:
        for name, value in list(vars(module).items()):
            if isinstance(value, PROGRAM):
                monkeypatch.setattr(module, name, watched(value))
    jit = jax.jit
    monkeypatch.setattr(jax, "jit", lambda *given, **more: watched(jit(*given, **more)))
    return found


def test_what_accelerators_lack_is_found():
    """The checks here can fail: Schur's decomposition is there for CPUs alone."""
    with pytest.raises(NotImplementedError, match="schur"):
        lowered(jax.jit(jax.scipy.linalg.schur), jnp.eye(3))


def refitted(classes, **options):
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 3)).astype(np.float32)
    y = random.integers(3, size=40)
    learner = bj.Pegasos() if classes else bj.SGD()
    given = {"num_features": 3, "budget": 8, "maintenance": bj.RemoveOldest()}
    state = learner.init(bj.RBF(0.5), num_classes=classes, **given)
    state, _ = bj.run(state, X, y)
    return bj.decision_function(bj.refit(state, X, y, epochs=1, **options), X)


@pytest.mark.slow
def test_a_refit(programs, monkeypatch):
    monkeypatch.setattr(metric, "FEWEST_STEPS", 0)
    refitted(3, move_vectors=True)
    refitted(3, learn_metric=True)
    refitted(None, loss=losses.quantile(0.5))
    assert len(programs) > 15


@pytest.mark.slow
@pytest.mark.parametrize(
    "solver",
    [
        bj.SMO(bj.RBF(0.5)),
        bj.SBP(bj.RBF(0.5), slack=0.1),
        bj.BallSGD(bj.RBF(0.5), radius=3.0),
        bj.SDCA(bj.RBF(0.5)),
        bj.KernelPegasos(bj.RBF(0.5)),
        bj.BudgetSVM(bj.RBF(0.5), bj.norms.OneInfinity(5)),
        bj.MPU(),
        bj.DCD(),
        bj.LinearPegasos(),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_a_solution(solver, programs):
    random = np.random.default_rng(0)
    X = random.normal(size=(40, 3)).astype(np.float32)
    bj.solve(solver, X, np.sign(X[:, 0]), max_steps=2)
    assert len(programs) > 2
