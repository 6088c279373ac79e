"""The columns' encoding for `budgetjax train --metric`, chosen on a sample."""

from typing import NamedTuple

import numpy as np

from budgetjax._errors import names_errors
from budgetjax.cli import options, reading
from budgetjax.cli.learners import Job
from budgetjax.encoding import Encoding
from budgetjax.kernels import RBF
from budgetjax.labels import encode_labels
from budgetjax.raw_rows import SparseMatrix
from budgetjax.stream.reservoir import Reservoir, default_size


class Choice(NamedTuple):
    """An encoding, and the gamma of the kernel on its codes."""

    encoding: Encoding
    gamma: float

    @property
    def text(self) -> str:
        """For the report."""
        columns, codes = self.encoding.num_columns, self.encoding.num_codes
        return f"{columns:,} columns as {codes:,} codes, chosen on a sample of the rows"


def choose(job: Job) -> Choice | None:
    """What an estimator with this budget chooses on a sample, made in one pass.

    None stands for standardised columns: if that is what it chooses, or for options
    that leave no choice.
    """
    training = job.training
    if not (training.metric and training.standardise and training.gamma is None):
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
        penalty=training.penalty or options.PENALTY,
        random_state=training.seed,
    )
    X, y, weights, _ = sample.rows()
    model = estimator.fit(X, y, weights).model_
    kernel = model.model.kernel
    if not isinstance(model.scaling, Encoding) or not isinstance(kernel, RBF):
        return None
    encoding = model.scaling._replace(map=None)
    return Choice(encoding, float(np.asarray(kernel.gamma)))


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
            targets = y if classes is None else encode_labels(classes, y, row)
        kept = kept.updated(X, targets, weight[0] if weight else np.ones(len(y)))
        row += len(y)
    y = kept.rows().y
    return kept if len(y) and np.any(y != y[0]) else None
