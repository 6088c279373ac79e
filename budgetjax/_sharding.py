"""Programs on device meshes: explicit axes, `jax.shard_map`, and rows over devices."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, PyTree

from budgetjax import _checks
from budgetjax._errors import ArgumentError

# The name of the axis of devices that hold rows.
ROWS = "rows"

Function = TypeVar("Function", bound=Callable[..., Any])
Leaf = TypeVar("Leaf")
Tree = TypeVar("Tree")
Rest = TypeVar("Rest")
Result = TypeVar("Result")


def with_auto_axes(
    function: Function, specs: Callable[..., Any] = lambda *_: PartitionSpec()
) -> Function:
    """Lets a function take arrays on meshes with explicit axes, see `jax.make_mesh`.

    Inside, the axes are automatic, and the compiler divides the work. Results are
    replicated, unless `specs`, a function of the same arguments, returns other specs.
    The function must run under `jax.jit`; its arguments may be static.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        meshes = [jax.typeof(leaves[i]).sharding.mesh for i in places]
        meshes.append(jax.sharding.get_abstract_mesh())
        mesh = next((mesh for mesh in meshes if mesh.explicit_axes), None)
        if mesh is None:
            return function(*arguments)

        def of_arrays(*arrays: Array) -> Any:
            for i, array in zip(places, arrays, strict=True):
                leaves[i] = array
            return function(*jax.tree.unflatten(structure, leaves))

        out = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs(*arguments))
        in_auto_mode = jax.sharding.auto_axes(
            of_arrays, axes=mesh.explicit_axes, out_sharding=out
        )
        return in_auto_mode(*(leaves[i] for i in places))

    return cast(Function, call)


def with_auto_axes_on_host(function: Function) -> Function:
    """`with_auto_axes` for a function that is not traced.

    Results stay on a mesh with automatic axes.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        types = dict.fromkeys(mesh.explicit_axes, AxisType.Auto)
        with jax.sharding.use_abstract_mesh(mesh.update_axis_types(types)):
            arguments, keywords = jax.tree.map(_to_auto_mesh, (arguments, keywords))
            return function(*arguments, **keywords)

    return cast(Function, call)


def without_context_mesh(function: Function) -> Function:
    """The function outside of the mesh of `jax.set_mesh`, for meshes of its own."""

    @functools.wraps(function)
    def call(*arguments: Any, **keywords: Any) -> Any:
        empty = jax.sharding.get_abstract_mesh().empty
        if empty or _checks.is_traced((arguments, keywords)):
            return function(*arguments, **keywords)
        with jax.set_mesh(Mesh(np.empty((), object), ())):
            return function(*arguments, **keywords)

    return cast(Function, call)


def _to_auto_mesh(leaf: Leaf) -> Leaf | Array:
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return leaf
    assert isinstance(sharding.mesh, Mesh)
    mesh = Mesh(sharding.mesh.devices, sharding.mesh.axis_names)
    return jax.device_put(leaf, NamedSharding(mesh, sharding.spec))


def vary(*trees: PyTree) -> tuple[PyTree, ...]:
    """The trees with all arrays varying over the same axes of a `jax.shard_map`.

    JAX requires this of the carry of a loop and of the results of branches, while
    constants vary over no axis. Outside a `jax.shard_map` nothing changes.
    """
    axes = frozenset[str]().union(*map(_axes, jax.tree.leaves(trees)))
    if not axes:
        return trees
    return jax.tree.map(lambda leaf: _cast(leaf, tuple(axes - _axes(leaf))), trees)


def cond(wanted: Bool[Array, ""], *branches: Callable[[], Result]) -> Result:
    """`jax.lax.cond` whose branches may return constants inside a `jax.shard_map`."""
    return jax.lax.cond(
        wanted, *(lambda branch=branch: vary(branch())[0] for branch in branches)
    )


def row_spec(X: Array) -> PartitionSpec:
    """The spec of an array that is sharded by rows like `X`."""
    return PartitionSpec(*jax.typeof(X).sharding.spec[:1])


def split_by_rows(X: Any) -> NamedSharding | None:
    """How rows are divided among devices, without their columns; None if they are not.

    Of a traced array only explicit axes are known.
    """
    if not isinstance(X, jax.Array):
        return None
    sharding: Any = jax.typeof(X).sharding if isinstance(X, Tracer) else X.sharding
    if not isinstance(sharding, NamedSharding) or not sharding.spec[:1]:
        return None
    split = NamedSharding(sharding.mesh, PartitionSpec(sharding.spec[0]))
    known = split.spec[0] not in (None, PartitionSpec.UNCONSTRAINED)
    return split if known and split.num_devices > 1 else None


def map_rows(
    function: Callable[[Array, Rest], tuple[Result, Bool[Array, ""]]],
    split: NamedSharding,
    rows: Array,
    rest: Rest,
) -> tuple[Result, Bool[Array, ""]]:
    """`function(rows, rest)` of the rows of each device: an array by rows, and a flag.

    The flag says whether it is True on all devices. Under `with_auto_axes` the axes of
    an explicit mesh are those of the context.
    """
    explicit = bool(split.mesh.explicit_axes)

    def local(rows: Array, rest: Rest) -> tuple[Result, Bool[Array, ""]]:
        result, good = function(rows, rest)
        bad = jax.lax.psum((~good).astype(np.int32), split.spec[0])
        return result, bad == 0

    mesh, results = None if explicit else split.mesh, (split.spec, PartitionSpec())
    return _shard_map(local, mesh, split.spec, results)(rows, rest)


def _shard_map(
    function: Callable[..., Result], mesh: Any, rows: Any, results: Any
) -> Callable[..., Result]:
    """`jax.shard_map` of a function of rows and of the rest, with these specs."""
    return jax.shard_map(
        function,
        mesh=mesh,
        in_specs=(rows, PartitionSpec()),
        out_specs=results,
        check_vma=False,
    )


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Shards:
    """The devices, of one or more processes, that each hold a part of the rows.

    It is a tree without leaves, so programs depend on it. Rows are NumPy arrays of the
    rows of this process; blocks of them go to its devices.

    Attributes:
      mesh: the devices along one axis; None for the default device of this process.
    """

    mesh: Mesh | None = None

    @classmethod
    def of_rows(cls, X: object) -> "Shards":
        """The devices among which the rows of an array are divided."""
        if not isinstance(X, jax.Array) or isinstance(X, Tracer) or not X.ndim:
            return cls()
        starts: dict[int, Any] = {}
        for device, index in X.sharding.devices_indices_map(X.shape).items():
            if any(part != slice(None) for part in index[1:]):
                return cls()  # columns are divided
            starts.setdefault(index[0].start or 0, device)
        devices = [device for _, device in sorted(starts.items())]
        if len(devices) == 1:
            return cls()
        found = cls(Mesh(np.array(devices), (ROWS,)))
        processes = {device.process_index for device in devices}
        if found.spans_processes and len(processes) != jax.process_count():
            raise ArgumentError(
                "the rows of X",
                "be divided among the devices of all processes",
                f"rows on devices of {len(processes)} of {jax.process_count()}",
            )
        return found

    @property
    def number(self) -> int:
        """The number of devices."""
        return 1 if self.mesh is None else self.mesh.size

    @property
    def local_number(self) -> int:
        """The number of devices of this process."""
        return 1 if self.mesh is None else len(self.mesh.local_devices)

    @property
    def spans_processes(self) -> bool:
        """Whether some devices are those of other processes."""
        return self.local_number < self.number

    def local_rows(self, array: Any, X: Array) -> np.ndarray:
        """The rows of this process, of an array with the rows of `X`.

        Other arrays than JAX's may have these rows alone.
        """
        if isinstance(array, jax.Array) and not array.is_fully_addressable:
            if Shards.of_rows(array) != self:
                raise ArgumentError(
                    "y and weight",
                    "be divided among devices like X",
                    f"{array.sharding} and {X.sharding}",
                )
            return self.local(array)
        array = np.asarray(array)
        if self.spans_processes and len(array) != X.shape[0]:
            return array
        return np.concatenate([array[part] for part in self._slices(X)])

    def first_row(self, X: Array) -> int:
        """The number of the first row of this process."""
        return min(part.start or 0 for part in self._slices(X))

    def _slices(self, X: Array) -> list[slice]:
        """The rows of each local device."""
        assert self.mesh is not None
        places: Any = X.sharding.addressable_devices_indices_map(X.shape)
        return [places[device][0] for device in self.mesh.local_devices]

    def place(self, rows: PyTree) -> PyTree:
        """A tree of rows of this process, divided among its devices."""
        if self.mesh is None:
            return rows
        split = NamedSharding(self.mesh, PartitionSpec(ROWS))
        place = functools.partial(jax.make_array_from_process_local_data, split)
        return jax.tree.map(place, rows)

    def replicate(self, tree: Tree) -> Tree:
        """A tree of arrays, equal in all processes, on every device."""
        if self.mesh is None:
            return tree
        everywhere = NamedSharding(self.mesh, PartitionSpec())

        def place(leaf: ArrayLike) -> Array:
            leaf = np.asarray(leaf)
            return jax.make_array_from_callback(
                leaf.shape, everywhere, leaf.__getitem__
            )

        return jax.tree.map(place, tree)

    def map(
        self, function: Callable[..., Result], parts: Any, rows: Any, rest: Any
    ) -> Result:
        """`function(parts, rows, rest)` on every device: its part of each result.

        Parts have a first axis of devices outside the function, unless there is one
        device only; `rest` is the same on all devices.
        """
        if self.mesh is None:
            return function(parts, rows, rest)

        def local(given: tuple[Any, Any], rest: Any) -> Result:
            parts, rows = given
            parts = jax.tree.map(lambda leaf: leaf[0], parts)
            found = function(parts, rows, rest)
            return jax.tree.map(lambda leaf: leaf[None], found)

        split = PartitionSpec(ROWS)
        return _shard_map(local, self.mesh, split, split)((parts, rows), rest)

    def map_equal(
        self, function: Callable[..., Result], rows: Any, rest: Any
    ) -> Result:
        """`function(rows, rest)` on every device, whose results are the same on all."""
        if self.mesh is None:
            return function(rows, rest)
        split, same = PartitionSpec(ROWS), PartitionSpec()
        return _shard_map(function, self.mesh, split, same)(rows, rest)

    def mean(self, tree: Tree) -> Tree:
        """The means over all devices, inside `map`."""
        return tree if self.mesh is None else jax.lax.pmean(tree, ROWS)

    def local(self, rows: PyTree) -> np.ndarray:
        """The rows of this process of an array that is divided by rows."""
        if self.mesh is None:
            return np.asarray(rows)
        data = {shard.device: shard.data for shard in rows.addressable_shards}
        found = [np.asarray(data[device]) for device in self.mesh.local_devices]
        return np.concatenate(found)

    def local_parts(self, parts: PyTree) -> np.ndarray:
        """The results of `map` of the devices of this process, along the first axis."""
        return np.asarray(parts)[None] if self.mesh is None else self.local(parts)

    def place_parts(self, parts: PyTree) -> PyTree:
        """A tree of arrays with a first axis of local devices, as parts for `map`."""
        if self.mesh is None:
            return jax.tree.map(lambda leaf: leaf[0], parts)
        return self.place(parts)

    def zeros(self, shape: tuple[int, ...], dtype: DTypeLike) -> Any:
        """Parts of zeros."""
        return self.place_parts(np.zeros((self.local_number, *shape), dtype))

    def one(self, tree: Tree) -> Tree:
        """A tree of arrays, the same on every device, on one of this process."""
        if self.mesh is None:
            return tree
        return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)

    def sum(self, parts: PyTree) -> PyTree:
        """The sums of a tree of parts over the devices, on one of this process."""
        return parts if self.mesh is None else self.one(_sum_parts(self, parts))

    def gather(self, array: np.ndarray) -> np.ndarray:
        """The rows of all processes, in the order of the processes."""
        if not self.spans_processes:
            return array
        from jax.experimental import multihost_utils

        # Bytes, since float64 would become float32.
        array = np.ascontiguousarray(array)
        counts = multihost_utils.process_allgather(np.int32(len(array)))
        padded = np.zeros((int(np.max(counts)), *array.shape[1:]), array.dtype)
        padded[: len(array)] = array
        sent = np.frombuffer(padded.tobytes(), np.uint8)
        found = np.asarray(multihost_utils.process_allgather(sent))
        rows = [
            np.frombuffer(one.tobytes(), array.dtype).reshape(padded.shape)[:count]
            for one, count in zip(found, counts, strict=True)
        ]
        return np.concatenate(rows)

    def total(self, numbers: Any) -> Any:
        """The sums of numbers, or of arrays of NumPy, over all processes."""
        if not self.spans_processes:
            return numbers
        return np.sum(self.gather(np.asarray(numbers)[None]), axis=0)

    def check(self, function: Callable[[], Result]) -> Result:
        """Calls a function in every process; if it raises in one, all raise."""
        if not self.spans_processes:
            return function()
        result, error = None, None
        try:
            result = function()
        except ValueError as found:
            error = found
        failed = np.flatnonzero(self.gather(np.array([error is not None])))
        if error is not None:
            raise error
        if len(failed):
            raise ArgumentError(
                "the rows of all processes",
                "be valid",
                f"others in process {failed[0]}",
            )
        return cast(Result, result)


@functools.partial(jax.jit, static_argnums=0)
def _sum_parts(shards: Shards, parts: Tree) -> Tree:
    """Sums over the devices, which all of them get: one all-reduce."""

    def local(parts: Tree, _: object) -> Tree:
        return jax.lax.psum(jax.tree.map(lambda leaf: leaf[0], parts), ROWS)

    return shards.map_equal(local, parts, ())


# Older releases of JAX have the cast, and the axes below, under other names.
_cast: Any = (
    functools.partial(jax.lax.pcast, to="varying")
    if hasattr(jax.lax, "pcast")
    else jax.lax.pvary  # pyright: ignore[reportAttributeAccessIssue]
)


def _axes(leaf: object) -> frozenset[str]:
    """The manual axes that an array varies over."""
    kind: Any = jax.typeof(leaf)
    return kind.mat.varying if hasattr(kind, "mat") else kind.vma
