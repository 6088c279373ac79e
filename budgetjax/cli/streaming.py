"""`budgetjax train` with an online learner: a stream, and a refit."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from budgetjax.cli import data, learners, targets
from budgetjax.cli.job import Job

# Penalty of errors in the refit.
PENALTY = 10.0
# Points of the learning curve of a small file, and the minimum number of rows of each:
# the first of them say how to scale the features.
POINTS = 100
FEWEST_ROWS = 256


def learned(
    job: Job,
    *,
    budget: int,
    epochs: int = 1,
    refit: bool = True,
    metric: bool = False,
    checkpoint: str | None = None,
) -> Any:
    """The model of a stream, after the refit; Ctrl-C says how to go on."""
    from budgetjax import kernels

    source, about = job.source, job.about
    regression = about.labels is None
    number = None if about.labels is None else len(about.labels)
    chosen = learners.chosen(job.learner, number, job.settings, job.seed, refits=refit)
    gamma = job.gamma
    if gamma is None:
        first, *_ = next(source.read())
        gamma = job.default_gamma(first)
    empty = functools.partial(
        chosen.algorithm.init,
        kernels.RBF(gamma),
        num_features=source.num_features,
        budget=budget,
        **chosen.arguments,
    )
    # A refit holds the kernel matrix, its eigenvectors, and their product.
    matrices = 3 * 4 * (budget + 1) ** 2 if refit else 0
    state = learners.made(f"--budget {budget}", empty, matrices)
    job.say_data()
    job.say("kernel", f"Gaussian, gamma {gamma:.4g}")
    job.say_learner(chosen.algorithm.name, f", at most {budget:,} support vectors")
    if about.doubt:
        data.echo(f"budgetjax: warning: {source.name}: {about.doubt}", err=True)
    try:
        fitted = _streamed(job, chosen.algorithm, state, epochs, checkpoint)
        rows = fitted.num_rows // epochs
        times = f", {epochs} times" if epochs > 1 else ""
        job.say("read", data.counted(rows, "row") + times)
        when = "of rows before they were learned"
        if epochs > 1:
            when = "over all passes, of which only the first met new rows"
        job.say(
            "progressive error",
            f"{targets.shown_error(fitted.error, regression)}, {when}",
        )
        if refit:
            fitted = _refitted(job, fitted, chosen.refit_loss, metric)
    except KeyboardInterrupt as interrupt:
        how = "nothing is written; --checkpoint FILE lets a run go on"
        if checkpoint is not None:
            how = f"the same command goes on from {checkpoint}"
        raise KeyboardInterrupt(how) from interrupt
    return fitted


def _streamed(
    job: Job, algorithm: Any, state: Any, epochs: int, checkpoint: str | None
) -> Any:
    """The model after the stream; more epochs are one longer stream."""
    from budgetjax.stream.batches import rows_of_a_batch
    from budgetjax.stream.fit import fit_stream
    from budgetjax.stream.reservoir import usual_size

    source, rows = job.source, job.about.rows

    def read() -> Iterator[tuple[np.ndarray, ...]]:
        for _ in range(epochs):
            yield from source.read()

    longer = dataclasses.replace(
        source, read=read, num_rows=None if rows is None else epochs * rows
    )
    # As many batches as a learning curve needs points; a large file has them anyway.
    usual = rows_of_a_batch("train", source.num_features, np.float32, None)
    size = max(FEWEST_ROWS, (rows or usual * POINTS) // POINTS)
    return fit_stream(
        algorithm,
        state,
        longer,
        classes=job.about.labels,
        intercept=job.about.mean,
        standardise=job.standardise,
        fill_missing=job.fills,
        reservoir=usual_size(source.num_features),
        batch_rows=min(usual, size),
        progress=job.progress,
        checkpoint=checkpoint,
    )


def _refitted(job: Job, fitted: Any, loss: Any, metric: bool) -> Any:
    """The model with the best coefficients of its support vectors."""
    from budgetjax.refitting.refit import refit

    # If no row has changed the model, zeros are right.
    if int(fitted.state.expansion.num_active):
        fitted = refit(
            fitted,
            job.source,
            loss=loss,
            penalty=PENALTY if job.penalty is None else job.penalty,
            learn_metric="auto" if metric else False,
            calibrate=job.about.labels is not None,
            progress=job.progress,
        )
    if metric:
        none = "left out, as it is not better"
        matrix = getattr(fitted.state.kernel, "matrix", None)
        job.say("metric", none if matrix is None else "learned")
    return fitted
