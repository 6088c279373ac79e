"""The columns' encoding for `budgetjax train`, chosen on a sample."""

from typing import Any, NamedTuple

import numpy as np

from budgetjax import estimators
from budgetjax._errors import names_errors
from budgetjax._rows import SparseMatrix
from budgetjax.cli import reading
from budgetjax.cli.learners import Job
from budgetjax.kernels import RBF, Mapped
from budgetjax.stream.batches import cast_numbers
from budgetjax.stream.reservoir import Reservoir, default_size, is_sparse
from budgetjax.tables.columns import TableRows, unpack
from budgetjax.tables.encoding import Encoding
from budgetjax.tables.form import fit_encoding, narrowness
from budgetjax.tables.labels import encode_labels
from budgetjax.tables.scaling import sample_rows
from budgetjax.tables.table_model import TableModel


class Sample(NamedTuple):
    """Rows of a file, their targets and weights, and whether they are all."""

    X: Any
    y: np.ndarray
    weights: np.ndarray
    is_whole: bool


class Choice(NamedTuple):
    """How a stream takes the columns, by options, or in the form of a table.

    Attributes:
      kernel: the kernel of the stream.
      standardise: whether the stream standardises the columns.
      encoding: their encoding, if they have one.
      model: the model of an estimator that has learned all rows.
      learns: whether it has learned a metric.
      text: the line of the report, if it is not the usual one.
    """

    kernel: RBF
    standardise: bool
    encoding: Encoding | None = None
    model: TableModel | None = None
    learns: bool = False
    text: str | None = None


def choose(job: Job) -> Choice:
    """The form of a table, from a sample made in one pass, or that of the options.

    Sparse rows have none. If the sample holds all rows, an estimator learns it whole,
    unless a checkpoint has to follow the stream.
    """
    training, classes = job.training, job.about.labels
    gamma = training.gamma
    sample = _sample(job) if training.standardise or job.source.texts else None
    if sample is None:
        if gamma is None:
            first, *_ = next(job.source.read())
            gamma = job.default_gamma(first)
        return Choice(RBF(gamma), training.standardise)
    X, y, weights, is_whole = sample
    has_all = is_whole and training.checkpoint is None and training.refit
    # An estimator needs rows that differ in their targets; classes without rows have a
    # place in a stream, but not in an estimator.
    found, known = len(np.unique(y)), 2 if classes is None else len(classes)
    if has_all and found >= known:
        return _fit_estimator(job, X, y, weights)
    codes = fit_encoding(X, training.budget)
    if gamma is None:
        rows = codes.apply(X)
        gamma = job.default_gamma(rows[sample_rows(len(rows))], scaled=True)
        gamma *= narrowness(training.budget)
    return Choice(RBF(gamma), False, codes, text=_describe(codes))


def _fit_estimator(job: Job, X: Any, y: np.ndarray, weights: np.ndarray) -> Choice:
    """The choice of an estimator, with its model of all rows."""
    estimator = _make_estimator(job).fit(X, y, weights)
    names = job.source.feature_names
    model = estimator.model_
    model = model._replace(classes=job.about.labels, feature_names=names)
    kernel = model.model.kernel
    kernel = kernel.kernel if isinstance(kernel, Mapped) else kernel
    assert isinstance(kernel, RBF), "the default of estimators"
    learns, codes = hasattr(estimator, "feature_importances_"), model.encoding
    standardise = codes is None and model.scaling is not None
    return Choice(kernel, standardise, codes, model, learns, _describe(codes))


def _describe(codes: Encoding | None) -> str:
    """The encoding, for the report."""
    if codes is None:
        return "none, as columns have one scale"
    columns, number = codes.num_columns, codes.num_codes
    return f"{columns:,} columns as {number:,} codes"


def _make_estimator(
    job: Job,
) -> "estimators.BudgetedKernelClassifier | estimators.BudgetedKernelRegressor":
    kind = estimators.BudgetedKernelClassifier
    if job.about.labels is None:
        kind = estimators.BudgetedKernelRegressor
    training = job.training
    return kind(
        training.budget,
        learner=job.learner(refits=training.refit),
        gamma=training.gamma or "auto",
        learn_metric="auto" if training.metric else False,
        penalty=training.penalty or "auto",
        epochs=training.epochs,
        random_state=training.seed,
        progress=job.progress,
        **job.named,
    )


def _sample(job: Job) -> Sample | None:
    """A sample of the rows; None of sparse ones, or if there are none."""
    width, classes, texts = job.source.num_features, job.about.labels, job.source.texts
    kept, rows, row = None, None, 0
    for X, y, *weight in job.source.read():
        if isinstance(X, SparseMatrix):
            return None
        reading.check_finite(job.source, X, row, takes_missing=True)
        with names_errors(job.source.name):
            if texts:
                X = rows = TableRows(X)
            else:
                # Estimators would name a row of the sample.
                cast_numbers("X", X, np.float32, row, job.source.feature_names)
            targets = y if classes is None else encode_labels(classes, y, row)
        kept = kept or Reservoir.empty(
            width,
            np.dtype(object if texts else np.float64),
            np.dtype(np.float64 if classes is None else int),
            size=default_size(width),
            seed=job.training.seed,
            sparse=isinstance(X, np.ndarray) and is_sparse(X),
        )
        kept = kept.updated(X, targets, weight[0] if weight else np.ones(len(y)))
        row += len(y)
    if kept is None or not kept.num_rows:
        return None
    packed, y, weights, _ = kept.rows()
    X = unpack(packed) if rows is None else rows.with_rows(packed)
    return Sample(X, y, weights, len(y) == kept.num_rows)
