"""How online estimators learn: streams, and samples of them for a refit."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped
from sklearn.utils import check_random_state

from budgetjax import _checks, _progress, _record, _rows
from budgetjax._rows import pad_rows, rows_at_once
from budgetjax.estimators import inputs
from budgetjax.estimators.base import Estimator
from budgetjax.estimators.inputs import RandomState, Rows, Sample, SparseRows
from budgetjax.kernels import Kernel, Mapped
from budgetjax.online import driver, importance
from budgetjax.online.changes import average_iterates, with_room
from budgetjax.online.defaults import Choice
from budgetjax.online.learner import Learner
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import State
from budgetjax.refitting import held_out, newton, training_data
from budgetjax.stream.batches import Batches
from budgetjax.stream.reservoir import Reservoir, default_size
from budgetjax.tables.columns import pack, unpack
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel

# The minimum number of rows that the refit pads to.
FEWEST_TO_REFIT = 256
# The maximum number of rows to stream before it is known that there is no metric, which
# comes with the vectors of a fold.
FIRST_ROWS = held_out.FEW
# Of sparse rows with more columns, those that no row uses are left out of a fit.
MANY_COLUMNS = 1024
# A stream has at least so many slots, up to the budget, and doubles them.
FEWEST_SLOTS = 1024
# `fit` streams up to this many rows as a refit does its folds, by a program that is
# compiled more quickly. Longer blocks save at most 5 microseconds per row.
FEW_TO_STREAM = 50_000
# The first rows of a stream are learned again with each call, until they are so many.
# Together they say how columns are written, what gamma is, and where the origin is. Ten
# rows do not know.
FEWEST_TO_START = 1000
# The maximum number of rows on which forms of a table are compared; the best one learns
# all rows.
MOST_TO_COMPARE = held_out.MANY
# The sample of a stream is fitted again when its rows are so many times as many as at
# the last fit. All fits of a stream together take five times as long as the last.
GROWTH = 1.25


# Rows to learn; their targets, in the form of the learner's labels or as numbers; their
# weights; and a model of nothing yet, with the classes or the intercept.
Prepared: TypeAlias = tuple[
    Rows, Shaped[np.ndarray, "n ..."], Float[np.ndarray, " n"], TableModel
]


class Examples(NamedTuple):
    """Rows to learn.

    Attributes:
      X: raw rows, an array or a CSR matrix.
      codes: what encodes them; None for rows as they are.
      origin: the origin to subtract from what is learned.
      targets: targets in the form that the state takes.
      weights: one per row.
    """

    X: Rows
    codes: Encoding | None
    origin: Float[np.ndarray, " features"]
    targets: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]

    @property
    def num_features(self) -> int:
        """The number of features of a row."""
        return self.X.shape[1] if self.codes is None else self.codes.num_features

    def features(
        self, rows: Int[np.ndarray, " rows"] | slice, dtype: np.dtype
    ) -> Float[np.ndarray, "rows features"]:
        """What a state takes of these rows."""
        X = self.X[rows]
        if self.codes is not None:
            return self.codes.apply(inputs.to_array(X), dtype)
        return inputs.dense(X, dtype, self.origin)

    def data(self, dtype: np.dtype) -> dict[str, Any]:
        """Arguments of `refit`: few rows are padded, many sparse ones are batched.

        Rows to be encoded stay raw, as the refit encodes them.
        """
        X, codes, _, targets, weights = self
        n, features = X.shape
        block = rows_at_once(training_data.BLOCK, features)
        if n > block and not isinstance(X, np.ndarray):

            def read() -> Iterator[tuple[np.ndarray, ...]]:
                for start in range(0, n, block):
                    part = slice(start, start + block)
                    yield self.features(part, dtype), targets[part], weights[part]

            return {"X": Batches("X", features, read)}
        few = max(FEWEST_TO_REFIT, 1 << (n - 1).bit_length())
        size = n if n > training_data.BLOCK else few
        rows = X if codes is not None else self.features(slice(None), dtype)
        return {
            "X": pad_rows(inputs.to_array(rows), size),
            "y": pad_rows(targets, size, 1),
            "weight": pad_rows(weights, size),
        }


@_record.record
class Waiting(NamedTuple):
    """The first rows of a stream, too few to say what its columns are like.

    Attributes:
      X: as `columns.pack` gives them.
      y: labels or real targets.
      weights: one per row.
      labels: a model of nothing yet, with the classes.
      seed: the seed of the learner and the sample.
    """

    X: Any
    y: Shaped[np.ndarray, "n ..."]
    weights: Float[np.ndarray, " n"]
    labels: TableModel
    seed: int


class Candidate(NamedTuple):
    """A model of rows, before a refit.

    Attributes:
      model: the model.
      examples: the rows.
      stream_all: gives the model of all rows, if it has learned only a part so far.
    """

    model: TableModel
    examples: Examples
    stream_all: Callable[[], TableModel] | None = None


class OnlineEstimator(Estimator):
    """How all online estimators learn; subclasses declare the parameters.

    `fit` streams all rows in random order and refits. With a refit, `partial_fit` keeps
    a sample of its rows, and fits it as `fit` does whenever they are a quarter more;
    without one, it streams its rows in their order.
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

    # The first rows of `partial_fit`, as long as they are few, if there is no refit.
    _waiting: Waiting | None = None
    # A sample of the rows of `partial_fit`, if there is a refit, and how many there
    # were when it was fitted last.
    _reservoir: Reservoir | None = None
    _rows_fitted = 0
    # Statistics of the targets so far, for some learners.
    _seen: Any = None
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

    def _encode_table(
        self, X: Rows, *, more_to_come: bool = False
    ) -> Sequence[Encoding | None]:
        """What may encode the columns of these rows; None for rows as they are.

        The last one is that of a model that does not choose.
        """
        return (None,)

    def _gamma(self, sample: Sample, codes: Encoding | None) -> float | str:
        """The value of gamma, or its name."""
        return self.gamma

    def _streams_first(self, examples: Examples) -> bool:
        """Whether a part of the rows is streamed, as a metric may be learned."""
        return False

    def _count_penalties(self, rows: int) -> int:
        """The number of penalties to choose from for this number of rows."""
        return 1

    def _find_best(self, candidates: Sequence[Candidate], seed: int) -> int:
        """The number of the candidate that predicts held-out rows best."""
        raise NotImplementedError

    def _refit(self, candidates: Sequence[Candidate], seed: int) -> TableModel:
        """The best of models of the same rows, with new coefficients or a metric."""
        raise NotImplementedError

    def _set_loss(self, state: State, labels: TableModel) -> State:
        """The state with the loss for targets in the units of these labels."""
        return state

    @property
    def state_(self) -> State:
        """The model that predicts, as a state of the learner."""
        return self._model.model

    @property
    def model_(self) -> TableModel:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        model = self._model
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
        X, _, weights, _ = prepared
        n, shuffle = X.shape[0], _checks.flag("shuffle", self.shuffle)
        epochs = _checks.size("epochs", self.epochs)
        seed, random = self._draw_seed()
        orders = [
            random.permutation(n) if shuffle else np.arange(n) for _ in range(epochs)
        ]
        self._model = self._fit_rows(prepared, seed, orders)
        self._waiting = self._reservoir = None
        *_, self._seen_weights = importance.SeenWeights().relative(weights)
        self.n_iter_ = epochs

    def _fit_rows(
        self, prepared: Prepared, seed: int, orders: Sequence[Int[np.ndarray, " n"]]
    ) -> TableModel:
        """A new model of rows in these orders, after the refit, if there is one."""
        X, y, weights, labels = prepared
        columns, used = X.shape[1], self._find_columns(X)
        X = X if used is None else X[:, used]
        refits, rows = self._check_refit(columns), (X, y, weights, labels)
        forms = self._encode_table(X)

        def start(rows: Prepared, orders: Sequence[np.ndarray]) -> list[Candidate]:
            return [
                self._start(codes, rows, seed, orders, refits=refits)
                for codes in (forms if refits else forms[-1:])
            ]

        if refits and len(forms) > 1 and np.count_nonzero(weights) > MOST_TO_COMPARE:
            at = spread_rows(orders[0], weights, MOST_TO_COMPARE)
            part = X[at], y[at], weights[at], labels
            best = self._find_best(start(part, [np.arange(len(at))]), seed)
            forms = [forms[best]]
        candidates = start(rows, orders)
        model, self._importances = candidates[0].model, None
        if refits:
            model = self._refit(candidates, seed)
        return model if used is None else self._spread_columns(model, used, columns)

    def _start(
        self,
        codes: Encoding | None,
        prepared: Prepared,
        seed: int,
        orders: Sequence[Int[np.ndarray, " n"]],
        *,
        refits: bool,
    ) -> Candidate:
        """A model of rows in one form, after all of them, or the first."""
        X, y, weights, labels = prepared
        sample = Sample(X, codes)
        empty = self._init(
            *(sample, codes, labels, self._gamma(sample, codes), seed),
            X.shape[0] * len(orders),
            refits=refits,
        )
        if refits:
            # Before a long stream, not after it.
            penalties = self._count_penalties(int(np.count_nonzero(weights)))
            newton.check_memory(empty.model, penalties)
        origin, targets = inputs.origin(empty), empty.encode_targets(y)
        examples = Examples(X, codes, origin, targets, weights)
        if codes is None:
            inputs.warn_unscaled(type(self).__name__, X, origin)

        def stream(orders: Sequence[Int[np.ndarray, " n"]]) -> TableModel:
            return empty._replace(model=self._learn(empty.model, examples, orders))

        if refits and self._streams_first(examples):
            first = [spread_rows(orders[0], weights, FIRST_ROWS)]
            return Candidate(stream(first), examples, lambda: stream(orders))
        return Candidate(stream(orders), examples)

    def _learn(
        self, state: State, examples: Examples, orders: Sequence[Int[np.ndarray, " n"]]
    ) -> State:
        """The state after the examples in these orders, with a progress bar."""
        name, total = type(self).__name__, sum(map(len, orders))
        sizes = driver.FEW_ROWS, driver.PLAIN_SCAN if total <= FEW_TO_STREAM else None
        weights, seen = examples.weights, importance.SeenWeights()
        with _progress.progress_bar(name, self.progress, "rows", total) as report:
            for order in orders:
                steps = np.zeros_like(weights)
                steps[order], seen = seen.relative(weights[order])
                part = examples._replace(weights=steps)
                state = learn(state, part, order, *sizes, report=report)
        return state

    def _find_columns(self, X: Rows) -> Int[np.ndarray, " used"] | None:
        """The columns that some rows use, if they are few of many.

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
        targets = y if labels.classes is None else labels.encode_targets(y)
        return targets, labels, None

    def _continue_stream(self, prepared: Prepared) -> None:
        """Learns a part of a stream; see `partial_fit`."""
        first = not self.__sklearn_is_fitted__()
        refits = self._check_refit(prepared[0].shape[1])
        if self._reservoir is not None or (first and refits):
            self._continue_sample(prepared)
        elif self._waiting is not None or first:
            self._continue_start(prepared)
        else:
            self._continue_model(prepared)
        if first:
            self.n_iter_ = 1

    def _continue_sample(self, prepared: Prepared) -> None:
        """Keeps rows for the sample, and fits it if they are enough more."""
        X, y, weights, labels = prepared
        columns, reservoir = X.shape[1], self._reservoir
        if reservoir is None:
            reservoir = Reservoir.empty(
                *(columns, X.dtype, y.dtype, y.shape[1:]),
                size=default_size(columns),
                seed=self._draw_seed()[0],
                sparse=isinstance(X, SparseRows),
            )
            self._rows_fitted = 0
        if isinstance(X, SparseRows) and isinstance(reservoir.kept.X, np.ndarray):
            X = X.toarray()
        reservoir = reservoir.updated(X, y, weights)
        if reservoir.num_rows >= GROWTH * self._rows_fitted:
            packed, y, weights, _ = reservoir.rows()
            _, labels, seen = self._encode_part(y, weights, labels, None)
            rows = unpack(packed), y, weights, labels
            self._model = self._fit_rows(rows, reservoir.seed, [np.arange(len(y))])
            self._seen, self._rows_fitted = seen, reservoir.num_rows
        self._reservoir = reservoir

    def _continue_start(self, prepared: Prepared) -> None:
        """Learns the first rows of a stream all together."""
        waiting, (X, y, weights, labels) = self._waiting, prepared
        seed = waiting.seed if waiting else self._draw_seed()[0]
        given = Waiting(pack(X), y, weights, labels, seed)
        waiting = given if waiting is None else _join(waiting, given)
        X, y, weights = unpack(waiting.X), waiting.y, waiting.weights
        starts = len(y) >= FEWEST_TO_START
        *_, codes = self._encode_table(X, more_to_come=True)
        targets, labels, seen = self._encode_part(y, weights, labels, None)
        sample = Sample(X, codes)
        model = self._init(
            *(sample, codes, labels, self._gamma(sample, codes), seed),
            room_for(len(y)),
            refits=False,
            needs_distances=starts,
        )
        if codes is None:
            name, origin = type(self).__name__, inputs.origin(model)
            inputs.warn_unscaled(name, X, origin)
        rows = X, targets, weights
        self._model, weights_seen = _learn_part(model, *rows, importance.SeenWeights())
        self._seen, self._seen_weights = seen, weights_seen
        self._waiting = None if starts else waiting

    def _continue_model(self, prepared: Prepared) -> None:
        """Learns more rows of a stream, or after `fit`."""
        X, y, weights, labels = prepared
        model = self._with_room(self._model, len(y))
        targets, labels, seen = self._encode_part(y, weights, labels, self._seen)
        rows = X, targets, weights
        model, self._seen_weights = _learn_part(model, *rows, self._seen_weights)
        self._model = model._replace(intercept=labels.intercept)
        self._seen = seen

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
        if vectors is not None and codes is not None:
            arguments["vectors"] = codes.apply(_checks.array("vectors", vectors))
        elif vectors is not None and np.shape(vectors)[1:] == origin.shape:
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


def _learn_part(
    model: TableModel,
    X: Rows,
    targets: Shaped[np.ndarray, "n ..."],
    weights: Float[np.ndarray, " n"],
    seen: importance.SeenWeights,
) -> tuple[TableModel, importance.SeenWeights]:
    """The model after these rows of a stream, and the weights seen after them."""
    steps, seen = seen.relative(weights)
    part = Examples(X, model.encoding, inputs.origin(model), targets, steps)
    state = learn(model.model, part, np.arange(X.shape[0]))
    return model._replace(model=state), seen


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
    dtype, (*_, targets, weights) = np.dtype(state.dtype), examples
    usual = _rows.block_size(examples.X.shape[0], examples.num_features)
    size = rows_at_once(size or usual, examples.num_features)
    for start in range(0, len(order), size):
        numbers = order[start : start + size]
        rows = pad_rows(examples.features(numbers, dtype), size)
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
