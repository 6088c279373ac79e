"""A detector of novelty with a bounded number of support vectors."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import OutlierMixin

from budgetjax import checks, models
from budgetjax.estimators.base import OF_ONE_CLASS
from budgetjax.estimators.online import OnlineEstimator, Rows
from budgetjax.models import Labelled
from budgetjax.refitting.one_class import one_class


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BudgetedOneClass(OutlierMixin, OnlineEstimator):
    """A detector of novelty with a bounded number of support vectors.

    It learns rows of one kind, and scores others by how near they are to where those
    are many: `fit` streams the rows once, by `budgetjax.sgd` with targets 1, and then
    solves for the coefficients and the threshold, by `budgetjax.one_class`.
    `partial_fit` streams too, and solves on a sample of the rows so far before the next
    prediction. Memory, and time per row, are bounded by the budget.

    Args:
      budget: maximum number of support vectors.
      rate: share of rows like those learned that are to be called outliers, above 0 and
        below 1.
      gamma: parameter of the kernel. "scale" is two over the mean squared distance of
        the first rows that come, `budgetjax.default_gamma`.
      penalty: C of `budgetjax.one_class`.
      kernel, maintenance, epochs, shuffle, capacity, random_state, progress: as
        `BudgetedKernelClassifier`.

    Attributes:
      offset_: the threshold, `score_samples(X) - decision_function(X)`.
      state_, model_, origin_, support_vectors_, dual_coef_, n_support_, n_iter_,
        n_features_in_, feature_names_in_: as `BudgetedKernelClassifier`.

    Example:
      >>> import numpy as np
      >>> from budgetjax.estimators import BudgetedOneClass
      >>> X = np.random.default_rng(0).normal(size=(1000, 2))
      >>> model = BudgetedOneClass(budget=30, random_state=0).fit(X)
      >>> model.predict([[0.0, 0.0], [5.0, 5.0]]).tolist()
      [1, -1]
    """

    rate: Any = 0.05
    gamma: Any = "scale"
    penalty: Any = 1.0
    # No parameters here: as they are by default.
    algorithm: Any = dataclasses.field(init=False)
    regularization: Any = dataclasses.field(init=False)
    loss: Any = dataclasses.field(init=False)
    options: Any = dataclasses.field(init=False)
    refit: Any = dataclasses.field(init=False)
    move_vectors: Any = dataclasses.field(init=False)
    learn_metric: Any = dataclasses.field(init=False)

    def _gammas(self, X: Any) -> list[Any]:
        # No label says which is better.
        return [self.gamma]

    @property
    def offset_(self) -> float:
        """The threshold of the scores."""
        return -float(np.asarray(self._predicting().intercept))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None):
        """Learns from nothing: passes over the rows, coefficients and threshold.

        As `BudgetedKernelClassifier.fit`, but `y` is not looked at.
        """
        X, y, weights = self._examples(X, OF_ONE_CLASS, sample_weight, first=True)
        checks.fraction(self._where, "rate", self.rate)
        self._learn(X, y, weights, Labelled(None))
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None):
        """Goes on learning; see `fit` and `BudgetedKernelClassifier.partial_fit`."""
        first = not hasattr(self, "_model")
        X, y, weights = self._examples(X, OF_ONE_CLASS, sample_weight, first=first)
        checks.fraction(self._where, "rate", self.rate)
        labels = Labelled(None, intercept=0.0 if first else self._model.intercept)
        self._go_on(X, y, y, weights, labels)
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " n"]:
        """The scores less the threshold, doubles of shape `(n,)`, below 0 for outliers.

        O(n budget features).
        """
        X = self._rows(X)
        return models.decision_function(self.model_, X).astype(np.float64)

    def score_samples(self, X: Any) -> Float[np.ndarray, " n"]:
        """The scores, doubles of shape `(n,)`, larger for rows like those learned."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for rows like those learned, -1 for outliers, shape `(n,)`."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _refitted(self, model: Labelled, rows: Rows, *_: Any, **__: Any) -> Labelled:
        """The model with the best coefficients and the threshold."""
        given = rows.data(models.dtype_of(model))
        found = one_class(
            *(model.model, given["X"]),
            weight=given.get("weight"),
            rate=self.rate,
            penalty=self.penalty,
        )
        return model._replace(model=found.model, intercept=found.intercept)
