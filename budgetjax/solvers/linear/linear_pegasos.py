"""Pegasos for the linear SVM on a training set; see `init`."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int32, Integer, Key

from budgetjax import checks
from budgetjax.checks import Name, Static
from budgetjax.models import LinearModel
from budgetjax.solvers import training_set
from budgetjax.solvers.linear.patterns import (
    constant_feature,
    examples,
    model_of,
    prepare,
    squared_norms,
    width,
)
from budgetjax.solvers.linear.rows import Rows, element, products, put, taken
from budgetjax.solvers.solver import Objective, Solver


class State(NamedTuple):
    """The state of the learner on `n` examples of `d` features.

    Attributes:
      algorithm: name of the solver.
      weights: `lambda k (t - 1)` times `w_t`, a sum of patterns: the features', the
        constant's if there is one, and zeros up to a multiple of 4.
      coefficients: how often each pattern is in that sum, shape `(n,)`.
      squares: `||z_i||^2`, shape `(n,)`.
      penalty: `C`.
      weight: `v`, shape `(n,)`, or None.
      constant: `rho`, or None for a model without a bias.
      num_blocks: blocks drawn so far, `t - 1`.
      key: PRNG key of the draws.
      digest: identifies `y`.
      num_features: `d`; not a leaf.
      batch_size: `k`; not a leaf.
    """

    algorithm: Name
    weights: Float[Array, " size"]
    coefficients: Float[Array, " n"]
    squares: Float[Array, " n"]
    penalty: Float[Array, ""]
    weight: Float[Array, " n"] | None
    constant: Float[Array, ""] | None
    num_blocks: Float[Array, ""]
    key: Key[Array, ""]
    digest: Integer[Array, ""]
    num_features: Static
    batch_size: Static


def init(
    X: Any,
    y: ArrayLike,
    *,
    penalty: ArrayLike = 1.0,
    weight: ArrayLike | None = None,
    batch_size: int = 30,
    fit_bias: bool = True,
    bias_scale: ArrayLike = 1.0,
    seed: ArrayLike = 0,
) -> State:
    r"""The linear SVM by stochastic subgradient descent.

    Block :math:`t` has :math:`k` patterns :math:`z_i = y_i (x_i, \rho)`, drawn with
    replacement into :math:`A_t`, and moves the weights towards those that are on the
    wrong side of their margin,

    .. math:: w_{t+1} = \Big(1 - \frac{1}{t}\Big) w_t + \frac{1}{\lambda t k} \sum_{i
        \in A_t,\; w_t \cdot z_i < 1} z_i, \qquad \lambda = \frac{1}{n C}.

    It minimises :math:`\lambda J(w)`, where

    .. math:: J(w) = \frac{1}{2} \|w\|^2 + C \sum_i v_i \max(0, 1 - w \cdot z_i).

    With weights, patterns are as likely as their weight is large, and :math:`n` is the
    sum of the weights. A step draws as many patterns as there are, filled up to whole
    blocks. The gap closes slowly, and so does the distance of the objective from its
    optimum: for an accuracy below a hundredth, `budgetjax.mpu` and `budgetjax.dcd` are
    the solvers. Like those, this is made for CPUs.

    Cost: a block is O(k d), or O(numbers in the rows).

    Args:
      X: the training set, shape `(n, d)`: an array, a matrix of `scipy.sparse` or
        `budgetjax.sparse_rows`. Patterns stay in its type.
      y: labels, -1 and +1, both, shape `(n,)`.
      penalty: C, positive.
      weight: weight of each example, above 0, shape `(n,)`; 2 counts it twice.
      batch_size: k.
      fit_bias: whether to append the constant feature rho, whose weight, times rho, is
        the bias. It is part of the norm, as all weights.
      bias_scale: rho, positive.
      seed: integer seed of the draws.

    Returns:
      A state of the zero model, in JAX's default precision; `solve` has float64.

    Raises:
      ValueError: if the training set is not of two classes, finite and of fitting
        shapes, or a number is out of its range.

    Example:
      >>> import budgetjax as bj
      >>> from budgetjax.datasets import load
      >>> data = load("digits")
      >>> odd, odd_test = (y % 2 * 2 - 1 for y in (data.y_train, data.y_test))
      >>> found = bj.solve(bj.linear_pegasos, data.X_train, odd, tolerance=0.5)
      >>> bool((found.model.predict(data.X_test) == odd_test).mean() > 0.85)
      True

    References:
      Shalev-Shwartz, Singer and Srebro (2007), "Pegasos: primal estimated sub-gradient
      solver for SVM", Figure 1. https://doi.org/10.1145/1273496.1273598

    Differences from the paper: blocks are drawn with replacement, and the weights are
    not projected into their ball, which by the paper's later version is not needed
    (https://doi.org/10.1007/s10107-010-0420-4, Section 2).
    """
    where = "linear_pegasos.init"
    rows, y = examples(where, X, y)
    constant = constant_feature(where, fit_bias, bias_scale, y.dtype)
    squares = squared_norms(where, rows, constant, y.dtype)
    checks.positive(where, "penalty", penalty)
    return State(
        algorithm=checks.algorithm_of(where),
        weights=jnp.zeros(width(rows, constant), y.dtype),
        coefficients=jnp.zeros_like(squares),
        squares=squares,
        penalty=checks.as_leaf(where, "penalty", penalty, y.dtype),
        weight=training_set.weights(where, weight, y),
        constant=constant,
        num_blocks=jnp.zeros((), y.dtype),
        key=jax.random.key(checks.scalar_integer(where, "seed", seed)),
        digest=training_set.digest(y),
        num_features=Static(rows.size),
        batch_size=Static(checks.size(where, "batch_size", batch_size)),
    )


def _block(
    unit: Float[Array, ""],
    weights: Float[Array, " size"],
    coefficients: Float[Array, " n"],
    X: Rows,
    drawn: Int32[Array, " drawn"],
    *,
    first: Int32[Array, ""],
    k: int,
) -> tuple[Float[Array, " size"], Float[Array, " n"]]:
    """Figure 1, one iteration, with the patterns `drawn[first:first + k]`.

    `unit` is what `weights` are divided by to give `w_t`, 0 at the first block.
    """
    end = first + jnp.where(first >= 0, jnp.int32(k), jnp.int32(0))

    # Margins are those before anything of the block is added.
    def see(j, wrong):
        margin = X.inner(element(drawn, j), weights)
        violates = (margin < unit) | (unit == 0)
        return put(wrong, j - first, violates.astype(margin.dtype))

    wrong = jax.lax.fori_loop(first, end, see, jnp.zeros(k, weights.dtype))

    def add(j, grown):
        weights, coefficients = grown
        i, multiple = element(drawn, j), element(wrong, j - first)
        now = taken(coefficients, i) + multiple
        return X.add(i, multiple, weights), put(coefficients, i, now)

    return jax.lax.fori_loop(first, end, add, (weights, coefficients))


def _draw(state: State) -> tuple[Key[Array, ""], Int32[Array, " drawn"]]:
    """The next key, and the patterns of the blocks of a step."""
    key, now = jax.random.split(state.key)
    n, k = state.coefficients.shape[0], state.batch_size.value
    return key, training_set.drawn(now, (-(-n // k) * k,), n, state.weight)


def step(state: State, X: Rows, y: Float[Array, " n"] | None) -> State:
    """As many blocks as draw every pattern once, on average.

    Args:
      state: of this solver.
      X: patterns; see `prepare` of `Solver`.
      y: labels, which are in the patterns; not used.
    """
    k = state.batch_size.value
    key, drawn = _draw(state)
    blocks = drawn.shape[0] // k
    per_block = _decay(state) * k

    def body(t, carry):
        weights, coefficients = carry
        unit = per_block * (state.num_blocks + t.astype(per_block.dtype))
        first = (t * k).astype(jnp.int32)
        return _block(unit, weights, coefficients, X, drawn, first=first, k=k)

    weights, coefficients = jax.lax.fori_loop(
        jnp.int32(0), jnp.int32(blocks), body, (state.weights, state.coefficients)
    )
    return state._replace(
        weights=weights,
        coefficients=coefficients,
        num_blocks=state.num_blocks + blocks,
        key=key,
    )


def _decay(state: State) -> Float[Array, ""]:
    """`lambda`."""
    total = training_set.total(state.coefficients, state.weight)
    return 1 / (state.penalty * total)


def _unit(state: State) -> Float[Array, ""]:
    """What the sum has to be divided by to give the weights."""
    blocks = jnp.maximum(state.num_blocks, 1)
    return _decay(state) * state.batch_size.value * blocks


def objective(state: State, X: Rows, y: Float[Array, " n"] | None) -> Objective:
    """`J` of the model, and the dual of its best multiple; O(n d)."""
    unit = _unit(state)
    margins, coefficients = products(X, state.weights) / unit, state.coefficients / unit
    share = 1 if state.weight is None else state.weight
    square = jnp.sum(coefficients * margins)
    lacking = jnp.sum(share * jnp.maximum(1 - margins, 0))
    # The best multiple of the coefficients that is in their range.
    total = jnp.sum(coefficients)
    largest = jnp.max(coefficients / (state.penalty * share))
    tiny = jnp.finfo(margins.dtype).tiny
    best = jnp.minimum(
        total / jnp.maximum(square, tiny), 1 / jnp.maximum(largest, tiny)
    )
    return Objective(
        square / 2 + state.penalty * lacking, best * total - best * best * square / 2
    )


def model(state: State, X: Rows, y: Float[Array, " n"] | None) -> LinearModel:
    """The last iterate."""
    return model_of(state, _unit(state))


linear_pegasos = Solver(
    "linear_pegasos",
    init,
    prepare,
    step,
    objective,
    model,
    lambda state: int(state.num_blocks) * state.batch_size.value,
    linear=True,
    max_steps=100,
    callback_every=1,
)
