"""The Margin Perceptron with Unlearning; see `init`."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float, Int32, Key

from budgetjax import _checks, _counters, _record
from budgetjax._counters import Words
from budgetjax._errors import ArgumentError, InputError, names_errors
from budgetjax._record import Name
from budgetjax.kernels import Kernel
from budgetjax.model import KernelModel, LinearModel
from budgetjax.solvers.linear import patterns, rows
from budgetjax.solvers.linear.epochs import Order, natural_order, shuffle, visit_all
from budgetjax.solvers.linear.patterns import Problem
from budgetjax.solvers.linear.rows import KernelMatrix, Rows, get, products
from budgetjax.solvers.solver import Objective, Solver
from budgetjax.solvers.training_set import Scalar, Vector

# Section 5: the distance of the two thresholds, in units of R^2.
GAP = 3.0
# The paper's delta in units of the tolerance: when a pass changes nothing, the
# objective is certain to be close enough.
DELTA_PER_TOLERANCE = 0.1
# The smallest tolerance in float32, which cannot resolve larger margins and counts.
FLOAT32_TOLERANCE = 1e-2


@_record.shown
class State(NamedTuple):
    """The state of the learner on `n` examples; see `budgetjax.Solver`.

    Attributes:
      weights: `a`, the unnormalised `w`. With a kernel, the margins of all patterns.
      counts: `I_k`, shape `(n,)`.
      threshold: `b`.
      gap: the distance of the thresholds, `db`.
      max_count: the maximum count, `I_max`; infinite for a hard margin and the squared
        hinge.
      damping: the term that every count adds to the margin of its own pattern,
        `1 / 2C`; None unless the loss is the squared hinge.
      near: the margin, in units of the threshold, up to which patterns enter the first
        active set, `c_bar`.
      rounds: the numbers of presentations of the two active sets, `Nep1` and `Nep2`,
        `(2,)`.
      tally: `t+` and `t-`, shape `(2,)`.
    """

    algorithm: Name
    weights: Float[Array, " size"]
    counts: Vector
    threshold: Scalar
    gap: Scalar
    max_count: Scalar
    damping: Scalar | None
    near: Scalar
    rounds: Int32[Array, " 2"]
    tally: Float[Array, " 2"]
    visits: Words
    is_stationary: Bool[Array, ""]
    key: Key[Array, ""]
    problem: Problem

    @property
    def num_visits(self) -> Any:
        """Visits so far: a NumPy int64, or a traced integer."""
        return _counters.number(self.visits)


@names_errors("mpu.init")
def init(  # noqa: PLR0913
    X: Any,
    y: ArrayLike,
    *,
    kernel: Kernel | None = None,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    fit_bias: bool = True,
    bias_scale: ArrayLike = 1.0,
    hard_margin: bool = False,
    loss: str = "hinge",
    gap: ArrayLike | None = None,
    threshold: ArrayLike | None = None,
    near: ArrayLike = 1.01,
    first_rounds: int = 3,
    second_rounds: int = 10,
    tolerance: ArrayLike = FLOAT32_TOLERANCE,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by a Perceptron with margin that also unlearns.

    A pattern :math:`z_k = y_k (x_k, \rho)` with margin :math:`p = a \cdot z_k` is
    learned or unlearned :math:`m` times at once,

    .. math:: p \le b,\; I_k < v_k I_{max} &\Rightarrow m = \min\big(\lfloor (b - p) /
        \|z_k\|^2 \rfloor + 1,\; v_k I_{max} - I_k\big),
        \\ p \ge b + \Delta b,\; I_k > 0 &\Rightarrow m = -\min\big(\lfloor (p - b -
        \Delta b) / \|z_k\|^2 \rfloor + 1,\; I_k\big),
        \\ a \leftarrow a + m z_k &, \quad I_k \leftarrow I_k + m,

    until a pass over all patterns changes nothing. Then :math:`w = a / b` minimises

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_k v_k \max(0, 1 - w \cdot z_k)

    to a relative accuracy :math:`\delta` chosen beforehand. With :math:`R` the largest
    :math:`\|z_k\|`,

    .. math:: \Delta b = 3 R^2, \quad I_{max} = \lfloor C \Delta b (2 + \delta) / \delta
        \rfloor + 1, \quad b = I_{max} / C.

    A hard margin has no :math:`I_{max}`, and :math:`b = \Delta b / \delta`; the margin
    reached is at least :math:`1 / (1 + \delta)` of the largest. Its objective is half
    the inverse square of the margin, and infinite while a pattern is on the wrong side.
    If no hyperplane separates the patterns, the run ends after `max_steps`.

    With `loss="squared_hinge"`, :math:`w` minimises
    :math:`\frac12 \|w\|^2 + C \sum_k \max(0, 1 - w \cdot z_k)^2`, by a map to a hard
    margin: every pattern has an extra feature of its own, :math:`1 / \sqrt{2C}`, which
    adds :math:`I_k / 2C` to its margin and :math:`1 / 2C` to :math:`\|z_k\|^2`. All
    patterns are then separable.

    A step presents all patterns in a new random order, and then two nested active sets
    several times. With JAX 0.12 the loop over patterns is one compiled kernel for CPUs:
    a visit takes 50 to 300 nanoseconds, less than an accelerator needs to start one.

    Cost: a visit is O(d), or O(nonzeros of the row). With a kernel it is O(1), or O(n)
    if it changes a count. Memory: a copy of `X` and about 60 bytes per example; with a
    kernel, the kernel values of all pairs.

    Args:
      X, y, penalty, weight, fit_bias, bias_scale, seed: as in every linear `init`; see
        `budgetjax.Solver`. A hard margin takes no weights, since they would not change
        it.
      kernel: a positive definite kernel in place of inner products; `X` must then be an
        array.
      hard_margin: whether no pattern may be on the wrong side of its margin.
      loss: "hinge", or "squared_hinge", which takes no weights.
      gap, threshold: the paper's :math:`\Delta b`, above :math:`R^2`, and b, above 0;
        None for those above. Of a soft margin, :math:`I_{max}` is C b, rounded to an
        integer of at least 1, and b then :math:`I_{max} / C`. An infinite gap never
        unlearns: it makes the Perceptron with margin, which is certain to reach half
        the largest margin for a large b.
      near, first_rounds, second_rounds: the paper's `c_bar`, `Nep1` and `Nep2`. The
        first active set holds patterns with a positive count or a margin of at most
        `near` b, the second those that changed; the rounds are the numbers of their
        presentations.
      tolerance: ten times delta. Counts and margins grow as it shrinks: below 1e-2 they
        need float64. `solve` sets it.

    Raises:
      ValueError: if float32 cannot hold the counts, a pattern is zero and the margin
        hard, or the gap is too small for the updates to end.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> odd, odd_test = (y % 2 * 2 - 1 for y in (data.y_train, data.y_test))
      >>> found = bj.solve(bj.mpu, data.X_train, odd, penalty=1.0, tolerance=1e-4)
      >>> bool((found.model.predict(data.X_test) == odd_test).mean() > 0.85)
      True

    References:
      Panagiotakopoulos and Tsampouka (2010), "The margin perceptron with unlearning",
      Algorithm 1, with the active sets and multiple updates of Section 4, the map of
      the introduction, and Remark 1 for an infinite gap. https://icml.cc/Conferences/2010/papers/339.pdf

    Differences from the paper: examples may have weights. From 4,096 patterns on, runs
    of 16 neighbours are shuffled, whose visits take a third less time.
    """
    problem = patterns.read_problem(X, y, weight, fit_bias, bias_scale, kernel)
    squares, dtype = problem.squares, problem.squares.dtype
    hard = _checks.flag("hard_margin", hard_margin)
    if hard and weight is not None:
        wanted = "be None, as it changes no hard margin"
        raise ArgumentError("weight", wanted, "weights")
    C = _checks.as_leaf("penalty", penalty, dtype, _checks.positive)
    squared = patterns.is_squared(loss)
    if squared and (hard or weight is not None):
        wanted = "be False and weight None with loss='squared_hinge'"
        got = "a hard margin" if hard else "weights"
        raise ArgumentError("hard_margin", wanted, got)
    accuracy = _checks.as_leaf("tolerance", tolerance, dtype, _checks.positive)
    own = _read_input("gap", gap, dtype), _read_input("threshold", threshold, dtype)
    damping, distance, b, max_count = _find_thresholds(
        squares, C, accuracy, *own, hard, squared
    )
    rounds = [
        _checks.size("first_rounds", first_rounds, at_least=0),
        _checks.size("second_rounds", second_rounds, at_least=0),
    ]
    state = State(
        algorithm=Name("mpu"),
        weights=jnp.zeros(problem.width, dtype),
        counts=jnp.zeros_like(squares),
        threshold=b,
        gap=distance,
        max_count=max_count,
        damping=damping,
        near=_checks.as_leaf("near", near, dtype, _checks.positive),
        rounds=jnp.array(rounds, jnp.int32),
        tally=jnp.zeros(2, dtype),
        visits=_counters.of(0),
        is_stationary=jnp.bool_(False),
        key=jax.random.key(_checks.seed(seed)),
        problem=problem,
    )
    _check_range(state, tolerance, hard)
    return state


def _read_input(
    name: str, value: ArrayLike | None, dtype: DTypeLike
) -> ArrayLike | None:
    """A leaf, unless it is None, or the gap infinite."""
    if value is None:
        return None
    known = _checks.concrete(value)
    if name == "gap" and known is not None and np.array_equal(known, np.inf):
        return math.inf
    return _checks.as_leaf(name, value, dtype, _checks.positive)


@functools.partial(jax.jit, static_argnums=(5, 6))
def _find_thresholds(
    squares: Vector,
    C: Scalar,
    tolerance: Scalar,
    gap: ArrayLike | None,
    threshold: ArrayLike | None,
    hard: bool,
    squared: bool,
) -> tuple[Scalar | None, Scalar, Scalar, Scalar]:
    """`damping`, `gap`, `threshold` and `max_count` of a state."""
    damping = 1 / (2 * C) if squared else None
    # A delta above 1 has no meaning.
    delta = jnp.minimum(DELTA_PER_TOLERANCE * tolerance, 0.9)
    usual = GAP * (jnp.max(squares) + (0 if damping is None else damping))
    gap = usual if gap is None else jnp.asarray(gap, usual.dtype)
    finite = jnp.where(jnp.isinf(gap), usual, gap)
    if hard or squared:
        b = finite / delta if threshold is None else jnp.asarray(threshold)
        return damping, gap, b, jnp.full_like(gap, jnp.inf)
    if threshold is None:
        max_count = jnp.floor(C * finite * (2 + delta) / delta) + 1  # Remark 4
    else:
        max_count = jnp.maximum(jnp.round(C * threshold), 1)
    return damping, gap, max_count / C, max_count


def _check_range(state: State, tolerance: ArrayLike, hard: bool) -> None:
    """Raises if the updates would not end; does nothing if a value is traced."""
    problem = state.problem
    values = (
        *(problem.squares, problem.weight, state.max_count, state.threshold),
        *(state.gap, state.damping),
    )
    if _checks.is_traced((values, tolerance)):
        return
    squares, weight, max_count, threshold, gap, damping = jax.device_get(values)
    least = np.max(squares) + (0 if damping is None else damping)
    counts = max_count * (1 if weight is None else np.max(weight))
    limits = np.finfo(squares.dtype)
    integers = 2.0 ** (limits.nmant + 1)
    if not np.any(squares):
        wrong = "squared norms must not all be 0, got 0 in all rows; scale X up"
    elif hard and not np.all(squares):
        wrong = (
            "hard_margin needs patterns that are not zero, got zeros in row "
            f"{np.argmin(squares > 0)}; fit_bias=True appends a number to every row"
        )
    elif squares.dtype == np.float32 and np.asarray(tolerance) < FLOAT32_TOLERANCE:
        wrong = (
            f"tolerance must be at least {FLOAT32_TOLERANCE:g} in float32, got "
            f"{tolerance:g}; use solve, which computes in float64, or jax.enable_x64"
        )
    elif not hard and damping is None and counts > integers:
        wrong = (
            f"counts must be at most {integers:g} to be exact in {squares.dtype}, got "
            f"{counts:g}; raise tolerance, or lower penalty, or scale X down"
        )
    elif not gap > least:
        wrong = (
            f"gap must be above {least:g}, the largest squared norm of a pattern, got "
            f"{gap:g}"
        )
    elif not threshold < np.sqrt(limits.max):
        wrong = (
            f"threshold must have a square within {squares.dtype}, got {threshold:g}; "
            "raise penalty, or scale X down"
        )
    else:
        return
    raise InputError(wrong)


def _present(
    state: State, X: Rows, order: Order, is_full: Bool[Array, ""]
) -> tuple[State, Order, Bool[Array, ""]]:
    """The state after some patterns, the next active set, and whether counts change."""
    upper, damping = state.threshold + state.gap, state.damping

    def visit(count, margin, square, limit, tally):
        if damping is not None:
            margin, square = margin + damping * count, square + damping
        # Equation (8), with the multiple updates of Section 4, within the range of the
        # count.
        limit = state.max_count if limit is None else limit
        learn = margin <= state.threshold
        beyond = jnp.where(learn, state.threshold - margin, margin - upper)
        times = jnp.floor(beyond / square) + 1
        allowed = jnp.where(learn, limit - count, count)
        times = jnp.where(beyond >= 0, jnp.minimum(times, allowed), 0)
        updated = count + jnp.where(learn, times, -times)
        # Section 4: a pass over all patterns keeps the first active set, a pass over
        # that keeps the second.
        first = (margin <= state.near * state.threshold) | (updated > 0)
        second = (updated != count) & (updated > 0)
        keep = jnp.where(is_full, first, second)
        # In another form, jax 0.10 does not compile a pass to one kernel.
        change = updated - count
        change = jnp.stack([jnp.maximum(change, 0), jnp.maximum(-change, 0)])
        return updated, keep, tally + change

    start, weight = (state.weights, state.counts), state.problem.weight
    limits = None if weight is None else state.max_count * weight
    weights, counts, kept, tally = visit_all(
        X, state.problem.squares, order, *start, visit, state.tally, limits
    )
    visits = _counters.normalized(_counters.after(state.visits, order.number))
    changed = jnp.any(tally != state.tally)
    state = state._replace(weights=weights, counts=counts, tally=tally, visits=visits)
    return state, kept, changed


def step(state: State, X: Rows, y: Vector | None) -> State:
    """Makes a pass over all patterns, in a new order, then over the active sets."""
    key, order_key = jax.random.split(state.key)
    order = shuffle(order_key, natural_order(X.shape[0]))
    state, first, changed = _present(state, X, order, jnp.bool_(True))
    state = state._replace(key=key, is_stationary=~changed)

    def present_second(carried):
        state, second, _, rounds = carried
        state, _, changed = _present(state, X, second, jnp.bool_(False))
        return state, second, changed, rounds + 1

    def present_first(carried):
        state, _, rounds = carried
        state, second, changed = _present(state, X, first, jnp.bool_(False))
        state, *_ = jax.lax.while_loop(
            lambda carried: carried[2] & (carried[3] < state.rounds[1]),
            present_second,
            (state, second, changed, jnp.int32(0)),
        )
        return state, changed, rounds + 1

    state, *_ = jax.lax.while_loop(
        lambda carried: carried[1] & (carried[2] < state.rounds[0]),
        present_first,
        (state, changed, jnp.int32(0)),
    )
    return state


@jax.jit
def warm_start(state: State, X: Rows, before: State) -> State:
    """The best multiple of another penalty's solution, rounded to integers.

    The multiple is at most the ratio of the penalties. The cost is that of two passes.
    """
    counts, weight = before.counts, state.problem.weight
    square = jnp.sum(counts * products(X, before.weights))
    height = state.threshold / before.threshold
    if state.damping is None or before.damping is None:
        ratio = state.max_count / before.max_count / height
        # A hard margin has no penalty.
        ratio = jnp.where(jnp.isinf(state.max_count), 1, ratio)
    else:
        ratio = before.damping / state.damping
        square += state.damping * jnp.sum(counts**2)
    best = jnp.sum(counts) * before.threshold / jnp.where(square > 0, square, 1)
    counts = jnp.round(height * jnp.minimum(ratio, best) * counts)
    limit = state.max_count if weight is None else state.max_count * weight
    counts = jnp.minimum(counts, limit)
    weights = jax.lax.fori_loop(
        jnp.int32(0),
        jnp.int32(X.shape[0]),
        lambda i, weights: X.add(i, get(counts, i), weights),
        state.weights,
    )
    tally = state.tally.at[0].set(jnp.sum(counts))
    return state._replace(counts=counts, weights=weights, tally=tally)


def objective(state: State, X: Rows, y: Vector | None) -> Objective:
    """`J` of the model, and the dual; O(n d)."""
    threshold, weight = state.threshold, state.problem.weight
    margins = products(X, state.weights)
    square = jnp.sum(state.counts * margins)
    learned = jnp.sum(state.counts)
    # Equation (24), over b^2.
    lacking = jnp.maximum(threshold - margins, 0)
    if (damping := state.damping) is not None:
        # The dual is that of the hard-margin form.
        whole = square + damping * jnp.sum(state.counts**2)
        return Objective(
            (square / 2 + jnp.sum(lacking**2) / (2 * damping)) / threshold**2,
            jnp.where(whole > 0, learned**2 / 2 / jnp.where(whole > 0, whole, 1), 0),
        )
    lacking = lacking if weight is None else weight * lacking
    soft = Objective(
        (square / 2 + state.max_count * jnp.sum(lacking)) / threshold**2,
        (threshold * learned - square / 2) / threshold**2,
    )
    # The multiple of `a` whose smallest margin is 1, and the best multiple of `I`.
    smallest, is_hard = jnp.min(margins), jnp.isinf(state.max_count)
    scale = jnp.where(smallest > 0, smallest, 1)
    hard = Objective(
        jnp.where(smallest > 0, square / 2 / scale**2, jnp.inf),
        jnp.where(square > 0, learned**2 / 2 / jnp.where(square > 0, square, 1), 0),
    )
    return jax.tree.map(lambda *pair: jnp.where(is_hard, *pair), hard, soft)


def model(state: State, X: Rows, y: Vector | None) -> LinearModel | KernelModel:
    """The model of `a / b`."""
    problem = state.problem
    if problem.kernel is None:
        return patterns.to_model(problem, state.weights / state.threshold)
    assert isinstance(X, KernelMatrix)
    assert y is not None
    coefficients = state.counts / state.threshold
    bias = jnp.zeros_like(state.threshold)
    if problem.constant is not None:
        bias = jnp.square(problem.constant) * jnp.sum(y * coefficients)
    dtype = X.vectors.dtype
    return KernelModel.from_coefficients(
        problem.kernel, X.vectors, y, coefficients.astype(dtype), bias.astype(dtype)
    )


mpu = Solver(
    "mpu",
    init,
    patterns.prepare,
    step,
    objective,
    model,
    lambda state: int(state.num_visits),
    lambda state: jnp.count_nonzero(state.counts),
    lambda state: state.is_stationary,
    warm_start,
    read=rows.read,
    linear=True,
    max_steps=1000,
    callback_every=1,
)
