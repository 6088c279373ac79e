"""The base of all strategies of maintenance."""

from jax.typing import ArrayLike
from jaxtyping import Array, Float

from budgetjax.kernels import Kernel
from budgetjax.parameters import Parameters
from budgetjax.support_set import Edits, Expansion, Newcomer


class Maintenance(Parameters):
    """The rule by which a full budget makes room: remove, merge or project.

    A strategy is a subclass with `admit`; what it must remember is a field. All ties go
    to the oldest support vector.
    """

    def start(
        self, kernel: Kernel, expansion: Expansion, seed: ArrayLike
    ) -> "Maintenance":
        """The strategy for a support set, be it empty or not."""
        return self

    def admit(
        self, kernel: Kernel, expansion: Expansion, newcomer: Newcomer
    ) -> tuple["Maintenance", Edits]:
        """The strategy after the newcomer's entry, and the edits of the support set."""
        raise NotImplementedError

    def rescale(self, factor: Float[Array, ""]) -> "Maintenance":
        """The strategy after all stored coefficients were multiplied by `factor`."""
        return self


def again(strategy: Maintenance, kernel: Kernel, expansion: Expansion) -> Maintenance:
    """The strategy as it starts from this support set."""
    return strategy.start(kernel, expansion, getattr(strategy, "seed", 0))
