"""A strategy that measures the degradation by another one; see `Measured`."""

import dataclasses
import functools
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Integer

from budgetjax._errors import ArgumentError
from budgetjax._record import leaf
from budgetjax.kernels import Kernel
from budgetjax.online.edits import Edits
from budgetjax.online.maintenance.strategy import Maintenance
from budgetjax.online.slots import NOWHERE
from budgetjax.online.support_set import Candidate, Expansion

__all__ = ["Measured"]

Wrapper = TypeVar("Wrapper", bound=type[Maintenance])


def _check_immediate(name: str, strategy: Maintenance) -> None:
    if strategy.makes_room_ahead:
        raise ArgumentError(
            name, "make room for one candidate at a time", f"{strategy!r}"
        )


def forwards(wrapper: Wrapper) -> Wrapper:
    """A decorator for a strategy around another one, its field `strategy`.

    What the wrapper does not define itself of all that a strategy declares, flags and
    methods, is that of the strategy inside.
    """
    for name, value in vars(Maintenance).items():
        # Methods of the class tell how it is constructed, or are no strategy's own.
        of_class = isinstance(value, classmethod | staticmethod)
        if not (name.startswith("_") or of_class or name in vars(wrapper)):
            inside = functools.partial(_inside, name=name)
            setattr(wrapper, name, property(inside, doc=value.__doc__))
    return wrapper


def _inside(wrapper: Any, name: str) -> Any:
    """What the strategy inside declares; a method returns new strategies wrapped."""
    declared = getattr(wrapper.strategy, name)
    if not callable(declared):
        return declared

    @functools.wraps(declared)
    def method(*given: Any, **named: Any) -> Any:
        return jax.tree.map(
            lambda part: (
                dataclasses.replace(wrapper, strategy=part)
                if isinstance(part, Maintenance)
                else part
            ),
            declared(*given, **named),
            is_leaf=lambda part: isinstance(part, Maintenance),
        )

    return method


@forwards
class Measured(Maintenance):
    r"""A wrapper that measures how much a strategy degrades the model.

    It adds O(d + C) to a removal or a merge, and O(B^2 (d + C)) to a projection.

    When a full budget makes room, the model with the candidate loses :math:`\Delta_t`.
    The norm of this in the kernel's space is the weight degradation. With the step
    :math:`\eta_t`, maintenance amounts to an error :math:`E_t = \Delta_t / \eta_t` of
    the gradient, whose mean norm bounds how far Pegasos on a budget ends from the
    optimum. If :math:`k(x, x) = 1`, removing a vector makes this norm at most 1 with
    two classes, and at most :math:`\sqrt 2` with more.

    Wrapping changes nothing about learning and costs nothing when unused.

    The mean of the theorem is over all rounds, so ``gradient_error`` is divided by the
    rows seen. Coefficients grow along a stream, and a good merge loses little: measure
    in float64 beyond some 20,000 rows, since float32 then rounds off more than is lost.

    Example:
      >>> X, y = bj.datasets.checkerboard(500, seed=0)
      >>> merge = bj.Measured(bj.Merge())
      >>> state = bj.Pegasos().init(
      ...     bj.RBF(8.0), num_features=2, budget=20, maintenance=merge)
      >>> state, _ = bj.run(state, X, y)
      >>> found = state.maintenance
      >>> 0 < float(found.gradient_error) / int(found.num_losses) < 1
      True

    Reference: Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget",
    sections 3 and 4; see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf

    Args:
      strategy: any strategy that makes room for one candidate at a time.

    Attributes:
      num_losses: rounds in which a full budget made room.
      degradation: the sum of :math:`\|\Delta_t\|`.
      gradient_error: the sum of :math:`\|E_t\|`; :math:`\eta_t` is the learning rate,
        or the scale of the model for algorithms without one. A projection onto a ball
        follows the maintenance, as in Algorithm 1, and is not included.
    """

    strategy: Maintenance = leaf(_check_immediate)
    num_losses: Integer[Array, ""] | int = 0
    degradation: Float[Array, ""] | float = 0.0
    gradient_error: Float[Array, ""] | float = 0.0

    def start(self, kernel, expansion, seed):
        zero = jnp.zeros((), expansion.scale.dtype)
        strategy = self.strategy.start(kernel, expansion, seed)
        return Measured(strategy, jnp.zeros((), jnp.int32), zero, zero)

    def restart(self, kernel, expansion):
        strategy = self.strategy.restart(kernel, expansion)
        return dataclasses.replace(self.start(kernel, expansion, 0), strategy=strategy)

    def insert(self, kernel, expansion, candidate):
        strategy, edits = self.strategy.insert(kernel, expansion, candidate)
        lost = jnp.where(
            expansion.full, _degradation(kernel, expansion, candidate, edits), 0
        ).astype(expansion.scale.dtype)
        return Measured(
            strategy,
            self.num_losses + expansion.full.astype(jnp.int32),
            self.degradation + expansion.scale * lost,
            self.gradient_error + lost / candidate.step,
        ), edits


def _degradation(
    kernel: Kernel, expansion: Expansion, candidate: Candidate, edits: Edits
) -> Float[Array, ""]:
    """The unscaled norm of the change by the edits, without the candidate."""
    columns = expansion.num_columns
    coefficients = expansion.coefficients
    points, squares, changes = [candidate.vector[None]], [candidate.square[None]], []
    changes.append(-candidate.coefficients[None])
    if edits.rank_one_updates:
        parts = [
            one.weights[:, None] * one.term[None] for one in edits.rank_one_updates
        ]
        spread = jnp.sum(jnp.stack(parts), axis=0)[:, :columns]
        spread = jnp.where(expansion.mask[:, None], spread, 0)
        coefficients = coefficients + spread
        points.append(jnp.where(expansion.mask[:, None], expansion.vectors, 0))
        squares.append(jnp.where(expansion.mask, expansion.squares, 0))
        changes.append(spread)
    for row in edits.rows:
        wanted, slot = row.slot != NOWHERE, jnp.maximum(row.slot, 0)
        points += [row.vector[None], expansion.vectors[slot][None]]
        squares += [row.square[None], expansion.squares[slot][None]]
        changes.append(jnp.where(wanted, row.term[None, :columns], 0))
        changes.append(jnp.where(wanted, -coefficients[slot][None], 0))
    at, sizes, change = map(jnp.concatenate, (points, squares, changes))
    gram = kernel.gram(at, at, sizes, sizes)
    squared = jnp.sum(change * jnp.matmul(gram, change, precision="highest"))
    return jnp.sqrt(jnp.maximum(squared, 0))
