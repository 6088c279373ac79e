"""What runs share: a training set that is read once, and one array of kernel rows."""

import functools
import gc
import zlib

import jax
import numpy as np
import pytest
from compare import same
from marks import first_quick, slow
from solving import FORMS, KERNEL_SOLVERS, LINEAR, SOLVERS, N, noisy, solver_of

import budgetjax as bj
from budgetjax import _checks
from budgetjax.solvers import row_cache
from budgetjax.solvers.one_versus_rest import one_versus_rest

PENALTY = dict.fromkeys(SOLVERS, "penalty") | {"sbp": "slack", "ball_sgd": "radius"}
VALUES = (0.1, 0.5, 3.0)


@functools.cache
def data():
    """In float32, which kernel solvers keep, and linear ones read."""
    X, y = noisy()
    return X.astype(np.float32), y


def varied(name, value, **given):
    return solver_of(name, **{PENALTY[name]: value, "tolerance": None} | given)


def few(solver, *data, **given):
    return bj.solve(solver, *data, **{"max_steps": 6, "callback_every": 3} | given)


@pytest.fixture
def none_at_the_start(monkeypatch):
    """Rows are computed when they are needed, though all fit."""
    monkeypatch.setattr(row_cache, "AFFORDABLE_EXAMPLES", 0)


# Kernel rows.


@pytest.mark.parametrize("name", first_quick(KERNEL_SOLVERS))
def test_penalties_share_rows(name):
    """The first run computes them all; each solution is that of a run alone."""
    shown, cache = solver_of(name).read(*data()), bj.KernelCache()
    for value in VALUES:
        found = few(varied(name, value), shown, cache=cache)
        assert found.state.rows is None
        assert found.history.work[-1] == (N * N if value == VALUES[0] else 0)
        alone = few(varied(name, value), shown)
        same(found.model, alone.model)
        same(found.state, alone.state)
        assert alone.history.work[-1] == N * N


@pytest.mark.parametrize("size", [512.0, *slow(1e-9)])
@pytest.mark.parametrize("name", ["smo", *slow("sbp", "ball_sgd")])
def test_solutions_stay_valid(name, size, none_at_the_start):
    """They predict, and runs go on from them, after the rows have changed."""
    cache, X = bj.KernelCache(size), data()[0]
    first = few(varied(name, VALUES[0]), *data(), cache=cache)
    before = jax.tree.map(np.array, (first.model, first.model.decision_function(X)))
    kept = [few(varied(name, value), *data(), cache=cache) for value in VALUES[1:]]
    same((first.model, first.model.decision_function(X)), before)
    on = [few(varied(name, VALUES[0]), *data(), start=first.state, cache=cache)]
    # SBP prefers examples whose rows it has, so it makes other draws alone.
    if name != "sbp":
        on.append(few(varied(name, VALUES[0]), *data(), start=first.state))
        on.append(few(varied(name, VALUES[0]), *data(), max_steps=12))
        expected = on[0].model.decision_function(X)
        for one in on[1:]:
            found = one.model.decision_function(X)
            np.testing.assert_allclose(found, expected, 1e-4, 1e-4)
    assert all(np.all(np.isfinite(one.history.primal)) for one in (*kept, *on))


def arrays_of(shape):
    return [one for one in jax.live_arrays() if one.shape == shape]


@pytest.mark.parametrize("watched", [False, *slow(True)])
@pytest.mark.parametrize(
    ("name", "places"), [("smo", N), *slow(("sdca", 8), ("sbp", N))]
)
def test_there_is_one_array_of_rows(name, places, watched):
    """Runs change it in place, whether a callback looks on or not."""
    shape, seen = (places, N), []

    def look(state, record):
        seen.append(len(arrays_of(shape)))

    # Once: what is dropped from here on is in no cycle.
    gc.collect()
    before = len(arrays_of(shape))
    cache = bj.KernelCache(512.0 if places == N else 1e-9)
    assert repr(cache).endswith(" with 0 MiB of rows")
    run = functools.partial(few, cache=cache, callback=look if watched else None)
    pointers = set()
    for value in VALUES:
        found = run(varied(name, value), *data())
        run(varied(name, value), *data(), start=found.state)
        held = arrays_of(shape)
        assert len(held) == before + 1
        pointers.add(held[-1].unsafe_buffer_pointer())
        del held
    assert len(pointers) == 1
    assert set(seen) == ({before + 1} if watched else set())
    # Those of another kernel come after these have gone.
    most = []
    compute = row_cache.compute_rows

    def computed(*given):
        most.append(len(arrays_of(shape)))
        return compute(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_cache, "compute_rows", computed)
        run(varied(name, 1.0, kernel=bj.RBF(0.7)), *data())
    assert most == [before]
    assert len(arrays_of(shape)) == before + 1
    del cache, run
    assert len(arrays_of(shape)) == before


def test_rows_of_something_else_make_way():
    X, y = data()
    cache, solver = bj.KernelCache(), solver_of("sdca", tolerance=None)
    shown = solver.read(X, y)
    few(solver, shown, cache=cache)
    for other, given in (
        (solver_of("sdca", kernel=bj.RBF(0.7)), (shown,)),
        (solver_of("sdca", kernel=bj.Laplacian(0.1)), (shown,)),
        (solver_of("sdca", batch_size=5), (shown,)),
        (solver, (X[::-1], y[::-1])),
        (solver, (X.astype(np.float64) + 1e-9, y)),
    ):
        found = few(other, *given, cache=cache)
        assert found.history.work[-1] == N * N
        same(found.model, few(other, *given).model)
        again = few(other, *given, cache=cache)
        assert again.history.work[-1] == 0
        few(solver, shown, cache=cache)
    # Other labels, weights and solvers are of the same rows.
    for other, given in (
        (solver, (X, -y)),
        (solver, (X, y, np.full(N, 2.0))),
        (solver_of("kernel_pegasos"), (X, y)),
    ):
        shown = other.read(*given)
        assert few(other, shown, cache=cache).history.work[-1] == 0


def test_a_run_that_fails_leaves_the_cache_empty():
    cache, solver = bj.KernelCache(), solver_of("sdca")

    def fail(state, record):
        raise RuntimeError("of the callback")

    few(solver, *data(), cache=cache)
    with pytest.raises(RuntimeError, match="of the callback"):
        few(solver, *data(), cache=cache, callback=fail)
    assert few(solver, *data(), cache=cache).history.work[-1] == N * N
    assert few(solver, *data(), cache=cache).history.work[-1] == 0


# Training sets.


@pytest.fixture
def counted(monkeypatch):
    """How often the rows, of which X has the shape, are checked, copied and hashed."""
    X, counts = data()[0], {"checked": 0, "copied": 0, "hashed": 0}
    check_finite, to_device, crc32 = (
        _checks.check_finite,
        _checks.to_device,
        zlib.crc32,
    )

    def check(rows, *more):
        counts["checked"] += rows.shape == X.shape
        return check_finite(rows, *more)

    def copy(value, dtype):
        counts["copied"] += np.shape(value) == X.shape
        return to_device(value, dtype)

    def hashed(content, *more):
        counts["hashed"] += np.asarray(content).nbytes == X.nbytes
        return crc32(content, *more)

    monkeypatch.setattr(_checks, "check_finite", check)
    monkeypatch.setattr(_checks, "to_device", copy)
    monkeypatch.setattr(zlib, "crc32", hashed)
    return counts


ONCE = {"checked": 1, "copied": 1, "hashed": 1}


@pytest.mark.parametrize("name", first_quick(SOLVERS))
def test_a_training_set_is_read_once(name, counted):
    found = few(solver_of(name), *data())
    assert counted == ONCE
    few(solver_of(name), *data(), start=found.state)
    assert counted == dict.fromkeys(ONCE, 2)


@pytest.mark.parametrize("name", first_quick(SOLVERS))
def test_a_training_set_that_was_read_is_not_read_again(name, counted):
    shown = solver_of(name).read(*data())
    cache = None if name in LINEAR else bj.KernelCache()
    solutions = [few(varied(name, value), shown, cache=cache) for value in VALUES]
    few(varied(name, VALUES[-1]), shown, start=solutions[-1].state, cache=cache)
    assert counted == ONCE


@pytest.mark.parametrize("name", ["smo", "sbp", "dcd", "mpu"])
def test_classes_share_a_training_set(name, counted):
    X, classes = data()[0], np.arange(3)
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    solver = solver_of(name, tolerance=None)
    solutions = one_versus_rest(solver, X, y, classes, max_steps=6)
    assert counted == ONCE
    for label, found in zip(classes, solutions, strict=True):
        signs = np.where(y == label, 1, -1)
        same(found.model, few(solver, X, signs).model)
        if name not in LINEAR:
            assert found.history.work[-1] == (0 if label else N * N)


@pytest.mark.parametrize(
    ("name", "form"),
    [("sdca", "dense"), *(("mpu", form) for form in FORMS)],
)
def test_other_labels_of_a_training_set(name, form):
    (X, y), (convert, kernel) = noisy(), FORMS[form]
    solver = solver_of(name, **kernel)
    shown = solver.read(convert(X), y)
    other = np.where(X[:, 2] > 0, 1, -1)
    new, read = shown.with_labels(other), solver.read(convert(X), other)
    same(new, read)
    if name == "sdca":
        assert new.X is shown.X
    same(few(solver, new).model, few(solver, read).model)
    with pytest.raises(ValueError, match="start must be of this training set, "):
        few(solver, new, start=few(solver, shown).state)
    with pytest.raises(ValueError, match=r"y must be -1 or \+1, got 2 "):
        shown.with_labels(2 * other)
