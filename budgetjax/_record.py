"""Records as pytrees: names, texts, fields as leaves, and static ones."""

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import (
    Any,
    ClassVar,
    Protocol,
    TypeGuard,
    TypeVar,
    dataclass_transform,
)

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.tree_util import Partial

from budgetjax._errors import ArgumentError, names_errors

Kind = TypeVar("Kind")
Class = TypeVar("Class", bound=type)
Own = TypeVar("Own", bound="Record")
# Lists up to this length are written out.
FEW = 10
# Classes by their names in model files; see `record`.
records: dict[str, type] = {}


def record(kind: Class, name: str = "") -> Class:
    """A decorator for a class of records that model files may hold, by its name.

    Subclasses of `Record` in this package need none, unless they are `abstract`.
    """
    name = name or kind.__name__
    known = records.get(name, kind)
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        got = f"that of a class in {known.__module__}"
        raise ArgumentError(f"the name {name!r}", "be free", got)
    # A module that is executed again defines its classes again.
    records[name] = kind
    return shown(kind)


class _NamedTuple(Protocol):
    """What `NamedTuple` gives a class."""

    _fields: ClassVar[tuple[str, ...]]
    _field_defaults: ClassVar[dict[str, Any]]

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Any: ...


@jax.tree_util.register_pytree_with_keys_class
class Function(Partial):
    """A function in a state, whose arguments are leaves.

    Unlike its base it can be rebuilt from any objects, as checkpointers do: they put
    one of their own in place of no arguments at all.
    """

    children: Any = None

    @classmethod
    def of(cls, function: Callable[..., Any]) -> "Function":
        """The function with the arguments of a `Partial`, if it is one."""
        if isinstance(function, cls):
            return function
        if isinstance(function, Partial):
            return cls(function.func, *function.args, **function.keywords)
        return cls(function)

    def tree_flatten_with_keys(self) -> Any:
        given = (self.args, self.keywords)
        names = map(jax.tree_util.GetAttrKey, ("args", "keywords"))
        return tuple(zip(names, self.children or given, strict=True)), self.func

    @classmethod
    def tree_unflatten(cls, function: Any, children: Any) -> "Function":
        args, keywords = children
        if type(args) is tuple and type(keywords) is dict:
            return cls(function, *args, **keywords)
        new = cls(function)
        new.children = children
        return new


def is_named_tuple(kind: Any) -> TypeGuard[type[_NamedTuple]]:
    """Whether this is a class of named tuples."""
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_make")


def record_repr(self: Any) -> str:
    """The `__repr__` of a named tuple or dataclass; arrays show dtype and shape."""
    if dataclasses.is_dataclass(self):
        names = [field.name for field in dataclasses.fields(self)]
    else:
        names = self._fields
    fields = [f"{name}={value_repr(getattr(self, name))}" for name in names]
    return f"{type(self).__name__}({', '.join(fields)})"


def shown(kind: Class) -> Class:
    """A decorator for a class of named tuples whose arrays show dtype and shape."""
    if is_named_tuple(kind):
        kind.__repr__ = record_repr
    return kind


def value_repr(value: Any) -> str:
    """A value as text in a field of a record."""
    if isinstance(value, jax.Array | jax.ShapeDtypeStruct | np.ndarray | np.generic):
        return _array(value)
    if isinstance(value, Partial):
        arguments = f"({', '.join(map(value_repr, value.args))})" if value.args else ""
        return getattr(value.func, "__name__", repr(value.func)) + arguments
    if is_named_tuple(type(value)):
        known = type(value) in records.values()
        return repr(value) if known else record_repr(value)
    if type(value) in (tuple, list):
        more = [f"... {len(value):,} in all"] if len(value) > FEW else []
        shown = ", ".join([*map(value_repr, value[: 3 if more else FEW]), *more])
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


# A check of a field, given its name and its value.
Check = Callable[[str, Any], object]


def static(
    *,
    default: Any = dataclasses.MISSING,
    check: Check | None = None,
    kw_only: bool = False,
) -> Any:
    """A field in the tree's structure; it is not a leaf, so `jit` knows its value."""
    metadata = {"static": True, "check": check}
    return dataclasses.field(default=default, metadata=metadata, kw_only=kw_only)


def leaf(
    check: Check | None = None,
    *,
    default: Any = dataclasses.MISSING,
    kw_only: bool = False,
) -> Any:
    """A field that is a leaf, and is checked when a user constructs an object.

    If its default is None, None needs no check.
    """
    return dataclasses.field(
        default=default, metadata={"check": check}, kw_only=kw_only
    )


@dataclass_transform(
    frozen_default=True,
    eq_default=False,
    field_specifiers=(static, leaf, dataclasses.field),
)
class Record:
    """The base of all values: a frozen dataclass, whose fields are leaves or `static`.

    A subclass declares its fields, with `budgetjax.leaf` or `budgetjax.static` where
    they have checks, and may define `check`, for what several fields must have in
    common. Checks run when a user constructs an object, those of all its classes, and
    not when JAX rebuilds a tree, from tracers or axis numbers. A record stores what it
    is given; functions such as `init` convert numbers to arrays.

    Two records are equal as objects only; `budgetjax.equal` compares their values.
    """

    __repr__ = record_repr

    def __init_subclass__(cls, *, abstract: bool = False, name: str = "") -> None:
        """Makes the class a record.

        Args:
          abstract: whether only its subclasses have objects.
          name: the name in files, by which `budgetjax.load` finds a class of yours;
            by default that of the class, which `budgetjax.register` makes known.
        """
        super().__init_subclass__()
        if "__post_init__" in vars(cls):
            raise TypeError(f"{cls.__name__}: define `check` instead of __post_init__")
        if "__init__" in vars(cls):
            wanted = "declare fields, as in `rate: float = 0.1`, instead of __init__"
            raise TypeError(f"{cls.__name__}: {wanted}")
        for given in vars(cls).keys() - inspect.get_annotations(cls).keys():
            is_number = type(vars(cls)[given]) in (int, float)
            if is_number and given.islower() and not given.startswith("_"):
                known = any(given in vars(base) for base in cls.__mro__[1:])
                if not known:
                    wanted = (
                        f"annotate {given}, as in `{given}: float`, to make it a field"
                    )
                    raise TypeError(f"{cls.__name__}: {wanted}")
        dataclasses.dataclass(frozen=True, repr=False, eq=False)(cls)
        ours = cls.__module__.partition(".")[0] == __name__.partition(".")[0]
        if (ours or name) and not abstract:
            record(cls, name)
        fixed = [field.name for field in fields_of(cls) if _is_static(field)]
        names = [field.name for field in fields_of(cls) if not _is_static(field)]
        flatten = _flatten_function(names, fixed)
        keys = tuple(map(jax.tree_util.GetAttrKey, names))

        def flatten_with_keys(value):
            leaves, values = flatten(value)
            return tuple(zip(keys, leaves, strict=True)), values

        def unflatten(values, leaves):
            new = object.__new__(cls)
            vars(new).update(zip(names, leaves, strict=True))
            vars(new).update(zip(fixed, values, strict=True))
            return new

        jax.tree_util.register_pytree_with_keys(
            cls,
            flatten_with_keys,
            unflatten,
            flatten,
        )

    def __post_init__(self) -> None:
        kind = type(self)
        with names_errors(kind.__name__):
            for field in fields_of(kind):
                value, check = vars(self)[field.name], field.metadata.get("check")
                if check and not (value is None and field.default is None):
                    check(field.name, value)
                if _is_static(field) and not _is_hashable(value):
                    wanted = "be hashable, as a part of compiled programs"
                    raise ArgumentError(field.name, wanted, type(value).__name__)
            for base in reversed(kind.__mro__):
                if "check" in vars(base):
                    vars(base)["check"](self)

    def _replace(self: Own, **changes: Any) -> Own:
        """The record with other values of some fields, which are not checked."""
        if unknown := changes.keys() - vars(self).keys():
            names = ", ".join(field.name for field in fields_of(type(self)))
            got = ", ".join(sorted(unknown))
            raise ArgumentError(
                f"the fields of {type(self).__name__}", f"be {names}", got
            )
        new = object.__new__(type(self))
        vars(new).update(vars(self), **changes)
        return new

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The fields by name, and those of records in them, as scikit-learn asks."""
        own = {field.name: vars(self)[field.name] for field in fields_of(type(self))}
        inner = {
            f"{name}__{key}": value
            for name, part in own.items()
            if deep and isinstance(part, Record)
            for key, value in part.get_params().items()
        }
        return own | inner

    def __sklearn_clone__(self: Own) -> Own:
        """The record itself, since nothing can change it."""
        return self


def fields_of(kind: type[Record]) -> tuple[dataclasses.Field, ...]:
    """The fields of a class that its base makes a dataclass."""
    return dataclasses.fields(kind)  # pyright: ignore[reportArgumentType]


def _is_static(field: dataclasses.Field) -> bool:
    return bool(field.metadata.get("static"))


def _is_hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _flatten_function(names: Sequence[str], fixed: Sequence[str]) -> Callable[..., Any]:
    """The function that gives the leaves of a record, and its static fields.

    Its text names the fields, as that of the constructor of a dataclass does: JAX calls
    it for every record in every argument of a program.
    """
    leaves, values = (
        "".join(f"one.{name}, " for name in given) for given in (names, fixed)
    )
    return eval(f"lambda one: (({leaves}), ({values}))")


def equal(one: Any, other: Any) -> bool:
    """Whether two records, or trees of them, have the same structure and leaves."""
    if jax.tree.structure(one) != jax.tree.structure(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(*map(_numbers, pair)) for pair in pairs)


def _numbers(value: Any) -> Any:
    """A leaf, or the numbers of a random key."""
    dtype = getattr(value, "dtype", None)
    is_key = dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)
    return jax.random.key_data(value) if is_key else value
