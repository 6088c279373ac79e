"""AROW on a budget: second-order learning with a kernel."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from budgetjax import _checks, _platform, _record, _sharding, losses
from budgetjax._errors import ArgumentError
from budgetjax._record import leaf
from budgetjax._shapes import Index, Label, Number, PerPair, PerRow, Scalar
from budgetjax.kernels import Kernel
from budgetjax.online import covariance, importance, span, support_set
from budgetjax.online.edits import (
    Edits,
    RankOneUpdate,
    Row,
    entering_row,
    no_edits,
    stack_rows,
    write,
)
from budgetjax.online.learner import Learner
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.slots import NOWHERE
from budgetjax.online.span import Span
from budgetjax.online.state import State
from budgetjax.online.support_set import Candidate

# Lambda of the Pegasos that chooses the support vectors. Larger values let fewer
# examples move them early, smaller values late; 1e-3 to 1e-5 differ by at most half a
# point.
REGULARIZATION = 1e-4
# The rounding errors of v, in units of that of 1, with room to spare: smaller noise
# lets the covariance lose its sign.
ROUNDING = 1024


@_record.record
class AROWMemory(NamedTuple):
    """What AROW remembers. The coefficients of the state are those of the mean weights.

    Attributes:
      counts: the unscaled coefficients of Pegasos, which `maintenance` uses to decide,
        shape `(rows, columns)`; None if the support vectors are fixed.
      span: the span of the support vectors, with an orthonormal basis.
      certainty: I - S, with S the covariance of the weights in that basis, shape
        `(rows, rows)`: 0 for unknown directions.
      num_moves: rounds that moved support vectors.
    """

    counts: Float[Array, "rows columns"] | None
    span: Span
    certainty: PerPair
    num_moves: Index


class AROW(Learner):
    r"""AROW on a budget: second-order learning in the span of the support vectors.

    The weights of the model, in the span of the support vectors, have a mean and a
    covariance S, which is I before any example. With orthonormal features
    :math:`p(x) = R \, k(Z, x)`, :math:`R K_{ZZ} R^T = I`, and the margin :math:`m` of
    the mean, :math:`y f(x)` or :math:`f^{(y)} - f^{(q)}` with the best other class q,
    an example with :math:`m < 1` makes two steps:

    1. The support vectors move. A Pegasos on a budget learns from these examples too.
       If its own margin is at most 1 too, the example enters its support set, and
       ``maintenance`` makes room. Mean and covariance follow by the projection P onto
       the new span: :math:`S \leftarrow P S P^T + I - P P^T`. Up to round t, the
       support vectors move in at most :math:`B + B \cdot` ``moves``
       :math:`\log_2(1 + t/B)` rounds. They therefore come to rest, and the weights
       converge.
    2. The weights learn, if the margin is still below 1. With :math:`s = S p`,
       :math:`v = p^T s`, :math:`\beta = 1 / (c \, v + r)` and c = 1, or 2 with more
       than two classes, the mean changes by :math:`(1 - m) \beta s` in column y and by
       the negative of it in column q (by :math:`y (1 - m) \beta s` in the binary case),
       and :math:`S \leftarrow S - \beta s s^T`.

    With ``drift``, :math:`S \leftarrow (1 - \delta) S + \delta I` precedes step 2: old
    knowledge becomes uncertain again, and the model follows a drifting stream.

    An example of weight w has the noise r / w, though none that float32 cannot resolve,
    and enters Pegasos with weight w.

    With fixed ``vectors`` of `init` there is no step 1. `budgetjax.variance` gives the
    variance of the score of any example.

    Cost: O(B (d + C)) per example; a margin below 1 adds O(B (B + d + C)). Memory:
    three B x B matrices.

    Args:
      confidence: r, positive: the noise of a label. A larger r learns more slowly and
        steadily.
      drift: :math:`\delta`, at least 0 and below 1. On electricity prices in time
        order 0.01 raised the accuracy of predictions with 100 vectors from 74.2 to 92.8
        percent. It pays where the stream never rests: on one that does not drift 0 is
        best, and after a single abrupt change too, as the certainty it forgets is
        worth more. Where the labels of an XOR among eight features of noise flip half
        way through 6,000 rows, predictions with 100 vectors are right in 73 percent
        with 0.01, and in 78 with 0.
      moves: rounds that may move support vectors, per B and per doubling of the
        stream's length; at least 0.

    Example:
      >>> state = bj.AROW().init(bj.RBF(gamma=1.0), num_features=2, budget=100)
      >>> state = bj.step(state, jnp.array([1.0, 2.0]), -1)
      >>> bj.predict(state, jnp.array([[1.0, 2.0]])).tolist()
      [-1]

    References:
      Crammer, Kulesza and Dredze (2009), "Adaptive regularization of weight vectors",
      Figure 1. https://papers.nips.cc/paper/3848-adaptive-regularization-of-weight-vectors
      Wang, Crammer and Vucetic (2010), "Multi-class Pegasos on a budget", for the
      support vectors; see https://jmlr.org/papers/volume13/wang12b/wang12b.pdf

    Differences from the papers: the weights live in the span of moving support vectors;
    all classes share one covariance; K has a ridge of 0.001 of its diagonal (see
    `budgetjax/online/span.py`). Pegasos counts the updates of the model as its rounds;
    its lambda is 0.0001.
    """

    takes = ("num_classes", "maintenance", "vectors")
    confidence: Number = leaf(_checks.positive, default=0.01)
    drift: Number = leaf(_checks.unit_interval, default=0.0)
    moves: Number = leaf(_checks.non_negative, default=2.0)

    def bind(self, expansion, num_classes):
        _checks.check_invertible_dtype(expansion.vectors.dtype)
        return super().bind(expansion, num_classes)

    def start(self, state, seed, vectors):
        expansion, counts = state.expansion, None
        if vectors is not None:
            expansion, basis = span.with_landmarks(state.kernel, expansion, vectors)
        else:
            basis = span.empty(len(expansion.ages), state.dtype)
            if state.maintenance is None or not state.maintenance.keeps_full:
                wanted = "keep a full budget full"
                raise ArgumentError("maintenance", wanted, f"{state.maintenance!r}")
            counts = jnp.zeros_like(expansion.coefficients_and_sums)
        certainty = jnp.zeros_like(basis.root)
        memory = AROWMemory(counts, basis, certainty, jnp.zeros((), jnp.int32))
        return state._replace(expansion=expansion, memory=memory)

    def restart(self, state):
        """Forgets all but fixed vectors, which do not depend on labels."""
        memory = state.memory
        if memory.counts is not None:
            return super().restart(state)
        certainty = jnp.zeros_like(memory.certainty)
        return state.forget()._replace(memory=memory._replace(certainty=certainty))

    def update(self, state, score, y, candidate):
        """Steps 1 and 2."""
        moved, num_moves = _move_if_allowed(state, y, candidate)
        model, kernel_row = moved.model, moved.kernel_row

        # The loss of the mean after the move.
        now = jnp.matmul(kernel_row, model.coefficients, precision="highest")
        loss = jnp.maximum(1 - losses.margin(now, y), 0)
        # The drift forgets a share of the knowledge, I - S.
        kept = 1 - self.drift
        _, s, v = covariance.uncertainty(model.span, model.certainty, kernel_row, kept)
        columns = 1 if score.shape[0] == 1 else 2
        # Figure 1 of AROW: beta_t and alpha_t = loss beta_t.
        # A weight does not take it below the rounding errors of v.
        least = jnp.minimum(self.confidence, ROUNDING * jnp.finfo(v.dtype).eps)
        noise = jnp.maximum(self.confidence / candidate.weight, least)
        beta = jnp.where(loss > 0, 1 / (columns * v + noise), 0)
        certainty = span.add_products(kept * model.certainty, (beta * s, s))
        step = RankOneUpdate(
            jnp.matmul(s, model.span.root, precision="highest"),
            loss * beta * losses.margin_subgradient(now, y),
        )

        terms = model.coefficients + step.weights[:, None] * step.term[None]
        rows = tuple(row._replace(term=terms[row.slot]) for row in moved.rows)
        updates = (*moved.rank_one_updates, step)
        memory = AROWMemory(moved.counts, model.span, certainty, num_moves)
        state = state._replace(maintenance=moved.maintenance, memory=memory)
        return state, Edits(rows, updates)

    def variance(self, state, X):
        """`k(x, x) - p^T (I - S) p`: S within the span of the vectors, I beyond."""
        p, known, selves = covariance.in_basis(state, X)
        # K has a ridge, so the variance of a vector itself may round to below 0.
        return jnp.maximum(selves - jnp.sum(known * p, axis=1), 0)

    def precision(self, state):
        return covariance.precision(state)

    def with_vectors(self, state, vectors):
        return span.with_vectors(state, vectors)

    def refresh(self, state):
        """Restarts the strategy, which uses the coefficients of Pegasos."""
        counts, strategy = state.memory.counts, state.maintenance
        if strategy is None or counts is None:
            return state
        pegasos = _pegasos(state.expansion, counts)
        return state._replace(maintenance=strategy.restart(state.kernel, pegasos))

    def no_update_above(self, state):
        return 1.0


class Model(NamedTuple):
    """The part of the model that a moving support vector changes."""

    span: Span
    certainty: PerPair
    coefficients: Float[Array, "rows columns"]
    mask: Bool[Array, " rows"]


class MovedModel(NamedTuple):
    """The result of step 1.

    The `kernel_row` is that of the new support vectors, 0 for free slots. The terms of
    `rows`, the slots that changed, are arbitrary. Each vector that left has a rank-one
    update, the coefficients that the others receive.
    """

    model: Model
    maintenance: Maintenance | None
    counts: Float[Array, "rows columns"] | None
    kernel_row: PerRow
    rows: tuple[Row, ...]
    rank_one_updates: tuple[RankOneUpdate, ...]


def _move_if_allowed(
    state: State, y: Label, candidate: Candidate
) -> tuple[MovedModel, Index]:
    """Step 1, if it is allowed and needed, and the number of moves."""
    expansion, memory = state.expansion, state.memory
    kernel_row = jnp.where(expansion.mask, candidate.kernel_row, 0)
    model = Model(
        memory.span, memory.certainty, expansion.coefficients_and_sums, expansion.mask
    )
    strategy, counts = state.maintenance, memory.counts
    if strategy is None or counts is None:
        nowhere = jnp.asarray(NOWHERE, jnp.int32)
        row = entering_row(expansion, candidate, nowhere)
        return MovedModel(model, None, None, kernel_row, (row,), ()), memory.num_moves

    score = jnp.matmul(kernel_row, counts, precision="highest")
    budget = expansion.budget.astype(score.dtype)
    doublings = jnp.log2(1 + (state.rounds(budget.dtype) + 1) / budget)
    allowed = budget * (1 + state.learner.moves * doublings)
    # Pegasos divides the counts by lambda t, where t counts its own rounds.
    limit = REGULARIZATION * state.updates(budget.dtype)
    moves = (memory.num_moves.astype(budget.dtype) + 1 <= allowed) & (
        losses.margin(score, y) <= limit
    )

    direction = losses.margin_subgradient(score, y)
    gain = jnp.sum(direction**2) * candidate.kernel_self
    missing = limit - losses.margin(score, y)
    steps = importance.repeats(candidate.weight, missing, gain)
    entering = candidate._replace(coefficients=steps * direction)
    pegasos = _pegasos(expansion, counts)
    carried = state.kernel, pegasos, strategy, model, entering
    given = _platform.pack(carried, also=[entering.vector])

    def move():
        return _move(*given(), kernel_row)

    def stay():
        _, _, strategy, model, _ = given()
        like = jax.eval_shape(move)
        nothing = no_edits(Edits(like.rows, like.rank_one_updates))
        edits = nothing.rows, nothing.rank_one_updates
        return MovedModel(model, strategy, counts, kernel_row, *edits)

    return _sharding.cond(moves, move, stay), memory.num_moves + moves.astype(jnp.int32)


@functools.partial(jax.jit, inline=True)
def _move(
    kernel: Kernel,
    pegasos: support_set.Expansion,
    strategy: Maintenance,
    model: Model,
    candidate: Candidate,
    kernel_row: PerRow,
) -> MovedModel:
    """The example enters Pegasos, and the model follows, one slot after the other."""
    strategy, edits = strategy.insert(kernel, pegasos, candidate)
    rows = stack_rows(edits.rows)
    points, squares = rows.vector, rows.square
    # The last row is the example's own.
    others = support_set.kernel_rows(kernel, pegasos, points[:-1], squares[:-1])
    kernel_rows = jnp.concatenate([others, kernel_row[None]])
    selves = kernel.diag(points, squares)
    among = _among(kernel, edits.rows, selves)
    index = jnp.arange(len(edits.rows), dtype=jnp.int32)
    replacements = rows.slot, selves, among, index

    # A loop, since the compiler makes some sixty kernels of each swap.
    def swap(carry, planned):
        model, kernel_rows = carry
        slot, kernel_self, column, i = planned
        known = jnp.where(model.mask, kernel_rows[i], 0)
        model, update = _swap_vector(
            model, slot, known, kernel_self, pegasos.num_active
        )
        here = jnp.arange(known.shape[0], dtype=jnp.int32) == slot
        kernel_rows = jnp.where(here[None], column[:, None], kernel_rows)
        return (model, kernel_rows), update

    (model, kernel_rows), updates = jax.lax.scan(
        swap,
        (model, kernel_rows),
        replacements,
        unroll=1 if _platform.on_cpu() else len(edits.rows),
    )
    kernel_row = jnp.where(model.mask, kernel_rows[-1], 0)
    counts = write(pegasos, edits).coefficients_and_sums
    updates = tuple(
        jax.tree.map(lambda leaf, i=i: leaf[i], updates) for i in range(len(edits.rows))
    )
    return MovedModel(model, strategy, counts, kernel_row, edits.rows, updates)


def _among(
    kernel: Kernel, rows: tuple[Row, ...], selves: Float[Array, " n"]
) -> Float[Array, "n n"]:
    """The kernel matrix of a few points, pair by pair, with its diagonal `selves`."""

    def between(i: int, j: int) -> Scalar:
        if i == j:
            return selves[i]
        one, other = rows[max(i, j)], rows[min(i, j)]
        points = one.vector[None], other.vector[None]
        return kernel.gram(*points, one.square[None], other.square[None])[0, 0]

    each = range(len(rows))
    return jnp.stack([jnp.stack([between(i, j) for j in each]) for i in each])


def _swap_vector(
    model: Model,
    slot: Index,
    kernel_row: PerRow,
    kernel_self: Scalar,
    num_active: Index,
) -> tuple[Model, RankOneUpdate]:
    """Replaces the vector in a slot and projects the model; O(B^2 + B C).

    The second result holds the share of the leaving term that each other vector
    receives.
    """
    spare = model.mask.shape[0] - 1
    place = jnp.where(slot == NOWHERE, spare, slot)
    taken = model.mask[place]
    here = jnp.arange(spare + 1, dtype=jnp.int32) == slot
    solution = span.solve(model.span, kernel_row)
    new = span.plan_swap(model.span, slot, taken, solution, kernel_row, kernel_self)
    mask = model.mask | here
    square = model.span.selves[place]
    length = jnp.sqrt(jnp.where(square > 0, square, 1))
    shares, u = span.projection_of_removed(new) / length, new.direction
    # S <- P S P^T + I - P P^T is I - S <- P (I - S) P^T, P = I - (1 - cosine) u u^T.
    reach = jnp.matmul(model.certainty, new.column, precision="highest") / new.pivot
    square, along = _platform.dots((shares * shares, new.selves), (u, reach))
    lost = jnp.where(slot == NOWHERE, 0, 1 - span.cosine(new))
    half = covariance.without_direction(u, reach, along, lost)
    certainty = span.add_products(model.certainty, (u, half), (half, u))

    shares = jnp.where(mask & taken, length * span.bound(shares, square), 0)
    left = model.coefficients[place]
    terms = (
        jnp.where(here[:, None], 0, model.coefficients) + shares[:, None] * left[None]
    )
    changed = span.swap(model.span, new, num_active)
    return Model(changed, certainty, terms, mask), RankOneUpdate(shares, left)


def _pegasos(
    expansion: support_set.Expansion, counts: Float[Array, "rows columns"]
) -> support_set.Expansion:
    """The support set with the coefficients of Pegasos."""
    one = jnp.ones_like(expansion.scale)
    return expansion._replace(coefficients_and_sums=counts, scale=one)
