"""What the kernel classifier and regressor share: their parameters and recipes."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from budgetjax._record import fields_of
from budgetjax.estimators import inputs
from budgetjax.estimators.base import SetByFit
from budgetjax.estimators.inputs import RandomState
from budgetjax.estimators.online import OnlineEstimator
from budgetjax.kernels import Kernel
from budgetjax.online import defaults
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import Maintenance
from budgetjax.tables import categories
from budgetjax.tables.categories import Categories
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.table_model import TableModel
from budgetjax.training import fit
from budgetjax.training.recipe import Recipe
from budgetjax.training.rows import Data


@dataclasses.dataclass(eq=False, repr=False)
class Supervised(OnlineEstimator):
    """The parameters of the classifier and the regressor."""

    budget: int = defaults.BUDGET
    _: dataclasses.KW_ONLY
    learner: OnlineLearner | str = "auto"
    kernel: str | Kernel = "rbf"
    gamma: float | str = "auto"
    maintenance: str | Maintenance | None = None
    average: bool | int = False
    vectors: ArrayLike | None = None
    loss: str | Callable[..., Array] | None = None
    refit: bool = True
    penalty: float | Sequence[float] | np.ndarray | str = "auto"
    move_vectors: bool = False
    learn_metric: bool | str | int = "auto"
    encode: bool | str | int = "auto"
    epochs: int = 1
    shuffle: bool = True
    capacity: int | None = None
    random_state: RandomState = None
    progress: bool = False

    # Without an annotation, which would make a parameter of it.
    categories_ = cast(Categories, SetByFit())
    # Whether targets are numbers.
    _regression: ClassVar[bool]

    def _loss_setting(self) -> str | Callable[..., Array] | None:
        """The loss, by its name or as a function."""
        return self.loss

    def _make_recipe(self, seed: int) -> Recipe:
        """The parameters as the recipe of a training, after checks."""
        known = {field.name for field in fields_of(Recipe)}
        given = {
            name: value
            for name, value in self.get_params(deep=False).items()
            if name in known
        }
        given |= {"loss": self._loss_setting(), "regression": self._regression}
        # Errors name the estimator.
        recipe = Recipe()._replace(**given, seed=seed)
        recipe.check()
        return recipe

    @property
    def _keeps_sample(self) -> bool:
        return self.refit

    def _fit_data(
        self, recipe: Recipe, data: Data, orders: Sequence[Int[np.ndarray, " n"]]
    ) -> TableModel:
        found = fit.fit(recipe, data, orders, progress=self.progress)
        self._importances = found.importances
        return found.model

    def _data(self, X: Any, y: Any, weights: Any, labels: TableModel) -> Data:
        """Rows to learn, after checks."""
        names = inputs.names_of(self)
        nominal = tuple(map((names or ()).index, self.categories_))
        labels = labels._replace(feature_names=names)
        return Data(X, y, weights, labels, nominal, type(self).__name__)

    @property
    def feature_importances_(self) -> Float[np.ndarray, " features"]:
        """The importance of features in a learned metric, shape `(n_features_in_,)`.

        It is the share of the feature in the variance of mapped rows, so in their mean
        squared distance; see `budgetjax.encoding.importances`.
        """
        check_is_fitted(self)
        if self._importances is None:
            raise AttributeError(
                f"{type(self).__name__} has no feature_importances_: the last fit has "
                f"learned no metric, with learn_metric={self.learn_metric!r}"
            )
        return self._importances

    @property
    def model_(self) -> TableModel:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        return super().model_.with_categories(self.categories_)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.encode is not False
        return tags

    def _encodes(self, *, reset: bool) -> bool:
        """Whether rows are encoded, those of `fit` or of a fitted model."""
        if reset or self._waiting is not None:
            return self.encode is not False
        return isinstance(self._model.scaling, Encoding)

    def _read_columns(self, X: Any, *, reset: bool) -> Any:
        """Rows whose columns are numbers, also of names where rows are encoded."""
        if reset:
            self.categories_ = {}
        if not self._encodes(reset=reset):
            return super()._read_columns(X, reset=reset)
        if reset:
            self.categories_, X = categories.find(X)
            return X
        return categories.to_numbers(X, self.categories_)

    def _validate(self, *, reset: bool = True, **arguments: Any) -> Any:
        """Rows as for all estimators; where they are encoded, values may be missing."""
        encodes = self._encodes(reset=reset)
        finite = "allow-nan" if encodes else True
        try:
            return super()._validate(reset=reset, ensure_all_finite=finite, **arguments)
        except ValueError as error:
            if not encodes and ("NaN" in str(error) or "have numbers" in str(error)):
                error.add_note("encode='auto' takes missing values and texts.")
            raise

    def _check_names(self, X: Any) -> None:
        """Raises for rows that have no room for names, where columns have some."""
        categories.check_names(X, self.categories_)
