"""Verbs that exchange a part of a state: its kernel, its learner, its iterates."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from budgetjax import _checks, _counters, _forks, kernels, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax.kernels import Kernel
from budgetjax.online import driver
from budgetjax.online.learner import Learner
from budgetjax.online.slots import FREE
from budgetjax.online.state import State
from budgetjax.online.support_set import Expansion


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
    state = state._exchange(kernel=kernel, expansion=expansion)
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
    num_classes, columns = _num_classes(state), state.num_columns
    real = num_classes is None
    asks = {"num_outputs": real, "num_classes": not real and columns > 1}
    asks["average"] = state.expansion.average is not None
    for name, needed in asks.items():
        if needed and name not in learner.takes:
            got = type(learner).__name__
            raise ArgumentError("learner", f"take {name}, as the state has it", got)
    bound = learner.bind(state.expansion, num_classes)
    bound.check_kernel(state.kernel)
    new = state._exchange(learner=bound, memory=None)
    fresh = jax.eval_shape(lambda: bound.start(new.empty(), 0, None)).memory
    known, asked = _by_place(state.memory), _by_place(fresh)
    wanted, got = (
        {place: (leaf.shape, leaf.dtype) for place, leaf in one.items()}
        for one in (known, asked)
    )
    has_strategy = bound.default_maintenance(state.kernel) is not None
    if wanted != got or has_strategy != (state.maintenance is not None):
        wanted = f"remember what {type(old).__name__}, that of the state, remembers"
        raise ArgumentError("learner", wanted, type(learner).__name__)
    # A class of memories that was defined again, as in a notebook, is another one.
    leaves = [known[place] for place in asked]
    return new._replace(memory=jax.tree.unflatten(jax.tree.structure(fresh), leaves))


def _by_place(memory: Any) -> dict[str, Any]:
    """The arrays that a learner remembers, by their places in its memory."""
    found = jax.tree_util.tree_leaves_with_path(memory)
    return {jax.tree_util.keystr(path): leaf for path, leaf in found}


def bind_fields(state: State, names: Sequence[str]) -> State:
    """The state, or stacked states, with these fields of its learner bound.

    They are as a user gives them, and all others are bound already.
    """
    learner, num_classes = state.learner, _num_classes(state)
    given = {name: vars(learner)[name] for name in names}

    def bind(others: Learner, expansion: Expansion) -> Learner:
        return others._replace(**given).bind(expansion, num_classes)

    for _ in state.expansion.vectors.shape[:-2]:
        bind = jax.vmap(bind)
    # None is no leaf, so that stacked models share these values.
    bound = bind(learner._replace(**dict.fromkeys(names)), state.expansion)
    return state._exchange(learner=bound)


def _num_classes(state: State) -> int | None:
    """`num_classes` of the `init` that made the state."""
    takes_labels = losses.takes_labels(state.loss)
    return max(2, state.num_columns) if takes_labels else None


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


@names_errors("average_iterates")
def average_iterates(state: State) -> State:
    """The state with the average of its iterates as the model, for predictions; O(B C).

    It is the average of the models after each round from `average` on (see
    `budgetjax.Learner.init`), mapped through all later maintenance: if a vector was
    removed, projected or merged, so was its part of the average. The average is
    therefore as good as the maintenance: over the second half of a stream, with 100
    vectors on letter, usps, ijcnn1 and checkerboard, it gained 0.7 to 9 points of
    accuracy with `Project`, nothing reliable with `Merge`, and lost up to 15 points
    with removal (`python benchmarks/runner.py accuracy`). The result cannot continue to
    learn from where `state` was: keep both.

    Args:
      state: a state made with `average=`, or stacked states.

    Returns:
      A state for `decision_function`, `predict` and `support`. Before the first round
      of the average it is the last iterate.

    Example:
      >>> state = bj.Perceptron().init(bj.RBF(1.0), num_features=1, budget=2,
      ...     maintenance=bj.RemoveOldest(), average=True)
      >>> X, y = np.array([[0.0], [9.0]]), np.array([1, -1])
      >>> state, _ = bj.run(state, X, y)
      >>> bj.support(bj.average_iterates(state)).coefficients.tolist()
      [[1.0], [-0.5]]
    """
    _forks.check()
    expansion = state.expansion
    average = expansion.average
    if average is None:
        raise ArgumentError(
            "state",
            "be of a learner made with average=True, or from a round on",
            "one without",
        )
    coefficients, sums = jnp.split(expansion.coefficients_and_sums, 2, axis=-1)
    total = average.total[..., None, None]
    sums = sums + average.scale_sum[..., None, None] * coefficients
    true = expansion.scale[..., None, None] * coefficients
    means = jnp.where(total > 0, sums / jnp.maximum(total, 1), true)
    return state._replace(
        expansion=expansion._replace(
            coefficients_and_sums=means,
            scale=jnp.ones_like(expansion.scale),
            average=None,
        )
    )


def restart_average(state: State) -> State:
    """The state, with an average that covers the rounds from the next one on."""
    average = state.expansion.average
    if average is None:
        return state
    start = int(_counters.number(average.start))
    average = average._replace(
        start=_counters.of(max(start, int(state.num_seen) + 1)),
        scale_sum=jnp.zeros_like(average.scale_sum),
        total=jnp.zeros_like(average.total),
    )
    return state._replace(expansion=state.expansion._replace(average=average))


@jax.jit
def resume(state: State, other: State) -> State:
    """Another state of the learner, with the counters and the clock of this one."""
    passed = state.counts.seen.low - other.counts.seen.low
    expansion = other.expansion
    ages = jnp.where(expansion.mask, expansion.ages + passed, FREE)
    return other._replace(
        expansion=expansion._replace(ages=ages, average=state.expansion.average),
        counts=state.counts,
    )


def with_room(state: State, like: State) -> State:
    """A copy of a state with the slots and the budget of an empty one of its kind.

    That has at least as many slots. If the state has not been full yet, the copy goes
    on as if it had had them from the start.
    """
    rows = state.capacity + 1

    def widen(old: Array, new: Array) -> Array:
        if old.shape == new.shape:
            return old
        # All but the spare row; some arrays have several numbers per slot.
        part = tuple(
            slice(size if size == most else size // rows * (rows - 1))
            for size, most in zip(old.shape, new.shape, strict=True)
        )
        # In NumPy, since JAX would compile a program for every shape.
        wide = np.array(new)
        wide[part] = np.asarray(old)[part]
        return jnp.array(wide)

    new = jax.tree.map(widen, state, like)
    budget = like.expansion.budget
    return new._replace(expansion=new.expansion._replace(budget=budget))
