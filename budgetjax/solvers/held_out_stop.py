"""Early stopping by held-out examples; see `held_out_stop`."""

from collections.abc import Callable
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from budgetjax import _checks, models
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.solvers.solver import Record, Solver, State


@names_errors("held_out_stop")
def held_out_stop(
    solver: Solver[..., State, Any, Any],
    X: Any,
    y: ArrayLike,
    X_held: Any,
    y_held: ArrayLike,
    *,
    patience: int = 5,
) -> Callable[[State, Record], bool]:
    """A callback for `solve` that ends a run when its held-out error settles.

    Good predictions often need no small duality gap, and stochastic solvers never reach
    one. The callback predicts the held-out rows at every record, and stops after
    `patience` records without a lower error. The solution is that of the last record,
    not of the lowest error, since noise would choose that one.

    Cost: the scores of the held-out rows at every record, O(m d) per row with m support
    vectors.

    Args:
      solver: the solver of the run.
      X: its training set, as passed to `solve`.
      y: the labels of the training set.
      X_held: rows that are not in the training set, shape `(n, d)`.
      y_held: their labels, -1 and +1, shape `(n,)`.
      patience: the number of records without a lower error after which to stop, at
        least 1.

    Returns:
      A function of a state and a `Record`. It serves one run only.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> train = data.X_train[:500], data.y_train[:500]
      >>> held = data.X_train[500:1000], data.y_train[500:1000]
      >>> found = bj.solve(
      ...     bj.sbp, *train, kernel=bj.RBF(8.0), slack=0.01, tolerance=None,
      ...     callback=bj.held_out_stop(bj.sbp, *train, *held, patience=3))
      >>> int(found.history.step[-1]) < 1000
      True

    References:
      Cotter, Shalev-Shwartz and Srebro (2012), Section 6: "the most practical approach
      seems to be to terminate when a holdout error stabilizes".
      https://arxiv.org/abs/1204.0566
    """
    patience = _checks.size("patience", patience)
    labels = np.asarray(y_held)
    if labels.shape != (len(X_held),) or not np.all(np.abs(labels) == 1):
        wanted = f"be -1 or +1 per row of X_held, of shape ({len(X_held)},)"
        got = f"{labels.tolist()[:3]} of shape {labels.shape}"
        raise ArgumentError("y_held", wanted, got)
    errors: list[float] = []

    def stop(state: State, record: Record) -> bool:
        predicted = models.predict(solver.model(state, X, y), X_held)
        errors.append(float(np.mean(np.asarray(predicted) != labels)))
        return len(errors) - 1 - int(np.argmin(errors)) >= patience

    return stop
