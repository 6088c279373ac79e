"""What solvers refuse: training sets, arguments, runs, and what is asked of models."""

import math
import re

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse
from solving import DATA, LINEAR, SOLVERS, SPARSE

import budgetjax as bj
from budgetjax._errors import InputError
from budgetjax.solvers.kernel.norms import Euclidean, OneInfinity

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
PENALISED = tuple(name for name in ALL if getattr(bj, name).takes("penalty"))
BATCHES = (*KERNEL[:5], "linear_pegasos")
SEEDED = (*KERNEL[:4], *LINEAR)
RBF, HARD, SQUARED = (
    {"kernel": bj.RBF(1.0)},
    {"hard_margin": True},
    {"loss": "squared_hinge"},
)
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
NOT_SQUARED = (
    "hard_margin must be False and weight None with loss='squared_hinge', got "
)
LOSS = "must be one of ('hinge', 'squared_hinge')"
NO_ZEROS = "hard_margin needs patterns that are not zero, got zeros in row 4; fit_bias="
COUNTS = "counts must be at most 9.0072e+15 to be exact in float64, got "
BUDGET = "budget must be given for 'l1' and 'l2', and for no other norm, got "
NORM = "must be 'l1', 'l2' or an object with least and project"

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
    bad("mpu", "X must be an array, got a ragged SparseRows", X=SPARSE(X_), **RBF),
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
    bad(LINEAR, "penalty must be in the range of float64, got ", penalty=1e-310),
    bad(LINEAR, "penalty must be in the range of float64, got ", penalty=[1.0, 1e-310]),
    bad("mpu", "penalty must be a scalar, got shape (1, 2); ", penalty=np.ones((1, 2))),
    *values("sbp", AT_LEAST_0, slack=(-0.1, NAN, INF)),
    *values("sbp", AT_LEAST_0, average_power=(-1.0,)),
    *values(LINEAR, ABOVE_0, bias_scale=(0, -1.0, NAN, INF, "x", None)),
    *values(("sbp", "smo", *LINEAR), FLAG, fit_bias=(1, None, "yes")),
    *values(BATCHES, "must be at least 1", batch_size=(0, -1)),
    *values(BATCHES, "must be an integer", batch_size=(2.0, True, "3", None)),
    *values(KERNEL, ABOVE_0, cache_size=(0, -1.0, NAN, INF, "all")),
    *values(SEEDED, "must be an integer scalar", seed=(1.5, "a")),
    *values(SEEDED, "must fit 32 bits", seed=(2**40,)),
    # Weights.
    bad(ALL, NUMBERS + "(11,)", weight=np.ones(11)),
    *(
        bad("mpu", WEIGHT.format(f"{v:g}"), weight=changed(np.ones(12), 3, v))
        for v in (0.0, -1.0, NAN, INF)
    ),
    bad("mpu", NO_WEIGHT + "it changes no hard margin, ", weight=Y_**2, **HARD),
    bad("mpu", NOT_SQUARED + "weights", weight=Y_**2, **SQUARED),
    bad("budget_svm", "weight must be None for all norms ", weight=Y_**2, norm="l2"),
    # Of one solver.
    *values(("mpu", "dcd"), LOSS, loss=("Hinge", "logistic", "", None, 1, [""])),
    bad("mpu", NOT_SQUARED + "a hard margin", **SQUARED, **HARD),
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
    *values("budget_svm", "must be a finite number of at least 1", budget=(0, 0.5)),
    bad("budget_svm", BUDGET + "None for 'l1'", budget=None),
    bad("budget_svm", BUDGET + "9.0 for ", norm=Euclidean(1.0)),
    *values("budget_svm", NORM, norm=("l3", OneInfinity)),
]


@pytest.mark.parametrize("argument", dict.fromkeys(next(iter(of)) for *_, of in BAD))
def test_training_sets_and_arguments(argument):
    for names, says, given in BAD:
        for name in names if next(iter(given)) == argument else ():
            bias = {"fit_bias": False} if name in LINEAR else {}
            data = {"X": X_, "y": Y_} | SOLVERS[name] | bias | given
            # What `solve` converts itself it reports itself.
            where = rf"({name}\.init|sparse_rows)"
            refuses(where, says, bj.solve, getattr(bj, name), **data)


@pytest.mark.parametrize(
    ("says", "given"),
    [
        ("y must be -1 or +1, got 0 in row 3", {"y": changed(Y_, 3, 0)}),
        ("X must be finite, got nan in row 5, ", {"X": changed(X_, 5, NAN)}),
        ("X must be finite, got nan in row 5, ", {"X": SPARSE(changed(X_, 5, NAN))}),
        (ZEROS, {"X": 0 * X_, "fit_bias": False}),
        (LABELS + "(11,)", {"y": Y_[1:]}),
        (
            "tolerance must be at least 0.01 in float32, got 0.001; use solve, which "
            "computes in float64, or jax.enable_x64",
            {"tolerance": 1e-3},
        ),
        (
            "tolerance must be at least 0.01 in ",
            {"tolerance": 1e-3, "hard_margin": True},
        ),
        (
            "counts must be at most 1.67772e+07 to be exact in float32, got ",
            {"tolerance": 0.1, "penalty": 1e6},
        ),
        (
            "penalty must be a scalar, got shape (2,); sweep values by jax.vmap over "
            "init",
            {"penalty": np.array([1.0, 2.0])},
        ),
    ],
)
def test_single_precision(says, given):
    """`init` computes in JAX's default precision, other than `solve`."""
    given = {"X": SINGLE, "y": Y_} | given
    refuses(r"(mpu\.init|sparse_rows)", says, bj.mpu.init, **given)


def test_what_single_precision_can_hold():
    says = "squared norms must be finite in float32, got inf in row 0; scale X down"
    for name in LINEAR:
        for X in (1e20 * SINGLE, SPARSE(1e20 * SINGLE)):
            refuses(f"{name}.init", says, getattr(bj, name).init, X, Y_)
    # The default tolerance of `init` is one that float32 holds.
    default, least = (
        bj.mpu.init(SINGLE, Y_, **given) for given in ({}, {"tolerance": 1e-2})
    )
    assert default.threshold == least.threshold
    assert bj.mpu.init(SINGLE, Y_, tolerance=0.1).max_count < 1e5
    # Longer floats are taken, if not as such.
    given = SOLVERS["sdca"]
    state = bj.sdca.init(X_.astype(np.longdouble), Y_, **given)
    assert state.rows.squares.dtype == np.float32


# Runs.


def state_of(name):
    return getattr(bj, name).init(SINGLE, Y_, **SOLVERS[name])


BAD_RUNS = [
    *(
        (f"tolerance {AT_LEAST_0}, got {v!r}", {"tolerance": v})
        for v in (-1.0, NAN, INF, "a")
    ),
    ("tolerance must be a number, got [0.1, 0.2]", {"tolerance": [0.1, 0.2]}),
    ("max_steps must be at least 0, got -1", {"max_steps": -1}),
    ("max_steps must be an integer, got 1.5", {"max_steps": 1.5}),
    ("max_steps must be an integer, got True", {"max_steps": True}),
    ("callback_every must be at least 1, got 0", {"callback_every": 0}),
    ("progress must be True or False, got 'yes'", {"progress": "yes"}),
    ("state must be of smo, got one of s", {"solver": bj.smo}),
    ("penalty must not come with a state, got one", {"penalty": 2.0}),
    ("solver must be one such as budgetjax.smo, got str", {"solver": "sdca"}),
]


@pytest.mark.parametrize(("says", "given"), BAD_RUNS)
def test_runs(says, given):
    given = {"solver": bj.sdca, "max_steps": 2, "state": state_of("sdca")} | given
    with pytest.raises(ValueError, match=f"^solve: {re.escape(says)}") as raised:
        bj.solve(X=SINGLE, y=Y_, **given)
    assert isinstance(raised.value, InputError)


@pytest.mark.parametrize("name", ALL)
def test_another_training_set_than_that_of_the_state(name):
    state = state_of(name)
    same = "that of the training set of the state, in its order, got another of the "
    rows = "X must be the training set of the state, "
    cases = [
        (SINGLE, -Y_, f"y must be {same}"),
        (SINGLE, Y_[1:], LABELS + "(11,)"),
        (changed(SINGLE, 5, NAN), Y_, "X must be finite, got nan "),
    ]
    if name in LINEAR:
        rows += "of shape (12, 6), got "
        cases += [(SINGLE[1:], Y_[1:], rows + "(11, 6)")]
        cases += [(SINGLE[:, :3], Y_, rows + "(12, 3)")]
    else:
        rows += "12 rows of float32, got 11 of float32, 6 features"
        cases += [(SINGLE[1:], Y_[1:], rows)]
        cases += [(SINGLE[::-1], Y_[::-1], f"X must be {same}")]
    for X, y, says in cases:
        refuses("solve", says, getattr(bj, name).prepare, state, X, y)


@pytest.mark.parametrize("name", KERNEL)
def test_rows_of_another_training_set(name):
    init, given = getattr(bj, name).init, SOLVERS[name] | {"rows": state_of(name).rows}
    number = "rows must be of 11 examples and batch_size "
    refuses(f"{name}.init", number, init, SINGLE[1:], Y_[1:], **given)
    other = "X and kernel must be that of the training set of the state, in its "
    for X, kernel in ((SINGLE[::-1], given["kernel"]), (SINGLE, bj.RBF(0.7))):
        refuses(f"{name}.init", other, init, X, Y_, **given | {"kernel": kernel})
    if name != "budget_svm":
        says = "rows must be of 12 examples and batch_size 3, got 12 and 4"
        refuses(f"{name}.init", says, init, SINGLE, Y_, **given | {"batch_size": 3})


def test_states_of_solvers_are_not_refitted():
    with pytest.raises(ValueError, match=r"^refit: state must be of a learner.*sdca"):
        bj.refit(state_of("sdca"), SINGLE, Y_)


def test_held_out_rows():
    labels = r"y_held must be -1 or \+1 per row of X_held, of shape \(12,\), got .*"
    for y, patience, says in (
        (Y_[:-1], 5, labels + r"\(11,\)"),
        (2 * Y_, 5, labels),
        (Y_, 0, "patience must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=f"^held_out_stop: {says}"):
            bj.held_out_stop(bj.sdca, X_, Y_, X_, y, patience=patience)


# Sparse rows and models.


@pytest.mark.parametrize("value", [X_, X_.tolist(), None, "text"])
def test_what_sparse_rows_are_not_made_of(value):
    says = f"X must be a matrix of scipy.sparse, got {type(value).__name__}"
    refuses("sparse_rows", says, bj.sparse_rows, value)


def zero_model():
    return bj.sdca.model(state_of("sdca"), SINGLE, Y_)


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
