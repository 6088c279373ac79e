"""The Margin Perceptron with Unlearning; see `init`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer, Key

from budgetjax import checks, models
from budgetjax.checks import Name, Static
from budgetjax.kernels import Kernel
from budgetjax.models import KernelModel, LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.passes import Order, everything, shuffled, visit_all
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    finite_squares,
    model_of,
    prepare,
    squared_norms,
    width,
)
from budgetjax.solvers.linear.rows import (
    LANES,
    KernelMatrix,
    Rows,
    SparseRows,
    products,
)
from budgetjax.solvers.solver import Objective, Solver

# Section 5: the gap between the two thresholds, in units of R^2.
GAP = 3.0
# Section 5: what the first active set takes in, beyond the threshold, and how often the
# two active sets are presented.
NEAR = 1.01
FIRST_ROUNDS = 3
SECOND_ROUNDS = 10
# The paper's delta, as a part of the tolerance: when a pass changes nothing, the
# objective is surely near enough.
PART = 0.1
# The tolerance, unless it is given, and the least in float32, which cannot tell margins
# and counts apart beyond it.
TOLERANCE = 1e-4
FLOAT32_TOLERANCE = 1e-2


class State(NamedTuple):
    """The state of the learner on `n` examples of `d` features.

    Attributes:
      algorithm: name of the solver.
      weights: `a`: the features', the constant's if there is one, and zeros up to a
        multiple of 4. With a kernel, the margins of all patterns, and such zeros.
      counts: `I_k`, shape `(n,)`.
      squares: `||z_k||^2`, shape `(n,)`.
      threshold: `b`.
      gap: distance of the thresholds, `db`.
      most: maximum count, `I_max`; infinite for a hard margin.
      weight: `v`, shape `(n,)`, or None.
      constant: `rho`, or None for a model without a bias.
      tally: `t+` and `t-`, shape `(2,)`.
      num_visits: patterns presented.
      settled: whether the last pass over all patterns has changed nothing.
      key: PRNG key of the orders.
      digest: identifies `y`.
      kernel: kernel of the model, or None.
      num_features: `d`; not a leaf.
    """

    algorithm: Name
    weights: Float[Array, " size"]
    counts: Float[Array, " n"]
    squares: Float[Array, " n"]
    threshold: Float[Array, ""]
    gap: Float[Array, ""]
    most: Float[Array, ""]
    weight: Float[Array, " n"] | None
    constant: Float[Array, ""] | None
    tally: Float[Array, " 2"]
    num_visits: Float[Array, ""]
    settled: Bool[Array, ""]
    key: Key[Array, ""]
    digest: Integer[Array, ""]
    kernel: Kernel | None
    num_features: Static


def init(
    X: Any,
    y: ArrayLike,
    *,
    kernel: Kernel | None = None,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    fit_bias: bool = True,
    bias_scale: ArrayLike = 1.0,
    hard_margin: bool = False,
    tolerance: ArrayLike | None = None,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by a Perceptron with margin that also unlearns.

    A pattern :math:`z_k = y_k (x_k, \rho)` of margin :math:`p = a \cdot z_k` is learned
    or unlearned, :math:`m` times at once,

    .. math:: p \le b,\; I_k < v_k I_{max} &\Rightarrow m = \min\big(\lfloor (b - p) /
        \|z_k\|^2 \rfloor + 1,\; v_k I_{max} - I_k\big),
        \\ p \ge b + \Delta b,\; I_k > 0 &\Rightarrow m = -\min\big(\lfloor (p - b -
        \Delta b) / \|z_k\|^2 \rfloor + 1,\; I_k\big),
        \\ a \leftarrow a + m z_k &, \quad I_k \leftarrow I_k + m,

    until a pass over all patterns changes nothing. Then :math:`w = a / b` minimises

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_k v_k \max(0, 1 - w \cdot z_k)

    to a relative accuracy :math:`\delta` that is chosen beforehand. With :math:`R` the
    largest :math:`\|z_k\|`,

    .. math:: \Delta b = 3 R^2, \quad I_{max} = \lfloor C \Delta b (2 + \delta) / \delta
        \rfloor + 1, \quad b = I_{max} / C.

    For a hard margin there is no :math:`I_{max}`, :math:`b = \Delta b / \delta`, and
    the margin reached is at least :math:`1 / (1 + \delta)` of the largest. The
    objective is then half the squared norm of the multiple of the weights whose least
    margin is 1, infinite if there is none: half the inverse square of the margin.
    Patterns that no hyperplane separates use up `max_steps`.

    In the state, :math:`a` is `weights`, :math:`I_k` `counts`, :math:`b` `threshold`,
    :math:`\Delta b` `gap`, :math:`I_{max}` `most`, :math:`v_k` `weight` and
    :math:`\rho` `constant`.

    A step presents all patterns, in a new random order, and then two active sets, one
    within the other, several times. Made for CPUs, where a visit takes some 50 to 300
    nanoseconds: the loop over patterns is one compiled kernel. Visits follow each
    other, so that an accelerator, which needs microseconds to begin anything, is slower
    than one core.

    Cost: a visit is O(d), or O(numbers in the row), or, with a kernel, O(1), and O(n)
    if it changes something. Memory: beside `X`, a copy of it and some 60 bytes per
    example; with a kernel, the kernel values of all pairs.

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`; with a kernel, an array. Patterns stay in its type.
      y: labels, -1 and +1, both, shape `(n,)`.
      kernel: in place of inner products, positive definite.
      penalty: C, positive.
      weight: weight of each example, above 0, shape `(n,)`; 2 counts it twice. None for
        a hard margin, which it would not change.
      fit_bias: whether to append the constant feature rho, whose weight, times rho, is
        the bias. It is part of the norm, as all weights.
      bias_scale: rho, positive.
      hard_margin: whether no pattern may be on the wrong side of its margin.
      tolerance: ten times delta. Counts and margins grow as it gets smaller: below 1e-2
        they need float64. None is 1e-4, and in float32 1e-2. `solve` passes its own.
      seed: integer seed of the orders of presentation.

    Returns:
      A state of the zero model, in JAX's default precision; `solve` has float64.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, a number is out of its range, float32 cannot hold the counts, or the
        margin is to be hard and a pattern is zero.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("digits")
      >>> odd, odd_test = (y % 2 * 2 - 1 for y in (data.y_train, data.y_test))
      >>> found = bj.solve(bj.mpu, data.X_train, odd, penalty=1.0, tolerance=1e-4)
      >>> found.converged, bool(found.history.gap[-1] <= 1e-4)
      (True, True)
      >>> bool((found.model.predict(data.X_test) == odd_test).mean() > 0.85)
      True

    References:
      Panagiotakopoulos and Tsampouka (2010), "The margin perceptron with unlearning",
      Algorithm 1, with the active sets and multiple updates of Section 4.
      https://mlanthology.org/icml/2010/panagiotakopoulos2010icml-margin

    Differences from the paper: none without weights, which it does not have.
    """
    where = "mpu.init"
    if kernel is None:
        rows, y = examples(where, X, y)
        constant = constant_feature(where, fit_bias, bias_scale, y.dtype)
        size, num_features = width(rows, constant), rows.size
        squares = squared_norms(where, rows, constant, y.dtype)
    else:
        if isinstance(X, SparseRows) or hasattr(X, "tocsr"):
            raise ValueError(
                f"{where}: X must be an array if there is a kernel, got "
                f"{type(X).__name__}"
            )
        X, y = training_set.training_set(where, kernel, X, y)
        y = y.astype(float)
        constant = constant_feature(where, fit_bias, bias_scale, y.dtype)
        size, num_features = -(-X.shape[0] // LANES) * LANES, X.shape[1]
        squares = kernel.diag(X).astype(y.dtype)
        squares = squares if constant is None else squares + jnp.square(constant)
        squares = finite_squares(where, squares)
    weight = training_set.weights(where, weight, y)
    if weight is not None and hard_margin:
        raise ValueError(f"{where}: weight must be None, as it changes no hard margin")
    threshold, gap, most = _thresholds(
        where, squares, weight, penalty, tolerance, hard_margin
    )
    return State(
        algorithm=checks.algorithm_of(where),
        weights=jnp.zeros(size, y.dtype),
        counts=jnp.zeros_like(squares),
        squares=squares,
        threshold=threshold,
        gap=gap,
        most=most,
        weight=weight,
        constant=constant,
        tally=jnp.zeros(2, y.dtype),
        num_visits=jnp.zeros((), y.dtype),
        settled=jnp.bool_(False),
        key=jax.random.key(checks.scalar_integer(where, "seed", seed)),
        digest=training_set.digest(y),
        kernel=kernel,
        num_features=Static(num_features),
    )


def _thresholds(
    where: str,
    squares: Float[Array, " n"],
    weight: Float[Array, " n"] | None,
    penalty: ArrayLike,
    tolerance: ArrayLike | None,
    hard_margin: bool,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """`b`, `db` and `I_max`, checked."""
    dtype = squares.dtype
    checks.positive(where, "penalty", penalty)
    least = FLOAT32_TOLERANCE if dtype == np.float32 else 0
    if tolerance is None:
        tolerance = max(TOLERANCE, least)
    checks.positive(where, "tolerance", tolerance)
    penalty = checks.as_leaf(where, "penalty", penalty, dtype)
    # Above 1 the accuracy means nothing.
    delta = jnp.minimum(
        PART * checks.as_leaf(where, "tolerance", tolerance, dtype), 0.9
    )
    hard = checks.flag(where, "hard_margin", hard_margin)
    gap = GAP * jnp.max(squares)
    if hard:
        threshold, most = gap / delta, jnp.full_like(gap, jnp.inf)
    else:
        # Remark 4.
        most = jnp.floor(penalty * gap * (2 + delta) / delta) + 1
        threshold = most / penalty
    known = checks.concrete(tolerance)
    if known is not None and known < least:
        raise ValueError(
            f"{where}: tolerance must be at least {least:g} in {dtype}, got {known:g}; "
            "use solve, which computes in float64, or jax.enable_x64"
        )
    counts = most if weight is None else most * jnp.max(weight)
    numbers = (checks.concrete(of) for of in (squares, gap, counts, threshold))
    _check(where, bool(hard), *numbers)
    return threshold, gap, most


def _check(
    where: str,
    hard: bool,
    squares: np.ndarray | None,
    gap: np.ndarray | None,
    counts: np.ndarray | None,
    threshold: np.ndarray | None,
) -> None:
    """Raises unless the updates end; what is traced is None, and let through."""
    if gap is not None and gap == 0:
        raise ValueError(
            f"{where}: squared norms must not all be 0, got 0 in all rows; scale X up"
        )
    if squares is not None and hard and not np.all(squares > 0):
        raise ValueError(
            f"{where}: hard_margin needs patterns that are not zero, got zeros in row "
            f"{np.argmin(squares > 0)}; fit_bias=True appends a number to every row"
        )
    if counts is not None and not hard:
        # Integers up to here are exact.
        integers = 2.0 ** (np.finfo(counts.dtype).nmant + 1)
        if counts > integers:
            raise ValueError(
                f"{where}: counts must be at most {integers:g} to be exact in "
                f"{counts.dtype}, got {counts:g}; raise tolerance, or lower penalty, "
                "or scale X down"
            )
    if threshold is not None and not threshold < np.sqrt(np.finfo(threshold.dtype).max):
        raise ValueError(
            f"{where}: threshold must have a square within {threshold.dtype}, got "
            f"{threshold:g}; raise penalty, or scale X down"
        )


def _visit(
    state: State,
    count: Float[Array, ""],
    margin: Float[Array, ""],
    square: Float[Array, ""],
    most: Float[Array, ""],
) -> Float[Array, ""]:
    """The count of a pattern after it has been presented."""
    # Equation (8), with the multiple updates of Section 4: at most as many as the count
    # allows, which are none at its ends.
    learn = margin <= state.threshold
    upper = state.threshold + state.gap
    beyond = jnp.where(learn, state.threshold - margin, margin - upper)
    times = jnp.floor(beyond / square) + 1
    allowed = jnp.where(learn, most - count, count)
    times = jnp.where(beyond >= 0, jnp.minimum(times, allowed), 0)
    return count + jnp.where(learn, times, -times)


def _pass(
    state: State, shown: Rows, order: Order, everything: Bool[Array, ""]
) -> tuple[State, Order, Bool[Array, ""]]:
    """Presents some patterns; which of them the next active set is, and any change."""

    def visit(count, margin, square, own, tally):
        now = _visit(state, count, margin, square, state.most if own is None else own)
        # Section 4: of all patterns the first active set is kept, of that the second.
        first = (margin <= NEAR * state.threshold) | (now > 0)
        second = (now != count) & (now > 0)
        keep = jnp.where(everything, first, second)
        # Written otherwise, jax 0.10 does not compile a pass to one kernel.
        change = now - count
        change = jnp.stack([jnp.maximum(change, 0), jnp.maximum(-change, 0)])
        return now, keep, tally + change

    weights, counts, kept, tally = visit_all(
        shown,
        state.squares,
        order,
        state.weights,
        state.counts,
        visit,
        state.tally,
        None if state.weight is None else state.most * state.weight,
    )
    changed = jnp.any(tally != state.tally)
    state = state._replace(
        weights=weights,
        counts=counts,
        tally=tally,
        num_visits=state.num_visits + order.number.astype(state.num_visits.dtype),
    )
    return state, kept, changed


def step(state: State, X: Rows, y: Float[Array, " n"] | None) -> State:
    """A pass over all patterns, in a new order, and those over the active sets.

    Args:
      state: of this solver.
      X: patterns; see `prepare` of `Solver`.
      y: labels, which are in the patterns; not used.
    """
    shown = X
    key, now = jax.random.split(state.key)
    order = shuffled(now, everything(shown.number))
    state, first, changed = _pass(state, shown, order, jnp.bool_(True))
    state = state._replace(key=key, settled=~changed)

    def present_second(carried):
        state, second, _, rounds = carried
        state, _, changed = _pass(state, shown, second, jnp.bool_(False))
        return state, second, changed, rounds + 1

    def present_first(carried):
        state, _, rounds = carried
        state, second, changed = _pass(state, shown, first, jnp.bool_(False))
        state, *_ = jax.lax.while_loop(
            lambda carried: carried[2] & (carried[3] < SECOND_ROUNDS),
            present_second,
            (state, second, changed, jnp.int32(0)),
        )
        return state, changed, rounds + 1

    state, *_ = jax.lax.while_loop(
        lambda carried: carried[1] & (carried[2] < FIRST_ROUNDS),
        present_first,
        (state, changed, jnp.int32(0)),
    )
    return state


def objective(state: State, X: Rows, y: Float[Array, " n"] | None) -> Objective:
    """`J` of the model, and the dual below it; O(n d)."""
    margins = products(X, state.weights)
    square = jnp.sum(state.counts * margins)
    learned = jnp.sum(state.counts)
    threshold = state.threshold
    # Equation (24), over b^2.
    lacking = jnp.maximum(threshold - margins, 0)
    lacking = lacking if state.weight is None else state.weight * lacking
    soft = Objective(
        (square / 2 + state.most * jnp.sum(lacking)) / threshold**2,
        (threshold * learned - square / 2) / threshold**2,
    )
    # Of the multiple of `a` whose least margin is 1, and of the best multiple of `I`.
    least = jnp.min(margins)
    parted = least > 0
    hard = Objective(
        jnp.where(parted, square / 2 / jnp.where(parted, least, 1) ** 2, jnp.inf),
        jnp.where(square > 0, learned**2 / 2 / jnp.where(square > 0, square, 1), 0),
    )
    return jax.tree.map(lambda *of: jnp.where(jnp.isinf(state.most), *of), hard, soft)


def model(
    state: State, X: Rows, y: Float[Array, " n"] | None
) -> LinearModel | KernelModel:
    """The model of `a / b`."""
    if state.kernel is None:
        return model_of(state, state.threshold)
    assert isinstance(X, KernelMatrix)
    assert y is not None
    coefficients = state.counts / state.threshold
    bias = jnp.zeros_like(state.threshold)
    if state.constant is not None:
        bias = jnp.square(state.constant) * jnp.sum(y * coefficients)
    dtype = X.vectors.dtype
    return models.of_coefficients(
        state.kernel, X.vectors, y, coefficients.astype(dtype), bias.astype(dtype)
    )


mpu = Solver(
    "mpu",
    init,
    prepare,
    step,
    objective,
    model,
    lambda state: int(state.num_visits),
    lambda state: state.settled,
    linear=True,
    max_steps=1000,
    callback_every=1,
)
