"""Model files, as commands use them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np


class Model(NamedTuple):
    """A model that predicts raw rows.

    Attributes:
      value: what the file holds.
      notes: what `budgetjax train` wrote beside it.
      num_features: columns of a row.
      predict: labels, or a regressor's values, of rows.
      scores: `f(x)` of rows, shape `(n,)` or `(n, classes)`; None for a regressor.
      classes: the labels in the order of the scores; None for a regressor.
      features: names of the columns, where they are known.
    """

    value: Any
    notes: dict[str, Any]
    num_features: int
    predict: Callable[[Any], Any]
    scores: Callable[[Any], Any] | None
    classes: np.ndarray | None
    features: tuple[str, ...] | None

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores of a classifier."""
        if self.scores is None:
            raise TypeError("a regressor has no scores")
        return np.asarray(self.scores(X))

    def decided(self, scores: np.ndarray) -> np.ndarray:
        """The labels that scores of `decision_function` stand for."""
        if self.classes is None:
            raise TypeError("a regressor has no classes")
        best = scores > 0 if scores.ndim == 1 else np.argmax(scores, axis=1)
        return self.classes[best.astype(np.intp)]

    @property
    def target(self) -> str | None:
        """The column that the model was trained to predict, where that is known."""
        return self.notes.get("target")


def opened(path: str) -> Model:
    """A model of any kind that predicts, from its file.

    Raises:
      FileNotFoundError, ValueError: as `budgetjax.load`; or if what the file holds is
        many models, or cannot predict without its training data.
    """
    from budgetjax.models import is_regressor
    from budgetjax.saving import model_files

    value, notes = model_files.read(path)
    notes = notes or {}
    model = _predicting(path, value)
    features = notes.get("features")
    if hasattr(model, "state"):
        features = features or getattr(model, "feature_names", None)
        regressor = is_regressor(model.state)
        size = model.state.expansion.vectors.shape[1]
        columns = model.state.expansion.num_columns
        classes = model.classes
        if classes is None and not regressor:
            classes = np.array([-1, 1]) if columns == 1 else np.arange(columns)
    elif hasattr(model, "get_params"):
        classes = getattr(model, "classes_", None)
        size = model.n_features_in_
        named = getattr(model, "feature_names_in_", None)
        features = features if named is None else named.tolist()
    else:
        classes = np.array([-1, 1])
        size = (model.vectors if hasattr(model, "vectors") else model.weights).shape[-1]
    return Model(
        value,
        notes,
        int(size),
        model.predict,
        None if classes is None else model.decision_function,
        classes,
        None if features is None else tuple(features),
    )


def _predicting(path: str, value: Any) -> Any:
    """What predicts in the contents of a file."""
    from budgetjax.models import KernelModel, LinearModel
    from budgetjax.solvers.linear.solving import Solution
    from budgetjax.stream.model import StreamModel

    value = value.model if isinstance(value, Solution) else value
    if hasattr(value, "expansion"):
        nothing = np.zeros(0, np.int64)
        value = StreamModel(value, None, None, nothing, nothing.astype(float))
    if isinstance(value, StreamModel):
        many = value.state.expansion.vectors.ndim != 2
    elif isinstance(value, KernelModel):
        many = value.vectors.ndim != 2
    elif isinstance(value, LinearModel):
        many = value.weights.ndim != 1
    elif hasattr(value, "get_params"):
        if not hasattr(value, "n_features_in_"):
            raise ValueError(
                f"{path}: the estimator must be fitted, got a {type(value).__name__} "
                "that is not"
            )
        many = False
    else:
        raise ValueError(
            f"{path}: must hold a model that predicts, got {named(value)}; of a batch "
            "learner save what its model() gives"
        )
    if many:
        raise ValueError(
            f"{path}: must hold one model, got many stacked ones; save one of them"
        )
    return value


def named(value: Any) -> str:
    """The kind of what a file holds."""
    kind = type(value)
    return f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")


def support_vectors(model: Model) -> np.ndarray | None:
    """The support vectors as raw rows, shape `(m, num_features)`, if there are any."""
    from budgetjax.models import support

    value = model.value
    state = next(
        (getattr(value, n) for n in ("state", "state_") if hasattr(value, n)), value
    )
    if hasattr(state, "expansion"):
        vectors, _, mask = map(np.asarray, support(state))
        vectors = vectors[mask]
    elif hasattr(state, "vectors"):
        vectors = np.asarray(state.vectors)
    else:
        return None
    scaling = getattr(value, "scaling", None)
    if hasattr(value, "origin_"):
        vectors = vectors + value.origin_[None]
    if scaling is not None:
        vectors = scaling.mean[None] + scaling.deviation[None] * vectors
    return vectors if len(vectors) else None
