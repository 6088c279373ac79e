"""The base classes of all estimators: checked rows in, predictions out."""

from typing import Any

import numpy as np
from jaxtyping import Float, Shaped
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import (
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from budgetjax import models
from budgetjax.estimators import inputs
from budgetjax.models import Labelled

# Replaces the targets if there are none; they are then 1.
OF_ONE_CLASS = object()


class SetByFit:
    """An attribute that `fit` sets; an earlier read raises a `NotFittedError`."""

    def __get__(self, estimator: Any, owner: type) -> Any:
        if estimator is None:
            return self
        raise NotFittedError(
            f"This {owner.__name__} instance is not fitted yet; call 'fit' first"
        )


class Estimator(BaseEstimator):
    """An estimator whose model takes raw rows."""

    # For an online estimator, the model of the stream. All fitted attributes read it.
    _model: Any = SetByFit()
    n_iter_: Any = SetByFit()
    n_features_in_: Any = SetByFit()

    @property
    def model_(self) -> Labelled:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        return self._model

    @property
    def origin_(self) -> Float[np.ndarray, " features"]:
        """The origin that is subtracted from rows before rounding; mostly zeros."""
        return inputs.origin(self._model)

    @property
    def support_vectors_(self) -> Float[np.ndarray, "vectors features"]:
        """The support vectors, shape `(n_support_, n_features_in_)`.

        The vectors of several models are merged without duplicates and sorted.
        """
        return self._support()[0]

    @property
    def dual_coef_(self) -> Float[np.ndarray, "columns vectors"]:
        """The coefficients, shape `(1, n_support_)`, or one row per class or output."""
        return self._support()[1]

    @property
    def n_support_(self) -> int:
        """The number of support vectors."""
        return len(self.support_vectors_)

    def _support(self) -> tuple[np.ndarray, np.ndarray]:
        known = self.model_
        parts = known.model if type(known.model) is tuple else (known.model,)
        try:
            found = [models.support(known._replace(model=one)) for one in parts]
        except ValueError as error:
            raise AttributeError(f"{self._where} has no support vectors") from error
        masks = [np.asarray(one.mask) for one in found]
        vectors, terms = (
            np.concatenate(
                [np.asarray(one[i])[m] for one, m in zip(found, masks, strict=True)]
            )
            for i in (0, 1)
        )
        if len(parts) == 1:
            return vectors, terms.T
        owners = np.repeat(np.arange(len(parts)), list(map(np.sum, masks)))
        vectors, columns = np.unique(vectors, axis=0, return_inverse=True)
        table = np.zeros((len(parts), len(vectors)), terms.dtype)
        np.add.at(table, (owners, columns), terms[:, 0])
        return vectors, table

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    @property
    def _where(self) -> str:
        return type(self).__name__

    def _rows(self, X: Any) -> Any:
        """Rows to predict, as an array or a CSR matrix."""
        check_is_fitted(self)
        X = validate_data(
            self, X, reset=False, accept_sparse="csr", dtype=inputs.FLOATS
        )
        inputs.check_range(self._where, X, models.dtype_of(self._model))
        return X

    def _examples(
        self, X: Any, y: Any, sample_weight: Any, *, first: bool, **more: Any
    ) -> tuple[Any, Shaped[np.ndarray, "n ..."], Float[np.ndarray, " n"]]:
        """Rows to learn, as an array or a CSR matrix, their targets and weights."""
        more |= {"reset": first, "accept_sparse": "csr", "dtype": inputs.FLOATS}
        if y is OF_ONE_CLASS:
            X = validate_data(self, X, **more)
            y = np.ones(X.shape[0])
        else:
            X, y = validate_data(self, X, y, **more)
        dtype = inputs.dtype_of(X) if first else models.dtype_of(self._model)
        inputs.check_range(self._where, X, dtype)
        weights = _check_sample_weight(
            sample_weight, X, dtype=np.float64, ensure_non_negative=True
        )
        if not np.any(weights > 0):
            raise ValueError(
                f"{self._where}: sample_weight must not be zero for all rows, got zeros"
            )
        return X, y, weights


class Classifier(ClassifierMixin, Estimator):
    """An estimator of labels of any type."""

    @property
    def classes_(self) -> Shaped[np.ndarray, " classes"]:
        """The labels, in the order of the scores."""
        classes = self._model.classes
        assert classes is not None, "a classifier has them"
        return classes

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """Scores; O(n features) for each support vector.

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n,)` for two classes, above 0 for the second one; otherwise
          `(n, classes)`.
        """
        X = self._rows(X)
        return np.asarray(models.decision_function(self.model_, X))

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """The label of the largest score of each row; see `decision_function`."""
        X = self._rows(X)
        return np.asarray(models.predict(self.model_, X))
