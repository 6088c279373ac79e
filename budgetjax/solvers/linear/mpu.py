"""The Margin Perceptron with Unlearning; see `init` and `solve`."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Key

from budgetjax import checks, models
from budgetjax.kernels import Kernel
from budgetjax.models import KernelModel, LinearModel
from budgetjax.solvers.kernel.solve import Objective
from budgetjax.solvers.kernel.training import training_set
from budgetjax.solvers.linear import solving
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    finite_squares,
    given,
    kernel_patterns,
    some_patterns,
    squared_norms,
    width,
)
from budgetjax.solvers.linear.rows import DenseRows, KernelMatrix, Rows, SparseRows
from budgetjax.solvers.linear.solving import LinearAlgorithm, Solution, Solver
from budgetjax.solvers.linear.visits import (
    Order,
    everything,
    next_position,
    shuffled,
    tallied,
    visit_all,
)

# Section 5: the gap between the two thresholds, in units of R^2.
GAP = 3.0
# Section 5: what the first active set takes in, beyond the threshold, and how often the
# two active sets are presented.
NEAR = 1.01
FIRST_ROUNDS = 3
SECOND_ROUNDS = 10
# The relative accuracy of a solution, unless it is given.
ACCURACY = 1e-5
# An accuracy below this is beyond what float32 can tell margins and counts apart by.
FLOAT32_ACCURACY = 1e-3


class State(NamedTuple):
    """The state of the learner on `n` examples of `d` features.

    Attributes:
      weights: `a`: the features', the constant's if there is one, and zeros up to a
        multiple of 4. With a kernel, the margins of all patterns, shape `(n,)`.
      counts: `I_k`, shape `(n,)`.
      squares: `||z_k||^2`, shape `(n,)`.
      threshold: `b`.
      gap: of the thresholds, `db`.
      most: a count is at most this, `I_max`; infinite for a hard margin.
      constant: `rho`, or None for a model without a bias.
      tally: `t+` and `t-`, shape `(2,)`.
      num_visits: patterns presented.
      num_passes: passes over all patterns.
      settled: whether the last pass over all patterns has changed nothing.
      order: in which `step` presents the patterns.
      position: of the next in that order.
      key: of the orders.
      kernel: of the model, or None.
      gram: the inner products of the patterns under the kernel, or None.
    """

    weights: Float[Array, "*models size"]
    counts: Float[Array, "*models n"]
    squares: Float[Array, "*models n"]
    threshold: Float[Array, "*models"]
    gap: Float[Array, "*models"]
    most: Float[Array, "*models"]
    constant: Float[Array, "*models"] | None
    tally: Float[Array, "*models 2"]
    num_visits: Float[Array, "*models"]
    num_passes: Float[Array, "*models"]
    settled: Bool[Array, "*models"]
    order: Order
    position: Int32[Array, "*models"]
    key: Key[Array, "*models"]
    kernel: Kernel | None
    gram: KernelMatrix | None


def init(
    X: Any,
    y: ArrayLike,
    *,
    kernel: Kernel | None = None,
    penalty: ArrayLike = 1.0,
    accuracy: ArrayLike | None = None,
    gap: ArrayLike | None = None,
    augment: ArrayLike = 0.0,
    hard_margin: bool = False,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by a Perceptron with margin that also unlearns.

    A pattern :math:`z_k = y_k (x_k, \rho)` of margin :math:`p = a \cdot z_k` is learned
    or unlearned, :math:`m` times at once,

    .. math:: p \le b,\; I_k < I_{max} &\Rightarrow m = \min\big(\lfloor (b - p) /
        \|z_k\|^2 \rfloor + 1,\; I_{max} - I_k\big),
        \\ p \ge b + \Delta b,\; I_k > 0 &\Rightarrow m = -\min\big(\lfloor (p - b -
        \Delta b) / \|z_k\|^2 \rfloor + 1,\; I_k\big),
        \\ a \leftarrow a + m z_k &, \quad I_k \leftarrow I_k + m,

    until a pass over all patterns changes nothing. Then :math:`w = a / b` minimises

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_k \max(0, 1 - w \cdot z_k)

    to a relative accuracy :math:`\delta` that is chosen beforehand. With :math:`R` the
    largest :math:`\|z_k\|`,

    .. math:: \Delta b = 3 R^2, \quad I_{max} = \lfloor C \Delta b (2 + \delta) / \delta
        \rfloor + 1, \quad b = I_{max} / C.

    For a hard margin there is no :math:`I_{max}`, :math:`b = \Delta b / \delta`, and
    the margin reached is at least :math:`1 / (1 + \delta)` of the largest.

    In the state, :math:`a` is `weights`, :math:`I_k` `counts`, :math:`b` `threshold`,
    :math:`\Delta b` `gap`, :math:`I_{max}` `most` and :math:`\rho` `constant`.

    Cost: a visit is O(d), or O(numbers in the row), or, with a kernel, O(1), and O(n)
    if it changes something. Memory of a kernel is O(n^2).

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`; with a kernel, an array.
      y: -1 and +1, both, shape `(n,)`.
      kernel: in place of inner products, positive definite.
      penalty: `C`, positive.
      accuracy: delta, above 0 and below 1. Counts and margins grow as it gets smaller:
        below 1e-3 they need float64. None is 1e-5, and in float32 1e-3.
      gap: of the two thresholds; None is `3 R^2`, and it must be above `R^2`.
      augment: rho, the value of a constant feature, of at least 0. Its weight, times
        rho, is the bias; with 0 there is none. It is part of the norm, as all weights.
      hard_margin: whether no pattern may be on the wrong side of its margin.
      seed: of the orders of presentation, an integer.

    Returns:
      A state of the zero model, in JAX's default precision.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, a number is out of its range, float32 cannot hold the counts, or the
        margin is to be hard and a pattern is zero.

    Example:
      >>> import budgetjax as bj, jax, numpy as np
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> state = bj.mpu.init(X, y, augment=1.0)
      >>> for _ in range(300):
      ...     state = bj.mpu.step(state, X, y)
      >>> bj.mpu.model(state, X, y).predict(X).tolist()
      [-1, 1, 1]

    References:
      Panagiotakopoulos and Tsampouka (2010), "The margin perceptron with unlearning",
      Algorithm 1, with the multiple updates of Section 4.

    Differences from the paper: none.
    """
    where = "mpu.init"
    if kernel is None:
        rows, y = examples(where, X, y)
        constant = constant_feature(where, augment, y.dtype)
        gram, size = None, width(rows, constant)
        squares = squared_norms(where, rows, constant, y.dtype)
    else:
        if isinstance(X, SparseRows) or hasattr(X, "tocsr"):
            raise ValueError(
                f"{where}: X must be an array if there is a kernel, got "
                f"{type(X).__name__}"
            )
        X, y = training_set(where, kernel, X, y)
        y = y.astype(float)
        constant = constant_feature(where, augment, y.dtype)
        gram = kernel_patterns(kernel.gram(X, X), y, constant)
        squares, size = finite_squares(where, gram.squares(y.dtype)), gram.size
    threshold, gap, most = _thresholds(
        where, squares, penalty, accuracy, gap, hard_margin
    )
    seed = checks.scalar_integer(where, "seed", seed)
    key, now = jax.random.split(jax.random.key(seed))
    return State(
        weights=jnp.zeros(size, y.dtype),
        counts=jnp.zeros_like(squares),
        squares=squares,
        threshold=threshold,
        gap=gap,
        most=most,
        constant=constant,
        tally=jnp.zeros(2, y.dtype),
        num_visits=jnp.zeros((), y.dtype),
        num_passes=jnp.zeros((), y.dtype),
        settled=jnp.bool_(False),
        order=shuffled(now, everything(squares.shape[0])),
        position=jnp.int32(0),
        key=key,
        kernel=kernel,
        gram=gram,
    )


def _thresholds(
    where: str,
    squares: Float[Array, " n"],
    penalty: ArrayLike,
    accuracy: ArrayLike | None,
    gap: ArrayLike | None,
    hard_margin: bool,
) -> tuple[Float[Array, ""], Float[Array, ""], Float[Array, ""]]:
    """`b`, `db` and `I_max`, checked."""
    dtype = squares.dtype
    checks.positive(where, "penalty", penalty)
    if accuracy is None:
        accuracy = FLOAT32_ACCURACY if dtype == np.float32 else ACCURACY
    checks.fraction(where, "accuracy", accuracy)
    penalty = checks.as_leaf(where, "penalty", penalty, dtype)
    delta = checks.as_leaf(where, "accuracy", accuracy, dtype)
    hard = checks.flag(where, "hard_margin", hard_margin)
    if gap is None:
        gap = GAP * jnp.max(squares)
    else:
        checks.positive(where, "gap", gap)
        gap = checks.as_leaf(where, "gap", gap, dtype)
    if hard:
        threshold, most = gap / delta, jnp.full_like(gap, jnp.inf)
    else:
        # Remark 4.
        most = jnp.floor(penalty * gap * (2 + delta) / delta) + 1
        threshold = most / penalty
    known = (checks.concrete(of) for of in (squares, accuracy, gap, most, threshold))
    _check(where, bool(hard), *known)
    return threshold, gap, most


def _check(
    where: str,
    hard: bool,
    squares: np.ndarray | None,
    accuracy: np.ndarray | None,
    gap: np.ndarray | None,
    most: np.ndarray | None,
    threshold: np.ndarray | None,
) -> None:
    """Raises unless the updates end; what is traced is None, and let through."""
    if squares is not None and gap is not None:
        largest = np.max(squares)
        if gap == 0:
            raise ValueError(
                f"{where}: squared norms must not all be 0, got 0 in all "
                f"{len(squares)} rows; scale X up"
            )
        # Equation (7).
        if not gap > largest:
            raise ValueError(
                f"{where}: gap must be above R^2 = {largest:g}, the largest squared "
                f"norm of a pattern, or the updates never end, got {gap:g}"
            )
    if squares is not None and hard and not np.all(squares > 0):
        raise ValueError(
            f"{where}: hard_margin needs patterns that are not zero, got zeros in row "
            f"{np.argmin(squares > 0)}; augment= appends a number to every row"
        )
    if accuracy is not None and most is not None:
        # Integers up to here are exact.
        integers = 2.0 ** (np.finfo(most.dtype).nmant + 1)
        counts = 0.0 if hard else float(most)
        if most.dtype == np.float32 and accuracy < FLOAT32_ACCURACY:
            raise ValueError(
                f"{where}: accuracy must be at least {FLOAT32_ACCURACY:g} in "
                f"{most.dtype}, got {accuracy:g}; use solve, which computes in "
                "float64, or jax.enable_x64"
            )
        if counts > integers:
            raise ValueError(
                f"{where}: counts must be at most {integers:g} to be exact in "
                f"{most.dtype}, got {counts:g}; raise accuracy, or lower penalty, or "
                "scale X down"
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
) -> Float[Array, ""]:
    """The count of a pattern after it has been presented."""
    # Equation (8), with the multiple updates of Section 4: at most as many as the count
    # allows, which are none at its ends.
    learn = margin <= state.threshold
    upper = state.threshold + state.gap
    beyond = jnp.where(learn, state.threshold - margin, margin - upper)
    times = jnp.floor(beyond / square) + 1
    allowed = jnp.where(learn, state.most - count, count)
    times = jnp.where(beyond >= 0, jnp.minimum(times, allowed), 0)
    return count + jnp.where(learn, times, -times)


def step(state: State, X: Any, y: ArrayLike) -> State:
    """Presents one pattern, the next of a random order; see `init`.

    Args:
      state: of this learner.
      X: the training set of `init`, numbers or `SparseRows`; values are not checked.
      y: its labels, shape `(n,)`.

    Returns:
      The new state.
    """
    return _step(state, *given(X, y))


@jax.jit
def _step(state: State, rows: DenseRows | SparseRows, y: Float[Array, " n"]) -> State:
    i = state.order.indices[state.position]
    if state.gram is None:
        shown, at = some_patterns(rows, y, state.constant, i[None]), jnp.int32(0)
    else:
        shown, at = state.gram, i
    old = state.counts[i]
    now = _visit(state, old, shown.inner(at, state.weights), state.squares[i])
    order, position, key = next_position(state.order, state.position, state.key)
    return state._replace(
        weights=shown.add(at, now - old, state.weights),
        counts=state.counts.at[i].set(now),
        tally=tallied(state.tally, now - old),
        num_visits=state.num_visits + 1,
        num_passes=state.num_passes + (position == 0).astype(old.dtype),
        order=order,
        position=position,
        key=key,
    )


def _pass(
    state: State, shown: Rows, order: Order, everything: Bool[Array, ""]
) -> tuple[State, Order, Bool[Array, ""]]:
    """Presents some patterns; which of them the next active set is, and any change."""

    def visit(count, margin, square, tally):
        now = _visit(state, count, margin, square)
        # Section 4: of all patterns the first active set is kept, of that the second.
        first = (margin <= NEAR * state.threshold) | (now > 0)
        second = (now != count) & (now > 0)
        keep = jnp.where(everything, first, second)
        return now, keep, tallied(tally, now - count)

    weights, counts, kept, tally = visit_all(
        shown, state.squares, order, state.weights, state.counts, visit, state.tally
    )
    changed = jnp.any(tally != state.tally)
    state = state._replace(
        weights=weights,
        counts=counts,
        tally=tally,
        num_visits=state.num_visits + order.number.astype(state.num_visits.dtype),
    )
    return state, kept, changed


def _round(state: State, shown: Rows) -> State:
    """A pass over all patterns, in a new order, and those over the active sets."""
    key, now = jax.random.split(state.key)
    order = shuffled(now, everything(shown.number))
    state, first, changed = _pass(state, shown, order, jnp.bool_(True))
    state = state._replace(key=key, settled=~changed, num_passes=state.num_passes + 1)

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


def _value(state: State, margins: Float[Array, " n"]) -> Objective:
    square = jnp.sum(state.counts * margins)
    learned = jnp.sum(state.counts)
    threshold = state.threshold
    # Equation (24), over b^2.
    lacking = jnp.sum(jnp.maximum(threshold - margins, 0))
    soft = Objective(
        (square / 2 + state.most * lacking) / threshold**2,
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


def _scale(state: State) -> Float[Array, "*models"]:
    return state.threshold


SOLVER = Solver(_round, _value, _scale, lambda state: state.counts)


def objective(state: State, X: Any, y: ArrayLike) -> Objective:
    """`J` of the model, and the dual below it; O(n d).

    With a hard margin, `J` is half the squared norm of the multiple of the weights
    whose least margin is 1, infinite if there is none: half the inverse square of the
    margin.

    Args:
      state: of this learner.
      X: the training set of `init`, numbers or `SparseRows`.
      y: its labels.

    Returns:
      `primal` is to be minimised, and `dual` is below it.
    """
    if state.gram is not None:
        return _value(state, state.weights)
    return solving.objective(SOLVER, state, X, y)


def model(state: State, X: Any, y: ArrayLike) -> LinearModel | KernelModel:
    """The model of `a / b`.

    Args:
      state: of this learner.
      X: the training set of `init`.
      y: its labels.

    Raises:
      ValueError: if `X` is not finite, or has another number of features.
    """
    where = "mpu.model"
    if state.kernel is None:
        return solving.model(where, SOLVER, state, X)
    X, y = training_set(where, state.kernel, X, y)
    coefficients = (state.counts / state.threshold).astype(X.dtype)
    bias = jnp.zeros((), X.dtype)
    if state.constant is not None:
        bias = jnp.square(state.constant).astype(X.dtype) * jnp.sum(y * coefficients)
    return models.of_coefficients(state.kernel, X, y, coefficients, bias)


def solve(
    X: Any,
    y: ArrayLike,
    *,
    kernel: Kernel | None = None,
    penalty: ArrayLike = 1.0,
    accuracy: float = ACCURACY,
    gap: float | None = None,
    augment: float = 0.0,
    hard_margin: bool = False,
    seed: int = 0,
    stop: float = 1e-4,
    max_passes: int = 1000,
    progress: bool = False,
) -> Solution:
    """Trains until the objective is near enough to its optimum; see `init`.

    A round presents all patterns, in a new random order, and then two active sets, one
    within the other, several times. The gap is computed after every round. All of it is
    in float64, whatever JAX's default precision is, except that patterns stay in the
    type of `X`.

    Made for CPUs, where a visit takes some 50 to 300 nanoseconds: the loop over
    patterns is one compiled kernel. Visits follow each other, so that an accelerator,
    which needs microseconds to begin anything, is slower than one core.

    Memory: beside `X`, a copy of it and some 60 bytes an example; with a kernel, the
    kernel values of all pairs.

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`; with a kernel, an array.
      y: -1 and +1, both, shape `(n,)`.
      kernel: as for `init`.
      penalty: `C`. Without a kernel, several values, shape `(models,)`, give a model
        for each.
      accuracy: as for `init`: what a pass that changes nothing guarantees.
      gap: as for `init`.
      augment: as for `init`.
      hard_margin: as for `init`.
      seed: as for `init`.
      stop: the `delta_aft` that is enough, positive.
      max_passes: passes over all patterns, at most; then the solution is not converged.
        With a hard margin, patterns that no hyperplane separates end so.
      progress: whether to show a bar, with the gap.

    Returns:
      What has been reached. Of a hard margin, it is at least `1 / sqrt(1 + delta_aft)`
      of the largest, which is the paper's `f` (12).

    Raises:
      ValueError: as for `init`, or if squared norms overflow.
      ImportError: if `progress` needs tqdm.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("digits")
      >>> y = data.y_train % 2 * 2 - 1
      >>> solution = bj.mpu.solve(data.X_train, y, augment=1.0)
      >>> bool(solution.converged), bool(solution.delta_aft <= 1e-4)
      (True, True)
      >>> odd = data.y_test % 2 * 2 - 1
      >>> bool((solution.model.predict(data.X_test) == odd).mean() > 0.85)
      True

    References:
      Panagiotakopoulos and Tsampouka (2010), "The margin perceptron with unlearning",
      Section 4.
    """
    where = "mpu.solve"
    until = {"stop": stop, "max_passes": max_passes, "progress": progress}
    start = functools.partial(
        init, accuracy=accuracy, gap=gap, hard_margin=hard_margin, seed=seed
    )
    if kernel is None:
        state, found = solving.solve_linear(
            where,
            X,
            y,
            start,
            SOLVER,
            penalty=penalty,
            augment=augment,
            **until,
        )
    else:
        if np.shape(penalty):
            raise ValueError(
                f"{where}: penalty must be a number if there is a kernel, got shape "
                f"{np.shape(penalty)}"
            )
        with jax.enable_x64(True):
            state = start(X, y, kernel=kernel, penalty=penalty, augment=augment)
            shown = state.gram
            assert shown is not None
            # What is donated must not be given twice.
            state = state._replace(gram=None)
            state, figures = solving.solved(where, SOLVER, state, shown, **until)
            fitted = model(state, X, y)
        found = solving.solution(fitted, figures)
    learned, unlearned = np.moveaxis(np.asarray(state.tally), -1, 0)
    return found._replace(num_learned=learned, num_unlearned=unlearned)


mpu = LinearAlgorithm(init, step, objective, model, solve)
