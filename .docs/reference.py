"""The pages of the reference, in which a room may list what no page names."""

import ast
import importlib
import re
import sys
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


PAGES = {
    page.stem: page.read_text("utf-8")
    for page in sorted((ROOT / ".docs/pages/reference").glob("*.md"))
}
ELSEWHERE = {name for text in PAGES.values() for name in NAMED.findall(text)}
sys.path.insert(0, str(ROOT))
# It reads the names, and imports no JAX.
MODULES = importlib.import_module("budgetjax").public_modules() | {
    f"stream.{alias.name}": statement.module
    for statement in ast.parse((ROOT / "budgetjax/stream/__init__.py").read_text()).body
    if isinstance(statement, ast.ImportFrom)
    for alias in statement.names
}
