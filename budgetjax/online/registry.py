"""Algorithms by name, for estimators, refits, model files and commands."""

import functools
import importlib
from typing import Any, TypeVar

import jax.numpy as jnp

from budgetjax import _checks, _pytree, kernels, models, online, solvers
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import Name
from budgetjax.kernels import Kernel
from budgetjax.online.algorithm import Algorithm
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import State
from budgetjax.solvers.solver import Solver

Own = TypeVar("Own")


@names_errors("register")
def register(own: Own) -> Own:
    """Registers your own algorithm, solver, kernel or maintenance strategy by its name.

    Estimators, `refit` and the command line find an algorithm by name, estimators find
    a strategy (`RemoveFarthest` as "remove_farthest"), and the command line finds a
    solver. Model files can then be loaded without `like=`; for an algorithm or a
    solver, `init` must have its class of states as the return annotation.

    Args:
      own: an `Algorithm`, a `Solver`, or a subclass of `Kernel` or `Maintenance`, whose
        name nothing else has. It is returned, so that this is a decorator too.

    Example:
      >>> import dataclasses
      >>> own = bj.register(dataclasses.replace(bj.perceptron, name="my_perceptron"))
    """
    if isinstance(own, type) and issubclass(own, Kernel | Maintenance):
        _pytree.record(own)
        return own  # pyright: ignore[reportReturnType]
    if not isinstance(own, Algorithm | Solver):
        raise ArgumentError(
            "own",
            "be a budgetjax.Algorithm, a budgetjax.Solver, or a class of "
            "kernels or maintenance strategies",
            f"{own!r}",
        )
    table: dict[str, Any] = online.registered
    if isinstance(own, Solver):
        table = solvers.registered
    taken = own.name in by_name() | solvers.by_name()
    if taken and table.get(own.name) != own:
        raise ArgumentError(f"the name {own.name!r}", "be free", "one that is taken")
    table[own.name] = own
    return own


@names_errors("with_kernel")
def with_kernel(state: State, kernel: Kernel) -> State:
    """The state with another kernel, or other parameters of it; O(B^2 (d + B)).

    The support vectors and their coefficients stay. What was computed with the old
    kernel is computed anew: the kernel matrix and the span of projections and of
    second-order learners, the norm of a model that is kept in a ball, Nystrom features.
    A strategy starts again, as after a refit. Scores alone can be asked for, too, and
    they are differentiable with respect to the kernel's numbers.

    Args:
      state: of a learner other than `fourier`, whose features are drawn for a kernel.
      kernel: of any class that the learner and its strategy take. Its numbers may be
        traced.

    Raises:
      ValueError: if the learner or its strategy cannot have this kernel.

    Example:
      >>> state = bj.arow.init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.arow.step(state, jnp.array([1.0, 2.0]), -1)
      >>> state = bj.with_kernel(state, bj.RBF(2.0))
      >>> state = bj.arow.step(state, jnp.array([2.0, 1.0]), 1)
    """
    algorithm = of_state(state)
    if algorithm.with_vectors is None:
        raise ArgumentError(
            "state",
            "be of a learner whose features can be computed for another kernel; "
            "make a new one by init",
            algorithm.name,
        )
    expansion = state.expansion
    if expansion.vectors.ndim != 2:
        got = f"stacked states, vectors of shape {expansion.vectors.shape}"
        raise ArgumentError("state", "be one; use jax.vmap over with_kernel", got)
    width, dtype = expansion.vectors.shape[1], expansion.vectors.dtype
    kernel = kernels.as_leaves(kernel, width, dtype)
    # Distances have an origin, and other kernels have none.
    examples, mask = expansion.examples, expansion.mask
    origin = kernels.origin_of(kernel, examples, mask)
    state = models.set_kernel(state, kernel)
    state = state._replace(expansion=expansion._replace(origin=origin))
    vectors = jnp.where(mask[:, None], examples - origin[None], 0)
    return algorithm.refresh_caches(algorithm.with_vectors(state, vectors))


def by_name() -> dict[str, Algorithm[Any, Any]]:
    """All algorithms: those of this package, and those of `register`."""
    return _own() | online.registered


@functools.cache
def _own() -> dict[str, Algorithm[Any, Any]]:
    # Not at the top: the algorithms may ask for each other.
    modules = {
        name: importlib.import_module(f"{online.__name__}.{name}")
        for name in online.ALGORITHMS
    }
    return {name: getattr(module, name) for name, module in modules.items()}


def look_up(name: object) -> Algorithm[Any, Any]:
    """The algorithm of this name."""
    more = "; budgetjax.register adds one of your own"
    return _checks.look_up("algorithm", by_name(), name, more)


def of_state(state: object) -> Algorithm[Any, Any]:
    """The algorithm whose state this is."""
    name = getattr(state, "algorithm", None)
    if not isinstance(name, Name) or not hasattr(state, "expansion"):
        raise ArgumentError(
            "state", "be one of an online algorithm", _checks.kind_name(state)
        )
    return look_up(name.value)
