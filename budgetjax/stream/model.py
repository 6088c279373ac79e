"""Models learned from streams, which take raw rows and have a learning curve."""

from dataclasses import field
from typing import Any

import numpy as np
from jaxtyping import Float, Integer, Shaped

from budgetjax._errors import InputError, Named
from budgetjax._record import Record, static
from budgetjax.model import Wrapper
from budgetjax.online.state import Online
from budgetjax.stream.reservoir import Reservoir
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.scaling import Scaling
from budgetjax.tables.table_model import TableModel

# The maximum number of points of a curve; beyond it every other one is dropped.
MAX_POINTS = 1000


class StreamModel(Wrapper):
    """A model of raw rows, learned from a stream, with its learning curve.

    Attributes:
      model: the state of the learner, which takes scaled rows and its own labels, with
        the scaling, the classes and the names of the columns.
      rows: the number of rows read at each point of the learning curve, shape
        `(points,)`, at most 1,000 points; the last point is the end.
      errors: the error at each point of rows before they were learned: the rate of
        mistakes, or for a regressor the mean squared error over rows and outputs, shape
        `(points,)`.
      num_scored: the number of rows with a weight above 0, whose errors are averaged.
      total_error: the sum of their errors.
      reservoir: the sample of rows, until the end of a stream that keeps one.
      importances: of each column in the metric that a training has learned, if it has,
        which sum to 1, shape `(num_features,)`; see `budgetjax.encoding.importances`.
      recipe: the choices by which `budgetjax.train` has made it, if it has.
    """

    model: TableModel
    rows: Integer[np.ndarray, " points"] = field(
        default_factory=lambda: np.zeros(0, np.int64)
    )
    errors: Float[np.ndarray, " points"] = field(default_factory=lambda: np.zeros(0))
    num_scored: int = 0
    total_error: float = 0.0
    reservoir: Reservoir | None = None
    importances: Float[np.ndarray, " features"] | None = None
    recipe: Record | None = static(default=None)

    @property
    def state(self) -> Any:
        """The state of the learner."""
        return self.model.model

    @property
    def scaling(self) -> Scaling | Encoding | None:
        """The scaling or encoding of raw rows, if there is one."""
        return self.model.scaling

    @property
    def classes(self) -> Shaped[np.ndarray, " classes"] | None:
        """The labels, if they are not the learner's own."""
        return self.model.classes

    @property
    def num_rows(self) -> int:
        """Rows read."""
        return int(self.rows[-1]) if len(self.rows) else 0

    @property
    def error(self) -> float:
        """The progressive error of the whole stream; NaN before the first row."""
        return float(self.errors[-1]) if len(self.errors) else float("nan")


class _WithModel(Named):
    """An error that carries a model."""

    def __init__(self, message: str, model: Any = None):
        super().__init__(message)
        self.model: StreamModel = model


class StreamError(_WithModel, InputError):
    """A batch could not be read or learned.

    Attributes:
      model: the `StreamModel` before that batch, which can predict and continue.
    """


class CheckpointError(_WithModel, OSError):
    """A checkpoint could not be written or read.

    Attributes:
      model: the `StreamModel` to write, or to start with.
    """


def extend_curve(
    model: StreamModel,
    state: Online,
    scaling: Scaling | Encoding | None,
    rows: int,
    scored: int,
    error: float,
) -> StreamModel:
    """The model after a batch, whose errors sum to `error` over `scored` rows."""
    num_scored = model.num_scored + scored
    total = model.total_error + error
    numbers, errors = model.rows, model.errors
    # New points are as far apart as those of the thinned curve.
    if len(numbers) and numbers[-1] - (numbers[-2:-1].sum()) < numbers[0]:
        numbers, errors = numbers[:-1], errors[:-1]
    if len(numbers) == MAX_POINTS:
        numbers, errors = numbers[1::2], errors[1::2]
    return model._replace(
        # A calibration applies to the old scores.
        model=model.model._replace(model=state, scaling=scaling, calibration=None),
        rows=np.append(numbers, model.num_rows + rows),
        errors=np.append(errors, total / max(num_scored, 1)),
        num_scored=num_scored,
        total_error=total,
    )


def sum_errors(
    model: StreamModel, state: Online, y: np.ndarray, weight: np.ndarray, scores: Any
) -> tuple[int, float]:
    """The rows that count, and their errors before they were learned by `state`.

    `y` are the targets of the model inside.
    """
    if not state.is_regressor:
        mistakes = float(state.num_mistakes - model.state.num_mistakes)
        return int(state.num_seen - model.state.num_seen), mistakes
    present = weight > 0
    values = state.predict_from_scores(np.asarray(scores, np.float64))
    residuals = (values - y)[present] * model.model.unit_of_targets
    squares = float(np.vdot(residuals, residuals))
    return int(present.sum()), squares / state.num_columns
