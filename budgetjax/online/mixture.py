"""A mixture of learners, which weighs what they predict by how well they did."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float, Integer

from budgetjax import _checks, _counters, _record, _sharding, losses
from budgetjax._errors import ArgumentError, names_errors
from budgetjax._record import leaf
from budgetjax._shapes import Number, Scalar, Score, Target
from budgetjax.kernels import RBF, Kernel
from budgetjax.online import sweeps
from budgetjax.online.learner import OnlineLearner
from budgetjax.online.learners.arow import AROW
from budgetjax.online.learners.krlst import KRLST
from budgetjax.online.maintenance import Maintenance
from budgetjax.online.state import Counts, Online, Round

EXPERTS = "experts"
Result = TypeVar("Result")

# The experts of `Mixture.init`: gammas, in units of that of the kernel, each with these
# pairs of noise and forgetting, or for labels with these drifts.
GAMMAS = 1 / 64, 1 / 8, 1 / 2, 2.0
PAIRS = (1.0, 0.0), (0.1, 0.0), (0.01, 0.0), (0.01, 0.001)
DRIFTS = 0.0, 0.01
# Half of them, for half of the time.
FAST, FAST_DRIFTS = ((0.01, 0.0), (0.01, 0.001)), (0.0,)
# The share of the past that the scale of an expert's errors forgets in every round.
SCALE_FORGETTING = 0.01
# The least logarithm of a density, or one row could silence an expert for good.
FLOOR = -50.0
# Labels have the probability sigmoid(SLOPE y f), with f at most LARGEST. The scores of
# experts are near 1 and -1. On nine streams a mixture of AROW made at most 0.3 points
# more mistakes than its best expert with the slope 4, and up to 8 points more with 2.
SLOPE, LARGEST = 4.0, 3.0
# A squared error is at most so many variances, for the sake of sums.
MOST = 1e12


@_record.record
class MixtureMemory(NamedTuple):
    """What a mixture remembers beside its experts.

    Attributes:
      log_weights: the logarithms of the experts' weights, shape `(experts,)`; not
        normalised.
      squares: of each expert the fading sum of squared errors, each divided by the
        variance that the expert said, shape `(experts, columns)`.
      number: the fading number of rounds in it.
      log_quantile: the logarithm of the half-width of an interval, in deviations, shape
        `(columns,)`.
    """

    log_weights: Float[Array, " experts"]
    squares: Float[Array, "experts columns"]
    number: Scalar
    log_quantile: Score


class Mixture(OnlineLearner):
    r"""A mixture of learners on one stream: no kernel and no rate to choose.

    All experts learn every row. The mixture predicts their mean, weighted by how likely
    they found the targets so far, with the variance of the mixture of their Gaussian
    densities. A row, in this order:

    1. Expert i says the density :math:`N(m_i, s_i v_i)` of the target, with its score
       :math:`m_i`, its variance :math:`v_i`, which is 1 if it knows none, and the mean
       :math:`s_i` of :math:`(y - m_i)^2 / v_i` over the last hundred rows or so. Of
       labels it says the probability, the sigmoid or softmax of four times its scores.
    2. With the share :math:`\alpha` and E experts, the weights :math:`\pi_i
       \leftarrow (1 - \alpha) \pi_i + \alpha / E` predict. The mean is :math:`\sum_i
       \pi_i m_i`, the variance :math:`\sum_i \pi_i (s_i v_i + m_i^2)` minus the squared
       mean.
    3. The weights learn: :math:`\pi_i \leftarrow \pi_i^{1 - \phi} N_i(y)`, normalised,
       with ``forgetting`` :math:`\phi`.
    4. The half-width q of an interval, in deviations, is multiplied by
       :math:`\exp(\rho (1 - c))` if the target was outside, else by :math:`\exp(-\rho
       c')`, with c the ``level``, c' = 1 - c and ``rate`` :math:`\rho`. In the long run
       a share c of all targets lies within, whatever the stream is.

    `init` makes its own experts with four widths of a kernel: for real targets 16
    `budgetjax.KRLST` with noises and forgetting for streams that are quiet, noisy, or
    change, and for labels 8 `budgetjax.AROW` with and without ``drift``. Rows should be
    scaled to deviations near 1. `of` takes yours.

    Cost: that of the experts. On a CPU they run one after the other, on accelerators
    side by side.

    Args:
      forgetting: :math:`\phi`, at least 0 and below 1. With 0 the weights are those of
        Bayes' rule.
      share: :math:`\alpha`, at least 0 and below 1, which no expert ever falls below.
      level: the share of targets that `budgetjax.predict_interval` covers, between 0
        and 1.
      rate: :math:`\rho`, at least 0; with 0 intervals are those of a Gaussian.

    Example:
      >>> X, y = np.random.default_rng(0).normal(size=(2, 300, 1))
      >>> state = bj.Mixture().init(num_features=1, budget=20)
      >>> state, scores = bj.run(state, X, np.sin(X[:, 0]))
      >>> bool(np.std(np.sin(X[100:, 0]) - scores[100:]) < 0.02)
      True

    References:
      Herbster and Warmuth (1998), "Tracking the best expert", for the fixed share.
      https://doi.org/10.1023/A:1007424614876
      Raftery, Kárný and Ettler (2010), "Online prediction under model uncertainty via
      dynamic model averaging", for forgetting.
      https://doi.org/10.1198/TECH.2009.08104
      Gibbs and Candès (2021), "Adaptive conformal inference under distribution shift",
      for step 4. https://arxiv.org/abs/2106.00170

    Differences from the papers: step 4 follows the quantile itself on the scale of its
    logarithm, as Angelopoulos, Candès and Tibshirani (2023) do without the logarithm,
    https://arxiv.org/abs/2307.16895; a density counts as at least exp(-50).
    """

    forgetting: Number = leaf(_checks.unit_interval, default=0.01)
    share: Number = leaf(_checks.unit_interval, default=1e-3)
    level: Number = leaf(_checks.open_unit_interval, default=0.9)
    rate: Number = leaf(_checks.non_negative, default=0.02)

    takes = ("num_classes", "num_outputs")
    # It has none of its own.
    has_vectors = False
    chooses_kernel = True

    @names_errors("Mixture.init")
    def init(
        self,
        kernel: Kernel | None = None,
        *,
        num_features: int,
        budget: ArrayLike,
        num_classes: int | None = None,
        num_outputs: int = 1,
        maintenance: Maintenance | None = None,
        vectors: ArrayLike | None = None,
        average: bool | int = False,
        seed: ArrayLike = 0,
        capacity: int | None = None,
        dtype: DTypeLike = jnp.float32,
        fast: bool = False,
    ) -> "MixtureState":
        """A mixture of `budgetjax.KRLST` or `budgetjax.AROW` that has learned nothing.

        Args:
          kernel: one that suits rows such as these, whose gamma the experts multiply by
            1/64, 1/8, 1/2 and 2. None is a Gaussian one, with one divided by the number
            of features.
          num_features: d, the length of an example.
          budget: the maximum number of support vectors of each expert.
          num_classes: None for real targets; 2 for labels -1 and +1; C for labels
            `0 .. C-1`.
          num_outputs: real targets per example.
          maintenance, vectors, average: as for `budgetjax.Learner.init`; a mixture
            takes none.
          seed, capacity, dtype: as there.
          fast: whether to take half of the experts: of real targets up to 6 percent
            less accurate where they are noisy, of labels those that do not drift.

        Raises:
          ValueError: if an argument is invalid.
        """
        self._check_taken(num_classes, num_outputs, maintenance, vectors, average)
        features = _checks.size("num_features", num_features)
        unit: Any = RBF(1 / features) if kernel is None else kernel
        if not hasattr(unit, "gamma"):
            wanted = "have a gamma, of which every expert has a multiple"
            raise ArgumentError("kernel", wanted, f"{kernel!r}")
        pairs = FAST if _checks.flag("fast", fast) else PAIRS
        names = "multiple", "noise", "forgetting"
        if num_classes is not None:
            names = "multiple", "drift"
            pairs = [(drift,) for drift in (FAST_DRIFTS if fast else DRIFTS)]
        rows = [(multiple, *pair) for multiple in GAMMAS for pair in pairs]
        columns = tuple(np.array(column) for column in zip(*rows, strict=True))

        def one(multiple: Any, **own: Any) -> Any:
            learner = KRLST(**own) if num_classes is None else AROW(**own)
            return learner.init(
                unit._replace(gamma=multiple * unit.gamma),
                num_features=features,
                budget=budget,
                num_classes=num_classes,
                num_outputs=num_outputs,
                seed=seed,
                capacity=capacity,
                dtype=dtype,
            )

        return self.of(sweeps.Grid(names, columns).init(one))

    @names_errors("Mixture.of")
    def of(self, experts: Online) -> "MixtureState":
        """A mixture of your own experts, which may have learned already.

        Args:
          experts: stacked states of one learner, from `jax.vmap` over `init` or
            `budgetjax.Grid.init`; of labels, or of real targets.

        Raises:
          ValueError: if they are not stacked, or learn something else.
        """
        shape = experts.counts.seen.low.shape if isinstance(experts, Online) else None
        if shape is None or len(shape) != 1:
            got = _checks.kind_name(experts) if shape is None else "a single one"
            raise ArgumentError("experts", "be states stacked along one axis", got)
        if experts.link == losses.EXP:
            wanted = "be of labels or real targets"
            raise ArgumentError("experts", wanted, "those of logarithms of values")
        dtype, columns = experts.dtype, experts.num_columns
        own = self._replace(**_checks.numbers_as_leaves(self, dtype))
        start = jnp.log(_half_width(own.level))
        memory = MixtureMemory(
            log_weights=jnp.zeros(shape, dtype),
            squares=jnp.ones((*shape, columns), dtype),
            number=jnp.ones((), dtype),
            log_quantile=jnp.full((columns,), start, dtype),
        )
        return MixtureState(Counts.of(0, 0, 0), own, experts, memory)


class MixtureState(Online):
    """The state of a `Mixture`: its experts, and how it weighs them.

    Attributes:
      learner: the mixture, with its numbers as arrays; a round never changes it.
      experts: their states, stacked along the first axis.
      memory: the weights, scales and the width of intervals.
    """

    learner: Mixture
    experts: Any
    memory: MixtureMemory

    @property
    def num_features(self) -> int:
        return self.experts.num_features

    @property
    def num_columns(self) -> int:
        return self.experts.num_columns

    @property
    def dtype(self) -> np.dtype:
        return self.experts.dtype

    @property
    def loss(self) -> Any:
        return self.experts.loss

    @property
    def shifts(self) -> bool:
        return self.experts.shifts

    @property
    def knows_variance(self) -> bool:
        return self.is_regressor

    @property
    def num_active(self) -> Integer[Array, "*models"]:
        """The number of support vectors of all experts."""
        return jnp.sum(self.experts.num_active, axis=-1)

    @property
    def capacity(self) -> int:
        """The number of slots for support vectors of each expert."""
        return self.experts.capacity

    @property
    def weights(self) -> Float[Array, " experts"]:
        """The weights with which the experts predict, of sum 1, shape `(experts,)`."""
        return jnp.exp(_log_shares(self.learner, self.memory))

    def learn(self, X, y, weights, *, axis=None, variance=False):
        asks = self.is_regressor and self.experts.knows_variance

        def learn(expert: Any) -> Any:
            lockstep = EXPERTS if sweeps.side_by_side() else None
            return expert.learn(X, y, weights, axis=lockstep, variance=asks)

        experts, told = _of_each(learn, self.experts)
        known = _per_column(told.variance, told.score)
        given, *_ = _sharding.vary((self.memory, self.counts), X, y, weights)

        def body(carry: Any, row: Any) -> Any:
            memory, counts = carry
            each, known, y, weight = row
            memory, score, variance = _learn_row(self, memory, each, known, y, weight)
            present = weight > 0
            flags = present, losses.is_mistake(score, y) & present, present
            return (memory, counts.after(*flags)), (score, variance)

        rows = *(jnp.swapaxes(said, 0, 1) for said in (told.score, known)), y, weights
        (memory, counts), (scores, variances) = jax.lax.scan(body, given, rows)
        counts = Counts(*map(_counters.normalized, counts))
        new = self._replace(experts=experts, memory=memory, counts=counts)
        return new, Round(scores, _squeezed(variances) if variance else None)

    def scores(self, X):
        each = _of_each(lambda expert: expert.scores(X), self.experts)
        return jnp.tensordot(self.weights, each, axes=1, precision="highest")

    def variance(self, X):
        if not self.is_regressor:
            return super().variance(X)

        def say(expert: Any) -> Any:
            known = expert.variance(X) if expert.knows_variance else None
            return expert.scores(X), known

        each, known = _of_each(say, self.experts)
        known = _per_column(known, each) * _scales(self.memory)[:, None]
        return _squeezed(_moments(self.weights, each, known)[1])

    def interval_width(self, level):
        """The conformal one, for another level as wide as Gaussians' differ."""
        usual = _half_width(self.learner.level)
        return jnp.exp(self.memory.log_quantile) * (_half_width(level) / usual)

    def choose_origin(self, X, weights):
        experts = jax.vmap(lambda one: one.choose_origin(X, weights))(self.experts)
        return self._replace(experts=experts)

    def restart(self):
        experts = jax.vmap(lambda one: one.restart())(self.experts)
        return self.learner.of(experts)

    def refreshed(self):
        return self._replace(
            experts=jax.vmap(lambda one: one.refreshed())(self.experts)
        )

    def check_room(self):
        self.experts.check_room()

    def check_value(self):
        of_experts = jax.vmap(lambda one: one.check_value())(self.experts)
        return jnp.sum(of_experts) + jnp.sum(self.memory.log_weights * 0)


def _of_each(function: Callable[[Any], Result], experts: Any) -> Result:
    """The function of every expert, in turn or side by side, as in a sweep."""
    if sweeps.side_by_side():
        return jax.vmap(function, axis_name=EXPERTS)(experts)
    return jax.lax.map(function, experts)


def _log_shares(mixture: Mixture, memory: MixtureMemory) -> Float[Array, " experts"]:
    """The logarithms of the weights that predict."""
    alone = jnp.log1p(-mixture.share) + jax.nn.log_softmax(memory.log_weights)
    return jnp.logaddexp(alone, jnp.log(mixture.share / alone.shape[0]))


def _scales(memory: MixtureMemory) -> Float[Array, "experts columns"]:
    """`s_i`, of each column."""
    return memory.squares / memory.number


def _moments(
    weights: Float[Array, " experts"],
    each: Float[Array, "*both"],
    variances: Float[Array, "*both"],
) -> tuple[Array, Array]:
    """Mean and variance of a mixture of densities, which the first axis counts."""

    def mean(values: Array) -> Array:
        return jnp.tensordot(weights, values, axes=1, precision="highest")

    score = mean(each)
    # As deviations from the mean, whose squares cannot cancel.
    return score, mean(variances + (each - score[None]) ** 2)


def _learn_row(
    state: MixtureState,
    memory: MixtureMemory,
    each: Float[Array, "experts columns"],
    known: Float[Array, "experts columns"],
    y: Target,
    weight: Scalar,
) -> tuple[MixtureMemory, Score, Score]:
    """Steps 1 to 4: what is remembered then, the mean and its variance."""
    mixture, present = state.learner, weight > 0
    count = jnp.where(present, weight, 0)
    log_shares = _log_shares(mixture, memory)
    scaled = _scales(memory) * known
    score, variance = _moments(jnp.exp(log_shares), each, scaled)
    squares, log_quantile = memory.squares, memory.log_quantile
    kept = 1 - SCALE_FORGETTING
    if state.is_regressor:
        target = jnp.broadcast_to(y, score.shape)
        square = (target[None] - each) ** 2
        density = jnp.sum(jnp.log(2 * jnp.pi * scaled) + square / scaled, axis=1) / -2
        squares = kept * squares + count * jnp.minimum(square / known, MOST)
        outside = (target - score) ** 2 > jnp.exp(2 * log_quantile) * variance
        missing = outside.astype(score.dtype) - (1 - mixture.level)
        log_quantile = log_quantile + mixture.rate * missing
    else:
        density = jax.vmap(lambda score: _log_probability(score, y))(each)
    # Also where an expert says what is not a number.
    density = jnp.where(density > FLOOR, density, FLOOR)
    learned = (1 - mixture.forgetting) * log_shares + count * density
    after = MixtureMemory(
        log_weights=learned - jnp.max(learned),
        squares=squares,
        number=kept * memory.number + count,
        log_quantile=log_quantile,
    )
    after = jax.tree.map(lambda new, old: jnp.where(present, new, old), after, memory)
    return after, score, variance


def _log_probability(score: Score, y: Target) -> Scalar:
    """Of a label."""
    bounded = SLOPE * jnp.clip(score, -LARGEST, LARGEST)
    return -losses.logistic(bounded[0] if bounded.shape[0] == 1 else bounded, y)


def _per_column(
    variance: Float[Array, "*n_columns"] | None, score: Float[Array, "*n columns"]
) -> Float[Array, "*n columns"]:
    """The variance of each score, 1 if it is not known."""
    if variance is None:
        return jnp.ones_like(score)
    if variance.ndim < score.ndim:
        variance = variance[..., None]
    return jnp.broadcast_to(variance, score.shape)


def _squeezed(variances: Float[Array, "n columns"]) -> Float[Array, "*n_columns"]:
    return variances[:, 0] if variances.shape[1] == 1 else variances


def _half_width(level: ArrayLike) -> Array:
    """Of the interval that holds this share of a Gaussian of deviation 1."""
    return jax.scipy.stats.norm.ppf((1 + level) / 2)
