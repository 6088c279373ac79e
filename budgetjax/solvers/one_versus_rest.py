"""Solvers of two classes on several: one problem per class against the rest."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int32, Shaped

from budgetjax import models
from budgetjax.solvers.solver import Solution, Solver, solve

# Arguments by the solver, where `init` and `solve` have no default for classifiers.
USUAL: dict[str, dict[str, Any]] = {
    "sbp": {"slack": 0.003, "tolerance": 1.0},
    "mpu": {"tolerance": 1e-4},
}


def one_versus_rest(
    solver: Solver,
    X: Any,
    y: Shaped[np.ndarray, " n"],
    classes: Shaped[np.ndarray, " classes"],
    *,
    random: np.random.RandomState,
    **arguments: Any,
) -> tuple[Solution, ...]:
    """The solution of each class against the rest, or one for two classes.

    The problems share kernel rows, which know nothing of classes. Memory is that of
    one: the solutions have no states.

    Args:
      solver: for example `budgetjax.smo`.
      X: the training set, shape `(n, d)`; see `Solver`.
      y: labels of any kind, shape `(n,)`.
      classes: the labels, at least two; of two, the second is +1.
      random: source of the seeds of solvers that draw.
      **arguments: arguments of `solve`.
    """
    takes = inspect.signature(solver.init).parameters
    found = []
    for signs in signs_of(y, classes):
        if "seed" in takes:
            arguments["seed"] = int(random.randint(2**31 - 1))
        solution = solve(solver, X, signs, **arguments)
        if "rows" in takes:
            arguments["rows"] = solution.state.rows
        # One state has as many kernel rows as fit.
        found.append(solution._replace(state=None))
    return tuple(found)


def signs_of(
    y: Shaped[np.ndarray, " n"], classes: Shaped[np.ndarray, " classes"]
) -> Iterator[Int32[np.ndarray, " n"]]:
    """The labels of each problem: +1 for a class, or for the second of two."""
    for label in classes[1:] if len(classes) == 2 else classes:
        yield np.where(y == label, 1, -1).astype(np.int32)


def joined(solutions: tuple[Solution, ...]) -> Any:
    """What a `Labelled` holds: the model of two classes, or one model per class."""
    first, *others = (solution.model for solution in solutions)
    return (first, *others) if others else first


def unfinished(
    solutions: tuple[Solution, ...], classes: Shaped[np.ndarray, " classes"]
) -> str | None:
    """What to say of solutions that are not close enough, or None."""
    late = [i for i, one in enumerate(solutions) if not one.converged]
    if not late:
        return None
    first = models.listed(classes[-len(solutions) :][late[:1]])
    return (
        f"{len(late)} of {len(solutions)} models have a gap above tolerance, the first "
        f"of class {first}; raise max_steps, or tolerance"
    )
