"""Frozen dataclasses as pytrees: what kernels and strategies of maintenance are."""

import dataclasses
from collections.abc import Iterable
from typing import Any, dataclass_transform

import jax

from budgetjax import shown


def static(*, default: Any) -> Any:
    """A field of the tree's structure: it is no leaf, so `jit` knows its value."""
    return dataclasses.field(default=default, metadata={"static": True})


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
class Parameters:
    """A base that makes every subclass a frozen dataclass, with its fields as leaves.

    Leaves can be traced, swept by `jax.vmap` and differentiated; the class is part of
    the tree's structure. `dataclasses.replace` changes a field.

    A tree is rebuilt from any leaves, such as tracers and axis numbers: the checks of a
    `__post_init__` are for what users construct, and are not made then.
    """

    __repr__ = shown.short

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
        """From the names and values of all fields, as they are."""
        new = object.__new__(cls)
        vars(new).update(fields)
        return new
