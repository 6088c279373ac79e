"""The base of the estimators: a queue of rows, and the model that learns them.

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
import math
import numbers
import threading
from collections.abc import Hashable, Iterable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Float32, Shaped
from river import base
from river.utils import dataframe

from budgetjax import _forks
from budgetjax._errors import ArgumentError, names_class, names_errors, warn
from budgetjax.kernels import RBF, Kernel
from budgetjax.online import defaults, driver
from budgetjax.online.changes import average_iterates
from budgetjax.online.importance import SeenWeights
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import State
from budgetjax.river.frames import Frame, Label, Row, Series, rows_of
from budgetjax.river.queue import WAITING, Queue, View, learn_rows, margin
from budgetjax.river.resizing import resize, with_own_arrays
from budgetjax.tables import scaling
from budgetjax.tables.table_model import TableModel

# The fewest columns for features; see `Online._room_for`.
FEWEST_FEATURES = 16

Own = TypeVar("Own", bound="Online")


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
        self._state = with_own_arrays(state)
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
            if margin(scores, queue.y[i]) >= self._no_update_above:
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


class Supervised(Online):
    """The base of estimators that learn a label or a target."""

    def _predict(self, rows: list[Row]) -> list[Label] | Float[np.ndarray, " n"]:
        """The labels, or the targets, of rows."""
        raise NotImplementedError

    def predict_many(self, X: Frame) -> Series:
        """The predictions for the rows of a data frame, as a series."""
        frame = dataframe.into_frame(X)
        predicted = self._predict([*rows_of(frame)])
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
        for x, target, weight in zip(rows_of(X), targets, weights, strict=True):
            self._learn(x, target, weight)
