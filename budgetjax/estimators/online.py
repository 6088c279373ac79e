"""How online estimators learn: streams, and samples of them for a refit."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int, Shaped
from sklearn.utils import check_random_state

from budgetjax import _record
from budgetjax.estimators.base import Estimator
from budgetjax.estimators.inputs import RandomState
from budgetjax.kernels import Kernel
from budgetjax.online import importance
from budgetjax.online.changes import average_iterates, with_room
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import Online
from budgetjax.stream.reservoir import Reservoir, default_size
from budgetjax.tables.columns import pack, unpack
from budgetjax.tables.table_model import TableModel
from budgetjax.training import fit, rows
from budgetjax.training.recipe import Recipe
from budgetjax.training.rows import Data, Examples, Rows, Sample, SparseRows

# The first rows of a stream are learned again with each call, until they are so many.
# Together they say how columns are written, what gamma is, and where the origin is. Ten
# rows do not know.
FEWEST_TO_START = 1000
# The sample of a stream is fitted again when its rows are so many times as many as at
# the last fit. All fits of a stream together take five times as long as the last.
GROWTH = 1.25


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

    @property
    def state_(self) -> Online:
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

    def _make_recipe(self, seed: int) -> Recipe:
        """The parameters as the recipe of a training, after checks."""
        raise NotImplementedError

    def _fit_data(
        self, recipe: Recipe, data: Data, orders: Sequence[Int[np.ndarray, " n"]]
    ) -> TableModel:
        """A new model of rows in these orders."""
        raise NotImplementedError

    @property
    def _keeps_sample(self) -> bool:
        """Whether a stream keeps a sample of its rows, which is learned at once."""
        raise NotImplementedError

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

    def _draw_seed(self) -> int:
        """The seed of a training: the number that is given, or a draw."""
        given = self.random_state
        if isinstance(given, int | np.integer):
            # Its range is checked.
            check_random_state(given)
            return int(given)
        return int(check_random_state(given).randint(2**31 - 1))

    def _fit_new(self, data: Data) -> None:
        """Fits a new model; see `fit`."""
        recipe = self._make_recipe(self._draw_seed())
        orders = fit.draw_orders(recipe, len(data.weights))
        self._model = self._fit_data(recipe, data, orders)
        self._waiting = self._reservoir = None
        *_, self._seen_weights = importance.SeenWeights().relative(data.weights)
        self.n_iter_ = recipe.epochs

    def _continue_stream(self, data: Data) -> None:
        """Learns a part of a stream; see `partial_fit`."""
        first = not self.__sklearn_is_fitted__()
        self._make_recipe(0).check_columns(data.X.shape[1])
        if self._reservoir is not None or (first and self._keeps_sample):
            self._continue_sample(data)
        elif self._waiting is not None or first:
            self._continue_start(data)
        else:
            self._continue_model(data)
        if first:
            self.n_iter_ = 1

    def _continue_sample(self, data: Data) -> None:
        """Keeps rows for the sample, and fits it if they are enough more."""
        X, y, weights, labels = data[:4]
        columns, reservoir = X.shape[1], self._reservoir
        if reservoir is None:
            reservoir = Reservoir.empty(
                *(columns, X.dtype, y.dtype, y.shape[1:]),
                size=default_size(columns),
                seed=self._draw_seed(),
                sparse=isinstance(X, SparseRows),
            )
            self._rows_fitted = 0
        if isinstance(X, SparseRows) and isinstance(reservoir.kept.X, np.ndarray):
            X = X.toarray()
        reservoir = reservoir.updated(X, y, weights)
        if reservoir.num_rows >= GROWTH * self._rows_fitted:
            packed, y, weights, _ = reservoir.rows()
            _, labels, seen = self._encode_part(y, weights, labels, None)
            sample = data._replace(
                X=unpack(packed), y=y, weights=weights, labels=labels
            )
            recipe = self._make_recipe(reservoir.seed)
            self._model = self._fit_data(recipe, sample, [np.arange(len(y))])
            self._seen, self._rows_fitted = seen, reservoir.num_rows
        self._reservoir = reservoir

    def _continue_start(self, data: Data) -> None:
        """Learns the first rows of a stream all together."""
        waiting, (X, y, weights, labels) = self._waiting, data[:4]
        seed = waiting.seed if waiting else self._draw_seed()
        given = Waiting(pack(X), y, weights, labels, seed)
        waiting = given if waiting is None else _join(waiting, given)
        X, y, weights = unpack(waiting.X), waiting.y, waiting.weights
        starts = len(y) >= FEWEST_TO_START
        recipe = self._make_recipe(seed)._replace(refit=False)
        *_, codes = recipe.encodings(X, data.nominal, more_to_come=True)
        targets, labels, seen = self._encode_part(y, weights, labels, None)
        model = fit.init_model(
            *(recipe, Sample(X, codes), labels, codes, rows.room_for(len(y))),
            needs_distances=starts,
        )
        if codes is None:
            rows.warn_unscaled(data.name, X, rows.origin(model))
        given = X, targets, weights
        self._model, weights_seen = _learn_part(model, *given, importance.SeenWeights())
        self._seen, self._seen_weights = seen, weights_seen
        self._waiting = None if starts else waiting

    def _continue_model(self, data: Data) -> None:
        """Learns more rows of a stream, or after `fit`."""
        X, y, weights, labels = data[:4]
        model = self._with_room(self._model, len(y))
        targets, labels, seen = self._encode_part(y, weights, labels, self._seen)
        given = X, targets, weights
        model, self._seen_weights = _learn_part(model, *given, self._seen_weights)
        self._model = model._replace(intercept=labels.intercept)
        self._seen = seen

    def _with_room(self, model: TableModel, more: int) -> TableModel:
        """The model with slots for more rows, up to the budget."""
        state, slots = model.model, model.model.capacity
        count = int(state.num_seen) + more
        if count <= slots:
            return model
        recipe = self._make_recipe(0)
        learner, arguments, _ = recipe.choose(model)
        budget = fit.limit_budget(recipe, learner, arguments, rows.room_for(count))
        is_same = type(state.learner) is type(learner)
        if not is_same or self.capacity is not None or budget <= slots:
            return model
        sizes = {"num_features": state.num_features, "dtype": state.dtype}
        like = learner.init(state.kernel, budget=budget, **sizes, **arguments)
        like = fit.set_loss(recipe, like, model)
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
    part = Examples(X, model.encoding, rows.origin(model), targets, steps)
    state = model.model
    for after, *_ in rows.learn(state, part, np.arange(X.shape[0])):
        state = after
    return model._replace(model=state), seen


def _join(waiting: Waiting, more: Waiting) -> Waiting:
    """The first rows of a stream, and the next ones."""
    X = rows.join(unpack(waiting.X), unpack(more.X))
    y = np.concatenate([waiting.y, more.y])
    weights = np.concatenate([waiting.weights, more.weights])
    return waiting._replace(X=pack(X), y=y, weights=weights)
