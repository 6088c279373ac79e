"""River estimators: online learners, one row at a time or in mini-batches.

Any mix of `learn_one` and `learn_many` gives the model of `budgetjax.run` on the same
rows, up to the rounding of sums, if there are two labels or they are known at the
start. A row costs little, because

* rows wait, and one compiled program learns up to 64 of them;
* a prediction needs all earlier rows. NumPy computes it from the arrays of the model,
  and it tells whether the row will change the model: a row with a safe margin keeps
  waiting, and the same model serves the next prediction.

Rows are dictionaries. A new feature becomes a column of zeros, and a feature that a row
lacks is 0. There are columns for 16 features and, with more than two labels, for 8
labels; the number doubles when all are taken, so few programs are compiled, which takes
seconds each.

Several threads may use one model. A lock is held while a row is taken, while waiting
rows are learned, and while kernels other than Gaussians are computed. A prediction
takes it to find the model after all rows so far, and scores without it, from arrays
that are never modified; `state` is a copy.
"""

import copy
import functools
import math
import numbers
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from budgetjax import _checks, models, scaling
from budgetjax.kernels import RBF, Kernel
from budgetjax.models import Labelled
from budgetjax.online import choices, driver, registry
from budgetjax.online.algorithm import Algorithm, averaged
from budgetjax.online.conservative import decayed_scale
from budgetjax.refitting import calibration

try:
    from river import base
    from river.utils import dataframe
except ImportError as error:
    raise _checks.not_installed("budgetjax.river", "river") from error

__all__ = ["BudgetedClassifier", "BudgetedOneClass", "BudgetedRegressor"]

# Rows that are learned at once. A single row uses the same program, since most of its
# time is the call itself.
WAITING = 64
# Columns of coefficients after a third label, and columns of features.
FEWEST_COLUMNS, FEWEST_FEATURES = 8, 16


class View(NamedTuple):
    """A model with a Gaussian kernel as NumPy arrays.

    Attributes:
      vectors: the support vectors, shape `(rows, features)`.
      squares: their squared norms.
      coefficients: unscaled, shape `(rows, columns)`.
      scales: the factor of the coefficients after each number of quiet rows, which do
        not change the model, shape `(WAITING + 1,)`.
      gamma: the parameter of the kernel.
    """

    vectors: Float[np.ndarray, "rows features"]
    squares: Float[np.ndarray, " rows"]
    coefficients: Float[np.ndarray, "rows columns"]
    scales: Float[np.ndarray, " ticks"]
    gamma: float

    def scores(
        self, row: Float[np.ndarray, " features"], tick: int
    ) -> Float[np.ndarray, " columns"]:
        """The scores of one row after `tick` quiet rows; O(rows features)."""
        # The caller raises if the model has overflowed.
        with np.errstate(over="ignore", invalid="ignore"):
            distances = self.squares + row.dot(row) - 2 * self.vectors.dot(row)
            kernel_row = np.exp(-self.gamma * np.maximum(distances, 0))
            return self.scales[tick] * kernel_row.dot(self.coefficients)


@functools.partial(jax.jit, static_argnums=0, donate_argnums=1)
def _learned(
    algorithm: Algorithm,
    state: Any,
    X: Float[Array, "size features"],
    y: Shaped[Array, " size"],
    weights: Float[Array, " size"],
) -> tuple[Any, Float[Array, " ticks"]]:
    """The state after some rows, and its scale after each number of quiet rows."""
    new, _ = algorithm.learn(state, X, y, weights)
    ahead = jnp.arange(WAITING + 1, dtype=jnp.int32)
    return new, decayed_scale(new.expansion.scale, algorithm.decay(new, ahead))


class Online(base.Estimator):
    """The base of all three estimators: the waiting rows and the model."""

    def __init__(
        self,
        algorithm: str = "sgd",
        *,
        budget: int = 100,
        kernel: str | Kernel = "rbf",
        gamma: float | None = None,
        seed: int = 0,
        **options: Any,
    ):
        self.algorithm = algorithm
        self.budget = budget
        self.kernel = kernel
        self.gamma = gamma
        self.seed = seed
        self.options = options
        self._start()

    def _start(self) -> None:
        """Resets to a model that has learned nothing."""
        # Held while the attributes below are changed, or several are read.
        self._lock = threading.RLock()
        self._columns: dict[Any, int] = {}
        # The labels so far, and the number of columns for them; None for a regressor.
        self._labels: tuple[Any, ...] = ()
        self._room: int | None = None
        self._state: Any = None
        self._like: Kernel | None = None
        self._in_numpy = False
        self._no_update_above: float | None = None
        self._scales: Any = None
        self._view: View | None = None
        self._scored: tuple[View, int, bytes, np.ndarray] | None = None
        self._quiet = 0
        # The first rows, until their scale has been checked.
        self._first_rows: list[np.ndarray] | None = []
        self._clear(0)

    @property
    def features(self) -> tuple[Any, ...]:
        """The names of the features, in the order of the columns of `state`."""
        with self._lock:
            return tuple(self._columns)

    @property
    def state(self) -> Any:
        """The model, a state for all functions of budgetjax; None before the first row.

        It is a copy, with one column per feature of `features` and one per label.
        """
        with self._lock:
            self._learn_waiting()
            if self._state is None:
                return None
            labels = None if self._room is None else max(2, len(self._labels))
            return self._in_sizes(max(len(self._columns), 1), labels)

    @property
    def _where(self) -> str:
        return type(self).__name__

    @property
    def _predicts(self) -> bool:
        """Whether there is a model for predictions."""
        return self._state is not None

    def _target(self, y: Any) -> float:
        """A target in the learner's form; makes room for a new label."""
        if not isinstance(y, numbers.Real) or not math.isfinite(y):
            raise ValueError(
                f"{self._where}: y must be a finite number, got {y!r}; leave out rows "
                "without one"
            )
        return float(y)

    @property
    def _width(self) -> int:
        return self._X.shape[1]

    @property
    def _raw_memory_usage(self) -> int:
        # The arrays of the state are held outside of Python.
        with self._lock:
            arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(self._state))
            return super()._raw_memory_usage + arrays

    def __getstate__(self) -> dict[str, Any]:
        # The view is recomputed from the state; a lock belongs to one process.
        fresh = ("_lock", "_view", "_scored", "_state")
        with self._lock:
            # Copies, since the model may learn more before they are written.
            known = {k: copy.copy(v) for k, v in vars(self).items() if k not in fresh}
            return known | {"_state": jax.tree.map(jnp.array, self._state)}

    def __setstate__(self, known: dict[str, Any]) -> None:
        vars(self).update(known)
        self._lock, self._view, self._scored = threading.RLock(), None, None

    def _clear(self, width: int) -> None:
        """Allocates arrays for waiting rows; a program may still read the old ones."""
        self._X = np.zeros((WAITING, width), np.float32)
        self._y = np.ones(WAITING, np.float32)
        self._w = np.zeros(WAITING, np.float32)
        self._waiting = 0

    def _init(self, width: int, num_classes: int | None) -> Any:
        """An empty model with these sizes."""
        algorithm, arguments, _ = choices.chosen(
            *(self._where, self.algorithm, self.options),
            num_classes=num_classes,
            seed=self.seed,
            refits=False,
        )
        return algorithm.init(
            self._like, num_features=width, budget=self.budget, **arguments
        )

    def _in_sizes(self, width: int, num_classes: int | None) -> Any:
        """A copy of the state with these numbers of features and of classes."""
        wide = _resize(self._state, self._init(width, self._room))
        return _resize(wide, self._init(width, num_classes))

    def _grow(self, width: int, num_classes: int | None) -> None:
        """Adds columns of zeros for new features or classes."""
        self._learn_waiting()
        if self._state is not None:
            self._state = self._in_sizes(width, num_classes)
            self._view = self._scored = None
        self._clear(width)

    def _widen(self, names: Any) -> None:
        """Gives every feature a column."""
        new = sorted((name for name in names if name not in self._columns), key=repr)
        needed = len(self._columns) + len(new)
        if self._state is None:
            usual = 1 / max(needed, 1)
            self._like = choices.kernel_of(
                *(self._where, self.kernel, self.gamma), None, lambda: usual
            )
            width = self._room_for(needed)
            state = self._init(width, self._room)
            # No two leaves may share an array, since it cannot be donated twice.
            self._state = jax.tree.map(jnp.array, state)
            self._clear(width)
            # Whether NumPy computes the scores of the model that learns.
            gaussian = isinstance(state.kernel, RBF) and not state.kernel.exact
            self._in_numpy = gaussian and state.expansion.average is None
            no_update_above = registry.of_state(self._where, state).no_update_above
            if no_update_above is not None and self._in_numpy:
                self._no_update_above = no_update_above(state)
        elif needed > self._width:
            self._grow(self._room_for(needed), self._room)
        for name in new:
            self._columns[name] = len(self._columns)

    def _room_for(self, needed: int) -> int:
        """The number of columns for features: few widths, so few programs are compiled.

        A kernel or an option with one number per feature allows one width only.
        """
        if any(np.ndim(leaf) for leaf in jax.tree.leaves((self._like, self.options))):
            return needed
        return max(FEWEST_FEATURES, 1 << (needed - 1).bit_length())

    def _row(self, x: Mapping[Any, Any]) -> tuple[np.ndarray, bool]:
        """The values of a row in the order of the columns, and whether all are known.

        Values of unknown features are left out.
        """
        known = True
        values = [0.0] * self._width
        columns = self._columns
        for name, value in x.items():
            column = columns.get(name)
            if column is None:
                known = False
            else:
                values[column] = value
        # Our errors are more precise than NumPy's warnings.
        with np.errstate(over="ignore", invalid="ignore"):
            try:
                row = np.array(values, np.float32)
            except (TypeError, ValueError):
                row = np.full(1, np.nan)
            fits = row.dot(row) < np.inf
        if not fits:
            self._check(x)
        return row, known

    def _check(self, x: Mapping[Any, Any]) -> None:
        """Raises if a value is not a number, or squares overflow float32."""
        total = 0.0
        for name, value in x.items():
            try:
                total += float(value) ** 2
            except (TypeError, ValueError, OverflowError):
                total = math.nan
            if not total <= float(np.finfo(np.float32).max):
                raise ValueError(
                    f"{self._where}: every feature must be a finite number, and the "
                    "sum of the squares of a row one that float32 can hold, got "
                    f"{value!r} for {name!r}; leave out what is missing, or fill it "
                    "in, and scale the features"
                )

    def _learn(self, x: Mapping[Any, Any], y: Any, w: int | float) -> None:
        """Adds a waiting row."""
        if not 0 < w < math.inf:
            if w == 0:
                return
            raise ValueError(
                f"{self._where}: w must be finite and at least 0, got {w!r}"
            )
        with self._lock:
            row, known = self._row(x)
            new = not known or self._state is None
            if new:
                self._check(x)
            target = self._target(y)
            if new:
                self._widen(x)
                row, _ = self._row(x)
            i = self._waiting
            self._X[i] = row
            self._y[i] = target
            self._w[i] = w
            self._waiting = i + 1
            if self._first_rows is not None:
                self._look_at(row)
            if self._waiting == WAITING:
                self._learn_waiting()

    def _look_at(self, row: Float[np.ndarray, " features"]) -> None:
        """Warns, once, if the first rows look unscaled."""
        self._first_rows = [*(self._first_rows or ()), row]
        if len(self._first_rows) < scaling.ENOUGH_ROWS:
            return
        X = np.zeros((len(self._first_rows), self._width))
        for i, first in enumerate(self._first_rows):
            X[i, : len(first)] = first
        self._first_rows = None
        message, kernel = scaling.unscaled(self._where, X), self._like
        if message is None and self.gamma is None and isinstance(kernel, RBF):
            usual = scaling.gamma_of_distances(scaling.distances_within(X))
            ratio = float(kernel.gamma) / (usual or float(kernel.gamma))
            if not 1 / scaling.TOO_UNEVEN < ratio < scaling.TOO_UNEVEN:
                message = (
                    f"{self._where}: features look unscaled: the usual gamma of "
                    f"standardised ones is {float(kernel.gamma):.3g}, and that of the "
                    f"first {len(X)} rows is {usual:.3g}; standardise them, or give "
                    "gamma"
                )
        if message is not None:
            warnings.warn(message, stacklevel=4)

    def _learn_waiting(self) -> None:
        """Learns all waiting rows."""
        if not self._waiting:
            return
        several = self._state.expansion.num_columns > 1
        y = self._y.astype(np.int32) if several else self._y
        algorithm = registry.of_state(self._where, self._state)
        # Dropped before their arrays are overwritten. JAX copies arrays that another
        # thread still uses.
        self._view = self._scored = None
        self._quiet = 0
        self._state, self._scales = _learned(
            algorithm, self._state, self._X, y, self._w
        )
        self._clear(self._width)
        driver.check_room(self._where, self._state)

    def _decide(self) -> None:
        """Learns the waiting rows, unless they do not change the model."""
        i = self._quiet
        if i == self._waiting:
            return
        if self._no_update_above is not None and self._waiting == i + 1:
            scores = self._scores(self._shown(), i, self._X[i])
            if _margin(scores, self._y[i]) >= self._no_update_above:
                self._quiet += 1
                return
        self._learn_waiting()

    def _shown(self) -> View:
        """The model after all learned rows."""
        if self._view is None:
            state, expansion = self._state, self._state.expansion
            # An empty model scores 0 at any scale.
            scales = np.ones(1, np.float32) if self._scales is None else self._scales
            self._view = View(
                vectors=np.asarray(expansion.vectors),
                squares=np.asarray(expansion.squares),
                coefficients=np.asarray(expansion.coefficients_and_sums),
                scales=np.asarray(scales),
                gamma=float(state.kernel.gamma),
            )
        return self._view

    def _scores(
        self, view: View, tick: int, row: Float[np.ndarray, " features"]
    ) -> Float[np.ndarray, " columns"]:
        """The scores of one row by a model after `tick` quiet rows."""
        key, last = row.tobytes(), self._scored
        if last is not None and last[0] is view and last[1:3] == (tick, key):
            return last[3]
        scores = view.scores(row, tick)
        self._check_finite(scores)
        self._scored = view, tick, key, scores
        return scores

    def _compiled(
        self, rows: Float[np.ndarray, "n features"]
    ) -> Float[np.ndarray, "n columns"]:
        """The scores of rows under any kernel."""
        state = self._state
        if state.expansion.average is not None:
            state = averaged(state)
        scores = models.decision_function(Labelled(state), rows)
        scores = np.reshape(scores, (len(rows), -1))
        self._check_finite(scores)
        return scores

    def _check_finite(self, scores: np.ndarray) -> None:
        if not all(map(math.isfinite, scores.flat)):
            with self._lock:
                why = driver.explain_overflow(self._state, jnp.asarray(self._X[:1]))
            raise ValueError(
                f"{self._where}: every score must be finite, got {scores}: {why}"
            )

    def _answer(
        self, rows: Iterable[Mapping[Any, Any]]
    ) -> tuple[Float[np.ndarray, "n columns"] | None, tuple[Any, ...]]:
        """The scores of rows by the model so far, and the labels so far.

        The scores are None before there is a model.
        """
        with self._lock:
            if not self._predicts:
                return None, self._labels
            X = [self._row(x)[0] for x in rows]
            self._decide()
            labels, tick = self._labels, self._quiet
            if not self._in_numpy:
                X = np.array(X, np.float32).reshape(-1, self._width)
                return self._compiled(X), labels
            view = self._shown()
        # One by one, so that the scores do not depend on the number of rows.
        scores = [self._scores(view, tick, row) for row in X]
        return np.array(scores).reshape(-1, view.coefficients.shape[1]), labels


def _rows_of(X: Any) -> Iterator[dict[Any, float]]:
    """The rows of a data frame, as dictionaries."""
    frame = dataframe.into_frame(X)
    names = frame.columns
    for row in dataframe.to_numpy(frame).tolist():
        yield dict(zip(names, row, strict=True))


def _margin(scores: Float[np.ndarray, " columns"], y: Any) -> float:
    """The margin, as in `budgetjax.losses.margin`."""
    if len(scores) == 1:
        return float(y * scores[0])
    others = scores.tolist()
    own = others.pop(int(y))
    return own - max(others)


def _resize(state: Any, like: Any) -> Any:
    """A copy of the state in the shapes of another, which provides new values.

    The number of features or columns may grow or shrink. The single column of two
    classes becomes two, with half of the coefficients and half of their negatives.
    """
    columns, wanted = state.expansion.num_columns, like.expansion.num_columns

    def resize(old, new):
        if old.shape == new.shape:
            return jnp.array(old)
        # In NumPy, since JAX would compile a program for every shape.
        old, new = np.asarray(old), np.array(new)
        if columns == wanted:
            part = tuple(map(slice, np.minimum(old.shape, new.shape)))
            new[part] = old[part]
            return jnp.array(new)
        # The coefficients may be followed by the sums of an average.
        parts = old.reshape(*old.shape[:-1], -1, columns)
        if columns == 1:
            parts = np.concatenate([-parts / 2, parts / 2], axis=-1)
        parts = parts[..., :wanted]
        more = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - parts.shape[-1])]
        return jnp.array(np.pad(parts, more).reshape(new.shape))

    new = jax.tree.map(resize, state, like)
    # Random features fill new columns with values.
    squares = np.sum(np.square(np.asarray(new.expansion.vectors)), axis=1)
    return new._replace(expansion=new.expansion._replace(squares=jnp.array(squares)))


class Supervised(Online):
    """The base of estimators that learn a label or a target."""

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: int | float = 1.0) -> None:
        """Learns one row; O(budget features) on average, in batches of 64.

        Args:
          x: values by feature, finite numbers; a missing feature is 0.
          y: the label or target.
          w: the weight, a factor of the update, at least 0. A row of weight 0 changes
            nothing.

        Raises:
          ValueError: if a value is not a finite number, the label is missing, or a
            parameter is invalid.
          OverflowError: if the model is unbudgeted and full.

        Warns:
          UserWarning: if the first 50 rows look unscaled.
        """
        self._learn(x, y, w)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learns the rows of a data frame one after the other, as `learn_one` does.

        `y` is a series; `w` is a weight for all rows, or a series of weights.
        """
        targets = dataframe.into_series(y).to_list()
        one = isinstance(w, int | float)
        weights = [w] * len(targets) if one else dataframe.into_series(w).to_list()
        for x, target, weight in zip(_rows_of(X), targets, weights, strict=True):
            self._learn(x, target, weight)


class BudgetedClassifier(Supervised, base.MiniBatchClassifier):
    """A kernel classifier for streams, with a bounded number of support vectors.

    The budget bounds memory and time per row. Scale the features first, with
    `preprocessing.StandardScaler`.

    Labels may have any type and appear at any time. Up to two labels share one column
    of scores. A third one changes this to one column per label, with room for eight
    labels, which doubles when it is full. Either change takes seconds, unless the
    labels are given as `classes`.

    Args:
      algorithm: the name of the algorithm: "arow", "pegasos", "passive_aggressive",
        "projectron", "alma", "perceptron", "sgd", "norma", "forgetron" (two labels),
        or, on features of the kernel, "nystrom" and "fourier", which draws frequencies
        for a new feature when it appears; or one of `budgetjax.register`.
      budget: the maximum number of support vectors.
      kernel: "rbf", "laplacian", "poly", "sigmoid" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`. Rows are learned and predicted fastest with "rbf".
      gamma: the parameter of all kernels but "linear". None is one divided by the
        number of features of the first row, which is `budgetjax.default_gamma` of
        standardised features.
      classes: the labels that will occur, if known: the model then has one column per
        label from the first row, as with `budgetjax.run`.
      seed: the seed of random draws.
      options: further arguments of the algorithm's `init`, such as `drift=0.01` for
        "arow", `regularization=1e-3` or `maintenance="remove_oldest"` for "pegasos".

    Example:
      >>> from budgetjax.river import BudgetedClassifier
      >>> from river import datasets, evaluate, metrics, preprocessing
      >>> model = preprocessing.StandardScaler() | BudgetedClassifier(budget=50)
      >>> found = evaluate.progressive_val_score(
      ...     datasets.Phishing(), model, metrics.Accuracy())
      >>> found.get() > 0.85
      True

    References:
      See `init` of the algorithm, such as `budgetjax.arow.init`.
    """

    def __init__(
        self,
        algorithm: str = "arow",
        *,
        budget: int = 100,
        kernel: str | Kernel = "rbf",
        gamma: float | None = None,
        classes: tuple[Any, ...] | None = None,
        seed: int = 0,
        **options: Any,
    ):
        self.classes = classes
        super().__init__(
            algorithm, budget=budget, kernel=kernel, gamma=gamma, seed=seed, **options
        )

    def _start(self) -> None:
        super()._start()
        self._labels = () if self.classes is None else tuple(self.classes)
        self._codes = {label: code for code, label in enumerate(self._labels)}
        self._room = max(2, len(self._labels))

    @property
    def _multiclass(self) -> bool:
        return self.algorithm != "forgetron"

    @property
    def _predicts(self) -> bool:
        return self._state is not None and len(self._labels) > 1

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels, in the order of the columns of `state`, or of -1 and +1."""
        return self._labels

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:
        """The label of the largest score, the first on ties.

        Args:
          x: values by feature. Unknown features are ignored.
          kwargs: ignored.

        Returns:
          A label; None before the first one is known.
        """
        return self._best([x])[0]

    def predict_proba_one(
        self, x: Mapping[Any, Any], **kwargs: Any
    ) -> dict[Any, float]:
        """The sigmoid of the score, or the softmax of the scores of the labels.

        With `loss="logistic"` they are probabilities. Otherwise they have the right
        order, but their confidence depends on the scale of the margins.

        Args:
          x: values by feature.
          kwargs: ignored.

        Returns:
          A number per label so far; empty before the first label.
        """
        shares, labels = self._shares([x])
        return dict(zip(labels, shares[0].tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """The labels of the rows of a data frame, as a series; see `predict_one`."""
        frame = dataframe.into_frame(X)
        found = self._best([*_rows_of(frame)])
        return dataframe.to_native_series(found, name=None, like=frame)

    def predict_proba_many(self, X: Any) -> Any:
        """The probabilities of the rows of a data frame, with one column per label."""
        frame = dataframe.into_frame(X)
        shares, labels = self._shares([*_rows_of(frame)])
        columns = dict(zip(labels, shares.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _target(self, y: Any) -> float:
        if y is None or y != y:
            raise ValueError(
                f"{self._where}: y must be a label, got {y!r}; leave out rows without "
                "one"
            )
        code = self._codes.get(y)
        if code is None:
            code = len(self._labels)
            if code == self._room:
                room = max(FEWEST_COLUMNS, 1 << code.bit_length())
                self._grow(self._width, room)
                self._room = room
            self._labels += (y,)
            self._codes[y] = code
        return float(2 * code - 1 if self._room == 2 else code)

    def _best(self, rows: list[Mapping[Any, Any]]) -> list[Any]:
        """The labels of the largest scores among the labels so far."""
        scores, labels = self._answer(rows)
        if scores is None:
            return [labels[0] if labels else None] * len(rows)
        if scores.shape[1] == 1:
            best = (scores[:, 0] > 0).astype(int)
        else:
            best = np.argmax(scores[:, : len(labels)], axis=1)
        return [labels[code] for code in best.tolist()]

    def _shares(
        self, rows: list[Mapping[Any, Any]]
    ) -> tuple[Float[np.ndarray, "n labels"], tuple[Any, ...]]:
        """The softmax of the scores of the labels so far, and the labels."""
        scores, labels = self._answer(rows)
        if scores is None:
            return np.ones((len(rows), len(labels))) / max(1, len(labels)), labels
        columns = calibration.class_columns(models.flat(scores))
        return calibration.softmax(columns[:, : len(labels)]), labels


class BudgetedRegressor(Supervised, base.MiniBatchRegressor):
    """Kernel regression for streams, with a bounded number of support vectors.

    Scale the features first, with `preprocessing.StandardScaler`, and the targets, with
    `preprocessing.TargetStandardScaler`: the model starts at 0, has no intercept, and
    its default learning rate suits targets with deviation 1.

    Args:
      algorithm: "sgd" or "norma", or, on features of the kernel, "nystrom" and
        "fourier".
      budget, kernel, gamma, seed: as for `BudgetedClassifier`.
      options: further arguments of the algorithm's `init`, such as `learning_rate=0.1`,
        `average=True`, or `loss="huber"`; see `budgetjax.sgd.init`.

    Example:
      >>> from budgetjax.river import BudgetedRegressor
      >>> from river import datasets, evaluate, metrics, preprocessing
      >>> model = preprocessing.StandardScaler() | (
      ...     preprocessing.TargetStandardScaler(BudgetedRegressor(budget=50)))
      >>> found = evaluate.progressive_val_score(
      ...     datasets.TrumpApproval(), model, metrics.MAE())
      >>> found.get() < 1
      True

    References:
      See `budgetjax.sgd.init`.
    """

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """The target of a row, given as values by feature; 0 before the first row."""
        scores, _ = self._answer([x])
        return 0.0 if scores is None else float(scores[0, 0])

    def predict_many(self, X: Any) -> Any:
        """The targets of the rows of a data frame, as a series of numbers."""
        frame = dataframe.into_frame(X)
        scores, _ = self._answer(_rows_of(frame))
        found = np.zeros(len(frame)) if scores is None else scores[:, 0]
        found = found.astype(np.float64)
        return dataframe.to_native_series(found, name=None, like=frame)


class BudgetedOneClass(Online, base.AnomalyDetector):
    """Anomaly detection in streams, with a bounded number of support vectors.

    It is kernel regression of the constant 1: the model is close to 1 where rows are
    dense, and 0 far from all of them. The anomaly score is 1 minus the model. Scale the
    features first, with `preprocessing.StandardScaler`.

    Unlike `budgetjax.estimators.BudgetedOneClass`, it has no refit and no threshold:
    use `anomaly.QuantileFilter` for a threshold.

    Args:
      algorithm, budget, kernel, gamma, seed, options: as for `BudgetedRegressor`.

    Example:
      >>> from budgetjax.river import BudgetedOneClass
      >>> import random
      >>> draw = random.Random(0).gauss
      >>> model = BudgetedOneClass(budget=30)
      >>> for _ in range(500):
      ...     model.learn_one({"a": draw(0, 1), "b": draw(0, 1)})
      >>> far = model.score_one({"a": 5.0, "b": 5.0})
      >>> model.score_one({"a": 0.0, "b": 0.0}) < 0.5 < far
      True

    References:
      See `budgetjax.sgd.init`.
    """

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learns a row of values by feature; see `BudgetedClassifier.learn_one`."""
        self._learn(x, 1.0, 1.0)

    def learn_many(self, X: Any) -> None:
        """Learns the rows of a data frame one after the other, as `learn_one` does."""
        for x in _rows_of(X):
            self.learn_one(x)

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """The anomaly score, about 0 for rows like those learned; 1 without any."""
        scores, _ = self._answer([x])
        return 1.0 if scores is None else 1.0 - float(scores[0, 0])
