"""Bad input: one table of it. Every message says where, what, expected and got."""

import dataclasses
import pathlib
import tomllib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import budgetjax as bj
from budgetjax import checks, losses

D, N, CLASSES = 3, 12, 4
NAN = float("nan")


pytestmark = pytest.mark.usefixtures("as_installed")

REQUIRED = {
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


def init(name, **arguments):
    """An empty model; only what a test is about needs to be said."""
    arguments = {"num_features": D, "budget": 5} | REQUIRED[name] | arguments
    kernel = arguments.pop("kernel", bj.RBF(0.5))
    return getattr(bj, name).init(kernel, **arguments)


def points(n=N, d=D):
    return np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)


def labels(n=N):
    return np.where(points(n)[:, 0] > 0, 1, -1).astype(np.int32)


def classes(n=N):
    return (np.arange(n) % CLASSES).astype(np.int32)


def targets(n=N):
    return points(n)[:, 1]


class Bad(NamedTuple):
    """A call that must fail.

    Attributes:
      name: of the row.
      call: fails.
      says: what the message must hold in this order: where, name, expected, got.
    """

    name: str
    call: Callable[[], Any]
    says: tuple[str, ...]


def check(call, says):
    with pytest.raises(ValueError, match=r".+: .+ (must|needs) .+, got .+") as raised:
        call()
    # No subclass: an internal error of JAX or NumPy is not what was promised.
    assert raised.type is ValueError
    message, at = str(raised.value), 0
    assert message.startswith(says[0])
    for words in says:
        assert words in message[at:], f"{words!r} is not in {message[at:]!r}"
        at += message[at:].index(words) + len(words)


def called(value):
    """What names a row after a value: the same in every process."""
    if isinstance(value, jax.tree_util.Partial):
        return f"{called(value.func)}{value.args}"
    return getattr(value, "__name__", None) or repr(value)


def table(rows):
    return pytest.mark.parametrize("row", list(rows), ids=lambda row: row.name)


# Arguments of init: (argument, value, the rest of the message).

SIZES = [
    (0, "at least"),
    (-1, "at least"),
    (2.5, "integer"),
    (True, "integer"),
    ("10", "integer"),
    (None, "integer"),
    (NAN, "integer"),
]
FOR_ALL = [
    *(("num_features", value, (expected,)) for value, expected in SIZES),
    *(("budget", value, (expected,)) for value, expected in SIZES),
    *(("capacity", value, (expected,)) for value, expected in SIZES if value),
    ("capacity", 0, ("at least 1",)),
    ("budget", np.array([1, 2]), ("scalar", "shape (2,)")),
    ("budget", jnp.array([1, 2]), ("scalar", "shape (2,)")),
    ("budget", [5], ("scalar", "shape (1,)")),
    ("budget", np.float32(5), ("integer", "5.0")),
    ("budget", np.array(True), ("integer", "True")),
    *(
        ("dtype", value, ("float", str(np.dtype(value))))
        for value in (jnp.int32, "int32", bool, complex)
    ),
    *(
        ("dtype", value, ("float64", "x64"))
        for value in (float, jnp.float64, "float64")
    ),
    *(("dtype", value, ("float type", repr(value))) for value in ("abc", 5, None)),
]
FOR_ANY_KERNEL = [
    *(
        ("kernel", value, ("kernel", repr(value)))
        for value in (bj.RBF, bj.Linear, "rbf", None, 0.5, (0.5,))
    ),
    ("kernel", bj.RBF(jnp.ones(5)), ("gamma", "scalar", "shape (5,)", "vmap")),
    ("kernel", bj.RBF(1e60), (".gamma", "float32", "1e+60")),
    ("kernel", bj.Mapped(bj.RBF(1.0), np.ones((9, 2))), ("matrix", "(9, 2)")),
    ("kernel", bj.Linear() + bj.RBF(1e-60), (".right.gamma", "float32", "1e-60")),
]
FOR_STRATEGIES = [
    *(
        ("maintenance", value, ("strategy", repr(value)))
        for value in (bj.Merge, bj.RemoveOldest, bj.RemoveRandom, "merge", 3)
    ),
]
FOR_CLASSES = [
    *(("num_classes", value, (expected,)) for value, expected in SIZES),
    ("num_classes", 1, ("at least 2", "1")),
]
FOR_SEEDS = [
    *(
        ("seed", value, ("integer",))
        for value in (1.5, True, np.array([1, 2]), NAN, "0", None)
    ),
    ("seed", jax.random.split(jax.random.key(0)), ("integer",)),
    ("seed", 2**40, ("32 bits", str(2**40))),
]
FOR_AVERAGES = [
    *(("average", value, ("at least 1", repr(value))) for value in (0, -1)),
    *(
        ("average", value, ("integer", checks.written(value)))
        for value in (1.5, "all", None, NAN, np.array([1, 2]))
    ),
    ("average", 2**40, ("32 bits", str(2**40))),
]


def two_scores(score, y):
    return jnp.stack([score, score])


def a_scoreless_loss():
    return 1.0


def three_arguments(score, y, more):
    return score


def a_pair(score, y):
    return score, y


def nothing(score, y):
    return None


def whether(score, y):
    return score > y


def two_rates(t):
    return jnp.ones(2)


def no_number(t):
    return None


FOR_LOSSES = [
    *(("loss", value, ("function", repr(value))) for value in ("hinge", 3)),
    *(
        ("loss", value, ("function of scores", "()", "argument"))
        for value in (a_scoreless_loss, three_arguments, losses.quantile)
    ),
    ("loss", two_scores, ("one float", "shape=(2,)")),
    ("loss", a_pair, ("one float", "(")),
    ("loss", nothing, ("one float", "None")),
    ("loss", whether, ("one float", "bool")),
    *(
        ("loss", jax.tree_util.Partial(losses.absolute, value), says)
        for value, says in (
            ("a", ("real numbers", "<U")),
            (1j, ("real numbers", "complex")),
            (NAN, ("float32", "nan")),
            (np.ones(2), ("scalar", "shape (2,)", "vmap")),
        )
    ),
]
FOR_RATES = [
    *(
        ("learning_rate", value, ("above 0", repr(value)))
        for value in (0, 0.0, -1, -1e-3, NAN, float("inf"), "a", True, 1j)
    ),
    ("learning_rate", 1e-60, ("float32", "1e-60")),
    # XLA would take it for 0.
    ("learning_rate", 1e-39, ("float32", "1e-39")),
    ("learning_rate", np.ones(3), ("scalar", "shape (3,)", "vmap")),
    *(
        ("regularization", value, ("at least 0", repr(value)))
        for value in (-1, -1e-3, NAN, float("inf"), "a", None, True)
    ),
    ("regularization", np.ones(3), ("scalar", "shape (3,)", "vmap")),
]
FOR_SGD = [
    ("learning_rate", a_scoreless_loss, ("number", "function", "argument")),
    ("learning_rate", no_number, ("number", "function", "None")),
    ("learning_rate", two_rates, ("one number", "shape (2,)")),
]
FOR_PASSIVE_AGGRESSIVE = [
    *(
        ("variant", value, ("PA-I", repr(value)))
        for value in ("PA-3", "pa", None, 1, ["PA"], np.array(["PA", "PA-I"]))
    ),
    *(
        ("penalty", value, ("above 0", repr(value)))
        for value in (0, -1, NAN, float("inf"), "a", None)
    ),
    ("penalty", 1e-39, ("float32", "1e-39")),
    ("penalty", np.ones(3), ("scalar", "shape (3,)", "vmap")),
]
FOR_PROJECTRON = [
    *(
        ("threshold", value, ("at least 0", repr(value)))
        for value in (-1, -1e-3, NAN, float("inf"), "a", None)
    ),
    ("threshold", np.ones(3), ("scalar", "shape (3,)", "vmap")),
    *(
        ("margin_updates", value, ("True or False", checks.written(value)))
        for value in ("yes", 1, None, np.ones(2))
    ),
]
FOR_FEATURES = [
    *(
        ("optimizer", value, ("optax", called(value)))
        for value in ("sgd", 0.1, (1, 2), optax.sgd)
    ),
]
FOR_FOURIER = [
    *(("budget", value, ("even", str(value))) for value in (1, 5, np.int64(7))),
    *(
        ("kernel", value, ("RBF or Laplacian", type(value).__name__))
        for value in (
            bj.Linear(),
            bj.Normalized(bj.RBF(1.0)),
            bj.RBF(1.0) + bj.RBF(2.0),
            bj.RBF,
            "rbf",
            None,
        )
    ),
    ("kernel", bj.Laplacian(jnp.ones(5)), ("gamma", "scalar", "shape (5,)", "vmap")),
]
FOR_LANDMARKS = [
    *(
        ("landmarks", value, (f"(m, {D})", "budget 5", f"got {value.shape}"))
        for value in (
            np.ones((2, D + 1)),
            np.ones((6, D)),
            np.ones((0, D)),
            np.ones(D),
            np.ones((1, 2, D)),
        )
    ),
    *(
        ("landmarks", np.full((2, D), value), ("finite",))
        for value in (NAN, np.inf, 1e60)
    ),
    ("landmarks", [[1.0] * D, [1.0]], ("array", "list")),
    ("landmarks", [["a"] * D], ("real numbers", "<U")),
    ("landmarks", [[1j] * D], ("real numbers", "complex")),
]
FOR_NYSTROM = [
    *(
        ("tolerance", value, ("above 0", repr(value)))
        for value in (0, -1, NAN, float("inf"), "a", None)
    ),
    ("tolerance", np.ones(3), ("scalar", "shape (3,)", "vmap")),
]
FOR_AROW = [
    *(
        ("confidence", value, ("above 0", repr(value)))
        for value in (0, -1, NAN, float("inf"), "a", None)
    ),
    ("confidence", np.ones(3), ("scalar", "shape (3,)", "vmap")),
    *(
        ("drift", value, ("at least 0 and below 1", repr(value)))
        for value in (-0.1, 1, NAN, "a", None)
    ),
    *(
        ("moves", value, ("at least 0", repr(value)))
        for value in (-1, NAN, float("inf"), "a", None)
    ),
    ("moves", np.ones(3), ("scalar", "shape (3,)", "vmap")),
    ("maintenance", bj.MultiMerge(), ("full budget", "MultiMerge")),
    ("maintenance", bj.DelayedProject(), ("full budget", "DelayedProject")),
]
FOR_PEGASOS = [
    *(
        ("regularization", value, ("above 0", repr(value)))
        for value in (0, 0.0, -1, -1e-3, NAN, float("inf"), "a", None, True, 1j)
    ),
    ("regularization", 1e-60, ("float32", "1e-60")),
    ("regularization", 1e-39, ("float32", "1e-39")),
    ("regularization", np.ones(3), ("scalar", "shape (3,)", "vmap")),
    *(
        ("project_to_ball", value, ("True or False", checks.written(value)))
        for value in ("yes", 1, None, np.ones(2))
    ),
]
FOR_PERCEPTRON = [
    *(
        ("margin", value, ("at least 0", repr(value)))
        for value in (-1, -1e-3, NAN, float("inf"), "a", None)
    ),
    ("margin", np.ones(3), ("scalar", "shape (3,)", "vmap")),
]
FOR_ALMA = [
    *(
        ("alpha", value, ("above 0", repr(value)))
        for value in (0, -1, NAN, float("inf"), "a", None)
    ),
    ("alpha", 1.5, ("at most 1", "1.5")),
    ("kernel", bj.Linear(), ("k(x, x) = 1", "Linear")),
]
STRATEGIES = ("alma", "perceptron", "pegasos", "sgd", "passive_aggressive", "arow")
ARGUMENTS = [
    (name, argument, value, says)
    for names, rows in (
        (tuple(REQUIRED), FOR_ALL),
        (tuple(name for name in REQUIRED if name != "fourier"), FOR_ANY_KERNEL),
        (STRATEGIES, FOR_STRATEGIES),
        (
            (
                "alma",
                "perceptron",
                "pegasos",
                "passive_aggressive",
                "projectron",
                "arow",
            ),
            FOR_CLASSES,
        ),
        (
            ("sgd", "norma", "fourier", "nystrom"),
            [row for row in FOR_CLASSES if row[1] is not None],
        ),
        (("forgetron",), [("num_classes", value, ("2",)) for value in (3, None)]),
        ((*STRATEGIES, "fourier"), FOR_SEEDS),
        (("pegasos", "sgd", "norma", "fourier", "nystrom"), FOR_AVERAGES),
        (("sgd", "norma", "fourier", "nystrom"), FOR_LOSSES),
        (("sgd", "norma"), FOR_RATES),
        (("sgd",), FOR_SGD),
        (("pegasos",), FOR_PEGASOS),
        (("perceptron",), FOR_PERCEPTRON),
        (("alma",), FOR_ALMA),
        (("passive_aggressive",), FOR_PASSIVE_AGGRESSIVE),
        (("projectron",), FOR_PROJECTRON),
        (("fourier", "nystrom"), FOR_FEATURES),
        (("fourier",), FOR_FOURIER),
        (("nystrom", "arow"), FOR_LANDMARKS),
        (("nystrom",), FOR_NYSTROM),
        (("arow",), FOR_AROW),
    )
    for argument, value, says in rows
    for name in names
]


@table(
    Bad(
        f"{name}-{argument}-{called(value)}",
        lambda name=name, argument=argument, value=value: init(
            name, **{argument: value}
        ),
        (f"{name}.init: {argument}", *says),
    )
    for name, argument, value, says in ARGUMENTS
)
def test_arguments_of_init(row):
    check(row.call, row.says)


def combinations():
    for name in REQUIRED:
        yield Bad(
            f"{name}-budget-above-capacity",
            lambda name=name: init(name, budget=5, capacity=4),
            (f"{name}.init: budget must be at most the capacity 4", "got 5"),
        )
        yield Bad(
            f"{name}-traced-budget-without-capacity",
            lambda name=name: jax.vmap(lambda b: init(name, budget=b))(jnp.arange(3)),
            (f"{name}.init: capacity must be given", "traced", "got capacity=None"),
        )
        yield Bad(
            f"{name}-traced-budget-of-reals",
            lambda name=name: jax.vmap(lambda b: init(name, budget=b, capacity=4))(
                jnp.array([1.0, 2.5])
            ),
            (f"{name}.init: budget must be an integer", "got float32"),
        )
        yield Bad(
            f"{name}-traced-budget-of-two",
            lambda name=name: jax.jit(lambda b: init(name, budget=b, capacity=4))(
                jnp.array([1, 2])
            ),
            (f"{name}.init: budget must be an integer scalar", "got int32[2]"),
        )
        for size in ("capacity", "num_features"):
            yield Bad(
                f"{name}-traced-{size}",
                lambda name=name, size=size: jax.jit(
                    lambda value: init(name, **{size: value})
                )(6),
                (f"{name}.init: {size} must be an integer", "got"),
            )
    yield Bad(
        "pegasos-traced-regularization-of-three",
        lambda: jax.jit(lambda r: init("pegasos", regularization=r))(jnp.ones(3)),
        ("pegasos.init: regularization must be a scalar", "got shape (3,)"),
    )
    for kernel in (
        bj.Linear(),
        bj.Polynomial(2),
        bj.Laplacian(1.0),
        bj.Normalized(bj.RBF(1.0)),
        bj.RBF(1.0) + bj.RBF(2.0),
    ):
        for name, strategy in (
            ("perceptron", bj.Merge()),
            ("pegasos", bj.Merge()),
            ("sgd", bj.MultiMerge()),
            ("passive_aggressive", bj.MergeBestPair()),
        ):
            kind, where = type(kernel).__name__, type(strategy).__name__
            yield Bad(
                f"{name}-{where}-{kind}",
                lambda name=name, kernel=kernel, strategy=strategy: init(
                    name, kernel=kernel, maintenance=strategy
                ),
                (f"{where}: kernel must be Gaussian (RBF)", f"got {kind}"),
            )
    for where, argument in (
        ("Merge", "same_sign"),
        ("MultiMerge", "same_sign"),
        ("Project", "best"),
    ):
        for value in ("yes", 1, None, np.ones(2)):
            yield Bad(
                f"{where}-{argument}-{value!r}",
                lambda where=where, argument=argument, value=value: getattr(bj, where)(
                    **{argument: value}
                ),
                (
                    f"{where}: {argument} must be True or False",
                    f"got {checks.written(value)}",
                ),
            )
    for value, expected in SIZES:
        yield Bad(
            f"RemoveFewestErrors-size-{value!r}",
            lambda value=value: bj.RemoveFewestErrors(size=value),
            ("RemoveFewestErrors: size must be", expected, "got"),
        )
    for value, expected in (
        (NAN, "a finite number, got nan"),
        ([1.0, 2.0], "a scalar, got shape (2,)"),
    ):
        yield Bad(
            f"RemoveLargestMargin-above-{value!r}",
            lambda value=value: init(
                "perceptron", maintenance=bj.RemoveLargestMargin(above=value)
            ),
            ("RemoveLargestMargin: above must be", expected),
        )
    yield Bad(
        "Measured-delayed",
        lambda: bj.Measured(bj.DelayedProject()),
        ("Measured: strategy must make room for one newcomer", "got DelayedProject"),
    )
    for value, expected in (
        *((value, "a number above 0 and below 1") for value in (0, 1, -1, NAN, "a")),
        (np.full(2, 0.5), "a Python number"),
    ):
        yield Bad(
            f"DelayedProject-share-{value!r}",
            lambda value=value: bj.DelayedProject(share=value),
            ("DelayedProject: share must be", expected, "got"),
        )
    for value, expected in [*SIZES, (1, "at least 2")]:
        yield Bad(
            f"MultiMerge-count-{value!r}",
            lambda value=value: bj.MultiMerge(count=value),
            ("MultiMerge: count must be", expected, "got"),
        )
    for where, expected, values in (
        ("quantile", "level must be a number above 0 and below 1", (0, 1, 1.5)),
        ("epsilon_insensitive", "epsilon must be a finite number of at least 0", ()),
    ):
        for value in (*values, -1, -1e-3, NAN, float("inf"), "a", None, True, [-1, 1]):
            yield Bad(
                f"{where}-{value!r}",
                lambda where=where, value=value: getattr(losses, where)(value),
                (f"losses.{where}: {expected}", f"got {value!r}"),
            )
    # A loss that is for one output, given to several.
    yield Bad(
        "sgd-squared-error-of-classes",
        lambda: init("sgd", num_classes=CLASSES, loss=optax.losses.squared_error),
        ("sgd.init: loss must be a function of scores of shape (4,)", "got"),
    )
    for name in ("fourier", "nystrom"):
        yield Bad(
            f"{name}-line-search",
            lambda name=name: init(name, optimizer=optax.lbfgs()),
            (f"{name}.init: optimizer must be one of gradients alone", "got"),
        )
    for name in ("nystrom", "arow"):
        yield Bad(
            f"{name}-landmarks-above-budget",
            lambda name=name: init(name, budget=3, capacity=5, landmarks=points(4)),
            (f"{name}.init: landmarks must have shape (m, 3)", "budget 3", "(4, 3)"),
        )
        yield Bad(
            f"{name}-landmarks-without-length",
            lambda name=name: init(
                name, kernel=bj.Linear(), landmarks=np.zeros((2, D))
            ),
            (f"{name}.init: landmarks must have a positive definite", "got", "Linear"),
        )
    for name in REQUIRED:
        yield Bad(
            f"{name}-averaged",
            lambda name=name: bj.averaged(init(name)),
            ("averaged: state must be of a learner made with average=True", "got"),
        )


@table(combinations())
def test_combinations_of_arguments(row):
    check(row.call, row.says)


# Examples: the state that sees them, a bad X or y, and the rest of the message.


def binary():
    return bj.forgetron, init("forgetron")


def multiclass():
    return bj.pegasos, init("pegasos", num_classes=CLASSES)


def regression():
    return bj.sgd, init("sgd", maintenance=bj.RemoveOldest())


TARGETS = {binary: labels, multiclass: classes, regression: targets}


def with_value(value, row, column):
    X = points()
    X[row, column] = value
    return X


def with_label(y, value, row):
    y = y.copy()
    y[row] = value
    return y


class BadStream(NamedTuple):
    """A stream that `run` refuses."""

    name: str
    make: Callable[[], tuple]
    X: Any
    y: Any
    says: tuple[str, ...]
    weight: Any = None


FEATURES = f"(n, {D})"
X_ROWS = [
    ("one-example", points()[0], ("shape", FEATURES, f"got ({D},)")),
    ("one-column", points()[:, 0], ("shape", FEATURES, f"got ({N},)")),
    ("a-number", 1.0, ("shape", FEATURES, "got ()")),
    ("rank-3", points()[None], ("shape", FEATURES, f"got (1, {N}, {D})")),
    ("one-feature", points()[:, :1], ("shape", FEATURES, f"got ({N}, 1)")),
    ("more-features", points(d=D + 1), ("shape", FEATURES, f"got ({N}, {D + 1})")),
    ("transposed", points().T, ("shape", FEATURES, f"got ({D}, {N})")),
    ("empty-list", [], ("shape", FEATURES, "got (0,)")),
    ("strings", points().astype(str), ("real numbers", "got", "<U")),
    ("objects", points().astype(object), ("real numbers", "got", "object")),
    ("complex", points() + 1j, ("real numbers", "got", "complex")),
    ("none", None, ("real numbers", "got", "object")),
    ("ragged", [[1.0] * D, [1.0]], ("array", "list")),
]
VALUES = [
    ("nan", with_value(NAN, 4, 2), ("finite", "got nan in row 4, column 2")),
    ("inf", with_value(np.inf, 0, 0), ("finite", "got inf in row 0, column 0")),
    ("minus-inf", with_value(-np.inf, 11, 1), ("got -inf in row 11, column 1",)),
]
SHAPE = f"({N},)"
Y_ROWS = [
    ("short", lambda y: y[:-1], ("shape", SHAPE, f"got ({N - 1},)")),
    ("one", lambda y: y[:1], ("shape", SHAPE, "got (1,)")),
    ("a-number", lambda y: 1, ("shape", SHAPE, "got ()")),
    ("column", lambda y: y[:, None], ("shape", SHAPE, f"got ({N}, 1)")),
    ("row", lambda y: y[None], ("shape", SHAPE, f"got (1, {N})")),
    ("one-hot", lambda y: np.eye(N), ("shape", SHAPE, f"got ({N}, {N})")),
    ("strings", lambda y: y.astype(str), ("real numbers", "<U")),
    ("objects", lambda y: y.astype(object), ("real numbers", "object")),
    ("none", lambda y: None, ("real numbers", "object")),
    ("complex", lambda y: y + 0j, ("real numbers", "complex")),
]
BINARY_LABELS = [
    ("zero-one", (labels() + 1) // 2, ("-1 or +1", "got 0")),
    ("one-two", (labels() + 3) // 2, ("-1 or +1", "got 2")),
    ("one-wrong", with_label(labels(), 3, 7), ("-1 or +1", "got 3 in row 7")),
    ("half", labels() * 0.5, ("-1 or +1", "0.5")),
    ("nan", labels() * NAN, ("-1 or +1", "got nan in row 0")),
    ("booleans", labels() > 0, ("-1 or +1", "got bool")),
    ("classes", classes(), ("-1 or +1", "got 0 in row 0")),
]
CLASS_LABELS = [
    ("floats", classes().astype(np.float32), ("integer", "0 .. 3", "got float32")),
    ("doubles", classes().astype(np.float64), ("integer", "0 .. 3", "got float")),
    ("booleans", classes() > 0, ("integer", "0 .. 3", "got bool")),
    ("one-past", with_label(classes(), CLASSES, 5), ("0 .. 3", "got 4 in row 5")),
    ("negative", with_label(classes(), -1, 2), ("0 .. 3", "got -1 in row 2")),
    ("signs", labels(), ("0 .. 3", "got -1")),
    ("huge", classes().astype(np.int64) + 2**32, ("0 .. 3", f"got {2**32} in row 0")),
]
REAL_TARGETS = [
    ("nan", with_label(targets(), NAN, 3), ("finite", "got nan in row 3")),
    ("inf", with_label(targets(), np.inf, 0), ("finite", "got inf in row 0")),
    ("overflow", with_label(targets().astype(float), 1e60, 2), ("float32", "1e+60")),
    ("booleans", labels() > 0, ("got bool",)),
]
ONES = np.ones(N, np.float32)
WEIGHTS = [
    ("short", ONES[:-1], ("shape", SHAPE, f"got ({N - 1},)")),
    ("a-number", 1.0, ("shape", SHAPE, "got ()")),
    ("column", ONES[:, None], ("shape", SHAPE, f"got ({N}, 1)")),
    ("row", ONES[None], ("shape", SHAPE, f"got (1, {N})")),
    ("negative", with_label(ONES, -1, 5), ("at least 0", "got -1.0 in row 5")),
    ("nan", with_label(ONES, NAN, 0), ("finite", "got nan in row 0")),
    ("inf", with_label(ONES, np.inf, 11), ("finite", "got inf in row 11")),
    ("overflow", with_label(ONES.astype(float), 1e60, 2), ("finite", "1e+60")),
    ("strings", ONES.astype(str), ("real numbers", "<U")),
    ("objects", ONES.astype(object), ("real numbers", "object")),
    ("complex", ONES + 0j, ("real numbers", "complex")),
    ("ragged", [[1.0] * D, [1.0]], ("array", "list")),
]


def streams():
    for make, y in ((binary, labels()), (multiclass, classes())):
        for name, X, says in X_ROWS + VALUES:
            name = f"{make.__name__}-X-{name}"
            yield BadStream(name, make, X, y, ("run: X must", *says))
        for name, spoil, says in Y_ROWS:
            name = f"{make.__name__}-y-{name}"
            yield BadStream(name, make, points(), spoil(y), ("run: y must", *says))
        for name, weight, says in WEIGHTS:
            name = f"{make.__name__}-weight-{name}"
            says = ("run: weight must", *says)
            yield BadStream(name, make, points(), y, says, weight)
    for make, rows in (
        (binary, BINARY_LABELS),
        (multiclass, CLASS_LABELS),
        (regression, REAL_TARGETS),
    ):
        for name, y, says in rows:
            name = f"{make.__name__}-labels-{name}"
            yield BadStream(name, make, points(), y, ("run: y must", *says))


@table(streams())
def test_streams(row):
    algorithm, state = row.make()
    y = TARGETS[row.make]()
    used, scores = bj.run(algorithm, state, points(), y)
    kept = jax.tree.map(np.array, used)
    check(lambda: bj.run(algorithm, used, row.X, row.y, weight=row.weight), row.says)
    # The caller's states are as they were, and can go on.
    assert equal(used, kept)
    assert equal(bj.run(algorithm, state, points(), y), (used, scores))


def equal(one, other):
    return jax.tree.structure(one) == jax.tree.structure(other) and all(
        np.array_equal(a, b)
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    )


def learners():
    """What each learner takes as labels; none of these runs gets to compile."""
    for name in (
        "alma",
        "perceptron",
        "pegasos",
        "forgetron",
        "passive_aggressive",
        "projectron",
        "arow",
    ):
        for kind in ("zero-one", "half", "nan", "booleans"):
            y, says = next(row[1:] for row in BINARY_LABELS if row[0] == kind)
            yield name, {}, kind, y, says
    for name in ("norma", "fourier", "nystrom"):
        for loss in (losses.hinge, losses.logistic):
            y, says = next(row[1:] for row in BINARY_LABELS if row[0] == "zero-one")
            yield name, {"loss": loss}, f"zero-one-{loss.__name__}", y, says
        for kind, y, says in REAL_TARGETS:
            yield name, {"num_classes": None}, kind, y, says
    for name in ("sgd", "norma", "fourier", "nystrom"):
        arguments = {"num_classes": CLASSES, "loss": losses.hinge}
        for kind in ("floats", "one-past", "negative"):
            y, says = next(row[1:] for row in CLASS_LABELS if row[0] == kind)
            yield name, arguments, f"classes-{kind}", y, says


@table(
    Bad(
        f"{name}-{kind}",
        lambda name=name, arguments=arguments, y=y: bj.run(
            getattr(bj, name), init(name, **arguments), points(), y
        ),
        ("run: y must", *says),
    )
    for name, arguments, kind, y, says in learners()
)
def test_labels_of_every_learner(row):
    check(row.call, row.says)


@table(
    Bad(
        f"{function.__name__}-{make.__name__}-{name}",
        lambda function=function, make=make, X=X: function(make()[1], X),
        (f"{function.__name__}: X must", *says),
    )
    for function in (bj.decision_function, bj.predict)
    for make in (binary, multiclass)
    for name, X, says in X_ROWS
)
def test_predictions(row):
    check(row.call, row.says)


def step_rows():
    x = points()[0]
    for make, y in ((binary, 1), (multiclass, 2)):
        for name, bad, says in (
            ("row", x[None], ("shape", f"({D},)", f"got (1, {D})")),
            ("one-feature", x[:1], ("shape", f"({D},)", "got (1,)")),
            ("a-number", 1.0, ("shape", f"({D},)", "got ()")),
            ("strings", x.astype(str), ("real numbers", "<U")),
            ("none", None, ("real numbers", "object")),
        ):
            yield Bad(
                f"{make.__name__}-x-{name}",
                lambda make=make, bad=bad, y=y: make()[0].step(make()[1], bad, y),
                ("step: x must", *says),
            )
        for name, bad, says in (
            ("array", np.array([y]), ("scalar", "got shape (1,)")),
            ("list", [y], ("scalar", "got shape (1,)")),
            ("string", str(y), ("real numbers", "<U")),
            ("none", None, ("real numbers", "object")),
            ("boolean", True, ("got bool",)),
        ):
            yield Bad(
                f"{make.__name__}-y-{name}",
                lambda make=make, bad=bad: make()[0].step(make()[1], x, bad),
                ("step: y must", *says),
            )
        for name, bad, says in (
            ("array", np.array([1.0]), ("scalar", "got shape (1,)")),
            ("list", [1.0], ("scalar", "got shape (1,)")),
            ("string", "1", ("real numbers", "<U")),
            ("complex", 1j, ("real numbers", "complex")),
        ):
            yield Bad(
                f"{make.__name__}-weight-{name}",
                lambda make=make, bad=bad, y=y: make()[0].step(make()[1], x, y, bad),
                ("step: weight must", *says),
            )
    for y in (2.0, np.float32(2), jnp.float32(2)):
        yield Bad(
            f"float-label-{y!r}",
            lambda y=y: bj.pegasos.step(multiclass()[1], x, y),
            ("step: y must", "integer", "0 .. 3", f"got {np.asarray(y).dtype}"),
        )


@table(step_rows())
def test_examples(row):
    check(row.call, row.says)


def stacks():
    def states():
        return jax.vmap(lambda gamma: init("forgetron", kernel=bj.RBF(gamma)))(
            jnp.array([0.1, 1.0])
        )

    for where, call in (
        ("run", lambda: bj.run(bj.forgetron, states(), points(), labels())),
        ("step", lambda: bj.forgetron.step(states(), points()[0], 1)),
        ("decision_function", lambda: bj.decision_function(states(), points())),
        ("predict", lambda: bj.predict(states(), points())),
    ):
        says = (f"{where}: model must", "got a stack", "(2,)", "vmap")
        yield Bad(where, call, says)


@table(stacks())
def test_a_stack_of_models_needs_vmap(row):
    check(row.call, row.says)


# An unbudgeted Perceptron whose budget was reached.


def apart():
    """Points so far apart that every round is a mistake."""
    return (100 * np.arange(N * D, dtype=np.float32)).reshape(N, D), labels()


@pytest.mark.parametrize("budget", [1, 3, N - 1])
def test_an_overflow_is_an_error_after_the_run(budget):
    state = init("perceptron", budget=budget, maintenance=bj.Unbudgeted())
    kept = jax.tree.map(np.array, state)
    with pytest.raises(
        OverflowError,
        match=rf"^run: a budget of {budget} .* {N - budget} examples .* maintenance=",
    ):
        bj.run(bj.perceptron, state, *apart())
    assert equal(state, kept)
    X, y = apart()
    full, _ = bj.run(bj.perceptron, state, X[:budget], y[:budget])
    assert int(full.num_updates) == budget
    assert bool(full.expansion.full)


def test_step_counts_what_a_full_model_refuses():
    state = init("perceptron", budget=2, maintenance=bj.Unbudgeted())
    for x, y in zip(*apart(), strict=True):
        state = bj.perceptron.step(state, x, y)
    assert int(state.maintenance.num_refused) == N - 2
    np.testing.assert_array_equal(bj.support(state).vectors, apart()[0][:2])


@pytest.mark.parametrize("strategy", [bj.RemoveOldest(), bj.Merge()], ids=repr)
def test_strategies_never_overflow(strategy):
    state = init("perceptron", budget=1, maintenance=strategy)
    assert int(bj.run(bj.perceptron, state, *apart())[0].num_updates) == N


def test_an_overflow_of_kernel_values_is_an_error():
    state = init("forgetron", kernel=bj.Polynomial(10))
    kept = jax.tree.map(np.array, state)
    X = points() * np.where(np.arange(N) < 6, 1, 1e6).astype(np.float32)[:, None]
    check(
        lambda: bj.run(bj.forgetron, state, X, labels()),
        ("run: every score must be finite", "got", "in row 6", "overflow float32"),
    )
    assert equal(state, kept)


# Inside jit and vmap values are unknown and shapes are not.


def test_traced_values_are_not_checked():
    algorithm, state = binary()
    X, y = with_value(NAN, 4, 2), (labels() + 1) // 2

    def run(X, y):
        return bj.run(algorithm, state, X, y)[1]

    assert jax.jit(run)(X, y).shape == (N,)
    assert jax.vmap(run)(jnp.stack([X, X]), jnp.stack([y, y])).shape == (2, N)
    state = init("perceptron", budget=1, maintenance=bj.Unbudgeted())

    def overflow(X, y):
        return bj.run(bj.perceptron, state, X, y)[0]

    new = jax.jit(overflow)(points(), labels())
    assert int(new.maintenance.num_refused) > 0


def traced(transform):
    """Bad shapes and types inside a transformation, with its own axis in front."""

    def lead(array):
        return jnp.stack([array] * 2) if transform is jax.vmap else jnp.asarray(array)

    x, X = points()[0], points()
    for make, y in ((binary, labels()), (multiclass, classes())):
        algorithm, state = make()
        for where, function, arguments, says in (
            ("run", bj.run, (X, y[:, None]), ("y must have shape", f"({N}, 1)")),
            ("run", bj.run, (X, y[:-1]), ("y must have shape", f"({N - 1},)")),
            ("run", bj.run, (X[0], y), ("X must have shape", f"({D},)")),
            ("run", bj.run, (X[:, :1], y), ("X must have shape", f"({N}, 1)")),
            ("step", None, (x[None], y[0]), ("x must have shape", f"(1, {D})")),
            ("step", None, (x[:1], y[0]), ("x must have shape", "(1,)")),
            ("step", None, (x, y[:1]), ("y must be a scalar", "(1,)")),
        ):
            if function is None:

                def call(a, b, algorithm=algorithm, state=state):
                    return algorithm.step(state, a, b)
            else:

                def call(a, b, algorithm=algorithm, state=state, function=function):
                    return function(algorithm, state, a, b)

            yield Bad(
                f"{make.__name__}-{where}-{says}",
                lambda call=call, arguments=arguments: transform(call)(
                    *map(lead, arguments)
                ),
                (f"{where}: {says[0]}", "got", says[1]),
            )
        for function in (bj.decision_function, bj.predict):
            for bad in (X[0], X[:, :1], X[None]):
                yield Bad(
                    f"{make.__name__}-{function.__name__}-{bad.shape}",
                    lambda function=function, state=state, bad=bad: transform(
                        lambda X: function(state, X)
                    )(lead(bad)),
                    (f"{function.__name__}: X must have shape", f"got {bad.shape}"),
                )
    state = multiclass()[1]
    yield Bad(
        "weights",
        lambda: transform(
            lambda weight: bj.run(bj.pegasos, state, X, classes(), weight=weight)
        )(lead(ONES[:, None])),
        ("run: weight must have shape", f"got ({N}, 1)"),
    )
    yield Bad(
        "weight",
        lambda: transform(lambda weight: bj.pegasos.step(state, x, 2, weight))(
            lead(ONES)
        ),
        ("step: weight must be a scalar", f"got shape ({N},)"),
    )
    yield Bad(
        "float-labels",
        lambda: transform(lambda X, y: bj.run(bj.pegasos, state, X, y))(
            lead(X), lead(classes().astype(np.float32))
        ),
        ("run: y must", "integer", "0 .. 3", "got float32"),
    )


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap], ids=["jit", "vmap"])
def test_traced_shapes_are_checked(transform):
    for row in traced(transform):
        check(row.call, row.says)


# Input that is unusual, and fine.


@pytest.mark.parametrize("make", [binary, multiclass])
@pytest.mark.parametrize("started", [False, True], ids=["empty", "started"])
def test_an_empty_stream(make, started):
    algorithm, state = make()
    y = labels() if make is binary else classes()
    if started:
        state, _ = bj.run(algorithm, state, points(), y)
    new, scores = bj.run(algorithm, state, points()[:0], y[:0])
    assert equal(new, state)
    columns = () if make is binary else (CLASSES,)
    assert scores.shape == (0, *columns)
    assert scores.dtype == jnp.float32
    values = bj.decision_function(state, points()[:0])
    assert values.shape == (0, *columns)
    assert values.dtype == jnp.float32
    predictions = bj.predict(state, points()[:0])
    assert predictions.shape == (0,)
    assert predictions.dtype == jnp.int32


@pytest.mark.parametrize("make", [binary, multiclass])
def test_lists_bytes_and_other_dtypes_are_examples(make):
    algorithm, state = make()
    X = np.round(20 * np.abs(points()))
    y = labels() if make is binary else classes()
    expected = bj.run(algorithm, state, X.astype(np.float32), y)
    for other in (
        X.tolist(),
        X.astype(np.uint8),
        X.astype(np.int64),
        X,
        X.astype(np.float16),
        jnp.asarray(X, jnp.int32),
    ):
        assert equal(bj.run(algorithm, state, other, y), expected)
        assert equal(
            bj.decision_function(expected[0], other),
            bj.decision_function(expected[0], X),
        )
    kinds = [np.int64, np.int8] + ([np.float32, float] if make is binary else [])
    for other in (y.tolist(), *(y.astype(kind) for kind in kinds), jnp.asarray(y)):
        assert equal(bj.run(algorithm, state, X, other), expected)
    for x, label in (([1, 2, 3], 1), (np.array([1, 2, 3], np.uint8), np.int64(1))):
        assert equal(
            algorithm.step(state, x, label),
            algorithm.step(state, jnp.array([1.0, 2.0, 3.0]), jnp.int32(1)),
        )


def test_booleans_lists_and_integers_are_weights():
    algorithm, state = binary()
    weight = (np.arange(N) % 3 != 1).astype(np.float32)
    expected = bj.run(algorithm, state, points(), labels(), weight=weight)
    assert int(expected[0].num_seen) == int(weight.sum())
    for other in (weight > 0, weight.tolist(), weight.astype(np.int8)):
        new = bj.run(algorithm, state, points(), labels(), weight=other)
        assert equal(new, expected)


def test_a_model_of_averages_starts_with_a_round():
    state = init("sgd", average=True)
    for other in (1, np.int64(1), jnp.int32(1)):
        assert equal(init("sgd", average=other), state)
    assert equal(init("sgd", average=False), init("sgd"))
    assert bj.averaged(state).expansion.average is None


@pytest.mark.parametrize("of", [np.float64, np.asarray, jnp.asarray])
def test_messages_have_numbers_and_not_their_types(of):
    for number, shown in ((-1.0, "-1.0"), ([1.5, -2.5], r"\[ 1.5, -2.5\]")):
        if of is np.float64 and number != -1.0:
            continue
        with pytest.raises(ValueError, match=f"above 0, got {shown}$"):
            checks.positive("init", "gamma", of(number))
    with pytest.raises(ValueError, match=r"True or False, got 1.0$"):
        checks.flag("init", "average", of(1.0))


@pytest.mark.parametrize(
    "budget", [5, np.int64(5), np.uint8(5), np.array(5), jnp.array(5)], ids=repr
)
def test_integers_of_numpy_and_jax_are_budgets(budget):
    state = init("forgetron", budget=budget, num_features=np.int64(D))
    assert equal(state, init("forgetron"))
    assert equal(init("forgetron", budget=budget, capacity=np.int64(5)), state)


def test_what_is_not_finite_has_no_score():
    algorithm, state = binary()
    state, _ = bj.run(algorithm, state, points(), labels())
    check(
        lambda: bj.decision_function(state, with_value(NAN, 4, 2)),
        ("decision_function: X must be finite", "got nan in row 4, column 2"),
    )


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("pegasos", {"maintenance": bj.Project()}),
        ("pegasos", {"maintenance": bj.MergeBestPair()}),
        ("arow", {}),
        ("projectron", {}),
        ("nystrom", {}),
        ("pegasos", {"num_features": 10_000, "maintenance": bj.Merge()}),
    ],
)
def test_a_budget_beyond_all_memory_is_refused(monkeypatch, name, arguments):
    monkeypatch.setattr(checks, "memory", lambda: 2**27)
    expected = (
        rf"^{name}\.init: budget must be one whose arrays fit into memory, 0\.1 GiB, "
        r"got 9,000, with 0\.[3-9] GiB of arrays, the largest of shape \(9001, "
    )
    with pytest.raises(ValueError, match=expected):
        init(name, budget=9000, **arguments)
    init(name, budget=5)


def test_models_that_fit_alone_and_not_together_are_refused(monkeypatch):
    monkeypatch.setattr(checks, "memory", lambda: 2**27)
    grid = bj.grid(gamma=np.linspace(1, 2, 10_000))
    expected = (
        r"^Grid\.init: budget must be one whose arrays fit into memory, 0\.1 GiB, got "
        r"1,000 in each of 10,000 models, with 0\.\d GiB of arrays"
    )
    with pytest.raises(ValueError, match=expected):
        grid.init(lambda gamma: init("pegasos", kernel=bj.RBF(gamma), budget=1000))


def test_the_memory_of_this_machine():
    assert checks.memory() > 2**27
    with pytest.raises(ValueError, match=r"fit into memory, .* got 1,000,000,000"):
        init("pegasos", budget=10**9, num_features=10**6)


@pytest.mark.parametrize(("module", "extra"), checks.EXTRAS.items())
def test_what_is_not_installed_is_in_the_extra_that_is_named(module, extra):
    project = pathlib.Path(__file__).parents[1] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    package = "scikit-learn" if module == "sklearn" else module
    assert [one for one in extras[extra] if one.startswith(f"{package}>=")]
    assert str(checks.not_installed("solve", f"{module}.part")) == (
        f"solve needs {package}: pip install {package}, or budgetjax with the extra "
        f"[{extra}]"
    )


def test_the_package_shows_what_is_public():
    found = set(dir(bj))
    assert found >= {*bj.__all__, "__version__", "datasets", "estimators", "plots"}
    assert not found & {"Any", "TYPE_CHECKING", "importlib", "checks"}


def test_one_function_says_what_to_install():
    package = pathlib.Path(bj.__file__).parent
    says = [path for path in package.rglob("*.py") if "pip install" in path.read_text()]
    assert says == [package / "checks.py"]


@pytest.mark.parametrize(
    ("where", "call"),
    [
        ("refit", lambda state, X, y: bj.refit(state, X, y)),
        ("one_class", lambda state, X, y: bj.one_class(state, X)),
        ("compress", lambda state, X, y: bj.compress(state, 3)),
        ("prune", lambda state, X, y: bj.prune(state, 3)),
        ("compact", lambda state, X, y: bj.compact(state)),
        ("calibrated", lambda state, X, y: bj.calibrated(state, X, y)),
        ("solve", lambda state, X, y: bj.solve(bj.smo, X, y, kernel=bj.RBF(1.0))),
        ("default_gamma", lambda state, X, y: bj.default_gamma(X)),
        ("fit_stream", lambda state, X, y: bj.fit_stream(bj.pegasos, state, [(X, y)])),
    ],
)
def test_what_runs_on_the_host_says_so(where, call):
    _, state = binary()
    with pytest.raises(ValueError, match=f"^{where}: arguments must have values, as"):
        jax.eval_shape(call, state, points(), labels())


@pytest.mark.parametrize(
    ("update", "got"),
    [
        (lambda *given: bj.perceptron.update(*given)[::-1], r"\(Edits, State"),
        (lambda *given: bj.perceptron.update(*given)[0], "State"),
        (lambda *given: bj.perceptron.update(*given)[1], "Edits"),
        (lambda *given: (*bj.perceptron.update(*given), 0), r"\(State, Edits, int"),
    ],
    ids=["swapped", "state", "edits", "more"],
)
def test_an_update_of_ones_own_that_returns_something_else(update, got):
    own = dataclasses.replace(bj.perceptron, update=update)
    state = init("perceptron")
    expected = rf"^perceptron: update must return \(State, Edits\), got {got}\b"
    for call in (
        lambda: bj.run(own, state, points(), labels()),
        lambda: own.step(state, points()[0], 1),
    ):
        with pytest.raises(ValueError, match=expected):
            call()


def test_a_strategy_that_forgets_itself():
    class Forgetful(bj.Maintenance):
        def admit(self, kernel, expansion, newcomer):
            return self.exchange(expansion, newcomer, jnp.int32(0))

    state = init("perceptron", maintenance=Forgetful())
    expected = r"^Forgetful: admit must return \(Maintenance, Edits\), got Edits\b"
    with pytest.raises(ValueError, match=expected):
        bj.run(bj.perceptron, state, points(), labels())
