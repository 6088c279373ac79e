"""Programs on device meshes with explicit axes, and inside `jax.shard_map`."""

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool


def automatic(
    function: Callable[..., Any], specs: Callable[..., Any] = lambda *_: PartitionSpec()
) -> Callable[..., Any]:
    """Lets a function take arrays on meshes with explicit axes, see `jax.make_mesh`.

    Inside, the axes are automatic, and the compiler divides the work. Results are
    replicated, unless `specs`, a function of the same arguments, returns other specs.
    The function must run under `jax.jit`; its arguments may be static.
    """

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        leaves, structure = jax.tree.flatten(arguments)
        at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array)]
        meshes = [jax.typeof(leaves[i]).sharding.mesh for i in at]
        meshes.append(jax.sharding.get_abstract_mesh())
        mesh = next((mesh for mesh in meshes if mesh.explicit_axes), None)
        if mesh is None:
            return function(*arguments)

        def of_arrays(*arrays: Array) -> Any:
            for i, array in zip(at, arrays, strict=True):
                leaves[i] = array
            return function(*jax.tree.unflatten(structure, leaves))

        out = jax.tree.map(lambda spec: NamedSharding(mesh, spec), specs(*arguments))
        within = jax.sharding.auto_axes(
            of_arrays, axes=mesh.explicit_axes, out_sharding=out
        )
        return within(*(leaves[i] for i in at))

    return call


def automatic_on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """`automatic` for a function that is not traced.

    Results stay on a mesh with automatic axes.
    """

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        mesh = jax.sharding.get_abstract_mesh()
        types = dict.fromkeys(mesh.explicit_axes, AxisType.Auto)
        with jax.sharding.use_abstract_mesh(mesh.update_axis_types(types)):
            arguments, named = jax.tree.map(_on_automatic_mesh, (arguments, named))
            return function(*arguments, **named)

    return call


def _on_automatic_mesh(leaf: Any) -> Any:
    own = getattr(leaf, "sharding", None)
    if not isinstance(own, NamedSharding) or not own.mesh.explicit_axes:
        return leaf
    mesh: Any = own.mesh
    mesh = Mesh(mesh.devices, mesh.axis_names)
    return jax.device_put(leaf, NamedSharding(mesh, own.spec))


def vary(*trees: Any) -> tuple[Any, ...]:
    """The trees with all arrays varying over the same axes of a `jax.shard_map`.

    JAX requires this of the carry of a loop and of the results of branches, while
    constants vary over no axis. Outside a `jax.shard_map` nothing changes.
    """
    axes = frozenset[str]().union(*map(_axes, jax.tree.leaves(trees)))
    if not axes:
        return trees
    return jax.tree.map(lambda leaf: _cast(leaf, tuple(axes - _axes(leaf))), trees)


def cond(wanted: Bool[Array, ""], *branches: Callable[[], Any]) -> Any:
    """`jax.lax.cond` whose branches may return constants inside a `jax.shard_map`."""
    return jax.lax.cond(wanted, *(lambda one=one: vary(one())[0] for one in branches))


def of_rows(X: Array) -> PartitionSpec:
    """The spec of an array that is sharded by rows like `X`."""
    return PartitionSpec(*jax.typeof(X).sharding.spec[:1])


# Older releases of JAX have the cast, and the axes below, under other names.
_cast: Any = (
    functools.partial(jax.lax.pcast, to="varying")
    if hasattr(jax.lax, "pcast")
    else jax.lax.pvary  # pyright: ignore[reportAttributeAccessIssue]
)


def _axes(leaf: Any) -> frozenset[str]:
    """The manual axes that an array varies over."""
    kind: Any = jax.typeof(leaf)
    return kind.mat.varying if hasattr(kind, "mat") else kind.vma
