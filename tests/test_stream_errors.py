"""Bad batches: their messages, and the model before them, which can continue."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
import pytest
import registry
import scipy.sparse
from streams import ROWS, cut, fit, identical, without_classes

import budgetjax as bj
from budgetjax.stream import Batches

pytestmark = pytest.mark.usefixtures("as_installed")

NAN, INF = float("nan"), float("inf")
# The bad row, in the second batch that is learned.
BAD = ROWS + 17

# Removal compiles fast, and all tests of a learner share what is compiled.
REMOVAL = {"maintenance": bj.RemoveOldest()}
LEARNERS = {
    "binary": registry.Row("binary", bj.perceptron, REMOVAL),
    "multiclass": registry.Row("multiclass", bj.perceptron, REMOVAL, 4),
    "regression": registry.Row(
        "regression",
        bj.sgd,
        REMOVAL | {"loss": optax.losses.squared_error, "learning_rate": 0.3},
        0,
    ),
    "unbudgeted": registry.Row(
        "unbudgeted", bj.perceptron, {"maintenance": bj.Unbudgeted()}, budget=ROWS
    ),
    "polynomial": registry.Row(
        "polynomial", bj.perceptron, REMOVAL, kernel=bj.Polynomial(degree=5)
    ),
    "projecting": registry.Row(
        "projecting", bj.projectron, {}, kernel=bj.Polynomial(degree=5)
    ),
}


class Bad(NamedTuple):
    """A stream that must fail in its second batch.

    Attributes:
      name: name of the test.
      second: function of good rows and labels, which gives the second batch.
      says: parts of the message, in this order.
      learner: key of `LEARNERS`.
      more: arguments of `fit_stream`.
      first: function of good rows and labels, which gives the first batch.
      source: name of the source in the message.
    """

    name: str
    second: Callable[..., Any]
    says: tuple[str, ...]
    learner: str = "binary"
    more: dict[str, Any] | None = None
    first: Callable[..., Any] = lambda X, y: (X, y)
    source: str = "batches"


def value(number, column=1, dtype=np.float32, row=17):
    def second(X, y):
        X = X.astype(dtype)
        X[row, column] = number
        return X, y

    return second


def label(name, dtype=None):
    def second(X, y):
        y = y.astype(dtype or y.dtype)
        y[17] = name
        return X, y

    return second


def weight(number):
    def second(X, y):
        weights = np.ones(len(y))
        weights[17] = number
        return X, y, weights

    return second


def weighted(X, y):
    return X, y, np.ones(len(y))


def named(X, y):
    return X, np.where(y > 0, "yes", "no")


def sparse(X, y):
    X[17, 1] = NAN
    return scipy.sparse.csr_array(X), y


def failing(error):
    def second(X, y):
        raise error

    return second


BATCHES = [
    Bad("nan", value(NAN, 2), ("X must be finite", "nan", f"row {BAD}", "column 2")),
    Bad("infinite", value(INF), ("X must be finite", "inf", f"row {BAD}", "column 1")),
    Bad("minus infinite", value(-INF, row=0), ("finite", "-inf", f"row {ROWS}, ")),
    Bad("nan and names", value(NAN, 2), ("nan", f"row {BAD}", "'age'"), source="a.csv"),
    Bad("nan in a sparse row", sparse, ("finite", "nan", f"row {BAD}", "column 1")),
    Bad(
        "nan where standardised",
        value(NAN),
        ("X must be finite", "nan", f"row {BAD}", "column 1"),
        more={"standardise": True},
    ),
    *(
        Bad(
            f"squares beyond float32 in row {row}",
            value(1e38, row=row),
            (
                "the model must stay finite: kernel values overflow float32; scale X",
                "1e+38",
                f"row {ROWS + row}",
                "column 1",
            ),
            learner=learner,
        )
        for row, learner in ((0, "binary"), (17, "multiclass"), (63, "regression"))
    ),
    *(
        Bad(
            f"kernel values beyond float32 in row {row}",
            value(-1e10, row=row),
            (
                "the model must stay finite: kernel values overflow float32; scale X",
                "-1e+10",
                f"row {ROWS + row}",
                "column 1",
            ),
            learner="polynomial",
        )
        for row in (0, 17, 63)
    ),
    # Its kernel values with the others are finite, and the model breaks later.
    Bad(
        "a support vector with an infinite norm",
        value(1e5),
        ("kernel values overflow float32; scale X down", "1", f"row {BAD}, column 1"),
        learner="projecting",
    ),
    Bad(
        "beyond float32",
        value(1e300, dtype=np.float64),
        ("X must be in the range of float32", "1e+300", f"row {BAD}", "column 1"),
    ),
    Bad(
        "squares beyond float64",
        value(1e300, dtype=np.float64),
        ("X must have squares that float64 can hold", "1e+300", f"row {BAD}"),
        more={"standardise": True},
    ),
    Bad(
        "wider", lambda X, y: (X[:, [0, 0, 1, 2]], y), (f"row {ROWS}", "3 columns", "4")
    ),
    Bad("narrower", lambda X, y: (X[:, :2], y), (f"row {ROWS}", "3 columns", "2")),
    Bad("flat", lambda X, y: (X[:, 0], y), (f"row {ROWS}", "X must have shape")),
    Bad("ragged", lambda X, y: ([[0.0] * 3, [0.0]], y[:2]), (f"row {ROWS}", "ragged")),
    Bad(
        "texts",
        lambda X, y: (X.astype(str), y),
        (f"row {ROWS}", "X must hold real numbers", "<U"),
    ),
    Bad(
        "complex numbers",
        lambda X, y: (X.astype(complex), y),
        (f"row {ROWS}", "X must hold real numbers", "complex"),
    ),
    Bad(
        "no labels",
        lambda X, y: (X,),
        ("(X, y, weight)", "tuple of 1", "give the reader a target"),
    ),
    Bad("four parts", lambda X, y: (X, y, y, y), ("(X, y, weight)", "tuple of 4")),
    Bad("an array", lambda X, y: X, ("(X, y, weight)", "ndarray")),
    Bad("None", lambda X, y: None, ("(X, y, weight)", "NoneType")),
    Bad("fewer labels", lambda X, y: (X, y[:-1]), (f"row {ROWS}", "63", "(64, 3)")),
    Bad("labels in a matrix", lambda X, y: (X, y[:, None]), ("(n,)", f"row {ROWS}")),
    Bad("labels of None", lambda X, y: (X, None), ("(n,)", f"row {ROWS}")),
    Bad("0 for a label", label(0), ("-1 or +1", "got 0", f"row {BAD}")),
    Bad("1.5", label(1.5, float), ("-1 or +1", "got 1.5", f"row {BAD}")),
    Bad("nan for a label", label(NAN, float), ("-1 or +1", "nan", f"row {BAD}")),
    Bad(
        "1.5 for a class",
        label(1.5, float),
        ("y must be in 0 .. 3", "got 1.5", f"row {BAD}"),
        learner="multiclass",
    ),
    *(
        Bad(
            f"{number} for a class",
            label(number, np.int64),
            ("y must be in 0 .. 3", f"got {number}", f"row {BAD}"),
            learner="multiclass",
        )
        for number in (4, -1, 2**40)
    ),
    Bad(
        "a label never seen",
        lambda X, y: label("maybe", object)(*named(X, y)),
        ("y must be one of 'no', 'yes'", "got 'maybe'", f"row {BAD}"),
        more={"classes": ["no", "yes"]},
        first=named,
    ),
    Bad(
        "a number never seen",
        label(8, np.int64),
        ("y must be one of -1, 1", "got 8", f"row {BAD}"),
        more={"classes": [-1, 1]},
    ),
    Bad("texts for labels", named, ("y must be numbers", "strings", f"row {ROWS}")),
    Bad(
        "labels of all kinds",
        label("no", object),
        ("y must be all numbers or all strings", "'no'", f"row {BAD}"),
    ),
    Bad(
        "nan for a target",
        label(NAN),
        ("y must be finite in float32", "nan", f"row {BAD}"),
        learner="regression",
    ),
    Bad(
        "a target beyond float32",
        label(1e39, float),
        ("y must be finite in float32", "1e+39", f"row {BAD}"),
        learner="regression",
    ),
    *(
        Bad(
            f"{number} for a weight",
            weight(number),
            ("weight must", str(number), f"row {BAD}"),
            first=weighted,
        )
        for number in (-1.0, NAN, INF)
    ),
    Bad(
        "a source that fails",
        failing(OSError(5, "Input/output error")),
        ("batches must be readable", "OSError", "Input/output", f"after row {ROWS}"),
    ),
    Bad(
        "another failure",
        failing(KeyError("age")),
        ("batches must be readable", "KeyError: 'age'", f"after row {ROWS}"),
    ),
    Bad(
        "a reader that fails",
        failing(ValueError("a.csv: 'age' must be there, got nothing in row 70")),
        ("a.csv: 'age' must be there, got nothing in row 70",),
        source="a.csv",
    ),
    Bad(
        "more support vectors than have room",
        lambda X, y: (X, y),
        ("a budget of 64 support vectors was full",),
        learner="unbudgeted",
        more={"state": "strict"},
    ),
]


def table(rows):
    return pytest.mark.parametrize(
        "row", [pytest.param(row, id=f"{row.name}@{row.learner}") for row in rows]
    )


@functools.cache
def initial(name, strict):
    row = LEARNERS[name]
    return row.init(margin=1e3) if strict else row.init()


@table(BATCHES)
def test_the_model_before_a_bad_batch_is_kept(row):
    learner, more = LEARNERS[row.learner], dict(row.more or {})
    state = initial(row.learner, more.pop("state", None) is not None)
    X, y = learner.stream(3 * ROWS)
    # Half a good batch is read with the bad one, and lost with it.
    good = row.first(X, y)
    half = ROWS // 2

    def read() -> Iterator[Any]:
        yield tuple(part[:ROWS] for part in good)
        try:
            bad = row.second(X[ROWS : 2 * ROWS].copy(), y[ROWS : 2 * ROWS].copy())
        except Exception:
            # Here, so that its traceback begins in the source.
            raise
        yield bad

    batches = read()
    if row.source != "batches":
        batches = Batches(row.source, 3, read, feature_names=("a", "b", "age"))
    with pytest.raises(ValueError, match=r"fit_stream: .+ (must|was) .+") as raised:
        fit(learner, batches, state, **more)
    error = raised.value
    assert type(error) is bj.StreamError
    message, at = str(error), 0
    assert message.startswith(f"fit_stream: {row.source}: ")
    for words in row.says:
        assert words in message[at:], f"{words!r} is not in {message[at:]!r}"
        at += message[at:].index(words) + len(words)
    before = fit(learner, cut([part[:ROWS] for part in good], [half]), state, **more)
    names = getattr(batches, "feature_names", None)
    before = before._replace(model=before.model._replace(feature_names=names))
    assert error.model.num_rows == ROWS
    assert same_classes(error.model, before)
    identical(without_classes(error.model), without_classes(before))
    # It can predict, and go on with what is good.
    assert np.all(np.isfinite(error.model.decision_function(X)))
    if row.learner != "unbudgeted":
        rest = [part[2 * ROWS :] for part in good]
        after = fit(learner, [tuple(rest)], error.model)
        assert after.num_rows == 2 * ROWS
        assert np.isfinite(after.error)


def same_classes(one, other):
    if one.classes is None or other.classes is None:
        return one.classes is other.classes
    return one.classes.tolist() == other.classes.tolist()


@pytest.mark.parametrize(
    "batches", [[], [(np.zeros((0, 3)), np.zeros(0))]], ids=["none", "empty"]
)
def test_a_stream_without_rows(batches):
    state = initial("binary", False)
    with pytest.raises(
        bj.StreamError, match=r"fit_stream: batches: .* rows, got none"
    ) as raised:
        fit(LEARNERS["binary"], batches, state)
    identical(raised.value.model.state, state)
    assert raised.value.model.num_rows == 0
    assert np.isnan(raised.value.model.error)


X, Y = LEARNERS["binary"].stream(8)
FOUR = ("classes must be distinct", "got")
ARGUMENTS = [
    *(
        (
            "batches",
            given,
            ("batches must be an iterable of (X, y)", f"got {kind}", "[(X, y)]"),
        )
        for given, kind in (
            (X, "ndarray"),
            ((X, Y), "tuple"),
            ("train.csv", "str"),
            ({"X": X}, "dict"),
            (scipy.sparse.csr_array(X), "csr_array"),
            (None, "NoneType"),
            (3, "int"),
        )
    ),
    (
        "batches",
        Batches("a.csv", 4, lambda: iter(())),
        ("a.csv: X must have 3 columns", "got 4"),
    ),
    *(
        (name, given, (f"{name} must be", "integer", f"got {given!r}"))
        for name in ("every", "batch_rows")
        for given in (2.5, "10", True)
    ),
    *(
        (name, 0, (f"{name} must be at least 1", "0"))
        for name in ("every", "batch_rows")
    ),
    ("every", None, ("every must be an integer", "None")),
    *(
        (name, given, (f"{name} must be True or False", f"got {given!r}"))
        for name in ("resume", "progress", "standardise", "fill_missing")
        for given in (1, "yes", None)
    ),
    ("fill_missing", True, ("fill_missing must come with standardise=True", "got it")),
    *(
        ("checkpoint", given, ("checkpoint must be a path", f"{given!r}"))
        for given in (5, True)
    ),
    *(
        (
            "classes",
            given,
            ("classes must be distinct numbers, or distinct strings", "got"),
        )
        for given in (
            [1, 1],
            ["a", "a"],
            [0, NAN],
            [1, "a"],
            [[0, 1]],
            3,
            "ab",
            [1j, 2j],
            [[1], 2],
        )
    ),
    *(
        ("classes", given, ("classes must be 2", f"got {len(given)}"))
        for given in ([1], [1, 2, 3], [])
    ),
    *(
        ("state", given, ("state must be of ", f"got {kind}"))
        for given, kind in ((3, "int"), (bj.RBF(1.0), "RBF"), (X, "ndarray"))
    ),
    (
        "state",
        jax.tree.map(lambda leaf: leaf[None], initial("binary", False)),
        ("a single one",),
    ),
]


@pytest.mark.parametrize(
    ("name", "given", "says"),
    ARGUMENTS,
    ids=[f"{name}-{i}" for i, (name, *_) in enumerate(ARGUMENTS)],
)
def test_bad_arguments(name, given, says):
    row = LEARNERS["binary"]
    arguments = {"batches": [(X, Y)], name: given}
    with pytest.raises(ValueError, match=r"fit_stream: .+") as raised:
        fit(row, **arguments)
    assert type(raised.value) is ValueError
    message, at = str(raised.value), 0
    assert message.startswith("fit_stream: ")
    for words in says:
        assert words in message[at:], f"{words!r} is not in {message[at:]!r}"
        at += message[at:].index(words) + len(words)


def test_what_does_not_fit_a_model_that_goes_on():
    row = LEARNERS["binary"]
    model = fit(row, [(X, Y)], classes=[-1, 1])
    with pytest.raises(
        ValueError, match="fit_stream: standardise must be False for a model"
    ):
        fit(row, [(X, Y)], model, standardise=True)
    with pytest.raises(
        ValueError, match="classes must be those of the model, -1, 1, got 1, -1"
    ):
        fit(row, [(X, Y)], model, classes=[1, -1])
    assert fit(row, [(X, Y)], model, classes=[-1, 1]).num_rows == 16
    regression = LEARNERS["regression"]
    with pytest.raises(ValueError, match="classes must be None for a regressor"):
        fit(regression, [(X, Y)], classes=[-1, 1])


def test_texts_need_classes():
    with pytest.raises(
        bj.StreamError, match="y must be numbers, or classes= be given, got 'a'"
    ):
        fit(LEARNERS["binary"], [(X, ["a"] * 8)])
