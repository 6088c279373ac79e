"""A refit between its choices, which held-out examples make, and its solution."""

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from budgetjax import losses
from budgetjax.online.changes import resume
from budgetjax.refitting import held_out, metric, newton, training_data
from budgetjax.refitting.held_out import Fold, Judged
from budgetjax.refitting.metric import Trial
from budgetjax.refitting.problem import Problem
from budgetjax.refitting.solution import (
    Solution,
    build_model,
    solve_state,
    solve_weights,
)
from budgetjax.tables.spread import Spread
from budgetjax.tables.table_model import TableModel, fold_map


class Draft(NamedTuple):
    """A refit whose penalty is chosen, on held-out examples if there are any.

    Attributes:
      problem: the arguments and examples.
      state: the state to refit.
      rows: the number of examples, if any are held out.
      penalty: the best penalty.
      folds: held-out examples, if there is anything to judge.
      judged: folds, and the best models that did not learn their held-out examples, if
        these are scored.
      metric: a metric that predicts them better, or that is learned in any case; or
        None.
    """

    problem: Problem
    state: Any
    rows: int
    penalty: float
    folds: list[Fold]
    judged: list[Judged]
    metric: Trial | None = None

    def learn_metric(self, passes: int | None = None) -> "Draft":
        """The same with a metric, if that is wanted, after this number of passes.

        By default they are those of the problem, or suit the number of examples.
        """
        problem, rows = self.problem, self.rows
        compares = _compares_metric(problem, self.state, rows)
        if not (problem.learns or compares):
            return self
        fold = self.folds[0].with_fewer(rows)
        if not int(fold.state.num_active):
            # All examples that count are held out.
            return self
        passes = passes or problem.epochs or metric.count_passes(rows)
        found = metric.try_metric(problem, fold, self.penalty, passes)
        if compares and not fold.prefers(self.judged[0].scores, found.scores):
            return self
        judged = [Judged(fold, found.scores, found.beyond)]
        return self._replace(judged=judged, metric=found)

    def errors(self) -> list[Float[np.ndarray, " held"]]:
        """The mistakes or losses on the held-out examples of every fold, weighted."""
        return [one.fold.each_error(one.scores) for one in self.judged]

    def finish(self) -> Any:
        """The refitted model."""
        problem, solution, judged = _solve(self)
        model: Any = build_model(problem, solution)
        if problem.calibrates or not problem.is_bare:
            # The calibration of the old coefficients does not apply.
            whole = TableModel.of(model)
            found = _calibrate(problem, whole, judged) if problem.calibrates else None
            model = whole._replace(calibration=found).put_in(model)
        return fold_map(model)


def start_draft(problem: Problem) -> Draft:
    """The folds and the choice of the penalty."""
    state, rows = problem.model.inner, 0
    if problem.judges:
        rows = training_data.count_rows(problem.blocks())
    number = held_out.FOLDS if rows <= held_out.FEW else 1
    compares = _compares_metric(problem, state, rows)
    penalty, judged, folds = problem.penalties[0], [], []
    if problem.chooses or compares:
        folds = _make_folds(problem, number, state)
        penalty, judged = _choose_penalty(problem, folds)
    elif problem.learns or problem.calibrates:
        folds = _make_folds(problem, 1 if problem.learns else number, state)
    return Draft(problem, state, rows, penalty, folds, judged)


def _compares_metric(problem: Problem, state: Any, rows: int) -> bool:
    """Whether held-out examples choose between a metric and none."""
    codes = problem.encoding
    width = state.num_features if codes is None else codes.num_columns
    return (
        problem.form == "auto"
        and state.learner.has_vectors
        and state.kernel.stationary
        and rows >= width
    )


def _make_folds(problem: Problem, number: int, state: Any) -> list[Fold]:
    """Folds, each with the vectors that a stream of its training examples chooses."""
    found = []
    for i in range(number):
        learn, held = held_out.deal(problem, i)
        own = state
        if problem.streams:
            own = held_out.stream_fold(problem, state, learn)
        found.append(Fold(problem, learn, held, own, problem.basis(own)))
    return found


def _choose_penalty(problem: Problem, folds: list[Fold]) -> tuple[float, list[Judged]]:
    """The penalty with the least held-out error, the largest of equals; its models."""
    penalties, size = problem.penalties, len(problem.penalties)
    errors, found = np.zeros(size), []
    for fold in folds:
        weights = solve_weights(problem, fold.basis, fold.learn, penalties)
        errors += fold.errors(functools.partial(newton.scores, fold.basis, weights))
        found.append(np.split(weights, size))
    best = int(np.argmax(np.where(errors == min(errors), penalties, 0)))
    judged = [
        Judged(
            fold,
            functools.partial(newton.scores, fold.basis, each[best]),
            functools.partial(problem.beyond, fold.state),
        )
        for fold, each in zip(folds, found, strict=True)
    ]
    return penalties[best], judged


def _solve(draft: Draft) -> tuple[Problem, Solution, list[Judged]]:
    """The problem after a metric, the solution, and the models for the calibration."""
    problem, state, _, penalty, folds, judged, _ = draft
    if draft.metric is not None:
        with_metric, weights, matrix = draft.metric.finish()
        state = resume(state, with_metric)
        if matrix is not None:
            problem = problem._replace(map=matrix)
        if losses.takes_labels(problem.loss):
            # The weights of the logistic loss refer to the root of the initial vectors.
            return problem, (state, folds[0].basis, weights), judged
    if problem.moves and problem.calibrates:
        judged = []
        for fold in folds:
            own, *moved = solve_state(problem, penalty, fold.state, fold.learn)
            scores = functools.partial(newton.scores, *moved)
            beyond = functools.partial(problem.beyond, own)
            judged.append(Judged(fold, scores, beyond))
    return problem, solve_state(problem, penalty, state, problem.blocks), judged


def _calibrate(
    problem: Problem, model: TableModel, judged: list[Judged]
) -> float | Spread | None:
    """The calibration of a refitted model, from models that did not learn all rows."""
    if not model.is_regressor:
        return held_out.fit_calibration(judged)
    spread = held_out.measure_spread(problem, judged)
    if spread is None:
        return None
    # The targets of the problem had the intercept of the model before.
    before = TableModel.of(problem.model)
    more = (np.asarray(model.intercept) - before.intercept) / model.unit
    return spread._replace(low=spread.low - more, high=spread.high - more)
