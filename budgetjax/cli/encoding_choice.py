"""The columns' encoding for `budgetjax train`, chosen on a sample."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from budgetjax._errors import names_errors
from budgetjax.cli import learners, reading
from budgetjax.cli.learners import Job
from budgetjax.encoding import Encoding
from budgetjax.kernels import Kernel, Mapped
from budgetjax.labels import encode_labels
from budgetjax.models import Labelled
from budgetjax.online.algorithm import Algorithm
from budgetjax.raw_rows import SparseMatrix
from budgetjax.scaling import Scaling
from budgetjax.stream.batches import cast_numbers
from budgetjax.stream.reservoir import Reservoir, default_size

if TYPE_CHECKING:
    from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor


class Choice(NamedTuple):
    """What an estimator chooses for the columns.

    Attributes:
      encoding: the encoding of the columns; None for them as they are.
      kernel: the kernel of the stream.
      model: the estimator's model, if it has learned all rows.
    """

    encoding: Encoding | None
    kernel: Kernel
    model: Labelled | None = None

    @property
    def has_codes(self) -> bool:
        """Whether columns become codes of bins, which need a metric."""
        codes = self.encoding
        return codes is not None and codes.num_codes > codes.num_columns

    @property
    def text(self) -> str:
        """For the report."""
        codes = self.encoding
        if codes is None:
            return "none, chosen on held-out rows"
        if not self.has_codes:
            return "every feature in units of its quartiles, outliers clipped"
        return (
            f"{codes.num_columns:,} columns as {codes.num_codes:,} codes, chosen on "
            "held-out rows"
        )


def choose(job: Job, algorithm: Algorithm) -> Choice | None:
    """What an estimator with these options chooses on a sample, made in one pass.

    None stands for standardised columns: those of sparse rows, or where options leave
    no choice. If the sample holds all rows, it is learned whole, unless a checkpoint
    has to follow the stream.
    """
    training, classes = job.training, job.about.labels
    free = training.refit and training.metric and training.standardise
    free = free and training.gamma is None and algorithm.with_vectors is not None
    if not free:
        return None
    sample = _sample(job)
    if sample is None:
        return None
    estimator = _make_estimator(job)
    X, y, weights, _ = sample.rows()
    has_all = len(y) == sample.num_rows and training.checkpoint is None
    # Classes without rows have a place in a stream, but not in an estimator.
    if has_all and (classes is None or len(np.unique(y)) == len(classes)):
        names = job.source.feature_names
        model = estimator.fit(X, y, weights).model_
        model = model._replace(classes=classes, feature_names=names)
        encoding, kernel = model.scaling, model.model.kernel
    else:
        model = None
        encoding, kernel = estimator.choose_encoding(X, y, weights)
    # Rows far from 0 need an origin, which only a standardised stream has.
    if isinstance(encoding, Scaling):
        return None
    # The stream learns no metric.
    encoding = encoding and encoding._replace(map=None)
    kernel = kernel.kernel if isinstance(kernel, Mapped) else kernel
    return Choice(encoding, kernel, model)


def _make_estimator(
    job: Job,
) -> "BudgetedKernelClassifier | BudgetedKernelRegressor":
    # It imports scikit-learn, which takes a while.
    from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

    training, is_regressor = job.training, job.about.labels is None
    settings = learners.to_python_names(training.settings)
    parameters = {
        name: settings.pop(name)
        for name in ("regularization", "maintenance", "loss")
        if name in settings
    }
    return (BudgetedKernelRegressor if is_regressor else BudgetedKernelClassifier)(
        training.budget,
        algorithm=training.learner and training.learner.replace("-", "_"),
        options=settings,
        penalty=training.penalty or "auto",
        epochs=training.epochs,
        random_state=training.seed,
        progress=job.progress,
        **parameters,
    )


def _sample(job: Job) -> Reservoir | None:
    """A sample of the rows; None of sparse ones, or if all rows are of one class."""
    width, classes = job.source.num_features, job.about.labels
    kept = Reservoir.empty(
        *(
            width,
            np.dtype(np.float64),
            np.dtype(np.float64 if classes is None else int),
        ),
        size=default_size(width),
        seed=job.training.seed,
    )
    row = 0
    for X, y, *weight in job.source.read():
        if isinstance(X, SparseMatrix):
            return None
        reading.check_finite(job.source, X, row, job.fills)
        with names_errors(job.source.name):
            # Estimators would name a row of the sample.
            cast_numbers("X", X, np.float32, row, job.source.feature_names)
            targets = y if classes is None else encode_labels(classes, y, row)
        kept = kept.updated(X, targets, weight[0] if weight else np.ones(len(y)))
        row += len(y)
    y = kept.rows().y
    return kept if len(y) and np.any(y != y[0]) else None
