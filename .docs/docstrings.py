"""The package's docstrings as Markdown, and values as users call them."""

import re

import griffe

MATH_BLOCK = re.compile(r"\.\. math::(.+?)(?=\n\n|\Z)", re.DOTALL)
MATH = re.compile(r":math:`(.+?)`", re.DOTALL)
# Items that share a description, on more than one line: `a, b,` and `c: ...`.
SHARED = re.compile(r"^( +(?:\*{0,2}\w+, )*\*{0,2}\w+,)\n +(?=(?:\w+, )*\w+: )", re.M)
TITLE = re.compile(
    r"^(Cost|Memory|Reference|Differences? from the papers?)(?=[^:\n]*: )", re.M
)
# One reference begins where another has ended, with a sentence or an address.
REFERENCES = re.compile(r"(?<=^References:\n)(?:(?: +.*)?\n|\Z)+", re.M)
ENDED = re.compile(r"(\.|://\S+)\n(?= +[A-Z])")
EXAMPLE = re.compile(r"^Example:\n((?: +.+(?:\n|\Z))+)", re.M)
# What declares a field of a record, by its keyword `default`.
FIELDS = ("leaf", "static")
# What the examples call by a short name; the tests import these too.
SHORT = {"bj": "budgetjax as bj", "jnp": "jax.numpy as jnp", "np": "numpy as np"}


def as_markdown(text: str) -> str:
    """A docstring as its parser and Markdown understand it."""
    text = text.replace(r"\arg\max", r"\text{arg}\max")
    text = MATH_BLOCK.sub(lambda found: f"\\[{' '.join(found[1].split())}\\]", text)
    # What goes on in an item of a list is indented by four spaces in Markdown.
    text = re.sub(r"^   (?=\S)", "    ", text, flags=re.M)
    text = re.sub(r"(\n\n(?: {4}.*\n)+)(?=\d\. )", r"\1\n", text)
    text = MATH.sub(lambda found: f"\\({' '.join(found[1].split())}\\)", text)
    text = SHARED.sub(r"\1 ", text)
    text = TITLE.sub(r"**\1**", text)
    text = REFERENCES.sub(lambda found: ENDED.sub(r"\1\n\n", found[0]), text)
    return EXAMPLE.sub(_with_imports, text)


def _with_imports(found: re.Match[str]) -> str:
    """An example after the imports of its short names, so that it runs as it stands."""
    needed = [SHORT[name] for name in SHORT if re.search(rf"\b{name}\.", found[1])]
    line = f"  >>> import {', '.join(needed)}\n" if needed else ""
    return f"Examples:\n{line}{found[1]}"


class Docstrings(griffe.Extension):
    """Reads the docstrings, and the arguments of what is public."""

    def on_object(self, *, obj: griffe.Object, **_) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_) -> None:
        for name in pkg["public"].members:
            if name.startswith("_"):
                continue
            target = pkg["public"][name].final_target
            if target.is_class and _has_fields(target):
                target.set_member("__init__", _init(target))
        for member in _members(pkg):
            if member.is_attribute:
                member.annotation = _type(member.annotation)
            elif member.is_function:
                member.returns = _type(member.returns)
                for parameter in member.parameters:
                    _simplify(parameter, member)


def _has_fields(one: griffe.Class) -> bool:
    """Whether this is a value such as a solver, whose fields are its arguments."""
    return any(base.path == "budgetjax._record.Record" for base in one.mro())


def _init(one: griffe.Class) -> griffe.Function:
    fields = {
        field.name: field.value
        for base in reversed([one, *one.mro()])
        for field in base.attributes.values()
        if "instance-attribute" in field.labels and field.annotation is not None
        if not field.name.startswith("_")
    }
    kinds = griffe.ParameterKind
    given = [
        griffe.Parameter(
            name,
            default=value,
            kind=kinds.keyword_only
            if _keyword(value, "kw_only")
            else kinds.positional_or_keyword,
        )
        for name, value in fields.items()
    ]
    # As in a dataclass, what goes by keyword comes last.
    given.sort(key=lambda parameter: parameter.kind is kinds.keyword_only)
    return griffe.Function("__init__", parameters=griffe.Parameters(*given), parent=one)


def _keyword(value, name: str):
    """An argument of what declares a field, or nothing."""
    if not (isinstance(value, griffe.ExprCall) and str(value.function) in FIELDS):
        return None
    keywords = [a for a in value.arguments if isinstance(a, griffe.ExprKeyword)]
    return {keyword.name: keyword.value for keyword in keywords}.get(name)


def _members(parent: griffe.Object):
    for member in parent.members.values():
        if not member.is_alias:
            yield member
            yield from _members(member)


def _type(annotation):
    """Nothing where any type will do."""
    return None if str(annotation) == "Any" else annotation


def _simplify(parameter: griffe.Parameter, function: griffe.Function) -> None:
    """A constant's value in place of its name."""
    parameter.annotation = _type(parameter.annotation)
    default = parameter.default
    if isinstance(default, griffe.ExprCall) and str(default.function) in FIELDS:
        default = parameter.default = _keyword(default, "default")
    if isinstance(default, griffe.ExprName):
        constant = function.module.members.get(default.name)
        # A module, such as `numpy`, has no value.
        if isinstance(constant, griffe.Attribute):
            parameter.default = constant.value
