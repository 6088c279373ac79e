"""Novelty detection with a bounded number of support vectors."""

import dataclasses
from typing import Any

import numpy as np
from jaxtyping import Float
from sklearn.base import OutlierMixin

from budgetjax import _checks, models
from budgetjax.estimators.base import OF_ONE_CLASS
from budgetjax.estimators.online import OnlineEstimator, Rows
from budgetjax.models import Labelled
from budgetjax.refitting.one_class import one_class


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BudgetedOneClass(OutlierMixin, OnlineEstimator):
    """A novelty detector with a bounded number of support vectors.

    It learns rows of one kind, and scores are high where such rows are dense. `fit`
    streams the rows once through `budgetjax.sgd` with targets 1, and
    `budgetjax.one_class` then computes the coefficients and the threshold.
    `partial_fit` streams too, and computes them on a sample of the rows so far before
    the next prediction. The budget bounds memory and time per row.

    Args:
      budget: the maximum number of support vectors.
      rate: the fraction of rows like those learned that count as outliers, above 0 and
        below 1.
      gamma: the parameter of the kernel. "scale" is two divided by the mean squared
        distance of the first rows, `budgetjax.default_gamma`.
      penalty: C of `budgetjax.one_class`.
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

    rate: Any = 0.05
    gamma: Any = "scale"
    penalty: Any = 1.0
    # Not parameters of this class; they keep their defaults.
    algorithm: Any = dataclasses.field(init=False)
    regularization: Any = dataclasses.field(init=False)
    loss: Any = dataclasses.field(init=False)
    options: Any = dataclasses.field(init=False)
    refit: Any = dataclasses.field(init=False)
    move_vectors: Any = dataclasses.field(init=False)
    learn_metric: Any = dataclasses.field(init=False)

    def _gammas(self, X: Any) -> list[Any]:
        # Without labels, none can be chosen.
        return [self.gamma]

    @property
    def offset_(self) -> float:
        """The threshold of the scores."""
        return -float(np.asarray(self._predicting().intercept))

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None):
        """Fits a new model: passes over the rows, then coefficients and threshold.

        It works as `BudgetedKernelClassifier.fit`, but ignores `y`.
        """
        X, y, weights = self._examples(X, OF_ONE_CLASS, sample_weight, first=True)
        _checks.fraction(self._where, "rate", self.rate)
        self._learn(X, y, weights, Labelled(None))
        return self

    def partial_fit(self, X: Any, y: Any = None, sample_weight: Any = None):
        """Continues to learn; see `fit` and `BudgetedKernelClassifier.partial_fit`."""
        first = not hasattr(self, "_model")
        X, y, weights = self._examples(X, OF_ONE_CLASS, sample_weight, first=first)
        _checks.fraction(self._where, "rate", self.rate)
        labels = Labelled(None, intercept=0.0 if first else self._model.intercept)
        self._go_on(X, y, y, weights, labels)
        return self

    def decision_function(self, X: Any) -> Float[np.ndarray, " n"]:
        """The scores minus the threshold, float64, shape `(n,)`; below 0 for outliers.

        The cost is O(n budget features).
        """
        X = self._rows(X)
        scores = models.decision_function(self.model_, X)
        return np.asarray(scores, np.float64)

    def score_samples(self, X: Any) -> Float[np.ndarray, " n"]:
        """The scores, float64 of shape `(n,)`, larger for rows like those learned."""
        return self.decision_function(X) + self.offset_

    def predict(self, X: Any) -> np.ndarray:
        """1 for rows like those learned, -1 for outliers, shape `(n,)`."""
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _refitted(self, model: Labelled, rows: Rows, *_: Any, **__: Any) -> Labelled:
        """The model with new coefficients and a threshold."""
        given = rows.data(models.dtype_of(model))
        found = one_class(
            *(model.model, given["X"]),
            weight=given.get("weight"),
            rate=self.rate,
            penalty=self.penalty,
        )
        return model._replace(model=found.model, intercept=found.intercept)
