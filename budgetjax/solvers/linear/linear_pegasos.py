"""Pegasos for the linear SVM on a training set; see `init` and `solve`."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int32, Key

from budgetjax import checks
from budgetjax.checks import Count, Flag
from budgetjax.models import LinearModel
from budgetjax.solvers.kernel.solve import Objective
from budgetjax.solvers.linear import solving
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    given,
    some_patterns,
    squared_norms,
    width,
)
from budgetjax.solvers.linear.rows import (
    DenseRows,
    Rows,
    SparseRows,
    element,
    put,
    taken,
)
from budgetjax.solvers.linear.solving import LinearAlgorithm, Solution, Solver


class State(NamedTuple):
    """The state of the learner on `n` examples of `d` features.

    Attributes:
      weights: `v`, a sum of multiples of patterns of which the weights are another
        multiple; see `scale`. The features', the constant's if there is one, and zeros
        up to a multiple of 4.
      coefficients: of the patterns in `v`, shape `(n,)`.
      scale: `s`, by which projections have shrunk it: `w_t = s v / (lambda k (t - 1))`.
      squared_norm: of `v`, kept only for projections.
      penalty: `C`.
      constant: `rho`, or None for a model without a bias.
      num_steps: blocks drawn so far, `t - 1`.
      num_visits: patterns drawn.
      num_passes: as many patterns drawn as there are, so often.
      settled: never.
      key: of the draws.
      block_size: `k`.
      projection: whether the weights are kept in their ball.
    """

    weights: Float[Array, "*models size"]
    coefficients: Float[Array, "*models n"]
    scale: Float[Array, "*models"]
    squared_norm: Float[Array, "*models"]
    penalty: Float[Array, "*models"]
    constant: Float[Array, "*models"] | None
    num_steps: Float[Array, "*models"]
    num_visits: Float[Array, "*models"]
    num_passes: Float[Array, "*models"]
    settled: Bool[Array, "*models"]
    key: Key[Array, "*models"]
    block_size: Count
    projection: Flag


def init(
    X: Any,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    block_size: int = 30,
    projection: bool = False,
    augment: ArrayLike = 0.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by stochastic subgradient descent.

    Step :math:`t` draws a block :math:`A_t` of :math:`k` patterns :math:`z_i = y_i
    (x_i, \rho)`, with replacement, and moves the weights towards those that are on the
    wrong side of their margin,

    .. math:: w_{t+1} = \Big(1 - \frac{1}{t}\Big) w_t + \frac{1}{\lambda t k} \sum_{i
        \in A_t,\; w_t \cdot z_i < 1} z_i,

    and then, if asked, into the ball of radius :math:`1 / \sqrt{\lambda}`. It minimises
    :math:`\lambda J(w)`, where

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i \max(0, 1 - w \cdot z_i), \qquad
        \lambda = \frac{1}{n C}.

    Cost: a step is O(k d), or O(numbers in the rows).

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`.
      y: -1 and +1, both, shape `(n,)`.
      penalty: `C`, positive.
      block_size: `k`.
      projection: whether to project.
      augment: rho, the value of a constant feature, of at least 0. Its weight, times
        rho, is the bias; with 0 there is none. It is part of the norm, as all weights.
      seed: of the draws, an integer.

    Returns:
      A state of the zero model, in JAX's default precision.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, or a number is out of its range.

    Example:
      >>> import budgetjax as bj, numpy as np
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> state = bj.linear_pegasos.init(X, y, augment=1.0, penalty=10.0)
      >>> for _ in range(100):
      ...     state = bj.linear_pegasos.step(state, X, y)
      >>> bj.linear_pegasos.model(state, X, y).predict(X).tolist()
      [-1, 1, 1]

    References:
      Shalev-Shwartz, Singer and Srebro (2007), "Pegasos: primal estimated sub-gradient
      solver for SVM", Figure 1.

    Differences from the paper: blocks are drawn with replacement.
    """
    where = "linear_pegasos.init"
    rows, y = examples(where, X, y)
    constant = constant_feature(where, augment, y.dtype)
    squares = squared_norms(where, rows, constant, y.dtype)
    checks.positive(where, "penalty", penalty)
    seed = checks.scalar_integer(where, "seed", seed)
    return State(
        weights=jnp.zeros(width(rows, constant), y.dtype),
        coefficients=jnp.zeros_like(squares),
        scale=jnp.ones((), y.dtype),
        squared_norm=jnp.zeros((), y.dtype),
        penalty=checks.as_leaf(where, "penalty", penalty, y.dtype),
        constant=constant,
        num_steps=jnp.zeros((), y.dtype),
        num_visits=jnp.zeros((), y.dtype),
        num_passes=jnp.zeros((), y.dtype),
        settled=jnp.bool_(False),
        key=jax.random.key(seed),
        block_size=checks.count(where, "block_size", block_size, at_least=1),
        projection=checks.flag(where, "projection", projection),
    )


class Sum(NamedTuple):
    """What a step changes: see `State`."""

    weights: Float[Array, " size"]
    coefficients: Float[Array, " n"]
    scale: Float[Array, ""]
    squared_norm: Float[Array, ""]


def _block(
    state: State,
    total: Sum,
    steps: Float[Array, ""],
    shown: Rows,
    places: Int32[Array, " places"],
    drawn: Int32[Array, " places"],
    first: Int32[Array, ""],
) -> Sum:
    """Figure 1, one iteration.

    Args:
      state: what does not change.
      total: what does.
      steps: before this one, `t - 1`.
      shown: patterns.
      places: which of these are drawn, from the place `first` on.
      drawn: which examples these are.
      first: a block begins here.
    """
    k, n = state.block_size.value, state.coefficients.shape[0]
    end = first + jnp.where(first >= 0, jnp.int32(k), jnp.int32(0))
    # w . z < 1, as s v . z < lambda k (t - 1).
    unit = steps * k / (n * state.penalty)

    # Margins are those before anything of the block is added.
    def see(j, seen):
        wrong, products = seen
        margin = shown.inner(element(places, j), total.weights)
        violates = (total.scale * margin < unit) | (steps == 0)
        violates = violates.astype(margin.dtype)
        return put(wrong, j - first, violates), products + violates * margin

    zeros = jnp.zeros(k, total.weights.dtype), jnp.zeros((), total.weights.dtype)
    wrong, before = jax.lax.fori_loop(first, end, see, zeros)

    def add(j, grown):
        place, i = element(places, j), element(drawn, j)
        multiple = element(wrong, j - first) / total.scale
        now = taken(grown.coefficients, i) + multiple
        return grown._replace(
            weights=shown.add(place, multiple, grown.weights),
            coefficients=put(grown.coefficients, i, now),
        )

    grown = jax.lax.fori_loop(first, end, add, total)
    if not state.projection:
        return grown

    # |v'|^2 - |v|^2 = (v' - v) . (v' + v).
    def see_again(j, products):
        margin = shown.inner(element(places, j), grown.weights)
        return products + element(wrong, j - first) * margin

    both = jax.lax.fori_loop(first, end, see_again, before)
    grown = grown._replace(squared_norm=total.squared_norm + both / total.scale)
    # The norm of the weights over the radius of their ball.
    norm = grown.scale * jnp.sqrt(jnp.maximum(grown.squared_norm, 0))
    ratio = norm * jnp.sqrt(n * state.penalty) / ((steps + 1) * k)
    return _unscaled(grown._replace(scale=grown.scale / jnp.maximum(ratio, 1)))


def _unscaled(total: Sum) -> Sum:
    """The same, of scale 1 where it was so small that its powers might underflow."""
    scale = total.scale
    small = scale < jnp.finfo(scale.dtype).tiny ** 0.25

    def shrunk(values):
        return jax.lax.fori_loop(
            jnp.int32(0),
            jnp.where(small, jnp.int32(values.shape[0]), jnp.int32(0)),
            lambda j, values: put(values, j, scale * element(values, j)),
            values,
        )

    return Sum(
        weights=shrunk(total.weights),
        coefficients=shrunk(total.coefficients),
        scale=jnp.where(small, 1, scale),
        squared_norm=jnp.where(small, scale * scale, 1) * total.squared_norm,
    )


def _sum(state: State) -> Sum:
    return Sum(*(getattr(state, name) for name in Sum._fields))


def _after(state: State, key: Key[Array, ""], total: Sum, steps: int) -> State:
    """The state after so many more steps have led to this."""
    visits = steps * state.block_size.value
    return state._replace(
        **total._asdict(),
        num_steps=state.num_steps + steps,
        num_visits=state.num_visits + visits,
        num_passes=state.num_passes + visits / state.coefficients.shape[0],
        key=key,
    )


def _draw(state: State, steps: int) -> tuple[Key[Array, ""], Int32[Array, " drawn"]]:
    """The next key, and the examples of so many blocks."""
    key, now = jax.random.split(state.key)
    shape, n = (steps * state.block_size.value,), state.coefficients.shape[0]
    return key, jax.random.randint(now, shape, 0, n, jnp.int32)


def step(state: State, X: Any, y: ArrayLike) -> State:
    """Draws one block; see `init`.

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
    key, drawn = _draw(state, 1)
    total = _block(
        state,
        _sum(state),
        state.num_steps,
        some_patterns(rows, y, state.constant, drawn),
        jnp.arange(drawn.shape[0], dtype=jnp.int32),
        drawn,
        jnp.int32(0),
    )
    return _after(state, key, total, 1)


def _round(state: State, shown: Rows) -> State:
    """As many steps as draw every pattern once, on average."""
    k = state.block_size.value
    steps = -(-shown.number // k)
    key, drawn = _draw(state, steps)

    def body(t, total):
        elapsed = state.num_steps + t.astype(total.scale.dtype)
        return _block(state, total, elapsed, shown, drawn, drawn, t * k)

    total = jax.lax.fori_loop(jnp.int32(0), jnp.int32(steps), body, _sum(state))
    return _after(state, key, total, steps)


def _unit(state: State) -> Float[Array, "*models"]:
    """What `v` has to be divided by to give the weights."""
    drawn = jnp.maximum(state.num_steps, 1) * state.block_size.value
    return drawn / (state.coefficients.shape[-1] * state.penalty * state.scale)


def _value(state: State, margins: Float[Array, " n"]) -> Objective:
    """Given the margins of `v`."""
    unit = _unit(state)
    margins, coefficients = margins / unit, state.coefficients / unit
    square = jnp.sum(coefficients * margins)
    lacking = jnp.sum(jnp.maximum(1 - margins, 0))
    # The best multiple of the coefficients that is in their range.
    total, largest = jnp.sum(coefficients), jnp.max(coefficients)
    tiny = jnp.finfo(margins.dtype).tiny
    best = jnp.minimum(
        total / jnp.maximum(square, tiny), state.penalty / jnp.maximum(largest, tiny)
    )
    return Objective(
        square / 2 + state.penalty * lacking, best * total - best * best * square / 2
    )


SOLVER = Solver(_round, _value, _unit, lambda state: state.coefficients)


def objective(state: State, X: Any, y: ArrayLike) -> Objective:
    """`J` of the model, and of the best multiple of it the dual; O(n d).

    Args:
      state: of this learner.
      X: the training set of `init`, numbers or `SparseRows`.
      y: its labels.

    Returns:
      `primal` is to be minimised, and `dual` is below it.
    """
    return solving.objective(SOLVER, state, X, y)


def model(state: State, X: Any, y: ArrayLike) -> LinearModel:
    """The last iterate.

    Args:
      state: of this learner.
      X: the training set of `init`.
      y: its labels; not used.

    Raises:
      ValueError: if `X` is not finite, or has another number of features.
    """
    return solving.model("linear_pegasos.model", SOLVER, state, X)


def solve(
    X: Any,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    block_size: int = 30,
    projection: bool = False,
    augment: float = 0.0,
    seed: int = 0,
    stop: float = 1e-2,
    max_passes: int = 100,
    progress: bool = False,
) -> Solution:
    """Trains until the objective is near enough to its optimum; see `init`.

    The gap is computed whenever as many patterns have been drawn as there are. It
    closes slowly, and so does the distance of the objective from its optimum: for an
    accuracy below a hundredth, `budgetjax.mpu` and `budgetjax.dcd` are the solvers. All
    of it is in float64, whatever JAX's default precision is, except that patterns stay
    in the type of `X`. Like `budgetjax.mpu.solve`, this is made for CPUs.

    Args:
      X: as for `init`.
      y: as for `init`.
      penalty: `C`. Several values, shape `(models,)`, give a model for each.
      block_size: as for `init`.
      projection: as for `init`.
      augment: as for `init`.
      seed: as for `init`.
      stop: the `delta_aft` that is enough, positive: the relative duality gap, of the
        best multiple of the coefficients.
      max_passes: times the training set is drawn, at most; then the solution is not
        converged.
      progress: whether to show a bar, with the gap.

    Returns:
      What has been reached.

    Raises:
      ValueError: as for `init`, or if the objective overflows.
      ImportError: if `progress` needs tqdm.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("digits")
      >>> y = data.y_train % 2 * 2 - 1
      >>> solution = bj.linear_pegasos.solve(data.X_train, y, augment=1.0, stop=0.5)
      >>> odd = data.y_test % 2 * 2 - 1
      >>> bool((solution.model.predict(data.X_test) == odd).mean() > 0.85)
      True

    References:
      Shalev-Shwartz, Singer and Srebro (2007), Figure 1.
    """
    start = functools.partial(
        init, block_size=block_size, projection=projection, seed=seed
    )
    _, found = solving.solve_linear(
        "linear_pegasos.solve",
        X,
        y,
        start,
        SOLVER,
        penalty=penalty,
        augment=augment,
        stop=stop,
        max_passes=max_passes,
        progress=progress,
    )
    return found


linear_pegasos = LinearAlgorithm(init, step, objective, model, solve)
