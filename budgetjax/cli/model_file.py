"""Loads model files for commands."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import numpy as np

from budgetjax.cli import reading


class Model(NamedTuple):
    """The content of a file, the `Labelled` that predicts, and its properties.

    A regressor has no classes. The target is the target column of the training.
    """

    value: Any
    model: Any
    classes: np.ndarray | None
    num_features: int
    target: str | None


def opened(path: str) -> Model:
    """Loads a model of any kind that predicts."""
    from budgetjax import models
    from budgetjax.saving import model_files

    value, notes = model_files.read(path)
    # An estimator holds its fitted model.
    model = models.as_labelled(getattr(value, "model_", value))
    num_features = models.num_features(path, model)
    classes, target = models.class_labels(model), (notes or {}).get("target")
    return Model(value, model, classes, num_features, target)


def source(model: Model, files: Sequence[str], columns: reading.Columns) -> Any:
    """The rows of files for a model, as `budgetjax.stream.Batches`.

    The target is that of the training if the file has this column and no other is
    named.
    """
    from budgetjax import models

    path = reading.source_of(files, columns)
    if (
        columns.target is None
        and model.target not in (None, *columns.ignore)
        and reading.format_of(path, columns) in reading.TABLES
        and model.target in reading.names(path, columns)
    ):
        columns = columns._replace(target=model.target)
    if models.imputes_missing(model.model):
        columns = columns._replace(missing="mean")
    return reading.like(
        *(path, columns, model.model.feature_names, model.num_features),
        sparse=takes_sparse(model.model),
        text_target=reading.text_target(model.classes),
    )


def check_probabilities(option: str, path: str, model: Model) -> None:
    """Rejects models without probabilities before a row is read."""
    from budgetjax.refitting import calibration

    if model.classes is None:
        raise click.UsageError(f"{option}: {path} predicts numbers.")
    if calibration.factor_of(model.model) is None:
        raise click.UsageError(
            f"{option}: {path} is not calibrated, as models of --refit are."
        )


def takes_sparse(model: Any) -> bool:
    """Whether a `Labelled` scores sparse rows without making them dense."""
    from budgetjax import models

    linear = isinstance(models.unwrap(model), models.LinearModel)
    return linear and model.scaling is None
