"""How online estimators learn: streams, and samples of them for a refit."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped
from sklearn.utils import check_random_state

from budgetjax import _checks, _progress, _record, _rows
from budgetjax._errors import names_class
from budgetjax._rows import pad_rows, rows_at_once
from budgetjax.estimators import inputs
from budgetjax.estimators.base import Estimator
from budgetjax.estimators.forms import FEWEST_TO_BIN, Form
from budgetjax.estimators.inputs import (
    EncodedRows,
    Features,
    RandomState,
    Rows,
    Sample,
    SparseRows,
)
from budgetjax.kernels import Kernel, Mapped
from budgetjax.online import driver, importance
from budgetjax.online.changes import average_iterates, with_room
from budgetjax.online.defaults import Choice
from budgetjax.online.examples import check_labels, check_weights
from budgetjax.online.learner import Learner
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import State
from budgetjax.online.support_set import Expansion
from budgetjax.refitting import held_out, newton, training_data
from budgetjax.stream.batches import Batches
from budgetjax.stream.reservoir import Reservoir, default_size
from budgetjax.tables.columns import pack, unpack
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel

# The minimum number of rows that the refit pads to.
FEWEST_TO_REFIT = 256
# The maximum number of rows to stream before it is known that there is no metric, which
# comes with the vectors of a fold. Fewer rows may have rivals, which stream them all.
FIRST_ROWS = held_out.FEW
# Of sparse rows with more columns, those that no row uses are left out of a fit.
MANY_COLUMNS = 1024
# A stream has at least so many slots, up to the budget, and doubles them.
FEWEST_SLOTS = 1024
# `fit` streams up to this many rows as a refit does its folds, by a program that is
# compiled more quickly. Longer blocks save at most 5 microseconds per row.
FEW_TO_STREAM = 50_000
# The first rows of a stream wait until this is their number. Together they say how
# columns are written, what gamma is, and where the origin is. Ten rows do not know.
FEWEST_TO_START = FEWEST_TO_BIN
# Held while a stream is refitted for a prediction, so that threads do it once.
REFITTING = threading.RLock()


# Rows to learn; their targets, in the form of the learner's labels or as numbers; their
# weights; and a model of nothing yet, with the classes or the intercept.
Prepared: TypeAlias = tuple[
    Rows, Shaped[np.ndarray, "n ..."], Float[np.ndarray, " n"], TableModel
]


class Examples(NamedTuple):
    """Rows to learn.

    Attributes:
      X: an array or a CSR matrix.
      origin: the origin to subtract from them.
      targets: targets in the form that the state takes.
      weights: one per row.
    """

    X: Features
    origin: Float[np.ndarray, " features"]
    targets: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]

    def take(self, rows: Int[np.ndarray, " rows"]) -> "Examples":
        """These rows."""
        X, origin, targets, weights = self
        return Examples(X[rows], origin, targets[rows], weights[rows])

    def data(self, dtype: np.dtype) -> dict[str, Any]:
        """Arguments of `refit`: few rows are padded, many sparse ones are batched.

        Rows to be encoded stay raw, as the refit encodes them.
        """
        X, origin, targets, weights = self
        n, features = X.shape
        block = rows_at_once(training_data.BLOCK, features)
        raw = X.X if isinstance(X, EncodedRows) and X.encoding is not None else None
        if raw is None and n > block and not isinstance(X, np.ndarray):

            def read() -> Iterator[tuple[np.ndarray, ...]]:
                for start in range(0, n, block):
                    part = slice(start, start + block)
                    rows = inputs.dense(X[part], dtype, origin)
                    yield rows, targets[part], weights[part]

            return {"X": Batches("X", features, read)}
        few = max(FEWEST_TO_REFIT, 1 << (n - 1).bit_length())
        size = n if n > training_data.BLOCK else few
        return {
            "X": pad_rows(inputs.dense(X, dtype, origin) if raw is None else raw, size),
            "y": pad_rows(targets, size, 1),
            "weight": pad_rows(weights, size),
        }


@_record.record
class Waiting(NamedTuple):
    """The first rows of a stream, too few to say what its columns are like.

    Attributes:
      X: as `inputs.pack` gives them.
      y: the learner's labels, or real targets.
      weights: one per row.
      labels: a model of nothing yet, with the classes.
      seed: the seed of the learner and the sample.
    """

    X: Any
    y: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]
    labels: TableModel
    seed: int


class Streamed(NamedTuple):
    """Models that learn the same stream.

    Attributes:
      form: the form of the rows.
      model: the model.
      examples: what it learns.
      rivals: the states of other models, of other kernel widths.
      is_partial: whether they have learned only a part of it so far.
    """

    form: Form
    model: TableModel
    examples: Examples
    rivals: list[State]
    is_partial: bool = False

    def learn(
        self,
        orders: Sequence[Int[np.ndarray, " n"]],
        report: Callable[[str, int], object],
    ) -> "Streamed":
        """The models after the examples in these orders, one after the other."""
        states = [self.model.model, *self.rivals]
        few = sum(map(len, orders)) <= FEW_TO_STREAM
        sizes = driver.FEW_ROWS, driver.PLAIN_SCAN if few else None
        weights, seen = self.examples.weights, importance.SeenWeights()
        for order in orders:
            steps = np.zeros_like(weights)
            steps[order], seen = seen.relative(weights[order])
            examples = self.examples._replace(weights=steps)
            states = [
                learn(state, examples, order, *sizes, report=report) for state in states
            ]
        model = self.model._replace(model=states[0])
        return self._replace(model=model, rivals=states[1:])


class OnlineEstimator(Estimator):
    """How all online estimators learn; subclasses declare the parameters.

    `fit` streams all rows in random order, and `partial_fit` some more of them in their
    order. The refit follows in `fit` itself, and after `partial_fit` before the next
    prediction, on a sample of the stream.
    """

    budget: int
    kernel: str | Kernel
    gamma: float | str
    maintenance: str | Maintenance | None
    epochs: int
    shuffle: bool
    capacity: int | None
    random_state: RandomState
    progress: bool

    # The rows of `partial_fit`, as long as they are few.
    _waiting: Waiting | None = None
    # A sample of the rows of `partial_fit` since then, if there is a refit.
    _reservoir: Reservoir | None = None
    # Statistics of the targets so far, for some learners.
    _seen: Any = None
    # The model of either, from the first prediction on.
    _solved: TableModel | None = None
    # The weights of the stream so far.
    _seen_weights = importance.SeenWeights()
    # The importances of features in the metric that the last refit has learned, if any.
    _importances: Float[np.ndarray, " features"] | None = None

    def _check_refit(self, num_features: int) -> bool:
        """Whether to refit, after a check of its parameters before a stream is read."""
        raise NotImplementedError

    def _choose(self, labels: TableModel, seed: int, *, refits: bool) -> Choice:
        """The learner and the arguments of its `init`."""
        raise NotImplementedError

    def _forms(self, X: Rows) -> list[Form]:
        """The forms of the rows to choose from."""
        return [Form()]

    def _form_of_stream(self, X: Rows) -> Form:
        """The form of a stream that begins with these rows."""
        return Form()

    def _gammas(self, sample: Sample, form: Form) -> list[float | str]:
        """The values of gamma to choose from, the default first."""
        return [self.gamma]

    def _streams_first(self, examples: Examples) -> bool:
        """Whether a part of the rows is streamed, as a metric may be learned."""
        return False

    def _count_penalties(self, rows: int) -> int:
        """The number of penalties to choose from for this number of rows."""
        return 1

    def _refit(
        self,
        streamed: list[Streamed],
        seed: int,
        orders: Sequence[Int[np.ndarray, " n"]] = (),
        *,
        of_stream: bool = False,
    ) -> TableModel:
        """The best model of the same rows, or of its rivals, with new coefficients.

        Models that have learned only a part learn all in these orders, if the refit
        needs it. `of_stream` is True for the sample of a stream, before a prediction.
        """
        raise NotImplementedError

    def _set_loss(self, state: State, labels: TableModel) -> State:
        """The state with the loss for targets in the units of these labels."""
        return state

    @property
    def state_(self) -> State:
        """The model that predicts, as a state of the learner."""
        return self._predicting_model().model

    @names_class
    def _predicting_model(self) -> TableModel:
        """The model that predicts, after the refit on the sample of a stream.

        It depends on the rows so far, and not on whether something was predicted.
        """
        waiting, reservoir = self._waiting, self._reservoir
        if waiting is None and reservoir is None:
            return self._model
        with REFITTING:
            if self._solved is None:
                model = self._model
                if waiting is not None:
                    start = self._start_stream(waiting, more_to_come=True)
                    model, reservoir, *_ = start
                solved = model if reservoir is None else self._replay(model, reservoir)
                self._solved = solved
            return self._solved

    @property
    def model_(self) -> TableModel:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        model = self._predicting_model()
        averages = model.model.averages
        return model._replace(
            model=average_iterates(model.model) if averages else model.model
        )

    @property
    def n_support_(self) -> int:
        """The number of support vectors."""
        return int(self.state_.num_active)

    def _fit_stream(self, prepared: Prepared) -> None:
        """Fits a new model; see `fit`."""
        X, y, weights, labels = prepared
        used = self._find_columns(X)
        if used is not None:
            prepared = X[:, used], y, weights, labels
        streamed, seed, orders = self._stream_forms(prepared)
        refits = self._check_refit(X.shape[1])
        model = self._refit(streamed, seed, orders) if refits else streamed[0].model
        self._importances = self._importances if refits else None
        if used is not None:
            model = self._spread_columns(model, used, X.shape[1])
        self._model, self._waiting = model, None
        self._reservoir, self._solved = None, None
        *_, self._seen_weights = importance.SeenWeights().relative(weights)
        self.n_iter_ = len(orders)

    def _find_columns(
        self, X: Rows, expansion: Expansion | None = None
    ) -> Int[np.ndarray, " used"] | None:
        """The columns that some rows or vectors use, if they are few of many.

        Where all of them are 0, kernel values do not depend on a column, so a model can
        be fitted without it. None if a setting refers to all columns.
        """
        kernel, features = self.kernel, X.shape[1]
        fixed = isinstance(kernel, Kernel) and any(
            map(np.ndim, jax.tree.leaves(kernel))
        )
        learner, vectors = (
            getattr(self, name, None) for name in ("learner", "vectors")
        )
        rank = getattr(self, "learn_metric", "auto")
        fixed = fixed or vectors is not None
        fixed = fixed or (isinstance(learner, Learner) and not learner.has_vectors)
        fixed = fixed or rank not in ("auto", True, False)
        if fixed or not isinstance(X, SparseRows) or features <= MANY_COLUMNS:
            return None
        is_used = np.zeros(features, bool)
        is_used[X.indices[X.data != 0]] = True
        if expansion is not None:
            is_used |= np.any(np.asarray(expansion.examples) != 0, axis=0)
            is_used |= np.asarray(expansion.origin) != 0
        used = np.flatnonzero(is_used)
        if not 0 < 2 * len(used) < features:
            return None
        if isinstance(self.budget, int | np.integer):
            rows = min(self.budget, self.capacity or X.shape[0] * self.epochs)
            _checks.check_memory(
                {"num_features": features, "budget": rows},
                2 * inputs.dtype_of(X).itemsize * rows * features,
                "of support vectors",
                _checks.MEMORY_ADVICE["num_features"],
            )
        return used

    def _spread_columns(
        self, model: TableModel, used: Int[np.ndarray, " used"], features: int
    ) -> TableModel:
        """A model of some columns as that of all; the others are 0."""

        def spread(array: Any, axis: int) -> np.ndarray:
            given = np.asarray(array)
            shape = list(given.shape)
            shape[axis] = features
            wide = np.zeros(shape, given.dtype)
            wide[(slice(None),) * axis + (used,)] = given
            return wide

        state = model.model
        kernel, expansion = state.kernel, state.expansion
        if isinstance(kernel, Mapped):
            matrix = jax.device_put(spread(kernel.matrix, 0))
            kernel = Mapped(kernel.kernel, matrix)
        if self._importances is not None:
            self._importances = spread(self._importances, 0)
        given = spread(expansion.vectors, 1), spread(expansion.origin, 0)
        vectors, origin = jax.device_put(given)
        expansion = expansion._replace(vectors=vectors, origin=origin)
        state = state._exchange(kernel=kernel)._replace(expansion=expansion)
        origin = spread(inputs.origin(model), 0)
        return model._replace(model=state, scaling=inputs.translation(origin))

    def _stream_forms(
        self, prepared: Prepared
    ) -> tuple[list[Streamed], int, list[Int[np.ndarray, " n"]]]:
        """Models of each form after all rows or the first; the seed; the orders."""
        X, _, weights, _ = prepared
        name, n = type(self).__name__, X.shape[0]
        shuffle = _checks.flag("shuffle", self.shuffle)
        epochs = _checks.size("epochs", self.epochs)
        refits = self._check_refit(X.shape[1])
        seed, random = self._draw_seed()
        forms = self._forms(X) if refits else [self._form_of_stream(X)]
        starts = [self._start(form, prepared, seed, refits=refits) for form in forms]
        if forms == [Form()]:
            inputs.warn_unscaled(name, X, starts[0].examples.origin)
        orders = [
            random.permutation(n) if shuffle else np.arange(n) for _ in range(epochs)
        ]
        is_partial = refits and self._streams_first(starts[0].examples)
        first = [spread_rows(orders[0], weights, FIRST_ROWS)] if is_partial else orders
        streamed = [
            start._replace(is_partial=is_partial)
            for start in self._learn(starts, first)
        ]
        return streamed, seed, orders

    def _learn(
        self, starts: list[Streamed], orders: Sequence[Int[np.ndarray, " n"]]
    ) -> list[Streamed]:
        """The models after the examples in these orders, with a progress bar."""
        name, total = type(self).__name__, sum(map(len, orders)) * len(starts)
        with _progress.progress_bar(name, self.progress, "rows", total) as report:
            return [start.learn(orders, report) for start in starts]

    def _start(
        self, form: Form, prepared: Prepared, seed: int, *, refits: bool
    ) -> Streamed:
        """Empty models of rows in this form."""
        X, y, weights, labels = prepared
        rows = inputs.encode_rows(X, form.encoding, form.width)
        sample = Sample(rows)
        model, *rivals = (
            self._init(
                *(sample, form.encoding, labels, gamma, seed, X.shape[0] * self.epochs),
                refits=refits,
            )
            for gamma in self._gammas(sample, form)
        )
        if refits:
            # Before a long stream, not after it.
            penalties = self._count_penalties(int(np.count_nonzero(weights)))
            newton.check_memory(model.model, penalties)
        targets = model.encode_targets(y)
        examples = Examples(rows, inputs.origin(model), targets, weights)
        return Streamed(form, model, examples, [rival.model for rival in rivals])

    def _encode_part(
        self,
        y: Shaped[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        labels: TableModel,
        seen: Any,
    ) -> tuple[Shaped[np.ndarray, "n ..."], TableModel, Any]:
        """The targets of a stream, the labels with an intercept, and what was seen.

        `seen` is from earlier rows, or None.
        """
        return y, labels, None

    def _continue_stream(self, prepared: Prepared) -> None:
        """Learns a part of a stream; see `partial_fit`.

        A refit takes the learner's labels or real targets, and the stream the same, or
        for real targets minus the mean so far. An intercept is that after this part.
        """
        first, waiting = not self.__sklearn_is_fitted__(), self._waiting
        if first or waiting is not None:
            seed = waiting.seed if waiting else self._draw_seed()[0]
            given = Waiting(pack(prepared[0]), *prepared[1:], seed)
            more = given if waiting is None else _join(waiting, given)
            if len(more.y) < FEWEST_TO_START:
                self._wait(more, prepared, first=first)
                return
            model, reservoir, seen, seen_weights = self._start_stream(more)
            self._waiting = None
        else:
            X, y, weights, labels = prepared
            model = self._with_room(self._model, len(y))
            targets, labels, seen = self._encode_part(y, weights, labels, self._seen)
            rows = inputs.encode_rows(X, model.scaling)
            model, reservoir, seen_weights = self._learn_part(
                *(model, self._reservoir, rows, y, targets, weights, self._seen_weights)
            )
            model = model._replace(intercept=labels.intercept)
        self._model, self._reservoir = model, reservoir
        self._seen, self._seen_weights = seen, seen_weights
        self._set_unsolved(first=first)

    def _wait(self, waiting: Waiting, part: Prepared, *, first: bool) -> None:
        """Keeps the first rows of a stream, after checks of the last part."""
        X, y, weights, labels = part
        if first:
            model, *_ = self._empty_stream(waiting, more_to_come=True)
        else:
            model = self._model
            self._form_of_stream(X)
        targets, *_ = self._encode_part(y, weights, labels, None)
        state = model.model
        check_labels(state, targets)
        check_weights(weights, state.dtype)
        self._model, self._waiting = model, waiting
        self._set_unsolved(first=first)

    def _set_unsolved(self, *, first: bool) -> None:
        """Notes that the next prediction has to follow the rows of this part."""
        self._solved = None
        if self._waiting is not None or self._reservoir is not None:
            self._importances = None
        if first:
            self.n_iter_ = 1

    def _start_stream(
        self, waiting: Waiting, *, more_to_come: bool = False
    ) -> tuple[TableModel, Reservoir | None, Any, importance.SeenWeights]:
        """The model, the sample and what was seen of targets and weights of first rows.

        `more_to_come` says that more first rows may make another model of them.
        """
        model, rows, targets, seen = self._empty_stream(
            waiting, more_to_come=more_to_come
        )
        _, y, weights, _, seed = waiting
        if self._check_refit(rows.shape[1]):
            width = rows.shape[1]
            reservoir = Reservoir.empty(
                *(width, inputs.dtype_of(rows), y.dtype, y.shape[1:]),
                size=default_size(width),
                seed=seed,
                sparse=isinstance(rows, SparseRows),
            )
        else:
            reservoir = None
        if not isinstance(model.scaling, Encoding):
            inputs.warn_unscaled(type(self).__name__, rows, inputs.origin(model))
        model, reservoir, seen_weights = self._learn_part(
            *(model, reservoir, rows, y, targets, weights, importance.SeenWeights())
        )
        return model, reservoir, seen, seen_weights

    def _empty_stream(
        self, waiting: Waiting, *, more_to_come: bool
    ) -> tuple[TableModel, Features, Shaped[np.ndarray, "n ..."], Any]:
        """A model of nothing yet, with the first rows, their targets, what was seen."""
        packed, y, weights, labels, seed = waiting
        X = unpack(packed)
        refits = self._check_refit(X.shape[1])
        targets, labels, seen = self._encode_part(y, weights, labels, None)
        form = self._form_of_stream(X)
        rows = inputs.encode_rows(X, form.encoding)
        sample = Sample(rows)
        gamma, *_ = self._gammas(sample, form)
        model = self._init(
            *(sample, form.encoding, labels, gamma, seed, room_for(len(y))),
            refits=refits,
            needs_distances=not more_to_come,
        )
        return model, rows, targets, seen

    def _learn_part(
        self,
        model: TableModel,
        reservoir: Reservoir | None,
        rows: Features,
        y: Shaped[np.ndarray, "n ..."],
        targets: Shaped[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        seen_weights: importance.SeenWeights,
    ) -> tuple[TableModel, Reservoir | None, importance.SeenWeights]:
        """The model, the sample and the weights seen after these rows of a stream."""
        steps, seen_weights = seen_weights.relative(weights)
        part = Examples(rows, inputs.origin(model), targets, steps)
        state = learn(model.model, part, np.arange(len(y)))
        if reservoir is not None:
            given, sparse = rows, isinstance(reservoir.kept.X, tuple)
            if not sparse:
                given = inputs.dense(rows, model.dtype, part.origin)
            reservoir = reservoir.updated(given, y, weights)
        return model._replace(model=state), reservoir, seen_weights

    def _draw_seed(self) -> tuple[int, np.random.RandomState]:
        """A seed for the learner, and a generator of orders."""
        random = check_random_state(self.random_state)
        return int(random.randint(2**31 - 1)), random

    def _init(
        self,
        sample: Sample,
        codes: Encoding | None,
        labels: TableModel,
        gamma: float | str,
        seed: int,
        most_rows: int,
        *,
        refits: bool,
        needs_distances: bool = False,
    ) -> TableModel:
        """A model with an empty state, for at most `most_rows` rows.

        More support vectors than rows need no memory.
        """
        learner, arguments, _ = self._choose(labels, seed, refits=refits)
        kernel = inputs.kernel_of(
            self.kernel, gamma, sample, needs_distances=needs_distances
        )
        origin = inputs.origin_of(None if codes else kernel, sample)
        vectors = arguments["vectors"]
        if vectors is not None and np.shape(vectors)[1:] == origin.shape:
            # What has another shape is an error of `init`.
            arguments["vectors"] = _checks.array("vectors", vectors) - origin[None]
        state = learner.init(
            kernel,
            num_features=sample.rows.shape[1],
            budget=self._limit_budget(learner, arguments, most_rows),
            capacity=self.capacity,
            dtype=inputs.dtype_of(sample.rows),
            **arguments,
        )
        return labels._replace(
            model=self._set_loss(state, labels),
            # All classes are equally probable until a refit calibrates the scores.
            calibration=0.0 if refits and labels.classes is not None else None,
            scaling=codes or inputs.translation(origin),
            feature_names=inputs.names_of(self),
        )

    def _limit_budget(
        self, learner: Learner, arguments: dict[str, Any], most_rows: int
    ) -> int:
        """The budget, or the number of support vectors that `most_rows` may become.

        Random features are no rows, and slots that a user asks for stay.
        """
        budget = self.budget
        counts = isinstance(budget, int | np.integer) and self.capacity is None
        if not counts or not learner.has_vectors:
            return budget
        vectors = arguments["vectors"]
        given = 0 if vectors is None else len(np.atleast_1d(vectors))
        return min(budget, max(most_rows, given))

    def _with_room(self, model: TableModel, more: int) -> TableModel:
        """The model with slots for more rows, up to the budget."""
        state, labels = model.model, model
        slots = state.capacity
        rows = int(state.num_seen) + more
        if rows <= slots:
            return model
        refits = self._check_refit(state.num_features)
        learner, arguments, _ = self._choose(labels, 0, refits=refits)
        budget = self._limit_budget(learner, arguments, room_for(rows))
        is_same = type(state.learner) is type(learner)
        if not is_same or self.capacity is not None or budget <= slots:
            return model
        sizes = {"num_features": state.num_features, "dtype": state.dtype}
        like = learner.init(state.kernel, budget=budget, **sizes, **arguments)
        like = self._set_loss(like, labels)
        if jax.tree.structure(like) != jax.tree.structure(state):
            # The estimator has other parameters by now.
            return model
        return model._replace(model=with_room(state, like))

    def _replay(self, model: TableModel, sample: Reservoir) -> TableModel:
        """The model after a replay of the sample, in random order, and the refit."""
        packed, y, weights, _ = sample.rows()
        X = unpack(packed)
        if not len(y):
            return model
        # Labels are kept in the form that the learner takes.
        y = model.encode_targets(y) if model.classes is None else y
        sparse, features = isinstance(X, SparseRows), X.shape[1]
        origin = inputs.origin(model) if sparse else np.zeros(features)
        used = None
        if sparse and not np.any(origin):
            expansion = model.model.expansion
            used = self._find_columns(X, expansion)
            if used is not None:
                vectors, start = map(np.asarray, (expansion.vectors, expansion.origin))
                expansion = expansion._replace(
                    vectors=jax.device_put(vectors[:, used]),
                    origin=jax.device_put(start[used]),
                )
                model = model._replace(model=model.model._replace(expansion=expansion))
                X, origin = X[:, used], origin[used]
        examples = Examples(X, origin, y, weights)
        sizes = driver.FEW_ROWS, driver.PLAIN_SCAN
        steps, _ = importance.SeenWeights().relative(weights)
        part = examples._replace(weights=steps)
        state = learn(model.model, part, np.arange(len(y)), *sizes)
        streamed = Streamed(Form(), model._replace(model=state), examples, [])
        model = self._refit([streamed], sample.seed, of_stream=True)
        return model if used is None else self._spread_columns(model, used, features)


def _join(waiting: Waiting, more: Waiting) -> Waiting:
    """The first rows of a stream, and the next ones."""
    X = inputs.join(unpack(waiting.X), unpack(more.X))
    y = np.concatenate([waiting.y, more.y])
    weights = np.concatenate([waiting.weights, more.weights])
    return waiting._replace(X=pack(X), y=y, weights=weights)


def learn(
    state: State,
    examples: Examples,
    order: Int[np.ndarray, " n"],
    size: int | None = None,
    block_size: int | None = None,
    *,
    report: Callable[[str, int], object] = lambda text, count: None,
) -> State:
    """The state after the examples in this order, in parts of this size."""
    X, origin, targets, weights = examples
    dtype = np.dtype(state.dtype)
    size = rows_at_once(size or _rows.block_size(*X.shape), X.shape[1])
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        rows = pad_rows(inputs.dense(X[numbers], dtype, origin), size)
        y = pad_rows(targets[numbers], size, 1)
        counts = pad_rows(weights[numbers], size)
        state, _ = driver.run(state, rows, y, weight=counts, block_size=block_size)
        report(f"{int(state.num_active)} vectors", len(numbers))
    return state


def room_for(rows: int) -> int:
    """The slots of a stream after `rows` rows, of few sizes for few programs."""
    return max(FEWEST_SLOTS, 1 << (rows - 1).bit_length())


def spread_rows(
    order: Int[np.ndarray, " n"], weights: Float[np.ndarray, " n"], count: int
) -> Int[np.ndarray, " count"]:
    """As many rows with a weight as `count`, spread evenly over the order."""
    rows = order[weights[order] > 0]
    return rows[np.linspace(0, len(rows) - 1, count).astype(np.intp)]
