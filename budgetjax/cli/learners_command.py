"""`budgetjax learners`: lists learners and solvers, and the settings of one."""

import dataclasses
import inspect
import re

import click

from budgetjax import registry
from budgetjax._record import fields_of, value_repr
from budgetjax.cli import options, reports
from budgetjax.cli.learners import Kind, name_of, settings_of
from budgetjax.online.maintenance import strategies
from budgetjax.solvers.solver import Solver

# The arguments of a docstring, and each of them.
ARGUMENTS = re.compile(r"^Args:\n((?: .*\n?)+)", re.MULTILINE)
ARGUMENT = re.compile(r"^  ([\w, ]+): (.*(?:\n   .*)*)", re.MULTILINE)
# Settings of solvers that are no fields, or no objects there.
ABOUT_SOLVERS = {
    "norm": "l1, the sum of the losses of the --budget worst examples, or l2, about "
    "the root of the sum of their squares.  [default: l1]",
    "max_steps": "the maximum number of steps.  [default: that of the solver]",
    "cache_size": "mebibytes of kernel rows to keep.  [default: 512]",
}
# What a terminal does not show of it.
MARKUP = re.compile(r":math:|`|\\(?=\w)")


def learners(name: str | None) -> None:
    """Prints a line for every learner and solver, or the settings of one."""
    known = registry.learner_classes() | registry.solver_classes()
    if name is not None:
        click.echo(_describe(known[options.python_name(name)]), nl=False)
        return
    for kind in known.values():
        click.echo(reports.format_line(name_of(kind), _summary(kind)))
    names = ", ".join(map(options.option_name, strategies()))
    click.echo(f"\nStrategies of a full budget, for --maintenance: {names}")


def _describe(kind: Kind) -> str:
    """What it is and learns, and its settings with their defaults."""
    if issubclass(kind, Solver):
        targets = ["two classes", "more, each against the rest"]
    else:
        several = " or more" if kind.learns(3) else ""
        targets = [f"two classes{several}"] * kind.learns(2)
        targets += ["numbers"] * kind.learns(None)
    text = click.get_current_context().make_formatter()
    text.write_text(f"{name_of(kind)}: {_summary(kind)}")
    text.write_paragraph()
    text.write_text(f"It learns {', or '.join(targets)}.")
    if settings := _settings(kind):
        with text.section("Settings, for --set NAME=VALUE"):
            text.write_dl(settings)
    return text.getvalue()


def _settings(kind: Kind) -> list[tuple[str, str]]:
    """The settings by name, and what they are."""
    about = _arguments(kind)
    for field in fields_of(kind):
        default = f"default: {value_repr(field.default)}"
        default = "required" if field.default is dataclasses.MISSING else default
        about[field.name] = f"{about.get(field.name, '')}  [{default}]".strip()
    about |= ABOUT_SOLVERS if issubclass(kind, Solver) else {}
    return [(name, about[name]) for name in settings_of(kind)]


def _summary(kind: Kind) -> str:
    """The first sentence of the docstring of a class, or of its base."""
    for base in kind.__mro__:
        text, *_ = inspect.cleandoc(base.__doc__ or "").split("\n\n")
        # A dataclass without a docstring has its signature.
        if text and not text.startswith(f"{base.__name__}("):
            return _plain(text)
    return ""


def _arguments(kind: Kind) -> dict[str, str]:
    """What the docstrings of a class and of its bases say of each argument."""
    about = {}
    for base in reversed(kind.__mro__):
        found = ARGUMENTS.search(inspect.cleandoc(base.__doc__ or ""))
        for names, text in ARGUMENT.findall(found[1] if found else ""):
            # "as of every solver" adds nothing to what that says.
            if not text.startswith("as of "):
                about |= dict.fromkeys(names.split(", "), _plain(text))
    return about


def _plain(text: str) -> str:
    return MARKUP.sub("", " ".join(text.split()))
