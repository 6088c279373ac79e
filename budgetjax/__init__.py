"""Kernel learning on a fixed budget of support vectors, in JAX."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.public import *  # noqa: F403

__version__ = "0.1.0"
# Public modules that are imported only when they are asked for.
MODULES = ("datasets", "estimators", "plots", "river")


def __getattr__(name: str) -> Any:
    """Imports a public name; the first access imports all of them, and JAX.

    The command line can therefore print its help without waiting for JAX.
    """
    if name == "__all__":
        return sorted(_public_names())
    if name.startswith("__"):
        raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
    try:
        return importlib.import_module(f"budgetjax.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"budgetjax.{name}":
            raise
    globals().update(_public_names())
    if name not in globals():
        raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*_public_names(), *MODULES, "__version__"])


def _public_names() -> dict[str, Any]:
    public = vars(importlib.import_module("budgetjax.public"))
    return {name: value for name, value in public.items() if not name.startswith("_")}
