"""Memory: it is counted before it is taken, and rows cost what they need."""

import functools

import numpy as np
import pytest
import registry
from compare import same

import budgetjax as bj
from budgetjax import _checks
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    BudgetedOneClass,
    online,
)
from budgetjax.online import driver
from budgetjax.online.state import with_room

# What a machine of tests has, too little for what a test asks for.
LITTLE = 2**27
CHOSEN = {"gamma": 0.5, "penalty": 10.0, "encode": False, "random_state": 0}
FIXED = CHOSEN | {"learn_metric": False}


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(_checks, "memory", lambda: LITTLE)


def rows(n=60, num_features=2, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, num_features))
    return X, np.sin(2 * X[:, 0]) * X[:, 1]


# The limits of control groups, as Linux tells them.


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_container_is_that_of_memory(tmp_path, monkeypatch, version):
    names = {
        1: ("memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
        2: ("", "max", "current", "inactive_file"),
    }
    controllers, limit, used, caches = names[version]
    outer, inner = tmp_path / "job", tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    for folder, most in ((tmp_path, None), (outer, 1000 * 2**20), (inner, None)):
        unlimited = "max" if version == 2 else str(2**63 - 4096)
        (folder / f"memory.{limit}").write_text(str(most or unlimited) + "\n")
        (folder / f"memory.{used}").write_text(f"{300 * 2**20}\n")
        text = f"anon 5\n{caches} {100 * 2**20}\nunevictable 0\n"
        (folder / "memory.stat").write_text(text)
    groups = tmp_path / "cgroup"
    groups.write_text(f"1:cpu,cpuacct:/else\n0:{controllers}:/job/step\n")
    monkeypatch.setattr(_checks, "PROCESS_GROUPS", groups)
    files = tmp_path, *_checks.MEMORY_FILES[controllers][1:]
    monkeypatch.setitem(_checks.MEMORY_FILES, controllers, files)
    monkeypatch.setattr(_checks, "_free_memory", lambda: 2.0**40)
    # What the system would free counts as free.
    assert _checks.host_memory() == 800 * 2**20
    groups.unlink()
    assert _checks.host_memory() == 2.0**40


# Learners.


# The radius of Ahpatron depends on the budget, and features of Fourier are no rows.
GROWING = [
    row for row in registry.firsts() if row.algorithm not in (bj.ahpatron, bj.fourier)
]


@functools.partial(registry.each, rows=GROWING)
def test_a_state_with_more_slots_goes_on_as_if_it_had_had_them(row):
    X, y = row.stream(n=24)
    small, large = row.init(budget=12), row.init(budget=40)
    state, _ = bj.run(row.algorithm, small, X[:12], y[:12], block_size=1)
    wide = with_room(state, large)
    _, scores = bj.run(row.algorithm, wide, X[12:], y[12:], block_size=1)
    _, wanted = bj.run(row.algorithm, large, X, y, block_size=1)
    # Products of more rows are summed in another order.
    np.testing.assert_allclose(scores, wanted[12:], rtol=1e-4, atol=1e-5)
    assert int(wide.expansion.budget) == 40


def test_sizes_beyond_32_bits_are_refused():
    for sizes in ({"budget": 2**31}, {"budget": 2, "capacity": 2**31}):
        *_, name = sizes
        with pytest.raises(
            ValueError, match=f"{name} must fit 32 bits, got 2147483648"
        ):
            bj.perceptron.init(bj.RBF(1.0), num_features=2, **sizes)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"budget": 10**7, "num_features": 3}, "budget must be .* got 10,000,000, "),
        (
            {"num_features": 10**9},
            "num_features must be .* got 1,000,000,000, .* hash ",
        ),
        ({"num_classes": 10**8}, "num_classes must be .* got 100,000,000, .* 2.* GiB"),
    ],
)
def test_the_size_that_is_too_large_is_named(little, sizes, says):
    sizes = {"budget": 5, "num_features": 2} | sizes
    with pytest.raises(ValueError, match=f"^perceptron.init: {says}"):
        bj.perceptron.init(bj.RBF(1.0), maintenance=bj.RemoveOldest(), **sizes)


def test_matrices_of_a_refit_are_counted_before_a_stream(little, monkeypatch):
    monkeypatch.setattr(driver, "run", None)
    X, f = rows(3000)
    y = np.arange(3000) % 300
    # A Hessian of 4 MB for each of 300 classes.
    with pytest.raises(ValueError, match=r"budget must be .* got 1,000, columns=300, "):
        BudgetedKernelClassifier(1000, **FIXED).fit(X, y)
    with pytest.raises(ValueError, match=r"budget must be .* got 3,000, columns=1, "):
        BudgetedKernelRegressor(10_000, **FIXED).fit(X, f)
    with pytest.raises(ValueError, match=r"budget must be .* got 3,000, columns=1, "):
        BudgetedOneClass(10_000).fit(X)


def test_matrices_of_a_refit_are_counted(little):
    X, y = rows()
    state = bj.pegasos.init(
        bj.RBF(1.0), num_features=2, budget=3000, regularization=1.0
    )
    state, _ = bj.run(bj.pegasos, state, X, np.sign(y))
    for call in (bj.refit, bj.one_class):
        with pytest.raises(
            ValueError, match=f"^{call.__name__}: budget must be one whose"
        ):
            call(state, X, *([np.sign(y)] if call is bj.refit else []))


def test_kernel_rows_of_solvers_are_counted(little):
    X, y = rows(6000)
    for solver, more in (
        (bj.smo, {"cache_size": None}),
        (bj.smo, {"cache_size": 1000}),
        (bj.mpu, {"kernel": bj.RBF(1.0)}),
    ):
        with pytest.raises(
            ValueError, match=r"fit into memory, 0.1 GiB, got .* of kernel"
        ):
            bj.solve(solver, X, np.sign(y), **{"kernel": bj.RBF(1.0)} | more)
    model = bj.KernelModel(bj.RBF(1.0), X, y, np.zeros(()))
    with pytest.raises(ValueError, match=r"^compress: budget must be .* got 4,000, "):
        bj.compress(model, 4000)


# Estimators.


@pytest.mark.parametrize(
    "kind", [BudgetedKernelClassifier, BudgetedKernelRegressor, BudgetedOneClass]
)
def test_a_budget_above_the_rows_is_that_of_the_rows(kind):
    X, f = rows()
    y = f > 0 if kind is BudgetedKernelClassifier else f
    more = {"random_state": 0} if kind is BudgetedOneClass else FIXED
    one, other = (kind(budget, **more).fit(X, y) for budget in (60, 10**9))
    assert other.state_.expansion.vectors.shape == (61, 2)
    assert other.get_params()["budget"] == 10**9
    same(other.state_, one.state_)
    if kind is not BudgetedOneClass:
        twice = kind(10**9, epochs=2, refit=False, gamma=0.5, encode=False).fit(X, y)
        assert twice.state_.expansion.vectors.shape == (121, 2)


def test_slots_that_are_asked_for_and_random_features_stay():
    X, y = rows()
    given = {"gamma": 0.5, "encode": False, "refit": False}
    model = BudgetedKernelClassifier(100, capacity=200, **given).fit(X, y > 0)
    assert model.state_.expansion.vectors.shape == (201, 2)
    model = BudgetedKernelClassifier(100, algorithm="fourier", **given).fit(X, y > 0)
    assert model.state_.expansion.vectors.shape == (101, 2)


@pytest.mark.parametrize("algorithm", ["pegasos", "arow", "projectron"])
def test_a_stream_after_fit_gets_the_slots_of_the_budget(algorithm):
    X, y = rows(200)
    given = {"algorithm": algorithm, "gamma": 0.5, "encode": False, "refit": False}
    given |= {"shuffle": False}
    one, other = (
        BudgetedKernelClassifier(150, **given | more)
        for more in ({}, {"capacity": 150})
    )
    for model in (one, other):
        model.fit(X[:50], y[:50] > 0)
        model.partial_fit(X[50:], y[50:] > 0)
    assert one.state_.expansion.vectors.shape == (151, 2)
    wanted = other.decision_function(X)
    # Products of more rows are summed in another order.
    np.testing.assert_allclose(one.decision_function(X), wanted, rtol=1e-3, atol=1e-4)


def test_a_stream_grows_with_its_rows(monkeypatch):
    monkeypatch.setattr(online, "FEWEST_SLOTS", 16)
    X, f = rows(100)
    grows = BudgetedKernelRegressor(10**9, **FIXED)
    whole = BudgetedKernelRegressor(100, capacity=100, **FIXED)
    for start, stop, slots in ((0, 10, 16), (10, 40, 64), (40, 60, 64), (60, 100, 128)):
        for model in (grows, whole):
            model.partial_fit(X[start:stop], f[start:stop])
        assert len(grows.state_.expansion.ages) == slots + 1
    # Products of more rows are summed in another order.
    wanted = whole.predict(X)
    np.testing.assert_allclose(grows.predict(X), wanted, rtol=1e-3, atol=1e-3)
