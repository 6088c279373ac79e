"""The base class of all maintenance strategies."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from budgetjax._pytree import Parameters
from budgetjax._shapes import Index, Scalar
from budgetjax.kernels import Kernel
from budgetjax.online import support_set
from budgetjax.online.support_set import Edits, Expansion, Newcomer


class Maintenance(Parameters, abstract=True):
    """The rule by which a full budget makes room: remove, merge or project.

    A strategy is a subclass with `admit`; its memory is kept in fields. All ties go to
    the oldest support vector. A strategy that makes room for several newcomers at once
    also defines `make_room(kernel, expansion) -> expansion`. It is called before
    `admit` when the budget is full, and returns a support set with at least one free
    slot, whose terms are a linear map of the old ones.

    Example:
      >>> class RemoveFarthest(bj.Maintenance):  # the least similar one leaves
      ...     def admit(self, kernel, expansion, newcomer):
      ...         similar = jnp.where(expansion.mask, newcomer.kernel_row, jnp.inf)
      ...         victim = jnp.argmin(similar)
      ...         return self, self.exchange(expansion, newcomer, victim)
      >>> state = bj.perceptron.init(
      ...     bj.RBF(1.0), num_features=2, budget=5, maintenance=RemoveFarthest())
    """

    def __init_subclass__(cls, *, abstract: bool = False) -> None:
        super().__init_subclass__(abstract=abstract)
        if "admit" in vars(cls):
            cls.admit = _check_result(cls.__name__, cls.admit)

    @classmethod
    def is_complete(cls) -> bool:
        """Whether it needs no argument, so that its name alone is a strategy."""
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        return not any(one.default is dataclasses.MISSING for one in fields)

    def start(
        self, kernel: Kernel, expansion: Expansion, seed: ArrayLike
    ) -> "Maintenance":
        """Starts the strategy for a support set, which may be empty."""
        return self

    def admit(
        self, kernel: Kernel, expansion: Expansion, newcomer: Newcomer
    ) -> tuple["Maintenance", Edits]:
        """Returns the strategy after the newcomer, and the edits of the support set."""
        raise NotImplementedError

    @staticmethod
    def exchange(expansion: Expansion, newcomer: Newcomer, victim: Index) -> Edits:
        """Puts the newcomer into a free slot or, if there is none, the victim's."""
        slot = jnp.where(expansion.full, victim, expansion.free)
        return Edits((support_set.row(expansion, newcomer, slot),))

    def rescale(self, factor: Scalar) -> "Maintenance":
        """The strategy after all stored coefficients were multiplied by `factor`."""
        return self


def _check_result(name: str, admit: Callable[..., Any]) -> Callable[..., Any]:
    """The method, with a check of its result during tracing."""

    @functools.wraps(admit)
    def checked(self, kernel, expansion, newcomer):
        returned = admit(self, kernel, expansion, newcomer)
        return support_set.check_edits(f"{name}: admit", Maintenance, returned)

    return checked


def restart(strategy: Maintenance, kernel: Kernel, expansion: Expansion) -> Maintenance:
    """Restarts the strategy from this support set."""
    return strategy.start(kernel, expansion, getattr(strategy, "seed", 0))
