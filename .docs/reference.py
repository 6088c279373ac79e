"""The pages of the reference, in which a room may list what no page names."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
NAMED = re.compile(r"^::: bj\.(\S+)$", re.M)
# `::: budgetjax.kernels.*` stands for all public names of that room.
ROOM = re.compile(r"^::: (budgetjax\.[\w.]+)\.\*$", re.M)


def write_out(text: str) -> str:
    """A page with a line for each name in place of its rooms."""
    return ROOM.sub(lambda room: "\n\n".join(_lines(room[1])), text)


def _lines(room: str) -> list[str]:
    return [
        f"::: bj.{name}"
        for name, module in MODULES.items()
        if f"{module}.".startswith(f"{room}.") and name not in ELSEWHERE
    ]


def _public_modules() -> dict[str, str]:
    """The module of each name in `budgetjax.public`, which is read, not imported."""
    modules: dict[str, str] = {}
    for statement in _statements("budgetjax.public"):
        if isinstance(statement, ast.ImportFrom) and (module := statement.module):
            for alias in statement.names:
                public = [alias.name] if alias.name == alias.asname else []
                names = _names_in_all(module) if alias.name == "*" else public
                modules |= dict.fromkeys(names, module)
    return modules


def _statements(module: str) -> list[ast.stmt]:
    path = ROOT.joinpath(*module.split("."))
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


PAGES = {
    page.stem: page.read_text("utf-8")
    for page in sorted((ROOT / ".docs/pages/reference").glob("*.md"))
}
ELSEWHERE = {name for text in PAGES.values() for name in NAMED.findall(text)}
MODULES = _public_modules() | {
    f"stream.{alias.name}": statement.module
    for statement in ast.parse((ROOT / "budgetjax/stream/__init__.py").read_text()).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
