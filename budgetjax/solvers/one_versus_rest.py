"""One-versus-rest: solvers of two classes applied to several."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Int32, Shaped

from budgetjax._rows import RawRows
from budgetjax.scoring import format_labels
from budgetjax.solvers.solver import Model, Solution, Solver, State, solve

# Arguments per solver for which `init` and `solve` have no default for classifiers.
CLASSIFIER_DEFAULTS: dict[str, dict[str, float]] = {
    "sbp": {"slack": 0.003, "tolerance": 1.0},
    "mpu": {"tolerance": 1e-4},
}


def one_versus_rest(
    solver: Solver[..., Any, Model, Any],
    X: RawRows,
    y: Shaped[np.ndarray, " n"],
    classes: Shaped[np.ndarray, " classes"],
    *,
    random: np.random.RandomState,
    **arguments: Any,
) -> tuple[Solution[None, Model], ...]:
    """The solution of each class against the rest, or one for two classes.

    The problems share kernel rows, which do not depend on labels. The solutions have no
    states, so the memory is that of one problem. Of two classes, the second is +1;
    `random` is the source of seeds for solvers that draw.
    """
    solutions = []
    for signs in binary_labels(y, classes):
        if solver.takes("seed"):
            arguments["seed"] = int(random.randint(2**31 - 1))
        solution = solve(solver, X, signs, **arguments)
        if solver.takes("rows"):
            arguments["rows"] = solution.state.rows
        # The cached kernel rows of one state may fill the memory.
        solutions.append(solution._replace(state=None))
    return tuple(solutions)


def binary_labels(
    y: Shaped[np.ndarray, " n"], classes: Shaped[np.ndarray, " classes"]
) -> Iterator[Int32[np.ndarray, " n"]]:
    """The labels of each problem: +1 for its class, or for the second of two."""
    for label in classes[1:] if len(classes) == 2 else classes:
        yield np.where(y == label, 1, -1).astype(np.int32)


def combine_models(
    solutions: tuple[Solution[State, Model], ...],
) -> Model | tuple[Model, ...]:
    """The model of a `TableModel`: one for two classes, otherwise one per class."""
    first, *others = (solution.model for solution in solutions)
    return (first, *others) if others else first


def convergence_warning(
    solutions: tuple[Solution, ...],
    classes: Shaped[np.ndarray, " classes"],
    advice: str = "raise max_steps, or tolerance",
) -> str | None:
    """A warning about solutions that are not close enough, or None."""
    late = [i for i, one in enumerate(solutions) if not one.converged]
    if not late:
        return None
    first = format_labels(classes[-len(solutions) :][late[:1]])
    return (
        f"{len(late)} of {len(solutions)} models have a gap above tolerance, the first "
        f"of class {first}; {advice}"
    )
