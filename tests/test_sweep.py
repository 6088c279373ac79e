"""A sweep gives every model what it would have had alone."""

import os
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import processes
import pytest
import registry
from compare import FLOAT32, mistakes
from marks import first_quick

import budgetjax as bj
from budgetjax.cli.reports import aligned
from budgetjax.online import sweeps

GAMMAS = np.array([0.4, 1.0, 3.0], np.float32)
BUDGETS = np.array([4, 10, 26])
# Side by side on two devices for each; which devices, and whether one model follows the
# other, is nothing to the learner.
WAYS = [
    ("perceptron-random", "vmap", 2),
    ("perceptron-random", "vmap", 1),
    ("perceptron-random", "map", 2),
    ("pegasos-merge", "vmap", 2),
    ("pegasos-project-multiclass", "map", 2),
    ("nystrom-regression", "vmap", 2),
]


def stacked(row):
    def init(gamma, budget):
        return row.roomy(kernel=row.kernel_of(gamma), budget=budget)

    return jax.jit(jax.vmap(init))(GAMMAS, BUDGETS)


@pytest.mark.parametrize(
    ("name", "how", "num_devices"),
    first_quick([pytest.param(*way, id=f"{way[1]}-{way[2]}@{way[0]}") for way in WAYS]),
)
def test_every_model_equals_its_single_run(name, how, num_devices, monkeypatch):
    """Three models on two devices: one device has a model to spare."""
    assert len(jax.devices()) >= 2
    row = next(row for row in registry.ROWS if row.name == name)
    X, y = row.stream()
    weight = np.arange(60) % 7 != 3
    states = stacked(row)
    monkeypatch.setattr(sweeps, "side_by_side", lambda: how == "vmap")
    result = bj.sweep(
        states, X, y, weight=weight, devices=jax.devices()[:num_devices], block_size=16
    )
    ends = [16, 32, 48, 60]
    np.testing.assert_array_equal(result.rounds, [weight[:end].sum() for end in ends])
    # Taken apart in NumPy, where an index compiles nothing.
    before, after = jax.device_get((states, result.states))
    for index in range(3):
        alone, one = (
            jax.tree.map(lambda leaf, index=index: jnp.asarray(leaf[index]), leaves)
            for leaves in (before, after)
        )
        state, scores = bj.run(alone, X, y, weight=weight)
        for count in ("num_seen", "num_mistakes", "num_updates"):
            assert int(getattr(one, count)) == int(getattr(state, count))
        np.testing.assert_array_equal(
            one.expansion.ages[:-1], state.expansion.ages[:-1]
        )
        for actual, wanted in zip(bj.support(one), bj.support(state), strict=True):
            tolerance = FLOAT32 * max(1.0, np.abs(wanted).max())
            np.testing.assert_allclose(actual, wanted, FLOAT32, tolerance)
        regression = name.endswith("regression")
        wrong = np.where(weight, (squared if regression else mistakes)(scores, y), 0)
        expected = [wrong[:end].sum() / weight[:end].sum() for end in ends]
        np.testing.assert_allclose(
            result.errors[index], expected, rtol=1e-5 if regression else 1e-6
        )
        assert result.error[index] == result.errors[index, -1]


def squared(scores, y):
    return (np.asarray(scores, np.float64) - y) ** 2


def test_auto_takes_all_devices_and_new_values_do_not_retrace():
    (row,) = registry.named("perceptron-random")
    row, traces = row.counted()
    X, y = row.stream()
    states = stacked(row)
    result = bj.sweep(states, X, y)
    assert len(result.states.expansion.scale.sharding.device_set) >= 1
    once = len(traces)
    bj.sweep(stacked(row), -X, -y)
    assert len(traces) == once > 0


def test_bad_input():
    row = registry.ROWS[0]
    X, y = row.stream()
    states = stacked(row)
    for given, more, says in (
        ((row.init(), X, y), {}, "states must be stacked"),
        ((states, X[:0], y[:0]), {}, "X must have at least 1 row"),
        ((states, X, y), {"devices": ()}, "devices must not be empty"),
        ((states, X[:, :2], y), {}, "X must have shape"),
        ((states, X, y), {"block_size": 0}, "block_size must be at least 1"),
    ):
        with pytest.raises(ValueError, match=f"sweep: {says}"):
            bj.sweep(*given, **more)
    settings = {"num_features": 3, "budget": 2, "maintenance": bj.Unbudgeted()}
    unbudgeted = jax.jit(
        jax.vmap(lambda gamma: bj.Perceptron().init(bj.RBF(gamma), **settings))
    )(GAMMAS)
    with pytest.raises(OverflowError, match="sweep: a budget of"):
        bj.sweep(unbudgeted, X, y)


def test_a_model_that_overflows_is_not_the_best():
    """Scores that are not numbers count as mistakes."""
    settings = {"num_features": 3, "budget": 5, "maintenance": bj.RemoveOldest()}
    states = jax.jit(
        jax.vmap(
            lambda gamma: bj.Perceptron().init(bj.Polynomial(30, gamma), **settings)
        )
    )(np.array([1e-9, 1e3], np.float32))
    X, y = registry.ROWS[0].stream()
    result = bj.sweep(states, 100 * X, y)
    assert np.all(np.isfinite(result.errors))
    assert result.error[1] > 0.9


def test_grid_names_its_axes_and_sorts_its_table():
    grid = bj.grid(gamma=[0.1, 1.0], budget=[5, 10, 20])
    assert grid.names == ("gamma", "budget")
    assert [column.tolist() for column in grid.columns] == [
        [0.1, 0.1, 0.1, 1.0, 1.0, 1.0],
        [5, 10, 20, 5, 10, 20],
    ]
    table = grid.table(error=[0.3, 0.1, 0.5, 0.1, 0.2, 0.4], vectors=range(6))
    assert list(table) == ["gamma", "budget", "error", "vectors"]
    rows = list(zip(*table.values(), strict=True))
    assert rows[:3] == [(0.1, 10, 0.1, 1), (1.0, 5, 0.1, 3), (1.0, 10, 0.2, 4)]
    lines = aligned(table).splitlines()
    assert lines[0].split() == ["gamma", "budget", "error", "vectors"]
    assert lines[1].split() == ["0.1", "10", "0.1", "1"]
    assert len({len(line) for line in lines}) == 1


def test_grid_inits_stacked_states():
    grid = bj.grid(gamma=[0.5, 2.0], regularization=[1e-3, 1e-2], budget=[3, 6])
    states = grid.init(
        lambda gamma, regularization, budget: bj.Pegasos(
            regularization=regularization
        ).init(bj.RBF(gamma), num_features=2, budget=budget, capacity=6)
    )
    np.testing.assert_array_equal(states.expansion.budget, grid.columns[2])
    np.testing.assert_allclose(states.kernel.gamma, grid.columns[0])
    np.testing.assert_allclose(states.learner.regularization, grid.columns[1])


@pytest.mark.parametrize("axes", [{}, {"gamma": []}, {"gamma": 1.0}, {"gamma": ["a"]}])
def test_grid_bad_input(axes):
    with pytest.raises(ValueError, match="grid: "):
        bj.grid(**axes)
    with pytest.raises(ValueError, match=r"Grid\.table: error must have shape"):
        bj.grid(gamma=[1.0, 2.0]).table(error=[0.1])


@pytest.mark.slow
def test_two_processes_share_a_sweep(tmp_path, quick_process):
    """Each has the results of all models, equal to those of one process alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def start(rank, count):
        path = tmp_path / f"{rank}-{count}.npz"
        command = [sys.executable, processes.__file__, "sweep", rank, count, port, path]
        return subprocess.Popen(map(str, command), env=os.environ | quick_process)

    children = [start(0, 1), start(0, 2), start(1, 2)]
    try:
        assert [child.wait(timeout=200) for child in children] == [0, 0, 0]
    finally:
        for child in children:
            child.kill()
    alone, *shared = (
        np.load(tmp_path / name) for name in ("0-1.npz", "0-2.npz", "1-2.npz")
    )
    assert len(alone["arr_0"]) == 3
    for found in shared:
        assert sorted(found) == sorted(alone)
        for name in alone:
            np.testing.assert_array_equal(found[name], alone[name])
