"""Novelty detection with a bounded number of support vectors."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, Int
from sklearn.base import OutlierMixin

from budgetjax import _checks
from budgetjax._errors import names_class
from budgetjax.estimators import inputs
from budgetjax.estimators.inputs import RandomState, Table, Weights
from budgetjax.estimators.online import OnlineEstimator
from budgetjax.kernels import Kernel
from budgetjax.online import defaults
from budgetjax.online.maintenance import Maintenance
from budgetjax.refitting.one_class import one_class
from budgetjax.stream.model import StreamModel
from budgetjax.tables.table_model import TableModel
from budgetjax.training import fit
from budgetjax.training.fit import Candidate
from budgetjax.training.recipe import Recipe
from budgetjax.training.rows import Data, Rows


@dataclasses.dataclass(eq=False, repr=False)
class BudgetedOneClass(OutlierMixin, OnlineEstimator):
    """A novelty detector with a bounded number of support vectors.

    It learns rows of one kind, and scores are high where such rows are dense. `fit`
    streams the rows once through `budgetjax.SGD` with targets 1, and
    `budgetjax.one_class` then computes the coefficients and the threshold.
    `partial_fit` streams too, and computes them on a sample of the rows so far before
    the next prediction. The budget bounds memory and time per row.

    Args:
      budget: the maximum number of support vectors.
      rate: the fraction of rows like those learned that count as outliers, above 0 and
        below 1.
      gamma: the parameter of the kernel. "scale" is two divided by the mean squared
        distance of the first rows, `budgetjax.default_gamma`.
      penalty: C of `budgetjax.one_class`. The default suits rows of one kind: outliers
        that form a cluster among them are learned too. A smaller one, such as 0.01,
        keeps such a cluster out, and also fills holes, such as that of a ring.
      kernel, maintenance, epochs, shuffle, capacity, random_state, progress: as
        `BudgetedKernelClassifier`.

    Attributes:
      offset_: the threshold, `score_samples(X) - decision_function(X)`.
      state_, model_, origin_, support_vectors_, dual_coef_, n_support_, n_iter_,
        n_features_in_, feature_names_in_: as `BudgetedKernelClassifier`.

    Example:
      >>> from budgetjax.estimators import BudgetedOneClass
      >>> X = np.random.default_rng(0).normal(size=(1000, 2))
      >>> model = BudgetedOneClass(budget=30, random_state=0).fit(X)
      >>> model.predict([[0.0, 0.0], [5.0, 5.0]]).tolist()
      [1, -1]
    """

    budget: int = defaults.BUDGET
    _: dataclasses.KW_ONLY
    rate: float = 0.05
    kernel: str | Kernel = "rbf"
    gamma: float | str = "scale"
    penalty: float = 1.0
    maintenance: str | Maintenance | None = None
    epochs: int = 1
    shuffle: bool = True
    capacity: int | None = None
    random_state: RandomState = None
    progress: bool = False

    @property
    def offset_(self) -> float:
        """The threshold of the scores."""
        return -float(np.asarray(self._model.intercept))

    @names_class
    def fit(
        self, X: Table, y: object = None, sample_weight: Weights = None
    ) -> "BudgetedOneClass":
        """Fits a new model: passes over the rows, then coefficients and threshold.

        It works as `BudgetedKernelClassifier.fit`, but ignores `y`.
        """
        rows, weights = self._rows_and_weights(X, sample_weight, first=True)
        self._fit_new(self._data(rows, weights, TableModel(None)))
        return self

    @names_class
    def partial_fit(
        self, X: Table, y: object = None, sample_weight: Weights = None
    ) -> "BudgetedOneClass":
        """Continues to learn; see `fit` and `BudgetedKernelClassifier.partial_fit`."""
        first = not self.__sklearn_is_fitted__()
        rows, weights = self._rows_and_weights(X, sample_weight, first=first)
        labels = TableModel(None, intercept=0.0 if first else self._model.intercept)
        self._continue_stream(self._data(rows, weights, labels))
        return self

    def _data(
        self, rows: Rows, weights: Float[np.ndarray, " n"], labels: TableModel
    ) -> Data:
        """Rows to learn, with the targets of a stream, 1 each."""
        labels = labels._replace(feature_names=inputs.names_of(self))
        name = type(self).__name__
        return Data(rows, np.ones(len(weights)), weights, labels, name=name)

    def _rows_and_weights(
        self, X: Table, sample_weight: Weights, *, first: bool
    ) -> tuple[Rows, Float[np.ndarray, " n"]]:
        """Rows to learn and their weights, after checks."""
        X, sample_weight = inputs.drop_weightless(sample_weight, X)
        rows = self._validate(X=X, reset=first)
        weights = self._weights(rows, sample_weight, first=first)
        _checks.open_unit_interval("rate", self.rate)
        return rows, weights

    def decision_function(self, X: Table) -> Float[np.ndarray, " n"]:
        """The scores minus the threshold, float64, shape `(n,)`; below 0 for outliers.

        The cost is O(n budget features).
        """
        scores = self.model_.decision_function(self._rows(X))
        return scores.astype(np.float64)

    def score_samples(self, X: Table) -> Float[np.ndarray, " n"]:
        """The scores, float64 of shape `(n,)`, larger for rows like those learned."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Table) -> Int[np.ndarray, " n"]:
        """1 for rows like those learned, -1 for outliers, shape `(n,)`."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _make_recipe(self, seed: int) -> Recipe:
        _checks.positive("penalty", self.penalty)
        shared = ("budget", "kernel", "gamma", "maintenance", "epochs", "shuffle")
        given = {name: getattr(self, name) for name in (*shared, "capacity")}
        # What follows the stream is no refit.
        fixed = {"regression": True, "refit": False, "encode": False}
        recipe = Recipe()._replace(**given, **fixed, seed=seed)
        recipe.check()
        return recipe

    @property
    def _keeps_sample(self) -> bool:
        return True

    def _fit_data(
        self, recipe: Recipe, data: Data, orders: Sequence[Int[np.ndarray, " n"]]
    ) -> TableModel:
        found = fit.fit(recipe, data, orders, progress=self.progress, solve=self._solve)
        return found.model

    def _solve(self, streamed: Candidate) -> StreamModel:
        """The model with the coefficients and the threshold of all rows."""
        model, examples = streamed.model.model, streamed.examples
        rows = examples.data(model.dtype)
        solved = one_class(
            *(model.model, rows["X"]),
            weight=rows.get("weight"),
            rate=self.rate,
            penalty=self.penalty,
        )
        model = model._replace(model=solved.model, intercept=solved.intercept)
        return streamed.model._replace(model=model)
