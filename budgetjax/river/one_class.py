"""Anomaly detection in streams; see `BudgetedOneClass`."""

from river import base

from budgetjax.river.frames import Frame, Row, rows_of
from budgetjax.river.online import Online


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
        for x in rows_of(X):
            self.learn_one(x)

    def score_one(self, x: Row) -> float:
        """The anomaly score, about 0 for rows like those learned; 1 without any."""
        scores, _ = self._score_rows([x])
        return 1.0 - float(scores[0, 0])
