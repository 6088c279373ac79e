"""Frozen dataclasses as pytrees, for kernels and maintenance strategies."""

import dataclasses
from collections.abc import Iterable
from typing import Any, dataclass_transform

import jax

from budgetjax import _pytree


def static(*, default: Any) -> Any:
    """A field in the tree's structure; it is not a leaf, so `jit` knows its value."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
class Parameters:
    """A base class that makes subclasses frozen dataclasses with fields as leaves.

    Leaves can be traced, swept by `jax.vmap` and differentiated; the class is part of
    the tree's structure. `dataclasses.replace` changes a field.

    JAX rebuilds a tree from any leaves, such as tracers and axis numbers, without the
    checks of `__post_init__`, which run only when a user constructs an object.
    """

    __repr__ = _pytree.short

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, repr=False)(cls)
        fields = dataclasses.fields(cls)  # pyright: ignore[reportArgumentType]
        fixed = [field.name for field in fields if field.metadata.get("static")]
        names = [field.name for field in fields if field.name not in fixed]

        def flatten(value):
            leaves = [
                (jax.tree_util.GetAttrKey(name), getattr(value, name)) for name in names
            ]
            return leaves, tuple(getattr(value, name) for name in fixed)

        jax.tree_util.register_pytree_with_keys(
            cls,
            flatten,
            lambda values, leaves: cls.unchecked(
                zip((*names, *fixed), (*leaves, *values), strict=True)
            ),
        )

    @classmethod
    def unchecked(cls, fields: Iterable[tuple[str, Any]]) -> Any:
        """An object from the names and values of all fields, without checks."""
        new = object.__new__(cls)
        vars(new).update(fields)
        return new
