"""River estimators: online learners, one row at a time or in mini-batches.

Any mix of `learn_one` and `learn_many` gives the model of `budgetjax.run` on the same
rows, up to the rounding of sums, if there are two labels or they are known at the
start. A row costs little, because

* rows wait, and one compiled program learns up to 64 of them;
* a prediction needs all earlier rows. NumPy computes it from the arrays of the model,
  and it tells whether the row will change the model: a row with a safe margin keeps
  waiting, and the same model serves the next prediction.

The rows in the queue are quiet, which means that they do not change the model, or
undecided::

    learn_one --> | quiet rows | undecided rows |
                                     |
        a prediction, and the margin of the only undecided row is safe: it is quiet
        any other prediction, 64 rows, a new column, `state`:           learn all
                                                                          |
    view for NumPy <-- at the first prediction afterwards -- state <------+

The scale of the coefficients decays in quiet rows too; `View.scales` has it after each
number of them.

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
import dataclasses
import functools
import math
import numbers
import threading
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Shaped

from budgetjax import _checks, _forks
from budgetjax._errors import ArgumentError, names_class, names_errors, warn
from budgetjax.kernels import RBF, Kernel
from budgetjax.model import predict_interval
from budgetjax.online import defaults, driver
from budgetjax.online.changes import average_iterates
from budgetjax.online.engine import decayed_scale
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import State
from budgetjax.online.support_set import Expansion
from budgetjax.refitting import calibration
from budgetjax.scoring import squeeze_columns
from budgetjax.tables import scaling
from budgetjax.tables.categories import read_records
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel

with names_errors("budgetjax.river"):
    _checks.import_optional("river")
    from river import base
    from river.conf import Interval
    from river.utils import dataframe

__all__ = ["BudgetedClassifier", "BudgetedOneClass", "BudgetedRegressor", "Encoder"]

# Rows that are learned at once. A single row uses the same program, since most of its
# time is the call itself.
WAITING = 64
# Columns of coefficients after a third label, and columns of features.
FEWEST_COLUMNS, FEWEST_FEATURES = 8, 16

# Values by feature; values that are no numbers raise.
Row: TypeAlias = Mapping[Hashable, Any]
# Data frames and series of any library that narwhals knows.
Frame: TypeAlias = Any
Series: TypeAlias = Any
# Labels of any type; river's own are booleans, text and integers.
Label: TypeAlias = Any
Scores: TypeAlias = Float[np.ndarray, " columns"]
Own = TypeVar("Own", bound="Online")


@dataclasses.dataclass
class Queue:
    """The `size` rows that wait to be learned; rows after the last have weight 0.

    The first `quiet` of them do not change the model.
    """

    X: Float32[np.ndarray, "waiting features"]
    y: Float32[np.ndarray, " waiting"]
    weights: Float32[np.ndarray, " waiting"]
    size: int = 0
    quiet: int = 0

    @classmethod
    def empty(cls, num_features: int) -> "Queue":
        """A queue with new arrays; a program may still read those of the last one."""
        weights = np.zeros(WAITING, np.float32)
        return cls(np.zeros((WAITING, num_features), np.float32), weights + 1, weights)


class View(NamedTuple):
    """A model with a Gaussian kernel as NumPy arrays.

    `scales` has the factor of the coefficients after each number of quiet rows, and
    `last` the last number of quiet rows, row and scores; it is empty before.
    """

    origin: Float[np.ndarray, " features"]
    vectors: Float[np.ndarray, "rows features"]
    squares: Float[np.ndarray, " rows"]
    coefficients: Float[np.ndarray, "rows columns"]
    scales: Float[np.ndarray, " ticks"]
    gamma: float
    last: dict[tuple[int, bytes], Scores]

    def scores(self, row: Float[np.ndarray, " features"], quiet: int) -> Scores:
        """The scores of one row after so many quiet rows; O(rows features)."""
        key = quiet, row.tobytes()
        scores = self.last.get(key)
        if scores is not None:
            return scores
        # The caller raises if the model has overflowed.
        with np.errstate(over="ignore", invalid="ignore"):
            row = row - self.origin
            distances = self.squares + row.dot(row) - 2 * self.vectors.dot(row)
            kernel_row = np.exp(-self.gamma * np.maximum(distances, 0))
            scores = self.scales[quiet] * kernel_row.dot(self.coefficients)
        self.last.clear()
        self.last[key] = scores
        return scores


@functools.partial(jax.jit, donate_argnums=0, static_argnums=4)
def learn_rows(
    state: Any,
    X: Float[Array, "size features"],
    y: Shaped[Array, " size"],
    weights: Float[Array, " size"],
    in_numpy: bool,
) -> tuple[Any, Float[Array, " ticks"]]:
    """The state after some rows, and its scale after each number of quiet rows."""
    new, _ = state.choose_origin(X, weights).learn(X, y, weights)
    if not in_numpy:
        return new, jnp.ones(1, new.dtype)
    ahead = jnp.arange(WAITING + 1, dtype=jnp.int32)
    return new, decayed_scale(new.expansion.scale, new.learner.decay(new, ahead))


def resize(state: Any, like: Any) -> Any:
    """A copy of the state in the shapes of another, which provides new values.

    The number of features or columns may grow or shrink. The single column of two
    classes becomes two, with half of the coefficients and half of their negatives.
    """
    columns, wanted = state.num_columns, like.num_columns

    def resize_leaf(old: Array, new: Array) -> Array:
        if old.shape == new.shape:
            return jnp.array(old)
        # In NumPy, since JAX would compile a program for every shape.
        values, resized = np.asarray(old), np.array(new)
        if columns == wanted:
            part = tuple(map(slice, np.minimum(values.shape, resized.shape)))
            resized[part] = values[part]
            return jnp.array(resized)
        # The coefficients may be followed by the sums of an average.
        parts = values.reshape(*values.shape[:-1], -1, columns)
        if columns == 1:
            parts = np.concatenate([-parts / 2, parts / 2], axis=-1)
        parts = parts[..., :wanted]
        padding = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - parts.shape[-1])]
        return jnp.array(np.pad(parts, padding).reshape(resized.shape))

    new = jax.tree.map(resize_leaf, state, like)
    new = jax.tree.map(_with_squares, new, is_leaf=_is_expansion)
    if columns == 1 < wanted:
        # Two columns of halves have another norm, by which a ball bounds the model.
        new = _with_own_arrays(new.refreshed())
    return new


def _is_expansion(part: object) -> bool:
    return isinstance(part, Expansion)


def _with_squares(part: Any) -> Any:
    """A support set with new squares; random features fill new columns with values."""
    if not _is_expansion(part):
        return part
    squares = np.sum(np.square(np.asarray(part.vectors)), axis=-1)
    return part._replace(squares=jnp.array(squares))


def _with_own_arrays(state: Any) -> Any:
    """A copy in which no two leaves share an array, which cannot be donated twice."""
    return jax.tree.map(jnp.array, state)


class Online(base.Estimator):
    """The base of all three estimators: the queue and the model."""

    def __init__(
        self,
        learner: OnlineLearner | str = "auto",
        *,
        budget: int = defaults.BUDGET,
        kernel: str | Kernel = "rbf",
        gamma: float | None = None,
        maintenance: Maintenance | str | None = None,
        average: bool | int = False,
        seed: int = 0,
    ):
        self.learner = learner
        self.budget = budget
        self.kernel = kernel
        self.gamma = gamma
        self.maintenance = maintenance
        self.average = average
        self.seed = seed
        self._start()
        with names_errors(type(self).__name__):
            chosen = defaults.learner_of(learner, self._room, refits=False)
            choices = {"kernel": (kernel, "rbf"), "gamma": (gamma, None)}
            defaults.check_alone(chosen, choices)
        self._takes = chosen.takes

    def _start(self) -> None:
        """Resets to a model that has learned nothing."""
        # Held while the attributes below are changed, or several are read.
        self._lock = threading.RLock()
        self._columns: dict[Hashable, int] = {}
        # The numbers of the labels so far, in order, and of columns for them; None for
        # a regressor.
        self._codes: dict[Label, int] = {}
        self._room: int | None = None
        self._queue = Queue.empty(0)
        self._seen_weights = SeenWeights()
        # The first rows, until their scale has been checked.
        self._first_rows: list[np.ndarray] | None = []
        # The model after all rows that were learned, its scale after each number of
        # quiet rows, and the same for NumPy, once it has been asked for.
        self._state: Any = None
        self._scales: Array | np.ndarray = np.ones(1, np.float32)
        self._view: View | None = None
        # What the first row decides: the kernel, whether NumPy computes the scores of
        # the model that learns, and the margin of rows that do not change it.
        self._kernel: Kernel | None = None
        self._in_numpy = False
        self._no_update_above: float | None = None

    @property
    def features(self) -> tuple[Hashable, ...]:
        """The names of the features, in the order of the columns of `state`."""
        with self._lock:
            return tuple(self._columns)

    @property
    @names_class
    def state(self) -> Any:
        """The model, a state for all functions of budgetjax; None before the first row.

        It is a copy, with one column per feature of `features` and one per label.
        """
        with self._lock:
            self._learn_queue()
            if self._state is None:
                return None
            labels = None if self._room is None else max(2, len(self._codes))
            return self._resized_state(max(len(self._columns), 1), labels)

    def _encode(self, y: Hashable) -> float:
        """A target in the learner's form; makes room for a new label."""
        if not isinstance(y, numbers.Real) or not math.isfinite(y):
            got = f"{y!r}; leave out rows without one"
            raise ArgumentError("y", "be a finite number", got)
        return float(y)

    @property
    def _width(self) -> int:
        return self._queue.X.shape[1]

    @property
    def _raw_memory_usage(self) -> int:
        # The arrays of the state are held outside of Python.
        with self._lock:
            arrays = sum(leaf.nbytes for leaf in jax.tree.leaves(self._state))
            return super()._raw_memory_usage + arrays

    def clone(
        self: Own,
        new_params: dict[str, Any] | None = None,
        include_attributes: bool = False,
    ) -> Own:
        new = super().clone(new_params)
        if include_attributes:
            # All at once: a lock alone, as river would copy it, cannot be copied.
            learned = vars(copy.deepcopy(self))
            given = new._get_params()
            vars(new).update({k: v for k, v in learned.items() if k not in given})
        return new

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            # Copies, since the model may learn more before they are written.
            known = {
                name: copy.copy(value)
                for name, value in vars(self).items()
                if name not in ("_lock", "_queue", "_state", "_view")
            }
            return known | {
                "_queue": copy.deepcopy(self._queue),
                "_state": jax.tree.map(jnp.array, self._state),
            }

    def __setstate__(self, known: dict[str, Any]) -> None:
        vars(self).update(known)
        # The view is computed from the state; a lock belongs to one process.
        self._lock, self._view = threading.RLock(), None

    def _init(self, width: int, num_classes: int | None) -> Any:
        """An empty model with these sizes."""
        learner, arguments, _ = defaults.choose(
            self.learner,
            num_classes=num_classes,
            seed=self.seed,
            refits=False,
            maintenance=self.maintenance,
            average=self.average,
        )
        assert self._kernel is not None, "the first row decides it"
        return learner.init(
            self._kernel, num_features=width, budget=self.budget, **arguments
        )

    def _resized_state(self, width: int, num_classes: int | None) -> Any:
        """A copy of the state with these numbers of features and of classes."""
        wide = resize(self._state, self._init(width, self._room))
        return resize(wide, self._init(width, num_classes))

    def _grow(self, width: int, num_classes: int | None) -> None:
        """Adds columns of zeros for new features or classes."""
        self._learn_queue()
        if self._state is not None:
            self._state, self._view = self._resized_state(width, num_classes), None
        self._queue = Queue.empty(width)

    def _add_features(self, names: Iterable[Hashable]) -> None:
        new = sorted((name for name in names if name not in self._columns), key=repr)
        needed = len(self._columns) + len(new)
        if self._state is None:
            self._start_model(needed)
        elif needed > self._width:
            self._grow(self._room_for(needed), self._room)
        for name in new:
            self._columns[name] = len(self._columns)

    def _start_model(self, num_features: int) -> None:
        default = 1 / max(num_features, 1)
        self._kernel = defaults.kernel_of(
            self.kernel, self.gamma, None, lambda: default
        )
        width = self._room_for(num_features)
        state = self._init(width, self._room)
        self._state = _with_own_arrays(state)
        self._queue = Queue.empty(width)
        single = isinstance(state, State) and not state.averages
        # A learner may have replaced the kernel, as random features do.
        kernel = state.kernel if single else None
        self._in_numpy = isinstance(kernel, RBF) and not kernel.exact
        if self._in_numpy:
            self._no_update_above = state.learner.no_update_above(state)

    def _room_for(self, needed: int) -> int:
        """The number of columns for features: few widths, so few programs are compiled.

        A kernel, learner or strategy with one number per feature allows one width only.
        """
        given = self._kernel, self.learner, self.maintenance
        if any(map(np.ndim, jax.tree.leaves(given))):
            return needed
        return max(FEWEST_FEATURES, 1 << (needed - 1).bit_length())

    def _row(self, x: Row) -> tuple[Float32[np.ndarray, " features"], bool]:
        """The values of known features in the order of the columns, and if all are."""
        known, columns = True, self._columns
        values = [0.0] * self._width
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
                row = np.full(1, np.nan, np.float32)
            fits = row.dot(row) < np.inf
        if not fits:
            self._check(x)
        return row, known

    def _check(self, x: Row) -> None:
        """Raises if a value is not a number, or squares overflow float32."""
        total = 0.0
        for name, value in x.items():
            try:
                total += float(value) ** 2
            except (TypeError, ValueError, OverflowError):
                total = math.nan
            if not total <= float(np.finfo(np.float32).max):
                raise ArgumentError(
                    "every feature",
                    "be a finite number, and the sum of the squares of a row one "
                    "that float32 can hold",
                    f"{value!r} for {name!r}; leave out what is missing, or fill "
                    "it in, and scale the features",
                )

    @names_class
    def _learn(self, x: Row, y: Hashable, w: int | float) -> None:
        """Puts a row into the queue."""
        if not 0 < w < math.inf:
            if w == 0:
                return
            raise ArgumentError("w", "be finite and at least 0", f"{w!r}")
        with self._lock:
            row, known = self._row(x)
            new = not known or self._state is None
            if new:
                self._check(x)
            target = self._encode(y)
            if new:
                self._add_features(x)
                row, _ = self._row(x)
            queue = self._queue
            i, queue.size = queue.size, queue.size + 1
            queue.X[i], queue.y[i] = row, target
            self._seen_weights = self._seen_weights.after(w)
            queue.weights[i] = w / self._seen_weights.typical
            if self._first_rows is not None:
                self._check_scale(row)
            if queue.size == WAITING:
                self._learn_queue()

    def _check_scale(self, row: Float[np.ndarray, " features"]) -> None:
        """Warns, once, if the first rows look unscaled."""
        self._first_rows = [*(self._first_rows or ()), row]
        if len(self._first_rows) < scaling.ENOUGH_ROWS:
            return
        X = np.zeros((len(self._first_rows), self._width))
        for i, first in enumerate(self._first_rows):
            X[i, : len(first)] = first
        self._first_rows = None
        kernel = self._kernel
        centred = kernel is not None and kernel.shifts
        message = scaling.scale_warning(X, centred=centred)
        if message is None and self.gamma is None and isinstance(kernel, RBF):
            gamma = float(np.asarray(kernel.gamma))
            usual = scaling.default_gamma_from_distances(scaling.squared_distances(X))
            ratio = gamma / (usual or gamma)
            if not 1 / scaling.TOO_UNEVEN < ratio < scaling.TOO_UNEVEN:
                message = (
                    "features look unscaled: the usual gamma of standardised ones is "
                    f"{gamma:.3g}, and that of the first {len(X)} rows is {usual:.3g}; "
                    "standardise them, or give gamma"
                )
        if message is not None:
            warn(f"{type(self).__name__}: {message}")

    def _learn_queue(self) -> None:
        queue = self._queue
        if not queue.size:
            return
        _forks.check()
        several = self._state.num_columns > 1
        y = queue.y.astype(np.int32) if several else queue.y
        # Dropped before its arrays are overwritten. JAX copies arrays that another
        # thread still uses.
        self._view = None
        given = queue.X, y, queue.weights
        if queue.size == 1 and self._state.learner.chooses_kernel:
            # Its experts work in every row, also in one without a weight.
            given = tuple(part[:1] for part in given)
        self._state, self._scales = learn_rows(self._state, *given, self._in_numpy)
        self._queue = Queue.empty(self._width)
        self._state.check_room()

    def _learn_unless_quiet(self) -> None:
        queue = self._queue
        i = queue.quiet
        if i == queue.size:
            return
        if self._no_update_above is not None and queue.size == i + 1:
            scores = self._current_view().scores(queue.X[i], i)
            self._check_finite(scores)
            if _margin(scores, queue.y[i]) >= self._no_update_above:
                queue.quiet += 1
                return
        self._learn_queue()

    def _current_view(self) -> View:
        """The model after all learned rows."""
        if self._view is None:
            expansion = self._state.expansion
            # In NumPy, columns are taken without a program.
            expansion = expansion._replace(
                coefficients_and_sums=np.asarray(expansion.coefficients_and_sums)
            )
            self._view = View(
                origin=np.asarray(expansion.origin),
                vectors=np.asarray(expansion.vectors),
                squares=np.asarray(expansion.squares),
                coefficients=expansion.coefficients,
                scales=np.asarray(self._scales),
                gamma=float(self._state.kernel.gamma),
                last={},
            )
        return self._view

    def _check_finite(self, scores: Shaped[np.ndarray, "..."]) -> None:
        if not all(map(math.isfinite, scores.flat)):
            with self._lock:
                first = jnp.asarray(self._queue.X[:1])
                why = driver.explain_overflow(self._state, first)
            raise ArgumentError("every score", "be finite", f"{scores}: {why}")

    @names_class
    def _score_rows(
        self, rows: list[Row]
    ) -> tuple[Float[np.ndarray, "n columns"], tuple[Label, ...]]:
        """The scores of rows by the model so far, 0 without one, and the labels."""
        with self._lock:
            labels = tuple(self._codes)
            if self._state is None:
                return np.zeros((len(rows), self._room or 1)), labels
            X = [self._row(x)[0] for x in rows]
            self._learn_unless_quiet()
            quiet, state = self._queue.quiet, self._state
            columns = state.num_columns
            if not self._in_numpy:
                if state.averages:
                    state = average_iterates(state)
                X = np.array(X, np.float32).reshape(-1, self._width)
                scores = TableModel(state).decision_function(X)
                self._check_finite(scores)
                return scores.reshape(-1, columns), labels
            view = self._current_view()
        # One by one, so that the scores do not depend on the number of rows.
        scores = np.array([view.scores(row, quiet) for row in X])
        self._check_finite(scores)
        return scores.reshape(-1, columns), labels


def _rows_of(X: Frame) -> Iterator[dict[Hashable, float]]:
    """The rows of a data frame, as dictionaries."""
    frame = dataframe.into_frame(X)
    names = frame.columns
    for row in dataframe.to_numpy(frame).tolist():
        yield dict(zip(names, row, strict=True))


def _margin(scores: Scores, y: np.floating) -> float:
    """The margin, as in `budgetjax.losses.margin`."""
    if len(scores) == 1:
        return float(y * scores[0])
    others = scores.tolist()
    score = others.pop(int(y))
    return score - max(others)


class Supervised(Online):
    """The base of estimators that learn a label or a target."""

    def _predict(self, rows: list[Row]) -> list[Label] | Float[np.ndarray, " n"]:
        """The labels, or the targets, of rows."""
        raise NotImplementedError

    def predict_many(self, X: Frame) -> Series:
        """The predictions for the rows of a data frame, as a series."""
        frame = dataframe.into_frame(X)
        predicted = self._predict([*_rows_of(frame)])
        return dataframe.to_native_series(predicted, name=None, like=frame)

    def learn_one(self, x: Row, y: Hashable, w: int | float = 1.0) -> None:
        """Learns one row; O(budget features) on average, in batches of 64.

        Args:
          x: values by feature, finite numbers; a missing feature is 0.
          y: the label or target.
          w: the weight, at least 0, of any scale: it is divided by the typical weight
            so far, the square of the mean root. A row of weight 0 changes nothing.

        Raises:
          ValueError: if a value is not a finite number, the label is missing, or a
            parameter is invalid.
          OverflowError: if the model is unbudgeted and full.

        Warns:
          UserWarning: if the first 50 rows look unscaled.
        """
        self._learn(x, y, w)

    def learn_many(self, X: Frame, y: Series, w: int | float | Series = 1.0) -> None:
        """Learns the rows of a data frame one after the other, as `learn_one` does.

        `y` is a series; `w` is a weight for all rows, or a series of weights.
        """
        targets = dataframe.into_series(y).to_list()
        same = isinstance(w, int | float)
        weights = [w] * len(targets) if same else dataframe.into_series(w).to_list()
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
      learner: one with its hyperparameters, such as `budgetjax.Pegasos()`, or "auto"
        for `budgetjax.AROW()`. A stream that drifts all the time asks for
        `budgetjax.AROW(drift=0.01)`; `budgetjax.Forgetron` is for two labels only, and
        `budgetjax.Fourier` draws frequencies for a new feature when it appears.
      budget: the maximum number of support vectors.
      kernel: "rbf", "laplacian", "poly", "sigmoid" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`. Rows are learned and predicted fastest with "rbf".
      gamma: the parameter of all kernels but "linear". None is one divided by the
        number of features of the first row, which is `budgetjax.default_gamma` of
        standardised features.
      maintenance, average: as for `budgetjax.Learner.init`; a strategy may be given by
        name, such as "remove_oldest". Predictions are those of the average, if there is
        one.
      classes: the labels that will occur, if known: the model then has one column per
        label from the first row, as with `budgetjax.run`.
      seed: the seed of random draws.

    Example:
      >>> from budgetjax.river import BudgetedClassifier
      >>> from river import datasets, evaluate, metrics, preprocessing
      >>> model = preprocessing.StandardScaler() | BudgetedClassifier(budget=50)
      >>> found = evaluate.progressive_val_score(
      ...     datasets.Phishing(), model, metrics.Accuracy())
      >>> found.get() > 0.85
      True

    References:
      See the learner, such as `budgetjax.AROW`.
    """

    def __init__(
        self,
        learner: OnlineLearner | str = "auto",
        *,
        budget: int = defaults.BUDGET,
        kernel: str | Kernel = "rbf",
        gamma: float | None = None,
        maintenance: Maintenance | str | None = None,
        average: bool | int = False,
        classes: tuple[Label, ...] | None = None,
        seed: int = 0,
    ):
        self.classes = classes
        super().__init__(
            learner,
            budget=budget,
            kernel=kernel,
            gamma=gamma,
            maintenance=maintenance,
            average=average,
            seed=seed,
        )

    def _start(self) -> None:
        super()._start()
        labels = () if self.classes is None else self.classes
        self._codes = {label: code for code, label in enumerate(labels)}
        self._room = max(2, len(self._codes))

    @property
    def _multiclass(self) -> bool:
        return "num_classes" in self._takes

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels, in the order of the columns of `state`, or of -1 and +1."""
        return tuple(self._codes)

    def predict_one(self, x: Row, **kwargs: object) -> Label:
        """The label of the largest score, the first on ties; None before any label.

        Unknown features and `kwargs` are ignored.
        """
        return self._predict([x])[0]

    def predict_proba_one(self, x: Row, **kwargs: object) -> dict[Label, float]:
        """The sigmoid of the score, or the softmax of the scores, by label so far.

        With `budgetjax.SGD(loss=budgetjax.losses.logistic)` they are probabilities.
        Otherwise they have the right order, but their confidence depends on the scale
        of the margins.
        """
        probabilities, labels = self._probabilities([x])
        return dict(zip(labels, probabilities[0].tolist(), strict=True))

    def predict_proba_many(self, X: Frame) -> Frame:
        """The probabilities of the rows of a data frame, with one column per label."""
        frame = dataframe.into_frame(X)
        probabilities, labels = self._probabilities([*_rows_of(frame)])
        columns = dict(zip(labels, probabilities.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _encode(self, y: Hashable) -> float:
        if y is None or y != y:
            raise ArgumentError("y", "be a label", f"{y!r}; leave out rows without one")
        code = self._codes.get(y)
        if code is None:
            code = len(self._codes)
            if code == self._room:
                room = max(FEWEST_COLUMNS, 1 << code.bit_length())
                self._grow(self._width, room)
                self._room = room
            self._codes[y] = code
        return float(2 * code - 1 if self._room == 2 else code)

    def _predict(self, rows: list[Row]) -> list[Label]:
        """The labels of the largest scores among the labels so far."""
        scores, labels = self._score_rows(rows)
        if not labels:
            return [None] * len(rows)
        columns = calibration.class_columns(squeeze_columns(scores))
        best = np.argmax(columns[:, : len(labels)], axis=1)
        return [labels[code] for code in best.tolist()]

    def _probabilities(
        self, rows: list[Row]
    ) -> tuple[Float[np.ndarray, "n labels"], tuple[Label, ...]]:
        """The softmax of the scores of the labels so far, and the labels."""
        scores, labels = self._score_rows(rows)
        if not labels:
            return np.zeros((len(rows), 0)), labels
        columns = calibration.class_columns(squeeze_columns(scores))
        return calibration.softmax(columns[:, : len(labels)]), labels


class BudgetedRegressor(Supervised, base.MiniBatchRegressor):
    """Kernel regression for streams, with a bounded number of support vectors.

    Scale the features first, with `preprocessing.StandardScaler`, and the targets, with
    `preprocessing.TargetStandardScaler`: the model starts at 0, has no intercept, and
    its default learning rate suits targets with deviation 1.

    Args:
      learner: one of real targets, such as `budgetjax.SGD(learning_rate=0.1)` or
        `budgetjax.SGD(loss=budgetjax.losses.huber)`; "auto" for `budgetjax.SGD()`. With
        `budgetjax.Mixture()` there is no kernel to choose, and predictions have
        intervals; a row costs some milliseconds.
      budget, kernel, gamma, maintenance, average, seed: as for `BudgetedClassifier`.

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
      See `budgetjax.SGD`.
    """

    @overload
    def predict_one(
        self, x: Row, with_interval: Literal[False] = False, *, level: float = 0.9
    ) -> float: ...
    @overload
    def predict_one(
        self, x: Row, with_interval: Literal[True], *, level: float = 0.9
    ) -> Interval: ...
    def predict_one(
        self, x: Row, with_interval: bool = False, *, level: float = 0.9
    ) -> Any:
        """The target of a row, given as values by feature; 0 before the first row.

        Args:
          x: unknown features are ignored.
          with_interval: whether to give an `Interval` of river instead, as
            `budgetjax.predict_interval` does, of a learner that knows its variance:
            `budgetjax.KRLST` or a `budgetjax.Mixture`. It costs O(budget^2) more.
          level: the share of targets that shall lie in it, between 0 and 1.
        """
        if not with_interval:
            return float(self._predict([x])[0])
        return self._interval(x, level)

    @names_class
    def _interval(self, x: Row, level: float) -> Interval:
        with self._lock:
            if self._state is None:
                return Interval(-math.inf, math.inf)
            row, _ = self._row(x)
            self._learn_queue()
            (ends,) = predict_interval(self._state, row[None], level)
            lower, upper = np.asarray(ends, np.float64).tolist()
        return Interval(lower, upper)

    def _predict(self, rows: list[Row]) -> Float[np.ndarray, " n"]:
        scores, _ = self._score_rows(rows)
        return scores[:, 0].astype(np.float64)


class BudgetedOneClass(Online, base.AnomalyDetector):
    """Anomaly detection in streams, with a bounded number of support vectors.

    It is kernel regression of the constant 1: the model is close to 1 where rows are
    dense, and 0 far from all of them. The anomaly score is 1 minus the model. Scale the
    features first, with `preprocessing.StandardScaler`.

    Unlike `budgetjax.estimators.BudgetedOneClass`, it has no refit and no threshold:
    use `anomaly.QuantileFilter` for a threshold.

    Args:
      learner, budget, kernel, gamma, maintenance, average, seed: as for
        `BudgetedRegressor`.

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
      See `budgetjax.SGD`.
    """

    def learn_one(self, x: Row) -> None:
        """Learns a row of values by feature; see `BudgetedClassifier.learn_one`."""
        self._learn(x, 1.0, 1.0)

    def learn_many(self, X: Frame) -> None:
        """Learns the rows of a data frame one after the other, as `learn_one` does."""
        for x in _rows_of(X):
            self.learn_one(x)

    def score_one(self, x: Row) -> float:
        """The anomaly score, about 0 for rows like those learned; 1 without any."""
        scores, _ = self._score_rows([x])
        return 1.0 - float(scores[0, 0])


class Encoder(base.MiniBatchTransformer):
    """Columns as codes, before a learner in a pipeline; see `budgetjax.encoding`.

    The encoding is fitted beforehand, on a sample of rows: it does not learn. A feature
    that a row lacks, or that is None, is a missing value, and texts are categories.
    Cost: some 0.1 ms per row, and that of `budgetjax.encoding.Encoding.apply`.

    Args:
      encoding: from `budgetjax.encoding.fit`.
      features: the names of its columns, in their order.

    Example:
      >>> from budgetjax.river import BudgetedClassifier, Encoder
      >>> X = np.array([[0.0, 3.0], [1.0, 5.0], [2.0, 9.0]])
      >>> encoder = Encoder(bj.encoding.fit(X, num_bins=2), ["price", "age"])
      >>> encoder.transform_one({"price": 1.0, "age": 9.0, "other": 7.0})
      {'code 0': 1.0, 'code 1': 0.0, 'code 2': 1.0, 'code 3': 1.0}
      >>> model = encoder | BudgetedClassifier(budget=20)
    """

    def __init__(self, encoding: Encoding, features: Iterable[Hashable]):
        self.encoding, self.features = encoding, list(features)

    @property
    def names(self) -> list[str]:
        """The names of the codes."""
        return [f"code {i}" for i in range(self.encoding.num_features)]

    @names_class
    def transform_one(self, x: Row) -> dict[Any, float]:
        """The codes of a row by name."""
        return dict(zip(self.names, self._codes([x])[0].tolist(), strict=True))

    @names_class
    def transform_many(self, X: Frame) -> Frame:
        """The codes of the rows of a data frame, one column each."""
        frame = dataframe.into_frame(X)
        codes = self._codes([*_rows_of(frame)])
        columns = dict(zip(self.names, codes.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _codes(self, rows: list[Row]) -> Float32[np.ndarray, "n codes"]:
        known = dict(self.encoding.categories)
        return self.encoding.apply(read_records(rows, self.features, known))
