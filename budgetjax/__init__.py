"""Kernel learning on a fixed budget of support vectors, in JAX."""

import ast
import importlib
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.public import *  # noqa: F403

__version__ = "0.1.0"
# Public modules that are imported only when they are asked for.
MODULES = ("datasets", "estimators", "plots", "river")


def public_modules() -> dict[str, str]:
    """The module of each name in `budgetjax.public`, which is read, not imported.

    The command line can therefore list learners without waiting for JAX.
    """
    text = pathlib.Path(__file__).with_name("public.py").read_text("utf-8")
    return {
        alias.name: statement.module or ""
        for statement in ast.parse(text).body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.name == alias.asname
    }


def __getattr__(name: str) -> Any:
    """Imports a public name; the first access imports all of them, and JAX.

    The command line can therefore print its help without waiting for JAX.
    """
    if name == "__all__":
        return sorted(public_modules())
    if name.startswith("__"):
        raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
    try:
        return importlib.import_module(f"budgetjax.{name}")
    except ModuleNotFoundError as error:
        if error.name != f"budgetjax.{name}":
            raise
    public = vars(importlib.import_module("budgetjax.public"))
    globals().update({one: public[one] for one in public_modules()})
    if name not in globals():
        raise AttributeError(f"module 'budgetjax' has no attribute {name!r}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted([*public_modules(), *MODULES, "__version__"])
