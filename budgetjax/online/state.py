"""The fields that the states of all online algorithms share."""

from typing import Any, Protocol, TypeVar, runtime_checkable

from budgetjax._pytree import Counter, Name
from budgetjax.kernels import Kernel
from budgetjax.online.support_set import Expansion

Kind = TypeVar("Kind")


@runtime_checkable
class KernelExpansion(Protocol):
    """A record with a kernel and a support set."""

    @property
    def kernel(self) -> Kernel: ...
    @property
    def expansion(self) -> Expansion: ...


@runtime_checkable
class OnlineState(KernelExpansion, Protocol):
    """The state of an online algorithm, a `NamedTuple` with at least these fields.

    Attributes:
      algorithm: the name of the algorithm, which belongs to the tree's structure.
      kernel: the kernel, with parameters of the state's dtype.
      expansion: the support set.
      num_seen: rounds so far.
      num_mistakes: rounds with a margin of at most 0, or, for a real target, a score of
        the wrong sign.
      num_updates: rounds that changed the model.
    """

    @property
    def algorithm(self) -> Name: ...
    @property
    def num_seen(self) -> Counter: ...
    @property
    def num_mistakes(self) -> Counter: ...
    @property
    def num_updates(self) -> Counter: ...
    def _replace(self: Kind, **changes: Any) -> Kind: ...


# An algorithm returns the kind of state that it takes.
State = TypeVar("State", bound=OnlineState)
