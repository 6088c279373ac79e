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
    if name.startswith("__") and name != "__all__":
        raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
    try:
        return importlib.import_module(f"budgetjax.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"budgetjax.{name}":
            raise
    public = importlib.import_module("budgetjax.public")
    names = {key: one for key, one in vars(public).items() if not key.startswith("_")}
    globals().update(names, __all__=sorted(names))
    if name not in globals():
        raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*__getattr__("__all__"), *MODULES, "__version__"])
