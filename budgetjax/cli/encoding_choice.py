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
    free = training.refit and training.metric and training.standardise
    has_form = free and training.gamma is None
    sample = _sample(job) if has_form or job.source.texts else None
    if sample is None:
        return _leave(job)
    X, y, weights, is_whole = sample
    # An estimator needs rows that differ in their targets; classes without rows have a
    # place in a stream, but not in an estimator.
    found, known = len(np.unique(y)), 2 if classes is None else len(classes)
    if has_form and is_whole and training.checkpoint is None and found >= known:
        return _fit_estimator(job, X, y, weights)
    gamma, budget = training.gamma, min(training.budget, len(y))
    codes = fit_encoding(X, budget) if has_form else job.fit_names(X)
    if gamma is None:
        rows = codes.apply(X)
        gamma = job.default_gamma(rows[sample_rows(len(rows))], scaled=True)
        gamma *= narrowness(budget) if has_form else 1.0
    return Choice(RBF(gamma), False, codes, text=_describe(codes))


def _leave(job: Job) -> Choice:
    """Columns as they are, or standardised, as the options say."""
    gamma = job.training.gamma
    if gamma is None:
        first, *_ = next(job.source.read())
        gamma = job.default_gamma(first)
    return Choice(RBF(gamma), job.training.standardise)


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
    if codes.map is None:
        names = ", with a code per text" * bool(codes.categories)
        return f"every feature in units of its quartiles, outliers clipped{names}"
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
