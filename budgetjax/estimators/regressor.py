"""A kernel regressor on a budget of support vectors."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from budgetjax import _checks, losses
from budgetjax._errors import ArgumentError, names_class
from budgetjax.estimators.inputs import Table, Weights
from budgetjax.estimators.supervised import Supervised
from budgetjax.model import predict_interval as intervals
from budgetjax.tables.table_model import PerOutput, TableModel
from budgetjax.training.rows import Data, Rows
from budgetjax.training.targets import SeenTargets, centre_targets


@dataclasses.dataclass(eq=False, repr=False, kw_only=True)
class BudgetedKernelRegressor(RegressorMixin, Supervised):
    """Kernel regression with a bounded number of support vectors.

    It learns as `BudgetedKernelClassifier`, and has the same parameters and attributes
    except for these. Targets may have any unit, each output its own: the mean so far is
    subtracted, and they are divided by the deviation of the first ones. Several
    outputs, or quantiles, share the support vectors.

    Args:
      learner: one with a choice of the loss; "auto" is `budgetjax.SGD`.
      loss: "squared" (None); "huber", squared up to 1.35 robust deviations of the
        errors and linear beyond, as in `HuberRegressor`; "absolute"; "poisson", for
        counts and other targets of at least 0, or "gamma", for targets above 0, whose
        scores are logarithms; or a function as for `budgetjax.SGD`, such as
        `budgetjax.losses.epsilon_insensitive(0.1)`. The stream and the refit both use
        it. Learning rates refer to targets with deviation 1, or for "poisson" and
        "gamma" with mean 1; so do penalties for these and for losses with kinks, such
        as "absolute". A function of more than the error gets unscaled targets.
      quantile: a level above 0 and below 1, such as 0.9, to predict that quantile of
        the targets instead of their mean; or several, such as `[0.1, 0.5, 0.9]`, with
        one column of predictions each. The predictions of each row are sorted, so they
        never cross. `loss` must be None.

    Attributes:
      unit_: the factor of the scores of `state_`, the deviation of the first targets:
        one number, or one per output or quantile.
      intercept_: the term added afterwards, the mean of the targets plus a correction
        by the refit, with the same shape. For "poisson" and "gamma", predictions are
        the exponential of the result.

    Example:
      >>> from budgetjax.estimators import BudgetedKernelRegressor
      >>> X = np.linspace(-3, 3, 500)[:, None]
      >>> y = 1000 + np.sin(2 * X[:, 0])
      >>> model = BudgetedKernelRegressor(budget=20, random_state=0).fit(X, y)
      >>> bool(model.score(X, y) > 0.99)
      True
      >>> y = y + np.random.default_rng(0).normal(size=500)
      >>> mean, std = model.fit(X, y).predict(X, return_std=True)
      >>> mean.shape, bool(0.9 < np.mean(std) < 1.1)
      ((500,), True)
      >>> several = BudgetedKernelRegressor(20, quantile=[0.1, 0.9], random_state=0)
      >>> several.fit(X, y).predict(X).shape
      (500, 2)

    References:
      Chernozhukov, Fernandez-Val and Galichon (2010), "Quantile and probability curves
      without crossing", for the sorting. https://doi.org/10.3982/ECTA7880
    """

    quantile: float | Sequence[float] | np.ndarray | None = None

    _regression = True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = self.quantile is None
        return tags

    def _loss_setting(self) -> str | Callable[..., Array] | None:
        return self.loss if self.quantile is None else losses.quantile(self._levels())

    def _levels(self) -> float | Float[np.ndarray, " quantiles"]:
        """The level, or the levels, shape `(quantiles,)`."""
        levels = np.asarray(self.quantile)
        _checks.open_unit_interval("quantile", levels)
        if levels.ndim > 1 or not levels.size:
            wanted = "be a number or a list of them"
            raise ArgumentError("quantile", wanted, f"{self.quantile!r}")
        if self.loss is not None:
            raise ArgumentError("loss", "be None with a quantile", f"{self.loss!r}")
        return levels if levels.size > 1 else float(levels.reshape(()))

    @property
    def intercept_(self) -> PerOutput:
        """The term added to the scores of the state times `unit_`."""
        return self._model.intercept

    @property
    def unit_(self) -> PerOutput:
        """The factor of the scores of the state."""
        return self._model.unit

    @names_class
    def fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "BudgetedKernelRegressor":
        """Fits a new model; see `BudgetedKernelClassifier.fit`.

        Targets are real numbers, shape `(n,)` or `(n, outputs)`.
        """
        data = self._prepare(X, y, sample_weight)
        self._fit_new(data)
        *_, self._seen = self._encode_part(data.y, data.weights, data.labels, None)
        return self

    def _prepare(self, X: Table, y: ArrayLike, sample_weight: Weights) -> Data:
        rows, y, weights = self._examples(X, y, sample_weight, first=True)
        _, labels, _ = self._encode_part(y, weights, TableModel(None), None)
        return self._data(rows, y, weights, labels)

    @names_class
    def partial_fit(
        self, X: Table, y: ArrayLike, sample_weight: Weights = None
    ) -> "BudgetedKernelRegressor":
        """Continues to learn; see `BudgetedKernelClassifier.partial_fit`.

        The mean of the targets so far is subtracted, so the model differs from that of
        `fit`, which subtracts the mean of all targets.
        """
        first = not self.__sklearn_is_fitted__()
        rows, y, weights = self._examples(X, y, sample_weight, first=first)
        if not first and y.shape[1:] != np.shape(self._model.intercept):
            columns = np.size(self._model.intercept)
            wanted = f"have {columns} columns, as in the first call of partial_fit"
            raise ArgumentError("y", wanted, f"shape {y.shape}")
        self._continue_stream(self._data(rows, y, weights, TableModel(None)))
        return self

    def _encode_part(
        self,
        y: Float[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        labels: TableModel,
        seen: SeenTargets | None,
    ) -> tuple[Float[np.ndarray, "n ..."], TableModel, SeenTargets]:
        loss = self._make_recipe(0).losses.stream
        targets, found, seen = centre_targets(y, weights, seen, loss)
        return targets, found._replace(feature_names=labels.feature_names), seen

    @overload
    def predict(
        self, X: Table, return_std: Literal[False] = False
    ) -> Float[np.ndarray, "n ..."]: ...
    @overload
    def predict(
        self, X: Table, return_std: Literal[True]
    ) -> tuple[Float[np.ndarray, "n ..."], Float[np.ndarray, "n ..."]]: ...
    @names_class
    def predict(self, X: Table, return_std: bool = False) -> Any:
        """The predicted target of each row; O(n budget features).

        Args:
          X: shape `(n, n_features_in_)`.
          return_std: whether to say how sure it is, too; O(n budget^2) more.

        Returns:
          float64, shape `(n,)`, `(n, outputs)`, or `(n, quantiles)` in the order of
          `quantile`, never decreasing with the level. With `return_std` a second array
          of this shape, the deviation of the target of each row, its noise included, in
          the unit of the targets. After a refit it is what rows tell that the model did
          not learn: noise that may change with the prediction, and a part that grows
          with the distance from the support vectors.

        Raises:
          ValueError: with `return_std` for quantiles, for losses whose scores are
            logarithms, and without a refit, unless the learner knows its variance.
        """
        if _checks.flag("return_std", return_std):
            self._check_knows_variance("return_std", "be False")
        rows = self._rows(X)
        predicted = self.model_.predict(rows).astype(np.float64)
        if self.quantile is not None and predicted.ndim > 1:
            predicted[:, np.argsort(self._levels())] = np.sort(predicted, axis=1)
        if not return_std:
            return predicted
        _, variances = self.model_.measure(rows)
        return predicted, np.sqrt(np.asarray(variances, np.float64))

    @names_class
    def predict_interval(
        self, X: Table, level: float = 0.9
    ) -> Float[np.ndarray, "n ... two"]:
        """An interval for the target of each row, as `budgetjax.predict_interval`.

        After a refit it is as many deviations wide as it took to cover this share of
        rows that the model did not learn, whatever their distribution is.

        Args:
          X: shape `(n, n_features_in_)`.
          level: the share of targets to cover, between 0 and 1.

        Returns:
          float64, shape `(n, 2)`, or `(n, outputs, 2)`.

        Raises:
          ValueError: where `predict` has no deviation.
        """
        self._check_knows_variance("predict_interval", "be of a model that knows it")
        ends = intervals(self.model_, self._rows(X), level)
        return np.asarray(ends, np.float64)

    def _check_knows_variance(self, name: str, wanted: str) -> None:
        """Raises where it is not known how far targets lie from predictions."""
        check_is_fitted(self)
        if self.quantile is not None:
            got = f"quantile={self.quantile!r}: quantile=[0.05, 0.95] is an interval"
        elif self.model_.link == losses.EXP:
            got = f"loss={self.loss!r}: loss=None or 'huber' has deviations"
        elif not self.model_.knows_variance:
            got = (
                "a model without a refit: take refit=True, or learner=budgetjax.KRLST()"
            )
        else:
            return
        raise ArgumentError(name, wanted, got)

    @names_class
    def score(self, X: Table, y: ArrayLike, sample_weight: Weights = None) -> float:
        """R^2, averaged over outputs; for some losses the mean of their D^2.

        D^2 is the fraction of the best constant's loss that the model saves: of the
        pinball loss for quantiles, `sklearn.metrics.d2_pinball_score`, or of the
        deviance of the Poisson or gamma distribution, `d2_tweedie_score`.

        `y` and `sample_weight` are as for `fit`. The best value is 1.
        """
        loss = losses.unwrap(self._make_recipe(0).losses.stream)
        powers = {losses.poisson: 1, losses.gamma: 2}
        if self.quantile is None and loss not in powers:
            return super().score(X, y, sample_weight)
        # It takes longer to import than all of this package.
        from sklearn.metrics import d2_pinball_score, d2_tweedie_score

        targets = np.asarray(y)
        predicted = self.predict(X).reshape(len(targets), -1)
        if self.quantile is None:
            d2 = functools.partial(d2_tweedie_score, power=powers[loss])
            scores_of = [d2] * predicted.shape[1]
            predicted = np.maximum(predicted, np.finfo(np.float32).tiny)
        else:
            scores_of = [
                functools.partial(d2_pinball_score, alpha=level)
                for level in np.atleast_1d(self._levels())
            ]
        columns = np.broadcast_to(targets.reshape(len(targets), -1), predicted.shape)
        scores = [
            score_of(column, prediction, sample_weight=sample_weight)
            for score_of, column, prediction in zip(
                scores_of, columns.T, predicted.T, strict=True
            )
        ]
        return float(np.mean(scores))

    def _examples(
        self,
        X: Table,
        y: ArrayLike,
        sample_weight: Weights,
        *,
        first: bool,
        **options: bool,
    ) -> tuple[Rows, Float[np.ndarray, "n ..."], Float[np.ndarray, " n"]]:
        """Rows, targets in float64, repeated per quantile, and weights."""
        options |= {"y_numeric": True, "multi_output": self.quantile is None}
        rows, y, weights = super()._examples(
            X, y, sample_weight, first=first, **options
        )
        y = y.astype(np.float64)
        y = y[:, 0] if y.shape[1:] == (1,) else y
        if self.quantile is not None and np.ndim(self._levels()):
            y = np.repeat(y[:, None], np.size(self._levels()), axis=1)
        return rows, y, weights
