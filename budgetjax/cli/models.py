"""Model files, as commands use them."""

from typing import Any, NamedTuple

import numpy as np


class Model(NamedTuple):
    """A model that predicts raw rows.

    Attributes:
      value: what the file holds.
      notes: what `budgetjax train` wrote beside it.
      model: what predicts in that.
      classes: the labels in the order of the scores; None for a regressor.
      features: names of the columns, where they are known.
    """

    value: Any
    notes: dict[str, Any]
    model: Any
    classes: np.ndarray | None
    features: tuple[str, ...] | None

    @property
    def num_features(self) -> int:
        """Columns of a row."""
        from budgetjax import models

        return models.num_features("cli", self.model)

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
    from budgetjax import models
    from budgetjax.saving import model_files

    value, notes = model_files.read(path)
    notes = notes or {}
    model = value
    if hasattr(value, "get_params"):
        if not hasattr(value, "n_features_in_"):
            raise ValueError(
                f"{path}: the estimator must be fitted, got a {type(value).__name__} "
                "that is not"
            )
        model = value.model_
    model = models.labelled(model)
    models.num_features(f"{path}", model)
    names = notes.get("features") or model.feature_names
    names = None if names is None else tuple(names)
    return Model(value, notes, model, models.labels_of(model), names)


def support_vectors(model: Model) -> np.ndarray | None:
    """The support vectors as raw rows, shape `(m, num_features)`, if there are any."""
    from budgetjax import models

    try:
        vectors, _, mask = map(np.asarray, models.support(model.model))
    except ValueError:
        return None
    return vectors[mask] if np.any(mask) else None
