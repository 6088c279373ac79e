"""Data sets for examples and experiments, as NumPy arrays ready for `budgetjax.run`.

The library itself needs none of this. scikit-learn is imported only where it brings
the data.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int32, Shaped


class Dataset(NamedTuple):
    """A data set, split.

    Attributes:
      X_train: float32, shape `(n, num_features)`.
      y_train: shape `(n,)`: int32, -1 and +1 for two classes, else `0 .. C-1`; real
        float32 targets for regression.
      X_test: float32, shape `(m, num_features)`.
      y_test: shape `(m,)`, as `y_train`.
      num_classes: C, or 0 for regression.
      name: as given to `load`.
    """

    X_train: Float[np.ndarray, "n features"]
    y_train: Shaped[np.ndarray, " n"]
    X_test: Float[np.ndarray, "m features"]
    y_test: Shaped[np.ndarray, " m"]
    num_classes: int
    name: str


FOLDER_VARIABLE = "BUDGETJAX_DATA"
BUNDLED = ("checkerboard", "digits", "waveform")
# Rows of a generated set: 20,000 to train and 5,000 to test.
GENERATED_ROWS = 25_000
TEST_SHARE = 0.2
# Name: (OpenML's number, rows of the standard training part that come first, or None).
OPENML: dict[str, tuple[int, int | None]] = {
    "banana": (1460, None),
    "covtype": (1596, None),
    "electricity": (151, None),
    "letter": (6, None),
    "mnist": (554, 60_000),
    "usps": (41082, None),
}
IN_TIME_ORDER = ("electricity",)
REGRESSION = ("cpusmall",)
# The instance weight of the census file says how many people a row stands for.
DROPPED_COLUMNS = {"census_income_kdd": 24}

Raw = dict[str, np.ndarray]


def load(name: str, *, standardise: bool = True) -> Dataset:
    """A data set by its name.

    `digits` comes with scikit-learn (1,200 of its 1,797 images train), `checkerboard`
    and `waveform` are generated (20,000 rows to train, 5,000 to test). Any other name
    is the file `NAME.npz` in the folder that the environment variable `BUDGETJAX_DATA`
    names, or else, for `banana`, `covtype`, `electricity`, `letter`, `mnist` and
    `usps`, a download from OpenML that scikit-learn keeps for the next time.

    A file holds `X_train, y_train, X_test, y_test`, or `X, y`; in place of an `X`, the
    parts of a CSR matrix `X_data, X_indices, X_indptr, X_shape`, which becomes dense. A
    set without a test part is split: every fifth row, drawn once and for all, is for
    testing; `electricity` keeps its order, and its last fifth is for testing.

    Args:
      name: of the data set.
      standardise: subtract the mean of the training part and divide by its standard
        deviation, column by column; columns that are constant there become 0.

    Returns:
      A `Dataset`. Labels are in the order of the sorted original ones.

    Raises:
      ValueError: if there is no such set, or its file does not hold what is needed.
      ImportError: if the set comes through scikit-learn, which is not installed.

    Example:
      >>> from budgetjax import datasets
      >>> data = datasets.load("checkerboard")
      >>> data.X_train.shape, data.y_train.shape, data.num_classes
      ((20000, 2), (20000,), 2)
    """
    raw = _raw(name)
    X_train, y_train, X_test, y_test = _split(name, raw)
    if name in DROPPED_COLUMNS:
        X_train, X_test = (
            np.delete(X, DROPPED_COLUMNS[name], axis=1) for X in (X_train, X_test)
        )
    X_train, X_test = X_train.astype(np.float32), X_test.astype(np.float32)
    if standardise:
        _standardise(X_train, X_test)
    y, num_classes = _labels(name, np.concatenate([y_train, y_test]))
    n = len(y_train)
    return Dataset(X_train, y[:n], X_test, y[n:], num_classes, name)


def checkerboard(
    num_rows: int, seed: int
) -> tuple[Float[np.ndarray, "n 2"], Int32[np.ndarray, " n"]]:
    """The squares of a 4 x 4 board: two classes that no hyperplane separates.

    Points are uniform on `[0, 4)^2`, centred at 2 and divided by their standard
    deviation, `4 / sqrt(12)`.

    Args:
      num_rows: n.
      seed: of the generator.

    Returns:
      X, float32 of shape `(n, 2)`, and y of shape `(n,)`; see `checkerboard_labels`.

    Example:
      >>> from budgetjax import datasets
      >>> X, y = datasets.checkerboard(1000, seed=0)
      >>> X.shape, sorted(set(y.tolist()))
      ((1000, 2), [-1, 1])
    """
    X = np.random.default_rng(seed).uniform(0, 4, (num_rows, 2))
    scaled = (X - 2) / (4 / np.sqrt(12))
    return scaled.astype(np.float32), checkerboard_labels(X)


def checkerboard_labels(X: Float[np.ndarray, "n 2"]) -> Int32[np.ndarray, " n"]:
    """The label of points on the board: -1 where `floor(x1) + floor(x2)` is even.

    Args:
      X: points on `[0, 4)^2`, before they are centred and scaled, shape `(n, 2)`.

    Returns:
      -1 or +1, shape `(n,)`.
    """
    odd = np.sum(np.floor(X), axis=1) % 2
    return np.where(odd == 1, 1, -1).astype(np.int32)


def waveform(
    num_rows: int, seed: int
) -> tuple[Float[np.ndarray, "n 21"], Int32[np.ndarray, " n"]]:
    """Noisy mixtures of two of three triangular waves, 21 features and three classes.

    Breiman, Friedman, Olshen and Stone (1984), "Classification and regression trees".

    Args:
      num_rows: n.
      seed: of the generator.

    Returns:
      X, float32 of shape `(n, 21)`, and y in 0, 1, 2, of shape `(n,)`.

    Example:
      >>> from budgetjax import datasets
      >>> X, y = datasets.waveform(1000, seed=0)
      >>> X.shape, sorted(set(y.tolist()))
      ((1000, 21), [0, 1, 2])
    """
    generator = np.random.default_rng(seed)
    i = np.arange(1, 22)
    waves = np.stack([np.maximum(6 - np.abs(i - peak), 0) for peak in (7, 15, 11)])
    y = generator.integers(0, 3, num_rows)
    first, second = np.array([[0, 1], [0, 2], [1, 2]])[y].T
    u = generator.uniform(size=(num_rows, 1))
    X = u * waves[first] + (1 - u) * waves[second]
    X += generator.standard_normal(X.shape)
    return X.astype(np.float32), y.astype(np.int32)


def _raw(name: str) -> Raw:
    """The arrays of a set as they come, under the names that a file would use."""
    if name == "digits":
        X, y = _scikit_learn(name).load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        return _parts(X[order], y[order], 1200)
    if name in BUNDLED:
        generate = checkerboard if name == "checkerboard" else waveform
        X, y = generate(GENERATED_ROWS, seed=0)
        return _parts(X, y, round(GENERATED_ROWS * (1 - TEST_SHARE)))
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and (Path(folder) / f"{name}.npz").is_file():
        with np.load(Path(folder) / f"{name}.npz") as file:
            return dict(file)
    if name in OPENML:
        number, num_train = OPENML[name]
        # This parser does without pandas.
        openml = _scikit_learn(name)
        try:
            X, y = openml.fetch_openml(
                data_id=number, as_frame=False, return_X_y=True, parser="liac-arff"
            )
        except OSError as error:
            raise OSError(
                f"load: the data set {name!r} comes from openml.org, got {error}; "
                f"without a network, have {name}.npz in a folder that the environment "
                f"variable {FOLDER_VARIABLE} names"
            ) from None
        return {"X": X, "y": y} if num_train is None else _parts(X, y, num_train)
    held = sorted(path.stem for path in Path(folder).glob("*.npz")) if folder else []
    where = f"{folder} holds {', '.join(held) or 'none'}" if folder else "it is not set"
    raise ValueError(
        f"load: no data set {name!r}. There are {', '.join(BUNDLED)}; by download "
        f"{', '.join(OPENML)}; and the files NAME.npz in the folder that the "
        f"environment variable {FOLDER_VARIABLE} names ({where})"
    )


def _scikit_learn(name: str) -> Any:
    try:
        import sklearn.datasets
    except ImportError as error:
        raise ImportError(
            f"load: the data set {name!r} comes through scikit-learn; "
            'pip install "budgetjax[examples]"'
        ) from error
    return sklearn.datasets


def _parts(X: np.ndarray, y: np.ndarray, num_train: int) -> Raw:
    return {
        "X_train": X[:num_train],
        "y_train": y[:num_train],
        "X_test": X[num_train:],
        "y_test": y[num_train:],
    }


def _split(
    name: str, raw: Raw
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if "y_test" in raw:
        X_train, X_test = _matrix(name, raw, "X_train"), _matrix(name, raw, "X_test")
        return X_train, _array(name, raw, "y_train"), X_test, raw["y_test"]
    part = "_train" if "y_train" in raw else ""
    X, y = _matrix(name, raw, "X" + part), _array(name, raw, "y" + part)
    num_test = round(len(y) * TEST_SHARE)
    order = np.arange(len(y))
    if name not in IN_TIME_ORDER:
        order = np.random.default_rng(0).permutation(len(y))
    train, test = np.split(order, [len(y) - num_test])
    return X[train], y[train], X[test], y[test]


def _array(name: str, raw: Raw, key: str) -> np.ndarray:
    if key not in raw:
        raise ValueError(f"load: {name}.npz lacks {key}; it holds {', '.join(raw)}")
    return raw[key]


def _matrix(name: str, raw: Raw, key: str) -> np.ndarray:
    """A dense matrix, from the parts of a CSR matrix where the file has those."""
    if f"{key}_data" not in raw:
        return _array(name, raw, key)
    indptr, indices, shape = (
        _array(name, raw, f"{key}_{part}") for part in ("indptr", "indices", "shape")
    )
    dense = np.zeros(shape, np.float32)
    rows = np.repeat(np.arange(shape[0]), np.diff(indptr))
    dense[rows, indices] = raw[f"{key}_data"]
    return dense


def _standardise(X_train: np.ndarray, X_test: np.ndarray) -> None:
    """In place, by the training part."""
    mean = np.mean(X_train, axis=0, dtype=np.float64).astype(np.float32)
    X_train -= mean
    X_test -= mean
    deviation = np.sqrt(np.mean(np.square(X_train), axis=0, dtype=np.float64))
    inverse = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0)
    X_train *= inverse.astype(np.float32)
    X_test *= inverse.astype(np.float32)


def _labels(name: str, y: np.ndarray) -> tuple[np.ndarray, int]:
    """The labels in the types of a `Dataset`, and the number of classes."""
    if name in REGRESSION:
        return y.astype(np.float32), 0
    if y.dtype.kind in "OUS":
        # OpenML gives digits as text, which would sort 10 before 2.
        y = y.astype(str)
        if np.all(np.char.isdigit(y)):
            y = y.astype(np.int64)
    classes, labels = np.unique(y, return_inverse=True)
    if len(classes) == 2:
        labels = 2 * labels - 1
    return labels.astype(np.int32), len(classes)
