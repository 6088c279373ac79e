"""The Margin Perceptron with Unlearning."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from budgetjax import _checks, _counters, kernels
from budgetjax._counters import Words
from budgetjax._errors import ArgumentError, InputError
from budgetjax._record import leaf, static
from budgetjax.kernels import Kernel, check_kernel
from budgetjax.model import KernelModel, LinearModel
from budgetjax.solvers.linear.epochs import Order, natural_order, shuffle, visit_all
from budgetjax.solvers.linear.linear_solver import LinearSolver, LinearState
from budgetjax.solvers.linear.patterns import Patterns
from budgetjax.solvers.linear.rows import KernelMatrix, get, products
from budgetjax.solvers.solver import Objective
from budgetjax.solvers.training_set import Scalar, Vector

# Section 5: the distance of the two thresholds, in units of R^2.
GAP = 3.0
# The paper's delta in units of the tolerance: when a pass changes nothing, the
# objective is certain to be close enough.
DELTA_PER_TOLERANCE = 0.1


class MPUState(LinearState):
    """The state of the solver on `n` examples.

    Attributes:
      weights: `a`, the unnormalised `w`. With a kernel, the margins of all patterns.
      counts: `I_k`, shape `(n,)`.
      threshold: `b`.
      gap: the distance of the thresholds, `db`.
      max_count: the maximum count, `I_max`; infinite for a hard margin and the squared
        hinge.
      damping: the term that every count adds to the margin of its own pattern,
        `1 / 2C`; None unless the loss is the squared hinge.
      tally: `t+` and `t-`, shape `(2,)`.
      visits: see `num_visits`.
      is_stationary: whether the last pass over all patterns changed nothing.
    """

    counts: Vector
    threshold: Scalar
    gap: Scalar
    max_count: Scalar
    damping: Scalar | None
    tally: Float[Array, " 2"]
    visits: Words
    is_stationary: Bool[Array, ""]

    @property
    def num_visits(self) -> Any:
        """Visits so far: a NumPy int64, or a traced integer."""
        return _counters.number(self.visits)


def _check_gap(name: str, value: Any) -> None:
    known = _checks.concrete(value)
    if known is None or known.dtype.kind != "f" or not np.all(known == np.inf):
        _checks.positive(name, value)


def _check_rounds(name: str, value: Any) -> None:
    _checks.size(name, value, at_least=0)


class MPU(LinearSolver[MPUState, LinearModel | KernelModel]):
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
      penalty, fit_bias, bias_scale, seed: as of every `budgetjax.LinearSolver`.
      kernel: a positive definite kernel in place of inner products; `X` must then be an
        array.
      hard_margin: whether no pattern may be on the wrong side of its margin.
      loss: "hinge", or "squared_hinge", which takes no weights.
      gap: the paper's :math:`\Delta b`, above :math:`R^2`; None for that above. An
        infinite gap never unlearns: it makes the Perceptron with margin, which is
        certain to reach half the largest margin for a large b.
      threshold: the paper's b, above 0; None for that above. Of a soft margin,
        :math:`I_{max}` is C b, rounded to an integer of at least 1, and b then
        :math:`I_{max} / C`.
      near: the paper's `c_bar`. The first active set holds patterns with a positive
        count or a margin of at most `near` b, the second those that changed.
      first_rounds, second_rounds: the paper's `Nep1` and `Nep2`, the numbers of
        presentations of the two sets.
      tolerance: ten times delta. Counts and margins grow as it shrinks. With None,
        delta is 0.001.

    Raises:
      ValueError: if float64 cannot hold the counts, a pattern is zero and the margin
        hard, or the gap is too small for the updates to end.

    Example:
      >>> data = bj.datasets.load("digits")
      >>> odd, odd_test = (y % 2 * 2 - 1 for y in (data.y_train, data.y_test))
      >>> found = bj.solve(bj.MPU(tolerance=1e-4), data.X_train, odd)
      >>> bool((found.model.predict(data.X_test) == odd_test).mean() > 0.85)
      True

    References:
      Panagiotakopoulos and Tsampouka (2010), "The margin perceptron with unlearning",
      Algorithm 1, with the active sets and multiple updates of Section 4, the map of
      the introduction, and Remark 1 for an infinite gap. https://icml.cc/Conferences/2010/papers/339.pdf

    Differences from the paper: examples may have weights. From 4,096 patterns on, runs
    of 16 neighbours are shuffled, whose visits take a third less time.
    """

    kernel: Kernel | None = leaf(check_kernel, default=None, kw_only=True)
    hard_margin: bool = static(default=False, check=_checks.flag, kw_only=True)
    loss: str = static(
        default="hinge", check=_checks.one_of("hinge", "squared_hinge"), kw_only=True
    )
    gap: ArrayLike | None = leaf(_check_gap, default=None, kw_only=True)
    threshold: ArrayLike | None = leaf(_checks.positive, default=None, kw_only=True)
    near: ArrayLike = leaf(_checks.positive, default=1.01, kw_only=True)
    first_rounds: int = static(default=3, check=_check_rounds, kw_only=True)
    second_rounds: int = static(default=10, check=_check_rounds, kw_only=True)

    max_steps = 1000

    def check(self) -> None:
        if self.loss == "squared_hinge" and self.hard_margin:
            wanted = "be False with loss='squared_hinge'"
            raise ArgumentError("hard_margin", wanted, True)

    def bind(self, data: Any) -> "MPU":
        whole = self.hard_margin or self.loss == "squared_hinge"
        if data.weight is not None and whole:
            wanted = "be None with a hard margin, which they do not change, and with "
            raise ArgumentError("weight", wanted + "loss='squared_hinge'", "weights")
        # It alone may be infinite.
        gap = None if self.gap is None else jnp.asarray(self.gap, data.dtype)
        bound = super(MPU, self._replace(gap=None)).bind(data)._replace(gap=gap)
        if self.kernel is None or not isinstance(data.X, KernelMatrix):
            return bound
        given = self.kernel, data.num_features, data.X.vectors.dtype
        return bound._replace(kernel=kernels.as_leaves(*given))

    def is_same(self, other: Any) -> bool:
        # Thresholds follow from the tolerance.
        tolerances = np.asarray(self.tolerance), np.asarray(other.tolerance)
        return np.array_equal(*tolerances) and super().is_same(other)

    def start(self, data: Patterns) -> MPUState:
        damping, gap, threshold, max_count = _find_thresholds(self, data.squares)
        state = MPUState(
            solver=self,
            digest=data.digest,
            weights=jnp.zeros(data.width, data.dtype),
            key=jax.random.key(self.seed),
            counts=jnp.zeros_like(data.squares),
            threshold=threshold,
            gap=gap,
            max_count=max_count,
            damping=damping,
            tally=jnp.zeros(2, data.dtype),
            visits=_counters.of(0),
            is_stationary=jnp.bool_(False),
        )
        _check_range(state, data)
        return state

    def step(self, state: MPUState, data: Patterns) -> MPUState:
        """Makes a pass over all patterns, in a new order, then over the active sets."""
        key, order_key = jax.random.split(state.key)
        order = shuffle(order_key, natural_order(len(data.y)))
        state, first, changed = _present(state, data, order, jnp.bool_(True))
        state = state._replace(key=key, is_stationary=~changed)

        def present_second(carried):
            state, second, _, rounds = carried
            state, _, changed = _present(state, data, second, jnp.bool_(False))
            return state, second, changed, rounds + 1

        def present_first(carried):
            state, _, rounds = carried
            state, second, changed = _present(state, data, first, jnp.bool_(False))
            state, *_ = jax.lax.while_loop(
                lambda carried: carried[2] & (carried[3] < self.second_rounds),
                present_second,
                (state, second, changed, jnp.int32(0)),
            )
            return state, changed, rounds + 1

        state, *_ = jax.lax.while_loop(
            lambda carried: carried[1] & (carried[2] < self.first_rounds),
            present_first,
            (state, changed, jnp.int32(0)),
        )
        return state

    def objective(self, state: MPUState, data: Patterns) -> Objective:
        """`J` of the model, and the dual; O(n d)."""
        threshold, weight = state.threshold, data.weight
        margins = products(data.X, state.weights)
        square = jnp.sum(state.counts * margins)
        learned = jnp.sum(state.counts)
        # Equation (24), over b^2.
        lacking = jnp.maximum(threshold - margins, 0)
        if (damping := state.damping) is not None:
            # The dual is that of the hard-margin form.
            whole = square + damping * jnp.sum(state.counts**2)
            return Objective(
                (square / 2 + jnp.sum(lacking**2) / (2 * damping)) / threshold**2,
                jnp.where(
                    whole > 0, learned**2 / 2 / jnp.where(whole > 0, whole, 1), 0
                ),
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

    def model(self, state: MPUState, data: Patterns) -> LinearModel | KernelModel:
        """The model of `a / b`."""
        if self.kernel is None or not isinstance(data.X, KernelMatrix):
            return data.to_model(state.weights / state.threshold)
        vectors = data.X.vectors
        coefficients = state.counts / state.threshold
        bias = jnp.zeros_like(state.threshold)
        if data.constant is not None:
            bias = jnp.square(data.constant) * jnp.sum(data.y * coefficients)
        coefficients, bias = (
            part.astype(vectors.dtype) for part in (coefficients, bias)
        )
        return KernelModel.from_coefficients(
            self.kernel, vectors, data.y, coefficients, bias
        )

    def warm_start(self, data: Patterns, before: MPUState) -> MPUState:
        """The best multiple of another penalty's solution, rounded to integers."""
        return _warm_start(self.start(data), data, before)

    def num_vectors(self, state: MPUState) -> Array:
        return jnp.count_nonzero(state.counts)

    def work(self, state: MPUState) -> int:
        return int(state.num_visits)

    def is_stationary(self, state: MPUState) -> Bool[Array, ""]:
        return state.is_stationary


@jax.jit
def _find_thresholds(
    solver: MPU, squares: Vector
) -> tuple[Scalar | None, Scalar, Scalar, Scalar]:
    """`damping`, `gap`, `threshold` and `max_count` of a state."""
    C = jnp.asarray(solver.penalty)
    gap, threshold = (
        None if one is None else jnp.asarray(one)
        for one in (solver.gap, solver.threshold)
    )
    squared = solver.loss == "squared_hinge"
    damping = 1 / (2 * C) if squared else None
    tolerance = 1e-2 if solver.tolerance is None else solver.tolerance
    # A delta above 1 has no meaning.
    delta = jnp.minimum(DELTA_PER_TOLERANCE * tolerance, 0.9)
    usual = GAP * (jnp.max(squares) + (0 if damping is None else damping))
    gap = usual if gap is None else gap
    finite = jnp.where(jnp.isinf(gap), usual, gap)
    if solver.hard_margin or squared:
        b = finite / delta if threshold is None else threshold
        return damping, gap, b, jnp.full_like(gap, jnp.inf)
    if threshold is None:
        max_count = jnp.floor(C * finite * (2 + delta) / delta) + 1  # Remark 4
    else:
        max_count = jnp.maximum(jnp.round(C * threshold), 1)
    return damping, gap, max_count / C, max_count


def _check_range(state: MPUState, data: Patterns) -> None:
    """Raises if the updates would not end; does nothing if a value is traced."""
    values = (
        *(data.squares, data.weight, state.max_count, state.threshold),
        *(state.gap, state.damping),
    )
    if _checks.is_traced(values):
        return
    squares, weight, max_count, threshold, gap, damping = jax.device_get(values)
    hard = state.solver.hard_margin
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
    state: MPUState, data: Patterns, order: Order, is_full: Bool[Array, ""]
) -> tuple[MPUState, Order, Bool[Array, ""]]:
    """The state after some patterns, the next active set, and whether counts change."""
    near = state.solver.near
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
        first = (margin <= near * state.threshold) | (updated > 0)
        second = (updated != count) & (updated > 0)
        keep = jnp.where(is_full, first, second)
        # In another form, jax 0.10 does not compile a pass to one kernel.
        change = updated - count
        change = jnp.stack([jnp.maximum(change, 0), jnp.maximum(-change, 0)])
        return updated, keep, tally + change

    start, weight = (state.weights, state.counts), data.weight
    limits = None if weight is None else state.max_count * weight
    weights, counts, kept, tally = visit_all(
        data.X, data.squares, order, *start, visit, state.tally, limits
    )
    visits = _counters.normalized(_counters.after(state.visits, order.number))
    changed = jnp.any(tally != state.tally)
    state = state._replace(weights=weights, counts=counts, tally=tally, visits=visits)
    return state, kept, changed


@jax.jit
def _warm_start(state: MPUState, data: Patterns, before: MPUState) -> MPUState:
    """The best multiple of another penalty's solution, rounded to integers.

    The multiple is at most the ratio of the penalties. The cost is that of two passes.
    """
    counts, weight, X = before.counts, data.weight, data.X
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
