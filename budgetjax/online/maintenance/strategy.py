"""What a strategy of maintenance is, and how a learner takes one."""

from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax import checks
from budgetjax.kernels import RBF, Kernel
from budgetjax.online.maintenance.merging import Merge
from budgetjax.online.maintenance.projection import Project
from budgetjax.support_set import Edits, Expansion, Newcomer


@runtime_checkable
class Maintenance(Protocol):
    """Who leaves, or is merged or projected, when the budget is full.

    A strategy is a `NamedTuple`; what it must remember is its leaves. All ties go to
    the oldest support vector.

    `start` gives the strategy for a support set, be it empty or not; `admit` the
    strategy after the newcomer's entry, and the edits of the support set; `rescale` the
    strategy after all stored coefficients were multiplied by `factor`.
    """

    def start(
        self, kernel: Kernel, expansion: Expansion, seed: ArrayLike
    ) -> "Maintenance": ...

    def admit(
        self, kernel: Kernel, expansion: Expansion, newcomer: Newcomer
    ) -> tuple["Maintenance", Edits]: ...

    def rescale(self, factor: Float[Array, ""]) -> "Maintenance": ...


def again(strategy: Maintenance, kernel: Kernel, expansion: Expansion) -> Maintenance:
    """The strategy as it starts from this support set, where it keeps arrays of it."""
    if all(jnp.ndim(leaf) == 0 for leaf in jax.tree.leaves(strategy)):
        return strategy
    return strategy.start(kernel, expansion, 0)


def started(
    where: str,
    strategy: Maintenance | None,
    kernel: Kernel,
    expansion: Expansion,
    seed: ArrayLike,
) -> Maintenance:
    """The strategy as a part of a new state; errors name `where`.

    None merges, or projects where the kernel is not Gaussian and nothing can be merged.
    """
    if strategy is None:
        strategy = Merge() if isinstance(kernel, RBF) else Project()
    if isinstance(strategy, type) or not isinstance(strategy, Maintenance):
        raise ValueError(
            f"{where}: maintenance must be a strategy such as RemoveOldest(), got "
            f"{strategy!r}"
        )
    return strategy.start(kernel, expansion, checks.scalar_integer(where, "seed", seed))
