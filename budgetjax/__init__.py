"""Kernel learning on a fixed budget of support vectors, in JAX."""

import ast
import functools
import importlib
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from budgetjax.public import *  # noqa: F403

__version__ = "0.1.0"
# Public modules that are imported only when they are asked for.
MODULES = ("datasets", "estimators", "plots", "river")


@functools.cache
def public_modules() -> dict[str, str]:
    """The module of each name in `budgetjax.public`, which is read, not imported.

    The command line can therefore list learners without waiting for JAX.
    """
    modules: dict[str, str] = {}
    for statement in _statements("budgetjax.public"):
        if isinstance(statement, ast.ImportFrom) and (module := statement.module):
            for alias in statement.names:
                public = [alias.name] if alias.name == alias.asname else []
                names = _names_in_all(module) if alias.name == "*" else public
                modules |= dict.fromkeys(names, module)
    return modules


def _statements(module: str) -> list[ast.stmt]:
    path = pathlib.Path(__file__).parents[1].joinpath(*module.split("."))
    return ast.parse(path.with_suffix(".py").read_text("utf-8")).body


def _names_in_all(module: str) -> list[str]:
    """`__all__` of a module, which is read, not imported."""
    return [
        name
        for statement in _statements(module)
        if isinstance(statement, ast.Assign | ast.AugAssign)
        if ast.unparse(statement).startswith("__all__")
        for name in ast.literal_eval(statement.value)
    ]


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
