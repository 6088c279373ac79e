"""Bad input: every message says where, what, expected and got.

A check that many functions share is tested here in full, and once for every caller.
"""

import dataclasses
import pathlib
import re
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import budgetjax as bj
from budgetjax import _checks, losses
from budgetjax._errors import InputError, names_errors

D, N, CLASSES = 3, 12, 4
NAN, INF = float("nan"), float("inf")

pytestmark = pytest.mark.usefixtures("as_installed")

REQUIRED = {
    "ahpatron": {},
    "alma": {},
    "forgetron": {},
    "perceptron": {"maintenance": bj.RemoveOldest()},
    "pegasos": {"regularization": 0.1},
    "sgd": {"num_classes": None, "learning_rate": 0.5},
    "norma": {"learning_rate": 0.5, "regularization": 0.1},
    "passive_aggressive": {},
    "projectron": {},
    "fourier": {"budget": 6},
    "nystrom": {},
    "arow": {},
}
ALL = " ".join(REQUIRED)


def init(name, **arguments):
    """An empty model; only what a test is about needs to be said."""
    arguments = {"num_features": D, "budget": 5} | REQUIRED[name] | arguments
    kernel = arguments.pop("kernel", bj.RBF(0.5))
    return getattr(bj, name).init(kernel, **arguments)


X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
SIGNS = np.where(X[:, 0] > 0, 1, -1).astype(np.int32)
CODES = (np.arange(N) % CLASSES).astype(np.int32)
REALS = X[:, 1]
ONES = np.ones(N, np.float32)


def binary():
    return bj.Forgetron(), init("forgetron")


def multiclass():
    return bj.Pegasos(), init("pegasos", num_classes=CLASSES)


def regression():
    return bj.SGD(), init("sgd", maintenance=bj.RemoveOldest())


def check(call, says):
    """That a call fails with this message, where `...` stands for anything."""
    with pytest.raises(ValueError, match=r".+: .+ (must|needs) .+, got .+") as raised:
        call()
    # No subclass: an internal error of JAX or NumPy is not what was promised.
    assert isinstance(raised.value, InputError)
    message, at = str(raised.value), 0
    first, *rest = says.split(" ... ")
    assert message.startswith(first)
    for words in rest:
        assert words in message[at:], f"{words!r} is not in {message[at:]!r}"
        at += message[at:].index(words) + len(words)


def called(value):
    """What names a case after a value: the same in every process."""
    if isinstance(value, jax.tree_util.Partial):
        return f"{called(value.func)}{value.args}"
    # A repr may hold an address.
    return getattr(value, "__name__", None) or re.sub("[(<].*", "", repr(value))


def equal(one, other):
    return jax.tree.structure(one) == jax.tree.structure(other) and all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


# The shared checks: `got` and the value end the message where nothing else is said.

NO_NUMBERS = [NAN, INF, "a", None, True, 1j]
NO_SIZES = [2.5, True, "10", None, NAN]
CHECKS = [
    (_checks.size, [0, -1], "be at least 1"),
    (_checks.size, NO_SIZES, "be an integer"),
    (_checks.positive_integer, [0, -1, np.array([1, 0])], "be at least 1"),
    (_checks.positive_integer, [1.5, "all", None, NAN], "be an integer"),
    (_checks.scalar_integer, [1.5, True, "0", None, NAN], "be an integer scalar"),
    (_checks.scalar_integer, [np.array([1, 2])], "be an integer scalar"),
    (_checks.scalar_integer, [2**40, -(2**31) - 1], "fit 32 bits"),
    (_checks.finite, NO_NUMBERS, "be a finite number"),
    (_checks.positive, [0, 0.0, -1e-3, *NO_NUMBERS], "be a finite number above 0"),
    (_checks.positive, [np.array([1.0, 0.0])], "be a finite number above 0"),
    (
        _checks.non_negative,
        [-1, -1e-3, *NO_NUMBERS],
        "be a finite number of at least 0",
    ),
    (
        _checks.open_unit_interval,
        [0, 1, -1, *NO_NUMBERS],
        "be a number above 0 and below 1",
    ),
    (
        _checks.unit_interval,
        [-0.1, 1, *NO_NUMBERS],
        "be a number of at least 0 and below 1",
    ),
    (_checks.flag, ["yes", 1, None, np.ones(2)], "be True or False"),
]


@pytest.mark.parametrize(
    ("function", "value", "expected"),
    [
        pytest.param(
            function, value, expected, id=f"{called(function)}-{called(value)}"
        )
        for function, values, expected in CHECKS
        for value in values
    ],
)
def test_shared_checks(function, value, expected):
    says = f"size must {expected}, got {_checks.value_text(value)}"
    check(lambda: names_errors("init")(function)("size", value), "init: " + says)


# Arguments of init, for these algorithms; {} is the value.


def tube(width):
    return jax.tree_util.Partial(losses.absolute, width)


STRATEGIES = "alma perceptron pegasos sgd passive_aggressive arow"
OF_LABELS = "ahpatron alma perceptron pegasos passive_aggressive projectron arow"
OF_ANY_TARGETS = "sgd norma fourier nystrom"
AVERAGING = "perceptron pegasos sgd norma passive_aggressive fourier nystrom"
SUM = bj.RBF(1.0) + bj.RBF(2.0)
ARGUMENTS = [
    (ALL, "num_features", [0], "at least 1, got 0"),
    (ALL, "capacity", [0], "at least 1, got 0"),
    (ALL, "budget", [0], "at least 1, got 0"),
    ("pegasos fourier", "budget", [*NO_SIZES, np.array(True)], "integer, got {}"),
    ("pegasos", "budget", [np.float32(5)], "integer, got 5.0"),
    ("pegasos", "budget", [np.ones(3, int), jnp.arange(3), [1] * 3], "shape (3,)"),
    ("fourier", "budget", [1, 5, np.int64(7)], "even, got {}"),
    (ALL, "dtype", [jnp.int32], "a float type, got int32"),
    ("pegasos", "dtype", ["int32", bool, complex], "a float type, got"),
    ("pegasos", "dtype", [float, jnp.float64, "float64"], "float64 ... x64"),
    ("pegasos", "dtype", ["abc", 5, None], "a float type, got {}"),
    (ALL.replace("fourier", ""), "kernel", ["rbf"], "a kernel ... got {}"),
    ("pegasos", "kernel", [bj.RBF, bj.Linear, None, 0.5, (0.5,)], "kernel ... got {}"),
    ("pegasos", "kernel", [bj.RBF(jnp.ones(5))], "gamma ... scalar ... (5,) ... vmap"),
    ("pegasos", "kernel", [bj.RBF(1e60)], ".gamma ... float32 ... 1e+60"),
    ("pegasos", "kernel", [bj.Linear() + bj.RBF(1e-60)], ".right.gamma ... 1e-60"),
    ("pegasos", "kernel", [bj.Mapped(bj.RBF(1.0), np.eye(9))], "matrix ... (9, 9)"),
    ("alma", "kernel", [bj.Linear()], "k(x, x) = 1 ... Linear"),
    ("fourier", "kernel", [bj.Linear(), SUM, bj.RBF, "rbf"], "an RBF or Laplacian"),
    ("fourier", "kernel", [bj.Laplacian(jnp.ones(5))], "gamma ... scalar ... (5,)"),
    (STRATEGIES, "maintenance", [bj.Merge], "strategy ... got {}"),
    ("pegasos", "maintenance", [bj.RemoveRandom, "merge", 3], "strategy ... got {}"),
    ("arow", "maintenance", [bj.MultiMerge()], "full budget ... MultiMerge"),
    ("arow", "maintenance", [bj.DelayedProject()], "full budget ... DelayedProject"),
    (OF_LABELS, "num_classes", [None], "an integer, got None"),
    (OF_LABELS, "num_classes", [1], "at least 2, got 1"),
    (OF_ANY_TARGETS, "num_classes", [1], "at least 2, got 1"),
    ("forgetron", "num_classes", [3, None], "2, ... got {}"),
    (f"{STRATEGIES} fourier", "seed", [1.5], "an integer scalar, got 1.5"),
    ("pegasos", "seed", [jax.random.split(jax.random.key(0))], "an integer scalar"),
    (AVERAGING, "average", [0], "at least 1, got 0"),
    ("pegasos", "average", [1.5, None], "an integer, got {}"),
    ("pegasos", "average", [np.array([1, 2])], "an integer scalar"),
    (OF_ANY_TARGETS, "loss", ["hinge"], "a function ... got {}"),
    ("sgd", "loss", [lambda: 1.0, lambda f, y, z: f], "a function ... () ... argument"),
    ("sgd", "loss", [losses.quantile], "a function of scores ... argument"),
    ("sgd", "loss", [lambda f, y: jnp.stack([f, f])], "give one float ... shape=(2,)"),
    ("sgd", "loss", [lambda f, y: (f, y)], "give one float ... ("),
    ("sgd", "loss", [lambda f, y: None], "give one float ... None"),
    ("sgd", "loss", [lambda f, y: f > y], "give one float ... bool"),
    ("sgd", "loss", [tube("a")], "real numbers ... <U"),
    ("sgd", "loss", [tube(1j)], "real numbers ... complex"),
    ("sgd", "loss", [tube(NAN)], "float32 ... nan"),
    ("sgd", "loss", [tube(np.ones(2))], "scalar ... shape (2,) ... vmap"),
    ("sgd norma", "learning_rate", [0], "above 0, got 0"),
    ("norma", "learning_rate", [lambda t: 1.0], "a finite number above 0"),
    ("sgd norma", "regularization", [-1], "at least 0, got -1"),
    ("pegasos", "regularization", [0], "above 0, got 0"),
    # What XLA would take for 0 is out of range too.
    ("sgd", "learning_rate", [1e60, 1e-60, 1e-39], "the range of float32, got {}"),
    ("sgd", "learning_rate", [np.ones(3)], "a scalar ... shape (3,) ... vmap"),
    ("pegasos", "regularization", [np.ones(3)], "a scalar ... shape (3,) ... vmap"),
    ("arow", "moves", [np.ones(3)], "a scalar ... shape (3,) ... vmap"),
    ("sgd", "learning_rate", [lambda: 1.0], "a number or a function ... argument"),
    ("sgd", "learning_rate", [lambda t: None], "a number or a function ... None"),
    ("sgd", "learning_rate", [lambda t: jnp.ones(2)], "give one number ... shape (2,)"),
    ("pegasos", "project_to_ball", ["yes"], "True or False, got 'yes'"),
    ("perceptron", "margin", [-1], "at least 0, got -1"),
    ("ahpatron", "epsilon", [1], "at least 0 and below 1, got 1"),
    ("ahpatron", "radius", [0], "above 0, got 0"),
    ("alma", "alpha", [0], "above 0, got 0"),
    ("alma", "alpha", [1.5], "at most 1, got 1.5"),
    ("passive_aggressive", "variant", ["PA-3", None, ["PA"]], "one of ... PA-I ... {}"),
    ("passive_aggressive", "variant", [np.array(["PA", "PA-I"])], "one of ... PA-I"),
    ("passive_aggressive", "penalty", [0], "above 0, got 0"),
    ("projectron", "threshold", [-1], "at least 0, got -1"),
    ("projectron", "margin_updates", [1], "True or False, got 1"),
    ("projectron", "same_class", [True], "False for two classes, ... got True"),
    ("forgetron", "shrink", ["basics"], "self-tuned ... a number, got 'basics'"),
    ("forgetron", "shrink", [0], "above 0, got 0"),
    ("forgetron", "shrink", [1.5], "at most 1, got 1.5"),
    ("forgetron", "radius", [1.5], "None with shrink='self-tuned' ... got 1.5"),
    ("nystrom", "tolerance", [0], "above 0, got 0"),
    ("arow", "confidence", [0], "above 0, got 0"),
    ("arow", "drift", [1], "at least 0 and below 1, got 1"),
    ("arow", "moves", [-1], "at least 0, got -1"),
    ("fourier nystrom", "optimizer", ["sgd", optax.sgd], "of optax ... got {}"),
    ("fourier", "optimizer", [0.1, (1, 2)], "of optax ... got {}"),
    ("fourier nystrom", "optimizer", [optax.lbfgs()], "one of gradients alone"),
    ("nystrom arow", "landmarks", [np.ones((6, D))], "(m, 3) ... budget 5 ... (6, 3)"),
    ("nystrom", "landmarks", [X[:2, :1], X[:0], X[0], X[None]], "(m, 3) ... got ("),
    ("nystrom", "landmarks", [NAN * X[:2], 1e60 * np.ones((2, D))], "finite, got"),
    ("nystrom", "landmarks", [[[1.0] * D, [1.0]]], "an array ... list"),
    ("nystrom", "landmarks", [[["a"] * D]], "real numbers ... <U"),
    ("nystrom", "landmarks", [[[1j] * D]], "real numbers ... complex"),
]


@pytest.mark.parametrize(
    ("name", "argument", "value", "says"),
    [
        pytest.param(
            name, argument, value, says, id=f"{name}-{argument}-{called(value)}"
        )
        for names, argument, values, says in ARGUMENTS
        for name in names.split()
        for value in values
    ],
)
def test_arguments_of_init(name, argument, value, says):
    says = f"{name}.init: {argument} ... {says.format(_checks.value_text(value))}"
    check(lambda: init(name, **{argument: value}), says)


def traced(transform, value, argument="budget", **more):
    return transform(lambda value: init("pegasos", **{argument: value} | more))(value)


def merging(name, strategy, kernel):
    return init(name, kernel=kernel, maintenance=strategy)


def leaving(above):
    return init("perceptron", maintenance=bj.RemoveLargestMargin(above=above))


def of_landmarks(name, landmarks, **more):
    return init(name, landmarks=landmarks, **more)


PAIR = jnp.array([1, 2])
GAUSSIAN = "kernel must be Gaussian (RBF) ... got"
CALLS = [
    (lambda: init("pegasos", capacity=4), "pegasos.init: budget ... 4, got 5"),
    (lambda: traced(jax.vmap, PAIR), "pegasos.init: capacity must be given ... traced"),
    (lambda: traced(jax.vmap, PAIR / 2, capacity=4), "pegasos.init: ... got float32"),
    (lambda: traced(jax.jit, PAIR, capacity=4), "pegasos.init: budget ... int32[2]"),
    (lambda: traced(jax.jit, 6, "capacity"), "pegasos.init: capacity ... an integer"),
    (lambda: traced(jax.jit, 6, "num_features"), "pegasos.init: num_features must be"),
    (lambda: traced(jax.jit, PAIR / 2, "regularization"), "pegasos.init: ... (2,)"),
    (lambda: merging("sgd", bj.Merge(), bj.Linear()), f"Merge: {GAUSSIAN} Linear"),
    (lambda: merging("pegasos", bj.Merge(), SUM), f"Merge: {GAUSSIAN} Sum"),
    (lambda: merging("sgd", bj.MultiMerge(), SUM), f"MultiMerge: {GAUSSIAN} Sum"),
    (lambda: merging("arow", bj.MergeBestPair(), SUM), f"MergeBestPair: {GAUSSIAN}"),
    (lambda: bj.Merge(same_sign="yes"), "Merge: same_sign must be True or False"),
    (lambda: bj.MultiMerge(same_sign=1), "MultiMerge: same_sign must be True or False"),
    (lambda: bj.MultiMerge(count=1), "MultiMerge: count must be at least 2, got 1"),
    (lambda: bj.Project(best=None), "Project: best must be True or False, got None"),
    (lambda: bj.RemoveFewestErrors(size=0), "RemoveFewestErrors: size ... at least 1"),
    (lambda: leaving(NAN), "RemoveLargestMargin: above ... finite number, got nan"),
    (lambda: leaving([1.0, 2.0]), "RemoveLargestMargin: above ... a scalar ... (2,)"),
    (lambda: bj.Measured(bj.DelayedProject()), "Measured: strategy ... got DelayedPro"),
    (lambda: bj.DelayedProject(share=1), "DelayedProject: share ... below 1, got 1"),
    (lambda: bj.DelayedProject(share=PAIR / 4), "DelayedProject: share ... a Python"),
    (lambda: losses.quantile(1.5), "losses.quantile: level ... below 1, got 1.5"),
    (lambda: losses.quantile([0.5, 1]), "losses.quantile: level ... got [0.5, 1]"),
    (lambda: losses.epsilon_insensitive(-1), "losses.epsilon_insensitive: epsilon"),
    (
        lambda: init("sgd", num_classes=CLASSES, loss=optax.losses.squared_error),
        "sgd.init: loss must be a function of scores of shape (4,)",
    ),
    (
        lambda: of_landmarks("nystrom", X[:4], budget=3, capacity=5),
        "nystrom.init: landmarks must have shape (m, 3) ... budget 3, got (4, 3)",
    ),
    (
        lambda: of_landmarks("nystrom", np.zeros((2, D)), kernel=bj.Linear()),
        "nystrom.init: landmarks must have a positive definite ... Linear",
    ),
    (
        lambda: of_landmarks("arow", X[:2], maintenance=bj.Project()),
        "arow.init: maintenance must be None with landmarks ... got Project",
    ),
    (
        lambda: bj.average_iterates(init("pegasos")),
        "average_iterates: state ... with average=True",
    ),
    (
        lambda: bj.average_iterates(init("fourier")),
        "average_iterates: state ... with average=True",
    ),
]


@pytest.mark.parametrize(
    ("call", "says"), [pytest.param(*one, id=one[1]) for one in CALLS]
)
def test_calls(call, says):
    check(call, says)


# Examples, labels and weights.


def with_value(array, value, *place):
    array = array.copy()
    array[place] = value
    return array


OF_X = "X must have shape (n, 3) ... got "
BAD_X = {
    "one example": (X[0], f"{OF_X}(3,)"),
    "a number": (1.0, f"{OF_X}()"),
    "rank 3": (X[None], f"{OF_X}(1, 12, 3)"),
    "one feature": (X[:, :1], f"{OF_X}(12, 1)"),
    "more features": (np.ones((N, D + 1)), f"{OF_X}(12, 4)"),
    "an empty list": ([], f"{OF_X}(0,)"),
    "strings": (X.astype(str), "X must hold real numbers ... <U"),
    "objects": (X.astype(object), "X must hold real numbers ... object"),
    "complex": (X + 1j, "X must hold real numbers ... complex"),
    "none": (None, "X must hold real numbers ... object"),
    "ragged": ([[1.0] * D, [1.0]], "X must be an array ... list"),
}
VALUES = {
    "nan": (with_value(X, NAN, 4, 2), "X must be finite, got nan in row 4, column 2"),
    "inf": (with_value(X, INF, 0, 0), "X must be finite, got inf in row 0, column 0"),
    "-inf": (with_value(X, -INF, 11, 1), "X must ... got -inf in row 11, column 1"),
}
BAD_Y = {
    "short": (SIGNS[:-1], "y must have shape (12,) ... got (11,)"),
    "a number": (1, "y must have shape (12,) ... got ()"),
    "a column": (SIGNS[:, None], "y must have shape (12,) ... got (12, 1)"),
    "one-hot": (np.eye(N), "y must have shape (12,) ... got (12, 12)"),
    "strings": (SIGNS.astype(str), "y must hold real numbers ... <U"),
    "none": (None, "y must hold real numbers ... object"),
    "0 and 1": ((SIGNS + 1) // 2, "y must be -1 or +1, got 0"),
    "one wrong": (with_value(SIGNS, 3, 7), "y must be -1 or +1, got 3 in row 7"),
    "half": (SIGNS * 0.5, "y must be -1 or +1, got ... 0.5"),
    "nan": (SIGNS * NAN, "y must be -1 or +1, got nan in row 0"),
    "booleans": (SIGNS > 0, "y must be -1 or +1, got bool"),
}
BAD_CODES = {
    "floats": (CODES.astype(np.float32), "y must ... integer ... 0 .. 3, got float32"),
    "booleans": (CODES > 0, "y must ... integer ... 0 .. 3, got bool"),
    "one past": (with_value(CODES, CLASSES, 5), "y must be in 0 .. 3, got 4 in row 5"),
    "negative": (with_value(CODES, -1, 2), "y must be in 0 .. 3, got -1 in row 2"),
    "huge": (CODES.astype(np.int64) + 2**32, f"y must be in 0 .. 3, got {2**32} in"),
}
BAD_REALS = {
    "nan": (with_value(REALS, NAN, 3), "y must be finite ... got nan in row 3"),
    "inf": (with_value(REALS, INF, 0), "y must be finite ... got inf in row 0"),
    "range": (with_value(REALS.astype(float), 1e60, 2), "y ... float32 ... 1e+60"),
    "booleans": (SIGNS > 0, "y must ... got bool"),
}
BAD_WEIGHTS = {
    "short": (ONES[:-1], "weight must have shape (12,) ... got (11,)"),
    "a number": (1.0, "weight must have shape (12,) ... got ()"),
    "a column": (ONES[:, None], "weight must have shape (12,) ... got (12, 1)"),
    "negative": (with_value(ONES, -1, 5), "weight ... at least 0 ... -1.0 in row 5"),
    "nan": (with_value(ONES, NAN, 0), "weight must be finite ... got nan in row 0"),
    "inf": (with_value(ONES, INF, 11), "weight must be finite ... got inf in row 11"),
    "range": (with_value(ONES.astype(float), 1e60, 2), "weight ... float32 ... 1e+60"),
    "strings": (ONES.astype(str), "weight must hold real numbers ... <U"),
}


def streams():
    for kind, rows in (("X", BAD_X | VALUES), ("y", BAD_Y), ("weight", BAD_WEIGHTS)):
        for name, (bad, says) in rows.items():
            given = {"X": X, "y": SIGNS, "weight": None, kind: bad}
            yield pytest.param(binary, given, says, id=f"{kind}-{name}")
    for make, rows in ((multiclass, BAD_CODES), (regression, BAD_REALS)):
        for name, (bad, says) in rows.items():
            given = {"X": X, "y": bad}
            yield pytest.param(make, given, says, id=f"{make.__name__}-{name}")


@pytest.mark.parametrize(("make", "given", "says"), list(streams()))
def test_streams(make, given, says):
    check(lambda: bj.run(*make(), **given), f"run: {says}")


@pytest.mark.parametrize(
    ("make", "y"), [(binary, SIGNS), (multiclass, CODES), (regression, REALS)]
)
def test_an_error_leaves_states_as_they_were(make, y):
    algorithm, state = make()
    used, scores = bj.run(state, X, y)
    kept = jax.tree.map(np.array, used)
    for bad in ({"X": VALUES["nan"][0]}, {"y": y > 0}, {"weight": -ONES}):
        with pytest.raises(ValueError, match="run: "):
            bj.run(used, **{"X": X, "y": y} | bad)
    assert equal(used, kept)
    assert equal(bj.run(state, X, y), (used, scores))


OF_EACH = [
    *((name, {}, BAD_Y["0 and 1"]) for name in (*OF_LABELS.split(), "forgetron")),
    *(
        (name, {"num_classes": classes, "loss": loss}, bad)
        for name in OF_ANY_TARGETS.split()
        for classes, loss, bad in (
            (2, losses.logistic, BAD_Y["0 and 1"]),
            (CLASSES, losses.hinge, BAD_CODES["one past"]),
            (None, None, BAD_REALS["nan"]),
        )
    ),
]


@pytest.mark.parametrize(("name", "arguments", "bad"), OF_EACH)
def test_labels_of_every_learner(name, arguments, bad):
    """None of these runs gets to compile."""
    y, says = bad
    state = init(name, **arguments)
    check(lambda: bj.run(state, X, y), f"run: {says}")


@pytest.mark.parametrize("name", BAD_X | VALUES)
def test_predictions(name):
    bad, says = (BAD_X | VALUES)[name]
    check(lambda: bj.predict(binary()[1], bad), f"predict: {says}")
    scores = bj.decision_function
    check(lambda: scores(multiclass()[1], bad), f"decision_function: {says}")


@pytest.mark.parametrize(
    ("make", "given", "says"),
    [
        (binary, (X[:1], 1), "x must have shape (3,) ... got (1, 3)"),
        (multiclass, (X[0, :1], 2), "x must have shape (3,) ... got (1,)"),
        (binary, (1.0, 1), "x must have shape (3,) ... got ()"),
        (binary, (X[0].astype(str), 1), "x must hold real numbers ... <U"),
        (binary, (None, 1), "x must hold real numbers ... object"),
        (binary, (X[0], SIGNS[:1]), "y must be a scalar ... got shape (1,)"),
        (multiclass, (X[0], [2]), "y must be a scalar ... got shape (1,)"),
        (binary, (X[0], "1"), "y must hold real numbers ... <U"),
        (binary, (X[0], None), "y must hold real numbers ... object"),
        (binary, (X[0], True), "y must ... got bool"),
        (multiclass, (X[0], 2.0), "y must hold integer labels 0 .. 3, got float64"),
        (multiclass, (X[0], jnp.float32(2)), "y must hold integer ... got float32"),
        (binary, (X[0], 1, [1.0]), "weight must be a scalar, got shape (1,)"),
        (binary, (X[0], 1, "1"), "weight must hold real numbers ... <U"),
        (multiclass, (X[0], 2, 1j), "weight must hold real numbers ... complex"),
        (binary, (X[0], 0), "y must be -1 or +1, got 0"),
        (multiclass, (X[0], 7), "y must be in 0 .. 3, got 7"),
        (binary, (X[0], 1, -1), "weight must ... at least 0 ... got -1"),
        (binary, (X[0], 1, 1e-46), "weight must ... range of float32, got 1e-46"),
    ],
)
def test_examples(make, given, says):
    algorithm, state = make()
    check(lambda: bj.step(state, *given), f"step: {says}")


def test_a_stack_of_models_needs_vmap():
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), init("forgetron"))
    for where, call in (
        ("run", lambda: bj.run(states, X, SIGNS)),
        ("step", lambda: bj.step(states, X[0], 1)),
        ("decision_function", lambda: bj.decision_function(states, X)),
        ("predict", lambda: bj.predict(states, X)),
    ):
        check(call, f"{where}: model must ... got a stack ... (2,) ... vmap")


# An unbudgeted Perceptron whose budget was reached: points so far apart that every
# round is a mistake.
APART = (100 * np.arange(N * D, dtype=np.float32)).reshape(N, D)


@pytest.mark.parametrize("budget", [1, N - 1])
def test_an_overflow_is_an_error_after_the_run(budget):
    strategy = {"capacity": N - 1, "maintenance": bj.Unbudgeted()}
    state = init("perceptron", budget=budget, **strategy)
    kept = jax.tree.map(np.array, state)
    with pytest.raises(
        OverflowError,
        match=rf"^run: a budget of {budget} .* {N - budget} examples .* maintenance=",
    ):
        bj.run(state, APART, SIGNS)
    assert equal(state, kept)
    weight = np.arange(N) < budget
    full, _ = bj.run(state, APART, SIGNS, weight=weight)
    assert int(full.num_updates) == budget
    assert bool(full.expansion.full)


def test_step_counts_what_a_full_model_refuses():
    state = init("perceptron", budget=2, maintenance=bj.Unbudgeted())
    for x, y in zip(APART, SIGNS, strict=True):
        state = bj.step(state, x, y)
    assert int(state.maintenance.num_refused) == N - 2
    np.testing.assert_array_equal(bj.support(state).vectors, APART[:2])


@pytest.mark.parametrize("strategy", [bj.RemoveOldest(), bj.Merge()], ids=repr)
def test_strategies_never_overflow(strategy):
    state = init("perceptron", budget=1, maintenance=strategy)
    assert int(bj.run(state, APART, SIGNS)[0].num_updates) == N


def test_an_overflow_of_kernel_values_is_an_error():
    state = init("forgetron", kernel=bj.Polynomial(10))
    kept = jax.tree.map(np.array, state)
    far = X * np.where(np.arange(N) < 6, 1, 1e6).astype(np.float32)[:, None]
    check(
        lambda: bj.run(state, far, SIGNS),
        "run: every score must be finite ... in row 6 ... overflow float32",
    )
    assert equal(state, kept)


# Inside jit and vmap values are unknown and shapes are not.


def test_traced_values_are_not_checked():
    algorithm, state = binary()
    bad, y = VALUES["nan"][0], (SIGNS + 1) // 2

    def run(X, y):
        return bj.run(state, X, y)[1]

    assert jax.jit(run)(bad, y).shape == (N,)
    assert jax.vmap(run)(jnp.stack([bad, bad]), jnp.stack([y, y])).shape == (2, N)
    state = init("perceptron", budget=1, maintenance=bj.Unbudgeted())

    def overflow(X, y):
        return bj.run(state, X, y)[0]

    new = jax.jit(overflow)(X, SIGNS)
    assert int(new.maintenance.num_refused) > 0


def with_run(make):
    return lambda X, y, *weight: bj.run(*make(), X, y, weight=(*weight, None)[0])


def with_step(make):
    return lambda *given: make()[0].step(make()[1], *given)


def with_rows(function):
    return lambda X: function(multiclass()[1], X)


TRACED = [
    (with_run(binary), (X, SIGNS[:, None]), "run: y must have shape ... (12, 1)"),
    (with_run(multiclass), (X, CODES[:-1]), "run: y must have shape ... (11,)"),
    (with_run(binary), (X[0], SIGNS), "run: X must have shape ... got (3,)"),
    (with_run(multiclass), (X[:, :1], CODES), "run: X must have ... got (12, 1)"),
    (with_run(multiclass), (X, REALS), "run: y must ... integer ... got float32"),
    (with_run(binary), (X, SIGNS, ONES[:, None]), "run: weight must ... (12, 1)"),
    (with_step(binary), (X[:1], SIGNS[0]), "step: x must have shape ... (1, 3)"),
    (with_step(multiclass), (X[0, :1], CODES[0]), "step: x must have shape ... (1,)"),
    (with_step(binary), (X[0], SIGNS[:1]), "step: y must be a scalar ... (1,)"),
    (with_step(binary), (X[0], SIGNS[0], ONES), "step: weight must be a ... (12,)"),
    (with_rows(bj.predict), (X[0],), "predict: X must have shape ... got (3,)"),
    (with_rows(bj.decision_function), (X[None],), "decision_function: X must have"),
]


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_traced_shapes_are_checked(transform):
    for function, given, says in TRACED:
        if transform is jax.vmap:
            given = [np.stack([array, array]) for array in given]
        check(lambda given=given, f=function: transform(f)(*given), says)


# Input that is unusual, and fine.


@pytest.mark.parametrize(("make", "y"), [(binary, SIGNS), (multiclass, CODES)])
def test_an_empty_stream(make, y):
    algorithm, empty = make()
    columns = () if make is binary else (CLASSES,)
    for state in (empty, bj.run(empty, X, y)[0]):
        new, scores = bj.run(state, X[:0], y[:0])
        assert equal(new, state)
        for values in (scores, bj.decision_function(state, X[:0])):
            assert values.shape == (0, *columns)
            assert values.dtype == jnp.float32
        predictions = bj.predict(state, X[:0])
        assert predictions.shape == (0,)
        assert predictions.dtype == jnp.int32


@pytest.mark.parametrize(("make", "y"), [(binary, SIGNS), (multiclass, CODES)])
def test_lists_bytes_and_other_dtypes_are_examples(make, y):
    algorithm, state = make()
    whole = np.round(20 * np.abs(X))
    expected = bj.run(state, whole, y)
    scores = bj.decision_function(expected[0], whole)
    for other in (
        whole.tolist(),
        *(whole.astype(kind) for kind in (np.uint8, np.int64, np.float64, np.float16)),
        jnp.asarray(whole, jnp.int32),
    ):
        assert equal(bj.run(state, other, y), expected)
        assert equal(bj.decision_function(expected[0], other), scores)
    kinds = [np.int64, np.int8] + ([np.float32, float] if make is binary else [])
    for other in (y.tolist(), *(y.astype(kind) for kind in kinds), jnp.asarray(y)):
        assert equal(bj.run(state, whole, other), expected)
    for x, label in (([1, 2, 3], 1), (np.array([1, 2, 3], np.uint8), np.int64(1))):
        assert equal(
            bj.step(state, x, label),
            bj.step(state, jnp.array([1.0, 2.0, 3.0]), jnp.int32(1)),
        )


def test_booleans_lists_and_integers_are_weights():
    algorithm, state = binary()
    weight = (np.arange(N) % 3 != 1).astype(np.float32)
    expected = bj.run(state, X, SIGNS, weight=weight)
    assert int(expected[0].num_seen) == int(weight.sum())
    for other in (weight > 0, weight.tolist(), weight.astype(np.int8)):
        assert equal(bj.run(state, X, SIGNS, weight=other), expected)


def test_a_model_of_averages_starts_with_a_round():
    state = init("sgd", average=True)
    for other in (1, np.int64(1), jnp.int32(1)):
        assert equal(init("sgd", average=other), state)
    assert equal(init("sgd", average=False), init("sgd"))
    assert bj.average_iterates(state).expansion.average is None


@pytest.mark.parametrize("of", [np.float64, np.asarray, jnp.asarray])
def test_messages_have_numbers_and_not_their_types(of):
    with pytest.raises(ValueError, match=r"above 0, got -1\.0$"):
        _checks.positive("gamma", of(-1.0))
    with pytest.raises(ValueError, match=r"True or False, got \[ 1\.5, -2\.5\]$"):
        _checks.flag("average", of([1.5, -2.5]))


@pytest.mark.parametrize(
    "budget", [5, np.int64(5), np.uint8(5), np.array(5), jnp.array(5)], ids=repr
)
def test_integers_of_numpy_and_jax_are_budgets(budget):
    state = init("forgetron", budget=budget, num_features=np.int64(D))
    assert equal(state, init("forgetron"))
    assert equal(init("forgetron", budget=budget, capacity=np.int64(5)), state)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pegasos", {"maintenance": bj.Project()}),
        ("pegasos", {"maintenance": bj.MergeBestPair()}),
        ("arow", {}),
        ("projectron", {}),
        ("nystrom", {}),
        ("pegasos", {"num_features": 8_000, "maintenance": bj.Merge()}),
    ],
)
def test_a_budget_beyond_all_memory_is_refused(monkeypatch, name, arguments):
    monkeypatch.setattr(_checks, "memory", lambda: 2**27)
    expected = (
        rf"^{name}\.init: budget must be one whose arrays fit into memory, 0\.1 GiB, "
        r"got 9,000, num_features=[2-8].*, with [01]\.[2-9] GiB of arrays, the largest "
        r"of shape \(9001, "
    )
    with pytest.raises(ValueError, match=expected):
        init(name, budget=9000, **arguments)
    init(name, budget=5)


def test_models_that_fit_alone_and_not_together_are_refused(monkeypatch):
    monkeypatch.setattr(_checks, "memory", lambda: 2**27)
    grid = bj.grid(gamma=np.linspace(1, 2, 10_000))
    check(
        lambda: grid.init(lambda gamma: init("pegasos", budget=1000)),
        "Grid.init: budget must be one whose arrays fit into memory, 0.1 GiB, got "
        "1,000, models=10,000, num_features=3, with 0. ... GiB of arrays",
    )


def test_the_memory_of_this_machine():
    assert _checks.memory() > 2**27
    with pytest.raises(ValueError, match=r"fit into memory, .* got 1,000,000,000"):
        init("pegasos", budget=10**9, num_features=10**6)


@pytest.mark.parametrize(("module", "extra"), _checks.EXTRAS.items())
def test_what_is_not_installed_is_in_the_extra_that_is_named(module, extra):
    project = pathlib.Path(__file__).parents[1] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    package = "scikit-learn" if module == "sklearn" else module
    assert [one for one in extras[extra] if one.startswith(f"{package}>=")]
    with pytest.raises(ImportError) as raised, names_errors("solve"):
        _checks.import_optional(f"{module}.part")
    assert str(raised.value) == (
        f"solve needs {package}: pip install {package}, or budgetjax with the extra "
        f"[{extra}]"
    )


def test_the_package_shows_what_is_public():
    found = set(dir(bj))
    assert found >= {*bj.__all__, "__version__", "datasets", "estimators", "plots"}
    assert found >= {"pegasos", "norms", "river"}
    assert not found & {
        "Any",
        "TYPE_CHECKING",
        "importlib",
        "_checks",
        "register_types",
    }
    assert all(hasattr(bj, name) for name in found)


def test_one_function_says_what_to_install():
    package = pathlib.Path(bj.__file__).parent
    says = [path for path in package.rglob("*.py") if "pip install" in path.read_text()]
    assert says == [package / "_errors.py"]


ON_HOST = {
    "refit": lambda state, X, y: bj.refit(state, X, y),
    "one_class": lambda state, X, y: bj.one_class(state, X),
    "compress": lambda state, X, y: bj.compress(state, 3),
    "prune": lambda state, X, y: bj.prune(state, 3),
    "compact": lambda state, X, y: bj.compact(state),
    "calibrate": lambda state, X, y: bj.calibrate(state, X, y),
    "solve": lambda state, X, y: bj.solve(bj.smo, X, y, kernel=bj.RBF(1.0)),
    "default_gamma": lambda state, X, y: bj.default_gamma(X),
    "fit_stream": lambda state, X, y: bj.fit_stream(state, [(X, y)]),
}


@pytest.mark.parametrize("name", ON_HOST)
def test_what_runs_on_the_host_says_so(name):
    with pytest.raises(ValueError, match=f"^{name}: arguments must have values, as"):
        jax.eval_shape(ON_HOST[name], init("forgetron"), X, SIGNS)


@pytest.mark.parametrize(
    ("update", "got"),
    [
        (lambda *given: bj.Perceptron.update(*given)[::-1], r"\(Edits, State"),
        (lambda *given: bj.Perceptron.update(*given)[0], "State"),
        (lambda *given: bj.Perceptron.update(*given)[1], "Edits"),
        (lambda *given: (*bj.Perceptron.update(*given), 0), r"\(State, Edits, int"),
    ],
    ids=["swapped", "state", "edits", "more"],
)
def test_an_update_of_ones_own_that_returns_something_else(update, got):
    own = dataclasses.replace(bj.Perceptron, update=update)
    state = init("perceptron")
    expected = rf"^perceptron: update must return \(State, Edits\), got {got}\b"
    for call in (
        lambda: bj.run(state, X, SIGNS),
        lambda: bj.step(state, X[0], 1),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


def test_a_strategy_that_forgets_itself():
    class Forgetful(bj.Maintenance):
        def insert(self, kernel, expansion, candidate):
            return self.replace(expansion, candidate, jnp.int32(0))

    state = init("perceptron", maintenance=Forgetful())
    expected = r"^Forgetful: insert must return \(Maintenance, Edits\), got Edits\b"
    with pytest.raises(ValueError, match=expected):
        bj.run(state, X, SIGNS)


def _returning(change):
    """An `update` that is the Perceptron's, but for a change of what it returns."""
    return lambda *given: change(*bj.Perceptron.update(*given))


def _with_row(**changes):
    def change(state, edits):
        (row,) = edits.rows
        return state, edits._replace(rows=(row._replace(**changes),))

    return _returning(change)


def _with_coefficient(value):
    def update(state, score, y, candidate):
        candidate = candidate._replace(coefficients=value)
        _, edits = state.maintenance.insert(state.kernel, state.expansion, candidate)
        return state, edits

    return update


def _rescaled(state, edits):
    expansion = state.expansion
    return state._replace(
        expansion=expansion._replace(scale=expansion.scale / 2)
    ), edits


PARTS = {
    "expansion": (
        {"update": _returning(_rescaled)},
        "perceptron: update must return its changes of the support set as Edits",
    ),
    "dtype": (
        {"update": _returning(lambda s, e: (s._replace(margin=jnp.int32(1)), e))},
        r"perceptron: \.margin in the State of update must stay float32\[\], got int32",
    ),
    "shape": (
        {"update": _returning(lambda s, e: (s._replace(margin=jnp.ones(2)), e))},
        r"\.margin in the State of update must stay float32\[\], got float32\[2\]",
    ),
    "coefficient": (
        {"update": _with_coefficient(jnp.float32(1))},
        r"the candidate's coefficients must be float32\[1\], got float32\[\]",
    ),
    "term": (
        {"update": _with_row(term=jnp.float32(1))},
        r"\.term in rows\[0\] of the edits of update must stay float32\[1\], got",
    ),
    "slot": (
        {"update": _with_row(slot=jnp.float32(1))},
        r"\.slot in rows\[0\] of the edits of update must stay int32\[\], got float32",
    ),
    "violates": (
        {"violates": lambda state, score, y: score < 1},
        r"perceptron: violates must return one bool, got bool of shape \(1,\)",
    ),
    "flag": (
        {"violates": lambda state, score, y: bj.losses.margin(score, y)},
        r"perceptron: violates must return one bool, got float32 of shape \(\)",
    ),
    "decay": (
        {"decay": lambda state, ahead: jnp.float32(0)},
        r"perceptron: decay must return one number per round, shape \(\d+,\)",
    ),
}


@pytest.mark.parametrize(("parts", "match"), PARTS.values(), ids=PARTS)
def test_parts_of_ones_own_that_do_not_fit(parts, match):
    own = dataclasses.replace(bj.Perceptron, **parts)
    state = init("perceptron")
    for call in (
        lambda: bj.run(state, X, SIGNS),
        lambda: bj.step(state, X[0], 1),
    ):
        with pytest.raises(ValueError, match=match):
            call()


class Transposed(bj.Kernel):
    """A kernel whose matrix has its points the other way round."""

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return jnp.asarray(Z) @ jnp.asarray(X).T

    def diag(self, X, squares=None):
        return jnp.sum(X * X, axis=1)


class Pairwise(Transposed):
    """A kernel whose diagonal is a matrix."""

    def gram(self, X, Z, X_squares=None, Z_squares=None):
        return jnp.asarray(X) @ jnp.asarray(Z).T

    def diag(self, X, squares=None):
        return self.gram(X, X)


class Through(Pairwise):
    """A kernel with a function in a field."""

    function: object = jnp.tanh


def test_kernels_of_ones_own_that_do_not_fit():
    for kernel, match in (
        (
            Transposed(),
            r"gram of 2 and 3 points that is float32\[2, 3\], got .*\[3, 2\]",
        ),
        (Pairwise(), r"diag of 2 points that is float32\[2\], got float32\[2, 2\]"),
        (Through(), r"kernel\.function must be .* belongs in a static field"),
    ):
        with pytest.raises(ValueError, match=match):
            init("perceptron", kernel=kernel)
