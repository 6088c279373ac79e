"""Solvers of a whole training set, kernel and linear, one file each."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.solvers.solver import Solver

# Solvers of users by name; see `budgetjax.register`. They are kept here, where the
# command line finds them without waiting for JAX.
registered: "dict[str, Solver[..., Any, Any, Any]]" = {}


def by_name() -> dict[str, Any]:
    """All solvers: the public ones, and those of `budgetjax.register`."""
    from budgetjax import _pytree
    from budgetjax.solvers.solver import Solver

    public = _pytree.public_names().values()
    return {one.name: one for one in public if isinstance(one, Solver)} | registered
