"""The kernel recursive least-squares tracker: a Gaussian process on a budget."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Integer

from budgetjax import _checks, _record, _sharding, kernels, losses
from budgetjax._record import leaf
from budgetjax._shapes import (
    Flag,
    Index,
    Number,
    PerPair,
    PerRow,
    Scalar,
    Score,
    Target,
)
from budgetjax.online import covariance, span, support_set
from budgetjax.online.edits import Edits, entering_row, write
from budgetjax.online.learner import Learner
from budgetjax.online.slots import NOWHERE, oldest_argmin, put
from budgetjax.online.span import Span
from budgetjax.online.state import State
from budgetjax.online.support_set import Candidate

# The ridge in float64, where a smooth series without noise can be followed closely.
FINE_RIDGE = 1e-6
# The share of its sum that the power of the targets forgets in every round.
POWER_FORGETTING = 0.01


@_record.record
class KRLSTMemory(NamedTuple):
    """What the tracker remembers.

    Attributes:
      span: the span of the support vectors, with an orthonormal basis.
      weights: their mean in that basis, shape `(rows, columns)`.
      certainty: I - S, with S their covariance in units of the power, shape
        `(rows, rows)`.
      squares: the fading sum of the squared errors, each divided by its variance in
        units of the power, shape `(columns,)`.
      number: the fading number of rounds in it.
    """

    span: Span
    weights: Float[Array, "rows columns"]
    certainty: PerPair
    squares: Float[Array, " columns"]
    number: Scalar


class Moment(NamedTuple):
    """A round in the making: the model has learned, and no vector has moved.

    Attributes:
      kernel_row, kernel_self: of the example; the row is 0 for free slots.
      q: its projection onto the support vectors.
      beyond: its squared distance from their span.
      h: its covariance with the weights.
      rate: one divided by the variance of its target, 0 for a row without weight.
      gain: the error, divided by that variance.
      kept: what forgetting leaves of the certainty.
      weights: the mean that has learned.
    """

    kernel_row: PerRow
    kernel_self: Scalar
    q: PerRow
    beyond: Scalar
    h: PerRow
    rate: Scalar
    gain: Score
    kept: Scalar
    weights: Float[Array, "rows columns"]


class KRLST(Learner):
    r"""KRLS-T: recursive least squares that forgets, a Gaussian process on a budget.

    It learns real targets, and knows how sure it is. The targets are :math:`y = f(x) +
    \epsilon`, where f is a Gaussian process with the covariance :math:`s_0 \, k` and
    the noise has the variance :math:`s_0 \nu`. The values of f at the support vectors
    have a mean and a covariance, in orthonormal features :math:`p(x) = R \, k(Z, x)`,
    :math:`R K_{ZZ} R^T = I`, the weights w and S, which is I at first. A round with
    :math:`q = K_{ZZ}^{-1} k(Z, x)`:

    1. The past is forgotten, back to the prior: :math:`w \leftarrow \sqrt\lambda w`,
       :math:`S \leftarrow \lambda S + (1 - \lambda) I`, with :math:`\lambda` = 1 -
       ``forgetting``.
    2. The weights learn, in the span of the support vectors and x. With :math:`h = S
       p`, :math:`\gamma^2 = k(x, x) - k(Z, x)^T q`, :math:`e = y - w^T p` and
       :math:`\beta = 1 / (p^T h + \gamma^2 + \nu)`: :math:`w \leftarrow w + \beta e h`
       and :math:`S \leftarrow S - \beta h h^T`. The new direction has the weight
       :math:`\beta e \gamma` likewise.
    3. x becomes a support vector unless :math:`\gamma^2` is below ``novelty``. In a
       full budget the vector leaves whose loss changes the mean least,
       :math:`|\alpha_j| / (K^{-1})_{jj}` with the coefficients :math:`\alpha`, which
       may be x. The mean and the covariance of all others stay as they are.

    The power :math:`s_0` is the mean of :math:`\beta e^2`, of the last hundred rounds
    or so. Several outputs share S, and have a power each.

    `budgetjax.variance` gives the variance of the target, :math:`s_0 (v + \nu)`, where
    v is that of f(x) before step 1; its root is in the unit of the target.

    An example of weight w has the noise :math:`\nu / w`, as w equal examples do.

    Cost: O(B (B + d + C)) per example, in every round. Memory: three B x B matrices.

    Args:
      noise: :math:`\nu`, above 0: the variance of the noise, divided by that of f.
      forgetting: the share of the past that is forgotten in every round, at least 0 and
        below 1. Where the world changes, 0.001 is a good start; a share that is not
        needed costs accuracy, and 0.01 much of it.
      novelty: the least :math:`\gamma^2` of a support vector, as a fraction of k(x, x);
        at least 0. None is 0.002, twice the ridge, so that no vector is there twice;
        with float64 it is 0.001.

    Example:
      >>> state = bj.KRLST().init(
      ...     bj.RBF(gamma=1.0), num_features=1, budget=10, num_classes=None)
      >>> state = bj.step(state, jnp.array([0.0]), 3.0)
      >>> [round(float(f), 2) for f in bj.decision_function(state, jnp.zeros((1, 1)))]
      [2.97]

    References:
      Van Vaerenbergh, Lázaro-Gredilla and Santamaría (2012), "Kernel recursive
      least-squares tracker for time-varying regression": step 1 is its forgetting back
      to the prior, step 3 its pruning by least error.
      https://doi.org/10.1109/TNNLS.2012.2200500

    Differences from the paper: the covariance of the weights is kept instead of that of
    the values and an inverse of K, which float32 does not survive; K has a ridge of
    0.001 of its diagonal, with float64 0.000001 (see `budgetjax/online/span.py`); the
    power fades.
    """

    takes = ("num_outputs",)
    loss = staticmethod(optax.losses.squared_error)
    noise: Number = leaf(_checks.positive, default=0.01)
    forgetting: Number = leaf(_checks.unit_interval, default=0.0)
    novelty: Number | None = leaf(_checks.non_negative, default=None)

    def bind(self, expansion, num_classes):
        dtype = expansion.vectors.dtype
        _checks.check_invertible_dtype(dtype)
        novelty = self.novelty
        if novelty is None:
            novelty = max(2 * ridge_of(dtype), 1e-3)
        return super(KRLST, self._replace(novelty=novelty)).bind(expansion, num_classes)

    def default_maintenance(self, kernel):
        return None

    def start(self, state, seed, vectors):
        rows, columns = state.expansion.coefficients_and_sums.shape
        basis = span.empty(rows, state.dtype)
        blank = jnp.zeros((columns,), state.dtype)
        memory = KRLSTMemory(
            span=basis,
            weights=jnp.zeros((rows, columns), state.dtype),
            certainty=jnp.zeros_like(basis.root),
            squares=blank,
            number=jnp.zeros((), state.dtype),
        )
        return state._replace(memory=memory)

    def block(self, state, X, y, weights, axis=None):
        state, scores, _ = self.block_with_variances(state, X, y, weights, axis)
        return state, scores

    def block_with_variances(self, state, X, y, weights, axis=None):
        kernel, expansion = state.kernel, state.expansion
        squares = kernels.squared_norms(X)
        gram = kernel.gram(X, X, squares, squares)
        selves = kernel.diag(X, squares)
        kernel_rows = support_set.kernel_rows(kernel, expansion, X, squares)
        kernel_rows = jnp.where(expansion.mask[None], kernel_rows, 0)

        def body(carry: Any, i: Integer[Array, ""]) -> Any:
            state, kernel_rows, slot = carry
            # The column of the round before: written first, the array is not copied.
            column = jnp.where(slot == NOWHERE, 0, gram[i - 1])
            kernel_rows = put(kernel_rows, slot, column, axis=1)
            candidate = Candidate(
                vector=X[i],
                square=squares[i],
                coefficients=jnp.zeros_like(state.expansion.coefficients[0]),
                age=state.age,
                weight=weights[i],
                kernel_row=kernel_rows[i],
                kernel_self=selves[i],
            )
            state, slot, *told = _learn(state, candidate, y[i])
            return (state, kernel_rows, slot), told

        index = jnp.arange(X.shape[0], dtype=jnp.int32)
        none = jnp.full_like(index[0], NOWHERE)
        carry, *_ = _sharding.vary((state, kernel_rows, none), X, y, weights)
        (state, *_), told = jax.lax.scan(body, carry, index)
        scores, variances = told
        return _expand(state), scores, variances

    def variance(self, state, X):
        """`s0 (v + noise)`, as in `budgetjax.run`."""
        memory = state.memory
        p, known, selves = covariance.in_basis(state, X)
        s = p - known
        inside = jnp.maximum(jnp.sum(p * s, axis=1), jnp.sum(s * s, axis=1))
        square = jnp.sum(p * p, axis=1)
        beyond = span.squared_residual(selves, square, ridge_of(state.dtype))
        return _of_targets(memory, inside + beyond + self.noise)

    def precision(self, state):
        return covariance.precision(state)

    def basis(self, state):
        """The orthonormal features of the support vectors."""
        return state.memory.span.root.T

    def with_vectors(self, state, vectors):
        return span.with_vectors(state, vectors, ridge_of(state.dtype))

    def refresh(self, state):
        """The mean is that of the coefficients; its covariance and the power stay."""
        memory = state.memory
        # The coefficients are `R^T w`, and `R K R^T = I`.
        weights = state.expansion.coefficients
        for matrix in (memory.span.gram, memory.span.root):
            weights = jnp.matmul(matrix, weights, precision="highest")
        return state._replace(memory=memory._replace(weights=weights))


def ridge_of(dtype: Any) -> float:
    """The ridge of the kernel matrix that this dtype needs."""
    return FINE_RIDGE if jnp.finfo(dtype).bits > 32 else span.RIDGE


def _of_targets(
    memory: KRLSTMemory, variance: Float[Array, "*n"]
) -> Float[Array, "*n_columns"]:
    """The variances of targets, of those in units of the power."""
    known = memory.number > 0
    power = memory.squares / jnp.where(known, memory.number, 1)
    power = jnp.where(known, power, 1)
    if power.size == 1:
        return variance * power[0]
    return jnp.tensordot(variance, power, axes=0, precision="highest")


def _learn(
    state: State, candidate: Candidate, y: Target
) -> tuple[State, Index, Score, Float[Array, "*each"]]:
    """A round: the state, the slot of the example, its score and its variance."""
    learner, memory, expansion = state.learner, state.memory, state.expansion
    present, weight = candidate.weight > 0, candidate.weight
    kernel_row, ridge = candidate.kernel_row, ridge_of(state.dtype)
    one = jnp.ones_like(weight)
    kept = jnp.where(present, 1 - learner.forgetting, one)

    p, known, inside = covariance.uncertainty(
        memory.span, memory.certainty, kernel_row, one
    )
    q = jnp.matmul(p, memory.span.root, precision="highest")
    q = span.refine(memory.span, kernel_row, q, expansion.mask)
    beyond = span.squared_residual(
        *(candidate.kernel_self, jnp.dot(kernel_row, q, precision="highest")), ridge
    )
    score = jnp.matmul(p, memory.weights, precision="highest")
    variance = _of_targets(memory, inside + beyond + learner.noise)

    # Step 1, of what the example meets: h = p - kept (p - S p).
    h = kept * known + (1 - kept) * p
    latent = jnp.dot(p, h, precision="highest")
    latent = jnp.maximum(latent, jnp.dot(h, h, precision="highest")) + beyond
    # Step 2.
    shrink = jnp.sqrt(kept)
    error = jnp.where(present, y - shrink * score, 0)
    noise = learner.noise / jnp.where(present, weight, 1)
    rate = jnp.where(present, 1 / (latent + noise), 0)
    gain = rate * error
    weights = shrink * memory.weights + h[:, None] * gain[None]

    # Step 3.
    now = Moment(
        *(kernel_row, candidate.kernel_self, q, beyond, h, rate, gain, kept, weights)
    )
    enters = present & (beyond >= learner.novelty * candidate.kernel_self)
    full = expansion.full
    slot = jnp.where(enters & ~full, expansion.num_active, NOWHERE)
    slot = _sharding.cond(enters & full, lambda: _leaving(state, now), lambda: slot)
    basis, u, half, weights = _sharding.cond(
        slot != NOWHERE,
        lambda: _move(state, now, slot, full),
        lambda: (memory.span, jnp.zeros_like(h), jnp.zeros_like(h), weights),
    )
    certainty = span.add_products(
        kept * memory.certainty, (rate * h, h), (u, half), (half, u)
    )

    fades = jnp.where(present, 1 - POWER_FORGETTING, 1).astype(one.dtype)
    memory = KRLSTMemory(
        span=basis,
        weights=weights,
        certainty=certainty,
        squares=fades * memory.squares + gain * error,
        number=fades * memory.number + present.astype(one.dtype),
    )
    mistaken = losses.is_mistake(score, y) & present
    row = entering_row(expansion, candidate, slot)
    state = state._replace(
        expansion=write(expansion, Edits((row,))), memory=memory
    ).after(*(flag.astype(jnp.int32) for flag in (present, mistaken, present)))
    return state, slot, score, variance


def _leaving(state: State, now: Moment) -> Index:
    """The slot of the vector that leaves a full budget; `NOWHERE` is the example."""
    expansion, root = state.expansion, state.memory.span.root
    # Coefficients, and the diagonal of the inverse kernel matrix, with the example.
    terms = jnp.matmul(now.weights.T, root, precision="highest")
    terms = terms - now.gain[:, None] * now.q[None]
    diagonal = jnp.sum(root * root, axis=0) + now.q * now.q / now.beyond
    mask = expansion.mask
    lengths = jnp.sqrt(jnp.sum(terms * terms, axis=0))
    lost = jnp.where(mask, lengths / jnp.where(mask, diagonal, 1), jnp.inf)
    own = jnp.sqrt(jnp.sum(now.gain * now.gain)) * now.beyond
    slot = oldest_argmin(expansion.ages, lost)
    return jnp.where(own <= lost[slot], NOWHERE, slot)


def _move(
    state: State, now: Moment, slot: Index, taken: Flag
) -> tuple[Span, PerRow, PerRow, Float[Array, "rows columns"]]:
    """The example takes a slot: span, `u` and `h` of the certainty, and weights.

    The direction u that the leaving vector takes with it becomes the one of the
    example beyond the others. With `a` its sine, the example's own direction counts
    a times in u.
    """
    memory, ridge = state.memory, ridge_of(state.dtype)
    new = span.plan_swap(
        *(memory.span, slot, taken, now.q, now.kernel_row, now.kernel_self), ridge
    )
    u, cosine = new.direction, span.cosine(new)
    lost, sine = 1 - cosine, jnp.sqrt(jnp.maximum(1 - cosine * cosine, 0))
    # Of the model that has learned, in the old span.
    reach = now.kept * jnp.matmul(memory.certainty, u, precision="highest")
    reach = reach + now.rate * jnp.dot(now.h, u, precision="highest") * now.h
    along = jnp.dot(u, reach, precision="highest")
    half = covariance.without_direction(u, reach, along, lost)
    # And of the direction of the example beyond it.
    length = jnp.sqrt(now.beyond)
    cross = sine * now.rate * length * now.h
    corner = sine * sine * now.rate * now.beyond
    half = half + cross - (lost * jnp.dot(u, cross, precision="highest")) * u
    half = half + corner / 2 * u
    own = sine * length * now.gain
    lost_part = lost * jnp.matmul(u, now.weights, precision="highest")
    weights = now.weights + u[:, None] * (own - lost_part)[None]
    changed = span.swap(memory.span, new, state.expansion.num_active, ridge)
    return changed, u, half, weights


def _expand(state: State) -> State:
    """The state with the coefficients of its weights, `R^T w`; O(B^2 C)."""
    memory = state.memory
    # A CPU multiplies rows eight times faster than columns. Without the barrier the
    # compiler removes both transpositions.
    rows = jax.lax.optimization_barrier(memory.weights.T)
    terms = jnp.matmul(rows, memory.span.root, precision="highest").T
    return state._replace(
        expansion=state.expansion._replace(coefficients_and_sums=terms)
    )
