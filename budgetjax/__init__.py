"""Kernel learning on a fixed budget of support vectors, in JAX."""

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.public import *  # noqa: F403

__version__ = "0.1.0"

# Functions that a module is named like.
FUNCTIONS = ("refit", "sweep")


class _Package(types.ModuleType):
    """The package, which imports its names, and JAX, when the first is asked for.

    The help of the command line need not wait for them.
    """

    def __getattr__(self, name: str) -> Any:
        if name not in FUNCTIONS and not name.startswith("__"):
            try:
                return importlib.import_module(f"budgetjax.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"budgetjax.{name}":
                    raise
        if not name.startswith("__") or name == "__all__":
            public = importlib.import_module("budgetjax.public")
            names = {one: getattr(public, one) for one in public.__all__}
            self.__dict__.update(names, __all__=public.__all__)
        if name not in self.__dict__:
            raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
        return self.__dict__[name]

    def __setattr__(self, name: str, value: Any) -> None:
        # Importing the module does not hide the function.
        if name not in FUNCTIONS or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


sys.modules[__name__].__class__ = _Package
