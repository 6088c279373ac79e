"""Model files, as commands use them."""

from typing import Any, NamedTuple

import numpy as np


class Model(NamedTuple):
    """A model of raw rows, from a file.

    Attributes:
      value: what the file holds.
      notes: what `budgetjax train` wrote beside it.
      model: the `Labelled` that predicts.
    """

    value: Any
    notes: dict[str, Any]
    model: Any

    @property
    def classes(self) -> np.ndarray | None:
        """The labels in the order of the scores; None for a regressor."""
        from budgetjax import models

        return models.labels_of(self.model)

    @property
    def features(self) -> tuple[str, ...] | None:
        """Names of the columns, where they are known."""
        names = self.notes.get("features") or self.model.feature_names
        return None if names is None else tuple(names)

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
    # Of an estimator, what it has fitted.
    model = models.labelled(getattr(value, "model_", value))
    models.num_features(path, model)
    return Model(value, notes or {}, model)
