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
from marks import first_quick, slow
from solving import FORMS, LINEAR, SOLVERS, SPARSE, N, close, noisy, solver_of, whole

import budgetjax as bj
from budgetjax.solvers import solver as driver

ALL = tuple(SOLVERS)
# Solvers that draw, and the number that a problem is swept over.
DRAWING = tuple(name for name in ALL if name not in ("smo", "budget_svm"))
PENALTY = dict.fromkeys(ALL, "penalty") | {"sbp": "slack", "ball_sgd": "radius"}


def each(test, names=ALL):
    """Runs a test once for every solver; one process takes all tests of a solver."""
    named = first_quick([pytest.param(name, id=f"@{name}") for name in names])
    return pytest.mark.parametrize("name", named)(test)


@functools.cache
def data():
    """In float32, which kernel solvers keep, and linear ones read."""
    X, y = noisy()
    return X.astype(np.float32), y


def read(name):
    return solver_of(name).read(*data())


# What `solve` is told of a run.
RUN = ("start", "cache", "callback", "progress")


def solved(name, *given, max_steps=6, callback_every=100, **more):
    """Some steps, with a program that other tests share."""
    run = {"max_steps": max_steps, "callback_every": callback_every}
    run |= {key: more.pop(key) for key in RUN if key in more}
    solver = solver_of(name, **{"tolerance": None} | more)
    return bj.solve(solver, *(given or data()), **run)


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
    nothing = solved("sdca", start=found.state, max_steps=0, penalty=10.0).history
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
    shown, records, states, models = read("smo"), [], [], []

    def callback(state, record):
        records.append(record)
        states.append(state)
        models.append(state.solver.model(state, shown))
        return record.step >= 4 if record.step else None

    given = {"max_steps": 1000, "callback_every": 2}
    found = solved("smo", callback=callback, **given)
    np.testing.assert_array_equal(found.history.step, [0, 2, 4])
    for column, field in zip(found.history, records[0]._fields, strict=True):
        np.testing.assert_array_equal(column, [getattr(r, field) for r in records])
    assert len(models[0].vectors) == 0
    assert np.all(np.isfinite(models[-1].decision_function(data()[0])))
    # What was kept is as it was: going on from it leads to the same end.
    same(solved("smo", start=states[1], max_steps=2).state, found.state)
    same(states[2], found.state)


def test_a_held_out_error_that_settles_ends_the_run():
    (X, y), shown = data(), read("sdca")
    held, labels = X[::2], np.where(np.arange(N // 2) % 7 == 0, -y[::2], y[::2])
    errors = []

    def seen(state, record):
        predicted = np.asarray(state.solver.model(state, shown).predict(held))
        errors.append(np.mean(predicted != labels))
        return stop(state, record)

    stop = bj.held_out_stop(shown, held, labels, patience=3)
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
        twice = solved(name, start=first.state, max_steps=4, **given)
        same(twice.state, once.state)
        same(first.state, between)
    same(twice.model, once.model)
    np.testing.assert_array_equal(twice.history.step, [0, 4])
    # A state knows its solver, with all numbers as arrays.
    again = bj.solve(first.state.solver, *data(), start=first.state, max_steps=4)
    same(again.state, once.state)
    for leaf in jax.tree.leaves(twice.state):
        assert isinstance(leaf, jax.Array)
        assert not getattr(leaf, "weak_type", False)


@each
def test_new_values_compile_nothing(name):
    usual = functools.partial(solved, name, data()[0] + 1, data()[1])
    usual(tolerance=1e-9)
    usual(tolerance=1e-9, max_steps=2)
    programs = driver._advance_in_place, driver._evaluate
    compiled = [each._cache_size() for each in programs]
    table = [{PENALTY[name]: 7}, {PENALTY[name]: np.float32(0.1), "max_steps": 4}]
    table += [{"tolerance": 1e-8}] + ([{"seed": 3}] if name in DRAWING else [])
    table += [{"kernel": bj.RBF(0.2)}] if name not in LINEAR else [{"bias_scale": 2.0}]
    table += [{"norm": bj.norms.OneInfinity(7)}] if name == "budget_svm" else []
    table += [{"near": 1.5}] if name == "mpu" else []
    for given in table:
        usual(**{"tolerance": 1e-9} | given)
    assert [each._cache_size() for each in programs] == compiled


def test_new_kernels_of_mpu_compile_nothing():
    """However their numbers are given."""
    first = solved("mpu", kernel=bj.RBF(0.1))
    programs = driver._advance_in_place, driver._evaluate
    compiled = [each._cache_size() for each in programs]
    solved("mpu", kernel=bj.RBF(0.1), start=first.state)
    for gamma in (3, np.float64(0.2), jnp.float32(0.5)):
        solved("mpu", kernel=bj.RBF(gamma))
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
    shown, values = solver_of(name).read(*noisy()), [0.02, 0.5, 3.0]

    def start(value):
        return solver_of(name, **{PENALTY[name]: value}).init(shown)

    @jax.jit
    def end(state):
        step = state.solver.step
        state = jax.lax.fori_loop(0, 3, lambda _, now: step(now, shown), state)
        return state, state.solver.objective(state, shown)

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
        ("mpu", "dense", {}),
        *slow(
            ("mpu", "sparse", {"loss": "squared_hinge"}),
            ("dcd", "dense", {"loss": "squared_hinge"}),
            ("dcd", "sparse", {}),
        ),
    ],
)
def test_starts_from_another_penalty(name, form, given):
    """The optimum is reached from the solution before, in less work."""
    X, y = whole()
    shown = solver_of(name).read(FORMS[form][0](X), y)
    given = given | {"tolerance": 1e-4, "max_steps": 10_000, "callback_every": 1}
    before = solved(name, shown, penalty=0.1, **given)
    for penalty in (1.0, 3.0):
        alone = solved(name, shown, penalty=penalty, **given)
        found = solved(name, shown, penalty=penalty, start=before.state, **given)
        assert alone.converged
        assert found.converged
        assert found.history.dual[0] > alone.history.dual[0]
        assert found.history.work[-1] <= alone.history.work[-1]
        primal, optimum = found.history.primal[-1], alone.history.dual[-1]
        assert optimum / 1.0001 <= primal <= 1.0002 * optimum
        before = found


def test_mpu_starts_from_another_tolerance():
    """The thresholds follow from it, so counts are those of others."""
    given = {"max_steps": 10_000, "callback_every": 1}
    coarse = solved("mpu", tolerance=1e-2, **given)
    alone, found = (
        solved("mpu", tolerance=1e-5, start=start, **given)
        for start in (None, coarse.state)
    )
    assert found.converged
    assert found.state.threshold == alone.state.threshold > coarse.state.threshold
    assert found.history.primal[0] < 1.1 * alone.history.primal[-1]
    assert found.history.work[-1] < alone.history.work[-1]


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
    X, y = data()
    for given in ((X * np.nan, y), (X, y * 2)):
        with pytest.raises(ValueError, match=r"^DCD: [Xy] must be"):
            solved("dcd", *given)
        assert not jax.config.read("jax_enable_x64")


def test_integers_and_lists_are_data(as_installed):
    X, y = [[0, 1], [1, 0], [3, 3], [4, 4]], [-1, -1, 1, 1]
    found = bj.solve(bj.SMO(bj.RBF(1.0), penalty=2.5), X, y, max_steps=0)
    assert found.state.responses.dtype == jnp.float32
    assert found.history.primal[0] == 10
    assert found.model.vectors.shape == (0, 2)
    assert not found.converged


@functools.partial(each, names=LINEAR)
def test_forms_of_the_same_patterns(name):
    X, y = noisy()
    expected = solved(name, X, y)
    forms = [SPARSE(X)]
    if name == "mpu":
        forms += [scipy.sparse.coo_array(X), bj.sparse_rows(SPARSE(X)), X.tolist()]
    for form in forms:
        found = solved(name, form, y.astype(int))
        close(found.history.primal, expected.history.primal, 1e-9)
        np.testing.assert_array_equal(found.history.work, expected.history.work)
        close(found.model.weights, expected.model.weights, 1e-6)


# Sharded data.


@pytest.mark.parametrize("name", ["sbp", *slow("smo")])
def test_data_sharded_by_rows(name, double):
    """On two devices the same as on one."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("examples",))
    split = NamedSharding(mesh, PartitionSpec("examples"))
    data = tuple(jnp.asarray(each) for each in noisy())
    # SBP prefers examples whose rows it has: only single updates are the same.
    solver = solver_of(name, batch_size=1 if name == "sbp" else 8)

    @jax.jit
    def end(state, shown):
        step = state.solver.step
        return jax.lax.fori_loop(0, 100, lambda _, now: step(now, shown), state)

    one, two = (
        end(solver.init(shown, bj.KernelCache(1e-9)), shown)
        for shown in (
            solver.read(*data),
            solver.read(*(jax.device_put(each, split) for each in data)),
        )
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
            model = solved(name, X, y, max_steps=20).model
    else:
        model = solved(name, X, y, max_steps=20).model
    close(*(one.decision_function(data()[0]) for one in (model, expected)), 1e-3)
