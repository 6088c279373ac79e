"""`solve`, which drives all solvers, and what all of them promise."""

import functools
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from compare import same
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from solving import FORMS, LINEAR, SOLVERS, SPARSE, N, close, noisy, whole

import budgetjax as bj
from budgetjax.solvers import solver as driver

ALL = tuple(SOLVERS)
# Solvers that draw, and the number that a problem is swept over.
DRAWING = tuple(name for name in ALL if name not in ("smo", "budget_svm"))
PENALTY = dict.fromkeys(ALL, "penalty") | {"sbp": "slack", "ball_sgd": "radius"}


def each(test, names=ALL):
    """Runs a test once for every solver; one process takes all tests of a solver."""
    named = [pytest.param(name, id=f"@{name}") for name in names]
    return pytest.mark.parametrize("name", named)(test)


@functools.cache
def data():
    """In float32, which kernel solvers keep, and linear ones read."""
    X, y = noisy()
    return X.astype(np.float32), y


def solved(name, **given):
    """Some steps, with a program that other tests share."""
    X, y = data()
    given = SOLVERS[name] | {"tolerance": None, "max_steps": 6} | given
    given = {"X": X, "y": y, "callback_every": 100} | given
    return bj.solve(getattr(bj, name), **given)


def gone_on(name, state, **given):
    given = {"tolerance": None, "callback_every": 100} | given
    return bj.solve(getattr(bj, name), *data(), state=state, **given)


# Records.


def test_history():
    found = solved("sdca", max_steps=25, callback_every=10, penalty=10.0)
    history = found.history
    assert history._fields == ("step", "primal", "dual", "gap", "work", "vectors")
    np.testing.assert_array_equal(history.step, [0, 10, 20, 25])
    assert history.primal[0] == 10 * N
    assert history.dual[0] == 0
    assert history.gap[0] == np.inf
    gap = (history.primal - history.dual)[1:] / history.dual[1:]
    np.testing.assert_allclose(history.gap[1:], gap, rtol=1e-12)
    assert np.all(np.diff(history.dual) > 0)
    np.testing.assert_array_equal(history.work, N * N)
    assert history.vectors[0] == 0 < history.vectors[1] <= N
    assert history.vectors[-1] == np.count_nonzero(found.state.coefficients)
    assert all(isinstance(column, np.ndarray) for column in history)
    assert not found.converged
    nothing = gone_on("sdca", found.state, max_steps=0).history
    np.testing.assert_array_equal(nothing.step, [0])
    assert nothing.primal[0] == history.primal[-1]


def test_a_tolerance_ends_the_run():
    given = {"max_steps": 1000, "callback_every": 2}
    coarse = solved("smo", tolerance=0.05, **given)
    fine = solved("smo", tolerance=1e-3, **given)
    small = coarse.history.gap <= 0.05
    assert small[-1]
    assert not np.any(small[:-1])
    assert coarse.converged
    assert len(small) < len(fine.history.step)
    same(
        coarse.history, jax.tree.map(lambda column: column[: len(small)], fine.history)
    )


def test_a_callback_ends_the_run_and_may_keep_states():
    records, states, models = [], [], []

    def callback(state, record):
        records.append(record)
        states.append(state)
        models.append(bj.smo.model(state, *data()))
        return record.step >= 4 if record.step else None

    given = {"max_steps": 1000, "callback_every": 2}
    found = solved("smo", callback=callback, **given)
    np.testing.assert_array_equal(found.history.step, [0, 2, 4])
    for column, field in zip(found.history, records[0]._fields, strict=True):
        np.testing.assert_array_equal(column, [getattr(r, field) for r in records])
    assert len(models[0].vectors) == 0
    assert np.all(np.isfinite(models[-1].decision_function(data()[0])))
    # What was kept is as it was, rows and all: going on from it leads to the same end.
    same(gone_on("smo", states[1], max_steps=2).state, found.state)
    same(states[2], found.state)


def test_a_held_out_error_that_settles_ends_the_run():
    X, y = data()
    held, labels = X[::2], np.where(np.arange(N // 2) % 7 == 0, -y[::2], y[::2])
    errors = []

    def seen(state, record):
        predicted = np.asarray(bj.sdca.model(state, X, y).predict(held))
        errors.append(np.mean(predicted != labels))
        return stop(state, record)

    stop = bj.held_out_stop(bj.sdca, X, y, held, labels, patience=3)
    found = solved("sdca", max_steps=400, callback=seen, callback_every=2)
    assert 3 < len(errors) == len(found.history.step) < 200
    assert min(errors[-3:]) >= min(errors[:-3])
    for k in range(4, len(errors)):
        assert min(errors[k - 3 : k]) < min(errors[: k - 3])


def test_a_bar_shows_the_progress(capfd):
    pytest.importorskip("tqdm")
    quiet = solved("sdca", max_steps=20, callback_every=10)
    assert capfd.readouterr() == ("", "")
    loud = solved("sdca", max_steps=20, callback_every=10, progress=True)
    out, err = capfd.readouterr()
    assert not out
    for text in ("solve", "gap", "20/20"):
        assert text in err
    same(loud.history, quiet.history)


def test_a_bar_needs_tqdm(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with pytest.raises(ImportError, match=r"^solve needs tqdm: pip install tqdm"):
        solved("sdca", max_steps=1, progress=True)


# Every solver.


@each
def test_a_run_goes_on(name):
    """Two runs are one, and the state in between is left as it was."""
    given = {PENALTY[name]: 0.05 if name == "sbp" else 30.0}
    once, first = (solved(name, max_steps=steps, **given) for steps in (6, 2))
    between = jax.tree.map(jnp.copy, first.state)
    for _ in range(2):
        twice = gone_on(name, first.state, max_steps=4)
        same(twice.state, once.state)
        same(first.state, between)
    same(twice.model, once.model)
    np.testing.assert_array_equal(twice.history.step, [0, 4])
    state = twice.state
    if name not in LINEAR:
        state = state._replace(rows=state.rows._replace(kernel=None))
    for leaf in jax.tree.leaves(state):
        assert not getattr(leaf, "weak_type", False)


@each
def test_new_values_compile_nothing(name):
    solved(name)
    solved(name, max_steps=2)
    programs = driver._advance_in_place, driver._evaluate
    compiled = [each._cache_size() for each in programs]
    table = [{PENALTY[name]: 7}, {PENALTY[name]: np.float32(0.1), "max_steps": 4}]
    table += [{"seed": 3}] if name in DRAWING else []
    table += [{"kernel": bj.RBF(0.2)}] if name not in LINEAR else [{"bias_scale": 2.0}]
    table += [{"hard_margin": True}, {"tolerance": 0.01}] if name == "mpu" else []
    table += [{"loss": "squared_hinge"}] if name == "dcd" else []
    for given in table:
        solved(name, **{"X": data()[0] + 1} | given)
    assert [each._cache_size() for each in programs] == compiled


@functools.partial(each, names=DRAWING)
def test_seeds_are_draws(name):
    first, again, other = (solved(name, seed=seed) for seed in (3, 3, 4))
    same(first.history, again.history)
    same(first.model, again.model)
    assert first.history.primal[-1] != other.history.primal[-1]


# Kernel Pegasos steps as SDCA does, and budgets have a test of their own.
@functools.partial(each, names=("sbp", "sdca", "smo", *LINEAR))
def test_many_values_at_once(name, double):
    """`vmap` over `init` and `step` is a run for each value."""
    X, y = noisy()
    solver, values = getattr(bj, name), [0.02, 0.5, 3.0]

    def start(value):
        return solver.init(X, y, **SOLVERS[name] | {PENALTY[name]: value})

    shown = solver.prepare(start(values[0]), X, y)

    @jax.jit
    def end(state):
        state = jax.lax.fori_loop(0, 3, lambda _, now: solver.step(now, *shown), state)
        return state, solver.objective(state, *shown)

    many = jax.vmap(end)(jax.vmap(start)(jnp.asarray(values)))
    for i, value in enumerate(values):
        alone = end(start(value))
        for ours, theirs in zip(
            jax.tree.leaves(many), jax.tree.leaves(alone), strict=True
        ):
            if jnp.issubdtype(theirs.dtype, jnp.floating):
                np.testing.assert_allclose(ours[i], theirs, 1e-9, 1e-9)
    assert not np.allclose(many[1].primal[0], many[1].primal[-1])


@pytest.mark.parametrize(
    ("name", "form", "given"),
    [
        ("smo", "dense", {}),
        ("linear_pegasos", "sparse", {}),
        ("mpu", "dense", {}),
        ("mpu", "sparse", {"loss": "squared_hinge"}),
        ("dcd", "dense", {"loss": "squared_hinge"}),
        ("dcd", "sparse", {}),
    ],
)
def test_several_penalties_are_as_many_solutions(name, form, given):
    penalties = np.array([0.1, 1.0, 3.0])
    X, y = whole()
    given = given | {"X": FORMS[form][0](X), "y": y, "callback_every": 1}
    given |= {"max_steps": 4 if name == "linear_pegasos" else 10_000}
    given |= {"tolerance": 1e-4} if name in ("mpu", "dcd") else {"tolerance": 1e-3}
    many = solved(name, penalty=penalties, **given)
    assert isinstance(many, tuple)
    warm = getattr(bj, name).warm_start is not None
    for i, (found, penalty) in enumerate(zip(many, penalties, strict=True)):
        alone = solved(name, penalty=float(penalty), **given)
        if i == 0 or not warm:
            same(found.model, alone.model)
            same(found.history, alone.history)
        else:
            # From the solution before.
            assert alone.converged
            assert found.converged
            assert found.history.dual[0] > alone.history.dual[0]
            assert found.history.work[-1] <= alone.history.work[-1]
            primal, optimum = found.history.primal[-1], alone.history.dual[-1]
            assert optimum / 1.0001 <= primal <= 1.0002 * optimum
        if name == "smo":
            np.testing.assert_array_equal(found.history.work, N * N)


# Precision, and forms of the data.


@functools.partial(each, names=LINEAR)
def test_linear_solvers_compute_in_double_precision(name):
    """Whatever the caller's default is, which stays; the model is in that."""
    found = solved(name)
    with jax.enable_x64(True):
        other = solved(name)
        assert jax.config.read("jax_enable_x64")
    assert not jax.config.read("jax_enable_x64")
    same(found.history, other.history)
    for one, dtype in ((found, jnp.float32), (other, jnp.float64)):
        assert one.state.weights.dtype == np.float64
        for leaf in jax.tree.leaves(one.model):
            assert leaf.dtype == dtype
            assert not leaf.weak_type


def test_an_error_leaves_the_precision_alone(as_installed):
    for given in ({"bias_scale": -1.0}, {"max_steps": -1}):
        with pytest.raises(ValueError, match=r"bias_scale|max_steps"):
            solved("dcd", **given)
        assert not jax.config.read("jax_enable_x64")


def test_integers_and_lists_are_data(as_installed):
    X, y = [[0, 1], [1, 0], [3, 3], [4, 4]], [-1, -1, 1, 1]
    found = bj.solve(bj.smo, X, y, kernel=bj.RBF(1.0), penalty=2.5, max_steps=0)
    assert found.state.responses.dtype == jnp.float32
    assert found.history.primal[0] == 10
    assert found.model.vectors.shape == (0, 2)
    assert not found.converged


@functools.partial(each, names=LINEAR)
def test_forms_of_the_same_patterns(name):
    X, y = noisy()
    expected = solved(name, X=X)
    forms = [SPARSE(X)]
    if name == "mpu":
        forms += [scipy.sparse.coo_array(X), bj.sparse_rows(SPARSE(X)), X.tolist()]
    for form in forms:
        found = solved(name, X=form, y=y.astype(int))
        close(found.history.primal, expected.history.primal, 1e-9)
        np.testing.assert_array_equal(found.history.work, expected.history.work)
        close(found.model.weights, expected.model.weights, 1e-6)


# Sharded data.


@pytest.mark.parametrize("name", ["sbp", "smo"])
def test_data_sharded_by_rows(name, double):
    """On two devices the same as on one."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("examples",))
    split = NamedSharding(mesh, PartitionSpec("examples"))
    data = tuple(jnp.asarray(each) for each in noisy())
    # SBP prefers examples whose rows it has: only single updates are the same.
    given = SOLVERS[name] | {"batch_size": 1 if name == "sbp" else 8}
    solver = getattr(bj, name)

    @jax.jit
    def end(state, X, y):
        return jax.lax.fori_loop(0, 100, lambda _, now: solver.step(now, X, y), state)

    one, two = (
        end(solver.init(X, y, cache_size=1e-9, **given), X, y)
        for X, y in (data, tuple(jax.device_put(each, split) for each in data))
    )
    for array in (two.responses, two.coefficients, two.rows.kept):
        assert len(array.devices()) == 2
    if name == "smo":  # rounding chooses among equal candidates
        close(two.responses, one.responses, 1e-5)
    else:
        close(two.responses, one.responses, 1e-9)
        close(two.coefficients, one.coefficients, 1e-9)
        assert int(two.rows.num_computed) == int(one.rows.num_computed)


@pytest.mark.parametrize(("name", "in_context"), [("smo", True), ("dcd", False)])
def test_data_on_a_mesh_with_explicit_axes(name, in_context):
    """As `jax.make_mesh` makes it, whether it is the mesh of the context or not."""
    mesh = jax.make_mesh((2,), ("examples",))
    split = NamedSharding(mesh, PartitionSpec("examples"))
    X, y = (jax.device_put(each, split) for each in data())
    expected = solved(name, max_steps=20).model
    if in_context:
        with jax.set_mesh(mesh):
            model = solved(name, X=X, y=y, max_steps=20).model
    else:
        model = solved(name, X=X, y=y, max_steps=20).model
    close(*(one.decision_function(data()[0]) for one in (model, expected)), 1e-3)
