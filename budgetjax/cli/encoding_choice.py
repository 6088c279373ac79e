"""The columns' encoding for `budgetjax train`, chosen on a sample."""

from typing import NamedTuple

import numpy as np

from budgetjax import estimators
from budgetjax._errors import names_errors
from budgetjax._rows import SparseMatrix
from budgetjax.cli import reading
from budgetjax.cli.learners import Job
from budgetjax.kernels import RBF, Mapped
from budgetjax.online.learner import Learner
from budgetjax.stream.batches import cast_numbers
from budgetjax.stream.reservoir import Reservoir, default_size, is_sparse
from budgetjax.tables.columns import unpack
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.form import fit_encoding, narrowness
from budgetjax.tables.labels import encode_labels
from budgetjax.tables.scaling import Scaling, default_gamma, sample_rows
from budgetjax.tables.table_model import TableModel


class Choice(NamedTuple):
    """How a stream takes the columns, by options, or as an estimator chooses.

    Attributes:
      kernel: the kernel of the stream.
      standardise: whether the stream standardises the columns.
      encoding: their encoding, if they have one.
      model: the model of an estimator that has learned all rows.
      text: the line of the report, if it is not the usual one.
    """

    kernel: RBF
    standardise: bool
    encoding: Encoding | None = None
    model: TableModel | None = None
    text: str | None = None


def choose(job: Job) -> Choice:
    """The choice of an estimator, or that of the options."""
    if chosen := _ask_estimator(job):
        return chosen
    gamma = job.training.gamma
    if gamma is None:
        first, *_ = next(job.source.read())
        gamma = job.default_gamma(first)
    return Choice(RBF(gamma), job.training.standardise)


def _ask_estimator(job: Job) -> Choice | None:
    """What an estimator with these options chooses on a sample, made in one pass.

    None for sparse rows, or where options leave no choice. If the sample holds all
    rows, it is learned whole, unless a checkpoint has to follow the stream.
    """
    training, classes = job.training, job.about.labels
    free = training.refit and training.metric and training.standardise
    learner = job.learner(refits=training.refit)
    if not (free and training.gamma is None and learner.has_vectors):
        return None
    sample = _sample(job)
    if sample is None:
        return None
    estimator = _make_estimator(job, learner)
    packed, y, weights, _ = sample.rows()
    X = unpack(packed)
    has_all = len(y) == sample.num_rows and training.checkpoint is None
    # Classes without rows have a place in a stream, but not in an estimator.
    if has_all and (classes is None or len(np.unique(y)) == len(classes)):
        names = job.source.feature_names
        model = estimator.fit(X, y, weights).model_
        model = model._replace(classes=classes, feature_names=names)
        encoding, kernel = model.scaling, model.model.kernel
    else:
        model = None
        encoding = fit_encoding(X, training.budget)
        gamma = default_gamma(encoding.apply(X[sample_rows(len(X))]))
        kernel = RBF(gamma * narrowness(training.budget))
    # Rows far from 0 need an origin, which only a standardised stream has.
    if isinstance(encoding, Scaling):
        return None
    kernel = kernel.kernel if isinstance(kernel, Mapped) else kernel
    assert isinstance(kernel, RBF), "the default of estimators"
    return Choice(kernel, False, encoding, model, _describe(encoding))


def _describe(codes: Encoding | None) -> str:
    """What an estimator chose, for the report."""
    if codes is None:
        return "none, chosen on held-out rows"
    if not has_bins(codes):
        return "every feature in units of its quartiles, outliers clipped"
    columns, number = codes.num_columns, codes.num_codes
    return f"{columns:,} columns as {number:,} codes"


def has_bins(codes: Encoding | None) -> bool:
    """Whether columns become codes of bins, which need a metric."""
    return codes is not None and codes.num_codes > codes.num_columns


def _make_estimator(
    job: Job, learner: Learner
) -> "estimators.BudgetedKernelClassifier | estimators.BudgetedKernelRegressor":
    kind = estimators.BudgetedKernelClassifier
    if job.about.labels is None:
        kind = estimators.BudgetedKernelRegressor
    training = job.training
    return kind(
        training.budget,
        learner=learner,
        penalty=training.penalty or "auto",
        epochs=training.epochs,
        random_state=training.seed,
        progress=job.progress,
        **job.named,
    )


def _sample(job: Job) -> Reservoir | None:
    """A sample of the rows; None of sparse ones, or if all rows are of one class."""
    width, classes = job.source.num_features, job.about.labels
    kept, row = None, 0
    for X, y, *weight in job.source.read():
        if isinstance(X, SparseMatrix):
            return None
        reading.check_finite(job.source, X, row, job.fills)
        with names_errors(job.source.name):
            # Estimators would name a row of the sample.
            cast_numbers("X", X, np.float32, row, job.source.feature_names)
            targets = y if classes is None else encode_labels(classes, y, row)
        kept = kept or Reservoir.empty(
            width,
            np.dtype(np.float64),
            np.dtype(np.float64 if classes is None else int),
            size=default_size(width),
            seed=job.training.seed,
            sparse=is_sparse(X),
        )
        kept = kept.updated(X, targets, weight[0] if weight else np.ones(len(y)))
        row += len(y)
    if kept is None:
        return None
    y = kept.rows().y
    return kept if len(y) and np.any(y != y[0]) else None
