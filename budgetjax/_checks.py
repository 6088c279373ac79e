"""Checks of arguments: numbers, sizes, flags, arrays and seeds.

Only Python and NumPy numbers can be checked. A traced value (inside `jit` or `vmap`)
has no value yet, so these functions let it through.
"""

import contextlib
import importlib
import math
import numbers
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.typing import ArrayLike, DTypeLike

from budgetjax import _forks
from budgetjax._errors import ArgumentError, MissingModule
from budgetjax._record import Record, fields_of

Value = TypeVar("Value")

# Allocations up to this many bytes are not checked.
CHECK_FROM_BYTES = 2**26
# The control groups of this process; and, by version, the folder of their memory, the
# files with the limit and what is used, and the entry of the caches in it that the
# system frees.
PROCESS_GROUPS = pathlib.Path("/proc/self/cgroup")
MEMORY_FILES = {
    "": (
        *(pathlib.Path("/sys/fs/cgroup"), "memory.max"),
        *("memory.current", "inactive_file "),
    ),
    "memory": (
        *(pathlib.Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
        *("memory.usage_in_bytes", "total_inactive_file "),
    ),
}
# What helps where a size is too large.
MEMORY_ADVICE = {
    "budget": "a smaller one often predicts as well",
    "num_features": "select or hash them to fewer, or take a linear solver, such as "
    "budgetjax.MPU or MPUClassifier, which keeps sparse rows sparse",
    "num_classes": "lower budget, or take one model per class",
    "num_outputs": "lower budget, or take one model per output",
}
# The extra of budgetjax that installs an optional module.
EXTRAS = {
    "click": "cli",
    "flatbuffers": "export",
    "matplotlib": "cli",
    "onnx": "export",
    "pyarrow": "stream",
    "river": "river",
    "safetensors": "sklearn",
    "sklearn": "sklearn",
    "tqdm": "sklearn",
}


def import_optional(module: str) -> ModuleType:
    """Imports an optional module; an `ImportError` tells how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        name = module.partition(".")[0]
        package = "scikit-learn" if name == "sklearn" else name
        raise MissingModule(package, EXTRAS[name]) from error


def kind_name(state: object) -> str:
    """The kind of an object, for messages: what a state is of, or the type."""
    # Estimators have a learner too, but are no states.
    fields = vars(state) if isinstance(state, Record) else {}
    bound = fields.get("learner", fields.get("solver"))
    return type(state if bound is None else bound).__name__


def concrete(value: object) -> np.ndarray | None:
    """`value` as a NumPy array, or None if it is traced."""
    if isinstance(value, Tracer):
        return None
    return np.asarray(value)


def is_traced(tree: object) -> bool:
    """Whether a value in the tree is traced by JAX."""
    # JAX warns of iterators, which batches may be, unless they are leaves.
    leaves = jax.tree.leaves(tree, is_leaf=lambda node: isinstance(node, Iterator))
    return any(isinstance(leaf, Tracer) for leaf in leaves)


def check_not_traced(*arguments: object) -> None:
    """Raises if arguments of a function that needs their values are traced."""
    _forks.check()
    if is_traced(arguments):
        got = (
            "traced ones; call it outside jax.jit, jax.vmap and jax.grad, which take "
            "run, step, predict, decision_function, probabilities, support and "
            "average_iterates, and init, step and objective of a solver"
        )
        raise ArgumentError("arguments", "have values, as it runs on the host", got)


def check_invertible_dtype(dtype: DTypeLike) -> None:
    """Raises if a kernel matrix cannot be inverted in this dtype."""
    if jnp.finfo(dtype).eps > 1e-6:
        wanted = "be float32 or float64, because a kernel matrix is inverted"
        raise ArgumentError("dtype", wanted, np.dtype(dtype))


def value_text(value: object) -> str:
    """A value as text for a message: for an array its numbers, without its dtype."""
    if not isinstance(value, np.ndarray | np.generic | jax.Array) or (
        isinstance(value, Tracer) or not isinstance(value.dtype, np.dtype)
    ):
        return repr(value)
    if not value.ndim:
        return repr(value.item())
    return np.array2string(np.asarray(value), separator=", ", threshold=20)


def check_unmasked(name: str, value: object) -> None:
    """Raises if numbers of an array are masked, since the others are all that count."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        got = f"{np.ma.count_masked(value)} masked ones"
        raise ArgumentError(name, "have no masked numbers", got).advised(
            "leave out their rows, or fill them, by value.filled(np.nan) where NaN is "
            "allowed"
        )


def array(name: str, value: object) -> jax.Array | np.ndarray:
    """`value` as an array of real numbers, traced or not; raises otherwise."""
    kind = type(value).__name__
    check_unmasked(name, value)
    if hasattr(value, "tocsr"):
        got = f"a sparse {kind}; {name}.toarray() makes one"
        raise ArgumentError(name, "be a dense array", got)
    if not isinstance(value, jax.Array | np.ndarray):
        try:
            value = np.asarray(value)
        except ValueError as error:
            raise ArgumentError(name, "be an array", f"a ragged {kind}") from error
    if not any(
        jnp.issubdtype(value.dtype, kind) for kind in (jnp.floating, jnp.integer, bool)
    ):
        raise ArgumentError(name, "hold real numbers", f"dtype {value.dtype}")
    # JAX has no longdouble.
    return value.astype(np.float64) if value.dtype == np.longdouble else value


def csr_matrix(name: str, X: Any) -> Any:
    """A matrix of `scipy.sparse` as CSR; raises unless it is real and finite."""
    if not hasattr(X, "tocsr") or len(X.shape) != 2:
        raise ArgumentError(name, "be a matrix of scipy.sparse", type(X).__name__)
    X = X.tocsr()
    good = np.isfinite(np.asarray(array(name, X.data)))
    if not np.all(good):
        place = int(np.argmin(good))
        row = int(np.searchsorted(X.indptr, place, side="right")) - 1
        got = f"{X.data[place]} in row {row}, column {X.indices[place]}"
        raise ArgumentError(name, "be finite", got)
    return X


def check_finite(
    X: jax.Array | np.ndarray,
    first_row: int = 0,
    names: tuple[str, ...] | None = None,
    present: np.ndarray | None = None,
) -> None:
    """Raises if an example has a value that is not finite; skips traced ones.

    `first_row` is the number of the first row, and `names` are those of the columns.
    Only rows that are `present` are checked.
    """
    row = X.shape[0] if isinstance(X, Tracer) else first_bad_row(X, present)
    if row < X.shape[0]:
        column = int(np.argmin(np.isfinite(np.asarray(X[row]))))
        shown = column if names is None else repr(names[column])
        got = f"{float(X[row, column])} in row {first_row + row}, column {shown}"
        raise ArgumentError("X", "be finite", got)


def first_bad_row(X: jax.Array | np.ndarray, present: np.ndarray | None = None) -> int:
    """The first row, of those that are `present`, that is not finite, or n.

    NumPy reads an array in the memory of the host without a copy, and no program has to
    be compiled for its shape.
    """
    devices = X.devices() if isinstance(X, jax.Array) else ()
    if len(devices) > 1 or any(one.platform != "cpu" for one in devices):
        # Data closed over by an outer `jit` have values too.
        with jax.ensure_compile_time_eval():
            return int(_first_bad_row(X, True if present is None else present))
    rows = np.asarray(X)
    # A sum is finite only if all its terms are, and needs no other array.
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.sum(rows)):
            return len(rows)
    good = np.isfinite(rows).reshape(len(rows), -1).all(axis=1)
    good = good if present is None else good | ~present
    return int(np.argmin(np.append(good, False)))


@jax.jit
def _first_bad_row(X: jax.Array, present: ArrayLike) -> jax.Array:
    rows = jnp.arange(X.shape[0])
    bad = ~jnp.isfinite(jnp.sum(X * 0, axis=range(1, X.ndim)))
    return jnp.min(jnp.where(bad & present, rows, X.shape[0]), initial=X.shape[0])


def to_device(value: ArrayLike, dtype: DTypeLike) -> jax.Array:
    """`value` as a JAX array of this dtype.

    A NumPy array is copied and transferred, since `jnp.asarray` and `jnp.zeros` compile
    a program for every new shape.
    """
    if _forks.is_broken:
        _forks.check()
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if isinstance(value, jax.Array):
        return jnp.asarray(value, dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return jax.device_put(np.asarray(value).astype(dtype))


def scalar_integer(name: str, value: Value) -> Value:
    """`value`, after a check that it is a 32-bit integer, if known."""
    number = value if isinstance(value, jax.Array) else np.asarray(value)
    if number.shape != () or not jnp.issubdtype(number.dtype, jnp.integer):
        kind = f"{number.dtype}{list(number.shape)}"
        got = kind if isinstance(value, Tracer) else value_text(value)
        raise ArgumentError(name, "be an integer scalar", got)
    known = concrete(value)
    limits = np.iinfo(np.int32)
    if known is not None and not limits.min <= known <= limits.max:
        raise ArgumentError(name, "fit 32 bits", value_text(value))
    return value


def seed(value: Value) -> Value | jax.Array:
    """`value` if it is an integer, or an integer drawn by a key of `jax.random`."""
    if isinstance(value, jax.Array):
        # Keys from `jax.random.PRNGKey` are two words.
        raw = value.dtype == jnp.uint32 and value.shape == (2,)
        key = jax.random.wrap_key_data(value) if raw else value
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == ():
            bits = jax.random.bits(key, (), jnp.uint32)
            return jax.lax.bitcast_convert_type(bits, jnp.int32)
    return scalar_integer("seed", value)


def numpy_seed(value: object) -> int:
    """`value`, an integer of at least 0 or a key, as a seed for NumPy."""
    if isinstance(value, jax.Array):
        value = int(np.asarray(seed(value))) & np.iinfo(np.int32).max
    return size("seed", value, at_least=0)


def flag(name: str, value: object) -> bool:
    """`value`, after a check that it is a boolean and not traced."""
    if not isinstance(value, bool | np.bool):
        raise ArgumentError(name, "be True or False", value_text(value))
    return bool(value)


def number(expected: str, test: Callable[[np.ndarray], ArrayLike]):
    """A check that returns `value`, and raises if it is known and not as expected."""

    def check(name: str, value: Value) -> Value:
        if isinstance(value, Tracer):
            return value
        try:
            array = value if isinstance(value, jax.Array) else np.asarray(value)
            real = any(jnp.issubdtype(array.dtype, kind) for kind in REAL)
            good = real and np.all(np.isfinite(array) & test(np.asarray(array)))
        except ValueError:
            good = False
        if not good:
            raise ArgumentError(name, f"be {expected}", value_text(value))
        return value

    return check


REAL = (jnp.floating, jnp.integer)
finite = number("a finite number", lambda number: True)
positive = number("a finite number above 0", lambda number: number > 0)
non_negative = number("a finite number of at least 0", lambda number: number >= 0)
up_to_1 = number(
    "a number above 0 and at most 1", lambda number: (number > 0) & (number <= 1)
)
open_unit_interval = number(
    "a number above 0 and below 1", lambda number: (number > 0) & (number < 1)
)
unit_interval = number(
    "a number of at least 0 and below 1", lambda number: (number >= 0) & (number < 1)
)


def look_up(
    argument: str, table: Mapping[str, Value], name: object, more: str = ""
) -> Value:
    """The entry of this name; otherwise an error that lists the names."""
    if not isinstance(name, str) or name not in table:
        names = ", ".join(table)
        raise ArgumentError(argument, f"be one of {names}{more}", f"{name!r}")
    return table[name]


def one_of(*names: str) -> Callable[[str, object], None]:
    """A check that a value is one of these texts."""

    def check(name: str, value: object) -> None:
        if not isinstance(value, str) or value not in names:
            raise ArgumentError(name, f"be one of {', '.join(names)}", f"{value!r}")

    return check


def positive_integer(name: str, value: Value) -> Value:
    """`value`, after a check that it is an integer of at least 1."""
    number = value if isinstance(value, jax.Array) else np.asarray(value)
    if not jnp.issubdtype(number.dtype, jnp.integer):
        raise ArgumentError(name, "be an integer", value_text(value))
    if not isinstance(number, Tracer) and not np.all(np.asarray(number) >= 1):
        raise ArgumentError(name, "be at least 1", value_text(value))
    return value


def size(name: str, value: object, *, at_least: int = 1) -> int:
    """`value` as a Python integer, after a check that it is at least `at_least`."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise ArgumentError(name, "be an integer", value_text(value))
    if value < at_least:
        raise ArgumentError(name, f"be at least {at_least}", value)
    return int(value)


def memory() -> float:
    """Bytes of memory of the first device that are free; infinite if unknown."""
    known = jax.local_devices()[0].memory_stats()
    if known and "bytes_limit" in known:
        return known["bytes_limit"] - known.get("bytes_in_use", 0)
    return host_memory()


def host_memory() -> float:
    """Bytes of memory that this process may still take; infinite if unknown.

    They are those that the computer has, and the limits of its control groups, such as
    those of a container or of a job, leave.
    """
    return min(_free_memory(), *_free_in_groups(), float("inf"))


def _free_memory() -> float:
    """Bytes of memory that no process uses, and that the system would free."""
    with contextlib.suppress(OSError, StopIteration):
        lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        return 1024.0 * int(line.split()[1])
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return float("inf")


def _free_in_groups() -> list[float]:
    """Bytes that each control group of Linux above this process leaves."""
    found: list[float] = []
    try:
        groups = PROCESS_GROUPS.read_text().splitlines()
    except OSError:
        return found
    for group in groups:
        _, controllers, path = group.split(":", 2)
        if controllers not in MEMORY_FILES:
            continue
        root, limit, used, reclaimable = MEMORY_FILES[controllers]
        # A container sees its own group at the root, whatever it is called outside.
        for folder in {root, *(root / path[1:] / "x").parents} - {*root.parents}:
            with contextlib.suppress(OSError, ValueError, StopIteration):
                most = int((folder / limit).read_text())
                lines = (folder / "memory.stat").read_text().splitlines()
                line = next(line for line in lines if line.startswith(reclaimable))
                taken = int((folder / used).read_text()) - int(line.split()[1])
                found.append(float(max(0, most - taken)))
    return found


def check_memory(
    sizes: Mapping[str, object], needed: int, arrays: str, advice: str = ""
) -> None:
    """Raises if arrays are larger than the memory that is free.

    Args:
      sizes: the arguments that decide the number of bytes, the one to name first.
      needed: the number of bytes.
      arrays: what they are for, as "of arrays".
      advice: what else a user may do.
    """
    # Asking the system takes longer than making small arrays.
    if needed <= CHECK_FROM_BYTES or needed <= (available := memory()):
        return
    (name, value), *others = sizes.items()
    more = "".join(f", {name}={_with_commas(value)}" for name, value in others)
    wanted = f"be one whose arrays fit into memory, {available / 2**30:,.1f} GiB"
    got = f"{_with_commas(value)}{more}, with {needed / 2**30:,.1f} GiB {arrays}"
    raise ArgumentError(name, wanted, got).advised(advice)


def _with_commas(value: object) -> str:
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def check_arrays(sizes: Mapping[str, int], arrays: object, models: int = 1) -> None:
    """Raises if arrays, of each of several models, are larger than the memory.

    Args:
      sizes: the sizes of a model by the names of arguments. An error is about the
        largest one among the lengths of the largest array.
      arrays: a tree of `jax.ShapeDtypeStruct`, or of anything with shape and dtype.
      models: the number of models.
    """
    leaves = jax.tree.leaves(arrays)
    numbers = [leaf.dtype.itemsize * math.prod(leaf.shape) for leaf in leaves]
    needed = models * sum(numbers)
    largest = max(leaves, key=lambda leaf: math.prod(leaf.shape))
    # A support set has a spare row.
    lengths = {*largest.shape, *(length - 1 for length in largest.shape)}
    named = [name for name, size in sizes.items() if size in lengths] or [*sizes]
    name = max(named, key=sizes.__getitem__)
    first = {name: sizes[name]} | ({"models": models} if models > 1 else {})
    check_memory(
        {**first, **sizes},
        needed,
        f"of arrays, the largest of shape {largest.shape}",
        "run fewer models at once" if models > 1 else MEMORY_ADVICE[name],
    )


def float_dtype(dtype: DTypeLike) -> np.dtype:
    """`dtype`, after checks that it is a float that JAX has enabled."""
    try:
        known = None if dtype is None else np.dtype(dtype)
    except TypeError:
        known = None
    if known is None or not jnp.issubdtype(known, jnp.floating):
        raise ArgumentError("dtype", "be a float type", known or repr(dtype))
    if known == np.float64 and not jax.config.read("jax_enable_x64"):
        wanted = "be float32 without jax.config.update('jax_enable_x64', True)"
        raise ArgumentError("dtype", wanted, "float64 and x64 switched off")
    return known


def as_leaf(
    name: str,
    value: ArrayLike,
    dtype: DTypeLike,
    check: Callable[[str, ArrayLike], ArrayLike] | None = None,
) -> jax.Array:
    """`value` as a strongly typed scalar leaf, so that new values do not retrace."""
    if check is not None:
        check(name, value)
    if np.shape(value) != ():
        got = f"shape {np.shape(value)}; sweep values by jax.vmap over init"
        raise ArgumentError(name, "be a scalar", got)
    return as_leaves(name, value, dtype)


def as_leaves(name: str, value: ArrayLike, dtype: DTypeLike) -> jax.Array:
    """`value` as a strongly typed array, of any shape."""
    known = concrete(value)
    if known is not None:
        with np.errstate(over="ignore", under="ignore"):
            cast = known.astype(dtype)
        # XLA may treat a subnormal number as 0.
        lost = (known != 0) & (np.abs(cast) < jnp.finfo(dtype).tiny)
        if not np.all(np.isfinite(cast) & ~lost):
            wanted = f"be in the range of {np.dtype(dtype)}"
            raise ArgumentError(name, wanted, value_text(value))
        return to_device(cast, dtype)
    # A copy, since a state may be donated and the caller keeps `value`.
    return jnp.array(value, dtype)


def numbers_as_leaves(
    record: Record, dtype: DTypeLike, but: tuple[str, ...] = ()
) -> dict[str, jax.Array]:
    """The fields of a record that are numbers, checked, as leaves of a state.

    Fields that are None, static, functions or records stay, and those of `but`.
    """
    own = {}
    for field in fields_of(type(record)):
        name, value = field.name, vars(record)[field.name]
        is_number = not (value is None or callable(value) or isinstance(value, Record))
        if not is_number or field.metadata.get("static") or name in but:
            continue
        if isinstance(value, bool | str):
            wanted = "be a number, or a field of budgetjax.static"
            raise ArgumentError(name, wanted, f"{value!r}")
        check = field.metadata.get("check") or finite
        own[name] = as_leaf(name, cast(ArrayLike, value), dtype, check)
    return own
