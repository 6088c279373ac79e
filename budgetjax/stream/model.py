"""What is learned from a stream: a model of raw rows, with its learning curve."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int32, Integer, Shaped

from budgetjax import checks, models
from budgetjax.online import rounds
from budgetjax.scaling import Scaling
from budgetjax.stream.batches import rows_of_a_batch
from budgetjax.stream.reservoir import Reservoir

# Beyond so many points of a curve, every other one is dropped.
MOST_POINTS = 1000


class StreamModel(NamedTuple):
    """A model with all that a stream taught it: it takes rows and gives labels as read.

    Attributes:
      state: of the learner, which sees scaled rows and its own labels.
      scaling: the mean and variance of the features, or None if they are taken as they
        are.
      classes: the labels, shape `(C,)`; None for those of the learner, and for
        regressors.
      rows: how many rows had been read at each point of the learning curve, shape
        `(points,)`, at most 1,000 points; the last is the end.
      errors: the progressive error up to there, each row predicted before it was
        learned: the share of mistakes, or for a regressor the mean squared error, shape
        `(points,)`.
      num_scored: rows of a weight above 0, which the errors are means of.
      total_error: the sum of their errors.
      feature_names: the columns of the rows, where the source had names.
      reservoir: a sample of the rows, while the stream that is to keep one has not
        ended.
    """

    state: Any
    scaling: Scaling | None
    classes: Shaped[np.ndarray, " classes"] | None
    rows: Integer[np.ndarray, " points"]
    errors: Float[np.ndarray, " points"]
    num_scored: int = 0
    total_error: float = 0.0
    feature_names: tuple[str, ...] | None = None
    reservoir: Reservoir | None = None

    @property
    def num_rows(self) -> int:
        """Rows read."""
        return int(self.rows[-1]) if len(self.rows) else 0

    @property
    def error(self) -> float:
        """The progressive error of the whole stream; NaN before there is a row."""
        return float(self.errors[-1]) if len(self.errors) else float("nan")

    def decision_function(self, X: Any) -> Float[np.ndarray, "n ..."]:
        """The scores `f(x)` of raw rows; O(n B d).

        Args:
          X: shape `(n, num_features)`, also a sparse matrix of SciPy; it is scaled, and
            made dense, by blocks. Of a data frame the columns are taken by their names,
            where those of the training are known, and it may have others too.

        Returns:
          Shape `(n,)` for a model with one column of coefficients, else `(n, columns)`.

        Raises:
          ValueError: if X has another shape, or a value that is not finite.
        """
        return self._scores("StreamModel.decision_function", X)

    def predict(self, X: Any) -> Shaped[np.ndarray, " n"]:
        """The labels of raw rows, or a regressor's values; O(n B d).

        Args:
          X: as for `decision_function`.

        Returns:
          Shape `(n,)`: of `classes`, where they were given, else as
          `budgetjax.predict`.

        Raises:
          ValueError: as `decision_function`.
        """
        scores = self._scores("StreamModel.predict", X)
        if models.is_regressor(self.state):
            return scores
        if scores.ndim == 1:
            labels = (scores > 0).astype(np.int32)
            return 2 * labels - 1 if self.classes is None else self.classes[labels]
        labels = np.argmax(scores, axis=1).astype(np.int32)
        return labels if self.classes is None else self.classes[labels]

    def _scores(self, where: str, X: Any) -> np.ndarray:
        vectors = self.state.expansion.vectors
        features = rounds.num_features(where, self.state)
        X = self._columns(where, X)
        is_sparse = hasattr(X, "tocsr")
        X = X.tocsr() if is_sparse else np.asarray(checks.array(where, "X", X))
        if X.ndim != 2 or X.shape[1] != features:
            raise ValueError(
                f"{where}: X must have shape (n, {features}), {features} being the "
                f"model's num_features, got {X.shape}"
            )
        size = rows_of_a_batch(where, features, vectors.dtype, None)
        scores = []
        for start in range(0, max(1, X.shape[0]), size):
            block = X[start : start + size]
            block = block.toarray() if is_sparse else block
            n = len(block)
            if self.scaling is not None:
                block = self.scaling.apply(block, vectors.dtype)
            # Few lengths, so that few programs are compiled.
            length = min(size, 1 << max(0, n - 1).bit_length())
            block = checks.on_device(padded(block, length), vectors.dtype)
            checks.check_finite(where, block, start)
            scores.append(np.asarray(models.decision_function(self.state, block))[:n])
        return np.concatenate(scores)

    def _columns(self, where: str, X: Any) -> Any:
        """The columns of a data frame that the model knows, in its order."""
        found = getattr(X, "columns", None)
        names = [] if found is None else list(found)
        known = self.feature_names
        if known is None or not names or not all(isinstance(n, str) for n in names):
            return X
        lacks = [repr(name) for name in known if name not in names]
        if lacks:
            raise ValueError(
                f"{where}: X must have the columns that the model was trained on, and "
                f"lacks {', '.join(lacks[:10])}"
            )
        return X[list(known)]


class StreamError(ValueError):
    """What a batch brought cannot be learned, or could not be read.

    Attributes:
      model: the `StreamModel` before that batch, which can predict and go on.
    """

    model: StreamModel

    def __init__(self, message: str, model: Any = None):
        super().__init__(message)
        self.model = model


class CheckpointError(OSError):
    """A checkpoint could not be written or read.

    Attributes:
      model: the `StreamModel` that was to be written, or the one to begin with.
    """

    model: StreamModel

    def __init__(self, message: str, model: Any = None):
        super().__init__(message)
        self.model = model


def codes_of(
    classes: Shaped[np.ndarray, " classes"], y: Shaped[np.ndarray, " n"]
) -> Int32[np.ndarray, " n"]:
    """The number of each label's class, -1 where it is none of them."""
    known = {label: i for i, label in enumerate(classes.tolist())}
    return np.array([known.get(label, -1) for label in y.tolist()], np.int32)


def learner_labels(
    codes: Integer[np.ndarray, " n"], num_classes: int
) -> Int32[np.ndarray, " n"]:
    """Numbers of classes as learners have them: -1 and +1 where there are two."""
    codes = codes.astype(np.int32)
    return 2 * codes - 1 if num_classes == 2 else codes


def padded(
    array: Shaped[np.ndarray, "n ..."], length: int, value: int = 0
) -> Shaped[np.ndarray, "length ..."]:
    """The array with more rows of one value."""
    more = length - len(array)
    if not more:
        return array
    return np.concatenate(
        [array, np.full((more, *array.shape[1:]), value, array.dtype)]
    )


def extended(
    model: StreamModel,
    state: Any,
    scaling: Scaling | None,
    rows: int,
    scored: int,
    error: float,
) -> StreamModel:
    """The model after one batch more.

    Args:
      model: before it.
      state: after it.
      scaling: after it.
      rows: of the batch.
      scored: how many of them have a weight.
      error: the sum of their errors.
    """
    num_scored = model.num_scored + scored
    total = model.total_error + error
    numbers, errors = model.rows, model.errors
    # What is left of a thinned curve is this far apart, and so is what comes.
    if len(numbers) and numbers[-1] - (numbers[-2:-1].sum()) < numbers[0]:
        numbers, errors = numbers[:-1], errors[:-1]
    if len(numbers) == MOST_POINTS:
        numbers, errors = numbers[1::2], errors[1::2]
    return model._replace(
        state=state,
        scaling=scaling,
        rows=np.append(numbers, model.num_rows + rows),
        errors=np.append(errors, total / max(num_scored, 1)),
        num_scored=num_scored,
        total_error=total,
    )
