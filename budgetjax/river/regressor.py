"""Kernel regression for streams; see `BudgetedRegressor`."""

import math
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Float
from river import base
from river.conf import Interval

from budgetjax._errors import names_class
from budgetjax.model import predict_interval
from budgetjax.river.frames import Row
from budgetjax.river.online import Supervised


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
