"""One-versus-rest: solvers of two classes applied to several."""

import dataclasses
from collections.abc import Iterator

import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Int32, Shaped

from budgetjax._rows import RawRows
from budgetjax.scoring import format_labels
from budgetjax.solvers.row_cache import KernelCache
from budgetjax.solvers.solver import Model, Solution, Solver, State, solve


def one_versus_rest(
    solver: Solver[State, Model],
    X: RawRows,
    y: Shaped[np.ndarray, " n"],
    classes: Shaped[np.ndarray, " classes"],
    *,
    weight: ArrayLike | None = None,
    random: np.random.RandomState | None = None,
    cache_size: float | None = 512.0,
    max_steps: int | None = None,
    progress: bool = False,
) -> tuple[Solution[State, Model], ...]:
    """The solution of each class against the rest, or one for two classes.

    The problems share the training set, except its labels, and kernel rows, so the
    memory is that of one problem. Of two classes, the second is +1; `random` is the
    source of seeds, for a solver that draws anew for each class.
    """
    solutions, data = [], None
    cache = None if solver.linear else KernelCache(cache_size)
    for signs in problem_labels(y, classes):
        if random is not None:
            seed = int(random.randint(2**31 - 1))
            solver = dataclasses.replace(solver, seed=seed)  # pyright: ignore
        if data is None:
            data = solver.read(X, signs, weight)
        else:
            data = data.with_labels(signs)
        solutions.append(
            solve(solver, data, cache=cache, max_steps=max_steps, progress=progress)
        )
    return tuple(solutions)


def problem_labels(
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
