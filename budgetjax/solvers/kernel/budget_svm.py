"""A support vector machine on a budget of its worst examples."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Integer

from budgetjax import _checks
from budgetjax._errors import ArgumentError
from budgetjax._record import Record, leaf
from budgetjax.kernels import Kernel
from budgetjax.solvers import row_cache
from budgetjax.solvers.kernel.kernel_solver import KernelSolver, KernelState
from budgetjax.solvers.kernel.norms import Norm, check_norm
from budgetjax.solvers.row_cache import KernelRows
from budgetjax.solvers.solver import Objective
from budgetjax.solvers.training_set import Matrix, Scalar, TrainingSet, Vector

# Candidates for the first coefficient of a pair: one of each class, up and down.
CANDIDATES = 4
# Power iterations at the start that estimate the largest eigenvalue of `Q`; later steps
# refine it.
POWER_ITERATIONS = 8
# A decrease of the dual up to this many rounding units of the coefficients' sum is
# ignored.
ROUNDING = 4


class Momentum(Record):
    """The memory of an accelerated projected gradient.

    `point` is that of the next gradient, and `responses` is `Q point`; `weight` is `t`
    of the acceleration, 1 after a restart; `curvature` is the largest curvature of `Q`
    seen along balanced directions.
    """

    point: Vector
    responses: Vector
    weight: Scalar
    curvature: Scalar


class BudgetSVMState(KernelState):
    """The state of the solver, which always satisfies all constraints.

    Attributes:
      momentum: None for a norm whose steps move pairs.
    """

    momentum: Momentum | None


class BudgetSVM(KernelSolver[BudgetSVMState]):
    r"""A support vector machine whose loss counts only the worst-classified examples.

    Minimises :math:`\frac12 \|f\|^2 + C \|\xi\|` over :math:`f` and a bias :math:`b`,
    with the slacks :math:`\xi_i = \max(0, 1 - y_i (f(x_i) + b))` and a norm that
    depends on the B largest of them:

    - ``OneInfinity(B)``: their sum. In the dual problem
      :math:`0 \le \alpha_i \le C` and :math:`\sum_i \alpha_i \le B C`. A budget of n
      is the ordinary support vector machine.
    - ``TwoInfinity(B)``: about their Euclidean norm, not squared. In the dual
      problem :math:`\|\alpha\|_2 \le C` and :math:`\sum_i \alpha_i \le \sqrt B C`.
    - any other `budgetjax.norms.Norm`, such as `PInfinity`, with another p than these,
      `OneTwo`, between the Euclidean norm and the sum, or `Euclidean`, with a weight
      per example.

    Examples outside the B worst have coefficient 0. At the optimum, however, several
    are usually tied, so more than B coefficients are nonzero: `budgetjax.prune` keeps
    the largest.

    A step raises the dual :math:`\sum_i \alpha_i - \frac12 \alpha^\top Q \alpha`:

    - ``OneInfinity``: to its maximum over the pair of coefficients with the largest
      gain. The first has the steepest slope up or down in either class (four
      candidates), the second may be any other. O(n), and four or five kernel rows,
      unless they are cached.
    - otherwise: by an accelerated gradient step with the exact projection onto all
      constraints, which is restarted if it overshoots, so the dual never decreases:
      O(n^2), or O(n^2 d) if the kernel matrix is not kept. Under `jax.vmap` over
      budgets, the products with `Q` become one matrix product. (Pair steps would get
      stuck on the surface of the ball :math:`\|\alpha\|_2 = C`, at half of the optimum.
      With a multiplier in place of the ball they reach it, but later than these steps.)

    Args:
      kernel, tolerance: as of every `budgetjax.KernelSolver`; nothing is drawn.
      norm: of `budgetjax.norms`; it holds the budget B. A fractional part of that of
        `OneInfinity` counts a fraction of the next largest slack. With weights of
        examples it must be `OneInfinity`, whose budget they count in, too: the
        projection of the others is onto a ball, not an ellipsoid.
      penalty: C, positive. To compare budgets, the paper takes it proportional to `1/B`
        for `OneInfinity`, and to `1/sqrt(B)` for `TwoInfinity`.

    Example:
      >>> import jax
      >>> X, y = np.array([[0.0], [1.0], [3.0]]), np.array([-1, 1, 1])
      >>> solver = bj.BudgetSVM(bj.Linear(), bj.norms.OneInfinity(2), penalty=10.0)
      >>> found = bj.solve(solver, X, y)
      >>> [round(float(alpha), 3) for alpha in found.state.coefficients]
      [2.0, 2.0, 0.0]

      Many budgets at once:

      >>> data = solver.read(X, y)
      >>> def dual(budget):
      ...     norm = bj.norms.TwoInfinity(budget)
      ...     state = bj.BudgetSVM(bj.Linear(), norm, penalty=1 / budget).init(data)
      ...     step = lambda _, state: state.solver.step(state, data)
      ...     state = jax.lax.fori_loop(0, 100, step, state)
      ...     return state.solver.objective(state, data).dual
      >>> jax.vmap(dual)(jnp.array([1.0, 2.0, 3.0])).shape
      (3,)

    References:
      Dekel and Singer (2006), "Support vector machines on a budget", Sections 2 to 4:
      the norms, the dual problem (4) and the moves of pairs, equations (8) to (12).
      https://papers.nips.cc/paper/3125-support-vector-machines-on-a-budget
      Beck and Teboulle (2009), https://doi.org/10.1137/080716542, and O'Donoghue and
      Candes (2015), https://doi.org/10.1007/s10208-013-9150-3, for the acceleration and
      its restarts.

    Differences from the paper: the paper leaves the choice of the pair to a heuristic,
    here it is the pair with the largest gain within the constraints; and the paper
    moves pairs for `TwoInfinity` too.
    """

    norm: Norm = leaf(check_norm)
    penalty: ArrayLike = leaf(_checks.positive, default=1.0)

    max_steps = 100_000

    def batch(self, n: int) -> int:
        return min(CANDIDATES, n)

    def bind(self, data):
        if data.weight is not None and not self.norm.moves_pairs:
            wanted = "be None, as OneInfinity is the only norm with weights"
            raise ArgumentError("weight", wanted, "weights")
        norm = jax.tree.map(
            lambda leaf: _checks.as_leaves("norm", leaf, data.dtype), self.norm
        )
        return super().bind(data)._replace(norm=norm)

    def start(self, data: TrainingSet, rows: KernelRows) -> BudgetSVMState:
        zeros, momentum = jnp.zeros_like(data.y), None
        if not self.norm.moves_pairs:
            given = self.kernel, rows, data.X, data.y
            rows, curvature = _estimate_curvature(*given)
            momentum = Momentum(zeros, zeros, jnp.ones((), data.dtype), curvature)
        return self.zero(BudgetSVMState, data, rows, momentum=momentum)

    def step(self, state: BudgetSVMState, data: TrainingSet) -> BudgetSVMState:
        """A pair step or a gradient step."""
        if state.momentum is None:
            return _pair_step(state, data)
        return _gradient_step(state, state.momentum, data)

    def objective(self, state: BudgetSVMState, data: TrainingSet) -> Objective:
        """The primal value with the best bias, and the dual value; O(n log n)."""
        squared_norm = jnp.sum(state.coefficients * state.responses)
        loss = _minimise_over_bias(state, data)[0]
        return Objective(
            primal=squared_norm / 2 + self.penalty * loss,
            dual=jnp.sum(state.coefficients) - squared_norm / 2,
        )

    def bias(self, state: BudgetSVMState, data: TrainingSet) -> Scalar:
        """The bias that minimises the primal value.

        At the optimum this bias satisfies the KKT conditions, but it needs no example
        between the bounds, and before the optimum it is the best for the coefficients.
        """
        return _minimise_over_bias(state, data)[1]


@jax.jit
def _minimise_over_bias(
    state: BudgetSVMState, data: TrainingSet
) -> tuple[Scalar, Scalar]:
    """The least norm of the slacks over all biases, and that bias."""
    norm, slacks = state.solver.norm, 1 - state.responses
    if norm.moves_pairs:
        return norm.least(slacks, data.y, data.weight)
    return norm.least(slacks, data.y)


def _pair_step(state: BudgetSVMState, data: TrainingSet) -> BudgetSVMState:
    solver, X, y = state.solver, data.X, data.y
    alpha, diagonal = state.coefficients, state.rows.diagonal
    slopes = 1 - state.responses
    caps, quantum = _max_coefficients(solver.penalty, data)
    firsts, movable = _find_candidates(state, caps, slopes, y)
    rows = row_cache.fetch(solver.kernel, state.rows, X, firsts, movable)
    room = jnp.maximum(solver.norm.budget * solver.penalty - jnp.sum(alpha), 0) / 2

    def best_partner(first, movable, row):
        """The second of the best pair, the change of the first, and the gain."""
        same = y * y[first]
        same_class, first_alpha = same > 0, alpha[first]
        # Equations (10) and (11): both stay within their bounds. Equation (12): two of
        # different classes share the remaining sum.
        lower = jnp.maximum(-first_alpha, jnp.where(same_class, alpha - caps, -alpha))
        upper = jnp.where(same_class, alpha, jnp.minimum(caps - alpha, room))
        upper = jnp.minimum(caps[first] - first_alpha, upper)
        slope = slopes[first] - same * slopes
        curvature = diagonal[first] + diagonal - 2 * row
        curvature = jnp.maximum(curvature, jnp.finfo(alpha.dtype).eps * diagonal[first])
        # Equation (9), clipped.
        change = jnp.clip(slope / curvature, lower, upper)
        # Whole quanta add up exactly, so a pair stays balanced.
        change = jnp.trunc(change / quantum) * quantum
        gain = change * (slope - curvature * change / 2)
        is_other = jnp.arange(alpha.shape[0], dtype=jnp.int32) != first
        gain = jnp.where(movable & is_other, gain, -jnp.inf)
        second = jax.lax.argmax(gain, 0, jnp.int32)
        return second, change[second], gain[second]

    first_rows = rows.kept[rows.places[firsts]]
    seconds, changes, gains = jax.vmap(best_partner)(firsts, movable, first_rows)
    best = jax.lax.argmax(gains, 0, jnp.int32)
    first, second, change = firsts[best], seconds[best], changes[best]
    improves = gains[best] > 0
    change = jnp.where(improves, change, 0)
    reaction = -y[first] * y[second] * change
    rows = row_cache.fetch(solver.kernel, rows, X, second[None], improves[None])
    second_row = rows.kept[rows.places[second]]
    response_change = y * (
        y[first] * change * first_rows[best] + y[second] * reaction * second_row
    )
    return state._replace(
        rows=rows,
        coefficients=alpha.at[first].add(change).at[second].add(reaction),
        responses=state.responses + jnp.where(improves, response_change, 0),
        num_updates=state.num_updates + improves.astype(jnp.int32),
    )


def _find_candidates(
    state: BudgetSVMState, caps: Vector, slopes: Vector, y: Vector
) -> tuple[Integer[Array, " firsts"], Bool[Array, " firsts"]]:
    """The steepest way up in each class, then down, and whether there is one."""
    up = jnp.where(state.coefficients < caps, slopes, -jnp.inf)
    down = jnp.where(state.coefficients > 0, -slopes, -jnp.inf)
    ways = jnp.stack(
        [jnp.where(y == sign, way, -jnp.inf) for way in (up, down) for sign in (1, -1)]
    )
    firsts = jax.lax.argmax(ways, 1, jnp.int32)
    movable = jnp.max(ways, axis=1) > -jnp.inf
    # If a class has one candidate for both ways, it counts once.
    again = movable[:2] & (firsts[2:] == firsts[:2])
    return firsts, movable & jnp.concatenate([jnp.ones(2, bool), ~again])


def _max_coefficients(penalty: Scalar, data: TrainingSet) -> tuple[Vector, Scalar]:
    """The maximum of each coefficient, and their common unit.

    All maxima are multiples of the unit, the spacing of floats at the largest one, up
    to which its multiples are added without rounding.
    """
    ones = jnp.ones_like(data.y) if data.weight is None else data.weight
    caps = penalty * ones
    largest = jnp.max(caps)
    quantum = jnp.nextafter(largest, jnp.full_like(largest, jnp.inf)) - largest
    return jnp.trunc(caps / quantum) * quantum, quantum


def _gradient_step(
    state: BudgetSVMState, momentum: Momentum, data: TrainingSet
) -> BudgetSVMState:
    solver, alpha, point = state.solver, state.coefficients, momentum.point
    ascent = (1 - momentum.responses) / momentum.curvature
    projected = solver.norm.project(point + ascent, data.y, solver.penalty)
    given = solver.kernel, state.rows, data.X, data.y, projected
    rows, responses = row_cache.product(*given)

    # Computed from the change, which suffers less from rounding than two values. A
    # decrease within rounding is ignored: near the optimum all gains are smaller.
    change = projected - alpha
    gain = jnp.sum(change * (1 - (responses + state.responses) / 2))
    accepted = gain >= -ROUNDING * jnp.finfo(alpha.dtype).eps * jnp.sum(projected)

    coefficients = jnp.where(accepted, projected, alpha)
    accepted_responses = jnp.where(accepted, responses, state.responses)

    # The gradient scheme of O'Donoghue and Candes, Section 3.2: continue only uphill.
    uphill = jnp.sum((point - projected) * change) <= 0
    weight = (1 + jnp.sqrt(1 + 4 * momentum.weight**2)) / 2
    continues = accepted & uphill
    share = jnp.where(continues, (momentum.weight - 1) / weight, 0)
    direction = projected - point
    curvature = jnp.sum(direction * (responses - momentum.responses))
    length = jnp.sum(direction**2)
    # A shorter step gives a curvature of rounding errors.
    is_long = length > jnp.finfo(alpha.dtype).eps * jnp.sum(projected**2)
    curvature = jnp.where(is_long, curvature / jnp.where(is_long, length, 1), 0)
    return state._replace(
        rows=rows,
        coefficients=coefficients,
        responses=accepted_responses,
        num_updates=state.num_updates + accepted.astype(jnp.int32),
        momentum=Momentum(
            point=coefficients + share * change,
            responses=accepted_responses + share * (responses - state.responses),
            weight=jnp.where(continues, weight, 1),
            curvature=jnp.maximum(momentum.curvature, curvature),
        ),
    )


@jax.jit
def _estimate_curvature(
    kernel: Kernel, rows: KernelRows, X: Matrix, y: Vector
) -> tuple[KernelRows, Scalar]:
    """The largest curvature of `Q` along balanced directions, estimated from below.

    All steps are balanced, and along balanced directions `Q` is far flatter: if kernel
    values are similar, its largest eigenvector is nearly `y`.
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
    carry = rows, start, jnp.zeros((), X.dtype)
    ends = jnp.int32(0), jnp.int32(POWER_ITERATIONS)
    rows, _, size = jax.lax.fori_loop(*ends, body, carry)
    return rows, jnp.where(size > 0, size, 1)
