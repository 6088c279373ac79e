"""The fields that the states of all online algorithms share, and their shapes."""

import functools
from typing import Any, Protocol, TypeVar, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from budgetjax import _pytree, models
from budgetjax._errors import ArgumentError
from budgetjax._pytree import Counter, Name
from budgetjax.online.support_set import Expansion

Kind = TypeVar("Kind")
Class = TypeVar("Class", bound=type)


def record_state(kind: Class) -> Class:
    """A decorator for a class of states: named tuples whose kernel stays.

    Much in a state is computed with its kernel, so `_replace` refuses another one.
    """
    replace: Any = kind._replace

    @functools.wraps(replace)
    def checked(self: Any, /, **changes: Any) -> Any:
        if changes.get("kernel", self.kernel) is not self.kernel:
            raise ArgumentError(
                "kernel",
                "be replaced by budgetjax.with_kernel(state, kernel), which renews "
                "what the old one computed",
                "another kernel",
                f"{self.algorithm.value}: state._replace",
            )
        return replace(self, **changes)

    kind._replace = checked
    return _pytree.shown(kind)


@runtime_checkable
class OnlineState(models.State, Protocol):
    """The state of an online algorithm; `budgetjax.Algorithm` explains the fields."""

    @property
    def algorithm(self) -> Name: ...
    @property
    def expansion(self) -> Expansion: ...
    @property
    def num_seen(self) -> Counter: ...
    @property
    def num_mistakes(self) -> Counter: ...
    @property
    def num_updates(self) -> Counter: ...
    def _replace(self: Kind, **changes: Any) -> Kind: ...


# An algorithm returns the kind of state that it takes.
State = TypeVar("State", bound=OnlineState)


def resize(state: State, like: OnlineState) -> State:
    """A copy of the state in the shapes of another, which provides new values.

    The number of features or columns may grow or shrink. The single column of two
    classes becomes two, with half of the coefficients and half of their negatives.
    """
    columns, wanted = state.expansion.num_columns, like.expansion.num_columns

    def resize_leaf(old: Array, new: Array) -> Array:
        if old.shape == new.shape:
            return jnp.array(old)
        # In NumPy, since JAX would compile a program for every shape.
        values, resized = np.asarray(old), np.array(new)
        if columns == wanted:
            part = tuple(map(slice, np.minimum(values.shape, resized.shape)))
            resized[part] = values[part]
            return jnp.array(resized)
        # The coefficients may be followed by the sums of an average.
        parts = values.reshape(*values.shape[:-1], -1, columns)
        if columns == 1:
            parts = np.concatenate([-parts / 2, parts / 2], axis=-1)
        parts = parts[..., :wanted]
        padding = [(0, 0)] * (parts.ndim - 1) + [(0, wanted - parts.shape[-1])]
        return jnp.array(np.pad(parts, padding).reshape(resized.shape))

    new = jax.tree.map(resize_leaf, state, like)
    # Random features fill new columns with values.
    squares = np.sum(np.square(np.asarray(new.expansion.vectors)), axis=1)
    return new._replace(expansion=new.expansion._replace(squares=jnp.array(squares)))


def with_room(state: State, like: OnlineState) -> State:
    """A copy of a state with the slots and the budget of an empty one of its kind.

    That has at least as many slots. If the state has not been full yet, the copy goes
    on as if it had had them from the start.
    """
    rows = len(state.expansion.ages)

    def widen(old: Array, new: Array) -> Array:
        if old.shape == new.shape:
            return old
        # All but the spare row; some arrays have several numbers per slot.
        part = tuple(
            slice(size if size == most else size // rows * (rows - 1))
            for size, most in zip(old.shape, new.shape, strict=True)
        )
        # In NumPy, since JAX would compile a program for every shape.
        wide = np.array(new)
        wide[part] = np.asarray(old)[part]
        return jnp.array(wide)

    new = jax.tree.map(widen, state, like)
    budget = like.expansion.budget
    return new._replace(expansion=new.expansion._replace(budget=budget))
