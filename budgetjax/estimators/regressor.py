"""A kernel regressor on a budget of support vectors."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin

from budgetjax import _checks, _record, losses
from budgetjax._errors import ArgumentError, names_class
from budgetjax.estimators.inputs import Rows, Table, Weights
from budgetjax.estimators.online import Prepared
from budgetjax.estimators.supervised import Supervised, scale_loss
from budgetjax.online import defaults
from budgetjax.online.state import State
from budgetjax.refitting import training_data
from budgetjax.tables import scaling
from budgetjax.tables.table_model import PerOutput, TableModel

# In a stream, the maximum slope of a loss that does not depend on the error alone.
STEEPEST = 5.0


# One number, or one per column of targets.
PerColumn: TypeAlias = float | Float[np.ndarray, "..."]


@_record.record
class SeenTargets(NamedTuple):
    """Statistics of a regressor's targets so far.

    Attributes:
      mean: their mean, one number per column, or its initial value.
      total: their total weight.
      most: the distance from the mean at which they are clipped.
      unit: the deviation of the first ones, one number per column.
    """

    mean: PerColumn
    total: float
    most: PerColumn
    unit: PerColumn


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
      >>> several = BudgetedKernelRegressor(20, quantile=[0.1, 0.9], random_state=0)
      >>> several.fit(X, y).predict(X).shape
      (500, 2)

    References:
      Chernozhukov, Fernandez-Val and Galichon (2010), "Quantile and probability curves
      without crossing", for the sorting. https://doi.org/10.3982/ECTA7880
    """

    quantile: float | Sequence[float] | np.ndarray | None = None

    _family = defaults.REGRESSOR

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
        prepared = self._prepare(X, y, sample_weight)
        self._fit_stream(prepared)
        _, y, weights, _ = prepared
        *_, self._seen = self._encode(y, weights, None)
        return self

    def _prepare(self, X: Table, y: ArrayLike, sample_weight: Weights) -> Prepared:
        rows, y, weights = self._examples(X, y, sample_weight, first=True)
        _, labels, _ = self._encode(y, weights, None)
        return rows, y, weights, labels

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
        self._continue_stream((rows, y, weights, TableModel(None)))
        return self

    def _encode_part(
        self,
        y: Float[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        labels: TableModel,
        seen: SeenTargets | None,
    ) -> tuple[Float[np.ndarray, "n ..."], TableModel, SeenTargets]:
        return self._encode(y, weights, seen)

    def _encode(
        self,
        y: Float[np.ndarray, "n ..."],
        weights: Float[np.ndarray, " n"],
        before: SeenTargets | None,
    ) -> tuple[Float[np.ndarray, "n ..."], TableModel, SeenTargets]:
        """The targets of the state, the labels, and statistics for later targets."""
        loss = self._losses().stream
        if before is None:
            before = _first_seen(y[weights > 0], loss)
        targets, seen = _centre(y, weights, before)
        intercept = seen.mean
        if losses.traits(loss).link == losses.EXP:
            # In the space of scores. If all targets are 0, any value serves.
            mean = np.where(seen.mean > 0, seen.mean, 1.0)[()]
            targets, intercept = y / mean, np.log(mean)
        return targets, TableModel(None, intercept=intercept, unit=seen.unit), seen

    def _set_loss(self, state: Any, labels: TableModel) -> State:
        before = state.learner.loss
        loss, shape = scale_loss(before, labels), np.shape(labels.unit)
        if loss is before and not losses.is_shift_invariant(loss, shape):
            loss = losses.limit_slope(loss, STEEPEST)
        dtype, outputs = state.dtype, np.size(labels.unit)
        loss = losses.as_leaves(loss, None, dtype, outputs)
        learner = state.learner._replace(loss=loss)
        return state._exchange(learner=learner)

    @names_class
    def predict(self, X: Table) -> Float[np.ndarray, "n ..."]:
        """The predicted target of each row; O(n budget features).

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          float64, shape `(n,)`, `(n, outputs)`, or `(n, quantiles)` in the order of
          `quantile`, never decreasing with the level.
        """
        predicted = self.model_.predict(self._rows(X)).astype(np.float64)
        if self.quantile is not None and predicted.ndim > 1:
            predicted[:, np.argsort(self._levels())] = np.sort(predicted, axis=1)
        return predicted

    @names_class
    def score(self, X: Table, y: ArrayLike, sample_weight: Weights = None) -> float:
        """R^2, averaged over outputs; for some losses the mean of their D^2.

        D^2 is the fraction of the best constant's loss that the model saves: of the
        pinball loss for quantiles, `sklearn.metrics.d2_pinball_score`, or of the
        deviance of the Poisson or gamma distribution, `d2_tweedie_score`.

        `y` and `sample_weight` are as for `fit`. The best value is 1.
        """
        loss = losses.unwrap(self._losses().stream)
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


def _first_seen(
    y: Float[np.ndarray, "n ..."], loss: Callable[..., Array]
) -> SeenTargets:
    """The statistics of targets before the first is learned, from a sample of them."""
    shape = y.shape[1:]
    if not losses.is_shift_invariant(loss, shape):
        most = np.inf if losses.traits(loss).link == losses.EXP else 0.0
        return SeenTargets(np.zeros(shape), 0.0, most, np.ones(shape)[()])
    robust = losses.traits(loss).robust
    centre, deviation = scaling.centre_and_deviation(y, robust=robust)
    most = training_data.NEAR * deviation if robust and np.all(deviation) else np.inf
    return SeenTargets(centre, 0.0, most, np.where(deviation > 0, deviation, 1.0)[()])


def _centre(
    y: Float[np.ndarray, "n ..."], weights: Float[np.ndarray, " n"], before: SeenTargets
) -> tuple[Float[np.ndarray, "n ..."], SeenTargets]:
    """Targets minus their running mean, which includes each, in their unit.

    The second result holds the statistics after them.
    """
    totals = before.total + np.cumsum(weights)
    # One weight per row, shared by its outputs.
    shape = (-1, *[1] * (y.ndim - 1))
    weights, sums = weights.reshape(shape), totals.reshape(shape)
    # The mean moves by a fraction of the distance, so a large offset costs no digits.
    distance = np.clip(y - before.mean, -before.most, before.most)
    shifts = np.cumsum(weights * distance, axis=0) / np.where(sums > 0, sums, 1)
    means = before.mean + shifts
    last = means[-1] if y.ndim > 1 else float(means[-1])
    after = before._replace(mean=last, total=float(totals[-1]))
    return (y - means) / before.unit, after
