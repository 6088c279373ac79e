"""The Stochastic Batch Perceptron."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Integer, Key

from budgetjax import _checks
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import leaf, static
from budgetjax.model import KernelModel
from budgetjax.solvers import row_cache, training_set
from budgetjax.solvers.kernel import water_level
from budgetjax.solvers.kernel.kernel_solver import KernelSolver, KernelState
from budgetjax.solvers.row_cache import KernelRows
from budgetjax.solvers.solver import Objective
from budgetjax.solvers.training_set import Scalar, TrainingSet, Vector

# Examples per group; a draw picks a group first.
GROUP = 128
# The height above the level, in rounding units, that still counts as under water.
WET = 4
# The tolerance of the bias in a step, relative to the largest change of a response.
BIAS_TOLERANCE = 1e-2


class SBPState(KernelState):
    """The state of the Stochastic Batch Perceptron.

    Attributes:
      first_rate: eta_0.
      squared_norm: `||w||^2` of the iterate, at most 1.
      level: gamma for the current responses.
      bias: b for the current responses.
      mean_coefficients: the average of the coefficients after each update, shape
        `(n,)`.
      mean_responses: the same average of the responses, shape `(n,)`.
    """

    first_rate: Scalar
    squared_norm: Scalar
    level: Scalar
    bias: Scalar
    mean_coefficients: Vector
    mean_responses: Vector


class SBP(KernelSolver[SBPState]):
    r"""The kernel SVM with the largest margin after some slack, by stochastic ascent.

    Over all :math:`\|w\| \le 1` it maximises the water level :math:`\gamma(c, n \nu)`
    of the responses :math:`c_i = y_i \langle w, \Phi(x_i) \rangle`, where
    :math:`\sum_i \max(0, \gamma - c_i) = n \nu`. This is the smallest margin after a
    mean slack of :math:`\nu` is given to the examples that need it most. An update
    draws one of the examples under water uniformly, sets

    .. math:: \alpha_i \leftarrow \alpha_i + \eta_t, \quad \eta_t = \eta_0 / \sqrt{t},
        \qquad c_j \leftarrow c_j + \eta_t \, y_i y_j k(x_i, x_j),

    and shrinks both so that :math:`\|w\| \le 1`. The model is the average of the
    iterates divided by its own level,
    :math:`f(x) = \sum_i y_i \bar\alpha_i k(x_i, x) / \gamma(\bar c, n \nu)`. Every
    solution of an SVM is the optimum for some slack. With weights,
    :math:`\sum_i v_i \max(0, \gamma - c_i) = n \nu`, where :math:`n` is their sum, and
    examples under water are drawn in proportion to them.

    A step makes up to `batch_size` updates, each with its own level. One matrix product
    first computes the kernel rows of some random examples under water whose rows are
    not cached. If an update draws an example without a row, one of these that is still
    under water takes its place; if none is left, the step ends.

    Cost: a step computes up to `batch_size` kernel rows, O(n d) each, and makes up to
    as many updates, O(n) each, in a few passes over the responses.

    Args:
      kernel, tolerance, seed: as of every `budgetjax.KernelSolver`.
      slack: nu, the mean slack, at least 0, relative to a weight vector of norm 1; 0 is
        a hard margin. The SVM with optimum :math:`w^*` for
        :math:`\frac{\lambda}{2} \|w\|^2` plus the mean hinge loss has
        :math:`\nu = ` mean hinge :math:`(w^*) / \|w^*\|`.
      fit_bias: whether to add an unregularised bias; updates then alternate between the
        classes.
      batch_size: the maximum number of updates, and of new kernel rows, per step; 1 is
        the iteration of the paper.
      average_power: p, at least 0; iterate t has a weight of about t^p in the average.
        0 is the uniform average of the paper, which is within O(sqrt(1/T)) of the
        highest level after T updates (Lemma 3.2).

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> X, y = data.X_train[:1000], data.y_train[:1000]
      >>> found = bj.solve(bj.SBP(bj.RBF(8.0), slack=0.01), X, y, max_steps=100)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.9)
      True

    References:
      Cotter, Shalev-Shwartz and Srebro (2012), "The kernelized Stochastic Batch
      Perceptron", Algorithms 1 and 2; Section 3.6 and Appendix B for the bias.
      https://arxiv.org/abs/1204.0566
      Shamir and Zhang (2013), "Stochastic gradient descent for non-smooth
      optimization", Section 4, for the weights of the average.
      https://proceedings.mlr.press/v28/shamir13.html

    Differences from the paper: the average weights iterate t by t, which forgets early
    iterates sooner, unless `average_power` is 0. Several examples whose rows must be
    computed are drawn at once, from those under water at the start of the step.
    Newton's method finds the levels, without sorting or selection. With a bias, the
    paper draws either class with equal probability; here the classes alternate.
    """

    slack: ArrayLike = leaf(_checks.non_negative)
    fit_bias: bool = static(default=True, check=_checks.flag, kw_only=True)
    batch_size: int = static(default=64, check=_checks.size, kw_only=True)
    average_power: ArrayLike = leaf(_checks.non_negative, default=1.0, kw_only=True)

    max_steps = 2000
    callback_every = 20

    def batch(self, n: int) -> int:
        return min(self.batch_size, n)

    def start(self, data: TrainingSet, rows: KernelRows) -> SBPState:
        largest = jnp.max(rows.diagonal)
        zeros, scalar = jnp.zeros_like(data.y), jnp.zeros((), data.dtype)
        return self.zero(
            *(SBPState, data, rows),
            first_rate=jnp.where(largest > 0, jax.lax.rsqrt(largest), 1),
            squared_norm=scalar,
            level=jnp.asarray(self.slack),
            bias=scalar,
            mean_coefficients=zeros,
            mean_responses=zeros,
        )

    def step(self, state: SBPState, data: TrainingSet) -> SBPState:
        """Up to `batch_size` updates."""
        batch = self.batch(len(data.y))
        key, for_new, for_draws = jax.random.split(state.key, 3)
        chances = jax.random.uniform(for_draws, (batch,), state.responses.dtype)
        first = _first_example(state, data, chances[0])
        # If all rows are cached, any example can be drawn.
        rows, new, ready = (
            state.rows,
            jnp.zeros(batch, jnp.int32),
            jnp.zeros(batch, bool),
        )
        if not rows.complete:
            new, ready, spare = _new_examples(state, data, first, for_new)
            rows = row_cache.fetch(self.kernel, rows, data.X, new, ready, spare)
        start, volume = state.num_updates, _volume(state, data)

        def update(carry):
            state, i, ready = carry
            state, ready = _update(state, data, i, rows, volume), ready & (new != i)
            chance = chances[jnp.minimum(state.num_updates - start, batch - 1)]
            return state, _next_example(state, data, chance, rows, new, ready), ready

        # The row of the first example is cached, so every step makes an update. The
        # rows are not part of the loop's state, since it does not change them.
        state, *_ = jax.lax.while_loop(
            lambda carry: (carry[0].num_updates < start + batch) & (carry[1] >= 0),
            update,
            (state._replace(rows=None), first, ready),
        )
        return state._replace(rows=rows, key=key)

    def objective(self, state: SBPState, data: TrainingSet) -> Objective:
        r"""The level of the average, and an upper bound of all levels; O(n).

        For any :math:`p \ge 0` with sum 1 (and with a bias, equal sums in both
        classes), no level is above
        :math:`\|\sum_i p_i y_i \Phi(x_i)\| + n \nu \max_i p_i / v_i`. Here :math:`p` is
        proportional to the average's coefficients. The effect of making the class sums
        equal is bounded, so no kernel value is needed.
        """
        alpha, y = state.mean_coefficients, data.y
        peaks = alpha if data.weight is None else alpha / data.weight
        norm = jnp.sqrt(jnp.maximum(jnp.sum(alpha * state.mean_responses), 0))
        reached = _level(state, data)[0]
        tiny = jnp.finfo(alpha.dtype).tiny
        if not self.fit_bias:
            mass, bound = jnp.sum(alpha), norm + _volume(state, data) * jnp.max(peaks)
            return Objective(reached, jnp.where(mass > 0, bound / mass, jnp.inf))
        masses = jnp.stack(
            [jnp.sum(jnp.where(y == sign, alpha, 0)) for sign in (1, -1)]
        )
        inverse = 0.5 / jnp.maximum(masses, tiny)
        # || u/a - v/b || <= ||u - v||/b + |1/a - 1/b| ||u||, ||u|| <= a sqrt(max k).
        uneven = jnp.abs(inverse[0] - inverse[1]) * masses / state.first_rate
        bound = jnp.min(norm * inverse[::-1] + uneven)
        bound += _volume(state, data) * jnp.max(peaks * jnp.where(y > 0, *inverse))
        return Objective(reached, jnp.where(jnp.min(masses) > 0, bound, jnp.inf))

    def model(self, state: SBPState, data: TrainingSet) -> KernelModel:
        """The average of the iterates divided by its level (line 14 of Algorithm 1).

        The margin of the model is 1. While the level is not positive, the model is
        the average itself, whose scores have the same signs.
        """
        level, bias = (np.asarray(value) for value in _level(state, data))
        scale = 1 / level if level > 0 else np.ones_like(level)
        coefficients, bias = state.mean_coefficients * scale, jnp.asarray(bias * scale)
        return self.model_of(data, coefficients, bias)

    def num_vectors(self, state: SBPState) -> Array:
        return jnp.count_nonzero(state.mean_coefficients)


def _update(
    state: SBPState,
    data: TrainingSet,
    i: Integer[Array, ""],
    rows: KernelRows,
    volume: Scalar,
) -> SBPState:
    """The state after an update with example `i`, lines 4 to 12 of Algorithm 1."""
    y, power = data.y, state.solver.average_power
    time = (state.num_updates + 1).astype(state.responses.dtype)
    eta = state.first_rate * jax.lax.rsqrt(time)  # line 4
    squared_norm = (  # line 8
        state.squared_norm + 2 * eta * state.responses[i] + eta * eta * rows.diagonal[i]
    )
    shrink = jnp.where(squared_norm > 1, jax.lax.rsqrt(squared_norm), 1)
    row = jax.lax.dynamic_index_in_dim(rows.kept, rows.places[i], keepdims=False)
    # Lines 9 to 12.
    drawn = jnp.arange(y.shape[0], dtype=jnp.int32) == i
    coefficients = (state.coefficients + jnp.where(drawn, eta, 0)) * shrink
    responses = (state.responses + eta * y[i] * y * row) * shrink
    # No response has changed by more than this.
    change = eta / jnp.square(state.first_rate)
    guess = state._replace(level=shrink * state.level, bias=shrink * state.bias)
    tolerance = BIAS_TOLERANCE * change
    level, bias = _find_level(guess, responses, data, volume, change, tolerance)
    # The weight of iterate t is t for the power 1, and uniform for 0.
    share = (1 + power) / (time + power)
    of_coefficients, of_responses = state.mean_coefficients, state.mean_responses
    return state._replace(
        coefficients=coefficients,
        responses=responses,
        squared_norm=jnp.minimum(squared_norm, 1),
        level=level,
        bias=bias,
        mean_coefficients=of_coefficients + share * (coefficients - of_coefficients),
        mean_responses=of_responses + share * (responses - of_responses),
        num_updates=state.num_updates + 1,
    )


def _find_level(
    state: SBPState,
    responses: Vector,
    data: TrainingSet,
    volume: Scalar,
    reach: ArrayLike,
    tolerance: ArrayLike = 0.0,
) -> tuple[Scalar, Scalar]:
    """The level of some responses and their bias, searched from those of the state."""
    if not state.solver.fit_bias:
        level = water_level.level(responses, volume, state.level, data.weight)
        return level, state.bias
    guess = state.level, state.bias
    return water_level.balanced_level(
        responses, data.y, volume, guess, reach, tolerance, data.weight
    )


def _volume(state: SBPState, data: TrainingSet) -> Scalar:
    """`n nu`."""
    return training_set.total_weight(data.y, data.weight) * state.solver.slack


def _next_class(state: SBPState) -> Scalar:
    """The class of the next update, with a bias; the classes alternate."""
    return jnp.where(state.num_updates % 2 == 0, 1, -1).astype(state.responses.dtype)


def _drawable(state: SBPState, y: Vector) -> Bool[Array, " n"]:
    """The examples under water, with a bias only those of the next class."""
    epsilon = jnp.finfo(state.responses.dtype).eps
    margin = WET * epsilon * jnp.maximum(1, jnp.abs(state.level))
    below = state.responses + y * state.bias < state.level + margin
    return below & (y == _next_class(state)) if state.solver.fit_bias else below


def _first_example(
    state: SBPState, data: TrainingSet, chance: Scalar
) -> Integer[Array, ""]:
    """A random example under water."""
    y = data.y
    i = _draw(_drawable(state, y), chance, data.weight)
    if not state.solver.fit_bias:
        return i
    # With an inexact bias, no example of this class may be under water.
    of_class = jnp.where(y == _next_class(state), state.responses, jnp.inf)
    return jnp.where(i < 0, jnp.argmin(of_class).astype(jnp.int32), i)


def _next_example(
    state: SBPState,
    data: TrainingSet,
    chance: Scalar,
    rows: KernelRows,
    new: Integer[Array, " batch"],
    ready: Bool[Array, " batch"],
) -> Integer[Array, ""]:
    """A random example under water, or a new one if it has no row, or -1.

    `new` are the examples whose rows the step has computed, and `ready` marks those
    that no update has drawn.
    """
    drawable = _drawable(state, data.y)
    i = _draw(drawable, chance, data.weight)
    if rows.complete:
        return i
    ready &= drawable[new]
    other = jnp.where(jnp.any(ready), new[jnp.argmax(ready)], -1)
    return jnp.where((i >= 0) & (rows.places[i] >= 0), i, other)


def _draw(
    possible: Bool[Array, " n"], chance: Scalar, weight: Vector | None
) -> Integer[Array, ""]:
    """A random possible example, by weight, or -1; in two passes, without sorting."""
    n = possible.shape[0]
    # Without weights, the sums are exact integers.
    dtype = jnp.int32 if weight is None else weight.dtype
    masses = possible if weight is None else jnp.where(possible, weight, 0)
    groups = jnp.pad(masses, (0, -n % GROUP)).reshape(-1, GROUP)
    ends = jnp.cumsum(jnp.sum(groups, axis=1, dtype=dtype))
    wanted = (chance * ends[-1].astype(chance.dtype)).astype(dtype)
    if weight is None:
        wanted = jnp.minimum(wanted, ends[-1] - 1)
    group = jnp.sum(ends <= wanted, dtype=jnp.int32)
    inside = jnp.cumsum(groups[group], dtype=dtype)
    wanted -= ends[group] - inside[-1]
    i = group * GROUP + jnp.sum(inside <= wanted, dtype=jnp.int32)
    if weight is not None:
        # Rounding may lead beyond the last example.
        i = jnp.where(possible[i], i, jnp.argmax(possible).astype(jnp.int32))
    return jnp.where(ends[-1] > 0, i, -1)


def _new_examples(
    state: SBPState,
    data: TrainingSet,
    first: Integer[Array, ""],
    key: Key[Array, ""],
) -> tuple[Integer[Array, " batch"], Bool[Array, " batch"], Bool[Array, " batch"]]:
    """Chooses the examples whose rows are computed next.

    The first is the example of the first update. Examples under water whose rows are
    not cached follow in random order, then the examples nearest to the level; with a
    bias, the classes alternate. Also returns which of them this step may use, and which
    exist.
    """
    y, n = data.y, len(data.y)
    batch = state.solver.batch(n)
    dtype = state.responses.dtype
    depth = state.level - (state.responses + y * state.bias)
    # Ranks above 0 are under water.
    ranks = jnp.where(depth > 0, 1 + jax.random.uniform(key, (n,), dtype), depth)
    ranks = jnp.where(state.rows.places < 0, ranks, -jnp.inf).at[first].set(jnp.inf)
    if state.solver.fit_bias:
        turn = y[first]
        pairs = [
            jax.lax.top_k(jnp.where(y == sign, ranks, -jnp.inf), -(-batch // 2))
            for sign in (turn, -turn)
        ]
        best, new = (
            jnp.stack(both, axis=1).ravel()[:batch] for both in zip(*pairs, strict=True)
        )
    else:
        best, new = jax.lax.top_k(ranks, batch)
    return new, best > 0, best > -jnp.inf


@jax.jit
def _level(state: SBPState, data: TrainingSet) -> tuple[Scalar, Scalar]:
    """The level and the bias of the average."""
    return _find_level(state, state.mean_responses, data, _volume(state, data), jnp.inf)


@names_errors("slack_of")
def slack_of(
    model: Any, X: ArrayLike, y: ArrayLike, *, weight: ArrayLike | None = None
) -> float:
    r"""The `slack` for which `SBP` has the solution of a trained SVM.

    :math:`\nu = ` mean hinge :math:`(w) / \|w\|`, with the hinge loss of the model's
    scores, bias included, and the norm of its weight vector :math:`w`. For the optimum
    of an SVM, the slack-constrained problem with this :math:`\nu` has the same
    solution, up to its length. For another model, `SBP` finds a model with the same
    slack whose margin is at least as large. To convert a :math:`\lambda` to a slack,
    train an SVM with the penalty :math:`1 / (\lambda n)`, on a sample if there are many
    rows.

    Cost: the scores of all rows and support vectors, O((n + m) m d).

    Args:
      model: a binary model: a `KernelModel`, a `LinearModel`, a `Solution`, or the
        state of an online algorithm.
      X: the training set, shape `(n, d)`.
      y: labels, -1 and +1, shape `(n,)`.
      weight: weight of each example, above 0, shape `(n,)`.

    Returns:
      nu, at least 0.

    Raises:
      ValueError: if shapes differ, the labels are not -1 and +1, or the model is zero.

    Example:
      >>> data = bj.datasets.load("checkerboard")
      >>> X, y = data.X_train[:500], data.y_train[:500]
      >>> svm = bj.solve(bj.SMO(bj.RBF(4.0), penalty=2.0), X[:200], y[:200])
      >>> slack = bj.slack_of(svm, X[:200], y[:200])
      >>> found = bj.solve(bj.SBP(bj.RBF(4.0), slack=slack), X, y, max_steps=50)
      >>> bool((found.model.predict(data.X_test) == data.y_test).mean() > 0.8)
      True

    References:
      Cotter, Shalev-Shwartz and Srebro (2012), Lemma 2.1 and Section 5,
      https://arxiv.org/abs/1204.0566.
    """
    scores = model.decision_function(X)
    if scores.ndim != 1:
        raise ArgumentError("model", "be binary", f"one of {scores.shape[1]} columns")
    scores = np.asarray(scores, np.float64)
    y = np.asarray(training_set.read_labels(y, len(scores), np.float32))
    weight = training_set.read_weight(weight, jnp.asarray(y))
    length = model.weight_norm()
    if not length > 0:
        raise ArgumentError("model", "not be zero", "weights of norm 0")
    return float(np.average(np.maximum(1 - y * scores, 0), weights=weight) / length)
