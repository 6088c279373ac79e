"""Learners by name, and verbs that exchange the parts of a state."""

import re
from typing import TypeVar

import jax
import jax.numpy as jnp

from budgetjax import _checks, _pytree, kernels, losses, online, solvers
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._pytree import Record
from budgetjax.kernels import Kernel
from budgetjax.online import driver
from budgetjax.online.learner import Learner
from budgetjax.online.learners.ahpatron import Ahpatron
from budgetjax.online.learners.alma import ALMA
from budgetjax.online.learners.arow import AROW
from budgetjax.online.learners.forgetron import Forgetron
from budgetjax.online.learners.fourier import Fourier
from budgetjax.online.learners.norma import NORMA
from budgetjax.online.learners.nystrom import Nystrom
from budgetjax.online.learners.passive_aggressive import PassiveAggressive
from budgetjax.online.learners.pegasos import Pegasos
from budgetjax.online.learners.perceptron import Perceptron
from budgetjax.online.learners.projectron import Projectron
from budgetjax.online.learners.sgd import SGD
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import State
from budgetjax.solvers.solver import Solver

Own = TypeVar("Own")

# The learners of this package.
LEARNERS: tuple[type[Learner], ...] = (
    *(Ahpatron, ALMA, AROW, Forgetron, Fourier, NORMA, Nystrom, PassiveAggressive),
    *(Pegasos, Perceptron, Projectron, SGD),
)


@names_errors("register")
def register(own: Own) -> Own:
    """Registers your own learner, kernel or maintenance strategy, or a solver.

    Model files can then be loaded without `like=`. The command line finds a learner and
    a solver by name (`MyPegasos` as "my-pegasos"), and estimators a strategy
    (`RemoveFarthest` as "remove_farthest").

    Args:
      own: a subclass of `Learner`, `Kernel` or `Maintenance`, or a `Solver`, whose name
        nothing else has. It is returned, so that this is a decorator too.

    Example:
      >>> @bj.register
      ... class Eager(bj.Perceptron):
      ...     def violates(self, state, score, y):
      ...         return bj.losses.margin(score, y) < 1
    """
    if isinstance(own, type) and issubclass(own, Learner | Kernel | Maintenance):
        if issubclass(own, Learner):
            _check_free(name_of(own), own, online.registered)
        _pytree.record(own)
        if issubclass(own, Learner):
            online.registered[name_of(own)] = own
        return own  # pyright: ignore[reportReturnType]
    if not isinstance(own, Solver):
        wanted = (
            "be a budgetjax.Solver, or a class of learners, kernels or maintenance "
            "strategies"
        )
        raise ArgumentError("own", wanted, f"{own!r}")
    _check_free(own.name, own, solvers.registered)
    solvers.registered[own.name] = own
    return own


def _check_free(name: str, own: object, table: dict) -> None:
    """Raises if something else has this name."""
    known = table.get(name)
    again = type(known) is type(own) and _place(known) == _place(own)
    if name in by_name() | solvers.by_name() and not again:
        raise ArgumentError(f"the name {name!r}", "be free", "one that is taken")


def _place(own: object) -> object:
    """Where a class was defined, which stays if that is executed again."""
    return (own.__module__, own.__qualname__) if isinstance(own, type) else own


@names_errors("with_kernel")
def with_kernel(state: State, kernel: Kernel) -> State:
    """The state with another kernel, or other parameters of it; O(B^2 (d + B)).

    The support vectors and their coefficients stay. What was computed with the old
    kernel is computed anew: the kernel matrix and the span of projections and of
    second-order learners, the norm of a model that is kept in a ball, Nystrom features.
    A strategy starts again, as after a refit. Scores alone can be asked for, too, and
    they are differentiable with respect to the kernel's numbers.

    Args:
      state: of a learner other than `Fourier`, whose features are drawn for a kernel.
      kernel: of any class that the learner and its strategy take. Its numbers may be
        traced.

    Raises:
      ValueError: if the learner or its strategy cannot have this kernel.

    Example:
      >>> state = bj.AROW().init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> state = bj.with_kernel(state, bj.RBF(2.0))
      >>> state = bj.step(state, jnp.array([2.0, 1.0]), 1)
    """
    learner = _learner_of(state, "with_kernel")
    if not learner.has_vectors:
        wanted = "be of a learner whose features can be computed for another kernel; "
        got = type(learner).__name__
        raise ArgumentError("state", wanted + "make a new one by init", got)
    expansion = state.expansion
    kernel = kernels.as_leaves(kernel, state.num_features, state.dtype)
    learner.check_kernel(kernel)
    # Distances have an origin, and other kernels have none.
    examples, mask = expansion.examples, expansion.mask
    origin = kernels.origin_of(kernel, examples, mask)
    expansion = expansion._replace(origin=origin)
    state = Record._replace(state, kernel=kernel, expansion=expansion)
    vectors = jnp.where(mask[:, None], examples - origin[None], 0)
    return learner.refresh(learner.with_vectors(state, vectors))


@names_errors("with_learner")
def with_learner(state: State, learner: Learner) -> State:
    """The state with another learner of the same memory, or other hyperparameters.

    Support vectors, coefficients, strategy and counters stay, and so does what the old
    learner remembers: a Perceptron may go on as a `PassiveAggressive`, and one AROW as
    another with a larger `drift`. The scale of Pegasos, which has no rate of its own,
    is the step size of its next round.

    Args:
      state: of a learner.
      learner: one that takes the classes or targets of the state, and remembers the
        same arrays. Its numbers may be traced.

    Raises:
      ValueError: if the learner does not fit the state.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=2, budget=10)
      >>> state = bj.with_learner(state, bj.Perceptron(margin=0.5))
      >>> float(state.learner.margin)
      0.5
    """
    old = _learner_of(state, "with_learner")
    if not isinstance(learner, Learner):
        wanted = "be one such as budgetjax.Pegasos()"
        raise ArgumentError("learner", wanted, f"{learner!r}")
    real = not losses.takes_labels(old.loss)
    columns = state.num_columns
    num_classes = None if real else max(2, columns)
    asks = {"num_outputs": real, "num_classes": not real and columns > 1}
    asks["average"] = state.expansion.average is not None
    for name, needed in asks.items():
        if needed and name not in learner.takes:
            got = type(learner).__name__
            raise ArgumentError("learner", f"take {name}, as the state has it", got)
    bound = learner.bind(state.expansion, num_classes)
    bound.check_kernel(state.kernel)
    new = Record._replace(state, learner=bound)
    fresh = jax.eval_shape(lambda: bound.start(new.empty(), 0, None))
    wanted, got = (
        jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), one)
        for one in (state.memory, fresh.memory)
    )
    has_strategy = bound.default_maintenance(state.kernel) is not None
    if wanted != got or has_strategy != (state.maintenance is not None):
        kind = f"of {type(old).__name__}"
        wanted = f"remember what the one of the state does, {kind}"
        raise ArgumentError("learner", wanted, type(learner).__name__)
    return new


def _learner_of(state: State, function: str) -> Learner:
    """The learner of a single state."""
    driver.check_online(state)
    if not isinstance(state, State):
        wanted = "be that of a single learner"
        raise ArgumentError("state", wanted, _checks.kind_name(state))
    if state.expansion.vectors.ndim != 2:
        got = f"stacked states, vectors of shape {state.expansion.vectors.shape}"
        raise ArgumentError("state", f"be one; use jax.vmap over {function}", got)
    return state.learner


def name_of(learner: type[Learner]) -> str:
    """The name of a learner on the command line, such as `passive_aggressive`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", learner.__name__).lower()


def by_name() -> dict[str, type[Learner]]:
    """All learners: those of this package, and those of `register`."""
    return {name_of(one): one for one in LEARNERS} | online.registered


def look_up(name: object) -> type[Learner]:
    """The learner of this name."""
    more = "; budgetjax.register adds one of your own"
    return _checks.look_up("learner", by_name(), name, more)
