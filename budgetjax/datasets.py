"""Data sets for examples and experiments, as NumPy arrays ready for `budgetjax.run`."""

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from jaxtyping import Float, Int32, Shaped

from budgetjax import _checks, _record
from budgetjax._errors import InputError, names_errors


class Dataset(NamedTuple):
    """A data set with a training part and a test part.

    Attributes:
      X_train: float32, shape `(n, num_features)`.
      y_train: shape `(n,)`: int32, -1 and +1 for two classes, otherwise `0 .. C-1`;
        real float32 targets for regression.
      X_test: float32, shape `(m, num_features)`.
      y_test: shape `(m,)`, as `y_train`.
      num_classes: C, or 0 for regression.
      name: the name, as passed to `load`.
    """

    X_train: Float[np.ndarray, "n features"]
    y_train: Shaped[np.ndarray, " n"]
    X_test: Float[np.ndarray, "m features"]
    y_test: Shaped[np.ndarray, " m"]
    num_classes: int
    name: str

    __repr__ = _record.record_repr


FOLDER_VARIABLE = "BUDGETJAX_DATA"
BUNDLED = ("checkerboard", "digits", "waveform")
# Training and test rows of a generated set; the test fraction of others.
GENERATED, TEST_SHARE = (20_000, 5000), 0.2
# The ids of sets on OpenML, and the customary number of training rows, if any.
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


@names_errors("load")
def load(name: str, *, standardise: bool = True) -> Dataset:
    """Loads a data set.

    `digits` comes with scikit-learn (1,200 of its 1,797 images are for training);
    `checkerboard` and `waveform` are generated (20,000 training rows, 5,000 test rows).
    Any other name is the file `NAME.npz` in the folder of the environment variable
    `BUDGETJAX_DATA`, or else, for `banana`, `covtype`, `electricity`, `letter`, `mnist`
    and `usps`, a download from OpenML that scikit-learn caches.

    A file holds `X_train, y_train, X_test, y_test`, or `X, y`. An `X` may be replaced
    by the parts of a CSR matrix, `X_data, X_indices, X_indptr, X_shape`, which becomes
    dense. If there is no test part, a fixed fifth of the rows is for testing; for
    `electricity` it is the last fifth.

    Args:
      name: the name of the data set.
      standardise: subtract the mean of the training part and divide by its standard
        deviation, column by column; columns that are constant in the training part
        become 0.

    Returns:
      A `Dataset`. Labels follow the sorted order of the original ones.

    Raises:
      ValueError: if there is no such set, or its file lacks an array.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> data.X_train.shape, data.y_train.shape, data.num_classes
      ((20000, 2), (20000,), 2)
    """
    parts = _parts(name)
    if len(parts) == 2:
        X, y = parts
        if name not in IN_TIME_ORDER:
            order = np.random.default_rng(0).permutation(len(y))
            X, y = X[order], y[order]
        parts = _split(X, y, len(y) - round(len(y) * TEST_SHARE))
    X_train, y_train, X_test, y_test = parts
    X_train, X_test = X_train.astype(np.float32), X_test.astype(np.float32)
    if standardise:
        _standardise(X_train, X_test)
    y, num_classes = _labels(name, np.concatenate([y_train, y_test]))
    n = len(y_train)
    return Dataset(X_train, y[:n], X_test, y[n:], num_classes, name)


def checkerboard(
    num_rows: int, seed: int
) -> tuple[Float[np.ndarray, "n 2"], Int32[np.ndarray, " n"]]:
    """Points on a 4 x 4 checkerboard: two classes that no hyperplane separates.

    Points are uniform on `[0, 4)^2`, centred at 2 and divided by their standard
    deviation, `4 / sqrt(12)`.

    Args:
      num_rows: n.
      seed: seed of the generator.

    Returns:
      X, float32 of shape `(n, 2)`, and y of shape `(n,)`; see `checkerboard_labels`.

    Example:
      >>> [part.shape for part in bj.datasets.checkerboard(100, seed=0)]
      [(100, 2), (100,)]
    """
    X = np.random.default_rng(seed).uniform(0, 4, (num_rows, 2))
    scaled = (X - 2) / (4 / np.sqrt(12))
    return scaled.astype(np.float32), checkerboard_labels(X)


def checkerboard_labels(X: Float[np.ndarray, "n 2"]) -> Int32[np.ndarray, " n"]:
    """Labels of points on `[0, 4)^2`: -1 where `floor(x1) + floor(x2)` is even.

    Example:
      >>> bj.datasets.checkerboard_labels(np.array([[0.5, 0.5], [1.5, 0.5]])).tolist()
      [-1, 1]
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
      seed: seed of the generator.

    Returns:
      X, float32 of shape `(n, 21)`, and y in 0, 1, 2, of shape `(n,)`.

    Example:
      >>> [part.shape for part in bj.datasets.waveform(100, seed=0)]
      [(100, 21), (100,)]
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


def _parts(name: str) -> tuple[np.ndarray, ...]:
    """`X, y`, or `X_train, y_train, X_test, y_test` if the set is split."""
    if name == "digits":
        X, y = _scikit_learn(name).load_digits(return_X_y=True)
        order = np.random.default_rng(0).permutation(len(y))
        return _split(X[order], y[order], 1200)
    if name in BUNDLED:
        generate = checkerboard if name == "checkerboard" else waveform
        return _split(*generate(sum(GENERATED), seed=0), GENERATED[0])
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder and (Path(folder) / f"{name}.npz").is_file():
        with np.load(Path(folder) / f"{name}.npz") as file:
            return _of_file(name, dict(file))
    if name in OPENML:
        number, num_train = OPENML[name]
        openml = _scikit_learn(name)
        try:
            # This parser does not need pandas.
            X, y = openml.fetch_openml(
                data_id=number, as_frame=False, return_X_y=True, parser="liac-arff"
            )
        except OSError as error:
            raise OSError(
                f"load: the data set {name!r} comes from openml.org, got {error}; "
                f"without a network, have {name}.npz in a folder that the environment "
                f"variable {FOLDER_VARIABLE} names"
            ) from None
        return (X, y) if num_train is None else _split(X, y, num_train)
    held = sorted(path.stem for path in Path(folder).glob("*.npz")) if folder else []
    where = f"{folder} holds {', '.join(held) or 'none'}" if folder else "it is not set"
    raise InputError(
        f"no data set {name!r}. There are {', '.join(BUNDLED)}; by download "
        f"{', '.join(OPENML)}; and the files NAME.npz in the folder that the "
        f"environment variable {FOLDER_VARIABLE} names ({where})"
    )


def _scikit_learn(name: str) -> Any:
    with names_errors(f"load: the data set {name!r}"):
        return _checks.import_optional("sklearn.datasets")


def _split(X: np.ndarray, y: np.ndarray, num_train: int) -> tuple[np.ndarray, ...]:
    return X[:num_train], y[:num_train], X[num_train:], y[num_train:]


def _of_file(name: str, file: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """The parts in a file; matrices become dense."""

    def matrix(key: str) -> np.ndarray:
        if f"{key}_data" not in file:
            return file[key]
        parts = tuple(file[f"{key}_{part}"] for part in ("data", "indices", "indptr"))
        return scipy.sparse.csr_array(
            parts, shape=tuple(file[f"{key}_shape"])
        ).toarray()

    try:
        part = "_train" if "y_train" in file else ""
        train = matrix("X" + part), file["y" + part]
        return (*train, matrix("X_test"), file["y_test"]) if "y_test" in file else train
    except KeyError as error:
        raise InputError(
            f"{name}.npz lacks {error.args[0]}; it holds {', '.join(file)}"
        ) from None


def _standardise(X_train: np.ndarray, X_test: np.ndarray) -> None:
    """Scales both parts in place, by the training part."""
    mean = np.mean(X_train, axis=0, dtype=np.float64).astype(np.float32)
    X_train -= mean
    deviation = np.sqrt(np.mean(np.square(X_train), axis=0, dtype=np.float64))
    factor = np.where(deviation > 0, 1 / np.where(deviation > 0, deviation, 1), 0)
    X_train *= factor.astype(np.float32)
    X_test -= mean
    X_test *= factor.astype(np.float32)


def _labels(name: str, y: np.ndarray) -> tuple[np.ndarray, int]:
    """The labels in the dtype of a `Dataset`, and the number of classes."""
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
