"""The base class of all maintenance strategies."""

import dataclasses
import functools
from collections.abc import Callable
from typing import ClassVar

import jax.numpy as jnp
from jax.typing import ArrayLike

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_class, names_errors
from budgetjax._record import Record, fields_of
from budgetjax._shapes import Index, Scalar
from budgetjax.kernels import Kernel
from budgetjax.online.edits import Edits, check_candidate, check_edits, entering_row
from budgetjax.online.support_set import Candidate, Expansion

Insert = Callable[..., tuple["Maintenance", Edits]]


class Maintenance(Record, abstract=True):
    """The rule by which a full budget makes room: remove, merge or project.

    A strategy is a subclass with `insert`; its memory is kept in fields. All ties go to
    the oldest support vector. A strategy that makes room for several candidates at once
    also defines `make_room`.

    Example:
      >>> class RemoveFarthest(bj.Maintenance):  # the least similar one leaves
      ...     def insert(self, kernel, expansion, candidate):
      ...         similar = jnp.where(expansion.mask, candidate.kernel_row, jnp.inf)
      ...         victim = jnp.argmin(similar)
      ...         return self, self.replace(expansion, candidate, victim)
      >>> state = bj.Perceptron().init(
      ...     bj.RBF(1.0), num_features=2, budget=5, maintenance=RemoveFarthest())
    """

    # Whether `make_room` is called before `insert` when the budget is full.
    makes_room_ahead: ClassVar[bool] = False
    # Whether a full budget is full again after an insertion.
    keeps_full: ClassVar[bool] = True
    # Whether the kernel must be Gaussian, and whether a kernel matrix is inverted.
    merges: ClassVar[bool] = False
    inverts: ClassVar[bool] = False

    def __init_subclass__(cls, *, name: str = "") -> None:
        super().__init_subclass__(name=name)
        if "make_room" in vars(cls):
            cls.makes_room_ahead, cls.keeps_full = True, False
        if "insert" in vars(cls):
            cls.insert = _check_result(cls.__name__, cls.insert)

    @classmethod
    def is_complete(cls) -> bool:
        """Whether it needs no argument, so that its name alone is a strategy."""
        return not any(one.default is dataclasses.MISSING for one in fields_of(cls))

    @names_class
    def start(
        self, kernel: Kernel, expansion: Expansion, seed: ArrayLike
    ) -> "Maintenance":
        """Starts the strategy for a support set, which may be empty."""
        if self.merges and not kernel.gaussian:
            raise ArgumentError(
                "kernel",
                "be Gaussian (RBF), because only then does a merged vector lie between "
                "the two",
                type(kernel).__name__,
            )
        if self.inverts:
            _checks.check_invertible_dtype(expansion.vectors.dtype)
        return self

    def restart(self, kernel: Kernel, expansion: Expansion) -> "Maintenance":
        """Starts it anew for this support set, with its own field `seed`, if any."""
        return self.start(kernel, expansion, vars(self).get("seed", 0))

    def insert(
        self, kernel: Kernel, expansion: Expansion, candidate: Candidate
    ) -> tuple["Maintenance", Edits]:
        """The strategy after the candidate, and the edits of the support set."""
        raise NotImplementedError(f"{type(self).__name__} must define `insert`")

    def make_room(self, kernel: Kernel, expansion: Expansion) -> Expansion:
        """A full support set with at least one slot freed, before `insert`.

        Its terms are a linear map of the old ones.
        """
        raise NotImplementedError

    @staticmethod
    def replace(expansion: Expansion, candidate: Candidate, victim: Index) -> Edits:
        """Puts the candidate into a free slot or, if there is none, the victim's.

        A victim is a slot that holds a vector, where `expansion.mask` is True.
        """
        slot = jnp.where(expansion.full, victim, expansion.free)
        return Edits((entering_row(expansion, candidate, slot),))

    def rescale(self, factor: Scalar) -> "Maintenance":
        """The strategy after all stored coefficients were multiplied by `factor`."""
        return self

    def count_refused(self) -> ArrayLike:
        """The number of examples that a full budget has refused."""
        return 0


def _check_result(name: str, insert: Insert) -> Insert:
    """The method, with a check of its result during tracing."""

    @functools.wraps(insert)
    def checked(self, kernel, expansion, candidate):
        with names_errors(name):
            check_candidate(candidate, expansion)
        returned = insert(self, kernel, expansion, candidate)
        with names_errors(name):
            return check_edits("insert", Maintenance, returned, self, expansion)

    return checked
