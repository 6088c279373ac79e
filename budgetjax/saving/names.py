"""What model files call types and functions: names that stay when code moves.

A state has the name of its algorithm; what else a model is made of, the name of its
class, if it is in the table; types of optax their public name there.
"""

import dataclasses
import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import optax

from budgetjax import losses
from budgetjax.checks import Name
from budgetjax.online import features, registry

ESTIMATORS = "budgetjax.estimators"
TYPES = frozenset(
    {
        # kernels
        *("RBF", "Laplacian", "Linear", "Polynomial", "Sigmoid", "Normalized"),
        *("Sum", "Product", "Waves"),
        # maintenance
        *("Unbudgeted", "RemoveOldest", "RemoveRandom", "RemoveSmallest"),
        *("RemoveLargestMargin", "Project", "ProjectOntoNewcomer"),
        *("ProjectOntoNearest", "Merge", "MultiMerge", "MergeBestPair"),
        # parts of states
        *("Average", "Ball", "Count", "Counter", "Expansion", "Flag", "Name", "Span"),
        *("DenseRows", "KernelMatrix", "KernelRows", "SparseRows"),
        *("Momentum", "OneInfinity", "Order", "TwoInfinity"),
        # models
        *("KernelModel", "Labelled", "LinearModel", "StreamModel"),
        *("Reservoir", "Rows", "Scaling"),
        # results
        *("Grid", "History", "Objective", "Record", "Solution", "Sweep", "Table"),
    }
)


def _functions() -> dict[str, Callable[..., Any]]:
    own = (losses.hinge, losses.logistic, losses.absolute)
    private = (losses._pinball, losses._outside_tube)
    return {
        **{loss.__name__.strip("_"): loss for loss in own + private},
        "default optimizer": features.OPTIMIZER.update,
        **{
            f"optax.{name}": loss
            for name, loss in vars(optax.losses).items()
            if not name.startswith("_") and hasattr(loss, "__code__")
        },
    }


# The functions that a file may name; all others come from `like`.
FUNCTIONS = _functions()


def own_name(thing: Any) -> str:
    """The name of a class or function, for those that only the caller knows."""
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def is_record(kind: Any) -> bool:
    """Whether this is a class of named tuples, or a dataclass."""
    if not isinstance(kind, type):
        return False
    named = issubclass(kind, tuple) and isinstance(
        getattr(kind, "_fields", None), tuple
    )
    return named or dataclasses.is_dataclass(kind)


def fields_of(kind: Any) -> tuple[str, ...]:
    """The names of the parts of a record."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return kind._fields


def name_of(record: Any) -> str | None:
    """What a file calls the type of a record; None where only the caller knows it."""
    kind = type(record)
    package, name = kind.__module__.partition(".")[0], kind.__name__
    algorithm = getattr(record, "algorithm", None)
    if isinstance(algorithm, Name) and _state_type(algorithm.value) is kind:
        return algorithm.value
    if package == "optax":
        return f"optax.{name}" if getattr(optax, name, None) is kind else None
    return name if package == "budgetjax" and name in TYPES else None


def type_of(name: str, fields: tuple[str, ...]) -> Any:
    """The class that a file means, or None; `fields` choose where some share a name."""
    package, _, short = name.rpartition(".")
    if package:
        kind = getattr(optax, short, None) if package == "optax" else None
        return kind if is_record(kind) else None
    if name in TYPES:
        found = _types(name)
        return next((kind for kind in found if fields_of(kind) == fields), found[0])
    return _state_type(name)


@functools.cache
def _types(name: str) -> list[Any]:
    """The classes of this name, wherever in the package they are."""
    importlib.import_module("budgetjax.public")
    modules = [
        module
        for path, module in sorted(sys.modules.items())
        if path.startswith("budgetjax.")
    ]
    found = (vars(module).get(name) for module in modules)
    kinds = [
        kind
        for kind in found
        if is_record(kind) and kind.__module__.startswith("budgetjax.")
    ]
    return list(dict.fromkeys(kinds))


def _state_type(name: str) -> Any:
    """The class of the states of an algorithm: what its `init` gives; or None."""
    if name in registry.names():
        algorithm = registry.named("names", name)
    else:
        algorithm = getattr(importlib.import_module("budgetjax.public"), name, None)
    init = getattr(algorithm, "init", None)
    kind = getattr(init, "__annotations__", {}).get("return")
    return kind if is_record(kind) else None


def is_estimator(kind: type) -> bool:
    """Whether this is an estimator of this package."""
    return kind.__module__.startswith(ESTIMATORS) and hasattr(kind, "get_params")


def estimator(name: str) -> Any:
    """The estimator of this name, or None."""
    module = importlib.import_module(ESTIMATORS)
    return getattr(module, name) if name in module.__all__ else None
