"""What model files call types and functions: names that stay when code moves.

A state has the name of its algorithm; what else a model is made of, the name of its
class, if it is in the table; types of optax their public name there.
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import optax

from budgetjax import losses
from budgetjax.checks import Name
from budgetjax.online import features, registry
from budgetjax.solvers import SOLVERS

ESTIMATORS = "budgetjax.estimators"
# Where the class of each name lies: files hold the names alone, and code can move.
MODULES = {
    "kernels": (
        "RBF Laplacian Matern RationalQuadratic Linear Polynomial Sigmoid Normalized "
        "Sum Product"
    ),
    "online.fourier": "Waves",
    "online.maintenance.removal": (
        "Unbudgeted RemoveOldest RemoveRandom RemoveSmallest RemoveLargestMargin"
    ),
    "online.maintenance.merging": "Merge MultiMerge MergeBestPair",
    "online.maintenance.projection": "Project ProjectOntoNewcomer ProjectOntoNearest",
    "support_set": "Average Expansion",
    "counter": "Counter",
    "checks": "Name Static",
    "online.gradient_descent": "Ball",
    "online.span": "Span",
    "solvers.kernel.row_cache": "KernelRows",
    "solvers.kernel.budget_svm": "Momentum",
    "solvers.kernel.worst_norms": "OneInfinity TwoInfinity",
    "solvers.linear.rows": "DenseRows KernelMatrix SparseRows",
    "solvers.linear.passes": "Order",
    "solvers.linear.patterns": "Problem",
    "models": "KernelModel Labelled LinearModel",
    "scaling": "Scaling",
    "stream.model": "StreamModel",
    "stream.reservoir": "Reservoir",
    "solvers.solver": "History Objective Record Solution",
    "online.sweep": "Grid Sweep Table",
}
TYPES = {name: where for where, names in MODULES.items() for name in names.split()}


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
    return name if kind.__module__ == f"budgetjax.{TYPES.get(name)}" else None


def type_of(name: str) -> Any:
    """The class that a file means, or None."""
    package, _, short = name.rpartition(".")
    if package:
        kind = getattr(optax, short, None) if package == "optax" else None
        return kind if is_record(kind) else None
    if name in TYPES:
        return getattr(importlib.import_module(f"budgetjax.{TYPES[name]}"), name)
    return _state_type(name)


def _state_type(name: str) -> Any:
    """The class of the states of an algorithm: what its `init` gives; or None."""
    algorithm = None
    if name in registry.names():
        algorithm = registry.named("names", name)
    elif name in SOLVERS:
        module = importlib.import_module(f"budgetjax.solvers.{SOLVERS[name]}.{name}")
        algorithm = getattr(module, name)
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
