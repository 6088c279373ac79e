"""The columns' encoding for `budgetjax train`, chosen on a sample."""

from typing import NamedTuple

import numpy as np

from budgetjax._errors import names_errors
from budgetjax.cli import reading
from budgetjax.cli.learners import Job
from budgetjax.encoding import Encoding
from budgetjax.kernels import Kernel
from budgetjax.labels import encode_labels
from budgetjax.online.algorithm import Algorithm
from budgetjax.raw_rows import SparseMatrix
from budgetjax.scaling import Scaling
from budgetjax.stream.batches import cast_numbers
from budgetjax.stream.reservoir import Reservoir, default_size


class Choice(NamedTuple):
    """An encoding of the columns, or None for them as they are, and the kernel."""

    encoding: Encoding | None
    kernel: Kernel

    @property
    def text(self) -> str:
        """For the report."""
        if self.encoding is None:
            return "none, chosen on a sample of the rows"
        columns, codes = self.encoding.num_columns, self.encoding.num_codes
        if codes == columns:
            return "every feature in units of its quartiles, outliers clipped"
        return f"{columns:,} columns as {codes:,} codes, chosen on a sample of the rows"


def choose(job: Job, algorithm: Algorithm) -> Choice | None:
    """What an estimator with this budget chooses on a sample, made in one pass.

    None stands for standardised columns: those of sparse rows, or where options leave
    no choice.
    """
    training = job.training
    free = training.refit and training.metric and training.standardise
    free = free and training.gamma is None and algorithm.with_vectors is not None
    if not free:
        return None
    sample = _sample(job)
    if sample is None:
        return None
    # It imports scikit-learn, which takes a while.
    from budgetjax.estimators import BudgetedKernelClassifier, BudgetedKernelRegressor

    classes = job.about.labels
    kind = BudgetedKernelRegressor if classes is None else BudgetedKernelClassifier
    estimator = kind(
        training.budget,
        algorithm=training.learner and training.learner.replace("-", "_"),
        penalty=training.penalty or "auto",
        random_state=training.seed,
        progress=job.progress,
    )
    X, y, weights, _ = sample.rows()
    encoding, kernel = estimator.choose_encoding(X, y, weights)
    # Rows far from 0 need an origin, which only a standardised stream has.
    return None if isinstance(encoding, Scaling) else Choice(encoding, kernel)


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
