import sys
import urllib.error

import numpy as np
import pytest
import scipy
from marks import slow

from budgetjax import datasets


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("BUDGETJAX_DATA", str(tmp_path))
    return tmp_path


def test_checkerboard_is_balanced_and_standardised():
    X, y = datasets.checkerboard(20_000, seed=3)
    assert X.shape == (20_000, 2)
    assert X.dtype == np.float32
    assert y.dtype == np.int32
    assert set(y.tolist()) == {-1, 1}
    assert abs(np.mean(y)) < 0.03
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=0.03)
    np.testing.assert_allclose(X.std(axis=0), 1, atol=0.02)
    # Sixteen squares of as many points, each of the other label than its neighbours.
    board = np.clip((X * (4 / np.sqrt(12)) + 2).astype(int), 0, 3)
    for i, j in np.ndindex(4, 4):
        inside = y[np.all(board == [i, j], axis=1)]
        # Four deviations of a share of 1/16, and points that rounding moves.
        assert abs(len(inside) / len(y) - 1 / 16) < 0.007
        assert abs(np.mean(inside == (1 if (i + j) % 2 else -1)) - 1) < 0.01


def test_checkerboard_labels_follow_the_squares():
    points = np.array([[0.5, 0.5], [1.5, 0.5], [0.5, 3.5], [3.9, 3.1], [2.0, 1.0]])
    labels = datasets.checkerboard_labels(points)
    np.testing.assert_array_equal(labels, [-1, 1, 1, -1, 1])
    X, y = datasets.checkerboard(1000, seed=0)
    board = X.astype(np.float64) * (4 / np.sqrt(12)) + 2
    # float32 may have moved a point across an edge.
    inside = np.all(np.abs(board - np.round(board)) > 1e-5, axis=1)
    assert inside.sum() > 990
    np.testing.assert_array_equal(
        datasets.checkerboard_labels(board[inside]), y[inside]
    )


def test_waveform_classes_have_the_means_of_their_waves():
    X, y = datasets.waveform(30_000, seed=1)
    assert X.shape == (30_000, 21)
    assert X.dtype == np.float32
    np.testing.assert_allclose(np.bincount(y) / len(y), 1 / 3, atol=0.02)
    i = np.arange(1, 22)

    def h1(i):
        return np.maximum(6 - np.abs(i - 7), 0)

    waves = [h1(i), h1(i - 8), h1(i - 4)]
    for label, (a, b) in enumerate([(0, 1), (0, 2), (1, 2)]):
        mean = (waves[a] + waves[b]) / 2  # u has the mean 1/2
        np.testing.assert_allclose(X[y == label].mean(axis=0), mean, atol=0.08)


@pytest.mark.parametrize("generate", [datasets.checkerboard, datasets.waveform])
def test_generators_repeat_by_seed(generate):
    X, y = generate(50, seed=5)
    again_X, again_y = generate(50, seed=5)
    other_X, _ = generate(50, seed=6)
    np.testing.assert_array_equal(X, again_X)
    np.testing.assert_array_equal(y, again_y)
    assert not np.array_equal(X, other_X)


@pytest.mark.parametrize(
    ("name", "train", "test", "features", "classes"),
    [
        ("digits", 1200, 597, 64, 10),
        *slow(("checkerboard", 20_000, 5000, 2, 2), ("waveform", 20_000, 5000, 21, 3)),
    ],
)
def test_sets_that_need_no_file(name, train, test, features, classes):
    data = datasets.load(name)
    assert data.name == name
    assert data.num_classes == classes
    assert data.X_train.shape == (train, features)
    assert data.X_test.shape == (test, features)
    for X, y in [(data.X_train, data.y_train), (data.X_test, data.y_test)]:
        assert X.dtype == np.float32
        assert y.dtype == np.int32
        expected = {-1, 1} if classes == 2 else set(range(classes))
        assert set(y.tolist()) == expected
    np.testing.assert_allclose(data.X_train.mean(axis=0), 0, atol=1e-5)
    deviation = data.X_train.std(axis=0)
    constant = np.ptp(data.X_train, axis=0) == 0
    np.testing.assert_allclose(deviation[~constant], 1, atol=1e-4)
    assert np.all(data.X_test[:, constant] == 0)


def test_standardise_can_be_left_out():
    raw = datasets.load("digits", standardise=False)
    assert raw.X_train.min() == 0
    assert raw.X_train.max() == 16
    scaled = datasets.load("digits")
    column = 20
    mean, deviation = raw.X_train[:, column].mean(), raw.X_train[:, column].std()
    np.testing.assert_allclose(
        scaled.X_test[:, column], (raw.X_test[:, column] - mean) / deviation, rtol=1e-4
    )


def test_dense_file_with_its_own_split(folder):
    np.savez(
        folder / "small.npz",
        X_train=np.array([[0, 7], [255, 7], [0, 7], [255, 7]], np.uint8),
        y_train=np.array([1, 2, 1, 2], np.uint8),
        X_test=np.array([[255, 9]], np.uint8),
        y_test=np.array([2], np.uint8),
    )
    data = datasets.load("small")
    np.testing.assert_allclose(data.X_train[:, 0], [-1, 1, -1, 1])
    # The second column is constant in the training part.
    np.testing.assert_array_equal(data.X_train[:, 1], 0)
    np.testing.assert_allclose(data.X_test, [[1, 0]])
    np.testing.assert_array_equal(data.y_train, [-1, 1, -1, 1])
    np.testing.assert_array_equal(data.y_test, [1])
    assert data.num_classes == 2


def test_sparse_file_without_a_split(folder):
    generator = np.random.default_rng(0)
    dense = generator.integers(0, 3, (40, 6)).astype(np.float32)
    rows, columns = np.nonzero(dense)
    np.savez(
        folder / "sparse.npz",
        X_data=dense[rows, columns].astype(np.uint8),
        X_indices=columns.astype(np.uint16),
        X_indptr=np.searchsorted(rows, np.arange(41)).astype(np.int32),
        X_shape=np.array([40, 6]),
        y=np.arange(40) % 3 + 1,
    )
    data = datasets.load("sparse", standardise=False)
    assert data.X_train.shape == (32, 6)
    assert data.X_test.shape == (8, 6)
    assert data.num_classes == 3
    # The split moves rows, and keeps every row with its label.
    labels = {tuple(row): set() for row in dense.tolist()}
    for i, row in enumerate(dense.tolist()):
        labels[tuple(row)].add(i % 3)
    X = np.concatenate([data.X_train, data.X_test])
    y = np.concatenate([data.y_train, data.y_test])
    np.testing.assert_array_equal(np.sort(X, axis=0), np.sort(dense, axis=0))
    assert all(
        label in labels[tuple(row)]
        for row, label in zip(X.tolist(), y.tolist(), strict=True)
    )
    again = datasets.load("sparse", standardise=False)
    np.testing.assert_array_equal(data.X_train, again.X_train)


def test_sparse_parts_of_a_given_split(folder):
    """Nothing is equal in the two parts but the number of columns."""
    parts = {
        "train": np.array([[0, 0, 0, 0], [0, 2, 0, 3], [4, 0, 0, 0]], np.float64),
        "test": np.array([[5, 0, 6, 7], [0, 0, 0, 8]], np.float64),
    }
    saved = {}
    for part, X in parts.items():
        matrix = scipy.sparse.csr_array(X)
        names = ("data", "indices", "indptr", "shape")
        saved |= {f"X_{part}_{name}": getattr(matrix, name) for name in names}
        saved[f"y_{part}"] = np.resize([-1, 1], len(X))
    np.savez(folder / "parts.npz", **saved)
    data = datasets.load("parts", standardise=False)
    np.testing.assert_array_equal(data.X_train, parts["train"])
    np.testing.assert_array_equal(data.X_test, parts["test"])
    np.testing.assert_array_equal(data.y_train, [-1, 1, -1])
    np.testing.assert_array_equal(data.y_test, [-1, 1])


def test_training_part_alone_is_split(folder):
    np.savez(
        folder / "half.npz", X_train=np.arange(20.0)[:, None], y_train=np.arange(20) % 2
    )
    data = datasets.load("half", standardise=False)
    assert (len(data.y_train), len(data.y_test)) == (16, 4)
    X = np.concatenate([data.X_train, data.X_test])[:, 0]
    np.testing.assert_array_equal(np.sort(X), np.arange(20))


def test_electricity_keeps_its_order(folder):
    X, y = np.arange(10.0)[:, None], np.arange(10) % 2
    np.savez(folder / "electricity.npz", X=X, y=y)
    data = datasets.load("electricity", standardise=False)
    np.testing.assert_array_equal(data.X_train[:, 0], np.arange(8))
    np.testing.assert_array_equal(data.X_test[:, 0], [8, 9])


def test_regression_targets_stay_real(folder):
    y = np.linspace(0, 99, 10)
    np.savez(folder / "cpusmall.npz", X=np.ones((10, 2)), y=y)
    data = datasets.load("cpusmall")
    assert data.num_classes == 0
    assert data.y_train.dtype == np.float32
    np.testing.assert_allclose(
        np.sort(np.concatenate([data.y_train, data.y_test])), y, rtol=1e-6
    )


def test_text_labels_sort_as_numbers_where_they_are(folder):
    y = np.array(["2", "10", "1", "10", "2", "1"])
    np.savez(folder / "up.npz", X=np.eye(4), y=np.array(["UP", "DOWN", "DOWN", "UP"]))
    up = datasets.load("up")
    assert set(np.concatenate([up.y_train, up.y_test]).tolist()) == {-1, 1}
    np.savez(folder / "text.npz", X=np.eye(6), y=y)
    data = datasets.load("text", standardise=False)
    row = np.argmax(data.X_train, axis=1)
    np.testing.assert_array_equal(data.y_train, np.array([1, 2, 0, 2, 1, 0])[row])


def test_unknown_name_says_what_there_is(folder):
    np.savez(folder / "mine.npz", X=np.ones((5, 1)), y=np.ones(5))
    with pytest.raises(ValueError, match="'nonsense'") as caught:
        datasets.load("nonsense")
    for word in ("BUDGETJAX_DATA", str(folder), "mine", "digits", "letter"):
        assert word in str(caught.value)


def test_unknown_name_without_a_folder(monkeypatch):
    monkeypatch.delenv("BUDGETJAX_DATA", raising=False)
    with pytest.raises(ValueError, match=r"'ijcnn1'.*BUDGETJAX_DATA.*not set"):
        datasets.load("ijcnn1")


def test_incomplete_file(folder):
    np.savez(folder / "lame.npz", X=np.ones((5, 1)))
    with pytest.raises(ValueError, match=r"lame.npz lacks y; it holds X"):
        datasets.load("lame")


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match=r"^load: .*'digits' needs scikit-learn: "):
        datasets.load("digits")


def test_downloads_name_the_set_by_number(monkeypatch):
    asked = []

    def fetch_openml(**options):
        asked.append(options)
        y = np.arange(60_010) % 10
        return y[:, None].astype(np.float64), y.astype(str).astype(object)

    monkeypatch.delenv("BUDGETJAX_DATA", raising=False)
    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    data = datasets.load("mnist", standardise=False)
    assert asked[0]["data_id"] == 554
    assert (len(data.y_train), len(data.y_test)) == (60_000, 10)
    np.testing.assert_array_equal(data.y_test, np.arange(10))
    assert len(datasets.load("usps").y_test) == 12_002  # a fifth


def test_without_a_network_it_is_said_what_is_missing(monkeypatch):
    def fetch_openml(**options):
        raise urllib.error.URLError("no network")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch_openml)
    monkeypatch.delenv("BUDGETJAX_DATA", raising=False)
    with pytest.raises(OSError, match=r"data set 'mnist'.*BUDGETJAX_DATA") as raised:
        datasets.load("mnist")
    assert "have mnist.npz in a folder" in str(raised.value)
