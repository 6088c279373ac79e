"""Bad input: every message says where, what, expected and got.

A check that many functions share is tested here in full, and once for every caller.
"""

import dataclasses
import functools
import pathlib
import re
import tomllib

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from refusals import refused
from registry import split

import budgetjax as bj
from budgetjax import _checks, losses, registry
from budgetjax._errors import InputError, names_errors

D, N, CLASSES = 3, 12, 4
NAN, INF = float("nan"), float("inf")

pytestmark = pytest.mark.usefixtures("as_installed")

REQUIRED = {
    "Ahpatron": {},
    "ALMA": {},
    "Forgetron": {},
    "Perceptron": {"maintenance": bj.RemoveOldest()},
    "Pegasos": {"regularization": 0.1},
    "SGD": {"num_classes": None, "learning_rate": 0.5},
    "NORMA": {"learning_rate": 0.5, "regularization": 0.1},
    "PassiveAggressive": {},
    "Projectron": {},
    "Fourier": {"budget": 6},
    "Nystrom": {},
    "AROW": {},
    "KRLST": {"num_classes": None},
}
ALL = " ".join(REQUIRED)
LEARNERS = {kind.__name__: kind for kind in registry.LEARNERS}


def init(name, **arguments):
    """An empty model; only what a test is about needs to be said.

    The arguments are hyperparameters, and those of `init`.
    """
    arguments = {"num_features": D, "budget": 5} | REQUIRED[name] | arguments
    kernel = arguments.pop("kernel", bj.RBF(0.5))
    learner, shared = split(LEARNERS[name](), arguments)
    return learner.init(kernel, **shared)


X = np.random.default_rng(0).normal(size=(N, D)).astype(np.float32)
SIGNS = np.where(X[:, 0] > 0, 1, -1).astype(np.int32)
CODES = (np.arange(N) % CLASSES).astype(np.int32)
REALS = X[:, 1]
ONES = np.ones(N, np.float32)


def binary():
    return init("Forgetron")


def multiclass():
    return init("Pegasos", num_classes=CLASSES)


def regression():
    return init("SGD", maintenance=bj.RemoveOldest())


def check(call, says):
    """That a call fails with this message, where `...` stands for anything."""
    with pytest.raises(ValueError, match=r".+: .+ (must|needs) .+, got .+") as raised:
        call()
    # No subclass: an internal error of JAX or NumPy is not what was promised.
    assert isinstance(raised.value, InputError)
    first, *rest = says.split(" ... ")
    assert str(raised.value).startswith(first)
    contains(str(raised.value), rest)


def contains(message, texts, at=0):
    """That a message has these texts, one after the other."""
    for words in texts:
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


# Arguments of init and hyperparameters, of these learners; {} is the value.


def tube(width):
    return jax.tree_util.Partial(losses.absolute, width)


STRATEGIES = "ALMA Perceptron Pegasos SGD PassiveAggressive AROW"
OF_LABELS = "Ahpatron ALMA Perceptron Pegasos PassiveAggressive Projectron AROW"
OF_ANY_TARGETS = "SGD NORMA Fourier Nystrom"
AVERAGING = "Perceptron Pegasos SGD NORMA PassiveAggressive Fourier Nystrom"
SUM = bj.RBF(1.0) + bj.RBF(2.0)


def without(names):
    return " ".join(name for name in LEARNERS if name not in names.split())


def check_fields(call, function, argument, says, value):
    """That this argument, or a field of it, is refused; {} is the value."""
    says = says.format(_checks.value_text(value)).split(" ... ")
    if says[0].startswith("."):
        argument += says.pop(0)
    error = refused(call, argument, function=function)
    contains(f"{error.expected}, got {error.got}; {error.advice}", says)


ARGUMENTS = [
    (ALL, "num_features", [0], "at least 1, got 0"),
    ("Pegasos", "num_features", [*NO_SIZES, [3]], "an integer, got {}"),
    (ALL, "capacity", [0], "at least 1, got 0"),
    ("Pegasos", "capacity", [2.5, True, "10", NAN], "an integer, got {}"),
    (ALL, "budget", [0], "at least 1, got 0"),
    ("Pegasos Fourier", "budget", [*NO_SIZES, np.array(True)], "integer, got {}"),
    ("Pegasos", "budget", [np.float32(5)], "integer, got 5.0"),
    ("Pegasos", "budget", [np.ones(3, int), jnp.arange(3), [1] * 3], "shape (3,)"),
    ("Fourier", "budget", [1, 5, np.int64(7)], "even, got {}"),
    (ALL, "dtype", [jnp.int32], "a float type, got int32"),
    ("Pegasos", "dtype", ["int32", bool, complex], "a float type, got"),
    ("Pegasos", "dtype", [float, jnp.float64, "float64"], "float64 ... x64"),
    ("Pegasos", "dtype", ["abc", 5, None], "a float type, got {}"),
    (
        "Ahpatron AROW KRLST Nystrom Projectron",
        "dtype",
        [jnp.float16],
        "float32 or float64",
    ),
    (without("Fourier"), "kernel", ["rbf"], "a kernel ... got {}"),
    ("Pegasos", "kernel", [bj.RBF, bj.Linear, None, 0.5, (0.5,)], "kernel ... got {}"),
    ("Pegasos", "kernel", [bj.Pegasos()], "a kernel ... got Pegasos("),
    ("Pegasos", "kernel", [bj.RBF(jnp.ones(5))], "gamma ... scalar ... (5,) ... vmap"),
    ("Pegasos", "kernel", [bj.RBF(1e60)], ".gamma ... float32 ... 1e+60"),
    ("Pegasos", "kernel", [bj.Linear() + bj.RBF(1e-60)], ".right.gamma ... 1e-60"),
    ("Pegasos", "kernel", [bj.Mapped(bj.RBF(1.0), np.eye(9))], "matrix ... (9, 9)"),
    ("ALMA", "kernel", [bj.Linear()], "k(x, x) = 1 ... Linear"),
    ("Fourier", "kernel", [bj.Linear(), SUM], "an RBF or Laplacian"),
    ("Fourier", "kernel", [bj.RBF, "rbf"], "a kernel ... got {}"),
    ("Fourier", "kernel", [bj.Laplacian(jnp.ones(5))], "gamma ... scalar ... (5,)"),
    (STRATEGIES, "maintenance", [bj.Merge], "strategy ... got {}"),
    ("Pegasos", "maintenance", [bj.RemoveRandom, "merge", 3], "strategy ... got {}"),
    ("AROW", "maintenance", [bj.MultiMerge()], "full budget ... MultiMerge"),
    ("AROW", "maintenance", [bj.DelayedProject()], "full budget ... DelayedProject"),
    (without(STRATEGIES), "maintenance", [bj.Project()], "be None, as ... takes none"),
    (f"{OF_LABELS} Forgetron", "num_classes", [None], "a number, as ... got None"),
    (OF_LABELS, "num_classes", [1], "at least 2, got 1"),
    ("Pegasos", "num_classes", [2.5, True, "2", NAN, [2]], "an integer, got {}"),
    (OF_ANY_TARGETS, "num_classes", [1], "at least 2, got 1"),
    ("KRLST", "num_classes", [2, 3], "be None, as ... learns real targets, got {}"),
    ("Forgetron", "num_classes", [3, 1, "2"], "be 2, all that ... got {}"),
    (f"{OF_LABELS} Forgetron", "num_outputs", [3], "be 1, as ... takes none, got 3"),
    (f"{OF_ANY_TARGETS} KRLST", "num_outputs", [0], "at least 1, got 0"),
    ("SGD", "num_outputs", [2.5, "1", None], "an integer, got {}"),
    ("NORMA Nystrom", "num_outputs", [2], "1 unless num_classes is None ... got 2"),
    (f"{STRATEGIES} Fourier", "seed", [1.5], "an integer scalar, got 1.5"),
    ("Pegasos", "seed", [True, "0", None, NAN], "an integer scalar, got {}"),
    ("Pegasos", "seed", [2**40], "fit 32 bits, got {}"),
    ("Pegasos", "seed", [jax.random.split(jax.random.key(0))], "an integer scalar"),
    (AVERAGING, "average", [0], "at least 1, got 0"),
    (without(AVERAGING), "average", [True, 5], "be False, as ... takes none, got {}"),
    ("Pegasos", "average", [1.5, None], "an integer, got {}"),
    ("Pegasos", "average", [np.array([1, 2])], "an integer scalar"),
    ("Nystrom AROW", "vectors", [np.ones((6, D))], "(m, 3) ... budget 5 ... (6, 3)"),
    ("Nystrom", "vectors", [X[:2, :1], X[:0], X[0], X[None]], "(m, 3) ... got ("),
    ("Nystrom", "vectors", [NAN * X[:2], 1e60 * np.ones((2, D))], "finite, got"),
    ("Nystrom", "vectors", [[[1.0] * D, [1.0]]], "an array ... list"),
    ("Nystrom", "vectors", [[["a"] * D]], "real numbers ... <U"),
    ("Nystrom", "vectors", [[[1j] * D]], "real numbers ... complex"),
    (without("Nystrom AROW"), "vectors", [X[:2]], "be None, as ... takes none"),
    # Hyperparameters that only sizes and targets tell from good ones.
    ("SGD", "loss", [lambda: 1.0, lambda f, y, z: f], "a function ... () ... argument"),
    ("SGD", "loss", [losses.quantile], "a function of scores ... argument"),
    ("SGD", "loss", [lambda f, y: jnp.stack([f, f])], "give one float ... shape=(2,)"),
    ("SGD", "loss", [lambda f, y: (f, y)], "give one float ... ("),
    ("SGD", "loss", [lambda f, y: None], "give one float ... None"),
    ("SGD", "loss", [lambda f, y: f > y], "give one float ... bool"),
    ("SGD", "loss", [tube("a")], "real numbers ... <U"),
    ("SGD", "loss", [tube(1j)], "real numbers ... complex"),
    ("SGD", "loss", [tube(NAN)], "float32 ... nan"),
    ("SGD", "loss", [tube(np.ones(2))], "scalar ... shape (2,) ... vmap"),
    # What XLA would take for 0 is out of range too.
    ("SGD", "learning_rate", [1e60, 1e-60, 1e-39], "the range of float32, got {}"),
    ("SGD", "learning_rate", [lambda: 1.0], "a number or a function ... argument"),
    ("SGD", "learning_rate", [lambda t: None], "a number or a function ... None"),
    ("SGD", "learning_rate", [lambda t: jnp.ones(2)], "give one number ... shape (2,)"),
    ("Projectron", "same_class", [True], "False for two classes, ... got True"),
    ("Fourier Nystrom", "optimizer", [optax.lbfgs()], "one of gradients alone"),
]

# Hyperparameters by what they must be, each above 0 or at least 0, at most or below 1.
NUMBERS = {
    ("Pegasos", "regularization"): ([0, -1], "a finite number above 0"),
    ("SGD", "regularization"): ([-1], "a finite number of at least 0"),
    ("NORMA", "regularization"): ([-1], "a finite number of at least 0"),
    ("SGD", "learning_rate"): ([0, -1], "a finite number above 0"),
    ("NORMA", "learning_rate"): ([0, -1], "a finite number above 0"),
    ("Perceptron", "margin"): ([-1], "a finite number of at least 0"),
    ("Ahpatron", "epsilon"): ([-0.1, 1], "a number of at least 0 and below 1"),
    ("Ahpatron", "radius"): ([0, -1], "a finite number above 0"),
    ("ALMA", "alpha"): ([0, -1, 1.5], "a number above 0 and at most 1"),
    ("PassiveAggressive", "penalty"): ([0, -1], "a finite number above 0"),
    ("Projectron", "threshold"): ([-1], "a finite number of at least 0"),
    ("Nystrom", "novelty"): ([0, -1], "a finite number above 0"),
    ("AROW", "confidence"): ([0, -1], "a finite number above 0"),
    ("AROW", "drift"): ([-0.1, 1], "a number of at least 0 and below 1"),
    ("AROW", "moves"): ([-1], "a finite number of at least 0"),
    ("KRLST", "noise"): ([0, -1], "a finite number above 0"),
    ("KRLST", "forgetting"): ([-0.1, 1], "a number of at least 0 and below 1"),
    ("KRLST", "novelty"): ([-1], "a finite number of at least 0"),
    ("Forgetron", "phi"): ([0, -1, 1.5], "a number above 0 and at most 1"),
    ("Forgetron", "radius"): ([0, -1], "a finite number above 0"),
}
# What no hyperparameter takes, and what only the default of some is.
NO_HYPERPARAMETER = [NAN, INF, -INF, "a", True, 1j, [0.5, NAN], np.ones(2) * NAN, {}]
OPTIONAL = {
    ("SGD", "learning_rate"),
    ("NORMA", "learning_rate"),
    ("Ahpatron", "radius"),
    ("KRLST", "novelty"),
}
OPTIONAL |= {("Forgetron", "phi"), ("Forgetron", "radius")}
FLAGS = [
    ("Pegasos", "project_to_ball"),
    *(("Projectron", name) for name in ("margin_updates", "same_class")),
]
FIELDS = [
    *(
        (name, field, [*outside, *NO_HYPERPARAMETER], f"{expected}, got {{}}")
        for (name, field), (outside, expected) in NUMBERS.items()
    ),
    *(
        (name, field, [None], f"{expected}, got None")
        for (name, field), (_, expected) in NUMBERS.items()
        if (name, field) not in OPTIONAL
    ),
    *(
        (name, field, ["yes", 1, 0.0, None, np.ones(2)], "True or False, got {}")
        for name, field in FLAGS
    ),
    (OF_ANY_TARGETS, "loss", ["hinge", 1.0], "a function ... got {}"),
    ("NORMA", "learning_rate", [lambda t: 1.0], "a finite number above 0"),
    (
        "PassiveAggressive",
        "variant",
        ["PA-3", None, ["PA"], 1],
        "one of ... PA-I ... {}",
    ),
    ("PassiveAggressive", "variant", [np.array(["PA", "PA-I"])], "one of ... PA-I"),
    ("Forgetron", "rule", ["basics", None, 0.9, ["basic"]], "self-tuned ... got {}"),
    (
        "Fourier Nystrom",
        "optimizer",
        ["sgd", optax.sgd, 0.1, (1, 2)],
        "of optax ... {}",
    ),
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
    check_fields(
        lambda: init(name, **{argument: value}), f"{name}.init", argument, says, value
    )


@pytest.mark.parametrize(
    ("name", "field", "value", "says"),
    [
        pytest.param(name, field, value, says, id=f"{name}-{field}-{called(value)}")
        for names, field, values, says in FIELDS
        for name in names.split()
        for value in values
    ],
)
def test_hyperparameters(name, field, value, says):
    """They are refused as soon as the learner is made."""
    given = {field: value}
    check_fields(lambda: LEARNERS[name](**given), name, field, says, value)
    if name == "Forgetron":
        return
    replaced = functools.partial(dataclasses.replace, LEARNERS[name](), **given)
    check_fields(replaced, name, field, says, value)


@pytest.mark.parametrize(("name", "field"), NUMBERS, ids="-".join)
def test_a_learner_has_one_value_of_each_number(name, field):
    """Several are for `vmap`, over the values or over the states."""
    values = jnp.array([0.25, 0.5])
    given = {"phi": {"rule": "fixed"}, "radius": {"rule": "basic"}}
    more = given.get(field, {}) if name == "Forgetron" else {}
    says = f"{name}.init: {field} must be a scalar ... shape (2,) ... vmap"
    check(lambda: init(name, **{field: values}, **more), says)
    states = jax.vmap(lambda value: init(name, **{field: value}, **more))(values)
    np.testing.assert_array_equal(getattr(states.learner, field), values)


def test_every_number_of_every_learner_is_in_the_table():
    found = {
        (name, field.name)
        for name, kind in LEARNERS.items()
        for field in dataclasses.fields(kind)
        if not field.metadata.get("static") and field.name not in ("loss", "optimizer")
    }
    assert found == NUMBERS.keys()


def traced(transform, value, argument="budget", **more):
    return transform(lambda value: init("Pegasos", **{argument: value} | more))(value)


def merging(name, strategy, kernel):
    return init(name, kernel=kernel, maintenance=strategy)


def leaving(above):
    return init("Perceptron", maintenance=bj.RemoveLargestMargin(above=above))


def of_vectors(name, vectors, **more):
    return init(name, vectors=vectors, **more)


PAIR = jnp.array([1, 2])
GAUSSIAN = "kernel must be Gaussian (RBF) ... got"
CALLS = [
    (lambda: init("Pegasos", capacity=4), "Pegasos.init: budget ... 4, got 5"),
    (lambda: traced(jax.vmap, PAIR), "Pegasos.init: capacity must be given ... traced"),
    (lambda: traced(jax.vmap, PAIR / 2, capacity=4), "Pegasos.init: ... got float32"),
    (lambda: traced(jax.jit, PAIR, capacity=4), "Pegasos.init: budget ... int32[2]"),
    (lambda: traced(jax.jit, 6, "capacity"), "Pegasos.init: capacity ... an integer"),
    (lambda: traced(jax.jit, 6, "num_features"), "Pegasos.init: num_features must be"),
    (lambda: traced(jax.jit, PAIR / 2, "regularization"), "Pegasos.init: ... (2,)"),
    (lambda: merging("SGD", bj.Merge(), bj.Linear()), f"Merge: {GAUSSIAN} Linear"),
    (lambda: merging("Pegasos", bj.Merge(), SUM), f"Merge: {GAUSSIAN} Sum"),
    (lambda: merging("SGD", bj.MultiMerge(), SUM), f"MultiMerge: {GAUSSIAN} Sum"),
    (lambda: merging("AROW", bj.MergeBestPair(), SUM), f"MergeBestPair: {GAUSSIAN}"),
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
        lambda: init("SGD", num_classes=CLASSES, loss=optax.losses.squared_error),
        "SGD.init: loss must be a function of scores of shape (4,)",
    ),
    (
        lambda: of_vectors("Nystrom", X[:4], budget=3, capacity=5),
        "Nystrom.init: vectors must have shape (m, 3) ... budget 3, got (4, 3)",
    ),
    (
        lambda: of_vectors("Nystrom", np.zeros((2, D)), kernel=bj.Linear()),
        "Nystrom.init: vectors must have a positive definite ... Linear",
    ),
    (
        lambda: of_vectors("AROW", X[:2], maintenance=bj.Project()),
        "AROW.init: maintenance must be None with vectors ... got Project",
    ),
    (
        lambda: bj.average_iterates(init("Pegasos")),
        "average_iterates: state ... with average=True",
    ),
    (
        lambda: bj.average_iterates(init("Fourier")),
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
    check(lambda: bj.run(make(), **given), f"run: {says}")


@pytest.mark.parametrize(
    ("make", "y"), [(binary, SIGNS), (multiclass, CODES), (regression, REALS)]
)
def test_an_error_leaves_states_as_they_were(make, y):
    state = make()
    used, scores = bj.run(state, X, y)
    kept = jax.tree.map(np.array, used)
    for bad in ({"X": VALUES["nan"][0]}, {"y": y > 0}, {"weight": -ONES}):
        with pytest.raises(ValueError, match="run: "):
            bj.run(used, **{"X": X, "y": y} | bad)
    assert equal(used, kept)
    assert equal(bj.run(state, X, y), (used, scores))


OF_EACH = [
    *((name, {}, BAD_Y["0 and 1"]) for name in (*OF_LABELS.split(), "Forgetron")),
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
    check(lambda: bj.predict(binary(), bad), f"predict: {says}")
    scores = bj.decision_function
    check(lambda: scores(multiclass(), bad), f"decision_function: {says}")


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
    state = make()
    check(lambda: bj.step(state, *given), f"step: {says}")


def test_a_stack_of_models_needs_vmap():
    states = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), init("Forgetron"))
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
    state = init("Perceptron", budget=budget, **strategy)
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
    state = init("Perceptron", budget=2, maintenance=bj.Unbudgeted())
    for x, y in zip(APART, SIGNS, strict=True):
        state = bj.step(state, x, y)
    assert int(state.maintenance.num_refused) == N - 2
    np.testing.assert_array_equal(bj.support(state).vectors, APART[:2])


@pytest.mark.parametrize("strategy", [bj.RemoveOldest(), bj.Merge()], ids=repr)
def test_strategies_never_overflow(strategy):
    state = init("Perceptron", budget=1, maintenance=strategy)
    assert int(bj.run(state, APART, SIGNS)[0].num_updates) == N


def test_an_overflow_of_kernel_values_is_an_error():
    state = init("Forgetron", kernel=bj.Polynomial(10))
    kept = jax.tree.map(np.array, state)
    far = X * np.where(np.arange(N) < 6, 1, 1e6).astype(np.float32)[:, None]
    check(
        lambda: bj.run(state, far, SIGNS),
        "run: every score must be finite ... in row 6 ... overflow float32",
    )
    assert equal(state, kept)


# Inside jit and vmap values are unknown and shapes are not.


def test_traced_values_are_not_checked():
    state = binary()
    bad, y = VALUES["nan"][0], (SIGNS + 1) // 2

    def run(X, y):
        return bj.run(state, X, y)[1]

    assert jax.jit(run)(bad, y).shape == (N,)
    assert jax.vmap(run)(jnp.stack([bad, bad]), jnp.stack([y, y])).shape == (2, N)
    state = init("Perceptron", budget=1, maintenance=bj.Unbudgeted())

    def overflow(X, y):
        return bj.run(state, X, y)[0]

    new = jax.jit(overflow)(X, SIGNS)
    assert int(new.maintenance.num_refused) > 0


def with_run(make):
    return lambda X, y, *weight: bj.run(make(), X, y, weight=(*weight, None)[0])


def with_step(make):
    return lambda *given: bj.step(make(), *given)


def with_rows(function):
    return lambda X: function(multiclass(), X)


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
    empty = make()
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
    state = make()
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
    state = binary()
    weight = (np.arange(N) % 3 != 1).astype(np.float32)
    expected = bj.run(state, X, SIGNS, weight=weight)
    assert int(expected[0].num_seen) == int(weight.sum())
    for other in (weight > 0, weight.tolist(), weight.astype(np.int8)):
        assert equal(bj.run(state, X, SIGNS, weight=other), expected)


def test_a_model_of_averages_starts_with_a_round():
    state = init("SGD", average=True)
    for other in (1, np.int64(1), jnp.int32(1)):
        assert equal(init("SGD", average=other), state)
    assert equal(init("SGD", average=False), init("SGD"))
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
    state = init("Forgetron", budget=budget, num_features=np.int64(D))
    assert equal(state, init("Forgetron"))
    assert equal(init("Forgetron", budget=budget, capacity=np.int64(5)), state)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("Pegasos", {"maintenance": bj.Project()}),
        ("Pegasos", {"maintenance": bj.MergeBestPair()}),
        ("AROW", {}),
        ("KRLST", {}),
        ("Projectron", {}),
        ("Nystrom", {}),
        ("Pegasos", {"num_features": 8_000, "maintenance": bj.Merge()}),
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
        lambda: grid.init(lambda gamma: init("Pegasos", budget=1000)),
        "Grid.init: budget must be one whose arrays fit into memory, 0.1 GiB, got "
        "1,000, models=10,000, num_features=3, with 0. ... GiB of arrays",
    )


def test_the_memory_of_this_machine():
    assert _checks.memory() > 2**27
    with pytest.raises(ValueError, match=r"fit into memory, .* got 1,000,000,000"):
        init("Pegasos", budget=10**9, num_features=10**6)


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
    assert found >= {"Pegasos", "norms", "river"}
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
    "solve": lambda state, X, y: bj.solve(bj.SMO(bj.RBF(1.0)), X, y),
    "default_gamma": lambda state, X, y: bj.default_gamma(X),
    "fit_stream": lambda state, X, y: bj.fit_stream(state, [(X, y)]),
}


@pytest.mark.parametrize("name", ON_HOST)
def test_what_runs_on_the_host_says_so(name):
    with pytest.raises(ValueError, match=f"^{name}: arguments must have values, as"):
        jax.eval_shape(ON_HOST[name], init("Forgetron"), X, SIGNS)


class Remembering(bj.Perceptron):
    """A Perceptron that remembers a number."""

    def start(self, state, seed, vectors):
        return state._replace(memory=jnp.zeros((), state.dtype))


def mine(parts, kind=Remembering, **arguments):
    """An empty model of a learner of one's own, with these methods."""
    own = type("Mine", (kind,), parts)()
    arguments = {"maintenance": bj.RemoveOldest()} | arguments
    return own.init(bj.RBF(0.5), num_features=D, budget=5, **arguments)


def refuses(state, match):
    """That neither a run nor a step takes this learner."""
    for call in (
        lambda: bj.run(state, X, SIGNS),
        lambda: bj.step(state, X[0], 1),
    ):
        with pytest.raises(ValueError, match=match):
            call()


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
    expected = rf"^Mine: update must return \(State, Edits\), got {got}\b"
    refuses(mine({"update": update}), expected)


def test_a_strategy_that_forgets_itself():
    class Forgetful(bj.Maintenance):
        def insert(self, kernel, expansion, candidate):
            return self.replace(expansion, candidate, jnp.int32(0))

    state = init("Perceptron", maintenance=Forgetful())
    expected = r"^Forgetful: insert must return \(Maintenance, Edits\), got Edits\b"
    refuses(state, expected)


def _returning(change):
    """An `update` that is the Perceptron's, but for a change of what it returns."""
    return lambda *given: change(*bj.Perceptron.update(*given))


def _with_row(**changes):
    def change(state, edits):
        (row,) = edits.rows
        return state, edits._replace(rows=(row._replace(**changes),))

    return _returning(change)


def _rescaled(state, edits):
    expansion = state.expansion
    return state._replace(
        expansion=expansion._replace(scale=expansion.scale / 2)
    ), edits


def _other_learner(state, edits):
    learner = state.learner._replace(margin=state.learner.margin + 1)
    return bj.Record._replace(state, learner=learner), edits


def _remembering(memory):
    return {"update": _returning(lambda s, e: (s._replace(memory=memory), e))}


PARTS = {
    "expansion": (
        {"update": _returning(_rescaled)},
        "^Mine: update must return its changes of the support set as Edits, and "
        "state.expansion as it was, got another expansion",
    ),
    "counts": (
        {"update": _returning(lambda s, e: (s.after(updates=1), e))},
        "^Mine: update must return the counters to those who call it, and state.counts",
    ),
    "learner": (
        {"update": _returning(_other_learner)},
        "^Mine: update must return what changes in state.memory, which its `start` "
        "makes, and state.learner as it was, got another learner",
    ),
    "replaced": (
        {"update": _returning(lambda s, e: (s._replace(learner=Remembering()), e))},
        r"^state._replace: learner must be replaced by budgetjax.with_learner\(",
    ),
    "dtype": (
        _remembering(jnp.int32(1)),
        r"^Mine: \.memory in the State of update must stay float32\[\], got int32",
    ),
    "shape": (
        _remembering(jnp.ones(2)),
        r"\.memory in the State of update must stay float32\[\], got float32\[2\]",
    ),
    "structure": (_remembering(None), "^Mine: "),
    "coefficient": (
        {"update": lambda self, s, f, y, c: self.insert(s, jnp.float32(1), c)},
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
        {"violates": lambda self, state, score, y: score < 1},
        r"^Mine: violates must return one bool, got bool of shape \(1,\)",
    ),
    "flag": (
        {"violates": lambda self, state, score, y: bj.losses.margin(score, y)},
        r"^Mine: violates must return one bool, got float32 of shape \(\)",
    ),
    "decay": (
        {"decay": lambda self, state, ahead: jnp.float32(0)},
        r"^Mine: decay must return one number per round, shape \(\d+,\)",
    ),
}


@pytest.mark.parametrize(("parts", "match"), PARTS.values(), ids=PARTS)
def test_parts_of_ones_own_that_do_not_fit(parts, match):
    refuses(mine(parts), match)


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
            init("Perceptron", kernel=kernel)
