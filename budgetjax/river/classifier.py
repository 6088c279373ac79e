"""A kernel classifier for streams; see `BudgetedClassifier`."""

from collections.abc import Hashable

import numpy as np
from jaxtyping import Float
from river import base
from river.utils import dataframe

from budgetjax._errors import ArgumentError
from budgetjax.kernels import Kernel
from budgetjax.online import defaults
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import Maintenance
from budgetjax.refitting import calibration
from budgetjax.river.frames import Frame, Label, Row, rows_of
from budgetjax.river.online import Supervised
from budgetjax.scoring import squeeze_columns

# The fewest columns of coefficients, after a third label.
FEWEST_COLUMNS = 8


class BudgetedClassifier(Supervised, base.MiniBatchClassifier):
    """A kernel classifier for streams, with a bounded number of support vectors.

    The budget bounds memory and time per row. Scale the features first, with
    `preprocessing.StandardScaler`.

    Labels may have any type and appear at any time. Up to two labels share one column
    of scores. A third one changes this to one column per label, with room for eight
    labels, which doubles when it is full. Either change takes seconds, unless the
    labels are given as `classes`.

    Args:
      learner: one with its hyperparameters, such as `budgetjax.Pegasos()`, or "auto"
        for `budgetjax.AROW()`. A stream that drifts all the time asks for
        `budgetjax.AROW(drift=0.01)`; `budgetjax.Forgetron` is for two labels only, and
        `budgetjax.Fourier` draws frequencies for a new feature when it appears.
      budget: the maximum number of support vectors.
      kernel: "rbf", "laplacian", "poly", "sigmoid" or "linear", or a kernel, such as
        `budgetjax.Polynomial(3)`. Rows are learned and predicted fastest with "rbf".
      gamma: the parameter of all kernels but "linear". None is one divided by the
        number of features of the first row, which is `budgetjax.default_gamma` of
        standardised features.
      maintenance, average: as for `budgetjax.Learner.init`; a strategy may be given by
        name, such as "remove_oldest". Predictions are those of the average, if there is
        one.
      classes: the labels that will occur, if known: the model then has one column per
        label from the first row, as with `budgetjax.run`.
      seed: the seed of random draws.

    Example:
      >>> from budgetjax.river import BudgetedClassifier
      >>> from river import datasets, evaluate, metrics, preprocessing
      >>> model = preprocessing.StandardScaler() | BudgetedClassifier(budget=50)
      >>> found = evaluate.progressive_val_score(
      ...     datasets.Phishing(), model, metrics.Accuracy())
      >>> found.get() > 0.85
      True

    References:
      See the learner, such as `budgetjax.AROW`.
    """

    def __init__(
        self,
        learner: OnlineLearner | str = "auto",
        *,
        budget: int = defaults.BUDGET,
        kernel: str | Kernel = "rbf",
        gamma: float | None = None,
        maintenance: Maintenance | str | None = None,
        average: bool | int = False,
        classes: tuple[Label, ...] | None = None,
        seed: int = 0,
    ):
        self.classes = classes
        super().__init__(
            learner,
            budget=budget,
            kernel=kernel,
            gamma=gamma,
            maintenance=maintenance,
            average=average,
            seed=seed,
        )

    def _start(self) -> None:
        super()._start()
        labels = () if self.classes is None else self.classes
        self._codes = {label: code for code, label in enumerate(labels)}
        self._room = max(2, len(self._codes))

    @property
    def _multiclass(self) -> bool:
        return "num_classes" in self._takes

    @property
    def labels(self) -> tuple[Label, ...]:
        """The labels, in the order of the columns of `state`, or of -1 and +1."""
        return tuple(self._codes)

    def predict_one(self, x: Row, **kwargs: object) -> Label:
        """The label of the largest score, the first on ties; None before any label.

        Unknown features and `kwargs` are ignored.
        """
        return self._predict([x])[0]

    def predict_proba_one(self, x: Row, **kwargs: object) -> dict[Label, float]:
        """The sigmoid of the score, or the softmax of the scores, by label so far.

        With `budgetjax.SGD(loss=budgetjax.losses.logistic)` they are probabilities.
        Otherwise they have the right order, but their confidence depends on the scale
        of the margins.
        """
        probabilities, labels = self._probabilities([x])
        return dict(zip(labels, probabilities[0].tolist(), strict=True))

    def predict_proba_many(self, X: Frame) -> Frame:
        """The probabilities of the rows of a data frame, with one column per label."""
        frame = dataframe.into_frame(X)
        probabilities, labels = self._probabilities([*rows_of(frame)])
        columns = dict(zip(labels, probabilities.T, strict=True))
        return dataframe.to_native_frame(columns, like=frame)

    def _encode(self, y: Hashable) -> float:
        if y is None or y != y:
            raise ArgumentError("y", "be a label", f"{y!r}; leave out rows without one")
        code = self._codes.get(y)
        if code is None:
            code = len(self._codes)
            if code == self._room:
                room = max(FEWEST_COLUMNS, 1 << code.bit_length())
                self._grow(self._width, room)
                self._room = room
            self._codes[y] = code
        return float(2 * code - 1 if self._room == 2 else code)

    def _predict(self, rows: list[Row]) -> list[Label]:
        """The labels of the largest scores among the labels so far."""
        scores, labels = self._score_rows(rows)
        if not labels:
            return [None] * len(rows)
        columns = calibration.class_columns(squeeze_columns(scores))
        best = np.argmax(columns[:, : len(labels)], axis=1)
        return [labels[code] for code in best.tolist()]

    def _probabilities(
        self, rows: list[Row]
    ) -> tuple[Float[np.ndarray, "n labels"], tuple[Label, ...]]:
        """The softmax of the scores of the labels so far, and the labels."""
        scores, labels = self._score_rows(rows)
        if not labels:
            return np.zeros((len(rows), 0)), labels
        columns = calibration.class_columns(squeeze_columns(scores))
        return calibration.softmax(columns[:, : len(labels)]), labels
