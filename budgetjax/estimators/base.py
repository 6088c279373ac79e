"""The base classes of all estimators: checked rows in, predictions out."""

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from jaxtyping import Float, Shaped
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from budgetjax import _checks, _compile_cache
from budgetjax._errors import ArgumentError, names_class
from budgetjax._record import Record, fields_of
from budgetjax.estimators import inputs
from budgetjax.estimators.inputs import Table, Weights
from budgetjax.tables import categories
from budgetjax.tables.table_model import TableModel
from budgetjax.training import rows as training_rows
from budgetjax.training.rows import Rows

Own = TypeVar("Own", bound="Estimator")
# Rows to learn, their labels or targets, and their weights.
Examples: TypeAlias = tuple[Rows, Shaped[np.ndarray, "n ..."], Float[np.ndarray, " n"]]


class SetByFit:
    """An attribute that `fit` sets; an earlier read raises a `NotFittedError`."""

    def __get__(self, estimator: "Estimator | None", owner: type) -> "SetByFit":
        if estimator is None:
            return self
        raise NotFittedError(
            f"This {owner.__name__} instance is not fitted yet; call 'fit' first"
        )


def replace_params(record: Record, changes: Mapping[str, Any]) -> Record:
    """A record with other fields, after its checks; names of inner ones have a "__"."""
    inner: dict[str, dict[str, Any]] = defaultdict(dict)
    own, known = {}, [field.name for field in fields_of(type(record))]
    for key, value in changes.items():
        name, _, rest = key.partition("__")
        if name not in known:
            wanted = f"be among {', '.join(known) or 'none'}"
            raise ArgumentError(
                f"fields of {type(record).__name__}", wanted, repr(name)
            )
        if rest:
            inner[name][rest] = value
        else:
            own[name] = value
    for name, more in inner.items():
        part = own.get(name, vars(record)[name])
        if not isinstance(part, Record):
            wanted = "be a record, which has such fields"
            raise ArgumentError(name, wanted, f"{part!r}")
        own[name] = replace_params(part, more)
    # The fields are those of a dataclass.
    return dataclasses.replace(record, **own)  # pyright: ignore[reportArgumentType]


class Estimator(BaseEstimator):
    """An estimator whose model takes raw rows.

    Compiled programs are kept on disk; see `budgetjax.cache_compiled_programs`.
    """

    # Types of parameters are checked by `fit`, as scikit-learn asks, not by `__init__`.
    __no_type_check__ = True

    # For an online estimator, the model of the stream. All fitted attributes read it.
    _model: TableModel = cast(TableModel, SetByFit())
    n_iter_: int = cast(int, SetByFit())
    n_features_in_: int = cast(int, SetByFit())

    @names_class
    def set_params(self: Own, **params: Any) -> Own:
        """Sets parameters by name; `learner__margin` is the field of a new learner.

        Learners, solvers, kernels and strategies do not change, so that a nested name
        replaces them.
        """
        nested: dict[str, dict[str, Any]] = defaultdict(dict)
        known = self.get_params(deep=False)
        for key in params:
            name, _, rest = key.partition("__")
            if rest and name in known:
                nested[name][rest] = params[key]
        own = {k: v for k, v in params.items() if k.partition("__")[0] not in nested}
        for name, changes in nested.items():
            part = params.get(name, known[name])
            if not isinstance(part, Record):
                wanted = (
                    "be a learner, a solver, a kernel or a strategy to have "
                    f"{name}__{next(iter(changes))}"
                )
                raise ArgumentError(name, wanted, f"{part!r}")
            own[name] = replace_params(part, changes)
        return super().set_params(**own)

    @property
    def model_(self) -> TableModel:
        """The model that predicts from raw rows, for all functions of budgetjax."""
        return self._model

    @property
    def origin_(self) -> Float[np.ndarray, " features"]:
        """The origin that is subtracted from rows before rounding; mostly zeros."""
        return training_rows.origin(self.model_)

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
        model = self.model_
        parts = model.parts
        try:
            supports = [model._replace(model=part).support() for part in parts]
        except ValueError as error:
            name = type(self).__name__
            raise AttributeError(f"{name} has no support vectors") from error
        vectors, coefficients, masks = zip(*supports, strict=True)
        active = np.concatenate(masks)
        vectors = np.concatenate(vectors)[active]
        coefficients = np.concatenate(coefficients)[active]
        if len(parts) == 1:
            return vectors, coefficients.T
        rows = np.repeat(np.arange(len(parts)), [np.sum(mask) for mask in masks])
        vectors, columns = np.unique(vectors, axis=0, return_inverse=True)
        table = np.zeros((len(parts), len(vectors)), coefficients.dtype)
        np.add.at(table, (rows, columns), coefficients[:, 0])
        return vectors, table

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")

    def _read_columns(self, X: Any, *, reset: bool) -> Any:
        """Rows whose columns are numbers; `reset` forgets what others were like."""
        return categories.to_numbers(X, {})

    @names_class
    def _validate(self, *, reset: bool = True, **arguments: Any) -> Any:
        """Rows as an array or a CSR matrix; with `y`, the targets too."""
        _compile_cache.cache_by_default()
        for name in ("X", "y"):
            _checks.check_unmasked(name, arguments.get(name))
        # What is not a number is told by its column.
        X = categories.spread_lists(arguments["X"])
        arguments["X"] = self._read_columns(X, reset=reset)
        arguments |= {"accept_sparse": "csr", "dtype": inputs.FLOATS}
        return validate_data(self, reset=reset, **arguments)

    @names_class
    def _rows(self, X: Table) -> Rows:
        """Rows to predict, after checks."""
        check_is_fitted(self)
        rows = self._validate(X=X, reset=False)
        training_rows.check_range(rows, self._model.dtype)
        return rows

    def _examples(
        self,
        X: Table,
        y: ArrayLike,
        sample_weight: Weights,
        *,
        first: bool,
        **options: bool,
    ) -> Examples:
        """Rows to learn, their targets and weights, after checks."""
        X, y, sample_weight = inputs.drop_weightless(sample_weight, X, y)
        rows, targets = self._validate(X=X, y=y, reset=first, **options)
        return rows, targets, self._weights(rows, sample_weight, first=first)

    def _weights(
        self, X: Rows, sample_weight: Weights, *, first: bool
    ) -> Float[np.ndarray, " n"]:
        """The weights of rows to learn, after checks of both."""
        dtype = training_rows.dtype_of(X) if first else self._model.dtype
        training_rows.check_range(X, dtype)
        return inputs.check_weights(sample_weight, X)


class Classifier(ClassifierMixin, Estimator):
    """An estimator of labels of any type."""

    @property
    def classes_(self) -> Shaped[np.ndarray, " classes"]:
        """The labels, in the order of the scores."""
        classes = self._model.classes
        assert classes is not None, "a classifier has them"
        return classes

    def decision_function(self, X: Table) -> Float[np.ndarray, "n ..."]:
        """Scores; O(n features) for each support vector.

        Args:
          X: shape `(n, n_features_in_)`.

        Returns:
          Shape `(n,)` for two classes, above 0 for the second one; otherwise
          `(n, classes)`.
        """
        return self.model_.decision_function(self._rows(X))

    def predict(self, X: Table) -> Shaped[np.ndarray, " n"]:
        """The label of the largest score of each row; see `decision_function`."""
        return self.model_.predict(self._rows(X))
