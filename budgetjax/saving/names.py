"""Names of types and functions in model files, which do not change when code moves.

A class of this package has its own name (see `_record.record`), and a type of optax its
public name.
"""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeGuard

import optax

from budgetjax import _record, losses
from budgetjax._record import is_named_tuple
from budgetjax.online.learners import features

ESTIMATORS = "budgetjax.estimators"

# What imports each estimator by its name; `budgetjax.public`, which may, sets it.
import_estimator: dict[str, Callable[[], type]] = {}
OPTAX_STATES = tuple(
    f"optax.{name}" for name, kind in vars(optax).items() if is_named_tuple(kind)
)


# The functions that a file may name; all others come from `like`.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{loss.__name__.strip("_"): loss for loss in losses.FUNCTIONS},
    "default optimizer": features.OPTIMIZER.update,
    "start of the default optimizer": features.OPTIMIZER.init,
    **{
        f"optax.{name}": loss
        for name, loss in vars(optax.losses).items()
        if not name.startswith("_") and inspect.isfunction(loss)
    },
}


def own_name(thing: Any) -> str:
    """The name of a class or a function without a registered one."""
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def has_fields(kind: Any) -> TypeGuard[type]:
    """Whether this is a class of named tuples, or a dataclass."""
    if not isinstance(kind, type):
        return False
    # Estimators are dataclasses too, but hold more than their fields.
    return is_named_tuple(kind) or (
        dataclasses.is_dataclass(kind) and not is_estimator(kind)
    )


def fields_of(kind: type) -> tuple[str, ...]:
    """The names of the fields of a record."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    assert is_named_tuple(kind)
    return kind._fields


def parts_of(record: Any) -> dict[str, Any]:
    """The fields of a record, both leaves and static ones."""
    return {name: getattr(record, name, None) for name in fields_of(type(record))}


def defaults_of(kind: type) -> dict[str, Any]:
    """The fields that a record in a file may lack, with their values."""
    if is_named_tuple(kind):
        return dict(kind._field_defaults)  # pyright: ignore
    assert dataclasses.is_dataclass(kind)
    known = {}
    for field in dataclasses.fields(kind):
        if field.default_factory is not dataclasses.MISSING:
            known[field.name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            known[field.name] = field.default
    return known


def build_record(kind: type, parts: Mapping[str, Any]) -> Any:
    """A record with these fields or defaults, without checks of its constructor."""
    parts = defaults_of(kind) | dict(parts)
    if is_named_tuple(kind):
        return kind._make(parts[name] for name in kind._fields)
    record = object.__new__(kind)
    vars(record).update(parts)
    return record


def name_of(record: Any) -> str | None:
    """The registered name of the type of a record, or None."""
    kind = type(record)
    own = (name for name, one in _record.records.items() if one is kind)
    known = (next(own, ""), f"optax.{kind.__name__}")
    return next((one for one in known if type_of(one) is kind), None)


def type_of(name: str) -> type | None:
    """The class of this name, or None."""
    if name in _record.records:
        return _record.records[name]
    package, _, short = name.rpartition(".")
    kind = vars(optax).get(short) if package == "optax" else None
    return kind if has_fields(kind) else None


def is_estimator(kind: type) -> bool:
    """Whether this is an estimator of this package."""
    ours = kind.__module__.startswith(f"{ESTIMATORS}.")
    return ours and kind.__name__ in import_estimator


def estimator_of(name: str) -> Any:
    """The estimator of this name, or None."""
    return import_estimator[name]() if name in import_estimator else None
