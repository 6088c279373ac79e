"""A table: what every door does with every kind of column."""

import numpy as np
import pytest
from click.testing import CliRunner
from marks import first_quick, pairs

import budgetjax as bj
from budgetjax.cli.commands import budgetjax as command_line
from budgetjax.estimators import BudgetedKernelClassifier

pandas = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")
N = 160
RANDOM = np.random.default_rng(0)
SIZE, PLACE = RANDOM.normal(size=N), np.arange(N) % 3
CITY = np.array(["Bern", "Oslo", "Rome"])[PLACE]
# Of each kind: the column, what its labels follow, and whether they can be learned.
COLUMNS = {
    "numbers": (SIZE, SIZE > 0),
    "missing numbers": (np.where(PLACE == 2, np.nan, SIZE), PLACE == 2),
    "texts": (CITY, PLACE == 2),
    "missing texts": (np.where(PLACE == 2, None, CITY), PLACE == 2),
    "categories": (pandas.Categorical(CITY), PLACE == 1),
    "booleans": (PLACE == 2, PLACE == 2),
    "dates": (np.datetime64("2020-01-01", "ns") + PLACE, PLACE == 2),
    "structures": ([{"a": 1.0}] * N, PLACE == 2),
    "more categories than are kept": ([f"id{i}" for i in range(N)], PLACE == 2),
}


# Which columns there are, and what they say, does not depend on a metric.
PLAIN = {"learn_metric": False, "random_state": 0}


def by_fit(X, y, new, folder):
    return BudgetedKernelClassifier(10, **PLAIN).fit(X, y).predict(new)


def by_partial_fit(X, y, new, folder):
    model = BudgetedKernelClassifier(10, **PLAIN)
    return model.partial_fit(X, y, classes=[False, True]).predict(new)


def by_stream(X, y, new, folder):
    codes = bj.encoding.fit(X, 4)
    width = codes.num_codes
    state = bj.AROW().init(bj.RBF(0.5), num_features=width, budget=10)
    parts = [(X[i : i + 50], y[i : i + 50]) for i in range(0, N, 50)]
    return bj.fit_stream(state, parts, encode=codes, classes=[False, True]).predict(new)


def by_bare_stream(X, y, new, folder):
    state = bj.AROW().init(bj.RBF(0.5), num_features=2, budget=10)
    return bj.fit_stream(state, [(X, y)], classes=[False, True]).predict(new)


def by_river(X, y, new, folder):
    river = pytest.importorskip("budgetjax.river")
    codes = bj.encoding.fit(X, 4)
    learner = river.BudgetedClassifier(bj.AROW(), kernel=bj.RBF(0.5), budget=10)
    model = river.Encoder(codes, ["x", "size"]) | learner
    for row, label in zip(X.to_dict("records"), y.tolist(), strict=True):
        model.learn_one(row, label)
    return np.array([model.predict_one(row) for row in new.to_dict("records")])


def train(*options):
    """A model of a file, which predicts a frame and a file, both alike."""

    def door(X, y, new, folder):
        X.assign(y=y).to_parquet(folder / "train.parquet")
        new.to_parquet(folder / "new.parquet")
        model = str(folder / "model.st")
        command = ["train", str(folder / "train.parquet"), "--target", "y", *options]
        run(*command, "--model", model, "--quiet")
        labels = bj.load(model).predict(new)
        found = run("predict", model, str(folder / "new.parquet"), "--quiet")
        assert found.split() == [str(one) for one in labels]
        return labels

    return door


def run(*command):
    result = CliRunner().invoke(command_line, command)
    if result.exit_code:
        raise ValueError(result.output)
    return result.stdout


DOORS = {
    "fit": by_fit,
    "partial_fit": by_partial_fit,
    "fit_stream with an encoding": by_stream,
    "fit_stream": by_bare_stream,
    "rows of river": by_river,
    "train": train("--budget", "10", "--learn-metric", "no"),
    "train --no-refit": train("--budget", "10", "--no-refit"),
    "train --learner smo": train("--learner", "smo"),
    "train --encode no": train("--budget", "10", "--encode", "no", "--no-refit"),
}
FINITE = "must be finite, got nan in row 2, column 'x'"
TYPES = "columns of numbers, booleans, texts or categories, got "
TEXTS = "X must have numbers in column 'x', got 'Bern' in row 0"
ALONE = "X must have numbers alone where columns are not encoded, got texts in 'x'"
# What is said where it is no label, by kind and door; "" stands for all other doors.
SAYS = {
    "missing numbers": {
        "fit_stream": FINITE,
        "train --encode no": FINITE,
    },
    "texts": {"fit_stream": TEXTS, "train --encode no": ALONE},
    "missing texts": {"fit_stream": TEXTS, "train --encode no": ALONE},
    "categories": {"fit_stream": TEXTS, "train --encode no": ALONE},
    "dates": {"": TYPES},
    "structures": {"": TYPES},
    "more categories than are kept": {
        "fit_stream": "numbers in column 'x', got 'id0' in row 0",
        "train --encode no": ALONE,
    },
}


@pytest.mark.parametrize(("kind", "door"), pairs(COLUMNS, DOORS))
@pytest.mark.filterwarnings("ignore:column 'x' has 160 names:UserWarning")
def test_every_door_takes_every_kind_of_column(kind, door, tmp_path):
    column, y = COLUMNS[kind]
    X = pandas.DataFrame({"x": column, "size": SIZE})
    says = SAYS.get(kind, {})
    if wrong := says.get(door, says.get("")):
        with pytest.raises(ValueError, match=wrong):
            DOORS[door](X, y, X, tmp_path)
        return
    labels = DOORS[door](X, y, X, tmp_path)
    # Names that are met once say nothing.
    assert np.mean(labels == y) > (0.5 if kind.startswith("more") else 0.9)


@pytest.mark.parametrize(
    "door", first_quick([one for one in DOORS if "encode no" not in one])
)
def test_a_text_that_is_new_is_like_any_other_new_one(door, tmp_path):
    if door == "fit_stream":
        pytest.skip("it takes no texts")
    X = pandas.DataFrame({"x": CITY, "size": SIZE})
    new = X.assign(x=np.where(PLACE == 2, "Rome", np.where(PLACE, "Lima", "Kyiv")))
    labels = DOORS[door](X, PLACE == 2, new, tmp_path)
    assert labels.shape == (N,)
    assert np.all(labels[PLACE == 2])
