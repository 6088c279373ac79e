"""Programs on device meshes with explicit axes, and inside `jax.shard_map`."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool

Function = TypeVar("Function", bound=Callable[..., Any])
Leaf = TypeVar("Leaf")
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


def _to_auto_mesh(leaf: Leaf) -> Leaf | Array:
    sharding = getattr(leaf, "sharding", None)
    if not isinstance(sharding, NamedSharding) or not sharding.mesh.explicit_axes:
        return leaf
    assert isinstance(sharding.mesh, Mesh)
    mesh = Mesh(sharding.mesh.devices, sharding.mesh.axis_names)
    return jax.device_put(leaf, NamedSharding(mesh, sharding.spec))


def vary(*trees: Any) -> tuple[Any, ...]:
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
