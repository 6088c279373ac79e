"""The text of records: printed, with shapes in place of values, and under `help`."""

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any, TypeVar

import jax
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial

Kind = TypeVar("Kind")
# Lists up to this length are written out.
FEW = 10


def short(self: Any) -> str:
    """The `__repr__` of a named tuple or dataclass; arrays show dtype and shape."""
    if dataclasses.is_dataclass(self):
        names = [field.name for field in dataclasses.fields(self)]
    else:
        names = self._fields
    fields = [f"{name}={text(getattr(self, name))}" for name in names]
    return f"{type(self).__name__}({', '.join(fields)})"


def text(value: Any) -> str:
    """A value as text in a field of a record."""
    if isinstance(value, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, Partial):
        name = getattr(value.func, "__name__", repr(value.func))
        return f"{name}({', '.join(map(text, value.args))})" if value.args else name
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        # A counter reads as a number if it has a value.
        known = all(map(_has_values, value))
        number = getattr(value, "number", None) if known else None
        return short(value) if number is None else text(number)
    if type(value) in (tuple, list):
        more = [f"... {len(value):,} in all"] if len(value) > FEW else []
        shown = ", ".join([*map(text, value[: 3 if more else FEW]), *more])
        return f"({shown})" if type(value) is tuple else f"[{shown}]"
    return getattr(value, "__name__", None) or repr(value)


def _array(value: Any) -> str:
    if _has_values(value) and not value.shape and value.dtype.kind in "biuf":
        return _number(value.item())
    if isinstance(value, np.ndarray) and value.ndim == 1 and len(value) <= FEW:
        return f"[{', '.join(map(_number, value.tolist()))}]"
    return f"{value.dtype}[{', '.join(map(str, value.shape))}]"


def _has_values(value: Any) -> bool:
    return hasattr(value, "tolist") and not isinstance(value, Tracer)


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else repr(value)


def documented(kind: Kind) -> Kind:
    """A decorator for classes of records whose `help` is that of their `init`.

    `help(budgetjax.pegasos)` therefore describes Pegasos.
    """
    of_class: Any = kind
    of_class.__doc__ = _Documentation(of_class.__doc__)
    return kind


class _Documentation:
    """The docstring of a class; for its records, the docstring of their `init`."""

    def __init__(self, of_class: str):
        self.of_class = of_class

    def __get__(self, record: Any, kind: Any = None) -> str:
        if record is None:
            return self.of_class
        about = inspect.getdoc(record.init) or ""
        takes = ", ".join(_arguments(inspect.signature(record.init)))
        return f"{record.name}.init({takes})\n\n{about}"


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    """Names and defaults, without annotations, as in a call."""
    starred = False
    for one in signature.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        given = "" if one.default is one.empty else f"={text(one.default)}"
        yield f"{one.name}{given}"
