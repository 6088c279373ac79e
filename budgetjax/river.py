"""River estimators: the online learners, one row at a time and in mini-batches.

Any order of `learn_one` and `learn_many` gives the model of `budgetjax.run` on the same
rows, up to the rounding of sums, if the labels are two or known at the start. A row
costs little, because

* rows wait, and up to 64 of them are learned by one compiled program;
* a prediction needs the rows before it. It is made in NumPy, by the arrays of the
  model, and tells whether the row will change the model: one whose margin is safe goes
  on waiting, and the model for the next prediction is the one at hand.

Rows are dictionaries. A feature that is new becomes a column of zeros, one that is
missing is 0, and the number of columns doubles when they are all taken, so that few
programs are compiled.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from budgetjax import checks, kernels, models, support_set
from budgetjax.estimators import parameters
from budgetjax.kernels import NAMED, RBF, Kernel, Linear
from budgetjax.models import Labelled
from budgetjax.online import engine, registry
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.conservative import decayed_scale

try:
    from river import base
    from river.utils import dataframe
except ImportError as error:
    raise checks.missing("budgetjax.river", "river") from error

__all__ = ["BudgetedClassifier", "BudgetedOneClass", "BudgetedRegressor"]

# Rows that are learned at once: a program for them takes less than twice the time of
# one for a single row, most of which is the call itself.
WAITING = 64
# Columns of coefficients when a third label comes.
FEWEST_COLUMNS = 4
KERNELS: dict[str, Callable[[Any], Kernel]] = NAMED | {"linear": lambda gamma: Linear()}


class View(NamedTuple):
    """A model under a Gaussian kernel as arrays of NumPy.

    Attributes:
      vectors: the support vectors, shape `(rows, features)`.
      squares: their squared norms.
      coefficients: unscaled, shape `(rows, columns)`.
      scales: factors of the coefficients, one per number of rows after which nothing
        has changed, shape `(WAITING + 1,)`.
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
        """The scores of one row after so many quiet rows; O(rows features)."""
        # The caller raises where the model has overflowed.
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
    """The state after some rows, and its scale after as many that change nothing."""
    new, _ = algorithm.learn(state, X, y, weights)
    ahead = jnp.arange(WAITING + 1, dtype=jnp.int32)
    return new, decayed_scale(new.expansion.scale, algorithm.decay(new, ahead))


class Online(base.Estimator):
    """The rows that wait, and the model, of all three estimators."""

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
        """Nothing has been learned."""
        self._columns: dict[Any, int] = {}
        self._state: Any = None
        self._like: Kernel | None = None
        self._safe_margin: float | None = None
        self._scales: Any = None
        self._view: View | None = None
        self._scored: tuple[bytes, int, np.ndarray] | None = None
        self._quiet = 0
        self._clear(0)

    @property
    def features(self) -> tuple[Any, ...]:
        """The names of the features, in the order of the columns of `state`."""
        return tuple(self._columns)

    @property
    def state(self) -> Any:
        """The model, as a state for all functions of budgetjax; None before a row.

        It has the columns of `features`, and maybe more, of zeros.
        """
        self._learn_waiting()
        # A copy: the next row is learned in place.
        return None if self._state is None else jax.tree.map(jnp.array, self._state)

    @property
    def _where(self) -> str:
        return type(self).__name__

    @property
    def _num_classes(self) -> int | None:
        """The number of classes of the model, for `init`; None for real targets."""
        return None

    def _target(self, y: Any) -> float:
        """A target as the learner takes it; the model has room for it then."""
        if not math.isfinite(y):
            raise ValueError(f"{self._where}: y must be finite, got {y!r}")
        return float(y)

    @property
    def _width(self) -> int:
        return self._X.shape[1]

    @property
    def _raw_memory_usage(self) -> int:
        # The arrays of the state are held outside of Python.
        arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(self._state))
        return super()._raw_memory_usage + arrays

    def __getstate__(self) -> dict[str, Any]:
        # The view shows the state, and is made anew.
        return self.__dict__ | {"_view": None, "_scored": None}

    def _clear(self, width: int) -> None:
        """Fresh arrays for rows that wait: a program may still read the old ones."""
        self._X = np.zeros((WAITING, width), np.float32)
        self._y = np.ones(WAITING, np.float32)
        self._w = np.zeros(WAITING, np.float32)
        self._waiting = 0

    def _init(self, width: int, num_classes: int | None) -> Any:
        """An empty model of these sizes."""
        algorithm, arguments, _ = parameters.chosen(
            *(self._where, self.algorithm, self.options),
            num_classes=num_classes,
            seed=self.seed,
            refits=False,
        )
        state = algorithm.init(
            self._like, num_features=width, budget=self.budget, **arguments
        )
        # No two leaves may be one array, which cannot be given away twice.
        return jax.tree.map(jnp.array, state)

    def _kernel_of(self, num_features: int) -> Kernel:
        """The kernel, from its name and the features of the first row."""
        names = [name for name in KERNELS if name != "linear" or self.gamma is None]
        if isinstance(self.kernel, str) and self.kernel in names:
            usual = 1 / max(num_features, 1)
            gamma = usual if self.gamma is None else self.gamma
            return KERNELS[self.kernel](checks.positive(self._where, "gamma", gamma))
        if not isinstance(self.kernel, Kernel) or self.gamma is not None:
            raise ValueError(
                f"{self._where}: kernel must be one of {', '.join(KERNELS)}, or a "
                "budgetjax kernel, with gamma=None for that and for linear, got "
                f"{self.kernel!r} with gamma={self.gamma!r}"
            )
        return self.kernel

    def _grow(self, width: int, num_classes: int | None) -> None:
        """More columns of features or classes, all zeros, for what is to come."""
        self._learn_waiting()
        if self._state is not None:
            old = self._state.expansion.num_columns
            empty = self._init(width, num_classes)
            self._state = _grown(self._state, empty, old)
            self._view = self._scored = None
        self._clear(width)

    def _widen(self, names: Any) -> None:
        """Gives every feature a column."""
        new = sorted((name for name in names if name not in self._columns), key=repr)
        needed = len(self._columns) + len(new)
        if self._state is None:
            self._like = self._kernel_of(len(new))
            state = self._init(max(needed, 1), self._num_classes)
            self._set_first(state)
        elif needed > self._width:
            self._grow(max(needed, 2 * self._width), self._num_classes)
        for name in new:
            self._columns[name] = len(self._columns)

    def _set_first(self, state: Any) -> None:
        """The empty model, and what of it never changes."""
        self._state = state
        self._clear(models.num_features(self._where, state))
        safe_margin = registry.of_state(self._where, state).safe_margin
        if safe_margin is not None and self._seen_by_numpy(state):
            self._safe_margin = safe_margin(state)

    def _seen_by_numpy(self, state: Any) -> bool:
        """Whether NumPy computes the scores of the model that learns."""
        kernel = state.kernel
        gaussian = isinstance(kernel, RBF) and not kernel.exact
        return gaussian and state.expansion.average is None

    def _row(self, x: Mapping[Any, Any]) -> tuple[np.ndarray, bool]:
        """The values of a row in the order of the columns, and whether all are known.

        Those of unknown features are left out.
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
        # Errors say more than the warnings of NumPy.
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
        """Raises if a value is no number that float32 can square, or all together."""
        largest = float(np.finfo(np.float32).max)
        for name, value in x.items():
            try:
                fits = float(value) ** 2 <= largest
            except (TypeError, ValueError, OverflowError):
                fits = False
            if not fits:
                raise ValueError(
                    f"{self._where}: every feature must be a finite number whose "
                    f"square float32 can hold, got {value!r} for {name!r}; leave out "
                    "what is missing"
                )
        if sum(float(value) ** 2 for value in x.values()) > largest:
            raise ValueError(
                f"{self._where}: the sum of the squares of a row must be one that "
                "float32 can hold; scale the features"
            )

    def _learn(self, x: Mapping[Any, Any], y: Any, w: int | float) -> None:
        """One more row that waits."""
        if not 0 < w < math.inf:
            if w == 0:
                return
            raise ValueError(
                f"{self._where}: w must be finite and at least 0, got {w!r}"
            )
        row, known = self._row(x)
        if not known or self._state is None:
            self._check(x)
        target = self._target(y)
        if not known or self._state is None:
            self._widen(x)
            row, _ = self._row(x)
        i = self._waiting
        self._X[i] = row
        self._y[i] = target
        self._w[i] = w
        self._waiting = i + 1
        if self._waiting == WAITING:
            self._learn_waiting()

    def _learn_waiting(self) -> None:
        """Learns all rows that wait."""
        if not self._waiting:
            return
        size = 1 if self._waiting == 1 else WAITING
        X, y, w = self._X[:size], self._y[:size], self._w[:size]
        if self._state.expansion.num_columns > 1:
            y = y.astype(np.int32)
        algorithm = registry.of_state(self._where, self._state)
        # Before the arrays that they show are written.
        self._view = self._scored = None
        self._quiet = 0
        self._state, self._scales = _learned(algorithm, self._state, X, y, w)
        self._clear(self._width)
        engine.check_room(self._where, self._state)

    def _decide(self) -> None:
        """Learns the rows that wait, unless they leave the model as it is."""
        if self._quiet == self._waiting:
            return
        if self._safe_margin is not None and self._waiting == self._quiet + 1:
            i = self._quiet
            margin = _margin(self._scores(self._X[i]), self._y[i])
            if margin >= self._safe_margin:
                self._quiet += 1
                return
        self._learn_waiting()

    def _shown(self) -> View | None:
        """The model after all rows that have been learned."""
        if self._view is not None or not self._seen_by_numpy(self._state):
            return self._view
        state, expansion = self._state, self._state.expansion
        # An empty model scores 0 at any scale.
        scales = np.ones(1, np.float32) if self._scales is None else self._scales
        self._view = View(
            vectors=np.asarray(expansion.vectors),
            squares=np.asarray(expansion.squares),
            coefficients=np.asarray(expansion.terms),
            scales=np.asarray(scales),
            gamma=float(state.kernel.gamma),
        )
        return self._view

    def _scores(self, row: Float[np.ndarray, " features"]) -> np.ndarray:
        """The scores of one row by the model after the rows that are quiet."""
        key = row.tobytes()
        if self._scored is not None and self._scored[:2] == (key, self._quiet):
            return self._scored[2]
        view = self._shown()
        if view is None:
            return self._compiled(row[None])[0]
        scores = view.scores(row, self._quiet)
        self._check_finite(scores)
        self._scored = key, self._quiet, scores
        return scores

    def _compiled(self, rows: Float[np.ndarray, "n features"]) -> np.ndarray:
        """The scores of rows under any kernel, shape `(n, columns)`."""
        state = self._state
        if state.expansion.average is not None:
            state = support_set.averaged(state)
        scores = models.decision_function(Labelled(state), rows)
        scores = np.reshape(scores, (len(rows), -1))
        self._check_finite(scores)
        return scores

    def _check_finite(self, scores: np.ndarray) -> None:
        if not all(map(math.isfinite, scores.flat)):
            why = engine.cause(self._state, jnp.asarray(self._X[:1]))
            raise ValueError(
                f"{self._where}: every score must be finite, got {scores}: {why}"
            )

    def _scores_one(self, x: Mapping[Any, Any]) -> np.ndarray:
        """The scores of a row, after all rows so far."""
        row, _ = self._row(x)
        self._decide()
        return self._scores(row)

    def _scores_many(self, frame: Any) -> np.ndarray:
        """The scores of the rows of a frame, shape `(n, columns)`."""
        values = _values(frame)
        rows = np.zeros((len(values), self._width), np.float32)
        for i, name in enumerate(frame.columns):
            column = self._columns.get(name)
            if column is not None:
                rows[:, column] = values[:, i]
        self._decide()
        view = self._shown()
        if view is None:
            return self._compiled(rows)
        # One by one, so that they are those of `predict_one` to the last bit.
        scores = np.stack([view.scores(row, self._quiet) for row in rows])
        self._check_finite(scores)
        return scores

    def _rows_of(self, X: Any) -> Iterator[dict[Any, float]]:
        """The rows of a frame, as dictionaries."""
        frame = dataframe.into_frame(X)
        names = frame.columns
        for row in _values(frame).tolist():
            yield dict(zip(names, row, strict=True))


def _values(frame: Any) -> Float[np.ndarray, "n columns"]:
    """The numbers of a frame; one that is missing is 0."""
    return np.nan_to_num(dataframe.to_numpy(frame), posinf=np.inf, neginf=-np.inf)


def _series(y: Any) -> list[Any]:
    return dataframe.into_series(y).to_list()


def _weights(w: Any, number: int) -> list[Any]:
    return [w] * number if isinstance(w, int | float) else _series(w)


def _margin(scores: Float[np.ndarray, " columns"], y: Any) -> float:
    """As `budgetjax.losses.margin`."""
    if len(scores) == 1:
        return float(y * scores[0])
    others = scores.tolist()
    own = others.pop(int(y))
    return own - max(others)


def _grown(state: Any, empty: Any, columns: int) -> Any:
    """The state in the shapes of an empty one, with what that has where it is larger.

    One column of coefficients, of two classes, becomes two: what it says for a class is
    half of it in that column, and against the other half in the other.
    """
    wanted = empty.expansion.num_columns

    def grow(old, new):
        if old.shape == new.shape:
            return old
        if columns == wanted:
            return new.at[tuple(map(slice, old.shape))].set(old)
        # There may be sums of an average beside the coefficients.
        parts = old.reshape(*old.shape[:-1], -1, columns)
        if columns == 1:
            parts = jnp.concatenate([-parts / 2, parts / 2], axis=-1)
        more = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - parts.shape[-1])]
        return jnp.pad(parts, more).reshape(new.shape)

    new = jax.tree.map(grow, state, empty)
    # Columns that are not zeros are those of random features.
    squares = kernels.squared_norms(new.expansion.vectors)
    return new._replace(expansion=new.expansion._replace(squares=squares))


class BudgetedClassifier(Online, base.MiniBatchClassifier):
    """A kernel classifier for streams, with a bounded number of support vectors.

    Memory, and time per row, are bounded by the budget. Scale the features first, by
    `preprocessing.StandardScaler`.

    Labels may be of any kind, and come at any time. The model has one column of scores
    for up to two of them. A third makes that one column per label, with room for four,
    which doubles when a label more comes than there is room for.

    Args:
      algorithm: name of the algorithm: "arow", "pegasos", "passive_aggressive",
        "projectron", "alma", "perceptron", "sgd", "norma", "forgetron" (two labels),
        or, on features of the kernel, "nystrom" and "fourier", which draws the
        frequencies of features that come later then; or one of `budgetjax.register`.
      budget: maximum number of support vectors.
      kernel: "rbf", "laplacian", "poly", "sigmoid" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`. Rows are learned and predicted fastest with "rbf".
      gamma: parameter of all kernels but "linear". None is one over the number of
        features of the first row: the `budgetjax.default_gamma` of standardised ones.
      classes: labels that will come, if they are known: the model has one column each
        from the first row on, as `budgetjax.run` has.
      seed: seed of algorithms that draw.
      options: more arguments of the algorithm's `init`, such as `drift=0.01` for
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
        self._labels = [] if self.classes is None else list(self.classes)
        self._codes = {label: code for code, label in enumerate(self._labels)}
        self._room = max(2, len(self._labels))

    @property
    def _multiclass(self) -> bool:
        return self.algorithm != "forgetron"

    @property
    def _num_classes(self) -> int:
        return self._room

    @property
    def labels(self) -> tuple[Any, ...]:
        """The labels, in the order of the columns of `state`; of two, -1 and +1."""
        return tuple(self._labels)

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: int | float = 1.0) -> None:
        """Learns one row; O(budget features) as a part of 64, on average.

        Args:
          x: values by feature.
          y: label.
          w: weight, a factor of the update, at least 0. A row of weight 0 changes
            nothing.

        Raises:
          ValueError: if a value is no finite number, or a parameter does not fit.
          OverflowError: if the model is unbudgeted, and full.
        """
        self._learn(x, y, w)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learns the rows of a data frame one after the other, as `learn_one` does.

        Args:
          X: data frame. A missing value counts as a missing feature, 0.
          y: labels, a series.
          w: a weight for all rows, or a series of weights.
        """
        labels = _series(y)
        rows = zip(self._rows_of(X), labels, _weights(w, len(labels)), strict=True)
        for x, label, weight in rows:
            self.learn_one(x, label, weight)

    def predict_one(self, x: Mapping[Any, Any], **kwargs: Any) -> Any:
        """The label of the largest score, the first of equal ones.

        Args:
          x: values by feature. Features that have not been learned are ignored.
          kwargs: ignored.

        Returns:
          A label; None before the first one is known.
        """
        if self._state is None or len(self._labels) < 2:
            return self._labels[0] if self._labels else None
        return self._labels[self._best(self._scores_one(x)[None])[0]]

    def predict_proba_one(
        self, x: Mapping[Any, Any], **kwargs: Any
    ) -> dict[Any, float]:
        """The sigmoid of the score, or the softmax of the scores of the labels.

        They are probabilities after an algorithm with `loss="logistic"`; from others
        they have the right order, and are as bold as the margins are wide.

        Args:
          x: values by feature.
          kwargs: ignored.

        Returns:
          A number for each label that has come; empty before the first.
        """
        if self._state is None:
            shares = np.ones(len(self._labels)) / max(1, len(self._labels))
        else:
            shares = self._shares(self._scores_one(x)[None])[0]
        return dict(zip(self._labels, shares.tolist(), strict=True))

    def predict_many(self, X: Any) -> Any:
        """As `predict_one`, of the rows of a data frame.

        Args:
          X: data frame.

        Returns:
          A series of labels.
        """
        frame = dataframe.into_frame(X)
        if self._state is None or len(self._labels) < 2:
            found = [self._labels[0] if self._labels else None] * len(frame)
        else:
            best = self._best(self._scores_many(frame))
            found = [self._labels[code] for code in best]
        return dataframe.to_native_series(found, name=None, like=frame)

    def predict_proba_many(self, X: Any) -> Any:
        """As `predict_proba_one`, of the rows of a data frame.

        Args:
          X: data frame.

        Returns:
          A data frame with one column per label.
        """
        frame = dataframe.into_frame(X)
        if self._state is None:
            shape = len(frame), len(self._labels)
            shares = np.ones(shape) / max(1, len(self._labels))
        else:
            shares = self._shares(self._scores_many(frame))
        columns = dict(zip(self._labels, shares.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _target(self, y: Any) -> float:
        code = self._codes.get(y)
        if code is None:
            code = len(self._labels)
            if code == self._room:
                room = max(FEWEST_COLUMNS, 2 * self._room)
                self._grow(self._width, room)
                self._room = room
            self._labels.append(y)
            self._codes[y] = code
        return float(2 * code - 1 if self._room == 2 else code)

    def _best(self, scores: Float[np.ndarray, "n columns"]) -> list[int]:
        """The codes of the largest scores among the labels that have come."""
        if scores.shape[1] == 1:
            return (scores[:, 0] > 0).astype(int).tolist()
        return np.argmax(scores[:, : len(self._labels)], axis=1).tolist()

    def _shares(
        self, scores: Float[np.ndarray, "n columns"]
    ) -> Float[np.ndarray, "n labels"]:
        """The softmax of the scores of the labels that have come."""
        scores = scores.astype(np.float64)
        if scores.shape[1] == 1:
            scores = np.concatenate([0 * scores, scores], axis=1)
        scores = scores[:, : len(self._labels)]
        powers = np.exp(scores - np.max(scores, axis=1, keepdims=True))
        return powers / np.sum(powers, axis=1, keepdims=True)


class BudgetedRegressor(Online, base.MiniBatchRegressor):
    """Kernel regression for streams, with a bounded number of support vectors.

    Scale the features first, by `preprocessing.StandardScaler`, and the targets, by
    `preprocessing.TargetStandardScaler`: the model starts at 0, has no intercept, and
    its usual learning rate is for targets of deviation 1.

    Args:
      algorithm: "sgd" or "norma", or, on features of the kernel, "nystrom" and
        "fourier".
      budget, kernel, gamma, seed: as for `BudgetedClassifier`.
      options: more arguments of the algorithm's `init`, such as `learning_rate=0.1`,
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

    def learn_one(self, x: Mapping[Any, Any], y: Any, w: int | float = 1.0) -> None:
        """Learns one row; see `BudgetedClassifier.learn_one`.

        Args:
          x: values by feature.
          y: target, a finite number.
          w: weight.
        """
        self._learn(x, y, w)

    def learn_many(self, X: Any, y: Any, w: Any = 1.0) -> None:
        """Learns the rows of a data frame one after the other, as `learn_one` does.

        Args:
          X: data frame. A missing value counts as a missing feature, 0.
          y: targets, a series.
          w: a weight for all rows, or a series of weights.
        """
        targets = _series(y)
        rows = zip(self._rows_of(X), targets, _weights(w, len(targets)), strict=True)
        for x, target, weight in rows:
            self.learn_one(x, target, weight)

    def predict_one(self, x: Mapping[Any, Any]) -> float:
        """The target of a row; 0 before the first.

        Args:
          x: values by feature. Features that have not been learned are ignored.
        """
        return 0.0 if self._state is None else float(self._scores_one(x)[0])

    def predict_many(self, X: Any) -> Any:
        """As `predict_one`, of the rows of a data frame.

        Args:
          X: data frame.

        Returns:
          A series of numbers.
        """
        frame = dataframe.into_frame(X)
        if self._state is None:
            found = np.zeros(len(frame))
        else:
            found = self._scores_many(frame)[:, 0].astype(np.float64)
        return dataframe.to_native_series(found, name=None, like=frame)


class BudgetedOneClass(Online, base.AnomalyDetector):
    """A detector of anomalies in streams, with a bounded number of support vectors.

    Kernel regression of the constant 1: where rows are many the model is near 1, and
    far from all of them it is 0. The anomaly score is 1 less the model. Scale the
    features first, by `preprocessing.StandardScaler`.

    Unlike `budgetjax.estimators.BudgetedOneClass` it never solves for coefficients or
    a threshold: put it into `anomaly.QuantileFilter` for one.

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
        """Learns one row; see `BudgetedClassifier.learn_one`.

        Args:
          x: values by feature.
        """
        self._learn(x, 1.0, 1.0)

    def learn_many(self, X: Any) -> None:
        """Learns the rows of a data frame one after the other.

        Args:
          X: data frame. A missing value counts as a missing feature, 0.
        """
        for x in self._rows_of(X):
            self.learn_one(x)

    def score_one(self, x: Mapping[Any, Any]) -> float:
        """The anomaly score, about 0 for rows like those learned; 1 before the first.

        Args:
          x: values by feature.
        """
        return 1.0 if self._state is None else 1.0 - float(self._scores_one(x)[0])
