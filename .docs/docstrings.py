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
# What declares a field of a record, by its keyword `default`.
FIELDS = ("leaf", "static")


def as_markdown(text: str) -> str:
    """A docstring as its parser and Markdown understand it."""
    text = MATH_BLOCK.sub(_block, text)
    # What goes on in an item of a list is indented by four spaces in Markdown.
    text = re.sub(r"^   (?=\S)", "    ", text, flags=re.M)
    text = re.sub(r"(\n\n(?: {4}.*\n)+)(?=\d\. )", r"\1\n", text)
    text = MATH.sub(lambda found: f"\\({' '.join(found[1].split())}\\)", text)
    text = SHARED.sub(r"\1 ", text)
    text = TITLE.sub(r"**\1**", text)
    text = REFERENCES.sub(lambda found: ENDED.sub(r"\1\n\n", found[0]), text)
    return re.sub("^Example:$", "Examples:", text, flags=re.M)


def _block(found: re.Match[str]) -> str:
    """A formula of its own, whose lines are aligned as Sphinx aligns them."""
    formula = " ".join(found[1].split())
    if r"\\" in formula:
        formula = rf"\begin{{aligned}} {formula} \end{{aligned}}"
    return rf"\[{formula}\]"


class Docstrings(griffe.Extension):
    """Reads the docstrings, and the arguments of records, which are their fields."""

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
            default=_keyword(value, "default") if _is_field(value) else value,
            kind=kinds.keyword_only
            if _keyword(value, "kw_only")
            else kinds.positional_or_keyword,
        )
        for name, value in fields.items()
    ]
    # As in a dataclass, what goes by keyword comes last.
    given.sort(key=lambda parameter: parameter.kind is kinds.keyword_only)
    return griffe.Function("__init__", parameters=griffe.Parameters(*given), parent=one)


def _is_field(value) -> bool:
    return isinstance(value, griffe.ExprCall) and str(value.function) in FIELDS


def _keyword(value, name: str):
    """An argument of what declares a field, or nothing."""
    if not _is_field(value):
        return None
    keywords = [a for a in value.arguments if isinstance(a, griffe.ExprKeyword)]
    return {keyword.name: keyword.value for keyword in keywords}.get(name)
