"""What solvers refuse: training sets, arguments, runs, and what is asked of models."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from solving import CLASSES, DATA, FORMS, LINEAR, SOLVERS, SPARSE, solver_of

import budgetjax as bj
from budgetjax._errors import InputError
from budgetjax.solvers.kernel.norms import OneInfinity, TwoInfinity

pytestmark = pytest.mark.usefixtures("as_installed")
NAN, INF = math.nan, math.inf
ALL = tuple(SOLVERS)
KERNEL = ALL[: -len(LINEAR)]
X_, Y_ = DATA["separable"]()[0][:12], np.array([1, -1] * 6)
SINGLE = X_.astype(np.float32)


def changed(array, row, value):
    """The array with another number in the last column of a row."""
    array = np.array(array, np.float64)
    array.reshape(len(array), -1)[row, -1] = value
    return array


def not_a_kernel(x, z):
    return x @ z


def bad(names, says, **given):
    """Solvers, what they say, and of what."""
    return (names,) if isinstance(names, str) else names, says, given


def refuses(where, says, call, *given, **named):
    """A message that ends with a blank or an = may go on."""
    end = "" if says.endswith((" ", "=")) else "$"
    pattern = f"^{where}: {re.escape(says)}{end}"
    with pytest.raises(ValueError, match=pattern) as raised:
        call(*given, **named)
    assert isinstance(raised.value, InputError)


def values(names, says, **given):
    """Some values of an argument, which the message ends with."""
    for argument, some in given.items():
        for value in some:
            yield bad(names, f"{argument} {says}, got {value!r}", **{argument: value})


# Where all solvers look at X and y in one function, one of them shows what it sees.
DENSE = ("sdca", "mpu")
SOME_KERNEL = (*KERNEL, "mpu")
PENALISED = tuple(name for name in ALL if name not in ("sbp", "ball_sgd"))
BATCHES = (*KERNEL[:5], "linear_pegasos")
SEEDED = (*KERNEL[:4], *LINEAR)
RBF, HARD, SQUARED = (
    {"kernel": bj.RBF(1.0)},
    {"hard_margin": True},
    {"loss": "squared_hinge"},
)
PADDED = bj.sparse_rows(SPARSE(X_))
WITH_NAN, ONE_AXIS = changed(X_, 5, NAN), scipy.sparse.coo_array(X_[0])
ZERO_ROWS = np.where(np.arange(12)[:, None] == 4, 0, X_)
SHAPE = "X must have shape (n, d), n and d above 0, got "
LABELS = "y must have shape (12,), one label per row of X, got "
NUMBERS = "weight must have shape (12,), one number per row of X, got "
NORMS = "squared norms must be finite in float64, got inf in row "
ZEROS = "squared norms must not all be 0, got 0 in all rows; scale X up"
OVERFLOW = "kernel values overflow float32; scale X down"
ABOVE_0 = "must be a finite number above 0"
AT_LEAST_0 = "must be a finite number of at least 0"
FLAG = "must be True or False"
WEIGHT = "weight must be finite and above 0, got {} in row 3; leave out rows that do "
NO_WEIGHT = "weight must be None, as "
NOT_SQUARED = "hard_margin must be False with loss='squared_hinge', got True"
LOSS = "must be one of hinge, squared_hinge"
NO_ZEROS = "hard_margin needs patterns that are not zero, got zeros in row 4; fit_bias="
COUNTS = "counts must be at most 9.0072e+15 to be exact in float64, got "
NORM = "must be a norm, such as budgetjax.norms.OneInfinity(budget)"
TWO = TwoInfinity(9.0)
CONSTANT = "the training set must have the constant feature "
KERNEL_OF = "the training set must have the kernel "
ANOTHER = "start must be of this training set, in its order, got of another"
SOLVER = "solver must be one such as budgetjax.SMO(budgetjax.RBF(1.0))"

BAD = [
    # Labels.
    bad(ALL, "y must have both classes, got +1 in all 12 rows", y=np.ones(12)),
    bad("mpu", "y must have both classes, got -1 in all 12 rows", y=-np.ones(12)),
    bad(ALL, "y must be -1 or +1, got 0 in row 3", y=changed(Y_, 3, 0)),
    bad(DENSE, "y must be -1 or +1, got nan in row 3", y=changed(Y_, 3, NAN)),
    bad("mpu", "y must be -1 or +1, got 0 in row 1", y=Y_ > 0),
    bad(ALL, LABELS + "(11,)", y=Y_[1:]),
    bad("mpu", LABELS + "(12, 1)", y=Y_[:, None], X=SPARSE(X_)),
    bad(DENSE, "y must hold real numbers, got dtype <U1", y=np.array(["a"] * 12)),
    bad("mpu", "y must hold real numbers, got dtype object", y=None),
    bad("sdca", "y must be an array, got a ragged list", y=[[1], [1, 2]]),
    # Rows, dense and sparse.
    bad(ALL, "X must be finite, got nan in row 5, column 5", X=WITH_NAN),
    bad(LINEAR, "X must be finite, got nan in row 5, column 5", X=SPARSE(WITH_NAN)),
    bad(DENSE, "X must be finite, got -inf in row 7, column 5", X=changed(X_, 7, -INF)),
    bad(DENSE, SHAPE + "(6,)", X=X_[0]),
    bad("mpu", SHAPE + "(1, 12, 6)", X=X_[None]),
    bad(DENSE, SHAPE + "(0, 6)", X=X_[:0], y=Y_[:0]),
    bad("mpu", SHAPE + "(0, 6)", X=SPARSE((0, 6)), y=Y_[:0]),
    bad("mpu", SHAPE + "(12, 0)", X=X_[:, :0]),
    bad("mpu", SHAPE + "(12, 0)", X=SPARSE((12, 0))),
    bad(DENSE, "X must be an array, got a ragged list", X=[[1.0], [2.0, 3.0]]),
    bad("mpu", "X must be a dense array, got a sparse ", X=SPARSE(X_), **RBF),
    bad("mpu", "X must hold real numbers, got dtype object", X=PADDED, **RBF),
    bad("mpu", "X must hold real numbers, got dtype <U1", X=np.array([["a"]] * 12)),
    bad("mpu", "X must hold real numbers, got dtype complex128", X=X_ + 1j),
    bad("mpu", "X must hold real numbers, got dtype complex128", X=SPARSE(X_ + 1j)),
    bad("mpu", "X must hold real numbers, got dtype object", X=None),
    bad("mpu", "X must be a matrix of scipy.sparse, got coo_array", X=ONE_AXIS),
    bad("sdca", "X must be a dense array, got a sparse ", X=SPARSE(X_)),
    # Their squared norms, and those of a kernel.
    bad(LINEAR, NORMS + "0; scale X down", X=1e200 * X_),
    bad("mpu", NORMS + "4; scale X down", X=SPARSE(1e200 * changed(1e-99 * X_, 4, 1))),
    bad("mpu", NORMS + "0; scale X down", bias_scale=1e200, fit_bias=True),
    bad("mpu", NORMS + "0; scale X down", X=1e200 * X_, kernel=bj.Linear()),
    *(bad("mpu", ZEROS, X=X) for X in (0 * X_, SPARSE(0 * X_), 1e-200 * X_)),
    bad(KERNEL, OVERFLOW, X=1e5 * X_, kernel=bj.Polynomial(9)),
    # Kernels, numbers and flags.
    *values(SOME_KERNEL, "must be a kernel", kernel=("rbf", bj.RBF, not_a_kernel)),
    *values("sdca", "must be a kernel", kernel=(None,)),
    *values(PENALISED, ABOVE_0, penalty=(0, -1.0, NAN, INF, "1", True)),
    *values("ball_sgd", ABOVE_0, radius=(0, -1.0, NAN, INF, "1", True)),
    bad("mpu", f"penalty {ABOVE_0}, got ", penalty=[[1.0], [1.0, 2.0]]),
    bad("mpu", f"penalty {ABOVE_0}, got ", penalty=[1.0, -2.0]),
    bad("mpu", "penalty must be a scalar, got shape (2,); ", penalty=[1.0, 2.0]),
    bad(LINEAR, "penalty must be in the range of float64, got ", penalty=1e-310),
    bad("mpu", "penalty must be a scalar, got shape (1, 2); ", penalty=np.ones((1, 2))),
    *values("sbp", AT_LEAST_0, slack=(-0.1, NAN, INF)),
    *values("sbp", AT_LEAST_0, average_power=(-1.0,)),
    *values(LINEAR, ABOVE_0, bias_scale=(0, -1.0, NAN, INF, "x", None)),
    *values(("sbp", "smo", *LINEAR), FLAG, fit_bias=(1, None, "yes")),
    *values(BATCHES, "must be at least 1", batch_size=(0, -1)),
    *values(BATCHES, "must be an integer", batch_size=(2.0, True, "3", None)),
    *values(SEEDED, "must be an integer scalar", seed=(1.5, "a")),
    *values(SEEDED, "must fit 32 bits", seed=(2**40,)),
    # Weights.
    bad(ALL, NUMBERS + "(11,)", weight=np.ones(11)),
    *(
        bad("mpu", WEIGHT.format(f"{v:g}"), weight=changed(np.ones(12), 3, v))
        for v in (0.0, -1.0, NAN, INF)
    ),
    bad("mpu", "weight must be None with a hard margin, ", weight=Y_**2, **HARD),
    bad("mpu", "weight must be None with a hard margin, ", weight=Y_**2, **SQUARED),
    bad("budget_svm", NO_WEIGHT + "OneInfinity is ", weight=Y_**2, norm=TWO),
    # Of one solver.
    *values(("mpu", "dcd"), LOSS, loss=("Hinge", "logistic", "", None, 1, [""])),
    bad("mpu", NOT_SQUARED, **SQUARED, **HARD),
    *values("mpu", FLAG, hard_margin=(None, "yes")),
    *values("mpu", ABOVE_0, gap=(0, NAN, "1"), threshold=(0, -1.0, INF)),
    bad("mpu", "gap must be above ", gap=1e-3),
    *(bad("mpu", NO_ZEROS, **HARD, X=X) for X in (ZERO_ROWS, SPARSE(ZERO_ROWS))),
    bad("mpu", NO_ZEROS, **HARD, X=ZERO_ROWS, kernel=bj.Linear()),
    bad("mpu", COUNTS, penalty=1e20),
    bad("mpu", COUNTS, penalty=1e308),
    bad("mpu", COUNTS, tolerance=1e-300),
    bad("mpu", COUNTS, weight=changed(np.ones(12), 3, 1e14)),
    bad("mpu", "threshold must have a square within float64, got ", penalty=1e-300),
    *values("budget_svm", NORM, norm=("l1", OneInfinity, 9.0)),
]


def solved(name, *, X=X_, y=Y_, weight=None, **given):
    bj.solve(solver_of(name, **given), X, y, weight=weight)


@pytest.mark.parametrize("argument", dict.fromkeys(next(iter(of)) for *_, of in BAD))
def test_training_sets_and_arguments(argument):
    for names, says, given in BAD:
        for name in names if next(iter(given)) == argument else ():
            bias = {"fit_bias": False} if name in LINEAR else {}
            # What `solve` converts itself it reports itself.
            where = rf"({CLASSES[name].__name__}|sparse_rows)"
            refuses(where, says, solved, name, **bias | given)


@pytest.mark.parametrize("size", [0, -1.0, NAN, INF, "all"])
def test_sizes_of_caches(size):
    refuses("KernelCache", f"size {ABOVE_0}, got {size!r}", bj.KernelCache, size)


# A solver that reads a training set, one that is given it, and what that says.
TWICE = {"bias_scale": 2.0}
OTHERS = [
    (("mpu", {}), ("sdca", {}), "X must be a training set of dense rows, got "),
    (
        ("sdca", {}),
        ("mpu", {}),
        "the training set must be what a linear solver has read, got TrainingSet",
    ),
    (("dcd", TWICE), ("dcd", {}), CONSTANT + "1 of the solver that reads it, got 2"),
    (("dcd", {}), ("mpu", TWICE), CONSTANT + "2 of the solver that reads it, got 1"),
    (
        ("dcd", {}),
        ("linear_pegasos", {"fit_bias": False}),
        CONSTANT + "None of the solver that reads it, got 1",
    ),
    (
        ("mpu", RBF),
        ("mpu", {}),
        KERNEL_OF + "None of the solver that reads it, got RBF",
    ),
    (
        ("mpu", RBF),
        ("dcd", {}),
        KERNEL_OF + "None of the solver that reads it, got RBF",
    ),
    (
        ("mpu", {}),
        ("mpu", RBF),
        KERNEL_OF + "RBF(gamma=1.0, exact=False) of the solver that reads",
    ),
    (
        ("mpu", {"kernel": bj.RBF(2.0)}),
        ("mpu", RBF),
        KERNEL_OF + "RBF(gamma=1, exact=False) of the solver that reads it, got RBF",
    ),
]


@pytest.mark.parametrize(("reader", "other", "says"), OTHERS)
def test_what_another_solver_has_read(reader, other, says):
    (read, of_read), (name, given) = reader, other
    data = solver_of(read, **of_read).read(X_, Y_)
    solver = solver_of(name, **given)
    start = bj.solve(solver, X_, Y_, max_steps=1).state
    for more in ({}, {"start": start}):
        pattern = f"^({CLASSES[name].__name__}|solve): {re.escape(says)}"
        with pytest.raises(ValueError, match=pattern):
            bj.solve(solver, data, **more)


@pytest.mark.parametrize("name", LINEAR)
def test_loops_of_linear_solvers_are_in_double_precision(name):
    solver = solver_of(name)
    data = solver.read(SINGLE, Y_)
    assert data.dtype == np.float64
    assert data.X.values.dtype == np.float32
    says = "a loop of your own must have double precision: with jax.enable_x64(True), "
    with jax.enable_x64(True):
        state = solver.step(solver.init(data), data)
    refuses(CLASSES[name].__name__, says + "got single precision", solver.init, data)
    with pytest.raises(ValueError, match=re.escape(says)):
        solver.resume(data, state)


def test_what_single_precision_can_hold():
    """Kernel solvers compute in that of X."""
    says = "X must be finite, got inf in row 0, "
    with np.errstate(over="ignore"):
        refuses("SDCA", says, solved, "sdca", X=np.float32(1e200 * X_))
    # Longer floats are taken, if not as such.
    data = solver_of("sdca").read(X_.astype(np.longdouble), Y_)
    assert data.X.dtype == data.dtype == np.float32


# Runs.


@functools.cache
def state_of(name):
    return bj.solve(solver_of(name), SINGLE, Y_, max_steps=1).state


def going_on(name, *given, **more):
    bj.solve(solver_of(name, **more), *given, start=state_of(name))


BAD_RUNS = [
    ("max_steps must be at least 0, got -1", {"max_steps": -1}),
    ("max_steps must be an integer, got 1.5", {"max_steps": 1.5}),
    ("max_steps must be an integer, got True", {"max_steps": True}),
    ("callback_every must be at least 1, got 0", {"callback_every": 0}),
    ("progress must be True or False, got 'yes'", {"progress": "yes"}),
    ("start must be a state of SMO, got SDCA", {"solver": solver_of("smo")}),
    ("start must be a state of SDCA, got int", {"start": 1}),
    (f"{SOLVER}, got str", {"solver": "sdca"}),
    (f"{SOLVER}, got SDCA", {"solver": bj.SDCA}),
    ("y and weight must be None, as ", {"X": solver_of("sdca").read(SINGLE, Y_)}),
]


@pytest.mark.parametrize(("says", "given"), BAD_RUNS)
def test_runs(says, given):
    given = {"solver": solver_of("sdca"), "start": state_of("sdca")} | given
    given = {"X": SINGLE, "y": Y_, "max_steps": 2} | given
    with pytest.raises(ValueError, match=f"^solve: {re.escape(says)}") as raised:
        bj.solve(**given)
    assert isinstance(raised.value, InputError)


@pytest.mark.parametrize("name", ALL)
def test_tolerances(name):
    for value in (-1.0, NAN, INF, "a"):
        says = f"tolerance {AT_LEAST_0}, got {value!r}"
        refuses(CLASSES[name].__name__, says, solver_of, name, tolerance=value)


@pytest.mark.parametrize("name", ALL)
def test_starts_on_another_training_set(name):
    for X, y, *weight in (
        (SINGLE, -Y_),
        (SINGLE[1:], Y_[1:]),
        (SINGLE[::-1], Y_[::-1]),
        (SINGLE[:, :3], Y_),
        (SINGLE, Y_, np.full(12, 2.0)),
    ):
        data = solver_of(name).read(X, y, *weight)
        refuses("solve", ANOTHER, going_on, name, data)
    refuses(
        "solve|" + CLASSES[name].__name__, LABELS + "(11,)", going_on, name, X_, Y_[1:]
    )


@pytest.mark.parametrize("form", FORMS)
def test_starts_on_rows_of_the_same_norms(form):
    """All have as many ones."""
    bits = np.hstack([X_ > 0, X_ <= 0]).astype(np.float32)
    convert, kernel = FORMS[form]
    solver = solver_of("mpu", **kernel)
    start = bj.solve(solver, convert(bits), Y_, max_steps=1).state
    for rows in (np.roll(bits, 1, axis=0), np.roll(bits, 1, axis=1), -bits):
        refuses("solve", ANOTHER, bj.solve, solver, convert(rows), Y_, start=start)


@pytest.mark.parametrize("name", [*KERNEL, "linear_pegasos"])
def test_starts_from_other_parameters(name):
    kind = CLASSES[name].__name__
    says = f"start must be of the same parameters, as {kind} has no start from "
    table = [{"kernel": bj.RBF(0.7)}] if name in KERNEL else []
    table += [{"batch_size": 5}] if name != "budget_svm" else [{"norm": TWO}]
    table += [{"penalty": 7.0}] if name in PENALISED else []
    table += [{"slack": 0.2}, {"fit_bias": False}] if name == "sbp" else []
    table += [{"radius": 2.0}] if name == "ball_sgd" else []
    for given in table:
        refuses("solve", says, going_on, name, SINGLE, Y_, **given)
    # Other seeds and tolerances go on.
    going_on(name, SINGLE, Y_, seed=5, tolerance=1.0)


@pytest.mark.parametrize("name", LINEAR)
def test_caches_of_what_has_no_kernel_rows(name):
    says = f"cache must be None, as {CLASSES[name].__name__} has no kernel rows, got "
    for start in (None, state_of(name)):
        given = {"start": start, "cache": bj.KernelCache()}
        where = f"({CLASSES[name].__name__}|solve)"
        refuses(where, says, bj.solve, solver_of(name), SINGLE, Y_, **given)


def test_states_of_solvers_are_not_refitted():
    with pytest.raises(ValueError, match=r"^refit: state must be of a learner.*SDCA"):
        bj.refit(state_of("sdca"), SINGLE, Y_)


def test_held_out_rows():
    labels = r"y_held must be -1 or \+1 per row of X_held, of shape \(12,\), got .*"
    data = solver_of("sdca").read(X_, Y_)
    for y, patience, says in (
        (Y_[:-1], 5, labels + r"\(11,\)"),
        (2 * Y_, 5, labels),
        (Y_, 0, "patience must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"^held_out_stop: {says}"):
            bj.held_out_stop(data, X_, y, patience=patience)


# Sparse rows and models.


@pytest.mark.parametrize("value", [X_, X_.tolist(), None, "text"])
def test_what_sparse_rows_are_not_made_of(value):
    says = f"X must be a matrix of scipy.sparse, got {type(value).__name__}"
    refuses("sparse_rows", says, bj.sparse_rows, value)


def zero_model():
    return bj.solve(solver_of("sdca"), SINGLE, Y_, max_steps=0).model


def test_rows_to_decide():
    shape = "X must have shape (n, 6), 6 being the model's num_features, got "
    nan, with_nan = "X must be finite, got nan in row 2, ", changed(X_, 2, NAN)
    linear = bj.LinearModel(jnp.ones(6), jnp.array(0.0))
    for method in ("decision_function", "predict"):
        of_kernel, of_linear = (getattr(of, method) for of in (zero_model(), linear))
        for X in (X_[0], X_[:, 1:]):
            refuses(method, f"{shape}{X.shape}", of_kernel, X)
            refuses(method, f"{shape}{X.shape}", of_linear, X)
        refuses(method, f"{shape}(12, 5)", of_linear, SPARSE(X_[:, 1:]))
        for convert in (np.asarray, SPARSE):
            refuses(method, nan, of_linear, convert(with_nan))
    sparse = "X must be a dense array, got a sparse "
    refuses("predict", sparse, zero_model().predict, SPARSE(X_))
    refuses("default_gamma", sparse, bj.default_gamma, SPARSE(X_))


def test_pruning():
    model = zero_model()._replace(vectors=SINGLE[:2], coefficients=jnp.ones(2))
    for size in (0, -1, 1.5, None, True):
        number = isinstance(size, int) and not isinstance(size, bool)
        says = f"at least 1, got {size}" if number else f"an integer, got {size!r}"
        refuses("prune", f"size must be {says}", bj.prune, model, size)
    for given, says in (
        ((X_,), "X must come with y"),
        ((X_, Y_[:-1]), LABELS + "(11,)"),
        ((X_, 2 * Y_), "y must be one of -1, 1, got "),
        ((X_[:, 1:], Y_), "X must have shape (n, 6)"),
    ):
        with pytest.raises(ValueError, match=f"^prune: {re.escape(says)}"):
            bj.prune(model, 1, *given)
    for weight in (np.ones(3), -np.ones(12), np.full(12, NAN)):
        says = "weight must be finite and at least 0, of shape "
        refuses("prune", says, bj.prune, model, 1, X_, Y_, weight=weight)


def test_what_has_no_slack():
    model = zero_model()
    several = model._replace(bias=jnp.zeros(3), coefficients=jnp.zeros((0, 3)))
    for one, y, says in (
        (model, Y_, "model must not be zero"),
        (model, 2 * Y_, r"y must be -1 or \+1, got -?2 in row"),
        (several, Y_, "model must be binary, got .* 3 "),
    ):
        with pytest.raises(ValueError, match=f"^slack_of: {says}"):
            bj.slack_of(one, SINGLE, y)
