"""Names of types and functions in model files, which do not change when code moves.

A state has the name of its algorithm, a registered class has its own name, and a type
of optax has its public name.
"""

import dataclasses
import importlib
from collections.abc import Callable
from typing import Any

import optax

from budgetjax import losses, solvers
from budgetjax._pytree import Name
from budgetjax.online import features, registry
from budgetjax.online.maintenance import STRATEGIES

ESTIMATORS = "budgetjax.estimators"
# The modules of classes by name, except for maintenance strategies.
MODULES = {
    "kernels": (
        "RBF Laplacian Matern RationalQuadratic Linear Polynomial Sigmoid Normalized "
        "Mapped Sum Product"
    ),
    "online.fourier": "Waves",
    "online.maintenance.removal": "Cache",
    "online.maintenance.measured": "Measured",
    "online.support_set": "Average Expansion",
    "_pytree": "Counter Name Static",
    "online.gradient_descent": "Ball",
    "online.span": "Span",
    "solvers.kernel.row_cache": "KernelRows",
    "solvers.kernel.budget_svm": "Momentum",
    "solvers.kernel.norms": "OneInfinity TwoInfinity Euclidean",
    "solvers.linear.rows": "DenseRows KernelMatrix SparseRows",
    "solvers.linear.epochs": "Order",
    "solvers.linear.patterns": "Problem",
    "models": "KernelModel Labelled LinearModel",
    "scaling": "Scaling",
    "stream.model": "StreamModel",
    "stream.reservoir": "Reservoir Rows",
    "solvers.solver": "History Objective Record Solution",
    "online.sweeps": "Grid Sweep Table",
    "estimators.online": "SeenTargets",
}
TYPES = {
    **{name: where for where, names in MODULES.items() for name in names.split()},
    **{one.__name__: one.__module__.partition(".")[2] for one in STRATEGIES.values()},
}
OPTAX_STATES = tuple(
    f"optax.{name}"
    for name, kind in vars(optax).items()
    if isinstance(kind, type) and hasattr(kind, "_fields")
)


def _functions() -> dict[str, Callable[..., Any]]:
    return {
        **{loss.__name__.strip("_"): loss for loss in losses.FUNCTIONS},
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
    """The name of a class or a function without a registered one."""
    return getattr(thing, "__qualname__", type(thing).__qualname__)


def is_record(kind: Any) -> bool:
    """Whether this is a class of named tuples, or a dataclass."""
    if not isinstance(kind, type):
        return False
    named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    # Estimators are dataclasses too, but hold more than their fields.
    return named_tuple or (dataclasses.is_dataclass(kind) and not is_estimator(kind))


def fields_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a record."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return kind._fields


def parts_of(record: Any) -> dict[str, Any]:
    """The fields of a record, both leaves and static ones."""
    fields = fields_of(type(record))
    # A field of a tuple may have the name of a method.
    if isinstance(record, tuple):
        return dict(zip(fields, record, strict=True))
    return {name: getattr(record, name) for name in fields}


def made(kind: Any, parts: dict[str, Any]) -> Any:
    """A record with these fields, without the checks of its constructor."""
    if hasattr(kind, "_make"):
        return kind._make(parts.values())
    record = object.__new__(kind)
    for name, part in parts.items():
        object.__setattr__(record, name, part)
    return record


def name_of(record: Any) -> str | None:
    """The registered name of the type of a record, or None."""
    kind, algorithm = type(record), getattr(record, "algorithm", None)
    name = algorithm.value if isinstance(algorithm, Name) else kind.__name__
    known = (name, f"optax.{name}")
    return next((one for one in known if type_of(one) is kind), None)


def type_of(name: str) -> Any:
    """The class of this name, or None."""
    package, _, short = name.rpartition(".")
    if package:
        kind = getattr(optax, short, None) if package == "optax" else None
        return kind if is_record(kind) else None
    if name in TYPES:
        return getattr(importlib.import_module(f"budgetjax.{TYPES[name]}"), name)
    return _state_type(name)


def _state_type(name: str) -> Any:
    """The class of the states of an algorithm, which its `init` returns; or None."""
    algorithm = None
    if name in registry.names():
        algorithm = registry.named("names", name)
    elif name in solvers.SOLVERS:
        algorithm = solvers.by_name(name)
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
