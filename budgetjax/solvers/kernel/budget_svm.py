"""A support vector machine on a budget of worst examples; see `init`."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Integer

from budgetjax import checks, models
from budgetjax.checks import Name
from budgetjax.kernels import Kernel
from budgetjax.models import KernelModel
from budgetjax.solvers.kernel import row_cache
from budgetjax.solvers.kernel.row_cache import KernelRows
from budgetjax.solvers.kernel.solve import BatchAlgorithm, Objective
from budgetjax.solvers.kernel.training import of_state, same, training_set
from budgetjax.solvers.kernel.worst_norms import Norm, OneInfinity, TwoInfinity

NORMS = {"l1": OneInfinity, "l2": TwoInfinity}
SOLVERS = ("smo", "projected_gradient")
# First coefficients of the pairs that are looked at: of each class, up and down.
FIRSTS = 4
# Products with `Q` at the start, for its largest eigenvalue. Steps go on to measure it.
POWER_ITERATIONS = 8

# Of the sum of the coefficients, in units of the type's spacing: no loss of the dual.
ROUNDING = 4


class Momentum(NamedTuple):
    """What an accelerated projected gradient remembers.

    Attributes:
      point: where the next gradient is taken, shape `(n,)`.
      responses: `Q point`, shape `(n,)`.
      weight: `t` of the acceleration, 1 after a restart.
      curvature: the largest seen of `Q`, along balanced directions.
    """

    point: Float[Array, " n"]
    responses: Float[Array, " n"]
    weight: Float[Array, ""]
    curvature: Float[Array, ""]


class State(NamedTuple):
    """A dual solution on its way, of `n` examples.

    Attributes:
      algorithm: whose state it is.
      kernel: of the model.
      rows: what is known of `Q[i, j] = y_i y_j k(x_i, x_j)`.
      norm: of the slacks; it holds the budget.
      penalty: C.
      coefficients: `alpha`, within all constraints, shape `(n,)`.
      responses: `Q alpha`, that is `y_i f(x_i)` without the bias, shape `(n,)`.
      num_updates: steps that have changed the coefficients.
      momentum: of the solver "projected_gradient", None for "smo".
    """

    algorithm: Name
    kernel: Kernel
    rows: KernelRows
    norm: Norm
    penalty: Float[Array, ""]
    coefficients: Float[Array, " n"]
    responses: Float[Array, " n"]
    num_updates: Integer[Array, ""]
    momentum: Momentum | None


def init(
    kernel: Kernel,
    X: ArrayLike,
    y: ArrayLike,
    *,
    budget: ArrayLike,
    penalty: ArrayLike,
    norm: str = "l1",
    solver: str = "smo",
    precompute: bool | str = "auto",
    cache_size: float = 512.0,
) -> State:
    r"""A support vector machine that looks at its worst-classified examples only.

    Minimises :math:`\frac12 \|f\|^2 + C \|\xi\|` over :math:`f` and a bias :math:`b`,
    with the slacks :math:`\xi_i = \max(0, 1 - y_i (f(x_i) + b))` and a norm that
    depends on the B largest of them:

    - ``"l1"``: their sum. In the dual problem :math:`0 \le \alpha_i \le C` and
      :math:`\sum_i \alpha_i \le B C`. A budget of n is the ordinary support vector
      machine.
    - ``"l2"``: about their Euclidean norm, not squared; see `TwoInfinity`. In the dual
      problem :math:`\|\alpha\|_2 \le C` and :math:`\sum_i \alpha_i \le \sqrt B C`.

    Examples that are not among the B worst get no coefficient. But at the optimum
    several are usually equally bad, and the least of B has more than B coefficients:
    `budgetjax.prune` keeps the largest.

    A step is one of two, both of which maximise the dual
    :math:`\sum_i \alpha_i - \frac12 \alpha^\top Q \alpha`:

    - ``"smo"``: the exact maximum over two coefficients. The first is, of either class,
      the one with the steepest slope up or down; the second is any other; of all these
      4 n pairs the one that gains most. Four or five kernel rows a step, from the cache
      if they are there, and O(n). It converges for ``"l1"``. For ``"l2"`` pairs jam on
      the surface of the ball :math:`\|\alpha\|_2 = C`, with a dual value that may be
      half of the optimum; they converge where the ball does not bind.
    - ``"projected_gradient"``: one step of the accelerated gradient method with the
      exact projection onto all constraints, started anew where it overshoots, so that
      the dual never falls. O(n^2) a step, or O(n^2 d) where `Q` is not kept. It
      converges for both norms, and under `jax.vmap` over budgets its products with
      `Q` become one matrix product.

    Args:
      kernel: any positive definite kernel.
      X: the training set, shape `(n, d)`.
      y: its labels, -1 and +1, both of them, shape `(n,)`.
      budget: B, at least 1. With "l1", a fraction counts the next largest slack in
        part.
      penalty: C, positive. To compare budgets, the paper takes it proportional to `1/B`
        for "l1" and to `1/sqrt(B)` for "l2".
      norm: "l1" or "l2".
      solver: "smo" or "projected_gradient".
      precompute: True to compute `Q` now, False not to, "auto" to do it for few
        examples.
      cache_size: mebibytes for rows of `Q` that are kept.

    Returns:
      A state with all coefficients 0. Budget and penalty are leaves of it, so that
      `jax.vmap` sweeps them; norm and solver are structure.

    Raises:
      ValueError: if the training set, a number or a name does not fit.

    Example:
      >>> import budgetjax as bj, jax, jax.numpy as jnp, numpy as np
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> state = bj.budget_svm.init(bj.Linear(), X, y, budget=2, penalty=10.0)
      >>> state, history = bj.solve(bj.budget_svm, state, X, y, max_steps=10)
      >>> [round(float(alpha), 3) for alpha in state.coefficients]
      [2.0, 2.0, 0.0]

      Many budgets at once:

      >>> X, y = jnp.asarray(X), jnp.asarray(y, float)
      >>> def dual(budget):
      ...     state = bj.budget_svm.init(
      ...         bj.Linear(), X, y, budget=budget, penalty=1 / budget, norm="l2",
      ...         solver="projected_gradient")
      ...     state = jax.lax.fori_loop(
      ...         0, 100, lambda _, state: bj.budget_svm.step(state, X, y), state)
      ...     return bj.budget_svm.objective(state, X, y).dual
      >>> jax.vmap(dual)(jnp.array([1.0, 2.0, 3.0])).shape
      (3,)

    References:
      Dekel and Singer (2006), "Support vector machines on a budget", Sections 2 to 4:
      the norms, the dual problem (4) and the moves of pairs, equations (8) to (13).
      Beck and Teboulle (2009) and O'Donoghue and Candes (2015) for the acceleration
      and its restarts.

    Differences from the paper: it leaves the choice of the pair to a heuristic; here it
    is by the gain within the constraints. The second solver is not in the paper. For
    "l2" the paper's constraint (12) with `sqrt(B)` for `B` is used as it says.
    """
    where = "budget_svm.init"
    X, y = training_set(where, kernel, X, y)
    _one_of(where, "norm", norm, tuple(NORMS))
    _one_of(where, "solver", solver, SOLVERS)
    budget = checks.positive(where, "budget", budget)
    known = checks.concrete(budget)
    if known is not None and not np.all(known >= 1):
        raise ValueError(f"{where}: budget must be at least 1, got {budget!r}")
    penalty = checks.positive(where, "penalty", penalty)
    rows = row_cache.start(
        where,
        kernel,
        X,
        y,
        batch_size=FIRSTS,
        precompute=precompute,
        cache_size=cache_size,
    )
    zeros = jnp.zeros_like(y)
    momentum = None
    if solver == "projected_gradient":
        rows, curvature = _curvature(kernel, rows, X, y)
        momentum = Momentum(zeros, zeros, jnp.ones((), X.dtype), curvature)
    return State(
        algorithm=checks.algorithm_of(where),
        kernel=kernel,
        rows=rows,
        norm=NORMS[norm](checks.as_leaf(where, "budget", budget, X.dtype)),
        penalty=checks.as_leaf(where, "penalty", penalty, X.dtype),
        coefficients=zeros,
        responses=zeros,
        num_updates=jnp.int32(0),
        momentum=momentum,
    )


def _one_of(where: str, name: str, value: object, names: tuple[str, ...]) -> None:
    if not (isinstance(value, str) and value in names):
        expected = " or ".join(repr(each) for each in names)
        raise ValueError(f"{where}: {name} must be {expected}, got {value!r}")


def step(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> State:
    """One move of a pair, or one step along the gradient; see `init`."""
    if state.momentum is None:
        return _pair_step(state, X, y)
    return _gradient_step(state, state.momentum, X, y)


def objective(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> Objective:
    """The primal value with the best bias, and the dual value below it; O(n log n)."""
    X, y = of_state("budget_svm.objective", state, X, y)
    squared_norm = jnp.sum(state.coefficients * state.responses)
    worst, _ = state.norm.least(1 - state.responses, y)
    return Objective(
        primal=squared_norm / 2 + state.penalty * worst,
        dual=jnp.sum(state.coefficients) - squared_norm / 2,
    )


def model(state: State, X: ArrayLike, y: ArrayLike) -> KernelModel:
    """The classifier of a state, with the bias of the least primal value.

    At the optimum that is the bias of the KKT conditions: of an example between the
    bounds the margin is known, `1 - phi`. But it needs no such example, and before the
    optimum it is the best there is for the coefficients found.
    """
    X, y = same("budget_svm.model", state, X, y)
    return models.of_coefficients(
        state.kernel, X, y, state.coefficients, _bias(state, y)
    )


@jax.jit
def _bias(state: State, y: Float[Array, " n"]) -> Float[Array, ""]:
    return state.norm.least(1 - state.responses, y)[1]


def _pair_step(state: State, X: Float[Array, "n d"], y: Float[Array, " n"]) -> State:
    alpha, diagonal = state.coefficients, state.rows.diagonal
    slopes = 1 - state.responses
    firsts, movable = _firsts(state, slopes, y)
    rows = row_cache.fetch(state.kernel, state.rows, X, y, firsts, movable)
    total, squared_norm = jnp.sum(alpha), jnp.sum(alpha**2)
    room = jnp.maximum(state.norm.most(state.penalty) - total, 0) / 2
    quantum = _quantum(state.penalty)

    def best_partner(first, movable, row):
        """The second of the pair that gains most, the change of the first, the gain.

        The change is `lambda y_k` of equation (8), and that of the second -+ it.
        """
        same = y * y[first]
        least, most = state.norm.allowed(
            alpha[first], alpha, same, squared_norm, state.penalty
        )
        # Equation (10); equation (12): two of different classes share the room left.
        least = jnp.maximum(
            jnp.maximum(least, -alpha[first]), jnp.where(same > 0, least, -alpha)
        )
        most = jnp.minimum(most, jnp.where(same > 0, alpha, room))
        slope = slopes[first] - same * slopes
        curvature = diagonal[first] + diagonal - 2 * same * row
        curvature = jnp.maximum(curvature, jnp.finfo(alpha.dtype).eps * diagonal[first])
        # Equation (9), clipped. No pair of an example with itself.
        change = jnp.clip(slope / curvature, least, most)
        # Whole quanta add up exactly, so that a pair never loses its balance.
        change = jnp.trunc(change / quantum) * quantum
        gain = change * (slope - curvature * change / 2)
        other = jnp.arange(alpha.shape[0], dtype=jnp.int32) != first
        gain = jnp.where(movable & other, gain, -jnp.inf)
        second = jax.lax.argmax(gain, 0, jnp.int32)
        return second, change[second], gain[second]

    known = rows.kept[rows.places[firsts]]
    seconds, changes, gains = jax.vmap(best_partner)(firsts, movable, known)
    best = jax.lax.argmax(gains, 0, jnp.int32)
    first, second, change = firsts[best], seconds[best], changes[best]
    improves = gains[best] > 0
    change = jnp.where(improves, change, 0)
    reaction = -y[first] * y[second] * change
    rows = row_cache.fetch(state.kernel, rows, X, y, second[None], improves[None])
    moved = change * known[best] + reaction * rows.kept[rows.places[second]]
    return state._replace(
        rows=rows,
        coefficients=alpha.at[first].add(change).at[second].add(reaction),
        responses=state.responses + jnp.where(improves, moved, 0),
        num_updates=state.num_updates + improves.astype(jnp.int32),
    )


def _firsts(
    state: State, slopes: Float[Array, " n"], y: Float[Array, " n"]
) -> tuple[Integer[Array, " firsts"], Bool[Array, " firsts"]]:
    """Of each class the steepest way up, then down; and whether there is one."""
    up = jnp.where(state.coefficients < state.penalty, slopes, -jnp.inf)
    down = jnp.where(state.coefficients > 0, -slopes, -jnp.inf)
    ways = jnp.stack(
        [jnp.where(y == sign, way, -jnp.inf) for way in (up, down) for sign in (1, -1)]
    )
    firsts = jax.lax.argmax(ways, 1, jnp.int32)
    movable = jnp.max(ways, axis=1) > -jnp.inf
    # The only one of its class is looked at once.
    again = movable[:2] & (firsts[2:] == firsts[:2])
    return firsts, movable & jnp.concatenate([jnp.ones(2, bool), ~again])


def _quantum(penalty: Float[Array, ""]) -> Float[Array, ""]:
    """The spacing of floats at C: its multiples up to C are added without rounding."""
    return jnp.nextafter(penalty, jnp.full_like(penalty, jnp.inf)) - penalty


def _gradient_step(
    state: State, momentum: Momentum, X: Float[Array, "n d"], y: Float[Array, " n"]
) -> State:
    alpha, point = state.coefficients, momentum.point
    ascent = (1 - momentum.responses) / momentum.curvature
    found = state.norm.project(point + ascent, y, state.penalty)
    rows, responses = row_cache.product(state.kernel, state.rows, X, y, found)

    # From the change, whose rounding is less than that of two values. A loss that
    # rounding explains is none: near the optimum all gains are smaller.
    change = found - alpha
    gain = jnp.sum(change * (1 - (responses + state.responses) / 2))
    taken = gain >= -ROUNDING * jnp.finfo(alpha.dtype).eps * jnp.sum(found)

    coefficients = jnp.where(taken, found, alpha)
    reached = jnp.where(taken, responses, state.responses)

    # The gradient scheme of O'Donoghue and Candes, Section 3.2: go on only uphill.
    uphill = jnp.sum((point - found) * change) <= 0
    weight = (1 + jnp.sqrt(1 + 4 * momentum.weight**2)) / 2
    goes_on = taken & uphill
    share = jnp.where(goes_on, (momentum.weight - 1) / weight, 0)
    way = found - point
    seen = jnp.sum(way * (responses - momentum.responses))
    length = jnp.sum(way**2)
    # A shorter way shows rounding.
    shown = length > jnp.finfo(alpha.dtype).eps * jnp.sum(found**2)
    seen = jnp.where(shown, seen / jnp.where(shown, length, 1), 0)
    return state._replace(
        rows=rows,
        coefficients=coefficients,
        responses=reached,
        num_updates=state.num_updates + taken.astype(jnp.int32),
        momentum=Momentum(
            point=coefficients + share * change,
            responses=reached + share * (responses - state.responses),
            weight=jnp.where(goes_on, weight, 1),
            curvature=jnp.maximum(momentum.curvature, seen),
        ),
    )


@jax.jit
def _curvature(
    kernel: Kernel, rows: KernelRows, X: Float[Array, "n d"], y: Float[Array, " n"]
) -> tuple[KernelRows, Float[Array, ""]]:
    """About the largest curvature of `Q` along balanced directions, from below.

    Balanced vectors are all there are, and along them `Q` is far flatter: its largest
    eigenvector is nearly `y` where the kernel values are alike.
    """

    def balanced(vector):
        return vector - y * jnp.mean(y * vector)

    def body(_, carry):
        rows, vector, _ = carry
        vector = vector / jnp.maximum(jnp.linalg.norm(vector), tiny)
        rows, image = row_cache.product(kernel, rows, X, y, vector)
        image = balanced(image)
        return rows, image, jnp.linalg.norm(image)

    tiny = jnp.finfo(X.dtype).tiny
    start = balanced(jax.random.normal(jax.random.key(0), y.shape, y.dtype))
    rows, _, size = jax.lax.fori_loop(
        jnp.int32(0),
        jnp.int32(POWER_ITERATIONS),
        body,
        (rows, start, jnp.zeros((), X.dtype)),
    )
    return rows, jnp.where(size > 0, size, 1)


budget_svm = BatchAlgorithm(init, step, objective, model, "budget_svm")
