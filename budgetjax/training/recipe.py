"""The choices of one training, each with one default; see `Recipe`."""

from collections.abc import Callable, Sequence

import jax
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Shaped

from budgetjax import _checks, kernels, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import Record
from budgetjax.kernels import Kernel
from budgetjax.online import defaults
from budgetjax.online.defaults import Choice, Family, Loss
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.maintenance import Maintenance
from budgetjax.refitting import held_out
from budgetjax.refitting.refit import Metric, check_metric
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.form import fit_encoding, narrowness
from budgetjax.tables.table_model import TableModel
from budgetjax.training.rows import Rows, Sample, values

# More columns than this, whose deviations differ by up to this factor, are those of
# images, which are learned as they are if the largest is in this range: float32 does
# not hold all squares beyond it.
MOST_COLUMNS, ALIKE, RAW_RANGE = 128, 10.0, (1e-15, 1e15)


class Recipe(Record):
    """How a model is made of rows: the choices of `budgetjax.train`.

    The estimators make one of their parameters, `budgetjax train` of its options, and
    model files of both keep it. What is "auto" is decided by the rows.

    Args:
      budget, learner, kernel, gamma, maintenance, average, vectors, loss, refit,
        penalty, move_vectors, learn_metric, encode, epochs, shuffle, capacity: as for
        `budgetjax.estimators.BudgetedKernelClassifier`, and for a regression as for
        `BudgetedKernelRegressor`.
      regression: whether targets are numbers, and not labels.
      seed: of the orders of rows and of random draws.

    Raises:
      ValueError: if a choice is invalid, or two exclude each other.

    Example:
      >>> recipe = bj.Recipe(budget=50, learner=bj.Pegasos(regularization=1e-3))
      >>> recipe.refit, recipe.gamma
      (True, 'auto')
    """

    budget: int = defaults.BUDGET
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
    learn_metric: Metric = "auto"
    encode: bool | str | int = "auto"
    epochs: int = 1
    shuffle: bool = True
    capacity: int | None = None
    regression: bool = False
    seed: int = 0

    def check(self) -> None:
        """Raises for choices that no rows can make valid."""
        _checks.size("epochs", self.epochs)
        for name in ("refit", "move_vectors", "shuffle", "regression"):
            _checks.flag(name, getattr(self, name))
        for penalty in self.penalties(1):
            _checks.positive("penalty", penalty)
        _check_bins(self.encode)
        own = {"kernel": "rbf", "gamma": "auto", "refit": False}
        choices = {name: (getattr(self, name), usual) for name, usual in own.items()}
        defaults.check_alone(self.learner, choices)
        asked = {
            "move_vectors": self.move_vectors,
            "learn_metric": self.learn_metric not in ("auto", False),
            "penalty": not is_auto(self.penalty),
        }
        for name, is_asked in asked.items():
            if is_asked and not self.refit:
                wanted = "be its default where there is no refit"
                raise ArgumentError(name, wanted, f"{getattr(self, name)!r}")

    @property
    def family(self) -> Family:
        """The losses and learners to choose from."""
        return defaults.REGRESSOR if self.regression else defaults.CLASSIFIER

    @property
    def losses(self) -> Loss:
        """The loss of the stream, and that of the refit."""
        return self.family.loss(self.loss)

    def choose(self, labels: TableModel) -> Choice:
        """The learner and the arguments of its `init`."""
        return defaults.choose(
            self.learner,
            loss=self.loss,
            maintenance=self.maintenance,
            average=self.average,
            vectors=self.vectors,
            num_classes=None if labels.classes is None else len(labels.classes),
            num_outputs=np.size(labels.intercept),
            seed=self.seed,
            refits=self.refit,
        )

    def penalties(self, rows: int) -> Shaped[np.ndarray, " penalties"]:
        """The penalties to choose from for this number of rows."""
        automatic = is_auto(self.penalty)
        penalties = held_out.default_penalties(rows) if automatic else self.penalty
        return np.atleast_1d(np.asarray(penalties, object))

    def check_columns(self, num_features: int) -> None:
        """Raises for choices that do not fit this number of columns."""
        check_metric(self.learn_metric, num_features)

    def encodings(
        self,
        X: Rows,
        nominal: Sequence[int] = (),
        *,
        num_rows: int | None = None,
        more_to_come: bool = False,
    ) -> Sequence[Encoding | None]:
        """What may encode the columns of these rows; None for rows as they are.

        The last one is that of a model that does not choose. `num_rows` is as for
        `fit_encoding`.
        """
        num_bins, rank = self._num_bins(X, nominal), self.learn_metric
        has_parts = self.kernel_has_parts
        if num_bins is False or (is_auto(num_bins) and has_parts):
            return _leave(X)
        budget = min(_checks.size("budget", self.budget), num_rows or X.shape[0])
        # A metric tells whether it needs bins.
        chooses = is_auto(num_bins) and rank is not False and not self.move_vectors
        found = [
            fit_encoding(
                *(X, budget, nominal),
                num_bins=None if isinstance(bins, str) else bins,
                rank=None if isinstance(rank, bool | str) else rank,
                num_rows=num_rows,
                more_to_come=more_to_come,
            )
            for bins in ([0, num_bins] if chooses else [num_bins])
        ]
        if not found[0].num_codes:
            # All rows are equal.
            return _leave(X)
        # Factors of columns, or a kernel's own parameters of them, need columns.
        is_plain = rank == "diagonal" or has_parts
        return [codes._replace(map=None) if is_plain else codes for codes in found]

    def _num_bins(self, X: Rows, nominal: Sequence[int]) -> int | str:
        """Bins per column; "auto" for as many as fit rows and columns; False for none.

        Sparse rows, and those of images, are learned as they are.
        """
        given, is_table = self.encode, isinstance(X, np.ndarray)
        _check_bins(given)
        if is_auto(given):
            is_wide = is_table and X.shape[1] > MOST_COLUMNS and not nominal
            return given if is_table and not (is_wide and has_one_scale(X)) else False
        if given is not False and not is_table:
            raise ArgumentError("encode", "be False or 'auto' for sparse rows", given)
        return given

    @property
    def kernel_has_parts(self) -> bool:
        """Whether a kernel has parameters that refer to single columns."""
        leaves = jax.tree.leaves(self.kernel)
        return isinstance(self.kernel, Kernel) and any(map(np.ndim, leaves))

    def gamma_of(self, sample: Sample, codes: Encoding | None) -> float | str:
        """The value of gamma, or its name."""
        if not is_auto(self.gamma):
            return self.gamma
        named = isinstance(self.kernel, str) and self.kernel in kernels.GAMMA_KERNELS
        usual = sample.gamma if named else 0.0
        if not usual:
            return "scale"
        if codes is None or not self.may_learn_metric:
            return usual
        return usual * narrowness(self.budget, sample.num_rows)

    @property
    def may_learn_metric(self) -> bool:
        """Whether a metric may be learned, with whose fold the vectors come."""
        classes = None if self.regression else 2
        learner = defaults.learner_of(self.learner, classes, refits=True)
        has_vectors = learner.has_vectors and learner.chooses_vectors
        return self.refit and has_vectors and self.learn_metric is not False

    def scale_loss(
        self, loss: Callable[..., Array], labels: TableModel
    ) -> Callable[..., Array]:
        """A loss for targets, with its kinks, in the units of the labels."""
        if np.all(labels.unit == 1):
            return loss
        return losses.with_unit(loss, labels.unit, 1 if losses.has_kinks(loss) else 2)


def is_auto(choice: object) -> bool:
    """Whether a choice is left to the rows."""
    return isinstance(choice, str) and choice == "auto"


def _check_bins(encode: object) -> None:
    if is_auto(encode) or encode is False:
        return
    if not isinstance(encode, int | np.integer) or encode is True:
        wanted = "be False, 'auto' or a number of bins"
        raise ArgumentError("encode", wanted, f"{encode!r}")
    _checks.size("encode", int(encode), at_least=0)


def _leave(X: Rows) -> tuple[None]:
    """The form of rows as they are, which may miss nothing."""
    given = values(X)
    if not np.all(np.isfinite(given)):
        missing = bool(np.any(np.isnan(given)))
        got = "NaN" if missing else "infinity"
        error = ArgumentError("X", "be finite numbers where rows are not encoded", got)
        raise error.advised("encode='auto' takes missing values" if missing else "")
    return (None,)


def has_one_scale(X: Rows) -> bool:
    """Whether all columns have one scale, and no value is missing."""
    deviations = np.sqrt(Sample(X).variances)
    deviations = deviations[deviations > 0]
    if np.any(np.isnan(values(X))) or not len(deviations):
        return False
    (least, most), largest = RAW_RANGE, np.max(deviations)
    is_alike = largest <= ALIKE * np.quantile(deviations, 0.25)
    return bool(is_alike and least <= largest <= most)
