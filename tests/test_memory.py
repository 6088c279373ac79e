"""Memory: it is counted before it is taken, and rows cost what they need."""

import functools
import pickle

import numpy as np
import pytest
import registry
import scipy.sparse
from compare import same
from marks import slow

import budgetjax as bj
from budgetjax import _checks, _rows
from budgetjax.estimators import (
    BudgetedKernelClassifier,
    BudgetedKernelRegressor,
    BudgetedOneClass,
    MPUClassifier,
    SMOClassifier,
    online,
)
from budgetjax.online import driver
from budgetjax.refitting import held_out, metric, training_data
from budgetjax.tables import table_model
from budgetjax.tables.columns import to_dense, unpack
from budgetjax.training import rows as training_rows

pytestmark = pytest.mark.usefixtures("plain_loops", "few_passes")

# What a machine of tests has, too little for what a test asks for.
LITTLE = 2**27
FIXED = {"gamma": 0.5, "penalty": 10.0, "encode": False, "random_state": 0}
FIXED |= {"learn_metric": False, "maintenance": "remove_oldest"}


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(_checks, "memory", lambda: LITTLE)


def rows(n=60, num_features=2, seed=0):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, num_features))
    return X, np.sin(2 * X[:, 0]) * X[:, 1]


# The limits of control groups, as Linux tells them.


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_of_a_container_is_that_of_memory(tmp_path, monkeypatch, version):
    names = {
        1: ("memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
        2: ("", "max", "current", "inactive_file"),
    }
    controllers, limit, used, caches = names[version]
    outer, inner = tmp_path / "job", tmp_path / "job" / "step"
    inner.mkdir(parents=True)
    for folder, most in ((tmp_path, None), (outer, 1000 * 2**20), (inner, None)):
        unlimited = "max" if version == 2 else str(2**63 - 4096)
        (folder / f"memory.{limit}").write_text(str(most or unlimited) + "\n")
        (folder / f"memory.{used}").write_text(f"{300 * 2**20}\n")
        text = f"anon 5\n{caches} {100 * 2**20}\nunevictable 0\n"
        (folder / "memory.stat").write_text(text)
    groups = tmp_path / "cgroup"
    groups.write_text(f"1:cpu,cpuacct:/else\n0:{controllers}:/job/step\n")
    monkeypatch.setattr(_checks, "PROCESS_GROUPS", groups)
    files = tmp_path, *_checks.MEMORY_FILES[controllers][1:]
    monkeypatch.setitem(_checks.MEMORY_FILES, controllers, files)
    monkeypatch.setattr(_checks, "_free_memory", lambda: 2.0**40)
    # What the system would free counts as free.
    assert _checks.host_memory() == 800 * 2**20
    groups.unlink()
    assert _checks.host_memory() == 2.0**40


# Learners.


# The radius of Ahpatron depends on the budget, and features of Fourier are no rows.
GROWING = [
    row
    for row in registry.firsts()
    if not isinstance(row.learner, (bj.Ahpatron, bj.Fourier))
]


@functools.partial(registry.each, rows=GROWING)
def test_a_state_with_more_slots_goes_on_as_if_it_had_had_them(row):
    X, y = row.stream(n=24)
    small, large = row.init(budget=12), row.init(budget=40)
    state, _ = bj.run(small, X[:12], y[:12], block_size=1)
    wide = online.with_room(state, large)
    _, scores = bj.run(wide, X[12:], y[12:], block_size=1)
    # In as many rows at once, which are one program.
    roomy, _ = bj.run(large, X[:12], y[:12], block_size=1)
    _, wanted = bj.run(roomy, X[12:], y[12:], block_size=1)
    # Products of more rows are summed in another order.
    np.testing.assert_allclose(scores, wanted, rtol=1e-4, atol=1e-5)
    assert int(wide.expansion.budget) == 40


def test_sizes_beyond_32_bits_are_refused():
    for sizes in ({"budget": 2**31}, {"budget": 2, "capacity": 2**31}):
        *_, name = sizes
        with pytest.raises(
            ValueError, match=f"{name} must fit 32 bits, got 2147483648"
        ):
            bj.Perceptron().init(bj.RBF(1.0), num_features=2, **sizes)


@pytest.mark.parametrize(
    ("sizes", "says"),
    [
        ({"budget": 10**7, "num_features": 3}, "budget must be .* got 10,000,000, "),
        (
            {"num_features": 10**9},
            "num_features must be .* got 1,000,000,000, .* hash ",
        ),
        ({"num_classes": 10**8}, "num_classes must be .* got 100,000,000, .* 2.* GiB"),
    ],
)
def test_the_size_that_is_too_large_is_named(little, sizes, says):
    sizes = {"budget": 5, "num_features": 2} | sizes
    with pytest.raises(ValueError, match=f"^Perceptron.init: {says}"):
        bj.Perceptron().init(bj.RBF(1.0), maintenance=bj.RemoveOldest(), **sizes)


def test_matrices_of_a_refit_are_counted_before_a_stream(little, monkeypatch):
    monkeypatch.setattr(driver, "run", None)
    X, f = rows(3000)
    y = np.arange(3000) % 300
    # A Hessian of 4 MB for each of 300 classes.
    with pytest.raises(ValueError, match=r"budget must be .* got 1,000, columns=300, "):
        BudgetedKernelClassifier(1000, **FIXED).fit(X, y)
    with pytest.raises(ValueError, match=r"budget must be .* got 3,000, columns=1, "):
        BudgetedKernelRegressor(10_000, **FIXED).fit(X, f)
    with pytest.raises(ValueError, match=r"budget must be .* got 3,000, columns=1, "):
        BudgetedOneClass(10_000).fit(X)


def test_matrices_of_a_refit_are_counted(little):
    X, y = rows()
    state = bj.Pegasos(regularization=1.0).init(
        bj.RBF(1.0), num_features=2, budget=3000
    )
    state, _ = bj.run(state, X, np.sign(y))
    for call in (bj.refit, bj.one_class):
        with pytest.raises(
            ValueError, match=f"^{call.__name__}: budget must be one whose"
        ):
            call(state, X, *([np.sign(y)] if call is bj.refit else []))


def test_kernel_rows_of_solvers_are_counted(little):
    X, y = rows(6000)
    for solver, cache in (
        (bj.SMO(bj.RBF(1.0)), bj.KernelCache(None)),
        (bj.SMO(bj.RBF(1.0)), bj.KernelCache(1000.0)),
        (bj.MPU(kernel=bj.RBF(1.0)), None),
    ):
        with pytest.raises(
            ValueError, match=r"fit into memory, 0.1 GiB, got .* of kernel"
        ):
            bj.solve(solver, X, np.sign(y), cache=cache)
    model = bj.KernelModel(bj.RBF(1.0), X, y, np.zeros(()))
    with pytest.raises(ValueError, match=r"^compress: budget must be .* got 4,000, "):
        bj.compress(model, 4000)


# Estimators.


@pytest.mark.parametrize(
    "kind", [BudgetedKernelClassifier, *slow(BudgetedKernelRegressor, BudgetedOneClass)]
)
def test_a_budget_above_the_rows_is_that_of_the_rows(kind):
    X, f = rows()
    y = f > 0 if kind is BudgetedKernelClassifier else f
    more = {"random_state": 0} if kind is BudgetedOneClass else FIXED
    one, other = (kind(budget, **more).fit(X, y) for budget in (60, 10**9))
    assert other.state_.expansion.vectors.shape == (61, 2)
    assert other.get_params()["budget"] == 10**9
    same(other.state_, one.state_)
    if kind is not BudgetedOneClass:
        more = {"maintenance": "remove_oldest", "refit": False, "encode": False}
        twice = kind(10**9, epochs=2, gamma=0.5, **more).fit(X, y)
        assert twice.state_.expansion.vectors.shape == (121, 2)


def test_slots_that_are_asked_for_and_random_features_stay():
    X, y = rows()
    given = {"gamma": 0.5, "encode": False, "refit": False}
    more = {"capacity": 200, "maintenance": "remove_oldest"}
    model = BudgetedKernelClassifier(100, **given | more).fit(X, y > 0)
    assert model.state_.expansion.vectors.shape == (201, 2)
    model = BudgetedKernelClassifier(100, learner=bj.Fourier(), **given)
    model.fit(X, y > 0)
    assert model.state_.expansion.vectors.shape == (101, 2)


@pytest.mark.parametrize(
    "learner", [bj.Pegasos(), *slow(bj.AROW(), bj.Projectron())], ids=repr
)
def test_a_stream_after_fit_gets_the_slots_of_the_budget(learner):
    X, y = rows(200)
    given = {"learner": learner, "gamma": 0.5, "encode": False, "refit": False}
    given |= {"shuffle": False}
    one, other = (
        BudgetedKernelClassifier(150, **given | more)
        for more in ({}, {"capacity": 150})
    )
    for model in (one, other):
        model.fit(X[:50], y[:50] > 0)
        model.partial_fit(X[50:], y[50:] > 0)
    assert one.state_.expansion.vectors.shape == (151, 2)
    wanted = other.decision_function(X)
    # Products of more rows are summed in another order.
    np.testing.assert_allclose(one.decision_function(X), wanted, rtol=1e-3, atol=1e-4)


def test_a_stream_grows_with_its_rows(monkeypatch):
    monkeypatch.setattr(training_rows, "FEWEST_SLOTS", 16)
    monkeypatch.setattr(online, "FEWEST_TO_START", 1)
    X, f = rows(100)
    given = {key: value for key, value in FIXED.items() if key != "penalty"}
    given |= {"refit": False}
    grows = BudgetedKernelRegressor(10**9, **given)
    whole = BudgetedKernelRegressor(100, capacity=100, **given)
    for start, stop, slots in ((0, 10, 16), (10, 40, 64), (40, 60, 64), (60, 100, 128)):
        for model in (grows, whole):
            model.partial_fit(X[start:stop], f[start:stop])
        assert len(grows.state_.expansion.ages) == slots + 1
    # Products of more rows are summed in another order.
    wanted = whole.predict(X)
    np.testing.assert_allclose(grows.predict(X), wanted, rtol=1e-3, atol=1e-3)


# Sparse rows of many columns, as of texts.


def texts(n=240, num_features=2**20, seed=0):
    """Rows of a few of 600 columns among many, half of them by the label."""
    random = np.random.default_rng(seed)
    y = random.integers(0, 2, n)
    columns = np.sort(random.choice(num_features, 600, replace=False))
    words = random.integers(0, 300, (n, 20)) + 300 * (
        (random.random((n, 20)) < 0.3) ^ y[:, None]
    )
    X = scipy.sparse.lil_array((n, num_features))
    for row, at in enumerate(words):
        X[row, columns[at]] = 0.25
    return X.tocsr(), y, columns


def most_numbers(monkeypatch):
    """The largest number of values in dense rows so far, in a list."""
    found = [0]

    def counting(X, dtype):
        found[0] = max(found[0], int(np.prod(X.shape)))
        return to_dense(X, dtype)

    for module in (table_model, training_rows, held_out):
        monkeypatch.setattr(module, "to_dense", counting)
    return found


TEXT = {"random_state": 0, "gamma": 0.5, "penalty": 10.0}


@pytest.mark.parametrize(
    "kind", [BudgetedKernelClassifier, *slow(BudgetedKernelRegressor, BudgetedOneClass)]
)
def test_columns_that_no_row_uses_cost_nothing(kind, monkeypatch):
    X, y, columns = texts(num_features=2**16)
    more = {"random_state": 0, "gamma": 0.5} if kind is BudgetedOneClass else TEXT
    found = most_numbers(monkeypatch)
    model = kind(20, **more).fit(X, y)
    assert found[0] <= 240 * 600
    small = kind(20, **more).fit(X[:, columns], y)
    np.testing.assert_allclose(
        model.support_vectors_[:, columns], small.support_vectors_, rtol=0, atol=0
    )
    assert model.support_vectors_.shape == (model.n_support_, 2**16)
    # A word that no row has used moves a row away from all vectors.
    rows = scipy.sparse.lil_array(X[:4])
    rows[:, np.setdiff1d(np.arange(700), columns)[0]] = 1.0
    part = np.asarray(small.model_.decision_function(X[:4][:, columns]))
    away = np.asarray(model.model_.decision_function(rows.tocsr()))
    shift = np.asarray(model.model_.intercept)
    np.testing.assert_allclose(
        away - shift, np.exp(-0.5) * (part - shift), rtol=1e-4, atol=1e-5
    )


@pytest.mark.slow
def test_a_stream_keeps_sparse_rows_sparse(monkeypatch):
    monkeypatch.setattr(online, "FEWEST_TO_START", 1)
    X, y, columns = texts(100)
    more = {"classes": [0, 1]}
    model = BudgetedKernelClassifier(20, **TEXT)
    small = BudgetedKernelClassifier(20, **TEXT)
    for part in (slice(0, 40), slice(40, 100)):
        model.partial_fit(X[part], y[part], **more)
        small.partial_fit(X[part][:, columns], y[part], **more)
    assert unpack(model._reservoir.rows().X).nnz == X.nnz
    found, wanted = (
        one.decision_function(rows)
        for one, rows in ((model, X), (small, X[:, columns]))
    )
    # Sums in another order.
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4)
    again = pickle.loads(pickle.dumps(model)).partial_fit(X, y)
    assert again.predict(X[:5]).shape == (5,)


def test_no_metric_is_tried_on_more_columns_than_rows(monkeypatch):
    def tried(*given):
        raise AssertionError("a metric")

    monkeypatch.setattr(metric, "try_metric", tried)
    X, y, columns = texts(210)
    X = X[:, columns[:250]].toarray()
    # Numbers of one scale, and of several, whose forms are 0 and 5 bins.
    for rows in (X, np.where(np.arange(250) < 125, 1, 1000) * X):
        BudgetedKernelClassifier(10, random_state=0, penalty=1.0).fit(rows, y)
    with pytest.raises(AssertionError, match="a metric"):
        BudgetedKernelClassifier(10, random_state=0, learn_metric=True).fit(X, y)
    with pytest.raises(AssertionError, match="a metric"):
        BudgetedKernelClassifier(10, random_state=0, penalty=1.0).fit(X[:, :200], y)


def test_a_metric_of_too_many_columns_is_refused(little):
    _, y, _ = texts(210)
    wide = scipy.sparse.csr_array(np.random.default_rng(0).random((210, 3000)))
    with pytest.raises(
        ValueError, match=r"num_features must be .* got 3,000, .* metric"
    ):
        BudgetedKernelClassifier(10, learn_metric=True, **TEXT).fit(wide, y)


@pytest.mark.parametrize("sparse", [False, True])
def test_blocks_of_wide_rows_have_fewer_rows(monkeypatch, sparse):
    monkeypatch.setattr(_rows, "MOST_AT_ONCE", 2**14)
    X, y, columns = texts(200)
    X = X[:, columns[:256]]
    X = X if sparse else X.toarray()
    model = BudgetedKernelClassifier(10, **TEXT, learn_metric=False)
    found = most_numbers(monkeypatch)
    model.fit(X, y)
    assert found[0] <= (64 * 256 if sparse else 200 * 256)
    state = model.state_
    blocks, *_ = training_data.read_examples(
        state, np.zeros((200, 256)), np.ones(200), None, of_labels=True
    )
    assert {block.X.shape for block in blocks()} == {(64, 256)}


def test_a_model_of_more_columns_than_memory_is_refused(little):
    X, y, _ = texts(100)
    says = r"num_features must be .* got 1,048,576, budget=40, with 0.3 GiB .* MPUClass"
    with pytest.raises(ValueError, match=says):
        BudgetedKernelClassifier(40, **TEXT).fit(X, y)
    with pytest.raises(ValueError, match=r"num_features must be .* got 1,048,576, "):
        BudgetedKernelClassifier(40, **TEXT).partial_fit(X, y, classes=[0, 1])
    with pytest.raises(
        ValueError, match=r"num_features must be .* 1,048,576, rows=100,"
    ):
        SMOClassifier().fit(X, y)
    assert MPUClassifier(random_state=0).fit(X, y).score(X, y) > 0.9
